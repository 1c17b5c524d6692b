/* A client of the engine thread, on its owner's side (worker.h). */
#include "engine/run/worker/worker.h"
#include "engine/run/worker/worker_internal.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <assert.h>

void client_free(struct client *c)
{
    struct event ev;

    if (!c)
        return;
    ring_hand_over(&c->events); /* the draining thread may have ended */
    if (c->events.head)
        while (ring_pop(&c->events, &ev))
            event_release(&ev);
    ring_release(&c->events);
    wake_release(&c->event_wake);
    turn_release(&c->turn);
    event_release(&c->last);
    mem_free(c);
}

int client_new(struct client **out, struct worker *w, struct error *e)
{
    struct client *c = mem_alloc(1, sizeof *c);
    int rc;

    *out = NULL;
    if (!c)
        return error_set(e, ERR_MEMORY, "no memory for a session's events");
    c->worker = w;
    c->event_wake.fd = -1;
    rc = wake_init(&c->event_wake, e);
    if (rc == 0 && ring_init(&c->events, sizeof(struct event)) < 0)
        rc = error_set(e, ERR_MEMORY, "no memory for a session's events");
    if (rc < 0) {
        client_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

int client_open(struct client **out, struct worker *w, struct error *e)
{
    struct command open = {.kind = COMMAND_OPEN};
    struct client *c;
    int rc = client_new(&c, w, e);

    *out = NULL;
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&w->lock);
    if (w->gone) {
        rc = error_set(e, ERR_USAGE, "the engine has stopped");
    } else {
        c->next = w->clients;
        w->clients = c;
    }
    pthread_mutex_unlock(&w->lock);
    if (rc < 0) {
        client_free(c);
        return rc;
    }
    if ((rc = client_send(c, &open, e)) < 0) {
        client_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

/* It may still be listed, if the thread ended before executing its CLOSE. */
static void forget_client(struct client *c)
{
    struct worker *w = c->worker;
    struct client **at = &w->clients;

    pthread_mutex_lock(&w->lock);
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    pthread_mutex_unlock(&w->lock);
}

void client_close(struct client *c)
{
    struct command close = {.kind = COMMAND_CLOSE};
    struct event ev;

    if (!c)
        return;
    assert(c != c->worker->main);
    client_cancel(c);
    while (client_send(c, &close, NULL) == ERR_MEMORY)
        clock_sleep(CLOCK_MILLI);
    for (;;) {
        while (client_next_event(c, &ev))
            event_release(&ev);
        if (atomic_load(&c->gone))
            break;
        wake_wait(&c->event_wake, -1);
    }
    forget_client(c);
    client_free(c);
}

int client_event_fd(const struct client *c)
{
    return c->event_wake.fd;
}

void client_hand_over(struct client *c)
{
    ring_hand_over(&c->events);
}

int client_next_event(struct client *c, struct event *out)
{
    if (ring_pop(&c->events, out))
        return 1;
    wake_clear(&c->event_wake);
    return ring_pop(&c->events, out); /* an event between the two checks */
}

void client_wake(struct client *c)
{
    wake_signal(&c->event_wake);
}

int client_send(struct client *c, struct command *k, struct error *e)
{
    struct worker *w = c->worker;
    struct mailbox_item *l = NULL;
    int rc = 0;

    assert(k->kind != COMMAND_CALL || c == w->main);
    pthread_mutex_lock(&w->lock);
    if (atomic_load(&w->quit))
        rc = error_set(e, ERR_USAGE, "the engine has stopped");
    else if (k->kind == COMMAND_TURN && c->turn_taken)
        rc = error_set(e, ERR_USAGE, "an answer is under way: stop it first");
    else if (!(l = mem_alloc(1, sizeof *l)))
        rc = error_set(e, ERR_MEMORY, "no memory for a command");
    if (rc == 0) {
        l->client = c;
        l->command = *k;
        *w->last = l;
        w->last = &l->next;
        c->turn_taken |= k->kind == COMMAND_TURN;
        if (k->kind == COMMAND_TURN || k->kind == COMMAND_CALL)
            atomic_fetch_add(&c->work_sent, 1);
    }
    pthread_mutex_unlock(&w->lock);
    if (rc < 0)
        command_release(k);
    else
        wake_signal(&w->mailbox_wake);
    return rc;
}

void client_cancel(struct client *c)
{
    struct session *s = atomic_load(&c->shared); /* alive until the client is closed */
    uint64_t over = atomic_load(&c->work_over);

    if (over >= atomic_load(&c->work_sent))
        return;
    atomic_store(&c->work_cancelled, over + 1);
    if (s)
        engine_session_cancel(s);
}

void client_hold(struct client *c, bool held)
{
    struct session *s = atomic_load(&c->shared); /* alive until the client is closed */

    if (!s)
        return;
    engine_session_hold(s, held);
    if (!held)
        wake_signal(&c->worker->mailbox_wake);
}
