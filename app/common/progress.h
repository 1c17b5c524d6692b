/* A bar on standard error, where that is a terminal. Main thread. */
#ifndef APP_COMMON_PROGRESS_H
#define APP_COMMON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* "perplexity" */
    uint64_t begun, drawn_at;
    bool drawn;
    double already; /* of `done`, what was there before it began: the time left does not count it */
};

void progress_begin(struct progress *p, const char *what);
/* At most five times a second, and when all is done. total 0: nobody knows how much it is; then
 * there is no bar. `note` (may be NULL) stands behind it. */
void progress_draw(struct progress *p, double done, double total, const char *note);
/* Takes the bar away. */
void progress_end(struct progress *p);

#endif
