/* The back ends this program was built with: the one list, in order of preference, the CPU last. Immutable; any thread. */
#ifndef APP_DEVICES_H
#define APP_DEVICES_H

#include "engine/device/device.h"

extern const struct device_ops *const device_backends[];     /* NULL-terminated */

/* Before any thread uses a device: drivers are tried in a child process of this program (gpu/driver_probe.h). again: forget earlier verdicts. */
void devices_guard(const char *cache_dir, bool again);
/* main's first step: when this process is such a child, does its work and ends it. */
void devices_child(int argc, char **argv);

/* Does some back end but the CPU have a device of this name? "none" is right too. Where no driver can be asked, a name it might have passes:
 * whoever opens it says why not. ERR_USAGE. Tries the drivers: not before devices_guard. */
int devices_check(const char *selector, struct error *e);

/* How busy the machine's GPU is with this process, as its kernel driver tells without root. root: "" (tests: a folder with proc/ and sys/).
 * read: shares since the read before; NAN where unknown, `why` for the use. One thread at a time; reading allocates nothing. */
struct utilisation;
struct utilisation *devices_watch_new(const char *root);
void devices_watch_free(struct utilisation *u);
void devices_watch_read(struct utilisation *u, float *use, float *mhz, float *temperature, char *why, size_t why_size);

#endif
