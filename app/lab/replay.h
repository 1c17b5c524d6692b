/* Recorded routing imposed on a run: the experts and weights of a trace, by sequence and position.
 * A session at its start takes the first sequence of the trace that begins with its tokens, each
 * once, and from the beginning again when all that do were taken. The engine's thread. */
#ifndef APP_LAB_REPLAY_H
#define APP_LAB_REPLAY_H

#include "engine/run/config.h"

struct routing_replay;

/* Errors of trace_open; ERR_INPUT: no sequence of it is whole. */
int routing_replay_open(struct routing_replay **out, const char *path, struct error *e);
/* ERR_INPUT: the trace is of a model of another shape. */
int routing_replay_model(struct routing_replay *r, const struct engine_info *info, struct error *e);
/* As routing_hooks.impose. ERR_INPUT: other tokens than the trace's, or it ends before. */
int routing_replay_rows(struct routing_replay *r, const struct session *s, int pos, const int *ids,
                        int rows, uint16_t *experts, float *weights, size_t stride,
                        struct error *e);
void routing_replay_close(struct routing_replay *r); /* accepts NULL */

#endif
