/* See log_probs.h. */
#include "app/quality/log_probs.h"

#include "engine/base/divergence.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define DEPTH 16.0f /* below the best logit, in packed rows */
#define STEPS 65535.0f

double log_probs_surprise(const float *logits, int n, int id)
{
    float max = logits[divergence_best(logits, n)];

    assert(id >= 0 && id < n);
    return divergence_log_sum(logits, n, max) + ((double)max - (double)logits[id]);
}

size_t log_probs_packed_bytes(int n)
{
    return 2 * sizeof(float) + ((size_t)n + 1) / 2 * 2 * sizeof(uint16_t);
}

void log_probs_pack(const float *logits, int n, void *packed)
{
    float max = logits[divergence_best(logits, n)], min = max, head[2];
    uint8_t *to = (uint8_t *)packed + sizeof head;

    for (int i = 0; i < n; i++)
        min = logits[i] < min ? logits[i] : min;
    min = min < max - DEPTH ? max - DEPTH : min;
    head[0] = (max - min) / STEPS;
    head[1] = (float)((double)min - (double)max - divergence_log_sum(logits, n, max));
    memset(packed, 0, log_probs_packed_bytes(n));
    memcpy(packed, head, sizeof head);
    for (int i = 0; i < n && head[0] > 0.0f; i++) {
        float steps = rintf((logits[i] - min) / head[0]);
        uint16_t v = steps <= 0.0f ? 0 : steps >= STEPS ? 65535 : (uint16_t)steps;

        memcpy(to + 2 * (size_t)i, &v, sizeof v);
    }
}

/* Log-probability of token i in a packed row. */
static float packed_at(const float head[2], const uint8_t *codes, int i)
{
    uint16_t v;

    memcpy(&v, codes + 2 * (size_t)i, sizeof v);
    return head[0] * (float)v + head[1];
}

/* here, there: -ln p of the token that followed. */
static void sums_add(struct divergence_sums *s, bool same_top, double here, double there, double kl,
                     float *kl_out, float *diff_out)
{
    double d = exp(-here) - exp(-there);

    s->count++;
    s->same_top += same_top;
    s->nll += here;
    s->nll2 += here * here;
    s->base += there;
    s->base2 += there * there;
    s->both += here * there;
    s->kl += kl;
    s->kl2 += kl * kl;
    s->diff += d;
    s->diff2 += d * d;
    s->diff4 += d * d * d * d;
    *kl_out = (float)kl;
    *diff_out = (float)d;
}

void divergence_add(struct divergence_sums *s, const float *logits, const void *packed, int n,
                    int id, float *kl, float *diff)
{
    int best = divergence_best(logits, n), base_best = 0;
    double sum = 0.0, all = (double)logits[best] + divergence_log_sum(logits, n, logits[best]);
    const uint8_t *codes = (const uint8_t *)packed + 2 * sizeof(float);
    float head[2], most;

    memcpy(head, packed, sizeof head);
    most = packed_at(head, codes, 0);
    for (int i = 0; i < n; i++) {
        float p = packed_at(head, codes, i);

        if (p > most) {
            most = p;
            base_best = i;
        }
        if (p > -DEPTH)
            sum += exp((double)p) * ((double)p - (double)logits[i] + all);
    }
    sums_add(s, best == base_best, all - (double)logits[id], -(double)packed_at(head, codes, id),
             sum, kl, diff);
}

void divergence_add_logits(struct divergence_sums *s, const float *logits, const float *base, int n,
                           int id, float *kl, float *diff)
{
    int best = divergence_best(logits, n), base_best = divergence_best(base, n);
    double all = (double)logits[best] + divergence_log_sum(logits, n, logits[best]),
           base_all = (double)base[base_best] + divergence_log_sum(base, n, base[base_best]),
           sum = 0.0;

    for (int i = 0; i < n; i++) {
        double p = (double)base[i] - base_all;

        sum += exp(p) * (p - (double)logits[i] + all);
    }
    sums_add(s, best == base_best, all - (double)logits[id], base_all - (double)base[id], sum, kl,
             diff);
}

struct estimate estimate_mean(double sum, double squares, size_t count)
{
    double mean = count ? sum / (double)count : 0.0,
           variance = count ? squares / (double)count - mean * mean : 0.0;

    return (struct estimate){
        mean, count > 1 && variance > 0.0 ? sqrt(variance / (double)(count - 1)) : 0.0};
}

struct estimate estimate_exp(struct estimate logarithm)
{
    double value = exp(logarithm.value);

    return (struct estimate){value, value * logarithm.error};
}

static double covariance(const struct divergence_sums *s)
{
    double n = (double)s->count;

    return s->count > 1 ? (s->both / n - s->nll / n * (s->base / n)) / (n - 1.0) : 0.0;
}

struct estimate divergence_log_ratio(const struct divergence_sums *s)
{
    struct estimate here = estimate_mean(s->nll, s->nll2, s->count),
                    there = estimate_mean(s->base, s->base2, s->count);
    double variance = here.error * here.error + there.error * there.error - 2.0 * covariance(s);

    return (struct estimate){here.value - there.value, variance > 0.0 ? sqrt(variance) : 0.0};
}

struct estimate divergence_same_top(const struct divergence_sums *s)
{
    double p = (double)s->same_top / (double)s->count;

    return (struct estimate){p,
                             s->count > 1 ? sqrt(p * (1.0 - p) / ((double)s->count - 1.0)) : 0.0};
}

double divergence_correlation(const struct divergence_sums *s)
{
    double errors = estimate_mean(s->nll, s->nll2, s->count).error *
                    estimate_mean(s->base, s->base2, s->count).error;

    return errors > 0.0 ? covariance(s) / errors : 1.0;
}

float percentile(const float *sorted, size_t n, double part)
{
    double at = part * (double)(n - 1);
    size_t below = (size_t)at;

    return below + 1 < n ? (float)((1.0 - (at - (double)below)) * (double)sorted[below] +
                                   (at - (double)below) * (double)sorted[below + 1])
                         : sorted[n - 1];
}
