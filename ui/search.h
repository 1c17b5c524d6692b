/* Text search in the shown chat: the typed text, its matches, and the match to scroll to
 * (chatview_show). ASCII letters match in both cases. Owner: the model. UI thread. */
#ifndef UI_SEARCH_H
#define UI_SEARCH_H

#include "ui/model.h"

void search_begin(struct ui_model *m);
void search_end(struct ui_model *m);
/* Typed letters and Backspace; selects the newest match. */
void search_type(struct ui_model *m, const char *bytes, size_t n);
void search_shorten(struct ui_model *m);
/* selects the next match (1: towards the end, -1: towards the beginning), wrapping around */
void search_step(struct ui_model *m, int step);
/* Length of the needle if it is at text[at ..], else 0. */
size_t search_found(const struct ui_search *s, const char *text, size_t len, size_t at);

#endif
