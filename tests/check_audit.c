/* Devices that are not to be relied on: one bit of one job's result is wrong, memory runs out, jobs
 * become slow. The text must be the CPU's, and what happened must be said. The second device is the
 * fake one; its arithmetic is the CPU's, but for what it is told to spoil. */
#include "engine/base/clock.h"
#include "engine/run/engine.h"
#include "engine/run/prompt.h"
#include "engine/run/state/slow_device.h"
#include "tests/fake_device.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define TOKENS 24

static const struct device_ops *const fused[] = {&fake_device_ops, &cpu_device_ops, NULL};
static const struct device_ops *const plain[] = {&fake_device_plain_ops, &cpu_device_ops, NULL};

struct heard {
    char text[8192], notices[8192], wrong[512];
    size_t len;
};

static int hear(void *ctx, struct event *ev)
{
    struct heard *h = ctx;
    size_t n = strlen(h->notices);

    if (ev->kind == EVENT_TOKEN) {
        memcpy(h->text + h->len, ev->token.text, ev->token.len + 1u);
        h->len += ev->token.len;
    } else if (ev->kind == EVENT_NOTICE) {
        snprintf(h->notices + n, sizeof h->notices - n, "%s\n", ev->text);
    }
    return 0;
}

static char told_wrong[512];

static void on_wrong(void *ctx, const char *line)
{
    snprintf(told_wrong, sizeof told_wrong, "%s", line);
}

struct setting {
    const struct device_ops *const *backends;
    const char *placement, *devices;
    int audit, sessions;
    const char *cache;
};

static struct engine *open_as(const struct setting *s)
{
    struct engine_config c = {.device_selector = s->devices,
                              .context = 256,
                              .n_threads = 1,
                              .ubatch = 16,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .convert = -1,
                              .backends = s->backends,
                              .placement = s->placement,
                              .audit = s->audit,
                              .prompt_cache = s->cache,
                              .prompt_cache_bytes = 64 << 20,
                              .wrong = on_wrong};
    char path[4200];
    struct engine *g = NULL;
    struct error e = {0};

    told_wrong[0] = 0;
    snprintf(path, sizeof path, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    c.model_path = path;
    if (engine_open(&g, &c, &e) < 0)
        ck_abort_msg("%s", e.text);
    return g;
}

static void tell(struct engine *g, struct heard *h, int max_tokens)
{
    struct message m[2];
    struct dialogue said = {.messages = m, .n_messages = 2};
    struct turn_done_event done;
    struct error e = {0};
    struct turn t = {.max_tokens = max_tokens,
                     .ignore_eos = true,
                     .sampling = {.temperature = 0.8f,
                                  .top_k = 40,
                                  .top_p = 0.95f,
                                  .repeat_penalty = 1.1f,
                                  .repeat_last_n = 64,
                                  .seed = 5}};

    m[0] = (struct message){.role = ROLE_SYSTEM,
                            .text = "You tell short stories to small children."};
    m[1] = (struct message){.role = ROLE_USER,
                            .text = "Tell me a story about a fox who wanted to fly."};
    memset(h, 0, sizeof *h);
    ck_assert_msg(prompt_turn(g, NULL, &said, &t, hear, h, &done, &e) == 0, "%s", e.text);
    ck_assert_int_eq(done.completion_tokens, max_tokens);
}

static const struct device_health *health(struct engine *g, int device)
{
    struct error e = {0};

    engine_settle(g, &e);
    return &engine_telemetry(g)->health[device];
}

/* What the CPU alone says. */
static const char *reference(int max_tokens)
{
    static struct heard h;
    struct engine *g = open_as(&(struct setting){0});

    tell(g, &h, max_tokens);
    engine_close(g);
    return h.text;
}

static const char *const plans[] = {"gpu",       "experts-gpu", "attention-gpu", "layers:3",
                                    "experts:5", "hot:4M",      "stream:3M",     "balanced"};
#define PLANS (int)(sizeof plans / sizeof *plans)
/* without measurements, which are jobs, too, and may leave the device without any */
#define FIXED_PLANS (PLANS - 1)

/* Audits find nothing where there is nothing, and change nothing; every job is audited that was to
 * be, and about as many as asked for. */
START_TEST(audits_of_a_right_device_find_nothing)
{
    static const int often[] = {1, 3, 40};
    const char *want = reference(TOKENS);
    static struct heard h;

    fake_device_control(NULL);
    for (int k = 0; k < 6; k++) {
        int n = often[k / 2];
        struct engine *g = open_as(&(
            struct setting){.backends = k % 2 ? plain : fused, .placement = plans[_i], .audit = n});
        const struct device_health *x;

        tell(g, &h, TOKENS);
        x = health(g, 1);
        ck_assert_msg(strcmp(h.text, want) == 0, "%s: %s", plans[_i], h.text);
        ck_assert_msg(!strstr(h.notices, "wrong"), "%s", h.notices);
        ck_assert_int_eq(x->trouble, TROUBLE_NONE);
        ck_assert_uint_eq(x->inexact + x->missed, 0);
        if (n == 1)
            ck_assert_msg(x->audited == x->jobs, "%s: %llu of %llu", plans[_i],
                          (unsigned long long)x->audited, (unsigned long long)x->jobs);
        if (x->jobs > 200) {
            ck_assert_uint_gt(x->audited, x->jobs / (unsigned)n / 3);
            ck_assert_uint_lt(x->audited, x->jobs / (unsigned)n * 2 + 1);
        }
        if (k == 0)
            printf("%s: %llu jobs, %llu audited\n", plans[_i], (unsigned long long)x->jobs,
                   (unsigned long long)x->audited);
        engine_close(g);
    }
}
END_TEST

/* One bit, once, anywhere: the token is computed again, and no letter differs. */
START_TEST(one_wrong_bit_is_found)
{
    const char *want = reference(TOKENS), *placement = plans[_i / 2];
    const struct device_ops *const *backends = _i % 2 ? plain : fused;
    static struct heard h;
    struct engine *g;
    long total, found = 0;

    fake_device_control(NULL);
    g = open_as(&(struct setting){.backends = backends, .placement = placement, .audit = 1});
    tell(g, &h, TOKENS);
    total = fake_device_jobs();
    engine_close(g);
    for (long n = 1; n <= total; n += total / 9 + 1) {
        const struct device_health *x;

        fake_device_control(&(struct fake_control){.wrong_at = n});
        g = open_as(&(struct setting){.backends = backends, .placement = placement, .audit = 1});
        tell(g, &h, TOKENS);
        x = health(g, 1);
        ck_assert_msg(strcmp(h.text, want) == 0, "%s, job %ld: %s", placement, n, h.text);
        if (fake_device_jobs() >= n) {
            found++;
            ck_assert_int_eq(x->trouble, TROUBLE_WRONG);
            ck_assert_msg(strstr(h.notices, "fake:0 computes wrongly: ") &&
                              strstr(h.notices, "the CPU computes this token again\n"),
                          "%s, job %ld: %s", placement, n, h.notices);
            ck_assert_msg(strstr(x->why, "layer ") || strstr(x->why, "head"), "%s", x->why);
            ck_assert_ptr_nonnull(strstr(x->why, "input checksum "));
            ck_assert_ptr_nonnull(strstr(told_wrong, x->why));
            ck_assert_uint_eq(engine_telemetry(g)->devices[1].failures, 0);
            ck_assert(!plan_uses_devices(engine_plan(g)));
        }
        engine_close(g);
    }
    fake_device_control(NULL);
    ck_assert_int_gt(found, 0);
    printf("%s: %ld found, the last: %s", placement, found, h.notices);
}
END_TEST

/* The logits of the newest token, once on what is cached and once on the CPU from the text. */
static void expect_rows_of_the_cpu(struct engine *g)
{
    const int *ids;
    int n = engine_session_tokens(g, &ids), next = 17, vocab = engine_info(g)->model->hp.n_vocab;
    float *got = calloc((size_t)vocab, sizeof *got), *want = calloc((size_t)vocab, sizeof *want);
    struct engine *cpu = open_as(&(struct setting){0});
    struct error e = {0};

    ck_assert_int_gt(n, 20);
    ck_assert_msg(engine_eval(cpu, ids, n, NULL, false, &e) == 0, "%s", e.text);
    ck_assert_int_eq(engine_eval(cpu, &next, 1, want, false, &e), 0);
    ck_assert_int_eq(engine_eval(g, &next, 1, got, false, &e), 0);
    ck_assert_mem_eq(got, want, (size_t)vocab * sizeof *got);
    free(got);
    free(want);
    engine_close(cpu);
}

/* With few audits a device may have been wrong for long: everything that it had a part in is
 * computed again, from the text as it was shown. */
START_TEST(everything_before_is_computed_again)
{
    static struct heard h;
    const char *placement = plans[_i];

    for (int k = 0; k < 2; k++) {
        struct engine *g;
        const struct device_health *x;

        fake_device_control(&(struct fake_control){.wrong_at = 20, .wrong_on = true});
        g = open_as(
            &(struct setting){.backends = k ? plain : fused, .placement = placement, .audit = 25});
        tell(g, &h, 60);
        x = health(g, 1);
        ck_assert_msg(x->trouble == TROUBLE_WRONG, "%s: %llu of %llu jobs", placement,
                      (unsigned long long)x->audited, (unsigned long long)x->jobs);
        ck_assert_uint_lt(x->audited + 1, x->jobs);
        ck_assert_msg(strstr(h.notices, ", and everything before it (") != NULL, "%s", h.notices);
        expect_rows_of_the_cpu(g);
        engine_close(g);
    }
    fake_device_control(NULL);
}
END_TEST

/* Of two devices only the one that is wrong goes. */
START_TEST(the_other_device_stays)
{
    const char *want = reference(TOKENS);
    static struct heard h;

    for (int k = 0; k < 2; k++) {
        struct engine *g;

        fake_device_control(
            &(struct fake_control){.devices = 2, .wrong_at = 60, .wrong_on = true, .only = 2});
        g = open_as(&(struct setting){.backends = k ? plain : fused,
                                      .devices = "fake:0,fake:1",
                                      .placement = "layers:0=2,1=3",
                                      .audit = 1});
        tell(g, &h, TOKENS);
        ck_assert_str_eq(h.text, want);
        ck_assert_ptr_nonnull(strstr(h.notices, "fake:1 computes wrongly"));
        ck_assert_ptr_null(strstr(h.notices, "fake:0"));
        ck_assert_int_eq(health(g, 1)->trouble, TROUBLE_NONE);
        ck_assert_int_eq(health(g, 2)->trouble, TROUBLE_WRONG);
        ck_assert(plan_uses_devices(engine_plan(g)));
        ck_assert_str_eq(engine_telemetry(g)->plan, "layers:0=2,1=3, part on the CPU");
        engine_close(g);
    }
    fake_device_control(NULL);
}
END_TEST

/* ---- layers that keep something else than all rows, float weights, several sessions at once ----
 */

#define LONG 640
#define PIECES 4
#define SESSIONS 2

static const struct kind {
    const char *what, *model, *override;
    int convert;
    bool exact; /* its jobs can be audited */
} kinds[] = {{"all rows", NULL, NULL, -1, true},
             {"rings", NULL, "*.attention.sliding_window=int:12", -1, true},
             {"recurrent", "golden/families/lfm2_moe", NULL, DTYPE_Q8_0, true},
             {"float", "golden/phimoe/phimoe-window-f32", NULL, -1, false}};
static const int pieces[SESSIONS][PIECES] = {{100, 1, 280, 1}, {7, 150, 1, 1}};

static struct engine *open_kind(const struct kind *k, const struct device_ops *const *backends,
                                const char *placement)
{
    const struct overrides o = {&k->override, 1};
    struct engine_config c = {.model_path = k->model ? support_path(k->model) : support_demo(),
                              .no_tokenizer = k->model != NULL,
                              .overrides = k->override ? &o : NULL,
                              .context = LONG,
                              .n_threads = 1,
                              .ubatch = backends ? 64 : LONG,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .convert = k->convert,
                              .exact = !k->exact,
                              .backends = backends,
                              .placement = placement,
                              .audit = 1,
                              .wrong = on_wrong};
    struct engine *g = NULL;
    struct error e = {0};

    if (engine_open(&g, &c, &e) < 0)
        ck_abort_msg("%s: %s", k->what, e.text);
    return g;
}

/* Sessions fed by turns in pieces: the logits behind each, (PIECES, SESSIONS, vocab). */
static float *by_turns(struct engine *g)
{
    int vocab = engine_info(g)->model->hp.n_vocab, ids[SESSIONS][LONG], done[SESSIONS] = {0};
    float *logits = calloc((size_t)(PIECES * SESSIONS * vocab), sizeof *logits);
    struct session *s[SESSIONS];
    struct error e = {0};

    for (int i = 0; i < SESSIONS; i++) {
        ck_assert_msg(engine_session_open(g, &s[i], &e) == 0, "%s", e.text);
        for (int t = 0; t < LONG; t++)
            ids[i][t] = (t * 37 + i * 101 + 11) % vocab;
    }
    for (int p = 0; p < PIECES; p++)
        for (int i = 0; i < SESSIONS; done[i] += pieces[i][p], i++)
            ck_assert_msg(engine_session_eval(s[i], ids[i] + done[i], pieces[i][p], 0,
                                              logits + (size_t)((p * SESSIONS + i) * vocab), false,
                                              &e) == 0,
                          "%s", e.text);
    for (int i = 0; i < SESSIONS; i++)
        engine_session_close(s[i]);
    return logits;
}

/* One wrong bit anywhere is found whatever a layer keeps, and the sessions beside go on with the
 * right rows. Jobs with float weights are no audit's: their sums may differ by right. */
START_TEST(every_kind_of_layer_is_audited)
{
    const struct kind *k = &kinds[_i / 2];
    const char *placement = _i % 2 ? "attention-gpu" : "gpu";
    struct engine *g = open_kind(k, NULL, NULL);
    size_t bytes = (size_t)(PIECES * SESSIONS * engine_info(g)->model->hp.n_vocab) * sizeof(float);
    float *want = by_turns(g);
    long total, found = 0;

    engine_close(g);
    fake_device_control(NULL);
    for (long n = 0, step = 1; n == 0 || (n <= total && k->exact); n += step) {
        const struct device_health *x;
        float *got;

        fake_device_control(&(struct fake_control){.wrong_at = n});
        g = open_kind(k, plain, placement);
        got = by_turns(g);
        x = health(g, 1);
        ck_assert_msg(memcmp(got, want, bytes) == 0, "%s, %s: job %ld: other logits", k->what,
                      placement, n);
        if (n == 0) {
            total = fake_device_jobs();
            step = total / 4 + 1;
            ck_assert_int_eq(x->trouble, TROUBLE_NONE);
            ck_assert_int_gt(total, 10);
            ck_assert_uint_eq(x->missed, 0);
            ck_assert_msg(k->exact ? x->audited == x->jobs - x->inexact && x->audited > 0
                                   : x->audited == 0 && x->inexact == x->jobs,
                          "%s: %llu audited, %llu inexact, %llu jobs", k->what,
                          (unsigned long long)x->audited, (unsigned long long)x->inexact,
                          (unsigned long long)x->jobs);
        } else {
            found += x->trouble == TROUBLE_WRONG;
            ck_assert(x->trouble == TROUBLE_WRONG || x->inexact);
        }
        free(got);
        engine_close(g);
    }
    fake_device_control(NULL);
    ck_assert_msg(found > 0 || !k->exact, "%s: nothing was found", k->what);
    printf("%s, %s: %ld jobs, %ld wrong ones found\n", k->what, placement, total, found);
    free(want);
}
END_TEST

/* What this run wrote into the prompt cache goes too, and nothing more is written. */
START_TEST(the_prompt_cache_is_withdrawn)
{
    static struct heard h;
    char command[4400];

    for (int k = 0; k < 2; k++) {
        const char *folder = support_put(support_tmpdir(), k ? "right" : "wrong", "");
        struct engine *g;

        remove(folder);
        fake_device_control(&(struct fake_control){.wrong_at = k ? 0 : 40, .wrong_on = true});
        g = open_as(&(
            struct setting){.backends = fused, .placement = "gpu", .audit = 300, .cache = folder});
        for (int round = 0; round < 12 && !strstr(h.notices, "wrong"); round++) {
            tell(g, &h, TOKENS);
            while (engine_idle_step(g))
                ;
            engine_session_clear(g);
        }
        ck_assert_int_eq(strstr(h.notices, "wrong") != NULL, !k);
        tell(g, &h, TOKENS);
        engine_close(g);
        snprintf(command, sizeof command, "ls '%s' | grep -qv '^weights-'", folder);
        ck_assert_int_eq(system(command) == 0, k);
        memset(&h, 0, sizeof h);
    }
    fake_device_control(NULL);
}
END_TEST

/* ---- more than a device can do ---- */

/* Jobs find no memory: the CPU computes them, blocks go back, the rest stays and works on. */
START_TEST(a_device_out_of_memory_keeps_what_fits)
{
    const char *want = reference(TOKENS), *placement = plans[_i / 2];
    static struct heard h;

    for (long jobs = 0; jobs <= 40; jobs += 10) {
        struct engine *g;
        const struct device_health *x;
        bool reached;

        fake_device_control(&(struct fake_control){.memory_at = 30, .memory_jobs = jobs});
        g = open_as(&(struct setting){
            .backends = _i % 2 ? plain : fused, .placement = placement, .audit = 1});
        tell(g, &h, TOKENS);
        reached = fake_device_jobs() >= 30;
        x = health(g, 1);
        ck_assert_msg(strcmp(h.text, want) == 0, "%s, %ld jobs: %s", placement, jobs, h.text);
        ck_assert_int_eq(x->trouble, reached ? TROUBLE_MEMORY : TROUBLE_NONE);
        ck_assert(!engine_telemetry(g)->devices[1].failures == !reached);
        ck_assert_int_eq(x->returned > 0, reached);
        ck_assert(!reached ||
                  strstr(h.notices, "is out of memory (fake device: no memory for job"));
        if (reached && jobs == 0) {
            ck_assert_int_eq(x->returned, 1);
            ck_assert_ptr_nonnull(strstr(h.notices, "1 block goes back to the CPU"));
            ck_assert(plan_uses_devices(engine_plan(g)));
        }
        engine_close(g);
    }
    fake_device_control(NULL);
}
END_TEST

/* A device that is slow while it holds too much gives back until it is not. */
START_TEST(a_slow_device_keeps_what_it_can_do)
{
    const char *want = reference(90);
    static struct heard h;
    struct engine *g;
    const struct device_health *x;
    uint64_t bytes;

    fake_device_processor(false);
    fake_device_control(
        &(struct fake_control){.slow_at = _i ? 320 : 40, .slow_us = 60000, .slow_bytes = 3 << 20});
    g = open_as(&(struct setting){.backends = _i ? plain : fused, .placement = "gpu"});
    tell(g, &h, 90);
    x = health(g, 1);
    ck_assert_str_eq(h.text, want);
    ck_assert_msg(x->trouble == TROUBLE_SLOW, "%s", h.notices);
    ck_assert_ptr_nonnull(
        strstr(h.notices, "fake:0 has become slow (jobs take more than ten times"));
    ck_assert_ptr_nonnull(strstr(h.notices, "1 block goes back"));
    ck_assert_ptr_nonnull(strstr(h.notices, "2 blocks go back"));
    ck_assert_str_eq(engine_telemetry(g)->plan, "gpu, part on the CPU");
    bytes = engine_telemetry(g)->devices[1].weight_bytes;
    printf("%d blocks went back, %llu bytes stayed\n", x->returned, (unsigned long long)bytes);
    ck_assert_uint_le(bytes, 3 << 20);
    ck_assert_uint_gt(bytes, 0);
    engine_close(g);
    fake_device_control(NULL);
}
END_TEST

/* What is slow, and what is not. */
START_TEST(slow_is_ten_times_the_median_several_times)
{
    struct slow_device s = {0};
    uint64_t now = CLOCK_SECOND;
    struct slow_job j = {.kind = SLOW_EXPERTS, .rows = 1, .depth = 100, .units = 4};
    int sure = 0;

#define JOB(ms, share)                                         \
    (j.start_ns = now, j.end_ns = now += (uint64_t)((ms)*1e6), \
     j.waited_ns = (uint64_t)((double)(j.end_ns - j.start_ns) * (share)), slow_device_job(&s, &j))
    for (int i = 0; i < 20; i++)
        ck_assert_int_ne(JOB(8, 1), SLOW_SURE);
    for (int i = 0; i < 100; i++) /* nine times is not ten; noise is not in a row */
        ck_assert_int_eq(JOB(i % 4 ? 8 : 75, 1), SLOW_NOT);
    for (int i = 0; i < 100; i++)
        ck_assert_int_ne(JOB(i % 4 ? 400 : 8, 1), SLOW_SURE);
    for (int i = 0; i < 100; i++) /* something else was computed meanwhile */
        ck_assert_int_ne(JOB(400, 0.2), SLOW_SURE);
    for (int i = 0; i < 100; i++) { /* the first job after a pause */
        now += 2 * CLOCK_SECOND;
        ck_assert_int_eq(JOB(400, 1), SLOW_UNKNOWN);
    }
    j.depth = 50000; /* nothing is known of such jobs */
    ck_assert_int_eq(JOB(400, 1), SLOW_UNKNOWN);
    j.depth = 100;
    j.kind = SLOW_HEAD;
    ck_assert_int_eq(JOB(400, 1), SLOW_UNKNOWN);
    j.kind = SLOW_EXPERTS;
    ck_assert_int_eq(JOB(8, 1), SLOW_NOT);
    for (int i = 0; i < 20; i++) {
        if (i < 3)
            ck_assert_int_eq(JOB(100, 1), SLOW_UNKNOWN);
        else
            sure += JOB(100, 1) == SLOW_SURE;
    }
    ck_assert_int_eq(sure, 9); /* the fourth, then every second */
    j.units = 400;             /* so many experts take so long */
    ck_assert_int_eq(JOB(400, 1), SLOW_NOT);
#undef JOB
}
END_TEST

/* ---- the program ---- */

static char out[65536], err[65536];

static void read_back(const char *name, char *text, size_t size)
{
    char path[4300];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", support_tmpdir(), name);
    f = fopen(path, "r");
    ck_assert(f != NULL);
    text[fread(text, 1, size - 1, f)] = 0;
    fclose(f);
}

/* The program with a faulty device (tests/faulty.c); its exit status. Its list of devices stands in
 * place of the one in the library that sanitizers' builds share, which ASan would call a mistake.
 */
static int run(const char *fault, const char *flags)
{
    char line[8192];
    const char *build = getenv("CHECK_BUILD");
    int status;

    snprintf(line, sizeof line,
             "cd '%s' && T='%s' && export XDG_CONFIG_HOME=$T/none XDG_STATE_HOME=$T/state "
             "XDG_CACHE_HOME=$T/cache FAULT=%s "
             "ASAN_OPTIONS=$ASAN_OPTIONS:detect_odr_violation=0 && %s/tests/faulty -m "
             "configs/models/tiny-storyteller-Q8_0.gguf -p 'Tell me a story about a fox.' --temp "
             "0.9 --seed 7 -n 40 %s >$T/out 2>$T/err </dev/null",
             support_root(), support_tmpdir(), fault, build ? build : "build/release", flags);
    status = system(line);
    read_back("out", out, sizeof out);
    read_back("err", err, sizeof err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define SAYS(text, what) ck_assert_msg(strstr(text, what) != NULL, "no %s: %s", what, text)

START_TEST(the_program_says_so)
{
    static char want[65536];

    ck_assert_msg(run("none", "--place cpu") == 0, "%s", err);
    memcpy(want, out, sizeof want);
    ck_assert_msg(run("none", "--place gpu --audit 1 --stats") == 0, "%s", err);
    ck_assert_str_eq(out, want);
    SAYS(err, "jobs audited, all equal");
    ck_assert_msg(run("none", "--place gpu --audit 0 --stats") == 0, "%s", err);
    SAYS(err, "no audits (--audit)");
    /* one bit: the text is right, the exit code is not 0 */
    ck_assert_msg(run("wrong:30", "--place gpu --audit 1 --stats") == 6, "%s", err);
    ck_assert_str_eq(out, want);
    SAYS(err, "fake:0 computes wrongly: ");
    SAYS(err, "input checksum ");
    SAYS(err, "WRONG: ");
    SAYS(err, "moetop: fake:0 computed wrongly: ");
    ck_assert_msg(run("wrong:30", "--place gpu --audit 1 --stats-json $T/json") == 6, "%s", err);
    read_back("json", out, sizeof out);
    SAYS(out, "\"trouble\": \"wrong\"");
    SAYS(out, "\"auditable\": ");
    ck_assert_msg(run("memory:30", "--place gpu --stats") == 0, "%s", err);
    ck_assert_str_eq(out, want);
    SAYS(err, "OUT OF MEMORY: ");
    SAYS(err, "went back to the CPU");
    ck_assert_msg(run("lost:60", "--place gpu --stats") == 0, "%s", err);
    ck_assert_msg(strstr(err, "plan cpu (was gpu)") != NULL, "%s", err);
    ck_assert_str_eq(out, want);
    SAYS(err, "LOST: ");
    /* memory of its own: keys and values of the prompt move to where tokens are computed */
    for (int k = 0; k < 2; k++) {
        ck_assert_msg(run("none", k ? "--place gpu --place-prompt cpu --stats"
                                    : "--place cpu --place-prompt gpu --stats") == 0,
                      "%s", err);
        ck_assert_str_eq(out, want);
        SAYS(err, "KiB of keys and values copied to where tokens are computed");
        ck_assert_ptr_null(strstr(err, " 0.0 KiB of keys and values"));
    }
    ck_assert_msg(run("none", "--audit -1") == 2, "%s", err);
    ck_assert_msg(run("none", "--audit often") == 2, "%s", err);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("audit");
    TCase *t = tcase_create("audit");

    tcase_add_loop_test(t, audits_of_a_right_device_find_nothing, 0, PLANS);
    tcase_add_loop_test(t, one_wrong_bit_is_found, 0, 2 * FIXED_PLANS);
    tcase_add_loop_test(t, everything_before_is_computed_again, 0, FIXED_PLANS);
    tcase_add_test(t, the_other_device_stays);
    tcase_add_loop_test(t, every_kind_of_layer_is_audited, 0,
                        2 * (int)(sizeof kinds / sizeof *kinds));
    tcase_add_test(t, the_prompt_cache_is_withdrawn);
    tcase_add_loop_test(t, a_device_out_of_memory_keeps_what_fits, 0, 2 * FIXED_PLANS);
    tcase_add_loop_test(t, a_slow_device_keeps_what_it_can_do, 0, 2);
    tcase_add_test(t, slow_is_ten_times_the_median_several_times);
    tcase_add_test(t, the_program_says_so);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    fake_device_processor(true); /* a busy machine is no trouble of the device */
    return support_run(suite());
}
