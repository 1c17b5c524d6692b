/* The synchronous engine on the demo model: turns, prefix reuse, stops, cancel, overflow, pacing,
 * telemetry, and what must not change the text. */
#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/device/device.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "engine/run/engine.h"
#include "engine/run/prompt.h"
#include "engine/run/report/trace.h"
#include "tests/support.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Under ThreadSanitizer everything takes twenty times as long: fewer rounds of what the other
 * builds do in full. */
#ifdef __SANITIZE_THREAD__
#define SLOW 1
#else
#define SLOW 0
#endif

static struct sampling greedy(void)
{
    return (struct sampling){.temperature = 0.0f, .top_p = 1.0f, .repeat_penalty = 1.0f};
}

static struct engine_config demo_config(void)
{
    static char path[4200];

    snprintf(path, sizeof path, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    return (struct engine_config){.model_path = path,
                                  .context = 512,
                                  .n_threads = 2,
                                  .kv_k = KV_F16,
                                  .kv_v = KV_F16,
                                  .convert = -1};
}

static struct engine *open_with(const struct engine_config *c)
{
    struct engine *g = NULL;
    struct error e = {0};

    if (engine_open(&g, c, &e) < 0)
        ck_abort_msg("%s", e.text);
    return g;
}

static struct engine *open_demo(void)
{
    struct engine_config c = demo_config();

    return open_with(&c);
}

/* Weights that are still in the file, being packed, and packed: the same bits, in prompts and in
 * decoding, with every kernel set. */
START_TEST(answers_before_the_weights_are_packed)
{
    static const char *const sets[] = {NULL, "scalar"};
    static const int prompts[] = {1, 3, 30};

    for (size_t s = 0; s < (SLOW ? 1 : 2); s++) {
        struct engine_config c = demo_config();
        struct engine *eager, *late;
        int ids[40], vocab;
        float *want, *got;
        uint64_t done, total;
        struct error e = {0};

        c.kernels = sets[s];
        eager = open_with(&c);
        c.background = true;
        late = open_with(&c);
        model_hold(engine_info(late)->model, 60000);
        ck_assert(!model_packed(engine_info(late)->model, &done, &total));
        vocab = engine_info(eager)->model->hp.n_vocab;
        want = mem_alloc((size_t)vocab, sizeof *want);
        got = mem_alloc((size_t)vocab, sizeof *got);
        for (int i = 0; i < 40; i++)
            ids[i] = (i * 37 + 11) % vocab;
        for (int round = 0; round < 3; round++) {
            if (round == 1)
                model_hold(engine_info(late)->model, 0);
            if (round == 2)
                model_settle(engine_info(late)->model);
            for (size_t p = 0; p < 3; p++) {
                engine_session_clear(eager);
                engine_session_clear(late);
                ck_assert_int_eq(engine_eval(eager, ids, prompts[p], want, false, &e), 0);
                ck_assert_int_eq(engine_eval(late, ids, prompts[p], got, false, &e), 0);
                ck_assert_mem_eq(got, want, (size_t)vocab * sizeof *want);
                ck_assert_int_eq(engine_eval(eager, ids + 30, 1, want, false, &e), 0);
                ck_assert_int_eq(engine_eval(late, ids + 30, 1, got, false, &e), 0);
                ck_assert_mem_eq(got, want, (size_t)vocab * sizeof *want);
            }
        }
        ck_assert(model_packed(engine_info(late)->model, &done, &total));
        ck_assert_uint_gt(total, 0);
        engine_close(late);
        late = open_with(&c); /* closed before anything was packed */
        model_hold(engine_info(late)->model, 60000);
        engine_close(late);
        engine_close(eager);
        mem_free(want);
        mem_free(got);
    }
}
END_TEST

/* What a turn sent. */
struct heard {
    char text[65536];
    size_t len;
    int tokens, started, prefills, notices, done, plans;
    uint64_t prefill_done;
    char notice[700];
    int cancel_after; /* tokens; 0: never */
    bool cancel_in_prefill;
    struct engine *engine;
    struct turn_done_event last;
    int ids[256]; /* of the first tokens */
};

static int hear(void *ctx, struct event *ev)
{
    struct heard *h = ctx;

    switch (ev->kind) {
    case EVENT_TURN_STARTED: h->started++; break;
    case EVENT_PREFILL:
        ck_assert_uint_ge(ev->progress.done, h->prefill_done);
        h->prefill_done = ev->progress.done;
        h->prefills++;
        return h->cancel_in_prefill;
    case EVENT_TOKEN:
        if (ev->token.id >= 0 && h->tokens < (int)(sizeof h->ids / sizeof *h->ids))
            h->ids[h->tokens] = ev->token.id;
        h->tokens += ev->token.id >= 0;
        ck_assert_uint_eq(strlen(ev->token.text), ev->token.len);
        memcpy(h->text + h->len, ev->token.text, ev->token.len + 1u);
        h->len += ev->token.len;
        return h->cancel_after && h->tokens >= h->cancel_after;
    case EVENT_NOTICE:
        h->notices++;
        snprintf(h->notice, sizeof h->notice, "%s", ev->text);
        break;
    case EVENT_PLAN: h->plans++; break;
    case EVENT_TURN_DONE:
        h->done++;
        h->last = ev->done_turn;
        break;
    default: ck_abort_msg("event %d in a turn", ev->kind);
    }
    return 0;
}

/* What is asked of the engine, and what its session holds as far as we know. */
struct request_fields {
    struct dialogue said;
    struct turn turn;
};

static struct prompt_history history;

static struct request_fields turn_of(struct message *m, size_t n, int max_tokens)
{
    return (struct request_fields){{.messages = m, .n_messages = n},
                                   {.sampling = greedy(), .max_tokens = max_tokens}};
}

static int ask(struct engine *g, const struct request_fields *a,
               int (*on_event)(void *ctx, struct event *ev), void *ctx,
               struct turn_done_event *done, struct error *e)
{
    return prompt_turn(g, &history, &a->said, &a->turn, on_event, ctx, done, e);
}

static void forget(struct engine *g)
{
    engine_session_clear(g);
    prompt_history_release(&history);
}

static void close_engine(struct engine *g)
{
    engine_close(g);
    prompt_history_release(&history);
}

static struct turn_done_event run(struct engine *g, const struct request_fields *t, struct heard *h)
{
    struct turn_done_event done;
    struct error e = {0};

    h->text[0] = 0;
    h->len = 0;
    h->prefill_done = 0;
    h->tokens = 0;
    ck_assert_msg(ask(g, t, hear, h, &done, &e) == 0, "%s", e.text);
    ck_assert_int_eq(memcmp(&done, &h->last, sizeof done), 0);
    return done;
}

static struct heard *fresh(void)
{
    static struct heard h;

    memset(&h, 0, sizeof h);
    return &h;
}

START_TEST(a_turn_answers)
{
    struct engine *g = open_demo();
    struct message m[] = {
        {.role = ROLE_USER,
         .text = "Tell me a story about a little robot who is afraid of the dark."}};
    struct request_fields t = turn_of(m, 1, -1);
    struct heard *h = fresh();
    struct turn_done_event done = run(g, &t, h);
    const struct telemetry *s = engine_telemetry(g);
    uint64_t sum = 0;

    printf("%s\n[%s, %d tokens]\n", h->text, stop_reason_word(done.reason), done.completion_tokens);
    ck_assert_int_eq(done.reason, STOP_TOKEN);
    ck_assert_int_eq(done.prompt_tokens, 18); /* as in the golden chat */
    ck_assert_int_gt(done.completion_tokens, 50);
    ck_assert_int_eq(h->tokens, done.completion_tokens);
    ck_assert_int_eq(h->started, 1);
    ck_assert_int_eq(h->done, 1);
    ck_assert_int_eq(h->notices, 0);
    ck_assert_uint_eq(h->prefill_done, 18);
    ck_assert_uint_gt(done.ttft_ns, 0);
    ck_assert_uint_le(done.ttft_ns + done.decode_ns, done.total_ns);
    /* telemetry agrees with a recount */
    ck_assert_int_eq(s->generated_tokens, done.completion_tokens);
    ck_assert_int_eq(s->prompt_tokens, 18);
    ck_assert_int_eq(s->context_used, engine_session_tokens(g, NULL));
    ck_assert_int_eq(s->context_used, 18 + done.completion_tokens);
    ck_assert_double_eq_tol(s->decode_tok_s,
                            (done.completion_tokens - 1) * 1e9 / (double)done.decode_ns,
                            1e-6 * s->decode_tok_s);
    for (int i = 0; i < s->n_layers * s->n_experts; i++)
        sum += s->session[i];
    ck_assert_uint_eq(sum, (uint64_t)s->context_used * (uint64_t)s->n_layers * 2u);
    sum = 0;
    for (int i = 0; i < s->n_layers * s->n_experts; i++)
        sum += s->answer[i];
    ck_assert_uint_eq(sum, (uint64_t)done.completion_tokens * (uint64_t)s->n_layers * 2u);
    ck_assert_uint_eq(s->recent_count, (uint64_t)done.completion_tokens - 1);
    ck_assert_int_eq(s->n_plans, 1);
    ck_assert_str_eq(s->plans[0].name, "cpu");
    ck_assert_uint_eq(s->plans[0].tokens, (uint64_t)done.completion_tokens - 1);
    ck_assert_uint_gt(s->devices[0].busy_ns, 0);
    ck_assert_uint_gt(s->kv_bytes, 0);
    ck_assert_int_eq(s->state, ENGINE_IDLE);
    close_engine(g);
}
END_TEST

START_TEST(the_next_turn_keeps_the_prefix)
{
    struct engine *g = open_demo();
    struct message m[] = {{.role = ROLE_USER, .text = "Tell me a story about a fox."},
                          {.role = ROLE_ASSISTANT, .text = NULL},
                          {.role = ROLE_USER, .text = "Tell me another story about a bear."}};
    struct request_fields t = turn_of(m, 1, 60);
    struct heard *h = fresh();
    struct turn_done_event done = run(g, &t, h);
    char *answer = strdup(h->text), *second;
    int used = engine_session_tokens(g, NULL);

    /* a sampled answer is not always what the tokenizer would make of its text */
    t.turn.sampling.temperature = 0.9f;
    m[1].text = answer;
    t.said.n_messages = 3;
    done = run(g, &t, h);
    ck_assert_int_ge(done.cached_tokens, used);
    second = strdup(h->text);
    ck_assert_int_gt(done.completion_tokens, 5);
    /* the same turn on an empty session says the same */
    forget(g);
    done = run(g, &t, h);
    ck_assert_int_eq(done.cached_tokens, 0);
    ck_assert_str_eq(h->text, second);
    /* and again: all but the last prompt token is found in the cache */
    done = run(g, &t, h);
    ck_assert_int_eq(done.cached_tokens, done.prompt_tokens - 1);
    ck_assert_str_eq(h->text, second);
    free(answer);
    free(second);
    close_engine(g);
}
END_TEST

START_TEST(sampled_answers_are_found_again)
{
    struct engine *g = open_demo();
    struct heard *h = fresh();
    char *answers[8];
    struct message m[17];

    for (int i = 0; i < 8; i++) {
        struct request_fields t = turn_of(m, (size_t)(2 * i + 1), 20);
        int before = engine_session_tokens(g, NULL);
        struct turn_done_event done;

        m[2 * i] = (struct message){.role = ROLE_USER, .text = "Once more, please!"};
        t.turn.sampling = (struct sampling){
            .temperature = 2.5f, .top_p = 1.0f, .repeat_penalty = 1.0f, .seed = (uint64_t)i};
        done = run(g, &t, h);
        ck_assert_msg(done.cached_tokens >= before, "turn %d: %d of %d tokens were cached", i,
                      done.cached_tokens, before);
        answers[i] = strdup(h->text);
        m[2 * i + 1] = (struct message){.role = ROLE_ASSISTANT, .text = answers[i]};
    }
    for (int i = 0; i < 8; i++)
        free(answers[i]);
    close_engine(g);
}
END_TEST

START_TEST(an_answer_can_be_continued)
{
    struct engine *g = open_demo();
    struct message m[] = {{.role = ROLE_USER, .text = "Tell me a story about a fox."},
                          {.role = ROLE_ASSISTANT, .text = NULL}};
    struct request_fields t = turn_of(m, 1, 60);
    struct heard *h = fresh();
    char *whole, *part;

    run(g, &t, h);
    whole = strdup(h->text);
    t.turn.max_tokens = 25;
    run(g, &t, h);
    part = strdup(h->text);
    m[1].text = part;
    t.said.n_messages = 2;
    t.said.continue_last = true;
    t.turn.max_tokens = 35;
    run(g, &t, h);
    ck_assert_msg(strncmp(whole, part, strlen(part)) == 0, "greedy is greedy");
    ck_assert_str_eq(h->text, whole + strlen(part));
    free(whole);
    free(part);
    close_engine(g);
}
END_TEST

START_TEST(stop_reasons)
{
    struct engine *g = open_demo();
    struct message m[] = {{.role = ROLE_USER, .text = "Tell me a story about a fox."}};
    struct request_fields t = turn_of(m, 1, 40);
    struct heard *h = fresh();
    struct turn_done_event done = run(g, &t, h);
    char *whole = strdup(h->text), stop[32], *stops[2];
    size_t at = strlen(whole) / 2;

    ck_assert_int_eq(done.reason, STOP_LENGTH);
    ck_assert_int_eq(done.completion_tokens, 40);
    t.turn.max_tokens = 0;
    done = run(g, &t, h);
    ck_assert_int_eq(done.reason, STOP_LENGTH);
    ck_assert_int_eq(done.completion_tokens, 0);
    /* a stop string from the middle of the text, straddling tokens at every offset */
    t.turn.max_tokens = 40;
    for (size_t k = 0; k < 12; k += SLOW ? 6 : 1) {
        char *first;

        snprintf(stop, sizeof stop, "%.9s", whole + at + k);
        stops[0] = "never in there";
        stops[1] = stop;
        t.turn.stops = stops;
        t.turn.n_stops = 2;
        first = strstr(whole, stop);
        done = run(g, &t, h);
        ck_assert_int_eq(done.reason, STOP_STRING);
        ck_assert_uint_eq(h->len, (size_t)(first - whole));
        ck_assert_int_eq(memcmp(h->text, whole, h->len), 0);
    }
    /* held back for a stop string that never comes, but not lost */
    snprintf(stop, sizeof stop, "%.8s\001", whole + strlen(whole) - 8);
    t.turn.n_stops = 2;
    done = run(g, &t, h);
    ck_assert_str_eq(h->text, whole);
    t.turn.n_stops = 0;
    /* cancelled: the session ends with a whole token, and goes on as if nothing had been */
    h->cancel_after = 13;
    done = run(g, &t, h);
    ck_assert_int_eq(done.reason, STOP_CANCELLED);
    ck_assert_int_eq(done.completion_tokens, 13);
    h->cancel_after = 0;
    done = run(g, &t, h);
    ck_assert_str_eq(h->text, whole);
    h->cancel_in_prefill = true;
    forget(g);
    done = run(g, &t, h);
    ck_assert_int_eq(done.reason, STOP_CANCELLED);
    ck_assert_int_eq(done.completion_tokens, 0);
    h->cancel_in_prefill = false;
    done = run(g, &t, h);
    ck_assert_str_eq(h->text, whole);
    free(whole);
    close_engine(g);
}
END_TEST

START_TEST(the_context_ends)
{
    struct engine_config c = demo_config();
    struct engine *g;
    struct message m[] = {{.role = ROLE_USER, .text = "Tell me a story about a fox."}};
    struct request_fields t = turn_of(m, 1, -1);
    struct heard *h = fresh();
    struct turn_done_event done;
    struct error e = {0};
    char longer[4096];

    c.context = 64;
    g = open_with(&c);
    t.turn.ignore_eos = true;
    done = run(g, &t, h);
    ck_assert_int_eq(done.reason, STOP_CONTEXT);
    ck_assert_int_eq(engine_session_tokens(g, NULL), 64);
    ck_assert_int_eq(done.completion_tokens, 64 - done.prompt_tokens + 1);
    for (size_t i = 0; i + 5 < sizeof longer; i += 5)
        memcpy(longer + i, "once ", 6);
    m[0].text = longer;
    ck_assert_int_eq(ask(g, &t, hear, h, &done, &e), ERR_CONTEXT);
    ck_assert_ptr_nonnull(strstr(e.text, "-c"));
    ck_assert_int_eq(done.reason, STOP_ERROR);
    close_engine(g);
}
END_TEST

START_TEST(oldest_turns_are_dropped)
{
    struct engine_config c = demo_config();
    struct engine *g;
    struct message m[64] = {{.role = ROLE_SYSTEM, .text = "You tell stories."}};
    struct request_fields t;
    struct heard *h = fresh();
    char *answers[32];
    int n = 1, dropped = 0, turns = 0, with_cache = 0;
    const int *ids;
    int *head, n_head, starts[3];
    struct error e;

    c.context = 256;
    g = open_with(&c);
    ck_assert_int_eq(chat_template_encode(engine_info(g)->chat, m, 1, NULL, true, NULL, &head,
                                          &n_head, starts, &e),
                     0);
    n_head = starts[1];
    for (; turns < 14; turns++) {
        struct turn_done_event done;

        m[n++] = (struct message){
            .role = ROLE_USER,
            .text = "Tell me a story about a fox and a bear and a little red bird, please."};
        t = turn_of(m, (size_t)n, 24);
        done = run(g, &t, h);
        ck_assert_int_ge(done.dropped_turns, dropped ? 1 : 0);
        with_cache += done.dropped_turns && done.dropped_turns == dropped &&
                      done.cached_tokens > n_head;
        dropped = done.dropped_turns;
        ck_assert_int_le(engine_session_tokens(g, &ids), 256);
        /* the system message stays */
        ck_assert_int_eq(memcmp(ids, head, (size_t)n_head * sizeof *head), 0);
        ck_assert_int_gt(done.completion_tokens, 0);
        answers[turns] = strdup(h->text);
        m[n++] = (struct message){.role = ROLE_ASSISTANT, .text = answers[turns]};
    }
    ck_assert_int_gt(dropped, 3);
    ck_assert_int_gt(with_cache, 2); /* not every turn is prefilled anew */
    ck_assert_int_gt(h->notices, 0);
    ck_assert_ptr_nonnull(strstr(h->notice, "oldest turn"));
    for (int i = 0; i < turns; i++)
        free(answers[i]);
    mem_free(head);
    close_engine(g);
}
END_TEST

START_TEST(raw_text_is_continued)
{
    struct engine *g = open_demo();
    struct message m[] = {{.role = ROLE_USER, .text = "Once upon a time, there was a"}};
    struct request_fields t = turn_of(m, 1, 20);
    struct heard *h = fresh();
    struct turn_done_event done;
    struct error e = {0};
    int *ids, n;

    t.said.raw = true;
    ck_assert_int_eq(tokenizer_encode(engine_info(g)->tokenizer, m[0].text, strlen(m[0].text), true,
                                      &ids, &n, &e),
                     0);
    done = run(g, &t, h);
    printf("raw: %s\n", h->text);
    ck_assert_int_ge(done.prompt_tokens, n);
    ck_assert_int_le(done.prompt_tokens, n + 1);
    ck_assert_int_eq(h->text[0], ' '); /* a word goes on after a space */
    mem_free(ids);
    close_engine(g);
}
END_TEST

/* A file whose template is damaged to the empty text: an error, no read before the first token. */
START_TEST(a_template_that_says_nothing)
{
    struct engine_config c = demo_config();
    struct message m[] = {{.role = ROLE_USER, .text = "Hello."}};
    struct request_fields t = turn_of(m, 1, 4);
    struct heard *h = fresh();
    struct turn_done_event done;
    struct error e = {0};
    struct engine *g;
    char path[300], *bytes = NULL, *at;
    size_t n = 0;
    FILE *f = fopen(c.model_path, "rb");

    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
    n = (size_t)ftell(f);
    rewind(f);
    bytes = malloc(n);
    ck_assert_uint_eq(fread(bytes, 1, n, f), n);
    fclose(f);
    at = memmem(bytes, n, "{% for message", 14);
    ck_assert_ptr_nonnull(at);
    *at = 0;
    snprintf(path, sizeof path, "%s/silent.gguf", support_tmpdir());
    f = fopen(path, "wb");
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    fclose(f);
    free(bytes);
    c.model_path = path;
    g = open_with(&c);
    ck_assert_int_eq(ask(g, &t, hear, h, &done, &e), ERR_MODEL);
    ck_assert_msg(strstr(e.text, "template"), "%s", e.text);
    t.said.raw = true; /* without it the model still answers */
    ck_assert_int_eq(ask(g, &t, hear, h, &done, &e), 0);
    close_engine(g);
}
END_TEST

START_TEST(same_seed_same_text)
{
    static const struct {
        const char *kernels;
        int threads, ubatch;
    } ways[] = {{NULL, 2, 512}, {"scalar", 1, 5}, {"avx2", 2, 1}, {"avx512", 1, 16}, {NULL, 1, 3}};
    struct message m[] = {{.role = ROLE_SYSTEM, .text = "You tell short stories."},
                          {.role = ROLE_USER, .text = "Tell me a story about a fox."}};
    char *first = NULL, *other = NULL;

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i += SLOW ? 4 : 1) {
        struct engine_config c = demo_config();
        struct request_fields t = turn_of(m, 2, 40);
        struct engine *g = NULL;
        struct heard *h = fresh();
        struct error e = {0};

        c.kernels = ways[i].kernels;
        c.n_threads = ways[i].threads;
        c.ubatch = ways[i].ubatch;
        t.turn.sampling = (struct sampling){.temperature = 0.9f,
                                            .top_k = 40,
                                            .top_p = 0.95f,
                                            .min_p = 0.05f,
                                            .repeat_penalty = 1.1f,
                                            .repeat_last_n = 64,
                                            .seed = 42};
        if (engine_open(&g, &c, &e) < 0) {
            ck_assert_int_eq(e.code, ERR_USAGE);
            printf("not on this CPU: %s\n", e.text);
            continue;
        }
        run(g, &t, h);
        if (!first) {
            first = strdup(h->text);
            t.turn.sampling.seed = 43;
            run(g, &t, h);
            ck_assert_str_ne(first, h->text);
        }
        t.turn.sampling.seed = 42;
        other = strdup((run(g, &t, h), h->text));
        ck_assert_str_eq(first, other);
        free(other);
        close_engine(g);
    }
    cpu_kernels_select(NULL, NULL);
    free(first);
}
END_TEST

/* One forward step's worth of pauses: 30 tokens at 200 a second take 145 ms or more, and no rate
 * knows of it. */
START_TEST(pacing_slows_the_answer_not_the_rate)
{
    struct engine *g = open_demo();
    struct message m[] = {{.role = ROLE_USER, .text = "Tell me a story about a fox."}};
    struct request_fields t = turn_of(m, 1, 30);
    struct heard *h = fresh();
    struct turn_done_event done;
    const struct telemetry *s = engine_telemetry(g);

    engine_pace_set(g, 200);
    done = run(g, &t, h);
    ck_assert_int_eq(done.completion_tokens, 30);
    ck_assert_uint_ge(done.total_ns, 145 * CLOCK_MILLI);
    ck_assert_uint_ge(s->paused_ns + done.decode_ns, 145 * CLOCK_MILLI);
    ck_assert_uint_lt(done.decode_ns, done.total_ns);
    ck_assert_double_eq_tol(s->pace, 200, 1e-9);
    engine_pace_set(g, 0);
    close_engine(g);
}
END_TEST

static int cancel_soon(void *ctx, struct event *ev)
{
    if (ev->kind == EVENT_TOKEN)
        engine_session_cancel(engine_session(ctx));
    return 0;
}

START_TEST(a_pause_can_be_cancelled)
{
    struct engine *g = open_demo();
    struct message m[] = {{.role = ROLE_USER, .text = "Tell me a story about a fox."}};
    struct request_fields t = turn_of(m, 1, 30);
    struct turn_done_event done;
    uint64_t start = clock_now();

    engine_pace_set(g, 0.05); /* a token every 20 s */
    ck_assert_int_eq(ask(g, &t, cancel_soon, g, &done, NULL), 0);
    ck_assert_int_eq(done.reason, STOP_CANCELLED);
    ck_assert_int_eq(done.completion_tokens, 1);
    ck_assert_uint_lt(clock_now() - start, 10 * CLOCK_SECOND);
    close_engine(g);
}
END_TEST

static int cancel_by_event(void *ctx, struct event *ev)
{
    return ev->kind == EVENT_TOKEN;
}

/* A cancel ends one piece of work: that under way, or the next. */
START_TEST(a_cancel_is_not_lost)
{
    struct engine *g = open_demo();
    struct message m[] = {{.role = ROLE_USER, .text = "Tell me a story about a fox."}};
    struct request_fields t = turn_of(m, 1, 3);
    struct turn_done_event done;
    int id = 100;

    for (int raw = 0; raw < 2; raw++) {
        t.said.raw = raw;
        engine_session_cancel(engine_session(g)); /* before the turn began */
        ck_assert_int_eq(ask(g, &t, cancel_by_event, g, &done, NULL), 0);
        ck_assert_int_eq(done.reason, STOP_CANCELLED);
        ck_assert_int_eq(done.completion_tokens, 0);
        ck_assert_int_eq(ask(g, &t, cancel_by_event, g, &done, NULL), 0);
        ck_assert_int_eq(done.reason, STOP_CANCELLED);
        ck_assert_int_eq(done.completion_tokens, 1);
        /* what comes next is not meant */
        ck_assert_int_eq(engine_eval(g, &id, 1, NULL, false, NULL), 0);
    }
    close_engine(g);
}
END_TEST

START_TEST(sessions_rewind_and_refuse)
{
    struct engine *g = open_demo();
    int ids[600], n_vocab = engine_info(g)->model->hp.n_vocab;
    float *a = malloc((size_t)n_vocab * sizeof *a), *b = malloc((size_t)n_vocab * sizeof *b);
    struct error e = {0};

    for (int i = 0; i < 600; i++)
        ids[i] = 100 + i;
    ck_assert_int_eq(engine_eval(g, ids, 600, NULL, false, &e), ERR_CONTEXT);
    ck_assert_int_eq(engine_eval(g, ids, 0, NULL, false, &e), ERR_USAGE);
    ids[3] = n_vocab;
    ck_assert_int_eq(engine_eval(g, ids, 10, NULL, false, &e), ERR_USAGE);
    ids[3] = -1;
    ck_assert_int_eq(engine_eval(g, ids, 10, NULL, false, &e), ERR_USAGE);
    ids[3] = 103;
    ck_assert_int_eq(engine_session_tokens(g, NULL), 0);
    ck_assert_int_eq(engine_eval(g, ids, 50, a, false, &e), 0);
    ck_assert_int_eq(engine_eval(g, ids + 50, 20, b, false, &e), 0);
    engine_session_rewind(g, 49);
    ck_assert_int_eq(engine_session_tokens(g, NULL), 49);
    ck_assert_int_eq(engine_eval(g, ids + 49, 1, b, false, &e), 0);
    ck_assert_int_eq(memcmp(a, b, (size_t)n_vocab * sizeof *a), 0);
    engine_session_cancel(engine_session(g));
    ck_assert_int_eq(engine_eval(g, ids, 10, NULL, false, &e), ERR_CANCELLED);
    ck_assert_int_eq(engine_session_tokens(g, NULL), 50);
    ck_assert_int_eq(engine_eval(g, ids + 50, 10, NULL, false, &e), 0);
    free(a);
    free(b);
    close_engine(g);
}
END_TEST

START_TEST(a_trace_tells_where_time_went)
{
    struct engine *g = open_demo();
    struct message m[] = {{.role = ROLE_USER, .text = "Hello"}};
    struct request_fields t = turn_of(m, 1, 3);
    struct heard *h = fresh();
    struct error e = {0};
    char *text, *untraced;
    size_t len, kinds[TRACE_KINDS] = {0};
    json_t *all;

    run(g, &t, h);
    untraced = strdup(h->text);
    forget(g);
    ck_assert_int_eq(engine_trace_start(g, 10000, &e), 0);
    run(g, &t, h);
    ck_assert_str_eq(h->text, untraced); /* job by job or fused: the same text */
    ck_assert_int_eq(engine_trace_start(g, 0, &e), 0);
    for (size_t i = 0; i < engine_trace(g)->n; i++)
        kinds[engine_trace(g)->entries[i].kind]++;
    ck_assert_uint_eq(kinds[TRACE_ATTENTION], 3 * (size_t)engine_info(g)->model->hp.n_layers);
    ck_assert_uint_eq(kinds[TRACE_EXPERTS], kinds[TRACE_ATTENTION]);
    ck_assert_uint_eq(kinds[TRACE_HEAD], 3);
    ck_assert_uint_eq(kinds[TRACE_SAMPLE], 3);
    ck_assert_int_eq(trace_json(engine_trace(g), NULL, NULL, &text, &len, &e), 0);
    all = json_read(text, len, "trace", &e);
    ck_assert_ptr_nonnull(all);
    ck_assert_uint_eq(json_array_size(json_object_get(all, "traceEvents")), engine_trace(g)->n + 2);
    json_decref(all);
    mem_free(text);
    free(untraced);
    close_engine(g);
}
END_TEST

static int count_chosen(const struct engine *g, int layer, int expert)
{
    int positions[512], n = engine_expert_tokens(g, layer, expert, positions, 512);

    for (int i = 1; i < n; i++)
        ck_assert_int_lt(positions[i - 1], positions[i]);
    return n;
}

struct chosen {
    const struct imposed_routing *want;
    int rows, wrong;
};

static void compare_routing(void *ctx, const struct routing *r)
{
    struct chosen *c = ctx;

    c->rows += r->rows;
    for (int l = 0; l < r->n_layers; l++)
        for (int row = 0; row < r->rows; row++)
            for (int i = 0; i < r->used; i++)
                c->wrong +=
                    r->experts[(size_t)l * r->layer_stride + (size_t)(row * r->used + i)] !=
                    c->want->experts[(l * c->want->period + (r->pos + row) % c->want->period) *
                                         r->used +
                                     i];
}

/* A benchmark may impose the choice of experts: in every kind of pass, and without a trace once it
 * is off. */
START_TEST(routing_can_be_imposed)
{
    struct engine *g = open_demo();
    const struct hparams *hp = &engine_info(g)->model->hp;
    size_t n_vocab = (size_t)hp->n_vocab, row = (size_t)hp->n_experts_used;
    float *plain = mem_alloc(n_vocab, sizeof *plain),
          *imposed = mem_alloc(n_vocab, sizeof *imposed);
    uint16_t *table = mem_alloc((size_t)hp->n_layers * 5 * row, sizeof *table);
    struct imposed_routing r = {.period = 5, .experts = table};
    struct chosen c = {.want = &r};
    struct error e = {0};
    int ids[24];

    for (int i = 0; i < 24; i++)
        ids[i] = 100 + i;
    for (size_t i = 0; i < (size_t)hp->n_layers * 5 * row; i++)
        table[i] = (uint16_t)((i + i / row) % (size_t)hp->n_experts);
    ck_assert_int_eq(engine_eval(g, ids, 24, plain, false, &e), 0);
    engine_routing_impose(g, &r);
    engine_observe(g, compare_routing, &c);
    for (int traced = 0; traced < 2; traced++) { /* traced: every block a job of its own */
        forget(g);
        ck_assert_int_eq(engine_trace_start(g, traced ? 4096 : 0, &e), 0);
        ck_assert_int_eq(engine_eval(g, ids, 16, NULL, false, &e), 0);
        for (int i = 16; i < 24; i++)
            ck_assert_int_eq(engine_eval(g, ids + i, 1, imposed, false, &e), 0);
    }
    ck_assert_int_eq(c.rows, 48);
    ck_assert_int_eq(c.wrong, 0);
    ck_assert_int_ne(memcmp(plain, imposed, n_vocab * sizeof *plain), 0);
    engine_observe(g, NULL, NULL);
    engine_routing_impose(g, NULL);
    forget(g);
    ck_assert_int_eq(engine_eval(g, ids, 24, imposed, false, &e), 0);
    ck_assert_int_eq(memcmp(plain, imposed, n_vocab * sizeof *plain), 0);
    mem_free(plain);
    mem_free(imposed);
    mem_free(table);
    close_engine(g);
}
END_TEST

/* "L3 5 2": the first expert that the words name for a layer. */
static int first_named(const char *words, int layer)
{
    char head[16];
    const char *at;

    snprintf(head, sizeof head, "L%d ", layer);
    at = strstr(words, head);
    ck_assert_ptr_nonnull(at);
    return atoi(at + strlen(head));
}

START_TEST(experts_of_a_token)
{
    struct engine *g = open_demo();
    struct message m[] = {{.role = ROLE_USER, .text = "Tell me a story about a fox."}};
    struct request_fields t = turn_of(m, 1, 20);
    struct heard *h = fresh();
    const struct telemetry *s = engine_telemetry(g);
    int route = s->n_layers * s->n_experts_used;
    struct error e = {0};
    char *text;

    run(g, &t, h);
    ck_assert_int_eq(h->tokens, 20);
    /* the telemetry noted the same while they were made */
    for (int i = 0; i < h->tokens; i++) {
        ck_assert_int_eq(engine_token_experts(g, h->ids, h->tokens, i, &text, &e), 0);
        for (int l = 0; l < s->n_layers; l++)
            ck_assert_int_eq(first_named(text, l), s->routes[i * route + l * s->n_experts_used]);
        mem_free(text);
    }
    h->ids[3]++;
    ck_assert_int_eq(engine_token_experts(g, h->ids, h->tokens, 0, &text, &e), ERR_USAGE);
    close_engine(g);
}
END_TEST

START_TEST(who_chose_an_expert)
{
    struct engine *g = open_demo();
    struct message m[] = {{.role = ROLE_USER, .text = "Tell me a story about a fox."}};
    struct request_fields t = turn_of(m, 1, 50);
    struct heard *h = fresh();
    const struct telemetry *s = engine_telemetry(g);
    struct error e = {0};
    char *text;

    engine_timeline_set(g, true);
    run(g, &t, h);
    for (int l = 0; l < s->n_layers; l++)
        for (int x = 0; x < s->n_experts; x++)
            ck_assert_int_eq(count_chosen(g, l, x), (int)s->session[l * s->n_experts + x]);
    ck_assert_int_eq(engine_expert_report(g, 3, 5, &text, &e), 0);
    printf("%s", text);
    ck_assert_ptr_nonnull(strstr(text, "layer 3, expert 5"));
    mem_free(text);
    ck_assert_int_eq(engine_expert_report(g, 3, 99, &text, &e), ERR_USAGE);
    /* the first token was traced: every block of it, in order, inside the token's time */
    ck_assert_int_eq(s->n_spans, 4 * s->n_layers + 2);
    for (int i = 1; i < s->n_spans; i++)
        ck_assert_uint_ge(s->spans[i].start_us + 1,
                          s->spans[i - 1].start_us + s->spans[i - 1].duration_us);
    engine_timeline_set(g, false);
    ck_assert_int_eq(s->n_spans, 0);
    close_engine(g);
}
END_TEST

/* Every allocation of opening fails once: an error each time, nothing leaks (ASan sees), and then
 * it works. */
START_TEST(opening_survives_every_failed_allocation)
{
    struct engine_config c = demo_config();
    struct engine *g = NULL;
    struct error e = {0};
    long n, step = 1;

    c.context = 64;
    c.ubatch = 8;
    c.n_threads = 1;
    for (n = 0; n < 100000; n += step) {
        mem_fail_after(n);
        if (engine_open(&g, &c, &e) == 0)
            break;
        ck_assert_ptr_null(g);
        ck_assert_int_ne(e.text[0], 0);
        if (n >= 40 || SLOW)
            step = 97; /* the tokenizer's thousands are all alike */
    }
    mem_fail_after(-1);
    printf("opened after %ld allocations\n", n);
    ck_assert_ptr_nonnull(g);
    close_engine(g);
}
END_TEST

/* The same for a turn: it fails with a clear error or says what it always says, and the session
 * stays of use. */
START_TEST(a_turn_survives_every_failed_allocation)
{
    struct engine *g = open_demo();
    struct message m[] = {{.role = ROLE_SYSTEM, .text = "You tell stories."},
                          {.role = ROLE_USER, .text = "Tell me a story about a fox."}};
    char *stops[] = {"never in there"};
    struct request_fields t = turn_of(m, 2, 12);
    struct heard *h = fresh();
    char *want;
    long n, failed = 0;

    t.turn.stops = stops;
    t.turn.n_stops = 1;
    run(g, &t, h);
    want = strdup(h->text);
    for (n = 0;; n += n < 40 ? 1 : SLOW ? 31 : 7) {
        struct turn_done_event done;
        struct error e = {0};
        int rc;

        h->len = h->tokens = 0;
        h->prefill_done = 0;
        mem_fail_after(n);
        rc = ask(g, &t, hear, h, &done, &e);
        mem_fail_after(-1);
        if (rc == 0) {
            ck_assert_str_eq(h->text, want);
            if (!failed || n > 5000)
                break;
            failed = 0; /* twice in a row without a failure: nothing is left to fail */
            continue;
        }
        ck_assert_int_eq(rc, ERR_MEMORY);
        ck_assert_int_ne(e.text[0], 0);
        failed++;
    }
    printf("a turn: %ld allocations\n", n);
    run(g, &t, h);
    ck_assert_str_eq(h->text, want);
    free(want);
    close_engine(g);
}
END_TEST

/* Giving up at any moment that opening asks: always the same error, nothing left behind (asan), and
 * never an engine. */
static atomic_int asked, patience;

static bool out_of_patience(void *ctx)
{
    return atomic_fetch_add(&asked, 1) >= atomic_load(&patience);
}

static int eval_once(void *ctx, struct engine *g, struct error *e)
{
    int id = 1;

    return engine_eval(g, &id, 1, NULL, false, e);
}

START_TEST(opening_can_be_given_up_anywhere)
{
    struct engine_config c = {.model_path = support_path("golden/phimoe/phimoe-16x-bf16"),
                              .context = 64,
                              .n_threads = 2,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .convert = DTYPE_Q8_0,
                              .no_tokenizer = true,
                              .stop = out_of_patience,
                              .opened = eval_once};
    struct error e = {0};
    struct engine *g = NULL;
    int rc = -1, n = 0;

    for (; rc < 0 && n < 2000; n += SLOW ? 3 : 1) {
        atomic_store(&asked, 0);
        atomic_store(&patience, n);
        rc = engine_open(&g, &c, &e);
        ck_assert_msg(rc == 0 || (rc == ERR_CANCELLED && !g), "%d: %s", rc, e.text);
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_int_gt(n, 8); /* pieces, stages, layers */
    /* an open engine goes on asking */
    atomic_store(&patience, 0);
    ck_assert_int_eq(eval_once(NULL, g, &e), ERR_CANCELLED);
    atomic_store(&patience, INT_MAX);
    ck_assert_int_eq(eval_once(NULL, g, &e), 0);
    close_engine(g);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("engine");
    TCase *t = tcase_create("engine");

    tcase_set_timeout(t, 240);
    if (!SLOW) { /* what a session remembers: a matter of one thread */
        tcase_add_test(t, the_next_turn_keeps_the_prefix);
        tcase_add_test(t, sampled_answers_are_found_again);
        tcase_add_test(t, an_answer_can_be_continued);
        tcase_add_test(t, the_context_ends);
        tcase_add_test(t, oldest_turns_are_dropped);
    }
    tcase_add_test(t, a_turn_answers);
    tcase_add_test(t, answers_before_the_weights_are_packed);
    tcase_add_test(t, stop_reasons);
    tcase_add_test(t, raw_text_is_continued);
    tcase_add_test(t, a_template_that_says_nothing);
    tcase_add_test(t, same_seed_same_text);
    tcase_add_test(t, pacing_slows_the_answer_not_the_rate);
    tcase_add_test(t, a_pause_can_be_cancelled);
    tcase_add_test(t, a_cancel_is_not_lost);
    tcase_add_test(t, sessions_rewind_and_refuse);
    tcase_add_test(t, a_trace_tells_where_time_went);
    tcase_add_test(t, routing_can_be_imposed);
    tcase_add_test(t, experts_of_a_token);
    tcase_add_test(t, who_chose_an_expert);
    tcase_add_test(t, a_turn_survives_every_failed_allocation);
    tcase_add_test(t, opening_survives_every_failed_allocation);
    tcase_add_test(t, opening_can_be_given_up_anywhere);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    support_kernel_sets();
    return support_run(suite());
}
