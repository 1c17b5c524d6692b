/* See logprobs.h. The sum is taken in lanes, a block at a time, in double: no order of machine
 * instructions changes it, and small terms are not lost beside large ones. */
#include "engine/run/logprobs.h"

#include "engine/device/numerics.h"

#include <math.h>

#define BLOCK 64

/* NaN never wins. */
static float greatest(const float *x, int n)
{
    float max = -INFINITY;

    for (int i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

static inline __attribute__((always_inline)) void add_exps(double *lanes, const float *x, float max)
{
    float d[BLOCK];

    for (int i = 0; i < BLOCK; i++)
        d[i] = num_exp(x[i] == x[i] ? x[i] - max : -INFINITY);
    for (int n = BLOCK / 2; n >= NUM_LANES; n /= 2)
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

/* log(sum of exp(x)); max: the greatest of them, finite. */
static double log_sum_exp(const float *x, int n, float max)
{
    void (*add)(double *lanes, const float *x, float max) = add_exps_plain;
    double lanes[NUM_LANES] = {0}, sum = 0.0;
    float rest[BLOCK];
    int whole = n / BLOCK * BLOCK;

#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        add = add_exps_avx2;
#endif
    for (int i = 0; i < whole; i += BLOCK)
        add(lanes, x + i, max);
    for (int i = 0; i < BLOCK; i++)
        rest[i] = whole + i < n ? x[whole + i] : -INFINITY;
    add(lanes, rest, max);
    for (int i = 0; i < NUM_LANES; i++)
        sum += lanes[i];
    return (double)max + log(sum);
}

/* The likeliest, best first: of equal ones the lower id, which comes first. */
static void find_best(const float *logits, int n_vocab, int most, struct logprobs_event *out)
{
    for (int i = 0; i < n_vocab; i++) {
        float logit = logits[i];
        int at = out->n;

        if (logit != logit || (out->n == most && !(logit > out->logprobs[most - 1])))
            continue;
        if (at == most)
            at--;
        else
            out->n++;
        for (; at > 0 && logit > out->logprobs[at - 1]; at--) {
            out->logprobs[at] = out->logprobs[at - 1];
            out->ids[at] = out->ids[at - 1];
        }
        out->logprobs[at] = logit;
        out->ids[at] = i;
    }
}

void logprobs_of(const float *logits, int n_vocab, int id, int most, struct logprobs_event *out)
{
    float max = greatest(logits, n_vocab);
    bool comparable = max > -INFINITY && max < INFINITY;
    double sum = comparable ? log_sum_exp(logits, n_vocab, max) : 0.0;

    *out = (struct logprobs_event){.id = id};
    most = most < LOGPROBS_MOST ? most : LOGPROBS_MOST;
    if (most > 0)
        find_best(logits, n_vocab, most, out);
    for (int i = 0; i < out->n; i++)
        out->logprobs[i] = (float)((double)out->logprobs[i] - sum);
    out->logprob = logits[id] == logits[id] ? (float)((double)logits[id] - sum) : -INFINITY;
}
