/* --replay FILE: reproduces answers from their receipts (app/setup/receipt.h), with this run's
 * threads, kernels, placement and drafts, and with --parallel N in parallel with N - 1 answers of
 * other seeds. Main thread, synchronous engine. */
#ifndef APP_HEADLESS_REPLAY_H
#define APP_HEADLESS_REPLAY_H

#include "app/options/options.h"

/* Prints a line per answer: identical, or the first token that differs. ERR_INPUT: one differed, or
 * a receipt is invalid; ERR_MODEL: the model is a different one. */
int replay_run(struct options *o, struct error *e);

#endif
