/* Common parts of the self-test (selftest.h): random numbers, copies, launches, findings. */
#include "gpu/selftest.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/device/conformance/reference.h"
#include "engine/device/numerics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

float *selftest_randoms(struct selftest *b, size_t n, float scale)
{
    float *x = mem_alloc(n, sizeof *x);

    for (size_t i = 0; x && i < n; i++)
        x[i] = reference_random(&b->seed) * scale;
    return x;
}

void selftest_wrong(struct selftest *b, const char *name)
{
    if (b->v->n < SELFTEST_WRONG_MAX)
        snprintf(b->v->wrong[b->v->n++], sizeof b->v->wrong[0], "%s", name);
}

#define COMPARE_ROUNDS 4 /* the first one is not counted */
#define COMPARE_TIMES 24

static int time_round(struct selftest *b, int (*run)(void *ctx, bool joined), void *ctx,
                      bool joined, uint64_t *best)
{
    uint64_t start = clock_now(), ns;

    for (int i = 0; i < COMPARE_TIMES; i++)
        if (run(ctx, joined) < 0)
            return ERR_DEVICE;
    if (cl_check(b->d, cl.Finish(b->d->queue), "clFinish", b->e) < 0)
        return ERR_DEVICE;
    ns = clock_now() - start;
    *best = ns < *best ? ns : *best;
    return 0;
}

int selftest_compare(struct selftest *b, const char *name, int (*run)(void *ctx, bool joined),
                     void *ctx)
{
    uint64_t best[2] = {UINT64_MAX, UINT64_MAX};
    const char *forced = opencl_tuning()->slower;
    bool slower = forced && strstr(forced, name);

    for (int round = 0; round < COMPARE_ROUNDS && (slower || !b->d->target.info.is_cpu_type);
         round++)
        for (int joined = 0; joined < 2; joined++) {
            if (round == 1)
                best[joined] = UINT64_MAX;
            if (time_round(b, run, ctx, joined, &best[joined]) < 0)
                return ERR_DEVICE;
        }
    if ((slower || best[1] > best[0]) && b->v->n_slower < SELFTEST_SLOWER_MAX)
        snprintf(b->v->slower[b->v->n_slower++], sizeof b->v->slower[0], "%s", name);
    return 0;
}

#define DUEL_ROUNDS 6 /* the first one is not counted */
#define DUEL_LAUNCHES 4

/* Seconds of the launches of a run by their events; 0: a driver without times. */
static int time_launches(struct selftest *b, int (*run)(void *ctx, bool joined), void *ctx,
                         double *seconds)
{
    struct device *d = b->d;
    struct launch_record r[DUEL_LAUNCHES];
    struct launch_trace trace = {r, 0, DUEL_LAUNCHES}, *before = d->trace;
    int rc = job_begin(d, b->e);

    *seconds = 0;
    if (rc == 0 && b->flush[0])
        rc = launch_copy(d, b->flush[0], 0, b->flush[1], FLUSH_BYTES, b->e);
    d->trace = &trace;
    rc = rc == 0 ? run(ctx, true) : rc;
    d->trace = before;
    rc = rc == 0 ? job_end(d, b->e) : rc;
    rc = rc == 0 ? job_harvest(d, b->e) : rc;
    if (rc < 0 && !d->lost)
        cl.Finish(d->queue);
    for (int i = 0; i < trace.n; i++) {
        *seconds += launch_seconds(r[i].event);
        cl.ReleaseEvent(r[i].event);
    }
    if (rc < 0)
        job_forget(d);
    return rc;
}

int selftest_duel(struct selftest *b, enum dtype type, struct type_kernels *other,
                  int (*run)(void *ctx, bool joined), void *ctx, double *ratio)
{
    double best[2] = {INFINITY, INFINITY}, seconds;
    int rc = 0;

    for (int i = 0; i < 2 * DUEL_ROUNDS; i++) {
        int one = rc == 0 ? time_launches(b, run, ctx, &seconds) : 0;

        if (rc == 0 && one == 0 && i > 1)
            best[i % 2] = fmin(best[i % 2], seconds);
        rc = rc == 0 ? one : rc;
        kernel_set_exchange(&b->d->type[type], other);
    }
    *ratio = rc == 0 && best[0] > 0 && best[1] > 0 ? best[0] / best[1] : 0;
    return rc;
}

int selftest_put(struct selftest *b, cl_mem mem, const void *data, size_t bytes)
{
    return cl_check(b->d,
                    cl.EnqueueWriteBuffer(b->d->queue, mem, CL_TRUE, 0, bytes, data, 0, NULL, NULL),
                    "self-test", b->e);
}

int selftest_get(struct selftest *b, cl_mem mem, size_t offset, void *data, size_t bytes)
{
    return cl_check(
        b->d, cl.EnqueueReadBuffer(b->d->queue, mem, CL_TRUE, offset, bytes, data, 0, NULL, NULL),
        "self-test", b->e);
}

int selftest_core(struct selftest *b, enum core_kernel k, const char *name, size_t x, size_t y,
                  size_t z, size_t local)
{
    return launch_core(b->d, k, name, x, y, z, local, b->e);
}

int selftest_quantised_init(struct quantised_rows *q, const struct selftest *b, size_t n)
{
    *q = (struct quantised_rows){.n = n,
                                 .bytes = n * (b->d->wide ? sizeof(float) : sizeof(int8_t))};
    q->values = mem_alloc(n, sizeof(float));
    q->scales = mem_alloc(n / 32, 2 * sizeof(float));
    q->sums = q->scales ? q->scales + n / 32 : NULL;
    return q->values && q->scales
               ? 0
               : error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
}

void selftest_quantised_release(struct quantised_rows *q)
{
    mem_free(q->values);
    mem_free(q->scales);
}

/* A value of either form. */
static float value_at(const struct quantised_rows *q, size_t i)
{
    return q->bytes == q->n ? (float)((const int8_t *)q->values)[i] : ((const float *)q->values)[i];
}

void selftest_quantise(struct quantised_rows *q, const float *x)
{
    for (size_t k = 0; k < q->n / 32; k++) {
        int8_t values[32];
        int32_t sum;

        q->scales[k] = num_quantise_block(x + k * 32, values, &sum);
        q->sums[k] = (float)sum;
        for (size_t i = 0; i < 32; i++) {
            if (q->bytes == q->n)
                ((int8_t *)q->values)[k * 32 + i] = values[i];
            else
                ((float *)q->values)[k * 32 + i] = values[i];
        }
    }
}

static bool same_rows(const struct quantised_rows *a, const struct quantised_rows *b)
{
    bool same = memcmp(a->scales, b->scales, a->n / 32 * sizeof *a->scales) == 0;

    for (size_t k = 0; k < a->n / 32; k++)
        same = same && a->sums[k] == b->sums[k];
    for (size_t i = 0; i < a->n; i++)
        same = same && value_at(a, i) == value_at(b, i);
    return same;
}

int selftest_same_quantised(struct selftest *b, const struct rows_q *q, const float *x, int rows,
                            int cols, bool *same)
{
    size_t n = (size_t)rows * (size_t)cols, blocks = n / 32 * sizeof(float);
    struct quantised_rows got = {0}, want = {0};
    int rc = selftest_quantised_init(&got, b, n) < 0 || selftest_quantised_init(&want, b, n) < 0
                 ? ERR_MEMORY
                 : 0;

    if (rc == 0 && (selftest_get(b, q->q, 0, got.values, got.bytes) < 0 ||
                    selftest_get(b, q->d, 0, got.scales, blocks) < 0 ||
                    selftest_get(b, q->s, 0, got.sums, blocks) < 0))
        rc = ERR_DEVICE;
    if (rc == 0) {
        selftest_quantise(&want, x);
        *same = *same && same_rows(&got, &want);
    }
    selftest_quantised_release(&got);
    selftest_quantised_release(&want);
    return rc;
}

void selftest_name(char *out, size_t size, const char *kernel, enum dtype type, int many)
{
    snprintf(out, size, "%s %s, %s", kernel, dtype_info(type)->word,
             many ? "many tokens" : "one token");
}
