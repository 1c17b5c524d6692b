/* Selects the kernel set: the best that this CPU supports, or the requested one. Selected once,
 * before models load (their packing width depends on it); engine thread or start-up. */
#include "engine/device/cpu/kernels/codebooks.h"
#include "engine/device/cpu/kernels/formats.h"
#include "engine/device/cpu/kernels/kernels.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

static const struct kernels *chosen;

#if defined(__x86_64__)
#include <cpuid.h>

/* clang's builtin does not know this name. */
static int has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static int has_avx_vnni(void)
{
    unsigned a, b, c, d;

    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

#if defined(__x86_64__)
/* Whether the processor has tiles and int8 products, the OS saves their state, and this process may
 * use them (Linux requires a request: the state is 8 KiB per thread). */
static int has_amx(void)
{
    unsigned a, b, c, d;

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 24 & 3) != 3 ||
        !__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
#if defined(__linux__)
    return (a >> 17 & 3) == 3 &&
           syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */) == 0;
#else
    return 0;
#endif
}
#endif

#if defined(__x86_64__)
/* Intel's since Sapphire Rapids, detected by their half precision: earlier ones gather slowly, or
 * do so since the microcode fix against gather leaks; AMD's load points faster one by one. */
static int gathers_quickly(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx &&
           __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 23 & 1);
}

/* The AVX-512 set in the variant best for this processor. */
static const struct kernels *avx512_here(void)
{
    static struct kernels k;

    k = kernels_avx512;
    if (__builtin_cpu_supports("avx512vbmi")) {
        codebooks_fill();
#define CODEBOOK(id, name) k.gemv[DTYPE_##id] = gemv_##name##_vbmi;
        CODEBOOK_FORMATS
#undef CODEBOOK
    }
    if (gathers_quickly()) {
#define GATHERED(id, name) k.gemv[DTYPE_##id] = gemv_##name##_gather;
        GATHERED_FORMATS
#undef GATHERED
    }
    return &k;
}
#endif

static const struct kernels *sets[6] = {&kernels_scalar};
#if defined(__x86_64__)
static struct kernels amx; /* the AVX-512 set with the matrix unit's products */
#endif
static int n_sets = 1;

static void find_sets(void)
{
#if defined(__x86_64__)
    if (has_avx2())
        sets[n_sets++] = &kernels_avx2;
    if (has_avx_vnni())
        sets[n_sets++] = &kernels_avxvnni;
    if (has_avx512())
        sets[n_sets++] = avx512_here();
    if (has_avx512() && has_amx()) {
        amx = *sets[n_sets - 1];
        amx.name = "amx";
        amx.tile = KERNEL_TILE;
        amx.small_batch_set = sets[n_sets - 1];
        amx.small_batch_end = 24;
#define FORMAT(id, name, ...) amx.dot[DTYPE_##id] = dot_##name##_amx;
#include "engine/file/formats.def"
        sets[n_sets++] = &amx;
    }
#elif defined(__aarch64__)
    unsigned long has = getauxval(AT_HWCAP), more = getauxval(AT_HWCAP2);

    sets[n_sets++] = &kernels_neon; /* part of 64-bit Arm */
    if (has & HWCAP_ASIMDDP)
        sets[n_sets++] = &kernels_dotprod;
    if (has & HWCAP_ASIMDDP && more & HWCAP2_I8MM && more & HWCAP2_BF16)
        sets[n_sets++] = &kernels_i8mm;
#endif
}

const struct kernels *kernels_at(int i)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_sets);
    return i >= 0 && i < n_sets ? sets[i] : NULL;
}

const struct kernels *kernels_active(void)
{
    if (!chosen)
        for (int i = 0; kernels_at(i); i++)
            chosen = kernels_at(i);
    return chosen;
}

int kernels_select(const char *name, struct error *e)
{
    char known[64] = "";

    if (!name) {
        chosen = NULL;
        return 0;
    }
    for (int i = 0; kernels_at(i); i++) {
        if (strcmp(kernels_at(i)->name, name) == 0) {
            chosen = kernels_at(i);
            return 0;
        }
        strcat(strcat(known, i ? ", " : ""), kernels_at(i)->name);
    }
    return error_set(e, ERR_USAGE, "no kernels '%s' for this CPU; it can run: %s", name, known);
}
