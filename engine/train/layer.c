/* See layer.h. */
#include "engine/train/layer.h"

void layer_forward(const struct pass *p, int l, bool again)
{
    mixer_forward(p, l);
    feed_forward(p, l, again);
}

void layer_backward(const struct pass *p, int l, float *d)
{
    feed_backward(p, l, d);
    mixer_backward(p, l, d);
}
