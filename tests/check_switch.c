/* Work moved between devices must not change the text: every plan, switches in the middle of an
 * answer, and a device that fails at its n-th call for every n. The second device is the fake one,
 * whose arithmetic is the CPU's; whatever differs is the engine's doing. */
#include "engine/base/clock.h"
#include "engine/run/engine.h"
#include "engine/run/prompt.h"
#include "tests/fake_device.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct device_ops *const fused[] = {&fake_device_ops, &cpu_device_ops, NULL};
static const struct device_ops *const plain[] = {&fake_device_plain_ops, &cpu_device_ops, NULL};

struct heard {
    char text[16384], notice[2048], plans[2048];
    size_t len;
    int notices, tokens;
};

static int hear(void *ctx, struct event *ev)
{
    struct heard *h = ctx;

    if (ev->kind == EVENT_TOKEN) {
        memcpy(h->text + h->len, ev->token.text, ev->token.len + 1u);
        h->len += ev->token.len;
        h->tokens += ev->token.id >= 0;
    } else if (ev->kind == EVENT_NOTICE) {
        h->notices++;
        snprintf(h->notice, sizeof h->notice, "%s", ev->text);
    } else if (ev->kind == EVENT_PLAN && strlen(h->plans) < 2000) {
        strcat(h->plans, ev->text);
        strcat(h->plans, " ");
    }
    return 0;
}

static struct engine *open_on(const struct device_ops *const *backends, const char *devices,
                              const char *placement, const char *prompts, const char *script)
{
    struct engine_config c = {.device_selector = devices,
                              .context = 256,
                              .n_threads = 1,
                              .ubatch = 16,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .convert = -1,
                              .backends = backends,
                              .placement = placement,
                              .placement_prompt = prompts,
                              .placement_script = script};
    char path[4200];
    struct engine *g = NULL;
    struct error e = {0};

    snprintf(path, sizeof path, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    c.model_path = path;
    if (engine_open(&g, &c, &e) < 0)
        ck_abort_msg("%s", e.text);
    return g;
}

static struct engine *open_apart(const struct device_ops *const *backends, const char *placement,
                                 const char *prompts, const char *script)
{
    return open_on(backends, NULL, placement, prompts, script);
}

static struct engine *open_demo(const struct device_ops *const *backends, const char *placement,
                                const char *script)
{
    return open_apart(backends, placement, NULL, script);
}

/* Tells a story asked for in the same words; its turn. */
static int tell_to(struct engine *g, int max_tokens, int (*listen)(void *ctx, struct event *ev),
                   void *ctx, struct turn_done_event *done, struct error *e)
{
    struct message m[2];
    struct dialogue said = {.messages = m, .n_messages = 2};
    struct turn t;

    m[0] = (struct message){.role = ROLE_SYSTEM,
                            .text = "You tell short stories to small children."};
    m[1] = (struct message){.role = ROLE_USER,
                            .text = "Tell me a story about a fox who wanted to fly."};
    t = (struct turn){.max_tokens = max_tokens,
                      .ignore_eos = true,
                      .sampling = {.temperature = 0.8f,
                                   .top_k = 40,
                                   .top_p = 0.95f,
                                   .repeat_penalty = 1.1f,
                                   .repeat_last_n = 64,
                                   .seed = 5}};
    return prompt_turn(g, NULL, &said, &t, listen, ctx, done, e);
}

static void tell(struct engine *g, struct heard *h, int max_tokens)
{
    struct turn_done_event done;
    struct error e = {0};

    memset(h, 0, sizeof *h);
    ck_assert_msg(tell_to(g, max_tokens, hear, h, &done, &e) == 0, "%s", e.text);
    ck_assert_int_eq(done.completion_tokens, max_tokens);
}

/* What the CPU alone says. */
static const char *reference(int max_tokens)
{
    static struct heard h;
    struct engine *g = open_demo(NULL, NULL, NULL);

    tell(g, &h, max_tokens);
    engine_close(g);
    return h.text;
}

START_TEST(every_plan_says_the_same)
{
    static const char *const plans[] = {"cpu",         "gpu",       "layers:3",  "layers:first:2",
                                        "experts:5",   "hot:4M",    "memory:6M", "attention-gpu",
                                        "experts-gpu", "stream:3M", "balanced",  "dynamic",
                                        "auto"};
    const char *want = reference(40);
    static struct heard h;

    fake_device_control(NULL);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (int k = 0; k < 2; k++) {
            struct engine *g = open_demo(k ? plain : fused, plans[i], NULL);
            const struct telemetry *t = engine_telemetry(g);
            uint64_t on_device = 0;

            tell(g, &h, 40);
            ck_assert_msg(strcmp(h.text, want) == 0, "%s: %s", plans[i], h.text);
            ck_assert_str_eq(t->plan, plans[i]);
            if (i && i < 10)
                ck_assert_msg(t->devices[1].jobs > 0, "%s used the device", plans[i]);
            for (int c = 0; c < t->n_layers * t->n_experts; c++)
                on_device += t->ran_on[c] == 1;
            if (!strcmp(plans[i], "gpu") || !strcmp(plans[i], "experts-gpu"))
                for (int c = 0; c < t->n_layers * t->n_experts; c++)
                    ck_assert(t->ran_on[c] == 1 || t->ran_on[c] == PLAN_NO_DEVICE);
            if (!strcmp(plans[i], "cpu") || !strcmp(plans[i], "attention-gpu"))
                ck_assert_uint_eq(on_device, 0);
            ck_assert_msg(h.notices == 0 || strstr(h.notice, "when a token asks"), "%s: %s",
                          plans[i], h.notice);
            engine_close(g);
        }
}
END_TEST

/* Two devices beside the CPU, under plans that use both; then one of them is lost. */
START_TEST(two_devices_say_the_same)
{
    static const char *const plans[] = {"layers:0=2,1=3",
                                        "experts:1=5,0=4",
                                        "hot:0=2M,1=3M",
                                        "memory:0=3M,1=4M",
                                        "gpu",
                                        "experts-gpu",
                                        "memory:3M",
                                        "balanced",
                                        "dynamic:1M",
                                        "stream:0=3M,1=2M",
                                        "layers:1=8"};
    static const char script[] = "2:layers:0=2,1=3,6:hot:1=2M,0=1M,11:cpu,15:memory:0=3M,1=4M,"
                                 "21:layers:1=4,27:experts:0=3,1=3,33:gpu";
    const char *want = reference(40);
    static struct heard h;

    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (int k = 0; k < 3; k++) {
            struct engine *g;
            const struct telemetry *t;

            fake_device_control(&(struct fake_control){
                .devices = 3, .fail_at = k == 2 ? 60 : 0, .lost = true, .only = 1});
            g = open_on(k ? plain : fused, "fake:1,fake:0", plans[i], NULL, k == 1 ? script : NULL);
            t = engine_telemetry(g);
            tell(g, &h, 40);
            ck_assert_msg(strcmp(h.text, want) == 0, "%s: %s", plans[i], h.text);
            ck_assert_int_eq(t->n_devices, 3);
            ck_assert_str_eq(engine_info(g)->devices[1].selector, "fake:1");
            if (k == 0 && strchr(plans[i], '=') && strcmp(plans[i], "layers:1=8"))
                ck_assert_msg(t->devices[1].jobs && t->devices[2].jobs, "%s", plans[i]);
            if (k == 1)
                ck_assert_msg(t->n_plans >= 6 && h.notices == 0, "%s: %s", plans[i], h.notice);
            if (k == 2 && h.notices) /* the other one works on */
                ck_assert_msg(strstr(h.notice, "fake:0") != NULL, "%s", h.notice);
            engine_close(g);
        }
    fake_device_control(NULL);
}
END_TEST

START_TEST(switches_do_not_change_the_text)
{
    const char *want = reference(150);
    static struct heard h;

    fake_device_control(NULL);
    for (int k = 0; k < 2; k++) {
        struct engine *g = open_demo(k ? plain : fused, "cpu",
                                     "3:gpu,9:cpu,14:hot:3M,20:attention-gpu,27:experts:3,33:"
                                     "balanced,41:layers:2,47:gpu,52:cpu,"
                                     "60:dynamic,90:memory:2M,100:experts-gpu,120:cpu");
        const struct telemetry *t = engine_telemetry(g);
        struct error e;

        tell(g, &h, 150);
        ck_assert_str_eq(h.text, want);
        ck_assert_msg(h.notices == 0, "%s", h.notice);
        printf("plans: %s; %llu bytes moved\n", h.plans, (unsigned long long)t->moved_bytes);
        ck_assert_int_ge(t->n_plans, 9);
        ck_assert_uint_gt(t->moved_bytes, 0);
        ck_assert_uint_gt(t->stall_ns, 0);
        ck_assert_uint_gt(t->stall_token_ns, 0);
        for (int i = 0; i < t->n_plans; i++)
            ck_assert_uint_le(t->plans[i].stall_ns, t->stall_ns);
        ck_assert_int_eq(engine_settle(g, &e), 0);
        ck_assert_int_eq(t->moves_pending, 0);
        ck_assert_uint_eq(t->devices[1].weight_bytes, 0); /* memory is what it was */
        ck_assert_uint_le(fake_device_largest_put(), (uint64_t)16 << 20);
        engine_close(g);
    }
}
END_TEST

/* Between two turns, and with what the cache holds from before. */
START_TEST(a_conversation_moves)
{
    static struct heard h;
    static const char *const plans[] = {"gpu", "cpu", "layers:4", "attention-gpu", "cpu"};
    struct engine *g = open_demo(fused, NULL, NULL);
    const char *want = reference(30);
    struct error e = {0};

    fake_device_control(NULL);
    tell(g, &h, 30);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        engine_session_rewind(g, 20);
        ck_assert_msg(engine_place(g, plans[i], &e) == 0, "%s", e.text);
        ck_assert_int_eq(engine_settle(g, &e), 0);
        tell(g, &h, 30);
        ck_assert_str_eq(h.text, want);
    }
    ck_assert_int_eq(engine_place(g, "nonsense", &e), ERR_USAGE);
    engine_close(g);
}
END_TEST

/* A device asked for in the middle of an answer opens beside it: the answer goes on, and only its
 * going on lets the device open. */
struct beside {
    struct engine *g;
    struct heard *h;
};

static int hear_beside(void *ctx, struct event *ev)
{
    struct beside *b = ctx;
    struct error e;
    int rc = hear(b->h, ev);

    if (ev->kind != EVENT_TOKEN)
        return rc;
    if (b->h->tokens == 5)
        ck_assert_msg(engine_place(b->g, "gpu", &e) == 0, "%s", e.text);
    if (b->h->tokens == 20) {
        ck_assert_int_eq(engine_info(b->g)->n_devices, 1);
        fake_device_let_open();
    }
    if (b->h->tokens > 20 && engine_info(b->g)->n_devices == 1)
        usleep(1000);
    return rc;
}

START_TEST(a_device_opens_beside_the_answer)
{
    const char *want = reference(150);
    static struct heard h;
    struct engine *g;
    struct beside b = {.h = &h};
    struct turn_done_event done;
    struct error e;

    fake_device_control(&(struct fake_control){.hold_open = true});
    g = b.g = open_demo(fused, "cpu", NULL);
    memset(&h, 0, sizeof h);
    ck_assert_int_eq(tell_to(g, 150, hear_beside, &b, &done, &e), 0);
    ck_assert_str_eq(h.text, want);
    ck_assert_int_eq(engine_info(g)->n_devices, 2);
    ck_assert_int_eq(engine_settle(g, &e), 0);
    ck_assert_str_eq(engine_telemetry(g)->plan, "gpu");
    ck_assert_uint_gt(engine_telemetry(g)->devices[1].jobs, 0);
    ck_assert_int_eq(h.notices, 1);
    ck_assert_ptr_nonnull(strstr(h.notice, "fake device: opened"));
    engine_close(g);
    /* closed while it still opens */
    fake_device_control(&(struct fake_control){.hold_open = true});
    g = b.g = open_demo(fused, "cpu", NULL);
    memset(&h, 0, sizeof h);
    ck_assert_int_eq(tell_to(g, 10, hear_beside, &b, &done, &e), 0);
    fake_device_let_open();
    engine_close(g);
    fake_device_control(NULL);
}
END_TEST

/* ---- a plan for each phase ---- */

static const char *const pair_plans[] = {"cpu", "gpu", "experts-gpu", "attention-gpu", "hot:3M"};
#define PAIR_PLANS (int)(sizeof pair_plans / sizeof *pair_plans)

/* Every pair: the same text, and each side has computed what its plan says and nothing else. */
START_TEST(every_pair_of_plans_says_the_same)
{
    enum { TOKENS = 25, PARTS = 2 }; /* the prompt is read up to its first message's end, then on */
    const char *want = reference(TOKENS), *tokens = pair_plans[_i / PAIR_PLANS],
               *prompts = pair_plans[_i % PAIR_PLANS];
    static struct heard h;

    for (int k = 0; k < 2; k++) {
        struct engine *g;
        struct turn_done_event done;
        struct fake_work w;
        struct error e = {0};
        int layers, used;
        long read, made, given;
        bool all[2] = {!strcmp(tokens, "gpu"), !strcmp(prompts, "gpu")},
             mixers[2] = {all[0] || !strcmp(tokens, "attention-gpu"),
                          all[1] || !strcmp(prompts, "attention-gpu")},
             experts[2] = {all[0] || !strcmp(tokens, "experts-gpu"),
                           all[1] || !strcmp(prompts, "experts-gpu")};

        fake_device_control(NULL);
        g = open_apart(k ? plain : fused, tokens, prompts, NULL);
        layers = engine_info(g)->model->hp.n_layers;
        used = engine_info(g)->model->hp.n_experts_used;
        memset(&h, 0, sizeof h);
        ck_assert_int_eq(tell_to(g, TOKENS, hear, &h, &done, &e), 0);
        ck_assert_msg(strcmp(h.text, want) == 0, "%s, prompts %s: %s", tokens, prompts, h.text);
        ck_assert_int_eq(h.notices, 0);
        ck_assert_str_eq(engine_telemetry(g)->plan, tokens);
        ck_assert_str_eq(engine_telemetry(g)->prompt_plan, prompts);
        /* the last token's successor is drawn from its logits, it is not computed itself */
        read = done.prompt_tokens;
        made = TOKENS - 1;
        w = fake_device_work();
        ck_assert_int_eq(w.attention, layers * (made * mixers[0] + read * mixers[1]));
        given = layers * used * (made * experts[0] + read * experts[1]);
        if (k || !all[1]) /* of the last layer only the last row's experts of a part matter */
            given -= used * (read - PARTS) * experts[1];
        if (strcmp(tokens, "hot:3M") && strcmp(prompts, "hot:3M"))
            ck_assert_int_eq(w.experts, given);
        else /* whatever is hot in the phase that has such a plan */
            ck_assert_int_gt(w.experts, given);
        ck_assert_int_eq(w.head, made * all[0] + all[1]);
        /* its keys and values move once, when the prompt ends, unless they are there */
        ck_assert_int_eq(w.rows_read, mixers[1] && !mixers[0] ? layers * read : 0);
        ck_assert_int_eq(w.rows_written, mixers[0] && !mixers[1] ? layers * read : 0);
        ck_assert_int_eq(engine_telemetry(g)->handover_bytes > 0, mixers[0] != mixers[1]);
        /* the map shows where tokens are computed now, whatever the prompt ran on */
        for (int c = 0; c < layers * engine_info(g)->model->hp.n_experts; c++)
            ck_assert(engine_telemetry(g)->ran_on[c] == PLAN_NO_DEVICE ||
                      engine_telemetry(g)->ran_on[c] == engine_plan(g)->experts[c]);
        engine_close(g);
    }
}
END_TEST

/* The next message is read where prompts are read: only what that device lacks goes back to it. */
START_TEST(a_conversation_goes_to_and_fro)
{
    const char *want = reference(30);
    struct engine *g;
    static struct heard h;
    struct fake_work w;
    int layers;

    fake_device_control(NULL);
    g = open_apart(fused, "cpu", "gpu", NULL);
    layers = engine_info(g)->model->hp.n_layers;
    tell(g, &h, 30);
    ck_assert_str_eq(h.text, want);
    engine_session_rewind(g, 20);
    w = fake_device_work();
    tell(g, &h, 30);
    ck_assert_str_eq(h.text, want);
    ck_assert_int_eq(fake_device_work().rows_written, w.rows_written); /* it had the first 20 */
    engine_session_rewind(g, engine_session_tokens(g, NULL) - 4);
    {
        static const int more[6] = {5, 6, 7, 8, 9, 10};
        int made = 30 - 1 - 4; /* rows of the answer that are left: computed on the CPU */
        struct error e = {0};

        w = fake_device_work();
        ck_assert_msg(engine_eval(g, more, 6, NULL, false, &e) == 0, "%s", e.text);
        ck_assert_int_eq(fake_device_work().rows_written - w.rows_written, layers * made);
    }
    engine_close(g);
}
END_TEST

START_TEST(switches_of_either_phase_do_not_change_the_text)
{
    const char *want = reference(120);
    static struct heard h;

    fake_device_control(NULL);
    for (int k = 0; k < 2; k++) {
        struct engine *g = open_apart(k ? plain : fused, "cpu", "gpu",
                                      "3:gpu,9:prompt cpu,14:hot:3M,20:prompt attention-gpu,27:cpu,"
                                      "33:prompt same,41:layers:2,47:prompt experts-gpu,52:cpu,"
                                      "60:prompt dynamic,80:prompt hot:2M,100:prompt same,110:cpu");
        const struct telemetry *t = engine_telemetry(g);
        struct error e;

        for (int round = 0; round < 2; round++) {
            tell(g, &h, 120);
            ck_assert_str_eq(h.text, want);
            ck_assert_msg(h.notices == 0, "%s", h.notice);
            ck_assert(round || strstr(h.plans, "gpu, prompts cpu "));
        }
        ck_assert_int_eq(engine_settle(g, &e), 0);
        ck_assert_int_eq(t->moves_pending, 0);
        ck_assert_str_eq(t->prompt_plan, "");
        ck_assert_uint_eq(t->devices[1].weight_bytes, 0); /* memory is what it was */
        engine_close(g);
    }
}
END_TEST

static uint64_t bytes_there(struct engine *g)
{
    struct error e = {0};
    static struct heard h;

    ck_assert_msg(engine_settle(g, &e) == 0, "%s", e.text);
    tell(g, &h, 2);
    return engine_telemetry(g)->devices[1].weight_bytes;
}

static void ask(struct engine *g, const char *request)
{
    struct error e = {0};

    ck_assert_msg(engine_place(g, request, &e) == 0, "%s: %s", request, e.text);
    ck_assert_int_eq(engine_settle(g, &e), 0);
    engine_session_rewind(g, 10);
}

/* What both plans want lies on the device once, what none wants does not lie there; and a device
 * too small for both says so, and everything stays as it was. */
START_TEST(a_device_holds_what_either_plan_wants)
{
    struct engine *g;
    uint64_t all, experts, mixers;
    struct error e = {0};
    struct fake_work w;

    fake_device_control(NULL);
    g = open_demo(plain, "gpu", NULL);
    engine_tick_set(g, NULL, NULL);
    all = bytes_there(g);
    ask(g, "experts-gpu");
    experts = bytes_there(g);
    ask(g, "attention-gpu");
    mixers = bytes_there(g);
    ck_assert(all > experts && experts > mixers && mixers > 0);
    ask(g, "prompt experts-gpu");
    ck_assert_uint_eq(bytes_there(g), experts + mixers);
    ask(g, "gpu");
    ck_assert_uint_eq(bytes_there(g), all);
    ask(g, "cpu");
    ck_assert_uint_eq(bytes_there(g), experts);
    ask(g, "prompt gpu");
    ck_assert_uint_eq(bytes_there(g), all);
    ask(g, "prompt same"); /* its rows are copied home before its blocks go */
    ck_assert_uint_eq(bytes_there(g), 0);
    engine_close(g);

    fake_device_control(&(struct fake_control){.says = (experts + mixers) * 8 / 10});
    g = open_apart(plain, "attention-gpu", NULL, NULL);
    ck_assert_int_eq(engine_place(g, "prompt hot", &e), ERR_USAGE);
    ck_assert_msg(strstr(e.text, "attention-gpu for tokens and hot for prompts need") &&
                      strstr(e.text, "together on") && strstr(e.text, "may hold"),
                  "%s", e.text);
    ck_assert_ptr_null(engine_prompt_plan(g));
    ck_assert_uint_eq(bytes_there(g), mixers);
    w = fake_device_work();
    ck_assert_int_gt(w.attention, 0);
    engine_close(g);
    fake_device_control(NULL);
}
END_TEST

static void fail_every_call(const struct device_ops *const *backends, const char *placement,
                            const char *script, bool lost, int step)
{
    const char *want = reference(12);
    static struct heard h;
    struct engine *g;
    long total, tried = 0, noticed = 0;

    fake_device_control(NULL);
    g = open_demo(backends, placement, script);
    tell(g, &h, 12);
    engine_close(g);
    total = fake_device_calls();
    ck_assert_str_eq(h.text, want);
    for (long n = 1; n <= total; n += step) {
        fake_device_control(&(struct fake_control){.fail_at = n, .lost = lost});
        g = open_demo(backends, placement, script);
        tell(g, &h, 12);
        ck_assert_msg(strcmp(h.text, want) == 0, "%s: call %ld of %ld failed%s: %s | %s", placement,
                      n, total, lost ? " for good" : "", h.text, h.notice);
        noticed += h.notices > 0;
        tried++;
        engine_close(g);
    }
    fake_device_control(NULL);
    printf("%s: %ld of %ld calls failed%s, %ld were told in the answer\n", placement, tried, total,
           lost ? " for good" : "", noticed);
    ck_assert_int_gt(noticed, 0);
}

START_TEST(the_text_survives_every_failure)
{
    bool lost = _i & 1;

    fail_every_call(fused, "gpu", NULL, lost, 7);
    fail_every_call(plain, "gpu", NULL, lost, 23);
    fail_every_call(plain, "experts-gpu", NULL, lost, 19);
    fail_every_call(plain, "attention-gpu", NULL, lost, 13);
    fail_every_call(fused, "cpu", "2:gpu,6:hot:2M,9:attention-gpu", lost, 23);
    fail_every_call(fused, "stream:3M", NULL, lost, 23);
    fail_every_call(fused, "prompt gpu", NULL, lost, 3);
    fail_every_call(plain, "gpu", "0:prompt cpu,4:prompt gpu,8:cpu", lost, 29);
}
END_TEST

/* The same for literally every call, with a model so small that each run takes milliseconds: a
 * prompt and some greedy tokens, whose logits must be those of the CPU to the last bit. It has no
 * tokenizer, so this is the level below a turn. */
static int n_told;

static void count_told(void *ctx, const char *line)
{
    n_told++;
}

static float *greedy(const struct device_ops *const *backends, const char *placement,
                     const char *prompts)
{
    enum { PROMPT = 5, NEW = 4 };
    struct engine_config c = {.model_path = support_path("golden/phimoe/phimoe-window-f32"),
                              .context = 64,
                              .n_threads = 1,
                              .ubatch = 4,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .convert = DTYPE_Q8_0,
                              .no_tokenizer = true,
                              .backends = backends,
                              .placement = placement,
                              .placement_prompt = prompts,
                              .log = count_told};
    struct engine *g = NULL;
    struct error e = {0};
    int ids[PROMPT] = {3, 14, 15, 92, 65}, vocab, next;
    float *logits;

    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    vocab = engine_info(g)->model->hp.n_vocab;
    logits = calloc((size_t)(NEW + 1) * (size_t)vocab, sizeof *logits);
    ck_assert_msg(engine_eval(g, ids, PROMPT, logits, false, &e) == 0, "%s", e.text);
    for (int t = 0; t < NEW; t++) {
        float *row = logits + (size_t)t * (size_t)vocab;

        next = 0;
        for (int i = 1; i < vocab; i++)
            next = row[i] > row[next] ? i : next;
        ck_assert_msg(engine_eval(g, &next, 1, row + vocab, false, &e) == 0, "%s", e.text);
    }
    ck_assert_int_eq(engine_session_tokens(g, NULL), PROMPT + NEW);
    engine_close(g);
    return realloc(logits, (size_t)(NEW + 1) * (size_t)vocab * sizeof *logits);
}

START_TEST(literally_every_call)
{
    static const struct {
        const struct device_ops *const *backends;
        const char *placement, *prompts;
    } cases[] = {{fused, "gpu", NULL},         {plain, "gpu", NULL},
                 {plain, "experts-gpu", NULL}, {fused, "attention-gpu", NULL},
                 {fused, "stream:20K", NULL},  {fused, "cpu", "gpu"},
                 {plain, "gpu", "cpu"},        {plain, "experts-gpu", "attention-gpu"}};
    const struct device_ops *const *backends = cases[_i / 2].backends;
    const char *placement = cases[_i / 2].placement, *prompts = cases[_i / 2].prompts;
    bool lost = _i & 1;
    const size_t bytes = 5 * 96 * sizeof(float);
    float *want, *got;
    long total, untold = 0;

    fake_device_control(NULL);
    want = greedy(NULL, NULL, NULL);
    got = greedy(backends, placement, prompts);
    total = fake_device_calls();
    ck_assert_mem_eq(got, want, bytes);
    free(got);
    ck_assert_int_gt(total, 15);
    for (long n = 1; n <= total; n++) {
        n_told = 0;
        fake_device_control(&(struct fake_control){.fail_at = n, .lost = lost});
        got = greedy(backends, placement, prompts);
        ck_assert_msg(memcmp(got, want, bytes) == 0, "%s: call %ld of %ld failed%s: other logits",
                      placement, n, total, lost ? " for good" : "");
        ck_assert_int_ge(fake_device_calls(), n); /* the call was reached */
        untold += n_told == 0;
        free(got);
    }
    fake_device_control(NULL);
    free(want);
    printf("%s: each of %ld calls failed%s, %ld without a word\n", placement, total,
           lost ? " for good" : "", untold);
}
END_TEST

/* Experts that pass through: each call finds its expert lying there, come by a guess, or copied for
 * it; nothing else is copied. */
START_TEST(experts_are_streamed)
{
    const char *want = reference(60);
    static struct heard h;

    fake_device_control(NULL);
    for (int k = 0; k < 2; k++) {
        struct engine *g = open_demo(k ? plain : fused, "stream:3M", NULL);
        const struct telemetry *t = engine_telemetry(g);
        const struct plan *p = engine_plan(g);
        const struct device_stats *d = &t->devices[1];
        uint64_t passing = 0, calls = 0;
        struct error e = {0};

        for (int c = 0; c < t->n_layers * t->n_experts; c++) {
            ck_assert_int_eq(p->experts[c], 1);
            passing += p->streamed[c];
        }
        ck_assert_uint_gt(passing, 0);
        tell(g, &h, 60);
        ck_assert_str_eq(h.text, want);
        for (int c = 0; c < t->n_layers * t->n_experts; c++)
            calls += p->streamed[c] ? t->answer[c] : 0;
        printf("%llu of %d experts pass through: %llu calls of the answer, %llu copies, %llu "
               "guessed, %llu of them right\n",
               (unsigned long long)passing, t->n_layers * t->n_experts, (unsigned long long)calls,
               (unsigned long long)d->streamed, (unsigned long long)d->prefetched,
               (unsigned long long)d->prefetch_hits);
        ck_assert_uint_gt(d->prefetch_hits, d->prefetched / 4);
        ck_assert_uint_le(d->prefetch_hits, d->prefetched);
        /* the prompt's calls come on top */
        ck_assert_uint_ge(d->streamed - d->prefetched + d->prefetch_hits, calls);
        ck_assert_uint_eq(d->streamed_bytes, d->streamed * (d->stream_bytes / DEVICE_STREAM));
        ck_assert_uint_le(d->weight_bytes + d->stream_bytes, (uint64_t)3 << 20);
        /* and back: nothing stays behind */
        ck_assert_int_eq(engine_place(g, "cpu", &e), 0);
        ck_assert_int_eq(engine_settle(g, &e), 0);
        ck_assert_uint_eq(d->stream_bytes + d->weight_bytes, 0);
        engine_close(g);
        /* in and out of it within an answer */
        g = open_demo(
            k ? plain : fused, "cpu",
            "3:stream:3M,12:gpu,20:stream:2M,30:stream:4M,40:cpu,45:stream:3M,52:experts-gpu");
        tell(g, &h, 60);
        ck_assert_str_eq(h.text, want);
        ck_assert_int_eq(engine_settle(g, &e), 0);
        ck_assert_uint_eq(engine_telemetry(g)->devices[1].stream_bytes, 0);
        ck_assert_uint_gt(engine_telemetry(g)->devices[1].streamed, 0);
        engine_close(g);
    }
    /* no room for the buffers: said, and the text goes on */
    fake_device_control(&(struct fake_control){.memory = 100 << 10});
    struct engine *g = open_demo(fused, "cpu", "2:stream:3M");
    tell(g, &h, 60);
    ck_assert_str_eq(h.text, want);
    ck_assert_ptr_nonnull(strstr(h.notice, "no room"));
    engine_close(g);
    fake_device_control(NULL);
}
END_TEST

START_TEST(a_device_without_room)
{
    const char *want = reference(30);
    static struct heard h;
    struct engine *g;

    fake_device_control(&(struct fake_control){.memory = 3 << 20});
    g = open_demo(fused, "cpu", "2:gpu");
    tell(g, &h, 30);
    ck_assert_str_eq(h.text, want);
    ck_assert_int_ge(h.notices, 1);
    ck_assert_ptr_nonnull(strstr(h.notice, "no room"));
    engine_close(g);
    fake_device_control(NULL);
}
END_TEST

/* Deferral is lossy and says how much; where nothing can be deferred nothing is lost. */
START_TEST(deferred_experts_show_their_loss)
{
    static struct heard h;
    static const struct {
        const char *placement;
        int defer;
        bool lossy;
    } cases[] = {{"attention-gpu", 0, false}, {"attention-gpu", 1, true},
                 {"attention-gpu", 2, true},  {"cpu", 1, false},
                 {"gpu", 1, false},           {"experts-gpu", 1, false}};

    fake_device_control(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct engine *g = open_demo(plain, cases[i].placement, NULL);
        uint64_t counted = 0, after = 0;
        struct shadow_loss shadow;
        struct defer_loss loss;
        struct error e = {0};
        int n;

        engine_defer_set(g, cases[i].defer);
        tell(g, &h, 40);
        ck_assert_int_eq(h.notices, 0);
        n = engine_session_tokens(g, NULL);
        for (int k = 0; k < engine_telemetry(g)->n_layers * engine_telemetry(g)->n_experts; k++)
            counted += engine_telemetry(g)->session[k];
        ck_assert_msg(engine_defer_loss(g, n - 39, &loss, &e) == 0, "%s", e.text);
        printf("%s, %d deferred: mean KL %.4g, largest %.4g, %d of %d tokens change\n",
               cases[i].placement, cases[i].defer, loss.mean_kl, loss.largest_kl, loss.changed,
               loss.tokens);
        ck_assert_int_eq(loss.tokens, 39);
        ck_assert_int_eq(engine_session_tokens(g, NULL), n);
        ck_assert(isfinite(loss.mean_kl));
        ck_assert_msg((loss.largest_kl > 1e-9) == cases[i].lossy, "%s: %g", cases[i].placement,
                      loss.largest_kl);
        if (!cases[i].lossy)
            ck_assert_int_eq(loss.changed, 0);
        for (int k = 0; k < engine_telemetry(g)->n_layers * engine_telemetry(g)->n_experts; k++)
            after += engine_telemetry(g)->session[k];
        ck_assert_uint_eq(after, counted);
        if (cases[i].defer) { /* the chat's shadow says the same, and how fast both are */
            ck_assert_int_eq(engine_shadow(g, n - 39, &shadow, &e), 0);
            ck_assert_int_eq(shadow.tokens, 39);
            ck_assert_int_eq(shadow.changed, loss.changed);
            ck_assert(shadow.rate > 0 && shadow.exact_rate > 0);
            ck_assert((shadow.largest_kl > 1e-9) == cases[i].lossy);
            ck_assert_int_eq(engine_defer(g), cases[i].defer);
        }
        ck_assert_int_eq(engine_defer_loss(g, n, &loss, &e), ERR_USAGE);
        engine_close(g);
    }
    /* the device goes while something is deferred: nothing of a layer's sum is lost on the way */
    for (long n = 20; n < 220; n += 13) {
        struct engine *g;

        fake_device_control(&(struct fake_control){.fail_at = n, .lost = true});
        g = open_demo(fused, "attention-gpu", NULL);
        engine_defer_set(g, 1);
        tell(g, &h, 8);
        ck_assert_ptr_null(strstr(h.text, "\xef\xbf\xbd"));
        engine_close(g);
    }
    fake_device_control(NULL);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("switch");
    TCase *t = tcase_create("switch");

    tcase_set_timeout(t, 240);
    tcase_add_test(t, every_plan_says_the_same);
    tcase_add_test(t, two_devices_say_the_same);
    tcase_add_test(t, switches_do_not_change_the_text);
    tcase_add_test(t, a_conversation_moves);
    tcase_add_test(t, a_device_opens_beside_the_answer);
    tcase_add_loop_test(t, every_pair_of_plans_says_the_same, 0, PAIR_PLANS * PAIR_PLANS);
    tcase_add_test(t, a_conversation_goes_to_and_fro);
    tcase_add_test(t, switches_of_either_phase_do_not_change_the_text);
    tcase_add_test(t, a_device_holds_what_either_plan_wants);
    tcase_add_loop_test(t, the_text_survives_every_failure, 0, 2);
    tcase_add_loop_test(t, literally_every_call, 0, 16);
    tcase_add_test(t, experts_are_streamed);
    tcase_add_test(t, a_device_without_room);
    tcase_add_test(t, deferred_experts_show_their_loss);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
