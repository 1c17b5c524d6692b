/* See reference.h. */
#include "engine/device/conformance/reference.h"
#include "engine/base/mem.h"
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/device/numerics.h"

#include <math.h>
#include <string.h>

float reference_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(int)(*seed >> 8) / 8388608.0f - 1.0f;
}

void reference_rms(const float *x, const float *w, int n, float eps, float *y)
{
    float lanes[NUM_LANES] = {0}, r;

    for (int i = 0; i < n; i++)
        lanes[i % NUM_LANES] = fmaf(x[i], x[i], lanes[i % NUM_LANES]);
    r = num_rsqrt(fmaf(num_fold(lanes), 1.0f / (float)n, eps));
    for (int i = 0; i < n; i++)
        y[i] = w ? (x[i] * r) * w[i] : x[i] * r;
}

void reference_norm(const float *x, const struct norms_shape *s, const struct norm_weights *w,
                    int n, float *y)
{
    float lanes[NUM_LANES] = {0}, inv_n = 1.0f / (float)n, mean, r;

    if (!w->weight) {
        memmove(y, x, (size_t)n * sizeof *y);
        return;
    }
    if (s->kind != NORM_LAYER) {
        reference_rms(x, w->weight, n, s->eps, y);
        return;
    }
    for (int i = 0; i < n; i++)
        lanes[i % NUM_LANES] = lanes[i % NUM_LANES] + x[i];
    mean = num_fold(lanes) * inv_n;
    memset(lanes, 0, sizeof lanes);
    for (int i = 0; i < n; i++)
        lanes[i % NUM_LANES] = fmaf(x[i] - mean, x[i] - mean, lanes[i % NUM_LANES]);
    r = num_rsqrt(fmaf(num_fold(lanes), inv_n, s->eps));
    for (int i = 0; i < n; i++)
        y[i] = w->bias ? fmaf((x[i] - mean) * r, w->weight[i], w->bias[i])
                       : ((x[i] - mean) * r) * w->weight[i];
}

void reference_rotate(const float *x, const struct mixer_shape *s, const float *cos,
                      const float *sin, float scale, float *y)
{
    int half = s->rope_dims / 2;

    memcpy(y, x, (size_t)s->key_dim * sizeof *y);
    for (int i = 0; i < half; i++) {
        int a = s->rope == ROPE_PAIRS ? 2 * i : i, b = s->rope == ROPE_PAIRS ? a + 1
                                                       : s->rope == ROPE_PROPORTIONAL
                                                           ? i + s->key_dim / 2
                                                           : i + half;

        y[a] = fmaf(x[a], cos[i], -(x[b] * sin[i]));
        y[b] = fmaf(x[b], cos[i], x[a] * sin[i]);
    }
    for (int i = 0; i < s->key_dim; i++)
        y[i] = y[i] * scale;
}

void reference_combine(const float *out, size_t slot_stride, const float *weights, int used, int n,
                       float *x)
{
    for (int i = 0; i < n; i++) {
        float acc = weights[0] * out[i];

        for (int s = 1; s < used; s++)
            acc = fmaf(weights[s], out[(size_t)s * slot_stride + (size_t)i], acc);
        x[i] = x[i] + acc;
    }
}

static void multiply_float(const struct matrix *m, const float *x, float *panel, float *y)
{
    kernels_scalar.float_input(false, x, m->cols, m->cols, 1, panel);
    kernels_scalar.dot_float(m->type, false, m->data, m->bytes / (size_t)m->rows, m->rows, m->cols,
                             panel, 1, y, m->rows);
}

int reference_multiply(const struct matrix *m, const float *x, float *y)
{
    int padded = m->width ? (m->rows + m->width - 1) / m->width * m->width : m->rows;
    struct act_block *act = mem_alloc((size_t)m->cols / NUM_BLOCK + 1, sizeof *act);
    float *panel = mem_alloc((size_t)kernel_float_cols(m->cols), sizeof *panel);
    float *all = mem_alloc((size_t)padded, sizeof *all);
    int rc = act && panel && all ? 0 : ERR_MEMORY;

    if (rc == 0 && m->width) {
        kernels_scalar.quantise(x, m->cols, act, 1);
        kernels_scalar.dot[m->type](m->data, padded / m->width, m->width, m->cols, act, 1, all,
                                    padded);
    } else if (rc == 0) {
        multiply_float(m, x, panel, all);
    }
    for (int r = 0; r < m->rows && rc == 0; r++)
        y[r] = m->bias ? all[r] + m->bias[r] : all[r];
    mem_free(act);
    mem_free(panel);
    mem_free(all);
    return rc;
}

int reference_gate_up(const struct ffn_shape *s, int expert, const struct expert_weights *w,
                      const float *x, float by, float *mid)
{
    float *up = mem_alloc((size_t)w->up.rows, sizeof *up);
    int rc = !up ? ERR_MEMORY : w->gate.bytes ? reference_multiply(&w->gate, x, mid) : 0;

    if (rc == 0)
        rc = reference_multiply(&w->up, x, up);
    for (int i = 0; i < w->up.rows && rc == 0; i++)
        mid[i] = num_activate(s->activation, mid[i] * by, up[i] * by, shape_limit(s, expert));
    mem_free(up);
    return rc;
}

void reference_route(const struct model *m, int layer, const float *h, float *scores, int *experts,
                     float *weights)
{
    const struct ffn_shape *s = &hparams_layer(&m->hp, layer)->ffn;
    const struct layer_weights *w = &m->layers[layer];
    int hidden = m->hp.hidden, n = s->used;

    for (int e = 0; e < shape_choices(s); e++)
        scores[e] = num_dot(w->router + (size_t)e * (size_t)hidden, h, hidden) +
                    (w->score_bias ? w->score_bias[e] : 0.0f);
    if (s->experts)
        num_route(&s->router, scores, w->router_bias, shape_choices(s), n, experts, weights);
    for (int i = 0; i < n && w->expert_scale; i++)
        weights[i] = weights[i] * w->expert_scale[experts[i]];
    for (int i = 0; i < n; i++)
        experts[i] = experts[i] < s->experts ? experts[i] : -1;
    if (s->grouped) {
        num_adjugates(s, experts, weights, experts + n, weights + n);
        n += n;
    }
    if (s->shared) {
        experts[n] = s->experts;
        weights[n++] = s->shared_gate == SHARED_SIGMOID
                           ? num_sigmoid(num_dot(w->shared_router, h, hidden))
                           : shape_shared_factor(s);
    }
    for (; n < m->hp.n_experts_used; n++) {
        experts[n] = -1;
        weights[n] = 0.0f;
    }
}

size_t reference_cache_bytes(const struct reference_cache *c)
{
    return kv_type_bytes(c->type[0], c->n) + kv_type_bytes(c->type[1], c->values);
}

static char *cache_row(const struct reference_cache *c, int token, int v)
{
    return c->rows + (size_t)token * reference_cache_bytes(c) +
           (v ? kv_type_bytes(c->type[0], c->n) : 0);
}

float reference_cached(const struct reference_cache *c, int token, int v, int i)
{
    const char *p = cache_row(c, token, v);
    uint16_t h;
    float x;

    switch (c->type[v]) {
    case KV_F32: memcpy(&x, p + 4 * i, 4); return x;
    case KV_F16: memcpy(&h, p + 2 * i, 2); return num_from_f16(h);
    default:
        p += i / 32 * 34;
        memcpy(&h, p, 2);
        return (float)((const int8_t *)p)[2 + i % 32] * num_from_f16(h);
    }
}

void reference_cache_set(struct reference_cache *c, int token, int v, int i, const float *x, int n)
{
    char *p = cache_row(c, token, v);

    for (int k = 0; k < n; k++) {
        uint16_t h;

        if (c->type[v] == KV_F32) {
            memcpy(p + 4 * (i + k), x + k, 4);
        } else if (c->type[v] == KV_F16) {
            h = num_to_f16(x[k]);
            memcpy(p + 2 * (i + k), &h, 2);
        } else if (k % 32 == 0) {
            h = num_kv_quantise_block(x + k, (int8_t *)p + (i + k) / 32 * 34 + 2);
            memcpy(p + (i + k) / 32 * 34, &h, 2);
        }
    }
}

float reference_lanes(const float *a, const float *b, int n)
{
    float lanes[NUM_LANES] = {0};

    for (int i = 0; i < n; i++)
        lanes[i % NUM_LANES] = fmaf(a[i], b[i], lanes[i % NUM_LANES]);
    return num_fold(lanes);
}

/* One chunk of keys: tokens lo .. hi-1, those of `seen` if not NULL (reference_attend); part (dim,
 * zero) gets the sum of values. */
static void attend_chunk(const struct reference_cache *c, const float *q, int at, int dim, int lo,
                         int hi, const int *seen, float *top, float *sum, float *part)
{
    float lanes[NUM_LANES] = {0}, p[NUM_CHUNK], key[REFERENCE_DIM];
    int values = c->latent ? c->latent : dim;
    const int *list = c->latent ? seen : NULL, *sees = c->latent ? NULL : seen;

    *top = -INFINITY;
    *sum = 0.0f;
    for (int t = lo; t < hi; t++) {
        for (int i = 0; i < dim; i++)
            key[i] = reference_cached(c, list ? list[t] : t, 0, at + i);
        p[t - lo] = c->latent ? reference_lanes(q, key, dim) : num_dot(q, key, dim);
        if (sees && !sees[t])
            p[t - lo] = -INFINITY;
        *top = p[t - lo] > *top ? p[t - lo] : *top;
    }
    for (int t = lo; t<hi && * top> - INFINITY; t++) {
        p[t - lo] = num_exp(p[t - lo] - *top);
        lanes[t % NUM_LANES] = lanes[t % NUM_LANES] + p[t - lo];
        for (int i = 0; i < values; i++)
            part[i] = fmaf(p[t - lo],
                           reference_cached(c, list ? list[t] : t, c->latent ? 0 : 1, at + i),
                           part[i]);
    }
    *sum = num_fold(lanes);
}

int reference_attend(const struct reference_cache *c, const float *q, int kv_head, int dim,
                     int token, int window, float sink, const int *seen, float *out)
{
    float sums[REFERENCE_CHUNKS], tops[REFERENCE_CHUNKS], top = sink, total;
    int begin = window && token - window + 1 > 0 ? token - window + 1 : 0;
    int first = begin / NUM_CHUNK, last = token / NUM_CHUNK, values = c->latent ? c->latent : dim;
    float *part = mem_alloc((size_t)(last - first + 1) * (size_t)values, sizeof *part);

    if (!part)
        return ERR_MEMORY;
    for (int ch = first; ch <= last; ch++) {
        int from = ch * NUM_CHUNK, to = from + NUM_CHUNK, n = ch - first;

        attend_chunk(c, q, kv_head * dim, dim, begin > from ? begin : from,
                     token + 1 < to ? token + 1 : to, seen, &tops[n], &sums[n], part + n * values);
        top = tops[n] > top ? tops[n] : top;
    }
    memset(out, 0, (size_t)values * sizeof *out);
    total = num_exp(sink - top);
    for (int n = 0; n <= last - first; n++) {
        float f = num_exp(tops[n] - top);

        total = fmaf(sums[n], f, total);
        for (int i = 0; i < values; i++)
            out[i] = fmaf(part[n * values + i], f, out[i]);
    }
    for (int i = 0; i < values; i++)
        out[i] = out[i] * num_recip(total);
    mem_free(part);
    return 0;
}
