/* From the text of a block to lines of a width: what ui/chatview.c draws. A source line becomes a
 * row of glyphs with a look each (markers of Markdown already gone), which is then cut at blanks,
 * or anywhere between wide characters, or wherever the width ends. UI thread. */
#ifndef UI_WRAP_H
#define UI_WRAP_H

#include "ui/look.h"
#include "ui/model.h"

/* Wraps a block for a width (cells), calls of tools in it folded to a line or not; tests. 0 or
 * ERR_MEMORY. */
int chatview_wrap(struct ui_block *b, int width, bool folded);

#endif
