/* Ranks of logits, ties to the lower id. Pure; any thread. */
#ifndef APP_LAB_LENS_TOP_H
#define APP_LAB_LENS_TOP_H

#define LENS_TOP 5

/* How many of the n tokens are before this one; 0: it is the first. */
int lens_rank(const float *logits, int n, int id);
/* The LENS_TOP first and their logits; -1 and 0 where there are fewer. */
void lens_top(const float *logits, int n, int *ids, float *values);

#endif
