/* See expected.h. */
#include "engine/device/conformance/expected.h"
#include "engine/base/mem.h"
#include "engine/device/numerics.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static size_t greater(size_t a, int b)
{
    return a > (size_t)b ? a : (size_t)b;
}

static const struct layer_shape *shape_of(const struct expected *x, int layer)
{
    return hparams_layer(&x->config->model->hp, layer);
}

int expected_init(struct expected *x, const struct device_config *c)
{
    const struct hparams *hp = &c->model->hp;
    size_t heads = 0, kv = 0, mid = 0;
    bool whole = true;

    *x = (struct expected){.config = c};
    x->cache = mem_alloc((size_t)hp->n_layers, sizeof *x->cache);
    x->state = mem_alloc((size_t)hp->n_layers, sizeof *x->state);
    for (int l = 0; l < hp->n_layers && x->cache && x->state; l++) {
        const struct mixer_shape *s = &hparams_layer(hp, l)->mixer;
        const struct ffn_shape *f = &hparams_layer(hp, l)->ffn;
        struct reference_cache *k = &x->cache[l];

        heads = greater(heads, s->heads * shape_query_dim(s));
        heads = greater(heads, s->heads * (s->kv_rank + s->rope_dims));
        heads = greater(greater(heads, s->q_rank), s->heads * s->value_dim);
        kv = greater(greater(kv, s->kv_heads * s->key_dim), s->kv_rank + s->rope_dims);
        mid = greater(greater(mid, f->width), f->shared_width);
        *k =
            (struct reference_cache){s->kv_heads * s->key_dim, c->context, s->kv_heads * s->key_dim,
                                     {c->kv_k, c->kv_v},       NULL,       0};
        if (s->kind == MIXER_MLA) {
            k->n = s->kv_rank + s->rope_dims;
            k->values = s->index_heads ? s->index_dim : 0;
            k->latent = s->kv_rank;
        } else if (s->index_ratio) { /* a head more, which the indexer's key lies in */
            k->n = k->values = (s->kv_heads + 1) * s->key_dim;
        }
        whole = (k->rows = mem_alloc((size_t)c->context, reference_cache_bytes(k))) && whole;
        if (expected_convolved_state(s))
            whole = (x->state[l] = mem_alloc(expected_convolved_state(s), sizeof **x->state)) &&
                    whole;
    }
    x->h = mem_alloc((size_t)hp->hidden, sizeof *x->h);
    x->dense = mem_alloc(greater((size_t)hp->hidden, hp->embedding_width), sizeof *x->dense);
    x->q = mem_alloc(heads, sizeof *x->q);
    x->kv = mem_alloc(3 * kv, sizeof *x->kv);
    x->heads = mem_alloc(heads, sizeof *x->heads);
    x->mid = mem_alloc(mid, sizeof *x->mid);
    x->queries = mem_alloc((size_t)c->max_rows * heads, sizeof *x->queries);
    x->gates = mem_alloc((size_t)c->max_rows * heads, sizeof *x->gates);
    x->chosen = mem_alloc((size_t)c->max_rows * (size_t)c->context, sizeof *x->chosen);
    return whole && x->cache && x->state && x->h && x->dense && x->q && x->kv && x->heads &&
                   x->mid && x->queries && x->gates && x->chosen
               ? 0
               : ERR_MEMORY;
}

void expected_release(struct expected *x)
{
    for (int l = 0; x->cache && l < x->config->model->hp.n_layers; l++)
        mem_free(x->cache[l].rows);
    for (int l = 0; x->state && l < x->config->model->hp.n_layers; l++)
        mem_free(x->state[l]);
    mem_free(x->cache);
    mem_free(x->state);
    mem_free(x->h);
    mem_free(x->dense);
    mem_free(x->q);
    mem_free(x->kv);
    mem_free(x->heads);
    mem_free(x->mid);
    mem_free(x->queries);
    mem_free(x->gates);
    mem_free(x->chosen);
}

static int *chosen_of(const struct expected *x, int row)
{
    return x->chosen + (size_t)row * (size_t)x->config->context;
}

static void norm_heads(const struct layer_shape *s, const float *w, float *x, int heads)
{
    int dim = s->mixer.key_dim;

    if (s->mixer.qk_norm == QK_NORM_WHOLE)
        reference_rms(x, w, heads * dim, s->norms.eps, x);
    for (int h = 0; h < heads && s->mixer.qk_norm == QK_NORM_HEAD; h++)
        reference_rms(x + h * dim, w, dim, s->norms.eps, x + h * dim);
}

/* Separates each head's query from the gate after it: from x->q. */
static void part_gates(struct expected *x, const struct mixer_shape *s, int row)
{
    int dim = s->key_dim;

    for (int h = 0; h < s->heads && s->gated && s->gate == GATE_WITHIN; h++) {
        memcpy(x->gates + ((size_t)row * (size_t)s->heads + (size_t)h) * (size_t)dim,
               x->q + (2 * h + 1) * dim, (size_t)dim * sizeof *x->gates);
        memmove(x->q + h * dim, x->q + 2 * h * dim, (size_t)dim * sizeof *x->q);
    }
}

/* The weights of a row's heads that are routed, 0 of the others. */
static void route_heads(const struct layer_weights *w, const struct mixer_shape *s, const float *h,
                        int hidden, float *gates)
{
    static const struct router_shape router = {.kind = ROUTER_SOFTMAX, .normalised = true};
    float scores[NUM_EXPERTS], weights[NUM_EXPERTS];
    int experts[NUM_EXPERTS];

    for (int e = 0; e < s->experts; e++)
        scores[e] = num_dot(w->head_router + (size_t)e * (size_t)hidden, h, hidden);
    num_route(&router, scores, NULL, s->experts, s->used, experts, weights);
    for (int i = 0; i < s->heads; i++) {
        gates[i] = 0.0f;
        for (int k = 0; k < s->used; k++)
            if (experts[k] == i % s->experts)
                gates[i] = weights[k];
    }
}

/* Writes the queries of a row to x->queries, its keys and values to the cache. */
static int project(struct expected *x, const struct attention_job *j, int row)
{
    const struct hparams *hp = &x->config->model->hp;
    const struct layer_weights *w = &x->config->model->layers[j->layer];
    const struct layer_shape *shape = shape_of(x, j->layer);
    const struct mixer_shape *s = &shape->mixer;
    int dim = s->key_dim, half = s->rope_dims / 2, n = s->kv_heads * dim, pos = j->pos + row;
    const struct device_config *c = x->config;
    const float *cos = (s->second_rope ? c->second_cos : c->rope_cos[0]) +
                       (size_t)pos * (size_t)half;
    const float *sin = (s->second_rope ? c->second_sin : c->rope_sin[0]) +
                       (size_t)pos * (size_t)half;
    float *k = x->kv, *v = x->kv + n, *turned = v + n;
    float *queries = x->queries + (size_t)row * (size_t)(s->heads * dim);

    reference_norm(j->x + (size_t)row * (size_t)hp->hidden, &shape->norms, &w->attention_norm,
                   hp->hidden, x->h);
    if (reference_multiply(&w->q, x->h, x->q) < 0 || reference_multiply(&w->k, x->h, k) < 0 ||
        (!s->values_are_keys && reference_multiply(&w->v, x->h, v) < 0))
        return ERR_MEMORY;
    if (shape_gates(s) &&
        reference_multiply(&w->z, x->h, x->gates + (size_t)row * (size_t)(s->heads * dim)) < 0)
        return ERR_MEMORY;
    if (s->index_ratio && reference_choose_blocks(shape, w, c->rope_cos[0], c->rope_sin[0], x->h,
                                                  pos, &x->cache[j->layer], chosen_of(x, row)) < 0)
        return ERR_MEMORY;
    if (s->experts)
        route_heads(w, s, x->h, hp->hidden, x->gates + (size_t)row * (size_t)(s->heads * dim));
    if (s->values_are_keys)
        memcpy(v, k, (size_t)n * sizeof *v);
    for (int h = 0; h < s->kv_heads && s->value_norm; h++)
        reference_rms(v + h * dim, NULL, dim, shape->norms.eps, v + h * dim);
    for (int i = 0; i < n && s->value_factor != 0.0f; i++)
        v[i] = v[i] * s->value_factor;
    part_gates(x, s, row);
    if (!s->qk_norm_turned) {
        norm_heads(shape, w->q_norm, x->q, s->heads);
        norm_heads(shape, w->k_norm, k, s->kv_heads);
    }
    for (int h = 0; h < s->heads; h++)
        reference_rotate(x->q + h * dim, s, cos, sin,
                         s->qk_norm_turned ? 1.0f : shape_score_scale_at(s, pos),
                         queries + h * dim);
    if (s->qk_norm_turned)
        norm_heads(shape, w->q_norm, queries, s->heads);
    for (int i = 0; i < s->heads * dim && s->qk_norm_turned; i++)
        queries[i] = queries[i] * shape_score_scale_at(s, pos);
    for (int h = 0; h < s->kv_heads; h++) {
        reference_rotate(k + h * dim, s, cos, sin, 1.0f, turned);
        if (s->qk_norm_turned)
            norm_heads(shape, w->k_norm, turned, 1);
        reference_cache_set(&x->cache[j->layer], pos, 0, h * dim, turned, dim);
        reference_cache_set(&x->cache[j->layer], pos, 1, h * dim, v + h * dim, dim);
    }
    return 0;
}

/* Rows first .. first+rows-1 of m, both whole groups, times x. */
static int multiply_rows(const struct matrix *m, int first, int rows, const float *x, float *y)
{
    size_t row = dtype_row_bytes(m->type, m->cols);
    struct matrix part = {.type = m->type,
                          .rows = rows,
                          .cols = m->cols,
                          .width = m->width,
                          .data = (const uint8_t *)m->data + (size_t)first * row,
                          .bytes = (size_t)rows * row};

    assert(!m->width || (first % m->width == 0 && rows % m->width == 0));
    return reference_multiply(&part, x, y);
}

/* Rule 13: writes the queries of a row, in the latent space, to x->queries, its latent row to the
 * cache. */
static int project_latent(struct expected *x, const struct attention_job *j, int row)
{
    const struct hparams *hp = &x->config->model->hp;
    const struct layer_weights *w = &x->config->model->layers[j->layer];
    const struct layer_shape *shape = shape_of(x, j->layer);
    const struct mixer_shape *s = &shape->mixer,
                             turn = {.rope = s->rope,
                                     .key_dim = s->rope_dims,
                                     .rope_dims = s->rope == ROPE_NONE ? 0 : s->rope_dims};
    int rank = s->kv_rank, dims = rank + s->rope_dims, half = turn.rope_dims / 2,
        pos = j->pos + row;
    const float *cos = x->config->rope_cos[0] + (size_t)pos * (size_t)half;
    const float *sin = x->config->rope_sin[0] + (size_t)pos * (size_t)half;
    float *queries = x->queries + (size_t)row * (size_t)(s->heads * dims), *kv = x->kv;
    float *turned = x->heads, scale = shape_score_scale_at(s, pos);

    reference_norm(j->x + (size_t)row * (size_t)hp->hidden, &shape->norms, &w->attention_norm,
                   hp->hidden, x->h);
    if (s->q_rank) {
        if (reference_multiply(&w->q_a, x->h, x->heads) < 0)
            return ERR_MEMORY;
        reference_rms(x->heads, w->q_norm, s->q_rank, s->latent_eps, x->heads);
    }
    if (reference_multiply(&w->q, s->q_rank ? x->heads : x->h, x->q) < 0 ||
        reference_multiply(&w->kv_a, x->h, kv) < 0)
        return ERR_MEMORY;
    if (s->index_heads && reference_choose(s, w, cos, sin, x->h, x->heads, pos, &x->cache[j->layer],
                                           chosen_of(x, row)) < 0)
        return ERR_MEMORY;
    reference_rms(kv, w->k_norm, rank, s->latent_eps, kv);
    for (int i = 0; i < rank && s->latent_factor != 0.0f; i++)
        kv[i] = kv[i] * s->latent_factor;
    reference_rotate(kv + rank, &turn, cos, sin, 1.0f, turned);
    memcpy(kv + rank, turned, (size_t)s->rope_dims * sizeof *kv);
    reference_cache_set(&x->cache[j->layer], pos, 0, 0, kv, dims);
    for (int h = 0; h < s->heads; h++, queries += dims) {
        const float *q = x->q + h * s->key_dim;

        if (multiply_rows(&w->k_b, h * rank, rank, q, queries) < 0)
            return ERR_MEMORY;
        for (int i = 0; i < rank; i++)
            queries[i] = queries[i] * scale;
        reference_rotate(q + s->key_dim - s->rope_dims, &turn, cos, sin, scale, queries + rank);
    }
    return 0;
}

static int attend_latent(struct expected *x, const struct attention_job *j, int row)
{
    const struct mixer_shape *s = &shape_of(x, j->layer)->mixer;
    int dims = s->kv_rank + s->rope_dims, last = shape_seen_keys(s, j->pos + row) - 1;
    const float *q = x->queries + (size_t)row * (size_t)(s->heads * dims);
    const int *seen = s->index_top ? chosen_of(x, row) : NULL;

    for (int h = 0; h < s->heads; h++, q += dims)
        if (reference_attend(&x->cache[j->layer], q, 0, dims, last, 0, -INFINITY, seen, x->q) < 0 ||
            multiply_rows(&x->config->model->layers[j->layer].v_b, h * s->value_dim, s->value_dim,
                          x->q, x->heads + h * s->value_dim) < 0)
            return ERR_MEMORY;
    return 0;
}

static int attend_heads(struct expected *x, const struct attention_job *j, int row)
{
    const struct mixer_shape *s = &shape_of(x, j->layer)->mixer;
    const float *sinks = x->config->model->layers[j->layer].sinks;
    int dim = s->key_dim, group = s->heads / s->kv_heads;
    int pos = j->pos + row;
    const float *q = x->queries + (size_t)row * (size_t)(s->heads * dim);

    for (int h = 0; h < s->heads; h++)
        if (reference_attend(&x->cache[j->layer], q + h * dim, h / group, dim, j->pos + row,
                             s->window ? pos - shape_first_key(s, pos) + 1 : 0,
                             sinks ? sinks[h] : -INFINITY,
                             s->index_ratio ? chosen_of(x, row) : NULL, x->heads + h * dim) < 0)
            return ERR_MEMORY;
    for (int i = 0; i < s->heads * dim && s->gated; i++) {
        bool of_head = s->gate == GATE_HEADS || s->gate == GATE_ROUTED;
        float gate = x->gates[row * s->heads * dim + (of_head ? i / dim : i)];

        if (s->gate == GATE_ROUTED)
            x->heads[i] = gate == 0.0f ? 0.0f : x->heads[i] * gate;
        else
            x->heads[i] = x->heads[i] * (s->gate_softplus ? num_softplus(gate) : num_sigmoid(gate));
    }
    return 0;
}

/* Whether the output of a layer's operator replaces the stream: a norm after the sum. */
static bool becomes(const struct expected *x, int layer)
{
    return norms_sum(&shape_of(x, layer)->norms);
}

int expected_attention(struct expected *x, const struct attention_job *j)
{
    const struct hparams *hp = &x->config->model->hp;
    bool latent = shape_of(x, j->layer)->mixer.kind == MIXER_MLA;

    if (x->state[j->layer] && expected_convolve(x, j) < 0)
        return ERR_MEMORY;
    for (int r = 0; r < j->rows && !x->state[j->layer]; r++)
        if ((latent ? project_latent(x, j, r) : project(x, j, r)) < 0)
            return ERR_MEMORY;
    for (int r = 0; r < j->rows; r++) {
        struct norms_shape behind = norms_behind(&shape_of(x, j->layer)->norms);
        float *y = j->y + (size_t)r * (size_t)hp->hidden;

        if ((latent ? attend_latent(x, j, r) : attend_heads(x, j, r)) < 0 ||
            reference_multiply(&x->config->model->layers[j->layer].o, x->heads, y) < 0)
            return ERR_MEMORY;
        for (int i = 0; i < hp->hidden && hp->residual_scale != 0.0f; i++)
            y[i] = y[i] * hp->residual_scale;
        for (int i = 0; i < hp->hidden && becomes(x, j->layer); i++)
            y[i] = j->x[(size_t)r * (size_t)hp->hidden + (size_t)i] + y[i];
        if (shape_of(x, j->layer)->norms.after)
            reference_norm(y, &behind, &x->config->model->layers[j->layer].attention_after,
                           hp->hidden, y);
    }
    return 0;
}

int expected_route(struct expected *x, const struct route_job *j)
{
    const struct hparams *hp = &x->config->model->hp;
    const struct layer_weights *w = &x->config->model->layers[j->layer];
    const struct norms_shape *norms = &shape_of(x, j->layer)->norms;
    size_t n = (size_t)hp->hidden;
    bool apart = shape_normed_rows(shape_of(x, j->layer)) > 1;

    for (int r = 0; r < j->rows; r++) {
        const float *row = j->x + (size_t)r * n;
        float *h = j->h + (size_t)r * n;

        const float *before = (j->before ? j->before : j->x) + (size_t)r * n;
        bool early = shape_of(x, j->layer)->ffn.router.early;

        reference_norm(row, norms, apart ? &w->router_norm : &w->expert_norm, hp->hidden, h);
        reference_route(x->config->model, j->layer, early ? before : h,
                        j->scores + r * hp->n_experts, j->experts + r * hp->n_experts_used,
                        j->weights + r * hp->n_experts_used);
        if (!apart)
            continue;
        reference_norm(row, norms, &w->routed_norm, hp->hidden, h);
        reference_norm(row, norms, &w->expert_norm, hp->hidden, h + (size_t)j->rows * n);
    }
    return 0;
}

int expected_experts(struct expected *x, const struct experts_job *j)
{
    const struct hparams *hp = &x->config->model->hp;
    size_t n = (size_t)hp->hidden;

    for (int g = 0; g < j->n_groups; g++) {
        const struct expert_weights *w =
            &x->config->model->layers[j->layer].experts[j->groups[g].expert];
        const struct layer_shape *s = shape_of(x, j->layer);
        int behind = shape_normed_rows(s) > 1 && j->groups[g].expert == s->ffn.experts ? j->rows
                                                                                       : 0;

        for (int i = j->groups[g].first; i < j->groups[g].first + j->groups[g].count; i++) {
            const float *h = j->h + (size_t)(j->row[i] + behind) * n;
            float by = s->ffn.router.on_input && j->weights && j->slot[i] < s->ffn.used
                           ? j->weights[j->row[i] * hp->n_experts_used + j->slot[i]]
                           : 1.0f;

            if (reference_gate_up(&s->ffn, j->groups[g].expert, w, h, by, x->mid) < 0 ||
                reference_multiply(&w->down, x->mid,
                                   j->out + (size_t)(j->slot[i] * j->rows + j->row[i]) * n) < 0)
                return ERR_MEMORY;
        }
    }
    return 0;
}

/* A row's weighted experts with norms after them; uses x->h and x->dense as scratch. */
static void combine_normed(struct expected *x, const struct combine_job *j, const float *out,
                           const float *weights, float *row)
{
    const struct layer_shape *s = shape_of(x, j->layer);
    const struct norms_shape behind = norms_behind(&s->norms);
    const struct layer_weights *w = &x->config->model->layers[j->layer];
    int n = x->config->model->hp.hidden, apart = shape_normed_rows(s) > 1;
    size_t step = (size_t)j->rows * (size_t)n;

    memset(x->h, 0, (size_t)n * sizeof *x->h);
    reference_combine(out, step, weights, shape_used(s) - apart, n, x->h);
    if (apart) {
        reference_norm(x->h, &behind, &w->routed_after, n, x->h);
        reference_norm(out + (size_t)s->ffn.used * step, &behind, &w->shared_after, n, x->dense);
    }
    for (int i = 0; i < n && apart; i++)
        x->h[i] = x->h[i] + x->dense[i];
    if (!becomes(x, j->layer))
        reference_norm(x->h, &behind, &w->expert_after, n, x->h);
    for (int i = 0; i < n; i++)
        row[i] = row[i] + x->h[i];
    if (becomes(x, j->layer))
        reference_norm(row, &behind, &w->expert_after, n, row);
}

/* Rule 9 where a shortcut leaves the layer or enters the stream. */
static void combine_shortcut(const struct expected *x, const struct combine_job *j, int r,
                             const float *weights, float *row)
{
    const struct hparams *hp = &x->config->model->hp;
    const struct layer_shape *s = shape_of(x, j->layer);
    size_t n = (size_t)hp->hidden, step = (size_t)j->rows * n;
    const float *out = j->out + (size_t)r * n;
    float *kept = j->inputs + (size_t)(r + 1) * (size_t)hparams_beside(hp) - n;

    if (s->shortcut == SHORTCUT_ENTERS) {
        reference_combine(out, step, weights, shape_used(s), hp->hidden, row);
        for (size_t i = 0; i < n; i++)
            row[i] = row[i] + kept[i];
        return;
    }
    memset(kept, 0, n * sizeof *kept);
    reference_combine(out, step, weights, s->ffn.used, hp->hidden, kept);
    reference_combine(out + (size_t)s->ffn.used * step, step, weights + s->ffn.used, s->ffn.shared,
                      hp->hidden, row);
}

void expected_combine(struct expected *x, const struct combine_job *j)
{
    const struct hparams *hp = &x->config->model->hp;
    const float *scale = x->config->model->layers[j->layer].scale;
    int used = shape_used(shape_of(x, j->layer));
    size_t n = (size_t)hp->hidden;

    for (int r = 0; r < j->rows; r++) {
        float weights[REFERENCE_USED];

        for (int i = 0; i < used; i++)
            weights[i] = shape_output_weight(&shape_of(x, j->layer)->ffn, i,
                                             j->weights[r * hp->n_experts_used + i]) *
                         hparams_residual(hp);
        if (shape_of(x, j->layer)->shortcut != SHORTCUT_NONE)
            combine_shortcut(x, j, r, weights, j->x + (size_t)r * n);
        else if (shape_of(x, j->layer)->norms.after)
            combine_normed(x, j, j->out + (size_t)r * n, weights, j->x + (size_t)r * n);
        else
            reference_combine(j->out + (size_t)r * n, (size_t)j->rows * n, weights, used,
                              hp->hidden, j->x + (size_t)r * n);
        for (int i = 0; i < hp->hidden && scale; i++)
            j->x[(size_t)r * n + (size_t)i] = j->x[(size_t)r * n + (size_t)i] * *scale;
    }
}

int expected_head(struct expected *x, const struct head_job *j)
{
    const struct model *m = x->config->model;
    size_t n = (size_t)m->hp.hidden;

    for (int r = 0; r < j->rows; r++) {
        reference_norm(j->x + (size_t)r * n, &m->hp.common.norms, &m->output_norm, m->hp.hidden,
                       x->h);
        if (m->project_out)
            model_project(m->project_out, m->hp.embedding_width, m->hp.hidden, x->h, x->dense);
        if (reference_multiply(&m->head, m->project_out ? x->dense : x->h,
                               j->logits + (size_t)r * (size_t)m->hp.n_vocab) < 0)
            return ERR_MEMORY;
    }
    return 0;
}

/* One layer, its working memory: y, before (rows, hidden), h (2, rows, hidden), out (used, rows,
 * hidden), scores (rows, n_experts). */
static int one_layer(struct expected *x, const struct layers_job *j, int layer, float *y, int *row)
{
    const struct hparams *hp = &x->config->model->hp;
    int used = hp->n_experts_used, n = j->rows * used, *slot = row + n, at = (layer - j->first) * n;
    size_t count = (size_t)j->rows * (size_t)hp->hidden;
    float *before = y + count, *h = before + count, *out = h + 2 * count,
          *scores = out + (size_t)used * count;
    struct attention_job attention = {
        .layer = layer, .rows = j->rows, .pos = j->pos, .x = j->x, .y = y};
    struct route_job route = {.layer = layer,
                              .rows = j->rows,
                              .x = j->x,
                              .before = before,
                              .h = h,
                              .scores = scores,
                              .experts = j->experts + at,
                              .weights = j->weights + at,
                              .pos = j->pos};

    if (expected_attention(x, &attention) < 0)
        return ERR_MEMORY;
    if (shape_keeps_stream(shape_of(x, layer)))
        memcpy(before, j->x, count * sizeof *before);
    if (shape_of(x, layer)->parallel)
        expected_route(x, &route);
    for (size_t i = 0; i < count; i++)
        j->x[i] = becomes(x, layer) ? y[i] : j->x[i] + y[i];
    if (!shape_of(x, layer)->parallel)
        expected_route(x, &route);
    for (int i = 0; i < n; i++) {
        struct expert_group g = {route.experts[i], i, 1};
        struct experts_job one = {layer, j->rows, h, 1, &g, row, slot, out, NULL, route.weights};

        row[i] = i / used;
        slot[i] = i % used;
        if (g.expert >= 0 && expected_experts(x, &one) < 0)
            return ERR_MEMORY;
    }
    expected_combine(
        x, &(struct combine_job){
               .layer = layer, .rows = j->rows, .out = out, .weights = route.weights, .x = j->x});
    return 0;
}

int expected_layers(struct expected *x, const struct layers_job *j)
{
    const struct hparams *hp = &x->config->model->hp;
    size_t rows = (size_t)j->rows, used = (size_t)hp->n_experts_used, hidden = (size_t)hp->hidden;
    float *y = mem_alloc(rows * (hidden * (4 + used) + (size_t)hp->n_experts), sizeof *y);
    int *row = mem_alloc(2 * rows * used, sizeof *row), rc = y && row ? 0 : ERR_MEMORY;

    for (int l = j->first; l < j->last && rc == 0; l++)
        rc = one_layer(x, j, l, y, row);
    mem_free(y);
    mem_free(row);
    return rc;
}
