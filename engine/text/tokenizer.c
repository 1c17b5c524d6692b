/* Text to ids. Immutable tables, any thread; every call has its own scratch. Order of work, as in
 * the reference library: added tokens are cut out of the raw text (leftmost, longest), the text
 * between them is normalised, cut again at normalised added tokens, split by the pre-tokenizer and
 * merged pair by pair. Merging takes the best pair from a heap: O(n log n) for a megabyte without a
 * blank, where the textbook loop would take O(n^2). */
#include "engine/base/hash.h"
#include "engine/text/tokenizer.h"

#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/text/tokenizer_data.h"
#include "engine/text/unigram.h"

#include <limits.h>
#include <string.h>
#include <utf8proc.h>

#define UNKNOWN (-1)     /* a symbol that is no piece */
#define UNTIL_ASKED 4096 /* steps between two polls of stop */

struct symbol {
    int32_t prev, next, id;
    uint32_t start, len; /* len 0: merged into its left neighbour */
};

struct candidate {
    uint64_t key;  /* rank, then position: the leftmost of equals first */
    uint32_t size; /* bytes of both halves: detects a stale entry */
    int32_t id;
};

struct encoder {
    const struct tokenizer *t;
    bool parse_special;
    const struct stop *stop;
    unsigned steps;
    struct error *e;
    int *ids;
    size_t *offsets;
    size_t n, capacity, offset;
    bool want_offsets;
    struct symbol *symbols;
    size_t symbols_size;
    struct candidate *heap;
    size_t heap_len, heap_size;
    struct unigram unigram;
    bool at_start;            /* the text to be pre-tokenized is at the start */
    const char *begins;       /* its address */
    struct splitter splitter; /* initialised if the pre-tokenizer has expressions */
};

uint64_t tokenizer_hash(const char *text, size_t len)
{
    uint64_t h = hash_bytes(HASH_START, text, len);

    return h ^ h >> 32;
}

int tokenizer_lookup(const struct tokenizer *t, const char *text, size_t len)
{
    for (uint32_t i = (uint32_t)tokenizer_hash(text, len);; i++) {
        int32_t id = t->index[i & t->index_mask];

        if (id < 0)
            return -1;
        if (t->pieces[id].len == len && memcmp(t->pieces[id].text, text, len) == 0)
            return id;
    }
}

const struct merge *tokenizer_merge(const struct tokenizer *t, int left, int right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;

    for (uint32_t i = (uint32_t)(h >> 32);; i++) {
        const struct merge *m = &t->merges[i & t->merge_mask];

        if (m->left < 0)
            return NULL;
        if (m->left == left && m->right == right)
            return m;
    }
}

int tokenizer_size(const struct tokenizer *t)
{
    return t->n_pieces;
}

const char *tokenizer_piece(const struct tokenizer *t, int id, size_t *len, bool *special)
{
    bool known = id >= 0 && id < t->n_pieces && t->pieces[id].text;

    if (len)
        *len = known ? t->pieces[id].len : 0;
    if (special)
        *special = known && t->pieces[id].special;
    return known ? t->pieces[id].text : NULL;
}

int tokenizer_find(const struct tokenizer *t, const char *piece, size_t len)
{
    return tokenizer_lookup(t, piece, len);
}

int tokenizer_last(const struct tokenizer *t)
{
    return t->last;
}

int tokenizer_bos(const struct tokenizer *t, bool *add)
{
    if (add)
        *add = t->add_bos && t->bos >= 0;
    return t->bos;
}

/* Every character, merge and id is a step. */
static int step(struct encoder *x)
{
    if (!x->stop || ++x->steps % UNTIL_ASKED || !x->stop->asked(x->stop->ctx))
        return 0;
    return error_set(x->e, ERR_CANCELLED, "cancelled");
}

static int push(struct encoder *x, int id)
{
    if (x->n == x->capacity) {
        size_t size = x->capacity ? x->capacity * 2 : 64;

        if (size > INT_MAX || !MEM_FIT(x->ids, size) ||
            (x->want_offsets && !MEM_FIT(x->offsets, size)))
            return error_set(x->e, ERR_MEMORY, "out of memory for %zu tokens", size);
        x->capacity = size;
    }
    if (x->want_offsets)
        x->offsets[x->n] = x->offset;
    x->ids[x->n++] = id;
    return step(x);
}

static bool heap_before(const struct candidate *a, const struct candidate *b)
{
    return a->key < b->key;
}

static int heap_push(struct encoder *x, struct candidate c)
{
    size_t i;

    if (!MEM_ROOM(x->heap, x->heap_len, x->heap_size, 64))
        return error_set(x->e, ERR_MEMORY, "out of memory for %zu merges", x->heap_len + 1);
    for (i = x->heap_len++; i > 0 && heap_before(&c, &x->heap[(i - 1) / 2]); i = (i - 1) / 2)
        x->heap[i] = x->heap[(i - 1) / 2];
    x->heap[i] = c;
    return step(x);
}

static struct candidate heap_pop(struct encoder *x)
{
    struct candidate top = x->heap[0], last = x->heap[--x->heap_len];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < x->heap_len) {
        if (child + 1 < x->heap_len && heap_before(&x->heap[child + 1], &x->heap[child]))
            child++;
        if (!heap_before(&x->heap[child], &last))
            break;
        x->heap[i] = x->heap[child];
        i = child;
    }
    x->heap[i] = last;
    return top;
}

/* Puts the merge of symbols[left] with its right neighbour on the heap, if there is one. */
static int consider(struct encoder *x, const char *text, int32_t left)
{
    const struct symbol *l = &x->symbols[left], *r = l->next < 0 ? NULL : &x->symbols[l->next];
    int32_t rank, id;

    if (!r)
        return 0;
    if (x->t->merges) {
        const struct merge *m = l->id < 0 || r->id < 0 ? NULL : tokenizer_merge(x->t, l->id, r->id);

        if (!m)
            return 0;
        rank = m->rank;
        id = m->id;
    } else {
        if (l->len + r->len > x->t->longest)
            return 0;
        id = tokenizer_lookup(x->t, text + l->start, l->len + r->len);
        if (id < 0 || !x->t->pieces[id].in_model)
            return 0;
        rank = x->t->pieces[id].rank;
    }
    return heap_push(x, (struct candidate){(uint64_t)(uint32_t)rank << 32 | (uint32_t)left,
                                           l->len + r->len, id});
}

static int add_symbol(struct encoder *x, size_t *n, int32_t id, size_t start, size_t len)
{
    if (!MEM_ROOM(x->symbols, *n, x->symbols_size, 64))
        return error_set(x->e, ERR_MEMORY, "out of memory for %zu characters", *n + 1);
    x->symbols[*n] = (struct symbol){(int32_t)*n - 1, (int32_t)*n + 1, id, (uint32_t)start,
                                     (uint32_t)len};
    ++*n;
    return step(x);
}

static bool has_bytes(const struct tokenizer *t, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (t->byte_ids[(unsigned char)text[i]] < 0)
            return false;
    return t->byte_fallback;
}

/* One character becomes one symbol; an unknown one its bytes (a list of merges may join those;
 * merging by score joins text), or if it has no token, nothing: a list of merges joins its
 * neighbours. */
static int split_characters(struct encoder *x, const char *text, size_t len, size_t *count)
{
    size_t n = 0;
    int status = 0;

    for (size_t i = 0; x->t->byte_level && i < len && status == 0; i++)
        status = add_symbol(x, &n, x->t->byte_ids[(unsigned char)text[i]], i, 1);
    for (size_t i = 0, size; !x->t->byte_level && i < len && status == 0; i += size) {
        uint32_t cp;
        bool valid;
        int id = UNKNOWN;

        size = utf8_decode_strict(text + i, len - i, &cp, &valid);
        if (valid)
            id = tokenizer_lookup(x->t, text + i, size);
        else
            size = 1;
        if (id >= 0 && !x->t->pieces[id].in_model)
            id = UNKNOWN;
        if (id < 0 && x->t->merges && has_bytes(x->t, text + i, size))
            for (size_t j = 0; j < size && status == 0; j++)
                status = add_symbol(x, &n, x->t->byte_ids[(unsigned char)text[i + j]], i + j, 1);
        else if (id >= 0 || x->t->unknown >= 0 || !x->t->merges)
            status = add_symbol(x, &n, id, i, size);
    }
    if (n)
        x->symbols[n - 1].next = -1;
    *count = n;
    return status;
}

static int emit_symbols(struct encoder *x, const char *text)
{
    bool after_unknown = false;

    for (int32_t i = 0; i >= 0; i = x->symbols[i].next) {
        const struct symbol *s = &x->symbols[i];
        int status = 0;

        if (s->id >= 0) {
            status = push(x, s->id);
            after_unknown = false;
        } else if (has_bytes(x->t, text + s->start, s->len)) {
            for (uint32_t j = 0; j < s->len && status == 0; j++)
                status = push(x, x->t->byte_ids[(unsigned char)text[s->start + j]]);
            after_unknown = false;
        } else if (x->t->unknown >= 0 && !(after_unknown && x->t->fuse_unknown)) {
            status = push(x, x->t->unknown);
            after_unknown = true;
        }
        if (status < 0)
            return status;
    }
    return 0;
}

static int merge_run(struct encoder *x, const char *text, size_t len)
{
    size_t n;
    int status = split_characters(x, text, len, &n);

    if (status < 0 || n == 0)
        return status;
    x->heap_len = 0;
    for (size_t i = 0; i + 1 < n; i++)
        if ((status = consider(x, text, (int32_t)i)) < 0)
            return status;
    while (x->heap_len) {
        struct candidate c = heap_pop(x);
        int32_t at = (int32_t)(uint32_t)c.key;
        struct symbol *l = &x->symbols[at], *r;

        if (l->len == 0 || l->next < 0)
            continue;
        r = &x->symbols[l->next];
        if (l->len + r->len != c.size)
            continue;
        l->id = c.id;
        l->len += r->len;
        l->next = r->next;
        r->len = 0;
        if (r->next >= 0)
            x->symbols[r->next].prev = at;
        if ((l->prev >= 0 && (status = consider(x, text, l->prev)) < 0) ||
            (status = consider(x, text, at)) < 0)
            return status;
    }
    return emit_symbols(x, text);
}

static int search_step(void *ctx)
{
    return step(ctx);
}

/* Splits text by scores. Adjacent unknown characters become one: their bytes, if all have a token,
 * or one unknown token. */
static int cut_by_scores(struct encoder *x, const char *text, size_t len)
{
    const struct unigram_node *nodes;
    int status = unigram_cut(&x->unigram, x->t, text, len, search_step, x, x->e);

    nodes = x->unigram.nodes;
    for (size_t i = 0, end; i < len && status == 0; i = end) {
        end = nodes[i].from;
        if (nodes[i].id >= 0) {
            status = push(x, nodes[i].id);
            continue;
        }
        while (end < len && nodes[end].id < 0)
            end = nodes[end].from;
        if (has_bytes(x->t, text + i, end - i))
            for (size_t j = i; j < end && status == 0; j++)
                status = push(x, x->t->byte_ids[(unsigned char)text[j]]);
        else if (x->t->unknown >= 0)
            status = push(x, x->t->unknown);
    }
    return status;
}

/* Removes characters without a token, so that their neighbours are joined. */
static bool characters_vanish(const struct tokenizer *t)
{
    return t->merges && t->unknown < 0 && !t->byte_fallback;
}

/* Normalised text, split by the pre-tokenizer. If no piece crosses a word mark, splitting there
 * changes nothing and keeps the heap small. */
static int encode_normal(void *ctx, const char *text, size_t len)
{
    struct encoder *x = ctx;
    size_t from = 0, mark = sizeof WORD_MARK - 1;
    int status = 0;

    if (x->t->scores)
        return cut_by_scores(x, text, len);
    if (x->t->ignore_merges) {
        int id = tokenizer_lookup(x->t, text, len);

        if (id >= 0 && x->t->pieces[id].in_model && !x->t->pieces[id].special)
            return push(x, id);
    }
    if (x->t->byte_level || characters_vanish(x->t))
        return merge_run(x, text, len);
    for (size_t i = 1; i + mark <= len && status == 0; i++)
        if (text[i] == WORD_MARK[0] && !x->t->crosses[(unsigned char)text[i - 1]] &&
            memcmp(text + i, WORD_MARK, mark) == 0) {
            status = merge_run(x, text + from, i - from);
            from = i;
        }
    return status < 0 || from == len ? status : merge_run(x, text + from, len - from);
}

static int split(struct encoder *x, const char *text, size_t len)
{
    return x->t->pre ? splitter_run(&x->splitter, text, len) : encode_normal(x, text, len);
}

static int split_prefixed(struct encoder *x, const char *text, size_t len)
{
    char *prefixed = mem_alloc(len + 1, 1);
    int status;

    if (!prefixed)
        return error_set(x->e, ERR_MEMORY, "out of memory for %zu bytes of text", len);
    prefixed[0] = ' ';
    memcpy(prefixed + 1, text, len);
    status = split(x, prefixed, len + 1);
    mem_free(prefixed);
    return status;
}

/* Metaspace: blanks become word marks, and one is prepended. */
static int mark_words(void *ctx, const char *text, size_t len)
{
    struct encoder *x = ctx;
    const char *mark = WORD_MARK;
    size_t size = sizeof WORD_MARK - 1, n = 0, from = 0;
    bool prefix = x->t->metaspace == METASPACE_ALWAYS ||
                  (x->t->metaspace == METASPACE_FIRST && x->at_start && text == x->begins);
    char *marked = mem_alloc(len + 1, size);
    int status = 0;

    if (!marked)
        return error_set(x->e, ERR_MEMORY, "out of memory for %zu bytes of text", len);
    if (prefix && text[0] != ' ' && !(len >= size && memcmp(text, mark, size) == 0)) {
        memcpy(marked, mark, size);
        n = size;
    }
    for (size_t i = 0; i < len; i++)
        if (text[i] == ' ') {
            memcpy(marked + n, mark, size);
            n += size;
        } else
            marked[n++] = text[i];
    if (x->t->metaspace_split)
        for (size_t i = 1; i + size <= n && status == 0; i++)
            if (memcmp(marked + i, mark, size) == 0) {
                status = encode_normal(x, marked + from, i - from);
                from = i;
            }
    if (status == 0 && from < n)
        status = encode_normal(x, marked + from, n - from);
    mem_free(marked);
    return status;
}

static int pre_tokenize(struct encoder *x, const char *text, size_t len, size_t origin)
{
    if (x->t->metaspace == METASPACE_NONE)
        return x->t->prefix_space && text[0] != ' ' ? split_prefixed(x, text, len)
                                                    : split(x, text, len);
    x->at_start = origin == 0;
    x->begins = text;
    return x->t->pre ? splitter_run(&x->splitter, text, len) : mark_words(x, text, len);
}

bool tokenizer_is_blank(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == 32 || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f ||
           cp == 0x205f || cp == 0x3000;
}

/* \w of the reference's regular expressions. */
static bool is_word(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC ||
           cp == 0x200c || cp == 0x200d;
}

/* Code point that ends at s + n. */
static uint32_t last_code_point(const char *s, size_t n, size_t *len)
{
    uint32_t cp = UTF8_REPLACEMENT;

    for (*len = 1; *len < 4 && *len < n && ((unsigned char)s[n - *len] & 0xc0) == 0x80; ++*len)
        ;
    if (utf8_decode(s + n - *len, *len, &cp) != *len)
        *len = 1;
    return cp;
}

static size_t blanks_after(const char *s, size_t n)
{
    uint32_t cp;
    size_t at = 0, len;

    while (at < n && (len = utf8_decode(s + at, n - at, &cp), tokenizer_is_blank(cp)))
        at += len;
    return at;
}

static size_t blanks_before(const char *s, size_t n)
{
    size_t at = n, len;

    while (at > 0 && tokenizer_is_blank(last_code_point(s, at, &len)))
        at -= len;
    return n - at;
}

static bool inside_word(const char *text, size_t len, size_t start, size_t stop)
{
    uint32_t cp;
    size_t size;

    if (start > 0 && is_word(last_code_point(text, start, &size)))
        return true;
    return stop < len && (utf8_decode(text + stop, len - stop, &cp), is_word(cp));
}

/* Longest added token at text[i] that may be recognised there, -1: none. */
static int match(const struct encoder *x, const struct trie *tr, const char *text,
                 const unsigned char *plain, size_t len, size_t i, size_t *stop)
{
    int32_t node = tr->first[(unsigned char)text[i]];
    bool typed = false;
    int best = -1;

    for (size_t j = i; node;) {
        const struct trie_node *n = &tr->nodes[node];

        typed = typed || (plain && plain[j]);
        j++;
        if (n->added >= 0 && (!x->t->added[n->added].control || (x->parse_special && !typed))) {
            best = n->added;
            *stop = j;
        }
        if (j == len)
            break;
        for (node = n->child; node && tr->nodes[node].byte != (unsigned char)text[j];
             node = tr->nodes[node].sibling)
            ;
    }
    return best;
}

static int encode_raw(struct encoder *x, const char *text, const unsigned char *plain, size_t len,
                      size_t origin);

/* Cuts added tokens out; the text between them goes to the next stage. As in the reference, the
 * search continues after the last token found, whether that one counted (single_word) or not, and
 * blanks absorbed by it (rstrip) may be tokens again. */
static int cut(struct encoder *x, bool normal, const char *text, const unsigned char *plain,
               size_t len, size_t origin)
{
    const struct trie *tr = normal ? &x->t->normal : &x->t->raw;
    size_t done = 0, i = 0, start, stop = 0, found;
    int status = 0;

    while (status == 0 && i <= len) {
        int a = i < len && tr->first[(unsigned char)text[i]]
                    ? match(x, tr, text, plain, len, i, &stop)
                    : -1;
        const struct added *token = a < 0 ? NULL : &x->t->added[a];

        if (!token && i < len) {
            i++;
            continue;
        }
        if (token && token->single_word && inside_word(text, len, i, stop)) {
            i = stop;
            continue;
        }
        start = i;
        found = stop;
        if (token && token->lstrip && i > done)
            start -= blanks_before(text + done, i - done);
        if (token && token->rstrip)
            stop += blanks_after(text + stop, len - stop);
        if (start > done) {
            if (!normal) {
                x->offset = done;
                status = encode_raw(x, text + done, plain ? plain + done : NULL, start - done,
                                    done);
            } else
                status = pre_tokenize(x, text + done, start - done, origin + done);
        }
        if (!token)
            break;
        if (!normal)
            x->offset = start;
        if (status == 0)
            status = push(x, token->id);
        done = stop;
        i = found;
    }
    return status;
}

static int encode_raw(struct encoder *x, const char *text, const unsigned char *plain, size_t len,
                      size_t origin)
{
    char *normal;
    unsigned char *mask;
    size_t n;
    int status;

    if (x->t->n_steps == 0)
        return cut(x, true, text, plain, len, origin);
    status = tokenizer_normalize(x->t, text, plain, len, &normal, &mask, &n, x->e);
    if (status < 0)
        return status;
    status = cut(x, true, normal, mask, n, origin);
    mem_free(normal);
    mem_free(mask);
    return status;
}

int tokenizer_encode_masked(const struct tokenizer *t, const char *text, size_t len,
                            bool parse_special, const unsigned char *plain, const struct stop *stop,
                            int **ids, int *n, size_t **offsets, struct error *e)
{
    struct encoder x = {.t = t,
                        .parse_special = parse_special,
                        .stop = stop,
                        .e = e,
                        .want_offsets = offsets != NULL};
    int status = 0;

    *ids = NULL;
    *n = 0;
    if (offsets)
        *offsets = NULL;
    /* positions inside a piece are 31 bits, and a mark may triple the text */
    if (len > INT_MAX / 4)
        return error_set(e, ERR_INPUT, "the text has %zu bytes; at most %d can be read at once",
                         len, INT_MAX / 4);
    x.splitter = (struct splitter){.pre = t->pre,
                                   .piece = t->metaspace == METASPACE_NONE ? encode_normal
                                                                           : mark_words,
                                   .step = search_step,
                                   .ctx = &x,
                                   .e = e};
    if (t->pre)
        status = splitter_begin(&x.splitter, len);
    if (status == 0)
        status = cut(&x, false, text, plain, len, 0);
    splitter_end(&x.splitter);
    mem_free(x.symbols);
    mem_free(x.heap);
    mem_free(x.unigram.nodes);
    if (status == 0 && !x.ids && !(x.ids = mem_alloc(1, sizeof *x.ids)))
        status = error_set(e, ERR_MEMORY, "out of memory for tokens");
    if (status == 0 && offsets && !x.offsets && !(x.offsets = mem_alloc(1, sizeof *x.offsets)))
        status = error_set(e, ERR_MEMORY, "out of memory for tokens");
    if (status < 0) {
        mem_free(x.ids);
        mem_free(x.offsets);
        return status;
    }
    *ids = x.ids;
    *n = (int)x.n;
    if (offsets)
        *offsets = x.offsets;
    return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool parse_special,
                     int **ids, int *n, struct error *e)
{
    return tokenizer_encode_masked(t, text, len, parse_special, NULL, NULL, ids, n, NULL, e);
}
