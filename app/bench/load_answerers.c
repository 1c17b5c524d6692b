/* The systems under load (load.h): a server over HTTP, or an engine's worker here, with a session
 * per client. Greedy and past the end of the answer, so that both do the same work. */
#include "app/bench/load.h"

#include "app/common/signals.h"
#include "app/connect/answer.h"
#include "app/setup/engine_options.h"
#include "engine/base/mem.h"
#include "engine/run/prompt.h"
#include "engine/run/worker/worker.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static bool stopped(void *ctx)
{
    (void)ctx;
    return signals_last() != 0;
}

static int set(struct options *o, enum option_id id, const char *value, struct error *e)
{
    return options_set(o, &option_table[id], value, ORIGIN_CHAT, "--bench", e);
}

/* ---- a server ---- */

struct remote_side {
    struct options o; /* greedy */
    struct server server;
};

static void tell(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "moetop: %s\n", line);
}

static void *remote_client(struct answerer *a, struct error *e)
{
    (void)e;
    return a->own;
}

static int remote_ask(void *client, const struct load_request *r,
                      int (*on_event)(void *ctx, struct event *ev), void *ctx,
                      struct turn_done_event *done, struct error *e)
{
    struct remote_side *s = client;
    const struct answer_listener to = {on_event, stopped, NULL, ctx};
    struct request request = {0};
    int rc = request_make(&s->o, &s->server, &r->said, r->max_tokens, NULL, &request, e);

    if (rc == 0)
        rc = answer_remote(&s->server, &request, &to, done, e);
    request_release(&request);
    return rc;
}

static void remote_client_close(void *client)
{
    (void)client;
}

static void remote_close(struct answerer *a)
{
    struct remote_side *s = a->own;

    options_release(&s->o);
    mem_free(s);
}

int answerer_remote(struct answerer *a, const struct options *o, struct error *e)
{
    struct remote_side *s = mem_alloc(1, sizeof *s);
    const struct server_address at = server_address(o);
    int rc = s ? options_copy(&s->o, o, e) : error_set(e, ERR_MEMORY, "out of memory");

    *a = (struct answerer){.own = s,
                           .client_open = remote_client,
                           .ask = remote_ask,
                           .client_close = remote_client_close,
                           .close = s ? remote_close : NULL};
    if (rc < 0 || (rc = set(&s->o, OPTION_ID_temp, "0", e)) < 0 ||
        (rc = set(&s->o, OPTION_ID_ignore_eos, "true", e)) < 0)
        return rc;
    rc = server_open(&s->server, &at, stopped, tell, NULL, e);
    snprintf(a->where, sizeof a->where, "%.299s", s->server.http.base);
    snprintf(a->model, sizeof a->model, "%s", s->server.model);
    return rc;
}

/* ---- the engine here ---- */

struct local_side {
    struct options o;
    struct engine_setup setup;
    struct worker *worker;
    bool prepared;
    /* idle clients, kept for the next run with the KV caches of their sessions, like a server's */
    pthread_mutex_t lock;
    struct local_client *idle;
};

struct local_client {
    struct local_side *side;
    struct client *client;
    struct local_client *next; /* next idle one; protected by the lock */
};

/* Waits for the next event; false: interrupted. */
static bool next_event(struct client *c, struct event *ev)
{
    struct pollfd p = {.fd = client_event_fd(c), .events = POLLIN};
    bool cancelled = false;

    while (client_next_event(c, ev) != 1) {
        if (signals_last() && !cancelled) {
            client_cancel(c);
            cancelled = true;
        }
        poll(&p, 1, 50);
    }
    return true;
}

/* Waits for READY, or the error. */
static int wait_ready(struct client *c, struct error *e)
{
    for (;;) {
        struct event ev;
        int rc = 1;

        next_event(c, &ev);
        if (ev.kind == EVENT_READY)
            rc = 0;
        else if (ev.kind == EVENT_ERROR)
            rc = error_set(e, ev.failure.code < 0 ? ev.failure.code : ERR_MODEL, "%s",
                           ev.text ? ev.text : "the model cannot be read");
        event_release(&ev);
        if (rc <= 0)
            return rc;
    }
}

static struct local_client *take_idle(struct local_side *s)
{
    struct local_client *c;

    pthread_mutex_lock(&s->lock);
    if ((c = s->idle))
        s->idle = c->next;
    pthread_mutex_unlock(&s->lock);
    return c;
}

static void *local_client_open(struct answerer *a, struct error *e)
{
    struct local_client *c = take_idle(a->own);

    if (c)
        return c;
    c = mem_alloc(1, sizeof *c);

    if (!c) {
        error_set(e, ERR_MEMORY, "out of memory for a client");
        return NULL;
    }
    c->side = a->own;
    if (client_open(&c->client, c->side->worker, e) < 0 || wait_ready(c->client, e) < 0) {
        client_close(c->client);
        mem_free(c);
        return NULL;
    }
    return c;
}

static int local_ask(void *client, const struct load_request *r,
                     int (*on_event)(void *ctx, struct event *ev), void *ctx,
                     struct turn_done_event *done, struct error *e)
{
    struct local_client *c = client;
    struct command k = {.kind = COMMAND_TURN};
    int rc;

    sampling_from_options(&c->side->o, &k.turn.sampling);
    k.turn.max_tokens = r->max_tokens;
    k.turn.ignore_eos = true;
    rc = prompt_make(worker_info(c->side->worker), NULL, &r->said, r->max_tokens, NULL,
                     &k.turn.prompt, e);
    if (rc < 0 || (rc = client_send(c->client, &k, e)) < 0) {
        command_release(&k);
        return rc;
    }
    for (;;) {
        struct event ev;
        bool over;

        next_event(c->client, &ev);
        on_event(ctx, &ev);
        over = ev.kind == EVENT_TURN_DONE || ev.kind == EVENT_ERROR;
        if (ev.kind == EVENT_TURN_DONE)
            *done = ev.done_turn;
        if (ev.kind == EVENT_ERROR)
            rc = error_set(e, ev.failure.code < 0 ? ev.failure.code : ERR_DEVICE, "%s",
                           ev.text ? ev.text : "the engine failed");
        event_release(&ev);
        if (over)
            return rc;
    }
}

static void local_client_close(void *client)
{
    struct local_client *c = client;
    struct local_side *s = c->side;

    client_hand_over(c->client);
    pthread_mutex_lock(&s->lock);
    c->next = s->idle;
    s->idle = c;
    pthread_mutex_unlock(&s->lock);
}

static void local_close(struct answerer *a)
{
    struct local_side *s = a->own;
    struct local_client *c;

    while ((c = take_idle(s))) {
        client_close(c->client);
        mem_free(c);
    }
    pthread_mutex_destroy(&s->lock);
    if (s->worker)
        worker_stop(s->worker);
    if (s->prepared)
        engine_setup_release(&s->setup);
    options_release(&s->o);
    mem_free(s);
}

int answerer_local(struct answerer *a, const struct options *o, const char *model, int clients,
                   struct error *e)
{
    struct local_side *s = mem_alloc(1, sizeof *s);
    int rc = s ? options_copy(&s->o, o, e) : error_set(e, ERR_MEMORY, "out of memory");

    *a = (struct answerer){.own = s,
                           .client_open = local_client_open,
                           .ask = local_ask,
                           .client_close = local_client_close,
                           .close = s ? local_close : NULL};
    if (s)
        pthread_mutex_init(&s->lock, NULL);
    if (rc < 0 || (rc = set(&s->o, OPTION_ID_model, model, e)) < 0 ||
        (rc = set(&s->o, OPTION_ID_temp, "0", e)) < 0 ||
        (rc = engine_setup_prepare(&s->o, &s->setup, false, e)) < 0)
        return rc;
    s->prepared = true;
    s->setup.config.sessions = clients + 1; /* the worker's own first one */
    if ((rc = worker_start(&s->worker, &s->setup.config, e)) < 0 ||
        (rc = wait_ready(worker_client(s->worker), e)) < 0)
        return rc;
    snprintf(a->where, sizeof a->where, "here");
    snprintf(a->model, sizeof a->model, "%s", worker_info(s->worker)->model->name);
    return 0;
}
