/* The tokens that may still be drawn, and what the samplers leave of them: top-k, top-p, min-p,
 * typical, XTC, top-n-sigma, temperature, the draw. Owner: the sampler; one thread. Nothing is
 * allocated. Reproducible to the bit on every machine: num_exp, sums in a fixed order, ties by the
 * lower id. What each leaves is what llama.cpp's sampler of that name leaves (src/llama-sampler.cpp
 * there): typical sampling of Meister et al. 2022, XTC of p-e-w (oobabooga's #6335), top-n-sigma of
 * Tang et al. 2024. */
#ifndef ENGINE_RUN_CANDIDATES_H
#define ENGINE_RUN_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

struct sampler_candidate {
    float logit, p;
    int id;
};

struct candidates {
    struct sampler_candidate *c, *spare; /* room for the vocabulary each; the sampler's */
    float *aside;                        /* likewise, by id; scratch */
    int n;
    float max;    /* the best logit */
    bool by_id;   /* they stand in the order of ids; else in any */
    bool weighed; /* p is the weight at temperature 1: exp(logit - max) */
    float share;  /* of the one that candidates_draw took, among those it drew from: 0 .. 1 */
};

/* The k best of n_vocab logits, best first; k 0 or too many: all by id. A NaN counts as -inf. */
void candidates_gather(struct candidates *all, const float *logits, int n_vocab, int k);
/* After that: finds the best. false: nothing that could be weighed (-inf alone, or +inf). */
bool candidates_comparable(struct candidates *all);
/* After logits were changed from outside. */
void candidates_changed(struct candidates *all);

void candidates_top_k(struct candidates *all, int k);
/* the fewest best ones that reach p of the weights */
void candidates_top_p(struct candidates *all, float p);
/* at least min_p of the best one's weight */
void candidates_min_p(struct candidates *all, float min_p);
/* those whose information is nearest to the entropy, until they hold more than p */
void candidates_typical(struct candidates *all, float p);
/* of those with a probability from threshold on all but the least likely go */
void candidates_xtc(struct candidates *all, float threshold);
/* not below the best logit less so many standard deviations of the finite logits */
void candidates_top_n_sigma(struct candidates *all, float n_sigma);
void candidates_heat(struct candidates *all, float temperature); /* more than 0 */
void candidates_keep_best(struct candidates *all);
/* One of them by weight at this temperature; all->n is lost. Its id. */
int candidates_draw(struct candidates *all, float temperature, uint32_t random);

/* The softmax at temperature 1 of all whose bit is not set. */
float logits_outside(const float *logits, int n, const uint32_t *mask);
/* The softmax of one logit among all n of them at temperature 1. */
float logits_probability(const float *logits, int n, int id);

#endif
