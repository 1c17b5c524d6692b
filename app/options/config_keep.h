/* Saves a setting in the user's configuration file. Main thread. */
#ifndef APP_OPTIONS_CONFIG_KEEP_H
#define APP_OPTIONS_CONFIG_KEEP_H

#include "app/options/options.h"

#include <stddef.h>

/* Writes the option's present value as a line of the file of --config, or of the user's
 * config.yaml, which is created with its folder if missing. Everything else in the file is
 * preserved, comments too; an existing value is replaced. path: the file written. ERR_USAGE: not
 * allowed in such a file, or the file has an error; ERR_IO. */
int config_keep(const struct options *o, const struct option *option, char *path, size_t size,
                struct error *e);

#endif
