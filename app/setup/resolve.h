/* --place and /place: from the user's text to a plan. Thread: place_opened, place_apply and
 * measurements run on the thread that opened the engine (the worker's in a chat); place_resolve and
 * place_save on any thread. */
#ifndef APP_SETUP_RESOLVE_H
#define APP_SETUP_RESOLVE_H

#include "app/options/options.h"
#include "app/setup/plan_file.h"
#include "engine/run/engine.h"

#define PLACE_NAMES 144

/* --place help: strategies, then the available plan files, a line each. */
int place_help_run(struct options *o, struct error *e);
/* The same text (mem_* memory, NULL: no memory), for /place help. */
char *place_help_text(void);

/* What the options ask of a newly opened engine: a copy, so that the opening thread does not read
 * options that /set may change. */
struct placement_request {
    /* --place, --place-prompt, --profile, --place-script; NULL: not given */
    char *place, *prompt, *profile, *script;
    char *cache_dir; /* NULL: none */
    int bandwidth;   /* enum bandwidth_mode */
};
int placement_request_init(struct placement_request *w, const struct options *o,
                           const char *cache_dir, struct error *e);
void placement_request_release(struct placement_request *w);
/* Applies a request to a newly opened engine (engine_config.opened; ctx is the struct
 * placement_request, read only). Without --place: auto if there is a stored measurement for this
 * machine, else cpu. */
int place_opened(void *ctx, struct engine *g, struct error *e);
/* Applies the user's text ("prompt NAME" for prompts) and waits until it is in force (outside a
 * turn). */
int place_apply(struct engine *g, const char *text, struct error *e);
/* Puts a copy of a plan in force and waits for it (outside a turn). */
int place_plan(struct engine *g, const struct plan *p, struct error *e);
/* The same for plans that were in force before; both are taken. p NULL: none was saved; prompts
 * NULL: they had that of the tokens. */
void place_restore(struct engine *g, struct plan *p, struct plan *prompts);
/* Like place_apply, for repeated measurements: *kept (NULL at first) stores the strategy's first
 * result, which is used from then on, because counts grow while measuring. A strategy that follows
 * the counts is evaluated every time. */
int place_kept(struct engine *g, const char *text, struct plan **kept, struct error *e);
/* The same for prompts; text NULL: they have the tokens' plan. */
int place_prompt_kept(struct engine *g, const char *text, struct plan **kept, struct error *e);
/* "cpu", or "cpu, prompts gpu": the requested plans; returns out. */
const char *place_names(const struct engine *g, char out[PLACE_NAMES]);
/* What plan files are validated against. names: DEVICE_MAX pointers for the shape to point at.
 * "gpu" is device 1, opened when a plan wants it. */
void place_shape(struct plan_shape *shape, const char *names[DEVICE_MAX],
                 const struct engine_info *info);
/* text: as for place_apply: a strategy (0 is returned: pass the text to engine_place or
 * COMMAND_PLACE) or a plan file (1: *plan is filled, for engine_plan_set or COMMAND_PLAN, or their
 * likes for prompts by planner_phase). ERR_USAGE, ERR_IO, ERR_MEMORY. */
int place_resolve(const char *text, const struct engine_info *info, struct plan **plan,
                  struct error *e);
/* Writes the plan for /place save: a name without a slash goes to the user's folder of placements.
 * path_out (may be NULL) gets the path. */
int place_save(const struct plan *p, const char *name, const struct engine_info *info,
               char *path_out, size_t size, struct error *e);

#endif
