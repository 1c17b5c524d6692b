/* From the engine's events to what a client reads. dispatcher thread. */
#ifndef APP_SERVE_DISPATCH_ANSWER_H
#define APP_SERVE_DISPATCH_ANSWER_H

#include "app/serve/request/job.h"

/* The dispatcher has taken the job: a stream's head goes out. */
void answer_begin(struct job *j);
/* An event of the task's turn; sets t->over (and counts job->left down) when it was the last. */
void answer_event(struct task *t, const struct event *ev);
/* The task cannot be answered. */
void answer_failed(struct task *t, int code, const char *text);
/* All tasks are over. */
void answer_end(struct job *j);
/* A comment, so that nobody takes a silent stream for a dead one. */
void answer_ping(struct job *j);

#endif
