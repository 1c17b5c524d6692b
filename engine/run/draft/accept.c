/* See accept.h. */
#include "engine/run/draft/accept.h"

#include "engine/base/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TYPICAL_MOST 0.09 /* epsilon of Cai et al. 2024, "Medusa"; delta is the policy's value */

/* Input of a policy. */
struct place {
    const float *logits;
    int n, id;
    double max, sum; /* of exp(logit - max) */
};

static bool by_confidence(const struct place *p, double value)
{
    return exp((double)p->logits[p->id] - p->max) / p->sum >= value;
}

static bool by_rank(const struct place *p, double value)
{
    int better = 0;

    for (int i = 0; i < p->n; i++)
        better += p->logits[i] > p->logits[p->id];
    return better < value;
}

static bool by_typicality(const struct place *p, double value)
{
    double entropy = log(p->sum), least;

    for (int i = 0; i < p->n; i++) {
        double x = (double)p->logits[i] - p->max;

        if (x > -30)
            entropy -= exp(x) / p->sum * x;
    }
    least = value * exp(-entropy);
    return by_confidence(p, least < TYPICAL_MOST ? least : TYPICAL_MOST);
}

static const struct {
    const char *name;
    bool (*takes)(const struct place *p, double value);
    double value;
} policies[] = {
#define ACCEPT(name, takes, value) {#name, takes, value},
#include "engine/run/draft/accept.def"
#undef ACCEPT
};
#define POLICIES ((int)(sizeof policies / sizeof *policies))

int acceptance_parse(const char *text, struct acceptance *out, struct error *e)
{
    size_t n = strcspn(text, ":");
    char *end = NULL;

    for (int i = 0; i < POLICIES; i++) {
        if (strlen(policies[i].name) != n || strncmp(policies[i].name, text, n) != 0)
            continue;
        *out = (struct acceptance){i, (float)policies[i].value};
        if (!text[n])
            return 0;
        out->value = strtof(text + n + 1, &end);
        if (i && end != text + n + 1 && !*end && out->value > 0 && out->value <= 100000)
            return 0;
    }
    return error_set(e, ERR_USAGE,
                     "--spec-accept %s: prefix, confidence[:P], top-k[:N] or typical[:DELTA] is "
                     "expected",
                     text);
}

bool acceptance_takes(const struct acceptance *a, const float *logits, int n_vocab, int id,
                      float *probability)
{
    struct place p = {.logits = logits, .n = n_vocab, .id = id, .max = -INFINITY};

    if (!a->policy || id < 0 || id >= n_vocab || !isfinite(logits[id]))
        return false;
    for (int i = 0; i < n_vocab; i++)
        p.max = (double)logits[i] > p.max ? (double)logits[i] : p.max;
    for (int i = 0; i < n_vocab; i++)
        p.sum += (double)logits[i] - p.max > -30 ? exp((double)logits[i] - p.max) : 0;
    *probability = (float)(exp((double)logits[id] - p.max) / p.sum);
    return policies[a->policy].takes(&p, (double)a->value);
}

int acceptance_rates_parse(const char *text, float *rates, int most, struct error *e)
{
    char *end = NULL;
    int n = 0;

    for (const char *at = text; n < most; at = end + 1) {
        rates[n] = strtof(at, &end);
        if (end == at || !(rates[n] >= 0 && rates[n] <= (n ? rates[n - 1] : 1)))
            break;
        n++;
        if (!*end)
            return n;
        if (*end != ',')
            break;
    }
    return error_set(e, ERR_USAGE,
                     "--spec-synth-rates %.60s: up to %d numbers from 0 to 1 are expected, none "
                     "above the one before it: 0.9,0.8,0.6",
                     text, most);
}

bool acceptance_synthetic(const float *rates, int n, int place, int at)
{
    float before = !place ? 1 : place <= n ? rates[place - 1] : 0;
    uint64_t h = hash_add(hash_add(HASH_START, (uint64_t)at), (uint64_t)place);

    h = (h ^ h >> 31) * 0xbf58476d1ce4e5b9u;
    h ^= h >> 29;
    return place < n && before > 0 &&
           (double)(h >> 11) * 0x1p-53 < (double)rates[place] / (double)before;
}
