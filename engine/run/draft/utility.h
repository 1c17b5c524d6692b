/* Whether drafts pay, and how many. A pass that verifies drafts takes longer than one without (with
 * experts much longer: more rows choose more of them) and makes more tokens where they are right.
 * What passes take is measured in the passes themselves, rows by rows; now and then one without
 * drafts is asked for, so that there is something to compare with. What drafts may lose is an
 * account: passes without drafts pay a hundredth of their time in, one with drafts what it gained
 * or lost, and drafts are tried while something is in it. Pure: who asks brings the times
 * (engine/run/speculate.c, engine's thread). */
#ifndef ENGINE_RUN_DRAFT_UTILITY_H
#define ENGINE_RUN_DRAFT_UTILITY_H

#include <stdbool.h>

#define UTILITY_ROWS 32  /* of a pass, at most */
#define UTILITY_NEWEST 5 /* passes of a kind that its time is the median of */

struct utility {
    struct {
        double newest[UTILITY_NEWEST], ns; /* ns: their median; 0: none yet */
        int n;
    } passes[UTILITY_ROWS + 1]; /* by rows */
    double account;             /* in passes without drafts */
    double draft_ns;            /* a drafted token takes where drafting costs; 0: not known */
    int drafted;                /* passes with drafts since one without */
    double time, worth;         /* of late: spent, and what the same tokens take without drafts */
};

void utility_init(struct utility *u);
/* What passes take is not known any more: blocks have moved. */
void utility_forget(struct utility *u);
/* What a pass of so many rows takes, in those of a pass of `answers` rows: measured, or guessed
 * from the nearest ones measured. */
double utility_cost(const struct utility *u, int answers, int rows);
/* How many of n drafted rows pay beside `answers` rows: p[i], falling, is how probable it is that
 * the i-th and all it rests on are right; to_draft: they are to be drafted yet, which costs. *gain:
 * tokens a second then, in those without drafts. 0: none do. */
int utility_rows(const struct utility *u, int answers, const float *p, int n, bool to_draft,
                 double *gain);
/* Whether drafts that pay may be tried now. */
bool utility_may(const struct utility *u, int answers);
/* n tokens were drafted in so much time, by who takes time for it. */
void utility_drafted(struct utility *u, int n, double ns);
/* A pass of `rows` rows for `answers` answers made so many tokens and took ns, drafting before it
 * drafting_ns. */
void utility_learn(struct utility *u, int answers, int rows, int tokens, double ns,
                   double drafting_ns);
/* Of late: by which share drafts made tokens faster; negative: slower. */
double utility_gain(const struct utility *u);

#endif
