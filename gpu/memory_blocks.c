/* Blocks of weights, with what a layer has besides its matrices, and their uploads. Engine thread.
 * If host and device share memory a matrix is used in place; else it is copied through two pinned
 * halves on a separate queue, so that copies overlap kernels. One allocation per matrix, below the
 * device's largest. */
#include "gpu/internal.h"
#include "engine/base/mem.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

bool memory_expert_alike(const struct expert_weights *x)
{
    return (!x->gate.bytes || x->gate.type == x->up.type) &&
           dtype_is_quantised(x->up.type) == dtype_is_quantised(x->down.type);
}

bool memory_together(const struct device *d, struct block_id id)
{
    return id.kind != BLOCK_EXPERT ||
           memory_expert_alike(&d->base.config.model->layers[id.layer].experts[id.expert]);
}

int memory_expert_check(struct device *d, const struct expert_weights *x, struct error *e)
{
    return memory_expert_alike(x)
               ? 0
               : error_set(e, ERR_DEVICE, "OpenCL %s: no kernels for an expert of %s, %s and %s",
                           d->target.info.name,
                           dtype_info(x->gate.bytes ? x->gate.type : x->up.type)->word,
                           dtype_info(x->up.type)->word, dtype_info(x->down.type)->word);
}

size_t memory_block_bytes(const struct device *d, struct block_id id)
{
    const struct model *m = d->base.config.model;
    struct block_bytes b = model_block_parts(m, id);

    if (b.router)
        b.router = (size_t)m->hp.hidden * (size_t)d->padded_experts * 4 +
                   ((m->layers[id.layer].score_bias != NULL) +
                    (m->layers[id.layer].router_bias != NULL)) *
                       (size_t)hparams_layer(&m->hp, id.layer)->ffn.experts * 4;
    return b.matrices + b.biases + b.norms + b.router;
}

/* Packed matrices start on pages, those mapped from a file rarely do. */
size_t memory_shared_bytes(const struct device *d, struct block_id id)
{
    struct block_matrix list[BLOCK_MATRICES];
    int n = model_block_matrices(d->base.config.model, id, list);
    size_t bytes = 0;

    for (int i = 0; i < n && d->share; i++) {
        const struct matrix *w = list[i].w;

        bytes += !w->paged && w->bytes <= d->target.info.max_alloc &&
                         (w->width || d->target.info.is_cpu_type)
                     ? w->bytes
                     : 0;
    }
    return bytes;
}

void memory_swap_bytes(const struct device *d, uint64_t matrix[3], uint64_t bias[3])
{
    const struct model *m = d->base.config.model;

    model_largest_expert(m, matrix);
    for (int k = 0; k < 3; k++)
        bias[k] = d->biased && matrix[k] ? (uint64_t)(k < 2 ? d->most_ffn : m->hp.hidden) * 4 : 0;
}

struct block *memory_block(struct device *d, struct block_id id)
{
    const struct hparams *hp = &d->base.config.model->hp;

    switch (id.kind) {
    case BLOCK_ATTENTION: return &d->attention[id.layer];
    case BLOCK_EXPERT: return &d->experts[id.layer * hp->n_experts + id.expert];
    default: return &d->head;
    }
}

void memory_block_release(struct device *d, struct block *b)
{
    for (int i = 0; i < b->n_parts; i++) {
        struct part *p = &b->part[i];

        if (p->shared)
            d->stats.shared_bytes -= p->m->bytes;
        memory_release(&p->mem);
        memory_release(&p->bias);
    }
    d->stats.weight_bytes -= b->weight_bytes;
    d->stats.kv_bytes -= b->kv_bytes;
    memory_release(&b->norm_w);
    memory_release(&b->norm_b);
    memory_release(&b->after_w);
    memory_release(&b->after_b);
    memory_release(&b->expert_after_w);
    memory_release(&b->expert_after_b);
    memory_release(&b->q_norm);
    memory_release(&b->k_norm);
    memory_release(&b->sinks);
    memory_release(&b->expert_norm_w);
    memory_release(&b->expert_norm_b);
    for (int i = 0; i < APART_NORMS; i++) {
        memory_release(&b->apart_w[i]);
        memory_release(&b->apart_b[i]);
    }
    memory_routing_release(&b->routing);
    for (int i = 0; b->kv && i < d->kv_room; i++)
        memory_release(&b->kv[i]);
    mem_free(b->kv);
    memset(b, 0, sizeof *b);
}

void memory_drop(struct device *d, struct block_id id)
{
    struct block *b = memory_block(d, id);

    if (b->state == BLOCK_ABSENT)
        return;
    if (b->state == BLOCK_LOADING)
        cl.Finish(d->upload);
    recordings_forget(d);
    if (id.kind == BLOCK_EXPERT)
        joined_experts_leave(d, id.layer, id.expert);
    memory_block_release(d, b);
}

static int small(struct device *d, cl_mem *out, const float *data, size_t n, struct error *e)
{
    if (!data)
        return 0;
    if (memory_buffer(d, n * 4, out, "norms and biases", e) < 0)
        return ERR_DEVICE;
    return memory_upload(d, *out, data, n * 4, e);
}

/* The router, and behind it the shared expert's gate, as (column, padded experts) where WIDE, else
 * as (column / 4, padded experts, 4): neighbouring work-items read neighbouring experts either way,
 * and a GPU's four columns a load. */
static int put_router(struct device *d, int layer, cl_mem *out, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct layer_weights *l = &d->base.config.model->layers[layer];
    int experts = hparams_layer(hp, layer)->ffn.experts, rc, fours = d->wide ? 1 : 4;
    size_t n = (size_t)hp->hidden * (size_t)d->padded_experts;
    float *t = mem_alloc(n, sizeof *t);

    if (!t)
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory for a router");
    for (int x = 0; x < experts + (l->shared_router != NULL); x++) {
        const float *row = x < experts ? l->router + (size_t)x * (size_t)hp->hidden
                                       : l->shared_router;

        for (int c = 0; c < hp->hidden; c++)
            t[(size_t)(c / fours * d->padded_experts + x) * (size_t)fours + (size_t)(c % fours)] =
                row[c];
    }
    rc = small(d, out, t, n, e);
    mem_free(t);
    return rc;
}

int memory_routing(struct device *d, int layer, struct routing *out, struct error *e)
{
    const struct model *m = d->base.config.model;
    const struct layer_weights *l = &m->layers[layer];
    size_t experts = (size_t)hparams_layer(&m->hp, layer)->ffn.experts;

    if (!l->router)
        return 0;
    return small(d, &out->score_bias, l->score_bias, experts, e) < 0 ||
                   small(d, &out->choice_bias, l->router_bias, experts, e) < 0 ||
                   small(d, &out->expert_scale, l->expert_scale, experts, e) < 0
               ? ERR_DEVICE
               : put_router(d, layer, &out->router, e);
}

void memory_routing_release(struct routing *r)
{
    memory_release(&r->router);
    memory_release(&r->score_bias);
    memory_release(&r->choice_bias);
    memory_release(&r->expert_scale);
}

/* Whether host memory can be used in place: only if the driver will not copy it silently. */
static bool shareable(const struct device *d, const struct matrix *m)
{
    uintptr_t at = (uintptr_t)m->data;

    if (!d->share || m->paged) /* experts on disk have no fixed address in memory */
        return false;
    if (d->target.info.is_cpu_type)
        return at % (m->width ? 64 : (uintptr_t)dtype_info(m->type)->bytes) == 0;
    return at % PAGE == 0;
}

static int part_begin(struct device *d, struct part *p, enum block_kind kind,
                      const struct matrix *m, struct error *e)
{
    cl_int rc = CL_SUCCESS;

    if (!kernel_set_supports(d, kind, m->type))
        return error_set(e, ERR_DEVICE, "OpenCL %s: no kernels for %s weights of this kind",
                         d->target.info.name, dtype_info(m->type)->word);

    p->m = m;
    if (m->bytes <= d->target.info.max_alloc && shareable(d, m)) {
        if (!cl_injected(&rc)) /* drivers require whole cache lines; matrices are padded to them */
            p->mem = cl.CreateBuffer(d->context, CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR,
                                     (m->bytes + 63) / 64 * 64, (void *)(uintptr_t)m->data, &rc);
        if (rc == CL_SUCCESS) {
            p->shared = true;
            p->done = m->bytes;
        } else {
            p->mem = NULL;
        }
    }
    if (!p->mem && memory_buffer(d, m->bytes, &p->mem, "weights", e) < 0)
        return ERR_DEVICE;
    if (p->shared)
        d->stats.shared_bytes += m->bytes;
    return small(d, &p->bias, m->bias, (size_t)m->rows, e);
}

static int apart_norms(struct device *d, struct block *b, const struct layer_weights *l,
                       struct error *e)
{
    const struct norm_weights *const norm[APART_NORMS] = {&l->router_norm, &l->routed_norm,
                                                          &l->routed_after, &l->shared_after};
    size_t hidden = (size_t)d->base.config.model->hp.hidden;

    for (int i = 0; i < APART_NORMS; i++)
        if (small(d, &b->apart_w[i], norm[i]->weight, hidden, e) < 0 ||
            small(d, &b->apart_b[i], norm[i]->bias, hidden, e) < 0)
            return ERR_DEVICE;
    return 0;
}

/* Uploads an attention block's data besides its matrices. */
static int layer_begin(struct device *d, struct block *b, int layer, struct error *e)
{
    const struct model *m = d->base.config.model;
    const struct layer_weights *l = &m->layers[layer];
    size_t hidden = (size_t)m->hp.hidden;
    int rc = 0;

    if (small(d, &b->norm_w, l->attention_norm.weight, hidden, e) < 0 ||
        small(d, &b->norm_b, l->attention_norm.bias, hidden, e) < 0 ||
        small(d, &b->after_w, l->attention_after.weight, hidden, e) < 0 ||
        small(d, &b->after_b, l->attention_after.bias, hidden, e) < 0 ||
        small(d, &b->expert_after_w, l->expert_after.weight, hidden, e) < 0 ||
        small(d, &b->expert_after_b, l->expert_after.bias, hidden, e) < 0 ||
        small(d, &b->expert_norm_w, l->expert_norm.weight, hidden, e) < 0 ||
        small(d, &b->expert_norm_b, l->expert_norm.bias, hidden, e) < 0 ||
        small(d, &b->q_norm, l->q_norm, model_qk_norm_values(m, layer, true), e) < 0 ||
        small(d, &b->k_norm, l->k_norm, model_qk_norm_values(m, layer, false), e) < 0 ||
        small(d, &b->sinks, l->sinks, (size_t)hparams_layer(&m->hp, layer)->mixer.heads, e) < 0 ||
        apart_norms(d, b, l, e) < 0 || memory_routing(d, layer, &b->routing, e) < 0)
        return ERR_DEVICE;
    if (!(b->kv = mem_alloc((size_t)d->kv_room, sizeof *b->kv)))
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory for the table of sessions");
    for (int i = 0; i < d->kv_room && rc == 0; i++)
        rc = d->kv_open[i] ? memory_kv_take(d, b, i, e) : 0;
    return rc;
}

static int block_begin(struct device *d, struct block *b, struct block_id id, struct error *e)
{
    const struct model *m = d->base.config.model;
    struct block_matrix list[BLOCK_MATRICES];
    int n = model_block_matrices(m, id, list), rc = 0;

    b->state = BLOCK_LOADING;
    b->weight_bytes = memory_block_bytes(d, id);
    d->stats.weight_bytes += b->weight_bytes;
    if (id.kind == BLOCK_HEAD) {
        if (small(d, &b->norm_w, m->output_norm.weight, (size_t)m->hp.hidden, e) < 0 ||
            small(d, &b->norm_b, m->output_norm.bias, (size_t)m->hp.hidden, e) < 0)
            return ERR_DEVICE;
    } else if (id.kind == BLOCK_EXPERT) {
        if (memory_expert_check(d, &m->layers[id.layer].experts[id.expert], e) < 0)
            return ERR_DEVICE;
    } else if (layer_begin(d, b, id.layer, e) < 0) {
        return ERR_DEVICE;
    }
    for (int i = 0; i < n && rc == 0; i++) {
        int at = (int)(list[i].part - (id.kind == BLOCK_EXPERT ? MATRIX_GATE
                                       : id.kind == BLOCK_HEAD ? MATRIX_HEAD
                                                               : MATRIX_Q));

        if (id.kind == BLOCK_ATTENTION && list[i].part == MATRIX_Z)
            at = PART_GATES;
        assert(at >= 0 && at < PARTS); /* unsupported blocks are never put */
        b->n_parts = at + 1;
        rc = part_begin(d, &b->part[at], id.kind, list[i].w, e);
    }
    return rc;
}

/* Copies one piece through the next pinned half. */
static int copy_piece(struct device *d, struct part *p, size_t bytes, struct error *e)
{
    int half = d->staging_half ^= 1;
    size_t offset = (size_t)half * STAGING_HALF;
    cl_int rc = CL_SUCCESS;

    if (!d->staging_map) { /* shared memory, but this matrix could not be used in place */
        if (!cl_injected(&rc))
            rc = cl.EnqueueWriteBuffer(d->upload, p->mem, CL_TRUE, p->done, bytes,
                                       (const char *)p->m->data + p->done, 0, NULL, NULL);
    } else {
        if (d->staging_event[half]) {
            rc = cl.WaitForEvents(1, &d->staging_event[half]);
            cl.ReleaseEvent(d->staging_event[half]);
            d->staging_event[half] = NULL;
        }
        memcpy((char *)d->staging_map + offset, (const char *)p->m->data + p->done, bytes);
        if (rc == CL_SUCCESS && !cl_injected(&rc))
            rc = cl.EnqueueWriteBuffer(d->upload, p->mem, CL_FALSE, p->done, bytes,
                                       (char *)d->staging_map + offset, 0, NULL,
                                       &d->staging_event[half]);
        if (rc == CL_SUCCESS)
            rc = cl.Flush(d->upload);
    }
    p->done += bytes;
    d->stats.uploaded_bytes += bytes;
    return cl_check(d, rc, "uploading weights", e);
}

int memory_put(struct device *d, struct block_id id, size_t max_bytes, struct error *e)
{
    struct block *b = memory_block(d, id);
    size_t left = max_bytes ? max_bytes : 1;
    cl_int rc = CL_SUCCESS;

    if (b->state == BLOCK_RESIDENT)
        return 1;
    if (d->lost)
        return error_set(e, ERR_DEVICE, "OpenCL %s: the device was lost", d->target.info.name);
    if (b->state == BLOCK_ABSENT && block_begin(d, b, id, e) < 0)
        goto fail;
    while (b->at < b->n_parts) {
        struct part *p = &b->part[b->at];
        size_t bytes = p->m ? p->m->bytes - p->done : 0;

        if (bytes == 0) {
            b->at++;
            continue;
        }
        if (left == 0)
            return 0;
        bytes = bytes < left ? bytes : left;
        bytes = bytes < STAGING_HALF ? bytes : STAGING_HALF;
        if (copy_piece(d, p, bytes, e) < 0)
            goto fail;
        left -= bytes;
    }
    if (left == 0 && d->staging_map)
        return 0;          /* the last piece is copied while the next token is computed */
    if (!cl_injected(&rc)) /* blocking writes, too, may end after their calls (memory_upload) */
        rc = cl.Finish(d->upload);
    if (cl_check(d, rc, "uploading weights", e) < 0)
        goto fail;
    b->state = BLOCK_RESIDENT;
    if (id.kind == BLOCK_EXPERT && d->joined[id.layer].state == JOINED_FAILED)
        d->joined[id.layer].state = JOINED_NOT; /* it may be the last one that lacked */
    return 1;
fail:
    if (!d->lost)
        cl.Finish(d->upload);
    memory_block_release(d, b);
    return ERR_DEVICE;
}
