/* The energy that the machine counts, by the kernel's files: the processor's packages with their
 * memory (RAPL, through powercap), GPUs beside it (hwmon), and what a battery gives. Nothing is
 * estimated: what cannot be read is NAN, and energy_why says what would make it readable. One
 * thread at a time; energy_read allocates nothing. */
#ifndef APP_COMMON_ENERGY_H
#define APP_COMMON_ENERGY_H

#include <stddef.h>
#include <stdint.h>

struct energy;

enum energy_source { ENERGY_PACKAGE, ENERGY_GPU, ENERGY_SOURCES };

struct energy_reading {
    uint64_t time_ns;              /* CLOCK_MONOTONIC */
    double joules[ENERGY_SOURCES]; /* since energy_new; NAN: not readable */
    /* since the reading before; for a GPU that has a power sensor alone, what it shows now */
    float watts[ENERGY_SOURCES];
    float battery_watts; /* what the whole machine draws from it; NAN: on mains, or there is none */
};

/* root: "" for this machine; tests give a folder that holds sys/. NULL: no memory. */
struct energy *energy_new(const char *root);
void energy_free(struct energy *g);
/* Counters of 32 bits run over after an hour or so at full load: read them more often than that. */
void energy_read(struct energy *g, struct energy_reading *out);
/* Why the processor's counters are not readable, with the remedy; "": they are. */
const char *energy_why(const struct energy *g);

#endif
