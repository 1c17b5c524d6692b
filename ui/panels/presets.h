/* Sets of panels by name, which a key goes through and --panels names. Immutable; any thread. */
#ifndef UI_PANELS_PRESETS_H
#define UI_PANELS_PRESETS_H

#include "ui/model.h"

/* Name of set k (from 0), NULL: there are no more. */
const char *preset_name(int k);
/* Its panels as bits of open_panels, of those that this screen has. */
unsigned preset_panels(const struct ui_model *m, int k);
/* The set that is open now, -1: none of them. */
int preset_open(const struct ui_model *m);
/* what: a set's name, or names of panels between commas. The word in it that is neither, NULL: all
 * are known. */
const char *preset_unknown(const char *what);
/* The panels of such a text, of those that this screen has; unknown words are passed over. */
unsigned preset_read(const struct ui_model *m, const char *what);

#endif
