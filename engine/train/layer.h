/* A layer of a pass, forwards and backwards. Thread: the one that trains; work goes to the crew. */
#ifndef ENGINE_TRAIN_LAYER_H
#define ENGINE_TRAIN_LAYER_H

#include "engine/train/tape.h"

/* Rows that a task of what is done row by row takes. */
#define TASK_ROWS 16
static inline int row_tasks(int rows)
{
    return (rows + TASK_ROWS - 1) / TASK_ROWS;
}

/* From p->layers[l].x on: fills the tape, and p->layers[l + 1].x with what the layer gives. again:
 * for the way back: the routing is the stored one, and the tape is all that is filled. */
void layer_forward(const struct pass *p, int l, bool again);
/* d (n, hidden): what flows back into the layer becomes what flows out of it; gradients are added
 * to. The tape is that of layer_forward(p, l, true). The first layer's way ends at its matrices: d
 * is worthless then. */
void layer_backward(const struct pass *p, int l, float *d);

/* mixer.c: up to tape.mid; the second half likewise */
void mixer_forward(const struct pass *p, int l);
void mixer_backward(const struct pass *p, int l, float *d);
/* feed_forward.c: from tape.mid on */
void feed_forward(const struct pass *p, int l, bool again);
void feed_backward(const struct pass *p, int l, float *d);

#endif
