/* Log-probabilities of one row of logits, as numbers and packed as in llama-perplexity's file of
 * base logits; and statistics of comparing two such rows. Pure functions; any thread. */
#ifndef APP_QUALITY_LOG_PROBS_H
#define APP_QUALITY_LOG_PROBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -ln of the probability of token `id`; n logits. */
double log_probs_surprise(const float *logits, int n, int id);

/* A packed row (tools/perplexity/perplexity.cpp of llama.cpp): two F32, the step and the smallest
 * log-probability, then n 16-bit multiples of the step above it, padded to an even number. Values
 * more than 16 below the best logit are clipped to that. */
size_t log_probs_packed_bytes(int n);
void log_probs_pack(const float *logits, int n, void *packed);

/* Statistics of this setting (here) against the one that wrote the packed rows (there). Sums;
 * zeroed at first. */
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
/* ln of the ratio of perplexity here to perplexity there, from paired samples. */
struct estimate divergence_log_ratio(const struct divergence_sums *s);
/* Share of positions with the same most probable token. */
struct estimate divergence_same_top(const struct divergence_sums *s);
/* Correlation of both -ln p, -1 .. 1. */
double divergence_correlation(const struct divergence_sums *s);
/* Quantile of values in ascending order; part 0 .. 1, linearly interpolated */
float percentile(const float *sorted, size_t n, double part);

#endif
