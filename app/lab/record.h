/* From the engine's routing to a trace. The engine's thread; the owner closes it. */
#ifndef APP_LAB_RECORD_H
#define APP_LAB_RECORD_H

#include "engine/run/config.h"

struct recorder;

/* The file is created once the model is known: recorder_model. */
int recorder_open(struct recorder **out, const char *path, bool scores, bool logprobs,
                  struct error *e);
/* At the start of every engine. ERR_USAGE: a model without a router, or another model than the
 * first one's. ERR_IO. */
int recorder_model(struct recorder *r, const struct engine_info *info, struct error *e);
int recorder_rows(struct recorder *r, const struct routing *from, struct error *e);
const char *recorder_path(const struct recorder *r);
uint64_t recorder_tokens(const struct recorder *r);      /* written so far */
int recorder_close(struct recorder *r, struct error *e); /* accepts NULL */

struct trace_head;
/* What a trace of this model says of it. ERR_USAGE: no layer has a router. */
int recorder_head(struct trace_head *h, const struct model *m, bool scores, struct error *e);

#endif
