/* Calls of tools as models write them, read: JSON, a name before JSON, XML, Python's calls; a row
 * of call_syntaxes.h for each. What is found is told as places in the text, so that it can be shown
 * and searched where it stands. Any thread; nothing is kept. */
#ifndef ENGINE_TEXT_TOOL_CALLS_H
#define ENGINE_TEXT_TOOL_CALLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A piece of what was written: bytes of the text. */
struct call_slice {
    size_t at, len;
};

struct call_syntax;

struct tool_call {
    struct call_slice name;      /* without quotes or what frames it */
    struct call_slice arguments; /* all of them; len 0: there are none */
    const struct call_syntax *syntax;
};

/* Negative: it wants no more. */
typedef int tool_call_take(void *ctx, const char *text, const struct tool_call *call);

/* Every call of text[from .. end) in its order; none where not all of it can be read. How many
 * there are; what take (may be NULL) returned where that was negative. */
int tool_calls_each(const char *text, size_t from, size_t end, tool_call_take *take, void *ctx);

/* The arguments of a call that tool_calls_each found, by turns; *at: 0 at first. key: without
 * quotes; value: as it was written. False: there is none any more, or they are no members. */
bool tool_call_member(const char *text, const struct tool_call *call, size_t *at,
                      struct call_slice *key, struct call_slice *value);
/* They are members, be it none: tool_call_member has all that was written. */
bool tool_call_has_members(const char *text, const struct tool_call *call);

/* Name and arguments as JSON, the caller's; NULL: no memory. What a syntax without types writes is
 * what the tool's schema says (parameters, may be NULL: it is a text unless it reads as JSON). */
json_t *tool_call_name(const char *text, const struct tool_call *call);
json_t *tool_call_arguments(const char *text, const struct tool_call *call,
                            const json_t *parameters);
/* The arguments as the text of a JSON object, as the model wrote it where that is JSON: said again,
 * it is the same tokens. mem_*; NULL: no memory. */
char *tool_call_arguments_text(const char *text, const struct tool_call *call,
                               const json_t *parameters);

#endif
