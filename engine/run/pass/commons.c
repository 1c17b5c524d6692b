/* See commons.h. */
#include "engine/run/pass/commons.h"

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

struct commons {
    struct pool *pool;
    struct bandwidth bandwidth;
    pthread_mutex_t lock; /* of the links */
    struct link links[DEVICE_MAX];
    int n_links;
};

int commons_new(struct commons **out, int n_threads, struct error *e)
{
    struct commons *c = mem_alloc(1, sizeof *c);
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

void commons_free(struct commons *c)
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

struct pool *commons_pool(const struct commons *c)
{
    return c->pool;
}

struct bandwidth *commons_bandwidth(struct commons *c)
{
    return &c->bandwidth;
}

struct device_link **commons_link_take(struct commons *c, const struct device_ops *ops,
                                       const char *selector)
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

void commons_link_give(struct commons *c)
{
    pthread_mutex_unlock(&c->lock);
}
