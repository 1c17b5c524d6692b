/* A growing string. Owner: the holder of the struct ({0} is empty and ready). One thread. Failure
 * (out of memory, or a limit that the caller set) is sticky, so that a sequence of puts is checked
 * once at its end. data is NUL-terminated when not NULL. */
#ifndef ENGINE_BASE_STRBUF_H
#define ENGINE_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

struct strbuf {
    char *data;
    size_t len, capacity;
    size_t limit; /* most bytes it may hold; 0: any */
    bool failed;
};

bool strbuf_reserve(struct strbuf *b, size_t extra);
void strbuf_put(struct strbuf *b, const char *text, size_t n);
void strbuf_puts(struct strbuf *b, const char *text);
void strbuf_putc(struct strbuf *b, char c);
void strbuf_printf(struct strbuf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* what it holds; "" where it holds nothing */
static inline const char *strbuf_text(const struct strbuf *b)
{
    return b->data ? b->data : "";
}

/* empty, memory and limit kept, failure forgotten */
void strbuf_clear(struct strbuf *b);
/* mem_* string, now the caller's; NULL when it failed. b is empty then */
char *strbuf_take(struct strbuf *b, size_t *len);
void strbuf_release(struct strbuf *b);

#endif
