/* The OpenCL device: opening, what it supports, and the table of the device contract. Engine thread.
 * A device opens whole or not at all; a kernel that is wrong takes only what needs it out of use (selftest.c). */
#include "gpu/blas.h"
#include "gpu/internal.h"
#include "engine/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct opencl_tuning opencl_tuning_now;

void opencl_tune(const struct opencl_tuning *t)
{
    opencl_tuning_now = t ? *t : (struct opencl_tuning){0};
}

uint64_t opencl_launches(const struct device *d)
{
    return d->launches;
}

static int probe(struct device_info *out, int max, char *why, size_t why_size)
{
    struct cl_target list[DEVICE_MAX * 2];
    int n = platform_list(list, DEVICE_MAX * 2, why, why_size);

    for (int i = 0; i < n && i < max; i++)
        out[i] = list[i].info;
    return n;
}

static void want(struct device *d, const struct matrix *m)
{
    if (m->rows && m->type < DTYPE_COUNT) {
        d->type[m->type].wanted = true;
        if (m->width)
            d->width = m->width;
    }
}

/* Which element types the model has, and how wide its rows are interleaved. */
static void survey(struct device *d)
{
    const struct model *m = d->base.config.model;

    d->width = 16;
    want(d, &m->head);
    for (int l = 0; l < m->hp.n_layers; l++) {
        const struct layer_weights *w = &m->layers[l];

        want(d, &w->q);
        want(d, &w->k);
        want(d, &w->v);
        want(d, &w->o);
        for (int x = 0; x < m->hp.n_experts; x++) {
            want(d, &w->experts[x].gate);
            want(d, &w->experts[x].up);
            want(d, &w->experts[x].down);
        }
    }
}

/* Quantised types as formats.cl numbers them. */
static const int formats[DTYPE_COUNT] = {[DTYPE_Q8_0] = 1, [DTYPE_Q4_0] = 2, [DTYPE_Q4_1] = 3, [DTYPE_Q5_0] = 4, [DTYPE_Q5_1] = 5,
                                         [DTYPE_IQ4_NL] = 6, [DTYPE_Q4_K] = 7, [DTYPE_Q5_K] = 8, [DTYPE_Q6_K] = 9};

static bool has_kernels(enum dtype t)
{
    return t < DTYPE_COUNT && (formats[t] || t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16);
}

static void options(const struct device *d, char *out, size_t size)
{
    snprintf(out, size, "-cl-std=CL1.2 -DWIDE=%d -DDOT8=%d%s", d->wide, d->dot8, d->dot8 && !d->target.has_dot8 ? " -DDOT8_EMULATED=1" : "");
}

/* KV_Q8_0 has blocks of 32 dimensions. */
static bool cache_supported(const struct device *d, enum kv_type type)
{
    return type == KV_F32 || type == KV_F16 || d->base.config.model->hp.head_dim % 32 == 0;
}

static int build_core(struct device *d, struct error *e)
{
    static const char *const names[CORE_COUNT] = {"norm", "quantise", "rope", "attend", "attend_merge", "route", "group_rows", "combine",
                                                  "kv_copy", "expand", "add_bias", "gather", "scatter", "silu_mul"};
    const struct device_config *c = &d->base.config;
    char text[256];
    size_t n;

    options(d, text, sizeof text);
    n = strlen(text);
    snprintf(text + n, sizeof text - n, " -DKV_K=%d -DKV_V=%d", cache_supported(d, c->kv_k) ? (int)c->kv_k : 0, cache_supported(d, c->kv_v) ? (int)c->kv_v : 0);
    if (program_build(d, "core", "norm, attention and routing", text, &d->core_program, e) < 0)
        return ERR_DEVICE;
    for (int i = 0; i < CORE_COUNT; i++)
        if (program_kernel(d, d->core_program, names[i], &d->core[i], e) < 0)
            return ERR_DEVICE;
    d->core_usable = true;
    return 0;
}

static int build_type(struct device *d, enum dtype type, struct error *e)
{
    struct type_kernels *t = &d->type[type];
    char text[320], what[80];
    size_t n;

    options(d, text, sizeof text);
    n = strlen(text);
    for (int many = 0; many < 2; many++) {
        bool quant = dtype_info(type)->block > 1;

        snprintf(what, sizeof what, "%s kernels, %s", dtype_info(type)->word, many ? "many tokens" : "one token");

        if (quant)
            snprintf(text + n, sizeof text - n, " -DTOKENS=%d -DWIDTH=%d -DFORMAT=%d", many ? d->tile : 1, d->width, formats[type]);
        else
            snprintf(text + n, sizeof text - n, " -DTOKENS=%d -DF16=%d -DBF16=%d", many ? d->tile : 1, type == DTYPE_F16, type == DTYPE_BF16);
        if (program_build(d, quant ? "quant" : "float", what, text, &t->program[many], e) < 0 ||
            program_kernel(d, t->program[many], "matmul", &t->matmul[many], e) < 0 ||
            program_kernel(d, t->program[many], "gate_up", &t->gate_up[many], e) < 0 ||
            program_kernel(d, t->program[many], "down", &t->down[many], e) < 0)
            return ERR_DEVICE;
    }
    t->usable = true;
    return 0;
}

static void say(struct device *d, const char *line)
{
    if (d->base.config.log)
        d->base.config.log(d->base.config.log_ctx, line);
}

static void kernel_release(cl_kernel *k)
{
    if (*k)
        clReleaseKernel(*k);
    *k = NULL;
}

static void programs_release(struct device *d)
{
    for (int i = 0; i < CORE_COUNT; i++)
        kernel_release(&d->core[i]);
    if (d->core_program)
        clReleaseProgram(d->core_program);
    d->core_program = NULL;
    for (int t = 0; t < DTYPE_COUNT; t++)
        for (int many = 0; many < 2; many++) {
            kernel_release(&d->type[t].matmul[many]);
            kernel_release(&d->type[t].gate_up[many]);
            kernel_release(&d->type[t].down[many]);
            if (d->type[t].program[many])
                clReleaseProgram(d->type[t].program[many]);
            d->type[t].program[many] = NULL;
        }
}

static int build(struct device *d, struct error *e)
{
    struct error why;

    if (d->dot8 && build_core(d, &why) < 0) {        /* some drivers name the extension and cannot compile it */
        say(d, why.text);
        programs_release(d);
        d->dot8 = false;
    }
    if (!d->core_usable && build_core(d, e) < 0)
        return ERR_DEVICE;
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (d->type[t].wanted && has_kernels(t) && build_type(d, t, &why) < 0) {
            if (d->lost)
                return error_set(e, ERR_DEVICE, "%s", why.text);
            say(d, why.text);    /* blocks of this type stay with the CPU */
        }
    return 0;
}

static void device_close(struct device *d)
{
    if (!d)
        return;
    if (d->queue && !d->lost)
        clFinish(d->queue);
    job_forget(d);
    stream_set(d, false, NULL);
    blas_close(d);
    memory_close(d);
    programs_release(d);
    if (d->queue)
        clReleaseCommandQueue(d->queue);
    if (d->upload)
        clReleaseCommandQueue(d->upload);
    if (d->context)
        clReleaseContext(d->context);
    mem_free(d);
}

static int device_rope_set(struct device *d, const float *cos, const float *sin, struct error *e)
{
    size_t bytes = (size_t)d->base.config.context * (size_t)d->base.config.model->hp.rope_dims / 2 * 4;

    if (job_harvest(d, e) < 0 || memory_upload(d, d->rope_cos, cos, bytes, e) < 0 || memory_upload(d, d->rope_sin, sin, bytes, e) < 0)
        return ERR_DEVICE;
    d->rope_ready = true;
    return 0;
}

/* What the verdict of the self-test depends on. */
static uint64_t test_key(const struct device *d)
{
    const struct device_config *c = &d->base.config;
    const struct hparams *hp = &c->model->hp;
    char text[256];
    uint64_t h = program_fingerprint(&d->target);

    options(d, text, sizeof text);
    for (const char *p = opencl_tuning_now.broken; p && *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3ull;
    for (const char *p = text; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3ull;
    const int parts[] = {hp->hidden, hp->n_heads, hp->n_kv_heads, hp->head_dim, hp->expert_ffn, hp->n_experts, hp->n_experts_used, hp->rope_dims,
                         hp->sliding_window, c->kv_k, c->kv_v, d->width, d->tile, c->max_rows > 1, c->context < 275};

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        h = (h ^ (uint64_t)(unsigned)parts[i]) * 0x100000001b3ull;
    for (int t = 0; t < DTYPE_COUNT; t++)
        h = (h ^ (uint64_t)d->type[t].wanted) * 0x100000001b3ull;
    return h;
}

/* Everything about the device that does not need a context: which one, and how its kernels will be shaped. */
static int configure(struct device *d, const struct device_config *c, char *why, size_t why_size, struct error *e)
{
    const struct hparams *hp = &c->model->hp;

    d->base.ops = &opencl_device_ops;
    d->base.config = *c;
    if (platform_choose(&d->target, c->selector, why, why_size, e) < 0)
        return e ? e->code : ERR_DEVICE;
    d->base.info = d->target.info;
    /* Mesa's drivers spread work-items over vector lanes themselves and choke on wide vectors. */
    d->wide = opencl_tuning_now.shape ? opencl_tuning_now.shape == 2
                                      : d->target.info.is_cpu_type && strcmp(d->target.platform_name, "rusticl") != 0;
    d->dot8 = (d->target.has_dot8 || opencl_tuning_now.dot8) && !d->wide;
    d->share = d->target.info.unified && !opencl_tuning_now.copy;
    d->tile = opencl_tuning_now.tile ? opencl_tuning_now.tile : TILE;
    d->stride = (c->context + 15) / 16 * 16;
    d->padded_experts = (hp->n_experts + 15) / 16 * 16;
    d->score_scale = 1.0f / sqrtf((float)hp->head_dim);
    survey(d);
    return 0;
}

/* CLBlast's verdict on a device that is a CPU is asked for by --list-devices, with another model: it is one for all. */
static uint64_t blas_key(const struct device *d)
{
    return d->target.info.is_cpu_type ? program_fingerprint(&d->target) : test_key(d);
}

static int device_needs(const struct device_config *c, const struct block_id *blocks, int n_blocks, struct device_stats *out, struct error *e)
{
    struct device *d = mem_alloc(1, sizeof *d);
    char why[512];
    int rc;

    memset(out, 0, sizeof *out);
    if (!d)
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory");
    if ((rc = configure(d, c, why, sizeof why, e)) == 0) {
        memory_needs(d, blocks, n_blocks, out);
        out->scratch_bytes += blas_needs(d, blas_key(d));
    }
    mem_free(d);
    return rc;
}

static int device_open(struct device **out, const struct device_config *c, struct error *e)
{
    const struct hparams *hp = &c->model->hp;
    struct device *d = mem_alloc(1, sizeof *d);
    cl_int rc = CL_SUCCESS;
    char why[512];

    *out = NULL;
    if (!d)
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory");
    if (configure(d, c, why, sizeof why, e) < 0) {
        mem_free(d);
        return e ? e->code : ERR_DEVICE;
    }
    if (why[0])
        say(d, why);             /* a driver was left out */
    if (hp->hidden % 32 || hp->n_heads * hp->head_dim % 32 || hp->head_dim % 8 || hp->expert_ffn % 32) {
        error_set(e, ERR_DEVICE, "OpenCL: the kernels need sizes that are multiples of 32 (hidden %d, heads %d x %d, experts %d)", hp->hidden,
                  hp->n_heads, hp->head_dim, hp->expert_ffn);
        goto fail;
    }
    if (!cl_injected(&rc))
        d->context = clCreateContext(NULL, 1, &d->target.id, NULL, NULL, &rc);
    if (cl_check(d, rc, "clCreateContext", e) < 0)
        goto fail;
    if (!cl_injected(&rc))
        d->queue = clCreateCommandQueue(d->context, d->target.id, CL_QUEUE_PROFILING_ENABLE, &rc);
    if (rc == CL_SUCCESS && !cl_injected(&rc))
        d->upload = clCreateCommandQueue(d->context, d->target.id, CL_QUEUE_PROFILING_ENABLE, &rc);
    if (cl_check(d, rc, "clCreateCommandQueue", e) < 0)
        goto fail;
    if (build(d, e) < 0 || memory_open(d, e) < 0 || selftest(d, test_key(d), e) < 0 ||
        blas_open(d, blas_key(d), opencl_tuning_now.blas > 0, e) < 0)
        goto fail;
    if (c->rope_cos && c->rope_sin && device_rope_set(d, c->rope_cos, c->rope_sin, e) < 0)
        goto fail;
    *out = d;
    return 0;
fail:
    device_close(d);
    return e && e->code < 0 ? e->code : ERR_DEVICE;
}

bool opencl_supports(const struct device *d, enum block_kind kind, enum dtype type)
{
    const struct device_config *c = &d->base.config;

    if (d->lost || !d->core_usable || !has_kernels(type) || !d->type[type].usable)
        return false;
    if (kind == BLOCK_EXPERT ? d->type[type].expert_wrong : d->type[type].matmul_wrong)
        return false;
    if (kind == BLOCK_ATTENTION)
        return d->attention_usable && cache_supported(d, c->kv_k) && cache_supported(d, c->kv_v);
    return true;
}

static int finish(struct device *d, int rc)
{
    if (rc < 0)
        job_abort(d);
    return rc;
}

static int attention(struct device *d, const struct attention_job *j, struct error *e)
{
    return finish(d, jobs_attention(d, j, e));
}

static int experts(struct device *d, const struct experts_job *j, struct error *e)
{
    return finish(d, jobs_experts(d, j, e));
}

static int head(struct device *d, const struct head_job *j, struct error *e)
{
    return finish(d, jobs_head(d, j, e));
}

static int layers(struct device *d, const struct layers_job *j, struct error *e)
{
    return finish(d, jobs_layers(d, j, e));
}

static int wait_all(struct device *d, struct error *e)
{
    return finish(d, job_harvest(d, e));
}

static int kv_rows(struct device *d, const struct kv_move *m, struct error *e)
{
    return finish(d, jobs_kv_rows(d, m, e));
}

static void stats(const struct device *d, struct device_stats *out)
{
    *out = d->stats;
}

const struct device_ops opencl_device_ops = {
    .name = "opencl",
    .summary = "any OpenCL 1.2 device: attention, experts and head, quantised weights to the same bits as the CPU",
    .probe = probe,
    .open = device_open,
    .close = device_close,
    .supports = opencl_supports,
    .block_put = memory_put,
    .block_drop = memory_drop,
    .attention = attention,
    .experts = experts,
    .head = head,
    .layers = layers,
    .wait = wait_all,
    .kv_rows = kv_rows,
    .rope_set = device_rope_set,
    .stats = stats,
    .stream = stream_set,
    .prefetch = stream_prefetch,
    .needs = device_needs,
    .examine = opencl_examine,
};
