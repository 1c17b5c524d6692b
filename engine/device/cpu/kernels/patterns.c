/* The table of read patterns (patterns.h), and the default for an unmeasured processor. */
#include "engine/device/cpu/kernels/patterns.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

const struct pattern pattern_of[READ_PATTERNS] = {
#define PATTERN(id, word, groups, hint, far, near) {word, groups, PATTERN_##hint, far, near},
#include "engine/device/cpu/kernels/patterns.def"
};

int pattern_from_word(const char *word)
{
    for (int i = 0; i < READ_PATTERNS; i++)
        if (strcmp(pattern_of[i].word, word) == 0)
            return i;
    return -1;
}

enum pattern_id pattern_built_in(const char *vendor, int family)
{
    bool amd = strcmp(vendor, "AuthenticAMD") == 0 || strcmp(vendor, "HygonGenuine") == 0;

    if (!amd || family < 25)
        return READ_FOUR_TWICE;
    return family >= 26 ? READ_ONE_FIRST : READ_ONE_PLAIN;
}

enum pattern_id pattern_for(enum pattern_id built_in, enum dtype type)
{
    if (built_in != READ_ONE_PLAIN)
        return built_in;
    switch (type) {
    case DTYPE_IQ3_XXS:
    case DTYPE_IQ3_S: return READ_FOUR_SECOND;
    case DTYPE_F16: return READ_TWO_SECOND;
    case DTYPE_Q2_K:
    case DTYPE_F8: return READ_FOUR_TWICE;
    default: return READ_ONE_PLAIN;
    }
}

enum pattern_id pattern_here(void)
{
    char vendor[13] = "";
    int family = 0;

#if defined(__x86_64__)
    unsigned a, b, c, d;

    if (__get_cpuid(0, &a, &b, &c, &d)) {
        memcpy(vendor, &b, 4);
        memcpy(vendor + 4, &d, 4);
        memcpy(vendor + 8, &c, 4);
    }
    if (__get_cpuid(1, &a, &b, &c, &d))
        family = (int)((a >> 8 & 15) + ((a >> 8 & 15) == 15 ? a >> 20 & 255 : 0));
#endif
    return pattern_built_in(vendor, family);
}
