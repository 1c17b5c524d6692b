/* The embedding of a prompt: its rows' hidden states after the final norm, pooled as they are
 * computed. Rows come in ascending order, some again after a device was lost; sums are in double,
 * in the order of positions, so the result does not depend on the passes. Engine thread. */
#ifndef ENGINE_RUN_REPORT_POOLING_H
#define ENGINE_RUN_REPORT_POOLING_H

#include "engine/model/model.h"
#include "engine/run/report/messages.h"

struct pooling;

/* ERR_MEMORY. */
int pooling_new(struct pooling **out, const struct hparams *hp, enum embed_pooling kind,
                struct error *e);
void pooling_free(struct pooling *p); /* accepts NULL */
/* x: (rows, hidden), residual streams of the positions pos .. pos + rows - 1. */
void pooling_rows(struct pooling *p, const struct model *m, int pos, int rows, const float *x);
/* The result, (hidden), mem_*, the caller's; NULL: no row came, or it was taken. */
float *pooling_take(struct pooling *p);

#endif
