/* See routing.h. */
#include "engine/train/routing.h"

#include "engine/device/numerics.h"

#include <math.h>
#include <string.h>

void route_forward(const struct router_shape *r, const float *scores, int n, int k, int *experts,
                   float *weights)
{
    num_route(r, scores, NULL, n, k, experts, weights);
}

/* SparseMixer: weight i is a softmax at its expert over the scores near its maximum, without those
 * chosen before. */
static void back_sparsemixer(const struct router_shape *r, const float *scores, int n, int k,
                             const int *experts, const float *dweights, float *dscores)
{
    bool taken[NUM_EXPERTS] = {false};
    float p[NUM_EXPERTS];

    for (int slot = 0; slot < k; slot++) {
        int best = experts[slot];
        float most = scores[best], sum = 0.0f, at;

        for (int e = 0; e < n; e++) {
            float a = fabsf(scores[e]), f = a > most ? a : most;
            bool near = e == best || most - scores[e] <= 2.0f * r->jitter * f;

            p[e] = !taken[e] && near ? expf(scores[e] - most) : 0.0f;
            sum += p[e];
        }
        at = p[best] / sum;
        for (int e = 0; e < n; e++)
            dscores[e] += dweights[slot] * at * ((e == best ? 1.0f : 0.0f) - p[e] / sum);
        taken[best] = true;
    }
}

/* Softmax over all, the chosen ones' shares divided by their sum if normalised. */
static void back_softmax(const struct router_shape *r, const float *scores, int n, int k,
                         const int *experts, const float *dweights, float *dscores)
{
    float p[NUM_EXPERTS], dp[NUM_EXPERTS] = {0}, most = scores[0], sum = 0.0f, chosen = 0.0f,
          along = 0.0f, factor = r->factor != 0.0f ? r->factor : 1.0f;

    for (int e = 1; e < n; e++)
        most = scores[e] > most ? scores[e] : most;
    for (int e = 0; e < n; e++)
        sum += p[e] = expf(scores[e] - most);
    for (int e = 0; e < n; e++)
        p[e] /= sum;
    for (int i = 0; i < k; i++) {
        chosen += p[experts[i]];
        along += dweights[i] * p[experts[i]];
    }
    chosen += r->floor;
    for (int i = 0; i < k; i++)
        dp[experts[i]] = factor * (r->normalised ? dweights[i] / chosen - along / (chosen * chosen)
                                                 : dweights[i]);
    along = 0.0f;
    for (int i = 0; i < k; i++)
        along += dp[experts[i]] * p[experts[i]];
    for (int e = 0; e < n; e++)
        dscores[e] += p[e] * (dp[e] - along);
}

void route_backward(const struct router_shape *r, const float *scores, int n, int k,
                    const int *experts, const float *dweights, float *dscores)
{
    memset(dscores, 0, (size_t)n * sizeof *dscores);
    if (r->kind == ROUTER_SPARSEMIXER)
        back_sparsemixer(r, scores, n, k, experts, dweights, dscores);
    else
        back_softmax(r, scores, n, k, experts, dweights, dscores);
}
