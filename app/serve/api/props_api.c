/* /props: server properties, by llama-server's names where it has them. HTTP thread. */
#include "app/serve/api/apis.h"
#include "app/serve/api/text_json.h"
#include "app/serve/api/usage.h"
#include "app/serve/common/exchange.h"
#include "app/serve/common/server.h"

#include "engine/model/model.h"
#include "engine/text/chat_template.h"

#include <string.h>

static json_t *token_text(const struct engine_info *info, int id)
{
    size_t n = 0;
    const char *piece = id < 0 ? NULL : tokenizer_piece(info->tokenizer, id, &n, NULL);

    return piece ? text_json(piece, n) : json_string("");
}

static json_t *sampling_json(const struct server *s)
{
    const struct sampling *v = &s->sampling;

    return json_pack("{s:f, s:i, s:f, s:f, s:f, s:i, s:f, s:f, s:i, s:o?}", "temperature",
                     (double)v->temperature, "top_k", v->top_k, "top_p", (double)v->top_p, "min_p",
                     (double)v->min_p, "repeat_penalty", (double)v->repeat_penalty, "repeat_last_n",
                     v->repeat_last_n, "presence_penalty", (double)v->presence_penalty,
                     "frequency_penalty", (double)v->frequency_penalty, "max_tokens", s->max_tokens,
                     "seed", s->fresh_seeds ? NULL : json_integer((json_int_t)v->seed));
}

void api_props(struct exchange *x)
{
    const struct server *s = x->server;
    const struct engine_info *info = server_info(s);
    const char *source = info && info->chat ? chat_template_source(info->chat) : "";
    struct refusal why;

    if (server_ready(s, &why) < 0) {
        reply_refusal(x, &why);
        return;
    }
    reply_json(
        x, 200,
        json_pack("{s:{s:i, s:o}, s:i, s:I, s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:{s:b, s:b}}",
                  "default_generation_settings", "n_ctx", info->context, "params", sampling_json(s),
                  "total_slots", s->parallel, "n_ctx_total",
                  (json_int_t)info->context * s->parallel, "model_alias", s->model_id, "model_file",
                  s->model_file, "model_family", info->model->family, "chat_template",
                  text_json(source, strlen(source)), "bos_token",
                  token_text(info, info->model->hp.bos), "eos_token",
                  token_text(info, info->model->hp.n_stops ? info->model->hp.stops[0] : -1),
                  "build_info", SYSTEM_FINGERPRINT, "modalities", "vision", 0, "audio", 0));
}
