/* Element types: the table, and dequantisation of golden blocks (made with the gguf Python package from random bytes) bit by bit. */
#include "engine/layout/pack.h"
#include "engine/file/dtype.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(table)
{
    ck_assert_int_eq(dtype_from_word("Q8_0"), DTYPE_Q8_0);
    ck_assert_int_eq(dtype_from_word("bf16"), DTYPE_BF16);
    ck_assert_int_eq(dtype_from_word("q9"), -1);
    ck_assert_int_eq(dtype_from_gguf(14), DTYPE_Q6_K);
    ck_assert_int_eq(dtype_from_gguf(16), -1);
    ck_assert_int_eq(dtype_from_safetensors("BF16"), DTYPE_BF16);
    ck_assert_int_eq(dtype_from_safetensors("Q8_0"), -1);
    ck_assert_uint_eq(dtype_row_bytes(DTYPE_Q4_K, 512), 288);
    ck_assert_uint_eq(dtype_row_bytes(DTYPE_Q4_K, 448), 0);
    ck_assert_uint_eq(dtype_row_bytes(DTYPE_F32, INT64_MAX), 0);
    for (int i = 0; i < DTYPE_COUNT; i++) {
        ck_assert_int_eq(dtype_from_word(dtype_info((enum dtype)i)->word), i);
        ck_assert_int_eq(dtype_from_gguf((uint32_t)dtype_info((enum dtype)i)->gguf), i);
    }
}
END_TEST

START_TEST(golden_blocks)
{
    static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_IQ4_NL};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const struct dtype_info *d = dtype_info(types[i]);
        char at[64];
        FILE *f;
        uint32_t head[2];
        uint8_t *blocks;
        float *want, *got;
        size_t n;

        snprintf(at, sizeof at, "golden/dequant/%s.bin", d->word);
        f = fopen(support_path(at), "rb");
        ck_assert_msg(f != NULL, "%s is missing", at);
        ck_assert_uint_eq(fread(head, 4, 2, f), 2);
        ck_assert_uint_eq(head[1], (unsigned)d->bytes);
        n = (size_t)head[0] * (size_t)d->block;
        blocks = malloc((size_t)head[0] * head[1] + 1);
        want = malloc(n * sizeof *want);
        got = malloc(n * sizeof *got);
        ck_assert_uint_eq(fread(blocks + 1, head[1], head[0], f), head[0]);
        ck_assert_uint_eq(fread(want, sizeof *want, n, f), n);
        fclose(f);
        ck_assert(row_readable(types[i]));
        row_to_f32(types[i], blocks + 1, (int64_t)n, got);      /* odd address: any alignment is allowed */
        for (size_t k = 0; k < n; k++)
            ck_assert_msg(memcmp(&got[k], &want[k], 4) == 0, "%s: element %zu is %a, not %a", d->word, k, (double)got[k], (double)want[k]);
        free(blocks);
        free(want);
        free(got);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("dtype");
    TCase *t = tcase_create("dtype");

    tcase_add_test(t, table);
    tcase_add_test(t, golden_blocks);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
