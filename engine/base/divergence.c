/* See divergence.h. */
#include "engine/base/divergence.h"

#include <assert.h>
#include <math.h>

int divergence_best(const float *logits, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

double divergence_log_sum(const float *logits, int n, float max)
{
    double sum = 0.0;

    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)max);
    return log(sum);
}

double divergence_kl(const float *exact, const float *other, int n, bool *changed)
{
    int best = divergence_best(exact, n), best_other = divergence_best(other, n);
    double a = (double)exact[best] + divergence_log_sum(exact, n, exact[best]),
           b = (double)other[best_other] + divergence_log_sum(other, n, other[best_other]),
           kl = 0.0;

    assert(n > 0);
    for (int i = 0; i < n; i++) {
        double p = (double)exact[i] - a;

        kl += exp(p) * (p - ((double)other[i] - b));
    }
    *changed = best != best_other;
    return kl > 0.0 ? kl : 0.0; /* rounding */
}
