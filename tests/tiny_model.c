/* See tiny_model.h. */
#include "tests/tiny_model.h"
#include "engine/file/format_traits.h"
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
    case SCALE_F16: memcpy(block + f->at, h, f->minimum ? 4 : 2); break;
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

static void *keep(struct tiny_model *t, size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

    if (!p || t->n_blocks == 4096)
        abort();
    memset(p, 0, bytes);
    return t->blocks[t->n_blocks++] = p;
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

static void random_experts(struct tiny_model *t, const struct tiny_shape *s,
                           const struct ffn_shape *f, struct layer_weights *w, unsigned *seed)
{
    float spread = 2.0f / sqrtf((float)s->hidden);
    int n = f->experts + f->shared;

    if (f->experts)
        w->router = random_floats(t, (size_t)f->experts * (size_t)s->hidden, spread, 0.0f, seed);
    if (f->experts && f->bias)
        w->score_bias = random_floats(t, (size_t)f->experts, 0.5f, 0.0f, seed);
    if (f->router.choice_bias)
        w->router_bias = random_floats(t, (size_t)f->experts, 0.2f, 0.0f, seed);
    if (f->shared && f->shared_gate == SHARED_SIGMOID)
        w->shared_router = random_floats(t, (size_t)s->hidden, spread, 0.0f, seed);
    w->experts = keep(t, (size_t)n * sizeof *w->experts);
    for (int e = 0; e < n; e++) {
        int width = e < f->experts ? f->width : f->shared_width;

        if (activation_gated(f->activation))
            w->experts[e].gate = random_matrix(t, s, width, s->hidden, f->bias, seed);
        w->experts[e].up = random_matrix(t, s, width, s->hidden, f->bias, seed);
        w->experts[e].down = random_matrix(t, s, s->hidden, width, f->bias, seed);
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
    w->o = random_matrix(t, s, s->hidden, m->heads * m->value_dim, s->bias, seed);
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

        w->attention_norm = random_norm(t, s->hidden, &seed);
        w->expert_norm = random_norm(t, s->hidden, &seed);
        if (shape->norms.kind != NORM_LAYER)
            w->attention_norm.bias = w->expert_norm.bias = NULL;
        if (shape->mixer.qk_norm != QK_NORM_NONE) {
            int whole = shape->mixer.qk_norm == QK_NORM_WHOLE;

            w->q_norm = random_norm(t, mix->key_dim * (whole ? mix->heads : 1), &seed).weight;
            w->k_norm = random_norm(t, mix->key_dim * (whole ? mix->kv_heads : 1), &seed).weight;
        }
        if (mix->kind == MIXER_MLA) {
            random_latent(t, s, mix, w, &seed);
            random_experts(t, s, &shape->ffn, w, &seed);
            continue;
        }
        w->q = random_matrix(t, s, mix->heads * shape_query_dim(mix), s->hidden, s->bias, &seed);
        w->k = random_matrix(t, s, mix->kv_heads * mix->key_dim, s->hidden, s->bias, &seed);
        w->v = random_matrix(t, s, mix->kv_heads * values, s->hidden, s->bias, &seed);
        w->o = random_matrix(t, s, s->hidden, mix->heads * values, s->bias, &seed);
        if (mix->sinks)
            w->sinks = random_floats(t, (size_t)mix->heads, 3.0f, 0.0f, &seed);
        random_experts(t, s, &shape->ffn, w, &seed);
    }
    t->model.output_norm = random_norm(t, s->hidden, &seed);
    if (hp->common.norms.kind != NORM_LAYER)
        t->model.output_norm.bias = NULL;
    t->model.head = random_matrix(t, s, s->vocab, s->hidden, s->bias, &seed);
    t->rope_cos = keep(t, (size_t)s->context * (size_t)hp->common.mixer.rope_dims * 2);
    t->rope_sin = keep(t, (size_t)s->context * (size_t)hp->common.mixer.rope_dims * 2);
    for (int p = 0; p < s->context; p++)
        for (int i = 0; i < hp->common.mixer.rope_dims / 2; i++) {
            double a = p * pow(10000.0, -2.0 * i / hp->common.mixer.rope_dims);

            t->rope_cos[p * (hp->common.mixer.rope_dims / 2) + i] = (float)cos(a);
            t->rope_sin[p * (hp->common.mixer.rope_dims / 2) + i] = (float)sin(a);
        }
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
            v = p[4 * (c / 4 * m->width + r) + c % 4] - 128;
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
