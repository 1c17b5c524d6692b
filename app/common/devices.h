/* The back ends this program was built with: the one list, in order of preference, the CPU last.
 * Immutable; any thread. What stands here is app/devices.c, the one file that includes a back end:
 * every room may ask for a device, none but that file knows whose it is. */
#ifndef APP_COMMON_DEVICES_H
#define APP_COMMON_DEVICES_H

#include "engine/device/device.h"

extern const struct device_ops *const device_backends[]; /* NULL-terminated */

/* Does some back end but the CPU have a device of this name? "none" is right too. Where no driver
 * can be asked, a name it might have passes: whoever opens it says why not. ERR_USAGE. Tries the
 * drivers: not before devices_guard. */
int devices_check(const char *selector, struct error *e);

/* How busy the machine's GPU is with this process, as its kernel driver tells without root. root:
 * "" (tests: a folder with proc/ and sys/). read: shares since the read before; NAN where unknown,
 * `why` for the use. One thread at a time; reading allocates nothing. */
struct utilisation;
struct utilisation *devices_watch_new(const char *root);
void devices_watch_free(struct utilisation *u);
void devices_watch_read(struct utilisation *u, float *use, float *mhz, float *temperature,
                        char *why, size_t why_size);

#endif
