/* Reads tokenizer.json (Hugging Face's layout). One thread. What cannot be done exactly as in the
 * reference (other models, unknown normalizers) is refused rather than approximated. */
#include "engine/text/tokenizer_build.h"

#include "engine/base/json.h"
#include "engine/base/mem.h"

#include <limits.h>
#include <string.h>

static const char *string_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

static int read_replace(struct tokenizer *t, const json_t *o, struct error *e)
{
    const char *regex = string_of(json_object_get(o, "pattern"), "Regex");
    struct split s = {.pattern = regex, .len = strlen(regex)};

    if (!*regex)
        return error_set(e, ERR_MODEL, TOKENIZER_JSON ": a Replace has no pattern");
    return build_step_pattern(t, &s, string_of(o, "content"), e);
}

/* Base64 as in RFC 4648; bytes: space for len. False: invalid. */
static bool read_base64(const char *text, size_t len, unsigned char *bytes, size_t *n)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    int have = 0;

    while (len && text[len - 1] == '=')
        len--;
    *n = 0;
    for (size_t i = 0; i < len; i++) {
        const char *at = text[i] ? strchr(letters, text[i]) : NULL;

        if (!at)
            return false;
        bits = bits << 6 | (uint32_t)(at - letters);
        have += 6;
        if (have >= 8) {
            have -= 8;
            bytes[(*n)++] = (unsigned char)(bits >> have);
        }
    }
    return true;
}

static int read_charsmap(struct tokenizer *t, const json_t *text, struct error *e)
{
    size_t len = json_string_length(text), n;
    unsigned char *bytes = mem_alloc(len + 1, 1);
    int status;

    if (!bytes)
        return build_no_memory(e);
    if (t->charsmap.n_units)
        status = error_set(e, ERR_MODEL,
                           TOKENIZER_JSON ": more than one Precompiled is not supported");
    else if (!json_is_string(text) || !read_base64(json_string_value(text), len, bytes, &n))
        status = error_set(e, ERR_MODEL,
                           TOKENIZER_JSON ": the Precompiled normalizer has no map in base64");
    else
        status = charsmap_read(&t->charsmap, bytes, n, e);
    mem_free(bytes);
    return status < 0 ? status : build_step(t, NORMALIZE_CHARSMAP, "", "", e);
}

static int read_normalizer(struct tokenizer *t, const json_t *o, int depth, struct error *e)
{
    static const struct {
        const char *name;
        enum normalize_op op;
    } forms[] = {
        {"NFC", NORMALIZE_NFC},
        {"NFD", NORMALIZE_NFD},
        {"NFKC", NORMALIZE_NFKC},
        {"NFKD", NORMALIZE_NFKD},
        {"Lowercase", NORMALIZE_LOWER},
        {"Nmt", NORMALIZE_NMT},
        {"StripAccents", NORMALIZE_STRIP_ACCENTS},
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
        return build_step(t, NORMALIZE_PREPEND, "", string_of(o, "prepend"), e);
    from = string_of(json_object_get(o, "pattern"), "String");
    if (strcmp(type, "Replace") == 0 && *from)
        return build_step(t, NORMALIZE_REPLACE, from, string_of(o, "content"), e);
    if (strcmp(type, "Replace") == 0)
        return read_replace(t, o, e);
    if (strcmp(type, "Precompiled") == 0)
        return read_charsmap(t, json_object_get(o, "precompiled_charsmap"), e);
    if (strcmp(type, "Strip") == 0) {
        int status = build_step(t, NORMALIZE_STRIP, "", "", e);

        if (status == 0) {
            t->steps[t->n_steps - 1].left = json_is_true(json_object_get(o, "strip_left"));
            t->steps[t->n_steps - 1].right = json_is_true(json_object_get(o, "strip_right"));
        }
        return status;
    }
    for (i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(type, forms[i].name) == 0)
            return build_step(t, forms[i].op, "", "", e);
    return error_set(e, ERR_MODEL, TOKENIZER_JSON ": the normalizer '%s' is not supported", type);
}

static int read_metaspace(struct tokenizer *t, const json_t *o, struct error *e)
{
    const char *scheme = string_of(o, "prepend_scheme");

    if (strcmp(string_of(o, "replacement"), WORD_MARK) != 0 || t->byte_level)
        return error_set(e, ERR_MODEL,
                         TOKENIZER_JSON ": a Metaspace that is not U+2581 alone is not supported");
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
    return error_set(e, ERR_MODEL, TOKENIZER_JSON ": the split behavior '%s' is not supported",
                     name);
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
        status = error_set(e, ERR_MODEL, TOKENIZER_JSON ": a Split has no pattern");
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
                         TOKENIZER_JSON
                         ": add_prefix_space behind another pre-tokenizer is not supported");
    return json_is_false(json_object_get(o, "use_regex"))
               ? 0
               : pre_tokenizer_add_named(&t->pre, PRE_TOKENIZER_GPT2, strlen(PRE_TOKENIZER_GPT2),
                                         &flags, e);
}

/* White_Space, and \w as in Rust's expressions. */
#define BLANK                                                                                   \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
#define LETTERS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"

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
        return error_set(e, ERR_MODEL,
                         TOKENIZER_JSON ": the pre-tokenizer '%s' behind %s is not supported", type,
                         t->byte_level ? "ByteLevel" : "Metaspace");
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(t, o, e);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(t, o, e);
    if (strcmp(type, "Split") == 0)
        return read_split(t, o, e);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return add_pattern(t, "[" BLANK "]+", SPLIT_REMOVED, e);
    if (strcmp(type, "Whitespace") == 0) {
        struct split s = {.pattern = "[" LETTERS "]+|[^" LETTERS BLANK "]+",
                          .behavior = SPLIT_REMOVED,
                          .invert = true};

        s.len = strlen(s.pattern);
        return pre_tokenizer_add(&t->pre, &s, e);
    }
    if (strcmp(type, "Digits") == 0)
        return add_pattern(
            t, json_is_true(json_object_get(o, "individual_digits")) ? "\\p{N}" : "\\p{N}+",
            SPLIT_ISOLATED, e);
    if (strcmp(type, "Punctuation") == 0) {
        status = json_object_get(o, "behavior") ? read_behavior(o, &behavior, e)
                                                : (behavior = SPLIT_ISOLATED, 0);
        return status < 0 ? status : add_pattern(t, "[\\p{P}$+<=>^`|~]", behavior, e);
    }
    return error_set(e, ERR_MODEL, TOKENIZER_JSON ": the pre-tokenizer '%s' is not supported",
                     type);
}

/* Number of blanks of a Strip; -1: unsupported. */
static int strip_count(const json_t *o, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(o, key));

    return n >= 0 && n <= DECODE_HELD_MAX ? (int)n : -1;
}

static bool has_step(const struct tokenizer *t, enum decode_op op)
{
    for (int i = 0; i < t->n_decode; i++)
        if (t->decode[i].op == op)
            return true;
    return false;
}

/* One step that is no Sequence. */
static int read_decode_step(struct tokenizer *t, const json_t *o, struct error *e)
{
    const char *type = string_of(o, "type"), *content = string_of(o, "content"),
               *from = string_of(json_object_get(o, "pattern"), "String");
    struct decode_step step = {
        .op = DECODE_FUSE, .start = strip_count(o, "start"), .stop = strip_count(o, "stop")};

    if (strcmp(type, "Fuse") == 0)
        return build_decode(t, step, "", "", e);
    if (strcmp(type, "ByteLevel") == 0 && t->byte_level && !has_step(t, DECODE_REPLACE) &&
        !has_step(t, DECODE_STRIP) && !has_step(t, DECODE_METASPACE))
        return build_decode(t, step, "", "", e);
    if (strcmp(type, "ByteFallback") == 0 && !has_step(t, DECODE_FUSE)) {
        step.op = DECODE_BYTES;
        return has_step(t, DECODE_BYTES) ? 0 : build_decode(t, step, "", "", e);
    }
    if (strcmp(type, "Metaspace") == 0 && strcmp(string_of(o, "replacement"), WORD_MARK) == 0) {
        bool never = strcmp(string_of(o, "prepend_scheme"), "never") == 0 ||
                     (!*string_of(o, "prepend_scheme") &&
                      json_is_false(json_object_get(o, "add_prefix_space")));

        step.op = never ? DECODE_REPLACE : DECODE_METASPACE;
        return build_decode(t, step, WORD_MARK, " ", e);
    }
    if (strcmp(type, "Replace") == 0 && *from && strlen(from) <= DECODE_HELD_MAX) {
        step.op = DECODE_REPLACE;
        return build_decode(t, step, from, content, e);
    }
    if (strcmp(type, "Strip") == 0 && strlen(content) == 1 && !(content[0] & 0x80) &&
        step.start >= 0 && step.stop >= 0) {
        step.op = DECODE_STRIP;
        return build_decode(t, step, content, "", e);
    }
    return error_set(e, ERR_MODEL,
                     TOKENIZER_JSON ": the decoder '%.40s', as configured there, is not supported",
                     type);
}

static int read_decoder(struct tokenizer *t, const json_t *o, int depth, struct error *e)
{
    const json_t *each;
    size_t i;

    if (strcmp(string_of(o, "type"), "Sequence") != 0 || depth == 8)
        return read_decode_step(t, o, e);
    json_array_foreach(json_object_get(o, "decoders"), i, each)
    {
        int status = read_decoder(t, each, depth + 1, e);

        if (status < 0)
            return status;
    }
    return 0;
}

/* A file without a decoder: the text is the pieces and the bytes of byte tokens. */
static int read_decoders(struct tokenizer *t, const json_t *o, struct error *e)
{
    if (o && !json_is_null(o))
        return read_decoder(t, o, 0, e);
    return build_decode(t, (struct decode_step){.op = DECODE_BYTES}, "", "", e);
}

/* Highest id and bytes of all texts. */
static int measure(json_t *vocab, json_t *added, int *n, size_t *pool, struct error *e)
{
    json_int_t highest = -1;
    const char *key;
    json_t *value;
    size_t i;

    *pool = 0;
    json_array_foreach(vocab, i, value)
    {
        if (!json_is_string(json_array_get(value, 0)) || !json_is_number(json_array_get(value, 1)))
            return error_set(e, ERR_MODEL, TOKENIZER_JSON ": token %zu has no text or no score", i);
        *pool += json_string_length(json_array_get(value, 0)) + 1;
    }
    if (json_array_size(vocab) > TOKENIZER_MAX_IDS)
        return error_set(e, ERR_MODEL,
                         TOKENIZER_JSON ": the vocabulary has %zu tokens; at most %d "
                                        "are possible",
                         json_array_size(vocab), TOKENIZER_MAX_IDS);
    highest = (json_int_t)json_array_size(vocab) - 1;
    json_object_foreach(vocab, key, value)
    {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;

        if (id < 0 || id >= TOKENIZER_MAX_IDS)
            return error_set(e, ERR_MODEL, TOKENIZER_JSON ": the token '%.40s' has no valid id",
                             key);
        highest = id > highest ? id : highest;
        *pool += strlen(key) + 1;
    }
    json_array_foreach(added, i, value)
    {
        json_int_t id = json_is_integer(json_object_get(value, "id"))
                            ? json_integer_value(json_object_get(value, "id"))
                            : -1;

        if (id < 0 || id >= TOKENIZER_MAX_IDS || !json_is_string(json_object_get(value, "content")))
            return error_set(e, ERR_MODEL,
                             TOKENIZER_JSON ": added token %zu has no valid id or content", i);
        highest = id > highest ? id : highest;
        *pool += json_string_length(json_object_get(value, "content")) + 1;
    }
    if (highest < 0)
        return error_set(e, ERR_MODEL, TOKENIZER_JSON ": the vocabulary is empty");
    *n = (int)highest + 1;
    return 0;
}

static int read_added(struct tokenizer *t, json_t *list, struct error *e)
{
    json_t *o;
    size_t i;

    t->added = mem_alloc(json_array_size(list), sizeof *t->added);
    if (!t->added)
        return build_no_memory(e);
    json_array_foreach(list, i, o)
    {
        int id = (int)json_integer_value(json_object_get(o, "id")), status;
        const json_t *content = json_object_get(o, "content");
        const char *text = json_string_value(content);
        size_t len = json_string_length(content);
        struct added *a = &t->added[t->n_added];

        if (!t->pieces[id].text || t->pieces[id].len != len ||
            memcmp(t->pieces[id].text, text, len) != 0) {
            status = build_piece(t, id, text, len, e);
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
            .control = t->pieces[id].special || build_is_control(text, len),
        };
        t->n_added++;
    }
    return 0;
}

static int read_merges(struct tokenizer *t, const json_t *list, struct error *e)
{
    json_t *m;
    size_t i;
    int status = build_merges(t, json_array_size(list), e);

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
        if (!na || !nb || !build_merge(t, a, na, b, nb, (int)i))
            return error_set(e, ERR_MODEL,
                             TOKENIZER_JSON ": merge %zu does not join two tokens to a third", i);
    }
    return 0;
}

/* The special token before a single text, or behind it; NULL: none. */
static const json_t *end_token(const json_t *post, bool behind, int depth)
{
    const json_t *single = json_object_get(post, "single"), *each, *found;
    size_t n = json_array_size(single), i;

    found = behind && n < 2
                ? NULL
                : json_object_get(json_array_get(single, behind ? n - 1 : 0), "SpecialToken");

    json_array_foreach(json_object_get(post, "processors"), i, each)
    {
        if (found || depth == 8)
            break;
        found = end_token(each, behind, depth + 1);
    }
    return found;
}

static void read_ends(struct tokenizer *t, const json_t *post)
{
    const json_t *first = end_token(post, false, 0), *last = end_token(post, true, 0);
    const char *name = string_of(first, "id"), *behind = string_of(last, "id");

    t->add_bos = first != NULL;
    t->bos = first ? tokenizer_lookup(t, name, strlen(name)) : tokenizer_lookup(t, "<s>", 3);
    t->last = last ? tokenizer_lookup(t, behind, strlen(behind)) : -1;
}

/* The vocabulary spells bytes; added tokens are literal. */
static int decode_vocabulary(struct tokenizer *t, const json_t *added, struct error *e)
{
    bool *literal = mem_alloc((size_t)t->n_pieces, sizeof *literal);
    const json_t *each;
    size_t i;
    int status;

    if (!literal)
        return build_no_memory(e);
    json_array_foreach(added, i, each)
    {
        literal[json_integer_value(json_object_get(each, "id"))] = true;
    }
    status = byte_level_decode(t, literal, e);
    mem_free(literal);
    return status;
}

static int read_piece(struct tokenizer *t, int id, const char *text, size_t len, struct error *e)
{
    int byte = build_byte_of(text, len), status = build_piece(t, id, text, len, e);

    if (status < 0)
        return status;
    t->pieces[id].in_model = true;
    if (byte >= 0) {
        t->pieces[id].byte = (int16_t)byte;
        t->byte_ids[byte] = id;
    }
    return 0;
}

/* {"text": id, ...} */
static int read_bpe(struct tokenizer *t, json_t *model, struct error *e)
{
    const char *key, *unknown = string_of(model, "unk_token");
    json_t *value;
    int status;

    json_object_foreach(json_object_get(model, "vocab"), key, value)
    {
        status = read_piece(t, (int)json_integer_value(value), key, strlen(key), e);
        if (status < 0)
            return status;
    }
    t->fuse_unknown = json_is_true(json_object_get(model, "fuse_unk"));
    t->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    t->unknown = *unknown ? tokenizer_lookup(t, unknown, strlen(unknown)) : -1;
    return 0;
}

/* [["text", score], ...] */
static int read_unigram(struct tokenizer *t, json_t *model, struct error *e)
{
    const json_t *vocab = json_object_get(model, "vocab"),
                 *unknown = json_object_get(model, "unk_id"), *each;
    int status = build_scores(t, e);
    size_t i;

    json_array_foreach(vocab, i, each)
    {
        const json_t *text = json_array_get(each, 0);

        if (status == 0)
            status = read_piece(t, (int)i, json_string_value(text), json_string_length(text), e);
        if (status < 0)
            return status;
        t->scores[i] = json_number_value(json_array_get(each, 1));
        t->worst = i == 0 || t->scores[i] < t->worst ? t->scores[i] : t->worst;
    }
    if (json_is_integer(unknown) &&
        (json_integer_value(unknown) < 0 || json_integer_value(unknown) >= (json_int_t)i))
        return error_set(e, ERR_MODEL, TOKENIZER_JSON ": unk_id is no token");
    t->unknown = json_is_integer(unknown) ? (int)json_integer_value(unknown) : -1;
    return status;
}

/* Supported models: a vocabulary with a list of merges, or one with scores. */
static int check_model(const json_t *model, bool *unigram, struct error *e)
{
    const char *type = string_of(model, "type");
    const json_t *vocab = json_object_get(model, "vocab");
    bool bpe = json_is_object(vocab) && json_is_array(json_object_get(model, "merges"));

    *unigram = json_is_array(vocab);
    if ((!bpe && !*unigram) || (*type && strcmp(type, *unigram ? "Unigram" : "BPE") != 0))
        return error_set(e, ERR_MODEL,
                         TOKENIZER_JSON ": the model '%s' is not supported; BPE with a list of "
                                        "merges and Unigram with a list of scores are",
                         *type ? type : "?");
    if (*string_of(model, "continuing_subword_prefix") || *string_of(model, "end_of_word_suffix"))
        return error_set(e, ERR_MODEL,
                         TOKENIZER_JSON
                         ": continuing_subword_prefix and end_of_word_suffix are not supported");
    return 0;
}

int tokenizer_load_root(struct tokenizer *t, json_t *root, struct error *e)
{
    json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab"),
           *added = json_object_get(root, "added_tokens");
    size_t pool;
    bool unigram;
    int n = 0, status;

    if ((status = check_model(model, &unigram, e)) < 0 ||
        (status = measure(vocab, added, &n, &pool, e)) < 0 ||
        /* the texts of normalizer and decoder go into the same pool */
        (status = build_tables(
             t, n, json_object_size(vocab) + json_array_size(vocab) + json_array_size(added),
             pool + 4096, e)) < 0)
        return status;
    t->byte_fallback = json_is_true(json_object_get(model, "byte_fallback"));
    if ((status = unigram ? read_unigram(t, model, e) : read_bpe(t, model, e)) < 0 ||
        (status = read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), 0, e)) < 0)
        return status;
    if (unigram && t->byte_level)
        return error_set(e, ERR_MODEL, TOKENIZER_JSON ": Unigram of bytes is not supported");
    if ((!unigram && (status = read_merges(t, json_object_get(model, "merges"), e)) < 0) ||
        (t->byte_level && (status = decode_vocabulary(t, added, e)) < 0) ||
        (status = read_added(t, added, e)) < 0 ||
        (status = read_normalizer(t, json_object_get(root, "normalizer"), 0, e)) < 0 ||
        (status = read_decoders(t, json_object_get(root, "decoder"), e)) < 0)
        return status;
    read_ends(t, json_object_get(root, "post_processor"));
    return 0;
}

int tokenizer_load_json(struct tokenizer *t, const void *data, size_t size, struct error *e)
{
    json_error_t where;
    json_t *root = json_load_wide(data, size, JSON_ALLOW_NUL, &where);
    int status;

    if (!root)
        return error_set(e, ERR_MODEL, TOKENIZER_JSON ":%d:%d: %s", where.line, where.column,
                         where.text);
    status = tokenizer_load_root(t, root, e);
    json_decref(root);
    return status;
}
