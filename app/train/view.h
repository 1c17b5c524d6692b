/* What a training run shows of itself: figures, curves, and the norm of each layer's and expert's
 * gradient. The thread that trains puts them in, the screen takes a copy, one lock between them. */
#ifndef APP_TRAIN_VIEW_H
#define APP_TRAIN_VIEW_H

#include "engine/train/trainer.h"
#include "ui/training.h"

struct train_view;

/* t: opened, gone on with from its checkpoint if there is one; it outlives the view. NULL: no
 * memory. */
struct train_view *train_view_new(struct trainer *t, bool has_valid);
void train_view_free(struct train_view *v); /* accepts NULL */

/* The thread that trains. After a step of so many seconds, with its gradients still there. */
void train_view_step(struct train_view *v, const struct train_step *s, double seconds);
void train_view_validating(struct train_view *v);
void train_view_valid(struct train_view *v, int after, double loss);
/* Any thread. A line the program has to say. */
void train_view_say(struct train_view *v, const char *line);
void train_view_ending(struct train_view *v); /* the user wants to quit */

/* A copy of all. Its arrays are the view's, which only this call changes: one thread looks. */
void train_view_look(struct train_view *v, struct ui_training *out);

#endif
