/* A conversation as OpenAI's chat writes it: messages, tools, and what the answer is to be. Desk
 * thread. */
#ifndef APP_SERVE_CONVERSATION_JSON_H
#define APP_SERVE_CONVERSATION_JSON_H

#include "app/serve/job.h"

/* "messages" and "tools" of j->body; *d is the caller's, also when refused. Sets wish.tools. */
int conversation_read(struct job *j, struct dialogue *d, struct refusal *r);

#endif
