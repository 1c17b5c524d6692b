/* Warnings about settings that are allowed but probably not intended. Any thread that may read the
 * options. */
#ifndef APP_SETUP_REMARKS_H
#define APP_SETUP_REMARKS_H

#include "app/options/options.h"
#include "engine/run/engine.h"

/* The warning about the option's present value, as one line; false: none. */
bool remark_option(const struct options *o, const struct option *option, char *out, size_t size);
/* Prints every warning on the options, and on a context longer than the model's trained length. */
void remarks_each(const struct options *o, const struct engine_info *info,
                  void (*line_fn)(void *ctx, const char *line), void *ctx);

#endif
