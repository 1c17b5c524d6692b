/* The frozen model for training: every matrix row-major, of its type in the file or the one it was
 * rounded to, dequantised panel by panel, the same forward and backward. Owner: the trainer;
 * immutable once opened, any thread reads. */
#ifndef ENGINE_TRAIN_BASE_H
#define ENGINE_TRAIN_BASE_H

#include "engine/model/block.h"
#include "engine/model/model.h"

#include <stdint.h>

struct module;

struct linear {
    enum dtype type;
    int rows, cols;
    const uint8_t *data; /* rows of row_bytes */
    size_t row_bytes;
    const float *bias; /* (rows), or NULL */
    /* its adapter's module, and this matrix's first row in it; NULL: none */
    const struct module *module;
    int first;
};

struct base_layer {
    const struct layer_shape *shape;
    const struct layer_weights *w; /* norms, router */
    struct linear q, k, v, o;
    struct linear (*experts)[3]; /* gate (rows 0: none), up, down; the shared or dense one last */
};

struct base {
    struct model *model;
    int type; /* enum dtype its matrices were rounded to, or TRAIN_BASE_KEEP */
    struct base_layer *layers;
    struct linear head;
    void **owned; /* rounded matrices */
    int n_owned;
    size_t *owned_bytes;
    uint64_t bytes; /* of all matrices, as stored */
};

/* ERR_MODEL: a family or a kind of layer without a backward pass, by name; ERR_USAGE: the weights
 * are already quantised and type is another one; and the errors of model_open_raw. */
int base_open(struct base *b, const char *path, int type, struct error *e);
/* The same for a model owned by the caller, whose matrices are all row-major. */
int base_of(struct base *b, struct model *m, int type, struct error *e);
void base_release(struct base *b);
/* A token's embedding at a position (hidden values), rounded as the matrices are. room: hidden
 * floats. */
void base_embed(const struct base *b, int id, int position, float *out, float *room);
/* Rows r .. r+n-1, columns c .. c+count-1 as F32, the leading dimension in *ld: in place, or
 * dequantised into room (n * count floats). c and count: multiples of 256, or count up to the last
 * column. */
const float *linear_panel(const struct linear *w, int r, int n, int c, int count, float *room,
                          ptrdiff_t *ld);
/* The linear of a block's part; NULL: there is no such part. */
struct linear *base_linear(struct base *b, struct block_id id, enum matrix_part part);

#endif
