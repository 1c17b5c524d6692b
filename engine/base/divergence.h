/* The difference between two rows of logits. Pure. */
#ifndef ENGINE_BASE_DIVERGENCE_H
#define ENGINE_BASE_DIVERGENCE_H

#include <stdbool.h>

/* The most probable token, the first of equals. */
int divergence_best(const float *logits, int n);
/* ln of the sum of exp(logits - max), their largest. */
double divergence_log_sum(const float *logits, int n, float max);
/* Kullback-Leibler divergence of softmax(other) from softmax(exact), nats. *changed: their most
 * probable tokens differ. */
double divergence_kl(const float *exact, const float *other, int n, bool *changed);

#endif
