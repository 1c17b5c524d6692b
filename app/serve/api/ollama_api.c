/* Ollama's /api/chat and /api/generate. Reading: pool; writing: dispatcher. */
#include "app/serve/api/apis.h"
#include "app/serve/api/ollama_input.h"
#include "app/serve/api/ollama_time.h"
#include "app/serve/common/model_registry.h"
#include "app/serve/dispatch/dispatcher.h"
#include "app/serve/request/conversation_json.h"
#include "app/serve/request/job.h"
#include "app/serve/request/request_fields.h"
#include "app/serve/request/text_prompt.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <string.h>

/* ---- writing ---- */

static bool is_chat(const struct job *j);

/* The name as the request has it, with its ":latest". */
static json_t *model_name(const struct job *j)
{
    json_t *name = json_object_get(j->body, "model");

    return json_is_string(name) ? json_incref(name) : json_string(j->server->model_id);
}

/* A line of an answer: text and thoughts are new, calls (taken, NULL: none) whole. */
static json_t *line(const struct job *j, const char *text, size_t n, const char *thought,
                    size_t n_thought, json_t *calls)
{
    json_t *o = json_pack("{s:o, s:o}", "model", model_name(j), "created_at", ollama_time_now()),
           *to = o;

    if (is_chat(j)) {
        to = json_pack("{s:s}", "role", "assistant");
        json_object_set_new(o, "message", to);
    }
    json_object_set_new(to, is_chat(j) ? "content" : "response", json_stringn(text, n));
    if (n_thought)
        json_object_set_new(to, "thinking", json_stringn(thought, n_thought));
    if (calls)
        json_object_set_new(to, "tool_calls", calls);
    json_object_set_new(o, "done", json_false());
    return o;
}

/* A call in Ollama's form: arguments are an object. */
static json_t *call_of(const json_t *call, size_t i)
{
    const json_t *function = json_object_get(call, "function");
    json_t *arguments = json_loads(json_string_value(json_object_get(function, "arguments")), 0,
                                   NULL);

    return json_pack("{s:O, s:{s:I, s:O, s:o}}", "id", json_object_get(call, "id"), "function",
                     "index", (json_int_t)i, "name", json_object_get(function, "name"), "arguments",
                     arguments ? arguments : json_object());
}

static json_t *calls_of(const struct task *t)
{
    json_t *list = t->tool_calls ? json_array() : NULL, *call;
    size_t i;

    json_array_foreach(t->tool_calls, i, call) json_array_append_new(list, call_of(call, i));
    return list;
}

/* Makes a line the last one: why it ended, and its figures in nanoseconds. */
static json_t *finish(json_t *o, const struct job *j)
{
    const struct task *t = &j->tasks[0];
    bool cut = strcmp(t->finish, "length") == 0;

    json_object_set_new(o, "done", json_true());
    json_object_set_new(o, "done_reason", json_string(cut ? "length" : "stop"));
    json_object_set_new(o, "total_duration",
                        json_integer((json_int_t)(clock_now() - j->x->begun_ns)));
    json_object_set_new(o, "load_duration", json_integer((json_int_t)j->x->waited_ns));
    json_object_set_new(o, "prompt_eval_count", json_integer(t->n_prompt));
    json_object_set_new(o, "prompt_eval_duration", json_integer((json_int_t)t->done.prefill_ns));
    json_object_set_new(o, "eval_count", json_integer(t->done.completion_tokens));
    json_object_set_new(o, "eval_duration", json_integer((json_int_t)t->done.decode_ns));
    return o;
}

static void ollama_piece(struct job *j, struct task *t, enum answer_part part, const char *text,
                         size_t n)
{
    bool thinks = part == PART_REASONING;

    job_line(j, line(j, thinks ? "" : text, thinks ? 0 : n, text, thinks ? n : 0, NULL));
}

/* Calls are sent whole, each when it is complete. */
static void ollama_call_begin(struct job *j, struct task *t, const json_t *call, size_t i)
{
}

static void ollama_call_piece(struct job *j, struct task *t, size_t i, const char *json, size_t n)
{
}

static void ollama_call_end(struct job *j, struct task *t, const json_t *call, size_t i)
{
    if (!t->call_cut)
        job_line(j, line(j, "", 0, NULL, 0, json_pack("[o]", call_of(call, i))));
}

static void ollama_task_end(struct job *j, struct task *t)
{
}

static void ollama_end(struct job *j)
{
    job_line(j, finish(line(j, "", 0, NULL, 0, NULL), j));
}

static void ollama_failure(struct job *j, const struct refusal *r)
{
    job_line(j, refusal_json(r, API_OLLAMA));
}

static json_t *ollama_whole(struct job *j)
{
    const struct task *t = &j->tasks[0];

    return finish(line(j, strbuf_text(&t->text), t->text.len, strbuf_text(&t->reasoning),
                       t->reasoning.len, calls_of(t)),
                  j);
}

#define OLLAMA_DIALECT                                                                         \
    .ndjson = true, .piece = ollama_piece, .call_begin = ollama_call_begin,                    \
    .call_piece = ollama_call_piece, .call_end = ollama_call_end, .task_end = ollama_task_end, \
    .end = ollama_end, .failure = ollama_failure, .whole = ollama_whole

static const struct dialect chat = {OLLAMA_DIALECT}, generate = {OLLAMA_DIALECT};

static bool is_chat(const struct job *j)
{
    return j->dialect == &chat;
}

/* ---- reading ---- */

static int read_chat(struct job *j, struct refusal *r)
{
    struct conversation_source from = {.name = "messages"};
    struct prompt prompt = {0};
    json_t *list;
    int rc;

    if (ollama_fields(j, r) < 0 || !(list = ollama_messages(field_get(j->body, "messages"), r)))
        return -1;
    from.list = list;
    rc = conversation_prompt(j, &from, &prompt, r);
    json_decref(list);
    return rc < 0 ? rc : job_tasks(j, &prompt, 1, r);
}

static int check_generate(const struct job *j, struct refusal *r)
{
    const json_t *suffix = field_get(j->body, "suffix"), *template = field_get(j->body, "template");

    if (suffix && (!json_is_string(suffix) || json_string_length(suffix)))
        return refuse(r, 400, "unsupported_value", "suffix",
                      "'suffix' is not supported: texts are continued at their end");
    if (template && (!json_is_string(template) || json_string_length(template)))
        return refuse(
            r, 400, "unsupported_value", "template",
            "'template' is not supported: the model's own is used; with \"raw\": true the "
            "prompt is used as it is");
    if (field_get(j->body, "system") && !json_is_string(field_get(j->body, "system")))
        return refuse(r, 400, "invalid_type", "system", "'system' must be a string");
    return ollama_no_images(j->body, "prompt", r);
}

static int read_raw(struct job *j, const json_t *text, struct refusal *r)
{
    struct prompt prompt = {0};

    if (text_prompt(j, json_string_value(text), json_string_length(text), &prompt, r) == 0 &&
        text_prompt_end(j, &prompt, r) == 0)
        return job_tasks(j, &prompt, 1, r);
    mem_free(prompt.ids);
    return -1;
}

static int read_generate(struct job *j, struct refusal *r)
{
    const json_t *text = field_get(j->body, "prompt");
    struct conversation_source from = {.name = "prompt"};
    struct prompt prompt = {0};
    json_t *list;
    int rc;

    if (!json_is_string(text))
        return refuse(r, 400, "invalid_type", "prompt", "'prompt' must be a string");
    json_object_del(j->body, "tools"); /* of the chat alone */
    if (check_generate(j, r) < 0 || ollama_fields(j, r) < 0)
        return -1;
    if (json_is_true(field_get(j->body, "raw")))
        return read_raw(j, text, r);
    list = json_pack("[{s:s, s:O}]", "role", "user", "content", text);
    from.list = list;
    from.system = json_string_value(field_get(j->body, "system"));
    rc = conversation_prompt(j, &from, &prompt, r);
    json_decref(list);
    return rc < 0 ? rc : job_tasks(j, &prompt, 1, r);
}

/* Nothing to answer. */
static bool is_load(const struct job *j)
{
    const json_t *v = field_get(j->body, is_chat(j) ? "messages" : "prompt");

    return !v || (is_chat(j) ? json_is_array(v) && !json_array_size(v)
                             : json_is_string(v) && !json_string_length(v));
}

/* Without a message or a prompt the model is loaded, which it is, or (keep_alive 0) unloaded as
 * soon as nothing is answered. One that is not loaded needs nothing for that. */
static int load(struct job *j, int64_t keep_ns, struct refusal *r)
{
    struct model_registry *registry = j->server->registry;
    bool loaded = request_model(j, r) == 0;
    json_t *o;

    if (r->status || (!loaded && keep_ns != 0))
        return -1;
    if (loaded)
        registry_keep(registry, keep_ns);
    o = line(j, "", 0, NULL, 0, NULL);
    json_object_set_new(o, "done", json_true());
    json_object_set_new(o, "done_reason", json_string(keep_ns == 0 ? "unload" : "load"));
    reply_json(j->x, 200, o);
    job_free(j);
    return 0;
}

/* Takes j unless it is refused, or its model is to be loaded first. */
static int submit(struct job *j, int (*read)(struct job *j, struct refusal *r), struct refusal *r)
{
    struct server *s = j->server;
    int64_t keep_ns;

    if ((!registry_asleep(s->registry) && server_ready(s, r) < 0) ||
        !(j->body = request_json(j->x, r)) || ollama_keep_alive(j, &keep_ns, r) < 0)
        return -1;
    if (is_load(j))
        return load(j, keep_ns, r);
    if (request_model(j, r) < 0 || read(j, r) < 0 || dispatcher_submit(s->dispatcher, j, r) < 0)
        return -1;
    registry_keep(s->registry, keep_ns);
    return 0;
}

static void answer(struct exchange *x, const struct dialect *dialect,
                   int (*read)(struct job *j, struct refusal *r))
{
    struct job *j = job_new(x, dialect, "");
    struct refusal why = {0};

    if (!j)
        refuse(&why, 503, "out_of_memory", NULL, "out of memory for the request");
    else if (submit(j, read, &why) == 0)
        return;
    if (!j || !request_waits(j, &why))
        reply_refusal(x, &why);
    job_free(j);
}

void api_ollama_chat(struct exchange *x)
{
    answer(x, &chat, read_chat);
}

void api_ollama_generate(struct exchange *x)
{
    answer(x, &generate, read_generate);
}
