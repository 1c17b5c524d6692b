/* See logprobs.h. */
#include "engine/run/report/logprobs.h"

#include "engine/run/sampling/logits_sum.h"

#include <math.h>

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
    float max = logits_greatest(logits, n_vocab);
    bool comparable = max > -INFINITY && max < INFINITY;
    double sum = comparable ? (double)max + log(logits_exp_sum(logits, n_vocab, max)) : 0.0;

    *out = (struct logprobs_event){.id = id};
    most = most < LOGPROBS_MOST ? most : LOGPROBS_MOST;
    if (most > 0)
        find_best(logits, n_vocab, most, out);
    for (int i = 0; i < out->n; i++)
        out->logprobs[i] = (float)((double)out->logprobs[i] - sum);
    out->logprob = logits[id] == logits[id] ? (float)((double)logits[id] - sum) : -INFINITY;
}
