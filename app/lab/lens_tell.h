/* Lenses in words: what a token of the chat's newest answer was made of (engine/run/lens/lens.h).
 * Engine thread, outside a turn. */
#ifndef APP_LAB_LENS_TELL_H
#define APP_LAB_LENS_TELL_H

#include "engine/run/engine.h"

/* Token `at` of the answer whose n ids are the session's newest: by layer what would be said if the
 * model ended there and the token's rank, what attention and each expert add to its logit, and
 * where the heads look; swaps: also what would have been said with each layer's runner-up expert.
 * Afterwards the session holds the answer, all of it computed. Caller frees *text with mem_*.
 * ERR_USAGE: the session does not hold the answer any more; ERR_MEMORY; errors of engine_lens. */
int lens_tell(struct engine *g, const int *ids, int n, int at, bool swaps, char **text,
              struct error *e);
/* Where a head looked as token `at` was said; head -1: the mean of the layer's, layer -1: of all.
 * times, (n): for each token of the answer its share times the number of positions that there were
 * to look at, so that 1 is an even look. *text, the session and errors as above; ERR_USAGE also: no
 * such layer or head, or no softmax attention there. */
int lens_attention(struct engine *g, const int *ids, int n, int at, int layer, int head,
                   float *times, char **text, struct error *e);

#endif
