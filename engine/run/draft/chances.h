/* How often a drafted token is right, by the length of the match it was copied from: learnt as
 * drafts are verified, newest results weighing most. */
#ifndef ENGINE_RUN_DRAFT_CHANCES_H
#define ENGINE_RUN_DRAFT_CHANCES_H

#define CHANCES_LONGEST 24 /* match length in tokens; a longer match is no more reliable */

struct chances {
    struct {
        float tried, right;
    } seen[CHANCES_LONGEST + 1];
};

/* Prior: the longer the match the likelier. */
void chances_init(struct chances *c);
/* For the first n tokens after a match of `length`: p[i], each with all before it being right. */
void chances_tell(const struct chances *c, int length, int n, float *p);
/* `tried` of them were verified, `taken` were right. */
void chances_learn(struct chances *c, int length, int tried, int taken);

#endif
