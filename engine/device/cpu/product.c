/* A matrix outside the mixers and experts times all rows of a job: heads, joins, inputs of single
 * layers. Compute threads, all together (cpu.h). */
#include "engine/device/cpu/cpu.h"

static void product_rows(struct cpu_device *d, int tid, const struct product *p,
                         struct act_block *panels, float *rows)
{
    int cols = p->w->cols;

    phase_open(d, tid, p->rows);
    for (int t; (t = phase_take(d, tid, 1)) < p->rows;) {
        float *row = rows + (size_t)t * (size_t)cols;

        p->input(d, tid, p, t, row);
        if (!matrix_takes_rows(p->w))
            input_quantise(d, row, cols, panels, p->rows, t);
    }
    phase_end(d, tid);
}

void product_phases(struct cpu_device *d, int tid, const struct product *p)
{
    const struct matrix *w = p->w;
    int units = (w->rows + 2 * CPU_UNIT - 1) / (2 * CPU_UNIT),
        total = units * token_blocks(d, p->rows), t0, t1;
    struct thread_scratch *s = &d->threads[tid];
    bool one = p->rows == 1, ready = !one;
    struct input in = {.n = p->rows,
                       .cols = w->cols,
                       .panels = one ? s->act : d->act,
                       .rows = one ? s->row : d->normed,
                       .stride = w->cols};

    if (!one)
        product_rows(d, tid, p, in.panels, in.rows);
    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        int r0 = task % units * 2 * CPU_UNIT,
            r1 = r0 + 2 * CPU_UNIT < w->rows ? r0 + 2 * CPU_UNIT : w->rows;

        if (!ready) {
            p->input(d, tid, p, 0, s->row);
            if (!matrix_takes_rows(w))
                input_quantise(d, s->row, w->cols, s->act, 1, 0);
            ready = true;
        }
        if (one) {
            gemv(d, tid, w, r0, r1, &in, p->out + r0, matrix_hint(w, r1));
            continue;
        }
        token_block(d, p->rows, task / units, &t0, &t1);
        gemm(d, tid, w, r0, r1, &in, t0, t1, p->out + (size_t)t0 * (size_t)w->rows + r0, w->rows);
    }
    phase_end(d, tid);
}
