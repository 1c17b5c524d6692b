/* /health and /v1/models. HTTP thread. */
#include "app/serve/api/apis.h"
#include "app/serve/api/ollama_time.h"
#include "app/serve/common/exchange.h"
#include "app/serve/common/model_registry.h"
#include "app/serve/common/server.h"

#include <string.h>

void api_health(struct exchange *x)
{
    const struct server *s = x->server;

    /* an unloaded model is loaded by the next request */
    if ((atomic_load(&s->ready) || registry_asleep(s->registry)) && !atomic_load(&s->draining)) {
        reply_json(x, 200, json_pack("{s:s}", "status", "ok"));
        return;
    }
    x->retry_after = 1;
    reply_json(x, 503,
               json_pack("{s:s}", "status", atomic_load(&s->draining) ? "stopping" : "loading"));
}

/* OpenAI's fields, then Anthropic's, whose client reads the same list, and vLLM's for the context,
 * which clients look for. If there are several, which one is loaded, in the fields of
 * llama-server's router. */
static json_t *model_json(const struct server *s, int i)
{
    const char *id = registry_id(s->registry, (size_t)i);
    const struct engine_info *info = registry_loaded(s->registry) == i ? server_info(s) : NULL;
    json_t *o = json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:o}", "id", id, "object", "model",
                          "created", (json_int_t)s->started, "owned_by", "moetop", "type", "model",
                          "display_name", id, "created_at",
                          ollama_time((struct timespec){.tv_sec = s->started}));

    if (info)
        json_object_set_new(o, "max_model_len", json_integer(info->context));
    if (registry_id(s->registry, 1))
        json_object_set_new(
            o, "status",
            json_pack("{s:s}", "value",
                      registry_loaded(s->registry) != i || registry_asleep(s->registry) ? "unloaded"
                      : atomic_load(&s->ready)                                          ? "loaded"
                                               : "loading"));
    return o;
}

/* All are on one page, in Anthropic's words. */
void api_models(struct exchange *x)
{
    const struct server *s = x->server;
    json_t *list = json_array();
    const char *last = NULL;

    for (int i = 0; registry_id(s->registry, (size_t)i); i++) {
        last = registry_id(s->registry, (size_t)i);
        json_array_append_new(list, model_json(s, i));
    }
    reply_json(x, 200,
               json_pack("{s:s, s:o, s:b, s:s?, s:s?}", "object", "list", "data", list, "has_more",
                         0, "first_id", registry_id(s->registry, 0), "last_id", last));
}

void api_model(struct exchange *x)
{
    const struct server *s = x->server;
    struct refusal why;
    int i = registry_find(s->registry, x->argument);

    if (i >= 0) {
        reply_json(x, 200, model_json(s, i));
        return;
    }
    refuse(&why, 404, "model_not_found", "model", "the model '%.200s' does not exist here",
           x->argument);
    reply_refusal(x, &why);
}
