/* See residency.h. Engine thread. Each step examines every block again (a few hundred), so a plan
 * may change at any time without a queue of moves to undo. */
#include "engine/placement/residency.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/model/expert_cache.h"

#include <assert.h>
#include <string.h>

enum state { ABSENT, PARTIAL, RESIDENT };

struct residency {
    const struct model *model;
    struct device *const *devices;
    int n_devices, n_layers, n_experts, n_blocks;
    struct plan *want;
    uint8_t *state; /* n_devices * n_blocks; device 0 unused */
    /* n_blocks: bytes uploaded so far of the current block */
    uint64_t *partial;
    bool refused[DEVICE_MAX], lost[DEVICE_MAX], streaming[DEVICE_MAX];
    struct residency_status status;
};

/* Blocks in order: attention of every layer, experts layer by layer, head. */
static struct block_id block_at(const struct residency *r, int i)
{
    if (i < r->n_layers)
        return (struct block_id){BLOCK_ATTENTION, i, 0};
    if (i < r->n_blocks - 1)
        return (struct block_id){BLOCK_EXPERT, (i - r->n_layers) / r->n_experts,
                                 (i - r->n_layers) % r->n_experts};
    return (struct block_id){BLOCK_HEAD, 0, 0};
}

static uint8_t *place_of(struct plan *p, int i)
{
    int cells = p->n_layers * p->n_experts;

    return i < p->n_layers           ? &p->attention[i]
           : i < p->n_layers + cells ? &p->experts[i - p->n_layers]
                                     : &p->head;
}

static bool streamed(const struct residency *r, const struct plan *p, int i)
{
    return i >= r->n_layers && i < r->n_blocks - 1 && p->streamed[i - r->n_layers];
}

/* Whether block i has the same place in both. */
static bool same_place(const struct residency *r, const struct plan *a, const struct plan *b, int i)
{
    return *place_of((struct plan *)a, i) == *place_of((struct plan *)b, i) &&
           streamed(r, a, i) == streamed(r, b, i);
}

static void set_place(const struct residency *r, struct plan *p, int i, int device, bool pass)
{
    *place_of(p, i) = (uint8_t)device;
    if (i >= r->n_layers && i < r->n_blocks - 1)
        p->streamed[i - r->n_layers] = pass;
}

static uint8_t *state_of(const struct residency *r, int device, int i)
{
    assert(device >= 0 && device < r->n_devices && i >= 0 && i < r->n_blocks);
    return &r->state[(size_t)device * (size_t)r->n_blocks + (size_t)i];
}

static const struct device_base *base(const struct residency *r, int device)
{
    return (const struct device_base *)r->devices[device];
}

bool residency_supports(const struct device *d, const struct model *m, struct block_id id)
{
    const struct device_ops *ops = ((const struct device_base *)d)->ops;
    struct block_matrix list[BLOCK_MATRICES];
    const struct layer_shape *shape = id.kind == BLOCK_HEAD ? NULL
                                                            : hparams_layer(&m->hp, id.layer);
    int n = model_block_matrices(m, id, list);
    bool can = n > 0;

    for (int i = 0; i < n; i++)
        can = can && !list[i].w->order && !list[i].w->lora &&
              ops->supports(d, shape, id.kind, list[i].w->type);
    return can && (!ops->together || ops->together(d, id));
}

int residency_new(struct residency **out, const struct model *model, struct device *const *devices,
                  int n_devices, struct error *e)
{
    struct residency *r = mem_alloc(1, sizeof *r);

    assert(n_devices >= 1 && n_devices <= DEVICE_MAX);
    *out = NULL;
    if (!r)
        return error_set(e, ERR_MEMORY, "out of memory for the placement");
    r->model = model;
    r->devices = devices;
    r->n_devices = n_devices;
    r->n_layers = model->hp.n_layers;
    r->n_experts = model->hp.n_experts;
    r->n_blocks = r->n_layers * (1 + r->n_experts) + 1;
    r->want = plan_new("cpu", r->n_layers, r->n_experts);
    r->state = mem_alloc((size_t)n_devices, (size_t)r->n_blocks);
    r->partial = mem_alloc((size_t)r->n_blocks, sizeof *r->partial);
    if (!r->want || !r->state || !r->partial) {
        residency_free(r);
        return error_set(e, ERR_MEMORY, "out of memory for the placement");
    }
    *out = r;
    return 0;
}

/* Drops the block's record on a device. A lost device is not called: its driver may hang. */
static void drop(struct residency *r, int device, int i, const struct residency_kv *kv)
{
    struct block_id id = block_at(r, i);

    if (*state_of(r, device, i) == ABSENT)
        return;
    *state_of(r, device, i) = ABSENT;
    r->partial[i] = 0;
    if (!r->lost[device] && r->devices[device])
        base(r, device)->ops->block_drop(r->devices[device], id);
    if (id.kind == BLOCK_ATTENTION && kv && kv->dropped)
        kv->dropped(kv->ctx, id.layer, device);
}

void residency_free(struct residency *r)
{
    if (!r)
        return;
    for (int d = 1; d < r->n_devices && r->state; d++) {
        for (int i = 0; i < r->n_blocks; i++)
            drop(r, d, i, NULL);
        if (r->streaming[d] && !r->lost[d])
            base(r, d)->ops->stream(r->devices[d], false, NULL);
    }
    plan_free(r->want);
    mem_free(r->state);
    mem_free(r->partial);
    mem_free(r);
}

int residency_want(struct residency *r, const struct plan *p, struct error *e)
{
    struct plan *copy = plan_copy(p);

    assert(p->n_layers == r->n_layers && p->n_experts == r->n_experts);
    if (!copy)
        return error_set(e, ERR_MEMORY, "out of memory for the placement");
    plan_free(r->want);
    r->want = copy;
    memset(r->refused, 0, sizeof r->refused);
    r->status.longest_step_ns = 0;
    for (int i = 0; i < r->n_blocks; i++)
        if (r->lost[*place_of(copy, i)])
            set_place(r, copy, i, 0, false);
    return 0;
}

const struct plan *residency_wanted(const struct residency *r)
{
    return r->want;
}

/* Accounting of one step. */
struct step {
    struct residency *r;
    struct plan *in_force;
    const struct residency_kv *kv;
    struct residency_budget budget;
    uint64_t start_ns, spent;
    int worked; /* pieces of work done: the first is always allowed */
};

static bool may_go_on(const struct step *s)
{
    if (!s->worked)
        return true;
    if (s->budget.bytes && s->spent >= s->budget.bytes)
        return false;
    return !s->budget.ns || clock_now() - s->start_ns < s->budget.ns;
}

static uint64_t piece(const struct step *s)
{
    uint64_t left = s->budget.bytes > s->spent ? s->budget.bytes - s->spent : 0;

    return s->budget.bytes && left < RESIDENCY_CHUNK ? (left ? left : 1) : RESIDENCY_CHUNK;
}

static void switch_over(struct step *s, int i)
{
    uint8_t *place = place_of(s->in_force, i);
    int from = *place, to = *place_of(s->r->want, i);
    bool passes = streamed(s->r, s->r->want, i);

    set_place(s->r, s->in_force, i, to, passes);
    s->r->status.switches++;
    if (from && from != to)
        drop(s->r, from, i, s->kv);
    if (passes)
        drop(s->r, to, i, s->kv);
}

/* A device refused a block: it keeps what it runs, the block stays where it is. */
static int refuse(struct step *s, int device, struct block_id id, struct error *e)
{
    static const char *const kinds[] = {"attention", "an expert", "the head"};
    struct residency *r = s->r;

    r->refused[device] = true;
    for (int i = 0; i < r->n_blocks; i++)
        if (*place_of(r->want, i) == device && !same_place(r, r->want, s->in_force, i)) {
            set_place(r, r->want, i, *place_of(s->in_force, i), streamed(r, s->in_force, i));
            if (*place_of(r->want, i) != device || streamed(r, r->want, i))
                drop(r, device, i, s->kv);
        }
    if (e && e->code == 0)
        error_set(e, ERR_DEVICE, "no reason given");
    if (id.kind == BLOCK_HEAD)
        return error_prefix(e, "%s did not take the head; the rest stays where it is",
                            base(r, device)->info.selector);
    return error_prefix(e, "%s did not take %s of layer %d; the rest stays where it is",
                        base(r, device)->info.selector, kinds[id.kind], id.layer);
}

static int move_rows(struct step *s, int layer, int device, struct error *e)
{
    int rc = 0;

    while (rc == 0 && may_go_on(s)) {
        uint64_t spent = 0;

        rc = s->kv && s->kv->step ? s->kv->step(s->kv->ctx, layer, device, piece(s), &spent, e) : 1;
        s->spent += spent;
        s->r->status.moved_bytes += spent;
        s->worked += rc != 1 || spent > 0;
    }
    return rc;
}

/* Uploads a block; an expert on disk is held in memory meanwhile. */
static int put(struct residency *r, int device, struct block_id id, size_t max, struct error *e)
{
    struct expert_cache *cache = id.kind == BLOCK_EXPERT ? r->model->cache : NULL;
    int rc = cache ? expert_cache_hold(cache, id.layer, id.expert, e) : 0;

    if (rc < 0)
        return rc;
    rc = base(r, device)->ops->block_put(r->devices[device], id, max, e);
    if (cache)
        expert_cache_give(cache, id.layer, id.expert);
    return rc;
}

static int upload(struct step *s, int device, int i, struct error *e)
{
    struct residency *r = s->r;
    struct device *d = r->devices[device];
    struct block_id id = block_at(r, i);
    uint64_t bytes = model_block_bytes(r->model, id);
    int rc = *state_of(r, device, i) == RESIDENT;

    while (rc == 0 && may_go_on(s)) {
        uint64_t max = piece(s), left = bytes > r->partial[i] ? bytes - r->partial[i] : 0,
                 copied = left < max ? left : max;
        struct device_stats before, after;

        base(r, device)->ops->stats(d, &before);
        *state_of(r, device, i) = PARTIAL;
        rc = put(r, device, id, (size_t)max, e);
        s->worked++;
        if (rc < 0)
            break;
        if (rc == 1)
            copied = left;
        base(r, device)->ops->stats(d, &after);
        /* with shared memory nothing may have been copied: then only time limits the step */
        if (base(r, device)->info.unified && after.uploaded_bytes - before.uploaded_bytes < copied)
            copied = after.uploaded_bytes - before.uploaded_bytes;
        s->spent += copied;
        r->status.moved_bytes += copied;
        r->partial[i] += copied;
    }
    if (rc == 1) {
        *state_of(r, device, i) = RESIDENT;
        r->partial[i] = 0;
    }
    return rc;
}

/* Moves to the CPU first: they copy only KV rows, and free memory. */
static int go_home(struct step *s, struct error *e)
{
    struct residency *r = s->r;

    for (int i = 0; i < r->n_blocks; i++) {
        int from = *place_of(s->in_force, i), to = *place_of(r->want, i), rc;

        for (int d = 1; d < r->n_devices; d++) /* left over from an earlier plan */
            if (d != from && d != to)
                drop(r, d, i, s->kv);
        if (from == 0 || to != 0)
            continue;
        if (i >= r->n_layers) {
            switch_over(s, i);
            continue;
        }
        rc = move_rows(s, i, 0, e);
        /* it still has the rows: it continues to compute them */
        if (rc < 0) {
            *place_of(r->want, i) = (uint8_t)from;
            return error_prefix(e, "%s: the attention of layer %d cannot move to the CPU",
                                base(r, from)->info.selector, i);
        }
        if (rc == 1)
            switch_over(s, i);
    }
    return 0;
}

/* Streamed experts need only the streaming buffers on their device. */
static int stream_open(struct step *s, int device, struct error *e)
{
    struct residency *r = s->r;
    int rc = 1;

    if (!r->streaming[device]) {
        rc = base(r, device)->ops->stream
                 ? base(r, device)->ops->stream(r->devices[device], true, e)
                 : error_set(e, ERR_DEVICE, "experts cannot be streamed through it");
        s->worked++;
        r->streaming[device] = rc == 0;
    }
    return rc < 0 ? rc : 1;
}

/* Frees the buffers when no expert is streamed any more. */
static void stream_close(struct step *s)
{
    struct residency *r = s->r;
    bool used[DEVICE_MAX] = {false};

    for (int i = 0; i < r->n_blocks; i++) {
        used[*place_of(s->in_force, i)] |= streamed(r, s->in_force, i);
        used[*place_of(r->want, i)] |= streamed(r, r->want, i);
    }
    for (int d = 1; d < r->n_devices; d++)
        if (r->streaming[d] && !used[d]) {
            r->streaming[d] = false;
            if (!r->lost[d])
                base(r, d)->ops->stream(r->devices[d], false, NULL);
        }
}

static int go_out(struct step *s, int i, struct error *e)
{
    struct residency *r = s->r;
    int to = *place_of(r->want, i), rc;

    if (to == 0 || same_place(r, r->want, s->in_force, i) || r->refused[to] || !r->devices[to] ||
        !may_go_on(s))
        return 0;
    rc = streamed(r, r->want, i) ? stream_open(s, to, e) : upload(s, to, i, e);
    if (rc == 1 && i < r->n_layers)
        rc = move_rows(s, i, to, e);
    if (rc == 1)
        switch_over(s, i);
    return rc < 0 ? refuse(s, to, block_at(r, i), e) : 0;
}

int residency_step(struct residency *r, struct plan *in_force, const struct residency_kv *kv,
                   struct residency_budget budget, struct error *e)
{
    struct step s = {
        .r = r, .in_force = in_force, .kv = kv, .budget = budget, .start_ns = clock_now()};
    struct error local = {0};
    uint64_t took;
    int rc = go_home(&s, &local);

    assert(in_force->n_layers == r->n_layers && in_force->n_experts == r->n_experts);
    /* last layer first and each layer whole: a run of layers on one device soon needs no round
     * trip */
    for (int l = r->n_layers - 1; l >= 0 && rc == 0; l--) {
        rc = go_out(&s, l, &local);
        for (int x = 0; x < r->n_experts && rc == 0; x++)
            rc = go_out(&s, r->n_layers + l * r->n_experts + x, &local);
    }
    if (rc == 0)
        rc = go_out(&s, r->n_blocks - 1, &local);
    stream_close(&s);
    took = clock_now() - s.start_ns;
    if (s.worked && took > r->status.longest_step_ns)
        r->status.longest_step_ns = took;
    if (rc < 0) {
        if (e)
            *e = local;
        return rc;
    }
    if (!plan_equal(in_force, r->want))
        return 0;
    memcpy(in_force->name, r->want->name, sizeof in_force->name);
    return 1;
}

void residency_lost(struct residency *r, struct plan *in_force, int device)
{
    assert(in_force->n_layers == r->n_layers && in_force->n_experts == r->n_experts);
    if (device <= 0 || device >= r->n_devices)
        return;
    r->lost[device] = true;
    for (int i = 0; i < r->n_blocks; i++) {
        *state_of(r, device, i) = ABSENT;
        if (*place_of(r->want, i) == device)
            set_place(r, r->want, i, 0, false);
        if (*place_of(in_force, i) == device)
            set_place(r, in_force, i, 0, false);
    }
}

struct residency_status residency_status(const struct residency *r, const struct plan *in_force)
{
    struct residency_status s = r->status;

    assert(in_force->n_layers == r->n_layers && in_force->n_experts == r->n_experts);
    for (int i = 0; i < r->n_blocks; i++) {
        int to = *place_of(r->want, i);

        if (same_place(r, r->want, in_force, i))
            continue;
        s.pending++;
        if (to && !streamed(r, r->want, i) && *state_of(r, to, i) != RESIDENT) {
            uint64_t bytes = model_block_bytes(r->model, block_at(r, i));

            s.pending_bytes += bytes > r->partial[i] ? bytes - r->partial[i] : 0;
        }
    }
    return s;
}
