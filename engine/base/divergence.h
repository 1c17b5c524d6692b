/* The difference between two rows of logits. Pure. */
#ifndef ENGINE_BASE_DIVERGENCE_H
#define ENGINE_BASE_DIVERGENCE_H

#include <stdbool.h>

/* Kullback-Leibler divergence of softmax(other) from softmax(exact), nats. *changed: their most
 * probable tokens differ. */
double divergence_kl(const float *exact, const float *other, int n, bool *changed);

#endif
