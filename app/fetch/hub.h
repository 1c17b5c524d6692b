/* -hf USER/REPO[:QUANT]: downloads that model into the Hugging Face cache unless it is there. Main
 * thread, before any mode runs. */
#ifndef APP_FETCH_HUB_H
#define APP_FETCH_HUB_H

#include "app/options/options.h"

/* If -hf was given, and -m not by a stronger source: downloads what is missing and sets o->model.
 * Offline, the cached model is used, with a note. ERR_USAGE: malformed, or both given; ERR_MODEL:
 * not found, not allowed; ERR_IO: interrupted, full disk, damaged; ERR_CANCELLED: Ctrl-C, the
 * partial download is kept. */
int hub_fetch(struct options *o, struct error *e);

#endif
