/* Memory of an engine, computed from the same shapes that opening it uses. Any thread; nothing is
 * allocated. tests/check_fit.c opens engines and compares: the table of --fit is exact or the test
 * fails. */
#include "engine/base/topology.h"
#include "engine/device/state.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <string.h>

/* ---- memory of drafting ---- */

bool drafting_wanted(const struct drafting *c)
{
    return c->type[0] && strcmp(c->type, "none") != 0;
}

int drafting_most_rows(const struct drafting *c, int ubatch)
{
    return !drafting_wanted(c) ? 0 : ubatch > DRAFT_MOST ? DRAFT_MOST : ubatch - 1;
}

int drafting_rows(const struct drafting *c, int ubatch)
{
    int rows = drafting_most_rows(c, ubatch), most = c->n_max > 0 ? c->n_max : DRAFT_DEFAULT;

    return rows < most ? rows : most;
}

size_t drafting_footprint(const struct drafting *c, const struct hparams *hp, int ubatch,
                           int sessions)
{
    size_t rows = (size_t)drafting_most_rows(c, ubatch);

    /* several sessions have a row of logits each already */
    return (rows && sessions < 2 ? rows + 1 : rows) * (size_t)hp->n_vocab * sizeof(float);
}

bool engine_mtp_wanted(const struct engine_config *c)
{
    const char *type = c->drafting.type;

    return !c->mtp_of &&
           (strcmp(type, "mtp") == 0 || (strcmp(type, "auto") == 0 && !c->drafting.model));
}

/* ---- an engine ---- */

/* Host memory of a context: rows, copies of state, and the tables that grow with it. */
static uint64_t context_bytes(const struct engine_config *c, const struct hparams *hp, int context)
{
    const struct state_config state = {c->kv_k, c->kv_v, context,
                                       c->ubatch ? c->ubatch : ENGINE_DEFAULT_UBATCH};
    uint64_t rows = 0, sessions = c->sessions > 1 ? (uint64_t)c->sessions : 1;

    for (int l = 0; l < hp->n_layers; l++) {
        const struct mixer_shape *m = &hparams_layer(hp, l)->mixer;

        rows += state_size(m, c->kv_k, c->kv_v).token_bytes * (uint64_t)state_room(m, &state);
    }
    return sessions * (rows + history_footprint(hp, context) + checkpoints_footprint(hp, &state)) +
           rope_footprint(hp, context);
}

/* The default context: the trained one, halved until it takes at most half of the memory that the
 * weights leave. */
static int default_context(const struct engine_config *c, const struct model *m)
{
    uint64_t weights = m->packed_bytes + m->mapped_bytes + m->cache_bytes,
             room = c->memory > weights ? (c->memory - weights) / 2 : 0;
    int n = m->hp.context_max;

    while (n > ENGINE_DEFAULT_CONTEXT && context_bytes(c, &m->hp, n) > room)
        n = n / 2 > ENGINE_DEFAULT_CONTEXT ? n / 2 : ENGINE_DEFAULT_CONTEXT;
    return n;
}

int engine_resolve(const struct engine_config *c, const struct model *m,
                   struct engine_footprint *out, struct error *e)
{
    const struct hparams *hp = &m->hp;

    *out = (struct engine_footprint){0};
    out->n_threads = c->n_threads > 0 ? c->n_threads : topology_default_threads();
    out->context = c->context ? c->context : default_context(c, m);
    if (model_positions(m) && out->context > model_positions(m))
        out->context = model_positions(m); /* it has no more */
    out->ubatch = c->ubatch ? c->ubatch : ENGINE_DEFAULT_UBATCH;
    if (c->batch && c->batch < out->ubatch)
        out->ubatch = c->batch;
    if (out->context < 1 || out->context > 1 << 24)
        return error_set(e, ERR_USAGE, "a context of %d tokens is out of range (1 to %d)",
                         out->context, 1 << 24);
    if (out->ubatch < 1 || out->ubatch > 8192)
        return error_set(e, ERR_USAGE, "-ub %d is out of range (1 to 8192)", out->ubatch);
    if (out->ubatch > out->context)
        out->ubatch = out->context;
    if (state_not_blocks(hp, c->kv_k, c->kv_v))
        return error_set(
            e, ERR_USAGE,
            "a q8_0 cache needs heads of a multiple of 32 values, this model has %d: use f16",
            state_not_blocks(hp, c->kv_k, c->kv_v));
    return 0;
}

size_t session_footprint(const struct hparams *hp, const struct state_config *state, int sessions)
{
    size_t n = sessions > 1 ? (size_t)sessions : 1, vocab = (size_t)hp->n_vocab;

    return n * (history_footprint(hp, state->context) + checkpoints_footprint(hp, state) +
                vocab * sizeof(float) + sampler_footprint(hp->n_vocab)) +
           (n > 1 ? n * vocab * sizeof(float) : 0);
}

int engine_footprint(const struct engine_config *c, const struct model *inspected,
                     struct engine_footprint *out, struct error *e)
{
    const struct hparams *hp = &inspected->hp;
    struct state_config state;
    uint64_t device_scratch;
    int rc;

    if ((rc = engine_resolve(c, inspected, out, e)) < 0)
        return rc;
    state = (struct state_config){c->kv_k, c->kv_v, out->context, out->ubatch};
    {
        struct device_config d = {.model = inspected,
                                  .n_threads = out->n_threads,
                                  .max_rows = out->ubatch,
                                  .context = out->context,
                                  .drafts = drafting_rows(&c->drafting, out->ubatch),
                                  .sessions = c->sessions,
                                  .kv_k = c->kv_k,
                                  .kv_v = c->kv_v,
                                  .exact = c->exact,
                                  .float_library = c->float_library};

        if ((rc = cpu_device_footprint(&d, &out->kv_bytes, &device_scratch, e)) < 0)
            return rc;
    }
    out->copies_bytes = (uint64_t)(c->sessions > 1 ? c->sessions : 1) *
                        checkpoints_footprint(hp, &state);
    out->apart_bytes = forward_apart_footprint(hp, out->ubatch);
    out->scratch_bytes = device_scratch + forward_footprint(hp, out->ubatch) +
                         rope_footprint(hp, out->context) +
                         session_footprint(hp, &state, c->sessions) +
                         drafting_footprint(&c->drafting, hp, out->ubatch, c->sessions);
    return 0;
}
