/* A load of requests on a server, or on the engine here. Each client sends the next request when
 * its last one is answered. Arrival times are measured on the client's own thread, so that both
 * kinds are measured alike. */
#ifndef APP_BENCH_LOAD_H
#define APP_BENCH_LOAD_H

#include "app/options/options.h"
#include "engine/base/series.h"
#include "engine/run/report/messages.h"

/* One request of the file. */
struct load_request {
    struct dialogue said;
    int max_tokens;
};

struct load_requests {
    struct load_request *request;
    size_t n;
};

/* Lines: text, sent as a user message, or a JSON object with "prompt" or "messages" and
 * "max_tokens" (default: the call's max_tokens). NULL or "default": the program's own prompts.
 * ERR_IO, ERR_INPUT naming file and line, ERR_MEMORY. Release in any case. */
int load_requests_read(struct load_requests *r, const char *path, int max_tokens, struct error *e);
void load_requests_release(struct load_requests *r);

/* The system under load. */
struct answerer {
    char where[300]; /* "http://127.0.0.1:8080", "here" */
    char model[512];
    void *own;
    /* A client of it, for one thread; NULL with *e. */
    void *(*client_open)(struct answerer *a, struct error *e);
    /* Sends a request; on_event gets TOKEN events as they arrive. */
    int (*ask)(void *client, const struct load_request *r,
               int (*on_event)(void *ctx, struct event *ev), void *ctx,
               struct turn_done_event *done, struct error *e);
    void (*client_close)(void *client);
    void (*close)(struct answerer *a); /* NULL: never opened */
};

/* o: copied as far as needed later; it outlives the answerer. clients: maximum at a time. */
int answerer_remote(struct answerer *a, const struct options *o, struct error *e);
int answerer_local(struct answerer *a, const struct options *o, const char *model, int clients,
                   struct error *e);

/* Results of a load: samples of all its runs. */
struct load_result {
    const char *where, *model;
    int clients, failed;
    size_t requests; /* answered */
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    /* milliseconds to the first token and between two arrivals, one sample each; tokens/s of all
     * clients, one sample per run */
    struct series ttft, gap, rate;
    struct error first; /* of the first failed request */
};

/* One run: all requests once, by so many clients. Adds to *out. ERR_CANCELLED, ERR_MEMORY; a failed
 * request is counted and the others continue. Main thread. */
int load_run(struct answerer *a, const struct load_requests *r, int clients,
             struct load_result *out, struct error *e);
void load_result_release(struct load_result *r);

#endif
