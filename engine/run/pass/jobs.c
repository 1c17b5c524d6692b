/* What every job of a device has in common, see blocks.h: where it may run, which cached rows it
 * needs and leaves, what it cost, and what becomes of a pass when it fails or was wrong. */
#include "engine/base/mem.h"
#include "engine/run/pass/blocks.h"
#include "engine/run/pass/forward.h"
#include "engine/run/state/kv.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

bool blocks_fuse(const struct device_slot *s, int layer)
{
    return s->ops->layers && (!s->ops->fuses || s->ops->fuses(s->device, layer));
}

/* Whether experts of the layer may be missing in memory when the CPU needs them. */
bool blocks_may_miss(const struct forward *f, int layer)
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
        if (d == 0 && blocks_may_miss(f, l))
            d = PLAN_NO_DEVICE; /* which ones it needs is known only after its router */
        f->fused_device[l] = (uint8_t)(d != PLAN_NO_DEVICE && f->least <= 0 &&
                                               blocks_fuse(&f->slots[d], l)
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
int blocks_failed(struct forward *f, int device, const char *what, struct error *e)
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
int blocks_audited(struct forward *f, int device, int result, struct error *e)
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

int blocks_wait(struct device_slot *s, int rc, struct error *e)
{
    return rc < 0 ? rc : s->ops->wait(s->device, e);
}

void blocks_count_cost(struct forward *f, struct job_cost *c, uint64_t ns, int blocks)
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
void blocks_count_handoff(struct forward *f, int d, uint64_t ns, uint64_t launch_ns, uint64_t busy)
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
const float *const *blocks_strengths(const struct forward *f)
{
    return f->adapted ? f->strengths : NULL;
}
