/* See tokenizer_build.h. One thread. */
#include "engine/text/tokenizer_build.h"

#include "engine/base/mem.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Tables are at most half full, where real vocabularies need less than a hundred probes; a file
 * crafted to collide is refused. */
#define PROBES_MAX 2000

int build_no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the tokenizer");
}

/* All text is in one pool that never moves: its size is a known upper bound. */
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

int build_tables(struct tokenizer *t, int n, size_t texts, size_t pool, struct error *e)
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
        return build_no_memory(e);
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

int build_byte_of(const char *text, size_t len)
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

int build_piece(struct tokenizer *t, int id, const char *text, size_t len, struct error *e)
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
            if (tr->capacity > INT32_MAX / 2 || !MEM_ROOM(tr->nodes, tr->n + 1, tr->capacity, 64))
                return build_no_memory(e);
            tr->n = tr->n ? tr->n : 1; /* 0 means none */
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

/* Added tokens in order; normalised ones are searched in normalised text, so their own text is
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

bool build_is_control(const char *text, size_t len)
{
    return (len > 4 && memcmp(text, "<|", 2) == 0 && memcmp(text + len - 2, "|>", 2) == 0) ||
           (len == 3 && memcmp(text, "<s>", 3) == 0) || (len == 4 && memcmp(text, "</s>", 4) == 0);
}

/* Finds where text may be split before a word mark, and the longest piece. */
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

int build_merges(struct tokenizer *t, size_t n, struct error *e)
{
    uint32_t size = 16;

    if (n > INT_MAX / 4)
        return error_set(e, ERR_MODEL, "the tokenizer has %zu merges; that cannot be", n);
    while (size < n * 2)
        size *= 2;
    t->merges = mem_alloc(size, sizeof *t->merges);
    if (!t->merges)
        return build_no_memory(e);
    for (uint32_t i = 0; i < size; i++)
        t->merges[i].left = -1;
    t->merge_mask = size - 1;
    return 0;
}

bool build_merge(struct tokenizer *t, const char *a, size_t na, const char *b, size_t nb, int rank)
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

int build_step(struct tokenizer *t, enum normalize_op op, const char *from, const char *to,
               struct error *e)
{
    struct normalize_step *steps;

    if (!MEM_FIT(t->steps, t->n_steps + 1))
        return build_no_memory(e);
    steps = t->steps;
    steps[t->n_steps] = (struct normalize_step){.op = op,
                                                .from = keep_text(t, from, strlen(from)),
                                                .to = keep_text(t, to, strlen(to)),
                                                .from_len = strlen(from),
                                                .to_len = strlen(to)};
    if (!steps[t->n_steps].from || !steps[t->n_steps].to)
        return error_set(e, ERR_MODEL, "the tokenizer's normalizer is damaged");
    t->n_steps++;
    return 0;
}

int build_step_pattern(struct tokenizer *t, const struct split *s, const char *to, struct error *e)
{
    struct pre_tokenizer *pattern = NULL;
    int status = pre_tokenizer_add(&pattern, s, e);

    if (status == 0 && pre_tokenizer_may_be_empty(pattern))
        status = error_set(e, ERR_MODEL,
                           "the normalizer's pattern '%.*s' may match no text at all; "
                           "that is not supported",
                           (int)(s->len < 80 ? s->len : 80), s->pattern);
    if (status == 0)
        status = build_step(t, NORMALIZE_PATTERN, "", to, e);
    if (status == 0)
        t->steps[t->n_steps - 1].pattern = pattern;
    else
        pre_tokenizer_free(pattern);
    return status;
}

int build_scores(struct tokenizer *t, struct error *e)
{
    t->scores = mem_alloc((size_t)t->n_pieces, sizeof *t->scores);
    return t->scores ? 0 : build_no_memory(e);
}

int build_decode(struct tokenizer *t, struct decode_step step, const char *from, const char *to,
                 struct error *e)
{
    if (t->n_decode == DECODE_STEPS_MAX)
        return error_set(e, ERR_MODEL, "the tokenizer's decoder has more than %d steps",
                         DECODE_STEPS_MAX);
    step.from = keep_text(t, from, strlen(from));
    step.to = keep_text(t, to, strlen(to));
    if (!step.from || !step.to)
        return error_set(e, ERR_MODEL, "the tokenizer's decoder is damaged");
    step.from_len = (int)strlen(from);
    step.to_len = (int)strlen(to);
    t->decode[t->n_decode++] = step;
    return 0;
}

int build_decode_words(struct tokenizer *t, bool strip, struct error *e)
{
    int status;

    if ((status = build_decode(t, (struct decode_step){.op = DECODE_REPLACE}, WORD_MARK, " ", e)) <
            0 ||
        (status = build_decode(t, (struct decode_step){.op = DECODE_BYTES}, "", "", e)) < 0 ||
        (status = build_decode(t, (struct decode_step){.op = DECODE_FUSE}, "", "", e)) < 0)
        return status;
    return strip ? build_decode(t, (struct decode_step){.op = DECODE_STRIP, .start = 1}, " ", "", e)
                 : 0;
}

/* Byte tokens represent bytes and control tokens no text: neither is matched in split text. Of two
 * pieces with one text the later counts, as in both reference libraries. */
static int make_words(struct tokenizer *t, struct error *e)
{
    int status = 0;

    for (int id = 0; id < t->n_pieces && status == 0; id++) {
        const struct piece *p = &t->pieces[id];

        if (p->text && p->in_model && !p->special && p->byte < 0)
            status = trie_add(&t->words, p->text, p->len, id, e);
    }
    return status;
}

int build_finish(struct tokenizer *t, struct error *e)
{
    int status = t->scores ? make_words(t, e) : 0;

    survey_pieces(t);
    return status < 0 ? status : make_tries(t, e);
}
