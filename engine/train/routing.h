/* The experts and weights of a token, and the gradient of the scores through those weights. The
 * choice, masks and thresholds are constants; the softmaxes are differentiated. Pure functions: any
 * thread. */
#ifndef ENGINE_TRAIN_ROUTING_H
#define ENGINE_TRAIN_ROUTING_H

#include "engine/model/shape.h"

/* Computes k experts and weights from scores (n), by rule 10 of engine/device/numerics.h. */
void route_forward(const struct router_shape *r, const float *scores, int n, int k, int *experts,
                   float *weights);
/* dscores (n): set to the gradient for dweights (k) of the chosen experts. */
void route_backward(const struct router_shape *r, const float *scores, int n, int k,
                    const int *experts, const float *dweights, float *dscores);

#endif
