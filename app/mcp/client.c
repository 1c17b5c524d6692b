/* See client.h. On its thread everything is sequential (peer.h); the mailbox between the threads is
 * under one lock. */
#include "app/mcp/client.h"

#include "app/common/web.h"
#include "app/mcp/peer.h"
#include "app/mcp/result.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct mcp_client {
    const struct mcp_server_config *config;
    void (*changed)(void *ctx);
    void *ctx;
    pthread_t thread;
    int wake; /* an eventfd */
    /* the thread's own */
    struct mcp_peer peer;
    bool open;
    bool calling; /* what it does is part of a call, which may be cancelled */
    /* between the threads */
    pthread_mutex_t lock;
    bool quit, restart, cancel, ended;
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

/* Why waiting for an answer has to end. */
static bool is_unwanted(void *ctx)
{
    struct mcp_client *c = ctx;

    return flag(c, &c->quit) || (c->calling && flag(c, &c->cancel));
}

/* ---- connecting ---- */

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

static int list_tools(struct mcp_client *c, struct error *e)
{
    size_t left_out;
    json_t *list;
    int rc = mcp_peer_tools(&c->peer, &list, &left_out, e);

    if (rc == 0)
        keep_tools(c, list, left_out);
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
    mcp_peer_close(&c->peer);
    c->open = false;
    set_state(c, MCP_FAILED, why);
}

static int connect_anew(struct mcp_client *c, struct error *e)
{
    uint64_t begun = clock_now();
    int rc;

    set_state(c, MCP_STARTING, NULL);
    if ((rc = mcp_peer_open(&c->peer, e)) < 0 || (rc = list_tools(c, e)) < 0) {
        disconnect(c, e);
        return rc;
    }
    c->open = true;
    pthread_mutex_lock(&c->lock);
    memcpy(c->status.about, c->peer.about, sizeof c->status.about);
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
        rc = mcp_peer_call(&c->peer, json_incref(params), result, e);
    if (rc < 0 && c->open && c->peer.t->forgotten) {
        mcp_peer_close(&c->peer);
        c->open = false;
        if ((rc = connect_anew(c, e)) == 0)
            rc = mcp_peer_call(&c->peer, json_incref(params), result, e);
    }
    json_decref(params);
    return rc;
}

/* Runs the call that was asked for; arguments are taken. */
static void call(struct mcp_client *c, const char *tool, json_t *arguments, struct mcp_result *out)
{
    struct error e = {0};
    json_t *result;
    int rc;

    c->calling = true;
    rc = call_on(c, tool, arguments, &result, &e);
    c->calling = false;
    if (rc == ERR_CANCELLED && c->open)
        mcp_peer_cancelled(&c->peer);
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

    if (c->open && c->peer.relist && (rc = list_tools(c, &e)) == ERR_IO)
        disconnect(c, &e);
    /* a wake-up that was consumed meanwhile has left its mark */
    if (!has_work(c) && (rc = mcp_peer_wait(&c->peer, &e)) < 0 && c->open)
        disconnect(c, &e);
}

static void *run(void *ctx)
{
    struct mcp_client *c = ctx;
    struct error e = {0};

    connect_anew(c, &e);
    while (!flag(c, &c->quit)) {
        if (take_restart(c)) {
            mcp_peer_close(&c->peer);
            c->open = false;
            connect_anew(c, &e);
        }
        serve_call(c);
        idle(c);
    }
    mcp_peer_close(&c->peer);
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
    mcp_peer_release(&c->peer);
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
    struct mcp_client *c;

    if (config->url && web_open(e) < 0)
        return ERR_DEVICE;
    if (!(c = mem_alloc(1, sizeof *c)))
        return error_set(e, ERR_MEMORY, "out of memory for a tool server");
    c->config = config;
    c->changed = changed;
    c->ctx = ctx;
    pthread_mutex_init(&c->lock, NULL);
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake < 0 ||
        mcp_peer_init(&c->peer, config, c->wake, (uint64_t)seconds * CLOCK_SECOND,
                      (struct stop){is_unwanted, c}) < 0 ||
        start_thread(c)) {
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
