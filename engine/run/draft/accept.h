/* When a drafted token is accepted although the model drew another one. All but the first policy
 * are lossy: the text then depends on the drafter and the draft length, and so on the machine's
 * speed; the number of tokens changed is counted (telemetry.h). Pure; allocates nothing; any
 * thread. */
#ifndef ENGINE_RUN_DRAFT_ACCEPT_H
#define ENGINE_RUN_DRAFT_ACCEPT_H

#include "engine/base/error.h"

#include <stdbool.h>

/* policy: row of accept.def; 0: only what the model drew */
struct acceptance {
    int policy;
    float value;
};

/* Parses "prefix", "confidence", "top-k:3" …; ERR_USAGE lists the policies. */
int acceptance_parse(const char *text, struct acceptance *out, struct error *e);
/* Whether id is accepted, given the model's logits (n_vocab) at its position. *probability: id's at
 * temperature 1. */
bool acceptance_takes(const struct acceptance *a, const float *logits, int n_vocab, int id,
                      float *probability);

/* For measuring only: the i-th token of a draft is accepted with a fixed probability whatever the
 * model drew, so that engines can be compared at equal acceptance. Parses cumulative probabilities,
 * each of a token and all before it, "0.9,0.8,0.5"; returns how many; ERR_USAGE: increasing, more
 * than `most`, or none of 0 to 1. */
int acceptance_rates_parse(const char *text, float *rates, int most, struct error *e);
/* Whether the token at `place` of a draft (0: the first), at position `at` of the text, is accepted
 * if those before it were: a deterministic answer. */
bool acceptance_synthetic(const float *rates, int n, int place, int at);

#endif
