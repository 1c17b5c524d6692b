/* The engine thread as the UI meets it: commands down, events and telemetry up, cancel and shutdown
 * at any moment. Meant for TSan. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/model/model.h"
#include "engine/run/prompt.h"
#include "engine/run/worker/worker.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/support.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As in check_engine. */
#ifdef __SANITIZE_THREAD__
#define SLOW true
#else
#define SLOW false
#endif

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

/* What came up the ring so far. */
struct seen {
    int loading, ready, started, prefill, tokens, done, plans, notices, reports, errors, stopped;
    char text[65536], error[512];
    size_t len;
    struct turn_done_event last;
};

static struct seen *fresh(void)
{
    static struct seen s;

    memset(&s, 0, sizeof s);
    return &s;
}

static void note(struct seen *s, struct event *ev)
{
    switch (ev->kind) {
    case EVENT_LOADING: s->loading++; break;
    case EVENT_READY: s->ready++; break;
    case EVENT_TURN_STARTED: s->started++; break;
    case EVENT_PREFILL: s->prefill++; break;
    case EVENT_TOKEN:
        s->tokens += ev->token.id >= 0;
        memcpy(s->text + s->len, ev->token.text, ev->token.len + 1u);
        s->len += ev->token.len;
        break;
    case EVENT_TURN_DONE:
        s->done++;
        s->last = ev->done_turn;
        break;
    case EVENT_PLAN: s->plans++; break;
    case EVENT_NOTICE: s->notices++; break;
    case EVENT_PROGRESS: break;
    case EVENT_LOGPROBS: break;
    case EVENT_EMBEDDING: break;
    case EVENT_REPORT: s->reports++; break;
    case EVENT_ERROR:
        s->errors++;
        snprintf(s->error, sizeof s->error, "%s", ev->text);
        break;
    case EVENT_STOPPED: s->stopped++; break;
    }
    event_release(ev);
}

/* Drains until *count reaches want; the descriptor alone wakes us. */
static void wait_on(struct client *c, struct seen *s, const int *count, int want)
{
    struct event ev;

    while (*count < want) {
        struct pollfd p = {.fd = client_event_fd(c), .events = POLLIN};

        ck_assert_msg(poll(&p, 1, 60000) == 1, "no event in 60 s");
        while (client_next_event(c, &ev))
            note(s, &ev);
        ck_assert_msg(!s->errors || count == &s->errors || count == &s->stopped, "%s", s->error);
    }
}

static void wait_for(struct worker *w, struct seen *s, const int *count, int want)
{
    wait_on(worker_client(w), s, count, want);
}

static struct worker *start(const struct engine_config *c)
{
    struct worker *w = NULL;
    struct error e = {0};

    ck_assert_msg(worker_start(&w, c, &e) == 0, "%s", e.text);
    return w;
}

/* Tokenizer and template of the demo model, which prompts are made with on this thread; also before
 * the engine is there. */
static const struct engine_info *text_info(void)
{
    static struct engine_info info;
    static struct weight_file *file;
    static struct tokenizer *tokenizer;
    static struct chat_template *chat;
    struct error e = {0};

    if (!info.chat) {
        ck_assert_int_eq(weight_file_open(&file, support_demo(), true, &e), 0);
        ck_assert_int_eq(tokenizer_load(&tokenizer, file, &e), 0);
        ck_assert_int_eq(chat_template_load(&chat, file, tokenizer, NULL, &e), 0);
        info = (struct engine_info){.tokenizer = tokenizer, .chat = chat, .context = 512};
    }
    return &info;
}

static struct command turn_command(const char *text, int max_tokens)
{
    struct message m = {.role = ROLE_USER, .text = (char *)text};
    struct dialogue said = {.messages = &m, .n_messages = 1};
    struct command c = {.kind = COMMAND_TURN};
    struct error e = {0};

    ck_assert_msg(prompt_make(text_info(), NULL, &said, max_tokens, NULL, &c.turn.prompt, &e) == 0,
                  "%s", e.text);
    c.turn.max_tokens = max_tokens;
    c.turn.ignore_eos = true;
    c.turn.sampling = (struct sampling){.top_p = 1.0f, .repeat_penalty = 1.0f};
    return c;
}

static int send_turn(struct worker *w, const char *text, int max_tokens)
{
    struct command c = turn_command(text, max_tokens);

    return client_send(worker_client(w), &c, NULL);
}

static void send_number(struct worker *w, enum command_kind kind, double number)
{
    struct command c = {.kind = kind, .number = number};

    ck_assert_int_eq(client_send(worker_client(w), &c, NULL), 0);
}

static void send_place(struct worker *w, const char *spec)
{
    struct command c = {.kind = COMMAND_PLACE, .text = mem_string(spec)};

    ck_assert_int_eq(client_send(worker_client(w), &c, NULL), 0);
}

/* Who asks for a placement hears which one is in force then, also when what was asked for cannot
 * be: the screen marks it until then. */
START_TEST(a_placement_that_fails_is_answered)
{
    struct engine_config c = demo_config();
    struct worker *w = start(&c);
    struct seen *s = fresh();
    int plans;

    wait_for(w, s, &s->ready, 1);
    send_place(w, "cpu");
    wait_for(w, s, &s->plans, 1);
    plans = s->plans;
    send_place(w, "no-such-strategy");
    wait_for(w, s, &s->plans, plans + 1);
    ck_assert_int_gt(s->notices, 0);
    worker_stop(w);
}
END_TEST

START_TEST(turns_go_up_and_down)
{
    struct engine_config c = demo_config();
    struct worker *w = start(&c);
    struct seen *s = fresh();
    const struct telemetry *t;
    char *first;

    wait_for(w, s, &s->ready, 1);
    ck_assert_int_gt(s->loading, 0);
    ck_assert_ptr_nonnull(worker_info(w));
    ck_assert_int_eq(worker_info(w)->model->hp.n_experts, 16);
    ck_assert_ptr_nonnull(worker_telemetry(w));
    ck_assert_int_eq(send_turn(w, "Tell me a story about a fox.", 40), 0);
    wait_for(w, s, &s->done, 1);
    ck_assert_int_eq(s->started, 1);
    ck_assert_int_gt(s->prefill, 0);
    ck_assert_int_eq(s->tokens, 40);
    ck_assert_int_eq(s->last.completion_tokens, 40);
    ck_assert_int_eq(s->last.reason, STOP_LENGTH);
    t = worker_telemetry(w);
    ck_assert_int_eq(t->generated_tokens, 40);
    ck_assert_int_eq(t->state, ENGINE_IDLE);
    ck_assert_uint_gt(t->serial, 40);
    first = strdup(s->text);
    s->len = 0;
    /* who reads TURN_DONE may send at once */
    ck_assert_int_eq(send_turn(w, "Tell me a story about a fox.", 40), 0);
    wait_for(w, s, &s->done, 2);
    ck_assert_str_eq(s->text, first);
    ck_assert_int_gt(s->last.cached_tokens, 0);
    send_number(w, COMMAND_CLEAR, 0);
    s->len = 0;
    ck_assert_int_eq(send_turn(w, "Tell me a story about a fox.", 40), 0);
    wait_for(w, s, &s->done, 3);
    ck_assert_int_eq(s->last.cached_tokens, 0);
    ck_assert_str_eq(s->text, first);
    free(first);
    worker_stop(w);
}
END_TEST

START_TEST(busy_turns_are_refused_other_commands_taken)
{
    struct engine_config c = demo_config();
    struct worker *w;
    struct seen *s = fresh();
    struct command sampling = {
        .kind = COMMAND_SAMPLING,
        .sampling = {.temperature = 0.5f, .top_p = 1.0f, .repeat_penalty = 1.0f, .seed = 7}};
    struct command plan = {.kind = COMMAND_PLAN}, expert = {.kind = COMMAND_EXPERT};
    struct command busy;
    struct error e = {0};

    c.pace = 100;
    w = start(&c);
    wait_for(w, s, &s->ready, 1);
    ck_assert_int_eq(send_turn(w, "Tell me a story about a fox.", 300), 0);
    busy = turn_command("And another", 10);
    ck_assert_int_eq(client_send(worker_client(w), &busy, &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "under way"));
    wait_for(w, s, &s->tokens, 5);
    ck_assert_int_eq(client_send(worker_client(w), &sampling, NULL), 0);
    plan.plan = plan_new("mine", worker_info(w)->model->hp.n_layers,
                         worker_info(w)->model->hp.n_experts);
    ck_assert_int_eq(client_send(worker_client(w), &plan, NULL), 0);
    wait_for(w, s, &s->plans, 1);
    wait_for(w, s, &s->tokens, s->tokens + 2); /* telemetry follows with the next token */
    ck_assert_str_eq(worker_telemetry(w)->plan, "mine");
    send_place(w, "cpu");
    wait_for(w, s, &s->plans, 2);
    send_place(w, "no-such-plan");
    wait_for(w, s, &s->notices, 1);
    plan.plan = plan_new("of another model", 1, 1);
    ck_assert_int_eq(client_send(worker_client(w), &plan, NULL), 0);
    wait_for(w, s, &s->notices, 2);
    ck_assert_int_eq(s->done, 0);
    expert.expert.layer = 1;
    ck_assert_int_eq(client_send(worker_client(w), &expert, NULL), 0);
    wait_for(w, s, &s->reports, 1);
    send_number(w, COMMAND_TIMELINE, 1);
    send_number(w, COMMAND_PACE, 0);
    wait_for(w, s, &s->done, 1);
    ck_assert_int_gt(worker_telemetry(w)->n_spans, 0);
    ck_assert_int_eq(s->tokens, 300);
    ck_assert_double_eq_tol(worker_telemetry(w)->pace, 0, 1e-12);
    worker_stop(w);
}
END_TEST

START_TEST(cancel_ends_the_turn_it_meets)
{
    struct engine_config c = demo_config();
    struct worker *w;
    struct seen *s = fresh();

    w = start(&c);
    wait_for(w, s, &s->ready, 1);
    for (int i = 0; i < 12; i++) {
        int tokens = s->tokens;

        client_cancel(worker_client(w)); /* nothing runs: must not hit the next turn */
        ck_assert_int_eq(send_turn(w, "Tell me a story about a fox.", 450), 0);
        if (i % 3 == 1) /* one that was cancelled at once may never have started */
            wait_for(w, s, &s->started, s->started + 1);
        if (i % 3 == 2)
            wait_for(w, s, &s->tokens, tokens + 3);
        client_cancel(worker_client(w));
        wait_for(w, s, &s->done, i + 1);
        ck_assert_int_eq(s->last.reason, STOP_CANCELLED);
        ck_assert_int_lt(s->last.completion_tokens, 450);
        ck_assert_int_eq(s->tokens - tokens, s->last.completion_tokens);
    }
    client_cancel(worker_client(w));
    ck_assert_int_eq(send_turn(w, "Tell me a story about a fox.", 10), 0);
    wait_for(w, s, &s->done, 13);
    ck_assert_int_eq(s->last.reason, STOP_LENGTH);
    worker_stop(w);
}
END_TEST

START_TEST(stopping_at_any_moment)
{
    struct engine_config c = demo_config();
    struct seen *s;

    for (int i = 0; i < 12; i++) {
        struct worker *w = start(&c);

        s = fresh();
        if (i >= 2)
            clock_sleep((uint64_t)(i - 1) * 3 * CLOCK_MILLI); /* while loading */
        if (i >= 6) {
            wait_for(w, s, &s->ready, 1);
            ck_assert_int_eq(send_turn(w, "Tell me a story about a fox.", 450), 0);
        }
        if (i >= 8)
            wait_for(w, s, &s->tokens, i);
        /* undrained events and unread commands go with it (ASan sees) */
        worker_stop(w);
    }
}
END_TEST

START_TEST(nothing_is_lost_while_nobody_reads)
{
    struct engine_config c = demo_config();
    struct worker *w = start(&c);
    struct seen *s = fresh();
    const struct telemetry *t;

    wait_for(w, s, &s->ready, 1);
    ck_assert_int_eq(send_turn(w, "Tell me a story about a fox.", 450), 0);
    do { /* only telemetry is looked at until it is over */
        clock_sleep(2 * CLOCK_MILLI);
        t = worker_telemetry(w);
        ck_assert_int_le(t->generated_tokens, 450);
    } while (t->generated_tokens < 450 || t->state != ENGINE_IDLE);
    wait_for(w, s, &s->done, 1);
    ck_assert_int_eq(s->tokens, 450);
    worker_stop(w);
}
END_TEST

START_TEST(a_model_that_is_not_there)
{
    struct engine_config c = demo_config();
    struct worker *w;
    struct seen *s = fresh();
    struct command turn = turn_command("Hello", 1);
    struct error e = {0};

    c.model_path = "/nowhere/model.gguf";
    w = start(&c);
    wait_for(w, s, &s->stopped, 1);
    ck_assert_int_eq(s->errors, 1);
    ck_assert_ptr_nonnull(strstr(s->error, "/nowhere/model.gguf"));
    ck_assert_ptr_null(worker_info(w));
    ck_assert_ptr_null(worker_telemetry(w));
    ck_assert_int_eq(client_send(worker_client(w), &turn, &e), ERR_USAGE);
    worker_stop(w);
}
END_TEST

struct called {
    int calls, releases, session;
};

static int call(void *ctx, struct engine *g, char **text, struct error *e)
{
    struct called *c = ctx;
    const int *ids;

    c->session = engine_session_tokens(g, &ids);
    *text = mem_string("done");
    return c->calls++ ? error_set(e, ERR_INPUT, "the second time fails") : 0;
}

static void released(void *ctx)
{
    ((struct called *)ctx)->releases++;
}

/* A call waits for the end of the turn, reports, and is released once whatever happens. */
START_TEST(calls_run_between_turns)
{
    struct engine_config c = demo_config();
    struct worker *w = start(&c);
    struct seen *s = fresh();
    struct called k = {0};
    struct command command = {.kind = COMMAND_CALL, .call = {call, released, &k}};

    wait_for(w, s, &s->ready, 1);
    ck_assert_int_eq(send_turn(w, "Tell me a story about a fox.", 24), 0);
    ck_assert_int_eq(client_send(worker_client(w), &command, NULL), 0);
    wait_for(w, s, &s->reports, 1);
    ck_assert_int_eq(s->done, 1);
    ck_assert_int_eq(s->tokens, 24);
    ck_assert_int_gt(k.session, 24);
    command = (struct command){.kind = COMMAND_CALL, .call = {call, released, &k}};
    ck_assert_int_eq(client_send(worker_client(w), &command, NULL), 0);
    wait_for(w, s, &s->notices, 1);
    command = (struct command){.kind = COMMAND_CALL, .call = {call, released, &k}};
    ck_assert_int_eq(client_send(worker_client(w), &command, NULL), 0);
    worker_stop(w);
    ck_assert_int_eq(k.releases, 3);
    ck_assert_int_ge(k.calls, 2);
}
END_TEST

struct computing {
    atomic_bool may; /* it waits for that */
    int rc;
};

static int compute(void *ctx, struct engine *g, char **text, struct error *e)
{
    struct computing *c = ctx;
    int id = 100;

    while (!atomic_load(&c->may))
        clock_sleep(CLOCK_MILLI);
    c->rc = engine_eval(g, &id, 1, NULL, false, e);
    return 0;
}

/* A cancel is meant for the work that comes first, also where the model is still loading and it
 * has not begun; what stands behind it stays. */
START_TEST(cancel_ends_what_waits)
{
    struct engine_config c = demo_config();
    struct worker *w = start(&c);
    struct seen *s = fresh();
    struct computing first = {.rc = 1}, second = {.may = true, .rc = 1};
    struct command a = {.kind = COMMAND_CALL, .call = {compute, NULL, &first}},
                   b = {.kind = COMMAND_CALL, .call = {compute, NULL, &second}};

    ck_assert_int_eq(client_send(worker_client(w), &a, NULL), 0);
    ck_assert_int_eq(client_send(worker_client(w), &b, NULL), 0);
    ck_assert_int_eq(send_turn(w, "Tell me a story about a fox.", 5), 0);
    client_cancel(worker_client(w));
    atomic_store(&first.may, true);
    wait_for(w, s, &s->done, 1);
    ck_assert_int_eq(first.rc, ERR_CANCELLED);
    ck_assert_int_eq(second.rc, 0);
    ck_assert_int_eq(s->last.reason, STOP_LENGTH);
    worker_stop(w);
}
END_TEST

/* Who lets the engine answer in the middle of making a prompt. */
struct beside {
    struct worker *w;
    struct seen *s;
    int asked;
};

static bool answer_meanwhile(void *ctx)
{
    struct beside *b = ctx;

    if (b->asked++ % 100 == 0 && b->asked < 300) {
        ck_assert_int_eq(send_turn(b->w, "Tell me a story about a fox.", 10), 0);
        wait_for(b->w, b->s, &b->s->done, b->s->done + 1);
    }
    return SLOW && b->asked > 200;
}

/* A megabyte is tokenised on the thread of who brings it: the engine answers whole turns while that
 * is under way. */
START_TEST(a_long_prompt_stalls_nobody)
{
    struct engine_config c = demo_config();
    struct worker *w = start(&c);
    struct seen *s = fresh();
    struct beside b = {w, s, 0};
    struct stop stop = {answer_meanwhile, &b};
    size_t n = 1 << 20;
    struct message m = {.role = ROLE_USER, .text = mem_alloc(n + 1, 1)};
    struct dialogue said = {.messages = &m, .n_messages = 1};
    struct prompt p = {0};
    struct error e = {0};
    int rc;

    for (size_t i = 0; i < n; i++)
        m.text[i] = "a fox sang. "[i % 12];
    rc = prompt_make(text_info(), NULL, &said, 10, &stop, &p, &e);
    ck_assert_int_eq(rc, SLOW ? ERR_CANCELLED : ERR_CONTEXT);
    ck_assert_int_eq(s->done, 3);
    ck_assert_int_eq(s->tokens, 30);
    ck_assert_int_gt(b.asked, 200);
    mem_free(m.text);
    worker_stop(w);
}
END_TEST

static void ask(struct client *c, struct seen *s, const char *text, int max_tokens)
{
    struct command k = turn_command(text, max_tokens);

    s->text[s->len = 0] = 0;
    ck_assert_int_eq(client_send(c, &k, NULL), 0);
}

#define ROUNDS 2

/* A client on a thread of its own, as a server's are: turns, one of them cancelled, and it goes. */
struct user {
    struct worker *w;
    pthread_t thread;
    const char *wish, *want;
    struct seen seen;
};

static void *use(void *arg)
{
    struct user *u = arg;
    struct seen *s = &u->seen;
    struct client *c;

    for (int round = 0; round < ROUNDS; round++) {
        ck_assert_int_eq(client_open(&c, u->w, NULL), 0);
        wait_on(c, s, &s->ready, round + 1);
        ask(c, s, u->wish, 24);
        wait_on(c, s, &s->done, 2 * round + 1);
        ck_assert_str_eq(s->text, u->want);
        ask(c, s, u->wish, 400);
        wait_on(c, s, &s->tokens, s->tokens + 3);
        client_cancel(c);
        wait_on(c, s, &s->done, 2 * round + 2);
        ck_assert_int_eq(s->last.reason, STOP_CANCELLED);
        if (round == ROUNDS - 1) /* it goes in the middle of an answer */
            ask(c, s, u->wish, 400);
        client_close(c);
    }
    return NULL;
}

/* Each has a session, events and a cancel of its own; what one does disturbs nobody. */
START_TEST(clients_are_on_their_own)
{
    static const char *const wishes[] = {"Tell me a story about a fox.", "Who sings at night?"};
    static struct user u[2];
    struct engine_config c = demo_config();
    struct worker *w = start(&c);
    struct seen *s = fresh();
    char *want[3];

    wait_for(w, s, &s->ready, 1);
    for (int i = 0; i < 3; i++) {
        ask(worker_client(w), s, wishes[i % 2], i < 2 ? 24 : 80);
        wait_for(w, s, &s->done, i + 1);
        want[i] = mem_string(s->text);
    }
    for (int i = 0; i < 2; i++) {
        u[i] = (struct user){.w = w, .wish = wishes[i], .want = want[i]};
        ck_assert_int_eq(pthread_create(&u[i].thread, NULL, use, &u[i]), 0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        ask(worker_client(w), s, wishes[0], 80);
        wait_for(w, s, &s->done, 4 + i);
        ck_assert_int_eq(s->last.reason, STOP_LENGTH);
        ck_assert_str_eq(s->text, want[2]);
    }
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_join(u[i].thread, NULL), 0);
    worker_stop(w);
    for (int i = 0; i < 3; i++)
        mem_free(want[i]);
}
END_TEST

/* The worker stops, or never had a model: whoever is there can still go. */
START_TEST(clients_of_a_worker_that_is_gone)
{
    struct engine_config c = demo_config();
    struct client *a, *b;
    struct worker *w;
    struct seen *s = fresh();

    c.model_path = "/nowhere/model.gguf";
    w = start(&c);
    if (client_open(&a, w, NULL) == 0) /* it may be gone by now */
        client_close(a);
    wait_for(w, s, &s->stopped, 1);
    ck_assert_int_eq(client_open(&a, w, NULL), ERR_USAGE);
    worker_stop(w);
    s = fresh();
    c = demo_config();
    w = start(&c);
    ck_assert_int_eq(client_open(&a, w, NULL), 0);
    ck_assert_int_eq(client_open(&b, w, NULL), 0);
    wait_on(a, s, &s->ready, 1);
    ask(a, s, "Tell me a story about a fox.", 400);
    ck_assert_int_eq(client_send(worker_client(w), &(struct command){.kind = COMMAND_QUIT}, NULL),
                     0);
    wait_on(a, s, &s->stopped, 1);
    ck_assert_int_eq(s->last.reason, STOP_CANCELLED);
    client_close(a);
    worker_stop(w); /* with b */
}
END_TEST

START_TEST(quit_as_a_command)
{
    struct engine_config c = demo_config();
    struct worker *w = start(&c);
    struct seen *s = fresh();

    wait_for(w, s, &s->ready, 1);
    ck_assert_int_eq(send_turn(w, "Tell me a story about a fox.", 450), 0);
    wait_for(w, s, &s->tokens, 2);
    send_number(w, COMMAND_QUIT, 0);
    wait_for(w, s, &s->stopped, 1);
    ck_assert_int_eq(s->done, 1);
    ck_assert_int_eq(s->last.reason, STOP_CANCELLED);
    /* the model is there until worker_stop */
    ck_assert_int_eq(worker_info(w)->model->hp.n_experts, 16);
    worker_stop(w);
}
END_TEST

static void copy_file(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    char buffer[65536];
    size_t n;

    ck_assert(in && out);
    while ((n = fread(buffer, 1, sizeof buffer, in)) > 0)
        ck_assert_uint_eq(fwrite(buffer, 1, n, out), n);
    fclose(in);
    ck_assert_int_eq(fclose(out), 0);
}

/* The file shrinks under a running engine: weights that were repacked live on, mapped ones
 * (embeddings) are lost. An error, no crash. */
START_TEST(a_model_that_shrinks)
{
    struct engine_config c = demo_config();
    char path[256];
    struct worker *w;
    struct seen *s = fresh();

    snprintf(path, sizeof path, "%s/model.gguf", support_tmpdir());
    copy_file(c.model_path, path);
    c.model_path = path;
    w = start(&c);
    wait_for(w, s, &s->ready, 1);
    ck_assert_int_eq(send_turn(w, "Tell me a story about a fox.", 10), 0);
    wait_for(w, s, &s->done, 1);
    ck_assert_int_eq(truncate(path, 4096), 0);
    ck_assert_int_eq(
        send_turn(w, "Write about giraffes, elephants, and seventeen other animals of the zoo", 50),
        0);
    wait_for(w, s, &s->errors, 1);
    ck_assert_ptr_nonnull(strstr(s->error, "model.gguf"));
    ck_assert_int_eq(send_turn(w, "Hello?", 5), 0); /* the thread lives and says it again */
    wait_for(w, s, &s->errors, 2);
    worker_stop(w);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("worker");
    TCase *t = tcase_create("worker");

    tcase_set_timeout(t, 240);
    tcase_add_test(t, a_placement_that_fails_is_answered);
    tcase_add_test(t, turns_go_up_and_down);
    tcase_add_test(t, busy_turns_are_refused_other_commands_taken);
    tcase_add_test(t, cancel_ends_the_turn_it_meets);
    tcase_add_test(t, stopping_at_any_moment);
    tcase_add_test(t, nothing_is_lost_while_nobody_reads);
    tcase_add_test(t, a_model_that_is_not_there);
    tcase_add_test(t, calls_run_between_turns);
    tcase_add_test(t, cancel_ends_what_waits);
    tcase_add_test(t, quit_as_a_command);
    tcase_add_test(t, a_model_that_shrinks);
    suite_add_tcase(s, t);
    t = tcase_create("clients");
    tcase_set_timeout(t, 240);
    tcase_add_test(t, a_long_prompt_stalls_nobody);
    tcase_add_test(t, clients_are_on_their_own);
    tcase_add_test(t, clients_of_a_worker_that_is_gone);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
