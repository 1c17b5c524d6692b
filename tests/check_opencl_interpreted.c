/* The kernels under oclgrind, which interprets them: every access within bounds, no two work-items
 * of a group at one place without a barrier between, no divergent barrier, and nothing computed
 * from what nobody wrote. Skips where oclgrind is not installed. CHECK_INTERPRETED=all: half an
 * hour of a core more. */
#include "gpu/driver/functions.h"
#include "gpu/driver/tuning.h"
#include "gpu/opencl.h"
#include "tests/on_device.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How oclgrind calls this program back. */
#define INTERPRETED "--interpreted"
#define WATCHED_ROLE "--watched"

static const struct {
    int shape, hidden, width;
    enum dtype type;
    enum kv_type kv;
    enum gemm_form form;
    int engine;
    bool apart; /* a dense part beside experts, then a dense layer, then operators beside each other
                 */
    int group;  /* of opencl_tuning */
} interpreted_cases[] = {{2, 64, 16, DTYPE_Q4_0, KV_F16, GEMM_FOURS, 0, false, 0},
                         {1, 64, 16, DTYPE_Q4_0, KV_F16, GEMM_FOURS, 0, false, 0},
                         {2, 64, 16, DTYPE_Q4_0, KV_F16, GEMM_FOURS, 0, true, 0},
                         {1, 256, 16, DTYPE_Q4_K, KV_F32, GEMM_FOURS, 0, false, 0},
                         {1, 256, 8, DTYPE_Q6_K, KV_Q8_0, GEMM_FOURS, 0, false, 0},
                         {1, 96, 16, DTYPE_Q4_0, KV_F16, GEMM_ENGINE, 1, false, 0},
                         {1, 256, 8, DTYPE_Q6_K, KV_F16, GEMM_ENGINE, 16, false, 0},
                         {1, 64, 16, DTYPE_Q4_0, KV_F16, GEMM_FOURS, 0, true, 0},
                         {1, 64, 16, DTYPE_Q4_0, KV_F16, GEMM_FOURS, 0, false, 4},
                         {1, 64, 16, DTYPE_Q4_0, KV_F16, GEMM_FOURS, 0, false, 5},
                         {1, 64, 16, DTYPE_Q4_0, KV_F16, GEMM_FOURS, 0, false, 7},
                         {1, 256, 8, DTYPE_Q6_K, KV_F16, GEMM_FOURS, 0, false, 9}};
#define CASES_ALWAYS 3 /* each shape, and layers of other kinds */
#define CASES ((int)(sizeof interpreted_cases / sizeof interpreted_cases[0]))

static int interpreted;          /* the case that oclgrind runs */
static bool interpreted_watched; /* for uninitialised values */

/* ---- Uninitialised values. Three faults of oclgrind 21.10 have to be got round:
 * - an undefined place of a shuffle's mask (-1) is read as an address, 4 GB behind the vector: it
 *   crashes. Optimised code has such masks, code of -O0 where a vector is put together of others.
 * - place 11 of a shuffle (LLVM's UndefValueVal) counts as uninitialised.
 *   Both: the kernels name the elements one by one where -DINTERPRETED is given (common.cl).
 * - the host's write of a part of a buffer makes the whole rest of it unknown (in 26.03 too): so
 *   before every launch all buffers are said to be written. What is in those that nobody wrote are
 *   NaNs, which the compared bits would show; private and local memory is watched. ---- */
#define WATCHED 2048

static struct watched {
    cl_mem mem;
    size_t bytes;
} watched[WATCHED];
static int n_watched;
static struct opencl_functions driver;

/* Maps a whole buffer for writing: oclgrind takes that for written. */
static cl_int tell_written(cl_command_queue q, const struct watched *w, bool fill)
{
    cl_int rc;
    void *at = driver.EnqueueMapBuffer(q, w->mem, CL_TRUE, CL_MAP_WRITE, 0, w->bytes, 0, NULL, NULL,
                                       &rc);

    if (rc != CL_SUCCESS)
        return rc;
    if (fill)
        memset(at, 0xff, w->bytes);
    return driver.EnqueueUnmapMemObject(q, w->mem, at, 0, NULL, NULL);
}

static CL_API_ENTRY cl_mem CL_API_CALL watched_create(cl_context c, cl_mem_flags flags,
                                                      size_t bytes, void *host, cl_int *rc)
{
    cl_mem mem = driver.CreateBuffer(c, flags, bytes, host, rc);
    struct watched w = {mem, bytes};
    cl_device_id id;
    cl_command_queue q;

    if (!mem)
        return NULL;
    ck_assert_int_lt(n_watched, WATCHED);
    watched[n_watched++] = w;
    if (host)
        return mem;
    ck_assert_int_eq(driver.GetDeviceIDs(NULL, CL_DEVICE_TYPE_ALL, 1, &id, NULL), CL_SUCCESS);
    q = driver.CreateCommandQueue(c, id, 0, NULL);
    ck_assert_int_eq(tell_written(q, &w, true), CL_SUCCESS);
    driver.Finish(q);
    driver.ReleaseCommandQueue(q);
    return mem;
}

static CL_API_ENTRY cl_int CL_API_CALL watched_release(cl_mem mem)
{
    for (int i = 0; i < n_watched; i++)
        if (watched[i].mem == mem)
            watched[i--] = watched[--n_watched];
    return driver.ReleaseMemObject(mem);
}

static CL_API_ENTRY cl_int CL_API_CALL watched_launch(cl_command_queue q, cl_kernel k, cl_uint dim,
                                                      const size_t *offset, const size_t *global,
                                                      const size_t *local, cl_uint n,
                                                      const cl_event *after, cl_event *out)
{
    for (int i = 0; i < n_watched; i++)
        ck_assert_int_eq(tell_written(q, &watched[i], false), CL_SUCCESS);
    return driver.EnqueueNDRangeKernel(q, k, dim, offset, global, local, n, after, out);
}

static void watch_buffers(void)
{
    struct error e;

    ck_assert_int_eq(opencl_load(&e), 0);
    driver = cl;
    cl.CreateBuffer = watched_create;
    cl.ReleaseMemObject = watched_release;
    cl.EnqueueNDRangeKernel = watched_launch;
}

#define APART_MIXER .mixer = {.heads = 4, .kv_heads = 2, .key_dim = 32, .rope_dims = 32}
#define APART_ROUTED                                                       \
    .experts = 2, .used = 1, .shared = 1, .width = 64, .shared_width = 64, \
    .router = {.kind = ROUTER_SOFTMAX, .normalised = true, .expert_scales = true}

/* A layer in one shape, several tokens and then one: the CPU's bits. */
START_TEST(test_in_interpreter)
{
    static const struct layer_shape apart[3] = {
        {APART_MIXER, .ffn = {.kind = FFN_DENSE_AND_ROUTED, APART_ROUTED},
         .norms = {.kind = NORM_RMS, .eps = 1e-6f, .before = true, .after = true}, .scaled = true},
        {APART_MIXER, .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 64},
         .norms = {.kind = NORM_RMS, .eps = 1e-6f, .before = true}},
        {APART_MIXER, .ffn = {APART_ROUTED},
         .norms = {.kind = NORM_LAYER, .eps = 1e-5f, .before = true}, .parallel = true}};
    /* watched, a token takes ten times as long */
    int i = interpreted, hidden = interpreted_cases[i].hidden, chunk = interpreted_watched ? 2 : 6,
        n = chunk + 1;
    size_t count = (size_t)n * (size_t)on_device_shape.vocab;
    struct opencl_tuning t = {.shape = interpreted_cases[i].shape,
                              .no_selftest = true,
                              .tile = interpreted_cases[i].form ? 16 : 4,
                              .form = interpreted_cases[i].form,
                              .group = interpreted_cases[i].group,
                              .engine = interpreted_cases[i].engine};
    struct on_device one = {on_device_shape, interpreted_cases[i].kv, chunk, 0};
    float *want, *got;

    one.shape.layers = i == 1 && !interpreted_watched ? 2 : 1;
    one.shape.experts = 2;
    one.shape.type = interpreted_cases[i].type;
    one.shape.hidden = one.shape.ffn = hidden;
    one.shape.heads = hidden / 32 > 4 ? hidden / 32 : 4;
    one.shape.width = interpreted_cases[i].width;
    if (interpreted_cases[i].apart) {
        one.shape.layers = 3;
        one.shape.shapes = apart;
        one.shape.residual_scale = 0.22f;
    }
    opencl_tune(&t);
    if (interpreted_watched)
        watch_buffers();
    want = on_device_forward(&cpu_device_ops, &one, n, 0);
    got = on_device_forward(&opencl_device_ops, &one, n, 0);
    ck_assert_msg(memcmp(got, want, count * 4) == 0, "case %d: off by %g", i,
                  on_device_difference(got, want, count));
    free(want), free(got);
}
END_TEST

static void run_oclgrind(int i, const char *options, const char *role)
{
    char log[300], command[1000], text[4000];
    FILE *f;

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    support_skip("oclgrind must be loaded first, and so must the sanitizer");
    return;
#endif
    if (system("command -v oclgrind >/dev/null 2>&1") != 0) {
        support_skip("oclgrind is not installed");
        return;
    }
    snprintf(log, sizeof log, "%s/oclgrind-%d.log", support_tmpdir(), i);
    snprintf(command, sizeof command,
             "oclgrind %s --max-errors 20 --log %s /proc/%d/exe %s %d >/dev/null 2>&1", options,
             log, getpid(), role, i);
    ck_assert_msg(system(command) == 0, "%s", command);
    f = fopen(log, "r");
    text[f ? fread(text, 1, sizeof text - 1, f) : 0] = '\0';
    if (f)
        fclose(f);
    ck_assert_msg(!*text, "%s", text);
}

START_TEST(test_accesses)
{
    run_oclgrind(_i, "--data-races", INTERPRETED);
}
END_TEST

START_TEST(test_uninitialised)
{
    run_oclgrind(_i, "--uninitialized --build-options '-O0 -DINTERPRETED'", WATCHED_ROLE);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("OpenCL interpreted");
    TCase *accesses = tcase_create("accesses"), *uninitialised = tcase_create("uninitialised");

    tcase_set_timeout(accesses, 600);
    tcase_add_loop_test(accesses, test_accesses, 0, CASES);
    suite_add_tcase(s, accesses);
    tcase_set_timeout(uninitialised, 1200);
    /* One of the GPU's shape takes up to a minute of a core, eight where rows are 256 wide. */
    tcase_add_loop_test(uninitialised, test_uninitialised, 0,
                        getenv("CHECK_INTERPRETED") ? CASES : CASES_ALWAYS);
    suite_add_tcase(s, uninitialised);
    return s;
}

/* What oclgrind runs. */
static int run_interpreted(int i, bool watch)
{
    Suite *s = suite_create("interpreted");
    TCase *c = tcase_create("one");

    interpreted = i;
    interpreted_watched = watch;
    snprintf(on_device_cache, sizeof on_device_cache, "%s", support_tmpdir());
    setenv("CK_FORK", "no", 1);
    unsetenv("CK_RUN_CASE");
    unsetenv("CK_INCLUDE_TAGS");
    unsetenv("CK_EXCLUDE_TAGS");
    tcase_add_test(c, test_in_interpreter);
    suite_add_tcase(s, c);
    return support_run(s);
}

int main(int argc, char **argv)
{
    bool watch = argc == 3 && strcmp(argv[1], WATCHED_ROLE) == 0;

    if (watch || (argc == 3 && strcmp(argv[1], INTERPRETED) == 0))
        return run_interpreted(atoi(argv[2]), watch);
    return support_run(suite());
}
