/* Heads that are routed (GATE_ROUTED, rule 7): their weights, and which of them one row uses: the
 * others' queries, scores and columns of the output projection are neither read nor computed.
 * Compute threads, all together (cpu.h). */
#include "engine/device/cpu/cpu.h"

#include <string.h>

void heads_route(struct cpu_device *d, int tid, int layer, int rows, const float *x)
{
    static const struct router_shape router = {.kind = ROUTER_SOFTMAX, .normalised = true};
    const struct mixer_shape *a = &shape_of(d, layer)->mixer;
    struct thread_scratch *s = &d->threads[tid];
    int hidden = d->model->hp.hidden, experts[CPU_USED_MAX];
    float weights[CPU_USED_MAX];

    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;) {
        float *gates = d->gates + (size_t)t * (size_t)a->heads;

        input_prepare_row(d, layer, false, x, s->row, NULL, rows, t);
        d->k->router(d->head_router[layer], head_groups(a), hidden, s->row, s->router);
        num_route(&router, s->router, NULL, a->experts, a->used, experts, weights);
        memset(gates, 0, (size_t)a->heads * sizeof *gates);
        for (int i = 0; i < a->used; i++)
            for (int h = experts[i]; h < a->heads; h += a->experts)
                gates[h] = weights[i];
    }
    phase_end(d, tid);
}

int heads_unused(const struct cpu_device *d, int first, int most)
{
    int n = 0;

    while (n < most && d->gates[first + n] == 0.0f)
        n++;
    return n;
}

int heads_used(const struct cpu_device *d, int first, int most)
{
    int n = 0;

    while (n < most && d->gates[first + n] != 0.0f)
        n++;
    return n;
}

struct input_parts heads_parts(const struct cpu_device *d, const struct mixer_shape *a)
{
    struct input_parts p = {.parts = a->heads, .period = a->experts};

    for (int e = 0; e < a->experts; e++)
        if (d->gates[e] != 0.0f)
            p.chosen[p.used++] = e;
    return p;
}
