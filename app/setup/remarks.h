/* Settings that are allowed and hardly meant. Any thread that may read the options. */
#ifndef APP_SETUP_REMARKS_H
#define APP_SETUP_REMARKS_H

#include "app/options/options.h"
#include "engine/run/engine.h"

/* What is odd about the option's present value, as one line; false: nothing. */
bool remark_option(const struct options *o, const struct option *option, char *out, size_t size);
/* Tells every remark on the options, and on the context against what the model was trained with. */
void remarks_each(const struct options *o, const struct engine_info *info,
                  void (*line_fn)(void *ctx, const char *line), void *ctx);

#endif
