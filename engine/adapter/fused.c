/* Fused experts by PEFT's target_parameters: one pair for all experts of a layer. With the base
 * tensor as (experts, out, in), since PEFT 0.19: A (experts * rank, in), row e * rank + k; B (out,
 * rank * experts), column k * experts + e. Up to 0.18 it was read as (experts, in, out): A spans
 * out, B spans in, and their product is transposed. The two are distinguished by widths, or by the
 * release that wrote it; if neither is conclusive the adapter is refused. See reading.h. */
#include "engine/adapter/reading.h"

#include <stdio.h>
#include <string.h>

struct fused {
    const char *parameter;
    enum matrix_part parts[2];
    int n_parts, experts; /* identities have gates and ups in folders, and no downs */
    int64_t in, out;
};

/* The two parameters of a layer's experts. */
static void describe(const struct reading *r, int layer, struct fused kinds[2])
{
    const struct hparams *hp = &r->model->hp;
    const struct ffn_shape *f = &hparams_layer(hp, layer)->ffn;
    int64_t width = f->width, hidden = hp->hidden;

    kinds[0] = (struct fused){
        "gate_up_proj", {MATRIX_GATE, MATRIX_UP}, 2, f->experts + f->router.identities, hidden,
        2 * width};
    kinds[1] = (struct fused){"down_proj", {MATRIX_DOWN}, 1, f->experts, width, hidden};
}

static bool fits(const struct fused *k, const struct pair *p, bool turned)
{
    const struct tensor_view *a = p->a, *b = p->b;

    return a->n_dims == 2 && b->n_dims == 2 && a->dims[0] == (int64_t)k->experts * p->rank &&
           b->dims[1] == a->dims[0] && a->dims[1] == (turned ? k->out : k->in) &&
           b->dims[0] == (turned ? k->in : k->out);
}

static int add_all(struct reading *r, int layer, const struct fused *k, const struct pair *p,
                   bool turned, struct error *e)
{
    int experts = hparams_layer(&r->model->hp, layer)->ffn.experts, rc = 0;
    int64_t all = (int64_t)k->experts * p->rank, rows = k->out / k->n_parts;

    for (int x = 0; x < experts && !rc; x++)
        for (int i = 0; i < k->n_parts && !rc; i++) {
            int64_t first = i * rows;
            struct strided a = {p->a, x * p->rank * k->in, k->in, 1, 0},
                           b = {p->b, x + first * all, all, k->experts, 0};

            if (turned) {
                a = (struct strided){p->b, x, k->experts, all, 0};
                b = (struct strided){p->a, x * p->rank * k->out + first, 1, k->out, 0};
            }
            rc = reading_expert(r, layer, x, k->parts[i], p->rank, p->scale, a, b, e);
        }
    return rc ? rc : 1;
}

/* The family's own fused tensor of that name, so that other modules are ignored. gpt-oss stores it
 * transposed with alternating rows: not supported. */
static int find_layer(const struct reading *r, const char *module, const char *parameter,
                      struct place *at)
{
    char name[400];
    int row = 0;

    snprintf(name, sizeof name, "%s.%s", module, parameter);
    return place_of(r, WEIGHT_SAFETENSORS, name, &row, at) &&
           (at->role == TENSOR_GATE_UPS || at->role == TENSOR_DOWNS);
}

static bool is_turned_family(const struct reading *r)
{
    for (const struct family_tensor *t = r->family->tensors; t->role != TENSOR_ROLES; t++)
        if ((t->role == TENSOR_GATE_UPS || t->role == TENSOR_DOWNS) &&
            t->flags & (TENSOR_TRANSPOSED | TENSOR_TURNS))
            return true;
    return false;
}

int fused_pair(struct reading *r, const struct peft_config *c, const char *module, bool inner,
               bool both, const struct pair *p, struct error *e)
{
    int version = peft_config_layout(c), found = 0, which = 0, experts;
    bool turned = false;
    struct fused kinds[2];
    struct place at;
    char a[80], b[80];

    if (!find_layer(r, module, "gate_up_proj", &at) && !find_layer(r, module, "down_proj", &at))
        return 0;
    if (is_turned_family(r))
        return error_set(e, ERR_MODEL,
                         "%s: %s: adapters on this family's fused experts are not read: they lie "
                         "turned in it",
                         r->info->path, p->a->name);
    if (at.layer < 0 || at.layer >= r->model->hp.n_layers)
        return error_set(e, ERR_MODEL, "%s: %s is of layer %d; the model has %d of them",
                         r->info->path, p->a->name, at.layer, r->model->hp.n_layers);
    if (!(experts = hparams_layer(&r->model->hp, at.layer)->ffn.experts))
        return 0;
    describe(r, at.layer, kinds);
    for (int k = inner ? 0 : both ? 1 : 0; k < (inner && both ? 1 : 2); k++)
        for (int old = 0; old < 2 && peft_config_targets(c, kinds[k].parameter); old++) {
            if (!fits(&kinds[k], p, old) || (version >= 0 && version == old))
                continue;
            found++;
            which = k;
            turned = old;
        }
    if (found == 1)
        return add_all(r, at.layer, &kinds[which], p, turned, e);
    if (found)
        return error_set(e, ERR_MODEL,
                         "%s: %s: fused experts lie either way in it, and its configuration does "
                         "not name the release that wrote it (peft_version): the layout is "
                         "ambiguous",
                         r->info->path, p->a->name);
    return error_set(e, ERR_MODEL,
                     "%s: %s has the shape %s and its partner %s; for rank %d they fit neither "
                     "gate_up_proj nor down_proj of %d experts",
                     r->info->path, p->a->name, shape_text(p->a, a, sizeof a),
                     shape_text(p->b, b, sizeof b), p->rank, experts);
}
