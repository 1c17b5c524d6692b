/* Two models in one process on one thread pool, one OpenCL context and one bandwidth semaphore:
 * each says what it says alone, by turns, and either may be closed first. */
#include "engine/base/mem.h"
#include "engine/model/model.h"
#include "engine/run/pass/shared_resources.h"
#include "engine/run/engine.h"
#include "gpu/opencl.h"
#include "tests/golden.h"
#include "tests/support.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4

static const struct device_ops *const with_opencl[] = {&opencl_device_ops, &cpu_device_ops, NULL};
static const char *const models[2] = {"golden/phimoe/phimoe-quirk-f32", "golden/families/gpt_oss"};

static bool have_device(void)
{
    struct device_info info[DEVICE_MAX];
    char why[256] = "";

    if (opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why) > 0 && !info[0].why_not[0])
        return true;
    support_skip("no OpenCL device");
    return false;
}

static struct engine *open_one(int which, struct shared_resources *resources, bool opencl)
{
    struct engine_config c = {.model_path = support_path(models[which]),
                              .resources = resources,
                              .context = 256,
                              .ubatch = 16,
                              .n_threads = THREADS,
                              .kv_k = KV_F32,
                              .kv_v = KV_F32,
                              .exact = true,
                              .convert = -1,
                              .no_tokenizer = true,
                              .tune = DEVICE_TUNE_OFF,
                              .backends = opencl ? with_opencl : NULL,
                              .device_selector = opencl ? "opencl:0" : NULL,
                              .placement = opencl ? "gpu" : "cpu",
                              .cache_dir = support_tmpdir()};
    struct engine *g = NULL;
    struct error e = {0};

    if (engine_open(&g, &c, &e) < 0)
        ck_abort_msg("%s", e.text);
    model_settle(engine_info(g)->model); /* the packers have gone */
    ck_assert_int_eq(engine_info(g)->n_devices, opencl ? 2 : 1);
    return g;
}

/* Of this process: the kernel's list. */
static int threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    ck_assert_ptr_nonnull(d);
    for (const struct dirent *f; (f = readdir(d));)
        n += f->d_name[0] != '.';
    closedir(d);
    return n;
}

/* A golden text on its way through an engine, in pieces. */
struct run {
    struct engine *g;
    struct golden golden;
    float *got, *alone;
    int at;
};

static void begin(struct run *r, int which, bool opencl)
{
    struct error e = {0};
    char path[256], why[4200];

    snprintf(path, sizeof path, "%s/golden.safetensors", models[which]);
    ck_assert_msg(golden_open(&r->golden, support_path(path), why, sizeof why) == 0, "%s", why);
    r->got = mem_alloc((size_t)(r->golden.n * r->golden.n_vocab), sizeof *r->got);
    r->alone = mem_alloc((size_t)(r->golden.n * r->golden.n_vocab), sizeof *r->alone);
    r->g = open_one(which, NULL, opencl);
    ck_assert_int_eq(
        engine_eval_chunked(r->g, r->golden.input_ids, r->golden.n, 16, r->alone, true, &e), 0);
    engine_close(r->g);
    r->g = NULL;
}

/* Up to `rows` tokens more; false: it is at its end. */
static bool go_on(struct run *r, int rows)
{
    struct error e = {0};
    int n = r->golden.n - r->at < rows ? r->golden.n - r->at : rows;

    if (n > 0)
        ck_assert_msg(engine_eval(r->g, r->golden.input_ids + r->at, n,
                                  r->got + (size_t)(r->at * r->golden.n_vocab), true, &e) == 0,
                      "%s", e.text);
    r->at += n;
    return n > 0;
}

static void compare(const struct run *r, bool opencl)
{
    int n = r->golden.n * r->golden.n_vocab;

    ck_assert_int_eq(r->at, r->golden.n);
    for (int i = 0; i < n; i++)
        ck_assert_double_le(fabs((double)r->got[i] - (double)r->golden.logits[i]),
                            GOLDEN_TOLERANCE);
    for (int i = 0; i < n && opencl; i++) /* float sums there depend on the rows of a job */
        ck_assert_double_le(fabs((double)r->got[i] - (double)r->alone[i]), 1e-4);
    ck_assert(opencl || memcmp(r->got, r->alone, (size_t)n * sizeof *r->got) == 0);
}

static void end(struct run *r)
{
    golden_close(&r->golden);
    mem_free(r->got);
    mem_free(r->alone);
}

/* _i & 1: which engine is closed first; _i & 2: over OpenCL. */
START_TEST(two_models_share)
{
    bool opencl = _i & 2;
    int first = _i & 1, before, one;
    struct shared_resources *resources = NULL;
    struct run r[2] = {{0}};
    struct error e = {0};

    if (opencl && !have_device())
        return;
    for (int k = 0; k < 2; k++)
        begin(&r[k], k, opencl);
    ck_assert_int_eq(opencl_contexts(), 0);
    before = threads();
    ck_assert_msg(shared_resources_new(&resources, THREADS, &e) == 0, "%s", e.text);
    ck_assert_int_eq(threads(), before + THREADS - 1);
    r[0].g = open_one(0, resources, opencl);
    one = threads();
    r[1].g = open_one(1, resources, opencl);
    ck_assert_int_eq(threads(), one);
    ck_assert(opencl || one == before + THREADS - 1);
    ck_assert_int_eq(opencl_contexts(), opencl);
    ck_assert_ptr_eq(engine_bandwidth(r[0].g), engine_bandwidth(r[1].g));
    engine_bandwidth_set(r[0].g, BANDWIDTH_ON, 1e12);
    ck_assert(engine_bandwidth(r[1].g)->active);
    ck_assert_int_eq(engine_info(r[1].g)->n_threads, THREADS);

    while (r[first].at < 15 && go_on(&r[0], 5) && go_on(&r[1], 3))
        ;
    while (go_on(&r[first], 7))
        go_on(&r[!first], 1);
    engine_close(r[first].g);
    ck_assert_int_eq(threads(), one);
    ck_assert_int_eq(opencl_contexts(), opencl);
    while (go_on(&r[!first], 4))
        ;
    if (opencl)
        ck_assert_uint_gt(engine_telemetry(r[!first].g)->devices[1].jobs, 0);
    /* another one may come when one has gone */
    r[first].g = open_one(first, resources, opencl);
    r[first].at = 0;
    while (go_on(&r[first], 16))
        ;
    for (int k = 0; k < 2; k++) {
        compare(&r[k], opencl);
        engine_close(r[k].g);
    }
    shared_resources_free(resources);
    ck_assert(opencl || threads() == before);
    ck_assert_int_eq(opencl_contexts(), 0);
    for (int k = 0; k < 2; k++)
        end(&r[k]);
}
END_TEST

/* Without shared resources each has what it needs. */
START_TEST(two_models_apart)
{
    struct engine *g[2];
    int before = threads();

    for (int k = 0; k < 2; k++)
        g[k] = open_one(k, NULL, false);
    ck_assert_int_eq(threads(), before + 2 * (THREADS - 1));
    ck_assert_ptr_ne(engine_bandwidth(g[0]), engine_bandwidth(g[1]));
    for (int k = 0; k < 2; k++)
        engine_close(g[k]);
    ck_assert_int_eq(threads(), before);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shared_resources");
    TCase *t = tcase_create("shared_resources");

    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, two_models_share, 0, 4);
    tcase_add_test(t, two_models_apart);
    suite_add_tcase(s, t);
    return support_run(s);
}
