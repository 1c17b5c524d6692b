/* The models that a server can load (--models-dir), and the requests that wait for one of them: one
 * model is loaded at a time. A request for another model makes that wanted; from then on new
 * requests wait here, running ones finish, the main thread loads the model
 * (app/serve/model_switch.h), and a request thread reads the waiting requests again: those for the
 * loaded model are answered, the others make the next model wanted. Ownership: the server's; a
 * reference of each waiting request. Threads: any, except those marked main. */
#ifndef APP_SERVE_COMMON_MODEL_REGISTRY_H
#define APP_SERVE_COMMON_MODEL_REGISTRY_H

#include "app/serve/common/exchange.h"
#include "app/serve/common/server.h"

#define SHELF_NAME 256

struct model_registry;

/* Main, before requests arrive. path: the model that is loaded first, id its name; folders: n, each
 * read once. ERR_IO (a folder), ERR_MEMORY. */
int registry_open(struct model_registry **out, const char *path, const char *id,
                  char *const *folders, size_t n, struct error *e);
void registry_close(struct model_registry *s); /* accepts NULL; no request waits any more */

/* What is in it stays; registry_add appends. NULL after the last one. */
const char *registry_id(const struct model_registry *s, size_t i);
const char *registry_path(const struct model_registry *s, size_t i);
/* Adds a model under that name unless it is taken. Any thread. -1: no room, no memory. */
int registry_add(struct model_registry *s, const char *path, const char *id);
/* By its name or its file's, with or without .gguf and :latest, or its path; -1: no such model. */
int registry_find(const struct model_registry *s, const char *name);
int registry_loaded(struct model_registry *s);

/* Between registry_enter and registry_leave the server's data about its model (worker, names,
 * sampling) does not change. Readers enter at once; a request of the pool (x) may have to wait:
 * then false, and it is read again later. */
void registry_look(struct model_registry *s);
bool registry_enter(struct model_registry *s, struct exchange *x);
void registry_leave(struct model_registry *s);
/* x, which has entered, is for another model: it waits. -1: the queue is full. */
int registry_want(struct model_registry *s, struct exchange *x, int model, struct refusal *r);
int registry_waiting(struct model_registry *s); /* waiting requests */

/* How long the loaded model stays without requests, as the newest request that says so wishes: ns,
 * negative: until the server ends. */
void registry_keep(struct model_registry *s, int64_t ns);
/* When it goes, on the clock of clock_now; 0: never, or it is not loaded. */
uint64_t registry_expires(struct model_registry *s);
/* It was unloaded: the next request that needs a model loads one. Between registry_enter and
 * registry_leave this does not change. */
bool registry_asleep(struct model_registry *s);

/* ---- main ---- */

/* The model is in use, or was just now. */
void registry_use(struct model_registry *s);
/* Under registry_lock: it is unloaded now, until registry_settle. */
void registry_sleep(struct model_registry *s);
int registry_wanted(struct model_registry *s); /* -1: none */
/* While a model is wanted: all that were admitted have left. */
bool registry_quiet(struct model_registry *s);
/* Nothing else is between registry_enter and registry_leave. */
void registry_lock(struct model_registry *s);
void registry_unlock(struct model_registry *s);
/* The model is loaded: its waiting requests are passed to `read`, which takes a reference of its
 * own; -1: no memory. */
void registry_settle(struct model_registry *s, int model, int (*read)(struct exchange *x));
/* It cannot be loaded: its waiting requests are refused with the reason. The previous model is, or
 * will be, loaded; while none is (registry_asleep), the next request's is wanted. */
void registry_refuse(struct model_registry *s, int model, const struct refusal *why);
/* The server is stopping: all waiting requests are refused. */
void registry_end(struct model_registry *s);
/* Removes disconnected clients and sends keep-alives to long silent streams. Call now and then. */
void registry_watch(struct model_registry *s);

#endif
