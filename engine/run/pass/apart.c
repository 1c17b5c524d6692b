/* See apart.h. */
#include "engine/run/pass/apart.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/run/pass/blocks.h"
#include "engine/run/pass/forward.h"
#include "engine/run/report/trace.h"

#include <assert.h>

/* Jobs of a pass whose rows are handed over: those of one while the next one is computed. Else it
 * is a single job, behind which the device never waits for the thread. */
#define PIECES 4

int apart_device(const struct forward *main, const struct plan *plan, const struct plan *other)
{
    int d = plan->n_layers ? plan->attention[0] : 0;
    const struct device_slot *s = &main->slots[d];

    if (d == 0 || d >= main->n_devices || s->lost || s->strained || !s->ops->done ||
        !s->ops->layers || main->model->cache || main->imposed || main->control ||
        main->kept_scores || main->tap || main->least > 0 || trace_active(main->trace) ||
        main->model->mtp.join.rows > 0 || plan_uses(other, d))
        return 0;
    for (int l = 0; l < plan->n_layers; l++) {
        int experts = shape_experts(hparams_layer(&main->model->hp, l));

        if (plan->attention[l] != d || (s->ops->fuses && !s->ops->fuses(s->device, l)))
            return 0;
        for (int x = 0; x < experts; x++)
            if (plan_expert(plan, l, x) != d || plan->streamed[l * plan->n_experts + x])
                return 0;
    }
    return audit_spares(&((struct forward *)main)->audit, d, 2 * plan->n_layers) ? d : 0;
}

int apart_open(struct apart *a, struct forward *main, struct error *e)
{
    int rc;

    if (a->main)
        return 0;
    if ((rc = forward_init(&a->f, main->model, main->slots, main->kv, main->max_rows, e)) < 0)
        return rc;
    for (int d = 0; d < main->n_devices; d++)
        if (main->slots[d].ops->host_rows)
            forward_offer_rows(&a->f, &main->slots[d]);
    a->f.hooks = main->hooks;
    a->main = main;
    return 0;
}

static void failed(struct apart *a, int rc)
{
    a->rc = rc;
    a->flies = false;
}

/* Gives the device the job layer .. last - 1. */
static void send(struct apart *a)
{
    struct device_slot *s = &a->f.slots[a->device];
    int n = a->f.model->hp.n_layers, each = a->f.next ? (n + PIECES - 1) / PIECES : n;
    struct layers_job j;
    int rc;

    a->last = a->layer + each < n ? a->layer + each : n;
    j = blocks_layers_job(&a->f, a->layer, a->last);
    a->start = clock_now();
    rc = s->ops->layers(s->device, &j, &a->error);
    a->given = clock_now();
    a->flies = rc == 0;
    audit_spared(&a->main->audit, a->device, BLOCK_ATTENTION, true, a->layer, a->last);
    if (rc < 0)
        failed(a, rc);
}

/* The job has ended, or is waited for. */
static void collect(struct apart *a)
{
    struct device_slot *s = &a->f.slots[a->device];
    uint64_t from = clock_now(), end;
    int first = a->layer, rc = blocks_wait(s, 0, &a->error);

    end = clock_now();
    a->flies = false;
    if (rc < 0) {
        failed(a, rc);
        return;
    }
    blocks_watch(&a->f, a->device, SLOW_LAYERS, a->last - first, a->start, end,
                 end - from + a->given - a->start);
    for (int l = first; l < a->last; l++)
        blocks_rows_written(&a->f, l, a->device);
    blocks_layers_ran(&a->f, first, a->last, a->device);
    a->layer = a->last;
    if (a->f.next)
        blocks_hand_over(&a->f, first, a->last);
}

void apart_begin(struct apart *a, int device, const struct plan *plan, const struct plan *next,
                 const struct span *spans, const int *const *ids, int n)
{
    struct forward *f = &a->f;

    assert(a->main && !a->device && device);
    a->device = device;
    a->layer = a->last = a->rc = 0;
    a->flies = false;
    forward_placed(f, plan, a->main->n_devices);
    forward_hand_over(f, next);
    a->rc = blocks_begin(f, spans, ids, NULL, n, &a->error);
    for (int l = 0; l < f->model->hp.n_layers && a->rc == 0; l++)
        a->rc = blocks_kv_ensure(f, l, device, &a->error);
    if (a->rc == 0)
        send(a);
}

static bool complete(const struct apart *a)
{
    return a->layer == a->f.model->hp.n_layers;
}

bool apart_computed(const struct apart *a)
{
    return a->device && a->rc == 0 && !a->flies && complete(a);
}

static bool done(const struct apart *a)
{
    const struct device_slot *s = &a->f.slots[a->device];

    return s->ops->done(s->device);
}

void apart_poll(struct apart *a)
{
    if (!a->device || a->rc < 0 || !a->flies || !done(a))
        return;
    collect(a);
    if (a->rc == 0 && !complete(a))
        send(a);
}

/* Handles what has failed: as in a pass in groups (microbatch.c), its rows are computed again. */
static int give_up(struct apart *a, struct error *e)
{
    struct forward *f = &a->f;
    int rc = a->rc, d = a->device;

    if (e)
        *e = a->error;
    a->device = 0;
    if (f->resumes) /* rows before these are missing */
        return rc;
    for (int l = 0; l < f->model->hp.n_layers; l++)
        blocks_state_void(f, l, d);
    if (rc != ERR_DEVICE && rc != ERR_MEMORY)
        return rc;
    mem_guard_arm("forward"); /* as within a pass */
    rc = blocks_failed(f, d, "layers", &a->error);
    mem_guard_disarm();
    f->resumes = true;
    return rc < 0 ? rc : error_set(e, ERR_DEVICE, "a device failed within a prompt");
}

int apart_step(struct apart *a, bool wait, struct error *e)
{
    assert(a->device);
    do {
        if (a->rc == 0 && a->flies && (wait || done(a)))
            collect(a);
        if (a->rc < 0)
            return give_up(a, e);
        if (complete(a)) {
            a->device = 0;
            return 1;
        }
        if (!a->flies)
            send(a);
    } while (wait);
    return 0;
}

void apart_drop(struct apart *a)
{
    if (!a->device)
        return;
    if (a->flies)
        (void)blocks_wait(&a->f.slots[a->device], 0, NULL);
    for (int l = 0; l < a->f.model->hp.n_layers; l++)
        blocks_state_void(&a->f, l, a->device);
    a->device = 0;
    a->flies = false;
    a->f.resumes = true;
}

void apart_release(struct apart *a)
{
    if (a->main)
        forward_release(&a->f);
    a->main = NULL;
}
