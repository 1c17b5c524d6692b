/* Shared by all threads of the server. Filled before they start and constant afterwards, unless a
 * field says otherwise. Threads: main (starts, waits for signals, stops), HTTP (the library's:
 * headers, bodies, writing), pool (reads requests, renders templates, tokenizes), dispatcher (owns
 * the engine's clients), and the engine's own. A request goes HTTP -> pool -> dispatcher -> engine;
 * its events return through its client's ring to the dispatcher and into its exchange. */
#ifndef APP_SERVE_COMMON_SERVER_H
#define APP_SERVE_COMMON_SERVER_H

#include "app/setup/embedding.h"
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
#define SERVE_QUEUE 64 /* requests that wait for a session, in addition to running ones */
/* Unread bytes of an answer at which it is paused, and at which it continues. A client that reads
 * nothing for the connection's time limit counts as disconnected. */
#define SERVE_WAITING_MOST ((size_t)256 << 10)
#define SERVE_WAITING_FEW ((size_t)64 << 10)
#define SERVE_STOPS 64 /* stop strings per request, and bytes of one */
#define SERVE_STOP_BYTES 1024
#define SERVE_CHOICES 128
#define SERVE_TASKS 2048 /* choices for all prompts of a request; OpenAI takes as many inputs */

struct access;
struct server_status;
struct request_pool;
struct dispatcher;
struct http;
struct refusal;
struct model_registry;
struct response_store;

struct server {
    /* of the loaded model: its name, and that of its file, which is accepted too. They change with
     * the model, and so do worker and the defaults of requests: see registry_enter */
    const char *model_id, *model_file;
    time_t started;
    atomic_bool plain;        /* log lines go to stderr, one per request; else only to the status */
    struct sampling sampling; /* default of requests */
    bool fresh_seeds;         /* no seed was given: each request gets a random one */
    struct embedding_settings embedding; /* as the options ask */
    char *rerank_template; /* of --rerank-template-file, mem_*; NULL: the model's own */
    int max_tokens;        /* likewise; -1: unlimited */
    bool ignore_eos;
    bool any_model;                 /* unknown model names mean the loaded one */
    bool allow_pull;                /* clients may make the server download models */
    float strengths[LORA_ADAPTERS]; /* of adapters, likewise; owned by the request pool's thread */
    int parallel;
    struct access *access;
    struct model_registry *registry;
    struct response_store *responses; /* NULL: none are stored */
    struct server_status *status;
    struct worker *worker;
    struct dispatcher *dispatcher;
    struct request_pool *pool;
    struct http *http;
    atomic_bool ready, draining;
    atomic_bool unloaded; /* the registry is asleep: for server_ready */
};

/* Of the loaded model; NULL: it is being loaded, or unloaded. */
static inline const struct engine_info *server_info(const struct server *s)
{
    return s->worker ? worker_info(s->worker) : NULL;
}

/* Whether requests can be answered: 0, or -1 with *r saying that the model is being loaded, or is
 * unloaded. Any thread. */
int server_ready(const struct server *s, struct refusal *r);

#endif
