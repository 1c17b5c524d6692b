/* The share of the memory bandwidth that the repetitions of a test reached. On a shared machine
 * bandwidth varies within seconds, so it is measured before, after and between the repetitions, and
 * each is compared with the readings around it. Main thread. */
#ifndef APP_BENCH_MEMORY_SHARE_H
#define APP_BENCH_MEMORY_SHARE_H

#include <stdbool.h>
#include <stddef.h>

/* Read bandwidth of so many threads now, in bytes/s; 0: unknown. */
struct memory_meter {
    double (*read)(void *ctx, int threads);
    void *ctx;
    int threads; /* of the newest reading, `rate`; 0: none */
    double rate;
};

/* A repetition: bytes/s that it read, and the readings around it. */
struct memory_sample {
    double before, after, reached;
};

struct memory_share {
    double share;           /* median over the repetitions; 0: none */
    double lowest, highest; /* readings; 0: none */
};

/* Around a repetition. before: the newest reading, if with the same number of threads. */
double memory_meter_before(struct memory_meter *m, int threads);
double memory_meter_after(struct memory_meter *m, int threads);
/* A repetition whose two readings differ too much (membw_swung) has no share; if that is so for
 * more than half of them, the test has none. */
int memory_share(const struct memory_sample *samples, size_t n, struct memory_share *out);
/* "memory speed swung 46-77 GB/s", with ": no share" if the test has none; "" if it was steady. */
char *memory_share_text(const struct memory_share *m, char *out, size_t size);

#endif
