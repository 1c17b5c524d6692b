/* A server as a child process: one JSON text a line, on its standard input and output. Its standard
 * error goes into the log. */
#ifndef APP_MCP_PIPE_H
#define APP_MCP_PIPE_H

#include "app/mcp/transport.h"

/* Not opened yet. NULL: no memory. */
struct mcp_transport *mcp_pipe_new(const struct mcp_server_config *config);

#endif
