/* Products of weight matrices with a set of tokens, for a range of rows: one task of a phase.
 * Compute threads. */
#include "engine/device/cpu/cpu.h"
#include "engine/layout/pack.h"

#include <assert.h>
#include <string.h>

/* In multiples of four, since kernels process four tokens at a time. */
void panel_of(const struct cpu_device *d, int n, int t, int *first, int *count)
{
    int fours = (n + 3) / 4, panels = (fours * 4 + d->k->tile - 1) / d->k->tile,
        size = fours / panels, larger = fours % panels, four = t / 4;

    assert(t >= 0 && t < n);
    if (four < larger * (size + 1)) {
        *count = (size + 1) * 4;
        *first = four / (size + 1) * *count;
    } else {
        *count = size * 4;
        *first = (larger * (size + 1) + (four - larger * (size + 1)) / size * size) * 4;
    }
    if (*count > n - *first)
        *count = n - *first;
}

void input_quantise_part(const struct cpu_device *d, const float *x, int cols, int first, int count,
                         struct act_block *panels, int n, int t)
{
    int t0, nt;

    assert(count % NUM_BLOCK == 0 && first % NUM_BLOCK == 0);
    assert(first >= 0 && first + count <= cols);
    panel_of(d, n, t, &t0, &nt);
    d->k->quantise(x, count,
                   panels + (ptrdiff_t)t0 * (cols / NUM_BLOCK) +
                       (ptrdiff_t)(first / NUM_BLOCK) * nt + (t - t0),
                   nt);
}

void input_quantise(const struct cpu_device *d, const float *x, int cols, struct act_block *panels,
                    int n, int t)
{
    input_quantise_part(d, x, cols, 0, cols, panels, n, t);
}

void input_copy(const struct cpu_device *d, const struct act_block *row, int cols,
                struct act_block *panels, int n, int t)
{
    int t0, nt;

    assert(cols % NUM_BLOCK == 0);
    panel_of(d, n, t, &t0, &nt);
    panels += (ptrdiff_t)t0 * (cols / NUM_BLOCK) + (t - t0);
    for (int b = 0; b < cols / NUM_BLOCK; b++)
        panels[(ptrdiff_t)b * nt] = row[b];
}

int token_blocks(const struct cpu_device *d, int n)
{
    int most = d->k->tile > CPU_TOKEN_BLOCK ? d->k->tile : CPU_TOKEN_BLOCK;

    assert(n > 0);
    return (n + most - 1) / most;
}

/* Divided at panels, as evenly as those allow. */
void token_block(const struct cpu_device *d, int n, int i, int *t0, int *t1)
{
    int blocks = token_blocks(d, n), first, count;

    assert(i >= 0 && i < token_blocks(d, n));
    *t0 = 0;
    *t1 = n;
    if (i > 0) {
        panel_of(d, n, (int)((int64_t)n * i / blocks), &first, &count);
        *t0 = first;
    }
    if (i < blocks - 1) {
        panel_of(d, n, (int)((int64_t)n * (i + 1) / blocks), &first, &count);
        *t1 = first;
    }
}

static void add_bias(const struct cpu_device *d, const float *bias, int n, float *out,
                     ptrdiff_t stride, int nt)
{
    for (int t = 0; t < nt; t++)
        d->k->add(out + t * stride, bias, n);
}

/* The kernel set that is fastest for so many tokens; all give the same bits. */
static const struct kernels *set_for(const struct cpu_device *d, const struct matrix *w, int rows,
                                     int tokens)
{
    return d->k->small_batch_set && tokens > 1 &&
                   tokens < tune_from(d->thresholds, w->type, rows, w->cols, d->k->small_batch_end)
               ? d->k->small_batch_set
               : d->k;
}

/* `groups` row groups at `weights`, n rows of them needed, for the panels of tokens t0 .. t1-1. */
static void gemm_groups(const struct cpu_device *d, const struct matrix *w, const uint8_t *weights,
                        int n, const struct input *in, int t0, int t1, float *out, ptrdiff_t stride)
{
    size_t group_bytes = dtype_row_bytes(w->type, w->cols) * (size_t)w->width;
    int blocks = w->cols / NUM_BLOCK, first, nt, whole = n / w->width, rest = n % w->width;
    float ragged[KERNEL_TILE * NUM_LANES];

    for (int t = t0; t < t1; t += nt) {
        const struct act_block *panel = in->panels + (ptrdiff_t)t * blocks;
        float *to = out + (t - t0) * stride;
        const struct kernels *k;

        panel_of(d, in->n, t, &first, &nt);
        k = set_for(d, w, n, nt);
        k->dot[w->type](weights, whole, w->width, w->cols, panel, nt, to, stride);
        if (rest) {
            k->dot[w->type](weights + (size_t)whole * group_bytes, 1, w->width, w->cols, panel, nt,
                            ragged, NUM_LANES);
            for (int i = 0; i < nt; i++)
                memcpy(to + i * stride + whole * w->width, ragged + i * NUM_LANES,
                       (size_t)rest * sizeof(float));
        }
    }
}

/* A matrix that is not packed yet: packs a few groups at a time into this thread's scratch. */
static void gemm_raw(const struct cpu_device *d, int tid, const struct matrix *w,
                     const uint8_t *raw, int r0, int r1, const struct input *in, int t0, int t1,
                     float *out, ptrdiff_t stride)
{
    uint8_t *groups = d->threads[tid].groups;
    size_t group_bytes = dtype_row_bytes(w->type, w->cols) * (size_t)w->width;

    if (d->k->dot_raw[w->type] && in->n <= KERNEL_RAW_TOKENS && w->width == NUM_LANES) {
        int whole = (r1 - r0) / NUM_LANES;

        d->k->dot_raw[w->type](raw + (size_t)r0 * dtype_row_bytes(w->type, w->cols), whole, w->cols,
                               in->panels, in->n, out, stride);
        out += whole * NUM_LANES;
        r0 += whole * NUM_LANES;
    }
    for (int n; r0 < r1; r0 += n, out += n) {
        n = r1 - r0 < CPU_RAW_GROUPS * w->width ? r1 - r0 : CPU_RAW_GROUPS * w->width;
        for (int g = 0; g * w->width < n; g++)
            pack_one(groups + (size_t)g * group_bytes, w->type, w->width, raw, w->rows, w->cols,
                     r0 / w->width + g);
        gemm_groups(d, w, groups, n, in, t0, t1, out, stride);
    }
}

static void gemm_quantised(const struct cpu_device *d, int tid, const struct matrix *w, int r0,
                           int r1, const struct input *in, int t0, int t1, float *out,
                           ptrdiff_t stride)
{
    const uint8_t *raw = atomic_load_explicit(&w->raw, memory_order_acquire);
    size_t group_bytes = dtype_row_bytes(w->type, w->cols) * (size_t)w->width;

    if (raw)
        gemm_raw(d, tid, w, raw, r0, r1, in, t0, t1, out, stride);
    else
        gemm_groups(d, w, (const uint8_t *)w->data + (size_t)(r0 / w->width) * group_bytes, r1 - r0,
                    in, t0, t1, out, stride);
}

struct input input_in_order(const struct cpu_device *d, int tid, const struct matrix *w,
                            const struct input *in, int t0, int t1)
{
    struct thread_scratch *s = &d->threads[tid];
    const float *x = in->rows + t0 * in->stride;
    struct ordered *o = NULL;

    assert(t1 - t0 <= CPU_TOKENS_MOST);
    for (int i = 0; i < 2; i++)
        if (s->ordered[i].x == x && s->ordered[i].order == w->order &&
            s->ordered[i].phase == s->phase && s->ordered[i].n == t1 - t0)
            o = &s->ordered[i];
    if (!o) {
        o = &s->ordered[s->ordered_next];
        s->ordered_next ^= 1;
        for (int t = 0; t < t1 - t0; t++) {
            const float *row = x + t * in->stride;

            for (int c = 0; c < w->cols && w->order; c++)
                s->ordered_row[c] = row[w->order[c]];
            input_quantise(d, w->order ? s->ordered_row : row, w->cols, o->panels, t1 - t0, t);
        }
        o->order = w->order;
        o->x = x;
        o->phase = s->phase;
        o->n = t1 - t0;
    }
    return (struct input){.n = t1 - t0, .cols = w->cols, .panels = o->panels};
}

/* n tokens from x on in the form of their kernel; consecutive tasks of a phase use the same block
 * of tokens, so the last one is cached. */
static const void *float_panel(const struct cpu_device *d, int tid, enum panel_kind kind,
                               const float *x, ptrdiff_t stride, int cols, int n)
{
    struct thread_scratch *s = &d->threads[tid];

    if (s->panel_of != x || s->panel_phase != s->phase || s->panel_count != n ||
        s->panel_kind != kind) {
        if (kind == PANEL_LIBRARY)
            for (int t = 0; t < n; t++)
                d->k->to_bf16(x + t * stride, cols,
                              (uint16_t *)(void *)s->panel + (ptrdiff_t)t * cols);
        else
            d->k->float_input(kind == PANEL_ROUNDED, x, stride, cols, n, s->panel);
        s->panel_of = x;
        s->panel_phase = s->phase;
        s->panel_count = n;
        s->panel_kind = kind;
    }
    return s->panel;
}

bool float_rounds(const struct cpu_device *d, const struct matrix *w)
{
    return w->type == DTYPE_BF16 && !d->base.config.exact;
}

const void *float_token(const struct cpu_device *d, int tid, const struct matrix *w,
                        const struct input *in, int t)
{
    const float *x = in->rows + t * in->stride;

    assert(t >= 0 && t < in->n);
    return float_rounds(d, w) ? float_panel(d, tid, PANEL_ROUNDED, x, in->stride, w->cols, 1) : x;
}

/* Our own products: each row and token by itself, by rule 11, however many there are. */
static void gemm_own(const struct cpu_device *d, int tid, const struct matrix *w,
                     const uint8_t *rows, int n_rows, const struct input *in, int t0, int t1,
                     float *out, ptrdiff_t stride)
{
    size_t row_bytes = dtype_row_bytes(w->type, w->cols);
    bool rounds = float_rounds(d, w);
    int blocks = (t1 - t0 + KERNEL_FLOAT_TOKENS - 1) / KERNEL_FLOAT_TOKENS;

    for (int i = 0; i < blocks; i++) {
        int first = t0 + (t1 - t0) * i / blocks, n = t0 + (t1 - t0) * (i + 1) / blocks - first;

        d->k->dot_float(w->type, rounds, rows, row_bytes, n_rows, w->cols,
                        float_panel(d, tid, rounds ? PANEL_ROUNDED : PANEL_EXACT,
                                    in->rows + first * in->stride, in->stride, w->cols, n),
                        n, out + (first - t0) * stride, stride);
    }
}

void float_rows(const struct cpu_device *d, int tid, const float *weights, int rows, int cols,
                const float *x, ptrdiff_t x_stride, int n, float *out, ptrdiff_t stride)
{
    int blocks = (n + KERNEL_FLOAT_TOKENS - 1) / KERNEL_FLOAT_TOKENS;

    assert(n > 0 && n <= CPU_TOKENS_MOST);
    for (int i = 0; i < blocks; i++) {
        int first = n * i / blocks, count = n * (i + 1) / blocks - first;

        d->k->dot_float(DTYPE_F32, false, weights, (size_t)cols * sizeof *weights, rows, cols,
                        float_panel(d, tid, PANEL_EXACT, x + first * x_stride, x_stride, cols,
                                    count),
                        count, out + first * stride, stride);
    }
}

static void gemm_one_token(const struct cpu_device *d, int tid, const struct matrix *w,
                           const uint8_t *rows, int n_rows, const struct input *in, int t,
                           float *out)
{
    size_t row_bytes = dtype_row_bytes(w->type, w->cols);
    const void *x = float_token(d, tid, w, in, t);

    for (int r = 0; r < n_rows; r += KERNEL_GEMV_GROUPS) {
        struct kernel_gemv s = {.how = gemv_pattern(d, w),
                                .n = min_int(n_rows - r, KERNEL_GEMV_GROUPS)};

        for (int i = 0; i < s.n; i++) {
            s.at[i] = rows + (size_t)(r + i) * row_bytes;
            s.next[i] = s.at[i] + KERNEL_GEMV_GROUPS * row_bytes;
            s.out[i] = out + r + i;
        }
        d->k->gemv_float(w->type, float_rounds(d, w), &s, w->cols, x);
    }
}

/* Two-byte weights times F32 activations: oneDNN has no such product, so some rows at a time are
 * converted to F32. They are used for all tokens of the task, which makes the conversion a few per
 * cent of the work. false: nothing done. */
static bool gemm_library_widened(const struct cpu_device *d, int tid, const struct matrix *w,
                                 const uint8_t *rows, int n_rows, const float *x,
                                 ptrdiff_t x_stride, int tokens, float *out, ptrdiff_t stride)
{
    size_t row_bytes = dtype_row_bytes(w->type, w->cols);
    float *wide = d->threads[tid].widened;

    for (int r = 0, n; r < n_rows; r += n) {
        n = n_rows - r < CPU_WIDEN ? n_rows - r : CPU_WIDEN;
        for (int i = 0; i < n; i++)
            d->k->widen(w->type, rows + (size_t)(r + i) * row_bytes, w->cols,
                        wide + (size_t)i * (size_t)w->cols);
        if (onednn_multiply(d->library, tid, false, wide, n, w->cols, x, x_stride, tokens, out + r,
                            stride) < 0)
            return false;
    }
    return true;
}

static bool gemm_library_bf16(const struct cpu_device *d, int tid, const struct matrix *w,
                              const uint8_t *rows, int n_rows, const struct input *in, int t0,
                              int t1, float *out, ptrdiff_t stride)
{
    for (int n; t0 < t1; t0 += n, out += n * stride) {
        n = t1 - t0 < CPU_LIBRARY_TOKENS ? t1 - t0 : CPU_LIBRARY_TOKENS;
        if (onednn_multiply(d->library, tid, true, rows, n_rows, w->cols,
                            float_panel(d, tid, PANEL_LIBRARY, in->rows + t0 * in->stride,
                                        in->stride, w->cols, n),
                            w->cols, n, out, stride) < 0)
            return false;
    }
    return true;
}

/* If the user chose it: its sums depend on the number of tokens. */
static bool gemm_library(const struct cpu_device *d, int tid, const struct matrix *w,
                         const uint8_t *rows, int n_rows, const struct input *in, int t0, int t1,
                         float *out, ptrdiff_t stride)
{
    const float *x = in->rows + t0 * in->stride;

    if (!d->library || t1 - t0 < tune_from(d->thresholds, w->type, n_rows, w->cols,
                                           tune_default(w->type, d->k->small_batch_end, d->bf16)))
        return false;
    if (w->type == DTYPE_BF16 && d->bf16)
        return gemm_library_bf16(d, tid, w, rows, n_rows, in, t0, t1, out, stride);
    if (w->type == DTYPE_F32)
        return ((uintptr_t)rows & 3) == 0 &&
               onednn_multiply(d->library, tid, false, rows, n_rows, w->cols, x, in->stride,
                               t1 - t0, out, stride) == 0;
    return gemm_library_widened(d, tid, w, rows, n_rows, x, in->stride, t1 - t0, out, stride);
}

static void gemm_float(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
                       const struct input *in, int t0, int t1, float *out, ptrdiff_t stride)
{
    const uint8_t *raw = atomic_load_explicit(&w->raw, memory_order_acquire);
    const uint8_t *rows = (raw ? raw : (const uint8_t *)w->data) +
                          (size_t)r0 * dtype_row_bytes(w->type, w->cols);

    if (t1 - t0 == 1)
        gemm_one_token(d, tid, w, rows, r1 - r0, in, t0, out);
    else if (!gemm_library(d, tid, w, rows, r1 - r0, in, t0, t1, out, stride))
        gemm_own(d, tid, w, rows, r1 - r0, in, t0, t1, out, stride);
}

/* For token t, quantised: the values that were multiplied. */
static void add_panel_squares(const struct cpu_device *d, const struct input *in, int t, float *sum)
{
    int first, nt, blocks = in->cols / NUM_BLOCK;
    const struct act_block *a;

    panel_of(d, in->n, t, &first, &nt);
    a = in->panels + (ptrdiff_t)first * blocks + (t - first);
    for (int b = 0; b < blocks; b++, a += nt)
        for (int i = 0; i < NUM_BLOCK; i++) {
            float x = a->d * (float)a->q[i];

            sum[b * NUM_BLOCK + i] += x * x;
        }
}

void gemm_observe(const struct cpu_device *d, const struct matrix *w, int row,
                  const struct input *in, int t0, int t1)
{
    float *sum = d->observer ? d->observer->squares_of(d->observer->ctx, w, row, t1 - t0) : NULL;

    for (int t = t0; sum && t < t1; t++) {
        if (!matrix_takes_rows(w)) {
            add_panel_squares(d, in, t, sum);
            continue;
        }
        const float *x = in->rows + t * in->stride;

        for (int c = 0; c < w->cols; c++)
            sum[c] += x[c] * x[c];
    }
}

void gemm(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
          const struct input *in, int t0, int t1, float *out, ptrdiff_t stride)
{
    gemm_observe(d, w, r0, in, t0, t1);
    gemm_rows(d, tid, w, r0, r1, in, t0, t1, out, stride);
}

void gemm_rows(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
               const struct input *in, int t0, int t1, float *out, ptrdiff_t stride)
{
    assert(r0 >= 0 && (r0 % NUM_LANES == 0 || !dtype_is_quantised(w->type)));
    assert(t0 >= 0 && t0 <= t1 && t1 <= in->n);
    if (r1 > w->rows)
        r1 = w->rows;
    if (r0 >= r1)
        return;
    if (matrix_rounds_rows(w)) {
        struct input mine = input_in_order(d, tid, w, in, t0, t1);

        gemm_quantised(d, tid, w, r0, r1, &mine, 0, t1 - t0, out, stride);
    } else if (dtype_is_quantised(w->type)) {
        gemm_quantised(d, tid, w, r0, r1, in, t0, t1, out, stride);
    } else {
        gemm_float(d, tid, w, r0, r1, in, t0, t1, out, stride);
    }
    if (w->bias)
        add_bias(d, w->bias + r0, r1 - r0, out, stride, t1 - t0);
    if (w->lora)
        lora_add(d, tid, w, r0, r1, in, t0, t1, out, stride);
}
