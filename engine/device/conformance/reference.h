/* The numeric contract (engine/device/numerics.h) as plain code over host memory: the reference of
 * the conformance suite and the back ends' self-tests. Slow and simple; any thread. Quantised
 * products are those of the scalar kernels, which implement rule 2 literally. */
#ifndef ENGINE_DEVICE_CONFORMANCE_REFERENCE_H
#define ENGINE_DEVICE_CONFORMANCE_REFERENCE_H

#include "engine/device/device.h"

/* -1 .. 1, a reproducible sequence from a seed: inputs that are the same everywhere. */
float reference_random(unsigned *seed);

/* Rule 5. */
void reference_norm(const float *x, const struct norms_shape *s, const struct norm_weights *w,
                    int n, float *y);
/* RMSNorm of rule 5; y may be x. */
/* w NULL: without weights */
void reference_rms(const float *x, const float *w, int n, float eps, float *y);
/* Rule 6 for one head, then everything times scale. y may not be x. */
void reference_rotate(const float *x, const struct mixer_shape *s, const float *cos,
                      const float *sin, float scale, float *y);
/* Rule 9 for one row of n: x += the weighted outputs; out: of slot s at s * slot_stride. */
void reference_combine(const float *out, size_t slot_stride, const float *weights, int used, int n,
                       float *x);
/* Rules 2 and 11 (exact): y (m->rows) = m times one row, bias included. ERR_MEMORY. */
int reference_multiply(const struct matrix *m, const float *x, float *y);
/* Rule 8 without its last product: mid (rows of gate and up) from one row, whose products are
 * multiplied with `by` (router_shape.on_input). ERR_MEMORY. */
int reference_gate_up(const struct ffn_shape *s, int expert, const struct expert_weights *w,
                      const float *x, float by, float *mid);
/* Rules 3 and 10 for one normed row: scores (routed experts), then experts and weights
 * (n_experts_used): the chosen ones, the shared one, -1 and 0. */
void reference_route(const struct model *m, int layer, const float *h, float *scores, int *experts,
                     float *weights);

/* Keys and values of one layer in the layout of kv_rows: rounded to the cache types, token by
 * token. Rows owned by the caller. */
struct reference_cache {
    int n, tokens;        /* n: values of one token's K */
    int values;           /* of V; MLA: of its indexer's key, 0: none; blocks: with their key */
    enum kv_type type[2]; /* of K, of V */
    char *rows;           /* tokens * reference_cache_bytes */
    int latent;           /* MLA: its values are the first so many of K; 0: not MLA */
};

size_t reference_cache_bytes(const struct reference_cache *c); /* of one token */
/* n values of K (v = 0) or V (1) from value i on; whole blocks of 32 with Q8_0. */
void reference_cache_set(struct reference_cache *c, int token, int v, int i, const float *x, int n);
/* Value i of K or V. */
float reference_cached(const struct reference_cache *c, int token, int v, int i);
/* Rule 13's product. */
float reference_lanes(const float *a, const float *b, int n);

#define REFERENCE_USED 64   /* most experts of a token */
#define REFERENCE_DIM 512   /* largest head_dim */
#define REFERENCE_CHUNKS 64 /* most chunks of keys */
/* Rules 7 and 13 for one head of the query at `token`, q already rotated and scaled: out (dim, or
 * c->latent). sink: the head's, or -inf. seen: NULL, or by rule 16: of latent rows the positions
 * of the `token` + 1 keys that it sees, of others whether it sees each position. ERR_MEMORY. */
int reference_attend(const struct reference_cache *c, const float *q, int kv_head, int dim,
                     int token, int window, float sink, const int *seen, float *out);
/* Rule 16 for the row at pos, whose indexer is w's: from h, its normed input, and latent, MLA's
 * latent query, its key to the cache, which has those before, and to chosen the positions that it
 * sees, upwards (shape_seen_keys of them). cos, sin: of this position. ERR_MEMORY. */
int reference_choose(const struct mixer_shape *s, const struct layer_weights *w, const float *cos,
                     const float *sin, const float *h, const float *latent, int pos,
                     struct reference_cache *c, int *chosen);
/* The same over blocks: from h, its normed input, the key of the indexer to the cache, behind the
 * values of its heads, and to seen (pos + 1) whether it sees each position. cos, sin: of position
 * 0. ERR_MEMORY. */
int reference_choose_blocks(const struct layer_shape *s, const struct layer_weights *w,
                            const float *cos, const float *sin, const float *h, int pos,
                            struct reference_cache *c, int *seen);

#endif
