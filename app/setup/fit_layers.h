/* The layer list of --fit, for supported and unsupported layers: kinds, sizes and memory per token
 * of context. Any thread. */
#ifndef APP_SETUP_FIT_LAYERS_H
#define APP_SETUP_FIT_LAYERS_H

#include "engine/base/error.h"
#include "engine/device/kv_type.h"
#include "engine/model/hparams.h"

#include <stdio.h>

/* Equal neighbours share an entry. ERR_MEMORY. */
int fit_layers_print(const struct hparams *hp, enum kv_type kv_k, enum kv_type kv_v, FILE *out,
                     struct error *e);

#endif
