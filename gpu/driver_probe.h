/* Drivers are other people's code in this process: each is tried in a process of its own before it
 * is loaded here, so that one which crashes or hangs cannot take the program along. Any thread (a
 * mutex inside). */
#ifndef GPU_DRIVER_PROBE_H
#define GPU_DRIVER_PROBE_H

#include <stdbool.h>
#include <stddef.h>

/* program: what the child runs, with DRIVER_PROBE_CHILD as its only argument; it must call
 * driver_probe_child first and _exit with its result (what a driver does when it is unloaded is no
 * concern). Strings are copied. Call once, before any thread uses OpenCL. */
#define DRIVER_PROBE_CHILD "--try-opencl-drivers"
struct driver_probe {
    const char *program;
    /* folder of *.icd files, or one of them; NULL: /etc/OpenCL/vendors */
    const char *vendors;
    const char *cache_dir; /* verdicts; NULL: none are kept */
    int seconds;           /* patience with one driver; 0: 30 */
    bool again;            /* do not believe what is kept */
};
void driver_probe_set(const struct driver_probe *p);
int driver_probe_child(void);

/* Before the first OpenCL call: tries the installed drivers (once per version of a driver where
 * there is a cache folder) and keeps the loader from those that are bad. out: a line that names
 * them, or "". Does nothing until driver_probe_set was called. */
void driver_probe_run(char *out, size_t size);

#endif
