/* A layer's experts, see blocks.h: rows grouped by expert, groups given to their devices, weights
 * fetched before they are needed, and experts that wait for the next layer's attention. Sums follow
 * engine/device/numerics.h, rule 10. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/run/pass/blocks.h"
#include "engine/run/pass/forward.h"
#include "engine/run/pass/paging.h"
#include "engine/run/report/trace.h"

#include <math.h>
#include <string.h>

/* Computes the deferred experts of the previous layer. Their input, f->h, is valid until this
 * layer's routing. */
int blocks_run_deferred(struct forward *f, struct error *e)
{
    struct device_slot *cpu = &f->slots[0];
    struct experts_job j = {.layer = f->deferred.layer,
                            .rows = 1,
                            .h = f->h,
                            .n_groups = f->deferred.n,
                            .groups = f->deferred.groups,
                            .row = f->deferred.row,
                            .slot = f->deferred.slot,
                            .out = f->deferred.out,
                            .strengths = blocks_strengths(f)};
    uint64_t start = clock_now();
    int rc;

    if (!f->deferred.n || f->deferred.layer < 0)
        return 0;
    rc = blocks_wait(cpu, cpu->ops->experts(cpu->device, &j, e), e);
    blocks_count_cost(f, &cpu->expert, clock_now() - start, j.n_groups);
    trace_span(f->trace, TRACE_EXPERTS, f->deferred.layer, 0, start, clock_now());
    f->deferred.layer = -1; /* computed; still to be added */
    return rc;
}

void blocks_add_deferred(struct forward *f)
{
    int hidden = f->model->hp.hidden;

    for (int i = 0; i < f->deferred.n; i++)
        for (int k = 0; k < hidden; k++)
            f->x[k] = fmaf(f->deferred.weights[i],
                           f->deferred.out[(size_t)i * (size_t)hidden + (size_t)k], f->x[k]);
    f->deferred.n = 0;
}

/* Defers the least-weighted experts of the CPU's groups in this layer. Only if the next layer's
 * attention runs on another device meanwhile. Never if a norm or a scale follows the sum, or if the
 * next layer's experts or their router see the stream before that: they would miss what is added
 * later. */
void blocks_choose_deferred(struct forward *f, int layer, const float *weights)
{
    const struct hparams *hp = &f->model->hp;
    struct expert_group *groups = f->groups; /* the CPU's */

    f->deferred.n = 0;
    if (!f->defer || f->tap || f->rows != 1 || f->model->cache || layer + 1 >= hp->n_layers ||
        hparams_layer(hp, layer)->norms.after || hparams_layer(hp, layer)->scaled ||
        hparams_layer(hp, layer)->inputs || hparams_layer(hp, layer)->ffn.router.on_input ||
        hparams_layer(hp, layer)->shortcut != SHORTCUT_NONE || hparams_hyper(hp) ||
        hparams_layer(hp, layer)->weighted || shape_keeps_stream(hparams_layer(hp, layer + 1)) ||
        f->plan->attention[layer + 1] == 0 ||
        (f->fused_device[layer + 1] != PLAN_NO_DEVICE && !trace_active(f->trace)))
        return;
    while (f->deferred.n < f->defer && f->deferred.n < FORWARD_DEFERRED && f->n_groups[0] > 0) {
        int least = 0, slot;

        for (int i = 1; i < f->n_groups[0]; i++)
            if (weights[f->slot[groups[i].first]] < weights[f->slot[groups[least].first]])
                least = i;
        slot = f->slot[groups[least].first];
        f->deferred.groups[f->deferred.n] = (struct expert_group){
            .expert = groups[least].expert, .first = f->deferred.n, .count = 1};
        f->deferred.row[f->deferred.n] = 0;
        f->deferred.slot[f->deferred.n] = f->deferred.n;
        f->deferred.weights[f->deferred.n] = weights[slot];
        f->deferred.n++;
        /* adds nothing to this layer's sum */
        memset(f->out + (size_t)slot * (size_t)hp->hidden, 0, (size_t)hp->hidden * sizeof(float));
        memmove(groups + least, groups + least + 1,
                (size_t)(--f->n_groups[0] - least) * sizeof *groups);
    }
    f->deferred.layer = layer;
}

/* Whether the row's experts in this layer change anything that is read. */
static bool is_wanted(const struct forward *f, int layer, int row)
{
    return !f->partly || layer + 1 < f->model->hp.n_layers || f->wanted[row];
}

/* Counting sort of the (row, slot) pairs by expert, then one group per expert, listed under its
 * device. */
void blocks_group_rows(struct forward *f, int layer)
{
    int n = f->model->hp.n_experts, used = f->model->hp.n_experts_used;
    const int *chosen = f->experts + (size_t)layer * (size_t)(f->rows * used);

    memset(f->first_entry, 0, (size_t)(n + 1) * sizeof *f->first_entry);
    memset(f->n_groups, 0, sizeof f->n_groups);
    for (int i = 0; i < f->rows * used; i++)
        if (chosen[i] >= 0 && is_wanted(f, layer, i / used))
            f->first_entry[chosen[i] + 1]++;
    for (int x = 0; x < n; x++) {
        int count = f->first_entry[x + 1], d = plan_expert(f->plan, layer, x);

        f->first_entry[x + 1] += f->first_entry[x];
        if (!count)
            continue;
        f->groups[d * n + f->n_groups[d]++] =
            (struct expert_group){.expert = x, .first = f->first_entry[x], .count = count};
        f->ran_on[layer * n + x] = (uint8_t)d;
    }
    for (int i = 0; i < f->rows * used; i++) {
        int at;

        if (chosen[i] < 0 || !is_wanted(f, layer, i / used))
            continue;
        at = f->first_entry[chosen[i]]++;
        f->row[at] = i / used;
        f->slot[at] = i % used;
    }
}

struct experts_job blocks_experts_job(struct forward *f, int layer, int d)
{
    return (struct experts_job){
        .layer = layer,
        .rows = f->rows,
        .h = f->h,
        .n_groups = f->n_groups[d],
        .groups = f->groups + d * f->model->hp.n_experts,
        .row = f->row,
        .slot = f->slot,
        .out = f->out,
        .strengths = blocks_strengths(f),
        .weights = f->weights + (size_t)layer * (size_t)(f->rows * f->model->hp.n_experts_used)};
}

/* Runs groups whose weights are in the CPU's memory. */
static int cpu_batch(void *ctx, const struct experts_job *j, struct error *e)
{
    struct forward *f = ctx;
    struct device_slot *cpu = &f->slots[0];
    uint64_t start = clock_now(), ns;
    int rc = blocks_wait(cpu, cpu->ops->experts(cpu->device, j, e), e);

    ns = clock_now() - start;
    blocks_count_cost(f, &cpu->expert, ns, j->n_groups);
    trace_span(f->trace, TRACE_EXPERTS, j->layer, 0, start, start + ns);
    return rc;
}

void blocks_share_memory(struct forward *f, int layer, int d)
{
    const struct expert_group *g = f->groups + d * f->model->hp.n_experts;
    uint64_t bytes = 0;

    if (!f->bandwidth || !f->bandwidth->active)
        return;
    for (int i = 0; i < f->n_groups[d]; i++)
        bytes += model_block_parts(f->model, (struct block_id){BLOCK_EXPERT, layer, g[i].expert})
                     .matrices;
    bandwidth_take(f->bandwidth, bytes);
}

/* Predicted experts that must be read from disk for the CPU or streamed to a device. */
static void read_ahead(struct forward *f, int layer, const uint8_t *streamed)
{
    int n = 0;

    for (int i = 0; i < f->model->hp.n_experts_used; i++)
        if (f->guess[i] >= 0 &&
            (streamed[f->guess[i]] || plan_expert(f->plan, layer, f->guess[i]) == 0))
            f->guess[n++] = f->guess[i];
    expert_cache_guess(f->model->cache, layer, f->guess, n);
}

/* Fetches experts of a layer that are streamed or on disk, by the router's choice for the current
 * residual stream, while something else computes: a prediction, if that is not all of its input
 * yet; a wrong one costs a copy. */
static void fetch_ahead(struct forward *f, int layer)
{
    const struct hparams *hp = &f->model->hp;
    struct device_slot *cpu = &f->slots[0];
    struct route_job j = {.layer = layer,
                          .rows = 1,
                          .x = f->x,
                          .ids = f->ids,
                          .inputs = f->inputs,
                          .h = f->guess_h,
                          .scores = f->guess_scores,
                          .experts = f->guess,
                          .weights = f->guess_weights};
    const uint8_t *streamed = f->plan->streamed + (size_t)layer * (size_t)hp->n_experts;
    uint64_t start = clock_now();
    struct error ignored;

    if (f->rows != 1 || layer >= hp->n_layers || hparams_layer(hp, layer)->ffn.kind == FFN_NONE ||
        !(blocks_may_miss(f, layer) || memchr(streamed, 1, (size_t)hp->n_experts)) ||
        blocks_wait(cpu, cpu->ops->route(cpu->device, &j, &ignored), &ignored) < 0)
        return;
    if (blocks_may_miss(f, layer))
        read_ahead(f, layer, streamed);
    for (int d = 1; d < f->n_devices && !f->model->cache; d++) {
        struct device_slot *s = &f->slots[d];
        int list[DEVICE_STREAM], n = 0;

        for (int i = 0; i < hp->n_experts_used && n < DEVICE_STREAM; i++)
            if (f->guess[i] >= 0 && streamed[f->guess[i]] &&
                plan_expert(f->plan, layer, f->guess[i]) == d)
                list[n++] = f->guess[i];
        if (n && s->ops->prefetch && !s->lost)
            s->ops->prefetch(s->device, layer, list, n);
    }
    trace_span(f->trace, TRACE_ROUTE, layer, 0, start, clock_now());
}

/* The next layer's experts, while this layer's compute: they seldom change the stream enough to
 * alter the routing. */
static void prefetch(struct forward *f, int layer)
{
    fetch_ahead(f, layer + 1);
}

/* A layer's own, while its mixer computes: where its router sees the stream before that, or the
 * token alone, and so says for certain who is needed. */
void blocks_fetch_known(struct forward *f, int layer)
{
    const struct router_shape *r = &hparams_layer(&f->model->hp, layer)->ffn.router;

    if (r->early || r->by_token)
        fetch_ahead(f, layer);
}

static void meanwhile(void *ctx)
{
    struct forward *f = ctx;

    prefetch(f, f->paging_layer);
}

static int cpu_experts(struct forward *f, int layer, int owed_by, struct error *e)
{
    struct experts_job j = blocks_experts_job(f, layer, owed_by);
    const struct paging paging = {.cache = f->model->cache,
                                  .groups = f->groups + owed_by * f->model->hp.n_experts,
                                  .run = cpu_batch,
                                  .meanwhile = meanwhile,
                                  .ctx = f};
    int rc;

    f->paging_layer = layer;
    rc = blocks_may_miss(f, layer) ? paging_run(&paging, j, e) : cpu_batch(f, &j, e);
    for (int i = 0; i < j.n_groups; i++)
        f->ran_on[layer * f->model->hp.n_experts + j.groups[i].expert] = 0;
    return rc;
}

static int audit_of_experts(struct forward *f, int device, const struct experts_job *j,
                            struct error *e)
{
    int result;

    mem_guard_disarm(); /* experts may be read from disk */
    result = audit_experts(&f->audit, device, j);
    mem_guard_arm("forward");
    return blocks_audited(f, device, result, e);
}

int blocks_cpu_experts(struct forward *f, int layer, const struct expert_group *groups, int n,
                       struct error *e)
{
    struct experts_job j = blocks_experts_job(f, layer, 0);

    j.groups = groups;
    j.n_groups = n;
    for (int i = 0; i < n; i++)
        f->ran_on[layer * f->model->hp.n_experts + groups[i].expert] = 0;
    return cpu_batch(f, &j, e);
}

struct passing {
    struct forward *f;
    int device;
};

static int pass_batch(void *ctx, const struct experts_job *j, struct error *e)
{
    const struct passing *p = ctx;
    struct device_slot *s = &p->f->slots[p->device];
    bool audit = audit_due(&p->f->audit, p->device, BLOCK_EXPERT, j->layer);
    int rc = blocks_wait(s, s->ops->experts(s->device, j, e), e);

    if (rc == ERR_MEMORY) /* of the device: not that of the cache on disk */
        return ERR_DEVICE;
    return rc == 0 && audit ? audit_of_experts(p->f, p->device, j, e) : rc;
}

/* Runs a device's experts that are on disk and streamed to it, before the resident ones; only the
 * latter remain in the device's groups. */
static int pass_experts(struct forward *f, int layer, int d, struct error *e)
{
    int n = f->model->hp.n_experts, passing = 0;
    const uint8_t *streamed = f->plan->streamed + (size_t)layer * (size_t)n;
    struct experts_job j = blocks_experts_job(f, layer, d);
    struct expert_group *groups = f->groups + d * n;
    struct passing ctx = {f, d};
    const struct paging paging = {
        .cache = f->model->cache, .groups = groups, .run = pass_batch, .ctx = &ctx};
    int rc;

    for (int i = 0; i < j.n_groups; i++)
        if (streamed[groups[i].expert]) {
            struct expert_group g = groups[i];

            groups[i] = groups[passing];
            groups[passing++] = g;
        }
    if (!passing || !f->model->cache)
        return 0;
    j.n_groups = passing;
    if ((rc = paging_run(&paging, j, e)) < 0)
        return rc;
    f->n_groups[d] -= passing;
    memmove(groups, groups + passing, (size_t)f->n_groups[d] * sizeof *groups);
    return 0;
}

int blocks_run_experts(struct forward *f, int layer, struct error *e)
{
    int state[DEVICE_MAX] = {0}, rc = 0; /* 0: nothing to do, 1: running, -1: failed */
    uint64_t start[DEVICE_MAX] = {0}, busy[DEVICE_MAX] = {0}, launch[DEVICE_MAX] = {0};
    uint64_t beside = 0; /* when the CPU's own were done */
    bool audit[DEVICE_MAX] = {false};

    for (int d = 1; d < f->n_devices && rc == 0; d++) {
        struct device_slot *s = &f->slots[d];
        struct experts_job j;
        int passed = pass_experts(f, layer, d, e);

        if (passed < 0 && (passed != ERR_DEVICE || s->health.trouble == TROUBLE_WRONG)) {
            rc = passed; /* the disk's failure, not the device's; or it was demoted */
            continue;
        }
        j = blocks_experts_job(f, layer, d);
        if (!j.n_groups)
            continue;
        if (passed < 0) {
            state[d] = -1;
            rc = blocks_failed(f, d, "experts", e);
            continue;
        }
        if (s->info.unified)
            blocks_share_memory(f, layer, d);
        audit[d] = audit_due(&f->audit, d, BLOCK_EXPERT, layer);
        busy[d] = f->rows == 1 ? blocks_busy_ns(s) : 0;
        start[d] = clock_now();
        state[d] = s->ops->experts(s->device, &j, e) == 0 ? 1 : -1;
        launch[d] = clock_now() - start[d];
        if (state[d] < 0)
            rc = blocks_failed(f, d, "experts", e);
    }
    if (rc == 0 && !(blocks_may_miss(f, layer) && f->n_groups[0]))
        prefetch(f, layer);
    if (rc == 0 && f->n_groups[0]) {
        blocks_share_memory(f, layer, 0);
        rc = cpu_experts(f, layer, 0, e);
    }
    beside = clock_now();
    for (int d = 1; d < f->n_devices; d++) {
        struct device_slot *s = &f->slots[d];
        struct error failed = {0};
        uint64_t end;

        /* also after another failure: its inputs must be free */
        if (state[d] == 1 && s->ops->wait(s->device, &failed) < 0) {
            state[d] = -1;
            if (rc == 0 && (rc = blocks_failed(f, d, "experts", &failed)) < 0 && e)
                *e = failed;
        }
        if (state[d] == 1) {
            end = clock_now();
            blocks_watch(f, d, SLOW_EXPERTS, f->n_groups[d], start[d], end,
                         f->n_groups[0] ? end - beside : end - start[d]);
            beside = end; /* the next one may have been waiting */
            /* else it may have finished before the CPU: the time is unknown */
            if (!f->n_groups[0]) {
                blocks_count_cost(f, &s->expert, end - start[d], f->n_groups[d]);
                blocks_count_handoff(f, d, end - start[d], launch[d], busy[d]);
            }
            trace_span(f->trace, TRACE_EXPERTS, layer, d, start[d], end);
        }
        if (state[d] < 0 && rc == 0)
            rc = cpu_experts(f, layer, d, e);
    }
    for (int d = 1; d < f->n_devices && rc == 0; d++)
        if (audit[d] && state[d] == 1) {
            struct experts_job j = blocks_experts_job(f, layer, d);

            rc = audit_of_experts(f, d, &j, e);
        }
    return rc;
}
