/* See forward.h. Runs on the engine's thread. Jobs of one layer are sent and awaited within that
 * layer, so a failure always belongs to one known job and the inputs for its second run are still
 * there. Every operation here on numbers follows engine/device/numerics.h, rules 9 and 10. */
#include "engine/run/pass/forward.h"

#include "engine/adapter/control.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/device/expert_edits.h"
#include "engine/device/numerics.h"
#include "engine/run/state/kv.h"
#include "engine/run/pass/blocks.h"
#include "engine/run/pass/identity.h"
#include "engine/run/pass/microbatch.h"
#include "engine/run/pass/paging.h"
#include "engine/run/report/trace.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* rows x layers of one fused job in prefill: cancel and progress are checked in between */
#define FUSED_ROWS 64

/* Buffers of a pass of max_rows rows: allocated at init, freed at the end, counted by
 * forward_footprint. APART: used (except for a few rows) only when a layer's blocks are sent one by
 * one; whole layers of one device use that device's own scratch. ROWS: inputs and outputs of jobs,
 * which devices may use in place: on pages of their own. */
/* clang-format off */
#define APART_ROWS(X)                            \
    X(y, z.rows * z.hidden)                      \
    X(h, z.normed * z.rows * z.hidden)           \
    X(out, z.used * z.rows * z.hidden)
#define APART_OTHERS(X)                          \
    X(x_before, z.rows * z.hidden)               \
    X(scores, z.rows * z.experts)
#define APART(X) APART_ROWS(X) APART_OTHERS(X)
#define ROWS(X)                                  \
    APART_ROWS(X)                                \
    X(experts, z.layers * z.rows * z.used)       \
    X(weights, z.layers * z.rows * z.used)       \
    X(x, z.rows * z.hidden)
#define OTHERS(X)                                \
    APART_OTHERS(X)                              \
    X(ran_on, z.layers * z.experts)              \
    X(deferred.out, FORWARD_DEFERRED * z.hidden) \
    X(row, z.rows * z.used)                      \
    X(slot, z.rows * z.used)                     \
    X(first_entry, z.experts + 1)                \
    X(groups, DEVICE_MAX * z.experts)            \
    X(guess_h, z.normed * z.hidden)              \
    X(guess_scores, z.experts)                   \
    X(guess_weights, z.used)                     \
    X(guess, z.used)                             \
    X(fused_device, z.layers)                    \
    X(spans, z.rows)                             \
    X(inputs, z.rows * z.inputs)                 \
    X(strengths, z.rows)                         \
    X(head_strengths, z.rows)                    \
    X(edits, z.rows)                             \
    X(ids, z.rows)                               \
    X(resume_at, z.rows)                         \
    X(hands_over, z.rows)                        \
    X(wanted, z.rows)                            \
    MICROBATCHES(X)
/* of the groups of rows that a prompt's pass is split into: a span may be cut at both ends */
#define MICROBATCHES(X)                                                 \
    X(microbatch, FORWARD_MICROBATCHES)                                 \
    X(microbatch_groups, FORWARD_MICROBATCHES * DEVICE_MAX * z.experts) \
    X(microbatch_spans, z.rows + FORWARD_MICROBATCHES)                  \
    X(microbatch_resume, z.rows + FORWARD_MICROBATCHES)
#define BUFFERS(X) ROWS(X) OTHERS(X)
/* clang-format on */

struct sizes {
    size_t layers, rows, hidden, experts, used, normed, inputs;
};

int blocks_normed_rows(const struct hparams *hp)
{
    int most = 1;

    for (int l = 0; l < hp->n_layers; l++)
        if (shape_normed_rows(hparams_layer(hp, l)) > most)
            most = shape_normed_rows(hparams_layer(hp, l));
    return most;
}

static struct sizes sizes_of(const struct hparams *hp, int max_rows)
{
    return (struct sizes){.layers = (size_t)hp->n_layers,
                          .rows = (size_t)max_rows,
                          .hidden = (size_t)hp->hidden,
                          .experts = (size_t)hp->n_experts,
                          .used = (size_t)hp->n_experts_used,
                          .normed = (size_t)blocks_normed_rows(hp),
                          .inputs = (size_t)(hparams_beside(hp) ? hparams_beside(hp) : 1)};
}

size_t forward_footprint(const struct hparams *hp, int max_rows)
{
    const struct forward *f = NULL;
    struct sizes z = sizes_of(hp, max_rows);
    size_t bytes = 0;

#define X(buffer, count) bytes += (count) * sizeof *f->buffer;
    BUFFERS(X)
#undef X
    return bytes;
}

size_t forward_apart_footprint(const struct hparams *hp, int max_rows)
{
    const struct forward *f = NULL;
    struct sizes z = sizes_of(hp, max_rows);
    size_t bytes = 0;

#define X(buffer, count) bytes += (count) * sizeof *f->buffer;
    APART(X)
#undef X
    return bytes;
}

static bool take_buffers(struct forward *f, struct sizes z)
{
#define X(buffer, count)                                       \
    if (!(f->buffer = mem_pages((count) * sizeof *f->buffer))) \
        return false;
    ROWS(X)
#undef X
#define X(buffer, count)                                    \
    if (!(f->buffer = mem_alloc(count, sizeof *f->buffer))) \
        return false;
    OTHERS(X)
#undef X
    return true;
}

int forward_init(struct forward *f, const struct model *m, struct device_slot *slots, struct kv *kv,
                 int max_rows, struct error *e)
{
    struct sizes z = sizes_of(&m->hp, max_rows);

    assert(max_rows > 0);
    memset(f, 0, sizeof *f);
    f->model = m;
    f->slots = f->audit.slots = slots;
    f->kv = kv;
    f->max_rows = max_rows;
    f->scratch_bytes = forward_footprint(&m->hp, max_rows);
    if (!take_buffers(f, z)) {
        forward_release(f);
        return error_set(e, ERR_MEMORY,
                         "no memory for the activations of %d rows: try a smaller -ub", max_rows);
    }
    memset(f->ran_on, PLAN_NO_DEVICE, z.layers * z.experts);
    return 0;
}

void forward_release(struct forward *f)
{
    struct sizes z;

    if (!f->model)
        return;
    z = sizes_of(&f->model->hp, f->max_rows);
#define X(buffer, count) mem_pages_free(f->buffer, (count) * sizeof *f->buffer);
    ROWS(X)
#undef X
#define X(buffer, count) mem_free(f->buffer);
    OTHERS(X)
#undef X
    audit_release(&f->audit);
    memset(f, 0, sizeof *f);
}

void forward_offer_rows(const struct forward *f, const struct device_slot *s)
{
    struct sizes z = sizes_of(&f->model->hp, f->max_rows);

#define X(buffer, count) s->ops->host_rows(s->device, f->buffer, (count) * sizeof *f->buffer);
    ROWS(X)
#undef X
}

static bool fuses(const struct device_slot *s, int layer)
{
    return s->ops->layers && (!s->ops->fuses || s->ops->fuses(s->device, layer));
}

/* Whether experts of the layer may be missing in memory when the CPU needs them. */
static bool pages(const struct forward *f, int layer)
{
    return f->model->cache && hparams_layer(&f->model->hp, layer)->ffn.experts > 0;
}

void forward_placed(struct forward *f, const struct plan *p, int n_devices)
{
    assert(n_devices >= 1 && n_devices <= DEVICE_MAX);
    assert(p->n_layers == f->model->hp.n_layers && p->n_experts == f->model->hp.n_experts);
    f->plan = p;
    f->n_devices = n_devices;
    for (int l = 0; l < p->n_layers; l++) {
        int d = p->attention[l];

        int experts = shape_experts(hparams_layer(&f->model->hp, l));

        for (int e = 0; e < experts && d != PLAN_NO_DEVICE; e++)
            if (plan_expert(p, l, e) != d || p->streamed[l * p->n_experts + e])
                d = PLAN_NO_DEVICE;
        if (d == 0 && pages(f, l))
            d = PLAN_NO_DEVICE; /* which ones it needs is known only after its router */
        f->fused_device[l] = (uint8_t)(d != PLAN_NO_DEVICE && f->least <= 0 &&
                                               fuses(&f->slots[d], l)
                                           ? d
                                           : PLAN_NO_DEVICE);
    }
}

/* Only the first `rows` rows of a session are left. Returns whether it is in this pass; others
 * notice in their next turn. */
static bool resume_from(struct forward *f, int session, int rows)
{
    for (int i = 0; i < f->n_spans; i++)
        if (f->spans[i].session == session) {
            f->resume_at[i] = rows < f->resume_at[i] ? rows : f->resume_at[i];
            return true;
        }
    return false;
}

/* Position from which a layer can continue with the CPU's rows. Recurrent state and rings are
 * restored by the caller of the pass (checkpoints.h). */
static int kept_rows(const struct kv *kv, int session, int layer)
{
    return kv->layers[layer].copy_bytes ? INT_MAX : kv_valid(kv, session, layer, 0);
}

/* After a device was disabled: copies every session's cache rows to the CPU. Unreadable ones are
 * recomputed: from resume_at on, including this pass. */
static int bring_home(struct forward *f, int device, struct error *e)
{
    int rc = 0;

    for (int s = 0; s < f->kv->n_sessions; s++)
        for (int l = 0; f->kv->held[s] && l < f->model->hp.n_layers; l++) {
            int want = kv_valid(f->kv, s, l, device);
            struct error ignored;

            if (want > kv_valid(f->kv, s, l, 0) &&
                kv_step(f->kv, s, l, 0, want, UINT64_MAX, NULL, &ignored) < 0)
                rc |= resume_from(f, s, kept_rows(f->kv, s, l));
        }
    f->resumes = rc;
    return rc ? error_set(e, ERR_DEVICE, "a device failed and took cached keys with it") : 0;
}

/* A device needs less to do: the engine takes blocks from it before the next pass. */
static void strained(struct forward *f, int device, enum device_trouble trouble, const char *why)
{
    struct device_slot *s = &f->slots[device];

    s->strained = true;
    s->health.trouble = trouble;
    snprintf(s->health.why, sizeof s->health.why, "%.300s", why);
}

void blocks_watch(struct forward *f, int device, enum slow_kind kind, int units, uint64_t start,
                  uint64_t end, uint64_t waited)
{
    struct device_slot *s = &f->slots[device];
    struct slow_job j = {.kind = kind,
                         .rows = f->rows,
                         .units = units,
                         .start_ns = start,
                         .end_ns = end,
                         .waited_ns = waited};
    enum slow_verdict v;
    char why[100];

    /* One on the processor is slow when that is busy, and then blocks on it are so everywhere. */
    if (!device || s->info.is_cpu_type)
        return;
    for (int i = 0; i < f->n_spans; i++)
        j.depth = f->spans[i].pos > j.depth ? f->spans[i].pos : j.depth;
    v = slow_device_job(&s->pace, &j);
    if (v == SLOW_NOT && s->health.trouble == TROUBLE_SLOW)
        s->strains = 0;
    if (v != SLOW_SURE)
        return;
    snprintf(why, sizeof why, "jobs take more than ten times their median, the newest %.1f ms",
             (double)(end - start) * 1e-6);
    strained(f, device, TROUBLE_SLOW, why);
}

/* A job of a device other than the CPU failed: reports it, and disables the device the second time.
 * 0: run the job on the CPU; ERR_DEVICE: continue from resume_at. */
static int job_failed(struct forward *f, int device, const char *what, struct error *e)
{
    struct device_slot *s = &f->slots[device];
    char line[700];
    int rc = 0;

    if (e->code == ERR_MEMORY) {
        strained(f, device, TROUBLE_MEMORY, e->text);
        return 0;
    }
    mem_guard_disarm(); /* reporting a failure and copying rows may allocate */
    s->lost = s->failures++ > 0;
    snprintf(line, sizeof line, "%s failed%s (%s: %s): the CPU %s; the answer continues",
             s->info.selector[0] ? s->info.selector : s->ops->name, s->lost ? " again" : "", what,
             e->text, s->lost ? "takes over everything it did" : "computed this step instead");
    if (f->hooks.notice)
        f->hooks.notice(f->hooks.ctx, line);
    if (s->lost) {
        s->health.trouble = TROUBLE_LOST;
        snprintf(s->health.why, sizeof s->health.why, "%s: %.250s", what, e->text);
        f->hooks.device_lost(f->hooks.ctx, device);
        forward_placed(f, f->plan, f->n_devices);
        rc = bring_home(f, device, e);
    }
    mem_guard_arm("forward");
    return rc;
}

/* An audit found that a device computes wrongly: it is disabled, and the token computed again. If
 * all of its jobs before were audited, this pass alone; else everything. Always ERR_DEVICE. */
static int demote(struct forward *f, int device, struct error *e)
{
    struct device_slot *s = &f->slots[device];
    struct device_health *h = &s->health;
    const char *name = s->info.selector[0] ? s->info.selector : s->ops->name;
    bool all = h->audited + 1 < h->jobs;
    char line[700];
    int again = 0;

    mem_guard_disarm();
    s->lost = true;
    h->trouble = TROUBLE_WRONG;
    snprintf(h->why, sizeof h->why, "%s", f->audit.found);
    f->hooks.device_lost(f->hooks.ctx, device);
    forward_placed(f, f->plan, f->n_devices);
    if (all && f->hooks.distrust)
        again = f->hooks.distrust(f->hooks.ctx, device);
    for (int i = 0; i < f->n_spans && all; i++)
        f->resume_at[i] = 0;
    if (!all)
        bring_home(f, device, NULL);
    f->resumes = true;
    snprintf(line, sizeof line,
             "%s computes wrongly: %s. It gets no more work; the CPU computes this token again%s",
             name, h->why, all ? ", and everything before it" : "");
    if (again)
        snprintf(line + strlen(line), sizeof line - strlen(line), " (%d tokens)", again);
    if (f->hooks.notice)
        f->hooks.notice(f->hooks.ctx, line);
    mem_guard_arm("forward");
    return error_set(e, ERR_DEVICE, "%s computes wrongly: %s", name, h->why);
}

/* The result of an audit; ERR_DEVICE: continue from resume_at. */
static int audited(struct forward *f, int device, int result, struct error *e)
{
    return result == 1 ? demote(f, device, e) : 0;
}

int blocks_kv_ensure(struct forward *f, int layer, int device, struct error *e)
{
    int rc = 0;

    for (int i = 0; i < f->n_spans; i++) {
        const struct span *s = &f->spans[i];

        if (kv_there(f->kv, s->session, layer, device, s->pos) ||
            kv_step(f->kv, s->session, layer, device, s->pos, UINT64_MAX, NULL, e) >= 0)
            continue;
        rc = ERR_DEVICE;
        if (device == 0)
            f->resumes = resume_from(f, s->session, kept_rows(f->kv, s->session, layer));
    }
    return rc;
}

/* A failed job may have changed recurrent state and the oldest rows of a ring: they are void. */
void blocks_state_void(struct forward *f, int layer, int device)
{
    for (int i = 0; i < f->n_spans; i++)
        kv_failed(f->kv, f->spans[i].session, layer, device, f->spans[i].pos + f->spans[i].rows);
}

void blocks_rows_written(struct forward *f, int layer, int device)
{
    for (int i = 0; i < f->n_spans; i++)
        kv_written(f->kv, f->spans[i].session, layer, device, f->spans[i].pos, f->spans[i].rows,
                   f->spans[i].drafted);
}

static int finish(struct device_slot *s, int rc, struct error *e)
{
    return rc < 0 ? rc : s->ops->wait(s->device, e);
}

int blocks_wait(struct device_slot *s, int rc, struct error *e)
{
    return finish(s, rc, e);
}

int blocks_failed(struct forward *f, int device, const char *what, struct error *e)
{
    return job_failed(f, device, what, e);
}

static void count_cost(struct forward *f, struct job_cost *c, uint64_t ns, int blocks)
{
    if (f->rows == 1)
        job_cost_add(c, ns, blocks);
}

uint64_t blocks_busy_ns(const struct device_slot *s)
{
    struct device_stats stats;

    s->ops->stats(s->device, &stats);
    return stats.busy_ns;
}

/* A device's job of one row took ns from its first launch to the end of the wait, of which the host
 * launched for launch_ns. busy: its kernels' time before it. */
static void count_handoff(struct forward *f, int d, uint64_t ns, uint64_t launch_ns, uint64_t busy)
{
    struct device_slot *s = &f->slots[d];
    uint64_t ran = d && f->rows == 1 ? blocks_busy_ns(s) - busy : 0;

    if (!ran || ran > ns)
        return;
    job_cost_add(&s->handoff, ns - ran, 1);
    /* a driver may compute while it is given the job */
    job_cost_add(&s->launch, launch_ns < ns - ran ? launch_ns : ns - ran, 1);
}

/* Of the pass's rows; NULL: no adapter applies to any. */
static const float *const *strengths_of(const struct forward *f)
{
    return f->adapted ? f->strengths : NULL;
}

/* Computes the deferred experts of the previous layer. Their input, f->h, is valid until this
 * layer's routing. */
static int run_deferred(struct forward *f, struct error *e)
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
                            .strengths = strengths_of(f)};
    uint64_t start = clock_now();
    int rc;

    if (!f->deferred.n || f->deferred.layer < 0)
        return 0;
    rc = finish(cpu, cpu->ops->experts(cpu->device, &j, e), e);
    count_cost(f, &cpu->expert, clock_now() - start, j.n_groups);
    trace_span(f->trace, TRACE_EXPERTS, f->deferred.layer, 0, start, clock_now());
    f->deferred.layer = -1; /* computed; still to be added */
    return rc;
}

static void add_deferred(struct forward *f)
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
static void choose_deferred(struct forward *f, int layer, const float *weights)
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
                                  .strengths = strengths_of(f),
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
            int deferred_rc = run_deferred(f, &late);

            rc = finish(s, 0, e);
            if (deferred_rc < 0 && e)
                *e = late;
            if (deferred_rc < 0)
                return deferred_rc;
        }
        if (rc == 0) {
            ns = clock_now() - start;
            blocks_watch(f, d, SLOW_ATTENTION, 1, start, start + ns, deferred ? 0 : ns);
            count_cost(f, &s->attention, ns, 1);
            if (!f->deferred.n)
                count_handoff(f, d, ns, launch, busy);
            trace_span(f->trace, TRACE_ATTENTION, layer, d, start, start + ns);
            blocks_rows_written(f, layer, d);
            return audit ? audited(f, d, audit_attention(&f->audit, d, &j), e) : 0;
        }
        blocks_state_void(f, layer, d);
        if (d == 0 || (rc = job_failed(f, d, "attention", e)) < 0)
            return rc;
    }
}

/* Whether the row's experts in this layer change anything that is read. */
static bool is_wanted(const struct forward *f, int layer, int row)
{
    return !f->partly || layer + 1 < f->model->hp.n_layers || f->wanted[row];
}

/* Counting sort of the (row, slot) pairs by expert, then one group per expert, listed under its
 * device. */
static void group_rows(struct forward *f, int layer)
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
        .strengths = strengths_of(f),
        .weights = f->weights + (size_t)layer * (size_t)(f->rows * f->model->hp.n_experts_used)};
}

/* Runs groups whose weights are in the CPU's memory. */
static int cpu_batch(void *ctx, const struct experts_job *j, struct error *e)
{
    struct forward *f = ctx;
    struct device_slot *cpu = &f->slots[0];
    uint64_t start = clock_now(), ns;
    int rc = finish(cpu, cpu->ops->experts(cpu->device, j, e), e);

    ns = clock_now() - start;
    count_cost(f, &cpu->expert, ns, j->n_groups);
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
        !(pages(f, layer) || memchr(streamed, 1, (size_t)hp->n_experts)) ||
        finish(cpu, cpu->ops->route(cpu->device, &j, &ignored), &ignored) < 0)
        return;
    if (pages(f, layer))
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
static void fetch_known(struct forward *f, int layer)
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
    rc = pages(f, layer) ? paging_run(&paging, j, e) : cpu_batch(f, &j, e);
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
    return audited(f, device, result, e);
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
    int rc = finish(s, s->ops->experts(s->device, j, e), e);

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

static int run_experts(struct forward *f, int layer, struct error *e)
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
            rc = job_failed(f, d, "experts", e);
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
            rc = job_failed(f, d, "experts", e);
    }
    if (rc == 0 && !(pages(f, layer) && f->n_groups[0]))
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
            if (rc == 0 && (rc = job_failed(f, d, "experts", &failed)) < 0 && e)
                *e = failed;
        }
        if (state[d] == 1) {
            end = clock_now();
            blocks_watch(f, d, SLOW_EXPERTS, f->n_groups[d], start[d], end,
                         f->n_groups[0] ? end - beside : end - start[d]);
            beside = end; /* the next one may have been waiting */
            /* else it may have finished before the CPU: the time is unknown */
            if (!f->n_groups[0]) {
                count_cost(f, &s->expert, end - start[d], f->n_groups[d]);
                count_handoff(f, d, end - start[d], launch[d], busy[d]);
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

/* Hyper-connected streams take the mixer's output. */
static int mix_streams(struct forward *f, int layer, struct error *e)
{
    struct device_slot *cpu = &f->slots[0];
    struct streams_job j = {.layer = layer,
                            .rows = f->rows,
                            .y = f->y,
                            .x = f->x,
                            .inputs = f->inputs,
                            .strengths = strengths_of(f)};

    return finish(cpu, cpu->ops->streams(cpu->device, &j, e), e);
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
        return run_deferred(f, e);
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
    if ((rc = finish(cpu, cpu->ops->route(cpu->device, &route, e), e)) < 0)
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
    group_rows(f, layer);
    choose_deferred(f, layer, route.weights);
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
                                  .strengths = strengths_of(f)};
    uint64_t start = clock_now();
    int rc = finish(cpu, cpu->ops->combine(cpu->device, &combine, e), e);

    trace_span(f->trace, TRACE_COMBINE, layer, 0, start, clock_now());
    return rc;
}

static int run_layer(struct forward *f, int layer, bool attention_on_cpu, struct error *e)
{
    int rc;

    tapped(f, TAP_BEFORE, layer);
    fetch_known(f, layer);
    if ((rc = run_mixer(f, layer, attention_on_cpu, e)) < 0)
        return rc;
    tapped(f, TAP_MIXED, layer);
    add_deferred(f);
    if ((rc = blocks_route(f, layer, e)) < 0)
        return rc;
    if (hparams_layer(&f->model->hp, layer)->ffn.kind != FFN_NONE) {
        if ((rc = run_experts(f, layer, e)) < 0)
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
                               .strengths = strengths_of(f),
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
        if ((rc = run_deferred(f, e)) < 0)
            return rc;
        add_deferred(f);
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
        rc = finish(s, s->ops->layers(s->device, &j, e), e);
    if (rc == 0) {
        if (!audit)
            blocks_watch(f, d, SLOW_LAYERS, last - first, start, clock_now(), clock_now() - start);
        trace_span(f->trace, TRACE_LAYERS, first, d, start, clock_now());
        for (int l = first; l < last; l++)
            blocks_rows_written(f, l, d);
        blocks_layers_ran(f, first, last, d);
        return audit ? audited(f, d, audit_layer(&f->audit, d, &j, f->x_before, f->y), e) : 0;
    }
    for (int l = first; l < last; l++)
        blocks_state_void(f, l, d);
    if (d == 0 || (rc = job_failed(f, d, "layers", e)) < 0)
        return rc;
    memcpy(f->x, f->x_before, bytes);
    for (int l = first; l < last && rc == 0; l++)
        rc = run_layer(f, l, true, e);
    return rc;
}

/* Whether the CPU can compute a whole layer, too; else its operators are audited one by one. */
static bool audit_fuses(const struct forward *f, int layer)
{
    return !pages(f, layer) && fuses(&f->slots[0], layer);
}

/* Joins the hidden states with the embeddings in f->y. */
static int join(struct forward *f, const float *const *states, struct error *e)
{
    struct device_slot *cpu = &f->slots[0];
    struct join_job j = {.rows = f->rows, .embeddings = f->y, .states = f->h, .x = f->x};
    size_t hidden = (size_t)f->model->hp.hidden, at = 0;

    for (int i = 0; i < f->n_spans; i++) {
        size_t count = (size_t)f->spans[i].rows * hidden;

        if (!states[i])
            return error_set(e, ERR_USAGE, "hidden states of a span are missing");
        memcpy(f->h + at, states[i], count * sizeof *f->h);
        at += count;
    }
    return finish(cpu, cpu->ops->join(cpu->device, &j, e), e);
}

/* What the tokens, embedded in f->x, bring for single layers. */
static int take_inputs(struct forward *f, const int *const *ids, struct error *e)
{
    struct device_slot *cpu = &f->slots[0];
    struct inputs_job j = {
        .rows = f->rows, .x = f->x, .inputs = f->inputs, .strengths = strengths_of(f)};
    size_t n = (size_t)hparams_beside(&f->model->hp), at = 0;
    int rc = 0;

    if (!hparams_inputs(&f->model->hp) && !f->model->hp.streams)
        return 0; /* nothing beside the stream is the tokens' own */
    for (int i = 0; i < f->n_spans && hparams_inputs(&f->model->hp); i++)
        for (int r = 0; r < f->spans[i].rows && rc == 0; r++)
            rc = model_inputs(f->model, ids[i][r], f->inputs + n * at++, e);
    return rc < 0 || !n ? rc : finish(cpu, cpu->ops->inputs(cpu->device, &j, e), e);
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

/* Scaling and capping of logits, from whichever device. */
static int scale_logits(struct forward *f, float *logits, int rows, struct error *e)
{
    const struct hparams *hp = &f->model->hp;
    struct device_slot *cpu = &f->slots[0];
    float scale = hp->logit_divisor != 0.0f ? 1.0f / hp->logit_divisor : 1.0f;
    size_t n = (size_t)rows * (size_t)hp->n_vocab;

    for (size_t i = 0; i < n && scale != 1.0f; i++)
        logits[i] *= scale;
    return hp->logit_cap != 0.0f ? finish(cpu, cpu->ops->cap(cpu->device, logits, n, e), e) : 0;
}

static int run_head(struct forward *f, const float *x, const float *const *strengths, int rows,
                    float *logits, struct error *e)
{
    struct head_job j = {
        .rows = rows, .x = x, .logits = logits, .strengths = f->adapted ? strengths : NULL};
    int d = f->plan->head, rc;

    mem_guard_arm("head");
    for (;; d = 0) {
        struct device_slot *s = &f->slots[d];
        uint64_t start, end;
        bool audit = audit_due(&f->audit, d, BLOCK_HEAD, 0);

        start = clock_now();
        rc = finish(s, s->ops->head(s->device, &j, e), e);
        end = clock_now();
        if (rc == 0) {
            blocks_watch(f, d, SLOW_HEAD, rows, start, end, end - start);
            count_cost(f, &s->head, end - start, 1);
            trace_span(f->trace, TRACE_HEAD, f->model->hp.n_layers, d, start, end);
            if (audit)
                rc = audited(f, d, audit_head(&f->audit, d, &j), e);
            if (rc == 0)
                rc = scale_logits(f, logits, rows, e);
            break;
        }
        if (d == 0 || (rc = job_failed(f, d, "head", e)) < 0)
            break;
    }
    mem_guard_disarm();
    return rc;
}

int forward_head(struct forward *f, int first, int rows, float *logits, struct error *e)
{
    assert(first >= 0 && rows > 0 && first + rows <= f->rows);
    return run_head(f, f->x + (size_t)first * (size_t)f->model->hp.hidden, f->strengths + first,
                    rows, logits, e);
}

int forward_head_at(struct forward *f, const float *x, const float *const *strengths, int rows,
                    float *logits, struct error *e)
{
    return run_head(f, x, strengths, rows, logits, e);
}

int forward_head_of(struct forward *f, const int *rows, int n, float *logits, struct error *e)
{
    size_t hidden = (size_t)f->model->hp.hidden;

    assert(n > 0 && n <= f->rows);
    if (rows[n - 1] - rows[0] == n - 1)
        return forward_head(f, rows[0], n, logits, e);
    for (int k = 0; k < n; k++) { /* y is free by now */
        memcpy(f->y + (size_t)k * hidden, f->x + (size_t)rows[k] * hidden, hidden * sizeof *f->y);
        f->head_strengths[k] = f->strengths[rows[k]];
    }
    return run_head(f, f->y, f->head_strengths, n, logits, e);
}
