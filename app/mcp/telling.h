/* Presents tools, their calls and results to a model: as its chat template renders them, or where
 * it does not, as text (engine/text/hermes.h). Any thread. */
#ifndef APP_MCP_TELLING_H
#define APP_MCP_TELLING_H

#include "engine/base/error.h"
#include "engine/run/report/messages.h"
#include "engine/text/chat_tools.h"

/* A dialogue whose messages have calls as "tool_calls" of an assistant's members, in OpenAI's form
 * with arguments as text, and results as messages of role tool with "tool_call_id" and "name". A
 * call without a result gets one that says so. Sets said->given and said->hermes. tools: in
 * OpenAI's form; none: only calls and results are presented. knows: what the template renders.
 * ERR_MEMORY: said remains to be released. */
int telling_apply(struct dialogue *said, const json_t *tools, const struct chat_tools *knows,
                  struct error *e);
/* What an API of OpenAI's form renders: everything. */
extern const struct chat_tools telling_api;

#endif
