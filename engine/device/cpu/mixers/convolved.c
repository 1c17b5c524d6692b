/* Convolved attention (compressed convolutional attention, arXiv:2510.04476; modeling_zaya.py,
 * ZayaCCAProjection, Hugging Face), rule 18 of numerics.h: projections into a row of columns per
 * token (queries, keys, and both halves of the values); two causal convolutions over queries and
 * keys, the second one a head's own matrix, beside which the projections stay as residuals; norms,
 * rotation, and attention as usual (attention.c). Besides its growing rows a session's layer keeps
 * the projections of the last tokens: a block of fixed size (fixed.c). Every task of the middle
 * phase is a head over all rows of a span, so that no chunking shows. Compute threads, all together
 * (cpu.h). */
#include "engine/device/cpu/cpu.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* Columns of a token's row: queries, keys, the half of its values, that of the next token's. */
struct columns {
    const struct mixer_shape *s;
    const struct matrix *of[4];
    int at[4], width;
    int channels; /* of the convolutions: queries and keys */
};

enum { QUERIES, KEYS, VALUES, BEFORE };

static struct columns columns_of(const struct cpu_device *d, int layer)
{
    const struct layer_weights *w = &d->model->layers[layer];
    struct columns c = {.s = &shape_of(d, layer)->mixer, .of = {&w->q, &w->k, &w->v, &w->v_before}};

    for (int i = 0; i < 4; i++) {
        c.at[i] = c.width;
        c.width += c.of[i]->rows;
    }
    c.channels = shape_channels(c.s);
    return c;
}

static float *row_of(const struct cpu_device *d, const struct columns *c, int row)
{
    return d->mixed + (size_t)row * (size_t)c->width;
}

/* ---- Projections ---- */

static int task_rows(int rows)
{
    return rows == 1 ? 2 * CPU_UNIT : CPU_WIDE;
}

static int tasks_of(const struct matrix *w, int rows)
{
    return (w->rows + task_rows(rows) - 1) / task_rows(rows);
}

static int projection_tasks(const struct columns *c, int rows)
{
    int n = 0;

    for (int i = 0; i < 4; i++)
        n += tasks_of(c->of[i], rows);
    return n;
}

/* The matrix of a task; *task becomes relative to it. */
static int matrix_at(const struct columns *c, int rows, int *task)
{
    int i = 0;

    for (int n; *task >= (n = tasks_of(c->of[i], rows)); i++)
        *task -= n;
    return i;
}

/* Address of the weights of a task of one row; past this thread's part, those of its output
 * projection. */
static struct prefetch_hint projection_hint(const struct cpu_device *d, int layer,
                                            const struct columns *c, int tid, int task)
{
    int i;

    if (task >= phase_part(d, projection_tasks(c, 1), 1, tid + 1))
        return output_hint(d, &d->model->layers[layer].o, tid);
    i = matrix_at(c, 1, &task);
    return matrix_hint(c->of[i], task * task_rows(1));
}

static bool any_rows(const struct columns *c, bool floats)
{
    for (int i = 0; i < 4; i++)
        if (matrix_takes_rows(c->of[i]) == floats)
            return true;
    return false;
}

static void project(struct cpu_device *d, int tid, int layer, const struct columns *c,
                    const struct input *in, const float *x)
{
    int tasks = projection_tasks(c, in->n), total = tasks * token_blocks(d, in->n), t0, t1;
    bool ready = in->n > 1;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        int local = task % tasks, i = matrix_at(c, in->n, &local), r0 = local * task_rows(in->n),
            r1 = min_int(r0 + task_rows(in->n), c->of[i]->rows);

        if (!ready)
            input_prepare_row(d, layer, any_rows(c, false), x, in->rows, in->panels, 1, 0);
        ready = true;
        token_block(d, in->n, task / tasks, &t0, &t1);
        if (in->n == 1)
            gemv(d, tid, c->of[i], r0, r1, in, row_of(d, c, 0) + c->at[i] + r0,
                 projection_hint(d, layer, c, tid, task + 1));
        else
            gemm(d, tid, c->of[i], r0, r1, in, t0, t1, row_of(d, c, t0) + c->at[i] + r0, c->width);
    }
    phase_end(d, tid);
}

/* ---- What a layer keeps of the last tokens ---- */

/* Their queries and keys, the oldest first, and the last one's half of the next token's values. */
static float *kept_values(const struct columns *c, float *state)
{
    return state + (size_t)shape_taps_before(c->s) * (size_t)c->channels;
}

/* Channels first .. first+n-1 move on by `rows` tokens whose rows of columns begin at `row`. */
static void keep_channels(const struct columns *c, float *state, const float *row, int rows,
                          int first, int n)
{
    int kept = shape_taps_before(c->s);

    for (int i = 0; i < kept; i++) {
        int from = i + rows;
        float *to = state + (size_t)i * (size_t)c->channels + first;
        const float *x = from < kept ? state + (size_t)from * (size_t)c->channels + first
                                     : row + (size_t)(from - kept) * (size_t)c->width + first;

        memcpy(to, x, (size_t)n * sizeof *to);
    }
}

static void keep_values(const struct columns *c, float *state, const float *row, int rows)
{
    if (rows)
        memcpy(kept_values(c, state), row + (size_t)(rows - 1) * (size_t)c->width + c->at[BEFORE],
               (size_t)c->of[BEFORE]->rows * sizeof *state);
}

/* Applies the accepted drafted rows of the previous job. */
static void apply_drafts(struct cpu_device *d, int tid, int layer, const struct columns *c)
{
    bool any = false;

    for (int i = 0; i < d->n_spans; i++)
        any = any || fixed_behind(d, &d->spans[i], layer) > 0;
    if (!any)
        return;
    phase_open(d, tid, d->n_spans);
    for (int i; (i = phase_take(d, tid, 1)) < d->n_spans;) {
        const struct span_place *at = &d->spans[i];
        int behind = fixed_behind(d, at, layer);

        if (!behind)
            continue;
        keep_channels(c, kv_fixed(d, at->state, layer), kv_drafts(d, at->state, layer), behind, 0,
                      c->channels);
        keep_values(c, kv_fixed(d, at->state, layer), kv_drafts(d, at->state, layer), behind);
    }
    phase_end(d, tid);
}

/* ---- Convolutions, norms, rotation ---- */

/* Channels of the projections of token t of a span, t negative before its first row. */
static const float *channels_at(const struct cpu_device *d, const struct columns *c,
                                const struct span_place *at, const float *state, int t, int first)
{
    return t >= 0 ? row_of(d, c, at->row + t) + first
                  : state + (size_t)(shape_taps_before(c->s) + t) * (size_t)c->channels + first;
}

/* The first convolution of n channels at token t. */
static void first_at(const struct cpu_device *d, int layer, const struct columns *c,
                     const struct span_place *at, const float *state, int t, int first, int n,
                     float *out)
{
    const struct recurrent_weights *w = &d->model->layers[layer].recurrent;

    for (int i = 0; i < n; i++)
        out[i] = w->conv_bias ? w->conv_bias[first + i] : 0.0f;
    for (int k = 0; k < c->s->taps; k++) {
        const float *x = channels_at(d, c, at, state, t - c->s->taps + 1 + k, first),
                    *by = w->conv[0] + (size_t)k * (size_t)c->channels + first;

        for (int i = 0; i < n; i++)
            out[i] = fmaf(x[i], by[i], out[i]);
    }
}

/* Half of a query head's projection and its key's, what stays beside the convolutions. */
static void query_residual(const struct columns *c, const float *row, int head, float *out)
{
    int n = c->s->key_dim, key = head / (c->s->heads / c->s->kv_heads);
    const float *q = row + c->at[QUERIES] + head * n, *k = row + c->at[KEYS] + key * n;

    for (int i = 0; i < n; i++)
        out[i] = (q[i] + k[i]) * 0.5f;
}

/* Of a key head: the mean of its queries'. room: key_dim values. */
static void key_residual(const struct columns *c, const float *row, int key, float *out,
                         float *room)
{
    int n = c->s->key_dim, group = c->s->heads / c->s->kv_heads;

    query_residual(c, row, key * group, out);
    for (int h = 1; h < group; h++) {
        query_residual(c, row, key * group + h, room);
        for (int i = 0; i < n; i++)
            out[i] = out[i] + room[i];
    }
    for (int i = 0; i < n; i++)
        out[i] = out[i] * (1.0f / (float)group);
}

/* A head at one token from its convolved channels: a query goes where attention reads it, a key to
 * the cache. Heads of keys follow those of queries. */
static void finish_head(struct cpu_device *d, int tid, int layer, const struct columns *c,
                        const struct span_place *at, int t, int head, float *x)
{
    const struct mixer_shape *s = c->s;
    const struct layer_weights *w = &d->model->layers[layer];
    int n = s->key_dim, key = head - s->heads, pos = at->pos + t;
    float *residual = d->threads[tid].queries, *room = residual + n;
    float scale = key < 0 ? shape_score_scale_at(s, pos) : 1.0f;
    const float *row = row_of(d, c, at->row + t);

    if (key < 0)
        query_residual(c, row, head, residual);
    else
        key_residual(c, row, key, residual, room);
    d->k->add(x, residual, n);
    d->k->l2_norm(x, n, FLT_EPSILON * FLT_EPSILON, (float)sqrt((double)n));
    for (int i = 0; i < n && key >= 0; i++)
        x[i] = x[i] * w->key_scale[key];
    attention_rotate(d, s, at, x, pos, scale);
    if (key >= 0)
        kv_store_key(d, at->state, layer, key, pos, x);
    else
        memcpy(d->q + ((size_t)(at->row + t) * (size_t)s->heads + (size_t)head) * (size_t)n, x,
               (size_t)n * sizeof *x);
}

/* A head over a span's rows. The first convolution's last results are kept from token to token. */
static void head_task(struct cpu_device *d, int tid, int layer, const struct columns *c,
                      const struct span_place *at, int head)
{
    const struct mixer_shape *s = c->s;
    const struct layer_weights *w = &d->model->layers[layer];
    int n = s->key_dim, first = head * n, cols = s->head_taps * n,
        groups = (n + NUM_LANES - 1) / NUM_LANES;
    float *state = kv_fixed(d, at->state, layer), *in = d->threads[tid].convolved, *out = in + cols;
    const float *packed = d->head_conv[layer] +
                          (size_t)head * (size_t)groups * NUM_LANES * (size_t)cols;

    for (int k = 1; k < s->head_taps; k++)
        first_at(d, layer, c, at, state, k - s->head_taps, first, n, in + k * n);
    for (int t = 0; t < at->rows; t++) {
        memmove(in, in + n, (size_t)(cols - n) * sizeof *in);
        first_at(d, layer, c, at, state, t, first, n, in + cols - n);
        d->k->router(packed, groups, cols, in, out);
        for (int i = 0; i < n && w->head_conv_bias; i++)
            out[i] = out[i] + w->head_conv_bias[first + i];
        finish_head(d, tid, layer, c, at, t, head, out);
    }
    keep_channels(c, state, row_of(d, c, at->row), at->rows - at->drafted, first, n);
}

/* A span's values: the first half of all heads' from each token, the other from the one before;
 * and its drafted rows are kept. */
static void values_task(struct cpu_device *d, int tid, int layer, const struct columns *c,
                        const struct span_place *at)
{
    int half = c->of[VALUES]->rows, n = shape_value_dim(c->s);
    float *state = kv_fixed(d, at->state, layer), *values = d->threads[tid].convolved;
    const float *bias = c->of[BEFORE]->bias, *before = kept_values(c, state);

    for (int t = 0; t < at->rows; t++) {
        const float *row = row_of(d, c, at->row + t);

        memcpy(values, row + c->at[VALUES], (size_t)half * sizeof *values);
        memcpy(values + half, before, (size_t)half * sizeof *values);
        if (at->pos + t == 0 && bias) /* of a token of zeros */
            memcpy(values + half, bias, (size_t)half * sizeof *values);
        for (int h = 0; h < c->s->kv_heads; h++)
            kv_store_value(d, at->state, layer, h, at->pos + t, values + h * n);
        before = row + c->at[BEFORE];
    }
    if (at->drafted)
        memcpy(kv_drafts(d, at->state, layer), row_of(d, c, at->row + at->rows - at->drafted),
               (size_t)at->drafted * (size_t)c->width * sizeof *values);
    keep_values(c, state, row_of(d, c, at->row), at->rows - at->drafted);
}

static void convolve_phase(struct cpu_device *d, int tid, int layer, const struct columns *c)
{
    int heads = c->s->heads + c->s->kv_heads, tasks = heads + 1, total = tasks * d->n_spans;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        const struct span_place *at = &d->spans[task / tasks];

        if (task % tasks < heads)
            head_task(d, tid, layer, c, at, task % tasks);
        else
            values_task(d, tid, layer, c, at);
    }
    phase_end(d, tid);
}

static void convolved_phases(struct cpu_device *d, int tid, int layer, int rows, const float *x,
                             float *y, float *residual)
{
    const struct columns c = columns_of(d, layer);
    struct input in = input_prepare(d, tid, layer, any_rows(&c, false), any_rows(&c, true), rows,
                                    x);

    assert(rows > 0 && rows <= d->max_rows);
    apply_drafts(d, tid, layer, &c);
    project(d, tid, layer, &c, &in, x);
    convolve_phase(d, tid, layer, &c);
    attention_attend(d, tid, layer, rows, y, residual);
}

static struct prefetch_hint convolved_first(const struct cpu_device *d, int tid, int layer)
{
    const struct columns c = columns_of(d, layer);

    return projection_hint(d, layer, &c, tid, phase_part(d, projection_tasks(&c, 1), 1, tid));
}

static double convolved_work(const struct cpu_device *d, int layer, int rows)
{
    const struct columns c = columns_of(d, layer);

    return (double)rows *
           ((double)d->model->hp.hidden * (c.width + d->model->layers[layer].o.cols) +
            (double)c.channels * c.s->key_dim * c.s->head_taps);
}

const struct cpu_mixer cpu_convolved_mixer = {
    .phases = convolved_phases, .first = convolved_first, .work = convolved_work};
