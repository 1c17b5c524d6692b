/* What --panels and --update-ms mean for a screen. UI thread. */
#ifndef APP_SETUP_SCREEN_PANELS_OPTION_H
#define APP_SETUP_SCREEN_PANELS_OPTION_H

#include "app/options/options.h"
#include "ui/model.h"

/* ERR_USAGE: it names an unknown panel. */
int panels_option_check(const char *value, struct error *e);
/* Opens these panels and closes all others. */
void panels_option_take(struct ui_model *m, const struct options *o);
void update_option_take(struct ui_model *m, const struct options *o);

#endif
