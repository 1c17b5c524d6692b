/* The normed input that every mixer begins with, and the queries that attention gathers. Compute
 * threads, all together (cpu.h). */
#include "engine/device/cpu/cpu.h"

#include <string.h>

void input_prepare_row(const struct cpu_device *d, int layer, bool quantised, const float *x,
                       float *row, struct act_block *panels, int rows, int t)
{
    int hidden = d->model->hp.hidden;

    norm_row(d, &shape_of(d, layer)->norms, &d->model->layers[layer].attention_norm,
             x + (size_t)t * (size_t)hidden, row);
    if (quantised)
        input_quantise(d, row, hidden, panels, rows, t);
}

struct input input_prepare(struct cpu_device *d, int tid, int layer, bool quantised, bool floats,
                           int rows, const float *x)
{
    int hidden = d->model->hp.hidden;
    struct thread_scratch *s = &d->threads[tid];

    if (rows == 1)
        return (struct input){
            .n = 1, .cols = hidden, .panels = s->act, .rows = s->row, .stride = hidden};
    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;)
        input_prepare_row(d, layer, quantised, x,
                          floats ? d->normed + (size_t)t * (size_t)hidden : s->row, d->act, rows,
                          t);
    phase_end(d, tid);
    return (struct input){
        .n = rows, .cols = hidden, .panels = d->act, .rows = d->normed, .stride = hidden};
}

const float *gather_queries(const struct cpu_device *d, struct thread_scratch *s, int all, int dims,
                            int r0, int rows, int head, int heads)
{
    size_t stride = (size_t)all * (size_t)dims, n = (size_t)heads * (size_t)dims;
    const float *q = d->q + (size_t)r0 * stride + (size_t)head * (size_t)dims;

    if (rows == 1 || heads == all)
        return q;
    for (int r = 0; r < rows; r++)
        memcpy(s->queries + (size_t)r * n, q + (size_t)r * stride, n * sizeof *q);
    return s->queries;
}
