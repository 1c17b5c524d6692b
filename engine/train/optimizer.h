/* AdamW (arXiv:1711.05101) with clipped gradients, over all trained modules alike: one that met no
 * token decays and fades as the others do. Thread: the one that trains. */
#ifndef ENGINE_TRAIN_OPTIMIZER_H
#define ENGINE_TRAIN_OPTIMIZER_H

#include "engine/train/crew.h"
#include "engine/train/modules.h"

/* The norm of all trained gradients together. */
double optimizer_norm(struct crew *c, const struct modules *m);
/* Step number t, from 1, at this rate; norm: optimizer_norm's. */
void optimizer_step(struct crew *c, struct modules *m, const struct train_config *config, int t,
                    double rate, double norm);

#endif
