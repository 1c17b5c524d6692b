/* The second model of --beside: its options and its name. The thread that owns the options. */
#ifndef APP_LAB_SECOND_H
#define APP_LAB_SECOND_H

#include "app/options/options.h"

bool second_wanted(const struct options *o);
/* o's options with the second's model and settings; *to is released by the caller, also on failure:
 * ERR_USAGE (a value, or a server), ERR_MEMORY. */
int second_options(struct options *to, const struct options *o, struct error *e);
/* The model's name as its file has it, and what was set for this one alone (NULL: nothing). */
void second_name(const char *path, const struct option_list *set, char *out, size_t size);

#endif
