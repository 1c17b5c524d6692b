/* What --fit says of a model's layers, computed or not: kinds, sizes and what each keeps of the
 * tokens behind it. Any thread. */
#ifndef APP_SETUP_FIT_LAYERS_H
#define APP_SETUP_FIT_LAYERS_H

#include "engine/base/error.h"
#include "engine/device/kv_type.h"
#include "engine/model/hparams.h"

#include <stdio.h>

/* Neighbours that are alike share an entry. ERR_MEMORY. */
int fit_layers_print(const struct hparams *hp, enum kv_type kv_k, enum kv_type kv_v, FILE *out,
                     struct error *e);

#endif
