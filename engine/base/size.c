/* See size.h. */
#include "engine/base/size.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int size_parse(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    const char *at;
    char *end;
    double v;
    int shift = 0;

    /* strtod also reads "inf", "0x1p3" and a sign: sizes start with a digit or a point and have no
     * x */
    if (!text || !strchr("0123456789.", *text) || !*text || strpbrk(text, "xXpP"))
        return -1;
    v = strtod(text, &end);
    if (end == text)
        return -1;
    for (at = units; *end && *at; at++)
        if (strncasecmp(end, at, 1) == 0) {
            shift = 10 * (int)(at - units + 1);
            end++;
            break;
        }
    if (strcasecmp(end, "") != 0 && strcasecmp(end, "B") != 0 &&
        !(shift && strcasecmp(end, "iB") == 0))
        return -1;
    v = ldexp(v, shift);
    if (!(v >= 0) || v >= 9.2e18)
        return -1;
    *out = (uint64_t)v;
    return 0;
}

char *size_format(uint64_t bytes, char *out, size_t n)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    int u = 0;

    assert(n >= 16);
    while (v >= 1023.5 && u < 4) {
        v /= 1024;
        u++;
    }
    snprintf(out, n, u && v < 9.95 ? "%.1f %s" : "%.0f %s", v, units[u]);
    return out;
}

int size_digits(const char **text, int most, int *out)
{
    char *end;
    long v;

    if (**text < '0' || **text > '9')
        return -1;
    errno = 0;
    v = strtol(*text, &end, 10);
    if (errno || v > most)
        return -1;
    *text = end;
    *out = (int)v;
    return 0;
}
