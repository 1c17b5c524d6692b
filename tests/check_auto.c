/* auto: measured beside a session, a device that wins and one that loses, the message, the stored
 * verdict, and what an interruption leaves. */
#include "app/placement/auto.h"
#include "app/setup/resolve.h"
#include "engine/run/engine.h"
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

static struct engine *open_demo(const char *cache, const char *placement)
{
    struct engine_config c = {.context = 256,
                              .n_threads = 1,
                              .ubatch = 16,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .convert = -1,
                              .backends = backends,
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
    const char *verdict = faster ? "% faster here than the CPU alone: gpu"
                                 : "% slower here; everything stays on the CPU";
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
    ck_assert_ptr_nonnull(strstr(notice, "fake:0 (Fake)"));
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

static Suite *suite(void)
{
    Suite *s = suite_create("auto");
    TCase *t = tcase_create("auto");

    tcase_set_timeout(t, 240);
    tcase_add_test(t, a_device_that_wins);
    tcase_add_test(t, a_device_that_loses);
    tcase_add_test(t, a_named_plan_is_not_measured);
    tcase_add_test(t, an_interruption_leaves_all_as_it_was);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
