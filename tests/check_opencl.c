/* The OpenCL device against the CPU device, bit by bit for quantised weights and within a tolerance
 * for float ones, in both shapes of the kernels (vectors for CPU-type devices, one work-item a row
 * for GPUs), whatever the chunking and whether layers run fused or as single jobs. Runs on the
 * first OpenCL device there is (PoCL in CI); CHECK_OPENCL names another ("opencl:1"). Skips where
 * there is none. */
#include "gpu/driver/driver_probe.h"
#include "gpu/driver/functions.h"
#include "gpu/opencl.h"
#include "gpu/driver/tuning.h"
#include "gpu/shapes/token_shapes.h"
#include "engine/device/device.h"
#include "tests/on_device.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOKENS 40

/* tolerance 0: the same bits. */
static void check_against_cpu(struct tiny_shape shape, enum kv_type kv, int n, double tolerance)
{
    static const int chunks[] = {16, 7, 1, 40}, jobs[] = {0, 1, 0, 1}, splits[] = {0, 0, 0, 2};
    struct on_device s = {shape, kv, 16, 0};
    size_t count = (size_t)n * (size_t)shape.vocab;
    float *want = on_device_forward(&cpu_device_ops, &s, n, 0);

    for (int v = 0; v < 4; v++) {
        float *got;

        s.chunk = chunks[v];
        s.jobs = jobs[v];
        got = on_device_forward(&opencl_device_ops, &s, n, splits[v]);
        if (tolerance == 0)
            ck_assert_msg(memcmp(got, want, count * 4) == 0,
                          "chunks of %d, %s: off by %g (type %d)", s.chunk,
                          s.jobs ? "jobs" : "layers", on_device_difference(got, want, count),
                          (int)shape.type);
        else
            ck_assert_msg(on_device_difference(got, want, count) <= tolerance,
                          "chunks of %d, %s: off by %g (type %d)", s.chunk,
                          s.jobs ? "jobs" : "layers", on_device_difference(got, want, count),
                          (int)shape.type);
        free(got);
    }
    free(want);
}

static const int shapes[] = {2, 1}; /* vectors, work-items */

START_TEST(test_q8_0)
{
    if (!on_device_there(shapes[_i]))
        return;
    check_against_cpu(on_device_shape, KV_F16, TOKENS, 0);
}
END_TEST

/* A driver whose blocking writes end as late as the standard allows: the data are copied aside, and
 * are in the buffer when a later command of the same queue runs or that queue is waited for. What
 * another queue's commands find is not known before. */
static struct late_write {
    cl_command_queue queue;
    cl_mem mem;
    size_t offset, bytes;
    void *data;
} late[256];
static int n_late, n_late_all;
static struct opencl_functions driver;

static void end_late(cl_command_queue queue)
{
    int kept = 0;

    for (int i = 0; i < n_late; i++) {
        if (late[i].queue != queue) {
            late[kept++] = late[i];
            continue;
        }
        driver.EnqueueWriteBuffer(queue, late[i].mem, CL_TRUE, late[i].offset, late[i].bytes,
                                  late[i].data, 0, NULL, NULL);
        free(late[i].data);
    }
    n_late = kept;
}

static cl_int late_write(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset,
                         size_t bytes, const void *data, cl_uint n_events, const cl_event *events,
                         cl_event *event)
{
    if (!blocking || event || n_events || n_late == (int)(sizeof late / sizeof late[0])) {
        end_late(queue);
        return driver.EnqueueWriteBuffer(queue, mem, blocking, offset, bytes, data, n_events,
                                         events, event);
    }
    late[n_late] = (struct late_write){queue, mem, offset, bytes, malloc(bytes)};
    memcpy(late[n_late++].data, data, bytes);
    n_late_all++;
    return CL_SUCCESS;
}

static cl_int late_release(cl_mem mem)
{
    for (int i = 0; i < n_late; i++)
        if (late[i].mem == mem) {
            free(late[i].data);
            late[i--] = late[--n_late];
        }
    return driver.ReleaseMemObject(mem);
}

static cl_int late_launch(cl_command_queue queue, cl_kernel k, cl_uint dims, const size_t *offset,
                          const size_t *global, const size_t *local, cl_uint n_events,
                          const cl_event *events, cl_event *event)
{
    end_late(queue);
    return driver.EnqueueNDRangeKernel(queue, k, dims, offset, global, local, n_events, events,
                                       event);
}

static cl_int late_read(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset,
                        size_t bytes, void *data, cl_uint n_events, const cl_event *events,
                        cl_event *event)
{
    end_late(queue);
    return driver.EnqueueReadBuffer(queue, mem, blocking, offset, bytes, data, n_events, events,
                                    event);
}

static cl_int late_copy(cl_command_queue queue, cl_mem from, cl_mem to, size_t at, size_t to_at,
                        size_t bytes, cl_uint n_events, const cl_event *events, cl_event *event)
{
    end_late(queue);
    return driver.EnqueueCopyBuffer(queue, from, to, at, to_at, bytes, n_events, events, event);
}

static cl_int late_finish(cl_command_queue queue)
{
    end_late(queue);
    return driver.Finish(queue);
}

START_TEST(test_late_writes)
{
    struct opencl_tuning t = {.shape = _i % 2 ? 1 : 2, .no_selftest = true, .copy = _i > 1};
    struct on_device s = {on_device_shape, KV_F16, 16, 0};
    size_t count = (size_t)TOKENS * (size_t)on_device_shape.vocab;
    float *want, *got;

    if (!on_device_there(t.shape))
        return;
    opencl_tune(&t);
    want = on_device_forward(&cpu_device_ops, &s, TOKENS, 0);
    driver = cl;
    cl.EnqueueWriteBuffer = late_write;
    cl.EnqueueNDRangeKernel = late_launch;
    cl.EnqueueReadBuffer = late_read;
    cl.EnqueueCopyBuffer = late_copy;
    cl.Finish = late_finish;
    cl.ReleaseMemObject = late_release;
    got = on_device_forward(&opencl_device_ops, &s, TOKENS, 0);
    cl = driver;
    ck_assert_int_gt(n_late_all, 0);
    ck_assert_msg(memcmp(got, want, count * 4) == 0, "off by %g",
                  on_device_difference(got, want, count));
    free(want), free(got);
}
END_TEST

START_TEST(test_q4_0_window)
{
    struct opencl_tuning t = {.shape = shapes[_i], .copy = true};
    struct tiny_shape s = on_device_shape;

    if (!on_device_there(shapes[_i]))
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

/* Several chunks of keys, a window that begins in the middle of one, heads that are no power of
 * two. */
START_TEST(test_long_context)
{
    struct tiny_shape s = on_device_shape;
    struct on_device one = {s, KV_F16, 100, 0};
    /* the last time a GPU's shape with little local memory */
    struct opencl_tuning t = {.shape = _i < 2 ? shapes[_i] : 1, .small_local = _i == 2};
    float *want, *got;

    if (!on_device_there(t.shape))
        return;
    opencl_tune(&t);
    one.shape.layers = 1;
    one.shape.heads = 6;
    for (int i = 0; i < 4; i++) {
        /* the last token alone: behind 88 keys of its chunk, or the first of one */
        int n = i % 2 ? 513 : 601;

        one.chunk = i % 2 ? 128 : 100;
        one.shape.window = i / 2 * 300;
        want = on_device_forward(&cpu_device_ops, &one, n, 0);
        got = on_device_forward(&opencl_device_ops, &one, n, 0);
        ck_assert_msg(memcmp(got, want, (size_t)n * (size_t)s.vocab * 4) == 0,
                      "window %d, %d tokens: off by %g", one.shape.window, n,
                      on_device_difference(got, want, (size_t)n * (size_t)s.vocab));
        free(want), free(got);
    }
}
END_TEST

/* One token against rows of more blocks than its work-group has local memory for: they are added up
 * in several steps, the last one shorter, quarters of unequal length. */
START_TEST(test_wide_rows)
{
    static const enum dtype types[] = {DTYPE_Q4_0, DTYPE_Q4_K};
    struct opencl_tuning t = {.shape = 1, .tile = 4, .small_local = _i};
    struct on_device one = {on_device_shape, KV_F16, 1, 0};
    float *want, *got;

    if (!on_device_there(1))
        return;
    one.shape.layers = 1;
    one.shape.experts = 2;
    one.shape.heads = 8;
    one.shape.type = types[_i];
    one.shape.hidden = _i ? 17 * 256 : 135 * 32;
    one.shape.ffn = _i ? 9 * 256 : 70 * 32;
    want = on_device_forward(&cpu_device_ops, &one, 2, 0);
    opencl_tune(&t);
    got = on_device_forward(&opencl_device_ops, &one, 2, 0);
    opencl_tune(NULL);
    ck_assert_msg(memcmp(got, want, 2 * (size_t)one.shape.vocab * 4) == 0, "off by %g",
                  on_device_difference(got, want, 2 * (size_t)one.shape.vocab));
    free(want), free(got);
}
END_TEST

/* Every quantised format of a GGUF file, both interleave widths, one token and many; blocks of 256
 * columns want wider matrices. Every combination costs seconds of compiling, so widths go by turns,
 * and tiles are small: what a format means is one piece of code for all of them (formats.cl), and
 * Q8_0 and Q4_0 have tests with whole tiles. */
static const enum dtype formats[] = {
#define FORMAT(id, ...) DTYPE_##id,
#include "engine/file/formats.def"
};
#define FORMATS (int)(sizeof formats / sizeof formats[0])

START_TEST(test_formats)
{
    const struct {
        int shape, width, tile;
    } kinds[] = {{2, _i % 2 ? 16 : 8,
                  formats[_i] == DTYPE_Q6_K || formats[_i] == DTYPE_Q4_K ? 2 : 1},
                 {1, _i % 2 ? 8 : 16, 4}};
    struct tiny_shape s = on_device_shape;
    struct on_device set;
    float *want;

    if (!on_device_there(0))
        return;
    s.layers = 1;
    s.hidden = s.ffn = 256;
    s.heads = 8;
    s.experts = 2;
    s.type = formats[_i];
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct opencl_tuning t = {
            .shape = kinds[k].shape, .no_selftest = true, .tile = kinds[k].tile};

        if (!on_device_there(kinds[k].shape))
            continue;
        opencl_tune(&t);
        s.width = kinds[k].width;
        set = (struct on_device){s, KV_F16, 11, 0};
        want = on_device_forward(&cpu_device_ops, &set, 12, 0);
        for (int i = 0; i < 12 * s.vocab; i++)
            ck_assert(want[i] == want[i]);
        for (int v = 0; v < 2; v++) {
            float *got = on_device_forward(&opencl_device_ops, &set, 12, 0);

            ck_assert_msg(memcmp(got, want, (size_t)(12 * s.vocab) * 4) == 0,
                          "%s, width %d, shape %d, chunks of %d: off by %g",
                          dtype_info(s.type)->word, s.width, kinds[k].shape, set.chunk,
                          on_device_difference(got, want, (size_t)(12 * s.vocab)));
            free(got);
            set.chunk = 1;
        }
        free(want);
    }
}
END_TEST

/* One token's kernels that load sixteen bytes of weights at once. */
START_TEST(test_formats_by_fours)
{
    struct opencl_tuning t = {.shape = 1, .no_selftest = true, .tile = 4, .group = 7};
    struct on_device set = {on_device_shape, KV_F16, 1, 0};
    float *want, *got;

    if (!on_device_there(1))
        return;
    set.shape.layers = 1;
    set.shape.hidden = set.shape.ffn = 256;
    set.shape.heads = 8;
    set.shape.experts = 2;
    set.shape.type = formats[_i];
    set.shape.width = _i % 2 ? 16 : 8;
    opencl_tune(&t);
    want = on_device_forward(&cpu_device_ops, &set, 5, 0);
    got = on_device_forward(&opencl_device_ops, &set, 5, 0);
    ck_assert_msg(memcmp(got, want, (size_t)(5 * set.shape.vocab) * 4) == 0,
                  "%s, width %d: off by %g", dtype_info(formats[_i])->word, set.shape.width,
                  on_device_difference(got, want, (size_t)(5 * set.shape.vocab)));
    free(got), free(want);
}
END_TEST

/* A Q8_0 cache on the device: the CPU's bits, over the border of a chunk of keys, with a window. */
START_TEST(test_q8_0_cache)
{
    struct tiny_shape s = on_device_shape;
    struct on_device one = {s, KV_Q8_0, 100, 0};
    float *want, *got;

    if (!on_device_there(shapes[_i]))
        return;
    check_against_cpu(s, KV_Q8_0, TOKENS, 0);
    one.shape.layers = 1;
    one.shape.head_dim = 64;
    one.shape.window = 200;
    want = on_device_forward(&cpu_device_ops, &one, 301, 0);
    got = on_device_forward(&opencl_device_ops, &one, 301, 0);
    ck_assert_msg(memcmp(got, want, (size_t)301 * (size_t)s.vocab * 4) == 0, "off by %g",
                  on_device_difference(got, want, (size_t)301 * (size_t)s.vocab));
    free(want), free(got);
}
END_TEST

/* The last experts of a layer on the device, the first ones on the CPU: entries that the device
 * computes then begin in the middle of the job's list. One token, few, many: outputs come back row
 * by row, or compact. */
START_TEST(test_last_experts)
{
    static const int chunks[] = {1, 2, 3, 16, 40}, firsts[] = {-1, -4, -5};
    struct on_device s = {on_device_shape, KV_F16, 40, 1};
    size_t count = (size_t)TOKENS * (size_t)on_device_shape.vocab;
    float *want;

    if (!on_device_there(shapes[_i]))
        return;
    want = on_device_forward(&cpu_device_ops, &s, TOKENS, 0);
    for (size_t k = 0; k < sizeof chunks / sizeof chunks[0]; k++)
        for (size_t f = 0; f < sizeof firsts / sizeof firsts[0]; f++) {
            float *got;

            s.chunk = chunks[k];
            got = on_device_forward(&opencl_device_ops, &s, TOKENS, firsts[f]);
            ck_assert_msg(memcmp(got, want, count * 4) == 0,
                          "first %d of 6 experts by the CPU, chunks of %d: off by %g", -firsts[f],
                          s.chunk, on_device_difference(got, want, count));
            free(got);
        }
    free(want);
}
END_TEST

/* Where memory is shared every matrix is used in place and only norms, biases and routers are
 * copied; where it is not, every byte passes through the pinned halves while the device computes
 * with what is there already. The books agree with both, and with `footprint`. */
START_TEST(test_shared_and_own_memory)
{
    struct opencl_tuning tuning = {.copy = _i};
    struct on_device set = {on_device_shape, KV_F16, 16, 0};
    struct tiny_model *t = tiny_model_new(&set.shape);
    struct device_config c = on_device_config(t, &set);
    struct device_stats open, now, want;
    struct block_id ids[2 * 7 + 1];
    struct device *d, *cpu;
    uint64_t matrices = 0;
    float x[16 * 64], y[16 * 64], z[16 * 64];
    unsigned seed = 5;
    struct error e;
    int n = 0, resident = 0, pieces = 0;

    if (!on_device_there(0))
        return;
    opencl_tune(&tuning);
    for (int l = 0; l < 2; l++) {
        const struct layer_weights *w = &t->model.layers[l];

        ids[n++] = (struct block_id){BLOCK_ATTENTION, l, 0};
        matrices += w->q.bytes + w->k.bytes + w->v.bytes + w->o.bytes;
        for (int k = 0; k < 6; k++) {
            ids[n++] = (struct block_id){BLOCK_EXPERT, l, k};
            matrices += w->experts[k].gate.bytes + w->experts[k].up.bytes +
                        w->experts[k].down.bytes;
        }
    }
    ids[n++] = (struct block_id){BLOCK_HEAD, 0, 0};
    matrices += t->model.head.bytes;
    for (int i = 0; i < 16 * 64; i++)
        x[i] = tiny_random(&seed);
    ck_assert_msg(opencl_device_ops.footprint(&c, ids, n, &want, &e) == 0, "%s", e.text);
    ck_assert_int_eq(opencl_device_ops.open(&d, &c, &e), 0);
    ck_assert_int_eq(cpu_device_ops.open(&cpu, &c, &e), 0);
    opencl_device_ops.stats(d, &open);
    ck_assert_uint_eq(open.scratch_bytes, want.scratch_bytes);
    ck_assert_uint_eq(open.staging_bytes, want.staging_bytes);
    ck_assert_int_eq(open.staging_bytes > 0, _i);
    ck_assert_int_eq(opencl_device_ops.state_in_place(d, cpu), !_i); /* keys and values, too */
    struct attention_job host = {.layer = 0, .rows = 16, .pos = 0, .x = x, .y = z},
                         job = {.layer = 0, .rows = 16, .pos = 0, .x = x, .y = y};

    ck_assert_int_eq(cpu_device_ops.attention(cpu, &host, &e), 0);
    ck_assert_int_eq(cpu_device_ops.wait(cpu, &e), 0);
    /* each job in flight is met by pieces of the next blocks */
    for (int rc; resident < n;) {
        if (resident > 0)
            ck_assert_msg(opencl_device_ops.attention(d, &job, &e) == 0, "%s", e.text);
        for (int k = 0; k < 5 && resident < n; k++, pieces++) {
            ck_assert_msg((rc = opencl_device_ops.block_put(d, ids[resident], 3000, &e)) >= 0, "%s",
                          e.text);
            resident += rc;
        }
        ck_assert_msg(opencl_device_ops.wait(d, &e) == 0, "%s", e.text);
        if (resident > 5)
            ck_assert_mem_eq(y, z, sizeof y);
        memset(y, 0, sizeof y);
    }
    ck_assert_int_ge(pieces, _i ? (int)(matrices / 3000) : n);
    opencl_device_ops.stats(d, &now);
    ck_assert_uint_eq(now.weight_bytes, want.weight_bytes);
    ck_assert_uint_gt(now.weight_bytes, matrices);
    ck_assert_uint_eq(now.kv_bytes, want.kv_bytes);
    ck_assert_uint_eq(now.shared_bytes, want.shared_bytes);
    ck_assert_uint_eq(now.shared_bytes, _i ? 0 : matrices);
    uint64_t jobs = now.jobs - open.jobs;

    ck_assert_uint_eq(now.uploaded_bytes - open.uploaded_bytes,
                      now.weight_bytes - now.shared_bytes + jobs * sizeof x);
    ck_assert_uint_eq(now.scratch_bytes, open.scratch_bytes);
    /* Layers that lie wholly on the device: seven kernels each for a token (ten of a CPU's), and
     * nothing but the stream and the choices passes to and fro. */
    uint64_t launches = opencl_launches(d), up = now.uploaded_bytes, down = now.downloaded_bytes;
    int experts[4];
    float weights[4];
    struct layers_job run = {.first = 0,
                             .last = 2,
                             .rows = 1,
                             .pos = 16,
                             .x = z,
                             .experts = experts,
                             .weights = weights};

    ck_assert_msg(opencl_device_ops.layers(d, &run, &e) == 0 && opencl_device_ops.wait(d, &e) == 0,
                  "%s", e.text);
    opencl_device_ops.stats(d, &now);
    /* the end of a layer is the next one's norm */
    ck_assert_uint_eq(opencl_launches(d) - launches, 2 * 10 + 1);
    ck_assert_uint_eq(now.uploaded_bytes - up, 64 * 4);
    ck_assert_uint_eq(now.downloaded_bytes - down, 64 * 4 + sizeof experts + sizeof weights);
    for (int i = 0; i < n; i++)
        opencl_device_ops.block_drop(d, ids[i]);
    opencl_device_ops.stats(d, &now);
    ck_assert_uint_eq(now.weight_bytes + now.kv_bytes + now.shared_bytes, 0);
    opencl_device_ops.close(d);
    cpu_device_ops.close(cpu);
    tiny_model_free(t);
}
END_TEST

START_TEST(test_float_types)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    struct tiny_shape s = on_device_shape;

    struct opencl_tuning t = {.shape = shapes[_i], .tile = 2};

    if (!on_device_there(shapes[_i]))
        return;
    opencl_tune(&t);
    for (int i = 0; i < 3; i++) {
        s.type = types[i];
        check_against_cpu(s, KV_F32, 20, 1e-5);
    }
}
END_TEST

/* More experts than one launch can have bound, in memory that is the host's and of the device's
 * own: they are joined there. And a head of eight. */
START_TEST(test_many_experts)
{
    struct tiny_shape s = on_device_shape;

    s.experts = 37;
    s.layers = 1;
    s.head_dim = 16;
    for (int copy = 0; copy < 2; copy++) {
        struct opencl_tuning t = {.shape = shapes[_i], .copy = copy};

        if (!on_device_there(shapes[_i]))
            return;
        opencl_tune(&t);
        check_against_cpu(s, KV_F16, TOKENS, 0);
    }
}
END_TEST

/* One token through a joined layer: nothing goes to the device but its row. */
static void run_joined(struct device *d, const float *x, float *z)
{
    int experts[3];
    float weights[3];
    struct layers_job run = {.last = 1, .rows = 1, .x = z, .experts = experts, .weights = weights};
    struct device_stats before, after;
    struct error e;

    memcpy(z, x, 64 * sizeof *z);
    opencl_device_ops.stats(d, &before);
    ck_assert_msg(opencl_device_ops.layers(d, &run, &e) == 0 && opencl_device_ops.wait(d, &e) == 0,
                  "%s", e.text);
    opencl_device_ops.stats(d, &after);
    ck_assert_uint_eq(after.uploaded_bytes - before.uploaded_bytes, 64 * 4);
}

/* Joined experts, in the device's own memory and in the host's, and with a shared one that is like
 * them: one leaves and comes back, all leave. */
START_TEST(test_joined_experts)
{
    static const struct layer_shape shared = {
        .mixer = {.heads = 4, .kv_heads = 2, .key_dim = 32, .rope_dims = 32},
        .ffn = {.experts = 37,
                .used = 2,
                .width = 96,
                .shared = 1,
                .shared_width = 96,
                .shared_gate = SHARED_SIGMOID,
                .router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
        .norms = {.kind = NORM_RMS, .before = true, .eps = 1e-5f}};
    struct opencl_tuning tuning = {.shape = 1, .copy = _i % 2 == 0, .tile = 4};
    struct on_device set = {on_device_shape, KV_F16, 8, 0};
    struct device_stats stats, first;
    struct tiny_model *t;
    struct device_config c;
    struct device *d;
    struct error e;
    float x[64], z[3][64];
    unsigned seed = 5;
    int rc;

    if (!on_device_there(1))
        return;
    set.shape.layers = 1;
    set.shape.experts = 37;
    set.shape.shapes = _i < 2 ? NULL : &shared;
    set.shape.bias = _i < 2;
    t = tiny_model_new(&set.shape);
    c = on_device_config(t, &set);
    opencl_tune(&tuning);
    ck_assert_msg(opencl_device_ops.open(&d, &c, &e) == 0, "%s", e.text);
    on_device_put_all(&opencl_device_ops, d, &t->model.hp);
    for (int i = 0; i < 64; i++)
        x[i] = tiny_random(&seed);
    run_joined(d, x, z[0]);
    opencl_device_ops.stats(d, &first);
    for (int i = 1; i < 3; i++) {
        const struct block_id id = {BLOCK_EXPERT, 0, 7 * i};

        opencl_device_ops.block_drop(d, id);
        opencl_device_ops.stats(d, &stats);
        ck_assert_uint_lt(stats.weight_bytes, first.weight_bytes);
        while ((rc = opencl_device_ops.block_put(d, id, 1000, &e)) == 0)
            ;
        ck_assert_msg(rc == 1, "%s", e.text);
        run_joined(d, x, z[i]);
        ck_assert_msg(memcmp(z[i], z[0], sizeof z[0]) == 0, "expert %d came back", 7 * i);
    }
    opencl_device_ops.stats(d, &stats);
    ck_assert_uint_eq(stats.weight_bytes, first.weight_bytes);
    ck_assert_int_eq(stats.failures, 0);
    for (int i = 0; i < t->model.hp.n_experts; i++)
        opencl_device_ops.block_drop(d, (struct block_id){BLOCK_EXPERT, 0, i});
    opencl_device_ops.close(d);
    opencl_tune(NULL);
    tiny_model_free(t);
}
END_TEST

static __typeof__(clSetKernelArg) *set_kernel_arg;
static int args_set;

static cl_int CL_API_CALL count_arg(cl_kernel k, cl_uint i, size_t size, const void *value)
{
    args_set++;
    return set_kernel_arg(k, i, size, value);
}

/* Arguments that a token's launches set; z: its row. */
static int args_of_token(struct device *d, int layers, int pos, const float *x, float *z)
{
    int experts[2 * 3];
    float weights[2 * 3];
    struct layers_job run = {
        .last = layers, .rows = 1, .pos = pos, .x = z, .experts = experts, .weights = weights};
    struct error e;

    memcpy(z, x, 64 * sizeof *z);
    args_set = 0;
    cl.SetKernelArg = count_arg;
    ck_assert_msg(opencl_device_ops.layers(d, &run, &e) == 0 && opencl_device_ops.wait(d, &e) == 0,
                  "%s", e.text);
    cl.SetKernelArg = set_kernel_arg;
    return args_set;
}

/* A kernel's arguments are set where they change; all of them, once, behind a buffer's end, whose
 * handle another one may get. */
START_TEST(test_arguments)
{
    struct opencl_tuning tuning = {.shape = 1, .copy = true, .tile = 4, .no_replay = true};
    struct on_device set = {on_device_shape, KV_F16, 8, 0};
    const struct block_id id = {BLOCK_EXPERT, 1, 5};
    struct tiny_model *t;
    struct device_config c;
    struct device *d;
    struct error e;
    float x[64], z[2][64];
    unsigned seed = 5;
    int n[4], layers = 3, rc;

    if (!on_device_there(1))
        return;
    set.shape.layers = layers;
    set.shape.experts = 37;
    t = tiny_model_new(&set.shape);
    c = on_device_config(t, &set);
    opencl_tune(&tuning);
    ck_assert_msg(opencl_device_ops.open(&d, &c, &e) == 0, "%s", e.text);
    set_kernel_arg = cl.SetKernelArg;
    on_device_put_all(&opencl_device_ops, d, &t->model.hp);
    for (int i = 0; i < 64; i++)
        x[i] = tiny_random(&seed);
    n[0] = args_of_token(d, layers, 0, x, z[0]);
    n[1] = args_of_token(d, layers, 1, x, z[1]);
    n[2] = args_of_token(d, layers, 1, x, z[0]);
    ck_assert_msg(memcmp(z[0], z[1], sizeof z[0]) == 0, "the same token again");
    opencl_device_ops.block_drop(d, id);
    while ((rc = opencl_device_ops.block_put(d, id, 1000, &e)) == 0)
        ;
    ck_assert_msg(rc == 1, "%s", e.text);
    n[3] = args_of_token(d, layers, 1, x, z[0]);
    ck_assert_msg(memcmp(z[0], z[1], sizeof z[0]) == 0, "behind a buffer's end");
    if (getenv("CHECK_LOG"))
        fprintf(stderr, "arguments set: %d, %d, %d, %d\n", n[0], n[1], n[2], n[3]);
    ck_assert_int_lt(n[1], 60 * layers); /* of 230 a layer */
    ck_assert_int_le(n[2], n[1]);
    ck_assert_int_gt(n[3], n[2] + 100);
    opencl_device_ops.close(d);
    opencl_tune(NULL);
    tiny_model_free(t);
}
END_TEST

static struct tiny_shape small_shape(void)
{
    struct tiny_shape s = on_device_shape;

    s.layers = 1;
    s.context = 64;
    return s;
}

static char last_log[512];

static void remember(void *ctx, const char *line)
{
    (void)ctx;
    if (strstr(line, "wrong values") || strstr(line, "is slower than"))
        snprintf(last_log, sizeof last_log, "%s", line);
}

/* Opened with one kernel miscompiled: what needs it must be refused, the rest kept, and the kernel
 * named, also from the cached verdict. */
static void check_broken(const char *kernel, enum dtype type, bool attention, bool experts,
                         bool head)
{
    /* those of one token are only in the GPU's shape, and others do their work */
    struct opencl_tuning tuning = {
        .broken = kernel, .tile = 1, .shape = strncmp(kernel, "token", 5) == 0 ? 1 : 0};
    struct tiny_shape s = small_shape();
    struct on_device set = {s, KV_F16, 16, 0};
    struct tiny_model *t;
    struct device_config c;

    set.shape.type = type;
    t = tiny_model_new(&set.shape);
    c = on_device_config(t, &set);
    c.log = remember;
    opencl_tune(&tuning);
    for (int again = 0; again < 2; again++) {
        struct device *d;
        struct error e;

        last_log[0] = '\0';
        ck_assert_msg(opencl_device_ops.open(&d, &c, &e) == 0, "%s", e.text);
        ck_assert_msg(opencl_device_ops.supports(d, &t->model.hp.common, BLOCK_ATTENTION, type) ==
                          attention,
                      "%s: attention", kernel);
        ck_assert_msg(opencl_device_ops.supports(d, &t->model.hp.common, BLOCK_EXPERT, type) ==
                          experts,
                      "%s: experts", kernel);
        ck_assert_msg(opencl_device_ops.supports(d, NULL, BLOCK_HEAD, type) == head, "%s: head",
                      kernel);
        if (strcmp(kernel, "none") != 0)
            ck_assert_msg(strstr(last_log, strncmp(kernel, "attend", 6) == 0 ? "attend" : kernel) !=
                              NULL,
                          "%s: log says \"%s\"", kernel, last_log);
        opencl_device_ops.close(d);
    }
    tiny_model_free(t);
}

START_TEST(test_wrong_kernels)
{
    if (!on_device_there(0))
        return;
    check_broken("none", DTYPE_Q8_0, true, true, true);
    check_broken("norm", DTYPE_Q8_0, false, false, false);
    check_broken("matmul", DTYPE_Q8_0, false, true, false);
    check_broken("down", DTYPE_Q8_0, true, false, true);
    check_broken("attend_merge", DTYPE_Q8_0, false, true, true);
    check_broken("matmul", DTYPE_F32, false, true, false);
    check_broken("token_attend", DTYPE_Q8_0, true, true, true);
    check_broken("token_route", DTYPE_Q8_0, true, true, true);
    check_broken("token_gate_up", DTYPE_Q8_0, true, true, true);
    check_broken("token_down", DTYPE_Q8_0, true, true, true);
    check_broken("token_output", DTYPE_Q8_0, true, true, true);
}
END_TEST

/* A program that was damaged on the disk is compiled again, and the numbers stay. */
START_TEST(test_damaged_cache)
{
    struct on_device set = {small_shape(), KV_F16, 4, 0};
    char command[2000], before[200];
    float *want, *got;

    if (!on_device_there(0))
        return;
    want = on_device_forward(&opencl_device_ops, &set, 4, 0);
    snprintf(before, sizeof before, "%.180s/damaged", on_device_cache);
    snprintf(command, sizeof command,
             "mkdir -p %s && cp %s/*.bin %s/*.verdict %s/ && cd %s && for f in *; do head -c 100 "
             "$f > t; printf garbage >> t; mv t $f; done",
             before, on_device_cache, on_device_cache, before, before);
    ck_assert_int_eq(system(command), 0);
    snprintf(on_device_cache, sizeof on_device_cache, "%s", before);
    got = on_device_forward(&opencl_device_ops, &set, 4, 0);
    ck_assert_mem_eq(got, want, sizeof(float) * 4 * (size_t)set.shape.vocab);
    free(want), free(got);
}
END_TEST

/* Every OpenCL call fails once, then for good: open and jobs give an error with a text, nothing
 * crashes, and a device that failed once computes the right numbers when asked again. */
START_TEST(test_failures)
{
    struct on_device set = {small_shape(), KV_F16, 16, 0};
    struct tiny_model *t = tiny_model_new(&set.shape);
    struct device_config c = on_device_config(t, &set);
    float x[16 * 64], y[16 * 64], want[16 * 64], weights[32];
    int experts[32], ends = 0;
    unsigned seed = 4;

    if (!on_device_there(0))
        return;
    for (int i = 0; i < 16 * 64; i++)
        x[i] = tiny_random(&seed);
    for (long n = -1; ends < 2; n++) {
        struct device *d = NULL;
        struct error e = {0};
        bool lost = n % 2, failed = false;

        opencl_fail_after(n, lost);
        if (opencl_device_ops.open(&d, &c, &e) == 0) {
            struct layers_job j = {.first = 0,
                                   .last = 1,
                                   .rows = 16,
                                   .pos = 0,
                                   .x = y,
                                   .experts = experts,
                                   .weights = weights};
            int rc = 1;

            for (int k = -1; k < t->model.hp.n_experts && rc == 1; k++)
                while ((rc = opencl_device_ops.block_put(d,
                                                         (struct block_id){k < 0 ? BLOCK_ATTENTION
                                                                                 : BLOCK_EXPERT,
                                                                           0, k < 0 ? 0 : k},
                                                         4096, &e)) == 0)
                    ;
            memcpy(y, x, sizeof x);
            if (rc == 1 && opencl_device_ops.layers(d, &j, &e) == 0 &&
                opencl_device_ops.wait(d, &e) == 0) {
                if (n < 0)
                    memcpy(want, y, sizeof y);
                ck_assert_mem_eq(y, want, sizeof y);
                ends += n >= 0;
            } else {
                failed = true;
                /* the driver refused once: the second try is whole */
                if (rc == 1 && !lost) {
                    memcpy(y, x, sizeof x);
                    ck_assert_msg(opencl_device_ops.layers(d, &j, &e) == 0 &&
                                      opencl_device_ops.wait(d, &e) == 0,
                                  "call %ld: %s", n, e.text);
                    ck_assert_mem_eq(y, want, sizeof y);
                }
            }
        } else {
            failed = true;
            ck_assert_ptr_null(d);
        }
        if (failed)
            ck_assert_msg(e.code < 0 && strstr(e.text, "OpenCL"), "call %ld: code %d, \"%s\"", n,
                          e.code, e.text);
        opencl_fail_after(-1, false);
        opencl_device_ops.close(d);
        ck_assert_int_lt(n, 3000);
    }
    tiny_model_free(t);
}
END_TEST

/* Prompts of float models by CLBlast: near the CPU's numbers; found out when it is wrong, and
 * replaced by our own kernels. */
START_TEST(test_clblast)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    struct opencl_tuning right = {.blas = 2}, broken = {.blas = 2, .broken = "sgemm"};

    if (!on_device_there(0))
        return;
    for (int i = 0; i < 3; i++) {
        struct on_device set = {on_device_shape, KV_F32, 40, 0};
        float *want, *got;

        set.shape.type = types[i];
        set.shape.experts = 2; /* so that both get enough rows */
        want = on_device_forward(&cpu_device_ops, &set, TOKENS, 0);
        for (int wrong = 0; wrong < (i ? 1 : 2); wrong++) {
            double worst;

            opencl_tune(wrong ? &broken : &right);
            got = on_device_forward(&opencl_device_ops, &set, TOKENS, 0);
            worst = on_device_difference(got, want, (size_t)TOKENS * (size_t)set.shape.vocab);
            ck_assert_msg(worst <= 2e-5, "type %d%s: off by %g", (int)types[i],
                          wrong ? ", wrong Sgemm" : "", worst);
            free(got);
        }
        free(want);
    }
}
END_TEST

/* KV rows go to the CPU device and come back; memory returns to what it was when blocks are
 * dropped. */
START_TEST(test_kv_and_memory)
{
    for (int kv = 0; kv < 3; kv++) {
        struct on_device set = {small_shape(), (enum kv_type)kv, 20, 0};
        struct tiny_model *t = tiny_model_new(&set.shape);
        struct device_config c = on_device_config(t, &set);
        size_t token = (size_t)(kv == KV_Q8_0 ? 2 * 68 : kv == KV_F16 ? 4 * 64 : 8 * 64);
        unsigned char *a = calloc(20, token), *b = calloc(20, token);
        float x[20 * 64], y[20 * 64], z[64], again[64];
        struct device_stats before, after;
        struct device *gpu, *cpu;
        unsigned seed = 5;
        struct error e;

        if (!on_device_there(0))
            return;
        for (int i = 0; i < 20 * 64; i++)
            x[i] = tiny_random(&seed);
        ck_assert_int_eq(opencl_device_ops.open(&gpu, &c, &e), 0);
        ck_assert_int_eq(cpu_device_ops.open(&cpu, &c, &e), 0);
        opencl_device_ops.stats(gpu, &before);
        on_device_put_all(&opencl_device_ops, gpu, &t->model.hp);
        struct attention_job job = {.layer = 0, .rows = 20, .pos = 0, .x = x, .y = y},
                             next = {.layer = 0, .rows = 1, .pos = 20, .x = x, .y = z};
        struct kv_move read = {.layer = 0, .pos = 0, .count = 20, .data = a, .write = false},
                       write = {.layer = 0, .pos = 0, .count = 20, .data = a, .write = true},
                       back = {.layer = 0, .pos = 3, .count = 17, .data = b, .write = false};

        ck_assert_int_eq(cpu_device_ops.attention(cpu, &job, &e), 0);
        ck_assert_int_eq(cpu_device_ops.kv_rows(cpu, &read, &e), 0);
        ck_assert_int_eq(opencl_device_ops.kv_rows(gpu, &write, &e), 0);
        ck_assert_int_eq(opencl_device_ops.kv_rows(gpu, &back, &e), 0);
        ck_assert_mem_eq(a + 3 * token, b, 17 * token);
        ck_assert_int_eq(cpu_device_ops.attention(cpu, &next, &e), 0);
        memcpy(again, z, sizeof again);
        ck_assert_int_eq(opencl_device_ops.attention(gpu, &next, &e), 0);
        ck_assert_int_eq(opencl_device_ops.wait(gpu, &e), 0);
        ck_assert_mem_eq(again, z, sizeof again);
        opencl_device_ops.stats(gpu, &after);
        ck_assert_uint_gt(after.kv_bytes, 0);
        for (int k = -1; k < t->model.hp.n_experts; k++)
            opencl_device_ops.block_drop(
                gpu, (struct block_id){k < 0 ? BLOCK_ATTENTION : BLOCK_EXPERT, 0, k < 0 ? 0 : k});
        opencl_device_ops.block_drop(gpu, (struct block_id){BLOCK_HEAD, 0, 0});
        opencl_device_ops.stats(gpu, &after);
        ck_assert_uint_eq(after.weight_bytes, before.weight_bytes);
        ck_assert_uint_eq(after.shared_bytes, before.shared_bytes);
        ck_assert_uint_eq(after.kv_bytes, before.kv_bytes);
        ck_assert_uint_eq(after.scratch_bytes, before.scratch_bytes);
        /* not there any more: an error, no crash */
        ck_assert_int_lt(opencl_device_ops.attention(gpu, &next, &e), 0);
        opencl_device_ops.close(gpu);
        cpu_device_ops.close(cpu);
        free(a), free(b);
        tiny_model_free(t);
    }
}
END_TEST

START_TEST(test_selection)
{
    struct on_device set = {small_shape(), KV_F16, 4, 0};
    struct tiny_model *t = tiny_model_new(&set.shape);
    struct device_config c = on_device_config(t, &set);
    struct device *d;
    struct error e = {0};

    if (!on_device_there(0))
        return;
    c.selector = "opencl:99";
    ck_assert_int_eq(opencl_device_ops.open(&d, &c, &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "opencl:99"));
    c.selector = "opencl:x";
    ck_assert_int_eq(opencl_device_ops.open(&d, &c, &e), ERR_USAGE);
    c.selector = on_device_selector();
    ck_assert_int_eq(opencl_device_ops.open(&d, &c, &e), 0);
    ck_assert(opencl_device_ops.supports(d, &t->model.hp.common, BLOCK_ATTENTION, DTYPE_Q8_0));
    /* the model has none, so nothing was compiled */
    ck_assert(!opencl_device_ops.supports(d, &t->model.hp.common, BLOCK_EXPERT, DTYPE_Q5_0));
    opencl_device_ops.close(d);
    tiny_model_free(t);
}
END_TEST

/* No platform, an empty platform list: one clear line and no device (a process of its own, since
 * loaders remember). */
START_TEST(test_no_platform)
{
    struct device_info info[2];
    char why[256] = "";

    setenv("OCL_ICD_VENDORS", "/nonexistent/", 1);
    setenv("OPENCL_VENDOR_PATH", "/nonexistent/", 1);
    if (opencl_device_ops.probe(info, 2, why, sizeof why) == 0)
        ck_assert_msg(strstr(why, "OpenCL") || strstr(why, "permission"), "%s", why);
}
END_TEST

/* A folder of drivers: the machine's own and a broken one of ours. */
static void make_vendors(char *folder, size_t size, const char *broken, bool own)
{
    char path[4400], library[4200];
    FILE *f;

    snprintf(folder, size, "%.200s/vendors-%s", support_tmpdir(), broken);
    snprintf(path, sizeof path, "mkdir -p %s%s%s", folder,
             own ? " && cp /etc/OpenCL/vendors/*.icd " : "", own ? folder : "");
    ck_assert_int_eq(system(path), 0);
    snprintf(library, sizeof library, "%s/%s/tests/icd_%s.so", support_root(),
             getenv("CHECK_BUILD") ? getenv("CHECK_BUILD") : "build/release", broken);
    ck_assert_msg(access(library, R_OK) == 0, "%s is not built", library);
    snprintf(path, sizeof path, "%s/%s.icd", folder, broken);
    ck_assert_ptr_nonnull(f = fopen(path, "w"));
    fprintf(f, "%s\n", library);
    fclose(f);
}

/* A driver that crashes takes only the child along: it is named, the others are used, and the
 * second time it is remembered. */
START_TEST(test_crashing_driver)
{
    struct device_info info[DEVICE_MAX];
    char folder[300], why[512];
    struct driver_probe p = {.program = "/proc/self/exe",
                             .vendors = folder,
                             .cache_dir = on_device_cache,
                             .seconds = 100};
    /* in this process the loader's list is fixed by this: what follows shows in the notes */
    bool any = on_device_there(0);

    for (int again = 0; again < 2; again++) {
        make_vendors(folder, sizeof folder, "crash", any);
        if (again)
            p.program = "/nonexistent"; /* nothing can be tried, so what is known was kept */
        driver_probe_set(&p);
        opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why);
        ck_assert_msg(strstr(why, "icd_crash.so") && strstr(why, "crashed") &&
                          strstr(why, "left out"),
                      "\"%s\"", why);
        ck_assert(strstr(why, "pocl") == NULL);
    }
}
END_TEST

/* The same seen by a process that has not used OpenCL yet: the good driver is there, the bad one is
 * not loaded. */
START_TEST(test_good_driver_beside_a_bad_one)
{
    struct device_info info[DEVICE_MAX];
    char folder[300], why[512];
    struct driver_probe p = {.program = "/proc/self/exe",
                             .vendors = folder,
                             .cache_dir = on_device_cache,
                             .seconds = 100};
    int n;

    if (access("/etc/OpenCL/vendors/pocl.icd", R_OK) != 0)
        return;
    make_vendors(folder, sizeof folder, "crash", true);
    driver_probe_set(&p);
    n = opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why);
    ck_assert_msg(n >= 1 && strstr(why, "crashed"), "%d devices, \"%s\"", n, why);
}
END_TEST

/* A driver that never answers is left after the time set. */
START_TEST(test_hanging_driver)
{
    struct device_info info[DEVICE_MAX];
    char folder[300], why[512];
    struct driver_probe p = {.program = "/proc/self/exe", .vendors = folder, .seconds = 1};

    make_vendors(folder, sizeof folder, "hang", false);
    driver_probe_set(&p);
    ck_assert_int_eq(opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why), 0);
    ck_assert_msg(strstr(why, "icd_hang.so") && strstr(why, "did not answer within 1 s"), "\"%s\"",
                  why);
}
END_TEST

/* --microbench: each launch of a pass is the one that the list of gpu/pass_work.h describes (what
 * it cannot match it refuses), layers fused or not; a prediction has as many. */
static int launches_of(const struct device_kernel *k, int n, int pass, const char *name)
{
    int sum = 0;

    for (int i = 0; i < n; i++) {
        ck_assert_msg(k[i].seconds > 0 && k[i].launches > 0, "%s: %g s", k[i].name, k[i].seconds);
        if (k[i].pass == pass && (!name || strcmp(k[i].name, name) == 0))
            sum += k[i].launches;
    }
    return sum;
}

START_TEST(test_microbench)
{
    static const struct device_pass passes[] = {{1, 100}, {1, 500}, {40, 0}};
    struct on_device set = {on_device_shape, KV_F16, 1, 0};
    struct opencl_tuning tuning = {.shape = shapes[_i / 2], .tile = 4};
    static const struct layer_shape single = {
        .mixer = {.heads = 4, .kv_heads = 2, .key_dim = 32, .rope_dims = 32, .bias = true},
        .ffn = {.experts = 6,
                .used = 2,
                .width = 96,
                .router = {.kind = ROUTER_SPARSEMIXER, .jitter = 0.1f}},
        .norms = {.kind = NORM_LAYER, .eps = 1e-5f, .after = true}};
    const struct layer_shape singles[2] = {single, single};
    struct device_kernel measured[100], predicted[100];
    struct device_kernels about;
    struct error e;

    if (!on_device_there(shapes[_i / 2]))
        return;
    if (_i % 2) /* layers normed behind their sums run as single jobs */
        set.shape.shapes = singles;
    struct tiny_model *t = tiny_model_new(&set.shape);
    struct device_config c = on_device_config(t, &set);

    opencl_tune(&tuning);
    int n = opencl_device_ops.kernels(&c, NULL, passes, 3, measured, 100, &about, &e);

    ck_assert_msg(n > 0, "%s", e.text);
    ck_assert(!about.predicted && about.layers == 2 && about.of_layers == 2);
    ck_assert_double_gt(about.read_rate, 0);
    if (_i % 2 == 0)
        ck_assert_int_eq(launches_of(measured, n, 0, NULL),
                         shapes[_i / 2] == 1 ? 6 + 5 + 2 : 2 * 10 + 1 + 2);
    ck_assert_int_eq(launches_of(measured, n, 0,
                                 _i % 2 == 0 && shapes[_i / 2] == 1 ? "token_gate_up" : "gate_up"),
                     2);
    ck_assert_int_eq(launches_of(measured, n, 2, "route"), _i % 2 ? 0 : 2);

    int m = opencl_device_ops.kernels(&c, "h200", passes, 3, predicted, 100, &about, &e);

    ck_assert_msg(m > 0, "%s", e.text);
    ck_assert(about.predicted && about.layers == 2);
    for (int p = 0; p < 3 && shapes[_i / 2] == 1; p++)
        ck_assert_int_eq(launches_of(predicted, m, p, NULL), launches_of(measured, n, p, NULL));
    ck_assert_int_eq(opencl_device_ops.kernels(&c, "none such", passes, 3, predicted, 100, &about,
                                               &e),
                     ERR_USAGE);
    tiny_model_free(t);
}
END_TEST

/* Forms of the kernels for many tokens, chosen at the first opening and kept; the matrix engine by
 * local memory in its place: its fragments are those of the engine. */
START_TEST(test_forms)
{
    static const struct {
        enum gemm_form form;
        enum dtype type;
        int engine;
        bool small_local;
    } cases[] = {
        {GEMM_EIGHTS, DTYPE_Q4_0, 0, false}, {GEMM_EIGHTS, DTYPE_Q4_K, 0, true},
        {GEMM_EIGHTS, DTYPE_Q6_K, 0, false}, {GEMM_ENGINE, DTYPE_Q4_0, 1, false},
        {GEMM_ENGINE, DTYPE_Q4_K, 1, true},  {GEMM_ENGINE, DTYPE_Q6_K, 1, false},
        {GEMM_ENGINE, DTYPE_Q2_K, 1, false}, {GEMM_ENGINE, DTYPE_Q8_0, 8, false},
        {GEMM_ENGINE, DTYPE_Q6_K, 8, false}, {GEMM_ENGINE, DTYPE_Q4_K, 16, false},
        {GEMM_ENGINE, DTYPE_Q6_K, 16, true},
    };
    enum gemm_form form = cases[_i].form;
    struct opencl_tuning t = {.shape = 1,
                              .tile = cases[_i].engine > 1 ? 16 : 8,
                              .form = form,
                              .engine = cases[_i].engine,
                              .small_local = cases[_i].small_local};
    struct tiny_shape s = on_device_shape;
    char command[600];

    if (!on_device_there(1))
        return;
    opencl_tune(&t);
    s.type = cases[_i].type;
    s.hidden = s.ffn = dtype_info(s.type)->block > 32 ? 256 : 96; /* K-quants have blocks of 256 */
    s.heads = s.hidden > 96 ? 8 : 4;
    s.width = s.type == DTYPE_Q6_K ? 8 : 16;
    s.layers = 1;
    check_against_cpu(s, KV_F16, 20, 0);
    snprintf(command, sizeof command, "grep -qx 'form %s %s' %.400s/*.verdict",
             dtype_info(s.type)->word, form == GEMM_EIGHTS ? "eights" : "engine", on_device_cache);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* A kernel that takes longer than those that it replaces is named and not used, which is kept. */
START_TEST(test_slower_kernels)
{
    static const struct {
        const char *joined, *apart;
        int launches;
        const char *slower; /* NULL: that one alone */
    } cases[] = {{"token_gate_up", "gate_up", 6 + 5 + 2, NULL},
                 {"token_down", "down", 6 + 6 + 1 + 2, NULL},
                 {"token_output", "token_route", 7 + 6 + 2, NULL},
                 {"token_route", "route", 8 + 7 + 2, "token_route token_output"},
                 {"token_attend", "attend", 8 + 7 + 2, NULL}};
    static const struct device_pass pass = {1, 100};

    if (!on_device_there(1))
        return;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const char *name = cases[i / 2].joined, *slower = cases[i / 2].slower;
        struct opencl_tuning tuning = {.shape = 1, .tile = 4, .slower = slower ? slower : name};
        struct on_device set = {on_device_shape, KV_F16, 1, 0};
        struct tiny_model *t = tiny_model_new(&set.shape);
        struct device_config c = on_device_config(t, &set);
        struct device_kernel k[100];
        struct device_kernels about;
        struct error e;

        last_log[0] = '\0';
        c.log = remember;
        opencl_tune(&tuning);

        int n = opencl_device_ops.kernels(&c, NULL, &pass, 1, k, 100, &about, &e);

        ck_assert_msg(n > 0, "%s", e.text);
        ck_assert_msg(slower || strstr(last_log, name) != NULL, "%s: \"%s\"", name, last_log);
        ck_assert_int_eq(launches_of(k, n, 0, name), 0);
        ck_assert_int_eq(launches_of(k, n, 0, cases[i / 2].apart), 2);
        ck_assert_int_eq(launches_of(k, n, 0, NULL), cases[i / 2].launches);
        tiny_model_free(t);
    }
}
END_TEST

/* ---- Shapes of the work-groups for one token ---- */
static void check_tokens(struct tiny_shape shape)
{
    struct on_device s = {shape, KV_F16, 1, 0};
    size_t count = 7 * (size_t)shape.vocab;
    float *want = on_device_forward(&cpu_device_ops, &s, 7, 0), *got;

    for (s.jobs = 0; s.jobs < 2; s.jobs++) {
        got = on_device_forward(&opencl_device_ops, &s, 7, 0);
        ck_assert_msg(memcmp(got, want, count * 4) == 0, "%s: off by %g",
                      s.jobs ? "jobs" : "layers", on_device_difference(got, want, count));
        free(got);
    }
    free(want);
}

/* Of two terms a block: K-quants. */
static struct tiny_shape two_terms(enum dtype type)
{
    struct tiny_shape s = small_shape();

    s.type = type;
    s.hidden = s.ffn = 256;
    s.heads = 8;
    s.width = type == DTYPE_Q6_K ? 8 : 16;
    return s;
}

/* Every candidate gives the same bits, rows that fill no group among them (77 of the head). */
START_TEST(test_every_group)
{
    static const enum dtype types[] = {DTYPE_Q4_0, DTYPE_Q4_K, DTYPE_Q6_K};
    int i = _i % TOKEN_CANDIDATES;
    enum dtype type = types[_i / TOKEN_CANDIDATES];
    struct opencl_tuning t = {
        .shape = 1, .no_selftest = true, .group = i + 1, .small_local = type == DTYPE_Q4_K};
    struct tiny_shape s = type == DTYPE_Q4_0 ? small_shape() : two_terms(type);

    if (!on_device_there(1))
        return;
    opencl_tune(&t);
    s.type = type;
    check_tokens(s);
}
END_TEST

static char measured_log[300];

static void remember_measured(void *ctx, const char *line)
{
    on_device_log(ctx, line);
    if (strstr(line, "measured"))
        snprintf(measured_log, sizeof measured_log, "%s", line);
}

/* Opens a device with this tuning in a cache of its own; how many lines of the files that keep
 * shapes begin so. says: what the device says of its shapes has this in it. */
static int measured_lines(const struct opencl_tuning *tuning, enum device_tune tune,
                          const char *cache, const char *begin, const char *says)
{
    static const struct device_pass pass = {1, 5};
    struct on_device set = {small_shape(), KV_F16, 1, 0};
    struct device_kernel k[40];
    struct device_kernels about;
    char command[800], line[40] = "";
    struct tiny_model *t;
    struct device_config c;
    struct error e;
    FILE *f;

    set.shape.type = DTYPE_Q4_0;
    t = tiny_model_new(&set.shape);
    c = on_device_config(t, &set);
    c.cache_dir = cache;
    c.tune = tune;
    c.log = remember_measured;
    measured_log[0] = '\0';
    opencl_tune(tuning);
    ck_assert_msg(opencl_device_ops.kernels(&c, NULL, &pass, 1, k, 40, &about, &e) > 0, "%s",
                  e.text);
    ck_assert_msg(strstr(about.shapes, says) != NULL, "\"%s\", not \"%s\"", about.shapes, says);
    tiny_model_free(t);
    snprintf(command, sizeof command, "cat %s/*.shapes 2>/dev/null | grep -c '^%s'", cache, begin);
    ck_assert((f = popen(command, "r")) != NULL);
    ck_assert(fgets(line, sizeof line, f) != NULL);
    pclose(f);
    return atoi(line);
}

/* As many candidates an opening as there is room for, until all are measured; the fastest is tested
 * and used, and found again; a damaged file and another driver mean that it is measured again. */
START_TEST(test_measured_groups)
{
    struct opencl_tuning t = {.shape = 1, .groups_most = 4, .group_wanted = 1}, off = {.shape = 1};
    char cache[300], command[900];
    const char *wanted = "q4_0 matmul 8x32x2x4 gate_up 32x8x2x4 token_down 8x32x2x4 "
                         "token_output 8x32x2x4";

    if (!on_device_there(1))
        return;
    snprintf(cache, sizeof cache, "%.200s/groups", on_device_cache);
    snprintf(command, sizeof command, "mkdir -p -m 700 %s", cache);
    ck_assert_int_eq(system(command), 0);
    /* by a CPU's OpenCL only when asked, and with --tune off by none */
    ck_assert_int_eq(measured_lines(&off, DEVICE_TUNE_ON, cache, "", "q4_0 by rule"), 0);
    ck_assert_int_eq(measured_lines(&t, DEVICE_TUNE_OFF, cache, "", "q4_0 by rule"), 0);
    ck_assert_str_eq(measured_log, "");
    ck_assert_int_eq(measured_lines(&t, DEVICE_TUNE_ON, cache, "times q4_0", wanted), 4);
    ck_assert_msg(strstr(measured_log, "measured 4 shapes") && strstr(measured_log, "next starts"),
                  "%s", measured_log);
    ck_assert_int_eq(measured_lines(&t, DEVICE_TUNE_ON, cache, "times q4_0", wanted), 8);
    ck_assert_int_eq(measured_lines(&t, DEVICE_TUNE_ON, cache, "times q4_0", wanted), 9);
    ck_assert_msg(strstr(measured_log, "measured 1 shape ") && !strstr(measured_log, "next starts"),
                  "%s", measured_log);
    ck_assert_int_eq(measured_lines(&t, DEVICE_TUNE_ON, cache, "right q4_0 8x32x2x4", wanted), 1);
    ck_assert_str_eq(measured_log, "");

    snprintf(command, sizeof command,
             "cd %s && for f in *.shapes; do sed -i s/times/tames/ $f; done", cache);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(measured_lines(&t, DEVICE_TUNE_ON, cache, "times q4_0", wanted), 4);
    ck_assert_ptr_nonnull(strstr(measured_log, "measured 4 shapes"));
    t.groups_most = 1;
    t.driver = "another";
    ck_assert_int_eq(measured_lines(&t, DEVICE_TUNE_ON, cache, "moetop", wanted), 2);
    ck_assert_ptr_nonnull(strstr(measured_log, "measured 1 shape "));
    ck_assert_int_eq(measured_lines(&t, DEVICE_TUNE_AGAIN, cache, "moetop", wanted), 2);
    ck_assert_ptr_nonnull(strstr(measured_log, "measured 1 shape "));
}
END_TEST

/* A shape that is wrong is kept as that, and never used. */
START_TEST(test_wrong_group)
{
    struct opencl_tuning t = {.shape = 1, .groups_most = 1, .group_wanted = 1, .broken = "rows8"};
    char cache[300], command[400];

    if (!on_device_there(1))
        return;
    snprintf(cache, sizeof cache, "%.200s/wrong", on_device_cache);
    snprintf(command, sizeof command, "mkdir -p -m 700 %s", cache);
    ck_assert_int_eq(system(command), 0);
    for (int again = 0; again < 2; again++) {
        ck_assert_int_eq(
            measured_lines(&t, DEVICE_TUNE_ON, cache, "wrong q4_0 8x32x2x4", "q4_0 by rule"), 1);
        ck_assert(again || strstr(measured_log, "measured 1 shape ") != NULL);
    }
}
END_TEST

/* PoCL optimises a kernel for up to two minutes; what most tests look for (a kernel's own
 * arithmetic, buffers, failures) does not depend on that. The case "optimised" has the kernels as
 * users get them, in both shapes, and so has every suite that computes with whole models. */
static void without_optimising(void)
{
    setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 1);
}

static Suite *suite(void)
{
    Suite *s = suite_create("opencl");
    TCase *c = tcase_create("device"), *formats_case = tcase_create("formats"),
          *optimised = tcase_create("optimised"), *launches = tcase_create("launches"),
          *tuned = tcase_create("tuned"), *groups = tcase_create("groups"),
          *measured = tcase_create("measured"), *fours = tcase_create("fours"),
          *uploads = tcase_create("uploads");

    snprintf(on_device_cache, sizeof on_device_cache, "%s", support_tmpdir());
    tcase_set_timeout(c, 240);
    tcase_set_timeout(optimised, 240);
    tcase_add_loop_test(optimised, test_q8_0, 0, 2);
    tcase_add_loop_test(optimised, test_wide_rows, 0, 2);
    suite_add_tcase(s, optimised);
    tcase_add_checked_fixture(c, without_optimising, NULL);
    tcase_add_checked_fixture(formats_case, without_optimising, NULL);
    tcase_add_loop_test(c, test_q4_0_window, 0, 2);
    tcase_add_loop_test(c, test_long_context, 0, 3);
    tcase_add_loop_test(formats_case, test_formats, 0, FORMATS);
    tcase_add_loop_test(c, test_q8_0_cache, 0, 2);
    tcase_add_loop_test(c, test_last_experts, 0, 2);
    tcase_add_loop_test(c, test_shared_and_own_memory, 0, 2);
    tcase_add_loop_test(c, test_float_types, 0, 2);
    tcase_add_loop_test(c, test_many_experts, 0, 2);
    tcase_add_loop_test(c, test_joined_experts, 0, 4);
    tcase_add_loop_test(c, test_microbench, 0, 4);

    tcase_add_test(c, test_clblast);
    tcase_add_test(c, test_wrong_kernels);
    tcase_add_test(c, test_damaged_cache);
    tcase_add_test(c, test_failures);
    tcase_add_test(c, test_kv_and_memory);
    tcase_add_test(c, test_selection);
    tcase_add_test(c, test_no_platform);
    tcase_add_test(c, test_crashing_driver);
    tcase_add_test(c, test_good_driver_beside_a_bad_one);
    tcase_add_test(c, test_hanging_driver);
    suite_add_tcase(s, c);
    tcase_set_timeout(launches, 240);
    tcase_add_checked_fixture(launches, without_optimising, NULL);
    tcase_add_test(launches, test_arguments);
    suite_add_tcase(s, launches);
    tcase_set_timeout(uploads, 240);
    tcase_add_checked_fixture(uploads, without_optimising, NULL);
    tcase_add_loop_test(uploads, test_late_writes, 0, 4);
    suite_add_tcase(s, uploads);
    tcase_set_timeout(tuned, 240);
    tcase_add_checked_fixture(tuned, without_optimising, NULL);
    tcase_add_loop_test(tuned, test_forms, 0, 11);
    tcase_add_test(tuned, test_slower_kernels);
    suite_add_tcase(s, tuned);
    tcase_set_timeout(groups, 240);
    tcase_add_checked_fixture(groups, without_optimising, NULL);
    tcase_add_loop_test(groups, test_every_group, 0, 3 * TOKEN_CANDIDATES);
    suite_add_tcase(s, groups);
    tcase_set_timeout(fours, 240);
    tcase_add_checked_fixture(fours, without_optimising, NULL);
    tcase_add_loop_test(fours, test_formats_by_fours, 0, FORMATS);
    suite_add_tcase(s, fours);
    tcase_set_timeout(measured, 240);
    tcase_add_checked_fixture(measured, without_optimising, NULL);
    tcase_add_test(measured, test_measured_groups);
    tcase_add_test(measured, test_wrong_group);
    suite_add_tcase(s, measured);
    tcase_set_timeout(formats_case, 240);
    tcase_set_tags(formats_case, "formats"); /* parts by themselves: run.sh */
    suite_add_tcase(s, formats_case);
    return s;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], DRIVER_PROBE_CHILD) == 0)
        _exit(driver_probe_child());
    return support_run(suite());
}
