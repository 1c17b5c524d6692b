/* Plans: allocation, copies, comparison; sizes as people write them. */
#include "engine/base/mem.h"
#include "engine/base/size.h"
#include "engine/placement/plan.h"
#include "tests/support.h"

#include <string.h>

START_TEST(new_plan_is_all_cpu)
{
    struct plan *p = plan_new("cpu", 3, 5);

    ck_assert_ptr_nonnull(p);
    ck_assert_str_eq(p->name, "cpu");
    for (int l = 0; l < 3; l++) {
        ck_assert_int_eq(p->attention[l], 0);
        for (int x = 0; x < 5; x++)
            ck_assert_int_eq(plan_expert(p, l, x), 0);
    }
    ck_assert_int_eq(p->head, 0);
    plan_free(p);
    plan_free(NULL);
    ck_assert_ptr_null(plan_new("x", -1, 2));
}
END_TEST

START_TEST(long_name_is_cut)
{
    char name[2 * PLAN_NAME];
    struct plan *p;

    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    p = plan_new(name, 1, 1);
    ck_assert_uint_eq(strlen(p->name), PLAN_NAME - 1);
    plan_free(p);
}
END_TEST

START_TEST(copies_are_equal_and_apart)
{
    struct plan *a = plan_new("a", 2, 4), *b;
    struct plan_difference d;

    a->attention[1] = 1;
    a->experts[7] = 2;
    a->head = 1;
    b = plan_copy(a);
    ck_assert(plan_equal(a, b));
    strcpy(b->name, "other");
    ck_assert(plan_equal(a, b));
    b->experts[0] = 1;
    b->experts[1] = 1;
    b->attention[0] = 1;
    b->head = 0;
    ck_assert_int_eq(plan_diff(a, b, &d), 4);
    ck_assert_int_eq(d.experts, 2);
    ck_assert_int_eq(d.attention, 1);
    ck_assert_int_eq(d.head, 1);
    ck_assert(!plan_equal(a, b));
    plan_free(a);
    ck_assert_int_eq(plan_expert(b, 1, 3), 2);
    plan_free(b);
}
END_TEST

START_TEST(other_shapes_are_never_equal)
{
    struct plan *a = plan_new("a", 2, 4), *b = plan_new("a", 4, 2);

    ck_assert(!plan_equal(a, b));
    ck_assert_int_eq(plan_diff(a, b, NULL), -1);
    ck_assert_int_eq(plan_diff(a, NULL, NULL), -1);
    plan_free(a);
    plan_free(b);
}
END_TEST

START_TEST(no_memory_is_null)
{
    struct plan *p = plan_new("a", 2, 2);

    mem_fail_after(0);
    ck_assert_ptr_null(plan_copy(p));
    mem_fail_after(0);
    ck_assert_ptr_null(plan_new("b", 2, 2));
    mem_fail_after(-1);
    plan_free(p);
}
END_TEST

static const struct {
    const char *text;
    uint64_t bytes;
} good[] = {
    {"0", 0},           {"4096", 4096},       {"4M", 4194304},       {"4m", 4194304},
    {"2G", 2147483648}, {"1.5G", 1610612736}, {"512KiB", 524288},    {"600MB", 629145600},
    {"10B", 10},        {".5K", 512},         {"1T", 1099511627776},
};
static const char *const bad[] = {"",    "M",   "4X",    "4MM", "-4M", "+4M",   "4 M", "0x10",
                                  "inf", "nan", "1e30T", "4iB", "M4",  "1.2.3", "4Mx"};

START_TEST(sizes_read)
{
    uint64_t v;

    ck_assert_int_eq(size_parse(good[_i].text, &v), 0);
    ck_assert_uint_eq(v, good[_i].bytes);
}
END_TEST

START_TEST(sizes_refused)
{
    uint64_t v;

    ck_assert_msg(size_parse(bad[_i], &v) < 0, "'%s' was read", bad[_i]);
}
END_TEST

START_TEST(sizes_written)
{
    char s[16];

    ck_assert_str_eq(size_format(0, s, sizeof s), "0 B");
    ck_assert_str_eq(size_format(1000, s, sizeof s), "1000 B");
    ck_assert_str_eq(size_format(1024, s, sizeof s), "1.0 KiB");
    ck_assert_str_eq(size_format(1048575, s, sizeof s), "1.0 MiB");
    ck_assert_str_eq(size_format(629145600, s, sizeof s), "600 MiB");
    ck_assert_str_eq(size_format(1610612736, s, sizeof s), "1.5 GiB");
    ck_assert_uint_lt(strlen(size_format(UINT64_MAX, s, sizeof s)), 16);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("plan");
    TCase *t = tcase_create("plan");

    tcase_add_test(t, new_plan_is_all_cpu);
    tcase_add_test(t, long_name_is_cut);
    tcase_add_test(t, copies_are_equal_and_apart);
    tcase_add_test(t, other_shapes_are_never_equal);
    tcase_add_test(t, no_memory_is_null);
    tcase_add_loop_test(t, sizes_read, 0, (int)(sizeof good / sizeof *good));
    tcase_add_loop_test(t, sizes_refused, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(t, sizes_written);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
