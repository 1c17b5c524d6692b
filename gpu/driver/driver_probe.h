/* Drivers are third-party code in this process: each is first tried in a child process, so that one
 * that crashes or hangs cannot take down the program. Any thread (guarded by a mutex). */
#ifndef GPU_DRIVER_PROBE_H
#define GPU_DRIVER_PROBE_H

#include <stdbool.h>
#include <stddef.h>

/* program: executable of the child, run with DRIVER_PROBE_CHILD as its only argument; it must call
 * driver_probe_child first and _exit with the result (skipping the driver's exit handlers). Strings
 * are copied. Call once, before any thread uses OpenCL. */
#define DRIVER_PROBE_CHILD "--try-opencl-drivers"
struct driver_probe {
    const char *program;
    /* folder of *.icd files, or one of them; NULL: /etc/OpenCL/vendors */
    const char *vendors;
    const char *cache_dir; /* for cached results; NULL: no cache */
    int seconds;           /* timeout per driver; 0: 30 */
    bool again;            /* ignore cached results */
};
void driver_probe_set(const struct driver_probe *p);
int driver_probe_child(void);

/* Call before the first OpenCL call: tries the installed drivers (once per driver version if there
 * is a cache folder) and hides bad ones from the loader. out: a line naming them, or "". No-op
 * before driver_probe_set. */
void driver_probe_run(char *out, size_t size);

#endif
