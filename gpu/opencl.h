/* The OpenCL back end: one entry of the device contract (engine/device/device.h) for any OpenCL
 * 1.2+ device with full profile. Thread: the engine's, by the contract; drivers use internal
 * threads. */
#ifndef GPU_OPENCL_H
#define GPU_OPENCL_H

#include "engine/device/device.h"

extern const struct device_ops opencl_device_ops;

/* Kernel launches since open: to count the calls per token. */
uint64_t opencl_launches(const struct device *d);

/* Number of open OpenCL contexts; devices that share a link have one. */
int opencl_contexts(void);

#endif
