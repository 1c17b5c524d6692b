/* Several sessions on one engine: what one says is what it would say alone, whoever shares its
 * passes, whatever comes and goes beside it and wherever blocks move meanwhile. */
#include "engine/base/mem.h"
#include "engine/device/device.h"
#include "engine/model/hparams.h"
#include "engine/model/model.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "engine/run/prompt.h"
#include "engine/run/pass/mixed_pass.h"
#include "gpu/opencl.h"
#include "tests/fake_device.h"
#include "tests/recurrent_device.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct device_ops *const with_fake[] = {&fake_device_ops, &cpu_device_ops, NULL};
static const struct device_ops *const recurrent[] = {&recurrent_device_ops, NULL};
static const struct device_ops *const fake_recurrent[] = {&fake_device_plain_ops,
                                                          &recurrent_device_ops, NULL};
static const struct device_ops *const with_opencl[] = {&opencl_device_ops, &cpu_device_ops, NULL};

static const char *family; /* not the demo model but this one; NULL */
/* The demo model with a window, so narrow that its layers keep rings; a pass of as many rows as the
 * context has is what they need all of it for. */
static bool windowed;
static const char *const window_of[] = {"*.attention.sliding_window=int:12"};
static const struct overrides with_window = {window_of, 1};

#define CONTEXT 640
#define WHOLE CONTEXT

static struct engine *open_narrow(const struct device_ops *const *backends, const char *place,
                                  int ubatch)
{
    struct engine_config c = {.model_path = family ? support_path(family) : support_demo(),
                              .no_tokenizer = family != NULL,
                              .overrides = windowed ? &with_window : NULL,
                              .context = CONTEXT,
                              .ubatch = ubatch,
                              .n_threads = 2,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .backends = backends,
                              .device_selector = backends == with_opencl ? "opencl:0" : NULL,
                              .placement = place,
                              .cache_dir = support_tmpdir(),
                              .convert = -1};
    struct engine *g = NULL;
    struct error e = {0};

    fake_device_control(NULL);
    fake_device_over(backends == fake_recurrent ? &recurrent_device_ops : NULL);
    if (engine_open(&g, &c, &e) < 0)
        ck_abort_msg("%s", e.text);
    return g;
}

static struct engine *open_demo(const struct device_ops *const *backends, const char *place)
{
    return open_narrow(backends, place, 64);
}

/* What others are compared with. */
static struct engine *open_plain(const struct device_ops *const *backends)
{
    bool recurs = backends == recurrent || backends == fake_recurrent;

    return open_narrow(recurs ? recurrent : NULL, NULL, windowed ? WHOLE : 64);
}

static struct session *open_session(struct engine *g)
{
    struct session *s = NULL;
    struct error e = {0};

    if (engine_session_open(g, &s, &e) < 0)
        ck_abort_msg("%s", e.text);
    return s;
}

static void fill(int *ids, int n, int vocab, int seed)
{
    for (int i = 0; i < n; i++)
        ids[i] = (i * 37 + seed * 101 + 11) % vocab;
}

#define LINES 3
#define LENGTH 300

/* Sessions fed by turns, in pieces of other sizes each, over the border of a page; one of them ends
 * in between and its place is taken by another. */
static void interleave(const struct device_ops *const *backends, const char *place)
{
    static const int pieces[LINES][4] = {{100, 1, 170, 29}, {7, 250, 1, 42}, {64, 64, 64, 108}};
    struct engine *alone = open_plain(backends), *g = open_demo(backends, place);
    struct session *s[LINES], *passing;
    int ids[LINES][LENGTH], vocab = engine_info(g)->model->hp.n_vocab, at[LINES] = {0};
    float *want[LINES][4], *got = mem_alloc((size_t)vocab, sizeof *got);
    struct error e = {0};

    for (int l = 0; l < LINES; l++) {
        fill(ids[l], LENGTH, vocab, l);
        engine_session_clear(alone);
        for (int p = 0, done = 0; p < 4; done += pieces[l][p++]) {
            want[l][p] = mem_alloc((size_t)vocab, sizeof *got);
            ck_assert_int_eq(engine_eval(alone, ids[l] + done, pieces[l][p], want[l][p], false, &e),
                             0);
        }
    }
    s[0] = open_session(g);
    passing = open_session(g);
    s[1] = open_session(g);
    ck_assert_int_eq(engine_session_eval(passing, ids[2], 290, 0, NULL, false, &e), 0);
    for (int p = 0; p < 4; p++) {
        if (p == 1) { /* its number and its pages are taken again */
            engine_session_close(passing);
            s[2] = open_session(g);
            ck_assert_int_eq(engine_session_eval(s[2], ids[2], pieces[2][0], 0, NULL, false, &e),
                             0);
            at[2] = pieces[2][0];
        }
        for (int l = 0; l < (p ? LINES : 2); l++) {
            ck_assert_msg(engine_session_eval(s[l], ids[l] + at[l], pieces[l][p], 0, got, false,
                                              &e) == 0,
                          "%s", e.text);
            at[l] += pieces[l][p];
            ck_assert_mem_eq(got, want[l][p], (size_t)vocab * sizeof *got);
        }
    }
    engine_session_close(s[1]);
    engine_close(g); /* with what is open */
    engine_close(alone);
    for (int l = 0; l < LINES; l++)
        for (int p = 0; p < 4; p++)
            mem_free(want[l][p]);
    mem_free(got);
}

START_TEST(interleaved_on_the_cpu)
{
    interleave(NULL, NULL);
}
END_TEST

START_TEST(interleaved_over_devices)
{
    static const char *const places[] = {"gpu", "layers:3", "attention-gpu"};

    interleave(with_fake, places[_i]);
}
END_TEST

START_TEST(interleaved_recurrent_layers)
{
    static const struct {
        const struct device_ops *const *backends;
        const char *place;
    } where[] = {{recurrent, NULL},
                 {fake_recurrent, "attention-gpu"},
                 {NULL, NULL},
                 {with_fake, "attention-gpu"},
                 {with_fake, "layers:2"},
                 {NULL, NULL}};

    family = _i < 2 ? NULL : _i < 5 ? "golden/families/lfm2_moe" : "golden/families/qwen4_exp";
    interleave(where[_i].backends, where[_i].place);
}
END_TEST

START_TEST(interleaved_over_opencl)
{
    interleave(with_opencl, "attention-gpu");
}
END_TEST

#define STORIES 14
#define AT_ONCE 8

/* A story asked for: its prompt's length and the answer's differ from the others'. */
struct story {
    struct message message;
    struct dialogue said;
    struct turn turn;
    int ids[640]; /* its prompt's */
    char prompt[2048], text[8192];
    size_t n;
    struct session *session;
    bool over, failed, cancelled;
};

static const char *const heroes[] = {"a fox", "a tin soldier", "two snails", "the old clock"};

static void write_story(struct story *s, int i)
{
    size_t n = 0;

    memset(s, 0, sizeof *s);
    for (int k = 0; k < 1 + i * i % 11 * 3; k++)
        n += (size_t)snprintf(s->prompt + n, sizeof s->prompt - n, "Once there was %s who %s. ",
                              heroes[(i + k) % 4], k % 2 ? "sang" : "wanted to fly");
    s->message = (struct message){.role = ROLE_USER, .text = s->prompt};
    s->said = (struct dialogue){.messages = &s->message, .n_messages = 1};
    s->turn = (struct turn){.max_tokens = 8 + i * 13 % 40,
                            .ignore_eos = true,
                            .sampling = {.temperature = 0.8f,
                                         .top_k = 40,
                                         .top_p = 0.95f,
                                         .repeat_penalty = 1.1f,
                                         .repeat_last_n = 64,
                                         .seed = (uint64_t)i + 1}};
}

static int hear(void *ctx, struct event *ev)
{
    struct story *s = ctx;

    if (ev->kind == EVENT_TOKEN) {
        ck_assert_uint_lt(s->n + ev->token.len, sizeof s->text);
        memcpy(s->text + s->n, ev->token.text, ev->token.len);
        s->n += ev->token.len;
    }
    s->over |= ev->kind == EVENT_TURN_DONE || ev->kind == EVENT_ERROR;
    s->failed |= ev->kind == EVENT_ERROR;
    s->cancelled |= ev->kind == EVENT_TURN_DONE && ev->done_turn.reason == STOP_CANCELLED;
    return 0;
}

/* What each story is when nobody else is there: of the demo model, of one with recurrent layers, of
 * one with rings. */
enum kept { KEPT_PLAIN, KEPT_RECURRENT, KEPT_RINGS, KEPT };
static struct story kept[KEPT][STORIES];
static bool is_kept[KEPT];

static const struct story *alone(const struct device_ops *const *backends)
{
    bool recurs = backends == recurrent || backends == fake_recurrent;
    enum kept k = windowed ? KEPT_RINGS : recurs ? KEPT_RECURRENT : KEPT_PLAIN;
    struct story *want = kept[k];
    struct engine *g;
    struct error e = {0};

    if (is_kept[k])
        return want;
    g = open_plain(backends);
    for (int i = 0; i < STORIES; i++) {
        write_story(&want[i], i);
        engine_session_clear(g);
        ck_assert_msg(prompt_turn(g, NULL, &want[i].said, &want[i].turn, hear, &want[i], NULL,
                                  &e) == 0,
                      "%s", e.text);
        ck_assert_uint_gt(want[i].n, 0);
    }
    engine_close(g);
    is_kept[k] = true;
    return want;
}

/* Once, before the cases that are processes of their own. */
static void all_alone(void)
{
    alone(NULL);
    alone(recurrent);
    windowed = true;
    alone(NULL);
    windowed = false;
}

struct crowd {
    struct engine *g;
    struct session *session[AT_ONCE];
    struct story story[STORIES];
    int begun, steps;
};

static void open_crowd(struct crowd *c, const struct device_ops *const *backends, const char *place)
{
    *c = (struct crowd){.g = open_demo(backends, place)};
    for (int i = 0; i < AT_ONCE; i++)
        c->session[i] = open_session(c->g);
}

/* On the caller's thread, as any client does it. */
static void make_prompt(struct engine *g, struct story *s)
{
    struct prompt *p = &s->turn.prompt;
    struct error e = {0};

    ck_assert_msg(prompt_make(engine_info(g), NULL, &s->said, s->turn.max_tokens, NULL, p, &e) == 0,
                  "%s", e.text);
    memcpy(s->ids, p->ids, (size_t)p->n * sizeof *p->ids);
    mem_free(p->ids);
    p->ids = s->ids;
}

static void begin_next(struct crowd *c, struct session *session)
{
    struct story *s = &c->story[c->begun];
    struct error e = {0};

    write_story(s, c->begun++);
    s->session = session;
    make_prompt(c->g, s);
    ck_assert_msg(engine_session_turn(session, &s->turn, hear, s, &e) == 0, "%s", e.text);
}

/* A pass; every third one a further story begins, on a session that is idle. */
static bool step(struct crowd *c)
{
    bool more = engine_step(c->g);

    for (int i = 0; i < AT_ONCE && c->steps % 3 == 0 && c->begun < STORIES; i++) {
        bool idle = true;

        for (int k = 0; k < c->begun; k++)
            idle = idle && (c->story[k].session != c->session[i] || c->story[k].over);
        if (idle) {
            begin_next(c, c->session[i]);
            more = true;
            break;
        }
    }
    c->steps++;
    return more || c->begun < STORIES;
}

static void compare(const struct crowd *c, const struct story *want, int but)
{
    for (int i = 0; i < STORIES; i++) {
        ck_assert_msg(c->story[i].over && !c->story[i].failed, "story %d", i);
        if (i != but)
            ck_assert_str_eq(c->story[i].text, want[i].text);
    }
}

START_TEST(the_same_stories_in_a_crowd)
{
    const struct story *want = alone(NULL);
    struct crowd c;

    open_crowd(&c, NULL, NULL);
    while (step(&c))
        ck_assert_int_lt(c.steps, 10000);
    compare(&c, want, -1);
    engine_close(c.g);
}
END_TEST

/* Prompts and answers going on, blocks and every session's rows move between devices. */
static void switch_places(const struct device_ops *const *backends, const char *first)
{
    static const char *const places[] = {"gpu", "cpu", "attention-gpu", "layers:3", "experts-gpu"};
    const struct story *want = alone(backends);
    struct error e = {0};
    struct crowd c;

    open_crowd(&c, backends, first);
    while (step(&c))
        if (c.steps % 9 == 5)
            ck_assert_msg(engine_place(c.g, places[c.steps / 9 % 5], &e) >= 0, "%s", e.text);
    compare(&c, want, -1);
    engine_close(c.g);
}

/* Under plans for prompts and for tokens, which also change: then no row is computed on the side of
 * the other phase. */
static void apart(const struct device_ops *const *backends)
{
    static const char *const places[] = {"prompt gpu",  "gpu",         "prompt cpu",
                                         "cpu",         "prompt same", "prompt experts-gpu",
                                         "experts-gpu", "prompt gpu",  "attention-gpu"};
    const struct story *want = alone(backends);
    struct error e = {0};
    struct crowd c;

    open_crowd(&c, backends, "cpu");
    while (step(&c))
        if (c.steps % 7 == 3)
            ck_assert_msg(engine_place(c.g, places[c.steps / 7 % 9], &e) >= 0, "%s", e.text);
    compare(&c, want, -1);
    engine_close(c.g);
}

START_TEST(the_same_stories_under_two_plans)
{
    apart(with_fake);
}
END_TEST

START_TEST(recurrent_layers_under_two_plans)
{
    apart(fake_recurrent);
}
END_TEST

static void count_phases(void *ctx, const struct routing *r)
{
    ((long *)ctx)[r->prefill] += r->rows;
}

/* Any request at any pass, and a device that fails once or for good on the way. */
START_TEST(the_same_stories_under_random_plans)
{
    static const char *const plans[] = {"cpu",      "gpu",    "experts-gpu", "attention-gpu",
                                        "layers:3", "hot:2M", "memory:3M",   "same"};
    static const long fails[] = {0, 300, 900, 150};
    const struct device_ops *const *backends = _i < 6 ? with_fake : fake_recurrent;
    const struct story *want = alone(backends);
    unsigned seed = (unsigned)_i * 7919 + 1;
    struct error e = {0};
    struct crowd c;

    open_crowd(&c, backends, "attention-gpu");
    fake_device_control(&(struct fake_control){.fail_at = fails[_i % 4], .lost = _i % 2});
    while (step(&c)) {
        char request[40];
        bool prompts;

        ck_assert_int_lt(c.steps, 10000);
        seed = seed * 1103515245u + 12345u;
        if (seed >> 16 & 3)
            continue;
        prompts = seed >> 18 & 1;
        snprintf(request, sizeof request, "%s%s", prompts ? "prompt " : "",
                 plans[(seed >> 20) % (prompts ? 8 : 7)]);
        ck_assert_msg(engine_place(c.g, request, &e) >= 0, "%s: %s", request, e.text);
    }
    compare(&c, want, -1);
    engine_close(c.g);
    fake_device_control(NULL);
}
END_TEST

START_TEST(no_pass_has_rows_of_both)
{
    const struct story *want = alone(NULL);
    const char *const tokens = _i ? "gpu" : "cpu", *const prompts = _i ? "prompt cpu"
                                                                       : "prompt gpu";
    long rows[2] = {0};
    struct error e = {0};
    struct crowd c;

    fake_device_control(NULL);
    open_crowd(&c, with_fake, tokens);
    ck_assert_int_eq(engine_place(c.g, prompts, &e), 0);
    ck_assert_int_eq(engine_settle(c.g, &e), 0);
    engine_observe_passes(c.g, count_phases, rows);
    while (step(&c))
        ck_assert_int_lt(c.steps, 10000);
    compare(&c, want, -1);
    ck_assert_int_gt(rows[0], 0);
    ck_assert_int_gt(rows[1], 0);
    ck_assert_int_eq(fake_device_work().attention,
                     rows[_i ? 0 : 1] * engine_info(c.g)->model->hp.n_layers);
    engine_close(c.g);
}
END_TEST

/* Prompts on the device and tokens on the CPU, or the other way round. */
static void open_beside(struct crowd *c, const struct device_ops *const *backends, bool tokens)
{
    struct error e = {0};

    open_crowd(c, backends, tokens ? "gpu" : "cpu");
    ck_assert_msg(engine_place(c->g, tokens ? "prompt cpu" : "prompt gpu", &e) == 0, "%s", e.text);
    ck_assert_msg(engine_settle(c->g, &e) == 0, "%s", e.text);
}

/* A device reads prompts while the CPU answers others, or the CPU reads while a device answers:
 * both in the same call of the engine. */
START_TEST(prompts_are_computed_beside_tokens)
{
    const struct story *want = alone(NULL);
    struct crowd c;

    open_beside(&c, _i % 2 ? with_opencl : with_fake, _i / 2);
    while (step(&c))
        ck_assert_int_lt(c.steps, 10000);
    compare(&c, want, -1);
    ck_assert_uint_gt(c.g->t.at_once.pieces, 0);
    ck_assert_uint_gt(c.g->t.at_once.tokens, c.g->t.at_once.pieces);
    ck_assert_uint_gt(c.g->t.at_once.rows, c.g->t.at_once.pieces);
    ck_assert_int_eq(c.g->beside.n, 0);
    engine_close(c.g);
}
END_TEST

/* The device that reads prompts fails, once or for good, or finds no memory, or is found to compute
 * wrongly, at any moment. */
START_TEST(trouble_beside_tokens)
{
    const struct story *want = alone(NULL);
    uint64_t passes = 0;

    for (long at = 1 + 7 * (_i % 8); at < 240; at += 56) {
        struct fake_control f = {0};
        struct crowd c;

        if (!support_turn((int)(at / 56) + _i, 3))
            continue;
        open_beside(&c, with_fake, _i / 8);
        if (_i % 4 == 3)
            f = (struct fake_control){.memory_at = 1 + at / 6, .memory_jobs = at % 5};
        else if (_i % 4 == 2)
            f = (struct fake_control){.wrong_at = 1 + at / 6, .wrong_on = true};
        else
            f = (struct fake_control){.fail_at = at, .lost = _i % 4};
        engine_audit_set(c.g, _i % 4 == 2 ? 1 : 3000);
        fake_device_control(&f);
        while (step(&c))
            ck_assert_int_lt(c.steps, 10000);
        compare(&c, want, -1);
        passes += c.g->t.at_once.pieces;
        engine_close(c.g);
    }
    fake_device_control(NULL);
    /* a job to be audited has the device to itself; where there are turns it may fail at once */
    ck_assert(passes > 0 || _i % 4 == 2 || !support_turn(1, 3));
}
END_TEST

/* Clients go while their prompts are read or others' are; what they got is the beginning of it. */
START_TEST(cancels_beside_tokens)
{
    const struct story *want = alone(NULL);
    unsigned seed = (unsigned)_i + 1;
    int cancelled = 0;
    struct crowd c;

    open_beside(&c, with_fake, _i / 3);
    while (step(&c)) {
        int k;

        ck_assert_int_lt(c.steps, 10000);
        seed = seed * 1103515245u + 12345u;
        k = (int)((seed >> 16) % (unsigned)c.begun);
        if (seed >> 29 == 0 && !c.story[k].over)
            engine_session_cancel(c.story[k].session);
    }
    for (int i = 0; i < STORIES; i++) {
        ck_assert(c.story[i].over && !c.story[i].failed);
        ck_assert_uint_le(c.story[i].n, want[i].n);
        ck_assert_mem_eq(c.story[i].text, want[i].text, c.story[i].n);
        ck_assert(c.story[i].cancelled || c.story[i].n == want[i].n);
        cancelled += c.story[i].cancelled;
    }
    ck_assert_int_gt(cancelled, 0);
    engine_close(c.g);
}
END_TEST

START_TEST(the_same_stories_while_blocks_move)
{
    switch_places(with_fake, "cpu"); /* opened beside the answers */
}
END_TEST

START_TEST(the_same_stories_of_recurrent_layers)
{
    const struct story *want = alone(recurrent);
    struct crowd c;

    open_crowd(&c, recurrent, NULL);
    while (step(&c))
        ck_assert_int_lt(c.steps, 10000);
    compare(&c, want, -1);
    engine_close(c.g);
}
END_TEST

/* Passes of a token of each of several sessions of other lengths: short convolutions; delta nets
 * with n-grams before one of them. */
START_TEST(tokens_of_families_share_passes)
{
    struct engine *alone, *g;
    struct session *s[LINES];
    int ids[LINES][LENGTH], vocab, next[LINES];
    float *want, *got;
    struct error e = {0};

    family = _i ? "golden/families/qwen4_exp" : "golden/families/lfm2_moe";
    alone = open_plain(NULL);
    g = open_demo(NULL, NULL);
    vocab = engine_info(g)->model->hp.n_vocab;
    want = mem_alloc((size_t)vocab, sizeof *want);
    got = mem_alloc((size_t)vocab, sizeof *got);
    for (int l = 0; l < LINES; l++) {
        fill(ids[l], LENGTH, vocab, l);
        s[l] = open_session(g);
        ck_assert_int_eq(engine_session_eval(s[l], ids[l], 1 + 20 * l, 0, NULL, false, &e), 0);
    }
    for (int i = 0; i < 20; i++) {
        for (int l = 0; l < LINES; l++)
            next[l] = ids[l][1 + 20 * l + i];
        ck_assert_msg(session_extend_all(s, LINES, next, &e) == 0, "%s", e.text);
    }
    for (int l = 0; l < LINES; l++) {
        int n = 21 + 20 * l;

        engine_session_clear(alone);
        ck_assert_int_eq(engine_eval(alone, ids[l], n + 1, want, false, &e), 0);
        ck_assert_int_eq(engine_session_eval(s[l], ids[l] + n, 1, 0, got, false, &e), 0);
        ck_assert_mem_eq(got, want, (size_t)vocab * sizeof *got);
    }
    mem_free(want);
    mem_free(got);
    engine_close(g);
    engine_close(alone);
}
END_TEST

START_TEST(recurrent_layers_move)
{
    switch_places(fake_recurrent, "attention-gpu");
}
END_TEST

/* Rings in place of whole contexts, wherever they lie and move to; and a device that fails. */
START_TEST(interleaved_rings)
{
    static const struct {
        const struct device_ops *const *backends;
        const char *place;
    } where[] = {{NULL, NULL}, {with_fake, "attention-gpu"}, {with_opencl, "attention-gpu"}};

    windowed = true;
    interleave(where[_i].backends, where[_i].place);
}
END_TEST

START_TEST(the_same_stories_of_rings)
{
    windowed = true;
    switch_places(_i ? with_opencl : with_fake, "attention-gpu");
}
END_TEST

START_TEST(the_same_stories_over_opencl)
{
    /* opened before: the compiler of a driver brings signal stacks of its own to a thread, which
     * AddressSanitizer takes for its own */
    switch_places(with_opencl, "attention-gpu");
}
END_TEST

/* The device fails, first once, then for good, and takes cached rows of all sessions with it. */
START_TEST(a_device_fails_under_all)
{
    static const long at[] = {40, 200, 700};
    const struct device_ops *const *backends = _i / 3 == 1 ? fake_recurrent : with_fake;
    const struct story *want;
    struct crowd c;

    windowed = _i >= 6;
    want = alone(backends);
    open_crowd(&c, backends, "attention-gpu");
    fake_device_control(&(struct fake_control){.fail_at = at[_i % 3], .lost = _i % 3 > 0});
    while (step(&c))
        ck_assert_int_lt(c.steps, 10000);
    compare(&c, want, -1);
    engine_close(c.g);
}
END_TEST

START_TEST(a_cancel_ends_one_story)
{
    const struct story *want = alone(NULL);
    struct crowd c;

    open_crowd(&c, NULL, NULL);
    while (step(&c))
        if (c.begun > 4 && c.story[4].n > 20 && !c.story[4].over)
            engine_session_cancel(c.story[4].session);
    compare(&c, want, 4);
    ck_assert(c.story[4].cancelled);
    ck_assert_uint_lt(c.story[4].n, want[4].n);
    ck_assert_mem_eq(c.story[4].text, want[4].text, c.story[4].n);
    /* a session that ends in the middle of its story disturbs nobody either */
    c.begun = c.steps = 0;
    for (int i = 0; i < 3; i++)
        begin_next(&c, c.session[i]);
    engine_step(c.g);
    engine_session_close(c.session[1]);
    while (engine_step(c.g))
        ;
    ck_assert_str_eq(c.story[0].text, want[0].text);
    ck_assert_str_eq(c.story[2].text, want[2].text);
    engine_close(c.g);
}
END_TEST

#define SHARING 4

struct client {
    struct story story;
    struct message said[2];
    int cached;
};

static int hear_client(void *ctx, struct event *ev)
{
    struct client *c = ctx;

    if (ev->kind == EVENT_TURN_DONE)
        c->cached = ev->done_turn.cached_tokens;
    return hear(&c->story, ev);
}

/* A client with the common system prompt, of more than a page, and a question of its own. */
static void write_client(struct engine *g, struct client *c, int i, const char *system)
{
    write_story(&c->story, i);
    snprintf(c->story.prompt, sizeof c->story.prompt, "Tell me of %s.", heroes[i]);
    c->said[0] = (struct message){.role = ROLE_SYSTEM, .text = (char *)system};
    c->said[1] = (struct message){.role = ROLE_USER, .text = c->story.prompt};
    c->story.said = (struct dialogue){.messages = c->said, .n_messages = 2};
    c->story.turn.max_tokens = 20;
    make_prompt(g, &c->story);
    c->cached = -1;
}

static void ask_client(struct client *c, struct session *s)
{
    struct error e = {0};

    ck_assert_msg(engine_session_turn(s, &c->story.turn, hear_client, c, &e) == 0, "%s", e.text);
}

static uint64_t pages_of(const struct engine *g)
{
    return engine_telemetry(g)->devices[0].kv_used_bytes;
}

/* Several begin with the same pages at once: one computes them, all have them, each goes on by
 * itself; whoever goes back into the middle of one and on with something else disturbs nobody. */
START_TEST(a_common_beginning_is_shared)
{
    struct engine *one, *g;
    struct client *want = mem_alloc(SHARING, sizeof *want), *c = mem_alloc(SHARING, sizeof *c);
    struct session *s[SHARING];
    char system[1600] = "";
    struct error e = {0};
    uint64_t alone_bytes = 0;
    int other[60];

    windowed = _i; /* rings are copied: no page is common */
    one = open_plain(NULL);
    g = open_demo(NULL, NULL);
    s[0] = engine_session(g);
    for (int i = 0; i < 12; i++)
        snprintf(system + strlen(system), sizeof system - strlen(system),
                 "There was %s who lived near a river and was happy every day, number %d. ",
                 heroes[i % 4], i);
    for (int i = 0; i < SHARING; i++) {
        engine_session_clear(one);
        write_client(one, &want[i], i, system);
        ask_client(&want[i], engine_session(one));
        while (engine_step(one))
            ;
        ck_assert(want[i].story.over && !want[i].story.failed);
        ck_assert_int_gt(want[i].story.turn.prompt.n, 256);
        ck_assert_int_lt(want[i].story.turn.prompt.n, 480);
        alone_bytes = pages_of(one);
        if (i)
            s[i] = open_session(g);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < SHARING; i++) {
            write_client(g, &c[i], i, system);
            ask_client(&c[i], s[i]);
        }
        while (engine_step(g))
            ;
        for (int i = 0; i < SHARING; i++) {
            ck_assert_str_eq(c[i].story.text, want[i].story.text);
            ck_assert(i == 0 || c[i].cached >= 256);
        }
        /* two pages each, the first one common, again after what follows */
        ck_assert(windowed || pages_of(g) * 2 == alone_bytes * (SHARING + 1));
        if (round)
            break;
        fill(other, 60, engine_info(g)->model->hp.n_vocab, 5);
        engine_session_rewind(g, 100);
        ck_assert_int_eq(engine_eval(g, other, 60, NULL, false, &e), 0);
        /* its page is no longer the others', and what it had beyond went back */
        ck_assert(windowed || pages_of(g) * 2 == alone_bytes * (SHARING + 1));
    }
    for (int i = 1; i < SHARING; i++)
        engine_session_close(s[i]);
    engine_session_clear(g);
    ck_assert_uint_eq(pages_of(g), 0);
    engine_close(g);
    engine_close(one);
    mem_free(want);
    mem_free(c);
}
END_TEST

/* A device that has no room for another session's rows gives layers back, one after the other. */
START_TEST(layers_go_home_when_sessions_fill_a_device)
{
    const struct story *want = alone(NULL);
    struct crowd c = {.g = open_demo(with_fake, "attention-gpu")};
    int layers = engine_info(c.g)->model->hp.n_layers, there = 0;

    fake_device_control(&(struct fake_control){.states = 3 * layers + 2});
    for (int i = 0; i < AT_ONCE; i++)
        c.session[i] = open_session(c.g);
    for (int l = 0; l < layers; l++)
        there += engine_plan(c.g)->attention[l] != 0;
    ck_assert_int_eq(there, (3 * layers + 2) / (AT_ONCE + 1));
    while (step(&c))
        ck_assert_int_lt(c.steps, 10000);
    compare(&c, want, -1);
    engine_close(c.g);
}
END_TEST

/* What a pass costs on a machine that is made up: rows share their weights, the more the more. */
static uint64_t pass_cost(int kind, int answers, int rows)
{
    static const double token_ms[] = {4, 90, 400}, row_ms[] = {0.7, 12, 30};
    double first = rows < 32 ? rows : 32, rest = rows - first;

    return (uint64_t)(1e6 * (token_ms[kind] + 0.1 * answers + row_ms[kind] * (first + 0.5 * rest)));
}

/* A pass beside answers takes at most two without, or a tenth of a second: by a clock of our own,
 * also where the machine becomes half as fast. */
START_TEST(mixed_passes_keep_their_time)
{
    struct scheduler c = {0};
    int answers = 3, kind = _i, slow = 1, whole = 0;

    for (int pass = 0; pass < 200; pass++) {
        bool settles = pass < 8 || (pass >= 100 && pass < 108);
        int rows = pass % 4 ? scheduler_rows(&c, 1, 1) : 0;
        uint64_t ns;

        slow = pass < 100 ? 1 : 2;
        ns = (uint64_t)slow * pass_cost(kind, answers, rows);
        ck_assert(pass % 4 == 0 || rows >= 1);
        if (rows > 1 && !settles) /* what it learnt lags behind what rows share: a tenth */
            ck_assert_msg(ns <= scheduler_limit_ns(&c, 1, 1) + scheduler_limit_ns(&c, 1, 1) / 10,
                          "pass %d: %d rows, %.1f ms of %.1f", pass, rows, (double)ns * 1e-6,
                          (double)scheduler_limit_ns(&c, 1, 1) * 1e-6);
        if (rows && !settles) /* and the time is used */
            whole += rows == 1 || 2 * ns > scheduler_limit_ns(&c, 1, 1);
        scheduler_learn(&c, answers, rows, ns);
    }
    ck_assert_int_gt(whole, 120);
    /* where that is known, a pass of a prompt alone says nothing of those beside answers */
    scheduler_learn(&c, 0, 512, 1);
    ck_assert_int_lt(scheduler_rows(&c, 1, 1), 512);
}
END_TEST

/* The first chunk beside answers is judged by a prompt that was read alone; the end of a prompt,
 * with few rows left, does not make the chunks of the next one small. */
START_TEST(chunks_are_as_large_as_their_time)
{
    struct scheduler c = {0};

    scheduler_learn(&c, 0, 100, 500000000); /* 5 ms a row */
    scheduler_learn(&c, 1, 0, 20000000);
    ck_assert_int_eq(scheduler_rows(&c, 1, 1), 16);
    ck_assert_int_eq(scheduler_rows(&c, 1, 4), 136);
    scheduler_learn(&c, 1, 136, 20000000 + 136 * 5000000);
    ck_assert_int_eq(scheduler_rows(&c, 1, 4), 136);
    scheduler_learn(&c, 1, 3, 20000000 + 3 * 5000000);
    ck_assert_int_eq(scheduler_rows(&c, 1, 4), 136);
    /* but a pass that took too long does */
    scheduler_learn(&c, 1, 136, 4000000000);
    ck_assert_int_lt(scheduler_rows(&c, 1, 4), 68);
}
END_TEST

/* Many that wait weigh more than few that stand still; nobody stands still for longer than a
 * second. */
START_TEST(a_burst_of_prompts_gets_more_of_a_pass)
{
    struct scheduler c = {.decode_ns = 20000000};
    uint64_t one = scheduler_limit_ns(&c, 1, 1);

    ck_assert_uint_eq(one, 100000000);
    ck_assert_uint_eq(scheduler_limit_ns(&c, 7, 1), one);
    ck_assert_uint_eq(scheduler_limit_ns(&c, 4, 3), 2 * one);
    ck_assert_uint_eq(scheduler_limit_ns(&c, 1, 200), 1000000000);
    c.decode_ns = 700000000; /* a slow machine: twice a pass, as ever */
    ck_assert_uint_eq(scheduler_limit_ns(&c, 1, 9), 1400000000);
}
END_TEST

/* Rows computed of each session. */
struct served {
    const struct crowd *c;
    int rows[AT_ONCE];
};

static void count_rows(void *ctx, const struct routing *r)
{
    struct served *s = ctx;

    for (int i = 0; i < AT_ONCE; i++)
        if (s->c->session[i] == r->session)
            s->rows[i] += r->rows;
}

/* Session i tells story `like`. */
static void begin_like(struct crowd *c, int i, int like, int max_tokens)
{
    c->begun = like;
    begin_next(c, c->session[i]);
    c->story[like].turn.max_tokens = max_tokens;
}

static int widest(const int *rows, int from, int n)
{
    int least = rows[from], most = rows[from];

    for (int i = from; i < from + n; i++) {
        least = rows[i] < least ? rows[i] : least;
        most = rows[i] > most ? rows[i] : most;
    }
    return most - least;
}

#define NARROW 3 /* rows of a pass */

/* More answers than a pass has rows: they take turns, and so does a prompt beside them. Of two
 * prompts the later one is served beside the earlier, not before it. Shown by counts alone. */
START_TEST(passes_are_shared_fairly)
{
    static const int likes[] = {0, 1, 10, 11, 12};
    struct crowd c = {.g = open_narrow(NULL, NULL, NARROW)};
    struct served s = {.c = &c};

    for (int i = 0; i < AT_ONCE; i++)
        c.session[i] = open_session(c.g);
    engine_observe(c.g, count_rows, &s);
    for (int i = 0; i < 5; i++)
        begin_like(&c, i, likes[i], 200);
    for (int i = 0; i < 200; i++) /* prompts, and who was behind catches up */
        engine_step(c.g);
    for (int i = 0; i < 20; i++) {
        engine_step(c.g);
        ck_assert_int_le(widest(s.rows, 0, 5), 1);
    }
    begin_like(&c, 7, 2, 1);
    for (int i = 0; i < 40; i++)
        engine_step(c.g);
    ck_assert_int_ge(s.rows[7], 40 * NARROW / 6 - 2); /* its share among six */
    ck_assert_int_le(s.rows[7], 40 * NARROW / 6 + 2);
    for (int i = 0; i < 5; i++)
        engine_session_cancel(c.session[i]);
    engine_session_cancel(c.session[7]);
    while (engine_step(c.g))
        ;
    begin_like(&c, 5, 8, 1); /* a long prompt, half of it computed */
    for (int i = 0; i < 40; i++)
        engine_step(c.g);
    ck_assert_int_ge(s.rows[5], 40 * NARROW);
    begin_like(&c, 6, 6, 1);
    s.rows[5] = 0;
    for (int i = 0; i < 24; i++) {
        engine_step(c.g);
        ck_assert_int_le(widest(s.rows, 5, 2), 2 * NARROW);
    }
    ck_assert_int_eq(s.rows[5] + s.rows[6], 24 * NARROW);
    engine_close(c.g);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sessions");
    TCase *t = tcase_create("sessions");

    tcase_set_timeout(t, 240);
    tcase_add_unchecked_fixture(t, all_alone, NULL);
    tcase_add_test(t, interleaved_on_the_cpu);
    tcase_add_loop_test(t, interleaved_over_devices, 0, 3);
    tcase_add_test(t, interleaved_over_opencl);
    tcase_add_test(t, the_same_stories_in_a_crowd);
    tcase_add_test(t, the_same_stories_while_blocks_move);
    tcase_add_test(t, the_same_stories_over_opencl);
    tcase_add_test(t, the_same_stories_of_recurrent_layers);
    tcase_add_loop_test(t, tokens_of_families_share_passes, 0, 2);
    tcase_add_test(t, recurrent_layers_move);
    tcase_add_test(t, the_same_stories_under_two_plans);
    tcase_add_test(t, recurrent_layers_under_two_plans);
    tcase_add_loop_test(t, no_pass_has_rows_of_both, 0, 2);
    tcase_add_loop_test(t, the_same_stories_under_random_plans, 0, 10);
    tcase_add_loop_test(t, interleaved_rings, 0, 3);
    tcase_add_loop_test(t, the_same_stories_of_rings, 0, 2);
    tcase_add_loop_test(t, interleaved_recurrent_layers, 0, 6);
    tcase_add_loop_test(t, a_device_fails_under_all, 0, 9);
    tcase_add_test(t, a_cancel_ends_one_story);
    tcase_add_loop_test(t, a_common_beginning_is_shared, 0, 2);
    tcase_add_test(t, layers_go_home_when_sessions_fill_a_device);
    suite_add_tcase(s, t);
    t = tcase_create("beside");
    tcase_set_timeout(t, 240);
    tcase_add_loop_test(t, prompts_are_computed_beside_tokens, 0, 4);
    tcase_add_loop_test(t, trouble_beside_tokens, 0, 16);
    tcase_add_loop_test(t, cancels_beside_tokens, 0, 6);
    suite_add_tcase(s, t);
    t = tcase_create("scheduler");
    tcase_set_timeout(t, 240);
    tcase_add_loop_test(t, mixed_passes_keep_their_time, 0, 3);
    tcase_add_test(t, chunks_are_as_large_as_their_time);
    tcase_add_test(t, a_burst_of_prompts_gets_more_of_a_pass);
    tcase_add_test(t, passes_are_shared_fairly);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
