/* Syntax highlighting of a line of code: keywords, strings, comments of some languages, from one
 * table. Pure; any thread. */
#ifndef UI_CODE_LOOK_H
#define UI_CODE_LOOK_H

#include <stddef.h>
#include <stdint.h>

/* The language of a code fence's word ("python", "c++"); -1: unknown. */
int code_language(const char *word, size_t n);
/* Sets looks[i] to a LOOK of ui/look.h if byte i of the line is part of one. */
void code_look(int language, const char *line, size_t n, uint8_t *looks);

#endif
