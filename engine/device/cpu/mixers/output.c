/* The final output projection of every mixer. Compute threads, all together (cpu.h). */
#include "engine/device/cpu/cpu.h"

/* Rows per task, and the number of tasks. */
static int output_rows(int rows)
{
    return rows == 1 ? 2 * CPU_UNIT : CPU_WIDE;
}

static int output_units(const struct cpu_device *d, int rows)
{
    return (d->model->hp.hidden + output_rows(rows) - 1) / output_rows(rows);
}

struct prefetch_hint output_hint(const struct cpu_device *d, const struct matrix *o, int tid)
{
    return matrix_hint(o, phase_part(d, output_units(d, 1), 1, tid) * output_rows(1));
}

static void one_row(struct cpu_device *d, int tid, const struct matrix *o, const struct input *in,
                    int r0, int r1, bool last, float *y, float *residual)
{
    float *to = y ? y + r0 : d->threads[tid].tile;

    gemv(d, tid, o, r0, r1, in, to, last ? (struct prefetch_hint){0} : matrix_hint(o, r1));
    scale_output(d, to, r1 - r0, 1, o->rows);
    if (!y)
        d->k->add(residual + r0, to, r1 - r0);
}

static void some_rows(struct cpu_device *d, int tid, const struct matrix *o, const struct input *in,
                      int r0, int r1, int t0, int t1, float *y, float *residual)
{
    size_t hidden = (size_t)o->rows;
    float *tile = d->threads[tid].tile;

    if (y) {
        y += (size_t)t0 * hidden + (size_t)r0;
        gemm(d, tid, o, r0, r1, in, t0, t1, y, o->rows);
        scale_output(d, y, r1 - r0, t1 - t0, o->rows);
        return;
    }
    /* rows of the residual stream are a page apart: prefetch them */
    residual += r0;
    for (int t = t0; t < t1; t++)
        for (int i = 0; i < r1 - r0; i += 16)
            __builtin_prefetch(residual + (size_t)t * hidden + i, 1, 2);
    gemm(d, tid, o, r0, r1, in, t0, t1, tile, CPU_WIDE);
    scale_output(d, tile, r1 - r0, t1 - t0, CPU_WIDE);
    for (int t = t0; t < t1; t++)
        d->k->add(residual + (size_t)t * hidden, tile + (size_t)(t - t0) * CPU_WIDE, r1 - r0);
}

void output_phase(struct cpu_device *d, int tid, const struct matrix *o, const struct input *in,
                  void (*first)(struct cpu_device *d, int tid, const void *ctx), const void *ctx,
                  float *y, float *residual)
{
    int wide = output_rows(in->n), units = output_units(d, in->n),
        total = units * token_blocks(d, in->n), t0, t1;
    bool ready = in->n > 1 || !first;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        int r0 = task % units * wide, r1 = min_int(r0 + wide, o->rows);

        if (!ready)
            first(d, tid, ctx);
        ready = true;
        if (in->n == 1) {
            one_row(d, tid, o, in, r0, r1, task + 1 >= phase_part(d, total, 1, tid + 1), y,
                    residual);
            continue;
        }
        token_block(d, in->n, task / units, &t0, &t1);
        some_rows(d, tid, o, in, r0, r1, t0, t1, y, residual);
    }
    phase_end(d, tid);
}
