/* See pieces.h. */
#include "engine/device/cpu/pieces.h"

#include "engine/base/pool.h"

#include <assert.h>
#include <math.h>

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

/* Time of the thread that is done last: units of a full share. */
static double longest_share(int matrices, int units, int further, int n, const int *share,
                            int threads)
{
    int pieces = matrices * parts(units, n) + parts(further, n), before = 0;
    long long sum = 0, all = 0;
    double longest = 0;

    for (int i = 0; i < threads; i++)
        all += share ? share[i] : 1;
    for (int i = 0; i < threads; i++) {
        int upto;

        sum += share ? share[i] : 1;
        upto = units_before((int)(pieces * sum / all), matrices, units, further, n);
        longest = fmax(longest,
                       (double)(upto - before) * (share ? (double)POOL_SHARE / share[i] : 1));
        before = upto;
    }
    return longest;
}

int piece_units(int matrices, int units, int further, const int *share, int threads)
{
    int least = threads > 1 ? PIECES_LEAST * threads : 1, best = 1;
    double time = 0;

    assert(matrices >= 0 && units >= 0 && further >= 0 && threads > 0);
    for (int n = PIECE_UNITS_MOST; n >= 1; n--) {
        int pieces = matrices * parts(units, n) + parts(further, n);
        double longest;

        if (pieces < least || (n > units && n > further))
            continue;
        longest = longest_share(matrices, units, further, n, share, threads);
        if (!(time > 0) || longest < time - time / WORTH) {
            best = n;
            time = longest;
        }
    }
    return best;
}
