/* Adapters of requests: "lora": [{"id": 0, "scale": 0.5}], and the default scales. Request thread.
 */
#ifndef APP_SERVE_REQUEST_LORA_H
#define APP_SERVE_REQUEST_LORA_H

#include "app/serve/common/refusal.h"
#include "app/serve/common/server.h"

/* Once the model is loaded, before the first request: the command line's scales. */
void lora_begin(struct server *s);
/* list NULL: the defaults; else those it names, 0 for the others. -1: refused. strengths:
 * LORA_ADAPTERS. */
int lora_read(const struct server *s, const json_t *list, float *strengths, struct refusal *r);

#endif
