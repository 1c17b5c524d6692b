/* See forward.h. Runs on the engine's thread.
 * Shape: jobs of one layer are sent and awaited within that layer, so a failure always belongs to one known job and the inputs for its
 * second run are still there. Every operation here that touches numbers follows engine/device/numerics.h, rules 9 and 10. */
#include "engine/run/forward.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/run/trace.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define NOWHERE 255
#define STAGING_ROWS 64          /* KV rows a copy step */
#define FUSED_ROWS 64            /* rows x layers of one fused job in prefill: cancel and progress come in between */

static size_t kv_bytes(enum kv_type type, int values)
{
    switch (type) {
    case KV_F32:
        return (size_t)values * 4;
    case KV_F16:
        return (size_t)values * 2;
    case KV_Q8_0:
        return (size_t)values / 32 * 34;
    }
    return 0;
}

size_t forward_kv_row_bytes(const struct forward *f)
{
    int values = f->model->hp.n_kv_heads * f->model->hp.head_dim;

    return kv_bytes(f->kv_k, values) + kv_bytes(f->kv_v, values);
}

static void *take(struct forward *f, size_t count, size_t size)
{
    f->scratch_bytes += count * size;
    return mem_alloc(count, size);
}

int forward_init(struct forward *f, const struct model *m, struct device_slot *slots, int n_devices, int max_rows,
                 enum kv_type kv_k, enum kv_type kv_v, struct error *e)
{
    const struct hparams *hp = &m->hp;
    size_t rows = (size_t)max_rows, hidden = (size_t)hp->hidden, used = (size_t)hp->n_experts_used;
    size_t layers = (size_t)hp->n_layers, experts = (size_t)hp->n_experts;

    memset(f, 0, sizeof *f);
    f->model = m;
    f->slots = slots;
    f->n_devices = n_devices;
    f->max_rows = max_rows;
    f->kv_k = kv_k;
    f->kv_v = kv_v;
    f->in_force = plan_new("cpu", hp->n_layers, hp->n_experts);
    f->experts = take(f, layers * rows * used, sizeof *f->experts);
    f->weights = take(f, layers * rows * used, sizeof *f->weights);
    f->ran_on = take(f, layers * experts, 1);
    f->x = take(f, rows * hidden, sizeof(float));
    f->saved = take(f, rows * hidden, sizeof(float));
    f->y = take(f, rows * hidden, sizeof(float));
    f->h = take(f, rows * hidden, sizeof(float));
    f->scores = take(f, rows * experts, sizeof(float));
    f->out = take(f, used * rows * hidden, sizeof(float));
    f->row = take(f, rows * used, sizeof(int));
    f->slot = take(f, rows * used, sizeof(int));
    f->first = take(f, experts + 1, sizeof(int));
    f->groups = take(f, DEVICE_MAX * experts, sizeof *f->groups);
    f->whole = take(f, layers, 1);
    f->staging_rows = STAGING_ROWS;
    f->staging = take(f, STAGING_ROWS, forward_kv_row_bytes(f));
    if (!f->in_force || !f->experts || !f->weights || !f->ran_on || !f->x || !f->saved || !f->y || !f->h || !f->scores || !f->out || !f->row ||
        !f->slot || !f->first || !f->groups || !f->whole || !f->staging) {
        forward_release(f);
        return error_set(e, ERR_MEMORY, "no memory for the activations of %d rows: try a smaller -ub", max_rows);
    }
    memset(f->ran_on, NOWHERE, layers * experts);
    forward_placed(f);
    return 0;
}

void forward_release(struct forward *f)
{
    plan_free(f->in_force);
    mem_free(f->experts);
    mem_free(f->weights);
    mem_free(f->ran_on);
    mem_free(f->x);
    mem_free(f->saved);
    mem_free(f->y);
    mem_free(f->h);
    mem_free(f->scores);
    mem_free(f->out);
    mem_free(f->row);
    mem_free(f->slot);
    mem_free(f->first);
    mem_free(f->groups);
    mem_free(f->whole);
    mem_free(f->staging);
    memset(f, 0, sizeof *f);
}

void forward_placed(struct forward *f)
{
    const struct plan *p = f->in_force;

    for (int l = 0; l < p->n_layers; l++) {
        int d = p->attention[l];

        for (int e = 0; e < p->n_experts && d != NOWHERE; e++)
            if (plan_expert(p, l, e) != d)
                d = NOWHERE;
        f->whole[l] = (uint8_t)(d != NOWHERE && f->slots[d].ops->layers ? d : NOWHERE);
    }
}

/* ---- failures ---- */

static void tell(struct forward *f, const char *line)
{
    mem_guard_disarm();          /* a failure is no token: saying so may allocate */
    if (f->hooks.notice)
        f->hooks.notice(f->hooks.ctx, line);
    mem_guard_arm("forward");
}

void forward_device_lost(struct forward *f, int device)
{
    struct plan *p = f->in_force;

    f->slots[device].lost = true;
    for (int l = 0; l < p->n_layers; l++) {
        if (p->attention[l] == device)
            p->attention[l] = 0;
        for (int e = 0; e < p->n_experts; e++)
            if (plan_expert(p, l, e) == device)
                p->experts[l * p->n_experts + e] = 0;
    }
    if (p->head == device)
        p->head = 0;
    forward_placed(f);
}

/* A job of a device other than the CPU failed: says so once, and takes the device out of use when it was not the first time. */
static void job_failed(struct forward *f, int device, const char *what, const struct error *why)
{
    struct device_slot *s = &f->slots[device];
    char line[700];

    if (s->lost)
        return;
    s->failures++;
    if (s->failures > 1) {
        snprintf(line, sizeof line, "%s failed again (%s: %s): the CPU takes over everything it did", s->info.selector[0] ? s->info.selector :
                 s->ops->name, what, why->text);
        forward_device_lost(f, device);
    } else {
        snprintf(line, sizeof line, "%s failed (%s: %s): the CPU computed this step instead; the text goes on", s->info.selector[0] ?
                 s->info.selector : s->ops->name, what, why->text);
    }
    tell(f, line);
}

static int finish(struct device_slot *s, int rc, struct error *e)
{
    return rc < 0 ? rc : s->ops->wait(s->device, e);
}

/* ---- the KV cache, wherever it lies ---- */

void forward_kv_cut(struct forward *f, int pos)
{
    for (int d = 0; d < f->n_devices; d++)
        for (int l = 0; l < f->model->hp.n_layers; l++)
            if (f->slots[d].kv_valid[l] > pos)
                f->slots[d].kv_valid[l] = pos;
}

static void kv_written(struct forward *f, int layer, int device, int pos, int rows)
{
    for (int d = 0; d < f->n_devices; d++)
        if (f->slots[d].kv_valid[layer] > pos)
            f->slots[d].kv_valid[layer] = pos;
    f->slots[device].kv_valid[layer] = pos + rows;
}

int forward_kv_step(struct forward *f, int layer, int device, int pos, size_t max_bytes, struct error *e)
{
    struct device_slot *to = &f->slots[device], *from = NULL;
    int source = 0;
    size_t row = forward_kv_row_bytes(f), budget = max_bytes > row ? max_bytes / row : 1;

    for (int d = 0; d < f->n_devices && to->kv_valid[layer] < pos; d++)
        if (d != device && f->slots[d].kv_valid[layer] >= pos && f->slots[d].device)
            from = &f->slots[source = d];
    if (to->kv_valid[layer] < pos && !from) {
        f->kv_lost = true;
        return error_set(e, ERR_DEVICE, "the cached keys of layer %d are gone", layer);
    }
    while (to->kv_valid[layer] < pos && budget) {
        int at = to->kv_valid[layer], n = pos - at < f->staging_rows ? pos - at : f->staging_rows;
        struct kv_move m = {.layer = layer, .pos = at, .data = f->staging};
        int rc;

        m.count = (size_t)n < budget ? n : (int)budget;
        if ((rc = finish(from, from->ops->kv_rows(from->device, &m, e), e)) < 0) {
            f->kv_lost = source != 0;
            if (source)
                job_failed(f, source, "reading its cached keys", e);
            return rc;
        }
        m.write = true;
        if ((rc = finish(to, to->ops->kv_rows(to->device, &m, e), e)) < 0)
            return rc;
        to->kv_valid[layer] = at + m.count;
        budget -= (size_t)m.count;
    }
    return to->kv_valid[layer] >= pos;
}

static int kv_ensure(struct forward *f, int layer, int device, int pos, struct error *e)
{
    if (f->slots[device].kv_valid[layer] >= pos)
        return 0;
    return forward_kv_step(f, layer, device, pos, SIZE_MAX, e) < 0 ? ERR_DEVICE : 0;
}

/* ---- blocks ---- */

static int run_attention(struct forward *f, int layer, struct error *e)
{
    struct attention_job j = {.layer = layer, .rows = f->rows, .pos = f->pos, .x = f->x, .y = f->y};
    int d = f->in_force->attention[layer], rc = 0;

    for (;;) {
        struct device_slot *s = &f->slots[d];
        uint64_t start = clock_now(), ns;

        f->kv_lost = false;
        rc = kv_ensure(f, layer, d, f->pos, e);
        if (rc == 0)
            rc = finish(s, s->ops->attention(s->device, &j, e), e);
        if (rc == 0) {
            ns = clock_now() - start;
            if (f->rows == 1) {
                s->attention.ns += ns;
                s->attention.jobs++;
            }
            trace_span(f->trace, TRACE_ATTENTION, layer, d, start, start + ns);
            kv_written(f, layer, d, f->pos, f->rows);
            return 0;
        }
        if (d == 0)
            return rc;
        job_failed(f, d, "attention", e);
        d = 0;
    }
}

/* Counting sort of the (row, slot) pairs by expert, then one group per expert, listed under its device. */
static void group_rows(struct forward *f, int layer)
{
    int n = f->model->hp.n_experts, used = f->model->hp.n_experts_used;
    const int *chosen = f->experts + (size_t)layer * (size_t)(f->rows * used);

    memset(f->first, 0, (size_t)(n + 1) * sizeof *f->first);
    memset(f->n_groups, 0, sizeof f->n_groups);
    for (int i = 0; i < f->rows * used; i++)
        f->first[chosen[i] + 1]++;
    for (int x = 0; x < n; x++) {
        int count = f->first[x + 1], d = plan_expert(f->in_force, layer, x);

        f->first[x + 1] += f->first[x];
        if (!count)
            continue;
        f->groups[d * n + f->n_groups[d]++] = (struct expert_group){.expert = x, .first = f->first[x], .count = count};
        f->ran_on[layer * n + x] = (uint8_t)d;
    }
    for (int i = 0; i < f->rows * used; i++) {
        int at = f->first[chosen[i]]++;

        f->row[at] = i / used;
        f->slot[at] = i % used;
    }
}

static struct experts_job experts_of(struct forward *f, int layer, int d)
{
    return (struct experts_job){.layer = layer, .rows = f->rows, .h = f->h, .n_groups = f->n_groups[d], .groups = f->groups + d * f->model->hp.n_experts,
                                .row = f->row, .slot = f->slot, .out = f->out};
}

static int cpu_experts(struct forward *f, int layer, int owed_by, struct error *e)
{
    struct device_slot *cpu = &f->slots[0];
    struct experts_job j = experts_of(f, layer, owed_by);
    uint64_t start = clock_now(), ns;
    int rc = finish(cpu, cpu->ops->experts(cpu->device, &j, e), e);

    ns = clock_now() - start;
    if (f->rows == 1) {
        cpu->expert.ns += ns;
        cpu->expert.jobs += (uint64_t)j.n_groups;
    }
    trace_span(f->trace, TRACE_EXPERTS, layer, 0, start, start + ns);
    for (int i = 0; i < j.n_groups; i++)
        f->ran_on[layer * f->model->hp.n_experts + j.groups[i].expert] = 0;
    return rc;
}

static int run_experts(struct forward *f, int layer, struct error *e)
{
    int sent[DEVICE_MAX] = {0}, rc = 0;
    uint64_t start[DEVICE_MAX] = {0};

    for (int d = 1; d < f->n_devices; d++) {
        struct device_slot *s = &f->slots[d];
        struct experts_job j = experts_of(f, layer, d);

        if (!j.n_groups)
            continue;
        start[d] = clock_now();
        sent[d] = s->ops->experts(s->device, &j, e) == 0 ? 1 : -1;
        if (sent[d] < 0)
            job_failed(f, d, "experts", e);
    }
    if (f->n_groups[0] && (rc = cpu_experts(f, layer, 0, e)) < 0)
        return rc;
    for (int d = 1; d < f->n_devices; d++) {
        struct device_slot *s = &f->slots[d];

        if (sent[d] > 0 && s->ops->wait(s->device, e) < 0) {
            sent[d] = -1;
            job_failed(f, d, "experts", e);
        }
        if (sent[d] > 0) {
            uint64_t end = clock_now();

            if (f->rows == 1) {
                s->expert.ns += end - start[d];
                s->expert.jobs += (uint64_t)f->n_groups[d];
            }
            trace_span(f->trace, TRACE_EXPERTS, layer, d, start[d], end);
        } else if (sent[d] < 0 && (rc = cpu_experts(f, layer, d, e)) < 0) {
            return rc;
        }
    }
    return 0;
}

static int run_layer(struct forward *f, int layer, struct error *e)
{
    const struct hparams *hp = &f->model->hp;
    struct device_slot *cpu = &f->slots[0];
    size_t n = (size_t)f->rows * (size_t)hp->hidden, pairs = (size_t)(f->rows * hp->n_experts_used);
    struct route_job route = {.layer = layer, .rows = f->rows, .x = f->x, .h = f->h, .scores = f->scores,
                              .experts = f->experts + (size_t)layer * pairs, .weights = f->weights + (size_t)layer * pairs};
    struct combine_job combine = {.rows = f->rows, .out = f->out, .weights = route.weights, .x = f->x};
    uint64_t start;
    int rc;

    if ((rc = run_attention(f, layer, e)) < 0)
        return rc;
    start = clock_now();
    for (size_t i = 0; i < n; i++)
        f->x[i] = f->x[i] + f->y[i];
    if ((rc = finish(cpu, cpu->ops->route(cpu->device, &route, e), e)) < 0)
        return rc;
    group_rows(f, layer);
    trace_span(f->trace, TRACE_ROUTE, layer, 0, start, clock_now());
    if ((rc = run_experts(f, layer, e)) < 0)
        return rc;
    start = clock_now();
    rc = finish(cpu, cpu->ops->combine(cpu->device, &combine, e), e);
    trace_span(f->trace, TRACE_COMBINE, layer, 0, start, clock_now());
    return rc;
}

/* Layers first .. last - 1 in one job of one device. The residual stream is kept aside for the case that the device fails half-way. */
static int run_fused(struct forward *f, int first, int last, struct error *e)
{
    const struct hparams *hp = &f->model->hp;
    size_t bytes = (size_t)f->rows * (size_t)hp->hidden * sizeof(float), pairs = (size_t)(f->rows * hp->n_experts_used);
    int d = f->whole[first], rc = 0;
    struct device_slot *s = &f->slots[d];
    struct layers_job j = {.first = first, .last = last, .rows = f->rows, .pos = f->pos, .x = f->x,
                           .experts = f->experts + (size_t)first * pairs, .weights = f->weights + (size_t)first * pairs};
    uint64_t start;

    f->kv_lost = false;
    for (int l = first; l < last && rc == 0; l++)
        rc = kv_ensure(f, l, d, f->pos, e);
    if (d)
        memcpy(f->saved, f->x, bytes);
    start = clock_now();
    if (rc == 0)
        rc = finish(s, s->ops->layers(s->device, &j, e), e);
    if (rc == 0) {
        trace_span(f->trace, TRACE_LAYERS, first, d, start, clock_now());
        for (int l = first; l < last; l++) {
            kv_written(f, l, d, f->pos, f->rows);
            for (size_t i = 0; i < pairs; i++)
                f->ran_on[l * hp->n_experts + f->experts[(size_t)l * pairs + i]] = (uint8_t)d;
        }
        return 0;
    }
    if (d == 0)
        return rc;
    /* The rest of this job goes to the CPU, layer by layer, whatever the placement says. */
    job_failed(f, d, "layers", e);
    memcpy(f->x, f->saved, bytes);
    for (int l = first; l < last; l++) {
        uint8_t attention = f->in_force->attention[l];

        f->in_force->attention[l] = 0;
        rc = run_layer(f, l, e);
        if (!s->lost)
            f->in_force->attention[l] = attention;
        if (rc < 0)
            return rc;
    }
    return 0;
}

int forward_rows(struct forward *f, const int *ids, int rows, int pos, struct error *e)
{
    const struct hparams *hp = &f->model->hp;
    int rc = 0, layer = 0;

    assert(rows > 0 && rows <= f->max_rows);
    f->rows = rows;
    f->pos = pos;
    f->kv_lost = false;
    mem_guard_arm("forward");
    for (int i = 0; i < rows; i++)
        model_embed(f->model, ids[i], f->x + (size_t)i * (size_t)hp->hidden);
    while (layer < hp->n_layers && rc == 0) {
        int last = layer + 1, fused = rows == 1 ? hp->n_layers : rows < FUSED_ROWS ? FUSED_ROWS / rows : 1;

        if (f->hooks.before_layer) {
            mem_guard_disarm();
            rc = f->hooks.before_layer(f->hooks.ctx, layer);
            mem_guard_arm("forward");
            if (rc) {
                rc = error_set(e, ERR_CANCELLED, "cancelled");
                break;
            }
        }
        if (f->whole[layer] != NOWHERE && !trace_active(f->trace)) {
            while (last < hp->n_layers && last - layer < fused && f->whole[last] == f->whole[layer])
                last++;
            rc = run_fused(f, layer, last, e);
        } else {
            rc = run_layer(f, layer, e);
        }
        layer = last;
    }
    mem_guard_disarm();
    return rc;
}

int forward_head(struct forward *f, int first, int rows, float *logits, struct error *e)
{
    struct head_job j = {.rows = rows, .x = f->x + (size_t)first * (size_t)f->model->hp.hidden, .logits = logits};
    int d = f->in_force->head, rc;

    mem_guard_arm("head");
    for (;;) {
        struct device_slot *s = &f->slots[d];
        uint64_t start = clock_now(), end;

        rc = finish(s, s->ops->head(s->device, &j, e), e);
        end = clock_now();
        if (rc == 0) {
            if (rows == 1) {
                s->head.ns += end - start;
                s->head.jobs++;
            }
            trace_span(f->trace, TRACE_HEAD, f->model->hp.n_layers, d, start, end);
        }
        if (rc == 0 || d == 0)
            break;
        job_failed(f, d, "head", e);
        d = 0;
    }
    mem_guard_disarm();
    return rc;
}
