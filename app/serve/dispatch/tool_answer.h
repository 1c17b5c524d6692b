/* Calls of tools in what a model says. dispatcher thread. */
#ifndef APP_SERVE_DISPATCH_TOOL_ANSWER_H
#define APP_SERVE_DISPATCH_TOOL_ANSWER_H

#include "app/serve/request/job.h"

/* May an answer that begins with this be calls that no marker tells of (Llama 3 writes them so)? */
bool tools_may_call(const struct job *j, const char *text, size_t n);
/* What a model said of calls (t->call), or what may be calls (t->held), becomes t->tool_calls; what
 * cannot be read is text. */
void tools_end(struct task *t);

#endif
