/* Causal softmax attention of whole sequences, forward and backward, F32. The backward pass
 * recomputes the scores. Tasks are (sequence, head of keys). Thread: the one that trains. */
#ifndef ENGINE_TRAIN_ATTENTION_H
#define ENGINE_TRAIN_ATTENTION_H

#include "engine/model/shape.h"
#include "engine/train/crew.h"

/* Sequences are consecutive; number i is rows starts[i] .. starts[i+1]-1. Rows of q, out and their
 * gradients are heads * dim values, of k and v kv_heads * dim. */
struct attention {
    const struct mixer_shape *shape;
    const int *starts;
    int n;
    const float *q, *k, *v; /* normed and rotated */
    float *out;
    const float *dout;
    float *dq, *dk, *dv;
};

size_t attention_scratch(int longest);
/* out = softmax(scale q k' where visible) v */
void attention_forward(struct crew *c, const struct attention *a);
/* dq, dk and dv from dout */
void attention_backward(struct crew *c, const struct attention *a);

/* Rotates every head of n values in place; cosines and sines of its position (dims / 2), backwards:
 * in the opposite direction, for gradients. */
void rotate(const struct mixer_shape *s, float *x, int heads, const float *cosines,
            const float *sines, bool back);

#endif
