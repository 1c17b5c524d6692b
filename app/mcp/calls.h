/* The calls of tools in an answer. Any thread. */
#ifndef APP_MCP_CALLS_H
#define APP_MCP_CALLS_H

#include "engine/base/strbuf.h"
#include "engine/run/report/messages.h"

#include <jansson.h>

/* An answer split while it streams. Zeroed: nothing yet. */
struct calls_text {
    struct strbuf plain;  /* the answer without its calls */
    struct strbuf called; /* the text of its calls */
};

void calls_text_note(struct calls_text *t, const struct token_event *token);
void calls_text_clear(struct calls_text *t);
void calls_text_release(struct calls_text *t);
/* The calls in OpenAI's form, arguments as text; NULL: none, or what the model wrote cannot be
 * read. If the model marked none, the whole answer may be calls (Llama 3), but only of these tools
 * (in OpenAI's form); t->plain is empty then. serial: a number that no other answer of the
 * conversation has: ids depend on nothing else, so that the same conversation has the same prompt.
 */
json_t *calls_read(struct calls_text *t, const json_t *tools, size_t serial);

#endif
