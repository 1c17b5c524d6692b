/* Read patterns: the order in which a core reads weights for one token, and what it prefetches. The
 * fastest one differs between processors, by half and more, so the pattern is chosen for each
 * (shape_table.h). The order of sums is within a row: all patterns give the same bits. Pure
 * functions: any thread. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_PATTERNS_H
#define ENGINE_DEVICE_CPU_KERNELS_PATTERNS_H

#include "engine/file/dtype.h"

#include <stddef.h>
#include <stdint.h>

/* Prefetch target: none; into the first-level cache; only there, bypassing the others; into the
 * second level; into the second and then, nearer, into the first. */
enum pattern_hint {
    PATTERN_PLAIN,
    PATTERN_FIRST,
    PATTERN_PASSING,
    PATTERN_SECOND,
    PATTERN_TWICE
};

struct pattern {
    const char *word; /* its name in the table's file and the manual */
    int groups;       /* row groups in parallel: 1, 2 or 4 */
    enum pattern_hint hint;
    int far, near; /* prefetch distances in bytes; near: of PATTERN_TWICE */
};

enum pattern_id {
#define PATTERN(id, ...) READ_##id,
#include "engine/device/cpu/kernels/patterns.def"
    READ_PATTERNS
};

extern const struct pattern pattern_of[READ_PATTERNS];

/* -1: unknown word. */
int pattern_from_word(const char *word);
/* The default for processors of this kind, if nothing was measured. vendor: of CPUID leaf 0;
 * family: with the extended one. */
enum pattern_id pattern_built_in(const char *vendor, int family);
/* The same for the current processor. */
enum pattern_id pattern_here(void);
/* The pattern for weights of a type, given the result of pattern_built_in. */
enum pattern_id pattern_for(enum pattern_id built_in, enum dtype type);

/* Prefetches `bytes`, a constant, at `far` and `near` bytes ahead of the kernel; no pointers, for a
 * hint may be any address. The branches go the same way for a whole matrix. */
static inline __attribute__((always_inline)) void pattern_ask(const struct pattern *p,
                                                              uintptr_t far, uintptr_t near,
                                                              const size_t bytes)
{
    if (p->hint == PATTERN_TWICE)
        for (size_t i = 0; i < bytes; i += 64) {
            __builtin_prefetch((const void *)(far + i), 0, 2);
            __builtin_prefetch((const void *)(near + i), 0, 3);
        }
    else if (p->hint == PATTERN_FIRST)
        for (size_t i = 0; i < bytes; i += 64)
            __builtin_prefetch((const void *)(far + i), 0, 3);
    else if (p->hint == PATTERN_PASSING)
        for (size_t i = 0; i < bytes; i += 64)
            __builtin_prefetch((const void *)(far + i), 0, 0);
    else if (p->hint == PATTERN_SECOND)
        for (size_t i = 0; i < bytes; i += 64)
            __builtin_prefetch((const void *)(far + i), 0, 2);
}

#endif
