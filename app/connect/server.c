/* See server.h. */
#include "app/connect/server.h"

#include "app/common/web.h"
#include "engine/base/clock.h"
#include "engine/base/json.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SHORT_SECONDS 20L
#define PROBE_SECONDS 5L
#define REFUSED_TRIES 5
#define LOADING_SECONDS 600 /* time for a server to load its model */

struct opening {
    struct server *server;
    bool (*stop)(void *ctx);
    void (*tell)(void *ctx, const char *line);
    void *ctx;
    bool told;
};

const char *server_kind_word(enum server_kind kind)
{
    static const char *const words[] = {"a server", "moetop", "llama-server", "vLLM", "SGLang"};

    return words[kind];
}

static void tell_once(struct opening *o, const char *format, const char *detail)
{
    char line[1000];

    if (o->told || !o->tell)
        return;
    o->told = true;
    snprintf(line, sizeof line, format, o->server->http.base, detail);
    o->tell(o->ctx, line);
}

static struct http_call call(const struct opening *o, const char *path)
{
    return (
        struct http_call){.path = path, .seconds = SHORT_SECONDS, .stop = o->stop, .ctx = o->ctx};
}

/* ---- reachability ---- */

static bool is_busy(const struct http_call *c)
{
    return c->status == 429 || (c->status >= 502 && c->status <= 504);
}

/* A server says 503 in JSON while it reads its model; a page with 503 is a proxy's. */
static bool is_loading(const struct http_call *c)
{
    return c->status == 503 && strcasecmp(c->type, "text/html");
}

static void tell_trouble(struct opening *o, const struct http_call *c, int rc,
                         const struct error *e)
{
    char why[200];

    if (rc < 0)
        tell_once(o, "%s: %s: trying again", e ? e->text : "no answer");
    else if (is_loading(c))
        tell_once(o, "%s is loading its model: waiting%s", "");
    else {
        snprintf(why, sizeof why, "HTTP %ld", c->status);
        tell_once(o, "%s answers %s: trying again", why);
    }
}

/* Asks until there is an answer that is not busy; *waited: not the first one. ERR_IO: none;
 * ERR_CANCELLED. A busy status can remain. */
static int ask_patiently(struct opening *o, struct http_call *c, bool *waited, struct error *e)
{
    uint64_t begun = clock_now();

    *waited = false;
    for (int tries = 1;; tries++) {
        int rc = http_perform(&o->server->http, c, e);
        bool loading = rc == 0 && is_loading(c), busy = rc == 0 && is_busy(c);

        if (rc == ERR_CANCELLED || (rc == 0 && !busy) || c->untrusted ||
            (!loading && tries >= REFUSED_TRIES))
            return rc == ERR_IO ? error_prefix(e, "%s", o->server->http.base) : rc;
        if (loading && clock_seconds(clock_now() - begun) > LOADING_SECONDS)
            return error_set(e, ERR_IO, "%s: its model is not loaded after %d minutes",
                             o->server->http.base, LOADING_SECONDS / 60);
        tell_trouble(o, c, rc, e);
        *waited = true;
        if (web_back_off(tries, c->retry_after, o->stop, o->ctx))
            return error_set(e, ERR_CANCELLED, "interrupted");
    }
}

/* ---- its models ---- */

static enum server_kind kind_of(const json_t *model)
{
    const char *owner = json_string_value(json_object_get(model, "owned_by"));

    return !owner                           ? SERVER_OTHER
           : strcmp(owner, "moetop") == 0   ? SERVER_MOETOP
           : strcmp(owner, "llamacpp") == 0 ? SERVER_LLAMA
           : strcmp(owner, "vllm") == 0     ? SERVER_VLLM
           : strcmp(owner, "sglang") == 0   ? SERVER_SGLANG
                                            : SERVER_OTHER;
}

static const char *id_of(const json_t *model)
{
    const char *id = json_string_value(json_object_get(model, "id"));

    return id ? id : "";
}

/* The models' names, as many as fit. */
static void list_models(const json_t *list, char *out, size_t size)
{
    size_t at = 0, i;
    json_t *m;

    out[0] = 0;
    json_array_foreach(list, i, m)
    {
        const char *id = id_of(m);

        if (!*id)
            continue;
        if (at + strlen(id) + sizeof ", , ..." > size) {
            snprintf(out + at, size - at, "%s...", at ? ", " : "");
            return;
        }
        at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", id);
    }
}

/* The model of that name, else those whose names contain it. */
static json_t *named_models(const json_t *list, const char *name)
{
    json_t *m, *found = json_array();
    size_t i;

    json_array_foreach(list, i, m)
    {
        if (strcmp(id_of(m), name) == 0) {
            json_array_clear(found);
            json_array_append(found, m);
            break;
        }
        if (strcasestr(id_of(m), name))
            json_array_append(found, m);
    }
    return found;
}

/* Skips entries without a name. */
static json_t *models_of(const json_t *list)
{
    json_t *m, *found = json_array();
    size_t i;

    json_array_foreach(list, i, m) if (*id_of(m)) json_array_append(found, m);
    return found;
}

/* Among several, the one that is loaded, by the fields of llama-server's router and of moetop;
 * NULL: not reported. */
static json_t *loaded_model(const json_t *list)
{
    json_t *m, *found = NULL;
    size_t i, n = 0;

    json_array_foreach(list, i, m)
    {
        const char *status = json_string_value(json_walk(m, "status.value"));

        if (status && strcmp(status, "loaded") == 0) {
            found = m;
            n++;
        }
    }
    return n == 1 ? found : NULL;
}

static int take_model(struct server *s, const json_t *m, struct error *e)
{
    json_int_t context = json_integer_value(json_object_get(m, "max_model_len"));

    if (strlen(id_of(m)) >= sizeof s->model)
        return error_set(e, ERR_MODEL, "%s: its model's name is longer than %zu bytes",
                         s->http.base, sizeof s->model - 1);
    snprintf(s->model, sizeof s->model, "%s", id_of(m));
    s->kind = kind_of(m);
    s->context = context > 0 && context < 1 << 30 ? (int)context : 0;
    return 0;
}

/* transformers serve loads what a request names, and lists it from then on. */
static int take_unlisted(struct server *s, const char *name, struct error *e)
{
    json_t *m = json_pack("{s:s}", "id", name);
    int rc = m ? take_model(s, m, e)
               : error_set(e, ERR_USAGE, "-m %s: the name of a model is UTF-8", name);

    json_decref(m);
    return rc;
}

static int choose_model(struct server *s, const json_t *list, const char *name, struct error *e)
{
    json_t *fit = name ? named_models(list, name) : models_of(list);
    size_t n = json_array_size(fit);
    const json_t *m = n == 1 ? json_array_get(fit, 0) : name ? NULL : loaded_model(fit);
    char all[280];
    int rc;

    list_models(n ? fit : list, all, sizeof all);
    if (m)
        rc = take_model(s, m, e);
    else if (!*all && name)
        rc = take_unlisted(s, name, e);
    else if (!*all)
        rc = error_set(e, ERR_MODEL, "%s serves no model", s->http.base);
    else if (!name)
        rc = error_set(e, ERR_MODEL, "%s serves %zu models; choose one with -m: %s", s->http.base,
                       n, all);
    else if (n)
        rc = error_set(e, ERR_MODEL, "%s: -m %s names %zu of its models: %s", s->http.base, name, n,
                       all);
    else
        rc = error_set(e, ERR_MODEL, "%s serves no model that -m %s names; it serves %s",
                       s->http.base, name, all);
    json_decref(fit);
    return rc;
}

/* What its list says; root: NULL if it is no JSON. */
static int take_list(struct server *s, const struct http_call *c, const char *name, struct error *e)
{
    json_t *root = json_loadb(strbuf_text(&c->text), c->text.len, JSON_ALLOW_NUL, NULL);
    const json_t *list = json_object_get(root, "data");
    char what[160];
    int rc;

    if (json_is_array(list) || json_is_null(list)) /* Ollama without any says null */
        rc = choose_model(s, list, name, e);
    else
        rc = error_set(e, ERR_IO, "%s: /v1/models lists no models%s%s", s->http.base,
                       root || !*c->type ? "" : ": what comes is ",
                       root || !*c->type ? "" : http_body_words(c, what, sizeof what));
    json_decref(root);
    return rc;
}

static int ask_models(struct opening *o, const char *name, struct error *e)
{
    struct server *s = o->server;
    struct http_call c = call(o, "/v1/models");
    bool waited;
    int rc = ask_patiently(o, &c, &waited, e);

    if (rc == 0 && c.status == 404)
        rc = error_set(e, ERR_IO, "%s speaks no API of OpenAI: there is no /v1/models",
                       s->http.base);
    else if (rc == 0 && c.status != 200)
        rc = http_refused(&s->http, &c, e);
    else if (rc == 0)
        rc = take_list(s, &c, name, e);
    strbuf_release(&c.text);
    return rc;
}

/* Those that list their models before they are loaded say so at /health. The others are not asked
 * there: litellm would try each of its models. */
static int wait_loaded(struct opening *o, const char *name, struct error *e)
{
    struct http_call c = call(o, "/health");
    bool waited;
    int rc;

    if (o->server->kind == SERVER_OTHER)
        return 0;
    rc = ask_patiently(o, &c, &waited, e);
    if (rc == 0 && is_busy(&c))
        rc = http_refused(&o->server->http, &c, e);
    strbuf_release(&c.text);
    return rc == 0 && waited ? ask_models(o, name, e) : rc;
}

/* The context of one conversation, by llama-server's field; not every server reports it. */
static void ask_context(struct opening *o)
{
    struct http_call c = call(o, "/props");
    json_t *root = NULL;
    const json_t *n;

    if (http_perform(&o->server->http, &c, NULL) == 0 && c.status == 200)
        root = json_loadb(strbuf_text(&c.text), c.text.len, JSON_ALLOW_NUL, NULL);
    n = json_walk(root, "default_generation_settings.n_ctx");
    if (json_is_integer(n) && json_integer_value(n) > 0 && json_integer_value(n) < 1 << 30)
        o->server->context = (int)json_integer_value(n);
    json_decref(root);
    strbuf_release(&c.text);
}

struct server_address server_address(const struct options *o)
{
    return (struct server_address){
        .url = o->connect,
        .key_file = o->api_key_file,
        .model = o->model,
        .silence = o->origin[OPTION_ID_timeout].from > ORIGIN_MODEL ? o->timeout : 0};
}

int server_open(struct server *s, const struct server_address *at, bool (*stop)(void *ctx),
                void (*tell)(void *ctx, const char *line), void *ctx, struct error *e)
{
    struct opening o = {.server = s, .stop = stop, .tell = tell, .ctx = ctx};
    int rc;

    *s = (struct server){0};
    if ((rc = http_server_init(&s->http, at->url, at->key_file, e)) < 0)
        return rc;
    if (at->silence)
        s->http.silence = at->silence;
    if ((rc = ask_models(&o, at->model, e)) < 0 || (rc = wait_loaded(&o, at->model, e)) < 0)
        return rc;
    if (s->kind == SERVER_MOETOP || s->kind == SERVER_LLAMA)
        ask_context(&o);
    return 0;
}

bool server_answers(const struct server *s, bool (*stop)(void *ctx), void *ctx, struct error *e)
{
    struct http_call c = {.path = "/v1/models", .seconds = PROBE_SECONDS, .stop = stop, .ctx = ctx};
    bool any = http_perform(&s->http, &c, e) == 0;

    if (any && is_busy(&c)) {
        error_set(e, ERR_IO, "HTTP %ld", c.status);
        any = false;
    }
    strbuf_release(&c.text);
    return any;
}
