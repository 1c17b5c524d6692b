/* Norms of rows and what flows back through them; weights are frozen. Pure functions: any thread.
 */
#ifndef ENGINE_TRAIN_NORM_H
#define ENGINE_TRAIN_NORM_H

#include "engine/model/model.h"

/* y = norm(x), n values; y may be x. */
void norm_forward(enum norm_kind kind, float eps, const float *weight, const float *bias,
                  const float *x, int n, float *y);
/* dx += what dy (n) is of x; x: the row as it was before. */
void norm_backward(enum norm_kind kind, float eps, const float *weight, const float *x,
                   const float *dy, int n, float *dx);

#endif
