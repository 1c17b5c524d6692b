/* Sampler chain: logit bias, then by default in llama.cpp's order penalties, DRY, top-n-sigma,
 * top-k, typical, top-p, min-p, XTC, temperature, and the draw. Owner: the session that samples;
 * one thread. Everything is allocated by sampler_init and sampler_prepare; sampler_sample allocates
 * nothing. Reproducible to the bit on every machine: own generator (PCG32), num_exp, sums in a
 * fixed order, ties by the lower id. temperature 0 is greedy: the highest logit left by the other
 * samplers; then only XTC uses a random number. */
#ifndef ENGINE_RUN_SAMPLER_H
#define ENGINE_RUN_SAMPLER_H

#include "engine/base/error.h"
#include "engine/run/sampling/candidates.h"
#include "engine/run/sampling/penalties.h"
#include "engine/run/sampling/sampling.h"

#include <stddef.h>
#include <stdint.h>

struct sampler {
    struct sampling sampling;  /* as last set */
    uint64_t state, increment; /* PCG32 */
    int n_vocab;
    struct candidates candidates;
    struct penalties penalties;
    const uint32_t *mask; /* of the next token; see sampler_mask */
    float *adjusted;      /* (n_vocab) logits with bias and penalties, where there are any */
};

int sampler_init(struct sampler *s, int n_vocab, const struct sampling *values, struct error *e);
void sampler_release(struct sampler *s);
size_t sampler_footprint(int n_vocab);
/* New values from the next token on; the generator is reseeded only if the seed differs from the
 * one last set. */
void sampler_set(struct sampler *s, const struct sampling *values);
/* Call after sampler_set, before a turn: allocates what DRY needs, if enabled, for a history of at
 * most `context` tokens. ERR_USAGE: a bias for an invalid token. ERR_MEMORY. */
int sampler_prepare(struct sampler *s, const struct tokenizer *t, int context, struct error *e);
/* Reseeds the generator: at the start of every turn, so that the same turn with the same seed gives
 * the same text. */
void sampler_seed(struct sampler *s, uint64_t seed);

/* Restricts the next token: one bit each, in words of 32; NULL: any. Valid for one token. At least
 * one bit is set; no other token is returned, whatever the logits are. */
void sampler_mask(struct sampler *s, const uint32_t *mask);

/* Figures about a sampled token. */
struct sampler_draw {
    /* the model's own: softmax of the logits at temperature 1 over all tokens, independent of the
     * chain */
    float probability;
    /* in the draw: after temperature and cuts, among the candidates; greedy: 1 */
    float share;
    int candidates;  /* left by the chain; greedy: 1 */
    float forbidden; /* the model's own probability of all tokens excluded by the mask; else 0 */
};

/* Samples a token from logits (n_vocab floats, not changed). recent: the tokens so far, newest
 * last; repeat_last_n of them count. out may be NULL. A NaN never wins and counts as -inf; with
 * nothing finite left, id 0 (probability 1). */
int sampler_sample(struct sampler *s, const float *logits, const int *recent, size_t n_recent,
                   struct sampler_draw *out);

#endif
