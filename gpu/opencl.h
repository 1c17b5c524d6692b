/* The OpenCL back end: one entry of the device contract (engine/device/device.h) for any
 * OpenCL 1.2+ device with full profile. Thread: the engine's, as the contract says; drivers use
 * threads of their own inside. */
#ifndef GPU_OPENCL_H
#define GPU_OPENCL_H

#include "engine/device/device.h"

extern const struct device_ops opencl_device_ops;

/* Kernel launches since open: what a token costs in calls. */
uint64_t opencl_launches(const struct device *d);

/* OpenCL contexts that are open; devices that share a link have one. */
int opencl_contexts(void);

#endif
