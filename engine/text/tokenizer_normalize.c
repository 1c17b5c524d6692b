/* The normalizer of tokenizer.json, step by step over a buffer. Any thread. A mask byte travels
 * with every text byte, so that what people typed stays known as such through replacements; runs of
 * one mask value are normalised on their own. */
#include "engine/text/tokenizer_data.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Two buffers that grow in step; mask is unused when nobody asked for one. */
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

/* One letter becomes two: U+0130 an i with a dot above. */
static size_t lower(uint32_t cp, char *out)
{
    size_t n = utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), out);

    return cp == 0x130 ? n + utf8_encode(0x307, out + n) : n;
}

/* utf8proc refuses malformed text, so those bytes are passed by. */
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

int tokenizer_normalize(const struct tokenizer *t, const char *text, const unsigned char *mask,
                        size_t len, char **out, unsigned char **out_mask, size_t *out_len,
                        struct error *e)
{
    struct masked m = {.use_mask = mask != NULL}, next;

    strbuf_put(&m.text, text, len);
    if (mask)
        strbuf_put(&m.mask, (const char *)mask, len);
    for (int i = 0; i < t->n_steps && !m.text.failed && !m.mask.failed && m.text.len; i++) {
        const struct normalize_step *s = &t->steps[i];

        next = (struct masked){.use_mask = m.use_mask};
        strbuf_reserve(&next.text, m.text.len * 2);
        if (s->op == NORMALIZE_PREPEND) {
            masked_put(&next, s->to, s->to_len, 0);
            strbuf_put(&next.text, m.text.data, m.text.len);
            if (m.use_mask)
                strbuf_put(&next.mask, m.mask.data, m.mask.len);
        } else if (s->op == NORMALIZE_REPLACE)
            replace(s, &m, &next);
        else
            compose(s->op, &m, &next);
        masked_release(&m);
        m = next;
    }
    *out_len = m.text.len;
    *out_mask = NULL;
    *out = NULL;
    if (!m.text.failed && !m.mask.failed) {
        *out = strbuf_take(&m.text, NULL);
        *out_mask = mask ? (unsigned char *)strbuf_take(&m.mask, NULL) : NULL;
    }
    if (!*out || (mask && !*out_mask)) {
        masked_release(&m);
        mem_free(*out);
        mem_free(*out_mask);
        return error_set(e, ERR_MEMORY, "out of memory for %zu bytes of text", len);
    }
    return 0;
}
