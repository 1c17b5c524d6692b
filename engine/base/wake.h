/* A coalesced wake-up: a flag and an eventfd. Any number of wake_signal calls before the reader
 * wakes cost one write and one wake-up. The reader polls the descriptor, calls wake_clear, and only
 * then drains its queue: what arrives after the clear signals again, so nothing is lost (libuv's
 * uv_async has the same order). wake_signal: any thread, async-signal-safe. The rest: the
 * reader. */
#ifndef ENGINE_BASE_WAKE_H
#define ENGINE_BASE_WAKE_H

#include "engine/base/error.h"

#include <stdatomic.h>
#include <stdint.h>

struct wake {
    int fd;
    atomic_int set;
};

int wake_init(struct wake *w, struct error *e);
void wake_release(struct wake *w);
void wake_signal(struct wake *w);
void wake_clear(struct wake *w);
/* Waits until signalled or for timeout_ns (negative: for ever). 1: signalled (not cleared), 0:
 * timeout. */
int wake_wait(struct wake *w, int64_t timeout_ns);

#endif
