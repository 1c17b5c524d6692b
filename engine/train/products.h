/* Products of rows of activations with matrices and the adapters on them, forwards and backwards,
 * F32. Tasks are panels of a matrix, whatever the number of threads. Thread: the one that trains.
 */
#ifndef ENGINE_TRAIN_PRODUCTS_H
#define ENGINE_TRAIN_PRODUCTS_H

#include "engine/train/base.h"
#include "engine/train/crew.h"
#include "engine/train/modules.h"

#define FAN_MATRICES 3

/* One of the matrices that a fan's rows meet. */
struct product {
    const struct linear *w;
    float *y;           /* (n, ldy): forwards y is written; backwards it holds dy */
    ptrdiff_t ldy;
    float *u, *v;       /* (n, rank): x A', kept forwards; scale * dy B, room backwards */
};

/* n rows x (n, ldx) that meet several matrices; n may be 0. */
struct fan {
    int n;
    const float *x;
    ptrdiff_t ldx;
    float *dx; /* (n, lddx), written backwards; NULL: nobody asks for it */
    ptrdiff_t lddx;
    /* (n), or NULL: the gradients of modules count row i so often, dx does not */
    const float *counts;
    struct product products[FAN_MATRICES];
    int n_products;
};

/* Floats of scratch that a thread needs for a model. */
size_t products_scratch(const struct base *b, int rows);
/* y = x W' + bias + scale (x A') B' of every product. */
void products_forward(struct crew *c, const struct fan *fans, int n);
/* u alone, for the way back. */
void products_project(struct crew *c, const struct fan *fans, int n);
/* dx = sum over the products of dy W + scale (dy B) A; and what the trained modules' gradients get:
 * scale dy'(x A') for B, scale (dy B)' x for A. */
void products_backward(struct crew *c, const struct fan *fans, int n);

#endif
