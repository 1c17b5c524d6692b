/* --replay FILE: answers derived again from their receipts (app/setup/receipt.h), in whatever
 * way this run computes: other threads, kernels, placement, drafts, with --parallel N beside N - 1
 * answers of other seeds. Main thread, synchronous engine. */
#ifndef APP_HEADLESS_REPLAY_H
#define APP_HEADLESS_REPLAY_H

#include "app/options/options.h"

/* A line an answer on the standard output: the same, or the first token that differs. ERR_INPUT:
 * one differed, or a receipt is none; ERR_MODEL: the model is another one. */
int replay_run(struct options *o, struct error *e);

#endif
