/* Values that a token brings for single layers (per-layer embeddings), rule 15 of numerics.h.
 * Compute threads, all together (cpu.h). */
#include "engine/device/cpu/cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static void stream_row(struct cpu_device *d, int tid, const struct product *p, int t, float *row)
{
    memcpy(row, p->x + (size_t)t * (size_t)p->w->cols, (size_t)p->w->cols * sizeof *row);
}

/* The activated gates of a row, times the layer's values. */
static void gated_row(struct cpu_device *d, int tid, const struct product *p, int t, float *row)
{
    int n = p->w->cols;
    float gate[NUM_LANES], values[NUM_LANES];
    const float *gates = p->x + (size_t)t * (size_t)n,
                *inputs = p->inputs + (size_t)t * (size_t)hparams_beside(&d->model->hp);

    /* kernels take whole vectors */
    for (int i = 0; i < n; i += NUM_LANES) {
        int left = min_int(n - i, NUM_LANES);

        memset(gate, 0, sizeof gate);
        memset(values, 0, sizeof values);
        memcpy(gate, gates + i, (size_t)left * sizeof *gate);
        memcpy(values, inputs + i, (size_t)left * sizeof *values);
        d->k->activate[p->activation](gate, values, NUM_LANES, 0.0f, gate);
        memcpy(row + i, gate, (size_t)left * sizeof *row);
    }
}

/* A row of x, with weights where there are several streams. */
static void scaled_row(struct cpu_device *d, int tid, const struct product *p, int t, float *row)
{
    const float *scale = d->model->layers[p->layer].stream_scale;

    stream_row(d, tid, p, t, row);
    for (int i = 0; i < p->w->cols && scale; i++)
        row[i] = row[i] * scale[i];
}

/* Of a layer that has inputs. */
static void join_inputs(struct cpu_device *d, int tid, int layer, int rows, float *inputs, float *x)
{
    const struct layer_weights *w = &d->model->layers[layer];
    const struct layer_shape *s = shape_of(d, layer);
    int hidden = d->model->hp.hidden;
    struct product gate = {&w->input_gate, scaled_row, rows,
                           d->input_gates, .x = x,     .layer = layer},
                   out = {&w->input_out,
                          gated_row,
                          rows,
                          d->added,
                          .x = d->input_gates,
                          .inputs = inputs + (size_t)layer * (size_t)s->inputs,
                          .activation = s->ffn.activation};

    product_phases(d, tid, &gate);
    product_phases(d, tid, &out);
    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;) {
        float *row = d->added + (size_t)t * (size_t)hidden, *to = x + (size_t)t * (size_t)hidden;

        norm_row(d, &s->norms, &w->input_after, row, row);
        if (d->model->hp.streams)
            streams_add(d, t, inputs, row);
        else
            d->k->add(to, row, hidden);
        for (int i = 0; i < hidden && w->scale; i++)
            to[i] = to[i] * *w->scale;
    }
    phase_end(d, tid);
}

void inputs_phases(struct cpu_device *d, int tid, int layer, int rows, float *inputs, float *x)
{
    bool streams = d->model->hp.streams > 0;

    assert(inputs || !shape_of(d, layer)->inputs);
    if (hparams_hyper(&d->model->hp)) {
        hyper_next(d, tid, layer, rows, inputs, x);
        return;
    }
    if (streams)
        streams_corrected(d, tid, layer, rows, inputs, x);
    if (shape_of(d, layer)->inputs)
        join_inputs(d, tid, layer, rows, inputs, x);
    if (streams)
        streams_next(d, tid, layer, rows, inputs, x);
}

/* The projected embedding of a row, its norms, and the sum with what the table holds. */
static void join_row(struct cpu_device *d, int t)
{
    const struct model *m = d->model;
    int all = hparams_inputs(&m->hp), n = all / m->hp.n_layers;
    float *to = d->inputs_job->inputs + (size_t)t * (size_t)hparams_beside(&m->hp),
          *p = d->projected + (size_t)t * (size_t)all,
          scale = (float)(1.0 / sqrt((double)m->hp.hidden)), half = (float)sqrt(0.5);

    for (int i = 0; i < all; i++)
        p[i] = p[i] * scale;
    for (int i = 0; i < all; i += n)
        d->k->rms_norm(p + i, n, m->input_norm, 1.0f / (float)n, m->hp.common.norms.eps, p + i);
    for (int i = 0; i < all; i++)
        to[i] = (p[i] + to[i]) * half;
}

void inputs_region(void *ctx, int tid, int n)
{
    struct cpu_device *d = ctx;
    const struct inputs_job *j = d->inputs_job;
    struct product p = {&d->model->input_project, stream_row, j->rows, d->projected, .x = j->x};

    if (hparams_hyper(&d->model->hp)) {
        hyper_begin(d, tid, j->rows, j->inputs, j->x);
        return;
    }
    product_phases(d, tid, &p);
    phase_open(d, tid, j->rows);
    for (int t; (t = phase_take(d, tid, 1)) < j->rows;)
        join_row(d, t);
    phase_end(d, tid);
    streams_begin(d, tid, j->rows, j->inputs, j->x);
}
