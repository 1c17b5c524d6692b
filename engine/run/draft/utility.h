/* Whether drafts pay, and how many. A pass that verifies drafts takes longer than one without (with
 * experts much longer: more rows choose more of them) and makes more tokens where they are right.
 * What passes take is measured in the passes themselves, rows by rows, with all that is done for
 * their tokens; now and then one without drafts is asked for, so that there is something to compare
 * with. What drafts may lose is an account: passes without drafts pay a small share of their time
 * in, one with drafts what it gained or lost, and no more is drafted than the account bears if all
 * of it is wrong. Drafts that cost nothing to make are watched while they are off: were they right
 * often enough to have won, they are tried again. Pure: who asks brings the times
 * (engine/run/speculate.c, engine's thread). */
#ifndef ENGINE_RUN_DRAFT_UTILITY_H
#define ENGINE_RUN_DRAFT_UTILITY_H

#include <stdbool.h>
#include <stdint.h>

#define UTILITY_ROWS 32  /* of a pass, at most */
#define UTILITY_NEWEST 5 /* passes of a kind that its time is the median of */

struct utility {
    struct {
        double newest[UTILITY_NEWEST], ns; /* ns: their median; 0: none yet */
        double experts;                    /* a layer, on average; 0: not known */
        int n;
        uint64_t when;          /* the newest of them, in passes with drafts */
        uint64_t at;            /* and in passes of any kind */
    } passes[UTILITY_ROWS + 1]; /* by rows */
    double expert;              /* of a pass of one row: what one more expert a layer takes */
    double account;             /* in passes without drafts */
    double missed;              /* what drafts would have won while they were off, likewise */
    double draft_ns;            /* a drafted token takes where drafting costs; 0: not known */
    int drafted;                /* passes with drafts since one without */
    uint64_t all_drafted, all;  /* passes with drafts, and of any kind */
    double time, worth;         /* of late: spent, and what the same tokens take without drafts */
};

/* Drafts that could stand beside `answers` rows. */
struct utility_offer {
    int answers, n;
    const float *p; /* n, falling: how probable it is that the i-th and all it rests on are right */
    /* n + 1: different experts a layer that the pass would touch with i of them; NULL: not known */
    const float *experts;
    bool to_draft; /* they are to be drafted yet, which costs */
};

/* expert: see struct utility; 0: there are none. */
void utility_init(struct utility *u, double expert);
/* Somebody else drafts: what passes take is known still. */
void utility_restart(struct utility *u);
/* What passes take is not known any more: blocks have moved. */
void utility_forget(struct utility *u);
/* An answer to another question begins: of what was won before, little can be lost. */
void utility_begin(struct utility *u);
/* What a pass of so many rows takes, in those of a pass of `answers` rows: measured of late, or
 * guessed from the nearest ones that were and the experts it touches (0: as many as usual). */
double utility_cost(const struct utility *u, int answers, int rows, double experts);
/* How many of the drafts pay. *gain: tokens a second then, in those without drafts. 0: none do. */
int utility_rows(const struct utility *u, const struct utility_offer *o, double *gain);
/* Whether the account bears that somebody drafts for one answer to no purpose. */
bool utility_bears(const struct utility *u);
/* How many of so many may be verified now. */
int utility_may(const struct utility *u, const struct utility_offer *o, int rows);
/* n tokens were drafted in so much time, by a drafter that costs time. */
void utility_drafted(struct utility *u, int n, double ns);
/* A pass of `rows` rows for `answers` answers touched so many experts a layer (0: not known), made
 * so many tokens and took ns, drafting before it drafting_ns. */
void utility_learn(struct utility *u, int answers, int rows, double experts, int tokens, double ns,
                   double drafting_ns);
/* Drafts that were not made would have made so many tokens in a pass as long as `cost` passes. */
void utility_missed(struct utility *u, int tokens, double cost);
/* Of late: by which share drafts made tokens faster; negative: slower. */
double utility_gain(const struct utility *u);

#endif
