/* Ids to text, at once or as a stream. Any thread; a struct detokenizer belongs to one. The stream
 * keeps back the bytes of an unfinished code point (at most three), so that nothing half-written is
 * ever shown. */
#include "engine/text/tokenizer.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"
#include "engine/text/tokenizer_data.h"

#include <string.h>

/* The next stretch of a piece as it is written: *text, its length, and how far the piece was read.
 */
static size_t stretch(const struct tokenizer *t, const struct piece *p, size_t at,
                      const char **text, size_t *consumed)
{
    const char *mark;
    size_t size = sizeof WORD_MARK - 1;

    if (t->decode_marks && p->len - at >= size && memcmp(p->text + at, WORD_MARK, size) == 0) {
        *text = " ";
        *consumed = size;
        return 1;
    }
    mark = t->decode_marks && p->len - at > 1
               ? memmem(p->text + at + 1, p->len - at - 1, WORD_MARK, size)
               : NULL;
    *text = p->text + at;
    *consumed = mark ? (size_t)(mark - *text) : p->len - at;
    return *consumed;
}

int tokenizer_decode(const struct tokenizer *t, const int *ids, int n, bool skip_special,
                     char **text, size_t *len, struct error *e)
{
    struct strbuf b = {0};
    bool start = t->decode_strip;

    for (int i = 0; i < n && !b.failed; i++) {
        const struct piece *p = ids[i] >= 0 && ids[i] < t->n_pieces ? &t->pieces[ids[i]] : NULL;
        const char *part;
        size_t size, consumed;

        if (!p || !p->text || (skip_special && p->special))
            continue;
        if (p->byte >= 0) {
            if (!(start && p->byte == ' '))
                strbuf_putc(&b, (char)p->byte);
            start = false;
            continue;
        }
        for (size_t at = 0; at < p->len; at += consumed) {
            size = stretch(t, p, at, &part, &consumed);
            if (start && part[0] == ' ')
                part++, size--;
            start = false;
            strbuf_put(&b, part, size);
        }
    }
    *text = strbuf_take(&b, len);
    return *text ? 0 : error_set(e, ERR_MEMORY, "out of memory for the text of %d tokens", n);
}

size_t tokenizer_token_text(const struct tokenizer *t, int id, char *out, size_t size)
{
    const struct piece *p = id >= 0 && id < t->n_pieces ? &t->pieces[id] : NULL;
    size_t n = 0, len, consumed;
    const char *part;
    char byte;

    if (!p || !p->text || p->special)
        return 0;
    if (p->byte >= 0) {
        byte = (char)p->byte;
        if (size)
            out[0] = byte;
        return 1;
    }
    for (size_t at = 0; at < p->len; at += consumed) {
        len = stretch(t, p, at, &part, &consumed);
        if (n < size)
            memcpy(out + n, part, len < size - n ? len : size - n);
        n += len;
    }
    return n;
}

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool skip_special)
{
    *d = (struct detokenizer){
        .tokenizer = t, .skip_special = skip_special, .at_start = t->decode_strip};
}

/* Writes whole code points of pending + text; keeps the unfinished rest. Stops where out is full.
 */
static size_t write_text(struct detokenizer *d, const char *text, size_t n, bool all, char *out,
                         size_t room)
{
    size_t written = 0;

    for (size_t i = 0; i < n || (all && d->n_pending);) {
        uint32_t cp;
        bool valid;
        size_t len;

        while (i < n && d->n_pending < 4)
            d->pending[d->n_pending++] = (unsigned char)text[i++];
        while (d->n_pending > 0) {
            len = utf8_decode_strict((char *)d->pending, (size_t)d->n_pending, &cp, &valid);
            if (!valid && len == (size_t)d->n_pending && !all &&
                utf8_incomplete((char *)d->pending, len) == len)
                break; /* more bytes may complete it */
            if (written + 4 >= room) {
                d->n_pending = 0;
                return written;
            }
            written += utf8_encode(valid ? cp : UTF8_REPLACEMENT, out + written);
            d->n_pending -= (int)len;
            memmove(d->pending, d->pending + len, (size_t)d->n_pending);
        }
    }
    return written;
}

size_t detokenizer_push(struct detokenizer *d, int id, char *out, size_t size)
{
    const struct tokenizer *t = d->tokenizer;
    const struct piece *p = id >= 0 && id < t->n_pieces ? &t->pieces[id] : NULL;
    size_t written = 0, len, consumed;
    const char *part;
    char byte;

    out[0] = 0;
    if (!p || !p->text || (d->skip_special && p->special))
        return 0;
    if (p->byte >= 0) {
        byte = (char)p->byte;
        if (!(d->at_start && byte == ' '))
            written = write_text(d, &byte, 1, false, out, size);
        d->at_start = false;
    } else
        for (size_t at = 0; at < p->len; at += consumed) {
            len = stretch(t, p, at, &part, &consumed);
            if (d->at_start && part[0] == ' ')
                part++, len--;
            d->at_start = false;
            written += write_text(d, part, len, false, out + written, size - written);
        }
    out[written] = 0;
    return written;
}

size_t detokenizer_finish(struct detokenizer *d, char *out, size_t size)
{
    size_t written = write_text(d, NULL, 0, true, out, size);

    out[written] = 0;
    d->n_pending = 0;
    return written;
}
