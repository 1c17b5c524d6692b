/* What a training run displays: figures, curves, and the gradient norm of each layer and expert.
 * The training thread writes it, the screen copies it, under one lock. */
#ifndef APP_TRAIN_VIEW_H
#define APP_TRAIN_VIEW_H

#include "engine/train/trainer.h"
#include "ui/training.h"

struct train_view;

/* t: opened, resumed from its checkpoint if there is one; it outlives the view. NULL: no memory. */
struct train_view *train_view_new(struct trainer *t, bool has_valid);
void train_view_free(struct train_view *v); /* accepts NULL */

/* The training thread. After a step of so many seconds, with its gradients still available. */
void train_view_step(struct train_view *v, const struct train_step *s, double seconds);
void train_view_validating(struct train_view *v);
void train_view_valid(struct train_view *v, int after, double loss);
/* Any thread. A line to display. */
void train_view_say(struct train_view *v, const char *line);
void train_view_ending(struct train_view *v); /* the user wants to quit */

/* A copy of everything. Its arrays are owned by the view and changed only by this call: for one
 * reader thread. */
void train_view_look(struct train_view *v, struct ui_training *out);

#endif
