/* Changes the types of keys and values: the sessions' rows are recomputed, since no two types are
 * mixed. Engine thread, outside a turn. */
#include "engine/run/engine.h"
#include "engine/run/internal.h"

/* Recreates the table of held rows, and the CPU's caches. */
static int retype(struct engine *g, enum kv_type k, enum kv_type v, struct error *e)
{
    const struct device_slot *cpu = &g->slots[0];
    int rc = cpu->ops->state_types(cpu->device, k, v, e);

    for (int i = 0; i < g->n_sessions && rc == 0; i++)
        if (!i || g->sessions[i])
            rc = cpu->ops->state_open(cpu->device, i, e);
    if (rc < 0)
        return rc;
    g->config.kv_k = g->state.k = k;
    g->config.kv_v = g->state.v = v;
    kv_release(&g->kv);
    rc = kv_init(&g->kv, g->model, g->slots, &g->state, e);
    for (int i = 0; i < g->n_sessions && rc == 0; i++) {
        struct session *s = g->sessions[i];

        if (!s || (rc = kv_open(&g->kv, i, e)) < 0)
            continue;
        checkpoints_free(s->checkpoints);
        s->checkpoints = NULL;
        if (g->kv.all_copies)
            rc = checkpoints_new(&s->checkpoints, &g->model->hp, &g->state, &g->kv, i, e);
    }
    return rc;
}

static int may(const struct engine *g, enum kv_type k, enum kv_type v, struct error *e)
{
    int width = state_not_blocks(&g->model->hp, k, v);

    if (width)
        return error_set(e, ERR_USAGE,
                         "Q8_0 keys and values need heads of a multiple of 32, not %d", width);
    if (g->n_devices > 1 || !g->slots[0].ops->state_types)
        return error_set(
            e, ERR_USAGE,
            "keys and values may lie on several devices here: their types are those of "
            "the start (-ctk, -ctv; --device none: the CPU alone)");
    return 0;
}

int engine_kv_types_set(struct engine *g, enum kv_type k, enum kv_type v, struct error *e)
{
    const enum kv_type was_k = g->config.kv_k, was_v = g->config.kv_v;
    struct error ignored;
    int rc;

    if (k == was_k && v == was_v)
        return 0;
    if ((rc = may(g, k, v, e)) < 0)
        return rc;
    disk_sessions_stop(g, DISK_SESSIONS_OTHER);
    for (int i = 0; i < g->n_sessions; i++)
        if (g->sessions[i])
            session_rewind(g->sessions[i], 0);
    utility_forget(&g->utility);
    rc = retype(g, k, v, e);
    if (rc < 0)
        retype(g, was_k, was_v, &ignored); /* its memory was available a moment ago */
    return rc;
}

void engine_kv_types(const struct engine *g, enum kv_type *k, enum kv_type *v)
{
    *k = g->config.kv_k;
    *v = g->config.kv_v;
}

void engine_kv_types_opened(const struct engine *g, enum kv_type *k, enum kv_type *v)
{
    *k = g->opened.k;
    *v = g->opened.v;
}
