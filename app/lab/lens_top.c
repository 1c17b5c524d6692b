/* See lens_top.h. */
#include "app/lab/lens_top.h"

int lens_rank(const float *logits, int n, int id)
{
    int rank = 0;

    for (int i = 0; i < n; i++)
        rank += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
    return rank;
}

void lens_top(const float *logits, int n, int *ids, float *values)
{
    int have = 0;

    for (int i = 0; i < n; i++) {
        int at = have;

        while (at > 0 && logits[i] > values[at - 1])
            at--;
        if (at == LENS_TOP)
            continue;
        have += have < LENS_TOP;
        for (int k = have - 1; k > at; k--) {
            ids[k] = ids[k - 1];
            values[k] = values[k - 1];
        }
        ids[at] = i;
        values[at] = logits[i];
    }
    for (; have < LENS_TOP; have++) {
        ids[have] = -1;
        values[have] = 0;
    }
}
