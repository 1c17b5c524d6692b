/* See worker.h. The mailbox is a short queue under a mutex (commands are rare), events go up
 * through the ring, telemetry through the triple buffer. The thread sleeps on one wake-up: a
 * command or the stop. A turn is refused while one runs or waits, so the mailbox never holds two;
 * everything else waits its turn, and what concerns the answer under way (sampling, pace, plans) is
 * taken at its next safe point. */
#include "engine/run/worker.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/base/ring.h"
#include "engine/base/snapshot.h"
#include "engine/base/wake.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

struct mailbox_item {
    struct command command;
    struct mailbox_item *next;
};

struct worker {
    pthread_t thread;
    struct engine_config config; /* strings are copies */

    pthread_mutex_t lock; /* mailbox, turn_taken */
    struct mailbox_item *first, **last;
    bool turn_taken;          /* a turn waits or runs */
    struct wake mailbox_wake; /* commands, stop */

    struct ring events;
    struct wake event_wake;

    struct snapshot snapshot;
    struct telemetry slots[3];
    bool telemetry_ready; /* engine thread */
    uint64_t wishes;      /* engine thread: COMMAND_PLAN and COMMAND_PLACE obeyed */

    struct engine *engine;           /* engine thread; others through `shared` */
    _Atomic(struct engine *) shared; /* set once before READY; for info and cancel */
    /* TURN and CALL: how many were sent and are over, and the newest that was cancelled */
    atomic_uint_fast64_t work_sent, work_over, work_cancelled;
    atomic_int quit;     /* no further commands */
    atomic_int stopping; /* worker_stop waits: the engine may go */
};

/* ---- engine thread ---- */

static void send_event(struct worker *w, struct event *ev)
{
    /* No memory for a further segment: the reader is far behind; wait for it rather than lose a
     * token. */
    while (ring_push(&w->events, ev) < 0) {
        if (atomic_load(&w->quit)) {
            event_release(ev);
            return;
        }
        wake_signal(&w->event_wake);
        clock_sleep(CLOCK_MILLI);
    }
    wake_signal(&w->event_wake);
}

static void send_text(struct worker *w, enum event_kind kind, int code, const char *text)
{
    struct event ev = {.kind = kind, .text = mem_string(text)};

    ev.failure.code = code;
    send_event(w, &ev);
}

static void publish(struct worker *w)
{
    if (!w->telemetry_ready || !w->engine)
        return;
    telemetry_copy(&w->slots[snapshot_write_slot(&w->snapshot)], engine_telemetry(w->engine));
    snapshot_publish(&w->snapshot);
}

static struct mailbox_item *take_item(struct worker *w, bool during_turn)
{
    struct mailbox_item *l = NULL;

    pthread_mutex_lock(&w->lock);
    /* During a turn only its own kind of command is taken; a CLEAR or a CALL waits until the end,
     * and keeps its place before what follows it. */
    if (w->first && !(during_turn && (w->first->command.kind == COMMAND_CLEAR ||
                                      w->first->command.kind == COMMAND_TURN ||
                                      w->first->command.kind == COMMAND_CALL))) {
        l = w->first;
        w->first = l->next;
        if (!w->first)
            w->last = &w->first;
    }
    pthread_mutex_unlock(&w->lock);
    return l;
}

/* The turn or call that begins or is under way: a cancel may have come before it began. */
static bool unwanted(struct worker *w)
{
    return atomic_load(&w->work_cancelled) > atomic_load(&w->work_over) || atomic_load(&w->quit);
}

static void work_begins(struct worker *w)
{
    engine_session_uncancel(engine_session(w->engine)); /* meant for work that is over */
    if (unwanted(w))
        engine_session_cancel(engine_session(w->engine));
}

static void work_ends(struct worker *w, bool turn)
{
    pthread_mutex_lock(&w->lock);
    if (turn)
        w->turn_taken = false;
    atomic_fetch_add(&w->work_over, 1);
    pthread_mutex_unlock(&w->lock);
}

static void obey(struct worker *w, struct command *c)
{
    struct error e = {0};
    char *text = NULL;
    int rc = 0;

    switch (c->kind) {
    case COMMAND_SAMPLING:
        engine_session_sampling_set(engine_session(w->engine), &c->sampling);
        break;
    case COMMAND_PACE: engine_pace_set(w->engine, c->number); break;
    case COMMAND_PLAN:
        w->wishes++;
        rc = engine_plan_set(w->engine, c->plan, &e);
        c->plan = NULL;
        break;
    case COMMAND_PLACE:
        w->wishes++;
        rc = engine_place(w->engine, c->text, &e);
        break;
    case COMMAND_EXPERT:
        rc = engine_expert_report(w->engine, c->expert.layer, c->expert.expert, &text, &e);
        if (rc == 0)
            send_event(w, &(struct event){.kind = EVENT_REPORT, .text = text});
        break;
    case COMMAND_TIMELINE: engine_timeline_set(w->engine, c->number != 0.0); break;
    case COMMAND_CALL:
        work_begins(w);
        rc = c->call.fn(c->call.ctx, w->engine, &text, &e);
        work_ends(w, false);
        if (rc < 0)
            send_text(w, EVENT_NOTICE, 0, e.text);
        rc = 0;
        /* always one: who asked may wait for it */
        send_event(w, &(struct event){.kind = EVENT_REPORT, .text = text});
        break;
    case COMMAND_CLEAR: engine_session_clear(w->engine); break;
    case COMMAND_QUIT: atomic_store(&w->quit, 1); break;
    case COMMAND_TURN: break;
    }
    if (rc < 0)
        /* what was asked for is not done; a turn goes on */
        send_text(w, EVENT_NOTICE, 0, e.text);
}

/* Commands that came while a turn runs, and telemetry. */
static void on_tick(void *ctx)
{
    struct worker *w = ctx;
    struct mailbox_item *l;

    while ((l = take_item(w, true))) {
        obey(w, &l->command);
        command_release(&l->command);
        mem_free(l);
    }
    if (unwanted(w))
        engine_session_cancel(engine_session(w->engine));
    publish(w);
}

static void pass_event(struct worker *w, struct event *ev)
{
    if (ev->kind == EVENT_PLAN) /* a newer wish replaces one that waits: at most one does */
        ev->wishes = w->wishes - engine_place_waits(w->engine);
    send_event(w, ev);
    ev->text = NULL;
}

static int on_event(void *ctx, struct event *ev)
{
    struct worker *w = ctx;

    /* sent by run_turn: who reads it may send the next turn at once */
    if (ev->kind != EVENT_TURN_DONE)
        pass_event(w, ev);
    return unwanted(w);
}

/* Notices outside a turn (devices opened by a placement, plans now in force). */
static int on_idle_event(void *ctx, struct event *ev)
{
    pass_event(ctx, ev);
    return 0;
}

static void run_turn(struct worker *w, const struct turn *t)
{
    struct turn_done_event done;
    struct error e = {0};
    int rc;

    work_begins(w);
    rc = engine_turn(w->engine, t, on_event, w, &done, &e);
    work_ends(w, true);
    publish(w);
    if (rc < 0)
        send_text(w, EVENT_ERROR, e.code, e.text);
    else
        send_event(w, &(struct event){.kind = EVENT_TURN_DONE, .done_turn = done});
}

static int on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct worker *w = ctx;
    struct event ev = {.kind = EVENT_LOADING};

    ev.progress.done = done;
    ev.progress.total = total;
    send_event(w, &ev);
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

    if (!atomic_load(&w->shared)) /* later ones come as events of the engine */
        send_text(w, EVENT_NOTICE, 0, line);
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
    engine_events_set(w->engine, on_idle_event, w);
    publish(w);
    atomic_store(&w->shared, w->engine);
    return 0;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct error e = {0};

    if (open_engine(w, &e) < 0) {
        if (!atomic_load(&w->quit))
            send_text(w, EVENT_ERROR, e.code, e.text);
        atomic_store(&w->quit, 1);
    } else {
        send_event(w, &(struct event){.kind = EVENT_READY});
    }
    while (!atomic_load(&w->quit)) {
        struct mailbox_item *l = take_item(w, false);

        if (l) {
            if (l->command.kind == COMMAND_TURN)
                run_turn(w, &l->command.turn);
            else
                obey(w, &l->command);
            command_release(&l->command);
            mem_free(l);
            publish(w);
        } else if (engine_idle_step(w->engine)) {
            publish(w); /* moves go on while nobody waits */
        } else {
            publish(w);
            wake_wait(&w->mailbox_wake, -1);
            wake_clear(&w->mailbox_wake);
        }
    }
    send_event(w, &(struct event){.kind = EVENT_STOPPED});
    /* the UI may still look at the model until it stops us */
    while (!atomic_load(&w->stopping)) {
        wake_wait(&w->mailbox_wake, -1);
        wake_clear(&w->mailbox_wake);
    }
    /* devices are closed on the thread that opened them */
    engine_close(w->engine);
    return NULL;
}

/* ---- UI thread ---- */

static void config_release(struct engine_config *c)
{
    mem_free((char *)c->model_path);
    mem_free((char *)c->kernels);
    mem_free((char *)c->device_selector);
    mem_free((char *)c->cache_dir);
    mem_free((char *)c->placement);
    mem_free((char *)c->placement_script);
}

static void worker_release(struct worker *w)
{
    struct mailbox_item *next;
    struct event ev;

    for (struct mailbox_item *l = w->first; l; l = next) {
        next = l->next;
        command_release(&l->command);
        mem_free(l);
    }
    if (w->events.head)
        while (ring_pop(&w->events, &ev))
            event_release(&ev);
    ring_release(&w->events);
    for (int i = 0; i < 3; i++)
        telemetry_release(&w->slots[i]);
    wake_release(&w->mailbox_wake);
    wake_release(&w->event_wake);
    pthread_mutex_destroy(&w->lock);
    config_release(&w->config);
    mem_free(w);
}

int worker_start(struct worker **out, const struct engine_config *c, struct error *e)
{
    struct worker *w = mem_alloc(1, sizeof *w);
    int rc = 0;

    *out = NULL;
    if (!w)
        return error_set(e, ERR_MEMORY, "no memory for the engine thread");
    w->mailbox_wake.fd = w->event_wake.fd = -1;
    w->last = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    snapshot_init(&w->snapshot);
    w->config = *c;
    w->config.model_path = mem_string(c->model_path);
    w->config.kernels = mem_string(c->kernels);
    w->config.device_selector = mem_string(c->device_selector);
    w->config.cache_dir = mem_string(c->cache_dir);
    w->config.placement = mem_string(c->placement);
    w->config.placement_script = mem_string(c->placement_script);
    if ((rc = wake_init(&w->mailbox_wake, e)) < 0 || (rc = wake_init(&w->event_wake, e)) < 0)
        goto out;
    if (ring_init(&w->events, sizeof(struct event)) < 0 ||
        !w->config.model_path != !c->model_path || !w->config.kernels != !c->kernels ||
        !w->config.device_selector != !c->device_selector ||
        !w->config.cache_dir != !c->cache_dir || !w->config.placement != !c->placement ||
        !w->config.placement_script != !c->placement_script) {
        rc = error_set(e, ERR_MEMORY, "no memory for the engine thread");
        goto out;
    }
    if (pthread_create(&w->thread, NULL, work, w))
        rc = error_set(e, ERR_MEMORY, "the engine thread cannot be started");
out:
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

int worker_event_fd(const struct worker *w)
{
    return w->event_wake.fd;
}

int worker_next_event(struct worker *w, struct event *out)
{
    if (ring_pop(&w->events, out))
        return 1;
    wake_clear(&w->event_wake);
    return ring_pop(&w->events, out); /* what came between the two looks */
}

int worker_send(struct worker *w, struct command *c, struct error *e)
{
    struct mailbox_item *l = NULL;
    int rc = 0;

    pthread_mutex_lock(&w->lock);
    if (atomic_load(&w->quit))
        rc = error_set(e, ERR_USAGE, "the engine has stopped");
    else if (c->kind == COMMAND_TURN && w->turn_taken)
        rc = error_set(e, ERR_USAGE, "an answer is under way: stop it first");
    else if (!(l = mem_alloc(1, sizeof *l)))
        rc = error_set(e, ERR_MEMORY, "no memory for a command");
    if (rc == 0) {
        l->command = *c;
        *w->last = l;
        w->last = &l->next;
        w->turn_taken |= c->kind == COMMAND_TURN;
        if (c->kind == COMMAND_TURN || c->kind == COMMAND_CALL)
            atomic_fetch_add(&w->work_sent, 1);
    }
    pthread_mutex_unlock(&w->lock);
    if (rc < 0)
        command_release(c);
    else
        wake_signal(&w->mailbox_wake);
    return rc;
}

void worker_cancel(struct worker *w)
{
    struct engine *g = atomic_load(&w->shared); /* alive until worker_stop has joined */
    uint64_t over = atomic_load(&w->work_over);

    if (over >= atomic_load(&w->work_sent))
        return;
    atomic_store(&w->work_cancelled, over + 1);
    if (g)
        engine_session_cancel(engine_session(g));
}

void worker_wake(struct worker *w)
{
    wake_signal(&w->event_wake);
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
