/* See clock.h. CLOCK_MONOTONIC goes through the vDSO: a reading costs some 20 ns, cheap enough
 * around every job. */
#include "engine/base/clock.h"

#include <errno.h>
#include <time.h>

static uint64_t read_clock(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * CLOCK_SECOND + (uint64_t)t.tv_nsec;
}

uint64_t clock_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

void clock_sleep(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / CLOCK_SECOND), (long)(ns % CLOCK_SECOND)};

    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}
