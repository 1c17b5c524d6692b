/* Expected results of convolved attention (rule 18), from every token's projections side by side:
 * those of the job's rows behind those that the layer kept. See expected.h. */
#include "engine/device/conformance/expected.h"

#include "engine/base/mem.h"
#include "engine/device/numerics.h"

#include <math.h>
#include <string.h>

/* A job's rows: queries and keys of a token are `channels` values, the first row being that of
 * token `-before`; halves of the next token's values, the first that of token -1. */
struct convolved_rows {
    const struct mixer_shape *s;
    const struct layer_weights *w;
    int before, channels, half;
    float *of, *halves;
};

size_t expected_convolved_state(const struct mixer_shape *s)
{
    if (s->kind != MIXER_CONVOLVED)
        return 0;
    return (size_t)(shape_taps_before(s) * shape_channels(s) + shape_half_values(s));
}

static const float *channels_of(const struct convolved_rows *r, int t)
{
    return r->of + (ptrdiff_t)(r->before + t) * r->channels;
}

/* The first convolution of one channel at a token. */
static float first_of(const struct convolved_rows *r, int t, int channel)
{
    const struct recurrent_weights *w = &r->w->recurrent;
    float acc = w->conv_bias ? w->conv_bias[channel] : 0.0f;

    for (int j = 0; j < r->s->taps; j++)
        acc = fmaf(channels_of(r, t - r->s->taps + 1 + j)[channel],
                   w->conv[0][j * r->channels + channel], acc);
    return acc;
}

/* The second one of a channel, over all channels of its head. */
static int second_of(const struct convolved_rows *r, int t, int channel, float *out)
{
    int n = r->s->key_dim, taps = r->s->head_taps, head = channel / n * n;
    float *x = mem_alloc((size_t)(2 * taps * n), sizeof *x), *w = x + taps * n;

    if (!x)
        return ERR_MEMORY;
    for (int j = 0; j < taps; j++)
        for (int i = 0; i < n; i++) {
            x[j * n + i] = first_of(r, t - taps + 1 + j, head + i);
            w[j * n + i] =
                r->w->head_conv[((size_t)j * (size_t)r->channels + (size_t)channel) * (size_t)n +
                                (size_t)i];
        }
    *out = num_dot(w, x, taps * n);
    if (r->w->head_conv_bias)
        *out = *out + r->w->head_conv_bias[channel];
    mem_free(x);
    return 0;
}

static float query_residual(const struct convolved_rows *r, int t, int head, int i)
{
    int n = r->s->key_dim, key = head / (r->s->heads / r->s->kv_heads);
    const float *x = channels_of(r, t);

    return (x[head * n + i] + x[(r->s->heads + key) * n + i]) * 0.5f;
}

static float key_residual(const struct convolved_rows *r, int t, int key, int i)
{
    int group = r->s->heads / r->s->kv_heads;
    float sum = query_residual(r, t, key * group, i);

    for (int h = 1; h < group; h++)
        sum = sum + query_residual(r, t, key * group + h, i);
    return sum * (1.0f / (float)group);
}

/* A head, of keys behind those of queries, before it is rotated. */
static int head_of(const struct convolved_rows *r, int t, int head, float *out)
{
    int n = r->s->key_dim, key = head - r->s->heads;
    float lanes[NUM_LANES] = {0}, by;

    for (int i = 0; i < n; i++) {
        if (second_of(r, t, head * n + i, &out[i]) < 0)
            return ERR_MEMORY;
        out[i] = out[i] + (key < 0 ? query_residual(r, t, head, i) : key_residual(r, t, key, i));
        lanes[i % NUM_LANES] = fmaf(out[i], out[i], lanes[i % NUM_LANES]);
    }
    by = num_rsqrt(num_fold(lanes) + 0x1p-46f);
    for (int i = 0; i < n; i++) {
        out[i] = out[i] * by * (float)sqrt((double)n);
        if (key >= 0)
            out[i] = out[i] * r->w->key_scale[key];
    }
    return 0;
}

/* The projections of a row of the job; its values to the cache. */
static int project(struct expected *x, const struct attention_job *j, struct convolved_rows *r,
                   int row)
{
    const struct hparams *hp = &x->config->model->hp;
    float *to = r->of + (ptrdiff_t)(r->before + row) * r->channels, *values = x->kv;

    reference_norm(j->x + (size_t)row * (size_t)hp->hidden, &hparams_layer(hp, j->layer)->norms,
                   &r->w->attention_norm, hp->hidden, x->h);
    if (reference_multiply(&r->w->q, x->h, to) < 0 ||
        reference_multiply(&r->w->k, x->h, to + r->s->heads * r->s->key_dim) < 0 ||
        reference_multiply(&r->w->v, x->h, values) < 0 ||
        reference_multiply(&r->w->v_before, x->h, r->halves + (row + 1) * r->half) < 0)
        return ERR_MEMORY;
    memcpy(values + r->half, r->halves + row * r->half, (size_t)r->half * sizeof *values);
    reference_cache_set(&x->cache[j->layer], j->pos + row, 1, 0, values, 2 * r->half);
    return 0;
}

/* The heads of a row: queries to x->queries, keys to the cache. */
static int turn(struct expected *x, const struct attention_job *j, const struct convolved_rows *r,
                int row)
{
    const struct device_config *c = x->config;
    const struct mixer_shape *s = r->s;
    int n = s->key_dim, pos = j->pos + row;
    size_t at = (size_t)pos * (size_t)(s->rope_dims / 2);
    const float *cos = (s->second_rope ? c->second_cos : c->rope_cos[0]) + at;
    const float *sin = (s->second_rope ? c->second_sin : c->rope_sin[0]) + at;
    float *queries = x->queries + (size_t)row * (size_t)(s->heads * n), *turned = x->heads;

    for (int h = 0; h < s->heads + s->kv_heads; h++) {
        bool key = h >= s->heads;

        if (head_of(r, row, h, x->q) < 0)
            return ERR_MEMORY;
        reference_rotate(x->q, s, cos, sin, key ? 1.0f : shape_score_scale_at(s, pos),
                         key ? turned : queries + h * n);
        if (key)
            reference_cache_set(&x->cache[j->layer], pos, 0, (h - s->heads) * n, turned, n);
    }
    return 0;
}

int expected_convolve(struct expected *x, const struct attention_job *j)
{
    const struct mixer_shape *s = &hparams_layer(&x->config->model->hp, j->layer)->mixer;
    struct convolved_rows r = {.s = s,
                               .w = &x->config->model->layers[j->layer],
                               .before = shape_taps_before(s),
                               .channels = shape_channels(s),
                               .half = shape_half_values(s)};
    float *state = x->state[j->layer];
    size_t kept = (size_t)(r.before * r.channels), half = (size_t)r.half, rows = (size_t)j->rows;
    int rc;

    r.of = mem_alloc(kept + rows * (size_t)r.channels + (rows + 1) * half, sizeof *r.of);
    if (!r.of)
        return ERR_MEMORY;
    r.halves = r.of + kept + rows * (size_t)r.channels;
    if (j->pos == 0)
        memset(state, 0, (kept + half) * sizeof *state);
    memcpy(r.of, state, kept * sizeof *state);
    memcpy(r.halves, j->pos == 0 && r.w->v_before.bias ? r.w->v_before.bias : state + kept,
           half * sizeof *state);
    rc = 0;
    for (int row = 0; row < j->rows && rc == 0; row++)
        rc = project(x, j, &r, row);
    for (int row = 0; row < j->rows && rc == 0; row++)
        rc = turn(x, j, &r, row);
    memcpy(state, r.of + rows * (size_t)r.channels, kept * sizeof *state);
    memcpy(state + kept, r.halves + rows * half, half * sizeof *state);
    mem_free(r.of);
    return rc;
}
