/* The drafter `medusa`: additional heads (medusa_heads.h), each of which predicts a token further
 * ahead, from the hidden state after which the newest token is pending. The engine owns the heads;
 * a session keeps that state. It is not in draft/ because those drafters do not use an engine.
 * Engine thread. */
#include "engine/base/mem.h"
#include "engine/run/draft/chain.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "engine/run/medusa_heads.h"

#include <string.h>

struct drafter {
    struct engine *model;
    struct sureness sureness;
    int pos;              /* position of the kept state; negative: none */
    float *state;         /* (hidden): after the last layer; then normed */
    float *normed, *work; /* (hidden), (2 x hidden) */
    float *logits;        /* n_vocab */
};

static void release(struct drafter *d)
{
    mem_free(d->state);
    mem_free(d->normed);
    mem_free(d->work);
    mem_free(d->logits);
}

static int init(struct drafter *d, struct engine *model, struct error *e)
{
    size_t hidden = (size_t)model->model->hp.hidden;

    d->model = model;
    d->pos = -1;
    d->state = mem_alloc(hidden, sizeof *d->state);
    d->normed = mem_alloc(hidden, sizeof *d->normed);
    d->work = mem_alloc(2 * hidden, sizeof *d->work);
    d->logits = mem_alloc((size_t)model->model->hp.n_vocab, sizeof *d->logits);
    sureness_init(&d->sureness);
    return d->state && d->normed && d->work && d->logits
               ? 0
               : error_set(e, ERR_MEMORY, "no memory for drafts");
}

static void expect(const struct drafter *d, int most, float *p)
{
    sureness_expect(&d->sureness, most, p);
    for (int i = medusa_heads_count(d->model->medusa); i < most; i++)
        p[i] = 0;
}

static void keep_state(struct drafter *d, int pos, int rows, const struct hidden_states *h)
{
    size_t hidden = (size_t)d->model->model->hp.hidden;

    if (rows)
        memcpy(d->state, h->x + (size_t)(rows - 1) * hidden, hidden * sizeof *h->x);
    d->pos = rows ? pos + rows - 1 : d->pos < pos ? d->pos : -1;
}

/* Each head's logits depend only on the model's state. */
static bool next(void *ctx, int made, int id)
{
    struct drafter *d = ctx;
    struct error e;

    return made < medusa_heads_count(d->model->medusa) &&
           medusa_heads_logits(d->model->medusa, made, &d->model->slots[0], d->normed, d->work,
                               d->logits, &e) == 0;
}

static int propose(struct drafter *d, const int *ids, int n, int most, float least, int *out,
                   float *p)
{
    const struct model *m = d->model->model;
    const struct chain c = {&d->sureness, d->logits, m->hp.n_vocab, next, d};

    sureness_begin(&d->sureness);
    if (d->pos < 0 || d->pos != n - 2)
        return 0;
    model_norm(m, &m->output_norm, d->state, d->normed);
    return chain_propose(&c, most, least, out, p);
}

static void learn(struct drafter *d, int tried, int taken)
{
    sureness_learn(&d->sureness, tried, taken);
}

const struct drafter_ops drafter_medusa = {
    .name = "medusa",
    .summary = "what Medusa heads (--medusa) say of the tokens behind the next one",
    .needs = DRAFTER_NEEDS_HEADS,
    .size = sizeof(struct drafter),
    .init = init,
    .release = release,
    .expect = expect,
    .states = keep_state,
    .propose = propose,
    .learn = learn,
};
