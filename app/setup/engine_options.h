/* What the modes share: from options to the engine's own structs. Whoever passes the options is
 * their owner: the main thread (the UI thread of a chat). */
#ifndef APP_SETUP_ENGINE_OPTIONS_H
#define APP_SETUP_ENGINE_OPTIONS_H

#include "app/options/options.h"
#include "app/setup/adapter_list.h"
#include "app/setup/grammar_options.h"
#include "app/setup/overrides.h"
#include "app/setup/resolve.h"
#include "app/setup/sampling_options.h"
#include "engine/run/engine.h"

#include <limits.h>

/* The engine's settings and all that they point to: copies, so that nothing of the options is read
 * once another thread opens the engine. It points into itself: not to be moved, and released after
 * the engine is closed (the worker stopped). */
struct engine_setup {
    struct engine_config config;
    bool page_auto;                   /* --expert-cache auto */
    struct placement_request request; /* config.opened_ctx */
    char model_path[PATH_MAX], draft_path[PATH_MAX], kernels[16], chat_template[32];
    char *device, *prompt_cache, *chat_template_file, *template_globals;
    struct override_list overrides;
    struct adapter_list adapters;
};

/* The options as the engine's settings; no model is looked at beyond its path. Nothing is to be
 * released after a failure. */
int engine_setup_init(const struct options *o, struct engine_setup *s, struct error *e);
/* The same, and checks that the model exists and fits (ERR_FIT with the table printed to stderr;
 * --force overrides). A progress line is drawn on stderr when it is a tty and `progress` is set. */
int engine_setup_prepare(const struct options *o, struct engine_setup *s, bool progress,
                         struct error *e);
/* For chats that are saved: their state is kept too (--warm-chats). ERR_MEMORY. */
int engine_setup_warm(const struct options *o, struct engine_setup *s, struct error *e);
void engine_setup_release(struct engine_setup *s);
/* For the modes that run the engine without a worker: config, open, --place, pace. */
int engine_setup_open(const struct options *o, struct engine **out, struct error *e);
/* The word of --chat-template; NULL: the model's own template. */
const char *chat_template_word(const struct options *o, char *word, size_t size);
/* What the options give the chat template by name (--chat-template-kwargs, --reasoning): JSON,
 * mem_*; NULL: nothing. */
int chat_template_globals(const struct options *o, char **json, struct error *e);
/* Tokens a second to ask of the engine: a model's own pace counts in a chat only. */
double pace_from_options(const struct options *o, bool chat);

#endif
