/* Which model the server has loaded: the one of the command line, and another one of the shelf when
 * a request wants that. The old engine goes before the new one comes, since two seldom fit into a
 * memory; whether it will fit is asked while the old one still answers, and one that cannot be
 * loaded brings the one before back. Main thread. */
#ifndef APP_SERVE_KEEPER_H
#define APP_SERVE_KEEPER_H

#include "app/serve/server.h"
#include "app/setup/engine_options.h"

struct keeper {
    struct options *o;
    struct server *server;
    struct engine_setup *setup; /* of the engine that there is */
    char id[256], file[256];    /* the model's, for the server */
    struct engine_setup *next;  /* of the one that is wanted; NULL: none, or not looked at yet */
    int next_model, back;       /* on the shelf; back: the one before, -1: there is none */
    bool changing;              /* next_model is being loaded */
};

/* The command line's model and the shelf: checked, not loaded. Errors of engine_setup_prepare and
 * shelf_open. */
int keeper_open(struct keeper *k, struct options *o, struct server *s, struct error *e);
/* Begins to load it. */
int keeper_start(struct keeper *k, struct error *e);
/* What is wanted goes on: often, while the server runs. 1: another model has been loaded; negative:
 * it cannot, as keeper_recover is to hear. */
int keeper_step(struct keeper *k, struct error *e);
/* The engine failed, *e says how. 0: it was one that was being loaded, and the one before comes
 * back; negative: the server's end. */
int keeper_recover(struct keeper *k, struct error *e);
/* Behind hub_stop: nobody has a client of the engine's any more. */
void keeper_close(struct keeper *k);

#endif
