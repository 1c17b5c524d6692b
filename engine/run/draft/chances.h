/* How often a drafted token is right, by the length of the match it was copied from: learnt as
 * drafts are verified, newest results weighing most. */
#ifndef ENGINE_RUN_DRAFT_CHANCES_H
#define ENGINE_RUN_DRAFT_CHANCES_H

#define CHANCES_LONGEST 24 /* match length in tokens; a longer match is no more reliable */

struct chances {
    struct {
        float tried, right;
    } seen[CHANCES_LONGEST + 1];
    int length, n; /* of the newest proposal: tokens alike before it, tokens */
};

/* Prior: the longer the match the likelier. */
void chances_init(struct chances *c);
/* Proposes n tokens behind `length` alike: p, each with all before it being right. Returns n. */
int chances_tell(struct chances *c, int length, int n, float *p);
/* Of the newest proposal the first `tried` were verified, `taken` of them were right. */
void chances_learn(struct chances *c, int tried, int taken);

#endif
