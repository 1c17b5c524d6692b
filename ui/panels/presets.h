/* Named sets of panels, cycled by a key and selected by --panels. Immutable; any thread. */
#ifndef UI_PANELS_PRESETS_H
#define UI_PANELS_PRESETS_H

#include "ui/model.h"

/* Name of set k (from 0), NULL: no such set. */
const char *preset_name(int k);
/* Its panels as bits of open_panels, limited to this screen's. */
unsigned preset_panels(const struct ui_model *m, int k);
/* The set that is open now, -1: none of them. */
int preset_open(const struct ui_model *m);
/* what: a set's name, or names of panels separated by commas. Returns the first unknown word, NULL:
 * all are known. */
const char *preset_unknown(const char *what);
/* The panels of such a text, limited to this screen's; unknown words are ignored. */
unsigned preset_read(const struct ui_model *m, const char *what);

#endif
