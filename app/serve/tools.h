/* Tools: told to the model in the form of Hermes (NousResearch/Hermes-Function-Calling), and its
 * calls read from what it says. */
#ifndef APP_SERVE_TOOLS_H
#define APP_SERVE_TOOLS_H

#include "app/serve/job.h"

/* "tools" and "tool_choice" of j->body, checked. *text: what the model is told of them, mem_*;
 * NULL: there are none, or none may be called. Sets j->wish.tools and, where a call is demanded,
 * j->wish.call and j->grammar. */
int tools_read(struct job *j, char **text, struct refusal *r);
/* Where the answer is to be a call, its prompt goes on to where that begins; and answers mark calls
 * as the model was told, whatever its own template knows. */
int tools_prompt(const struct job *j, struct prompt *p, struct refusal *r);
/* A call of OpenAI's form, as the model would have said it. */
int tools_put_call(struct strbuf *out, const json_t *call, const char *param, struct refusal *r);
/* What a model said of calls (t->call) becomes t->tool_calls; what cannot be read is text. */
void tools_end(struct task *t);

#endif
