/* The adapter as a GGUF file, as llama.cpp loads them: routed experts of a layer in one tensor, one
 * alpha, what modules' scales differ by folded into B. Thread: the one that trains. */
#ifndef ENGINE_TRAIN_SAVE_GGUF_H
#define ENGINE_TRAIN_SAVE_GGUF_H

#include "engine/train/modules.h"

/* ERR_IO, ERR_MEMORY, ERR_MODEL: a module that such files have no name for. */
int save_gguf(const struct modules *m, struct base *b, const char *path, struct error *e);

#endif
