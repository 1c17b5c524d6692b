/* Products of the phases of latent mixers: parts of matrices that begin anywhere, and units of
 * those that are not divided by heads. Compute threads (cpu.h). */
#include "engine/device/cpu/cpu.h"

float *product_part(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
                    const struct input *in, int t0, int t1, float *out, ptrdiff_t stride,
                    struct prefetch_hint next)
{
    int from = r0 / NUM_LANES * NUM_LANES;

    if (in->n == 1) {
        gemv(d, tid, w, from, r1, in, out, next);
    } else {
        gemm_observe(d, w, r0, in, t0, t1); /* not for rows of the previous head */
        gemm_rows(d, tid, w, from, r1, in, t0, t1, out, stride);
    }
    return out + (r0 - from);
}

ptrdiff_t product_stride(int rows)
{
    return rows % NUM_LANES ? rows + NUM_LANES : rows;
}

int product_unit(int rows)
{
    return rows == 1 ? 2 * CPU_UNIT : CPU_WIDE;
}

int product_units(const struct matrix *w, int rows)
{
    return (w->rows + product_unit(rows) - 1) / product_unit(rows);
}

struct input product_input(struct cpu_device *d, int tid, const struct matrix *w, float *x,
                           ptrdiff_t stride, int first, int n)
{
    struct thread_scratch *s = &d->threads[tid];

    for (int t = 0; t < n && !matrix_takes_rows(w); t++)
        input_quantise(d, x + t * stride, w->cols, s->panels, n, t);
    s->panel_of = NULL; /* other numbers may have been at x in this phase */
    lora_forget(s, x);
    return (struct input){
        .n = n, .cols = w->cols, .panels = s->panels, .rows = x, .stride = stride, .first = first};
}

void product_task(struct cpu_device *d, int tid, const struct matrix *w, int unit,
                  const struct input *in, int t0, int t1, float *rows, struct prefetch_hint next)
{
    int r0 = unit * product_unit(in->n), r1 = min_int(r0 + product_unit(in->n), w->rows);

    product_part(d, tid, w, r0, r1, in, t0, t1, rows + (ptrdiff_t)t0 * w->rows + r0, w->rows, next);
}

double matrices_work(const struct cpu_device *d, int layer, int rows)
{
    struct block_matrix list[BLOCK_MATRICES];
    int n = model_block_matrices(d->model, (struct block_id){BLOCK_ATTENTION, layer, 0}, list);
    double weights = 0.0;

    for (int i = 0; i < n; i++)
        weights += (double)list[i].w->rows * list[i].w->cols;
    return rows * weights;
}
