/* Sampler chain, in the order of llama.cpp's default: repetition penalty, top-k, top-p, min-p,
 * temperature, draw. Owner: the session that samples; one thread. Everything is allocated by
 * sampler_init; sampler_sample allocates nothing. Reproducible to the bit on every machine: own
 * generator (PCG32), num_exp, sums in a fixed order, ties by the lower id. temperature 0 is greedy:
 * the highest logit after the repetition penalty, no random number used. */
#ifndef ENGINE_RUN_SAMPLER_H
#define ENGINE_RUN_SAMPLER_H

#include "engine/base/error.h"
#include "engine/run/messages.h"

#include <stddef.h>
#include <stdint.h>

struct sampler_candidate {
    float logit, p;
    int id;
};

struct sampler {
    struct sampling sampling;  /* as last set */
    uint64_t state, increment; /* PCG32 */
    int n_vocab;
    struct sampler_candidate *candidates, *bucket; /* n_vocab each, scratch */
    uint32_t *seen;                                /* n_vocab marks, valid when equal to `round` */
    uint32_t round;
};

/* What the program uses where nothing else is said: llama.cpp's defaults (0.8, 40, 0.95, 0.05, 1.0,
 * 64), seed 0. */
struct sampling sampling_default(void);
/* ERR_USAGE naming the value and its range. */
int sampling_check(const struct sampling *s, struct error *e);

int sampler_init(struct sampler *s, int n_vocab, const struct sampling *values, struct error *e);
void sampler_release(struct sampler *s);
/* New values from the next token on; the generator runs on unless the seed differs from the one
 * last set. */
void sampler_set(struct sampler *s, const struct sampling *values);
/* The generator as if new: the start of every turn, so that the same turn with the same seed gives
 * the same text. */
void sampler_seed(struct sampler *s, uint64_t seed);

/* What is worth telling about a token that was taken. */
struct sampler_draw {
    /* the model's own: softmax of the logits at temperature 1 over all tokens, whatever the chain
     * does */
    float probability;
    int candidates; /* that the chain left to draw from; greedy: 1 */
};

/* One token of logits (n_vocab floats, not changed). recent: the tokens so far, newest last;
 * repeat_last_n of them count. out may be NULL. A NaN never wins and counts as -inf; with nothing
 * finite left, id 0 (probability 1). */
int sampler_sample(struct sampler *s, const float *logits, const int *recent, size_t n_recent,
                   struct sampler_draw *out);

#endif
