/* A text as a prompt: its tokens after the model's start token, without a chat template. Request
 * thread. */
#ifndef APP_SERVE_REQUEST_TEXT_PROMPT_H
#define APP_SERVE_REQUEST_TEXT_PROMPT_H

#include "app/serve/request/job.h"

/* Special tokens in it count as such. p->ids are mem_* memory, also on failure. */
int text_prompt(const struct job *j, const char *text, size_t n, struct prompt *p,
                struct refusal *r);
/* Likewise of a list of ids; name: of its field. */
int text_prompt_ids(const struct job *j, const json_t *v, struct prompt *p, const char *name,
                    struct refusal *r);
/* Of either. */
int text_prompt_any(const struct job *j, const json_t *v, const char *name, struct prompt *p,
                    struct refusal *r);
/* Ready to be continued: -1 if it is empty or as long as the context. */
int text_prompt_end(const struct job *j, struct prompt *p, struct refusal *r);

/* Reads one of a request's prompts; with: what its caller gave. p->ids as above. */
typedef int prompt_read_fn(const struct job *j, const json_t *v, const void *with, struct prompt *p,
                           struct refusal *r);

/* One of the field "prompt", to be continued; with: not used. */
int text_prompt_whole(const struct job *j, const json_t *v, const void *with, struct prompt *p,
                      struct refusal *r);
/* Is v a list of prompts, each a text or a list of ids, and no list of ids itself? */
bool text_prompt_is_list(const json_t *v);
/* The job's tasks: one (a choice) for each entry of v if list is true, else for v. name: of the
 * field. */
int text_prompts(struct job *j, const json_t *v, bool list, const char *name, prompt_read_fn *read,
                 const void *with, struct refusal *r);

#endif
