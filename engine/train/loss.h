/* The end of a pass: the last norm, the head, and the loss of the target tokens. Logits are
 * computed only for positions with targets, some at a time. Thread: the one that trains. */
#ifndef ENGINE_TRAIN_LOSS_H
#define ENGINE_TRAIN_LOSS_H

#include "engine/train/tape.h"

#define LOSS_ROWS 256 /* positions whose logits are computed at a time */

/* Token `id` is the target of the pass' row `row`. */
struct target {
    int row, id;
};

struct loss_room {
    float *x, *normed, *logits, *dnormed; /* (LOSS_ROWS, hidden) or (LOSS_ROWS, vocabulary) */
    double nll[LOSS_ROWS];
};

void loss_lay_out(struct loss_room *l, struct room *r, const struct hparams *hp);
/* Sum of the negative log likelihoods of n targets. d (rows of the pass, hidden) or NULL: set to
 * the gradient of share * that sum with respect to the model's final rows. */
double loss_of(const struct pass *p, struct loss_room *room, const struct target *targets, int n,
               double share, float *d);

#endif
