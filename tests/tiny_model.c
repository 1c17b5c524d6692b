/* See tiny_model.h. */
#include "tests/tiny_model.h"
#include "engine/layout/format.h"
#include "engine/layout/pack.h"
#include "engine/device/numerics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

float tiny_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int)(*state >> 8) / 8388608.0f - 1.0f;
}

void tiny_f8_row(unsigned *state, int cols, uint8_t *row)
{
    for (int c = 0; c < cols; c++) {
        uint8_t *block = row + (size_t)(c / F8_BLOCK) * F8_BLOCK_BYTES;
        float d = 2.0f + tiny_random(state);

        if (c % F8_BLOCK == 0)
            memcpy(block, &d, sizeof d);
        block[4 + c % F8_BLOCK] = (uint8_t)(int)(128.0f + 127.9f * tiny_random(state));
        if ((block[4 + c % F8_BLOCK] & 0x7f) == 0x7f)
            block[4 + c % F8_BLOCK] = 0x7e;
    }
}

void tiny_put_scale(enum dtype type, uint8_t *block, float d, float m)
{
    const struct format_traits *f = &format_of[type];
    uint16_t h[2] = {num_to_f16(d), num_to_f16(m)};
    int e;

    frexpf(d, &e);
    switch (f->scale) {
    case SCALE_F16_1:
    case SCALE_F16_2:
    case SCALE_F16: memcpy(block + f->at, h, f->minimum ? 4 : 2); break;
    case SCALE_F32: memcpy(block + f->at, &d, 4); break;
    case SCALE_E8M0: block[f->at] = (uint8_t)(e < -126 ? 0 : e > 124 ? 252 : e + 127); break;
    case SCALE_SPREAD: /* a digit to each of four fields */
        for (int k = 0; k < 4; k++)
            block[f->at + 2 * k + 1] = (uint8_t)((block[f->at + 2 * k + 1] & 15) |
                                                 (h[0] >> 4 * k & 15) << 4);
        break;
    case SCALE_E4M3:
        e = e < -7 ? 0 : e > 7 ? 14 : e + 7;
        for (int k = 0; k < 4; k++)
            block[f->at + k] = (uint8_t)((block[f->at + k] & 7) | e << 3);
        break;
    }
}

static void *keep_aligned(struct tiny_model *t, size_t bytes, size_t align)
{
    void *p = aligned_alloc(align, (bytes + align - 1) / align * align);

    if (!p || t->n_blocks == 8192)
        abort();
    memset(p, 0, bytes);
    return t->blocks[t->n_blocks++] = p;
}

static void *keep(struct tiny_model *t, size_t bytes)
{
    return keep_aligned(t, bytes, 64);
}

static float *random_floats(struct tiny_model *t, size_t n, float scale, float offset,
                            unsigned *seed)
{
    float *x = keep(t, n * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = offset + scale * tiny_random(seed);
    return x;
}

/* Random blocks of a format that nothing here quantises to: every pattern of codes and factors,
 * scales that keep the values within +-limit. */
static void random_blocks(uint8_t *p, enum dtype type, size_t n, float limit, unsigned *seed)
{
    const struct format_traits *f = &format_of[type];
    int bytes = dtype_info(type)->bytes;
    float value = (float)(f->zero ? f->zero : format_largest(type)), factor = f->words     ? 16.0f
                                                                              : f->halves  ? 128.0f
                                                                              : f->factors ? 63.0f
                                                                                           : 1.0f;

    for (; n; n--, p += bytes) {
        float d = limit / (value * factor) * (0.6f + 0.4f * tiny_random(seed)),
              m = f->factors ? limit / 63 * 0.5f : -8 * d;
        bool minus = tiny_random(seed) < 0;

        for (int i = 0; i < bytes; i++)
            p[i] = (uint8_t)(int)(128.0f + 127.9f * tiny_random(seed));
        tiny_put_scale(type, p, minus ? -d : d, m);
    }
}

static struct matrix random_matrix(struct tiny_model *t, const struct tiny_shape *s, int rows,
                                   int cols, int bias, unsigned *seed)
{
    float limit = 1.7f / sqrtf((float)cols),
          *x = random_floats(t, (size_t)rows * (size_t)cols, limit, 0.0f, seed);
    enum dtype from = row_writable(s->type) ? DTYPE_F32 : s->type;
    struct matrix m = {
        .type = s->type, .rows = rows, .cols = cols, .width = pack_width(s->type, s->width)};
    void *data;

    m.bytes = pack_bytes(s->type, rows, cols, m.width);
    data = keep(t, m.bytes);
    if (from != DTYPE_F32)
        random_blocks((uint8_t *)x, s->type,
                      (size_t)rows * (size_t)cols / (size_t)dtype_info(s->type)->block, limit,
                      seed);
    pack_rows(data, s->type, m.width, x, from, rows, cols, 0, pack_groups(rows, m.width));
    m.data = data;
    m.bias = bias ? random_floats(t, (size_t)rows, 0.2f, 0.0f, seed) : NULL;
    return m;
}

static struct norm_weights random_norm(struct tiny_model *t, int n, unsigned *seed)
{
    struct norm_weights w = {random_floats(t, (size_t)n, 0.2f, 1.0f, seed),
                             random_floats(t, (size_t)n, 0.1f, 0.0f, seed)};

    return w;
}

/* The norms that a layer of this shape has. */
static void random_norms(struct tiny_model *t, const struct layer_shape *shape, int hidden,
                         struct layer_weights *w, unsigned *seed)
{
    struct norm_weights *const before[] = {&w->attention_norm, &w->expert_norm},
                               *const after[] = {&w->attention_after, &w->expert_after},
                               *const apart[] = {&w->routed_norm, &w->routed_after,
                                                 &w->shared_after, &w->router_norm};
    const struct norms_shape *s = &shape->norms;

    for (int i = 0; i < 2 && (s->before || !s->after); i++)
        *before[i] = random_norm(t, hidden, seed);
    for (int i = 0; i < 2 && s->after; i++)
        *after[i] = random_norm(t, hidden, seed);
    for (int i = 0; i < 4 && shape_normed_rows(shape) > 1; i++)
        *apart[i] = random_norm(t, hidden, seed);
    for (int i = 0; i < 4 && s->kind != NORM_LAYER; i++)
        apart[i]->bias = before[i % 2]->bias = after[i % 2]->bias = NULL;
    if (shape->parallel) /* the feed-forward's input is the mixer's */
        w->expert_norm = w->attention_norm;
    if (shape->scaled)
        w->scale = random_floats(t, 1, 0.2f, 0.8f, seed);
}

/* One matrix of every expert behind that of the one before, each in pages of its own, as a model's
 * file is loaded. field: of expert_weights. */
static void line_up(struct tiny_model *t, struct expert_weights *experts, int n, size_t field)
{
    const struct matrix *first = (const struct matrix *)((char *)experts + field);
    size_t step = (first->bytes + 4095) / 4096 * 4096;
    char *at = step ? keep_aligned(t, (size_t)n * step, 4096) : NULL;

    for (int x = 0; x < n && at; x++) {
        struct matrix *m = (struct matrix *)((char *)&experts[x] + field);

        m->data = memcpy(at + (size_t)x * step, m->data, m->bytes);
    }
}

static void random_experts(struct tiny_model *t, const struct tiny_shape *s,
                           const struct ffn_shape *f, struct layer_weights *w, unsigned *seed)
{
    float spread = 2.0f / sqrtf((float)s->hidden);
    int n = f->experts + shape_further(f);

    if (f->experts)
        w->router = random_floats(t, (size_t)shape_choices(f) * (size_t)s->hidden, spread, 0.0f,
                                  seed);
    if (f->experts && f->bias)
        w->score_bias = random_floats(t, (size_t)f->experts, 0.5f, 0.0f, seed);
    if (f->router.expert_scales)
        w->expert_scale = random_floats(t, (size_t)f->experts, 0.5f, 1.0f, seed);
    if (f->router.choice_bias)
        w->router_bias = random_floats(t, (size_t)shape_choices(f), 0.2f, 0.0f, seed);
    if (f->router.by_token) {
        float *table = random_floats(t, (size_t)s->vocab * (size_t)f->used, 1.0f, 0.0f, seed);

        for (int i = 0; i < s->vocab * f->used; i++) /* no expert twice */
            table[i] = (float)((i / f->used * 5 + i % f->used * 2) % f->experts);
        w->token_experts = table;
    }
    if (f->shared && f->shared_gate == SHARED_SIGMOID)
        w->shared_router = random_floats(t, (size_t)s->hidden, spread, 0.0f, seed);
    if (n)
        w->experts = keep(t, (size_t)n * sizeof *w->experts);
    for (int e = 0; e < n; e++) {
        int width = e < f->experts ? f->width : f->shared_width;

        if (activation_gated(f->activation))
            w->experts[e].gate = random_matrix(t, s, width, s->hidden, f->bias, seed);
        w->experts[e].up = random_matrix(t, s, width, s->hidden, f->bias, seed);
        w->experts[e].down = random_matrix(t, s, s->hidden, width, f->bias, seed);
    }
    if (f->experts) {
        line_up(t, w->experts, f->experts, offsetof(struct expert_weights, gate));
        line_up(t, w->experts, f->experts, offsetof(struct expert_weights, up));
        line_up(t, w->experts, f->experts, offsetof(struct expert_weights, down));
    }
}

static void random_latent(struct tiny_model *t, const struct tiny_shape *s,
                          const struct mixer_shape *m, struct layer_weights *w, unsigned *seed)
{
    int nope = m->key_dim - m->rope_dims;

    if (m->q_rank) {
        w->q_a = random_matrix(t, s, m->q_rank, s->hidden, 0, seed);
        w->q_norm = random_norm(t, m->q_rank, seed).weight;
    }
    w->q = random_matrix(t, s, m->heads * m->key_dim, m->q_rank ? m->q_rank : s->hidden, 0, seed);
    w->kv_a = random_matrix(t, s, m->kv_rank + m->rope_dims, s->hidden, s->bias, seed);
    w->k_norm = random_norm(t, m->kv_rank, seed).weight;
    w->k_b = random_matrix(t, s, m->heads * m->kv_rank, nope, 0, seed);
    w->v_b = random_matrix(t, s, m->heads * m->value_dim, m->kv_rank, 0, seed);
    if (m->gated)
        w->z = random_matrix(t, s, m->heads, s->hidden, 0, seed);
    if (m->index_heads) {
        struct norm_weights norm = random_norm(t, m->index_dim, seed);

        w->index_q = random_matrix(t, s, m->index_heads * m->index_dim, m->q_rank, 0, seed);
        w->index_k = random_matrix(t, s, m->index_dim, s->hidden, 0, seed);
        w->index_weights = random_matrix(t, s, m->index_heads, s->hidden, 0, seed);
        w->index_norm = norm.weight;
        w->index_norm_bias = norm.bias;
    }
    w->o = random_matrix(t, s, s->hidden, m->heads * m->value_dim, s->bias, seed);
}

/* The indexer of blocks of keys. */
static void random_blocks_indexer(struct tiny_model *t, const struct tiny_shape *s,
                                  const struct mixer_shape *m, struct layer_weights *w,
                                  unsigned *seed)
{
    w->index_q = random_matrix(t, s, m->index_heads * m->index_dim, s->hidden, 0, seed);
    w->index_k = random_matrix(t, s, m->index_dim, s->hidden, 0, seed);
    w->index_q_norm = random_norm(t, m->index_dim, seed).weight;
    w->index_norm = random_norm(t, m->index_dim, seed).weight;
}

static void random_convolved(struct tiny_model *t, const struct tiny_shape *s,
                             const struct mixer_shape *m, struct layer_weights *w, unsigned *seed)
{
    int half = shape_half_values(m), channels = shape_channels(m), n = m->key_dim;

    w->q = random_matrix(t, s, m->heads * n, s->hidden, s->bias, seed);
    w->k = random_matrix(t, s, m->kv_heads * n, s->hidden, s->bias, seed);
    w->v = random_matrix(t, s, half, s->hidden, s->bias, seed);
    w->v_before = random_matrix(t, s, half, s->hidden, s->bias, seed);
    w->o = random_matrix(t, s, s->hidden, m->heads * n, s->bias, seed);
    w->recurrent.conv[0] = random_floats(t, (size_t)(m->taps * channels), 0.5f, 0.2f, seed);
    w->recurrent.conv_bias = random_floats(t, (size_t)channels, 0.3f, 0.0f, seed);
    w->head_conv = random_floats(t, (size_t)(channels * n * m->head_taps), 0.2f, 0.0f, seed);
    w->head_conv_bias = random_floats(t, (size_t)channels, 0.3f, 0.0f, seed);
    w->key_scale = random_floats(t, (size_t)m->kv_heads, 0.4f, 1.0f, seed);
}

static void random_compressed(struct tiny_model *t, const struct tiny_shape *s,
                              const struct mixer_shape *m, struct layer_weights *w, unsigned *seed)
{
    int n = shape_compressed(m), of_index = shape_index_compressed(m), q = m->heads * m->key_dim,
        out = m->out_groups * m->out_rank;

    w->q_a = random_matrix(t, s, m->q_rank, s->hidden, 0, seed);
    w->q_norm = random_norm(t, m->q_rank, seed).weight;
    w->q = random_matrix(t, s, q, m->q_rank, 0, seed);
    w->kv_a = random_matrix(t, s, m->key_dim, s->hidden, 0, seed);
    w->k_norm = random_norm(t, m->key_dim, seed).weight;
    w->sinks = random_floats(t, (size_t)m->heads, 3.0f, 0.0f, seed);
    w->o_a = random_matrix(t, s, out, q / m->out_groups, 0, seed);
    w->o = random_matrix(t, s, s->hidden, out, 0, seed);
    if (!m->block)
        return;
    w->compress_keys = random_matrix(t, s, n, s->hidden, 0, seed);
    w->compress_gates = random_matrix(t, s, n, s->hidden, 0, seed);
    w->compress_bias = random_floats(t, (size_t)m->block * (size_t)n, 1.0f, 0.0f, seed);
    w->compress_norm = random_norm(t, m->key_dim, seed).weight;
    if (!m->index_heads)
        return;
    w->index_q = random_matrix(t, s, m->index_heads * m->index_dim, m->q_rank, 0, seed);
    w->index_k = random_matrix(t, s, of_index, s->hidden, 0, seed);
    w->index_gate = random_matrix(t, s, of_index, s->hidden, 0, seed);
    w->index_weights = random_matrix(t, s, m->index_heads, s->hidden, 0, seed);
    w->index_bias = random_floats(t, (size_t)m->block * (size_t)of_index, 1.0f, 0.0f, seed);
    w->index_norm = random_norm(t, m->index_dim, seed).weight;
}

/* Projections of a recurrence. A delta net that is not tiled has z with q, k and v and a with b. */
static void random_inputs(struct tiny_model *t, const struct tiny_shape *s,
                          const struct mixer_shape *m, struct layer_weights *w, unsigned *seed)
{
    int values = m->heads * m->value_dim, keys = m->heads * m->key_dim,
        channels = shape_channels(m);

    if (m->kind == MIXER_KIMI_DELTA) {
        w->q = random_matrix(t, s, keys, s->hidden, 0, seed);
        w->k = random_matrix(t, s, keys, s->hidden, 0, seed);
        w->v = random_matrix(t, s, values, s->hidden, 0, seed);
        w->a = random_matrix(t, s, keys, m->a_rank ? m->a_rank : s->hidden, 0, seed);
        if (m->a_rank)
            w->a_in = random_matrix(t, s, m->a_rank, s->hidden, 0, seed);
        if (m->z_rank)
            w->z_in = random_matrix(t, s, m->z_rank, s->hidden, 0, seed);
    } else if (m->kind == MIXER_MAMBA1) {
        w->in = random_matrix(t, s, 2 * values, s->hidden, s->bias, seed);
        w->a_in = random_matrix(t, s, shape_selection(m), values, 0, seed);
        w->a = random_matrix(t, s, values, m->a_rank, 0, seed);
    } else {
        w->in = random_matrix(t, s,
                              m->kind == MIXER_SHORT_CONVOLUTION ? 3 * values
                              : m->kind == MIXER_MAMBA2          ? values + channels + m->heads
                              : m->tiled                         ? channels
                                                                 : channels + values,
                              s->hidden, s->bias && m->kind == MIXER_MAMBA2, seed);
    }
    if (m->kind == MIXER_KIMI_DELTA || m->tiled)
        w->z = random_matrix(t, s, values, m->z_rank ? m->z_rank : s->hidden, 0, seed);
    if (m->kind == MIXER_KIMI_DELTA || m->kind == MIXER_DELTA_NET)
        w->b = random_matrix(t, s, m->heads * (m->kind == MIXER_DELTA_NET && !m->tiled ? 2 : 1),
                             s->hidden, 0, seed);
    if (m->tiled)
        w->a = random_matrix(t, s, m->heads, s->hidden, 0, seed);
}

static void random_recurrent(struct tiny_model *t, const struct tiny_shape *s,
                             const struct mixer_shape *m, struct layer_weights *w, unsigned *seed)
{
    bool kimi = m->kind == MIXER_KIMI_DELTA, mamba = shape_state_space(m);
    struct recurrent_weights *r = &w->recurrent;
    size_t heads = (size_t)m->heads, parts = kimi ? 3 : 1,
           taps = (size_t)m->taps * (size_t)shape_channels(m) / parts;

    random_inputs(t, s, m, w, seed);
    for (size_t i = 0; i < parts; i++)
        r->conv[i] = random_floats(t, taps, 0.5f, 0.2f, seed);
    if (mamba)
        r->conv_bias = random_floats(t, (size_t)shape_channels(m), 0.3f, 0.0f, seed);
    w->o = random_matrix(t, s, s->hidden, m->heads * m->value_dim, 0, seed);
    if (m->kind == MIXER_SHORT_CONVOLUTION)
        return;
    if (m->kind == MIXER_MAMBA1) {
        size_t values = (size_t)m->value_dim, state = (size_t)m->state;

        r->a = random_floats(t, state * values, 0.9f, -1.0f, seed);
        r->dt_bias = random_floats(t, values, 0.5f, 0.0f, seed);
        r->skip = random_floats(t, values, 0.5f, 0.5f, seed);
        r->dt_norm = random_floats(t, (size_t)m->a_rank, 0.3f, 1.0f, seed);
        r->b_norm = random_floats(t, state, 0.3f, 1.0f, seed);
        r->c_norm = random_floats(t, state, 0.3f, 1.0f, seed);
        return;
    }
    r->a = random_floats(t, heads, 0.9f, kimi ? 1.0f : -1.0f, seed);
    r->dt_bias = random_floats(t, heads * (kimi ? (size_t)m->key_dim : 1), 0.5f, 0.0f, seed);
    if (mamba)
        r->skip = random_floats(t, heads, 0.5f, 0.5f, seed);
    r->norm = random_floats(t, (mamba ? heads : 1) * (size_t)m->value_dim, 0.3f, 1.0f, seed);
}

static void rope_table(struct tiny_model *t, int context, int dims, int of, float **cosines,
                       float **sines)
{
    int pairs = dims / 2;

    *cosines = keep(t, (size_t)context * (size_t)dims * 2);
    *sines = keep(t, (size_t)context * (size_t)dims * 2);
    for (int p = 0; p < context; p++)
        for (int i = 0; i < pairs; i++) {
            double a = p * pow(10000.0, -2.0 * i / of);

            (*cosines)[p * pairs + i] = (float)cos(a);
            (*sines)[p * pairs + i] = (float)sin(a);
        }
}

static void make_ropes(struct tiny_model *t, int context)
{
    const struct hparams *hp = &t->model.hp;

    rope_table(t, context, hp->common.mixer.rope_dims, hp->common.mixer.rope_dims, &t->rope_cos,
               &t->rope_sin);
    if (hp->second_rope.dims)
        rope_table(t, context, hp->second_rope.dims, hp->second_rope.of, &t->second_cos,
                   &t->second_sin);
}

struct tiny_model *tiny_model_new(const struct tiny_shape *s)
{
    struct tiny_model *t = calloc(1, sizeof *t);
    unsigned seed = s->seed ? s->seed : 1;
    struct hparams *hp;

    if (!t)
        abort();
    hp = &t->model.hp;
    *hp = (struct hparams){.n_layers = s->layers,
                           .hidden = s->hidden,
                           .common.mixer.heads = s->heads,
                           .common.mixer.kv_heads = s->kv_heads,
                           .common.mixer.key_dim = s->head_dim,
                           .n_vocab = s->vocab,
                           .common.ffn.experts = s->experts,
                           .common.ffn.used = 2,
                           .common.ffn.width = s->ffn,
                           .context_max = s->context,
                           .common.mixer.rope_dims = s->rope_dims ? s->rope_dims : s->head_dim,
                           .rope_theta = 10000.0f,
                           .common.norms.eps = 1e-5f,
                           .common.ffn.router.jitter = 0.1f,
                           .common.mixer.window = s->window,
                           .common.ffn.router.kind = ROUTER_SPARSEMIXER,
                           .common.mixer.bias = s->bias,
                           .head_bias = s->bias};
    if (s->shapes) {
        hp->layers = keep(t, (size_t)s->layers * sizeof *hp->layers);
        memcpy(hp->layers, s->shapes, (size_t)s->layers * sizeof *hp->layers);
        hp->common = s->shapes[s->layers - 1];
    }
    hp->residual_scale = s->residual_scale;
    hparams_count(hp);
    t->model.family = "phimoe";
    t->model.type = s->type;
    t->model.layers = keep(t, (size_t)s->layers * sizeof *t->model.layers);
    for (int l = 0; l < s->layers; l++) {
        struct layer_weights *w = &t->model.layers[l];
        const struct layer_shape *shape = hparams_layer(hp, l);
        const struct mixer_shape *mix = &shape->mixer;
        int values = shape_value_dim(mix);

        random_norms(t, shape, s->hidden, w, &seed);
        if (shape->mixer.qk_norm != QK_NORM_NONE) {
            int whole = shape->mixer.qk_norm == QK_NORM_WHOLE;

            w->q_norm = random_norm(t, mix->key_dim * (whole ? mix->heads : 1), &seed).weight;
            w->k_norm = random_norm(t, mix->key_dim * (whole ? mix->kv_heads : 1), &seed).weight;
        }
        if (mix->kind != MIXER_ATTENTION) {
            if (mix->kind == MIXER_MLA)
                random_latent(t, s, mix, w, &seed);
            else if (mix->kind == MIXER_CONVOLVED)
                random_convolved(t, s, mix, w, &seed);
            else if (mix->kind == MIXER_COMPRESSED)
                random_compressed(t, s, mix, w, &seed);
            else if (shape_recurrent(mix))
                random_recurrent(t, s, mix, w, &seed);
            if (mix->second_rope)
                hp->second_rope.dims = hp->second_rope.of = mix->rope_dims;
            random_experts(t, s, &shape->ffn, w, &seed);
            continue;
        }
        w->q = random_matrix(t, s, mix->heads * shape_query_dim(mix), s->hidden, s->bias, &seed);
        if (shape_gates(mix))
            w->z = random_matrix(t, s, shape_gates(mix), s->hidden, 0, &seed);
        w->k = random_matrix(t, s, mix->kv_heads * mix->key_dim, s->hidden, s->bias, &seed);
        if (!mix->values_are_keys)
            w->v = random_matrix(t, s, mix->kv_heads * values, s->hidden, s->bias, &seed);
        if (mix->second_rope)
            hp->second_rope.dims = mix->rope_dims, hp->second_rope.of = mix->key_dim;
        w->o = random_matrix(t, s, s->hidden, mix->heads * values, s->bias, &seed);
        if (mix->index_ratio)
            random_blocks_indexer(t, s, mix, w, &seed);
        if (mix->experts)
            w->head_router = random_floats(t, (size_t)(mix->experts * s->hidden), 0.2f, 0.0f,
                                           &seed);
        if (mix->sinks)
            w->sinks = random_floats(t, (size_t)mix->heads, 3.0f, 0.0f, &seed);
        random_experts(t, s, &shape->ffn, w, &seed);
    }
    if (!norms_sum(&hp->common.norms))
        t->model.output_norm = random_norm(t, s->hidden, &seed);
    if (hp->common.norms.kind != NORM_LAYER)
        t->model.output_norm.bias = NULL;
    if ((hp->embedding_width = s->embedding_width))
        t->model.project_out = random_floats(t, (size_t)s->embedding_width * (size_t)s->hidden,
                                             0.1f, 0.0f, &seed);
    t->model.head = random_matrix(
        t, s, s->vocab, s->embedding_width ? s->embedding_width : s->hidden, s->bias, &seed);
    make_ropes(t, s->context);
    return t;
}

void tiny_model_free(struct tiny_model *t)
{
    for (int i = 0; i < t->n_blocks; i++)
        free(t->blocks[i]);
    free(t);
}

float tiny_weight(const struct matrix *m, int row, int col)
{
    const uint8_t *p = m->data;
    float x;

    if (m->width) {
        int bytes = dtype_info(m->type)->bytes, r = row % m->width, c = col % 32;
        uint16_t h;
        int v;

        p += ((size_t)(row / m->width) * (size_t)(m->cols / 32) + (size_t)(col / 32)) *
             (size_t)(bytes * m->width);
        memcpy(&h, p + 2 * r, 2);
        p += 2 * m->width;
        if (m->type == DTYPE_Q8_0)
            v = (p[4 * (c / 4 * m->width + r) + c % 4] ^ FORMAT_FLIP ^ 0x80) - 128;
        else
            v = (p[4 * (c % 16 / 4 * m->width + r) + c % 4] >> (c < 16 ? 0 : 4) & 15) - 8;
        return (float)v * num_from_f16(h);
    }
    row_to_f32(m->type,
               p + (size_t)row * dtype_row_bytes(m->type, m->cols) +
                   (size_t)col * (size_t)dtype_info(m->type)->bytes,
               1, &x);
    return x;
}
