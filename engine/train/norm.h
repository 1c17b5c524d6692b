/* Norms of rows and their gradients; weights are frozen. Pure functions: any thread. */
#ifndef ENGINE_TRAIN_NORM_H
#define ENGINE_TRAIN_NORM_H

#include "engine/model/model.h"

/* y = norm(x), n values; y may be x. */
void norm_forward(enum norm_kind kind, float eps, const float *weight, const float *bias,
                  const float *x, int n, float *y);
/* dx += the gradient for dy (n); x: the row before the norm. */
void norm_backward(enum norm_kind kind, float eps, const float *weight, const float *x,
                   const float *dy, int n, float *dx);

#endif
