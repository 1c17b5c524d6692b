/* Samples and their statistics: the figures behind every "mean ± sd" and every "difference inside
 * the noise" of the program. Owner: the caller. One thread at a time. */
#ifndef ENGINE_BASE_SERIES_H
#define ENGINE_BASE_SERIES_H

#include <stdbool.h>
#include <stddef.h>

struct series {
    double *values;
    size_t n, room;
};

struct series_figures {
    size_t n;
    double min, max, mean, median, p95, sd; /* sd: of the sample (n - 1); all 0 when n is 0 */
};

void series_init(struct series *s);
void series_release(struct series *s);
void series_clear(struct series *s);
/* 0, or -1: no memory, the sample is not kept */
int series_add(struct series *s, double value);
/* Leaves s unsorted; n 0 gives zeros. -1: no memory (out is zeroed). */
int series_summarise(const struct series *s, struct series_figures *out);
/* The same for an array of the caller's, which is sorted on return. Allocates nothing. */
void series_summarise_sorted(double *values, size_t n, struct series_figures *out);
/* Compares two doubles, for qsort: ascending. */
int series_compare(const void *a, const void *b);
/* Percentile 0..100 of sorted values, linear between neighbours. */
double series_percentile(const double *sorted, size_t n, double percent);
/* Every "beyond the noise" of the program is one of these two; of two equal distributions each
 * reports a difference at most this often. */
#define SERIES_LEVEL 0.02
/* Sets measured separately: their means by Welch's t, or their order, when every sample of one is
 * above every sample of the other and chance would do that in less than SERIES_LEVEL. Fewer than
 * two samples on a side: false. */
bool series_differ(const struct series_figures *a, const struct series_figures *b);
/* Sets measured alternately: the differences of the pairs (logarithms, where ratios count), in
 * order of time. Student's t of their mean; autocorrelated pairs count for fewer. The caller
 * alternates which side goes first, so that the order in the pair cancels; of an odd number the
 * first pair is left out. Fewer than SERIES_PAIRS: false. */
#define SERIES_PAIRS 6
bool series_pairs_differ(const double *differences, size_t n);

#endif
