/* See chances.h. */
#include "engine/run/draft/chances.h"

#define FADE 0.9f /* weight of an older draft relative to the next newer one */
/* Prior: as if so many drafts had been tried, with a share right that grows with the match
 * length. */
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

void chances_tell(const struct chances *c, int length, int n, float *p)
{
    for (int i = 0; i < n; i++)
        p[i] = c->seen[at(length + i)].right / c->seen[at(length + i)].tried;
}

void chances_learn(struct chances *c, int length, int tried, int taken)
{
    for (int i = 0; i < tried && i <= taken; i++) {
        int k = at(length + i);

        c->seen[k].tried = c->seen[k].tried * FADE + 1.0f;
        c->seen[k].right = c->seen[k].right * FADE + (i < taken ? 1.0f : 0.0f);
    }
}
