/* Drafting token after token: the loop of whoever has logits for each of them. Engine thread;
 * allocates nothing. */
#ifndef ENGINE_RUN_DRAFT_CHAIN_H
#define ENGINE_RUN_DRAFT_CHAIN_H

#include "engine/run/draft/sureness.h"

struct chain {
    struct sureness *sureness;
    const float *logits; /* n_vocab, of the token to be drafted next */
    int n_vocab;
    /* Makes them, `made` tokens having been drafted, the last one `id` (made 0: none). false: it
     * cannot go on. */
    bool (*next)(void *ctx, int made, int id);
    void *ctx;
};

/* At most `most` (DRAFT_MOST) tokens, each the likeliest, until all are right with a probability of
 * `least` or less; see drafter_ops.propose. */
int chain_propose(const struct chain *c, int most, float least, int *out, float *p);

#endif
