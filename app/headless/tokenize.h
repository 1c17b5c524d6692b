/* --tokenize and --detokenize: standard input to ids and back, using only the model's tokenizer.
 * Main thread. */
#ifndef APP_HEADLESS_TOKENIZE_H
#define APP_HEADLESS_TOKENIZE_H

#include "app/options/options.h"

int tokenize_run(struct options *o, struct error *e);
int detokenize_run(struct options *o, struct error *e);
int print_prompt_run(struct options *o, struct error *e); /* --print-prompt */

#endif
