/* Whether drafts pay, and how many. A pass that verifies drafts takes longer than one without (with
 * experts much longer: more rows choose more of them) and makes more tokens where they are right.
 * The cost of passes is measured in the passes themselves, per number of rows, including all work
 * for their tokens; now and then a pass without drafts is requested, for comparison. The loss is
 * limited by an account: passes without drafts pay in a small share of their time, passes with
 * drafts what they gained or lost, and a draft is at most as long as the account covers if all of
 * it is wrong. Drafts that cost nothing to make are still checked while they are off: if they would
 * have won often enough, they are tried again. Pure: the caller passes the times
 * (engine/run/speculate.c, engine's thread). */
#ifndef ENGINE_RUN_DRAFT_UTILITY_H
#define ENGINE_RUN_DRAFT_UTILITY_H

#include <stdbool.h>
#include <stdint.h>

#define UTILITY_ROWS 32  /* most rows of a pass */
#define UTILITY_NEWEST 5 /* passes per number of rows, whose median is used */

struct utility {
    struct {
        double newest[UTILITY_NEWEST], ns; /* ns: their median; 0: none yet */
        double experts;                    /* per layer, on average; 0: not known */
        int n;
        uint64_t when;          /* index of the newest, among passes with drafts */
        uint64_t at;            /* and among all passes */
    } passes[UTILITY_ROWS + 1]; /* by number of rows */
    double expert;              /* cost of one more expert per layer, in passes of one row */
    double account;             /* balance, in passes without drafts */
    double missed;              /* estimated gain of drafts while they were off, likewise */
    double draft_ns;            /* time per drafted token if drafting costs; 0: not known */
    int drafted;                /* consecutive passes with drafts */
    uint64_t all_drafted, all;  /* passes with drafts, and of any kind */
    double time, worth;         /* recently: time spent, and that of the same tokens without */
};

/* Drafts available to a pass with `answers` rows. */
struct utility_offer {
    int answers, n;
    const float *p; /* n, falling: probability that the i-th and all it depends on are right */
    /* n + 1: different experts per layer touched by the pass with i of them; NULL: not known */
    const float *experts;
    bool to_draft; /* they still have to be drafted, which costs time */
};

/* expert: see struct utility; 0: no experts. */
void utility_init(struct utility *u, double expert);
/* Call when the drafter changes: keeps the measured costs of passes. */
void utility_restart(struct utility *u);
/* Call after blocks have moved: discards the measured costs of passes. */
void utility_forget(struct utility *u);
/* Call when a new answer starts: limits how much of earlier gains can be lost. */
void utility_begin(struct utility *u);
/* Cost of a pass of so many rows, in passes of `answers` rows: measured recently, or estimated from
 * the nearest measured ones and the experts it touches (0: as many as usual). */
double utility_cost(const struct utility *u, int answers, int rows, double experts);
/* How many of the drafts pay. *gain: tokens a second with them / without. 0: none do. */
int utility_rows(const struct utility *u, const struct utility_offer *o, double *gain);
/* Whether the account covers drafting in vain for one answer. */
bool utility_bears(const struct utility *u);
/* How many of the offered drafts may be verified now. */
int utility_may(const struct utility *u, const struct utility_offer *o, int rows);
/* n tokens were drafted in `ns`, by a drafter that costs time. */
void utility_drafted(struct utility *u, int n, double ns);
/* A pass of `rows` rows for `answers` answers touched so many experts per layer (0: not known),
 * made so many tokens and took ns, drafting before it drafting_ns. */
void utility_learn(struct utility *u, int answers, int rows, double experts, int tokens, double ns,
                   double drafting_ns);
/* Drafts that were not made would have made so many tokens in a pass as long as `cost` passes. */
void utility_missed(struct utility *u, int tokens, double cost);
/* Recent relative speedup by drafts; negative: slower. */
double utility_gain(const struct utility *u);

#endif
