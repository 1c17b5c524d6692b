/* Element types: the table, and dequantisation of golden blocks (made with the gguf Python package
 * from random bytes) bit by bit: the sums of their values (tests/tools/golden_sums.py). */
#include "engine/base/hash.h"
#include "engine/file/blocks.h"
#include "engine/file/dtype.h"
#include "engine/file/f8.h"
#include "engine/file/format_traits.h"
#include "engine/layout/pack.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(table)
{
    ck_assert_int_eq(dtype_from_word("Q8_0"), DTYPE_Q8_0);
    ck_assert_int_eq(dtype_from_word("bf16"), DTYPE_BF16);
    ck_assert_int_eq(dtype_from_word("q9"), -1);
    ck_assert_int_eq(dtype_from_gguf(14), DTYPE_Q6_K);
    ck_assert_int_eq(dtype_from_gguf(4), -1);
    ck_assert_int_eq(dtype_from_safetensors("BF16"), DTYPE_BF16);
    ck_assert_int_eq(dtype_from_safetensors("Q8_0"), -1);
    ck_assert_uint_eq(dtype_row_bytes(DTYPE_Q4_K, 512), 288);
    ck_assert_uint_eq(dtype_row_bytes(DTYPE_Q4_K, 448), 0);
    ck_assert_uint_eq(dtype_row_bytes(DTYPE_F32, INT64_MAX), 0);
    for (int i = 0; i < DTYPE_COUNT; i++) {
        ck_assert_int_eq(dtype_from_word(dtype_info((enum dtype)i)->word), i);
        ck_assert_int_eq(dtype_from_gguf((uint32_t)dtype_info((enum dtype)i)->gguf),
                         dtype_info((enum dtype)i)->gguf < 0 ? -1 : i);
    }
}
END_TEST

START_TEST(golden_blocks)
{
    static const enum dtype types[] = {
#define FORMAT(id, ...) DTYPE_##id,
#include "engine/file/formats.def"
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const struct dtype_info *d = dtype_info(types[i]);
        char at[64];
        FILE *f;
        uint32_t head[2];
        uint8_t *blocks;
        uint64_t *want;
        float *got;
        size_t n;

        snprintf(at, sizeof at, "golden/dequant/%s.bin", d->word);
        f = fopen(support_path(at), "rb");
        ck_assert_msg(f != NULL, "%s is missing", at);
        ck_assert_uint_eq(fread(head, 4, 2, f), 2);
        ck_assert_uint_eq(head[1], (unsigned)d->bytes);
        n = (size_t)head[0] * (size_t)d->block;
        blocks = malloc((size_t)head[0] * head[1] + 1);
        want = malloc(head[0] * sizeof *want);
        got = malloc(n * sizeof *got);
        ck_assert_uint_eq(fread(blocks + 1, head[1], head[0], f), head[0]);
        ck_assert_uint_eq(fread(want, sizeof *want, head[0], f), head[0]);
        ck_assert_msg(fgetc(f) == EOF, "%s has values: golden_sums.py", at);
        fclose(f);
        ck_assert(row_readable(types[i]));
        /* odd address: any alignment is allowed */
        row_to_f32(types[i], blocks + 1, (int64_t)n, got);
        for (size_t k = 0, of = (size_t)d->block; k < head[0]; k++)
            ck_assert_msg(hash_bytes(HASH_START, got + k * of, of * 4) == want[k],
                          "%s: block %zu: %a, %a ..", d->word, k, (double)got[k * of],
                          (double)got[k * of + 1]);
        free(blocks);
        free(want);
        free(got);
    }
}
END_TEST

/* Scales decide: the same verdict as that of the values, for random blocks and for those with one
 * odd scale. */
START_TEST(finite_blocks)
{
    static const uint16_t odd[] = {0x7c00, 0xfc00, 0x7e00, 0x7f80, 0xff80, 0x7bff, 0x7f7f, 0};
    unsigned seed = 7;

    for (int type = 0; type < DTYPE_COUNT; type++) {
        const struct dtype_info *d = dtype_info((enum dtype)type);
        int verdicts[2] = {0}, rounds;

        if (!row_readable((enum dtype)type) || type == DTYPE_F8)
            continue;
        rounds = format_of[type].words ? 6000 : 40000; /* slow to read */
        for (int i = 0; i < rounds; i++) {
            int count = 1 + i % 19, at;
            uint8_t blocks[19 * 212];
            float x[19 * 256];
            bool finite = true, said;

            for (int k = 0; k < count * d->bytes; k++)
                /* F16, BF16 and F32 of such bytes are finite */
                blocks[k] = (uint8_t)(rand_r(&seed) & 0x3f);
            at = rand_r(&seed) % count * d->bytes + (i % 3 == 0   ? d->bytes - 2
                                                     : i % 3 == 1 ? 0
                                                                  : 2);
            if (at + 2 <= count * d->bytes)
                memcpy(blocks + at, &odd[rand_r(&seed) % 8], 2);
            if (type == DTYPE_IQ1_M && i % 3 == 0) /* another digit of the scale */
                blocks[at - 1] = 0xff;
            row_to_f32((enum dtype)type, blocks, (int64_t)count * d->block, x);
            for (int k = 0; k < count * d->block; k++)
                finite = finite && isfinite(x[k]);
            said = blocks_finite((enum dtype)type, blocks, (size_t)(count * d->bytes));
            /* a scale too large for some factors is refused with smaller ones too */
            ck_assert_msg(said == finite || (format_of[type].scale == SCALE_F32 && !said),
                          "%s: %d blocks, %04x at %d", d->word, count,
                          (unsigned)(blocks[at] | blocks[at + 1] << 8), at);
            verdicts[said]++;
        }
        /* bytes of NVFP4 have no pattern that is not a number */
        ck_assert_msg((verdicts[0] > rounds / 40) == (type != DTYPE_NVFP4) &&
                          verdicts[1] > rounds / 40,
                      "%s: %d and %d", d->word, verdicts[0], verdicts[1]);
    }
}
END_TEST

/* Every code of F8 against what OCP's OFP8 says it is, and what is no number. */
START_TEST(codes_of_f8)
{
    static const int tail = 40;
    uint8_t row[2 * F8_BLOCK_BYTES] = {0};
    float scale = 256.0f * 0.75f, x[256], bad = INFINITY;

    memcpy(row, &scale, 4);
    memcpy(row + F8_BLOCK_BYTES, &scale, 4);
    ck_assert_uint_eq(dtype_row_bytes(DTYPE_F8, F8_BLOCK), F8_BLOCK_BYTES);
    ck_assert_uint_eq(dtype_row_bytes(DTYPE_F8, F8_BLOCK + tail), F8_BLOCK_BYTES + 4 + tail);
    for (int i = 0; i < 256; i++)
        row[f8_place(i, 256)] = (uint8_t)i;
    row_to_f32(DTYPE_F8, row, 256, x);
    for (int i = 0; i < 256; i++) {
        int e = i >> 3 & 15, m = i & 7;
        double want = (i & 128 ? -0.75 : 0.75) * ldexp(e ? 8 + m : m, (e ? e : 1) - 10);

        if ((i & 127) == 127)
            continue;
        ck_assert_msg((double)x[i] == want, "code %d is %a, not %a", i, (double)x[i], want);
    }
    ck_assert(!f8_finite(row, F8_BLOCK));
    row[f8_place(127, 256)] = 0x7e;
    ck_assert(f8_finite(row, F8_BLOCK));
    ck_assert(f8_finite(row, F8_BLOCK + tail));
    ck_assert(!f8_finite(row, 256));
    memcpy(row + F8_BLOCK_BYTES, &bad, 4);
    ck_assert(!f8_finite(row, F8_BLOCK + tail));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("dtype");
    TCase *t = tcase_create("dtype");

    tcase_add_test(t, table);
    tcase_add_test(t, golden_blocks);
    tcase_add_test(t, finite_blocks);
    tcase_add_test(t, codes_of_f8);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
