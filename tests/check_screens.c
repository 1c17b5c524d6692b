/* Key scripts and recorded events on the canvas, compared with saved screens:
 * tests/screens/NAME.script makes tests/screens/NAME.txt. No terminal, no clock, no sleeps: the
 * script says what time it is. After a wanted change of the picture: CHECK_SCREENS=write
 * build/release/tests/check_screens        (then read the difference before committing it) Script
 * lines: size W H          depth 256|16|0        time MS (since the start) model NAME TYPE LAYERS
 * EXPERTS USED     loading DONE TOTAL system CORES USE OWN RSS TOTAL AVAILABLE (shares in %, bytes
 * as 2G) gpu NAME USE|- WHY…      user TEXT      answer      start PROMPT CACHED      prefill DONE
 * TOTAL tokens N SEED     says TEXT             done REASON SECONDS     notice TEXT     error TEXT
 * place PLAN paced PLANS (the newest answer was)     forget (the chat was taken back)
 * branch TEXT (another answer in its place)     recall (it is back)     help (the
 * keys)   wants PLAN        plan NAME TOKENS MEAN SD GPU%           moves N BYTES MOVED     keys
 * KEY…       type TEXT      pace N     hot LAYER EXPERT DEVICE     hints on (and the row of keys)
 * click X Y     sampling TEXT
 * closing NAME (another model comes)
 * entry N (of the chat: the newest block)     view N TEXT (the rule)
 * serve WHERE SESSIONS WAITING CONTEXT (a server's dashboard, the first line of a script)
 * session I STATE WHO HELD PROMPT CACHED READ MADE TOK_S SECONDS      queued I WHO PROMPT SECONDS
 * request STATUS WHO PROMPT CACHED MADE FIRST SECONDS TEXT      rates ANSWERS PROMPTS PASS P50 P95
 * train STEPS FROM LAYERS BLOCKS ROUTED VALID (a training run's, the first line of a script)
 * steps N SECONDS      frozen LAYER BLOCK (nothing is trained there; 0: attention)      valid LOSS
 * tells TEXT (the program)      ends (the user wants to quit)
 * connect HOST WHOLE RUNNING WAITING KV DECODE PROMPTS CACHED ACCEPTED LENGTH (a chat with a
 * server; shares in %, nan: not told)     untold WHY     waits TEXT (for it)
 * above LINE|LINE (over the input line)     marked N (that line of it, 0: none)
 * computes LAYER (a long pass does)
 * find TEXT      show [styles]     the screen goes
 * into NAME.txt */
#include "tests/support.h"
#include "engine/base/mem.h"
#include "ui/chatview.h"
#include "ui/keys.h"
#include "ui/panels/panel.h"
#include "ui/panels/presets.h"
#include "ui/screen/key_help.h"
#include "ui/screen/screen.h"
#include "ui/search.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct player {
    struct ui_model m;
    struct canvas c;
    struct telemetry t;
    uint64_t now;
    char typed[256], above[256], *help;
    int marked;
    unsigned seed;
    struct ui_serving serving;
    struct ui_training training;
    uint16_t *routed;
    FILE *out;
};

static struct screen_input typed_input(const struct player *p)
{
    size_t len = strlen(p->typed);

    return (struct screen_input){"> ",     p->typed, len, len, p->above[0] ? p->above : NULL,
                                 p->marked};
}

static double size_of(const char *s)
{
    char *end;
    double v = strtod(s, &end);

    return v * (*end == 'K' ? 1024.0 : *end == 'M' ? 1048576.0 : *end == 'G' ? 1073741824.0 : 1.0);
}

static void event(struct player *p, struct event ev)
{
    ui_model_event(&p->m, &ev, p->now);
}

static unsigned next(struct player *p)
{
    return p->seed = p->seed * 1664525u + 1013904223u, p->seed >> 8;
}

static void publish(struct player *p)
{
    p->t.serial++;
    ui_model_telemetry(&p->m, &p->t, p->now);
}

static void telemetry_free(struct player *p)
{
    free(p->t.answer);
    free(p->t.session);
    free(p->t.now);
    free(p->t.ran_on);
    free(p->t.planned);
    free(p->t.newest);
    free(p->t.here);
    free(p->t.edited);
    free(p->t.routes);
}

static void setup_model(struct player *p, const char *name, const char *type, int layers,
                        int experts, int used)
{
    size_t n = (size_t)layers * (size_t)experts;

    snprintf(p->m.model_name, sizeof p->m.model_name, "%s", name);
    snprintf(p->m.model_type, sizeof p->m.model_type, "%.*s", (int)sizeof p->m.model_type - 1,
             type);
    telemetry_free(p); /* of another one before it */
    p->t.n_layers = layers;
    p->t.n_experts = experts;
    p->t.n_experts_used = used;
    p->t.answer = calloc(n, sizeof *p->t.answer);
    p->t.session = calloc(n, sizeof *p->t.session);
    p->t.now = calloc(n, sizeof *p->t.now);
    p->t.ran_on = malloc(n);
    p->t.planned = calloc(n, 1);
    p->t.newest = calloc(n, 1);
    p->t.edited = calloc(n, 1);
    p->t.here = malloc(n);
    memset(p->t.here, 1, n);
    p->t.routes = calloc((size_t)TELEMETRY_ROUTES * (size_t)(layers * used), sizeof *p->t.routes);
    memset(p->t.ran_on, PLAN_NO_DEVICE, n);
    p->t.state = ENGINE_IDLE;
    p->t.context_size = 4096;
    p->t.n_devices = 1;
    p->t.weights_packed = 2211908157ull;
    p->t.weights_mapped = 262144000;
    p->t.kv_bytes = 128849018;
    p->t.kv_used_bytes = 31457280;
    p->t.scratch_bytes = 53687091;
    p->t.devices[0].weight_bytes = 2211908157ull;
    snprintf(p->t.plan, sizeof p->t.plan, "cpu");
    snprintf(p->m.memory_share, sizeof p->m.memory_share, "86 %% of memory speed");
    ck_assert_int_eq(ui_model_ready(&p->m, layers, experts, used), 0);
    event(p, (struct event){.kind = EVENT_READY});
    publish(p);
}

/* Four tokens, itself and those with the next ids. */
static void likely_tell(struct player *p, const struct token_event *t)
{
    struct event ev = {.kind = EVENT_LOGPROBS, .logprobs = {.id = t->id, .n = 4}};

    for (int i = 0; i < 4; i++) {
        ev.logprobs.ids[i] = t->id + i;
        ev.logprobs.logprobs[i] = logf(i ? (1 - t->probability) / (float)(2 << i) : t->probability);
    }
    event(p, ev);
}

static void make_tokens(struct player *p, int n, unsigned seed)
{
    static const char *const words[] = {" once",  " upon", " a",     " time", ",", " there",
                                        " lived", " fox",  " named", " Lily", ".", " She"};
    int i, l, s, e;

    p->seed = seed;
    p->t.state = ENGINE_DECODE;
    for (i = 0; i < n; i++) {
        struct event ev = {.kind = EVENT_TOKEN};
        uint32_t us = 8000 + next(p) % 2000;
        const char *word = words[next(p) % 12];

        memset(p->t.newest, 0, (size_t)(p->t.n_layers * p->t.n_experts));
        for (l = 0; l < p->t.n_layers; l++)
            for (s = 0; s < p->t.n_experts_used; s++) {
                /* Some experts are liked more than others, each layer its own. */
                int a = (int)(next(p) % (unsigned)p->t.n_experts),
                    b = (int)(next(p) % (unsigned)p->t.n_experts);
                int at;

                e = (a < b ? a : b) + l * 5;
                at = l * p->t.n_experts + e % p->t.n_experts;
                p->t.answer[at]++;
                p->t.session[at]++;
                p->t.now[at] = p->t.now[at] * 0.957f + 1;
                p->t.newest[at] = (uint8_t)(s + 1);
                p->t.routes[p->t.session_generated_tokens % TELEMETRY_ROUTES *
                                (uint64_t)(p->t.n_layers * p->t.n_experts_used) +
                            (uint64_t)(l * p->t.n_experts_used + s)] = (uint16_t)(at %
                                                                                  p->t.n_experts);
                p->t.ran_on[at] = p->t.planned[at];
            }
        p->t.recent_us[p->t.recent_count++ % TELEMETRY_RECENT] = us;
        p->t.generated_tokens++;
        p->t.session_generated_tokens++;
        p->t.context_used++;
        p->now += (uint64_t)us * 1000;
        if (!p->t.first_token_ns)
            p->t.first_token_ns = p->now;
        p->t.last_token_ns = p->now;
        p->t.decode_tok_s = p->t.generated_tokens > 1
                                ? (p->t.generated_tokens - 1) * 1e9 /
                                      (double)(p->t.last_token_ns - p->t.first_token_ns)
                                : 0;
        ev.token.id = (int)(next(p) % 4000);
        ev.token.probability = (float)(next(p) % 1000) / 1000;
        ev.token.candidates = 1 + ev.token.id % 3 * (ev.token.id % 40);
        /* greedy: all of it; else more than the model's own, as cuts make it */
        ev.token.share = ev.token.candidates == 1 ? 1 : 0.2f + 0.8f * ev.token.probability;
        ev.token.compute_ns = (uint64_t)us * 1000;
        ev.token.serial = p->t.session_generated_tokens;
        ev.token.len = (uint16_t)strlen(word);
        memcpy(ev.token.text, word, strlen(word));
        likely_tell(p, &ev.token);
        event(p, ev);
        publish(p);
        ui_model_tick(&p->m, p->now);
    }
}

static void press(struct player *p, const char *name)
{
    static const struct {
        const char *name;
        const char *bytes;
    } keys[] = {
        {"Tab", "\t"},
        {"S-Tab", "\033[Z"},
        {"Esc", "\033"},
        {"Up", "\033[A"},
        {"Down", "\033[B"},
        {"Right", "\033[C"},
        {"Left", "\033[D"},
        {"PgUp", "\033[5~"},
        {"PgDn", "\033[6~"},
        {"Home", "\033[H"},
        {"End", "\033[F"},
        {"C-Home", "\033[1;5H"},
        {"C-End", "\033[1;5F"},
        {"F1", "\033OP"},
        {"F2", "\033OQ"},
        {"F3", "\033OR"},
        {"F4", "\033OS"},
        {"S-Up", "\033[1;2A"},
        {"M-1", "\0331"},
        {"M-4", "\0334"},
        {"M-6", "\0336"},
        {"z", "z"},
        {"m", "m"},
        {"M-x", "\033x"},
        {"M-t", "\033t"},
        {"?", "?"},
        {"M-Up", "\033[1;3A"},
        {"M-Down", "\033[1;3B"},
        {"M-k", "\033k"},
        {"M-p", "\033p"},
        {"+", "+"},
        {"-", "-"},
        {"M-c", "\033c"},
        {"Enter", "\r"},
        {"n", "n"},
        {"N", "N"},
    };
    struct decode d;
    struct input_event ev;
    enum action action;
    int index;
    size_t i;

    for (i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(name, keys[i].name) == 0)
            break;
    ck_assert_msg(i < sizeof keys / sizeof keys[0], "no key %s", name);
    decode_init(&d);
    decode_push(&d, keys[i].bytes, strlen(keys[i].bytes));
    ck_assert_int_eq(decode_next(&d, true, &ev), 1);
    if (screen_search_key(&p->m, &ev)) {
        decode_release(&d);
        return;
    }
    action = keys_lookup(p->m.focus >= 0 ? KEYS_PANEL
                         : p->m.training ? KEYS_TRAINING
                         : p->m.serving  ? KEYS_SERVER
                                         : KEYS_CHAT,
                         ev.key, ev.mods, &index);
    screen_act(&p->m, action, index);
    decode_release(&d);
}

/* The panels of another kind of screen. */
static void screen_restart(struct player *p)
{
    for (int i = 0; i < PANEL_COUNT; i++) {
        mem_free(p->m.panel_state[i]);
        p->m.panel_state[i] = NULL;
    }
    ck_assert_int_eq(screen_init(&p->m), 0);
}

/* What a server's board tells. */
static bool serving_line(struct player *p, const char *word, const char *rest)
{
    struct ui_serving *v = &p->serving;
    struct ui_request *q = &v->requests[v->n_requests % UI_REQUESTS];
    struct ui_session s = {.what = "chat/completions"};
    struct ui_waiting w = {.what = "chat/completions"};
    int i = 0, state = 0, at = 0;

    if (strcmp(word, "serve") == 0) {
        p->m.serving = v;
        ck_assert_int_eq(
            sscanf(rest, "%63s %d %d %d", v->where, &v->n_sessions, &v->waiting, &v->context), 4);
        v->ready = true;
        v->completed = 12430;
        v->cancelled = 2;
        p->m.heat = HEAT_NOW;
        screen_restart(p);
    } else if (strcmp(word, "session") == 0) {
        ck_assert_int_eq(sscanf(rest, "%d %d %47s %d %d %d %d %d %lf %lf", &i, &state, s.who,
                                &s.held, &s.prompt, &s.cached, &s.read, &s.made, &s.tok_s,
                                &s.seconds),
                         10);
        s.state = (enum ui_session_state)state;
        v->running += s.state != UI_SESSION_IDLE;
        v->sessions[i] = s;
    } else if (strcmp(word, "queued") == 0) {
        ck_assert_int_eq(sscanf(rest, "%d %47s %d %lf", &i, w.who, &w.prompt, &w.seconds), 4);
        v->queue[i] = w;
    } else if (strcmp(word, "request") == 0) {
        *q = (struct ui_request){.clock = "14:03:22", .what = "chat/completions"};
        ck_assert_int_ge(sscanf(rest, "%d %47s %d %d %d %lf %lf %n", &q->status, q->who, &q->prompt,
                                &q->cached, &q->made, &q->first_s, &q->seconds, &at),
                         7);
        snprintf(q->text, sizeof q->text, "%s", rest + at);
        v->n_requests++;
    } else if (strcmp(word, "rates") == 0) {
        ck_assert_int_eq(sscanf(rest, "%lf %lf %lf %lf %lf", &v->answers_tok_s, &v->prompts_tok_s,
                                &v->answers_a_pass, &v->first_p50_s, &v->first_p95_s),
                         5);
    } else {
        return false;
    }
    return true;
}

static void train_begin(struct player *p, const char *rest)
{
    struct ui_training *t = &p->training;
    int routed, n;

    *t = (struct ui_training){.batch = 8,
                              .accumulation = 1,
                              .lines = 320,
                              .rank = 8,
                              .clip = 1,
                              .left_s = -1,
                              .valid = NAN,
                              .valid_best = NAN,
                              .base = 2211908157ull,
                              .adapter = 1288490189ull,
                              .memory = 419430400};
    ck_assert_int_eq(sscanf(rest, "%d %d %d %d %d %d", &t->steps, &t->from, &t->layers, &t->blocks,
                            &routed, &n),
                     6);
    t->has_valid = n;
    t->step = t->from;
    t->matrices = t->layers * (4 + 3 * t->blocks);
    n = t->layers * (1 + t->blocks);
    t->newest = calloc((size_t)n, sizeof *t->newest);
    t->mean = calloc((size_t)n, sizeof *t->mean);
    t->routed = p->routed = calloc((size_t)t->layers, sizeof *p->routed);
    for (int l = 0; l < t->layers; l++)
        p->routed[l] = (uint16_t)routed;
    for (int i = 0; i < UI_RATES; i++)
        t->rates[i] = i < 6 ? 2e-3f * (float)(i + 1) / 6
                            : 2e-3f * (0.1f + 0.45f * (1 + cosf(3.14159f * (float)(i - 6) / 122)));
    snprintf(p->m.model_name, sizeof p->m.model_name, "tiny-storyteller");
    snprintf(p->m.model_type, sizeof p->m.model_type, "BF16");
    p->m.loading = false;
    p->m.training = t;
    p->m.heat = HEAT_NOW;
    screen_restart(p);
}

/* Losses fall, and some experts learn more than others; a few meet no token. */
static void train_step(struct player *p, double seconds)
{
    struct ui_training *t = &p->training;
    int n = ++t->step - t->from, width = 1 + t->blocks;
    double sum = 0;

    t->loss = 0.35 + 3.2 * exp(-(double)t->step / 30) + (double)(next(p) % 1000) / 2500;
    t->lr = (double)t->rates[(t->step - 1) * (UI_RATES - 1) / (t->steps > 1 ? t->steps - 1 : 1)];
    t->step_s = seconds;
    t->tok_s = 8 * 117 / seconds;
    t->left_s = seconds * (t->steps - t->step);
    ui_curve_add(&t->loss_curve, t->step, t->loss);
    for (int i = 0; i < t->layers * width; i++) {
        float v = (float)(next(p) % 900 + 100) * (i % width == 0 ? 4e-5f : 1e-5f) *
                  (float)(1 + i / width % 5) * (i % 7 == 3 ? 4 : 1);

        if (isnan(t->newest[i]))
            continue;
        t->newest[i] = i % width && next(p) % 11 == 0 ? 0 : v;
        t->mean[i] = sqrtf(
            (t->mean[i] * t->mean[i] * (float)(n - 1) + t->newest[i] * t->newest[i]) / (float)n);
        sum += (double)(t->newest[i] * t->newest[i]);
    }
    t->grad_norm = sqrt(sum) * 30;
}

/* What a training run tells. */
static bool training_line(struct player *p, const char *word, const char *rest)
{
    struct ui_training *t = &p->training;
    double v = atof(rest);
    int a = 0, b = 0;

    if (strcmp(word, "train") == 0) {
        train_begin(p, rest);
    } else if (strcmp(word, "steps") == 0) {
        ck_assert_int_eq(sscanf(rest, "%d %lf", &a, &v), 2);
        while (a--)
            train_step(p, v);
    } else if (strcmp(word, "frozen") == 0) {
        ck_assert_int_eq(sscanf(rest, "%d %d", &a, &b), 2);
        t->newest[a * (1 + t->blocks) + b] = t->mean[a * (1 + t->blocks) + b] = NAN;
    } else if (strcmp(word, "valid") == 0) {
        t->valid = v;
        t->valid_at = t->step;
        if (!(v >= t->valid_best)) {
            t->valid_best = v;
            t->best_at = t->step;
        }
        ui_curve_add(&t->valid_curve, t->step, v);
    } else if (strcmp(word, "tells") == 0) {
        snprintf(t->text, sizeof t->text, "%s", rest);
    } else if (strcmp(word, "ends") == 0) {
        t->ending = true;
    } else {
        return false;
    }
    return true;
}

/* Lines of a chat with a server; false: another one. */
static bool connect_line(struct player *p, const char *word, const char *rest)
{
    struct ui_server *s = &p->m.server;
    int whole = 0;

    if (strcmp(word, "connect") == 0) {
        ck_assert_int_eq(sscanf(rest, "%63s %d %lf %lf %lf %lf %lf %lf %lf %lf", s->host, &whole,
                                &s->running, &s->waiting, &s->kv, &s->decode_tok_s,
                                &s->prompt_tok_s, &s->cached, &s->accepted, &s->draft_length),
                         10);
        s->kv /= 100;
        s->cached /= 100;
        s->accepted /= 100;
        s->on = true;
        s->whole = whole;
        screen_panels(&p->m, preset_read(&p->m, "all"));
    } else if (strcmp(word, "untold") == 0) {
        snprintf(s->why, sizeof s->why, "%s", rest);
    } else if (strcmp(word, "waits") == 0) {
        snprintf(s->waits, sizeof s->waits, "%s", rest);
    } else {
        return false;
    }
    return true;
}

static void line(struct player *p, char *s)
{
    char word[32] = "", a[64] = "", b[64] = "", c[64] = "", d[64] = "", e[64] = "", f[64] = "";
    char *rest = strchr(s, ' ');
    struct ui_block *block;

    rest = rest ? rest + 1 : s + strlen(s);
    if (sscanf(s, "%31s %63s %63s %63s %63s %63s %63s", word, a, b, c, d, e, f) < 1 ||
        word[0] == '#')
        return;
    if (serving_line(p, word, rest) || training_line(p, word, rest) || connect_line(p, word, rest))
        return;
    if (strcmp(word, "size") == 0) {
        ck_assert_int_eq(canvas_resize(&p->c, atoi(a), atoi(b)), 0);
    } else if (strcmp(word, "depth") == 0) {
        p->m.theme.depth = atoi(a) == 256 ? THEME_256 : atoi(a) == 16 ? THEME_16 : THEME_MONO;
    } else if (strcmp(word, "time") == 0) {
        p->now = strtoull(a, NULL, 10) * 1000000ull;
        ui_model_tick(&p->m, p->now);
    } else if (strcmp(word, "model") == 0) {
        setup_model(p, a, b, atoi(c), atoi(d), atoi(e));
    } else if (strcmp(word, "layer") == 0) { /* its routed experts, and all its blocks */
        p->t.routed[atoi(a)] = (uint16_t)atoi(b);
        p->t.blocks[atoi(a)] = (uint16_t)atoi(c);
        publish(p);
    } else if (strcmp(word, "disk") == 0) { /* bytes, slots, bytes a second, % there, % waited */
        p->t.disk = (struct expert_cache_stats){
            .bytes = (uint64_t)size_of(a), .slots = atoi(b), .hits = 900, .misses = 100};
        p->t.disk_rate = size_of(c);
        p->t.disk_hits = atof(d) / 100;
        p->t.disk_share = atof(e) / 100;
        for (int i = 0; i < p->t.n_layers * p->t.n_experts; i++)
            p->t.here[i] = i % 3 != 0;
        publish(p);
    } else if (strcmp(word, "loading") == 0) {
        event(p, (struct event){.kind = EVENT_LOADING,
                                .progress = {(uint64_t)size_of(a), (uint64_t)size_of(b)}});
    } else if (strcmp(word, "system") == 0) {
        struct ui_system y = {.valid = true,
                              .n_cores = atoi(a),
                              .mhz = 3900,
                              .temperature = NAN,
                              .watts = NAN,
                              .battery_watts = NAN};
        int i;

        y.system_use = (float)atof(b) / 100;
        y.process_cores = (float)(atof(c) / 100 * y.n_cores);
        for (i = 0; i < y.n_cores; i++) {
            y.core_use[i] = y.system_use * (0.6f + 0.4f * (float)(i % 3));
            y.core_process_use[i] = i % 4 == 3 ? 0.02f : (float)atof(c) / 100;
        }
        y.rss = (uint64_t)size_of(d);
        y.rss_peak = UINT64_MAX;
        y.memory_total = (uint64_t)size_of(e);
        y.memory_available = (uint64_t)size_of(f);
        ui_model_system(&p->m, &y);
    } else if (strcmp(word, "gpu") == 0) {
        struct ui_device *g = &p->m.devices[1];

        snprintf(g->name, sizeof g->name, "%s", a);
        g->use = b[0] == '-' ? NAN : (float)atof(b) / 100;
        g->mhz = g->temperature = g->watts = NAN;
        snprintf(g->why, sizeof g->why, "%s", b[0] == '-' ? strchr(rest, '-') + 2 : "");
        p->t.n_devices = 2;
        p->t.devices[1].weight_bytes = 600ull << 20;
        publish(p);
    } else if (strcmp(word, "unified") == 0) { /* the GPU's weights are the host's, in place */
        p->t.devices[1].shared_bytes = p->t.devices[1].weight_bytes;
        publish(p);
    } else if (strcmp(word, "health") == 0) { /* trouble, blocks given back, audited, why */
        struct device_health *x = &p->t.health[1];

        x->trouble = (enum device_trouble)atoi(a);
        x->returned = atoi(b);
        x->audited = strtoull(c, NULL, 10);
        snprintf(x->why, sizeof x->why, "%s", d[0] ? strstr(rest, d) : "");
        publish(p);
    } else if (strcmp(word, "kinds") == 0) { /* of cores: fast and slow threads, their share */
        p->t.devices[0].fast_threads = strtoull(a, NULL, 10);
        p->t.devices[0].slow_threads = strtoull(b, NULL, 10);
        p->t.devices[0].slow_share = strtoull(c, NULL, 10);
        publish(p);
    } else if (strcmp(word, "user") == 0) {
        ui_block_add(&p->m, UI_USER, rest);
    } else if (strcmp(word, "sampling") == 0) {
        snprintf(p->m.sampling, sizeof p->m.sampling, "%.47s", rest);
    } else if (strcmp(word, "click") == 0) {
        screen_click(&p->m, p->c.w, p->c.h, atoi(a), atoi(b));
    } else if (strcmp(word, "entry") == 0) { /* the newest block is that one of the chat */
        p->m.blocks[p->m.n_blocks - 1].entry = atoi(a);
    } else if (strcmp(word, "view") == 0) { /* the model reads from that entry on */
        ui_block_view(&p->m, atoi(a), b[0] ? strstr(rest, b) : "");
    } else if (strcmp(word, "answer") == 0) {
        block = ui_block_add(&p->m, UI_ASSISTANT, "");
        block->open = true;
    } else if (strcmp(word, "start") == 0) {
        memset(p->t.answer, 0, sizeof *p->t.answer * (size_t)(p->t.n_layers * p->t.n_experts));
        p->t.state = ENGINE_PREFILL;
        p->t.generated_tokens = 0;
        p->t.first_token_ns = 0;
        p->t.turn_start_ns = p->now;
        p->t.prompt_tokens = atoi(a);
        p->t.prefill_tok_s = 431;
        p->t.context_used += atoi(a) - atoi(b);
        event(p, (struct event){.kind = EVENT_TURN_STARTED,
                                .progress = {strtoull(b, NULL, 10), strtoull(a, NULL, 10)}});
        publish(p);
    } else if (strcmp(word, "prefill") == 0) {
        event(p, (struct event){.kind = EVENT_PREFILL,
                                .progress = {strtoull(a, NULL, 10), strtoull(b, NULL, 10)}});
    } else if (strcmp(word, "tokens") == 0) {
        make_tokens(p, atoi(a), (unsigned)atoi(b));
    } else if (strcmp(word, "says") == 0) {
        char *text = rest, *o = rest;

        for (; *text; text++) /* \n, \t, \a, \e as such */
            *o++ = *text == '\\' && text[1] == 'n'   ? (text++, '\n')
                   : *text == '\\' && text[1] == 'e' ? (text++, '\033')
                   : *text == '\\' && text[1] == 't' ? (text++, '\t')
                   : *text == '\\' && text[1] == 'a' ? (text++, '\a')
                                                     : *text;
        ui_block_append(&p->m, &p->m.blocks[p->m.n_blocks - 1], rest, (size_t)(o - rest));
    } else if (strcmp(word, "thinks") == 0 || strcmp(word, "replies") == 0) { /* as tokens */
        for (const char *at = rest; *at; at++) {
            struct event ev = {.kind = EVENT_TOKEN,
                               .token = {.id = 1, .len = 1, .text = {*at == '|' ? '\n' : *at}}};

            ev.token.part = word[0] == 't' ? PART_REASONING : PART_ANSWER;
            event(p, ev);
        }
    } else if (strcmp(word, "done") == 0) {
        struct event ev = {.kind = EVENT_TURN_DONE};

        ev.done_turn.reason = strcmp(a, "length") == 0      ? STOP_LENGTH
                              : strcmp(a, "cancelled") == 0 ? STOP_CANCELLED
                                                            : STOP_TOKEN;
        ev.done_turn.total_ns = (uint64_t)(atof(b) * 1e9);
        ev.done_turn.completion_tokens = p->t.generated_tokens;
        ev.done_turn.decode_ns = p->t.last_token_ns - p->t.first_token_ns;
        p->t.state = ENGINE_IDLE;
        publish(p);
        event(p, ev);
    } else if (strcmp(word, "paced") == 0) { /* what the transcript knows of the newest answer */
        struct ui_block *x = &p->m.blocks[p->m.n_blocks - 1];

        x->paced = true;
        snprintf(x->plan, sizeof x->plan, "%s", a);
    } else if (strcmp(word, "hints") == 0) { /* as the program starts; the tests are without */
        p->m.hints = p->m.key_bar = true;
    } else if (strcmp(word, "find") == 0) {
        struct screen_input in = {"> ", "", 0, 0, NULL, 0};

        screen_draw(&p->c, &p->m, &in);
        search_begin(&p->m);
        search_type(&p->m, rest, strlen(rest));
        if (p->m.search.at >= 0)
            chatview_show(&p->m, p->m.search.block, p->m.search.offset);
    } else if (strcmp(word, "forget") == 0) {
        ui_model_forget(&p->m);
        ui_block_truncate(&p->m, 0);
        publish(p);
    } else if (strcmp(word, "branch") == 0 || strcmp(word, "recall") == 0) {
        ui_model_forget(&p->m);
        ui_block_truncate(&p->m, 1);
        ui_block_add(&p->m, UI_ASSISTANT, rest);
        if (word[0] == 'r')
            ck_assert(ui_model_recall(&p->m, &p->m.blocks[1]));
        publish(p);
    } else if (strcmp(word, "closing") == 0) { /* another model is loaded */
        screen_closing(&p->m);
        snprintf(p->m.model_name, sizeof p->m.model_name, "%s", a);
        p->m.model_type[0] = 0;
    } else if (strcmp(word, "notice") == 0) {
        event(p, (struct event){.kind = EVENT_NOTICE, .text = rest});
    } else if (strcmp(word, "error") == 0) {
        event(p, (struct event){.kind = EVENT_ERROR, .text = rest});
    } else if (strcmp(word, "help") == 0) {
        size_t size;
        FILE *help = open_memstream(&p->help, &size);

        keys_print_help(help, p->m.training  ? KEYS_TRAINING
                              : p->m.serving ? KEYS_SERVER
                                             : KEYS_CHAT);
        fclose(help);
        p->m.help_text = p->help;
    } else if (strcmp(word, "kept") == 0) {
        snprintf(p->t.cpu_only, sizeof p->t.cpu_only, "%s", rest);
        publish(p);
    } else if (strcmp(word, "wants") == 0) {
        ui_model_placing(&p->m, a, 0, p->now);
    } else if (strcmp(word, "place") == 0) {
        snprintf(p->t.plan, sizeof p->t.plan, "%s", a);
        event(p, (struct event){.kind = EVENT_PLAN, .text = a});
        publish(p);
    } else if (strcmp(word, "prompts") == 0) { /* their own plan, and its rate; "same": none */
        snprintf(p->t.prompt_plan, sizeof p->t.prompt_plan, "%s", strcmp(a, "same") ? a : "");
        for (int i = 0; i < p->t.n_plans; i++)
            if (strcmp(p->t.plans[i].name, a) == 0) {
                p->t.plans[i].prompt_tokens = 100;
                p->t.plans[i].prompt_tok_s = atof(b);
            }
        publish(p);
    } else if (strcmp(word, "plan") == 0) {
        struct plan_metrics *g = &p->t.plans[p->t.n_plans++];

        snprintf(g->name, sizeof g->name, "%s", a);
        g->tokens = strtoull(b, NULL, 10);
        g->mean_tok_s = g->median_tok_s = atof(c);
        g->sd_tok_s = atof(d);
        g->q1_tok_s = g->mean_tok_s - g->sd_tok_s;
        g->q3_tok_s = g->mean_tok_s + g->sd_tok_s;
        g->share[1] = atof(e) / 100;
        g->share[0] = 1 - g->share[1];
        g->wait_ns = g->tokens * 12000;
        g->transfer_ns = g->tokens * 3000;
        g->ttft_ns = 210000000;
        publish(p);
    } else if (strcmp(word, "moves") == 0) {
        p->t.moves_pending = atoi(a);
        p->t.moves_pending_bytes = (uint64_t)size_of(b);
        p->t.moved_bytes = (uint64_t)size_of(c);
        publish(p);
    } else if (strcmp(word, "hot") == 0) {
        int at = atoi(a) * p->t.n_experts + atoi(b);

        p->t.planned[at] = (uint8_t)atoi(c);
        p->t.ran_on[at] = (uint8_t)atoi(c);
        publish(p);
    } else if (strcmp(word, "computes") == 0) { /* a layer */
        p->t.layer_at = atoi(a) + 1;
        publish(p);
    } else if (strcmp(word, "pace") == 0) {
        p->m.pace = atof(a);
    } else if (strcmp(word, "type") == 0) {
        snprintf(p->typed, sizeof p->typed, "%s", rest);
    } else if (strcmp(word, "marked") == 0) {
        p->marked = atoi(rest);
    } else if (strcmp(word, "above") == 0) {
        snprintf(p->above, sizeof p->above, "%s", rest);
        for (char *at = p->above; (at = strchr(at, '|')); at++)
            *at = '\n';
    } else if (strcmp(word, "keys") == 0) {
        char *k = strtok(rest, " ");

        for (; k; k = strtok(NULL, " ")) {
            struct screen_input in = typed_input(p);

            /* scrolling depends on what was last shown */
            screen_draw(&p->c, &p->m, &in);
            press(p, k);
        }
    } else if (strcmp(word, "show") == 0) {
        struct screen_input in = typed_input(p);

        screen_draw(&p->c, &p->m, &in);
        fprintf(p->out, "── %dx%d, depth %d%s\n", p->c.w, p->c.h, (int)p->m.theme.depth,
                a[0] ? ", styles" : "");
        canvas_print(&p->c, p->out, strcmp(a, "styles") == 0);
    } else {
        ck_abort_msg("script: %s?", s);
    }
}

static void player_release(struct player *p)
{
    ui_model_release(&p->m);
    canvas_release(&p->c);
    telemetry_free(p);
    free(p->training.newest);
    free(p->training.mean);
    free(p->routed);
    free(p->help);
}

static void name_token(void *ctx, int id, char *out, size_t size)
{
    snprintf(out, size, " t%d", id);
}

static void player_init(struct player *p, FILE *out)
{
    memset(p, 0, sizeof *p);
    p->out = out;
    ui_model_init(&p->m);
    p->m.token_text = name_token;
    ck_assert_int_eq(screen_init(&p->m), 0);
    canvas_init(&p->c, 80, 24);
}

static void play(const char *script, FILE *out)
{
    struct player p;
    char text[1024];
    FILE *f = fopen(script, "r");

    ck_assert_ptr_nonnull(f);
    player_init(&p, out);
    while (fgets(text, sizeof text, f)) {
        text[strcspn(text, "\n")] = 0;
        line(&p, text);
    }
    fclose(f);
    player_release(&p);
}

static char *slurp(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = fopen(path, "r"), *m;
    int c;

    if (!f)
        return NULL;
    m = open_memstream(&text, &size);
    while ((c = fgetc(f)) != EOF)
        fputc(c, m);
    fclose(f);
    fclose(m);
    return text;
}

START_TEST(saved_screens)
{
    struct dirent **names;
    int n = scandir(support_path("screens"), &names, NULL, alphasort), i, played = 0;
    const char *mode = getenv("CHECK_SCREENS");

    ck_assert_int_gt(n, 0);
    for (i = 0; i < n; i++) {
        char path[600], *got = NULL, *want;
        const char *dot = strrchr(names[i]->d_name, '.');
        size_t size = 0;
        FILE *f;

        if (!dot || strcmp(dot, ".script") != 0) {
            free(names[i]);
            continue;
        }
        snprintf(path, sizeof path, "screens/%s", names[i]->d_name);
        f = open_memstream(&got, &size);
        play(support_path(path), f);
        fclose(f);
        strcpy(strrchr(path, '.'), ".txt");
        if (mode && strcmp(mode, "write") == 0) {
            f = fopen(support_path(path), "w");
            ck_assert_ptr_nonnull(f);
            fputs(got, f);
            fclose(f);
        }
        want = slurp(support_path(path));
        ck_assert_msg(want != NULL, "%s is missing; CHECK_SCREENS=write makes it", path);
        if (strcmp(got, want) != 0) {
            const char *p = got, *q = want;
            int row = 1;

            while (*p && *p == *q) {
                row += *p == '\n';
                p++;
                q++;
            }
            while (p > got && p[-1] != '\n') {
                p--;
                q--;
            }
            ck_abort_msg("%s, line %d:\n is     %.*s\n should %.*s", path, row,
                         (int)strcspn(p, "\n"), p, (int)strcspn(q, "\n"), q);
        }
        free(got);
        free(want);
        free(names[i]);
        played++;
    }
    free(names);
    ck_assert_int_ge(played, 5);
}
END_TEST

/* At every size of its rectangle cells outside stay what they were. */
static void panel_stays_inside(struct player *p, int panel, enum theme_depth depth)
{
    for (int w = 1; w <= 90; w += w < 50 ? 1 : 7)
        for (int h = 1; h <= 40; h += h < 14 ? 1 : 5) {
            struct rect r = {3, 4, w, h};
            struct panel_view v;

            p->m.theme.depth = depth;
            p->m.focus = (w + h) % 3 ? -1 : panel;
            p->m.zoom = (w + h) % 5 ? -1 : panel;
            canvas_clear(&p->c);
            canvas_fill(&p->c, (struct rect){0, 0, 100, 50}, STYLE_PLAIN, '#');
            canvas_clip(&p->c, r);
            v = panel_view(&p->m, panel);
            panels[panel]->draw(&p->c, r, &p->m, &v);
            for (int y = 0; y < 50; y++)
                for (int x = 0; x < 100; x++)
                    if ((x < r.x || y < r.y || x >= r.x + r.w || y >= r.y + r.h) &&
                        canvas_at(&p->c, x, y)->ch != '#')
                        ck_abort_msg("%s %dx%d touches %d,%d", panels[panel]->name, w, h, x, y);
        }
}

static void panels_of_screen_stay_inside(struct player *p)
{
    for (int panel = 0; panel < PANEL_COUNT; panel++)
        for (int depth = 0; depth < 3; depth++)
            panel_stays_inside(p, panel, (enum theme_depth)depth);
}

/* Every panel, on the chat's screen and on a training run's. */
START_TEST(panels_stay_inside)
{
    struct player p;
    FILE *null = fopen("/dev/null", "w");
    char model[] = "model phi-tiny-moe Q4_0 32 16 2",
         gpu[] = "gpu PoCL - this OpenCL device is the CPU itself", tokens[] = "tokens 40 3",
         sys[] = "system 8 97 90 2400M 16G 9800M", answer[] = "answer", start[] = "start 10 0",
         plan[] = "plan hot:600M 300 112.4 0.9 38", moves[] = "moves 3 12M 40M",
         train[] = "train 4000 7 32 17 16 1", frozen[] = "frozen 3 5", steps[] = "steps 2000 0.5",
         valid[] = "valid 1.5", served[] = "connect h:1 1 9e9 9e9 100 9e9 9e9 100 100 9e9";

    player_init(&p, null);
    canvas_resize(&p.c, 100, 50);
    line(&p, served);
    line(&p, model);
    line(&p, gpu);
    line(&p, sys);
    line(&p, answer);
    line(&p, start);
    line(&p, tokens);
    line(&p, plan);
    line(&p, moves);
    p.m.help_text = "Keys\n  F1               help\n";
    ui_model_tick(&p.m, p.now + 1000000000ull);
    panels_of_screen_stay_inside(&p);
    line(&p, train);
    line(&p, frozen);
    panels_of_screen_stay_inside(&p);
    line(&p, steps);
    line(&p, valid);
    panels_of_screen_stay_inside(&p);
    player_release(&p);
    fclose(null);
}
END_TEST

/* The whole screen at every size; nothing to compare with, but everything runs (under the
 * sanitizers too). */
START_TEST(every_screen_size)
{
    struct player p;
    FILE *null = fopen("/dev/null", "w");
    int w, h;
    char model
        [] = "model phi-tiny-moe Q4_0 32 16 2",
   tokens[] = "tokens 40 3", sys[] = "system 8 97 90 2400M 16G 800M", answer[] = "answer",
   start[] = "start 10 0",
   user[] =
        "user 世界 a \033[31mred\033[0m 👨‍👩‍👧 question that is rather long, so that "
        "it wraps";

    player_init(&p, null);
    line(&p, model);
    line(&p, sys);
    line(&p, user);
    line(&p, answer);
    line(&p, start);
    line(&p, tokens);
    for (w = 1; w <= 250; w += w < 130 ? 3 : 11)
        for (h = 1; h <= 80; h += h < 20 ? 1 : 6) {
            struct screen_input in = {"> ", "hello 世界", 12, 12, w % 2 ? "/set\n/show" : NULL,
                                      w % 4};

            ck_assert_int_eq(canvas_resize(&p.c, w, h), 0);
            p.m.focus = (w + h) % (PANEL_COUNT + 1) - 1;
            p.m.zoom = h % 4 ? -1 : p.m.focus;
            p.m.explain = w % 5 == 0 && p.m.focus >= 0;
            p.m.anchor_block = (w + h) % 3 ? -1 : 0;
            screen_draw(&p.c, &p.m, &in);
            ck_assert(p.c.cursor_x < w && p.c.cursor_y < h);
        }
    player_release(&p);
    fclose(null);
}
END_TEST

/* A training run's screen at every size, whatever has the keys. */
START_TEST(every_training_size)
{
    static struct player p; /* large */
    FILE *null = fopen("/dev/null", "w");
    char train[] = "train 4000 7 40 65 64 1", steps[] = "steps 700 0.5", valid[] = "valid 1.5";

    player_init(&p, null);
    line(&p, train);
    line(&p, steps);
    line(&p, valid);
    for (int w = 1; w <= 250; w += w < 130 ? 3 : 11)
        for (int h = 1; h <= 80; h += h < 20 ? 1 : 6) {
            struct screen_input in = {.prompt = "  ", .text = ""};
            int focus = (w + h) % (PANEL_COUNT + 1) - 1;

            ck_assert_int_eq(canvas_resize(&p.c, w, h), 0);
            p.m.focus = focus >= 0 && panel_there(&p.m, focus) ? focus : -1;
            p.m.zoom = h % 4 ? -1 : p.m.focus;
            p.m.explain = w % 5 == 0 && p.m.focus >= 0;
            p.m.theme.ascii = w % 7 == 0;
            screen_draw(&p.c, &p.m, &in);
            screen_act(&p.m, h % 2 ? ACTION_DOWN : ACTION_PAGE_UP, 0);
            ck_assert(p.c.cursor_x < w && p.c.cursor_y < h);
        }
    player_release(&p);
    fclose(null);
}
END_TEST

/* A curve that has more steps than points still ends with the newest, and keeps the extremes. */
START_TEST(curve_of_many_steps)
{
    static struct ui_curve c;
    double low = 1e9;
    int last = 0;

    for (int i = 1; i <= 100000; i++)
        ui_curve_add(&c, i, i == 777 ? -5 : 1000.0 / i);
    ck_assert_int_le(c.n, UI_CURVE);
    ck_assert_int_ge(c.n, UI_CURVE / 2);
    ck_assert_int_eq(c.points[c.n - 1].last, 100000);
    for (int i = 0; i < c.n; i++) {
        ck_assert_int_gt(c.points[i].last, last);
        ck_assert(c.points[i].low <= c.points[i].mean && c.points[i].mean <= c.points[i].high);
        last = c.points[i].last;
        low = (double)c.points[i].low < low ? (double)c.points[i].low : low;
    }
    ck_assert(low == -5.0);
    ck_assert(fabs((double)c.points[0].high - 1000) < 1e-3);
}
END_TEST

/* The dashboard of a server at every size, with more sessions and requests than fit. */
START_TEST(every_dashboard_size)
{
    static struct player p; /* large */
    FILE *null = fopen("/dev/null", "w");
    char serve[] = "serve http://127.0.0.1:8080 256 40 8192", model[] = "model m Q4_0 32 16 2",
         session[] = "session 5 2 127.0.0.1 1371 1204 1180 1204 168 31.2 5.9",
         queued[] = "queued 31 127.0.0.1 18 0.4", request[] = "request 200 a 18 14 64 0.1 1.8 gone",
         tokens[] = "tokens 40 3";

    player_init(&p, null);
    line(&p, serve);
    line(&p, model);
    line(&p, session);
    line(&p, queued);
    for (int i = 0; i < 300; i++)
        line(&p, request);
    line(&p, tokens);
    for (int w = 1; w <= 250; w += w < 130 ? 3 : 11)
        for (int h = 1; h <= 80; h += h < 20 ? 1 : 6) {
            struct screen_input in = {.prompt = "  ", .text = ""};
            int focus = (w + h) % (PANEL_COUNT + 1) - 1;

            ck_assert_int_eq(canvas_resize(&p.c, w, h), 0);
            p.m.focus = focus >= 0 && panel_there(&p.m, focus) ? focus : -1;
            p.m.zoom = h % 4 ? -1 : p.m.focus;
            p.m.explain = w % 5 == 0 && p.m.focus >= 0;
            screen_draw(&p.c, &p.m, &in);
            screen_act(&p.m, h % 2 ? ACTION_LAST : ACTION_PAGE_UP, 0);
            ck_assert(p.c.cursor_x < w && p.c.cursor_y < h);
        }
    player_release(&p);
    fclose(null);
}
END_TEST

/* Letters mean something in a panel until a sentence follows; then they belong to it, and what they
 * did is undone. A panel that was clicked takes none. */
START_TEST(a_sentence_is_never_eaten)
{
    struct player p;
    FILE *null = fopen("/dev/null", "w");
    char model[] = "model phi-tiny-moe Q4_0 4 8 2", out[8];
    uint64_t now = 5000000000ull;

    player_init(&p, null);
    line(&p, model);
    canvas_resize(&p.c, 120, 40);
    for (int i = 0; i < 4; i++)
        screen_act(&p.m, ACTION_FOCUS_NEXT, 0);
    ck_assert_int_eq(p.m.focus, panel_find("experts"));
    ck_assert(screen_letter(&p.m, 'm', now));
    screen_act(&p.m, ACTION_MODE, 0);
    ck_assert_int_eq(p.m.heat, HEAT_SESSION);
    ck_assert(screen_letter(&p.m, 'z', now + 300000000));
    screen_act(&p.m, ACTION_ZOOM, 0);
    ck_assert_int_eq(p.m.zoom, panel_find("experts"));
    ck_assert_int_eq(screen_typed(&p.m, now + 600000000, out), 2);
    ck_assert_int_eq(memcmp(out, "mz", 2), 0);
    ck_assert(p.m.heat == HEAT_ANSWER && p.m.focus == -1 && p.m.zoom == -1);
    /* meant for the panel: nothing followed for a while */
    for (int i = 0; i < 4; i++)
        screen_act(&p.m, ACTION_FOCUS_NEXT, 0);
    ck_assert(screen_letter(&p.m, 'm', now));
    screen_act(&p.m, ACTION_MODE, 0);
    ck_assert_int_eq(screen_typed(&p.m, now + 3000000000ull, out), 0);
    ck_assert_int_eq(p.m.heat, HEAT_SESSION);
    screen_click(&p.m, 120, 40, 100, 4);
    ck_assert_int_ge(p.m.focus, 0);
    ck_assert(!screen_letter(&p.m, 'm', now));
    player_release(&p);
    fclose(null);
}
END_TEST

/* The title of the map would say which layers it shows if it did not show all. */
static void map_whole(struct player *p, int w, int h)
{
    int index = panel_find("experts");
    struct panel_view v = panel_view(&p->m, index);
    char side[96];

    panels[index]->side(&p->m, &v, side, sizeof side);
    ck_assert_msg(strcmp(side, ui_heat_word(&p->m)) == 0, "%dx%d: %s", w, h, side);
}

/* A model of 32 layers is on the map whole wherever the column can hold it. */
START_TEST(the_map_is_whole)
{
    static const int sizes[][2] = {{120, 40}, {140, 45}, {200, 60}, {250, 80}, {179, 60}};
    struct player p;
    FILE *null = fopen("/dev/null", "w");
    char model[] = "model q4 Q4_0 32 16 2", gpu[] = "gpu Radeon-780M 35",
         plan[] = "plan cpu 300 98.2 1.1 0";

    player_init(&p, null);
    line(&p, model);
    line(&p, gpu);
    line(&p, plan);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct screen_input in = {"> ", "", 0, 0, NULL, 0};

        canvas_resize(&p.c, sizes[i][0], sizes[i][1]);
        screen_draw(&p.c, &p.m, &in);
        map_whole(&p, sizes[i][0], sizes[i][1]);
        /* glyphs carry one layer a line: there it folds */
        p.m.theme.depth = THEME_MONO;
        screen_draw(&p.c, &p.m, &in);
        map_whole(&p, sizes[i][0], sizes[i][1]);
        p.m.theme.depth = THEME_256;
    }
    player_release(&p);
    fclose(null);
}
END_TEST

/* A wanted placement is on the next picture and moves until the engine says what is in force. */
START_TEST(a_wanted_placement_is_seen)
{
    struct player p;
    FILE *null = fopen("/dev/null", "w");
    char model[] = "model q4 Q4_0 32 16 2", wants[] = "wants gpu", time[] = "time 1000";

    player_init(&p, null);
    line(&p, model);
    line(&p, time);
    line(&p, wants);
    ck_assert(p.m.dirty);
    ck_assert_uint_le(ui_model_next(&p.m), p.now + UI_SPIN_NS);
    p.m.dirty = false;
    ui_model_tick(&p.m, p.now + UI_SPIN_NS);
    ck_assert(p.m.dirty && p.m.spin == 1);
    ui_model_placing(&p.m, "balanced", 2, p.now);
    ui_model_event(&p.m, &(struct event){.kind = EVENT_PLAN, .text = "hot", .wishes = 1}, p.now);
    ck_assert_str_eq(p.m.wanted_plan, "balanced"); /* what was asked for before it came first */
    ui_model_event(&p.m, &(struct event){.kind = EVENT_PLAN, .text = "cpu", .wishes = 2}, p.now);
    ck_assert_int_eq(p.m.wanted_plan[0], 0);
    ui_model_placing(&p.m, "prompt gpu", 3, p.now);
    ui_model_event(
        &p.m, &(struct event){.kind = EVENT_PLAN, .text = "cpu, prompts gpu", .wishes = 3}, p.now);
    ck_assert_int_eq(p.m.wanted_plan[0], 0);
    ck_assert_str_eq(p.m.live.plan, "cpu");
    ck_assert_str_eq(p.m.live.prompt_plan, "gpu");
    ck_assert_str_eq(ui_plan_now(&p.m), "cpu");
    ui_model_event(&p.m, &(struct event){.kind = EVENT_PLAN, .text = "hot", .wishes = 4}, p.now);
    ck_assert_str_eq(p.m.live.prompt_plan, "");
    player_release(&p);
    fclose(null);
}
END_TEST

/* One look at the engine may come before many events of tokens that it counts already: none of them
 * loses its experts. */
START_TEST(tokens_keep_their_experts)
{
    struct player p;
    FILE *null = fopen("/dev/null", "w");
    char model[] = "model phi-tiny-moe Q4_0 4 8 2", answer[] = "answer", start[] = "start 10 0";

    player_init(&p, null);
    line(&p, model);
    line(&p, answer);
    line(&p, start);
    for (int i = 0; i < 200 * 4 * 2; i++)
        p.t.routes[i] = (uint16_t)(i % 8);
    p.t.session_generated_tokens = 200;
    publish(&p);
    for (uint64_t serial = 1; serial <= 200; serial++) {
        event(&p, (struct event){.kind = EVENT_TOKEN,
                                 .token = {.id = 1, .serial = serial, .candidates = 1}});
        ui_model_telemetry(&p.m, &p.t, p.now);
    }
    for (int i = 0; i < 200; i++)
        ck_assert_msg(p.m.tokens[i].has_experts, "token %d has no experts", i);
    player_release(&p);
    fclose(null);
}
END_TEST

/* A token that a grammar forced is marked, one that the model wanted too is not. */
START_TEST(forced_tokens_are_marked)
{
    struct player p;
    FILE *null = fopen("/dev/null", "w");
    char model[] = "model phi-tiny-moe Q4_0 4 8 2", answer[] = "answer", start[] = "start 10 0";
    struct screen_input in = {"> ", "", 0, 0, NULL, 0};
    int marks = 0;

    player_init(&p, null);
    line(&p, model);
    line(&p, answer);
    line(&p, start);
    for (int i = 0; i < 3; i++)
        event(&p, (struct event){.kind = EVENT_TOKEN,
                                 .token = {.id = 1,
                                           .serial = (uint64_t)i + 1,
                                           .candidates = 1,
                                           .forbidden = i == 1 ? 0.9f : 0.1f}});
    p.m.zoom = panel_find("tokens");
    ck_assert_int_eq(canvas_resize(&p.c, 120, 40), 0);
    screen_draw(&p.c, &p.m, &in);
    for (int y = 0; y < 40; y++)
        for (int x = 0; x + 1 < 120; x++)
            marks += canvas_at(&p.c, x, y)->ch == '!' && canvas_at(&p.c, x + 1, y)->ch == 'o';
    ck_assert_int_eq(marks, 1);
    player_release(&p);
    fclose(null);
}
END_TEST

/* A click on the row of keys is the key that stands there, the panel's when one has the keys. */
START_TEST(a_click_on_a_key)
{
    struct player p;
    const struct key_binding *k;

    player_init(&p, NULL);
    ck_assert_ptr_null(screen_key_at(&p.m, 80, 24, 1, 23)); /* it is not shown */
    p.m.key_bar = true;
    k = screen_key_at(&p.m, 80, 24, 1, 23);
    ck_assert_ptr_nonnull(k);
    ck_assert_int_eq(k->action, ACTION_HELP);
    ck_assert_ptr_null(screen_key_at(&p.m, 80, 24, 1, 22));
    ck_assert_ptr_null(screen_key_at(&p.m, 80, 19, 1, 18)); /* no row to spare */
    k = screen_key_at(&p.m, 80, 24, 30, 23);
    ck_assert(k && k->action == ACTION_PLACE && strcmp(keys_plans[k->index], "cpu") == 0);
    screen_act(&p.m, ACTION_FOCUS_NEXT, 0);
    k = screen_key_at(&p.m, 80, 24, 1, 23);
    ck_assert(k && k->action == ACTION_FOCUS_NEXT);
    player_release(&p);
}
END_TEST

/* Words on the screen as it is now. */
static bool shows(struct player *p, const char *words)
{
    struct screen_input in = {.prompt = "> ", .text = ""};
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    bool there;

    ck_assert_ptr_nonnull(f);
    screen_draw(&p->c, &p->m, &in);
    canvas_print(&p->c, f, false);
    fclose(f);
    there = strstr(text, words) != NULL;
    free(text);
    return there;
}

/* With drafts a pass makes several tokens: tokens times a token's bytes are not what was read, and
 * 171 % of the memory's speed would be said. */
START_TEST(drafts_read_less_than_a_token_each)
{
    struct player p;
    FILE *null = fopen("/dev/null", "w");
    char model[] = "model q4 Q4_0 4 8 2", answer[] = "answer", start[] = "start 24 0",
         tokens[] = "tokens 60 1";

    player_init(&p, null);
    line(&p, model);
    line(&p, answer);
    line(&p, start);
    line(&p, tokens);
    ck_assert_int_eq(canvas_resize(&p.c, 150, 44), 0);
    strcpy(p.m.memory_share, "171 % of memory speed");
    ck_assert(shows(&p, "171 %"));
    p.t.speculation = (struct speculation_figures){
        .wanted = true, .drafted = 37, .accepted = 34, .rows = 7, .gain = 0.42};
    publish(&p);
    ck_assert(shows(&p, "34/37  7 a pass  +42 %"));
    ck_assert(!shows(&p, "171 %"));
    strcpy(p.t.speculation.why, "off: nothing repeats here");
    publish(&p);
    ck_assert(shows(&p, "off: nothing repeats here"));
    ck_assert(shows(&p, "171 %"));
    player_release(&p);
    fclose(null);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("screens");
    TCase *t = tcase_create("screens");

    tcase_set_timeout(t, 240);
    tcase_add_test(t, saved_screens);
    tcase_add_test(t, a_click_on_a_key);
    tcase_add_test(t, panels_stay_inside);
    tcase_add_test(t, tokens_keep_their_experts);
    tcase_add_test(t, forced_tokens_are_marked);
    tcase_add_test(t, a_sentence_is_never_eaten);
    tcase_add_test(t, the_map_is_whole);
    tcase_add_test(t, a_wanted_placement_is_seen);
    tcase_add_test(t, every_screen_size);
    tcase_add_test(t, every_dashboard_size);
    tcase_add_test(t, every_training_size);
    tcase_add_test(t, curve_of_many_steps);
    tcase_add_test(t, drafts_read_less_than_a_token_each);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
