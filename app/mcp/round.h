/* One round of calls: those of one answer, run one after the other, each after it was permitted. A
 * state machine, so that it can run beside a screen; the caller waits on mcp_fd. One thread. */
#ifndef APP_MCP_ROUND_H
#define APP_MCP_ROUND_H

#include "app/mcp/mcp.h"

enum round_state {
    ROUND_ASKS, /* the current call needs permission: round_permit */
    ROUND_RUNS, /* wait for mcp_fd, then round_step */
    ROUND_OVER
};

enum round_verdict { ROUND_RAN, ROUND_FAILED, ROUND_REFUSED, ROUND_STOPPED };

/* What came of a call. */
struct round_outcome {
    char *text; /* for the model, mem_*, the round's */
    enum round_verdict verdict;
    double seconds; /* 0: it did not run */
};

/* Zeroed: none. */
struct round {
    struct mcp *mcp;
    json_t *calls; /* in OpenAI's form, arguments as text */
    struct round_outcome *outcomes;
    size_t at, n;                /* the current one, of so many */
    const struct mcp_tool *tool; /* ROUND_ASKS, ROUND_RUNS: what it calls, */
    json_t *arguments;           /* and with what: an object */
    bool permitted;              /* it runs */
    const char *stopped;         /* the result of those that will not run any more; NULL: go on */
};

/* Takes the calls. mcp_refresh must not be called before it is over. ERR_MEMORY: they are freed. */
int round_begin(struct round *r, struct mcp *m, json_t *calls, struct error *e);
void round_release(struct round *r); /* leaves zeros; cancels a running call */
bool round_on(const struct round *r);
/* Goes on as far as that is possible now. */
enum round_state round_step(struct round *r);
/* Whether the current call is to be run; if not, `why` is its result. */
void round_permit(struct round *r, bool run, const char *why);
/* No further call is run, and the running one is cancelled: it is over soon (round_step). why: a
 * constant text, the result of the others. */
void round_stop(struct round *r, const char *why);
/* Runs all that may run without a question, waiting here; `why` is the result of the others.
 * refused: called for each of those (may be NULL). */
void round_run(struct round *r, const struct stop *stop, const char *why,
               void (*refused)(void *ctx, const char *name), void *ctx);

/* The name in call i, as the model wrote it: untrusted. */
const char *round_name(const struct round *r, size_t i);

#endif
