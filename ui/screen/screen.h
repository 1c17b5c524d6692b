/* The whole picture from the model, and what keys do to what the user looks at. Draws on a canvas
 * only. UI thread. */
#ifndef UI_SCREEN_SCREEN_H
#define UI_SCREEN_SCREEN_H

#include "ui/model.h"
#include "ui/keys.h"

/* The input line as it is drawn: text with cursor (bytes), the prompt, and lines above it
 * (completions). */
struct screen_input {
    const char *prompt, *text;
    size_t len, cursor;
    const char *above; /* matches of a completion, or NULL */
    int marked;        /* the line of them that is chosen, from 1; 0: none */
};

/* Opens the panels that are open at start and gives each its private state, which the model's
 * release frees: 0 or ERR_MEMORY. */
int screen_init(struct ui_model *m);
/* The engine goes and another one is loaded. */
void screen_closing(struct ui_model *m);
void screen_draw(struct canvas *c, struct ui_model *m, const struct screen_input *in);
/* A letter that means something in the focused panel: true when the panel may take it, which is
 * then noted. */
bool screen_letter(struct ui_model *m, char letter, uint64_t now);
/* Typing leaves the panel. Letters that it took just before were the begin of what is typed: what
 * they did is undone, and they are given back in out; returns how many. */
int screen_typed(struct ui_model *m, uint64_t now, char out[8]);
/* A key while words are looked for: true when the search took it. */
bool screen_search_key(struct ui_model *m, const struct input_event *ev);
/* What the screen does itself (focus, zoom, scrolling, cursors): ACTION_NONE; else the action is
 * the caller's, as it is or translated. */
enum action screen_act(struct ui_model *m, enum action a, int index);
/* Shows these panels (bits) and no others. */
void screen_panels(struct ui_model *m, unsigned open);
/* The key that stands in the row of keys there, NULL: none. */
const struct key_binding *screen_key_at(const struct ui_model *m, int w, int h, int x, int y);
void screen_click(struct ui_model *m, int w, int h, int x, int y); /* gives a panel the keys */
/* The plan under the cursor of the focused panel, NULL: none. Valid until the next call. */
const char *screen_chosen_plan(const struct ui_model *m);

#endif
