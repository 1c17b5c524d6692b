/* The table of keys in print: the help screen and the manual's KEYS section. What stands behind
 * keys that count (panels, plans) is read from the lists that they count in. Immutable; any thread.
 */
#ifndef UI_SCREEN_KEY_HELP_H
#define UI_SCREEN_KEY_HELP_H

#include "ui/keys.h"

#include <stdio.h>

/* Two columns of plain text: for the chat all there is, for a dashboard its own keys and a panel's.
 */
void keys_print_help(FILE *f, enum key_context screen);
void keys_print_man(FILE *f); /* the manual's KEYS section, roff */

#endif
