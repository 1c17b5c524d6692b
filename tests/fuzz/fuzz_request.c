/* Fuzz target: requests of the server. The input is a line "METHOD PATH" and the body; what a route
 * makes of it is an answer, or a refusal whose fault is the client's, in the API's form. The server
 * is one that ends: nothing is begun, so a request that could have been answered is told that, and
 * only that. The bundled model's engine and the dispatcher are there, and idle. */
#include "app/common/paths.h"
#include "app/serve/dispatch/server_status.h"
#include "app/serve/common/exchange.h"
#include "app/serve/dispatch/dispatcher.h"
#include "app/serve/api/routes.h"
#include "app/serve/common/server.h"
#include "app/serve/common/model_registry.h"
#include "engine/base/clock.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct server server = {.model_id = "m", .model_file = "m.gguf"};

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void open_server(void)
{
    static char path[PATH_MAX];
    struct engine_config config = {
        .model_path = path, .context = CONTEXT, .sessions = 1, .n_threads = 1, .kernels = "scalar"};
    struct error e = {0};

    must(paths_model(NULL, path, sizeof path, &e) == 0);
    server.sampling = sampling_default();
    server.max_tokens = -1;
    server.parallel = 1;
    must((server.status = server_status_new()) != NULL);
    must(registry_open(&server.registry, "/m.gguf", "m", NULL, 0, &e) == 0);
    must(worker_start(&server.worker, &config, &e) == 0 && dispatcher_start(&server, &e) == 0);
    while (!atomic_load(&server.ready))
        clock_sleep(CLOCK_MILLI);
    atomic_store(&server.draining, true);
}

/* The error in the form of the route's API; Ollama's is one sentence. */
static void check_refusal(const struct exchange *x, const char *body, size_t n)
{
    json_t *o = json_loadb(body, n, 0, NULL), *error = json_object_get(o, "error");
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *type = json_string_value(json_object_get(error, "type"));

    /* 500: /api/show opens the model's file, and there is none here. 501: what is refused. */
    must((x->status >= 400 && x->status < 500) || x->status == 503 ||
         (x->route->form == API_OLLAMA && (x->status == 500 || x->status == 501)));
    if (x->route->form == API_OLLAMA) {
        must(json_string_length(error) > 0);
    } else {
        must(json_string_length(json_object_get(error, "message")) > 0 && type);
        if (x->status == 503)
            must(x->route->form == API_ANTHROPIC ? strcmp(type, "overloaded_error") == 0
                                                 : code && strcmp(code, "shutting_down") == 0);
    }
    json_decref(o);
}

static void check_answer(const struct exchange *x)
{
    const char *body = x->out.data ? x->out.data : "";
    json_t *o;

    must(x->finished && !x->stream && x->status);
    if (x->status != 200) {
        if (strcmp(x->route->path, "/health") != 0 && strcmp(x->route->path, "/v1/health") != 0)
            check_refusal(x, body, x->out.len);
        return;
    }
    if (strcmp(x->type, "application/json") != 0)
        return;
    must((o = json_loadb(body, x->out.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL)) != NULL);
    json_decref(o);
}

/* "METHOD PATH\n": how long it is, 0: it is none. */
static size_t read_head(const char *text, size_t size, char *method, char *path, size_t room)
{
    const char *end = memchr(text, '\n', size < room ? size : room - 1);
    const char *blank = end ? memchr(text, ' ', (size_t)(end - text)) : NULL;

    if (!blank || memchr(text, 0, (size_t)(end - text)))
        return 0;
    memcpy(method, text, (size_t)(blank - text));
    method[blank - text] = 0;
    memcpy(path, blank + 1, (size_t)(end - blank - 1));
    path[end - blank - 1] = 0;
    return (size_t)(end - text) + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char method[300], path[300];
    size_t head = read_head((const char *)data, size, method, path, sizeof path);
    struct refusal why = {0};
    struct exchange *x;
    const char *allow;

    if (!head)
        return 0;
    if (!server.worker)
        open_server();
    must((x = exchange_new(&server)) != NULL);
    x->route = route_find(method, path, x->argument, sizeof x->argument, &allow, &why);
    if (x->route) {
        x->body.limit = SERVE_BODY_MOST;
        strbuf_put(&x->body, (const char *)data + head, size - head);
        x->route->answer(x);
        check_answer(x);
    } else {
        must(why.status == 404 || (why.status == 405 && allow));
    }
    exchange_drop(x);
    return 0;
}
