/* Parses tool calls as models write them: JSON, a name before JSON, XML, Python's calls; a row of
 * call_syntaxes.h for each. Results are ranges of the text, so that they can be shown and searched
 * in place. Any thread; stateless. */
#ifndef ENGINE_TEXT_TOOL_CALLS_H
#define ENGINE_TEXT_TOOL_CALLS_H

#include "engine/text/call_slice.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct call_syntax;

struct tool_call {
    struct call_slice name;      /* without quotes or delimiters */
    struct call_slice arguments; /* all of them; len 0: none */
    const struct call_syntax *syntax;
};

/* Negative: stop. */
typedef int tool_call_take(void *ctx, const char *text, const struct tool_call *call);

/* Calls take for every call of text[from .. end) in order; none if not all of it can be parsed.
 * Returns how many there are; or what take (may be NULL) returned if negative. */
int tool_calls_each(const char *text, size_t from, size_t end, tool_call_take *take, void *ctx);

/* Iterates over the arguments of a call found by tool_calls_each; *at: 0 at first. key: without
 * quotes; value: as written. False: no more, or they are no members. */
bool tool_call_member(const char *text, const struct tool_call *call, size_t *at,
                      struct call_slice *key, struct call_slice *value);
/* They are members, possibly none: tool_call_member returns all of them. */
bool tool_call_has_members(const char *text, const struct tool_call *call);

/* Name and arguments as JSON, owned by the caller; NULL: no memory. Types missing in a syntax are
 * taken from the tool's schema (parameters, may be NULL: a string unless it parses as JSON). */
json_t *tool_call_name(const char *text, const struct tool_call *call);
json_t *tool_call_arguments(const char *text, const struct tool_call *call,
                            const json_t *parameters);
/* The arguments as the text of a JSON object, as the model wrote it if that is JSON: repeated in a
 * prompt, it has the same tokens. mem_*; NULL: no memory. */
char *tool_call_arguments_text(const char *text, const struct tool_call *call,
                               const json_t *parameters);

#endif
