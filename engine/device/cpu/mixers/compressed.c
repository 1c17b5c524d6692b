/* Attention over a window of rows that are key and value of all heads, and over compressed rows,
 * each of a finished block of tokens (DeepSeek-V4's report, 2.3; numerics.h, rule 20). A token's
 * key row in the cache is its own; behind it lies, if the token is the last of its block, that of
 * the block. Its value row is what compressed rows are made of: keys, gates with the bias of the
 * token's place; the indexer's keys and gates; and at the end of a block its indexer's key. So all
 * of it grows by position, and is cut, shared and moved as any rows are. Compute threads, all
 * together (cpu.h). Phases: normed input; first products; rows; queries; finished blocks; the
 * indexer's choice; attention; the heads' results; groups of heads (o_a); output. */
#include "engine/device/cpu/cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define TURNED_MOST 1024 /* rotated values of a head */

static const struct layer_weights *weights_of(const struct cpu_device *d, int layer)
{
    return &d->model->layers[layer];
}

static const struct mixer_shape *mixer_shape_of(const struct cpu_device *d, int layer)
{
    return &shape_of(d, layer)->mixer;
}

/* ---- Rotation ---- */

struct turn {
    const float *cos, *sin;
};

/* Of the layer's table at a position of a row's session. */
static struct turn turn_at(const struct mixer_shape *m, const struct span_place *at, int pos)
{
    size_t from = (size_t)pos * (size_t)(m->rope_dims / 2);

    return m->second_rope ? (struct turn){at->second_cos + from, at->second_sin + from}
                          : (struct turn){at->cos + from, at->sin + from};
}

/* Rotates the last values of a row of n. */
static void rotate(const struct cpu_device *d, const struct mixer_shape *m, struct turn turn,
                   float *x, int n, float scale)
{
    d->k->rotary_pairs(x + n - m->rope_dims, m->rope_dims, m->rope_dims / 2, turn.cos, turn.sin,
                       scale);
}

/* The same backwards. */
static void rotate_back(const struct cpu_device *d, const struct mixer_shape *m, struct turn turn,
                        float *x, int n)
{
    float sin[TURNED_MOST / 2];

    for (int i = 0; i < m->rope_dims / 2; i++)
        sin[i] = -turn.sin[i];
    rotate(d, m, (struct turn){turn.cos, sin}, x, n, 1.0f);
}

/* ---- The first products ---- */

/* The matrices that take the normed input, and where their results go: (rows, w->rows). */
#define FIRST_MATRICES 7
struct first_tasks {
    int n;
    struct {
        const struct matrix *w;
        float *out;
        int units;
    } of[FIRST_MATRICES];
};

static struct first_tasks first_tasks(const struct cpu_device *d, int layer, int rows)
{
    const struct layer_weights *w = weights_of(d, layer);
    const struct matrix *const all[FIRST_MATRICES] = {&w->q_a,           &w->kv_a,
                                                      &w->compress_keys, &w->compress_gates,
                                                      &w->index_k,       &w->index_gate,
                                                      &w->index_weights};
    float *const out[FIRST_MATRICES] = {d->q_latent,       d->latent,     d->compress_keys,
                                        d->compress_gates, d->index_keys, d->index_gates,
                                        d->index_weights};
    struct first_tasks n = {0};

    for (int i = 0; i < FIRST_MATRICES; i++)
        if (all[i]->rows) {
            n.of[n.n].w = all[i];
            n.of[n.n].out = out[i];
            n.of[n.n++].units = product_units(all[i], rows);
        }
    return n;
}

static int all_first_tasks(const struct first_tasks *n)
{
    int sum = 0;

    for (int i = 0; i < n->n; i++)
        sum += n->of[i].units;
    return sum;
}

/* Which matrix a task is of; *unit becomes its unit. */
static int first_matrix(const struct first_tasks *n, int *unit)
{
    int i = 0;

    while (i + 1 < n->n && *unit >= n->of[i].units)
        *unit -= n->of[i++].units;
    return i;
}

/* Address of the weights of a task for one row. */
static struct prefetch_hint first_hint(const struct cpu_device *d, int layer, int task)
{
    struct first_tasks n = first_tasks(d, layer, 1);
    int unit = task, i = first_matrix(&n, &unit);

    return matrix_hint(n.of[i].w, unit * product_unit(1));
}

static bool needs_panels(const struct cpu_device *d, int layer)
{
    struct first_tasks n = first_tasks(d, layer, 1);

    for (int i = 0; i < n.n; i++)
        if (!matrix_takes_rows(n.of[i].w))
            return true;
    return false;
}

static void first_phase(struct cpu_device *d, int tid, int layer, const struct input *in,
                        const float *x)
{
    struct first_tasks n = first_tasks(d, layer, in->n);
    int tasks = all_first_tasks(&n), total = tasks * token_blocks(d, in->n), t0, t1;
    bool ready = in->n > 1;

    phase_open(d, tid, total);
    for (int at; (at = phase_take(d, tid, 1)) < total;) {
        int task = at % tasks, unit = task, i = first_matrix(&n, &unit);
        struct prefetch_hint next = task + 1 < phase_part(d, total, 1, tid + 1)
                                        ? first_hint(d, layer, task + 1)
                                        : (struct prefetch_hint){0};

        if (!ready)
            input_prepare_row(d, layer, needs_panels(d, layer), x, in->rows, in->panels, 1, 0);
        ready = true;
        token_block(d, in->n, at / tasks, &t0, &t1);
        product_task(d, tid, n.of[i].w, unit, in, t0, t1, n.of[i].out, next);
    }
    phase_end(d, tid);
}

/* ---- Rows ---- */

/* What a compressor makes rows of: where it lies in a token's value row, and where its rows go. */
struct compressor {
    int width, dim;    /* of a token's keys (and its gates), of a compressed row */
    int keys, gates;   /* first values of them in a value row */
    bool into_values;  /* the row goes there, else behind the key */
    int to;            /* first value of it */
    const float *bias; /* (block, width) */
    const float *norm; /* (dim) */
};

static struct compressor own_compressor(const struct cpu_device *d, int layer)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    const struct layer_weights *w = weights_of(d, layer);
    int width = shape_compressed(m);

    return (struct compressor){
        width, m->key_dim, 0, width, false, m->key_dim, w->compress_bias, w->compress_norm};
}

static struct compressor index_compressor(const struct cpu_device *d, int layer)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    const struct layer_weights *w = weights_of(d, layer);
    int width = shape_index_compressed(m), at = 2 * shape_compressed(m);

    return (struct compressor){width,          m->index_dim,  at,           at + width, true,
                               at + 2 * width, w->index_bias, w->index_norm};
}

/* What a token gives to a compressor; its gates get the bias of its place in the block. */
static void store_parts(const struct cpu_device *d, int layer, const struct compressor *c, int t,
                        const float *keys, float *gates)
{
    const struct kv_state *s = d->spans[d->span_of[t]].state;
    int pos = row_position(d, t);
    const float *bias = c->bias +
                        (size_t)(pos % mixer_shape_of(d, layer)->block) * (size_t)c->width;

    for (int i = 0; i < c->width; i++)
        gates[i] = gates[i] + bias[i];
    kv_store_part(d, s, layer, true, pos, c->keys, c->width, keys);
    kv_store_part(d, s, layer, true, pos, c->gates, c->width, gates);
}

static void finish_row(struct cpu_device *d, int layer, int t)
{
    const struct layer_weights *w = weights_of(d, layer);
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    const struct span_place *at = &d->spans[d->span_of[t]];
    struct compressor own = own_compressor(d, layer), index = index_compressor(d, layer);
    float *row = d->latent + (size_t)t * (size_t)m->key_dim;
    int pos = row_position(d, t);

    d->k->rms_norm(row, m->key_dim, w->k_norm, 1.0f / (float)m->key_dim, m->latent_eps, row);
    rotate(d, m, turn_at(m, at, pos), row, m->key_dim, 1.0f);
    kv_store_part(d, at->state, layer, false, pos, 0, m->key_dim, row);
    if (m->block)
        store_parts(d, layer, &own, t, d->compress_keys + (size_t)t * (size_t)own.width,
                    d->compress_gates + (size_t)t * (size_t)own.width);
    if (m->index_heads) {
        float *weights = d->index_weights + (size_t)t * (size_t)m->index_heads,
              scale = (float)(1.0 / sqrt((double)m->index_heads * m->index_dim));

        store_parts(d, layer, &index, t, d->index_keys + (size_t)t * (size_t)index.width,
                    d->index_gates + (size_t)t * (size_t)index.width);
        for (int h = 0; h < m->index_heads; h++)
            weights[h] = weights[h] * scale;
    }
}

/* Returns the input of q: the normed latent rows. */
static struct input rows_phase(struct cpu_device *d, int tid, int layer, int rows)
{
    const struct layer_weights *w = weights_of(d, layer);
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    int rank = m->q_rank;

    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;) {
        float *q = d->q_latent + (size_t)t * (size_t)rank;

        finish_row(d, layer, t);
        d->k->rms_norm(q, rank, w->q_norm, 1.0f / (float)rank, m->latent_eps, q);
        if (!matrix_takes_rows(&w->q) || (m->index_heads && !matrix_takes_rows(&w->index_q)))
            input_quantise(d, q, rank, d->act, rows, t);
    }
    phase_end(d, tid);
    return (struct input){
        .n = rows, .cols = rank, .panels = d->act, .rows = d->q_latent, .stride = rank};
}

/* ---- Queries ---- */

/* A head of q for tokens t0 .. t1-1, normed, rotated and scaled. next: what this thread reads
 * afterwards, if there is one token. */
static void query_head(struct cpu_device *d, int tid, int layer, int head, const struct input *in,
                       int t0, int t1, struct prefetch_hint next)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    int n = m->key_dim, still = n - m->rope_dims;
    ptrdiff_t stride = product_stride(n), to_stride = (ptrdiff_t)m->heads * n;
    float *to = d->q + t0 * to_stride + head * n;
    float *x = product_part(d, tid, &weights_of(d, layer)->q, head * n, (head + 1) * n, in, t0, t1,
                            d->threads[tid].tile, stride, next);

    for (int t = t0; t < t1; t++, x += stride, to += to_stride) {
        float scale = shape_score_scale(m);
        struct turn turn = turn_at(m, &d->spans[d->span_of[t]], row_position(d, t));

        d->k->rms_norm(x, n, d->ones, 1.0f / (float)n, m->latent_eps, to);
        for (int i = 0; i < still; i++)
            to[i] = to[i] * scale;
        rotate(d, m, turn, to, n, scale);
    }
}

/* Whether a row sees fewer finished blocks than there are. */
static bool chooses(const struct cpu_device *d, const struct mixer_shape *m, int t)
{
    int pos = row_position(d, t);

    return shape_seen_blocks(m, pos) < shape_blocks(m, pos);
}

static bool any_chooses(const struct cpu_device *d, const struct mixer_shape *m, int t0, int t1)
{
    while (t0 < t1 && !chooses(d, m, t0))
        t0++;
    return t0 < t1;
}

static void queries_phase(struct cpu_device *d, int tid, int layer, const struct input *in)
{
    const struct layer_weights *w = weights_of(d, layer);
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    int each = m->heads + m->index_heads, total = each * token_blocks(d, in->n), t0, t1;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        int head = task % each;

        token_block(d, in->n, task / each, &t0, &t1);
        if (head < m->heads)
            query_head(d, tid, layer, head, in, t0, t1,
                       head + 1 < min_int(m->heads, phase_part(d, total, 1, tid + 1))
                           ? matrix_hint(&w->q, (head + 1) * m->key_dim / NUM_LANES * NUM_LANES)
                           : (struct prefetch_hint){0});
        else if (any_chooses(d, m, t0, t1))
            indexer_query(d, tid, layer, head - m->heads, in, t0, t1);
    }
    phase_end(d, tid);
}

/* ---- Finished blocks ---- */

#define PIECE NUM_BLOCK /* values of a compressed row that are summed together */

/* Sums of a compressed row's values, a piece of them: over the tokens that it is made of. */
struct pool {
    float most[PIECE], sum[PIECE], keys[PIECE];
};

/* A token's part: first its gates' maximum alone, then the sums. */
static void pool_token(struct pool *p, int n, const float *gates, const float *keys)
{
    for (int i = 0; i < n && !keys; i++)
        p->most[i] = gates[i] > p->most[i] ? gates[i] : p->most[i];
    for (int i = 0; i < n && keys; i++) {
        float share = num_exp(gates[i] - p->most[i]);

        p->sum[i] = p->sum[i] + share;
        p->keys[i] = fmaf(share, keys[i], p->keys[i]);
    }
}

/* Values first .. first + n - 1 of the row of the block that begins at pos. */
static void pool_piece(const struct cpu_device *d, const struct kv_state *s, int layer,
                       const struct compressor *c, int pos, int first, int n, float *out)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    int from = m->overlap && pos ? pos - m->block : pos;
    float gates[PIECE], keys[PIECE];
    struct pool p = {.sum = {0}};

    for (int i = 0; i < n; i++)
        p.most[i] = -INFINITY;
    for (int round = 0; round < 2; round++)
        for (int t = from; t < pos + m->block; t++) {
            int at = first + (m->overlap && t >= pos ? c->dim : 0);

            kv_load_part(d, s, layer, true, t, c->gates + at, n, gates);
            if (round)
                kv_load_part(d, s, layer, true, t, c->keys + at, n, keys);
            pool_token(&p, n, gates, round ? keys : NULL);
        }
    for (int i = 0; i < n; i++)
        out[i] = p.keys[i] * num_recip(p.sum[i]);
}

/* The row of the block whose last token is row t. */
static void compress(const struct cpu_device *d, int layer, const struct compressor *c, int t)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    const struct span_place *at = &d->spans[d->span_of[t]];
    int last = row_position(d, t), pos = last + 1 - m->block;
    float row[1024];

    assert(c->dim <= 1024);
    for (int i = 0; i < c->dim; i += PIECE)
        pool_piece(d, at->state, layer, c, pos, i, min_int(c->dim - i, PIECE), row + i);
    d->k->rms_norm(row, c->dim, c->norm, 1.0f / (float)c->dim, m->latent_eps, row);
    rotate(d, m, turn_at(m, at, pos), row, c->dim, 1.0f);
    kv_store_part(d, at->state, layer, c->into_values, last, c->to, c->dim, row);
}

static bool finishes(const struct cpu_device *d, const struct mixer_shape *m, int t)
{
    return m->block && (row_position(d, t) + 1) % m->block == 0;
}

static void blocks_phase(struct cpu_device *d, int tid, int layer, int rows)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    struct compressor own = own_compressor(d, layer), index = index_compressor(d, layer);
    int any = 0;

    while (any < rows && !finishes(d, m, any))
        any++;
    if (any == rows)
        return;
    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;) {
        if (!finishes(d, m, t))
            continue;
        compress(d, layer, &own, t);
        if (m->index_heads)
            compress(d, layer, &index, t);
    }
    phase_end(d, tid);
}

/* ---- The choice of blocks ---- */

/* Scores of row t with `n` blocks from `first` on, to out. */
static void score_blocks(struct cpu_device *d, struct thread_scratch *s, int layer, int t,
                         int first, int n, float *out)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    struct compressor c = index_compressor(d, layer);
    size_t row = kv_type_bytes(d->kv_v, c.dim);

    for (int i = 0; i < n; i++)
        kv_copy_part(d, d->spans[d->span_of[t]].state, layer, true, (first + i + 1) * m->block - 1,
                     c.to, c.dim, s->selected + (size_t)i * row);
    indexer_scores(d, s, layer, t, s->selected, n, out);
}

static void choice_phase(struct cpu_device *d, int tid, int layer, int rows)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    struct thread_scratch *s = &d->threads[tid];

    if (!any_chooses(d, m, 0, rows))
        return;
    phase_open(d, tid, rows);
    for (int task; (task = phase_take(d, tid, 1)) < rows;) {
        int t = rows - 1 - task, n = shape_blocks(m, row_position(d, t)); /* the longest first */

        if (!chooses(d, m, t))
            continue;
        for (int i = 0; i < n; i += NUM_CHUNK)
            score_blocks(d, s, layer, t, i, min_int(n - i, NUM_CHUNK), s->index_scores + i);
        indexer_choose(s->index_scores, n, m->index_top, indexer_choice(d, t));
    }
    phase_end(d, tid);
}

/* ---- Attention ---- */

static int window_rows(const struct mixer_shape *m, int pos)
{
    return pos + 1 - shape_first_key(m, pos);
}

/* Chunks of the list of rows that a row sees. */
static int seen_chunks(const struct mixer_shape *m, int pos)
{
    return (window_rows(m, pos) + shape_seen_blocks(m, pos) - 1) / NUM_CHUNK + 1;
}

/* Copies a chunk of the list of row t to the thread's own rows. Returns how many. */
static int gather(const struct cpu_device *d, struct thread_scratch *s, int layer, int t, int chunk)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    const struct kv_state *state = d->spans[d->span_of[t]].state;
    int pos = row_position(d, t), near = window_rows(m, pos), begin = chunk * NUM_CHUNK,
        n = min_int(near + shape_seen_blocks(m, pos) - begin, NUM_CHUNK);
    const int *chosen = chooses(d, m, t) ? indexer_choice(d, t) : NULL;
    size_t row = kv_type_bytes(d->kv_k, m->key_dim);

    for (int i = 0; i < n; i++) {
        int block = begin + i - near, at = pos + 1 + block;

        if (block >= 0)
            at = ((chosen ? chosen[block] : block) + 1) * m->block - 1;
        kv_copy_part(d, state, layer, false, at, block >= 0 ? m->key_dim : 0, m->key_dim,
                     s->selected + (size_t)i * row);
    }
    return n;
}

/* Results of a chunk, one per head. */
struct partial {
    float *o, *max, *sum;
    ptrdiff_t o_stride, m_stride;
};

static void attend_chunk(struct cpu_device *d, struct thread_scratch *s, int layer, int t,
                         int chunk, int head, int heads, const struct partial *to)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    int dim = m->key_dim,
        n = chunk < seen_chunks(m, row_position(d, t)) ? gather(d, s, layer, t, chunk) : 0,
        filled = (n + NUM_LANES - 1) / NUM_LANES * NUM_LANES;
    const float *q = d->q + ((size_t)t * (size_t)m->heads + (size_t)head) * (size_t)dim;

    for (int i = 0; i < heads && !n; i++)
        to->max[i * to->m_stride] = -INFINITY;
    if (!n)
        return;
    d->k->latent_scores[d->kv_k](s->selected, n, dim, q, heads, s->scores);
    for (int i = 0; i < heads; i++) {
        float *p = s->scores + i * NUM_CHUNK;

        for (int k = n; k < filled; k++)
            p[k] = -INFINITY;
        d->k->softmax(p, filled, to->max + i * to->m_stride, to->sum + i * to->m_stride);
    }
    d->k->latent_values[d->kv_k](s->selected, dim, dim, s->scores, heads, n, false, to->o,
                                 to->o_stride);
}

/* Heads attended together: a divisor of all. */
static int heads_together(const struct mixer_shape *m)
{
    int n = min_int(m->heads, KERNEL_QUERIES);

    while (m->heads % n)
        n--;
    return n;
}

static float *attended_at(const struct cpu_device *d, const struct mixer_shape *m, int t, int head)
{
    return d->attended + ((size_t)t * (size_t)m->heads + (size_t)head) * (size_t)m->key_dim;
}

static void merge_head(struct cpu_device *d, int layer, int t, int head, const float *o,
                       const float *max, const float *sum)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);

    d->k->merge(o, m->key_dim, max, sum, seen_chunks(m, row_position(d, t)), m->key_dim,
                weights_of(d, layer)->sinks[head], attended_at(d, m, t, head));
}

/* All chunks of some heads of a row, and their merged results. */
static void attend_whole(struct cpu_device *d, struct thread_scratch *s, int layer, int t, int head,
                         int heads)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    size_t dim = (size_t)m->key_dim, chunks = (size_t)d->list_chunks,
           lane = chunks * (dim + 2); /* a head's chunks: o, then max, then sum */
    float *maxima = s->partial + chunks * dim;

    for (int c = 0; c < seen_chunks(m, row_position(d, t)); c++)
        attend_chunk(d, s, layer, t, c, head, heads,
                     &(struct partial){s->partial + (size_t)c * dim, maxima + c,
                                       maxima + chunks + c, (ptrdiff_t)lane, (ptrdiff_t)lane});
    for (int i = 0; i < heads; i++) {
        float *max = maxima + (size_t)i * lane;

        merge_head(d, layer, t, head + i, s->partial + (size_t)i * lane, max, max + chunks);
    }
}

/* Of few rows each chunk is a task; then its results stay in the job's buffers. */
static bool splits(int rows)
{
    return rows <= CPU_SPLIT_ROWS;
}

static size_t split_at(const struct cpu_device *d, const struct mixer_shape *m, int t, int head)
{
    return ((size_t)t * (size_t)m->heads + (size_t)head) * (size_t)d->list_chunks;
}

static void attend_phase(struct cpu_device *d, int tid, int layer, int rows)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    struct thread_scratch *s = &d->threads[tid];
    int heads = heads_together(m), groups = m->heads / heads, chunks = 1, total;

    for (int t = 0; t < rows && splits(rows); t++) {
        int n = seen_chunks(m, row_position(d, t));

        chunks = n > chunks ? n : chunks;
    }
    total = rows * groups * chunks;
    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        int head = task % groups * heads, chunk = task / groups % chunks,
            t = rows - 1 - task / groups / chunks;
        size_t at = split_at(d, m, t, head) + (size_t)chunk;

        if (splits(rows))
            attend_chunk(d, s, layer, t, chunk, head, heads,
                         &(struct partial){d->chunk_o + at * (size_t)m->key_dim, d->chunk_max + at,
                                           d->chunk_sum + at,
                                           (ptrdiff_t)d->list_chunks * m->key_dim, d->list_chunks});
        else
            attend_whole(d, s, layer, t, head, heads);
    }
    phase_end(d, tid);
}

/* ---- Out of the heads ---- */

/* The input of a group of heads: a part of each attended row. */
static struct input group_input(const struct cpu_device *d, int layer, int group, int rows)
{
    const struct matrix *w = &weights_of(d, layer)->o_a;
    ptrdiff_t all = (ptrdiff_t)w->cols * mixer_shape_of(d, layer)->out_groups;

    return (struct input){.n = rows,
                          .cols = w->cols,
                          .panels = d->act ? d->act + (size_t)group * (size_t)rows *
                                                          (size_t)(w->cols / NUM_BLOCK)
                                           : NULL,
                          .rows = d->attended + (ptrdiff_t)group * w->cols,
                          .stride = all};
}

/* A group's heads of row t, merged, rotated back, and quantised for o_a. */
static void finish_group(struct cpu_device *d, int layer, int t, int group, int rows)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    const struct matrix *w = &weights_of(d, layer)->o_a;
    int heads = m->heads / m->out_groups;
    struct turn turn = turn_at(m, &d->spans[d->span_of[t]], row_position(d, t));
    struct input in = group_input(d, layer, group, rows);

    for (int h = group * heads; h < (group + 1) * heads; h++) {
        size_t at = split_at(d, m, t, h);

        if (splits(rows))
            merge_head(d, layer, t, h, d->chunk_o + at * (size_t)m->key_dim, d->chunk_max + at,
                       d->chunk_sum + at);
        rotate_back(d, m, turn, attended_at(d, m, t, h), m->key_dim);
    }
    if (!matrix_takes_rows(w))
        input_quantise(d, in.rows + t * in.stride, in.cols, in.panels, rows, t);
}

static void heads_phase(struct cpu_device *d, int tid, int layer, int rows)
{
    int groups = mixer_shape_of(d, layer)->out_groups, total = rows * groups;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;)
        finish_group(d, layer, task / groups, task % groups, rows);
    phase_end(d, tid);
}

/* Rows of o_a for each group of heads, side by side in d->latents. */
static void groups_phase(struct cpu_device *d, int tid, int layer, int rows)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    const struct matrix *w = &weights_of(d, layer)->o_a;
    int wide = product_unit(rows), units = (m->out_rank + wide - 1) / wide,
        each = units * m->out_groups, total = each * token_blocks(d, rows), t0, t1;
    ptrdiff_t stride = wide + NUM_LANES;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        int group = task % each / units, first = task % units * wide,
            n = min_int(m->out_rank - first, wide), r0 = group * m->out_rank + first;
        struct input in = group_input(d, layer, group, rows);
        float *x;

        token_block(d, rows, task / each, &t0, &t1);
        x = product_part(d, tid, w, r0, r0 + n, &in, t0, t1, d->threads[tid].tile, stride,
                         (struct prefetch_hint){0});
        for (int t = t0; t < t1; t++, x += stride)
            memcpy(d->latents + (size_t)t * (size_t)w->rows + (size_t)r0, x, (size_t)n * sizeof *x);
    }
    phase_end(d, tid);
}

static struct input outputs_phase(struct cpu_device *d, int tid, int layer, int rows)
{
    const struct matrix *o = &weights_of(d, layer)->o;

    if (!matrix_takes_rows(o)) {
        phase_open(d, tid, rows);
        for (int t; (t = phase_take(d, tid, 1)) < rows;)
            input_quantise(d, d->latents + (size_t)t * (size_t)o->cols, o->cols, d->act, rows, t);
        phase_end(d, tid);
    }
    return (struct input){
        .n = rows, .cols = o->cols, .panels = d->act, .rows = d->latents, .stride = o->cols};
}

/* ---- The mixer ---- */

static void compressed_phases(struct cpu_device *d, int tid, int layer, int rows, const float *x,
                              float *y, float *residual)
{
    struct input in = input_prepare(d, tid, layer, needs_panels(d, layer), true, rows, x);

    assert(rows > 0 && rows <= d->max_rows);
    first_phase(d, tid, layer, &in, x);
    in = rows_phase(d, tid, layer, rows);
    queries_phase(d, tid, layer, &in);
    blocks_phase(d, tid, layer, rows);
    choice_phase(d, tid, layer, rows);
    attend_phase(d, tid, layer, rows);
    heads_phase(d, tid, layer, rows);
    groups_phase(d, tid, layer, rows);
    in = outputs_phase(d, tid, layer, rows);
    output_phase(d, tid, &weights_of(d, layer)->o, &in, NULL, NULL, y, residual);
}

static struct prefetch_hint compressed_first(const struct cpu_device *d, int tid, int layer)
{
    struct first_tasks n = first_tasks(d, layer, 1);

    return first_hint(d, layer, phase_part(d, all_first_tasks(&n), 1, tid));
}

const struct cpu_mixer cpu_compressed_mixer = {
    .phases = compressed_phases, .first = compressed_first, .work = matrices_work};
