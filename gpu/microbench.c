/* See microbench.h. Measured: the jobs of a pass run as an engine would give them, every launch's
 * event is kept, and each is described by the entry of pass_work.h with its name and sizes.
 * Predicted: those entries and a time model. */
#include "gpu/blas.h"
#include "gpu/internal.h"
#include "gpu/microbench.h"
#include "gpu/pass_work.h"
#include "engine/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS 5 /* after one that is not counted */
#define WEIGHT_BYTES                                                            \
    ((uint64_t)1 << 29) /* layers that are measured: this much, or all there is \
                         */
#define READ_FLOATS ((size_t)1 << 24)
#define COPY_BYTES ((size_t)1 << 28)

struct bench {
    struct device *d;
    struct pass_work list;
    struct launch_trace trace;
    double *best; /* seconds of each launch of a pass; n of them */
    int n, layers;
    float *x, *out, *weights, *logits;
    int *experts, *row, *slot;
    struct expert_group *groups;
    size_t out_floats;
};

/* ---- Rows of the result ---- */

static struct device_kernel *row_of(struct device_kernel *out, int *n, int max, int pass,
                                    const char *name, const char *shape)
{
    for (int i = 0; i < *n; i++)
        if (out[i].pass == pass && strcmp(out[i].name, name) == 0 &&
            strcmp(out[i].shape, shape) == 0)
            return &out[i];
    if (*n == max)
        return NULL;
    out[*n] = (struct device_kernel){.pass = pass};
    snprintf(out[*n].name, sizeof out[*n].name, "%s", name);
    snprintf(out[*n].shape, sizeof out[*n].shape, "%s", shape);
    return &out[(*n)++];
}

/* A launch more: seconds are a sum until finish_rows. */
static void add_launch(struct device_kernel *out, int *n, int max, int pass,
                       const struct launch_work *l, double seconds)
{
    struct device_kernel *k = row_of(out, n, max, pass, l->name, l->shape);

    if (!k)
        return;
    k->launches++;
    k->seconds += seconds;
    k->bytes = l->work.bytes;
    k->ops = l->ops;
}

static int finish_rows(struct device_kernel *out, int n)
{
    for (int i = 0; i < n; i++)
        out[i].seconds /= out[i].launches;
    return n;
}

/* ---- Predicted ---- */

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "OpenCL: out of memory for the microbenchmark");
}

static void target_of(const struct time_model *m, struct cl_target *t)
{
    snprintf(t->info.name, sizeof t->info.name, "%s", m->name);
    t->group_items = (cl_ulong)m->group_items;
    t->local_bytes = (cl_ulong)m->local_bytes;
    t->align = (cl_uint)m->align;
    t->engine = m->engine;
}

/* Seconds of a pass of one token in the launches of a kernel, or of those that do its work. */
static int predict_kernel(struct device *d, const struct time_model *m, int layers, int depth,
                          enum token_kernel k, double *seconds, struct error *e)
{
    const char *names[TOKEN_KERNELS][2] = {
        {"matmul", "down"}, {"gate_up", "token_gate_up"}, {"token_down", ""}, {"token_output", ""}};
    struct pass_work list;

    *seconds = 0;
    if (pass_work_list(d, 0, layers, 1, depth, &list, e) < 0)
        return ERR_MEMORY;
    for (int i = 0; i < list.n; i++)
        if (strcmp(list.at[i].name, names[k][0]) == 0 || strcmp(list.at[i].name, names[k][1]) == 0)
            *seconds += time_model_seconds(m, &list.at[i].work);
    pass_work_release(&list);
    return 0;
}

/* Shapes of one token's work-groups as the device would choose them, by the model's times. */
static int predict_shapes(struct device *d, const struct time_model *m, int layers, int depth,
                          struct error *e)
{
    for (int t = 0; t < DTYPE_COUNT; t++) {
        struct token_times *s = kernel_set_has_shapes(d, t) ? mem_alloc(1, sizeof *s) : NULL;
        int fastest[TOKEN_KERNELS], rc = 0;

        if (!kernel_set_has_shapes(d, t))
            continue;
        for (int k = 0; k < TOKEN_KERNELS && s && rc == 0; k++) {
            double by_rule = 0, seconds = 0;

            d->type[t].shapes = d->rule;
            rc = predict_kernel(d, m, layers, depth, k, &by_rule, e);
            for (int i = 0; i < TOKEN_CANDIDATES && rc == 0; i++) {
                d->type[t].shapes = kernel_set_candidate(d, t, i);
                rc = predict_kernel(d, m, layers, depth, k, &seconds, e);
                s->measured[i] = true;
                s->ratio[i][k] = by_rule > 0 ? seconds / by_rule : 0;
            }
            fastest[k] = token_fastest(s, k);
        }
        if (s && rc == 0)
            d->type[t].shapes = kernel_set_mixed(d, t, fastest);
        mem_free(s);
        if (!s || rc < 0)
            return rc < 0 ? rc : no_memory(e);
    }
    return 0;
}

static int predict(struct device *d, const struct time_model *m, const struct device_pass *passes,
                   int n_passes, struct device_kernel *out, int max, struct device_kernels *about,
                   struct error *e)
{
    int n = 0;

    d->core_usable = d->attention_usable = true;
    for (int t = 0; t < DTYPE_COUNT; t++)
        d->type[t].usable = d->type[t].wanted;
    pass_work_forms(d);
    for (int p = 0; p < n_passes; p++)
        if (passes[p].rows == 1) {
            if (predict_shapes(d, m, about->of_layers, passes[p].depth, e) < 0)
                return ERR_MEMORY;
            break;
        }
    kernel_set_describe(d, 0);
    snprintf(about->shapes, sizeof about->shapes, "%s", d->shapes);
    for (int p = 0; p < n_passes; p++) {
        struct device_stats unused = {0};
        struct pass_work list;

        d->base.config.max_rows = passes[p].rows;
        memory_footprint(d, NULL, 0, &unused); /* sets part_bytes */
        if (pass_work_list(d, 0, about->of_layers, passes[p].rows, passes[p].depth, &list, e) < 0)
            return ERR_MEMORY;
        about->layers = list.layers;
        for (int i = 0; i < list.n; i++)
            add_launch(out, &n, max, p, &list.at[i], time_model_seconds(m, &list.at[i].work));
        pass_work_release(&list);
    }
    return finish_rows(out, n);
}

/* ---- Measured ---- */

static int put(struct device *d, struct block_id id, struct error *e)
{
    int rc;

    do
        rc = memory_put(d, id, SIZE_MAX, e);
    while (rc == 0);
    return rc < 0 ? rc : 0;
}

/* The first layers that fill WEIGHT_BYTES, and the head. */
static int put_layers(struct bench *b, struct error *e)
{
    const struct model *m = b->d->base.config.model;
    uint64_t bytes = 0;
    int rc = 0;

    for (int l = 0; l < m->hp.n_layers && bytes < WEIGHT_BYTES && rc == 0; l++) {
        struct block_id id = {BLOCK_ATTENTION, l, 0};

        if (!pass_work_runs(b->d, l))
            continue;
        b->layers++;
        rc = put(b->d, id, e);
        bytes += model_block_bytes(m, id);
        id.kind = BLOCK_EXPERT;
        for (; id.expert < shape_experts(hparams_layer(&m->hp, l)) && rc == 0; id.expert++) {
            rc = put(b->d, id, e);
            bytes += model_block_bytes(m, id);
        }
    }
    if (rc == 0 && kernel_set_runs(b->d, NULL, BLOCK_HEAD, m->head.type))
        rc = put(b->d, (struct block_id){BLOCK_HEAD, 0, 0}, e);
    return rc;
}

/* Experts of a layer whose rows the host groups: the choices of pass_work_expert. */
static int run_experts(struct bench *b, int layer, int rows, struct error *e)
{
    const struct ffn_shape *s = &hparams_layer(&b->d->base.config.model->hp, layer)->ffn;
    int used = s->used + s->shared, n = 0;
    struct experts_job j = {.layer = layer,
                            .rows = rows,
                            .h = b->x,
                            .groups = b->groups,
                            .row = b->row,
                            .slot = b->slot,
                            .out = b->out};

    for (int x = 0; x < s->experts + s->shared; x++) {
        int first = n;

        for (int i = 0; i < rows * used; i++)
            if (pass_work_expert(s, i) == x) {
                b->row[n] = i / used;
                b->slot[n++] = i % used;
            }
        if (n > first)
            b->groups[j.n_groups++] = (struct expert_group){x, first, n - first};
    }
    return jobs_experts(b->d, &j, e);
}

static int run_single(struct bench *b, int layer, const struct device_pass *p, struct error *e)
{
    struct attention_job a = {
        .layer = layer, .rows = p->rows, .pos = p->depth, .x = b->x, .y = b->out};

    if (jobs_attention(b->d, &a, e) < 0 || job_harvest(b->d, e) < 0 ||
        run_experts(b, layer, p->rows, e) < 0)
        return ERR_DEVICE;
    return job_harvest(b->d, e);
}

/* Layers one after the other that run fused are one job. */
static int run_pass(struct bench *b, const struct device_pass *p, struct error *e)
{
    struct device *d = b->d;
    int n_layers = d->base.config.model->hp.n_layers;
    struct head_job head = {.rows = 1, .x = b->x, .logits = b->logits};

    for (int l = 0, done = 0; l < n_layers && done < b->layers; l++) {
        struct layers_job j = {.first = l,
                               .rows = p->rows,
                               .pos = p->depth,
                               .x = b->x,
                               .experts = b->experts,
                               .weights = b->weights};

        if (!pass_work_runs(d, l))
            continue;
        done++;
        if (!kernel_set_fuses(d, l)) {
            if (run_single(b, l, p, e) < 0)
                return ERR_DEVICE;
            continue;
        }
        while (l + 1 < n_layers && done < b->layers && kernel_set_fuses(d, l + 1) &&
               pass_work_runs(d, l + 1)) {
            l++;
            done++;
        }
        j.last = l + 1;
        if (jobs_layers(d, &j, e) < 0 || job_harvest(d, e) < 0)
            return ERR_DEVICE;
    }
    if (d->head.state != BLOCK_RESIDENT)
        return 0;
    return jobs_head(d, &head, e) < 0 ? ERR_DEVICE : job_harvest(d, e);
}

/* Takes the least of each launch so far. */
static void trace_take(struct bench *b, bool counted)
{
    for (int i = 0; i < b->trace.n; i++) {
        double seconds = launch_seconds(b->trace.at[i].event);

        if (counted && i < b->n)
            b->best[i] = seconds < b->best[i] ? seconds : b->best[i];
        cl.ReleaseEvent(b->trace.at[i].event);
    }
}

static bool described(const struct launch_work *l, const struct launch_record *r)
{
    return strcmp(l->name, r->name) == 0 && l->items == r->items && l->group == r->group;
}

static int measure_pass(struct bench *b, const struct device_pass *p, int pass,
                        struct device_kernel *out, int *n, int max, struct error *e)
{
    int rc = 0;

    for (int i = 0; i < b->n; i++)
        b->best[i] = INFINITY;
    for (int round = 0; round <= ROUNDS && rc == 0; round++) {
        b->trace.n = 0;
        b->d->trace = &b->trace;
        rc = run_pass(b, p, e);
        b->d->trace = NULL;
        if (rc < 0)
            cl.Finish(b->d->queue);
        trace_take(b, round > 0);
    }
    if (rc == 0 && b->trace.n != b->list.n)
        return error_set(e, ERR_DEVICE, "OpenCL %s: a pass of %d launches made %d",
                         b->d->target.info.name, b->list.n, b->trace.n);
    for (int i = 0; i < b->n && rc == 0; i++) {
        if (!described(&b->list.at[i], &b->trace.at[i]))
            return error_set(e, ERR_DEVICE, "OpenCL %s: launch %d is %s of %zu, not %s of %zu",
                             b->d->target.info.name, i, b->trace.at[i].name, b->trace.at[i].items,
                             b->list.at[i].name, b->list.at[i].items);
        add_launch(out, n, max, pass, &b->list.at[i], b->best[i]);
    }
    return rc;
}

static int alloc(struct bench *b, int rows, struct error *e)
{
    const struct hparams *hp = &b->d->base.config.model->hp;
    size_t n = (size_t)rows * (size_t)(hp->n_experts_used > 0 ? hp->n_experts_used : 1),
           hidden = (size_t)hp->hidden, x = 2 * (size_t)rows * hidden;

    b->out_floats = n * hidden;
    if (!(b->x = mem_alloc(x, sizeof(float))) ||
        !(b->out = mem_alloc(b->out_floats, sizeof(float))) ||
        !(b->weights = mem_alloc(n * (size_t)hp->n_layers, sizeof(float))) ||
        !(b->experts = mem_alloc(n * (size_t)hp->n_layers, sizeof(int))) ||
        !(b->row = mem_alloc(n, sizeof(int))) || !(b->slot = mem_alloc(n, sizeof(int))) ||
        !(b->groups = mem_alloc((size_t)hp->n_experts + 1, sizeof *b->groups)) ||
        !(b->logits = mem_alloc((size_t)hp->n_vocab, sizeof(float))))
        return no_memory(e);
    for (size_t i = 0; i < x; i++)
        b->x[i] = (float)((int)(i * 2654435761u >> 16 & 255) - 128) * 0.01f;
    return 0;
}

static void bench_release(struct bench *b)
{
    pass_work_release(&b->list);
    mem_free(b->trace.at);
    mem_free(b->best);
    mem_free(b->x);
    mem_free(b->out);
    mem_free(b->weights);
    mem_free(b->experts);
    mem_free(b->row);
    mem_free(b->slot);
    mem_free(b->groups);
    mem_free(b->logits);
}

/* A GPU's, of its own copies, both ways counted: a work-item that reads 128 bytes, as below, gave a
 * tenth of an H200's. 0: not measured. */
static double copy_rate(struct device *d)
{
    size_t limit = d->target.info.max_alloc / 4, bytes = COPY_BYTES < limit ? COPY_BYTES : limit;
    cl_mem from = NULL, to = NULL;
    double best = INFINITY;
    struct error e;

    if (memory_buffer(d, bytes, &from, "measuring", &e) == 0 &&
        memory_buffer(d, bytes, &to, "measuring", &e) == 0)
        for (int i = 0; i < 4; i++) {
            cl_event ev = NULL;

            if (cl.EnqueueCopyBuffer(d->queue, from, to, 0, 0, bytes, 0, NULL, &ev) != CL_SUCCESS)
                break;
            if (cl.WaitForEvents(1, &ev) == CL_SUCCESS && i && launch_seconds(ev) > 0)
                best = fmin(best, launch_seconds(ev));
            cl.ReleaseEvent(ev);
        }
    memory_release(&from);
    memory_release(&to);
    return best < INFINITY ? 2.0 * (double)bytes / best : 0;
}

/* What a CPU's OpenCL reads: a kernel that reads 128 bytes a work-item and writes a third of that.
 * 0: not measured. */
static double kernel_rate(struct device *d)
{
    size_t n = READ_FLOATS, act = d->wide ? 4 : 1, limit = d->target.info.max_alloc / 4;
    cl_mem x = NULL, q = NULL, s = NULL, t = NULL;
    struct launch_trace *before = d->trace;
    struct launch_record r[4];
    struct launch_trace trace = {r, 0, 4};
    double best = INFINITY;
    struct error e;

    n = n < limit ? n : limit / 32 * 32;
    if (memory_buffer(d, n * 4, &x, "measuring", &e) == 0 &&
        memory_buffer(d, n * act, &q, "measuring", &e) == 0 &&
        memory_buffer(d, n / 8, &s, "measuring", &e) == 0 &&
        memory_buffer(d, n / 8, &t, "measuring", &e) == 0) {
        d->trace = &trace;
        for (int i = 0; i < trace.room; i++)
            if (job_begin(d, &e) < 0 ||
                launch_args(d, d->core[CORE_QUANTISE], 0, &e, "mmmmi", x, q, s, t, (int)(n / 32)) <
                    0 ||
                launch_core(d, CORE_QUANTISE, "quantise", n / 32, 1, 1, CORE_ITEMS, &e) < 0 ||
                job_end(d, &e) < 0 || job_harvest(d, &e) < 0)
                break;
        d->trace = before;
    }
    for (int i = 0; i < trace.n; i++) {
        double seconds = launch_seconds(r[i].event);

        if (i && seconds > 0 && seconds < best)
            best = seconds;
        cl.ReleaseEvent(r[i].event);
    }
    memory_release(&x);
    memory_release(&q);
    memory_release(&s);
    memory_release(&t);
    return best < INFINITY ? (double)n * (4 + (double)act + 0.25) / best : 0;
}

static int measure(struct device *d, const struct device_pass *passes, int n_passes,
                   struct device_kernel *out, int max, struct device_kernels *about,
                   struct error *e)
{
    struct bench b = {.d = d};
    int rc, n = 0;

    d->blas.use = false; /* the kernels, not the library */
    about->read_rate = d->wide ? kernel_rate(d) : copy_rate(d);
    rc = alloc(&b, d->base.config.max_rows, e);
    if (rc == 0)
        rc = put_layers(&b, e);
    about->layers = b.layers;
    for (int p = 0; p < n_passes && rc == 0; p++) {
        rc = pass_work_list(d, 0, b.layers, passes[p].rows, passes[p].depth, &b.list, e);
        b.n = b.list.n;
        b.trace = (struct launch_trace){.room = b.n + 1};
        if (rc == 0 && (!(b.trace.at = mem_alloc((size_t)b.n + 1, sizeof *b.trace.at)) ||
                        !(b.best = mem_alloc((size_t)b.n + 1, sizeof *b.best))))
            rc = no_memory(e);
        if (rc == 0)
            rc = measure_pass(&b, &passes[p], p, out, &n, max, e);
        pass_work_release(&b.list);
        mem_free(b.trace.at);
        mem_free(b.best);
        b.trace.at = NULL;
        b.best = NULL;
    }
    bench_release(&b);
    return rc < 0 ? rc : finish_rows(out, n);
}

static int open_and_measure(const struct device_ops *ops, const struct device_config *c,
                            const struct device_pass *passes, int n_passes,
                            struct device_kernel *out, int max, struct device_kernels *about,
                            struct error *e)
{
    struct opencl_tuning before = *opencl_tuning(), own = before;
    struct device *d = NULL;
    int rc;

    own.copy = true; /* weights in the device's own memory: the experts of a layer joined */
    opencl_tune(&own);
    rc = ops->open(&d, c, e);
    if (rc == 0) {
        snprintf(about->device, sizeof about->device, "%s", d->target.info.name);
        about->is_cpu_type = d->target.info.is_cpu_type;
        snprintf(about->shapes, sizeof about->shapes, "%s", d->shapes);
        rc = measure(d, passes, n_passes, out, max, about, e);
        ops->close(d);
    }
    opencl_tune(&before);
    return rc;
}

int microbench_kernels(const struct device_ops *ops, const struct device_config *c,
                       const char *card, const struct device_pass *passes, int n_passes,
                       struct device_kernel *out, int max, struct device_kernels *about,
                       struct error *e)
{
    const struct time_model *m = card ? time_model_find(card) : NULL;
    struct device_config own = *c;
    struct device *d;
    int rc;

    own.max_rows = own.context = 1;
    for (int i = 0; i < n_passes; i++) {
        int end = passes[i].rows + passes[i].depth;

        own.max_rows = passes[i].rows > own.max_rows ? passes[i].rows : own.max_rows;
        own.context = end > own.context ? end : own.context;
    }
    memset(about, 0, sizeof *about);
    about->of_layers = c->model->hp.n_layers;
    if (!card)
        return open_and_measure(ops, &own, passes, n_passes, out, max, about, e);
    if (!m)
        return error_set(e, ERR_USAGE, "no times are known of a card named %s", card);
    if (!(d = mem_alloc(1, sizeof *d)))
        return no_memory(e);
    snprintf(about->device, sizeof about->device, "%s", m->name);
    about->predicted = true;
    about->read_rate = m->bytes * 1e6;
    struct opencl_tuning before = *opencl_tuning();

    d->base.config = own;
    target_of(m, &d->target);
    opencl_tune(NULL);
    kernel_set_shape(d);
    opencl_tune(&before);
    rc = predict(d, m, passes, n_passes, out, max, about, e);
    mem_free(d);
    return rc;
}
