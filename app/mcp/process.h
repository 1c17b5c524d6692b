/* A server's process: the head of a session of its own without a terminal, with three pipes and no
 * other descriptor of ours. Thread: the server's own. */
#ifndef APP_MCP_PROCESS_H
#define APP_MCP_PROCESS_H

#include "app/mcp/config.h"

#include <stdbool.h>
#include <sys/types.h>

/* pid 0: none; then the descriptors are -1. They do not block. */
struct mcp_process {
    pid_t pid;
    int in, out, err; /* its standard input, output and error, our ends */
};

/* Starts config->argv. It gets HOME, PATH, the locale and a few more variables of the environment,
 * and those of config->env; others may hold secrets. ERR_IO names the command and the reason. */
int mcp_process_start(struct mcp_process *p, const struct mcp_server_config *config,
                      struct error *e);
/* Closes its input; SIGTERM to its group if it has not ended soon after, then SIGKILL. text: how it
 * ended ("exit status 3"), "" if it was we who ended it. */
void mcp_process_end(struct mcp_process *p, bool at_once, char *text, size_t size);

#endif
