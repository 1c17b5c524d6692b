/* Which experts a text uses: counts per layer and what they say (is there a hot set? does one token
 * foretell the next?). Plain data, filled from the engine's routing observer; owner: the caller,
 * one thread. Everything is about expert calls: a token makes n_used a layer. */
#ifndef ENGINE_PLACEMENT_USAGE_H
#define ENGINE_PLACEMENT_USAGE_H

#include "engine/base/error.h"
#include "engine/model/hparams.h"

#include <stdbool.h>
#include <stdint.h>

struct usage {
    int n_layers, n_experts, n_used;
    /* n_layers: how many experts the layer's router has, and how many of them a token calls. What
     * is always called (shared experts, dense layers) is counted, but says nothing of a choice: all
     * figures below are about the routed ones, which are the first of a layer and of a call. */
    int *routed, *called;
    uint64_t tokens;
    /* (n_layers, n_experts): calls, and the sum of their routing weights */
    double *count, *weight;
    /* n_layers: calls whose expert the token before had called as well */
    double *same_as_before;
    /* n_layers: calls whose expert number was called in the layer below too */
    double *same_as_below;
    uint64_t follow; /* tokens that had one before them */
    /* private: experts of the newest token (n_layers, n_used), position that would follow it */
    int *before, next_pos;
};

struct usage_layer {
    double entropy;       /* bits; log2(n_experts) when use is uniform */
    double entropy_share; /* of that maximum */
    double imbalance;     /* most used over mean */
    double unused;        /* share of experts never called */
    bool chooses;         /* it has counts, and more experts than a token calls */
    /* consecutive tokens: share of calls repeated; what independent tokens would give */
    double overlap, overlap_chance;
    double below, below_chance; /* the same for the layer below; 0 for layer 0 */
};

/* All layers are taken to have n_experts and to call n_used of them, until usage_layers says
 * otherwise. */
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
/* Mean of the layers that choose; nothing where none has counts. */
struct usage_layer usage_mean(const struct usage *u);
/* Likeness of two texts' use: mean over the layers of the shares' common part (1: alike, 0: no
 * expert in common). */
double usage_likeness(const struct usage *a, const struct usage *b);

#endif
