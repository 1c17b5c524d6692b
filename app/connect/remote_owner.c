/* A connection as its owner sees it, on the owner's thread (remote.h). One request at a time: a
 * chat has no more. */
#include "app/common/engine_state.h"
#include "app/connect/internal.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int take_words(struct remote *r, const struct server_address *at, struct error *e)
{
    struct http_server *http = &r->servers[0].http;
    const char *host;

    /* a bad address is reported before a screen opens */
    int rc = http_server_init(http, at->url, at->key_file, e);

    if (rc < 0)
        return rc;
    host = strstr(http->base, "://");
    snprintf(r->host, sizeof r->host, "%.199s", host ? host + 3 : http->base);
    r->url = mem_string(at->url);
    r->key_file = mem_string(at->key_file);
    r->model = mem_string(at->model);
    r->silence = at->silence;
    if (!r->url || (at->key_file && !r->key_file) || (at->model && !r->model))
        return error_set(e, ERR_MEMORY, "out of memory");
    return 0;
}

int remote_start(struct remote **out, const struct server_address *at, struct error *e)
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
    if ((rc = take_words(r, at, e)) < 0 || (rc = wake_init(&r->event_wake, e)) < 0 ||
        (rc = wake_init(&r->work_wake, e)) < 0) {
        release(r);
        return rc;
    }
    if (pthread_create(&r->thread, NULL, remote_run, r)) {
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
    return atomic_load(&r->ready) ? remote_current(r) : NULL;
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

/* Few words: it is a line of a narrow screen. */
static void wait_words(const struct remote_wait *w, uint64_t now, char *out, size_t size)
{
    if (w->until_ns > now)
        snprintf(out, size, "busy (HTTP %ld): asked again in %.0f s", w->status,
                 ceil(clock_seconds(w->until_ns - now)));
    else if (w->lost_ns)
        snprintf(out, size, "server lost for %.0f s, looked for", clock_seconds(now - w->lost_ns));
    else
        *out = 0;
}

bool remote_waits(struct remote *r, char *out, size_t size)
{
    struct remote_wait wait;

    pthread_mutex_lock(&r->lock);
    wait = r->wait;
    pthread_mutex_unlock(&r->lock);
    wait_words(&wait, clock_now(), out, size);
    return *out != 0;
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
