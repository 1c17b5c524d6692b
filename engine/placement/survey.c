/* See survey.h. Engine thread. Measuring cycles through layers, so that the CPU's caches hold no more of the weights than they do in decode. */
#include "engine/placement/survey.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/placement/residency.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REPEATS 9
#define WARM_UPS 2
#define GPU_BLOCKS 4             /* layers of which blocks are brought to a device for measuring */
#define KEEP_FREE 0.9            /* share of a device's memory that a plan may take */

struct survey {
    const struct model *model;
    struct planner_input input;
    uint64_t *attention_bytes, *expert_bytes;
    uint8_t *attention_can[DEVICE_MAX], *experts_can[DEVICE_MAX];
    char names[DEVICE_MAX][200], verdict[PLAN_NAME];
};

size_t survey_kv_row_bytes(const struct hparams *hp, enum kv_type kv_k, enum kv_type kv_v)
{
    size_t n = (size_t)hp->n_kv_heads * (size_t)hp->head_dim;
    const enum kv_type types[] = {kv_k, kv_v};
    size_t bytes = 0;

    for (int i = 0; i < 2; i++)
        bytes += types[i] == KV_F32 ? 4 * n : types[i] == KV_F16 ? 2 * n : n / 32 * 34;
    return bytes;
}

int survey_new(struct survey **out, const struct model *m, int context, enum kv_type kv_k, enum kv_type kv_v, struct error *e)
{
    int layers = m->hp.n_layers, experts = m->hp.n_experts;
    struct survey *s = mem_alloc(1, sizeof *s);
    uint64_t kv = survey_kv_row_bytes(&m->hp, kv_k, kv_v) * (uint64_t)(context > 0 ? context : 0);

    *out = NULL;
    if (s) {
        s->attention_bytes = mem_alloc((size_t)layers, sizeof *s->attention_bytes);
        s->expert_bytes = mem_alloc((size_t)layers * (size_t)experts, sizeof *s->expert_bytes);
    }
    if (!s || !s->attention_bytes || !s->expert_bytes) {
        survey_free(s);
        return error_set(e, ERR_MEMORY, "out of memory for the placement");
    }
    s->model = m;
    for (int l = 0; l < layers; l++) {
        s->attention_bytes[l] = residency_block_bytes(m, (struct block_id){BLOCK_ATTENTION, l, 0}) + kv;
        for (int x = 0; x < experts; x++)
            s->expert_bytes[l * experts + x] = residency_block_bytes(m, (struct block_id){BLOCK_EXPERT, l, x});
    }
    s->input = (struct planner_input){
        .n_layers = layers, .n_experts = experts, .n_experts_used = m->hp.n_experts_used, .n_devices = 1,
        .attention_bytes = s->attention_bytes, .expert_bytes = s->expert_bytes, .head_bytes = m->head.bytes,
    };
    s->input.devices[0] = (struct planner_device){.name = "the CPU", .budget = PLANNER_NO_LIMIT, .head_can = true};
    *out = s;
    return 0;
}

void survey_free(struct survey *s)
{
    if (!s)
        return;
    mem_free(s->attention_bytes);
    mem_free(s->expert_bytes);
    for (int d = 0; d < DEVICE_MAX; d++) {
        mem_free(s->attention_can[d]);
        mem_free(s->experts_can[d]);
    }
    mem_free(s);
}

void survey_found(struct survey *s, int index, const struct device_info *info)
{
    if (index <= 0 || index >= PLANNER_DEVICES)
        return;
    if (index >= s->input.n_devices)
        s->input.n_devices = index + 1;
    snprintf(s->names[index], sizeof s->names[index], "%s (%s)", info->selector, info->name);
    s->input.devices[index] = (struct planner_device){
        .name = s->names[index], .fuses_layers = true, .head_can = true,
        .budget = info->memory ? (uint64_t)((double)info->memory * KEEP_FREE) : PLANNER_NO_LIMIT,
    };
    if (!s->input.target)
        s->input.target = index;
}

void survey_device(struct survey *s, int index, const struct device *dev)
{
    const struct device_base *base = (const struct device_base *)dev;
    struct planner_device *d = &s->input.devices[index];
    int layers = s->input.n_layers, experts = s->input.n_experts;

    if (index <= 0 || index >= PLANNER_DEVICES)
        return;
    if (index >= s->input.n_devices)
        s->input.n_devices = index + 1;
    snprintf(s->names[index], sizeof s->names[index], "%s (%s)", base->info.selector, base->info.name);
    *d = (struct planner_device){.name = s->names[index], .fuses_layers = base->ops->layers != NULL};
    d->budget = base->info.memory ? (uint64_t)((double)base->info.memory * KEEP_FREE) : PLANNER_NO_LIMIT;
    if (!s->attention_can[index])
        s->attention_can[index] = mem_alloc((size_t)layers, 1);
    if (!s->experts_can[index])
        s->experts_can[index] = mem_alloc((size_t)layers * (size_t)experts, 1);
    d->attention_can = s->attention_can[index];
    d->experts_can = s->experts_can[index];
    if (!d->attention_can || !d->experts_can) {          /* without the tables nothing can be promised */
        d->budget = 0;
        return;
    }
    d->head_can = residency_supports(dev, s->model, (struct block_id){BLOCK_HEAD, 0, 0});
    for (int l = 0; l < layers; l++) {
        s->attention_can[index][l] = residency_supports(dev, s->model, (struct block_id){BLOCK_ATTENTION, l, 0});
        for (int x = 0; x < experts; x++)
            s->experts_can[index][l * experts + x] = residency_supports(dev, s->model, (struct block_id){BLOCK_EXPERT, l, x});
    }
    if (!s->input.target)
        s->input.target = index;
}

void survey_lost(struct survey *s, int index)
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

struct planner_input *survey_input(struct survey *s)
{
    return &s->input;
}

/* Buffers of one measurement. */
struct bench {
    struct survey *s;
    struct device *dev;
    const struct device_ops *ops;
    int index, kv_len;
    const struct plan *plans[2];
    float *x, *y;
    /* inputs of jobs live until they are waited for */
    struct expert_group groups[16];
    int row[16], slot[16];
    struct error *e;
};

static bool planned_there(const struct bench *b, struct block_id id)
{
    for (int i = 0; i < 2; i++) {
        const struct plan *p = b->plans[i];

        if (p && (id.kind == BLOCK_HEAD ? p->head : id.kind == BLOCK_EXPERT ? plan_expert(p, id.layer, id.expert) : p->attention[id.layer]) == b->index)
            return true;
    }
    return false;
}

static int bring(struct bench *b, struct block_id id)
{
    int rc = b->index == 0 || planned_there(b, id);

    while (rc == 0)
        rc = b->ops->block_put(b->dev, id, RESIDENCY_CHUNK, b->e);
    return rc < 0 ? rc : 0;
}

static void take_away(struct bench *b, struct block_id id)
{
    if (b->index && !planned_there(b, id))
        b->ops->block_drop(b->dev, id);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

typedef int (*job_fn)(struct bench *b, int layer, int n);

static int run_attention(struct bench *b, int layer, int n)
{
    struct attention_job j = {.layer = layer, .rows = 1, .pos = b->kv_len, .x = b->x, .y = b->y};

    return b->ops->attention(b->dev, &j, b->e);
}

static int run_experts(struct bench *b, int layer, int n)
{
    struct experts_job j = {.layer = layer, .rows = 1, .h = b->x, .n_groups = n, .groups = b->groups, .row = b->row, .slot = b->slot, .out = b->y};

    for (int i = 0; i < n; i++) {
        b->groups[i] = (struct expert_group){.expert = i, .first = i, .count = 1};
        b->row[i] = 0;
        b->slot[i] = i;
    }
    return b->ops->experts(b->dev, &j, b->e);
}

static int run_head(struct bench *b, int layer, int n)
{
    struct head_job j = {.rows = 1, .x = b->x, .logits = b->y};

    return b->ops->head(b->dev, &j, b->e);
}

/* Median nanoseconds of a job over the layers first .. first+count-1 in turn. */
static int median_ns(struct bench *b, job_fn fn, int n, int first, int count, double *out)
{
    double t[REPEATS];

    for (int i = -WARM_UPS; i < REPEATS; i++) {
        uint64_t start = clock_now();
        int rc = fn(b, first + (i + WARM_UPS) % count, n);

        if (rc == 0)
            rc = b->ops->wait(b->dev, b->e);
        if (rc < 0)
            return rc;
        if (i >= 0)
            t[i] = (double)(clock_now() - start);
    }
    qsort(t, REPEATS, sizeof *t, by_value);
    *out = t[REPEATS / 2];
    return 0;
}

/* First run of layers (at most max) that the device can hold for the kind; 0 when none. */
static int usable_layers(const struct bench *b, enum block_kind kind, int used, int max, int *first)
{
    int n = 0;

    for (int l = 0; l < b->s->input.n_layers && n < max; l++) {
        bool can = true;

        for (int x = 0; x < (kind == BLOCK_EXPERT ? used : 1); x++)
            can = can && (b->index == 0 || residency_supports(b->dev, b->s->model, (struct block_id){kind, l, x}));
        if (can && n++ == 0)
            *first = l;
        if (!can && n)
            break;
    }
    return n;
}

static int measure_experts(struct bench *b, struct planner_device *d, int max)
{
    int used = b->s->input.n_experts_used < 16 ? b->s->input.n_experts_used : 16, first = 0, rc = 0;
    int n = usable_layers(b, BLOCK_EXPERT, used, max, &first);
    double one = 0, all = 0;

    if (!n || !used)
        return 0;
    for (int i = 0; i < n * used && rc == 0; i++)
        rc = bring(b, (struct block_id){BLOCK_EXPERT, first + i / used, i % used});
    if (rc == 0)
        rc = median_ns(b, run_experts, 1, first, n, &one);
    if (rc == 0)
        rc = median_ns(b, run_experts, used, first, n, &all);
    for (int i = 0; i < n * used; i++)
        take_away(b, (struct block_id){BLOCK_EXPERT, first + i / used, i % used});
    if (rc < 0)
        return rc;
    /* t = handoff + calls * expert; noise may turn the slope around */
    d->expert_ns = used > 1 && all > one ? (all - one) / (used - 1) : all / used;
    if (b->index == 0)
        d->expert_ns = all / used;                       /* launching is part of the CPU's work */
    else
        d->handoff_ns = one > d->expert_ns ? one - d->expert_ns : 0;
    return 0;
}

static int measure_attention(struct bench *b, struct planner_device *d, int max)
{
    int first = 0, n = usable_layers(b, BLOCK_ATTENTION, 1, max, &first), rc = 0;
    double ns = 0;

    if (!n || b->kv_len < 0)
        return 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = bring(b, (struct block_id){BLOCK_ATTENTION, first + i, 0});
    if (rc == 0)
        rc = median_ns(b, run_attention, 1, first, n, &ns);
    for (int i = 0; i < n; i++)
        take_away(b, (struct block_id){BLOCK_ATTENTION, first + i, 0});
    if (rc == 0)
        d->attention_ns = ns > 2 * d->handoff_ns ? ns - d->handoff_ns : ns / 2 + 1;
    return rc;
}

static int measure_head(struct bench *b, struct planner_device *d)
{
    struct block_id id = {BLOCK_HEAD, 0, 0};
    double ns = 0;
    int rc = bring(b, id);

    if (rc == 0)
        rc = median_ns(b, run_head, 1, 0, 1, &ns);
    take_away(b, id);
    if (rc == 0)
        d->head_ns = ns > 2 * d->handoff_ns ? ns - d->handoff_ns : ns / 2 + 1;
    return rc;
}

int survey_measure(struct survey *s, struct device *const *devices, int n_devices, int kv_len, const struct plan *in_force, const struct plan *wanted,
                   struct error *e)
{
    const struct hparams *hp = &s->model->hp;
    int widest = hp->n_vocab > 16 * hp->hidden ? hp->n_vocab : 16 * hp->hidden, rc = 0;
    float *x = mem_alloc((size_t)hp->hidden, sizeof *x), *y = mem_alloc((size_t)widest, sizeof *y);

    if (!x || !y)
        rc = error_set(e, ERR_MEMORY, "out of memory for measuring the devices");
    for (int i = 0; i < hp->hidden && rc == 0; i++)
        x[i] = (float)((i * 7919) % 255 - 127) * 0.01f;
    for (int d = 0; d < n_devices && d < s->input.n_devices && rc == 0; d++) {
        struct planner_device *v = &s->input.devices[d];
        const struct device_base *base = (const struct device_base *)devices[d];
        struct bench b = {.s = s, .dev = devices[d], .index = d, .x = x, .y = y, .e = e, .plans = {in_force, wanted}};

        if (!base || (d && v->budget == 0))
            continue;
        b.ops = base->ops;
        b.kv_len = kv_len < base->config.context ? kv_len : -1;
        if (v->expert_ns <= 0)
            rc = measure_experts(&b, v, d ? GPU_BLOCKS : s->input.n_layers);
        if (rc == 0 && v->attention_ns <= 0)
            rc = measure_attention(&b, v, d ? GPU_BLOCKS : s->input.n_layers);
        if (rc == 0 && v->head_ns <= 0 && v->head_can)
            rc = measure_head(&b, v);
        if (rc < 0)
            error_prefix(e, "measuring %s", v->name);
    }
    mem_free(x);
    mem_free(y);
    return rc;
}

static void verdict_path(const struct survey *s, const char *cache_dir, const struct device *target, char *out, size_t size)
{
    const struct device_base *b = (const struct device_base *)target;
    uint64_t h = s->model->hash ^ 14695981039346656037u;
    const char *parts[] = {b->ops->name, b->info.name, b->info.driver};

    for (int i = 0; i < 3; i++)
        for (const char *p = parts[i]; *p; p++)
            h = (h ^ (unsigned char)*p) * 1099511628211u;
    snprintf(out, size, "%s/verdict-%016llx", cache_dir, (unsigned long long)h);
}

int survey_verdict_load(struct survey *s, const char *cache_dir, const struct device *target)
{
    char path[4096], spec[PLAN_NAME];
    double loss;
    FILE *f;
    int got;

    if (!cache_dir || !target)
        return 0;
    verdict_path(s, cache_dir, target, path, sizeof path);
    f = fopen(path, "r");
    if (!f)
        return 0;
    got = fscanf(f, "%63s %lf", spec, &loss);
    fclose(f);
    if (got != 2 || !(loss > -100 && loss < 1e6))
        return 0;
    memcpy(s->verdict, spec, sizeof spec);
    s->input.verdict = s->verdict;
    s->input.verdict_loss = loss;
    return 1;
}

int survey_verdict_store(struct survey *s, const char *cache_dir, const struct device *target, const char *spec, double loss, struct error *e)
{
    char path[4096], temporary[4200];
    FILE *f;

    snprintf(s->verdict, sizeof s->verdict, "%s", spec);
    s->input.verdict = s->verdict;
    s->input.verdict_loss = loss;
    if (!cache_dir)
        return 0;
    verdict_path(s, cache_dir, target, path, sizeof path);
    snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    f = fopen(temporary, "w");
    if (!f && errno == ENOENT && mkdir(cache_dir, 0755) == 0)
        f = fopen(temporary, "w");
    if (!f)
        return error_set(e, ERR_IO, "%s: %s; the verdict of auto is kept for this run only", temporary, strerror(errno));
    fprintf(f, "%s %.4f\n%s\n%s\n", spec, loss, s->model->name, s->names[s->input.target]);
    if (fclose(f) != 0 || rename(temporary, path) != 0) {
        remove(temporary);
        return error_set(e, ERR_IO, "%s: %s; the verdict of auto is kept for this run only", path, strerror(errno));
    }
    return 0;
}
