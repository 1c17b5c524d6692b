/* See wide.h. */
#include "engine/train/wide.h"

#include "engine/layout/pack.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* clang's builtin does not know this name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static void row_plainly(enum dtype type, const uint8_t *p, int n, float *out)
{
    row_to_f32(type, p, n, out);
}

static void exp_plainly(float *x, int n, float less)
{
    for (int i = 0; i < n; i++)
        x[i] = expf(x[i] - less);
}

static const struct wide plain = {row_plainly, exp_plainly};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct wide *widest = &plain;

static void find_widest(void)
{
#if defined(__x86_64__)
    if (!has_f16c() || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return;
    widest = &wide_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        widest = &wide_avx512;
#endif
}

/* cached: CPUID is slow in a virtual machine */
static const struct wide *wide(void)
{
    pthread_once(&once, find_widest);
    return widest;
}

void dequantise_rows(enum dtype type, const uint8_t *from, size_t row_bytes, int n, int count,
                     float *out)
{
    bool has = type == DTYPE_F16 || type == DTYPE_BF16 || type == DTYPE_Q8_0 || type == DTYPE_Q4_0;
    const struct wide *w = has ? wide() : &plain;

    for (int i = 0; i < n; i++)
        w->dequantise_row(type, from + (size_t)i * row_bytes, count,
                          out + (size_t)i * (size_t)count);
}

void exp_all(float *x, int n, float less)
{
    wide()->exp_all(x, n, less);
}
