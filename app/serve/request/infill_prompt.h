/* The prompt of an infill request: the text before and after the gap between the model's tokens for
 * that, in llama-server's order: begin token, further files, PRE prefix prompt SUF suffix MID.
 * Request thread. */
#ifndef APP_SERVE_REQUEST_INFILL_PROMPT_H
#define APP_SERVE_REQUEST_INFILL_PROMPT_H

#include "app/serve/request/job.h"

/* Ids of a model's tokens for it; -1: it has none. */
struct infill_tokens {
    int pre, suf, mid;
    int rep, sep, pad; /* before the name of a repository, of a file; filling: they end an answer */
};

/* By GGUF's keys, or by the tokens' names. false: the model cannot infill. */
bool infill_tokens(const struct engine_info *info, struct infill_tokens *out);

struct infill {
    const json_t *prefix, *suffix, *prompt; /* strings; prompt: start of the answer, may be NULL */
    const json_t *extra;                    /* list of {"filename", "text"}, checked; NULL: none */
    int predict;                            /* tokens to leave for the answer */
};

/* What does not fit into the context is left out: the start of the prefix, the end of the suffix,
 * the first of the other files. p->ids are mem_* memory, also on failure. */
int infill_prompt(const struct job *j, const struct infill_tokens *t, const struct infill *in,
                  struct prompt *p, struct refusal *r);

#endif
