/* See roofline.h. */
#include "engine/run/roofline.h"

#include "engine/placement/cost_model.h"

#include <stdio.h>

static double weights_of(const struct matrix *m)
{
    return (double)m->rows * (double)m->cols;
}

void roofline_init(struct roofline *r, const struct model *m, enum kv_type kv_k, enum kv_type kv_v)
{
    const struct hparams *hp = &m->hp;
    uint64_t norm = (uint64_t)hp->hidden * (m->output_norm.bias ? 8 : 4);
    double active = weights_of(&m->head);

    *r = (struct roofline){.head = m->head.bytes + norm, .window = hp->common.mixer.window};
    for (int l = 0; l < hp->n_layers; l++) {
        const struct layer_weights *w = &m->layers[l];
        uint64_t experts = 0;
        double in_experts = 0;

        r->attention += w->q.bytes + w->k.bytes + w->v.bytes + w->o.bytes;
        active += weights_of(&w->q) + weights_of(&w->k) + weights_of(&w->v) + weights_of(&w->o) +
                  (double)hp->n_experts * hp->hidden;
        for (int x = 0; x < hp->n_experts; x++) {
            const struct expert_weights *e = &w->experts[x];

            experts += e->gate.bytes + e->up.bytes + e->down.bytes;
            in_experts += weights_of(&e->gate) + weights_of(&e->up) + weights_of(&e->down);
        }
        r->all_weights += experts;
        if (hp->n_experts) {
            r->experts += experts * (uint64_t)hp->n_experts_used / (uint64_t)hp->n_experts;
            active += in_experts * hp->n_experts_used / hp->n_experts;
        }
        r->router_norms += (uint64_t)hp->n_experts * (uint64_t)hp->hidden * 4 + 2 * norm;
    }
    r->all_weights += r->attention + r->router_norms + r->head;
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

    for (int l = 0; l < m->hp.n_layers; l++, experts += pairs)
        for (int i = 0; i < pairs; i++) {
            const struct expert_weights *e = &m->layers[l].experts[experts[i]];
            int k = 0;

            while (experts[k] != experts[i])
                k++;
            if (k == i) /* nobody before chose it */
                bytes += e->gate.bytes + e->up.bytes + e->down.bytes;
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

    out[0] = 0;
    if (in_cache)
        snprintf(out, size, "in cache");
    else if (most > 0 && tokens_per_second > 0)
        snprintf(out, size, "%.0f %% of memory speed", 100 * tokens_per_second / most);
    return out;
}
