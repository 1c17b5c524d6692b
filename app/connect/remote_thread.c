/* The connection's thread: opens the server, answers requests, and looks for a server that was
 * lost. */
#include "app/connect/answer.h"
#include "app/connect/internal.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <stdio.h>
#include <string.h>

#define LOOK_NS (1 * CLOCK_SECOND)    /* between two looks for a lost server */
#define STEP_NS (50 * CLOCK_MILLI)    /* in which a cancel is noticed */
#define PATIENCE (600 * CLOCK_SECOND) /* of a request for a lost server */

static void tell_line(void *ctx, const char *line)
{
    remote_send(ctx, EVENT_NOTICE, 0, line);
}

static void set_wait(struct remote *r, const struct remote_wait *w)
{
    pthread_mutex_lock(&r->lock);
    r->wait = *w;
    pthread_mutex_unlock(&r->lock);
}

static void on_pause(void *ctx, const struct answer_pause *p)
{
    struct remote_wait w = {0};

    if (p)
        w = (struct remote_wait){.until_ns = p->until_ns, .status = p->status};
    set_wait(ctx, &w);
}

static int on_event(void *ctx, struct event *ev)
{
    return remote_note_event(ctx, ev);
}

/* ---- a server that was lost ---- */

static bool is_lost(const struct remote *r)
{
    return r->wait.lost_ns != 0; /* only this thread changes it */
}

/* After a failure: whether the server itself is gone, which is reported. */
static bool note_lost(struct remote *r)
{
    const struct server *s = remote_current(r);
    struct remote_wait w = {.lost_ns = clock_now()};
    struct error e = {0};
    char line[700];

    if (server_answers(s, remote_is_quitting, r, &e) || remote_is_quitting(r))
        return false;
    set_wait(r, &w);
    snprintf(line, sizeof line,
             "%s does not answer any more (%s): it is looked for until it is back, and your next "
             "message waits for it",
             s->http.base, e.text);
    tell_line(r, line);
    return true;
}

/* Another model is published to the owner. */
static void take_server(struct remote *r, const struct server *now)
{
    int next = 1 - atomic_load(&r->current);
    const struct server *old = remote_current(r);
    bool renamed = strcmp(old->model, now->model) != 0;
    char line[700];

    if (!renamed && old->kind == now->kind && old->context == now->context)
        return;
    if (renamed) {
        snprintf(line, sizeof line, "it serves %.256s now, no longer %.256s", now->model,
                 old->model);
        tell_line(r, line);
    }
    r->servers[next] = *now;
    atomic_store(&r->current, next);
    r->live.context_size = now->context;
    remote_publish(r);
    remote_send(r, EVENT_READY, 0, NULL);
}

/* It answers again: waits for its model, which can be another one now. ERR_IO: lost again;
 * ERR_CANCELLED. */
static int open_again(struct remote *r, bool (*stop)(void *ctx))
{
    struct server_address at = {r->url, r->key_file, remote_current(r)->model, r->silence};
    struct error e = {0};
    struct server now;
    int rc = server_open(&now, &at, stop, tell_line, r, &e);

    if (rc == ERR_MODEL) {
        at.model = r->model;
        rc = server_open(&now, &at, stop, tell_line, r, &e);
    }
    if (rc == ERR_IO || rc == ERR_CANCELLED)
        return rc;
    if (rc == 0)
        take_server(r, &now);
    else
        tell_line(r, e.text);
    return 0;
}

/* Whether it is back, after which it is not lost any more. */
static bool is_back(struct remote *r, bool (*stop)(void *ctx))
{
    const struct remote_wait none = {0};
    double seconds = clock_seconds(clock_now() - r->wait.lost_ns);
    char line[600];

    if (!server_answers(remote_current(r), stop, r, NULL) || open_again(r, stop) < 0)
        return false;
    snprintf(line, sizeof line, "%s is back after %.0f s%s", remote_current(r)->http.base, seconds,
             r->cut ? ": /continue goes on with the answer that was cut, /retry asks again" : "");
    r->cut = false;
    set_wait(r, &none);
    tell_line(r, line);
    return true;
}

/* For a request. ERR_CANCELLED; ERR_IO: it did not come back. */
static int await_server(struct remote *r, struct error *e)
{
    uint64_t until = clock_now() + PATIENCE, look = 0;

    r->cut = false; /* another message was sent */
    while (!remote_is_unwanted(r)) {
        if (clock_now() >= until)
            return error_set(e, ERR_IO, "%s did not come back within %d minutes",
                             remote_current(r)->http.base, (int)(PATIENCE / CLOCK_SECOND / 60));
        if (clock_now() >= look) {
            if (is_back(r, remote_is_unwanted))
                return 0;
            look = clock_now() + LOOK_NS;
        }
        clock_sleep(STEP_NS);
    }
    return ERR_CANCELLED;
}

/* ---- requests ---- */

/* The next attempt may find another model there. */
static int ask(struct remote *r, struct request *request, struct turn_done_event *done,
               struct error *e)
{
    const struct answer_listener to = {on_event, remote_is_unwanted, on_pause, r};
    int rc = is_lost(r) ? await_server(r, e) : 0;

    if (rc < 0)
        return rc;
    request_address(request, remote_current(r));
    return answer_remote(remote_current(r), request, &to, done, e);
}

static bool is_cut(const struct remote *r)
{
    return r->live.generated_tokens > 0;
}

/* A request that found the server gone, before any text of its answer, is sent once more when it is
 * back. */
static int ask_twice(struct remote *r, struct request *request, struct turn_done_event *done,
                     struct error *e)
{
    int rc = ask(r, request, done, e);

    if (rc == ERR_IO && !is_lost(r) && !is_cut(r) && note_lost(r))
        rc = ask(r, request, done, e);
    return rc;
}

static void answer(struct remote *r, struct request *request)
{
    struct event ev = {.kind = EVENT_TURN_DONE};
    struct error e = {0};
    int rc;

    remote_note_begin(r);
    rc = ask_twice(r, request, &ev.done_turn, &e);
    if (rc == ERR_CANCELLED)
        ev.done_turn.reason = STOP_CANCELLED;
    remote_note_done(r, &ev.done_turn);
    pthread_mutex_lock(&r->lock);
    r->taken = false;
    pthread_mutex_unlock(&r->lock);
    if (rc < 0 && rc != ERR_CANCELLED)
        remote_send(r, EVENT_ERROR, rc, e.text);
    else
        remote_push(r, &r->events, &ev);
    if (rc == ERR_IO && !is_lost(r) && is_cut(r))
        r->cut = note_lost(r);
}

/* Ends a look for the server between two requests: a request looks for it itself, and can be
 * cancelled then. */
static bool is_asked(void *ctx)
{
    struct remote *r = ctx;
    bool any;

    pthread_mutex_lock(&r->lock);
    any = r->request.body != NULL;
    pthread_mutex_unlock(&r->lock);
    return any || remote_is_quitting(r);
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

static int open_first(struct remote *r)
{
    struct server_address at = {r->url, r->key_file, r->model, r->silence};
    struct server *s = &r->servers[0];
    struct error e = {0};
    int rc = server_open(s, &at, remote_is_quitting, tell_line, r, &e);

    if (rc < 0) {
        remote_send(r, EVENT_ERROR, rc, e.text);
        remote_send(r, EVENT_STOPPED, 0, NULL);
        return rc;
    }
    r->live.context_size = s->context;
    snprintf(r->live.plan, sizeof r->live.plan, "%.60s", r->host);
    remote_publish(r);
    atomic_store(&r->ready, true);
    remote_send(r, EVENT_READY, 0, NULL);
    remote_send(r, EVENT_PLAN, 0, r->live.plan);
    return 0;
}

void *remote_run(void *ctx)
{
    struct remote *r = ctx;
    pthread_t watcher;
    bool watched;

    if (open_first(r) < 0)
        return NULL;
    watched = pthread_create(&watcher, NULL, remote_watch, r) == 0;
    while (!atomic_load(&r->quit)) {
        struct request request;

        if (take_request(r, &request)) {
            answer(r, &request);
            request_release(&request);
            continue;
        }
        if (wake_wait(&r->work_wake, is_lost(r) ? (int64_t)LOOK_NS : -1))
            wake_clear(&r->work_wake);
        else if (is_lost(r))
            is_back(r, is_asked);
    }
    if (watched)
        pthread_join(watcher, NULL);
    return NULL;
}
