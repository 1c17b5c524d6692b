/* Writes the adapter: a PEFT folder (adapter_config.json, adapter_model.safetensors, experts one by
 * one) with adapter.gguf in it; only the latter if PEFT has no name for a module. Each file
 * replaces the old one completely or not at all. Thread: the one that trains. */
#ifndef ENGINE_TRAIN_SAVE_H
#define ENGINE_TRAIN_SAVE_H

#include "engine/train/modules.h"

/* Creates folder if missing. ERR_IO, ERR_MEMORY, ERR_USAGE. */
int save_adapter(const struct modules *m, struct base *b, const char *folder, struct error *e);

#endif
