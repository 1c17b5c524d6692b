/* `moetop -m MODEL --lora ... --merge-lora OUT`: the model with its adapters merged into the
 * weights. Main thread. */
#ifndef APP_HEADLESS_MERGE_LORA_H
#define APP_HEADLESS_MERGE_LORA_H

#include "app/options/options.h"

bool merge_lora_wanted(const struct options *o);
int merge_lora_run(struct options *o, struct error *e);

#endif
