/* The arena of a parsed template or a rendering, with its limits, and text under construction in
 * it. One thread per arena. Failure longjmps: everything is freed with the arena. */
#include "engine/text/jinja/data.h"

#include "engine/base/mem.h"

#include <stdarg.h>
#include <stdio.h>

#define CHUNK ((size_t)64 << 10)
#define CHARGES_UNTIL_ASKED 4096 /* about a millisecond of ordinary steps */

struct chunk {
    struct chunk *next;
    size_t used, size;
};

void jinja_fail(struct arena *a, int code, const char *format, ...)
{
    char text[300];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error_set(a->e, code, "chat template, line %d: %s", a->line, text);
    longjmp(*a->jump, 1);
}

void *jinja_alloc(struct arena *a, size_t count, size_t size)
{
    size_t bytes, head = (sizeof(struct chunk) + 15) & ~(size_t)15;
    struct chunk *c = a->chunks;
    void *p;

    if (count > a->limit || (size && count > a->limit / size) || a->used + count * size > a->limit)
        jinja_fail(a, ERR_INPUT, "more than %zu MiB of memory wanted", a->limit >> 20);
    bytes = (count * size + 15) & ~(size_t)15;
    if (!c || c->size - c->used < bytes) {
        size_t want = head + (bytes > CHUNK ? bytes : CHUNK);

        c = mem_alloc(want, 1);
        if (!c)
            jinja_fail(a, ERR_MEMORY, "out of memory");
        c->size = want;
        c->used = head;
        c->next = a->chunks;
        a->chunks = c;
    }
    p = (char *)c + c->used;
    c->used += bytes;
    a->used += bytes;
    return p;
}

void arena_release(struct arena *a)
{
    for (struct chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    a->chunks = NULL;
}

void jinja_charge(struct arena *a, size_t bytes)
{
    uint64_t cost = 1 + bytes / 32;

    if (a->steps < cost)
        jinja_fail(a, ERR_INPUT, "the template runs for too long");
    a->steps -= cost;
    if (a->stop && ++a->charges % CHARGES_UNTIL_ASKED == 0 && a->stop->asked(a->stop->ctx))
        jinja_fail(a, ERR_CANCELLED, "cancelled");
}

void jinja_enter(struct arena *a)
{
    if (++a->depth > JINJA_DEPTH)
        jinja_fail(a, a->parsing ? ERR_MODEL : ERR_INPUT, "nested more than %d deep", JINJA_DEPTH);
    jinja_charge(a, 0);
}

/* ---- strings ---- */

bool str_equal(struct arena *a, struct str x, struct str y)
{
    if (x.len != y.len)
        return false;
    if (x.len >= 32) /* short ones cost no more than the current step */
        jinja_charge(a, x.len);
    return x.len == 0 || memcmp(x.s, y.s, x.len) == 0;
}

size_t str_length(struct arena *a, struct str s)
{
    size_t n = 0;

    jinja_charge(a, s.len);
    for (size_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.s[i] & 0xc0) != 0x80;
    return n;
}

static void builder_grow(struct arena *a, struct builder *b, size_t extra, bool masked)
{
    size_t size = b->size ? b->size : 64;
    char *s;
    unsigned char *mask;

    jinja_charge(a, extra);
    if (b->len + extra > b->size) {
        while (size < b->len + extra)
            size *= 2;
        s = jinja_alloc(a, size, 1);
        if (b->len)
            memcpy(s, b->s, b->len);
        if (b->masked || masked) {
            mask = jinja_alloc(a, size, 1);
            if (b->masked)
                memcpy(mask, b->mask, b->len);
            b->mask = mask;
            b->masked = true;
        }
        b->s = s;
        b->size = size;
    } else if (masked && !b->masked) {
        b->mask = jinja_alloc(a, b->size, 1);
        b->masked = true;
    }
}

void builder_text(struct arena *a, struct builder *b, const char *text, size_t n,
                  unsigned char mask)
{
    builder_grow(a, b, n, mask != 0);
    if (!n)
        return;
    memcpy(b->s + b->len, text, n);
    if (b->masked)
        memset(b->mask + b->len, mask, n);
    b->len += n;
}

void builder_put(struct arena *a, struct builder *b, struct str s)
{
    builder_grow(a, b, s.len, s.mask != NULL);
    if (!s.len)
        return;
    memcpy(b->s + b->len, s.s, s.len);
    if (s.mask)
        memcpy(b->mask + b->len, s.mask, s.len);
    else if (b->masked)
        memset(b->mask + b->len, 0, s.len);
    b->len += s.len;
}

struct str builder_str(const struct builder *b)
{
    return (struct str){b->s ? b->s : "", b->masked ? b->mask : NULL, b->len, false};
}
