/* Quantised matrices against quantised rows, to the bit (rules 1, 2 and 8 of
 * engine/device/numerics.h). The formats: formats.cl.
 *
 * Sums inside a block are exact integers, computed in whichever arithmetic the device does best.
 * Work: WIDE: one work-item a group of WIDTH rows. Otherwise one work-item a row; where there is
 * one token, four work-items a row, one for each quarter. Reads of weights are coalesced either
 * way: neighbouring work-items read neighbouring words. Defined by the host beyond formats.cl:
 * TOKENS (tokens of a tile: 1 or more). */
#if DOT8
typedef int sum_t;
#define SUM_TO_VEC(s) ((vec)((float)(s)))
#else
typedef vec sum_t;
#define SUM_TO_VEC(s) (s)
#endif

/* s[t] += the four products of a word of codes with columns at .. at+3 of every token. */
static inline void add_word(sum_t *s, uvec word, __global const act_t *const *a, size_t at)
{
#if DOT8
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        s[t] += dot_4x8packed_ss_int(word, *(__global const uint *)(a[t] + at));
#elif WIDE
#pragma unroll
    for (int j = 0; j < 4; j++) {
        vec u = CODE(word >> (uvec)(8u * j) & WORD(255));

#pragma unroll
        for (int t = 0; t < TOKENS; t++)
            s[t] = fma(u, (vec)(a[t][at + j]), s[t]);
    }
#else
    vec u0 = CODE(word & 255u), u1 = CODE(word >> 8 & 255u), u2 = CODE(word >> 16 & 255u),
        u3 = CODE(word >> 24);

#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        float4 x = vload4(0, a[t] + at);

        s[t] = fma(u3, x.s3, fma(u2, x.s2, fma(u1, x.s1, fma(u0, x.s0, s[t]))));
    }
#endif
}

#if MIN && HALVES
/* Of sixteen activations, exact. */
static inline float half_sum(__global const act_t *a)
{
    return num_fold(convert_float16(vload16(0, a)));
}
#endif

/* Blocks begin .. end-1 of WIDTH rows (or of row `lane`) against TOKENS rows of activations: one
 * quarter, summed upwards. */
static inline void quarter(__global const uchar *w, int begin, int end,
                           __global const act_t *const *a, __global const float *const *ad,
                           __global const float *const *as, int lane, vec *out)
{
    vec acc[TOKENS];

#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        acc[t] = (vec)(0.0f);
    for (int b = begin; b < end; b++) {
        __global const uchar *head = w + (size_t)(b / PER) * (UNIT * WIDTH),
                             *block = BLOCK_AT(head, b % PER);
        vec scale = block_scale(head, b % PER, lane);
        sum_t s[TOKENS];
#if HALVES
        sum_t second[TOKENS];
        vec f0, f1;

        half_scales(head, b % PER, lane, &f0, &f1);
#pragma unroll
        for (int t = 0; t < TOKENS; t++)
            second[t] = (sum_t)(0);
#else
#define second s
#endif
#pragma unroll
        for (int t = 0; t < TOKENS; t++)
            s[t] = (sum_t)(0);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            uvec lo, hi;

            block_words(block, b % PER, k, lane, &lo, &hi);
            add_word(s, lo, a, (size_t)b * 32 + 4 * k);
            add_word(second, hi, a, (size_t)b * 32 + 16 + 4 * k);
        }
#if MIN
        vec least = block_min(head, b % PER, lane);
#if HALVES
        vec m0, m1;

        half_mins(head, b % PER, lane, &m0, &m1);
#endif
#endif
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            vec sum = SUM_TO_VEC(s[t]);

#if HALVES == 2
            acc[t] = fma(sum, f0 * (vec)(ad[t][b]), acc[t]);
            acc[t] = fma(SUM_TO_VEC(second[t]), f1 * (vec)(ad[t][b]), acc[t]);
            continue;
#elif HALVES
            sum = fma(f0, sum, f1 * SUM_TO_VEC(second[t]));
#elif OFFSET
            sum = fma((vec)(-ZERO), (vec)(as[t][b]), sum);
#endif
            acc[t] = fma(sum, scale * (vec)(ad[t][b]), acc[t]);
#if MIN && HALVES
            float low = half_sum(a[t] + (size_t)b * 32);

            sum = fma(m0, (vec)(low), m1 * (vec)(as[t][b] - low));
            acc[t] = fma(sum, least * (vec)(ad[t][b]), acc[t]);
#elif MIN
            acc[t] = fma((vec)(as[t][b]), least * (vec)(ad[t][b]), acc[t]);
#endif
        }
    }
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        out[t] = acc[t];
}

/* All four quarters of TOKENS tokens, rule 2. A loop, because compilers take four times as long
 * over four copies. */
static inline void dot_rows(__global const uchar *w, int n, __global const act_t *const *a,
                            __global const float *const *ad, __global const float *const *as,
                            int lane, vec *out)
{
    vec q[TOKENS], odd[TOKENS];

#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        quarter(w, (int)((long)i * n / 4), (int)((long)(i + 1) * n / 4), a, ad, as, lane, q);
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            if (i == 0)
                out[t] = q[t];
            else if (i == 1)
                out[t] = out[t] + q[t];
            else if (i == 2)
                odd[t] = q[t];
            else
                out[t] = out[t] + (odd[t] + q[t]);
        }
    }
}

/* Where a work-item stands. lid_y is the quarter (one token, not WIDE) or one of the tiles of its
 * work-group. */
#if WIDE
#define ITEMS_X 1
#define ITEMS_Y 1
#define MATMUL_GROUP get_group_id(1)
#define MATMUL_TILE get_group_id(0)
#else
#define ITEMS_X WIDTH
#define ITEMS_Y 4
#define MATMUL_GROUP get_group_id(1)
#if TOKENS == 1
#define MATMUL_TILE get_group_id(0)
#else
#define MATMUL_TILE (get_group_id(0) * 4 + get_local_id(1))
#endif
#endif

static inline void store_row(__global float *y, __global const float *bias, int row, float v,
                             int flags)
{
    if (flags & 1)
        v = v + bias[row];
    y[row] = flags & 8 ? y[row] + v : v;
}

static inline void store_vec(__global float *y, __global const float *bias, int row, int rows,
                             vec v, int flags)
{
#if WIDE
    float out[WIDTH];

#if WIDTH == 16
    vstore16(v, 0, out);
#else
    vstore8(v, 0, out);
#endif
    for (int r = 0; r < WIDTH && row + r < rows; r++)
        store_row(y, bias, row + r, out[r], flags);
#else
    if (row < rows)
        store_row(y, bias, row, v, flags);
#endif
}

/* y = W x (+ bias) (+ y) for up to three matrices of the same columns, tokens rows of activations.
 * Groups: (tiles, row groups). flags: 1, 2, 4: the matrix has a bias; 8: add to y. */
__kernel __attribute__((reqd_work_group_size(ITEMS_X, ITEMS_Y, 1))) void matmul(
    __global const act_t *a, __global const float *ad, __global const float *as, int cols,
    int tokens, __global const uchar *w0, __global const float *b0, __global float *y0, int rows0,
    __global const uchar *w1, __global const float *b1, __global float *y1, int rows1,
    __global const uchar *w2, __global const float *b2, __global float *y2, int rows2, int flags)
{
    int group = MATMUL_GROUP, tile = MATMUL_TILE, lane = get_local_id(0), n = cols / 32;
    int g0 = (rows0 + WIDTH - 1) / WIDTH, g1 = (rows1 + WIDTH - 1) / WIDTH, rows = rows0;
    __global const uchar *w = w0;
    __global const float *b = b0;
    __global float *y = y0;
    __global const act_t *pa[TOKENS];
    __global const float *pd[TOKENS], *ps[TOKENS];
    vec v[TOKENS];

    flags = (flags & 8) | ((flags & 1) ? 1 : 0) | (flags & 6) << 8;
    if (group >= g0 + g1) {
        group -= g0 + g1;
        w = w2, b = b2, y = y2, rows = rows2;
        flags = (flags & 8) | (flags >> 10 & 1);
    } else if (group >= g0) {
        group -= g0;
        w = w1, b = b1, y = y1, rows = rows1;
        flags = (flags & 8) | (flags >> 9 & 1);
    }
    w += (size_t)group * GROUP_BYTES(n);
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        size_t token = min(tile * TOKENS + t, tokens - 1);

        pa[t] = a + token * cols;
        pd[t] = ad + token * n;
        ps[t] = as + token * n;
    }
#if !WIDE && TOKENS == 1
    __local float part[4][WIDTH];
    int q = get_local_id(1);

    quarter(w, (int)((long)q * n / 4), (int)((long)(q + 1) * n / 4), pa, pd, ps, lane, v);
    part[q][lane] = v[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (q)
        return;
    v[0] = (part[0][lane] + part[1][lane]) + (part[2][lane] + part[3][lane]);
#else
    if (tile * TOKENS >= tokens)
        return;
    dot_rows(w, n, pa, pd, ps, lane, v);
#endif
#ifdef BROKEN_matmul /* tests: one bit off, as a miscompiled kernel might be */
    v[0] = v[0] * (vec)(1.0000002f);
#endif
    for (int t = 0; t < TOKENS; t++)
        if (tile * TOKENS + t < tokens)
            store_vec(y + (size_t)(tile * TOKENS + t) * rows, b, group * WIDTH + (WIDE ? 0 : lane),
                      rows, v[t], flags);
}

#if WIDE
#define GATE_X 1
#define GATE_Y 1
#elif TOKENS == 1
#define GATE_X 32
#define GATE_Y 4
#else
#define GATE_X 32
#define GATE_Y 2
#endif

/* Rows of gate, where the activation has one, and of up. A loop for the same reason. */
static inline void both_rows(__global const uchar *wg, __global const uchar *wu, int n, int act,
                             __global const act_t *const *a, __global const float *const *ad,
                             __global const float *const *as, int lane, vec *gate, vec *up)
{
#pragma unroll 1
    for (int k = ACT_GATED ? 0 : 1; k < 2; k++) {
        vec v[TOKENS];

        dot_rows(k ? wu : wg, n, a, ad, as, lane, v);
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            if (k)
                up[t] = v[t];
            else
                gate[t] = v[t];
        }
    }
}

#if BIAS
/* The expert's biases of gate and up for rows from `row` on. */
#if WIDE && WIDTH == 16
#define LOAD_BIAS(p, row) vload16(0, (p) + (row))
#elif WIDE
#define LOAD_BIAS(p, row) vload8(0, (p) + (row))
#else
#define LOAD_BIAS(p, row) (p)[row]
#endif
static inline void add_biases(__global const float *bg, __global const float *bu, int row, int act,
                              int tokens, vec *gate, vec *up)
{
    for (int t = 0; t < tokens; t++) {
        if (ACT_GATED)
            gate[t] = gate[t] + LOAD_BIAS(bg, row);
        up[t] = up[t] + LOAD_BIAS(bu, row);
    }
}
#endif

/* Rule 8: 32 rows of gate and up for the tokens of a tile, what the activation makes of them,
 * quantised again: block `group` of entry's row of m. Groups: (tiles, ffn / 32). act: enum
 * activation. */
__kernel __attribute__((reqd_work_group_size(GATE_X, GATE_Y, 1))) void gate_up(
    __global const act_t *a, __global const float *ad, __global const float *as, __global act_t *m,
    __global float *md, __global float *ms, __global const int4 *tiles,
    __global const int2 *entries, int first_tile, int end_tile, int cols, int ffn, int act,
    float limit, BANK(g), BANK(u) BIASES(bg) BIASES(bu) BIAS_FLAG)
{
    int group = get_group_id(1), n = cols / 32;
#if WIDE || TOKENS == 1
    int tile = first_tile + get_group_id(0);
#else
    int tile = first_tile + get_group_id(0) * GATE_Y + get_local_id(1);
#endif
    int4 what = tile < end_tile ? tiles[tile] : (int4)(0, 0, 0, 0);
    __global const uchar *wg = CHOOSE(what.z, g), *wu = CHOOSE(what.z, u);
#if BIAS
    __global const float *bias_g = CHOOSE(what.z, bg), *bias_u = CHOOSE(what.z, bu);
#endif
    __global const act_t *pa[TOKENS];
    __global const float *pd[TOKENS], *ps[TOKENS];
    size_t at = (size_t)group * (32 / WIDTH) * GROUP_BYTES(n);

#if WIDE
    if (what.y == 0)
        return;
#endif

#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        size_t row = what.y ? entries[what.x + min(t, what.y - 1)].x : 0;

        pa[t] = a + row * cols;
        pd[t] = ad + row * n;
        ps[t] = as + row * n;
    }
#if WIDE
    vec h[TOKENS][32 / WIDTH], gate[TOKENS], up[TOKENS];

    for (int i = 0; i < 32 / WIDTH; i++, at += GROUP_BYTES(n)) {
        both_rows(wg + at, wu + at, n, act, pa, pd, ps, 0, gate, up);
#if BIAS
        if (biased)
            add_biases(bias_g, bias_u, group * 32 + i * WIDTH, act, TOKENS, gate, up);
#endif
        for (int t = 0; t < TOKENS; t++)
            h[t][i] = ACTIVATE(act, gate[t], up[t], limit);
    }
    for (int t = 0; t < what.y; t++) {
        size_t entry = what.x + t, block = entry * (ffn / 32) + group;
#if WIDTH == 16
        quantise32(h[t][0], h[t][1], m + block * 32, md + block, ms + block);
#else
        quantise32((float16)(h[t][0], h[t][1]), (float16)(h[t][2], h[t][3]), m + block * 32,
                   md + block, ms + block);
#endif
    }
#else
    int x = get_local_id(0), lane = x % WIDTH, y = get_local_id(1);
    vec gate[TOKENS], up[TOKENS];

    at += (size_t)(x / WIDTH) * GROUP_BYTES(n);
#if TOKENS == 1
    __local float part[2][4][32], h[1][1][32];
    int begin = (int)((long)y * n / 4), end = (int)((long)(y + 1) * n / 4);

#pragma unroll 1
    for (int k = ACT_GATED ? 0 : 1; k < 2; k++) {
        quarter((k ? wu : wg) + at, begin, end, pa, pd, ps, lane, gate);
        part[k][y][x] = gate[0];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (y == 0) {
        gate[0] = (part[0][0][x] + part[0][1][x]) + (part[0][2][x] + part[0][3][x]);
        up[0] = (part[1][0][x] + part[1][1][x]) + (part[1][2][x] + part[1][3][x]);
#if BIAS
        if (biased)
            add_biases(bias_g, bias_u, group * 32 + x, act, 1, gate, up);
#endif
        h[0][0][x] = ACTIVATE(act, gate[0], up[0], limit);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (y)
        return;
#else
    __local float h[GATE_Y][TOKENS][32];

    both_rows(wg + at, wu + at, n, act, pa, pd, ps, lane, gate, up);
#if BIAS
    if (biased)
        add_biases(bias_g, bias_u, group * 32 + x, act, TOKENS, gate, up);
#endif
    for (int t = 0; t < TOKENS; t++)
        h[y][t][x] = ACTIVATE(act, gate[t], up[t], limit);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    if (x < what.y) {
        size_t block = (size_t)(what.x + x) * (ffn / 32) + group;

        quantise32(vload16(0, h[y][x]), vload16(1, h[y][x]), m + block * 32, md + block,
                   ms + block);
    }
#endif
}

/* Down projection of the entries of a tile; the output of an entry goes to row entries[].y of out.
 * Groups: (tiles, row groups). */
__kernel __attribute__((reqd_work_group_size(ITEMS_X, ITEMS_Y, 1))) void down(
    __global const act_t *m, __global const float *md, __global const float *ms,
    __global const int4 *tiles, __global const int2 *entries, __global float *out, int first_tile,
    int end_tile, int ffn, int rows, BANK(d) BIASES(bd) BIAS_FLAG)
{
    int group = MATMUL_GROUP, tile = first_tile + MATMUL_TILE, lane = get_local_id(0), n = ffn / 32;
    int4 what = tile < end_tile ? tiles[tile] : (int4)(0, 0, 0, 0);
    __global const uchar *w = CHOOSE(what.z, d) + (size_t)group * GROUP_BYTES(n);
    __global const act_t *pa[TOKENS];
    __global const float *pd[TOKENS], *ps[TOKENS];
    vec v[TOKENS];
#if BIAS
    __global const float *bias = CHOOSE(what.z, bd);
#else
    __global const float *bias = 0;
    const int biased = 0;
#endif

#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        size_t entry = what.x + max(0, min(t, what.y - 1));

        pa[t] = m + entry * ffn;
        pd[t] = md + entry * n;
        ps[t] = ms + entry * n;
    }
#if !WIDE && TOKENS == 1
    __local float part[4][WIDTH];
    int q = get_local_id(1);

    quarter(w, (int)((long)q * n / 4), (int)((long)(q + 1) * n / 4), pa, pd, ps, lane, v);
    part[q][lane] = v[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (q || what.y == 0)
        return;
    v[0] = (part[0][lane] + part[1][lane]) + (part[2][lane] + part[3][lane]);
#else
    if (what.y == 0)
        return;
    dot_rows(w, n, pa, pd, ps, lane, v);
#endif
#ifdef BROKEN_down
    v[0] = v[0] * (vec)(1.0000002f);
#endif
    for (int t = 0; t < what.y; t++)
        store_vec(out + (size_t)entries[what.x + t].y * rows, bias,
                  group * WIDTH + (WIDE ? 0 : lane), rows, v[t], biased);
}
