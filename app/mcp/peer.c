/* See peer.h. ask() sends a request and pumps the transport until its answer is there; what the
 * server sends meanwhile is answered by take(). */
#include "app/mcp/peer.h"

#include "app/mcp/pipe.h"
#include "app/mcp/result.h"
#include "app/mcp/streamable.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGES_MOST 1000 /* of a list of tools */
#define STRAY_MOST 20   /* lines that are no message, logged */

/* The first is asked for, the others are accepted. */
static const char *const versions[] = {"2025-06-18", "2025-11-25", "2025-03-26", "2024-11-05"};

/* ---- messages ---- */

/* Takes the message. */
static int send_json(struct mcp_peer *p, json_t *message, struct error *e)
{
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    int rc = text ? p->t->ops->send(p->t, text, strlen(text), e)
                  : error_set(e, ERR_MEMORY, "out of memory for a request");

    free(text); /* allocated by jansson */
    json_decref(message);
    return rc;
}

/* params is taken; NULL: none. */
static int notify(struct mcp_peer *p, const char *method, json_t *params, struct error *e)
{
    return send_json(
        p, json_pack("{s:s, s:s, s:o*}", "jsonrpc", "2.0", "method", method, "params", params), e);
}

/* A request of the server: a ping is answered, the rest is none of this client's features. */
static void answer_request(struct mcp_peer *p, const char *method, json_t *id)
{
    json_t *o = json_pack("{s:s, s:O}", "jsonrpc", "2.0", "id", id);
    struct error e = {0};

    if (strcmp(method, "ping") == 0)
        json_object_set_new(o, "result", json_object());
    else
        json_object_set_new(o, "error",
                            json_pack("{s:i, s:s}", "code", -32601, "message", "method not found"));
    if (send_json(p, o, &e) < 0 && !p->broken) {
        p->broken = e.code;
        p->why = e;
    }
}

static void take_one(struct mcp_peer *p, json_t *o)
{
    const char *method = json_string_value(json_object_get(o, "method"));
    json_t *id = json_object_get(o, "id");

    if (method && id && (json_is_string(id) || json_is_integer(id)))
        answer_request(p, method, id);
    else if (method)
        p->relist |= strcmp(method, "notifications/tools/list_changed") == 0;
    else if (json_is_integer(id) && p->awaited && json_integer_value(id) == p->awaited &&
             !p->answer)
        p->answer = json_incref(o);
}

/* A message of the transport: an object, or in versions before 2025-06-18 a list of them. */
static void take(void *ctx, const char *text, size_t n)
{
    struct mcp_peer *p = ctx;
    json_t *o = json_loadb(text, n, JSON_ALLOW_NUL, NULL), *one;
    size_t i;

    if (json_is_array(o)) {
        json_array_foreach(o, i, one) take_one(p, one);
    } else if (o) {
        take_one(p, o);
    } else if (p->stray++ < STRAY_MOST) {
        log_write(LOG_LEVEL_WARNING, "mcp %s: not a message: %.*s", p->config->name,
                  n < 100 ? (int)n : 100, text);
    }
    json_decref(o);
}

/* ---- requests ---- */

static void clear_wake(struct mcp_peer *p)
{
    uint64_t n;

    if (read(p->wake, &n, sizeof n) < 0) {
        /* nothing was written since */
    }
}

/* Waits at most until `until` (UINT64_MAX: for ever) for something to happen. A connection that
 * failed stays so until it is opened anew. */
static int pump(struct mcp_peer *p, uint64_t until, struct error *e)
{
    uint64_t now = clock_now();
    int ms = until == UINT64_MAX ? -1 : until <= now ? 0 : (int)((until - now) / CLOCK_MILLI) + 1;

    if (!p->broken) {
        struct error why = {0};
        int rc = p->t->ops->pump(p->t, p->wake, ms, &why);

        clear_wake(p);
        if (rc < 0 && !p->broken) {
            p->broken = rc;
            p->why = why;
        }
    }
    if (p->broken)
        *e = p->why;
    return p->broken;
}

/* Why waiting for an answer has to end; 0: go on. */
static int impatient(struct mcp_peer *p, uint64_t until, struct error *e)
{
    if (p->stop.asked(p->stop.ctx))
        return error_set(e, ERR_CANCELLED, "stopped");
    if (clock_now() >= until)
        return error_set(e, ERR_IO, "no answer within %.0f s", clock_seconds(p->limit_ns));
    return 0;
}

/* The "result" of an answer, a new reference. */
static int result_of(json_t *answer, json_t **result, struct error *e)
{
    const json_t *error = json_object_get(answer, "error");
    const char *text = json_string_value(json_object_get(error, "message"));

    *result = json_object_get(answer, "result");
    if (json_is_object(*result) && !json_is_object(error)) {
        json_incref(*result);
        return 0;
    }
    *result = NULL;
    return error_set(e, ERR_INPUT, "%s%.300s", text ? "it answers: " : "it answers no result",
                     text ? text : "");
}

/* Sends a request and waits for its result, a new reference; params are taken. ERR_INPUT: the
 * server refuses it; ERR_CANCELLED: quit, or for a call also cancel; ERR_IO: the connection is of
 * no more use. */
static int ask(struct mcp_peer *p, const char *method, json_t *params, json_t **result,
               struct error *e)
{
    uint64_t until = clock_now() + p->limit_ns;
    json_t *message = json_pack("{s:s, s:I, s:s, s:o}", "jsonrpc", "2.0", "id", ++p->id, "method",
                                method, "params", params ? params : json_object());
    int rc;

    *result = NULL;
    p->awaited = p->id;
    rc = send_json(p, message, e);
    while (rc == 0 && !p->answer && (rc = impatient(p, until, e)) == 0)
        rc = pump(p, until, e);
    p->awaited = 0;
    if (p->answer)
        rc = result_of(p->answer, result, e);
    json_decref(p->answer);
    p->answer = NULL;
    return rc;
}

/* ---- connecting ---- */

static int agree(struct mcp_peer *p, const json_t *hello, struct error *e)
{
    const char *version = json_string_value(json_object_get(hello, "protocolVersion"));
    const json_t *info = json_object_get(hello, "serverInfo");
    const char *name = json_string_value(json_object_get(info, "name")),
               *its = json_string_value(json_object_get(info, "version"));
    char about[160];

    snprintf(about, sizeof about, "%.80s%s%.40s", name ? name : "", its && *its ? " " : "",
             its ? its : "");
    mcp_line(p->about, sizeof p->about, about);
    for (size_t i = 0; version && i < sizeof versions / sizeof *versions; i++)
        if (strcmp(version, versions[i]) == 0) {
            snprintf(p->t->version, sizeof p->t->version, "%s", version);
            return 0;
        }
    return error_set(e, ERR_IO, "its version of the protocol is unknown: %.40s",
                     version ? version : "none");
}

static int greet(struct mcp_peer *p, struct error *e)
{
    json_t *hello, *params = json_pack("{s:s, s:{}, s:{s:s, s:s}}", "protocolVersion", versions[0],
                                       "capabilities", "clientInfo", "name", "moetop", "version",
                                       MOETOP_VERSION);
    int rc = ask(p, "initialize", params, &hello, e);

    if (rc == 0)
        rc = agree(p, hello, e);
    p->has_tools = json_object_get(json_object_get(hello, "capabilities"), "tools") != NULL;
    json_decref(hello);
    return rc < 0 ? rc : notify(p, "notifications/initialized", NULL, e);
}

/* Adds the tools of a page to the list; returns how many were left out. */
static size_t add_tools(json_t *list, const json_t *page)
{
    const json_t *tools = json_object_get(page, "tools");
    size_t i, out = 0;
    json_t *tool;

    json_array_foreach(tools, i, tool)
    {
        if (json_array_size(list) < MCP_TOOLS_MOST &&
            json_string_length(json_object_get(tool, "name")))
            json_array_append(list, tool);
        else
            out++;
    }
    return out;
}

/* ---- what a client does ---- */

int mcp_peer_init(struct mcp_peer *p, const struct mcp_server_config *config, int wake,
                  uint64_t limit_ns, struct stop stop)
{
    *p = (struct mcp_peer){.config = config, .wake = wake, .limit_ns = limit_ns, .stop = stop};
    p->t = config->url ? mcp_streamable_new(config) : mcp_pipe_new(config);
    if (!p->t)
        return ERR_MEMORY;
    p->t->take = take;
    p->t->ctx = p;
    return 0;
}

void mcp_peer_release(struct mcp_peer *p)
{
    if (p->t)
        p->t->ops->free(p->t);
    p->t = NULL;
}

int mcp_peer_open(struct mcp_peer *p, struct error *e)
{
    int rc;

    p->t->version[0] = 0;
    p->t->forgotten = false;
    p->broken = p->stray = 0;
    p->relist = false;
    rc = p->t->ops->open(p->t, e);
    return rc == 0 ? greet(p, e) : rc;
}

void mcp_peer_close(struct mcp_peer *p)
{
    p->t->ops->close(p->t);
    p->broken = 0; /* from here on only `wake` is waited for */
}

int mcp_peer_tools(struct mcp_peer *p, json_t **list, size_t *left_out, struct error *e)
{
    uint64_t until = clock_now() + p->limit_ns;
    json_t *page = NULL, *cursor = NULL;
    int rc = 0, pages = 0;

    *list = json_array();
    *left_out = 0;
    p->relist = false;
    while (p->has_tools) {
        json_t *params = json_pack("{s:O*}", "cursor", cursor);

        json_decref(page);
        rc = ask(p, "tools/list", params, &page, e);
        *left_out += rc == 0 ? add_tools(*list, page) : 0;
        cursor = json_object_get(page, "nextCursor");
        if (rc == 0 && (++pages > PAGES_MOST || clock_now() > until))
            rc = error_set(e, ERR_IO, "its list of tools has no end");
        if (rc < 0 || !json_string_length(cursor))
            break;
    }
    json_decref(page);
    if (rc < 0) {
        json_decref(*list);
        *list = NULL;
    }
    return rc;
}

int mcp_peer_call(struct mcp_peer *p, json_t *params, json_t **result, struct error *e)
{
    return ask(p, "tools/call", params, result, e);
}

void mcp_peer_cancelled(struct mcp_peer *p)
{
    struct error ignored;

    notify(p, "notifications/cancelled",
           json_pack("{s:I, s:s}", "requestId", p->id, "reason", "stopped by the user"), &ignored);
}

int mcp_peer_wait(struct mcp_peer *p, struct error *e)
{
    return pump(p, UINT64_MAX, e);
}
