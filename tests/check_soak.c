/* Random placements of tokens and of prompts, cancels, audits, and a device that is lost, runs out
 * of memory, becomes slow or computes wrongly, at random moments and for SOAK_SECONDS (2): what is
 * said must be what the CPU says, or its beginning if it was cancelled. One to four clients talk at
 * once, to the engine's thread and, in a quarter of the time, to the server over HTTP. Meant for
 * TSan and for an hour; SOAK_SEED (1) repeats a run, as far as threads can. A long run is several
 * tests, each with a seed of its own: libcheck cannot report one of more than 35 minutes. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/run/prompt.h"
#include "engine/run/worker/worker.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/fake_device.h"
#include "tests/serving.h"
#include "tests/support.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOKENS 40
#define CONTEXT 1024
#define STORIES 4
#define CLIENTS 4
#define PART 1200.0 /* seconds, of one test */

static const struct device_ops *const fused[] = {&fake_device_ops, &cpu_device_ops, NULL};
static const struct device_ops *const plain[] = {&fake_device_plain_ops, &cpu_device_ops, NULL};
/* the last one is long enough for groups of rows that overlap (microbatch.h) */
static const char *const prompts[STORIES] = {
    "A fox.", "Tell me of a bear who wanted to fly.", "Who lives in the forest?",
    "There was a fox, and there was a bear. The fox was small and the bear was big. The fox liked "
    "to "
    "run over the hill and the bear liked to sleep under the tree. One day the fox came to the "
    "tree "
    "and said: wake up, big bear, the sun is up and the birds sing. The bear said: let me sleep, "
    "little fox, the night was long and I dreamed of honey. So the fox sat down beside the bear "
    "and "
    "looked at the sky, where a cloud looked like a fish and another one looked like a boat with a "
    "red sail. A rabbit came, and a mouse, and an old owl who could not see in the light. They all "
    "sat down under the tree. Then it began to rain. What did they do?"};
static char want[STORIES][8192];

static unsigned seed = 1;

static int any(int n)
{
    seed = seed * 1103515245u + 12345u;
    return (int)((seed >> 16) % (unsigned)n);
}

static double number_of(const char *variable, double otherwise)
{
    const char *text = getenv(variable);

    return text ? atof(text) : otherwise;
}

static int parts(void)
{
    double n = number_of("SOAK_SECONDS", 2) / PART;

    return n > 1 ? (int)(n + 0.999) : 1;
}

/* What is needed to make prompts on this thread. */
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
        info = (struct engine_info){.tokenizer = tokenizer, .chat = chat, .context = CONTEXT};
    }
    return &info;
}

static void send_turn(struct client *client, int story)
{
    struct message m = {.role = ROLE_USER, .text = (char *)prompts[story]};
    struct dialogue said = {.messages = &m, .n_messages = 1};
    struct command c = {.kind = COMMAND_TURN};
    struct error e = {0};

    ck_assert_msg(prompt_make(text_info(), NULL, &said, TOKENS, NULL, &c.turn.prompt, &e) == 0,
                  "%s", e.text);
    c.turn.max_tokens = TOKENS;
    c.turn.ignore_eos = true;
    c.turn.sampling = (struct sampling){
        .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .repeat_penalty = 1.1f, .seed = 7};
    ck_assert_int_eq(client_send(client, &c, &e), 0);
}

/* What follows /place. */
static const char *random_place(void)
{
    static const char *const plans[] = {"cpu",      "gpu",       "experts-gpu", "attention-gpu",
                                        "layers:3", "hot:2M",    "stream:3M",   "memory:3M",
                                        "dynamic",  "experts:5", "gpu",         "same"};
    static char request[40];
    bool prompt = any(3) == 0;

    snprintf(request, sizeof request, "%s%s", prompt ? "prompt " : "",
             plans[any(prompt ? 12 : 11)]);
    return request;
}

static void send_random_place(struct worker *w)
{
    struct command c = {.kind = COMMAND_PLACE, .text = mem_string(random_place())};

    ck_assert_int_eq(client_send(worker_client(w), &c, NULL), 0);
}

/* One client, and what it hears. */
struct listener {
    struct client *client;
    char text[8192];
    size_t len;
    int story, cancel_at; /* of its turn; cancel_at: 0: to the end */
    int turns;            /* to come */
    int tokens, done, ready;
};

struct round {
    struct worker *w;
    struct listener who[CLIENTS];
    int clients, wrong;
    bool random;
};

static void hear(struct round *r, struct listener *l, struct event *ev)
{
    switch (ev->kind) {
    case EVENT_READY: l->ready++; break;
    case EVENT_TURN_DONE: l->done++; break;
    case EVENT_TOKEN:
        memcpy(l->text + l->len, ev->token.text, ev->token.len + 1u);
        l->len += ev->token.len;
        l->tokens++;
        if (r->random && any(6 * r->clients) == 0)
            send_random_place(r->w);
        break;
    case EVENT_NOTICE: r->wrong += strstr(ev->text, "computes wrongly") != NULL; break;
    case EVENT_ERROR: ck_abort_msg("%s", ev->text);
    default: break;
    }
    event_release(ev);
}

/* Until something was said to any of them. */
static void listen_once(struct round *r)
{
    struct pollfd p[CLIENTS];
    struct event ev;

    for (int i = 0; i < r->clients; i++)
        p[i] = (struct pollfd){.fd = client_event_fd(r->who[i].client), .events = POLLIN};
    ck_assert_msg(poll(p, (nfds_t)r->clients, 120000) > 0, "no event in two minutes");
    for (int i = 0; i < r->clients; i++) {
        struct listener *l = &r->who[i];

        while (client_next_event(l->client, &ev))
            hear(r, l, &ev);
        if (l->cancel_at && l->tokens >= l->cancel_at && !l->done) {
            client_cancel(l->client);
            l->cancel_at = -1;
        }
    }
}

static void begin(struct round *r, const struct device_ops *const *backends, int ubatch, int audit,
                  int clients)
{
    struct engine_config c = {.model_path = support_demo(),
                              .context = CONTEXT,
                              .n_threads = 2,
                              .ubatch = ubatch,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .convert = -1,
                              .backends = backends,
                              .audit = audit};
    struct error e = {0};

    memset(r, 0, sizeof *r);
    ck_assert_msg(worker_start(&r->w, &c, &e) == 0, "%s", e.text);
    r->who[0].client = worker_client(r->w);
    r->clients = 1;
    while (!r->who[0].ready)
        listen_once(r);
    for (; r->clients < clients; r->clients++)
        ck_assert_msg(client_open(&r->who[r->clients].client, r->w, &e) == 0, "%s", e.text);
}

static void finish(struct round *r)
{
    for (int i = 1; i < r->clients; i++)
        client_close(r->who[i].client);
    worker_stop(r->w);
}

static void tell(struct listener *l, int story, int cancel_at)
{
    l->len = 0;
    l->tokens = l->done = 0;
    l->text[0] = 0;
    l->story = story;
    l->cancel_at = cancel_at;
    send_turn(l->client, story);
}

static long stories, cancelled;

/* Its turn is over; false: that was the last one. */
static bool next_turn(struct round *r, struct listener *l)
{
    bool first = !l->text[0] && !l->tokens && !l->done;

    if (!first) {
        const char *right = want[l->story];

        ck_assert_msg(strncmp(l->text, right, l->len) == 0 &&
                          (l->cancel_at < 0 || l->len == strlen(right)),
                      "client %d: %s\ninstead of %s", (int)(l - r->who), l->text, right);
        stories++;
        cancelled += l->len < strlen(right);
        if (any(2)) {
            struct command clear = {.kind = COMMAND_CLEAR};

            ck_assert_int_eq(client_send(l->client, &clear, NULL), 0);
        }
    }
    if (l->turns-- == 0)
        return false;
    tell(l, any(STORIES), any(4) ? 0 : 1 + any(TOKENS));
    return true;
}

/* Every client says what it has to say, all at once. */
static void talk(struct round *r)
{
    int talking = r->clients;

    for (int i = 0; i < r->clients; i++) {
        r->who[i].turns = 1 + any(4);
        next_turn(r, &r->who[i]);
    }
    while (talking) {
        listen_once(r);
        for (int i = 0; i < r->clients; i++)
            if (r->who[i].done && r->who[i].turns >= 0)
                talking -= !next_turn(r, &r->who[i]);
    }
}

static double seconds_of(double share)
{
    return number_of("SOAK_SECONDS", 2) / parts() * share;
}

/* What is wrong with the device; 0: nothing. */
static int random_trouble(void)
{
    int trouble = any(20);

    return trouble == 0 ? 3 : (int[]){0, 1, 2, 4}[trouble % 4];
}

START_TEST(anything_may_happen)
{
    uint64_t end = clock_now() + (uint64_t)(seconds_of(0.75) * 1e9);
    static struct round r;
    long rounds = 0, wrong = 0, most = 0, troubles[5] = {0};

    seed = (unsigned)number_of("SOAK_SEED", 1) + (unsigned)_i;
    fake_device_control(NULL);
    begin(&r, NULL, 256, 0, 1);
    for (int i = 0; i < STORIES; i++) {
        tell(&r.who[0], i, 0);
        while (!r.who[0].done)
            listen_once(&r);
        memcpy(want[i], r.who[0].text, sizeof want[i]);
    }
    finish(&r);
    do {
        struct fake_control c = {0};
        long at = 1 + any(400);
        int audit = any(3) ? any(40) : 1, trouble = random_trouble();

        if (trouble == 1)
            c.fail_at = at, c.lost = any(2);
        else if (trouble == 2)
            c.memory_at = at, c.memory_jobs = any(30);
        else if (trouble == 3)
            c.slow_at = at, c.slow_us = 60000, c.slow_bytes = 1 << 20;
        else if (trouble == 4)
            c.wrong_at = at, c.wrong_on = any(2), audit = 1;
        troubles[trouble]++;
        fake_device_control(&c);
        begin(&r, any(2) ? plain : fused, any(2) ? 16 : 256, audit, 1 + any(CLIENTS));
        r.random = true;
        send_random_place(r.w);
        talk(&r);
        finish(&r);
        wrong += r.wrong;
        most += r.clients;
        rounds++;
    } while (clock_now() < end);
    printf("%ld rounds, %ld clients, %ld stories, %ld cancelled; devices without trouble %ld, "
           "failing %ld, full %ld, slow %ld, wrong %ld (%ld found)\n",
           rounds, most, stories, cancelled, troubles[0], troubles[1], troubles[2], troubles[3],
           troubles[4], wrong);
    fake_device_control(NULL);
}
END_TEST

/* ---- the server ---- */

static const char *fault;

static void set_fault(void)
{
    setenv("FAULT", fault, 1);
}

static void serve(const char *trouble, const char *audit)
{
    const char *const more[] = {"-m", support_demo(), "-c",      "1024", "-np",
                                "4",  "--plain",      "--audit", audit,  NULL};

    fault = trouble;
    serving_prepare = set_fault;
    serving_program = "tests/faulty";
    serving_start(more);
}

/* Asks for a story, as a stream; the socket to read it from. */
static int ask_story(int story)
{
    char body[4096], head[200];
    int fd = serving_dial(),
        n = snprintf(body, sizeof body,
                     ASK "\"%s\"}], \"stream\": true, \"max_tokens\": %d, \"ignore_eos\": true, "
                         "\"temperature\": 0.8, \"top_k\": 40, \"top_p\": 0.95, \"seed\": 7}",
                     prompts[story], TOKENS);

    snprintf(head, sizeof head,
             "POST " CHAT " HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n"
             "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n",
             n);
    serving_say(fd, head, strlen(head));
    serving_say(fd, body, (size_t)n);
    return fd;
}

static void read_story(int fd, char *to, size_t size)
{
    struct reply r = serving_read_reply(fd);
    int events;
    char *text;

    ck_assert_msg(r.status == 200, "status %d: %.300s", r.status, r.body ? r.body : "nothing");
    text = serving_stream_text(&r, &events);
    snprintf(to, size, "%s", text);
    free(text);
    free(r.head);
}

static void ask_for_random_place(void)
{
    char body[100];

    snprintf(body, sizeof body, "{\"plan\": \"%s\"}", random_place());
    json_decref(serving_post("/moetop/placement", body, 200));
}

/* Four callers at once; some leave, the others must hear the right story. */
static void callers(void)
{
    int fd[CLIENTS], story[CLIENTS];
    char text[8192];

    for (int i = 0; i < CLIENTS; i++) {
        fd[i] = ask_story(story[i] = any(STORIES));
        if (any(2))
            ask_for_random_place();
    }
    for (int i = 0; i < CLIENTS; i++) {
        if (any(4) == 0) {
            ck_assert(!any(2) || read(fd[i], text, (size_t)(1 + any(2000))) >= 0);
            close(fd[i]);
            cancelled++;
            continue;
        }
        ask_for_random_place();
        read_story(fd[i], text, sizeof text);
        ck_assert_msg(strcmp(text, want[story[i]]) == 0, "%s\ninstead of %s", text, want[story[i]]);
        stories++;
    }
}

START_TEST(anything_may_happen_to_a_server)
{
    uint64_t end = clock_now() + (uint64_t)(seconds_of(0.25) * 1e9);
    long servers = 0, troubles[5] = {0};

    seed = (unsigned)number_of("SOAK_SEED", 1) + 1000u + (unsigned)_i;
    serve("none", "0");
    for (int i = 0; i < STORIES; i++)
        read_story(ask_story(i), want[i], sizeof want[i]);
    ck_assert_int_eq(serving_end(), 0);
    do {
        static const char *const names[] = {"none", "lost", "memory", "slow", "wrong"};
        int trouble = random_trouble(), code;
        char how[40], audit[20];

        snprintf(how, sizeof how, "%s:%d", names[trouble], 1 + any(400));
        snprintf(audit, sizeof audit, "%d", trouble == 4 || any(3) == 0 ? 1 : any(40));
        serve(how, audit);
        for (int n = 1 + any(5); n > 0; n--)
            callers();
        code = serving_end();
        if (code && !(trouble == 4 && code == 6))
            fputs(serving_log_text(), stderr); /* longer than libcheck bears */
        ck_assert_msg(code == 0 || (trouble == 4 && code == 6), "%s: exit status %d", how, code);
        servers++;
        troubles[trouble]++;
    } while (clock_now() < end);
    printf("%ld servers, %ld stories, %ld callers left; devices without trouble %ld, lost %ld, "
           "full %ld, slow %ld, wrong %ld\n",
           servers, stories, cancelled, troubles[0], troubles[1], troubles[2], troubles[3],
           troubles[4]);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("soak");
    TCase *t = tcase_create("soak"), *server = tcase_create("server");
    double most = number_of("SOAK_SECONDS", 2) / parts() + 600;

    tcase_set_timeout(t, most);
    tcase_add_loop_test(t, anything_may_happen, 0, parts());
    suite_add_tcase(s, t);
    tcase_set_timeout(server, most);
    tcase_add_loop_test(server, anything_may_happen_to_a_server, 0, parts());
    suite_add_tcase(s, server);
    return s;
}

int main(void)
{
    return support_run(suite());
}
