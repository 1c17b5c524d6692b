/* AdamW (arXiv:1711.05101) with clipped gradients, over all trained modules: modules without tokens
 * in the batch decay as the others do. Thread: the one that trains. */
#ifndef ENGINE_TRAIN_OPTIMIZER_H
#define ENGINE_TRAIN_OPTIMIZER_H

#include "engine/train/crew.h"
#include "engine/train/modules.h"

/* The norm of all trained gradients together. */
double optimizer_norm(struct crew *c, const struct modules *m);
/* Step number t, from 1, with this learning rate; norm: from optimizer_norm. */
void optimizer_step(struct crew *c, struct modules *m, const struct train_config *config, int t,
                    double rate, double norm);

#endif
