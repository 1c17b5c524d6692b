/* Writes a setting into the user's configuration file, so that it is there next time. Main thread.
 */
#ifndef APP_OPTIONS_CONFIG_KEEP_H
#define APP_OPTIONS_CONFIG_KEEP_H

#include "app/options/options.h"

#include <stddef.h>

/* The value that the option has now becomes a line of the file that --config names, or of the
 * user's config.yaml, which is made with its folder where it is missing. All else in the file stays
 * as it is, comments too; a value that stood there is replaced. path: where it is now. ERR_USAGE:
 * it cannot stand in such a file, or what is in the file is wrong; ERR_IO. */
int config_keep(const struct options *o, const struct option *option, char *path, size_t size,
                struct error *e);

#endif
