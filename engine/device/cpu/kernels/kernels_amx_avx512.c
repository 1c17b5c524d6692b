/* AMX kernels (tile and int8): the AVX-512 set with the matrix unit for panels of several tokens,
 * every quantised format. Integer sums are exact in any order, so the bits are those of every other
 * set. Compiled with AVX-512's flags; called only if select.c found the unit and got permission to
 * use it.
 *
 * A few blocks of some row groups are unpacked to signed bytes at a time, for all tokens of the
 * panel. Then, up to 16 tokens of one group at a time (16 float sums in registers), the unit
 * multiplies one block of 32 columns while the vector unit scales and adds the previous one. Each
 * product of a block must leave the tiles before the next, since each has its own scale: 16 rows
 * stored, and three float operations per row with only one port available while tiles are in use.
 * That, not the unit's multiplications, limits these kernels. */
#if defined(__AVX512VNNI__)
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/device/cpu/kernels/prefetch.h"
#include "engine/device/cpu/kernels/vector_avx512.h"

#include "engine/device/cpu/kernels/unpack.inc"

#define TOKENS_LEAST 8 /* with fewer the vector kernels are faster */
#define TOKENS_MOST 16
#define GROUPS_MOST 4
/* blocks unpacked at a time: they and the tokens' blocks stay in the first-level cache */
#define PIECE 8

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Additions to a block's product: none, a minimum, or (Q6_K) two products of 16 columns with a
 * factor each. */
enum kind { PLAIN, MINIMUM, HALVES };

static inline enum kind kind_of(enum dtype type)
{
    return format_of[type].halves ? HALVES : format_of[type].minimum ? MINIMUM : PLAIN;
}

/* Some blocks of one row group. */
struct piece {
    _Alignas(64) int8_t weights[PIECE][512];
    _Alignas(64) float d[PIECE][16], m[PIECE][16], f[PIECE][2][16];
};

/* Tiles 0 .. 3: sums (tokens x 16 rows); 4, 5: activations (tokens x columns); 6, 7: weights (words
 * x 16 rows). */
static void configure(enum kind kind, int tokens)
{
    struct tile_config c = {.palette = 1};
    int columns = kind == HALVES ? 16 : 32;

    for (int i = 0; i < 8; i++) {
        c.rows[i] = (uint8_t)(i < 6 ? tokens : columns / 4);
        c.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? columns : 64);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(c));
}

/* Multiplies one block with its tokens into sums, even and odd blocks in separate tiles. */
INLINE void multiply_block(const enum kind kind, int odd, const struct act_block *a,
                           const int8_t *w)
{
    if (kind == HALVES && odd)
        __asm__ volatile("tilezero %%tmm2\n\ttilezero %%tmm3\n\t"
                         "tileloadd (%0,%2,1), %%tmm4\n\ttileloadd (%1,%2,1), %%tmm6\n\ttdpbssd "
                         "%%tmm6, %%tmm4, %%tmm2\n\t"
                         "tileloadd 16(%0,%2,1), %%tmm5\n\ttileloadd 256(%1,%2,1), "
                         "%%tmm7\n\ttdpbssd %%tmm7, %%tmm5, %%tmm3"
                         :
                         : "r"(a->q), "r"(w), "r"((long)sizeof *a)
                         : "memory");
    else if (kind == HALVES)
        __asm__ volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\t"
                         "tileloadd (%0,%2,1), %%tmm4\n\ttileloadd (%1,%2,1), %%tmm6\n\ttdpbssd "
                         "%%tmm6, %%tmm4, %%tmm0\n\t"
                         "tileloadd 16(%0,%2,1), %%tmm5\n\ttileloadd 256(%1,%2,1), "
                         "%%tmm7\n\ttdpbssd %%tmm7, %%tmm5, %%tmm1"
                         :
                         : "r"(a->q), "r"(w), "r"((long)sizeof *a)
                         : "memory");
    else if (odd)
        __asm__ volatile("tilezero %%tmm1\n\ttileloadd (%0,%2,1), %%tmm5\n\ttileloadd (%1,%2,1), "
                         "%%tmm7\n\ttdpbssd %%tmm7, %%tmm5, %%tmm1"
                         :
                         : "r"(a->q), "r"(w), "r"((long)sizeof *a)
                         : "memory");
    else
        __asm__ volatile("tilezero %%tmm0\n\ttileloadd (%0,%2,1), %%tmm4\n\ttileloadd (%1,%2,1), "
                         "%%tmm6\n\ttdpbssd %%tmm6, %%tmm4, %%tmm0"
                         :
                         : "r"(a->q), "r"(w), "r"((long)sizeof *a)
                         : "memory");
}
_Static_assert(sizeof(struct act_block) == 64,
               "the asm above steps through activations and weight words alike");

INLINE void store_sums(const enum kind kind, int odd, int32_t sums[2][TOKENS_MOST * 16])
{
    if (kind == HALVES && odd)
        __asm__ volatile("tilestored %%tmm2, (%0,%2,1)\n\ttilestored %%tmm3, (%1,%2,1)"
                         :
                         : "r"(sums[0]), "r"(sums[1]), "r"(64L)
                         : "memory");
    else if (kind == HALVES)
        __asm__ volatile("tilestored %%tmm0, (%0,%2,1)\n\ttilestored %%tmm1, (%1,%2,1)"
                         :
                         : "r"(sums[0]), "r"(sums[1]), "r"(64L)
                         : "memory");
    else if (odd)
        __asm__ volatile("tilestored %%tmm1, (%0,%1,1)" : : "r"(sums[0]), "r"(64L) : "memory");
    else
        __asm__ volatile("tilestored %%tmm0, (%0,%1,1)" : : "r"(sums[0]), "r"(64L) : "memory");
}

/* Sums of block i of a piece and m tokens into float accumulators. */
INLINE void scale_and_add(const enum kind kind, const int32_t sums[2][TOKENS_MOST * 16],
                          const struct piece *w, int i, const struct act_block *a, const int m,
                          __m512 *acc)
{
    __m512 dw = _mm512_load_ps(w->d[i]), min = _mm512_load_ps(w->m[i]),
           f0 = _mm512_load_ps(w->f[i][0]), f1 = _mm512_load_ps(w->f[i][1]);

#pragma GCC unroll 16
    for (int t = 0; t < m; t++) {
        __m512 d = _mm512_set1_ps(a[t].d),
               s = _mm512_cvtepi32_ps(_mm512_load_si512(sums[0] + 16 * t));

        if (kind == HALVES) /* exact: integers below 2^24 */
            s = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums[1] + 16 * t)), f1,
                                _mm512_mul_ps(s, f0));
        acc[t] = _mm512_fmadd_ps(s, _mm512_mul_ps(dw, d), acc[t]);
        if (kind == MINIMUM)
            acc[t] = _mm512_fmadd_ps(_mm512_set1_ps(a[t].fsum), _mm512_mul_ps(min, d), acc[t]);
    }
}

/* Sums of some groups and tokens: of the current quarter, if it has more than one piece; of the
 * first two; of the third. */
struct totals {
    __m512 now[GROUPS_MOST][KERNEL_TILE + TOKENS_MOST],
        first[GROUPS_MOST][KERNEL_TILE + TOKENS_MOST],
        third[GROUPS_MOST][KERNEL_TILE + TOKENS_MOST];
};

/* The quarter of a piece, and whether the piece starts or ends it. */
struct stage {
    int quarter;
    bool begins, ends;
};

/* One run of the unit for some tokens: one piece of a group, blocks of a at a step of nt. */
struct run {
    const struct piece *w;
    const struct act_block *a;
    __m512 *now, *first, *third;
    float *out;
};

/* Adds m sums of a completed quarter: numerics.h, rule 2. */
INLINE void end_quarter(const struct run *r, int quarter, const int m, const __m512 *acc,
                        ptrdiff_t stride)
{
    __m512 *to = quarter == 2 ? r->third : r->first;

    if (quarter == 3) {
#pragma GCC unroll 16
        for (int t = 0; t < m; t++)
            _mm512_storeu_ps(r->out + t * stride,
                             _mm512_add_ps(r->first[t], _mm512_add_ps(r->third[t], acc[t])));
    } else if (quarter == 1) {
#pragma GCC unroll 16
        for (int t = 0; t < m; t++)
            r->first[t] = _mm512_add_ps(r->first[t], acc[t]);
    } else {
#pragma GCC unroll 16
        for (int t = 0; t < m; t++)
            to[t] = acc[t];
    }
}

/* m tokens (a constant) of one piece. The first block's product is already running, in the tiles of
 * `odd`; the first of `next`, if there is one, is started before waiting for the last sums. Returns
 * the next odd. */
INLINE int piece_tokens(const enum kind kind, const struct run *r, const struct run *next,
                        struct stage stage, int blocks, int nt, const int m, int odd,
                        ptrdiff_t stride)
{
    _Alignas(64) int32_t sums[2][2][TOKENS_MOST * 16];
    const struct act_block *a = r->a;
    __m512 acc[TOKENS_MOST];

    if (stage.begins) {
#pragma GCC unroll 16
        for (int t = 0; t < m; t++)
            acc[t] = _mm512_setzero_ps();
    } else {
#pragma GCC unroll 16
        for (int t = 0; t < m; t++)
            acc[t] = r->now[t];
    }
    for (int b = 0; b < blocks; b++, a += nt, odd ^= 1) {
        if (b + 1 < blocks)
            multiply_block(kind, odd ^ 1, a + nt, r->w->weights[b + 1]);
        else if (next)
            multiply_block(kind, odd ^ 1, next->a, next->w->weights[0]);
        store_sums(kind, odd, sums[b & 1]);
        if (b > 0)
            scale_and_add(kind, sums[~b & 1], r->w, b - 1, a - nt, m, acc);
    }
    scale_and_add(kind, sums[~blocks & 1], r->w, blocks - 1, a - nt, m, acc);
    if (stage.ends) {
        end_quarter(r, stage.quarter, m, acc, stride);
    } else {
#pragma GCC unroll 16
        for (int t = 0; t < m; t++)
            r->now[t] = acc[t];
    }
    return odd;
}

/* Consecutive runs of m tokens each. */
INLINE void runs_tokens(const enum kind kind, const struct run *r, int n, struct stage stage,
                        int blocks, int nt, const int m, ptrdiff_t stride)
{
    int odd = 0;

    multiply_block(kind, odd, r->a, r->w->weights[0]);
    for (int i = 0; i < n; i++)
        odd = piece_tokens(kind, &r[i], i + 1 < n ? &r[i + 1] : NULL, stage, blocks, nt, m, odd,
                           stride);
}

#define RUNS(name, kind)                                                                        \
    static void runs_##name(const struct run *r, int n, struct stage stage, int blocks, int nt, \
                            int m, ptrdiff_t stride)                                            \
    {                                                                                           \
        switch (m) {                                                                            \
        case 8: runs_tokens(kind, r, n, stage, blocks, nt, 8, stride); break;                   \
        case 9: runs_tokens(kind, r, n, stage, blocks, nt, 9, stride); break;                   \
        case 10: runs_tokens(kind, r, n, stage, blocks, nt, 10, stride); break;                 \
        case 11: runs_tokens(kind, r, n, stage, blocks, nt, 11, stride); break;                 \
        case 12: runs_tokens(kind, r, n, stage, blocks, nt, 12, stride); break;                 \
        case 13: runs_tokens(kind, r, n, stage, blocks, nt, 13, stride); break;                 \
        case 14: runs_tokens(kind, r, n, stage, blocks, nt, 14, stride); break;                 \
        case 15: runs_tokens(kind, r, n, stage, blocks, nt, 15, stride); break;                 \
        case 16: runs_tokens(kind, r, n, stage, blocks, nt, 16, stride); break;                 \
        }                                                                                       \
    }
RUNS(plain, PLAIN)
RUNS(minimum, MINIMUM)
RUNS(halves, HALVES)

/* Blocks first .. first+count-1 of a group. */
INLINE void read_piece(enum dtype type, const uint8_t *group, int first, int count, struct piece *p)
{
    const int per = format_of[type].blocks, head_bytes = format_head(type) * 16,
              block_bytes = format_block_bytes(type) * 16;
    const uint8_t *superblock = group +
                                (size_t)(first / per) * (size_t)(head_bytes + per * block_bytes);
    __m512i zero = _mm512_set1_epi8((char)format_of[type].zero);
    struct superblock_scales sb;
    struct unpacked_block b;

    read_superblock_scales(type, superblock, VL, 0, &sb);
    for (int i = 0, j = first % per; i < count; i++) {
        const uint8_t *data = superblock + head_bytes + j * block_bytes;

        for (int k = 0; k < block_bytes + head_bytes / per; k += 64)
            _mm_prefetch((const char *)data + PREFETCH_AMX_GEMM + k, _MM_HINT_T1);
        read_block_scales(type, superblock, VL, 0, &sb, j, &b);
        unpack(type, data, VL, 0, j, b.w);
        for (int k = 0; k < 8; k++)
            _mm512_store_si512(p->weights[i] + 64 * k,
                               format_of[type].zero ? _mm512_sub_epi8(b.w[k], zero) : b.w[k]);
        _mm512_store_ps(p->d[i], b.d);
        if (format_of[type].minimum < 0)
            _mm512_store_ps(p->m[i], _mm512_xor_ps(b.m, _mm512_set1_ps(-0.0f)));
        else if (format_of[type].minimum)
            _mm512_store_ps(p->m[i], b.m);
        if (format_of[type].halves) {
            _mm512_store_ps(p->f[i][0], b.half[0]);
            _mm512_store_ps(p->f[i][1], b.half[1]);
        }
        if (++j == per && i + 1 < count) {
            j = 0;
            superblock += head_bytes + per * block_bytes;
            read_superblock_scales(type, superblock, VL, 0, &sb);
        }
    }
}

/* Some row groups. Tokens are divided into equal sets of m; a short last one overlaps the previous
 * one: the sums of shared tokens are computed and stored twice. */
INLINE void dot_groups(enum dtype type, const uint8_t *group, int groups, int n,
                       const struct act_block *panel, int nt, float *out, ptrdiff_t stride)
{
    const size_t bytes = dtype_row_bytes(type, n * NUM_BLOCK) * 16;
    const enum kind kind = kind_of(type);
    int sets = (nt + TOKENS_MOST - 1) / TOKENS_MOST, m = (nt + sets - 1) / sets;
    struct totals totals;
    struct piece w[GROUPS_MOST];
    struct run r[GROUPS_MOST * (KERNEL_TILE / TOKENS_MOST)];

    configure(kind, m);
    for (int s = 0; s < sets; s++)
        for (int g = 0; g < groups; g++)
            r[s * groups + g] = (struct run){&w[g],
                                             NULL,
                                             totals.now[g] + s * m,
                                             totals.first[g] + s * m,
                                             totals.third[g] + s * m,
                                             out + (s < sets - 1 ? s * m : nt - m) * stride +
                                                 16 * g};
    for (int q = 0; q < 4; q++) {
        int begin = (int)((int64_t)q * n / 4), end = (int)((int64_t)(q + 1) * n / 4);

        for (int b0 = begin; b0 < end; b0 += PIECE) {
            int blocks = end - b0 < PIECE ? end - b0 : PIECE;
            struct stage stage = {q, b0 == begin, b0 + blocks == end};

            for (int g = 0; g < groups; g++)
                read_piece(type, group + (size_t)g * bytes, b0, blocks, &w[g]);
            for (int s = 0; s < sets; s++)
                for (int g = 0; g < groups; g++)
                    r[s * groups + g].a = panel + (ptrdiff_t)b0 * nt +
                                          (s < sets - 1 ? s * m : nt - m);
            (kind == HALVES    ? runs_halves
             : kind == MINIMUM ? runs_minimum
                               : runs_plain)(r, sets * groups, stage, blocks, nt, m, stride);
        }
    }
    __asm__ volatile("tilerelease");
}

INLINE void dot_any(enum dtype type, const void *weights, int groups, int width, int cols,
                    const struct act_block *panel, int nt, float *out, ptrdiff_t out_stride)
{
    size_t bytes = dtype_row_bytes(type, cols) * 16;
    const uint8_t *at = weights;

    /* every quarter has a block; formats dominated by unpacking gain nothing here */
    if (nt < TOKENS_LEAST || width != 16 || cols < 4 * NUM_BLOCK || format_of[type].words) {
        kernels_avx512.dot[type](at, groups, width, cols, panel, nt, out, out_stride);
        return;
    }
    for (int count; groups > 0; groups -= count, at += (size_t)count * bytes, out += 16 * count) {
        count = groups < GROUPS_MOST ? groups : GROUPS_MOST;
        dot_groups(type, at, count, cols / NUM_BLOCK, panel, nt, out, out_stride);
    }
}

#define FORMAT(id, name, ...)                                                                      \
    void dot_##name##_amx(const void *weights, int groups, int width, int cols,                    \
                          const struct act_block *panel, int nt, float *out, ptrdiff_t out_stride) \
    {                                                                                              \
        dot_any(DTYPE_##id, weights, groups, width, cols, panel, nt, out, out_stride);             \
    }
#include "engine/file/formats.def"
#endif
