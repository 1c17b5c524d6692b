/* The normalizer of tokenizer.json, step by step over a buffer. Any thread. A mask byte is kept
 * with every text byte, so that user text stays marked as such through replacements; runs of one
 * mask value are normalised separately. */
#include "engine/text/tokenizer_data.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Two buffers that grow together; mask is unused if not requested. */
struct masked {
    struct strbuf text, mask;
    bool use_mask;
};

static void masked_put(struct masked *m, const char *text, size_t n, unsigned char mask)
{
    strbuf_put(&m->text, text, n);
    if (m->use_mask && strbuf_reserve(&m->mask, n)) {
        memset(m->mask.data + m->mask.len, mask, n);
        m->mask.len += n;
    }
}

static void masked_release(struct masked *m)
{
    strbuf_release(&m->text);
    strbuf_release(&m->mask);
}

static unsigned char mask_at(const struct masked *m, size_t i)
{
    return m->use_mask ? (unsigned char)m->mask.data[i] : 0;
}

static void replace(const struct normalize_step *s, const struct masked *in, struct masked *out)
{
    size_t n = in->text.len;

    for (size_t i = 0; i < n;) {
        const char *hit = i + s->from_len <= n
                              ? memmem(in->text.data + i, n - i, s->from, s->from_len)
                              : NULL;
        size_t until = hit ? (size_t)(hit - in->text.data) : n;

        for (size_t j = i, k; j < until; j = k) {
            for (k = j + 1; k < until && mask_at(in, k) == mask_at(in, j); k++)
                ;
            masked_put(out, in->text.data + j, k - j, mask_at(in, j));
        }
        if (hit)
            masked_put(out, s->to, s->to_len, mask_at(in, until));
        i = until + (hit ? s->from_len : 0);
    }
}

/* One letter becomes two: U+0130 becomes an i with a dot above. */
static size_t lower(uint32_t cp, char *out)
{
    size_t n = utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), out);

    return cp == 0x130 ? n + utf8_encode(0x307, out + n) : n;
}

/* utf8proc refuses malformed text, so those bytes are copied. */
static void compose(enum normalize_op op, const struct masked *in, struct masked *out)
{
    utf8proc_option_t how = UTF8PROC_STABLE |
                            (op == NORMALIZE_NFC || op == NORMALIZE_NFKC ? UTF8PROC_COMPOSE
                                                                         : UTF8PROC_DECOMPOSE);
    size_t n = in->text.len;

    if (op == NORMALIZE_NFKC || op == NORMALIZE_NFKD)
        how |= UTF8PROC_COMPAT;
    for (size_t i = 0, j; i < n; i = j) {
        utf8proc_uint8_t *text = NULL;
        utf8proc_ssize_t len;
        uint32_t cp;
        bool valid = true;
        size_t size = 0;

        for (j = i; j < n && mask_at(in, j) == mask_at(in, i); j += size) {
            size = utf8_decode_strict(in->text.data + j, n - j, &cp, &valid);
            if (!valid)
                break;
        }
        if (j > n)
            j = n;
        if (j == i) {
            masked_put(out, in->text.data + i, size, mask_at(in, i));
            j += size;
            continue;
        }
        if (op == NORMALIZE_LOWER) {
            for (size_t k = i; k < j; k += size) {
                char c[8];

                size = utf8_decode(in->text.data + k, j - k, &cp);
                masked_put(out, c, lower(cp, c), mask_at(in, i));
            }
            continue;
        }
        len = utf8proc_map((const utf8proc_uint8_t *)in->text.data + i, (utf8proc_ssize_t)(j - i),
                           &text, how);
        if (len < 0)
            out->text.failed = true;
        else
            masked_put(out, (char *)text, (size_t)len, mask_at(in, i));
        free(text); /* utf8proc's own allocation */
    }
}

/* Length of the grapheme cluster that begins at text[0]: with the marks that follow. */
static size_t grapheme(const char *text, size_t len)
{
    utf8proc_int32_t state = 0;
    uint32_t cp, next;
    bool valid;
    size_t at = utf8_decode_strict(text, len, &cp, &valid), size;

    while (valid && at < len) {
        size = utf8_decode_strict(text + at, len - at, &next, &valid);
        if (!valid ||
            utf8proc_grapheme_break_stateful((utf8proc_int32_t)cp, (utf8proc_int32_t)next, &state))
            break;
        at += size;
        cp = next;
    }
    return at;
}

/* By graphemes of less than 6 bytes, the others code point by code point; an entry that matches
 * only the beginning replaces the whole, as in the reference. */
static void map_graphemes(const struct charsmap *c, const struct masked *in, struct masked *out)
{
    const char *text = in->text.data;
    size_t n = in->text.len;

    for (size_t i = 0, size; i < n; i += size) {
        const char *to;
        size_t used, k;

        size = grapheme(text + i, n - i);
        if (size < 6 && (to = charsmap_find(c, text + i, size, false, &used))) {
            masked_put(out, to, strlen(to), mask_at(in, i));
            continue;
        }
        for (size_t j = i; j < i + size; j += k) {
            uint32_t cp;

            k = utf8_decode(text + j, i + size - j, &cp);
            to = charsmap_find(c, text + j, k, false, &used);
            masked_put(out, to ? to : text + j, to ? strlen(to) : k, mask_at(in, j));
        }
    }
}

static void map_longest(const struct charsmap *c, const struct masked *in, struct masked *out)
{
    const char *text = in->text.data;
    size_t n = in->text.len;

    for (size_t i = 0, used; i < n; i += used) {
        const char *to = charsmap_find(c, text + i, n - i, true, &used);
        uint32_t cp;

        if (!to)
            used = utf8_decode(text + i, n - i, &cp);
        masked_put(out, to ? to : text + i, to ? strlen(to) : used, mask_at(in, i));
    }
}

/* Rare blanks of SentencePiece's rules for translation. */
static bool nmt_blank(uint32_t cp)
{
    return cp == 9 || cp == 10 || cp == 12 || cp == 13 || cp == 0x1680 ||
           (cp >= 0x200b && cp <= 0x200f) || cp == 0x2028 || cp == 0x2029 || cp == 0x2581 ||
           cp == 0xfeff || cp == 0xfffd;
}

static bool nmt_goes(uint32_t cp)
{
    return (cp >= 1 && cp <= 8) || cp == 11 || (cp >= 14 && cp <= 31) || cp == 0x7f || cp == 0x8f ||
           cp == 0x9f;
}

static bool is_mark(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

/* Code point by code point: kept, removed, or replaced by a blank. Malformed bytes are kept. */
static void filter(enum normalize_op op, const struct masked *in, struct masked *out)
{
    const char *text = in->text.data;

    for (size_t i = 0, size; i < in->text.len; i += size) {
        uint32_t cp;
        bool valid;

        size = utf8_decode_strict(text + i, in->text.len - i, &cp, &valid);
        if (valid && op == NORMALIZE_NMT && nmt_blank(cp))
            masked_put(out, " ", 1, mask_at(in, i));
        else if (!valid || (op == NORMALIZE_NMT ? !nmt_goes(cp) : !is_mark(cp)))
            masked_put(out, text + i, size, mask_at(in, i));
    }
}

/* Copies bytes and their masks unchanged. */
static void put_part(const struct masked *in, size_t from, size_t to, struct masked *out)
{
    strbuf_put(&out->text, in->text.data + from, to - from);
    if (in->use_mask)
        strbuf_put(&out->mask, in->mask.data + from, to - from);
}

static void strip(const struct normalize_step *s, const struct masked *in, struct masked *out)
{
    const char *text = in->text.data;
    size_t from = 0, to = 0, size;
    bool said = false;

    for (size_t i = 0; i < in->text.len; i += size) {
        uint32_t cp;
        bool valid, blank;

        size = utf8_decode_strict(text + i, in->text.len - i, &cp, &valid);
        blank = valid && tokenizer_is_blank(cp);
        if (!blank)
            to = i + size;
        if (!said && !blank)
            from = i;
        said = said || !blank;
    }
    if (said)
        put_part(in, s->left ? from : 0, s->right ? to : in->text.len, out);
    else if (!s->left && !s->right)
        put_part(in, 0, in->text.len, out);
}

static void collapse(const struct masked *in, struct masked *out)
{
    const char *text = in->text.data;

    for (size_t i = 0; i < in->text.len; i++)
        if (text[i] != ' ') {
            if (i && text[i - 1] == ' ' && out->text.len)
                masked_put(out, " ", 1, mask_at(in, i - 1));
            masked_put(out, text + i, 1, mask_at(in, i));
        }
}

/* A text being split by an expression. */
struct matching {
    const struct normalize_step *step;
    const struct splitter *splitter;
    const struct masked *in;
    struct masked *out;
};

static int put_match(void *ctx, const char *text, size_t len)
{
    const struct matching *m = ctx;
    size_t at = (size_t)(text - m->in->text.data);

    if (m->splitter->matched)
        masked_put(m->out, m->step->to, m->step->to_len, mask_at(m->in, at));
    else
        put_part(m->in, at, at + len, m->out);
    return 0;
}

static int no_step(void *ctx)
{
    (void)ctx;
    return 0;
}

static int replace_matches(const struct normalize_step *s, const struct masked *in,
                           struct masked *out, struct error *e)
{
    struct splitter splitter = {.pre = s->pattern, .piece = put_match, .step = no_step, .e = e};
    struct matching m = {s, &splitter, in, out};
    int status;

    splitter.ctx = &m;
    status = splitter_begin(&splitter, in->text.len);
    if (status == 0)
        status = splitter_run(&splitter, in->text.data, in->text.len);
    splitter_end(&splitter);
    return status;
}

static int run_step(const struct tokenizer *t, const struct normalize_step *s,
                    const struct masked *in, struct masked *out, struct error *e)
{
    switch (s->op) {
    case NORMALIZE_PREPEND:
        masked_put(out, s->to, s->to_len, 0);
        put_part(in, 0, in->text.len, out);
        break;
    case NORMALIZE_REPLACE: replace(s, in, out); break;
    case NORMALIZE_CHARSMAP: map_graphemes(&t->charsmap, in, out); break;
    case NORMALIZE_CHARSMAP_LONG: map_longest(&t->charsmap, in, out); break;
    case NORMALIZE_STRIP: strip(s, in, out); break;
    case NORMALIZE_STRIP_ACCENTS:
    case NORMALIZE_NMT: filter(s->op, in, out); break;
    case NORMALIZE_COLLAPSE: collapse(in, out); break;
    case NORMALIZE_PATTERN: return replace_matches(s, in, out, e);
    default: compose(s->op, in, out); break;
    }
    return 0;
}

int tokenizer_normalize(const struct tokenizer *t, const char *text, const unsigned char *mask,
                        size_t len, char **out, unsigned char **out_mask, size_t *out_len,
                        struct error *e)
{
    struct masked m = {.use_mask = mask != NULL}, next;
    int status = 0;

    strbuf_put(&m.text, text, len);
    if (mask)
        strbuf_put(&m.mask, (const char *)mask, len);
    for (int i = 0; i < t->n_steps && status == 0 && !m.text.failed && !m.mask.failed && m.text.len;
         i++) {
        const struct normalize_step *s = &t->steps[i];

        next = (struct masked){.use_mask = m.use_mask};
        strbuf_reserve(&next.text, m.text.len * 2);
        status = run_step(t, s, &m, &next, e);
        masked_release(&m);
        m = next;
    }
    *out_len = m.text.len;
    *out_mask = NULL;
    *out = NULL;
    if (status == 0 && !m.text.failed && !m.mask.failed) {
        *out = strbuf_take(&m.text, NULL);
        *out_mask = mask ? (unsigned char *)strbuf_take(&m.mask, NULL) : NULL;
    }
    if (!*out || (mask && !*out_mask)) {
        masked_release(&m);
        mem_free(*out);
        mem_free(*out_mask);
        *out = NULL;
        *out_mask = NULL;
        return status < 0 ? status
                          : error_set(e, ERR_MEMORY, "out of memory for %zu bytes of text", len);
    }
    return 0;
}
