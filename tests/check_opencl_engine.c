/* The engine with an OpenCL device beside the CPU: any plan and any switching between tokens leaves
 * text and logits as they are, and a device that goes away in the middle of an answer costs nothing
 * but a notice. Skips where there is no OpenCL device. */
#include "engine/base/clock.h"
#include "engine/placement/trial.h"
#include "engine/placement/verdict.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "engine/run/prompt.h"
#include "gpu/opencl.h"
#include "gpu/driver/tuning.h"
#include "tests/golden.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct device_ops *const backends[] = {&opencl_device_ops, &cpu_device_ops, NULL};
static char cache_dir[256], notices[8192];

static bool have_device(void)
{
    struct device_info info[DEVICE_MAX];
    char why[256];
    int n = opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why);

    if (n == 0 || info[0].why_not[0])
        fprintf(stderr, "skipped: %s\n", n ? info[0].why_not : why);
    return n && !info[0].why_not[0];
}

static void hear_log(void *ctx, const char *line)
{
    size_t n = strlen(notices);

    (void)ctx;
    snprintf(notices + n, sizeof notices - n, "%s\n", line);
}

static const char *devices; /* NULL: CHECK_OPENCL's */

static struct engine *open_model(const char *path, int convert, enum kv_type kv)
{
    struct engine_config c = {.model_path = path,
                              .context = 512,
                              .n_threads = 2,
                              .ubatch = 32,
                              .batch = 64,
                              .kv_k = kv,
                              .kv_v = kv,
                              .convert = convert,

                              .exact = true,
                              .no_tokenizer = true,
                              .backends = backends,
                              .device_selector = devices ? devices : getenv("CHECK_OPENCL"),
                              .cache_dir = cache_dir,
                              .log = hear_log};
    struct engine *g = NULL;
    struct error e = {0};

    if (engine_open(&g, &c, &e) < 0)
        ck_abort_msg("%s", e.text);
    return g;
}

static struct engine *open_demo(void)
{
    char path[4200];

    snprintf(path, sizeof path, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    return open_model(path, -1, KV_F16);
}

static void place(struct engine *g, const char *spec)
{
    struct error e = {0};

    if (engine_place(g, spec, &e) < 0 || engine_settle(g, &e) < 0)
        ck_abort_msg("%s: %s", spec, e.text);
}

struct heard {
    char text[32768];
    size_t len;
    int tokens, lose_at; /* lose_at: after so many tokens the device is gone */
    long countdown;
};

static int hear(void *ctx, struct event *ev)
{
    struct heard *h = ctx;

    if (ev->kind == EVENT_TOKEN) {
        ck_assert_uint_lt(h->len + ev->token.len, sizeof h->text);
        memcpy(h->text + h->len, ev->token.text, ev->token.len + 1u);
        h->len += ev->token.len;
        h->tokens += ev->token.id >= 0;
        if (h->lose_at && h->tokens == h->lose_at)
            opencl_fail_after(h->countdown, true);
    } else if (ev->kind == EVENT_NOTICE) {
        hear_log(NULL, ev->text);
    }
    return 0;
}

static void answer(struct engine *g, const char *prompt, int n, float temperature, struct heard *h)
{
    char text[256];
    struct message m = {.role = ROLE_USER, .text = text};
    struct dialogue said = {.messages = &m, .n_messages = 1, .raw = true};
    struct turn t = {.max_tokens = n,
                     .ignore_eos = true,
                     .sampling = {.temperature = temperature,
                                  .top_p = 1.0f,
                                  .repeat_penalty = 1.0f,
                                  .seed = 11}};
    struct turn_done_event done;
    struct error e = {0};

    snprintf(text, sizeof text, "%s", prompt);
    h->len = 0;
    h->tokens = 0;
    h->text[0] = '\0';
    ck_assert_msg(prompt_turn(g, NULL, &said, &t, hear, h, &done, &e) == 0, "%s", e.text);
    ck_assert_int_eq(h->tokens, n);
}

static uint64_t device_jobs(struct engine *g)
{
    const struct telemetry *t = engine_telemetry(g);

    return t->n_devices > 1 ? t->devices[1].jobs : 0;
}

START_TEST(every_plan_same_text)
{
    static const char *const plans[] = {"gpu",          "layers:3",      "layers:first:2",
                                        "experts:7",    "attention-gpu", "experts-gpu",
                                        "hot:2M",       "memory:3M",     "stream:3M",
                                        "stream:2600K", "balanced"};
    static struct heard want, got;
    struct engine *g;

    if (!have_device())
        return;
    g = open_demo();
    answer(g, "Once upon a time there was a dragon who", 60, 0.8f, &want);
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        uint64_t jobs;

        place(g, plans[i]);
        jobs = device_jobs(g);
        engine_session_clear(g);
        answer(g, "Once upon a time there was a dragon who", 60, 0.8f, &got);
        ck_assert_msg(strcmp(got.text, want.text) == 0, "plan %s: \"%s\" instead of \"%s\"",
                      plans[i], got.text, want.text);
        if (strcmp(plans[i], "balanced") != 0)
            ck_assert_msg(device_jobs(g) > jobs, "%s: nothing ran on the device", plans[i]);
        if (strncmp(plans[i], "stream", 6) == 0) {
            const struct device_stats *d = &engine_telemetry(g)->devices[1];

            printf("%s: %llu copies, %llu MiB, %llu guessed, %llu of them right\n", plans[i],
                   (unsigned long long)d->streamed, (unsigned long long)d->streamed_bytes >> 20,
                   (unsigned long long)d->prefetched, (unsigned long long)d->prefetch_hits);
            ck_assert_uint_gt(d->prefetch_hits, 0);
            ck_assert_uint_gt(d->streamed, d->prefetched);
            ck_assert_uint_gt(d->stream_bytes, 0);
        }
    }
    engine_close(g);
}
END_TEST

START_TEST(switching_keeps_the_text)
{
    /* 1: as with a device that has memory of its own */
    struct opencl_tuning tuning = {.copy = _i};
    static struct heard want, got;
    struct error e = {0};
    struct engine *g;
    uint64_t weights;

    if (!have_device())
        return;
    opencl_tune(&tuning);
    g = open_demo();
    answer(g, "The little fox", 200, 0.0f, &want);
    engine_session_clear(g);
    place(g, "cpu");
    weights = engine_telemetry(g)->devices[0].weight_bytes;
    ck_assert_int_eq(
        engine_script_set(g,
                          "5:gpu,20:hot:3M,31:balanced,44:cpu,50:stream:3M,57:layers:4,70:experts-"
                          "gpu,90:attention-gpu,110:gpu,130:cpu,150:experts:3,170:gpu,190:cpu",
                          &e),
        0);
    answer(g, "The little fox", 200, 0.0f, &got);
    ck_assert_str_eq(got.text, want.text);
    ck_assert_uint_gt(device_jobs(g), 100);
    ck_assert_int_eq(engine_telemetry(g)->devices[1].staging_bytes > 0, _i);
    place(g, "cpu");
    ck_assert_uint_eq(engine_telemetry(g)->devices[1].weight_bytes, 0);
    ck_assert_uint_eq(engine_telemetry(g)->devices[1].kv_bytes, 0);
    ck_assert_uint_eq(engine_telemetry(g)->devices[1].stream_bytes, 0);
    ck_assert_uint_eq(engine_telemetry(g)->devices[0].weight_bytes, weights);
    engine_close(g);
}
END_TEST

/* Random plans, one between every two chunks: every attention block, expert and the head anywhere.
 */
static void random_plan(struct engine *g, unsigned *seed)
{
    const struct hparams *hp = &engine_info(g)->model->hp;
    struct plan *p = plan_new("random", hp->n_layers, hp->n_experts);
    struct error e = {0};

    for (int i = 0; i < hp->n_layers * hp->n_experts; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        p->experts[i] = *seed >> 30 & 1;
        p->attention[i / hp->n_experts] = *seed >> 29 & 1;
        p->head = *seed >> 28 & 1;
    }
    if (engine_plan_set(g, p, &e) < 0 || engine_settle(g, &e) < 0)
        ck_abort_msg("%s", e.text);
}

static float *logits_of(struct engine *g, const int *ids, int n, int chunk, unsigned seed)
{
    float *logits = calloc((size_t)n * (size_t)engine_info(g)->model->hp.n_vocab, sizeof *logits);
    struct error e = {0};

    engine_session_clear(g);
    for (int at = 0; at < n; at += chunk) {
        int rows = n - at < chunk ? n - at : chunk;

        if (seed)
            random_plan(g, &seed);
        ck_assert_msg(engine_eval(g, ids + at, rows,
                                  logits + (size_t)at * (size_t)engine_info(g)->model->hp.n_vocab,
                                  true, &e) == 0,
                      "%s", e.text);
    }
    return logits;
}

static const char *const checkpoints[] = {"phimoe-quirk-f32", "phimoe-16x-bf16",
                                          "phimoe-window-f32", "phimoe-longrope-f32"};

/* The golden checkpoints: float as they are (logits within 1e-4 of the golden numbers, as on the
 * CPU), then packed as Q8_0 and Q4_0 (the same bits as the CPU). */
START_TEST(checkpoints_match)
{
    static const int types[] = {-1, DTYPE_Q8_0, DTYPE_Q4_0};
    char path[256];
    char why[4200];
    struct golden golden;

    if (!have_device())
        return;
    snprintf(path, sizeof path, "golden/phimoe/%s/golden.safetensors", checkpoints[_i]);
    ck_assert_msg(golden_open(&golden, support_path(path), why, sizeof why) == 0, "%s", why);
    snprintf(path, sizeof path, "golden/phimoe/%s", checkpoints[_i]);
    for (int k = 0; k < 3; k++) {
        struct engine *g = open_model(support_path(path), types[k], KV_F32);
        const int n = golden.n, vocab = golden.n_vocab;
        float *cpu = logits_of(g, golden.input_ids, n, n, 0);

        for (int v = 0; v < 3; v++) {
            static const int chunks[] = {64, 7, 1};
            /* its prompt must be seen at once */
            bool whole = strstr(checkpoints[_i], "longrope") != NULL;
            float *got;
            double worst = 0, far = 0;

            place(g, "gpu");
            got = logits_of(g, golden.input_ids, n, whole ? n : chunks[v],
                            v ? 77u + (unsigned)v : 0);
            for (int i = 0; i < n * vocab; i++) {
                double a = fabs((double)got[i] - (double)cpu[i]),
                       b = fabs((double)got[i] - (double)golden.logits[i]);

                worst = a > worst || a != a ? a : worst;
                far = b > far || b != b ? b : far;
            }
            if (types[k] < 0)
                ck_assert_msg(far <= GOLDEN_TOLERANCE && worst <= 1e-4,
                              "%s: %g from the golden logits, %g from the CPU", checkpoints[_i],
                              far, worst);
            else
                ck_assert_msg(worst == 0 && memcmp(got, cpu, (size_t)(n * vocab) * 4) == 0,
                              "%s as type %d, chunks of %d: off by %g", checkpoints[_i], types[k],
                              chunks[v], worst);
            free(got);
        }
        free(cpu);
        engine_close(g);
    }
    golden_close(&golden);
}
END_TEST

/* Whether some layer's attention is on the device. */
static bool attends(const struct engine *g)
{
    const struct plan *p = engine_plan(g);

    for (int l = 0; l < p->n_layers; l++)
        if (p->attention[l] == 1)
            return true;
    return false;
}

#define NORMS_AND_ROUTERS (200 << 10) /* of the demo: routers are transposed, 32 KiB a layer */

/* A device that shares memory has neither keys and values nor quantised matrices of its own; one
 * with memory of its own has both. */
static void lies_once(const struct engine *g, const struct device_stats *d, bool once)
{
    uint64_t own = d->weight_bytes - d->shared_bytes;

    if (attends(g))
        ck_assert_msg((d->kv_bytes == 0) == once, "%llu bytes of keys and values",
                      (unsigned long long)d->kv_bytes);
    ck_assert_uint_ge(d->weight_bytes, d->shared_bytes);
    ck_assert_msg(once ? own <= NORMS_AND_ROUTERS : d->shared_bytes == 0,
                  "%llu of %llu bytes of weights are copies", (unsigned long long)own,
                  (unsigned long long)d->weight_bytes);
}

/* PoCL's memory is the host's: weights, keys and values, activations, choices and logits are used
 * where they are, under every plan and by prompts as by tokens. The same device used as one with
 * memory of its own copies. */
START_TEST(nothing_is_copied_on_shared_memory)
{
    static const char *const plans[] = {"gpu",    "experts:7", "attention-gpu", "experts-gpu",
                                        "hot:2M", "layers:3",  "balanced",      "memory:3M"};
    static struct heard want, got;
    const struct opencl_tuning before = *opencl_tuning();

    if (!have_device())
        return;
    for (int k = 0; k < 3; k++) { /* 0: in place, 1: copied, 2: in place, mapped as GPUs need it */
        struct opencl_tuning how = before;
        const struct telemetry *t;
        struct engine *g;

        how.copy = k == 1;
        how.map_rows = k == 2;
        opencl_tune(&how);
        g = open_demo();
        t = engine_telemetry(g);
        answer(g, "Once upon a time there was a dragon who", 40, 0.8f, &want);
        for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
            const struct device_stats *d = &t->devices[1];
            uint64_t jobs, rows;

            place(g, plans[i]);
            if (!engine_info(g)->devices[1].unified) {
                support_skip("this device has memory of its own");
                break;
            }
            jobs = d->jobs;
            rows = d->row_bytes;
            engine_session_clear(g);
            answer(g, "Once upon a time there was a dragon who", 40, 0.8f, &got);
            ck_assert_str_eq(got.text, want.text);
            if (!strcmp(plans[i], "balanced") && d->jobs == jobs)
                continue;
            ck_assert_msg(d->jobs > jobs, "%s: nothing ran on the device", plans[i]);
            if (k == 1)
                ck_assert_msg(d->row_bytes > rows, "%s: where are the copies?", plans[i]);
            else
                ck_assert_msg(d->row_bytes == rows, "%s: %llu bytes of rows were copied", plans[i],
                              (unsigned long long)(d->row_bytes - rows));
            lies_once(g, d, k != 1);
        }
        if (k != 1)
            ck_assert_uint_le(t->devices[1].uploaded_bytes, 4 << 20); /* norms, rows of the cache */
        engine_close(g);
    }
    opencl_tune(&before);
}
END_TEST

static struct device_stats stats_now(const struct engine *g)
{
    struct device_stats s = {0};

    g->slots[1].ops->stats(g->slots[1].device, &s);
    return s;
}

/* However many sessions there are: the newest ones' keys and values are used in place, too. */
START_TEST(many_sessions_lie_once)
{
    enum { SESSIONS = 70 };
    const int ids[] = {5, 17, 42, 7, 99, 3};
    struct device_stats before, after;
    struct session *s = NULL;
    struct error e = {0};
    float *logits, *want;
    struct engine *g;
    size_t vocab;

    if (!have_device())
        return;
    g = open_demo();
    vocab = (size_t)engine_info(g)->model->hp.n_vocab;
    want = calloc(vocab, sizeof *want);
    logits = calloc(vocab, sizeof *logits);
    ck_assert_int_eq(engine_eval(g, ids, 6, want, false, &e), 0);
    place(g, "gpu");
    if (engine_info(g)->devices[1].unified) {
        for (int i = 0; i < SESSIONS; i++)
            ck_assert_msg(engine_session_open(g, &s, &e) == 0, "session %d: %s", i, e.text);
        ck_assert(attends(g));
        before = stats_now(g);
        ck_assert_msg(engine_session_eval(s, ids, 6, 0, logits, false, &e) == 0, "%s", e.text);
        ck_assert_mem_eq(logits, want, vocab * sizeof *want);
        after = stats_now(g);
        ck_assert_uint_gt(after.jobs, before.jobs);
        /* logits come to memory that is the test's */
        ck_assert_uint_eq(after.row_bytes - before.row_bytes, vocab * sizeof *logits);
        ck_assert_uint_eq(after.kv_bytes, 0);
    } else {
        support_skip("this device has memory of its own");
    }
    free(want);
    free(logits);
    engine_close(g);
}
END_TEST

/* Prompts here, tokens there: on shared memory both sides have the same rows, and nothing moves. */
START_TEST(a_handover_moves_nothing_on_shared_memory)
{
    static const struct {
        const char *tokens, *prompts;
    } plans[] = {{"cpu", "prompt gpu"}, {"gpu", "prompt cpu"}, {"layers:2", "prompt layers:4"}};
    static struct heard want, got;
    const struct opencl_tuning before = *opencl_tuning();

    if (!have_device())
        return;
    for (int k = 0; k < 2; k++) {
        struct opencl_tuning how = before;
        struct engine *g;

        how.copy = k == 1;
        opencl_tune(&how);
        g = open_demo();
        answer(g, "Once upon a time there was a dragon who", 40, 0.8f, &want);
        for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
            place(g, plans[i].tokens);
            place(g, plans[i].prompts);
            if (!engine_info(g)->devices[1].unified) {
                support_skip("this device has memory of its own");
                break;
            }
            engine_session_clear(g);
            answer(g, "Once upon a time there was a dragon who", 40, 0.8f, &got);
            ck_assert_str_eq(got.text, want.text);
            ck_assert_msg((engine_telemetry(g)->handover_bytes > 0) == (k == 1),
                          "%s, %s: %llu bytes moved", plans[i].tokens, plans[i].prompts,
                          (unsigned long long)engine_telemetry(g)->handover_bytes);
        }
        engine_close(g);
    }
    opencl_tune(&before);
}
END_TEST

/* Rows of layers with a window, in rings that were overwritten more than once: one and two
 * sessions, plans that change in between, and other plans for prompts. */
START_TEST(windows_lie_once)
{
    static const char *const models[] = {"golden/phimoe/phimoe-window-f32",
                                         "golden/families/mimo_v2_flash"};
    static const char *const plans[] = {
        "gpu", "cpu", "prompt gpu", "attention-gpu", "prompt cpu", "gpu", "prompt layers:first:1"};
    enum { PART = 60, PARTS = 7, SESSIONS = 2 };
    const struct opencl_tuning before = *opencl_tuning();
    struct opencl_tuning how = before;
    struct engine *cpu, *g;
    float *want, *got;
    int ids[PART * PARTS], rings = 0;
    size_t vocab;

    if (!have_device())
        return;
    how.copy = _i % 3 == 1;
    how.map_rows = _i % 3 == 2;
    opencl_tune(&how);
    cpu = open_model(support_path(models[_i / 3]), DTYPE_Q8_0, KV_F16);
    g = open_model(support_path(models[_i / 3]), DTYPE_Q8_0, KV_F16);
    vocab = (size_t)engine_info(g)->model->hp.n_vocab;
    want = calloc(PART * vocab, sizeof *want);
    got = calloc(PART * vocab, sizeof *got);
    for (int l = 0; l < g->kv.n_layers; l++)
        rings += g->kv.layers[l].ring > 0;
    ck_assert_int_gt(rings, 0);
    for (int i = 0; i < PART * PARTS; i++)
        ids[i] = (i * 37 + 5) % (int)vocab;
    for (int part = 0; part < PARTS; part++) {
        int own_rows = 0;

        place(g, plans[part]);
        if (!engine_info(g)->n_devices || !engine_info(g)->devices[1].unified) {
            support_skip("this device has memory of its own");
            break;
        }
        for (int k = 0; k < SESSIONS; k++) {
            struct session *a = engine_session(cpu), *b = engine_session(g);
            const int *at = ids + part * PART;
            struct error e = {0};

            if (k && part == 0)
                ck_assert_msg(engine_session_open(cpu, &a, &e) == 0 &&
                                  engine_session_open(g, &b, &e) == 0,
                              "%s", e.text);
            a = k ? cpu->sessions[1] : a;
            b = k ? g->sessions[1] : b;
            /* rows of a prompt, then tokens */
            for (int n = 0, rows; n < PART; n += rows) {
                rows = n ? 1 : PART - 6;
                ck_assert_msg(engine_session_eval(a, at + n, rows, 0, want, true, &e) == 0, "%s",
                              e.text);
                ck_assert_msg(engine_session_eval(b, at + n, rows, 0, got, true, &e) == 0, "%s",
                              e.text);
                ck_assert_msg(memcmp(want, got, (size_t)rows * vocab * sizeof *want) == 0,
                              "%s, session %d, %s: row %d of part %d differs", models[_i / 3], k,
                              plans[part], n, part);
            }
            own_rows += stats_now(g).kv_bytes > 0;
        }
        if (!how.copy) {
            ck_assert_int_eq(own_rows, 0);
            ck_assert_uint_eq(engine_telemetry(g)->handover_bytes, 0);
        }
    }
    ck_assert_uint_gt(stats_now(g).jobs, 0);
    engine_close(g);
    engine_close(cpu);
    opencl_tune(&before);
    free(want);
    free(got);
}
END_TEST

/* KiB at the peak of a run of the program; 0: it failed. */
static long peak_of(const char *model, const char *flags)
{
    char line[1200];
    struct rusage used;
    int status;
    pid_t pid;

    snprintf(line, sizeof line,
             "exec '%s' -m '%s' --spec-type none -t 1 -c 512 -n 3 --temp 0 -p 'A fox and a bear "
             "went into the forest.' %s >/dev/null 2>&1 </dev/null",
             support_program(), model, flags);
    if ((pid = fork()) == 0)
        _exit(execl("/bin/sh", "sh", "-c", line, (char *)NULL));
    if (pid < 0 || wait4(pid, &status, 0, &used) != pid || status != 0)
        return 0;
    return used.ru_maxrss;
}

/* The driver's libraries and its compiled kernels are the difference that a small model sees. Its
 * weights twice would be 1.9. */
START_TEST(a_model_lies_once_in_memory)
{
    static const char *const places[] = {"gpu", "experts-gpu", "attention-gpu", "layers:3"};
    char model[300], line[900];
    long cpu, small, apart;

    if (!have_device())
        return;
    if (system("python3 -c 'import random; random.Random(1).randbytes(1)' 2>/dev/null") != 0) {
        support_skip("no python3 from 3.9 on");
        return;
    }
    snprintf(model, sizeof model, "%s/model.gguf", support_tmpdir());
    snprintf(line, sizeof line,
             "python3 '%s' phi-tiny '%s' --type Q4_0 --layers 6 --vocab 4000 >/dev/null",
             support_path("tools/synthetic_gguf.py"), model);
    ck_assert_int_eq(system(line), 0);
    cpu = peak_of(model, "--place cpu");
    small = peak_of(support_demo(), "--place cpu");
    ck_assert_int_gt(small, 0);
    ck_assert_int_gt(cpu, 200 << 10);
    peak_of(support_demo(), "--place gpu --device opencl:0"); /* compiles */
    peak_of(model, "--place gpu --device opencl:0");
    apart = peak_of(support_demo(), "--place gpu --device opencl:0") - small;
    ck_assert_int_gt(apart, 0);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        long with;

        snprintf(line, sizeof line, "--place %s --device opencl:0", places[i]);
        with = peak_of(model, line);
        printf("%s: %ld KiB, the driver apart %ld; cpu %ld\n", places[i], with, with - apart, cpu);
        ck_assert_int_gt(with, 0);
        ck_assert_msg((double)(with - apart) <= 1.05 * (double)cpu, "%s: %ld KiB, cpu %ld",
                      places[i], with - apart, cpu);
    }
}
END_TEST

/* Two devices of PoCL, one with all processors and one with a single thread, of different sizes:
 * each part of the model on the CPU, the one or the other, while the plans change. */
START_TEST(two_opencl_devices)
{
    static const char *const plans[] = {"layers:0=2,1=3", "memory:0=2M,1=4M", "experts:1=5,0=6",
                                        "hot:1=1M,0=3M",  "balanced",         "cpu"};
    static struct heard want, got;
    const struct telemetry *t;
    struct engine *g;

    if (getenv("CHECK_OPENCL"))
        return; /* what is named there is one device */
    setenv("POCL_DEVICES", "pthread basic", 1);
    if (!have_device())
        return;
    devices = "opencl:1,opencl:0";
    g = open_demo();
    answer(g, "Once upon a time there was a dragon who", 60, 0.8f, &want);
    place(g, plans[0]);
    t = engine_telemetry(g);
    if (t->n_devices < 3) {
        support_skip("one OpenCL device alone");
        engine_close(g);
        return;
    }
    ck_assert_str_eq(engine_info(g)->devices[1].selector, "opencl:1");
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        uint64_t jobs[2] = {t->devices[1].jobs, t->devices[2].jobs};

        place(g, plans[i]);
        engine_session_rewind(g, 20); /* rows go from device to device */
        engine_session_clear(g);
        answer(g, "Once upon a time there was a dragon who", 60, 0.8f, &got);
        ck_assert_msg(strcmp(got.text, want.text) == 0, "plan %s: \"%s\" instead of \"%s\"",
                      plans[i], got.text, want.text);
        if (strchr(plans[i], '='))
            ck_assert_msg(t->devices[1].jobs > jobs[0] && t->devices[2].jobs > jobs[1],
                          "%s: nothing ran on one of them", plans[i]);
        ck_assert_uint_le(t->devices[1].failures + t->devices[2].failures, 0);
    }
    ck_assert_uint_eq(t->devices[1].weight_bytes + t->devices[2].weight_bytes, 0);
    engine_close(g);
    devices = NULL;
}
END_TEST

/* The device fails at the n-th call after a token and every one after it: the text goes on to its
 * end, and a line says why. */
START_TEST(losing_the_device)
{
    static const long after[] = {0, 1, 2, 3, 7, 20, 33, 150};
    static const char *const plans[] = {"gpu", "experts-gpu", "attention-gpu", "layers:4"};
    static struct heard want, got;
    struct engine *g;

    if (!have_device())
        return;
    g = open_demo();
    answer(g, "One day", 30, 0.0f, &want);
    engine_close(g);
    for (size_t i = 0; i < sizeof after / sizeof after[0]; i++) {
        g = open_demo();
        place(g, plans[i % 4]);
        notices[0] = '\0';
        got.lose_at = 12;
        got.countdown = after[i];
        answer(g, "One day", 30, 0.0f, &got);
        ck_assert_str_eq(got.text, want.text);
        ck_assert_msg(strstr(notices, "OpenCL") && strstr(notices, "CPU"),
                      "plan %s, call %ld: notices \"%s\"", plans[i % 4], after[i], notices);
        opencl_fail_after(-1, false);
        engine_close(g);
    }
}
END_TEST

/* OpenCL calls all over a short run fail, by turns once or for good (check_opencl fails literally
 * every one of a device's, check_switch every one of the contract's; here each run opens a device,
 * which costs PoCL a tenth of a second): opening, compiling, uploading, launching, copying,
 * waiting. The model is so small that a run takes milliseconds; the logits must be the CPU's to the
 * last bit, and somebody must have been told. */
static float *greedy(const struct device_ops *const *list, const char *placement)
{
    enum { PROMPT = 5, NEW = 2, VOCAB = 96 };
    struct engine_config c = {.model_path = support_path("golden/phimoe/phimoe-window-f32"),
                              .context = 64,
                              .n_threads = 1,
                              .ubatch = 8,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .convert = DTYPE_Q8_0,
                              .no_tokenizer = true,
                              .backends = list,
                              .placement = placement,
                              .device_selector = "opencl:0",
                              .cache_dir = cache_dir,
                              .log = hear_log};
    struct engine *g = NULL;
    struct error e = {0};
    int ids[PROMPT] = {3, 14, 15, 92, 65}, next;
    float *logits = calloc((NEW + 1) * VOCAB, sizeof *logits);

    notices[0] = '\0';
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    ck_assert_int_eq(engine_info(g)->model->hp.n_vocab, VOCAB);
    ck_assert_msg(engine_eval(g, ids, PROMPT, logits, false, &e) == 0, "%s", e.text);
    for (int t = 0; t < NEW; t++) {
        next = 0;
        for (int i = 1; i < VOCAB; i++)
            next = logits[t * VOCAB + i] > logits[t * VOCAB + next] ? i : next;
        ck_assert_msg(engine_eval(g, &next, 1, logits + (t + 1) * VOCAB, false, &e) == 0, "%s",
                      e.text);
    }
    engine_close(g);
    return logits;
}

static uint64_t ticks(void *ctx)
{
    uint64_t *now = ctx;

    return *now += CLOCK_MILLI;
}

/* On a real driver: what is copied, what it costs by counting, and that nothing stays. */
START_TEST(auto_copies_a_few_layers)
{
    struct engine *g;
    struct error e = {0};
    struct device_stats before, after;
    const struct verdict *v;
    int ids[6] = {1, 2, 3, 4, 5, 6};
    uint64_t now = 0, whole = 0;

    if (!have_device())
        return;
    g = open_model(support_path("golden/phimoe/phimoe-window-f32"), DTYPE_Q8_0, KV_F16);
    ck_assert_msg(engine_eval(g, ids, 6, NULL, false, &e) == 0, "%s", e.text);
    ck_assert(engine_planner_input(g, true, true, false, &e) != NULL);
    before = engine_telemetry(g)->devices[1];
    ck_assert(engine_auto_due(g));
    ck_assert_msg(engine_auto(g, ticks, &now, &e) == 0, "%s", e.text);
    ck_assert(!engine_auto_due(g));
    ck_assert_msg(engine_place(g, "cpu", &e) == 0, "%s", e.text);
    after = engine_telemetry(g)->devices[1];
    v = &engine_telemetry(g)->verdict;
    for (struct block_id id = BLOCK_BEFORE; model_block_next(engine_info(g)->model, &id);)
        whole += model_block_bytes(engine_info(g)->model, id);
    /* besides the rows that its jobs compute with */
    ck_assert_uint_le(after.uploaded_bytes - before.uploaded_bytes,
                      whole + after.row_bytes - before.row_bytes);
    ck_assert(v->bytes > 0 && v->bytes <= whole);
    ck_assert_uint_le(v->spent_ns, TRIAL_FIRST_NS + 4 * CLOCK_MILLI);
    ck_assert_int_le(v->layers, TRIAL_LAYERS);
    ck_assert_int_eq(engine_session_tokens(g, NULL), 6);
    ck_assert_uint_eq(after.weight_bytes, before.weight_bytes);
    engine_close(g);
}
END_TEST

START_TEST(calls_all_over_fail)
{
    static const char *const plans[] = {"gpu", "experts-gpu"};
    const char *plan = plans[_i];
    long total, untold = 0;
    float *want, *got;

    if (!have_device())
        return;
    want = greedy(NULL, NULL);
    /* compiles and tests, which is not what fails here */
    free(greedy(backends, plan));
    opencl_fail_after(-1, false);
    got = greedy(backends, plan);
    total = opencl_calls();
    ck_assert_mem_eq(got, want, 3 * 96 * sizeof *want);
    free(got);
    for (long n = 0; n < total; n += 7) {
        bool lost = n & 1;

        opencl_fail_after(n, lost);
        got = greedy(backends, plan);
        opencl_fail_after(-1, false);
        ck_assert_msg(memcmp(got, want, 3 * 96 * sizeof *want) == 0,
                      "%s: call %ld of %ld failed%s: other logits; %s", plan, n, total,
                      lost ? " for good" : "", notices);
        if (!strstr(notices, "OpenCL")) {
            ck_assert_msg(!lost, "%s: nobody was told that call %ld failed", plan, n);
            untold++;
        }
        free(got);
    }
    /* a matrix that may not be used in place is copied instead: no more than there are matrices */
    ck_assert_int_le(untold, 33);
    printf("%s: every seventh of %ld OpenCL calls failed, %ld without a word\n", plan, total,
           untold);
    free(want);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("opencl_engine");
    TCase *c = tcase_create("engine");

    snprintf(cache_dir, sizeof cache_dir, "%s", support_tmpdir());
    tcase_set_timeout(c, 240);
    tcase_add_test(c, every_plan_same_text);
    tcase_add_loop_test(c, switching_keeps_the_text, 0, 2);
    tcase_add_loop_test(c, checkpoints_match, 0, 4);
    tcase_add_test(c, nothing_is_copied_on_shared_memory);
    tcase_add_test(c, many_sessions_lie_once);
    tcase_add_test(c, a_handover_moves_nothing_on_shared_memory);
    tcase_add_loop_test(c, windows_lie_once, 0, 6);
    tcase_add_test(c, a_model_lies_once_in_memory);
    tcase_add_test(c, two_opencl_devices);
    tcase_add_test(c, losing_the_device);
    tcase_add_test(c, auto_copies_a_few_layers);
    tcase_add_loop_test(c, calls_all_over_fail, 0, 2);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
