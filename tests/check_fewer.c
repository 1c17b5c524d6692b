/* Fewer experts a token: the numbers of a model that was made so, undone to the bit, and a receipt
 * that tells what they cost. */
#include "engine/base/mem.h"
#include "engine/device/device.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "tests/fake_device.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT 24
#define ANSWER 20

static struct error e;

static struct engine *open_demo(const char *overridden, int used)
{
    const char *const list[] = {overridden};
    const struct overrides overrides = {list, 1};
    struct engine_config c = {.model_path = support_demo(),
                              .overrides = overridden ? &overrides : NULL,
                              .context = 128,
                              .ubatch = 16,
                              .n_threads = 2,
                              .experts_used = used,
                              .tune = DEVICE_TUNE_OFF,
                              .convert = -1};
    struct engine *g = NULL;

    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    return g;
}

static int most_used(const struct engine *g)
{
    return hparams_layer(&engine_info(g)->model->hp, 0)->ffn.used;
}

/* Logits of every one of some tokens, from an empty session. */
static float *logits_of(struct engine *g)
{
    int ids[PROMPT + ANSWER];
    size_t n = PROMPT + ANSWER, n_vocab = (size_t)engine_info(g)->model->hp.n_vocab;
    float *out = mem_alloc(n * n_vocab, sizeof *out);

    for (size_t i = 0; i < n; i++)
        ids[i] = (300 + (int)(i * 37 % 900)) % (int)n_vocab;
    engine_session_clear(g);
    ck_assert_msg(engine_eval(g, ids, (int)n, out, true, &e) == 0, "%s", e.text);
    return out;
}

static bool same(const struct engine *g, const float *a, const float *b)
{
    size_t n = (size_t)(PROMPT + ANSWER) * (size_t)engine_info(g)->model->hp.n_vocab;

    return memcmp(a, b, n * sizeof *a) == 0;
}

START_TEST(as_if_the_model_were_made_so)
{
    struct engine *all = open_demo(NULL, 0), *made = open_demo("*.expert_used_count=int:1", 0),
                  *opened = open_demo(NULL, 1);
    float *exact = logits_of(all), *one = logits_of(made), *also = logits_of(opened), *now;

    ck_assert_int_gt(most_used(all), 1);
    ck_assert(!same(all, exact, one));
    ck_assert(same(all, also, one));
    ck_assert_int_eq(engine_experts_used_set(all, 1, &e), 0);
    now = logits_of(all);
    ck_assert(same(all, now, one));
    mem_free(now);
    ck_assert_int_eq(engine_experts_used_set(all, 0, &e), 0);
    now = logits_of(all);
    ck_assert(same(all, now, exact));
    mem_free(now);
    mem_free(exact);
    mem_free(one);
    mem_free(also);
    engine_close(all);
    engine_close(made);
    engine_close(opened);
}
END_TEST

START_TEST(the_receipt)
{
    struct engine *g = open_demo(NULL, 0);
    int most = most_used(g), n;
    struct shadow_loss loss;
    const int *ids;
    int before[PROMPT + ANSWER];

    mem_free(logits_of(g));
    n = engine_session_tokens(g, &ids);
    ck_assert_int_eq(n, PROMPT + ANSWER);
    memcpy(before, ids, sizeof before);
    ck_assert_int_eq(engine_shadow(g, PROMPT, &loss, &e), ERR_USAGE); /* nothing is lost */
    ck_assert_int_eq(engine_experts_used_set(g, most, &e), 0);        /* as many as there were */
    ck_assert_msg(engine_shadow(g, PROMPT, &loss, &e) == 0, "%s", e.text);
    ck_assert(loss.tokens == ANSWER && loss.changed == 0 && loss.mean_kl == 0);
    ck_assert_int_eq(engine_experts_used_set(g, 1, &e), 0);
    ck_assert_msg(engine_shadow(g, PROMPT, &loss, &e) == 0, "%s", e.text);
    ck_assert(loss.tokens == ANSWER && loss.mean_kl > 0 && loss.largest_kl >= loss.mean_kl);
    ck_assert(loss.rate > 0 && loss.exact_rate > 0);
    ck_assert_int_eq(most_used(g), 1); /* they are in force again */
    ck_assert_int_eq(engine_session_tokens(g, &ids), n);
    ck_assert_mem_eq(ids, before, sizeof before);
    engine_close(g);
}
END_TEST

/* Rows of other settings than those of the start go when these are in force again, those before
 * them stay. */
START_TEST(taken_back_as_far_as_it_was_changed)
{
    static const int opened_with[] = {0, 1};
    struct engine *g = open_demo(NULL, opened_with[_i]);
    int other = 1 - opened_with[_i], next = 301;
    const int *ids;

    mem_free(logits_of(g));
    ck_assert_int_eq(engine_experts_used_set(g, other, &e), 0);
    ck_assert_int_eq(engine_session_tokens(g, &ids), PROMPT + ANSWER);
    ck_assert_int_eq(engine_eval(g, &next, 1, g->session->logits, false, &e), 0);
    ck_assert_int_eq(engine_eval(g, &next, 1, g->session->logits, false, &e), 0);
    ck_assert_int_eq(engine_experts_least_set(g, 0.1f, &e), 0);
    ck_assert_int_eq(engine_experts_used_set(g, opened_with[_i], &e), 0);
    ck_assert_int_eq(engine_session_tokens(g, &ids), PROMPT + ANSWER + 2); /* not all as it was */
    ck_assert_int_eq(engine_experts_least_set(g, 0, &e), 0);
    ck_assert_int_eq(engine_session_tokens(g, &ids), PROMPT + ANSWER);
    engine_close(g);
}
END_TEST

static struct engine *open_kv(enum kv_type k, enum kv_type v)
{
    struct engine_config c = {.model_path = support_demo(),
                              .context = 128,
                              .ubatch = 16,
                              .n_threads = 2,
                              .kv_k = k,
                              .kv_v = v,
                              .tune = DEVICE_TUNE_OFF,
                              .convert = -1};
    struct engine *g = NULL;

    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    return g;
}

/* Types that are changed on the way are those of an engine that was opened so, to the bit. */
START_TEST(keys_and_values_in_other_types)
{
    static const enum kv_type types[][2] = {
        {KV_Q8_0, KV_Q8_0}, {KV_F32, KV_F32}, {KV_Q8_0, KV_F16}, {KV_F16, KV_Q8_0}};
    struct engine *g = open_kv(KV_F16, KV_F16), *made;
    float *exact = logits_of(g), *then, *so;
    struct session *other = NULL;
    struct shadow_loss loss;
    enum kv_type k, v;

    ck_assert_int_eq(engine_session_open(g, &other, &e), 0);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        ck_assert_msg(engine_kv_types_set(g, types[i][0], types[i][1], &e) == 0, "%s", e.text);
        made = open_kv(types[i][0], types[i][1]);
        then = logits_of(g);
        so = logits_of(made);
        ck_assert(same(g, then, so));
        ck_assert_int_eq(engine_lossy(g), types[i][0] == KV_Q8_0 || types[i][1] == KV_Q8_0);
        ck_assert_int_eq(engine_shadow(g, PROMPT, &loss, &e), engine_lossy(g) ? 0 : ERR_USAGE);
        if (engine_lossy(g)) {
            ck_assert(loss.tokens == ANSWER && loss.mean_kl > 0 && loss.rate > 0);
            ck_assert(loss.exact_rate > 0);
        }
        engine_kv_types(g, &k, &v);
        ck_assert(k == types[i][0] && v == types[i][1]); /* in force again */
        ck_assert_int_eq(engine_session_tokens(g, NULL), PROMPT + ANSWER);
        mem_free(then);
        mem_free(so);
        engine_close(made);
    }
    engine_kv_types_opened(g, &k, &v);
    ck_assert_int_eq(engine_kv_types_set(g, k, v, &e), 0);
    then = logits_of(g);
    ck_assert(same(g, then, exact));
    mem_free(then);
    mem_free(exact);
    engine_close(g);
}
END_TEST

/* A model whose weights sum to 1, on one device or two. */
static struct engine *open_softmax(const char *place, float least, int used)
{
    static const struct device_ops *const with_fake[] = {&fake_device_ops, &cpu_device_ops, NULL};
    struct engine_config c = {.model_path = support_path("golden/families/qwen3_moe"),
                              .context = 128,
                              .ubatch = 16,
                              .n_threads = 2,
                              .experts_used = used,
                              .experts_least = least,
                              .backends = place ? with_fake : NULL,
                              .placement = place,
                              .cache_dir = support_tmpdir(),
                              .no_tokenizer = true,
                              .exact = true,
                              .tune = DEVICE_TUNE_OFF,
                              .convert = -1};
    struct engine *g = NULL;

    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    return g;
}

static int chosen(const struct engine *g)
{
    const struct forward *f = &g->forward;
    int n = 0;

    for (int i = 0; i < g->model->hp.n_layers * f->rows * g->model->hp.n_experts_used; i++)
        n += f->experts[i] >= 0;
    return n;
}

static double worst(const struct engine *g, const float *a, const float *b)
{
    size_t n = (size_t)(PROMPT + ANSWER) * (size_t)engine_info(g)->model->hp.n_vocab;
    double most = 0;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

START_TEST(only_those_of_enough_weight)
{
    struct engine *g = open_softmax(NULL, 0, 0), *one = open_softmax(NULL, 0, 1), *gpu;
    float *exact = logits_of(g), *best = logits_of(one), *now, *there, least;
    int all = chosen(g), left, used, before = all;
    struct shadow_loss loss;

    ck_assert_int_eq(engine_experts_least_set(g, 1e-9f, &e), 0);
    now = logits_of(g);
    ck_assert(same(g, now, exact)); /* nobody weighs so little */
    mem_free(now);
    for (float x = 0.1f; x < 0.95f; x += 0.2f) {
        ck_assert_int_eq(engine_experts_least_set(g, x, &e), 0);
        now = logits_of(g);
        left = chosen(g);
        ck_assert_int_le(left, before);
        before = left;
        gpu = open_softmax("experts-gpu", x, 0);
        there = logits_of(gpu);
        ck_assert(same(g, now, there));
        engine_close(gpu);
        mem_free(there);
        mem_free(now);
    }
    ck_assert_int_lt(before, all);
    ck_assert_msg(engine_shadow(g, PROMPT, &loss, &e) == 0, "%s", e.text);
    ck_assert(loss.mean_kl > 0 && loss.rate > 0);
    engine_experts_lossy(g, &used, &least);
    ck_assert(used == 0 && least > 0.8f);
    ck_assert_int_eq(engine_experts_least_set(g, 1, &e), 0);
    now = logits_of(g);
    ck_assert_int_eq(chosen(g), chosen(one)); /* the best alone */
    ck_assert_msg(worst(g, now, best) < 1e-4, "%g", worst(g, now, best));
    mem_free(now);
    ck_assert_int_eq(engine_experts_least_set(g, 0, &e), 0);
    now = logits_of(g);
    ck_assert(same(g, now, exact));
    mem_free(now);
    ck_assert_int_eq(engine_experts_least_set(g, 1.5f, &e), ERR_USAGE);
    ck_assert_int_eq(engine_experts_least_set(g, NAN, &e), ERR_USAGE);
    mem_free(exact);
    mem_free(best);
    engine_close(g);
    engine_close(one);
}
END_TEST

START_TEST(what_is_refused)
{
    struct engine *g = open_demo(NULL, 0);
    struct engine_config c = {.model_path = support_path("golden/families/qwen3"),
                              .context = 64,
                              .no_tokenizer = true,
                              .experts_used = 1,
                              .convert = -1};
    int most = most_used(g);

    ck_assert_int_eq(engine_experts_used_set(g, most + 1, &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "--experts-used"));
    ck_assert_int_eq(most_used(g), most);
    engine_close(g);
    ck_assert_int_eq(engine_open(&g, &c, &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "no experts to choose from"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fewer experts");
    TCase *t = tcase_create("fewer experts");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, as_if_the_model_were_made_so);
    tcase_add_test(t, the_receipt);
    tcase_add_loop_test(t, taken_back_as_far_as_it_was_changed, 0, 2);
    tcase_add_test(t, keys_and_values_in_other_types);
    tcase_add_test(t, only_those_of_enough_weight);
    tcase_add_test(t, what_is_refused);
    suite_add_tcase(s, t);
    return support_run(s);
}
