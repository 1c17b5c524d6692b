/* The drafter `eagle`: extrapolates the next hidden state linearly from the newest two, h + alpha
 * (h - h_prev), and the model's head predicts the token from it; then repeats from there. It is the
 * part of EAGLE (Li et al. 2024, arXiv:2401.15077: hidden states are easier to predict than tokens)
 * that needs no training: only alpha is learnt, unless it is set, as the least-squares fit of each
 * step between states to the one before it, newest weighing most. Each token costs one evaluation
 * of the head. It is not in draft/ because those drafters do not use an engine. Engine thread. */
#include "engine/base/mem.h"
#include "engine/run/draft/chain.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <string.h>

#define FADE 0.98 /* weight of an older step relative to the next newer one */
#define ALPHA_MOST 1.0f

struct drafter {
    struct engine *model;
    struct sureness sureness;
    int n, pos;             /* states kept, at most 2; the position of the newest one */
    float *newest, *before; /* (hidden) */
    float *here, *prev;     /* (hidden): extrapolated */
    float *logits;          /* n_vocab */
    double along, steps;    /* sums: of steps times the one before, of those squared */
};

static size_t hidden_of(const struct drafter *d)
{
    return (size_t)d->model->model->hp.hidden;
}

static void release(struct drafter *d)
{
    mem_free(d->newest);
    mem_free(d->before);
    mem_free(d->here);
    mem_free(d->prev);
    mem_free(d->logits);
}

static int init(struct drafter *d, struct engine *model, struct error *e)
{
    d->model = model;
    d->newest = mem_alloc(hidden_of(d), sizeof *d->newest);
    d->before = mem_alloc(hidden_of(d), sizeof *d->before);
    d->here = mem_alloc(hidden_of(d), sizeof *d->here);
    d->prev = mem_alloc(hidden_of(d), sizeof *d->prev);
    d->logits = mem_alloc((size_t)model->model->hp.n_vocab, sizeof *d->logits);
    sureness_init(&d->sureness);
    return d->newest && d->before && d->here && d->prev && d->logits
               ? 0
               : error_set(e, ERR_MEMORY, "no memory for drafts");
}

static void expect(const struct drafter *d, int most, float *p)
{
    sureness_expect(&d->sureness, most, p);
}

/* Updates the fit with a new state. */
static void fit(struct drafter *d, const float *x)
{
    double along = 0, steps = 0;

    for (size_t i = 0; i < hidden_of(d); i++) {
        double step = (double)d->newest[i] - (double)d->before[i];

        along += ((double)x[i] - (double)d->newest[i]) * step;
        steps += step * step;
    }
    d->along = FADE * d->along + along;
    d->steps = FADE * d->steps + steps;
}

static float alpha_of(const struct drafter *d)
{
    float set = d->model->config.drafting.alpha, fitted;

    if (set != 0.0f)
        return set;
    fitted = d->steps > 0 ? (float)(d->along / d->steps) : 0.0f;
    return fitted > ALPHA_MOST ? ALPHA_MOST : fitted < -ALPHA_MOST ? -ALPHA_MOST : fitted;
}

static void keep_state(struct drafter *d, const float *x)
{
    float *old = d->before;

    if (d->n == 2)
        fit(d, x);
    d->before = d->newest;
    d->newest = old;
    memcpy(d->newest, x, hidden_of(d) * sizeof *x);
    d->n += d->n < 2;
}

static void keep_states(struct drafter *d, int pos, int rows, const struct hidden_states *h)
{
    if (pos != d->pos + 1)
        d->n = 0;
    for (int i = 0; i < rows; i++)
        keep_state(d, h->x + (size_t)i * hidden_of(d));
    d->pos = pos + rows - 1;
}

/* Extrapolates one step and computes its logits. */
static bool next(void *ctx, int made, int id)
{
    struct drafter *d = ctx;
    static const float *const none[1];
    float *old = d->prev, alpha = alpha_of(d);
    struct error e;

    for (size_t i = 0; i < hidden_of(d); i++)
        old[i] = d->here[i] + alpha * (d->here[i] - old[i]);
    d->prev = d->here;
    d->here = old;
    return forward_head_at(&d->model->forward, d->here, none, 1, d->logits, &e) == 0;
}

static int propose(struct drafter *d, const int *ids, int n, int most, float least, int *out,
                   float *p)
{
    const struct chain c = {&d->sureness, d->logits, d->model->model->hp.n_vocab, next, d};

    sureness_begin(&d->sureness);
    if (d->n < 2 || d->pos != n - 2)
        return 0;
    memcpy(d->here, d->newest, hidden_of(d) * sizeof *d->here);
    memcpy(d->prev, d->before, hidden_of(d) * sizeof *d->prev);
    return chain_propose(&c, most, least, out, p);
}

static void learn(struct drafter *d, int tried, int taken)
{
    sureness_learn(&d->sureness, tried, taken);
}

const struct drafter_ops drafter_eagle = {
    .name = "eagle",
    .summary = "what the model's head says of the hidden state that would come in a straight line",
    .needs = DRAFTER_NEEDS_ITSELF,
    .by_name = true,
    .size = sizeof(struct drafter),
    .init = init,
    .release = release,
    .expect = expect,
    .states = keep_states,
    .propose = propose,
    .learn = learn,
};
