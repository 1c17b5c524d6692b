/* The tool servers of --mcp together: their tools under names that a model is given, which of them
 * may run without a question, and one call at a time. Each server has a thread (client.h); all
 * functions here: one thread, the caller's. */
#ifndef APP_MCP_MCP_H
#define APP_MCP_MCP_H

#include "app/mcp/client.h"
#include "engine/base/stop.h"

#define MCP_TOOL_NAME 65 /* a name that a model is given, and its NUL */

struct mcp;

/* A tool as it is offered. Valid until mcp_refresh. */
struct mcp_tool {
    char name[MCP_TOOL_NAME]; /* [A-Za-z0-9_-]; its own, or SERVER__TOOL where that is not unique */
    const char *server;       /* the name in the file */
    const char *own;          /* the name that the server gives it: untrusted */
    const json_t *described;  /* by the server: untrusted */
    size_t at;                /* index of the server */
};

/* Reads the file and starts all servers; one that fails is told by mcp_status. allow: as
 * mcp_may_run. ERR_USAGE, ERR_IO, ERR_MEMORY. */
int mcp_open(struct mcp **out, const char *file, int seconds, char *const *allow, size_t n_allow,
             struct error *e);
/* Ends all servers, a few seconds at most. NULL is accepted. */
void mcp_close(struct mcp *m);
/* Readable after something has changed; mcp_noticed makes it unreadable again. */
int mcp_fd(const struct mcp *m);
void mcp_noticed(struct mcp *m);
/* Waits for a change, at most 50 ms. */
void mcp_wait(struct mcp *m);
/* A server is being started: its tools are not known yet. */
bool mcp_starting(struct mcp *m);
/* Waits until none is; stop (may be NULL) is polled: ERR_CANCELLED. */
int mcp_wait_started(struct mcp *m, const struct stop *stop, struct error *e);

/* Takes over the servers' newest lists of tools; only between two answers. True: they differ from
 * those before. ERR_MEMORY is told in the log, and leaves out tools. */
bool mcp_refresh(struct mcp *m);
/* The tools in OpenAI's form, as of mcp_refresh; borrowed. */
const json_t *mcp_tools(const struct mcp *m);
/* By the name that the model was given; NULL: none. */
const struct mcp_tool *mcp_tool_find(const struct mcp *m, const char *name);
const struct mcp_tool *mcp_tool_at(const struct mcp *m, size_t i); /* NULL: there are not so many */

/* Whether a call of the tool needs no question: its name, or its server's, or "*" is among `allow`
 * of mcp_open, or mcp_always was called for it, and it is described as it was then. The name of a
 * server never means a tool. */
bool mcp_may_run(const struct mcp *m, const struct mcp_tool *tool);
void mcp_always(struct mcp *m, const struct mcp_tool *tool);
void mcp_always_none(struct mcp *m); /* forgets the latter */

/* Starts a call; takes the arguments, an object. None may be running. ERR_MEMORY. */
int mcp_call(struct mcp *m, const struct mcp_tool *tool, json_t *arguments, struct error *e);
/* The result of the running call; false: it still runs. out->text is the caller's. */
bool mcp_take(struct mcp *m, struct mcp_result *out);
void mcp_cancel(struct mcp *m); /* the running call, if any */

size_t mcp_servers(const struct mcp *m);
const struct mcp_server_config *mcp_server(const struct mcp *m, size_t i);
void mcp_status(struct mcp *m, size_t i, struct mcp_status *out);
void mcp_restart(struct mcp *m, size_t i);

#endif
