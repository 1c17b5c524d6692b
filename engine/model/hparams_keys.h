/* Inside engine/model only: reads the sizes and constants of a table of keys from an open file.
 * Thread: the one that loads. */
#ifndef ENGINE_MODEL_HPARAMS_KEYS_H
#define ENGINE_MODEL_HPARAMS_KEYS_H

#include "engine/model/family.h"

/* Reads the metadata, without tensors, and checks for variants that are not computed. ERR_MODEL. */
int hparams_read_keys(struct hparams *hp, const struct family *family, const struct weight_file *f,
                      struct error *e);
/* Rotated dimensions of a head by the part of it that config.json, or else the family, gives; 0:
 * neither does, or the file is GGUF. And that part by config.json alone, up to 1; 0: not given. */
int hparams_partial_rotary(int head_dim, const struct family *family, const struct weight_file *f);
double hparams_rotary_part(const struct family *family, const struct weight_file *f);

#endif
