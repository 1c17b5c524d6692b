/* Products of weight matrices with a set of tokens, for a range of rows: what one task of a phase does. Compute threads. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/pack.h"

#include <string.h>

bool type_is_quantised(enum dtype type)
{
    return dtype_info(type)->block > 1;
}

void panel_of(int n, int t, int *first, int *count)
{
    int panels = (n + KERNEL_TILE - 1) / KERNEL_TILE, size = n / panels, larger = n % panels;

    if (t < larger * (size + 1)) {
        *count = size + 1;
        *first = t / (size + 1) * (size + 1);
    } else {
        *count = size;
        *first = larger * (size + 1) + (t - larger * (size + 1)) / size * size;
    }
}

void input_quantise_part(const struct cpu_device *d, const float *x, int cols, int first, int count, struct act_block *panels, int n, int t)
{
    int t0, nt;

    panel_of(n, t, &t0, &nt);
    d->k->quantise(x, count, panels + (ptrdiff_t)t0 * (cols / NUM_BLOCK) + (ptrdiff_t)(first / NUM_BLOCK) * nt + (t - t0), nt);
}

void input_quantise(const struct cpu_device *d, const float *x, int cols, struct act_block *panels, int n, int t)
{
    input_quantise_part(d, x, cols, 0, cols, panels, n, t);
}

int token_blocks(int n)
{
    return (n + CPU_TOKEN_BLOCK - 1) / CPU_TOKEN_BLOCK;
}

/* Cut at panels, as evenly as those allow. */
void token_block(int n, int i, int *t0, int *t1)
{
    int blocks = token_blocks(n), first, count;

    *t0 = 0;
    *t1 = n;
    if (i > 0) {
        panel_of(n, (int)((int64_t)n * i / blocks), &first, &count);
        *t0 = first;
    }
    if (i < blocks - 1) {
        panel_of(n, (int)((int64_t)n * (i + 1) / blocks), &first, &count);
        *t1 = first;
    }
}

static void add_bias(const float *bias, int n, float *out, ptrdiff_t stride, int nt)
{
    for (int t = 0; t < nt; t++)
        for (int r = 0; r < n; r++)
            out[t * stride + r] += bias[r];
}

static void multiply_quantised(const struct cpu_device *d, const struct matrix *w, int r0, int r1, const struct input *in, int t0, int t1,
                               float *out, ptrdiff_t stride)
{
    size_t group_bytes = dtype_row_bytes(w->type, w->cols) * (size_t)w->width;
    int blocks = w->cols / NUM_BLOCK, first, nt;
    float ragged[KERNEL_TILE * NUM_LANES];

    for (int r = r0; r < r1; r += w->width) {
        const uint8_t *group = (const uint8_t *)w->data + (size_t)(r / w->width) * group_bytes;
        int lanes = r1 - r < w->width ? r1 - r : w->width;

        for (int t = t0; t < t1; t += nt) {
            float *to = out + (t - t0) * stride + (r - r0);

            panel_of(in->n, t, &first, &nt);
            if (lanes == w->width) {
                d->k->dot[w->type](group, w->width, w->cols, in->panels + (ptrdiff_t)t * blocks, nt, to, stride);
            } else {
                d->k->dot[w->type](group, w->width, w->cols, in->panels + (ptrdiff_t)t * blocks, nt, ragged, NUM_LANES);
                for (int i = 0; i < nt; i++)
                    memcpy(to + i * stride, ragged + i * NUM_LANES, (size_t)lanes * sizeof(float));
            }
        }
    }
}

void multiply(const struct cpu_device *d, const struct matrix *w, int r0, int r1, const struct input *in, int t0, int t1, float *out, ptrdiff_t stride)
{
    if (r1 > w->rows)
        r1 = w->rows;
    if (r0 >= r1)
        return;
    if (type_is_quantised(w->type)) {
        multiply_quantised(d, w, r0, r1, in, t0, t1, out, stride);
    } else {
        size_t row_bytes = dtype_row_bytes(w->type, w->cols);

        d->k->dot_float(w->type, (const uint8_t *)w->data + (size_t)r0 * row_bytes, row_bytes, r1 - r0, w->cols, in->rows + t0 * in->stride,
                        in->stride, t1 - t0, out, stride);
    }
    if (w->bias)
        add_bias(w->bias + r0, r1 - r0, out, stride, t1 - t0);
}
