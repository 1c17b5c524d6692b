/* From the engine's events to the answer of a client. dispatcher thread. */
#ifndef APP_SERVE_DISPATCH_ANSWER_H
#define APP_SERVE_DISPATCH_ANSWER_H

#include "app/serve/request/job.h"

/* The dispatcher has taken the job: sends a stream's header. */
void answer_begin(struct job *j);
/* An event of the task's turn, of which it may take the contents; sets t->over (and decrements
 * job->left) if it was the last. */
void answer_event(struct task *t, struct event *ev);
/* Ends a task that cannot be answered, and sends its client the error. text: why, or NULL. */
void answer_failed(struct task *t, int code, const char *text);
/* All tasks of the job are over: sends the whole answer, or ends the stream. */
void answer_end(struct job *j);
/* Sends a comment to keep a silent stream alive. */
void answer_ping(struct job *j);

#endif
