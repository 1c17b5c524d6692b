/* One token's layers, recorded and replayed by the OpenCL device (cl_khr_command_buffer), against
 * the same device that launches them one by one: all bits, whatever lies between two tokens. In the
 * shape of GPUs, on PoCL in CI; CHECK_OPENCL names another device. Skips where a driver has none of
 * it. The host's time of both is printed. */
#include "gpu/driver/driver_probe.h"
#include "gpu/driver/tuning.h"
#include "gpu/opencl.h"
#include "engine/device/device.h"
#include "tests/on_device.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN 64 /* on_device_shape's */
#define LAYERS 3
#define USED 2   /* experts a token */
#define CHUNK 64 /* rows of a prompt's job */

static void put(struct device *d, struct block_id id)
{
    struct error e;
    int rc;

    while ((rc = opencl_device_ops.block_put(d, id, 1 << 20, &e)) == 0)
        ;
    ck_assert_msg(rc == 1, "%s", e.text);
}

/* The same model on two devices: [0] launches, [1] replays. */
struct pair {
    struct tiny_model *model;
    struct device *d[2], *cpu[2];
    int choices[2][LAYERS * USED * CHUNK];
    float x[2][HIDDEN * CHUNK], weights[2][LAYERS * USED * CHUNK];
    double host_ns[2]; /* of the token's job, until it is enqueued */
    unsigned seed;
};

static void put_layer(struct device *d, int layer)
{
    put(d, (struct block_id){BLOCK_ATTENTION, layer, 0});
    for (int x = 0; x < 6; x++)
        put(d, (struct block_id){BLOCK_EXPERT, layer, x});
}

static struct device_stats stats_of(const struct device *d)
{
    struct device_stats s;

    opencl_device_ops.stats(d, &s);
    return s;
}

/* window: 0: all keys; 300: not a whole number of the kernels' chunks. own: the device has memory
 * of its own; else the CPU's keys and values are used in place. False: there is no such device. */
static bool pair_open(struct pair *p, int window, bool own)
{
    struct on_device s = {on_device_shape, KV_F16, CHUNK, 0};
    struct opencl_tuning t = {.shape = 1, .copy = own, .tile = 4, .no_selftest = true};
    struct error e;

    memset(p, 0, sizeof *p);
    if (!on_device_there(1))
        return false;
    s.shape.layers = LAYERS;
    s.shape.window = window;
    p->model = tiny_model_new(&s.shape);
    p->seed = 5;
    struct device_config c = on_device_config(p->model, &s);

    for (int i = 0; i < 2; i++) {
        t.no_replay = !i;
        opencl_tune(&t);
        ck_assert_msg(opencl_device_ops.open(&p->d[i], &c, &e) == 0, "%s", e.text);
        ck_assert_msg(cpu_device_ops.open(&p->cpu[i], &c, &e) == 0, "%s", e.text);
        ck_assert_int_eq(opencl_device_ops.state_in_place(p->d[i], p->cpu[i]), !own);
        for (int l = 0; l < LAYERS; l++)
            put_layer(p->d[i], l);
    }
    return true;
}

static void pair_close(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        opencl_device_ops.close(p->d[i]);
        cpu_device_ops.close(p->cpu[i]);
    }
    tiny_model_free(p->model);
    opencl_tune(NULL);
}

static double thread_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Layers first .. last - 1 on one of the two, from p->x[i] to it. */
static int run(struct pair *p, int i, int first, int last, struct span s, struct error *e)
{
    struct layers_job j = {.first = first,
                           .last = last,
                           .rows = s.rows,
                           .spans = &s,
                           .n_spans = 1,
                           .x = p->x[i],
                           .experts = p->choices[i],
                           .weights = p->weights[i]};
    double start = thread_ns();

    if (opencl_device_ops.layers(p->d[i], &j, e) < 0)
        return -1;
    p->host_ns[i] += s.rows == 1 ? thread_ns() - start : 0;
    return opencl_device_ops.wait(p->d[i], e);
}

static void fill(struct pair *p, int rows)
{
    for (int k = 0; k < rows * HIDDEN; k++)
        p->x[0][k] = p->x[1][k] = tiny_random(&p->seed);
}

static void same(const struct pair *p, int layers, struct span s)
{
    size_t n = (size_t)(layers * USED * s.rows);

    ck_assert_msg(memcmp(p->x[0], p->x[1], (size_t)(s.rows * HIDDEN) * 4) == 0 &&
                      memcmp(p->choices[0], p->choices[1], n * sizeof(int)) == 0 &&
                      memcmp(p->weights[0], p->weights[1], n * sizeof(float)) == 0,
                  "session %d, %d rows behind %d differ", s.session, s.rows, s.pos);
}

/* The same rows through layers first .. last - 1 of both. */
static void both(struct pair *p, int first, int last, struct span s)
{
    struct error e;

    for (int i = 0; i < 2; i++)
        ck_assert_msg(run(p, i, first, last, s, &e) == 0, "%s", e.text);
    same(p, last - first, s);
}

static void step(struct pair *p, struct span s)
{
    fill(p, s.rows);
    both(p, 0, LAYERS, s);
}

/* A prompt up to `to`, from a whole CHUNK on. */
static void prompt(struct pair *p, int session, int from, int to)
{
    for (int pos = from; pos < to; pos += CHUNK)
        step(p, (struct span){
                    .session = session, .pos = pos, .rows = to - pos < CHUNK ? to - pos : CHUNK});
}

static bool replays(const struct pair *p)
{
    if (stats_of(p->d[1]).replayed)
        return true;
    fprintf(stderr, "skipped: the driver has no cl_khr_command_buffer that can be used\n");
    return false;
}

/* Some hundred tokens, over two ends of chunks; with a window, whose chunks change elsewhere. */
START_TEST(test_many_tokens)
{
    static struct pair p;
    struct device_stats s;

    if (!pair_open(&p, _i ? 300 : 0, _i))
        return;
    prompt(&p, 0, 0, 192);
    for (int pos = 192; pos < 320; pos++)
        step(&p, (struct span){.pos = pos, .rows = 1});
    if (replays(&p)) {
        prompt(&p, 0, 320, 500);
        for (int pos = 500; pos < 620; pos++)
            step(&p, (struct span){.pos = pos, .rows = 1});
        s = stats_of(p.d[1]);
        ck_assert_uint_eq(stats_of(p.d[0]).replayed + stats_of(p.d[0]).recorded, 0);
        /* 0 .. 255, 256 .. 511, 512 ..; with the window from 555 on others */
        ck_assert_uint_eq(s.recorded, _i ? 4 : 3);
        ck_assert_uint_eq(s.replayed, 128 + 120 - s.recorded);
        ck_assert_uint_eq(s.failures, 0);
        printf("a token of %d layers: %.1f us of the host's time, replayed %.1f us\n", LAYERS,
               p.host_ns[0] / 248e3, p.host_ns[1] / 248e3);
    }
    pair_close(&p);
}
END_TEST

/* By turns, at other depths; a session that ends and comes again has other buffers. */
START_TEST(test_two_sessions)
{
    static struct pair p;
    struct error e;

    if (!pair_open(&p, 0, _i))
        return;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2; i++) {
            ck_assert_int_eq(cpu_device_ops.state_open(p.cpu[i], 1, &e), 0);
            ck_assert_msg(opencl_device_ops.state_open(p.d[i], 1, &e) == 0, "%s", e.text);
        }
        if (!round)
            prompt(&p, 0, 0, 250);
        prompt(&p, 1, 0, 20 + round);
        for (int pos = 0; pos < 10; pos++) {
            step(&p, (struct span){.session = 0, .pos = 250 + 10 * round + pos, .rows = 1});
            step(&p, (struct span){.session = 1, .pos = 20 + round + pos, .rows = 1});
        }
        for (int i = 0; i < 2; i++) {
            opencl_device_ops.state_close(p.d[i], 1);
            cpu_device_ops.state_close(p.cpu[i], 1);
        }
    }
    if (replays(&p))
        ck_assert_uint_ge(stats_of(p.d[1]).replayed, 40);
    pair_close(&p);
}
END_TEST

/* Blocks leave and come between tokens of an answer, and jobs begin and end at other layers. */
START_TEST(test_moves)
{
    static struct pair p;
    int pos = 40;

    if (!pair_open(&p, 0, _i))
        return;
    prompt(&p, 0, 0, pos);
    for (int round = 0; round < 6; round++) {
        for (int k = 0; k < 4; k++)
            step(&p, (struct span){.pos = pos++, .rows = 1});
        for (int i = 0; i < 2; i++) {
            struct block_id id = {BLOCK_EXPERT, round % LAYERS, round};

            opencl_device_ops.block_drop(p.d[i], id);
            put(p.d[i], id);
        }
        for (int k = 0; k < 3; k++, pos++) { /* layers 1 .. alone, the first one behind them */
            fill(&p, 1);
            both(&p, 1, LAYERS, (struct span){.pos = pos, .rows = 1});
            both(&p, 0, 1, (struct span){.pos = pos, .rows = 1});
        }
    }
    if (replays(&p)) {
        ck_assert_uint_ge(stats_of(p.d[1]).recorded, 6);
        ck_assert_uint_ge(stats_of(p.d[1]).replayed, 30);
    }
    pair_close(&p);
}
END_TEST

/* Every OpenCL call of a token that is recorded, then of one that is replayed, fails once or for
 * good: no crash, and a token that is there is right; so is the next one where the device is. */
START_TEST(test_failures)
{
    static struct pair p;
    struct error e;
    int done[2] = {0, 0}; /* with all calls well: recorded, replayed */
    long n = 0;

    while (!done[_i]) {
        struct span s = {.pos = 30, .rows = 1};
        float x[HIDDEN];
        bool lost = n / 2 % 2, failed;
        uint64_t before;

        if (!pair_open(&p, 0, true))
            return;
        prompt(&p, 0, 0, s.pos);
        for (int k = 0; k < 1 + 2 * _i; k++, s.pos++)
            step(&p, s);
        if (_i && !replays(&p)) {
            pair_close(&p);
            return;
        }
        fill(&p, 1);
        memcpy(x, p.x[0], sizeof x);
        ck_assert_int_eq(run(&p, 0, 0, LAYERS, s, &e), 0);
        before = stats_of(p.d[1]).replayed;
        opencl_fail_after(n, lost);
        failed = run(&p, 1, 0, LAYERS, s, &e) < 0;
        done[_i] = opencl_calls() <= n;
        opencl_fail_after(-1, false);
        if (!failed)
            same(&p, LAYERS, s);
        ck_assert_msg(!failed || strstr(e.text, "OpenCL"), "call %ld: %s", n, e.text);
        ck_assert_msg(!done[_i] || !failed, "without failures: %s", e.text);
        ck_assert_msg(!lost || failed || done[_i], "call %ld: the device was lost", n);
        if (done[_i])
            ck_assert_uint_eq(stats_of(p.d[1]).replayed, before + 1);
        if (!lost) {
            memcpy(p.x[1], x, sizeof x);
            ck_assert_msg(run(&p, 1, 0, LAYERS, s, &e) == 0, "call %ld: %s", n, e.text);
            same(&p, LAYERS, s);
            s.pos++;
            step(&p, s);
        }
        pair_close(&p);
        n += _i ? 1 : 11;
    }
    printf("%s: %ld calls failed\n", _i ? "replayed" : "recorded", n);
}
END_TEST

/* As in check_opencl: what is looked for is not the kernels' arithmetic. */
static void without_optimising(void)
{
    setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 1);
}

int main(int argc, char **argv)
{
    Suite *s = suite_create("opencl_replay");
    TCase *tokens = tcase_create("tokens"), *moves = tcase_create("moves"),
          *failures = tcase_create("failures");

    if (argc == 2 && strcmp(argv[1], DRIVER_PROBE_CHILD) == 0)
        _exit(driver_probe_child());
    snprintf(on_device_cache, sizeof on_device_cache, "%s", support_tmpdir());
    tcase_set_timeout(tokens, 240);
    tcase_set_timeout(moves, 240);
    tcase_set_timeout(failures, 240);
    tcase_add_loop_test(tokens, test_many_tokens, 0, 2);
    tcase_add_loop_test(moves, test_two_sessions, 0, 2);
    tcase_add_loop_test(moves, test_moves, 0, 2);
    tcase_add_loop_test(failures, test_failures, 0, 2);
    tcase_add_checked_fixture(tokens, without_optimising, NULL);
    tcase_add_checked_fixture(moves, without_optimising, NULL);
    tcase_add_checked_fixture(failures, without_optimising, NULL);
    suite_add_tcase(s, tokens);
    suite_add_tcase(s, moves);
    suite_add_tcase(s, failures);
    return support_run(s);
}
