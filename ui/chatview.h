/* The chat pane: blocks wrapped by grapheme cluster, light markdown, scrollback that stays where it
 * is while text arrives. Wrapping is kept with each block and redone only from the last finished
 * source line, so a long answer costs no more than a short one. UI thread. */
#ifndef UI_CHATVIEW_H
#define UI_CHATVIEW_H

#include "ui/model.h"
#include "ui/wrap.h"

void chatview_draw(struct canvas *c, struct rect r, struct ui_model *m);
/* Rows, negative: towards the beginning. Reaching the end follows the newest again. */
void chatview_scroll(struct ui_model *m, int rows);
void chatview_scroll_top(struct ui_model *m);
void chatview_scroll_end(struct ui_model *m);
/* the head of the newest block at the top, where that leaves no empty rows */
void chatview_scroll_to_last(struct ui_model *m);
/* Byte `offset` of a block comes into the view, where it is not there already. */
void chatview_show(struct ui_model *m, size_t block, size_t offset);
/* To the head of the answer above (-1) or below (1) what is the first row now. */
void chatview_answer(struct ui_model *m, int step);
/* The newest entry of the conversation (from 1) whose head stands above the pane's end; 0: none. */
int chatview_entry(struct ui_model *m);

/* The token (ui/token_ink.h) whose text stands at a cell of the pane r, 0: none. */
uint64_t chatview_token(struct ui_model *m, struct rect r, int x, int y);

#endif
