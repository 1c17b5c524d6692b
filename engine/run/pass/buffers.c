/* Memory of a pass: see forward.h. */
#include "engine/base/mem.h"
#include "engine/run/pass/blocks.h"
#include "engine/run/pass/forward.h"

#include <assert.h>
#include <string.h>

/* Buffers of a pass of max_rows rows: allocated at init, freed at the end, counted by
 * forward_footprint. APART: used (except for a few rows) only when a layer's blocks are sent one by
 * one; whole layers of one device use that device's own scratch. ROWS: inputs and outputs of jobs,
 * which devices may use in place: on pages of their own. */
/* clang-format off */
#define APART_ROWS(X)                            \
    X(y, z.rows * z.hidden)                      \
    X(h, z.normed * z.rows * z.hidden)           \
    X(out, z.used * z.rows * z.hidden)
#define APART_OTHERS(X)                          \
    X(x_before, z.rows * z.hidden)               \
    X(scores, z.rows * z.experts)
#define APART(X) APART_ROWS(X) APART_OTHERS(X)
#define ROWS(X)                                  \
    APART_ROWS(X)                                \
    X(experts, z.layers * z.rows * z.used)       \
    X(weights, z.layers * z.rows * z.used)       \
    X(x, z.rows * z.hidden)
#define OTHERS(X)                                \
    APART_OTHERS(X)                              \
    X(ran_on, z.layers * z.experts)              \
    X(deferred.out, FORWARD_DEFERRED * z.hidden) \
    X(row, z.rows * z.used)                      \
    X(slot, z.rows * z.used)                     \
    X(first_entry, z.experts + 1)                \
    X(groups, DEVICE_MAX * z.experts)            \
    X(guess_h, z.normed * z.hidden)              \
    X(guess_scores, z.experts)                   \
    X(guess_weights, z.used)                     \
    X(guess, z.used)                             \
    X(fused_device, z.layers)                    \
    X(spans, z.rows)                             \
    X(inputs, z.rows * z.inputs)                 \
    X(strengths, z.rows)                         \
    X(head_strengths, z.rows)                    \
    X(edits, z.rows)                             \
    X(ids, z.rows)                               \
    X(resume_at, z.rows)                         \
    X(hands_over, z.rows)                        \
    X(wanted, z.rows)                            \
    MICROBATCHES(X)
/* of the groups of rows that a prompt's pass is split into: a span may be cut at both ends */
#define MICROBATCHES(X)                                                 \
    X(microbatch, FORWARD_MICROBATCHES)                                 \
    X(microbatch_groups, FORWARD_MICROBATCHES * DEVICE_MAX * z.experts) \
    X(microbatch_spans, z.rows + FORWARD_MICROBATCHES)                  \
    X(microbatch_resume, z.rows + FORWARD_MICROBATCHES)
#define BUFFERS(X) ROWS(X) OTHERS(X)
/* clang-format on */

struct sizes {
    size_t layers, rows, hidden, experts, used, normed, inputs;
};

int blocks_normed_rows(const struct hparams *hp)
{
    int most = 1;

    for (int l = 0; l < hp->n_layers; l++)
        if (shape_normed_rows(hparams_layer(hp, l)) > most)
            most = shape_normed_rows(hparams_layer(hp, l));
    return most;
}

static struct sizes sizes_of(const struct hparams *hp, int max_rows)
{
    return (struct sizes){.layers = (size_t)hp->n_layers,
                          .rows = (size_t)max_rows,
                          .hidden = (size_t)hp->hidden,
                          .experts = (size_t)hp->n_experts,
                          .used = (size_t)hp->n_experts_used,
                          .normed = (size_t)blocks_normed_rows(hp),
                          .inputs = (size_t)(hparams_beside(hp) ? hparams_beside(hp) : 1)};
}

size_t forward_footprint(const struct hparams *hp, int max_rows)
{
    const struct forward *f = NULL;
    struct sizes z = sizes_of(hp, max_rows);
    size_t bytes = 0;

#define X(buffer, count) bytes += (count) * sizeof *f->buffer;
    BUFFERS(X)
#undef X
    return bytes;
}

size_t forward_apart_footprint(const struct hparams *hp, int max_rows)
{
    const struct forward *f = NULL;
    struct sizes z = sizes_of(hp, max_rows);
    size_t bytes = 0;

#define X(buffer, count) bytes += (count) * sizeof *f->buffer;
    APART(X)
#undef X
    return bytes;
}

static bool take_buffers(struct forward *f, struct sizes z)
{
#define X(buffer, count)                                       \
    if (!(f->buffer = mem_pages((count) * sizeof *f->buffer))) \
        return false;
    ROWS(X)
#undef X
#define X(buffer, count)                                    \
    if (!(f->buffer = mem_alloc(count, sizeof *f->buffer))) \
        return false;
    OTHERS(X)
#undef X
    return true;
}

int forward_init(struct forward *f, const struct model *m, struct device_slot *slots, struct kv *kv,
                 int max_rows, struct error *e)
{
    struct sizes z = sizes_of(&m->hp, max_rows);

    assert(max_rows > 0);
    memset(f, 0, sizeof *f);
    f->model = m;
    f->slots = f->audit.slots = slots;
    f->kv = kv;
    f->max_rows = max_rows;
    f->scratch_bytes = forward_footprint(&m->hp, max_rows);
    if (!take_buffers(f, z)) {
        forward_release(f);
        return error_set(e, ERR_MEMORY,
                         "no memory for the activations of %d rows: try a smaller -ub", max_rows);
    }
    memset(f->ran_on, PLAN_NO_DEVICE, z.layers * z.experts);
    return 0;
}

void forward_release(struct forward *f)
{
    struct sizes z;

    if (!f->model)
        return;
    z = sizes_of(&f->model->hp, f->max_rows);
#define X(buffer, count) mem_pages_free(f->buffer, (count) * sizeof *f->buffer);
    ROWS(X)
#undef X
#define X(buffer, count) mem_free(f->buffer);
    OTHERS(X)
#undef X
    audit_release(&f->audit);
    memset(f, 0, sizeof *f);
}

void forward_offer_rows(const struct forward *f, const struct device_slot *s)
{
    struct sizes z = sizes_of(&f->model->hp, f->max_rows);

#define X(buffer, count) s->ops->host_rows(s->device, f->buffer, (count) * sizeof *f->buffer);
    ROWS(X)
#undef X
}
