/* The bandwidth semaphore, a token bucket: where two devices read their weights from the same
 * memory, each job takes tokens for the bytes it will read from a bucket that fills at the memory's
 * measured speed, so that one device's burst does not starve the other. Off (NULL, or mode off) it
 * costs nothing. Owner: the engine; bandwidth_take may be called from any thread. */
#ifndef ENGINE_PLACEMENT_BANDWIDTH_H
#define ENGINE_PLACEMENT_BANDWIDTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum bandwidth_mode { BANDWIDTH_OFF, BANDWIDTH_ON, BANDWIDTH_AUTO };

struct bandwidth {
    enum bandwidth_mode mode;
    bool active;             /* on, or auto where a gain was measured */
    double rate;             /* bytes per nanosecond; 0: not measured, nothing waits */
    uint64_t burst_ns;       /* capacity of the bucket, as time at the rate */
    _Atomic uint64_t due_ns; /* clock time at which the bucket has covered all bytes taken so far */
    _Atomic uint64_t waited_ns, taken; /* since init, for the telemetry */
    uint64_t (*now)(void);             /* clock_now; tests set another */
    void (*sleep)(uint64_t ns);
};

/* bytes_per_second: measured by membw_read. auto starts inactive. */
void bandwidth_init(struct bandwidth *b, enum bandwidth_mode mode, double bytes_per_second);
/* Waits until the bytes may be read; returns the nanoseconds it waited. b may be NULL. Never waits
 * longer than the bytes themselves take plus what is already due, and never for more than 100 ms.
 */
uint64_t bandwidth_take(struct bandwidth *b, uint64_t bytes);
/* The gain of the semaphore, from times of turns measured with and without it: the mean logarithm
 * of their ratio, 0 if it is within the noise. */
double bandwidth_gain(const double *with_ns, const double *without_ns, int n);
/* Decision of auto: active only if there is a gain. */
void bandwidth_decide(struct bandwidth *b, const double *with_ns, const double *without_ns, int n);

#endif
