/* Which experts a token meets, with what weights, and what flows back through those weights into
 * the scores. The choice, masks and thresholds are constants; the softmaxes are differentiated.
 * Pure functions: any thread. */
#ifndef ENGINE_TRAIN_ROUTING_H
#define ENGINE_TRAIN_ROUTING_H

#include "engine/model/shape.h"

/* scores (n) become k experts and weights, by rule 10 of engine/device/numerics.h. */
void route_forward(const struct router_shape *r, const float *scores, int n, int k, int *experts,
                   float *weights);
/* dscores (n), written: what dweights (k) are of them, for the experts that were chosen. */
void route_backward(const struct router_shape *r, const float *scores, int n, int k,
                    const int *experts, const float *dweights, float *dscores);

#endif
