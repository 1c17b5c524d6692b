/* See dispatcher.h. */
#include "app/serve/dispatch/dispatcher.h"

#include "app/serve/dispatch/answer.h"
#include "app/serve/dispatch/server_status.h"
#include "app/serve/dispatch/slot.h"
#include "app/serve/request/lora.h"
#include "app/serve/request/request_fields.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/base/wake.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define WATCH_NS (20 * CLOCK_MILLI) /* between checks for disconnected clients */
#define IDLE_MS 1000
#define LOOK_NS (500 * CLOCK_MILLI) /* between updates of the engine's figures */
#define PING_NS (10 * CLOCK_SECOND) /* of silence in a stream */

struct dispatcher {
    struct server *server;
    pthread_t thread;
    struct wake wake;
    atomic_bool stopping, cancelling;

    pthread_mutex_t lock;
    struct job *inbox, **inbox_end;
    struct dispatcher_figures figures;
    struct error failure;
    bool idle; /* no job is running */

    /* used by the thread only */
    struct slot *slots;
    int n_slots;
    struct job *jobs; /* running or waiting */
    struct task *queue, **queue_end;
    uint64_t watched_ns, looked_ns; /* of checking clients, of telemetry */
    uint64_t said;                  /* tokens of answers so far */
};

/* ---- jobs ---- */

int dispatcher_submit(struct dispatcher *h, struct job *j, struct refusal *r)
{
    int rc = 0;

    pthread_mutex_lock(&h->lock);
    if (atomic_load(&h->server->draining) || h->failure.code)
        rc = refuse(r, 503, "shutting_down", NULL, "the server is stopping");
    else if (h->figures.waiting >= SERVE_QUEUE && !h->idle)
        rc = refuse(r, 429, "queue_full", NULL, "%d requests wait already: try again in a moment",
                    h->figures.waiting);
    if (rc == 0) {
        *h->inbox_end = j;
        h->inbox_end = &j->next;
        h->figures.waiting++;
        h->idle = false;
    }
    pthread_mutex_unlock(&h->lock);
    if (rc == 0)
        wake_signal(&h->wake);
    return rc;
}

void dispatcher_answer(struct exchange *x, const struct dialect *dialect, const char *prefix,
                       int (*read)(struct job *j, struct refusal *r))
{
    struct job *j = job_new(x, dialect, prefix);
    struct refusal why = {0};

    if (!j)
        refuse(&why, 503, "out_of_memory", NULL, "out of memory for the request");
    else if (server_ready(x->server, &why) == 0 && read(j, &why) == 0 &&
             dispatcher_submit(x->server->dispatcher, j, &why) == 0)
        return;
    if (!j || !request_waits(j, &why))
        reply_refusal(x, &why);
    job_free(j);
}

/* Appends submitted jobs to the queue. */
static void take_inbox(struct dispatcher *h)
{
    struct job *j, *next;

    pthread_mutex_lock(&h->lock);
    j = h->inbox;
    h->inbox = NULL;
    h->inbox_end = &h->inbox;
    for (const struct job *each = j; each; each = each->next)
        h->figures.requests++;
    pthread_mutex_unlock(&h->lock);
    for (; j; j = next) {
        next = j->next;
        j->next = h->jobs;
        h->jobs = j;
        j->submitted_ns = j->last_put_ns = clock_now();
        for (int i = 0; i < j->n_tasks; i++) {
            *h->queue_end = &j->tasks[i];
            h->queue_end = &j->tasks[i].next;
        }
        answer_begin(j);
    }
}

static void unqueue(struct dispatcher *h, struct task *t)
{
    struct task **at = &h->queue;

    while (*at && *at != t)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = t->next;
    if (!*at)
        h->queue_end = at;
    t->next = NULL;
}

/* Pauses the answers of a slow client until it has read most of the queued data. */
static void hold_slow(struct job *j)
{
    size_t waits = j->wish.stream ? reply_waiting(j->x) : 0;
    bool held = j->held ? waits > SERVE_WAITING_FEW : waits > SERVE_WAITING_MOST;

    if (held == j->held)
        return;
    j->held = held;
    for (int i = 0; i < j->n_tasks; i++)
        if (j->tasks[i].slot)
            client_hold(j->tasks[i].slot->client, held);
}

/* Cancels a job: waiting tasks end at once, running ones when the engine reports it. */
static void cancel_job(struct dispatcher *h, struct job *j)
{
    if (j->cancelled)
        return;
    j->cancelled = true;
    for (int i = 0; i < j->n_tasks; i++) {
        struct task *t = &j->tasks[i];

        if (t->slot) {
            client_cancel(t->slot->client);
        } else if (!t->over) {
            unqueue(h, t);
            t->over = true;
            j->left--;
        }
    }
}

static void count_job(struct dispatcher *h, const struct job *j)
{
    struct usage u = job_usage(j);
    struct dispatcher_figures *f = &h->figures;

    pthread_mutex_lock(&h->lock);
    f->completed += !j->failed && !j->cancelled;
    f->cancelled += j->cancelled;
    f->failed += j->failed;
    f->prompt_tokens += (uint64_t)u.prompt;
    f->cached_tokens += (uint64_t)u.cached;
    f->stored_tokens += (uint64_t)u.stored;
    for (int i = 0; i < j->n_tasks; i++) {
        f->prefill_ns += j->tasks[i].done.prefill_ns;
        f->decode_ns += j->tasks[i].done.decode_ns;
        f->drafted += (uint64_t)j->tasks[i].done.drafted;
        f->accepted += (uint64_t)j->tasks[i].done.accepted;
    }
    if (j->first_ns) {
        f->ttft_ns += j->first_ns - j->submitted_ns;
        f->first_tokens++;
    }
    pthread_mutex_unlock(&h->lock);
}

/* Finishes jobs whose tasks are all over. */
static void end_jobs(struct dispatcher *h)
{
    struct job **at = &h->jobs;

    while (*at) {
        struct job *j = *at;

        if (j->left) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        count_job(h, j);
        answer_end(j);
        job_free(j);
    }
}

/* Disconnected clients, and streams that were silent for long. */
static void watch_jobs(struct dispatcher *h)
{
    uint64_t now = clock_now();

    if (now - h->watched_ns < WATCH_NS)
        return;
    h->watched_ns = now;
    for (struct job *j = h->jobs; j; j = j->next) {
        hold_slow(j);
        if (j->failed || exchange_gone(j->x) || atomic_load(&h->cancelling))
            cancel_job(h, j);
        else if (j->wish.stream && now - j->last_put_ns > PING_NS)
            answer_ping(j);
    }
}

/* ---- sessions ---- */

static void begin_tasks(struct dispatcher *h)
{
    while (h->queue && !h->failure.code) {
        struct slot *s = slot_choose(h->slots, h->n_slots, &h->queue->turn);
        struct task *t = h->queue;

        if (!s)
            return;
        unqueue(h, t);
        if (slot_begin(s, t) < 0)
            answer_failed(t, ERR_MEMORY, "out of memory for the answer");
        else if (t->job->held)
            client_hold(s->client, true);
    }
}

static void engine_failed(struct dispatcher *h, int code, const char *text)
{
    pthread_mutex_lock(&h->lock);
    if (!h->failure.code)
        error_set(&h->failure, code < 0 ? code : ERR_MODEL, "%s",
                  text ? text : "the engine failed");
    pthread_mutex_unlock(&h->lock);
}

/* Events about the whole engine: handled for the first session's client. */
static void on_engine_event(struct dispatcher *h, struct slot *s, const struct event *ev)
{
    switch (ev->kind) {
    case EVENT_READY:
        s->ready = true;
        if (s == h->slots)
            log_write(LOG_LEVEL_INFO, "the model is loaded");
        break;
    case EVENT_NOTICE:
        if (ev->text)
            server_say(h->server, "%s", ev->text);
        break;
    case EVENT_LOADING:
        server_status_loading(h->server->status, ev->progress.done, ev->progress.total);
        break;
    case EVENT_PLAN: server_status_plan(h->server->status, ev->text, ev->wishes); break;
    case EVENT_ERROR: engine_failed(h, ev->failure.code, ev->text); break;
    case EVENT_STOPPED: engine_failed(h, ERR_CANCELLED, "the engine has stopped"); break;
    default: break;
    }
}

/* An error outside a turn; applies to the running turn if there is one. */
static bool concerns_all(const struct event *ev)
{
    return ev->kind == EVENT_READY || ev->kind == EVENT_NOTICE || ev->kind == EVENT_PLAN ||
           ev->kind == EVENT_LOADING || ev->kind == EVENT_STOPPED;
}

static void drain(struct dispatcher *h, struct slot *s)
{
    struct event ev;

    while (client_next_event(s->client, &ev)) {
        struct task *t = s->task;

        if (!t || concerns_all(&ev)) {
            on_engine_event(h, s, &ev);
        } else {
            bool first = ev.kind == EVENT_TOKEN && !t->job->first_ns;
            int read = s->read;

            h->said += ev.kind == EVENT_TOKEN && ev.token.id >= 0;
            slot_note(s, &ev);
            if (ev.kind == EVENT_PREFILL)
                server_status_prompt_read(h->server->status, s->read - read);
            answer_event(t, &ev);
            if (first && t->job->first_ns)
                server_status_first_token(h->server->status,
                                          clock_seconds(t->job->first_ns - t->job->x->begun_ns));
            if (ev.kind == EVENT_TOKEN && exchange_gone(t->job->x)) /* within two tokens */
                cancel_job(h, t->job);
            if (t->over)
                slot_end(s);
            else
                hold_slow(t->job);
        }
        event_release(&ev);
    }
}

/* Entropy in bits of a layer's expert choices so far; -1: none. */
static double layer_entropy(const struct telemetry *t, int layer)
{
    const uint32_t *counts = t->session + (size_t)layer * (size_t)t->n_experts;
    double sum = 0.0, bits = 0.0;
    int n = telemetry_routed(t, layer);

    for (int i = 0; i < n; i++)
        sum += counts[i];
    for (int i = 0; i < n && sum > 0.0; i++)
        if (counts[i])
            bits -= counts[i] / sum * log2(counts[i] / sum);
    return n > 1 && sum > 0.0 ? bits : -1.0;
}

/* Called under the lock. */
static void look_at_engine(struct dispatcher *h)
{
    const struct telemetry *t = worker_telemetry(h->server->worker);
    struct dispatcher_figures *f = &h->figures;
    double sum = 0.0;
    int layers = 0;

    server_status_engine(h->server->status, t);
    if (!t || clock_now() - h->looked_ns < LOOK_NS)
        return;
    h->looked_ns = clock_now();
    f->passes = t->passes;
    f->at_once = t->at_once;
    f->audited = 0;
    f->devices_wrong = f->devices_lost = 0;
    for (int d = 1; d < t->n_devices && d < DEVICE_MAX; d++) {
        f->audited += t->health[d].audited;
        f->devices_wrong += t->health[d].trouble == TROUBLE_WRONG;
        f->devices_lost += t->health[d].trouble == TROUBLE_LOST;
    }
    f->stored = t->stored;
    f->kv_bytes = t->kv_bytes;
    f->kv_used_bytes = t->kv_used_bytes;
    telemetry_plan_names(t, f->plan, sizeof f->plan);
    for (int l = 0; l < t->n_layers && l < TELEMETRY_LAYERS; l++) {
        double bits = layer_entropy(t, l);

        sum += bits < 0.0 ? 0.0 : bits;
        layers += bits >= 0.0;
    }
    f->expert_entropy = layers ? sum / layers : 0.0;
}

static void publish(struct dispatcher *h)
{
    int running = 0, waiting = 0, ready = 0;
    uint64_t held = 0;
    bool was_idle;

    for (int i = 0; i < h->n_slots; i++) {
        running += h->slots[i].task != NULL;
        ready += h->slots[i].ready;
        held += (uint64_t)h->slots[i].n_held;
    }
    for (const struct task *t = h->queue; t; t = t->next)
        waiting++;
    pthread_mutex_lock(&h->lock);
    for (const struct job *j = h->inbox; j; j = j->next)
        waiting++;
    h->figures.running = running;
    h->figures.waiting = waiting;
    h->figures.sessions = h->n_slots;
    h->figures.held_tokens = held;
    h->figures.completion_tokens = h->said;
    look_at_engine(h);
    was_idle = h->idle;
    h->idle = !h->jobs && !h->inbox;
    server_status_sessions(h->server->status, h->slots, h->n_slots, h->queue, &h->figures,
                           h->idle != was_idle);
    pthread_mutex_unlock(&h->lock);
    if (ready == h->n_slots && !atomic_load(&h->server->ready)) {
        lora_begin(h->server);
        atomic_store(&h->server->ready, true);
    }
}

/* Forwards the requests of the status's readers to the engine. */
static void take_wishes(struct dispatcher *h)
{
    struct command timeline = {.kind = COMMAND_TIMELINE};
    struct client *first = h->slots[0].client;
    char *plans[PLAN_PHASES];
    int on;

    if (!server_status_take(h->server->status, plans, &on))
        return;
    for (int k = 0; k < PLAN_PHASES; k++) {
        struct command place = {.kind = COMMAND_PLACE, .text = plans[k]};

        if (place.text && client_send(first, &place, NULL) < 0)
            server_say(h->server, "the placement is not switched: the engine has stopped");
    }
    timeline.number = on;
    if (on >= 0)
        client_send(first, &timeline, NULL);
}

static void close_slots(struct dispatcher *h)
{
    for (int i = 0; i < h->n_slots; i++)
        slot_release(&h->slots[i]);
    mem_free(h->slots);
    h->slots = NULL;
    h->n_slots = 0;
}

static void wait_for_work(struct dispatcher *h)
{
    struct pollfd p[1 + SERVE_SESSIONS];
    int timeout = h->jobs ? (int)(WATCH_NS / CLOCK_MILLI) : IDLE_MS;

    p[0] = (struct pollfd){.fd = h->wake.fd, .events = POLLIN};
    for (int i = 0; i < h->n_slots; i++)
        p[1 + i] = (struct pollfd){.fd = client_event_fd(h->slots[i].client), .events = POLLIN};
    poll(p, (nfds_t)(1 + h->n_slots), timeout);
    wake_clear(&h->wake);
}

static void *run(void *arg)
{
    struct dispatcher *h = arg;

    while (!atomic_load(&h->stopping)) {
        wait_for_work(h);
        take_inbox(h);
        take_wishes(h);
        for (int i = 0; i < h->n_slots; i++)
            drain(h, &h->slots[i]);
        watch_jobs(h);
        if (h->failure.code)
            atomic_store(&h->cancelling, true);
        begin_tasks(h);
        end_jobs(h);
        publish(h);
    }
    close_slots(h);
    return NULL;
}

/* ---- the dispatcher's thread ---- */

static int open_slots(struct dispatcher *h, struct error *e)
{
    h->slots = mem_alloc((size_t)h->server->parallel, sizeof *h->slots);
    if (!h->slots)
        return error_set(e, ERR_MEMORY, "out of memory for %d sessions", h->server->parallel);
    for (; h->n_slots < h->server->parallel; h->n_slots++) {
        struct slot *s = &h->slots[h->n_slots];
        int rc = 0;

        s->number = h->n_slots;
        s->server = h->server;
        if (h->n_slots == 0)
            s->client = worker_client(h->server->worker);
        else
            rc = client_open(&s->client, h->server->worker, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int dispatcher_reopen(struct dispatcher *h, struct error *e)
{
    int rc;

    dispatcher_forgive(h);
    atomic_store(&h->stopping, false);
    atomic_store(&h->cancelling, false);
    rc = open_slots(h, e);
    if (rc == 0 && pthread_create(&h->thread, NULL, run, h)) {
        h->thread = 0;
        rc = error_set(e, ERR_MEMORY, "the server's thread cannot be started");
    }
    return rc;
}

void dispatcher_release(struct dispatcher *h)
{
    atomic_store(&h->stopping, true);
    wake_signal(&h->wake);
    if (h->thread)
        pthread_join(h->thread, NULL);
    else
        close_slots(h);
    h->thread = 0;
}

int dispatcher_start(struct server *s, struct error *e)
{
    struct dispatcher *h = mem_alloc(1, sizeof *h);
    int rc;

    if (!h)
        return error_set(e, ERR_MEMORY, "out of memory for the server");
    h->server = s;
    h->inbox_end = &h->inbox;
    h->queue_end = &h->queue;
    h->wake.fd = -1;
    h->idle = true;
    pthread_mutex_init(&h->lock, NULL);
    rc = wake_init(&h->wake, e);
    s->dispatcher = h;
    return rc < 0 ? rc : dispatcher_reopen(h, e);
}

bool dispatcher_idle(struct dispatcher *h)
{
    bool idle;

    pthread_mutex_lock(&h->lock);
    idle = h->idle;
    pthread_mutex_unlock(&h->lock);
    return idle;
}

void dispatcher_drain(struct dispatcher *h, int seconds)
{
    uint64_t end = clock_now() + (uint64_t)seconds * CLOCK_SECOND;

    while (!dispatcher_idle(h) && clock_now() < end)
        clock_sleep(10 * CLOCK_MILLI);
    atomic_store(&h->cancelling, true);
    wake_signal(&h->wake);
    for (int i = 0; i < 500 && !dispatcher_idle(h); i++)
        clock_sleep(10 * CLOCK_MILLI);
}

void dispatcher_stop(struct dispatcher *h)
{
    if (!h)
        return;
    dispatcher_release(h);
    for (struct job *j = h->jobs, *next; j; j = next) {
        next = j->next;
        job_free(j);
    }
    for (struct job *j = h->inbox, *next; j; j = next) {
        next = j->next;
        job_free(j);
    }
    wake_release(&h->wake);
    pthread_mutex_destroy(&h->lock);
    mem_free(h);
}

void dispatcher_wake(struct dispatcher *h)
{
    wake_signal(&h->wake);
}

struct error dispatcher_failure(struct dispatcher *h)
{
    struct error e;

    pthread_mutex_lock(&h->lock);
    e = h->failure;
    pthread_mutex_unlock(&h->lock);
    return e;
}

void dispatcher_forgive(struct dispatcher *h)
{
    pthread_mutex_lock(&h->lock);
    h->failure = (struct error){0};
    pthread_mutex_unlock(&h->lock);
}

void dispatcher_look(struct dispatcher *h, struct dispatcher_figures *out)
{
    pthread_mutex_lock(&h->lock);
    *out = h->figures;
    pthread_mutex_unlock(&h->lock);
}
