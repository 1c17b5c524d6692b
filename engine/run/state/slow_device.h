/* Whether a device has become slow: its jobs take ten times their own median. Jobs are compared
 * with those of the same kind, about as many rows and about the same depth. A single slow job is
 * nothing, nor is a moment's noise: four in a row, a fifth of a second together; nor the first job
 * after a pause, for clocks and memory may have gone to sleep. Pure: the caller passes the times.
 */
#ifndef ENGINE_RUN_SLOW_DEVICE_H
#define ENGINE_RUN_SLOW_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

enum slow_kind { SLOW_ATTENTION, SLOW_EXPERTS, SLOW_LAYERS, SLOW_HEAD, SLOW_KINDS };

#define SLOW_CLASSES 8  /* of rows and of depths: by powers of two and of four */
#define SLOW_SAMPLES 15 /* newest jobs of a kind and class that were not slow */

struct slow_device {
    struct slow_class {
        float ns[SLOW_SAMPLES]; /* a unit */
        uint8_t n, at;
    } of[SLOW_KINDS][SLOW_CLASSES][SLOW_CLASSES];
    int run;          /* slow jobs in a row ... */
    uint64_t run_ns;  /* ... and their time */
    uint64_t last_ns; /* end of the newest job */
};

/* units: layers or experts of the job, whose time a unit is compared. waited_ns: the part of it in
 * which nothing else was computed: without half of it the time says nothing. */
struct slow_job {
    enum slow_kind kind;
    int rows, depth, units;
    uint64_t start_ns, end_ns, waited_ns;
};

enum slow_verdict { SLOW_UNKNOWN, SLOW_NOT, SLOW_SURE };
/* SURE once in every fifth of a second of such a run of jobs, which lasts until a job is not
 * slow. */
enum slow_verdict slow_device_job(struct slow_device *s, const struct slow_job *j);

#endif
