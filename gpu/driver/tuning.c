/* See tuning.h. */
#include "gpu/driver/tuning.h"

static struct opencl_tuning tuning;
static long fail_countdown = -1, calls;
static bool fail_lost, failing;

void opencl_tune(const struct opencl_tuning *t)
{
    tuning = t ? *t : (struct opencl_tuning){0};
}

const struct opencl_tuning *opencl_tuning(void)
{
    return &tuning;
}

void opencl_fail_after(long n, bool lost)
{
    fail_countdown = n;
    fail_lost = lost;
    failing = false;
    calls = 0;
}

long opencl_calls(void)
{
    return calls;
}

bool cl_injected(cl_int *rc)
{
    calls++;
    if (failing && fail_lost) {
        *rc = CL_DEVICE_NOT_AVAILABLE;
        return true;
    }
    if (fail_countdown < 0)
        return false;
    if (fail_countdown-- > 0)
        return false;
    failing = true;
    *rc = CL_OUT_OF_RESOURCES;
    return true;
}
