/* A contract that headers state in words, "one thread": kept as which thread came first, and looked
 * at by asserts alone (builds without NDEBUG). Zeroed: nobody has come yet. Any thread. */
#ifndef ENGINE_BASE_ONE_THREAD_H
#define ENGINE_BASE_ONE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct one_thread {
    _Atomic(unsigned long) who;
};

/* Whether the calling thread is the first that asked, or nobody asked before. */
static inline bool one_thread(struct one_thread *t)
{
    unsigned long me = (unsigned long)pthread_self(), first = 0;

    return atomic_compare_exchange_strong_explicit(&t->who, &first, me, memory_order_relaxed,
                                                   memory_order_relaxed) ||
           first == me;
}

/* The thread that came first has ended; the next that asks takes its place. */
static inline void one_thread_hand_over(struct one_thread *t)
{
    atomic_store_explicit(&t->who, 0, memory_order_relaxed);
}

#endif
