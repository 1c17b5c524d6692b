/* Several memory nodes, on machines that hwloc is told about: which node's memory each slice of
 * which matrix belongs into, that the threads which read it in decoding stand there, and that a
 * thread helps its own node's threads first. */
#include "engine/base/pool.h"
#include "engine/base/topology.h"
#include "engine/device/cpu/cpu.h"
#include "engine/model/numa.h"
#include "tests/support.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BASE ((const char *)0x40000000) /* nobody looks at the weights */
#define PAGE 4096
#define SLICES 4000

static const char *const machines[] = {"node:2 core:4 pu:2", "node:2 core:1 pu:1",
                                       "node:4 core:3 pu:1", "pack:2 node:2 core:8 pu:2",
                                       "node:1 core:8 pu:1"};
enum { MACHINES = (int)(sizeof machines / sizeof *machines) };

/* Phi-tiny's shape in Q4_0, 2 layers of 3 experts: interleaved by 16 rows, one matrix behind the
 * other from BASE + 64 on. */
struct fake {
    struct model model;
    struct layer_weights layers[2];
    struct expert_weights experts[6];
    size_t bytes;
};

static void place(struct fake *f, struct matrix *w, int rows, int cols)
{
    w->type = DTYPE_Q4_0;
    w->rows = rows;
    w->cols = cols;
    w->width = 16;
    w->bytes = (size_t)(rows + 15) / 16 * 16 * dtype_row_bytes(DTYPE_Q4_0, cols);
    w->data = BASE + f->bytes;
    f->bytes += (w->bytes + 63) / 64 * 64;
}

static void fake_model(struct fake *f)
{
    memset(f, 0, sizeof *f);
    f->bytes = 64;
    f->model.hp.n_layers = 2;
    f->model.hp.common.ffn.experts = 3;
    hparams_count(&f->model.hp);
    f->model.layers = f->layers;
    for (int l = 0; l < 2; l++) {
        struct layer_weights *w = &f->layers[l];

        w->experts = f->experts + 3 * l;
        place(f, &w->q, 2048, 4096);
        place(f, &w->k, 512, 4096);
        place(f, &w->v, 512, 4096);
        place(f, &w->o, 4096, 2048);
        for (int x = 0; x < 3; x++) {
            place(f, &w->experts[x].gate, 448, 4096);
            place(f, &w->experts[x].up, 448, 4096);
            place(f, &w->experts[x].down, 4096, 448);
        }
    }
    place(f, &f->model.head, 32064, 4096);
}

/* Where decoding's part of thread t begins: the pool's rule. */
static int part(int total, int chunk, int t, int n)
{
    int at = (total + chunk - 1) / chunk * t / n * chunk;

    return at < total ? at : total;
}

static const struct topology_slice *slice_of(const struct topology_slice *s, int n, size_t offset)
{
    for (int i = 0; i < n; i++)
        if (offset >= s[i].offset && offset < s[i].offset + s[i].bytes)
            return &s[i];
    return NULL;
}

/* Gate and up: tasks of both experts' same rows follow each other. */
static void check_gate(const struct matrix *w, const int *node, int n,
                       const struct topology_slice *s, int n_slices)
{
    enum { USED = 2, UNITS = 14 };

    for (int task = 0; task < USED * UNITS; task++) {
        struct gate_task g = gate_task(true, task, UNITS, USED, 0);
        size_t row = w->bytes / (size_t)w->rows,
               at = (size_t)((const char *)w->data - BASE) + row * (size_t)(g.unit * 32 + 16);
        int t = 0;
        bool border = false;

        while (part(USED * UNITS, 1, t + 1, n) <= task)
            t++;
        for (int k = 1; k < n; k++)
            border |= node[k] != node[k - 1] && abs(part(USED * UNITS, 1, k, n) - task) <= USED;
        ck_assert(border || slice_of(s, n_slices, at)->node == node[t]);
    }
}

/* Rows of w that decoding hands out as tasks `first` .. of a phase of `total` tasks of `per` rows,
 * `chunk` of them at a time: the page in the middle of each task's rows lies on the node of the
 * thread that takes it first. Tasks beside the border between two nodes may lie on either side. */
static void check_matrix(const struct matrix *w, int first, int total, int per, int chunk,
                         const int *node, int n, const struct topology_slice *s, int n_slices)
{
    int tasks = (w->rows + per - 1) / per, seen = 0;

    for (int i = 0; i < tasks; i++) {
        int t = 0, border = 0, rows = w->rows - i * per < per ? w->rows - i * per : per;
        size_t row = w->bytes / (size_t)((w->rows + 15) / 16 * 16),
               at = (size_t)((const char *)w->data - BASE) + row * (size_t)(i * per + rows / 2);
        const struct topology_slice *p = slice_of(s, n_slices, at);

        while (part(total, chunk, t + 1, n) <= first + i)
            t++;
        for (int k = 1; k < n; k++)
            border |= node[k] != node[k - 1] && abs(part(total, chunk, k, n) - first - i) <= chunk;
        ck_assert_ptr_nonnull(p);
        if (border)
            continue;
        ck_assert_msg(
            p->node == node[t],
            "rows from %d of %d x %d lie on node %d; thread %d of %d on node %d reads them",
            i * per, w->rows, w->cols, p->node, t, n, node[t]);
        seen++;
    }
    ck_assert(seen > 0 || tasks < 4 * n);
}

START_TEST(test_slices)
{
    static struct topology_slice s[SLICES];
    static struct fake f;
    int cpus[64], node[64];

    fake_model(&f);
    for (int threads = 1; threads <= 32; threads++) {
        int n = topology_assign_synthetic(machines[_i], threads, cpus, node),
            n_slices = numa_slices(&f.model, BASE, f.bytes, node, n, s, SLICES), nodes = 1;
        size_t on[64] = {0}, all = 0;

        for (int t = 1; t < n; t++)
            nodes += node[t] != node[t - 1];
        if (nodes == 1) {
            ck_assert_int_eq(n_slices, 0);
            continue;
        }
        ck_assert_int_gt(n_slices, 0);
        for (int i = 0; i < n_slices; i++) {
            ck_assert_uint_eq(s[i].offset % PAGE, 0);
            ck_assert_uint_eq(s[i].bytes % PAGE, 0);
            ck_assert_uint_gt(s[i].bytes, 0);
            ck_assert_uint_le(s[i].offset + s[i].bytes, (f.bytes + PAGE - 1) / PAGE * PAGE);
            /* no page twice, none left out */
            ck_assert(i == 0 || s[i].offset == s[i - 1].offset + s[i - 1].bytes);
            ck_assert(i == 0 || s[i].node != s[i - 1].node);
            on[s[i].node] += s[i].bytes;
            all += s[i].bytes;
        }
        /* each node holds what its share of the threads reads */
        for (int t = 0; t < n; t++) {
            int same = 0;

            for (int k = 0; k < n; k++)
                same += node[k] == node[t];
            ck_assert_double_eq_tol((double)on[node[t]] / (double)all, (double)same / n, 0.01);
        }
        for (int l = 0; l < 2; l++) {
            const struct layer_weights *w = &f.layers[l];

            check_matrix(&w->q, 0, 24, 128, 1, node, n, s, n_slices);
            check_matrix(&w->k, 16, 24, 128, 1, node, n, s, n_slices);
            check_matrix(&w->v, 20, 24, 128, 1, node, n, s, n_slices);
            check_matrix(&w->o, 0, 64, 64, 1, node, n, s, n_slices);
            for (int x = 0; x < 3; x++) {
                check_gate(&w->experts[x].gate, node, n, s, n_slices);
                check_gate(&w->experts[x].up, node, n, s, n_slices);
                check_matrix(&w->experts[x].down, 0, 128, 32, 4, node, n, s, n_slices);
            }
        }
        check_matrix(&f.model.head, 0, 501, 64, 1, node, n, s, n_slices);
        /* too many for the caller */
        ck_assert_int_eq(numa_slices(&f.model, BASE, f.bytes, node, n, s, 3), -1);
    }
}
END_TEST

/* Two threads on two nodes, to the byte: half of each matrix, and of q, k and v together. */
START_TEST(test_bytes)
{
    static const int node[] = {0, 1};
    static struct topology_slice s[SLICES];
    static struct fake f;
    size_t row = dtype_row_bytes(DTYPE_Q4_0, 4096), border;
    int n;

    fake_model(&f);
    n = numa_slices(&f.model, BASE, f.bytes, node, 2, s, SLICES);
    ck_assert_int_gt(n, 4);
    ck_assert_uint_eq(s[0].offset, 0);
    ck_assert_int_eq(s[0].node, 0);
    /* 3072 rows of q, k and v: the first 12 of q's 16 heads */
    border = (64 + 1536 * row + PAGE / 2) / PAGE * PAGE;
    ck_assert_uint_eq(s[0].bytes, border);
    ck_assert_int_eq(s[1].node, 1);
    ck_assert_uint_eq(s[1].offset + s[1].bytes, (64 + 3072 * row + PAGE / 2) / PAGE * PAGE);
    /* weights that lie elsewhere (a mapped file) have no slices */
    f.layers[0].q.data = BASE - 2 * f.layers[0].q.bytes;
    f.layers[0].k.data = BASE + f.bytes + 64;
    n = numa_slices(&f.model, BASE, f.bytes, node, 2, s, SLICES);
    ck_assert_int_gt(n, 0);
    ck_assert_uint_gt(s[0].offset, 2048 * row);
}
END_TEST

START_TEST(test_victims)
{
    int cpus[64], node[64];

    for (int threads = 1; threads <= 32; threads++) {
        int n = topology_assign_synthetic(machines[_i], threads, cpus, node);

        for (int tid = 0; tid < n; tid++) {
            bool seen[64] = {false}, left = false;
            int count = 0;

            for (int v = tid; v >= 0; v = pool_next_victim(node, n, tid, v)) {
                ck_assert_int_lt(v, n);
                ck_assert(!seen[v]);
                seen[v] = true;
                left |= node[v] != node[tid];
                /* gone from its node, it does not come back */
                ck_assert(!left || node[v] != node[tid]);
                count++;
            }
            ck_assert_int_eq(count, n);
        }
    }
}
END_TEST

#define TOTAL 40

struct work {
    struct pool *pool;
    atomic_bool came;
    int order[TOTAL], n;
};

/* Thread 2 does everything; the caller only waits until it has come and until all is done. */
static void alone(void *ctx, int tid, int n)
{
    struct work *w = ctx;

    if (tid == 2)
        atomic_store(&w->came, true);
    while (tid == 0 && !atomic_load(&w->came))
        ;
    if (tid != 0 && tid != 2)
        return;
    pool_phase_open(w->pool, tid, TOTAL);
    if (tid == 2)
        for (int at; (at = pool_phase_take(w->pool, tid, 5)) < TOTAL;)
            w->order[w->n++] = at;
    pool_phase_close(w->pool, tid);
}

START_TEST(test_own_node_first)
{
    static const int node[] = {0, 1, 1, 2}, one[] = {0, 0, 0, 0};
    static const int by_node[] = {20, 25, 10, 15, 30, 35, 0, 5},
                     around[] = {20, 25, 30, 35, 0, 5, 10, 15};
    struct error e;

    for (int several = 0; several < 2; several++) {
        struct work w = {0};

        ck_assert_int_eq(pool_new(&w.pool, 4, false, &e), 0);
        pool_nodes_set(w.pool, several ? node : one);
        pool_run_elastic(w.pool, alone, &w);
        pool_free(w.pool);
        ck_assert_int_eq(w.n, 8);
        ck_assert_mem_eq(w.order, several ? by_node : around, sizeof by_node);
    }
}
END_TEST

/* On this machine, whatever it is: binding leaves memory as usable as it was. */
START_TEST(test_bind_here)
{
    static struct fake f;
    struct topology_slice s[2] = {{0, PAGE, 0}, {PAGE, 3 * PAGE, topology_nodes() - 1}};
    char *p = aligned_alloc(PAGE, 4 * PAGE);

    topology_bind(p, s, 2);
    memset(p, 7, 4 * PAGE);
    ck_assert_int_eq(p[4 * PAGE - 1], 7);
    free(p);
    fake_model(&f);
    numa_bind(&f.model, NULL, 0, 1000000); /* nothing, and no crash */
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("numa");
    TCase *t = tcase_create("numa");

    tcase_add_loop_test(t, test_slices, 0, MACHINES);
    tcase_add_test(t, test_bytes);
    tcase_add_loop_test(t, test_victims, 0, MACHINES);
    tcase_add_test(t, test_own_node_first);
    tcase_add_test(t, test_bind_here);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
