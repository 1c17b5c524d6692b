/* What all threads of the server share. It is filled before they start and is constant then, except
 * where a field says otherwise. Threads: main (starts, waits for signals, stops), HTTP (the
 * library's: headers, bodies, writing), pool (reads requests, renders templates, makes ids),
 * dispatcher (owns the engine's clients), and the engine's own. A request goes HTTP -> pool ->
 * dispatcher -> engine and comes back on its client's ring through the dispatcher into its
 * exchange. */
#ifndef APP_SERVE_COMMON_SERVER_H
#define APP_SERVE_COMMON_SERVER_H

#include "engine/base/error.h"
#include "engine/run/worker/worker.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define SERVE_BODY_MOST ((size_t)8 << 20) /* bytes of a request */
#define SERVE_HEADER_MOST ((size_t)32 << 10)
#define SERVE_CONNECTIONS 256
#define SERVE_SESSIONS 256
#define SERVE_QUEUE 64 /* requests that wait for a session, beside those that have one */
/* Bytes of an answer that its client has not taken: with so many it stands still, with so few it
 * goes on. Who takes nothing at all for the connection's time limit has left. */
#define SERVE_WAITING_MOST ((size_t)256 << 10)
#define SERVE_WAITING_FEW ((size_t)64 << 10)
#define SERVE_STOPS 64 /* stop strings of a request, and the bytes of one */
#define SERVE_STOP_BYTES 1024
#define SERVE_CHOICES 128
#define SERVE_TASKS 1024 /* choices of all prompts of a request */

struct access;
struct server_status;
struct request_pool;
struct dispatcher;
struct http;
struct refusal;
struct model_registry;

struct server {
    /* of the model that is loaded: its name, and that of its file, which is taken too. They change
     * with it, and so do worker and what requests do not say: see registry_enter */
    const char *model_id, *model_file;
    time_t started;
    atomic_bool plain; /* lines go to stderr, one for each request; else to the status alone */
    struct sampling sampling; /* what a request does not say */
    bool fresh_seeds;         /* no seed was given: each request draws one */
    int max_tokens;           /* likewise; -1: open */
    bool ignore_eos;
    float strengths[LORA_ADAPTERS]; /* of adapters, likewise; the request pool thread's */
    int parallel;
    struct access *access;
    struct model_registry *registry;
    struct server_status *status;
    struct worker *worker;
    struct dispatcher *dispatcher;
    struct request_pool *pool;
    struct http *http;
    atomic_bool ready, draining;
};

/* Of the model that is loaded; NULL: it is being loaded. */
static inline const struct engine_info *server_info(const struct server *s)
{
    return s->worker ? worker_info(s->worker) : NULL;
}

/* Whether requests can be answered: 0, or -1 and *r says that the model is being loaded. Any
 * thread. */
int server_ready(const struct server *s, struct refusal *r);

#endif
