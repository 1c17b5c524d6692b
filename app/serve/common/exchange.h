/* One HTTP request and its answer. The HTTP thread reads the request and writes what `reply_…`
 * queued here; the answering thread (request pool, dispatcher) queues. Slow clients block nobody:
 * unread data stays queued here, and the connection is suspended while there is nothing to write.
 * Ownership: counted references, one of the connection's, one of the answering thread's. The lock
 * is held only briefly and is the innermost one. */
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
    enum api_form form; /* of errors before there is a route */
    char argument[256]; /* what the * of the route's path matches */
    char peer[64];      /* the client's address */
    uint64_t begun_ns;

    /* the HTTP thread's until it is handed over; then the answering thread's */
    struct strbuf body;
    bool read;          /* all of it */
    struct refusal why; /* detected while reading; status 0: none */
    uint64_t waited_ns; /* for a model to be loaded */
    bool admitted;      /* it waited for a model, which is now loaded (model_registry.h) */

    pthread_mutex_t lock;
    int references;
    struct MHD_Connection *connection; /* NULL: over */
    int fd;                            /* its socket; -1: over */
    bool asleep;                       /* the connection is suspended */
    int status;                        /* 0: no answer yet */
    const char *type;                  /* of content */
    bool stream, finished, broken;     /* in pieces; complete; aborted in the middle */
    bool ndjson;                       /* the pieces are lines of JSON, no events */
    struct strbuf out;
    size_t written; /* of out */
    unsigned retry_after;
    const char *allow; /* methods, for 405 and OPTIONS */
    atomic_bool gone;  /* the client has disconnected */
    bool idle;         /* the client neither read nor sent anything within the time limit */
    bool late;         /* the client missed a deadline */

    /* for the log: written by the answering thread before it ends the answer, under the lock */
    int prompt_tokens, cached_tokens, completion_tokens;
    uint64_t first_ns; /* when the first token of an answer was made; 0: none was */
};

/* NULL: no memory. One reference. */
struct exchange *exchange_new(struct server *s);
void exchange_hold(struct exchange *x);
void exchange_drop(struct exchange *x);

/* Whole answers; any thread, once. reply_json takes o (NULL: no memory, 500). */
void reply_json(struct exchange *x, int status, json_t *o);
void reply_text(struct exchange *x, int status, const char *type, const char *text, size_t n);
/* Takes the content of text; if that ran out of memory, 503. */
void reply_long_json(struct exchange *x, struct strbuf *text);
/* In a started stream: an event, and the end of the stream. */
void reply_refusal(struct exchange *x, const struct refusal *r);
/* An answer in pieces: server-sent events, or (ndjson) lines of JSON. Any thread, in order. */
void reply_stream_begin(struct exchange *x, bool ndjson);
void reply_stream_put(struct exchange *x, const char *text, size_t n);
/* broken: the client must see that it is incomplete. */
void reply_stream_end(struct exchange *x, bool broken);
/* Queued bytes that the client has not read yet. */
size_t reply_waiting(struct exchange *x);
/* Whether the client has disconnected, from its socket. Any thread. */
bool exchange_gone(struct exchange *x);
/* The value of an argument behind the path's "?", the connection's; "" if it has none, NULL: it is
 * not there. HTTP thread. */
const char *exchange_query(const struct exchange *x, const char *name);
/* A callback that cancels work if the client has disconnected; valid as long as x. */
struct stop exchange_stop(struct exchange *x);

#endif
