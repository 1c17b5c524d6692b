/* Anthropic's /v1/messages and /v1/messages/count_tokens: text and tools. Reading: pool; writing:
 * dispatcher. */
#include "app/serve/api/apis.h"
#include "app/serve/api/messages_input.h"
#include "app/serve/dispatch/dispatcher.h"
#include "app/serve/request/conversation_json.h"
#include "app/serve/request/job.h"
#include "app/serve/request/request_fields.h"

#include "engine/base/mem.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- writing ---- */

/* Anthropic counts cached tokens separately. */
/* As a stream's end tells them. */
static json_t *counts(int prompt, int cached, int completion, int thought)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:{s:i}, s:n}", "input_tokens", prompt - cached,
                     "cache_creation_input_tokens", 0, "cache_read_input_tokens", cached,
                     "output_tokens", completion, "output_tokens_details", "thinking_tokens",
                     thought, "server_tool_use");
}

static json_t *usage(int prompt, int cached, int completion, int thought)
{
    json_t *o = counts(prompt, cached, completion, thought);

    json_object_set_new(o, "cache_creation", json_null());
    json_object_set_new(o, "inference_geo", json_null());
    json_object_set_new(o, "service_tier", json_string("standard"));
    return o;
}

static json_t *text_block(const char *text, size_t n)
{
    return json_pack("{s:s, s:s%, s:n}", "type", "text", "text", text ? text : "", n, "citations");
}

static const char *stop_reason(const struct task *t)
{
    return strcmp(t->finish, "tool_calls") == 0 ? "tool_use"
           : t->done.reason == STOP_STRING      ? "stop_sequence"
           : strcmp(t->finish, "length") == 0   ? "max_tokens"
                                                : "end_turn";
}

static json_t *stop_sequence(const struct task *t)
{
    return t->done.reason == STOP_STRING ? json_string(t->job->stops[t->done.stop]) : json_null();
}

/* A call in OpenAI's form as a block; input: taken. */
static json_t *call_block(const json_t *call, json_t *input)
{
    const char *id = json_string_value(json_object_get(call, "id"));
    char own[64];

    snprintf(own, sizeof own, "toolu_%s", strncmp(id, "call_", 5) == 0 ? id + 5 : id);
    return json_pack("{s:s, s:s, s:O, s:o, s:{s:s}}", "type", "tool_use", "id", own, "name",
                     json_object_get(json_object_get(call, "function"), "name"), "input", input,
                     "caller", "type", "direct");
}

/* The arguments of a call; {} if they are no object. */
static json_t *call_input(const json_t *call)
{
    json_t *v = json_loads(json_string_value(
                               json_object_get(json_object_get(call, "function"), "arguments")),
                           0, NULL);

    if (json_is_object(v))
        return v;
    json_decref(v);
    return json_object();
}

static void put(struct job *j, const char *type, json_t *o)
{
    json_object_set_new(o, "type", json_string(type));
    job_event(j, type, o);
}

static void message_task_begin(struct job *j, struct task *t)
{
    put(j, "message_start",
        json_pack("{s:{s:s, s:s, s:s, s:s, s:[], s:n, s:n, s:n, s:n, s:o}}", "message", "id", j->id,
                  "type", "message", "role", "assistant", "model", j->server->model_id, "content",
                  "stop_reason", "stop_sequence", "stop_details", "container", "usage",
                  usage(t->n_prompt, t->done.cached_tokens, 0, 0)));
    put(j, "ping", json_object());
    j->part = -1;
}

static void close_block(struct job *j)
{
    if (j->part >= 0)
        put(j, "content_block_stop", json_pack("{s:i}", "index", j->sequence++));
    j->part = -1;
}

static void open_block(struct job *j, enum answer_part part)
{
    json_t *block = part == PART_REASONING ? json_pack("{s:s, s:s, s:s}", "type", "thinking",
                                                       "thinking", "", "signature", "")
                                           : text_block("", 0);

    if (j->part == (int)part) {
        json_decref(block);
        return;
    }
    close_block(j);
    put(j, "content_block_start",
        json_pack("{s:i, s:o}", "index", j->sequence, "content_block", block));
    j->part = (int)part;
}

static void message_piece(struct job *j, struct task *t, enum answer_part part, const char *text,
                          size_t n)
{
    bool thinks = part == PART_REASONING;

    open_block(j, thinks ? PART_REASONING : PART_ANSWER);
    put(j, "content_block_delta",
        json_pack("{s:i, s:{s:s, s:s%}}", "index", j->sequence, "delta", "type",
                  thinks ? "thinking_delta" : "text_delta", thinks ? "thinking" : "text", text, n));
}

static void message_call_begin(struct job *j, struct task *t, const json_t *call, size_t i)
{
    close_block(j);
    put(j, "content_block_start",
        json_pack("{s:i, s:o}", "index", j->sequence, "content_block",
                  call_block(call, json_object())));
    j->part = PART_TOOL_CALL;
}

static void message_call_piece(struct job *j, struct task *t, size_t i, const char *json, size_t n)
{
    put(j, "content_block_delta",
        json_pack("{s:i, s:{s:s, s:s%}}", "index", j->sequence, "delta", "type", "input_json_delta",
                  "partial_json", json, n));
}

static void message_call_end(struct job *j, struct task *t, const json_t *call, size_t i)
{
    close_block(j);
}

static void message_task_end(struct job *j, struct task *t)
{
    if (!t->text.len && !t->tool_calls) /* there is always a block */
        open_block(j, PART_ANSWER);
    close_block(j);
    put(j, "message_delta",
        json_pack("{s:{s:s, s:o, s:n, s:n}, s:o}", "delta", "stop_reason", stop_reason(t),
                  "stop_sequence", stop_sequence(t), "stop_details", "container", "usage",
                  counts(t->n_prompt, t->done.cached_tokens, t->done.completion_tokens,
                         t->reasoning_tokens)));
}

static void message_end(struct job *j)
{
    put(j, "message_stop", json_object());
}

static void message_failure(struct job *j, const struct refusal *r)
{
    job_event(j, "error", refusal_json(r, API_ANTHROPIC));
}

static json_t *message_whole(struct job *j)
{
    const struct task *t = &j->tasks[0];
    json_t *content = json_array(), *call;
    size_t i;

    if (t->reasoning.len)
        json_array_append_new(content,
                              json_pack("{s:s, s:s%, s:s}", "type", "thinking", "thinking",
                                        t->reasoning.data, t->reasoning.len, "signature", ""));
    if (t->text.len || !t->tool_calls)
        json_array_append_new(content, text_block(t->text.data, t->text.len));
    json_array_foreach(t->tool_calls, i, call)
        json_array_append_new(content, call_block(call, call_input(call)));
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:s, s:o, s:n, s:n, s:o}", "id", j->id, "type", "message",
        "role", "assistant", "model", j->server->model_id, "content", content, "stop_reason",
        stop_reason(t), "stop_sequence", stop_sequence(t), "stop_details", "container", "usage",
        usage(t->n_prompt, t->done.cached_tokens, t->done.completion_tokens, t->reasoning_tokens));
}

static const struct dialect messages = {.task_begin = message_task_begin,
                                        .piece = message_piece,
                                        .call_begin = message_call_begin,
                                        .call_piece = message_call_piece,
                                        .call_end = message_call_end,
                                        .task_end = message_task_end,
                                        .end = message_end,
                                        .failure = message_failure,
                                        .whole = message_whole};

/* ---- reading ---- */

static int check_unsupported(const struct job *j, struct refusal *r)
{
    static const char *const no[] = {"mcp_servers", "container"};

    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        const json_t *v = field_get(j->body, no[i]);

        if (v && (!json_is_array(v) || json_array_size(v)))
            return refuse(r, 400, "unsupported_value", no[i], "'%s' is not supported here", no[i]);
    }
    return 0;
}

static int read_messages(struct job *j, bool counted, struct prompt *out, struct refusal *r)
{
    struct conversation_source from = {.name = "messages", .counted = counted};
    char *system = messages_text(field_get(j->body, "system"), "system", r);
    json_t *list = system ? messages_list(field_get(j->body, "messages"), r) : NULL;
    int rc = -1;

    if (list) {
        from.list = list;
        from.system = system;
        rc = conversation_prompt(j, &from, out, r);
    }
    json_decref(list);
    mem_free(system);
    return rc;
}

static int read_message_request(struct job *j, struct refusal *r)
{
    static const struct field most[] = {
        {"max_tokens", FIELD_INT, 1, INT_MAX, offsetof(struct wish, max_tokens)}};
    struct prompt prompt = {0};

    if (request_body(j, r) < 0 || check_unsupported(j, r) < 0 || messages_fields(j, r) < 0 ||
        request_common(j, r) < 0 || request_stops(j, "stop_sequences", r) < 0 ||
        fields_read(j->body, most, 1, &j->wish, r) < 0)
        return -1;
    if (!field_get(j->body, "max_tokens"))
        return refuse(r, 400, "missing_required_parameter", "max_tokens",
                      "'max_tokens' is missing");
    j->wish.n = 1;
    return read_messages(j, false, &prompt, r) < 0 ? -1 : job_tasks(j, &prompt, 1, r);
}

void api_messages(struct exchange *x)
{
    dispatcher_answer(x, &messages, "msg_", read_message_request);
}

void api_count_tokens(struct exchange *x)
{
    struct job *j = job_new(x, &messages, "msg_");
    struct prompt prompt = {0};
    struct refusal why = {0};

    if (!j)
        refuse(&why, 503, "out_of_memory", NULL, "out of memory for the request");
    else if (server_ready(x->server, &why) == 0 && request_body(j, &why) == 0 &&
             check_unsupported(j, &why) == 0 && messages_fields(j, &why) == 0)
        read_messages(j, true, &prompt, &why);
    if (why.status || (j->other_model >= 0 && !request_waits(j, &why)))
        reply_refusal(x, &why);
    else if (j->other_model < 0)
        reply_json(x, 200, json_pack("{s:i}", "input_tokens", prompt.n));
    mem_free(prompt.ids);
    job_free(j);
}
