/* Float matrices (F32, F16, BF16; row-major as in the file) times F32 rows, accumulated in F32.
 * Outside the numeric contract: the order of the sums is whatever suits the device. One work-group
 * computes ROWS rows of the matrix for TOKENS tokens. Defined by the host beyond common.cl: F16 or
 * BF16 (both 0: F32), TOKENS. */
#define ROWS 4
#if WIDE
#define ITEMS 1
typedef float16 part_t;
#define STEP 16
#define LOAD_X(p) vload16(0, p)
#if BF16
#define LOAD_ONE(p, i) as_float((uint)((__global const ushort *)(p))[i] << 16)
#define LOAD_W(p, i) \
    as_float16(convert_uint16(vload16(0, (__global const ushort *)(p) + (i))) << (uint16)(16u))
#elif F16
#define LOAD_ONE(p, i) vload_half(i, (__global const half *)(p))
#define LOAD_W(p, i) vload_half16(0, (__global const half *)(p) + (i))
#else
#define LOAD_ONE(p, i) ((__global const float *)(p))[i]
#define LOAD_W(p, i) vload16(0, (__global const float *)(p) + (i))
#endif
#define SUM(v) num_fold(v)
#else
#define ITEMS 64
typedef float4 part_t;
#define STEP 4
#define LOAD_X(p) vload4(0, p)
#if BF16
#define LOAD_W(p, i) \
    as_float4(convert_uint4(vload4(0, (__global const ushort *)(p) + (i))) << (uint4)(16u))
#elif F16
#define LOAD_W(p, i) vload_half4(0, (__global const half *)(p) + (i))
#else
#define LOAD_W(p, i) vload4(0, (__global const float *)(p) + (i))
#endif
#define SUM(v) ((v.x + v.y) + (v.z + v.w))
#endif
#if BF16 || F16
#define BYTES 2
#else
#define BYTES 4
#endif

#if WIDE
#define SHARED
#define FOLD
#define FOLD_ARG 0
#else
#define SHARED __local
#define FOLD __local float fold[ROWS * TOKENS * ITEMS]
#define FOLD_ARG fold
#endif
#define RESULTS (ROWS * TOKENS)

/* out[r * TOKENS + t] for ROWS rows of w (beyond `rows`: the last again) and TOKENS rows x, shared
 * by the whole work-group. cols: a multiple of 4. */
static inline void dot_rows(__global const uchar *w, int row, int rows, int cols,
                            __global const float *const *x, __local float *fold, SHARED float *out)
{
    part_t acc[ROWS][TOKENS];
    __global const uchar *p[ROWS];
    int lid = get_local_id(0);

#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        p[r] = w + (size_t)min(row + r, rows - 1) * cols * BYTES;
#pragma unroll
        for (int t = 0; t < TOKENS; t++)
            acc[r][t] = (part_t)(0.0f);
    }
    for (int c = lid * STEP; c + STEP <= cols; c += ITEMS * STEP) {
        part_t v[ROWS];

#pragma unroll
        for (int r = 0; r < ROWS; r++)
            v[r] = LOAD_W(p[r], c);
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            part_t a = LOAD_X(x[t] + c);

#pragma unroll
            for (int r = 0; r < ROWS; r++)
                acc[r][t] = fma(v[r], a, acc[r][t]);
        }
    }
#if WIDE
    for (int c = cols / STEP * STEP; c < cols; c++)
        for (int r = 0; r < ROWS; r++)
            for (int t = 0; t < TOKENS; t++)
                acc[r][t].s0 = fma(LOAD_ONE(p[r], c), x[t][c], acc[r][t].s0);
#endif
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            part_t v = acc[r][t];
#if WIDE
            out[r * TOKENS + t] = SUM(v);
#else
            fold[(r * TOKENS + t) * ITEMS + lid] = SUM(v);
#endif
        }
    }
#if !WIDE
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < RESULTS) {
        float s = 0.0f;

        /* each item starts at another place, to avoid bank conflicts in local memory */
        for (int i = 0; i < ITEMS; i++)
            s = s + fold[lid * ITEMS + (i + lid) % ITEMS];
        out[lid] = s;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void matmul(
    __global const float *a, int cols, int tokens, __global const uchar *w0,
    __global const float *b0, __global float *y0, int rows0, __global const uchar *w1,
    __global const float *b1, __global float *y1, int rows1, __global const uchar *w2,
    __global const float *b2, __global float *y2, int rows2, int flags)
{
    int group = get_group_id(1), tile = get_group_id(0), rows = rows0, has_bias = flags & 1;
    int g0 = (rows0 + ROWS - 1) / ROWS, g1 = (rows1 + ROWS - 1) / ROWS;
    __global const uchar *w = w0;
    __global const float *b = b0, *x[TOKENS];
    __global float *y = y0;
    SHARED float out[RESULTS];
    FOLD;

    if (group >= g0 + g1) {
        group -= g0 + g1;
        w = w2, b = b2, y = y2, rows = rows2, has_bias = flags & 4;
    } else if (group >= g0) {
        group -= g0;
        w = w1, b = b1, y = y1, rows = rows1, has_bias = flags & 2;
    }
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        x[t] = a + (size_t)min(tile * TOKENS + t, tokens - 1) * cols;
    dot_rows(w, group * ROWS, rows, cols, x, FOLD_ARG, out);
    for (int i = get_local_id(0); i < RESULTS; i += ITEMS) {
        int row = group * ROWS + i / TOKENS, token = tile * TOKENS + i % TOKENS;
        size_t at = (size_t)token * rows + row;

        if (row < rows && token < tokens) {
            float v = has_bias ? out[i] + b[row] : out[i];

#ifdef BROKEN_matmul /* tests: simulates a miscompiled kernel */
            v = v * 1.01f;
#endif
            y[at] = flags & 8 ? y[at] + v : v;
        }
    }
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gate_up(
    __global const float *a, __global float *m, __global const int4 *tiles,
    __global const int2 *entries, int first_tile, int end_tile, int cols, int ffn, int act,
    float limit, BANK(g), BANK(u) BIASES(bg) BIASES(bu) BIAS_FLAG)
{
    int group = get_group_id(1), tile = first_tile + get_group_id(0);
    int4 what = tile < end_tile ? tiles[tile] : (int4)(0, 0, 0, 0);
    __global const float *x[TOKENS];
    SHARED float gate[RESULTS], up[RESULTS];
    FOLD;

#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        x[t] = a + (size_t)entries[what.x + max(0, min(t, what.y - 1))].x * cols;
    if (ACT_GATED)
        dot_rows(EXPERT(what.z, g), group * ROWS, ffn, cols, x, FOLD_ARG, gate);
    dot_rows(EXPERT(what.z, u), group * ROWS, ffn, cols, x, FOLD_ARG, up);
    for (int i = get_local_id(0); i < RESULTS; i += ITEMS) {
        int row = group * ROWS + i / TOKENS;

        if (row < ffn && i % TOKENS < what.y) {
            float g = ACT_GATED ? gate[i] : 0.0f, u = up[i];

#if BIAS
            if (biased && ACT_GATED)
                g = g + EXPERT_BIAS(what.z, bg)[row];
            if (biased)
                u = u + EXPERT_BIAS(what.z, bu)[row];
#endif
            m[(size_t)(what.x + i % TOKENS) * ffn + row] = num_activate1(act, g, u, limit);
        }
    }
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void down(
    __global const float *m, __global const int4 *tiles, __global const int2 *entries,
    __global float *out, int first_tile, int end_tile, int ffn, int rows,
    BANK(d) BIASES(bd) BIAS_FLAG)
{
    int group = get_group_id(1), tile = first_tile + get_group_id(0);
    int4 what = tile < end_tile ? tiles[tile] : (int4)(0, 0, 0, 0);
    __global const float *x[TOKENS];
    SHARED float v[RESULTS];
    FOLD;

#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        x[t] = m + (size_t)(what.x + max(0, min(t, what.y - 1))) * ffn;
    dot_rows(EXPERT(what.z, d), group * ROWS, rows, ffn, x, FOLD_ARG, v);
    for (int i = get_local_id(0); i < RESULTS; i += ITEMS) {
        int row = group * ROWS + i / TOKENS;

        if (row < rows && i % TOKENS < what.y) {
            float y = v[i];

#if BIAS
            if (biased)
                y = y + EXPERT_BIAS(what.z, bd)[row];
#endif
            out[(size_t)entries[what.x + i % TOKENS].y * rows + row] = y;
        }
    }
}
