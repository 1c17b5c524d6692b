/* A server with the OpenAI API: whether it is reachable, which models it serves, and what program
 * it is. */
#ifndef APP_CONNECT_SERVER_H
#define APP_CONNECT_SERVER_H

#include "app/connect/http.h"
#include "app/options/options.h"

/* From the owner in /v1/models; decides which extensions are used. */
enum server_kind { SERVER_OTHER, SERVER_MOETOP, SERVER_LLAMA, SERVER_VLLM, SERVER_SGLANG };

struct server {
    struct http_server http;
    enum server_kind kind;
    char model[512];
    int context; /* context in tokens; 0: not reported */
};

/* "moetop", "llama-server", …; "a server" for another */
const char *server_kind_word(enum server_kind kind);
/* Waits until the server is reachable and has loaded its model (tell gets a line if that takes a
 * while), and chooses the model: the one named by -m, whole or in part, the only one, or the only
 * one that is loaded. ERR_USAGE: bad address, no key; ERR_MODEL: no such model, or several and none
 * named; ERR_IO: unreachable; ERR_CANCELLED. stop and tell may be NULL. Any thread. */
int server_open(struct server *s, const char *url, const char *key_file, const char *model,
                bool (*stop)(void *ctx), void (*tell)(void *ctx, const char *line), void *ctx,
                struct error *e);

#endif
