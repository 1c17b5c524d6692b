/* The CPU device's scratch: one mapping, in which every buffer of jobs and threads lies, and what
 * kernels read in a form of their own besides matrices (routers, convolutions of heads). Laid when
 * the device is opened, or to know its size; then constant. Thread: the one that opens. */
#ifndef ENGINE_DEVICE_CPU_BACKEND_SCRATCH_H
#define ENGINE_DEVICE_CPU_BACKEND_SCRATCH_H

#include "engine/device/cpu/cpu.h"

static inline size_t scratch_most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Points d's buffers into base, on a page, of as many bytes as it returns; base NULL: only adds
 * them up. Needs what lay_out() found in the model: layouts, widths, kinds of weights. */
size_t scratch_lay(struct cpu_device *d, uint8_t *base);
/* Writes what is constant into it. */
void scratch_fill(struct cpu_device *d);

#endif
