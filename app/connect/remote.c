/* See remote.h. One request at a time: a chat has no more. */
#include "app/connect/remote.h"

#include "app/common/engine_state.h"
#include "app/connect/answer.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/ring.h"
#include "engine/base/snapshot.h"
#include "engine/base/utf8.h"
#include "engine/base/wake.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct remote {
    pthread_t thread, watcher;
    bool watched; /* the watcher runs: owned by the thread */
    char *url, *key_file, *model, host[200];
    struct ring events, watched_events; /* the thread's, the watcher's */
    struct wake event_wake, work_wake;
    atomic_bool quit, cancel, ready;
    pthread_mutex_t lock; /* protects everything to the next blank line */
    struct request request;
    bool taken; /* a request waits or is running */
    struct figures figures;
    struct telemetry told; /* of the server's engine; no layers: not reported */
    struct remote_engine engine;
    char *wish; /* a placement, mem_*; NULL: none */
    uint64_t wishes;

    /* the watcher's: wishes reported as decided, the server's number of the newest one, the plan
     * reported */
    uint64_t decided, awaited;
    char plan[64];
    struct telemetry shown; /* the owner's: the received state that is displayed */

    struct snapshot snapshot;
    struct telemetry slots[3];
    /* the thread's; the owner reads it after READY */
    struct server server;
    struct telemetry live;
    uint64_t begun_ns;
};

/* ---- the thread ---- */

static void push(struct remote *r, struct ring *to, const struct event *ev)
{
    struct event copy = *ev;

    if (ring_push(to, &copy) < 0)
        event_release(&copy); /* out of memory: a piece of text is missing */
    wake_signal(&r->event_wake);
}

static void send(struct remote *r, const struct event *ev)
{
    push(r, &r->events, ev);
}

static void send_text(struct remote *r, enum event_kind kind, int code, const char *text)
{
    struct event ev = {.kind = kind, .text = mem_string(text)};

    if (kind == EVENT_ERROR)
        ev.failure.code = code;
    send(r, &ev);
}

static void publish(struct remote *r)
{
    r->live.serial++;
    r->slots[snapshot_write_slot(&r->snapshot)] = r->live;
    snapshot_publish(&r->snapshot);
}

static bool is_quitting(void *ctx)
{
    return atomic_load(&((struct remote *)ctx)->quit);
}

static bool is_unwanted(void *ctx)
{
    struct remote *r = ctx;

    return atomic_load(&r->quit) || atomic_load(&r->cancel);
}

static void tell_line(void *ctx, const char *line)
{
    send_text(ctx, EVENT_NOTICE, 0, line);
}

/* A piece of text arrived: the time since the previous one counts as one token's. */
static void note_token(struct remote *r, const struct token_event *t)
{
    struct telemetry *m = &r->live;
    uint64_t now = clock_now();

    if (t->first) {
        m->first_token_ns = now;
        m->prefill_ns = now - r->begun_ns;
    } else if (now > m->last_token_ns) {
        m->recent_us[m->recent_count++ % TELEMETRY_RECENT] = (uint32_t)((now - m->last_token_ns) /
                                                                        1000);
    }
    m->last_token_ns = now;
    m->decode_ns = answer_decode_ns(m->first_token_ns, now);
    m->state = ENGINE_DECODE;
    m->generated_tokens++;
    m->session_generated_tokens++;
    m->context_used++;
    if (m->generated_tokens > 1)
        m->decode_tok_s = clock_rate(m->generated_tokens - 1, m->decode_ns);
}

static int on_event(void *ctx, struct event *ev)
{
    struct remote *r = ctx;

    if (ev->kind == EVENT_TOKEN) {
        note_token(r, &ev->token);
        publish(r);
    }
    send(r, ev);
    if (ev->kind == EVENT_NOTICE)
        ev->text = NULL; /* owned by the ring */
    return is_unwanted(r);
}

/* The server's own counts take precedence over those made here. */
static void note_done(struct remote *r, const struct turn_done_event *d)
{
    struct telemetry *m = &r->live;
    int more = d->completion_tokens - m->generated_tokens;

    m->state = ENGINE_IDLE;
    m->prompt_tokens = m->prefilled_tokens = d->prompt_tokens;
    m->cached_tokens = d->cached_tokens;
    m->generated_tokens = d->completion_tokens;
    m->session_generated_tokens += (uint64_t)(more > 0 ? more : 0);
    m->session_prompt_tokens += (uint64_t)d->prompt_tokens;
    m->context_used = d->prompt_tokens + d->completion_tokens;
    m->prefill_tok_s = clock_rate(d->prompt_tokens - d->cached_tokens, d->prefill_ns);
    if (d->completion_tokens > 1)
        m->decode_tok_s = clock_rate(d->completion_tokens - 1, d->decode_ns);
}

static void begin(struct remote *r)
{
    struct telemetry *m = &r->live;

    r->begun_ns = clock_now();
    m->state = ENGINE_PREFILL;
    m->turn_start_ns = r->begun_ns;
    m->first_token_ns = m->last_token_ns = m->prefill_ns = m->decode_ns = 0;
    m->generated_tokens = m->cached_tokens = m->prompt_tokens = m->prefilled_tokens = 0;
    publish(r);
}

static void answer(struct remote *r, const struct request *request)
{
    struct event ev = {.kind = EVENT_TURN_DONE};
    struct error e = {0};
    int rc;

    begin(r);
    rc = answer_remote(&r->server, request, on_event, is_unwanted, r, &ev.done_turn, &e);
    note_done(r, &ev.done_turn);
    publish(r);
    pthread_mutex_lock(&r->lock);
    r->taken = false;
    pthread_mutex_unlock(&r->lock);
    if (rc < 0)
        send_text(r, EVENT_ERROR, rc, e.text);
    else
        send(r, &ev);
}

static bool take_request(struct remote *r, struct request *out)
{
    bool any;

    pthread_mutex_lock(&r->lock);
    any = r->request.body != NULL;
    *out = r->request;
    r->request = (struct request){0};
    pthread_mutex_unlock(&r->lock);
    return any;
}

/* ---- the server's figures ---- */

static bool ask_figures(struct remote *r, const char *path, struct figures *f,
                        bool (*read)(struct figures *f, const char *text, size_t n))
{
    struct http_call c = {.path = path, .seconds = 10, .stop = is_quitting, .ctx = r};
    bool any = http_perform(&r->server.http, &c, NULL) == 0 && c.status == 200 &&
               read(f, strbuf_text(&c.text), c.text.len);

    strbuf_release(&c.text);
    return any;
}

static void take_figures(struct remote *r)
{
    struct figures f;

    figures_init(&f);
    if (!ask_figures(r, "/metrics", &f, figures_read_metrics) &&
        !ask_figures(r, "/slots", &f, figures_read_slots))
        snprintf(f.why, sizeof f.why, "N/A (neither /metrics nor /slots there)");
    pthread_mutex_lock(&r->lock);
    r->figures = f;
    pthread_mutex_unlock(&r->lock);
}

/* ---- the engine of another moetop ---- */

/* JSON of an answer of status 200; NULL with *e. */
static json_t *request_json(struct remote *r, const char *path, const char *body, struct error *e)
{
    struct http_call c = {.path = path, .body = body, .seconds = 10, .stop = is_quitting, .ctx = r};
    json_t *o = NULL;

    if (http_perform(&r->server.http, &c, e) == 0 && c.status != 200)
        http_refused(&r->server.http, &c, e);
    else if (c.status == 200)
        o = json_loadb(strbuf_text(&c.text), c.text.len, JSON_ALLOW_NUL, NULL);
    strbuf_release(&c.text);
    return o;
}

static void take_text(char *out, size_t size, const json_t *v)
{
    const char *text = json_string_value(v);

    utf8_escape(out, size, text ? text : "", text ? strlen(text) : 0, 0);
}

/* Called under the lock. */
static void take_names(struct remote_engine *to, const json_t *o)
{
    const json_t *devices = json_object_get(o, "devices");

    take_text(to->model, sizeof to->model, json_object_get(o, "model"));
    take_text(to->type, sizeof to->type, json_object_get(o, "type"));
    for (size_t i = 0; i < json_array_size(devices) && i < DEVICE_MAX; i++)
        take_text(to->devices[i], sizeof to->devices[i],
                  json_object_get(json_array_get(devices, i), "name"));
}

/* Reports a new plan, or that our wish is decided: the server has decided as many wishes, of all
 * clients, as it had received with ours. */
static void tell_plan(struct remote *r, uint64_t server_wishes, uint64_t sent)
{
    struct event ev = {.kind = EVENT_PLAN};
    bool decided = r->decided < sent && server_wishes >= r->awaited;

    if (!decided && strcmp(r->plan, r->told.plan) == 0)
        return;
    snprintf(r->plan, sizeof r->plan, "%s", r->told.plan);
    if (decided)
        r->decided = sent;
    ev.text = mem_string(r->plan);
    ev.wishes = r->decided;
    push(r, &r->watched_events, &ev);
}

/* false: no such state (an older server, or not reachable). */
static bool take_engine(struct remote *r, uint64_t sent)
{
    struct error e = {0};
    json_t *o = request_json(r, "/moetop/state", NULL, &e);
    int rc;

    if (!o)
        return false;
    pthread_mutex_lock(&r->lock);
    rc = engine_state_read(&r->told, o, &e);
    if (rc == 0)
        take_names(&r->engine, o);
    pthread_mutex_unlock(&r->lock);
    if (rc == 0) /* only this thread writes the displayed state */
        tell_plan(r, (uint64_t)json_integer_value(json_object_get(o, "wishes")), sent);
    json_decref(o);
    return rc == 0;
}

/* Sends a wish; a refused one is decided too. Returns the number of wishes. */
static uint64_t send_wish(struct remote *r)
{
    struct error e = {0};
    uint64_t sent;
    json_t *body, *o;
    char *text;

    pthread_mutex_lock(&r->lock);
    body = r->wish ? json_pack("{s:s}", "plan", r->wish) : NULL;
    mem_free(r->wish);
    r->wish = NULL;
    sent = r->wishes;
    pthread_mutex_unlock(&r->lock);
    if (!body)
        return sent;
    text = json_dumps(body, JSON_COMPACT);
    o = text ? request_json(r, "/moetop/placement", text, &e) : NULL;
    r->awaited = o ? (uint64_t)json_integer_value(json_object_get(o, "wish")) : 0;
    if (!o) {
        struct event why = {.kind = EVENT_NOTICE};

        why.text = mem_string(e.text[0] ? e.text : "the placement is not switched");
        push(r, &r->watched_events, &why);
    }
    json_decref(o);
    json_decref(body);
    free(text); /* allocated by jansson */
    return sent;
}

static bool has_wish(struct remote *r)
{
    bool any;

    pthread_mutex_lock(&r->lock);
    any = r->wish != NULL;
    pthread_mutex_unlock(&r->lock);
    return any;
}

#define TICK (50 * CLOCK_MILLI)
#define FIGURES_TICKS 40
#define ENGINE_TICKS 8
#define LARGE_CELLS 4096 /* with more experts the state is polled only as often as the figures */

static void *watch(void *ctx)
{
    struct remote *r = ctx;
    bool whole = r->server.kind == SERVER_MOETOP;

    for (unsigned tick = 0; !is_quitting(r); tick++) {
        bool large = r->told.n_layers * r->told.n_experts > LARGE_CELLS;

        if (tick % FIGURES_TICKS == 0)
            take_figures(r);
        if (whole && (has_wish(r) || tick % (large ? FIGURES_TICKS : ENGINE_TICKS) == 0))
            whole = take_engine(r, send_wish(r)) || r->told.n_layers;
        clock_sleep(TICK);
    }
    return NULL;
}

bool remote_engine(struct remote *r, struct remote_engine *out)
{
    bool whole;

    pthread_mutex_lock(&r->lock);
    whole = r->told.n_layers > 0;
    *out = r->engine;
    pthread_mutex_unlock(&r->lock);
    return whole;
}

int remote_place(struct remote *r, const char *plan)
{
    char *copy = mem_string(plan);
    bool taken;

    pthread_mutex_lock(&r->lock);
    taken = copy && r->told.n_layers > 0;
    if (taken) {
        mem_free(r->wish);
        r->wish = copy;
        r->wishes++;
    }
    pthread_mutex_unlock(&r->lock);
    if (!taken)
        mem_free(copy);
    return taken ? 0 : -1;
}

void remote_figures(struct remote *r, struct figures *out)
{
    pthread_mutex_lock(&r->lock);
    *out = r->figures;
    pthread_mutex_unlock(&r->lock);
}

static void *run(void *ctx)
{
    struct remote *r = ctx;
    struct event ready = {.kind = EVENT_READY}, plan = {.kind = EVENT_PLAN},
                 stopped = {.kind = EVENT_STOPPED};
    struct error e = {0};
    int rc = server_open(&r->server, r->url, r->key_file, r->model, is_quitting, tell_line, r, &e);

    if (rc < 0) {
        send_text(r, EVENT_ERROR, rc, e.text);
        send(r, &stopped);
        return NULL;
    }
    r->live.context_size = r->server.context;
    snprintf(r->live.plan, sizeof r->live.plan, "%.60s", r->host);
    publish(r);
    atomic_store(&r->ready, true);
    send(r, &ready);
    plan.text = mem_string(r->live.plan);
    send(r, &plan);
    r->watched = pthread_create(&r->watcher, NULL, watch, r) == 0;
    while (!atomic_load(&r->quit)) {
        struct request request;

        if (take_request(r, &request)) {
            answer(r, &request);
            request_release(&request);
            continue;
        }
        wake_wait(&r->work_wake, -1);
        wake_clear(&r->work_wake);
    }
    if (r->watched)
        pthread_join(r->watcher, NULL);
    return NULL;
}

/* ---- its owner ---- */

static void release(struct remote *r)
{
    struct event ev;

    ring_hand_over(&r->events);
    ring_hand_over(&r->watched_events);
    while (ring_pop(&r->events, &ev) == 1 || ring_pop(&r->watched_events, &ev) == 1)
        event_release(&ev);
    ring_release(&r->events);
    ring_release(&r->watched_events);
    wake_release(&r->event_wake);
    wake_release(&r->work_wake);
    request_release(&r->request);
    pthread_mutex_destroy(&r->lock);
    telemetry_release(&r->told);
    telemetry_release(&r->shown);
    mem_free(r->wish);
    mem_free(r->url);
    mem_free(r->key_file);
    mem_free(r->model);
    mem_free(r);
}

static int take_words(struct remote *r, const char *url, const char *key_file, const char *model,
                      struct error *e)
{
    const char *host;

    /* a bad address is reported before a screen opens */
    int rc = http_server_init(&r->server.http, url, key_file, e);

    if (rc < 0)
        return rc;
    host = strstr(r->server.http.base, "://");
    snprintf(r->host, sizeof r->host, "%.199s", host ? host + 3 : r->server.http.base);
    r->url = mem_string(url);
    r->key_file = mem_string(key_file);
    r->model = mem_string(model);
    if (!r->url || (key_file && !r->key_file) || (model && !r->model))
        return error_set(e, ERR_MEMORY, "out of memory");
    return 0;
}

int remote_start(struct remote **out, const char *url, const char *key_file, const char *model,
                 struct error *e)
{
    struct remote *r = mem_alloc(1, sizeof *r);
    int rc;

    *out = NULL;
    if (!r)
        return error_set(e, ERR_MEMORY, "out of memory");
    pthread_mutex_init(&r->lock, NULL);
    snapshot_init(&r->snapshot);
    figures_init(&r->figures);
    snprintf(r->figures.why, sizeof r->figures.why, "N/A (not asked yet)");
    r->event_wake.fd = r->work_wake.fd = -1;
    if (ring_init(&r->events, sizeof(struct event)) < 0 ||
        ring_init(&r->watched_events, sizeof(struct event)) < 0) {
        ring_release(&r->events);
        pthread_mutex_destroy(&r->lock);
        mem_free(r);
        return error_set(e, ERR_MEMORY, "out of memory");
    }
    if ((rc = take_words(r, url, key_file, model, e)) < 0 ||
        (rc = wake_init(&r->event_wake, e)) < 0 || (rc = wake_init(&r->work_wake, e)) < 0) {
        release(r);
        return rc;
    }
    if (pthread_create(&r->thread, NULL, run, r)) {
        release(r);
        return error_set(e, ERR_MEMORY, "no thread for the connection could be started");
    }
    *out = r;
    return 0;
}

void remote_stop(struct remote *r)
{
    if (!r)
        return;
    atomic_store(&r->quit, true);
    wake_signal(&r->work_wake);
    pthread_join(r->thread, NULL);
    release(r);
}

int remote_event_fd(const struct remote *r)
{
    return r->event_wake.fd;
}

int remote_next_event(struct remote *r, struct event *out)
{
    if (ring_pop(&r->events, out) == 1 || ring_pop(&r->watched_events, out) == 1)
        return 1;
    wake_clear(&r->event_wake);
    return ring_pop(&r->events, out) == 1 || ring_pop(&r->watched_events, out) == 1;
}

int remote_ask(struct remote *r, struct request *request, struct error *e)
{
    bool free;

    pthread_mutex_lock(&r->lock);
    free = !r->taken && atomic_load(&r->ready);
    if (free) {
        r->taken = true;
        r->request = *request;
        *request = (struct request){0};
        atomic_store(&r->cancel, false);
    }
    pthread_mutex_unlock(&r->lock);
    if (!free) {
        request_release(request);
        return error_set(e, ERR_USAGE, "the server is not ready for another message");
    }
    wake_signal(&r->work_wake);
    return 0;
}

void remote_cancel(struct remote *r)
{
    atomic_store(&r->cancel, true);
}

const struct server *remote_server(const struct remote *r)
{
    return atomic_load(&r->ready) ? &r->server : NULL;
}

/* The figures of turns and sessions are those measured here. */
#define OWN(member)                                                                 \
    {                                                                               \
        offsetof(struct telemetry, member), sizeof(((struct telemetry *)0)->member) \
    }
static const struct {
    size_t at, size;
} own_figures[] = {
    OWN(state),
    OWN(prompt_tokens),
    OWN(cached_tokens),
    OWN(prefilled_tokens),
    OWN(generated_tokens),
    OWN(turn_start_ns),
    OWN(first_token_ns),
    OWN(last_token_ns),
    OWN(prefill_ns),
    OWN(decode_ns),
    OWN(prefill_tok_s),
    OWN(decode_tok_s),
    OWN(recent_us),
    OWN(recent_count),
    OWN(context_used),
    OWN(context_size),
    OWN(session_prompt_tokens),
    OWN(session_generated_tokens),
};

static void put_own(struct telemetry *to, const struct telemetry *own)
{
    to->serial += own->serial; /* increases with each of the two */
    for (size_t i = 0; i < sizeof own_figures / sizeof *own_figures; i++)
        memcpy((char *)to + own_figures[i].at, (const char *)own + own_figures[i].at,
               own_figures[i].size);
}

const struct telemetry *remote_telemetry(struct remote *r)
{
    const struct telemetry *own;
    bool whole;

    if (!atomic_load(&r->ready))
        return NULL;
    own = &r->slots[snapshot_read_slot(&r->snapshot, NULL)];
    pthread_mutex_lock(&r->lock);
    whole = r->told.n_layers > 0 && engine_state_copy(&r->shown, &r->told) == 0;
    pthread_mutex_unlock(&r->lock);
    if (!whole)
        return own;
    put_own(&r->shown, own);
    return &r->shown;
}

const char *remote_host(const struct remote *r)
{
    return r->host;
}
