/* /slots: the sessions, by llama-server's names where it has them, without any text of prompts and
 * answers. What it shows is at most a tenth of a second old. HTTP thread. */
#include "app/serve/api/apis.h"
#include "app/serve/common/exchange.h"
#include "app/serve/common/server.h"
#include "app/serve/dispatch/server_status.h"

#include "engine/base/mem.h"

#include <string.h>

static const char *state_word(enum ui_session_state s)
{
    static const char *const words[] = {"idle", "reading", "answering", "held"};

    return words[s];
}

static json_t *slot_json(int id, int context, bool drafts, const struct ui_session *s)
{
    bool busy = s->state != UI_SESSION_IDLE;

    return json_pack("{s:i, s:i, s:b, s:b, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:[{s:b, s:i}]}",
                     "id", id, "n_ctx", context, "speculative", drafts, "is_processing", busy,
                     "state", state_word(s->state), "n_tokens", s->held, "n_prompt_tokens",
                     s->prompt, "n_prompt_tokens_cache", s->cached, "n_prompt_tokens_processed",
                     s->read, "predicted_per_second", s->tok_s, "seconds", s->seconds, "next_token",
                     "has_next_token", busy, "n_decoded", s->made);
}

static void note_drafts(void *ctx, const struct telemetry *t)
{
    *(bool *)ctx = t->speculation.wanted;
}

static json_t *slots_json(const struct server *s, bool *idle)
{
    struct ui_serving *v = mem_alloc(1, sizeof *v);
    json_t *list = json_array();
    bool drafts = false;

    *idle = false;
    if (v)
        server_status_look(s->status, v);
    server_status_telemetry(s->status, note_drafts, &drafts);
    for (int i = 0; v && i < s->parallel && i < UI_SESSIONS; i++) {
        json_array_append_new(list, slot_json(i, server_info(s)->context, drafts, &v->sessions[i]));
        *idle |= v->sessions[i].state == UI_SESSION_IDLE;
    }
    if (!v) {
        json_decref(list);
        list = NULL;
    }
    mem_free(v);
    return list;
}

void api_slots(struct exchange *x)
{
    const char *fail = exchange_query(x, "fail_on_no_slot");
    struct refusal why;
    json_t *list;
    bool idle;

    if (server_ready(x->server, &why) < 0) {
        reply_refusal(x, &why);
        return;
    }
    list = slots_json(x->server, &idle);
    if (list && fail && strcmp(fail, "0") != 0 && !idle) {
        json_decref(list);
        refuse(&why, 503, "no_slot", NULL, "every session is answering: try again in a moment");
        reply_refusal(x, &why);
        return;
    }
    reply_json(x, 200, list);
}
