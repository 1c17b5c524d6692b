/* See worker.h. The mailbox is a queue under a mutex (commands are rare), events go up through a
 * ring per client, telemetry through the triple buffer. The thread sleeps on one wake-up: a command
 * or the stop. A client's commands keep their order; a command that must wait (for the end of its
 * turn, a call for that of all turns) delays the later ones of this client. Commands for running
 * answers (sampling, pace, plans) are executed at their next safe point. */
#include "engine/run/worker/worker.h"
#include "engine/run/worker/worker_internal.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"

#include <string.h>

#define HELD_NS (20 * CLOCK_MILLI) /* poll interval for cancels of held answers */
#define IN_PASS 32                 /* most commands per safe point of a pass */

/* ---- engine thread ---- */

static void send_event(struct client *c, struct event *ev)
{
    /* No memory for a further segment: the reader is far behind; wait for it rather than lose a
     * token. */
    while (ring_push(&c->events, ev) < 0) {
        if (atomic_load(&c->worker->quit)) {
            event_release(ev);
            return;
        }
        wake_signal(&c->event_wake);
        clock_sleep(CLOCK_MILLI);
    }
    wake_signal(&c->event_wake);
}

static void send_text(struct client *c, enum event_kind kind, int code, const char *text)
{
    struct event ev = {.kind = kind, .text = mem_string(text)};

    ev.failure.code = code;
    send_event(c, &ev);
}

static void publish(struct worker *w)
{
    if (!w->telemetry_ready || !w->engine)
        return;
    telemetry_copy(&w->slots[snapshot_write_slot(&w->snapshot)], engine_telemetry(w->engine));
    snapshot_publish(&w->snapshot);
}

/* Whether a command may run now, between passes or (in_pass) inside one, where no turn may start or
 * end. */
static bool may_go(const struct worker *w, const struct mailbox_item *l, bool in_pass)
{
    switch (l->command.kind) {
    case COMMAND_TURN:
    case COMMAND_CLEAR: return !in_pass && !l->client->running;
    case COMMAND_CALL: return !in_pass && !w->running;
    case COMMAND_OPEN:
    case COMMAND_CLOSE: return !in_pass;
    default: return true;
    }
}

/* The first command that may run, with no earlier one of its client. A waiting call blocks new
 * turns. */
static struct mailbox_item *take_item(struct worker *w, bool in_pass)
{
    struct mailbox_item **at, *l = NULL;
    bool calls = false;

    pthread_mutex_lock(&w->lock);
    for (struct client *c = w->clients; c; c = c->next)
        c->blocked = false;
    for (at = &w->first; *at; at = &(*at)->next) {
        enum command_kind kind = (*at)->command.kind;

        if (!(*at)->client->blocked && may_go(w, *at, in_pass) &&
            !(calls && (kind == COMMAND_TURN || kind == COMMAND_CALL)))
            break;
        (*at)->client->blocked = true;
        calls |= kind == COMMAND_CALL;
    }
    if ((l = *at)) {
        *at = l->next;
        if (!l->next)
            w->last = at;
    }
    pthread_mutex_unlock(&w->lock);
    return l;
}

/* Whether the starting or current turn or call was cancelled, possibly before it started. */
static bool unwanted(const struct client *c)
{
    return atomic_load(&c->work_cancelled) > atomic_load(&c->work_over) ||
           atomic_load(&c->worker->quit);
}

static void work_begins(struct client *c)
{
    engine_session_uncancel(c->session); /* a cancel for work that is over */
    if (unwanted(c))
        engine_session_cancel(c->session);
}

static void work_ends(struct client *c, bool turn)
{
    pthread_mutex_lock(&c->worker->lock);
    if (turn)
        c->turn_taken = false;
    atomic_fetch_add(&c->work_over, 1);
    pthread_mutex_unlock(&c->worker->lock);
}

static void run_call(struct client *c, struct command *k)
{
    struct error e = {0};
    char *text = NULL;
    int rc;

    work_begins(c);
    rc = k->call.fn(k->call.ctx, c->worker->engine, &text, &e);
    work_ends(c, false);
    if (rc < 0)
        send_text(c, EVENT_NOTICE, 0, e.text);
    /* always one: the sender may wait for it */
    send_event(c, &(struct event){.kind = EVENT_REPORT, .text = text});
}

/* Keeps the turn's last event until the pass is over: its reader may start the next turn at
 * once. */
static int on_event(void *ctx, struct event *ev)
{
    struct client *c = ctx;

    if (ev->kind == EVENT_TURN_DONE || ev->kind == EVENT_ERROR) {
        c->last = *ev;
        c->ended = true;
    } else {
        send_event(c, ev);
    }
    event_taken(ev);
    return unwanted(c);
}

static void end_turn(struct client *c)
{
    struct worker *w = c->worker;

    c->running = c->ended = false;
    w->running--;
    turn_release(&c->turn);
    work_ends(c, true);
    publish(w);
    send_event(c, &c->last);
    c->last = (struct event){0};
}

static void begin_turn(struct client *c, struct command *k)
{
    struct error told_by_event;

    c->turn = k->turn;
    k->turn = (struct turn){0};
    c->running = true;
    c->worker->running++;
    if (!c->session) {
        c->last = (struct event){.kind = EVENT_ERROR,
                                 .text = mem_string("there is no session for it")};
        c->last.failure.code = ERR_USAGE;
        c->ended = true;
    } else {
        work_begins(c);
        engine_session_turn(c->session, &c->turn, on_event, c, &told_by_event);
    }
    if (c->ended)
        end_turn(c);
}

/* One pass; reports turns that ended in it. If every answer is paused it sleeps a moment. */
static void step(struct worker *w)
{
    bool more = engine_step(w->engine);

    for (struct client *c = w->clients; c; c = c->next)
        if (c->ended)
            end_turn(c);
    if (!more && w->running && !atomic_load(&w->quit)) {
        wake_wait(&w->mailbox_wake, HELD_NS);
        wake_clear(&w->mailbox_wake);
    }
}

static void open_session(struct client *c)
{
    struct error e = {0};

    if (engine_session_open(c->worker->engine, &c->session, &e) < 0) {
        send_text(c, EVENT_ERROR, e.code, e.text);
        return;
    }
    atomic_store(&c->shared, c->session);
    send_event(c, &(struct event){.kind = EVENT_READY});
}

/* Under the lock: the thread no longer accesses the client after this. */
static void say_gone(struct client *c)
{
    atomic_store(&c->gone, true);
    wake_signal(&c->event_wake);
}

static void let_go(struct client *c)
{
    struct worker *w = c->worker;
    struct client **at = &w->clients;

    engine_session_close(c->session);
    if (c->running)
        w->running--;
    turn_release(&c->turn);
    pthread_mutex_lock(&w->lock);
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    say_gone(c);
    pthread_mutex_unlock(&w->lock);
}

static int report_expert(struct client *c, const struct command *k, struct error *e)
{
    struct event ev = {.kind = EVENT_REPORT};
    int rc = engine_expert_report(c->worker->engine, k->expert.layer, k->expert.expert, &ev.text,
                                  e);

    if (rc == 0)
        send_event(c, &ev);
    return rc;
}

static void clear_session(struct client *c)
{
    if (c == c->worker->main)
        engine_session_clear(c->worker->engine);
    else if (c->session)
        engine_session_forget(c->session);
}

static void obey(struct client *c, struct command *k)
{
    struct worker *w = c->worker;
    struct error e = {0};
    int rc = 0;

    switch (k->kind) {
    case COMMAND_TURN: begin_turn(c, k); break;
    case COMMAND_SAMPLING:
        if (c->session)
            engine_session_sampling_set(c->session, &k->sampling);
        break;
    case COMMAND_PACE: engine_pace_set(w->engine, k->number); break;
    case COMMAND_AUDIT: engine_audit_set(w->engine, (int)k->number); break;
    case COMMAND_PLAN:
        w->wishes++;
        rc = k->phase == PHASE_PROMPT ? engine_prompt_plan_set(w->engine, k->plan, &e)
                                      : engine_plan_set(w->engine, k->plan, &e);
        k->plan = NULL;
        break;
    case COMMAND_PLACE:
        w->wishes++;
        rc = engine_place(w->engine, k->text, &e);
        break;
    case COMMAND_EXPERT: rc = report_expert(c, k, &e); break;
    case COMMAND_TIMELINE: engine_timeline_set(w->engine, k->number != 0.0); break;
    case COMMAND_CALL: run_call(c, k); break;
    case COMMAND_CLEAR: clear_session(c); break;
    case COMMAND_OPEN: open_session(c); break;
    case COMMAND_CLOSE: let_go(c); break;
    case COMMAND_QUIT: atomic_store(&w->quit, 1); break;
    }
    if (rc < 0)
        /* the request failed; a turn continues */
        send_text(c, EVENT_NOTICE, 0, e.text);
}

/* Executes all commands that may run now, in a pass only some: a flood of them does not stop the
 * answers. true: there were some. */
static bool obey_all(struct worker *w, bool in_pass)
{
    struct mailbox_item *l;
    bool any = false;

    for (int n = 0;
         (n < IN_PASS || !in_pass) && !atomic_load(&w->quit) && (l = take_item(w, in_pass)); n++) {
        obey(l->client, &l->command);
        command_release(&l->command);
        mem_free(l);
        any = true;
    }
    return any;
}

/* Executes commands that arrive during turns, and publishes telemetry. */
static void on_tick(void *ctx)
{
    struct worker *w = ctx;

    obey_all(w, true);
    publish(w);
}

/* Events for all: notices, devices opened by a placement, plans in effect. */
static int on_engine_event(void *ctx, struct event *ev)
{
    struct worker *w = ctx;

    /* a newer request replaces a pending one: at most one waits for tokens, and one for prompts */
    if (ev->kind == EVENT_PLAN)
        ev->wishes = w->wishes - (uint64_t)engine_place_waits(w->engine);
    send_event(w->main, ev);
    event_taken(ev);
    return 0;
}

static int on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct worker *w = ctx;
    struct event ev = {.kind = EVENT_LOADING};

    ev.progress.done = done;
    ev.progress.total = total;
    send_event(w->main, &ev);
    return atomic_load(&w->quit);
}

static bool on_stop(void *ctx)
{
    struct worker *w = ctx;

    return atomic_load(&w->quit);
}

static void on_log(void *ctx, const char *line)
{
    struct worker *w = ctx;

    if (!atomic_load(&w->shared)) /* later ones are events of the engine */
        send_text(w->main, EVENT_NOTICE, 0, line);
}

static int open_engine(struct worker *w, struct error *e)
{
    const struct engine_info *info;
    int rc;

    w->config.progress = on_progress;
    w->config.stop = on_stop;
    w->config.log = on_log;
    w->config.callback_ctx = w;
    if ((rc = engine_open(&w->engine, &w->config, e)) < 0)
        return rc;
    info = engine_info(w->engine);
    for (int i = 0; i < 3; i++)
        if (telemetry_init(&w->slots[i], info->model->hp.n_layers, info->model->hp.n_experts,
                           info->model->hp.n_experts_used) < 0)
            return error_set(e, ERR_MEMORY, "no memory for telemetry");
    w->telemetry_ready = true;
    engine_tick_set(w->engine, on_tick, w);
    engine_events_set(w->engine, on_engine_event, w);
    publish(w);
    w->main->session = engine_session(w->engine);
    atomic_store(&w->main->shared, w->main->session);
    atomic_store(&w->shared, w->engine);
    return 0;
}

/* Executes commands and passes until QUIT. */
static void serve(struct worker *w)
{
    while (!atomic_load(&w->quit)) {
        bool any = obey_all(w, false);

        if (w->running)
            step(w);
        else if (engine_idle_step(w->engine) || any)
            publish(w); /* continue moving blocks while idle */
        else {
            publish(w);
            wake_wait(&w->mailbox_wake, -1);
            wake_clear(&w->mailbox_wake);
        }
    }
    while (w->running) /* cancelled: they end now */
        step(w);
}

static void say_stopped(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    for (struct client *c = w->clients; c; c = c->next) {
        send_event(c, &(struct event){.kind = EVENT_STOPPED});
        say_gone(c);
    }
    w->gone = true;
    pthread_mutex_unlock(&w->lock);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct error e = {0};

    if (open_engine(w, &e) < 0) {
        if (!atomic_load(&w->quit))
            send_text(w->main, EVENT_ERROR, e.code, e.text);
        atomic_store(&w->quit, 1);
    } else {
        send_event(w->main, &(struct event){.kind = EVENT_READY});
        serve(w);
    }
    say_stopped(w);
    /* clients may still access the model until worker_stop */
    while (!atomic_load(&w->stopping)) {
        wake_wait(&w->mailbox_wake, -1);
        wake_clear(&w->mailbox_wake);
    }
    /* devices are closed on the thread that opened them */
    engine_close(w->engine);
    return NULL;
}

/* ---- its owner's thread ---- */

static void config_release(struct engine_config *c)
{
    mem_free((char *)c->model_path);
    mem_free((char *)c->kernels);
    mem_free((char *)c->device_selector);
    mem_free((char *)c->cache_dir);
    mem_free((char *)c->prompt_cache);
    mem_free((char *)c->placement);
    mem_free((char *)c->placement_script);
    mem_free((char *)c->drafting.model);
}

static void worker_release(struct worker *w)
{
    struct mailbox_item *next_item;
    struct client *next;

    for (struct mailbox_item *l = w->first; l; l = next_item) {
        next_item = l->next;
        command_release(&l->command);
        mem_free(l);
    }
    for (struct client *c = w->clients; c; c = next) {
        next = c->next;
        client_free(c);
    }
    for (int i = 0; i < 3; i++)
        telemetry_release(&w->slots[i]);
    wake_release(&w->mailbox_wake);
    pthread_mutex_destroy(&w->lock);
    config_release(&w->config);
    mem_free(w);
}

static int copy_config(struct worker *w, const struct engine_config *c, struct error *e)
{
    w->config = *c;
    w->config.model_path = mem_string(c->model_path);
    w->config.kernels = mem_string(c->kernels);
    w->config.device_selector = mem_string(c->device_selector);
    w->config.cache_dir = mem_string(c->cache_dir);
    w->config.prompt_cache = mem_string(c->prompt_cache);
    w->config.placement = mem_string(c->placement);
    w->config.placement_script = mem_string(c->placement_script);
    w->config.drafting.model = mem_string(c->drafting.model);
    if (!w->config.model_path != !c->model_path || !w->config.kernels != !c->kernels ||
        !w->config.device_selector != !c->device_selector ||
        !w->config.cache_dir != !c->cache_dir || !w->config.prompt_cache != !c->prompt_cache ||
        !w->config.placement != !c->placement ||
        !w->config.placement_script != !c->placement_script ||
        !w->config.drafting.model != !c->drafting.model)
        return error_set(e, ERR_MEMORY, "no memory for the engine thread");
    return 0;
}

int worker_start(struct worker **out, const struct engine_config *c, struct error *e)
{
    struct worker *w = mem_alloc(1, sizeof *w);
    int rc;

    *out = NULL;
    if (!w)
        return error_set(e, ERR_MEMORY, "no memory for the engine thread");
    w->mailbox_wake.fd = -1;
    w->last = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    snapshot_init(&w->snapshot);
    if ((rc = copy_config(w, c, e)) == 0 && (rc = wake_init(&w->mailbox_wake, e)) == 0)
        rc = client_new(&w->main, w, e);
    w->clients = w->main;
    if (rc == 0 && pthread_create(&w->thread, NULL, work, w))
        rc = error_set(e, ERR_MEMORY, "the engine thread cannot be started");
    if (rc < 0) {
        worker_release(w);
        return rc;
    }
    *out = w;
    return 0;
}

void worker_stop(struct worker *w)
{
    if (!w)
        return;
    atomic_store(&w->quit, 1);
    atomic_store(&w->stopping, 1);
    wake_signal(&w->mailbox_wake);
    pthread_join(w->thread, NULL);
    worker_release(w);
}

struct client *worker_client(struct worker *w)
{
    return w->main;
}

const struct engine_info *worker_info(const struct worker *w)
{
    struct engine *g = atomic_load(&w->shared);

    return g ? engine_info(g) : NULL;
}

const struct telemetry *worker_telemetry(struct worker *w)
{
    if (!atomic_load(&w->shared))
        return NULL;
    return &w->slots[snapshot_read_slot(&w->snapshot, NULL)];
}
