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
    /* by phase; in effect: the tokens' is the caller's, prompt the prompts'. apart: the prompts
     * have their own, else those two entries are not used */
    struct plan *want[PLAN_PHASES], *prompt;
    bool apart, was_apart;
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

    if (id.kind == BLOCK_ATTENTION && ops != &cpu_device_ops &&
        (shape->inputs || shape->mixer.keys_of || shape->mixer.lends))
        return false; /* the CPU joins inputs, and rows lie where all their readers are */

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
    for (int k = 0; k < PLAN_PHASES; k++)
        r->want[k] = plan_new("cpu", r->n_layers, r->n_experts);
    r->prompt = plan_new("cpu", r->n_layers, r->n_experts);
    r->state = mem_alloc((size_t)n_devices, (size_t)r->n_blocks);
    r->partial = mem_alloc((size_t)r->n_blocks, sizeof *r->partial);
    if (!r->want[PHASE_TOKENS] || !r->want[PHASE_PROMPT] || !r->prompt || !r->state ||
        !r->partial) {
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
    for (int k = 0; k < PLAN_PHASES; k++)
        plan_free(r->want[k]);
    plan_free(r->prompt);
    mem_free(r->state);
    mem_free(r->partial);
    mem_free(r);
}

static int want(struct residency *r, enum plan_phase phase, const struct plan *p, struct error *e)
{
    struct plan *copy = plan_copy(p);

    assert(p->n_layers == r->n_layers && p->n_experts == r->n_experts);
    if (!copy)
        return error_set(e, ERR_MEMORY, "out of memory for the placement");
    plan_free(r->want[phase]);
    r->want[phase] = copy;
    memset(r->refused, 0, sizeof r->refused);
    r->status.longest_step_ns = 0;
    for (int i = 0; i < r->n_blocks; i++)
        if (r->lost[*place_of(copy, i)])
            set_place(r, copy, i, 0, false);
    return 0;
}

int residency_want(struct residency *r, const struct plan *p, struct error *e)
{
    return want(r, PHASE_TOKENS, p, e);
}

int residency_want_prompt(struct residency *r, const struct plan *p, const struct plan *in_force,
                          struct error *e)
{
    int rc = p ? want(r, PHASE_PROMPT, p, e) : 0;

    if (rc == 0 && p && !r->apart)
        plan_assign(r->prompt, in_force);
    if (rc == 0)
        r->apart = p != NULL;
    r->was_apart |= r->apart;
    return rc;
}

const struct plan *residency_wanted(const struct residency *r)
{
    return r->want[PHASE_TOKENS];
}

const struct plan *residency_wanted_prompt(const struct residency *r)
{
    return r->apart ? r->want[PHASE_PROMPT] : NULL;
}

const struct plan *residency_prompt(const struct residency *r, const struct plan *in_force)
{
    return r->apart ? r->prompt : in_force;
}

static int phases(const struct residency *r)
{
    return r->apart ? PLAN_PHASES : 1;
}

/* Accounting of one step. */
struct step {
    struct residency *r;
    struct plan *in_force[PLAN_PHASES];
    enum plan_phase phase; /* whose blocks are being moved */
    const struct residency_kv *kv;
    struct residency_budget budget;
    uint64_t start_ns, spent;
    int worked; /* pieces of work done: the first is always allowed */
    int left;   /* unused blocks that still have rows to give */
};

/* Whether some plan, requested or in effect, has block i resident on a device. */
static bool used(const struct step *s, int device, int i)
{
    for (int k = 0; k < phases(s->r); k++) {
        const struct plan *plans[] = {s->in_force[k], s->r->want[k]};

        for (int n = 0; n < 2; n++)
            if (*place_of((struct plan *)plans[n], i) == device && !streamed(s->r, plans[n], i))
                return true;
    }
    return false;
}

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

/* A device refused a block: it keeps what it runs, the block stays where it is. */
static int refuse(struct step *s, int device, struct block_id id, struct error *e)
{
    static const char *const kinds[] = {"attention", "an expert", "the head"};
    struct residency *r = s->r;

    r->refused[device] = true;
    for (int k = 0; k < phases(r); k++)
        for (int i = 0; i < r->n_blocks; i++)
            if (*place_of(r->want[k], i) == device && !same_place(r, r->want[k], s->in_force[k], i))
                set_place(r, r->want[k], i, *place_of(s->in_force[k], i),
                          streamed(r, s->in_force[k], i));
    for (int i = 0; i < r->n_blocks; i++)
        if (!used(s, device, i))
            drop(r, device, i, s->kv);
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

/* Drops a block from a device where no plan uses it; rows of a layer that perhaps only this device
 * has are copied first to where tokens are computed, which may take several steps. */
static void leave(struct step *s, int device, int i)
{
    struct residency *r = s->r;
    int keeper = i < r->n_layers ? *place_of(s->in_force[PHASE_TOKENS], i) : device;
    struct error ignored;

    if (*state_of(r, device, i) == ABSENT || used(s, device, i))
        return;
    if (r->was_apart && keeper != device && *state_of(r, device, i) == RESIDENT &&
        !r->lost[device] && move_rows(s, i, keeper, &ignored) == 0)
        s->left++;
    else
        drop(r, device, i, s->kv);
}

/* The rows of a layer are where the plan for tokens now wants them. */
static void switch_over(struct step *s, int i)
{
    struct plan *want = s->r->want[s->phase], *in_force = s->in_force[s->phase];
    int from = *place_of(in_force, i), to = *place_of(want, i);

    set_place(s->r, in_force, i, to, streamed(s->r, want, i));
    s->r->status.switches++;
    if (from)
        leave(s, from, i);
    if (to)
        leave(s, to, i);
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
    const struct plan *in_force = s->in_force[s->phase];

    for (int i = 0; i < r->n_blocks; i++) {
        uint8_t *to = place_of(r->want[s->phase], i);
        int from = *place_of((struct plan *)in_force, i), rc = 1;

        for (int d = 1; d < r->n_devices; d++) /* left over from an earlier plan */
            leave(s, d, i);
        if (from == 0 || *to != 0)
            continue;
        if (i < r->n_layers && s->phase == PHASE_TOKENS)
            rc = move_rows(s, i, 0, e);
        /* it still has the rows: it continues to compute them */
        if (rc < 0) {
            *to = (uint8_t)from;
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
    bool in_use[DEVICE_MAX] = {false};

    for (int k = 0; k < phases(r); k++)
        for (int i = 0; i < r->n_blocks; i++) {
            in_use[*place_of(s->in_force[k], i)] |= streamed(r, s->in_force[k], i);
            in_use[*place_of(r->want[k], i)] |= streamed(r, r->want[k], i);
        }
    for (int d = 1; d < r->n_devices; d++)
        if (r->streaming[d] && !in_use[d]) {
            r->streaming[d] = false;
            if (!r->lost[d])
                base(r, d)->ops->stream(r->devices[d], false, NULL);
        }
}

static int go_out(struct step *s, int i, struct error *e)
{
    struct residency *r = s->r;
    struct plan *want = r->want[s->phase];
    int to = *place_of(want, i), rc;

    if (to == 0 || same_place(r, want, s->in_force[s->phase], i) || r->refused[to] ||
        !r->devices[to] || !may_go_on(s))
        return 0;
    rc = streamed(r, want, i) ? stream_open(s, to, e) : upload(s, to, i, e);
    if (rc == 1 && i < r->n_layers && s->phase == PHASE_TOKENS)
        rc = move_rows(s, i, to, e);
    if (rc == 1)
        switch_over(s, i);
    return rc < 0 ? refuse(s, to, block_at(r, i), e) : 0;
}

/* Last layer first and each layer whole: a run of layers on one device soon needs no round trip. */
static int go_out_all(struct step *s, struct error *e)
{
    const struct residency *r = s->r;
    int rc = 0;

    for (int l = r->n_layers - 1; l >= 0 && rc == 0; l--) {
        rc = go_out(s, l, e);
        for (int x = 0; x < r->n_experts && rc == 0; x++)
            rc = go_out(s, r->n_layers + l * r->n_experts + x, e);
    }
    return rc == 0 ? go_out(s, r->n_blocks - 1, e) : rc;
}

int residency_step(struct residency *r, struct plan *in_force, const struct residency_kv *kv,
                   struct residency_budget budget, struct error *e)
{
    struct step s = {.r = r,
                     .in_force = {in_force, r->prompt},
                     .kv = kv,
                     .budget = budget,
                     .start_ns = clock_now()};
    struct error local = {0};
    bool settled = true;
    uint64_t took;
    int rc = 0;

    assert(in_force->n_layers == r->n_layers && in_force->n_experts == r->n_experts);
    for (s.phase = 0; s.phase < (enum plan_phase)phases(r) && rc == 0; s.phase++)
        rc = go_home(&s, &local);
    for (s.phase = 0; s.phase < (enum plan_phase)phases(r) && rc == 0; s.phase++)
        rc = go_out_all(&s, &local);
    stream_close(&s);
    took = clock_now() - s.start_ns;
    if (s.worked && took > r->status.longest_step_ns)
        r->status.longest_step_ns = took;
    if (rc < 0) {
        if (e)
            *e = local;
        return rc;
    }
    for (int k = 0; k < phases(r); k++) {
        settled = settled && plan_equal(s.in_force[k], r->want[k]);
        if (plan_equal(s.in_force[k], r->want[k])) {
            memcpy(s.in_force[k]->name, r->want[k]->name, sizeof r->want[k]->name);
            s.in_force[k]->lends = r->want[k]->lends;
        }
    }
    return settled && !s.left;
}

void residency_lost(struct residency *r, struct plan *in_force, int device)
{
    struct plan *plans[] = {in_force, r->prompt, r->want[PHASE_TOKENS], r->want[PHASE_PROMPT]};

    assert(in_force->n_layers == r->n_layers && in_force->n_experts == r->n_experts);
    if (device <= 0 || device >= r->n_devices)
        return;
    r->lost[device] = true;
    for (int i = 0; i < r->n_blocks; i++) {
        *state_of(r, device, i) = ABSENT;
        for (size_t k = 0; k < sizeof plans / sizeof *plans; k++)
            if (*place_of(plans[k], i) == device)
                set_place(r, plans[k], i, 0, false);
    }
}

/* Bytes of block i that a phase's plan still waits for, unless an earlier one does too. */
static uint64_t bytes_missing(const struct residency *r, const struct plan *in_force, int phase,
                              int i)
{
    int to = *place_of(r->want[phase], i);
    uint64_t bytes;

    if (!to || streamed(r, r->want[phase], i) || *state_of(r, to, i) == RESIDENT ||
        (phase && *place_of(r->want[PHASE_TOKENS], i) == to &&
         !same_place(r, r->want[PHASE_TOKENS], in_force, i)))
        return 0;
    bytes = model_block_bytes(r->model, block_at(r, i));
    return bytes > r->partial[i] ? bytes - r->partial[i] : 0;
}

struct residency_status residency_status(const struct residency *r, const struct plan *in_force)
{
    const struct plan *now[PLAN_PHASES] = {in_force, r->prompt};
    struct residency_status s = r->status;

    assert(in_force->n_layers == r->n_layers && in_force->n_experts == r->n_experts);
    for (int k = 0; k < phases(r); k++)
        for (int i = 0; i < r->n_blocks; i++)
            if (!same_place(r, r->want[k], now[k], i)) {
                s.pending++;
                s.pending_bytes += bytes_missing(r, in_force, k, i);
            }
    return s;
}
