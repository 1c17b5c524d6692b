/* The drafter `mtp`: the MTP block of the model's own file (model.h, struct mtp_weights). It is an
 * engine of one layer that shares the threads of its model, with a session for each of the model's.
 * Its row r joins the model's hidden state at position base + r with the token after it, and
 * predicts the following token; to continue on its own it uses its own hidden state instead of the
 * model's. The model's states are kept only for the newest positions and read when drafts are
 * wanted, so a block that never drafts costs a copy per token. If more tokens came in between, it
 * restarts further on: only distances between positions matter. A state of hyper-connected streams
 * is all of them (hparams_state_values). It is not in draft/ because those drafters do not use an
 * engine. Engine thread. */
#include "engine/base/mem.h"
#include "engine/run/draft/chain.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <stdatomic.h>
#include <string.h>

#define HELD 512 /* positions whose states are kept */

struct drafter {
    struct draft_reader reader;
    float *states;  /* (HELD, values of a state): that of position p in row p % HELD */
    float *own;     /* its own state, of the row computed last */
    int from, upto; /* range of positions with states */
    int base, read; /* rows of the session made from the model's states; the rest is drafted */
};

/* Values of a state. */
static size_t values_of(const struct drafter *d)
{
    return (size_t)hparams_state_values(&d->reader.model->model->hp);
}

static float *state_at(const struct drafter *d, int pos)
{
    return d->states + (size_t)(pos % HELD) * values_of(d);
}

static void release(struct drafter *d)
{
    draft_reader_release(&d->reader);
    mem_free(d->states);
    mem_free(d->own);
}

static int init(struct drafter *d, struct engine *model, struct error *e)
{
    size_t values = (size_t)hparams_state_values(&model->model->hp);

    d->states = mem_alloc(HELD * values, sizeof *d->states);
    d->own = mem_alloc(values, sizeof *d->own);
    return d->states && d->own ? draft_reader_init(&d->reader, model, e)
                               : error_set(e, ERR_MEMORY, "no memory for drafts");
}

static void expect(const struct drafter *d, int most, float *p)
{
    sureness_expect(&d->reader.sureness, most, p);
}

static void keep_states(struct drafter *d, int pos, int rows, const struct hidden_states *h)
{
    const struct model *m = d->reader.model->model;

    if (pos > d->upto || pos < d->from)
        d->from = pos;
    for (int i = rows > HELD ? rows - HELD : 0; i < rows; i++) {
        if (h->streams)
            memcpy(state_at(d, pos + i), h->streams + (size_t)i * h->stride,
                   values_of(d) * sizeof *d->states);
        else
            model_norm(m, &m->mtp.state_norm, h->x + (size_t)i * values_of(d),
                       state_at(d, pos + i));
    }
    d->upto = pos + rows;
    if (d->upto - d->from > HELD)
        d->from = d->upto - HELD;
}

/* Number of valid rows: made from the model's states, with the same tokens. */
static int standing(const struct drafter *d, const int *ids, int n)
{
    int same = 0;

    while (same < d->read && d->base + same + 1 < n &&
           ids[d->base + same + 1] == d->reader.session->tokens[same])
        same++;
    return same;
}

static int behind(const struct drafter *d, const int *ids, int n)
{
    int missing = n - 1 - d->base - standing(d, ids, n);

    return missing < HELD ? missing : HELD;
}

/* Takes the state after the last computed row, for the next one. */
static void take_own(struct drafter *d)
{
    const struct forward *f = &d->reader.model->forward;
    const struct model *m = d->reader.model->model;
    static const struct norm_weights none;
    size_t last = (size_t)(f->rows - 1);

    if (hparams_hyper(&m->hp))
        memcpy(d->own,
               f->inputs + last * (size_t)hparams_beside(&m->hp) + hparams_streams_at(&m->hp),
               values_of(d) * sizeof *d->own);
    else
        model_norm(m, m->mtp.state_norm.weight ? &m->output_norm : &none,
                   f->x + last * values_of(d), d->own);
}

/* Appends rows: tokens, and the states joined with them. logits: of the last one, or NULL. */
static bool extend(struct drafter *d, const int *ids, int n, const float *states, float *logits)
{
    struct session *s = d->reader.session;
    struct error e;
    int rc;

    s->states = states;
    s->states_at = s->n_tokens;
    rc = session_extend(s, ids, n, 0, logits, false, &e);
    s->states = NULL;
    return rc == 0;
}

/* Its head is the model's, which may have been packed meanwhile. */
static void mind_head(struct drafter *d)
{
    struct model *m = d->reader.model->model;
    const struct model *of = d->reader.model->config.mtp_of;

    if (m->head.data == of->head.data)
        atomic_store(&m->head.raw, atomic_load(&of->head.raw));
}

/* Brings its session to the position before the last token; the logits are those after the last
 * row. */
static bool read_along(struct drafter *d, const int *ids, int n)
{
    int keep = standing(d, ids, n), last = n - 1;

    if (last < 1 || d->upto < last || d->from >= last)
        return false;
    if (d->base + keep >= last)
        keep = last - d->base - 1;
    if (d->base + keep < d->from) {
        d->base = d->from;
        keep = 0;
    }
    mind_head(d);
    session_rewind(d->reader.session, keep);
    d->read = keep;
    while (d->base + d->read < last) {
        int pos = d->base + d->read, rows = last - pos;

        rows = rows < HELD - pos % HELD ? rows : HELD - pos % HELD;
        if (!extend(d, ids + pos + 1, rows, state_at(d, pos),
                    pos + rows == last ? d->reader.logits : NULL))
            return false;
        d->read += rows;
    }
    take_own(d);
    return true;
}

static void read_before(struct drafter *d, const int *ids, int n)
{
    read_along(d, ids, n);
}

/* Provides the logits after the last token; those after a drafted one come from its own state. */
static bool next(void *ctx, int made, int id)
{
    struct drafter *d = ctx;

    if (!made)
        return true;
    if (d->reader.session->n_tokens >= d->reader.model->info.context ||
        !extend(d, &id, 1, d->own, d->reader.logits))
        return false;
    take_own(d);
    return true;
}

static int propose(struct drafter *d, const int *ids, int n, int most, float least, int *out,
                   float *p)
{
    const struct chain c = {&d->reader.sureness, d->reader.logits,
                            d->reader.model->model->hp.n_vocab, next, d};

    sureness_begin(&d->reader.sureness);
    return read_along(d, ids, n) ? chain_propose(&c, most, least, out, p) : 0;
}

static void learn(struct drafter *d, int tried, int taken)
{
    sureness_learn(&d->reader.sureness, tried, taken);
}

const struct drafter_ops drafter_mtp = {
    .name = "mtp",
    .summary = "what the block of the model's file that predicts further tokens says",
    .needs = DRAFTER_NEEDS_MTP,
    .size = sizeof(struct drafter),
    .init = init,
    .release = release,
    .expect = expect,
    .behind = behind,
    .read = read_before,
    .states = keep_states,
    .propose = propose,
    .learn = learn,
};

struct engine_config engine_mtp_config(const struct engine_config *of, const struct model *model,
                                       int context)
{
    struct engine_config c = engine_draft_config(of, context);

    c.model_path = of->model_path;
    c.overrides = of->overrides;
    c.convert = of->convert;
    c.mtp_of = model;
    return c;
}

uint64_t engine_mtp_states(const struct model *model)
{
    return (HELD + 1) * (uint64_t)hparams_state_values(&model->hp) * sizeof(float);
}
