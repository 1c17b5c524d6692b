/* Quantised matrices times quantised rows, to the bit (rules 1, 2 and 8 of
 * engine/device/numerics.h). The formats: formats.cl.
 *
 * Sums inside a block are exact integers, computed in whichever arithmetic the device does best.
 * Work: WIDE: one work-item a group of WIDTH rows. Otherwise, one token: SLOTS work-items a row
 * (row_sum); many: a work-group 64 rows and TOKENS tokens (gemm). Reads of weights are coalesced
 * either way: neighbouring work-items read neighbouring words. Defined by the host beyond
 * formats.cl: TOKENS (tokens of a tile; not WIDE: 1 or a multiple of ITEM_TOKENS), ITEM_TOKENS
 * (tokens of a work-item of gemm: 4 or 8), SLOTS and GATE_SLOTS (work-items a row of one token, at
 * least 4). */
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
    s[0] += dot_4x8packed_ss_int(word, *(__global const uint *)(a[0] + at));
#else
#pragma unroll
    for (int j = 0; j < 4; j++) {
        vec u = CODE(word >> (uvec)(8u * j) & WORD(255));

#pragma unroll
        for (int t = 0; t < TOKENS; t++)
            s[t] = fma(u, (vec)(a[t][at + j]), s[t]);
    }
#endif
}

/* Of a block's first sixteen activations, exact, where halves have minima. */
static inline float half_sum(__global const act_t *a)
{
#if MIN && HALVES
    return num_fold(convert_float16(vload16(0, a)));
#else
    return 0.0f;
#endif
}

/* Factors of the sums of a block's codes, per row; a format sets those it has. */
struct block_factors {
    vec scale;
#if HALVES
    vec first, second;
#endif
#if MIN
    vec least;
#if HALVES
    vec first_min, second_min;
#endif
#endif
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
/* scale and total: of the block's 32 activations; low: half_sum. */
static inline void block_terms(const struct block_factors *f, vec sum, vec second, float scale,
                               float total, float low, vec *x, vec *y)
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
    x[1] = fma(f->first_min, (vec)(low), f->second_min * (vec)(total - low));
    y[1] = f->least * (vec)(scale);
#elif MIN
    x[1] = (vec)(total);
    y[1] = f->least * (vec)(scale);
#endif
#endif
}

/* Block b of rows that begin at w. */
#define BLOCK_OF(w, b, head, block)                                          \
    __global const uchar *head = (w) + (size_t)((b) / PER) * (UNIT * WIDTH), \
                         *block = BLOCK_AT(head, (b) % PER)

#if WIDE
/* Blocks begin .. end-1 of WIDTH rows against TOKENS rows of activations: one
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

            block_terms(&f, SUM_TO_VEC(s[t]), SUM_TO_VEC(SECOND_OF(s, second)[t]), ad[t][b],
                        as[t][b], half_sum(a[t] + (size_t)b * 32), x, y);
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

#elif TOKENS == 1
/* One token, one row a work-item in x, SLOTS work-items a row in y. Blocks are independent until
 * they are added up, so first all slots compute terms of blocks side by side, `step` blocks of each
 * quarter at a time, into local memory; then one work-item a quarter adds those up in rule 2's
 * order. A chain of loads from global memory would leave a GPU idle.
 *
 * term: 4 * step * TERMS * rows pairs; part: 4 * rows, gets the quarters' sums. row: index of this
 * one among `rows`, lane: in its row group at w; slot: of `slots`. Has barriers, as many for the
 * same n and step. */
#define BLOCKS_AHEAD 2
/* Terms of block b of n, of the row `lane` of the group at w. */
static inline void row_block(__global const uchar *w, int b, __global const act_t *a,
                             __global const float *ad, __global const float *as, int lane, vec *x,
                             vec *y)
{
    BLOCK_OF(w, b, head, block);
    struct block_factors f = read_factors(head, b % PER, lane);
    sum_t s[1], second[1];

    block_sums(block, b % PER, b, &a, lane, s, second);
    block_terms(&f, SUM_TO_VEC(s[0]), SUM_TO_VEC(SECOND_OF(s, second)[0]), ad[b], as[b],
                half_sum(a + (size_t)b * 32), x, y);
}

/* A quarter's chain over `count` terms, `rows` apart. */
static inline float quarter_sum(__local const float2 *term, int rows, int count, float acc)
{
#pragma unroll 8
    for (int k = 0; k < count; k++)
        acc = fma(term[k * rows].x, term[k * rows].y, acc);
    return acc;
}

static inline void row_quarters(__global const uchar *w, int n, __global const act_t *a,
                                __global const float *ad, __global const float *as, int lane,
                                int row, int rows, int step, int slot, int slots,
                                __local float2 *term, __local float *part)
{
    float acc = 0.0f;

    step = min(step, (n + 3) / 4);
    for (int done = 0; done < (n + 3) / 4; done += step) {
        for (int first = slot; first < 4 * step; first += BLOCKS_AHEAD * slots) {
            vec x[BLOCKS_AHEAD][TERMS], y[BLOCKS_AHEAD][TERMS];
            bool there[BLOCKS_AHEAD];

            /* a block that is not there: another one, for nothing; no branch keeps loads apart */
#pragma unroll
            for (int k = 0; k < BLOCKS_AHEAD; k++) {
                int i = min(first + k * slots, 4 * step - 1), q = i / step,
                    b = (int)((long)q * n / 4) + done + i % step;

                there[k] = first + k * slots < 4 * step && b < (int)((long)(q + 1) * n / 4);
                row_block(w, min(b, n - 1), a, ad, as, lane, x[k], y[k]);
            }
#pragma unroll
            for (int k = 0; k < BLOCKS_AHEAD; k++)
#pragma unroll
                for (int j = 0; j < TERMS; j++)
                    if (there[k])
                        term[((first + k * slots) * TERMS + j) * rows + row] = (float2)(x[k][j],
                                                                                        y[k][j]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slot < 4) {
            int begin = (int)((long)slot * n / 4) + done,
                count = min(step, (int)((long)(slot + 1) * n / 4) - begin);

            acc = quarter_sum(term + slot * step * TERMS * rows + row, rows, count * TERMS, acc);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (slot < 4)
        part[slot * rows + row] = acc;
    barrier(CLK_LOCAL_MEM_FENCE);
}

static inline float row_fold(__local const float *part, int row, int rows)
{
    return (part[row] + part[rows + row]) + (part[2 * rows + row] + part[3 * rows + row]);
}

/* A row of ROW_MEMORY by all of the group's slots. All work-items get the sum. */
static inline float row_sum(__global const uchar *w, int n, __global const act_t *a,
                            __global const float *ad, __global const float *as, int lane, int rows,
                            int step, __local float2 *term, __local float *part)
{
    row_quarters(w, n, a, ad, as, lane, lane, rows, step, get_local_id(1), get_local_size(1), term,
                 part);
    return row_fold(part, lane, rows);
}

/* `step` for a row group and for gate_up's 32 rows: 16 KB of local memory, and 8 or 16 KB a
 * side. */
#define STEP (256 / WIDTH * 2 / TERMS)
#define GATE_STEP ((SMALL_LOCAL ? 8 : 16) / TERMS)
#define ROW_MEMORY                                 \
    __local float2 term[4 * STEP * TERMS * WIDTH]; \
    __local float part[4 * WIDTH]

#else
/* Many tokens: a work-group multiplies 64 rows with TOKENS tokens. GEMM_STEP blocks at a time it
 * puts codes, activations and factors into local memory; each work-item reads those of its 4 rows
 * and ITEM_TOKENS tokens there: eight ask for three loads where four ask for four. */
#define GEMM_ROWS 64
#define GEMM_X (GEMM_ROWS / 4)
#define GEMM_Y (TOKENS / ITEM_TOKENS)
#define GEMM_SUMS (4 * ITEM_TOKENS) /* of a work-item */
#define GEMM_STEP 4

struct gemm_step {
    uint4 code[GEMM_STEP][8][GEMM_ROWS / 4], act[GEMM_STEP][8][TOKENS / 4];
    struct block_factors factors[GEMM_STEP][GEMM_ROWS];
    float scale[GEMM_STEP][TOKENS], total[GEMM_STEP][TOKENS], low[GEMM_STEP][TOKENS];
};

/* The matrices' side: rows 0 .. 31 of the tile begin at first, the others at second; `groups` of
 * its row groups exist, the last one stands for those behind it. */
struct gemm_rows {
    __global const uchar *first, *second;
    int groups;
};

static inline __global const uchar *gemm_group(const struct gemm_rows *m, int r, int n)
{
    int group = min(r / WIDTH, m->groups - 1);

    return group < 32 / WIDTH ? m->first + (size_t)group * GROUP_BYTES(n)
                              : m->second + (size_t)(group - 32 / WIDTH) * GROUP_BYTES(n);
}

/* Blocks from b0 on. row: of the activations, of each token. */
static inline void gemm_load(__local struct gemm_step *s, const struct gemm_rows *m, int n, int b0,
                             __global const act_t *a, __global const float *ad,
                             __global const float *as, __local const int *row)
{
    int lid = get_local_id(1) * GEMM_X + get_local_id(0), items = GEMM_X * GEMM_Y,
        step = min(GEMM_STEP, n - b0);

    for (int i = lid; i < step * 4 * GEMM_ROWS; i += items) {
        int r = i % GEMM_ROWS, k = i / GEMM_ROWS % 4, j = i / (4 * GEMM_ROWS), b = b0 + j;
        uint lo, hi;
        BLOCK_OF(gemm_group(m, r, n), b, head, block);

        block_words(block, b % PER, k, r % WIDTH, &lo, &hi);
        ((__local uint *)s->code[j][k])[r] = lo;
        ((__local uint *)s->code[j][4 + k])[r] = hi;
    }
    for (int i = lid; i < step * GEMM_ROWS; i += items) {
        int r = i % GEMM_ROWS, j = i / GEMM_ROWS, b = b0 + j;
        BLOCK_OF(gemm_group(m, r, n), b, head, block);

        s->factors[j][r] = read_factors(head, b % PER, r % WIDTH);
    }
    for (int i = lid; i < step * 2 * TOKENS; i += items) {
        int t = i % TOKENS, side = i / TOKENS % 2, j = i / (2 * TOKENS);
        size_t b = (size_t)row[t] * n + b0 + j;
        uint4 v = *(__global const uint4 *)(a + b * 32 + 16 * side);
        __local uint *to = (__local uint *)s->act[j][4 * side] + t;

        to[0] = v.s0;
        to[TOKENS] = v.s1;
        to[2 * TOKENS] = v.s2;
        to[3 * TOKENS] = v.s3;
        if (side == 0) {
            s->scale[j][t] = ad[b];
            s->total[j][t] = as[b];
            s->low[j][t] = half_sum(a + b * 32);
        }
    }
}

/* Integer sums stand above the bits of this number, and so are floats less a subtraction. */
#define SUM_ZERO 12582912.0f /* 1.5 * 2^23 */
#define GEMM_SUM(i) (as_float(i) - SUM_ZERO)

/* acc[t][r] goes on by block j. */
static inline void gemm_block(__local const struct gemm_step *s, int j, float acc[ITEM_TOKENS][4])
{
    int x = get_local_id(0), y = get_local_id(1), sum[ITEM_TOKENS][4], second[ITEM_TOKENS][4];

#pragma unroll
    for (int i = 0; i < GEMM_SUMS; i++)
        sum[i / 4][i % 4] = second[i / 4][i % 4] = as_int(SUM_ZERO);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        uint4 w = s->code[j][k][x];
        uint wr[4] = {w.s0, w.s1, w.s2, w.s3}, at[ITEM_TOKENS];

#pragma unroll
        for (int i = 0; i < ITEM_TOKENS / 4; i++)
            vstore4(s->act[j][k][y * (ITEM_TOKENS / 4) + i], i, at);
#pragma unroll
        for (int i = 0; i < GEMM_SUMS; i++) {
            int t = i / 4, r = i % 4, d = dot_4x8packed_ss_int(wr[r], at[t]);

            if (HALVES && k >= 4)
                second[t][r] += d;
            else
                sum[t][r] += d;
        }
    }
#pragma unroll
    for (int r = 0; r < 4; r++) {
        struct block_factors f = s->factors[j][4 * x + r];

#pragma unroll
        for (int t = 0; t < ITEM_TOKENS; t++) {
            int token = ITEM_TOKENS * y + t;
            vec u[TERMS], v[TERMS];

            block_terms(&f, GEMM_SUM(sum[t][r]), GEMM_SUM(second[t][r]), s->scale[j][token],
                        s->total[j][token], s->low[j][token], u, v);
#pragma unroll
            for (int i = 0; i < TERMS; i++)
                acc[t][r] = fma(u[i], v[i], acc[t][r]);
        }
    }
}

/* Rule 2's sums of quarters 0 .. 3, as each of them ends; acc begins the next one. */
static inline void gemm_fold(int quarter, float acc[ITEM_TOKENS][4], float odd[ITEM_TOKENS][4],
                             float out[ITEM_TOKENS][4])
{
#pragma unroll
    for (int i = 0; i < GEMM_SUMS; i++) {
        int t = i / 4, r = i % 4;

        if (quarter == 1)
            out[t][r] = odd[t][r] + acc[t][r];
        else if (quarter == 3)
            out[t][r] = out[t][r] + (odd[t][r] + acc[t][r]);
        else
            odd[t][r] = acc[t][r];
        acc[t][r] = 0.0f;
    }
}

/* out[t][r]: token ITEM_TOKENS lid_y + t times row 4 lid_x + r. n: 0: there is nothing to do. Has
 * barriers. */
static inline void gemm(__local struct gemm_step *s, const struct gemm_rows *m, int n,
                        __global const act_t *a, __global const float *ad, __global const float *as,
                        __local const int *row, float out[ITEM_TOKENS][4])
{
    float acc[ITEM_TOKENS][4], odd[ITEM_TOKENS][4];
    int quarter = 0;

#pragma unroll
    for (int i = 0; i < GEMM_SUMS; i++)
        acc[i / 4][i % 4] = odd[i / 4][i % 4] = out[i / 4][i % 4] = 0.0f;
    for (int b = 0; b < n; b += GEMM_STEP) {
        gemm_load(s, m, n, b, a, ad, as, row);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int j = 0; j < GEMM_STEP && b + j < n; j++) {
            for (; b + j >= (int)((long)(quarter + 1) * n / 4); quarter++)
                gemm_fold(quarter, acc, odd, out);
            gemm_block(s, j, acc);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (; quarter < 4; quarter++)
        gemm_fold(quarter, acc, odd, out);
}
#endif

/* Where a work-group stands, and how many rows it has. */
#define MATMUL_TILE get_group_id(0)
#define MATMUL_GROUP get_group_id(1)
#if WIDE
#define ITEMS_X 1
#define ITEMS_Y 1
#elif TOKENS == 1
#define ITEMS_X WIDTH
#define ITEMS_Y SLOTS
#else
#define ITEMS_X GEMM_X
#define ITEMS_Y GEMM_Y
#endif
#if WIDE || TOKENS == 1
#define GROUP_ROWS WIDTH
#else
#define GROUP_ROWS GEMM_ROWS
#endif

static inline void store_row(__global float *y, __global const float *bias, int row, float v,
                             int flags)
{
    if (flags & 1)
        v = v + bias[row];
    y[row] = flags & 8 ? y[row] + v : v;
}

#if WIDE
static inline void store_vec(__global float *y, __global const float *bias, int row, int rows,
                             vec v, int flags)
{
    float out[WIDTH];

#if WIDTH == 16
    vstore16(v, 0, out);
#else
    vstore8(v, 0, out);
#endif
    for (int r = 0; r < WIDTH && row + r < rows; r++)
        store_row(y, bias, row + r, out[r], flags);
}
#endif

/* y = W x (+ bias) (+ y) for up to three matrices of the same columns, tokens rows of activations.
 * Groups: (tiles, row groups). flags: 1, 2, 4: the matrix has a bias; 8: add to y. */
__kernel __attribute__((reqd_work_group_size(ITEMS_X, ITEMS_Y, 1))) void matmul(
    __global const act_t *a, __global const float *ad, __global const float *as, int cols,
    int tokens, __global const uchar *w0, __global const float *b0, __global float *y0, int rows0,
    __global const uchar *w1, __global const float *b1, __global float *y1, int rows1,
    __global const uchar *w2, __global const float *b2, __global float *y2, int rows2, int flags)
{
    int group = MATMUL_GROUP, tile = MATMUL_TILE, n = cols / 32;
    int g0 = (rows0 + GROUP_ROWS - 1) / GROUP_ROWS, g1 = (rows1 + GROUP_ROWS - 1) / GROUP_ROWS,
        rows = rows0;
    __global const uchar *w = w0;
    __global const float *b = b0;
    __global float *y = y0;

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
    w += (size_t)group * (GROUP_ROWS / WIDTH) * GROUP_BYTES(n);
#if WIDE
    __global const act_t *pa[TOKENS];
    __global const float *pd[TOKENS], *ps[TOKENS];
    vec v[TOKENS];

    if (tile * TOKENS >= tokens)
        return;
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        size_t token = min(tile * TOKENS + t, tokens - 1);

        pa[t] = a + token * cols;
        pd[t] = ad + token * n;
        ps[t] = as + token * n;
    }
    dot_rows(w, n, pa, pd, ps, 0, v);
#ifdef BROKEN_matmul /* tests: one bit off, as a miscompiled kernel might be */
    v[0] = v[0] * (vec)(1.0000002f);
#endif
    for (int t = 0; t < TOKENS && tile * TOKENS + t < tokens; t++)
        store_vec(y + (size_t)(tile * TOKENS + t) * rows, b, group * WIDTH, rows, v[t], flags);
#elif TOKENS == 1
    ROW_MEMORY;
    int lane = get_local_id(0);
    size_t token = min(tile, tokens - 1);
    float v = row_sum(w, n, a + token * cols, ad + token * n, as + token * n, lane, WIDTH, STEP,
                      term, part);
#ifdef BROKEN_matmul
    v = v * 1.0000002f;
#endif
    if (get_local_id(1) == 0 && tile < tokens && group * WIDTH + lane < rows)
        store_row(y + token * rows, b, group * WIDTH + lane, v, flags);
#else
    __local struct gemm_step s;
    __local int row[TOKENS];
    int x = get_local_id(0), first = tile * TOKENS, left = rows - group * GEMM_ROWS;
    struct gemm_rows m = {w, w + 32 / WIDTH * GROUP_BYTES(n), (left + WIDTH - 1) / WIDTH};
    float v[ITEM_TOKENS][4];

    for (int t = get_local_id(1) * GEMM_X + x; t < TOKENS; t += GEMM_X * GEMM_Y)
        row[t] = min(first + t, tokens - 1);
    barrier(CLK_LOCAL_MEM_FENCE);
    gemm(&s, &m, n, a, ad, as, row, v);
#ifdef BROKEN_matmul
    v[0][0] = v[0][0] * 1.0000002f;
#endif
    first += get_local_id(1) * ITEM_TOKENS;
    for (int t = 0; t < ITEM_TOKENS && first + t < tokens; t++)
        for (int r = 0; r < 4 && 4 * x + r < left; r++)
            store_row(y + (size_t)(first + t) * rows, b, group * GEMM_ROWS + 4 * x + r, v[t][r],
                      flags);
#endif
}

#if WIDE
#define GATE_X 1
#define GATE_Y 1
#elif TOKENS == 1
#define GATE_X 32
#define GATE_Y (2 * GATE_SLOTS) /* half of them for gate, half for up */
#else
#define GATE_X GEMM_X
#define GATE_Y GEMM_Y
#endif

#if WIDE
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
    int group = get_group_id(1), n = cols / 32, tile = first_tile + get_group_id(0);
    int4 what = tile < end_tile ? tiles[tile] : (int4)(0, 0, 0, 0);
    __global const uchar *wg = EXPERT(what.z, g), *wu = EXPERT(what.z, u);
#if BIAS
    __global const float *bias_g = EXPERT_BIAS(what.z, bg), *bias_u = EXPERT_BIAS(what.z, bu);
#endif
    size_t at = (size_t)group * (32 / WIDTH) * GROUP_BYTES(n);

#if WIDE
    __global const act_t *pa[TOKENS];
    __global const float *pd[TOKENS], *ps[TOKENS];
    vec h[TOKENS][32 / WIDTH], gate[TOKENS], up[TOKENS];

    if (what.y == 0)
        return;
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        size_t row = entries[what.x + min(t, what.y - 1)].x;

        pa[t] = a + row * cols;
        pd[t] = ad + row * n;
        ps[t] = as + row * n;
    }
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
#elif TOKENS == 1
    __local float h[32], part[2][4 * 32];
    __local float2 term[2][4 * GATE_STEP * TERMS * 32];
    int x = get_local_id(0), y = get_local_id(1), side = y / GATE_SLOTS;
    size_t row = what.y ? entries[what.x].x : 0, block = (size_t)what.x * (ffn / 32) + group;
    vec gate[1], up[1];

    at += (size_t)(x / WIDTH) * GROUP_BYTES(n);
    row_quarters((ACT_GATED && side == 0 ? wg : wu) + at, n, a + row * cols, ad + row * n,
                 as + row * n, x % WIDTH, x, 32, GATE_STEP, y % GATE_SLOTS, GATE_SLOTS, term[side],
                 part[side]);
    gate[0] = row_fold(part[0], x, 32);
    up[0] = row_fold(part[1], x, 32);
    if (y == 0) {
#if BIAS
        if (biased)
            add_biases(bias_g, bias_u, group * 32 + x, act, 1, gate, up);
#endif
        h[x] = ACTIVATE(act, gate[0], up[0], limit);
    }
    quantise_line(h, x, y == 0 && what.y, m + block * 32, md + block, ms + block);
#else
    /* 32 rows of gate and the same of up are one tile of rows. */
    __local struct gemm_step s;
    __local int row[TOKENS];
    int x = get_local_id(0), y = get_local_id(1), lid = y * GEMM_X + x;
    struct gemm_rows rows = {(ACT_GATED ? wg : wu) + at, wu + at, GEMM_ROWS / WIDTH};
    float v[ITEM_TOKENS][4];
    __local float *both = (__local float *)&s; /* (TOKENS, 64), behind the products */

    for (int t = lid; t < TOKENS; t += GEMM_X * GEMM_Y)
        row[t] = what.y ? entries[what.x + min(t, what.y - 1)].x : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    gemm(&s, &rows, what.y ? n : 0, a, ad, as, row, v);
    for (int i = 0; i < GEMM_SUMS; i++)
        both[(ITEM_TOKENS * y + i / 4) * GEMM_ROWS + 4 * x + i % 4] = v[i / 4][i % 4];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = lid; i < TOKENS * 32; i += GEMM_X * GEMM_Y) {
        __local float *at_row = both + i / 32 * GEMM_ROWS + i % 32;
        vec gate[1] = {at_row[0]}, up[1] = {at_row[32]};

#if BIAS
        if (biased)
            add_biases(bias_g, bias_u, group * 32 + i % 32, act, 1, gate, up);
#endif
        at_row[0] = ACTIVATE(act, gate[0], up[0], limit);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int t = lid; t < what.y; t += GEMM_X * GEMM_Y) {
        size_t block = (size_t)(what.x + t) * (ffn / 32) + group;
        __local const float *h = both + t * GEMM_ROWS;

        quantise32(vload16(0, h), vload16(1, h), m + block * 32, md + block, ms + block);
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
    int group = MATMUL_GROUP, tile = first_tile + MATMUL_TILE, n = ffn / 32;
    int4 what = tile < end_tile ? tiles[tile] : (int4)(0, 0, 0, 0);
    __global const uchar *w = EXPERT(what.z, d) +
                              (size_t)group * (GROUP_ROWS / WIDTH) * GROUP_BYTES(n);
#if BIAS
    __global const float *bias = EXPERT_BIAS(what.z, bd);
#else
    __global const float *bias = 0;
    const int biased = 0;
#endif

#if WIDE
    __global const act_t *pa[TOKENS];
    __global const float *pd[TOKENS], *ps[TOKENS];
    vec v[TOKENS];

    if (what.y == 0)
        return;
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        size_t entry = what.x + min(t, what.y - 1);

        pa[t] = m + entry * ffn;
        pd[t] = md + entry * n;
        ps[t] = ms + entry * n;
    }
    dot_rows(w, n, pa, pd, ps, 0, v);
#ifdef BROKEN_down
    v[0] = v[0] * (vec)(1.0000002f);
#endif
    for (int t = 0; t < what.y; t++)
        store_vec(out + (size_t)entries[what.x + t].y * rows, bias, group * WIDTH, rows, v[t],
                  biased);
#elif TOKENS == 1
    ROW_MEMORY;
    int lane = get_local_id(0);
    size_t entry = what.x;
    float v = row_sum(w, n, m + entry * ffn, md + entry * n, ms + entry * n, lane, WIDTH, STEP,
                      term, part);
#ifdef BROKEN_down
    v = v * 1.0000002f;
#endif
    if (get_local_id(1) == 0 && what.y && group * WIDTH + lane < rows)
        store_row(out + (size_t)entries[entry].y * rows, bias, group * WIDTH + lane, v, biased);
#else
    __local struct gemm_step s;
    __local int row[TOKENS];
    int x = get_local_id(0), y = get_local_id(1), left = rows - group * GEMM_ROWS;
    struct gemm_rows tile_rows = {w, w + 32 / WIDTH * GROUP_BYTES(n), (left + WIDTH - 1) / WIDTH};
    float v[ITEM_TOKENS][4];

    for (int t = y * GEMM_X + x; t < TOKENS; t += GEMM_X * GEMM_Y)
        row[t] = what.x + max(0, min(t, what.y - 1));
    barrier(CLK_LOCAL_MEM_FENCE);
    gemm(&s, &tile_rows, what.y ? n : 0, m, md, ms, row, v);
#ifdef BROKEN_down
    v[0][0] = v[0][0] * 1.0000002f;
#endif
    for (int t = 0; t < ITEM_TOKENS && ITEM_TOKENS * y + t < what.y; t++)
        for (int r = 0; r < 4 && 4 * x + r < left; r++)
            store_row(out + (size_t)entries[what.x + ITEM_TOKENS * y + t].y * rows, bias,
                      group * GEMM_ROWS + 4 * x + r, v[t][r], biased);
#endif
}

#if !WIDE && TOKENS == 1
/* One token's down projections, what its experts give added to x by their weights (rule 9), and the
 * norm of the layer behind it, in one launch. Groups: row groups, each with all `used` experts, a
 * few of them side by side: their blocks have terms in local memory together, at most 4 STEP of
 * them. The last group that ends norms x, of at most ROW_TILE columns. flags as in norm; 8: there
 * is no norm. weights: from `base` on; arrivals: last_of. Expert s of tile s; m: its row s. */
__kernel __attribute__((reqd_work_group_size(WIDTH * SLOTS, 1, 1))) void token_down(
    __global const act_t *m, __global const float *md, __global const float *ms,
    __global const int4 *tiles, __global const float *weights, __global float *x,
    __global uint *arrivals, __global const float *nw, __global const float *nb, __global float *h,
    __global act_t *hq, __global float *hd, __global float *hs, int base, int used, int ffn,
    int rows, float inv_n, float eps, int flags, BANK(d) BIASES(bd) BIAS_FLAG)
{
    __local float4 room[4 * STEP * TERMS * WIDTH / 2 > ROW_TILE / 4 ? 4 * STEP * TERMS * WIDTH / 2
                                                                    : ROW_TILE / 4];
    __local float part[SLOTS * WIDTH], peak[ROW_TILE / 4], lane_of[LANES], square[LANES];
    __local int last;
    __local float2 *term = (__local float2 *)room;
    int lid = get_local_id(0), lane = lid % WIDTH, slot = lid / WIDTH, n = ffn / 32,
        row = (int)get_group_id(0) * WIDTH + lane, at_once = min(4 * STEP / n, SLOTS / 4),
        first = 0;
    size_t at = get_group_id(0) * GROUP_BYTES(n);
    __global uint *words = (__global uint *)x;
    struct norm_ahead ahead;
    float sum = 0.0f, before = 0.0f;

    weights += base;
    /* an atomic, for the last group reads it by one */
    if (slot == 0 && row < rows)
        before = as_float(atomic_or(words + row, 0u));
    do {
        int experts = min(at_once, used - first), blocks = experts * n;

        for (int from = slot; from < blocks; from += BLOCKS_AHEAD * SLOTS) {
            vec u[BLOCKS_AHEAD][TERMS], v[BLOCKS_AHEAD][TERMS];

#pragma unroll
            for (int k = 0; k < BLOCKS_AHEAD; k++) {
                int i = min(from + k * SLOTS, blocks - 1), s = first + i / n;
                __global const uchar *w = EXPERT(tiles[s].z, d) + at;

                row_block(w, i % n, m + (size_t)s * ffn, md + s * n, ms + s * n, lane, u[k], v[k]);
            }
#pragma unroll
            for (int k = 0; k < BLOCKS_AHEAD; k++)
#pragma unroll
                for (int j = 0; j < TERMS; j++)
                    if (from + k * SLOTS < blocks)
                        term[((from + k * SLOTS) * TERMS + j) * WIDTH + lane] = (float2)(u[k][j],
                                                                                         v[k][j]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slot < 4 * experts) {
            int begin = (int)((long)(slot % 4) * n / 4), end = (int)((long)(slot % 4 + 1) * n / 4);

            part[slot * WIDTH + lane] = quarter_sum(term + (slot / 4 * n + begin) * TERMS * WIDTH +
                                                        lane,
                                                    WIDTH, (end - begin) * TERMS, 0.0f);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < experts && slot == 0; i++) {
            int s = first + i;
            float v = row_fold(part + 4 * i * WIDTH, lane, WIDTH);

#if BIAS
            if (biased && row < rows)
                v = v + EXPERT_BIAS(tiles[s].z, bd)[row];
#endif
            sum = s ? fma(weights[s], v, sum) : weights[0] * v;
        }
    } while ((first += at_once) < used);
#ifdef BROKEN_token_down
    sum = sum * 1.0000002f;
#endif
    if (slot == 0 && row < rows)
        atomic_xchg(words + row, as_uint(before + sum));
    norm_begin(nw, nb, 0, flags & 8 ? 0 : rows, flags, &ahead);

    /* The others run through: PoCL 3.1 miscompiles a return before a barrier. */
    int columns = last_of(arrivals, get_num_groups(0), &last) && !(flags & 8) ? rows : 0;

    for (int from = lid; from < columns; from += 8 * WIDTH * SLOTS) {
        float v[8];

#pragma unroll
        for (int k = 0; k < 8; k++)
            if (from + k * WIDTH * SLOTS < columns)
                v[k] = as_float(atomic_or(words + from + k * WIDTH * SLOTS, 0u));
#pragma unroll
        for (int k = 0; k < 8; k++)
            if (from + k * WIDTH * SLOTS < columns)
                ((__local float *)room)[from + k * WIDTH * SLOTS] = v[k];
    }
    norm_row(x, nw, nb, columns, inv_n, eps, flags, true, room, peak, lane_of, square, &ahead, h,
             hq, hd, hs);
}
#endif
