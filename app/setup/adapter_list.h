/* --lora and --lora-scaled as the adapters that an engine opens. Whoever passes the options is
 * their owner. */
#ifndef APP_SETUP_ADAPTER_LIST_H
#define APP_SETUP_ADAPTER_LIST_H

#include "app/options/options.h"
#include "engine/adapter/adapter.h"

/* Owns its paths; all zero: none. Numbers are those of adapters: first --lora's, then
 * --lora-scaled's. */
struct adapter_list {
    struct adapter_request all[LORA_ADAPTERS];
    int n;
};

/* ERR_USAGE: too many, or a strength that is no number; ERR_MEMORY. Nothing is to be released then.
 */
int adapter_list_init(struct adapter_list *l, const struct options *o, struct error *e);
void adapter_list_release(struct adapter_list *l);

#endif
