/* Loads a tokenizer: tokenizer.json of a folder (Hugging Face's layout) or the tokenizer.ggml.*
 * keys of a GGUF. One thread; what it makes is immutable. Everything read here is hostile: ids,
 * counts and texts are checked before they index anything, and what we cannot do exactly as the
 * reference (other models, unknown normalizers) is refused rather than approximated. */
#include "engine/text/tokenizer.h"

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/text/tokenizer_data.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SOURCE "tokenizer.json"
/* Tables are at most half full, where real vocabularies stay below a hundred steps; a file made to
 * collide is refused, not waited for. */
#define PROBES_MAX 2000

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the tokenizer");
}

const char *tokenizer_notice(const struct tokenizer *t)
{
    return t->notice.text[0] ? t->notice.text : NULL;
}

/* All text lies in one pool that never moves: its size is an upper bound known beforehand. */
static const char *keep_text(struct tokenizer *t, const char *text, size_t len)
{
    char *at = t->pool + t->pool_len;

    if (len + 1 > t->pool_size - t->pool_len)
        return NULL;
    memcpy(at, text, len);
    at[len] = 0;
    t->pool_len += len + 1;
    return at;
}

/* texts: how many will be set, which may be more than there are ids: the index must never fill up.
 */
static int make_tables(struct tokenizer *t, int n, size_t texts, size_t pool, struct error *e)
{
    uint32_t size = 16;

    if (texts > INT_MAX / 4)
        return error_set(e, ERR_MODEL, "the tokenizer has %zu tokens; that cannot be", texts);
    while (size < texts * 2)
        size *= 2;
    t->pieces = mem_alloc((size_t)n, sizeof *t->pieces);
    t->index = mem_alloc(size, sizeof *t->index);
    t->pool = mem_alloc(pool + 1, 1);
    if (!t->pieces || !t->index || !t->pool)
        return no_memory(e);
    memset(t->index, -1, size * sizeof *t->index);
    memset(t->byte_ids, -1, sizeof t->byte_ids);
    t->index_mask = size - 1;
    t->n_pieces = n;
    t->pool_size = pool + 1;
    t->unknown = t->bos = -1;
    for (int i = 0; i < n; i++)
        t->pieces[i].byte = -1;
    return 0;
}

/* "<0x0A>" is a byte token. */
static int byte_of(const char *text, size_t len)
{
    char digits[3] = "", *end;
    long v;

    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    memcpy(digits, text + 3, 2);
    v = strtol(digits, &end, 16);
    return *end || digits[0] == '+' || digits[0] == '-' || digits[0] == ' ' ? -1 : (int)v;
}

int tokenizer_index(struct tokenizer *t, int id, struct error *e)
{
    const struct piece *p = &t->pieces[id];
    uint32_t start = (uint32_t)tokenizer_hash(p->text, p->len);

    for (uint32_t i = start; i - start < PROBES_MAX; i++) {
        int32_t *slot = &t->index[i & t->index_mask];

        if (*slot < 0) {
            *slot = id;
            return 0;
        }
        if (t->pieces[*slot].len == p->len && memcmp(t->pieces[*slot].text, p->text, p->len) == 0)
            return 0;
    }
    return error_set(e, ERR_MODEL, "the tokenizer's vocabulary is made to collide");
}

/* Gives id its text. */
static int set_piece(struct tokenizer *t, int id, const char *text, size_t len, struct error *e)
{
    struct piece *p = &t->pieces[id];

    p->text = keep_text(t, text, len);
    if (!p->text)
        return error_set(e, ERR_MODEL, "the tokenizer lists a token twice");
    p->len = (uint32_t)len;
    p->rank = INT32_MAX;
    p->in_model = false;
    return tokenizer_index(t, id, e);
}

static int trie_add(struct trie *tr, const char *text, size_t len, int added, struct error *e)
{
    int32_t node = 0;

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        int32_t at = i == 0 ? tr->first[c] : tr->nodes[node].child;

        while (i > 0 && at && tr->nodes[at].byte != c)
            at = tr->nodes[at].sibling;
        if (!at) {
            if (tr->n + 1 >= tr->capacity) {
                int32_t size = tr->capacity ? tr->capacity * 2 : 64;
                struct trie_node *nodes = size > 0
                                              ? mem_resize(tr->nodes, (size_t)size, sizeof *nodes)
                                              : NULL;

                if (!nodes)
                    return no_memory(e);
                tr->nodes = nodes;
                tr->capacity = size;
                tr->n = tr->n ? tr->n : 1; /* 0 means none */
            }
            at = tr->n++;
            tr->nodes[at] = (struct trie_node){.added = -1, .byte = c};
            if (i == 0)
                tr->first[c] = at;
            else {
                tr->nodes[at].sibling = tr->nodes[node].child;
                tr->nodes[node].child = at;
            }
        }
        node = at;
    }
    if (len)
        tr->nodes[node].added = added;
    return 0;
}

/* Added tokens in order; normalised ones are looked for in normalised text, so their own text is
 * normalised too. */
static int make_tries(struct tokenizer *t, struct error *e)
{
    for (int i = 0; i < t->n_added; i++) {
        const struct added *a = &t->added[i];
        char *text = NULL;
        unsigned char *mask;
        size_t len;
        int status;

        if (!a->normalized) {
            status = trie_add(&t->raw, a->text, a->len, i, e);
        } else {
            status = tokenizer_normalize(t, a->text, NULL, a->len, &text, &mask, &len, e);
            if (status == 0)
                status = trie_add(&t->normal, text, len, i, e);
            mem_free(text);
        }
        if (status < 0)
            return status;
    }
    return 0;
}

/* A token that frames conversations though the file does not call it special ("</s>" in Phi's). */
static bool looks_like_control(const char *text, size_t len)
{
    return (len > 4 && memcmp(text, "<|", 2) == 0 && memcmp(text + len - 2, "|>", 2) == 0) ||
           (len == 3 && memcmp(text, "<s>", 3) == 0) || (len == 4 && memcmp(text, "</s>", 4) == 0);
}

/* Where text may be cut before a word mark, and the longest piece. */
static void survey_pieces(struct tokenizer *t)
{
    size_t size = sizeof WORD_MARK - 1;

    for (int id = 0; id < t->n_pieces; id++) {
        const struct piece *p = &t->pieces[id];

        if (!p->text || !p->in_model)
            continue;
        if (p->len > t->longest)
            t->longest = p->len;
        for (size_t i = 1; i + size <= p->len; i++)
            if (memcmp(p->text + i, WORD_MARK, size) == 0)
                t->crosses[(unsigned char)p->text[i - 1]] = true;
    }
    if (t->merges) /* pieces made of byte tokens do not show the bytes they cross */
        for (uint32_t i = 0; i <= t->merge_mask; i++)
            if (t->merges[i].left >= 0 && t->pieces[t->merges[i].left].byte >= 0)
                memset(t->crosses, true, sizeof t->crosses);
}

static int make_merges(struct tokenizer *t, size_t n, struct error *e)
{
    uint32_t size = 16;

    if (n > INT_MAX / 4)
        return error_set(e, ERR_MODEL, "the tokenizer has %zu merges; that cannot be", n);
    while (size < n * 2)
        size *= 2;
    t->merges = mem_alloc(size, sizeof *t->merges);
    if (!t->merges)
        return no_memory(e);
    for (uint32_t i = 0; i < size; i++)
        t->merges[i].left = -1;
    t->merge_mask = size - 1;
    return 0;
}

/* A later entry of the same pair replaces the earlier one, as in the reference's map. False: a text
 * is no token. */
static bool add_merge(struct tokenizer *t, const char *a, size_t na, const char *b, size_t nb,
                      int rank)
{
    int left = tokenizer_lookup(t, a, na), right = tokenizer_lookup(t, b, nb), id;
    uint64_t h;
    char small[256], *joined = na + nb <= sizeof small ? small : mem_alloc(na + nb, 1);

    if (!joined)
        return false;
    memcpy(joined, a, na);
    memcpy(joined + na, b, nb);
    id = tokenizer_lookup(t, joined, na + nb);
    if (joined != small)
        mem_free(joined);
    if (left < 0 || right < 0 || id < 0)
        return false;
    h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    for (uint32_t start = (uint32_t)(h >> 32), i = start; i - start < PROBES_MAX; i++) {
        struct merge *m = &t->merges[i & t->merge_mask];

        if (m->left < 0 || (m->left == left && m->right == right)) {
            *m = (struct merge){left, right, rank, id};
            return true;
        }
    }
    return false;
}

/* ---- tokenizer.json ---- */

static const char *string_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

static int add_step(struct tokenizer *t, enum normalize_op op, const char *from, const char *to,
                    struct error *e)
{
    struct normalize_step *steps = mem_resize(t->steps, (size_t)t->n_steps + 1, sizeof *steps);

    if (!steps)
        return no_memory(e);
    t->steps = steps;
    steps[t->n_steps] = (struct normalize_step){op, keep_text(t, from, strlen(from)),
                                                keep_text(t, to, strlen(to)), strlen(from),
                                                strlen(to)};
    if (!steps[t->n_steps].from || !steps[t->n_steps].to)
        return error_set(e, ERR_MODEL, SOURCE ": the normalizer is damaged");
    t->n_steps++;
    return 0;
}

static int read_normalizer(struct tokenizer *t, const json_t *o, int depth, struct error *e)
{
    static const struct {
        const char *name;
        enum normalize_op op;
    } forms[] = {
        {"NFC", NORMALIZE_NFC},   {"NFD", NORMALIZE_NFD},         {"NFKC", NORMALIZE_NFKC},
        {"NFKD", NORMALIZE_NFKD}, {"Lowercase", NORMALIZE_LOWER},
    };
    const char *type = string_of(o, "type"), *from;
    const json_t *each;
    size_t i;

    if (!o || json_is_null(o))
        return 0;
    if (strcmp(type, "Sequence") == 0 && depth < 8) {
        json_array_foreach(json_object_get(o, "normalizers"), i, each)
        {
            int status = read_normalizer(t, each, depth + 1, e);

            if (status < 0)
                return status;
        }
        return 0;
    }
    if (strcmp(type, "Prepend") == 0)
        return add_step(t, NORMALIZE_PREPEND, "", string_of(o, "prepend"), e);
    from = string_of(json_object_get(o, "pattern"), "String");
    if (strcmp(type, "Replace") == 0 && *from)
        return add_step(t, NORMALIZE_REPLACE, from, string_of(o, "content"), e);
    for (i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(type, forms[i].name) == 0)
            return add_step(t, forms[i].op, "", "", e);
    return error_set(e, ERR_MODEL, SOURCE ": the normalizer '%s' is not supported", type);
}

static int read_metaspace(struct tokenizer *t, const json_t *o, struct error *e)
{
    const char *scheme = string_of(o, "prepend_scheme");

    if (strcmp(string_of(o, "replacement"), WORD_MARK) != 0 || t->pre || t->byte_level)
        return error_set(e, ERR_MODEL,
                         SOURCE ": a Metaspace that is not U+2581 alone is not supported");
    t->metaspace = METASPACE_ALWAYS;
    if (strcmp(scheme, "first") == 0)
        t->metaspace = METASPACE_FIRST;
    else if (strcmp(scheme, "never") == 0 ||
             (!*scheme && json_is_false(json_object_get(o, "add_prefix_space"))))
        t->metaspace = METASPACE_NEVER;
    t->metaspace_split = !json_is_false(json_object_get(o, "split"));
    return 0;
}

static int read_behavior(const json_t *o, enum split_behavior *behavior, struct error *e)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"};
    const char *name = string_of(o, "behavior");

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *behavior = (enum split_behavior)i;
            return 0;
        }
    return error_set(e, ERR_MODEL, SOURCE ": the split behavior '%s' is not supported", name);
}

static int read_split(struct tokenizer *t, const json_t *o, struct error *e)
{
    const json_t *pattern = json_object_get(o, "pattern"),
                 *regex = json_object_get(pattern, "Regex"),
                 *text = regex ? regex : json_object_get(pattern, "String");
    struct split s = {.pattern = json_string_value(text),
                      .len = json_string_length(text),
                      .literal = !regex,
                      .invert = json_is_true(json_object_get(o, "invert"))};
    int status = read_behavior(o, &s.behavior, e);

    if (status == 0 && !s.pattern)
        status = error_set(e, ERR_MODEL, SOURCE ": a Split has no pattern");
    return status < 0 ? status : pre_tokenizer_add(&t->pre, &s, e);
}

static int add_pattern(struct tokenizer *t, const char *pattern, enum split_behavior behavior,
                       struct error *e)
{
    struct split s = {.pattern = pattern, .len = strlen(pattern), .behavior = behavior};

    return pre_tokenizer_add(&t->pre, &s, e);
}

static int read_byte_level(struct tokenizer *t, const json_t *o, struct error *e)
{
    unsigned flags;

    t->byte_level = true;
    t->prefix_space = !json_is_false(json_object_get(o, "add_prefix_space"));
    if (t->prefix_space && t->pre)
        return error_set(e, ERR_MODEL,
                         SOURCE ": add_prefix_space behind another pre-tokenizer is not supported");
    return json_is_false(json_object_get(o, "use_regex"))
               ? 0
               : pre_tokenizer_add_named(&t->pre, PRE_TOKENIZER_GPT2, strlen(PRE_TOKENIZER_GPT2),
                                         &flags, e);
}

static int read_pre_tokenizer(struct tokenizer *t, const json_t *o, int depth, struct error *e)
{
    const char *type = string_of(o, "type");
    enum split_behavior behavior;
    const json_t *each;
    size_t i;
    int status;

    if (!o || json_is_null(o))
        return 0;
    if (strcmp(type, "Sequence") == 0 && depth < 8) {
        json_array_foreach(json_object_get(o, "pretokenizers"), i,
                           each) if ((status = read_pre_tokenizer(t, each, depth + 1, e)) <
                                     0) return status;
        return 0;
    }
    if (t->byte_level || t->metaspace != METASPACE_NONE)
        return error_set(e, ERR_MODEL, SOURCE ": the pre-tokenizer '%s' behind %s is not supported",
                         type, t->byte_level ? "ByteLevel" : "Metaspace");
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(t, o, e);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(t, o, e);
    if (strcmp(type, "Split") == 0)
        return read_split(t, o, e);
    if (strcmp(type, "Digits") == 0)
        return add_pattern(
            t, json_is_true(json_object_get(o, "individual_digits")) ? "\\p{N}" : "\\p{N}+",
            SPLIT_ISOLATED, e);
    if (strcmp(type, "Punctuation") == 0) {
        status = json_object_get(o, "behavior") ? read_behavior(o, &behavior, e)
                                                : (behavior = SPLIT_ISOLATED, 0);
        return status < 0 ? status : add_pattern(t, "[\\p{P}$+<=>^`|~]", behavior, e);
    }
    return error_set(e, ERR_MODEL, SOURCE ": the pre-tokenizer '%s' is not supported", type);
}

static int read_decoder(struct tokenizer *t, const json_t *o, int depth, struct error *e)
{
    const char *type = string_of(o, "type");
    const json_t *each;
    size_t i;

    if (!o || json_is_null(o))
        return 0;
    if (strcmp(type, "Sequence") == 0 && depth < 8) {
        json_array_foreach(json_object_get(o, "decoders"), i, each)
        {
            int status = read_decoder(t, each, depth + 1, e);

            if (status < 0)
                return status;
        }
        return 0;
    }
    if (strcmp(type, "ByteFallback") == 0 || strcmp(type, "Fuse") == 0 ||
        (strcmp(type, "ByteLevel") == 0 && t->byte_level))
        return 0;
    if (strcmp(type, "Metaspace") == 0) {
        t->decode_marks = true;
        t->decode_strip = strcmp(string_of(o, "prepend_scheme"), "never") != 0;
        return 0;
    }
    if (strcmp(type, "Replace") == 0 &&
        strcmp(string_of(json_object_get(o, "pattern"), "String"), WORD_MARK) == 0 &&
        strcmp(string_of(o, "content"), " ") == 0) {
        t->decode_marks = true;
        return 0;
    }
    if (strcmp(type, "Strip") == 0 && strcmp(string_of(o, "content"), " ") == 0 &&
        json_integer_value(json_object_get(o, "start")) <= 1 &&
        json_integer_value(json_object_get(o, "stop")) == 0) {
        t->decode_strip = json_integer_value(json_object_get(o, "start")) == 1;
        return 0;
    }
    return error_set(e, ERR_MODEL, SOURCE ": the decoder '%s' is not supported", type);
}

/* Highest id and bytes of all texts. */
static int measure(json_t *vocab, json_t *added, int *n, size_t *pool, struct error *e)
{
    json_int_t highest = -1;
    const char *key;
    json_t *value;
    size_t i;

    *pool = 0;
    json_object_foreach(vocab, key, value)
    {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;

        if (id < 0 || id >= TOKENIZER_MAX_IDS)
            return error_set(e, ERR_MODEL, SOURCE ": the token '%.40s' has no valid id", key);
        highest = id > highest ? id : highest;
        *pool += strlen(key) + 1;
    }
    json_array_foreach(added, i, value)
    {
        json_int_t id = json_is_integer(json_object_get(value, "id"))
                            ? json_integer_value(json_object_get(value, "id"))
                            : -1;

        if (id < 0 || id >= TOKENIZER_MAX_IDS || !json_is_string(json_object_get(value, "content")))
            return error_set(e, ERR_MODEL, SOURCE ": added token %zu has no valid id or content",
                             i);
        highest = id > highest ? id : highest;
        *pool += json_string_length(json_object_get(value, "content")) + 1;
    }
    if (highest < 0)
        return error_set(e, ERR_MODEL, SOURCE ": the vocabulary is empty");
    *n = (int)highest + 1;
    return 0;
}

static int read_added(struct tokenizer *t, json_t *list, struct error *e)
{
    json_t *o;
    size_t i;

    t->added = mem_alloc(json_array_size(list), sizeof *t->added);
    if (!t->added)
        return no_memory(e);
    json_array_foreach(list, i, o)
    {
        int id = (int)json_integer_value(json_object_get(o, "id")), status;
        const json_t *content = json_object_get(o, "content");
        const char *text = json_string_value(content);
        size_t len = json_string_length(content);
        struct added *a = &t->added[t->n_added];

        if (!t->pieces[id].text || t->pieces[id].len != len ||
            memcmp(t->pieces[id].text, text, len) != 0) {
            status = set_piece(t, id, text, len, e);
            if (status < 0)
                return status;
        }
        t->pieces[id].special = json_is_true(json_object_get(o, "special"));
        if (len == 0)
            continue;
        *a = (struct added){
            .id = id,
            .text = t->pieces[id].text,
            .len = t->pieces[id].len,
            .lstrip = json_is_true(json_object_get(o, "lstrip")),
            .rstrip = json_is_true(json_object_get(o, "rstrip")),
            .single_word = json_is_true(json_object_get(o, "single_word")),
            .normalized = json_is_true(json_object_get(o, "normalized")),
            .control = t->pieces[id].special || looks_like_control(text, len),
        };
        t->n_added++;
    }
    return 0;
}

static int read_merges(struct tokenizer *t, const json_t *list, struct error *e)
{
    json_t *m;
    size_t i;
    int status = make_merges(t, json_array_size(list), e);

    if (status < 0)
        return status;
    json_array_foreach(list, i, m)
    {
        const char *a, *b;
        size_t na, nb;

        if (json_is_string(m)) {
            a = json_string_value(m);
            b = strchr(a, ' ');
            na = b ? (size_t)(b - a) : 0;
            b = b ? b + 1 : "";
            nb = strlen(b);
        } else {
            a = json_string_value(json_array_get(m, 0));
            b = json_string_value(json_array_get(m, 1));
            na = a ? strlen(a) : 0;
            nb = b ? strlen(b) : 0;
        }
        if (!na || !nb || !add_merge(t, a, na, b, nb, (int)i))
            return error_set(e, ERR_MODEL, SOURCE ": merge %zu does not join two tokens to a third",
                             i);
    }
    return 0;
}

/* The special token that a single text begins with, NULL: none. */
static const json_t *first_token(const json_t *post, int depth)
{
    const json_t *each, *found = json_object_get(json_array_get(json_object_get(post, "single"), 0),
                                                 "SpecialToken");
    size_t i;

    json_array_foreach(json_object_get(post, "processors"), i, each)
    {
        if (found || depth == 8)
            break;
        found = first_token(each, depth + 1);
    }
    return found;
}

static void read_bos(struct tokenizer *t, const json_t *post)
{
    const json_t *first = first_token(post, 0);
    const char *name = string_of(first, "id");

    t->add_bos = first != NULL;
    t->bos = first ? tokenizer_lookup(t, name, strlen(name)) : tokenizer_lookup(t, "<s>", 3);
}

/* The vocabulary spells bytes; added tokens are written as they are. */
static int decode_vocabulary(struct tokenizer *t, const json_t *added, struct error *e)
{
    bool *literal = mem_alloc((size_t)t->n_pieces, sizeof *literal);
    const json_t *each;
    size_t i;
    int status;

    if (!literal)
        return no_memory(e);
    json_array_foreach(added, i, each)
    {
        literal[json_integer_value(json_object_get(each, "id"))] = true;
    }
    status = byte_level_decode(t, literal, e);
    mem_free(literal);
    return status;
}

static int load_json(struct tokenizer *t, const void *data, size_t size, struct error *e)
{
    json_error_t where;
    json_t *root = json_load_wide(data, size, JSON_ALLOW_NUL, &where), *model, *vocab, *value;
    const char *type, *key, *unknown;
    size_t pool;
    int n = 0, status;

    if (!root)
        return error_set(e, ERR_MODEL, SOURCE ":%d:%d: %s", where.line, where.column, where.text);
    model = json_object_get(root, "model");
    vocab = json_object_get(model, "vocab");
    type = string_of(model, "type");
    if (!json_is_object(vocab) || !json_is_array(json_object_get(model, "merges")) ||
        (*type && strcmp(type, "BPE") != 0)) {
        status = error_set(e, ERR_MODEL,
                           SOURCE ": the model '%s' is not supported; BPE with a list of merges is",
                           *type ? type : "?");
        goto out;
    }
    if (*string_of(model, "continuing_subword_prefix") || *string_of(model, "end_of_word_suffix")) {
        status = error_set(e, ERR_MODEL,
                           SOURCE ": continuing_subword_prefix and end_of_word_suffix are not "
                                  "supported");
        goto out;
    }
    status = measure(vocab, json_object_get(root, "added_tokens"), &n, &pool, e);
    /* the normalizer's texts go into the same pool */
    if (status == 0)
        status = make_tables(
            t, n, json_object_size(vocab) + json_array_size(json_object_get(root, "added_tokens")),
            pool + 4096, e);
    if (status < 0)
        goto out;
    json_object_foreach(vocab, key, value)
    {
        int id = (int)json_integer_value(value), byte;

        status = set_piece(t, id, key, strlen(key), e);
        if (status < 0)
            goto out;
        t->pieces[id].in_model = true;
        byte = byte_of(key, strlen(key));
        if (byte >= 0) {
            t->pieces[id].byte = (int16_t)byte;
            t->byte_ids[byte] = id;
        }
    }
    t->byte_fallback = json_is_true(json_object_get(model, "byte_fallback"));
    t->fuse_unknown = json_is_true(json_object_get(model, "fuse_unk"));
    t->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    unknown = string_of(model, "unk_token");
    t->unknown = *unknown ? tokenizer_lookup(t, unknown, strlen(unknown)) : -1;
    if ((status = read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), 0, e)) < 0 ||
        (status = read_merges(t, json_object_get(model, "merges"), e)) < 0 ||
        (t->byte_level &&
         (status = decode_vocabulary(t, json_object_get(root, "added_tokens"), e)) < 0) ||
        (status = read_added(t, json_object_get(root, "added_tokens"), e)) < 0 ||
        (status = read_normalizer(t, json_object_get(root, "normalizer"), 0, e)) < 0 ||
        (status = read_decoder(t, json_object_get(root, "decoder"), 0, e)) < 0)
        goto out;
    read_bos(t, json_object_get(root, "post_processor"));
out:
    json_decref(root);
    return status;
}

/* ---- GGUF ---- */

enum { GGUF_NORMAL = 1, GGUF_UNKNOWN, GGUF_CONTROL, GGUF_USER, GGUF_UNUSED, GGUF_BYTE };

struct scored {
    double score;
    int id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;

    return x->score > y->score ? -1 : x->score < y->score ? 1 : 0;
}

/* Scores become ranks, so that both ways of merging compare integers; equal scores share one (then
 * the leftmost pair wins). */
static int rank_by_score(struct tokenizer *t, struct meta_value scores, struct error *e)
{
    struct scored *order = mem_alloc((size_t)t->n_pieces, sizeof *order);
    int rank = 0;

    if (!order)
        return no_memory(e);
    for (int i = 0; i < t->n_pieces; i++) {
        double score = i < (int)scores.len ? meta_at(&scores, (size_t)i).f : 0.0;

        order[i] = (struct scored){isnan(score) ? -INFINITY : score, i};
    }
    qsort(order, (size_t)t->n_pieces, sizeof *order, by_score);
    for (int i = 0; i < t->n_pieces; i++) {
        rank += i > 0 && order[i].score < order[i - 1].score;
        t->pieces[order[i].id].rank = rank;
    }
    mem_free(order);
    return 0;
}

/* GGUF keeps no strip rules. In Phi's vocabularies (frame tokens <|user|>, <|assistant|>, <|end|>)
 * every control token but these three swallows the blanks after it, and so does </s>; llama.cpp
 * sets the same. */
static bool phi_strips(const struct tokenizer *t, const char *text, size_t len)
{
    if (tokenizer_lookup(t, "<|end|>", 7) < 0 || tokenizer_lookup(t, "<|assistant|>", 13) < 0 ||
        tokenizer_lookup(t, "<|user|>", 8) < 0)
        return false;
    return !(len == 5 && memcmp(text, "<unk>", 5) == 0) &&
           !(len == 3 && memcmp(text, "<s>", 3) == 0) &&
           !(len == 13 && memcmp(text, "<|endoftext|>", 13) == 0);
}

static int read_gguf_pieces(struct tokenizer *t, struct meta_value tokens, struct meta_value types,
                            struct error *e)
{
    t->added = mem_alloc(tokens.len, sizeof *t->added);
    if (!t->added)
        return no_memory(e);
    for (int id = 0; id < t->n_pieces; id++) {
        struct meta_value v = meta_at(&tokens, (size_t)id);
        int64_t type = types.type == META_ARRAY && (size_t)id < types.len
                           ? meta_at(&types, (size_t)id).i
                           : GGUF_NORMAL;
        struct piece *p = &t->pieces[id];
        int status = set_piece(t, id, v.s, v.len, e);

        if (status < 0)
            return status;
        p->in_model = type == GGUF_NORMAL || type == GGUF_USER || type == GGUF_UNUSED;
        p->special = type == GGUF_CONTROL || type == GGUF_UNKNOWN;
        if (type == GGUF_UNKNOWN && t->unknown < 0)
            t->unknown = id;
        if (type == GGUF_BYTE && byte_of(v.s, v.len) >= 0) {
            p->byte = (int16_t)byte_of(v.s, v.len);
            t->byte_ids[p->byte] = id;
            t->byte_fallback = true;
        }
        if ((p->special || type == GGUF_USER) && v.len)
            t->added[t->n_added++] = (struct added){.id = id,
                                                    .text = p->text,
                                                    .len = p->len,
                                                    .control = p->special ||
                                                               looks_like_control(v.s, v.len)};
    }
    return 0;
}

/* A merge whose tokens are missing is passed over: converters write lists that belong to a larger
 * vocabulary. */
static int read_gguf_merges(struct tokenizer *t, struct meta_value list, struct error *e)
{
    int status = make_merges(t, list.len, e);

    for (size_t i = 0; status == 0 && i < list.len; i++) {
        struct meta_value m = meta_at(&list, i);
        const char *space = m.type == META_STRING && m.len > 2 ? memchr(m.s + 1, ' ', m.len - 2)
                                                               : NULL;

        if (space)
            add_merge(t, m.s, (size_t)(space - m.s), space + 1, m.len - (size_t)(space - m.s) - 1,
                      (int)i);
    }
    return status;
}

/* tokenizer.ggml.pre: how text is cut before merging. A name that is not known costs quality, not
 * the model: the file is read as one that names none. */
static int read_gguf_pre(struct tokenizer *t, const struct weight_file *f, unsigned *flags,
                         struct error *e)
{
    struct meta_value v = weight_file_meta(f, "tokenizer.ggml.pre");
    bool named = v.type == META_STRING && v.len > 0;
    int status = named ? pre_tokenizer_add_named(&t->pre, v.s, v.len, flags, e) : 1;

    if (status <= 0)
        return status;
    if (named)
        error_set(&t->notice, ERR_MODEL,
                  "the file names a pre-tokenizer that is not known, '%.*s': text is cut as where "
                  "none is named, and answers may be worse",
                  (int)(v.len < 40 ? v.len : 40), v.s);
    else
        error_set(&t->notice, ERR_MODEL,
                  "the file names no pre-tokenizer (tokenizer.ggml.pre): answers may be worse than "
                  "a newer conversion's");
    return pre_tokenizer_add_named(&t->pre, PRE_TOKENIZER_DEFAULT, strlen(PRE_TOKENIZER_DEFAULT),
                                   flags, e);
}

/* GPT-2's kind: merges from bytes. */
static int read_gguf_byte_level(struct tokenizer *t, const struct weight_file *f, struct error *e)
{
    struct meta_value merges = weight_file_meta(f, "tokenizer.ggml.merges"),
                      bos = weight_file_meta(f, "tokenizer.ggml.add_bos_token");
    bool *literal = mem_alloc((size_t)t->n_pieces, sizeof *literal);
    unsigned flags = 0;
    int status = literal ? 0 : no_memory(e);

    if (status == 0 && merges.type != META_ARRAY)
        status = error_set(e, ERR_MODEL, "%s: the tokenizer has no merges (tokenizer.ggml.merges)",
                           weight_file_path(f));
    if (status == 0)
        status = read_gguf_merges(t, merges, e);
    for (int i = 0; status == 0 && i < t->n_added; i++)
        literal[t->added[i].id] = true;
    if (status == 0)
        status = byte_level_decode(t, literal, e);
    mem_free(literal);
    if (status == 0 && (status = read_gguf_pre(t, f, &flags, e)) < 0)
        error_prefix(e, "%s", weight_file_path(f));
    t->ignore_merges = flags & PRE_WHOLE;
    t->add_bos = bos.type == META_BOOL ? bos.i != 0 : (flags & PRE_BOS) != 0;
    return status == 0 && (flags & PRE_NFC) ? add_step(t, NORMALIZE_NFC, "", "", e) : status;
}

/* SentencePiece's: merges from characters, by a list or by score. */
static int read_gguf_sentencepiece(struct tokenizer *t, const struct weight_file *f,
                                   struct error *e)
{
    struct meta_value merges = weight_file_meta(f, "tokenizer.ggml.merges"),
                      scores = weight_file_meta(f, "tokenizer.ggml.scores"), v;
    int status = merges.type == META_ARRAY && merges.len ? read_gguf_merges(t, merges, e)
                                                         : rank_by_score(t, scores, e);

    if (status < 0)
        return status;
    for (int i = 0; i < t->n_added; i++)
        t->added[i].rstrip = t->added[i].control &&
                             phi_strips(t, t->added[i].text, t->added[i].len);
    v = weight_file_meta(f, "tokenizer.ggml.add_bos_token");
    t->add_bos = v.type == META_BOOL ? v.i != 0 : true;
    t->fuse_unknown = true;
    t->decode_marks = true;
    v = weight_file_meta(f, "tokenizer.ggml.add_space_prefix");
    t->decode_strip = v.type != META_BOOL || v.i;
    if (t->decode_strip && (status = add_step(t, NORMALIZE_PREPEND, "", WORD_MARK, e)) < 0)
        return status;
    return add_step(t, NORMALIZE_REPLACE, " ", WORD_MARK, e);
}

/* tokenizer.ggml.model: a row for each kind that is read. */
static const struct gguf_kind {
    const char *name;
    int (*read)(struct tokenizer *t, const struct weight_file *f, struct error *e);
} gguf_kinds[] = {
    {"llama", read_gguf_sentencepiece},
    {"gpt2", read_gguf_byte_level},
};

static const struct gguf_kind *find_kind(struct meta_value model)
{
    for (size_t i = 0; i < sizeof gguf_kinds / sizeof *gguf_kinds; i++)
        if (model.len == strlen(gguf_kinds[i].name) &&
            memcmp(model.s, gguf_kinds[i].name, model.len) == 0)
            return &gguf_kinds[i];
    return NULL;
}

static int load_gguf(struct tokenizer *t, const struct weight_file *f, struct error *e)
{
    struct meta_value model = weight_file_meta(f, "tokenizer.ggml.model"),
                      tokens = weight_file_meta(f, "tokenizer.ggml.tokens"), v;
    const struct gguf_kind *kind;
    size_t pool = 0;
    int status;

    if (model.type != META_STRING || tokens.type != META_ARRAY)
        return error_set(e, ERR_MODEL, "%s: no tokenizer inside (tokenizer.ggml.tokens)",
                         weight_file_path(f));
    if (!(kind = find_kind(model)))
        return error_set(e, ERR_MODEL,
                         "%s: the tokenizer '%.*s' is not supported; 'llama' (SentencePiece) and "
                         "'gpt2' (byte-level) are",
                         weight_file_path(f), (int)(model.len < 40 ? model.len : 40), model.s);
    if (tokens.len == 0 || tokens.len > TOKENIZER_MAX_IDS)
        return error_set(e, ERR_MODEL, "%s: the vocabulary has %zu tokens; 1 to %d are possible",
                         weight_file_path(f), tokens.len, TOKENIZER_MAX_IDS);
    for (size_t i = 0; i < tokens.len; i++) {
        v = meta_at(&tokens, i);
        if (v.type != META_STRING || v.len > INT_MAX / 2)
            return error_set(e, ERR_MODEL, "%s: token %zu is no text", weight_file_path(f), i);
        pool += v.len + 1;
    }
    status = make_tables(t, (int)tokens.len, tokens.len, pool + 64, e);
    if (status == 0)
        status = read_gguf_pieces(t, tokens, weight_file_meta(f, "tokenizer.ggml.token_type"), e);
    if (status == 0)
        status = kind->read(t, f, e);
    if (status < 0)
        return status;
    v = weight_file_meta(f, "tokenizer.ggml.unknown_token_id");
    if (v.type == META_INT && v.i >= 0 && v.i < t->n_pieces)
        t->unknown = (int)v.i;
    v = weight_file_meta(f, "tokenizer.ggml.bos_token_id");
    t->bos = v.type == META_INT && v.i >= 0 && v.i < t->n_pieces ? (int)v.i : -1;
    return 0;
}

int tokenizer_gguf_names(const struct tokenizer *t, const char **model, const char **pre,
                         size_t *pre_len, struct error *e)
{
    bool composed = t->n_steps == 1 && t->steps[0].op == NORMALIZE_NFC;
    unsigned flags = (composed ? PRE_NFC : 0) | (t->ignore_merges ? PRE_WHOLE : 0);

    *model = t->byte_level ? "gpt2" : "llama";
    if (!t->byte_level) {
        *pre = PRE_TOKENIZER_DEFAULT;
        *pre_len = strlen(*pre);
        return 0;
    }
    *pre = t->prefix_space || t->n_steps > composed ? NULL
                                                    : pre_tokenizer_name(t->pre, flags, pre_len);
    return *pre ? 0
                : error_set(e, ERR_MODEL,
                            "GGUF has no name for how this tokenizer cuts text, so that a file "
                            "of it would be read otherwise");
}

int tokenizer_load(struct tokenizer **out, const struct weight_file *f, struct error *e)
{
    struct tokenizer *t = mem_alloc(1, sizeof *t);
    size_t size = 0;
    const void *json;
    int status;

    *out = NULL;
    if (!t)
        return no_memory(e);
    if (weight_file_format(f) == WEIGHT_GGUF)
        status = load_gguf(t, f, e);
    else if ((json = weight_file_aux(f, SOURCE, &size)) != NULL) {
        status = load_json(t, json, size, e);
        if (status < 0)
            error_prefix(e, "%s", weight_file_path(f));
    } else
        status = error_set(e, ERR_MODEL,
                           "%s: no " SOURCE
                           " there, so text cannot be read; copy it from where the model came from",
                           weight_file_path(f));
    if (status == 0) {
        survey_pieces(t);
        status = make_tries(t, e);
    }
    if (status < 0) {
        tokenizer_free(t);
        return status;
    }
    *out = t;
    return 0;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    mem_free(t->pieces);
    mem_free(t->pool);
    mem_free(t->index);
    mem_free(t->merges);
    mem_free(t->added);
    mem_free(t->raw.nodes);
    mem_free(t->normal.nodes);
    mem_free(t->steps);
    pre_tokenizer_free(t->pre);
    mem_free(t);
}
