/* Prompt lookup: what followed an earlier occurrence of the newest tokens in the conversation may
 * follow again (Saxena 2023, "Prompt Lookup Decoding"). The longest match is taken, of equals the
 * newest. The probability of being right is learnt by match length. A search scans the conversation
 * once, backwards: microseconds, against a pass. */
#include "engine/run/draft/chances.h"
#include "engine/run/draft/drafter.h"

#define LEAST 2 /* tokens that must be alike */

struct drafter {
    struct chances chances;
};

static int init(struct drafter *d, struct engine *model, struct error *e)
{
    chances_init(&d->chances);
    return 0;
}

/* Tokens that are alike before a and before b, b < a. */
static int alike(const int *ids, int a, int b)
{
    int n = 0;

    while (n < CHANCES_LONGEST && n < b && ids[a - 1 - n] == ids[b - 1 - n])
        n++;
    return n;
}

/* Finds the longest earlier match of the tokens before n: the position after it, and its length. */
static int find(const int *ids, int n, int *length)
{
    int best = 0, last = n > 0 ? ids[n - 1] : -1;

    *length = 0;
    for (int at = n - 1; at >= LEAST && *length < CHANCES_LONGEST; at--) {
        int more = ids[at - 1] == last ? alike(ids, n, at) : 0;

        if (more > *length) {
            *length = more;
            best = at;
        }
    }
    return best;
}

static int propose(struct drafter *d, const int *ids, int n, int most, float least, int *out,
                   float *p)
{
    int length, at = find(ids, n, &length);

    if (length < LEAST)
        most = 0;
    /* what is copied may reach into what was drafted: a text that goes round in a circle */
    for (int i = 0; i < most; i++)
        out[i] = at + i < n ? ids[at + i] : out[at + i - n];
    return chances_tell(&d->chances, length, most, p);
}

static void learn(struct drafter *d, int tried, int taken)
{
    chances_learn(&d->chances, tried, taken);
}

const struct drafter_ops drafter_lookup = {
    .name = "lookup",
    .summary = "what followed the newest tokens where they stood before in the conversation",
    .size = sizeof(struct drafter),
    .init = init,
    .propose = propose,
    .learn = learn,
};
