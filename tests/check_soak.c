/* Random placements of tokens and of prompts, cancels, audits, and a device that is lost, runs out
 * of memory, becomes slow or computes wrongly, at random moments and for SOAK_SECONDS (2): what is
 * said must be what the CPU says, or its beginning if it was cancelled. Meant for TSan and for an
 * hour; SOAK_SEED (1) repeats a run, as far as threads can. A long run is several tests, each with
 * a seed of its own: libcheck cannot report one of more than 35 minutes. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/run/prompt.h"
#include "engine/run/worker/worker.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/fake_device.h"
#include "tests/support.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 40
#define CONTEXT 1024
#define STORIES 4
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

static void send_turn(struct worker *w, int story)
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
    ck_assert_int_eq(client_send(worker_client(w), &c, &e), 0);
}

static void send_random_place(struct worker *w)
{
    static const char *const plans[] = {"cpu",      "gpu",       "experts-gpu", "attention-gpu",
                                        "layers:3", "hot:2M",    "stream:3M",   "memory:3M",
                                        "dynamic",  "experts:5", "same"};
    bool prompt = any(3) == 0;
    char request[40];
    struct command c = {.kind = COMMAND_PLACE};

    snprintf(request, sizeof request, "%s%s", prompt ? "prompt " : "",
             plans[any(prompt ? 11 : 10)]);
    c.text = mem_string(request);
    ck_assert_int_eq(client_send(worker_client(w), &c, NULL), 0);
}

struct round {
    struct worker *w;
    char text[8192];
    size_t len;
    int tokens, done, ready, wrong;
    bool random;
};

static void hear(struct round *r, struct event *ev)
{
    switch (ev->kind) {
    case EVENT_READY: r->ready++; break;
    case EVENT_TURN_DONE: r->done++; break;
    case EVENT_TOKEN:
        memcpy(r->text + r->len, ev->token.text, ev->token.len + 1u);
        r->len += ev->token.len;
        r->tokens++;
        if (r->random && any(6) == 0)
            send_random_place(r->w);
        break;
    case EVENT_NOTICE: r->wrong += strstr(ev->text, "computes wrongly") != NULL; break;
    case EVENT_ERROR: ck_abort_msg("%s", ev->text);
    default: break;
    }
    event_release(ev);
}

static void wait_for(struct round *r, const int *count, int cancel_at)
{
    struct client *c = worker_client(r->w);
    struct event ev;

    while (!*count) {
        struct pollfd p = {.fd = client_event_fd(c), .events = POLLIN};

        ck_assert_msg(poll(&p, 1, 120000) == 1, "no event in two minutes");
        while (client_next_event(c, &ev))
            hear(r, &ev);
        if (cancel_at && r->tokens >= cancel_at) {
            client_cancel(c);
            cancel_at = 0;
        }
    }
}

static void begin(struct round *r, const struct device_ops *const *backends, int ubatch, int audit)
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
    wait_for(r, &r->ready, 0);
}

static void tell(struct round *r, int story, int cancel_at)
{
    r->len = 0;
    r->tokens = r->done = 0;
    r->text[0] = 0;
    send_turn(r->w, story);
    wait_for(r, &r->done, cancel_at);
}

START_TEST(anything_may_happen)
{
    uint64_t end = clock_now() + (uint64_t)(number_of("SOAK_SECONDS", 2) / parts() * 1e9);
    static struct round r;
    long rounds = 0, stories = 0, cancelled = 0, wrong = 0, troubles[5] = {0};

    seed = (unsigned)number_of("SOAK_SEED", 1) + (unsigned)_i;
    fake_device_control(NULL);
    begin(&r, NULL, 256, 0);
    for (int i = 0; i < STORIES; i++) {
        tell(&r, i, 0);
        memcpy(want[i], r.text, sizeof want[i]);
    }
    worker_stop(r.w);
    do {
        struct fake_control c = {0};
        long at = 1 + any(400);
        int audit = any(3) ? any(40) : 1, trouble = any(20);

        trouble = trouble == 0 ? 3 : (int[]){0, 1, 2, 4}[trouble % 4];

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
        begin(&r, any(2) ? plain : fused, any(2) ? 16 : 256, audit);
        r.random = true;
        send_random_place(r.w);
        for (int turns = 1 + any(4); turns > 0; turns--) {
            int story = any(STORIES), cancel_at = any(4) ? 0 : 1 + any(TOKENS);
            size_t n;

            tell(&r, story, cancel_at);
            n = r.len;
            stories++;
            cancelled += cancel_at && n < strlen(want[story]);
            ck_assert_msg(strncmp(r.text, want[story], n) == 0 &&
                              (cancel_at || n == strlen(want[story])),
                          "seed %u, trouble %d at %ld: %s\ninstead of %s", seed, trouble, at,
                          r.text, want[story]);
            if (any(2)) {
                struct command clear = {.kind = COMMAND_CLEAR};

                ck_assert_int_eq(client_send(worker_client(r.w), &clear, NULL), 0);
            }
        }
        worker_stop(r.w);
        wrong += r.wrong;
        rounds++;
    } while (clock_now() < end);
    printf("%ld rounds, %ld stories, %ld cancelled; devices without trouble %ld, failing %ld, full "
           "%ld, slow %ld, wrong %ld (%ld found)\n",
           rounds, stories, cancelled, troubles[0], troubles[1], troubles[2], troubles[3],
           troubles[4], wrong);
    fake_device_control(NULL);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("soak");
    TCase *t = tcase_create("soak");

    tcase_set_timeout(t, number_of("SOAK_SECONDS", 2) / parts() + 600);
    tcase_add_loop_test(t, anything_may_happen, 0, parts());
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
