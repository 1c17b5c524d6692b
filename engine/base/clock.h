/* Monotonic time in nanoseconds, used for all figures of the program. Any thread;
 * async-signal-safe. */
#ifndef ENGINE_BASE_CLOCK_H
#define ENGINE_BASE_CLOCK_H

#include <stdint.h>

#define CLOCK_SECOND 1000000000ull
#define CLOCK_MILLI 1000000ull

uint64_t clock_now(void);      /* CLOCK_MONOTONIC */
void clock_sleep(uint64_t ns); /* the full time, also when signals arrive */

static inline double clock_seconds(uint64_t ns)
{
    return (double)ns * 1e-9;
}

/* Units per second; 0 if no time passed, so that a displayed rate is never infinite. */
static inline double clock_rate(double units, uint64_t ns)
{
    return ns ? units * 1e9 / (double)ns : 0.0;
}

#endif
