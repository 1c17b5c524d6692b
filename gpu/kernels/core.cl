/* Rows between the matrices: norm, quantisation, combination, and what CLBlast's GEMMs need around
 * them; attention.cl and routing.cl stand behind it in one program. Rules as numbered in
 * engine/device/numerics.h. Defined by the host beyond common.cl: ROW_ITEMS, work-items of a group
 * that computes a row or a chunk of keys: 1 where WIDE, else 64, 128 or 256. */

#define RMS_ITEMS (WIDE ? 1 : 64)
#define LINE 32 /* work-items of a group where each stands alone */

/* Rule 9 for element i of a row: what its `used` experts gave, `step` apart in out, in routing
 * order. scale: of each weight. */
static inline float combined(__global const float *out, __global const float *weights, size_t i,
                             size_t step, int used, float scale)
{
    float acc = weights[0] * scale * out[i];

    for (int s = 1; s < used; s++)
        acc = fma(weights[s] * scale, out[s * step + i], acc);
    return acc;
}

#if !WIDE
/* The same for four elements beside each other. */
static inline float4 combined4(__global const float *out, __global const float *weights, size_t i,
                               size_t step, int used, float scale)
{
    float4 acc = weights[0] * scale * FOUR_AT(out, i);

    for (int s = 1; s < used; s++)
        acc = fma((float4)(weights[s] * scale), FOUR_AT(out + s * step, i), acc);
    return acc;
}
#endif

/* Rule 5 and rule 1: one work-group a row. h gets the normed row, hq/hd/hs its quantised form.
 * flags: 1 norm has a bias, 2 RMSNorm (no mean is taken away), 4 there is no norm: rows are copied.
 * h may be x. used: not 0: first the layer before ends, the outputs of its experts being added to
 * x (combine). stride: places of a row in weights. */
__kernel __attribute__((reqd_work_group_size(ROW_ITEMS, 1, 1))) void norm(
    __global float *x, __global const float *w, __global const float *b, __global float *h,
    __global act_t *hq, __global float *hd, __global float *hs, int n, float inv_n, float eps,
    int flags, __global const float *out, __global const float *weights, int base, int rows,
    int used, int stride, float scale)
{
    size_t row = get_group_id(0);

    x += row * n;
    h += row * n;
    hq += row * n;
    hd += row * (n / 32);
    hs += row * (n / 32);
    out += row * n;
    weights += base + row * stride;
#if WIDE
    float16 lanes = (float16)(0.0f);
    float mean, r;

    for (int i = 0; i < n / 16 && used; i++) {
        float16 acc = weights[0] * scale * vload16(i, out);

        for (int s = 1; s < used; s++)
            acc = fma((float16)(weights[s] * scale), vload16(i, out + (size_t)s * rows * n), acc);
        vstore16(vload16(i, x) + acc, i, x);
    }

    for (int i = 0; i < n / 16; i++)
        lanes = lanes + vload16(i, x);
    mean = flags & 2 ? 0.0f : num_fold(lanes) * inv_n;
    lanes = (float16)(0.0f);
    for (int i = 0; i < n / 16; i++) {
        float16 c = vload16(i, x) - mean;

        lanes = fma(c, c, lanes);
    }
    r = num_rsqrt(fma(num_fold(lanes), inv_n, eps));
#ifdef BROKEN_norm
    r = r * 1.0000002f;
#endif
    if (flags & 4) {
        mean = 0.0f;
        r = 1.0f;
    }
    for (int k = 0; k < n / 32; k++) {
        float16 y0 = (vload16(2 * k, x) - mean) * r, y1 = (vload16(2 * k + 1, x) - mean) * r;

        if (flags & 1) {
            y0 = fma(y0, vload16(2 * k, w), vload16(2 * k, b));
            y1 = fma(y1, vload16(2 * k + 1, w), vload16(2 * k + 1, b));
        } else if (!(flags & 4)) {
            y0 = y0 * vload16(2 * k, w);
            y1 = y1 * vload16(2 * k + 1, w);
        }
        vstore16(y0, 2 * k, h);
        vstore16(y1, 2 * k + 1, h);
        quantise32(y0, y1, hq + 32 * k, hd + k, hs + k);
    }
#else
    __local float lane[LANES], square[LANES], peak[ROW_TILE / 4];
    __local float4 tile[ROW_TILE / 4];
    struct norm_ahead ahead;
    int lid = get_local_id(0);
    bool whole = n <= ROW_TILE;

    norm_begin(w, b, 0, n, flags, &ahead);
    for (int first = lid; first < n / 4; first += FOURS * ROW_ITEMS) {
        float4 v[FOURS];

#pragma unroll
        for (int k = 0; k < FOURS; k++) {
            int i = first + k * ROW_ITEMS;

            if (i < n / 4)
                v[k] = FOUR_AT(x, i);
            if (i < n / 4 && used)
                v[k] = v[k] + combined4(out, weights, i, (size_t)rows * n, used, scale);
        }
#pragma unroll
        for (int k = 0; k < FOURS; k++) {
            int i = first + k * ROW_ITEMS;

            if (i < n / 4 && used)
                FOUR_AT(x, i) = v[k];
            if (i < n / 4 && whole)
                tile[i] = v[k];
        }
    }
    barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
    norm_row(x, w, b, n, inv_n, eps, flags, whole, tile, peak, lane, square, &ahead, h, hq, hd, hs);
#endif
}

/* RMSNorm of rule 5 in place, for rows of any length: one work-group per row. For q and k, a head's
 * or all heads together, and for a head's values, whose norm has no weights (weighted 0). The first
 * `rows` are x's, those behind them x1's, with weights and a length of their own. */
__kernel __attribute__((reqd_work_group_size(RMS_ITEMS, 1, 1))) void rms_rows(
    __global float *x, __global const float *w, int n, float inv_n, float eps, int weighted,
    int rows, __global float *x1, __global const float *w1, int n1, float inv_n1)
{
    size_t row = get_group_id(0);
    float r;

    if (row >= rows) {
        row -= rows;
        x = x1, w = w1, n = n1, inv_n = inv_n1;
    }
    x += row * n;
#if WIDE
    float16 lanes = (float16)(0.0f);
    float lane[LANES];

    for (int i = 0; i < n / 16; i++)
        lanes = fma(vload16(i, x), vload16(i, x), lanes);
    vstore16(lanes, 0, lane);
    for (int i = n / 16 * 16; i < n; i++)
        lane[i % 16] = fma(x[i], x[i], lane[i % 16]);
    r = num_rsqrt(fma(num_fold(vload16(0, lane)), inv_n, eps));
#else
    __local float lane[LANES], tile[ROW_TILE];

    r = num_rsqrt(fma(row_lanes(x, n, true, 0.0f, false, tile, lane), inv_n, eps));
#endif
#ifdef BROKEN_rms_rows
    r = r * 1.0000002f;
#endif
    for (int i = get_local_id(0); i < n; i += RMS_ITEMS)
        x[i] = weighted ? x[i] * r * w[i] : x[i] * r;
}

/* Rule 1 for rows from the host: one work-item per block. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void quantise(
    __global const float *x, __global act_t *q, __global float *d, __global float *s, int blocks)
{
    size_t k = get_global_id(0);

    if (k < blocks)
        quantise32(vload16(2 * k, x), vload16(2 * k + 1, x), q + 32 * k, d + k, s + k);
}

/* Rule 9: x += w0*e0 + w1*e1 + ..., fused, in routing order; fresh: to 0, where a norm follows. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void combine(
    __global const float *out, __global const float *weights, __global float *x, int base, int rows,
    int used, int stride, float scale, int n, int fresh)
{
    size_t i = get_global_id(0), row = i / n;

    if (row >= rows)
        return;
    x[i] = (fresh ? 0.0f : x[i]) +
           combined(out, weights + base + row * stride, i, (size_t)rows * n, used, scale);
}

/* For the GEMMs of CLBlast (blas.c): 16-bit weights converted to F32, a bias for every row, an
 * expert's rows gathered and scattered. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void expand(__global const ushort *w,
                                                                       __global float *out,
                                                                       int first, int count,
                                                                       int is_f16)
{
    int i = get_global_id(0);

    if (i < count)
        out[i] = is_f16 ? vload_half(first + i, (__global const half *)w)
                        : as_float((uint)w[first + i] << 16);
}

/* An operator's output times the model's scale (rule 9). */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void scale_rows(__global float *y,
                                                                           float scale, int n)
{
    int i = get_global_id(0);

    if (i < n)
        y[i] = y[i] * scale;
}

/* y += x * scale, rounded before. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void add(__global float *y,
                                                                    __global const float *x,
                                                                    float scale, int n)
{
    int i = get_global_id(0);

    if (i < n)
        y[i] = y[i] + x[i] * scale;
}

__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void add_bias(__global float *y,
                                                                         __global const float *bias,
                                                                         int n)
{
    int i = get_global_id(0);

    if (i < n)
        y[(size_t)get_global_id(1) * n + i] += bias[i];
}

__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void gather(__global const float *h,
                                                                       __global const int2 *entries,
                                                                       __global float *out,
                                                                       int first, int n)
{
    int i = get_global_id(0);

    if (i < n)
        out[(size_t)get_global_id(1) * n + i] =
            h[(size_t)entries[first + get_global_id(1)].x * n + i];
}

__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void scatter(
    __global const float *in, __global const int2 *entries, __global float *out, int first, int n)
{
    int i = get_global_id(0);

    if (i < n)
        out[(size_t)entries[first + get_global_id(1)].y * n + i] =
            in[(size_t)get_global_id(1) * n + i];
}

/* Rule 8; without a gate only `up`. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void activate(__global float *gate,
                                                                         __global const float *up,
                                                                         int act, float limit,
                                                                         int n)
{
    int i = get_global_id(0);

    if (i < n)
        gate[i] = num_activate1(act, ACT_GATED ? gate[i] : 0.0f, up[i], limit);
}
