/* The table of keys in print: the help screen and the manual's KEYS section. What stands behind
 * keys that count (panels, plans) is read from the lists that they count in. Immutable; any thread.
 */
#ifndef UI_SCREEN_KEY_HELP_H
#define UI_SCREEN_KEY_HELP_H

#include <stdio.h>

void keys_print_help(FILE *f); /* two columns of plain text */
void keys_print_man(FILE *f);  /* the manual's KEYS section, roff */

#endif
