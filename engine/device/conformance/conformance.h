/* One test suite for every back end of the device contract (device.h): opens a device, calls each
 * job and function it has as the engine would, and compares the results with the numeric contract
 * (reference.h): to the bit for quantised weights, within a rounding for float ones. Use small
 * models: the reference is scalar and plain. Engine thread; allocates and waits. */
#ifndef ENGINE_DEVICE_CONFORMANCE_CONFORMANCE_H
#define ENGINE_DEVICE_CONFORMANCE_CONFORMANCE_H

#include "engine/device/device.h"

enum conformance_job {
    CONFORMANCE_BLOCKS,  /* uploaded in pieces, dropped, uploaded again; byte counts agree */
    CONFORMANCE_KV_ROWS, /* written rows are read back, whole and from the middle */
    CONFORMANCE_ATTENTION,
    CONFORMANCE_ROUTE,
    CONFORMANCE_EXPERTS, /* all, and some: outputs of other devices stay untouched */
    CONFORMANCE_COMBINE,
    CONFORMANCE_HEAD,
    CONFORMANCE_LAYERS,
    CONFORMANCE_STREAM, /* streamed experts */
    CONFORMANCE_JOBS
};

#define CONFORMANCE_FINDINGS 32

struct conformance_finding {
    enum conformance_job job;
    enum dtype type; /* of the matrices that the job used */
    char what[160];
};

struct conformance_report {
    int checks[CONFORMANCE_JOBS]; /* 0: the device lacks the function or supports no such weights */
    int wrong[CONFORMANCE_JOBS];
    int n; /* the first findings, in words */
    struct conformance_finding finding[CONFORMANCE_FINDINGS];
};

const char *conformance_job_name(enum conformance_job job); /* "attention" */
/* c as for open, with rope tables and, for float weights, exact. Negative only if the device cannot
 * be opened or memory is short; a job that fails is a finding. */
int conformance_run(const struct device_ops *ops, const struct device_config *c,
                    struct conformance_report *out, struct error *e);
int conformance_wrong(const struct conformance_report *r); /* sum over all jobs */

#endif
