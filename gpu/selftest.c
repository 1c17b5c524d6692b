/* Every kernel against the reference of the numeric contract (engine/device/numerics.h), on the shapes and weights of the model, at the
 * first use of a driver; drivers do miscompute. The verdict is kept beside the compiled programs. Engine thread, inside open: this may
 * allocate and wait. A wrong kernel takes out of use what needs it, and is named in the log. */
#include "gpu/selftest.h"
#include "engine/base/cache.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/device/numerics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define VERDICT_FORMAT "moetop self-test 3"
#define VERDICT_MOST 65536

float selftest_uniform(struct selftest *b)
{
    b->seed = b->seed * 1664525u + 1013904223u;
    return (float)(int)(b->seed >> 8) / 8388608.0f - 1.0f;
}

float *selftest_randoms(struct selftest *b, size_t n, float scale)
{
    float *x = mem_alloc(n, sizeof *x);

    for (size_t i = 0; x && i < n; i++)
        x[i] = selftest_uniform(b) * scale;
    return x;
}

void selftest_wrong(struct selftest *b, const char *name)
{
    if (b->v->n < SELFTEST_WRONG_MAX)
        snprintf(b->v->wrong[b->v->n++], sizeof b->v->wrong[0], "%s", name);
}

static bool is_wrong(const struct verdict *v, const char *name)
{
    for (int i = 0; i < v->n; i++)
        if (strcmp(v->wrong[i], name) == 0)
            return true;
    return false;
}

int selftest_put(struct selftest *b, cl_mem mem, const void *data, size_t bytes)
{
    return cl_check(b->d, clEnqueueWriteBuffer(b->d->queue, mem, CL_TRUE, 0, bytes, data, 0, NULL, NULL), "self-test", b->e);
}

int selftest_get(struct selftest *b, cl_mem mem, size_t offset, void *data, size_t bytes)
{
    return cl_check(b->d, clEnqueueReadBuffer(b->d->queue, mem, CL_TRUE, offset, bytes, data, 0, NULL, NULL), "self-test", b->e);
}

int selftest_core(struct selftest *b, enum core_kernel k, const char *name, size_t x, size_t y, size_t z, size_t local)
{
    size_t global[3] = {(x + local - 1) / local * local, y, z}, items[3] = {local, 1, 1};

    return launch(b->d, b->d->core[k], name, 3, global, items, b->e);
}

int selftest_same_quantised(struct selftest *b, const struct rows_q *q, const float *x, int rows, int cols, bool *same)
{
    size_t n = (size_t)rows * (size_t)cols, blocks = n / 32;
    char *got = mem_alloc(n, 4);
    float *d = mem_alloc(blocks, 8), *s = d ? d + blocks : NULL;
    int rc = got && d ? 0 : error_set(b->e, ERR_MEMORY, "out of memory");

    if (rc == 0 && (selftest_get(b, q->q, 0, got, n * (b->d->dot8 ? 1 : 4)) < 0 || selftest_get(b, q->d, 0, d, blocks * 4) < 0 || selftest_get(b, q->s, 0, s, blocks * 4) < 0))
        rc = ERR_DEVICE;
    for (size_t k = 0; k < blocks && rc == 0; k++) {
        int8_t want[32];
        int32_t sum;
        float scale = num_quantise_block(x + k * 32, want, &sum);

        *same = *same && num_bits(scale) == num_bits(d[k]) && s[k] == (float)sum;
        for (size_t i = 0; i < 32; i++)
            *same = *same && (b->d->dot8 ? ((int8_t *)got)[k * 32 + i] == want[i] : ((float *)got)[k * 32 + i] == (float)want[i]);
    }
    mem_free(got);
    mem_free(d);
    return rc;
}

/* A matrix of a type that meets rows of the residual stream's width, and an expert that has it anywhere. */
static const struct matrix *find_matrix(const struct model *m, enum dtype type)
{
    for (int l = 0; l < m->hp.n_layers; l++) {
        const struct layer_weights *w = &m->layers[l];
        const struct matrix *list[] = {&w->q, &w->k, &w->v, &w->o, &w->experts[0].gate};

        for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
            if (list[i]->type == type && list[i]->cols <= m->hp.hidden)
                return list[i];
    }
    return m->head.type == type ? &m->head : NULL;
}

static const struct expert_weights *find_expert(const struct model *m, enum dtype type)
{
    for (int l = 0; l < m->hp.n_layers; l++)
        for (int x = 0; x < m->hp.n_experts; x++) {
            const struct expert_weights *w = &m->layers[l].experts[x];

            if ((w->gate.type == type || w->down.type == type) && memory_expert_alike(w))
                return w;
        }
    return NULL;
}

static int run_all(struct selftest *b)
{
    struct device *d = b->d;
    const struct model *m = d->base.config.model;

    bool q8_cache = d->base.config.kv_k == KV_Q8_0 || d->base.config.kv_v == KV_Q8_0;

    if (selftest_norm(b) < 0 || ((!q8_cache || m->hp.head_dim % 32 == 0) && selftest_attention(b) < 0) || selftest_route(b) < 0)
        return ERR_DEVICE;
    for (int t = 0; t < DTYPE_COUNT; t++)
        for (int many = 0; many < 2 && d->type[t].usable; many++) {
            const struct matrix *mat = find_matrix(m, t);
            const struct expert_weights *x = find_expert(m, t);

            if ((mat && selftest_matmul(b, mat, many) < 0) || (x && d->type[x->gate.type].usable && d->type[x->down.type].usable && selftest_expert(b, x, many) < 0))
                return ERR_DEVICE;
        }
    return 0;
}

/* Verdict file: a line that names the format, then one wrong kernel a line, then "end". */
static bool verdict_read(const char *path, struct verdict *v)
{
    char *text, *next = NULL, *line;
    size_t n;
    bool whole = false;

    v->n = 0;
    if (cache_read(path, VERDICT_MOST, &text, &n, NULL) < 0 || !text)
        return false;
    line = strtok_r(text, "\n", &next);
    if (line && strcmp(line, VERDICT_FORMAT) == 0)
        while (!whole && (line = strtok_r(NULL, "\n", &next))) {
            if (strcmp(line, "end") == 0)
                whole = true;
            else if (strncmp(line, "wrong ", 6) == 0 && v->n < SELFTEST_WRONG_MAX)
                snprintf(v->wrong[v->n++], sizeof v->wrong[0], "%.47s", line + 6);
        }
    mem_free(text);
    return whole;
}

static void verdict_write(const char *path, const struct verdict *v)
{
    struct strbuf b = {0};

    strbuf_puts(&b, VERDICT_FORMAT "\n");
    for (int i = 0; i < v->n; i++)
        strbuf_printf(&b, "wrong %s\n", v->wrong[i]);
    strbuf_puts(&b, "end\n");
    if (!b.failed)
        cache_write(path, b.data, b.len, NULL);      /* failing only means that the test is repeated */
    strbuf_release(&b);
}

static void apply(struct device *d, const struct verdict *v)
{
    const struct device_config *c = &d->base.config;
    char line[240], name[48];
    size_t n = 0;

    snprintf(d->verdict, sizeof d->verdict, "every kernel right");
    for (int i = 0; i < v->n && n < sizeof d->verdict; i++)
        n += (size_t)snprintf(d->verdict + n, sizeof d->verdict - n, "%s%s", i ? "; " : "wrong: ", v->wrong[i]);
    for (int i = 0; i < v->n && c->log; i++) {
        snprintf(line, sizeof line, "OpenCL: kernel \"%s\" computes wrong values on %.60s (%.60s); the CPU does that work", v->wrong[i],
                 d->target.info.name, d->target.info.driver);
        c->log(c->log_ctx, line);
    }
    d->core_usable = d->core_usable && !is_wrong(v, "queue") && !is_wrong(v, "norm") && !is_wrong(v, "quantise");
    /* Layers run fused where attention is here, so routing kernels count for it too. */
    d->attention_usable = !is_wrong(v, "rope") && !is_wrong(v, "attend") && !is_wrong(v, "kv_copy") && !is_wrong(v, "route") &&
                          !is_wrong(v, "group_rows") && !is_wrong(v, "combine");
    for (int t = 0; t < DTYPE_COUNT; t++)
        for (int many = 0; many < 2; many++) {
            static const char *const kernels[] = {"matmul", "gate_up", "down"};

            for (int k = 0; k < 3; k++) {
                selftest_name(name, sizeof name, kernels[k], t, many);
                if (!is_wrong(v, name))
                    continue;
                if (k == 0)
                    d->type[t].matmul_wrong = true;
                else
                    d->type[t].expert_wrong = true;
            }
        }
}

int selftest(struct device *d, uint64_t key, struct error *e)
{
    const struct device_config *c = &d->base.config;
    struct verdict v = {0};
    struct selftest b = {d, e, 12345, &v};
    char path[1024] = "", line[240];
    uint64_t start = clock_now();

    d->attention_usable = true;
    snprintf(d->verdict, sizeof d->verdict, "not tested");
    if (opencl_tuning()->no_selftest)
        return 0;
    if (c->cache_dir && snprintf(path, sizeof path, "%s/opencl-%016llx.verdict", c->cache_dir, (unsigned long long)key) >= (int)sizeof path)
        path[0] = '\0';
    if (!path[0] || !verdict_read(path, &v)) {
        v.n = 0;
        if (c->log) {
            snprintf(line, sizeof line, "OpenCL: testing the kernels on %.120s (once per driver and model)", d->target.info.name);
            c->log(c->log_ctx, line);
        }
        if (run_all(&b) < 0)
            return ERR_DEVICE;
        if (path[0])
            verdict_write(path, &v);
        if (c->log) {
            snprintf(line, sizeof line, "OpenCL: self-test took %.1f s, %d kernel%s wrong", clock_seconds(clock_now() - start), v.n, v.n == 1 ? "" : "s");
            c->log(c->log_ctx, line);
        }
    }
    apply(d, &v);
    return 0;
}
