/* How often the first choice of who says what comes next is right, by how sure it was: learnt as
 * its drafts are tried, what is newest counting most. Of drafters that have logits. Pure. */
#ifndef ENGINE_RUN_DRAFT_SURENESS_H
#define ENGINE_RUN_DRAFT_SURENESS_H

#include "engine/run/draft/drafter.h"

#define SURENESS_DEGREES 8

struct sureness {
    float tried[SURENESS_DEGREES], right[SURENESS_DEGREES];
    float all_tried, all_right;
    int degree[DRAFT_MOST], n; /* of the newest proposal */
};

/* Before anything was tried: right as often as it is sure. */
void sureness_init(struct sureness *s);
/* p[i]: how probable it is that the i-th of a proposal not made yet is right after those before. */
void sureness_expect(const struct sureness *s, int most, float *p);
/* A proposal begins. */
void sureness_begin(struct sureness *s);
/* Its next token: the best of n logits; *p: how probable it is that it is right. */
int sureness_choose(struct sureness *s, const float *logits, int n, float *p);
/* Of the newest proposal the first `tried` were verified, `taken` of them were right. */
void sureness_learn(struct sureness *s, int tried, int taken);
#endif
