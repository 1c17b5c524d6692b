/* The body of a request for an answer, from the dialogue and the options. Only what the user set is
 * sent; the server's defaults apply to the rest. Thread: that of the options' owner. */
#ifndef APP_CONNECT_REQUEST_H
#define APP_CONNECT_REQUEST_H

#include "app/connect/server.h"
#include "engine/run/report/messages.h"

struct request {
    const char *path; /* "/v1/chat/completions", or "/v1/completions" for raw text */
    char *body;       /* mem_* memory */
};

/* model: of the server. max_tokens: -1: the server's limit. seed (may be NULL) overrides the
 * options'. ERR_MEMORY; ERR_USAGE: --chat-template-kwargs or --json-schema is not JSON. */
int request_make(const struct options *o, const struct server *server, const struct dialogue *said,
                 int max_tokens, const uint64_t *seed, struct request *out, struct error *e);
/* For a server whose model has another name than the one it was made for. */
void request_address(struct request *r, const struct server *server);
void request_release(struct request *r);

#endif
