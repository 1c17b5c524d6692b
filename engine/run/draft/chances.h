/* How often a drafted token is right, by how many tokens before it are alike where it was copied
 * from: learnt as drafts are tried, what is newest counting most. */
#ifndef ENGINE_RUN_DRAFT_CHANCES_H
#define ENGINE_RUN_DRAFT_CHANCES_H

#define CHANCES_LONGEST 24 /* tokens alike; beyond that longer is not surer */

struct chances {
    struct {
        float tried, right;
    } seen[CHANCES_LONGEST + 1];
    int length, n; /* of the newest proposal: tokens alike before it, tokens */
};

/* Before anything was tried: the more is alike the likelier. */
void chances_init(struct chances *c);
/* Proposes n tokens behind `length` alike: p, each with all before it being right. Returns n. */
int chances_tell(struct chances *c, int length, int n, float *p);
/* Of the newest proposal the first `tried` were verified, `taken` of them were right. */
void chances_learn(struct chances *c, int tried, int taken);

#endif
