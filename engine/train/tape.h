/* Activations of a pass over a batch kept for the backward pass. For each layer: its input and
 * routing. The inner activations are also kept for the last layers, as many as a memory limit
 * allows; those of the others are recomputed from their input, with the stored routing, in one
 * shared buffer. The bits are the same. Owner: the trainer; laid out in one allocation. Thread: the
 * one that trains. */
#ifndef ENGINE_TRAIN_TAPE_H
#define ENGINE_TRAIN_TAPE_H

#include "engine/run/pass/rope.h"
#include "engine/train/base.h"
#include "engine/train/crew.h"
#include "engine/train/products.h"

/* A bump allocator of floats; base NULL: only counts them. */
struct room {
    float *base;
    size_t used, size;
};

float *room_take(struct room *r, size_t floats);

/* Inside a layer; d..., v_up, row_v, rows and fans, of the backward pass, are shared by all layers.
 * Rows: each routed token once for each of its experts, expert after expert; then all tokens if
 * there is a shared expert or a dense feed-forward. */
struct tape {
    float *normed, *q, *k, *v, *q_raw, *k_raw, *out; /* q_raw, k_raw: before their norms */
    float *mid, *normed_mid, *scores, *shared;       /* (n, hidden) twice, (n, experts), (n) */
    float *gathered, *gate, *up, *hidden, *dhidden;
    float *rows; /* the experts' outputs, their gradients, or the gradients of their inputs */
    float *u[4], *v_up[4];                           /* of q, k, v, o */
    float *row_u[3], *row_v[3];                      /* of gate, up, down */
    float *dq, *dk, *dv, *dout, *dmid, *dnormed;     /* dmid: (n, hidden) of any stage */
    float *dweights, *counts, *dscores; /* counts: a routed row's weight */
    int *row_of, *token_of, *first; /* (n, used); (rows); (experts + 1) */
    struct fan *fans;               /* (experts + 1) */
};

/* Of one layer, n: tokens of the batch. */
struct layer_record {
    float *x;       /* (n, hidden): its input */
    int *experts;   /* (n, used) */
    float *weights; /* (n, used) */
    bool kept;      /* after the forward pass the tape still holds what the backward pass reads */
    struct tape tape;
};

/* A batch being processed. */
struct pass {
    const struct base *base;
    struct crew *crew;
    const struct rope *rope;
    int n, sequences;
    int *starts, *ids, *positions; /* (sequences + 1), (n), (n) */
    struct layer_record *layers;   /* (n_layers + 1): the last one's x is the final state */
};

/* Lays out a pass of n tokens; requires p->layers, leaves p->starts and the following fields alone.
 * bound: bytes for the inner activations of layers beyond the shared buffer. */
void tape_lay_out(struct pass *p, struct room *r, int n, size_t bound);

#endif
