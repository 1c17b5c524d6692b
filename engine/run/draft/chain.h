/* Drafts token after token: the loop of drafters that have logits for each token. Engine thread;
 * allocates nothing. */
#ifndef ENGINE_RUN_DRAFT_CHAIN_H
#define ENGINE_RUN_DRAFT_CHAIN_H

#include "engine/run/draft/sureness.h"

struct chain {
    struct sureness *sureness;
    const float *logits; /* n_vocab, of the next token to draft */
    int n_vocab;
    /* Computes them after `made` drafted tokens, the last one `id` (made 0: none). false: stop. */
    bool (*next)(void *ctx, int made, int id);
    void *ctx;
};

/* Drafts at most `most` (DRAFT_MOST) tokens, each the likeliest, until the probability that all are
 * right is `least` or less; see drafter_ops.propose. */
int chain_propose(const struct chain *c, int most, float least, int *out, float *p);

#endif
