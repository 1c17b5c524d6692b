/* Products of rows of activations with matrices and their adapters, forward and backward, F32.
 * Tasks are panels of a matrix, whatever the number of threads. Thread: the one that trains. */
#ifndef ENGINE_TRAIN_PRODUCTS_H
#define ENGINE_TRAIN_PRODUCTS_H

#include "engine/train/base.h"
#include "engine/train/crew.h"
#include "engine/train/modules.h"

#define FAN_MATRICES 3

/* One of the matrices multiplied with a fan's rows. */
struct product {
    const struct linear *w;
    float *y;           /* (n, ldy): output of the forward pass; dy in the backward pass */
    ptrdiff_t ldy;
    float *u, *v;       /* (n, rank): x A', kept for the backward pass; its scale * dy B */
};

/* n rows x (n, ldx) multiplied with several matrices; n may be 0. */
struct fan {
    int n;
    const float *x;
    ptrdiff_t ldx;
    float *dx; /* (n, lddx), written by the backward pass; NULL: not needed */
    ptrdiff_t lddx;
    /* (n), or NULL: weights of row i in the gradients of modules, not in dx */
    const float *counts;
    struct product products[FAN_MATRICES];
    int n_products;
};

/* Floats of scratch that a thread needs for a model. */
size_t products_scratch(const struct base *b, int rows);
/* y = x W' + bias + scale (x A') B' of every product. */
void products_forward(struct crew *c, const struct fan *fans, int n);
/* Only u, for the backward pass. */
void products_project(struct crew *c, const struct fan *fans, int n);
/* dx = sum over the products of dy W + scale (dy B) A; and adds to the gradients of trained
 * modules: scale dy'(x A') for B, scale (dy B)' x for A. */
void products_backward(struct crew *c, const struct fan *fans, int n);

#endif
