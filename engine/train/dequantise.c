/* See dequantise.h. */
#include "engine/train/dequantise.h"

#include "engine/layout/pack.h"

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

typedef void dequantise_row(enum dtype type, const uint8_t *p, int n, float *out);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static dequantise_row *widest; /* NULL: there is none but the plain one */

static void plain(enum dtype type, const uint8_t *p, int n, float *out)
{
    row_to_f32(type, p, n, out);
}

static void find_widest(void)
{
#if defined(__x86_64__)
    if (!has_f16c())
        return;
    if (__builtin_cpu_supports("avx2"))
        widest = dequantise_row_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        widest = dequantise_row_avx512;
#endif
}

static dequantise_row *row_for(enum dtype type)
{
    bool has = type == DTYPE_F16 || type == DTYPE_BF16 || type == DTYPE_Q8_0 || type == DTYPE_Q4_0;

    pthread_once(&once, find_widest); /* asking a virtual machine's processor takes long */
    return has && widest ? widest : plain;
}

void dequantise_rows(enum dtype type, const uint8_t *from, size_t row_bytes, int n, int count,
                     float *out)
{
    dequantise_row *row = row_for(type);

    for (int i = 0; i < n; i++)
        row(type, from + (size_t)i * row_bytes, count, out + (size_t)i * (size_t)count);
}
