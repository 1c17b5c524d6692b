/* Stored responses: continued, fetched, deleted, kept in a folder over a restart, bounded. */
#include "app/serve/common/response_store.h"
#include "tests/serving.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH "/v1/responses"
#define SAID "\"temperature\": 0, \"max_output_tokens\": 12"

static const char *string_of(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));

    return text ? text : "";
}

static json_t *fetch(const char *method, const char *path, int status)
{
    struct reply r = serving_ask(method, path, NULL, NULL);
    json_t *o = serving_read_json(&r, status);

    free(r.head);
    return o;
}

static json_t *respond(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
static json_t *respond(int status, const char *format, ...)
{
    char body[4096];
    va_list args;

    va_start(args, format);
    vsnprintf(body, sizeof body, format, args);
    va_end(args);
    return serving_post(PATH, body, status);
}

static int prompt_of(const json_t *o)
{
    return (int)json_integer_value(json_object_get(json_object_get(o, "usage"), "input_tokens"));
}

static const char *text_of(const json_t *o)
{
    const json_t *item = json_array_get(json_object_get(o, "output"), 0);

    return string_of(json_array_get(json_object_get(item, "content"), 0), "text");
}

static void check_refused(json_t *o, const char *param, const char *said)
{
    const json_t *e = json_object_get(o, "error");

    ck_assert_str_eq(string_of(e, "param"), param);
    ck_assert_msg(strstr(string_of(e, "message"), said), "%s", string_of(e, "message"));
    json_decref(o);
}

/* Two turns by id give what they give with the whole conversation. */
static void check_chain(const char *first_id, const char *first_text)
{
    json_t *second, *whole, *third, *second_text;
    char *quoted;

    second = respond(200, "{\"previous_response_id\": \"%s\", \"input\": \"Go on.\", " SAID "}",
                     first_id);
    ck_assert_str_eq(string_of(second, "previous_response_id"), first_id);
    ck_assert(json_is_true(json_object_get(second, "store")));
    third = fetch("GET", PATH, 405);
    json_decref(third);
    second_text = json_string(text_of(second));
    quoted = json_dumps(second_text, JSON_ENCODE_ANY);
    third = respond(200,
                    "{\"previous_response_id\": \"%s\", \"input\": [{\"role\": \"user\", "
                    "\"content\": \"More.\"}], " SAID "}",
                    string_of(second, "id"));
    whole = respond(200,
                    "{\"input\": [{\"role\": \"user\", \"content\": \"Hello\"}, {\"role\": "
                    "\"assistant\", \"content\": [{\"type\": \"output_text\", \"text\": \"%s\"}]}, "
                    "{\"role\": \"user\", "
                    "\"content\": \"Go on.\"}, {\"role\": \"assistant\", \"content\": %s}, "
                    "{\"role\": \"user\", \"content\": \"More.\"}], " SAID "}",
                    first_text, quoted);
    ck_assert_int_eq(prompt_of(third), prompt_of(whole));
    ck_assert_str_eq(text_of(third), text_of(whole));
    free(quoted);
    json_decref(second_text);
    json_decref(second);
    json_decref(third);
    json_decref(whole);
}

/* What is answered to hello(). */
#define HELLO_TEXT "Hello! I am a tiny storyteller. What should my story"

static json_t *hello(void)
{
    json_t *o = respond(200, "{\"input\": \"Hello\", " SAID "}");

    ck_assert_str_eq(text_of(o), HELLO_TEXT);
    return o;
}

START_TEST(a_response_is_continued)
{
    json_t *first = hello(), *again, *items;
    char path[200];

    check_chain(string_of(first, "id"), HELLO_TEXT);
    snprintf(path, sizeof path, PATH "/%s", string_of(first, "id"));
    again = fetch("GET", path, 200);
    ck_assert(json_equal(first, again));
    json_decref(again);
    strcat(path, "/input_items");
    items = fetch("GET", path, 200);
    again = json_array_get(json_object_get(items, "data"), 0);
    ck_assert_str_eq(string_of(again, "role"), "user");
    ck_assert_str_eq(string_of(again, "content"), "Hello");
    ck_assert_str_eq(string_of(again, "id"), string_of(items, "first_id"));
    json_decref(items);
    json_decref(fetch("DELETE", path, 404));
    *strrchr(path, '/') = 0;
    again = fetch("DELETE", path, 200);
    ck_assert(json_is_true(json_object_get(again, "deleted")));
    json_decref(again);
    json_decref(fetch("DELETE", path, 404));
    json_decref(fetch("GET", path, 404));
    check_refused(respond(400, "{\"previous_response_id\": \"%s\", \"input\": \"x\"}",
                          string_of(first, "id")),
                  "previous_response_id", "is not stored");
    json_decref(first);
}
END_TEST

/* A stream's last event is stored before it is sent; what is not to be stored is not. */
START_TEST(streams_are_stored_as_well)
{
    struct reply r = serving_ask("POST", PATH, NULL,
                                 "{\"input\": \"Hello\", \"stream\": true, " SAID "}");
    char *at = strstr(r.body, "\"id\":\"resp_");
    char id[64];
    json_t *o;

    ck_assert(at && sscanf(at, "\"id\":\"%60[^\"]", id) == 1);
    check_chain(id, HELLO_TEXT);
    free(r.head);
    o = respond(200, "{\"input\": \"Hello\", \"store\": false, " SAID "}");
    ck_assert(json_is_false(json_object_get(o, "store")));
    check_refused(respond(400, "{\"previous_response_id\": \"%s\", \"input\": \"x\"}",
                          string_of(o, "id")),
                  "previous_response_id", "is not stored");
    json_decref(o);
}
END_TEST

/* Items that were answered are referred to by their ids. */
START_TEST(items_are_referred_to)
{
    json_t *first = hello(), *second, *whole;
    const json_t *item = json_array_get(json_object_get(first, "output"), 0);

    second = respond(200,
                     "{\"input\": [{\"role\": \"user\", \"content\": \"Hello\"}, {\"type\": "
                     "\"item_reference\", \"id\": \"%s\"}, {\"role\": \"user\", \"content\": \"Go "
                     "on.\"}], " SAID "}",
                     string_of(item, "id"));
    whole = respond(200, "{\"previous_response_id\": \"%s\", \"input\": \"Go on.\", " SAID "}",
                    string_of(first, "id"));
    ck_assert_int_eq(prompt_of(second), prompt_of(whole));
    ck_assert_str_eq(text_of(second), text_of(whole));
    json_decref(first);
    json_decref(second);
    json_decref(whole);
    check_refused(respond(400, "{\"input\": [{\"type\": \"item_reference\", \"id\": "
                               "\"msg_000000000000000000000000aa\"}]}"),
                  "input[0]", "is not stored");
    check_refused(respond(400, "{\"input\": [{\"type\": \"item_reference\", \"id\": 5}]}"),
                  "input[0]", "is not stored");
}
END_TEST

START_TEST(what_is_wrong_is_named)
{
    static const struct {
        const char *body, *param, *said;
    } wrong[] = {
        {"{\"previous_response_id\": 5, \"input\": \"x\"}", "previous_response_id", "a string"},
        {"{\"previous_response_id\": \"resp_1\", \"input\": \"x\"}", "previous_response_id",
         "not stored"},
        {"{\"previous_response_id\": \"resp_/../../etc/passwd\", \"input\": \"x\"}",
         "previous_response_id", "not stored"},
        {"{\"store\": 1, \"input\": \"x\"}", "store", "true or false"},
        {"{\"conversation\": \"conv_1\", \"input\": \"x\"}", "conversation",
         "previous_response_id"},
        {"{\"input\": [5]}", "input[0]", "an object"},
        {"{}", "input", "string or a list"},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check_refused(respond(400, "%s", wrong[i].body), wrong[i].param, wrong[i].said);
    json_decref(fetch("GET", PATH "/resp_..%2f..%2fx", 404));
    json_decref(fetch("GET", PATH "/x", 404));
    json_decref(fetch("DELETE", PATH "/resp_", 404));
}
END_TEST

/* ---- tools ---- */

#define FOX_TOOL(more)                                                                         \
    "{\"type\": \"function\", \"name\": \"find\", " more "\"strict\": false, \"parameters\": " \
    "{\"type\": \"object\", \"properties\": {\"who\": {\"type\": \"string\"}}}}"
#define FOREIGN                                                                                    \
    "{\"type\": \"web_search\", \"external_web_access\": true}, {\"type\": \"custom\", \"name\": " \
    "\"apply_patch\"}, {\"type\": \"mcp\", \"server_label\": \"x\"}"
#define SPACE "{\"type\": \"namespace\", \"name\": \"wood\", \"description\": \"d\", \"tools\": ["

static int prompt_with(const char *tools)
{
    json_t *o = respond(200, "{\"input\": \"Where?\", \"max_output_tokens\": 1, \"tools\": [%s]}",
                        tools);
    int n = prompt_of(o);

    json_decref(o);
    return n;
}

/* Programs list what OpenAI's servers run, whatever the server is. */
START_TEST(tools_of_other_kinds_are_not_shown)
{
    static const struct {
        const char *tools, *param, *said;
    } wrong[] = {
        {FOREIGN, "tools", "none of 'tools' is a function"},
        {SPACE "]}", "tools", "none of 'tools' is a function"},
        {FOX_TOOL("") ", {\"type\": \"functoin\"}", "tools[1]", "function or namespace"},
        {"{\"name\": \"find\"}", "tools[0]", "function or namespace"},
        {"5", "tools[0]", "function or namespace"},
        {"{\"type\": \"namespace\", \"tools\": []}", "tools[0]", "without a 'name'"},
        {"{\"type\": \"namespace\", \"name\": \"wood\", \"tools\": {}}", "tools[0]", "without"},
        {SPACE "{\"type\": \"function\"}]}", "tools[0]", "'name'"},
    };
    json_t *o = respond(200, "{\"input\": \"Where?\", \"max_output_tokens\": 1, \"tools\": [%s]}",
                        FOX_TOOL("") ", " FOREIGN);

    ck_assert_uint_eq(json_array_size(json_object_get(o, "tools")), 4); /* as they were asked for */
    ck_assert_int_eq(prompt_of(o), prompt_with(FOX_TOOL("")));
    ck_assert_int_gt(prompt_of(o), prompt_with(""));
    json_decref(o);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check_refused(respond(400, "{\"input\": \"x\", \"tools\": [%s]}", wrong[i].tools),
                      wrong[i].param, wrong[i].said);
}
END_TEST

/* A conversation that was begun elsewhere. */
START_TEST(items_of_other_servers)
{
    json_t *o = respond(
               200, "{" SAID ", \"input\": [{\"role\": \"user\", \"content\": \"Where?\"}, "
                    "{\"type\": \"web_search_call\", \"id\": \"ws_1\", \"status\": "
                    "\"completed\"}, {\"type\": \"custom_tool_call\", \"call_id\": \"c\", "
                    "\"name\": \"patch\", \"input\": \"a fox\"}, {\"type\": "
                    "\"custom_tool_call_output\", \"call_id\": \"c\", \"output\": \"Done.\"}]}"),
           *same = respond(200,
                           "{" SAID ", \"input\": [{\"role\": \"user\", \"content\": \"Where?\"}, "
                           "{\"type\": \"function_call\", \"call_id\": \"c\", \"name\": \"patch\", "
                           "\"arguments\": \"{\\\"input\\\": \\\"a fox\\\"}\"}, {\"type\": "
                           "\"function_call_output\", \"call_id\": \"c\", \"output\": "
                           "\"Done.\"}]}");

    ck_assert_int_eq(prompt_of(o), prompt_of(same));
    ck_assert_str_eq(text_of(o), text_of(same));
    json_decref(o);
    json_decref(same);
    check_refused(respond(400, "{\"input\": [{\"type\": \"mcp_call\"}]}"), "input[0]", "mcp_call");
    check_refused(respond(400, "{\"input\": [{\"type\": \"custom_tool_call\", \"call_id\": 5}]}"),
                  "input[0]", "");
}
END_TEST

/* The request whose answer is a call of wood__find, with a function and a namespace that has one of
 * the same name. */
static json_t *in_a_namespace(bool stream)
{
    json_t *said = serving_made_to_say(
               "<tool_call>\n{\"name\": \"wood__find\", \"arguments\": {\"who\": \"fox\"}}\n"
               "</tool_call>\n<tool_call>\n{\"name\": \"find\", \"arguments\": {}}\n</tool_call>"),
           *o = json_loads("{\"input\": \"Where?\", \"tools\": [" FOX_TOOL("") ", " SPACE FOX_TOOL(
                               "\"description\": \"Finds.\", ") ", {\"type\": \"custom\"}]}]}",
                           0, NULL);

    json_object_set(o, "grammar", json_object_get(said, "grammar"));
    json_object_set_new(o, "stream", json_boolean(stream));
    json_decref(said);
    return o;
}

static void check_call(const json_t *item, const char *space, const char *arguments)
{
    ck_assert_str_eq(string_of(item, "type"), "function_call");
    ck_assert_str_eq(string_of(item, "name"), "find");
    ck_assert_str_eq(string_of(item, "namespace"), space);
    ck_assert_str_eq(string_of(item, "arguments"), arguments);
}

START_TEST(functions_of_a_namespace)
{
    json_t *asked = in_a_namespace(false), *o = serving_post_json(PATH, asked, 200), *stream, *item,
           *again, *flat;
    const json_t *output = json_object_get(o, "output");
    int added = 0, done = 0;
    char *body, *line, *rest;
    struct reply r;

    ck_assert_uint_eq(json_array_size(output), 2);
    check_call(json_array_get(output, 0), "wood", "{\"who\": \"fox\"}");
    check_call(json_array_get(output, 1), "", "{}");
    ck_assert_ptr_null(json_object_get(json_array_get(output, 1), "namespace"));

    /* its result: by the stored response, and as calls of a flat name */
    again = respond(200,
                    "{\"previous_response_id\": \"%s\", " SAID
                    ", \"input\": [{\"type\": \"function_call_output\", \"call_id\": \"%s\", "
                    "\"output\": \"There.\"}]}",
                    string_of(o, "id"), string_of(json_array_get(output, 0), "call_id"));
    flat = respond(200,
                   "{" SAID ", \"input\": [{\"role\": \"user\", \"content\": \"Where?\"}, "
                   "{\"type\": \"function_call\", \"call_id\": \"a\", \"name\": \"wood__find\", "
                   "\"arguments\": \"{\\\"who\\\":\\\"fox\\\"}\"}, {\"type\": \"function_call\", "
                   "\"call_id\": \"b\", \"name\": \"find\", \"arguments\": \"{}\"}, {\"type\": "
                   "\"function_call_output\", \"call_id\": \"a\", \"output\": \"There.\"}]}");
    ck_assert_int_eq(prompt_of(again), prompt_of(flat));
    ck_assert_str_eq(text_of(again), text_of(flat));
    json_decref(again);
    json_decref(flat);

    stream = in_a_namespace(true);
    body = json_dumps(stream, 0);
    r = serving_ask("POST", PATH, NULL, body);
    for (rest = r.body; (line = strtok_r(NULL, "\n", &rest));) {
        json_t *event = strncmp(line, "data: ", 6) == 0 ? json_loads(line + 6, 0, NULL) : NULL;
        const char *type = string_of(event, "type");

        item = json_object_get(event, "item");
        if (strcmp(type, "response.output_item.added") == 0)
            check_call(item, added++ ? "" : "wood", "");
        if (strcmp(type, "response.function_call_arguments.done") == 0)
            ck_assert_str_eq(string_of(event, "name"), "find");
        if (strcmp(type, "response.output_item.done") == 0) {
            check_call(item, done ? "" : "wood", done ? "{}" : "{\"who\": \"fox\"}");
            done++;
        }
        json_decref(event);
    }
    ck_assert_int_eq(added, 2);
    ck_assert_int_eq(done, 2);
    free(body);
    free(r.head);
    json_decref(stream);
    json_decref(asked);
    json_decref(o);
}
END_TEST

/* ---- folders ---- */

START_TEST(a_folder_is_found_again)
{
    static char folder[300];
    const char *const more[] = {"--response-store", folder, NULL};
    struct stat st;
    char file[400];
    json_t *first;

    snprintf(folder, sizeof folder, "%s/stored/responses", support_tmpdir());
    serving_start(more);
    first = hello();
    snprintf(file, sizeof file, "%s/%s.json", folder, string_of(first, "id"));
    ck_assert_int_eq(stat(file, &st), 0);
    ck_assert_int_eq(st.st_mode & 077, 0);
    ck_assert_int_eq(serving_end(), 0);
    serving_start(more);
    check_chain(string_of(first, "id"), HELLO_TEXT);
    json_decref(first);
}
END_TEST

START_TEST(nothing_is_stored)
{
    static const char *const more[] = {"--response-store", "none", NULL};
    json_t *o;

    serving_start(more);
    o = hello();
    ck_assert(json_is_false(json_object_get(o, "store")));
    check_refused(respond(400, "{\"previous_response_id\": \"%s\", \"input\": \"x\"}",
                          string_of(o, "id")),
                  "previous_response_id", "--response-store");
    json_decref(o);
}
END_TEST

/* ---- the store itself ---- */

static void fill(struct response_store *s, int from, int to)
{
    for (int i = from; i < to; i++) {
        json_t *o = json_pack("{s:i}", "n", i);
        struct error e = {0};
        char id[64];

        snprintf(id, sizeof id, "resp_%08x", i);
        ck_assert_msg(response_store_put(s, id, o, &e) == 0, "%s", e.text);
        json_decref(o);
    }
}

static bool has(struct response_store *s, int i)
{
    char id[64];
    json_t *o;
    bool good;

    snprintf(id, sizeof id, "resp_%08x", i);
    o = response_store_get(s, id);
    good = json_integer_value(json_object_get(o, "n")) == i && o;
    json_decref(o);
    return good;
}

/* The newest are kept, in memory and as files, whose order a restart finds again. */
START_TEST(the_oldest_go)
{
    char folder[300];
    const char *const where[] = {"memory", folder};

    snprintf(folder, sizeof folder, "%s/bounded", support_tmpdir());
    for (int i = 0; i < 2; i++) {
        struct response_store *s;
        struct error e = {0};

        ck_assert_msg(response_store_open(&s, where[i], &e) == 0, "%s", e.text);
        fill(s, 0, STORE_MOST + 20);
        ck_assert(!has(s, 19) && has(s, 20) && has(s, STORE_MOST + 19));
        ck_assert(response_store_remove(s, "resp_00000400") && !has(s, 1024));
        ck_assert(!response_store_remove(s, "resp_00000400"));
        response_store_close(s);
        if (!i)
            continue;
        ck_assert_msg(response_store_open(&s, where[i], &e) == 0, "%s", e.text);
        ck_assert(has(s, 20) && !has(s, 1024));
        fill(s, 5000, 5002); /* one place was free */
        ck_assert(!has(s, 20) && has(s, 21) && has(s, 5001));
        response_store_close(s);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("serve_responses");
    TCase *t = tcase_create("memory"), *own = tcase_create("own");

    tcase_set_timeout(t, 120);
    tcase_set_timeout(own, 120);
    tcase_add_checked_fixture(t, serving_plain_server, serving_end_well);
    tcase_add_test(t, a_response_is_continued);
    tcase_add_test(t, streams_are_stored_as_well);
    tcase_add_test(t, items_are_referred_to);
    tcase_add_test(t, what_is_wrong_is_named);
    tcase_add_test(t, tools_of_other_kinds_are_not_shown);
    tcase_add_test(t, functions_of_a_namespace);
    tcase_add_test(t, items_of_other_servers);
    suite_add_tcase(s, t);
    tcase_add_checked_fixture(own, NULL, serving_end_well);
    tcase_add_test(own, a_folder_is_found_again);
    tcase_add_test(own, nothing_is_stored);
    tcase_add_test(own, the_oldest_go);
    suite_add_tcase(s, own);
    return s;
}

int main(void)
{
    return support_run(suite());
}
