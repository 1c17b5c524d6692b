/* See crew.h. */
#include "engine/train/crew.h"

#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/device/onednn/onednn.h"

struct shift {
    struct crew *crew;
    int tasks;
    void (*fn)(void *ctx, int task, float *scratch);
    void *ctx;
};

int crew_init(struct crew *c, int threads, size_t each, struct error *e)
{
    int rc;

    *c = (struct crew){.n = threads, .each = (each + 15) / 16 * 16};
    if ((rc = pool_new(&c->pool, threads, false, e)) < 0)
        return rc;
    c->scratch = mem_pages((size_t)threads * c->each * sizeof *c->scratch);
    return c->scratch ? 0 : error_set(e, ERR_MEMORY, "out of memory for the threads' scratch");
}

void crew_release(struct crew *c)
{
    mem_pages_free(c->scratch, (size_t)c->n * c->each * sizeof *c->scratch);
    pool_free(c->pool);
    *c = (struct crew){0};
}

/* Takes tasks until none is left; a thread that gets no CPU delays the others only while it has
 * taken one (pool_run_elastic). */
static void work(void *ctx, int tid, int n)
{
    struct shift *s = ctx;
    struct pool *p = s->crew->pool;

    pool_phase_open(p, tid, s->tasks);
    for (int i; (i = pool_phase_take(p, tid, 1)) < s->tasks;)
        s->fn(s->ctx, i, s->crew->scratch + (size_t)tid * s->crew->each);
    pool_phase_close(p, tid);
}

void crew_each(struct crew *c, int tasks, void (*fn)(void *ctx, int task, float *scratch),
               void *ctx)
{
    struct shift s = {.crew = c, .tasks = tasks, .fn = fn, .ctx = ctx};

    if (tasks == 1 || c->n == 1)
        for (int i = 0; i < tasks; i++)
            fn(ctx, i, c->scratch);
    else if (tasks > 0)
        pool_run_elastic(c->pool, work, &s);
}

static void multiply_plainly(bool a_turned, bool b_turned, int m, int n, int k, float alpha,
                             const float *a, ptrdiff_t lda, const float *b, ptrdiff_t ldb,
                             float beta, float *c, ptrdiff_t ldc)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0.0f;

            for (int l = 0; l < k; l++)
                sum += (a_turned ? a[l * lda + i] : a[i * lda + l]) *
                       (b_turned ? b[j * ldb + l] : b[l * ldb + j]);
            c[i * ldc + j] = alpha * sum + (beta != 0.0f ? beta * c[i * ldc + j] : 0.0f);
        }
}

void multiply(bool a_turned, bool b_turned, int m, int n, int k, float alpha, const float *a,
              ptrdiff_t lda, const float *b, ptrdiff_t ldb, float beta, float *c, ptrdiff_t ldc)
{
    if (onednn_sgemm(a_turned, b_turned, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) < 0)
        multiply_plainly(a_turned, b_turned, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
