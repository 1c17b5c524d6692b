/* What a model recommends for drawing its tokens: generation_config.json of a folder, the
 * general.sampling.* keys of a GGUF file. It is the default for that model, weaker than every other
 * source. Main thread. */
#ifndef APP_SETUP_RECOMMENDED_H
#define APP_SETUP_RECOMMENDED_H

#include "app/options/options.h"

/* Reads them into o. A model that cannot be read recommends nothing: who opens it says why. A value
 * outside its option's range is left out with one line on stderr. ERR_MEMORY alone. */
int recommended_read(struct options *o, const char *model_path, struct error *e);

#endif
