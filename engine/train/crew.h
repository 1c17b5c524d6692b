/* The threads of a training step. Work is divided into tasks whose boundaries and sums do not
 * depend on the number of threads, so that the bits do not either. Owner: the trainer. Thread: the
 * one that trains; tasks run on all of them. */
#ifndef ENGINE_TRAIN_CREW_H
#define ENGINE_TRAIN_CREW_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct pool;

struct crew {
    struct pool *pool;
    int n;
    float *scratch; /* n times `each` floats */
    size_t each;
    double operations; /* floating-point ones of the frozen matrices' products so far */
};

/* each: floats of scratch per thread. ERR_MEMORY. */
int crew_init(struct crew *c, int threads, size_t each, struct error *e);
void crew_release(struct crew *c);
/* Calls fn for tasks 0 .. tasks-1, each once, on any thread; returns when all are done. scratch:
 * the thread's own. */
void crew_each(struct crew *c, int tasks, void (*fn)(void *ctx, int task, float *scratch),
               void *ctx);

/* C (m, n) = alpha A (m, k) B (k, n) + beta C, row-major, by the calling thread alone; `turned`
 * operands are stored as (k, m) and (n, k). oneDNN's product, or a plain one where it does not
 * run. */
void multiply(bool a_turned, bool b_turned, int m, int n, int k, float alpha, const float *a,
              ptrdiff_t lda, const float *b, ptrdiff_t ldb, float beta, float *c, ptrdiff_t ldc);

#endif
