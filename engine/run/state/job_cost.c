/* See job_cost.h. */
#include "engine/run/state/job_cost.h"

void job_cost_add(struct job_cost *c, uint64_t ns, int blocks)
{
    if (blocks < 1)
        return;
    c->recent[c->jobs++ % JOB_RECENT] = (float)ns / (float)blocks;
    c->ns += ns;
    c->blocks += (uint64_t)blocks;
}

double job_cost_typical(const struct job_cost *c)
{
    int n = c->jobs < JOB_RECENT ? (int)c->jobs : JOB_RECENT;
    float sorted[JOB_RECENT];

    for (int i = 0; i < n; i++) {
        int k = i;

        for (; k > 0 && sorted[k - 1] > c->recent[i]; k--)
            sorted[k] = sorted[k - 1];
        sorted[k] = c->recent[i];
    }
    return n ? (double)sorted[n / 2] : 0;
}
