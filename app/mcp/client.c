/* See client.h. On its thread everything is sequential: ask() sends a request and pumps the
 * transport until its answer is there; what the server sends meanwhile is answered by take(). */
#include "app/mcp/client.h"

#include "app/mcp/pipe.h"
#include "app/mcp/result.h"
#include "app/mcp/streamable.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PAGES_MOST 1000 /* of a list of tools */
#define STRAY_MOST 20   /* lines that are no message, logged */

/* The newest first; it is asked for, the others are accepted. */
static const char *const versions[] = {"2025-06-18", "2025-11-25", "2025-03-26", "2024-11-05"};

struct mcp_client {
    const struct mcp_server_config *config;
    uint64_t limit_ns;
    void (*changed)(void *ctx);
    void *ctx;
    pthread_t thread;
    int wake; /* an eventfd */
    /* the thread's own */
    struct mcp_transport *t;
    bool open, relist; /* connected; the list of tools has changed */
    bool calling;      /* what it does is part of a call, which may be cancelled */
    json_int_t id, awaited;
    json_t *answer; /* to `awaited` */
    int broken;     /* sending failed: its error */
    struct error why;
    int stray;
    /* between the threads */
    pthread_mutex_t lock;
    bool quit, restart, cancel, wanted, ended;
    struct mcp_status status;
    json_t *tools, *arguments;
    unsigned version;
    char *tool; /* to call */
    struct mcp_result result;
};

static void tell(struct mcp_client *c)
{
    c->changed(c->ctx);
}

static bool flag(struct mcp_client *c, const bool *which)
{
    bool set;

    pthread_mutex_lock(&c->lock);
    set = *which;
    pthread_mutex_unlock(&c->lock);
    return set;
}

static void rouse(struct mcp_client *c)
{
    uint64_t one = 1;

    if (write(c->wake, &one, sizeof one) < 0) {
        /* it is full: readable already */
    }
}

/* ---- messages ---- */

/* Takes the message. */
static int send_json(struct mcp_client *c, json_t *message, struct error *e)
{
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    int rc = text ? c->t->ops->send(c->t, text, strlen(text), e)
                  : error_set(e, ERR_MEMORY, "out of memory for a request");

    free(text); /* allocated by jansson */
    json_decref(message);
    return rc;
}

/* params is taken; NULL: none. */
static int notify(struct mcp_client *c, const char *method, json_t *params, struct error *e)
{
    return send_json(
        c, json_pack("{s:s, s:s, s:o*}", "jsonrpc", "2.0", "method", method, "params", params), e);
}

/* A request of the server: a ping is answered, the rest is none of this client's features. */
static void answer_request(struct mcp_client *c, const char *method, json_t *id)
{
    json_t *o = json_pack("{s:s, s:O}", "jsonrpc", "2.0", "id", id);
    struct error e = {0};

    if (strcmp(method, "ping") == 0)
        json_object_set_new(o, "result", json_object());
    else
        json_object_set_new(o, "error",
                            json_pack("{s:i, s:s}", "code", -32601, "message", "method not found"));
    if (send_json(c, o, &e) < 0 && !c->broken) {
        c->broken = e.code;
        c->why = e;
    }
}

static void take_one(struct mcp_client *c, json_t *o)
{
    const char *method = json_string_value(json_object_get(o, "method"));
    json_t *id = json_object_get(o, "id");

    if (method && id && (json_is_string(id) || json_is_integer(id)))
        answer_request(c, method, id);
    else if (method)
        c->relist |= strcmp(method, "notifications/tools/list_changed") == 0;
    else if (json_is_integer(id) && c->awaited && json_integer_value(id) == c->awaited &&
             !c->answer)
        c->answer = json_incref(o);
}

/* A message of the transport: an object, or in versions before 2025-06-18 a list of them. */
static void take(void *ctx, const char *text, size_t n)
{
    struct mcp_client *c = ctx;
    json_t *o = json_loadb(text, n, JSON_ALLOW_NUL, NULL), *one;
    size_t i;

    if (json_is_array(o)) {
        json_array_foreach(o, i, one) take_one(c, one);
    } else if (o) {
        take_one(c, o);
    } else if (c->stray++ < STRAY_MOST) {
        log_write(LOG_LEVEL_WARNING, "mcp %s: not a message: %.*s", c->config->name,
                  n < 100 ? (int)n : 100, text);
    }
    json_decref(o);
}

/* ---- requests ---- */

static void clear_wake(struct mcp_client *c)
{
    uint64_t n;

    if (read(c->wake, &n, sizeof n) < 0) {
        /* nothing was written since */
    }
}

/* Waits at most until `until` (UINT64_MAX: for ever) for something to happen. A connection that
 * failed stays so until it is opened anew. */
static int pump(struct mcp_client *c, uint64_t until, struct error *e)
{
    uint64_t now = clock_now();
    int ms = until == UINT64_MAX ? -1 : until <= now ? 0 : (int)((until - now) / CLOCK_MILLI) + 1;

    if (!c->broken) {
        struct error why = {0};
        int rc = c->t->ops->pump(c->t, c->wake, ms, &why);

        clear_wake(c);
        if (rc < 0 && !c->broken) {
            c->broken = rc;
            c->why = why;
        }
    }
    if (c->broken)
        *e = c->why;
    return c->broken;
}

/* Why waiting for an answer has to end; 0: go on. */
static int impatient(struct mcp_client *c, uint64_t until, struct error *e)
{
    if (flag(c, &c->quit) || (c->calling && flag(c, &c->cancel)))
        return error_set(e, ERR_CANCELLED, "stopped");
    if (clock_now() >= until)
        return error_set(e, ERR_IO, "no answer within %.0f s", clock_seconds(c->limit_ns));
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
static int ask(struct mcp_client *c, const char *method, json_t *params, json_t **result,
               struct error *e)
{
    uint64_t until = clock_now() + c->limit_ns;
    json_t *message = json_pack("{s:s, s:I, s:s, s:o}", "jsonrpc", "2.0", "id", ++c->id, "method",
                                method, "params", params ? params : json_object());
    int rc;

    *result = NULL;
    c->awaited = c->id;
    rc = send_json(c, message, e);
    while (rc == 0 && !c->answer && (rc = impatient(c, until, e)) == 0)
        rc = pump(c, until, e);
    c->awaited = 0;
    if (c->answer)
        rc = result_of(c->answer, result, e);
    json_decref(c->answer);
    c->answer = NULL;
    return rc;
}

/* ---- connecting ---- */

static int agree(struct mcp_client *c, const json_t *hello, struct error *e)
{
    const char *version = json_string_value(json_object_get(hello, "protocolVersion"));
    const json_t *info = json_object_get(hello, "serverInfo");
    const char *name = json_string_value(json_object_get(info, "name")),
               *its = json_string_value(json_object_get(info, "version"));
    char about[160];

    snprintf(about, sizeof about, "%.80s%s%.40s", name ? name : "", its && *its ? " " : "",
             its ? its : "");
    pthread_mutex_lock(&c->lock);
    mcp_line(c->status.about, sizeof c->status.about, about);
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; version && i < sizeof versions / sizeof *versions; i++)
        if (strcmp(version, versions[i]) == 0) {
            snprintf(c->t->version, sizeof c->t->version, "%s", version);
            return 0;
        }
    return error_set(e, ERR_IO, "its version of the protocol is unknown: %.40s",
                     version ? version : "none");
}

static int greet(struct mcp_client *c, bool *has_tools, struct error *e)
{
    json_t *hello, *params = json_pack("{s:s, s:{}, s:{s:s, s:s}}", "protocolVersion", versions[0],
                                       "capabilities", "clientInfo", "name", "moetop", "version",
                                       MOETOP_VERSION);
    int rc = ask(c, "initialize", params, &hello, e);

    if (rc == 0)
        rc = agree(c, hello, e);
    *has_tools = json_object_get(json_object_get(hello, "capabilities"), "tools") != NULL;
    json_decref(hello);
    return rc < 0 ? rc : notify(c, "notifications/initialized", NULL, e);
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

static void keep_tools(struct mcp_client *c, json_t *list, size_t out)
{
    pthread_mutex_lock(&c->lock);
    json_decref(c->tools);
    c->tools = list;
    c->version++;
    c->status.tools = json_array_size(list);
    c->status.left_out = out;
    pthread_mutex_unlock(&c->lock);
    if (out)
        log_write(LOG_LEVEL_WARNING, "mcp %s: %zu more tools are left out", c->config->name, out);
    tell(c);
}

/* All pages of the list, within the time of one request. */
static int list_tools(struct mcp_client *c, struct error *e)
{
    uint64_t until = clock_now() + c->limit_ns;
    json_t *list = json_array(), *page = NULL, *cursor = NULL;
    size_t out = 0;
    int rc = 0, pages = 0;

    c->relist = false;
    do {
        json_t *params = json_pack("{s:O*}", "cursor", cursor);

        json_decref(page);
        rc = ask(c, "tools/list", params, &page, e);
        out += rc == 0 ? add_tools(list, page) : 0;
        cursor = json_object_get(page, "nextCursor");
        if (rc == 0 && (++pages > PAGES_MOST || clock_now() > until))
            rc = error_set(e, ERR_IO, "its list of tools has no end");
    } while (rc == 0 && json_string_length(cursor));
    json_decref(page);
    if (rc == 0)
        keep_tools(c, list, out);
    else
        json_decref(list);
    return rc;
}

static void set_state(struct mcp_client *c, enum mcp_state state, const struct error *why)
{
    pthread_mutex_lock(&c->lock);
    c->status.state = state;
    snprintf(c->status.why, sizeof c->status.why, "%.*s", (int)sizeof c->status.why - 1,
             why ? why->text : "");
    pthread_mutex_unlock(&c->lock);
    if (why)
        log_write(LOG_LEVEL_WARNING, "mcp %s: %s", c->config->name, why->text);
    tell(c);
}

static void disconnect(struct mcp_client *c, const struct error *why)
{
    c->t->ops->close(c->t);
    c->open = false;
    c->broken = 0; /* from here on only the caller is waited for */
    set_state(c, MCP_FAILED, why);
}

static int connect_anew(struct mcp_client *c, struct error *e)
{
    uint64_t begun = clock_now();
    bool has_tools = false;
    int rc;

    set_state(c, MCP_STARTING, NULL);
    c->t->version[0] = 0;
    c->t->forgotten = false;
    c->broken = c->stray = 0;
    c->relist = false;
    if ((rc = c->t->ops->open(c->t, e)) == 0 && (rc = greet(c, &has_tools, e)) == 0) {
        if (has_tools)
            rc = list_tools(c, e);
        else
            keep_tools(c, json_array(), 0);
    }
    if (rc < 0) {
        disconnect(c, e);
        return rc;
    }
    c->open = true;
    pthread_mutex_lock(&c->lock);
    c->status.starts++;
    c->status.start_s = clock_seconds(clock_now() - begun);
    pthread_mutex_unlock(&c->lock);
    set_state(c, MCP_READY, NULL);
    return 0;
}

/* ---- calls ---- */

static char *failure_text(const struct error *e)
{
    char text[sizeof e->text + 16];

    snprintf(text, sizeof text, "Error: %s", e->text);
    return mem_string(text);
}

/* Takes the arguments. A server that has forgotten its clients is greeted again, once: it has not
 * run the call. */
static int call_on(struct mcp_client *c, const char *tool, json_t *arguments, json_t **result,
                   struct error *e)
{
    json_t *params = json_pack("{s:s, s:o}", "name", tool, "arguments", arguments);
    int rc = c->open ? 0 : connect_anew(c, e);

    *result = NULL;
    if (rc == 0)
        rc = ask(c, "tools/call", json_incref(params), result, e);
    if (rc < 0 && c->open && c->t->forgotten) {
        c->t->ops->close(c->t);
        c->open = false;
        if ((rc = connect_anew(c, e)) == 0)
            rc = ask(c, "tools/call", json_incref(params), result, e);
    }
    json_decref(params);
    return rc;
}

/* Runs the call that was asked for; arguments are taken. */
static void call(struct mcp_client *c, const char *tool, json_t *arguments, struct mcp_result *out)
{
    struct error e = {0}, ignored = {0};
    json_t *result;
    int rc;

    c->calling = true;
    rc = call_on(c, tool, arguments, &result, &e);
    c->calling = false;
    if (rc == ERR_CANCELLED && c->open)
        notify(c, "notifications/cancelled",
               json_pack("{s:I, s:s}", "requestId", c->id, "reason", "stopped by the user"),
               &ignored);
    else if (rc < 0 && rc != ERR_INPUT && c->open)
        disconnect(c, &e);
    out->stopped = rc == ERR_CANCELLED;
    out->failed = rc < 0 || json_is_true(json_object_get(result, "isError"));
    out->text = rc < 0 ? failure_text(&e) : mcp_result_text(result, MCP_RESULT_MOST);
    json_decref(result);
}

/* The call that waits, if any. */
static void serve_call(struct mcp_client *c)
{
    uint64_t begun = clock_now();
    struct mcp_result result = {0};
    json_t *arguments;
    char *tool;

    pthread_mutex_lock(&c->lock);
    tool = c->tool;
    arguments = c->arguments;
    c->tool = NULL;
    c->arguments = NULL;
    pthread_mutex_unlock(&c->lock);
    if (!tool)
        return;
    call(c, tool, arguments, &result);
    mem_free(tool);
    result.seconds = clock_seconds(clock_now() - begun);
    pthread_mutex_lock(&c->lock);
    c->result = result;
    c->ended = true;
    c->status.calls++;
    c->status.failures += result.failed;
    c->status.call_s += result.seconds;
    pthread_mutex_unlock(&c->lock);
    tell(c);
}

static bool take_restart(struct mcp_client *c)
{
    bool restart;

    pthread_mutex_lock(&c->lock);
    restart = c->restart;
    c->restart = false;
    pthread_mutex_unlock(&c->lock);
    return restart;
}

static bool has_work(struct mcp_client *c)
{
    bool work;

    pthread_mutex_lock(&c->lock);
    work = c->quit || c->restart || c->tool;
    pthread_mutex_unlock(&c->lock);
    return work;
}

/* Waits for work, and for what the server sends without being asked. */
static void idle(struct mcp_client *c)
{
    struct error e = {0};
    int rc = 0;

    if (c->open && c->relist && (rc = list_tools(c, &e)) == ERR_IO)
        disconnect(c, &e);
    /* a wake-up that was consumed meanwhile has left its mark */
    if (!has_work(c) && (rc = pump(c, UINT64_MAX, &e)) < 0 && c->open)
        disconnect(c, &e);
}

static void *run(void *ctx)
{
    struct mcp_client *c = ctx;
    struct error e = {0};

    connect_anew(c, &e);
    while (!flag(c, &c->quit)) {
        if (take_restart(c)) {
            c->t->ops->close(c->t);
            c->open = false;
            connect_anew(c, &e);
        }
        serve_call(c);
        idle(c);
    }
    c->t->ops->close(c->t);
    return NULL;
}

/* ---- the caller's thread ---- */

/* No signal is delivered to the thread: a pipe that nobody reads is an error of write(), and the
 * rest belongs to the caller's. */
static int start_thread(struct mcp_client *c)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&c->thread, NULL, run, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static void release(struct mcp_client *c)
{
    if (c->t)
        c->t->ops->free(c->t);
    if (c->wake >= 0)
        close(c->wake);
    pthread_mutex_destroy(&c->lock);
    json_decref(c->tools);
    json_decref(c->arguments);
    mem_free(c->tool);
    mem_free(c->result.text);
    mem_free(c);
}

int mcp_client_start(struct mcp_client **out, const struct mcp_server_config *config, int seconds,
                     void (*changed)(void *ctx), void *ctx, struct error *e)
{
    struct mcp_client *c = mem_alloc(1, sizeof *c);

    if (!c)
        return error_set(e, ERR_MEMORY, "out of memory for a tool server");
    c->config = config;
    c->limit_ns = (uint64_t)seconds * CLOCK_SECOND;
    c->changed = changed;
    c->ctx = ctx;
    pthread_mutex_init(&c->lock, NULL);
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->t = config->url ? mcp_streamable_new(config) : mcp_pipe_new(config);
    if (c->t) {
        c->t->take = take;
        c->t->ctx = c;
    }
    if (c->wake < 0 || !c->t || start_thread(c)) {
        release(c);
        return error_set(e, ERR_MEMORY, "no thread for tool server %s", config->name);
    }
    *out = c;
    return 0;
}

static void set_flag(struct mcp_client *c, bool *which)
{
    pthread_mutex_lock(&c->lock);
    *which = true;
    pthread_mutex_unlock(&c->lock);
    rouse(c);
}

void mcp_client_quit(struct mcp_client *c)
{
    if (c)
        set_flag(c, &c->quit);
}

void mcp_client_free(struct mcp_client *c)
{
    if (!c)
        return;
    mcp_client_quit(c);
    pthread_join(c->thread, NULL);
    release(c);
}

void mcp_client_status(struct mcp_client *c, struct mcp_status *out)
{
    pthread_mutex_lock(&c->lock);
    *out = c->status;
    pthread_mutex_unlock(&c->lock);
}

json_t *mcp_client_tools(struct mcp_client *c, unsigned *version)
{
    json_t *copy = NULL;

    pthread_mutex_lock(&c->lock);
    if (c->version != *version) {
        *version = c->version;
        copy = json_deep_copy(c->tools);
    }
    pthread_mutex_unlock(&c->lock);
    return copy;
}

int mcp_client_call(struct mcp_client *c, const char *tool, json_t *arguments, struct error *e)
{
    char *name = mem_string(tool);

    if (!name || !arguments) {
        mem_free(name);
        json_decref(arguments);
        return error_set(e, ERR_MEMORY, "out of memory for the call");
    }
    pthread_mutex_lock(&c->lock);
    mem_free(c->tool);
    json_decref(c->arguments);
    c->tool = name;
    c->arguments = arguments;
    c->cancel = c->ended = false;
    pthread_mutex_unlock(&c->lock);
    rouse(c);
    return 0;
}

bool mcp_client_take(struct mcp_client *c, struct mcp_result *out)
{
    bool ended;

    pthread_mutex_lock(&c->lock);
    if ((ended = c->ended)) {
        *out = c->result;
        c->result = (struct mcp_result){0};
        c->ended = false;
    }
    pthread_mutex_unlock(&c->lock);
    return ended;
}

void mcp_client_cancel(struct mcp_client *c)
{
    set_flag(c, &c->cancel);
}

void mcp_client_restart(struct mcp_client *c)
{
    set_flag(c, &c->restart);
}
