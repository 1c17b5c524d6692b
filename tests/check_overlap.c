/* Both sides compute at the same time: a prompt's groups of rows (microbatch.h) give the same bits
 * under every plan, also when the device fails at any call; a device has its experts before the CPU
 * goes on; a token waits once a layer. The second device is the fake one, which computes when it is
 * waited for: what overlaps is seen from the order of calls, not from the clock. */
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "engine/run/pass/microbatch.h"
#include "tests/fake_device.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT 150
#define VOCAB_MOST 70000

static const struct device_ops *const fused[] = {&fake_device_ops, &cpu_device_ops, NULL};
static const struct device_ops *const plain[] = {&fake_device_plain_ops, &cpu_device_ops, NULL};

static struct engine *open_path(const char *path, int convert,
                                const struct device_ops *const *backends, const char *placement,
                                const char *prompts)
{
    struct engine_config c = {.context = 256,
                              .n_threads = 1,
                              .ubatch = PROMPT,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .convert = convert,
                              .no_tokenizer = true,
                              .backends = backends,
                              .placement = placement,
                              .placement_prompt = prompts};
    struct engine *g = NULL;
    struct error e = {0};

    c.model_path = path;
    if (engine_open(&g, &c, &e) < 0)
        ck_abort_msg("%s", e.text);
    return g;
}

static struct engine *open_apart(const struct device_ops *const *backends, const char *placement,
                                 const char *prompts)
{
    char path[4200];

    snprintf(path, sizeof path, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    return open_path(path, -1, backends, placement, prompts);
}

static struct engine *open_demo(const struct device_ops *const *backends, const char *placement)
{
    return open_apart(backends, placement, NULL);
}

/* The prompt's last logits and those of a token behind it: 2 * vocab. */
static float *logits_of(struct engine *g)
{
    int ids[PROMPT], vocab = engine_info(g)->model->hp.n_vocab, next = 7;
    float *logits = calloc(2 * (size_t)vocab, sizeof *logits);
    struct error e = {0};

    for (int i = 0; i < PROMPT; i++)
        ids[i] = 3 + i * 37 % (vocab - 3);
    ck_assert_msg(engine_eval(g, ids, PROMPT, logits, false, &e) == 0, "%s", e.text);
    ck_assert_msg(engine_eval(g, &next, 1, logits + vocab, false, &e) == 0, "%s", e.text);
    ck_assert_int_eq(engine_session_tokens(g, NULL), PROMPT + 1);
    return logits;
}

/* Runs it; the CPU's logits must be the result. */
static void same_as(const float *want, struct engine *g, const char *what)
{
    size_t n = 2 * (size_t)engine_info(g)->model->hp.n_vocab;
    float *got = logits_of(g);

    ck_assert_msg(memcmp(want, got, n * sizeof *got) == 0, "%s: other logits", what);
    free(got);
}

static float *reference(void)
{
    struct engine *g = open_demo(NULL, NULL);
    float *logits = logits_of(g);

    engine_close(g);
    return logits;
}

START_TEST(groups_of_rows_give_the_same_bits)
{
    static const char *const plans[] = {"layers:3",    "layers:first:2", "experts:5", "hot:4M",
                                        "experts-gpu", "attention-gpu",  "memory:6M", "balanced"};
    float *want = reference();

    fake_device_control(NULL);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (int k = 0; k < 2; k++) {
            struct engine *g = open_demo(k ? plain : fused, plans[i]);

            same_as(want, g, plans[i]);
            engine_close(g);
        }
    free(want);
}
END_TEST

/* Experts that see the stream before their layer's mixer was added to it. */
START_TEST(parallel_layers_go_in_groups)
{
    static const char *const plans[] = {"layers:1", "layers:first:2", "experts:3", "experts-gpu",
                                        "attention-gpu"};
    const char *path = support_path("golden/families/cohere2_moe");
    struct engine *g = open_path(path, -1, NULL, NULL, NULL);
    float *want = logits_of(g);

    engine_close(g);
    fake_device_control(NULL);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (int k = 0; k < 2; k++) {
            g = open_path(path, -1, k ? plain : fused, plans[i], NULL);
            same_as(want, g, plans[i]);
            engine_close(g);
        }
    free(want);
}
END_TEST

/* Tokens bring values for single layers, and layers read the rows of others. */
START_TEST(groups_keep_their_inputs)
{
    static const char *const plans[] = {"layers:2", "layers:first:2", "experts-gpu", "gpu"};
    const char *path = support_path("golden/families/gemma4_e");
    struct engine *g = open_path(path, DTYPE_Q8_0, NULL, NULL, NULL);
    float *want = logits_of(g);

    engine_close(g);
    fake_device_control(NULL);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (int k = 0; k < 2; k++) {
            g = open_path(path, DTYPE_Q8_0, k ? plain : fused, plans[i], NULL);
            same_as(want, g, plans[i]);
            for (int l = 0; l < engine_info(g)->model->hp.n_layers; l++)
                ck_assert_int_eq(engine_plan(g)->attention[l], 0);
            engine_close(g);
        }
    free(want);
}
END_TEST

START_TEST(any_call_may_fail)
{
    static const char *const plans[] = {"layers:2", "experts:5", "attention-gpu"};
    float *want = reference();
    const char *plan = plans[_i / 2];
    long total, tried = 0;
    struct engine *g;

    fake_device_control(NULL);
    g = open_demo(fused, plan);
    same_as(want, g, plan);
    engine_close(g);
    total = fake_device_calls();
    for (long n = 1; n <= total; n += 5, tried++) {
        char what[80];

        fake_device_control(&(struct fake_control){.fail_at = n, .lost = _i % 2});
        snprintf(what, sizeof what, "%s, call %ld of %ld failed", plan, n, total);
        g = open_demo(fused, plan);
        same_as(want, g, what);
        engine_close(g);
    }
    fake_device_control(NULL);
    ck_assert_int_gt(tried, 3);
    free(want);
}
END_TEST

/* Whether one of the CPU's spans of this kind is within a span of the device's experts. */
static bool beside_experts(const struct trace *t, enum trace_kind kind)
{
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->n; k++)
            if (t->entries[i].device == 1 && t->entries[i].kind == TRACE_EXPERTS &&
                t->entries[k].device == 0 && t->entries[k].kind == kind &&
                t->entries[k].start_ns >= t->entries[i].start_ns &&
                t->entries[k].end_ns <= t->entries[i].end_ns)
                return true;
    return false;
}

START_TEST(the_cpu_goes_on_while_a_device_computes)
{
    static const struct {
        const char *plan;
        bool experts;
    } cases[] = {{"experts-gpu", false}, {"experts:5", true}};
    struct error e = {0};

    fake_device_control(NULL);
    for (size_t i = 0; i < 2; i++) {
        struct engine *g = open_demo(plain, cases[i].plan);

        ck_assert_int_eq(engine_trace_start(g, 10000, &e), 0);
        free(logits_of(g));
        ck_assert_int_eq(engine_trace_start(g, 0, &e), 0);
        /* another group's attention; in a layer of both, the CPU's own experts */
        ck_assert(beside_experts(engine_trace(g), TRACE_ATTENTION));
        ck_assert(beside_experts(engine_trace(g), TRACE_EXPERTS) == cases[i].experts);
        engine_close(g);
    }
}
END_TEST

static uint64_t waits_of(struct engine *g)
{
    struct device_stats s;

    g->slots[1].ops->stats(g->slots[1].device, &s);
    return s.waits;
}

START_TEST(a_token_waits_once_a_layer)
{
    static const char *const plans[] = {"experts-gpu", "experts:16", "attention-gpu"};

    fake_device_control(NULL);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        struct engine *g = open_demo(plain, plans[i]);
        int next = 5, layers = engine_info(g)->model->hp.n_layers;
        float *logits = calloc(VOCAB_MOST, sizeof *logits);
        struct error e = {0};
        uint64_t before;

        free(logits_of(g));
        before = waits_of(g);
        for (int t = 0; t < 3; t++)
            ck_assert_int_eq(engine_eval(g, &next, 1, logits, false, &e), 0);
        ck_assert_uint_eq(waits_of(g) - before, 3 * (uint64_t)layers);
        free(logits);
        engine_close(g);
    }
}
END_TEST

static struct engine *watched;
static uint64_t moved_meanwhile; /* bytes, before the last layer of the last group began */

static int watch_layers(void *ctx, int layer)
{
    (void)ctx;
    (void)layer;
    moved_meanwhile = watched->forward.handover_bytes;
    return 0;
}

/* Keys and values of a prompt in groups go to the plan of tokens layer by layer, each row once,
 * before all is computed. */
START_TEST(rows_move_while_others_are_computed)
{
    static const struct {
        const char *tokens, *prompts;
    } plans[] = {{"cpu", "layers:3"}, {"cpu", "attention-gpu"}, {"gpu", "layers:2"}};
    float *want = reference();

    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        struct engine *g;
        struct fake_work w;
        int layers;

        fake_device_control(NULL);
        g = watched = open_apart(fused, plans[i].tokens, plans[i].prompts);
        layers = engine_info(g)->model->hp.n_layers;
        g->forward.hooks.before_layer = watch_layers;
        same_as(want, g, plans[i].prompts);
        w = fake_device_work();
        ck_assert_int_eq(w.rows_read + w.rows_written, PROMPT * (i == 0   ? 3
                                                                 : i == 1 ? layers
                                                                          : layers - 2));
        ck_assert_uint_gt(moved_meanwhile, 0);
        ck_assert_uint_lt(moved_meanwhile, g->forward.handover_bytes + 1);
        engine_close(g);
    }
    free(want);
}
END_TEST

/* Into how many groups a pass of so many rows is split. */
static int groups(struct engine *g, int rows)
{
    struct forward f = g->forward;

    f.rows = rows;
    f.n_spans = 0;
    return microbatch_count(&f);
}

START_TEST(a_pass_is_split_where_two_sides_share_it)
{
    static const struct {
        const char *plan;
        int of_63, of_128, of_512;
    } cases[] = {{"cpu", 1, 1, 1},
                 {"gpu", 1, 1, 1},
                 {"experts:5", 1, 2, 2},
                 {"attention-gpu", 1, 2, 2},
                 {"layers:2", 1, 2, FORWARD_MICROBATCHES}};

    fake_device_control(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct engine *g = open_demo(fused, cases[i].plan);

        free(logits_of(g));
        ck_assert_int_eq(groups(g, 63), cases[i].of_63);
        ck_assert_int_eq(groups(g, 128), cases[i].of_128);
        ck_assert_int_eq(groups(g, 512), cases[i].of_512);
        engine_close(g);
    }
}
END_TEST

START_TEST(short_prompts_have_the_plan_of_tokens)
{
    struct engine *g = open_demo(NULL, NULL);
    struct planner_spec balanced, chosen;
    struct error e = {0};

    ck_assert_int_eq(planner_parse(&balanced, "balanced", &e), 0);
    ck_assert_int_eq(planner_parse(&chosen, "auto", &e), 0);
    g->auto_prompts = true;
    g->spec[PHASE_PROMPT] = balanced;
    ck_assert_int_eq(place_phase_of(g, PHASE_PROMPT, PLANNER_OVERLAP - 1), PHASE_TOKENS);
    ck_assert_int_eq(place_phase_of(g, PHASE_PROMPT, PLANNER_OVERLAP), PHASE_PROMPT);
    g->spec[PHASE_PROMPT] = chosen;
    ck_assert_int_eq(place_phase_of(g, PHASE_PROMPT, 5), PHASE_PROMPT);
    g->auto_prompts = false; /* the user's own */
    g->spec[PHASE_PROMPT] = balanced;
    ck_assert_int_eq(place_phase_of(g, PHASE_PROMPT, 5), PHASE_PROMPT);
    engine_close(g);
}
END_TEST

START_TEST(balanced_expects_a_rate_for_each_phase)
{
    static const char *const prompts[] = {NULL, "cpu"};
    struct error e = {0};

    fake_device_control(NULL);
    for (size_t i = 0; i < 2; i++) {
        struct engine *g = open_demo(fused, "cpu");
        const struct plan *p;

        ck_assert_double_eq(engine_expected(g, PHASE_PROMPT), 0);
        if (prompts[i])
            ck_assert_int_eq(engine_place(g, "prompt cpu", &e), 0);
        ck_assert_msg(engine_place(g, "balanced", &e) == 0, "%s", e.text);
        ck_assert_double_gt(engine_expected(g, PHASE_PROMPT), 0);
        ck_assert_double_gt(engine_expected(g, PHASE_TOKENS), 0);
        /* unless the user gave them a plan, prompts have one of the same strategy */
        p = engine_prompt_plan(g); /* none: as that of tokens */
        ck_assert(prompts[i] ? p && !strcmp(p->name, "cpu") : !p || !strcmp(p->name, "balanced"));
        free(logits_of(g));
        engine_close(g);
    }
}
END_TEST

/* What experts cost is not what was measured: after rows enough balanced decides again. */
START_TEST(balanced_decides_again_by_what_it_learns)
{
    struct engine *g = open_demo(plain, "cpu");
    int vocab = engine_info(g)->model->hp.n_vocab, layers = engine_info(g)->model->hp.n_layers;
    struct planner_input *in = cost_model_input(g->cost_model);
    float *logits = malloc((size_t)vocab * sizeof *logits);
    struct error e = {0};
    int ids[PROMPT], before, after;

    for (int i = 0; i < PROMPT; i++)
        ids[i] = 3 + i * 37 % (vocab - 3);
    fake_device_control(NULL);
    ck_assert_msg(engine_place(g, "gpu", &e) == 0, "%s", e.text); /* opens it */
    in->devices[0] = (struct planner_device){.name = "the CPU",
                                             .budget = PLANNER_NO_LIMIT,
                                             .head_can = true,
                                             .attention_ns = 100,
                                             .expert_ns = 100,
                                             .head_ns = 100,
                                             .prompt_attention_ns = 100,
                                             .prompt_expert_ns = 1e6};
    in->devices[1].attention_ns = in->devices[1].expert_ns = in->devices[1].head_ns = 1e9;
    in->devices[1].prompt_attention_ns = 1e9;
    in->devices[1].prompt_expert_ns = 1e6;
    in->prompt_host_ns = 1;
    ck_assert_msg(engine_place(g, "balanced", &e) == 0, "%s", e.text);
    ck_assert_ptr_nonnull(engine_prompt_plan(g));
    before = plan_diff(engine_plan(g), engine_prompt_plan(g), NULL);
    ck_assert_int_gt(before, layers); /* experts on both sides */
    ck_assert_int_eq(engine_eval(g, ids, PROMPT, logits, false, &e), 0);
    /* the CPU's learnt cost beats the device's by far */
    for (int i = 0; i < 300; i++) {
        job_cost_add(&g->slots[0].prompt_expert, 1000, 1);
        job_cost_add(&g->slots[1].prompt_expert, 1000000000, 1);
        job_cost_add(&g->slots[1].handoff, 1000000000, 1);
    }
    for (int i = 0; i < 2; i++) /* what is still on its way arrives first */
        place_safe_point(g);
    after = engine_prompt_plan(g) ? plan_diff(engine_plan(g), engine_prompt_plan(g), NULL) : 0;
    ck_assert_msg(after < before, "%d blocks, before %d", after, before);
    ck_assert_int_eq(after, 0);
    free(logits);
    engine_close(g);
}
END_TEST

/* Experts of the plan's device 1 that the CPU computed last; *there: those that the device did. */
static int lent(struct engine *g, int *there)
{
    const struct plan *p = engine_prompt_plan(g) ? engine_prompt_plan(g) : engine_plan(g);
    int n = 0;

    *there = 0;
    for (int i = 0; i < p->n_layers * p->n_experts; i++)
        if (p->experts[i] == 1) {
            n += g->forward.ran_on[i] == 0;
            *there += g->forward.ran_on[i] == 1;
        }
    return n;
}

/* A device that is slower than the plan assumed: under balanced the CPU takes experts back in the
 * pass itself, under a plan that names the device it does not; the bits stay. */
START_TEST(the_cpu_takes_experts_of_a_slow_device)
{
    static const char *const plans[] = {"balanced", "experts-gpu"};
    float *want = reference();

    for (int k = 0; k < 2; k++) {
        struct engine *g = open_demo(plain, "cpu");
        struct planner_input *in = cost_model_input(g->cost_model);
        struct error e = {0};
        int there;

        fake_device_control(NULL);
        ck_assert_msg(engine_place(g, "gpu", &e) == 0, "%s", e.text); /* opens it */
        for (int d = 0; d < 2; d++) {
            struct planner_device *v = &in->devices[d];

            v->attention_ns = v->expert_ns = v->head_ns = d ? 1e9 : 100;
            v->prompt_attention_ns = d ? 1e9 : 100;
            v->prompt_expert_ns = 1e6;
        }
        in->prompt_host_ns = 1;
        ck_assert_msg(engine_place(g, plans[k], &e) == 0, "%s", e.text);
        while (place_pending(g))
            place_safe_point(g);
        ck_assert(place_of_phase(g, PHASE_PROMPT)->lends == (k == 0));
        for (int i = 0; i < JOB_RECENT; i++) {
            job_cost_add(&g->slots[0].prompt_expert, 1000, 1);
            job_cost_add(&g->slots[1].prompt_expert, 1000000000, 1);
        }
        same_as(want, g, plans[k]);
        ck_assert_int_eq(lent(g, &there) > 0, k == 0);
        ck_assert(k == 0 || there > 0);
        engine_close(g);
    }
    free(want);
}
END_TEST

/* So many jobs of a tenth of a millisecond each expert, however fast this machine is. */
static void was_fast(struct slow_device *s)
{
    for (int rows = 0; rows < SLOW_CLASSES; rows++)
        for (int depth = 0; depth < SLOW_CLASSES; depth++) {
            struct slow_class *c = &s->of[SLOW_EXPERTS][rows][depth];

            for (c->n = 0; c->n < SLOW_SAMPLES; c->n++)
                c->ns[c->n] = 1e5f;
        }
}

/* A device that becomes slow in the middle of prompts that overlap gives blocks back. */
START_TEST(a_device_slow_in_prompts_is_noticed)
{
    struct engine *g = open_demo(plain, "experts-gpu");
    int vocab = engine_info(g)->model->hp.n_vocab;
    float *logits = malloc((size_t)vocab * sizeof *logits);
    struct error e = {0};
    int ids[PROMPT];

    for (int i = 0; i < PROMPT; i++)
        ids[i] = 3 + i * 37 % (vocab - 3);
    fake_device_control(NULL);
    for (int n = 0; n < 6 && !g->slots[1].health.returned; n++) {
        struct fake_control slow = {.slow_at = 1, .slow_us = 120000};

        if (n == 2) {
            was_fast(&g->slots[1].pace);
            fake_device_control(&slow);
        }
        engine_session_clear(g);
        ck_assert_msg(engine_eval(g, ids, PROMPT, logits, false, &e) == 0, "%s", e.text);
        place_safe_point(g);
        ck_assert(n >= 2 || !g->slots[1].health.returned);
    }
    ck_assert_int_eq(g->slots[1].health.trouble, TROUBLE_SLOW);
    ck_assert_int_gt(g->slots[1].health.returned, 0);
    ck_assert(!g->slots[1].lost);
    free(logits);
    engine_close(g);
    fake_device_control(NULL);
}
END_TEST

START_TEST(a_held_up_job_says_nothing)
{
    struct job_cost c = {0};

    ck_assert_double_eq(job_cost_typical(&c), 0);
    job_cost_add(&c, 100, 0);
    ck_assert_uint_eq(c.jobs, 0);
    for (int i = 0; i < 9; i++)
        job_cost_add(&c, i % 3 ? 200 : 100000, 2);
    ck_assert_double_eq(job_cost_typical(&c), 100);
    ck_assert_uint_eq(c.blocks, 18);
    for (int i = 0; i < JOB_RECENT; i++) /* the newest count */
        job_cost_add(&c, 30, 1);
    ck_assert_double_eq(job_cost_typical(&c), 30);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("overlap");
    TCase *t = tcase_create("overlap");

    tcase_set_timeout(t, 240);
    tcase_add_test(t, groups_of_rows_give_the_same_bits);
    tcase_add_test(t, parallel_layers_go_in_groups);
    tcase_add_test(t, groups_keep_their_inputs);
    tcase_add_loop_test(t, any_call_may_fail, 0, 6);
    tcase_add_test(t, the_cpu_goes_on_while_a_device_computes);
    tcase_add_test(t, a_token_waits_once_a_layer);
    tcase_add_test(t, rows_move_while_others_are_computed);
    tcase_add_test(t, a_pass_is_split_where_two_sides_share_it);
    tcase_add_test(t, short_prompts_have_the_plan_of_tokens);
    tcase_add_test(t, balanced_expects_a_rate_for_each_phase);
    tcase_add_test(t, balanced_decides_again_by_what_it_learns);
    tcase_add_test(t, the_cpu_takes_experts_of_a_slow_device);
    tcase_add_test(t, a_device_slow_in_prompts_is_noticed);
    tcase_add_test(t, a_held_up_job_says_nothing);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
