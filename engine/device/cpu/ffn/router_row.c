/* Routers whose scores come from a row of their own, to which the row of the layer before is added
 * (modeling_zaya.py, ZayaRouter, Hugging Face), rule 19 of numerics.h; and streams whose parts are
 * weighted where an operator's output enters (ZayaResidualScaling). Compute threads (cpu.h). */
#include "engine/device/cpu/cpu.h"

#include <assert.h>
#include <math.h>

/* Where a layer's row of a row of the job lies. */
static float *place_of(const struct cpu_device *d, float *inputs, int layer, int row)
{
    const struct hparams *hp = &d->model->hp;

    if (!inputs)
        return d->router_rows + (size_t)row * 2 * (size_t)hp->router_row +
               (size_t)(layer % 2) * (size_t)hp->router_row;
    return inputs + (size_t)row * (size_t)hparams_beside(hp) +
           (size_t)hparams_router_row(hp, layer);
}

const float *router_row_of(const struct cpu_device *d, const struct route_job *j, int row)
{
    return place_of(d, j->inputs, j->layer, row);
}

/* 16 values of a row of the job. */
static void row_group(struct cpu_device *d, const struct route_job *j, int t, int group)
{
    const struct router_weights *w = &d->model->layers[j->layer].router_row;
    int hidden = d->model->hp.hidden, n = shape_of(d, j->layer)->ffn.router.row,
        first = group * NUM_LANES;
    float part[NUM_LANES], *to = place_of(d, j->inputs, j->layer, t) + first;
    const float *before = j->inputs && w->carry ? place_of(d, j->inputs, j->layer - 1, t) + first
                                                : NULL;

    d->k->router(d->deep[j->layer].in + (size_t)first * (size_t)hidden, 1, hidden,
                 j->h + (size_t)t * (size_t)hidden, part);
    for (int i = 0; i < min_int(NUM_LANES, n - first); i++) {
        float x = part[i] + w->in_bias[first + i];

        to[i] = before ? fmaf(before[i], w->carry[first + i], x) : x;
    }
}

void router_row_phases(struct cpu_device *d, int tid, const struct route_job *j)
{
    int hidden = d->model->hp.hidden,
        groups = (shape_of(d, j->layer)->ffn.router.row + NUM_LANES - 1) / NUM_LANES,
        total = groups * j->rows;

    phase_open(d, tid, j->rows);
    for (int t; (t = phase_take(d, tid, 1)) < j->rows;)
        norm_row(d, &shape_of(d, j->layer)->norms, &d->model->layers[j->layer].expert_norm,
                 j->x + (size_t)t * (size_t)hidden, j->h + (size_t)t * (size_t)hidden);
    phase_end(d, tid);
    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;)
        row_group(d, j, task / groups, task % groups);
    phase_end(d, tid);
}

/* One of the square matrices, its bias and GELU. */
static void square(const struct cpu_device *d, const float *packed, const float *bias, int n,
                   const float *x, float *y)
{
    d->k->router(packed, (n + NUM_LANES - 1) / NUM_LANES, n, x, y);
    for (int i = 0; i < n; i++)
        y[i] = num_gelu_erf(y[i] + bias[i]);
}

void router_row_scores(const struct cpu_device *d, int layer, const float *row, float *scores)
{
    const struct router_weights *w = &d->model->layers[layer].router_row;
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;
    int n = s->router.row;
    float x[CPU_ROUTER_ROW + NUM_LANES], y[CPU_ROUTER_ROW + NUM_LANES];

    assert(n <= CPU_ROUTER_ROW);
    d->k->rms_norm(row, n, w->norm, 1.0f / (float)n, shape_of(d, layer)->norms.eps, x);
    square(d, d->deep[layer].first, w->first_bias, n, x, y);
    square(d, d->deep[layer].second, w->second_bias, n, y, x);
    d->k->router(d->router[layer], router_groups(s), n, x, scores);
}

void residual_row(const struct cpu_device *d, const struct residual_weights *w, const float *added,
                  const float *x, float *to)
{
    for (int i = 0; i < d->model->hp.hidden; i++)
        to[i] = (added[i] + w->shift[i]) * w->scale[i] +
                (x[i] + w->stream_shift[i]) * w->stream_scale[i];
}
