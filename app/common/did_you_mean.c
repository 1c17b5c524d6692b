/* Edit distance with transpositions, on short words. Pure. */
#include "app/common/did_you_mean.h"

#include <string.h>

#define LONGEST 48

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Damerau-Levenshtein distance (adjacent letters swapped count once); words cut at LONGEST letters.
 */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t row[3][LONGEST + 1];

    for (size_t j = 0; j <= nb; j++)
        row[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];

        now[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            now[j] = least(least(last[j] + 1, now[j - 1] + 1),
                           last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
    }
    return row[na % 3][nb];
}

int nearest_word(const char *word, const char *const *words, size_t n)
{
    size_t len = strnlen(word, LONGEST), best = (size_t)-1;
    int at = -1;

    for (size_t i = 0; i < n; i++) {
        size_t other = strnlen(words[i], LONGEST), d = distance(word, len, words[i], other);
        int prefix = len >= 3 && other > len && !strncmp(word, words[i], len);

        if (prefix)
            d = 1;
        if (d < best && (d <= 1 || d * 3 <= least(len, other) + 1)) {
            best = d;
            at = (int)i;
        }
    }
    return at;
}
