/* See functions.h. */
#include "gpu/driver/functions.h"
#include "engine/base/library.h"

#include <pthread.h>
#include <stdatomic.h>

#define OPENCL_NAME(name) "cl" #name,

struct opencl_functions cl;

static struct error failure; /* written once, under `once` */

static void load(void)
{
    static const char *const names[] = {OPENCL_FUNCTIONS(OPENCL_NAME) NULL};

    library_load("libOpenCL.so.1",
                 "package ocl-icd-libopencl1, ocl-icd, OpenCL-ICD-Loader or opencl-icd-loader",
                 names, &cl, sizeof cl, &failure);
}

static atomic_uint_fast64_t releases, lasting;

void opencl_release_part(cl_mem *mem)
{
    if (!*mem)
        return;
    cl.ReleaseMemObject(*mem);
    *mem = NULL;
    atomic_fetch_add_explicit(&releases, 1, memory_order_relaxed);
}

void opencl_release(cl_mem *mem)
{
    if (*mem)
        atomic_fetch_add_explicit(&lasting, 1, memory_order_relaxed);
    opencl_release_part(mem);
}

uint64_t opencl_releases(void)
{
    return atomic_load_explicit(&releases, memory_order_relaxed);
}

uint64_t opencl_lasting_releases(void)
{
    return atomic_load_explicit(&lasting, memory_order_relaxed);
}

int opencl_load(struct error *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    return failure.code ? error_set(e, ERR_DEVICE, "%s", failure.text) : 0;
}
