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

/* Where a server is, and how to speak with it; all borrowed. */
struct server_address {
    const char *url, *key_file, *model; /* the last two NULL: none */
    long silence;                       /* see struct http_server; 0: HTTP_SILENCE */
};

struct server_address server_address(const struct options *o);
/* "moetop", "llama-server", …; "a server" for another */
const char *server_kind_word(enum server_kind kind);
/* Waits until the server is reachable and has loaded its model (tell gets a line if that takes a
 * while), and chooses the model: the one named by -m, whole or in part, the only one, or the only
 * one that is loaded. ERR_USAGE: bad address, no key; ERR_MODEL: no such model, or several and none
 * named; ERR_IO: unreachable; ERR_CANCELLED. stop and tell may be NULL. Any thread. */
int server_open(struct server *s, const struct server_address *at, bool (*stop)(void *ctx),
                void (*tell)(void *ctx, const char *line), void *ctx, struct error *e);
/* Whether something answers there that is not busy or loading; *e says what is wrong. One request,
 * of a few seconds; stop may be NULL. Any thread. */
bool server_answers(const struct server *s, bool (*stop)(void *ctx), void *ctx, struct error *e);

#endif
