/* The bandwidth semaphore on a clock of the test's own. */
#include "engine/placement/bandwidth.h"
#include "tests/support.h"

static uint64_t clock_at;

static uint64_t now(void)
{
    return clock_at;
}

static void sleep_for(uint64_t ns)
{
    clock_at += ns;
}

static struct bandwidth make(enum bandwidth_mode mode)
{
    struct bandwidth b;

    bandwidth_init(&b, mode, 1e9); /* a byte a nanosecond */
    b.now = now;
    b.sleep = sleep_for;
    b.burst_ns = 1000;
    clock_at = 1000000;
    return b;
}

START_TEST(long_run_rate_is_the_memory_s)
{
    struct bandwidth b = make(BANDWIDTH_ON);
    uint64_t start = clock_at, bytes = 0;

    for (int i = 0; i < 1000; i++) {
        bandwidth_take(&b, 5000);
        bytes += 5000;
    }
    ck_assert_uint_ge(clock_at - start + 5000 + 1000, bytes);
    ck_assert_uint_le(clock_at - start, bytes);
    ck_assert_uint_eq(b.taken, bytes);
    ck_assert_uint_eq(b.waited_ns, clock_at - start);
}
END_TEST

START_TEST(an_idle_memory_makes_nobody_wait)
{
    struct bandwidth b = make(BANDWIDTH_ON);

    for (int i = 0; i < 100; i++) {
        ck_assert_uint_eq(bandwidth_take(&b, 5000), 0);
        clock_at += 5000;
    }
}
END_TEST

START_TEST(two_devices_share)
{
    struct bandwidth b = make(BANDWIDTH_ON);
    uint64_t first = bandwidth_take(&b, 50000), second = bandwidth_take(&b, 10);

    ck_assert_uint_eq(first, 0);
    ck_assert_uint_eq(second, 49000); /* the first one's bytes, less the burst */
}
END_TEST

START_TEST(off_costs_nothing_and_no_wait_is_endless)
{
    struct bandwidth b = make(BANDWIDTH_OFF);

    ck_assert_uint_eq(bandwidth_take(&b, 1u << 30), 0);
    ck_assert_uint_eq(bandwidth_take(&b, 1u << 30), 0);
    ck_assert_uint_eq(bandwidth_take(NULL, 5), 0);
    b = make(BANDWIDTH_AUTO);
    ck_assert_uint_eq(bandwidth_take(&b, 1u << 30), 0);
    b = make(BANDWIDTH_ON);
    b.rate = 0;
    ck_assert_uint_eq(bandwidth_take(&b, 1u << 30), 0);
    b = make(BANDWIDTH_ON);
    for (int i = 0; i < 10; i++)
        ck_assert_uint_le(bandwidth_take(&b, UINT64_MAX / 4), 100000000);
}
END_TEST

START_TEST(auto_is_on_only_where_it_gains)
{
    double fast[] = {10, 10.1, 9.9, 10, 10.2, 10}, slow[] = {12, 12.1, 11.9, 12, 12.2, 12},
           noisy[] = {5, 20, 9, 14, 10, 13};
    struct bandwidth b = make(BANDWIDTH_AUTO);

    bandwidth_decide(&b, fast, slow, 6);
    ck_assert(b.active);
    bandwidth_decide(&b, slow, fast, 6);
    ck_assert(!b.active);
    bandwidth_decide(&b, noisy, slow, 6);
    ck_assert(!b.active);
    b = make(BANDWIDTH_OFF);
    bandwidth_decide(&b, fast, slow, 6);
    ck_assert(!b.active);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("bandwidth");
    TCase *t = tcase_create("bandwidth");

    tcase_add_test(t, long_run_rate_is_the_memory_s);
    tcase_add_test(t, an_idle_memory_makes_nobody_wait);
    tcase_add_test(t, two_devices_share);
    tcase_add_test(t, off_costs_nothing_and_no_wait_is_endless);
    tcase_add_test(t, auto_is_on_only_where_it_gains);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
