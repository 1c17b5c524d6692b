/* Server-sent events, taken apart as they come in pieces of any size (HTML Living Standard, 9.2):
 * the text of each event's data lines, joined by line ends. Names and ids of events are passed
 * over, and events without a text. A line "error: TEXT", which llama-server wrote until 2025, is
 * taken for data. One thread. */
#ifndef APP_CONNECT_SSE_H
#define APP_CONNECT_SSE_H

#include "engine/base/strbuf.h"

#include <stdbool.h>

#define SSE_MOST (16u << 20) /* bytes of a line or an event */

struct sse {
    struct strbuf line, data;
    bool after_return; /* a line feed that comes next belongs to the line end before it */
    bool begun;        /* the first line was seen: a byte order mark may stand before it */
};

void sse_init(struct sse *s);
void sse_release(struct sse *s);
/* Calls on_data for every event that these bytes complete; it returns non-zero to stop. 0; what
 * on_data returned; -1: a line or an event is larger than SSE_MOST, or memory ran out. */
int sse_feed(struct sse *s, const char *bytes, size_t n,
             int (*on_data)(void *ctx, const char *text, size_t n), void *ctx);

#endif
