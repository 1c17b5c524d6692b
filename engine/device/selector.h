/* The devices a user names: "opencl:0", or several, "opencl:1,opencl:0", in the order in which
 * placements fill them. Any thread; all but selector_find are pure functions. */
#ifndef ENGINE_DEVICE_SELECTOR_H
#define ENGINE_DEVICE_SELECTOR_H

#include "engine/device/device.h"

#include <stdbool.h>
#include <stddef.h>

/* Copies the first name of *list to out and moves *list behind it. false: there is none left. A
 * name that is too long is cut. */
bool selector_next(const char **list, char *out, size_t size);
/* whether it is one of the names */
bool selector_names(const char *list, const char *name);
/* N of "opencl:N"; 0 where there is none */
int selector_number(const char *name);

struct found_device {
    const struct device_ops *ops;
    struct device_info info; /* usable or not */
};

/* Probes the back ends but the last one, the CPU: with names those that are named, in that order,
 * else all, in order of preference. Returns how many. why: empty, or why some are missing. */
int selector_find(const struct device_ops *const *backends, const char *names,
                  struct found_device *out, int max, char *why, size_t why_size);

#endif
