/* See paging.h. */
#include "engine/run/pass/paging.h"

/* Progress over the groups of a job: [0, done) computed and released, [done, taken) taken. */
struct progress {
    int done, taken, n, here; /* here: how many were in memory at first */
};

/* Moves those in memory to the front; returns how many. */
static int here_first(const struct paging *p, int layer, int n)
{
    int here = 0;

    for (int i = 0; i < n; i++)
        if (expert_cache_has(p->cache, layer, p->groups[i].expert)) {
            struct expert_group g = p->groups[i];

            p->groups[i] = p->groups[here];
            p->groups[here++] = g;
        }
    return here;
}

/* Takes as many as there are slots, missing ones only as many as keep the disk busy. */
static void take_more(const struct paging *p, int layer, struct progress *w)
{
    int depth = expert_cache_depth(p->cache);

    while (w->taken < w->n) {
        int coming = w->taken - (w->done > w->here ? w->done : w->here);

        if (coming >= depth ||
            expert_cache_take(p->cache, layer, p->groups[w->taken].expert) == EXPERT_NO_SLOT)
            return;
        w->taken++;
    }
}

/* Waits for the next one and computes with all that are loaded by then. */
static int next_batch(const struct paging *p, struct experts_job *job, struct progress *w,
                      struct error *e)
{
    int layer = job->layer, end = w->done + 1,
        rc = expert_cache_wait(p->cache, layer, p->groups[w->done].expert, e);

    if (rc < 0)
        return rc;
    while (end < w->taken && expert_cache_came(p->cache, layer, p->groups[end].expert))
        end++;
    job->groups = p->groups + w->done;
    job->n_groups = end - w->done;
    rc = p->run(p->ctx, job, e);
    for (; w->done < end; w->done++)
        expert_cache_give(p->cache, layer, p->groups[w->done].expert);
    return rc;
}

int paging_run(const struct paging *p, struct experts_job job, struct error *e)
{
    struct progress w = {.n = job.n_groups};
    int layer = job.layer, rc = 0;

    w.here = here_first(p, layer, w.n);
    take_more(p, layer, &w);
    expert_cache_known(p->cache);
    take_more(p, layer, &w); /* slots of wrong predictions are free now */
    if (p->meanwhile)
        p->meanwhile(p->ctx);
    while (w.done < w.n && rc == 0) {
        if (w.done == w.taken)
            rc = error_set(e, ERR_MEMORY, "the expert cache has no room for one expert");
        else if ((rc = next_batch(p, &job, &w, e)) == 0)
            take_more(p, layer, &w);
    }
    for (; w.done < w.taken; w.done++)
        expert_cache_give(p->cache, layer, p->groups[w.done].expert);
    return rc;
}
