/* Estimates how many different experts a pass touches, which is the cost of verifying drafts in
 * layers with routed experts. A token is expected to choose the experts it chose at its last
 * occurrence in this session, as routing depends mostly on the token. Engine thread; allocates
 * nothing. */
#ifndef ENGINE_RUN_DISTINCT_EXPERTS_H
#define ENGINE_RUN_DISTINCT_EXPERTS_H

#include <stdbool.h>

struct engine;
struct model;
struct session;

#define TOUCHED_ROWS 32 /* most rows of an estimate */

/* Average per layer with routed experts: experts[i] for the pending token and the first i of ids
 * after it, n + 1 values. false: no routed experts, or no estimate. */
bool distinct_experts_expect(const struct session *s, const int *ids, int n, float *experts);
/* Likewise measured for the newest pass, of so many rows; 0: no routed experts. */
double distinct_experts_by(const struct engine *g, int rows);
/* The share of a token's bytes that one more expert in every routed layer takes. */
double distinct_experts_share(const struct model *m, double token_bytes);

#endif
