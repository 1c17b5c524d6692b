/* Comparing placements: lists and sweeps, a run of the demo model over the CPU and the fake device,
 * a device that is wrong by one bit. */
#include "app/bench/result.h"
#include "app/common/turns.h"
#include "app/placement/compare.h"
#include "engine/base/divergence.h"
#include "engine/base/mem.h"
#include "tests/fake_device.h"
#include "tests/support.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *list, *specs;
} good[] = {
    {"cpu", "cpu"},
    {"cpu,gpu,hot:600M", "cpu gpu hot:600M"},
    {"layers:0..3", "layers:0 layers:1 layers:2 layers:3"},
    {"layers:0..32+16", "layers:0 layers:16 layers:32"},
    {"layers:first:0..2,cpu", "layers:first:0 layers:first:1 layers:first:2 cpu"},
    {"experts:1..16", "experts:1 experts:3 experts:5 experts:7 experts:9 experts:11 experts:13 "
                      "experts:15 experts:16"},
    {"hot:0..4M+2M", "hot:0 hot:2M hot:4M"},
    {"memory:1G..2G+1G", "memory:1024M memory:2048M"},
    {"hot:0..1.5M+768K", "hot:0 hot:786432 hot:1.5M"},
    {"half", "half"},
    {"cpu,experts-gpu+defer:1", "cpu experts-gpu"},
};
static const char *const bad[] = {"",
                                  ",",
                                  "cpu,",
                                  ",cpu",
                                  "fast",
                                  "cpu,,gpu",
                                  "layers:3..1",
                                  "layers..3",
                                  "hot:a..b",
                                  "layers:0..3+0",
                                  "layers:0..100+1",
                                  "balanced:1M..x",
                                  "gpu+defer:0",
                                  "gpu+defer:x"};

START_TEST(divergence_is_of_the_distributions)
{
    const float even[2] = {1, 1}, shifted[2] = {7, 7}, odds[2] = {(float)log(3), 0};
    bool changed;

    ck_assert_double_eq_tol(divergence_kl(even, shifted, 2, &changed), 0, 1e-12);
    ck_assert(!changed);
    ck_assert_double_eq_tol(divergence_kl(even, odds, 2, &changed),
                            0.5 * log(0.5 / 0.75) + 0.5 * log(0.5 / 0.25), 1e-7);
    ck_assert(!changed);
    divergence_kl(odds, (const float[2]){0, 1}, 2, &changed);
    ck_assert(changed);
}
END_TEST

START_TEST(lists_and_sweeps)
{
    struct compare c = {0};
    struct error e = {0};
    char all[2000] = "";

    ck_assert_msg(compare_parse(&c, good[_i].list, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < c.n; i++) {
        strcat(all, i ? " " : "");
        strcat(all, c.plans[i].spec);
    }
    ck_assert_str_eq(all, good[_i].specs);
    ck_assert_int_eq(c.range, strstr(good[_i].list, "..") != NULL);
    compare_release(&c);
}
END_TEST

START_TEST(bad_lists)
{
    struct compare c = {0};
    struct error e = {0};

    ck_assert_msg(compare_parse(&c, bad[_i], &e) == ERR_USAGE, "'%s' was read", bad[_i]);
    ck_assert_ptr_nonnull(strstr(e.text, "--compare"));
    compare_release(&c);
}
END_TEST

static struct engine *open_demo(const struct device_ops *const *backends)
{
    struct engine_config c = {.context = 128,
                              .n_threads = 1,
                              .ubatch = 16,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .convert = -1,
                              .backends = backends};
    char path[4200];
    struct engine *g = NULL;
    struct error e = {0};

    snprintf(path, sizeof path, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    c.model_path = path;
    if (engine_open(&g, &c, &e) < 0)
        ck_abort_msg("%s", e.text);
    return g;
}

static const int prompt[] = {5, 40, 300, 17, 900, 44, 61, 8, 1200, 77, 345, 19};

static void run(struct compare *c, struct engine *g, const char *list, int n_gen, int repeats)
{
    struct error e = {0};

    memset(c, 0, sizeof *c);
    ck_assert_msg(compare_parse(c, list, &e) == 0, "%s", e.text);
    ck_assert_msg(compare_prompt(c, g, prompt, 12, n_gen, repeats, NULL, NULL, &e) == 0, "%s",
                  e.text);
}

START_TEST(plans_by_turns_give_the_same_bits)
{
    static const struct device_ops *const backends[] = {&fake_device_ops, &cpu_device_ops, NULL};
    struct engine *g = open_demo(backends);
    struct series_figures decode;
    struct compare c;
    char *text = NULL;
    size_t n;
    FILE *f;
    json_t *root;

    run(&c, g, "cpu,gpu,stripes,hot:2M,layers:3,balanced,dynamic:1M", 20, 2);
    ck_assert(c.exact);
    ck_assert_uint_eq(c.tokens, 40);
    for (size_t i = 0; i < c.n; i++) {
        struct compare_plan *p = &c.plans[i];

        ck_assert_msg(p->same_bits && p->same_tokens, "%s differs by %g", p->spec,
                      p->worst_difference);
        ck_assert_uint_eq(p->prefill.n, 2);
        ck_assert_uint_eq(p->decode.n, 6); /* blocks of 8, 8, 4, twice */
        ck_assert_uint_eq(p->ratio.n, 6);
        ck_assert_msg(p->expected_decode > 0 && p->expected_prefill > 0, "%s: nothing expected",
                      p->spec);
    }
    ck_assert(!c.plans[0].on_device && c.plans[1].on_device && c.plans[3].on_device);
    ck_assert(c.plans[1].moved_bytes > 0);
    ck_assert_str_eq(c.plans[1].name, "gpu");
    ck_assert_int_eq(c.n_devices, 2);
    /* the plan of before is back, and what is in no plan has left the device */
    ck_assert_str_eq(engine_plan(g)->name, "cpu");
    ck_assert_uint_eq(engine_telemetry(g)->moves_pending, 0);
    f = open_memstream(&text, &n);
    compare_write(f, REPORT_JSON, &c);
    fclose(f);
    root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(root != NULL, "%s", text);
    ck_assert_uint_eq(json_array_size(json_object_get(root, "placements")), 7);
    ck_assert(json_is_true(
        json_object_get(json_array_get(json_object_get(root, "placements"), 1), "same_bits")));
    json_decref(root);
    free(text);
    /* what was expected stands beside what was measured, and how far that is from it */
    series_summarise(&c.plans[0].decode, &decode);
    c.plans[0].expected_decode = 2 * decode.median;
    f = open_memstream(&text, &n);
    compare_write(f, REPORT_MD, &c);
    fclose(f);
    ck_assert_ptr_nonnull(strstr(text, "expected |"));
    ck_assert_ptr_nonnull(strstr(text, "(-50 %)"));
    free(text);
    compare_release(&c);
    engine_close(g);
}
END_TEST

static int wrong_head(struct device *d, const struct head_job *j, struct error *e)
{
    int rc = fake_device_ops.head(d, j, e);

    if (rc == 0)
        rc = fake_device_ops.wait(d, e);
    if (rc == 0)
        j->logits[7] = nextafterf(j->logits[7], 1e9f);
    return rc;
}

START_TEST(one_wrong_bit_is_found)
{
    struct device_ops wrong = fake_device_ops;
    const struct device_ops *const backends[] = {&wrong, &cpu_device_ops, NULL};
    struct engine *g;
    struct compare c;

    wrong.head = wrong_head;
    g = open_demo(backends);
    run(&c, g, "cpu,experts-gpu,gpu", 8, 1);
    ck_assert(c.plans[1].same_bits);
    ck_assert(!c.plans[2].same_bits);
    ck_assert(c.plans[2].same_tokens);
    ck_assert(c.plans[2].worst_difference > 0 && c.plans[2].worst_difference < 1e-3);
    compare_release(&c);
    engine_close(g);
}
END_TEST

/* Late experts change the text and say by how much; the exact plans beside them stay exact. */
START_TEST(deferred_experts_are_lossy_and_counted)
{
    static const struct device_ops *const backends[] = {&fake_device_plain_ops, &cpu_device_ops,
                                                        NULL};
    struct engine *g = open_demo(backends);
    struct compare c;

    run(&c, g, "cpu,attention-gpu+defer:1,attention-gpu,cpu+defer:1,stripes", 24, 2);
    ck_assert_str_eq(c.plans[1].name, "attention-gpu+defer:1");
    ck_assert(!c.plans[1].same_bits && c.plans[1].kl > 0 && c.plans[1].kl / (double)c.tokens < 2);
    ck_assert(c.plans[2].same_bits && c.plans[4].same_bits);
    /* nothing to overlap with: nothing is deferred */
    ck_assert(c.plans[3].same_bits && c.plans[3].kl == 0);
    compare_release(&c);
    engine_close(g);
}
END_TEST

/* A device failing at any call while experts are late costs the text nothing more than the loss
 * itself. */
START_TEST(failures_while_experts_are_late)
{
    static const struct device_ops *const backends[] = {&fake_device_plain_ops, &cpu_device_ops,
                                                        NULL};

    for (long n = 1; n < 400; n += 23) {
        struct engine *g = open_demo(backends);
        struct error e = {0};
        float logits[8192];
        int rc = 0;

        ck_assert_int_le(engine_info(g)->model->hp.n_vocab, 8192);
        ck_assert_int_eq(engine_place(g, "attention-gpu", &e), 0);
        ck_assert_int_eq(engine_settle(g, &e), 0);
        engine_defer_set(g, 1);
        fake_device_control(&(struct fake_control){.fail_at = n, .lost = n % 2});
        for (int i = 0; i < 12 && rc == 0; i++)
            rc = engine_eval(g, &prompt[i], 1, logits, false, &e);
        ck_assert_msg(rc == 0, "%s", e.text);
        for (int i = 0; i < engine_info(g)->model->hp.n_vocab; i++)
            ck_assert(isfinite(logits[i]));
        fake_device_control(&(struct fake_control){0});
        engine_close(g);
    }
}
END_TEST

START_TEST(too_long_a_text_is_refused)
{
    struct engine *g = open_demo(NULL);
    struct compare c = {0};
    struct error e = {0};

    compare_parse(&c, "cpu", &e);
    ck_assert_int_eq(compare_prompt(&c, g, prompt, 12, 120, 1, NULL, NULL, &e), ERR_CONTEXT);
    compare_release(&c);
    engine_close(g);
}
END_TEST

static int stop_at_once(void *ctx)
{
    return 1;
}

START_TEST(stopping_restores_the_plan)
{
    static const struct device_ops *const backends[] = {&fake_device_ops, &cpu_device_ops, NULL};
    struct engine *g = open_demo(backends);
    struct compare c = {0};
    struct error e = {0};

    compare_parse(&c, "gpu,cpu", &e);
    ck_assert_int_eq(compare_prompt(&c, g, prompt, 12, 16, 1, stop_at_once, NULL, &e),
                     ERR_CANCELLED);
    ck_assert_str_eq(engine_plan(g)->name, "cpu");
    compare_release(&c);
    engine_close(g);
}
END_TEST

struct said {
    char text[200];
    int left; /* runs until it is stopped; negative: never */
};

static int say_run(void *ctx, size_t arm, size_t position, int round, struct error *e)
{
    struct said *s = ctx;
    size_t n = strlen(s->text);

    snprintf(s->text + n, sizeof s->text - n, "%s%c%zu", position || !n ? "" : " ",
             round < 0 ? 'w' : 'r', arm);
    return 0;
}

static int stop_said(void *ctx)
{
    struct said *s = ctx;

    return --s->left == 0;
}

static const struct {
    enum turns_order order;
    const char *runs; /* of four rounds, the first one a warm-up */
} orders[] = {
    {TURNS_SAME, "w0w1w2 r0r1r2 r0r1r2 r0r1r2"},
    {TURNS_MIRRORED, "w0w1w2 r2r1r0 r0r1r2 r2r1r0"},
    {TURNS_ROTATED, "w0w1w2 r1r2r0 r2r0r1 r0r1r2"},
    {TURNS_BALANCED, "w0w1w2 r2r1r0 r1r2r0 r0r2r1"},
    {TURNS_REFERENCE_MIRRORED, "w0w1w2 r0r2r1 r0r1r2 r0r2r1"},
    {TURNS_REFERENCE_ROTATED, "w0w1w2 r0r2r1 r0r1r2 r0r2r1"},
};

START_TEST(arms_take_turns)
{
    struct said s = {.left = -1};
    struct turns t = {.n_arms = 3,
                      .rounds = 3,
                      .warm_ups = 1,
                      .order = orders[_i].order,
                      .run = say_run,
                      .stop = stop_said,
                      .ctx = &s,
                      .stop_ctx = &s};
    struct error e = {0};

    ck_assert_int_eq(turns_run(&t, &e), 0);
    ck_assert_str_eq(s.text, orders[_i].runs);
    s = (struct said){.left = 4};
    ck_assert_int_eq(turns_run(&t, &e), ERR_CANCELLED);
    ck_assert_str_eq(e.text, "interrupted");
    ck_assert_uint_eq(strlen(s.text), strlen("w0w1w2 r0"));
}
END_TEST

START_TEST(noise_is_called_noise)
{
    struct compare_plan plans[3] = {{.name = "cpu", .on_device = false},
                                    {.name = "a", .on_device = true},
                                    {.name = "b", .on_device = true}};
    struct compare c = {.plans = plans, .n = 3};
    static const double noisy[] = {0.3, -0.28, 0.1, -0.12, 0.05, -0.04},
                        faster[] = {0.22, 0.24, 0.23, 0.22, 0.21, 0.25};
    char text[200];
    bool differs;

    for (int i = 0; i < 6; i++) {
        series_add(&plans[0].ratio, 0);
        series_add(&plans[1].ratio, noisy[i]);
        series_add(&plans[2].ratio, faster[i]);
    }
    ck_assert(fabs(compare_ratio(&c, 1, &differs) - 1) < 0.01);
    ck_assert(!differs);
    compare_verdict(&c, 1, text, sizeof text);
    ck_assert_str_eq(text, "no difference beyond the noise");
    ck_assert(fabs(compare_ratio(&c, 2, &differs) - exp(0.2283333)) < 1e-5);
    ck_assert(differs);
    compare_verdict(&c, 2, text, sizeof text);
    ck_assert_str_eq(text, "26 % faster than cpu");
    series_clear(&plans[2].ratio);
    for (int i = 0; i < 3; i++)
        series_add(&plans[2].ratio, faster[i]);
    compare_ratio(&c, 2, &differs); /* three blocks prove nothing */
    ck_assert(!differs);
    for (int i = 0; i < 3; i++)
        series_release(&plans[i].ratio);
}
END_TEST

/* A machine for simulations: rates of blocks one after the other, with noise of a chosen kind. */
enum noise { NOISE_EVEN, NOISE_SKEWED, NOISE_SLOW, NOISE_KINDS };

struct machine {
    uint64_t seed;
    double drift; /* NOISE_SLOW: a mood that lasts some ten blocks */
    enum noise kind;
};

static double uniform(struct machine *m)
{
    m->seed = m->seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(m->seed >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(struct machine *m)
{
    return sqrt(-2 * log(uniform(m))) * cos(6.283185307179586 * uniform(m));
}

/* The logarithm of one block's rate. */
static double block_rate(struct machine *m)
{
    m->drift = 0.9 * m->drift + 0.1 * normal(m);
    switch (m->kind) {
    case NOISE_EVEN: return 0.05 * normal(m);
    /* others come and go */
    case NOISE_SKEWED: return -0.02 * fabs(normal(m)) - (uniform(m) < 0.15 ? uniform(m) : 0);
    default: return 0.03 * normal(m) + m->drift;
    }
}

/* How often two plans of which one is exp(gain) times as fast are called different, n blocks each.
 */
static double called_different(enum noise kind, int n, double gain)
{
    struct compare_plan plans[2] = {{.name = "a", .on_device = true},
                                    {.name = "b", .on_device = true}};
    struct compare c = {.plans = plans, .n = 2};
    struct machine m = {.seed = 11, .kind = kind};
    enum { RUNS = 4000 };
    int called = 0;

    for (int run = 0; run < RUNS; run++) {
        bool differs;

        series_clear(&plans[0].ratio);
        series_clear(&plans[1].ratio);
        for (int i = 0; i < n; i++) {
            /* what comes second finds warm caches */
            double first = block_rate(&m), second = block_rate(&m) + 0.03;

            series_add(&plans[0].ratio, 0);
            series_add(&plans[1].ratio, gain + (i % 2 ? first - second : second - first));
        }
        compare_ratio(&c, 1, &differs);
        called += differs;
    }
    series_release(&plans[0].ratio);
    series_release(&plans[1].ratio);
    return called / (double)RUNS;
}

START_TEST(a_plan_is_not_told_from_itself)
{
    static const int blocks[] = {6, 7, 12, 24, 48, 96};

    for (int kind = 0; kind < NOISE_KINDS; kind++)
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
            double share = called_different((enum noise)kind, blocks[i], 0);

            printf("noise %d, %d blocks: %.1f %% called different\n", kind, blocks[i], 100 * share);
            ck_assert_msg(share < 1.5 * SERIES_LEVEL, "noise %d, %d blocks: %.1f %%", kind,
                          blocks[i], 100 * share);
        }
}
END_TEST

/* The figures of the manual. */
START_TEST(differences_are_found)
{
    static const struct {
        int blocks;
        double gain, least;
    } cases[] = {{6, 0.19, 0.8}, {12, 0.09, 0.8}, {24, 0.06, 0.8}, {48, 0.04, 0.8}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double share = called_different(NOISE_EVEN, cases[i].blocks, cases[i].gain);

        printf("%d blocks, %.0f %% faster: %.0f %% found\n", cases[i].blocks, 100 * cases[i].gain,
               100 * share);
        ck_assert_msg(share >= cases[i].least, "%d blocks: %.0f %%", cases[i].blocks, 100 * share);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("compare");
    TCase *t = tcase_create("compare");

    tcase_add_loop_test(t, lists_and_sweeps, 0, (int)(sizeof good / sizeof *good));
    tcase_add_loop_test(t, bad_lists, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(t, divergence_is_of_the_distributions);
    tcase_add_test(t, plans_by_turns_give_the_same_bits);
    tcase_add_test(t, one_wrong_bit_is_found);
    tcase_add_test(t, deferred_experts_are_lossy_and_counted);
    tcase_add_test(t, failures_while_experts_are_late);
    tcase_add_test(t, too_long_a_text_is_refused);
    tcase_add_test(t, stopping_restores_the_plan);
    tcase_add_loop_test(t, arms_take_turns, 0, sizeof orders / sizeof *orders);
    tcase_add_test(t, noise_is_called_noise);
    tcase_add_test(t, a_plan_is_not_told_from_itself);
    tcase_add_test(t, differences_are_found);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
