/* See utility.h. */
#include "engine/run/draft/utility.h"

#include <assert.h>
#include <string.h>

#define AT_ONCE 1.5  /* in the account at the beginning */
#define PAID_IN 0.01 /* of a pass without drafts */
#define MOST_IN 6.0  /* what was won long ago says nothing of now */
#define WORTH_IT 1.03
#define ROW_GUESS 0.4   /* of a pass of one row: what one more takes, before it was measured */
#define DRAFT_GUESS 0.1 /* what drafting a token takes, likewise */
#define AGAIN 64        /* passes with drafts after which one without is measured */
#define FADE 0.99       /* of what counts as of late */

void utility_init(struct utility *u)
{
    *u = (struct utility){.account = AT_ONCE};
}

void utility_forget(struct utility *u)
{
    memset(u->passes, 0, sizeof u->passes);
}

static double median(const double *x, int n)
{
    double sorted[UTILITY_NEWEST];

    for (int i = 0; i < n; i++) {
        int k = i;

        for (; k > 0 && sorted[k - 1] > x[i]; k--)
            sorted[k] = sorted[k - 1];
        sorted[k] = x[i];
    }
    return sorted[n / 2];
}

/* Between the nearest ones measured; beyond the last one, each row as ROW_GUESS. */
static double ns_of(const struct utility *u, int answers, int rows)
{
    int low = rows, high = rows;
    double row = ROW_GUESS * u->passes[answers].ns / answers;

    while (!u->passes[low].ns)
        low--;
    while (high <= UTILITY_ROWS && !u->passes[high].ns)
        high++;
    if (high > UTILITY_ROWS || high == low)
        return u->passes[low].ns + row * (rows - low);
    return u->passes[low].ns +
           (u->passes[high].ns - u->passes[low].ns) * (rows - low) / (high - low);
}

double utility_cost(const struct utility *u, int answers, int rows)
{
    assert(answers > 0 && rows >= answers && rows <= UTILITY_ROWS && u->passes[answers].ns > 0);
    return ns_of(u, answers, rows) / u->passes[answers].ns;
}

int utility_rows(const struct utility *u, int answers, const float *p, int n, bool to_draft,
                 double *gain)
{
    double tokens = answers, best = WORTH_IT, draft;
    int rows = 0;

    *gain = 1;
    if (answers > UTILITY_ROWS || !u->passes[answers].ns)
        return 0;
    draft = !to_draft ? 0 : u->draft_ns ? u->draft_ns / u->passes[answers].ns : DRAFT_GUESS;
    for (int i = 0; i < n && answers + i < UTILITY_ROWS; i++) {
        double now;

        tokens += (double)p[i];
        now = tokens / answers / (utility_cost(u, answers, answers + i + 1) + draft * (i + 1));
        *gain = now > *gain ? now : *gain;
        if (now > best) {
            best = now;
            rows = i + 1;
        }
    }
    return rows;
}

bool utility_may(const struct utility *u, int answers)
{
    return answers <= UTILITY_ROWS && u->passes[answers].n >= 3 && u->account > 0 &&
           u->drafted < AGAIN;
}

void utility_drafted(struct utility *u, int n, double ns)
{
    double each = ns / (n > 0 ? n : 1);

    u->draft_ns = u->draft_ns > 0 ? 0.75 * u->draft_ns + 0.25 * each : each;
}

void utility_learn(struct utility *u, int answers, int rows, int tokens, double ns,
                   double drafting_ns)
{
    double plain, won;

    assert(answers > 0 && rows >= answers && tokens >= 0);
    if (rows > UTILITY_ROWS || ns <= 0)
        return;
    u->passes[rows].newest[u->passes[rows].n++ % UTILITY_NEWEST] = ns;
    u->passes[rows].ns = median(u->passes[rows].newest, u->passes[rows].n < UTILITY_NEWEST
                                                            ? u->passes[rows].n
                                                            : UTILITY_NEWEST);
    plain = u->passes[answers].ns;
    u->time = u->time * FADE + ns + drafting_ns;
    if (rows == answers) {
        u->drafted = 0;
        u->worth = u->worth * FADE + ns;
        won = PAID_IN - (plain > 0 ? drafting_ns / plain : 0);
    } else {
        u->drafted++;
        u->worth = u->worth * FADE + plain * tokens / answers;
        won = plain > 0 ? (double)tokens / answers - (ns + drafting_ns) / plain : 0;
    }
    u->account = u->account + won < MOST_IN ? u->account + won : MOST_IN;
}

double utility_gain(const struct utility *u)
{
    return u->time > 0 ? u->worth / u->time - 1 : 0;
}
