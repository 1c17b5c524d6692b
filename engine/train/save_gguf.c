/* See save_gguf.h. */
#include "engine/train/save_gguf.h"

#include "engine/base/mem.h"
#include "engine/file/gguf_write.h"
#include "engine/model/family.h"

#include <stdio.h>
#include <string.h>

/* A pair of tensors: parts of one block, or of all routed experts of a layer. */
struct pair {
    struct adapter_name name;
    struct block_id id;
    int experts; /* 0: of one block */
    int rows, cols, rank;
};

struct writing {
    const struct modules *m;
    struct base *b;
    struct gguf_writer *w;
    float alpha;
};

static const struct module *module_of(const struct writing *x, const struct pair *p, int expert)
{
    struct block_id id = p->id;

    id.expert = p->experts ? expert : id.expert;
    return base_linear(x->b, id, p->name.parts[0])->module;
}

/* The pair whose first part is part i of a module; false: it belongs to another one. */
static bool pair_of(const struct writing *x, const struct module *m, int i, struct pair *p)
{
    int n;

    *p = (struct pair){.id = m->id, .cols = m->cols};
    if (!adapter_name_of(x->b->model, WEIGHT_GGUF, m->id, m->parts[i], &p->name) ||
        p->name.parts[0] != m->parts[i])
        return false;
    p->experts = p->name.stacked ? hparams_layer(&x->b->model->hp, m->id.layer)->ffn.experts : 0;
    for (int k = 0; k < p->name.n_parts; k++)
        p->rows += base_linear(x->b, m->id, p->name.parts[k])->rows;
    n = p->experts ? p->experts : 1;
    for (int e = 0; e < n; e++) {
        const struct module *of = module_of(x, p, e);

        if (of && p->experts && e < m->id.expert)
            return false;
        p->rank = of && of->rank > p->rank ? of->rank : p->rank;
    }
    return true;
}

static int each_pair(struct writing *x, int (*fn)(struct writing *x, const struct pair *p,
                                                  struct error *e), struct error *e)
{
    int rc = 0;

    for (int k = 0; k < x->m->n; k++)
        for (int i = 0; i < x->m->list[k].n_parts && rc == 0; i++) {
            struct pair p;

            if (pair_of(x, &x->m->list[k], i, &p))
                rc = fn(x, &p, e);
        }
    return rc;
}

static int name_pair(struct writing *x, const struct pair *p, struct error *e)
{
    const int64_t a[] = {p->experts, p->rank, p->cols}, b[] = {p->experts, p->rows, p->rank};
    int skip = !p->experts;
    char name[240];

    snprintf(name, sizeof name, "%s.weight.lora_a", p->name.text);
    gguf_write_tensor(x->w, name, DTYPE_F32, 3 - skip, a + skip);
    snprintf(name, sizeof name, "%s.weight.lora_b", p->name.text);
    gguf_write_tensor(x->w, name, DTYPE_F32, 3 - skip, b + skip);
    return 0;
}

/* b (rows, rank of the pair) of one block, rows as such files have them. */
static void fill_b(const struct writing *x, const struct pair *p, const struct module *m,
                   struct block_id id, float *out)
{
    float factor = m->scale * (float)p->rank / x->alpha;
    int first = 0;

    for (int i = 0; i < p->name.n_parts; i++) {
        const struct linear *w = base_linear(x->b, id, p->name.parts[i]);

        for (int r = 0; r < w->rows; r++) {
            int to = first +
                     adapter_row_of(x->b->model, WEIGHT_GGUF, id, p->name.parts[i], r);

            for (int k = 0; k < m->rank; k++)
                out[to * p->rank + k] = factor * m->b[(w->first + r) * m->rank + k];
        }
        first += w->rows;
    }
}

static int write_half(struct writing *x, const struct pair *p, bool is_a, struct error *e)
{
    size_t n = (size_t)p->rank * (size_t)(is_a ? p->cols : p->rows);
    float *values = mem_alloc(n, sizeof *values);
    int rc = values ? 0 : error_set(e, ERR_MEMORY, "out of memory for %s", p->name.text);

    for (int i = 0; i < (p->experts ? p->experts : 1) && rc == 0; i++) {
        const struct module *m = module_of(x, p, i);
        struct block_id id = p->id;

        id.expert = p->experts ? i : id.expert;
        memset(values, 0, n * sizeof *values);
        if (m && is_a)
            memcpy(values, m->a, (size_t)m->rank * (size_t)m->cols * sizeof *values);
        else if (m)
            fill_b(x, p, m, id, values);
        rc = gguf_write_data(x->w, values, n * sizeof *values, e);
    }
    mem_free(values);
    return rc;
}

static int write_pair(struct writing *x, const struct pair *p, struct error *e)
{
    int rc = write_half(x, p, true, e);

    return rc < 0 ? rc : write_half(x, p, false, e);
}

static void put_text(struct gguf_writer *w, const char *key, const char *text)
{
    gguf_put_string(w, key, text, strlen(text));
}

int save_gguf(const struct modules *m, struct base *b, const char *path, struct error *e)
{
    struct writing x = {.m = m, .b = b, .alpha = m->list[0].alpha};
    const struct family *family;
    int rc;

    if ((rc = family_of(&family, b->model->file, e)) < 0 ||
        (rc = gguf_write_open(&x.w, path, e)) < 0)
        return rc;
    put_text(x.w, "general.type", "adapter");
    put_text(x.w, "general.architecture",
             family->gguf[0] ? family->gguf[0] : family_architecture(family, b->model->file));
    put_text(x.w, "adapter.type", "lora");
    gguf_put_f32(x.w, "adapter.lora.alpha", x.alpha);
    rc = each_pair(&x, name_pair, e);
    if (rc == 0 && (rc = gguf_write_begin(x.w, e)) == 0)
        rc = each_pair(&x, write_pair, e);
    if (rc == 0)
        return gguf_write_finish(x.w, e);
    gguf_write_abort(x.w);
    return rc;
}
