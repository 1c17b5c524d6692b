/* Inside engine/model only: the hyperparameters of an open file. Thread: the one that loads. */
#ifndef ENGINE_MODEL_HPARAMS_READ_H
#define ENGINE_MODEL_HPARAMS_READ_H

#include "engine/model/family.h"

/* hp from metadata and shapes; factor arrays are mem_alloc'ed, owned by the model. ERR_MODEL,
 * ERR_MEMORY. */
int hparams_read(struct hparams *hp, const struct family *family, const struct weight_file *f,
                 struct error *e);
/* rope_scaling.c: short_factor and related fields; requires hp's sizes. ERR_MODEL, ERR_MEMORY. */
int rope_scaling_read(struct hparams *hp, const struct family *family, const struct weight_file *f,
                      struct error *e);

#endif
