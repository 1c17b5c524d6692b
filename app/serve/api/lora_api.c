/* /lora-adapters, as in llama-server: the adapters and the scales of requests without a "lora" of
 * their own. Request thread, which also reads requests: only it accesses the scales. */
#include "app/serve/api/apis.h"
#include "app/serve/api/text_json.h"
#include "app/serve/common/exchange.h"
#include "app/serve/common/server.h"
#include "app/serve/request/lora.h"

#include <string.h>

static json_t *list_json(const struct server *s)
{
    const struct adapters *all = server_info(s)->adapters;
    json_t *list = json_array();

    for (int i = 0; i < adapters_count(all); i++) {
        const struct adapter_info *a = adapters_at(all, i);

        json_array_append_new(list,
                              json_pack("{s:i, s:o, s:f, s:i, s:i, s:i}", "id", i, "path",
                                        text_json(a->path, strlen(a->path)), "scale",
                                        (double)s->strengths[i], "rank", a->rank_most, "matrices",
                                        a->matrices, "unplaced_tensors", a->n_unplaced));
    }
    return list;
}

void api_lora_list(struct exchange *x)
{
    struct refusal why;

    if (server_ready(x->server, &why) < 0)
        reply_refusal(x, &why);
    else
        reply_json(x, 200, list_json(x->server));
}

void api_lora_set(struct exchange *x)
{
    struct server *s = x->server;
    float strengths[LORA_ADAPTERS];
    struct refusal why;
    json_error_t where;
    json_t *list;

    if (server_ready(s, &why) < 0) {
        reply_refusal(x, &why);
        return;
    }
    list = json_loadb(strbuf_text(&x->body), x->body.len, 0, &where);
    if (!list)
        refuse(&why, 400, "invalid_json", NULL, "the body is no JSON (line %d, column %d): %.200s",
               where.line, where.column, where.text);
    if (!list || lora_read(s, list, strengths, &why) < 0) {
        reply_refusal(x, &why);
    } else {
        memcpy(s->strengths, strengths, sizeof strengths);
        reply_json(x, 200, json_pack("{s:b}", "success", 1));
    }
    json_decref(list);
}
