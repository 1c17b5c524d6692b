/* Latent attention (MLA, arXiv:2405.04434), absorbed: the cache has one latent row per token, which
 * is key and value of all heads; a head's query is mapped into the latent space by its part of k_b,
 * its result back by its part of v_b (numerics.h, rule 13). Compute threads, all together (cpu.h).
 * Phases: normed input; q, kv_a, gates and what an indexer needs (or q_a with them, and q after the
 * next one); the rows' norms, rotation and store; the indexer's choice (indexer.c); attention; v_b;
 * output. A task of q is a head's rows followed by its
 * part of k_b: the few numbers in between need not leave the core. All heads read the same rows, so
 * as many of them are attended together as leaves tasks for all threads. */
#include "engine/device/cpu/cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const struct layer_weights *weights_of(const struct cpu_device *d, int layer)
{
    return &d->model->layers[layer];
}

static const struct mixer_shape *mixer_shape_of(const struct cpu_device *d, int layer)
{
    return &shape_of(d, layer)->mixer;
}

static int row_dims(const struct mixer_shape *a)
{
    return a->kv_rank + a->rope_dims;
}

static int nope_dims(const struct mixer_shape *a)
{
    return a->key_dim - a->rope_dims;
}

/* Pairs that are rotated of a row's last values; 0: all stay as they are. */
static int turned_pairs(const struct mixer_shape *a)
{
    return a->rope == ROPE_NONE ? 0 : a->rope_dims / 2;
}

/* ---- Queries ---- */

/* A head of q for tokens t0 .. t1-1, mapped into the latent space, rotated and scaled. next: what
 * this thread reads afterwards, if there is one token. */
static void query_head(struct cpu_device *d, int tid, int layer, int head, const struct input *in,
                       int t0, int t1, struct prefetch_hint next)
{
    const struct layer_weights *w = weights_of(d, layer);
    const struct mixer_shape *a = mixer_shape_of(d, layer);
    int rank = a->kv_rank, dims = row_dims(a), nope = nope_dims(a), half = turned_pairs(a);
    ptrdiff_t stride = product_stride(a->key_dim), to_stride = (ptrdiff_t)a->heads * dims;
    float *to = d->q + t0 * to_stride + head * dims;
    float *x = product_part(d, tid, &w->q, head * a->key_dim, (head + 1) * a->key_dim, in, t0, t1,
                            d->threads[tid].tile, stride, matrix_hint(&w->k_b, head * rank));
    struct input local = product_input(d, tid, &w->k_b, x, stride, t0, t1 - t0);

    product_part(d, tid, &w->k_b, head * rank, (head + 1) * rank, &local, 0, t1 - t0, to, to_stride,
                 next);
    for (int t = t0; t < t1; t++, x += stride, to += to_stride) {
        const struct span_place *at = &d->spans[d->span_of[t]];
        float scale = shape_score_scale_at(a, row_position(d, t));
        size_t pos = (size_t)row_position(d, t) * (size_t)half;

        for (int i = 0; i < rank; i++)
            to[i] = to[i] * scale;
        memcpy(to + rank, x + nope, (size_t)a->rope_dims * sizeof *to);
        (a->rope == ROPE_PAIRS ? d->k->rotary_pairs : d->k->rotary)(
            to + rank, a->rope_dims, half, at->cos + pos, at->sin + pos, scale);
    }
}

static void queries_phase(struct cpu_device *d, int tid, int layer, const struct input *in)
{
    const struct layer_weights *w = weights_of(d, layer);
    const struct mixer_shape *a = mixer_shape_of(d, layer);
    int each = a->heads + a->index_heads, total = each * token_blocks(d, in->n), t0, t1;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        int head = task % each;

        token_block(d, in->n, task / each, &t0, &t1);
        if (head >= a->heads) {
            if (indexer_chooses(d, layer, t0, t1))
                indexer_query(d, tid, layer, head - a->heads, in, t0, t1);
            continue;
        }
        query_head(d, tid, layer, head, in, t0, t1,
                   head + 1 < min_int(a->heads, phase_part(d, total, 1, tid + 1))
                       ? matrix_hint(&w->q, (head + 1) * a->key_dim / NUM_LANES * NUM_LANES)
                       : (struct prefetch_hint){0});
    }
    phase_end(d, tid);
}

/* ---- The first products ---- */

static bool needs_panels(const struct mixer_shape *a, const struct layer_weights *w)
{
    return !matrix_takes_rows(a->q_rank ? &w->q_a : &w->q) || !matrix_takes_rows(&w->kv_a) ||
           (a->gated && !matrix_takes_rows(&w->z)) ||
           (a->index_heads &&
            (!matrix_takes_rows(&w->index_k) || !matrix_takes_rows(&w->index_weights)));
}

/* Tasks of the first products: heads of q or units of q_a; then units of the matrices that take
 * whole rows of the normed input: kv_a, gates, and keys and weights of the indexer. */
#define FIRST_MATRICES 4
struct first_tasks {
    int leading, n;
    struct {
        const struct matrix *w;
        float *out;
        int units;
    } of[FIRST_MATRICES];
};

static struct first_tasks first_tasks(const struct cpu_device *d, int layer, int rows)
{
    const struct mixer_shape *a = mixer_shape_of(d, layer);
    const struct layer_weights *w = weights_of(d, layer);
    const struct matrix *all[FIRST_MATRICES] = {&w->kv_a, &w->z, &w->index_k, &w->index_weights};
    float *const out[FIRST_MATRICES] = {d->latent, d->gates, d->index_keys, d->index_weights};
    struct first_tasks n = {.leading = a->q_rank ? product_units(&w->q_a, rows) : a->heads};

    for (int i = 0; i < FIRST_MATRICES; i++)
        if (i == 0 || (i == 1 ? a->gated : a->index_heads)) {
            n.of[n.n].w = all[i];
            n.of[n.n].out = out[i];
            n.of[n.n++].units = product_units(all[i], rows);
        }
    return n;
}

static int all_first_tasks(const struct first_tasks *n)
{
    int sum = n->leading;

    for (int i = 0; i < n->n; i++)
        sum += n->of[i].units;
    return sum;
}

/* Which matrix a task behind the leading ones is of; *unit becomes its unit. */
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
    const struct layer_weights *w = weights_of(d, layer);
    const struct mixer_shape *a = mixer_shape_of(d, layer);
    struct first_tasks n = first_tasks(d, layer, 1);
    int unit = task - n.leading;

    if (unit < 0)
        return a->q_rank ? matrix_hint(&w->q_a, task * product_unit(1))
                         : matrix_hint(&w->q, task * a->key_dim / NUM_LANES * NUM_LANES);
    return matrix_hint(n.of[first_matrix(&n, &unit)].w, unit * product_unit(1));
}

static void first_phase(struct cpu_device *d, int tid, int layer, const struct input *in,
                        const float *x)
{
    const struct layer_weights *w = weights_of(d, layer);
    const struct mixer_shape *a = mixer_shape_of(d, layer);
    struct first_tasks n = first_tasks(d, layer, in->n);
    int tasks = all_first_tasks(&n), total = tasks * token_blocks(d, in->n), t0, t1;
    bool ready = in->n > 1;

    phase_open(d, tid, total);
    for (int at; (at = phase_take(d, tid, 1)) < total;) {
        int task = at % tasks, behind = task - n.leading;
        struct prefetch_hint next = task + 1 < phase_part(d, total, 1, tid + 1)
                                        ? first_hint(d, layer, task + 1)
                                        : (struct prefetch_hint){0};

        if (!ready)
            input_prepare_row(d, layer, needs_panels(a, w), x, in->rows, in->panels, 1, 0);
        ready = true;
        token_block(d, in->n, at / tasks, &t0, &t1);
        if (behind >= 0) {
            int i = first_matrix(&n, &behind);

            product_task(d, tid, n.of[i].w, behind, in, t0, t1, n.of[i].out, next);
        } else if (a->q_rank) {
            product_task(d, tid, &w->q_a, task, in, t0, t1, d->q_latent, next);
        } else {
            query_head(d, tid, layer, task, in, t0, t1, next);
        }
    }
    phase_end(d, tid);
}

/* A row's latents: normed, rotated, stored; its gates. Returns the input of q if that comes after
 * q_a. */
static struct input latents_phase(struct cpu_device *d, int tid, int layer, int rows)
{
    const struct layer_weights *w = weights_of(d, layer);
    const struct mixer_shape *a = mixer_shape_of(d, layer);
    int dims = row_dims(a), half = turned_pairs(a);

    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;) {
        const struct span_place *at = &d->spans[d->span_of[t]];
        float *row = d->latent + (size_t)t * (size_t)dims,
              *q = d->q_latent + (size_t)t * (size_t)a->q_rank;
        int pos = row_position(d, t);
        size_t turn = (size_t)pos * (size_t)half;

        d->k->rms_norm(row, a->kv_rank, w->k_norm, 1.0f / (float)a->kv_rank, a->latent_eps, row);
        for (int i = 0; i < a->kv_rank && a->latent_factor != 0.0f; i++)
            row[i] = row[i] * a->latent_factor;
        (a->rope == ROPE_PAIRS ? d->k->rotary_pairs : d->k->rotary)(
            row + a->kv_rank, a->rope_dims, half, at->cos + turn, at->sin + turn, 1.0f);
        kv_store_latent(d, at->state, layer, pos, row);
        if (a->index_heads)
            indexer_finish_row(d, layer, t);
        if (a->gated)
            d->k->sigmoid(d->gates + (size_t)t * (size_t)a->heads, a->heads);
        if (!a->q_rank)
            continue;
        d->k->rms_norm(q, a->q_rank, w->q_norm, 1.0f / (float)a->q_rank, a->latent_eps, q);
        if (!matrix_takes_rows(&w->q))
            input_quantise(d, q, a->q_rank, d->act, rows, t);
    }
    phase_end(d, tid);
    return (struct input){
        .n = rows, .cols = a->q_rank, .panels = d->act, .rows = d->q_latent, .stride = a->q_rank};
}

/* ---- Attention ---- */

/* Queries attended together: `rows` rows from absolute position pos, `heads` of each, row by row.
 */
struct queries {
    const struct kv_state *state;
    int layer, pos, rows, head, heads; /* head: the first */
    const float *q;                    /* (rows * heads, row_dims) */
    int row;                           /* the first one's number in the job */
};

/* Results of a chunk, one per query. */
struct partial {
    float *o, *max, *sum;
    ptrdiff_t o_stride, m_stride;
};

static void attend_chunk(struct cpu_device *d, struct thread_scratch *s, int chunk,
                         const struct queries *a, const struct partial *to);

/* Rows of which the first does not see the chunk yet: one after the other. */
static void attend_apart(struct cpu_device *d, struct thread_scratch *s, int chunk,
                         const struct queries *a, const struct partial *to)
{
    int dims = row_dims(mixer_shape_of(d, a->layer));

    for (int r = 0; r < a->rows; r++) {
        ptrdiff_t first = r * a->heads;
        struct queries one = {a->state, a->layer, a->pos + r,          1,
                              a->head,  a->heads, a->q + first * dims, a->row + r};
        struct partial at = {to->o + first * to->o_stride, to->max + first * to->m_stride,
                             to->sum + first * to->m_stride, to->o_stride, to->m_stride};

        attend_chunk(d, s, chunk, &one, &at);
    }
}

/* Whether rows of these see only keys that were chosen: the last one then does. */
static bool are_choosy(const struct mixer_shape *m, const struct queries *a)
{
    return m->index_top && a->pos + a->rows > m->index_top;
}

/* A chunk of what one row sees, copied to the thread's own rows: once for all heads that the thread
 * attends. Sets *n to how many they are. Positions behind the row's own are only found in a layer
 * that is measured without the one that chooses for it. */
static const uint8_t *gather_chosen(const struct cpu_device *d, struct thread_scratch *s, int chunk,
                                    const struct queries *a, const int *chosen, int *n)
{
    size_t row = layout_of(d, a->layer)->key_block / NUM_LANES;
    int begin = chunk * NUM_CHUNK;
    uint8_t *to = s->selected + (size_t)begin * row;

    *n = min_int(mixer_shape_of(d, a->layer)->index_top - begin, NUM_CHUNK);
    if (s->selected_for[chunk] == a->row)
        return to;
    s->selected_for[chunk] = a->row;
    for (int i = 0; i < *n; i++) {
        int pos = min_int(chosen[begin + i], a->pos);

        memcpy(to + (size_t)i * row,
               kv_keys(d, a->state, a->layer, 0, pos / NUM_CHUNK) + (size_t)(pos % NUM_CHUNK) * row,
               row);
    }
    return to;
}

/* Nothing of what was gathered is of this job. */
static void forget_chosen(const struct cpu_device *d, struct thread_scratch *s,
                          const struct mixer_shape *m)
{
    int most = min_int(m->index_top, d->chosen_most);

    for (int c = 0; c * NUM_CHUNK < most; c++)
        s->selected_for[c] = -1;
}

/* A chunk of the keys that one row sees, if they were chosen: their sums are those of a context
 * that has no others. */
static void attend_chosen(struct cpu_device *d, struct thread_scratch *s, int chunk,
                          const struct queries *a, const struct partial *to)
{
    const struct mixer_shape *m = mixer_shape_of(d, a->layer);
    const int *chosen = indexer_chosen(d, a->layer, a->row);
    int n, dims = row_dims(m);
    const uint8_t *rows = gather_chosen(d, s, chunk, a, chosen, &n);
    int filled = (n + NUM_LANES - 1) / NUM_LANES * NUM_LANES;

    d->k->latent_scores[d->kv_k](rows, n, dims, a->q, a->heads, s->scores);
    for (int i = 0; i < a->heads; i++) {
        float *p = s->scores + i * NUM_CHUNK;

        for (int t = n; t < filled; t++)
            p[t] = -INFINITY;
        for (int t = 0; d->kept_scores && a->pos == d->kept_pos && t < n; t++)
            d->kept_scores[(a->head + i) * d->kept_stride + chosen[chunk * NUM_CHUNK + t]] = p[t];
        d->k->softmax(p, filled, to->max + i * to->m_stride, to->sum + i * to->m_stride);
    }
    d->k->latent_values[d->kv_k](rows, dims, m->kv_rank, s->scores, a->heads, n, false, to->o,
                                 to->o_stride);
}

/* One chunk of the context: scores of all tokens visible to any row, weights, then values of the
 * tokens visible to all rows and of each row's own last ones. */
static void attend_chunk(struct cpu_device *d, struct thread_scratch *s, int chunk,
                         const struct queries *a, const struct partial *to)
{
    const struct mixer_shape *m = mixer_shape_of(d, a->layer);
    int dims = row_dims(m), rank = m->kv_rank, nq = a->rows * a->heads, begin = chunk * NUM_CHUNK,
        first = a->pos + 1 - begin, n = min_int(first + a->rows - 1, NUM_CHUNK), common;
    const uint8_t *rows = kv_keys(d, a->state, a->layer, 0, chunk);
    size_t row = layout_of(d, a->layer)->key_block / NUM_LANES;

    if (a->rows > 1 && (first <= 0 || are_choosy(m, a))) {
        attend_apart(d, s, chunk, a, to);
        return;
    }
    if (are_choosy(m, a)) {
        attend_chosen(d, s, chunk, a, to);
        return;
    }
    for (int i = 0; i < nq && n <= 0; i++)
        to->max[i * to->m_stride] = -INFINITY;
    if (n <= 0)
        return;
    common = min_int(first, NUM_CHUNK);
    d->k->latent_scores[d->kv_k](rows, n, dims, a->q, nq, s->scores);
    for (int i = 0; i < nq; i++) {
        float *p = s->scores + i * NUM_CHUNK;
        int filled = (n + NUM_LANES - 1) / NUM_LANES * NUM_LANES;

        for (int t = min_int(n, first + i / a->heads); t < filled; t++)
            p[t] = -INFINITY;
        if (d->kept_scores && a->pos + i / a->heads == d->kept_pos)
            memcpy(d->kept_scores + (a->head + i % a->heads) * d->kept_stride + begin, p,
                   (size_t)min_int(n, first + i / a->heads) * sizeof *p);
        d->k->softmax(p, filled, to->max + i * to->m_stride, to->sum + i * to->m_stride);
    }
    d->k->latent_values[d->kv_k](rows, dims, rank, s->scores, nq, common, false, to->o,
                                 to->o_stride);
    for (int r = 1, i = a->heads; r < a->rows && common < n; r++, i += a->heads)
        d->k->latent_values[d->kv_k](rows + (size_t)common * row, dims, rank,
                                     s->scores + i * NUM_CHUNK + common, a->heads,
                                     min_int(n, first + r) - common, true, to->o + i * to->o_stride,
                                     to->o_stride);
}

/* Chunks of the keys that a row sees. */
static int seen_chunks(const struct mixer_shape *a, int pos)
{
    return (shape_seen_keys(a, pos) - 1) / NUM_CHUNK + 1;
}

/* Division of a job's attention: `heads` at a time, a divisor of all, and `step` rows of a span;
 * times its chunks if divided by those. */
struct share {
    const struct mixer_shape *a;
    bool split;
    int heads, step, groups;
};

/* Of the last row of a span. */
static int span_chunks(const struct share *s, const struct span_place *span)
{
    return seen_chunks(s->a, span->pos + span->rows - 1);
}

static int span_tasks(const struct share *s, const struct span_place *span)
{
    return (span->rows + s->step - 1) / s->step * s->groups * (s->split ? span_chunks(s, span) : 1);
}

static int all_tasks(const struct cpu_device *d, const struct share *s)
{
    int n = 0;

    for (int i = 0; i < d->n_spans; i++)
        n += span_tasks(s, &d->spans[i]);
    return n;
}

/* The largest divisor of n that is at most `most`. */
static int divisor(int n, int most)
{
    while (n % most)
        most--;
    return most;
}

/* Fewer heads at a time if threads would be without a task; as many rows are attended together as a
 * call takes queries. */
static struct share share_out(const struct cpu_device *d, const struct mixer_shape *a, int rows)
{
    struct share s = {.a = a, .split = rows <= CPU_SPLIT_ROWS};

    s.heads = divisor(a->heads, min_int(a->heads, KERNEL_QUERIES));
    for (;;) {
        s.step = KERNEL_QUERIES / s.heads;
        s.groups = a->heads / s.heads;
        if (s.heads <= 4 || all_tasks(d, &s) >= 2 * d->n_threads)
            return s;
        s.heads = divisor(a->heads, s.heads / 2);
    }
}

/* Offset of a query's chunk results: those of a group of heads are adjacent. */
static size_t split_at(const struct cpu_device *d, const struct share *s, int rows, int row,
                       int head)
{
    return ((size_t)(head / s->heads * rows + row) * (size_t)s->heads + (size_t)(head % s->heads)) *
           (size_t)d->chunks_max;
}

/* A head of a row, attended. */
static float *attended_at(const struct cpu_device *d, const struct mixer_shape *a, int row,
                          int head)
{
    return d->latents + ((size_t)row * (size_t)a->heads + (size_t)head) * (size_t)a->kv_rank;
}

/* All chunks of some rows and heads, one after the other, and their merged results. */
static void attend_whole(struct cpu_device *d, struct thread_scratch *s, const struct queries *q,
                         int row, int head)
{
    const struct mixer_shape *a = mixer_shape_of(d, q->layer);
    size_t rank = (size_t)a->kv_rank, chunks = (size_t)d->chunks_max,
           lane = chunks * (rank + 2); /* a query's chunks: o, then max, then sum */
    float *maxima = s->partial + chunks * rank;
    int n = seen_chunks(a, q->pos + q->rows - 1);

    for (int c = 0; c < n; c++)
        attend_chunk(d, s, c, q,
                     &(struct partial){s->partial + (size_t)c * rank, maxima + c,
                                       maxima + chunks + c, (ptrdiff_t)lane, (ptrdiff_t)lane});
    for (int i = 0; i < q->rows * q->heads; i++) {
        float *max = maxima + (size_t)i * lane;

        d->k->merge(s->partial + (size_t)i * lane, a->kv_rank, max, max + chunks, n, a->kv_rank,
                    -INFINITY, attended_at(d, a, row + i / q->heads, head + i % q->heads));
    }
}

static void attend_phase(struct cpu_device *d, int tid, int layer, int rows,
                         const struct share *share)
{
    const struct mixer_shape *a = mixer_shape_of(d, layer);
    struct thread_scratch *s = &d->threads[tid];
    int total = all_tasks(d, share);

    forget_chosen(d, s, a);
    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        const struct span_place *span = d->spans;
        int head, chunks, steps, r0, n;
        struct queries q;

        for (; task >= span_tasks(share, span); span++)
            task -= span_tasks(share, span);
        chunks = share->split ? span_chunks(share, span) : 1;
        steps = (span->rows + share->step - 1) / share->step;
        head = task % share->groups * share->heads;
        /* the longest first */
        r0 = (steps - 1 - task / share->groups / chunks) * share->step;
        n = min_int(share->step, span->rows - r0);
        q = (struct queries){span->state,
                             layer,
                             span->pos + r0,
                             n,
                             head,
                             share->heads,
                             gather_queries(d, s, a->heads, row_dims(a), span->row + r0, n, head,
                                            share->heads),
                             span->row + r0};
        if (share->split) {
            int chunk = task / share->groups % chunks;
            size_t at = split_at(d, share, rows, span->row + r0, head) + (size_t)chunk;

            attend_chunk(d, s, chunk, &q,
                         &(struct partial){d->chunk_o + at * (size_t)a->kv_rank, d->chunk_max + at,
                                           d->chunk_sum + at, (ptrdiff_t)d->chunks_max * a->kv_rank,
                                           d->chunks_max});
        } else {
            attend_whole(d, s, &q, span->row + r0, head);
        }
    }
    phase_end(d, tid);
}

/* ---- Out of the latent space ---- */

static void merge_split(struct cpu_device *d, const struct mixer_shape *a,
                        const struct share *share, int rows, int row, int head)
{
    size_t at = split_at(d, share, rows, row, head);

    d->k->merge(d->chunk_o + at * (size_t)a->kv_rank, a->kv_rank, d->chunk_max + at,
                d->chunk_sum + at, span_chunks(share, &d->spans[d->span_of[row]]), a->kv_rank,
                -INFINITY, attended_at(d, a, row, head));
}

/* Writes a head's values of one row, gated, into the output projection's input. */
static void hand_over(struct cpu_device *d, const struct mixer_shape *a, const struct matrix *o,
                      int rows, int row, int head, float *values)
{
    int n = a->value_dim;

    for (int i = 0; a->gated && i < n; i++)
        values[i] = values[i] * d->gates[(size_t)row * (size_t)a->heads + (size_t)head];
    if (!matrix_takes_rows(o) && n % NUM_BLOCK == 0)
        input_quantise_part(d, values, o->cols, head * n, n, d->act, rows, row);
    else
        memcpy(d->attended + (size_t)row * (size_t)o->cols + (size_t)(head * n), values,
               (size_t)n * sizeof *values);
}

static struct prefetch_hint values_hint(const struct cpu_device *d, int layer, int head)
{
    return matrix_hint(&weights_of(d, layer)->v_b,
                       head * mixer_shape_of(d, layer)->value_dim / NUM_LANES * NUM_LANES);
}

static struct input values_phase(struct cpu_device *d, int tid, int layer, int rows,
                                 const struct share *share)
{
    const struct layer_weights *w = weights_of(d, layer);
    const struct mixer_shape *a = mixer_shape_of(d, layer);
    int total = a->heads * token_blocks(d, rows), n = a->value_dim, t0, t1;
    ptrdiff_t stride = product_stride(n), from_stride = (ptrdiff_t)a->heads * a->kv_rank;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        int head = task % a->heads;
        struct prefetch_hint next = head + 1 < phase_part(d, total, 1, tid + 1)
                                        ? values_hint(d, layer, head + 1)
                                        : output_hint(d, &w->o, tid);
        struct input in;
        float *x;

        token_block(d, rows, task / a->heads, &t0, &t1);
        for (int t = t0; t < t1 && share->split; t++)
            merge_split(d, a, share, rows, t, head);
        in = product_input(d, tid, &w->v_b, attended_at(d, a, t0, head), from_stride, t0, t1 - t0);
        x = product_part(d, tid, &w->v_b, head * n, (head + 1) * n, &in, 0, t1 - t0,
                         d->threads[tid].tile, stride, next);
        for (int t = t0; t < t1; t++, x += stride)
            hand_over(d, a, &w->o, rows, t, head, x);
    }
    phase_end(d, tid);
    if (!matrix_takes_rows(&w->o) && n % NUM_BLOCK) {
        phase_open(d, tid, rows);
        for (int t; (t = phase_take(d, tid, 1)) < rows;)
            input_quantise(d, d->attended + (size_t)t * (size_t)w->o.cols, w->o.cols, d->act, rows,
                           t);
        phase_end(d, tid);
    }
    return (struct input){
        .n = rows, .cols = w->o.cols, .panels = d->act, .rows = d->attended, .stride = w->o.cols};
}

/* ---- The mixer ---- */

static void mla_phases(struct cpu_device *d, int tid, int layer, int rows, const float *x, float *y,
                       float *residual)
{
    const struct mixer_shape *a = mixer_shape_of(d, layer);
    struct share share = share_out(d, a, rows);
    struct input in = input_prepare(d, tid, layer, needs_panels(a, weights_of(d, layer)), true,
                                    rows, x);

    assert(rows > 0 && rows <= d->max_rows);
    first_phase(d, tid, layer, &in, x);
    in = latents_phase(d, tid, layer, rows);
    if (a->q_rank)
        queries_phase(d, tid, layer, &in);
    if (a->index_heads)
        indexer_phases(d, tid, layer, rows);
    attend_phase(d, tid, layer, rows, &share);
    in = values_phase(d, tid, layer, rows, &share);
    output_phase(d, tid, &weights_of(d, layer)->o, &in, NULL, NULL, y, residual);
}

static struct prefetch_hint mla_first(const struct cpu_device *d, int tid, int layer)
{
    struct first_tasks n = first_tasks(d, layer, 1);

    return first_hint(d, layer, phase_part(d, all_first_tasks(&n), 1, tid));
}

const struct cpu_mixer cpu_mla_mixer = {
    .phases = mla_phases, .first = mla_first, .work = matrices_work};
