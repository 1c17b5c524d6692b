/* See sureness.h. */
#include "engine/run/draft/sureness.h"

#include <assert.h>
#include <math.h>

#define PRIOR 2.0f    /* as if so many of each had been tried */
#define FADE 0.97f    /* weight of an older draft relative to the next newer one */
#define EXPECTED 0.7f /* prior share of right drafts */

void sureness_init(struct sureness *s)
{
    for (int i = 0; i < SURENESS_DEGREES; i++) {
        s->tried[i] = PRIOR;
        s->right[i] = PRIOR * ((float)i + 0.5f) / SURENESS_DEGREES;
    }
    s->all_tried = PRIOR;
    s->all_right = PRIOR * EXPECTED;
    s->n = 0;
}

void sureness_expect(const struct sureness *s, int most, float *p)
{
    for (int i = 0; i < most; i++)
        p[i] = s->all_right / s->all_tried;
}

void sureness_begin(struct sureness *s)
{
    s->n = 0;
}

static int best_of(const float *logits, int n, float *sure)
{
    double sum = 0;
    int best = 0;

    for (int i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    for (int i = 0; i < n; i++)
        sum += logits[i] - logits[best] > -20 ? (double)expf(logits[i] - logits[best]) : 0;
    *sure = (float)(1 / sum);
    return best;
}

int sureness_choose(struct sureness *s, const float *logits, int n, float *p)
{
    float sure;
    int id = best_of(logits, n, &sure),
        degree = sure < 1.0f ? (int)(sure * SURENESS_DEGREES) : SURENESS_DEGREES - 1;

    assert(s->n < DRAFT_MOST);
    s->degree[s->n++] = degree;
    *p = s->right[degree] / s->tried[degree];
    return id;
}

void sureness_learn(struct sureness *s, int tried, int taken)
{
    assert(taken <= tried && tried <= s->n);
    for (int i = 0; i < tried && i <= taken; i++) {
        int k = s->degree[i];

        s->tried[k] = s->tried[k] * FADE + 1;
        s->right[k] = s->right[k] * FADE + (i < taken ? 1.0f : 0.0f);
        s->all_tried = s->all_tried * FADE + 1;
        s->all_right = s->all_right * FADE + (i < taken ? 1.0f : 0.0f);
    }
}
