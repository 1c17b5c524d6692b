/* Thread pool and topology: every run reaches every thread, barriers order memory, shares hand out
 * each index once. */
#include "engine/base/pool.h"
#include "engine/base/topology.h"
#include "tests/support.h"

#include <string.h>
#include <time.h>

struct ring_work {
    struct pool *pool;
    struct pool_share share[2];
    int rounds, cell[POOL_MAX], bad;
    unsigned char taken[1000];
};

/* Each round every thread writes its cell; after the barrier it must see all others' values of the
 * same round. */
static void ring_rounds(void *ctx, int tid, int n)
{
    struct ring_work *w = ctx;

    for (int r = 1; r <= w->rounds; r++) {
        w->cell[tid] = r;
        pool_barrier(w->pool, tid);
        for (int i = 0; i < n; i++)
            if (w->cell[i] != r)
                w->bad = 1;
        pool_barrier(w->pool, tid);
    }
}

static void take_all(void *ctx, int tid, int n)
{
    struct ring_work *w = ctx;

    for (int at; (at = pool_share_take(&w->share[0], 7, 1000)) < 1000;)
        for (int i = at; i < at + 7 && i < 1000; i++)
            w->taken[i]++;
}

START_TEST(test_barrier)
{
    struct ring_work w = {.rounds = 200};
    struct error e;

    for (int n = 1; n <= 5; n++) {
        ck_assert_int_eq(pool_new(&w.pool, n, false, &e), 0);
        ck_assert_int_eq(pool_threads(w.pool), n);
        for (int i = 0; i < 20; i++) {
            memset(w.cell, 0, sizeof w.cell);
            w.rounds = n > 2 ? 10 : 100;
            pool_run(w.pool, ring_rounds, &w);
        }
        pool_free(w.pool);
        ck_assert_int_eq(w.bad, 0);
    }
}
END_TEST

START_TEST(test_share)
{
    static struct ring_work w;
    struct error e;

    ck_assert_int_eq(pool_new(&w.pool, 3, true, &e), 0);
    for (int i = 0; i < 50; i++) {
        memset(w.taken, 0, sizeof w.taken);
        pool_share_reset(&w.share[0]);
        pool_run(w.pool, take_all, &w);
        for (int k = 0; k < 1000; k++)
            ck_assert_int_eq(w.taken[k], 1);
    }
    pool_free(w.pool);
}
END_TEST

#define PHASES 60

struct elastic_work {
    struct pool *pool;
    /* what each task made: its index plus the sum of the phase before */
    int first[PHASES][40], late;
};

/* Every task reads all results of the phase before; thread `late` sleeps with a task in hand now
 * and then, and before it comes at all. */
static void elastic_phases(void *ctx, int tid, int n)
{
    struct elastic_work *w = ctx;
    struct timespec moment = {.tv_nsec = 200000};

    if (tid && tid == w->late)
        nanosleep(&moment, NULL);
    for (int p = 0; p < PHASES; p++) {
        int total = p % 3 == 2 ? 1 : p % 5 == 4 ? 0 : 40;

        pool_phase_open(w->pool, tid, total);
        for (int at; (at = pool_phase_take(w->pool, tid, 3)) < total;) {
            if (tid && tid == w->late && p % 20 == 1)
                nanosleep(&moment, NULL);
            for (int i = at; i < at + 3 && i < total; i++) {
                int before = p ? w->first[p - 1][i] : 0;

                w->first[p][i] += before + 1;
            }
        }
        pool_phase_close(w->pool, tid);
    }
}

START_TEST(test_elastic)
{
    static struct elastic_work w;
    struct error e;

    for (int n = 1; n <= 4; n++) {
        ck_assert_int_eq(pool_new(&w.pool, n, false, &e), 0);
        for (int round = 0; round < 30; round++) {
            memset(w.first, 0, sizeof w.first);
            w.late = round % 3;
            pool_run_elastic(w.pool, elastic_phases, &w);
            for (int p = 0; p < PHASES; p++) {
                int total = p % 3 == 2 ? 1 : p % 5 == 4 ? 0 : 40;

                for (int i = 0; i < 40; i++)
                    ck_assert_int_eq(w.first[p][i],
                                     i < total ? (p ? w.first[p - 1][i] : 0) + 1 : 0);
            }
            if (round % 10 == 9) { /* both kinds of runs on one pool */
                struct ring_work ring = {.pool = w.pool, .rounds = 3};

                pool_run(w.pool, ring_rounds, &ring);
                ck_assert_int_eq(ring.bad, 0);
            }
        }
        pool_free(w.pool);
    }
}
END_TEST

static void note(void *ctx, int tid, int n)
{
    struct ring_work *w = ctx;

    w->taken[tid]++;
    pool_phase_open(w->pool, tid, 12);
    for (int at; (at = pool_phase_take(w->pool, tid, 1)) < 12;)
        w->taken[100 + at]++;
    pool_phase_close(w->pool, tid);
}

static void come(void *ctx, int tid, int n)
{
    ((struct ring_work *)ctx)->taken[tid]++;
}

/* Elastic runs by fewer threads, the others of all still. */
START_TEST(test_limit)
{
    static struct ring_work w;
    struct error e;

    ck_assert_int_eq(pool_new(&w.pool, 3, false, &e), 0);
    for (int limit = 2; limit >= 0; limit--) {
        memset(w.taken, 0, sizeof w.taken);
        pool_elastic_limit(w.pool, limit);
        for (int i = 0; i < 200; i++)
            pool_run_elastic(w.pool, note, &w);
        ck_assert_int_eq(w.taken[0], 200);
        ck_assert_int_eq(w.taken[2], 0);
        ck_assert(limit == 2 || w.taken[1] == 0);
        for (int i = 0; i < 12; i++)
            ck_assert_int_eq(w.taken[100 + i], 200);
    }
    memset(w.taken, 0, sizeof w.taken);
    pool_run(w.pool, come, &w);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(w.taken[i], 1);
    pool_free(w.pool);
}
END_TEST

START_TEST(test_refused)
{
    struct pool *p;
    struct error e;

    ck_assert_int_eq(pool_new(&p, 0, false, &e), ERR_USAGE);
    ck_assert_int_eq(pool_new(&p, POOL_MAX + 1, false, &e), ERR_USAGE);
    ck_assert_ptr_null(p);
    pool_free(NULL);
}
END_TEST

START_TEST(test_topology)
{
    int cpus[64], nodes;

    ck_assert_int_ge(topology_cores(), 1);
    ck_assert_int_ge(topology_default_threads(), 1);
    ck_assert_int_le(topology_default_threads(), topology_cores());
    ck_assert_int_eq(topology_from_synthetic("node:2 core:4 pu:2", cpus, 64, &nodes), 8);
    ck_assert_int_eq(nodes, 2);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(cpus[i], 2 * i);
    ck_assert_int_eq(topology_from_synthetic("nonsense:", cpus, 64, &nodes), -1);
    /* threads of a machine with two nodes: each its share, neighbours together, first cores first
     */
    for (int n = 1; n <= 9; n++) {
        int want = n < 8 ? n : 8, on[2] = {0, 0}, node[64];

        ck_assert_int_eq(topology_assign_synthetic("node:2 core:4 pu:2", n, cpus, node), want);
        for (int i = 0; i < want; i++) {
            on[node[i]]++;
            ck_assert_int_eq(cpus[i] / 8, node[i]);
            ck_assert(i == 0 || cpus[i] > cpus[i - 1]);
            ck_assert_int_eq(cpus[i], 8 * node[i] + 2 * (on[node[i]] - 1));
        }
        ck_assert_int_eq(on[0], (want + 1) / 2);
    }
    { /* nodes of unequal size, cores in any order */
        static const int node[] = {1, 0, 0, 0, 1, 0}, three[] = {0, 1, 2}, four[] = {0, 1, 2, 3};
        int core[6];

        topology_assign(node, 6, 3, core);
        ck_assert_mem_eq(core, three, sizeof three);
        topology_assign(node, 6, 4, core);
        ck_assert_mem_eq(core, four, sizeof four);
    }
    { /* a board of four little and four big cores; one of three kinds; nothing known */
        static const int kind[] = {0, 0, 0, 0, 1, 1, 2, 1}, want[] = {6, 4, 5, 7, 0, 1, 2, 3},
                         none[] = {-1, -1, -1}, same[] = {0, 1, 2},
                         little[] = {530, 530, 530, 530, 1024, 1024, 1024, 1024},
                         hybrid[] = {1024, 1024, 700, 700}, unknown[] = {0, 0, 0};
        int order[8];

        topology_fast_first(kind, 8, order);
        ck_assert_mem_eq(order, want, sizeof want);
        topology_fast_first(none, 3, order);
        ck_assert_mem_eq(order, same, sizeof same);
        ck_assert_int_eq(topology_big(little, 8), 4);
        ck_assert_int_eq(topology_big(hybrid, 4), 4);
        ck_assert_int_eq(topology_big(unknown, 3), 3);
    }
    ck_assert_int_eq(topology_quota("200000 100000\n"), 2);
    ck_assert_int_eq(topology_quota("250000 100000\n"), 3);
    ck_assert_int_eq(topology_quota("max 100000\n"), 0);
    ck_assert_int_eq(topology_quota(""), 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("pool");
    TCase *t = tcase_create("pool");

    tcase_add_test(t, test_barrier);
    tcase_add_test(t, test_share);
    tcase_add_test(t, test_elastic);
    tcase_add_test(t, test_limit);
    tcase_add_test(t, test_refused);
    tcase_add_test(t, test_topology);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
