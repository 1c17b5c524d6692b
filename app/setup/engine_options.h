/* Shared by the modes: from options to the engine's own structs. The caller owns the options: the
 * main thread (the UI thread of a chat). */
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

/* The engine's settings and all that they point to: copies, so that the options are not accessed
 * once another thread opens the engine. Contains pointers into itself: must not be moved, and must
 * be released after the engine is closed (the worker stopped). */
struct engine_setup {
    struct engine_config config;
    bool page_auto;                   /* --expert-cache auto */
    struct placement_request request; /* config.opened_ctx */
    char model_path[PATH_MAX], draft_path[PATH_MAX], kernels[16], chat_template[32];
    char *device, *prompt_cache, *chat_template_file, *template_globals;
    struct override_list overrides;
    struct control_list control;
    struct adapter_list adapters;
};

/* Converts the options to the engine's settings; looks at the model's path only. Nothing to release
 * on failure. */
int engine_setup_init(const struct options *o, struct engine_setup *s, struct error *e);
/* The same, and checks that the model exists and fits (ERR_FIT with the table printed to stderr;
 * --force overrides). A progress line is drawn on stderr when it is a tty and `progress` is set. */
int engine_setup_prepare(const struct options *o, struct engine_setup *s, bool progress,
                         struct error *e);
/* For chats that are saved: stores their KV state too (--warm-chats). ERR_MEMORY. */
int engine_setup_warm(const struct options *o, struct engine_setup *s, struct error *e);
void engine_setup_release(struct engine_setup *s);
/* For the modes that run the engine without a worker: config, open, --place, pace. */
int engine_setup_open(const struct options *o, struct engine **out, struct error *e);
/* The word of --chat-template; NULL: the model's own template. */
const char *chat_template_word(const struct options *o, char *word, size_t size);
/* The template variables of the options (--chat-template-kwargs, --reasoning): JSON, mem_*; NULL:
 * none. */
int chat_template_globals(const struct options *o, char **json, struct error *e);
/* The engine's pace in tokens/s: a model's own pace applies only in a chat. */
double pace_from_options(const struct options *o, bool chat);

#endif
