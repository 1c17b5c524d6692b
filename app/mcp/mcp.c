/* See mcp.h. */
#include "app/mcp/mcp.h"

#include "app/mcp/names.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"

#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WAIT_MS 50 /* between two looks at a stop */

struct server {
    struct mcp_client *client;
    json_t *tools; /* as it describes them; NULL: not known */
    unsigned version;
};

/* A tool that was allowed for this chat, as it was described then. */
struct pass {
    size_t server;
    json_t *described;
};

struct mcp {
    struct mcp_config config;
    struct server servers[MCP_SERVERS];
    int changed; /* an eventfd, written by the servers' threads */
    char **allow;
    size_t n_allow;
    struct mcp_tool *tools;
    size_t n_tools;
    json_t *offered;
    struct pass *passes;
    size_t n_passes;
    struct mcp_client *running; /* a call of it runs; NULL: none */
};

/* ---- opening ---- */

static void on_change(void *ctx)
{
    uint64_t one = 1;

    if (write(((struct mcp *)ctx)->changed, &one, sizeof one) < 0) {
        /* it is full: readable already */
    }
}

static int keep_allow(struct mcp *m, char *const *allow, size_t n, struct error *e)
{
    if (!(m->allow = mem_alloc(n + 1, sizeof *m->allow)))
        return error_set(e, ERR_MEMORY, "out of memory for --mcp-allow");
    for (; m->n_allow < n; m->n_allow++)
        if (!(m->allow[m->n_allow] = mem_string(allow[m->n_allow])))
            return error_set(e, ERR_MEMORY, "out of memory for --mcp-allow");
    return 0;
}

int mcp_open(struct mcp **out, const char *file, int seconds, char *const *allow, size_t n_allow,
             struct error *e)
{
    struct mcp *m = mem_alloc(1, sizeof *m);
    int rc;

    if (!m)
        return error_set(e, ERR_MEMORY, "out of memory for the tool servers");
    m->changed = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    m->offered = json_array();
    rc = mcp_config_read(&m->config, file, e);
    if (rc == 0 && (m->changed < 0 || !m->offered))
        rc = error_set(e, ERR_MEMORY, "out of memory for the tool servers");
    if (rc == 0)
        rc = keep_allow(m, allow, n_allow, e);
    for (size_t i = 0; i < m->config.n && rc == 0; i++)
        rc = mcp_client_start(&m->servers[i].client, &m->config.servers[i], seconds, on_change, m,
                              e);
    if (rc < 0)
        mcp_close(m);
    else
        *out = m;
    return rc;
}

void mcp_close(struct mcp *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->config.n; i++)
        mcp_client_quit(m->servers[i].client);
    for (size_t i = 0; i < m->config.n; i++) {
        mcp_client_free(m->servers[i].client);
        json_decref(m->servers[i].tools);
    }
    mcp_config_release(&m->config);
    if (m->changed >= 0)
        close(m->changed);
    for (size_t i = 0; i < m->n_allow; i++)
        mem_free(m->allow[i]);
    mem_free(m->allow);
    mem_free(m->tools);
    mcp_always_none(m);
    mem_free(m->passes);
    json_decref(m->offered);
    mem_free(m);
}

int mcp_fd(const struct mcp *m)
{
    return m->changed;
}

void mcp_noticed(struct mcp *m)
{
    uint64_t n;

    if (read(m->changed, &n, sizeof n) < 0) {
        /* nothing has changed */
    }
}

bool mcp_starting(struct mcp *m)
{
    struct mcp_status status;

    for (size_t i = 0; i < m->config.n; i++) {
        mcp_client_status(m->servers[i].client, &status);
        if (status.state == MCP_STARTING)
            return true;
    }
    return false;
}

void mcp_wait(struct mcp *m)
{
    struct pollfd p = {m->changed, POLLIN, 0};

    poll(&p, 1, WAIT_MS);
    mcp_noticed(m);
}

int mcp_wait_started(struct mcp *m, const struct stop *stop, struct error *e)
{
    while (mcp_starting(m)) {
        if (stop && stop->asked(stop->ctx))
            return error_set(e, ERR_CANCELLED, "interrupted");
        mcp_wait(m);
    }
    return 0;
}

/* ---- the tools ---- */

/* In OpenAI's form, from the server's description; NULL: no memory. */
static json_t *offer(const struct mcp_tool *t)
{
    const json_t *described = json_object_get(t->described, "description"),
                 *schema = json_object_get(t->described, "inputSchema");
    json_t *f = json_pack("{s:s}", "name", t->name);

    if (json_is_string(described))
        json_object_set(f, "description", (json_t *)(uintptr_t)described);
    if (json_is_object(schema))
        json_object_set(f, "parameters", (json_t *)(uintptr_t)schema);
    else
        json_object_set_new(f, "parameters",
                            json_pack("{s:s, s:{}}", "type", "object", "properties"));
    return json_pack("{s:s, s:o}", "type", "function", "function", f);
}

static size_t count_tools(const struct mcp *m)
{
    size_t n = 0;

    for (size_t i = 0; i < m->config.n; i++)
        n += json_array_size(m->servers[i].tools);
    return n;
}

static void list_tools(const struct mcp *m, struct mcp_tool *tools, struct named *names)
{
    size_t n = 0, k;
    const json_t *o;

    for (size_t i = 0; i < m->config.n; i++)
        json_array_foreach(m->servers[i].tools, k, o)
        {
            const char *own = json_string_value(json_object_get(o, "name"));

            names[n] = (struct named){.server = m->config.servers[i].name, .own = own};
            tools[n] =
                (struct mcp_tool){.server = names[n].server, .own = own, .described = o, .at = i};
            n++;
        }
}

/* Everything anew from the servers' lists. */
static int arrange(struct mcp *m)
{
    size_t n = count_tools(m);
    struct mcp_tool *tools = mem_alloc(n + 1, sizeof *tools);
    struct named *names = mem_alloc(n + 1, sizeof *names);
    json_t *offered = json_array();

    if (tools && names && offered) {
        list_tools(m, tools, names);
        names_give(names, n);
        for (size_t i = 0; i < n; i++) {
            memcpy(tools[i].name, names[i].name, sizeof tools[i].name);
            json_array_append_new(offered, offer(&tools[i]));
        }
    }
    mem_free(names);
    mem_free(m->tools);
    json_decref(m->offered);
    m->tools = tools;
    m->offered = offered;
    m->n_tools = tools && json_array_size(offered) == n ? n : 0;
    if (m->n_tools == n)
        return 0;
    json_array_clear(m->offered);
    log_write(LOG_LEVEL_ERROR, "mcp: out of memory for the tools");
    return -1;
}

bool mcp_refresh(struct mcp *m)
{
    bool changed = false;

    for (size_t i = 0; i < m->config.n; i++) {
        struct server *s = &m->servers[i];
        json_t *tools = mcp_client_tools(s->client, &s->version);

        if (!tools)
            continue;
        if (json_equal(tools, s->tools)) {
            json_decref(tools);
            continue;
        }
        changed = true; /* what points into the old list is replaced below */
        json_decref(s->tools);
        s->tools = tools;
    }
    if (changed)
        arrange(m);
    return changed;
}

const json_t *mcp_tools(const struct mcp *m)
{
    return m->offered;
}

const struct mcp_tool *mcp_tool_find(const struct mcp *m, const char *name)
{
    for (size_t i = 0; i < m->n_tools; i++)
        if (strcmp(m->tools[i].name, name) == 0)
            return &m->tools[i];
    return NULL;
}

const struct mcp_tool *mcp_tool_at(const struct mcp *m, size_t i)
{
    return i < m->n_tools ? &m->tools[i] : NULL;
}

/* ---- permission ---- */

static bool is_server(const struct mcp *m, const char *name)
{
    for (size_t i = 0; i < m->config.n; i++)
        if (strcmp(m->config.servers[i].name, name) == 0)
            return true;
    return false;
}

bool mcp_may_run(const struct mcp *m, const struct mcp_tool *tool)
{
    for (size_t i = 0; i < m->n_allow; i++) {
        const char *name = m->allow[i];

        if (strcmp(name, "*") == 0 ||
            strcmp(name, is_server(m, name) ? tool->server : tool->name) == 0)
            return true;
    }
    for (size_t i = 0; i < m->n_passes; i++)
        if (m->passes[i].server == tool->at && json_equal(m->passes[i].described, tool->described))
            return true;
    return false;
}

void mcp_always(struct mcp *m, const struct mcp_tool *tool)
{
    json_t *described = json_deep_copy(tool->described);

    if (described && MEM_FIT(m->passes, m->n_passes + 1))
        m->passes[m->n_passes++] = (struct pass){tool->at, described};
    else
        json_decref(described); /* it is asked again */
}

void mcp_always_none(struct mcp *m)
{
    while (m->n_passes)
        json_decref(m->passes[--m->n_passes].described);
}

/* ---- calls ---- */

int mcp_call(struct mcp *m, const struct mcp_tool *tool, json_t *arguments, struct error *e)
{
    struct mcp_client *client = m->servers[tool->at].client;
    int rc = mcp_client_call(client, tool->own, arguments, e);

    m->running = rc == 0 ? client : NULL;
    return rc;
}

bool mcp_take(struct mcp *m, struct mcp_result *out)
{
    if (!m->running || !mcp_client_take(m->running, out))
        return false;
    m->running = NULL;
    return true;
}

void mcp_cancel(struct mcp *m)
{
    if (m->running)
        mcp_client_cancel(m->running);
}

/* ---- the servers ---- */

size_t mcp_servers(const struct mcp *m)
{
    return m->config.n;
}

const struct mcp_server_config *mcp_server(const struct mcp *m, size_t i)
{
    return &m->config.servers[i];
}

void mcp_status(struct mcp *m, size_t i, struct mcp_status *out)
{
    mcp_client_status(m->servers[i].client, out);
}

void mcp_restart(struct mcp *m, size_t i)
{
    mcp_client_restart(m->servers[i].client);
}
