/* How often a drafter's first choice is right, by its probability: learnt as its drafts are
 * verified, newest results weighing most. For drafters that have logits. Pure. */
#ifndef ENGINE_RUN_DRAFT_SURENESS_H
#define ENGINE_RUN_DRAFT_SURENESS_H

#include "engine/run/draft/drafter.h"

#define SURENESS_DEGREES 8

struct sureness {
    float tried[SURENESS_DEGREES], right[SURENESS_DEGREES];
    float all_tried, all_right;
    int degree[DRAFT_MOST], n; /* of the newest proposal */
};

/* Prior: right as often as its probability says. */
void sureness_init(struct sureness *s);
/* p[i]: probability that the i-th token of a future proposal is right after those before. */
void sureness_expect(const struct sureness *s, int most, float *p);
/* Starts a proposal. */
void sureness_begin(struct sureness *s);
/* Adds its next token: the best of n logits; *p: probability that it is right. */
int sureness_choose(struct sureness *s, const float *logits, int n, float *p);
/* The first `tried` tokens of the newest proposal were verified, `taken` of them were right. */
void sureness_learn(struct sureness *s, int tried, int taken);
#endif
