/* Products of one token: decoding reads every weight for a single multiplication, so memory must
 * never be without a pending request: uses the fastest read pattern (patterns.h), and callers tell
 * where this thread reads next, so that the end of a task prefetches the start of its successor.
 * Compute threads. */
#include "engine/device/cpu/cpu.h"

#include <assert.h>
#include <string.h>

static struct prefetch_hint packed_at(const struct matrix *w, int row)
{
    size_t width = w->width ? (size_t)w->width : 1,
           step = dtype_row_bytes(w->type, w->cols) * width;

    return (struct prefetch_hint){(const uint8_t *)w->data + (size_t)row / width * step, step};
}

struct prefetch_hint matrix_hint(const struct matrix *w, int row)
{
    assert(row >= 0);
    return row >= w->rows || atomic_load_explicit(&w->raw, memory_order_relaxed)
               ? (struct prefetch_hint){0}
               : packed_at(w, row);
}

const struct pattern *gemv_pattern(const struct cpu_device *d, const struct matrix *w)
{
    const struct tune_pattern *p = tune_pattern(d->thresholds, w->type, w->cols, d->n_threads);

    return &pattern_of[p ? p->id : pattern_for(d->pattern, w->type)];
}

static bool has_gemv(const struct cpu_device *d, const struct matrix *w)
{
    if (atomic_load_explicit(&w->raw, memory_order_acquire))
        return false;
    return !dtype_is_quantised(w->type) || (d->k->gemv[w->type] && w->width == d->k->width);
}

/* What is added to a product: the bias and adapters. */
static void finish(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
                   const struct input *in, float *out)
{
    for (int r = r0; r < r1 && w->bias; r++)
        out[r - r0] += w->bias[r];
    if (w->lora)
        lora_add(d, tid, w, r0, r1, in, 0, 1, out, r1 - r0);
}

void gemv(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
          const struct input *in, float *out, struct prefetch_hint next)
{
    int width = w->width ? w->width : 1, groups, rest;
    struct prefetch_hint from = packed_at(w, r0);
    const struct pattern *how;
    float ragged[NUM_LANES];
    struct input mine = *in;
    const void *x;

    assert(r0 >= 0 && r0 % NUM_LANES == 0);
    assert(in->cols == w->cols);
    if (r1 > w->rows)
        r1 = w->rows;
    if (r0 >= r1)
        return;
    if (!has_gemv(d, w)) {
        gemm(d, tid, w, r0, r1, in, 0, 1, out, r1 - r0);
        return;
    }
    if (matrix_rounds_rows(w))
        mine = input_in_order(d, tid, w, in, 0, 1);
    if (in->only && gemv_parts(d, tid, w, r0, r1, &mine, out)) {
        finish(d, tid, w, r0, r1, in, out);
        return;
    }
    x = w->width ? NULL : float_token(d, tid, w, in, 0);
    how = gemv_pattern(d, w);
    groups = (r1 - r0 + width - 1) / width;
    rest = (r1 - r0) % width;
    for (int g = 0, n; g < groups; g += n) {
        struct kernel_gemv s = {.how = how, .n = min_int(groups - g, KERNEL_GEMV_GROUPS)};

        n = s.n;
        for (int i = 0; i < n; i++) {
            s.at[i] = from.at + (size_t)(g + i) * from.step;
            s.out[i] = rest && g + i + 1 == groups ? ragged : out + (g + i) * width;
        }
        for (int i = 0; i < KERNEL_GEMV_GROUPS; i++)
            s.next[i] = g + n < groups ? from.at + (size_t)(g + n + i) * from.step
                        : next.at      ? next.at + (size_t)i * next.step
                                       : NULL;
        if (w->width)
            d->k->gemv[w->type](&s, w->cols, mine.panels);
        else
            d->k->gemv_float(w->type, float_rounds(d, w), &s, w->cols, x);
    }
    if (rest)
        memcpy(out + (groups - 1) * width, ragged, (size_t)rest * sizeof(float));
    finish(d, tid, w, r0, r1, in, out);
}
