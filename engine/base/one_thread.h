/* Checks the contract "one thread" of headers: records the first thread, used only by asserts
 * (builds without NDEBUG). Zeroed: none yet. Any thread. */
#ifndef ENGINE_BASE_ONE_THREAD_H
#define ENGINE_BASE_ONE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct one_thread {
    _Atomic(unsigned long) who;
};

/* Whether the calling thread is the first caller, or there was none before. */
static inline bool one_thread(struct one_thread *t)
{
    unsigned long me = (unsigned long)pthread_self(), first = 0;

    return atomic_compare_exchange_strong_explicit(&t->who, &first, me, memory_order_relaxed,
                                                   memory_order_relaxed) ||
           first == me;
}

/* The first thread has ended; the next caller takes its place. */
static inline void one_thread_hand_over(struct one_thread *t)
{
    atomic_store_explicit(&t->who, 0, memory_order_relaxed);
}

#endif
