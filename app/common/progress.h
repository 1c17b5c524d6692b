/* A bar on standard error for work whose length is known, where that is a terminal. Main thread. */
#ifndef APP_COMMON_PROGRESS_H
#define APP_COMMON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* "perplexity" */
    uint64_t begun, drawn_at;
    bool drawn;
};

void progress_begin(struct progress *p, const char *what);
/* At most five times a second, and when all is done. `note` (may be NULL) stands behind the bar. */
void progress_draw(struct progress *p, double done, double total, const char *note);
/* Takes the bar away. */
void progress_end(struct progress *p);

#endif
