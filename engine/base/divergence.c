/* See divergence.h. */
#include "engine/base/divergence.h"

#include <assert.h>
#include <math.h>

static double log_sum(const float *logits, int n, int *best)
{
    double sum = 0.0;

    *best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[*best])
            *best = i;
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)logits[*best]);
    return (double)logits[*best] + log(sum);
}

double divergence_kl(const float *exact, const float *other, int n, bool *changed)
{
    int best, best_other;
    double a = log_sum(exact, n, &best), b = log_sum(other, n, &best_other), kl = 0.0;

    assert(n > 0);
    for (int i = 0; i < n; i++) {
        double p = (double)exact[i] - a;

        kl += exp(p) * (p - ((double)other[i] - b));
    }
    *changed = best != best_other;
    return kl > 0.0 ? kl : 0.0; /* rounding */
}
