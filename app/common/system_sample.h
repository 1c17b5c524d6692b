/* Samples of the machine from /proc and /sys. Any one thread at a time (the chat: UI thread, twice
 * a second; headless: start and end). A sample allocates nothing. A missing sensor is not zero:
 * floats are NAN, counts SYSTEM_UNKNOWN. */
#ifndef APP_COMMON_SYSTEM_SAMPLE_H
#define APP_COMMON_SYSTEM_SAMPLE_H

#include "engine/base/error.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* logical CPUs in the arrays; further ones are included only in the sums */
#define SYSTEM_CORES 256
#define SYSTEM_UNKNOWN UINT64_MAX

struct system_sample {
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    int n_cores;      /* logical CPUs online */
    /* Shares since the sample before; NAN in the first one. */
    float core_use[SYSTEM_CORES];         /* whole system, 0 .. 1 */
    float core_process_use[SYSTEM_CORES]; /* this process, 0 .. 1: each thread's time, counted where
                                             it ran last */
    float system_use;                     /* mean over the cores, 0 .. 1 */
    /* CPUs' worth of this process: 1.97 is what top calls 197 % */
    float process_cores;
    float core_mhz[SYSTEM_CORES]; /* NAN: unknown */
    float mhz;                    /* mean; NAN: unknown */
    float temperature;            /* °C of the CPU package; NAN: unknown */
    /* Memory in bytes. */
    uint64_t rss, rss_peak, process_swap; /* this process */
    /* of rss: mapped files (weights in the page cache) */
    uint64_t rss_file;
    /* available: what can be allocated without swapping */
    uint64_t memory_total, memory_free, memory_available;
    /* of this process's control group; SYSTEM_UNKNOWN: none */
    uint64_t memory_limit;
    /* what is left of that; SYSTEM_UNKNOWN: unknown */
    uint64_t memory_left;
    uint64_t swap_total, swap_used;
    /* Counters since the process (the system) began. */
    uint64_t cpu_ns; /* this process, all threads */
    /* time that its live threads were ready to run and had no CPU; SYSTEM_UNKNOWN */
    uint64_t delay_ns;
    uint64_t read_bytes, write_bytes; /* this process, what actually reached the disk */
    uint64_t read_calls, write_calls; /* this process, read and write operations */
    uint64_t major_faults;            /* pages that had to be read from the disk */
    uint64_t disk_reads, disk_writes; /* whole system, operations completed */
};

struct system;

/* root: "" for this machine; tests give a folder that holds proc/ and sys/. NULL: no memory. */
struct system *system_new(const char *root);
void system_free(struct system *s);
/* Never fails: what cannot be read is unknown. */
void system_read(struct system *s, struct system_sample *out);
/* "AMD Ryzen 7 7840U", or "" when /proc/cpuinfo does not say. Valid until system_free. */
const char *system_cpu_name(const struct system *s);

#endif
