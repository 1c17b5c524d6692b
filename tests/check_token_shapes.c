/* The table of measured work-groups (gpu/shapes/token_shapes.h): which candidate is chosen, and the
 * file that keeps it. */
#include "gpu/shapes/token_shapes.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY 0x123456789abcdef0u

static const char *path_of(const char *name)
{
    static char path[600];

    snprintf(path, sizeof path, "%s/%s", support_tmpdir(), name);
    return path;
}

static struct token_table *filled(void)
{
    struct token_table *t = calloc(1, sizeof *t);
    struct token_times *q4 = &t->of[DTYPE_Q4_0], *q6 = &t->of[DTYPE_Q6_K];

    ck_assert_ptr_nonnull(t);
    q4->measured[0] = q4->measured[3] = q6->measured[5] = true;
    memcpy(q4->ratio[0], (double[]){0.5, 1.0, 0, 2.25}, sizeof q4->ratio[0]);
    memcpy(q4->ratio[3], (double[]){0.75, 0.5, 0.9375, 0.25}, sizeof q4->ratio[3]);
    q4->verdict = TOKEN_RIGHT;
    snprintf(q4->tested, sizeof q4->tested, "8x32x2x4 32x4x4x4 32x16x2x4 32x16x2x4");
    q6->verdict = TOKEN_WRONG;
    snprintf(q6->tested, sizeof q6->tested, "16x32x1x16 32x8x1x4 16x32x1x4 16x32x1x4");
    return t;
}

START_TEST(kept_and_read_again)
{
    const char *path = path_of("kept");
    struct token_table *t = filled(), *got = calloc(1, sizeof *got);

    ck_assert(!token_table_read(path, KEY, got));
    token_table_write(path, KEY, t);
    ck_assert(token_table_read(path, KEY, got));
    ck_assert_mem_eq(got->of[DTYPE_Q4_0].measured, t->of[DTYPE_Q4_0].measured,
                     sizeof t->of[0].measured);
    for (int i = 0; i < TOKEN_CANDIDATES; i++)
        for (int k = 0; k < TOKEN_KERNELS; k++)
            ck_assert_double_eq(got->of[DTYPE_Q4_0].ratio[i][k], t->of[DTYPE_Q4_0].ratio[i][k]);
    ck_assert(got->of[DTYPE_Q4_0].verdict == TOKEN_RIGHT);
    ck_assert_str_eq(got->of[DTYPE_Q4_0].tested, t->of[DTYPE_Q4_0].tested);
    ck_assert(got->of[DTYPE_Q6_K].measured[5] && got->of[DTYPE_Q6_K].verdict == TOKEN_WRONG);
    ck_assert(!got->of[DTYPE_Q8_0].measured[0] && got->of[DTYPE_Q8_0].verdict == TOKEN_UNTESTED);
    free(t), free(got);
}
END_TEST

/* One byte changed anywhere, the end missing, bytes behind it, or another key: nothing is taken. */
START_TEST(damaged_files_are_ignored)
{
    static const struct token_table none;
    struct token_table *t = filled(), *got = calloc(1, sizeof *got);
    char text[4096], path[600];
    size_t n;
    FILE *f;

    snprintf(path, sizeof path, "%s", path_of("damaged"));
    token_table_write(path, KEY, t);
    ck_assert(!token_table_read(path, KEY + 1, got));
    ck_assert_mem_eq(got, &none, sizeof none);
    ck_assert((f = fopen(path, "r")) != NULL);
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    ck_assert_uint_gt(n, 100);
    for (size_t i = 0; i <= n + 1; i++) {
        char was = text[i < n ? i : 0];

        if (i < n)
            text[i] ^= 1;
        ck_assert((f = fopen(path, "w")) != NULL);
        fwrite(text, 1, i == n ? n - 1 : n, f); /* at n: cut; behind: too long */
        if (i > n)
            fputc('x', f);
        fclose(f);
        ck_assert_msg(!token_table_read(path, KEY, got), "byte %zu of %zu", i, n);
        ck_assert_mem_eq(got, &none, sizeof none);
        if (i < n)
            text[i] = was;
    }
    free(t), free(got);
}
END_TEST

START_TEST(clearly_faster_ones_are_chosen)
{
    struct token_table *t = filled();
    struct token_times *q = &t->of[DTYPE_Q4_0];

    ck_assert_int_eq(token_fastest(q, TOKEN_MATMUL), 0);
    ck_assert_int_eq(token_fastest(q, TOKEN_GATE_UP), 3);
    ck_assert_int_eq(token_fastest(q, TOKEN_DOWN), 3);
    ck_assert_int_eq(token_fastest(q, TOKEN_OUTPUT), 3);
    q->ratio[3][TOKEN_DOWN] = 0.97; /* of events, some percent are chance */
    ck_assert_int_eq(token_fastest(q, TOKEN_DOWN), -1);
    q->measured[3] = false;
    ck_assert_int_eq(token_fastest(q, TOKEN_GATE_UP), -1);
    ck_assert_int_eq(token_fastest(&t->of[DTYPE_Q8_0], TOKEN_MATMUL), -1);
    free(t);
}
END_TEST

/* What the kernels ask of every shape (gpu/kernels/blocks.cl), and no candidate twice. */
START_TEST(candidates_are_possible)
{
    for (int i = 0; i < TOKEN_CANDIDATES; i++)
        for (int k = 0; k < TOKEN_KERNELS; k++) {
            struct token_shape s = token_candidate(i, (enum token_kernel)k);

            ck_assert(s.rows >= 8 && s.rows <= 32 && (s.rows & (s.rows - 1)) == 0);
            ck_assert(s.slots >= 4 && s.slots % 4 == 0 && s.ahead >= 1 && s.ahead <= 4);
            ck_assert_int_ge(s.rows * s.slots, 128);
            ck_assert_int_le(s.rows * s.slots * (k == TOKEN_GATE_UP ? 2 : 1), 1024);
            ck_assert(k != TOKEN_GATE_UP || s.rows == 32);
            ck_assert(s.load == 4 || s.load == 16);
            for (int j = 0; j < i; j++) {
                struct token_shape o = token_candidate(j, (enum token_kernel)k);

                ck_assert(!token_shape_same(&s, &o));
            }
        }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("token_shapes");
    TCase *c = tcase_create("table");

    tcase_add_test(c, kept_and_read_again);
    tcase_add_test(c, damaged_files_are_ignored);
    tcase_add_test(c, clearly_faster_ones_are_chosen);
    tcase_add_test(c, candidates_are_possible);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
