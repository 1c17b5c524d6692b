/* What a run's products would take if they were all there is: those of the frozen matrices alone,
 * with F32 weights, a whole matrix a call, on as many threads. The run's own rate beside it says
 * how much of the machine training uses. Thread: the one that trains. */
#ifndef ENGINE_TRAIN_PEAK_H
#define ENGINE_TRAIN_PEAK_H

#include "engine/train/base.h"

/* Floating-point operations a second of multiply() on the matrices of a middle layer, forwards and
 * backwards, for so many tokens that spread evenly over the experts; measured for at least so many
 * seconds. ERR_MEMORY. */
int peak_measure(const struct base *b, int threads, int tokens, double seconds, double *out,
                 struct error *e);

#endif
