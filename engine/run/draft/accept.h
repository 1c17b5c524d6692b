/* When a drafted token may stand where the model drew another one. All but the first policy are
 * lossy: the text then depends on who drafts and on how much, so also on the machine's speed, and
 * how many tokens they changed is counted (telemetry.h). Pure; allocates nothing; any thread. */
#ifndef ENGINE_RUN_DRAFT_ACCEPT_H
#define ENGINE_RUN_DRAFT_ACCEPT_H

#include "engine/base/error.h"

#include <stdbool.h>

/* policy: row of accept.def; 0: none but what the model drew */
struct acceptance {
    int policy;
    float value;
};

/* "prefix", "confidence", "top-k:3" …; ERR_USAGE names what there is. */
int acceptance_parse(const char *text, struct acceptance *out, struct error *e);
/* Of the model's logits (n_vocab) in that place. *probability: the token's at temperature 1. */
bool acceptance_takes(const struct acceptance *a, const float *logits, int n_vocab, int id,
                      float *probability);

#endif
