/* Calls of tools as most models write them, read: {"name": …, "arguments" or "parameters": …}, one
 * after another or in lists. What is found is told as places in the text, so that it can be shown
 * and searched where it stands. Any thread; nothing is kept. */
#ifndef ENGINE_TEXT_TOOL_CALLS_H
#define ENGINE_TEXT_TOOL_CALLS_H

#include <stdbool.h>
#include <stddef.h>

/* A JSON value as it was written: bytes of the text. */
struct json_slice {
    size_t at, len;
};

struct tool_call {
    struct json_slice name; /* a string, with its quotes */
    struct json_slice arguments;
};

/* Negative: it wants no more. */
typedef int tool_call_take(void *ctx, const char *text, const struct tool_call *call);

/* Every call of text[from .. end) in its order; none where not all of it can be read. How many
 * there are; what take (may be NULL) returned where that was negative. */
int tool_calls_each(const char *text, size_t from, size_t end, tool_call_take *take, void *ctx);

/* The members of an object that tool_calls_each found, by turns; *at: 0 at first. False: there is
 * none any more, or it is no object. */
bool tool_call_member(const char *text, struct json_slice object, size_t *at,
                      struct json_slice *key, struct json_slice *value);

#endif
