/* The one file that knows every back end. */
#include "app/devices.h"
#include "gpu/opencl.h"
#include "gpu/utilisation.h"

const struct device_ops *const device_backends[] = {&opencl_device_ops, &cpu_device_ops, NULL};

struct utilisation *devices_watch_new(const char *root)
{
    return utilisation_new(root);
}

void devices_watch_free(struct utilisation *u)
{
    utilisation_free(u);
}

void devices_watch_read(struct utilisation *u, float *use, float *mhz, float *temperature, char *why, size_t why_size)
{
    utilisation_read(u, use, mhz, temperature, why, why_size);
}
