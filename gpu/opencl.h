/* The OpenCL back end: one entry of the device contract (engine/device/device.h) for any OpenCL 1.2+ device with full profile.
 * Thread: the engine's, as the contract says; drivers use threads of their own inside. */
#ifndef GPU_OPENCL_H
#define GPU_OPENCL_H

#include "engine/device/device.h"

extern const struct device_ops opencl_device_ops;

/* Drivers are tried in a child process before they are loaded here (guard.h). program: what the child runs, with OPENCL_CHILD as its only
 * argument; it must call opencl_child first and _exit with its result (what a driver does when it is unloaded is no concern). Strings are copied. Call once, before any thread uses OpenCL. */
#define OPENCL_CHILD "--try-opencl-drivers"
struct opencl_guard {
    const char *program;
    const char *vendors;         /* folder of *.icd files, or one of them; NULL: /etc/OpenCL/vendors */
    const char *cache_dir;       /* verdicts; NULL: none are kept */
    int seconds;                 /* patience with one driver; 0: 30 */
    bool again;                  /* do not believe what is kept */
};
void opencl_guard(const struct opencl_guard *g);
int opencl_child(void);

/* How the next opencl open behaves; for tests and for hunting driver faults. Zero everywhere is the normal behaviour. */
struct opencl_tuning {
    int shape;                   /* 0: by device type; 1: one work-item a row (GPUs); 2: one work-item a group of rows, vectors (CPUs) */
    const char *broken;          /* kernel built wrong on purpose ("norm", "matmul", ...): the self-test must find it */
    bool copy;                   /* treat the device as one with memory of its own: weights are copied through pinned staging memory */
    bool dot8;                   /* work-item kernels with the integer dot product, emulated where the device has none */
    bool no_selftest;
    int tile;                    /* tokens of a tile, 0: the usual number; fewer compile faster */
    int blas;                    /* 1: test CLBlast at open, also on a device that is a CPU; 2: and use it where it is right but slower */
};
void opencl_tune(const struct opencl_tuning *t);
/* The n-th OpenCL call from now on, and all after it when `lost`, fail as if the driver had refused; -1: never. */
void opencl_fail_after(long n, bool lost);
/* OpenCL calls since then that could have failed. */
long opencl_calls(void);
/* Kernel launches since open: what a token costs in calls. */
uint64_t opencl_launches(const struct device *d);

#endif
