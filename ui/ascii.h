/* Converts a frame for terminals without UTF-8: every cell becomes the ASCII character nearest to
 * it. Pure; any thread. */
#ifndef UI_ASCII_H
#define UI_ASCII_H

#include "ui/canvas.h"

char ascii_of(uint32_t ch); /* '?' if there is none */
/* the frame keeps its layout: a wide character is two cells */
void ascii_canvas(struct canvas *c);

#endif
