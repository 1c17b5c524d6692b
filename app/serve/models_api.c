/* /health and /v1/models. HTTP thread. */
#include "app/serve/apis.h"
#include "app/serve/exchange.h"
#include "app/serve/server.h"

#include <string.h>

void api_health(struct exchange *x)
{
    if (atomic_load(&x->server->ready) && !atomic_load(&x->server->draining)) {
        reply_json(x, 200, json_pack("{s:s}", "status", "ok"));
        return;
    }
    x->retry_after = 1;
    reply_json(x, 503,
               json_pack("{s:s}", "status",
                         atomic_load(&x->server->draining) ? "stopping" : "loading"));
}

static json_t *model_json(const struct server *s)
{
    return json_pack("{s:s, s:s, s:I, s:s}", "id", s->model_id, "object", "model", "created",
                     (json_int_t)s->started, "owned_by", "moetop");
}

void api_models(struct exchange *x)
{
    reply_json(x, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(x->server)));
}

void api_model(struct exchange *x)
{
    struct refusal why;

    if (strcmp(x->argument, x->server->model_id) == 0 ||
        strcmp(x->argument, x->server->model_file) == 0) {
        reply_json(x, 200, model_json(x->server));
        return;
    }
    refuse(&why, 404, "model_not_found", "model", "the model '%.200s' does not exist here",
           x->argument);
    reply_refusal(x, &why);
}
