/* What main does about devices before any of them is used. The list of back ends itself:
 * app/common/devices.h. */
#ifndef APP_DEVICES_H
#define APP_DEVICES_H

#include <stdbool.h>

/* Before any thread uses a device: drivers are tried in a child process of this program
 * (gpu/driver_probe.h). again: forget earlier verdicts. */
void devices_guard(const char *cache_dir, bool again);
/* main's first step: when this process is such a child, does its work and ends it. */
void devices_child(int argc, char **argv);

#endif
