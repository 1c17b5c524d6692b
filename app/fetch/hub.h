/* -hf USER/REPO[:QUANT]: the model of that name, fetched into the Hugging Face cache unless it lies
 * there. Main thread, before any mode runs. */
#ifndef APP_FETCH_HUB_H
#define APP_FETCH_HUB_H

#include "app/options/options.h"

/* Where -hf was given and -m by no stronger source, fetches what is missing and sets o->model to
 * it. Without a network, what is there already is used, which one line says. ERR_USAGE: no such
 * form, or both given; ERR_MODEL: not there, not allowed; ERR_IO: cut off, full disk, damaged;
 * ERR_CANCELLED: Ctrl-C, what came is kept. */
int hub_fetch(struct options *o, struct error *e);

#endif
