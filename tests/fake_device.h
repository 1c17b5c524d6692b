/* A device for the tests: the CPU's arithmetic behind the contract of a device that has memory of
 * its own. It insists that blocks are resident before they are used and loses their cached keys
 * when they are dropped, does asynchronous jobs only when waited for, and fails on demand. */
#ifndef TESTS_FAKE_DEVICE_H
#define TESTS_FAKE_DEVICE_H

#include "engine/device/device.h"

/* with and without the layers slot */
extern const struct device_ops fake_device_ops, fake_device_plain_ops;

struct fake_control {
    long fail_at;      /* this call (1, 2, ...) fails; 0: none */
    bool lost;         /* and every one after it */
    int devices;       /* how many are found, fake:0 and on; 0: one */
    int only;          /* alone fake:(only - 1) fails; 0: each */
    unsigned delay_us; /* every job takes so much longer ... */
    int delayed;       /* ... on fake:(delayed - 1) alone; 0: on each */
    uint64_t memory;   /* bytes of blocks it takes; 0: no limit */
    bool instant;      /* jobs are done without computing: for timing alone */
    int states;        /* attention blocks times sessions it has room for; 0: no limit */
    bool hold_open;    /* opening waits for fake_device_let_open */
    uint64_t says;     /* bytes of memory it tells of; 0: 1 GiB */
    /* Jobs with results (attention, experts, head, layers) count 1, 2, ...; 0: none of these. As
     * with fail_at, `only` names one device. */
    long wrong_at;    /* this one has one bit of its result wrong */
    bool wrong_on;    /* and every later one */
    long memory_at;   /* this one finds no memory (ERR_MEMORY) ... */
    long memory_jobs; /* ... and as many after it */
    /* This one and all after it take slow_us longer, and 30 times what they have taken on average,
     * so that they are slow on a busy machine and under sanitizers as well ... */
    long slow_at;
    unsigned slow_us;
    uint64_t slow_bytes; /* ... while more than so many bytes of blocks are there */
};
/* From now on fake devices say that they are really the processor: one of these is not called slow
 * where the machine is busy. */
void fake_device_processor(bool on);
/* Applies to every fake device from now on; counts start at 0. */
void fake_device_control(const struct fake_control *c);
/* Whose arithmetic fake devices opened from now on have; NULL: the CPU's. One without the layers
 * slot goes with fake_device_plain_ops. */
void fake_device_over(const struct device_ops *cpu);
void fake_device_let_open(void);
long fake_device_calls(void); /* calls that could have failed so far */
/* What fake devices were given so far: rows times layers of attention, rows times experts' slots,
 * rows of the head, and rows of a layer copied from and to them. */
struct fake_work {
    long attention, experts, head, rows_read, rows_written;
};
struct fake_work fake_device_work(void);
long fake_device_jobs(void);            /* with results, so far */
uint64_t fake_device_largest_put(void); /* most bytes one block_put moved */

#endif
