/* Embeddings of n-grams (mixer_shape.ngrams), rule 21 of numerics.h: before a layer's mixer its
 * streams gain what a table says of the last tokens, gated by each stream, and a convolution of
 * that. They belong to the mixer's job, whose state has the tokens and rows before (state.h): the
 * last columns of a recurrent mixer's row are the convolution's inputs and the token, so that
 * drafted rows are kept with it (mixers/recurrent.c). Compute threads, all together (cpu.h). */
#include "engine/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

#define CHANNELS 128 /* of a task of the convolution */

struct ngrams {
    const struct ngram_shape *s;
    const struct ngram_weights *w;
    const struct attention_job *j;
    int stride; /* of a mixer's row of columns */
};

static struct ngrams ngrams_of(const struct cpu_device *d, const struct attention_job *j)
{
    return (struct ngrams){.s = &shape_of(d, j->layer)->mixer.ngrams,
                           .w = &d->model->layers[j->layer].ngrams,
                           .j = j,
                           .stride = recurrent_width(d, j->layer)};
}

/* A row's inputs of the convolution, and behind them 1 + its token, which F32 holds exactly. */
static float *columns_of(const struct ngrams *g, float *rows, int row)
{
    return rows + (size_t)(row + 1) * (size_t)g->stride - ngram_columns(g->s);
}

/* A session's part of the state: rows of inputs, then 1 + tokens, 0: there is none. */
static float *past_of(const struct cpu_device *d, const struct ngrams *g,
                      const struct kv_state *state)
{
    size_t all = layout_of(d, g->j->layer)->keeps.fixed_bytes / sizeof(float);

    return kv_fixed(d, state, g->j->layer) + all - ngram_state(g->s);
}

/* Row t's token and those before it, the newest first. */
static void tokens_of(const struct cpu_device *d, const struct ngrams *g, int t, int *ids)
{
    const struct span_place *at = &d->spans[d->span_of[t]];
    const float *past = past_of(d, g, at->state) + ngram_state(g->s);

    for (int back = 0; back < g->s->size; back++) {
        int i = t - at->row - back;

        ids[back] = i >= 0 ? g->j->ids[t - back] : (int)past[i] - 1;
    }
}

void ngram_ahead(struct cpu_device *d, const struct attention_job *j)
{
    const struct ngrams g = ngrams_of(d, j);
    int ids[NGRAM_SIZE_MOST];
    int64_t rows[NGRAM_HASHES_MOST], row;

    for (int t = 0; t < j->rows; t++) {
        tokens_of(d, &g, t, ids);
        model_ngram_rows(g.w, g.s, ids, rows);
        for (int h = 0; h < ngram_hashes(g.s); h++) {
            const struct tensor_view *part = model_ngram_at(g.w, rows[h], &row);
            size_t bytes = part->bytes / (size_t)part->dims[0];

            weight_file_ahead(d->model->file, part, (size_t)row * bytes, bytes);
        }
    }
}

/* ---- State ---- */

/* The state's rows of channels first .. first+n-1 (first 0: the tokens too) behind `count` rows of
 * columns. */
static void move_on(const struct ngrams *g, float *past, float *rows, int row, int count, int first,
                    int n)
{
    int before = ngram_before(g->s), channels = g->s->channels, tokens = g->s->size - 1;
    float *ids = past + (size_t)before * (size_t)channels;

    for (int i = 0; i < before; i++) {
        float *to = past + (size_t)i * (size_t)channels + first;
        int from = i + count;

        memcpy(to,
               from < before ? past + (size_t)from * (size_t)channels + first
                             : columns_of(g, rows, row + from - before) + first,
               (size_t)n * sizeof *to);
    }
    for (int i = 0; i < tokens && first == 0; i++)
        ids[i] = i + count < tokens ? ids[i + count]
                                    : columns_of(g, rows, row + i + count - tokens)[channels];
}

static int blocks_of(const struct ngrams *g)
{
    return (g->s->channels + CHANNELS - 1) / CHANNELS;
}

/* Takes the accepted drafted rows of the previous job. Every thread finds the same ones. */
static void take_drafts(struct cpu_device *d, int tid, const struct ngrams *g)
{
    int blocks = blocks_of(g), any = 0;

    for (int i = 0; i < d->n_spans; i++)
        any |= fixed_behind(d, &d->spans[i], g->j->layer);
    if (!any)
        return;
    phase_open(d, tid, d->n_spans * blocks);
    for (int task; (task = phase_take(d, tid, 1)) < d->n_spans * blocks;) {
        const struct span_place *at = &d->spans[task / blocks];
        int count = fixed_behind(d, at, g->j->layer), first = task % blocks * CHANNELS;

        if (count)
            move_on(g, past_of(d, g, at->state), kv_drafts(d, at->state, g->j->layer), 0, count,
                    first, min_int(CHANNELS, g->s->channels - first));
    }
    phase_end(d, tid);
}

/* ---- A row ---- */

static void embed_phase(struct cpu_device *d, int tid, const struct ngrams *g)
{
    int ids[NGRAM_SIZE_MOST];
    const char *broken;

    phase_open(d, tid, g->j->rows);
    for (int t; (t = phase_take(d, tid, 1)) < g->j->rows;) {
        tokens_of(d, g, t, ids);
        if (!model_ngrams(d->model, g->j->layer, ids,
                          d->ngrams.embedded + (size_t)t * (size_t)g->s->width, &broken))
            atomic_store(&d->ngrams.broken, broken);
    }
    phase_end(d, tid);
}

static void embedded_row(struct cpu_device *d, int tid, const struct product *p, int t, float *row)
{
    memcpy(row, p->x + (size_t)t * (size_t)p->w->cols, (size_t)p->w->cols * sizeof *row);
}

/* Of n values, a multiple of NUM_LANES: rule 4's sum of their products. */
static float product_sum(const float *a, const float *b, int n)
{
    float lanes[NUM_LANES] = {0};

    for (int i = 0; i < n; i += NUM_LANES)
        for (int k = 0; k < NUM_LANES; k++)
            lanes[k] = lanes[k] + a[i + k] * b[i + k];
    return num_fold(lanes);
}

static float gate_of(const float *key, const float *query, int n)
{
    float s = product_sum(key, query, n) / sqrtf((float)n), size = fabsf(s);

    size = sqrtf(size < 1e-6f ? 1e-6f : size);
    return num_sigmoid(s > 0.0f ? size : s < 0.0f ? -size : 0.0f);
}

/* The values of row t gated for each stream, in the place of the keys, and the convolution's inputs
 * of them. */
static void gate_row(struct cpu_device *d, int tid, const struct ngrams *g, int t)
{
    int hidden = d->model->hp.hidden;
    float *gated = d->ngrams.keys + (size_t)t * (size_t)g->s->channels,
          *in = columns_of(g, d->mixed, t), *query = d->threads[tid].row,
          eps = d->model->hp.common.norms.eps, by = 1.0f / (float)hidden;
    const float *value = d->ngrams.values + (size_t)t * (size_t)hidden,
                *streams = hyper_streams(d, g->j->inputs, t);

    for (int at = 0; at < g->s->channels; at += hidden) {
        float gate;

        d->k->rms_norm(gated + at, hidden, g->w->key_norm + at, by, eps, gated + at);
        d->k->rms_norm(streams + at, hidden, g->w->query_norm + at, by, eps, query);
        gate = gate_of(gated + at, query, hidden);
        for (int i = 0; i < hidden; i++)
            gated[at + i] = gate * value[i];
        d->k->rms_norm(gated + at, hidden, g->w->conv_norm + at, by, eps, in + at);
    }
    in[g->s->channels] = (float)(g->j->ids[t] + 1);
}

/* The inputs of row t of a span, counted from its first; negative: of rows before. */
static const float *inputs_at(struct cpu_device *d, const struct ngrams *g,
                              const struct span_place *at, const float *past, int t)
{
    return t >= 0 ? columns_of(g, d->mixed, at->row + t)
                  : past + (size_t)(ngram_before(g->s) + t) * (size_t)g->s->channels;
}

/* Channels first .. first+n-1 of a span's rows; the state moves on behind them. */
static void convolve(struct cpu_device *d, const struct ngrams *g, const struct span_place *at,
                     int first, int n)
{
    int channels = g->s->channels, taps = g->s->taps;
    float *past = past_of(d, g, at->state);

    for (int t = 0; t < at->rows; t++) {
        float *out = d->ngrams.convolved + (size_t)(at->row + t) * (size_t)channels + first;

        memset(out, 0, (size_t)n * sizeof *out);
        for (int k = 0; k < taps; k++) {
            const float *x = inputs_at(d, g, at, past, t - (taps - 1 - k) * g->s->size) + first,
                        *w = g->w->conv + (size_t)k * (size_t)channels + first;

            for (int i = 0; i < n; i++)
                out[i] = out[i] + x[i] * w[i];
        }
    }
    move_on(g, past, d->mixed, at->row, at->rows - at->drafted, first, n);
}

static void convolve_phase(struct cpu_device *d, int tid, const struct ngrams *g)
{
    int blocks = blocks_of(g), total = d->n_spans * blocks;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        int first = task % blocks * CHANNELS;

        convolve(d, g, &d->spans[task / blocks], first, min_int(CHANNELS, g->s->channels - first));
    }
    phase_end(d, tid);
}

static void add_row(struct cpu_device *d, const struct ngrams *g, int t)
{
    int n = g->s->channels;
    float *convolved = d->ngrams.convolved + (size_t)t * (size_t)n,
          *streams = hyper_streams(d, g->j->inputs, t);
    const float *gated = d->ngrams.keys + (size_t)t * (size_t)n;

    d->k->gate(convolved, convolved, n);
    for (int i = 0; i < n; i++)
        streams[i] = streams[i] + (gated[i] + convolved[i]);
}

const float *ngram_phases(struct cpu_device *d, int tid, const struct attention_job *j)
{
    const struct ngrams g = ngrams_of(d, j);
    struct product key = {&g.w->key, embedded_row, j->rows, d->ngrams.keys,
                          .x = d->ngrams.embedded},
                   value = {&g.w->value, embedded_row, j->rows, d->ngrams.values,
                            .x = d->ngrams.embedded};

    take_drafts(d, tid, &g);
    embed_phase(d, tid, &g);
    product_phases(d, tid, &key);
    product_phases(d, tid, &value);
    phase_open(d, tid, j->rows);
    for (int t; (t = phase_take(d, tid, 1)) < j->rows;)
        gate_row(d, tid, &g, t);
    phase_end(d, tid);
    convolve_phase(d, tid, &g);
    phase_open(d, tid, j->rows);
    for (int t; (t = phase_take(d, tid, 1)) < j->rows;)
        add_row(d, &g, t);
    phase_end(d, tid);
    hyper_read(d, tid, j->layer, j->rows, j->inputs, d->ngrams.x);
    return d->ngrams.x;
}
