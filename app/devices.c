/* The only file that knows every back end. */
#include "app/devices.h"

#include "app/common/devices.h"
#include "engine/device/selector.h"
#include "gpu/driver/driver_probe.h"
#include "gpu/opencl.h"
#include "gpu/driver/utilisation.h"

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

/* Whether there is such a device, or its back end has none and will say why. */
static bool may_be(const char *name)
{
    struct device_info found[DEVICE_MAX];
    char why[256];

    /* the last one is the CPU */
    for (const struct device_ops *const *b = device_backends; b[1]; b++) {
        size_t len = strlen((*b)->name);
        int n;

        if (strncmp(name, (*b)->name, len) != 0 || name[len] != ':')
            continue;
        memset(found, 0, sizeof found);
        n = (*b)->probe(found, DEVICE_MAX, why, sizeof why);
        for (int i = 0; i < n && i < DEVICE_MAX; i++)
            if (strcmp(name, found[i].selector) == 0)
                return true;
        if (n <= 0)
            return true;
    }
    return false;
}

int devices_check(const char *selector, struct error *e)
{
    char name[64];
    int n = 0;

    if (strcmp(selector, "none") == 0)
        return 0;
    for (; selector_next(&selector, name, sizeof name); n++) {
        if (!may_be(name))
            return error_set(
                e, ERR_USAGE,
                "there is no device %s; --list-devices names them, none means the CPU alone", name);
        if (selector_names(selector, name))
            return error_set(e, ERR_USAGE, "-dev names %s twice", name);
    }
    return n && n < DEVICE_MAX ? 0
                               : error_set(e, ERR_USAGE, "-dev: name one device, or up to %d: %s",
                                           DEVICE_MAX - 1, "opencl:0,opencl:1");
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
