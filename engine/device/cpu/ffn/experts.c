/* Routing and experts. Compute threads, all together (cpu.h). Gate, up, their product and its
 * quantisation are one task of 32 rows: one activation block of the down projection. With one row
 * (decoding) all experts of the layer are in the same two phases, and the second adds the weighted
 * results to the residual stream at once. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/expert_edits.h"

#include <assert.h>
#include <string.h>

/* for a pass bound by memory; half the capacity of a task's results, so that gate and up of all
 * entries fit if one expert has them all */
#define FEW_ENTRIES (CPU_TOKENS_MOST / 2)

static const struct expert_weights *expert_of(const struct cpu_device *d, int layer, int expert)
{
    return &d->model->layers[layer].experts[expert];
}

/* The first product: the gate, or up if the activation has none. */
static const struct matrix *gate_of(const struct expert_weights *w)
{
    return w->gate.bytes ? &w->gate : &w->up;
}

static bool gate_needs_panels(const struct expert_weights *w)
{
    return !matrix_takes_rows(gate_of(w)) || !matrix_takes_rows(&w->up);
}

static bool gate_needs_rows(const struct expert_weights *w)
{
    return matrix_takes_rows(gate_of(w)) || matrix_takes_rows(&w->up);
}

/* A place in scratch memory that only some models have; NULL stays NULL. */
static struct act_block *blocks_at(struct act_block *scratch, size_t first)
{
    return scratch ? scratch + first : NULL;
}

static float *floats_at(float *scratch, size_t first)
{
    return scratch ? scratch + first : NULL;
}

/* Whether nothing follows the weighted sum of a layer's experts: then parts of it are final. */
static bool ends_plainly(const struct layer_shape *s)
{
    return !s->norms.after && !s->scaled; /* a layer's own inputs come behind, in x */
}

/* Whether the shared expert of a layer has its own input row. */
static bool is_apart(const struct cpu_device *d, int layer, int expert)
{
    const struct layer_shape *s = shape_of(d, layer);

    return shape_normed_rows(s) > 1 && expert == s->ffn.experts;
}

/* Sum and norms, if a norm follows the experts. */
static void add_normed(const struct cpu_device *d, int tid, int layer, const float *out,
                       ptrdiff_t stride, const float *weights, float *x)
{
    const struct layer_shape *s = shape_of(d, layer);
    const struct layer_weights *w = &d->model->layers[layer];
    const struct norms_shape behind = norms_behind(&s->norms);
    float *sum = d->threads[tid].row, *dense = d->threads[tid].second;
    int hidden = d->model->hp.hidden, apart = shape_normed_rows(s) > 1;

    memset(sum, 0, (size_t)hidden * sizeof *sum);
    d->k->combine(sum, out, stride, weights, shape_used(s) - apart, hidden, sum);
    if (apart) {
        norm_row(d, &behind, &w->routed_after, sum, sum);
        norm_row(d, &behind, &w->shared_after, out + s->ffn.used * stride, dense);
        d->k->add(sum, dense, hidden);
    }
    if (!norms_sum(&s->norms))
        norm_row(d, &behind, &w->expert_after, sum, sum);
    d->k->add(x, sum, hidden);
    if (norms_sum(&s->norms))
        norm_row(d, &behind, &w->expert_after, x, x);
}

void combine_row(const struct cpu_device *d, int tid, int layer, const float *out, ptrdiff_t stride,
                 const float *weights, float *beside, float *x)
{
    const struct layer_shape *s = shape_of(d, layer);
    const float *scale = d->model->layers[layer].scale;
    int hidden = d->model->hp.hidden, used = shape_used(s);
    float scaled[CPU_USED_MAX];

    weights = scaled_weights(d, layer, weights, used, scaled);
    if (s->weighted) {
        float *sum = d->threads[tid].row;

        memset(sum, 0, (size_t)hidden * sizeof *sum);
        d->k->combine(sum, out, stride, weights, used, hidden, sum);
        residual_row(d, &d->model->layers[layer].combined, sum, x, x);
    } else if (s->shortcut != SHORTCUT_NONE)
        shortcut_row(d, layer, out, stride, weights, beside, x);
    else if (s->norms.after)
        add_normed(d, tid, layer, out, stride, weights, x);
    else
        d->k->combine(x, out, stride, weights, used, hidden, x);
    for (int i = 0; i < hidden && scale && !s->inputs; i++) /* else behind those */
        x[i] = x[i] * *scale;
}

/* A router's choice among the experts that are not off (NULL: all are on); by the token alone where
 * the layer is so. */
static void choose_by(const struct cpu_device *d, int layer, int row, const uint8_t *off,
                      const float *scores, int *experts, float *weights)
{
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;
    const struct layer_weights *w = &d->model->layers[layer];
    const float *table = w->token_experts;
    size_t at = d->ids ? (size_t)d->ids[row] * (size_t)s->used : 0;

    for (int i = 0; i < s->used && table; i++)
        experts[i] = (int)table[at + (size_t)i];
    if (table)
        num_weigh(&s->router, scores, off, s->experts, s->used, experts, weights);
    else if (off)
        num_route_without(&s->router, scores, w->router_bias, off, shape_choices(s), s->used,
                          experts, weights);
    else
        num_route(&s->router, scores, w->router_bias, shape_choices(s), s->used, experts, weights);
}

/* The router's choice among the experts that are on, with edited weights; then who computes. */
static void choose_edited(const struct cpu_device *d, int layer, int row,
                          const struct expert_edits *edits, const float *scores, int *experts,
                          float *weights)
{
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;
    size_t at = expert_edits_at(edits, layer, 0);

    choose_by(d, layer, row, edits->off + at, scores, experts, weights);
    for (int i = 0; i < s->used; i++) {
        if (experts[i] < 0)
            continue;
        weights[i] = weights[i] * edits->factor[at + (size_t)experts[i]];
        experts[i] = edits->becomes[at + (size_t)experts[i]];
    }
}

/* Experts and weights from the router's input of a row; place: of the row in imposed. */
static void choose(const struct cpu_device *d, int layer, int row, int place,
                   const struct imposed_routing *imposed, const struct expert_edits *edits,
                   const float *h, float *scores, int *experts, float *weights)
{
    const struct hparams *hp = &d->model->hp;
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;
    int stride = hp->n_experts_used, n = s->used;

    assert(layer >= 0 && layer < d->model->hp.n_layers);
    if (s->router.row)
        router_row_scores(d, layer, h, scores);
    else if (router_rows(s))
        d->k->router(d->router[layer], router_groups(s), hp->hidden, h, scores);
    if (d->model->layers[layer].score_bias)
        d->k->add(scores, d->model->layers[layer].score_bias, shape_choices(s));
    edits = imposed ? NULL : expert_edits_of(edits, layer);
    if (edits)
        choose_edited(d, layer, row, edits, scores, experts, weights);
    else if (s->experts)
        choose_by(d, layer, row, NULL, scores, experts, weights);
    for (int i = 0; i < n && d->model->layers[layer].expert_scale; i++)
        if (experts[i] >= 0)
            weights[i] = weights[i] * d->model->layers[layer].expert_scale[experts[i]];
    if (imposed && (!imposed->only || imposed->only == layer + 1)) {
        size_t at = (size_t)(layer * imposed->period + place) * (size_t)stride;

        for (int i = 0; i < n; i++) {
            experts[i] = imposed->experts[at + (size_t)i];
            weights[i] = imposed->weights ? imposed->weights[at + (size_t)i] : 1.0f / (float)n;
        }
    }
    for (int i = 0; i < n && s->router.identities; i++) {
        weights[i] = experts[i] < s->experts || !s->router.nothing ? weights[i] : 0.0f;
        experts[i] = experts[i] < s->experts ? experts[i] : -1; /* an identity's weight stays */
    }
    if (s->grouped) {
        num_adjugates(s, experts, weights, experts + n, weights + n);
        n += n;
    }
    if (s->shared) {
        experts[n] = s->experts;
        weights[n++] = s->shared_gate == SHARED_SIGMOID ? num_sigmoid(scores[shape_choices(s)])
                                                        : shape_shared_factor(s);
    }
    for (; n < stride; n++) {
        experts[n] = -1;
        weights[n] = 0.0f;
    }
}

void route_row(const struct cpu_device *d, int layer, int row,
               const struct imposed_routing *imposed, const struct expert_edits *edits,
               const float *x, const float *before, float *h, float *second, float *scores,
               int *experts, float *weights)
{
    int place = !imposed ? 0 : imposed->by_row ? row : row_position(d, row) % imposed->period;
    const struct layer_shape *s = shape_of(d, layer);
    const struct layer_weights *w = &d->model->layers[layer];
    bool apart = shape_normed_rows(s) > 1;

    norm_row(d, &s->norms, apart ? &w->router_norm : &w->expert_norm, x, h);
    choose(d, layer, row, place, imposed, edits,
           s->ffn.router.early || s->ffn.router.row ? before : h, scores, experts, weights);
    if (apart) {
        norm_row(d, &s->norms, &w->routed_norm, x, h);
        norm_row(d, &s->norms, &w->expert_norm, x, second);
    }
}

double experts_work(const struct cpu_device *d, int layer, int entries)
{
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;
    int further = shape_further_used(s);
    double width = (double)s->used * s->width + (double)further * s->shared_width;

    if (s->kind == FFN_NONE)
        return 0.0;
    return entries * (width / (s->used + further)) * d->model->hp.hidden *
           (activation_gated(s->activation) ? 3 : 2);
}

/* Rows of gate and up per task: with many entries those of one activation block of the down
 * projection; with few, where memory is the limit, a longer contiguous read (pieces.h). */
static int gate_rows(int entries)
{
    return entries <= FEW_ENTRIES ? CPU_WIDE : CPU_UNIT;
}

static int parts_of(int rows, int part)
{
    return (rows + part - 1) / part;
}

/* What a token's products with gate and up are multiplied with; 1: nothing. */
static float input_weight(const struct experts_job *j, const struct ffn_shape *s, int entry,
                          int stride)
{
    return j->weights && s->router.on_input && j->slot[entry] < s->used
               ? j->weights[j->row[entry] * stride + j->slot[entry]]
               : 1.0f;
}

static void weight_products(float by, int n, float *gate, float *up)
{
    for (int i = 0; i < n && by != 1.0f; i++) {
        gate[i] = gate[i] * by;
        up[i] = up[i] * by;
    }
}

/* A group's product; of one token as decoding has it, with the same bits. next: what this thread
 * reads then. */
static void group_product(const struct cpu_device *d, int tid, const struct matrix *w, int r0,
                          int r1, const struct input *in, int t0, int t1, float *out,
                          ptrdiff_t stride, struct prefetch_hint next)
{
    if (in->n == 1 && !d->observer)
        gemv(d, tid, w, r0, r1, in, out, next);
    else
        gemm(d, tid, w, r0, r1, in, t0, t1, out, stride);
}

/* Rows r0 .. r0+n-1 of gate and up for tokens t0 .. t1-1 of one expert, whose entries of *j begin
 * at `first`; the result becomes blocks of the down projection's input. */
static void gate_up(struct cpu_device *d, int tid, const struct ffn_shape *shape, float limit,
                    const struct expert_weights *w, int r0, int n, const struct input *in, int t0,
                    int t1, const struct experts_job *j, int first, struct act_block *down,
                    float *down_rows)
{
    struct thread_scratch *s = &d->threads[tid];
    int ffn = w->up.rows, nt = t1 - t0, stride = parts_of(n, NUM_LANES) * NUM_LANES;
    float *gate = s->tile, *up = s->tile + (ptrdiff_t)nt * stride;

    if (w->gate.bytes)
        group_product(d, tid, &w->gate, r0, r0 + n, in, t0, t1, gate, stride,
                      matrix_hint(&w->up, r0));
    group_product(d, tid, &w->up, r0, r0 + n, in, t0, t1, up, stride, (struct prefetch_hint){0});
    for (int t = t0; t < t1 && shape->router.on_input; t++)
        weight_products(input_weight(j, shape, first + t, d->model->hp.n_experts_used), n,
                        gate + (ptrdiff_t)(t - t0) * stride, up + (ptrdiff_t)(t - t0) * stride);
    d->k->activate[shape->activation](gate, up, nt * stride, limit, gate);
    for (int t = t0; t < t1; t++) {
        const float *h = gate + (ptrdiff_t)(t - t0) * stride;

        if (!matrix_takes_rows(&w->down))
            input_quantise_part(d, h, ffn, r0, n, down, in->n, t);
        else
            memcpy(down_rows + (size_t)t * (size_t)ffn + r0, h, (size_t)n * sizeof(float));
    }
}

/* Most groups for so many entries. Routing decides the actual number, and a late thread must know
 * the size of a phase without reading what a later layer may be writing: phases have the maximum
 * size, and tasks past the last group are empty. */
static int groups_most(const struct cpu_device *d, int layer, int entries)
{
    return min_int(entries, shape_experts(shape_of(d, layer)));
}

/* Gathers rows of h into each expert's own panels: copies from `quantised` if the rows are already
 * quantised. */
static void gather_phase(struct cpu_device *d, int tid, int layer, const struct experts_job *j,
                         int entries, const struct act_block *quantised)
{
    int hidden = d->model->hp.hidden, total = groups_most(d, layer, entries);
    size_t blocks = (size_t)(hidden / NUM_BLOCK);

    phase_open(d, tid, total);
    for (int g; (g = phase_take(d, tid, 1)) < total;) {
        const struct expert_group *group = &j->groups[g];
        const struct expert_weights *w = g < j->n_groups ? expert_of(d, layer, group->expert)
                                                         : NULL;

        int behind = w && is_apart(d, layer, group->expert) ? j->rows : 0;

        for (int i = 0; w && i < group->count; i++) {
            size_t row = (size_t)(j->row[group->first + i] + behind);
            const float *h = j->h + row * (size_t)hidden;

            if (quantised) {
                input_copy(d, quantised + row * 2 * blocks, hidden,
                           d->act + (size_t)group->first * blocks, group->count, i);
                continue;
            }
            if (gate_needs_panels(w))
                input_quantise(d, h, hidden, d->act + (size_t)group->first * blocks, group->count,
                               i);
            if (gate_needs_rows(w))
                memcpy(d->gathered + (size_t)(group->first + i) * (size_t)hidden, h,
                       (size_t)hidden * sizeof(float));
        }
    }
    phase_end(d, tid);
}

/* Division of a phase over the groups of a job: parts of `part` rows of each group's matrix, for
 * each of its blocks of tokens. */
struct group_parts {
    const struct experts_job *j;
    int part;
    bool down; /* of the down projections; else of gate and up */
    int total; /* of the phase, see groups_most */
    int real;  /* non-empty tasks; 0: not counted yet */
};

static int matrix_parts(const struct cpu_device *d, const struct group_parts *p, int group)
{
    const struct expert_weights *w = expert_of(d, p->j->layer, p->j->groups[group].expert);

    return parts_of(p->down ? w->down.rows : w->up.rows, p->part);
}

static int count_parts(const struct cpu_device *d, const struct group_parts *p)
{
    int n = 0;

    for (int g = 0; g < p->j->n_groups; g++)
        n += matrix_parts(d, p, g) * token_blocks(d, p->j->groups[g].count);
    return n;
}

/* The meaning of task `task`: the non-empty tasks are spread evenly among all, so that each
 * thread's share of the phase has an equal share of them, consecutively. Parts vary fastest.
 * Returns the group, *r0 the first row; -1: the task is empty. */
static int find_task(const struct cpu_device *d, struct group_parts *p, int task, int *r0, int *t0,
                     int *t1)
{
    int at;

    if (!p->real)
        p->real = count_parts(d, p);
    assert(p->real <= p->total);
    at = (int)((int64_t)task * p->real / p->total);
    if (at == (int)((int64_t)(task + 1) * p->real / p->total))
        return -1;
    for (int g = 0; g < p->j->n_groups; g++) {
        int parts = matrix_parts(d, p, g), n = parts * token_blocks(d, p->j->groups[g].count);

        if (at < n) {
            *r0 = at % parts * p->part;
            token_block(d, p->j->groups[g].count, at / parts, t0, t1);
            return g;
        }
        at -= n;
    }
    return -1;
}

/* Most blocks of tokens of so many entries among so many experts: an expert's last one may have
 * only one. */
static int blocks_most(const struct cpu_device *d, int entries, int experts)
{
    int groups = min_int(entries, experts);

    return groups ? groups + token_blocks(d, entries - groups + 1) - 1 : 0;
}

/* Most tasks for so many entries, see groups_most. units: of a routed expert, of a further one. */
static int tasks_most(const struct cpu_device *d, int layer, int entries, int units,
                      int further_units)
{
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;

    return units * blocks_most(d, entries, s->experts) +
           further_units * blocks_most(d, entries, shape_further(s));
}

void experts_phases(struct cpu_device *d, int tid, int layer, const struct experts_job *j,
                    int entries, const struct act_block *quantised)
{
    const struct ffn_shape *shape = &shape_of(d, layer)->ffn;
    int hidden = d->model->hp.hidden, r0, t0, t1, part = gate_rows(entries),
        down_parts = parts_of(hidden, CPU_WIDE);
    struct group_parts p = {.j = j, .part = part};
    size_t widest = (size_t)d->widest_ffn;
    struct thread_scratch *s = &d->threads[tid];

    if (shape_sparse(shape)) { /* all rows, in order, with the only expert */
        sparse_phases(d, tid, layer, entries, j->h, j->out);
        return;
    }
    gather_phase(d, tid, layer, j, entries, quantised);
    p.total = tasks_most(d, layer, entries, parts_of(shape->width, part),
                         parts_of(shape->shared_width, part));
    phase_open(d, tid, p.total);
    for (int task; (task = phase_take(d, tid, 1)) < p.total;) {
        int g = find_task(d, &p, task, &r0, &t0, &t1);

        if (g < 0)
            continue;
        const struct expert_group *group = &j->groups[g];
        const struct expert_weights *w = expert_of(d, layer, group->expert);
        size_t first = (size_t)group->first;
        struct input in = {.n = group->count,
                           .cols = hidden,
                           .panels = blocks_at(d->act, first * (size_t)(hidden / NUM_BLOCK)),
                           .rows = floats_at(d->gathered, first * (size_t)hidden),
                           .stride = hidden,
                           .row = j->row + first};

        gate_up(d, tid, shape, shape_limit(shape, group->expert), w, r0,
                min_int(part, w->up.rows - r0), &in, t0, t1, j, group->first,
                blocks_at(d->act_down, first * (widest / NUM_BLOCK)),
                floats_at(d->ffn, first * widest));
    }
    phase_end(d, tid);
    p = (struct group_parts){.j = j,
                             .part = CPU_WIDE,
                             .down = true,
                             .total = tasks_most(d, layer, entries, down_parts, down_parts)};
    phase_open(d, tid, p.total);
    for (int task; (task = phase_take(d, tid, 1)) < p.total;) {
        int g = find_task(d, &p, task, &r0, &t0, &t1);

        if (g < 0)
            continue;
        const struct expert_group *group = &j->groups[g];
        size_t first = (size_t)group->first;
        const struct matrix *down = &expert_of(d, layer, group->expert)->down;
        struct input in = {.n = group->count,
                           .cols = down->cols,
                           .panels = blocks_at(d->act_down, first * (widest / NUM_BLOCK)),
                           .rows = floats_at(d->ffn, first * widest),
                           .stride = down->cols,
                           .row = j->row + first};
        int r1 = min_int(r0 + CPU_WIDE, hidden);

        group_product(d, tid, down, r0, r1, &in, t0, t1, s->tile, CPU_WIDE,
                      (struct prefetch_hint){0});
        for (int t = t0; t < t1; t++) {
            size_t entry = first + (size_t)t,
                   to = (size_t)j->slot[entry] * (size_t)j->rows + (size_t)j->row[entry];

            memcpy(j->out + to * (size_t)hidden + r0, s->tile + (size_t)(t - t0) * CPU_WIDE,
                   (size_t)(r1 - r0) * sizeof(float));
        }
    }
    phase_end(d, tid);
}

/* One row's norm, routing and quantisation; the expert numbers and weights are private to this
 * thread until the layer's first task publishes them. */
static void route_one(struct cpu_device *d, struct thread_scratch *s, int layer, const float *x,
                      const float *before)
{
    const struct layer_shape *shape = shape_of(d, layer);
    bool panels = false;

    route_row(d, layer, 0, d->layers_job->imposed, NULL, x, before, s->row, s->second, s->router,
              s->experts, s->weights);
    for (int i = 0; i < shape_used(shape); i++)
        panels |= s->experts[i] >= 0 && gate_needs_panels(expert_of(d, layer, s->experts[i]));
    if (panels)
        input_quantise(d, s->row, d->model->hp.hidden, s->act, 1, 0);
    if (panels && shape_normed_rows(shape) > 1)
        input_quantise(d, s->second, d->model->hp.hidden, s->second_act, 1, 0);
}

/* What thread tid reads first of a layer's down projections. */
static struct prefetch_hint down_hint(const struct cpu_device *d, int tid,
                                      const struct expert_weights *first)
{
    int units = (d->model->hp.hidden + CPU_UNIT - 1) / CPU_UNIT;

    return matrix_hint(&first->down, phase_part(d, units, d->down_piece, tid) * CPU_UNIT);
}

/* Tasks of the phase that multiplies one row with gate and up of a layer's experts, `rows` per
 * task, `units` per routed expert. */
static int gate_tasks(const struct ffn_shape *s, int rows, int units)
{
    return s->used * units + shape_further_used(s) * parts_of(s->shared_width, rows);
}

/* A task of them. Places without an expert have tasks, too, which are empty: their number is known
 * before the routing. */
static struct gate_task gate_task_of(const struct cpu_device *d, const struct ffn_shape *s,
                                     int task, int rows, int units)
{
    return gate_task(d->by_unit, task, units, s->used, parts_of(s->shared_width, rows));
}

static struct prefetch_hint gate_hint(const struct cpu_device *d, int tid, int layer, int task,
                                      int rows, int units)
{
    const struct thread_scratch *s = &d->threads[tid];
    const struct ffn_shape *shape = &shape_of(d, layer)->ffn;
    struct gate_task t = gate_task_of(d, shape, task, rows, units);

    if (task >= phase_part(d, gate_tasks(shape, rows, units), 1, tid + 1) || s->experts[t.slot] < 0)
        return down_hint(d, tid, expert_of(d, layer, s->experts[0]));
    return matrix_hint(gate_of(expert_of(d, layer, s->experts[t.slot])), t.unit * rows);
}

/* gate_up for one row. Gate and up together are four streams if both are of one type. */
static void gate_up_row(struct cpu_device *d, int tid, int layer, int task, int rows, int units,
                        struct act_block *down, float *down_row)
{
    struct thread_scratch *s = &d->threads[tid];
    const struct ffn_shape *shape = &shape_of(d, layer)->ffn;
    struct gate_task t = gate_task_of(d, shape, task, rows, units);
    const struct expert_weights *w = expert_of(d, layer, s->experts[t.slot]);
    int ffn = w->up.rows, r0 = t.unit * rows, n = min_int(rows, ffn - r0);
    float *gate = s->tile, *up = s->tile + rows;
    bool apart = is_apart(d, layer, s->experts[t.slot]);
    struct input in = {.n = 1,
                       .cols = d->model->hp.hidden,
                       .panels = apart ? s->second_act : s->act,
                       .rows = apart ? s->second : s->row,
                       .stride = d->model->hp.hidden};

    if (w->gate.bytes)
        gemv(d, tid, &w->gate, r0, r0 + n, &in, gate, matrix_hint(&w->up, r0));
    gemv(d, tid, &w->up, r0, r0 + n, &in, up, gate_hint(d, tid, layer, task + 1, rows, units));
    if (shape->router.on_input && t.slot < shape->used)
        weight_products(s->weights[t.slot], n, gate, up);
    d->k->activate[shape->activation](gate, up, n, shape_limit(shape, s->experts[t.slot]), gate);
    if (!matrix_takes_rows(&w->down))
        input_quantise_part(d, gate, ffn, r0, n, down, 1, 0);
    else
        memcpy(down_row + r0, gate, (size_t)n * sizeof(float));
}

/* The next of a row's places that has an expert; `used`: none. */
static int place_after(const struct cpu_device *d, int slot, int used)
{
    do
        slot++;
    while (slot < used && d->one_experts[slot] < 0);
    return slot;
}

void experts_one_row(struct cpu_device *d, int tid, int layer, const float *seen,
                     const float *before, float *x, int *experts, float *weights)
{
    const struct ffn_shape *shape = &shape_of(d, layer)->ffn;
    int hidden = d->model->hp.hidden, rows = d->gate_piece[layer] * CPU_UNIT,
        units = (shape->width + rows - 1) / rows, stride = d->model->hp.n_experts_used,
        used = shape_used(shape_of(d, layer));
    int down_units = (hidden + CPU_UNIT - 1) / CPU_UNIT, total = gate_tasks(shape, rows, units),
        piece = d->down_piece, down_rows = piece * CPU_UNIT;
    size_t widest = (size_t)d->widest_ffn;
    struct thread_scratch *s = &d->threads[tid];
    float scaled[CPU_USED_MAX];
    bool ready = false, plain = ends_plainly(shape_of(d, layer));

    assert(layer >= 0 && layer < d->model->hp.n_layers);
    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        size_t slot = (size_t)gate_task_of(d, shape, task, rows, units).slot;

        if (!ready)
            route_one(d, s, layer, seen, before);
        ready = true;
        if (task == 0) {
            memcpy(d->one_experts, s->experts, (size_t)used * sizeof *experts);
            memcpy(d->one_weights, s->weights, (size_t)used * sizeof *weights);
            memcpy(experts, s->experts, (size_t)stride * sizeof *experts);
            memcpy(weights, s->weights, (size_t)stride * sizeof *weights);
        }
        if (s->experts[slot] < 0)
            continue;
        gate_up_row(d, tid, layer, task, rows, units,
                    blocks_at(d->act_down, slot * (widest / NUM_BLOCK)),
                    floats_at(d->ffn, slot * widest));
    }
    phase_end(d, tid);
    phase_open(d, tid, down_units);
    for (int task; (task = phase_take(d, tid, piece)) < down_units;) {
        int r0 = task * CPU_UNIT, r1 = min_int(r0 + down_rows, hidden), n = r1 - r0;

        for (int slot = 0; slot < used; slot++) {
            int following = place_after(d, slot, used);

            if (d->one_experts[slot] < 0) {
                memset(s->tile + slot * down_rows, 0, (size_t)n * sizeof(float));
                if (!plain)
                    memset(d->out + (size_t)slot * (size_t)hidden + r0, 0,
                           (size_t)n * sizeof(float));
                continue;
            }
            const struct matrix *w = &expert_of(d, layer, d->one_experts[slot])->down;
            struct input h = {.n = 1,
                              .cols = w->cols,
                              .panels = blocks_at(d->act_down, (size_t)slot * (widest / NUM_BLOCK)),
                              .rows = floats_at(d->ffn, (size_t)slot * widest),
                              .stride = w->cols};
            bool last = following == used;
            struct prefetch_hint next =
                last && task + piece >= phase_part(d, down_units, piece, tid + 1)
                    ? layer_hint(d, tid, layer + 1)
                    : matrix_hint(&expert_of(d, layer, d->one_experts[last ? 0 : following])->down,
                                  last ? r1 : r0);

            gemv(d, tid, w, r0, r1, &h, s->tile + slot * down_rows, next);
            if (!plain)
                memcpy(d->out + (size_t)slot * (size_t)hidden + r0, s->tile + slot * down_rows,
                       (size_t)n * sizeof(float));
        }
        if (plain)
            d->k->combine(x + r0, s->tile, down_rows,
                          scaled_weights(d, layer, d->one_weights, used, scaled), used, n, x + r0);
    }
    phase_end(d, tid);
    if (plain)
        return;
    phase_open(d, tid, 1);
    while (phase_take(d, tid, 1) < 1)
        combine_row(d, tid, layer, d->out, hidden, d->one_weights, NULL, x);
    phase_end(d, tid);
}

void experts_sparse(struct cpu_device *d, int tid, int layer, int rows, float *x, int *experts,
                    float *weights)
{
    int hidden = d->model->hp.hidden, stride = d->model->hp.n_experts_used;

    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;)
        route_row(d, layer, t, d->layers_job->imposed, NULL, x + (size_t)t * (size_t)hidden,
                  x + (size_t)t * (size_t)hidden, d->normed + (size_t)t * (size_t)hidden, NULL,
                  d->threads[tid].router, experts + t * stride, weights + t * stride);
    phase_end(d, tid);
    sparse_phases(d, tid, layer, rows, d->normed, d->out);
    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;)
        combine_row(d, tid, layer, d->out + (size_t)t * (size_t)hidden, (ptrdiff_t)rows * hidden,
                    weights + t * stride, NULL, x + (size_t)t * (size_t)hidden);
    phase_end(d, tid);
}

/* Whether somebody reads what comes behind a layer. */
static bool is_wanted(const struct cpu_device *d, const struct layers_job *j, int layer, int row)
{
    return !j->wanted || layer + 1 < d->model->hp.n_layers || j->wanted[row];
}

int experts_wanted(const struct cpu_device *d, const struct layers_job *j, int layer)
{
    int n = 0;

    for (int r = 0; r < j->rows; r++)
        n += is_wanted(d, j, layer, r);
    return n;
}

/* Groups entries of wanted rows by expert, experts ascending, rows ascending within one: the
 * layer's experts job. */
static void group_entries(struct cpu_device *d, int layer, int rows, const int *experts,
                          const float *weights)
{
    int used = d->model->hp.n_experts_used, n = 0, n_groups = 0;

    for (int e = 0; e < shape_experts(shape_of(d, layer)); e++) {
        int first = n;

        for (int i = 0; i < rows * used; i++)
            if (experts[i] == e && is_wanted(d, d->layers_job, layer, i / used)) {
                d->entry_row[n] = i / used;
                d->entry_slot[n++] = i % used;
            }
        if (n > first)
            d->groups[n_groups++] = (struct expert_group){e, first, n - first};
    }
    for (int i = 0; i < rows * used && shape_of(d, layer)->ffn.grouped; i++)
        if (experts[i] < 0) /* summed with weight 0 */
            memset(d->out + (size_t)(i % used * rows + i / used) * (size_t)d->model->hp.hidden, 0,
                   (size_t)d->model->hp.hidden * sizeof *d->out);
    d->grouped = (struct experts_job){.layer = layer,
                                      .rows = rows,
                                      .h = d->normed,
                                      .n_groups = n_groups,
                                      .groups = d->groups,
                                      .row = d->entry_row,
                                      .slot = d->entry_slot,
                                      .out = d->out,
                                      .weights = weights};
}

/* Whether no expert of a layer needs its rows as floats. */
static bool only_panels(const struct cpu_device *d, int layer)
{
    for (int e = 0; e < shape_experts(shape_of(d, layer)); e++)
        if (gate_needs_rows(expert_of(d, layer, e)))
            return false;
    return true;
}

/* A row goes to several experts, so it is quantised once, right after its norm, into the first half
 * of the space of its floats. */
_Static_assert(2 * sizeof(struct act_block) == NUM_BLOCK * sizeof(float),
               "a row's blocks take half the room of its floats");

void experts_many_rows(struct cpu_device *d, int tid, int layer, int rows, const float *seen,
                       const float *before, float *x, int *experts, float *weights)
{
    const struct layer_shape *shape = shape_of(d, layer);
    int hidden = d->model->hp.hidden, stride = d->model->hp.n_experts_used,
        used = shape_used(shape), apart = shape_normed_rows(shape) > 1;
    bool panels = only_panels(d, layer);
    int wanted = experts_wanted(d, d->layers_job, layer);

    assert(layer >= 0 && layer < d->model->hp.n_layers);
    assert(rows > 1 && rows <= d->max_rows);
    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;) {
        float *place = d->normed + (size_t)t * (size_t)hidden,
              *place2 = place + (apart ? (size_t)rows * (size_t)hidden : 0),
              *h = panels ? d->threads[tid].row : place,
              *second = panels ? d->threads[tid].second : place2;

        route_row(d, layer, t, d->layers_job->imposed, NULL, seen + (size_t)t * (size_t)hidden,
                  before + (size_t)t * (size_t)hidden, h, second, d->threads[tid].router,
                  experts + t * stride, weights + t * stride);
        if (panels)
            d->k->quantise(h, hidden, (struct act_block *)(void *)place, 1);
        if (panels && apart)
            d->k->quantise(second, hidden, (struct act_block *)(void *)place2, 1);
    }
    phase_end(d, tid);
    if (!wanted)
        return;
    phase_open(d, tid, 1);
    while (phase_take(d, tid, 1) < 1)
        group_entries(d, layer, rows, experts, weights);
    phase_end(d, tid);
    experts_phases(d, tid, layer, &d->grouped, wanted * used,
                   panels ? (const struct act_block *)(const void *)d->normed : NULL);
    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 4)) < rows;)
        for (int i = t; i < min_int(t + 4, rows); i++)
            if (is_wanted(d, d->layers_job, layer, i))
                combine_row(d, tid, layer, d->out + (size_t)i * (size_t)hidden,
                            (ptrdiff_t)rows * hidden, weights + i * stride, NULL,
                            x + (size_t)i * (size_t)hidden);
    phase_end(d, tid);
}
