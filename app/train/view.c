/* See view.h. */
#include "app/train/view.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct train_view {
    struct trainer *t;
    pthread_mutex_t lock;
    struct ui_training now; /* its arrays are the newest; the copy has `shown` */
    size_t cells;
    double *squares; /* (cells): sum over the steps; NAN: not trained */
    double *step;    /* (cells): buffer for one step */
    float *newest, *mean, *shown_newest, *shown_mean;
    uint16_t *routed;
    int64_t tokens; /* since the run was started */
    uint64_t begun;
};

/* ---- the shape ---- */

static void shape(struct train_view *v, const struct base *b)
{
    struct ui_training *n = &v->now;

    n->layers = b->model->hp.n_layers;
    for (int l = 0; l < n->layers; l++) {
        int blocks = shape_experts(b->layers[l].shape);

        n->blocks = blocks > n->blocks ? blocks : n->blocks;
    }
}

static bool take_room(struct train_view *v, const struct base *b)
{
    shape(v, b);
    v->cells = (size_t)v->now.layers * (size_t)(1 + v->now.blocks);
    if (!(v->squares = mem_alloc(v->cells, sizeof *v->squares)) ||
        !(v->step = mem_alloc(v->cells, sizeof *v->step)) ||
        !(v->newest = mem_alloc(4 * v->cells, sizeof *v->newest)) ||
        !(v->routed = mem_alloc((size_t)v->now.layers, sizeof *v->routed)))
        return false;
    v->mean = v->newest + v->cells;
    v->shown_newest = v->mean + v->cells;
    v->shown_mean = v->shown_newest + v->cells;
    for (int l = 0; l < v->now.layers; l++)
        v->routed[l] = (uint16_t)b->layers[l].shape->ffn.experts;
    return true;
}

static size_t cell_of(const struct train_view *v, struct block_id id)
{
    return (size_t)id.layer * (size_t)(1 + v->now.blocks) +
           (id.kind == BLOCK_EXPERT ? (size_t)(1 + id.expert) : 0);
}

/* NAN where nothing is trained, 0 elsewhere. */
static void mark_trained(struct train_view *v)
{
    const struct modules *m = trainer_modules(v->t);

    for (size_t i = 0; i < v->cells; i++)
        v->squares[i] = NAN;
    for (int i = 0; i < m->n; i++)
        if (m->list[i].trained)
            v->squares[cell_of(v, m->list[i].id)] = 0.0;
    for (size_t i = 0; i < v->cells; i++)
        v->newest[i] = v->mean[i] = (float)v->squares[i];
}

static int largest_rank(const struct modules *m)
{
    int rank = 0;

    for (int i = 0; i < m->n; i++)
        rank = m->list[i].rank > rank ? m->list[i].rank : rank;
    return rank;
}

struct train_view *train_view_new(struct trainer *t, bool has_valid)
{
    const struct train_config *c = trainer_config(t);
    const struct train_memory m = trainer_memory(t);
    struct train_view *v = mem_alloc(1, sizeof *v);

    if (!v)
        return NULL;
    pthread_mutex_init(&v->lock, NULL);
    v->t = t;
    v->now = (struct ui_training){.steps = c->steps,
                                  .step = trainer_state(t).step,
                                  .from = trainer_state(t).step,
                                  .batch = c->batch,
                                  .accumulation = c->accumulation,
                                  .lines = trainer_data(t)->n,
                                  .rank = largest_rank(trainer_modules(t)),
                                  .matrices = trainer_modules(t)->n,
                                  .clip = c->clip,
                                  .left_s = -1,
                                  .valid = NAN,
                                  .valid_best = NAN,
                                  .has_valid = has_valid,
                                  .base = m.base,
                                  .adapter = m.adapter,
                                  .memory = m.batch};
    for (int i = 0; i < UI_RATES; i++)
        v->now.rates[i] = (float)train_config_lr(
            c, (int)((double)i * (c->steps > 1 ? c->steps - 1 : 0) / (UI_RATES - 1) + 0.5));
    if (!take_room(v, trainer_base(t))) {
        train_view_free(v);
        return NULL;
    }
    mark_trained(v);
    v->begun = clock_now();
    return v;
}

void train_view_free(struct train_view *v)
{
    if (!v)
        return;
    pthread_mutex_destroy(&v->lock);
    mem_free(v->squares);
    mem_free(v->step);
    mem_free(v->newest);
    mem_free(v->routed);
    mem_free(v);
}

/* ---- input ---- */

/* The newest step's gradient norms, outside the lock: `step` belongs to this thread. */
static void sum_gradients(struct train_view *v)
{
    const struct modules *m = trainer_modules(v->t);

    memset(v->step, 0, v->cells * sizeof *v->step);
    for (int i = 0; i < m->n; i++)
        v->step[cell_of(v, m->list[i].id)] += module_gradient(&m->list[i]);
}

/* From the mean speed since the run was started. */
static double seconds_left(const struct train_view *v)
{
    int done = v->now.step - v->now.from;

    return done ? clock_seconds(clock_now() - v->begun) / done * (v->now.steps - v->now.step) : -1;
}

void train_view_step(struct train_view *v, const struct train_step *s, double seconds)
{
    sum_gradients(v);
    pthread_mutex_lock(&v->lock);
    v->tokens += s->tokens;
    v->now.step = s->step;
    v->now.loss = s->loss;
    v->now.grad_norm = s->grad_norm;
    v->now.lr = s->lr;
    v->now.step_s = seconds;
    v->now.tok_s = clock_rate((double)v->tokens, clock_now() - v->begun);
    v->now.left_s = seconds_left(v);
    ui_curve_add(&v->now.loss_curve, s->step, s->loss);
    for (size_t i = 0; i < v->cells; i++) {
        if (isnan(v->squares[i]))
            continue;
        v->squares[i] += v->step[i];
        v->newest[i] = (float)sqrt(v->step[i]);
        v->mean[i] = (float)sqrt(v->squares[i] / (s->step - v->now.from));
    }
    pthread_mutex_unlock(&v->lock);
}

void train_view_validating(struct train_view *v)
{
    pthread_mutex_lock(&v->lock);
    v->now.validating = true;
    pthread_mutex_unlock(&v->lock);
}

void train_view_valid(struct train_view *v, int after, double loss)
{
    pthread_mutex_lock(&v->lock);
    v->now.validating = false;
    v->now.valid = loss;
    v->now.valid_at = after;
    if (!(loss >= v->now.valid_best)) {
        v->now.valid_best = loss;
        v->now.best_at = after;
    }
    v->now.left_s = seconds_left(v);
    ui_curve_add(&v->now.valid_curve, after, loss);
    pthread_mutex_unlock(&v->lock);
}

void train_view_say(struct train_view *v, const char *line)
{
    pthread_mutex_lock(&v->lock);
    snprintf(v->now.text, sizeof v->now.text, "%s", line);
    pthread_mutex_unlock(&v->lock);
}

void train_view_ending(struct train_view *v)
{
    pthread_mutex_lock(&v->lock);
    v->now.ending = true;
    pthread_mutex_unlock(&v->lock);
}

void train_view_look(struct train_view *v, struct ui_training *out)
{
    pthread_mutex_lock(&v->lock);
    *out = v->now;
    memcpy(v->shown_newest, v->newest, 2 * v->cells * sizeof *v->newest);
    pthread_mutex_unlock(&v->lock);
    out->newest = v->shown_newest;
    out->mean = v->shown_mean;
    out->routed = v->routed;
}
