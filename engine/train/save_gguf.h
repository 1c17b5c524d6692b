/* Writes the adapter as a GGUF file that llama.cpp loads: routed experts of a layer in one tensor,
 * one alpha, differing scales of modules folded into B. Thread: the one that trains. */
#ifndef ENGINE_TRAIN_SAVE_GGUF_H
#define ENGINE_TRAIN_SAVE_GGUF_H

#include "engine/train/modules.h"

/* ERR_IO, ERR_MEMORY, ERR_MODEL: a module without a name in such files. */
int save_gguf(const struct modules *m, struct base *b, const char *path, struct error *e);

#endif
