/* Prints the table of keys: the help screen and the manual's KEYS section. The targets of numbered
 * keys (panels, plans) are read from their lists. Immutable; any thread. */
#ifndef UI_SCREEN_KEY_HELP_H
#define UI_SCREEN_KEY_HELP_H

#include "ui/keys.h"

#include <stdio.h>

/* Two columns of plain text: all keys for the chat, for a dashboard its own and a panel's. */
void keys_print_help(FILE *f, enum key_context screen);
void keys_print_man(FILE *f); /* the manual's KEYS section, roff */

#endif
