/* What cannot be cut back: recurrent state. However a session gets to a place (computed at once,
 * token by token, rewound, asked again, edited, cancelled), what it says there is what it says when
 * computed from the start. */
#include "engine/base/mem.h"
#include "engine/device/state.h"
#include "engine/model/load.h"
#include "engine/run/checkpoints.h"
#include "engine/run/engine.h"
#include "engine/run/prompt.h"
#include "tests/recurrent_device.h"
#include "tests/support.h"
#include "tests/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct device_ops *const recurrent[] = {&recurrent_device_ops, NULL};

static struct engine *open_of(bool lfm2, int ubatch)
{
    struct engine_config c = {.model_path = lfm2 ? support_path("golden/families/lfm2_moe")
                                                 : support_demo(),
                              .no_tokenizer = lfm2,
                              .context = 1024,
                              .ubatch = ubatch,
                              .n_threads = 2,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .backends = lfm2 ? NULL : recurrent,
                              .cache_dir = support_tmpdir(),
                              .tune = DEVICE_TUNE_OFF,
                              .convert = -1};
    struct engine *g = NULL;
    struct error e = {0};

    if (engine_open(&g, &c, &e) < 0)
        ck_abort_msg("%s", e.text);
    return g;
}

static struct engine *open_engine(int ubatch)
{
    return open_of(false, ubatch);
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

/* Every place of a short text, with another end each time; before that an end of the first. _i: of
 * the device of the tests, or of short convolutions. */
START_TEST(rewinds_to_every_place)
{
    struct engine *g = open_of(_i, 16);
    int ids[2][SHORT], both[SHORT], vocab = engine_info(g)->model->hp.n_vocab;
    float *want = mem_alloc((size_t)vocab, sizeof *want),
          *got = mem_alloc((size_t)vocab, sizeof *got);

    fill(ids[0], SHORT, vocab, 1);
    fill(ids[1], SHORT, vocab, 2);
    for (int at = 0; at < SHORT - 1; at += 3) {
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
    struct engine *g = open_engine(16), *fresh = open_engine(64);
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
    float x[ROWS * 64], want[ROWS * 64], got[64], state[1024], after[1024];
    static const float table[64 * 64];
    unsigned seed = 3;

    ck_assert_msg(model_load(&m, support_path("golden/families/lfm2_moe"), &o, &e) == 0, "%s",
                  e.text);
    ck_assert_int_eq(m->hp.hidden, 64);
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
    for (int i = 0; i < ROWS * 64; i++)
        x[i] = tiny_random(&seed);
    {
        struct attention_job all = {.rows = ROWS, .x = x, .y = want},
                             first = {.rows = 3, .x = x, .y = want},
                             next = {.rows = 1, .pos = 3, .x = x + 3 * 64, .y = got};
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
        for (; next.pos < ROWS; next.pos++, next.x += 64) {
            ck_assert_int_eq(cpu_device_ops.attention(d, &next, &e), 0);
            ck_assert_mem_eq(got, want + next.pos * 64, sizeof got);
        }
        memcpy(state, after, sizeof state);
        ck_assert_int_eq(cpu_device_ops.kv_rows(d, &again, &e), 0);
        ck_assert_mem_eq(state, after, sizeof state);
    }
    cpu_device_ops.close(d);
    model_free(m);
}
END_TEST

START_TEST(copies_are_bounded)
{
    struct hparams hp = {
        .n_layers = 3,
        .common.mixer = {.kind = MIXER_SHORT_CONVOLUTION, .heads = 1, .value_dim = 100, .taps = 3}};

    ck_assert_uint_eq(checkpoints_footprint(&hp), CHECKPOINTS_MOST * 3 * 200 * sizeof(float));
    hp.common.mixer.value_dim = 4 << 20; /* 96 MiB in all */
    ck_assert_uint_eq(checkpoints_footprint(&hp),
                      CHECKPOINTS_LEAST * 3 * (size_t)(8 << 20) * sizeof(float));
    hp.common.mixer.kind = MIXER_ATTENTION;
    ck_assert_uint_eq(checkpoints_footprint(&hp), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("state");
    TCase *t = tcase_create("recurrent");

    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, rewinds_to_every_place, 0, 2);
    tcase_add_test(t, a_long_text_goes_on_from_the_nearest_copy);
    tcase_add_test(t, a_chat_that_goes_back);
    tcase_add_test(t, a_cancel_leaves_no_trace);
    tcase_add_test(t, a_device_goes_on_where_its_state_stands);
    tcase_add_test(t, copies_are_bounded);
    suite_add_tcase(s, t);
    return support_run(s);
}
