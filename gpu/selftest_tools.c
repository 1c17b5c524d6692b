/* What the parts of the self-test share (selftest.h): random numbers, copies, launches, findings.
 */
#include "gpu/selftest.h"
#include "engine/base/mem.h"
#include "engine/device/numerics.h"

#include <stdio.h>

float selftest_uniform(struct selftest *b)
{
    b->seed = b->seed * 1664525u + 1013904223u;
    return (float)(int)(b->seed >> 8) / 8388608.0f - 1.0f;
}

float *selftest_randoms(struct selftest *b, size_t n, float scale)
{
    float *x = mem_alloc(n, sizeof *x);

    for (size_t i = 0; x && i < n; i++)
        x[i] = selftest_uniform(b) * scale;
    return x;
}

void selftest_wrong(struct selftest *b, const char *name)
{
    if (b->v->n < SELFTEST_WRONG_MAX)
        snprintf(b->v->wrong[b->v->n++], sizeof b->v->wrong[0], "%s", name);
}

int selftest_put(struct selftest *b, cl_mem mem, const void *data, size_t bytes)
{
    return cl_check(b->d,
                    clEnqueueWriteBuffer(b->d->queue, mem, CL_TRUE, 0, bytes, data, 0, NULL, NULL),
                    "self-test", b->e);
}

int selftest_get(struct selftest *b, cl_mem mem, size_t offset, void *data, size_t bytes)
{
    return cl_check(
        b->d, clEnqueueReadBuffer(b->d->queue, mem, CL_TRUE, offset, bytes, data, 0, NULL, NULL),
        "self-test", b->e);
}

int selftest_core(struct selftest *b, enum core_kernel k, const char *name, size_t x, size_t y,
                  size_t z, size_t local)
{
    return launch_core(b->d, k, name, x, y, z, local, b->e);
}

int selftest_same_quantised(struct selftest *b, const struct rows_q *q, const float *x, int rows,
                            int cols, bool *same)
{
    size_t n = (size_t)rows * (size_t)cols, blocks = n / 32;
    char *got = mem_alloc(n, 4);
    float *d = mem_alloc(blocks, 8), *s = d ? d + blocks : NULL;
    int rc = got && d ? 0 : error_set(b->e, ERR_MEMORY, "out of memory");

    if (rc == 0 && (selftest_get(b, q->q, 0, got, n * (b->d->dot8 ? 1 : 4)) < 0 ||
                    selftest_get(b, q->d, 0, d, blocks * 4) < 0 ||
                    selftest_get(b, q->s, 0, s, blocks * 4) < 0))
        rc = ERR_DEVICE;
    for (size_t k = 0; k < blocks && rc == 0; k++) {
        int8_t want[32];
        int32_t sum;
        float scale = num_quantise_block(x + k * 32, want, &sum);

        *same = *same && num_bits(scale) == num_bits(d[k]) && s[k] == (float)sum;
        for (size_t i = 0; i < 32; i++)
            *same = *same && (b->d->dot8 ? ((int8_t *)got)[k * 32 + i] == want[i]
                                         : ((float *)got)[k * 32 + i] == (float)want[i]);
    }
    mem_free(got);
    mem_free(d);
    return rc;
}

void selftest_name(char *out, size_t size, const char *kernel, enum dtype type, int many)
{
    snprintf(out, size, "%s %s, %s", kernel, dtype_info(type)->word,
             many ? "many tokens" : "one token");
}
