/* Rows between the matrices: norm, quantisation, combination, and what CLBlast's GEMMs need around
 * them; attention.cl and routing.cl stand behind it in one program. Rules as numbered in
 * engine/device/numerics.h. Defined by the host beyond common.cl: ROW_ITEMS, work-items of a group
 * that computes a row or a chunk of keys: 1 where WIDE, else 64, 128 or 256. */

#define RMS_ITEMS (WIDE ? 1 : 64)
#define LINE 32 /* work-items of a group where each stands alone */

#if !WIDE
/* A GPU waits for memory once for all values that are loaded before the first of them is used: what
 * adds up in order loads many at a time, or finds them in local memory. */
#define ROW_TILE (SMALL_LOCAL ? 2048 : 4096) /* columns of a row in local memory */
#define FOURS 4 /* times four columns that a work-item loads before it goes on */
#define FOUR_AT(p, i) ((__global float4 *)(p))[i]

/* Lane `lid` of rule 4 goes on over a row's piece in local memory: the sum of the values, or of the
 * squares of what they are above the mean. */
static inline float lane_sum(__local const float *x, int lid, int n, float sum)
{
#pragma unroll 16
    for (int i = lid; i < n; i += LANES)
        sum = sum + x[i];
    return sum;
}

static inline float lane_squares(__local const float *x, int lid, int n, float mean, float sum)
{
#pragma unroll 16
    for (int i = lid; i < n; i += LANES) {
        float c = x[i] - mean;

        sum = fma(c, c, sum);
    }
    return sum;
}

/* Loops that hold barriers test their condition behind the body: PoCL 3.1 makes two copies of all
 * that is behind a barrier that may be left out, and again for each such loop.
 *
 * Rule 4's sum over a row by a work-group: everyone loads, sixteen add up. loaded: the row is in
 * `tile` from the last call. Has barriers. Everyone gets the sum. */
static inline float row_lanes(__global const float *x, int n, bool squares, float mean, bool loaded,
                              __local float *tile, __local float *lane)
{
    int lid = get_local_id(0), items = get_local_size(0);
    float sum = 0.0f;

    int at = 0;

    do {
        int count = min(ROW_TILE, n - at);

        if (!loaded)
            for (int i = lid; i < count; i += items)
                tile[i] = x[at + i];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lid < LANES)
            sum = squares ? lane_squares(tile, lid, count, mean, sum)
                          : lane_sum(tile, lid, count, sum);
        barrier(CLK_LOCAL_MEM_FENCE);
    } while ((at += ROW_TILE) < n);
    if (lid < LANES)
        lane[lid] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    return num_fold(vload16(0, lane));
}

/* Counts the groups of a launch that have come here, and behind it are through: 1 in the last one
 * of `groups`. What the others wrote through atomics before, which caches do not hold back, is
 * there then. arrivals: 0 before and after the launch. Has barriers. */
static inline int last_of(__global uint *arrivals, int groups, __local int *last)
{
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        *last = atomic_inc(arrivals) == (uint)groups - 1;
        if (*last)
            atomic_xchg(arrivals, 0u);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    return *last;
}

#endif

/* Rule 9 for element i of a row: what its `used` experts gave, `step` apart in out, in routing
 * order. */
static inline float combined(__global const float *out, __global const float *weights, size_t i,
                             size_t step, int used)
{
    float acc = weights[0] * out[i];

    for (int s = 1; s < used; s++)
        acc = fma(weights[s], out[s * step + i], acc);
    return acc;
}

#if !WIDE
/* The same for four elements beside each other. */
static inline float4 combined4(__global const float *out, __global const float *weights, size_t i,
                               size_t step, int used)
{
    float4 acc = weights[0] * FOUR_AT(out, i);

    for (int s = 1; s < used; s++)
        acc = fma((float4)(weights[s]), FOUR_AT(out + s * step, i), acc);
    return acc;
}

/* Rule 1 for `count` values in local memory by a work-group, four beside each other a work-item at
 * a time: blocks of 32 from q, d and sum on. peak: the four's highest magnitude. Has barriers; x is
 * overwritten. */
static inline void quantise_row(__local float4 *x, __local const float *peak, int count,
                                __global act_t *q, __global float *d, __global float *sum)
{
    int lid = get_local_id(0), items = get_local_size(0);

    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = lid; i < count / 4; i += items) {
        float amax = 0.0f, scale;
        float4 v = x[i];

#pragma unroll
        for (int k = 0; k < 8; k++)
            amax = fmax(amax, peak[i / 8 * 8 + k]);
        bool none = !(amax >= 5.42101086e-20f) || amax > 1e30f;

        scale = none ? 0.0f : amax * (1.0f / 127.0f);
        v = none ? (float4)(0.0f) : v * num_recip1(scale);
        v = select(v, (float4)(0.0f), isnan(v));
        v = fmin(fmax(v, (float4)(-127.0f)), (float4)(127.0f));
        v = (v + (float4)(12582912.0f)) - (float4)(12582912.0f);
        ((__global char4 *)q)[i] = convert_char4(v);
        x[i].x = (v.x + v.y) + (v.z + v.w); /* integers: exact in any order */
        if (i % 8 == 0)
            d[i / 8] = scale;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = lid; k < count / 32; k += items) {
        float total = 0.0f;

#pragma unroll
        for (int i = 0; i < 8; i++)
            total = total + x[8 * k + i].x;
        sum[k] = total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif

#if !WIDE
/* Rule 5's element c of a row, or four of them. flags as in norm. */
static inline float normed(__global const float *x, __global const float *w,
                           __global const float *b, int c, float mean, float r, int flags)
{
    float y = (x[c] - mean) * r;

    return flags & 1 ? fma(y, w[c], b[c]) : flags & 4 ? y : y * w[c];
}

static inline float4 normed4(float4 x, __global const float *w, __global const float *b, int c,
                             float mean, float r, int flags)
{
    float4 y = (x - mean) * r;

    return flags & 1 ? fma(y, FOUR_AT(w, c), FOUR_AT(b, c)) : flags & 4 ? y : y * FOUR_AT(w, c);
}

/* Columns begin .. end-1 of a row, whole blocks of 32, normed to h and quantised (rule 1) by a
 * work-group. whole: tile has the row; peak: one for each four columns. Has barriers; tile is
 * overwritten. */
static inline void norm_columns(__global const float *x, __global const float *w,
                                __global const float *b, int begin, int end, float mean, float r,
                                int flags, bool whole, __local float4 *tile, __local float *peak,
                                __global float *h, __global act_t *hq, __global float *hd,
                                __global float *hs)
{
    int lid = get_local_id(0), items = get_local_size(0);

    int at = begin;

    do {
        int count = min(ROW_TILE, end - at), here = whole ? at / 4 : 0;

        for (int first = lid; first < count / 4; first += FOURS * items) {
            float4 y[FOURS];

#pragma unroll
            for (int k = 0; k < FOURS; k++) {
                int i = first + k * items, c = at / 4 + i;

                if (i < count / 4)
                    y[k] =
                        normed4(whole ? tile[here + i] : FOUR_AT(x, c), w, b, c, mean, r, flags);
            }
#pragma unroll
            for (int k = 0; k < FOURS; k++) {
                int i = first + k * items;
                float4 a = fabs(y[k]);

                if (i < count / 4) {
                    FOUR_AT(h, at / 4 + i) = y[k];
                    tile[here + i] = y[k];
                    peak[here + i] = fmax(fmax(a.x, a.y), fmax(a.z, a.w));
                }
            }
        }
        quantise_row(tile + here, peak + here, count, hq + at, hd + at / 32, hs + at / 32);
    } while ((at += ROW_TILE) < end);
}
#endif

/* Rule 5 and rule 1: one work-group a row. h gets the normed row, hq/hd/hs its quantised form.
 * flags: 1 norm has a bias, 2 RMSNorm (no mean is taken away), 4 there is no norm: rows are copied.
 * h may be x. used: not 0: first the layer before ends, the outputs of its experts being added to
 * x (combine). */
__kernel __attribute__((reqd_work_group_size(ROW_ITEMS, 1, 1))) void norm(
    __global float *x, __global const float *w, __global const float *b, __global float *h,
    __global act_t *hq, __global float *hd, __global float *hs, int n, float inv_n, float eps,
    int flags, __global const float *out, __global const float *weights, int base, int rows,
    int used)
{
    size_t row = get_group_id(0);
    int lid = get_local_id(0);
    float mean, r;

    x += row * n;
    h += row * n;
    hq += row * n;
    hd += row * (n / 32);
    hs += row * (n / 32);
    out += row * n;
    weights += base + row * used;
#if WIDE
    float16 lanes = (float16)(0.0f);

    for (int i = 0; i < n / 16 && used; i++) {
        float16 acc = weights[0] * vload16(i, out);

        for (int s = 1; s < used; s++)
            acc = fma((float16)(weights[s]), vload16(i, out + (size_t)s * rows * n), acc);
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
#else
    __local float lane[LANES], square[LANES], peak[ROW_TILE / 4];
    __local float4 tile[ROW_TILE / 4];
    __local float *values = (__local float *)tile;
    bool whole = n <= ROW_TILE;

    for (int first = lid; first < n / 4; first += FOURS * ROW_ITEMS) {
        float4 v[FOURS];

#pragma unroll
        for (int k = 0; k < FOURS; k++) {
            int i = first + k * ROW_ITEMS;

            if (i < n / 4)
                v[k] = FOUR_AT(x, i);
            if (i < n / 4 && used)
                v[k] = v[k] + combined4(out, weights, i, (size_t)rows * n, used);
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
    /* an RMS norm takes no mean */
    mean = row_lanes(x, flags & 2 ? 0 : n, false, 0.0f, whole, values, lane) * inv_n;
    r = num_rsqrt(fma(row_lanes(x, n, true, mean, whole, values, square), inv_n, eps));
#endif
#ifdef BROKEN_norm /* tests: one bit off, as a miscompiled kernel might be */
    r = r * 1.0000002f;
#endif
    if (flags & 4) {
        mean = 0.0f;
        r = 1.0f;
    }
#if WIDE
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
    norm_columns(x, w, b, 0, n, mean, r, flags, whole, tile, peak, h, hq, hd, hs);
#endif
}

/* RMSNorm of rule 5 in place, for rows of any length: one work-group per row. For q and k, a head's
 * or all heads together, and for a head's values, whose norm has no weights (weighted 0). */
__kernel __attribute__((reqd_work_group_size(RMS_ITEMS, 1, 1))) void rms_rows(
    __global float *x, __global const float *w, int n, float inv_n, float eps, int weighted)
{
    float r;

    x += get_group_id(0) * n;
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

/* Rule 9: x += w0*e0 + w1*e1 + ..., fused, in routing order. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void combine(
    __global const float *out, __global const float *weights, __global float *x, int base, int rows,
    int used, int n)
{
    size_t i = get_global_id(0), row = i / n;

    if (row >= rows)
        return;
    x[i] = x[i] + combined(out, weights + base + row * used, i, (size_t)rows * n, used);
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

__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void add(__global float *y,
                                                                    __global const float *x, int n)
{
    int i = get_global_id(0);

    if (i < n)
        y[i] = y[i] + x[i];
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
