/* Completions of an option's value, for Tab in a chat and in a shell: the words of its row, and for
 * texts the tables they are looked up in (strategies, plan files, themes, back ends, types of
 * --quantize). Main (UI) thread. */
#ifndef APP_SETUP_COMPLETION_VALUES_H
#define APP_SETUP_COMPLETION_VALUES_H

#include "app/options/options.h"

enum {
    VALUES_FILES = 1,  /* or a file name */
    VALUES_COMMAS = 2, /* several separated by commas */
};

/* Calls add for every value that has a name; one that ends with a colon needs an argument. own:
 * include those in the user's folder. Returns VALUES_ bits. */
int values_each(const struct option *option, bool own, void (*add)(void *ctx, const char *value),
                void *ctx);
/* The folder below ~/.config/moetop with further values as files NAME.yaml: "placements", "themes";
 * NULL: none. */
const char *values_folder(const struct option *option);

#endif
