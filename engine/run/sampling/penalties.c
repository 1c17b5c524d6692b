/* See penalties.h. */
#include "engine/run/sampling/penalties.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <float.h>
#include <string.h>

#define PIECE 256 /* longer tokens cannot start or end a breaker */

/* Relation of a token to the breakers. */
enum { BREAKS_NOT, BREAKS_ALONE, BREAKS_BEGINS };

int penalties_init(struct penalties *p, int n_vocab, struct error *e)
{
    *p = (struct penalties){.n_vocab = n_vocab};
    p->seen = mem_alloc((size_t)n_vocab, sizeof *p->seen);
    p->times = mem_alloc((size_t)n_vocab, sizeof *p->times);
    if (p->seen && p->times)
        return 0;
    penalties_release(p);
    return error_set(e, ERR_MEMORY, "out of memory for the sampler");
}

void penalties_release(struct penalties *p)
{
    mem_free(p->seen);
    mem_free(p->times);
    mem_free(p->ends);
    mem_free(p->breaks);
    *p = (struct penalties){0};
}

size_t penalties_footprint(int n_vocab)
{
    return 2 * (size_t)n_vocab * sizeof(uint32_t);
}

/* ---- marks ---- */

static void next_round(struct penalties *p)
{
    if (++p->round == 0) { /* wrapped: old marks could look new */
        memset(p->seen, 0, (size_t)p->n_vocab * sizeof *p->seen);
        p->round = 1;
    }
}

/* The mark of a token in this round, 0 at first; NULL: not in the vocabulary. */
static uint32_t *mark(struct penalties *p, int id)
{
    if (id < 0 || id >= p->n_vocab)
        return NULL;
    if (p->seen[id] != p->round) {
        p->seen[id] = p->round;
        p->times[id] = 0;
    }
    return &p->times[id];
}

static size_t window(int last_n, size_t n)
{
    return last_n < 0 || (size_t)last_n > n ? n : (size_t)last_n;
}

bool penalties_mark(struct penalties *p, const struct sampling *s, const int *recent, size_t n)
{
    size_t last = window(s->repeat_last_n, n);

    if (!last ||
        (s->repeat_penalty == 1.0f && s->presence_penalty == 0.0f && s->frequency_penalty == 0.0f))
        return false;
    next_round(p);
    for (size_t i = n - last; i < n; i++) {
        uint32_t *times = mark(p, recent[i]);

        if (times)
            ++*times;
    }
    return true;
}

float penalties_apply(const struct penalties *p, const struct sampling *s, float logit, int id)
{
    if (p->seen[id] != p->round)
        return logit;
    logit = logit > 0.0f ? logit / s->repeat_penalty : logit * s->repeat_penalty;
    if (s->frequency_penalty != 0.0f || s->presence_penalty != 0.0f)
        logit -= (float)p->times[id] * s->frequency_penalty + s->presence_penalty;
    return logit;
}

/* ---- DRY ---- */

/* Whether a token's own text contains or starts a breaker. */
static int breaks(const struct penalties *p, int id)
{
    char text[PIECE];
    size_t n = tokenizer_token_text(p->tokenizer, id, text, sizeof text);
    int found = BREAKS_NOT;

    for (int b = 0; n <= sizeof text && b < p->n_breakers; b++) {
        const char *breaker = p->breakers[b];
        size_t len = strlen(breaker);

        if (memmem(text, n, breaker, len))
            return BREAKS_ALONE;
        for (size_t k = n < len ? n : len - 1; k > 0; k--)
            if (memcmp(text + n - k, breaker, k) == 0)
                found = BREAKS_BEGINS;
    }
    return found;
}

int penalties_prepare(struct penalties *p, const struct sampling *s, const struct tokenizer *t,
                      int context, struct error *e)
{
    assert(p->n_vocab > 0 && context > 0);
    if (s->dry_multiplier <= 0.0f)
        return 0;
    if (p->room < (size_t)context) {
        mem_free(p->ends);
        p->ends = mem_alloc((size_t)context, sizeof *p->ends);
        p->room = p->ends ? (size_t)context : 0;
    }
    if (p->breaks && p->tokenizer == t && p->n_breakers == s->n_dry_breakers &&
        memcmp(p->breakers, s->dry_breakers, sizeof p->breakers) == 0)
        return p->ends ? 0 : error_set(e, ERR_MEMORY, "out of memory for the DRY sampler");
    if (!p->breaks)
        p->breaks = mem_alloc((size_t)p->n_vocab, 1);
    if (!p->ends || !p->breaks)
        return error_set(e, ERR_MEMORY, "out of memory for the DRY sampler");
    p->tokenizer = t;
    p->n_breakers = s->n_dry_breakers;
    memcpy(p->breakers, s->dry_breakers, sizeof p->breakers);
    for (int id = 0; id < p->n_vocab; id++)
        p->breaks[id] = (unsigned char)(t && p->n_breakers ? breaks(p, id) : BREAKS_NOT);
    return 0;
}

/* Whether the tokens after a token spell the rest of a breaker: how many tokens it takes; -1: they
 * do not. */
static int spelled(const struct penalties *p, const char *rest, const int *next, size_t n)
{
    size_t left = strlen(rest);
    int taken = 0;

    while (left) {
        char text[PIECE];
        size_t len, common;

        if ((size_t)taken == n)
            return -1;
        len = tokenizer_token_text(p->tokenizer, next[taken], text, sizeof text);
        common = len < left ? len : left;
        if (!len || len > sizeof text || memcmp(text, rest, common) != 0)
            return -1;
        rest += common;
        left -= common;
        taken++;
    }
    return taken;
}

/* How many tokens after its first one a breaker takes that starts in the token before next[0]; -1:
 * none starts there. */
static int breaker_at(const struct penalties *p, int id, const int *next, size_t n)
{
    char text[PIECE];
    size_t len;
    int longest = -1;

    if (id < 0 || id >= p->n_vocab || p->breaks[id] == BREAKS_NOT)
        return -1;
    if (p->breaks[id] == BREAKS_ALONE)
        longest = 0;
    len = tokenizer_token_text(p->tokenizer, id, text, sizeof text);
    for (int b = 0; len <= sizeof text && b < p->n_breakers; b++) {
        const char *breaker = p->breakers[b];
        size_t whole = strlen(breaker);

        for (size_t k = len < whole ? len : whole - 1; k > 0; k--)
            if (memcmp(text + len - k, breaker, k) == 0) {
                int taken = spelled(p, breaker + k, next, n);

                longest = taken > longest ? taken : longest;
            }
    }
    return longest;
}

/* Number of tokens after the newest breaker. */
static size_t unbroken(const struct penalties *p, const int *end, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int taken = breaker_at(p, end[-1 - (ptrdiff_t)i], end - i, i);

        if (taken >= 0)
            return i - (size_t)taken;
    }
    return n;
}

/* ends[k]: length of the common suffix of the text and the text k tokens earlier (the Z algorithm
 * on the reversed text). */
static void find_ends(int *ends, const int *end, size_t n)
{
    size_t from = 0, to = 0;

    ends[0] = 0;
    for (size_t k = 1; k < n; k++) {
        size_t m = 0;

        if (k < to)
            m = (size_t)ends[k - from] < to - k ? (size_t)ends[k - from] : to - k;
        while (k + m < n && end[-1 - (ptrdiff_t)m] == end[-1 - (ptrdiff_t)(k + m)])
            m++;
        ends[k] = (int)m;
        if (k + m > to) {
            from = k;
            to = k + m;
        }
    }
}

bool penalties_mark_dry(struct penalties *p, const struct sampling *s, const int *recent, size_t n)
{
    size_t last = window(s->dry_penalty_last_n, n), allowed = (size_t)s->dry_allowed_length, most;
    const int *end = recent + n;
    bool found = false;

    if (s->dry_multiplier <= 0.0f || s->dry_base < 1.0f || !p->breaks)
        return false;
    last = last < p->room ? last : p->room;
    if (last <= allowed || (most = unbroken(p, end, last)) < allowed)
        return false;
    next_round(p);
    find_ends(p->ends, end, last);
    for (size_t k = 1; k < last; k++) {
        size_t length = (size_t)p->ends[k] < most ? (size_t)p->ends[k] : most;
        int token = end[-(ptrdiff_t)k]; /* the token that followed then */
        uint32_t *longest;

        if (length < allowed || !(longest = mark(p, token)))
            continue;
        if (p->breaks[token] == BREAKS_ALONE)
            continue;
        found = true;
        /* one more, so that 0 is none */
        if (length + 1 > *longest)
            *longest = (uint32_t)length + 1;
    }
    return found;
}

/* base ^ n by squaring: the same on every machine. */
static double power(double base, uint32_t n)
{
    double x = 1.0;

    for (; n; n >>= 1, base *= base)
        if (n & 1)
            x *= base;
    return x;
}

float penalties_apply_dry(const struct penalties *p, const struct sampling *s, float logit, int id)
{
    double penalty;

    if (p->seen[id] != p->round || !p->times[id])
        return logit;
    penalty = (double)s->dry_multiplier *
              power((double)s->dry_base, p->times[id] - 1 - (uint32_t)s->dry_allowed_length);
    return logit - (float)(penalty < (double)FLT_MAX ? penalty : (double)FLT_MAX);
}
