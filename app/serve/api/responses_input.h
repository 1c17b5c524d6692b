/* Requests of /v1/responses in the form of OpenAI's chat, which all else here reads. Request
 * thread.
 */
#ifndef APP_SERVE_API_RESPONSES_INPUT_H
#define APP_SERVE_API_RESPONSES_INPUT_H

#include "app/serve/request/job.h"

/* Items (messages, calls, results of calls, reasoning) as a list of messages. A new reference;
 * NULL: refused. */
json_t *responses_messages(const json_t *items, struct refusal *r);
/* "tools" of j->body in the form of the chat; their own form is kept as "told_tools". */
int responses_tools(struct job *j, struct refusal *r);
/* The namespace of a function that the model called by *name, which becomes the function's own.
 * Borrowed from the request; NULL: of none. */
const json_t *responses_namespace(const struct job *j, const char **name);

#endif
