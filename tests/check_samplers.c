/* The samplers beside top-k, top-p and min-p: what each leaves and what penalties take, against
 * numbers computed elsewhere (tests/tools/sampler_values.py); their order; the lists. */
#include "app/setup/sampling_options.h"
#include "engine/base/mem.h"
#include "engine/run/sampling/sampler.h"
#include "tests/support.h"

#include <math.h>
#include <string.h>

#define N 64
#define DRAWS 3000

#include "tests/golden/samplers.inc"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void fill(float *logits, uint32_t seed, float wide, float less)
{
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        logits[i] = (float)(seed >> 8) / 16777216.0f * wide - less;
    }
}

static void make(struct sampler *s, const struct sampling *v)
{
    struct error e = {0};

    ck_assert_int_eq(sampling_check(v, &e), 0);
    ck_assert_int_eq(sampler_init(s, N, v, &e), 0);
    ck_assert_int_eq(sampler_prepare(s, NULL, 100, &e), 0);
}

START_TEST(each_leaves_what_it_should)
{
    const struct chain_case *want = &chain_cases[_i];
    struct sampling v = want->values;
    float logits[N];
    int counts[N] = {0};
    struct sampler s;
    struct error e;

    ck_assert_int_eq(sampling_order_read(&v, want->samplers, &e), 0);
    fill(logits, want->seed, want->wide, 0);
    make(&s, &v);
    for (int d = 0; d < DRAWS; d++) {
        struct sampler_draw draw;

        counts[sampler_sample(&s, logits, NULL, 0, &draw)]++;
        ck_assert_int_eq(draw.candidates, want->n);
    }
    for (int i = 0; i < want->n; i++) {
        double expect = want->left[i].p * DRAWS, sd = sqrt(expect * (1 - want->left[i].p)) + 1;

        ck_assert_msg(fabs(counts[want->left[i].id] - expect) < 5 * sd,
                      "%s: id %d came %d times, not about %.0f", want->samplers, want->left[i].id,
                      counts[want->left[i].id], expect);
        counts[want->left[i].id] = 0;
    }
    for (int i = 0; i < N; i++)
        ck_assert_msg(!counts[i], "%s: id %d must not come", want->samplers, i);
    sampler_release(&s);
}
END_TEST

START_TEST(penalties_take_what_they_should)
{
    const struct penalty_case *want = &penalty_cases[_i];
    struct sampling v = {.repeat_penalty = want->repeat,
                         .presence_penalty = want->presence,
                         .frequency_penalty = want->frequency,
                         .repeat_last_n = want->last_n};
    float logits[N];
    struct sampler s;
    bool marked;

    fill(logits, 21, 6, 3);
    make(&s, &v);
    marked = penalties_mark(&s.penalties, &v, history, COUNT(history));
    ck_assert_int_eq(marked, want->last_n != 0);
    for (int i = 0; i < 12; i++)
        ck_assert_double_eq_tol((double)(marked ? penalties_apply(&s.penalties, &v, logits[i], i)
                                                : logits[i]),
                                want->logits[i], 2e-6);
    sampler_release(&s);
}
END_TEST

START_TEST(dry_takes_what_it_should)
{
    const struct dry_case *want = &dry_cases[_i];
    struct sampling v = {.repeat_penalty = 1,
                         .dry_multiplier = want->multiplier,
                         .dry_base = want->base,
                         .dry_allowed_length = want->allowed,
                         .dry_penalty_last_n = want->last_n};
    float logits[N];
    struct sampler s;
    bool marked;

    fill(logits, 21, 6, 3);
    make(&s, &v);
    marked = penalties_mark_dry(&s.penalties, &v, history, COUNT(history));
    for (int i = 0; i < 12; i++)
        ck_assert_double_eq_tol(
            (double)(marked ? penalties_apply_dry(&s.penalties, &v, logits[i], i) : logits[i]),
            want->logits[i], 1e-5);
    sampler_release(&s);
}
END_TEST

/* A real vocabulary, which knows what its tokens say. */
static struct weight_file *file;
static struct tokenizer *tokenizer;

static void open_tokenizer(void)
{
    struct error e = {0};
    char path[4096];

    snprintf(path, sizeof path, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    ck_assert_int_eq(weight_file_open(&file, path, true, &e), 0);
    ck_assert_int_eq(tokenizer_load(&tokenizer, file, &e), 0);
}

static void close_tokenizer(void)
{
    tokenizer_free(tokenizer);
    weight_file_close(file);
}

/* How many tokens of a text's end DRY finds to be repeated: the logit says so. */
static float taken(const char *text, const char *next, const char *breaker)
{
    struct sampling v = sampling_default();
    struct error e = {0};
    struct sampler s;
    int *ids, *then, n, m;
    float logit = 0;

    v.dry_multiplier = 1;
    v.dry_base = 2;
    v.dry_allowed_length = 1;
    v.n_dry_breakers = 0;
    if (breaker)
        ck_assert_int_eq(sampling_breaker_add(&v, breaker, strlen(breaker), &e), 0);
    ck_assert_int_eq(tokenizer_encode(tokenizer, text, strlen(text), false, &ids, &n, &e), 0);
    ck_assert_int_eq(tokenizer_encode(tokenizer, next, strlen(next), false, &then, &m, &e), 0);
    ck_assert_int_eq(sampler_init(&s, tokenizer_size(tokenizer), &v, &e), 0);
    ck_assert_int_eq(sampler_prepare(&s, tokenizer, 4096, &e), 0);
    if (penalties_mark_dry(&s.penalties, &v, ids, (size_t)n))
        logit = penalties_apply_dry(&s.penalties, &v, 0, then[m - 1]);
    mem_free(ids);
    mem_free(then);
    sampler_release(&s);
    return -logit;
}

START_TEST(dry_stops_at_breakers)
{
    const char *text = "the red fox ran home. The red fox ran";

    open_tokenizer();
    ck_assert_float_eq(taken(text, "x home", NULL), 4.0f);    /* red fox ran: 2^(3 - 1) */
    ck_assert_float_eq(taken(text, "x home", "zebra"), 4.0f); /* it says no such thing */
    ck_assert_float_eq(taken(text, "x home", "red"), 2.0f);
    ck_assert_float_eq(taken(text, "x home", " fox"), 1.0f);
    /* over several tokens, and from the middle of one to the middle of another */
    ck_assert_float_eq(taken(text, "x home", "red fox"), 1.0f);
    ck_assert_float_eq(taken(text, "x home", "ed fo"), 1.0f);
    ck_assert_float_eq(taken(text, "x home", "ran"), 0.0f);
    /* what is a breaker itself is never penalised */
    ck_assert_float_eq(taken(text, "x home", "home"), 0.0f);
    close_tokenizer();
}
END_TEST

START_TEST(xtc_comes_as_often_as_it_should)
{
    struct sampling v = {.temperature = 1,
                         .top_p = 1,
                         .repeat_penalty = 1,
                         .xtc_probability = 0.25f,
                         .xtc_threshold = 0.1f};
    float logits[N];
    int without = 0;
    struct sampler s;

    for (int i = 0; i < N; i++)
        logits[i] = i < 3 ? 10.0f - (float)i / 8 : 0.0f;
    make(&s, &v);
    for (int d = 0; d < DRAWS; d++) {
        struct sampler_draw draw;
        int id = sampler_sample(&s, logits, NULL, 0, &draw);

        if (draw.candidates == N)
            continue;
        ck_assert(draw.candidates == N - 2 && id > 1);
        without++;
    }
    ck_assert_int_gt(without, 650);
    ck_assert_int_lt(without, 850);
    sampler_release(&s);
}
END_TEST

START_TEST(bias_comes_first)
{
    struct sampling v = {.top_p = 1, .repeat_penalty = 1};
    float logits[N] = {[3] = 5, [7] = 4, [9] = 4.5f};
    struct sampler_draw draw;
    struct error e = {0};
    struct sampler s;

    ck_assert_int_eq(sampling_bias_read(&v, "7+1.5,3-inf,9-0.25", &e), 0);
    ck_assert_int_eq(sampling_bias_read(&v, "9-1", &e), 0);
    ck_assert(v.n_bias == 3 && v.bias[1].bias == -INFINITY && v.bias[2].bias == -1.0f);
    make(&s, &v);
    ck_assert_int_eq(sampler_sample(&s, logits, NULL, 0, &draw), 7);
    /* what is told is the model's own */
    ck_assert_float_eq(draw.probability, logits_probability(logits, N, 7));
    v.n_bias = 0;
    sampler_set(&s, &v);
    ck_assert_int_eq(sampler_sample(&s, logits, NULL, 0, NULL), 3);
    ck_assert_int_eq(sampling_bias_add(&v, N, 1, &e), 0);
    sampler_set(&s, &v);
    ck_assert_int_eq(sampler_prepare(&s, NULL, 100, &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "no token 64"));
    sampler_release(&s);
}
END_TEST

/* Greedy with cuts that drop the best; a temperature of 0 in the middle of a chain; none at all. */
START_TEST(greedy_takes_the_best_of_what_is_left)
{
    static const struct {
        const char *order;
        int id;
    } rows[] = {
        {"xtc;temperature", 2},
        {"temperature;xtc", 0},
        {"top_k;xtc;temperature", 2},
        {"top_p;temperature;min_p", 0},
        {"top_k;penalties;temperature", 0},
        {"penalties;top_k;temperature", 3},
    };
    struct sampling v = {.top_p = 0.99f,
                         .top_k = 3,
                         .repeat_penalty = 1,
                         .presence_penalty = 3,
                         .repeat_last_n = 64,
                         .xtc_probability = 1,
                         .xtc_threshold = 0.2f};
    float logits[N] = {10, 9.9f, 9.8f, 8};
    int recent[] = {0, 1, 2};

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct sampler s;
        struct error e;

        ck_assert_int_eq(sampling_order_read(&v, rows[i].order, &e), 0);
        make(&s, &v);
        for (int k = 0; k < 20; k++)
            ck_assert_msg(sampler_sample(&s, logits, recent, 3, NULL) == rows[i].id, "%s",
                          rows[i].order);
        sampler_release(&s);
    }
}
END_TEST

START_TEST(orders_are_read)
{
    struct sampling v = sampling_default(), w = v;
    struct error e = {0};

    ck_assert_int_eq(
        sampling_order_read(&v, "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",
                            &e),
        0);
    ck_assert_int_eq(sampling_order_read_letters(&w, "edskypmxt", &e), 0);
    ck_assert(v.n_order == 9 && w.n_order == 9 && memcmp(v.order, w.order, 9) == 0);
    for (int i = 0; i < 9; i++)
        ck_assert_int_eq(v.order[i], i);
    ck_assert_int_eq(sampling_order_read(&v, "top-k,temp", &e), 0);
    ck_assert(v.n_order == 2 && v.order[1] == SAMPLING_TEMPERATURE);
    ck_assert_int_eq(sampling_order_read(&v, "top_k;mirostat", &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "'mirostat'"));
    ck_assert_int_eq(sampling_order_read_letters(&v, "ktz", &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "'z'"));
    ck_assert_int_eq(sampling_order_read_letters(&v, "kkkkkkkkkkkkkkkkk", &e), ERR_USAGE);
}
END_TEST

START_TEST(json_says_all_of_them)
{
    static const char text[] =
        "{\"temperature\": 0.5, \"top_k\": 7, \"top_p\": 0.25, \"min_p\": 0.125, "
        "\"repeat_penalty\": 1.5, \"repeat_last_n\": 9, \"presence_penalty\": 0.5, "
        "\"frequency_penalty\": -0.5, \"typical_p\": 0.75, \"top_n_sigma\": 2, "
        "\"xtc_probability\": 0.5, \"xtc_threshold\": 0.25, \"dry_multiplier\": 1, "
        "\"dry_base\": 2, \"dry_allowed_length\": 3, \"dry_penalty_last_n\": 4, "
        "\"dry_sequence_breakers\": [\"a\", \"bc\"], \"logit_bias\": {\"5\": -1, \"6\": false}, "
        "\"samplers\": [\"top_k\", \"temperature\"], \"seed\": 11, \"model\": null}";
    struct sampling v = sampling_default();
    struct error e = {0};
    json_t *o = json_read(text, sizeof text - 1, "test", &e);

    ck_assert_int_eq(sampling_read_json(&v, o, NULL, &e), 0);
    ck_assert(v.temperature == 0.5f && v.top_k == 7 && v.top_p == 0.25f && v.min_p == 0.125f);
    ck_assert(v.repeat_penalty == 1.5f && v.repeat_last_n == 9 && v.presence_penalty == 0.5f);
    ck_assert(v.frequency_penalty == -0.5f && v.typical_p == 0.75f && v.top_n_sigma == 2.0f);
    ck_assert(v.xtc_probability == 0.5f && v.xtc_threshold == 0.25f && v.dry_multiplier == 1.0f);
    ck_assert(v.dry_base == 2.0f && v.dry_allowed_length == 3 && v.dry_penalty_last_n == 4);
    ck_assert(v.n_dry_breakers == 2 && strcmp(v.dry_breakers[1], "bc") == 0 && v.seed == 11);
    ck_assert(v.n_bias == 2 && v.bias[0].bias == -1.0f && v.bias[1].bias == -INFINITY);
    ck_assert(v.n_order == 2 && v.order[0] == SAMPLING_TOP_K);
    json_decref(o);
}
END_TEST

START_TEST(wrong_json_names_the_key)
{
    static const struct {
        const char *text, *param;
    } rows[] = {
        {"{\"temperature\": -1}", "temperature"},
        {"{\"temperature\": \"hot\"}", "temperature"},
        {"{\"top_k\": 1.5}", "top_k"},
        {"{\"top_k\": -3}", "top_k"},
        {"{\"presence_penalty\": 1000}", "presence_penalty"},
        {"{\"typical_p\": 2}", "typical_p"},
        {"{\"dry_allowed_length\": -1}", "dry_allowed_length"},
        {"{\"seed\": 1.5}", "seed"},
        {"{\"logit_bias\": [1]}", "logit_bias"},
        {"{\"logit_bias\": [[1, \"x\"]]}", "logit_bias"},
        {"{\"logit_bias\": {\"-1\": 2}}", "logit_bias"},
        {"{\"logit_bias\": {\"1x\": 2}}", "logit_bias"},
        {"{\"samplers\": [\"nope\"]}", "samplers"},
        {"{\"samplers\": 5}", "samplers"},
        {"{\"dry_sequence_breakers\": [\"\"]}", "dry_sequence_breakers"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct sampling v = sampling_default();
        const char *param = NULL;
        struct error e = {0};
        json_t *o = json_read(rows[i].text, strlen(rows[i].text), "test", &e);

        ck_assert_msg(sampling_read_json(&v, o, &param, &e) == ERR_INPUT, "%s", rows[i].text);
        ck_assert_str_eq(param, rows[i].param);
        json_decref(o);
    }
}
END_TEST

START_TEST(every_sampler_allocates_nothing)
{
    struct sampling v = sampling_default();
    float logits[N];
    struct sampler s;
    struct error e;

    v.presence_penalty = v.frequency_penalty = v.dry_multiplier = 0.5f;
    v.typical_p = 0.9f;
    v.top_n_sigma = 2;
    v.xtc_probability = 0.5f;
    v.top_k = 0;
    ck_assert_int_eq(sampling_bias_add(&v, 3, 1, &e), 0);
    fill(logits, 3, 6, 0);
    make(&s, &v);
    mem_fail_after(0);
    mem_guard_arm("sampling");
    for (int i = 0; i < 200; i++)
        sampler_sample(&s, logits, history, COUNT(history), &(struct sampler_draw){0});
    mem_guard_disarm();
    ck_assert_ptr_null(mem_alloc(1, 1));
    mem_fail_after(-1);
    sampler_release(&s);
    for (long k = 0; k < 2; k++) {
        ck_assert_int_eq(sampler_init(&s, N, &v, &e), 0);
        mem_fail_after(k);
        ck_assert_int_eq(sampler_prepare(&s, NULL, 100, &e), ERR_MEMORY);
        mem_fail_after(-1);
        ck_assert_int_eq(sampler_prepare(&s, NULL, 100, &e), 0);
        sampler_release(&s);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("samplers");
    TCase *c = tcase_create("samplers");

    tcase_add_loop_test(c, each_leaves_what_it_should, 0, (int)COUNT(chain_cases));
    tcase_add_loop_test(c, penalties_take_what_they_should, 0, (int)COUNT(penalty_cases));
    tcase_add_loop_test(c, dry_takes_what_it_should, 0, (int)COUNT(dry_cases));
    tcase_add_test(c, dry_stops_at_breakers);
    tcase_add_test(c, xtc_comes_as_often_as_it_should);
    tcase_add_test(c, bias_comes_first);
    tcase_add_test(c, greedy_takes_the_best_of_what_is_left);
    tcase_add_test(c, orders_are_read);
    tcase_add_test(c, json_says_all_of_them);
    tcase_add_test(c, wrong_json_names_the_key);
    tcase_add_test(c, every_sampler_allocates_nothing);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
