/* Which experts a text uses: counts per layer and statistics of them (is there a hot set? does one
 * token predict the next?). Plain data, filled from the engine's routing observer; owner: the
 * caller, one thread. The unit is the expert call: a token makes n_used per layer. */
#ifndef ENGINE_PLACEMENT_USAGE_H
#define ENGINE_PLACEMENT_USAGE_H

#include "engine/base/error.h"
#include "engine/model/hparams.h"

#include <stdbool.h>
#include <stdint.h>

struct usage {
    int n_layers, n_experts, n_used;
    /* n_layers: routed experts of the layer, and how many of them a token calls. Experts that are
     * always called (shared experts, dense layers) are counted, but excluded from all figures
     * below: those are about the routed ones, which come first in a layer and in a call. */
    int *routed, *called;
    uint64_t tokens;
    /* (n_layers, n_experts): calls, and the sum of their routing weights */
    double *count, *weight;
    /* n_layers: calls whose expert was called by the previous token too */
    double *same_as_before;
    /* n_layers: calls whose expert number was called in the layer below too */
    double *same_as_below;
    uint64_t follow; /* tokens that had a predecessor */
    /* private: experts of the newest token (n_layers, n_used), position of its successor */
    int *before, next_pos;
};

struct usage_layer {
    double entropy;       /* bits; log2(n_experts) when use is uniform */
    double entropy_share; /* of that maximum */
    double imbalance;     /* most used over mean */
    double unused;        /* share of experts never called */
    bool chooses;         /* it has counts, and more experts than a token calls */
    /* consecutive tokens: share of repeated calls; its expectation for independent tokens */
    double overlap, overlap_chance;
    double below, below_chance; /* the same for the layer below; 0 for layer 0 */
};

/* Assumes n_experts in every layer and n_used calls per token, until usage_layers is called. */
int usage_init(struct usage *u, int n_layers, int n_experts, int n_used, struct error *e);
/* The same for a model, whose layers may differ; usage_layers: for counts read from a file. */
int usage_model_init(struct usage *u, const struct hparams *hp, struct error *e);
void usage_layers(struct usage *u, const struct hparams *hp);
void usage_release(struct usage *u);
void usage_clear(struct usage *u);
/* Rows of one forward pass: experts and weights (n_layers, rows, n_used), the first row at position
 * pos. */
void usage_add(struct usage *u, int rows, int pos, const int *experts, const float *weights);
struct usage_layer usage_layer(const struct usage *u, int layer);
/* Mean of the layers with a choice of experts; empty where none has counts. */
struct usage_layer usage_mean(const struct usage *u);
/* Similarity of two texts' use: mean over the layers of the shares' overlap (1: alike, 0: no expert
 * in common). */
double usage_likeness(const struct usage *a, const struct usage *b);

#endif
