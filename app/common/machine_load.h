/* What the machine did while a test ran: memory, processor, disk; and whether something else disturbed it. Main thread. */
#ifndef APP_BENCH_LOAD_H
#define APP_BENCH_LOAD_H

#include "app/bench/result.h"
#include "app/common/system_sample.h"

/* Sums over the counted repetitions; all zero at first. */
struct bench_load {
    int repetitions, n_cores;
    double seconds, cpu_s, others_s;     /* CPU seconds of this process and of all others */
    double delay_s;                      /* this process's threads, ready to run, waited so long for a CPU */
    double mhz_most, mhz_least;          /* 0: unknown */
    uint64_t read_bytes, write_bytes, read_calls, write_calls, rss, rss_peak;
};

/* Around one repetition. */
void bench_load_begin(struct system *s, struct system_sample *before);
void bench_load_end(struct system *s, const struct system_sample *before, struct bench_load *l);
/* Whether the repetitions were disturbed; why gets one line. Pure. */
bool bench_load_disturbed(const struct bench_load *l, char *why, size_t size);
void bench_load_describe(const struct bench_load *l, struct bench_result *r);

#endif
