/* The OpenCL device: opening and the table of the device contract. Engine thread. A device opens
 * completely or not at all. */
#include "gpu/blas.h"
#include "gpu/internal.h"
#include "gpu/microbench.h"
#include "gpu/opencl.h"
#include "engine/base/hash.h"
#include "engine/base/mem.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

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

struct device_link {
    cl_context context;
    cl_command_queue queue, upload;
};

static atomic_int contexts; /* open ones */

int opencl_contexts(void)
{
    return contexts;
}

static void link_close(struct device_link *l)
{
    cl.ReleaseCommandQueue(l->queue);
    cl.ReleaseCommandQueue(l->upload);
    cl.ReleaseContext(l->context);
    contexts--;
    mem_free(l);
}

/* Uses the context and the queues of a device that was opened before. */
static void link_use(struct device *d, const struct device_link *l)
{
    cl.RetainContext(d->context = l->context);
    cl.RetainCommandQueue(d->queue = l->queue);
    cl.RetainCommandQueue(d->upload = l->upload);
    d->linked = true;
}

/* Shares its own with devices opened later; failure only means that they do not share. */
static void link_leave(struct device *d, struct device_link **to)
{
    struct device_link *l = mem_alloc(1, sizeof *l);

    if (!l)
        return;
    *l = (struct device_link){d->context, d->queue, d->upload};
    cl.RetainContext(l->context);
    cl.RetainCommandQueue(l->queue);
    cl.RetainCommandQueue(l->upload);
    d->linked = true;
    *to = l;
}

static void device_close(struct device *d)
{
    if (!d)
        return;
    if (d->queue && !d->lost)
        cl.Finish(d->queue);
    job_forget(d);
    recordings_close(d);
    expert_swap_set(d, false, NULL);
    blas_close(d);
    memory_close(d);
    kernel_set_release(d);
    if (d->queue)
        cl.ReleaseCommandQueue(d->queue);
    if (d->upload)
        cl.ReleaseCommandQueue(d->upload);
    if (d->context)
        cl.ReleaseContext(d->context);
    if (d->context && !d->linked)
        contexts--;
    mem_free(d);
}

static int upload_ropes(struct device *d, struct error *e)
{
    const struct device_config *c = &d->base.config;
    size_t bytes = (size_t)c->context * (size_t)c->model->hp.common.mixer.rope_dims / 2 * 4;

    for (int i = 0; i < DEVICE_ROPES && bytes; i++)
        if (c->rope_cos[i] && (memory_upload(d, d->rope_cos[i], c->rope_cos[i], bytes, e) < 0 ||
                               memory_upload(d, d->rope_sin[i], c->rope_sin[i], bytes, e) < 0))
            return ERR_DEVICE;
    bytes = (size_t)c->context * (size_t)c->model->hp.second_rope.dims / 2 * 4;
    if (c->second_cos && bytes &&
        (memory_upload(d, d->second_cos, c->second_cos, bytes, e) < 0 ||
         memory_upload(d, d->second_sin, c->second_sin, bytes, e) < 0))
        return ERR_DEVICE;
    return 0;
}

/* Key of the self-test's verdict. */
static uint64_t test_key(const struct device *d)
{
    const struct device_config *c = &d->base.config;
    const struct hparams *hp = &c->model->hp;
    char text[256];
    uint64_t h = program_fingerprint(&d->target);

    kernel_set_options(d, text, sizeof text);
    if (opencl_tuning()->broken)
        h = hash_bytes(h, opencl_tuning()->broken, strlen(opencl_tuning()->broken));
    if (opencl_tuning()->slower)
        h = hash_bytes(h, opencl_tuning()->slower, strlen(opencl_tuning()->slower));
    h = hash_bytes(h, text, strlen(text));
    for (int l = 0; l < hp->n_layers; l++) {
        const struct layer_shape *s = hparams_layer(hp, l);
        const int shape[] = {s->mixer.heads,
                             s->mixer.kv_heads,
                             s->mixer.key_dim,
                             s->mixer.rope_dims,
                             s->mixer.rope,
                             s->mixer.window,
                             s->mixer.sinks,
                             s->mixer.gated,
                             s->ffn.activation,
                             s->mixer.qk_norm,
                             s->ffn.width,
                             s->ffn.shared_width,
                             s->ffn.experts,
                             s->ffn.router.kind,
                             s->ffn.router.normalised,
                             s->ffn.router.groups,
                             s->ffn.router.groups_used,
                             s->ffn.shared,
                             s->ffn.router.choice_bias,
                             s->ffn.shared_gate,
                             s->norms.kind,
                             (int)s->mixer.gate,
                             s->mixer.gate_softplus};

        for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++)
            h = hash_add(h, (uint64_t)(unsigned)shape[i]);
    }
    h = hash_add(h, (uint64_t)(unsigned)opencl_tuning()->form * 32 +
                        (unsigned)opencl_tuning()->engine);
    const int parts[] = {hp->hidden, hp->n_experts, hp->n_experts_used, c->kv_k,         c->kv_v,
                         d->width,   d->tile,       c->max_rows > 1,    c->context < 275};

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        h = hash_add(h, (uint64_t)(unsigned)parts[i]);
    for (int t = 0; t < DTYPE_COUNT; t++)
        h = hash_add(h, (uint64_t)d->type[t].wanted);
    return h;
}

/* Everything about the device that does not need a context: its target, and the form of its
 * kernels. */
static int configure(struct device *d, const struct device_config *c, char *why, size_t why_size,
                     struct error *e)
{
    d->base.ops = &opencl_device_ops;
    d->base.config = *c;
    if (platform_choose(&d->target, c->selector, why, why_size, e) < 0)
        return e ? e->code : ERR_DEVICE;
    d->base.info = d->target.info;
    kernel_set_shape(d);
    return 0;
}

/* CLBlast's verdict on a CPU device comes from --list-devices, with another model: it has one key
 * for all models. */
static uint64_t blas_key(const struct device *d)
{
    return d->target.info.is_cpu_type ? program_fingerprint(&d->target) : test_key(d);
}

static int device_footprint(const struct device_config *c, const struct block_id *blocks,
                            int n_blocks, struct device_stats *out, struct error *e)
{
    struct device *d = mem_alloc(1, sizeof *d);
    char why[512];
    int rc;

    memset(out, 0, sizeof *out);
    if (!d)
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory");
    if ((rc = configure(d, c, why, sizeof why, e)) == 0) {
        memory_footprint(d, blocks, n_blocks, out);
        out->scratch_bytes += blas_footprint(d, blas_key(d));
    }
    mem_free(d);
    return rc;
}

static int make_context(struct device *d, struct error *e)
{
    cl_int rc = CL_SUCCESS;

    if (!cl_injected(&rc))
        d->context = cl.CreateContext(NULL, 1, &d->target.id, NULL, NULL, &rc);
    if (cl_check(d, rc, "clCreateContext", e) < 0)
        return ERR_DEVICE;
    contexts++;
    if (!cl_injected(&rc))
        d->queue = cl.CreateCommandQueue(d->context, d->target.id, CL_QUEUE_PROFILING_ENABLE, &rc);
    if (rc == CL_SUCCESS && !cl_injected(&rc))
        d->upload = cl.CreateCommandQueue(d->context, d->target.id, CL_QUEUE_PROFILING_ENABLE, &rc);
    return cl_check(d, rc, "clCreateCommandQueue", e);
}

static int device_open(struct device **out, const struct device_config *c, struct error *e)
{
    const struct hparams *hp = &c->model->hp;
    struct device *d = mem_alloc(1, sizeof *d);
    char why[512];

    *out = NULL;
    if (!d)
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory");
    if (configure(d, c, why, sizeof why, e) < 0) {
        mem_free(d);
        return e ? e->code : ERR_DEVICE;
    }
    if (why[0])
        log_line(d, why); /* a driver was excluded */
    if (hp->hidden % 32) {
        error_set(e, ERR_DEVICE, "OpenCL: the kernels need rows of whole blocks of 32 (hidden %d)",
                  hp->hidden);
        goto fail;
    }
    if (c->link && *c->link)
        link_use(d, *c->link);
    else if (make_context(d, e) < 0)
        goto fail;
    if (kernel_set_build(d, e) < 0 || memory_open(d, e) < 0 || recordings_open(d, e) < 0 ||
        selftest(d, test_key(d), e) < 0 ||
        blas_open(d, blas_key(d), opencl_tuning()->blas > 0, e) < 0 || upload_ropes(d, e) < 0)
        goto fail;
    d->stats.row_bytes = 0; /* the self-test's */
    if (c->link && !*c->link)
        link_leave(d, c->link);
    *out = d;
    return 0;
fail:
    device_close(d);
    return e && e->code < 0 ? e->code : ERR_DEVICE;
}

/* Waits so that nothing of a failed job accesses host memory any more. */
static int finish(struct device *d, int rc)
{
    if (rc < 0) {
        if (!d->lost)
            cl.Finish(d->queue);
        expert_swap_forget(d);
        recordings_forget(d);
        d->scatter_n = 0;
        job_forget(d);
    }
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
    out->kv_used_bytes = d->stats.kv_bytes;
}

static int kernels(const struct device_config *c, const char *card,
                   const struct device_pass *passes, int n_passes, struct device_kernel *out,
                   int max, struct device_kernels *about, struct error *e)
{
    return microbench_kernels(&opencl_device_ops, c, card, passes, n_passes, out, max, about, e);
}

static int report(const char *selector, const char *cache_dir,
                  void (*log)(void *ctx, const char *line), void *log_ctx,
                  struct device_report *out, struct error *e)
{
    struct opencl_tuning before = *opencl_tuning(), with_blas = before;
    struct report_model *m = report_model_new();
    struct device *d = NULL;
    int rc;

    memset(out, 0, sizeof *out);
    if (!m)
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory for the test weights");
    struct device_config c = report_model_config(m);

    c.selector = selector;
    c.cache_dir = cache_dir;
    c.log = log;
    c.log_ctx = log_ctx;
    with_blas.blas = before.blas ? before.blas : 1;
    opencl_tune(&with_blas);
    rc = device_open(&d, &c, e);
    opencl_tune(&before);
    if (rc == 0) {
        device_report_fill(d, m, out);
        device_close(d);
    }
    report_model_free(m);
    return rc;
}

const struct device_ops opencl_device_ops = {
    .name = "opencl",
    .summary = "any OpenCL 1.2 device: attention, experts and head, quantised weights to the same "
               "bits as the CPU",
    .probe = probe,
    .open = device_open,
    .close = device_close,
    .link_close = link_close,
    .state_open = memory_state_open,
    .state_close = memory_state_close,
    .state_in_place = rows_state_in_place,
    .supports = kernel_set_runs,
    .together = memory_together,
    .block_put = memory_put,
    .block_drop = memory_drop,
    .attention = attention,
    .experts = experts,
    .head = head,
    .layers = layers,
    .fuses = kernel_set_fuses,
    .wait = wait_all,
    .done = job_done,
    .host_rows = rows_offer,
    .kv_rows = kv_rows,
    .stats = stats,
    .stream = expert_swap_set,
    .prefetch = expert_swap_prefetch,
    .footprint = device_footprint,
    .report = report,
    .kernels = kernels,
};
