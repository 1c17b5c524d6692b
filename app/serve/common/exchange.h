/* One request of HTTP and its answer on the way out. The HTTP thread reads it and writes what
 * `reply_…` put here; whoever answers (the request pool, the dispatcher) puts. Nobody waits for a
 * slow client: what it has not read is kept here, and the connection sleeps while there is nothing
 * to write. Ownership: counted references, one of the connection's, one of who answers. The lock is
 * held for moments only and is the innermost one. */
#ifndef APP_SERVE_COMMON_EXCHANGE_H
#define APP_SERVE_COMMON_EXCHANGE_H

#include "app/serve/common/refusal.h"
#include "engine/base/stop.h"
#include "engine/base/strbuf.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct MHD_Connection;
struct route;
struct server;

struct exchange {
    struct server *server;
    const struct route *route;
    char argument[256]; /* what stands for the * of the route's path */
    char peer[64];      /* the client's address */
    uint64_t begun_ns;

    /* the HTTP thread alone, until it is handed over; then whoever answers */
    struct strbuf body;
    bool read;          /* all of it */
    struct refusal why; /* found while reading; status 0: nothing */
    bool admitted;      /* it waited for a model, which is there (model_registry.h) */

    pthread_mutex_t lock;
    int references;
    struct MHD_Connection *connection; /* NULL: over */
    int fd;                            /* its socket; -1: over */
    bool asleep;                       /* the connection is suspended */
    int status;                        /* 0: no answer yet */
    const char *type;                  /* of content */
    bool stream, finished, broken;     /* nothing more comes; it ends in the middle */
    struct strbuf out;
    size_t written; /* of out */
    unsigned retry_after;
    const char *allow; /* methods, for 405 and OPTIONS */
    atomic_bool gone;  /* the client is */
    bool idle;         /* it took or sent nothing for the connection's time limit */
    bool late;         /* it was too slow for a deadline */

    /* for the log: who answers writes, before it ends the answer */
    int prompt_tokens, cached_tokens, completion_tokens;
    uint64_t first_ns; /* when the first token of an answer came; 0: none did */
};

/* NULL: no memory. One reference. */
struct exchange *exchange_new(struct server *s);
void exchange_hold(struct exchange *x);
void exchange_drop(struct exchange *x);

/* Whole answers; any thread, once. reply_json takes o (NULL: no memory, 500). */
void reply_json(struct exchange *x, int status, json_t *o);
void reply_text(struct exchange *x, int status, const char *type, const char *text, size_t n);
/* Takes what text holds, where it failed, 503. */
void reply_long_json(struct exchange *x, struct strbuf *text);
/* In a stream that has begun: an event, and its end. */
void reply_refusal(struct exchange *x, const struct refusal *r);
/* An answer in pieces: text/event-stream. Any thread, in order. */
void reply_stream_begin(struct exchange *x);
void reply_stream_put(struct exchange *x, const char *text, size_t n);
/* broken: the client shall see that it is not whole. */
void reply_stream_end(struct exchange *x, bool broken);
/* Bytes that the client has not taken yet. */
size_t reply_waiting(struct exchange *x);
/* The client has left: its socket is asked. Any thread. */
bool exchange_gone(struct exchange *x);
/* Ends work for a client that has left; lent as long as x is. */
struct stop exchange_stop(struct exchange *x);

#endif
