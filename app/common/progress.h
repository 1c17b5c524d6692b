/* A progress bar on standard error, if that is a terminal. Main thread. */
#ifndef APP_COMMON_PROGRESS_H
#define APP_COMMON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* "perplexity" */
    uint64_t begun, drawn_at;
    bool drawn;
    bool lines;     /* without a terminal: a line a second, "moetop: WHAT N of M bytes" */
    double already; /* part of `done` from before the start: not used for the time left */
};

void progress_begin(struct progress *p, const char *what);
/* Draws at most five times a second, and when all is done. total 0: unknown, so there is no bar.
 * `note` (may be NULL) is printed after it. */
void progress_draw(struct progress *p, double done, double total, const char *note);
/* Removes the bar. */
void progress_end(struct progress *p);

#endif
