/* The models that a server can load (--models-dir), and the requests that wait for one of them: one
 * model is loaded at a time. A request that names another one makes it wanted; from then on what
 * comes waits here, what is under way ends, the main thread loads it (app/serve/keeper.h), and what
 * waits is read again at the desk: first what names the loaded model, the rest makes the next one
 * wanted. Ownership: the server's; a reference of each request that waits. Threads: any, but for
 * what says main. */
#ifndef APP_SERVE_SHELF_H
#define APP_SERVE_SHELF_H

#include "app/serve/exchange.h"
#include "app/serve/server.h"

#define SHELF_NAME 256

struct shelf;

/* Main, before requests come. path: the model that is loaded first, id its name; folders: n, each
 * read once. ERR_IO (a folder), ERR_MEMORY. */
int shelf_open(struct shelf **out, const char *path, const char *id, char *const *folders, size_t n,
               struct error *e);
void shelf_close(struct shelf *s); /* accepts NULL; nobody waits any more */

/* Constant after shelf_open. NULL behind the last one. */
const char *shelf_id(const struct shelf *s, size_t i);
const char *shelf_path(const struct shelf *s, size_t i);
/* By its name or its file's, with or without .gguf, or its path; -1: there is none. */
int shelf_find(const struct shelf *s, const char *name);
int shelf_loaded(struct shelf *s);

/* What the server knows of its model (worker, names, sampling) stays what it is until shelf_leave.
 * Who only looks enters at once; a request of the desk's (x) may have to wait: then false, and it
 * is read again later. */
void shelf_look(struct shelf *s);
bool shelf_enter(struct shelf *s, struct exchange *x);
void shelf_leave(struct shelf *s);
/* x, which was entered, is for another model: it waits. -1: too many do. */
int shelf_want(struct shelf *s, struct exchange *x, int model, struct refusal *r);
int shelf_waiting(struct shelf *s); /* requests */

/* ---- main ---- */

int shelf_wanted(struct shelf *s); /* -1: none */
/* While one is wanted: all who may enter have, and have left. */
bool shelf_quiet(struct shelf *s);
/* Nobody else is between shelf_enter and shelf_leave. */
void shelf_lock(struct shelf *s);
void shelf_unlock(struct shelf *s);
/* The model is loaded: who waits for it is read, by `read`, which takes a reference of its own; -1:
 * it has no memory. */
void shelf_settle(struct shelf *s, int model, int (*read)(struct exchange *x));
/* It cannot be: who waits for it is told why. The one before is (or will be) loaded. */
void shelf_refuse(struct shelf *s, int model, const struct refusal *why);
/* The server ends: all who wait are told so. */
void shelf_end(struct shelf *s);
/* Clients that have left, and streams that were silent for long. Now and then. */
void shelf_watch(struct shelf *s);

#endif
