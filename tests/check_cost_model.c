/* The cost model: sizes, abilities, measured costs with a device whose jobs take known times, the
 * verdict file. */
#include "engine/base/cache.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/device/state.h"
#include "engine/placement/residency.h"
#include "engine/placement/cost_model.h"
#include "engine/placement/costs.h"
#include "engine/placement/verdict.h"
#include "tests/support.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LAYERS 4
#define EXPERTS 3

/* Jobs of known length: t = handoff + work; fail_at refuses the n-th call of any kind. */
struct timed {
    struct device_base base;
    uint64_t handoff, attention, expert, head, due;
    int resident, puts, calls, fail_at;
};

static struct model model;
static const struct state_config state = {KV_F16, KV_F16, 16, 4};
static struct layer_weights layers[LAYERS];
static struct expert_weights experts[LAYERS][EXPERTS];
static struct timed devs[2];
static struct device *devices[2];

static int step(struct timed *t, struct error *e)
{
    return t->calls++ == t->fail_at ? error_set(e, ERR_DEVICE, "lost") : 0;
}

static int put(struct device *d, struct block_id id, size_t max, struct error *e)
{
    struct timed *t = (struct timed *)d;

    if (step(t, e) < 0)
        return ERR_DEVICE;
    if (++t->puts % 2)
        return 0;
    t->resident++;
    return 1;
}

static void drop(struct device *d, struct block_id id)
{
    ((struct timed *)d)->resident--;
}

static int launch(struct device *d, uint64_t ns, struct error *e)
{
    struct timed *t = (struct timed *)d;

    t->due = clock_now() + t->handoff + ns;
    return step(t, e);
}

static int attention(struct device *d, const struct attention_job *j, struct error *e)
{
    ck_assert(hparams_layer(&model.hp, j->layer)->mixer.kind != MIXER_NONE);
    ck_assert_int_eq(j->rows, 1);
    ck_assert_int_eq(j->pos, 5);
    return launch(d, ((struct timed *)d)->attention, e);
}

static int run_experts(struct device *d, const struct experts_job *j, struct error *e)
{
    for (int g = 0; g < j->n_groups; g++)
        ck_assert(model_block_bytes(&model, (struct block_id){BLOCK_EXPERT, j->layer,
                                                              j->groups[g].expert}));
    return launch(d, ((struct timed *)d)->expert * (uint64_t)j->n_groups, e);
}

static int head(struct device *d, const struct head_job *j, struct error *e)
{
    return launch(d, ((struct timed *)d)->head, e);
}

static int wait_for(struct device *d, struct error *e)
{
    while (clock_now() < ((struct timed *)d)->due)
        ;
    return 0;
}

static bool supports(const struct device *d, const struct layer_shape *shape, enum block_kind kind,
                     enum dtype type)
{
    return type != DTYPE_F16 && !(kind == BLOCK_EXPERT && shape->ffn.kind == FFN_DENSE_AND_ROUTED);
}

static const struct device_ops ops = {.name = "timed",
                                      .block_put = put,
                                      .block_drop = drop,
                                      .attention = attention,
                                      .experts = run_experts,
                                      .head = head,
                                      .wait = wait_for,
                                      .supports = supports};

static void setup(void)
{
    memset(&model, 0, sizeof model);
    memset(devs, 0, sizeof devs);
    model.hp = (struct hparams){.n_layers = LAYERS,
                                .common.ffn.experts = EXPERTS,
                                .common.ffn.used = 2,
                                .hidden = 64,
                                .n_vocab = 100,
                                .common.mixer.kv_heads = 2,
                                .common.mixer.key_dim = 32};
    hparams_count(&model.hp);
    model.layers = layers;
    model.head.bytes = 7000;
    model.hash = 42;
    for (int l = 0; l < LAYERS; l++) {
        memset(&layers[l], 0, sizeof layers[l]);
        layers[l].q.bytes = layers[l].k.bytes = layers[l].v.bytes = layers[l].o.bytes = 100;
        layers[l].experts = experts[l];
        for (int x = 0; x < EXPERTS; x++)
            experts[l][x].gate.bytes = experts[l][x].up.bytes = experts[l][x].down.bytes = 10;
    }
    for (int d = 0; d < 2; d++) {
        devs[d].base.ops = &ops;
        devs[d].base.config.context = 16;
        snprintf(devs[d].base.info.selector, sizeof devs[d].base.info.selector, "timed:%d", d);
        strcpy(devs[d].base.info.name, "Clockwork");
        strcpy(devs[d].base.info.driver, "1.0");
        devs[d].fail_at = -1;
        devices[d] = (struct device *)&devs[d];
    }
    devs[0].attention = 400000;
    devs[0].expert = 300000;
    devs[0].head = 900000;
    devs[1].handoff = 500000;
    devs[1].attention = 200000;
    devs[1].expert = 100000;
    devs[1].head = 600000;
}

static const struct cost_model_plans nowhere;

START_TEST(sizes_and_abilities)
{
    struct cost_model *s;
    struct planner_input *in;

    layers[2].k.type = DTYPE_F16;
    experts[1][2].up.type = DTYPE_F16;
    devs[1].base.info.memory = 10000;
    ck_assert_int_eq(
        cost_model_new(&s, &model, &(struct state_config){KV_F16, KV_F32, 16, 4}, 0, NULL), 0);
    in = cost_model_input(s);
    ck_assert_int_eq(in->n_devices, 1);
    ck_assert_int_eq(in->target, 0);
    cost_model_device(s, 1, devices[1]);
    ck_assert_int_eq(in->n_devices, 2);
    ck_assert_int_eq(in->target, 1);
    ck_assert_uint_eq(in->attention_bytes[0], 400 + 16 * (64 * 2 + 64 * 4));
    ck_assert_uint_eq(in->expert_bytes[5], 30);
    ck_assert_uint_eq(in->head_bytes, 7000);
    ck_assert_uint_eq(in->devices[1].budget, 9000);
    ck_assert(in->devices[1].head_can);
    for (int l = 0; l < LAYERS; l++)
        ck_assert_int_eq(in->devices[1].attention_can[l], l != 2);
    for (int i = 0; i < LAYERS * EXPERTS; i++)
        ck_assert_int_eq(in->devices[1].experts_can[i], i != 5);
    cost_model_lost(s, 1);
    ck_assert_int_eq(in->devices[1].attention_can[0], 0);
    ck_assert_uint_eq(in->devices[1].budget, 0);
    cost_model_free(s);
    cost_model_free(NULL);
}
END_TEST

/* Layer 0 is dense: nothing there can be placed or measured but what it has. */
START_TEST(layers_may_differ)
{
    struct layer_shape shapes[LAYERS];
    struct cost_model *s;
    struct planner_input *in;
    struct planner_spec spec;
    struct plan *p;
    struct error e = {0};
    char note[PLANNER_NOTE], want[100];

    for (int l = 0; l < LAYERS; l++)
        shapes[l] = model.hp.common;
    shapes[0].ffn = (struct ffn_shape){.kind = FFN_DENSE, .shared = 1};
    model.hp.layers = shapes;
    hparams_count(&model.hp);
    ck_assert_int_eq(cost_model_new(&s, &model, &state, 0, &e), 0);
    cost_model_device(s, 1, devices[1]);
    in = cost_model_input(s);
    ck_assert_int_eq(in->n_experts, EXPERTS);
    ck_assert_int_eq(in->used[0], 1);
    ck_assert_int_eq(in->used[1], 2);
    for (int i = 0; i < LAYERS * EXPERTS; i++) {
        bool has = i == 0 || i >= EXPERTS;

        ck_assert_uint_eq(in->expert_bytes[i], has ? 30 : 0);
        ck_assert_int_eq(in->devices[1].experts_can[i], has);
    }
    ck_assert_msg(cost_model_measure(s, devices, 2, 5, &nowhere, &e) == 0, "%s", e.text);
    ck_assert(in->devices[0].expert_ns > 0 && in->devices[1].expert_ns > 0);
    cost_model_free(s);
    /* a kind that the device has no kernel for stays with the CPU, and that is said */
    shapes[2].ffn.kind = FFN_DENSE_AND_ROUTED;
    ck_assert_int_eq(cost_model_new(&s, &model, &state, 0, &e), 0);
    cost_model_device(s, 1, devices[1]);
    ck_assert_int_eq(planner_parse(&spec, "gpu", &e), 0);
    ck_assert_int_eq(planner_run(&spec, cost_model_input(s), &p, note, &e), 0);
    for (int l = 0; l < LAYERS; l++) {
        ck_assert_int_eq(p->attention[l], 1);
        ck_assert_int_eq(plan_expert(p, l, 0), l != 2);
    }
    snprintf(want, sizeof want, "%d of %d blocks are of a kind or type that timed:1", EXPERTS,
             LAYERS + 1 + (LAYERS - 1) * EXPERTS + 1);
    ck_assert_msg(strstr(note, want) != NULL, "%s", note);
    plan_free(p);
    cost_model_free(s);
}
END_TEST

/* Layers that are one operator: none without a mixer is asked for attention, on no device, and none
 * without experts for those. */
START_TEST(layers_of_one_operator)
{
    struct layer_shape shapes[LAYERS];
    struct cost_model *s;
    struct planner_input *in;
    struct error e = {0};

    for (int l = 0; l < LAYERS; l++) {
        shapes[l] = model.hp.common;
        if (l % 2)
            shapes[l].ffn = (struct ffn_shape){.kind = FFN_NONE};
        else
            shapes[l].mixer = (struct mixer_shape){.kind = MIXER_NONE};
    }
    for (int l = 0; l < LAYERS; l += 2)
        layers[l].q.bytes = layers[l].k.bytes = layers[l].v.bytes = layers[l].o.bytes = 0;
    model.hp.layers = shapes;
    hparams_count(&model.hp);
    ck_assert_int_eq(cost_model_new(&s, &model, &state, 0, &e), 0);
    cost_model_device(s, 1, devices[1]);
    in = cost_model_input(s);
    for (int l = 0; l < LAYERS; l++) {
        ck_assert_int_eq(in->attention_bytes[l] > 0, l % 2);
        ck_assert_int_eq(planner_can_attention(in, 1, l), l % 2);
        ck_assert_int_eq(in->used[l], l % 2 ? 0 : 2);
        for (int x = 0; x < EXPERTS; x++)
            ck_assert_uint_eq(in->expert_bytes[l * EXPERTS + x], l % 2 ? 0 : 30);
    }
    ck_assert_msg(cost_model_measure(s, devices, 2, 5, &nowhere, &e) == 0, "%s", e.text);
    ck_assert(in->devices[0].attention_ns > 0 && in->devices[1].attention_ns > 0);
    ck_assert(in->devices[0].expert_ns > 0 && in->devices[1].expert_ns > 0);
    cost_model_free(s);
}
END_TEST

START_TEST(kv_row_sizes)
{
    const struct mixer_shape *s = &model.hp.common.mixer;

    ck_assert_uint_eq(state_size(s, KV_F32, KV_F32).token_bytes, 512);
    ck_assert_uint_eq(state_size(s, KV_F16, KV_F16).token_bytes, 256);
    ck_assert_uint_eq(state_size(s, KV_Q8_0, KV_Q8_0).token_bytes, 2 * 2 * 34);
}
END_TEST

static void about(double got, double want)
{
    /* wide: the machine may be busy; wrong units or a lost division are far outside */
    ck_assert_msg(got > want * 0.5 - 50000 && got < want * 2 + 300000,
                  "%g ns measured, %g were spent", got, want);
}

START_TEST(costs_are_measured)
{
    struct cost_model *s;
    struct planner_input *in;
    struct error e = {0};
    struct plan *cpu = plan_new("cpu", LAYERS, EXPERTS);
    const struct cost_model_plans home = {{cpu}, {cpu}};

    cost_model_new(&s, &model, &state, 0, NULL);
    cost_model_device(s, 1, devices[1]);
    in = cost_model_input(s);
    in->devices[0].head_ns = 123; /* known already: not measured again */
    ck_assert_msg(cost_model_measure(s, devices, 2, 5, &home, &e) == 0, "%s", e.text);
    about(in->devices[0].attention_ns, 400000);
    about(in->devices[0].expert_ns, 300000);
    ck_assert(in->devices[0].head_ns == 123);
    about(in->devices[1].expert_ns, 100000);
    about(in->devices[1].handoff_ns, 500000);
    /* 200000 + 500000 is less than twice the handoff: half */
    about(in->devices[1].attention_ns, 350000);
    about(in->devices[1].head_ns, 600000);
    ck_assert_int_eq(devs[1].resident, 0);
    ck_assert_int_eq(devs[0].puts, 0);
    plan_free(cpu);
    cost_model_free(s);
}
END_TEST

START_TEST(blocks_of_the_plan_are_left_alone)
{
    struct cost_model *s;
    struct plan *gpu = plan_new("gpu", LAYERS, EXPERTS);
    /* of the tokens, then of the prompts */
    const struct cost_model_plans away = {{gpu}, {NULL}}, beside = {{NULL, gpu}, {NULL}};

    memset(gpu->attention, 1, LAYERS);
    memset(gpu->experts, 1, LAYERS * EXPERTS);
    gpu->head = 1;
    cost_model_new(&s, &model, &state, 0, NULL);
    cost_model_device(s, 1, devices[1]);
    ck_assert_int_eq(cost_model_measure(s, devices, 2, 5, _i ? &beside : &away, NULL), 0);
    ck_assert_int_eq(devs[1].puts, 0);
    ck_assert_int_eq(devs[1].resident, 0);
    plan_free(gpu);
    cost_model_free(s);
}
END_TEST

START_TEST(a_full_context_leaves_attention_out)
{
    struct cost_model *s;

    cost_model_new(&s, &model, &state, 0, NULL);
    cost_model_device(s, 1, devices[1]);
    ck_assert_int_eq(cost_model_measure(s, devices, 2, 16, &nowhere, NULL), 0);
    ck_assert(cost_model_input(s)->devices[1].attention_ns == 0);
    ck_assert(cost_model_input(s)->devices[1].expert_ns > 0);
    cost_model_free(s);
}
END_TEST

/* The same figures in pieces between tokens; given up in the middle it leaves nothing behind. */
START_TEST(a_measurement_in_pieces)
{
    struct cost_model *s;
    struct planner_input *in;
    struct error e = {0};
    struct plan *cpu = plan_new("cpu", LAYERS, EXPERTS);
    const struct cost_model_plans home = {{cpu}, {cpu}};
    int pieces = 0, rc;

    for (int stop = 0; stop < 40; stop += 3) {
        cost_model_new(&s, &model, &state, 0, NULL);
        cost_model_device(s, 1, devices[1]);
        for (int i = 0; i < stop; i++)
            ck_assert_int_eq(cost_model_measure_step(s, devices, 2, 5, &home, 1, &e), 0);
        cost_model_measure_stop(s);
        ck_assert_int_eq(devs[1].resident, 0);
        cost_model_free(s);
    }
    cost_model_new(&s, &model, &state, 0, NULL);
    cost_model_device(s, 1, devices[1]);
    in = cost_model_input(s);
    while ((rc = cost_model_measure_step(s, devices, 2, 5, &home, 1, &e)) == 0) {
        int calls = devs[0].calls + devs[1].calls;

        pieces++;
        rc = cost_model_measure_step(s, devices, 2, 5, &home, 1, &e);
        /* a job and its wait, or a chunk */
        ck_assert_int_le(devs[0].calls + devs[1].calls - calls, 2);
        if (rc)
            break;
    }
    ck_assert_int_eq(rc, 1);
    ck_assert_int_gt(pieces, 40);
    about(in->devices[0].attention_ns, 400000);
    about(in->devices[1].expert_ns, 100000);
    about(in->devices[1].handoff_ns, 500000);
    about(in->devices[1].head_ns, 600000);
    ck_assert_int_eq(devs[1].resident, 0);
    plan_free(cpu);
    cost_model_free(s);
}
END_TEST

START_TEST(every_call_may_fail)
{
    for (int n = 0; n < 200; n += 3) {
        struct cost_model *s;
        struct error e = {0};
        int rc;

        setup();
        devs[0].attention = devs[0].expert = devs[0].head = devs[1].attention = devs[1].expert =
            devs[1].head = devs[1].handoff = 0;
        devs[1].fail_at = n;
        cost_model_new(&s, &model, &state, 0, NULL);
        cost_model_device(s, 1, devices[1]);
        rc = cost_model_measure(s, devices, 2, 5, &nowhere, &e);
        cost_model_free(s);
        if (rc == 0)
            break;
        ck_assert_int_eq(rc, ERR_DEVICE);
        ck_assert_ptr_nonnull(strstr(e.text, "measuring timed:1"));
        ck_assert_int_lt(n, 190);
    }
}
END_TEST

START_TEST(verdicts_are_kept_by_model_and_device)
{
    struct verdict v = {.decided = true, .n_rows = 1, .spec = {"hot:600M", "gpu"}};
    struct verdict_keys k = {"1.0", "a machine"}, other = {"1.1", "a machine"};
    struct cost_model *s;
    struct error e = {0};
    char dir[300], why[VERDICT_LINE];

    strcpy(v.row[0].spec, "cpu");
    snprintf(dir, sizeof dir, "%s/cache", support_tmpdir());
    cost_model_new(&s, &model, &state, 0, NULL);
    cost_model_device(s, 1, devices[1]);
    ck_assert_int_eq(cost_model_verdict_load(s, dir, devices, &k, why), 0);
    ck_assert_ptr_null(cost_model_verdict(s, PHASE_TOKENS));
    ck_assert_ptr_null(cost_model_input(s)->verdict);
    ck_assert_msg(cost_model_verdict_store(s, dir, devices, &k, &v, &e) == 0, "%s", e.text);
    cost_model_free(s);
    cost_model_new(&s, &model, &state, 0, NULL);
    cost_model_device(s, 1, devices[1]);
    ck_assert_int_eq(cost_model_verdict_load(s, dir, devices, &other, why), 0);
    ck_assert_str_eq(why, "auto: the driver is 1.1 now, not 1.0");
    ck_assert_int_eq(cost_model_verdict_load(s, dir, devices, &k, why), 1);
    ck_assert_ptr_nonnull(cost_model_verdict(s, PHASE_TOKENS));
    ck_assert_str_eq(cost_model_input(s)->verdict, "hot:600M");
    cost_model_verdict(s, PHASE_PROMPT);
    ck_assert_str_eq(cost_model_input(s)->verdict, "gpu");
    model.hash = 43;
    ck_assert_int_eq(cost_model_verdict_load(s, dir, devices, &k, why), 0);
    ck_assert_int_eq(cost_model_verdict_load(s, NULL, devices, &k, why), 0);
    ck_assert_int_eq(cost_model_verdict_store(s, "/nonexistent/x", devices, &k, &v, &e), ERR_IO);
    cost_model_free(s);
}
END_TEST

static void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

START_TEST(costs_are_kept)
{
    const struct verdict_keys k = {"driver 1", "machine, 2 threads"};
    struct planner_input in = {.n_devices = 2, .prompt_host_ns = 5}, got = {.n_devices = 2};
    struct verdict_keys other = k;
    char dir[400], path[440], text[700];
    struct error e = {0};
    int uses;

    snprintf(dir, sizeof dir, "%s/costs", support_tmpdir());
    snprintf(path, sizeof path, "%s/costs-1", dir);
    ck_assert_int_eq(cache_check(dir, &e), 0);
    in.devices[0].expert_ns = 7;
    in.devices[1].handoff_ns = 40;
    in.devices[1].launch_ns = 10;
    in.devices[1].prompt_expert_ns = 3;
    ck_assert_int_eq(costs_read(&got, 1, path, &k, &uses), 0);
    ck_assert_msg(costs_write(&in, 1, path, &k, COSTS_USES - 1, &e) == 0, "%s", e.text);
    got.devices[1].prompt_expert_ns = 4; /* measured by this run: stays */
    ck_assert_int_eq(costs_read(&got, 1, path, &k, &uses), 1);
    ck_assert_int_eq(uses, COSTS_USES - 1);
    ck_assert_double_eq(got.devices[0].expert_ns, 7);
    ck_assert_double_eq(got.devices[1].handoff_ns, 40);
    ck_assert_double_eq(got.devices[1].launch_ns, 10);
    ck_assert_double_eq(got.devices[1].prompt_expert_ns, 4);
    ck_assert_double_eq(got.prompt_host_ns, 5);
    strcpy(other.driver, "driver 2");
    ck_assert_int_eq(costs_read(&got, 1, path, &other, &uses), 0);
    other = k;
    strcpy(other.machine, "machine, 3 threads");
    ck_assert_int_eq(costs_read(&got, 1, path, &other, &uses), 0);
    ck_assert_int_eq(costs_write(&in, 1, path, &k, COSTS_USES, &e), 0);
    ck_assert_int_eq(costs_read(&got, 1, path, &k, &uses), 0); /* measured anew */
    for (int i = 0; i < 5; i++) {
        static const char *const bad[] = {"nan", "-1", "1e300", "inf", "x"};

        snprintf(text, sizeof text,
                 "moetop costs 1\ndriver %s\nmachine %s\nuses 1\nhost 1\ncpu 0 0 0 0 0 0 0\n"
                 "device 0 0 0 %s 0 0 0\n",
                 k.driver, k.machine, bad[i]);
        put_file(path, text);
        memset(&got, 0, sizeof got);
        ck_assert_int_eq(costs_read(&got, 1, path, &k, &uses), 0);
        ck_assert_double_eq(got.devices[1].expert_ns, 0);
    }
    put_file(path, "moetop costs 2\n");
    ck_assert_int_eq(costs_read(&got, 1, path, &k, &uses), 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cost_model");
    TCase *t = tcase_create("cost_model");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, sizes_and_abilities);
    tcase_add_test(t, layers_may_differ);
    tcase_add_test(t, layers_of_one_operator);
    tcase_add_test(t, kv_row_sizes);
    tcase_add_test(t, costs_are_measured);
    tcase_add_loop_test(t, blocks_of_the_plan_are_left_alone, 0, 2);
    tcase_add_test(t, a_full_context_leaves_attention_out);
    tcase_add_test(t, a_measurement_in_pieces);
    tcase_add_test(t, every_call_may_fail);
    tcase_add_test(t, verdicts_are_kept_by_model_and_device);
    tcase_add_test(t, costs_are_kept);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
