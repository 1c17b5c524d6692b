/* See decoder.h. Every step is called for a token's start, its bytes in pieces, and its end. */
#include "engine/text/decoder.h"

#include <string.h>

struct machine {
    struct decoding *d;
    const struct tokenizer *t;
    const struct decode_sink *out;
};

static void put(const struct machine *m, int k, const char *text, size_t n);

/* Replaces from by to. Held bytes are always a prefix of from. */
static void put_replaced(const struct machine *m, int k, const char *text, size_t n)
{
    const struct decode_step *s = &m->t->decode[k];
    struct decode_state *x = &m->d->steps[k];
    bool nothing = s->op == DECODE_METASPACE && x->tokens == 1;

    for (size_t i = 0; i < n;) {
        if (x->held == 0) { /* output text that cannot start a match at once */
            const char *hit = memchr(text + i, s->from[0], n - i);
            size_t run = hit ? (size_t)(hit - text) - i : n - i;

            if (run)
                put(m, k + 1, text + i, run);
            i += run;
            if (!hit)
                return;
        }
        if (text[i] == s->from[x->held]) {
            i++;
            if (++x->held < s->from_len)
                continue;
            x->held = 0;
            put(m, k + 1, s->to, nothing ? 0 : (size_t)s->to_len);
            continue;
        }
        /* the longest suffix of the held bytes that is also a prefix */
        for (int skip = 1; skip <= x->held; skip++)
            if (memcmp(s->from, s->from + skip, (size_t)(x->held - skip)) == 0) {
                put(m, k + 1, s->from, (size_t)skip);
                x->held -= skip;
                break;
            }
    }
}

/* Removes blanks at a token's start and holds back those that may be its end. */
static void put_stripped(const struct machine *m, int k, const char *text, size_t n)
{
    const struct decode_step *s = &m->t->decode[k];
    struct decode_state *x = &m->d->steps[k];
    size_t i = 0;

    for (; i < n && x->left > 0 && text[i] == s->from[0]; i++)
        x->left--;
    for (; i < n; i++) {
        x->left = 0;
        if (s->stop && text[i] == s->from[0]) {
            if (x->held == s->stop)
                put(m, k + 1, s->from, 1);
            else
                x->held++;
            continue;
        }
        for (; x->held > 0; x->held--)
            put(m, k + 1, s->from, 1);
        if (!s->stop) {
            put(m, k + 1, text + i, n - i);
            return;
        }
        put(m, k + 1, text + i, 1);
    }
}

static void put(const struct machine *m, int k, const char *text, size_t n)
{
    if (n == 0)
        return;
    if (k == m->t->n_decode) {
        m->out->put(m->out->ctx, text, n);
        return;
    }
    switch (m->t->decode[k].op) {
    case DECODE_METASPACE:
    case DECODE_REPLACE: put_replaced(m, k, text, n); break;
    case DECODE_STRIP: put_stripped(m, k, text, n); break;
    case DECODE_BYTES:
    case DECODE_FUSE: put(m, k + 1, text, n); break;
    }
}

static void begin(const struct machine *m, int k)
{
    for (; k < m->t->n_decode; k++) {
        struct decode_state *x = &m->d->steps[k];

        x->tokens += x->tokens < 2;
        if (m->t->decode[k].op == DECODE_STRIP)
            x->left = m->t->decode[k].start;
        if (m->t->decode[k].op == DECODE_FUSE) {
            if (x->open)
                return;
            x->open = true;
        }
    }
}

/* whole: the token is complete; else held bytes at its end are kept. */
static void end(const struct machine *m, int k, bool whole)
{
    for (; k < m->t->n_decode; k++) {
        const struct decode_step *s = &m->t->decode[k];
        struct decode_state *x = &m->d->steps[k];
        int held = x->held;

        if (s->op == DECODE_FUSE)
            return;
        x->held = 0;
        if (s->op != DECODE_STRIP)
            put(m, k + 1, s->from, (size_t)held);
        else
            for (int i = 0; i < held && !whole; i++)
                put(m, k + 1, s->from, 1);
    }
}

/* The step where byte tokens become bytes; -1: none, they are ordinary texts. */
static int bytes_step(const struct tokenizer *t)
{
    for (int k = 0; k < t->n_decode; k++)
        if (t->decode[k].op == DECODE_BYTES)
            return k;
    return -1;
}

void decoding_begin(struct decoding *d, const struct tokenizer *t, bool at_start)
{
    *d = (struct decoding){.begun = true};
    for (int k = 0; k < t->n_decode && !at_start; k++) {
        /* in the middle of the fused token, which is still the first */
        d->steps[k].tokens = 1;
        d->steps[k].open = t->decode[k].op == DECODE_FUSE;
    }
}

void decoding_token(struct decoding *d, const struct tokenizer *t, int id,
                    const struct decode_sink *out)
{
    const struct machine m = {d, t, out};
    const struct piece *p = &t->pieces[id];
    int bytes = bytes_step(t);

    if (bytes >= 0 && p->byte >= 0) {
        char byte = (char)p->byte;

        for (int k = 0; k < bytes; k++)
            d->steps[k].tokens += d->steps[k].tokens < 2;
        if (!d->steps[bytes].open)
            begin(&m, bytes + 1);
        d->steps[bytes].open = true;
        put(&m, bytes + 1, &byte, 1);
        return;
    }
    if (bytes >= 0 && d->steps[bytes].open) {
        d->steps[bytes].open = false;
        end(&m, bytes + 1, true);
    }
    begin(&m, 0);
    put(&m, 0, p->text, p->len);
    end(&m, 0, true);
}

void decoding_end(struct decoding *d, const struct tokenizer *t, bool whole,
                  const struct decode_sink *out)
{
    const struct machine m = {d, t, out};

    for (int k = 0; k < t->n_decode; k++) {
        enum decode_op op = t->decode[k].op;

        if ((op == DECODE_BYTES || op == DECODE_FUSE) && d->steps[k].open) {
            d->steps[k].open = false;
            end(&m, k + 1, op == DECODE_BYTES || whole);
        }
    }
}
