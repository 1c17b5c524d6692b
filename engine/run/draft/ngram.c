/* n-grams of earlier answers: what followed the newest tokens in an answer that is no longer in the
 * conversation (another chat, another request of the same session). They are stored in order, in a
 * ring of the newest ones, and found by a hash of the last ORDER tokens. A search reads one entry:
 * it costs next to nothing. */
#include "engine/run/draft/chances.h"
#include "engine/run/draft/drafter.h"

#include <stdint.h>

#define KEPT 16384 /* tokens, a power of two */
#define PLACES (2 * KEPT)
#define ORDER 3
#define END (-1) /* between answers */

struct drafter {
    int tokens[KEPT];   /* index i holds the newest token number that is i modulo KEPT */
    int places[PLACES]; /* by a hash of ORDER tokens: the position after them, 0: none */
    int end;            /* tokens stored so far */
    int read, last;     /* of the conversation: tokens read, the last of them */
    struct chances chances;
};

static int init(struct drafter *d, struct engine *model, struct error *e)
{
    chances_init(&d->chances);
    return 0;
}

static int token(const struct drafter *d, int i)
{
    return d->tokens[i % KEPT];
}

static unsigned place_of(const int *ids)
{
    uint32_t hash = 2166136261u;

    for (int i = 0; i < ORDER; i++)
        hash = (hash ^ (uint32_t)ids[i]) * 16777619u;
    return (hash ^ hash >> 15) % PLACES;
}

/* Stores a token of the answer and indexes the ORDER tokens up to it. */
static void keep(struct drafter *d, int id)
{
    int newest[ORDER];

    d->tokens[d->end++ % KEPT] = id;
    if (d->end < ORDER)
        return;
    for (int i = 0; i < ORDER; i++) {
        newest[i] = token(d, d->end - ORDER + i);
        if (newest[i] == END)
            return;
    }
    d->places[place_of(newest)] = d->end;
}

/* Stores the new tokens; for another conversation, starts after its prompt, which is no answer. */
static void follow(struct drafter *d, const int *ids, int n)
{
    bool goes_on = d->read > 0 && n >= d->read && ids[d->read - 1] == d->last;

    if (!goes_on)
        keep(d, END);
    for (int i = goes_on ? d->read : n; i < n; i++)
        keep(d, ids[i]);
    d->read = n;
    d->last = ids[n - 1];
}

/* Number of equal tokens before ids + n and before the position `at`. */
static int alike(const struct drafter *d, int at, const int *ids, int n)
{
    int same = 0, oldest = d->end > KEPT ? d->end - KEPT : 0;

    while (same < CHANCES_LONGEST && same < n && at - 1 - same >= oldest &&
           token(d, at - 1 - same) == ids[n - 1 - same])
        same++;
    return same;
}

/* Searches before storing the newest tokens, which would match themselves. */
static int propose(struct drafter *d, const int *ids, int n, int most, float least, int *out,
                   float *p)
{
    int at = n >= ORDER ? d->places[place_of(ids + n - ORDER)] : 0,
        length = at ? alike(d, at, ids, n) : 0, made = 0;

    while (length >= ORDER && made < most && at + made < d->end && token(d, at + made) != END) {
        out[made] = token(d, at + made);
        made++;
    }
    follow(d, ids, n);
    return chances_tell(&d->chances, length, made, p);
}

static void learn(struct drafter *d, int tried, int taken)
{
    chances_learn(&d->chances, tried, taken);
}

const struct drafter_ops drafter_ngram = {
    .name = "ngram",
    .summary = "what followed the newest tokens in earlier answers of this session",
    .size = sizeof(struct drafter),
    .init = init,
    .propose = propose,
    .learn = learn,
};
