/* Requests to one server: its address, the key, and a call that can be stopped from any thread. */
#ifndef APP_CONNECT_HTTP_H
#define APP_CONNECT_HTTP_H

#include "engine/base/error.h"
#include "engine/base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>

struct http_server {
    char base[400];  /* "http://127.0.0.1:8080", without a slash at its end, without /v1; shown */
    char login[260]; /* "user:password@" of the address, as it stood there; never shown */
    char key[260];   /* "" : none */
};

/* url: with or without http://, / and /v1 at its end; key_file: NULL: none; its first key counts.
 * ERR_USAGE, ERR_IO. */
int http_server_init(struct http_server *s, const char *url, const char *key_file, struct error *e);

/* One request. */
struct http_call {
    const char *path; /* "/v1/models" */
    const char *body; /* JSON for a POST; NULL: GET */
    long seconds;     /* at most, for the whole; 0: as long as something comes within ten minutes */
    bool (*stop)(void *ctx); /* asked twenty times a second; may be NULL */
    /* Takes events of status 200 as they come; non-zero ends the call. NULL, and where no events
     * come: the body is collected. */
    int (*take)(void *ctx, const char *bytes, size_t n);
    void *ctx;
    /* what came back */
    long status; /* 0: nothing */
    long retry_after;
    bool late;           /* nothing came in time: to ask again would begin the same wait */
    bool untrusted;      /* its certificate is refused: to ask again is in vain */
    bool events;         /* its type is text/event-stream, or it begins as such a stream does */
    char type[60];       /* of the body, without parameters: "text/html" */
    char elsewhere[400]; /* where a status of 3xx sends to, an address as --connect takes it */
    struct strbuf text;  /* a body that nobody took; at most 16 MiB. Release it */
};

/* 0: an answer came, of whatever status, or take ended the call. ERR_IO: none, or it broke off;
 * ERR_CANCELLED: stop said so. *e then says why, without the server's name. Redirections are not
 * followed: the key and what was said go to the address that was given. Any thread. */
int http_perform(const struct http_server *s, struct http_call *c, struct error *e);
/* What an answer of a status that is no success means to a user: the server's own words where it
 * has some. ERR_USAGE (the key), ERR_MODEL, ERR_CONTEXT, ERR_INPUT, ERR_IO. */
int http_refused(const struct http_server *s, const struct http_call *c, struct error *e);
/* The words of an error in any of the forms that servers use, into out; false: there are none. */
bool http_error_text(const char *body, size_t n, char *out, size_t size);

#endif
