/* auto: measured beside a session, a device that wins and one that loses, the message, the stored
 * verdict and what makes it void, the bounds of time (by a clock of the test's own) and of copies,
 * a plan for each phase, and what an interruption leaves. */
#include "app/placement/auto.h"
#include "app/setup/resolve.h"
#include "engine/base/clock.h"
#include "engine/placement/trial.h"
#include "engine/placement/verdict.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "tests/fake_device.h"
#include "tests/support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct device_ops *const backends[] = {&fake_device_ops, &cpu_device_ops, NULL};
static char notice[1024];
static int progress;

static int hear(void *ctx, struct event *ev)
{
    if (ev->kind == EVENT_NOTICE)
        snprintf(notice, sizeof notice, "%s", ev->text);
    progress += ev->kind == EVENT_PROGRESS;
    return 0;
}

static const char *selector; /* of the next engine; NULL: the first device */

static struct engine *open_demo(const char *cache, const char *placement)
{
    struct engine_config c = {.context = 256,
                              .n_threads = 1,
                              .ubatch = 16,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .convert = -1,
                              .backends = backends,
                              .device_selector = selector,
                              .placement = placement,
                              .cache_dir = cache};
    char path[4200];
    struct engine *g = NULL;
    struct error e = {0};

    snprintf(path, sizeof path, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    c.model_path = path;
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    engine_events_set(g, hear, NULL);
    notice[0] = 0;
    progress = 0;
    return g;
}

static const char *cache_of(const char *name)
{
    static char path[400];

    snprintf(path, sizeof path, "%s/%s", support_tmpdir(), name);
    return path;
}

static int verdicts(const char *cache)
{
    DIR *d = opendir(cache);
    struct dirent *f;
    int n = 0;

    while (d && (f = readdir(d)))
        n += strncmp(f->d_name, "verdict-", 8) == 0;
    if (d)
        closedir(d);
    return n;
}

/* A session of 40 tokens, and its counts. */
static uint64_t fill(struct engine *g)
{
    int ids[40];
    struct error e = {0};
    uint64_t sum = 0;

    for (int i = 0; i < 40; i++)
        ids[i] = 10 + i;
    ck_assert_msg(engine_eval(g, ids, 40, NULL, false, &e) == 0, "%s", e.text);
    for (int i = 0; i < engine_telemetry(g)->n_layers * engine_telemetry(g)->n_experts; i++)
        sum += engine_telemetry(g)->session[i];
    return sum;
}

static uint64_t counted(struct engine *g)
{
    uint64_t sum = 0;

    for (int i = 0; i < engine_telemetry(g)->n_layers * engine_telemetry(g)->n_experts; i++)
        sum += engine_telemetry(g)->session[i];
    return sum;
}

/* Measured beside other programs a win or a loss can drown in the noise, and auto is right to say
 * so: measured anew, in a cache of its own. */
#define ATTEMPTS 6

static void judge(bool faster)
{
    const char *expected = faster ? "auto (gpu)" : "auto (cpu)", *cache = NULL;
    const char *verdict = faster ? "auto: tokens gpu (" : "auto: tokens cpu (";
    struct engine *g = NULL;
    struct error e = {0};
    uint64_t counts = 0;
    long calls;

    fake_device_control(&(struct fake_control){.instant = faster, .delay_us = faster ? 0 : 400});
    for (int attempt = 0;
         attempt < ATTEMPTS &&
         (!g || strcmp(engine_telemetry(g)->plan, expected) != 0 || !strstr(notice, verdict));
         attempt++) {
        char name[40];

        engine_close(g);
        snprintf(name, sizeof name, "%s-%d", faster ? "fast" : "slow", attempt);
        cache = cache_of(name);
        g = open_demo(cache, NULL);
        ck_assert(!place_auto_due(g, NULL)); /* nobody asked, no GPU was used */
        ck_assert(place_auto_due(g, "auto"));
        counts = fill(g);
        ck_assert_msg(place_auto(g, &e) == 0, "%s", e.text);
    }
    printf("%s\n", notice);
    ck_assert_str_eq(engine_telemetry(g)->plan, expected);
    ck_assert_msg(strstr(notice, verdict) != NULL, "%s", notice);
    ck_assert_ptr_nonnull(strstr(notice, "; measured in "));
    ck_assert_ptr_nonnull(strstr(notice, " prompts "));
    ck_assert_ptr_nonnull(strstr(notice, "±"));
    ck_assert_str_eq(engine_telemetry(g)->verdict.row[0].spec, "cpu");
    ck_assert_int_gt(engine_telemetry(g)->verdict.n_rows, 2);
    ck_assert_int_gt(progress, 10);
    ck_assert_int_eq(verdicts(cache), 1);
    ck_assert(!place_auto_due(g, "auto"));
    ck_assert_int_eq(engine_session_tokens(g, NULL), 40);
    ck_assert_uint_eq(counted(g), counts);
    engine_close(g);
    /* the next start believes it without measuring */
    calls = fake_device_calls();
    g = open_demo(cache, "auto");
    ck_assert(!place_auto_due(g, "auto"));
    ck_assert_str_eq(engine_telemetry(g)->plan, expected);
    ck_assert_int_lt(fake_device_calls() - calls, faster ? 300 : 1);
    engine_close(g);
    fake_device_control(NULL);
}

START_TEST(a_device_that_wins)
{
    judge(true);
}
END_TEST

START_TEST(a_device_that_loses)
{
    judge(false);
}
END_TEST

/* Every reading is 1 ms later than the one before: the time spent is a count of pieces. */
static uint64_t ticks(void *ctx)
{
    uint64_t *now = ctx;

    return *now += 1000000;
}

static uint64_t tenths(void *ctx)
{
    uint64_t *now = ctx;

    return *now += CLOCK_MILLI / 10;
}

static const struct verdict_row *row_of(const struct verdict *v, const char *spec)
{
    for (int i = 0; i < v->n_rows; i++)
        if (strcmp(v->row[i].spec, spec) == 0)
            return &v->row[i];
    return NULL;
}

static int experts_on(const struct plan *p, int device)
{
    int n = 0;

    for (int i = 0; i < p->n_layers * p->n_experts; i++)
        n += p->experts[i] == device;
    return n;
}

/* Measures with two devices, one of which takes longer, anew while the noise hides that. */
static struct engine *judge_two(const char *name, int slow, const char *expected)
{
    struct engine *g = NULL;
    struct error e = {0};

    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        char cache[40];

        engine_close(g);
        snprintf(cache, sizeof cache, "%s-%d", name, attempt);
        fake_device_control(&(
            struct fake_control){.devices = 2, .instant = true, .delay_us = 400, .delayed = slow});
        g = open_demo(cache_of(cache), NULL);
        fill(g);
        ck_assert(place_auto_due(g, "auto"));
        ck_assert_msg(place_auto(g, &e) == 0, "%s", e.text);
        if (strcmp(engine_telemetry(g)->plan, expected) == 0)
            break;
    }
    printf("%s\n", notice);
    return g;
}

/* Of two devices the faster one is chosen, wherever it stands, and the table shows both. */
START_TEST(the_faster_of_two_devices)
{
    const char *expected = _i ? "auto (gpu:1)" : "auto (gpu)";
    const struct verdict_row *first, *second;
    const struct verdict *v;
    struct engine *g;

    selector = "fake:0,fake:1";
    g = judge_two(_i ? "second" : "first", _i ? 1 : 2, expected);
    ck_assert_str_eq(engine_telemetry(g)->plan, expected);
    v = &engine_telemetry(g)->verdict;
    ck_assert(v->decided);
    ck_assert_str_eq(v->device, "fake:0 (Fake), fake:1 (Fake)");
    first = row_of(v, "gpu");
    second = row_of(v, "gpu:1");
    ck_assert(first && second && row_of(v, "attention-gpu:1") && row_of(v, "experts-gpu:1"));
    for (int k = 0; k < PLAN_PHASES; k++)
        ck_assert((first->ns[k] < second->ns[k]) == (_i == 0));
    ck_assert_int_eq(experts_on(engine_plan(g), 2 - _i), 0);
    ck_assert_int_eq(experts_on(engine_plan(g), 1 + _i),
                     engine_plan(g)->n_layers * engine_plan(g)->n_experts);
    engine_close(g);
    fake_device_control(NULL);
    selector = NULL;
}
END_TEST

/* Two devices share the half second, and what they had is taken away. */
START_TEST(two_devices_have_the_same_time)
{
    struct engine *g;
    struct error e = {0};
    const struct verdict *v;
    uint64_t now = 0;

    selector = "fake:0,fake:1";
    fake_device_control(&(struct fake_control){.devices = 2, .instant = true});
    g = open_demo(cache_of("both"), NULL);
    fill(g);
    ck_assert_msg(engine_auto(g, tenths, &now, &e) == 0, "%s", e.text);
    v = &engine_telemetry(g)->verdict;
    ck_assert(v->decided);
    ck_assert_uint_le(v->spent_ns, TRIAL_FIRST_NS + 4 * CLOCK_MILLI);
    ck_assert(v->bytes > 0 && v->bytes <= TRIAL_BYTES);
    for (int d = 1; d <= 2; d++)
        ck_assert_uint_eq(engine_telemetry(g)->devices[d].weight_bytes, 0);
    engine_close(g);
    /* one of them alone is another question */
    g = open_demo(cache_of("both"), NULL);
    ck_assert(!place_auto_due(g, "auto"));
    engine_close(g);
    selector = "fake:0";
    g = open_demo(cache_of("both"), NULL);
    ck_assert(place_auto_due(g, "auto"));
    engine_close(g);
    fake_device_control(NULL);
    selector = NULL;
}
END_TEST

/* One that fails is left out, at whichever call, and the other decides. */
START_TEST(one_of_two_devices_fails)
{
    static const long at[] = {1, 20, 60};
    int which = _i % 2;
    struct engine *g;
    struct error e = {0};
    char says[80];
    uint64_t now = 0;

    selector = "fake:0,fake:1";
    fake_device_control(&(struct fake_control){.devices = 2, .instant = true});
    g = open_demo(cache_of("fails"), NULL);
    fill(g);
    ck_assert(engine_auto_due(g)); /* opens them */
    fake_device_control(&(struct fake_control){
        .devices = 2, .instant = true, .fail_at = at[_i / 2], .lost = true, .only = 1 + which});
    ck_assert_msg(engine_auto(g, tenths, &now, &e) == 0, "%s", e.text);
    snprintf(says, sizeof says, "auto: fake:%d (Fake) failed while it was measured (fake failure",
             which);
    ck_assert_msg(strncmp(notice, says, strlen(says)) == 0, "%s", notice);
    ck_assert(engine_telemetry(g)->verdict.decided);
    snprintf(says, sizeof says, "fake:%d (Fake)", !which);
    ck_assert_str_eq(engine_telemetry(g)->verdict.device, says);
    ck_assert((row_of(&engine_telemetry(g)->verdict, "gpu:1") != NULL) == !which);
    engine_close(g);
    fake_device_control(NULL);
    selector = NULL;
}
END_TEST

/* A plan that the user named is obeyed, on a GPU used for the first time too. */
START_TEST(a_named_plan_is_not_measured)
{
    const char *cache = cache_of("first");
    struct engine *g;

    fake_device_control(&(struct fake_control){.instant = true});
    g = open_demo(cache, "layers:3");
    fill(g);
    ck_assert(!place_auto_due(g, "layers:3"));
    ck_assert(!place_auto_due(g, NULL));
    ck_assert(place_auto_due(g, "auto"));
    ck_assert_str_eq(engine_telemetry(g)->plan, "layers:3");
    ck_assert_int_eq(verdicts(cache), 0);
    engine_close(g);
    fake_device_control(NULL);
}
END_TEST

static int stop_soon(void *ctx, struct event *ev)
{
    if (ev->kind == EVENT_PROGRESS && ++progress == 7)
        engine_session_cancel(engine_session(ctx));
    return 0;
}

START_TEST(an_interruption_leaves_all_as_it_was)
{
    const char *cache = cache_of("stopped");
    struct engine *g;
    struct error e = {0};
    uint64_t counts;

    fake_device_control(&(struct fake_control){.delay_us = 100});
    g = open_demo(cache, NULL);
    counts = fill(g);
    engine_events_set(g, stop_soon, g);
    ck_assert_int_eq(place_auto(g, &e), ERR_CANCELLED);
    ck_assert_int_eq(progress, 7);
    ck_assert_str_eq(engine_plan(g)->name, "cpu");
    ck_assert_int_eq(verdicts(cache), 0);
    ck_assert_int_eq(engine_session_tokens(g, NULL), 40);
    ck_assert_uint_eq(counted(g), counts);
    ck_assert_uint_eq(engine_telemetry(g)->devices[1].weight_bytes, 0);
    ck_assert(place_auto_due(g, "auto"));
    engine_close(g);
    fake_device_control(NULL);
}
END_TEST

static uint64_t crawl(void *ctx)
{
    uint64_t *now = ctx;

    return *now += 40000000;
}

START_TEST(time_is_bounded)
{
    const char *cache = cache_of(_i ? "crawls" : "ticks");
    struct engine *g;
    struct error e = {0};
    const struct verdict *v;
    uint64_t now = 0;

    fake_device_control(&(struct fake_control){.instant = true});
    g = open_demo(cache, NULL);
    fill(g);
    ck_assert(engine_auto_due(g));
    ck_assert_msg(engine_auto(g, _i ? crawl : ticks, &now, &e) == 0, "%s", e.text);
    v = &engine_telemetry(g)->verdict;
    /* half a second, and the readings of one piece and the last */
    ck_assert_uint_le(v->spent_ns, TRIAL_FIRST_NS + (_i ? 4 * 40000000 : 4 * 1000000));
    ck_assert_uint_le(now, v->spent_ns + 3 * (_i ? 40000000 : 1000000));
    ck_assert_uint_le(v->bytes, TRIAL_BYTES);
    ck_assert_uint_gt(v->bytes, 0);
    ck_assert_uint_eq(engine_telemetry(g)->devices[1].weight_bytes, 0);
    if (_i) { /* too little time: nothing is moved, and not tried again at once */
        ck_assert(!v->decided);
        ck_assert_str_eq(v->spec[PHASE_TOKENS], "cpu");
        ck_assert_str_eq(v->spec[PHASE_PROMPT], "cpu");
        ck_assert(!engine_auto_due(g));
        ck_assert(engine_place(g, "auto", &e) == 0);
        ck_assert_ptr_nonnull(strstr(notice, "auto: not decided after 0."));
    }
    engine_close(g);
    fake_device_control(NULL);
}
END_TEST

START_TEST(the_allowance)
{
    ck_assert_uint_eq(trial_allowance(0, 0), 500000000);
    ck_assert_uint_eq(trial_allowance(0, 400000000), 100000000);
    ck_assert_uint_eq(trial_allowance(0, 600000000), 0);
    ck_assert_uint_eq(trial_allowance(100000000000, 0), 2000000000);
    ck_assert_uint_eq(trial_allowance(100000000000, 2000000001), 0);
}
END_TEST

/* 2 % of what was computed, this run's and the earlier ones', all attempts together. */
START_TEST(the_share_is_counted)
{
    const uint64_t piece = 40000000;
    const char *cache = cache_of("share");
    struct engine *g;
    struct error e = {0};
    uint64_t now = 0, spent = 0, computed = 0;
    int attempts = 0;

    fake_device_control(&(struct fake_control){.instant = true});
    g = open_demo(cache, NULL);
    fill(g);
    for (int hours = 0; hours < 40; hours++) {
        g->computed_ns += 100 * CLOCK_SECOND;
        computed = g->computed_ns;
        if (!engine_auto_due(g))
            continue;
        ck_assert_msg(engine_auto(g, crawl, &now, &e) == 0, "%s", e.text);
        attempts++;
        spent = engine_telemetry(g)->verdict.spent_ns;
        ck_assert_uint_le(spent, (computed / TRIAL_SHARE > TRIAL_FIRST_NS ? computed / TRIAL_SHARE
                                                                          : TRIAL_FIRST_NS) +
                                     4 * piece * (uint64_t)attempts);
        if (engine_telemetry(g)->verdict.decided)
            break;
    }
    ck_assert_int_ge(attempts, 2); /* the first had too little */
    ck_assert(engine_telemetry(g)->verdict.decided);
    ck_assert(!engine_auto_due(g));
    engine_close(g);
    fake_device_control(NULL);
}
END_TEST

/* Prompts that both sides read at the same time are expected to take less than on either. */
START_TEST(prompts_are_expected_to_overlap)
{
    enum { LAYERS = 6, EXPERTS = 4 };
    static uint64_t attention[LAYERS], experts[LAYERS * EXPERTS];
    struct planner_input in = {.n_layers = LAYERS,
                               .n_experts = EXPERTS,
                               .n_experts_used = EXPERTS,
                               .n_devices = 2,
                               .target = 1,
                               .attention_bytes = attention,
                               .expert_bytes = experts,
                               .head_bytes = 1};
    struct trial_costs c = {.sides = 2,
                            .device = {0, 1},
                            .rows = 64,
                            .layers = 4,
                            .of_layers = LAYERS,
                            .used = EXPERTS};
    struct verdict v[2] = {{0}, {0}};
    struct error e = {0};

    for (int i = 0; i < LAYERS * EXPERTS; i++)
        attention[i / EXPERTS] = experts[i] = 1000;
    in.devices[0] = in.devices[1] =
        (struct planner_device){.name = "one", .budget = PLANNER_NO_LIMIT, .head_can = true};
    for (int side = 0; side < 2; side++) /* both sides alike, launches free */
        for (int k = 0; k < PLAN_PHASES; k++)
            for (int j = 0; j < TRIAL_JOBS; j++) {
                struct trial_samples *t = &c.of[side][k][j];

                for (t->n = 0; t->n < TRIAL_SAMPLES; t->n++)
                    t->ns[t->n] = j == TRIAL_EXPERT ? 1e6 : j == TRIAL_HEAD ? 1 : 4e6;
            }
    c.complete = true;
    for (int i = 0; i < 2; i++) {
        c.pass_rows = i ? 512 : 64;
        ck_assert_msg(verdict_decide(&v[i], &c, &in, &e) == 0, "%s", e.text);
    }
    for (int i = 0; i < 2; i++) /* a token's experts are shared where launches are free */
        ck_assert_str_eq(v[i].spec[PHASE_TOKENS], "balanced");
    ck_assert_str_eq(v[0].spec[PHASE_PROMPT], "balanced"); /* likewise, group after group */
    ck_assert_double_gt(v[1].gain[PHASE_PROMPT], v[0].gain[PHASE_PROMPT]);
    ck_assert_str_ne(v[1].spec[PHASE_PROMPT], "cpu");
    ck_assert_double_gt(v[1].gain[PHASE_PROMPT], 0.3);
    ck_assert_double_lt(v[1].gain[PHASE_PROMPT], 1.001); /* at most twice as fast */
}
END_TEST

/* A device of a third of the CPU's speed: whole kinds of blocks there cost time, a share of each
 * layer saves some in prompts; a token is not read faster. */
START_TEST(a_slow_device_helps_with_prompts)
{
    enum { LAYERS = 12, EXPERTS = 16 };
    static uint64_t attention[LAYERS], experts[LAYERS * EXPERTS];
    struct planner_input in = {.n_layers = LAYERS,
                               .n_experts = EXPERTS,
                               .n_experts_used = 2,
                               .n_devices = 2,
                               .target = 1,
                               .attention_bytes = attention,
                               .expert_bytes = experts,
                               .head_bytes = 1};
    struct trial_costs c = {.sides = 2,
                            .device = {0, 1},
                            .rows = 64,
                            .layers = 4,
                            .of_layers = LAYERS,
                            .used = 2,
                            .pass_rows = 512};
    struct verdict v = {0};
    struct error e = {0};

    for (int i = 0; i < LAYERS * EXPERTS; i++)
        attention[i / EXPERTS] = experts[i] = 1000;
    in.devices[0] = in.devices[1] =
        (struct planner_device){.name = "one", .budget = PLANNER_NO_LIMIT, .head_can = true};
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < PLAN_PHASES; k++)
            for (int j = 0; j < TRIAL_JOBS; j++) {
                struct trial_samples *t = &c.of[side][k][j];

                for (t->n = 0; t->n < TRIAL_SAMPLES; t->n++)
                    t->ns[t->n] = (side ? 3 : 1) * (j == TRIAL_EXPERT ? 1e6 : 2e6);
            }
    c.complete = true;
    ck_assert_msg(verdict_decide(&v, &c, &in, &e) == 0, "%s", e.text);
    ck_assert_str_eq(v.spec[PHASE_TOKENS], "cpu");
    ck_assert_str_eq(v.spec[PHASE_PROMPT], "balanced");
    ck_assert_double_gt(v.gain[PHASE_PROMPT], 0.1);
    ck_assert_double_lt(v.gain[PHASE_PROMPT], 1.0 / 3); /* the sum of both */
}
END_TEST

/* A verdict made by hand: found again, and void with another driver or machine. */
START_TEST(verdicts_are_kept_and_made_void)
{
    struct verdict v = {.decided = true, .n_rows = 2, .layers = 4, .of_layers = 8}, got;
    struct verdict_keys k = {"1.0", "a machine, 2 threads"}, other = k;
    char path[500], why[VERDICT_LINE], line[VERDICT_LINE];
    struct error e = {0};

    snprintf(path, sizeof path, "%s/verdict-1", cache_of("by_hand"));
    strcpy(v.spec[PHASE_TOKENS], "cpu");
    strcpy(v.spec[PHASE_PROMPT], "gpu");
    strcpy(v.best[PHASE_TOKENS], "gpu");
    strcpy(v.best[PHASE_PROMPT], "gpu");
    strcpy(v.row[0].spec, "cpu");
    strcpy(v.row[1].spec, "gpu");
    strcpy(v.device, "fake:0 (Fake)");
    v.gain[PHASE_TOKENS] = -0.08;
    v.error[PHASE_TOKENS] = 0.02;
    v.gain[PHASE_PROMPT] = 2.5;
    v.row[1].ns[PHASE_PROMPT] = 123456;
    ck_assert_int_eq(verdict_read(&got, path, &k, why), 0);
    ck_assert_str_eq(why, "");
    ck_assert_msg(verdict_write(&v, path, &k, &e) == 0, "%s", e.text);
    ck_assert_int_eq(verdict_read(&got, path, &k, why), 1);
    ck_assert(got.kept);
    ck_assert(got.row[1].ns[PHASE_PROMPT] == 123456);
    verdict_line(&got, line);
    ck_assert_str_eq(line, "auto: tokens cpu (gpu 8 % slower, ± 2), prompts gpu (250 % faster than "
                           "the CPU alone, ± 0); kept from a measurement in 0.00 s, 0 MB copied (4 "
                           "of 8 layers)");
    strcpy(other.driver, "1.1");
    ck_assert_int_eq(verdict_read(&got, path, &other, why), 0);
    ck_assert_str_eq(why, "auto: the driver is 1.1 now, not 1.0");
    other = k;
    strcpy(other.machine, "a machine, 4 threads");
    ck_assert_int_eq(verdict_read(&got, path, &other, why), 0);
    ck_assert_ptr_nonnull(strstr(why, "the machine is a machine, 4 threads now"));
}
END_TEST

/* The stored file, by its own text changed to another driver's or to other winners. */
static void edit(const char *cache, const char *from, const char *to)
{
    DIR *d = opendir(cache);
    struct dirent *f;
    char path[800], text[8192], out[8192], *at;
    FILE *file;
    size_t n;

    while ((f = readdir(d)) && strncmp(f->d_name, "verdict-", 8) != 0)
        ;
    ck_assert_ptr_nonnull(f);
    snprintf(path, sizeof path, "%s/%s", cache, f->d_name);
    closedir(d);
    file = fopen(path, "r");
    n = fread(text, 1, sizeof text - 1, file);
    text[n] = 0;
    fclose(file);
    ck_assert_msg((at = strstr(text, from)) != NULL, "%s", text);
    n = (size_t)(at - text);
    snprintf(out, sizeof out, "%.*s%s%s", (int)n, text, to, at + strlen(from));
    file = fopen(path, "w");
    fputs(out, file);
    fclose(file);
}

START_TEST(another_driver_and_a_plan_for_each_phase)
{
    const char *cache = cache_of("phases");
    struct engine *g;
    struct error e = {0};
    uint64_t now = 0;

    fake_device_control(&(struct fake_control){.instant = true});
    g = open_demo(cache, NULL);
    fill(g);
    ck_assert_msg(engine_auto(g, ticks, &now, &e) == 0, "%s", e.text);
    engine_close(g);
    edit(cache, "\ntokens ", "\ntokens gpu gpu 0.5 0.1\nold ");
    edit(cache, "\nprompts ", "\nprompts cpu gpu -0.5 0.1\nold ");
    g = open_demo(cache, "auto");
    ck_assert(!engine_auto_due(g));
    ck_assert_str_eq(engine_telemetry(g)->plan, "auto (gpu)");
    ck_assert_str_eq(engine_telemetry(g)->prompt_plan, "auto (cpu)");
    ck_assert_ptr_nonnull(engine_prompt_plan(g));
    /* another plan ends auto's for prompts, the user's own stays */
    ck_assert_msg(place_apply(g, "cpu", &e) == 0, "%s", e.text);
    ck_assert_ptr_null(engine_prompt_plan(g));
    ck_assert(place_apply(g, "prompt experts:1", &e) == 0);
    ck_assert(place_apply(g, "auto", &e) == 0);
    ck_assert_str_eq(engine_prompt_plan(g)->name, "experts:1");
    engine_close(g);
    edit(cache, "\ndriver 1\n", "\ndriver 0.9\n");
    g = open_demo(cache, NULL);
    ck_assert(place_auto_due(g, "auto"));
    ck_assert_str_eq(notice,
                     "auto: the driver is 1 now, not 0.9: what was measured before is void");
    engine_close(g);
    fake_device_control(NULL);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("auto");
    TCase *t = tcase_create("auto");

    tcase_set_timeout(t, 240);
    tcase_add_test(t, a_device_that_wins);
    tcase_add_test(t, a_device_that_loses);
    tcase_add_loop_test(t, the_faster_of_two_devices, 0, 2);
    tcase_add_test(t, two_devices_have_the_same_time);
    tcase_add_loop_test(t, one_of_two_devices_fails, 0, 6);
    tcase_add_test(t, the_share_is_counted);
    tcase_add_test(t, prompts_are_expected_to_overlap);
    tcase_add_test(t, a_slow_device_helps_with_prompts);
    tcase_add_test(t, a_named_plan_is_not_measured);
    tcase_add_test(t, an_interruption_leaves_all_as_it_was);
    tcase_add_loop_test(t, time_is_bounded, 0, 2);
    tcase_add_test(t, the_allowance);
    tcase_add_test(t, verdicts_are_kept_and_made_void);
    tcase_add_test(t, another_driver_and_a_plan_for_each_phase);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
