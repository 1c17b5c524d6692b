/* Log probability of a token: the logarithm of its softmax at temperature 1 over the whole
 * vocabulary, and the likeliest tokens at its position. Pure; allocates nothing; any thread. */
#ifndef ENGINE_RUN_LOGPROBS_H
#define ENGINE_RUN_LOGPROBS_H

#include "engine/run/report/messages.h"

/* Fills *out for token id of logits (n_vocab); most: number of likeliest tokens, at most
 * LOGPROBS_MOST, in descending order, equal ones by id. A NaN counts as -inf. The same bits on
 * every machine (num_exp, sums in a fixed order). */
void logprobs_of(const float *logits, int n_vocab, int id, int most, struct logprobs_event *out);

#endif
