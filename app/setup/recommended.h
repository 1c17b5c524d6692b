/* Sampling settings recommended by a model: generation_config.json of a folder, the
 * general.sampling.* keys of a GGUF file. They are the defaults for that model, with the lowest
 * precedence. Main thread. */
#ifndef APP_SETUP_RECOMMENDED_H
#define APP_SETUP_RECOMMENDED_H

#include "app/options/options.h"

/* Reads them into o. A model that cannot be read recommends nothing: opening it reports the error.
 * A value out of its option's range is ignored with a line to `say` (NULL: none). Only ERR_MEMORY.
 */
int recommended_read(struct options *o, const char *model_path,
                     void (*say)(void *ctx, const char *line), void *ctx, struct error *e);
/* Replaces everything in o that came from a model (recommendations, the settings file beside it) by
 * that of `path`; NULL: the bundled model. o is then as if the program had been started with that
 * model. ERR_MEMORY, and errors of the settings file. */
int recommended_switch(struct options *o, const char *path,
                       void (*say)(void *ctx, const char *line), void *ctx, struct error *e);

#endif
