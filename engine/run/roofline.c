/* See roofline.h. */
#include "engine/run/roofline.h"

#include "engine/placement/cost_model.h"

#include <assert.h>
#include <stdio.h>

static double weights_of(const struct model *m, struct block_id id)
{
    struct block_matrix list[BLOCK_MATRICES];
    int n = model_block_matrices(m, id, list);
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)list[i].w->rows * (double)list[i].w->cols;
    return sum;
}

/* Weights of a layer that a token is multiplied with: its mixer, its router, the experts met. */
static double layer_weights_of(const struct model *m, int layer)
{
    const struct ffn_shape *f = &hparams_layer(&m->hp, layer)->ffn;
    double routed = 0, sum = weights_of(m, (struct block_id){BLOCK_ATTENTION, layer, 0}) +
                             (double)f->experts * m->hp.hidden;

    for (int x = 0; x < f->experts + f->shared; x++)
        *(x < f->experts ? &routed : &sum) += weights_of(m,
                                                         (struct block_id){BLOCK_EXPERT, layer, x});
    return sum + (f->experts ? routed * f->used / f->experts : 0);
}

void roofline_init(struct roofline *r, const struct model *m, enum kv_type kv_k, enum kv_type kv_v)
{
    const struct hparams *hp = &m->hp;
    double active = weights_of(m, (struct block_id){BLOCK_HEAD, 0, 0});

    *r = (struct roofline){.window = hp->common.mixer.window};
    for (struct block_id id = BLOCK_BEFORE; model_block_next(m, &id);) {
        struct block_bytes b = model_block_parts(m, id);

        r->all_weights += b.matrices + b.norms + b.router;
        if (id.kind == BLOCK_ATTENTION) {
            r->attention += b.matrices;
            r->router_norms += b.router + b.norms;
        } else if (id.kind == BLOCK_HEAD) {
            r->head = b.matrices + b.norms;
        }
    }
    for (int l = 0; l < hp->n_layers; l++) {
        r->experts += model_token_experts(m, l);
        active += layer_weights_of(m, l);
    }
    r->kv_row = cost_model_kv_row_bytes(hp, kv_k, kv_v) * (uint64_t)hp->n_layers;
    r->operations = 2 * active;
}

uint64_t roofline_token_bytes(const struct roofline *r, int n_context)
{
    uint64_t seen = (uint64_t)(r->window && n_context > r->window ? r->window
                               : n_context > 0                    ? n_context
                                                                  : 0);

    return r->attention + r->experts + r->router_norms + r->head + seen * r->kv_row;
}

uint64_t roofline_rows_bytes(const struct roofline *r, const struct model *m, const int *experts,
                             int rows, int pos)
{
    int pairs = rows * m->hp.n_experts_used, seen = pos + rows;
    uint64_t bytes = r->attention + r->router_norms;

    assert(rows > 0 && pos >= 0);
    for (int l = 0; l < m->hp.n_layers; l++, experts += pairs)
        for (int i = 0; i < pairs; i++) {
            struct block_id id = {BLOCK_EXPERT, l, experts[i]};
            int k = 0;

            while (experts[k] != experts[i])
                k++;
            if (k == i && experts[i] >= 0) /* nobody before chose it */
                bytes += model_block_parts(m, id).matrices;
        }
    if (r->window && seen > r->window + rows - 1)
        seen = r->window + rows - 1;
    return bytes + (uint64_t)seen * r->kv_row;
}

double roofline_tokens_per_second(const struct roofline *r, int n_context, double bandwidth)
{
    uint64_t bytes = roofline_token_bytes(r, n_context);

    return bytes && bandwidth > 0 ? bandwidth / (double)bytes : 0;
}

char *roofline_text(const struct roofline *r, int n_context, double tokens_per_second,
                    double bandwidth, bool in_cache, char *out, size_t size)
{
    double most = roofline_tokens_per_second(r, n_context, bandwidth);

    assert(size > 0);
    out[0] = 0;
    if (in_cache)
        snprintf(out, size, "in cache");
    else if (most > 0 && tokens_per_second > 0)
        snprintf(out, size, "%.0f %% of memory speed", 100 * tokens_per_second / most);
    return out;
}
