/* What is known about a device's work, beside what it costs: how much of it was audited
 * (engine/run/pass/audit.h), and what was taken from it. Plain data; the engine's thread writes
 * it, others read the copy in the telemetry. */
#ifndef ENGINE_RUN_DEVICE_HEALTH_H
#define ENGINE_RUN_DEVICE_HEALTH_H

#include <stdint.h>

enum device_trouble {
    TROUBLE_NONE,
    TROUBLE_SLOW,   /* jobs took ten times their median: blocks go back to the CPU */
    TROUBLE_MEMORY, /* a job found no memory: likewise */
    TROUBLE_LOST,   /* failed twice: gets no more jobs */
    TROUBLE_WRONG   /* an audit found other bits than the CPU's: gets no more jobs */
};

#define DEVICE_WHY 320

struct device_health {
    /* Jobs: a layer's attention or its experts, a whole layer (several in one layers_job count
     * each), the head. inexact: with float weights, whose products are outside the contract on
     * devices (numerics.h, rule 11): not audited. audited: computed on the CPU, too, and equal. */
    uint64_t jobs, inexact, audited;
    uint64_t missed;   /* audits that were due, but needed too many rows of the device */
    uint64_t audit_ns; /* time of the audits */
    uint64_t until;    /* jobs until the next audit */
    int returned;      /* blocks given back to the CPU one by one */
    enum device_trouble trouble;
    char why[DEVICE_WHY]; /* one line about the trouble */
};

#endif
