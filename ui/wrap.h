/* Wraps the text of a block to lines of a width, drawn by ui/chatview.c. A source line becomes a
 * row of glyphs with a look each (Markdown markers removed), which is then cut at blanks, or
 * anywhere between wide characters, or at the width. UI thread. */
#ifndef UI_WRAP_H
#define UI_WRAP_H

#include "ui/look.h"
#include "ui/model.h"

/* Wraps a block for a width (cells), its tool calls folded to a line or not; tests. 0 or
 * ERR_MEMORY. */
int chatview_wrap(struct ui_block *b, int width, bool folded);

#endif
