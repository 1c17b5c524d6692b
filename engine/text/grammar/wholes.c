/* See wholes.h. */
#include "engine/text/grammar/wholes.h"

#include <stdio.h>
#include <string.h>

static int range(struct grammar_build *b, char from, char to)
{
    return build_class(b, &(struct code_range){(uint32_t)from, (uint32_t)to}, 1);
}

static int digits(struct grammar_build *b, int min, int max)
{
    return build_repeat(b, range(b, '0', '9'), min, max);
}

int wholes_build(struct grammar_build *b, uint64_t lo, uint64_t hi, bool open)
{
    char low[24], high[24];
    int out = -1;

    snprintf(low, sizeof low, "%llu", (unsigned long long)lo);
    snprintf(high, sizeof high, "%llu", (unsigned long long)hi);
    for (size_t n = strlen(low), most = open ? n : strlen(high); n <= most; n++) {
        char from[24], to[24];

        memset(from, '0', n);
        from[0] = '1';
        memset(to, '9', n);
        from[n] = to[n] = 0;
        if (n == strlen(low))
            memcpy(from, low, n);
        if (!open && n == strlen(high))
            memcpy(to, high, n);
        out = build_alt(b, out, build_between(b, from, to, n, '0', '9'));
    }
    if (open)
        out = build_alt(b, out, build_seq(b, range(b, '1', '9'), digits(b, (int)strlen(low), -1)));
    return out;
}
