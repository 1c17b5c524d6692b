/* The attention block: norm, QKV with rotary embedding and cache store, attention over chunks of
 * the context, output projection. Compute threads, all together (cpu.h). A task of the QKV phase is
 * a whole head, so that rotating its pairs needs no separate phase; the query heads that share a
 * key/value head are attended together, so that each key and value is loaded once for all of
 * them. */
#include "engine/device/cpu/cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define HEAD_MOST 1024 /* most values of a head: cpu_open refuses larger ones */

/* The layer whose keys and values a layer reads. */
static int keys_layer(const struct cpu_device *d, int layer)
{
    int of = shape_of(d, layer)->mixer.keys_of;

    return of ? of - 1 : layer;
}

/* If keys are also the values there is one matrix; neither if they are another layer's. */
static bool needs_panels(const struct layer_weights *w)
{
    return !matrix_takes_rows(&w->q) || (w->k.bytes && !matrix_takes_rows(&w->k)) ||
           (w->v.bytes && !matrix_takes_rows(&w->v)) || (w->z.bytes && !matrix_takes_rows(&w->z)) ||
           (w->index_q.bytes && !matrix_takes_rows(&w->index_q)) ||
           (w->index_k.bytes && !matrix_takes_rows(&w->index_k));
}

static bool needs_rows(const struct layer_weights *w)
{
    return matrix_takes_rows(&w->q) || (w->k.bytes && matrix_takes_rows(&w->k)) ||
           (w->v.bytes && matrix_takes_rows(&w->v)) || (w->z.bytes && matrix_takes_rows(&w->z)) ||
           (w->index_q.bytes && matrix_takes_rows(&w->index_q)) ||
           (w->index_k.bytes && matrix_takes_rows(&w->index_k));
}

void attention_rotate(const struct cpu_device *d, const struct mixer_shape *a,
                      const struct span_place *at, float *x, int pos, float scale)
{
    int half = a->rope_dims / 2;
    size_t row = (size_t)pos * (size_t)half, bytes = (size_t)half * sizeof *x;
    const float *cosines = (a->second_rope ? at->second_cos : at->cos) + row,
                *sines = (a->second_rope ? at->second_sin : at->sin) + row;
    float pairs[HEAD_MOST];

    if (a->rope != ROPE_PROPORTIONAL) {
        (a->rope == ROPE_PAIRS ? d->k->rotary_pairs : d->k->rotary)(x, a->key_dim, half, cosines,
                                                                    sines, scale);
        return;
    }
    memcpy(pairs, x, bytes);
    memcpy(pairs + half, x + a->key_dim / 2, bytes);
    d->k->rotary(pairs, 2 * half, half, cosines, sines, 1.0f);
    memcpy(x, pairs, bytes);
    memcpy(x + a->key_dim / 2, pairs + half, bytes);
    for (int i = 0; i < a->key_dim && scale != 1.0f; i++)
        x[i] = x[i] * scale;
}

/* Finishes a head's q or k: normed if norms are per head, before the rotation or behind it, rotated
 * and scaled. norm: NULL, or its weights. */
static void finish_head(const struct cpu_device *d, int layer, const struct span_place *at,
                        float *x, int pos, const float *norm, bool query)
{
    const struct layer_shape *s = shape_of(d, layer);
    const struct mixer_shape *a = &s->mixer;
    float scale = query ? shape_score_scale_at(a, pos) : 1.0f;

    bool heads = norm && a->qk_norm == QK_NORM_HEAD, behind = heads && a->qk_norm_turned;

    if (heads && !behind)
        d->k->rms_norm(x, a->key_dim, norm, 1.0f / (float)a->key_dim, s->norms.eps, x);
    attention_rotate(d, a, at, x, pos, behind ? 1.0f : scale);
    if (!behind)
        return;
    d->k->rms_norm(x, a->key_dim, norm, 1.0f / (float)a->key_dim, s->norms.eps, x);
    for (int i = 0; i < a->key_dim && scale != 1.0f; i++)
        x[i] = x[i] * scale;
}

/* The last two: of an indexer. */
enum qkv_kind {
    QKV_QUERIES,
    QKV_KEYS,
    QKV_VALUES,
    QKV_GATES,
    QKV_INDEX_QUERIES,
    QKV_INDEX_KEY,
    QKV_KINDS
};

/* A task of the QKV phase: one head of one of the matrices, or as many as fill whole groups of
 * weight rows if heads are narrower. */
struct qkv_task {
    enum qkv_kind kind;
    const struct matrix *w;
    int first, heads, dim; /* dim: of a head */
    int most;              /* heads of a whole task */
};

/* Number of tasks for so many heads, `each` per task. */
static int head_tasks(int heads, int each)
{
    return (heads + each - 1) / each;
}

/* Heads of a task of gates apart, and the gates of a head. */
static int gate_heads_together(const struct mixer_shape *a, const struct layer_layout *l)
{
    return a->gate == GATE_HEADS ? NUM_LANES : l->value_heads;
}

static int gate_dim(const struct mixer_shape *a)
{
    return a->gate == GATE_HEADS ? 1 : shape_value_dim(a);
}

/* Heads that a task of each kind has, and how wide they are. */
struct qkv_part {
    int heads, each, dim;
};

static struct qkv_part qkv_part(const struct mixer_shape *a, const struct layer_layout *l,
                                enum qkv_kind kind)
{
    switch (kind) {
    case QKV_QUERIES: return (struct qkv_part){a->heads, l->key_heads, shape_query_dim(a)};
    case QKV_KEYS: return (struct qkv_part){shape_own_keys(a), l->key_heads, a->key_dim};
    case QKV_VALUES:
        return (struct qkv_part){a->values_are_keys ? 0 : shape_own_keys(a), l->value_heads,
                                 shape_value_dim(a)};
    case QKV_GATES:
        return (struct qkv_part){shape_gates(a) ? a->heads : 0, gate_heads_together(a, l),
                                 gate_dim(a)};
    case QKV_INDEX_QUERIES: return (struct qkv_part){a->index_heads, 1, a->index_dim};
    default: return (struct qkv_part){a->index_heads > 0, 1, a->index_dim};
    }
}

static int qkv_tasks(const struct cpu_device *d, int layer)
{
    int tasks = 0;

    for (int i = 0; i < QKV_KINDS; i++) {
        struct qkv_part p = qkv_part(&shape_of(d, layer)->mixer, layout_of(d, layer), i);

        tasks += head_tasks(p.heads, p.each);
    }
    return tasks;
}

/* The query heads' tasks come first, then the others in the order of enum qkv_kind. */
static struct qkv_task qkv_task(const struct cpu_device *d, int layer, int task)
{
    const struct layer_weights *w = &d->model->layers[layer];
    const struct matrix *const matrices[] = {&w->q, &w->k, &w->v, &w->z, &w->index_q, &w->index_k};
    struct qkv_part p;
    int kind = 0, first;

    for (int n; p = qkv_part(&shape_of(d, layer)->mixer, layout_of(d, layer), kind),
                n = head_tasks(p.heads, p.each), task >= n && kind + 1 < QKV_KINDS;
         kind++)
        task -= n;
    first = task * p.each;
    return (struct qkv_task){kind,  matrices[kind], first, min_int(p.each, p.heads - first),
                             p.dim, p.each};
}

/* Address of the weights of a task of the one-row QKV phase; past this thread's part, those of its
 * output projection. */
static struct prefetch_hint qkv_hint(const struct cpu_device *d, int layer, int tid, int task)
{
    struct qkv_task t;

    if (task >= phase_part(d, qkv_tasks(d, layer), 1, tid + 1))
        return output_hint(d, &d->model->layers[layer].o, tid);
    t = qkv_task(d, layer, task);
    return matrix_hint(t.w, t.first * t.dim);
}

static struct prefetch_hint attention_first(const struct cpu_device *d, int tid, int layer)
{
    return qkv_hint(d, layer, tid, phase_part(d, qkv_tasks(d, layer), 1, tid));
}

/* Separates a task's gated query heads of a row, each followed by its gate, into both buffers. */
static float *part_gates(struct cpu_device *d, const struct mixer_shape *a, int row, int first,
                         int n, const float *heads)
{
    size_t kd = (size_t)a->key_dim, vd = (size_t)shape_value_dim(a),
           at = (size_t)row * (size_t)a->heads + (size_t)first;

    for (int h = 0; h < n; h++, heads += kd + vd) {
        memcpy(d->q + (at + (size_t)h) * kd, heads, kd * sizeof *heads);
        memcpy(d->gates + (at + (size_t)h) * vd, heads + kd, vd * sizeof *heads);
    }
    return d->q + at * kd;
}

/* Gates become factors as they are made, but for sigmoids of a gate for each value: the kernel that
 * multiplies with those applies the function itself. */
static bool gates_are_factors(const struct mixer_shape *a)
{
    return a->gate_softplus || a->gate == GATE_HEADS || a->gate == GATE_ROUTED;
}

/* Whether none of a task's heads of the only row counts. */
static bool unused(const struct cpu_device *d, const struct mixer_shape *a,
                   const struct qkv_task *t)
{
    return a->experts && t->kind == QKV_QUERIES && heads_unused(d, t->first, t->heads) == t->heads;
}

static void finish_gates(const struct mixer_shape *a, float *gates, int n)
{
    for (int i = 0; i < n && gates_are_factors(a); i++)
        gates[i] = a->gate_softplus ? num_softplus(gates[i]) : num_sigmoid(gates[i]);
}

/* Stores a head's values in the cache, normed if needed; the input is unchanged. */
static void store_value(const struct cpu_device *d, int layer, const struct span_place *at,
                        int head, int pos, const float *x)
{
    const struct layer_shape *s = shape_of(d, layer);
    int n = shape_value_dim(&s->mixer);
    float normed[HEAD_MOST];

    if (s->mixer.value_norm) {
        d->k->rms_norm(x, n, d->ones, 1.0f / (float)n, s->norms.eps, normed);
        x = normed;
    }
    for (int i = 0; i < n && s->mixer.value_factor != 0.0f; i++)
        normed[i] = x[i] * s->mixer.value_factor;
    if (s->mixer.value_factor != 0.0f)
        x = normed;
    kv_store_value(d, at->state, layer, head, pos, x);
}

/* Finishes a task's heads of a row after the product: queries are rotated in place, keys and values
 * stored. With QK_NORM_WHOLE, keys are kept beside the queries. */
static void qkv_finish(struct cpu_device *d, int layer, const struct qkv_task *t, int row,
                       float *heads)
{
    const struct span_place *s = &d->spans[d->span_of[row]];
    const struct layer_weights *w = &d->model->layers[layer];
    const struct mixer_shape *a = &shape_of(d, layer)->mixer;
    bool whole = a->qk_norm == QK_NORM_WHOLE;
    int pos = s->pos + row - s->row;

    if (t->kind == QKV_INDEX_QUERIES)
        indexer_finish_query(d, layer, row, heads);
    if (t->kind == QKV_INDEX_KEY)
        indexer_store_key(d, layer, row, heads);
    if (t->kind == QKV_INDEX_QUERIES || t->kind == QKV_INDEX_KEY)
        return;
    if (t->kind == QKV_GATES) {
        finish_gates(a, heads, t->heads * t->dim);
        return;
    }
    if (a->gated && a->gate == GATE_WITHIN && t->kind == QKV_QUERIES)
        heads = part_gates(d, a, row, t->first, t->heads, heads);

    if (whole && t->kind == QKV_KEYS)
        memcpy(d->keys +
                   ((size_t)row * (size_t)a->kv_heads + (size_t)t->first) * (size_t)a->key_dim,
               heads, (size_t)(t->heads * a->key_dim) * sizeof *heads);
    for (int h = 0; h < t->heads; h++, heads += t->kind == QKV_VALUES ? t->dim : a->key_dim) {
        if (t->kind == QKV_VALUES || (a->values_are_keys && t->kind == QKV_KEYS))
            store_value(d, layer, s, t->first + h, pos, heads);
        if (t->kind == QKV_VALUES)
            continue;
        if (!whole)
            finish_head(d, layer, s, heads, pos, t->kind == QKV_QUERIES ? w->q_norm : w->k_norm,
                        t->kind == QKV_QUERIES);
        if (!whole && t->kind == QKV_KEYS)
            kv_store_key(d, s->state, layer, t->first + h, pos, heads);
    }
}

/* QK_NORM_WHOLE: norms all heads of a row in one, then does the rest of qkv_finish. */
static void whole_norm_phase(struct cpu_device *d, int tid, int layer, int rows)
{
    const struct layer_weights *w = &d->model->layers[layer];
    const struct layer_shape *s = shape_of(d, layer);
    const struct mixer_shape *a = &s->mixer;
    size_t n_q = (size_t)a->heads * (size_t)a->key_dim,
           n_k = (size_t)a->kv_heads * (size_t)a->key_dim;

    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;) {
        const struct span_place *at = &d->spans[d->span_of[t]];
        float *q = d->q + (size_t)t * n_q, *k = d->keys + (size_t)t * n_k;
        int pos = at->pos + t - at->row;

        d->k->rms_norm(q, (int)n_q, w->q_norm, 1.0f / (float)n_q, s->norms.eps, q);
        d->k->rms_norm(k, (int)n_k, w->k_norm, 1.0f / (float)n_k, s->norms.eps, k);
        for (int h = 0; h < a->heads; h++)
            finish_head(d, layer, at, q + h * a->key_dim, pos, NULL, true);
        for (int h = 0; h < a->kv_heads; h++, k += a->key_dim) {
            finish_head(d, layer, at, k, pos, NULL, false);
            kv_store_key(d, at->state, layer, h, pos, k);
        }
    }
    phase_end(d, tid);
}

/* Writes queries to the buffer of all rows, keys and values through the thread's tile into the
 * cache. */
static void qkv_phase(struct cpu_device *d, int tid, int layer, const struct input *in,
                      const float *x)
{
    const struct mixer_shape *a = &shape_of(d, layer)->mixer;
    int tasks = qkv_tasks(d, layer), t0, t1;
    int total = tasks * token_blocks(d, in->n);
    bool ready = in->n > 1;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        struct qkv_task t = qkv_task(d, layer, task % tasks);
        bool index = t.kind == QKV_INDEX_QUERIES,
             in_place = index || t.kind == QKV_GATES ||
                        (t.kind == QKV_QUERIES && shape_query_dim(a) == a->key_dim);
        ptrdiff_t stride = (ptrdiff_t)(index      ? a->index_heads
                                       : in_place ? a->heads
                                                  : t.most) *
                           t.dim;
        int r0 = t.first * t.dim, r1 = r0 + t.heads * t.dim;
        float *out;

        if (!ready)
            input_prepare_row(d, layer, needs_panels(&d->model->layers[layer]), x, in->rows,
                              in->panels, 1, 0);
        ready = true;
        token_block(d, in->n, task / tasks, &t0, &t1);
        out = in_place ? (index                 ? d->index_q
                          : t.kind == QKV_GATES ? d->gates
                                                : d->q) +
                             t0 * stride + r0
                       : d->threads[tid].tile;
        if (in->n == 1 && unused(d, a, &t)) {
            memset(out, 0, (size_t)(r1 - r0) * sizeof *out);
            continue;
        }
        if (in->n == 1)
            gemv(d, tid, t.w, r0, r1, in, out, qkv_hint(d, layer, tid, task + 1));
        else
            gemm(d, tid, t.w, r0, r1, in, t0, t1, out, stride);
        for (int row = t0; row < t1; row++, out += stride)
            qkv_finish(d, layer, &t, row, out);
    }
    phase_end(d, tid);
    if (a->qk_norm == QK_NORM_WHOLE)
        whole_norm_phase(d, tid, layer, in->n);
}

/* Keys visible to the query at absolute position p: first and one past the last. */
static void visible(const struct cpu_device *d, int layer, int p, int *lo, int *hi)
{
    *lo = shape_first_key(&shape_of(d, layer)->mixer, p);
    *hi = p + 1;
}

/* Queries attended together: `rows` rows from absolute position pos, `heads` query heads of one
 * key/value head each, row by row. */
struct queries {
    const struct kv_state *state;
    int layer, kv_head, pos, rows, head, heads; /* head: the first */
    const float *q;                             /* (rows * heads, key_dim) */
    int row;                                    /* of the job, the first */
};

/* Results of a chunk, one per query. */
struct partial {
    float *o, *max, *sum;
    ptrdiff_t o_stride, m_stride;
};

/* How many rows are attended together when heads query heads share their keys. */
static int rows_together(int heads)
{
    return heads < KERNEL_QUERIES ? KERNEL_QUERIES / heads : 1;
}

static void attend_chunk(struct cpu_device *d, struct thread_scratch *s, int chunk,
                         const struct queries *a, const struct partial *to, const void *next);

/* Rows that do not all see the chunk's first token: one after the other. */
static void attend_apart(struct cpu_device *d, struct thread_scratch *s, int chunk,
                         const struct queries *a, const struct partial *to, const void *next)
{
    for (int r = 0; r < a->rows; r++) {
        int first = r * a->heads;
        struct queries one = {
            a->state,   a->layer,
            a->kv_head, a->pos + r,
            1,          a->head,
            a->heads,   a->q + (size_t)first * (size_t)shape_of(d, a->layer)->mixer.key_dim,
            a->row + r};

        attend_chunk(d, s, chunk, &one,
                     &(struct partial){to->o + first * to->o_stride, to->max + first * to->m_stride,
                                       to->sum + first * to->m_stride, to->o_stride, to->m_stride},
                     next);
    }
}

/* One chunk of the context: scores of all tokens visible to any row, weights, then values of the
 * tokens visible to all rows and of each row's own last ones. */
static void attend_chunk(struct cpu_device *d, struct thread_scratch *s, int chunk,
                         const struct queries *a, const struct partial *to, const void *next)
{
    int of = keys_layer(d, a->layer);
    const struct layer_layout *l = layout_of(d, of);
    int width = l->keeps.value_dim, nq = a->rows * a->heads, begin = chunk * NUM_CHUNK, end, common,
        from, n, lo, hi, first_hi;
    const uint8_t *keys = kv_keys(d, a->state, of, a->kv_head, chunk),
                  *values = kv_values(d, a->state, of, a->kv_head, chunk);

    visible(d, a->layer, a->pos, &lo, &first_hi);
    visible(d, a->layer, a->pos + a->rows - 1, &lo, &hi);
    if (a->rows > 1 && (lo > begin || first_hi <= begin)) {
        attend_apart(d, s, chunk, a, to, next);
        return;
    }
    if (begin >= hi || begin + NUM_CHUNK <= lo) {
        for (int i = 0; i < nq; i++)
            to->max[i * to->m_stride] = -INFINITY;
        return;
    }
    end = min_int(begin + NUM_CHUNK, hi);
    common = min_int(end, first_hi);
    begin = begin > lo ? begin : lo;
    from = begin / NUM_LANES * NUM_LANES;
    n = (end - from + NUM_LANES - 1) / NUM_LANES * NUM_LANES;
    values += (size_t)(begin % NUM_CHUNK) * l->value_row;
    d->k->scores[d->kv_k](keys + (size_t)(from % NUM_CHUNK / NUM_LANES) * l->key_block,
                          n / NUM_LANES, l->keeps.key_dim, a->q, nq, s->scores, values);
    for (int i = 0; i < nq; i++) {
        float *p = s->scores + i * NUM_CHUNK;

        for (int t = from; t < begin; t++)
            p[t - from] = -INFINITY;
        for (int t = min_int(end, first_hi + i / a->heads); t < from + n; t++)
            p[t - from] = -INFINITY;
        if (shape_of(d, a->layer)->mixer.index_ratio)
            indexer_hide(d, a->layer, a->row + i / a->heads, begin, end, p + (begin - from));
        if (d->kept_scores && a->pos + i / a->heads == d->kept_pos)
            memcpy(d->kept_scores + (a->head + i % a->heads) * d->kept_stride + begin,
                   p + (begin - from), (size_t)(end - begin) * sizeof *p);
        d->k->softmax(p, n, to->max + i * to->m_stride, to->sum + i * to->m_stride);
    }
    d->k->values[d->kv_v](values, width, s->scores + (begin - from), nq, common - begin, false,
                          to->o, to->o_stride, next);
    values += (size_t)(common - begin) * l->value_row;
    for (int r = 1, i = a->heads; r < a->rows && common < end; r++, i += a->heads)
        d->k->values[d->kv_v](values, width, s->scores + i * NUM_CHUNK + (common - from), a->heads,
                              min_int(end, first_hi + r) - common, true, to->o + i * to->o_stride,
                              to->o_stride, values);
}

/* Offset of the chunk results of a few rows: those of the rows that share a key/value head are
 * adjacent. */
static size_t split_at(const struct cpu_device *d, const struct mixer_shape *a, int rows, int row,
                       int head)
{
    int group = a->heads / a->kv_heads;

    return ((size_t)(head / group * rows + row) * (size_t)group + (size_t)(head % group)) *
           (size_t)d->chunks_max;
}

/* Chunks up to the last position of a span. */
static int span_chunks(const struct span_place *s)
{
    return (s->pos + s->rows - 1) / NUM_CHUNK + 1;
}

/* Division of a span's attention: rows of a span that are attended together form a step; tasks are
 * its steps, times chunks if divided by those, times key/value heads. */
struct span_share {
    const struct span_place *span;
    int step, steps, tasks;
};

static struct span_share share_of(const struct cpu_device *d, const struct mixer_shape *a,
                                  const struct span_place *s, bool split)
{
    int chunks = span_chunks(s),
        step = split && chunks * a->kv_heads < 2 * d->n_threads
                   ? 1
                   : rows_together(a->heads / a->kv_heads),
        steps = (s->rows + step - 1) / step;

    return (struct span_share){s, step, steps, steps * a->kv_heads * (split ? chunks : 1)};
}

static int all_tasks(const struct cpu_device *d, const struct mixer_shape *a, bool split)
{
    int n = 0;

    for (int i = 0; i < d->n_spans; i++)
        n += share_of(d, a, &d->spans[i], split).tasks;
    return n;
}

/* The span of a task of the phase; *task becomes relative to the span. */
static struct span_share share_at(const struct cpu_device *d, const struct mixer_shape *a,
                                  bool split, int *task)
{
    struct span_share s = share_of(d, a, d->spans, split);

    while (*task >= s.tasks) {
        *task -= s.tasks;
        s = share_of(d, a, s.span + 1, split);
    }
    return s;
}

/* Whether only the heads that count are attended: of a row alone, unless scores are kept. */
static bool skips_heads(const struct cpu_device *d, const struct mixer_shape *a, int rows)
{
    return a->experts && rows == 1 && !d->kept_scores;
}

/* Few rows: tasks are (rows, chunk, key/value head), results go to the shared chunk buffers. Rows
 * share a task, which reads keys and values for all of them, unless that leaves threads without
 * one. Heads vary fastest, because a chunk's are adjacent: a step to another chunk costs TLB
 * misses. */
static void attend_split(struct cpu_device *d, int tid, int layer, int rows)
{
    const struct mixer_shape *m = &shape_of(d, layer)->mixer;
    int hd = shape_value_dim(m), group = m->heads / m->kv_heads, total = all_tasks(d, m, true),
        of = keys_layer(d, layer);
    bool skips = skips_heads(d, m, rows);
    struct thread_scratch *s = &d->threads[tid];

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        struct span_share share = share_at(d, m, true, &task);
        const struct span_place *span = share.span;
        int chunks = span_chunks(span), kvh = task % m->kv_heads,
            chunk = task / m->kv_heads % chunks, r0 = task / m->kv_heads / chunks * share.step,
            n = min_int(share.step, span->rows - r0), row = span->row + r0;
        const uint8_t *next = kvh + 1 < m->kv_heads
                                  ? kv_keys(d, span->state, of, kvh + 1, chunk)
                                  : kv_keys(d, span->state, of, 0,
                                            chunk + 1 < chunks ? chunk + 1 : chunk);

        for (int g = 0, heads; g < group; g += heads) {
            int head = kvh * group + g, idle = skips ? heads_unused(d, head, group - g) : 0,
                most = min_int(KERNEL_QUERIES, group - g);
            size_t at = split_at(d, m, rows, row, head) + (size_t)chunk;
            struct queries a;

            heads = idle ? idle : skips ? heads_used(d, head, most) : most;
            if (idle)
                continue;
            a = (struct queries){
                span->state, layer,
                kvh,         span->pos + r0,
                n,           head,
                heads,       gather_queries(d, s, m->heads, m->key_dim, row, n, head, heads),
                row};
            attend_chunk(d, s, chunk, &a,
                         &(struct partial){d->chunk_o + at * (size_t)hd, d->chunk_max + at,
                                           d->chunk_sum + at, (ptrdiff_t)d->chunks_max * hd,
                                           d->chunks_max},
                         next);
        }
    }
    phase_end(d, tid);
}

/* The score of a head without a value; -inf: none. */
static float sink_of(const struct cpu_device *d, int layer, int head)
{
    const float *sinks = d->model->layers[layer].sinks;

    return sinks ? sinks[head] : -INFINITY;
}

static void merge_split(const struct cpu_device *d, int layer, int rows, int row, int head,
                        int chunks, float *out)
{
    const struct mixer_shape *a = &shape_of(d, layer)->mixer;
    int hd = shape_value_dim(a);
    size_t at = split_at(d, a, rows, row, head);

    d->k->merge(d->chunk_o + at * (size_t)hd, hd, d->chunk_max + at, d->chunk_sum + at, chunks, hd,
                sink_of(d, layer, head), out);
}

/* n attended heads of a row, times their gates if there are any. */
static void gate_heads(const struct cpu_device *d, const struct mixer_shape *a, int row, int head,
                       int n, float *attended)
{
    size_t hd = (size_t)shape_value_dim(a), all = (size_t)n * hd,
           first = (size_t)row * (size_t)a->heads + (size_t)head;

    if (!a->gated)
        return;
    if (!gates_are_factors(a))
        d->k->gate(attended, d->gates + first * hd, (int)all);
    for (size_t i = 0; gates_are_factors(a) && i < all; i++) {
        float gate = d->gates[a->gate == GATE_APART || a->gate == GATE_WITHIN ? first * hd + i
                                                                              : first + i / hd];

        attended[i] = a->experts && gate == 0.0f ? 0.0f : attended[i] * gate;
    }
}

/* Writes one attended head of one row into the output projection's input. */
static void hand_over(struct cpu_device *d, const struct mixer_shape *a, const struct matrix *o,
                      int rows, int row, int head, float *attended)
{
    int hd = shape_value_dim(a);

    gate_heads(d, a, row, head, 1, attended);
    if (!matrix_takes_rows(o) && hd % NUM_BLOCK == 0)
        input_quantise_part(d, attended, o->cols, head * hd, hd, d->act, rows, row);
    else
        memcpy(d->attended + ((size_t)row * (size_t)a->heads + (size_t)head) * (size_t)hd, attended,
               (size_t)hd * sizeof(float));
}

/* Many rows: a task is some rows of one key/value head; chunks in the outer loop, rows in the inner
 * one, so that a chunk stays in cache. */
static void attend_blocks(struct cpu_device *d, int tid, int layer, const struct matrix *o,
                          int rows)
{
    const struct mixer_shape *m = &shape_of(d, layer)->mixer;
    int hd = shape_value_dim(m), group = m->heads / m->kv_heads, total = all_tasks(d, m, false),
        of = keys_layer(d, layer);
    struct thread_scratch *s = &d->threads[tid];
    /* one query's chunks: o, then max, then sum */
    size_t lane = (size_t)d->chunks_max * (size_t)(hd + 2);

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        struct span_share share = share_at(d, m, false, &task);
        const struct span_place *span = share.span;
        int kvh = task % m->kv_heads, r0 = (share.steps - 1 - task / m->kv_heads) * share.step,
            n = min_int(share.step, span->rows - r0), row = span->row + r0,
            chunks = (span->pos + r0 + n - 1) / NUM_CHUNK + 1;

        for (int g = 0; g < group; g += KERNEL_QUERIES) {
            int head = kvh * group + g, heads = min_int(KERNEL_QUERIES, group - g);
            struct queries a = {
                span->state, layer,
                kvh,         span->pos + r0,
                n,           head,
                heads,       gather_queries(d, s, m->heads, m->key_dim, row, n, head, heads),
                row};
            float *maxima = s->partial + (size_t)d->chunks_max * (size_t)hd;

            for (int chunk = 0; chunk < chunks; chunk++)
                attend_chunk(d, s, chunk, &a,
                             &(struct partial){s->partial + (size_t)chunk * (size_t)hd,
                                               maxima + chunk, maxima + d->chunks_max + chunk,
                                               (ptrdiff_t)lane, (ptrdiff_t)lane},
                             kv_keys(d, span->state, of, kvh,
                                     chunk + 1 < chunks ? chunk + 1 : chunk));
            for (int i = 0; i < n * heads; i++) {
                float *max = maxima + (size_t)i * lane;

                d->k->merge(s->partial + (size_t)i * lane, hd, max, max + d->chunks_max, chunks, hd,
                            sink_of(d, layer, head + i % heads), s->row);
                hand_over(d, m, o, rows, row + i / heads, head + i % heads, s->row);
            }
        }
    }
    phase_end(d, tid);
}

static void merge_row(struct cpu_device *d, int tid, const void *ctx)
{
    int layer = *(const int *)ctx;
    const struct mixer_shape *a = &shape_of(d, layer)->mixer;
    const struct matrix *o = &d->model->layers[layer].o;
    struct thread_scratch *s = &d->threads[tid];
    int hd = shape_value_dim(a), chunks = span_chunks(d->spans);

    for (int h = 0; h < a->heads; h++)
        if (a->experts && heads_unused(d, h, 1))
            memset(s->row + (size_t)h * (size_t)hd, 0, (size_t)hd * sizeof(float));
        else
            merge_split(d, layer, 1, 0, h, chunks, s->row + (size_t)h * (size_t)hd);
    gate_heads(d, a, 0, 0, a->heads, s->row);
    if (!matrix_takes_rows(o))
        input_quantise(d, s->row, o->cols, s->act, 1, 0);
}

/* Input of the output projection: as input_prepare(). */
static struct input attend(struct cpu_device *d, int tid, int layer, const struct matrix *o,
                           int rows)
{
    const struct mixer_shape *m = &shape_of(d, layer)->mixer;
    struct thread_scratch *s = &d->threads[tid];
    struct input in = {
        .n = rows, .cols = o->cols, .panels = d->act, .rows = d->attended, .stride = o->cols};
    int hd = shape_value_dim(m), total = rows * m->heads;

    if (rows > CPU_SPLIT_ROWS) {
        attend_blocks(d, tid, layer, o, rows);
    } else {
        attend_split(d, tid, layer, rows);
        /* merged by every thread redundantly, with its first task: merge_row */
        if (rows == 1) {
            in.rows = s->row;
            in.panels = s->act;
            if (m->experts) {
                s->used = heads_parts(d, m);
                in.only = &s->used;
            }
            return in;
        }
        phase_open(d, tid, total);
        for (int task; (task = phase_take(d, tid, 1)) < total;) {
            int row = task / m->heads, head = task % m->heads;

            merge_split(d, layer, rows, row, head, span_chunks(&d->spans[d->span_of[row]]), s->row);
            hand_over(d, m, o, rows, row, head, s->row);
        }
        phase_end(d, tid);
    }
    if (!matrix_takes_rows(o) && hd % NUM_BLOCK) {
        phase_open(d, tid, rows);
        for (int t; (t = phase_take(d, tid, 1)) < rows;)
            input_quantise(d, d->attended + (size_t)t * (size_t)o->cols, o->cols, d->act, rows, t);
        phase_end(d, tid);
    }
    return in;
}

void attention_attend(struct cpu_device *d, int tid, int layer, int rows, float *y, float *residual)
{
    const struct matrix *o = &d->model->layers[layer].o;
    struct input in = attend(d, tid, layer, o, rows);

    output_phase(d, tid, o, &in, merge_row, &layer, y, residual);
}

static void attention_phases(struct cpu_device *d, int tid, int layer, int rows, const float *x,
                             float *y, float *residual)
{
    const struct layer_weights *w = &d->model->layers[layer];
    struct input in = input_prepare(d, tid, layer, needs_panels(w), needs_rows(w), rows, x);

    assert(layer >= 0 && layer < d->model->hp.n_layers);
    assert(rows > 0 && rows <= d->max_rows);
    if (shape_of(d, layer)->mixer.experts)
        heads_route(d, tid, layer, rows, x);
    qkv_phase(d, tid, layer, &in, x);
    if (shape_of(d, layer)->mixer.index_heads)
        indexer_phases(d, tid, layer, rows);
    attention_attend(d, tid, layer, rows, y, residual);
}

static double attention_work(const struct cpu_device *d, int layer, int rows)
{
    const struct mixer_shape *a = &shape_of(d, layer)->mixer;

    return (double)rows * d->model->hp.hidden * (a->key_dim + shape_value_dim(a)) *
               (a->heads + shape_own_keys(a)) +
           (double)rows * d->model->hp.hidden * shape_gates(a);
}

const struct cpu_mixer cpu_attention_mixer = {
    .phases = attention_phases, .first = attention_first, .work = attention_work};
