/* See cost_model.h. Engine thread. Measuring cycles through layers, so that the CPU's caches hold
 * no more of the weights than in decoding. */
#include "engine/base/hash.h"
#include "engine/placement/cost_model.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/series.h"
#include "engine/device/selector.h"
#include "engine/device/state.h"
#include "engine/model/expert_cache.h"
#include "engine/placement/costs.h"
#include "engine/placement/residency.h"
#include "engine/placement/verdict.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEATS 9
#define PROMPT_REPEATS 5
#define WARM_UPS 2
#define PROMPT_ENTRIES 32 /* of them, that an expert gets */
#define GPU_BLOCKS 4      /* layers whose blocks are uploaded to a device for measuring */
#define KEEP_FREE 0.9     /* share of a device's memory for plans */

struct cost_model {
    const struct model *model;
    struct planner_input input;
    uint64_t *attention_bytes, *expert_bytes;
    int *used;
    uint8_t *attention_can[DEVICE_MAX], *experts_can[DEVICE_MAX];
    char names[DEVICE_MAX][200];
    int uses[DEVICE_MAX]; /* runs that have used the stored costs of a device */
    struct verdict verdict;
    char line[VERDICT_LINE];
    struct bench *bench; /* a measurement in progress, or NULL */
};

int cost_model_new(struct cost_model **out, const struct model *m, const struct state_config *state,
                   int n_sessions, struct error *e)
{
    int layers = m->hp.n_layers, experts = m->hp.n_experts;
    struct cost_model *s = mem_alloc(1, sizeof *s);
    uint64_t sessions = n_sessions > 1 ? (uint64_t)n_sessions : 1;

    *out = NULL;
    if (s) {
        s->attention_bytes = mem_alloc((size_t)layers, sizeof *s->attention_bytes);
        s->expert_bytes = mem_alloc((size_t)layers * (size_t)experts, sizeof *s->expert_bytes);
        s->used = mem_alloc((size_t)layers, sizeof *s->used);
    }
    if (!s || !s->attention_bytes || !s->expert_bytes || !s->used) {
        cost_model_free(s);
        return error_set(e, ERR_MEMORY, "out of memory for the placement");
    }
    s->model = m;
    for (int l = 0; l < layers; l++) {
        const struct mixer_shape *mixer = &hparams_layer(&m->hp, l)->mixer;
        struct state_size keeps = state_size(mixer, state->k, state->v);

        if (mixer->kind != MIXER_NONE)
            s->attention_bytes[l] = model_block_bytes(m, (struct block_id){BLOCK_ATTENTION, l, 0}) +
                                    sessions *
                                        (keeps.token_bytes * (uint64_t)state_room(mixer, state) +
                                         keeps.fixed_bytes);
        s->used[l] = shape_used(hparams_layer(&m->hp, l));
        for (int x = 0; x < experts; x++)
            s->expert_bytes[l * experts + x] = model_block_bytes(m, (struct block_id){BLOCK_EXPERT,
                                                                                      l, x});
    }
    s->input = (struct planner_input){
        .n_layers = layers,
        .n_experts = experts,
        .n_experts_used = m->hp.n_experts_used,
        .n_devices = 1,
        .attention_bytes = s->attention_bytes,
        .expert_bytes = s->expert_bytes,
        .used = s->used,
        .head_bytes = model_block_bytes(m, (struct block_id){BLOCK_HEAD, 0, 0}),
    };
    s->input.devices[0] =
        (struct planner_device){.name = "the CPU", .budget = PLANNER_NO_LIMIT, .head_can = true};
    *out = s;
    return 0;
}

void cost_model_free(struct cost_model *s)
{
    if (!s)
        return;
    cost_model_measure_stop(s);
    mem_free(s->attention_bytes);
    mem_free(s->expert_bytes);
    mem_free(s->used);
    for (int d = 0; d < DEVICE_MAX; d++) {
        mem_free(s->attention_can[d]);
        mem_free(s->experts_can[d]);
    }
    mem_free(s);
}

/* Size of the streaming buffers. */
static uint64_t stream_bytes(const struct model *m)
{
    uint64_t part[3];

    model_largest_expert(m, part);
    return DEVICE_STREAM * (part[0] + part[1] + part[2]);
}

/* What holds of a device, be it open or not; NULL: there is no such number. */
static struct planner_device *add_device(struct cost_model *s, int index,
                                         const struct device_info *info)
{
    if (index <= 0 || index >= PLANNER_DEVICES)
        return NULL;
    if (index >= s->input.n_devices)
        s->input.n_devices = index + 1;
    snprintf(s->names[index], sizeof s->names[index], "%s (%s)", info->selector, info->name);
    s->input.devices[index] = (struct planner_device){
        .name = s->names[index],
        .number = selector_number(info->selector),
        .stream_bytes = stream_bytes(s->model),
        .unified = info->unified,
        .budget = info->memory ? (uint64_t)((double)info->memory * KEEP_FREE) : PLANNER_NO_LIMIT,
    };
    return &s->input.devices[index];
}

/* The first device is what strategies fill first, those after it what they fill then. */
static void become_target(struct cost_model *s, int index)
{
    struct planner_input *in = &s->input;

    if (!in->target)
        in->target = index;
    for (int i = 0; i < in->n_also; i++)
        if (in->also[i] == index)
            return;
    if (index != in->target && in->n_also < PLANNER_DEVICES)
        in->also[in->n_also++] = index;
}

void cost_model_found(struct cost_model *s, int index, const struct device_info *info)
{
    struct planner_device *d = add_device(s, index, info);

    if (!d)
        return;
    d->fuses_layers = d->head_can = d->streams = true;
    become_target(s, index);
}

void cost_model_device(struct cost_model *s, int index, const struct device *dev)
{
    const struct device_base *base = (const struct device_base *)dev;
    struct planner_device *d = add_device(s, index, &base->info);
    int layers = s->input.n_layers, experts = s->input.n_experts;

    if (!d)
        return;
    d->fuses_layers = base->ops->layers != NULL;
    d->streams = base->ops->stream != NULL;
    if (!s->attention_can[index])
        s->attention_can[index] = mem_alloc((size_t)layers, 1);
    if (!s->experts_can[index])
        s->experts_can[index] = mem_alloc((size_t)layers * (size_t)experts, 1);
    d->attention_can = s->attention_can[index];
    d->experts_can = s->experts_can[index];
    /* without the tables the device must not be used */
    if (!d->attention_can || !d->experts_can) {
        d->budget = 0;
        return;
    }
    d->head_can = residency_supports(dev, s->model, (struct block_id){BLOCK_HEAD, 0, 0});
    for (int l = 0; l < layers; l++) {
        s->attention_can[index][l] = residency_supports(dev, s->model,
                                                        (struct block_id){BLOCK_ATTENTION, l, 0});
        for (int x = 0; x < experts; x++)
            s->experts_can[index][l * experts + x] =
                residency_supports(dev, s->model, (struct block_id){BLOCK_EXPERT, l, x});
    }
    become_target(s, index);
}

void cost_model_lost(struct cost_model *s, int index)
{
    if (index <= 0 || index >= s->input.n_devices)
        return;
    s->input.devices[index].budget = 0;
    s->input.devices[index].head_can = false;
    if (s->attention_can[index])
        memset(s->attention_can[index], 0, (size_t)s->input.n_layers);
    if (s->experts_can[index])
        memset(s->experts_can[index], 0, (size_t)s->input.n_layers * (size_t)s->input.n_experts);
}

struct planner_input *cost_model_input(struct cost_model *s)
{
    return &s->input;
}

/* The measured jobs, in this order on every device: one expert, all of a token's at once (the slope
 * is an expert's time, the rest the handoff), attention, head; then with rows of a prompt. */
enum stage {
    ONE_EXPERT,
    ALL_EXPERTS,
    ATTENTION,
    HEAD,
    PROMPT_EXPERTS,
    PROMPT_ATTENTION,
    PROMPT_HOST,
    STAGES
};

/* A measurement in progress: resumable, so that it can be spread over the pauses between tokens. */
struct bench {
    struct device *dev;
    const struct device_ops *ops;
    int index, kv_len;
    enum stage stage;
    bool begun; /* blocks of this stage are chosen */
    int first, layers, brought, sample;
    double t[REPEATS], one;
    double launch[REPEATS]; /* of t, the part until the job was given */
    double launched;        /* ns at which the newest job was given */
    struct cost_model_plans plans;
    float *x, *y;
    /* job inputs must live until wait */
    struct expert_group groups[16];
    int row[16 * PROMPT_ENTRIES], slot[16 * PROMPT_ENTRIES];
    int prompt_rows;         /* of a prompt's job on this device */
    float *scores, *weights; /* (COST_MODEL_ROWS, n_experts), (COST_MODEL_ROWS, n_experts_used) */
    int *experts;            /* likewise */
    struct error *e;
};

static int used_of(const struct cost_model *s)
{
    return s->input.n_experts_used < 16 ? s->input.n_experts_used : 16;
}

static bool of_prompt(const struct bench *b)
{
    return b->stage >= PROMPT_EXPERTS;
}

static int rows_of(const struct bench *b)
{
    int rows = of_prompt(b) ? b->prompt_rows : 1;

    /* each expert of a job has all of its rows */
    return (b->stage == PROMPT_EXPERTS || b->stage == PROMPT_HOST) && rows > PROMPT_ENTRIES
               ? PROMPT_ENTRIES
               : rows;
}

static bool has_there(const struct bench *b, const struct plan *p, struct block_id id)
{
    return p && (id.kind == BLOCK_HEAD     ? p->head
                 : id.kind == BLOCK_EXPERT ? plan_expert(p, id.layer, id.expert)
                                           : p->attention[id.layer]) == b->index;
}

/* Whether a plan in effect has the block there; or, likewise, a requested one. */
static bool runs_there(const struct bench *b, struct block_id id)
{
    return has_there(b, b->plans.in_force[PHASE_TOKENS], id) ||
           has_there(b, b->plans.in_force[PHASE_PROMPT], id);
}

static bool planned_there(const struct bench *b, struct block_id id)
{
    return runs_there(b, id) || has_there(b, b->plans.wanted[PHASE_TOKENS], id) ||
           has_there(b, b->plans.wanted[PHASE_PROMPT], id);
}

/* The i-th block that the stage needs on the device; false: no more. */
static bool block_of(const struct cost_model *s, const struct bench *b, int i, struct block_id *id)
{
    int used = used_of(s);

    switch (b->stage) {
    case ATTENTION:
    case PROMPT_ATTENTION:
        *id = (struct block_id){BLOCK_ATTENTION, b->first + i, 0};
        return i < b->layers;
    case HEAD: *id = (struct block_id){BLOCK_HEAD, 0, 0}; return i < 1;
    case PROMPT_HOST: return false;
    default:
        *id = (struct block_id){BLOCK_EXPERT, b->first + i / used, i % used};
        return i < b->layers * used;
    }
}

static void take_away(const struct cost_model *s, const struct bench *b)
{
    struct block_id id;

    /* no calls to a lost device */
    if (!b->index || !b->begun || s->input.devices[b->index].budget == 0)
        return;
    for (int i = 0; block_of(s, b, i, &id); i++)
        if (!planned_there(b, id))
            b->ops->block_drop(b->dev, id);
}

/* Runs experts on disk one after the other: with as little time between them as if in memory, and
 * using at most one slot. */
static int run_held(const struct cost_model *s, struct bench *b, struct experts_job *x)
{
    int n = x->n_groups, rc = 0;

    if (!s->model->cache || b->index)
        return b->ops->experts(b->dev, x, b->e);
    x->n_groups = 1;
    for (int i = 0; i < n && rc == 0; i++, x->groups++) {
        int expert = x->groups->expert;

        if ((rc = expert_cache_hold(s->model->cache, x->layer, expert, b->e)) < 0)
            break;
        rc = b->ops->experts(b->dev, x, b->e);
        expert_cache_give(s->model->cache, x->layer, expert);
    }
    return rc;
}

/* Uploads a block as residency does. */
static int bring(const struct cost_model *s, struct bench *b, struct block_id id)
{
    struct expert_cache *cache = id.kind == BLOCK_EXPERT ? s->model->cache : NULL;
    int rc = cache ? expert_cache_hold(cache, id.layer, id.expert, b->e) : 0;

    if (rc < 0)
        return rc;
    rc = b->ops->block_put(b->dev, id, RESIDENCY_CHUNK, b->e);
    if (cache)
        expert_cache_give(cache, id.layer, id.expert);
    return rc;
}

/* Routing and combination, of which the rows' outputs are whatever stands there. */
static int run_host(const struct cost_model *s, struct bench *b, int layer)
{
    size_t rows = (size_t)rows_of(b), hidden = (size_t)s->model->hp.hidden;
    struct route_job r = {.layer = layer,
                          .rows = (int)rows,
                          .x = b->x,
                          .h = b->y,
                          .scores = b->scores,
                          .experts = b->experts,
                          .weights = b->weights};
    struct combine_job c = {.layer = layer,
                            .rows = (int)rows,
                            .out = b->y,
                            .weights = b->weights,
                            .x = b->x + rows * hidden};
    int rc = b->ops->route(b->dev, &r, b->e);

    return rc < 0 ? rc : b->ops->combine(b->dev, &c, b->e);
}

static int run_job(const struct cost_model *s, struct bench *b, int layer)
{
    int rows = rows_of(b), each = rows;
    struct attention_job a = {
        .layer = layer, .rows = rows, .pos = b->kv_len, .x = b->x, .y = b->y, .trial = true};
    struct head_job h = {.rows = 1, .x = b->x, .logits = b->y};
    struct experts_job x = {.layer = layer,
                            .rows = rows,
                            .h = b->x,
                            .n_groups = b->stage == ONE_EXPERT ? 1 : used_of(s),
                            .groups = b->groups,
                            .row = b->row,
                            .slot = b->slot,
                            .out = b->y};
    int rc;

    if (b->stage == PROMPT_HOST) {
        rc = run_host(s, b, layer);
    } else if (b->stage == ATTENTION || b->stage == PROMPT_ATTENTION) {
        rc = b->ops->attention(b->dev, &a, b->e);
    } else if (b->stage == HEAD) {
        rc = b->ops->head(b->dev, &h, b->e);
    } else {
        for (int i = 0; i < x.n_groups; i++) {
            b->groups[i] = (struct expert_group){i, i * each, each};
            for (int k = 0; k < each; k++) {
                b->row[i * each + k] = k;
                b->slot[i * each + k] = i;
            }
        }
        rc = run_held(s, b, &x);
    }
    b->launched = (double)clock_now();
    return rc < 0 ? rc : b->ops->wait(b->dev, b->e);
}

/* First run of layers (at most max) that the device can hold for the kind; 0 when none. */
static int usable_layers(const struct cost_model *s, const struct bench *b, enum block_kind kind,
                         int used, int max, int *first)
{
    int n = 0;

    for (int l = 0; l < s->input.n_layers && n < max; l++) {
        bool can = true;

        for (int x = 0; x < (kind == BLOCK_EXPERT ? used : 1); x++)
            can = can &&
                  (kind == BLOCK_EXPERT ? planner_has_expert(&s->input, l, x)
                                        : s->input.attention_bytes[l] > 0) &&
                  (b->index == 0 ||
                   residency_supports(b->dev, s->model, (struct block_id){kind, l, x}));
        if (can && n++ == 0)
            *first = l;
        if (!can && n)
            break;
    }
    return n;
}

static double attention_cost(const struct bench *b, const struct planner_device *v)
{
    return of_prompt(b) ? v->prompt_attention_ns : v->attention_ns;
}

static double expert_cost(const struct bench *b, const struct planner_device *v)
{
    return of_prompt(b) ? v->prompt_expert_ns : v->expert_ns;
}

/* Whether the stage has anything to measure here. */
static bool stage_begin(const struct cost_model *s, struct bench *b, const struct planner_device *v)
{
    int max = b->index ? GPU_BLOCKS : s->input.n_layers;

    if (b->stage != ALL_EXPERTS) /* those of the previous stage */
        b->brought = 0;
    b->sample = -WARM_UPS;
    b->first = b->layers = 0;
    b->begun = true;
    switch (b->stage) {
    case ATTENTION:
    case PROMPT_ATTENTION:
        if (attention_cost(b, v) <= 0 && b->kv_len >= 0 && rows_of(b) > 0)
            b->layers = usable_layers(s, b, BLOCK_ATTENTION, 1, max, &b->first);
        return b->layers > 0;
    case PROMPT_HOST:
        if (!b->index && s->input.prompt_host_ns <= 0 && used_of(s) && rows_of(b) > 0)
            b->layers = usable_layers(s, b, BLOCK_EXPERT, 1, max, &b->first);
        return b->layers > 0;
    case HEAD: b->layers = 1; return v->head_ns <= 0 && v->head_can;
    default:
        if (expert_cost(b, v) <= 0 && used_of(s) && rows_of(b) > 0)
            b->layers = usable_layers(s, b, BLOCK_EXPERT, used_of(s), max, &b->first);
        return b->layers > 0;
    }
}

static void stage_end(struct cost_model *s, struct bench *b, struct planner_device *v)
{
    int used = used_of(s);
    double ns;

    qsort(b->t, (size_t)b->sample, sizeof *b->t, series_compare);
    ns = b->t[b->sample / 4]; /* what disturbs only adds */
    if (of_prompt(b)) {
        double work = ns > 2 * v->handoff_ns ? ns - v->handoff_ns : ns / 2 + 1;

        if (b->stage == PROMPT_HOST)
            s->input.prompt_host_ns = work / rows_of(b);
        else if (b->stage == PROMPT_ATTENTION)
            v->prompt_attention_ns = work / rows_of(b);
        else
            v->prompt_expert_ns = work / (used * rows_of(b));
    } else if (b->stage == ONE_EXPERT) {
        b->one = ns;
        qsort(b->launch, (size_t)b->sample, sizeof *b->launch, series_compare);
        v->launch_ns = b->index ? b->launch[b->sample / 4] : 0;
    } else if (b->stage == ALL_EXPERTS) {
        /* t = handoff + calls * expert; noise may make the slope negative */
        v->expert_ns = used > 1 && ns > b->one ? (ns - b->one) / (used - 1) : ns / used;
        if (b->index == 0)
            v->expert_ns = ns / used; /* launching is part of the CPU's work */
        else
            v->handoff_ns = b->one > v->expert_ns ? b->one - v->expert_ns : 0;
        v->launch_ns = v->launch_ns < v->handoff_ns ? v->launch_ns : v->handoff_ns;
    } else {
        *(b->stage == HEAD ? &v->head_ns : &v->attention_ns) = ns > 2 * v->handoff_ns
                                                                   ? ns - v->handoff_ns
                                                                   : ns / 2 + 1;
    }
    if (b->stage != ONE_EXPERT) /* the same experts serve the next stage */
        take_away(s, b);
}

/* One piece: a chunk of an upload, or one sample. 1: the stage is done. */
static int stage_piece(struct cost_model *s, struct bench *b, struct planner_device *v)
{
    struct block_id id;
    uint64_t start;
    int rc;

    while (b->index && block_of(s, b, b->brought, &id)) {
        if (runs_there(b, id)) {
            b->brought++;
            continue;
        }
        if ((rc = bring(s, b, id)) < 0)
            return rc;
        b->brought += rc;
        return 0;
    }
    start = clock_now();
    if ((rc = run_job(s, b, b->first + (b->sample + WARM_UPS) % b->layers)) < 0)
        return rc;
    if (b->sample >= 0) {
        b->t[b->sample] = (double)(clock_now() - start);
        b->launch[b->sample] = b->launched - (double)start;
    }
    if (++b->sample < (of_prompt(b) ? PROMPT_REPEATS : REPEATS))
        return 0;
    stage_end(s, b, v);
    return 1;
}

static int bench_open(struct cost_model *s, struct error *e)
{
    const struct hparams *hp = &s->model->hp;
    int slots = hp->n_experts_used > 16 ? hp->n_experts_used : 16,
        outputs = (slots * PROMPT_ENTRIES > COST_MODEL_ROWS ? slots * PROMPT_ENTRIES
                                                            : COST_MODEL_ROWS) *
                  hp->hidden,
        widest = hp->n_vocab > outputs ? hp->n_vocab : outputs;
    struct bench *b = mem_alloc(1, sizeof *b);

    s->bench = b;
    if (b) {
        /* shape_normed_rows at most */
        b->x = mem_alloc(2 * COST_MODEL_ROWS * (size_t)hp->hidden, sizeof *b->x);
        b->y = mem_alloc((size_t)widest, sizeof *b->y);
        b->scores = mem_alloc(COST_MODEL_ROWS * (size_t)hp->n_experts, sizeof *b->scores);
        b->weights = mem_alloc(COST_MODEL_ROWS * (size_t)hp->n_experts_used, sizeof *b->weights);
        b->experts = mem_alloc(COST_MODEL_ROWS * (size_t)hp->n_experts_used, sizeof *b->experts);
    }
    if (!b || !b->x || !b->y || !b->scores || !b->weights || !b->experts) {
        cost_model_measure_stop(s);
        return error_set(e, ERR_MEMORY, "out of memory for measuring the devices");
    }
    for (int i = 0; i < 2 * COST_MODEL_ROWS * hp->hidden; i++)
        b->x[i] = (float)((i * 7919) % 255 - 127) * 0.01f;
    return 0;
}

void cost_model_measure_stop(struct cost_model *s)
{
    if (!s->bench)
        return;
    if (s->bench->dev)
        take_away(s, s->bench);
    mem_free(s->bench->x);
    mem_free(s->bench->y);
    mem_free(s->bench->scores);
    mem_free(s->bench->weights);
    mem_free(s->bench->experts);
    mem_free(s->bench);
    s->bench = NULL;
}

int cost_model_measure_step(struct cost_model *s, struct device *const *devices, int n_devices,
                            int kv_len, const struct cost_model_plans *plans, uint64_t budget_ns,
                            struct error *e)
{
    uint64_t start = clock_now();
    struct bench *b;
    int rc;

    assert(n_devices >= 1 && n_devices <= PLANNER_DEVICES && kv_len >= 0);
    if (!s->bench && (rc = bench_open(s, e)) < 0)
        return rc;
    b = s->bench;
    b->e = e;
    b->plans = *plans;
    for (; b->index < n_devices && b->index < s->input.n_devices;
         b->index++, b->stage = ONE_EXPERT, b->begun = false) {
        const struct device_base *base = (const struct device_base *)devices[b->index];
        struct planner_device *v = &s->input.devices[b->index];

        if (!base || (b->index && v->budget == 0))
            continue;
        b->dev = devices[b->index];
        b->ops = base->ops;
        b->kv_len = kv_len < base->config.context ? kv_len : -1;
        b->prompt_rows = base->config.max_rows < COST_MODEL_ROWS ? base->config.max_rows
                                                                 : COST_MODEL_ROWS;
        if (b->prompt_rows > base->config.context - kv_len)
            b->prompt_rows = base->config.context - kv_len;
        for (; b->stage < STAGES; b->stage++, b->begun = false) {
            if (!b->begun && !stage_begin(s, b, v))
                continue;
            do {
                if ((b->stage == ATTENTION && b->kv_len < 0) ||
                    (of_prompt(b) && b->prompt_rows <= 0))
                    rc = 1; /* the context has filled up meanwhile */
                else
                    rc = stage_piece(s, b, v);
                if (rc < 0) {
                    cost_model_measure_stop(s);
                    return error_prefix(e, "measuring %s", v->name);
                }
                if (rc == 0 && budget_ns && clock_now() - start >= budget_ns)
                    return 0;
            } while (rc == 0);
        }
    }
    cost_model_measure_stop(s);
    return 1;
}

int cost_model_measure(struct cost_model *s, struct device *const *devices, int n_devices,
                       int kv_len, const struct cost_model_plans *plans, struct error *e)
{
    int rc = cost_model_measure_step(s, devices, n_devices, kv_len, plans, 0, e);

    return rc < 0 ? rc : 0;
}

static uint64_t hash_device(uint64_t h, const struct device *d)
{
    const struct device_base *b = (const struct device_base *)d;

    h = hash_bytes(h, b->ops->name, strlen(b->ops->name));
    return hash_bytes(h, b->info.name, strlen(b->info.name));
}

static uint64_t hash_model(const struct cost_model *s)
{
    return s->model->hash ^ s->model->adapters ^ HASH_START;
}

static void kept_path(const char *word, uint64_t hash, const char *cache_dir, char *out,
                      size_t size)
{
    snprintf(out, size, "%s/%s-%016llx", cache_dir, word, (unsigned long long)hash);
}

/* A file of what holds for this model on a device. */
static void costs_path(const struct cost_model *s, const char *cache_dir, const struct device *d,
                       char *out, size_t size)
{
    kept_path("costs", hash_device(hash_model(s), d), cache_dir, out, size);
}

/* On all of them, in the order in which strategies fill them. */
static void verdict_path(const struct cost_model *s, const char *cache_dir,
                         struct device *const *devices, char *out, size_t size)
{
    uint64_t h = hash_device(hash_model(s), devices[s->input.target]);

    for (int i = 0; i < s->input.n_also; i++)
        h = hash_device(h, devices[s->input.also[i]]);
    kept_path("verdict", h, cache_dir, out, size);
}

int cost_model_costs_load(struct cost_model *s, int index, const char *cache_dir,
                          const struct device *dev, const struct verdict_keys *k)
{
    char path[4096];

    if (!cache_dir || index <= 0 || index >= s->input.n_devices)
        return 0;
    costs_path(s, cache_dir, dev, path, sizeof path);
    return costs_read(&s->input, index, path, k, &s->uses[index]);
}

int cost_model_costs_store(struct cost_model *s, int index, const char *cache_dir,
                           const struct device *dev, const struct verdict_keys *k, struct error *e)
{
    char path[4096];

    if (!cache_dir || index <= 0 || index >= s->input.n_devices)
        return 0;
    costs_path(s, cache_dir, dev, path, sizeof path);
    return costs_write(&s->input, index, path, k, s->uses[index] + 1, e);
}

int cost_model_verdict_load(struct cost_model *s, const char *cache_dir,
                            struct device *const *devices, const struct verdict_keys *k, char *why)
{
    char path[4096];

    if (why)
        why[0] = 0;
    if (!cache_dir || !s->input.target)
        return 0;
    verdict_path(s, cache_dir, devices, path, sizeof path);
    if (!verdict_read(&s->verdict, path, k, why))
        return 0;
    verdict_line(&s->verdict, s->line);
    return 1;
}

int cost_model_verdict_store(struct cost_model *s, const char *cache_dir,
                             struct device *const *devices, const struct verdict_keys *k,
                             const struct verdict *v, struct error *e)
{
    char path[4096];

    s->verdict = *v;
    verdict_line(&s->verdict, s->line);
    if (!cache_dir)
        return 0;
    verdict_path(s, cache_dir, devices, path, sizeof path);
    return verdict_write(&s->verdict, path, k, e);
}

const struct verdict *cost_model_verdict(struct cost_model *s, enum plan_phase phase)
{
    bool there = s->verdict.n_rows > 0;

    s->input.verdict = there ? s->verdict.spec[phase] : NULL;
    s->input.verdict_line = there && phase == PHASE_TOKENS ? s->line : NULL;
    return there ? &s->verdict : NULL;
}
