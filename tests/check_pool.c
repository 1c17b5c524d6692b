/* Thread pool and topology: every run reaches every thread, barriers order memory, shares hand out
 * each index once. */
#include "engine/base/pool.h"
#include "engine/base/topology.h"
#include "tests/support.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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
}
END_TEST

/* Writes a file of a machine's /sys below the test's folder. */
static void put(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(const char *path, const char *format, ...)
{
    char full[1024], command[1200];
    va_list list;
    FILE *f;

    snprintf(full, sizeof full, "%s/machine%s", support_tmpdir(), path);
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", full);
    if (!(f = fopen(full, "w"))) {
        ck_assert_int_eq(system(command), 0);
        f = fopen(full, "w");
    }
    ck_assert_ptr_nonnull(f);
    va_start(list, format);
    vfprintf(f, format, list);
    va_end(list);
    fclose(f);
}

#if defined(__x86_64__)
/* One logical CPU: its core's CPUs and those that share each level of cache with it, as masks. */
static void put_cpu(int cpu, int core, unsigned siblings, unsigned level2, unsigned level3, int mhz)
{
    static const struct {
        int level;
        const char *type, *size;
    } caches[] = {{1, "Data", "48K"},
                  {1, "Instruction", "64K"},
                  {2, "Unified", "2048K"},
                  {3, "Unified", "24576K"}};
    char path[200];

#define FILE_OF(name) \
    (snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", cpu, name), path)
    put(FILE_OF("topology/core_id"), "%d\n", core);
    put(FILE_OF("topology/physical_package_id"), "0\n");
    put(FILE_OF("topology/thread_siblings"), "%06x\n", siblings);
    put(FILE_OF("topology/core_cpus"), "%06x\n", siblings);
    put(FILE_OF("topology/core_siblings"), "%06x\n", (1u << 22) - 1);
    put(FILE_OF("topology/package_cpus"), "%06x\n", (1u << 22) - 1);
    put(FILE_OF("cpufreq/cpuinfo_max_freq"), "%d\n", mhz * 1000);
    for (int i = 0; i < (level3 ? 4 : 3); i++) {
        char name[64];
        unsigned with = caches[i].level == 3 ? level3 : caches[i].level == 2 ? level2 : siblings;

        snprintf(name, sizeof name, "cache/index%d/level", i);
        put(FILE_OF(name), "%d\n", caches[i].level);
        snprintf(name, sizeof name, "cache/index%d/type", i);
        put(FILE_OF(name), "%s\n", caches[i].type);
        snprintf(name, sizeof name, "cache/index%d/size", i);
        put(FILE_OF(name), "%s\n", caches[i].size);
        snprintf(name, sizeof name, "cache/index%d/shared_cpu_map", i);
        put(FILE_OF(name), "%06x\n", with);
    }
#undef FILE_OF
}

/* What Linux shows of a Core Ultra 9 185H: six performance cores with two threads, two of them
 * clocked higher, eight efficiency cores in groups of four, and two of low power outside the
 * third-level cache. low: their greatest clock in MHz. level3: they have that cache, so that their
 * clock alone gives them away. */
static void core_ultra(int low, bool level3)
{
    const unsigned all = (1u << 22) - 1, ring = (1u << 20) - 1;

    put("/sys/devices/system/cpu/online", "0-21\n");
    put("/sys/devices/system/cpu/possible", "0-21\n");
    put("/sys/devices/system/cpu/present", "0-21\n");
    put("/sys/devices/cpu_core/cpus", "0-11\n");
    put("/sys/devices/cpu_atom/cpus", "12-21\n");
    put("/sys/devices/system/node/online", "0\n");
    put("/sys/devices/system/node/node0/cpumap", "%06x\n", all);
    put("/sys/devices/system/node/node0/cpulist", "0-21\n");
    put("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 32000000 kB\n");
    put("/sys/devices/system/node/node0/distance", "10\n");
    put("/proc/meminfo", "MemTotal: 32000000 kB\n");
    put("/proc/mounts", "sysfs /sys sysfs rw 0 0\n");
    put("/proc/self/cgroup", "0::/\n");
    for (int i = 0; i < 22; i++) {
        unsigned core = i < 12 ? 3u << (i & ~1) : 1u << i,
                 group = i < 12   ? core
                         : i < 20 ? 0xfu << (12 + (i - 12) / 4 * 4)
                                  : 3u << 20;

        put_cpu(i, i < 12 ? i / 2 * 4 : i + 20, core, group, i < 20 || level3 ? ring : 0,
                i < 4    ? 5100
                : i < 12 ? 4800
                : i < 20 ? 3800
                         : low);
    }
}

/* The threads are on the performance cores, then on the efficiency cores, never on those of low
 * power. */
START_TEST(test_hybrid)
{
    static const int fast[] = {0, 2, 4, 6, 8, 10};
    char root[600];
    int cpus[64], kinds[TOPOLOGY_KINDS], n, efficient = 0;

    core_ultra(_i == 1 ? 1200 : 2500, _i == 1);
    snprintf(root, sizeof root, "%s/machine", support_tmpdir());
    setenv("HWLOC_FSROOT", root, 1);
    setenv("HWLOC_THISSYSTEM", "0", 1);
    ck_assert_int_eq(topology_cores(), 14);
    ck_assert_int_le(topology_default_threads(), 14);
    ck_assert_int_eq(topology_kinds(kinds), 2);
    ck_assert_int_eq(kinds[0], 6);
    ck_assert_int_eq(kinds[1], 8);
    ck_assert_int_eq(topology_nodes(), 1);
    n = topology_core_cpus(cpus, 64);
    ck_assert_int_eq(n, 14);
    ck_assert_mem_eq(cpus, fast, sizeof fast);
    for (int i = 6; i < n; i++) {
        ck_assert_int_ge(cpus[i], 12);
        ck_assert_int_le(cpus[i], 19);
        efficient |= 1 << cpus[i];
    }
    ck_assert_int_eq(efficient, 0xff << 12);
}
END_TEST
#endif

/* Threads by default: the quota of either version's group, of this process's or one above, rounded
 * up. */
START_TEST(test_quota)
{
    char root[600];

    snprintf(root, sizeof root, "%s/machine", support_tmpdir());
    put("/proc/self/cgroup", "3:cpu,cpuacct:/old\n0::/unit\n");
    put("/proc/self/mountinfo", "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
                                "31 22 0:27 / /cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
    ck_assert_int_eq(topology_quota(root), 0);
    put("/sys/fs/cgroup/unit/cpu.max", "max 100000\n");
    ck_assert_int_eq(topology_quota(root), 0);
    put("/sys/fs/cgroup/unit/cpu.max", "250000 100000\n");
    ck_assert_int_eq(topology_quota(root), 3);
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    ck_assert_int_eq(topology_quota(root), 2);
    put("/cpu/old/cpu.cfs_quota_us", "-1\n");
    put("/cpu/old/cpu.cfs_period_us", "100000\n");
    ck_assert_int_eq(topology_quota(root), 2);
    put("/cpu/old/cpu.cfs_quota_us", "50000\n");
    ck_assert_int_eq(topology_quota(root), 1);
    put("/cpu/old/cpu.cfs_quota_us", "200000000\n"); /* more than any machine has */
    put("/sys/fs/cgroup/unit/cpu.max", "garbage\n");
    put("/sys/fs/cgroup/cpu.max", "\n");
    ck_assert_int_eq(topology_quota(root), 0);
}
END_TEST

/* Which cores are left out. */
START_TEST(test_low_power)
{
    struct topology_core lunar[] = {{.cpu = 0, .mhz = 5000, .shared_cache = true},
                                    {.cpu = 1, .mhz = 3700}},
                         plain[] = {{.cpu = 0, .mhz = 5000}, {.cpu = 1, .mhz = 3000}},
                         slow[] = {{.cpu = 0, .mhz = 2999}, {.cpu = 1, .mhz = 5000}},
                         unknown[] = {{.cpu = 0}, {.cpu = 1, .mhz = 5000}};

    ck_assert_int_eq(topology_hybrid(lunar, 2), 1);
    ck_assert_int_eq(lunar[0].cpu, 0);
    ck_assert_int_eq(topology_hybrid(plain, 2), 2); /* nobody has a third level */
    ck_assert_int_eq(topology_hybrid(slow, 2), 1);
    ck_assert_int_eq(slow[0].cpu, 1);
    ck_assert_int_eq(topology_hybrid(unknown, 2), 2);
}
END_TEST

/* Parts in proportion to shares: every task once whoever computes, and whoever is there has the
 * absent ones' too. */
START_TEST(test_shares)
{
    static const int share[] = {1024, 512, 1024};
    static struct ring_work w;
    struct error e;
    double phases, sum = 0;
    uint64_t ns;

    ck_assert_int_eq(pool_new(&w.pool, 3, false, &e), 0);
    for (int i = 0; i <= 3; i++)
        ck_assert_int_eq(pool_part(w.pool, 100, 1, i), 100 * i / 3);
    pool_shares_set(w.pool, share);
    ck_assert_int_eq(pool_part(w.pool, 100, 1, 0), 0);
    ck_assert_int_eq(pool_part(w.pool, 100, 1, 1), 40);
    ck_assert_int_eq(pool_part(w.pool, 100, 1, 2), 60);
    ck_assert_int_eq(pool_part(w.pool, 100, 1, 3), 100);
    ck_assert_int_eq(pool_part(w.pool, 100, 7, 1), 5 * 7 + 7 * 1); /* whole chunks: 15 of 7 */
    for (int timed = 0; timed < 2; timed++) {
        memset(w.taken, 0, sizeof w.taken);
        pool_timed_set(w.pool, timed);
        for (int i = 0; i < 200; i++)
            pool_run_elastic(w.pool, note, &w);
        for (int i = 0; i < 12; i++)
            ck_assert_int_eq(w.taken[100 + i], 200);
    }
    for (int i = 0; i < 3; i++) {
        pool_timed_take(w.pool, i, &phases, &ns);
        ck_assert(phases == 0 || ns > 0);
        sum += phases;
    }
    ck_assert(sum > 199.999 && sum < 200.001); /* all of every phase, by someone */
    pool_timed_take(w.pool, 0, &phases, &ns);
    ck_assert(phases == 0 && ns == 0);
    pool_timed_set(w.pool, false);
    pool_elastic_limit(w.pool, 2);
    pool_run_elastic(w.pool, note, &w);
    ck_assert_int_eq(pool_part(w.pool, 90, 1, 1), 60);
    ck_assert_int_eq(pool_part(w.pool, 90, 1, 2), 90);
    ck_assert_int_eq(pool_part(w.pool, 90, 1, 3), 90);
    pool_free(w.pool);
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
#if defined(__x86_64__)
    tcase_add_loop_test(t, test_hybrid, 0, 2);
#endif
    tcase_add_test(t, test_low_power);
    tcase_add_test(t, test_quota);
    tcase_add_test(t, test_shares);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
