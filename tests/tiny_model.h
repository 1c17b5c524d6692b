/* A small random model made in memory, for tests of devices: no file, no tokenizer. Weights of one
 * type, packed at a given width. */
#ifndef TESTS_TINY_MODEL_H
#define TESTS_TINY_MODEL_H

#include "engine/model/model.h"

struct tiny_shape {
    int layers, hidden, heads, kv_heads, head_dim, ffn, experts, vocab, rope_dims, window, context;
    enum dtype type; /* of all matrices */
    int width;       /* packing of quantised ones */
    int bias;        /* attention and head bias */
    unsigned seed;
    /* of each layer, heads and widths included; NULL: all as the sizes above say, and of the kinds
     * that phimoe has */
    const struct layer_shape *shapes;
    float residual_scale; /* 0: none */
    int embedding_width;  /* 0: the head is as wide as the stream */
};

struct tiny_model {
    struct model model;
    float *rope_cos, *rope_sin;     /* (context, rope_dims / 2) */
    float *second_cos, *second_sin; /* (context, second_rope.dims / 2); NULL: no layer has it */
    void *blocks[8192];
    int n_blocks;
};

struct tiny_model *tiny_model_new(const struct tiny_shape *s);
void tiny_model_free(struct tiny_model *t);
/* Uniform in -1 .. 1; the generator of the tests. */
float tiny_random(unsigned *state);
/* A row of F8: any codes that are numbers, factors near 2. */
void tiny_f8_row(unsigned *state, int cols, uint8_t *row);
/* Scale and minimum into a block as files have it; powers of two are taken where the format has no
 * other scale. */
void tiny_put_scale(enum dtype type, uint8_t *block, float d, float m);
/* A matrix's element as F32, whatever its type and packing. */
float tiny_weight(const struct matrix *m, int row, int col);

#endif
