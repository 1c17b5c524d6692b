/* Internals of a worker and its clients, for worker.c and client.c only. */
#ifndef ENGINE_RUN_WORKER_INTERNAL_H
#define ENGINE_RUN_WORKER_INTERNAL_H

#include "engine/base/ring.h"
#include "engine/base/snapshot.h"
#include "engine/base/wake.h"
#include "engine/run/engine.h"

#include <pthread.h>
#include <stdatomic.h>

struct mailbox_item {
    struct client *client;
    struct command command;
    struct mailbox_item *next;
};

struct client {
    struct worker *worker;
    struct client *next; /* of the worker's; its lock */
    struct ring events;
    struct wake event_wake;
    bool turn_taken;  /* a turn waits or runs; guarded by the worker's lock */
    atomic_bool gone; /* the engine thread does not use it any more */

    /* engine thread; others through `shared` */
    struct session *session;
    struct turn turn; /* under way */
    bool running, ended, blocked;
    struct event last;                /* how it ended: sent when the pass is over */
    _Atomic(struct session *) shared; /* for cancel: set once, until the client closes */
    /* TURN and CALL: how many were sent and completed, and the newest that was cancelled */
    atomic_uint_fast64_t work_sent, work_over, work_cancelled;
};

struct worker {
    pthread_t thread;
    struct engine_config config; /* strings are copies */

    pthread_mutex_t lock; /* mailbox, list of clients, their turn_taken */
    struct mailbox_item *first, **last;
    struct client *clients;   /* the first client is last in the list */
    struct client *main;      /* the first client */
    struct wake mailbox_wake; /* commands, stop */

    struct snapshot snapshot;
    struct telemetry slots[3];
    bool telemetry_ready; /* engine thread */
    uint64_t wishes;      /* engine thread: COMMAND_PLAN and COMMAND_PLACE executed */
    int running;          /* engine thread: turns */
    bool gone;            /* that thread has ended; guarded by the lock */

    struct engine *engine;           /* engine thread; others through `shared` */
    _Atomic(struct engine *) shared; /* set once before READY; for info */
    atomic_int quit;                 /* no further commands */
    atomic_int stopping;             /* worker_stop waits: the engine may be closed */
};

/* client.c */
/* Not in any list yet. */
int client_new(struct client **out, struct worker *w, struct error *e);
void client_free(struct client *c); /* accepts NULL; undrained events are released */

#endif
