/* Non-finite weights: a damaged file, or a conversion that overflowed. Any thread. */
#ifndef ENGINE_MODEL_FINITE_H
#define ENGINE_MODEL_FINITE_H

#include "engine/model/model.h"

#include <stdbool.h>

/* Bit tests on blocks of values, so that a vocabulary's logits take microseconds. False: one is a
 * NaN or an infinity. */
bool values_finite(const float *x, int n);
/* ERR_VALUE: the message about a tensor with such a value. */
int tensor_broken(const struct weight_file *f, const char *tensor, struct error *e);
/* The first tensor of the model's file that contains NaN or infinity, borrowed; NULL: none, or
 * stop(ctx) was true. Reads every weight of the file: for diagnosis after a failure. */
const char *model_find_broken(const struct model *m, bool (*stop)(void *ctx), void *ctx);

#endif
