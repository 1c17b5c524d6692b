/* The attention block: norm, QKV with rotary embedding and cache store, attention over chunks of the context, output projection.
 * Compute threads, all together (cpu.h). A task of the QKV phase is a whole head, so that the rotation of its pairs needs no barrier;
 * the query heads that share a key/value head are attended together, so that each key and value is loaded once for all of them. */
#include "engine/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static bool needs_panels(const struct layer_weights *w)
{
    return type_is_quantised(w->q.type) || type_is_quantised(w->k.type) || type_is_quantised(w->v.type);
}

static bool needs_rows(const struct layer_weights *w)
{
    return !type_is_quantised(w->q.type) || !type_is_quantised(w->k.type) || !type_is_quantised(w->v.type);
}

static void prepare_row(const struct cpu_device *d, const struct layer_weights *w, const float *x, float *row, struct act_block *panels, int rows, int t)
{
    int hidden = d->model->hp.hidden;

    d->k->norm(x + (size_t)t * (size_t)hidden, hidden, w->attention_norm.weight, w->attention_norm.bias, 1.0f / (float)hidden, d->model->hp.norm_eps, row);
    if (needs_panels(w))
        input_quantise(d, row, hidden, panels, rows, t);
}

/* Normed input of the QKV matrices; ends with a barrier. One row is prepared by every thread for itself, with its first task. */
static struct input prepare(struct cpu_device *d, int tid, const struct layer_weights *w, int rows, const float *x)
{
    int hidden = d->model->hp.hidden;
    struct thread_scratch *s = &d->threads[tid];

    if (rows == 1)
        return (struct input){.n = 1, .cols = hidden, .panels = s->act, .rows = s->row, .stride = hidden};
    struct pool_share *share = phase_begin(d, tid);

    for (int t; (t = pool_share_take(share, 1, rows)) < rows;)
        prepare_row(d, w, x, needs_rows(w) ? d->normed + (size_t)t * (size_t)hidden : s->row, d->act, rows, t);
    phase_end(d, tid);
    return (struct input){.n = rows, .cols = hidden, .panels = d->act, .rows = d->normed, .stride = hidden};
}

static void rotate(const struct cpu_device *d, float *x, int pos, float scale)
{
    int half = d->model->hp.rope_dims / 2;

    d->k->rotary(x, d->model->hp.head_dim, half, d->rope_cos + (size_t)pos * (size_t)half, d->rope_sin + (size_t)pos * (size_t)half, scale);
}

/* A task is one head, or as many as fill whole groups of weight rows where heads are narrower than those: the query heads' tasks first,
 * then the keys', then the values'. */
static void qkv_phase(struct cpu_device *d, int tid, int layer, const struct layer_weights *w, const struct input *in, int pos, const float *x)
{
    const struct hparams *hp = &d->model->hp;
    int hd = hp->head_dim, per = d->heads_per_task, q_tasks = (hp->n_heads + per - 1) / per, kv_tasks = (hp->n_kv_heads + per - 1) / per;
    int tasks = q_tasks + 2 * kv_tasks, total = tasks * token_blocks(d, in->n), t0, t1;
    float *tile = d->threads[tid].tile;
    bool ready = in->n > 1;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        int unit = task % tasks, first, n;

        if (!ready)
            prepare_row(d, w, x, in->rows, in->panels, 1, 0);
        ready = true;
        token_block(d, in->n, task / tasks, &t0, &t1);
        if (unit < q_tasks) {
            ptrdiff_t stride = (ptrdiff_t)hp->n_heads * hd;
            float *q = d->q + t0 * stride + (ptrdiff_t)unit * per * hd;

            first = unit * per;
            n = min_int(per, hp->n_heads - first);
            multiply(d, tid, &w->q, first * hd, (first + n) * hd, in, t0, t1, q, stride);
            for (int t = t0; t < t1; t++, q += stride)
                for (int h = 0; h < n; h++)
                    rotate(d, q + h * hd, pos + t, d->scale);
            continue;
        }
        bool values = unit >= q_tasks + kv_tasks;

        first = (unit - q_tasks - (values ? kv_tasks : 0)) * per;
        n = min_int(per, hp->n_kv_heads - first);
        multiply(d, tid, values ? &w->v : &w->k, first * hd, (first + n) * hd, in, t0, t1, tile, per * hd);
        for (int t = t0; t < t1; t++)
            for (int h = 0; h < n; h++) {
                float *kv = tile + ((ptrdiff_t)(t - t0) * per + h) * hd;

                if (values) {
                    kv_store_value(d, layer, first + h, pos + t, kv);
                } else {
                    rotate(d, kv, pos + t, 1.0f);
                    kv_store_key(d, layer, first + h, pos + t, kv);
                }
            }
    }
    phase_end(d, tid);
}

/* Keys that the query at absolute position p sees: first and one past the last. */
static void visible(const struct cpu_device *d, int p, int *lo, int *hi)
{
    int window = d->model->hp.sliding_window;

    *lo = window > 0 && p >= window ? p - window + 1 : 0;
    *hi = p + 1;
}

/* One chunk for up to KERNEL_QUERIES query heads of one row. */
static void attend_chunk(struct cpu_device *d, struct thread_scratch *s, const uint8_t *keys, const uint8_t *values, int chunk, int lo, int hi,
                         const float *q, int nq, float *o, ptrdiff_t o_stride, float *max, float *sum, ptrdiff_t m_stride)
{
    int hd = d->model->hp.head_dim, begin = chunk * NUM_CHUNK, end = min_int(begin + NUM_CHUNK, hi), from, n;

    begin = begin > lo ? begin : lo;
    from = begin / NUM_LANES * NUM_LANES;
    n = (end - from + NUM_LANES - 1) / NUM_LANES * NUM_LANES;
    for (int t = 0; t < n; t += NUM_LANES)
        d->k->scores[d->kv_k](keys + (size_t)((from + t) % NUM_CHUNK / NUM_LANES) * d->key_block, hd, q, hd, nq, s->scores + t, NUM_CHUNK);
    for (int i = 0; i < nq; i++) {
        float *p = s->scores + i * NUM_CHUNK;

        for (int t = from; t < begin; t++)
            p[t - from] = -INFINITY;
        for (int t = end; t < from + n; t++)
            p[t - from] = -INFINITY;
        d->k->softmax(p, n, max + i * m_stride, sum + i * m_stride);
    }
    d->k->values[d->kv_v](values + (size_t)(begin % NUM_CHUNK) * d->value_row, d->value_row, hd, s->scores + (begin - from), NUM_CHUNK, nq, end - begin, o, o_stride);
}

/* Few rows: tasks are (row, key/value head, chunk), results go to the shared chunk buffers. */
static void attend_split(struct cpu_device *d, int tid, int layer, int rows, int pos)
{
    const struct hparams *hp = &d->model->hp;
    int hd = hp->head_dim, group = hp->n_heads / hp->n_kv_heads, chunks = (pos + rows - 1) / NUM_CHUNK + 1, total = rows * hp->n_kv_heads * chunks, lo, hi;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        int chunk = task % chunks, kvh = task / chunks % hp->n_kv_heads, row = task / chunks / hp->n_kv_heads;

        visible(d, pos + row, &lo, &hi);
        for (int g = 0; g < group; g += KERNEL_QUERIES) {
            int head = kvh * group + g, nq = min_int(KERNEL_QUERIES, group - g);
            size_t at = ((size_t)row * (size_t)hp->n_heads + (size_t)head) * (size_t)d->chunks_max + (size_t)chunk;

            if (chunk * NUM_CHUNK >= hi || (chunk + 1) * NUM_CHUNK <= lo) {
                for (int i = 0; i < nq; i++)
                    d->chunk_max[at + (size_t)i * (size_t)d->chunks_max] = -INFINITY;
                continue;
            }
            attend_chunk(d, &d->threads[tid], kv_keys(d, layer, kvh, chunk), kv_values(d, layer, kvh, chunk), chunk, lo, hi,
                         d->q + ((size_t)row * (size_t)hp->n_heads + (size_t)head) * (size_t)hd, nq, d->chunk_o + at * (size_t)hd,
                         (ptrdiff_t)d->chunks_max * hd, d->chunk_max + at, d->chunk_sum + at, d->chunks_max);
        }
    }
    phase_end(d, tid);
}

static void merge_split(const struct cpu_device *d, int row, int head, int chunks, float *out)
{
    int hd = d->model->hp.head_dim;
    size_t at = ((size_t)row * (size_t)d->model->hp.n_heads + (size_t)head) * (size_t)d->chunks_max;

    d->k->merge(d->chunk_o + at * (size_t)hd, hd, d->chunk_max + at, d->chunk_sum + at, chunks, hd, out);
}

/* One attended head of one row into the output projection's input. */
static void hand_over(struct cpu_device *d, const struct matrix *o, int rows, int row, int head, const float *attended)
{
    const struct hparams *hp = &d->model->hp;
    int hd = hp->head_dim;

    if (type_is_quantised(o->type) && hd % NUM_BLOCK == 0)
        input_quantise_part(d, attended, o->cols, head * hd, hd, d->act, rows, row);
    else
        memcpy(d->attended + ((size_t)row * (size_t)hp->n_heads + (size_t)head) * (size_t)hd, attended, (size_t)hd * sizeof(float));
}

/* Many rows: a task is some rows of one key/value head; chunks outside, rows inside, so that a chunk stays in cache. */
static void attend_blocks(struct cpu_device *d, int tid, int layer, const struct matrix *o, int rows, int pos)
{
    const struct hparams *hp = &d->model->hp;
    int hd = hp->head_dim, group = hp->n_heads / hp->n_kv_heads, step = CPU_SPLIT_ROWS, blocks = (rows + step - 1) / step, lo, hi;
    struct thread_scratch *s = &d->threads[tid];
    struct pool_share *share = phase_begin(d, tid);
    size_t lane = (size_t)d->chunks_max * (size_t)(hd + 2);             /* one query's chunks: o, then max, then sum */

    for (int task; (task = pool_share_take(share, 1, blocks * hp->n_kv_heads)) < blocks * hp->n_kv_heads;) {
        int kvh = task % hp->n_kv_heads, r0 = (blocks - 1 - task / hp->n_kv_heads) * step, r1 = min_int(r0 + step, rows);
        int chunks = (pos + r1 - 1) / NUM_CHUNK + 1;

        for (int g = 0; g < group; g += KERNEL_QUERIES) {
            int head = kvh * group + g, nq = min_int(KERNEL_QUERIES, group - g);

            for (int chunk = 0; chunk < chunks; chunk++)
                for (int row = r0; row < r1; row++) {
                    float *to = s->partial + (size_t)(row - r0) * KERNEL_QUERIES * lane, *max = to + (size_t)d->chunks_max * (size_t)hd + chunk;

                    visible(d, pos + row, &lo, &hi);
                    if (chunk * NUM_CHUNK >= hi || (chunk + 1) * NUM_CHUNK <= lo) {
                        for (int i = 0; i < nq; i++)
                            max[(size_t)i * lane] = -INFINITY;
                        continue;
                    }
                    attend_chunk(d, s, kv_keys(d, layer, kvh, chunk), kv_values(d, layer, kvh, chunk), chunk, lo, hi,
                                 d->q + ((size_t)row * (size_t)hp->n_heads + (size_t)head) * (size_t)hd, nq, to + (size_t)chunk * (size_t)hd,
                                 (ptrdiff_t)lane, max, max + d->chunks_max, (ptrdiff_t)lane);
                }
            for (int row = r0; row < r1; row++)
                for (int i = 0; i < nq; i++) {
                    float *from = s->partial + ((size_t)(row - r0) * KERNEL_QUERIES + (size_t)i) * lane, *max = from + (size_t)d->chunks_max * (size_t)hd;

                    d->k->merge(from, hd, max, max + d->chunks_max, chunks, hd, s->row);
                    hand_over(d, o, rows, row, head + i, s->row);
                }
        }
    }
    phase_end(d, tid);
}

static void merge_row(struct cpu_device *d, struct thread_scratch *s, const struct matrix *o, int pos)
{
    int hd = d->model->hp.head_dim, chunks = pos / NUM_CHUNK + 1;

    for (int h = 0; h < d->model->hp.n_heads; h++)
        merge_split(d, 0, h, chunks, s->row + (size_t)h * (size_t)hd);
    if (type_is_quantised(o->type))
        input_quantise(d, s->row, o->cols, s->act, 1, 0);
}

/* Input of the output projection: as prepare(). */
static struct input attend(struct cpu_device *d, int tid, int layer, const struct matrix *o, int rows, int pos)
{
    const struct hparams *hp = &d->model->hp;
    struct thread_scratch *s = &d->threads[tid];
    struct input in = {.n = rows, .cols = o->cols, .panels = d->act, .rows = d->attended, .stride = o->cols};
    int hd = hp->head_dim, chunks = (pos + rows - 1) / NUM_CHUNK + 1, total = rows * hp->n_heads;

    if (rows > CPU_SPLIT_ROWS) {
        attend_blocks(d, tid, layer, o, rows, pos);
    } else {
        attend_split(d, tid, layer, rows, pos);
        if (rows == 1) {                    /* merged by every thread for itself, with its first task: merge_row */
            in.rows = s->row;
            in.panels = s->act;
            return in;
        }
        struct pool_share *share = phase_begin(d, tid);

        for (int task; (task = pool_share_take(share, 1, total)) < total;) {
            merge_split(d, task / hp->n_heads, task % hp->n_heads, chunks, s->row);
            hand_over(d, o, rows, task / hp->n_heads, task % hp->n_heads, s->row);
        }
        phase_end(d, tid);
    }
    if (type_is_quantised(o->type) && hd % NUM_BLOCK) {
        struct pool_share *share = phase_begin(d, tid);

        for (int t; (t = pool_share_take(share, 1, rows)) < rows;)
            input_quantise(d, d->attended + (size_t)t * (size_t)o->cols, o->cols, d->act, rows, t);
        phase_end(d, tid);
    }
    return in;
}

void attention_phases(struct cpu_device *d, int tid, int layer, int rows, int pos, const float *x, float *y, float *residual)
{
    const struct layer_weights *w = &d->model->layers[layer];
    int hidden = d->model->hp.hidden, wide = rows == 1 ? 2 * CPU_UNIT : CPU_WIDE, units = (hidden + wide - 1) / wide, total = units * token_blocks(d, rows), t0, t1;
    struct input in = prepare(d, tid, w, rows, x);
    float *tile = d->threads[tid].tile;
    bool ready = rows > 1;

    qkv_phase(d, tid, layer, w, &in, pos, x);
    in = attend(d, tid, layer, &w->o, rows, pos);
    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        int r0 = task % units * wide, r1 = min_int(r0 + wide, hidden);

        if (!ready)
            merge_row(d, &d->threads[tid], &w->o, pos);
        ready = true;
        token_block(d, rows, task / units, &t0, &t1);
        if (y) {
            multiply(d, tid, &w->o, r0, r1, &in, t0, t1, y + (size_t)t0 * (size_t)hidden + r0, hidden);
            continue;
        }
        for (int t = t0; t < t1; t++)           /* rows of the residual stream lie a page apart: ask for them before they are needed */
            for (int i = r0; i < r1; i += 16)
                __builtin_prefetch(residual + (size_t)t * (size_t)hidden + i, 1, 2);
        multiply(d, tid, &w->o, r0, r1, &in, t0, t1, tile, wide);
        for (int t = t0; t < t1; t++)
            d->k->add(residual + (size_t)t * (size_t)hidden + r0, tile + (size_t)(t - t0) * (size_t)wide, r1 - r0);
    }
    phase_end(d, tid);
}
