/* Upper bound of a run's speed by its products: those of the frozen matrices only, with F32
 * weights, a whole matrix per call, on as many threads. Compared with the run's own rate it gives
 * training's share of the machine. Thread: the one that trains. */
#ifndef ENGINE_TRAIN_PEAK_H
#define ENGINE_TRAIN_PEAK_H

#include "engine/train/base.h"

/* Floating-point operations per second of multiply() on the matrices of a middle layer, forward and
 * backward, for so many tokens spread evenly over the experts; measured for at least so many
 * seconds. ERR_MEMORY. */
int peak_measure(const struct base *b, int threads, int tokens, double seconds, double *out,
                 struct error *e);

#endif
