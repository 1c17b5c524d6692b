/* Anthropic's requests in the form of OpenAI's chat, which all else here reads: tools, the choice
 * among them, messages made of blocks. Request thread. */
#ifndef APP_SERVE_API_MESSAGES_INPUT_H
#define APP_SERVE_API_MESSAGES_INPUT_H

#include "app/serve/request/job.h"

/* Replaces "tools", "tool_choice", "thinking" and the format of the answer in j->body by OpenAI's
 * fields. -1: refused. */
int messages_fields(struct job *j, struct refusal *r);
/* The list of messages: one of Anthropic's may become several (each result of a tool is a message).
 * A new reference; NULL: refused. */
json_t *messages_list(const json_t *list, struct refusal *r);
/* The text of a string or of text blocks; mem_*. NULL: refused. */
char *messages_text(const json_t *content, const char *param, struct refusal *r);

#endif
