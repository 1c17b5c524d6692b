/* The protocol with one server (JSON-RPC 2.0, Model Context Protocol), one request after the other:
 * each waits for its answer, answers the server's pings meanwhile, and refuses its other requests.
 * Thread: the server's own (client.h). */
#ifndef APP_MCP_PEER_H
#define APP_MCP_PEER_H

#include "app/mcp/transport.h"
#include "engine/base/stop.h"

#include <jansson.h>
#include <stdint.h>

#define MCP_TOOLS_MOST 256 /* of a server; further ones are left out */

struct mcp_peer {
    const struct mcp_server_config *config;
    struct mcp_transport *t;
    int wake;          /* an eventfd that interrupts waiting; it is read here */
    uint64_t limit_ns; /* of a request */
    struct stop stop;  /* polled while an answer is waited for */
    char about[120];   /* the name and version that the server gives itself, safe to print */
    bool has_tools;
    bool relist; /* the server says that its list of tools has changed */
    /* private */
    json_int_t id, awaited;
    json_t *answer; /* to `awaited` */
    int broken;     /* the connection's failure; 0: none */
    struct error why;
    int stray;
};

/* Opens nothing yet. ERR_MEMORY. Free with mcp_peer_release. */
int mcp_peer_init(struct mcp_peer *p, const struct mcp_server_config *config, int wake,
                  uint64_t limit_ns, struct stop stop);
void mcp_peer_release(struct mcp_peer *p);
/* Errors of all below: ERR_INPUT: the server refuses; ERR_CANCELLED: stop; ERR_IO: the connection
 * is of no more use; ERR_MEMORY. */
/* Connects and agrees on a version. */
int mcp_peer_open(struct mcp_peer *p, struct error *e);
void mcp_peer_close(struct mcp_peer *p); /* in any state */
/* All pages of the server's list, within the time of one request; *left_out: beyond MCP_TOOLS_MOST.
 * *list is the caller's, NULL on failure. */
int mcp_peer_tools(struct mcp_peer *p, json_t **list, size_t *left_out, struct error *e);
/* params (name, arguments) are taken; *result: a new reference, NULL on failure. */
int mcp_peer_call(struct mcp_peer *p, json_t *params, json_t **result, struct error *e);
/* Tells the server that the newest request is not waited for any more. */
void mcp_peer_cancelled(struct mcp_peer *p);
/* Waits for what the server sends by itself, or for `wake`. */
int mcp_peer_wait(struct mcp_peer *p, struct error *e);

#endif
