/* One server of the Model Context Protocol as its client: JSON-RPC 2.0 over a transport, on a
 * thread of its own, so that no server can make the caller wait. The thread connects at once, keeps
 * the list of tools up to date and runs one call at a time. A server that fails, or exceeds its
 * time, is ended, and started again by the next call. All functions: one thread, the caller's. */
#ifndef APP_MCP_CLIENT_H
#define APP_MCP_CLIENT_H

#include "app/mcp/peer.h"

#include <jansson.h>
#include <stdbool.h>

#define MCP_RESULT_MOST ((size_t)64 << 10) /* bytes of a result; longer ones are cut */

enum mcp_state { MCP_STARTING, MCP_READY, MCP_FAILED };

struct mcp_status {
    enum mcp_state state;
    char why[300];   /* MCP_FAILED: one line, safe to print */
    char about[120]; /* the name and version it gives itself, safe to print; "": none */
    size_t tools, left_out;
    unsigned starts, calls, failures; /* calls that ended, those of them that failed */
    double start_s;                   /* the newest start, to its list of tools */
    double call_s;                    /* all calls together */
};

/* The result of a call. */
struct mcp_result {
    char *text;   /* for the model: valid UTF-8 without NUL, at most MCP_RESULT_MOST and a note that
                   * says so; mem_* */
    bool failed;  /* it is an error's text */
    bool stopped; /* by mcp_client_cancel */
    double seconds;
};

struct mcp_client;

/* seconds: limit of each request. changed: called on the client's thread when something can be
 * taken or the status has changed. config outlives it. ERR_MEMORY. */
int mcp_client_start(struct mcp_client **out, const struct mcp_server_config *config, int seconds,
                     void (*changed)(void *ctx), void *ctx, struct error *e);
/* Ends it without waiting; then mcp_client_free, which waits a few seconds at most for a child that
 * has to be killed. NULL is accepted. */
void mcp_client_quit(struct mcp_client *c);
void mcp_client_free(struct mcp_client *c);
void mcp_client_status(struct mcp_client *c, struct mcp_status *out);
/* The server's tools as it describes them (name, description, inputSchema), the caller's; *version
 * is another number after each change, and NULL is returned while it is not. */
json_t *mcp_client_tools(struct mcp_client *c, unsigned *version);
/* Calls a tool; takes the arguments, an object. No other call runs. ERR_MEMORY. */
int mcp_client_call(struct mcp_client *c, const char *tool, json_t *arguments, struct error *e);
/* The result of the call; false: it is still running. out->text is the caller's. */
bool mcp_client_take(struct mcp_client *c, struct mcp_result *out);
/* The call ends at once, its result says so. */
void mcp_client_cancel(struct mcp_client *c);
/* Connects again unless a call runs. */
void mcp_client_restart(struct mcp_client *c);

#endif
