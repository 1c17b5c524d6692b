/* The back ends this program was built with: the only list, in order of preference, the CPU last.
 * Immutable; any thread. Implemented in app/devices.c, the only file that includes a back end;
 * everything else uses devices without knowing their back end. */
#ifndef APP_COMMON_DEVICES_H
#define APP_COMMON_DEVICES_H

#include "engine/device/device.h"

extern const struct device_ops *const device_backends[]; /* NULL-terminated */

/* Whether a back end other than the CPU has a device of this name; "none" is accepted too. If no
 * driver can be queried, any plausible name passes, and opening it reports the error. ERR_USAGE.
 * Tries the drivers: not before devices_guard. */
int devices_check(const char *selector, struct error *e);

/* This process's use of the machine's GPU, as reported by its kernel driver without root. root: ""
 * (tests: a folder with proc/ and sys/). read: shares since the previous read; NAN if unknown, with
 * `why` for the use. One thread at a time; reading allocates nothing. */
struct utilisation;
struct utilisation *devices_watch_new(const char *root);
void devices_watch_free(struct utilisation *u);
void devices_watch_read(struct utilisation *u, float *use, float *mhz, float *temperature,
                        char *why, size_t why_size);

#endif
