/* The OpenCL device against the CPU device, bit by bit for quantised weights and within a tolerance for float ones, in both shapes of the
 * kernels (vectors for CPU-type devices, one work-item a row for GPUs), whatever the chunking and whether layers run fused or as single
 * jobs. Runs on the first OpenCL device there is (PoCL in CI); MOETOP_OPENCL names another ("opencl:1"). Skips where there is none. */
#include "gpu/opencl.h"
#include "engine/device/device.h"
#include "tests/support.h"
#include "tests/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOKENS 40

static char cache_dir[256];      /* shared by all tests of a run: programs are compiled once */

struct setup {
    struct tiny_shape shape;
    enum kv_type kv;
    int chunk, jobs;             /* jobs: single jobs instead of layers */
};

static const struct tiny_shape base_shape = {.layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .head_dim = 32, .ffn = 96, .experts = 6, .vocab = 77,
                                             .context = 640, .type = DTYPE_Q8_0, .width = 16, .bias = 1, .seed = 7};

static void quiet(void *ctx, const char *line)
{
    (void)ctx, (void)line;
    if (getenv("MOETOP_TEST_LOG"))
        fprintf(stderr, "%s\n", line);
}

static const char *selector(void)
{
    return getenv("MOETOP_OPENCL");
}

static bool have_device(void)
{
    struct device_info info[DEVICE_MAX];
    char why[256];
    int n = opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why);

    if (n == 0 || info[0].why_not[0]) {
        fprintf(stderr, "skipped: %s\n", n ? info[0].why_not : why);
        return false;
    }
    return true;
}

static struct device_config config(const struct tiny_model *t, const struct setup *s)
{
    return (struct device_config){.model = &t->model, .n_threads = 1, .max_rows = s->chunk, .context = s->shape.context, .kv_k = s->kv, .kv_v = s->kv,
                                  .exact = true, .selector = selector(), .cache_dir = cache_dir, .rope_cos = t->rope_cos, .rope_sin = t->rope_sin,
                                  .log = quiet};
}

static void put_all(const struct device_ops *ops, struct device *d, const struct hparams *hp)
{
    struct error e;
    int rc;

    for (int l = 0; l < hp->n_layers; l++)
        for (int x = -1; x < hp->n_experts; x++) {
            struct block_id id = {x < 0 ? BLOCK_ATTENTION : BLOCK_EXPERT, l, x < 0 ? 0 : x};

            while ((rc = ops->block_put(d, id, 1000, &e)) == 0)
                ;
            ck_assert_msg(rc == 1, "%s", e.text);
        }
    while ((rc = ops->block_put(d, (struct block_id){BLOCK_HEAD, 0, 0}, 1 << 20, &e)) == 0)
        ;
    ck_assert_msg(rc == 1, "%s", e.text);
}

/* Single jobs, as the forward pass drives several devices: what a back end has not, the CPU does. mine: experts of this residue are
 * computed by dev, the others by cpu at the same time (0: all by dev). */
static void run_jobs(const struct device_ops *ops, struct device *dev, struct device *cpu, const struct hparams *hp, int layer, int rows, int pos,
                     int split, float *x)
{
    size_t hidden = (size_t)hp->hidden;
    int used = hp->n_experts_used, n = 0, n_groups[2] = {0, 0};
    float *y = calloc((size_t)rows * hidden, 4), *h = calloc((size_t)rows * hidden, 4), *out = calloc((size_t)(rows * used) * hidden, 4);
    float *weights = calloc((size_t)(rows * used), 4);
    int *experts = calloc((size_t)(rows * used), sizeof(int)), *row = calloc((size_t)(rows * used), sizeof(int)), *slot = calloc((size_t)(rows * used), sizeof(int));
    struct expert_group *groups = calloc((size_t)hp->n_experts * 2, sizeof *groups);
    struct error e;
    struct attention_job a = {layer, rows, pos, x, y};

    ck_assert_msg(ops->attention(dev, &a, &e) == 0, "%s", e.text);
    ck_assert_msg(ops->wait(dev, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < (size_t)rows * hidden; i++)
        x[i] = x[i] + y[i];
    struct route_job r = {layer, rows, x, h, NULL, experts, weights};

    ck_assert_int_eq(cpu_device_ops.route(cpu, &r, &e), 0);
    for (int ex = 0; ex < hp->n_experts; ex++) {
        int first = n, to = split && ex % split ? 1 : 0;

        for (int i = 0; i < rows * used; i++)
            if (experts[i] == ex) {
                row[n] = i / used;
                slot[n++] = i % used;
            }
        if (n > first)
            groups[to * hp->n_experts + n_groups[to]++] = (struct expert_group){ex, first, n - first};
    }
    struct experts_job j = {layer, rows, h, n_groups[0], groups, row, slot, out}, host = {layer, rows, h, n_groups[1], groups + hp->n_experts, row, slot, out};

    ck_assert_msg(ops->experts(dev, &j, &e) == 0, "%s", e.text);
    if (n_groups[1])
        ck_assert_int_eq(cpu_device_ops.experts(cpu, &host, &e), 0);
    ck_assert_msg(ops->wait(dev, &e) == 0, "%s", e.text);
    struct combine_job c = {rows, out, weights, x};

    ck_assert_int_eq(cpu_device_ops.combine(cpu, &c, &e), 0);
    free(y), free(h), free(out), free(weights), free(experts), free(row), free(slot), free(groups);
}

/* Logits of every token, (n, vocab), by one back end. */
static float *forward(const struct device_ops *ops, const struct setup *s, int n, int split)
{
    struct tiny_model *t = tiny_model_new(&s->shape);
    const struct hparams *hp = &t->model.hp;
    struct device_config c = config(t, s);
    float *logits = calloc((size_t)n * (size_t)hp->n_vocab, 4), *x = calloc((size_t)n * (size_t)hp->hidden, 4);
    int *experts = calloc((size_t)(hp->n_layers * n * 2), sizeof(int));
    float *weights = calloc((size_t)(hp->n_layers * n * 2), 4);
    unsigned seed = 99;
    struct device *dev, *cpu;
    struct device_stats stats;
    struct error e;

    ck_assert_msg(ops->open(&dev, &c, &e) == 0, "%s", e.text);
    ck_assert_msg(cpu_device_ops.open(&cpu, &c, &e) == 0, "%s", e.text);
    if (ops != &cpu_device_ops)
        put_all(ops, dev, hp);
    for (int i = 0; i < n * hp->hidden; i++)
        x[i] = tiny_random(&seed);
    for (int pos = 0; pos < n; pos += s->chunk) {
        int rows = n - pos < s->chunk ? n - pos : s->chunk;
        float *at = x + (size_t)pos * (size_t)hp->hidden;
        struct layers_job l = {0, hp->n_layers, rows, pos, at, experts, weights};
        struct head_job h = {rows, at, logits + (size_t)pos * (size_t)hp->n_vocab};

        if (s->jobs)
            for (int layer = 0; layer < hp->n_layers; layer++)
                run_jobs(ops, dev, cpu, hp, layer, rows, pos, split, at);
        else
            ck_assert_msg(ops->layers(dev, &l, &e) == 0 && ops->wait(dev, &e) == 0, "%s", e.text);
        ck_assert_msg(ops->head(dev, &h, &e) == 0 && ops->wait(dev, &e) == 0, "%s", e.text);
    }
    if (ops != &cpu_device_ops) {
        ops->stats(dev, &stats);
        ck_assert_uint_gt(stats.busy_ns, 0);
        ck_assert_uint_gt(stats.weight_bytes, 0);
    }
    ops->close(dev);
    cpu_device_ops.close(cpu);
    tiny_model_free(t);
    free(x), free(experts), free(weights);
    return logits;
}

static double largest(const float *a, const float *b, size_t n)
{
    double worst = 0;

    for (size_t i = 0; i < n; i++) {
        double diff = fabs((double)a[i] - (double)b[i]);

        worst = diff > worst || diff != diff ? diff : worst;
    }
    return worst;
}

/* tolerance 0: the same bits. */
static void check_against_cpu(struct tiny_shape shape, enum kv_type kv, int n, double tolerance)
{
    static const int chunks[] = {16, 7, 1, 40}, jobs[] = {0, 1, 0, 1}, splits[] = {0, 0, 0, 2};
    struct setup s = {shape, kv, 16, 0};
    size_t count = (size_t)n * (size_t)shape.vocab;
    float *want = forward(&cpu_device_ops, &s, n, 0);

    for (int v = 0; v < 4; v++) {
        float *got;

        s.chunk = chunks[v];
        s.jobs = jobs[v];
        got = forward(&opencl_device_ops, &s, n, splits[v]);
        if (tolerance == 0)
            ck_assert_msg(memcmp(got, want, count * 4) == 0, "chunks of %d, %s: off by %g (type %d)", s.chunk, s.jobs ? "jobs" : "layers", largest(got, want, count), (int)shape.type);
        else
            ck_assert_msg(largest(got, want, count) <= tolerance, "chunks of %d, %s: off by %g (type %d)", s.chunk, s.jobs ? "jobs" : "layers", largest(got, want, count), (int)shape.type);
        free(got);
    }
    free(want);
}

static const int shapes[] = {2, 1};      /* vectors, work-items */

START_TEST(test_q8_0)
{
    struct opencl_tuning t = {.shape = shapes[_i]};

    if (!have_device())
        return;
    opencl_tune(&t);
    check_against_cpu(base_shape, KV_F16, TOKENS, 0);
}
END_TEST

START_TEST(test_q4_0_window)
{
    struct opencl_tuning t = {.shape = shapes[_i], .copy = true};
    struct tiny_shape s = base_shape;

    if (!have_device())
        return;
    opencl_tune(&t);
    s.type = DTYPE_Q4_0;
    s.width = 8;
    s.hidden = 96;
    s.window = 9;
    s.rope_dims = 16;
    s.bias = 0;
    check_against_cpu(s, KV_F32, TOKENS, 0);
}
END_TEST

/* Several chunks of keys, a window that begins in the middle of one, heads that are no power of two. */
START_TEST(test_long_context)
{
    struct opencl_tuning t = {.shape = shapes[_i]};
    struct tiny_shape s = base_shape;
    struct setup one = {s, KV_F16, 100, 0};
    float *want, *got;

    if (!have_device())
        return;
    opencl_tune(&t);
    one.shape.layers = 1;
    one.shape.heads = 6;
    for (int window = 0; window <= 300; window += 300) {
        one.shape.window = window;
        want = forward(&cpu_device_ops, &one, 600, 0);
        got = forward(&opencl_device_ops, &one, 600, 0);
        ck_assert_msg(memcmp(got, want, (size_t)600 * (size_t)s.vocab * 4) == 0, "window %d: off by %g", window, largest(got, want, (size_t)600 * (size_t)s.vocab));
        free(want), free(got);
    }
}
END_TEST

START_TEST(test_float_types)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    struct opencl_tuning t = {.shape = shapes[_i]};
    struct tiny_shape s = base_shape;

    if (!have_device())
        return;
    opencl_tune(&t);
    for (int i = 0; i < 3; i++) {
        s.type = types[i];
        check_against_cpu(s, KV_F32, 20, 1e-5);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("opencl");
    TCase *c = tcase_create("device");

    snprintf(cache_dir, sizeof cache_dir, "%s", support_tmpdir());
    tcase_set_timeout(c, 240);
    tcase_add_loop_test(c, test_q8_0, 0, 2);
    tcase_add_loop_test(c, test_q4_0_window, 0, 2);
    tcase_add_loop_test(c, test_long_context, 0, 2);
    tcase_add_loop_test(c, test_float_types, 0, 2);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
