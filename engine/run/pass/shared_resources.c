/* See shared_resources.h. */
#include "engine/run/pass/shared_resources.h"

#include "engine/base/mem.h"
#include "engine/base/topology.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct link {
    const struct device_ops *ops;
    char selector[32];
    struct device_link *link; /* NULL: no device was opened with it yet */
};

struct shared_resources {
    struct pool *pool;
    struct bandwidth bandwidth;
    pthread_mutex_t lock; /* of the links */
    struct link links[DEVICE_MAX];
    int n_links;
};

int shared_resources_new(struct shared_resources **out, int n_threads, struct error *e)
{
    struct shared_resources *c = mem_alloc(1, sizeof *c);
    int rc;

    *out = NULL;
    if (!c)
        return error_set(e, ERR_MEMORY, "no memory for what engines have in common");
    rc = pool_new(&c->pool, n_threads > 0 ? n_threads : topology_default_threads(), true, e);
    if (rc < 0) {
        mem_free(c);
        return rc;
    }
    bandwidth_init(&c->bandwidth, BANDWIDTH_OFF, 0);
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return 0;
}

void shared_resources_free(struct shared_resources *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_links; i++)
        if (c->links[i].link)
            c->links[i].ops->link_close(c->links[i].link);
    pthread_mutex_destroy(&c->lock);
    pool_free(c->pool);
    mem_free(c);
}

struct pool *shared_resources_pool(const struct shared_resources *c)
{
    return c->pool;
}

struct bandwidth *shared_resources_bandwidth(struct shared_resources *c)
{
    return &c->bandwidth;
}

struct device_link **shared_resources_link_take(struct shared_resources *c,
                                                const struct device_ops *ops, const char *selector)
{
    int i = 0;

    pthread_mutex_lock(&c->lock);
    while (i < c->n_links &&
           (c->links[i].ops != ops || strcmp(c->links[i].selector, selector) != 0))
        i++;
    if (i == DEVICE_MAX)
        return NULL;
    if (i == c->n_links) {
        c->links[i].ops = ops;
        snprintf(c->links[i].selector, sizeof c->links[i].selector, "%s", selector);
        c->n_links++;
    }
    return &c->links[i].link;
}

void shared_resources_link_give(struct shared_resources *c)
{
    pthread_mutex_unlock(&c->lock);
}
