/* Fewer experts per token than the model was trained with. The layers' shapes hold the number of
 * chosen experts, which all code that computes, counts or places reads. lossy/shadow.c measures the
 * loss. Engine thread, outside a turn. */
#include "engine/base/mem.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

int engine_experts_trained(const struct engine *g)
{
    const struct hparams *hp = &g->model->hp;
    int most = 0;

    for (int l = 0; l < hp->n_layers; l++) {
        int used = g->used_trained ? g->used_trained[l] : hparams_layer(hp, l)->ffn.used;

        most = used > most ? used : most;
    }
    return most;
}

int fewer_experts_remember(struct engine *g, struct error *e)
{
    const struct hparams *hp = &g->model->hp;

    if (g->used_trained)
        return 0;
    if (!(g->used_trained = mem_alloc((size_t)hp->n_layers, sizeof *g->used_trained)))
        return error_set(e, ERR_MEMORY, "no memory for the layers' experts");
    for (int l = 0; l < hp->n_layers; l++)
        g->used_trained[l] = hparams_layer(hp, l)->ffn.used;
    return 0;
}

void fewer_experts_use(struct engine *g, int n, float least)
{
    struct hparams *hp = &g->model->hp;

    for (int l = 0; l < hp->n_layers && hp->layers; l++)
        hp->layers[l].ffn.used = n > 0 && n < g->used_trained[l] ? n : g->used_trained[l];
    g->experts_used = n;
    g->forward.least = least;
    if (g->forward.plan)
        forward_placed(&g->forward, g->forward.plan, g->forward.n_devices);
    utility_forget(&g->utility);
}

int engine_experts_used_set(struct engine *g, int n, struct error *e)
{
    int rc = fewer_experts_remember(g, e), most = rc < 0 ? 0 : engine_experts_trained(g);

    if (rc < 0)
        return rc;
    if (n && !most)
        return error_set(e, ERR_USAGE, "--experts-used: the model has no experts to choose from");
    if (n < 0 || n > most)
        return error_set(e, ERR_USAGE, "--experts-used %d: a token of this model uses %d; 1 to %d",
                         n, most, most);
    disk_sessions_stop(g, DISK_SESSIONS_OTHER);
    fewer_experts_use(g, n, g->forward.least);
    lossy_changed(g);
    return 0;
}

int engine_experts_least_set(struct engine *g, float least, struct error *e)
{
    int rc = fewer_experts_remember(g, e);

    if (rc < 0)
        return rc;
    if (least != 0.0f && !engine_experts_trained(g))
        return error_set(e, ERR_USAGE, "--experts-weight: the model has no experts to choose from");
    if (!(least >= 0.0f && least <= 1.0f))
        return error_set(e, ERR_USAGE, "--experts-weight %g: a weight from 0 to 1 is expected",
                         (double)least);
    disk_sessions_stop(g, DISK_SESSIONS_OTHER);
    fewer_experts_use(g, g->experts_used, least);
    lossy_changed(g);
    return 0;
}

void engine_experts_lossy(const struct engine *g, int *used, float *least)
{
    *used = g->experts_used;
    *least = g->forward.least;
}
