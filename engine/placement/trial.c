/* See trial.h. Engine thread. Every job is timed from its call to the end of wait(). On the CPU the
 * samples walk through all layers, so that its caches hold no more of the weights than in decoding;
 * a device has a few layers, as many as its part of TRIAL_BYTES allows. */
#include "engine/placement/trial.h"

#include "engine/base/mem.h"
#include "engine/base/series.h"
#include "engine/model/expert_cache.h"
#include "engine/placement/residency.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENOUGH 5   /* samples of a job */
#define WARM_UPS 2 /* runs of a job before the first sample */
#define USED_MOST 16

uint64_t trial_allowance(uint64_t computed_ns, uint64_t spent_ns)
{
    uint64_t share = computed_ns / TRIAL_SHARE,
             allowed = share > TRIAL_FIRST_NS ? share : TRIAL_FIRST_NS;

    return allowed > spent_ns ? allowed - spent_ns : 0;
}

struct state {
    const struct trial_run *r;
    struct trial_costs *c;
    uint64_t begun;
    struct {
        int n, layer[TRIAL_LAYERS]; /* sampled there */
        bool head;                  /* likewise */
    } there[TRIAL_SIDES];
    double last[TRIAL_SIDES][PLAN_PHASES][TRIAL_JOBS]; /* ns of the newest run; 0: none yet */
    int runs[TRIAL_SIDES][PLAN_PHASES][TRIAL_JOBS];
    float *x, *y;
    struct expert_group groups[USED_MOST];
    int *row, *slot; /* (USED_MOST * rows) */
};

/* Reads the clock, stops if asked to, and tells whether a piece that takes about ns still fits. */
static int may_begin(const struct state *s, double ns, struct error *e)
{
    const struct trial_run *r = s->r;
    uint64_t spent = r->now(r->ctx) - s->begun;

    if (r->stop && r->stop(r->ctx))
        return error_set(e, ERR_CANCELLED, "cancelled");
    return spent < r->limit_ns && (double)(r->limit_ns - spent) >= ns;
}

static bool planned_there(const struct trial_run *r, int device, struct block_id id)
{
    for (int k = 0; k < 2 * PLAN_PHASES; k++) {
        const struct plan *p = r->keep[k];
        int d = !p                        ? 0
                : id.kind == BLOCK_HEAD   ? p->head
                : id.kind == BLOCK_EXPERT ? plan_expert(p, id.layer, id.expert)
                                          : p->attention[id.layer];

        if (d == device)
            return true;
    }
    return false;
}

/* The sample's i-th expert of a layer: the layer's first ones. */
static bool has_experts(const struct trial_run *r, int device, int layer, int used)
{
    for (int x = 0; x < used; x++)
        if (!planner_has_expert(r->input, layer, x) ||
            (device && !planner_can_expert(r->input, device, layer, x)))
            return false;
    return used > 0;
}

static bool has_attention(const struct trial_run *r, int device, int layer)
{
    return r->input->attention_bytes[layer] > 0 &&
           (!device || planner_can_attention(r->input, device, layer));
}

/* The device's i-th block of the sample; false: there are no more. */
static bool block_of(const struct state *s, int side, int i, struct block_id *id)
{
    int used = s->c->used, per_layer = used + 1, n = s->there[side].n * per_layer;

    if (i >= n) {
        *id = (struct block_id){BLOCK_HEAD, 0, 0};
        return i == n && s->there[side].head;
    }
    *id = i % per_layer == used
              ? (struct block_id){BLOCK_ATTENTION, s->there[side].layer[i / per_layer], 0}
              : (struct block_id){BLOCK_EXPERT, s->there[side].layer[i / per_layer], i % per_layer};
    return true;
}

/* Chooses a device's layers that have all kinds of jobs and spread over the model; it becomes the
 * next side if there are any. bytes: of weights, at most, or one layer's. */
static void add_side(struct state *s, int device, uint64_t most)
{
    const struct planner_input *in = s->r->input;
    int used = s->c->used, step = in->n_layers / TRIAL_LAYERS > 1 ? in->n_layers / TRIAL_LAYERS : 1,
        side = s->c->sides, n = 0;
    uint64_t bytes = 0;

    for (int from = 0; from < step && n == 0; from++)
        for (int l = from; l < in->n_layers && n < TRIAL_LAYERS; l += step) {
            uint64_t more = in->attention_bytes[l];

            if (!has_attention(s->r, device, l) || !has_experts(s->r, device, l, used))
                continue;
            for (int x = 0; x < used; x++)
                more += in->expert_bytes[l * in->n_experts + x];
            if (n && bytes + more > most)
                break;
            bytes += more;
            s->there[side].layer[n++] = l;
        }
    if (!n)
        return;
    s->there[side].n = n;
    s->there[side].head = in->devices[device].head_can && bytes + in->head_bytes <= most;
    s->c->device[side] = device;
    s->c->sides++;
    s->c->layers = n > s->c->layers ? n : s->c->layers;
}

static void choose_sides(struct state *s)
{
    const struct planner_input *in = s->r->input;
    int devices = in->n_also < TRIAL_SIDES - 2 ? in->n_also + 1 : TRIAL_SIDES - 1;

    s->c->sides = 1;
    s->c->layers = s->c->device[0] = 0;
    for (int i = 0; i < devices; i++)
        add_side(s, i ? in->also[i - 1] : in->target, TRIAL_BYTES / (uint64_t)devices);
}

static struct device *device_of(const struct state *s, int side)
{
    return s->r->devices[s->c->device[side]];
}

static const struct device_ops *ops_of(const struct state *s, int side)
{
    return ((const struct device_base *)device_of(s, side))->ops;
}

/* A device failed: leaves it out if there is another, else returns rc. */
static int leave_out(struct state *s, int side, int rc, const struct error *e)
{
    bool another = false;

    for (int i = 1; i < s->c->sides; i++)
        another |= i != side && !s->c->why[i][0];
    if (rc != ERR_DEVICE || !side || !another)
        return rc;
    snprintf(s->c->why[side], sizeof s->c->why[side], "%.150s", e->text[0] ? e->text : "it failed");
    memset(s->c->of[side], 0, sizeof s->c->of[side]);
    return 1;
}

/* Brings the sample to a device. 1: all is there, 0: no time. */
static int bring(struct state *s, int side, struct error *e)
{
    struct expert_cache *cache = s->r->model->cache;
    double last = 0;
    struct block_id id;

    for (int i = 0; block_of(s, side, i, &id); i++) {
        bool held = cache && id.kind == BLOCK_EXPERT;
        struct device_stats before, after;
        int rc = 0;

        if (planned_there(s->r, s->c->device[side], id))
            continue;
        while (rc == 0) {
            uint64_t start = s->r->now(s->r->ctx);

            if ((rc = may_begin(s, last, e)) != 1)
                return rc;
            if (held && (rc = expert_cache_hold(cache, id.layer, id.expert, e)) < 0)
                return rc;
            ops_of(s, side)->stats(device_of(s, side), &before);
            rc = ops_of(s, side)->block_put(device_of(s, side), id, RESIDENCY_CHUNK, e);
            ops_of(s, side)->stats(device_of(s, side), &after);
            if (held)
                expert_cache_give(cache, id.layer, id.expert);
            s->c->bytes += after.uploaded_bytes - before.uploaded_bytes;
            last = (double)(s->r->now(s->r->ctx) - start);
        }
        if (rc < 0)
            return rc;
    }
    return 1;
}

/* To every device. 1: all is there, 0: no time. */
static int bring_all(struct state *s, struct error *e)
{
    int rc = 1;

    for (int side = 1; side < s->c->sides && rc == 1; side++)
        if ((rc = bring(s, side, e)) < 0)
            rc = leave_out(s, side, rc, e);
    return rc;
}

static void take_away(const struct state *s)
{
    struct block_id id;

    for (int side = 1; side < s->c->sides; side++)
        for (int i = 0; block_of(s, side, i, &id); i++)
            if (!s->c->why[side][0] && !planned_there(s->r, s->c->device[side], id))
                ops_of(s, side)->block_drop(device_of(s, side), id);
}

/* Experts on disk one after the other: each needs a slot only while it computes. */
static int run_experts(struct state *s, int side, struct experts_job *j, struct error *e)
{
    struct expert_cache *cache = s->r->model->cache;
    int n = j->n_groups, rc = 0;

    if (!cache || side)
        return ops_of(s, side)->experts(device_of(s, side), j, e);
    j->n_groups = 1;
    for (int i = 0; i < n && rc == 0; i++, j->groups++) {
        int expert = j->groups->expert;

        if ((rc = expert_cache_hold(cache, j->layer, expert, e)) < 0)
            break;
        rc = ops_of(s, 0)->experts(device_of(s, 0), j, e);
        expert_cache_give(cache, j->layer, expert);
    }
    return rc;
}

static int run_job(struct state *s, int side, enum plan_phase phase, enum trial_job job, int layer,
                   struct error *e)
{
    const struct device_ops *ops = ops_of(s, side);
    struct device *d = device_of(s, side);
    int rows = phase == PHASE_PROMPT ? s->c->rows : 1, routed = 0, each = 1, rc;
    struct attention_job a = {
        .layer = layer, .rows = rows, .pos = s->r->kv_len, .x = s->x, .y = s->y, .trial = true};
    struct head_job h = {.rows = 1, .x = s->x, .logits = s->y};
    struct experts_job x = {.layer = layer,
                            .rows = rows,
                            .h = s->x,
                            .n_groups = job == TRIAL_EXPERT ? 1 : s->c->used,
                            .groups = s->groups,
                            .row = s->row,
                            .slot = s->slot,
                            .out = s->y};

    if (job == TRIAL_ATTENTION) {
        rc = ops->attention(d, &a, e);
    } else if (job == TRIAL_HEAD) {
        rc = ops->head(d, &h, e);
    } else {
        for (int i = 0; i < s->r->input->n_experts; i++)
            routed += planner_has_expert(s->r->input, layer, i);
        /* rows of a prompt spread evenly */
        if (rows > 1 && routed > 0)
            each = rows * s->c->used / routed > 1 ? rows * s->c->used / routed : 1;
        each = each < rows ? each : rows;
        for (int i = 0; i < x.n_groups; i++) {
            s->groups[i] = (struct expert_group){i, i * each, each};
            for (int k = 0; k < each; k++) {
                s->row[i * each + k] = k;
                s->slot[i * each + k] = i;
            }
        }
        rc = run_experts(s, side, &x, e);
    }
    return rc < 0 ? rc : ops->wait(d, e);
}

static bool wanted(const struct state *s, int side, enum plan_phase phase, enum trial_job job)
{
    const struct trial_run *r = s->r;
    int rows = phase == PHASE_PROMPT ? s->c->rows : 1;

    if (s->c->why[side][0] || (phase == PHASE_PROMPT && (job == TRIAL_HEAD || rows < 2)))
        return false;
    if (job == TRIAL_HEAD)
        return !side || s->there[side].head;
    if (job == TRIAL_ATTENTION)
        return r->kv_len + rows <= ((const struct device_base *)device_of(s, 0))->config.context;
    return true;
}

static int layer_of(const struct state *s, int side, int run)
{
    int n = s->r->input->n_layers;

    if (side)
        return s->there[side].layer[run % s->there[side].n];
    for (int i = 0; i < n; i++) { /* those that are like the device's */
        int l = (run + i) % n;

        if (has_attention(s->r, 0, l) && has_experts(s->r, 0, l, s->c->used))
            return l;
    }
    return s->there[1].layer[0];
}

/* One run of a job, a sample if it is warm. 1: done, 0: no time. */
static int sample(struct state *s, int side, enum plan_phase phase, enum trial_job job,
                  struct error *e)
{
    struct trial_samples *t = &s->c->of[side][phase][job];
    double *last = &s->last[side][phase][job];
    int *runs = &s->runs[side][phase][job], rc = may_begin(s, *last, e);
    uint64_t start = s->r->now(s->r->ctx);

    if (rc != 1)
        return rc;
    if ((rc = run_job(s, side, phase, job, layer_of(s, side, (*runs)++), e)) < 0)
        return rc;
    *last = (double)(s->r->now(s->r->ctx) - start);
    if (*runs <= WARM_UPS)
        return 1;
    memmove(t->ns + 1, t->ns, (TRIAL_SAMPLES - 1) * sizeof *t->ns);
    t->ns[0] = *last > 0 ? *last : 1;
    t->n += t->n < TRIAL_SAMPLES;
    return 1;
}

/* A prompt's jobs may take a fifth of a side's part of the time limit each, as the CPU's jobs of
 * one row predict. */
static void choose_rows(struct state *s)
{
    double most = 0, room;
    int left = ((const struct device_base *)device_of(s, 0))->config.context - s->r->kv_len;

    for (int j = 0; j < TRIAL_HEAD; j++)
        most = s->last[0][PHASE_TOKENS][j] > most ? s->last[0][PHASE_TOKENS][j] : most;
    room = (double)s->r->limit_ns / (5 * s->c->sides);
    if (!s->c->rows)
        s->c->rows = s->r->max_rows < TRIAL_ROWS ? s->r->max_rows : TRIAL_ROWS;
    while (s->c->rows > 8 && (double)s->c->rows * most > room && !s->c->of[0][PHASE_PROMPT][0].n)
        s->c->rows /= 2;
    if (s->c->rows > left)
        s->c->rows = left;
}

static bool complete(const struct state *s)
{
    for (int side = 0; side < s->c->sides; side++)
        for (int k = 0; k < PLAN_PHASES; k++)
            for (int j = 0; j < TRIAL_JOBS; j++)
                if (wanted(s, side, (enum plan_phase)k, (enum trial_job)j) &&
                    s->c->of[side][k][j].n < ENOUGH)
                    return false;
    return true;
}

/* All sides in turn, so that changes of the machine's speed affect them alike. */
static int rounds(struct state *s, struct error *e)
{
    for (int n = 0; n < ENOUGH + WARM_UPS || !complete(s); n++) {
        for (int k = 0; k < PLAN_PHASES; k++)
            for (int j = 0; j < TRIAL_JOBS; j++)
                for (int i = 0; i < s->c->sides; i++) {
                    int side = (n + i) % s->c->sides, rc;

                    if (!wanted(s, side, (enum plan_phase)k, (enum trial_job)j))
                        continue;
                    rc = sample(s, side, (enum plan_phase)k, (enum trial_job)j, e);
                    if (rc < 0)
                        rc = leave_out(s, side, rc, e);
                    if (rc != 1)
                        return rc;
                }
        if (n == 0)
            choose_rows(s);
        if (n > 4 * (ENOUGH + WARM_UPS))
            break;
    }
    return 0;
}

static int open_state(struct state *s, struct error *e)
{
    const struct hparams *hp = &s->r->model->hp;
    size_t rows = (size_t)(s->r->max_rows < TRIAL_ROWS ? s->r->max_rows : TRIAL_ROWS),
           hidden = (size_t)hp->hidden, outputs = USED_MOST * rows * hidden,
           logits = (size_t)hp->n_vocab;

    s->x = mem_alloc(2 * rows * hidden, sizeof *s->x); /* shape_normed_rows at most */
    s->y = mem_alloc(outputs > logits ? outputs : logits, sizeof *s->y);
    s->row = mem_alloc(USED_MOST * rows, sizeof *s->row);
    s->slot = mem_alloc(USED_MOST * rows, sizeof *s->slot);
    if (!s->x || !s->y || !s->row || !s->slot)
        return error_set(e, ERR_MEMORY, "out of memory for measuring placements");
    for (size_t i = 0; i < 2 * rows * hidden; i++)
        s->x[i] = (float)((int)((i * 7919) % 255) - 127) * 0.01f;
    return 0;
}

int trial_measure(struct trial_costs *c, const struct trial_run *r, struct error *e)
{
    struct state s = {.r = r, .c = c, .begun = r->now(r->ctx)};
    struct error own = {0};
    int rc;

    e = e ? e : &own; /* what a device says is kept */

    c->used = r->input->n_experts_used < USED_MOST ? r->input->n_experts_used : USED_MOST;
    c->of_layers = r->input->n_layers;
    c->pass_rows = r->max_rows;
    choose_sides(&s);
    if (!c->layers)
        rc = error_set(e, ERR_DEVICE, "%s computes no layer of this model",
                       r->input->devices[r->input->target].name);
    else if ((rc = open_state(&s, e)) == 0 && (rc = bring_all(&s, e)) == 1)
        rc = rounds(&s, e);
    if (c->layers && rc != ERR_DEVICE)
        take_away(&s);
    c->complete = rc >= 0 && complete(&s);
    c->ns += r->now(r->ctx) - s.begun;
    mem_free(s.x);
    mem_free(s.y);
    mem_free(s.row);
    mem_free(s.slot);
    return rc < 0 ? rc : 0;
}

/* The median, plus its standard error if `raised`; 0: not sampled. From the quartiles, since a
 * disturbed sample can be far off: 1.25 sd / sqrt(n), sd = 0.74 of their distance. */
static double cost(const struct trial_samples *t, bool raised)
{
    double sorted[TRIAL_SAMPLES], spread;

    if (!t->n)
        return 0;
    memcpy(sorted, t->ns, sizeof sorted);
    qsort(sorted, (size_t)t->n, sizeof *sorted, series_compare);
    spread = series_percentile(sorted, (size_t)t->n, 75) -
             series_percentile(sorted, (size_t)t->n, 25);
    return series_percentile(sorted, (size_t)t->n, 50) +
           (raised ? 1.25 * 0.74 * spread / sqrt((double)t->n) : 0);
}

int trial_steps(const struct trial_costs *c)
{
    return c->sides * TRIAL_JOBS;
}

void trial_input(const struct trial_costs *c, const struct planner_input *in, enum plan_phase phase,
                 int step, struct planner_input *out)
{
    bool overlaps = phase == PHASE_PROMPT && c->pass_rows >= PLANNER_OVERLAP && c->rows > 0;

    *out = *in;
    out->prompt_rows = overlaps ? c->pass_rows : 0;
    for (int i = 1; i < in->n_devices; i++)
        out->devices[i].budget = 0;
    for (int side = 0; side < c->sides; side++) {
        struct planner_device *d = &out->devices[c->device[side]];
        double t[TRIAL_JOBS], calls = 1;

        if (c->why[side][0])
            continue;
        d->budget = in->devices[c->device[side]].budget;

        for (int j = 0; j < TRIAL_JOBS; j++)
            t[j] = cost(&c->of[side][j == TRIAL_HEAD ? PHASE_TOKENS : phase][j],
                        step == side * TRIAL_JOBS + j);
        d->handoff_ns = 0;
        d->expert_ns = t[TRIAL_EXPERTS] / (c->used ? c->used : 1);
        if (side && c->used > 1 && t[TRIAL_EXPERTS] > t[TRIAL_EXPERT]) {
            /* t = handoff + calls * expert */
            d->expert_ns = (t[TRIAL_EXPERTS] - t[TRIAL_EXPERT]) / (c->used - 1);
            if (t[TRIAL_EXPERT] > d->expert_ns)
                d->handoff_ns = t[TRIAL_EXPERT] - d->expert_ns;
        }
        d->attention_ns = t[TRIAL_ATTENTION] > 2 * d->handoff_ns
                              ? t[TRIAL_ATTENTION] - d->handoff_ns
                              : t[TRIAL_ATTENTION] / 2;
        d->head_ns = t[TRIAL_HEAD] > 2 * d->handoff_ns ? t[TRIAL_HEAD] - d->handoff_ns
                                                       : t[TRIAL_HEAD] / 2;
        if (phase == PHASE_PROMPT && c->used && in->n_experts > c->used)
            calls = (double)in->n_experts / c->used; /* all experts of a layer have rows */
        d->expert_ns *= calls;
        d->launch_ns = d->launch_ns < d->handoff_ns ? d->launch_ns : d->handoff_ns;
        d->prompt_attention_ns = overlaps ? d->attention_ns / c->rows : 0;
        d->prompt_expert_ns = overlaps ? d->expert_ns / c->rows : 0;
    }
}
