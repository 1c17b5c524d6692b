/* What the machine did during a test: memory, processor, disk; and whether other work disturbed it.
 * Main thread. */
#ifndef APP_COMMON_MACHINE_LOAD_H
#define APP_COMMON_MACHINE_LOAD_H

#include "app/common/system_sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sums over the counted repetitions; all zero at first. */
struct machine_load {
    int repetitions, n_cores;
    double seconds, cpu_s, others_s; /* CPU seconds of this process and of all others */
    /* time that this process's threads were ready to run and waited for a CPU */
    double delay_s;
    double mhz_most, mhz_least; /* 0: unknown */
    uint64_t read_bytes, write_bytes, read_calls, write_calls, rss, rss_peak;
};

/* Around one repetition. */
void machine_load_begin(struct system *s, struct system_sample *before);
void machine_load_end(struct system *s, const struct system_sample *before, struct machine_load *l);
/* Whether the repetitions were disturbed; why gets one line. Pure. */
bool machine_load_disturbed(const struct machine_load *l, char *why, size_t size);

#endif
