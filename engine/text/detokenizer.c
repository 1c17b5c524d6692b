/* Ids to text, at once or as a stream. Any thread; a struct detokenizer belongs to one. The stream
 * holds back the bytes of an incomplete code point (at most three), so that none is ever shown. */
#include "engine/text/tokenizer.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"
#include "engine/text/decoder.h"
#include "engine/text/tokenizer_data.h"

#include <string.h>

static const struct piece *piece_of(const struct tokenizer *t, int id)
{
    return id >= 0 && id < t->n_pieces && t->pieces[id].text ? &t->pieces[id] : NULL;
}

static void append(void *ctx, const char *text, size_t n)
{
    strbuf_put(ctx, text, n);
}

int tokenizer_decode(const struct tokenizer *t, const int *ids, int n, bool skip_special,
                     char **text, size_t *len, struct error *e)
{
    struct strbuf b = {0};
    const struct decode_sink out = {append, &b};
    struct decoding d;

    decoding_begin(&d, t, true);
    for (int i = 0; i < n && !b.failed; i++) {
        const struct piece *p = piece_of(t, ids[i]);

        if (p && !(skip_special && p->special))
            decoding_token(&d, t, ids[i], &out);
    }
    decoding_end(&d, t, true, &out);
    *text = strbuf_take(&b, len);
    return *text ? 0 : error_set(e, ERR_MEMORY, "out of memory for the text of %d tokens", n);
}

/* Output limited to a range, and the total length. */
struct window {
    char *out;
    size_t size, n;
};

static void fill(void *ctx, const char *text, size_t n)
{
    struct window *w = ctx;

    if (w->n < w->size)
        memcpy(w->out + w->n, text, n < w->size - w->n ? n : w->size - w->n);
    w->n += n;
}

size_t tokenizer_token_text(const struct tokenizer *t, int id, char *out, size_t size)
{
    const struct piece *p = piece_of(t, id);
    struct window w = {out, size, 0};
    const struct decode_sink sink = {fill, &w};
    struct decoding d;

    if (!p || p->special)
        return 0;
    decoding_begin(&d, t, false);
    decoding_token(&d, t, id, &sink);
    decoding_end(&d, t, false, &sink);
    return w.n;
}

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool skip_special)
{
    *d = (struct detokenizer){.tokenizer = t, .skip_special = skip_special, .at_start = true};
}

/* Writes whole code points of pending + text; keeps the incomplete rest. Stops when out is full. */
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

/* Output of a stream. */
struct stream {
    struct detokenizer *d;
    char *out;
    size_t size, written;
};

static void show(void *ctx, const char *text, size_t n)
{
    struct stream *s = ctx;

    s->written += write_text(s->d, text, n, false, s->out + s->written, s->size - s->written);
}

static void begin_once(struct detokenizer *d)
{
    if (!d->decoding.begun)
        decoding_begin(&d->decoding, d->tokenizer, d->at_start);
}

size_t detokenizer_push(struct detokenizer *d, int id, char *out, size_t size)
{
    const struct piece *p = piece_of(d->tokenizer, id);
    struct stream s = {d, out, size, 0};
    const struct decode_sink sink = {show, &s};

    begin_once(d);
    if (p && !(d->skip_special && p->special))
        decoding_token(&d->decoding, d->tokenizer, id, &sink);
    out[s.written] = 0;
    return s.written;
}

size_t detokenizer_finish(struct detokenizer *d, char *out, size_t size)
{
    struct stream s = {d, out, size, 0};
    const struct decode_sink sink = {show, &s};

    begin_once(d);
    decoding_end(&d->decoding, d->tokenizer, true, &sink);
    s.written += write_text(d, NULL, 0, true, out + s.written, size - s.written);
    out[s.written] = 0;
    d->n_pending = 0;
    return s.written;
}
