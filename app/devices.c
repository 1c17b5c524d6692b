/* The one file that knows every back end. */
#include "app/devices.h"

const struct device_ops *const device_backends[] = {&cpu_device_ops, NULL};
