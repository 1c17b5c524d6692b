/* Every quantised format: packing and dot products. The scalar kernel against numbers read field by
 * field from the file's blocks (engine/file/blocks.c), the vector kernels against the scalar one,
 * as bits. */
#include "engine/device/cpu/kernels/formats.h"
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/layout/pack.h"
#include "engine/file/blocks.h"
#include "tests/support.h"
#include "tests/tiny_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 37 /* two groups of 16 and a ragged one */
#define COLS_MAX (256 * 9)
#define ROW_MAX (COLS_MAX / 16 * 17) /* bytes */

static const enum dtype types[] = {
#define FORMAT(id, ...) DTYPE_##id,
#include "engine/file/formats.def"
};
static unsigned seed = 99;

static unsigned below(unsigned n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

/* Random rows of a type; every bit pattern of codes and factors, ordinary halves for d and m, now
 * and then extreme ones. */
static void random_rows(enum dtype type, uint8_t *rows, int cols)
{
    const struct dtype_info *d = dtype_info(type);

    for (size_t n = (size_t)ROWS * (size_t)(cols / d->block), i = 0; i < n; i++, rows += d->bytes) {
        for (int k = 0; k < d->bytes; k++)
            rows[k] = (uint8_t)below(256);
        if (below(12) == 0)
            memset(rows, below(2) ? 0xff : 0x00, (size_t)d->bytes);
        tiny_put_scale(type, rows, ((float)below(2001) - 1000.0f) * (below(50) ? 1e-4f : 50.0f),
                       ((float)below(2001) - 1000.0f) * (below(50) ? 1e-4f : 50.0f));
    }
}

static void random_panel(const struct kernels *k, struct act_block *panel, int cols, int nt)
{
    float x[COLS_MAX];

    for (int t = 0; t < nt; t++) {
        for (int i = 0; i < cols; i++)
            x[i] = ((float)below(2001) - 1000.0f) * 1e-3f * (below(20) ? 1.0f : 10.0f) *
                   (i / 32 % 7 == 3 ? 0.0f : 1.0f);
        k->quantise(x, cols, panel + t, nt);
    }
}

/* Rule 2 straight from the fields of the file's blocks. */
static float plain_dot(enum dtype type, const uint8_t *rows, int cols, int row,
                       const struct act_block *panel, int nt, int t)
{
    const uint8_t *p = rows + (size_t)row * dtype_row_bytes(type, cols);
    int n = cols / 32;
    float q[4];

    for (int i = 0; i < 4; i++) {
        q[i] = 0.0f;
        for (int b = i * n / 4; b < (i + 1) * n / 4; b++) {
            const struct act_block *a = panel + b * nt + t;
            struct block_fields f;
            int s[2] = {0, 0}, least;

            blocks_fields(type, p, b, &f);
            for (int c = 0; c < 32; c++)
                s[c / 16] += f.value[c] * a->q[c];
            if (format_of[type].halves == 2) {
                q[i] = fmaf((float)s[0], f.d[0] * a->d, q[i]);
                q[i] = fmaf((float)s[1], f.d[1] * a->d, q[i]);
                continue;
            }
            q[i] = fmaf((float)(s[0] * f.factor[0] + s[1] * f.factor[1]), f.d[0] * a->d, q[i]);
            least = a->low * f.least[0] + (a->sum - a->low) * f.least[1];
            if (format_of[type].minimum)
                q[i] = fmaf((float)least, f.m * a->d, q[i]);
        }
    }
    return (q[0] + q[1]) + (q[2] + q[3]);
}

static void same(const char *set, enum dtype type, const float *got, const float *want, int n)
{
    if (memcmp(got, want, (size_t)n * sizeof *got) == 0)
        return; /* the checks below are slow by the million */
    for (int i = 0; i < n; i++)
        ck_assert_msg(num_bits(got[i]) == num_bits(want[i]) ||
                          (got[i] != got[i] && want[i] != want[i]),
                      "%s %s: %d: %a, not %a", set, dtype_info(type)->word, i, (double)got[i],
                      (double)want[i]);
}

START_TEST(dots)
{
    enum dtype type = types[_i];
    static uint8_t rows[ROWS * ROW_MAX], packed[48 * ROW_MAX + 1];
    static struct act_block panel[COLS_MAX / 32 * KERNEL_TILE];
    static float want[KERNEL_TILE * 20], got[KERNEL_TILE * 20];

    for (int round = 0; round < (format_of[type].words ? 20 : 60); round++) {
        int width = round & 1 ? 16 : 8, block = dtype_info(type)->block,
            nt = 1 + (int)below(round % 25 ? 24 : KERNEL_TILE), stride = width + (int)below(4);
        int cols = block * (1 + (int)below(block > 64 ? COLS_MAX / (unsigned)block : 30)),
            groups = pack_groups(ROWS, width);
        size_t group_bytes = dtype_row_bytes(type, cols) * (size_t)width;

        random_rows(type, rows, cols);
        ck_assert_uint_eq(pack_bytes(type, ROWS, cols, width), group_bytes * (size_t)groups);
        memset(packed, 0xaa, sizeof packed);
        pack_rows(packed, type, width, rows, type, ROWS, cols, 0, groups);
        ck_assert_int_eq(packed[group_bytes * (size_t)groups], 0xaa);
        random_panel(&kernels_scalar, panel, cols, nt);
        for (int g = 0; g < groups; g++) {
            memset(want, 0, sizeof want);
            kernels_scalar.dot[type](packed + (size_t)g * group_bytes, 1, width, cols, panel, nt,
                                     want, stride);
            for (int t = 0; t < nt; t++)
                for (int r = 0; r < width; r++) {
                    float plain = g * width + r < ROWS
                                      ? plain_dot(type, rows, cols, g * width + r, panel, nt, t)
                                      : 0.0f;

                    same("scalar", type, &want[t * stride + r], &plain, 1);
                }
            for (int i = 1; kernels_at(i); i++) {
                memset(got, 0, sizeof got);
                kernels_at(i)->dot[type](packed + (size_t)g * group_bytes, 1, width, cols, panel,
                                         nt, got, stride);
                same(kernels_at(i)->name, type, got, want, KERNEL_TILE * 20);
            }
        }
    }
}
END_TEST

/* The integer arithmetic of a dot product must agree with what the row means in F32. */
START_TEST(means_what_it_says)
{
    enum dtype type = types[_i];
    static uint8_t rows[ROWS * ROW_MAX], packed[48 * ROW_MAX + 1];
    static struct act_block panel[COLS_MAX / 32];
    float w[COLS_MAX], out[16];
    int cols = 1024;

    random_rows(type, rows, cols);
    pack_rows(packed, type, 16, rows, type, ROWS, cols, 0, 3);
    random_panel(&kernels_scalar, panel, cols, 1);
    kernels_active()->dot[type](packed, 1, 16, cols, panel, 1, out, 16);
    for (int r = 0; r < 16; r++) {
        double sum = 0.0, size = 0.0;

        row_to_f32(type, rows + (size_t)r * dtype_row_bytes(type, cols), cols, w);
        for (int c = 0; c < cols; c++) {
            double p = (double)w[c] * panel[c / 32].d * panel[c / 32].q[c % 32];

            sum += p;
            size += fabs(p);
        }
        ck_assert_msg(fabs(sum - (double)out[r]) <= 1e-5 * size + 1e-12, "%s row %d: %g, not %g",
                      dtype_info(type)->word, r, (double)out[r], sum);
    }
}
END_TEST

START_TEST(half_sums)
{
    struct act_block want[8] = {0}, got[8] = {0};
    float x[256];

    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 256; i++)
            x[i] = (float)below(1000) - 500.0f;
        kernels_scalar.quantise(x, 256, want, 1);
        for (int b = 0; b < 8; b++) {
            int low = 0;

            for (int i = 0; i < 16; i++)
                low += want[b].q[i];
            ck_assert_int_eq(want[b].low, low);
        }
        for (int i = 1; kernels_at(i); i++) {
            kernels_at(i)->quantise(x, 256, got, 1);
            ck_assert_mem_eq(got, want, sizeof want);
        }
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("formats");
    TCase *t = tcase_create("formats");

    tcase_add_loop_test(t, dots, 0, (int)(sizeof types / sizeof *types));
    tcase_add_loop_test(t, means_what_it_says, 0, (int)(sizeof types / sizeof *types));
    tcase_add_test(t, half_sums);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    support_kernel_sets();
    return support_run(suite());
}
