/* Ollama's API as its clients use it. */
#include "tests/serving.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <unistd.h>

#define CHAT_API "/api/chat"
#define GENERATE "/api/generate"
#define HELLO "\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]"
#define SHORT "\"options\": {\"temperature\": 0, \"num_predict\": 12}"
#define HELLO_TEXT "Hello! I am a tiny storyteller. What should my story"
#define FIND_SPEC                                                                                 \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"find\", \"parameters\": "    \
    "{\"type\": \"object\", \"properties\": {\"who\": {\"type\": \"string\"}, \"n\": {\"type\": " \
    "\"integer\"}}}}}]"

static void with_tools(void)
{
    serving_start_with_template(serving_tools);
}

static const char *string_of(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));

    return text ? text : "";
}

static json_t *get(const char *path, int status)
{
    struct reply r = serving_ask("GET", path, NULL, NULL);
    json_t *o = serving_read_json(&r, status);

    free(r.head);
    return o;
}

/* A stream's lines: texts joined, then calls as " NAME ARGUMENTS"; *last: its last line, a new
 * reference. Every line but that is not done. */
static char *lines_of(const struct reply *r, const char *member, json_t **last)
{
    char *all = calloc(1, r->n + 1), *at = r->body, *end;

    ck_assert_msg(r->status == 200, "%d %s", r->status, r->body);
    ck_assert(strcasestr(r->head, "Content-Type: application/x-ndjson"));
    for (*last = NULL; (end = strchr(at, '\n')); at = end + 1) {
        json_t *o = json_loadb(at, (size_t)(end - at), 0, NULL), *m, *call;
        size_t i;

        ck_assert_msg(o && json_is_boolean(json_object_get(o, "done")), "%.*s", (int)(end - at),
                      at);
        ck_assert_msg(!*last || json_is_false(json_object_get(*last, "done")), "%s", r->body);
        m = member ? json_object_get(o, member) : o;
        strcat(all, string_of(m, member ? "content" : "response"));
        json_array_foreach(json_object_get(m, "tool_calls"), i, call)
        {
            const json_t *f = json_object_get(call, "function");
            char *arguments = json_dumps(json_object_get(f, "arguments"), JSON_COMPACT);

            sprintf(all + strlen(all), " %s %s", string_of(f, "name"), arguments);
            free(arguments);
        }
        json_decref(*last);
        *last = o;
    }
    ck_assert_int_eq(*at, 0);
    ck_assert(*last && json_is_true(json_object_get(*last, "done")));
    return all;
}

/* The figures of a finished answer are there and fit each other. */
static void check_figures(const json_t *o, int prompt, int made)
{
    json_int_t total = json_integer_value(json_object_get(o, "total_duration")),
               read = json_integer_value(json_object_get(o, "prompt_eval_duration")),
               wrote = json_integer_value(json_object_get(o, "eval_duration"));

    ck_assert_int_eq(json_integer_value(json_object_get(o, "prompt_eval_count")), prompt);
    ck_assert_int_eq(json_integer_value(json_object_get(o, "eval_count")), made);
    ck_assert(read > 0 && wrote > 0 && total >= wrote);
    ck_assert(json_is_integer(json_object_get(o, "load_duration")));
    ck_assert_int_eq((int)strlen(string_of(o, "created_at")),
                     (int)strlen("2026-11-27T14:26:05.614698613Z"));
}

START_TEST(chats)
{
    json_t *o = serving_post(CHAT_API,
                             "{\"model\": \"" MODEL "\", \"stream\": false, " HELLO ", " SHORT "}",
                             200),
           *last;
    struct reply r = serving_ask("POST", CHAT_API, NULL,
                                 "{\"model\": \"" MODEL ":latest\", " HELLO ", " SHORT "}");
    char *text = lines_of(&r, "message", &last);

    ck_assert_str_eq(string_of(json_object_get(o, "message"), "content"), HELLO_TEXT);
    ck_assert_str_eq(string_of(json_object_get(o, "message"), "role"), "assistant");
    ck_assert_str_eq(string_of(o, "model"), MODEL);
    ck_assert_str_eq(string_of(o, "done_reason"), "length");
    check_figures(o, 4, 12);
    ck_assert_str_eq(text, HELLO_TEXT);
    ck_assert_str_eq(string_of(last, "model"), MODEL ":latest");
    ck_assert_str_eq(string_of(last, "done_reason"), "length");
    check_figures(last, 4, 12);
    free(text);
    free(r.head);
    json_decref(o);
    json_decref(last);
}
END_TEST

/* Generate is a chat of one message, or with "raw" a completion. */
START_TEST(generates)
{
    static const char *const same[] = {
        GENERATE,
        "{\"stream\": false, \"prompt\": \"Hello\", " SHORT "}",
        GENERATE,
        "{\"stream\": false, \"raw\": true, \"prompt\": \"<|user|>\\nHello<|end|>\\n"
        "<|assistant|>\\n\", " SHORT "}",
    };
    json_t *o, *system, *chat, *last;
    struct reply r;
    char *text;

    for (int i = 0; i < 4; i += 2) {
        o = serving_post(same[i], same[i + 1], 200);
        /* as it is: with the space in front of its first word */
        ck_assert_str_eq(string_of(o, "response") + (i == 2), HELLO_TEXT);
        json_decref(o);
    }
    r = serving_ask("POST", GENERATE, NULL, "{\"prompt\": \"Hello\", " SHORT "}");
    text = lines_of(&r, NULL, &last);
    ck_assert_str_eq(text, HELLO_TEXT);
    json_decref(last);
    free(text);
    free(r.head);
    system = serving_post(GENERATE,
                          "{\"stream\": false, \"system\": \"You are an owl.\", \"prompt\": "
                          "\"Hello\", " SHORT "}",
                          200);
    chat = serving_post(
        CHAT_API,
        "{\"stream\": false, \"messages\": [{\"role\": \"system\", \"content\": "
        "\"You are an owl.\"}, {\"role\": \"user\", \"content\": \"Hello\"}], " SHORT "}",
        200);
    ck_assert_str_eq(string_of(system, "response"),
                     string_of(json_object_get(chat, "message"), "content"));
    ck_assert_int_eq(json_integer_value(json_object_get(system, "prompt_eval_count")),
                     json_integer_value(json_object_get(chat, "prompt_eval_count")));
    json_decref(system);
    json_decref(chat);
}
END_TEST

/* Its options by its names, at the same value as OpenAI's fields. */
START_TEST(options)
{
    json_t *o = serving_post(GENERATE,
                             "{\"stream\": false, \"prompt\": \"Tell me a story about a fox.\", "
                             "\"options\": {\"seed\": 7, \"temperature\": 0.9, \"top_k\": 20, "
                             "\"num_predict\": 30, \"stop\": [\"!!\"], \"num_ctx\": 512, "
                             "\"num_gpu\": 3}}",
                             200),
           *same = serving_post(CHAT,
                                FOX ", \"seed\": 7, \"temperature\": 0.9, \"top_k\": 20, "
                                    "\"max_tokens\": 30}",
                                200),
           *stopped = serving_post(GENERATE,
                                   "{\"stream\": false, \"prompt\": \"Hello\", \"options\": "
                                   "{\"temperature\": 0, \"stop\": \"tiny\", \"num_predict\": -1}}",
                                   200),
           *json = serving_post(GENERATE,
                                "{\"stream\": false, \"prompt\": \"Hello\", \"format\": {\"type\": "
                                "\"object\", \"properties\": {\"n\": {\"enum\": [5]}}, "
                                "\"required\": [\"n\"], \"additionalProperties\": false}}",
                                200),
           *answer;

    ck_assert_str_eq(string_of(o, "response"), serving_text_at(same, "message", "content"));
    ck_assert_str_eq(string_of(stopped, "response"), "Hello! I am a ");
    ck_assert_str_eq(string_of(stopped, "done_reason"), "stop");
    answer = json_loads(string_of(json, "response"), 0, NULL);
    ck_assert_int_eq(json_integer_value(json_object_get(answer, "n")), 5);
    json_decref(answer);
    json_decref(json);
    json_decref(o);
    json_decref(same);
    json_decref(stopped);
}
END_TEST

/* Nothing to answer: the model is to be loaded or unloaded. */
START_TEST(loads)
{
    static const char *const asked[] = {
        CHAT_API,
        "{}",
        "load",
        CHAT_API,
        "{\"messages\": []}",
        "load",
        GENERATE,
        "{\"model\": \"" MODEL "\"}",
        "load",
        GENERATE,
        "{\"prompt\": \"\", \"keep_alive\": 0}",
        "unload",
        CHAT_API,
        "{\"keep_alive\": \"0\"}",
        "unload",
    };

    for (size_t i = 0; i < sizeof asked / sizeof *asked; i += 3) {
        json_t *o = serving_post(asked[i], asked[i + 1], 200);

        ck_assert_str_eq(string_of(o, "done_reason"), asked[i + 2]);
        ck_assert(json_is_true(json_object_get(o, "done")));
        json_decref(o);
    }
}
END_TEST

/* ---- how long the model stays ---- */

static bool is_loaded(void)
{
    json_t *o = get("/api/ps", 200);
    bool loaded = json_array_size(json_object_get(o, "models")) > 0;

    json_decref(o);
    return loaded;
}

static void wait_until_unloaded(void)
{
    for (int i = 0; i < 200 && is_loaded(); i++)
        usleep(50000);
    ck_assert(!is_loaded());
}

/* Said to be unloaded it is; what needs no model is answered, and what needs one loads it. */
START_TEST(unloads)
{
    static const char *const loading[] = {
        CHAT_API,
        "{" HELLO ", \"stream\": false, " SHORT "}",
        "/v1/chat/completions",
        "{" HELLO ", \"max_tokens\": 2}",
        "/tokenize",
        "{\"content\": \"Hello\"}",
        "/api/embed",
        "{\"input\": \"Hello\"}",
        "/v1/completions",
        "{\"prompt\": \"Hello\", \"max_tokens\": 2}",
        CHAT_API,
        "{\"messages\": []}",
        GENERATE,
        "{\"keep_alive\": \"5m\"}",
    };
    static const char *const others[] = {"/api/tags", "/v1/models", "/health", "/api/version"};

    for (size_t i = 0; i < sizeof loading / sizeof *loading; i += 2) {
        json_t *o = serving_post(GENERATE, "{\"keep_alive\": 0}", 200);

        ck_assert_str_eq(string_of(o, "done_reason"), "unload");
        json_decref(o);
        wait_until_unloaded();
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            json_decref(get(others[k], 200));
        json_decref(get("/slots", 503));
        json_decref(serving_post(GENERATE, "{\"keep_alive\": 0}", 200)); /* once more: nothing */
        json_decref(serving_post("/api/show", "{\"model\": \"" MODEL "\"}", 200));
        ck_assert(!is_loaded());
        o = serving_post(loading[i], loading[i + 1], 200);
        if (i == 0) {
            json_int_t loading_ns = json_integer_value(json_object_get(o, "load_duration"));

            ck_assert_str_eq(string_of(json_object_get(o, "message"), "content"), HELLO_TEXT);
            ck_assert(0 < loading_ns &&
                      loading_ns < json_integer_value(json_object_get(o, "total_duration")));
        }
        json_decref(o);
        ck_assert(is_loaded());
    }
}
END_TEST

/* The newest request of Ollama's API says how long; every other one lets that begin again. */
START_TEST(goes_after_its_time)
{
    json_t *o = serving_post(
               CHAT_API, "{" HELLO ", \"stream\": false, \"keep_alive\": \"1s\", " SHORT "}", 200),
           *ps = get("/api/ps", 200);
    const json_t *first = json_array_get(json_object_get(ps, "models"), 0);

    ck_assert(strncmp(string_of(first, "expires_at"), "2318", 4) != 0);
    json_decref(ps);
    json_decref(o);
    wait_until_unloaded();
    o = serving_post(CHAT_API, "{" HELLO ", \"stream\": false, \"keep_alive\": 0, " SHORT "}", 200);
    ck_assert_str_eq(string_of(json_object_get(o, "message"), "content"), HELLO_TEXT);
    json_decref(o);
    wait_until_unloaded();
    json_decref(serving_post(CHAT_API, "{" HELLO ", \"stream\": false, " SHORT "}", 200));
    ps = get("/api/ps", 200);
    first = json_array_get(json_object_get(ps, "models"), 0);
    ck_assert(strncmp(string_of(first, "expires_at"), "2318", 4) == 0);
    json_decref(ps);
}
END_TEST

static void *ask_and_unload(void *arg)
{
    for (int i = 0; i < 6; i++) {
        struct reply r = serving_ask(
            "POST", CHAT_API, NULL, "{" HELLO ", \"stream\": false, \"keep_alive\": 0, " SHORT "}");

        ck_assert_msg(r.status == 200 && strstr(r.body, HELLO_TEXT), "%d %s", r.status, r.body);
        free(r.head);
    }
    return NULL;
}

/* Whoever is being answered is answered to the end, whoever comes meanwhile waits for the model. */
START_TEST(unloading_costs_nobody_an_answer)
{
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, ask_and_unload, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    wait_until_unloaded();
}
END_TEST

/* While it was unloaded its file went away: requests are told, and the server stays. */
START_TEST(a_file_that_is_gone)
{
    char path[300], away[320], copy[900];
    json_t *o;

    snprintf(path, sizeof path, "%s/gone.gguf", support_tmpdir());
    snprintf(away, sizeof away, "%s.away", path);
    snprintf(copy, sizeof copy, "cp '%s/configs/models/" MODEL ".gguf' '%s'", support_root(), path);
    ck_assert_int_eq(system(copy), 0);
    serving_start((const char *const[]){"-m", path, "--plain", NULL});
    json_decref(serving_post(GENERATE, "{\"keep_alive\": 0}", 200));
    wait_until_unloaded();
    ck_assert_int_eq(rename(path, away), 0);
    for (int i = 0; i < 2; i++) {
        o = serving_post(CHAT_API, "{" HELLO ", \"stream\": false, " SHORT "}", 500);
        ck_assert_msg(strstr(string_of(o, "error"), "cannot be loaded"), "%s",
                      string_of(o, "error"));
        json_decref(o);
    }
    ck_assert_int_eq(rename(away, path), 0);
    o = serving_post(CHAT_API, "{" HELLO ", \"stream\": false, " SHORT "}", 200);
    ck_assert_str_eq(string_of(json_object_get(o, "message"), "content"), HELLO_TEXT);
    json_decref(o);
}
END_TEST

START_TEST(models_are_listed)
{
    json_t *tags = get("/api/tags", 200), *ps = get("/api/ps", 200),
           *version = get("/api/version", 200),
           *show = serving_post("/api/show", "{\"model\": \"" MODEL ":latest\"}", 200),
           *much = serving_post("/api/show", "{\"name\": \"" MODEL "\", \"verbose\": true}", 200);
    const json_t *first = json_array_get(json_object_get(tags, "models"), 0),
                 *loaded = json_array_get(json_object_get(ps, "models"), 0),
                 *info = json_object_get(show, "model_info"),
                 *tokens = json_object_get(info, "tokenizer.ggml.tokens");
    struct reply r = serving_ask("HEAD", "/", NULL, NULL);

    ck_assert_int_eq(r.status, 200);
    free(r.head);
    ck_assert_str_eq(string_of(first, "name"), MODEL ":latest");
    ck_assert_int_eq((int)strlen(string_of(first, "digest")), 64);
    ck_assert_int_gt(json_integer_value(json_object_get(first, "size")), 1 << 20);
    ck_assert_str_eq(string_of(json_object_get(first, "details"), "family"), "phimoe");
    ck_assert_str_eq(string_of(json_object_get(first, "details"), "quantization_level"), "Q8_0");
    ck_assert_str_eq(string_of(loaded, "digest"), string_of(first, "digest"));
    ck_assert_int_eq(json_integer_value(json_object_get(loaded, "size_vram")), 0);
    ck_assert_int_gt((int)strlen(string_of(version, "version")), 4);
    ck_assert_str_eq(string_of(info, "general.architecture"), "phimoe");
    ck_assert(json_is_null(tokens));
    ck_assert_int_gt((int)json_array_size(json_object_get(json_object_get(much, "model_info"),
                                                          "tokenizer.ggml.tokens")),
                     1000);
    ck_assert(strstr(string_of(show, "template"), "message"));
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(show, "capabilities"), 0)),
                     "completion");
    json_decref(tags);
    json_decref(ps);
    json_decref(version);
    json_decref(show);
    json_decref(much);
}
END_TEST

static const struct {
    const char *method, *path, *body;
    int status;
    const char *said;
} wrong[] = {
    {"POST", CHAT_API, "{", 400, "no JSON"},
    {"POST", CHAT_API, "{\"model\": \"other\", " HELLO "}", 404, "'other'"},
    {"POST", CHAT_API, "{\"messages\": 5}", 400, "'messages' must be a list"},
    {"POST", CHAT_API, "{\"messages\": [5]}", 400, "'messages[0]'"},
    {"POST", CHAT_API, "{\"messages\": [{\"role\": \"owl\", \"content\": \"x\"}]}", 400, "role"},
    {"POST", CHAT_API,
     "{\"messages\": [{\"role\": \"user\", \"content\": \"x\", \"images\": "
     "[\"aa\"]}]}",
     400, "images"},
    {"POST", CHAT_API, "{" HELLO ", \"options\": 5}", 400, "'options'"},
    {"POST", CHAT_API, "{" HELLO ", \"options\": {\"temperature\": \"hot\"}}", 400,
     "'temperature'"},
    {"POST", CHAT_API, "{" HELLO ", \"format\": \"xml\"}", 400, "'format'"},
    {"POST", CHAT_API,
     "{" HELLO ", \"format\": {\"type\": \"object\", \"patternProperties\": "
     "{}}}",
     400, "'format'"},
    {"POST", CHAT_API, "{" HELLO ", \"think\": 5}", 400, "'think'"},
    {"POST", CHAT_API, "{" HELLO ", \"tools\": 5}", 400, "'tools'"},
    {"POST", GENERATE, "{\"prompt\": 5}", 400, "'prompt'"},
    {"POST", GENERATE, "{\"prompt\": \"x\", \"suffix\": \"y\"}", 400, "'suffix'"},
    {"POST", GENERATE, "{\"prompt\": \"x\", \"template\": \"y\"}", 400, "'template'"},
    {"POST", GENERATE, "{\"prompt\": \"x\", \"system\": 5}", 400, "'system'"},
    {"POST", GENERATE, "{\"prompt\": \"x\", \"images\": [\"y\"]}", 400, "images"},
    {"POST", "/api/show", "{}", 400, "'model'"},
    {"POST", "/api/show", "{\"model\": \"../../etc/passwd\"}", 404, "not found"},
    {"POST", "/api/pull", "{\"model\": \"hf.co/a/b\"}", 403, "--allow-pull"},
    {"POST", "/api/create", "{}", 501, "/api/create"},
    {"POST", "/api/copy", "{}", 501, "/api/copy"},
    {"POST", "/api/push", "{}", 501, "/api/push"},
    {"DELETE", "/api/delete", "{}", 501, "/api/delete"},
    {"POST", "/api/blobs/sha256:00", "{}", 501, "/api/blobs"},
    {"GET", "/api/chat", NULL, 405, "POST"},
    {"GET", "/api/nothing", NULL, 404, "/api/nothing"},
};

/* As curl -d sends it, which is how Ollama's own pages show it; not from a web page. */
START_TEST(any_type_of_content)
{
    static const char form[] = "Host: localhost\r\nContent-Type: "
                               "application/x-www-form-urlencoded\r\n",
                      page[] = "Host: localhost\r\nContent-Type: text/plain\r\nOrigin: "
                               "http://evil.example\r\n";
    struct reply r = serving_ask("POST", GENERATE, form, "{\"prompt\": \"Hi\", " SHORT "}");

    ck_assert_int_eq(r.status, 200);
    free(r.head);
    r = serving_ask("POST", GENERATE, page, "{\"prompt\": \"Hi\", " SHORT "}");
    ck_assert_int_eq(r.status, 403);
    free(r.head);
}
END_TEST

START_TEST(times_to_stay_loaded)
{
    static const struct {
        const char *alive;
        int status;
    } all[] = {{"-1", 200},        {"1800", 200},     {"0.5", 200},     {"null", 200},
               {"\"5m\"", 200},    {"\"10\"", 200},   {"\"-1m\"", 200}, {"\"0\"", 200},
               {"\"1h30m\"", 200}, {"\"1.5h\"", 200}, {"\"\"", 400},    {"\"-\"", 400},
               {"\"5 m\"", 400},   {"\"m\"", 400},    {"\"5mm\"", 400}, {"\"5m3\"", 400},
               {"[]", 400},        {"true", 400}};
    static const char *const with[] = {"\"messages\": []",
                                       "\"messages\": [{\"role\": \"user\", "
                                       "\"content\": \"hi\"}], \"options\": {\"num_predict\": 1}"};
    char body[300];

    for (size_t i = 0; i < 2 * sizeof all / sizeof *all; i++) {
        snprintf(body, sizeof body, "{\"stream\": false, \"keep_alive\": %s, %s}", all[i / 2].alive,
                 with[i % 2]);
        json_decref(serving_post(CHAT_API, body, all[i / 2].status));
    }
}
END_TEST

START_TEST(what_is_wrong_is_told)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct reply r = serving_ask(wrong[i].method, wrong[i].path, NULL, wrong[i].body);
        json_t *o = serving_read_json(&r, wrong[i].status);

        ck_assert_msg(strstr(string_of(o, "error"), wrong[i].said), "%s %s: %s", wrong[i].path,
                      wrong[i].body, r.body);
        json_decref(o);
        free(r.head);
    }
}
END_TEST

/* ---- tools ---- */

static json_t *made_to_say(const char *text)
{
    json_t *said = serving_made_to_say(text),
           *o = json_loads("{" HELLO ", " FIND_SPEC ", \"options\": {\"temperature\": 0}}", 0,
                           NULL);

    json_object_set(o, "grammar", json_object_get(said, "grammar"));
    json_decref(said);
    return o;
}

START_TEST(calls)
{
    json_t *asked = made_to_say("Well. <tool_call>\n{\"name\": \"find\", \"arguments\": {\"n\":  "
                                "1}}\n</tool_call>\n<tool_call>\n{\"name\": \"find\", "
                                "\"arguments\": {}}\n</tool_call>"),
           *last, *o;
    char *body = json_dumps(asked, 0), *text;
    struct reply r = serving_ask("POST", CHAT_API, NULL, body);

    text = lines_of(&r, "message", &last);
    ck_assert_str_eq(text, "Well.  find {\"n\":1} find {}");
    ck_assert_str_eq(string_of(last, "done_reason"), "stop");
    json_object_set_new(asked, "stream", json_false());
    o = serving_post_json(CHAT_API, asked, 200);
    ck_assert_int_eq(
        (int)json_array_size(json_object_get(json_object_get(o, "message"), "tool_calls")), 2);
    ck_assert_str_eq(string_of(json_object_get(o, "message"), "content"), "Well. ");
    json_decref(o);
    json_decref(last);
    json_decref(asked);
    free(text);
    free(body);
    free(r.head);
}
END_TEST

/* Calls and results in Ollama's form give the prompt that they give in OpenAI's. */
START_TEST(results)
{
    json_t *o =
               serving_post(CHAT_API,
                            "{\"stream\": false, \"messages\": [{\"role\": \"user\", \"content\": "
                            "\"Hi\"}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": "
                            "[{\"function\": {\"name\": \"find\", \"arguments\": {\"n\": 1}}}]}, "
                            "{\"role\": \"tool\", \"tool_name\": \"find\", \"content\": "
                            "\"gone\"}], " FIND_SPEC ", " SHORT "}",
                            200),
           *same = serving_post(CHAT,
                                "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, "
                                "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": "
                                "[{\"type\": \"function\", \"function\": {\"name\": \"find\", "
                                "\"arguments\": \"{\\\"n\\\": 1}\"}}]}, {\"role\": \"tool\", "
                                "\"name\": \"find\", \"content\": \"gone\"}], " FIND_SPEC
                                ", \"temperature\": 0, \"max_tokens\": 12}",
                                200);

    ck_assert_int_eq(json_integer_value(json_object_get(o, "prompt_eval_count")),
                     json_integer_value(
                         json_object_get(json_object_get(same, "usage"), "prompt_tokens")));
    ck_assert_str_eq(string_of(json_object_get(o, "message"), "content"),
                     serving_text_at(same, "message", "content"));
    json_decref(o);
    json_decref(same);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("serve_ollama");
    TCase *t = tcase_create("plain"), *tools = tcase_create("tools"),
          *alone = tcase_create("alone");

    tcase_set_timeout(t, 120);
    tcase_set_timeout(tools, 120);
    tcase_add_checked_fixture(t, serving_plain_server, serving_end_well);
    tcase_add_test(t, chats);
    tcase_add_test(t, generates);
    tcase_add_test(t, options);
    tcase_add_test(t, loads);
    tcase_add_test(t, unloads);
    tcase_add_test(t, goes_after_its_time);
    tcase_add_test(t, unloading_costs_nobody_an_answer);
    tcase_add_test(t, models_are_listed);
    tcase_add_test(t, any_type_of_content);
    tcase_add_test(t, times_to_stay_loaded);
    tcase_add_test(t, what_is_wrong_is_told);
    suite_add_tcase(s, t);
    tcase_set_timeout(alone, 60);
    tcase_add_checked_fixture(alone, NULL, serving_end_well);
    tcase_add_test(alone, a_file_that_is_gone);
    suite_add_tcase(s, alone);
    tcase_add_checked_fixture(tools, with_tools, serving_end_well);
    tcase_add_test(tools, calls);
    tcase_add_test(tools, results);
    suite_add_tcase(s, tools);
    return s;
}

int main(void)
{
    return support_run(suite());
}
