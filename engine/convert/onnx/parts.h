/* Common parts of an exported model's graph: the values that every layer needs, and small shared
 * operators. One thread. */
#ifndef ENGINE_CONVERT_ONNX_PARTS_H
#define ENGINE_CONVERT_ONNX_PARTS_H

#include "engine/convert/onnx/graph.h"
#include "engine/convert/onnx/store.h"
#include "engine/model/model.h"

#include <stdbool.h>

/* Values by name. Rows are tokens: (tokens, hidden), tokens = batch * sequence. */
struct network {
    struct onnx_graph *g;
    struct onnx_store *s;
    const struct model *m;
    bool microsoft;         /* experts by com.microsoft.MoE */
    const char *size;       /* [batch, sequence] */
    const char *embeddings; /* as stored, in this type */
    enum onnx_type embeddings_type;
    const char *past, *total;    /* lengths of the cache, without and with these tokens */
    const char *attended;        /* (batch, 1, 1, 1, total): which columns are valid */
    const char *cosines, *sines; /* (batch, 1, sequence, rotated / 2); NULL: no rotation */
    /* (batch, 1, 1, sequence, total): 0 or -1e30, for layers with this window */
    int window;
    const char *mask; /* NULL: none yet */
};

/* x (tokens, cols) times the matrix, + its bias: (tokens, rows). */
const char *network_linear(struct network *n, const char *name, const struct matrix *w,
                           const char *x);
/* Over the last dimension; without weight it is x. */
const char *network_norm(struct network *n, const char *name, const struct norms_shape *shape,
                         const struct norm_weights *w, const char *x);
/* RMS norm over the last dimension, of so many values. */
const char *network_rms(struct network *n, const char *name, float eps, const float *weight,
                        int64_t values, const char *x);
const char *network_scale(struct network *n, const char *x, float by); /* 0 and 1: x itself */
/* For a gate and an up projection, gate NULL if the activation has none. */
const char *network_activate(struct network *n, enum activation a, const char *gate,
                             const char *up);
/* (tokens, a * b) as (batch, sequence, a, b). */
const char *network_heads(struct network *n, const char *x, int a, int b);

#endif
