/* The CPU with a recurrence of its own in every other layer, for tests of what a layer keeps
 * between tokens: it is the simplest there is, but every token changes all that follows it, so
 * whoever continues from the wrong place is found out. The model's shapes are changed when it
 * opens. Last in a list of back ends, it computes what the others cannot. */
#ifndef TESTS_RECURRENT_DEVICE_H
#define TESTS_RECURRENT_DEVICE_H

#include "engine/device/device.h"

extern const struct device_ops recurrent_device_ops;
/* From now on the n-th mixer's job calls this first; n 0: none does. */
void recurrent_device_at(long n, void (*fn)(void *ctx), void *ctx);
long recurrent_device_rows(void); /* computed since the program began, of one recurrent layer */

#endif
