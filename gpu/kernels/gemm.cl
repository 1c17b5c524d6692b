/* Many tokens (rules 1 and 2 of engine/device/numerics.h): a work-group multiplies 64 rows with
 * TOKENS tokens. Defined by the host: ITEM_TOKENS, and ENGINE, how:
 *
 * 0: each work-item 4 rows and ITEM_TOKENS tokens, 4 or 8. GEMM_STEP blocks at a time the group
 * puts codes, activations and factors into local memory; each work-item reads those of its rows and
 * tokens there: eight ask for three loads where four ask for four.
 * Else on an int8 matrix engine, whose step over 32 columns is a block's exact sum; ITEM_TOKENS is
 * TOKENS / 8. 1: NVIDIA's mma.sync.m16n8k32 (PTX ISA, "Matrix Fragments for mma.m16n8k32"; halves
 * that have factors take m16n8k16 each): 32 work-items beside each other have 16 rows by TOKENS. 8,
 * 16: Intel's of sub-groups of so many (cl_intel_subgroup_matrix_multiply_accumulate): one has as
 * many rows by half of the tokens. EMULATED: local memory in the engine's place, for tests where
 * there is none. */
#if !WIDE && TOKENS > 1
#define GEMM_ROWS 64
#define GEMM_X (GEMM_ROWS / 4)
#define GEMM_Y (TOKENS / ITEM_TOKENS)
#define GEMM_ITEMS (GEMM_X * GEMM_Y)
#define GEMM_LID ((int)(get_local_id(1) * GEMM_X + get_local_id(0)))
#define GEMM_SUMS (4 * ITEM_TOKENS) /* of a work-item */
#define GEMM_STEP 4

/* Integer sums stand above the bits of this number, and so are floats less a subtraction. */
#define SUM_ZERO 12582912.0f /* 1.5 * 2^23 */
#define GEMM_SUM(i) (as_float(i) - SUM_ZERO)

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

#if ENGINE
/* A work-item's place: which 32 or sub-group, and in it; row and token of its sum i. ENGINE_ROWS:
 * its rows; ENGINE_CODES: words of a block that it loads. */
#if ENGINE == 1
#define ENGINE_LANE (GEMM_LID % 32)
#define ENGINE_ROW (ENGINE_LANE / 4) /* or token, of a fragment */
#define ENGINE_WORD (ENGINE_LANE % 4)
#define ENGINE_ROWS 2
#define ENGINE_CODES 4
#define GEMM_ROW(i) (GEMM_LID / 32 * 16 + ENGINE_ROW + (i) % 4 / 2 * 8)
#define GEMM_TOKEN(i) ((i) / 4 * 8 + 2 * ENGINE_WORD + (i) % 2)
#else
#if EMULATED
#define ENGINE_SUB (GEMM_LID / ENGINE)
#define ENGINE_LANE (GEMM_LID % ENGINE)
#define ENGINE_KERNEL
#else
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#pragma OPENCL EXTENSION cl_intel_required_subgroup_size : enable
#pragma OPENCL EXTENSION cl_intel_subgroup_matrix_multiply_accumulate : enable
#define ENGINE_SUB ((int)get_sub_group_id())
#define ENGINE_LANE ((int)get_sub_group_local_id())
#define ENGINE_KERNEL __attribute__((intel_reqd_sub_group_size(ENGINE)))
#endif
#define ENGINE_ROWS 1
#define ENGINE_CODES 8
#define GEMM_ROW(i) (ENGINE_SUB % (GEMM_ROWS / ENGINE) * ENGINE + ENGINE_LANE)
#define GEMM_TOKEN(i) (ENGINE_SUB / (GEMM_ROWS / ENGINE) * (TOKENS / 2) + (i))
#endif
#define ACT_ROW (TOKENS + 8) /* four of them side by side take all banks of local memory */

/* Activations of GEMM_STEP blocks by word and token, and each token's scale and total. */
struct gemm_step {
    uint act[GEMM_STEP][8][ACT_ROW];
    float4 scale[GEMM_STEP][TOKENS / 2]; /* of two tokens */
    float low[GEMM_STEP][TOKENS];
};

struct gemm_memory {
    struct gemm_step step[2];
#if EMULATED
    uint8 a[GEMM_ITEMS];
    uint2 b[GEMM_ITEMS];
#endif
};

/* What a work-item has on its way of the step behind. */
#define ACT_LOADS ((GEMM_STEP * 2 * TOKENS + GEMM_ITEMS - 1) / GEMM_ITEMS)
#define SCALE_LOADS ((GEMM_STEP * TOKENS + GEMM_ITEMS - 1) / GEMM_ITEMS)
struct gemm_ahead {
    uint4 act[ACT_LOADS];
    float2 scale[SCALE_LOADS];
    float low[SCALE_LOADS];
};

/* Blocks from b0 on, those behind the last as the last. row: of the activations, of each token. */
static inline void gemm_load(struct gemm_ahead *v, int n, int b0, __global const act_t *a,
                             __global const float *ad, __global const float *as,
                             __local const int *row)
{
#pragma unroll
    for (int k = 0; k < ACT_LOADS; k++) {
        int i = GEMM_LID + k * GEMM_ITEMS, t = i / 2 % TOKENS, j = i / 2 / TOKENS;
        size_t b = (size_t)row[t] * n + min(b0 + j, n - 1);

        v->act[k] = *(__global const uint4 *)(a + b * 32 + 16 * (i % 2));
    }
#pragma unroll
    for (int k = 0; k < SCALE_LOADS; k++) {
        int i = GEMM_LID + k * GEMM_ITEMS, j = i / TOKENS;
        size_t b = (size_t)row[i % TOKENS] * n + min(b0 + j, n - 1);

        v->scale[k] = (float2)(ad[b], as[b]);
        v->low[k] = half_sum(a + b * 32);
    }
}

static inline void gemm_store(__local struct gemm_step *s, const struct gemm_ahead *v)
{
#pragma unroll
    for (int k = 0; k < ACT_LOADS; k++) {
        int i = GEMM_LID + k * GEMM_ITEMS, t = i / 2 % TOKENS, j = i / 2 / TOKENS;

        if (j < GEMM_STEP) {
            s->act[j][4 * (i % 2)][t] = v->act[k].s0;
            s->act[j][4 * (i % 2) + 1][t] = v->act[k].s1;
            s->act[j][4 * (i % 2) + 2][t] = v->act[k].s2;
            s->act[j][4 * (i % 2) + 3][t] = v->act[k].s3;
        }
    }
#pragma unroll
    for (int k = 0; k < SCALE_LOADS; k++) {
        int i = GEMM_LID + k * GEMM_ITEMS, t = i % TOKENS, j = i / TOKENS;

        if (j < GEMM_STEP) {
            ((__local float2 *)s->scale[j])[t] = v->scale[k];
            s->low[j][t] = v->low[k];
        }
    }
}

/* A block of a work-item's rows. ENGINE 1: words ENGINE_WORD of their first halves, then of their
 * second; else all words of the one row. */
struct gemm_block {
    uint code[ENGINE_CODES];
    struct block_factors f[ENGINE_ROWS];
};

/* first, second: groups of those rows. */
static inline struct gemm_block gemm_rows_block(__global const uchar *first,
                                                __global const uchar *second, int b)
{
    struct gemm_block v;

#pragma unroll
    for (int i = 0; i < ENGINE_ROWS; i++) {
        int r = GEMM_ROW(2 * i) % WIDTH;
        BLOCK_OF(i ? second : first, b, head, block);

#if ENGINE == 1
        block_words(block, b % PER, ENGINE_WORD, r, &v.code[i], &v.code[2 + i]);
#else
#pragma unroll
        for (int k = 0; k < 4; k++)
            block_words(block, b % PER, k, r, &v.code[k], &v.code[4 + k]);
#endif
        v.f[i] = read_factors(head, b % PER, r);
    }
    return v;
}

/* The engine's sums for eight tokens from t on, of their words act and a block's codes, on top of
 * sum; where halves have factors those of the first, and second of the other. */
#if ENGINE == 1
#define ENGINE_SUMS 4
static inline void engine_product(__local struct gemm_memory *memory, const uint *a,
                                  __local const uint (*act)[ACT_ROW], int t, int *sum, int *second)
{
    uint b[2] = {act[ENGINE_WORD][t + ENGINE_ROW], act[4 + ENGINE_WORD][t + ENGINE_ROW]};

#if EMULATED
    int first = GEMM_LID - ENGINE_LANE;

    memory->a[GEMM_LID] = (uint8)(a[0], a[1], a[2], a[3], 0, 0, 0, 0);
    memory->b[GEMM_LID] = (uint2)(b[0], b[1]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            uint8 u = memory->a[first + 4 * ENGINE_ROW + k];
            uint2 v = memory->b[first + 4 * (2 * ENGINE_WORD + i % 2) + k];

            sum[i] += dot_4x8packed_ss_int(i < 2 ? u.s0 : u.s1, v.s0);
            SECOND_OF(sum, second)[i] += dot_4x8packed_ss_int(i < 2 ? u.s2 : u.s3, v.s1);
        }
    barrier(CLK_LOCAL_MEM_FENCE);
#elif HALVES
#define ENGINE_HALF(sum, a, b)                                                                  \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, " \
                 "{%6}, {%0, %1, %2, %3};"                                                      \
                 : "+r"((sum)[0]), "+r"((sum)[1]), "+r"((sum)[2]), "+r"((sum)[3])               \
                 : "r"((a)[0]), "r"((a)[1]), "r"(b))
    ENGINE_HALF(sum, a, b[0]);
    ENGINE_HALF(second, a + 2, b[1]);
#else
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, "
                 "%7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
#else
#define ENGINE_SUMS 8
#if ENGINE == 8 /* a work-item gives a word of each token, or half of one */
typedef int8 engine_act;
#else
typedef short8 engine_act;
#endif
#if EMULATED
static inline int8 engine_mad(__local struct gemm_memory *memory, engine_act a, const uint *codes,
                              int8 sums)
{
    __local const uint8 *of = memory->a + GEMM_LID - ENGINE_LANE;
    int sum[8];

    vstore8(sums, 0, sum);
#if ENGINE == 8
    memory->a[GEMM_LID] = as_uint8(a);
#else
    memory->a[GEMM_LID] = convert_uint8(as_ushort8(a));
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < 8; k++) {
        uint v[8];

#if ENGINE == 8
        vstore8(of[k], 0, v);
#else
        vstore8(of[2 * k] | of[2 * k + 1] << 16, 0, v);
#endif
        for (int i = 0; i < 8; i++)
            sum[i] += dot_4x8packed_ss_int(codes[k], v[i]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return vload8(0, sum);
}
#else
#define engine_mad(memory, a, codes, sums) \
    intel_sub_group_i8_i8_matrix_mad_k32(a, as_int8(vload8(0, codes)), sums)
#endif

static inline void engine_product(__local struct gemm_memory *memory, const uint *codes,
                                  __local const uint (*act)[ACT_ROW], int t, int *sum, int *second)
{
#if ENGINE == 8
    engine_act a = as_int8(vload8(0, act[ENGINE_LANE] + t)), none = (engine_act)(0);
#else
    short16 both = as_short16(vload8(0, act[ENGINE_LANE / 2] + t));
    engine_act a = ENGINE_LANE % 2 ? ODD8(both) : both.even, none = (engine_act)(0);
#endif
#if HALVES
    bool first = ENGINE_LANE < ENGINE / 2;

    vstore8(engine_mad(memory, first ? a : none, codes, vload8(0, sum)), 0, sum);
    vstore8(engine_mad(memory, first ? none : a, codes, vload8(0, second)), 0, second);
#else
    vstore8(engine_mad(memory, a, codes, vload8(0, sum)), 0, sum);
#endif
}
#endif

/* acc[t][i], the sums 4 t + i, go on by block j of the step. */
static inline void gemm_block(__local struct gemm_memory *memory, __local const struct gemm_step *s,
                              int j, const struct gemm_block *rows, float acc[ITEM_TOKENS][4])
{
#pragma unroll
    for (int from = 0; from < GEMM_SUMS; from += ENGINE_SUMS) {
        int sum[ENGINE_SUMS], second[ENGINE_SUMS];

#pragma unroll
        for (int i = 0; i < ENGINE_SUMS; i++)
            sum[i] = second[i] = as_int(SUM_ZERO);
        engine_product(memory, rows->code, s->act[j], GEMM_TOKEN(from) & ~7, sum, second);
#pragma unroll
        for (int i = 0; i < ENGINE_SUMS; i++) {
            int t = GEMM_TOKEN(from + i);
            float2 scale = ((__local const float2 *)s->scale[j])[t];
            vec u[TERMS], v[TERMS];

            block_terms(&rows->f[ENGINE == 1 ? i / 2 : 0], GEMM_SUM(sum[i]), GEMM_SUM(second[i]),
                        scale.x, scale.y, s->low[j][t], u, v);
#pragma unroll
            for (int k = 0; k < TERMS; k++)
                acc[(from + i) / 4][i % 4] = fma(u[k], v[k], acc[(from + i) / 4][i % 4]);
        }
    }
}

/* out[t][i]: row GEMM_ROW(i) and token GEMM_TOKEN(4 t + i). n: 0: there is nothing to do. Has
 * barriers. */
static inline void gemm(__local struct gemm_memory *memory, const struct gemm_rows *m, int n,
                        __global const act_t *a, __global const float *ad, __global const float *as,
                        __local const int *row, float out[ITEM_TOKENS][4])
{
    float acc[ITEM_TOKENS][4], odd[ITEM_TOKENS][4];
    struct gemm_ahead ahead;
    struct gemm_block next;
    __global const uchar *first = gemm_group(m, GEMM_ROW(0), n),
                         *second = gemm_group(m, GEMM_ROW(2), n);
    int quarter = 0, quarter_end = n / 4;

#pragma unroll
    for (int i = 0; i < GEMM_SUMS; i++)
        acc[i / 4][i % 4] = odd[i / 4][i % 4] = out[i / 4][i % 4] = 0.0f;
    if (n) {
        gemm_load(&ahead, n, 0, a, ad, as, row);
        next = gemm_rows_block(first, second, 0);
    }
    for (int b = 0; b < n; b += GEMM_STEP) {
        /* the other one is read until all are at the barrier behind it */
        __local struct gemm_step *s = &memory->step[b / GEMM_STEP % 2];

        gemm_store(s, &ahead);
        barrier(CLK_LOCAL_MEM_FENCE);
        gemm_load(&ahead, n, b + GEMM_STEP, a, ad, as, row);
        for (int j = 0; j < GEMM_STEP && b + j < n; j++) {
            struct gemm_block rows = next;

            next = gemm_rows_block(first, second, min(b + j + 1, n - 1));
            while (b + j >= quarter_end) {
                gemm_fold(quarter++, acc, odd, out);
                quarter_end = (int)((long)(quarter + 1) * n / 4);
            }
            gemm_block(memory, s, j, &rows, acc);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (; quarter < 4; quarter++)
        gemm_fold(quarter, acc, odd, out);
}

#else
#define GEMM_ROW(i) (4 * (int)get_local_id(0) + (i) % 4)
#define GEMM_TOKEN(i) (ITEM_TOKENS * (int)get_local_id(1) + (i) / 4)

struct gemm_memory {
    uint4 code[GEMM_STEP][8][GEMM_ROWS / 4], act[GEMM_STEP][8][TOKENS / 4];
    struct block_factors factors[GEMM_STEP][GEMM_ROWS];
    float scale[GEMM_STEP][TOKENS], total[GEMM_STEP][TOKENS], low[GEMM_STEP][TOKENS];
};

/* Loads of a work-item on their way at once. */
#define CODES_AHEAD 8
#define ACTS_AHEAD 2
#define GEMM_ACTS (GEMM_STEP * 2 * TOKENS)
/* Work-items that share a row, and from row to row of one where there are not so many. */
#define LINE_ITEMS (GEMM_ITEMS < GEMM_ROWS ? 1 : GEMM_ITEMS / GEMM_ROWS)
#define ROWS_APART (GEMM_ITEMS < GEMM_ROWS ? GEMM_ITEMS : GEMM_ROWS)

/* Blocks from b0 on, those behind the last as the last. row: of the activations, of each token. */
static inline void gemm_load(__local struct gemm_memory *s, const struct gemm_rows *m, int n,
                             int b0, __global const act_t *a, __global const float *ad,
                             __global const float *as, __local const int *row)
{
    int lid = GEMM_LID;

    for (int r = lid % GEMM_ROWS; r < GEMM_ROWS; r += ROWS_APART) {
        __global const uchar *group = gemm_group(m, r, n);

        for (int from = lid / GEMM_ROWS; from < 4 * GEMM_STEP; from += CODES_AHEAD * LINE_ITEMS) {
            uint lo[CODES_AHEAD], hi[CODES_AHEAD];

#pragma unroll
            for (int k = 0; k < CODES_AHEAD; k++) {
                int i = min(from + k * LINE_ITEMS, 4 * GEMM_STEP - 1), b = min(b0 + i / 4, n - 1);
                BLOCK_OF(group, b, head, block);

                block_words(block, b % PER, i % 4, r % WIDTH, &lo[k], &hi[k]);
            }
#pragma unroll
            for (int k = 0; k < CODES_AHEAD; k++) {
                int i = from + k * LINE_ITEMS;

                if (i < 4 * GEMM_STEP) {
                    ((__local uint *)s->code[i / 4][i % 4])[r] = lo[k];
                    ((__local uint *)s->code[i / 4][4 + i % 4])[r] = hi[k];
                }
            }
        }
        for (int j = lid / GEMM_ROWS; j < GEMM_STEP; j += LINE_ITEMS) {
            int b = min(b0 + j, n - 1);
            BLOCK_OF(group, b, head, block);

            s->factors[j][r] = read_factors(head, b % PER, r % WIDTH);
        }
    }
    for (int from = lid; from < GEMM_ACTS; from += ACTS_AHEAD * GEMM_ITEMS) {
        uint4 v[ACTS_AHEAD];
        float scale[ACTS_AHEAD], total[ACTS_AHEAD], low[ACTS_AHEAD];

#pragma unroll
        for (int k = 0; k < ACTS_AHEAD; k++) {
            int i = min(from + k * GEMM_ITEMS, GEMM_ACTS - 1), side = i / TOKENS % 2;
            size_t b = (size_t)row[i % TOKENS] * n + min(b0 + i / (2 * TOKENS), n - 1);

            v[k] = *(__global const uint4 *)(a + b * 32 + 16 * side);
            scale[k] = ad[b];
            total[k] = as[b];
            low[k] = half_sum(a + b * 32);
        }
#pragma unroll
        for (int k = 0; k < ACTS_AHEAD; k++) {
            int i = from + k * GEMM_ITEMS, t = i % TOKENS, side = i / TOKENS % 2,
                j = i / (2 * TOKENS);

            if (i < GEMM_ACTS) {
                __local uint *to = (__local uint *)s->act[j][4 * side] + t;

                to[0] = v[k].s0;
                to[TOKENS] = v[k].s1;
                to[2 * TOKENS] = v[k].s2;
                to[3 * TOKENS] = v[k].s3;
                if (side == 0) {
                    s->scale[j][t] = scale[k];
                    s->total[j][t] = total[k];
                    s->low[j][t] = low[k];
                }
            }
        }
    }
}

/* acc[t][r] goes on by block j. */
static inline void gemm_block(__local const struct gemm_memory *s, int j, float acc[ITEM_TOKENS][4])
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

/* out[t][r]: row GEMM_ROW(r) and token GEMM_TOKEN(4 t). n: 0: there is nothing to do. Has barriers.
 */
static inline void gemm(__local struct gemm_memory *s, const struct gemm_rows *m, int n,
                        __global const act_t *a, __global const float *ad, __global const float *as,
                        __local const int *row, float out[ITEM_TOKENS][4])
{
    float acc[ITEM_TOKENS][4], odd[ITEM_TOKENS][4];
    int quarter = 0, quarter_end = n / 4;

#pragma unroll
    for (int i = 0; i < GEMM_SUMS; i++)
        acc[i / 4][i % 4] = odd[i / 4][i % 4] = out[i / 4][i % 4] = 0.0f;
    for (int b = 0; b < n; b += GEMM_STEP) {
        gemm_load(s, m, n, b, a, ad, as, row);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int j = 0; j < GEMM_STEP && b + j < n; j++) {
            while (b + j >= quarter_end) {
                gemm_fold(quarter++, acc, odd, out);
                quarter_end = (int)((long)(quarter + 1) * n / 4);
            }
            gemm_block(s, j, acc);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (; quarter < 4; quarter++)
        gemm_fold(quarter, acc, odd, out);
}
#endif
#ifndef ENGINE_KERNEL
#define ENGINE_KERNEL
#endif

/* Behind gemm the outputs of gate and up take its memory. */
union gemm_room {
    struct gemm_memory memory;
    float both[TOKENS][GEMM_ROWS];
};
#else
#define ENGINE_KERNEL
#endif
