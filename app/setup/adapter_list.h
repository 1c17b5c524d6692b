/* --lora and --lora-scaled as the adapters that an engine opens. The caller owns the options. */
#ifndef APP_SETUP_ADAPTER_LIST_H
#define APP_SETUP_ADAPTER_LIST_H

#include "app/options/options.h"
#include "engine/adapter/adapter.h"

/* Owns its paths; all zero: none. In the order of adapter numbers: first --lora's, then
 * --lora-scaled's. */
struct adapter_list {
    struct adapter_request all[LORA_ADAPTERS];
    int n;
    const char *option; /* what messages name */
};

/* --control-vector, --control-vector-scaled, --control-vector-layer-range; release: files */
struct control_list {
    struct adapter_list files;
    int first, last; /* 0, 0: all layers */
};
int control_list_init(struct control_list *c, const struct options *o, struct error *e);

/* ERR_USAGE: too many, or a strength that is not a number; ERR_MEMORY. Nothing to release on error.
 */
int adapter_list_init(struct adapter_list *l, const struct options *o, struct error *e);
void adapter_list_release(struct adapter_list *l);

#endif
