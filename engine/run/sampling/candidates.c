/* See candidates.h. Selection uses a total order (logit, then the lower id), so the result does not
 * depend on the algorithm. Weights are summed as integers, so the order of adding does not matter,
 * and the cut of top-p and the drawn token are found with buckets; a vocabulary is never sorted. */
#include "engine/run/sampling/candidates.h"

#include "engine/device/numerics.h"
#include "engine/run/sampling/logits_sum.h"

#include <math.h>
#include <string.h>

/* Below this distance from the best logit a token weighs less than 4e-11 of it: treated as 0, which
 * saves most of the exps. */
#define NEGLIGIBLE (-24.0f)
#define EXPS 64
#define BUCKETS 1024

/* A NaN counts as -inf. */
static float number(float logit)
{
    return logit == logit ? logit : -INFINITY;
}

static bool better(const struct sampler_candidate *a, const struct sampler_candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void swap(struct sampler_candidate *a, struct sampler_candidate *b)
{
    struct sampler_candidate t = *a;

    *a = *b;
    *b = t;
}

/* A heap whose root is the worst of h[0..n). */
static void sift(struct sampler_candidate *h, int n, int i)
{
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && better(&h[child], &h[child + 1]))
            child++;
        if (!better(&h[i], &h[child]))
            return;
        swap(&h[i], &h[child]);
    }
}

/* Brings the k best of c[0..n) to the front, best first. */
static void select_best(struct sampler_candidate *c, int n, int k)
{
    for (int i = k / 2; i-- > 0;)
        sift(c, k, i);
    for (int i = k; i < n; i++)
        if (better(&c[i], &c[0])) {
            swap(&c[i], &c[0]);
            sift(c, k, 0);
        }
    for (int i = k; i-- > 1;) {
        swap(&c[0], &c[i]);
        sift(c, i, 0);
    }
}

/* d becomes num_exp(d), or 0 where that is negligible. A block of a size known to the compiler: it
 * then uses the widest vectors the function may have. The bits are those of num_exp either way. */
static inline __attribute__((always_inline)) void exps(float *d)
{
    for (int i = 0; i < EXPS; i++) {
        float p = num_exp(d[i]);

        d[i] = d[i] >= NEGLIGIBLE ? p : 0.0f;
    }
}

static void exps_plain(float *d)
{
    exps(d);
}

#ifdef __x86_64__
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

__attribute__((target("avx2,fma"))) static void exps_avx2(float *d)
{
    exps(d);
}
#endif

/* c[i].p = exp((logit - max) / temperature), unnormalised. */
static void weigh(struct sampler_candidate *c, int n, float max, float temperature)
{
    void (*run)(float *d) = exps_plain;
    float d[EXPS] = {0};

#ifdef __x86_64__
    if (has_avx2())
        run = exps_avx2;
#endif
    for (int first = 0; first < n; first += EXPS) {
        int count = n - first < EXPS ? n - first : EXPS;

        for (int i = 0; i < count; i++)
            d[i] = (c[first + i].logit - max) / temperature;
        run(d);
        for (int i = 0; i < count; i++)
            c[first + i].p = d[i];
    }
}

float logits_probability(const float *logits, int n, int id)
{
    float max = logits_greatest(logits, n);

    /* nothing to choose from, or nothing comparable */
    if (!(max > -INFINITY) || max == INFINITY)
        return 1.0f;
    return (float)((double)num_exp(logits[id] - max) / logits_exp_sum(logits, n, max));
}

float logits_outside(const float *logits, int n, const uint32_t *mask)
{
    double in = 0.0, out = 0.0;
    float max = logits_greatest(logits, n);

    if (!(max > -INFINITY) || max == INFINITY)
        return 0.0f;
    for (int i = 0; i < n; i++) {
        float d = number(logits[i]) - max;

        if (!(d >= NEGLIGIBLE))
            continue;
        if (mask[i >> 5] >> (i & 31) & 1)
            in += (double)num_exp(d);
        else
            out += (double)num_exp(d);
    }
    return (float)(out / (in + out));
}

/* A weight as an integer: p is at most 1, and 2^20 of them still fit in 63 bits. The least non-zero
 * weight (NEGLIGIBLE) is 180 units or more. */
static uint64_t units(const struct sampler_candidate *c)
{
    return (uint64_t)(int64_t)((double)c->p * 0x1p42);
}

/* Candidates by distance from the best logit: the best are in the first buckets. */
struct buckets {
    uint64_t sums[BUCKETS], total; /* units */
    float max, scale;
};

static int bucket_of(const struct buckets *b, const struct sampler_candidate *c)
{
    float at = (b->max - c->logit) * b->scale;

    return at < (float)(BUCKETS - 1) ? (int)at : BUCKETS - 1;
}

static void fill(struct buckets *b, const struct sampler_candidate *c, int n, float max)
{
    float least = max;

    memset(b, 0, sizeof *b);
    for (int i = 0; i < n; i++) {
        float logit = c[i].p > 0.0f ? c[i].logit : max;

        least = logit < least ? logit : least;
    }
    b->max = max;
    b->scale = max > least ? (float)(BUCKETS - 1) / (max - least) : 0.0f;
    for (int i = 0; i < n; i++) {
        uint64_t w = units(&c[i]);

        b->sums[bucket_of(b, &c[i])] += w;
        b->total += w;
    }
}

static bool in_order(const struct sampler_candidate *c, int n)
{
    for (int i = 1; i < n; i++)
        if (better(&c[i], &c[i - 1]))
            return false;
    return true;
}

/* Moves the fewest best candidates whose weights reach `want` to the front and returns their
 * number; the last of them in the order comes last, those before it are unordered. Only the bucket
 * that reaches the sum is sorted. The others are lost. */
static int cut(struct candidates *all, const struct buckets *b, uint64_t want)
{
    struct sampler_candidate *c = all->c, *here = all->spare;
    uint64_t reached = 0;
    int bucket = 0, before = 0, in = 0, n = all->n;

    while (bucket < BUCKETS - 1 && reached + b->sums[bucket] < want)
        reached += b->sums[bucket++];
    /* branchless: the branch would be unpredictable */
    for (int i = 0; i < n; i++) {
        int at = bucket_of(b, &c[i]);

        here[in] = c[i];
        in += at == bucket;
        c[before] = c[i];
        before += at < bucket;
    }
    memcpy(c + before, here, (size_t)in * sizeof *c);
    /* groups of equal ones are sorted: they come by id */
    for (int sorted = in_order(c + before, in) ? in : 0, i = 0; i < in; i++) {
        if (i == sorted) {
            sorted = sorted * 4 < 64 ? 64 : sorted * 4;
            sorted = sorted > in ? in : sorted;
            select_best(c + before + i, in - i, sorted - i);
        }
        reached += units(&c[before + i]);
        if (reached >= want)
            return before + i + 1;
    }
    return before + in;
}

/* Of all of them. */
static float best_logit(const struct candidates *all)
{
    float max = -INFINITY;

    for (int i = 0; i < all->n; i++)
        max = all->c[i].logit > max ? all->c[i].logit : max;
    return max;
}

bool candidates_comparable(struct candidates *all)
{
    all->max = all->by_id ? best_logit(all) : all->c[0].logit;
    return all->max > -INFINITY && all->max < INFINITY;
}

void candidates_changed(struct candidates *all)
{
    all->max = best_logit(all);
    all->weighed = false;
}

static void weigh_plainly(struct candidates *all)
{
    if (!all->weighed)
        weigh(all->c, all->n, all->max, 1.0f);
    all->weighed = true;
}

static uint64_t total_units(const struct candidates *all)
{
    uint64_t sum = 0;

    for (int i = 0; i < all->n; i++)
        sum += units(&all->c[i]);
    return sum;
}

void candidates_gather(struct candidates *all, const float *logits, int n_vocab, int k)
{
    struct sampler_candidate *c = all->c;
    int taken = k > 0 && k < n_vocab ? k : n_vocab;

    all->n = taken;
    all->weighed = false;
    all->by_id = taken == n_vocab;
    for (int i = 0; i < taken; i++)
        c[i] = (struct sampler_candidate){number(logits[i]), 0.0f, i};
    if (taken == n_vocab)
        return;
    select_best(c, k, k);
    /* best first is the wrong order for a heap whose root is the worst */
    for (int i = 0; i < k / 2; i++)
        swap(&c[i], &c[k - 1 - i]);
    for (int i = k; i < n_vocab; i++) {
        float logit = number(logits[i]);

        if (logit > c[0].logit) {
            c[0] = (struct sampler_candidate){logit, 0.0f, i};
            sift(c, k, 0);
        }
    }
    select_best(c, k, k);
}

void candidates_top_k(struct candidates *all, int k)
{
    if (k <= 0 || k >= all->n)
        return;
    select_best(all->c, all->n, k);
    all->n = k;
    all->by_id = false;
}

void candidates_top_p(struct candidates *all, float p)
{
    struct buckets b;
    double want;

    weigh_plainly(all);
    fill(&b, all->c, all->n, all->max);
    want = ceil((double)p * (double)b.total);
    all->n = cut(all, &b, want < 1.0 ? 1 : (uint64_t)want);
    all->by_id = false;
}

void candidates_min_p(struct candidates *all, float min_p)
{
    struct sampler_candidate *c = all->c;
    int kept = 0;

    weigh_plainly(all);
    for (int i = 0; i < all->n; i++)
        if (c[i].logit == all->max ||
            (c[i].p > 0.0f ? c[i].p : num_exp(c[i].logit - all->max)) >= min_p)
            c[kept++] = c[i];
    all->n = kept;
}

/* With d = logit - max and S the sum of weights, -log p = log S - d and the entropy is log S less
 * the mean of d: log S cancels in their distance. */
void candidates_typical(struct candidates *all, float p)
{
    struct sampler_candidate *c = all->c;
    double mean = 0.0, sum;
    float nearest = -INFINITY;
    struct buckets b;

    weigh_plainly(all);
    sum = (double)total_units(all);
    for (int i = 0; i < all->n; i++)
        if (units(&c[i]))
            mean += (double)units(&c[i]) * (double)(c[i].logit - all->max);
    mean /= sum;
    for (int i = 0; i < all->n; i++) {
        all->aside[c[i].id] = c[i].logit;
        c[i].logit = (float)-fabs((double)(c[i].logit - all->max) - mean);
        nearest = c[i].logit > nearest ? c[i].logit : nearest;
    }
    fill(&b, c, all->n, nearest);
    all->n = cut(all, &b, (uint64_t)((double)p * (double)b.total) + 1);
    for (int i = 0; i < all->n; i++)
        c[i].logit = all->aside[c[i].id];
    all->by_id = false;
    candidates_changed(all);
}

void candidates_xtc(struct candidates *all, float threshold)
{
    struct sampler_candidate *c = all->c;
    int likely = 0, kept = 0, last = -1;
    double least;

    weigh_plainly(all);
    least = (double)threshold * (double)total_units(all);
    for (int i = 0; i < all->n; i++)
        if ((double)units(&c[i]) >= least) {
            likely++;
            last = last < 0 || better(&c[last], &c[i]) ? i : last;
        }
    if (likely < 2)
        return;
    for (int i = 0; i < all->n; i++)
        if (i == last || (double)units(&c[i]) < least)
            c[kept++] = c[i];
    all->n = kept;
    candidates_changed(all);
}

void candidates_top_n_sigma(struct candidates *all, float n_sigma)
{
    struct sampler_candidate *c = all->c;
    double sum = 0.0, squares = 0.0, mean, least;
    int counted = 0, kept = 0;

    for (int i = 0; i < all->n; i++)
        if (c[i].logit > -INFINITY) {
            sum += (double)c[i].logit;
            counted++;
        }
    if (!counted)
        return;
    mean = sum / counted;
    for (int i = 0; i < all->n; i++)
        if (c[i].logit > -INFINITY)
            squares += ((double)c[i].logit - mean) * ((double)c[i].logit - mean);
    least = (double)all->max - (double)n_sigma * sqrt(squares / counted);
    for (int i = 0; i < all->n; i++)
        if ((double)c[i].logit >= least)
            c[kept++] = c[i];
    all->n = kept;
}

void candidates_heat(struct candidates *all, float temperature)
{
    for (int i = 0; i < all->n; i++)
        all->c[i].logit /= temperature;
    candidates_changed(all);
}

void candidates_keep_best(struct candidates *all)
{
    int best = 0;

    for (int i = 1; i < all->n; i++)
        if (better(&all->c[i], &all->c[best]))
            best = i;
    all->c[0] = all->c[best];
    all->n = 1;
    all->max = all->c[0].logit;
    all->weighed = false;
}

/* A random position in 0 .. sum - 1. */
static uint64_t mark_in(uint64_t sum, uint32_t random)
{
    return (uint64_t)((unsigned __int128)sum * random >> 32);
}

static float share_of(const struct sampler_candidate *c, uint64_t total)
{
    return total ? (float)((double)units(c) / (double)total) : 1.0f;
}

/* Draws in the order of ids; returns its index. */
static int draw_by_id(const struct candidates *all, uint64_t total, uint32_t random)
{
    uint64_t mark = mark_in(total, random);
    int kept = 0;

    for (int i = 0; i < all->n; i++) {
        uint64_t w = units(&all->c[i]);

        if (w)
            kept = i;
        if (mark < w)
            break;
        mark -= w;
    }
    return kept;
}

int candidates_draw(struct candidates *all, float temperature, uint32_t random)
{
    const struct sampler_candidate *taken;
    struct buckets b;

    weigh(all->c, all->n, all->max, temperature);
    if (all->by_id) {
        b.total = total_units(all);
        taken = &all->c[draw_by_id(all, b.total, random)];
    } else {
        fill(&b, all->c, all->n, all->max);
        taken = &all->c[cut(all, &b, mark_in(b.total, random) + 1) - 1];
    }
    all->share = share_of(taken, b.total);
    return taken->id;
}
