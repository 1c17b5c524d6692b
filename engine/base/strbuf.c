/* The growing string: doubling, so that a long text costs linear time. */
#include "engine/base/strbuf.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

bool strbuf_reserve(struct strbuf *b, size_t extra)
{
    size_t need = b->len + extra + 1, size;

    assert(b->data ? b->len < b->capacity : b->len == 0 && b->capacity == 0);
    if (b->failed)
        return false;
    if (extra >= SIZE_MAX / 2 - b->len || (b->limit && b->len + extra > b->limit)) {
        b->failed = true;
        return false;
    }
    if (need <= b->capacity)
        return true;
    size = b->capacity * 2 > need ? b->capacity * 2 : need < 64 ? 64 : need;
    if (!MEM_FIT(b->data, size)) {
        b->failed = true;
        return false;
    }
    b->capacity = size;
    return true;
}

void strbuf_put(struct strbuf *b, const char *text, size_t n)
{
    assert(text || n == 0);
    if (!strbuf_reserve(b, n))
        return;
    if (n)
        memcpy(b->data + b->len, text, n);
    b->len += n;
    b->data[b->len] = 0;
}

void strbuf_puts(struct strbuf *b, const char *text)
{
    strbuf_put(b, text, strlen(text));
}

void strbuf_putc(struct strbuf *b, char c)
{
    strbuf_put(b, &c, 1);
}

void strbuf_printf(struct strbuf *b, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !strbuf_reserve(b, (size_t)n)) {
        b->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(b->data + b->len, (size_t)n + 1, format, args);
    va_end(args);
    b->len += (size_t)n;
}

void strbuf_clear(struct strbuf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = 0;
}

char *strbuf_take(struct strbuf *b, size_t *len)
{
    char *data;

    if (!strbuf_reserve(b, 0)) {
        strbuf_release(b);
        return NULL;
    }
    data = b->data;
    data[b->len] = 0;
    if (len)
        *len = b->len;
    *b = (struct strbuf){.limit = b->limit};
    return data;
}

void strbuf_release(struct strbuf *b)
{
    mem_free(b->data);
    *b = (struct strbuf){.limit = b->limit};
}
