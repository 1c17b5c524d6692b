/* Quantised matrices times quantised rows, to the bit (rules 1, 2 and 8 of
 * engine/device/numerics.h). The formats: formats.cl.
 *
 * Sums inside a block are exact integers, computed in whichever arithmetic is fastest on the
 * device. Work: WIDE: one work-item per group of WIDTH rows. Otherwise one work-item per row; with
 * one token, SLOTS work-items per row (row_sum). Reads of weights are coalesced either way:
 * adjacent work-items read adjacent words. Defined by the host beyond formats.cl: TOKENS (tokens of
 * a tile: 1 or more), SLOTS and GATE_SLOTS (work-items per row of one token, at least 4). */
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
/* Sum of sixteen activations, exact. */
static inline float half_sum(__global const act_t *a)
{
    return num_fold(convert_float16(vload16(0, a)));
}
#endif

/* Factors of the sums of a block's codes, per row; a format sets those it has. */
struct block_factors {
    vec scale, first, second, least, first_min, second_min;
};

static inline struct block_factors read_factors(__global const uchar *head, int j, int lane)
{
    struct block_factors f;

    f.scale = block_scale(head, j, lane);
#if HALVES
    half_scales(head, j, lane, &f.first, &f.second);
#endif
#if MIN
    f.least = block_min(head, j, lane);
#if HALVES
    half_mins(head, j, lane, &f.first_min, &f.second_min);
#endif
#endif
    return f;
}

/* Products of block b's codes (block j of its unit) with TOKENS rows: sums of the block, or of its
 * two halves if those have factors. */
#if HALVES
#define SECOND_OF(s, second) second
#else
#define SECOND_OF(s, second) s
#endif
static inline void block_sums(__global const uchar *block, int j, int b,
                              __global const act_t *const *a, int lane, sum_t *s, sum_t *second)
{
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        s[t] = (sum_t)(0);
#if HALVES
        second[t] = (sum_t)(0);
#endif
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uvec lo, hi;

        block_words(block, j, k, lane, &lo, &hi);
        add_word(s, lo, a, (size_t)b * 32 + 4 * k);
        add_word(SECOND_OF(s, second), hi, a, (size_t)b * 32 + 16 + 4 * k);
    }
}

/* Terms x * y that a block adds to a row's sum, in order. */
#if MIN || HALVES == 2
#define TERMS 2
#else
#define TERMS 1
#endif
/* a, scale and total: the block's 32 activations, their scale and sum. */
static inline void block_terms(const struct block_factors *f, vec sum, vec second,
                               __global const act_t *a, float scale, float total, vec *x, vec *y)
{
#if HALVES == 2
    x[0] = sum;
    y[0] = f->first * (vec)(scale);
    x[1] = second;
    y[1] = f->second * (vec)(scale);
#else
#if HALVES
    x[0] = fma(f->first, sum, f->second * second);
#elif OFFSET
    x[0] = fma((vec)(-ZERO), (vec)(total), sum);
#else
    x[0] = sum;
#endif
    y[0] = f->scale * (vec)(scale);
#if MIN && HALVES
    float low = half_sum(a);

    x[1] = fma(f->first_min, (vec)(low), f->second_min * (vec)(total - low));
    y[1] = f->least * (vec)(scale);
#elif MIN
    x[1] = (vec)(total);
    y[1] = f->least * (vec)(scale);
#endif
#endif
}

/* Block b of rows that begin at w. */
#define BLOCK_OF(w, b, head, block)                                           \
    __global const uchar *head = (w) + (size_t)((b) / PER) * (UNIT * WIDTH), \
                         *block = BLOCK_AT(head, (b) % PER)

#if WIDE || TOKENS > 1
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
        BLOCK_OF(w, b, head, block);
        struct block_factors f = read_factors(head, b % PER, lane);
        sum_t s[TOKENS], second[TOKENS];

        block_sums(block, b % PER, b, a, lane, s, second);
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            vec x[TERMS], y[TERMS];

            block_terms(&f, SUM_TO_VEC(s[t]), SUM_TO_VEC(SECOND_OF(s, second)[t]),
                        a[t] + (size_t)b * 32, ad[t][b], as[t][b], x, y);
#pragma unroll
            for (int i = 0; i < TERMS; i++)
                acc[t] = fma(x[i], y[i], acc[t]);
        }
    }
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        out[t] = acc[t];
}

/* All four quarters of TOKENS tokens, rule 2. A loop, because four copies take compilers four times
 * as long. */
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

#else
/* One token, one row per work-item in x, SLOTS work-items per row in y. Blocks are independent
 * until they are summed, so first all slots compute terms of blocks in parallel, `step` blocks of
 * each quarter at a time, into local memory; then one work-item per quarter adds those up in rule
 * 2's order. A dependent chain of loads from global memory would leave a GPU idle.
 *
 * term: 4 * step * TERMS * rows pairs; part: 4 * rows. row: index of this one among `rows`, lane:
 * in its row group at w. Has barriers. All work-items get the sum. */
static inline float row_sum(__global const uchar *w, int n, __global const act_t *a,
                            __global const float *ad, __global const float *as, int lane, int row,
                            int rows, int step, __local float2 *term, __local float *part)
{
    int slot = get_local_id(1), slots = get_local_size(1);
    float acc = 0.0f;

    step = min(step, (n + 3) / 4);
    for (int done = 0; done < (n + 3) / 4; done += step) {
        for (int i = slot; i < 4 * step; i += slots) {
            int q = i / step, b = (int)((long)q * n / 4) + done + i % step;

            if (b < (int)((long)(q + 1) * n / 4)) {
                BLOCK_OF(w, b, head, block);
                struct block_factors f = read_factors(head, b % PER, lane);
                sum_t s[1], second[1];
                vec x[TERMS], y[TERMS];

                block_sums(block, b % PER, b, &a, lane, s, second);
                block_terms(&f, SUM_TO_VEC(s[0]), SUM_TO_VEC(SECOND_OF(s, second)[0]),
                            a + (size_t)b * 32, ad[b], as[b], x, y);
#pragma unroll
                for (int k = 0; k < TERMS; k++)
                    term[(i * TERMS + k) * rows + row] = (float2)(x[k], y[k]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slot < 4) {
            int begin = (int)((long)slot * n / 4) + done,
                count = min(step, (int)((long)(slot + 1) * n / 4) - begin);
            __local const float2 *from = term + slot * step * TERMS * rows + row;

#pragma unroll 8
            for (int k = 0; k < count * TERMS; k++)
                acc = fma(from[k * rows].x, from[k * rows].y, acc);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (slot < 4)
        part[slot * rows + row] = acc;
    barrier(CLK_LOCAL_MEM_FENCE);
    /* the next call writes to `part` after its own barriers */
    return (part[row] + part[rows + row]) + (part[2 * rows + row] + part[3 * rows + row]);
}

/* `step` for a row group and for gate_up's 32 rows: 16 KB of local memory either way. */
#define STEP (256 / WIDTH * 2 / TERMS)
#define GATE_STEP (16 / TERMS)
#define ROW_MEMORY                                    \
    __local float2 term[4 * STEP * TERMS * WIDTH];    \
    __local float part[4 * WIDTH]
#endif

/* Position of a work-item. lid_y is the slot (one token, not WIDE) or one of the tiles of its
 * work-group. */
#if WIDE
#define ITEMS_X 1
#define ITEMS_Y 1
#define MATMUL_GROUP get_group_id(1)
#define MATMUL_TILE get_group_id(0)
#else
#define ITEMS_X WIDTH
#define MATMUL_GROUP get_group_id(1)
#if TOKENS == 1
#define ITEMS_Y SLOTS
#define MATMUL_TILE get_group_id(0)
#else
#define ITEMS_Y 4
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
    ROW_MEMORY;

    v[0] = row_sum(w, n, pa[0], pd[0], ps[0], lane, lane, WIDTH, STEP, term, part);
    if (get_local_id(1))
        return;
#else
    if (tile * TOKENS >= tokens)
        return;
    dot_rows(w, n, pa, pd, ps, lane, v);
#endif
#ifdef BROKEN_matmul /* tests: one bit off, simulates a miscompiled kernel */
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
#define GATE_Y GATE_SLOTS
#else
#define GATE_X 32
#define GATE_Y 2
#endif

#if WIDE || TOKENS > 1
/* Rows of gate, if the activation has one, and of up. A loop for the same reason. */
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
#endif

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

/* Rule 8: 32 rows of gate and up for the tokens of a tile, the activation applied, quantised again:
 * block `group` of entry's row of m. Groups: (tiles, ffn / 32). act: enum activation. */
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
    __local float h[1][1][32], part[4 * 32];
    __local float2 term[4 * GATE_STEP * TERMS * 32];

#pragma unroll 1
    for (int k = ACT_GATED ? 0 : 1; k < 2; k++) {
        up[0] = row_sum((k ? wu : wg) + at, n, pa[0], pd[0], ps[0], lane, x, 32, GATE_STEP, term,
                        part);
        if (k == 0)
            gate[0] = up[0];
    }
    if (y == 0) {
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
    ROW_MEMORY;

    v[0] = row_sum(w, n, pa[0], pd[0], ps[0], lane, lane, WIDTH, STEP, term, part);
    if (get_local_id(1) || what.y == 0)
        return;
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
