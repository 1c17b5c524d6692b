/* Answers of /v1/responses that later requests continue (previous_response_id) or fetch: the newest
 * ones, in memory or as files of a folder, which another start finds again. Each is a JSON object
 * of its own (see responses_api.c), found by its id; the oldest go when there are STORE_MOST of
 * them or they take STORE_BYTES. Any thread. */
#ifndef APP_SERVE_COMMON_RESPONSE_STORE_H
#define APP_SERVE_COMMON_RESPONSE_STORE_H

#include "engine/base/error.h"

#include <jansson.h>
#include <stdbool.h>

#define STORE_MOST 1024
#define STORE_BYTES ((size_t)256 << 20)

struct response_store;

/* where: "memory", "none" (then *out is NULL, which all functions accept: nothing is kept), or a
 * folder, which is created. ERR_IO, ERR_MEMORY. */
int response_store_open(struct response_store **out, const char *where, struct error *e);
void response_store_close(struct response_store *s);
/* Keeps o (borrowed). ERR_IO, ERR_MEMORY: it is not kept. */
int response_store_put(struct response_store *s, const char *id, const json_t *o, struct error *e);
/* A new reference; NULL: there is none of this id. */
json_t *response_store_get(struct response_store *s, const char *id);
bool response_store_remove(struct response_store *s, const char *id);

#endif
