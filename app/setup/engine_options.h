/* What the modes share: from options to the engine's own structs, and the few facts about this process. Whoever passes the options is their
 * owner: the main thread (the UI thread of a chat). app_data_path and app_signal: any thread. */
#ifndef APP_APP_H
#define APP_APP_H

#include "app/options/options.h"
#include "app/setup/resolve.h"
#include "app/chat/transcript.h"
#include "engine/run/engine.h"

#include <limits.h>

/* The model to run: -m, else the bundled one (beside the executable's tree or under the installed prefix), found from any
 * directory. ERR_MODEL names where it was looked for. *bundled (may be NULL) tells which. */
int app_model_path(const struct options *o, char *out, size_t size, bool *bundled, struct error *e);
/* A file of the program's own data: configs/BELOW in the tree, share/moetop/BELOW when installed. ERR_IO. */
int app_data_path(const char *below, char *out, size_t size, struct error *e);

/* The engine's settings and all that they point to: copies, so that nothing of the options is read once another thread opens the engine. It points
 * into itself: not to be moved, and released after the engine is closed (the worker stopped). */
struct engine_setup {
    struct engine_config config;
    struct place_wish wish;              /* config.opened_ctx */
    char model_path[PATH_MAX], kernels[16], chat_template[32];
    char *device, *chat_template_file;
};

/* The options as the engine's settings; no model is looked at beyond its path. Nothing is to be released after a failure. */
int app_engine_settings(const struct options *o, struct engine_setup *s, struct error *e);
/* The same, and checks that the model exists and fits (ERR_FIT with the table printed to stderr; --force overrides). A progress line is drawn
 * on stderr when it is a tty and `progress` is set. */
int app_engine_config(const struct options *o, struct engine_setup *s, bool progress, struct error *e);
void engine_setup_release(struct engine_setup *s);
/* For the modes that run the engine without a worker: config, open, --place, pace. */
int app_engine_open(const struct options *o, struct engine **out, struct error *e);
/* Sampling as the options say; a seed of -1 is drawn here. */
void app_sampling(const struct options *o, struct sampling *s);
/* The turn that answers a transcript, whose last entry is the answer: still empty, or (go_on) to be continued. turn is zero before and owns what
 * it gets, also when that was not enough (ERR_MEMORY). */
int app_turn(const struct options *o, const struct transcript *t, bool go_on, struct turn *turn, struct error *e);
/* -p, -f and standard input when asked; escapes applied. *out is the caller's. ERR_IO, ERR_USAGE (too large, not text). */
int app_prompt(const struct options *o, char **out, struct error *e);
/* -sys or -sysf; *out NULL: none. The caller's. */
int app_system_prompt(const struct options *o, char **out, struct error *e);
/* The word of --chat-template; NULL: the model's own template. */
const char *app_chat_template(const struct options *o, char *word, size_t size);
/* Tokens a second to ask of the engine: a model's own pace counts in a chat only. */
double app_pace(const struct options *o, bool chat);

/* Set by SIGINT, SIGTERM, SIGHUP once app_signals is on: the number of the last one, 0: none. Modes poll it between tokens;
 * the engine given to app_signals (may be NULL) is cancelled from the handler. */
void app_signals(struct engine *g);
int app_signal(void);

/* Standard output could not be written for the reason `why` (an errno): ERR_IO. what: "the answer", or NULL. When its reader has gone there is
 * nothing to say: the text is empty, and app_output_gone tells main to exit as tools do that the signal ends. */
int app_output_failed(const char *what, int why, struct error *e);
bool app_output_gone(void);
#define APP_EXIT_GONE 141        /* 128 + SIGPIPE */

/* The folder for caches, made when missing; NULL when there is none to be had: caching is a comfort, never a condition. */
const char *app_cache_dir(const struct options *o);
/* The file of typed lines in the state folder, which is made; empty where there is none, or where something else bears its name. */
void app_history_path(char *out, size_t size);

#endif
