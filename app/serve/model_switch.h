/* Which model the server has loaded: the one of the command line, and another one of the registry
 * when a request wants that. The old engine goes before the new one comes, since two seldom fit
 * into a memory; whether it will fit is asked while the old one still answers, and one that cannot
 * be loaded brings the one before back. Main thread. */
#ifndef APP_SERVE_MODEL_SWITCH_H
#define APP_SERVE_MODEL_SWITCH_H

#include "app/serve/common/server.h"
#include "app/setup/engine_options.h"

struct model_switch {
    struct options *o;
    struct server *server;
    struct engine_setup *setup; /* of the engine that there is */
    char id[256], file[256];    /* the model's, for the server */
    struct engine_setup *next;  /* of the one that is wanted; NULL: none, or not looked at yet */
    int next_model, back;       /* on the registry; back: the one before, -1: there is none */
    bool changing;              /* next_model is being loaded */
};

/* The command line's model and the registry: checked, not loaded. Errors of engine_setup_prepare
 * and registry_open. */
int model_switch_open(struct model_switch *k, struct options *o, struct server *s, struct error *e);
/* Begins to load it. */
int model_switch_start(struct model_switch *k, struct error *e);
/* What is wanted goes on: often, while the server runs. 1: another model has been loaded; negative:
 * it cannot, as model_switch_recover is to hear. */
int model_switch_step(struct model_switch *k, struct error *e);
/* The engine failed, *e says how. 0: it was one that was being loaded, and the one before comes
 * back; negative: the server's end. */
int model_switch_recover(struct model_switch *k, struct error *e);
/* Behind dispatcher_stop: nobody has a client of the engine's any more. */
void model_switch_close(struct model_switch *k);

#endif
