/* See config.h. */
#include "app/mcp/config.h"

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the tool servers");
}

/* ---- texts with variables ---- */

/* The variable that begins at text ("${"): puts its value; returns the bytes it takes, 0: it has no
 * end, or no value. */
static size_t put_variable(struct strbuf *b, const char *text)
{
    const char *end = strchr(text, '}'), *value, *other;
    char name[128];
    size_t n;

    if (!end)
        return 0;
    other = strstr(text, ":-");
    other = other && other < end ? other : NULL;
    n = (size_t)((other ? other : end) - text) - 2;
    if (n >= sizeof name)
        return 0;
    memcpy(name, text + 2, n);
    name[n] = 0;
    value = getenv(name);
    if (value)
        strbuf_puts(b, value);
    else if (other)
        strbuf_put(b, other + 2, (size_t)(end - other) - 2);
    else
        return 0;
    return (size_t)(end - text) + 1;
}

/* *out: a copy with its variables replaced, mem_*. */
static int expand(char **out, const char *text, struct error *e)
{
    struct strbuf b = {0};

    strbuf_puts(&b, "");
    for (const char *p = text; *p;) {
        size_t n = strncmp(p, "${", 2) == 0 ? put_variable(&b, p) : 0;

        if (!n && strncmp(p, "${", 2) == 0) {
            strbuf_release(&b);
            return error_set(e, ERR_USAGE, "%.100s: this variable is not set in the environment",
                             p);
        }
        if (!n)
            strbuf_putc(&b, *p);
        p += n ? n : 1;
    }
    *out = strbuf_take(&b, NULL);
    return *out ? 0 : no_memory(e);
}

/* A member that is a text, or is absent (*out stays NULL). */
static int read_text(char **out, const json_t *o, const char *key, struct error *e)
{
    const json_t *v = json_object_get(o, key);

    if (!v || json_is_null(v))
        return 0;
    if (!json_is_string(v))
        return error_set(e, ERR_USAGE, "\"%s\" must be a text", key);
    return expand(out, json_string_value(v), e);
}

/* ---- lists ---- */

static void list_release(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        mem_free(list[i]);
    mem_free(list);
}

static int read_args(struct mcp_server_config *s, const json_t *o, struct error *e)
{
    const json_t *list = json_object_get(o, "args"), *v;
    size_t i;
    int rc;

    if (list && !json_is_array(list))
        return error_set(e, ERR_USAGE, "\"args\" must be a list of texts");
    s->argv = mem_alloc(json_array_size(list) + 2, sizeof *s->argv);
    if (!s->argv || !(s->argv[0] = mem_string(s->command)))
        return no_memory(e);
    json_array_foreach(list, i, v)
    {
        if (!json_is_string(v))
            return error_set(e, ERR_USAGE, "\"args\" must be a list of texts");
        if ((rc = expand(&s->argv[i + 1], json_string_value(v), e)) < 0)
            return rc;
    }
    return 0;
}

/* One member of "env": a text, or what is as good as one. */
static int read_variable(char **out, const char *key, const json_t *v, struct error *e)
{
    struct strbuf b = {0};
    char *value = NULL;
    int rc = 0;

    if (!*key || strchr(key, '='))
        return error_set(e, ERR_USAGE, "\"env\": '%.60s' is no name of a variable", key);
    if (json_is_string(v))
        rc = expand(&value, json_string_value(v), e);
    if (rc < 0)
        return rc;
    if (value)
        strbuf_printf(&b, "%s=%s", key, value);
    else if (json_is_integer(v))
        strbuf_printf(&b, "%s=%lld", key, (long long)json_integer_value(v));
    else if (json_is_boolean(v))
        strbuf_printf(&b, "%s=%s", key, json_is_true(v) ? "true" : "false");
    else
        return error_set(e, ERR_USAGE, "\"env\": the value of %.60s must be a text", key);
    mem_free(value);
    *out = strbuf_take(&b, NULL);
    return *out ? 0 : no_memory(e);
}

static int read_env(struct mcp_server_config *s, json_t *o, struct error *e)
{
    json_t *env = json_object_get(o, "env"), *v;
    const char *key;
    size_t i = 0;
    int rc;

    if (env && !json_is_object(env))
        return error_set(e, ERR_USAGE, "\"env\" must be an object");
    if (!(s->env = mem_alloc(json_object_size(env) + 1, sizeof *s->env)))
        return no_memory(e);
    json_object_foreach(env, key,
                        v) if ((rc = read_variable(&s->env[i++], key, v, e)) < 0) return rc;
    return 0;
}

static int read_headers(struct mcp_server_config *s, json_t *o, struct error *e)
{
    json_t *headers = json_object_get(o, "headers"), *v;
    const char *key;
    size_t i = 0;
    int rc;

    if (headers && !json_is_object(headers))
        return error_set(e, ERR_USAGE, "\"headers\" must be an object");
    if (!(s->headers = mem_alloc(2 * json_object_size(headers) + 1, sizeof *s->headers)))
        return no_memory(e);
    json_object_foreach(headers, key, v)
    {
        if (!*key || strpbrk(key, ": \t\r\n") || !json_is_string(v))
            return error_set(e, ERR_USAGE, "\"headers\": '%.60s' is no header with a text", key);
        if (!(s->headers[i++] = mem_string(key)))
            return no_memory(e);
        if ((rc = expand(&s->headers[i], json_string_value(v), e)) < 0)
            return rc;
        if (strpbrk(s->headers[i++], "\r\n"))
            return error_set(e, ERR_USAGE, "\"headers\": the value of %.60s has a line end", key);
    }
    return 0;
}

/* ---- a server ---- */

static int read_name(struct mcp_server_config *s, const char *name, struct error *e)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_-.";

    if (!*name || strlen(name) >= MCP_SERVER_NAME || name[strspn(name, letters)])
        return error_set(e, ERR_USAGE,
                         "a server's name has at most %d letters, digits, \"_\", \"-\" and \".\"",
                         MCP_SERVER_NAME - 1);
    return (s->name = mem_string(name)) ? 0 : no_memory(e);
}

static int check_url(const struct mcp_server_config *s, const json_t *o, struct error *e)
{
    const char *type = json_string_value(json_object_get(o, "type"));

    if (type && strcmp(type, "sse") == 0)
        return error_set(e, ERR_USAGE,
                         "\"type\": \"sse\" is the transport of 2024, which is not supported; most "
                         "servers answer \"http\" (streamable HTTP) too");
    if (strncasecmp(s->url, "http://", 7) && strncasecmp(s->url, "https://", 8))
        return error_set(e, ERR_USAGE, "\"url\" must begin with http:// or https://");
    return 0;
}

static int read_server(struct mcp_server_config *s, const char *name, json_t *o, struct error *e)
{
    int rc;

    if (!json_is_object(o))
        return error_set(e, ERR_USAGE, "an object is expected");
    if ((rc = read_name(s, name, e)) < 0 || (rc = read_text(&s->command, o, "command", e)) < 0 ||
        (rc = read_text(&s->cwd, o, "cwd", e)) < 0 || (rc = read_text(&s->url, o, "url", e)) < 0)
        return rc;
    if (!s->command == !s->url || (s->command && !*s->command))
        return error_set(e, ERR_USAGE, "either \"command\" or \"url\" is expected");
    if (s->url)
        return (rc = check_url(s, o, e)) < 0 ? rc : read_headers(s, o, e);
    return (rc = read_args(s, o, e)) < 0 ? rc : read_env(s, o, e);
}

static int read_servers(struct mcp_config *out, json_t *root, struct error *e)
{
    json_t *list = json_object_get(root, "mcpServers"), *o;
    const char *name;
    int rc;

    if (!json_is_object(list))
        return error_set(e, ERR_USAGE, "no object \"mcpServers\" in it");
    if (json_object_size(list) > MCP_SERVERS)
        return error_set(e, ERR_USAGE, "more than %d servers", MCP_SERVERS);
    if (!(out->servers = mem_alloc(json_object_size(list) + 1, sizeof *out->servers)))
        return no_memory(e);
    json_object_foreach(list, name, o)
    {
        if (json_is_true(json_object_get(o, "disabled")))
            continue;
        if ((rc = read_server(&out->servers[out->n++], name, o, e)) < 0) {
            error_prefix(e, "server %.60s", name);
            return rc;
        }
    }
    return 0;
}

int mcp_config_read(struct mcp_config *out, const char *path, struct error *e)
{
    static const struct file_kind kind = {"file of MCP servers", 1 << 20, ERR_USAGE};
    json_t *root = NULL;
    int rc = json_read_file(&root, path, &kind, e);

    *out = (struct mcp_config){0};
    if (rc == 0 && (rc = read_servers(out, root, e)) < 0) {
        mcp_config_release(out);
        error_prefix(e, "%s", path);
    }
    json_decref(root);
    return rc < 0 ? error_prefix(e, "--mcp") : 0;
}

void mcp_config_release(struct mcp_config *c)
{
    for (size_t i = 0; i < c->n; i++) {
        struct mcp_server_config *s = &c->servers[i];

        mem_free(s->name);
        mem_free(s->command);
        mem_free(s->cwd);
        mem_free(s->url);
        list_release(s->argv);
        list_release(s->env);
        list_release(s->headers);
    }
    mem_free(c->servers);
    *c = (struct mcp_config){0};
}
