/* See lens.h. */
#include "engine/run/lens/lens.h"

#include "engine/base/mem.h"
#include "engine/device/numerics.h"
#include "engine/layout/pack.h"
#include "engine/model/model.h"
#include "engine/run/internal.h"

#include <math.h>
#include <string.h>

/* A lens while its position is computed. */
struct looking {
    struct lens *l;
    const struct model *m;
    int pos;
    struct pass_tap tap;
};

static size_t at_layer(const struct lens *l, int layer)
{
    return (size_t)layer * (size_t)l->hidden;
}

static size_t at_slot(const struct lens *l, int layer, int slot)
{
    return ((size_t)layer * (size_t)l->slots + (size_t)slot) * (size_t)l->hidden;
}

static bool has_scores(const struct layer_shape *s)
{
    return s->mixer.kind == MIXER_ATTENTION || s->mixer.kind == MIXER_MLA ||
           s->mixer.kind == MIXER_CONVOLVED;
}

int lens_new(struct lens **out, struct engine *g, int positions, struct error *e)
{
    const struct hparams *hp = &g->model->hp;
    struct lens *l = *out = mem_alloc(1, sizeof *l);
    size_t layers = (size_t)hp->n_layers, hidden = (size_t)hp->hidden, slots, cells;

    if (!l)
        return error_set(e, ERR_MEMORY, "no memory for a lens");
    l->layers = hp->n_layers;
    l->hidden = hp->hidden;
    l->experts = hp->n_experts;
    l->slots = hp->n_experts_used;
    l->positions = positions;
    l->attributes = true;
    for (int i = 0; i < hp->n_layers; i++) {
        const struct layer_shape *s = hparams_layer(hp, i);

        if (has_scores(s) && s->mixer.heads > l->heads)
            l->heads = s->mixer.heads;
        l->attributes = l->attributes && !norms_sum(&s->norms) && !hp->laurel &&
                        !hparams_hyper(hp) && !s->weighted;
    }
    slots = (size_t)(l->slots > 0 ? l->slots : 1);
    cells = layers * (size_t)(l->heads > 0 ? l->heads : 1) * (size_t)positions;
    if (!(l->stream = mem_alloc((layers + 1) * hidden, sizeof *l->stream)) ||
        !(l->embedding = mem_alloc(hidden, sizeof *l->embedding)) ||
        !(l->constant = mem_alloc(hidden, sizeof *l->constant)) ||
        !(l->mixer = mem_alloc(layers * hidden, sizeof *l->mixer)) ||
        !(l->expert = mem_alloc(layers * slots * hidden, sizeof *l->expert)) ||
        !(l->chosen = mem_alloc(layers * slots, sizeof *l->chosen)) ||
        !(l->weights = mem_alloc(layers * slots, sizeof *l->weights)) ||
        !(l->scores = mem_alloc(layers * (size_t)(l->experts + 1), sizeof *l->scores)) ||
        !(l->pattern = mem_alloc(cells, sizeof *l->pattern)) ||
        !(l->logits = mem_alloc((size_t)hp->n_vocab, sizeof *l->logits))) {
        lens_free(l);
        *out = NULL;
        return error_set(e, ERR_MEMORY, "no memory for a lens of %d positions", positions);
    }
    return 0;
}

void lens_free(struct lens *l)
{
    if (!l)
        return;
    mem_free(l->stream);
    mem_free(l->embedding);
    mem_free(l->constant);
    mem_free(l->mixer);
    mem_free(l->expert);
    mem_free(l->chosen);
    mem_free(l->weights);
    mem_free(l->scores);
    mem_free(l->pattern);
    mem_free(l->logits);
    mem_free(l);
}

/* ---- norms behind operators, frozen ---- */

struct frozen {
    const struct norm_weights *norm; /* without weight: none */
    double factor;
    bool centred;
};

/* At the factor of the sum of n rows, `stride` values apart. */
static struct frozen freeze(const struct norms_shape *s, const struct norm_weights *norm,
                            const float *rows, int n, size_t stride, int hidden)
{
    struct frozen f = {.norm = norm, .factor = 1, .centred = s->kind == NORM_LAYER};
    double mean = 0, squares = 0;

    if (!norm->weight)
        return (struct frozen){.norm = norm, .factor = 1};
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < hidden; k++) {
            double v = 0;

            for (int i = 0; i < n; i++)
                v += (double)rows[(size_t)i * stride + (size_t)k];
            if (pass)
                squares += (v - mean) * (v - mean);
            else if (f.centred)
                mean += v / hidden;
        }
    f.factor = 1 / sqrt(squares / hidden + (double)s->eps);
    return f;
}

/* A part as the norm passes it on, without the norm's bias. */
static void pass_on(const struct frozen *f, float *part, int hidden)
{
    double mean = 0;

    if (!f->norm->weight)
        return;
    for (int k = 0; k < hidden && f->centred; k++)
        mean += (double)part[k] / hidden;
    for (int k = 0; k < hidden; k++)
        part[k] = (float)(((double)part[k] - mean) * f->factor * (double)f->norm->weight[k]);
}

/* ---- the tap ---- */

static void scale(float *x, size_t n, float by)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

/* What a layer's experts added, from their outputs. */
static void take_experts(const struct looking *k, const struct forward *f, int layer, int row)
{
    struct lens *l = k->l;
    const struct layer_shape *s = hparams_layer(&k->m->hp, layer);
    const struct layer_weights *w = &k->m->layers[layer];
    size_t hidden = (size_t)l->hidden;
    float *parts = l->expert + at_slot(l, layer, 0), by = hparams_residual(&k->m->hp);
    int used = shape_used(s), routed = s->ffn.used;

    memset(parts, 0, (size_t)l->slots * hidden * sizeof *parts);
    for (int i = 0; i < used; i++) {
        const float *out = f->out + ((size_t)i * (size_t)f->rows + (size_t)row) * hidden;
        float weight = shape_output_weight(&s->ffn, i, l->weights[layer * l->slots + i]) * by;

        for (size_t c = 0; c < hidden && l->chosen[layer * l->slots + i] >= 0; c++)
            parts[(size_t)i * hidden + c] = weight * out[c];
    }
    if (!s->norms.after)
        return;
    if (shape_normed_rows(s) > 1) { /* the dense part's norm, and the routed ones' */
        struct frozen dense = freeze(&s->norms, &w->shared_after, parts + (size_t)routed * hidden,
                                     1, hidden, l->hidden),
                      others = freeze(&s->norms, &w->routed_after, parts, routed, hidden,
                                      l->hidden);

        for (int i = 0; i < used; i++)
            pass_on(i < routed ? &others : &dense, parts + (size_t)i * hidden, l->hidden);
    }
    struct frozen all = freeze(&s->norms, &w->expert_after, parts, used, hidden, l->hidden);

    for (int i = 0; i < used; i++)
        pass_on(&all, parts + (size_t)i * hidden, l->hidden);
    for (size_t c = 0; c < hidden && w->expert_after.bias; c++)
        l->constant[c] += w->expert_after.bias[c];
}

/* Softmax of the scores that were kept, with the head's sink. */
static void take_pattern(const struct looking *k, int layer)
{
    struct lens *l = k->l;
    const float *sinks = k->m->layers[layer].sinks;
    int heads = hparams_layer(&k->m->hp, layer)->mixer.heads;

    for (int h = 0; h < l->heads; h++) {
        float *row = l->pattern +
                     ((size_t)layer * (size_t)l->heads + (size_t)h) * (size_t)l->positions;
        double most = sinks && h < heads ? (double)sinks[h] : -INFINITY, sum;

        for (int p = 0; p <= k->pos; p++)
            most = fmax(most, (double)row[p]);
        sum = sinks && h < heads ? exp((double)sinks[h] - most) : 0;
        for (int p = 0; p <= k->pos && isfinite(most); p++)
            sum += exp((double)row[p] - most);
        for (int p = 0; p < l->positions; p++)
            row[p] = isfinite(most) && h < heads && p <= k->pos
                         ? (float)(exp((double)row[p] - most) / sum)
                         : 0;
    }
}

/* What the token brought for this layer alone: what x has got besides its operators' parts. Counts
 * as its embedding. */
static void take_inputs(const struct looking *k, int layer, const float *x)
{
    struct lens *l = k->l;
    const float *by = k->m->layers[layer].scale;

    for (int c = 0; c < l->hidden && (!by || *by != 0.0f); c++) {
        double sum = (double)l->stream[at_layer(l, layer) + (size_t)c] +
                     (double)l->mixer[at_layer(l, layer) + (size_t)c];

        for (int i = 0; i < l->slots; i++)
            sum += (double)l->expert[at_slot(l, layer, i) + (size_t)c];
        l->embedding[c] += (float)((double)x[c] / (by ? (double)*by : 1.0) - sum);
    }
}

static void tap(void *ctx, const struct forward *f, enum tap_point where, int layer)
{
    struct looking *k = ctx;
    struct lens *l = k->l;
    const struct layer_shape *s = hparams_layer(&k->m->hp, layer);
    int row = f->rows - 1;
    size_t hidden = (size_t)l->hidden, bytes = hidden * sizeof(float);
    const float *x = f->x + (size_t)row * hidden;

    if (f->spans[0].pos + row != k->pos) /* rows before it, computed again */
        return;
    switch (where) {
    case TAP_BEFORE:
        memcpy(l->stream + at_layer(l, layer), x, bytes);
        if (layer == 0)
            memcpy(l->embedding, x, bytes);
        if (s->mixer.kind == MIXER_NONE)
            memset(l->mixer + at_layer(l, layer), 0, bytes);
        break;
    case TAP_MIXED:
        if (s->mixer.kind != MIXER_NONE)
            memcpy(l->mixer + at_layer(l, layer), f->y + (size_t)row * hidden, bytes);
        break;
    case TAP_EXPERTS: {
        size_t pairs = (size_t)l->slots, at = (size_t)(layer * f->rows + row) * pairs;

        memcpy(l->chosen + (size_t)layer * pairs, f->experts + at, pairs * sizeof *f->experts);
        memcpy(l->weights + (size_t)layer * pairs, f->weights + at, pairs * sizeof *f->weights);
        memcpy(l->scores + (size_t)(layer * l->experts),
               (f->kept_scores
                    ? f->kept_scores + (size_t)layer * (size_t)f->rows * (size_t)l->experts
                    : f->scores) +
                   (size_t)row * (size_t)l->experts,
               (size_t)shape_choices(&s->ffn) * sizeof *f->scores);
        take_experts(k, f, layer, row);
        break;
    }
    case TAP_AFTER:
        if (s->inputs)
            take_inputs(k, layer, x);
        if (s->scaled) {
            float by = *k->m->layers[layer].scale;

            scale(l->embedding, hidden, by);
            scale(l->constant, hidden, by);
            scale(l->mixer, at_layer(l, layer + 1), by);
            scale(l->expert, at_slot(l, layer + 1, 0), by);
        }
        if (layer + 1 == l->layers)
            memcpy(l->stream + at_layer(l, l->layers), x, bytes);
        break;
    }
}

/* A layer's mixer leaves its scores where its pattern will be. */
static void tap_scores(void *ctx, const struct forward *f, enum tap_point where, int layer)
{
    struct looking *k = ctx;
    struct lens *l = k->l;
    size_t n = (size_t)l->heads * (size_t)l->positions;
    float *here = l->pattern + (size_t)layer * n;

    if (where == TAP_BEFORE) {
        for (size_t i = 0; i < n; i++)
            here[i] = -INFINITY;
        k->tap.scores = l->heads && has_scores(hparams_layer(&k->m->hp, layer)) ? here : NULL;
    }
    if (where == TAP_MIXED)
        take_pattern(k, layer);
    tap(ctx, f, where, layer);
}

static int one_token(struct engine *g, int id, int pos, float *logits, struct error *e)
{
    if (pos < g->session->n_tokens)
        session_rewind(g->session, pos);
    return session_extend(g->session, &id, 1, 0, logits, false, e);
}

int engine_lens(struct engine *g, struct lens *l, int id, int pos, struct error *e)
{
    struct looking k = {.l = l, .m = g->model, .pos = pos};
    int rc;

    k.tap = (struct pass_tap){.at = tap_scores, .ctx = &k, .score_stride = l->positions};

    if (pos < 0 || pos >= l->positions || pos > g->session->n_tokens)
        return error_set(e, ERR_USAGE, "the session has no position %d to look at", pos);
    for (int i = 0; i < l->layers * l->slots; i++)
        l->chosen[i] = -1;
    memset(l->weights, 0, (size_t)(l->layers * l->slots) * sizeof *l->weights);
    memset(l->expert, 0, (size_t)l->layers * (size_t)l->slots * (size_t)l->hidden * sizeof(float));
    memset(l->scores, 0, (size_t)(l->layers * l->experts) * sizeof *l->scores);
    memset(l->constant, 0, (size_t)l->hidden * sizeof *l->constant);
    l->position = pos;
    l->token = id;
    g->forward.tap = &k.tap;
    rc = one_token(g, id, pos, l->logits, e);
    g->forward.tap = NULL;
    return rc;
}

int engine_lens_logits(struct engine *g, const struct lens *l, int layer, float *logits,
                       struct error *e)
{
    return forward_head_at(&g->forward, l->stream + at_layer(l, layer), g->forward.strengths, 1,
                           logits, e);
}

/* ---- attribution ---- */

/* Of a head whose rows are interleaved in memory: read from the file. */
static int row_of_file(struct engine *g, int id, float *out, struct error *e)
{
    struct model *raw;
    const struct matrix *h;
    int rc = model_open_raw(&raw, g->config.model_path, NULL, e);

    if (rc < 0)
        return rc;
    h = &raw->head;
    if (!row_readable(h->type))
        rc = error_set(e, ERR_MODEL, "the head's type %s cannot be read row by row",
                       dtype_info(h->type)->word);
    else
        row_to_f32(h->type,
                   (const uint8_t *)h->data +
                       (size_t)id * (size_t)dtype_row_bytes(h->type, h->cols),
                   h->cols, out);
    model_free(raw);
    return rc;
}

int engine_head_row(struct engine *g, int id, float *out, float *bias, struct error *e)
{
    const struct model *m = g->model;
    const struct matrix *h = &m->head;
    int cols = h->cols, rc = 0;
    float *row = m->project_out ? mem_alloc((size_t)cols, sizeof *row) : out;

    *bias = h->bias ? h->bias[id] : 0;
    if (!row)
        return error_set(e, ERR_MEMORY, "no memory for a row of the head");
    if (!h->width && row_readable(h->type))
        row_to_f32(h->type,
                   (const uint8_t *)h->data + (size_t)id * (size_t)dtype_row_bytes(h->type, cols),
                   cols, row);
    else
        rc = row_of_file(g, id, row, e);
    if (m->project_out) {
        for (int k = 0; k < m->hp.hidden && rc == 0; k++) {
            double sum = 0;

            for (int r = 0; r < cols; r++)
                sum += (double)m->project_out[(size_t)r * (size_t)m->hp.hidden + (size_t)k] *
                       (double)row[r];
            out[k] = (float)sum;
        }
        mem_free(row);
    }
    return rc;
}

/* sum_k u[k] * (p[k] - mean) */
static float along(const double *u, const float *p, int n, bool centred)
{
    double sum = 0, mean = 0;

    for (int k = 0; k < n && centred; k++)
        mean += (double)p[k] / n;
    for (int k = 0; k < n; k++)
        sum += u[k] * ((double)p[k] - mean);
    return (float)sum;
}

int engine_lens_parts(struct engine *g, const struct lens *l, int id, float *by, struct error *e)
{
    const struct model *m = g->model;
    const struct norms_shape *norms = &m->hp.common.norms;
    const struct norm_weights *norm = &m->output_norm;
    float *row = mem_alloc((size_t)l->hidden, sizeof *row), bias;
    double *u = mem_alloc((size_t)l->hidden, sizeof *u), constant = 0,
           over = m->hp.logit_divisor != 0.0f ? (double)m->hp.logit_divisor : 1;
    struct frozen f = freeze(norms, norm, l->stream + at_layer(l, l->layers), 1, 0, l->hidden);
    int n = 0, rc;

    if (!l->attributes)
        rc = error_set(e, ERR_USAGE,
                       "a logit is not a sum over this model's operators: its layers norm the "
                       "stream itself");
    else
        rc = row && u ? engine_head_row(g, id, row, &bias, e)
                      : error_set(e, ERR_MEMORY, "no memory for a row of the head");
    if (rc < 0)
        goto out;
    for (int k = 0; k < l->hidden; k++) {
        u[k] = (double)row[k] / over * (norm->weight ? f.factor * (double)norm->weight[k] : 1);
        constant += norm->bias ? (double)row[k] / over * (double)norm->bias[k] : 0;
    }
    by[n++] = along(u, l->embedding, l->hidden, f.centred);
    for (int i = 0; i < l->layers; i++)
        by[n++] = along(u, l->mixer + at_layer(l, i), l->hidden, f.centred);
    for (int i = 0; i < l->layers; i++)
        for (int s = 0; s < l->slots; s++)
            by[n++] = along(u, l->expert + at_slot(l, i, s), l->hidden, f.centred);
    by[n] = (float)(constant + (double)bias / over +
                    (double)along(u, l->constant, l->hidden, f.centred));
out:
    mem_free(row);
    mem_free(u);
    return rc;
}

/* ---- runners-up ---- */

int lens_runner_up(const struct engine *g, const struct lens *l, int layer)
{
    const struct ffn_shape *s = &hparams_layer(&g->model->hp, layer)->ffn;
    const struct layer_weights *w = &g->model->layers[layer];
    const float *scores = l->scores + (size_t)layer * (size_t)l->experts;
    int experts[NUM_EXPERTS], best = -1;
    float weights[NUM_EXPERTS];

    if (s->experts <= s->used || s->used < 1)
        return -1;
    if (s->router.kind != ROUTER_SPARSEMIXER) {
        num_route(&s->router, scores, w->router_bias, shape_choices(s), s->used + 1, experts,
                  weights);
        return experts[s->used] < s->experts ? experts[s->used] : -1;
    }
    for (int x = 0; x < s->experts; x++) {
        bool chosen = false;

        for (int i = 0; i < s->used; i++)
            chosen = chosen || l->chosen[layer * l->slots + i] == x;
        if (!chosen && (best < 0 || scores[x] > scores[best]))
            best = x;
    }
    return best;
}

int engine_lens_swap(struct engine *g, const struct lens *l, int layer, float *logits,
                     struct error *e)
{
    int other = lens_runner_up(g, l, layer), least = 0, rc,
        used = hparams_layer(&g->model->hp, layer)->ffn.used;
    size_t n = (size_t)l->layers * (size_t)l->slots, at = (size_t)(layer * l->slots);
    uint16_t *experts = mem_alloc(n + 1, sizeof *experts);
    struct imposed_routing r = {.period = 1, .experts = experts, .only = layer + 1};

    if (!experts)
        return error_set(e, ERR_MEMORY, "no memory for other experts");
    if (other < 0 || g->routing.experts || g->forward.imposed) {
        mem_free(experts);
        return error_set(e, ERR_USAGE,
                         other < 0 ? "layer %d has no further expert"
                                   : "layer %d: routing is imposed, nothing else can be",
                         layer);
    }
    for (int i = 0; i < used; i++) {
        experts[at + (size_t)i] = (uint16_t)l->chosen[at + (size_t)i];
        if (l->weights[at + (size_t)i] <= l->weights[at + (size_t)least])
            least = i;
    }
    experts[at + (size_t)least] = (uint16_t)other;
    r.weights = l->weights;
    g->forward.imposed = &r;
    rc = one_token(g, l->token, l->position, logits, e);
    g->forward.imposed = NULL;
    mem_free(experts);
    return rc;
}
