/* Draws the whole screen from the model, and applies keys to the user's view. Draws on a canvas
 * only. UI thread. */
#ifndef UI_SCREEN_SCREEN_H
#define UI_SCREEN_SCREEN_H

#include "ui/keys.h"
#include "ui/model.h"
#include "ui/screen/input_rows.h"

/* Opens the initial panels and allocates each one's private state, which the model's release frees:
 * 0 or ERR_MEMORY. */
int screen_init(struct ui_model *m);
/* Call when the engine is replaced. */
void screen_closing(struct ui_model *m);
void screen_draw(struct canvas *c, struct ui_model *m, const struct screen_input *in);
/* Whether the focused panel may handle this letter, which is then recorded. */
bool screen_letter(struct ui_model *m, char letter, uint64_t now);
/* Typing moves the focus to the input line. Letters the panel handled just before were the start of
 * the typed text: undoes their effect and returns them in out; returns how many. */
int screen_typed(struct ui_model *m, uint64_t now, char out[8]);
/* A key during a search: true if the search handled it. */
bool screen_search_key(struct ui_model *m, const struct input_event *ev);
/* Performs the screen's own actions (focus, zoom, scrolling, cursors) and returns ACTION_NONE; else
 * returns the action for the caller, possibly translated. */
enum action screen_act(struct ui_model *m, enum action a, int index);
/* Shows these panels (bits) and no others. */
void screen_panels(struct ui_model *m, unsigned open);
/* The key at that position in the key bar, NULL: none. */
const struct key_binding *screen_key_at(const struct ui_model *m, int w, int h, int x, int y);
void screen_click(struct ui_model *m, int w, int h, int x, int y); /* focuses a panel */
/* The plan at the cursor of the focused panel, NULL: none. Valid until the next call. */
const char *screen_chosen_plan(const struct ui_model *m);

#endif
