/* The sampler chain against a plain reimplementation that sorts everything, against known
 * frequencies, and for determinism. */
#include "engine/base/mem.h"
#include "engine/device/numerics.h"
#include "engine/run/sampling/sampler.h"
#include "tests/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N 500

/* temperature, top_k, top_p, min_p, repeat_penalty, repeat_last_n, seed */
#define CHAIN(t, k, p, m, penalty, n, s)                                                 \
    {                                                                                    \
        .temperature = t, .top_k = k, .top_p = p, .min_p = m, .repeat_penalty = penalty, \
        .repeat_last_n = n, .seed = s                                                    \
    }

static uint32_t lcg = 1;

static float noise(void)
{
    lcg = lcg * 1664525u + 1013904223u;
    return (float)(lcg >> 8) / 16777216.0f;
}

static struct sampling values(float temperature, int k, float p, float min_p, float penalty)
{
    return (struct sampling)CHAIN(temperature, k, p, min_p, penalty, 64, 42);
}

static int pick(const struct sampling *v, const float *logits, int n, const int *recent,
                size_t n_recent, struct sampler_draw *p)
{
    struct sampler s;
    struct error e;
    int id;

    ck_assert_int_eq(sampler_init(&s, n, v, &e), 0);
    id = sampler_sample(&s, logits, recent, n_recent, p);
    sampler_release(&s);
    return id;
}

/* The model's own probability of a token: of all, whatever temperature and cuts do. */
static double slow_softmax(const float *logits, int n, int id)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += logits[i] == logits[i] ? exp((double)logits[i] - (double)logits[id]) : 0;
    return 1 / sum;
}

START_TEST(greedy_takes_the_best_and_the_lowest_of_equals)
{
    struct sampling v = values(0, 40, 0.9f, 0.05f, 1);
    float logits[] = {1, 5, -2, 5, NAN};
    struct sampler_draw p;

    ck_assert_int_eq(pick(&v, logits, 5, NULL, 0, &p), 1);
    ck_assert_float_eq_tol(p.probability, 1.0f / (2.0f + expf(-4) + expf(-7)), 1e-6);
    ck_assert_int_eq(p.candidates, 1);
}
END_TEST

/* Greedy, one survivor of the cuts, a penalty, no cut at all: what the model held of a token stays
 * the same. */
START_TEST(the_model_s_own_probability_is_told)
{
    static const struct sampling ways[] = {
        CHAIN(0, 40, 0.95f, 0.05f, 1, 0, 1), CHAIN(0.8f, 1, 1, 0, 1, 0, 1),
        CHAIN(2, 0, 0, 0, 1, 0, 1),          CHAIN(0.1f, 0, 1, 0.999f, 1, 0, 1),
        CHAIN(0, 0, 1, 0, 3, 64, 1),
    };
    enum { MANY = 1003 }; /* no multiple of any block */
    float logits[MANY];
    int recent[] = {7, 9};

    lcg = 11;
    for (int i = 0; i < MANY; i++)
        logits[i] = 3.0f * noise();
    logits[MANY - 1] = 4.0f; /* the best is the last */
    logits[500] = NAN;
    logits[501] = -INFINITY;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct sampler_draw p;

        ck_assert_int_eq(pick(&ways[w], logits, MANY, recent, 2, &p), MANY - 1);
        ck_assert_double_eq_tol((double)p.probability, slow_softmax(logits, MANY, MANY - 1), 1e-6);
        ck_assert_int_eq(p.candidates, 1);
    }
}
END_TEST

/* Two logits apart by log 3: the share among what the cuts leave, at the chain's temperature, by id
 * and by buckets; alone, and greedy, it is all. */
START_TEST(the_share_after_temperature_and_cuts_is_told)
{
    static const struct {
        struct sampling way;
        double best;
    } cases[] = {
        {CHAIN(1, 0, 1, 0, 1, 0, 1), 0.75}, /* by id: 3 : 1, the rest is nothing */
        {CHAIN(0.5f, 0, 1, 0, 1, 0, 1), 0.9},
        {CHAIN(1, 2, 1, 0, 1, 0, 1), 0.75},
        {CHAIN(0.5f, 2, 1, 0, 1, 0, 1), 0.9},
        {CHAIN(1, 0, 0.7f, 0, 1, 0, 1), 1},
        {CHAIN(0, 0, 1, 0, 1, 0, 1), 1},
    };
    float logits[] = {2.0f, 2.0f - logf(3.0f), -80, -90};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sampler_draw p;
        int id = pick(&cases[i].way, logits, 4, NULL, 0, &p);

        ck_assert_double_eq_tol((double)p.share, id == 0 ? cases[i].best : 1 - cases[i].best, 1e-4);
        ck_assert_float_eq_tol(p.probability, id == 0 ? 0.75f : 0.25f, 1e-6);
    }
}
END_TEST

START_TEST(penalty_counts_each_recent_token_once)
{
    struct sampling v = values(0, 0, 1, 0, 2);
    float logits[] = {3, 4, -1, -1.5f};
    int recent[] = {1, 1, 1, 99, -5, 2};

    /* 4 / 2 < 3 */
    ck_assert_int_eq(pick(&v, logits, 4, recent, 6, NULL), 0);
    /* counted thrice, 4 would be worth 0.5; once it is 2 and wins over 1.9 */
    logits[0] = 1.9f;
    ck_assert_int_eq(pick(&v, logits, 4, recent, 6, NULL), 1);
    /* a negative logit moves down: -1 becomes -2 */
    logits[0] = logits[1] = -9;
    ck_assert_int_eq(pick(&v, logits, 4, recent, 6, NULL), 3);
    /* a small positive one too: 0.3 becomes 0.15 and loses against 0.2 */
    logits[0] = 0.2f;
    logits[1] = 0.3f;
    ck_assert_int_eq(pick(&v, logits, 4, recent, 6, NULL), 0);
    /* outside the window it does not count */
    v.repeat_last_n = 1;
    logits[1] = 4;
    logits[0] = 3;
    ck_assert_int_eq(pick(&v, logits, 4, recent, 6, NULL), 1);
    v.repeat_last_n = 0;
    ck_assert_int_eq(pick(&v, logits, 4, recent, 6, NULL), 1);
    v.repeat_last_n = -1;
    ck_assert_int_eq(pick(&v, logits, 4, recent, 6, NULL), 0);
}
END_TEST

struct slow {
    double l, p;
    int id;
};

static int slow_order(const void *a, const void *b)
{
    const struct slow *x = a, *y = b;

    return x->l != y->l ? (x->l < y->l ? 1 : -1) : x->id - y->id;
}

/* The ids that may be drawn, by sorting everything in double. Returns how many; p gets their
 * probabilities. */
static int slow_chain(const struct sampling *v, const float *logits, int n, struct slow *c)
{
    double sum = 0, reached = 0, max;
    int kept;

    for (int i = 0; i < n; i++)
        c[i] = (struct slow){(double)logits[i], 0, i};
    qsort(c, (size_t)n, sizeof *c, slow_order);
    max = c[0].l;
    if (v->top_k > 0 && v->top_k < n)
        n = v->top_k;
    for (int i = 0; i < n; i++)
        sum += exp(c[i].l - max);
    for (kept = 0; kept < n; kept++) {
        if (kept && v->top_p < 1 && reached >= (double)v->top_p * sum)
            break;
        reached += exp(c[kept].l - max);
    }
    n = kept;
    for (kept = 0; kept < n && exp(c[kept].l - max) >= (double)v->min_p; kept++)
        ;
    n = kept;
    sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp((c[i].l - max) / (double)v->temperature);
    for (int i = 0; i < n; i++)
        c[i].p = exp((c[i].l - max) / (double)v->temperature) / sum;
    return n;
}

/* Over many draws exactly the right ids come, about as often as they should; what is told is the
 * model's own probability and how many candidates the cuts left. */
START_TEST(chain_draws_what_it_should)
{
    static const struct sampling chains[] = {
        CHAIN(0.8f, 40, 0.95f, 0.05f, 1, 64, 1),
        CHAIN(1, 0, 1, 0, 1, 0, 2),
        CHAIN(1, 0, 0.9f, 0, 1, 0, 3),
        CHAIN(2, 0, 1, 0.1f, 1, 0, 4),
        CHAIN(0.5f, 5, 1, 0, 1, 0, 5),
        CHAIN(1, 1, 1, 0, 1, 0, 6),
        CHAIN(1, 0, 0, 0, 1, 0, 7),
        CHAIN(0.1f, N, 0.999f, 0, 1, 0, 8),
        CHAIN(1.5f, 300, 0.99f, 0.001f, 1, 0, 9),
    };
    const struct sampling *v = &chains[_i];
    enum { DRAWS = 20000 };
    float logits[N];
    struct slow may[N];
    int counts[N] = {0}, n;
    struct sampler s;
    struct error e;

    lcg = (uint32_t)_i + 77;
    for (int i = 0; i < N; i++)
        logits[i] = 8.0f * noise() * noise() * noise() + (i % 50 == 0 ? 3.0f : 0.0f);
    n = slow_chain(v, logits, N, may);
    ck_assert_int_eq(sampler_init(&s, N, v, &e), 0);
    for (int d = 0; d < DRAWS; d++) {
        struct sampler_draw p;
        int id = sampler_sample(&s, logits, NULL, 0, &p), k = 0;

        while (k < n && may[k].id != id)
            k++;
        ck_assert_msg(k < n, "id %d is not among the %d that may be drawn", id, n);
        ck_assert_double_eq_tol((double)p.probability, slow_softmax(logits, N, id), 1e-6);
        ck_assert_int_eq(p.candidates, n);
        counts[k]++;
    }
    for (int k = 0; k < n; k++) {
        double expect = may[k].p * DRAWS, sd = sqrt(expect * (1 - may[k].p)) + 1;

        ck_assert_msg(fabs(counts[k] - expect) < 5 * sd, "id %d came %d times, not about %.0f",
                      may[k].id, counts[k], expect);
    }
    sampler_release(&s);
}
END_TEST

/* The draws themselves are part of the program's promise ("same seed, same text"): these ids must
 * never change. */
START_TEST(same_seed_same_ids_for_ever)
{
    static const int golden[] = {137, 331, 51,  202, 437, 371, 361, 367, 3,   198, 114, 233,
                                 266, 496, 354, 256, 283, 378, 339, 441, 183, 350, 315, 471};
    struct sampling v = values(0.8f, 40, 0.95f, 0.05f, 1.1f);
    float logits[N];
    int recent[64], n = 0;
    struct sampler s;
    struct error e;

    lcg = 5;
    ck_assert_int_eq(sampler_init(&s, N, &v, &e), 0);
    for (int d = 0; d < 24; d++) {
        for (int i = 0; i < N; i++)
            logits[i] = 6.0f * noise();
        recent[n] = sampler_sample(&s, logits, recent, (size_t)n, NULL);
        n++;
    }
    for (int d = 0; d < 24; d++)
        ck_assert_msg(recent[d] == golden[d], "draw %d gave %d, not %d", d, recent[d], golden[d]);
    /* seeded again it starts over; with another seed it differs */
    for (int round = 0; round < 2; round++) {
        int again = 0;

        lcg = 5;
        sampler_seed(&s, round ? 43 : 42);
        for (int d = 0; d < 24; d++) {
            for (int i = 0; i < N; i++)
                logits[i] = 6.0f * noise();
            again += sampler_sample(&s, logits, recent, (size_t)d, NULL) == golden[d];
        }
        if (round)
            ck_assert_int_lt(again, 12);
        else
            ck_assert_int_eq(again, 24);
    }
    sampler_release(&s);
}
END_TEST

START_TEST(new_values_keep_the_generator)
{
    struct sampling v = values(1, 0, 1, 0, 1), hot = v;
    float logits[N] = {0};
    struct sampler a, b;
    struct error e;

    hot.temperature = 1.5f;
    ck_assert_int_eq(sampler_init(&a, N, &v, &e), 0);
    ck_assert_int_eq(sampler_init(&b, N, &v, &e), 0);
    for (int i = 0; i < 10; i++) {
        sampler_set(&b, i & 1 ? &v : &hot); /* flat logits: temperature changes nothing */
        ck_assert_int_eq(sampler_sample(&a, logits, NULL, 0, NULL),
                         sampler_sample(&b, logits, NULL, 0, NULL));
    }
    hot.seed = 1;
    sampler_set(&b, &hot);
    ck_assert(a.state != b.state);
    sampler_release(&a);
    sampler_release(&b);
}
END_TEST

START_TEST(hostile_logits)
{
    static const float rows[][4] = {
        {NAN, NAN, NAN, NAN},       {-INFINITY, -INFINITY, -INFINITY, -INFINITY},
        {INFINITY, 0, INFINITY, 1}, {-INFINITY, 1, NAN, -INFINITY},
        {3e38f, -3e38f, 3e38f, 0},  {-3e38f, -3e38f, -3e38f, -3e38f},
    };
    static const int allowed[] = {1, 1, 1, 2, 5, 15}; /* bits */
    static const float temperatures[] = {0, 1, 1e-6f, 1e6f};

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t t = 0; t < 4; t++)
            for (int seed = 0; seed < 20; seed++) {
                struct sampling v = values(temperatures[t], seed % 4, 0.9f, 0.05f, 1.1f);
                int recent[] = {0, 1, 2, 3}, id;
                struct sampler_draw p;

                v.seed = (uint64_t)seed;
                v.repeat_penalty = r < 4 ? 1.1f : 1.0f;
                id = pick(&v, rows[r], 4, recent, 4, &p);
                ck_assert(id >= 0 && id < 4 && p.probability >= 0 && p.probability <= 1 &&
                          p.candidates >= 1 && p.candidates <= 4);
                ck_assert_msg(allowed[r] >> id & 1, "row %zu gave %d", r, id);
            }
}
END_TEST

START_TEST(sampling_allocates_nothing)
{
    struct sampling v = values(1, 0, 0.99f, 0, 1.2f);
    float logits[N];
    int recent[] = {1, 2, 3};
    struct sampler s;
    struct error e;

    for (int i = 0; i < N; i++)
        logits[i] = noise();
    ck_assert_int_eq(sampler_init(&s, N, &v, &e), 0);
    mem_fail_after(0);
    mem_guard_arm("sampling");
    for (int i = 0; i < 100; i++)
        sampler_sample(&s, logits, recent, 3, &(struct sampler_draw){0});
    mem_guard_disarm();
    /* the failure is still waiting: nobody allocated */
    ck_assert_ptr_null(mem_alloc(1, 1));
    mem_fail_after(-1);
    sampler_release(&s);
    for (long k = 0; k < 2; k++) {
        mem_fail_after(k);
        ck_assert_int_eq(sampler_init(&s, N, &v, &e), ERR_MEMORY);
        mem_fail_after(-1);
    }
}
END_TEST

START_TEST(values_out_of_range_are_named)
{
    static const struct {
        struct sampling v;
        const char *says;
    } bad[] = {
        {CHAIN(-1, 0, 1, 0, 1, 0, 0), "temperature"},
        {CHAIN(NAN, 0, 1, 0, 1, 0, 0), "temperature"},
        {CHAIN(1, -1, 1, 0, 1, 0, 0), "top_k"},
        {CHAIN(1, 0, 1.5f, 0, 1, 0, 0), "top_p"},
        {CHAIN(1, 0, 1, -0.1f, 1, 0, 0), "min_p"},
        {CHAIN(1, 0, 1, 0, 0, 0, 0), "repeat_penalty"},
        {CHAIN(1, 0, 1, 0, 1, -2, 0), "repeat_last_n"},
    };
    struct sampling good = sampling_default();
    struct error e = {0};

    ck_assert_int_eq(sampling_check(&good, &e), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(sampling_check(&bad[i].v, &e), ERR_USAGE);
        ck_assert_ptr_nonnull(strstr(e.text, bad[i].says));
    }
}
END_TEST

/* ---- a vocabulary of usual size: the same tokens as by sorting all of it ---- */

#define LARGE 32000

struct sorted {
    float logit, p;
    uint64_t w;
    int id;
};

static int best_first(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;

    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : x->id - y->id;
}

static uint64_t weights(struct sorted *c, int n, float max, float temperature)
{
    uint64_t sum = 0;

    for (int i = 0; i < n; i++) {
        float d = (c[i].logit - max) / temperature;

        c[i].p = d >= -24.0f ? num_exp(d) : 0.0f;
        c[i].w = (uint64_t)((double)c[i].p * 0x1p42);
        sum += c[i].w;
    }
    return sum;
}

/* PCG32, as the sampler's. */
static uint32_t pcg(uint64_t *state)
{
    uint64_t old = *state;
    uint32_t x = (uint32_t)((old >> 18 ^ old) >> 27), turn = (uint32_t)(old >> 59);

    *state = old * 6364136223846793005u + (0xda3e39cb94b95bdbu | 1);
    return x >> turn | x << (-turn & 31);
}

static int by_sorting(const struct sampling *v, const float *logits, struct sorted *c,
                      uint32_t random)
{
    int n = LARGE, kept = 0;
    uint64_t sum, reached = 0, mark;
    float max;

    for (int i = 0; i < n; i++)
        c[i] = (struct sorted){logits[i], 0, 0, i};
    qsort(c, LARGE, sizeof *c, best_first);
    max = c[0].logit;
    n = v->top_k > 0 && v->top_k < n ? v->top_k : n;
    sum = weights(c, n, max, 1);
    while (kept < n && (kept == 0 || (double)reached < ceil((double)v->top_p * (double)sum)))
        reached += c[kept++].w;
    n = v->top_p < 1 ? kept : n;
    for (kept = 0; kept < n && c[kept].p >= v->min_p; kept++)
        ;
    n = kept;
    sum = weights(c, n, max, v->temperature);
    mark = (uint64_t)((unsigned __int128)sum * random >> 32);
    for (kept = 0; kept < n - 1 && mark >= c[kept].w; kept++)
        mark -= c[kept].w;
    return c[kept].id;
}

START_TEST(a_vocabulary_is_cut_as_if_sorted)
{
    static const struct sampling chains[] = {
        CHAIN(0.8f, 0, 0.95f, 0.05f, 1, 0, 9),
        CHAIN(0.8f, 0, 0.95f, 0, 1, 0, 9),
        CHAIN(2, 0, 0.999f, 0, 1, 0, 9),
        CHAIN(1, 0, 0.3f, 0, 1, 0, 9),
        CHAIN(0.8f, 40, 0.95f, 0.05f, 1, 0, 9),
        CHAIN(1.3f, 700, 0.9f, 0, 1, 0, 9),
        CHAIN(1, 0, 0, 0, 1, 0, 9),
    };
    const struct sampling *v = &chains[_i];
    float *logits = mem_alloc(LARGE, sizeof *logits);
    struct sorted *c = mem_alloc(LARGE, sizeof *c);
    uint64_t state = 0;
    struct sampler s;
    struct error e;

    ck_assert_int_eq(sampler_init(&s, LARGE, v, &e), 0);
    pcg(&state);
    state += v->seed;
    pcg(&state);
    lcg = 5;
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < LARGE; i++) {
            float x = (noise() + noise() + noise() - 1.5f) * (round % 3 == 0 ? 1.0f : 9.0f);

            /* many equal ones; nothing but equal ones */
            logits[i] = round % 4 == 3 ? floorf(x) : round == 4 ? 0.0f : x;
        }
        if (round == 5)
            for (int i = 0; i < LARGE; i += 3)
                logits[i] = -INFINITY;
        ck_assert_int_eq(sampler_sample(&s, logits, NULL, 0, NULL),
                         by_sorting(v, logits, c, pcg(&state)));
    }
    sampler_release(&s);
    mem_free(logits);
    mem_free(c);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sampler");
    TCase *c = tcase_create("sampler");

    tcase_add_test(c, greedy_takes_the_best_and_the_lowest_of_equals);
    tcase_add_test(c, the_model_s_own_probability_is_told);
    tcase_add_test(c, the_share_after_temperature_and_cuts_is_told);
    tcase_add_test(c, penalty_counts_each_recent_token_once);
    tcase_add_loop_test(c, chain_draws_what_it_should, 0, 9);
    tcase_add_test(c, same_seed_same_ids_for_ever);
    tcase_add_test(c, new_values_keep_the_generator);
    tcase_add_test(c, hostile_logits);
    tcase_add_test(c, sampling_allocates_nothing);
    tcase_add_test(c, values_out_of_range_are_named);
    tcase_add_loop_test(c, a_vocabulary_is_cut_as_if_sorted, 0, 7);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
