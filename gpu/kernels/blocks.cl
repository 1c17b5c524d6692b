/* What a block of columns gives to a row's sum, to the bit (rules 1 and 2 of
 * engine/device/numerics.h), and rows of one token from that; gemm.cl: many tokens. The formats:
 * formats.cl.
 *
 * Sums inside a block are exact integers, computed in whichever arithmetic the device does best.
 * Reads of weights are coalesced: neighbouring work-items read neighbouring words. Defined by the
 * host beyond formats.cl: TOKENS (tokens of a tile). Of the kernels for one token where not WIDE:
 * ROWS, SLOTS and AHEAD of matmul and down, DOWN_ of token_down, OUT_ of token_output, GATE_SLOTS
 * and GATE_AHEAD of gate_up and token_gate_up: rows of a work-group, a power of two; work-items a
 * row, at least 4; blocks that a work-item has on their way, at most AHEAD_MOST. They and LOAD_ROWS
 * are chosen by measurement (selftest.c) and change no bit. */
#if DOT8 && LOAD_ROWS == 4
typedef int4 sum_t;
#define SUM_TO_VEC(s) convert_float4(s)
#elif DOT8
typedef int sum_t;
#define SUM_TO_VEC(s) ((vec)((float)(s)))
#else
typedef vec sum_t;
#define SUM_TO_VEC(s) (s)
#endif

#if DOT8
/* The four products of a word of codes, of each row, with four activations. */
static inline sum_t dot_word(uvec w, uint act)
{
#if LOAD_ROWS == 4
    return (sum_t)(dot_4x8packed_ss_int(w.x, act), dot_4x8packed_ss_int(w.y, act),
                   dot_4x8packed_ss_int(w.z, act), dot_4x8packed_ss_int(w.w, act));
#else
    return dot_4x8packed_ss_int(w, act);
#endif
}
#else
/* s[t] += the four products of a word of codes with columns at .. at+3 of every token. */
static inline void add_word(sum_t *s, uvec word, __global const act_t *const *a, size_t at)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        vec u = CODE(word >> (uvec)(8u * j) & WORD(255));

#pragma unroll
        for (int t = 0; t < TOKENS; t++)
            s[t] = fma(u, (vec)(a[t][at + j]), s[t]);
    }
}
#endif

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
#if DOT8 /* one token: its columns sixteen at a time */
    __global const uint4 *columns = (__global const uint4 *)(a[0] + (size_t)b * 32);
    uint act[8];

    vstore4(columns[0], 0, act);
    vstore4(columns[1], 1, act);
#endif
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uvec lo, hi;

        block_words(block, j, k, lane, &lo, &hi);
#if DOT8
        s[0] += dot_word(lo, act[k]);
        SECOND_OF(s, second)[0] += dot_word(hi, act[4 + k]);
#else
        add_word(s, lo, a, (size_t)b * 32 + 4 * k);
        add_word(SECOND_OF(s, second), hi, a, (size_t)b * 32 + 16 + 4 * k);
#endif
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
 * quarter at a time, into local memory (there, where four rows are loaded at once, a work-item has
 * those, and a quarter of the blocks); then one work-item a row and quarter adds those up in rule
 * 2's order. A chain of loads from global memory would leave a GPU idle.
 *
 * term: 4 * step * TERMS * rows pairs, at a multiple of 16 bytes; part: 4 * rows, gets the
 * quarters' sums. of: the work-item's terms, lane: their first row's in its row group at w. row,
 * slot: of the sums, row among `rows`. ahead: blocks of a work-item on their way, a constant. Has
 * barriers, as many for the same n and step. */
#define AHEAD_MOST 4
/* `step` for so many rows and for gate_up's 32: 16 KB of local memory, and 8 or 16 KB a side. */
#define STEP_OF(rows) (256 / (rows)*2 / TERMS)
#define GATE_STEP ((SMALL_LOCAL ? 8 : 16) / TERMS)
/* Which terms a work-item computes: of LOAD_ROWS rows from `row` on of a group's, and of every
 * slots-th block from `slot` on. */
struct terms_of {
    int row, slot, slots;
};

/* item: of rows * slots, those of neighbouring rows beside each other. */
static inline struct terms_of terms_of(int item, int rows, int slots)
{
    const int across = rows / LOAD_ROWS;
    struct terms_of of = {item % across * LOAD_ROWS, item / across, slots * LOAD_ROWS};

    return of;
}

/* The first of LOAD_ROWS rows from `row` on, or of the last ones of `rows`. */
static inline int there_of(int row, int rows)
{
    return min(row, (rows - 1) / LOAD_ROWS * LOAD_ROWS);
}

static inline void store_terms(__local float2 *term, vec x, vec y)
{
#if LOAD_ROWS == 4
    __local float4 *pairs = (__local float4 *)term;

    pairs[0] = (float4)(x.x, y.x, x.y, y.y);
    pairs[1] = (float4)(x.z, y.z, x.w, y.w);
#else
    *term = (float2)(x, y);
#endif
}

/* Where row `row` of a matrix is: its row group, of which it is row % WIDTH. */
#define ROW_AT(w, row, n) ((w) + (size_t)((row) / WIDTH) * GROUP_BYTES(n))
/* Terms of block b of n, of the LOAD_ROWS rows from `lane` on of the group at w. */
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

/* A quarter's chain over `count` terms, `rows` apart; the next four are on their way meanwhile, as
 * in lane_sums. */
#define TERMS_AHEAD 4
static inline float quarter_sum(__local const float2 *term, int rows, int count, float acc)
{
    int laps = count / TERMS_AHEAD;
    float2 now[TERMS_AHEAD], next[TERMS_AHEAD];

#pragma unroll
    for (int k = 0; k < TERMS_AHEAD && laps; k++)
        now[k] = term[k * rows];
    for (int lap = 0; lap < laps; lap++) {
        __local const float2 *from = term + min(lap + 1, laps - 1) * TERMS_AHEAD * rows;

#pragma unroll
        for (int k = 0; k < TERMS_AHEAD; k++)
            next[k] = from[k * rows];
#pragma unroll
        for (int k = 0; k < TERMS_AHEAD; k++) {
            acc = fma(now[k].x, now[k].y, acc);
            now[k] = next[k];
        }
    }
    for (int k = laps * TERMS_AHEAD; k < count; k++)
        acc = fma(term[k * rows].x, term[k * rows].y, acc);
    return acc;
}

static inline void row_quarters(__global const uchar *w, int n, __global const act_t *a,
                                __global const float *ad, __global const float *as, int lane,
                                struct terms_of of, int row, int rows, int step, int slot,
                                int ahead, __local float2 *term, __local float *part)
{
    float acc = 0.0f;

    step = min(step, (n + 3) / 4);
    for (int done = 0; done < (n + 3) / 4; done += step) {
        for (int first = of.slot; first < 4 * step; first += ahead * of.slots) {
            vec x[AHEAD_MOST][TERMS], y[AHEAD_MOST][TERMS];
            bool there[AHEAD_MOST];

            /* a block that is not there: another one, for nothing; no branch keeps loads apart */
#pragma unroll
            for (int k = 0; k < AHEAD_MOST && k < ahead; k++) {
                int i = min(first + k * of.slots, 4 * step - 1), q = i / step,
                    b = (int)((long)q * n / 4) + done + i % step;

                there[k] = first + k * of.slots < 4 * step && b < (int)((long)(q + 1) * n / 4);
                row_block(w, min(b, n - 1), a, ad, as, lane, x[k], y[k]);
            }
#pragma unroll
            for (int k = 0; k < AHEAD_MOST && k < ahead; k++)
#pragma unroll
                for (int j = 0; j < TERMS; j++)
                    if (there[k])
                        store_terms(term + ((first + k * of.slots) * TERMS + j) * rows + of.row,
                                    x[k][j], y[k][j]);
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

/* Blocks begin .. end-1, a quarter, of a row by all slots, `step` at a time; slot 0 gets the sum.
 * The rest as in row_quarters. */
static inline float row_quarter(__global const uchar *w, int begin, int end,
                                __global const act_t *a, __global const float *ad,
                                __global const float *as, int lane, struct terms_of of, int row,
                                int rows, int step, int slot, int ahead, __local float2 *term)
{
    float acc = 0.0f;

    do {
        int count = min(step, end - begin);

        for (int first = of.slot; first < count; first += ahead * of.slots) {
            vec x[AHEAD_MOST][TERMS], y[AHEAD_MOST][TERMS];

#pragma unroll
            for (int k = 0; k < AHEAD_MOST && k < ahead; k++)
                row_block(w, begin + min(first + k * of.slots, count - 1), a, ad, as, lane, x[k],
                          y[k]);
#pragma unroll
            for (int k = 0; k < AHEAD_MOST && k < ahead; k++)
#pragma unroll
                for (int j = 0; j < TERMS; j++)
                    if (first + k * of.slots < count)
                        store_terms(term + ((first + k * of.slots) * TERMS + j) * rows + of.row,
                                    x[k][j], y[k][j]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        acc = quarter_sum(term + row, rows, slot ? 0 : count * TERMS, acc);
        barrier(CLK_LOCAL_MEM_FENCE);
    } while ((begin += step) < end);
    return acc;
}

static inline float row_fold(__local const float *part, int row, int rows)
{
    return (part[row] + part[rows + row]) + (part[2 * rows + row] + part[3 * rows + row]);
}

/* Rows from `first` on of a matrix of `rows` at w by all of a group's slots: work-items get the sum
 * of the row get_local_id(0) of these. term, part: ROW_MEMORY. */
static inline float row_sum(__global const uchar *w, int first, int rows, int n,
                            __global const act_t *a, __global const float *ad,
                            __global const float *as, __local float4 *term, __local float *part)
{
    int row = get_local_id(0), slot = get_local_id(1);
    struct terms_of of = terms_of(slot * ROWS + row, ROWS, SLOTS);
    int there = there_of(first + of.row, rows);

    row_quarters(ROW_AT(w, there, n), n, a, ad, as, there % WIDTH, of, row, ROWS, STEP_OF(ROWS),
                 slot, AHEAD, (__local float2 *)term, part);
    return row_fold(part, row, ROWS);
}

/* Of `rows` rows' terms, two of them a float4. */
#define TERMS_ROOM(step, rows) (4 * (step)*TERMS * (rows) / 2)
#define ROW_MEMORY                                        \
    __local float4 term[TERMS_ROOM(STEP_OF(ROWS), ROWS)]; \
    __local float part[4 * ROWS]
#endif
