/* See functions.h. */
#include "gpu/functions.h"
#include "engine/base/library.h"

#include <pthread.h>

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

int opencl_load(struct error *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    return failure.code ? error_set(e, ERR_DEVICE, "%s", failure.text) : 0;
}
