/* See wake.h. */
#include "engine/base/wake.h"

#include "engine/base/clock.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

int wake_init(struct wake *w, struct error *e)
{
    atomic_init(&w->set, 0);
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->fd < 0)
        return error_set(e, ERR_IO, "eventfd: %s", strerror(errno));
    return 0;
}

void wake_release(struct wake *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
}

void wake_signal(struct wake *w)
{
    uint64_t one = 1;
    int saved = errno;

    assert(w->fd >= 0);
    if (!atomic_exchange(&w->set, 1) && write(w->fd, &one, sizeof one) < 0) {
        /* EAGAIN only: the counter is full, so the reader is awake anyway */
    }
    errno = saved;
}

void wake_clear(struct wake *w)
{
    uint64_t count;

    assert(w->fd >= 0);
    if (read(w->fd, &count, sizeof count) < 0) {
        /* EAGAIN: the flag is set but its write is still to come, which causes one spurious
         * wake-up */
    }
    /* an exchange: synchronises with the producer whose signal it clears */
    atomic_exchange(&w->set, 0);
}

int wake_wait(struct wake *w, int64_t timeout_ns)
{
    uint64_t end = clock_now() + (uint64_t)(timeout_ns > 0 ? timeout_ns : 0);
    struct pollfd p = {.fd = w->fd, .events = POLLIN};

    assert(w->fd >= 0);
    for (;;) {
        uint64_t now = clock_now(), left = end > now ? end - now : 0;
        struct timespec t = {(time_t)(left / CLOCK_SECOND), (long)(left % CLOCK_SECOND)};
        int n = ppoll(&p, 1, timeout_ns < 0 ? NULL : &t, NULL);

        if (n > 0)
            return 1;
        if (n == 0 || errno != EINTR)
            return 0;
    }
}
