/* See request_pool.h. */
#include "app/serve/request/request_pool.h"

#include "app/serve/common/model_registry.h"
#include "app/serve/common/route.h"
#include "app/serve/common/server.h"
#include "engine/base/mem.h"

#define THREADS 3
#define SMALL ((size_t)64 << 10) /* bytes of a body */

struct paper {
    struct exchange *x;
    struct paper *next;
};

struct clerk {
    struct request_pool *pool;
    bool small; /* takes only small bodies, so that these do not wait behind megabytes */
};

struct request_pool {
    pthread_t threads[THREADS];
    struct clerk clerks[THREADS];
    int n;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct paper *first, **last;
    bool closing;
};

/* Under the lock: address of the link to the first item that c takes; *link is NULL if there is
 * none. */
static struct paper **find(const struct clerk *c)
{
    struct paper **at = &c->pool->first;

    while (*at && c->small && (*at)->x->body.len > SMALL)
        at = &(*at)->next;
    return at;
}

static struct paper *take(const struct clerk *c)
{
    struct request_pool *d = c->pool;
    struct paper **at, *p;

    pthread_mutex_lock(&d->lock);
    while (!*(at = find(c)) && !d->closing)
        pthread_cond_wait(&d->more, &d->lock);
    if ((p = *at)) {
        *at = p->next;
        if (!p->next)
            d->last = at;
    }
    pthread_mutex_unlock(&d->lock);
    return p;
}

/* If another model must be loaded first, it is queued again. */
static void read_it(struct exchange *x)
{
    struct model_registry *registry = x->server->registry;

    if (!registry_enter(registry, x))
        return;
    x->route->answer(x);
    registry_leave(registry);
}

static void *work(void *arg)
{
    struct paper *p;

    while ((p = take(arg))) {
        read_it(p->x);
        exchange_drop(p->x);
        mem_free(p);
    }
    return NULL;
}

int request_pool_open(struct request_pool **out, struct error *e)
{
    struct request_pool *d = mem_alloc(1, sizeof *d);

    *out = d;
    if (!d)
        return error_set(e, ERR_MEMORY, "out of memory for the server");
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->more, NULL);
    d->last = &d->first;
    for (; d->n < THREADS; d->n++) {
        d->clerks[d->n] = (struct clerk){d, d->n == THREADS - 1};
        if (pthread_create(&d->threads[d->n], NULL, work, &d->clerks[d->n]))
            break;
    }
    return d->n ? 0 : error_set(e, ERR_MEMORY, "the server's threads cannot be started");
}

void request_pool_close(struct request_pool *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    pthread_cond_broadcast(&d->more);
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < d->n; i++)
        pthread_join(d->threads[i], NULL);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->more);
    mem_free(d);
}

int request_pool_submit(struct request_pool *d, struct exchange *x)
{
    struct paper *p = mem_alloc(1, sizeof *p);

    if (!p)
        return -1;
    exchange_hold(x);
    p->x = x;
    pthread_mutex_lock(&d->lock);
    *d->last = p;
    d->last = &p->next;
    pthread_cond_broadcast(&d->more); /* the item may not suit every thread */
    pthread_mutex_unlock(&d->lock);
    return 0;
}
