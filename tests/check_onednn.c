/* Float products through oneDNN against the scalar reference: F32 to rounding, BF16 exactly what
 * BF16 inputs allow, many shapes, several threads at once; and a whole BF16 model on the device
 * against the same model in double. */
#include "engine/base/pool.h"
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/device/device.h"
#include "engine/device/onednn/onednn.h"
#include "tests/support.h"
#include "tests/tiny_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COLS 320
#define ROWS 64
#define TOKENS 50

static struct onednn *library;
static float w[ROWS * COLS], x[TOKENS * (COLS + 8)];
static uint16_t wb[ROWS * COLS], xb[TOKENS * COLS];
static int bad[4];

static void setup(void)
{
    unsigned seed = 3;
    struct error e;

    ck_assert_msg(onednn_new(&library, 4, &e) == 0, "%s", e.text);
    for (int i = 0; i < ROWS * COLS; i++) {
        wb[i] = num_to_bf16(tiny_random(&seed));
        w[i] = num_from_bf16(wb[i]);
    }
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < COLS + 8; c++) {
            x[t * (COLS + 8) + c] = num_from_bf16(num_to_bf16(tiny_random(&seed)));
            if (c < COLS)
                xb[t * COLS + c] = num_to_bf16(x[t * (COLS + 8) + c]);
        }
}

static void teardown(void)
{
    onednn_free(library);
    library = NULL;
}

/* Both inputs are BF16 numbers, so F32 and BF16 products differ from the exact one by the rounding
 * of sums only. */
static int check(int tid, bool bf16, int rows, int cols, int tokens)
{
    static const ptrdiff_t stride = ROWS + 3;
    float *got = calloc((size_t)(tokens * stride), 4);
    int wrong = 0;

    if (bf16) {
        uint16_t *packed = calloc((size_t)(rows * cols), 2),
                 *px = calloc((size_t)(tokens * cols), 2);

        for (int r = 0; r < rows; r++)
            memcpy(packed + r * cols, wb + r * COLS, (size_t)cols * 2);
        for (int t = 0; t < tokens; t++)
            memcpy(px + t * cols, xb + t * COLS, (size_t)cols * 2);
        wrong |= onednn_multiply(library, tid, true, packed, rows, cols, px, cols, tokens, got,
                                 stride) != 0;
        free(packed), free(px);
    } else {
        float *packed = calloc((size_t)(rows * cols), 4);

        for (int r = 0; r < rows; r++)
            memcpy(packed + r * cols, w + r * COLS, (size_t)cols * 4);
        wrong |= onednn_multiply(library, tid, false, packed, rows, cols, x, COLS + 8, tokens, got,
                                 stride) != 0;
        free(packed);
    }
    for (int t = 0; t < tokens && !wrong; t++)
        for (int r = 0; r < stride; r++) {
            double want = 0;

            for (int c = 0; c < cols && r < rows; c++)
                want += (double)w[r * COLS + c] * (double)x[t * (COLS + 8) + c];
            /* lanes beyond the rows stay untouched: 0 */
            wrong |= !(fabs((double)got[t * stride + r] - want) <= 1e-4);
        }
    free(got);
    return wrong;
}

START_TEST(test_shapes)
{
    static const int rows[] = {1, 7, 16, 32, 64}, cols[] = {32, 96, 320}, tokens[] = {1, 6, 17, 50};

    for (int b = 0; b < (onednn_has_bf16() ? 2 : 1); b++)
        for (int i = 0; i < 5; i++)
            for (int k = 0; k < 3; k++)
                for (int t = 0; t < 4; t++)
                    for (int again = 0; again < 2; again++)
                        ck_assert_msg(!check(0, b, rows[i], cols[k], tokens[t]),
                                      "%s, %d rows, %d columns, %d tokens", b ? "bf16" : "f32",
                                      rows[i], cols[k], tokens[t]);
}
END_TEST

static void many(void *ctx, int tid, int n)
{
    for (int i = 0; i < 40; i++)
        bad[tid] |= check(tid, onednn_has_bf16() && i & 1, 16 + i % 3 * 16, 96,
                          1 + (i * 7 + tid) % 50);
}

START_TEST(test_threads)
{
    struct pool *pool;
    struct error e;

    ck_assert_int_eq(pool_new(&pool, 3, false, &e), 0);
    pool_run(pool, many, NULL);
    pool_free(pool);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(bad[i], 0);
}
END_TEST

/* More shapes than the table holds: the oldest go, results stay right. */
START_TEST(test_many_shapes)
{
    for (int i = 0; i < 400; i++)
        ck_assert_int_eq(check(1, false, 1 + i % 64, 32, 1 + i % 50), 0);
}
END_TEST

/* One chunk of a float model, through the library that the user chose, against token by token,
 * which uses our own kernels: they add in another order. Near a tie of rounding, BF16 activations
 * then differ by a step. */
static const struct {
    enum dtype type;
    bool exact;
    double tolerance;
} models[] = {
    {DTYPE_BF16, false, 2e-2},
    {DTYPE_BF16, true, 1e-5},
    {DTYPE_F16, false, 1e-5},
    {DTYPE_F32, false, 1e-5},
};

START_TEST(test_model)
{
    struct tiny_shape shape = {.layers = 2,
                               .hidden = 64,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 32,
                               .ffn = 96,
                               .experts = 4,
                               .vocab = 50,
                               .context = 64,
                               .type = models[_i].type,
                               .bias = 1,
                               .seed = 11};
    struct tiny_model *t = tiny_model_new(&shape);
    float a[40 * 64], b[40 * 64];
    int experts[2 * 40 * 2];
    float weights[2 * 40 * 2];
    double diff = 0, size = 0;
    unsigned seed = 17;

    for (int i = 0; i < 40 * 64; i++)
        a[i] = b[i] = tiny_random(&seed);
    for (int pass = 0; pass < 2; pass++) {
        struct device_config c = {.model = &t->model,
                                  .n_threads = 2,
                                  .max_rows = 40,
                                  .context = 64,
                                  .kv_k = KV_F32,
                                  .kv_v = KV_F32,
                                  .exact = models[_i].exact,
                                  .float_library = true,
                                  .rope_cos = {t->rope_cos},
                                  .rope_sin = {t->rope_sin}};
        struct device *d;
        struct error e;

        ck_assert_int_eq(cpu_device_ops.open(&d, &c, &e), 0);
        for (int pos = 0; pos < 40; pos += pass ? 1 : 40) {
            struct layers_job j = {.first = 0,
                                   .last = 2,
                                   .rows = pass ? 1 : 40,
                                   .pos = pos,
                                   .x = (pass ? b : a) + pos * 64,
                                   .experts = experts,
                                   .weights = weights};

            ck_assert_int_eq(cpu_device_ops.layers(d, &j, &e), 0);
        }
        cpu_device_ops.close(d);
    }
    for (int i = 0; i < 40 * 64; i++) {
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    ck_assert_msg(sqrt(diff / size) < models[_i].tolerance, "off by %g of the size",
                  sqrt(diff / size));
    if (models[_i].type != DTYPE_BF16 || models[_i].exact || onednn_has_bf16())
        ck_assert_msg(diff > 0, "the library was never used");
    tiny_model_free(t);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("onednn");
    TCase *t = tcase_create("onednn");

    tcase_set_timeout(t, 240);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_shapes);
    tcase_add_test(t, test_threads);
    tcase_add_test(t, test_many_shapes);
    tcase_add_loop_test(t, test_model, 0, (int)(sizeof models / sizeof *models));
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
