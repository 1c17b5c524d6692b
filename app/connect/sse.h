/* Parses server-sent events that arrive in pieces of any size (HTML Living Standard, 9.2): the text
 * of each event's data lines, joined by line ends. Names and ids of events are ignored, and events
 * without text. A line "error: TEXT", which llama-server wrote until 2025, is treated as data. One
 * thread. */
#ifndef APP_CONNECT_SSE_H
#define APP_CONNECT_SSE_H

#include "engine/base/strbuf.h"

#include <stdbool.h>

#define SSE_MOST (16u << 20) /* bytes of a line or an event */

struct sse {
    struct strbuf line, data;
    bool after_return; /* a line feed at this point belongs to the preceding carriage return */
    bool begun;        /* the first line was read: a byte order mark is allowed before it */
};

void sse_init(struct sse *s);
void sse_release(struct sse *s);
/* Calls on_data for every event that these bytes complete; non-zero stops. 0; what on_data
 * returned; -1: a line or an event is larger than SSE_MOST, or out of memory. */
int sse_feed(struct sse *s, const char *bytes, size_t n,
             int (*on_data)(void *ctx, const char *text, size_t n), void *ctx);
/* The bytes have ended. An event that lacks only its line ends is taken, if is_whole says that its
 * text is complete. 0: nothing was left, or it was taken; -1: half an event is left. */
int sse_end(struct sse *s, bool (*is_whole)(const char *text, size_t n),
            int (*on_data)(void *ctx, const char *text, size_t n), void *ctx);

#endif
