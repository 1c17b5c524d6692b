/* How many different experts a pass touches: what verifying drafts costs where a layer chooses.
 * Expected of tokens by what they chose when they stood in this session last, a token's experts
 * being much the same wherever it stands. Engine thread; allocates nothing. */
#ifndef ENGINE_RUN_DISTINCT_EXPERTS_H
#define ENGINE_RUN_DISTINCT_EXPERTS_H

#include <stdbool.h>

struct engine;
struct model;
struct session;

#define TOUCHED_ROWS 32 /* most rows that are asked for */

/* Of a layer, on average over those that choose: experts[i] of the token that waits and the first
 * i of ids behind it, n + 1 values. false: nobody chooses, or nobody can tell. */
bool distinct_experts_expect(const struct session *s, const int *ids, int n, float *experts);
/* Likewise of the newest pass, whose rows they were; 0: nobody chooses. */
double distinct_experts_by(const struct engine *g, int rows);
/* What one more expert of every layer that chooses takes of a token's bytes. */
double distinct_experts_share(const struct model *m, double token_bytes);

#endif
