/* Internals of a connection, shared only by app/connect/remote*.c. Three threads: the owner's, the
 * connection's (remote_thread.c: requests) and the watcher's (remote_watch.c: figures and engine),
 * which the connection's starts and ends. */
#ifndef APP_CONNECT_INTERNAL_H
#define APP_CONNECT_INTERNAL_H

#include "app/connect/remote.h"
#include "engine/base/ring.h"
#include "engine/base/snapshot.h"
#include "engine/base/wake.h"

#include <pthread.h>
#include <stdatomic.h>

/* Why the connection waits: for a busy server until a time, or for one that was lost. */
struct remote_wait {
    uint64_t until_ns; /* busy: it is asked again then; 0: it is not waited for */
    uint64_t lost_ns;  /* lost: when that was noticed; 0: it is not lost */
    long status;       /* busy: of HTTP */
};

struct remote {
    pthread_t thread;
    char *url, *key_file, *model, host[200];
    long silence;
    struct ring events, watched_events; /* the thread's, the watcher's */
    struct wake event_wake, work_wake;
    atomic_bool quit, cancel, ready;
    pthread_mutex_t lock; /* protects everything to the next blank line */
    struct request request;
    bool taken; /* a request waits or is running */
    struct figures figures;
    struct telemetry told; /* of the server's engine; no layers: not reported */
    struct remote_engine engine;
    struct remote_wait wait;
    char *wish; /* a placement, mem_*; NULL: none */
    uint64_t wishes;

    /* The thread's: two places, so that another model of a restarted server can be published while
     * the owner reads the old one. */
    struct server servers[2];
    atomic_int current;

    struct telemetry shown; /* the owner's: the received state that is displayed */

    struct snapshot snapshot;
    struct telemetry slots[3];
    /* the thread's; the owner reads the snapshot */
    struct telemetry live;
    uint64_t begun_ns;
    bool cut; /* an answer was cut when the server was lost */
};

/* The server in use. */
static inline const struct server *remote_current(const struct remote *r)
{
    return &r->servers[atomic_load(&r->current)];
}

/* For http_call.stop and its like: ctx is the remote. Any thread. */
bool remote_is_quitting(void *ctx);
bool remote_is_unwanted(void *ctx);

/* remote_events.c */
/* Takes the event's text. The thread of that ring. */
void remote_push(struct remote *r, struct ring *to, const struct event *ev);
/* An event with a copy of the text (NULL: none). The connection's thread. */
void remote_send(struct remote *r, enum event_kind kind, int code, const char *text);
/* An answer begins; one of its events, which is reported too; it has ended. The connection's
 * thread. */
void remote_note_begin(struct remote *r);
int remote_note_event(struct remote *r, struct event *ev);
void remote_note_done(struct remote *r, const struct turn_done_event *d);
/* The figures measured here become visible to the owner. */
void remote_publish(struct remote *r);

/* remote_thread.c: the connection's thread */
void *remote_run(void *ctx);

/* remote_watch.c: the watcher's thread */
void *remote_watch(void *ctx);

#endif
