/* See golden.h. */
#include "tests/golden.h"

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/layout/pack.h"
#include "engine/run/internal.h"
#include "engine/run/state/kv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN_DIMS 4

static const void *tensor(const struct golden *g, const json_t *header, const char *name,
                          const char *type, int *dims)
{
    uint64_t data;
    const json_t *t = json_object_get(header, name), *shape = json_object_get(t, "shape"),
                 *at = json_object_get(t, "data_offsets");
    const char *dtype = json_string_value(json_object_get(t, "dtype"));
    size_t first, end, want = strcmp(type, "F16") == 0 ? 2 : 4;

    memcpy(&data, g->bytes, 8);
    data += 8;
    if (!dtype || strcmp(dtype, type) != 0)
        return NULL;
    for (size_t i = 0; i < GOLDEN_DIMS; i++)
        dims[i] = i < json_array_size(shape) ? (int)json_integer_value(json_array_get(shape, i))
                                             : 1;
    for (size_t i = 0; i < GOLDEN_DIMS; i++)
        want *= (size_t)dims[i];
    first = (size_t)json_integer_value(json_array_get(at, 0));
    end = (size_t)json_integer_value(json_array_get(at, 1));
    if (end > g->size - data || first > end || end - first != want)
        return NULL;
    return g->bytes + data + first;
}

/* Of halves: the numbers that a rounded model is held against need no more. */
static const float *widened(struct golden *g, const json_t *header, const char *name, int *dims)
{
    const void *halves = tensor(g, header, name, "F16", dims);
    int64_t n = halves ? (int64_t)dims[0] * dims[1] : 0;

    if (!halves || !(g->widened = malloc((size_t)n * sizeof *g->widened)))
        return NULL;
    row_to_f32(DTYPE_F16, halves, n, g->widened);
    return g->widened;
}

/* Which tokens the logits are of, where they are not of all. */
static int read_positions(struct golden *g, const json_t *header, int rows)
{
    int dims[GOLDEN_DIMS];

    if (!(g->positions = tensor(g, header, "positions", "I32", dims)))
        return rows == g->n ? 0 : -1;
    g->n_positions = dims[0];
    for (int i = 0; i < g->n_positions; i++)
        if (g->positions[i] < (i ? g->positions[i - 1] + 1 : 0) || g->positions[i] >= g->n)
            return -1;
    return rows == g->n_positions ? 0 : -1;
}

/* What is kept of the stream and of states. */
static void read_states(struct golden *g, const json_t *header)
{
    int dims[GOLDEN_DIMS];

    if ((g->hidden = tensor(g, header, "hidden", "F32", dims)) && dims[1] == g->n) {
        g->rows = g->n;
        g->width = dims[2];
    } else if ((g->hidden = tensor(g, header, "hidden_last", "F32", dims))) {
        g->rows = 1;
        g->width = dims[1];
    }
    g->n_hidden = dims[0];
    g->prenorm = g->hidden ? tensor(g, header, "prenorm", "F32", dims) : NULL;
    if (!(g->state_layers = tensor(g, header, "state_layers", "I32", dims)))
        return;
    g->n_states = dims[0];
    g->conv_state = tensor(g, header, "conv_state", "F32", dims);
    g->recurrent_state = tensor(g, header, "recurrent_state", "F32", dims);
}

int golden_open(struct golden *g, const char *path, char *why, size_t why_size)
{
    return golden_open_logits(g, path, "logits", why, why_size);
}

int golden_open_logits(struct golden *g, const char *path, const char *logits, char *why,
                       size_t why_size)
{
    FILE *f = fopen(path, "rb");
    struct error e;
    json_t *header = NULL;
    char greedy[64];
    int dims[GOLDEN_DIMS], rc = -1;
    uint64_t length = 0;
    long size;

    memset(g, 0, sizeof *g);
    snprintf(why, why_size, "%s: cannot be read as golden data", path);
    if (!f)
        return -1;
    if (fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) > 8) {
        rewind(f);
        g->size = (size_t)size;
        g->bytes = malloc(g->size);
        if (g->bytes && fread(g->bytes, 1, g->size, f) == g->size) {
            memcpy(&length, g->bytes, 8);
            if (length <= g->size - 8)
                header = json_read(g->bytes + 8, length, path, &e);
        }
    }
    fclose(f);
    if (header && (g->input_ids = tensor(g, header, "input_ids", "I32", dims))) {
        g->n = dims[0];
        if (!(g->logits = tensor(g, header, logits, "F32", dims)))
            g->logits = widened(g, header, logits, dims);
        g->n_vocab = dims[1];
        rc = g->logits ? read_positions(g, header, dims[0]) : -1;
        snprintf(greedy, sizeof greedy, "greedy%s",
                 strncmp(logits, "logits_", 7) == 0 ? logits + strlen("logits") : "");
        if ((g->greedy = tensor(g, header, greedy, "I32", dims)))
            g->n_greedy = dims[0];
        if ((g->short_logits = tensor(g, header, "short_logits", "F32", dims)))
            g->n_short = dims[0];
        if ((g->experts = tensor(g, header, "experts", "I32", dims))) {
            g->n_layers = dims[0];
            g->used = dims[2];
            g->weights = tensor(g, header, "weights", "F32", dims);
            g->moe_layers = tensor(g, header, "moe_layers", "I32", dims);
        }
        read_states(g, header);
    }
    json_decref(header);
    if (rc < 0)
        golden_close(g);
    return rc;
}

double golden_tolerance(const char *family)
{
    static const char *const wide[] = {"qwen3_next", "qwen3_5", "gemma4"};

    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (strncmp(family, wide[i], strlen(wide[i])) == 0)
            return 3 * GOLDEN_TOLERANCE;
    return GOLDEN_TOLERANCE;
}

void golden_close(struct golden *g)
{
    free(g->bytes);
    free(g->widened);
    memset(g, 0, sizeof *g);
}

int golden_argmax(const float *logits, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

int golden_engine(struct engine **out, const char *model, const char *kernels, int n_threads,
                  int convert, bool exact, struct error *e)
{
    return golden_engine_adapted(out, model, NULL, 0, kernels, n_threads, convert, exact, e);
}

int golden_engine_adapted(struct engine **out, const char *model,
                          const struct adapter_request *adapters, int n, const char *kernels,
                          int n_threads, int convert, bool exact, struct error *e)
{
    struct engine_config c = {.model_path = model,
                              .adapters = adapters,
                              .n_adapters = n,
                              .kernels = kernels,
                              .context = 512,
                              .n_threads = n_threads,
                              .ubatch = 128,
                              .kv_k = KV_F32,
                              .kv_v = KV_F32,
                              .convert = convert,
                              .exact = exact,
                              .no_tokenizer = true};

    return engine_open(out, &c, e);
}

static double difference(const float *a, const float *b, size_t n)
{
    double worst = 0.0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);

        if (!(d <= worst)) /* a NaN is the worst of all */
            worst = d == d ? d : INFINITY;
    }
    return worst;
}

struct routed {
    const struct golden *golden;
    bool agrees;
};

/* Of one row: golden ones are ordered by weight, ours by choice; shared experts come after. */
static bool same_choice(const struct golden *g, size_t theirs, const int *experts,
                        const float *weights)
{
    for (int k = 0; k < g->used; k++) {
        int i = 0;

        while (i < g->used && experts[i] != g->experts[theirs + (size_t)k])
            i++;
        if (i == g->used || !(fabsf(weights[i] - g->weights[theirs + (size_t)k]) <= 1e-4f))
            return false;
    }
    return true;
}

static void check_routing(void *ctx, const struct routing *r)
{
    struct routed *s = ctx;
    const struct golden *g = s->golden;

    for (int l = 0; l < g->n_layers; l++) {
        int layer = g->moe_layers ? g->moe_layers[l] : l;

        for (int row = 0; row < r->rows && r->pos + row < g->n; row++) {
            size_t mine = ((size_t)layer * (size_t)r->rows + (size_t)row) * (size_t)r->used,
                   theirs = (size_t)((l * g->n + r->pos + row) * g->used);

            if (layer >= r->n_layers || r->used < g->used ||
                !same_choice(g, theirs, r->experts + mine, r->weights + mine))
                s->agrees = false;
        }
    }
}

/* Evaluates n ids in chunks and returns the largest difference from want. */
static int run(struct engine *g, const int *ids, int n, int chunk, const float *want, int n_vocab,
               double *worst, struct error *e)
{
    float *logits = malloc((size_t)n * (size_t)n_vocab * sizeof *logits);
    double d;
    int rc;

    engine_session_clear(g);
    rc = logits ? engine_eval_chunked(g, ids, n, chunk, logits, true, e)
                : error_set(e, ERR_MEMORY, "no memory for logits");
    if (rc == 0) {
        d = difference(logits, want, (size_t)n * (size_t)n_vocab);
        *worst = d > *worst ? d : *worst;
    }
    free(logits);
    return rc;
}

/* One evaluation per token, so that nothing but the cache carries what came before. Compared from
 * position `first` on. */
static int step(struct engine *g, const int *ids, int from, int first, int n, const float *want,
                int n_vocab, double *worst, struct error *e)
{
    float *logits = malloc((size_t)n_vocab * sizeof *logits);
    int rc = logits ? 0 : error_set(e, ERR_MEMORY, "no memory for logits");

    for (int i = from; i < n && rc == 0; i++) {
        if ((rc = engine_eval(g, ids + i, 1, logits, false, e)) == 0 && i >= first) {
            double d = difference(logits, want + (size_t)i * (size_t)n_vocab, (size_t)n_vocab);

            *worst = d > *worst ? d : *worst;
        }
    }
    free(logits);
    return rc;
}

/* The data's README cuts a prompt of 150 so: with the cache of what came before each part. */
static int run_parts(struct engine *g, const struct golden *golden, double *worst, struct error *e)
{
    static const int parts[] = {40, 1, 64, 45};
    float *logits = malloc((size_t)golden->n * (size_t)golden->n_vocab * sizeof *logits);
    int rc = logits ? 0 : error_set(e, ERR_MEMORY, "no memory for logits");

    engine_session_clear(g);
    for (int i = 0, at = 0; i < 4 && rc == 0; at += parts[i++]) {
        size_t from = (size_t)at * (size_t)golden->n_vocab;
        double d;

        rc = engine_eval(g, golden->input_ids + at, parts[i], logits + from, true, e);
        d = rc ? 0
               : difference(logits + from, golden->logits + from,
                            (size_t)parts[i] * (size_t)golden->n_vocab);
        *worst = d > *worst ? d : *worst;
    }
    free(logits);
    return rc;
}

/* ---- What recurrent layers keep ---- */

#define STATE_COLUMNS 32 /* of a block: mixers/recurrent.c */

/* A head's state lies in blocks of columns, (keys, columns) each. */
static float state_at(const float *state, const struct mixer_shape *s, int head, int key, int value)
{
    int keys = shape_state_keys(s), block = value / STATE_COLUMNS * STATE_COLUMNS,
        left = s->value_dim - block, width = left < STATE_COLUMNS ? left : STATE_COLUMNS;

    return state[(head * s->value_dim + block) * keys + key * width + value - block];
}

/* Largest difference of layer i's; ours in `state`. */
static double compare_state(const struct golden *g, const struct mixer_shape *s, int i,
                            const float *state)
{
    int keys = shape_state_keys(s), values = s->value_dim, channels = shape_channels(s),
        taps = s->taps - 1, n = s->kind == MIXER_SHORT_CONVOLUTION ? 0 : s->heads * values * keys;
    double worst = 0.0;

    for (int k = 0; k < n && g->recurrent_state; k++) {
        bool turned = shape_state_space(s);
        int head = k / (values * keys),
            row = k / (turned ? keys : values) % (turned ? values : keys),
            column = k % (turned ? keys : values);
        float ours = state_at(state, s, head, turned ? column : row, turned ? row : column);
        double d = fabs((double)ours - (double)g->recurrent_state[i * n + k]);

        worst = d <= worst ? worst : d;
    }
    for (int k = 0; k < channels * taps && g->conv_state; k++) {
        double d = fabs((double)state[n + k % taps * channels + k / taps] -
                        (double)g->conv_state[i * channels * taps + k]);

        worst = d <= worst ? worst : d;
    }
    return worst;
}

/* After the whole prompt. Files whose heads were moved have another order. */
static int compare_states(struct engine *g, const struct golden *golden, double *worst,
                          struct error *e)
{
    int rc = 0;

    for (int i = 0; i < golden->n_states && rc == 0; i++) {
        int layer = golden->state_layers[i];
        const struct mixer_shape *s = &hparams_layer(&g->model->hp, layer)->mixer;
        float *state = malloc(g->kv.layers[layer].copy_bytes);
        double d;

        if (!state)
            return error_set(e, ERR_MEMORY, "no memory for a state");
        rc = kv_copy_read(&g->kv, 0, layer, golden->n, state, e);
        d = rc < 0 || s->tiled ? 0.0 : compare_state(golden, s, i, state);
        *worst = d > *worst ? d : *worst;
        free(state);
    }
    return rc < 0 ? rc : 0;
}

/* ---- The stream between layers ---- */

struct stream {
    struct engine *engine;
    const struct golden *golden;
    struct forward_hooks hooks; /* the engine's own */
    double worst;
};

/* The stream as it stands, against that before layer l or behind the last one. */
static void compare_stream(struct stream *s, const float *want)
{
    const struct golden *g = s->golden;
    const struct forward *f = &s->engine->forward;
    double d = difference(f->x + (size_t)(g->n - g->rows) * (size_t)g->width, want,
                          (size_t)g->rows * (size_t)g->width);

    s->worst = d > s->worst ? d : s->worst;
}

static int before_layer(void *ctx, int layer)
{
    struct stream *s = ctx;

    compare_stream(s, s->golden->hidden +
                          (size_t)layer * (size_t)(s->golden->rows * s->golden->width));
    return s->hooks.before_layer(s->hooks.ctx, layer);
}

/* Layer by layer, as a trace has them run. */
static int run_stream(struct engine *g, const struct golden *golden, double *worst, struct error *e)
{
    struct stream s = {g, golden, g->forward.hooks, 0.0};
    int rc;

    if (golden->n_hidden != g->model->hp.n_layers + 1 || golden->width != g->model->hp.hidden ||
        golden->n > g->info.ubatch)
        return 0;
    engine_session_clear(g);
    g->forward.hooks.before_layer = before_layer;
    g->forward.hooks.ctx = &s;
    g->trace.active = true;
    rc = engine_eval(g, golden->input_ids, golden->n, NULL, true, e);
    if (rc == 0 && golden->prenorm)
        compare_stream(&s, golden->prenorm);
    g->forward.hooks = s.hooks;
    g->trace.active = false;
    *worst = s.worst;
    return rc;
}

int golden_compare(struct engine *g, const struct golden *golden, struct golden_result *out,
                   struct error *e)
{
    static const int chunks[] = {1, 7, 16};
    /* Where the sequence crosses into long rotary factors, its short part has golden numbers of its
     * own. */
    const float *part = golden->short_logits ? golden->short_logits : golden->logits;
    int n_part = golden->short_logits ? golden->n_short : golden->n, n_vocab = golden->n_vocab, rc;
    struct routed routed = {.golden = golden, .agrees = true};
    float *logits;

    *out = (struct golden_result){.has_greedy = golden->greedy != NULL, .greedy_agrees = true};
    if (golden->positions)
        return error_set(e, ERR_INPUT, "the golden data has the logits of %d of %d tokens",
                         golden->n_positions, golden->n);
    if (engine_info(g)->model->hp.n_vocab != n_vocab)
        return error_set(e, ERR_INPUT, "the golden data is of a vocabulary of %d, the model has %d",
                         n_vocab, engine_info(g)->model->hp.n_vocab);
    if (golden->experts)
        engine_observe(g, check_routing, &routed);
    rc = run(g, golden->input_ids, golden->n, golden->n, golden->logits, n_vocab, &out->whole, e);
    engine_observe(g, NULL, NULL);
    out->routing_agrees = routed.agrees;
    if (rc == 0)
        rc = compare_states(g, golden, &out->states, e);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks && rc == 0; i++) {
        rc = run(g, golden->input_ids, n_part, chunks[i], part, n_vocab, &out->chunked, e);
        /* a prompt known to be long takes the long factors from its first chunk on */
        if (rc == 0 && golden->short_logits)
            rc = run(g, golden->input_ids, golden->n, chunks[i], golden->logits, n_vocab,
                     &out->chunked, e);
    }
    if (rc == 0 && golden->n == 150 && !golden->short_logits &&
        (rc = run_parts(g, golden, &out->chunked, e)) == 0)
        rc = compare_states(g, golden, &out->states, e);
    if (rc == 0 && golden->hidden && !golden->short_logits)
        rc = run_stream(g, golden, &out->hidden, e);
    if (rc < 0)
        return rc;
    engine_session_clear(g);
    if ((rc = step(g, golden->input_ids, 0, 0, n_part, part, n_vocab, &out->stepped, e)) < 0)
        return rc;
    if (golden->short_logits &&
        (rc = step(g, golden->input_ids, n_part, engine_info(g)->model->hp.original_context,
                   golden->n, golden->logits, n_vocab, &out->stepped, e)) < 0)
        /* across the border everything is computed again, with the long factors */
        return rc;
    if (!golden->greedy)
        return 0;
    logits = malloc((size_t)n_vocab * sizeof *logits);
    engine_session_clear(g);
    rc = logits ? engine_eval(g, golden->input_ids, golden->n, logits, false, e)
                : error_set(e, ERR_MEMORY, "no memory for logits");
    for (int i = 0; i < golden->n_greedy && rc == 0; i++) {
        int id = golden_argmax(logits, n_vocab);

        if (id != golden->greedy[i]) {
            out->greedy_agrees = false;
            break;
        }
        rc = engine_eval(g, &id, 1, logits, false, e);
    }
    free(logits);
    return rc;
}
