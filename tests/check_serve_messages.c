/* Anthropic's messages with tools, and calls that are streamed as they are written: through every
 * API that sends them. The model is made to say each text by a grammar. */
#include "tests/serving.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES "/v1/messages"

/* Anthropic's form of FIND. */
#define FIND_TOOL                                                                         \
    "{\"name\": \"find\", \"description\": \"Finds it.\", \"cache_control\": {\"type\": " \
    "\"ephemeral\"}, \"input_schema\": {\"type\": \"object\", \"properties\": {\"who\": " \
    "{\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}}}}"
#define HELLO "{\"role\": \"user\", \"content\": \"Hello\"}"

static void with_tools(void)
{
    serving_start_with_template(serving_tools);
}

/* A request to say `text`. */
static json_t *request(const char *text, bool stream)
{
    json_t *o = json_loads("{\"max_tokens\": 200, \"temperature\": 0, \"messages\": [" HELLO
                           "], \"tools\": [" FIND_TOOL "]}",
                           0, NULL),
           *said = serving_made_to_say(text);

    json_object_set(o, "grammar", json_object_get(said, "grammar"));
    json_object_set_new(o, "stream", json_boolean(stream));
    json_decref(said);
    return o;
}

static struct reply send_stream(const char *path, const json_t *body)
{
    char *text = json_dumps(body, 0);
    struct reply r = serving_ask("POST", path, NULL, text);

    ck_assert_msg(r.status == 200, "%d %s", r.status, r.body);
    free(text);
    return r;
}

/* The next event of a stream from *at on, a new reference; NULL: no more. */
static json_t *next_event(char **at)
{
    char *data = strstr(*at, "data: {");
    json_t *o = data ? json_loads(data + 6, JSON_DISABLE_EOF_CHECK, NULL) : NULL;

    ck_assert(!data || o);
    *at = data ? data + 7 : *at;
    return o;
}

static const char *string_of(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));

    return text ? text : "";
}

/* A stream of messages as its blocks: "text:TEXT|" or "NAME:ARGUMENTS|", and the stop reason;
 * checks that blocks are opened and closed in order. *pieces: of arguments. */
static void blocks_of(const struct reply *r, char out[1024], int *pieces)
{
    char *at = r->body;
    json_t *o, *begun = NULL;
    int open = -1, next = 0;

    out[0] = 0;
    *pieces = 0;
    for (; (o = next_event(&at)); json_decref(o)) {
        const json_t *block = json_object_get(o, "content_block"), *d = json_object_get(o, "delta");
        const char *type = string_of(o, "type");
        size_t n = strlen(out);

        if (strcmp(type, "content_block_start") == 0) {
            ck_assert_int_eq(open, -1);
            ck_assert_int_eq(json_integer_value(json_object_get(o, "index")), next);
            open = next++;
            if (strcmp(string_of(block, "type"), "tool_use") == 0)
                ck_assert_msg(strncmp(string_of(block, "id"), "toolu_", 6) == 0, "%s",
                              string_of(block, "id"));
            snprintf(out + n, 1024 - n, "%s:",
                     strcmp(string_of(block, "type"), "tool_use") == 0 ? string_of(block, "name")
                                                                       : string_of(block, "type"));
        } else if (strcmp(type, "content_block_delta") == 0) {
            ck_assert_int_eq(json_integer_value(json_object_get(o, "index")), open);
            snprintf(out + n, 1024 - n, "%s%s", string_of(d, "text"), string_of(d, "partial_json"));
            *pieces += json_object_get(d, "partial_json") != NULL;
        } else if (strcmp(type, "content_block_stop") == 0) {
            ck_assert_int_eq(json_integer_value(json_object_get(o, "index")), open);
            open = -1;
            strcat(out, "|");
        } else if (strcmp(type, "message_start") == 0) {
            begun = json_incref(json_object_get(json_object_get(o, "message"), "usage"));
        } else if (strcmp(type, "message_delta") == 0) {
            const json_t *usage = json_object_get(o, "usage");

            snprintf(out + n, 1024 - n, "%s", string_of(d, "stop_reason"));
            ck_assert_int_gt(json_integer_value(json_object_get(usage, "output_tokens")), 0);
            ck_assert(json_equal(json_object_get(usage, "input_tokens"),
                                 json_object_get(begun, "input_tokens")));
            ck_assert(json_equal(json_object_get(usage, "cache_read_input_tokens"),
                                 json_object_get(begun, "cache_read_input_tokens")));
        }
    }
    ck_assert_int_eq(open, -1);
    json_decref(begun);
}

/* What is said, and what a stream of messages tells of it. */
static const struct {
    const char *said, *blocks;
    int pieces; /* of arguments, at least */
} told[] = {
    {"<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\":  \"a fox\"}}\n</tool_call>",
     "find:{\"who\":  \"a fox\"}|tool_use", 4},
    {"Well. <tool_call>\n<function=find>\n<parameter=who>\n7 foxes, and \"more\"\n</parameter>\n"
     "</function>\n</tool_call>",
     "text:Well. |find:{\"who\": \"7 foxes, and \\\"more\\\"\"}|tool_use", 5},
    {"<tool_call>\n{\"name\": \"find\", \"arguments\": {\"n\": 1}}\n</tool_call>\n<tool_call>\n"
     "{\"name\": \"find\", \"arguments\": {\"n\": 2}}\n</tool_call>",
     "find:{\"n\": 1}|find:{\"n\": 2}|tool_use", 6},
    {"{\"name\": \"find\", \"parameters\": {\"who\": \"x\"}}", "find:{\"who\": \"x\"}|tool_use", 3},
    {"{\"name\": \"fred\", \"parameters\": {}}",
     "text:{\"name\": \"fred\", \"parameters\": {}}|end_turn", 0},
    {"No call.", "text:No call.|end_turn", 0},
};

/* The same blocks of an answer that comes whole. */
static void blocks_of_whole(const json_t *o, char out[1024])
{
    json_t *block;
    size_t i;

    out[0] = 0;
    json_array_foreach(json_object_get(o, "content"), i, block)
    {
        size_t n = strlen(out);
        char *input = json_dumps(json_object_get(block, "input"), JSON_ENCODE_ANY);

        if (input)
            snprintf(out + n, 1024 - n, "%s:%s|", string_of(block, "name"), input);
        else
            snprintf(out + n, 1024 - n, "%s:%s|", string_of(block, "type"),
                     string_of(block, "text"));
        free(input);
    }
    snprintf(out + strlen(out), 1024 - strlen(out), "%s", string_of(o, "stop_reason"));
}

static void drop_doubles(char *text)
{
    for (char *at; (at = strstr(text, ":  ")); memmove(at + 1, at + 2, strlen(at + 1)))
        ;
}

START_TEST(calls_are_blocks)
{
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        json_t *streamed = request(told[i].said, true), *whole = request(told[i].said, false),
               *o = serving_post_json(MESSAGES, whole, 200);
        struct reply r = send_stream(MESSAGES, streamed);
        char blocks[1024], same[1024], want[1024];
        int pieces;

        blocks_of(&r, blocks, &pieces);
        ck_assert_str_eq(blocks, told[i].blocks);
        ck_assert_int_ge(pieces, told[i].pieces);
        blocks_of_whole(o, same);
        snprintf(want, sizeof want, "%s", told[i].blocks);
        drop_doubles(want); /* an object has no spaces of its own */
        ck_assert_str_eq(same, want);
        free(r.head);
        json_decref(o);
        json_decref(whole);
        json_decref(streamed);
    }
}
END_TEST

/* ---- requests ---- */

/* What a list of Anthropic's messages becomes in the prompt. */
static const struct {
    const char *messages, *tokens_as; /* OpenAI's messages that give the same prompt */
} same_prompts[] = {
    {HELLO, HELLO},
    {"{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Hel\", "
     "\"cache_control\": {\"type\": \"ephemeral\"}}, {\"type\": \"document\", \"source\": "
     "{\"type\": \"text\", \"media_type\": \"text/plain\", \"data\": \"lo\"}}]}",
     HELLO},
    {HELLO ", {\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\", \"thinking\": "
           "\"hm\", \"signature\": \"\"}, {\"type\": \"redacted_thinking\", \"data\": \"x\"}, "
           "{\"type\": \"text\", \"text\": \"So.\"}, {\"type\": \"tool_use\", \"id\": \"toolu_1\", "
           "\"name\": \"find\", \"input\": {\"n\": 1}}, {\"type\": \"tool_use\", \"id\": "
           "\"toolu_2\", \"name\": \"find\", \"input\": {}}]}, {\"role\": \"user\", \"content\": "
           "[{\"type\": \"tool_result\", \"tool_use_id\": \"toolu_1\", \"content\": \"one\"}, "
           "{\"type\": \"tool_result\", \"tool_use_id\": \"toolu_2\", \"is_error\": true, "
           "\"content\": [{\"type\": \"text\", \"text\": \"two\"}]}, {\"type\": \"text\", "
           "\"text\": \"Go on.\"}]}",
     HELLO ", {\"role\": \"assistant\", \"content\": \"So.\", \"reasoning_content\": \"hm\", "
           "\"tool_calls\": [{\"id\": \"toolu_1\", \"type\": \"function\", \"function\": "
           "{\"name\": \"find\", \"arguments\": \"{\\\"n\\\": 1}\"}}, {\"id\": \"toolu_2\", "
           "\"type\": \"function\", \"function\": {\"name\": \"find\", \"arguments\": \"{}\"}}]}, "
           "{\"role\": \"tool\", \"tool_call_id\": \"toolu_1\", \"content\": \"one\"}, {\"role\": "
           "\"tool\", \"tool_call_id\": \"toolu_2\", \"content\": \"Error: two\"}, {\"role\": "
           "\"user\", \"content\": \"Go on.\"}"},
    {HELLO ", {\"role\": \"assistant\", \"content\": \"So\"}",
     HELLO ", {\"role\": \"assistant\", \"content\": \"So\"}"},
    /* turns of one side are one; instructions in the middle belong to the user's */
    {HELLO ", {\"role\": \"user\", \"content\": \"you\"}",
     "{\"role\": \"user\", \"content\": \"Hello\\nyou\"}"},
    {HELLO ", {\"role\": \"system\", \"content\": [{\"type\": \"text\", \"text\": \"Be brief.\"}]}",
     "{\"role\": \"user\", \"content\": \"Hello\\nBe brief.\"}"},
    {"{\"role\": \"system\", \"content\": \"Be brief.\\n\"}, " HELLO,
     "{\"role\": \"user\", \"content\": \"Be brief.\\nHello\"}"},
    {HELLO ", {\"role\": \"assistant\", \"content\": \"So\"}, {\"role\": \"assistant\", "
           "\"content\": \"it is.\"}, " HELLO,
     HELLO ", {\"role\": \"assistant\", \"content\": \"So\\nit is.\"}, " HELLO},
};

static int tokens_of(const char *path, const char *messages, const char *tools)
{
    json_t *usage, *o;
    char body[4096];
    int n;

    snprintf(body, sizeof body, "{\"max_tokens\": 1, \"messages\": [%s], \"tools\": [%s]}",
             messages, tools);
    o = serving_post(path, body, 200);
    usage = json_object_get(o, "usage");
    n = usage ? (int)json_integer_value(json_object_get(usage, "prompt_tokens"))
              : (int)json_integer_value(json_object_get(o, "input_tokens"));
    json_decref(o);
    return n;
}

/* Counted tokens are those of the chat's prompt, whose text check_serve compares. */
START_TEST(messages_are_those_of_the_chat)
{
    static const char tool[] =
        "{\"type\": \"function\", \"function\": {\"name\": \"find\", \"description\": \"Finds "
        "it.\", \"parameters\": {\"type\": \"object\", \"properties\": {\"who\": {\"type\": "
        "\"string\"}, \"n\": {\"type\": \"integer\"}}}}}";

    for (size_t i = 0; i < sizeof same_prompts / sizeof *same_prompts; i++)
        ck_assert_int_eq(tokens_of(MESSAGES "/count_tokens", same_prompts[i].messages, FIND_TOOL),
                         tokens_of(CHAT, same_prompts[i].tokens_as, tool));
}
END_TEST

static int tokens_with(const char *member, const char *value)
{
    char body[2048];
    json_t *o;
    int n;

    snprintf(body, sizeof body, "{\"max_tokens\": 1, \"messages\": [" HELLO "], \"%s\": %s}",
             member, value);
    o = serving_post(MESSAGES "/count_tokens", body, 200);
    n = (int)json_integer_value(json_object_get(o, "input_tokens"));
    json_decref(o);
    return n;
}

/* Claude Code's line for the accounts, and tools that a search would load. */
START_TEST(what_is_not_for_the_model)
{
    static const char billing[] =
        "[{\"type\": \"text\", \"text\": \"x-anthropic-billing-header: cc_version=2;\"}, "
        "{\"type\": "
        "\"text\", \"text\": \"Be brief.\"}, {\"type\": \"text\", \"text\": \"Be kind.\"}]";

    ck_assert_int_eq(tokens_with("system", billing),
                     tokens_with("system", "\"Be brief.\\nBe kind.\""));
    ck_assert_int_eq(tokens_with("tools",
                                 "[" FIND_TOOL ", {\"name\": \"later\", \"defer_loading\": true, "
                                 "\"input_schema\": {\"type\": \"object\"}}]"),
                     tokens_with("tools", "[" FIND_TOOL "]"));
    ck_assert_int_gt(tokens_with("tools", "[" FIND_TOOL "]"), tokens_with("tools", "[]"));
}
END_TEST

/* A choice that demands a call: the answer is one, whatever the model. */
START_TEST(calls_are_demanded)
{
    static const char *const choices[] = {
        "{\"type\": \"any\"}", "{\"type\": \"tool\", \"name\": \"find\"}",
        "{\"type\": \"any\", \"disable_parallel_tool_use\": true}"};

    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        json_t *body = request("x", false), *o, *block;

        json_object_del(body, "grammar");
        json_object_set_new(body, "tools",
                            json_loads("[{\"name\": \"find\", \"input_schema\": {\"type\": "
                                       "\"object\", \"properties\": {\"who\": {\"enum\": "
                                       "[\"fox\"]}}, \"required\": [\"who\"]}}]",
                                       0, NULL));
        json_object_set_new(body, "tool_choice", json_loads(choices[i], 0, NULL));
        o = serving_post_json(MESSAGES, body, 200);
        block = json_array_get(json_object_get(o, "content"), 0);
        ck_assert_str_eq(string_of(block, "name"), "find");
        ck_assert_str_eq(string_of(json_object_get(block, "input"), "who"), "fox");
        ck_assert_str_eq(string_of(o, "stop_reason"), "tool_use");
        json_decref(o);
        json_decref(body);
    }
}
END_TEST

START_TEST(an_answer_of_a_schema)
{
    static const char *const ways[] = {"{\"output_config\": {\"format\": %s}}",
                                       "{\"output_format\": %s}"};

    for (size_t i = 0; i < 2; i++) {
        json_t *body = json_loads("{\"max_tokens\": 60, \"messages\": [" HELLO "]}", 0, NULL),
               *more, *o, *answer;
        char text[300];

        snprintf(
            text, sizeof text, ways[i],
            "{\"type\": \"json_schema\", \"schema\": {\"type\": \"object\", \"properties\": "
            "{\"n\": {\"enum\": [5]}}, \"required\": [\"n\"], \"additionalProperties\": false}}");
        more = json_loads(text, 0, NULL);
        json_object_update(body, more);
        o = serving_post_json(MESSAGES, body, 200);
        answer = json_loads(string_of(json_array_get(json_object_get(o, "content"), 0), "text"), 0,
                            NULL);
        ck_assert_int_eq(json_integer_value(json_object_get(answer, "n")), 5);
        json_decref(answer);
        json_decref(o);
        json_decref(more);
        json_decref(body);
    }
}
END_TEST

static const struct {
    const char *member, *value, *said; /* of the error's message */
} wrong[] = {
    {"tools", "{}", "'tools' must be a list"},
    {"tools", "[{\"name\": 5}]", "'tools[0]' must be an object with a 'name'"},
    {"tools", "[{\"name\": \"f\", \"input_schema\": []}]", "input_schema"},
    {"tools", "[{\"type\": \"web_search_20250305\", \"name\": \"web_search\"}]",
     "web_search_20250305"},
    {"tool_choice", "\"any\"", "'tool_choice' must be an object"},
    {"tool_choice", "{\"type\": \"tool\"}", "'tool_choice' must be an object"},
    {"tool_choice", "{\"type\": \"tool\", \"name\": \"g\"}", "'g'"},
    {"thinking", "true", "'thinking'"},
    {"thinking", "{\"type\": \"perhaps\"}", "'thinking'"},
    {"output_config", "5", "'output_config'"},
    {"output_config", "{\"format\": {\"type\": \"json_schema\", \"schema\": 5}}", "schema"},
    {"mcp_servers", "[{\"url\": \"x\"}]", "'mcp_servers'"},
    {"system", "5", "'system'"},
    {"system", "[{\"type\": \"image\"}]", "'system[0]'"},
    {"messages", "[]", "at least one"},
    {"messages", "[5]", "'messages[0].role'"},
    {"messages", "[{\"role\": \"tool\", \"content\": \"x\"}]", "user, assistant or system"},
    {"messages", "[{\"role\": \"user\"}]", "'messages[0].content'"},
    {"messages", "[{\"role\": \"user\", \"content\": [7]}]", "'messages[0].content[0]'"},
    {"messages", "[{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"source\": {}}]}]",
     "'image'"},
    {"messages",
     "[{\"role\": \"user\", \"content\": [{\"type\": \"tool_use\", \"id\": \"1\", \"name\": \"f\", "
     "\"input\": {}}]}]",
     "only an assistant's"},
    {"messages",
     "[{\"role\": \"assistant\", \"content\": [{\"type\": \"tool_use\", \"id\": \"1\", \"name\": "
     "\"f\", \"input\": \"{}\"}]}]",
     "'input'"},
    {"messages",
     "[{\"role\": \"assistant\", \"content\": [{\"type\": \"tool_result\", \"tool_use_id\": "
     "\"1\"}]}]",
     "only a user's"},
    {"messages", "[{\"role\": \"user\", \"content\": [{\"type\": \"tool_result\"}]}]",
     "'tool_use_id'"},
    {"messages",
     "[{\"role\": \"user\", \"content\": [{\"type\": \"tool_result\", \"tool_use_id\": \"1\", "
     "\"content\": [{\"type\": \"image\"}]}]}]",
     "'image'"},
};

START_TEST(what_is_wrong_is_named)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_t *body = request("x", false), *o, *error;

        json_object_set_new(body, wrong[i].member,
                            json_loads(wrong[i].value, JSON_DECODE_ANY, NULL));
        o = serving_post_json(MESSAGES, body, 400);
        error = json_object_get(o, "error");
        ck_assert_str_eq(string_of(o, "type"), "error");
        ck_assert_str_eq(string_of(error, "type"), "invalid_request_error");
        ck_assert_msg(strstr(string_of(error, "message"), wrong[i].said), "%s %s: %s",
                      wrong[i].member, wrong[i].value, string_of(error, "message"));
        json_decref(o);
        json_decref(body);
    }
}
END_TEST

/* ---- calls that are cut short ---- */

#define LONG_CALL                                                                               \
    "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"one two three four five six " \
    "seven eight nine ten eleven twelve\"}}\n</tool_call>"

/* So many tokens of it that the arguments have begun and do not end. */
#define CUT 55

START_TEST(a_call_is_cut_short)
{
    json_t *asked = serving_made_to_say(LONG_CALL);
    char finish[16], blocks[1024], *calls;
    struct reply r;
    int pieces;

    json_object_set_new(asked, "max_tokens", json_integer(CUT));
    json_object_set_new(asked, "stream", json_true());
    r = send_stream(CHAT, asked);
    calls = serving_stream_calls(&r, finish);
    ck_assert_msg(strncmp(calls, "find {\"who\": \"one two", 20) == 0 && !strchr(calls, '}'), "%s",
                  calls);
    ck_assert_str_eq(finish, "length");
    free(calls);
    free(r.head);
    json_decref(asked);
    asked = request(LONG_CALL, true);
    json_object_set_new(asked, "max_tokens", json_integer(CUT));
    r = send_stream(MESSAGES, asked);
    blocks_of(&r, blocks, &pieces);
    ck_assert_msg(strncmp(blocks, "find:{\"who\": \"one two", 20) == 0, "%s", blocks);
    ck_assert_msg(strstr(blocks, "|max_tokens") && pieces > 5, "%s", blocks);
    free(r.head);
    json_decref(asked);
}
END_TEST

/* Of responses: the item is incomplete, in its last event and in the response itself. */
START_TEST(an_item_is_cut_short)
{
    json_t *asked = serving_made_to_say(LONG_CALL), *o, *last = NULL, *item;
    int deltas = 0;
    struct reply r;
    char *at;

    json_object_set_new(asked, "max_output_tokens", json_integer(CUT));
    json_object_set_new(asked, "stream", json_true());
    json_object_set_new(asked, "input", json_string("Where is the fox?"));
    json_object_set_new(asked, "tools",
                        json_loads("[{\"type\": \"function\", \"name\": \"find\", \"parameters\": "
                                   "{\"type\": \"object\", \"properties\": {\"who\": {\"type\": "
                                   "\"string\"}}}}]",
                                   0, NULL));
    r = send_stream("/v1/responses", asked);
    for (at = r.body; (o = next_event(&at)); json_decref(o)) {
        deltas += strcmp(string_of(o, "type"), "response.function_call_arguments.delta") == 0;
        if (strcmp(string_of(o, "type"), "response.output_item.done") == 0)
            ck_assert_str_eq(string_of(json_object_get(o, "item"), "status"), "incomplete");
        if (json_object_get(o, "response")) {
            json_decref(last);
            last = json_incref(json_object_get(o, "response"));
        }
    }
    item = json_array_get(json_object_get(last, "output"), 0);
    ck_assert_int_gt(deltas, 5);
    ck_assert_str_eq(string_of(last, "status"), "incomplete");
    ck_assert_str_eq(string_of(item, "status"), "incomplete");
    ck_assert(strncmp(string_of(item, "arguments"), "{\"who\": \"one two", 16) == 0);
    json_decref(last);
    json_decref(asked);
    free(r.head);
}
END_TEST

/* One list for the clients of OpenAI and of Anthropic. */
START_TEST(models_in_anthropics_words)
{
    struct reply r = serving_ask("GET", "/v1/models?limit=20", NULL, NULL),
                 one = serving_ask("GET", "/v1/models/" MODEL, NULL, NULL);
    json_t *o = serving_read_json(&r, 200), *alone = serving_read_json(&one, 200);
    const json_t *first = json_array_get(json_object_get(o, "data"), 0);

    ck_assert_str_eq(string_of(first, "id"), MODEL);
    ck_assert_str_eq(string_of(first, "type"), "model");
    ck_assert_str_eq(string_of(first, "display_name"), MODEL);
    ck_assert_str_eq(string_of(first, "created_at") + 19, ".000000000Z");
    ck_assert_int_gt(json_integer_value(json_object_get(first, "max_model_len")), 0);
    ck_assert_str_eq(string_of(o, "first_id"), MODEL);
    ck_assert_str_eq(string_of(o, "last_id"), MODEL);
    ck_assert(json_is_false(json_object_get(o, "has_more")));
    ck_assert(json_equal(first, alone));
    json_decref(o);
    json_decref(alone);
    free(r.head);
    free(one.head);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("serve_messages");
    TCase *t = tcase_create("messages");

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, with_tools, serving_end_well);
    tcase_add_test(t, calls_are_blocks);
    tcase_add_test(t, messages_are_those_of_the_chat);
    tcase_add_test(t, what_is_not_for_the_model);
    tcase_add_test(t, calls_are_demanded);
    tcase_add_test(t, an_answer_of_a_schema);
    tcase_add_test(t, what_is_wrong_is_named);
    tcase_add_test(t, a_call_is_cut_short);
    tcase_add_test(t, an_item_is_cut_short);
    tcase_add_test(t, models_in_anthropics_words);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
