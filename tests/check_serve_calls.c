/* Calls of tools through the APIs: every spelling that is read is streamed as it is written, in
 * pieces that are at every moment the beginning of a valid object; allowed_tools; OpenAI's earlier
 * functions. The model is made to say each text by a grammar. */
#include "engine/text/answer_formats.h"
#include "engine/text/json_prefix.h"
#include "tests/serving.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG "the red fox who lives behind the mill"
#define WHO "{\"who\": \"" LONG "\"}"
#define ALSO "{\"n\": 7}"

/* A template's text tells which markers its model writes: here all of them. Harmony's are tokens,
 * which the bundled model does not have: tests/check_tool_calls.c streams its calls. */
static void with_tools(void)
{
    char text[4000];

    snprintf(text, sizeof text, "{#%s#}%s",
#define X(open, close, part) " " open
             ANSWER_MARKERS(X),
#undef X
             serving_tools);
    serving_start_with_template(text);
}

/* One text of each row of engine/text/call_syntaxes.h, between the markers of models that write it;
 * all of them call find for LONG, some then for 7. */
static const struct {
    const char *said;
    int calls;
} spellings[] = {
    {"<tool_call>\n{\"name\": \"find\", \"arguments\": " WHO "}\n</tool_call>", 1},
    {"<tool_call>\n{\"name\": \"find\", \"arguments\": " WHO "}\n</tool_call>\n<tool_call>\n"
     "{\"name\": \"find\", \"arguments\": " ALSO "}\n</tool_call>",
     2},
    {"<|tool_call|>[{\"name\": \"find\", \"arguments\": " WHO "}]", 1},
    {"<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"find\", "
     "\"parameters\": " WHO "}\n]<|END_ACTION|>",
     1},
    {"<TOOLCALL>[{\"name\": \"find\", \"arguments\": " WHO "}, {\"name\": \"find\", "
     "\"arguments\": " ALSO "}]</TOOLCALL>",
     2},
    {"<tool_calls>\n{\"name\": \"find\", \"arguments\": " WHO "}\n{\"name\": \"find\", "
     "\"arguments\": " ALSO "}\n</tool_calls>",
     2},
    {"[TOOL_CALLS][{\"name\": \"find\", \"arguments\": " WHO ", \"id\": \"123456789\"}]", 1},
    {"[TOOL_CALLS]find[ARGS]" WHO, 1},
    {"[TOOL_CALLS]find[CALL_ID]123456789[ARGS]" WHO "[TOOL_CALLS]find[ARGS]" ALSO, 2},
    {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>find\n```json\n" WHO
     "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     1},
    {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>find<｜tool▁sep｜>" WHO
     "<｜tool▁call▁end｜><｜tool▁call▁begin｜>find<｜tool▁sep｜>" ALSO
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     2},
    {"<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"find\">\n<｜DSML｜parameter name=\"who\" "
     "string=\"true\">" LONG "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     1},
    {"<|tool_calls_section_begin|><|tool_call_begin|>functions.find:0<|tool_call_argument_begin|"
     ">" WHO "<|tool_call_end|><|tool_calls_section_end|>",
     1},
    {"<tool_call>\n<function=find>\n<parameter=who>\n" LONG "\n</parameter>\n</function>\n"
     "</tool_call>",
     1},
    {"<seed:tool_call>\n<function=find>\n<parameter=who>\n" LONG "\n</parameter>\n</function>\n"
     "<function=find>\n<parameter=n>\n7\n</parameter>\n</function>\n</seed:tool_call>",
     2},
    {"<minimax:tool_call>\n<invoke name=\"find\">\n<parameter name=\"who\">" LONG
     "</parameter>\n</invoke>\n</minimax:tool_call>",
     1},
    {"<|tool_call_start|>[find(who=\"" LONG "\"), find(n=7)]<|tool_call_end|>", 2},
    {"<|python_start|>[find(who=\"" LONG "\"), find(n=7)]<|python_end|>", 2},
    {"<|python_start|><|python_end|>{\"name\": \"find\", \"parameters\": " WHO "}", 1},
    {"<|python_start|>Let me look.<|python_end|>{\"name\": \"find\", \"parameters\": " WHO
     "}{\"name\": \"find\", \"parameters\": " ALSO "}",
     2},
    {"<zyphra_tool_call>\n<function=find>\n<parameter=who>\n" LONG
     "\n</parameter>\n</function>\n</zyphra_tool_call>\n<zyphra_tool_call>\n<function=find>\n"
     "<parameter=n>\n7\n</parameter>\n</function>\n</zyphra_tool_call>\n",
     2},
    {"<|tool_call>call:find{who:<|\"|>" LONG "<|\"|>}<tool_call|>", 1},
    {"<tool_call>find\n<arg_key>who</arg_key>\n<arg_value>" LONG "</arg_value>\n</tool_call>", 1},
    {"<tool_call>find<arg_key>who</arg_key><arg_value>" LONG "</arg_value></tool_call>", 1},
    {"<longcat_tool_call>find\n<longcat_arg_key>who</longcat_arg_key>\n<longcat_arg_value>" LONG
     "</longcat_arg_value>\n</longcat_tool_call>",
     1},
    {"<longcat_tool_call>find<longcat_arg_key>who</longcat_arg_key><longcat_arg_value>" LONG
     "</longcat_arg_value></longcat_tool_call>",
     1},
    {"<longcat_tool_call>\n{\"name\": \"find\", \"arguments\": " WHO "}\n</longcat_tool_call>", 1},
    /* nothing marks these */
    {"{\"name\": \"find\", \"parameters\": " WHO "}", 1},
    {"<|python_tag|>{\"name\": \"find\", \"parameters\": " WHO "}", 1},
    {"<function=find>" WHO "</function>", 1},
    {"[find(who='" LONG "'), find(n=7)]", 2},
};

/* Calls as a stream tells them. */
struct told {
    char name[4][32], arguments[4][200];
    struct json_prefix json[4];
    int n, pieces;
    bool over;
};

static void begin(struct told *t, const char *name)
{
    ck_assert_int_lt(t->n, 4);
    snprintf(t->name[t->n++], 32, "%s", name ? name : "");
}

static void add(struct told *t, size_t call, const char *piece)
{
    ck_assert(!t->over && (int)call == t->n - 1);
    t->pieces += piece[0] != 0;
    for (const char *p = piece; *p; p++)
        ck_assert_msg(json_prefix_push(&t->json[call], *p), "%s and then %s", t->arguments[call],
                      piece);
    strncat(t->arguments[call], piece, 199 - strlen(t->arguments[call]));
}

/* ---- the streams ---- */

static void chat_event(struct told *t, const json_t *o)
{
    const json_t *choice = json_array_get(json_object_get(o, "choices"), 0);
    json_t *call;
    size_t i;

    json_array_foreach(json_object_get(json_object_get(choice, "delta"), "tool_calls"), i, call)
    {
        const json_t *f = json_object_get(call, "function"), *name = json_object_get(f, "name");
        size_t index = (size_t)json_integer_value(json_object_get(call, "index"));

        if (name) {
            ck_assert_int_eq((int)index, t->n);
            begin(t, json_string_value(name));
        }
        add(t, index, json_string_value(json_object_get(f, "arguments")));
    }
    t->over = json_is_string(json_object_get(choice, "finish_reason"));
}

static void message_event(struct told *t, const json_t *o)
{
    const json_t *block = json_object_get(o, "content_block"),
                 *piece = json_object_get(json_object_get(o, "delta"), "partial_json");

    if (json_object_get(block, "name"))
        begin(t, json_string_value(json_object_get(block, "name")));
    if (piece)
        add(t, (size_t)(t->n - 1), json_string_value(piece));
}

static void response_event(struct told *t, const json_t *o)
{
    const char *type = json_string_value(json_object_get(o, "type"));
    const json_t *name = json_object_get(json_object_get(o, "item"), "name");

    if (strcmp(type, "response.output_item.added") == 0 && name)
        begin(t, json_string_value(name));
    else if (strcmp(type, "response.function_call_arguments.delta") == 0)
        add(t, (size_t)(t->n - 1), json_string_value(json_object_get(o, "delta")));
    else if (strcmp(type, "response.function_call_arguments.done") == 0)
        ck_assert_str_eq(t->arguments[t->n - 1],
                         json_string_value(json_object_get(o, "arguments")));
}

/* Ollama's have no form for a part of a call: each comes as soon as it is whole. */
static void ollama_line(struct told *t, const json_t *o)
{
    json_t *call;
    size_t i;

    json_array_foreach(json_object_get(json_object_get(o, "message"), "tool_calls"), i, call)
    {
        const json_t *f = json_object_get(call, "function");
        char *arguments = json_dumps(json_object_get(f, "arguments"), 0);

        begin(t, json_string_value(json_object_get(f, "name")));
        add(t, (size_t)(t->n - 1), arguments);
        free(arguments);
    }
    t->over = json_is_true(json_object_get(o, "done"));
}

#define SAYS_HI "[{\"role\": \"user\", \"content\": \"Hi\"}]"
#define PROPERTIES                                                                                \
    "{\"type\": \"object\", \"properties\": {\"who\": {\"type\": \"string\"}, \"n\": {\"type\": " \
    "\"integer\"}}}"

static const struct {
    const char *path, *before, *body;
    void (*event)(struct told *t, const json_t *o);
    int pieces; /* of the arguments, at least */
} apis[] = {
    {CHAT,
     "data: ", "{\"messages\": " SAYS_HI ", " FIND ", \"max_tokens\": 300, \"temperature\": 0}",
     chat_event, 6},
    {"/v1/messages", "data: ",
     "{\"messages\": " SAYS_HI ", \"tools\": [{\"name\": \"find\", \"input_schema\": " PROPERTIES
     "}], \"max_tokens\": 300, \"temperature\": 0}",
     message_event, 6},
    {"/v1/responses", "data: ",
     "{\"input\": \"Hi\", \"tools\": [{\"type\": \"function\", \"name\": \"find\", "
     "\"parameters\": " PROPERTIES ", \"strict\": false}], \"max_output_tokens\": 300, "
     "\"temperature\": 0}",
     response_event, 6},
    {"/api/chat", "",
     "{\"messages\": " SAYS_HI ", " FIND ", \"options\": {\"temperature\": 0, \"num_predict\": "
     "300}}",
     ollama_line, 1},
};

static void read_stream(struct told *t, size_t api, const char *said)
{
    json_t *asked = json_loads(apis[api].body, 0, NULL), *made = serving_made_to_say(said);
    size_t skip = strlen(apis[api].before);
    struct reply r;
    char *body;

    json_object_set(asked, "grammar", json_object_get(made, "grammar"));
    json_object_set_new(asked, "stream", json_true());
    body = json_dumps(asked, 0);
    r = serving_ask("POST", apis[api].path, NULL, body);
    ck_assert_msg(r.status == 200, "%s", r.body);
    for (char *line = strtok(r.body, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *o;

        if (strncmp(line, apis[api].before, skip) != 0 || line[skip] != '{')
            continue;
        ck_assert((o = json_loads(line + skip, 0, NULL)));
        apis[api].event(t, o);
        json_decref(o);
    }
    free(r.head);
    free(body);
    json_decref(asked);
    json_decref(made);
}

static void check_spelling(const char *said, int calls)
{
    static const char *const wanted[] = {WHO, ALSO};

    for (size_t api = 0; api < sizeof apis / sizeof *apis; api++) {
        struct told t = {0};

        read_stream(&t, api, said);
        ck_assert_msg(t.n == calls, "%s: %d calls of %s", apis[api].path, t.n, said);
        for (int i = 0; i < t.n; i++) {
            ck_assert_str_eq(t.name[i], "find");
            ck_assert_str_eq(t.arguments[i], wanted[i]);
            ck_assert(json_prefix_over(&t.json[i]));
        }
        ck_assert_msg(t.pieces >= apis[api].pieces, "%s: %d pieces of %s", apis[api].path, t.pieces,
                      said);
    }
}

START_TEST(every_spelling_is_streamed)
{
    check_spelling(spellings[_i].said, spellings[_i].calls);
}
END_TEST

/* ---- allowed_tools ---- */

#define TWO                                                                                      \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"find\", \"parameters\": "   \
    "{\"type\": \"object\", \"properties\": {\"n\": {\"const\": 1}}, \"required\": [\"n\"]}}}, " \
    "{\"type\": \"function\", \"function\": {\"name\": \"rest\"}}]"
#define ALLOW(mode, name)                                                                         \
    "\"tool_choice\": {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": \"" mode "\", " \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"" name "\"}}]}}"

static const char *called(const json_t *o)
{
    const json_t *m = json_object_get(json_array_get(json_object_get(o, "choices"), 0), "message"),
                 *call = json_array_get(json_object_get(m, "tool_calls"), 0);

    return json_string_value(json_object_get(json_object_get(call, "function"), "name"));
}

/* Of those that are demanded only an allowed one is called; the prompt has no other. */
START_TEST(only_allowed_tools_are_called)
{
    static const char *const names[] = {ALLOW("required", "find"), "find",
                                        ALLOW("required", "rest"), "rest"};
    json_t *o;

    for (int i = 0; i < 4; i += 2)
        for (int seed = 0; seed < 3; seed++) {
            char body[1200];

            snprintf(body, sizeof body,
                     "{\"messages\": " SAYS_HI ", " TWO ", \"temperature\": 2, \"seed\": %d, %s}",
                     seed, names[i]);
            o = serving_post(CHAT, body, 200);
            ck_assert_str_eq(called(o), names[i + 1]);
            json_decref(o);
        }
    o = serving_post("/apply-template",
                     "{\"messages\": " SAYS_HI ", " TWO ", " ALLOW("auto", "rest") "}", 200);
    ck_assert(strstr(json_string_value(json_object_get(o, "prompt")), "\"rest\""));
    ck_assert(!strstr(json_string_value(json_object_get(o, "prompt")), "\"find\""));
    json_decref(o);
}
END_TEST

/* The model calls one that it may not: that is text, whole and streamed. */
START_TEST(a_forbidden_call_is_text)
{
    static const char said[] = "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"n\": 1}}\n"
                               "</tool_call>";
    json_t *asked = json_loads("{\"messages\": " SAYS_HI ", " TWO ", \"temperature\": 0, "
                               "\"tool_choice\": \"auto\"}",
                               0, NULL),
           *made = serving_made_to_say(said), *choice, *o;
    char finish[16], *body, *calls, *text;
    struct reply r;
    int events;

    json_object_set(asked, "grammar", json_object_get(made, "grammar"));
    o = serving_post_json(CHAT, asked, 200);
    ck_assert_str_eq(called(o), "find");
    json_decref(o);
    choice = json_loads("{" ALLOW("auto", "rest") "}", 0, NULL);
    json_object_update(asked, choice);
    o = serving_post_json(CHAT, asked, 200);
    ck_assert_ptr_null(called(o));
    ck_assert(strstr(serving_text_at(o, "message", "content"), "\"find\""));
    ck_assert_str_eq(serving_text_at(o, "finish_reason", NULL), "stop");
    json_decref(o);
    json_object_set_new(asked, "stream", json_true());
    body = json_dumps(asked, 0);
    r = serving_ask("POST", CHAT, NULL, body);
    text = serving_stream_text(&r, &events);
    calls = serving_stream_calls(&r, finish);
    ck_assert_str_eq(calls, "");
    ck_assert_str_eq(finish, "stop");
    ck_assert(strstr(text, "\"find\""));
    free(text);
    free(calls);
    free(body);
    free(r.head);
    json_decref(choice);
    json_decref(asked);
    json_decref(made);
}
END_TEST

/* In the Responses API mode and tools are beside the type. */
START_TEST(responses_allow_tools_too)
{
    json_t *o = serving_post(
        "/v1/responses",
        "{\"input\": \"Hi\", \"tools\": [{\"type\": \"function\", \"name\": \"find\", "
        "\"parameters\": {\"type\": \"object\", \"properties\": {}}}, {\"type\": \"function\", "
        "\"name\": \"rest\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}], "
        "\"temperature\": 2, \"tool_choice\": {\"type\": \"allowed_tools\", \"mode\": "
        "\"required\", \"tools\": [{\"type\": \"function\", \"name\": \"rest\"}]}}",
        200);
    const json_t *item = json_array_get(json_object_get(o, "output"), 0);

    ck_assert_str_eq(json_string_value(json_object_get(item, "name")), "rest");
    ck_assert_uint_eq(json_array_size(json_object_get(o, "tools")), 2);
    json_decref(o);
}
END_TEST

/* ---- functions ---- */

#define FUNCTIONS                                                                                  \
    "\"functions\": [{\"name\": \"find\", \"parameters\": {\"type\": \"object\", \"properties\": " \
    "{\"n\": {\"const\": 1}}, \"required\": [\"n\"]}}, {\"name\": \"rest\"}]"

/* The answer has the form of the request. */
START_TEST(functions_are_called)
{
    json_t *o = serving_post(CHAT,
                             "{\"messages\": " SAYS_HI ", " FUNCTIONS ", \"temperature\": 2, "
                             "\"function_call\": {\"name\": \"find\"}}",
                             200),
           *m = json_object_get(json_array_get(json_object_get(o, "choices"), 0), "message"),
           *call = json_object_get(m, "function_call"), *arguments;
    struct reply r;

    ck_assert_str_eq(json_string_value(json_object_get(call, "name")), "find");
    arguments = json_loads(json_string_value(json_object_get(call, "arguments")), 0, NULL);
    ck_assert_int_eq(json_integer_value(json_object_get(arguments, "n")), 1);
    ck_assert(!json_object_get(m, "tool_calls"));
    ck_assert_str_eq(serving_text_at(o, "finish_reason", NULL), "function_call");
    json_decref(arguments);
    json_decref(o);
    r = serving_ask("POST", CHAT, NULL,
                    "{\"messages\": " SAYS_HI ", " FUNCTIONS ", \"temperature\": 2, \"stream\": "
                    "true, \"function_call\": {\"name\": \"rest\"}}");
    ck_assert(strstr(r.body, "\"function_call\":{\"name\":\"rest\",\"arguments\":\"\"}"));
    ck_assert(strstr(r.body, "\"function_call\":{\"arguments\":\"{"));
    ck_assert(strstr(r.body, "\"finish_reason\":\"function_call\""));
    ck_assert(!strstr(r.body, "tool_calls"));
    free(r.head);
    o = serving_post(CHAT,
                     "{\"messages\": " SAYS_HI ", " FUNCTIONS ", \"function_call\": \"none\", "
                     "\"max_tokens\": 3}",
                     200);
    ck_assert_str_eq(serving_text_at(o, "finish_reason", NULL), "length");
    json_decref(o);
}
END_TEST

/* Their calls and results give the prompt that those of tools give. */
START_TEST(results_of_functions)
{
    json_t
        *old = serving_post(
            "/apply-template",
            "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
            "\"assistant\", \"content\": null, \"function_call\": {\"name\": \"find\", "
            "\"arguments\": \"{\\\"n\\\": 1}\"}}, {\"role\": \"function\", \"name\": \"find\", "
            "\"content\": \"gone\"}], \"functions\": [{\"name\": \"find\", \"parameters\": {}}]}",
            200),
        *same = serving_post(
            "/apply-template",
            "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
            "\"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"call_1\", \"type\": "
            "\"function\", \"function\": {\"name\": \"find\", \"arguments\": \"{\\\"n\\\": "
            "1}\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"call_1\", \"name\": \"find\", "
            "\"content\": \"gone\"}], \"tools\": [{\"type\": \"function\", \"function\": "
            "{\"name\": \"find\", \"parameters\": {}}}]}",
            200);

    ck_assert_str_eq(json_string_value(json_object_get(old, "prompt")),
                     json_string_value(json_object_get(same, "prompt")));
    ck_assert(strstr(json_string_value(json_object_get(old, "prompt")), "gone"));
    json_decref(old);
    json_decref(same);
}
END_TEST

static const struct {
    const char *members, *said;
} wrong[] = {
    {FUNCTIONS ", " TWO, "'functions'"},
    {"\"functions\": {}", "'functions'"},
    {"\"functions\": [{}]", "functions[0]"},
    {"\"functions\": [5]", "functions[0]"},
    {"\"function_call\": \"auto\"", "'functions'"},
    {FUNCTIONS ", \"function_call\": \"some\"", "'function_call'"},
    {FUNCTIONS ", \"function_call\": {\"name\": \"fly\"}", "'fly'"},
    {TWO ", " ALLOW("auto", "fly"), "'fly'"},
    {TWO ", " ALLOW("none", "find"), "'mode'"},
    {ALLOW("auto", "find"), "'find'"},
    {TWO ", \"tool_choice\": {\"type\": \"allowed_tools\"}", "at least one"},
    {TWO ", \"tool_choice\": {\"type\": \"allowed_tools\", \"tools\": []}", "at least one"},
    {TWO ", \"tool_choice\": {\"type\": \"allowed_tools\", \"tools\": [{}]}", "'name'"},
    {TWO ", \"tool_choice\": {\"type\": \"allowed_tools\", \"tools\": {}}", "at least one"},
};

START_TEST(what_is_wrong_is_named)
{
    char body[1500];
    const char *text;
    json_t *o;

    snprintf(body, sizeof body, "{\"messages\": " SAYS_HI ", %s}", wrong[_i].members);
    o = serving_post(CHAT, body, 400);
    text = json_string_value(json_object_get(json_object_get(o, "error"), "message"));
    ck_assert_msg(text && strstr(text, wrong[_i].said), "%s: %s", wrong[_i].members, text);
    json_decref(o);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("serve_calls");
    TCase *calls = tcase_create("calls"), *bad = tcase_create("bad");

    tcase_add_checked_fixture(calls, with_tools, serving_end_well);
    tcase_add_checked_fixture(bad, with_tools, serving_end_well);
    tcase_set_timeout(calls, 120);
    tcase_add_loop_test(calls, every_spelling_is_streamed, 0, sizeof spellings / sizeof *spellings);
    tcase_add_test(calls, only_allowed_tools_are_called);
    tcase_add_test(calls, a_forbidden_call_is_text);
    tcase_add_test(calls, responses_allow_tools_too);
    tcase_add_test(calls, functions_are_called);
    tcase_add_test(calls, results_of_functions);
    tcase_add_loop_test(bad, what_is_wrong_is_named, 0, sizeof wrong / sizeof *wrong);
    suite_add_tcase(s, calls);
    suite_add_tcase(s, bad);
    return s;
}

int main(void)
{
    return support_run(suite());
}
