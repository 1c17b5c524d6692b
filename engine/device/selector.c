/* See selector.h. */
#include "engine/device/selector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool selector_next(const char **list, char *out, size_t size)
{
    const char *at = *list + strspn(*list, ", ");
    size_t len = strcspn(at, ", "), n = len < size ? len : size - 1;

    memcpy(out, at, n);
    out[n] = 0;
    *list = at + len;
    return len > 0;
}

bool selector_names(const char *list, const char *name)
{
    char one[64];

    while (selector_next(&list, one, sizeof one))
        if (strcmp(one, name) == 0)
            return true;
    return false;
}

int selector_number(const char *name)
{
    const char *colon = strchr(name, ':');

    return colon ? (int)strtol(colon + 1, NULL, 10) : 0;
}

static int probe_all(const struct device_ops *const *backends, struct found_device *out, int max,
                     char *why, size_t why_size)
{
    int n = 0;

    for (const struct device_ops *const *b = backends; *b && b[1]; b++) {
        struct device_info found[DEVICE_MAX];
        char none[256] = "";
        int has;

        memset(found, 0, sizeof found);
        has = (*b)->probe(found, DEVICE_MAX, none, sizeof none);
        if (has == 0 && none[0])
            snprintf(why, why_size, "%s: %s", (*b)->name, none);
        for (int i = 0; i < has && i < DEVICE_MAX && n < max; i++)
            out[n++] = (struct found_device){*b, found[i]};
    }
    return n;
}

/* The index of a device among list[from .. n - 1]; n: it is not there. */
static int index_of(const struct found_device *list, int from, int n, const char *name)
{
    while (from < n && strcmp(list[from].info.selector, name) != 0)
        from++;
    return from;
}

int selector_find(const struct device_ops *const *backends, const char *names,
                  struct found_device *out, int max, char *why, size_t why_size)
{
    char name[64];
    int n, front = 0;

    why[0] = 0;
    n = probe_all(backends, out, max, why, why_size);
    if (!names)
        return n;
    while (selector_next(&names, name, sizeof name)) {
        int at = index_of(out, front, n, name);

        if (at < n) {
            struct found_device f = out[at];

            out[at] = out[front];
            out[front++] = f;
        } else if (n && index_of(out, 0, front, name) == front) {
            snprintf(why, why_size, "%s: there is no such device", name);
        }
    }
    return front;
}
