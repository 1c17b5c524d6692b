/* See optimizer.h. A module is a task, and norms are added in the modules' order, so that the
 * result does not depend on the threads. */
#include "engine/train/optimizer.h"

#include "engine/base/mem.h"

#include <math.h>

struct work {
    struct modules *m;
    double *squares; /* of each module */
    const struct train_config *c;
    float clip, keep, rate, root2, beta1, beta2, fresh1, fresh2; /* fresh: 1 - beta */
};

static void square_module(void *ctx, int i, float *scratch)
{
    const struct work *w = ctx;

    w->squares[i] = module_gradient(&w->m->list[i]);
}

double optimizer_norm(struct crew *c, const struct modules *m)
{
    struct work w = {.m = (struct modules *)(uintptr_t)m};
    double sum = 0.0;

    if (!(w.squares = mem_alloc((size_t)m->n, sizeof *w.squares)))
        return NAN;
    crew_each(c, m->n, square_module, &w);
    for (int i = 0; i < m->n; i++)
        sum += w.squares[i];
    mem_free(w.squares);
    return sqrt(sum);
}

static void step_module(void *ctx, int i, float *scratch)
{
    const struct work *w = ctx;
    const struct module *m = &w->m->list[i];
    size_t at = (size_t)(m->a - w->m->values);
    float *p = w->m->values + at, *g = w->m->grads + at, *m1 = w->m->m1 + at, *m2 = w->m->m2 + at,
          eps = (float)w->c->eps;

    for (size_t k = 0; m->trained && k < module_values(m); k++) {
        float d = g[k] * w->clip;

        p[k] *= w->keep;
        m1[k] = w->beta1 * m1[k] + w->fresh1 * d;
        m2[k] = w->beta2 * m2[k] + w->fresh2 * d * d;
        p[k] -= w->rate * m1[k] / (sqrtf(m2[k]) / w->root2 + eps);
    }
}

void optimizer_step(struct crew *c, struct modules *m, const struct train_config *config, int t,
                    double rate, double norm)
{
    double clip = config->clip > 0 ? config->clip / (norm + 1e-6) : 1.0;
    struct work w = {.m = m,
                     .c = config,
                     .clip = (float)(clip < 1.0 ? clip : 1.0),
                     .keep = (float)(1.0 - rate * config->weight_decay),
                     .rate = (float)(rate / (1.0 - pow(config->beta1, t))),
                     .root2 = (float)sqrt(1.0 - pow(config->beta2, t)),
                     .beta1 = (float)config->beta1,
                     .beta2 = (float)config->beta2,
                     .fresh1 = (float)(1.0 - config->beta1),
                     .fresh2 = (float)(1.0 - config->beta2)};

    crew_each(c, m->n, step_module, &w);
}
