/* The socket that the server listens on. Main thread. */
#ifndef APP_SERVE_HTTP_LISTEN_H
#define APP_SERVE_HTTP_LISTEN_H

#include "app/options/options.h"

struct listener {
    int fd;
    bool loopback;    /* only this machine can reach it */
    char where[256];  /* "http://127.0.0.1:8080", "unix:/run/moetop.sock" */
    char unlink[128]; /* the file of a unix socket, or "" */
};

/* --host and --port: an address, a name, or unix:PATH (files 0600); a socket passed by systemd
 * (LISTEN_FDS) takes precedence. ERR_USAGE, ERR_IO. */
int listener_open(struct listener *l, const struct options *o, struct error *e);
/* Deletes its file; the socket itself stays with its owner. */
void listener_forget(struct listener *l);

#endif
