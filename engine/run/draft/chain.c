/* See chain.h. */
#include "engine/run/draft/chain.h"

int chain_propose(const struct chain *c, int most, float least, int *out, float *p)
{
    float all = 1;
    int made = 0;

    sureness_begin(c->sureness);
    while (made < most && all > least && c->next(c->ctx, made, made ? out[made - 1] : -1)) {
        out[made] = sureness_choose(c->sureness, c->logits, c->n_vocab, &p[made]);
        all *= p[made++];
    }
    return made;
}
