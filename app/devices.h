/* What main does about devices before any of them is used. The list of back ends:
 * app/common/devices.h. */
#ifndef APP_DEVICES_H
#define APP_DEVICES_H

#include <stdbool.h>

/* Before any thread uses a device: tests drivers in a child process of this program
 * (gpu/driver/driver_probe.h). again: ignore stored results. */
void devices_guard(const char *cache_dir, bool again);
/* main's first step: if this process is such a child, runs its test and exits. */
void devices_child(int argc, char **argv);

#endif
