/* What part of the memory's speed the repetitions of a test reached. On a machine that others share
 * that speed swings within seconds, so it is read before, after and between the repetitions, and
 * each is compared with the readings around it. Main thread. */
#ifndef APP_BENCH_MEMORY_SHARE_H
#define APP_BENCH_MEMORY_SHARE_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes a second that so many threads read now; 0: not known. */
struct memory_meter {
    double (*read)(void *ctx, int threads);
    void *ctx;
    int threads; /* of the newest reading, `rate`; 0: none */
    double rate;
};

/* A repetition: bytes a second that it read, and the readings around it. */
struct memory_sample {
    double before, after, reached;
};

struct memory_share {
    double share;           /* median of the repetitions' own; 0: no share */
    double lowest, highest; /* readings; 0: none */
};

/* Around a repetition. before: the newest reading where it is one of as many threads. */
double memory_meter_before(struct memory_meter *m, int threads);
double memory_meter_after(struct memory_meter *m, int threads);
/* A repetition whose two readings lie far apart (membw_swung) has no share; where that is so of
 * more than half of them, the test has none. */
int memory_share(const struct memory_sample *samples, size_t n, struct memory_share *out);
/* "memory speed swung 46-77 GB/s", ": no share" where that is so; "" while it was steady. */
char *memory_share_text(const struct memory_share *m, char *out, size_t size);

#endif
