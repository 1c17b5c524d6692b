/* The line the user types in, with its cursor, wrapped where it is longer than the screen is wide;
 * empty, it says what can be done. Draws on a canvas only. UI thread. */
#ifndef UI_SCREEN_INPUT_ROWS_H
#define UI_SCREEN_INPUT_ROWS_H

#include "ui/model.h"

/* The input line to draw: text with cursor (bytes), the prompt, and lines above it
 * (completions). */
struct screen_input {
    const char *prompt, *text;
    size_t len, cursor;
    const char *above; /* matches of a completion, or NULL */
    int marked;        /* the selected line of them, from 1; 0: none */
};

/* Rows it takes in r's width. */
int input_rows_count(struct rect r, const struct ui_model *m, const struct screen_input *in);
/* Its last rows where r has fewer; places the canvas' cursor. */
void input_rows_draw(struct canvas *c, struct rect r, struct ui_model *m,
                     const struct screen_input *in);

#endif
