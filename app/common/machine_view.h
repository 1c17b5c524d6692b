/* Samples the system and each device into the screen's model, twice a second. UI thread. */
#ifndef APP_COMMON_MACHINE_VIEW_H
#define APP_COMMON_MACHINE_VIEW_H

#include "engine/run/engine.h"
#include "ui/model.h"

struct machine_view;

struct machine_view *machine_view_new(void);    /* NULL: no memory */
void machine_view_free(struct machine_view *v); /* accepts NULL */
/* The engine is replaced: its devices will be different. */
void machine_view_forget(struct machine_view *v, struct ui_model *m);
/* info: NULL while the model is being loaded. */
void machine_view_take(struct machine_view *v, struct ui_model *m, const struct engine_info *info,
                       uint64_t now);

#endif
