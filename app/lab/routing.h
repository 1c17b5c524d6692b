/* --routing-trace, --routing-replay, --expert-edit: recording what every answer's tokens chose,
 * giving them what others chose, and changing what can be chosen. One of them a run: opened before
 * an engine is, closed after it; the engine's thread calls in between, and begins and ends further
 * traces (/routing-trace). */
#ifndef APP_LAB_ROUTING_H
#define APP_LAB_ROUTING_H

#include "app/options/options.h"
#include "engine/run/config.h"

#include <stdint.h>

/* Checks the flags against the mode of this name (app/modes.h), and opens the trace to be replayed.
 * ERR_USAGE, and errors of trace_open. */
int routing_begin(const struct options *o, const char *mode, struct error *e);
/* For engine_config.routing; NULL: neither was asked for. */
const struct routing_hooks *routing_hooks_get(void);
/* /routing-trace: begins a trace in the engine that runs, or (path NULL) finishes the one there is;
 * *recorded: its tokens. The engine's thread, outside a turn. ERR_USAGE, ERR_IO, ERR_MEMORY. */
int routing_record(struct engine *g, const char *path, bool scores, bool logprobs,
                   uint64_t *recorded, struct error *e);
/* The trace that is being written; NULL: none. The engine's thread. */
const char *routing_recorded_path(void);
/* For engine_config.expert_edits: the lines of --expert-edit; *n 0: none. */
const char *const *routing_edits(int *n);
/* Reads those of o in their place, for an engine that is opened with a receipt's options. */
int routing_edits_of(const struct options *o, struct error *e);
/* Finishes the trace; the first error counts. */
int routing_end(struct error *e);

#endif
