/* The model that the server has loaded: that of the command line, or another one of the registry
 * when a request asks for it. The old engine is closed before the new one is opened, since two
 * seldom fit into memory; whether the new one will fit is checked while the old one still answers,
 * and if loading fails the previous one is reloaded. A model without requests for the time of the
 * newest keep_alive is unloaded, until a request needs one. Main thread. */
#ifndef APP_SERVE_MODEL_SWITCH_H
#define APP_SERVE_MODEL_SWITCH_H

#include "app/serve/common/server.h"
#include "app/setup/engine_options.h"

struct model_switch {
    struct options *o;
    struct server *server;
    struct engine_setup *setup; /* of the current engine */
    char id[256], file[256];    /* the model's, for the server */
    struct engine_setup *next;  /* of the wanted one; NULL: none, or not checked yet */
    int next_model, back;       /* in the registry; back: the previous one, -1: none */
    bool changing;              /* next_model is being loaded */
    uint64_t used;              /* requests to the engine when that was last looked at */
};

/* Checks the command line's model and the registry; loads nothing. Errors of engine_setup_prepare
 * and registry_open. */
int model_switch_open(struct model_switch *k, struct options *o, struct server *s, struct error *e);
/* Starts loading it. */
int model_switch_start(struct model_switch *k, struct error *e);
/* Advances the switch; call often while the server runs. 1: another model has been loaded;
 * negative: failed, call model_switch_recover. */
int model_switch_step(struct model_switch *k, struct error *e);
/* The engine failed with *e. 0: while loading a model, and the previous one is reloaded; negative:
 * the server must stop. */
int model_switch_recover(struct model_switch *k, struct error *e);
/* After dispatcher_stop: nothing uses a client of the engine any more. */
void model_switch_close(struct model_switch *k);

#endif
