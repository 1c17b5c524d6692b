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
/* Ready to be continued: -1 if it is empty or as long as the context. */
int text_prompt_end(const struct job *j, struct prompt *p, struct refusal *r);

#endif
