/* Hyper-connections (hparams.stream_kind): what an operator reads of several residual streams, and
 * what they become of its output, by rule 17 of numerics.h; after modeling_qwen4_exp.py and
 * modeling_deepseek_v4.py (Hugging Face). A row of `beside` holds, behind its inputs, the
 * operator's output, the streams, and what hyper_read kept for hyper_write. Compute threads, all
 * together (cpu.h). */
#include "engine/device/cpu/cpu.h"

#include <assert.h>
#include <string.h>

/* The output's place in a row of beside; the streams follow, and then the weights. */
static float *output_of(const struct cpu_device *d, float *beside, int row)
{
    const struct hparams *hp = &d->model->hp;

    return beside + (size_t)row * (size_t)hparams_beside(hp) + hparams_inputs(hp);
}

float *hyper_streams(const struct cpu_device *d, float *beside, int row)
{
    const struct hparams *hp = &d->model->hp;

    return beside + (size_t)row * (size_t)hparams_beside(hp) + hparams_streams_at(hp);
}

static float *weights_of(const struct cpu_device *d, float *beside, int row)
{
    const struct hparams *hp = &d->model->hp;

    return hyper_streams(d, beside, row) + (size_t)hp->streams * (size_t)hp->hidden;
}

/* All streams of a row, normed: gated each by itself, mixed together and without weights. */
static void normed(const struct cpu_device *d, const struct hyper_weights *w, const float *s,
                   float *row)
{
    const struct hparams *hp = &d->model->hp;
    int hidden = hp->hidden, all = hp->streams * hidden;
    float eps = hp->common.norms.eps;

    if (hp->stream_kind == STREAMS_MIXED)
        d->k->rms_norm(s, all, d->ones, 1.0f / (float)all, eps, row);
    else
        for (int at = 0; at < all; at += hidden)
            d->k->rms_norm(s + at, hidden, w->norm + at, 1.0f / (float)hidden, eps, row + at);
}

static void normed_input(struct cpu_device *d, int tid, const struct product *p, int t, float *row)
{
    normed(d, p->hyper, p->inputs + (size_t)t * (size_t)hparams_beside(&d->model->hp), row);
}

/* silu(down / streams) */
static void low_input(struct cpu_device *d, int tid, const struct product *p, int t, float *row)
{
    int n = p->w->cols;
    const float *from = p->x + (size_t)t * (size_t)n, by = 1.0f / (float)d->model->hp.streams;

    for (int i = 0; i < n; i++)
        row[i] = from[i] * by;
    d->k->gate(row, row, n);
}

/* sum over i of w_i * v_i, v of them n vectors one behind the other. */
static void weighted(const struct cpu_device *d, const float *v, const float *w, int n, float *out)
{
    memset(out, 0, (size_t)d->model->hp.hidden * sizeof *out);
    d->k->combine(out, v, d->model->hp.hidden, w, n, d->model->hp.hidden, out);
}

static void gated_row(struct cpu_device *d, int tid, const struct hyper_weights *w, int t,
                      float *beside, float *x)
{
    const struct hparams *hp = &d->model->hp;
    int n = hp->streams, all = n * hp->hidden;
    float *row = d->threads[tid].row, *gain = weights_of(d, beside, t), by = 1.0f / (float)n,
          mean[HPARAMS_STREAMS_MOST];

    normed(d, w, hyper_streams(d, beside, t), row);
    d->k->gate(row, d->hyper_gates + (size_t)t * (size_t)all, all);
    for (int i = 0; i < n; i++) {
        mean[i] = by;
        if (w->mix.rows)
            gain[i] = 2.0f * num_sigmoid(d->hyper_mix[(size_t)t * (size_t)n + (size_t)i] * by);
    }
    weighted(d, row, mean, n, x);
}

/* Rows of m (n, n) and its columns by turns become sums of 1, nearly. */
static void make_stochastic(float *m, int n, int rounds, float eps)
{
    for (int r = 0; r < 2 * rounds - 1; r++)
        for (int i = 0; i < n; i++) {
            int first = r % 2 ? i * n : i, step = r % 2 ? 1 : n;
            float sum = 0.0f;

            for (int k = 0; k < n; k++)
                sum = sum + m[first + k * step];
            for (int k = 0; k < n; k++)
                m[first + k * step] = m[first + k * step] / (sum + eps);
        }
}

/* softmax(v) + eps */
static void chances(float *v, int n, float eps)
{
    float max = v[0], sum = 0.0f;

    for (int i = 1; i < n; i++)
        max = v[i] > max ? v[i] : max;
    for (int i = 0; i < n; i++) {
        v[i] = num_exp(v[i] - max);
        sum = sum + v[i];
    }
    for (int i = 0; i < n; i++)
        v[i] = v[i] / sum + eps;
}

static void mixed_row(struct cpu_device *d, int tid, const struct hyper_weights *w, int t,
                      float *beside, float *x)
{
    const struct hparams *hp = &d->model->hp;
    int n = hp->streams, rows = w->mix.rows;
    const float *has = d->hyper_mix + (size_t)t * (size_t)rows;
    float *keep = weights_of(d, beside, t), read[HPARAMS_STREAMS_MOST] = {0},
          goes[HPARAMS_STREAMS_MOST * HPARAMS_STREAMS_MOST];

    for (int i = 0; i < n; i++)
        read[i] = num_sigmoid(has[i] * w->scale[0] + w->base[i]) + hp->stream_eps;
    weighted(d, hyper_streams(d, beside, t), read, n, x);
    if (rows == n)
        return;
    for (int i = 0; i < n * n; i++)
        goes[i] = has[2 * n + i] * w->scale[2] + w->base[2 * n + i];
    for (int i = 0; i < n; i++)
        chances(goes + i * n, n, hp->stream_eps);
    make_stochastic(goes, n, hp->stream_rounds, hp->stream_eps);
    for (int j = 0; j < n; j++) { /* of stream j: the output's, then the streams' */
        keep[j * (n + 1)] = 2.0f * num_sigmoid(has[n + j] * w->scale[1] + w->base[n + j]);
        for (int i = 0; i < n; i++)
            keep[j * (n + 1) + 1 + i] = goes[i * n + j];
    }
}

/* x becomes what is read there. */
static void read_phases(struct cpu_device *d, int tid, const struct hyper_weights *w, int rows,
                        float *beside, float *x)
{
    bool gated = d->model->hp.stream_kind == STREAMS_GATED;
    struct product
        down = {&w->down,  normed_input, rows, d->hyper_low, .inputs = hyper_streams(d, beside, 0),
                .hyper = w},
        up = {&w->up, low_input, rows, d->hyper_gates, .x = d->hyper_low},
        mix = {&w->mix,   normed_input, rows, d->hyper_mix, .inputs = hyper_streams(d, beside, 0),
               .hyper = w};

    if (gated) {
        product_phases(d, tid, &down);
        product_phases(d, tid, &up);
    }
    if (w->mix.rows)
        product_phases(d, tid, &mix);
    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;)
        (gated ? gated_row : mixed_row)(d, tid, w, t, beside,
                                        x + (size_t)t * (size_t)d->model->hp.hidden);
    phase_end(d, tid);
}

/* The streams with the output of the operator that hyper_read was before. */
static void write_row(struct cpu_device *d, int tid, int t, float *beside)
{
    const struct hparams *hp = &d->model->hp;
    int n = hp->streams, hidden = hp->hidden;
    float *out = output_of(d, beside, t), *s = out + hidden, *weights = weights_of(d, beside, t),
          *row = d->threads[tid].row;

    for (int i = 0; i < n; i++) {
        float *stream = s + (size_t)i * (size_t)hidden;

        if (hp->stream_kind == STREAMS_GATED)
            d->k->combine(stream, out, 0, weights + i, 1, hidden, stream);
        else
            weighted(d, out, weights + i * (n + 1), n + 1, row + (size_t)i * (size_t)hidden);
    }
    if (hp->stream_kind == STREAMS_MIXED)
        memcpy(s, row, (size_t)n * (size_t)hidden * sizeof *s);
}

static void write_phase(struct cpu_device *d, int tid, int rows, float *beside, const float *y)
{
    size_t hidden = (size_t)d->model->hp.hidden;

    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;) {
        memcpy(output_of(d, beside, t), y + (size_t)t * hidden, hidden * sizeof *y);
        write_row(d, tid, t, beside);
    }
    phase_end(d, tid);
}

void hyper_read(struct cpu_device *d, int tid, int layer, int rows, float *beside, float *x)
{
    read_phases(d, tid, &d->model->layers[layer].hyper[0], rows, beside, x);
}

/* What the mixer of a layer reads; one with n-grams reads by itself, behind those. */
static void begin_layer(struct cpu_device *d, int tid, int layer, int rows, float *beside, float *x)
{
    if (!shape_of(d, layer)->mixer.ngrams.size)
        hyper_read(d, tid, layer, rows, beside, x);
}

void hyper_begin(struct cpu_device *d, int tid, int rows, float *beside, float *x)
{
    size_t hidden = (size_t)d->model->hp.hidden;

    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;)
        for (int i = 0; i < d->model->hp.streams; i++)
            memcpy(hyper_streams(d, beside, t) + (size_t)i * hidden, x + (size_t)t * hidden,
                   hidden * sizeof *x);
    phase_end(d, tid);
    begin_layer(d, tid, 0, rows, beside, x);
}

/* What a stream's join takes: p->inputs is the stream of row 0. */
static void join_input(struct cpu_device *d, int tid, const struct product *p, int t, float *row)
{
    const struct model *m = d->model;
    size_t hidden = (size_t)m->hp.hidden;
    const float *state = p->inputs + (size_t)t * (size_t)hparams_beside(&m->hp);

    norm_row(d, &m->hp.common.norms, &m->mtp.embedding_norm,
             p->join->embeddings + (size_t)t * hidden, row);
    norm_row(d, &m->hp.common.norms, &m->mtp.hidden_norm, state, row + hidden);
}

void hyper_join(struct cpu_device *d, int tid, const struct join_job *j)
{
    size_t hidden = (size_t)d->model->hp.hidden;

    for (int i = 0; i < d->model->hp.streams; i++) {
        struct product p = {&d->model->mtp.join,
                            join_input,
                            j->rows,
                            j->x,
                            .inputs = hyper_streams(d, j->inputs, 0) + (size_t)i * hidden,
                            .join = j};

        product_phases(d, tid, &p);
        phase_open(d, tid, j->rows);
        for (int t; (t = phase_take(d, tid, 1)) < j->rows;)
            memcpy(hyper_streams(d, j->inputs, t) + (size_t)i * hidden, j->x + (size_t)t * hidden,
                   hidden * sizeof *j->x);
        phase_end(d, tid);
    }
    begin_layer(d, tid, 0, j->rows, j->inputs, j->x);
}

void hyper_mixed(struct cpu_device *d, int tid, int layer, int rows, float *beside, const float *y,
                 float *x)
{
    assert(hparams_hyper(&d->model->hp) && beside);
    write_phase(d, tid, rows, beside, y);
    read_phases(d, tid, &d->model->layers[layer].hyper[1], rows, beside, x);
}

void hyper_next(struct cpu_device *d, int tid, int layer, int rows, float *beside, float *x)
{
    write_phase(d, tid, rows, beside, x);
    if (layer + 1 == d->model->hp.n_layers)
        read_phases(d, tid, &d->model->hyper_end, rows, beside, x);
    else
        begin_layer(d, tid, layer + 1, rows, beside, x);
}
