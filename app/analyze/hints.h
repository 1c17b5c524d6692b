/* Conclusions from the figures: one line each, with the figure it is based on. Any thread. */
#ifndef APP_ANALYZE_HINTS_H
#define APP_ANALYZE_HINTS_H

#include "app/analyze/count.h"
#include "app/analyze/machine.h"

#define ANALYSIS_HINTS 8

struct analysis_hints {
    int n;
    struct analysis_hint {
        const char *key; /* stable, for programs: "experts_on_cpu" */
        char text[240];
    } at[ANALYSIS_HINTS];
};

/* a->why.code not 0: hints that need the machine are omitted. */
void analysis_hints(struct analysis_hints *out, const struct analysis_count *c,
                    const struct hparams *hp, const struct analysis_machine *a);

#endif
