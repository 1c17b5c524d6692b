/* See conformance.h. Each test makes a job's inputs, runs the same job on the device and with
 * expected.h, and compares. */
#include "engine/device/conformance/conformance.h"
#include "engine/base/mem.h"
#include "engine/device/conformance/expected.h"
#include "engine/device/numerics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PIECE 1000      /* bytes of one call of block_put */
#define TOLERANCE 2e-3f /* of float weights: their sums, rounded once more by a cache of F16 */

struct suite {
    const struct device_ops *ops;
    const struct device_config *config;
    const struct hparams *hp;
    struct device *d;
    struct expected expected;
    struct conformance_report *report;
    unsigned seed;
    int layer; /* the tested layer */
    /* of the current job: inputs and both outputs */
    float *x, *h, *out, *got, *want, *weights, *want_weights;
    int *experts, *want_experts, *row, *slot;
    struct expert_group *groups;
};

static const char *const names[CONFORMANCE_JOBS] = {
    "blocks", "kv_rows", "attention", "route", "experts", "combine", "head", "layers", "stream"};

const char *conformance_job_name(enum conformance_job job)
{
    return names[job];
}

int conformance_wrong(const struct conformance_report *r)
{
    int n = 0;

    for (int i = 0; i < CONFORMANCE_JOBS; i++)
        n += r->wrong[i];
    return n;
}

/* ---- Findings ---- */

static void finding(struct suite *s, enum conformance_job job, enum dtype type, const char *what)
{
    struct conformance_report *r = s->report;

    r->wrong[job]++;
    if (r->n == CONFORMANCE_FINDINGS)
        return;
    r->finding[r->n] = (struct conformance_finding){.job = job, .type = type};
    snprintf(r->finding[r->n++].what, sizeof r->finding[0].what, "%.159s", what);
}

static bool held(struct suite *s, enum conformance_job job, enum dtype type, bool right,
                 const char *what)
{
    s->report->checks[job]++;
    if (!right)
        finding(s, job, type, what);
    return right;
}

/* Whether the job succeeded and was awaited, so that its outputs are valid. */
static bool done(struct suite *s, enum conformance_job job, enum dtype type, int rc,
                 struct error *e)
{
    if (rc >= 0)
        rc = s->ops->wait(s->d, e);
    return held(s, job, type, rc >= 0, e->text);
}

static bool near(float got, float want, bool exact)
{
    return exact ? num_bits(got) == num_bits(want)
                 : fabsf(got - want) <= TOLERANCE * (1.0f + fabsf(want));
}

static void compare(struct suite *s, enum conformance_job job, enum dtype type, const char *what,
                    const float *got, const float *want, size_t n)
{
    bool exact = dtype_is_quantised(type) || job == CONFORMANCE_ROUTE || job == CONFORMANCE_COMBINE;
    char text[160];
    size_t i = 0;

    while (i < n && near(got[i], want[i], exact))
        i++;
    if (i < n)
        snprintf(text, sizeof text, "%s: value %zu of %zu is %.9g, must be %.9g", what, i, n,
                 (double)got[i], (double)want[i]);
    held(s, job, type, i == n, i < n ? text : "");
}

/* ---- Inputs ---- */

static void fill(struct suite *s, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = reference_random(&s->seed);
}

static size_t row_count(const struct suite *s, int rows)
{
    return (size_t)rows * (size_t)s->hp->hidden;
}

/* Values of the normed rows of this layer's experts. */
static size_t normed_count(const struct suite *s, int rows)
{
    return row_count(s, rows) * (size_t)shape_normed_rows(hparams_layer(s->hp, s->layer));
}

static int fewer(int a, int b)
{
    return a < b ? a : b;
}

/* What a layer keeps of the last tokens besides rows, after n of them: random. */
static bool fill_state(struct suite *s, int layer, int n)
{
    float *state = s->expected.state[layer];
    struct kv_move move = {
        .layer = layer, .pos = n, .count = 0, .data = state, .write = true, .fixed = true};
    struct error e = {0};

    fill(s, state, expected_convolved_state(&hparams_layer(s->hp, layer)->mixer));
    return held(s, CONFORMANCE_KV_ROWS, s->config->model->layers[layer].q.type,
                s->ops->kv_rows(s->d, &move, &e) >= 0, e.text);
}

/* Rows 0 .. n-1 of a layer's cache, random, in the reference and on the device. */
static bool fill_cache(struct suite *s, int layer, int n)
{
    struct reference_cache *c = &s->expected.cache[layer];
    int dim = hparams_layer(s->hp, layer)->mixer.key_dim;
    struct kv_move move = {.layer = layer, .pos = 0, .count = n, .data = c->rows, .write = true};
    struct error e = {0};

    for (int t = 0; t < n; t++)
        for (int v = 0; v < 2; v++) {
            int all = v ? c->values : c->n, step = c->latent ? all : dim;

            for (int i = 0; i < all; i += step) {
                fill(s, s->x, (size_t)step);
                reference_cache_set(c, t, v, i, s->x, step);
            }
        }
    if (!held(s, CONFORMANCE_KV_ROWS, s->config->model->layers[layer].q.type,
              s->ops->kv_rows(s->d, &move, &e) >= 0, e.text))
        return false;
    return !s->expected.state[layer] || fill_state(s, layer, n);
}

/* ---- Blocks ---- */

static bool put(struct suite *s, struct block_id id, enum dtype type)
{
    struct error e = {0};
    int rc;

    while ((rc = s->ops->block_put(s->d, id, PIECE, &e)) == 0)
        ;
    return held(s, CONFORMANCE_BLOCKS, type, rc == 1, e.text);
}

static enum dtype type_of(const struct model *m, enum block_kind kind, int layer)
{
    return kind == BLOCK_HEAD     ? m->head.type
           : kind == BLOCK_EXPERT ? m->layers[layer].experts[0].up.type
                                  : m->layers[layer].q.type;
}

static bool supported(const struct suite *s, enum block_kind kind)
{
    const struct model *m = s->config->model;
    struct block_matrix list[BLOCK_MATRICES];
    bool all = true;

    for (struct block_id id = BLOCK_BEFORE; model_block_next(m, &id);) {
        const struct layer_shape *shape = kind == BLOCK_HEAD ? NULL
                                                             : hparams_layer(s->hp, id.layer);

        for (int i = 0, n = id.kind == kind ? model_block_matrices(m, id, list) : 0; i < n; i++)
            all = all && s->ops->supports(s->d, shape, kind, list[i].w->type);
    }
    return all;
}

static void for_blocks(struct suite *s, enum block_kind kind, bool there)
{
    for (struct block_id id = BLOCK_BEFORE; model_block_next(s->config->model, &id);) {
        if (id.kind != kind)
            continue;
        if (there)
            put(s, id, type_of(s->config->model, kind, id.layer));
        else
            s->ops->block_drop(s->d, id);
    }
}

/* Dropped blocks free their memory, and work again after another put (as the following jobs
 * show). */
static void test_blocks(struct suite *s)
{
    static const enum block_kind kinds[] = {BLOCK_ATTENTION, BLOCK_EXPERT, BLOCK_HEAD};
    struct device_stats before, there, after;

    s->ops->stats(s->d, &before);
    for (int round = 0; round < 2; round++) {
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            if (supported(s, kinds[k]))
                for_blocks(s, kinds[k], true);
        s->ops->stats(s->d, &there);
        if (round)
            return;
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            if (supported(s, kinds[k]))
                for_blocks(s, kinds[k], false);
        s->ops->stats(s->d, &after);
        held(s, CONFORMANCE_BLOCKS, s->config->model->type,
             after.weight_bytes == before.weight_bytes && after.kv_bytes == before.kv_bytes,
             "dropped blocks still count as resident");
    }
}

static void test_kv_rows(struct suite *s)
{
    struct reference_cache *c = &s->expected.cache[0];
    enum dtype type = s->config->model->layers[0].q.type;
    size_t row = reference_cache_bytes(c);
    int n = fewer(s->config->context, 40), from = n / 3;
    char *back = mem_alloc((size_t)n, row);
    struct kv_move all = {.layer = 0, .pos = 0, .count = n, .data = back, .write = false},
                   some = {
                       .layer = 0, .pos = from, .count = n - from, .data = back, .write = false};
    struct error e = {0};

    if (back && fill_cache(s, 0, n)) {
        if (held(s, CONFORMANCE_KV_ROWS, type, s->ops->kv_rows(s->d, &all, &e) >= 0, e.text))
            held(s, CONFORMANCE_KV_ROWS, type, memcmp(back, c->rows, (size_t)n * row) == 0,
                 "rows read back differ from those written");
        if (held(s, CONFORMANCE_KV_ROWS, type, s->ops->kv_rows(s->d, &some, &e) >= 0, e.text))
            held(s, CONFORMANCE_KV_ROWS, type,
                 memcmp(back, c->rows + (size_t)from * row, (size_t)(n - from) * row) == 0,
                 "rows read back from the middle differ from those written");
    }
    mem_free(back);
}

/* ---- Jobs ---- */

/* The layer whose choice of keys this one sees: itself where none is made. */
static int chooser_of(const struct suite *s, int layer)
{
    if (hparams_layer(s->hp, layer)->mixer.index_top)
        while (!hparams_layer(s->hp, layer)->mixer.index_heads)
            layer--;
    return layer;
}

static int test_attention_at(struct suite *s, int layer, int rows, int pos)
{
    int chooser = chooser_of(s, layer);
    enum dtype type = s->config->model->layers[layer].q.type;
    struct attention_job job = {.layer = layer, .rows = rows, .pos = pos, .x = s->x, .y = s->got},
                         want = {.layer = layer, .rows = rows, .pos = pos, .x = s->x, .y = s->want};
    struct error e = {0};
    char what[64];

    if (chooser != layer && test_attention_at(s, chooser, rows, pos) < 0)
        return ERR_MEMORY;
    fill(s, s->x, row_count(s, rows));
    if (expected_attention(&s->expected, &want) < 0)
        return ERR_MEMORY;
    snprintf(what, sizeof what, "layer %d, %d rows at position %d", layer, rows, pos);
    if (done(s, CONFORMANCE_ATTENTION, type, s->ops->attention(s->d, &job, &e), &e))
        compare(s, CONFORMANCE_ATTENTION, type, what, s->got, s->want, row_count(s, rows));
    return 0;
}

/* As many rows as fit behind pos random ones, then one more. */
static int test_attention_behind(struct suite *s, int layer, int pos)
{
    int rows = fewer(s->config->max_rows, s->config->context - pos - 1);

    if (!fill_cache(s, layer, pos) ||
        (chooser_of(s, layer) != layer && !fill_cache(s, chooser_of(s, layer), pos)))
        return 0;
    return test_attention_at(s, layer, rows, pos) < 0 ||
                   test_attention_at(s, layer, 1, pos + rows) < 0
               ? ERR_MEMORY
               : 0;
}

/* From the first position on, across a chunk border of keys, at the end of a longer context, and
 * single rows after many. */
static int test_attention(struct suite *s)
{
    int layer = s->layer, most = s->config->max_rows, context = s->config->context;
    int pos = context > NUM_CHUNK + most ? NUM_CHUNK - most / 2 : context / 2;
    int few = fewer(most, fewer(3, context / 4));

    if (test_attention_at(s, layer, few, 0) < 0 || test_attention_at(s, layer, 1, few) < 0 ||
        test_attention_behind(s, layer, pos) < 0)
        return ERR_MEMORY;
    return context > 2 * NUM_CHUNK + most ? test_attention_behind(s, layer, context - most - 2) : 0;
}

static void test_route_rows(struct suite *s, int rows)
{
    enum dtype type = s->config->model->layers[s->layer].experts[0].up.type;
    int n = rows * s->hp->n_experts_used;
    struct route_job job = {.layer = s->layer,
                            .rows = rows,
                            .x = s->x,
                            .h = s->h,
                            .scores = s->got,
                            .experts = s->experts,
                            .weights = s->weights};
    struct route_job want = {.layer = s->layer,
                             .rows = rows,
                             .x = s->x,
                             .h = s->out,
                             .scores = s->want,
                             .experts = s->want_experts,
                             .weights = s->want_weights};
    struct error e = {0};

    fill(s, s->x, row_count(s, rows));
    /* a layer with fewer experts leaves the rest of a row of scores unchanged */
    memset(s->got, 0, (size_t)(rows * s->hp->n_experts) * sizeof *s->got);
    memset(s->want, 0, (size_t)(rows * s->hp->n_experts) * sizeof *s->want);
    expected_route(&s->expected, &want);
    if (!done(s, CONFORMANCE_ROUTE, type, s->ops->route(s->d, &job, &e), &e))
        return;
    compare(s, CONFORMANCE_ROUTE, type, "normed rows", s->h, s->out, normed_count(s, rows));
    compare(s, CONFORMANCE_ROUTE, type, "scores", s->got, s->want,
            (size_t)(rows * s->hp->n_experts));
    compare(s, CONFORMANCE_ROUTE, type, "weights", s->weights, s->want_weights, (size_t)n);
    held(s, CONFORMANCE_ROUTE, type,
         memcmp(s->experts, s->want_experts, (size_t)n * sizeof(int)) == 0,
         "other experts are chosen");
}

/* Groups of the experts whose number modulo `step` is `rest`, the last one first: row r uses r +
 * its slot, and so on. */
static int make_groups(struct suite *s, int rows, int step, int rest)
{
    const struct layer_shape *shape = hparams_layer(s->hp, s->layer);
    int used = shape_used(shape), experts = shape_experts(shape), n = 0, groups = 0;

    for (int x = experts - 1; x >= 0; x--) {
        int first = n;

        for (int i = 0; i < rows * used && x % step == rest; i++)
            if ((i / used * 3 + i % used) % experts == x) {
                s->row[n] = i / used;
                s->slot[n++] = i % used;
            }
        if (n > first)
            s->groups[groups++] = (struct expert_group){x, first, n - first};
    }
    return groups;
}

static int test_experts_of(struct suite *s, enum conformance_job kind, int rows, int step, int rest)
{
    enum dtype type = s->config->model->layers[s->layer].experts[0].up.type;
    int groups = make_groups(s, rows, step, rest);
    size_t n = row_count(s, rows) * (size_t)s->hp->n_experts_used;
    struct experts_job job = {s->layer, rows,    s->h,   groups, s->groups,
                              s->row,   s->slot, s->got, NULL,   s->weights},
                       want = job;
    struct error e = {0};
    char what[64];

    if (!groups)
        return 0;
    want.out = s->want;
    fill(s, s->h, normed_count(s, rows));
    fill(s, s->weights, (size_t)(rows * s->hp->n_experts_used));
    fill(s, s->got, n); /* outputs of other devices must stay */
    memcpy(s->want, s->got, n * sizeof *s->got);
    if (expected_experts(&s->expected, &want) < 0)
        return ERR_MEMORY;
    snprintf(what, sizeof what, "%d rows, %d experts", rows, groups);
    if (done(s, kind, type, s->ops->experts(s->d, &job, &e), &e))
        compare(s, kind, type, what, s->got, s->want, n);
    return 0;
}

static int test_experts(struct suite *s, enum conformance_job kind)
{
    const int rows[] = {1, fewer(2, s->config->max_rows), s->config->max_rows};

    for (int i = 0; i < 3; i++)
        if (test_experts_of(s, kind, rows[i], 1, 0) < 0 ||
            test_experts_of(s, kind, rows[i], 2, 1) < 0)
            return ERR_MEMORY;
    return 0;
}

static int test_combine(struct suite *s)
{
    enum dtype type = s->config->model->layers[s->layer].experts[0].up.type;
    int rows = s->config->max_rows, used = s->hp->n_experts_used;
    struct combine_job job = {.layer = s->layer,
                              .rows = rows,
                              .out = s->out,
                              .weights = s->weights,
                              .x = s->got},
                       want = job;
    size_t beside = (size_t)(rows * hparams_beside(s->hp));
    struct error e = {0};

    if (beside && !(job.inputs = mem_alloc(2 * beside, sizeof *job.inputs)))
        return ERR_MEMORY;
    if (beside) {
        want.inputs = job.inputs + beside;
        fill(s, job.inputs, beside);
        memcpy(want.inputs, job.inputs, beside * sizeof *job.inputs);
    }
    want.x = s->want;
    fill(s, s->out, row_count(s, rows) * (size_t)used);
    fill(s, s->weights, (size_t)(rows * used));
    fill(s, s->got, row_count(s, rows));
    memcpy(s->want, s->got, row_count(s, rows) * sizeof *s->got);
    expected_combine(&s->expected, &want);
    if (done(s, CONFORMANCE_COMBINE, type, s->ops->combine(s->d, &job, &e), &e))
        compare(s, CONFORMANCE_COMBINE, type, "residual", s->got, s->want, row_count(s, rows));
    if (beside)
        compare(s, CONFORMANCE_COMBINE, type, "beside it", job.inputs, want.inputs, beside);
    mem_free(job.inputs);
    return 0;
}

static int test_head(struct suite *s, int rows)
{
    enum dtype type = s->config->model->head.type;
    struct head_job job = {rows, s->x, s->got, NULL}, want = {rows, s->x, s->want, NULL};
    struct error e = {0};
    char what[32];

    fill(s, s->x, row_count(s, rows));
    if (expected_head(&s->expected, &want) < 0)
        return ERR_MEMORY;
    snprintf(what, sizeof what, "logits of %d rows", rows);
    if (done(s, CONFORMANCE_HEAD, type, s->ops->head(s->d, &job, &e), &e))
        compare(s, CONFORMANCE_HEAD, type, what, s->got, s->want,
                (size_t)rows * (size_t)s->hp->n_vocab);
    return 0;
}

/* The stream behind the last layer; wanted: of these rows alone. */
static void compare_rows(struct suite *s, enum dtype type, int rows, const bool *wanted)
{
    size_t n = row_count(s, 1);

    for (int r = 0; r < rows; r++)
        if (!wanted || wanted[r])
            compare(s, CONFORMANCE_LAYERS, type,
                    wanted ? "residual stream of wanted rows" : "residual stream",
                    s->got + (size_t)r * n, s->want + (size_t)r * n, n);
}

/* All layers for rows from pos on. 0: they failed; ERR_MEMORY. */
static int run_layers(struct suite *s, int pos, int rows, const bool *wanted)
{
    enum dtype type = s->config->model->layers[s->layer].experts[0].up.type;
    int layers = s->hp->n_layers;
    struct layers_job job = {.first = 0,
                             .last = layers,
                             .rows = rows,
                             .pos = pos,
                             .x = s->got,
                             .experts = s->experts,
                             .weights = s->weights,
                             .wanted = wanted};
    struct layers_job want = {.first = 0,
                              .last = layers,
                              .rows = rows,
                              .pos = pos,
                              .x = s->want,
                              .experts = s->want_experts,
                              .weights = s->want_weights};
    size_t n = row_count(s, rows), chosen = (size_t)(layers * rows * s->hp->n_experts_used);
    struct error e = {0};

    fill(s, s->got, n);
    memcpy(s->want, s->got, n * sizeof *s->got);
    if (expected_layers(&s->expected, &want) < 0)
        return ERR_MEMORY;
    if (!done(s, CONFORMANCE_LAYERS, type, s->ops->layers(s->d, &job, &e), &e))
        return 0;
    compare_rows(s, type, rows, wanted);
    compare(s, CONFORMANCE_LAYERS, type, "routing weights", s->weights, s->want_weights, chosen);
    held(s, CONFORMANCE_LAYERS, type,
         memcmp(s->experts, s->want_experts, chosen * sizeof(int)) == 0,
         "other experts are reported");
    return 1;
}

/* All layers from position 0 on, then one more row: tests the caches left by the first pass. Then
 * again from 0 on, of which some rows are wanted, the last one, and none. */
static int test_layers(struct suite *s)
{
    int most = fewer(s->config->max_rows, s->config->context - 1), rc;
    bool *wanted = mem_alloc((size_t)most, sizeof *wanted);

    rc = wanted ? run_layers(s, 0, most, NULL) : ERR_MEMORY;
    if (rc > 0)
        rc = run_layers(s, most, 1, NULL);
    for (int i = 0; i < 3 && rc > 0; i++) {
        for (int r = 0; r < most; r++)
            wanted[r] = i == 0 ? r % 3 == 1 : i == 1 && r == most - 1;
        rc = run_layers(s, 0, most, wanted);
    }
    mem_free(wanted);
    return rc < 0 ? rc : 0;
}

/* No expert is resident: all are streamed, with and without prefetch. */
static int test_stream(struct suite *s)
{
    enum dtype type = s->config->model->layers[s->layer].experts[0].up.type;
    const int guess[] = {shape_experts(hparams_layer(s->hp, s->layer)) - 1, 0};
    struct error e = {0};

    for_blocks(s, BLOCK_EXPERT, false);
    if (held(s, CONFORMANCE_STREAM, type, s->ops->stream(s->d, true, &e) >= 0, e.text)) {
        if (s->ops->prefetch)
            s->ops->prefetch(s->d, s->layer, guess, 2);
        if (test_experts(s, CONFORMANCE_STREAM) < 0)
            return ERR_MEMORY;
        held(s, CONFORMANCE_STREAM, type, s->ops->stream(s->d, false, &e) >= 0, e.text);
    }
    for_blocks(s, BLOCK_EXPERT, true);
    return test_experts_of(s, CONFORMANCE_EXPERTS, s->config->max_rows, 1, 0);
}

/* ---- The suite ---- */

/* Whether a later layer has the same shape. */
static bool comes_again(const struct suite *s, int layer)
{
    bool again = false;

    for (int l = layer + 1; l < s->hp->n_layers; l++)
        again = again || memcmp(hparams_layer(s->hp, l), hparams_layer(s->hp, layer),
                                sizeof(struct layer_shape)) == 0;
    return again;
}

/* The jobs of one layer, each by itself. */
static int layer_run(struct suite *s, bool attention, bool experts)
{
    if (attention && test_attention(s) < 0)
        return ERR_MEMORY;
    if (s->ops->route) {
        test_route_rows(s, 1);
        test_route_rows(s, s->config->max_rows);
    }
    if (experts && test_experts(s, CONFORMANCE_EXPERTS) < 0)
        return ERR_MEMORY;
    if (s->ops->combine && test_combine(s) < 0)
        return ERR_MEMORY;
    return experts && s->ops->stream ? test_stream(s) : 0;
}

static bool fuses_all(const struct suite *s)
{
    bool all = s->ops->layers != NULL;

    for (int l = 0; l < s->hp->n_layers && all && s->ops->fuses; l++)
        all = s->ops->fuses(s->d, l);
    return all;
}

static int suite_run(struct suite *s)
{
    bool attention = supported(s, BLOCK_ATTENTION), experts = supported(s, BLOCK_EXPERT);

    test_blocks(s);
    if (attention)
        test_kv_rows(s);
    for (s->layer = 0; s->layer < s->hp->n_layers; s->layer++)
        if (!comes_again(s, s->layer) && layer_run(s, attention, experts) < 0)
            return ERR_MEMORY;
    s->layer = 0;
    if (supported(s, BLOCK_HEAD) && (test_head(s, 1) < 0 || test_head(s, s->config->max_rows) < 0))
        return ERR_MEMORY;
    return attention && experts && fuses_all(s) ? test_layers(s) : 0;
}

static int suite_init(struct suite *s)
{
    size_t rows = (size_t)s->config->max_rows, used = (size_t)s->hp->n_experts_used,
           layers = (size_t)s->hp->n_layers;
    size_t wide = (size_t)(s->hp->hidden > s->hp->n_vocab ? s->hp->hidden : s->hp->n_vocab);
    size_t out = rows * wide * (used + 1), chosen = rows * used * layers;

    if (expected_init(&s->expected, s->config) < 0)
        return ERR_MEMORY;
    s->x = mem_alloc(rows * (size_t)s->hp->hidden + REFERENCE_DIM, sizeof *s->x);
    s->h = mem_alloc(2 * rows * (size_t)s->hp->hidden, sizeof *s->h); /* shape_normed_rows */
    s->out = mem_alloc(out, sizeof *s->out);
    s->got = mem_alloc(out, sizeof *s->got);
    s->want = mem_alloc(out, sizeof *s->want);
    s->weights = mem_alloc(chosen, sizeof *s->weights);
    s->want_weights = mem_alloc(chosen, sizeof *s->want_weights);
    s->experts = mem_alloc(chosen, sizeof *s->experts);
    s->want_experts = mem_alloc(chosen, sizeof *s->want_experts);
    s->row = mem_alloc(rows * used, sizeof *s->row);
    s->slot = mem_alloc(rows * used, sizeof *s->slot);
    s->groups = mem_alloc((size_t)s->hp->n_experts, sizeof *s->groups);
    return s->x && s->h && s->out && s->got && s->want && s->weights && s->want_weights &&
                   s->experts && s->want_experts && s->row && s->slot && s->groups
               ? 0
               : ERR_MEMORY;
}

static void suite_release(struct suite *s)
{
    expected_release(&s->expected);
    mem_free(s->x);
    mem_free(s->h);
    mem_free(s->out);
    mem_free(s->got);
    mem_free(s->want);
    mem_free(s->weights);
    mem_free(s->want_weights);
    mem_free(s->experts);
    mem_free(s->want_experts);
    mem_free(s->row);
    mem_free(s->slot);
    mem_free(s->groups);
}

int conformance_run(const struct device_ops *ops, const struct device_config *c,
                    struct conformance_report *out, struct error *e)
{
    struct suite s = {.ops = ops, .config = c, .hp = &c->model->hp, .report = out, .seed = 12345};
    int rc;

    memset(out, 0, sizeof *out);
    if ((rc = ops->open(&s.d, c, e)) < 0)
        return rc;
    rc = suite_init(&s);
    if (rc == 0)
        rc = suite_run(&s);
    ops->close(s.d);
    suite_release(&s);
    return rc < 0 ? error_set(e, ERR_MEMORY, "out of memory for the conformance suite") : 0;
}
