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

/* For measuring alone: the i-th token of a draft is taken with a probability of its own whatever
 * the model drew, so that engines can be compared at equal acceptance. Here the probabilities of
 * all before it being taken too, "0.9,0.8,0.5": how many there are; ERR_USAGE: they rise, are more
 * than `most`, or none of 0 to 1. */
int acceptance_rates_parse(const char *text, float *rates, int most, struct error *e);
/* Whether the token at `place` of a draft (0: the first), which stands at position `at` of the
 * text, is taken where those before it were: the same answer however often it is asked. */
bool acceptance_synthetic(const float *rates, int n, int place, int at);

#endif
