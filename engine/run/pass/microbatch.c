/* See microbatch.h. Each group is a copy of struct forward whose buffers are the pass's own from
 * its first row on. A device has one job at a time, so that its wait() is that job's end. */
#include "engine/run/pass/microbatch.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/run/pass/blocks.h"
#include "engine/run/report/trace.h"

#include <assert.h>
#include <string.h>

#define PIECE_NS (2 * CLOCK_MILLI) /* of the CPU's experts, at one step */
#define LEND_SHARE 0.95            /* of a device's time, that the CPU expects to need */

enum stage { BEGIN, MIXED, ROUTED, OWN, COMBINE, DONE };

struct group {
    struct forward *f;
    enum stage stage;
    int layer, last; /* in `layer`; the job in flight ends before `last` */
    int mixed;       /* layers whose mixer is done */
    int on;          /* devices with a job of it, a bit each */
    int own;         /* of the CPU's groups of experts in the layer: those that are computed */
};

struct pipeline {
    struct forward *pass;
    struct group group[FORWARD_MICROBATCHES];
    int n;
    struct flight {
        struct group *group; /* NULL: the device is idle */
        enum { MIXER, EXPERTS, LAYERS } kind;
        uint64_t start, given, busy; /* ns; the device's kernels until then */
    } flight[DEVICE_MAX];
    int handed; /* layers whose rows are where the next pass needs them */
    int failed; /* the device whose job failed; 0: none */
    const char *what;
};

static bool float_sums_vary(const struct forward *f)
{
    return ((const struct device_base *)f->slots[0].device)->config.float_library;
}

/* Whether two sides have something to do: a device has blocks, but not all of the layers. */
static bool shared(const struct forward *f)
{
    int n = f->model->hp.n_layers, same = 0;

    for (int l = 0; l < n; l++)
        same += f->fused_device[l] != PLAN_NO_DEVICE && f->fused_device[l] == f->fused_device[0];
    return same < n && plan_uses_devices(f->plan) != 0;
}

/* Whether a layer is on both sides. */
static bool divided(const struct forward *f)
{
    for (int l = 0; l < f->model->hp.n_layers; l++)
        if (f->fused_device[l] == PLAN_NO_DEVICE)
            return true;
    return false;
}

/* Whether a layer depends on what an earlier one chose for the same rows, which the device keeps
 * only until the next job of that one. */
static bool choice_shared(const struct hparams *hp)
{
    for (int l = 0; l < hp->n_layers; l++)
        if (hparams_layer(hp, l)->mixer.index_top && !hparams_layer(hp, l)->mixer.index_heads)
            return true;
    return false;
}

/* Two groups suffice where layers are divided: one is on each side. Larger groups compute faster;
 * where each side has layers of its own, what the first and the last group wait for counts more. */
int microbatch_count(struct forward *f)
{
    int n = f->rows / MICROBATCH_ROWS, most = divided(f) ? 2 : FORWARD_MICROBATCHES;

    if (n < 2 || f->n_devices < 2 || f->model->cache || f->imposed || f->edited || f->control ||
        f->kept_scores || f->tap || f->least > 0 || float_sums_vary(f) || !shared(f) ||
        f->model->hp.hidden < f->model->hp.n_layers || choice_shared(&f->model->hp))
        return 1;
    for (int i = 0; i < f->n_spans; i++)
        if (f->spans[i].drafted)
            return 1;
    /* a job is audited in a pass that has nothing else in flight */
    for (int d = 1; d < f->n_devices; d++)
        if (!audit_spares(&f->audit, d, 2 * f->model->hp.n_layers * FORWARD_MICROBATCHES))
            return 1;
    return n < most ? n : most;
}

/* Rows row0 .. of the pass, with the parts of its spans that they are. spans: room for them. */
static void cut_rows(const struct forward *pass, struct forward *f, int row0, int rows,
                     struct span *spans)
{
    const struct hparams *hp = &pass->model->hp;
    size_t at = (size_t)row0, hidden = (size_t)hp->hidden, used = (size_t)hp->n_experts_used;
    int first = 0;

    f->rows = rows;
    f->spans = spans;
    f->n_spans = 0;
    for (int i = 0; i < pass->n_spans; first += pass->spans[i++].rows) {
        struct span s = pass->spans[i];
        int from = row0 > first ? row0 - first : 0,
            end = row0 + rows < first + s.rows ? row0 + rows - first : s.rows;

        if (from >= end)
            continue;
        s.pos += from;
        s.rows = end - from;
        f->spans[f->n_spans++] = s;
    }
    f->strengths = pass->strengths + at;
    f->wanted = pass->wanted + at;
    f->inputs = pass->inputs + at * (size_t)hparams_beside(hp);
    f->x = pass->x + at * hidden;
    f->x_before = pass->x_before + at * hidden;
    f->y = pass->y + at * hidden;
    f->h = pass->h + at * hidden * (size_t)blocks_normed_rows(hp);
    f->scores = pass->scores + at * (size_t)hp->n_experts;
    f->out = pass->out + at * hidden * used;
    f->row = pass->row + at * used;
    f->slot = pass->slot + at * used;
    f->experts = pass->experts + at * used * (size_t)hp->n_layers; /* put in order at the end */
    f->weights = pass->weights + at * used * (size_t)hp->n_layers;
}

static void split(struct pipeline *p)
{
    const struct forward *pass = p->pass;
    size_t groups = (size_t)DEVICE_MAX * (size_t)pass->model->hp.n_experts;
    int row = 0, spans = 0;

    for (int i = 0; i < p->n; i++) {
        struct forward *f = &pass->microbatch[i];
        /* whole tiles of rows but for the last group */
        int end = i + 1 < p->n ? pass->rows * (i + 1) / p->n / 16 * 16 : pass->rows;

        *f = *pass;
        f->groups = pass->microbatch_groups + (size_t)i * groups;
        f->resume_at = pass->microbatch_resume + spans; /* give_up() sets the pass's */
        cut_rows(pass, f, row, end - row, pass->microbatch_spans + spans);
        spans += f->n_spans;
        row = end;
        p->group[i] = (struct group){.f = f};
    }
}

/* (layers, rows, used) of each group become (layers, rows, used) of the pass. scratch: as many. */
static void join_choices(const struct pipeline *p, void *values, void *scratch)
{
    const struct hparams *hp = &p->pass->model->hp;
    size_t used = (size_t)hp->n_experts_used * sizeof(int), rows = (size_t)p->pass->rows,
           layers = (size_t)hp->n_layers, at = 0;

    memcpy(scratch, values, layers * rows * used);
    for (int i = 0; i < p->n; i++) {
        size_t own = (size_t)p->group[i].f->rows;

        for (size_t l = 0; l < layers; l++)
            memcpy((char *)values + (l * rows + at) * used,
                   (char *)scratch + (layers * at + l * own) * used, own * used);
        at += own;
    }
}

static enum trace_kind traced(const struct flight *j)
{
    return j->kind == MIXER ? TRACE_ATTENTION : j->kind == EXPERTS ? TRACE_EXPERTS : TRACE_LAYERS;
}

static int entries_of(const struct group *g, int d)
{
    const struct expert_group *of = g->f->groups + d * g->f->model->hp.n_experts;
    int n = 0;

    for (int i = 0; i < g->f->n_groups[d]; i++)
        n += of[i].count;
    return n;
}

/* ns a row of an expert; 0: unknown. */
static double expert_ns(const struct device_slot *s)
{
    return s->prompt_expert.jobs ? job_cost_typical(&s->prompt_expert) : s->planned_expert;
}

static double attention_ns(const struct device_slot *s)
{
    return s->prompt_attention.jobs ? job_cost_typical(&s->prompt_attention) : s->planned_attention;
}

/* What the job cost: the CPU's time, or the kernels' by the device's own clock. Whole layers are of
 * both kinds. */
static void learn(struct pipeline *p, int d, const struct flight *j, const struct group *g)
{
    struct device_slot *s = &p->pass->slots[d];
    uint64_t ns = d ? blocks_busy_ns(s) - j->busy : clock_now() - j->start;

    if (!ns || j->kind == LAYERS)
        return;
    if (j->kind == MIXER)
        job_cost_add(&s->prompt_attention, ns, g->f->rows);
    else
        job_cost_add(&s->prompt_expert, ns, entries_of(g, d));
}

/* Is the device slow? Its job ended at `end`, which the CPU has waited for since `from`; so it has
 * while it gave the job. A group is a copy of the pass, but the devices' slots are the engine's. */
static void watch(const struct flight *j, const struct group *g, int d, uint64_t from, uint64_t end)
{
    uint64_t waited = end - from + j->given - j->start;

    if (j->kind == MIXER)
        blocks_watch(g->f, d, SLOW_ATTENTION, 1, j->start, end, waited);
    else if (j->kind == EXPERTS)
        blocks_watch(g->f, d, SLOW_EXPERTS, g->f->n_groups[d], j->start, end, waited);
    else
        blocks_watch(g->f, d, SLOW_LAYERS, g->last - g->layer, j->start, end, waited);
}

/* The device's job has ended. */
static int collect(struct pipeline *p, int d, struct error *e)
{
    struct flight *j = &p->flight[d];
    struct group *g = j->group;
    uint64_t from = clock_now();
    int rc = blocks_wait(&p->pass->slots[d], 0, e);

    j->group = NULL;
    g->on &= ~(1 << d);
    if (rc < 0) {
        p->failed = d;
        p->what = j->kind == MIXER ? "attention" : j->kind == EXPERTS ? "experts" : "layers";
        return rc;
    }
    learn(p, d, j, g);
    watch(j, g, d, from, clock_now());
    trace_span(p->pass->trace, traced(j), g->layer, d, j->start, clock_now());
    if (j->kind == MIXER)
        blocks_rows_written(g->f, g->layer, d);
    for (int l = g->layer; l < g->last && j->kind == LAYERS; l++)
        blocks_rows_written(g->f, l, d);
    if (j->kind != EXPERTS)
        g->mixed = g->last;
    if (j->kind == LAYERS) {
        blocks_layers_ran(g->f, g->layer, g->last, d);
        g->layer = g->last;
        g->stage = g->layer < p->pass->model->hp.n_layers ? BEGIN : DONE;
    }
    return 0;
}

/* A job was given to a device: one of the CPU's is done by now. */
static int sent(struct pipeline *p, struct group *g, int d, int kind, uint64_t start, uint64_t busy,
                int rc, const char *what, struct error *e)
{
    p->flight[d].group = g;
    p->flight[d].kind = kind;
    p->flight[d].start = start;
    p->flight[d].given = clock_now();
    p->flight[d].busy = busy;
    g->on |= 1 << d;
    if (d)
        audit_spared(&p->pass->audit, d, kind == EXPERTS ? BLOCK_EXPERT : BLOCK_ATTENTION,
                     kind == LAYERS, g->layer, kind == LAYERS ? g->last : g->layer + 1);
    if (rc < 0) {
        p->flight[d].group = NULL;
        g->on &= ~(1 << d);
        p->failed = d;
        p->what = what;
        return rc;
    }
    return d ? 0 : collect(p, 0, e);
}

/* The device of a group's next job, or 0; its last layer + 1. */
static int next_device(const struct pipeline *p, const struct group *g, int *last)
{
    const struct forward *f = p->pass;
    int d = f->fused_device[g->layer];

    *last = g->layer + 1;
    if (d == PLAN_NO_DEVICE || trace_active(f->trace))
        return hparams_layer(&f->model->hp, g->layer)->mixer.kind == MIXER_NONE
                   ? 0
                   : f->plan->attention[g->layer];
    while (d && *last < f->model->hp.n_layers && f->fused_device[*last] == d)
        ++*last;
    return d;
}

static int begin_layer(struct pipeline *p, struct group *g, struct error *e)
{
    struct forward *f = g->f;
    int last, d = next_device(p, g, &last), rc = 0;
    bool fused = f->fused_device[g->layer] != PLAN_NO_DEVICE && !trace_active(f->trace);
    struct device_slot *s = &f->slots[d];
    uint64_t start = clock_now(), busy = d ? blocks_busy_ns(s) : 0;

    g->last = last;
    g->stage = MIXED;
    if (!fused && hparams_layer(&f->model->hp, g->layer)->mixer.kind == MIXER_NONE) {
        g->mixed = last;
        return 0;
    }
    for (int l = g->layer; l < last && rc == 0; l++)
        rc = blocks_kv_ensure(f, l, d, e);
    if (fused) {
        struct layers_job j = blocks_layers_job(f, g->layer, last);

        rc = rc < 0 ? rc : s->ops->layers(s->device, &j, e);
        return sent(p, g, d, LAYERS, start, busy, rc, "layers", e);
    }
    struct attention_job j = blocks_attention_job(f, g->layer);

    rc = rc < 0 ? rc : s->ops->attention(s->device, &j, e);
    return sent(p, g, d, MIXER, start, busy, rc, "attention", e);
}

static int route(struct group *g, struct error *e)
{
    int rc = 0;

    if (hparams_layer(&g->f->model->hp, g->layer)->mixer.kind != MIXER_NONE)
        rc = blocks_add_mixer(g->f, g->layer, e);
    g->stage = ROUTED;
    return rc < 0 ? rc : blocks_route(g->f, g->layer, e);
}

/* The CPU computes n groups of the layer's experts. */
static int cpu_groups(struct group *g, const struct expert_group *groups, int n, struct error *e)
{
    uint64_t start = clock_now();
    int rc = blocks_cpu_experts(g->f, g->layer, groups, n, e), entries = 0;

    for (int i = 0; i < n; i++)
        entries += groups[i].count;
    if (rc == 0)
        job_cost_add(&g->f->slots[0].prompt_expert, clock_now() - start, entries);
    return rc;
}

/* A piece of the CPU's experts, short enough that a device that finishes meanwhile does not wait
 * long for its next job. */
static int own_experts(struct group *g, struct error *e)
{
    const struct expert_group *groups = g->f->groups + g->own;
    double each = expert_ns(&g->f->slots[0]), ns = 0;
    int n = 0, left = g->f->n_groups[0] - g->own;

    if (g->own == 0)
        blocks_share_memory(g->f, g->layer, 0);
    while (n < left && (n == 0 || (each > 0 && ns < PIECE_NS)))
        ns += each * groups[n++].count;
    g->own += n;
    if (g->stage == OWN && g->own == g->f->n_groups[0])
        g->stage = COMBINE;
    return n ? cpu_groups(g, groups, n, e) : 0;
}

/* ns until the device's job of experts is expected to end; 0: any time now, or nobody knows. */
static double time_left(const struct pipeline *p, int d)
{
    const struct flight *j = &p->flight[d];
    double ns, gone = (double)(clock_now() - j->given);

    if (!j->group || j->kind != EXPERTS)
        return 0;
    ns = expert_ns(&p->pass->slots[d]) * entries_of(j->group, d);
    return ns > gone ? ns - gone : 0;
}

/* ns that the CPU needs, once g's experts are sent, until it can send those of the group that is
 * next: a device that has less than that to do runs dry. 0: none is next. */
static double until_next(const struct pipeline *p, const struct group *g)
{
    const struct device_slot *cpu = &p->pass->slots[0];
    double ns = 0;

    for (int i = 0; i < p->n; i++) {
        const struct group *h = &p->group[i];
        int layer = h->layer + (h->stage > ROUTED);

        if (h == g || h->stage == DONE || layer == p->pass->model->hp.n_layers)
            continue;
        if (h->stage <= ROUTED && h->stage != BEGIN)
            return 0;
        if (h->stage > ROUTED)
            for (int k = h->own; k < h->f->n_groups[0]; k++)
                ns += expert_ns(cpu) * h->f->groups[k].count;
        return ns + (p->pass->plan->attention[layer] == 0 ? attention_ns(cpu) * h->f->rows : 0);
    }
    return ns;
}

/* Takes the expert with the most rows, but at most so many, from a device's. Returns how many; 0:
 * none. Experts are not divided: what reads a weight for few rows costs both sides more. */
static int take_expert(struct group *g, int d, double rows, struct expert_group *taken)
{
    struct expert_group *of = g->f->groups + d * g->f->model->hp.n_experts;
    int best = -1;

    for (int i = 0; i < g->f->n_groups[d]; i++)
        if (of[i].count <= rows && (best < 0 || of[i].count > of[best].count))
            best = i;
    if (best < 0)
        return 0;
    *taken = of[best];
    memmove(of + best, of + best + 1, (size_t)(--g->f->n_groups[d] - best) * sizeof *of);
    return taken->count;
}

/* Nothing is left to do for the CPU: it takes an expert from a device's that wait for the job
 * before, if it is done before that ends, and the device can spare it. 1: it did. */
static int lend(struct pipeline *p, struct error *e)
{
    double each = expert_ns(&p->pass->slots[0]);

    for (int i = 0; i < p->n && p->pass->plan->lends && each > 0; i++)
        for (int d = 1; d < p->pass->n_devices; d++) {
            struct group *g = &p->group[i];
            double there = expert_ns(&p->pass->slots[d]), left = time_left(p, d);
            struct expert_group taken;
            double rows = left / each, spare;
            int rc;

            if (g->stage != ROUTED || left <= 0)
                continue;
            spare = entries_of(g, d) - until_next(p, g) / there;
            if (!take_expert(g, d, rows < spare ? rows : spare, &taken))
                continue;
            rc = cpu_groups(g, &taken, 1, e);
            return rc < 0 ? rc : 1;
        }
    return 0;
}

/* Of what a device would be sent, the CPU keeps what it can do itself until both are done. */
static void share(struct pipeline *p, struct group *g, int d)
{
    struct forward *f = g->f;
    double here = expert_ns(&f->slots[0]), there = expert_ns(&f->slots[d]), ns = until_next(p, g);
    struct expert_group taken;
    double rows;
    int n;

    if (!p->pass->plan->lends || here <= 0 || there <= 0)
        return;
    for (int k = g->own; k < f->n_groups[0]; k++)
        ns += here * f->groups[k].count;
    rows = (LEND_SHARE * there * entries_of(g, d) - ns) / (LEND_SHARE * there + here);
    while ((n = take_expert(g, d, rows, &taken)) > 0) {
        f->groups[f->n_groups[0]++] = taken;
        rows -= n;
    }
}

static int send_experts(struct pipeline *p, struct group *g, struct error *e)
{
    struct forward *f = g->f;
    int rc = 0;

    g->stage = OWN;
    for (int d = 1; d < f->n_devices && rc == 0; d++) {
        struct device_slot *s = &f->slots[d];
        struct experts_job j;
        uint64_t start = clock_now(), busy = blocks_busy_ns(s);

        share(p, g, d);
        j = blocks_experts_job(f, g->layer, d);
        if (!j.n_groups)
            continue;
        if (s->info.unified)
            blocks_share_memory(f, g->layer, d);
        rc = sent(p, g, d, EXPERTS, start, busy, s->ops->experts(s->device, &j, e), "experts", e);
    }
    return rc;
}

static int end_layer(const struct pipeline *p, struct group *g, struct error *e)
{
    int rc = hparams_layer(&g->f->model->hp, g->layer)->ffn.kind == FFN_NONE
                 ? 0
                 : blocks_combine(g->f, g->layer, e);

    g->layer++;
    g->own = 0;
    g->stage = g->layer < p->pass->model->hp.n_layers ? BEGIN : DONE;
    return rc;
}

/* Devices, a bit each, that the group's next step gives a job. */
static int needs(const struct pipeline *p, const struct group *g)
{
    int last, d, mask = 0;

    if (g->stage == BEGIN)
        return (d = next_device(p, g, &last)) ? 1 << d : 0;
    for (d = 1; d < p->pass->n_devices && g->stage == ROUTED; d++)
        mask |= g->f->n_groups[d] ? 1 << d : 0;
    return mask;
}

static int busy(const struct pipeline *p)
{
    int mask = 0;

    for (int d = 1; d < p->pass->n_devices; d++)
        mask |= p->flight[d].group ? 1 << d : 0;
    return mask;
}

/* Whether the CPU's experts are computed first, for the devices with the group's others are busy.
 */
static bool early(const struct pipeline *p, const struct group *g)
{
    return g->stage == ROUTED && g->own < g->f->n_groups[0] && (needs(p, g) & busy(p));
}

/* Whether a group's next step can be taken now. */
static bool ready(const struct pipeline *p, const struct group *g)
{
    int last;

    if (early(p, g))
        return true;
    if (g->stage == DONE || (needs(p, g) & busy(p)))
        return false;
    if (g->stage == BEGIN) {
        next_device(p, g, &last);
        return !g->on && (g == p->group || g[-1].mixed >= last);
    }
    return g->stage == OWN || !g->on;
}

/* The group to go on with: the oldest of those that give a device work, or are about to find out
 * (routing takes little time); then one on its way there. The CPU's experts fill the time that
 * devices leave. NULL: all wait for devices. */
static struct group *choose(struct pipeline *p)
{
    struct group *other = NULL, *filler = NULL;

    for (int i = 0; i < p->n; i++) {
        struct group *g = &p->group[i];

        if (!ready(p, g))
            continue;
        if (!early(p, g) && (needs(p, g) || g->stage == MIXED || g->stage == ROUTED))
            return g;
        if (g->stage == OWN || g->stage == ROUTED)
            filler = filler ? filler : g;
        else
            other = other ? other : g;
    }
    return other ? other : filler;
}

static int step(struct pipeline *p, struct group *g, struct error *e)
{
    switch (g->stage) {
    case BEGIN: return begin_layer(p, g, e);
    case MIXED: return route(g, e);
    case ROUTED: return early(p, g) ? own_experts(g, e) : send_experts(p, g, e);
    case OWN: return own_experts(g, e);
    case COMBINE: return end_layer(p, g, e);
    case DONE: break;
    }
    return 0;
}

/* Takes what devices have finished; wait: if none has, the oldest group's. */
static int look(struct pipeline *p, bool wait, struct error *e)
{
    int oldest = 0;

    for (int d = 1; d < p->pass->n_devices; d++) {
        struct device_slot *s = &p->pass->slots[d];
        struct group *g = p->flight[d].group;
        int rc;

        if (!g)
            continue;
        if (s->ops->done && s->ops->done(s->device)) {
            if ((rc = collect(p, d, e)) < 0)
                return rc;
            wait = false;
        } else if (!oldest || g < p->flight[oldest].group) {
            oldest = d;
        }
    }
    return wait && oldest ? collect(p, oldest, e) : 0;
}

/* Layers whose rows are complete go to the plan of tokens while others are computed, where neither
 * device has a job: its failure would be taken for the copy's. */
static void hand_over(struct pipeline *p)
{
    struct forward *f = p->pass;
    int l;

    while (f->next && (l = p->handed) < p->group[p->n - 1].mixed &&
           !p->flight[f->plan->attention[l]].group && !p->flight[f->next->attention[l]].group) {
        blocks_hand_over(f, l, l + 1);
        p->handed++;
    }
}

static int before_layer(struct pipeline *p, const struct group *g, struct error *e)
{
    const struct forward_hooks *h = &p->pass->hooks;
    int rc;

    if (!h->before_layer || g->stage != BEGIN)
        return 0;
    mem_guard_disarm();
    rc = h->before_layer(h->ctx, g->layer);
    mem_guard_arm("forward");
    return rc ? error_set(e, ERR_CANCELLED, "cancelled") : 0;
}

/* Jobs have inputs and outputs in the pass's buffers: none may outlive it. */
static void drain(struct pipeline *p)
{
    for (int d = 1; d < p->pass->n_devices; d++)
        if (p->flight[d].group)
            blocks_wait(&p->pass->slots[d], 0, NULL);
}

/* What the layers keep of this pass is void: they are at different rows of it. */
static int give_up(struct pipeline *p, int rc, struct error *e)
{
    struct forward *f = p->pass;

    drain(p);
    if (!p->failed && rc == ERR_DEVICE) /* rows are missing that a lost device had */
        for (int l = 0; l < f->model->hp.n_layers; l++)
            (void)blocks_kv_ensure(f, l, f->plan->attention[l], NULL);
    if (!p->failed)
        return rc;
    for (int l = 0; l < f->model->hp.n_layers; l++)
        blocks_state_void(f, l, f->plan->attention[l]);
    rc = blocks_failed(f, p->failed, p->what, e);
    f->resumes = true;
    return rc < 0 ? rc : error_set(e, ERR_DEVICE, "a device failed within a prompt");
}

int microbatch_layers(struct forward *f, int n, struct error *e)
{
    struct pipeline p = {.pass = f, .n = n};
    struct group *last = &p.group[n - 1];
    int rc = 0;

    assert(n > 1 && n <= FORWARD_MICROBATCHES);
    split(&p);
    while (last->stage != DONE && rc == 0) {
        struct group *g;

        if ((rc = look(&p, false, e)) < 0)
            break;
        hand_over(&p);
        if (!(g = choose(&p)))
            rc = (rc = lend(&p, e)) == 0 ? look(&p, true, e) : rc < 0 ? rc : 0;
        else if ((rc = before_layer(&p, g, e)) == 0)
            rc = step(&p, g, e);
    }
    if (rc < 0)
        return give_up(&p, rc, e);
    hand_over(&p); /* no job is in flight */
    join_choices(&p, f->experts, f->out);
    join_choices(&p, f->weights, f->out);
    return 0;
}
