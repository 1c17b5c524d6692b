/* Rule 16 of numerics.h as plain code over host memory; see reference.h. Any thread; pure. */
#include "engine/base/mem.h"
#include "engine/device/conformance/reference.h"
#include "engine/device/numerics.h"

#include <math.h>
#include <string.h>

#define INDEX_EPS 1e-6f

/* The key of the row at pos, to the cache. row, turned: scratch of index_dim values. */
static int store_key(const struct mixer_shape *s, const struct mixer_shape *turn,
                     const struct layer_weights *w, const float *cos, const float *sin,
                     const float *h, int pos, struct reference_cache *c, float *row, float *turned)
{
    struct norms_shape norm = {.kind = NORM_LAYER, .eps = INDEX_EPS};
    struct norm_weights by = {w->index_norm, w->index_norm_bias};

    if (reference_multiply(&w->index_k, h, row) < 0)
        return ERR_MEMORY;
    reference_norm(row, &norm, &by, s->index_dim, row);
    reference_rotate(row, turn, cos, sin, 1.0f, turned);
    reference_cache_set(c, pos, 1, 0, turned, s->index_dim);
    return 0;
}

/* Scores of the positions 0 .. pos. q: all heads, rotated; weights: of each, scaled; key: scratch
 * of index_dim values. */
static void score(const struct mixer_shape *s, const struct reference_cache *c, const float *q,
                  const float *weights, int pos, float *key, float *scores)
{
    int n = s->index_dim;

    for (int t = 0; t <= pos; t++) {
        float acc = 0.0f;

        for (int i = 0; i < n; i++)
            key[i] = reference_cached(c, t, 1, i);
        for (int h = 0; h < s->index_heads; h++) {
            float dot = reference_lanes(q + h * n, key, n);
            float part = weights[h] * (dot > 0.0f ? dot : 0.0f);

            acc = acc + part;
        }
        scores[t] = acc;
    }
}

/* Whether fewer than `top` of n positions are before t: of larger scores, or of equal ones lower.
 */
static bool is_chosen(const float *scores, int n, int t, int top)
{
    int before = 0;

    for (int i = 0; i < n; i++)
        before += scores[i] > scores[t] || (scores[i] == scores[t] && i < t);
    return before < top;
}

int reference_choose(const struct mixer_shape *s, const struct layer_weights *w, const float *cos,
                     const float *sin, const float *h, const float *latent, int pos,
                     struct reference_cache *c, int *chosen)
{
    size_t n = (size_t)s->index_dim, heads = (size_t)s->index_heads, all = heads * n;
    float *q = mem_alloc(2 * all + heads + 2 * n + (size_t)pos + 1, sizeof *q),
          *turned = q ? q + all : NULL, *weights = q ? turned + all : NULL,
          *key = q ? weights + heads : NULL, *scores = q ? key + 2 * n : NULL,
          scale = (float)(1.0 / sqrt((double)s->index_heads * s->index_dim));
    const struct mixer_shape turn = {
        .rope = s->index_rope, .key_dim = s->index_dim, .rope_dims = s->rope_dims};
    int rc = q && store_key(s, &turn, w, cos, sin, h, pos, c, key, key + n) == 0 &&
                     reference_multiply(&w->index_q, latent, q) == 0 &&
                     reference_multiply(&w->index_weights, h, weights) == 0
                 ? 0
                 : ERR_MEMORY;

    for (size_t i = 0; i < heads && rc == 0; i++) {
        reference_rotate(q + i * n, &turn, cos, sin, 1.0f, turned + i * n);
        weights[i] = weights[i] * scale;
    }
    if (rc == 0)
        score(s, c, turned, weights, pos, key, scores);
    for (int t = 0; t <= pos && rc == 0; t++)
        if (is_chosen(scores, pos + 1, t, s->index_top))
            *chosen++ = t;
    mem_free(q);
    return rc;
}

/* Whether the row at pos sees each position: those of the `most` best of n blocks, and what is
 * behind the blocks. */
static void see_blocks(const float *scores, int n, int most, int ratio, int pos, int *seen)
{
    for (int t = 0; t <= pos; t++)
        seen[t] = t / ratio >= n || is_chosen(scores, n, t / ratio, most);
}

/* The key of the block that begins at position `first`; mean: scratch of index_dim values. */
static void block_key(const struct layer_shape *s, const struct layer_weights *w, const float *cos,
                      const float *sin, const struct reference_cache *c, int first, float *mean,
                      float *key)
{
    const struct mixer_shape *m = &s->mixer;
    const struct mixer_shape turn = {
        .rope = m->index_rope, .key_dim = m->index_dim, .rope_dims = m->rope_dims};
    int at = m->kv_heads * m->key_dim, half = m->rope_dims / 2;

    for (int i = 0; i < m->index_dim; i++) {
        mean[i] = 0.0f;
        for (int t = first; t < first + m->index_ratio; t++)
            mean[i] = fmaf(1.0f / (float)m->index_ratio, reference_cached(c, t, 1, at + i),
                           mean[i]);
    }
    reference_rms(mean, w->index_norm, m->index_dim, s->norms.eps, mean);
    reference_rotate(mean, &turn, cos + (size_t)first * (size_t)half,
                     sin + (size_t)first * (size_t)half, 1.0f, key);
}

int reference_choose_blocks(const struct layer_shape *s, const struct layer_weights *w,
                            const float *cos, const float *sin, const float *h, int pos,
                            struct reference_cache *c, int *seen)
{
    const struct mixer_shape *m = &s->mixer;
    const struct mixer_shape turn = {
        .rope = m->index_rope, .key_dim = m->index_dim, .rope_dims = m->rope_dims};
    size_t n = (size_t)m->index_dim, all = (size_t)m->index_heads * n,
           here = (size_t)pos * (size_t)(m->rope_dims / 2);
    int blocks = (pos + 1) / m->index_ratio;
    float *q = mem_alloc(2 * all + 2 * n + (size_t)m->key_dim + (size_t)blocks, sizeof *q),
          *turned = q ? q + all : NULL, *mean = q ? turned + all : NULL, *key = q ? mean + n : NULL,
          *row = q ? key + n : NULL, *scores = q ? row + m->key_dim : NULL;
    int rc = q && reference_multiply(&w->index_k, h, row) == 0 &&
                     reference_multiply(&w->index_q, h, q) == 0
                 ? 0
                 : ERR_MEMORY;

    if (rc == 0) /* the rest of the head that it lies in is +0 */
        reference_cache_set(c, pos, 1, m->kv_heads * m->key_dim, row, m->key_dim);
    for (size_t i = 0; i < all && rc == 0; i += n) {
        reference_rms(q + i, w->index_q_norm, m->index_dim, s->norms.eps, q + i);
        reference_rotate(q + i, &turn, cos + here, sin + here, 1.0f, turned + i);
    }
    for (int b = 0; b < blocks && rc == 0; b++) {
        block_key(s, w, cos, sin, c, b * m->index_ratio, mean, key);
        scores[b] = 0.0f;
        for (size_t i = 0; i < all; i += n) {
            float dot = reference_lanes(turned + i, key, m->index_dim);

            scores[b] = scores[b] + (dot > 0.0f ? dot : 0.0f);
        }
    }
    if (rc == 0)
        see_blocks(scores, blocks, m->index_top / m->index_ratio, m->index_ratio, pos, seen);
    mem_free(q);
    return rc;
}
