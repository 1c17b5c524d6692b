/* Synthetic routing for --routing uniform, zipf and single: the experts that each position gets
 * instead of the router's choice. The tokens are those of the text; the part of the model that a
 * step uses is known by construction. Pure; the table is the caller's. */
#ifndef APP_BENCH_ROUTING_H
#define APP_BENCH_ROUTING_H

#include "engine/base/error.h"
#include "engine/device/device.h"

/* In the order of the words of --routing. From ROUTING_UNIFORM on the choice is imposed. */
enum bench_routing { ROUTING_TEXT, ROUTING_RANDOM, ROUTING_UNIFORM, ROUTING_ZIPF, ROUTING_SINGLE };

extern const char *const bench_routing_words[];

/* Fills out for n_layers layers; seed: for reproducible tables. uniform: distinct experts with
 * equal probability; zipf: drawn without replacement, the r-th expert of a layer's permutation with
 * weight 1 / r; single: the same experts for every token of a layer. */
int bench_routing_init(struct imposed_routing *out, enum bench_routing kind, int n_layers,
                       int n_experts, int used, unsigned seed, struct error *e);
void bench_routing_release(struct imposed_routing *r);

#endif
