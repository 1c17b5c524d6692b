/* Recurrent mixers: gated short convolution, gated delta net, Kimi delta attention, Mamba 1 and 2
 * (rule 12 of numerics.h). Compute threads, all together (cpu.h). They are one chain of phases:
 * projections into a row of columns per token, then of some of those, a convolution in place, the
 * recurrence, whose outputs replace the values, gates and norms, the output projection. Every task
 * of a phase iterates over all rows of a span: a block of 32 columns of a head's state stays in the
 * first-level cache meanwhile, and since columns are independent, threads divide heads and
 * blocks. */
#include "engine/device/cpu/cpu.h"

#include <assert.h>
#include <string.h>

#define STATE_COLUMNS 32 /* of a block of the state: with 128 keys 16 KiB */
#define CHANNELS 128     /* of a task of the convolution phase */
#define L2_EPS 1e-6f     /* modeling_qwen3_next.py, l2norm() */

/* A projection, and the start of its results in a token's row; from: of its input there, if that is
 * not the normed stream. */
struct projection {
    const struct matrix *w;
    int at, from;
};

/* Layout of a token's row of columns, in the order of struct layer_weights, however the file mixes
 * them; -1: absent. */
struct recurrent {
    const struct mixer_shape *s;
    const struct recurrent_weights *w;
    const struct matrix *o;
    struct projection in[7];
    struct projection thin[2]; /* from results of those before */
    struct projection steps;   /* Mamba 1: from those of the second thin one, normed */
    int n_in, n_thin, width;   /* columns of a row */
    int conv;                  /* first one of the convolution's channels */
    int channels;
    int kept; /* Mamba 1: the convolution's inputs of drafted rows; -1: none are kept */
    int q, k, v, z, b, a;
    int g;                 /* decays, if they do not replace a */
    int keys, values;      /* of all heads */
    bool z_mixed, b_mixed; /* a key head at a time, see struct layer_weights */
    /* rows of columns, and their spans: of the job, or those kept from drafted ones */
    float *rows;
    const struct span_place *spans;
    int n_spans;
};

static void add_projection(struct recurrent *r, const struct matrix *w)
{
    if (!w->rows)
        return;
    r->in[r->n_in++] = (struct projection){.w = w, .at = r->width};
    r->width += w->rows;
}

/* In place of w among the projections: its results' columns, with `first` behind all others. */
static void add_thin(struct recurrent *r, const struct matrix *w)
{
    r->thin[r->n_thin++] = (struct projection){.w = w, .at = r->width};
    r->width += w->rows;
}

static void add_first(struct recurrent *r, struct projection *of, const struct matrix *w)
{
    of->from = r->width;
    add_projection(r, w);
}

/* x, z; time steps; the row that they come from, B, C. The last four follow from the convolution's
 * outputs, all of them from all channels. */
static void lay_selective(struct recurrent *r, const struct layer_weights *w, bool drafts)
{
    r->v = 0;
    r->z = r->values;
    r->a = r->width;
    r->width += r->values;
    r->thin[r->n_thin++] = (struct projection){.w = &w->a_in, .at = r->width, .from = r->v};
    r->steps = (struct projection){.w = &w->a, .at = r->a, .from = r->width};
    r->k = r->width + r->s->a_rank;
    r->q = r->k + r->s->state;
    r->width += w->a_in.rows;
    if (!drafts)
        return;
    r->kept = r->width;
    r->width += r->values;
}

static struct recurrent recurrent_of(const struct cpu_device *d, int layer)
{
    const struct mixer_shape *s = &shape_of(d, layer)->mixer;
    const struct layer_weights *w = &d->model->layers[layer];
    struct recurrent r = {.s = s,
                          .w = &w->recurrent,
                          .rows = d->mixed,
                          .spans = d->spans,
                          .n_spans = d->n_spans,
                          .o = &w->o,
                          .channels = shape_channels(s),
                          .keys = shape_key_heads(s) * shape_state_keys(s),
                          .values = s->heads * s->value_dim,
                          .q = -1,
                          .k = -1,
                          .z = -1,
                          .b = -1,
                          .a = -1,
                          .g = -1,
                          .kept = -1};
    const struct matrix *const in[] = {&w->q, &w->k, &w->v, &w->in, &w->z, &w->b, &w->a};

    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        if (s->kind == MIXER_MAMBA1 && in[i] == &w->a)
            continue;
        else if ((in[i] == &w->z && w->z_in.rows) || (in[i] == &w->a && w->a_in.rows))
            add_thin(&r, in[i]);
        else
            add_projection(&r, in[i]);
    for (int i = 0; i < r.n_thin; i++)
        add_first(&r, &r.thin[i], r.thin[i].w == &w->z ? &w->z_in : &w->a_in);
    switch (s->kind) {
    case MIXER_DELTA_NET:
    case MIXER_KIMI_DELTA:
        r.q = 0;
        r.k = r.keys;
        r.v = 2 * r.keys;
        r.z = r.v + r.values;
        r.b = r.z + r.values;
        r.a = r.b + s->heads;
        r.g = r.a;
        r.z_mixed = !w->z.rows;
        r.b_mixed = !w->a.rows;
        break;
    case MIXER_MAMBA1: lay_selective(&r, w, d->base.config.drafts > 0); break;
    case MIXER_MAMBA2: /* z, x, B, C, dt; followed by the decays */
        r.z = 0;
        r.conv = r.v = r.values;
        r.k = r.v + r.values;
        r.q = r.k + r.keys;
        r.a = r.q + r.keys;
        r.g = r.a + s->heads;
        r.width += s->heads;
        break;
    default: /* B, C, x */ r.conv = r.v = 2 * r.values;
    }
    r.width += ngram_columns(&s->ngrams); /* the last ones: ffn/ngrams.c */
    return r;
}

int recurrent_width(const struct cpu_device *d, int layer)
{
    return shape_recurrent(&shape_of(d, layer)->mixer) ? recurrent_of(d, layer).width : 0;
}

static float *row_of(const struct recurrent *r, int row)
{
    return r->rows + (size_t)row * (size_t)r->width;
}

/* ---- Projections ---- */

static bool quantised_input(const struct recurrent *r)
{
    for (int i = 0; i < r->n_in; i++)
        if (!matrix_takes_rows(r->in[i].w))
            return true;
    return false;
}

static bool float_input(const struct recurrent *r)
{
    for (int i = 0; i < r->n_in; i++)
        if (matrix_takes_rows(r->in[i].w))
            return true;
    return false;
}

/* Where row i of a matrix that goes a key head at a time belongs, and how many behind it go
 * along. parts: what a head has of each of n_parts, to[]: where those begin. */
static int unmix(const int *parts, const int *to, int n_parts, int i, int *run)
{
    int head = 0, at = 0, p = 0;

    for (int j = 0; j < n_parts; j++)
        head += parts[j];
    while (i % head - at >= parts[p])
        at += parts[p++];
    *run = parts[p] - (i % head - at);
    return to[p] + i / head * parts[p] + (i % head - at);
}

static int column_of(const struct recurrent *r, const struct projection *p, int i, int *run)
{
    int each = r->s->heads / shape_key_heads(r->s);

    if (r->z_mixed && p == r->in)
        return unmix((const int[]){r->s->key_dim, r->s->key_dim, each * r->s->value_dim,
                                   each * r->s->value_dim},
                     (const int[]){r->q, r->k, r->v, r->z}, 4, i, run);
    if (r->b_mixed && p == r->in + r->n_in - 1)
        return unmix((const int[]){each, each}, (const int[]){r->b, r->a}, 2, i, run);
    *run = p->w->rows - i;
    return p->at + i;
}

static bool is_mixed(const struct recurrent *r, const struct projection *p)
{
    return (r->z_mixed && p == r->in) || (r->b_mixed && p == r->in + r->n_in - 1);
}

/* Writes results r0 .. r1-1 of a mixed projection into a token's row. */
static void scatter(const struct recurrent *r, const struct projection *p, int r0, int r1,
                    const float *from, float *row)
{
    for (int i = r0, run; i < r1; i += run, from += run) {
        int to = column_of(r, p, i, &run);

        run = min_int(run, r1 - i);
        memcpy(row + to, from, (size_t)run * sizeof *row);
    }
}

static int task_rows(int rows)
{
    return rows == 1 ? 2 * CPU_UNIT : CPU_WIDE;
}

/* Tasks of all projections for one block of tokens. */
static int projection_tasks(const struct recurrent *r, int rows)
{
    int n = 0, wide = task_rows(rows);

    for (int i = 0; i < r->n_in; i++)
        n += (r->in[i].w->rows + wide - 1) / wide;
    return n;
}

/* The projection of a task; *task becomes relative to it. */
static const struct projection *projection_at(const struct recurrent *r, int rows, int *task)
{
    const struct projection *p = r->in;
    int wide = task_rows(rows);

    for (int n; *task >= (n = (p->w->rows + wide - 1) / wide); p++)
        *task -= n;
    return p;
}

/* Address of the weights of a task of one row; past this thread's part, those of its output
 * projection. */
static struct prefetch_hint projection_hint(const struct cpu_device *d, const struct recurrent *r,
                                            int tid, int task)
{
    if (task >= phase_part(d, projection_tasks(r, 1), 1, tid + 1))
        return output_hint(d, r->o, tid);

    const struct projection *p = projection_at(r, 1, &task);

    return matrix_hint(p->w, task * task_rows(1));
}

static void project_task(struct cpu_device *d, int tid, const struct recurrent *r,
                         const struct input *in, int task, int t0, int t1)
{
    int wide = task_rows(in->n), local = task;
    const struct projection *p = projection_at(r, in->n, &local);
    int r0 = local * wide, r1 = min_int(r0 + wide, p->w->rows);
    bool mixed = is_mixed(r, p);
    float *tile = d->threads[tid].tile, *row = row_of(r, t0);

    if (in->n == 1)
        gemv(d, tid, p->w, r0, r1, in, mixed ? tile : row + p->at + r0,
             projection_hint(d, r, tid, task + 1));
    else
        gemm(d, tid, p->w, r0, r1, in, t0, t1, mixed ? tile : row + p->at + r0,
             mixed ? CPU_WIDE : r->width);
    for (int t = t0; mixed && t < t1; t++)
        scatter(r, p, r0, r1, tile + (size_t)(t - t0) * CPU_WIDE, row_of(r, t));
}

static void project(struct cpu_device *d, int tid, int layer, const struct recurrent *r,
                    const struct input *in, const float *x)
{
    int tasks = projection_tasks(r, in->n), total = tasks * token_blocks(d, in->n), t0, t1;
    bool ready = in->n > 1;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        if (!ready)
            input_prepare_row(d, layer, quantised_input(r), x, in->rows, in->panels, 1, 0);
        ready = true;
        token_block(d, in->n, task / tasks, &t0, &t1);
        project_task(d, tid, r, in, task % tasks, t0, t1);
    }
    phase_end(d, tid);
}

/* The same from results of other projections in the row: few columns, or few rows. */
struct thin {
    const struct projection *of;
    int n;
};

static int thin_tasks(const struct thin *p, int rows)
{
    int n = 0, wide = task_rows(rows);

    for (int i = 0; i < p->n; i++)
        n += (p->of[i].w->rows + wide - 1) / wide;
    return n;
}

/* Blocks per row of the thin projections' inputs before that of number i. */
static size_t thin_blocks(const struct thin *p, int i)
{
    size_t n = 0;

    for (int k = 0; k < i; k++)
        n += matrix_takes_rows(p->of[k].w) ? 0 : (size_t)(p->of[k].w->cols / NUM_BLOCK);
    return n;
}

static void quantise_thin(struct cpu_device *d, const struct recurrent *r, const struct thin *p,
                          struct act_block *to, int rows, int t)
{
    for (int i = 0; i < p->n; i++)
        if (!matrix_takes_rows(p->of[i].w))
            input_quantise(d, row_of(r, t) + p->of[i].from, p->of[i].w->cols,
                           to + thin_blocks(p, i) * (size_t)rows, rows, t);
}

static void thin_task(struct cpu_device *d, int tid, const struct recurrent *r,
                      const struct thin *p, int rows, int task, int t0, int t1)
{
    struct thread_scratch *s = &d->threads[tid];
    struct act_block *blocks = rows == 1 ? s->act : d->act;
    int wide = task_rows(rows), i = 0, r0, r1;

    for (int n; task >= (n = (p->of[i].w->rows + wide - 1) / wide); i++)
        task -= n;
    r0 = task * wide;
    r1 = min_int(r0 + wide, p->of[i].w->rows);
    struct input in = {.n = rows,
                       .cols = p->of[i].w->cols,
                       .panels = blocks ? blocks + thin_blocks(p, i) * (size_t)rows : NULL,
                       .rows = row_of(r, 0) + p->of[i].from,
                       .stride = r->width};
    float *out = row_of(r, t0) + p->of[i].at + r0;

    s->panel_of = NULL; /* of another projection's input */
    if (rows == 1)
        gemv(d, tid, p->of[i].w, r0, r1, &in, out, (struct prefetch_hint){0});
    else
        gemm(d, tid, p->of[i].w, r0, r1, &in, t0, t1, out, r->width);
}

static void project_thin(struct cpu_device *d, int tid, const struct recurrent *r,
                         const struct thin *p, int rows)
{
    int tasks = thin_tasks(p, rows), total = tasks * token_blocks(d, rows), t0, t1;
    bool ready = rows > 1;

    if (!p->n)
        return;
    if (rows > 1) {
        phase_open(d, tid, rows);
        for (int t; (t = phase_take(d, tid, 1)) < rows;)
            quantise_thin(d, r, p, d->act, rows, t);
        phase_end(d, tid);
    }
    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        if (!ready)
            quantise_thin(d, r, p, d->threads[tid].act, 1, 0);
        ready = true;
        token_block(d, rows, task / tasks, &t0, &t1);
        thin_task(d, tid, r, p, rows, task % tasks, t0, t1);
    }
    phase_end(d, tid);
}

/* ---- Convolution, decays ---- */

/* Channels first .. first+n-1 of so many rows; state: the inputs before them. */
static void convolve_rows(struct cpu_device *d, const struct recurrent *r, int t, int rows,
                          int first, int n, float *state, int state_stride)
{
    const struct recurrent_weights *w = r->w;
    int third = w->conv[1] ? r->channels / 3 : r->channels;
    bool gates = r->s->kind == MIXER_SHORT_CONVOLUTION;
    float *row = row_of(r, t);

    d->k->convolve(&(struct kernel_convolution){.x = row + r->conv + first,
                                                .before = gates ? row + first : NULL,
                                                .after = gates ? row + r->values + first : NULL,
                                                .stride = r->width,
                                                .rows = rows,
                                                .n = n,
                                                .taps = r->s->taps,
                                                .silu = !gates,
                                                .w = w->conv[first / third] + first % third,
                                                .bias = w->conv_bias ? w->conv_bias + first : NULL,
                                                .state = state,
                                                .w_stride = third,
                                                .state_stride = state_stride});
}

/* Drafted rows continue from a copy of the state. */
static void convolve_drafted(struct cpu_device *d, const struct recurrent *r,
                             const struct span_place *span, int first, int n, const float *state)
{
    float copy[(KERNEL_TAPS - 1) * KERNEL_KEYS];

    assert(n <= KERNEL_KEYS && r->s->taps <= KERNEL_TAPS);
    for (int i = 0; i < r->s->taps - 1; i++)
        memcpy(copy + i * n, state + (size_t)i * (size_t)r->channels, (size_t)n * sizeof *copy);
    convolve_rows(d, r, span->row + span->rows - span->drafted, span->drafted, first, n, copy, n);
}

/* Channels first .. first+n-1 of a span's rows. */
static void convolve(struct cpu_device *d, int layer, const struct recurrent *r,
                     const struct span_place *span, int first, int n)
{
    bool gates = r->s->kind == MIXER_SHORT_CONVOLUTION;
    float *state = kv_fixed(d, span->state, layer) +
                   (gates ? 0 : r->values * shape_state_keys(r->s)) + first;

    convolve_rows(d, r, span->row, span->rows - span->drafted, first, n, state, r->channels);
    if (span->drafted)
        convolve_drafted(d, r, span, first, n, state);
}

/* A task of the convolution phase: a head of q or of k with its norm (delta nets), or a block of
 * other channels; then decays, of all heads (Kimi: of one). */
struct conv_tasks {
    int heads, blocks, decays;
};

static struct conv_tasks conv_tasks(const struct recurrent *r)
{
    const struct mixer_shape *s = r->s;
    bool delta = s->kind == MIXER_DELTA_NET || s->kind == MIXER_KIMI_DELTA;
    int rest = r->channels - (delta ? 2 * r->keys : 0);

    return (struct conv_tasks){delta ? 2 * s->kv_heads : 0, (rest + CHANNELS - 1) / CHANNELS,
                               s->kind == MIXER_KIMI_DELTA ? s->heads + 1
                               : s->kind == MIXER_SHORT_CONVOLUTION || s->kind == MIXER_MAMBA1 ? 0
                                                                                               : 1};
}

/* Kimi's decays of one head, one per key. */
static void decay_keys(struct cpu_device *d, const struct recurrent *r, float *row, int head)
{
    int n = r->s->key_dim;
    float *x = row + r->a + head * n, a[KERNEL_KEYS];
    const float *bias = r->w->dt_bias + head * n;

    if (r->s->decay_bound != 0.0f) {
        d->k->decay_bounded(x, bias, r->w->a[head], r->s->decay_bound, n);
        return;
    }
    for (int i = 0; i < n; i++)
        a[i] = -r->w->a[head];
    d->k->decay(x, bias, a, n);
}

/* betas and decays of a row; Mamba 2: time steps and decays. */
static void decay_heads(struct cpu_device *d, const struct recurrent *r, float *row)
{
    int n = r->s->heads;

    if (r->b >= 0)
        d->k->sigmoid(row + r->b, n);
    if (r->s->kind == MIXER_KIMI_DELTA)
        return;
    if (r->g != r->a)
        memcpy(row + r->g, row + r->a, (size_t)n * sizeof *row);
    d->k->decay(row + r->g, r->w->dt_bias, r->w->a, n);
    if (r->g != r->a)
        d->k->softplus(row + r->a, r->w->dt_bias, n);
}

static void conv_task(struct cpu_device *d, int layer, const struct recurrent *r,
                      const struct span_place *span, int task)
{
    struct conv_tasks n = conv_tasks(r);
    int dim = r->s->key_dim, first;

    if (task < n.heads) {
        bool query = task < r->s->kv_heads;

        convolve(d, layer, r, span, task * dim, dim);
        for (int t = span->row; t < span->row + span->rows; t++)
            d->k->l2_norm(row_of(r, t) + task * dim, dim, L2_EPS,
                          query ? shape_score_scale(r->s) : 1.0f);
    } else if (task < n.heads + n.blocks) {
        first = n.heads * dim + (task - n.heads) * CHANNELS;
        convolve(d, layer, r, span, first, min_int(CHANNELS, r->channels - first));
    } else {
        int head = task - n.heads - n.blocks;

        for (int t = span->row; t < span->row + span->rows; t++)
            if (r->s->kind == MIXER_KIMI_DELTA && head < r->s->heads)
                decay_keys(d, r, row_of(r, t), head);
            else
                decay_heads(d, r, row_of(r, t));
    }
}

static void conv_phase(struct cpu_device *d, int tid, int layer, const struct recurrent *r)
{
    struct conv_tasks n = conv_tasks(r);
    int tasks = n.heads + n.blocks + n.decays, total = tasks * r->n_spans;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;)
        conv_task(d, layer, r, &r->spans[task / tasks], task % tasks);
    phase_end(d, tid);
}

/* ---- Recurrence ---- */

static int state_blocks(const struct recurrent *r)
{
    return (r->s->value_dim + STATE_COLUMNS - 1) / STATE_COLUMNS;
}

/* A block of columns of a head over so many rows. */
static void recur_rows(struct cpu_device *d, const struct recurrent *r, int t, int rows, int head,
                       int block, float *state)
{
    const struct mixer_shape *s = r->s;
    int n = shape_key_heads(s), key = s->tiled ? head % n : head / (s->heads / n),
        dim = shape_state_keys(s), column = block * STATE_COLUMNS;
    bool kimi = s->kind == MIXER_KIMI_DELTA;
    float *row = row_of(r, t);

    d->k->recur(&(struct kernel_recurrence){.state = state,
                                            .key_dim = dim,
                                            .width = min_int(STATE_COLUMNS, s->value_dim - column),
                                            .rows = rows,
                                            .g_step = kimi,
                                            .stride = r->width,
                                            .q = row + r->q + key * dim,
                                            .k = row + r->k + key * dim,
                                            .g = row + r->g + head * (kimi ? dim : 1),
                                            .beta = r->b >= 0 ? row + r->b + head : NULL,
                                            .dt = row + r->a + head,
                                            .skip = r->w->skip ? r->w->skip[head] : 0.0f,
                                            .v = row + r->v + head * s->value_dim + column},
                0);
}

/* The same of Mamba 1: columns from `column` on. */
static void scan_rows(struct cpu_device *d, const struct recurrent *r, int t, int rows, int column,
                      float *state)
{
    int width = min_int(STATE_COLUMNS, r->values - column);
    float *row = row_of(r, t);

    for (int i = 0; i < rows; i++)
        d->k->softplus(row_of(r, t + i) + r->a + column, r->w->dt_bias + column, width);
    d->k->scan(&(struct kernel_scan){.state = state,
                                     .key_dim = r->s->state,
                                     .width = width,
                                     .rows = rows,
                                     .stride = r->width,
                                     .a_stride = r->values,
                                     .b = row + r->k,
                                     .c = row + r->q,
                                     .dt = row + r->a + column,
                                     .a = r->w->a + column,
                                     .skip = r->w->skip + column,
                                     .v = row + r->v + column},
               0);
}

static void recur_block(struct cpu_device *d, const struct recurrent *r, int t, int rows, int head,
                        int block, float *state)
{
    if (r->s->kind == MIXER_MAMBA1)
        scan_rows(d, r, t, rows, block * STATE_COLUMNS, state);
    else
        recur_rows(d, r, t, rows, head, block, state);
}

/* Drafted rows continue from a copy of the state. */
static void recur_drafted(struct cpu_device *d, const struct recurrent *r,
                          const struct span_place *span, int head, int block, const float *state)
{
    _Alignas(64) float copy[STATE_COLUMNS * KERNEL_KEYS];
    int width = min_int(STATE_COLUMNS, r->s->value_dim - block * STATE_COLUMNS);

    assert(shape_state_keys(r->s) <= KERNEL_KEYS);
    memcpy(copy, state, (size_t)(width * shape_state_keys(r->s)) * sizeof *copy);
    recur_block(d, r, span->row + span->rows - span->drafted, span->drafted, head, block, copy);
}

/* A block of columns of a head over a span's rows. The state is stored head by head, block by
 * block. */
static void recur_task(struct cpu_device *d, int layer, const struct recurrent *r,
                       const struct span_place *span, int head, int block)
{
    const struct mixer_shape *s = r->s;
    float *state = kv_fixed(d, span->state, layer) +
                   (head * s->value_dim + block * STATE_COLUMNS) * shape_state_keys(s);

    recur_block(d, r, span->row, span->rows - span->drafted, head, block, state);
    if (span->drafted)
        recur_drafted(d, r, span, head, block, state);
}

static void recur_phase(struct cpu_device *d, int tid, int layer, const struct recurrent *r)
{
    int blocks = state_blocks(r), tasks = r->s->heads * blocks, total = tasks * r->n_spans;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;)
        recur_task(d, layer, r, &r->spans[task / tasks], task % tasks / blocks, task % blocks);
    phase_end(d, tid);
}

/* Mamba 1: the time steps, B and C of so many rows from what their convolution gave. */
static void select_phases(struct cpu_device *d, int tid, int layer, const struct recurrent *r,
                          int rows)
{
    float eps = shape_of(d, layer)->norms.eps;
    int rank = r->s->a_rank, n = r->s->state;

    project_thin(d, tid, r, &(struct thin){r->thin, r->n_thin}, rows);
    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;) {
        float *row = row_of(r, t), *steps = row + r->steps.from;

        d->k->rms_norm(steps, rank, r->w->dt_norm, 1.0f / (float)rank, eps, steps);
        d->k->rms_norm(row + r->k, n, r->w->b_norm, 1.0f / (float)n, eps, row + r->k);
        d->k->rms_norm(row + r->q, n, r->w->c_norm, 1.0f / (float)n, eps, row + r->q);
    }
    phase_end(d, tid);
    project_thin(d, tid, r, &(struct thin){&r->steps, 1}, rows);
}

static void state_phases(struct cpu_device *d, int tid, int layer, const struct recurrent *r)
{
    conv_phase(d, tid, layer, r);
    if (r->s->kind != MIXER_SHORT_CONVOLUTION)
        recur_phase(d, tid, layer, r);
}

/* ---- Drafts ---- */

/* Applies the accepted drafted rows of the previous job, advancing the state to the start of each
 * span. Every thread finds the same ones: the deciding data changes only between jobs. */
static void apply_drafts(struct cpu_device *d, int tid, int layer, const struct recurrent *job)
{
    for (int i = 0; i < d->n_spans; i++) {
        struct span_place right = {.state = d->spans[i].state,
                                   .rows = fixed_behind(d, &d->spans[i], layer)};
        struct recurrent r = *job;

        if (!right.rows)
            continue;
        r.rows = kv_drafts(d, right.state, layer);
        r.conv = r.kept >= 0 ? r.kept : r.conv;
        r.spans = &right;
        r.n_spans = 1;
        state_phases(d, tid, layer, &r);
    }
}

static bool any_drafted(const struct cpu_device *d)
{
    bool any = false;

    for (int i = 0; i < d->n_spans; i++)
        any = any || d->spans[i].drafted;
    return any;
}

/* Mamba 1: the convolution's inputs of drafted rows, before it replaces them. */
static void keep_inputs(struct cpu_device *d, int tid, const struct recurrent *r)
{
    if (!any_drafted(d))
        return;
    phase_open(d, tid, d->n_spans);
    for (int i; (i = phase_take(d, tid, 1)) < d->n_spans;) {
        const struct span_place *at = &d->spans[i];

        for (int t = at->row + at->rows - at->drafted; t < at->row + at->rows; t++)
            memcpy(row_of(r, t) + r->kept, row_of(r, t) + r->v, (size_t)r->values * sizeof(float));
    }
    phase_end(d, tid);
}

/* Keeps the drafted rows before they are modified: projected; of Mamba 1 before the recurrence. */
static void keep_drafts(struct cpu_device *d, int tid, int layer, const struct recurrent *r)
{
    if (!any_drafted(d))
        return;
    phase_open(d, tid, d->n_spans);
    for (int i; (i = phase_take(d, tid, 1)) < d->n_spans;) {
        const struct span_place *at = &d->spans[i];

        if (at->drafted)
            memcpy(kv_drafts(d, at->state, layer), row_of(r, at->row + at->rows - at->drafted),
                   (size_t)at->drafted * (size_t)r->width * sizeof(float));
    }
    phase_end(d, tid);
}

/* ---- Gates and norms ---- */

/* Norms each of `parts` parts of a row's outputs. */
static void norm_parts(const struct cpu_device *d, const struct recurrent *r, float eps, float *y,
                       int parts, bool one_weight)
{
    int n = r->values / parts;

    for (int i = 0; i < parts; i++)
        d->k->rms_norm(y + i * n, n, r->w->norm + (one_weight ? 0 : i * n), 1.0f / (float)n, eps,
                       y + i * n);
}

/* The input of the output projection from a token's row; y may be the outputs' address. */
static void finish_row(const struct cpu_device *d, int layer, const struct recurrent *r,
                       const float *row, float *y)
{
    float eps = shape_of(d, layer)->norms.eps;

    if (y != row + r->v)
        memcpy(y, row + r->v, (size_t)r->values * sizeof *y);
    switch (r->s->kind) {
    case MIXER_DELTA_NET:
    case MIXER_KIMI_DELTA:
        norm_parts(d, r, eps, y, r->s->heads, true);
        if (r->s->kind == MIXER_KIMI_DELTA || r->s->gate_sigmoid)
            d->k->gate(y, row + r->z, r->values);
        else
            d->k->activate[ACTIVATION_SILU](row + r->z, y, r->values, 0.0f, y);
        break;
    case MIXER_MAMBA1: d->k->activate[ACTIVATION_SILU](row + r->z, y, r->values, 0.0f, y); break;
    case MIXER_MAMBA2:
        d->k->activate[ACTIVATION_SILU](row + r->z, y, r->values, 0.0f, y);
        norm_parts(d, r, eps, y, r->s->groups, false);
        break;
    default: break;
    }
}

static void finish_phase(struct cpu_device *d, int tid, int layer, const struct recurrent *r,
                         int rows)
{
    bool quantised = !matrix_takes_rows(r->o);

    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;) {
        float *row = row_of(r, t);

        finish_row(d, layer, r, row, row + r->v);
        if (quantised)
            input_quantise(d, row + r->v, r->o->cols, d->act, rows, t);
    }
    phase_end(d, tid);
}

struct finish {
    int layer;
    const struct recurrent *r;
};

/* One row: by every thread redundantly. */
static void finish_one(struct cpu_device *d, int tid, const void *ctx)
{
    const struct finish *f = ctx;
    struct thread_scratch *s = &d->threads[tid];

    finish_row(d, f->layer, f->r, row_of(f->r, 0), s->row);
    if (!matrix_takes_rows(f->r->o))
        input_quantise(d, s->row, f->r->o->cols, s->act, 1, 0);
}

static void recurrent_phases(struct cpu_device *d, int tid, int layer, int rows, const float *x,
                             float *y, float *residual)
{
    const struct recurrent r = recurrent_of(d, layer);
    struct input in = input_prepare(d, tid, layer, quantised_input(&r), float_input(&r), rows, x);
    struct thread_scratch *s = &d->threads[tid];

    assert(rows > 0 && rows <= d->max_rows);
    apply_drafts(d, tid, layer, &r);
    project(d, tid, layer, &r, &in, x);
    if (r.s->kind == MIXER_MAMBA1) {
        keep_inputs(d, tid, &r);
        conv_phase(d, tid, layer, &r);
        select_phases(d, tid, layer, &r, rows);
        keep_drafts(d, tid, layer, &r);
        recur_phase(d, tid, layer, &r);
    } else {
        project_thin(d, tid, &r, &(struct thin){r.thin, r.n_thin}, rows);
        keep_drafts(d, tid, layer, &r);
        state_phases(d, tid, layer, &r);
    }
    if (rows > 1)
        finish_phase(d, tid, layer, &r, rows);
    in = rows == 1 ? (struct input){.n = 1,
                                    .cols = r.o->cols,
                                    .panels = s->act,
                                    .rows = s->row,
                                    .stride = r.o->cols}
                   : (struct input){.n = rows,
                                    .cols = r.o->cols,
                                    .panels = d->act,
                                    .rows = d->mixed + r.v,
                                    .stride = r.width};
    output_phase(d, tid, r.o, &in, finish_one, &(struct finish){layer, &r}, y, residual);
}

static struct prefetch_hint recurrent_first(const struct cpu_device *d, int tid, int layer)
{
    const struct recurrent r = recurrent_of(d, layer);

    return projection_hint(d, &r, tid, phase_part(d, projection_tasks(&r, 1), 1, tid));
}

static double recurrent_work(const struct cpu_device *d, int layer, int rows)
{
    const struct recurrent r = recurrent_of(d, layer);
    bool convolution = r.s->kind == MIXER_SHORT_CONVOLUTION;

    return (double)rows * ((double)d->model->hp.hidden * (r.width + r.values) +
                           (convolution ? 0.0 : 2.0 * r.values * shape_state_keys(r.s)));
}

const struct cpu_mixer cpu_recurrent_mixer = {
    .phases = recurrent_phases, .first = recurrent_first, .work = recurrent_work};
