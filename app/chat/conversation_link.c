/* The answerer of a conversation: the engine's worker on this machine, or a server (--connect).
 * Both take a message and produce events; the rest of the conversation is independent of which it
 * is. UI thread; conversation_link_cancel: async-signal-safe. */
#include "app/chat/internal.h"
#include "app/mcp/telling.h"
#include "engine/base/mem.h"
#include "engine/text/chat_template.h"

#include <string.h>

static int open_worker(struct conversation *c, struct error *e)
{
    int rc;

    if (!(c->setup = mem_alloc(1, sizeof *c->setup)))
        return error_set(e, ERR_MEMORY, "out of memory");
    if ((rc = engine_setup_prepare(c->options, c->setup, false, e)) == 0 && !c->hooks.unkept &&
        (rc = engine_setup_warm(c->options, c->setup, e)) < 0)
        engine_setup_release(c->setup);
    if (rc < 0) {
        mem_free(c->setup);
        c->setup = NULL;
        return rc;
    }
    c->setup->config.pace = c->pace;
    if ((rc = transcript_model(&c->transcript, c->setup->model_path, e)) < 0 ||
        (rc = worker_start(&c->worker, &c->setup->config, e)) < 0) {
        conversation_link_close(c);
        return rc;
    }
    c->client = worker_client(c->worker);
    return 0;
}

static int open_remote(struct conversation *c, struct error *e)
{
    const struct options *o = c->options;
    struct server_address at = server_address(o);
    int rc = remote_start(&c->remote, &at, e);

    if (rc < 0)
        return rc;
    if ((rc = transcript_model(&c->transcript, o->model ? o->model : o->connect, e)) < 0)
        conversation_link_close(c);
    return rc;
}

int conversation_link_open(struct conversation *c, struct error *e)
{
    return c->options->connect ? open_remote(c, e) : open_worker(c, e);
}

void conversation_link_close(struct conversation *c)
{
    if (c->worker)
        worker_stop(c->worker);
    remote_stop(c->remote);
    if (c->setup)
        engine_setup_release(c->setup);
    mem_free(c->setup);
    c->worker = NULL;
    c->client = NULL;
    c->remote = NULL;
    c->setup = NULL;
}

bool conversation_link_there(const struct conversation *c)
{
    return c->client || c->remote;
}

int conversation_fd(const struct conversation *c)
{
    return c->remote ? remote_event_fd(c->remote) : c->client ? client_event_fd(c->client) : -1;
}

int conversation_link_next(struct conversation *c, struct event *out)
{
    return c->remote ? remote_next_event(c->remote, out) : client_next_event(c->client, out);
}

void conversation_link_cancel(struct conversation *c)
{
    if (c->remote)
        remote_cancel(c->remote);
    else if (c->client)
        client_cancel(c->client);
}

static void wake(void *ctx)
{
    client_wake(ctx);
}

int conversation_tell(struct conversation *c, struct dialogue *said, bool offer, struct error *e)
{
    const struct engine_info *info = conversation_info(c);
    struct chat_tools knows = {0};

    if (c->remote)
        knows = telling_api;
    else if (info && info->chat)
        knows = chat_template_tools(info->chat);
    if (c->tools.mcp && offer)
        mcp_refresh(c->tools.mcp);
    return telling_apply(said, c->tools.mcp && offer ? mcp_tools(c->tools.mcp) : NULL, &knows, e);
}

/* A server makes the prompt itself: it is sent the messages. */
static int ask_server(struct conversation *c, struct dialogue *said, struct turn *turn,
                      struct error *e)
{
    struct request request = {0};
    int rc = request_make(c->options, remote_server(c->remote), said, turn->max_tokens,
                          c->reseeded ? &turn->sampling.seed : NULL, &request, e);

    dialogue_release(said);
    turn_release(turn);
    return rc < 0 ? rc : remote_ask(c->remote, &request, e);
}

int conversation_link_ask(struct conversation *c, struct dialogue *said, struct turn *turn,
                          struct error *e)
{
    if (c->remote)
        return ask_server(c, said, turn, e);
    return prompter_start(&c->prompter, conversation_info(c), said, turn, wake, c->client, e);
}

/* ---- data about the model ---- */

const struct telemetry *conversation_telemetry(struct conversation *c)
{
    return c->remote ? remote_telemetry(c->remote) : c->worker ? worker_telemetry(c->worker) : NULL;
}

const struct engine_info *conversation_info(const struct conversation *c)
{
    return c->worker && c->ready ? worker_info(c->worker) : NULL;
}

const struct server *conversation_server(const struct conversation *c)
{
    return c->remote ? remote_server(c->remote) : NULL;
}

bool conversation_figures(struct conversation *c, struct figures *out)
{
    if (c->remote)
        remote_figures(c->remote, out);
    return c->remote != NULL;
}

bool conversation_remote_waits(struct conversation *c, char *out, size_t size)
{
    return c->remote && remote_waits(c->remote, out, size);
}

bool conversation_remote_engine(struct conversation *c, struct remote_engine *out)
{
    return c->remote && remote_engine(c->remote, out);
}

const char *conversation_host(const struct conversation *c)
{
    return c->remote ? remote_host(c->remote) : "";
}
