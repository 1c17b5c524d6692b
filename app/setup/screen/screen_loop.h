/* A dashboard on the terminal: the picture's model, keys and signals that come, and drawing when
 * something changed, at most ten times a second, since every wake-up costs those that compute. What
 * is shown and what the keys ask for is its owner's (a server, a training run). Main thread. */
#ifndef APP_SETUP_SCREEN_SCREEN_LOOP_H
#define APP_SETUP_SCREEN_SCREEN_LOOP_H

#include "app/options/options.h"
#include "ui/canvas.h"
#include "ui/keys.h"
#include "ui/model.h"
#include "ui/terminal.h"

#include <signal.h>

struct screen_loop_calls {
    /* ten times a second: the newest of everything into the model */
    void (*look)(void *ctx, uint64_t now);
    /* an action that the screen does not do itself; NULL: there are none */
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
    bool utf8, waiting; /* waiting: what came ends in a lone Esc */
    bool wants_end;
    int signal_fd;
    sigset_t old_mask;
    uint64_t looked_ns;
};

/* Whether a mode that has a dashboard shows it: a terminal on all three descriptors, and no option
 * or TERM against it. */
bool screen_loop_wanted(const struct options *o);
/* l: zeroed. Before other threads start: they inherit which signals come here. The model says what
 * kind of screen it is (`serving`, `training`) before screen_loop_prepare. ERR_MEMORY, ERR_USAGE
 * (no locale with UTF-8). */
int screen_loop_init(struct screen_loop *l, const struct options *o, struct error *e);
/* Opens the panels of this kind of screen. ERR_MEMORY. */
int screen_loop_prepare(struct screen_loop *l, enum key_context keys,
                        const struct screen_loop_calls *calls, void *ctx, struct error *e);
/* Takes the terminal. ERR_USAGE: it cannot address its cursor. theme: why colours are not those
 * that were asked for; its text empty: they are. */
int screen_loop_open(struct screen_loop *l, struct error *theme, struct error *e);
/* Shows and takes keys for so many milliseconds, until a signal comes, or until the user wants to
 * end it: true. */
bool screen_loop_step(struct screen_loop *l, int ms);
/* Gives the terminal back. Accepts one that is zeroed. */
void screen_loop_release(struct screen_loop *l);

#endif
