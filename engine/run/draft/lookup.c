/* Prompt lookup: what followed an earlier occurrence of the newest tokens in the conversation may
 * follow again (Saxena 2023, "Prompt Lookup Decoding"). The longest match is taken, of equals the
 * newest. The probability of being right is learnt by match length. A search scans the conversation
 * once, backwards: microseconds, against a pass. */
#include "engine/run/draft/chances.h"
#include "engine/run/draft/drafter.h"

#include "engine/base/mem.h"

#include <assert.h>

#define LEAST 2 /* shortest match, in tokens */

struct drafter {
    struct chances chances;
    int length, n; /* of the newest proposal: match length, tokens */
};

static int make(struct drafter **out, struct engine *model, struct error *e)
{
    struct drafter *d = mem_alloc(1, sizeof *d);

    *out = d;
    if (!d)
        return error_set(e, ERR_MEMORY, "no memory for drafts");
    chances_init(&d->chances);
    return 0;
}

static void release(struct drafter *d)
{
    mem_free(d);
}

/* Number of equal tokens before a and before b, b < a. */
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

    d->n = 0;
    if (length < LEAST)
        return 0;
    d->length = length;
    /* the copy may overlap what was drafted: a periodic text */
    for (int i = 0; i < most; i++)
        out[i] = at + i < n ? ids[at + i] : out[at + i - n];
    chances_tell(&d->chances, length, most, p);
    d->n = most;
    return most;
}

static void learn(struct drafter *d, int tried, int taken)
{
    assert(taken <= tried && tried <= d->n);
    chances_learn(&d->chances, d->length, tried, taken);
}

const struct drafter_ops drafter_lookup = {
    .name = "lookup",
    .summary = "what followed the newest tokens where they stood before in the conversation",
    .make = make,
    .release = release,
    .propose = propose,
    .learn = learn,
};
