/* A dashboard on the terminal: the screen's model, input and signals, and drawing after changes, at
 * most ten times a second, since every wake-up takes time from the compute threads. The owner (a
 * server, a training run) provides the content and handles keys. Main thread. */
#ifndef APP_SETUP_SCREEN_SCREEN_LOOP_H
#define APP_SETUP_SCREEN_SCREEN_LOOP_H

#include "app/options/options.h"
#include "ui/canvas.h"
#include "ui/keys.h"
#include "ui/model.h"
#include "ui/terminal.h"

#include <signal.h>

struct screen_loop_calls {
    /* ten times a second: copies the newest state into the model */
    void (*look)(void *ctx, uint64_t now);
    /* an action that the screen does not handle itself; NULL: none */
    void (*act)(void *ctx, enum action a, int index);
};

struct screen_loop {
    struct ui_model model;
    const struct options *options;
    const struct screen_loop_calls *calls;
    void *ctx;
    enum key_context keys;
    struct canvas canvas;
    struct terminal *terminal;
    char *help;
    bool utf8, waiting; /* waiting: the input ends in a lone Esc */
    bool wants_end;
    int signal_fd;
    sigset_t old_mask;
    uint64_t looked_ns;
};

/* Whether a mode that has a dashboard shows it: a terminal on all three descriptors, and not
 * disabled by an option or TERM. */
bool screen_loop_wanted(const struct options *o);
/* l: zeroed. Before other threads start: they inherit the signal mask. The model's screen kind
 * (`serving`, `training`) must be set before screen_loop_prepare. ERR_MEMORY, ERR_USAGE (no locale
 * with UTF-8). */
int screen_loop_init(struct screen_loop *l, const struct options *o, struct error *e);
/* Opens the panels of this kind of screen. ERR_MEMORY. */
int screen_loop_prepare(struct screen_loop *l, enum key_context keys,
                        const struct screen_loop_calls *calls, void *ctx, struct error *e);
/* Takes over the terminal. ERR_USAGE: it cannot address its cursor. theme: why the requested
 * colours are not used; its text empty: they are. */
int screen_loop_open(struct screen_loop *l, struct error *theme, struct error *e);
/* Draws and handles keys for so many milliseconds, until a signal arrives, or until the user quits:
 * true. */
bool screen_loop_step(struct screen_loop *l, int ms);
/* Restores the terminal. Accepts a zeroed l. */
void screen_loop_release(struct screen_loop *l);

#endif
