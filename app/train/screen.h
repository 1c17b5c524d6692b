/* A training run on a terminal: losses, figures, and gradient norms of experts, live. The steps are
 * computed on another thread (app/train/train.c). Main thread. */
#ifndef APP_TRAIN_SCREEN_H
#define APP_TRAIN_SCREEN_H

#include "app/options/options.h"
#include "app/train/view.h"

struct train_screen;

/* Before other threads start: they inherit the signal mask. ERR_MEMORY, ERR_USAGE (no locale with
 * UTF-8). */
int train_screen_new(struct train_screen **out, const struct options *o, struct error *e);
/* Takes over the terminal. ERR_USAGE: it cannot address its cursor. view outlives the screen. */
int train_screen_open(struct train_screen *s, struct train_view *view, const struct model *model,
                      const char *path, struct error *e);
/* Draws and handles keys for so many milliseconds; true: the user wants to quit. */
bool train_screen_step(struct train_screen *s, int ms);
/* Restores the terminal. Accepts NULL. */
void train_screen_free(struct train_screen *s);

#endif
