/* See pieces.h. */
#include "engine/device/cpu/pieces.h"

#include <assert.h>

#define PIECES_LEAST 4 /* per thread: if one is delayed, others can take some of its pieces */
#define WORTH 32       /* smaller pieces must shorten the longest share by 1/WORTH */

static int parts(int units, int n)
{
    return (units + n - 1) / n;
}

/* Units of the first `pieces` pieces of n units; a matrix's last one may be shorter. */
static int units_before(int pieces, int matrices, int units, int further, int n)
{
    int each = parts(units, n), rest, left;

    if (pieces > matrices * each) {
        rest = (pieces - matrices * each) * n;
        return matrices * units + (rest < further ? rest : further);
    }
    rest = each ? pieces / each : 0;
    left = (pieces - rest * each) * n;
    return rest * units + (left < units ? left : units);
}

/* Units of the thread with the most of them. */
static int longest_share(int matrices, int units, int further, int n, int threads)
{
    int pieces = matrices * parts(units, n) + parts(further, n), longest = 0, before = 0;

    for (int i = 1; i <= threads; i++) {
        int upto = units_before((int)((long long)pieces * i / threads), matrices, units, further,
                                n);

        if (upto - before > longest)
            longest = upto - before;
        before = upto;
    }
    return longest;
}

int piece_units(int matrices, int units, int further, int threads)
{
    int least = threads > 1 ? PIECES_LEAST * threads : 1, best = 1, share = 0;

    assert(matrices >= 0 && units >= 0 && further >= 0 && threads > 0);
    for (int n = PIECE_UNITS_MOST; n >= 1; n--) {
        int pieces = matrices * parts(units, n) + parts(further, n), longest;

        if (pieces < least || (n > units && n > further))
            continue;
        longest = longest_share(matrices, units, further, n, threads);
        if (!share || longest < share - share / WORTH) {
            best = n;
            share = longest;
        }
    }
    return best;
}
