/* What stands in a line of code: keywords, strings, comments of some languages, from one table.
 * Pure; any thread. */
#ifndef UI_CODE_LOOK_H
#define UI_CODE_LOOK_H

#include <stddef.h>
#include <stdint.h>

/* The language of a fence's word ("python", "c++"); -1: none that is known. */
int code_language(const char *word, size_t n);
/* looks[i] is raised to a LOOK of ui/look.h where byte i of the line belongs to something. */
void code_look(int language, const char *line, size_t n, uint8_t *looks);

#endif
