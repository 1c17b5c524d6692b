/* The kernels for one token (struct kernels.gemv, gemv_float): row groups by every read pattern,
 * wherever they lie, against the reference group by group, as bits. Where reading goes on is a
 * hint: any address must do. */
#include "engine/base/mem.h"
#include "engine/device/cpu/pieces.h"
#include "engine/device/cpu/kernels/formats.h"
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/device/cpu/tuning/microbench.h"
#include "engine/layout/pack.h"
#include "tests/support.h"
#include "tests/tiny_model.h"

#include <stdlib.h>
#include <string.h>

#define COLS_MAX 4096
#define GROUPS 6

static const enum dtype types[] = {
#define FORMAT(id, ...) DTYPE_##id,
#include "engine/file/formats.def"
};
static unsigned seed = 4711;

static int below(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (unsigned)n);
}

/* Every pattern of codes and factors; scales and minima are ordinary numbers. */
static void random_groups(enum dtype type, uint8_t *p, size_t bytes, int width)
{
    size_t unit = (size_t)(format_superblock(type) * width);

    for (size_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)below(256);
    for (uint8_t *at = p; at < p + bytes; at += unit) {
        if (format_of[type].scale == SCALE_E8M0)
            for (int i = 0; i < width; i++)
                at[i] = (uint8_t)(100 + below(50));
        else if (format_of[type].scale == SCALE_SPREAD)
            for (int i = 0; i < width; i++)
                at[4 * (format_of[type].words * width - width + i) + 3] &= 0x3f;
        else if (format_of[type].scale == SCALE_F32)
            for (int i = 0; i < width; i++) {
                uint32_t x = num_bits(tiny_random(&seed) * (below(50) ? 1e-2f : 50.0f));
                uint16_t half[2] = {(uint16_t)x, (uint16_t)(x >> 16)};

                memcpy(at + 2 * i, &half[0], 2);
                memcpy(at + 2 * (width + i), &half[1], 2);
            }
        else if (SCALE_IS_F16(format_of[type].scale))
            for (int i = 0; i < width * (format_of[type].minimum ? 2 : 1); i++) {
                uint16_t h = num_to_f16(tiny_random(&seed) * (below(50) ? 1e-2f : 50.0f));

                memcpy(at + 2 * i, &h, 2);
            }
    }
}

/* Another pattern, another way from group to group in every round, and hints of all kinds. */
static struct kernel_gemv any_streams(const uint8_t *memory, size_t group_bytes,
                                      float out[KERNEL_GEMV_GROUPS][NUM_LANES], int *group)
{
    struct kernel_gemv s = {.how = &pattern_of[below(READ_PATTERNS)],
                            .n = 1 + below(KERNEL_GEMV_GROUPS)};

    for (int i = 0; i < KERNEL_GEMV_GROUPS; i++) {
        group[i] = below(GROUPS);
        s.at[i] = memory + (size_t)group[i] * group_bytes;
        s.next[i] = below(3)   ? memory + (size_t)below(GROUPS) * group_bytes
                    : below(2) ? NULL
                               : (const uint8_t *)16;
        s.out[i] = out[i];
    }
    return s;
}

/* Those of this CPU; behind an AVX-512 one the same as processors without VBMI run it. */
static const struct kernels *set_at(int i)
{
#if defined(__x86_64__)
    if (!kernels_at(i) && kernels_at(i - 1) && kernels_at(i - 1)->width == kernels_avx512.width)
        return &kernels_avx512;
#endif
    return kernels_at(i);
}

START_TEST(quantised)
{
    enum dtype type = types[_i];
    int block = dtype_info(type)->block;
    uint8_t *memory = malloc(GROUPS * dtype_row_bytes(DTYPE_Q8_0, COLS_MAX) * NUM_LANES);
    static struct act_block act[COLS_MAX / NUM_BLOCK];
    static float x[COLS_MAX];
    int tried = 0;

    for (int set = 1; set_at(set); set++)
        for (int round = 0; round < 72 && set_at(set)->gemv[type]; round++) {
            const struct kernels *k = set_at(set);
            int cols = round % 4 ? block * (1 + below((round % 2 ? 1000 : COLS_MAX) / block))
                                 : COLS_MAX,
                group[KERNEL_GEMV_GROUPS];
            size_t bytes = dtype_row_bytes(type, cols) * (size_t)k->width;
            float want[NUM_LANES], got[KERNEL_GEMV_GROUPS][NUM_LANES];
            struct kernel_gemv s;

            random_groups(type, memory, GROUPS * bytes, k->width);
            for (int i = 0; i < cols; i++)
                x[i] = tiny_random(&seed) * (i / 32 % 7 == 3 ? 0.0f : i / 32 % 5 ? 1.0f : 100.0f);
            kernels_scalar.quantise(x, cols, act, 1);
            s = any_streams(memory, bytes, got, group);
            memset(got, 0xee, sizeof got);
            k->gemv[type](&s, cols, act);
            for (int i = 0; i < KERNEL_GEMV_GROUPS; i++) {
                memset(want, 0xee, sizeof want);
                if (i < s.n)
                    kernels_scalar.dot[type](s.at[i], 1, k->width, cols, act, 1, want, NUM_LANES);
                for (int r = 0; r < NUM_LANES; r++)
                    ck_assert_msg(num_bits(got[i][r]) == num_bits(want[r]),
                                  "%s %s, %s, %d columns: group %d of %d, row %d is %a, not %a",
                                  k->name, dtype_info(type)->word, s.how->word, cols, i, s.n, r,
                                  (double)got[i][r], (double)want[r]);
            }
            tried++;
        }
    if (!tried)
        support_skip("no set of this CPU has a product of %s with one token",
                     dtype_info(type)->word);
    free(memory);
}
END_TEST

/* large: its first factor is one that vector sets have to read in another way. */
static void f8_row(int cols, bool large, uint8_t *row)
{
    float factor;

    tiny_f8_row(&seed, cols, row);
    memcpy(&factor, row, sizeof factor);
    factor *= large ? 1e6f : 1.0f;
    memcpy(row, &factor, sizeof factor);
}

/* Rule 11: every set's two ways to multiply against the reference; which of them runs depends on
 * the number of rows. */
START_TEST(floats)
{
    static const enum dtype kinds[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8};
    static uint8_t memory[GROUPS * 2100 * 4];
    static float x[2100], w[2100], panel[2112], scalar[2112];

    for (int set = 0; kernels_at(set); set++)
        for (int round = 0; round < 120; round++) {
            const struct kernels *k = kernels_at(set);
            enum dtype type = kinds[round % 4];
            bool bf16 = type == DTYPE_BF16 && round / 4 % 2;
            int cols = 1 + below(round % 5 ? 140 : 2100), row[KERNEL_GEMV_GROUPS];
            size_t bytes = dtype_row_bytes(type, cols);
            float want, got[KERNEL_GEMV_GROUPS][NUM_LANES];
            struct kernel_gemv s;
            float *row_alone;

            for (int r = 0; r < GROUPS; r++) {
                for (int c = 0; c < cols; c++)
                    w[c] = tiny_random(&seed);
                if (type == DTYPE_F8)
                    f8_row(cols, round % 8 == 3, memory + (size_t)r * bytes);
                else
                    row_from_f32(type, w, cols, memory + (size_t)r * bytes);
            }
            for (int c = 0; c < cols; c++)
                x[c] = tiny_random(&seed);
            s = any_streams(memory, bytes, got, row);
            k->float_input(bf16, x, cols, cols, 1, panel);
            /* a sanitizer sees what is read beyond it */
            row_alone = memcpy(malloc((size_t)cols * 4), x, (size_t)cols * 4);
            k->gemv_float(type, bf16, &s, cols, bf16 ? panel : row_alone);
            free(row_alone);
            for (int i = 0; i < s.n; i++) {
                k->dot_float(type, bf16, s.at[i], bytes, 1, cols, panel, 1, &want, 1);
                ck_assert_msg(num_bits(got[i][0]) == num_bits(want),
                              "%s %s, %d columns: %a, not %a", k->name, dtype_info(type)->word,
                              cols, (double)got[i][0], (double)want);
                kernels_scalar.float_input(bf16, x, cols, cols, 1, scalar);
                kernels_scalar.dot_float(type, bf16, s.at[i], bytes, 1, cols, scalar, 1, &want, 1);
                ck_assert_msg(num_bits(got[i][0]) == num_bits(want),
                              "%s %s, %d columns: %a, not %a", k->name, dtype_info(type)->word,
                              cols, (double)got[i][0], (double)want);
            }
        }
}
END_TEST

/* Which pattern a processor gets where nothing was measured, and their names. */
START_TEST(patterns)
{
    ck_assert_int_eq(pattern_built_in("GenuineIntel", 6), READ_FOUR_TWICE);
    ck_assert_int_eq(pattern_built_in("AuthenticAMD", 25), READ_ONE_PLAIN);
    ck_assert_int_eq(pattern_built_in("AuthenticAMD", 23), READ_FOUR_TWICE);
    ck_assert_int_eq(pattern_built_in("AuthenticAMD", 26), READ_ONE_FIRST);
    ck_assert_int_eq(pattern_built_in("", 0), READ_FOUR_TWICE);
    ck_assert_int_lt(pattern_here(), READ_PATTERNS);
    ck_assert_int_eq(pattern_for(READ_ONE_PLAIN, DTYPE_IQ3_S), READ_FOUR_SECOND);
    ck_assert_int_eq(pattern_for(READ_ONE_PLAIN, DTYPE_F8), READ_FOUR_TWICE);
    ck_assert_int_eq(pattern_for(READ_ONE_PLAIN, DTYPE_Q2_K), READ_FOUR_TWICE);
    ck_assert_int_eq(pattern_for(READ_ONE_PLAIN, DTYPE_Q3_K), READ_ONE_PLAIN);
    for (int type = 0; type < DTYPE_COUNT; type++)
        ck_assert_int_eq(pattern_for(READ_FOUR_TWICE, (enum dtype)type), READ_FOUR_TWICE);
    for (int i = 0; i < READ_PATTERNS; i++) {
        const struct pattern *p = &pattern_of[i];

        ck_assert_int_eq(pattern_from_word(p->word), i);
        ck_assert(p->groups == 1 || p->groups == 2 || p->groups == KERNEL_GEMV_GROUPS);
        ck_assert((p->hint == PATTERN_PLAIN) == (p->far == 0));
        ck_assert((p->hint == PATTERN_TWICE) == (p->near > 0));
    }
    ck_assert_int_eq(pattern_from_word("four"), -1);
}
END_TEST

/* Groups go side by side as a pattern asks for, and each is told where reading goes on. */
START_TEST(steps)
{
    static const uint8_t memory[16];

    for (int n = 1; n <= KERNEL_GEMV_GROUPS; n++)
        for (int most = 1; most <= KERNEL_GEMV_GROUPS; most *= 2) {
            struct kernel_gemv s = {.n = n};
            int taken = 0;

            for (int i = 0; i < KERNEL_GEMV_GROUPS; i++) {
                s.at[i] = memory + i;
                s.next[i] = memory + n + i;
            }
            while (taken < n) {
                const uint8_t *next[KERNEL_GEMV_GROUPS];
                int step = kernel_gemv_step(&s, taken, most, next);

                ck_assert(step >= 1 && step <= most && taken + step <= n);
                for (int i = 0; i < step; i++)
                    ck_assert_ptr_eq(next[i], memory + taken + step + i);
                taken += step;
            }
        }
}
END_TEST

/* Pieces of one row's experts: large, several a thread, and no thread's share much longer than
 * another's. */
START_TEST(pieces)
{
    static const struct {
        int matrices, units, further, threads, want;
    } cases[] = {
        {8, 24, 0, 1, 24},  /* whole experts */
        {8, 24, 0, 2, 24},  /* four each */
        {8, 16, 16, 2, 10}, /* nine experts for two: less than a whole one */
        {2, 14, 0, 2, 4},   /* 448 rows */
        {4, 90, 0, 2, 32},  /* 2880 rows: at most 32 units */
        {1, 2, 0, 8, 1},    /* fewer units than threads */
        {0, 0, 44, 1, 32},  /* a dense layer */
    };

    static const int half[] = {1024, 512}, same[] = {1024, 1024};

    /* 192 units, 128 for the fast thread: pieces of 11, 11 and 2 give it 131 */
    ck_assert_int_eq(piece_units(8, 24, 0, half, 2), 11);
    ck_assert_int_eq(piece_units(8, 24, 0, same, 2), 24);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_int_eq(piece_units(cases[i].matrices, cases[i].units, cases[i].further, NULL,
                                     cases[i].threads),
                         cases[i].want);
}
END_TEST

/* --microbench measures every type that the set in use multiplies: one token as decoding does it,
 * cached and from memory, and more tokens. */
START_TEST(measured)
{
    struct microbench_result *m = mem_alloc(MICROBENCH_MOST, sizeof *m);
    const struct kernels *k;
    struct error e;
    int n;

    ck_assert_ptr_nonnull(m);
    k = kernels_active();
    n = cpu_microbench(m, 256, 256, &e);
    ck_assert_int_gt(n, 0);
    ck_assert_int_le(n, MICROBENCH_MOST);
    for (int type = 0; type < DTYPE_COUNT; type++) {
        int gemv = 0, dot = 0;
        char want[2][24];

        snprintf(want[0], sizeof want[0], "gemv %s", dtype_info((enum dtype)type)->word);
        snprintf(want[1], sizeof want[1], "dot %s", dtype_info((enum dtype)type)->word);
        for (int i = 0; i < n; i++) {
            gemv += strcmp(m[i].kernel, want[0]) == 0;
            dot += strcmp(m[i].kernel, want[1]) == 0;
            ck_assert_double_gt(m[i].seconds, 0);
            if (strcmp(m[i].kernel, want[0]) == 0)
                ck_assert_int_eq(m[i].tokens, 1);
        }
        if (k->dot[type]) {
            ck_assert_msg(gemv == (k->gemv[type] ? 2 : 0), "%s: %d", want[0], gemv);
            ck_assert_msg(dot >= 5, "%s: %d", want[1], dot);
        }
    }
    mem_free(m);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("gemv");
    TCase *t = tcase_create("gemv");

    tcase_set_timeout(t, 240);
    tcase_add_loop_test(t, quantised, 0, (int)(sizeof types / sizeof *types));
    tcase_add_test(t, floats);
    tcase_add_test(t, patterns);
    tcase_add_test(t, steps);
    tcase_add_test(t, pieces);
    tcase_add_test(t, measured);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    support_kernel_sets();
    return support_run(suite());
}
