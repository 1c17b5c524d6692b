/* One whole measured turn, for --bench-prompts and --spec-sweep. From an empty session, so that
 * every run of a prompt prefills the same tokens. Main thread. */
#ifndef APP_BENCH_MEASURED_TURN_H
#define APP_BENCH_MEASURED_TURN_H

#include "engine/base/series.h"
#include "engine/run/engine.h"

struct measured_turn {
    struct series *token_ms; /* gets the time of every token except the first; may be NULL */
    uint64_t text;           /* out: hash of the answer's tokens */
    int rc;                  /* of the current turn: ERR_MEMORY, a sample was lost */
};

/* Runs a turn; *done gets its figures. The engine's errors; ERR_MEMORY; ERR_CANCELLED: a signal
 * interrupted it. */
int measured_turn_run(struct measured_turn *m, struct engine *g, const struct dialogue *said,
                      const struct turn *t, struct turn_done_event *done, struct error *e);

#endif
