/* The sampler chain. One thread, no allocation after init. Selection keeps a total order (logit, then the lower id), so whatever
 * way the best are found, their sequence is one and the same; sums run over that sequence (or over ids) in double. */
#include "engine/run/sampler.h"

#include "engine/base/mem.h"
#include "engine/device/numerics.h"

#include <math.h>
#include <string.h>

/* Below this distance from the best logit a token weighs less than 4e-11 of it: taken as nothing, which spares most of the exps. */
#define NEGLIGIBLE (-24.0f)

struct sampling sampling_default(void)
{
    return (struct sampling){.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1.0f, .repeat_last_n = 64};
}

int sampling_check(const struct sampling *s, struct error *e)
{
    if (!(s->temperature >= 0.0f && s->temperature <= 1e6f))
        return error_set(e, ERR_USAGE, "temperature is %g; 0 (greedy) or more is possible", (double)s->temperature);
    if (s->top_k < 0)
        return error_set(e, ERR_USAGE, "top_k is %d; 0 (off) or more is possible", s->top_k);
    if (!(s->top_p >= 0.0f && s->top_p <= 1.0f))
        return error_set(e, ERR_USAGE, "top_p is %g; 0 to 1 (off) is possible", (double)s->top_p);
    if (!(s->min_p >= 0.0f && s->min_p <= 1.0f))
        return error_set(e, ERR_USAGE, "min_p is %g; 0 (off) to 1 is possible", (double)s->min_p);
    if (!(s->repeat_penalty > 0.0f && s->repeat_penalty <= 1e6f))
        return error_set(e, ERR_USAGE, "repeat_penalty is %g; more than 0 is possible, 1 is off", (double)s->repeat_penalty);
    if (s->repeat_last_n < -1)
        return error_set(e, ERR_USAGE, "repeat_last_n is %d; -1 (the context), 0 (off) or more is possible", s->repeat_last_n);
    return 0;
}

/* PCG32 (O'Neill 2014, pcg-random.org): small, and the same on every machine. */
static uint32_t draw(struct sampler *s)
{
    uint64_t old = s->state;
    uint32_t x = (uint32_t)((old >> 18 ^ old) >> 27), turn = (uint32_t)(old >> 59);

    s->state = old * 6364136223846793005u + s->increment;
    return x >> turn | x << (-turn & 31);
}

void sampler_seed(struct sampler *s, uint64_t seed)
{
    s->sampling.seed = seed;
    s->increment = 0xda3e39cb94b95bdbu | 1;
    s->state = 0;
    draw(s);
    s->state += seed;
    draw(s);
}

int sampler_init(struct sampler *s, int n_vocab, const struct sampling *values, struct error *e)
{
    *s = (struct sampler){.sampling = *values, .n_vocab = n_vocab};
    s->candidates = mem_alloc((size_t)n_vocab, sizeof *s->candidates);
    s->seen = mem_alloc((size_t)n_vocab, sizeof *s->seen);
    if (!s->candidates || !s->seen) {
        sampler_release(s);
        return error_set(e, ERR_MEMORY, "out of memory for the sampler");
    }
    sampler_seed(s, values->seed);
    return 0;
}

void sampler_release(struct sampler *s)
{
    mem_free(s->candidates);
    mem_free(s->seen);
    *s = (struct sampler){0};
}

void sampler_set(struct sampler *s, const struct sampling *values)
{
    uint64_t seed = s->sampling.seed;

    s->sampling = *values;
    if (values->seed != seed)
        sampler_seed(s, values->seed);
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

/* Marks the tokens that the penalty is for; false: there is none. */
static bool mark_recent(struct sampler *s, const int *recent, size_t n_recent)
{
    size_t last = s->sampling.repeat_last_n < 0 ? n_recent : (size_t)s->sampling.repeat_last_n;

    if (s->sampling.repeat_penalty == 1.0f || last == 0 || n_recent == 0)
        return false;
    if (++s->round == 0) {               /* wrapped: old marks could look new */
        memset(s->seen, 0, (size_t)s->n_vocab * sizeof *s->seen);
        s->round = 1;
    }
    for (size_t i = n_recent > last ? n_recent - last : 0; i < n_recent; i++)
        if (recent[i] >= 0 && recent[i] < s->n_vocab)
            s->seen[recent[i]] = s->round;
    return true;
}

/* A NaN counts as -inf. */
static float adjusted(const struct sampler *s, float logit, bool penalty, int id)
{
    if (penalty && s->seen[id] == s->round)
        logit = logit > 0.0f ? logit / s->sampling.repeat_penalty : logit * s->sampling.repeat_penalty;
    return logit == logit ? logit : -INFINITY;
}

/* Fills the candidates: with top-k only the k best, best first (ids come in ascending order, so of equals the first stays); else all by id. */
static int gather(struct sampler *s, const float *logits, bool penalty)
{
    struct sampler_candidate *c = s->candidates;
    int k = s->sampling.top_k, n = s->n_vocab, taken = k > 0 && k < n ? k : n;

    for (int i = 0; i < taken; i++)
        c[i] = (struct sampler_candidate){adjusted(s, logits[i], penalty, i), 0.0f, i};
    if (taken == n)
        return n;
    select_best(c, k, k);
    for (int i = 0; i < k / 2; i++)      /* best first is the wrong way round for a heap whose root is the worst */
        swap(&c[i], &c[k - 1 - i]);
    for (int i = k; i < n; i++) {
        float logit = adjusted(s, logits[i], penalty, i);

        if (logit > c[0].logit) {
            c[0] = (struct sampler_candidate){logit, 0.0f, i};
            sift(c, k, 0);
        }
    }
    select_best(c, k, k);
    return k;
}

/* The best token and its share of the softmax at temperature 1. */
static int take_greedy(const struct sampler *s, const float *logits, bool penalty, float *probability)
{
    int best = 0;
    float max = -INFINITY;
    double sum = 0.0;

    for (int i = 0; i < s->n_vocab; i++) {
        float logit = adjusted(s, logits[i], penalty, i);

        if (logit > max) {
            max = logit;
            best = i;
        }
    }
    if (!probability)
        return best;
    *probability = 1.0f;
    if (!(max > -INFINITY) || max == INFINITY)           /* nothing to choose from, or nothing comparable */
        return best;
    for (int i = 0; i < s->n_vocab; i++) {
        float d = adjusted(s, logits[i], penalty, i) - max;

        if (d >= NEGLIGIBLE)
            sum += (double)num_exp(d);
    }
    *probability = (float)(1.0 / sum);
    return best;
}

/* p = exp(logit - max) / temperature, unnormalised; returns the sum. */
static double weigh(struct sampler_candidate *c, int n, float max, float temperature)
{
    double sum = 0.0;

    for (int i = 0; i < n; i++) {
        float d = (c[i].logit - max) / temperature;

        c[i].p = d >= NEGLIGIBLE ? num_exp(d) : 0.0f;
        sum += (double)c[i].p;
    }
    return sum;
}

/* Candidates kept by top-p: the fewest best whose share reaches it. They are sorted further as far as needed. */
static int keep_top_p(struct sampler *s, int n, int sorted, double sum)
{
    double want = (double)s->sampling.top_p * sum, reached = 0.0;

    for (int i = 0; i < n; i++) {
        if (i == sorted) {
            sorted = sorted * 4 < 256 ? 256 : sorted * 4;
            sorted = sorted > n ? n : sorted;
            select_best(s->candidates + i, n - i, sorted - i);
        }
        reached += (double)s->candidates[i].p;
        if (reached >= want)
            return i + 1;
    }
    return n;
}

int sampler_sample(struct sampler *s, const float *logits, const int *recent, size_t n_recent, float *probability)
{
    const struct sampling *v = &s->sampling;
    struct sampler_candidate *c = s->candidates;
    bool penalty = mark_recent(s, recent, n_recent);
    int n, sorted, kept;
    float max = -INFINITY;
    double sum, mark;

    if (v->temperature <= 0.0f)
        return take_greedy(s, logits, penalty, probability);
    n = gather(s, logits, penalty);
    sorted = n < s->n_vocab ? n : 0;
    for (int i = 0; i < (sorted ? 1 : n); i++)
        max = c[i].logit > max ? c[i].logit : max;
    if (!(max > -INFINITY) || max == INFINITY)
        return take_greedy(s, logits, penalty, probability);
    if (v->top_p < 1.0f)
        n = keep_top_p(s, n, sorted, weigh(c, n, max, 1.0f));
    if (v->min_p > 0.0f) {
        kept = 0;
        for (int i = 0; i < n; i++)
            if (c[i].logit == max || num_exp(c[i].logit - max) >= v->min_p)
                c[kept++] = c[i];
        n = kept;
    }
    sum = weigh(c, n, max, v->temperature);
    mark = sum * ((double)draw(s) * 0x1p-32);
    kept = 0;
    for (int i = 0; i < n; i++) {
        if (c[i].p > 0.0f)
            kept = i;                    /* rounding may leave the mark past the end: the last possible one then */
        mark -= (double)c[i].p;
        if (mark < 0.0)
            break;
    }
    if (probability)
        *probability = (float)((double)c[kept].p / sum);
    return c[kept].id;
}
