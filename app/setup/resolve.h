/* --place and /place: from what the user typed to a plan. Thread: place_opened, place_apply and
 * what measures run on the thread that opened the engine (the worker's in a chat); place_resolve
 * and place_save on any thread. */
#ifndef APP_SETUP_RESOLVE_H
#define APP_SETUP_RESOLVE_H

#include "app/options/options.h"
#include "app/setup/plan_file.h"
#include "engine/run/engine.h"

/* --place help: strategies, then the plan files at hand, a line each. */
int place_help_run(struct options *o, struct error *e);
/* The same text (mem_* memory, NULL: none left), for /place help. */
char *place_help_text(void);

/* What the options ask of an engine just opened: a copy, so that the thread that opens it reads
 * nothing that /set may change meanwhile. */
struct placement_request {
    char *place, *profile, *script; /* --place, --profile, --place-script; NULL: not given */
    char *cache_dir;                /* NULL: none */
    int bandwidth;                  /* enum bandwidth_mode */
};
int placement_request_init(struct placement_request *w, const struct options *o,
                           const char *cache_dir, struct error *e);
void placement_request_release(struct placement_request *w);
/* Applies a request to an engine just opened (engine_config.opened; ctx is the struct
 * placement_request, which is only read). Without --place: auto where something was measured on
 * this machine before, else cpu. */
int place_opened(void *ctx, struct engine *g, struct error *e);
/* Applies what the user typed and waits until it is in force (outside a turn). */
int place_apply(struct engine *g, const char *text, struct error *e);
/* Puts a copy of a plan in force and waits for it (outside a turn). */
int place_plan(struct engine *g, const struct plan *p, struct error *e);
/* The same, of a plan that was in force before; p is taken, and NULL does nothing. */
void place_restore(struct engine *g, struct plan *p);
/* Like place_apply, for what is measured again and again: *kept (NULL at first) gets what the
 * strategy answers the first time, and that is put in force from then on, because the counts grow
 * while measuring. A strategy that is meant to follow them is asked every time. */
int place_kept(struct engine *g, const char *text, struct plan **kept, struct error *e);
/* What plan files are validated against. names: DEVICE_MAX pointers for the shape to point at.
 * "gpu" is device 1, opened when a plan wants it. */
void place_shape(struct plan_shape *shape, const char *names[DEVICE_MAX],
                 const struct engine_info *info);
/* text: a strategy (0 is returned: give the text to engine_place or COMMAND_PLACE) or a plan file
 * (1: *plan is filled, for engine_plan_set or COMMAND_PLAN). ERR_USAGE, ERR_IO, ERR_MEMORY. */
int place_resolve(const char *text, const struct engine_info *info, struct plan **plan,
                  struct error *e);
/* Writes the plan for /place save: a name without a slash goes to the user's folder of placements.
 * path_out (may be NULL) tells where. */
int place_save(const struct plan *p, const char *name, const struct engine_info *info,
               char *path_out, size_t size, struct error *e);

#endif
