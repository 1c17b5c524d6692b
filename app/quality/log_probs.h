/* Log-probabilities of one row of logits, in numbers and as llama-perplexity's file of base logits
 * holds them; and what comparing two such rows tells. Pure functions; any thread. */
#ifndef APP_QUALITY_LOG_PROBS_H
#define APP_QUALITY_LOG_PROBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -ln of the probability of token `id`; n logits. */
double log_probs_surprise(const float *logits, int n, int id);

/* A packed row (tools/perplexity/perplexity.cpp of llama.cpp): two F32, the step and the smallest
 * log-probability, then n 16-bit numbers of steps above it, padded to an even number. What is more
 * than 16 below the best logit counts as that much below. */
size_t log_probs_packed_bytes(int n);
void log_probs_pack(const float *logits, int n, void *packed);

/* What tokens tell of another setting than that which wrote the packed rows. Sums; zero to begin.
 */
struct divergence_sums {
    size_t count, same_top;
    double nll, nll2, base, base2, both; /* of -ln p: here, there, products */
    double kl, kl2, diff, diff2, diff4;  /* of the divergence; of p here - p there */
};

/* Adds a row: n logits here, the packed row of there, the token that followed. *kl: divergence of
 * this distribution from the base's, nats; *diff: p here - p there of that token. */
void divergence_add(struct divergence_sums *s, const float *logits, const void *packed, int n,
                    int id, float *kl, float *diff);

/* The same from the base's own logits, to full precision. */
void divergence_add_logits(struct divergence_sums *s, const float *logits, const float *base, int n,
                           int id, float *kl, float *diff);

struct estimate {
    double value, error; /* mean and its standard error */
};
struct estimate estimate_mean(double sum, double squares, size_t count);
/* exp of a mean of logarithms. */
struct estimate estimate_exp(struct estimate logarithm);
/* ln of perplexity here over perplexity there, whose samples go together. */
struct estimate divergence_log_ratio(const struct divergence_sums *s);
/* How often the most probable token is the same. */
struct estimate divergence_same_top(const struct divergence_sums *s);
/* How alike both -ln p move, -1 .. 1. */
double divergence_correlation(const struct divergence_sums *s);
/* values in ascending order; part 0 .. 1, between neighbours in proportion */
float percentile(const float *sorted, size_t n, double part);

#endif
