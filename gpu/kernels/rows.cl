/* What work-groups do with a row where not WIDE: sums in rule 4's order, norm, quantisation, and
 * who is the last one of a launch. Rules as numbered in engine/device/numerics.h. Before core.cl
 * and quant.cl, whose kernels give the local memory. */
#if !WIDE
/* A GPU waits for memory once for all values that are loaded before the first of them is used: what
 * adds up in order loads many at a time, or finds them in local memory. */
#define ROW_TILE (SMALL_LOCAL ? 2048 : 4096) /* columns of a row in local memory */
#define FOURS 4 /* times four columns that a work-item loads before it goes on */
#define FOUR_AT(p, i) ((__global float4 *)(p))[i]

/* Local memory answers after some thirty cycles, an addition takes four: the sixteen values of the
 * next lap are on their way while those of this one are added. */
#define LANE_AHEAD 16
#define LANE_LAP (LANES * LANE_AHEAD)
static inline void lane_load(__local const float *x, float *v)
{
#pragma unroll
    for (int k = 0; k < LANE_AHEAD; k++)
        v[k] = x[k * LANES];
}

/* A step of lane_sums. */
static inline float lane_step(float x, bool squares, float mean, float sum)
{
    float c = x - mean;

    return squares ? fma(c, c, sum) : sum + x;
}

/* Lane `lid` of rule 4 goes on over a row's piece in local memory: the sum of the values, or of the
 * squares of what they are above the mean. */
static inline float lane_sums(__local const float *x, int lid, int n, bool squares, float mean,
                              float sum)
{
#if POCL /* 3.1 gets two loops wrong in a kernel of so many barriers (token_down) */
#pragma unroll 16
    for (int i = lid; i < n; i += LANES)
        sum = lane_step(x[i], squares, mean, sum);
#else
    int laps = n / LANE_LAP;
    float v[LANE_AHEAD], next[LANE_AHEAD];

    x += lid;
    if (laps)
        lane_load(x, v);
    for (int lap = 0; lap < laps; lap++) {
        lane_load(x + min(lap + 1, laps - 1) * LANE_LAP, next);
#pragma unroll
        for (int k = 0; k < LANE_AHEAD; k++) {
            sum = lane_step(v[k], squares, mean, sum);
            v[k] = next[k];
        }
    }
    for (int i = laps * LANE_LAP; i + lid < n; i += LANES)
        sum = lane_step(x[i], squares, mean, sum);
#endif
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
            lane[lid] = sum = squares ? lane_sums(tile, lid, count, true, mean, sum)
                                      : lane_sums(tile, lid, count, false, 0.0f, sum);
        barrier(CLK_LOCAL_MEM_FENCE);
    } while ((at += ROW_TILE) < n);
    return num_fold(vload16(0, lane));
}

/* Counts the groups of a launch that have come here, and behind it are through: 1 in the last one
 * of `groups`. What the others wrote through atomics before, which caches do not hold back, is
 * there then. arrivals: 0 before and after the launch. Has barriers. */
static inline int last_of(__global uint *arrivals, int groups, __local int *last)
{
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0 && get_local_id(1) == 0) {
        *last = atomic_inc(arrivals) == (uint)groups - 1;
        if (*last)
            atomic_xchg(arrivals, 0u);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    return *last;
}

/* The same for two counts, both at once: last has the answers. */
static inline void last_of_two(__global uint *arrivals, int groups, __global uint *other,
                               int others, __local int *last)
{
    int lid = get_local_id(0);

    mem_fence(CLK_GLOBAL_MEM_FENCE);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (lid < 2) {
        __global uint *at = lid ? other : arrivals;

        last[lid] = atomic_inc(at) == (uint)(lid ? others : groups) - 1;
        if (last[lid])
            atomic_xchg(at, 0u);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
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

/* Rule 5 for an element of a row, or four of them, with their weights and biases. flags as in norm.
 */
static inline float normed(float x, float w, float b, float mean, float r, int flags)
{
    float y = (x - mean) * r;

    return flags & 1 ? fma(y, w, b) : flags & 4 ? y : y * w;
}

static inline float4 normed4(float4 x, float4 w, float4 b, float mean, float r, int flags)
{
    float4 y = (x - mean) * r;

    return flags & 1 ? fma(y, w, b) : flags & 4 ? y : y * w;
}

/* Of a norm's weights and biases the first that a work-item needs for columns begin .. end-1: on
 * their way while mean and factor are found. */
struct norm_ahead {
    float4 w[FOURS], b[FOURS];
};

static inline void norm_begin(__global const float *w, __global const float *b, int begin, int end,
                              int flags, struct norm_ahead *ahead)
{
    int lid = get_local_id(0), items = get_local_size(0), count = min(ROW_TILE, end - begin) / 4;

#pragma unroll
    for (int k = 0; k < FOURS; k++) {
        int i = lid + k * items;

        ahead->w[k] = ahead->b[k] = (float4)(0.0f);
        if (i < count && !(flags & 4))
            ahead->w[k] = FOUR_AT(w, begin / 4 + i);
        if (i < count && (flags & 1))
            ahead->b[k] = FOUR_AT(b, begin / 4 + i);
    }
}

/* Columns begin .. end-1 of a row, whole blocks of 32, normed to h and quantised (rule 1) by a
 * work-group. whole: tile has the row; peak: one for each four columns; ahead: norm_begin. Has
 * barriers; tile is overwritten. */
static inline void norm_columns(__global const float *x, __global const float *w,
                                __global const float *b, int begin, int end, float mean, float r,
                                int flags, bool whole, __local float4 *tile, __local float *peak,
                                const struct norm_ahead *ahead, __global float *h,
                                __global act_t *hq, __global float *hd, __global float *hs)
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

                if (i < count / 4) {
                    bool here_first = at == begin && first == lid;
                    float4 wc = ahead->w[k], bc = ahead->b[k];

                    if (!here_first && !(flags & 4))
                        wc = FOUR_AT(w, c);
                    if (!here_first && (flags & 1))
                        bc = FOUR_AT(b, c);
                    y[k] = normed4(whole ? tile[here + i] : FOUR_AT(x, c), wc, bc, mean, r, flags);
                }
            }
#pragma unroll
            for (int k = 0; k < FOURS; k++) {
                int i = first + k * items;

                if (i < count / 4) {
                    float4 a = fabs(y[k]);

                    FOUR_AT(h, at / 4 + i) = y[k];
                    tile[here + i] = y[k];
                    peak[here + i] = fmax(fmax(a.x, a.y), fmax(a.z, a.w));
                }
            }
        }
        quantise_row(tile + here, peak + here, count, hq + at, hd + at / 32, hs + at / 32);
    } while ((at += ROW_TILE) < end);
}

/* Rule 5 for a row of n columns, and its quantised form, by a work-group. inv_n: 1 / n; flags as in
 * norm. whole: tile has the row. ahead: norm_begin of all columns. lane, square: LANES of each; the
 * others as in norm_columns. Has barriers; n may be 0. */
static inline void norm_row(__global const float *x, __global const float *w,
                            __global const float *b, int n, float inv_n, float eps, int flags,
                            bool whole, __local float4 *tile, __local float *peak,
                            __local float *lane, __local float *square,
                            const struct norm_ahead *ahead, __global float *h, __global act_t *hq,
                            __global float *hd, __global float *hs)
{
    __local float *values = (__local float *)tile;
    /* an RMS norm takes no mean */
    float mean = row_lanes(x, flags & 2 ? 0 : n, false, 0.0f, whole, values, lane) * inv_n,
          r = num_rsqrt(fma(row_lanes(x, n, true, mean, whole, values, square), inv_n, eps));

#ifdef BROKEN_norm /* tests: one bit off, as a miscompiled kernel might be */
    r = r * 1.0000002f;
#endif
    if (flags & 4) {
        mean = 0.0f;
        r = 1.0f;
    }
    norm_columns(x, w, b, 0, n, mean, r, flags, whole, tile, peak, ahead, h, hq, hd, hs);
}
#endif
