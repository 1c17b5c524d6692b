/* Which kernel set runs: the best that this CPU has, or the one asked for. Chosen once, before models load (their packing width follows);
 * engine thread or start-up. */
#include "engine/device/cpu/kernels.h"

#include <string.h>

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

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}
#endif

const struct kernels *kernels_at(int i)
{
    const struct kernels *sets[4] = {&kernels_scalar};
    int n = 1;

#if defined(__x86_64__)
    if (has_avx2())
        sets[n++] = &kernels_avx2;
    if (has_avx512())
        sets[n++] = &kernels_avx512;
#endif
    return i >= 0 && i < n ? sets[i] : NULL;
}

const struct kernels *kernels_active(void)
{
    if (!chosen)
        for (int i = 0; kernels_at(i); i++)
            chosen = kernels_at(i);
    return chosen;
}

int cpu_kernels_select(const char *name, struct error *e)
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

const char *cpu_kernels_name(void)
{
    return kernels_active()->name;
}

int cpu_pack_width(void)
{
    return kernels_active()->width;
}
