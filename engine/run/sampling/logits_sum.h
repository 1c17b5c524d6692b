/* The common parts of every softmax over a vocabulary. Pure functions, any thread; the same bits on
 * every machine: in lanes, a block at a time, the sum in double, so that small terms are not lost
 * beside large ones. */
#ifndef ENGINE_RUN_LOGITS_SUM_H
#define ENGINE_RUN_LOGITS_SUM_H

/* The maximum of n logits; a NaN counts as -inf, and so does n = 0. */
float logits_greatest(const float *x, int n);
/* sum of exp(x - max); max: their maximum, finite. A NaN adds nothing. */
double logits_exp_sum(const float *x, int n, float max);

#endif
