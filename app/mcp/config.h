/* The file of --mcp: Model Context Protocol servers, in the form that all clients of the protocol
 * read: {"mcpServers": {"NAME": {"command": …, "args": […], "env": {…}, "cwd": …} or {"url": …,
 * "headers": {…}}}}. Read once, by the main thread; constant afterwards. */
#ifndef APP_MCP_CONFIG_H
#define APP_MCP_CONFIG_H

#include "engine/base/error.h"

#include <stddef.h>

#define MCP_SERVERS 32
#define MCP_SERVER_NAME 48 /* most bytes of a server's name */

/* All strings are owned. command or url is set, never both. */
struct mcp_server_config {
    char *name; /* letters, digits, "_", "-" and "."; unique */
    char *command, *cwd;
    char **argv; /* NULL-terminated, begins with command */
    char **env;  /* "KEY=VALUE", NULL-terminated: added to the few variables that are passed on */
    char *url;
    char **headers; /* name, value, name, value, …, NULL */
};

struct mcp_config {
    struct mcp_server_config *servers;
    size_t n;
};

/* Values may contain ${NAME} and ${NAME:-DEFAULT}: variables of the environment. A server with
 * "disabled": true is left out. ERR_USAGE names the file and the place; ERR_IO, ERR_MEMORY: *out is
 * empty. */
int mcp_config_read(struct mcp_config *out, const char *path, struct error *e);
void mcp_config_release(struct mcp_config *c);

#endif
