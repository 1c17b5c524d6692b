/* Words looked for in the chat that is shown: what is typed, where it is found, which find the view
 * is to be on (chatview_show). Letters of ASCII are alike in both cases. Owner: the model. UI
 * thread. */
#ifndef UI_SEARCH_H
#define UI_SEARCH_H

#include "ui/model.h"

void search_begin(struct ui_model *m);
void search_end(struct ui_model *m);
/* Letters that are typed, and Backspace; the newest find becomes the one to be shown. */
void search_type(struct ui_model *m, const char *bytes, size_t n);
void search_shorten(struct ui_model *m);
/* the next find (1: towards the end, -1: towards the beginning), round and round */
void search_step(struct ui_model *m, int step);
/* Bytes of the needle when it stands at text[at ..], else 0. */
size_t search_found(const struct ui_search *s, const char *text, size_t len, size_t at);

#endif
