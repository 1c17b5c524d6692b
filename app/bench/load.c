/* See load.h. One thread per client; they share the index of the next request and the sums, under
 * one lock. */
#include "app/bench/load.h"

#include "app/common/signals.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <pthread.h>
#include <string.h>

struct load {
    struct answerer *answerer;
    const struct load_requests *requests;
    struct load_result *out;
    pthread_mutex_t lock; /* protects the next three, and *out */
    size_t next;
    uint64_t tokens; /* of this run's answers */
    bool no_memory;
};

/* A running request: when its pieces arrived. */
struct arrivals {
    uint64_t begun, first, last;
    struct series gaps;
    bool no_memory;
};

static int on_event(void *ctx, struct event *ev)
{
    struct arrivals *a = ctx;
    uint64_t now = clock_now();

    if (ev->kind != EVENT_TOKEN || !ev->token.len)
        return signals_last() != 0;
    if (!a->first)
        a->first = now;
    else if (series_add(&a->gaps, (double)(now - a->last) * 1e-6) < 0)
        a->no_memory = true;
    a->last = now;
    return signals_last() != 0;
}

static void note_failure(struct load *l, const struct error *why)
{
    pthread_mutex_lock(&l->lock);
    if (!l->out->failed++)
        l->out->first = *why;
    pthread_mutex_unlock(&l->lock);
}

static void note_answer(struct load *l, const struct arrivals *a, const struct turn_done_event *d)
{
    struct load_result *out = l->out;

    pthread_mutex_lock(&l->lock);
    out->requests++;
    out->prompt_tokens += (uint64_t)d->prompt_tokens;
    out->cached_tokens += (uint64_t)d->cached_tokens;
    out->completion_tokens += (uint64_t)d->completion_tokens;
    l->tokens += (uint64_t)d->completion_tokens;
    l->no_memory |= a->no_memory;
    if (a->first && series_add(&out->ttft, (double)(a->first - a->begun) * 1e-6) < 0)
        l->no_memory = true;
    for (size_t i = 0; i < a->gaps.n && !l->no_memory; i++)
        l->no_memory = series_add(&out->gap, a->gaps.values[i]) < 0;
    pthread_mutex_unlock(&l->lock);
}

static const struct load_request *take(struct load *l)
{
    const struct load_request *r = NULL;

    pthread_mutex_lock(&l->lock);
    if (l->next < l->requests->n && !signals_last())
        r = &l->requests->request[l->next++];
    pthread_mutex_unlock(&l->lock);
    return r;
}

static void one(struct load *l, void *client, const struct load_request *r)
{
    struct arrivals a = {.begun = clock_now()};
    struct turn_done_event done = {0};
    struct error e = {0};
    int rc = l->answerer->ask(client, r, on_event, &a, &done, &e);

    if (rc < 0)
        note_failure(l, &e);
    else if (done.reason != STOP_CANCELLED)
        note_answer(l, &a, &done);
    series_release(&a.gaps);
}

static void *run_client(void *ctx)
{
    struct load *l = ctx;
    struct error e = {0};
    void *client = l->answerer->client_open(l->answerer, &e);
    const struct load_request *r;

    if (!client) {
        note_failure(l, &e);
        return NULL;
    }
    while ((r = take(l)))
        one(l, client, r);
    l->answerer->client_close(client);
    return NULL;
}

int load_run(struct answerer *a, const struct load_requests *r, int clients,
             struct load_result *out, struct error *e)
{
    struct load l = {.answerer = a, .requests = r, .out = out};
    pthread_t *threads = mem_alloc((size_t)clients, sizeof *threads);
    uint64_t begun = clock_now();
    int n = 0, rc = threads ? 0 : ERR_MEMORY;

    out->where = a->where;
    out->model = a->model;
    out->clients = clients;
    pthread_mutex_init(&l.lock, NULL);
    while (rc == 0 && n < clients && pthread_create(&threads[n], NULL, run_client, &l) == 0)
        n++;
    if (n < clients)
        rc = ERR_MEMORY;
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&l.lock);
    mem_free(threads);
    if (rc == 0 && l.tokens &&
        series_add(&out->rate, clock_rate((double)l.tokens, clock_now() - begun)) < 0)
        rc = ERR_MEMORY;
    if (rc < 0 || l.no_memory)
        return error_set(e, ERR_MEMORY, "out of memory for %d clients", clients);
    return signals_check(e);
}

void load_result_release(struct load_result *r)
{
    series_release(&r->ttft);
    series_release(&r->gap);
    series_release(&r->rate);
}
