/* The end of a pass: the last norm, the head, and how well the learned tokens are predicted. Logits
 * are made for the positions that are learned alone, some at a time. Thread: the one that trains.
 */
#ifndef ENGINE_TRAIN_LOSS_H
#define ENGINE_TRAIN_LOSS_H

#include "engine/train/tape.h"

#define LOSS_ROWS 256 /* positions whose logits are there at a time */

/* Token `id` stands behind the pass' row `row`. */
struct target {
    int row, id;
};

struct loss_room {
    float *x, *normed, *logits, *dnormed; /* (LOSS_ROWS, hidden) or (LOSS_ROWS, vocabulary) */
    double nll[LOSS_ROWS];
};

void loss_lay_out(struct loss_room *l, struct room *r, const struct hparams *hp);
/* Sum of the negative log likelihoods of n targets. d (rows of the pass, hidden) or NULL: what
 * share * that sum is of the rows that the model ends with, written. */
double loss_of(const struct pass *p, struct loss_room *room, const struct target *targets, int n,
               double share, float *d);

#endif
