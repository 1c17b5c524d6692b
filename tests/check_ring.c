/* The queues and clocks between threads: nothing lost, nothing torn, one wake-up for many signals.
 * Meant for TSan too. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/base/ring.h"
#include "engine/base/series.h"
#include "engine/base/snapshot.h"
#include "engine/base/wake.h"
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MANY 20000

struct item {
    uint64_t n, square;
    char text[48];
};

struct both {
    struct ring ring;
    struct wake wake;
    struct snapshot snapshot;
    struct item slots[3];
};

static struct item item_of(uint64_t n)
{
    struct item i = {.n = n, .square = n * n};

    snprintf(i.text, sizeof i.text, "item %llu", (unsigned long long)n);
    return i;
}

static void *produce(void *arg)
{
    struct both *b = arg;

    for (uint64_t n = 0; n < MANY; n++) {
        struct item i = item_of(n);

        while (ring_push(&b->ring, &i) < 0)
            clock_sleep(1000);
        wake_signal(&b->wake);
    }
    return NULL;
}

START_TEST(ring_keeps_every_element_in_order)
{
    struct both b;
    struct error e;
    struct item i;
    pthread_t t;
    uint64_t next = 0, wakes = 0;

    ck_assert_int_eq(ring_init(&b.ring, sizeof i), 0);
    ck_assert_int_eq(wake_init(&b.wake, &e), 0);
    ck_assert_int_eq(pthread_create(&t, NULL, produce, &b), 0);
    while (next < MANY) {
        /* a lost wake-up would end here */
        ck_assert_int_eq(wake_wait(&b.wake, 20 * (int64_t)CLOCK_SECOND), 1);
        wakes++;
        wake_clear(&b.wake);
        while (ring_pop(&b.ring, &i)) {
            ck_assert_uint_eq(i.n, next);
            ck_assert_uint_eq(i.square, next * next);
            next++;
        }
    }
    pthread_join(t, NULL);
    ck_assert_int_eq(ring_pop(&b.ring, &i), 0);
    ck_assert_uint_le(wakes, MANY);
    ring_release(&b.ring);
    wake_release(&b.wake);
}
END_TEST

START_TEST(ring_grows_while_nobody_reads)
{
    struct ring r;
    struct item i;

    ck_assert_int_eq(ring_init(&r, sizeof i), 0);
    for (uint64_t n = 0; n < MANY; n++) {
        i = item_of(n);
        ck_assert_int_eq(ring_push(&r, &i), 0);
    }
    for (uint64_t n = 0; n < MANY; n++) {
        ck_assert_int_eq(ring_pop(&r, &i), 1);
        ck_assert_uint_eq(i.n, n);
    }
    ck_assert_int_eq(ring_pop(&r, &i), 0);
    /* in step, segments go round: no allocation any more */
    mem_fail_after(0);
    for (uint64_t n = 0; n < 4 * RING_SEGMENT; n++) {
        i = item_of(n);
        ck_assert_int_eq(ring_push(&r, &i), 0);
        ck_assert_int_eq(ring_pop(&r, &i), 1);
        ck_assert_uint_eq(i.n, n);
    }
    mem_fail_after(-1);
    ring_release(&r);
}
END_TEST

START_TEST(ring_without_memory_refuses_and_recovers)
{
    struct ring r;
    struct item i;
    uint64_t n = 0, seen = 0;

    ck_assert_int_eq(ring_init(&r, sizeof i), 0);
    mem_fail_after(0);
    for (;; n++) {
        i = item_of(n);
        if (ring_push(&r, &i) < 0)
            break;
    }
    ck_assert_uint_eq(n, 2 * RING_SEGMENT);
    /* the reader catches up; there is still no memory */
    while (seen <= RING_SEGMENT && ring_pop(&r, &i))
        ck_assert_uint_eq(i.n, seen++);
    i = item_of(n);
    ck_assert_int_eq(ring_push(&r, &i), 0); /* the refused one, again */
    mem_fail_after(-1);
    while (ring_pop(&r, &i))
        ck_assert_uint_eq(i.n, seen++);
    ck_assert_uint_eq(seen, n + 1);
    ring_release(&r);
}
END_TEST

START_TEST(wake_coalesces)
{
    struct wake w;
    struct error e;
    uint64_t count = 0;

    ck_assert_int_eq(wake_init(&w, &e), 0);
    ck_assert_int_eq(wake_wait(&w, 0), 0);
    for (int i = 0; i < 1000; i++)
        wake_signal(&w);
    ck_assert_int_eq(read(w.fd, &count, sizeof count), sizeof count);
    ck_assert_uint_eq(count, 1); /* one write for all of them */
    wake_clear(&w);
    ck_assert_int_eq(wake_wait(&w, 1000), 0);
    wake_signal(&w);
    ck_assert_int_eq(wake_wait(&w, 0), 1);
    wake_clear(&w);
    ck_assert_int_eq(wake_wait(&w, 0), 0);
    wake_release(&w);
}
END_TEST

static void *publish(void *arg)
{
    struct both *b = arg;

    for (uint64_t n = 1; n <= MANY; n++) {
        b->slots[snapshot_write_slot(&b->snapshot)] = item_of(n);
        snapshot_publish(&b->snapshot);
    }
    return NULL;
}

START_TEST(snapshot_is_whole_and_never_goes_back)
{
    struct both b;
    pthread_t t;
    uint64_t last = 0;
    int fresh;

    memset(b.slots, 0, sizeof b.slots);
    snapshot_init(&b.snapshot);
    snapshot_read_slot(&b.snapshot, &fresh);
    ck_assert_int_eq(fresh, 0);
    pthread_create(&t, NULL, publish, &b);
    while (last < MANY) {
        const struct item *i = &b.slots[snapshot_read_slot(&b.snapshot, &fresh)];
        struct item want = item_of(i->n);

        ck_assert_uint_eq(i->square, i->n * i->n);
        ck_assert(i->n == 0 || strcmp(i->text, want.text) == 0);
        ck_assert_uint_ge(i->n, last);
        ck_assert(fresh || i->n == last);
        last = i->n;
    }
    pthread_join(t, NULL);
}
END_TEST

static void *write_lines(void *arg)
{
    for (int i = 0; i < 1000; i++)
        log_write(LOG_LEVEL_INFO, "line %d of %s", i, (const char *)arg);
    return NULL;
}

START_TEST(log_keeps_the_newest_lines)
{
    struct log_line l;
    uint64_t serial = 0;
    pthread_t a, b;
    char longer[1000];
    int n = 0;

    log_write(LOG_LEVEL_WARNING, "a\tb\033[31m");
    ck_assert_int_eq(log_next(log_newest() - 1, &l), 1);
    ck_assert_str_eq(l.text, "a\\x09b\\x1b[31m");
    ck_assert_str_eq(log_level_word(l.level), "warning");
    memset(longer, 'x', sizeof longer);
    memcpy(longer + LOG_TEXT - 2, "\303\244", 3);
    log_write(LOG_LEVEL_INFO, "%s", longer);
    ck_assert_int_eq(log_next(log_newest() - 1, &l), 1);
    /* the two-byte letter did not fit: gone whole */
    ck_assert_int_eq(l.text[strlen(l.text) - 1], 'x');
    pthread_create(&a, NULL, write_lines, "a");
    pthread_create(&b, NULL, write_lines, "b");
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    ck_assert_uint_eq(log_newest(), 2002);
    while (log_next(serial, &l)) {
        ck_assert_uint_eq(l.serial, serial ? serial + 1 : 2002 - LOG_LINES + 1);
        ck_assert(strncmp(l.text, "line ", 5) == 0);
        serial = l.serial;
        n++;
    }
    ck_assert_int_eq(n, LOG_LINES);
}
END_TEST

START_TEST(log_follower_gets_every_line)
{
    FILE *f = tmpfile();
    char line[400], expected[80];
    pthread_t a, b;
    int fd = fileno(f), n[2] = {0}, full;

    ck_assert_int_eq(log_follow(fd), 0);
    pthread_create(&a, NULL, write_lines, "a");
    pthread_create(&b, NULL, write_lines, "b");
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    ck_assert_int_eq(log_follow(-1), 0);
    log_write(LOG_LEVEL_INFO, "too late");
    rewind(f);
    while (fgets(line, sizeof line, f)) {
        int who;

        if (!strstr(line, "line "))
            continue; /* those kept from before */
        who = line[strlen(line) - 2] == 'b';
        ck_assert_msg(line[4] == '-' && line[10] == 'T' && line[23] == 'Z', "%s", line);
        snprintf(expected, sizeof expected, " info line %d of %c\n", n[who]++, who ? 'b' : 'a');
        ck_assert_str_eq(line + 24, expected);
    }
    fclose(f);
    ck_assert_int_eq(n[0], 1000);
    ck_assert_int_eq(n[1], 1000);
    full = open("/dev/full", O_WRONLY);
    log_follow(full);
    log_write(LOG_LEVEL_INFO, "lost");
    ck_assert_int_eq(log_follow(-1), ENOSPC);
    ck_assert_int_eq(log_follow(-1), 0);
    close(full);
}
END_TEST

START_TEST(series_figures_are_right)
{
    struct series s;
    struct series_figures f, g;
    double few[] = {5, 1, 3};
    double hiccup[] = {143, 147, 147, 150, 819}, steady[] = {2.98, 3.01, 3.08, 3.09, 3.1};

    series_init(&s);
    ck_assert_int_eq(series_summarise(&s, &f), 0);
    ck_assert_uint_eq(f.n, 0);
    for (int i = 100; i >= 1; i--)
        ck_assert_int_eq(series_add(&s, i), 0);
    ck_assert_int_eq(series_summarise(&s, &f), 0);
    ck_assert_uint_eq(f.n, 100);
    ck_assert_double_eq_tol(f.min, 1, 1e-12);
    ck_assert_double_eq_tol(f.max, 100, 1e-12);
    ck_assert_double_eq_tol(f.mean, 50.5, 1e-9);
    ck_assert_double_eq_tol(f.median, 50.5, 1e-9);
    ck_assert_double_eq_tol(f.p95, 95.05, 1e-9);
    ck_assert_double_eq_tol(f.sd, sqrt(100.0 * 101.0 / 12.0), 1e-9);
    /* the series itself stays in order */
    ck_assert_double_eq_tol(s.values[0], 100, 1e-12);
    series_summarise_sorted(few, 3, &g);
    ck_assert_double_eq_tol(g.median, 3, 1e-12);
    ck_assert_double_eq_tol(g.sd, 2, 1e-12);
    ck_assert(series_differ(&f, &g));
    g = f;
    g.mean += 0.1;
    ck_assert(!series_differ(&f, &g)); /* far inside the noise */
    /* as measured: one sample that met another program */
    series_summarise_sorted(hiccup, 5, &f);
    series_summarise_sorted(steady, 5, &g);
    ck_assert(series_differ(&f, &g) && series_differ(&g, &f));
    /* three against three lie apart once in ten times */
    series_summarise_sorted(hiccup, 3, &f);
    series_summarise_sorted(hiccup + 2, 3, &g);
    ck_assert(!series_differ(&f, &g));
    series_release(&s);
}
END_TEST

START_TEST(clock_moves_forward)
{
    uint64_t a = clock_now(), b;

    clock_sleep(2 * CLOCK_MILLI);
    b = clock_now();
    ck_assert_uint_ge(b - a, 2 * CLOCK_MILLI);
    ck_assert_double_eq_tol(clock_rate(10, CLOCK_SECOND / 2), 20, 1e-9);
    ck_assert_double_eq_tol(clock_rate(10, 0), 0, 1e-12);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("ring");
    TCase *t = tcase_create("ring");

    tcase_add_test(t, ring_keeps_every_element_in_order);
    tcase_add_test(t, ring_grows_while_nobody_reads);
    tcase_add_test(t, ring_without_memory_refuses_and_recovers);
    tcase_add_test(t, wake_coalesces);
    tcase_add_test(t, snapshot_is_whole_and_never_goes_back);
    tcase_add_test(t, log_keeps_the_newest_lines);
    tcase_add_test(t, log_follower_gets_every_line);
    tcase_add_test(t, series_figures_are_right);
    tcase_add_test(t, clock_moves_forward);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
