/* The back ends this program was built with: the one list, in order of preference, the CPU last. Immutable; any thread. */
#ifndef APP_DEVICES_H
#define APP_DEVICES_H

#include "engine/device/device.h"

extern const struct device_ops *const device_backends[];     /* NULL-terminated */

#endif
