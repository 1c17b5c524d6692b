/* The body of a request for an answer, from what was said and the options. Only what the user set
 * is sent: the rest is the server's to choose. Thread: who owns the options. */
#ifndef APP_CONNECT_REQUEST_H
#define APP_CONNECT_REQUEST_H

#include "app/connect/server.h"
#include "engine/run/report/messages.h"

struct request {
    const char *path; /* "/v1/chat/completions", or "/v1/completions" for a text as it stands */
    char *body;       /* mem_* memory */
};

/* model: of the server. max_tokens: -1: as many as the server gives. seed (may be NULL) goes before
 * the options'. ERR_MEMORY; ERR_USAGE: what
 * --chat-template-kwargs or --json-schema say is no JSON. */
int request_make(const struct options *o, const struct server *server, const struct dialogue *said,
                 int max_tokens, const uint64_t *seed, struct request *out, struct error *e);
void request_release(struct request *r);

#endif
