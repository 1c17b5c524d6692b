/* A layer of a pass, forward and backward. Thread: the one that trains; work goes to the crew. */
#ifndef ENGINE_TRAIN_LAYER_H
#define ENGINE_TRAIN_LAYER_H

#include "engine/train/tape.h"

/* Rows per task of row-wise work. */
#define TASK_ROWS 16
static inline int row_tasks(int rows)
{
    return (rows + TASK_ROWS - 1) / TASK_ROWS;
}

/* From p->layers[l].x: fills the tape, and p->layers[l + 1].x with the layer's output. again: for
 * the backward pass: uses the stored routing and fills only the tape. */
void layer_forward(const struct pass *p, int l, bool again);
/* d (n, hidden): the gradient of the layer's output is replaced by that of its input; adapter
 * gradients are accumulated. The tape is that of layer_forward(p, l, true). After the first layer d
 * is undefined. */
void layer_backward(const struct pass *p, int l, float *d);

/* mixer.c: up to tape.mid; the second half likewise */
void mixer_forward(const struct pass *p, int l);
void mixer_backward(const struct pass *p, int l, float *d);
/* feed_forward.c: from tape.mid on */
void feed_forward(const struct pass *p, int l, bool again);
void feed_backward(const struct pass *p, int l, float *d);

#endif
