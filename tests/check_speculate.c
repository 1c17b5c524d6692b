/* Speculation: drafts are guesses about speed. Whoever drafts, however much and however wrongly,
 * the text, what is counted of it and what the session holds afterwards are those without drafts.
 * And the two that decide: the drafter, and the account of what drafts won and lost. */
#include "engine/base/mem.h"
#include "engine/device/device.h"
#include "engine/run/draft/drafter.h"
#include "engine/run/draft/utility.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "engine/run/prompt.h"
#include "tests/byte_level.h"
#include "tests/fake_device.h"
#include "tests/recurrent_device.h"
#include "tests/support.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct device_ops *const with_fake[] = {&fake_device_ops, &cpu_device_ops, NULL};
static const struct device_ops *const recurrent[] = {&recurrent_device_ops, NULL};

#define CONTEXT 400

struct setting {
    const struct device_ops *const *backends;
    const char *place, *spec, *model, *of; /* of: the model that answers; NULL: the bundled one */
    const char *accept, *rates;
    int n_max;
    bool windowed, pays; /* pays: only as far as drafts pay */
    bool late;           /* weights are packed beside the answer */
};

/* A family's checkpoint with a byte-level tokenizer, which is made here. */
static const char *family_with_words(const char *family)
{
    static char folder[4096];
    char command[9000], path[4200];
    char *json = byte_level_json("", "");
    FILE *f;

    snprintf(folder, sizeof folder, "%s/%s", support_tmpdir(), family);
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s/%s' '%s'", folder,
             support_path("golden/families"), family, folder);
    ck_assert_int_eq(system(command), 0);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(json, f);
    fclose(f);
    free(json);
    return folder;
}

static struct engine *open_engine(const struct setting *a)
{
    static const char *const window_of[] = {"*.attention.sliding_window=int:12"};
    static const struct overrides window = {window_of, 1};
    struct engine_config c = {
        .model_path = a->of ? a->of : support_demo(),
        .overrides = a->windowed ? &window : NULL,
        .context = a->windowed ? 640 : CONTEXT,
        .ubatch = 64,
        .n_threads = 2,
        .kv_k = KV_F16,
        .kv_v = KV_F16,
        .backends = a->backends,
        .placement = a->place,
        .background = a->late,
        .cache_dir = support_tmpdir(),
        .tune = DEVICE_TUNE_OFF,
        .drafting = {.n_max = a->n_max, .always = !a->pays, .model = a->model},
        .convert = -1};
    struct engine *g = NULL;
    struct error e = {0};

    if (a->accept)
        ck_assert_int_eq(acceptance_parse(a->accept, &c.drafting.accept, &e), 0);
    if (a->rates)
        c.drafting.n_synthetic = acceptance_rates_parse(a->rates, c.drafting.synthetic, DRAFT_MOST,
                                                        &e);
    ck_assert_msg(c.drafting.n_synthetic >= 0, "%s", e.text);
    snprintf(c.drafting.type, sizeof c.drafting.type, "%s", a->spec ? a->spec : "");
    if (engine_open(&g, &c, &e) < 0)
        ck_abort_msg("%s", e.text);
    return g;
}

/* What a turn said. */
struct said {
    char text[16384];
    size_t n;
    int tokens, cancel_after; /* 0: never */
    int colder_after;         /* tokens after which it becomes greedy; 0: never */
    struct engine *g;
    struct sampling sampling;
    struct turn_done_event done;
    int hold;                   /* tokens before which weights are not packed */
    char why[96], why_held[96]; /* of the newest token, of the newest one of these */
};

/* What the line of drafts says while an answer is under way. */
static void listen(struct said *s)
{
    snprintf(s->why, sizeof s->why, "%s", engine_telemetry(s->g)->speculation.why);
    if (s->tokens < s->hold) {
        model_hold(engine_info(s->g)->model, 60000);
        memcpy(s->why_held, s->why, sizeof s->why);
    } else if (s->hold) {
        model_settle(engine_info(s->g)->model);
    }
}

static int hear(void *ctx, struct event *ev)
{
    struct said *s = ctx;

    if (ev->kind == EVENT_TURN_DONE)
        s->done = ev->done_turn;
    if (ev->kind != EVENT_TOKEN)
        return 0;
    ck_assert_uint_lt(s->n + ev->token.len, sizeof s->text);
    memcpy(s->text + s->n, ev->token.text, ev->token.len);
    s->n += ev->token.len;
    s->tokens += ev->token.id >= 0;
    if (s->g)
        listen(s);
    ck_assert(ev->token.id < 0 || ev->token.first || ev->token.compute_ns > 0);
    if (s->colder_after && s->tokens == s->colder_after) {
        s->sampling.temperature = 0;
        engine_session_sampling_set(engine_session(s->g), &s->sampling);
    }
    return s->cancel_after && s->tokens >= s->cancel_after;
}

/* What is asked. */
struct way {
    float temperature, penalty;
    uint64_t seed;
    int max_tokens, cancel_after, colder_after;
    bool ignore_eos, probabilities;
    const char *stop;
};

static const struct way ways[] = {
    {0, 1, 0, 120, 0, 0, true, false, NULL},
    {0, 1, 0, -1, 0, 0, true, false, NULL}, /* to the end of the context, in circles at last */
    {0, 1, 0, -1, 0, 0, false, true, NULL}, /* to its own end */
    {0.8f, 1, 1, 150, 0, 0, true, true, NULL},
    {0.8f, 1, 2, -1, 0, 0, false, false, NULL},
    {1.5f, 1.2f, 3, 150, 0, 0, true, false, NULL},
    {0, 1.3f, 0, 150, 0, 0, true, false, NULL},
    {0, 1, 0, -1, 0, 0, true, false, "the end"},
    {0.5f, 1, 4, -1, 0, 0, true, false, "and"},
    {0, 1, 0, -1, 233, 0, true, false, NULL},
    {0.3f, 1, 5, -1, 101, 0, true, false, NULL},
    {0.6f, 1, 6, 150, 0, 40, true, false, NULL},
};
#define WAYS ((int)(sizeof ways / sizeof *ways))

static const char *const prompts[] = {
    "Tell me a story about a fox.",
    "Repeat after me: The duck swam on the pond. The duck saw a frog. The frog saw the duck. The "
    "duck swam on the pond.",
};

static void one_turn(struct engine *g, const struct way *w, const char *prompt, struct said *s)
{
    struct message m = {.role = ROLE_USER, .text = (char *)prompt};
    struct dialogue d = {.messages = &m, .n_messages = 1};
    char *stops[] = {(char *)w->stop};
    struct turn t = {.max_tokens = w->max_tokens,
                     .ignore_eos = w->ignore_eos,
                     .probabilities = w->probabilities,
                     .stops = stops,
                     .n_stops = w->stop != NULL,
                     .sampling = {.temperature = w->temperature,
                                  .top_k = 40,
                                  .top_p = 0.95f,
                                  .repeat_penalty = w->penalty,
                                  .repeat_last_n = 64,
                                  .seed = w->seed}};
    struct error e = {0};

    *s = (struct said){.hold = s->hold,
                       .cancel_after = w->cancel_after,
                       .colder_after = w->colder_after,
                       .g = g,
                       .sampling = t.sampling};
    ck_assert_msg(prompt_turn(g, NULL, &d, &t, hear, s, NULL, &e) == 0, "%s", e.text);
}

/* The same words, tokens and counts, and the same numbers for what comes next. */
static void same(struct engine *a, struct engine *b, const struct said *x, const struct said *y)
{
    const struct telemetry *t = engine_telemetry(a), *u = engine_telemetry(b);
    int vocab = engine_info(a)->model->hp.n_vocab, next = 17, n;
    float *p = mem_alloc((size_t)vocab, sizeof *p), *q = mem_alloc((size_t)vocab, sizeof *q);
    const int *ids, *others;
    struct error e = {0};

    ck_assert_str_eq(x->text, y->text);
    ck_assert_int_eq(x->done.completion_tokens, y->done.completion_tokens);
    ck_assert_int_eq(x->done.reason, y->done.reason);
    ck_assert_int_eq(x->tokens, y->tokens);
    n = engine_session_tokens(a, &ids);
    ck_assert_int_eq(engine_session_tokens(b, &others), n);
    ck_assert_mem_eq(ids, others, (size_t)n * sizeof *ids);
    ck_assert_uint_eq(t->session_generated_tokens, u->session_generated_tokens);
    ck_assert_uint_eq(t->recent_count, u->recent_count);
    ck_assert_mem_eq(t->session, u->session,
                     (size_t)(t->n_layers * t->n_experts) * sizeof *t->session);
    ck_assert_mem_eq(t->answer, u->answer,
                     (size_t)(t->n_layers * t->n_experts) * sizeof *t->answer);
    ck_assert_mem_eq(t->routes, u->routes,
                     (size_t)(TELEMETRY_ROUTES * t->n_layers * t->n_experts_used) *
                         sizeof *t->routes);
    if (n < engine_info(a)->context) {
        ck_assert_int_eq(engine_eval(a, &next, 1, p, false, &e), 0);
        ck_assert_int_eq(engine_eval(b, &next, 1, q, false, &e), 0);
        ck_assert_mem_eq(p, q, (size_t)vocab * sizeof *p);
    }
    mem_free(p);
    mem_free(q);
}

/* Every way, one turn after the other on the same session. Drafts were right as well as wrong. */
static void same_in_all_ways(const struct setting *a, bool drafts)
{
    struct setting plain = {.backends = a->backends, .windowed = a->windowed};
    struct engine *without = open_engine(&plain), *with = open_engine(a);
    const struct speculation_figures *f = &engine_telemetry(with)->speculation;
    uint64_t accepted = 0, drafted = 0;
    static struct said x, y;

    for (int i = 0; i < WAYS; i++) {
        const char *prompt = prompts[i % 2];

        one_turn(without, &ways[i], prompt, &x);
        one_turn(with, &ways[i], prompt, &y);
        ck_assert_int_le(y.done.accepted, y.done.drafted);
        accepted += (uint64_t)y.done.accepted;
        drafted += (uint64_t)y.done.drafted;
        same(without, with, &x, &y);
        if (i % 3 == 2) {
            engine_session_clear(without);
            engine_session_clear(with);
            ck_assert_uint_eq(f->drafted, 0);
        }
    }
    ck_assert(f->wanted);
    if (!a->pays)
        ck_assert(drafts ? accepted > 20 && drafted > accepted + 20 : drafted == 0);
    support_ran("%llu of %llu drafts were right", (unsigned long long)accepted,
                (unsigned long long)drafted);
    engine_close(without);
    engine_close(with);
}

START_TEST(the_text_stays)
{
    static const struct setting all[] = {
        {.spec = "lookup", .n_max = 1},
        {.spec = "lookup", .n_max = 16},
        {.spec = "auto", .n_max = 8, .pays = true},
        {.spec = "ngram", .n_max = 8},
    };

    same_in_all_ways(&all[_i], true);
}
END_TEST

START_TEST(the_text_stays_where_rings_are_kept)
{
    same_in_all_ways(&(struct setting){.spec = "lookup", .n_max = 7, .windowed = true}, true);
}
END_TEST

START_TEST(the_text_stays_on_devices)
{
    static const char *const places[] = {"layers:4", "experts-gpu"};

    fake_device_control(NULL);
    same_in_all_ways(
        &(struct setting){.backends = with_fake, .place = places[_i], .spec = "lookup", .n_max = 6},
        true);
}
END_TEST

/* A draft model: the very same one, whose drafts are right where the most probable token is drawn;
 * and one that sees further than the model it drafts for. */
START_TEST(the_text_stays_with_a_draft_model)
{
    struct setting all[] = {
        {.spec = "model", .n_max = 3},
        {.spec = "auto", .n_max = 5, .pays = true},
        {.spec = "auto", .n_max = 6, .windowed = true},
    };

    all[_i].model = support_demo();
    same_in_all_ways(&all[_i], true);
}
END_TEST

START_TEST(who_may_not_draft)
{
    struct engine_config c = {
        .model_path = support_demo(), .context = 64, .convert = -1, .drafting = {.type = "model"}};
    struct engine *g;
    struct error e = {0};

    ck_assert_int_eq(engine_open(&g, &c, &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "-md"));
    c.drafting.model = support_path("golden/phi-tiny-moe");
    ck_assert_int_lt(engine_open(&g, &c, &e), 0);
    ck_assert_msg(strstr(e.text, "-md") || strstr(e.text, "vocabulary"), "%s", e.text);
    c.drafting.model = "/nowhere/at/all";
    ck_assert_int_lt(engine_open(&g, &c, &e), 0);
    ck_assert_ptr_nonnull(strstr(e.text, "-md"));
}
END_TEST

/* A copy of the bundled model in which the token is another kind of token: a piece with a merge, a
 * control token. */
static const char *model_with_kind(int id, int32_t kind)
{
    static char path[4096];
    static const char key[] = "tokenizer.ggml.token_type";
    size_t size, at = 0;
    uint8_t *bytes;
    FILE *f = fopen(support_demo(), "rb");

    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
    size = (size_t)ftell(f);
    rewind(f);
    bytes = mem_alloc(size, 1);
    ck_assert_uint_eq(fread(bytes, 1, size, f), size);
    fclose(f);
    while (memcmp(bytes + at, key, sizeof key - 1) != 0)
        ck_assert_uint_lt(at++, size - sizeof key);
    at += sizeof key - 1 + 4 + 4 + 8 + 4 * (size_t)id; /* array, its type, its length */
    ck_assert(memcmp(bytes + at, &kind, sizeof kind) != 0);
    memcpy(bytes + at, &kind, sizeof kind);
    snprintf(path, sizeof path, "%s/kind.gguf", support_tmpdir());
    f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, size, f), size);
    ck_assert_int_eq(fclose(f), 0);
    mem_free(bytes);
    return path;
}

/* The same text of a token is the same token, whichever kind of token its file says it is. */
START_TEST(kinds_of_tokens_may_differ)
{
    struct setting a = {.spec = "model", .model = model_with_kind(2, 3), .n_max = 4};
    struct engine *g = open_engine(&a);
    static struct said s;

    one_turn(g, &ways[0], prompts[0], &s);
    ck_assert_int_gt(s.done.accepted, 20);
    engine_close(g);
}
END_TEST

/* A device that cannot take a recurrence back: nothing is drafted, and a line says so. */
START_TEST(recurrent_layers_are_left_alone)
{
    struct setting a = {.backends = recurrent, .spec = "auto"};
    struct engine *g;
    static struct said s;

    same_in_all_ways(&a, false);
    g = open_engine(&a);
    one_turn(g, &ways[0], prompts[0], &s);
    ck_assert_ptr_nonnull(strstr(engine_telemetry(g)->speculation.why, "recurrent"));
    engine_close(g);
}
END_TEST

/* A reason is told as long as it holds: weights that are packed, a recorded trace, a text in which
 * nothing repeats. */
START_TEST(reasons_do_not_outlive_their_cause)
{
    static const char unlike[] = "one two three four five six seven eight nine ten";
    struct setting a = {.spec = "lookup", .pays = true, .late = true};
    struct engine *g = open_engine(&a);
    const char *why = engine_telemetry(g)->speculation.why;
    static struct said s;
    struct error e = {0};

    s.hold = 8;
    one_turn(g, &ways[0], prompts[0], &s);
    ck_assert_msg(strstr(s.why_held, "off: weights are still packed, 0."), "%s", s.why_held);
    ck_assert_ptr_null(strstr(s.why, "packed"));
    ck_assert_uint_ge(engine_telemetry(g)->speculation.passes_early, 6);
    s.hold = 0;
    engine_session_clear(g);
    ck_assert_int_eq(engine_trace_start(g, 1000, &e), 0);
    one_turn(g, &(struct way){.penalty = 1, .max_tokens = 20, .ignore_eos = true}, unlike, &s);
    ck_assert_str_eq(s.why, "off: a trace is recorded");
    ck_assert_uint_eq(engine_telemetry(g)->speculation.passes_early, 0);
    ck_assert_str_eq(why, ""); /* between answers */
    engine_trace_start(g, 0, &e);
    engine_session_clear(g);
    one_turn(g, &(struct way){.penalty = 9, .max_tokens = 30, .ignore_eos = true}, unlike, &s);
    ck_assert_str_eq(s.why, "off: nothing repeats here");
    engine_close(g);
}
END_TEST

/* Who drafts at a cost and was wrong every time is asked for a token all the same where another
 * answer begins, and learns that it is right now. */
START_TEST(a_costly_drafter_is_tried_again)
{
    static const enum drafter_kind kind = DRAFTER_model;
    struct setting a = {.spec = "model", .n_max = 2, .pays = true, .model = support_demo()};
    struct engine *g = open_engine(&a);
    struct drafter *d;
    static struct said s;
    float never, now;

    one_turn(g, &ways[0], prompts[0], &s);
    d = engine_session(g)->spec.drafters[kind];
    for (int i = 0; i < 300; i++)
        drafter_ops(kind)->learn(d, 1, 0);
    drafter_ops(kind)->expect(d, 1, &never);
    ck_assert_float_lt(never, 0.001f);
    g->utility.account = -5; /* nothing more may be lost */
    one_turn(g, &(struct way){.penalty = 1, .max_tokens = 30}, prompts[0], &s);
    drafter_ops(kind)->expect(d, 1, &now);
    ck_assert_float_eq(now, never);
    g->utility.account = 1;
    one_turn(g, &ways[0], prompts[0], &s);
    drafter_ops(kind)->expect(d, 1, &now);
    ck_assert_float_gt(now, 0.02f);
    engine_close(g);
}
END_TEST

/* A lossy policy takes what the model did not draw, and counts it: the policy decides how much. */
START_TEST(lossy_policies_say_what_they_changed)
{
    static const char *const all[] = {"prefix", "top-k:2", "top-k:100000"};
    int changed[3];

    for (int i = 0; i < 3; i++) {
        struct setting a = {.spec = "lookup", .n_max = 6, .accept = all[i]};
        struct engine *g = open_engine(&a);
        static struct said x;

        one_turn(g, &ways[1], prompts[1], &x);
        changed[i] = x.done.changed;
        ck_assert_uint_eq(engine_telemetry(g)->speculation.changed, (uint64_t)changed[i]);
        ck_assert_uint_ge(engine_telemetry(g)->speculation.accepted, (uint64_t)changed[i]);
        engine_close(g);
    }
    ck_assert_int_eq(changed[0], 0);
    ck_assert_int_gt(changed[1], 0);
    ck_assert_int_gt(changed[2], changed[1]);
}
END_TEST

/* At rates that are given: who drafts and what the model draws do not count, and what was foreseen
 * is what came. */
START_TEST(synthetic_acceptance)
{
    static const struct {
        const char *rates;
        double first, second; /* shares of the drafts taken at these positions */
    } all[] = {{"0,0,0", 0, 0}, {"1,1,1", 1, 1}, {"0.5,0.5,0", 0.5, 0.5}, {"0.8,0.2", 0.8, 0.2}};
    const struct speculation_figures *f;
    static struct said x;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct setting a = {.spec = "eagle", .n_max = 3, .rates = all[i].rates};
        struct engine *g = open_engine(&a);

        one_turn(g, &ways[1], prompts[1], &x);
        f = &engine_telemetry(g)->speculation;
        ck_assert_uint_gt(f->tried[1], 8);
        ck_assert_double_eq_tol((double)f->right[0] / (double)f->tried[0], all[i].first, 0.3);
        ck_assert_double_eq_tol((double)f->right[1] / (double)f->tried[1], all[i].second, 0.3);
        ck_assert_uint_eq((uint64_t)x.done.accepted, f->accepted);
        ck_assert_uint_eq((uint64_t)x.done.changed, f->changed);
        engine_close(g);
    }
}
END_TEST

START_TEST(rates_that_are_none)
{
    static const char *const bad[] = {
        "", "x", "0.5,", "1.5", "-0.1", "0.5,0.6", "nan", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"};
    float rates[DRAFT_MOST];
    struct error e = {0};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(acceptance_rates_parse(bad[i], rates, DRAFT_MOST, &e), ERR_USAGE);
    ck_assert_int_eq(acceptance_rates_parse("1,0.25,0", rates, DRAFT_MOST, &e), 3);
    ck_assert(rates[0] == 1 && rates[1] == 0.25f && rates[2] == 0);
}
END_TEST

/* Under a grammar: what it does not allow is not drafted, and what it allows is counted as it will
 * be drawn. */
START_TEST(the_text_stays_under_a_grammar)
{
    static const char rules[] = "root ::= (\"The fox \" (\"ran\" | \"sat\") \". \")+";
    struct setting plain = {0}, a = {.spec = "lookup", .n_max = 8};
    struct engine *without = open_engine(&plain), *with = open_engine(&a);
    struct message m = {.role = ROLE_USER, .text = (char *)prompts[0]};
    struct dialogue d = {.messages = &m, .n_messages = 1};
    struct turn t = {
        .max_tokens = 120,
        .sampling = {.temperature = _i ? 1.0f : 0, .top_p = 1, .repeat_penalty = 1, .seed = 5}};
    static struct said x, y;
    struct error e = {0};

    ck_assert_int_eq(grammar_from_gbnf(&t.grammar, rules, sizeof rules - 1, &e), 0);
    x = y = (struct said){0};
    ck_assert_msg(prompt_turn(without, NULL, &d, &t, hear, &x, NULL, &e) == 0, "%s", e.text);
    ck_assert_msg(prompt_turn(with, NULL, &d, &t, hear, &y, NULL, &e) == 0, "%s", e.text);
    ck_assert_str_eq(x.text, y.text);
    ck_assert_int_gt(y.done.accepted, 20);
    ck_assert_uint_eq((uint64_t)y.done.accepted,
                      engine_telemetry(with)->speculation.accepted); /* as was foreseen */
    grammar_free(t.grammar);
    engine_close(without);
    engine_close(with);
}
END_TEST

/* A device that fails anywhere, for once or for good, in the middle of a verification too. */
START_TEST(the_text_stays_when_a_device_fails)
{
    struct setting plain = {0},
                   a = {.backends = with_fake, .place = "layers:4", .spec = "lookup", .n_max = 6};
    struct way w = ways[1];
    static struct said x, y;
    struct engine *without = open_engine(&plain), *with;
    long calls;

    one_turn(without, &w, prompts[1], &x);
    fake_device_control(NULL);
    with = open_engine(&a);
    one_turn(with, &w, prompts[1], &y);
    calls = fake_device_calls();
    engine_close(with);
    for (int i = 1; i <= 4; i++) {
        struct fake_control c = {.fail_at = calls * i / 5, .lost = i % 2};

        fake_device_control(&c);
        with = open_engine(&a);
        one_turn(with, &w, prompts[1], &y);
        ck_assert_str_eq(x.text, y.text);
        ck_assert_int_gt(y.done.accepted, 0);
        engine_close(with);
    }
    fake_device_control(NULL);
    engine_close(without);
}
END_TEST

#define AT_ONCE 4

/* Several sessions at a time, each with drafts of its own in the same passes. */
START_TEST(the_text_stays_in_company)
{
    struct setting plain = {0}, a = {.spec = "lookup", .n_max = 5, .pays = _i};
    struct engine *without = open_engine(&plain), *with = open_engine(&a);
    struct session *session[AT_ONCE];
    static struct said x, y[AT_ONCE];
    struct turn t[AT_ONCE];
    struct error e = {0};
    int accepted = 0;

    for (int i = 0; i < AT_ONCE; i++) {
        struct message m = {.role = ROLE_USER, .text = (char *)prompts[i % 2]};
        struct dialogue d = {.messages = &m, .n_messages = 1};

        t[i] = (struct turn){.max_tokens = 200 - 30 * i,
                             .ignore_eos = true,
                             .sampling = {.temperature = i < 2 ? 0 : 0.6f,
                                          .top_p = 1,
                                          .repeat_penalty = 1,
                                          .seed = (uint64_t)i}};
        y[i] = (struct said){0};
        ck_assert_int_eq(engine_session_open(with, &session[i], &e), 0);
        ck_assert_int_eq(
            prompt_make(engine_info(with), NULL, &d, t[i].max_tokens, NULL, &t[i].prompt, &e), 0);
        ck_assert_int_eq(engine_session_turn(session[i], &t[i], hear, &y[i], &e), 0);
    }
    while (engine_step(with))
        ;
    for (int i = 0; i < AT_ONCE; i++) {
        struct way w = {.temperature = t[i].sampling.temperature};
        struct message m = {.role = ROLE_USER, .text = (char *)prompts[i % 2]};
        struct dialogue d = {.messages = &m, .n_messages = 1};
        struct turn alone = t[i];

        x = (struct said){.cancel_after = w.cancel_after};
        alone.prompt = (struct prompt){0};
        engine_session_clear(without);
        ck_assert_int_eq(prompt_turn(without, NULL, &d, &alone, hear, &x, NULL, &e), 0);
        ck_assert_str_eq(x.text, y[i].text);
        accepted += y[i].done.accepted;
        mem_free(t[i].prompt.ids);
    }
    ck_assert(_i || accepted > 10);
    engine_close(without);
    engine_close(with);
}
END_TEST

static const char *const with_state[] = {"qwen3_next", "qwen3_5_moe",
                                         "lfm2_moe",   "granitemoehybrid",
                                         "nemotron_h", "bailing_hybrid",
                                         "jamba",      "qwen4_exp"};

/* A turn of ids alone. */
static void turn_of_ids(struct engine *g, int first, int n, const struct way *w, struct said *s)
{
    int ids[64];
    struct turn t = {.max_tokens = w->max_tokens,
                     .ignore_eos = true,
                     .prompt = {.ids = ids, .n = n},
                     .sampling = {.temperature = w->temperature,
                                  .top_k = 3,
                                  .top_p = 1,
                                  .repeat_penalty = 1,
                                  .seed = w->seed}};
    struct error e = {0};

    for (int i = 0; i < n; i++)
        ids[i] = first + i % 7;
    *s = (struct said){.cancel_after = w->cancel_after};
    ck_assert_msg(engine_turn(g, &t, hear, s, NULL, &e) == 0, "%s", e.text);
}

/* A recurrence is read by drafted rows and not written, and taken over the right ones by the next
 * pass: whether turns go on from there, begin anew or are cut off in the middle. */
START_TEST(the_text_stays_with_recurrent_state)
{
    static const struct way all[] = {{.max_tokens = 90},
                                     {.max_tokens = 60, .temperature = 0.7f, .seed = 3},
                                     {.max_tokens = 70, .cancel_after = 41},
                                     {.max_tokens = 300}};
    struct setting plain = {.of = family_with_words(with_state[_i])}, a = plain;
    struct engine *without, *with;
    static struct said x, y;
    int drafted = 0, accepted = 0;

    a.spec = "model";
    a.model = plain.of; /* that is right where the likeliest token is drawn */
    a.n_max = 5;
    without = open_engine(&plain);
    with = open_engine(&a);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        turn_of_ids(without, 33 + (int)(i / 2), 20 + 9 * (int)i, &all[i], &x);
        turn_of_ids(with, 33 + (int)(i / 2), 20 + 9 * (int)i, &all[i], &y);
        drafted += y.done.drafted;
        accepted += y.done.accepted;
        same(without, with, &x, &y);
    }
    support_ran("%s: %d of %d drafts were right", with_state[_i], accepted, drafted);
    ck_assert_int_gt(accepted, 50);
    ck_assert_int_gt(drafted, accepted);
    engine_close(without);
    engine_close(with);
}
END_TEST

/* The block of the model's own file (of a random model: it is hardly ever right), whatever turns do
 * to the states that it reads. */
START_TEST(the_text_stays_with_a_block_of_its_own)
{
    static const char *const families_with[] = {"deepseek_v3", "glm4_moe", "qwen3_5_moe",
                                                "deepseek_v4", "longcat_flash"};
    static const struct way all[] = {{.max_tokens = 60},
                                     {.max_tokens = 40, .temperature = 0.7f, .seed = 3},
                                     {.max_tokens = 50, .cancel_after = 21},
                                     {.max_tokens = 200}};
    struct setting plain = {.of = family_with_words(families_with[_i])}, a = plain;
    struct engine *without, *with;
    static struct said x, y;
    int drafted = 0;

    a.spec = "mtp";
    a.n_max = 4;
    without = open_engine(&plain);
    with = open_engine(&a);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        turn_of_ids(without, 30 + (int)(i / 2), 20 + 9 * (int)i, &all[i], &x);
        turn_of_ids(with, 30 + (int)(i / 2), 20 + 9 * (int)i, &all[i], &y);
        drafted += y.done.drafted;
        same(without, with, &x, &y);
    }
    support_ran("%s: %d drafts", families_with[_i], drafted);
    ck_assert_int_gt(drafted, 100);
    engine_close(without);
    engine_close(with);
}
END_TEST

/* What some of a folder's tensors are made: BF16 matrices and vectors. */
static const struct {
    const char *ends;
    enum { FILL_ZEROS, FILL_ONES, FILL_UNIT } with;
} made_simple[] = {{".attn.wo_b.weight", FILL_ZEROS},   {".w2.weight", FILL_ZEROS},
                   {"mtp.0.h_proj.weight", FILL_ZEROS}, {"mtp.0.e_proj.weight", FILL_UNIT},
                   {"mtp.0.enorm.weight", FILL_ONES},   {"mtp.0.norm.weight", FILL_ONES},
                   {"model.norm.weight", FILL_ONES}};

static void fill_tensor(const json_t *entry, int with, char *data)
{
    const json_t *shape = json_object_get(entry, "shape"),
                 *at = json_array_get(json_object_get(entry, "data_offsets"), 0);
    size_t n = (size_t)json_integer_value(json_array_get(shape, 0)), cols = 1;
    uint16_t *v = (void *)(data + json_integer_value(at));

    if (json_array_size(shape) == 2)
        cols = (size_t)json_integer_value(json_array_get(shape, 1));
    for (size_t i = 0; i < n * cols; i++)
        v[i] = with == FILL_ONES || (with == FILL_UNIT && i / cols == i % cols) ? 0x3f80 : 0;
}

/* DeepSeek V4's checkpoint as a model whose next token follows from the newest one alone, by its
 * embedding and the head; so do its block's. */
static const char *simple_folder(void)
{
    const char *folder = family_with_words("deepseek_v4"), *name;
    static char bytes[400000];
    char path[4200];
    uint64_t head;
    size_t n;
    json_t *root, *entry;
    FILE *f;

    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ck_assert((f = fopen(path, "rb")));
    n = fread(bytes, 1, sizeof bytes, f);
    ck_assert(n > 8 && n < sizeof bytes);
    fclose(f);
    memcpy(&head, bytes, sizeof head);
    ck_assert((root = json_loadb(bytes + 8, (size_t)head, 0, NULL)));
    json_object_foreach(root, name, entry) for (size_t i = 0;
                                                i < sizeof made_simple / sizeof *made_simple; i++)
    {
        size_t end = strlen(made_simple[i].ends), len = strlen(name);

        if (len >= end && strcmp(name + len - end, made_simple[i].ends) == 0)
            fill_tensor(entry, made_simple[i].with, bytes + 8 + head);
    }
    json_decref(root);
    unlink(path); /* it may be a link */
    ck_assert((f = fopen(path, "wb")));
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    fclose(f);
    return folder;
}

/* A block that says what its model says, joined over all residual streams: its drafts are taken. */
START_TEST(a_right_block_of_streams_is_taken)
{
    static const struct way all[] = {{.max_tokens = 100},
                                     {.max_tokens = 60, .temperature = 0.7f, .seed = 3}};
    struct setting plain = {.of = simple_folder()}, a = plain;
    struct engine *without, *with;
    static struct said x, y;

    a.spec = "mtp";
    a.n_max = 4;
    without = open_engine(&plain);
    with = open_engine(&a);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        turn_of_ids(without, 9, 20 + 9 * (int)i, &all[i], &x);
        turn_of_ids(with, 9, 20 + 9 * (int)i, &all[i], &y);
        same(without, with, &x, &y);
        support_ran("%s: %d of %d drafts were right", i ? "drawn" : "greedy", y.done.accepted,
                    y.done.drafted);
        if (i == 0)
            ck_assert(y.done.accepted > 60 && y.done.accepted == y.done.drafted);
    }
    engine_close(without);
    engine_close(with);
}
END_TEST

START_TEST(who_is_not_there)
{
    struct engine_config c = {
        .model_path = support_demo(), .context = 64, .convert = -1, .drafting = {.type = "nobody"}};
    struct engine *g;
    struct error e = {0};

    ck_assert_int_eq(engine_open(&g, &c, &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "nobody"));
}
END_TEST

/* ---- policies ---- */

static bool takes(const char *policy, const float *logits, int id)
{
    struct acceptance a;
    struct error e = {0};
    float p = -1;
    bool yes;

    ck_assert_int_eq(acceptance_parse(policy, &a, &e), 0);
    yes = acceptance_takes(&a, logits, 4, id, &p);
    ck_assert(!yes || (p > 0 && p <= 1));
    return yes;
}

/* Probabilities 0.6, 0.25, 0.1, 0.05: entropy 1.03, exp(-entropy) 0.36. */
START_TEST(policies_take_what_they_say)
{
    float x[4] = {logf(0.6f), logf(0.25f), logf(0.1f), logf(0.05f)};
    struct acceptance a;
    struct error e = {0};

    for (int i = 0; i < 4; i++) {
        x[i] += 3; /* logits have no zero */
        ck_assert(!takes("prefix", x, i));
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(takes("confidence", x, i), i < 1);
        ck_assert_int_eq(takes("confidence:0.2", x, i), i < 2);
        ck_assert_int_eq(takes("top-k", x, i), i < 2);
        ck_assert_int_eq(takes("top-k:3", x, i), i < 3);
        ck_assert_int_eq(takes("typical", x, i), i < 3); /* above 0.09 */
        ck_assert_int_eq(takes("typical:0.13", x, i), i < 4);
    }
    x[1] = -INFINITY; /* what a turn does not want */
    ck_assert(!takes("top-k:4", x, 1));
    ck_assert(!takes("top-k:4", x, -1));
    ck_assert_int_eq(acceptance_parse("prefix:1", &a, &e), ERR_USAGE);
    ck_assert_int_eq(acceptance_parse("top-k:", &a, &e), ERR_USAGE);
    ck_assert_int_eq(acceptance_parse("top", &a, &e), ERR_USAGE);
    ck_assert_int_eq(acceptance_parse("", &a, &e), ERR_USAGE);
    ck_assert_int_eq(acceptance_parse("typical:nan", &a, &e), ERR_USAGE);
}
END_TEST

/* ---- lookup ---- */

static int look(struct drafter *d, const int *ids, int n, int most, int *out)
{
    float p[DRAFT_MOST];
    int found = drafter_ops(DRAFTER_lookup)->propose(d, ids, n, most, 0.15f, out, p);

    for (int i = 0; i < found; i++)
        ck_assert(p[i] > 0 && p[i] < 1);
    return found;
}

START_TEST(lookup_copies_the_longest)
{
    const struct drafter_ops *ops = drafter_ops(DRAFTER_lookup);
    /* 1 2 3 stood there twice: once behind 9, and later without */
    static const int ids[] = {9, 1, 2, 3, 4, 5, 7, 1, 2, 3, 6, 8, 9, 1, 2, 3};
    static const int circle[] = {1, 2, 3, 1, 2};
    struct drafter *d;
    struct error e = {0};
    int out[DRAFT_MOST];

    ck_assert_int_eq(drafter_new(&d, ops, NULL, &e), 0);
    ck_assert_int_eq(look(d, ids, 16, 3, out), 3);
    ck_assert(out[0] == 4 && out[1] == 5 && out[2] == 7);
    ck_assert_int_eq(look(d, ids + 1, 15, 2, out), 2); /* of equals the newest */
    ck_assert(out[0] == 6 && out[1] == 8);
    ck_assert_int_eq(look(d, circle, 5, 7, out), 7); /* copies what it has just copied */
    for (int i = 0; i < 7; i++)
        ck_assert_int_eq(out[i], 1 + (i + 2) % 3);
    ck_assert_int_eq(look(d, ids, 9, 3, out), 3);
    ck_assert_int_eq(look(d, ids, 7, 3, out), 0);
    ck_assert_int_eq(look(d, ids, 1, 3, out), 0);
    ck_assert_int_eq(look(d, ids, 0, 3, out), 0);
    drafter_free(d, ops);
}
END_TEST

START_TEST(lookup_learns_how_often_it_is_right)
{
    const struct drafter_ops *ops = drafter_ops(DRAFTER_lookup);
    static const int ids[] = {1, 2, 3, 4, 1, 2};
    struct drafter *d;
    struct error e = {0};
    int out[DRAFT_MOST];
    float first[4], p[4];

    ck_assert_int_eq(drafter_new(&d, ops, NULL, &e), 0);
    ck_assert_int_eq(ops->propose(d, ids, 6, 4, 0.15f, out, first), 4);
    for (int i = 0; i < 20; i++) {
        ops->propose(d, ids, 6, 4, 0.15f, out, p);
        ops->learn(d, 3, 1);
    }
    ops->propose(d, ids, 6, 4, 0.15f, out, p);
    ck_assert(p[0] > 0.9f && p[1] < 0.1f); /* behind that it was never asked */
    ck_assert(p[2] == first[2] && p[3] == first[3]);
    drafter_free(d, ops);
}
END_TEST

/* ---- n-grams ---- */

/* What an answer said is drafted in the next conversation, what its prompt said is not; never over
 * the end of an answer; and what is older than the ring is forgotten. */
START_TEST(ngrams_are_of_earlier_answers)
{
    const struct drafter_ops *ops = drafter_ops(DRAFTER_ngram);
    int first[] = {90, 91, 92, 93, 1, 2, 3, 4, 5, 6}, second[] = {80, 90, 91, 92, 1, 2, 3};
    static int long_one[40000];
    struct drafter *d;
    struct error e = {0};
    int out[DRAFT_MOST];
    float p[DRAFT_MOST];

    ck_assert_int_eq(drafter_new(&d, ops, NULL, &e), 0);
    for (int n = 4; n <= 10; n++) /* the answer, token by token */
        ck_assert_int_eq(ops->propose(d, first, n, 8, 0.15f, out, p), 0);
    ck_assert_int_eq(ops->propose(d, second, 4, 8, 0.15f, out, p), 0); /* 90 91 92 was a prompt's */
    ck_assert_int_eq(ops->propose(d, second, 7, 8, 0.15f, out, p), 3);
    ck_assert(out[0] == 4 && out[1] == 5 && out[2] == 6);
    ck_assert(p[0] > 0 && p[0] < 1);
    ck_assert_int_eq(ops->propose(d, first, 2, 8, 0.15f, out, p), 0);
    ck_assert_int_eq(ops->propose(d, first, 8, 1, 0.15f, out, p), 1);
    ck_assert_int_eq(out[0], 5);
    for (int i = 0; i < 40000; i++)
        long_one[i] = 1000 + i;
    ck_assert_int_eq(ops->propose(d, long_one, 1, 8, 0.15f, out, p), 0);
    ck_assert_int_eq(ops->propose(d, long_one, 40000, 8, 0.15f, out, p), 0);
    ck_assert_int_eq(ops->propose(d, first, 7, 8, 0.15f, out, p), 0);
    ck_assert_int_eq(ops->propose(d, long_one, 39000, 8, 0.15f, out, p), 8);
    ck_assert_int_eq(out[0], 40000);
    drafter_free(d, ops);
}
END_TEST

/* ---- the account ---- */

static int rows_that_pay(const struct utility *u, int answers, const float *p, int n, bool to_draft,
                         double *gain)
{
    return utility_rows(
        u, &(struct utility_offer){.answers = answers, .n = n, .p = p, .to_draft = to_draft}, gain);
}

/* Of drafts, all of which pay, how many may be tried. */
static int may(const struct utility *u, int answers, int n)
{
    float p[DRAFT_MOST] = {0};

    return utility_may(u, &(struct utility_offer){.answers = answers, .n = n, .p = p}, n);
}

/* A machine on which a row more costs `row` of a pass; p: how probable each drafted token is
 * thought to be, right: how often it is. Returns tokens a second in those without drafts. */
static double lives(struct utility *u, int passes, double row, float p, double right, int n_max)
{
    float all[DRAFT_MOST];
    double time = 0, tokens = 0, gain, owed = 0;

    for (int i = 0; i < passes; i++) {
        struct utility_offer o = {.answers = 1, .n = n_max, .p = all};
        int rows, made = 1;

        for (int k = 0; k < n_max; k++)
            all[k] = k ? all[k - 1] * p : p;
        rows = utility_may(u, &o, utility_rows(u, &o, &gain));
        for (int k = 0; k < rows && (owed += right) >= 1; k++, made++)
            owed -= 1;
        utility_learn(u, 1, 1 + rows, 0, made, 1e6 * (1 + row * rows), 0);
        time += 1 + row * rows;
        tokens += made;
    }
    return tokens / time;
}

START_TEST(drafts_that_pay_are_made)
{
    struct utility u;

    utility_init(&u, 0);
    ck_assert_double_gt(lives(&u, 200, 0.2, 0.9f, 0.9, 8), 1.8);
    ck_assert_double_gt(utility_gain(&u), 0.8);
    utility_restart(&u); /* somebody else drafts: nothing won yet, but passes' times are known */
    ck_assert_double_eq(utility_gain(&u), 0);
    ck_assert_int_gt(may(&u, 1, 1), 0);
    utility_forget(&u);
    ck_assert_int_eq(may(&u, 1, 1), 0); /* nothing to compare with */
    ck_assert_double_gt(lives(&u, 200, 0.2, 0.9f, 0.9, 8), 1.8);
}
END_TEST

/* Drafts that look good and are not: what they may cost is bounded, in a short answer, in a long
 * one, and in one that follows one in which they won. */
START_TEST(drafts_that_lose_cost_little)
{
    static const double rows[] = {0.1, 0.25, 0.5, 0.9};

    for (int i = 0; i < 4; i++) {
        struct utility u;

        utility_init(&u, 0);
        ck_assert_double_gt(lives(&u, 60, rows[i], 0.99f, 0, 8), 0.98);
        ck_assert_double_gt(lives(&u, 400, rows[i], 0.99f, 0, 8), 0.98);
        ck_assert_double_lt(utility_gain(&u), 0.001);
        utility_init(&u, 0);
        lives(&u, 200, rows[i], 0.95f, 1, 8);
        utility_begin(&u);
        ck_assert_double_gt(lives(&u, 200, rows[i], 0.99f, 0, 8), 0.98);
        utility_init(&u, 0); /* and what is known not to pay is not tried */
        ck_assert_double_gt(lives(&u, 300, rows[i], 0.04f, 0, 8), 0.999);
    }
}
END_TEST

/* Drafts that lost are off; once they would have won for a while they are on again. */
START_TEST(drafts_come_back)
{
    struct utility u;

    utility_init(&u, 0);
    lives(&u, 100, 0.5, 0.99f, 0, 8);
    u.account = -1;
    ck_assert_int_eq(may(&u, 1, 1), 0);
    for (int i = 0; i < 50; i++)
        utility_missed(&u, 1, 1.5); /* they would have lost */
    ck_assert_int_eq(may(&u, 1, 1), 0);
    utility_missed(&u, 3, 2.0);
    ck_assert_int_eq(may(&u, 1, 1), 1);
}
END_TEST

/* Of experts it is known what one more takes: tokens whose experts are others are dearer. */
START_TEST(experts_are_counted)
{
    static const float p[] = {0.9f, 0.5f}, few[] = {2, 2.2f, 2.4f}, many[] = {2, 4, 6};
    struct utility_offer o = {.answers = 1, .n = 2, .p = p, .experts = few};
    struct utility u;
    double gain, known;

    utility_init(&u, 0.3);
    for (int i = 0; i < 5; i++)
        utility_learn(&u, 1, 1, 2, 1, 1e6, 0);
    ck_assert_double_lt(utility_cost(&u, 1, 2, 2.2), 1.2); /* guessed, by the bytes */
    ck_assert_double_gt(utility_cost(&u, 1, 2, 4), 1.6);
    ck_assert_int_eq(utility_rows(&u, &o, &gain), 2);
    o.experts = many;
    ck_assert_int_eq(utility_rows(&u, &o, &gain), 1);
    for (int i = 0; i < 40; i++)
        utility_learn(&u, 1, 2, 3, 1, 1.4e6, 0);
    known = utility_cost(&u, 1, 2, 0);
    ck_assert_double_eq_tol(known, 1.4, 1e-9);
    ck_assert_double_eq_tol(utility_cost(&u, 1, 2, 3), known, 1e-3);
    ck_assert_double_eq_tol(utility_cost(&u, 1, 2, 4), known + 0.3, 1e-3);
    ck_assert_double_eq_tol(utility_cost(&u, 1, 2, 2), known - 0.3, 1e-3);
}
END_TEST

/* As many as pay, with several answers too: the passes' own times decide. */
START_TEST(as_many_as_pay)
{
    static const float p[] = {0.9f, 0.8f, 0.5f, 0.2f, 0.1f};
    struct utility u;
    double gain;

    utility_init(&u, 0);
    ck_assert_int_eq(rows_that_pay(&u, 1, p, 5, false, &gain), 0);
    for (int i = 0; i < 5; i++) {
        utility_learn(&u, 1, 1, 0, 1, 1e6, 0);
        utility_learn(&u, 1, 2, 0, 1, 1.2e6, 0);
        utility_learn(&u, 1, 4, 0, 1, 1.6e6, 0);
        utility_learn(&u, 1, 6, 0, 1, 4e6, 0);
    }
    ck_assert_double_eq_tol(utility_cost(&u, 1, 3, 0), 1.4, 1e-9);
    ck_assert_double_eq_tol(utility_cost(&u, 1, 5, 0), 2.8, 1e-9);
    ck_assert_double_eq_tol(utility_cost(&u, 1, 8, 0), 4.8, 1e-9);
    ck_assert_int_eq(rows_that_pay(&u, 1, p, 5, false, &gain), 3);
    ck_assert_double_eq_tol(gain, 3.2 / 1.6, 1e-6);
    ck_assert_int_eq(rows_that_pay(&u, 4, p, 2, false, &gain),
                     0); /* the last step would be too dear */
    ck_assert_int_eq(may(&u, 3, 1), 0);
}
END_TEST

/* Passes that somebody else held up are measured again: what they took is not believed for ever. A
 * pass of fewer rows is no dearer than one of more. */
START_TEST(what_was_measured_long_ago_is_measured_again)
{
    struct utility u;

    utility_init(&u, 0);
    for (int i = 0; i < 5; i++) {
        utility_learn(&u, 1, 1, 0, 1, 1e6, 0);
        utility_learn(&u, 1, 3, 0, 3, 1.4e6, 0);
        utility_learn(&u, 1, 5, 0, 5, 6e6, 0);
    }
    ck_assert_double_eq_tol(utility_cost(&u, 1, 5, 0), 6, 1e-9);
    for (int i = 0; i < 40; i++)
        utility_learn(&u, 1, 3, 0, 3, 1.4e6, 0);
    ck_assert_double_eq_tol(utility_cost(&u, 1, 5, 0), 1.8, 1e-9); /* as the rows before */
    utility_learn(&u, 1, 5, 0, 5, 1.5e6, 0); /* and nothing is left of what it took then */
    ck_assert_double_eq_tol(utility_cost(&u, 1, 5, 0), 1.5, 1e-9);
    for (int i = 0; i < 5; i++)
        utility_learn(&u, 1, 3, 0, 3, 2.8e6, 0);
    ck_assert_double_eq_tol(utility_cost(&u, 1, 3, 0), 1.5, 1e-9);
    utility_init(&u, 0); /* and where it made that nothing was drafted any more */
    for (int i = 0; i < 5; i++)
        utility_learn(&u, 1, 1, 0, 1, 1e6, 0);
    utility_learn(&u, 1, 2, 0, 1, 9e6, 0);
    ck_assert_double_eq_tol(utility_cost(&u, 1, 2, 0), 9, 1e-9);
    for (int i = 0; i < 200; i++)
        utility_learn(&u, 1, 1, 0, 1, 1e6, 0);
    ck_assert_double_eq_tol(utility_cost(&u, 1, 2, 0), 1.4, 1e-9);
}
END_TEST

/* Drafting that takes time is in what a draft costs, and in the account. */
START_TEST(drafting_takes_time_too)
{
    static const float p[] = {0.9f, 0.8f, 0.7f};
    struct utility u;
    double gain;

    utility_init(&u, 0);
    for (int i = 0; i < 5; i++) {
        utility_learn(&u, 1, 1, 0, 1, 1e6, 0);
        utility_learn(&u, 1, 4, 0, 3, 1.3e6, 0.3e6);
    }
    utility_drafted(&u, 3, 0.3e6);
    ck_assert_int_eq(rows_that_pay(&u, 1, p, 3, true, &gain), 3);
    ck_assert_double_eq_tol(gain, 3.4 / 1.6, 1e-6);
    for (int i = 0; i < 40; i++)
        utility_drafted(&u, 3, 9e6);
    ck_assert_int_eq(rows_that_pay(&u, 1, p, 3, true, &gain), 0);
    ck_assert_int_eq(rows_that_pay(&u, 1, p, 3, false, &gain), 3);
    for (int i = 0; i < 10; i++)
        utility_learn(&u, 1, 1, 0, 1, 1e6, 0.9e6); /* drafted in vain */
    ck_assert_int_eq(may(&u, 1, 1), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("speculate");
    TCase *t = tcase_create("text"), *u = tcase_create("choice");

    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, the_text_stays, 0, 4);
    tcase_add_test(t, the_text_stays_where_rings_are_kept);
    tcase_add_loop_test(t, the_text_stays_on_devices, 0, 2);
    tcase_add_loop_test(t, the_text_stays_with_a_draft_model, 0, 3);
    tcase_add_test(t, who_may_not_draft);
    tcase_add_test(t, kinds_of_tokens_may_differ);
    tcase_add_test(t, recurrent_layers_are_left_alone);
    tcase_add_test(t, reasons_do_not_outlive_their_cause);
    tcase_add_test(t, a_costly_drafter_is_tried_again);
    tcase_add_test(t, lossy_policies_say_what_they_changed);
    tcase_add_test(t, synthetic_acceptance);
    tcase_add_test(t, rates_that_are_none);
    tcase_add_loop_test(t, the_text_stays_under_a_grammar, 0, 2);
    tcase_add_test(t, the_text_stays_when_a_device_fails);
    tcase_add_loop_test(t, the_text_stays_in_company, 0, 2);
    tcase_add_loop_test(t, the_text_stays_with_recurrent_state, 0,
                        sizeof with_state / sizeof *with_state);
    tcase_add_loop_test(t, the_text_stays_with_a_block_of_its_own, 0, 5);
    tcase_add_test(t, a_right_block_of_streams_is_taken);
    tcase_add_test(t, who_is_not_there);
    suite_add_tcase(s, t);
    tcase_add_test(u, policies_take_what_they_say);
    tcase_add_test(u, lookup_copies_the_longest);
    tcase_add_test(u, lookup_learns_how_often_it_is_right);
    tcase_add_test(u, ngrams_are_of_earlier_answers);
    tcase_add_test(u, drafts_that_pay_are_made);
    tcase_add_test(u, drafts_that_lose_cost_little);
    tcase_add_test(u, drafts_come_back);
    tcase_add_test(u, experts_are_counted);
    tcase_add_test(u, as_many_as_pay);
    tcase_add_test(u, what_was_measured_long_ago_is_measured_again);
    tcase_add_test(u, drafting_takes_time_too);
    suite_add_tcase(s, u);
    return support_run(s);
}
