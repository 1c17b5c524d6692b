/* --override-kv and the RoPE flags as metadata that overrides the model's own. The caller owns the
 * options. */
#ifndef APP_SETUP_OVERRIDES_H
#define APP_SETUP_OVERRIDES_H

#include "app/options/options.h"
#include "engine/file/override.h"

/* Owns its texts; all zero: none. */
struct override_list {
    struct overrides all; /* points at texts */
    char **texts;
};

/* ERR_USAGE: a text of --override-kv is wrong; ERR_MEMORY. Nothing to release on error. */
int override_list_init(struct override_list *l, const struct options *o, struct error *e);
void override_list_release(struct override_list *l);

#endif
