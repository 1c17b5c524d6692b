/* The candidate tokens, and the samplers that filter them: top-k, top-p, min-p, typical, XTC,
 * top-n-sigma, temperature, the draw. Owner: the sampler; one thread. Nothing is allocated.
 * Reproducible to the bit on every machine: num_exp, sums in a fixed order, ties by the lower id.
 * Each keeps what llama.cpp's sampler of that name keeps (src/llama-sampler.cpp there): typical
 * sampling of Meister et al. 2022, XTC of p-e-w (oobabooga's #6335), top-n-sigma of Tang et al.
 * 2024. */
#ifndef ENGINE_RUN_CANDIDATES_H
#define ENGINE_RUN_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

struct sampler_candidate {
    float logit, p;
    int id;
};

struct candidates {
    struct sampler_candidate *c, *spare; /* capacity n_vocab each; owned by the sampler */
    float *aside;                        /* likewise, by id; scratch */
    int n;
    float max;    /* the largest logit */
    bool by_id;   /* sorted by id; else unordered */
    bool weighed; /* p is set to the weight at temperature 1: exp(logit - max) */
    float share;  /* probability of the drawn token among the candidates: 0 .. 1 */
};

/* The k best of n_vocab logits, best first; k 0 or too large: all by id. A NaN counts as -inf. */
void candidates_gather(struct candidates *all, const float *logits, int n_vocab, int k);
/* After that: finds the maximum. false: no usable logit (only -inf, or +inf). */
bool candidates_comparable(struct candidates *all);
/* Call after logits were changed by the caller. */
void candidates_changed(struct candidates *all);

void candidates_top_k(struct candidates *all, int k);
/* keeps the fewest best ones whose weights sum to p */
void candidates_top_p(struct candidates *all, float p);
/* keeps those with at least min_p of the best one's weight */
void candidates_min_p(struct candidates *all, float min_p);
/* keeps those whose information is nearest to the entropy, until their sum exceeds p */
void candidates_typical(struct candidates *all, float p);
/* removes all but the least likely of those with a probability of at least threshold */
void candidates_xtc(struct candidates *all, float threshold);
/* keeps those not below the best logit less n_sigma standard deviations of the finite logits */
void candidates_top_n_sigma(struct candidates *all, float n_sigma);
void candidates_heat(struct candidates *all, float temperature); /* more than 0 */
void candidates_keep_best(struct candidates *all);
/* Draws one by weight at this temperature; returns its id. all->n is destroyed. */
int candidates_draw(struct candidates *all, float temperature, uint32_t random);

/* Sum of the softmax at temperature 1 over all whose bit is not set. */
float logits_outside(const float *logits, int n, const uint32_t *mask);
/* The softmax of one logit among all n of them at temperature 1. */
float logits_probability(const float *logits, int n, int id);

#endif
