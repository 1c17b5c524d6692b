/* `moetop -m MODEL --finetune DATA.jsonl --lora-out FOLDER`: trains an adapter. Main thread; a
 * signal makes it write a checkpoint, from which the same command resumes. */
#ifndef APP_TRAIN_TRAIN_H
#define APP_TRAIN_TRAIN_H

#include "app/options/options.h"

bool train_wanted(const struct options *o);
int train_run(struct options *o, struct error *e);

#endif
