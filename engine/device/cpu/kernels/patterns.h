/* Read patterns: in which order a core reads weights that one token meets, and what it asks for
 * before it needs it. Processors differ in what reads fastest, by half and more, so the pattern is
 * chosen for each (shape_table.h). The order of sums is a row's own: all patterns give the same
 * bits. Pure functions: any thread. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_PATTERNS_H
#define ENGINE_DEVICE_CPU_KERNELS_PATTERNS_H

#include "engine/file/dtype.h"

#include <stddef.h>
#include <stdint.h>

/* Where a line is asked for: nowhere; into the first-level cache; there alone, passing the others
 * by; into the second level; into the second and then, nearer, into the first. */
enum pattern_hint {
    PATTERN_PLAIN,
    PATTERN_FIRST,
    PATTERN_PASSING,
    PATTERN_SECOND,
    PATTERN_TWICE
};

struct pattern {
    const char *word; /* as the table's file and pages name it */
    int groups;       /* row groups side by side: 1, 2 or 4 */
    enum pattern_hint hint;
    int far, near; /* bytes ahead; near: of PATTERN_TWICE */
};

enum pattern_id {
#define PATTERN(id, ...) READ_##id,
#include "engine/device/cpu/kernels/patterns.def"
    READ_PATTERNS
};

extern const struct pattern pattern_of[READ_PATTERNS];

/* -1: no pattern has this word. */
int pattern_from_word(const char *word);
/* What reads fast on processors of this kind, where nothing was measured. vendor: of CPUID leaf 0;
 * family: with the extended one. */
enum pattern_id pattern_built_in(const char *vendor, int family);
/* The same for the processor that this runs on. */
enum pattern_id pattern_here(void);
/* For weights of a type, of what pattern_built_in says. */
enum pattern_id pattern_for(enum pattern_id built_in, enum dtype type);

/* `bytes`, a constant, from where the kernel will be `far` and `near` bytes later; no pointers,
 * for a hint may lead anywhere. The branches go the same way for a whole matrix. */
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
