/* The only file that knows every back end. */
#include "app/devices.h"

#include "app/common/devices.h"
#include "gpu/driver_probe.h"
#include "gpu/opencl.h"
#include "gpu/utilisation.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct device_ops *const device_backends[] = {&opencl_device_ops, &cpu_device_ops, NULL};

void devices_guard(const char *cache_dir, bool again)
{
    struct driver_probe p = {.program = "/proc/self/exe",
                             .vendors = getenv("OCL_ICD_VENDORS"),
                             .cache_dir = cache_dir,
                             .again = again};

    driver_probe_set(&p);
}

void devices_child(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], DRIVER_PROBE_CHILD) == 0)
        _exit(driver_probe_child());
}

int devices_check(const char *selector, struct error *e)
{
    struct device_info found[DEVICE_MAX];
    char why[256];

    if (strcmp(selector, "none") == 0)
        return 0;
    /* the last one is the CPU */
    for (const struct device_ops *const *b = device_backends; b[1]; b++) {
        size_t len = strlen((*b)->name);
        int n;

        if (strncmp(selector, (*b)->name, len) != 0 || selector[len] != ':')
            continue;
        memset(found, 0, sizeof found);
        n = (*b)->probe(found, DEVICE_MAX, why, sizeof why);
        for (int i = 0; i < n && i < DEVICE_MAX; i++)
            if (strcmp(selector, found[i].selector) == 0)
                return 0;
        if (n <= 0)
            return 0;
    }
    return error_set(e, ERR_USAGE,
                     "there is no device %s; --list-devices names them, none means the CPU alone",
                     selector);
}

struct utilisation *devices_watch_new(const char *root)
{
    return utilisation_new(root);
}

void devices_watch_free(struct utilisation *u)
{
    utilisation_free(u);
}

void devices_watch_read(struct utilisation *u, float *use, float *mhz, float *temperature,
                        char *why, size_t why_size)
{
    utilisation_read(u, use, mhz, temperature, why, why_size);
}
