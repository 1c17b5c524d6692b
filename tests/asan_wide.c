/*
 * The check of one wide access under ASan, quickly. GCC checks an access of 32 or 64 bytes by a
 * call to the runtime, whose own loop was 80 % of the time of the vector kernels' suites; nearly
 * always the shadow of all of it is zero, which one load shows. The rest is asked of the runtime as
 * before, and reported by it. Linked into the ASan build alone; compiled without sanitizers.
 * Shadow: one byte for eight at (address >> 3) + 0x7fff8000 on x86-64 Linux, a byte of 0 where all
 * eight may be touched (AddressSanitizer's algorithm, compiler-rt).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SHADOW_OFFSET 0x7fff8000u
#define HIDDEN        __attribute__((visibility("hidden")))

void *__asan_region_is_poisoned(void *begin, size_t bytes);
void __asan_report_load_n(uintptr_t at, size_t bytes);
void __asan_report_store_n(uintptr_t at, size_t bytes);
HIDDEN void __asan_loadN(uintptr_t at, size_t bytes);
HIDDEN void __asan_storeN(uintptr_t at, size_t bytes);

/* Whether all of bytes (1 to 56) at `at` may be touched: their shadow is at most 8 bytes long. */
static inline bool all_clear(uintptr_t at, size_t bytes)
{
    if (bytes - 1 > 55)
        return false;
    uint64_t shadow;
    memcpy(&shadow, (const void *)((at >> 3) + SHADOW_OFFSET), sizeof shadow);
    size_t n = ((at + bytes - 1) >> 3) - (at >> 3) + 1; /* bytes of shadow, 1 to 8 */
    return shadow << (64 - 8 * n) == 0;
}

/* A register of 64 bytes is two of 32. */
static inline bool clear(uintptr_t at, size_t bytes)
{
    return bytes == 64 ? all_clear(at, 32) && all_clear(at + 32, 32) : all_clear(at, bytes);
}

void __asan_loadN(uintptr_t at, size_t bytes)
{
    if (!clear(at, bytes) && __asan_region_is_poisoned((void *)at, bytes))
        __asan_report_load_n(at, bytes);
}

void __asan_storeN(uintptr_t at, size_t bytes)
{
    if (!clear(at, bytes) && __asan_region_is_poisoned((void *)at, bytes))
        __asan_report_store_n(at, bytes);
}
