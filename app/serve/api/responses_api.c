/* OpenAI's /v1/responses. A stored response is {"response": as it was answered, "items": all items
 * that preceded its output}. Reading: pool; writing: dispatcher. */
#include "app/serve/api/apis.h"
#include "app/serve/api/responses_input.h"
#include "app/serve/common/response_store.h"
#include "app/serve/dispatch/dispatcher.h"
#include "app/serve/dispatch/server_status.h"
#include "app/serve/request/conversation_json.h"
#include "app/serve/request/job.h"
#include "app/serve/request/request_fields.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <stdio.h>
#include <string.h>

/* ---- writing ---- */

static json_t *or_default(const struct job *j, const char *name, json_t *otherwise)
{
    json_t *v = json_object_get(j->body, name);

    if (!v || json_is_null(v))
        return otherwise;
    json_decref(otherwise);
    return json_incref(v);
}

static json_t *usage(const struct job *j)
{
    struct usage u = job_usage(j);

    return json_pack("{s:i, s:{s:i}, s:i, s:{s:i}, s:i}", "input_tokens", u.prompt,
                     "input_tokens_details", "cached_tokens", u.cached, "output_tokens",
                     u.completion, "output_tokens_details", "reasoning_tokens", u.reasoning,
                     "total_tokens", u.prompt + u.completion);
}

/* Ids of the parts of an answer: the answer's id with another prefix. */
static void item_id(const struct job *j, const char *prefix, size_t i, char out[64])
{
    snprintf(out, 64, "%s%s%zu", prefix, j->id + strlen("resp_"), i);
}

static json_t *text_part(const char *text, size_t n)
{
    return json_pack("{s:s, s:s%, s:[], s:[]}", "type", "output_text", "text", text ? text : "", n,
                     "annotations", "logprobs");
}

/* part NULL: started, still empty. Takes part. */
static json_t *message_item(const struct job *j, json_t *part, const char *status)
{
    char id[64];
    json_t *content = json_array();

    item_id(j, "msg_", 0, id);
    if (part)
        json_array_append_new(content, part);
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", id, "status", status,
                     "role", "assistant", "content", content);
}

static json_t *reasoning_item(const struct job *j, const struct strbuf *text, const char *status)
{
    char id[64];
    json_t *content = json_array();

    item_id(j, "rs_", 0, id);
    if (text)
        json_array_append_new(content, json_pack("{s:s, s:s%}", "type", "reasoning_text", "text",
                                                 text->data, text->len));
    return json_pack("{s:s, s:s, s:s, s:[], s:o}", "type", "reasoning", "id", id, "status", status,
                     "summary", "content", content);
}

/* arguments NULL: those of the call. */
static json_t *call_item(const struct job *j, const json_t *call, size_t i, const char *arguments,
                         const char *status)
{
    const json_t *f = json_object_get(call, "function"), *space;
    const char *name = json_string_value(json_object_get(f, "name"));
    char id[64];

    item_id(j, "fc_", i, id);
    space = responses_namespace(j, &name);
    return json_pack(
        "{s:s, s:s, s:s, s:O, s:s, s:O*, s:o}", "type", "function_call", "id", id, "status", status,
        "call_id", json_object_get(call, "id"), "name", name, "namespace", space, "arguments",
        arguments ? json_string(arguments) : json_incref(json_object_get(f, "arguments")));
}

static const char *status_of(const struct task *t)
{
    return strcmp(t->finish, "length") == 0 ? "incomplete" : "completed";
}

static const char *call_status(const struct task *t, size_t i)
{
    return t->call_cut && i + 1 == json_array_size(t->sent_calls) ? "incomplete" : "completed";
}

/* The output items, in order. */
static json_t *output(const struct job *j, const struct task *t)
{
    json_t *list = json_array(), *call;
    size_t i;

    if (t->reasoning.len)
        json_array_append_new(list, reasoning_item(j, &t->reasoning, "completed"));
    if (t->text.len || !t->tool_calls)
        json_array_append_new(list,
                              message_item(j, text_part(t->text.data, t->text.len), status_of(t)));
    json_array_foreach(t->tool_calls, i, call)
        json_array_append_new(list, call_item(j, call, i, NULL, call_status(t, i)));
    return list;
}

static bool is_stored(const struct job *j)
{
    return j->server->responses && !json_is_false(field_get(j->body, "store"));
}

/* over: with the result; false: it has only started. */
static json_t *response(const struct job *j, bool over)
{
    const struct task *t = &j->tasks[0];
    const char *status = over ? status_of(t) : "in_progress";
    bool cut = over && strcmp(status, "incomplete") == 0;
    json_t *o = json_pack("{s:s, s:s, s:I, s:s, s:b, s:n, s:o?, s:s, s:o, s:o?, s:o?}", "id", j->id,
                          "object", "response", "created_at", (json_int_t)j->created, "status",
                          status, "background", 0, "error", "incomplete_details",
                          cut ? json_pack("{s:s}", "reason", "max_output_tokens") : NULL, "model",
                          j->server->model_id, "output", over ? output(j, t) : json_array(),
                          "usage", over ? usage(j) : NULL, "completed_at",
                          over ? json_integer(time(NULL)) : NULL);

    json_object_set_new(o, "previous_response_id",
                        or_default(j, "previous_response_id", json_null()));
    json_object_set_new(o, "instructions", or_default(j, "instructions", json_null()));
    json_object_set_new(o, "max_output_tokens", or_default(j, "max_output_tokens", json_null()));
    json_object_set_new(o, "max_tool_calls", json_null());
    json_object_set_new(o, "metadata", or_default(j, "metadata", json_object()));
    json_object_set_new(o, "parallel_tool_calls", json_true());
    json_object_set_new(o, "temperature", json_real((double)j->wish.sampling.temperature));
    json_object_set_new(o, "top_p", json_real((double)j->wish.sampling.top_p));
    json_object_set_new(o, "presence_penalty",
                        json_real((double)j->wish.sampling.presence_penalty));
    json_object_set_new(o, "frequency_penalty",
                        json_real((double)j->wish.sampling.frequency_penalty));
    json_object_set_new(o, "top_logprobs", json_integer(0));
    json_object_set_new(o, "tools", or_default(j, "told_tools", json_array()));
    json_object_set_new(o, "tool_choice", or_default(j, "tool_choice", json_string("auto")));
    json_object_set_new(o, "text",
                        or_default(j, "text", json_pack("{s:{s:s}}", "format", "type", "text")));
    json_object_set_new(o, "reasoning",
                        or_default(j, "reasoning", json_pack("{s:n, s:n}", "effort", "summary")));
    json_object_set_new(o, "truncation", json_string("disabled"));
    json_object_set_new(o, "store", json_boolean(is_stored(j)));
    json_object_set_new(o, "service_tier", json_string("default"));
    json_object_set_new(o, "safety_identifier", json_null());
    json_object_set_new(o, "prompt_cache_key", json_null());
    json_object_set_new(o, "user", or_default(j, "user", json_null()));
    return o;
}

static void put(struct job *j, const char *type, json_t *o)
{
    json_object_set_new(o, "type", json_string(type));
    json_object_set_new(o, "sequence_number", json_integer(j->sequence++));
    job_event(j, type, o);
}

static void put_item(struct job *j, const char *type, json_t *item)
{
    put(j, type, json_pack("{s:i, s:o}", "output_index", j->items, "item", item));
}

/* Position of the open text: item and part. Takes more, adds to it. */
static void put_text(struct job *j, const char *type, json_t *more)
{
    char id[64];

    item_id(j, j->part == PART_REASONING ? "rs_" : "msg_", 0, id);
    json_object_set_new(more, "item_id", json_string(id));
    json_object_set_new(more, "output_index", json_integer(j->items));
    json_object_set_new(more, "content_index", json_integer(0));
    put(j, type, more);
}

static void response_task_begin(struct job *j, struct task *t)
{
    put(j, "response.created", json_pack("{s:o}", "response", response(j, false)));
    put(j, "response.in_progress", json_pack("{s:o}", "response", response(j, false)));
    j->part = -1;
}

static void close_reasoning(struct job *j, const struct task *t)
{
    put_text(j, "response.reasoning_text.done",
             json_pack("{s:s%}", "text", t->reasoning.data, t->reasoning.len));
    put_item(j, "response.output_item.done", reasoning_item(j, &t->reasoning, "completed"));
}

static void close_message(struct job *j, const struct task *t)
{
    const char *text = strbuf_text(&t->text);

    put_text(j, "response.output_text.done",
             json_pack("{s:s%, s:[]}", "text", text, t->text.len, "logprobs"));
    put_text(j, "response.content_part.done",
             json_pack("{s:o}", "part", text_part(text, t->text.len)));
    put_item(j, "response.output_item.done",
             message_item(j, text_part(text, t->text.len), t->over ? status_of(t) : "completed"));
}

static void close_part(struct job *j, const struct task *t)
{
    if (j->part == PART_REASONING)
        close_reasoning(j, t);
    else if (j->part == PART_ANSWER)
        close_message(j, t);
    j->items += j->part >= 0;
    j->part = -1;
}

static void open_part(struct job *j, const struct task *t, enum answer_part part)
{
    if (j->part == (int)part)
        return;
    close_part(j, t);
    j->part = (int)part;
    if (part == PART_REASONING) {
        put_item(j, "response.output_item.added", reasoning_item(j, NULL, "in_progress"));
        return;
    }
    put_item(j, "response.output_item.added", message_item(j, NULL, "in_progress"));
    put_text(j, "response.content_part.added", json_pack("{s:o}", "part", text_part("", 0)));
}

static void response_piece(struct job *j, struct task *t, enum answer_part part, const char *text,
                           size_t n)
{
    if (part == PART_REASONING) {
        open_part(j, t, PART_REASONING);
        put_text(j, "response.reasoning_text.delta", json_pack("{s:s%}", "delta", text, n));
        return;
    }
    open_part(j, t, PART_ANSWER);
    put_text(j, "response.output_text.delta",
             json_pack("{s:s%, s:[]}", "delta", text, n, "logprobs"));
}

static void response_call_begin(struct job *j, struct task *t, const json_t *call, size_t i)
{
    close_part(j, t);
    put_item(j, "response.output_item.added", call_item(j, call, i, "", "in_progress"));
}

static void response_call_piece(struct job *j, struct task *t, size_t i, const char *json, size_t n)
{
    char id[64];

    item_id(j, "fc_", i, id);
    put(j, "response.function_call_arguments.delta",
        json_pack("{s:s, s:i, s:s%}", "item_id", id, "output_index", j->items, "delta", json, n));
}

static void response_call_end(struct job *j, struct task *t, const json_t *call, size_t i)
{
    const json_t *function = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(function, "name"));
    char id[64];

    item_id(j, "fc_", i, id);
    responses_namespace(j, &name);
    put(j, "response.function_call_arguments.done",
        json_pack("{s:s, s:i, s:O, s:s}", "item_id", id, "output_index", j->items, "arguments",
                  json_object_get(function, "arguments"), "name", name));
    put_item(j, "response.output_item.done", call_item(j, call, i, NULL, call_status(t, i)));
    j->items++;
}

static void response_task_end(struct job *j, struct task *t)
{
    if (!t->text.len && !t->tool_calls) /* there is always a message or a call */
        open_part(j, t, PART_ANSWER);
    close_part(j, t);
}

/* The whole response, which is stored before the client sees it: it may be continued at once. */
static json_t *finished_response(struct job *j)
{
    json_t *o = response(j, true), *kept;
    struct error e = {0};

    if (!is_stored(j))
        return o;
    kept = json_pack("{s:O, s:O}", "response", o, "items", json_object_get(j->body, "told_items"));
    if (!kept || response_store_put(j->server->responses, j->id, kept, &e) < 0)
        server_say(j->server, "a response is not stored: %s", kept ? e.text : "out of memory");
    json_decref(kept);
    return o;
}

static void response_end(struct job *j)
{
    const char *type = strcmp(status_of(&j->tasks[0]), "incomplete") == 0 ? "response.incomplete"
                                                                          : "response.completed";

    put(j, type, json_pack("{s:o}", "response", finished_response(j)));
}

static void response_failure(struct job *j, const struct refusal *r)
{
    put(j, "error",
        json_pack("{s:s?, s:s, s:s?}", "code", r->code, "message", r->text, "param",
                  r->param[0] ? r->param : NULL));
}

static json_t *response_whole(struct job *j)
{
    return finished_response(j);
}

static const struct dialect responses = {.task_begin = response_task_begin,
                                         .piece = response_piece,
                                         .call_begin = response_call_begin,
                                         .call_piece = response_call_piece,
                                         .call_end = response_call_end,
                                         .task_end = response_task_end,
                                         .end = response_end,
                                         .failure = response_failure,
                                         .whole = response_whole};

/* ---- reading ---- */

/* "text.format" is the chat's "response_format". */
static int read_format(struct job *j, struct refusal *r)
{
    const json_t *text = field_get(j->body, "text");
    json_t *format = json_object_get(text, "format");

    if (text && !json_is_object(text))
        return refuse(r, 400, "invalid_type", "text", "'text' must be an object");
    j->format_name = "text.format";
    if (format)
        json_object_set(j->body, "response_format", format);
    return 0;
}

static int check_unsupported(const struct job *j, struct refusal *r)
{
    static const char *const no[] = {"conversation", "prompt"};

    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (field_get(j->body, no[i]))
            return refuse(r, 400, "unsupported_value", no[i], "'%s' is not supported%s", no[i],
                          i ? "" : ": use 'previous_response_id'");
    if (json_is_true(field_get(j->body, "background")))
        return refuse(r, 400, "unsupported_value", "background", "'background' is not supported");
    return 0;
}

/* What precedes this request: the items of the previous response, and its output. */
static int add_history(const struct job *j, json_t *items, struct refusal *r)
{
    const json_t *previous = field_get(j->body, "previous_response_id");
    const char *id = json_string_value(previous);
    json_t *kept;

    if (!previous)
        return 0;
    if (!j->server->responses)
        return refuse(
            r, 400, "unsupported_value", "previous_response_id",
            "'previous_response_id' needs stored responses, and --response-store is none");
    if (!id)
        return refuse(r, 400, "invalid_type", "previous_response_id",
                      "'previous_response_id' must be a string");
    if (!(kept = response_store_get(j->server->responses, id)))
        return refuse(r, 400, "previous_response_not_found", "previous_response_id",
                      "the response '%.60s' is not stored here, or no longer", id);
    json_array_extend(items, json_object_get(kept, "items"));
    json_array_extend(items, json_object_get(json_object_get(kept, "response"), "output"));
    json_decref(kept);
    return 0;
}

/* The output item of this id: "fc_X0" is of the response "resp_X". A new reference; NULL: none. */
static json_t *referred(const struct job *j, const char *id)
{
    const char *digits = strchr(id, '_');
    char response[64];
    json_t *kept, *item, *found = NULL;
    size_t i;

    if (!digits || strlen(digits) < 25)
        return NULL;
    snprintf(response, sizeof response, "resp_%.24s", digits + 1);
    kept = response_store_get(j->server->responses, response);
    json_array_foreach(json_object_get(json_object_get(kept, "response"), "output"), i, item)
    {
        const char *its = json_string_value(json_object_get(item, "id"));

        if (!found && its && strcmp(its, id) == 0)
            found = json_incref(item);
    }
    json_decref(kept);
    return found;
}

static int add_input_item(const struct job *j, json_t *items, json_t *item, size_t i,
                          struct refusal *r)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    const char *id = json_string_value(json_object_get(item, "id"));
    char param[32];
    json_t *found;

    snprintf(param, sizeof param, "input[%zu]", i);
    if (!json_is_object(item))
        return refuse(r, 400, "invalid_type", param, "'%s' must be an object", param);
    if (!type || strcmp(type, "item_reference") != 0)
        return json_array_append(items, item);
    found = id ? referred(j, id) : NULL;
    if (!found)
        return refuse(r, 400, "invalid_value", param,
                      "'%s' refers to '%.60s', which is not stored here", param, id ? id : "?");
    return json_array_append_new(items, found);
}

/* All items of the conversation, kept in the body as "told_items". NULL: refused. */
static const json_t *read_items(struct job *j, struct refusal *r)
{
    json_t *input = json_object_get(j->body, "input"), *items = json_array();

    json_object_set_new(j->body, "told_items", items);
    if (add_history(j, items, r) < 0)
        return NULL;
    if (json_is_string(input))
        json_array_append_new(items, json_pack("{s:s, s:s, s:O}", "type", "message", "role", "user",
                                               "content", input));
    else if (!json_is_array(input))
        refuse(r, 400, input ? "invalid_type" : "missing_required_parameter", "input",
               "'input' must be a string or a list");
    for (size_t i = 0; i < json_array_size(input) && !r->status; i++)
        add_input_item(j, items, json_array_get(input, i), i, r);
    return r->status ? NULL : items;
}

static int read_store(struct job *j, struct refusal *r)
{
    const json_t *store = field_get(j->body, "store");

    return store && !json_is_boolean(store)
               ? refuse(r, 400, "invalid_type", "store", "'store' must be true or false")
               : 0;
}

static int read_response(struct job *j, struct refusal *r)
{
    struct conversation_source from = {.name = "input"};
    const json_t *instructions, *items;
    struct prompt prompt = {0};
    json_t *list;
    int rc;

    if (request_body(j, r) < 0 || check_unsupported(j, r) < 0 || read_store(j, r) < 0 ||
        read_format(j, r) < 0 || responses_tools(j, r) < 0 || request_common(j, r) < 0 ||
        !(items = read_items(j, r)) || !(list = responses_messages(items, r)))
        return -1;
    j->wish.n = 1;
    instructions = field_get(j->body, "instructions");
    if (instructions && !json_is_string(instructions)) {
        json_decref(list);
        return refuse(r, 400, "invalid_type", "instructions", "'instructions' must be a string");
    }
    from.list = list;
    from.system = json_string_value(instructions);
    rc = conversation_prompt(j, &from, &prompt, r);
    json_decref(list);
    return rc < 0 ? rc : job_tasks(j, &prompt, 1, r);
}

void api_responses(struct exchange *x)
{
    dispatcher_answer(x, &responses, "resp_", read_response);
}

/* ---- stored responses ---- */

/* The items in the order of OpenAI's list, the newest first, each with an id. */
static json_t *items_list(const json_t *items, const char *id)
{
    json_t *list = json_array(), *item;
    const json_t *first, *last;

    for (size_t i = json_array_size(items); i-- > 0;) {
        item = json_copy(json_array_get(items, i));
        if (!json_object_get(item, "id"))
            json_object_set_new(item, "id", json_sprintf("item_%s%zu", id + strlen("resp_"), i));
        if (!json_object_get(item, "type"))
            json_object_set_new(item, "type", json_string("message"));
        json_array_append_new(list, item);
    }
    first = json_object_get(json_array_get(list, 0), "id");
    last = json_object_get(json_array_get(list, json_array_size(list) - 1), "id");
    return json_pack("{s:s, s:o, s:O?, s:O?, s:b}", "object", "list", "data", list, "first_id",
                     first, "last_id", last, "has_more", 0);
}

/* The id of the path and what follows it ("" or "/input_items"). */
static const char *split_path(const struct exchange *x, char id[64])
{
    size_t n = strcspn(x->argument, "/");

    snprintf(id, 64, "%.*s", n < 64 ? (int)n : 0, x->argument);
    return x->argument + n;
}

static void not_stored(struct exchange *x)
{
    struct refusal why;

    refuse(&why, 404, "not_found", NULL, "the response '%.100s' is not stored here, or no longer",
           x->argument);
    reply_refusal(x, &why);
}

void api_response_get(struct exchange *x)
{
    char id[64];
    const char *rest = split_path(x, id);
    json_t *kept = response_store_get(x->server->responses, id);

    if (kept && !*rest)
        reply_json(x, 200, json_incref(json_object_get(kept, "response")));
    else if (kept && strcmp(rest, "/input_items") == 0)
        reply_json(x, 200, items_list(json_object_get(kept, "items"), id));
    else
        not_stored(x);
    json_decref(kept);
}

/* Such as /compact and /ID/cancel: nothing runs in the background here. */
void api_response_post(struct exchange *x)
{
    struct refusal why;

    refuse(&why, 404, "not_found", NULL, "there is no /v1/responses/%.100s here", x->argument);
    reply_refusal(x, &why);
}

void api_response_delete(struct exchange *x)
{
    char id[64];
    const char *rest = split_path(x, id);

    if (!*rest && response_store_remove(x->server->responses, id))
        reply_json(x, 200,
                   json_pack("{s:s, s:s, s:b}", "id", id, "object", "response", "deleted", 1));
    else
        not_stored(x);
}
