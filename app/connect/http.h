/* Requests to one server: its address, the key, and a call that any thread can cancel. */
#ifndef APP_CONNECT_HTTP_H
#define APP_CONNECT_HTTP_H

#include "engine/base/error.h"
#include "engine/base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>

#define HTTP_SILENCE 600L /* seconds a server may be silent within an answer, unless set */

struct http_server {
    char base[400];  /* "http://127.0.0.1:8080", without a slash at its end, without /v1; shown */
    char login[260]; /* "user:password@" of the address, as given; never shown */
    char key[260];   /* "" : none */
    long silence;    /* seconds it may be silent within an answer */
};

/* url: with or without http://, / and /v1 at its end; key_file: NULL: none; its first key counts.
 * ERR_USAGE, ERR_IO. */
int http_server_init(struct http_server *s, const char *url, const char *key_file, struct error *e);

/* One request. */
struct http_call {
    const char *path;        /* "/v1/models" */
    const char *body;        /* JSON for a POST; NULL: GET */
    long seconds;            /* total limit; 0: only the silence of the server */
    bool (*stop)(void *ctx); /* polled twenty times a second; may be NULL */
    /* Receives events of status 200 as they arrive; non-zero ends the call. If NULL, or without
     * events, the body is collected. */
    int (*take)(void *ctx, const char *bytes, size_t n);
    void *ctx;
    /* the result */
    long status; /* 0: nothing */
    long retry_after;
    bool late;           /* timed out: a retry would wait as long again */
    bool untrusted;      /* its certificate is refused: a retry would fail too */
    bool events;         /* its type is text/event-stream, or it begins as such a stream does */
    char type[60];       /* of the body, without parameters: "text/html" */
    char elsewhere[400]; /* target of a 3xx status, in the form of --connect */
    struct strbuf text;  /* a body that was not passed to take; at most 16 MiB. Release it */
};

/* 0: there was an answer, of any status, or take ended the call. ERR_IO: none, or it broke off;
 * ERR_CANCELLED: by stop. *e then says why, without the server's name. Redirections are not
 * followed, so that the key and the prompt go only to the given address. Any thread. */
int http_perform(const struct http_server *s, struct http_call *c, struct error *e);
/* The error for an unsuccessful status: the server's own message if it has one, else the title of
 * the page or the line of text that a proxy sent. ERR_USAGE (the key), ERR_MODEL, ERR_CONTEXT,
 * ERR_INPUT, ERR_IO. */
int http_refused(const struct http_server *s, const struct http_call *c, struct error *e);
/* Extracts an error message in any of the forms that servers use; false: there is none. */
bool http_error_text(const char *body, size_t n, char *out, size_t size);
/* What a body is that was not expected: "text/html (502 Bad Gateway)"; returns out. */
const char *http_body_words(const struct http_call *c, char *out, size_t size);

#endif
