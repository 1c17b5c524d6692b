/* See utility.h. */
#include "engine/run/draft/utility.h"

#include <assert.h>
#include <string.h>

#define AT_ONCE 0.6   /* initial balance of the account */
#define PAID_IN 0.005 /* of a pass without drafts */
#define MOST_IN 4.0   /* upper limit: old gains mean nothing now */
#define BEGIN_IN 2.0  /* upper limit at the start of another answer */
#define WOULD_WIN 1.0 /* estimated gain in passes before drafts are tried again */
#define TRY_AGAIN 1.5 /* balance then */
#define WORTH_IT 1.03
#define ROW_GUESS 0.4     /* in passes of one row: most cost of one more row, if unmeasured */
#define ROW_LEAST 0.05    /* and least */
#define ROW_ITSELF 0.08   /* likewise, without the experts it chooses */
#define DRAFT_GUESS 0.1   /* cost of drafting a token, likewise */
#define AGAIN 32          /* passes with drafts until one without is measured */
#define OF_LATE 32        /* passes with drafts: older measurements expire */
#define OF_LATE_ALL 160   /* likewise, passes of any kind */
#define FADE 0.99         /* decay of recent figures */
#define EXPERTS_FADE 0.75 /* decay of the number of experts touched */

void utility_init(struct utility *u, double expert)
{
    *u = (struct utility){.account = AT_ONCE, .expert = expert};
}

void utility_restart(struct utility *u)
{
    struct utility before = *u;

    utility_init(u, before.expert);
    memcpy(u->passes, before.passes, sizeof u->passes);
    u->all_drafted = before.all_drafted;
    u->all = before.all;
}

void utility_forget(struct utility *u)
{
    memset(u->passes, 0, sizeof u->passes);
}

void utility_begin(struct utility *u)
{
    u->account = u->account < BEGIN_IN ? u->account : BEGIN_IN;
    u->missed = 0;
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

/* A time that was long because of other load would never be measured again, since so many would not
 * be drafted: so every measurement expires. */
static bool is_known(const struct utility *u, int answers, int rows)
{
    return u->passes[rows].ns > 0 &&
           (rows == answers || (u->all_drafted - u->passes[rows].when < OF_LATE &&
                                u->all - u->passes[rows].at < OF_LATE_ALL));
}

/* The recently measured passes nearest to so many rows; *high beyond the last one: none. */
static void nearest(const struct utility *u, int answers, int rows, int *low, int *high)
{
    *low = *high = rows;
    while (!is_known(u, answers, *low))
        (*low)--;
    while (*high <= UTILITY_ROWS && !is_known(u, answers, *high))
        (*high)++;
}

/* A pass takes at most as long as one of more rows. */
static double time_of(const struct utility *u, int answers, int rows)
{
    double ns = u->passes[rows].ns;

    for (int i = rows + 1; i <= UTILITY_ROWS && rows > answers; i++)
        if (is_known(u, answers, i) && u->passes[i].ns < ns)
            ns = u->passes[i].ns;
    return ns;
}

/* Beyond the last measured pass: the average cost of its rows. */
static double row_beyond(const struct utility *u, int answers, int last)
{
    double each;

    if (last == answers)
        return ROW_GUESS / answers;
    each = (u->passes[last].ns / u->passes[answers].ns - 1) / (last - answers);
    return each > ROW_GUESS / answers   ? ROW_GUESS / answers
           : each < ROW_LEAST / answers ? ROW_LEAST / answers
                                        : each;
}

/* Interpolates between the nearest measured ones; beyond the last one, adds row_beyond per row, or
 * the row's own cost if its experts are known. */
double utility_cost(const struct utility *u, int answers, int rows, double experts)
{
    const double plain = u->passes[answers].ns;
    bool known = experts > 0 && u->expert > 0 && u->passes[answers].experts > 0;
    double cost, usual, part;
    int low, high;

    assert(answers > 0 && rows >= answers && rows <= UTILITY_ROWS && plain > 0);
    nearest(u, answers, rows, &low, &high);
    cost = time_of(u, answers, low) / plain;
    usual = u->passes[low].experts;
    if (high <= UTILITY_ROWS && high > low) {
        part = (double)(rows - low) / (high - low);
        cost += part * (time_of(u, answers, high) / plain - cost);
        usual += part * (u->passes[high].experts - usual);
    } else {
        cost += (known ? ROW_ITSELF / answers : row_beyond(u, answers, low)) * (rows - low);
    }
    return known && usual > 0 ? cost + u->expert * (experts - usual) : cost;
}

/* Cost of the first i drafts, with drafting. */
static double cost_of(const struct utility *u, const struct utility_offer *o, int i)
{
    double draft = !o->to_draft  ? 0
                   : u->draft_ns ? u->draft_ns / u->passes[o->answers].ns
                                 : DRAFT_GUESS;

    return utility_cost(u, o->answers, o->answers + i, o->experts ? (double)o->experts[i] : 0) +
           draft * i;
}

static bool can_tell(const struct utility *u, const struct utility_offer *o)
{
    return o->answers <= UTILITY_ROWS && u->passes[o->answers].n >= 3;
}

int utility_rows(const struct utility *u, const struct utility_offer *o, double *gain)
{
    double tokens = o->answers, best = WORTH_IT;
    int rows = 0;

    *gain = 1;
    if (!can_tell(u, o))
        return 0;
    for (int i = 1; i <= o->n && o->answers + i <= UTILITY_ROWS; i++) {
        double now;

        tokens += (double)o->p[i - 1];
        now = tokens / o->answers / cost_of(u, o, i);
        *gain = now > *gain ? now : *gain;
        if (now > best) {
            best = now;
            rows = i;
        }
    }
    return rows;
}

bool utility_bears(const struct utility *u)
{
    return u->account > 0 && u->passes[1].n >= 3;
}

int utility_may(const struct utility *u, const struct utility_offer *o, int rows)
{
    if (!can_tell(u, o) || u->drafted >= AGAIN)
        return 0;
    while (rows > 0 && cost_of(u, o, rows) - 1 > u->account)
        rows--;
    return rows;
}

void utility_drafted(struct utility *u, int n, double ns)
{
    double each = ns / (n > 0 ? n : 1);

    u->draft_ns = u->draft_ns > 0 ? 0.75 * u->draft_ns + 0.25 * each : each;
}

static void learn_cost(struct utility *u, int answers, int rows, double experts, double ns)
{
    double before = u->passes[rows].experts;
    int n;

    if (!is_known(u, answers, rows))
        u->passes[rows].n = 0;
    u->all_drafted += rows > answers;
    u->passes[rows].when = u->all_drafted;
    u->passes[rows].at = ++u->all;
    u->passes[rows].newest[u->passes[rows].n++ % UTILITY_NEWEST] = ns;
    n = u->passes[rows].n < UTILITY_NEWEST ? u->passes[rows].n : UTILITY_NEWEST;
    u->passes[rows].ns = median(u->passes[rows].newest, n);
    if (experts > 0)
        u->passes[rows].experts = before > 0 ? EXPERTS_FADE * before + (1 - EXPERTS_FADE) * experts
                                             : experts;
}

void utility_learn(struct utility *u, int answers, int rows, double experts, int tokens, double ns,
                   double drafting_ns)
{
    double plain, won, least;

    assert(answers > 0 && rows >= answers && tokens >= 0);
    if (rows > UTILITY_ROWS || ns <= 0)
        return;
    learn_cost(u, answers, rows, experts, ns);
    plain = u->passes[answers].ns;
    u->time = u->time * FADE + ns + drafting_ns;
    if (rows == answers) {
        u->drafted = 0;
        u->worth = u->worth * FADE + ns;
        won = PAID_IN - (plain > 0 ? drafting_ns / plain : 0);
    } else {
        u->drafted++;
        u->worth = u->worth * FADE + plain * tokens / answers;
        /* a pass delayed by other load tells nothing about drafts */
        least = ns < 2 * u->passes[rows].ns ? ns : 2 * u->passes[rows].ns;
        won = plain > 0 ? (double)tokens / answers - (least + drafting_ns) / plain : 0;
    }
    u->account = u->account + won < MOST_IN ? u->account + won : MOST_IN;
}

void utility_missed(struct utility *u, int tokens, double cost)
{
    u->missed = u->missed + tokens - cost > 0 ? u->missed + tokens - cost : 0;
    if (u->missed < WOULD_WIN)
        return;
    u->missed = 0;
    u->account = u->account > TRY_AGAIN ? u->account : TRY_AGAIN;
}

double utility_gain(const struct utility *u)
{
    return u->time > 0 ? u->worth / u->time - 1 : 0;
}
