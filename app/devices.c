/* The one file that knows every back end. */
#include "app/devices.h"
#include "gpu/opencl.h"

const struct device_ops *const device_backends[] = {&opencl_device_ops, &cpu_device_ops, NULL};
