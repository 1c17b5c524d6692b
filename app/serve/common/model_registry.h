/* The models that a server can load (--models-dir), and the requests that wait for one of them: one
 * model is loaded at a time. A request that names another one makes it wanted; from then on what
 * comes waits here, what is under way ends, the main thread loads it (app/serve/model_switch.h),
 * and what waits is read again by a request thread: first what names the loaded model, the rest
 * makes the next one wanted. Ownership: the server's; a reference of each request that waits.
 * Threads: any, but for what says main. */
#ifndef APP_SERVE_COMMON_MODEL_REGISTRY_H
#define APP_SERVE_COMMON_MODEL_REGISTRY_H

#include "app/serve/common/exchange.h"
#include "app/serve/common/server.h"

#define SHELF_NAME 256

struct model_registry;

/* Main, before requests come. path: the model that is loaded first, id its name; folders: n, each
 * read once. ERR_IO (a folder), ERR_MEMORY. */
int registry_open(struct model_registry **out, const char *path, const char *id,
                  char *const *folders, size_t n, struct error *e);
void registry_close(struct model_registry *s); /* accepts NULL; nobody waits any more */

/* Constant after registry_open. NULL behind the last one. */
const char *registry_id(const struct model_registry *s, size_t i);
const char *registry_path(const struct model_registry *s, size_t i);
/* By its name or its file's, with or without .gguf, or its path; -1: there is none. */
int registry_find(const struct model_registry *s, const char *name);
int registry_loaded(struct model_registry *s);

/* What the server knows of its model (worker, names, sampling) stays what it is until
 * registry_leave. Who only looks enters at once; a request of the request pool's (x) may have to
 * wait: then false, and it is read again later. */
void registry_look(struct model_registry *s);
bool registry_enter(struct model_registry *s, struct exchange *x);
void registry_leave(struct model_registry *s);
/* x, which was entered, is for another model: it waits. -1: too many do. */
int registry_want(struct model_registry *s, struct exchange *x, int model, struct refusal *r);
int registry_waiting(struct model_registry *s); /* requests */

/* ---- main ---- */

int registry_wanted(struct model_registry *s); /* -1: none */
/* While one is wanted: all who may enter have, and have left. */
bool registry_quiet(struct model_registry *s);
/* Nobody else is between registry_enter and registry_leave. */
void registry_lock(struct model_registry *s);
void registry_unlock(struct model_registry *s);
/* The model is loaded: who waits for it is read, by `read`, which takes a reference of its own; -1:
 * it has no memory. */
void registry_settle(struct model_registry *s, int model, int (*read)(struct exchange *x));
/* It cannot be loaded: requests that wait for it are refused with the reason. The previous model
 * is, or will be, loaded. */
void registry_refuse(struct model_registry *s, int model, const struct refusal *why);
/* The server ends: all waiting requests are refused. */
void registry_end(struct model_registry *s);
/* Clients that have left, and streams that were silent for long. Now and then. */
void registry_watch(struct model_registry *s);

#endif
