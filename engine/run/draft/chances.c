/* See chances.h. */
#include "engine/run/draft/chances.h"

#include <assert.h>

#define FADE 0.9f /* what an older draft counts beside a newer one */
/* Before anything was tried: as if so many drafts had been, of which a share was right that grows
 * with what is alike. */
#define PRIOR 1.5f

static int at(int length)
{
    return length < CHANCES_LONGEST ? length : CHANCES_LONGEST;
}

void chances_init(struct chances *c)
{
    for (int i = 0; i <= CHANCES_LONGEST; i++) {
        c->seen[i].tried = PRIOR;
        c->seen[i].right = PRIOR * (1.0f - 1.0f / (1.0f + 0.5f * (float)i));
    }
}

int chances_tell(struct chances *c, int length, int n, float *p)
{
    c->length = length;
    c->n = n;
    for (int i = 0; i < n; i++)
        p[i] = c->seen[at(length + i)].right / c->seen[at(length + i)].tried;
    return n;
}

void chances_learn(struct chances *c, int tried, int taken)
{
    assert(taken <= tried && tried <= c->n);
    for (int i = 0; i < tried && i <= taken; i++) {
        int k = at(c->length + i);

        c->seen[k].tried = c->seen[k].tried * FADE + 1.0f;
        c->seen[k].right = c->seen[k].right * FADE + (i < taken ? 1.0f : 0.0f);
    }
}
