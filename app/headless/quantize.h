/* `moetop --quantize TYPE IN OUT`: writes a model in another type as a GGUF file. Main thread. */
#ifndef APP_HEADLESS_QUANTIZE_H
#define APP_HEADLESS_QUANTIZE_H

#include "app/options/options.h"

bool quantize_wanted(const struct options *o);
int quantize_run(struct options *o, struct error *e);

#endif
