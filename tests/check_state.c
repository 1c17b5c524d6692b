/* What cannot be cut back, or not as far as one likes: recurrent state, and rings. However a
 * session gets to a place (computed at once, token by token, rewound, asked again, edited,
 * cancelled), what it says there is what it says when computed from the start. */
#include "engine/base/mem.h"
#include "engine/device/state.h"
#include "engine/model/load.h"
#include "engine/run/state/checkpoints.h"
#include "engine/run/engine.h"
#include "engine/run/prompt.h"
#include "tests/fake_device.h"
#include "tests/recurrent_device.h"
#include "tests/support.h"
#include "tests/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct device_ops *const recurrent[] = {&recurrent_device_ops, NULL};

/* A device of the tests that makes the demo model recurrent, short convolutions; the demo model
 * with a window, a model in which every other layer has one: these keep rings, unless a pass may
 * have as many rows as the context. */
enum kind { FAKE, CONVOLUTIONS, WINDOWS, EVERY_OTHER, GEOMETRIES };

#define CONTEXT 1024
#define WINDOW 12
#define WINDOW_OF "*.attention.sliding_window=int:12"

static struct engine *open_on(enum kind kind, int ubatch, const struct device_ops *const *backends)
{
    static const char *const texts[] = {WINDOW_OF};
    static const struct overrides window = {texts, 1};
    const char *folder = kind == CONVOLUTIONS  ? "golden/families/lfm2_moe"
                         : kind == EVERY_OTHER ? "golden/families/gpt_oss"
                         : kind == GEOMETRIES  ? "golden/families/gemma4"
                                               : NULL;
    struct engine_config c = {.model_path = folder ? support_path(folder) : support_demo(),
                              .no_tokenizer = folder != NULL,
                              .overrides = kind == WINDOWS ? &window : NULL,
                              .context = CONTEXT,
                              .ubatch = ubatch,
                              .n_threads = 2,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .backends = backends,
                              .cache_dir = support_tmpdir(),
                              .tune = DEVICE_TUNE_OFF,
                              .convert = -1};
    struct engine *g = NULL;
    struct error e = {0};

    if (engine_open(&g, &c, &e) < 0)
        ck_abort_msg("%s", e.text);
    return g;
}

static struct engine *open_of(enum kind kind, int ubatch)
{
    return open_on(kind, ubatch, kind == FAKE ? recurrent : NULL);
}

static struct engine *open_engine(int ubatch)
{
    return open_of(FAKE, ubatch);
}

static void fill(int *ids, int n, int vocab, int seed)
{
    for (int i = 0; i < n; i++)
        ids[i] = (i * 37 + seed * 101 + 11) % vocab;
}

static void eval(struct engine *g, const int *ids, int n, int chunk, float *logits)
{
    struct error e = {0};

    ck_assert_msg(engine_eval_chunked(g, ids, n, chunk, logits, false, &e) == 0, "%s", e.text);
}

#define SHORT 41

/* Every place of a short text, with another end each time; before that an end of the first. */
START_TEST(rewinds_to_every_place)
{
    struct engine *g = open_of(_i, 16);
    int ids[2][SHORT], both[SHORT], vocab = engine_info(g)->model->hp.n_vocab;
    float *want = mem_alloc((size_t)vocab, sizeof *want),
          *got = mem_alloc((size_t)vocab, sizeof *got);

    fill(ids[0], SHORT, vocab, 1);
    fill(ids[1], SHORT, vocab, 2);
    for (int at = 0; at < SHORT - 1; at += 3) {
        if (!support_turn(at / 3, 3))
            continue;
        memcpy(both, ids[0], sizeof both);
        memcpy(both + at, ids[1] + at, (size_t)(SHORT - at) * sizeof *both);
        engine_session_clear(g);
        eval(g, both, SHORT, 16, want);
        engine_session_clear(g);
        eval(g, ids[0], SHORT, 7, NULL);
        engine_session_rewind(g, at);
        ck_assert_int_eq(engine_session_tokens(g, NULL), at);
        eval(g, both + at, SHORT - at, 5, got);
        ck_assert_int_eq(engine_session_tokens(g, NULL), SHORT);
        ck_assert_mem_eq(got, want, (size_t)vocab * sizeof *got);
        /* twice in a row, and a token alone */
        engine_session_rewind(g, SHORT - 1);
        engine_session_rewind(g, SHORT - 2 > at ? SHORT - 2 : at);
        eval(g, both + engine_session_tokens(g, NULL), SHORT - engine_session_tokens(g, NULL), 1,
             got);
        ck_assert_mem_eq(got, want, (size_t)vocab * sizeof *got);
    }
    mem_free(want);
    mem_free(got);
    engine_close(g);
}
END_TEST

#define LONG 900

/* A copy every CHECKPOINT_EVERY tokens: no more than that is computed again. */
START_TEST(a_long_text_goes_on_from_the_nearest_copy)
{
    struct engine *g = open_engine(64);
    int ids[LONG], vocab = engine_info(g)->model->hp.n_vocab;
    float *want = mem_alloc((size_t)vocab, sizeof *want),
          *got = mem_alloc((size_t)vocab, sizeof *got);

    fill(ids, LONG, vocab, 3);
    eval(g, ids, LONG, 64, want);
    for (int i = 0; i < 3; i++) {
        static const int places[] = {890, 600, 300};
        long rows;

        engine_session_rewind(g, places[i]);
        rows = recurrent_device_rows();
        eval(g, ids + places[i], LONG - places[i], 64, got);
        ck_assert_int_le(recurrent_device_rows() - rows, LONG - places[i] + CHECKPOINT_EVERY + 64);
        ck_assert_mem_eq(got, want, (size_t)vocab * sizeof *got);
    }
    mem_free(want);
    mem_free(got);
    engine_close(g);
}
END_TEST

struct heard {
    char text[4096];
    size_t n;
    int tokens;
};

static int hear(void *ctx, struct event *ev)
{
    struct heard *h = ctx;

    if (ev->kind != EVENT_TOKEN)
        return 0;
    memcpy(h->text + h->n, ev->token.text, ev->token.len);
    h->n += ev->token.len;
    h->text[h->n] = 0;
    h->tokens += ev->token.id >= 0;
    return 0;
}

static struct turn_done_event ask(struct engine *g, struct prompt_history *history,
                                  struct message *m, size_t n, struct heard *h)
{
    struct dialogue d = {.messages = m, .n_messages = n};
    struct turn t = {
        .max_tokens = 24,
        .ignore_eos = true,
        .sampling = {
            .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .repeat_penalty = 1.0f, .seed = 7}};
    struct turn_done_event done;
    struct error e = {0};

    h->n = h->tokens = 0;
    h->text[0] = 0;
    ck_assert_msg(prompt_turn(g, history, &d, &t, hear, h, &done, &e) == 0, "%s", e.text);
    return done;
}

/* The same said by a session that begins with nothing. */
static void same_from_the_start(struct engine *fresh, struct message *m, size_t n, const char *text)
{
    struct heard *h = mem_alloc(1, sizeof *h);

    engine_session_clear(fresh);
    ask(fresh, NULL, m, n, h);
    ck_assert_str_eq(h->text, text);
    mem_free(h);
}

/* A chat: a second turn, the answer again, the question edited, a turn taken back. */
START_TEST(a_chat_that_goes_back)
{
    struct engine *g = open_of(_i, 16), *fresh = open_of(_i, _i == WINDOWS ? CONTEXT : 64);
    struct prompt_history history = {0};
    struct heard *h = mem_alloc(1, sizeof *h);
    struct message m[] = {
        {.role = ROLE_SYSTEM, .text = "You tell stories for children, short ones."},
        {.role = ROLE_USER, .text = "Tell me a story about a fox who lives in a wood."},
        {.role = ROLE_ASSISTANT, .text = NULL},
        {.role = ROLE_USER, .text = "And what did the fox do then? Tell me more of it."}};
    struct turn_done_event done = ask(g, &history, m, 2, h);

    same_from_the_start(fresh, m, 2, h->text);
    ck_assert_int_eq(done.cached_tokens + done.recomputed_tokens, 0);
    m[2].text = strdup(h->text);
    done = ask(g, &history, m, 4, h);
    ck_assert_int_gt(done.cached_tokens, 40); /* it goes on where the answer ended */
    ck_assert_int_eq(done.recomputed_tokens, 0);
    for (int i = 0; i < 2; i++) { /* regenerated: no more than the answer's own prompt */
        char *before = strdup(h->text);

        done = ask(g, &history, m, 4, h);
        ck_assert_str_eq(h->text, before);
        ck_assert_int_le(done.recomputed_tokens, 6);
        free(before);
    }
    m[3].text = (char *)"And what did the fox eat for breakfast?";
    done = ask(g, &history, m, 4, h);
    ck_assert_int_le(done.recomputed_tokens, 20); /* from where the message begins */
    {
        char *edited = strdup(h->text);

        done = ask(g, &history, m, 2, h); /* taken back */
        ck_assert_str_eq(h->text, m[2].text);
        ck_assert_int_le(done.recomputed_tokens, 6);
        done = ask(g, &history, m, 4, h);
        ck_assert_str_eq(h->text, edited);
        free(edited);
    }
    free((char *)m[2].text);
    mem_free(h);
    prompt_history_release(&history);
    engine_close(g);
    engine_close(fresh);
}
END_TEST

static void cancel(void *session)
{
    engine_session_cancel(session);
}

/* Cancelled at layers of a prompt's passes and of an answer's, on a session that holds nothing or
 * an older answer to the same. */
START_TEST(a_cancel_leaves_no_trace)
{
    struct engine *g = open_engine(16);
    struct prompt_history history = {0};
    struct heard *h = mem_alloc(1, sizeof *h), *cut = mem_alloc(1, sizeof *cut);
    struct message m[] = {{.role = ROLE_USER,
                           .text = "Tell me a story about a fox who lives in a wood with an owl, "
                                   "a hedgehog and two mice, and of the winter that came."}};
    int layers = engine_info(g)->model->hp.n_layers, in_prompts = 0, in_answers = 0;
    char *want;

    ask(g, &history, m, 1, h);
    want = strdup(h->text);
    for (int job = 1; job < 8 * layers; job += 3) {
        if (!support_turn(job / 3, 3))
            continue;
        if (job % 2)
            engine_session_clear(g);
        recurrent_device_at(job, cancel, engine_session(g));
        ck_assert_int_eq(ask(g, &history, m, 1, cut).reason, STOP_CANCELLED);
        ck_assert_mem_eq(cut->text, want, cut->n);
        *(cut->tokens ? &in_answers : &in_prompts) += 1;
        ask(g, &history, m, 1, h);
        ck_assert_str_eq(h->text, want);
    }
    ck_assert(in_prompts > 0 && in_answers > 0);
    free(want);
    mem_free(h);
    mem_free(cut);
    prompt_history_release(&history);
    engine_close(g);
}
END_TEST

#define ROWS 6

/* The CPU's own: state goes on exactly where it stands, nowhere else, and as it was given. */
START_TEST(a_device_goes_on_where_its_state_stands)
{
    struct model *m = NULL;
    struct device *d = NULL;
    struct error e = {0};
    const struct model_options o = {.convert = -1, .width = cpu_pack_width(), .n_threads = 1};
    float x[ROWS * 32], want[ROWS * 32], got[32], state[1024], after[1024];
    static const float table[64 * 64];
    unsigned seed = 3;

    ck_assert_msg(model_load(&m, support_path("golden/families/lfm2_moe"), &o, &e) == 0, "%s",
                  e.text);
    ck_assert_int_eq(m->hp.hidden, 32);
    {
        const struct device_config c = {.model = m,
                                        .n_threads = 2,
                                        .max_rows = 8,
                                        .context = 64,
                                        .kv_k = KV_F16,
                                        .rope_cos = {table},
                                        .rope_sin = {table}};

        ck_assert_msg(cpu_device_ops.open(&d, &c, &e) == 0, "%s", e.text);
    }
    for (int i = 0; i < ROWS * 32; i++)
        x[i] = tiny_random(&seed);
    {
        struct attention_job all = {.rows = ROWS, .x = x, .y = want},
                             first = {.rows = 3, .x = x, .y = want},
                             next = {.rows = 1, .pos = 3, .x = x + 3 * 32, .y = got};
        struct kv_move read = {.pos = 3, .data = state, .fixed = true},
                       write = {.pos = 3, .data = state, .fixed = true, .write = true},
                       again = {.pos = ROWS, .data = after, .fixed = true},
                       rows = {.layer = 1, .pos = 3, .data = state, .fixed = true};

        ck_assert_uint_le(state_size(&hparams_layer(&m->hp, 0)->mixer, KV_F16, KV_F16).fixed_bytes,
                          sizeof state);
        ck_assert_int_eq(cpu_device_ops.attention(d, &first, &e), 0);
        ck_assert_int_eq(cpu_device_ops.kv_rows(d, &read, &e), 0);
        ck_assert_int_eq(cpu_device_ops.attention(d, &all, &e), 0); /* from zeros */
        ck_assert_int_lt(cpu_device_ops.attention(d, &next, &e), 0);
        ck_assert_msg(strstr(e.text, "stands after 6 tokens, not after 3") != NULL, "%s", e.text);
        ck_assert_int_lt(cpu_device_ops.kv_rows(d, &read, &e), 0);
        ck_assert_int_lt(cpu_device_ops.kv_rows(d, &rows, &e), 0); /* that layer has none */
        next.trial = true;
        memset(after, 0, sizeof after);
        ck_assert_int_eq(cpu_device_ops.attention(d, &next, &e), 0);
        ck_assert_int_eq(cpu_device_ops.kv_rows(d, &again, &e), 0); /* untouched */
        next.trial = false;
        ck_assert_int_eq(cpu_device_ops.kv_rows(d, &write, &e), 0);
        for (; next.pos < ROWS; next.pos++, next.x += 32) {
            ck_assert_int_eq(cpu_device_ops.attention(d, &next, &e), 0);
            ck_assert_mem_eq(got, want + next.pos * 32, sizeof got);
        }
        memcpy(state, after, sizeof state);
        ck_assert_int_eq(cpu_device_ops.kv_rows(d, &again, &e), 0);
        ck_assert_mem_eq(state, after, sizeof state);
    }
    cpu_device_ops.close(d);
    model_free(m);
}
END_TEST

static int jobs_done(struct engine *g)
{
    struct error e = {0};

    ck_assert_int_eq(engine_settle(g, &e), 0); /* figures are newly taken */
    return (int)engine_telemetry(g)->devices[0].jobs;
}

/* Every token's logits, as a context that keeps all rows has them; and the bytes held meanwhile. */
START_TEST(rings_say_what_whole_contexts_say)
{
    static const int chunks[] = {1, 7, 16};
    enum kind kind = (enum kind)_i;
    struct engine *g = open_of(kind, 16), *whole = open_of(kind, CONTEXT);
    size_t vocab = (size_t)engine_info(g)->model->hp.n_vocab;
    float *want = mem_alloc(LONG * vocab, sizeof *want),
          *got = mem_alloc(LONG * vocab, sizeof *got);
    uint64_t room = engine_telemetry(g)->devices[0].kv_bytes, used, saved = 0, all;
    int ids[LONG];
    struct error e = {0};

    fill(ids, LONG, (int)vocab, 5);
    ck_assert_int_eq(engine_eval_chunked(whole, ids, LONG, 64, want, true, &e), 0);
    for (int i = 0; i < 3; i++) {
        if (!support_turn(i + _i, 3))
            continue;
        engine_session_clear(g);
        jobs_done(g);
        ck_assert_uint_eq(engine_telemetry(g)->devices[0].kv_used_bytes, 0);
        ck_assert_int_eq(engine_eval_chunked(g, ids, LONG, chunks[i], got, true, &e), 0);
        ck_assert_mem_eq(got, want, LONG * vocab * sizeof *got);
    }
    engine_session_rewind(g, LONG - 1);
    jobs_done(g);
    used = engine_telemetry(g)->devices[0].kv_used_bytes;
    ck_assert_uint_gt(used, 0);
    ck_assert_uint_le(used, room);
    ck_assert_uint_eq(engine_telemetry(g)->devices[0].kv_bytes, room);
    /* of layers with a window 256 tokens in place of 1024, and nothing else is less */
    for (int l = 0; l < engine_info(g)->model->hp.n_layers; l++) {
        const struct mixer_shape *m = &hparams_layer(&engine_info(g)->model->hp, l)->mixer;

        saved += m->window ? 768 * state_size(m, KV_F16, KV_F16).token_bytes : 0;
    }
    ck_assert_uint_gt(saved, 0);
    all = engine_telemetry(whole)->devices[0].kv_bytes - saved;
    ck_assert(room >= all && room <= all + 64); /* a page is not empty */
    mem_free(want);
    mem_free(got);
    engine_close(g);
    engine_close(whole);
}
END_TEST

/* Back as far as the ring's slack, where nothing is computed again, and further. A pass of a row is
 * a job; the last one's logits take some more. */
START_TEST(rings_go_back)
{
    static const struct {
        int to, again; /* at most */
    } steps[] = {{LONG - 1, 0}, {LONG - 100, 0}, {LONG - 200, 0}, {LONG - 340, 256},
                 {500, 256},    {300, 256},      {LONG - 240, 0}, {256, 256},
                 {7, 7},        {1, 1},          {0, 0}};
    enum kind kind = (enum kind)_i;
    struct engine *g = open_of(kind, 16), *whole = open_of(kind, CONTEXT);
    size_t vocab = (size_t)engine_info(g)->model->hp.n_vocab;
    float *want = mem_alloc(vocab, sizeof *want), *got = mem_alloc(vocab, sizeof *got);
    int ids[LONG], head; /* jobs of the logits */

    fill(ids, LONG, (int)vocab, 6);
    eval(g, ids, LONG - 1, 16, NULL);
    head = jobs_done(g);
    eval(g, ids + LONG - 1, 1, 1, got);
    head = jobs_done(g) - head - 1;
    eval(whole, ids, LONG, 64, want);
    ck_assert_mem_eq(got, want, vocab * sizeof *got);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        int to = steps[i].to, jobs, more = LONG - to < 40 ? LONG - to : 40;

        if (!support_turn((int)i + _i, 3))
            continue;
        engine_session_rewind(g, to);
        engine_session_rewind(whole, to);
        fill(ids + to, LONG - to, (int)vocab, 10 + (int)i); /* another text from there on */
        jobs = jobs_done(g);
        eval(g, ids + to, more, 1, got);
        eval(whole, ids + to, more, 64, want);
        ck_assert_mem_eq(got, want, vocab * sizeof *got);
        jobs = jobs_done(g) - jobs - more - head;
        ck_assert_msg(jobs >= 0 && jobs <= steps[i].again, "back to %d: %d tokens again", to, jobs);
        if (more < LONG - to) {
            eval(g, ids + to + more, LONG - to - more, 16, got);
            eval(whole, ids + to + more, LONG - to - more, 64, want);
            ck_assert_mem_eq(got, want, vocab * sizeof *got);
        }
    }
    mem_free(want);
    mem_free(got);
    engine_close(g);
    engine_close(whole);
}
END_TEST

/* Devices are measured with rows of a prompt behind those of the chat: in a ring these replace old
 * ones, which going back must not take for the chat's. */
START_TEST(rings_go_back_after_measuring)
{
    static const struct device_ops *const two[] = {&fake_device_plain_ops, &cpu_device_ops, NULL};
    struct engine *g = open_on(WINDOWS, 16, two), *whole = open_of(WINDOWS, CONTEXT);
    size_t vocab = (size_t)engine_info(g)->model->hp.n_vocab;
    float *want = mem_alloc(vocab, sizeof *want), *got = mem_alloc(vocab, sizeof *got);
    int ids[LONG], back = 225 + 5 * _i;
    struct error e = {0};

    fill(ids, LONG, (int)vocab, 7);
    eval(g, ids, LONG, 16, NULL);
    ck_assert_msg(engine_planner_input(g, true, true, true, &e) != NULL, "%s", e.text);
    ck_assert_int_eq(engine_info(g)->n_devices, 2);
    eval(whole, ids, LONG, 64, NULL);
    engine_session_rewind(g, LONG - back);
    engine_session_rewind(whole, LONG - back);
    eval(g, ids + LONG - back + 1, 40, 1, got);
    eval(whole, ids + LONG - back + 1, 40, 64, want);
    ck_assert_mem_eq(got, want, vocab * sizeof *got);
    mem_free(want);
    mem_free(got);
    engine_close(g);
    engine_close(whole);
}
END_TEST

/* A chat longer than the ring: what is computed again for a second turn, the answer again, the
 * question edited and a turn taken back. */
START_TEST(a_long_chat_of_rings)
{
    struct engine *g = open_of(WINDOWS, 16), *fresh = open_of(WINDOWS, CONTEXT);
    struct prompt_history history = {0};
    struct heard *h = mem_alloc(1, sizeof *h);
    char tale[2400] = "";
    struct message m[] = {{.role = ROLE_USER, .text = tale},
                          {.role = ROLE_ASSISTANT, .text = NULL},
                          {.role = ROLE_USER, .text = tale},
                          {.role = ROLE_ASSISTANT, .text = NULL},
                          {.role = ROLE_USER, .text = "And what did the fox do then?"}};
    struct turn_done_event done;

    for (int i = 0; i < 22; i++)
        snprintf(tale + strlen(tale), sizeof tale - strlen(tale),
                 "Once there was a fox who lived in a wood, and on day %d it was happy. ", i);
    done = ask(g, &history, m, 1, h);
    ck_assert_int_gt(engine_session_tokens(g, NULL), 256 + WINDOW);
    same_from_the_start(fresh, m, 1, h->text);
    m[1].text = strdup(h->text);
    done = ask(g, &history, m, 3, h);
    ck_assert_int_eq(done.recomputed_tokens, 0);
    ck_assert_int_gt(done.cached_tokens, 256);
    same_from_the_start(fresh, m, 3, h->text);
    m[3].text = strdup(h->text);
    done = ask(g, &history, m, 5, h); /* a turn more, and the same again */
    ck_assert_int_eq(done.recomputed_tokens, 0);
    done = ask(g, &history, m, 5, h);
    ck_assert_int_eq(done.recomputed_tokens, 0);
    same_from_the_start(fresh, m, 5, h->text);
    done = ask(g, &history, m, 3, h); /* taken back: not as far as the slack */
    ck_assert_str_eq(h->text, m[3].text);
    ck_assert_int_eq(done.recomputed_tokens, 0);
    m[2].text = (char *)"And what did the fox eat for breakfast?";
    done = ask(g, &history, m, 3, h); /* further: from where the message begins */
    ck_assert_int_gt(done.cached_tokens, 256);
    ck_assert_int_le(done.recomputed_tokens, 20);
    same_from_the_start(fresh, m, 3, h->text);
    free((char *)m[1].text);
    free((char *)m[3].text);
    mem_free(h);
    prompt_history_release(&history);
    engine_close(g);
    engine_close(fresh);
}
END_TEST

START_TEST(copies_are_bounded)
{
    struct hparams hp = {
        .n_layers = 3,
        .common.mixer = {.kind = MIXER_SHORT_CONVOLUTION, .heads = 1, .value_dim = 100, .taps = 3}};
    struct state_config state = {KV_F16, KV_F16, 1 << 20, 512};

    ck_assert_uint_eq(checkpoints_footprint(&hp, &state),
                      CHECKPOINTS_MOST * 3 * 200 * sizeof(float));
    state.context = 4096; /* as many as its passes, or stretches of CHECKPOINT_EVERY */
    ck_assert_uint_eq(checkpoints_footprint(&hp, &state), 8 * 3 * 200 * sizeof(float));
    state.rows = 64;
    ck_assert_uint_eq(checkpoints_footprint(&hp, &state), 16 * 3 * 200 * sizeof(float));
    state.context = 300;
    ck_assert_uint_eq(checkpoints_footprint(&hp, &state),
                      CHECKPOINTS_LEAST * 3 * 200 * sizeof(float));
    hp.common.mixer.value_dim = 4 << 20; /* 96 MiB in all */
    ck_assert_uint_eq(checkpoints_footprint(&hp, &state),
                      CHECKPOINTS_LEAST * 3 * (size_t)(8 << 20) * sizeof(float));
    hp.common.mixer =
        (struct mixer_shape){.kind = MIXER_ATTENTION, .heads = 4, .kv_heads = 2, .key_dim = 32};
    ck_assert_uint_eq(checkpoints_footprint(&hp, &state), 0);
}
END_TEST

/* Where a ring is used, how much it holds, and what copies it has: all of that together is less
 * than the whole context. */
START_TEST(rings_are_worth_their_copies)
{
    struct hparams hp = {
        .n_layers = 2,
        .common.mixer = {.kind = MIXER_ATTENTION, .heads = 4, .kv_heads = 2, .key_dim = 32}};
    struct mixer_shape *m = &hp.common.mixer;
    const size_t row = state_size(m, KV_F16, KV_F16).token_bytes;

    ck_assert_int_eq(state_room(m, &(struct state_config){KV_F16, KV_F16, 1000, 512}), 1008);
    for (int context = 100; context < 200000; context = context * 3 / 2)
        for (int rows = 1; rows <= 512; rows *= 8)
            for (m->window = 1; m->window < 5000; m->window = m->window * 2 + 3) {
                struct state_config state = {KV_F16, KV_F16, context, rows};
                int room = state_room(m, &state);
                size_t copies = checkpoints_footprint(&hp, &state);

                if (!state_is_ring(m, &state)) {
                    ck_assert_int_eq(room, (context + 15) / 16 * 16);
                    ck_assert_uint_eq(copies + state_copy_bytes(m, &state), 0);
                    continue;
                }
                ck_assert_int_eq(room % 256, 0);
                ck_assert(room >= m->window + rows - 1 && room < m->window + rows - 1 + 256);
                ck_assert_uint_eq(state_copy_bytes(m, &state), row * (size_t)(m->window - 1));
                ck_assert_uint_le(2 * row * (size_t)room + copies, 2 * row * (size_t)context);
                if (m->window > 1)
                    ck_assert_uint_ge(copies,
                                      2 * CHECKPOINTS_LEAST * row * (size_t)(m->window - 1));
            }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("state");
    TCase *t = tcase_create("recurrent");

    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, rewinds_to_every_place, FAKE, EVERY_OTHER + 1);
    tcase_add_test(t, a_long_text_goes_on_from_the_nearest_copy);
    tcase_add_loop_test(t, a_chat_that_goes_back, FAKE, FAKE + 1);
    tcase_add_test(t, a_cancel_leaves_no_trace);
    tcase_add_test(t, a_device_goes_on_where_its_state_stands);
    tcase_add_test(t, copies_are_bounded);
    suite_add_tcase(s, t);
    t = tcase_create("rings");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, rings_say_what_whole_contexts_say, WINDOWS, GEOMETRIES + 1);
    tcase_add_loop_test(t, rings_go_back, WINDOWS, GEOMETRIES + 1);
    tcase_add_loop_test(t, rings_go_back_after_measuring, 0, 5);
    tcase_add_test(t, a_long_chat_of_rings);
    tcase_add_test(t, rings_are_worth_their_copies);
    suite_add_tcase(s, t);
    return support_run(s);
}
