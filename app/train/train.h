/* `moetop -m MODEL --finetune DATA.jsonl --lora-out FOLDER`: an adapter is trained. Main thread;
 * interrupted by signals, it leaves a checkpoint that the same command goes on from. */
#ifndef APP_TRAIN_TRAIN_H
#define APP_TRAIN_TRAIN_H

#include "app/options/options.h"

bool train_wanted(const struct options *o);
int train_run(struct options *o, struct error *e);

#endif
