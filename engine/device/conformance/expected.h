/* Expected results of each job of the device contract: the jobs of device.h computed by
 * reference.h, row by row. Private to this folder; any thread. */
#ifndef ENGINE_DEVICE_CONFORMANCE_EXPECTED_H
#define ENGINE_DEVICE_CONFORMANCE_EXPECTED_H

#include "engine/device/conformance/reference.h"

struct expected {
    const struct device_config *config;
    struct reference_cache *cache; /* of each layer */
    /* one row each; kv: K, V, a rotated head; mid: before down; dense: a second h */
    float *h, *q, *kv, *heads, *mid, *dense;
    float *queries, *gates; /* max_rows rows */
    float **state; /* of each layer that convolves: what it keeps of the last tokens; else NULL */
    /* of the last indexer: max_rows times the positions a row sees, or whether each is; context
     * each */
    int *chosen;
};

/* Both 0 or ERR_MEMORY; release also frees a failed init. c outlives x. */
int expected_init(struct expected *x, const struct device_config *c);
void expected_release(struct expected *x);
int expected_attention(struct expected *x, const struct attention_job *j);
/* convolved.c: writes the queries of all rows to x->queries, their keys and values to the cache. */
int expected_convolve(struct expected *x, const struct attention_job *j);
/* Values of x->state of a layer: the projections of the last tokens' queries and keys, the oldest
 * first, and the last one's half of the next one's values; 0: another mixer. */
size_t expected_convolved_state(const struct mixer_shape *s);
int expected_route(struct expected *x, const struct route_job *j);
int expected_experts(struct expected *x, const struct experts_job *j);
void expected_combine(struct expected *x, const struct combine_job *j);
int expected_head(struct expected *x, const struct head_job *j);
int expected_layers(struct expected *x, const struct layers_job *j);

#endif
