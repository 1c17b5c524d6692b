/* Inside engine/model only: the sizes and constants that a table of keys names, read from an open
 * file. Thread: the one that loads. */
#ifndef ENGINE_MODEL_HPARAMS_KEYS_H
#define ENGINE_MODEL_HPARAMS_KEYS_H

#include "engine/model/family.h"

/* What the metadata alone gives, and whether it asks for a variant that is not computed. ERR_MODEL.
 */
int hparams_read_keys(struct hparams *hp, const struct family *family, const struct weight_file *f,
                      struct error *e);
/* Rotated dimensions of a head by the part of it that config.json, or else the family, gives; 0:
 * neither does, or the file is GGUF. And that part by config.json alone, to 1; 0: it is silent. */
int hparams_partial_rotary(int head_dim, const struct family *family, const struct weight_file *f);
double hparams_rotary_part(const struct family *family, const struct weight_file *f);

#endif
