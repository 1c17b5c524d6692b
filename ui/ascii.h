/* A picture for terminals that do not speak UTF-8: every cell becomes the ASCII character nearest
 * to it. Pure; any thread. */
#ifndef UI_ASCII_H
#define UI_ASCII_H

#include "ui/canvas.h"

char ascii_of(uint32_t ch); /* '?' for what has no likeness */
/* the frame keeps its places: a wide character is two cells */
void ascii_canvas(struct canvas *c);

#endif
