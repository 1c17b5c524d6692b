/* How messages reach a server and come back: over the pipes of a child (pipe.h), or by requests
 * (streamable.h). One thread: the server's own (client.h). */
#ifndef APP_MCP_TRANSPORT_H
#define APP_MCP_TRANSPORT_H

#include "app/mcp/config.h"
#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define MCP_MESSAGE_MOST ((size_t)4 << 20) /* bytes of a message, either way */

struct mcp_transport;

struct mcp_transport_ops {
    /* A connection anew; it is closed when this is called. ERR_IO, ERR_MEMORY. */
    int (*open)(struct mcp_transport *t, struct error *e);
    /* Sends one JSON text, without line ends, as soon as that is possible (pump). ERR_IO,
     * ERR_MEMORY. */
    int (*send)(struct mcp_transport *t, const char *text, size_t n, struct error *e);
    /* Waits until something happens, `wake` is readable, or timeout_ms (-1: for ever), and passes
     * complete messages to t->take. ERR_IO: the connection has ended; *e tells why. */
    int (*pump)(struct mcp_transport *t, int wake, int timeout_ms, struct error *e);
    /* Ends the connection, and a child with its whole process group; takes at most a few seconds.
     * May be called in any state. */
    void (*close)(struct mcp_transport *t);
    void (*free)(struct mcp_transport *t); /* closes too */
};

struct mcp_transport {
    const struct mcp_transport_ops *ops;
    const struct mcp_server_config *config;
    char version[16]; /* of the protocol, once agreed on; "": not yet */
    bool forgotten;   /* the server no longer knows this client: opening anew helps */
    /* Receives one message; it may call ops->send. */
    void (*take)(void *ctx, const char *text, size_t n);
    void *ctx;
};

#endif
