/* A server at an address: the protocol's "streamable HTTP". Each message is a POST, whose answer is
 * a JSON text or a stream of events; what the server sends without being asked comes over a GET. */
#ifndef APP_MCP_STREAMABLE_H
#define APP_MCP_STREAMABLE_H

#include "app/mcp/transport.h"

/* NULL: no memory. */
struct mcp_transport *mcp_streamable_new(const struct mcp_server_config *config);

#endif
