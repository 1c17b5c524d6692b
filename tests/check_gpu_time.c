/* The time model of a GPU (gpu/predict/time_model.h) against kernels that were measured on the
 * card: it must say within 30 % what each took. Their work is counted from their sources as they
 * were then (git show 878d1c0:gpu/kernels/core.cl, quant.cl). */
#include "gpu/predict/time_model.h"
#include "tests/support.h"

#include <math.h>
#include <string.h>

#define TOLERANCE 0.30

/* One NVIDIA H200 (OpenCL 3.0 CUDA, driver 580.159), kernels of commit 878d1c0 by their events, one
 * layer of Phi-tiny (4096 columns, 16 heads of 128, 4 of keys, 16 experts of 448), Q4_0 where no
 * other word, about 33 tokens behind. */
static const struct measured {
    const char *what;
    double us;
    struct kernel_work work;
} kernels[] = {
    /* 64 chains of n / 4 loads and fma, four loads a wait; then one item chooses: per slot a search
     * and an exponential for each expert */
    {"route, 16 experts", 136, {.far = 1024 / 4, .near = 2 * 8, .steps = 2 * 16 * 6}},
    /* 2048 columns; eight groups of sixteen one after the other; then softmax and eight searches,
     * each of which looks through those taken before it */
    {"route, 128 experts",
     739,
     {.far = 8 * 512 / 4, .near = 128 / 4 + 2 * 128 + 8 * 128, .steps = 128 * 25}},
    /* an item walks the blocks of its quarter; in each, one after the other: scale, codes,
     * activations, their scale */
    {"gate_up, two experts", 132, {.far = 2 * 32 * 4, .bytes = 2 * 2 * 448 * 4096 * 0.5625}},
    {"matmul, q k v", 84, {.far = 32 * 4, .bytes = 3072 * 4096 * 0.5625}},
    {"matmul, output", 44, {.far = 16 * 4, .bytes = 4096 * 2048 * 0.5625}},
    {"down", 14, {.far = 4 * 4, .bytes = 2 * 448 * 4096 * 0.5625}},
    /* sixteen lanes add 256 numbers twice, four loads a wait; then two blocks an item */
    {"norm", 26, {.near = 2 * 256 / 4 + 2, .far = 2}},
    /* a key's 128 dimensions, four of them a line; 33 values, four a wait, twice: the second time
     * from the cache; barriers of the maximum */
    {"attend", 23, {.far = 32 + 33 / 4, .near = 33 / 4, .steps = 60}},
    /* an item 32 columns, each a load and an exponential */
    {"merge", 17, {.near = 32 + 3, .steps = 32 * 6}},
    {"combine", 5, {.near = 1}},
    {"rope", 5, {.far = 1, .near = 1}},
    /* Prompt of 512 tokens. An item a row and eight tokens: for 32 codes 256 products in F32, each
     * with a load (four slots) and its address (two); 112 for codes and factors. */
    {"matmul of 512, q k v", 1804, {.slots = 512.0 / 8 * 3072 * 128 * (256 * 7 + 112)}},
    {"gate_up of 512", 1251, {.slots = 1024.0 / 8 * 896 * 128 * (256 * 7 + 112)}},
    {"route of 512", 128, {.far = 1024 / 4, .near = 2 * 8, .steps = 2 * 16 * 6}},
};

/* Prototypes on the same card, times of a launch among many: Q4_0 rows x cols. */
#define CHAINED(rows, cols)                                              \
    {                                                                    \
        .far = 2 * (cols) / 128, .bytes = (rows) * (double)(cols)*0.5625 \
    }
#define PHASED(rows, cols)                                                       \
    {                                                                            \
        .far = 2, .steps = (cols) / 128, .bytes = (rows) * (double)(cols)*0.5625 \
    }
static const struct measured prototypes[] = {
    {"empty", 4.9, {.far = 0}},
    {"empty, at most", 5.9, {.far = 0}},
    /* a quarter an item, as above, with half as many loads in a row */
    {"v0 2048 x 4096", 48.5, CHAINED(2048, 4096)},
    {"v0 448 x 4096", 47.2, CHAINED(448, 4096)},
    {"v0 4096 x 4096", 47.7, CHAINED(4096, 4096)},
    {"v0 4096 x 2048", 25.8, CHAINED(4096, 2048)},
    {"v0 32064 x 4096", 51.3, CHAINED(32064, 4096)},
    /* 32 items a row fill local memory, four add up */
    {"v1 2048 x 4096", 7.8, PHASED(2048, 4096)},
    {"v1 448 x 4096", 7.1, PHASED(448, 4096)},
    {"v1 4096 x 4096", 8.5, PHASED(4096, 4096)},
    {"v1 4096 x 2048", 6.0, PHASED(4096, 2048)},
    {"v1 32064 x 4096", 30.5, PHASED(32064, 4096)},
    {"v2 2048 x 4096", 6.2, PHASED(2048, 4096)},
    {"v2 448 x 4096", 5.7, PHASED(448, 4096)},
    {"v2 4096 x 4096", 7.1, PHASED(4096, 4096)},
    {"v2 4096 x 2048", 6.8, PHASED(4096, 2048)},
    {"v2 32064 x 4096", 28.3, PHASED(32064, 4096)},
    /* 4096 columns, the router in the cache: chains of four loads a wait, then of 32 in the source,
     * of which ptxas has seven on their way: it gives the kernel 32 registers; its additions are
     * from these */
    {"router 0 of 16", 47, {.near = 1024 / 4}},
    {"router 0 of 128", 364, {.near = 8 * 1024 / 4}},
    {"router 1 of 16", 27, {.near = 1024 / 7, .ahead = 1024}},
    {"router 1 of 128", 27, {.near = 1024 / 7, .ahead = 1024}},
    /* 512 tokens x 3072 x 4096: an item an output, 15 loads, eight products of four bytes (two
     * slots) and 16 more for 64 operations; 64 x 64 in local memory, 4 x 4 an item */
    {"product, plain", 564, {.slots = 512.0 * 3072 * 128 * (15 * 4 + 8 * 2 + 16)}},
    {"product, tiled",
     368,
     {.slots = 512.0 / 4 * 3072 / 4 * 128 * (128 * 2 + 16 * 16 + 3 * 16 + 16 * 5 + 51)}},
};

/* The same on 28 November 2026, of commit 2def8a87 (git show 2def8a87:gpu/kernels/core.cl,
 * routing.cl, quant.cl): rows of 16 or 32 and all slots a work-group, norm and router from local
 * memory. A block of a row of Q4_0 takes 140 instructions: fifteen loads of four each, eight
 * products of two, 64 others. */
#define BLOCK_SLOTS 140.0
static const struct measured second[] = {
    {"norm", 12.6, {.far = 1, .near = 2, .steps = 2 * 256 + 50}},
    {"router, 16 experts", 19, {.far = 2, .near = 3, .steps = 1024 + 136}},
    /* 192 groups of 16 rows, two on most of 132 multiprocessors */
    {"q k v", 11, {.far = 2, .near = 1, .steps = 32, .own = 2 * 16 * 128 * BLOCK_SLOTS}},
    /* 28 groups of 64 rows */
    {"gate_up, two experts",
     19,
     {.far = 4, .near = 4, .steps = 32 + 100, .own = 64 * 128 * BLOCK_SLOTS}},
    {"down, two experts", 7, {.far = 1, .near = 3, .steps = 4, .own = 4 * 16 * 14 * BLOCK_SLOTS}},
    {"head", 36, {.far = 2, .near = 1, .steps = 32, .own = 16 * 16 * 128 * BLOCK_SLOTS}},
    /* prompts of 512: 4 rows by 4 tokens a work-item */
    {"q k v of 512", 300, {.slots = 768.0 * 128 * 128 * 738}},
};

static void check(const struct time_model *m, const struct measured *k)
{
    double us = time_model_seconds(m, &k->work) * 1e6;

    ck_assert_msg(fabs(us / k->us - 1) <= TOLERANCE, "%s: %.1f us predicted, %.1f measured",
                  k->what, us, k->us);
}

START_TEST(kernels_reproduced)
{
    const struct time_model *m = time_model_find("h200");

    ck_assert_ptr_nonnull(m);
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        check(m, &kernels[i]);
}
END_TEST

START_TEST(second_reproduced)
{
    const struct time_model *m = time_model_find("h200");

    for (size_t i = 0; i < sizeof second / sizeof *second; i++)
        check(m, &second[i]);
}
END_TEST

START_TEST(prototypes_reproduced)
{
    const struct time_model *m = time_model_find("h200-ahead");

    for (size_t i = 0; i < sizeof prototypes / sizeof *prototypes; i++)
        check(m, &prototypes[i]);
}
END_TEST

/* More of anything never takes less, and a launch is never free. */
START_TEST(more_takes_longer)
{
    const struct time_model *m = time_model_find("h200");
    const struct kernel_work all[] = {{.far = 100},   {.near = 1000}, {.steps = 1e5},
                                      {.ahead = 1e5}, {.bytes = 1e9}, {.slots = 1e10},
                                      {.own = 1e7}};
    double empty = time_model_seconds(m, &(struct kernel_work){0});

    ck_assert_double_gt(empty, 1e-6);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ck_assert_double_gt(time_model_seconds(m, &all[i]), 2 * empty);
    ck_assert_double_gt(time_model_seconds(m, &all[3]),
                        2 * time_model_seconds(time_model_find("h200-ahead"), &all[3]));
    ck_assert_ptr_null(time_model_find("h2000"));
    ck_assert_ptr_null(time_model_find(""));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("gpu_time");
    TCase *c = tcase_create("model");

    tcase_add_test(c, kernels_reproduced);
    tcase_add_test(c, second_reproduced);
    tcase_add_test(c, prototypes_reproduced);
    tcase_add_test(c, more_takes_longer);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
