/* Tool calls in a model's output. dispatcher thread. */
#ifndef APP_SERVE_DISPATCH_TOOL_ANSWER_H
#define APP_SERVE_DISPATCH_TOOL_ANSWER_H

#include "app/serve/request/job.h"

/* Whether an answer with this beginning may be calls without a marker (Llama 3 writes them so). */
bool tools_may_call(const struct job *j, const char *text, size_t n);
/* In a stream: sends what is certain of the calls in t->call or t->held, through the dialect. */
void tools_stream(struct task *t);
/* Parses the text of calls (t->call), or of possible calls (t->held), into t->tool_calls; what
 * cannot be parsed remains text, unless it was sent as a call: then t->call_cut. streams: sends the
 * rest of them. */
void tools_end(struct task *t, bool streams);

#endif
