/* See forward.h. Runs on the engine's thread. Jobs of one layer are sent and awaited within that
 * layer, so a failure always belongs to one known job and the inputs for its second run are still
 * there. Every operation here on numbers follows engine/device/numerics.h, rules 9 and 10. */
#include "engine/run/pass/forward.h"

#include "engine/adapter/control.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/device/expert_edits.h"
#include "engine/device/numerics.h"
#include "engine/model/expert_cache.h"
#include "engine/run/state/kv.h"
#include "engine/run/pass/blocks.h"
#include "engine/run/pass/identity.h"
#include "engine/run/pass/microbatch.h"
#include "engine/run/report/trace.h"

#include <assert.h>
#include <string.h>

/* rows x layers of one fused job in prefill: cancel and progress are checked in between */
#define FUSED_ROWS 64

/* Whether a device's next job, a layer's attention, is audited; what that needs is copied. */
static bool audit_begins(struct forward *f, int device, int layer)
{
    bool ready;

    if (!audit_due(&f->audit, device, BLOCK_ATTENTION, layer))
        return false;
    mem_guard_disarm(); /* copying rows may allocate */
    ready = audit_ready(&f->audit, layer, f->spans, f->n_spans);
    mem_guard_arm("forward");
    if (!ready)
        audit_missed(&f->audit, device);
    return ready;
}

struct attention_job blocks_attention_job(struct forward *f, int layer)
{
    return (struct attention_job){.layer = layer,
                                  .rows = f->rows,
                                  .x = f->x,
                                  .y = f->y,
                                  .spans = f->spans,
                                  .n_spans = f->n_spans,
                                  .strengths = blocks_strengths(f),
                                  .ids = f->ids,
                                  .inputs = f->inputs,
                                  .scores = f->tap ? f->tap->scores : NULL,
                                  .score_stride = f->tap ? f->tap->score_stride : 0};
}

static void tapped(const struct forward *f, enum tap_point where, int layer)
{
    if (f->tap)
        f->tap->at(f->tap->ctx, f, where, layer);
}

static int run_attention(struct forward *f, int layer, bool on_cpu, struct error *e)
{
    struct attention_job j = blocks_attention_job(f, layer);
    int d = on_cpu || f->tap ? 0 : f->plan->attention[layer];

    for (;; d = 0) {
        struct device_slot *s = &f->slots[d];
        uint64_t busy = d && f->rows == 1 ? blocks_busy_ns(s) : 0, start = clock_now(), begun, ns,
                 launch;
        int rc = blocks_kv_ensure(f, layer, d, e);
        bool audit = rc == 0 && audit_begins(f, d, layer), deferred;

        begun = clock_now();
        if (audit)
            start = begun;
        if (rc == 0)
            rc = s->ops->attention(s->device, &j, e);
        launch = clock_now() - begun;
        deferred = f->deferred.n > 0;
        if (rc == 0) {
            struct error late;
            int deferred_rc = blocks_run_deferred(f, &late);

            rc = blocks_wait(s, 0, e);
            if (deferred_rc < 0 && e)
                *e = late;
            if (deferred_rc < 0)
                return deferred_rc;
        }
        if (rc == 0) {
            ns = clock_now() - start;
            blocks_watch(f, d, SLOW_ATTENTION, 1, start, start + ns, deferred ? 0 : ns);
            blocks_count_cost(f, &s->attention, ns, 1);
            if (!f->deferred.n)
                blocks_count_handoff(f, d, ns, launch, busy);
            trace_span(f->trace, TRACE_ATTENTION, layer, d, start, start + ns);
            blocks_rows_written(f, layer, d);
            return audit ? blocks_audited(f, d, audit_attention(&f->audit, d, &j), e) : 0;
        }
        blocks_state_void(f, layer, d);
        if (d == 0 || (rc = blocks_failed(f, d, "attention", e)) < 0)
            return rc;
    }
}

/* Hyper-connected streams take the mixer's output. */
static int mix_streams(struct forward *f, int layer, struct error *e)
{
    struct device_slot *cpu = &f->slots[0];
    struct streams_job j = {.layer = layer,
                            .rows = f->rows,
                            .y = f->y,
                            .x = f->x,
                            .inputs = f->inputs,
                            .strengths = blocks_strengths(f)};

    return blocks_wait(cpu, cpu->ops->streams(cpu->device, &j, e), e);
}

int blocks_add_mixer(struct forward *f, int layer, struct error *e)
{
    const struct layer_shape *s = hparams_layer(&f->model->hp, layer);
    bool becomes = norms_sum(&s->norms) || f->model->hp.laurel || s->weighted;
    size_t n = (size_t)f->rows * (size_t)f->model->hp.hidden;

    if (hparams_hyper(&f->model->hp))
        return mix_streams(f, layer, e);
    if (shape_keeps_stream(s)) /* what the layer's experts see, or their router */
        memcpy(f->x_before, f->x, n * sizeof *f->x);
    for (size_t i = 0; i < n; i++)
        f->x[i] = becomes ? f->y[i] : f->x[i] + f->y[i];
    return 0;
}

/* Runs the layer's mixer, adding to or replacing the residual stream (struct attention_job); in a
 * layer without one only runs deferred experts. */
static int run_mixer(struct forward *f, int layer, bool on_cpu, struct error *e)
{
    int rc;

    if (hparams_layer(&f->model->hp, layer)->mixer.kind == MIXER_NONE)
        return blocks_run_deferred(f, e);
    rc = run_attention(f, layer, on_cpu, e);
    return rc ? rc : blocks_add_mixer(f, layer, e);
}

static void choose_nobody(struct forward *f, int layer)
{
    size_t pairs = (size_t)(f->rows * f->model->hp.n_experts_used), at = (size_t)layer * pairs;

    for (size_t i = at; i < at + pairs; i++) {
        f->experts[i] = -1;
        f->weights[i] = 0.0f;
    }
}

/* Skips a row's routed experts with too little weight, except the best one; if the model's weights
 * sum to 1, the rest are renormalised. */
static void leave_out(struct forward *f, int layer, int *experts, float *weights)
{
    const struct ffn_shape *s = &hparams_layer(&f->model->hp, layer)->ffn;
    float before = 0, after = 0, best = 0;

    for (int i = 0; i < s->used; i++)
        best = weights[i] > best ? weights[i] : best;
    for (int i = 0; i < s->used; i++) {
        before += weights[i];
        if (weights[i] < f->least && weights[i] < best && experts[i] >= 0) {
            experts[i] = -1;
            weights[i] = 0.0f;
        }
        after += weights[i];
    }
    for (int i = 0; i < s->used && s->router.normalised && after > 0; i++)
        weights[i] *= before / after;
    if (s->grouped)
        num_adjugates(s, experts, weights, experts + s->used, weights + s->used);
}

/* Whether the layer's routing is edited for some row of the pass. */
static bool edits_touch(const struct forward *f, int layer)
{
    for (int i = 0; i < f->n_spans && f->edited; i++)
        if (expert_edits_of(f->spans[i].edits, layer))
            return true;
    return false;
}

/* Outputs of places without an expert become zeros, since they are summed. */
static void zero_absent(struct forward *f, int layer, int row, const int *experts)
{
    size_t hidden = (size_t)f->model->hp.hidden;

    for (int i = 0; i < shape_used(hparams_layer(&f->model->hp, layer)); i++)
        if (experts[i] < 0)
            memset(f->out + ((size_t)i * (size_t)f->rows + (size_t)row) * hidden, 0,
                   hidden * sizeof *f->out);
}

int blocks_route(struct forward *f, int layer, struct error *e)
{
    const struct hparams *hp = &f->model->hp;
    struct device_slot *cpu = &f->slots[0];
    size_t pairs = (size_t)(f->rows * hp->n_experts_used),
           scores = (size_t)f->rows * (size_t)hp->n_experts;
    struct route_job route = {.layer = layer,
                              .rows = f->rows,
                              .spans = f->spans,
                              .n_spans = f->n_spans,
                              .x = hparams_layer(hp, layer)->parallel ? f->x_before : f->x,
                              .before = f->x_before,
                              .inputs = f->inputs,
                              .h = f->h,
                              .scores = f->kept_scores ? f->kept_scores + (size_t)layer * scores
                                                       : f->scores,
                              .experts = f->experts + (size_t)layer * pairs,
                              .weights = f->weights + (size_t)layer * pairs,
                              .imposed = f->imposed,
                              .ids = f->ids,
                              .edits = f->edited ? f->edits : NULL};
    uint64_t start = clock_now();
    bool absent;
    int rc;

    if (hparams_layer(hp, layer)->ffn.kind == FFN_NONE) {
        choose_nobody(f, layer);
        memset(f->n_groups, 0, sizeof f->n_groups);
        return 0;
    }
    if ((rc = blocks_wait(cpu, cpu->ops->route(cpu->device, &route, e), e)) < 0)
        return rc;
    absent = f->least > 0 || hparams_layer(hp, layer)->ffn.grouped ||
             hparams_layer(hp, layer)->ffn.router.nothing || edits_touch(f, layer);
    for (int r = 0; r < f->rows && absent; r++) {
        int *experts = route.experts + r * hp->n_experts_used;

        if (f->least > 0)
            leave_out(f, layer, experts, route.weights + r * hp->n_experts_used);
        zero_absent(f, layer, r, experts);
    }
    identity_outputs(f, layer);
    blocks_group_rows(f, layer);
    blocks_choose_deferred(f, layer, route.weights);
    trace_span(f->trace, TRACE_ROUTE, layer, 0, start, clock_now());
    return 0;
}

int blocks_combine(struct forward *f, int layer, struct error *e)
{
    struct device_slot *cpu = &f->slots[0];
    size_t pairs = (size_t)(f->rows * f->model->hp.n_experts_used);
    struct combine_job combine = {.layer = layer,
                                  .rows = f->rows,
                                  .out = f->out,
                                  .weights = f->weights + (size_t)layer * pairs,
                                  .x = f->x,
                                  .inputs = f->inputs,
                                  .strengths = blocks_strengths(f)};
    uint64_t start = clock_now();
    int rc = blocks_wait(cpu, cpu->ops->combine(cpu->device, &combine, e), e);

    trace_span(f->trace, TRACE_COMBINE, layer, 0, start, clock_now());
    return rc;
}

static int run_layer(struct forward *f, int layer, bool attention_on_cpu, struct error *e)
{
    int rc;

    tapped(f, TAP_BEFORE, layer);
    blocks_fetch_known(f, layer);
    if ((rc = run_mixer(f, layer, attention_on_cpu, e)) < 0)
        return rc;
    tapped(f, TAP_MIXED, layer);
    blocks_add_deferred(f);
    if ((rc = blocks_route(f, layer, e)) < 0)
        return rc;
    if (hparams_layer(&f->model->hp, layer)->ffn.kind != FFN_NONE) {
        if ((rc = blocks_run_experts(f, layer, e)) < 0)
            return rc;
        tapped(f, TAP_EXPERTS, layer);
        rc = blocks_combine(f, layer, e);
    }
    return rc;
}

struct layers_job blocks_layers_job(struct forward *f, int first, int last)
{
    size_t pairs = (size_t)(f->rows * f->model->hp.n_experts_used);

    return (struct layers_job){.first = first,
                               .last = last,
                               .rows = f->rows,
                               .spans = f->spans,
                               .n_spans = f->n_spans,
                               .x = f->x,
                               .experts = f->experts + (size_t)first * pairs,
                               .weights = f->weights + (size_t)first * pairs,
                               .imposed = f->imposed,
                               .strengths = blocks_strengths(f),
                               .inputs = f->inputs,
                               .ids = f->ids};
}

void blocks_layers_ran(struct forward *f, int first, int last, int device)
{
    const struct hparams *hp = &f->model->hp;
    size_t pairs = (size_t)(f->rows * hp->n_experts_used);

    for (int l = first; l < last; l++)
        for (size_t i = 0; i < pairs; i++)
            if (f->experts[(size_t)l * pairs + i] >= 0)
                f->ran_on[l * hp->n_experts + f->experts[(size_t)l * pairs + i]] = (uint8_t)device;
}

/* Layers first .. last - 1 in one job of one device; audit: a single one, compared with the CPU's.
 * The residual stream is saved in case the device fails half-way. */
static int run_fused(struct forward *f, int first, int last, bool audit, struct error *e)
{
    size_t bytes = (size_t)f->rows * (size_t)f->model->hp.hidden * sizeof(float);
    int d = f->fused_device[first], rc = 0;
    struct device_slot *s = &f->slots[d];
    struct layers_job j = blocks_layers_job(f, first, last);
    uint64_t start;

    j.wanted = audit || !f->partly ? NULL : f->wanted; /* audits compare all rows */

    /* the device for the next attention was lost */
    if (f->deferred.n) {
        if ((rc = blocks_run_deferred(f, e)) < 0)
            return rc;
        blocks_add_deferred(f);
    }
    for (int l = first; l < last && rc == 0; l++)
        rc = blocks_kv_ensure(f, l, d, e);
    if (d)
        memcpy(f->x_before, f->x, bytes);
    if (audit && rc == 0) {
        mem_guard_disarm(); /* copying rows may allocate */
        audit = audit_ready(&f->audit, first, f->spans, f->n_spans);
        mem_guard_arm("forward");
        if (!audit)
            audit_missed(&f->audit, d);
    }
    start = clock_now();
    if (rc == 0)
        rc = blocks_wait(s, s->ops->layers(s->device, &j, e), e);
    if (rc == 0) {
        if (!audit)
            blocks_watch(f, d, SLOW_LAYERS, last - first, start, clock_now(), clock_now() - start);
        trace_span(f->trace, TRACE_LAYERS, first, d, start, clock_now());
        for (int l = first; l < last; l++)
            blocks_rows_written(f, l, d);
        blocks_layers_ran(f, first, last, d);
        return audit ? blocks_audited(f, d, audit_layer(&f->audit, d, &j, f->x_before, f->y), e)
                     : 0;
    }
    for (int l = first; l < last; l++)
        blocks_state_void(f, l, d);
    if (d == 0 || (rc = blocks_failed(f, d, "layers", e)) < 0)
        return rc;
    memcpy(f->x, f->x_before, bytes);
    for (int l = first; l < last && rc == 0; l++)
        rc = run_layer(f, l, true, e);
    return rc;
}

/* Whether the CPU can compute a whole layer, too; else its operators are audited one by one. */
static bool audit_fuses(const struct forward *f, int layer)
{
    return !blocks_may_miss(f, layer) && blocks_fuse(&f->slots[0], layer);
}

/* Joins the hidden states with the embeddings in f->y. */
static int join(struct forward *f, const float *const *states, struct error *e)
{
    const struct hparams *hp = &f->model->hp;
    struct device_slot *cpu = &f->slots[0];
    bool hyper = hparams_hyper(hp);
    struct join_job j = {.rows = f->rows,
                         .embeddings = f->y,
                         .states = hyper ? NULL : f->h,
                         .x = f->x,
                         .inputs = hyper ? f->inputs : NULL};
    size_t n = (size_t)hparams_state_values(hp), stride = hyper ? (size_t)hparams_beside(hp) : n;
    float *to = hyper ? f->inputs + hparams_streams_at(hp) : f->h;

    for (int i = 0; i < f->n_spans; i++) {
        if (!states[i])
            return error_set(e, ERR_USAGE, "hidden states of a span are missing");
        for (int r = 0; r < f->spans[i].rows; r++, to += stride)
            memcpy(to, states[i] + (size_t)r * n, n * sizeof *to);
    }
    return blocks_wait(cpu, cpu->ops->join(cpu->device, &j, e), e);
}

/* What the tokens, embedded in f->x, bring for single layers. */
static int take_inputs(struct forward *f, const int *const *ids, struct error *e)
{
    struct device_slot *cpu = &f->slots[0];
    struct inputs_job j = {
        .rows = f->rows, .x = f->x, .inputs = f->inputs, .strengths = blocks_strengths(f)};
    size_t n = (size_t)hparams_beside(&f->model->hp), at = 0;
    int rc = 0;

    if (!hparams_inputs(&f->model->hp) && !f->model->hp.streams)
        return 0; /* nothing beside the stream is the tokens' own */
    for (int i = 0; i < f->n_spans && hparams_inputs(&f->model->hp); i++)
        for (int r = 0; r < f->spans[i].rows && rc == 0; r++)
            rc = model_inputs(f->model, ids[i][r], f->inputs + n * at++, e);
    return rc < 0 || !n ? rc : blocks_wait(cpu, cpu->ops->inputs(cpu->device, &j, e), e);
}

int blocks_begin(struct forward *f, const struct span *spans, const int *const *ids,
                 const float *const *states, int n, struct error *e)
{
    size_t hidden = (size_t)f->model->hp.hidden;
    bool joins = f->model->mtp.join.rows > 0;
    float *to = joins ? f->y : f->x;
    int rc = 0;

    f->rows = 0;
    f->n_spans = n;
    f->resumes = false;
    f->deferred.n = 0;
    f->adapted = f->edited = false;
    for (int i = 0; i < n; f->rows += spans[i++].rows) {
        assert(spans[i].rows > 0 && spans[i].rows <= f->max_rows - f->rows);
        f->spans[i] = spans[i];
        f->resume_at[i] = spans[i].pos;
        f->adapted |= spans[i].strengths != NULL;
        f->edited |= spans[i].edits != NULL;
        for (int r = 0; r < spans[i].rows; r++) {
            f->strengths[f->rows + r] = spans[i].strengths;
            f->edits[f->rows + r] = spans[i].edits;
            f->ids[f->rows + r] = ids[i][r];
        }
        for (int r = 0; r < spans[i].rows && rc == 0; r++)
            rc = model_embed(f->model, ids[i][r], spans[i].pos + r,
                             to + (size_t)(f->rows + r) * hidden, e);
    }
    return rc < 0 ? rc : joins ? join(f, states, e) : take_inputs(f, ids, e);
}

void forward_hand_over(struct forward *f, const struct plan *next)
{
    f->next = next;
    if (next)
        f->handover_ns = f->handover_bytes = 0;
}

void blocks_hand_over(struct forward *f, int first, int last)
{
    uint64_t start = clock_now();
    struct error ignored;

    for (int l = first; l < last; l++)
        for (int i = 0; i < f->n_spans; i++)
            if (f->hands_over[i])
                (void)kv_step(f->kv, f->spans[i].session, l, f->next->attention[l],
                              f->spans[i].pos + f->spans[i].rows, UINT64_MAX, &f->handover_bytes,
                              &ignored);
    f->handover_ns += clock_now() - start;
}

int forward_rows(struct forward *f, const struct span *spans, const int *const *ids,
                 const float *const *states, int n, struct error *e)
{
    const struct hparams *hp = &f->model->hp;
    int rc, rows, layer = 0, split;
    bool audit;

    assert(f->plan && n > 0);
    expert_cache_pass(f->model->cache);
    mem_guard_arm("forward");
    rc = blocks_begin(f, spans, ids, states, n, e);
    rows = f->rows;
    if (rc == 0 && (split = microbatch_count(f)) > 1) {
        layer = hp->n_layers;
        rc = microbatch_layers(f, split, e);
    }
    while (layer < hp->n_layers && rc == 0) {
        int last = layer + 1, fused = rows == 1           ? hp->n_layers
                                      : rows < FUSED_ROWS ? FUSED_ROWS / rows
                                                          : 1;

        if (f->hooks.before_layer) {
            mem_guard_disarm();
            rc = f->hooks.before_layer(f->hooks.ctx, layer);
            mem_guard_arm("forward");
            if (rc) {
                rc = error_set(e, ERR_CANCELLED, "cancelled");
                break;
            }
        }
        if (f->fused_device[layer] != PLAN_NO_DEVICE && !trace_active(f->trace) &&
            !f->kept_scores && !f->tap && !(f->imposed && f->fused_device[layer] != 0) &&
            !edits_touch(f, layer)) {
            while (last < hp->n_layers && last - layer < fused &&
                   f->fused_device[last] == f->fused_device[layer] && !edits_touch(f, last) &&
                   !(f->control && f->control->at[last - 1]))
                last++;
            last = audit_reach(&f->audit, f->fused_device[layer], layer, last, &audit);
            if (audit && !audit_fuses(f, layer)) {
                f->audit.each = true;
                rc = run_layer(f, layer, false, e);
                f->audit.each = false;
            } else {
                rc = run_fused(f, layer, last, audit, e);
            }
        } else {
            rc = run_layer(f, layer, false, e);
        }
        if (rc == 0 && f->control)
            control_vectors_add(f->control, last - 1, f->x, f->rows);
        if (rc == 0)
            tapped(f, TAP_AFTER, last - 1);
        if (rc == 0 && f->next)
            blocks_hand_over(f, layer, last);
        layer = last;
    }
    mem_guard_disarm();
    return rc;
}
