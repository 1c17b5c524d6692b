/* What of a pass over a batch is kept for the way back. Of each layer: what it was given, and how
 * it routed. What is computed inside a layer stays too for the last layers, as many as a bound of
 * memory allows; that of the others is computed again from what they were given, with the stored
 * routing, in one place that they share. The bits are the same. Owner: the trainer; laid out in one
 * piece of memory. Thread: the one that trains. */
#ifndef ENGINE_TRAIN_TAPE_H
#define ENGINE_TRAIN_TAPE_H

#include "engine/run/pass/rope.h"
#include "engine/train/base.h"
#include "engine/train/crew.h"
#include "engine/train/products.h"

/* Floats are handed out one behind the other; base NULL: they are counted alone. */
struct room {
    float *base;
    size_t used, size;
};

float *room_take(struct room *r, size_t floats);

/* Inside a layer; d..., v_up, row_v, rows and fans, of what flows back, are shared by all layers.
 * Rows: each routed token once for each of its experts, expert after expert; then all tokens where
 * there is a shared expert or a dense feed-forward. */
struct tape {
    float *normed, *q, *k, *v, *q_raw, *k_raw, *out; /* q_raw, k_raw: before their norms */
    float *mid, *normed_mid, *scores, *shared;       /* (n, hidden) twice, (n, experts), (n) */
    float *gathered, *gate, *up, *hidden, *dhidden;
    float *rows; /* what experts give, what flows into it, or into what they were given */
    float *u[4], *v_up[4];                           /* of q, k, v, o */
    float *row_u[3], *row_v[3];                      /* of gate, up, down */
    float *dq, *dk, *dv, *dout, *dmid, *dnormed;     /* dmid: (n, hidden) of any stage */
    float *dweights, *counts, *dscores; /* counts: a routed row's weight */
    int *row_of, *token_of, *first; /* (n, used); (rows); (experts + 1) */
    struct fan *fans;               /* (experts + 1) */
};

/* Of one layer, n: tokens of the batch. */
struct layer_record {
    float *x;       /* (n, hidden): what it was given */
    int *experts;   /* (n, used) */
    float *weights; /* (n, used) */
    bool kept;      /* after a pass forwards the tape still holds what the way back reads */
    struct tape tape;
};

/* A batch on its way through the model. */
struct pass {
    const struct base *base;
    struct crew *crew;
    const struct rope *rope;
    int n, sequences;
    int *starts, *ids, *positions; /* (sequences + 1), (n), (n) */
    struct layer_record *layers;   /* (n_layers + 1): the last one's x is what the model ends on */
};

/* Lays a pass of n tokens out; p->layers is there, p->starts and what follows are not touched.
 * bound: bytes for the insides of layers beyond the one place that is shared. */
void tape_lay_out(struct pass *p, struct room *r, int n, size_t bound);

#endif
