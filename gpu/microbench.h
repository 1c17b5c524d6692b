/* device_ops.kernels of a back end, whose open and close are called: each kernel of a pass,
 * measured on a device or predicted for a card. Main thread. */
#ifndef GPU_MICROBENCH_H
#define GPU_MICROBENCH_H

#include "engine/device/device.h"

int microbench_kernels(const struct device_ops *ops, const struct device_config *c,
                       const char *card, const struct device_pass *passes, int n_passes,
                       struct device_kernel *out, int max, struct device_kernels *about,
                       struct error *e);

#endif
