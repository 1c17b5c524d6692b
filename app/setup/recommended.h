/* What a model recommends for drawing its tokens: generation_config.json of a folder, the
 * general.sampling.* keys of a GGUF file. It is the default for that model, weaker than every other
 * source. Main thread. */
#ifndef APP_SETUP_RECOMMENDED_H
#define APP_SETUP_RECOMMENDED_H

#include "app/options/options.h"

/* Reads them into o. A model that cannot be read recommends nothing: who opens it says why. A value
 * outside its option's range is left out with one line to say (NULL: nobody hears it). ERR_MEMORY
 * alone. */
int recommended_read(struct options *o, const char *model_path,
                     void (*say)(void *ctx, const char *line), void *ctx, struct error *e);
/* All that a model brings into the options (what it recommends, the settings file beside it) is
 * taken out of o, and `path`'s comes in; path NULL: the bundled model. o is then what it would be
 * had the program begun with that model. ERR_MEMORY, and errors of the settings file. */
int recommended_switch(struct options *o, const char *path,
                       void (*say)(void *ctx, const char *line), void *ctx, struct error *e);

#endif
