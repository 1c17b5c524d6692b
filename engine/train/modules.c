/* See modules.h. */
#include "engine/train/modules.h"

#include "engine/adapter/adapter.h"
#include "engine/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ARRAYS 5

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the adapter");
}

/* ---- selection ---- */

static bool targeted(const struct train_config *c, struct block_id id)
{
    return id.kind == BLOCK_ATTENTION ? c->attention : id.kind == BLOCK_EXPERT && c->experts;
}

/* In a model without a file a part is named by its place. Experts without a name in PEFT get that
 * of a GGUF file, followed by their number. */
static bool name_of(struct modules *m, const struct base *b, struct block_id id,
                    enum matrix_part part, struct adapter_name *name)
{
    size_t n;

    if (b->model->file && adapter_name_of(b->model, WEIGHT_SAFETENSORS, id, part, name))
        return true;
    m->peft = m->peft && !b->model->file;
    if (b->model->file) {
        if (!adapter_name_of(b->model, WEIGHT_GGUF, id, part, name))
            return false;
        n = strlen(name->text);
        snprintf(name->text + n, sizeof name->text - n, ".%d", id.expert);
        return true;
    }
    *name = (struct adapter_name){.parts = {part}, .n_parts = 1};
    snprintf(name->text, sizeof name->text, "layers.%d.%d.%s", id.layer,
             id.kind == BLOCK_EXPERT ? id.expert : -1, matrix_part_name(part));
    return true;
}

static int add(struct modules *m, struct base *b, struct block_id id,
               const struct adapter_name *name, int *room, struct error *e)
{
    struct module *to;

    if (!MEM_ROOM(m->list, m->n, *room, 64))
        return no_memory(e);
    to = &m->list[m->n++];
    *to = (struct module){.id = id, .n_parts = name->n_parts, .trained = true};
    snprintf(to->name, sizeof to->name, "%s", name->text);
    for (int i = 0; i < name->n_parts; i++) {
        const struct linear *w = base_linear(b, id, name->parts[i]);

        to->parts[i] = name->parts[i];
        to->rows += w->rows;
        to->cols = w->cols;
    }
    return 0;
}

/* Every module of the targets: for each part that is the first of its module. */
static int list_modules(struct modules *m, struct base *b, const struct train_config *c,
                        struct error *e)
{
    int room = 0, rc = 0;

    for (struct block_id id = BLOCK_BEFORE; !rc && model_block_next(b->model, &id);) {
        struct block_matrix parts[BLOCK_MATRICES];
        int n = targeted(c, id) ? model_block_matrices(b->model, id, parts) : 0;

        for (int i = 0; i < n && !rc; i++) {
            struct adapter_name name;

            if (!name_of(m, b, id, parts[i].part, &name))
                return error_set(e, ERR_MODEL,
                                 "layer %d: no kind of adapter file has a name for its %s: not "
                                 "trained (targets: attention trains the rest)",
                                 id.layer, matrix_part_name(parts[i].part));
            if (name.parts[0] == parts[i].part)
                rc = add(m, b, id, &name, &room, e);
        }
    }
    return rc < 0 || m->n ? rc : error_set(e, ERR_MODEL, "there is no matrix to hang adapters on");
}

/* ---- values ---- */

static int take_room(struct modules *m, struct base *b, struct error *e)
{
    float **const arrays[ARRAYS] = {&m->values, &m->grads, &m->m1, &m->m2, &m->good};
    size_t at = 0;

    for (int i = 0; i < m->n; i++)
        m->n_values += module_values(&m->list[i]);
    for (int i = 0; i < ARRAYS; i++)
        if (!(*arrays[i] = mem_pages(m->n_values * sizeof(float))))
            return no_memory(e);
    for (int i = 0; i < m->n; i++) {
        struct module *x = &m->list[i];
        int first = 0;

        x->a = m->values + at;
        x->grad_a = m->grads + at;
        x->b = x->a + (size_t)x->rank * (size_t)x->cols;
        x->grad_b = x->grad_a + (size_t)x->rank * (size_t)x->cols;
        at += module_values(x);
        for (int p = 0; p < x->n_parts; p++) {
            struct linear *w = base_linear(b, x->id, x->parts[p]);

            w->module = x;
            w->first = first;
            first += w->rows;
        }
        m->n_trained += x->trained;
    }
    return m->n_trained ? 0
                        : error_set(e, ERR_USAGE,
                                    "skip_expert_grad: all of the adapter hangs on experts, so "
                                    "nothing is left to train");
}

/* splitmix64 */
static double uniform(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-52 - 1.0;
}

static void begin_values(struct modules *m, const struct train_config *c)
{
    uint64_t state = c->seed;

    for (int i = 0; i < m->n; i++) {
        const struct module *x = &m->list[i];
        float *a = m->values + (x->a - m->values), *b = m->values + (x->b - m->values);
        double spread = 1.0 / sqrt((double)x->cols);

        for (size_t k = 0; k < (size_t)x->rank * (size_t)x->cols; k++)
            a[k] = (float)(spread * uniform(&state));
        for (size_t k = 0; k < (size_t)x->rank * (size_t)x->rows && c->init_b > 0; k++)
            b[k] = (float)(c->init_b * uniform(&state));
    }
}

int modules_new(struct modules *m, struct base *b, const struct train_config *c, struct error *e)
{
    int rc;

    *m = (struct modules){.peft = true};
    if ((rc = list_modules(m, b, c, e)) < 0)
        return rc;
    for (int i = 0; i < m->n; i++) {
        m->list[i].rank = c->rank;
        m->list[i].alpha = (float)c->alpha;
        m->list[i].scale = (float)(c->alpha / c->rank);
        m->list[i].trained = !c->skip_expert_grad || m->list[i].id.kind != BLOCK_EXPERT;
    }
    if ((rc = take_room(m, b, e)) < 0)
        return rc;
    begin_values(m, c);
    return 0;
}

/* ---- from an adapter ---- */

static const struct lora *lora_of(const struct base *b, struct block_id id, enum matrix_part part)
{
    struct block_matrix list[BLOCK_MATRICES];
    int n = model_block_matrices(b->model, id, list);

    for (int i = 0; i < n; i++)
        if (list[i].part == part)
            return list[i].w->lora;
    return NULL;
}

/* Keeps only the modules that the adapter has. */
static int keep_adapted(struct modules *m, const struct base *b, const struct train_config *c,
                        struct error *e)
{
    int n = 0;

    for (int i = 0; i < m->n; i++) {
        struct module x = m->list[i];
        const struct lora *l = lora_of(b, x.id, x.parts[0]);

        for (int p = 1; p < x.n_parts; p++)
            if (!l != !lora_of(b, x.id, x.parts[p]))
                return error_set(e, ERR_MODEL, "%s: the adapter has some of its parts alone",
                                 x.name);
        if (!l)
            continue;
        x.rank = l->rank;
        x.scale = l->parts[0].scale;
        x.alpha = x.scale * (float)x.rank;
        x.trained = !c->skip_expert_grad || x.id.kind != BLOCK_EXPERT;
        m->list[n++] = x;
    }
    m->n = n;
    return 0;
}

static void copy_values(struct modules *m, const struct base *b)
{
    for (int i = 0; i < m->n; i++) {
        const struct module *x = &m->list[i];
        float *a = m->values + (x->a - m->values), *to = m->values + (x->b - m->values);

        memcpy(a, lora_of(b, x->id, x->parts[0])->a, (size_t)x->rank * (size_t)x->cols * sizeof *a);
        for (int p = 0; p < x->n_parts; p++) {
            const struct lora *l = lora_of(b, x->id, x->parts[p]);
            struct block_matrix list[BLOCK_MATRICES];
            int rows = 0, n = model_block_matrices(b->model, x->id, list);

            for (int k = 0; k < n; k++)
                if (list[k].part == x->parts[p])
                    rows = list[k].w->rows;
            for (int r = 0; r < rows; r++)
                for (int k = 0; k < x->rank; k++)
                    *to++ = l->b[(size_t)k * (size_t)rows + (size_t)r];
        }
    }
}

static void take_off(const struct base *b)
{
    for (struct block_id id = BLOCK_BEFORE; model_block_next(b->model, &id);) {
        struct block_matrix list[BLOCK_MATRICES];
        int n = model_block_matrices(b->model, id, list);

        for (int i = 0; i < n; i++)
            ((struct matrix *)(uintptr_t)list[i].w)->lora = NULL; /* the trainer's own model */
    }
    b->model->adapters = 0;
}

static int check_places(const struct adapters *a, const struct modules *m, struct error *e)
{
    const struct adapter_info *info = adapters_at(a, 0);
    int parts = 0;

    if (info->n_unplaced)
        return error_set(e, ERR_MODEL, "%s: the model has no place for %.200s", info->path,
                         info->unplaced);
    for (int i = 0; i < m->n; i++)
        parts += m->list[i].n_parts;
    return parts == info->matrices
               ? 0
               : error_set(e, ERR_MODEL, "%s: it hangs on matrices that are not trained (the head)",
                           info->path);
}

int modules_read(struct modules *m, struct base *b, const struct train_config *c, const char *path,
                 struct error *e)
{
    struct train_config all = *c;
    struct adapters *a = NULL;
    int rc;

    *m = (struct modules){.peft = true};
    all.attention = all.experts = true;
    if ((rc = adapters_open(&a, b->model, &(struct adapter_request){path, 1.0f}, 1, true, e)) < 0)
        return rc;
    if ((rc = list_modules(m, b, &all, e)) == 0 && (rc = keep_adapted(m, b, c, e)) == 0 &&
        (rc = check_places(a, m, e)) == 0 && (rc = take_room(m, b, e)) == 0)
        copy_values(m, b);
    take_off(b);
    adapters_close(a);
    return rc;
}

void modules_release(struct modules *m)
{
    float *const arrays[ARRAYS] = {m->values, m->grads, m->m1, m->m2, m->good};

    for (int i = 0; i < ARRAYS; i++)
        mem_pages_free(arrays[i], m->n_values * sizeof(float));
    mem_free(m->list);
    *m = (struct modules){0};
}

size_t modules_trained(const struct modules *m)
{
    size_t n = 0;

    for (int i = 0; i < m->n; i++)
        n += m->list[i].trained ? module_values(&m->list[i]) : 0;
    return n;
}

size_t module_values(const struct module *m)
{
    return (size_t)m->rank * ((size_t)m->cols + (size_t)m->rows);
}

double module_gradient(const struct module *m)
{
    double sum = 0.0;

    for (size_t k = 0; m->trained && k < module_values(m); k++)
        sum += (double)m->grad_a[k] * (double)m->grad_a[k];
    return sum;
}
