/* Hooks for tests and for debugging drivers: how the next device is opened, and OpenCL calls that
 * fail on demand. All zero is the normal behaviour. Thread: set before the engine's starts, which
 * reads it. */
#ifndef GPU_TUNING_H
#define GPU_TUNING_H

#include <CL/cl.h>
#include <stdbool.h>

/* How a type's kernels for many tokens work (gemm.cl): four or eight tokens a work-item, or an int8
 * matrix engine. Of those that give the right bits a device keeps the fastest. */
enum gemm_form { GEMM_FOURS, GEMM_EIGHTS, GEMM_ENGINE, GEMM_FORMS };

/* Settings of the next opencl open. */
struct opencl_tuning {
    int shape; /* 0: by device type; 1: one work-item a row (GPUs); 2: one work-item a group of
                  rows, vectors (CPUs) */
    const char *broken; /* kernel built wrong on purpose ("norm", "matmul", ...): the self-test must
                           find it */
    const char *slower; /* kernels of one token that are taken for slower than those they replace */
    bool copy; /* treat the device as one with memory of its own: weights are copied through pinned
                  staging memory */
    bool map_rows; /* rows in place are mapped and unmapped on a CPU's device, too */
    bool no_selftest;
    /* of the kernels for one token: candidate `group` - 1 of token_shapes.h is their shape, and
     * nothing is measured; that of group_wanted - 1 is taken for faster than it is; at most
     * groups_most candidates are measured at an opening, whatever the time, on a CPU's OpenCL, too
     */
    int group, group_wanted, groups_most;
    const char *driver;  /* the driver says that it is another one */
    bool small_local;    /* treat the device as one with little local memory */
    int tile;            /* tokens per tile, 0: the default; fewer compile faster */
    enum gemm_form form; /* of prompts' kernels, whether it is faster or not */
    int engine;          /* ENGINE of gemm.cl where there is none: by local memory in its place */
    int blas; /* 1: test CLBlast at open, also on a CPU device; 2: and use it where it is right but
               * slower */
};
void opencl_tune(const struct opencl_tuning *t);
/* The n-th OpenCL call from now on, and all after it if `lost`, fail as if in the driver; -1:
 * never. */
void opencl_fail_after(long n, bool lost);
/* OpenCL calls since then that could have failed. */
long opencl_calls(void);

/* The settings of opencl_tune. */
const struct opencl_tuning *opencl_tuning(void);
/* Called before an OpenCL call: true if a test makes it fail (code in *rc). */
bool cl_injected(cl_int *rc);

#endif
