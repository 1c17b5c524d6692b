/* Waiting for a word of memory to change, within this process: Linux' futex, FreeBSD's umtx. Any
 * thread; both calls may return early, so who waits looks again. */
#ifndef ENGINE_BASE_FUTEX_H
#define ENGINE_BASE_FUTEX_H

#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__FreeBSD__)
#include <sys/types.h>
#include <sys/umtx.h>
#else
#include <sched.h>
#endif

/* Sleeps while *word is `seen`. */
static inline void futex_wait(atomic_uint *word, unsigned seen)
{
#if defined(__linux__)
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
#elif defined(__FreeBSD__)
    _umtx_op(word, UMTX_OP_WAIT_UINT_PRIVATE, seen, NULL, NULL);
#else
    sched_yield();
#endif
}

/* Wakes all that sleep at it. */
static inline void futex_wake(atomic_uint *word)
{
#if defined(__linux__)
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
#elif defined(__FreeBSD__)
    _umtx_op(word, UMTX_OP_WAKE_PRIVATE, INT_MAX, NULL, NULL);
#endif
}

#endif
