/* See roofline.h. */
#include "engine/run/report/roofline.h"

#include "engine/base/membw.h"
#include "engine/device/state.h"

#include <assert.h>
#include <math.h>
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

/* Weights of a layer that a token is multiplied with: its mixer, its router, its experts. */
static double layer_weights_of(const struct model *m, int layer)
{
    const struct ffn_shape *f = &hparams_layer(&m->hp, layer)->ffn;
    double routed = 0, further = 0,
           sum = weights_of(m, (struct block_id){BLOCK_ATTENTION, layer, 0}) +
                 (double)shape_choices(f) * m->hp.hidden;

    for (int x = 0; x < f->experts + shape_further(f); x++)
        *(x < f->experts ? &routed
                         : &further) += weights_of(m, (struct block_id){BLOCK_EXPERT, layer, x});
    if (f->grouped)
        further = further * shape_further_used(f) / shape_further(f);
    return sum + further + (f->experts ? routed * f->used / f->experts : 0);
}

void roofline_init(struct roofline *r, const struct model *m, enum kv_type kv_k, enum kv_type kv_v)
{
    const struct hparams *hp = &m->hp;
    double active = weights_of(m, (struct block_id){BLOCK_HEAD, 0, 0});

    *r = (struct roofline){.hp = hp, .kv_k = kv_k, .kv_v = kv_v};
    for (struct block_id id = BLOCK_BEFORE; model_block_next(m, &id);) {
        struct block_bytes b = model_block_parts(m, id);

        r->all_weights += b.matrices + b.norms + b.router;
        if (id.kind == BLOCK_ATTENTION) {
            r->attention += model_token_mixer(m, id.layer);
            r->router_norms += b.router + b.norms;
        } else if (id.kind == BLOCK_HEAD) {
            r->head = b.matrices + b.norms;
        }
    }
    for (int l = 0; l < hp->n_layers; l++) {
        r->experts += model_token_experts(m, l);
        active += layer_weights_of(m, l);
    }
    r->operations = 2 * active;
}

uint64_t roofline_state_bytes(const struct roofline *r, int seen, int rows)
{
    return state_read_bytes(r->hp, r->kv_k, r->kv_v, seen, rows);
}

uint64_t roofline_token_bytes(const struct roofline *r, int n_context)
{
    return r->attention + r->experts + r->router_norms + r->head +
           roofline_state_bytes(r, n_context, 1);
}

uint64_t roofline_rows_bytes(const struct roofline *r, const struct model *m, const int *experts,
                             int rows, int pos)
{
    int pairs = rows * m->hp.n_experts_used;
    uint64_t bytes = r->attention + r->router_norms;

    assert(rows > 0 && pos >= 0);
    for (int l = 0; l < m->hp.n_layers; l++, experts += pairs)
        for (int i = 0; i < pairs; i++) {
            struct block_id id = {BLOCK_EXPERT, l, experts[i]};
            int k = 0;

            while (experts[k] != experts[i])
                k++;
            if (k == i && experts[i] >= 0) /* not chosen by an earlier row */
                bytes += model_block_parts(m, id).matrices;
        }
    return bytes + roofline_state_bytes(r, pos + rows, rows);
}

double roofline_tokens_per_second(const struct roofline *r, int n_context, double bandwidth)
{
    uint64_t bytes = roofline_token_bytes(r, n_context);

    return bytes && bandwidth > 0 ? bandwidth / (double)bytes : 0;
}

/* beyond measurement error: part of the weights came out of the cache, or memory was slower when it
 * was measured than during decoding */
#define BEYOND 1.15

char *roofline_text(const struct roofline *r, int n_context, double tokens_per_second,
                    double earlier, double bandwidth, bool in_cache, char *out, size_t size)
{
    double most = roofline_tokens_per_second(r, n_context, bandwidth);

    assert(size > 0);
    out[0] = 0;
    if (in_cache)
        snprintf(out, size, "in cache");
    else if (membw_swung(earlier, bandwidth))
        snprintf(out, size, "memory swung %.0f-%.0f GB/s", fmin(earlier, bandwidth) * 1e-9,
                 fmax(earlier, bandwidth) * 1e-9);
    else if (most > 0 && tokens_per_second > BEYOND * most)
        snprintf(out, size, "faster than memory");
    else if (most > 0 && tokens_per_second > 0)
        snprintf(out, size, "%.0f %% of memory speed", 100 * tokens_per_second / most);
    return out;
}
