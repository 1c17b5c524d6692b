/* The sampler chain. One thread, no allocation after init. Selection keeps a total order (logit,
 * then the lower id), so whatever way the best are found, their sequence is one and the same.
 * Weights are summed as integers: no order of adding changes a sum, so that the place where top-p
 * cuts and the token that is drawn are found by buckets, and a vocabulary is never sorted. */
#include "engine/run/sampler.h"

#include "engine/base/mem.h"
#include "engine/device/numerics.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Below this distance from the best logit a token weighs less than 4e-11 of it: taken as nothing,
 * which spares most of the exps. */
#define NEGLIGIBLE (-24.0f)
#define EXPS 64
#define BUCKETS 1024

struct sampling sampling_default(void)
{
    return (struct sampling){.temperature = 0.8f,
                             .top_k = 40,
                             .top_p = 0.95f,
                             .min_p = 0.05f,
                             .repeat_penalty = 1.0f,
                             .repeat_last_n = 64};
}

int sampling_check(const struct sampling *s, struct error *e)
{
    if (!(s->temperature >= 0.0f && s->temperature <= 1e6f))
        return error_set(e, ERR_USAGE, "temperature is %g; 0 (greedy) or more is possible",
                         (double)s->temperature);
    if (s->top_k < 0)
        return error_set(e, ERR_USAGE, "top_k is %d; 0 (off) or more is possible", s->top_k);
    if (!(s->top_p >= 0.0f && s->top_p <= 1.0f))
        return error_set(e, ERR_USAGE, "top_p is %g; 0 to 1 (off) is possible", (double)s->top_p);
    if (!(s->min_p >= 0.0f && s->min_p <= 1.0f))
        return error_set(e, ERR_USAGE, "min_p is %g; 0 (off) to 1 is possible", (double)s->min_p);
    if (!(s->repeat_penalty > 0.0f && s->repeat_penalty <= 1e6f))
        return error_set(e, ERR_USAGE, "repeat_penalty is %g; more than 0 is possible, 1 is off",
                         (double)s->repeat_penalty);
    if (s->repeat_last_n < -1)
        return error_set(e, ERR_USAGE,
                         "repeat_last_n is %d; -1 (the context), 0 (off) or more is possible",
                         s->repeat_last_n);
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
    assert(n_vocab > 0);
    *s = (struct sampler){.sampling = *values, .n_vocab = n_vocab};
    s->candidates = mem_alloc((size_t)n_vocab, sizeof *s->candidates);
    s->bucket = mem_alloc((size_t)n_vocab, sizeof *s->bucket);
    s->seen = mem_alloc((size_t)n_vocab, sizeof *s->seen);
    if (!s->candidates || !s->bucket || !s->seen) {
        sampler_release(s);
        return error_set(e, ERR_MEMORY, "out of memory for the sampler");
    }
    sampler_seed(s, values->seed);
    return 0;
}

void sampler_release(struct sampler *s)
{
    mem_free(s->candidates);
    mem_free(s->bucket);
    mem_free(s->seen);
    *s = (struct sampler){0};
}

void sampler_set(struct sampler *s, const struct sampling *values)
{
    uint64_t seed = s->sampling.seed;

    assert(s->n_vocab > 0);
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
    if (++s->round == 0) { /* wrapped: old marks could look new */
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
        logit = logit > 0.0f ? logit / s->sampling.repeat_penalty
                             : logit * s->sampling.repeat_penalty;
    return logit == logit ? logit : -INFINITY;
}

/* Fills the candidates: with top-k only the k best, best first (ids come in ascending order, so of
 * equals the first stays); else all by id. */
static int gather(struct sampler *s, const float *logits, bool penalty)
{
    struct sampler_candidate *c = s->candidates;
    int k = s->sampling.top_k, n = s->n_vocab, taken = k > 0 && k < n ? k : n;

    for (int i = 0; i < taken; i++)
        c[i] = (struct sampler_candidate){adjusted(s, logits[i], penalty, i), 0.0f, i};
    if (taken == n)
        return n;
    select_best(c, k, k);
    /* best first is the wrong way round for a heap whose root is the worst */
    for (int i = 0; i < k / 2; i++)
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

static int take_greedy(const struct sampler *s, const float *logits, bool penalty)
{
    int best = 0;
    float max = -INFINITY;

    for (int i = 0; i < s->n_vocab; i++) {
        float logit = adjusted(s, logits[i], penalty, i);

        if (logit > max) {
            max = logit;
            best = i;
        }
    }
    return best;
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

/* The greatest of them; NaN counts as -inf. In lanes, which needs no chain of comparisons. */
static float greatest(const float *x, int n)
{
    float lanes[NUM_LANES], max = -INFINITY;
    int i = 0;

    for (int j = 0; j < NUM_LANES; j++)
        lanes[j] = -INFINITY;
    for (; i + NUM_LANES <= n; i += NUM_LANES)
        for (int j = 0; j < NUM_LANES; j++)
            lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int j = 0; j < NUM_LANES; j++)
        max = lanes[j] > max ? lanes[j] : max;
    return max;
}

/* Adds exp(x - max) of EXPS logits in lanes: a fixed order, and no chain of additions. */
static inline __attribute__((always_inline)) void add_exps(double *lanes, const float *x, float max)
{
    float d[EXPS];

    for (int i = 0; i < EXPS; i++)
        d[i] = x[i] - max;
    exps(d);
    for (int n = EXPS / 2; n >= NUM_LANES; n /= 2)
        for (int i = 0; i < n; i++)
            d[i] += d[i + n];
    for (int i = 0; i < NUM_LANES; i++)
        lanes[i] += (double)d[i];
}

static void add_exps_plain(double *lanes, const float *x, float max)
{
    add_exps(lanes, x, max);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static void add_exps_avx2(double *lanes, const float *x,
                                                              float max)
{
    add_exps(lanes, x, max);
}
#endif

/* The softmax of one logit among all of them at temperature 1. */
static float softmax_of(const float *logits, int n, int id)
{
    void (*add)(double *lanes, const float *x, float max) = add_exps_plain;
    float max = greatest(logits, n), rest[EXPS];
    double lanes[NUM_LANES] = {0}, sum = 0.0;
    int whole = n / EXPS * EXPS;

    /* nothing to choose from, or nothing comparable */
    if (!(max > -INFINITY) || max == INFINITY)
        return 1.0f;
#ifdef __x86_64__
    if (has_avx2())
        add = add_exps_avx2;
#endif
    for (int i = 0; i < whole; i += EXPS)
        add(lanes, logits + i, max);
    for (int i = 0; i < EXPS; i++)
        rest[i] = whole + i < n ? logits[whole + i] : -INFINITY;
    add(lanes, rest, max);
    for (int i = 0; i < NUM_LANES; i++)
        sum += lanes[i];
    return (float)((double)num_exp(logits[id] - max) / sum);
}

/* A weight as an integer: p is at most 1, and 2^20 of them still fit in 63 bits. What counts at all
 * (NEGLIGIBLE) is 180 units or more. */
static uint64_t units(const struct sampler_candidate *c)
{
    return (uint64_t)(int64_t)((double)c->p * 0x1p42);
}

/* A random place in 0 .. sum - 1. */
static uint64_t mark_in(struct sampler *s, uint64_t sum)
{
    return (uint64_t)((unsigned __int128)sum * draw(s) >> 32);
}

/* Candidates by distance from the best logit: the best lie in the first buckets. */
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

/* Brings the fewest best candidates whose weights reach `want` to the front and returns how many
 * they are; the last of them in the order comes last, those before it are in no order. Only the
 * bucket where the sum gets there is sorted. The others are lost. */
static int cut(struct sampler *s, int n, const struct buckets *b, uint64_t want)
{
    struct sampler_candidate *c = s->candidates, *here = s->bucket;
    uint64_t reached = 0;
    int bucket = 0, before = 0, in = 0;

    while (bucket < BUCKETS - 1 && reached + b->sums[bucket] < want)
        reached += b->sums[bucket++];
    /* without a branch: which way it goes cannot be foretold */
    for (int i = 0; i < n; i++) {
        int at = bucket_of(b, &c[i]);

        here[in] = c[i];
        in += at == bucket;
        c[before] = c[i];
        before += at < bucket;
    }
    memcpy(c + before, here, (size_t)in * sizeof *c);
    /* equal ones are: they come by id */
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

/* Keeps what is at least min_p of the best. The weights are those at temperature 1. */
static int keep_min_p(struct sampler_candidate *c, int n, float max, float min_p)
{
    int kept = 0;

    for (int i = 0; i < n; i++)
        if (c[i].logit == max || (c[i].p > 0.0f ? c[i].p : num_exp(c[i].logit - max)) >= min_p)
            c[kept++] = c[i];
    return kept;
}

/* Draws in the order of the candidates as they are: by id. Its place. */
static int draw_by_id(struct sampler *s, int n)
{
    const struct sampler_candidate *c = s->candidates;
    uint64_t mark, sum = 0;
    int kept = 0;

    for (int i = 0; i < n; i++)
        sum += units(&c[i]);
    mark = mark_in(s, sum);
    for (int i = 0; i < n; i++) {
        uint64_t w = units(&c[i]);

        if (w)
            kept = i;
        if (mark < w)
            break;
        mark -= w;
    }
    return kept;
}

/* Takes a token; *left: the candidates it was drawn from. */
static int take(struct sampler *s, const float *logits, const int *recent, size_t n_recent,
                int *left)
{
    const struct sampling *v = &s->sampling;
    struct sampler_candidate *c = s->candidates;
    bool penalty = mark_recent(s, recent, n_recent), ordered;
    struct buckets b;
    float max = -INFINITY;
    int n, taken;

    *left = 1;
    if (v->temperature <= 0.0f)
        return take_greedy(s, logits, penalty);
    n = gather(s, logits, penalty);
    ordered = n < s->n_vocab || v->top_p < 1.0f;
    for (int i = 0; i < (n < s->n_vocab ? 1 : n); i++)
        max = c[i].logit > max ? c[i].logit : max;
    if (!(max > -INFINITY) || max == INFINITY)
        return take_greedy(s, logits, penalty);
    if (v->top_p < 1.0f || v->min_p > 0.0f)
        weigh(c, n, max, 1.0f);
    if (v->top_p < 1.0f) {
        double want;

        fill(&b, c, n, max);
        want = ceil((double)v->top_p * (double)b.total);
        n = cut(s, n, &b, want < 1.0 ? 1 : (uint64_t)want);
    }
    if (v->min_p > 0.0f)
        n = keep_min_p(c, n, max, v->min_p);
    *left = n;
    weigh(c, n, max, v->temperature);
    if (ordered) {
        fill(&b, c, n, max);
        taken = cut(s, n, &b, mark_in(s, b.total) + 1) - 1;
    } else {
        taken = draw_by_id(s, n);
    }
    return c[taken].id;
}

int sampler_sample(struct sampler *s, const float *logits, const int *recent, size_t n_recent,
                   struct sampler_draw *out)
{
    int left, id = take(s, logits, recent, n_recent, &left);

    assert(s->n_vocab > 0 && logits && (recent || n_recent == 0));
    if (out)
        *out = (struct sampler_draw){softmax_of(logits, s->n_vocab, id), left};
    return id;
}
