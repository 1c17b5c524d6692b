/* OpenAI's /v1/chat/completions. Reading: pool; writing: dispatcher. */
#include "app/serve/api/apis.h"
#include "app/serve/api/logprobs_json.h"
#include "app/serve/api/text_json.h"
#include "app/serve/api/usage.h"
#include "app/serve/dispatch/dispatcher.h"
#include "app/serve/request/conversation_json.h"
#include "app/serve/request/functions.h"
#include "app/serve/request/job.h"
#include "app/serve/request/request_fields.h"

#include "engine/base/mem.h"

#include <string.h>

/* ---- writing ---- */

/* Of all chunks the last one alone has a "usage", as with llama-server and vLLM: where OpenAI says
 * null some programs take it for that chunk. */
static json_t *chunk(const struct job *j, json_t *choices, bool usage)
{
    json_t *o = json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", j->id, "object",
                          "chat.completion.chunk", "created", (json_int_t)j->created, "model",
                          j->server->model_id, "system_fingerprint", SYSTEM_FINGERPRINT, "choices",
                          choices);

    if (usage)
        json_object_set_new(o, "usage", usage_openai(j));
    return o;
}

/* Takes delta and logprobs (NULL: null). */
static void put_delta(struct job *j, const struct task *t, json_t *delta, json_t *logprobs,
                      const char *finish)
{
    json_t *choice = json_pack("{s:i, s:o, s:o?, s:s?}", "index", t->index, "delta", delta,
                               "logprobs", logprobs, "finish_reason", finish);

    job_event(j, NULL, chunk(j, json_pack("[o]", choice), false));
}

static json_t *logprobs_object(json_t *content)
{
    return json_pack("{s:o, s:n}", "content", content, "refusal");
}

/* The probabilities since the newest piece; NULL: none. */
static json_t *take_fresh(struct task *t)
{
    json_t *fresh = t->fresh;

    if (!fresh || !json_array_size(fresh))
        return NULL;
    t->fresh = json_array();
    return logprobs_object(fresh);
}

static void chat_task_begin(struct job *j, struct task *t)
{
    put_delta(j, t, json_pack("{s:s, s:s, s:n}", "role", "assistant", "content", "", "refusal"),
              NULL, NULL);
}

static void chat_piece(struct job *j, struct task *t, enum answer_part part, const char *text,
                       size_t n)
{
    const char *key = part == PART_REASONING ? "reasoning_content" : "content";

    put_delta(j, t, json_pack("{s:s%}", key, text, n), part == PART_ANSWER ? take_fresh(t) : NULL,
              NULL);
}

static void chat_call_begin(struct job *j, struct task *t, const json_t *call, size_t i)
{
    json_t *copy;

    if (j->wish.functions) {
        put_delta(j, t, json_pack("{s:O}", "function_call", json_object_get(call, "function")),
                  NULL, NULL);
        return;
    }
    copy = json_copy((json_t *)(uintptr_t)call);
    json_object_set_new(copy, "index", json_integer((json_int_t)i));
    put_delta(j, t, json_pack("{s:[o]}", "tool_calls", copy), NULL, NULL);
}

static void chat_call_piece(struct job *j, struct task *t, size_t i, const char *json, size_t n)
{
    put_delta(j, t,
              j->wish.functions ? json_pack("{s:{s:s%}}", "function_call", "arguments", json, n)
                                : json_pack("{s:[{s:I, s:{s:s%}}]}", "tool_calls", "index",
                                            (json_int_t)i, "function", "arguments", json, n),
              NULL, NULL);
}

static void chat_call_end(struct job *j, struct task *t, const json_t *call, size_t i)
{
    /* the next call or the end says so */
}

static const char *finish_of(const struct job *j, const struct task *t)
{
    bool calls = j->wish.functions && strcmp(t->finish, "tool_calls") == 0;

    return calls ? "function_call" : t->finish;
}

static void chat_task_end(struct job *j, struct task *t)
{
    put_delta(j, t, json_object(), take_fresh(t), finish_of(j, t));
}

static void chat_end(struct job *j)
{
    if (j->wish.include_usage)
        job_event(j, NULL, chunk(j, json_array(), true));
    strbuf_puts(&j->line, "data: [DONE]\n\n");
}

static void chat_failure(struct job *j, const struct refusal *r)
{
    job_event(j, NULL, refusal_json(r, API_OPENAI));
}

static json_t *message_of(const struct task *t)
{
    json_t *m = json_pack("{s:s, s:n}", "role", "assistant", "refusal");

    /* a call without text has no content */
    json_object_set_new(m, "content",
                        t->tool_calls && !t->text.len
                            ? json_null()
                            : json_stringn(strbuf_text(&t->text), t->text.len));
    if (t->reasoning.len)
        json_object_set_new(m, "reasoning_content",
                            json_stringn(t->reasoning.data, t->reasoning.len));
    if (t->tool_calls && t->job->wish.functions)
        json_object_set(m, "function_call",
                        json_object_get(json_array_get(t->tool_calls, 0), "function"));
    else if (t->tool_calls)
        json_object_set(m, "tool_calls", t->tool_calls);
    return m;
}

static json_t *chat_whole(struct job *j)
{
    json_t *choices = json_array();

    for (int i = 0; i < j->n_tasks; i++) {
        struct task *t = &j->tasks[i];
        json_t *logprobs = t->logprobs ? logprobs_object(json_incref(t->logprobs)) : NULL;

        json_array_append_new(choices, json_pack("{s:i, s:o, s:o?, s:s}", "index", t->index,
                                                 "message", message_of(t), "logprobs", logprobs,
                                                 "finish_reason", finish_of(j, t)));
    }
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:o, s:o}", "id", j->id, "object",
                     "chat.completion", "created", (json_int_t)j->created, "model",
                     j->server->model_id, "system_fingerprint", SYSTEM_FINGERPRINT, "service_tier",
                     "default", "choices", choices, "usage", usage_openai(j));
}

static const struct dialect chat = {.task_begin = chat_task_begin,
                                    .piece = chat_piece,
                                    .call_begin = chat_call_begin,
                                    .call_piece = chat_call_piece,
                                    .call_end = chat_call_end,
                                    .task_end = chat_task_end,
                                    .end = chat_end,
                                    .failure = chat_failure,
                                    .whole = chat_whole,
                                    .entry = logprobs_chat};

/* ---- reading ---- */

#define AT(member) offsetof(struct wish, member)

static int read_logprobs(struct job *j, struct refusal *r)
{
    static const struct field own[] = {
        {"logprobs", FIELD_BOOL, 0, 0, AT(logprobs)},
        {"top_logprobs", FIELD_INT, 0, LOGPROBS_MOST, AT(top_logprobs)},
    };

    if (fields_read(j->body, own, 2, &j->wish, r) < 0)
        return -1;
    if (field_get(j->body, "top_logprobs") && !j->wish.logprobs)
        return refuse(r, 400, "invalid_value", "top_logprobs",
                      "'top_logprobs' needs 'logprobs' to be true");
    return 0;
}

static int read_chat(struct job *j, struct refusal *r)
{
    struct conversation_source from = {.name = "messages"};
    struct prompt prompt = {0};
    int rc;

    if (request_body(j, r) < 0 || functions_read(j, r) < 0 || request_common(j, r) < 0 ||
        request_stops(j, "stop", r) < 0 || read_logprobs(j, r) < 0)
        return -1;
    from.list = field_get(j->body, "messages");
    rc = conversation_prompt(j, &from, &prompt, r);
    return rc < 0 ? rc : job_tasks(j, &prompt, 1, r);
}

void api_chat(struct exchange *x)
{
    dispatcher_answer(x, &chat, "chatcmpl-", read_chat);
}

/* llama-server's: parses a request like the chat, but generates nothing. */
static int apply_template(struct job *j, struct strbuf *text, struct refusal *r)
{
    struct conversation_source from = {.name = "messages"};

    if (!(j->body = request_json(j->x, r)) || functions_read(j, r) < 0)
        return -1;
    from.list = field_get(j->body, "messages");
    return conversation_text(j, &from, text, r);
}

void api_apply_template(struct exchange *x)
{
    struct job *j = job_new(x, &chat, "");
    struct strbuf text = {0}, out = {0};
    struct refusal why = {0};

    if (!j)
        refuse(&why, 503, "out_of_memory", NULL, "out of memory for the request");
    else if (server_ready(x->server, &why) == 0)
        apply_template(j, &text, &why);
    strbuf_puts(&out, "{\"prompt\":");
    text_json_put(&out, strbuf_text(&text), text.len);
    strbuf_putc(&out, '}');
    if (why.status)
        reply_refusal(x, &why);
    else
        reply_long_json(x, &out);
    strbuf_release(&text);
    strbuf_release(&out);
    job_free(j);
}
