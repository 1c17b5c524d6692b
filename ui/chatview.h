/* The chat pane: blocks wrapped by grapheme cluster, light markdown, scrollback that keeps its
 * position while text arrives. Wrapping is cached per block and redone only from the last finished
 * source line, so a long answer costs no more than a short one. UI thread. */
#ifndef UI_CHATVIEW_H
#define UI_CHATVIEW_H

#include "ui/model.h"
#include "ui/wrap.h"

void chatview_draw(struct canvas *c, struct rect r, struct ui_model *m);
/* Scrolls by rows, negative: up. Reaching the end follows the newest text again. */
void chatview_scroll(struct ui_model *m, int rows);
void chatview_scroll_top(struct ui_model *m);
void chatview_scroll_end(struct ui_model *m);
/* scrolls the newest block's head to the top, unless that leaves empty rows */
void chatview_scroll_to_last(struct ui_model *m);
/* Scrolls byte `offset` of a block into view, if it is not visible. */
void chatview_show(struct ui_model *m, size_t block, size_t offset);
/* Scrolls to the head of the answer above (-1) or below (1) the current first row. */
void chatview_answer(struct ui_model *m, int step);
/* The newest entry of the conversation (from 1) whose head is above the pane's end; 0: none. */
int chatview_entry(struct ui_model *m);

/* The token (ui/token_ink.h) at a cell of the pane r, 0: none. */
uint64_t chatview_token(struct ui_model *m, struct rect r, int x, int y);

#endif
