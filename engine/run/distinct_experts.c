/* See distinct_experts.h. */
#include "engine/run/distinct_experts.h"

#include "engine/model/block.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <string.h>

#define MOST 1024      /* experts of a layer */
#define FAR_BACK 4096  /* tokens: how far back a token is searched */
#define NOT_FOUND (-1) /* no earlier occurrence */

struct seen {
    uint64_t bits[MOST / 64];
    int n;
};

static void add(struct seen *s, unsigned expert)
{
    uint64_t bit = 1ULL << expert % 64;

    if (expert >= MOST || s->bits[expert / 64] & bit) /* UINT16_MAX: an empty slot */
        return;
    s->bits[expert / 64] |= bit;
    s->n++;
}

static bool chooses(const struct hparams *hp, int layer)
{
    return hparams_layer(hp, layer)->ffn.experts > 1;
}

/* The last position of each token. */
static void places(const struct session *s, const int *ids, int n, int *at)
{
    int first = s->n_tokens > FAR_BACK ? s->n_tokens - FAR_BACK : 0;

    for (int i = 0; i <= n; i++) {
        int id = i ? ids[i - 1] : s->tokens[s->n_tokens];

        at[i] = s->n_tokens - 1;
        while (at[i] >= first && s->tokens[at[i]] != id)
            at[i]--;
        at[i] = at[i] < first ? NOT_FOUND : at[i];
    }
}

bool distinct_experts_expect(const struct session *s, const int *ids, int n, float *experts)
{
    const struct hparams *hp = &s->engine->model->hp;
    size_t used = (size_t)hp->n_experts_used, layers = (size_t)hp->n_layers;
    int at[TOUCHED_ROWS], routed = 0;

    if (n >= TOUCHED_ROWS || used < 1 || hp->n_experts > MOST)
        return false;
    places(s, ids, n, at);
    memset(experts, 0, ((size_t)n + 1) * sizeof *experts);
    for (int l = 0; l < hp->n_layers; l++) {
        struct seen seen = {.n = 0};
        float others = 0; /* expected count for unfound tokens, if chosen at random */

        if (!chooses(hp, l))
            continue;
        routed++;
        for (int i = 0; i <= n; i++) {
            if (at[i] == NOT_FOUND) {
                others += (float)used * (1 - ((float)seen.n + others) / (float)hp->n_experts);
            } else {
                const uint16_t *row = s->routed + ((size_t)at[i] * layers + (size_t)l) * used;

                for (size_t k = 0; k < used; k++)
                    add(&seen, row[k]);
            }
            experts[i] += (float)seen.n + others;
        }
    }
    for (int i = 0; i <= n && routed; i++)
        experts[i] /= (float)routed;
    return routed > 0;
}

double distinct_experts_by(const struct engine *g, int rows)
{
    const struct hparams *hp = &g->model->hp;
    const struct forward *f = &g->forward;
    size_t used = (size_t)hp->n_experts_used;
    int routed = 0, all = 0;

    if (used < 1 || hp->n_experts > MOST || rows > f->rows)
        return 0;
    for (int l = 0; l < hp->n_layers; l++) {
        const int *row = f->experts + (size_t)l * (size_t)f->rows * used;
        struct seen seen = {.n = 0};

        if (!chooses(hp, l))
            continue;
        for (size_t k = 0; k < (size_t)rows * used; k++)
            add(&seen, row[k] < 0 ? MOST : (unsigned)row[k]);
        all += seen.n;
        routed++;
    }
    return routed ? (double)all / routed : 0;
}

double distinct_experts_share(const struct model *m, double token_bytes)
{
    double bytes = 0;

    for (int l = 0; l < m->hp.n_layers; l++) {
        const struct ffn_shape *f = &hparams_layer(&m->hp, l)->ffn;

        if (f->experts > 1 && f->used > 0)
            bytes += (double)model_token_experts(m, l) / shape_used(hparams_layer(&m->hp, l));
    }
    return token_bytes > 0 ? bytes / token_bytes : 0;
}
