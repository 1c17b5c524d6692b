/* The server as programs meet it: the real binary on a free serving_port, requests over sockets of
 * our own, good ones and every kind of bad one. */
#include "tests/golden_lora.h"
#include "tests/serving.h"
#include "tests/support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RESPOND "{\"model\": \"" MODEL "\", \"temperature\": 0, "
#define JSON_HEADERS "Host: localhost\r\nContent-Type: application/json\r\n"

#ifdef MOETOP_DEBUG
#define CHECKED_BUILD true
#else
#define CHECKED_BUILD false
#endif

/* ---- answers ---- */

START_TEST(chat_whole_and_streamed)
{
    json_t *o = serving_post("/v1/chat/completions",
                             FOX ", \"max_tokens\": 40, \"temperature\": 0}", 200);
    json_t *usage = json_object_get(o, "usage");
    struct reply r = serving_ask("POST", "/v1/chat/completions", NULL,
                                 FOX ", \"max_tokens\": 40, \"temperature\": 0, \"stream\": true, "
                                     "\"stream_options\": {\"include_usage\": true}}");
    int events;
    char *text = serving_stream_text(&r, &events);

    ck_assert_str_eq(serving_text_at(o, "finish_reason", NULL), "length");
    ck_assert_str_eq(serving_text_at(o, "message", "role"), "assistant");
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "completion_tokens")), 40);
    ck_assert_str_eq(text, serving_text_at(o, "message", "content"));
    ck_assert_msg(strncmp(text, "Once upon a time", 16) == 0, "%s", text);
    ck_assert_int_gt(events, 30);
    ck_assert(strcasestr(r.head, "content-type: text/event-stream") != NULL);
    ck_assert_str_eq(r.body + r.n - strlen("data: [DONE]\n\n"), "data: [DONE]\n\n");
    ck_assert(strstr(r.body, "\"total_tokens\":51") != NULL);
    /* nothing but the last chunk has a usage, not even null */
    ck_assert_ptr_null(strstr(strstr(r.body, "\"usage\"") + 1, "\"usage\""));
    free(text);
    free(r.head);
    json_decref(o);
}
END_TEST

START_TEST(choices_stops_and_seeds)
{
    json_t *two = serving_post("/v1/chat/completions",
                               FOX ", \"max_tokens\": 30, \"seed\": 7, \"n\": 2}", 200);
    json_t *second = serving_post("/v1/chat/completions", FOX ", \"max_tokens\": 30, \"seed\": 8}",
                                  200);
    json_t *stopped = serving_post("/v1/chat/completions",
                                   FOX
                                   ", \"temperature\": 0, \"stop\": [\"nowhere\", \" a time\"]}",
                                   200);
    json_t *choice = json_array_get(json_object_get(two, "choices"), 1);

    /* choice i has the seed of seed + i */
    ck_assert_str_eq(json_string_value(
                         json_object_get(json_object_get(choice, "message"), "content")),
                     serving_text_at(second, "message", "content"));
    ck_assert_str_eq(serving_text_at(stopped, "message", "content"), "Once upon");
    ck_assert_str_eq(serving_text_at(stopped, "finish_reason", NULL), "stop");
    json_decref(two);
    json_decref(second);
    json_decref(stopped);
}
END_TEST

START_TEST(probabilities)
{
    json_t *o = serving_post("/v1/chat/completions",
                             FOX ", \"temperature\": 0, \"max_tokens\": 5, \"logprobs\": true, "
                                 "\"top_logprobs\": 3}",
                             200);
    json_t *choice = json_array_get(json_object_get(o, "choices"), 0), *each;
    json_t *list = json_object_get(json_object_get(choice, "logprobs"), "content");
    size_t i;

    ck_assert_uint_eq(json_array_size(list), 5);
    json_array_foreach(list, i, each)
    {
        json_t *top = json_object_get(each, "top_logprobs"), *best = json_array_get(top, 0);

        ck_assert_uint_eq(json_array_size(top), 3);
        /* greedy: what was taken is the likeliest */
        ck_assert(json_equal(json_object_get(best, "token"), json_object_get(each, "token")));
        ck_assert(json_real_value(json_object_get(each, "logprob")) <= 0.0);
    }
    json_decref(o);
}
END_TEST

START_TEST(what_was_read_is_not_read_again)
{
#define LONG_ASK "\"One two three four five six seven eight nine ten eleven twelve, tell me.\"}"
    json_t *first = serving_post("/v1/chat/completions", ASK LONG_ASK "], \"max_tokens\": 1}", 200);
    json_t *second = serving_post("/v1/chat/completions", ASK LONG_ASK "], \"max_tokens\": 1}",
                                  200);
    json_t *usage = json_object_get(second, "usage");
    json_t *cached = json_object_get(json_object_get(usage, "prompt_tokens_details"),
                                     "cached_tokens");

    ck_assert_int_eq(json_integer_value(cached),
                     json_integer_value(json_object_get(usage, "prompt_tokens")) - 1);
    json_decref(first);
    json_decref(second);
}
END_TEST

/* ---- what answers must keep to ---- */

/* Of the tokens of a chat's next message, how many were there. */
static int next_message(char *said, size_t room, const char *text)
{
    char *body = malloc(room + 400);
    json_t *o, *answer;
    int cached;

    snprintf(said + strlen(said), room - strlen(said),
             "%s{\"role\": \"user\", \"content\": \"%s\"}", said[0] ? ", " : "", text);
    snprintf(body, room + 400,
             "{\"model\": \"" MODEL
             "\", \"messages\": [%s], \"max_tokens\": 8, \"temperature\": 0}",
             said);
    o = serving_post(CHAT, body, 200);
    cached = (int)json_integer_value(json_object_get(
        json_object_get(json_object_get(o, "usage"), "prompt_tokens_details"), "cached_tokens"));
    answer = json_object_get(json_array_get(json_object_get(o, "choices"), 0), "message");
    json_object_del(answer, "refusal");
    snprintf(body, room + 400, "%s", said);
    {
        char *dumped = json_dumps(answer, JSON_COMPACT);

        snprintf(said, room, "%s, %s", body, dumped);
        free(dumped);
    }
    json_decref(o);
    free(body);
    return cached;
}

/* All sessions hold what others asked: two chats by turns take the oldest two, not one another's.
 */
START_TEST(two_chats_beside_older_ones)
{
    static const char long_text[] = "Tell me a long story about a fox, a bear, a bird and the sea, "
                                    "and say what each of them likes best.";
    static char first[8192], second[8192], body[400];
    int of_first, of_second;

    for (int i = 0; i < 8; i++) { /* twice as many as there are sessions */
        snprintf(body, sizeof body,
                 "{\"model\": \"" MODEL "\", \"prompt\": \"%d %s\", \"max_tokens\": 20}", i,
                 long_text);
        json_decref(serving_post("/v1/completions", body, 200));
    }
    next_message(first, sizeof first, long_text);
    next_message(second, sizeof second, "What do you know about hills, and who lives there?");
    of_first = next_message(first, sizeof first, "And then?");
    of_second = next_message(second, sizeof second, "And then?");
    ck_assert_msg(of_first > 20 && of_second > 10, "%d and %d were there", of_first, of_second);
}
END_TEST

static const char *const not_held[] = {
    "\"response_format\": {\"type\": \"json_schema\"}",
    "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": 5}}",
    "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"x\", "
    "\"schema\": {\"type\": \"object\", \"patternProperties\": {}}}}",
    "\"json_schema\": {\"$ref\": \"http://example.com/x\"}",
    "\"grammar\": \"root ::= other\"",
    "\"grammar\": 5",
    "\"grammar\": \"root ::= \\\"a\\\"\", \"json_schema\": {}",
    "\"tool_choice\": \"required\"",
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"a\"}}], \"tool_choice\": "
    "{\"type\": \"function\", \"function\": {\"name\": \"b\"}}",
};

#define SCHEMA                                                                           \
    "{\"type\": \"object\", \"properties\": {\"hero\": {\"enum\": [\"fox\", \"owl\"]}, " \
    "\"age\": {\"type\": \"integer\", \"minimum\": 3, \"maximum\": 17}}, \"required\": " \
    "[\"hero\", "                                                                        \
    "\"age\"], \"additionalProperties\": false}"

static void check_hero(json_t *o)
{
    const char *hero = json_string_value(json_object_get(o, "hero"));
    json_int_t age = json_integer_value(json_object_get(o, "age"));

    ck_assert(hero && (strcmp(hero, "fox") == 0 || strcmp(hero, "owl") == 0));
    ck_assert(age >= 3 && age <= 17 && json_object_size(o) == 2);
    json_decref(o);
}

/* At a temperature at which the model would say anything. */
START_TEST(answers_keep_to_what_is_asked)
{
    json_t *o;

    for (int seed = 0; seed < 4; seed++) {
        char body[1000];
        struct reply r;
        int events;
        char *text;

        snprintf(body, sizeof body,
                 FOX
                 ", \"temperature\": 2, \"top_k\": 0, \"top_p\": 1, \"min_p\": 0, \"seed\": %d, "
                 "\"stream\": true, \"response_format\": {\"type\": \"json_schema\", "
                 "\"json_schema\": {\"name\": \"x\", \"schema\": " SCHEMA "}}}",
                 seed);
        r = serving_ask("POST", CHAT, NULL, body);
        text = serving_stream_text(&r, &events);
        check_hero(json_loads(text, 0, NULL));
        free(text);
        free(r.head);
        o = serving_post(CHAT, FOX ", \"json_schema\": " SCHEMA "}", 200);
        check_hero(json_loads(serving_text_at(o, "message", "content"), 0, NULL));
        json_decref(o);
    }
    o = serving_post(CHAT, FOX ", \"grammar\": \"root ::= \\\"yes\\\" | \\\"no\\\"\"}", 200);
    ck_assert(strcmp(serving_text_at(o, "message", "content"), "yes") == 0 ||
              strcmp(serving_text_at(o, "message", "content"), "no") == 0);
    json_decref(o);
    o = serving_post(CHAT, FOX ", \"max_tokens\": 3, \"logit_bias\": {\"1724\": 100}}", 200);
    ck_assert_str_eq(serving_text_at(o, "message", "content"), "choolchoolchool");
    json_decref(o);
    for (size_t i = 0; i < sizeof not_held / sizeof *not_held; i++) {
        char body[700];

        snprintf(body, sizeof body, FOX ", %s}", not_held[i]);
        json_decref(serving_post(CHAT, body, 400));
    }
}
END_TEST

#define TOOLS                                                                                      \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"find\", \"parameters\": "     \
    "{\"type\": \"object\", \"properties\": {\"who\": {\"$ref\": \"#/$defs/who\"}}, "              \
    "\"required\": "                                                                               \
    "[\"who\"], \"additionalProperties\": false, \"$defs\": {\"who\": {\"enum\": [\"fox\"]}}}}}, " \
    "{\"type\": \"function\", \"function\": {\"name\": \"rest\"}}]"

/* A model may put blanks where JSON lets it. */
static void check_json(const char *text, const char *want)
{
    json_t *o = json_loads(text ? text : "", 0, NULL), *w = json_loads(want, 0, NULL);

    ck_assert_msg(json_equal(o, w), "%s, not %s", text, want);
    json_decref(o);
    json_decref(w);
}

static void check_call(const char *choice, const char *name, const char *arguments)
{
    char body[900];
    json_t *o, *message, *calls, *f;

    snprintf(body, sizeof body, FOX ", " TOOLS ", \"temperature\": 2, \"tool_choice\": %s}",
             choice);
    o = serving_post(CHAT, body, 200);
    message = json_object_get(json_array_get(json_object_get(o, "choices"), 0), "message");
    calls = json_object_get(message, "tool_calls");
    f = json_object_get(json_array_get(calls, 0), "function");
    ck_assert_str_eq(serving_text_at(o, "finish_reason", NULL), "tool_calls");
    ck_assert(json_is_null(json_object_get(message, "content")));
    ck_assert_uint_eq(json_array_size(calls), 1);
    if (name) {
        ck_assert_str_eq(json_string_value(json_object_get(f, "name")), name);
        check_json(json_string_value(json_object_get(f, "arguments")), arguments);
    }
    json_decref(o);
}

START_TEST(calls_that_are_demanded)
{
    check_call("\"required\"", NULL, NULL);
    check_call("{\"type\": \"function\", \"function\": {\"name\": \"find\"}}", "find",
               "{\"who\":\"fox\"}");
    check_call("{\"type\": \"function\", \"function\": {\"name\": \"rest\"}}", "rest", "{}");
}
END_TEST

/* ---- tools by the model's own template ---- */

#define FIND_TOLD                                                                              \
    "[{\"type\": \"function\", \"function\": {\"name\": \"find\", \"parameters\": {\"type\": " \
    "\"object\", \"properties\": {\"who\": {\"type\": \"string\"}, \"n\": {\"type\": "         \
    "\"integer\"}}"                                                                            \
    "}}}]"
#define CALLED                                                                                 \
    "{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": null, " \
    "\"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"arguments\": " \
    "\"{\\\"who\\\":\\\"a<|end|>\\\"}\", \"name\": \"find\"}}]}, {\"role\": \"tool\", "        \
    "\"tool_call_id\": \"c1\", \"content\": \"gone\"}"

static void check_prompt(const char *body, const char *want)
{
    json_t *o = serving_post("/apply-template", body, 200);

    ck_assert_str_eq(json_string_value(json_object_get(o, "prompt")), want);
    json_decref(o);
}

START_TEST(tools_reach_the_template)
{
    serving_start_with_template(serving_tools);
    check_prompt("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], " FIND "}",
                 "<|system|>" FIND_TOLD "<|end|><|user|>Hi<|end|><|assistant|>");
    /* a call's arguments are an object, a result knows its tool's name */
    check_prompt("{\"messages\": [" CALLED "], " FIND "}",
                 "<|system|>" FIND_TOLD "<|end|><|user|>Hi<|end|><|assistant|><tool_call>\n"
                 "{\"name\": \"find\", \"arguments\": {\"who\": \"a<|end|>\"}}\n</tool_call><|end|>"
                 "<|user|>[find c1] gone<|end|><|assistant|>");
    /* it writes calls as Hermes does: one that is demanded begins there */
    check_prompt("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], " FIND
                 ", \"tool_choice\": \"required\"}",
                 "<|system|>" FIND_TOLD "<|end|><|user|>Hi<|end|><|assistant|><tool_call>\n");
    check_prompt("{\"messages\": [" CALLED "], " FIND ", \"tool_choice\": \"none\", "
                 "\"chat_template_kwargs\": {\"mood\": \"!\"}}",
                 "<|user|>Hi<|end|><|assistant|><tool_call>\n{\"name\": \"find\", \"arguments\": "
                 "{\"who\": \"a<|end|>\"}}\n</tool_call><|end|><|user|>[find c1] gone<|end|>"
                 "<|assistant|>!");
    json_decref(serving_post("/apply-template",
                             "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
                             "\"chat_template_kwargs\": {\"tools\": []}}",
                             400));
    json_decref(serving_post("/apply-template", "{\"messages\": 1}", 400));
}
END_TEST

/* A template that wants a text for arguments, ids of nine, one call a message. */
START_TEST(tools_reach_an_odd_template)
{
    const char *prompt;
    json_t *o;

    serving_start_with_template(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('no') }}"
        "{% endif %}{{ m.content + '' }}{{ m.tool_calls[0].id + m.tool_calls[0].function.arguments "
        "}}{% elif m.role == 'tool' and m.tool_call_id | length != 9 %}{{ raise_exception('no') }}"
        "{% else %}{{ m.content }}{% endif %};{% endfor %}");
    check_prompt("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
                 "\"assistant\", \"tool_calls\": [{\"id\": \"abcdefgh1\", \"function\": {\"name\": "
                 "\"f\", \"arguments\": \"{\\\"a\\\":1}\"}}, {\"id\": \"call_2\", \"function\": "
                 "{\"name\": \"g\", \"arguments\": {\"b\": 2}}}]}, {\"role\": \"tool\", "
                 "\"tool_call_id\": \"call_2\", \"content\": \"two\"}, {\"role\": \"tool\", "
                 "\"tool_call_id\": \"abcdefgh1\", \"content\": \"one\"}]}",
                 "Hi;abcdefgh1{\"a\":1};one;g4r1ckgto{\"b\": 2};two;");
    /* of the tools themselves it says nothing: the first user does, in Hermes' form */
    o = serving_post("/apply-template",
                     "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], " FIND "}", 200);
    prompt = json_string_value(json_object_get(o, "prompt"));
    ck_assert_msg(strncmp(prompt, "# Tools\n", 8) == 0 &&
                      strstr(prompt, "</tool_call>\n\nHi;") != NULL,
                  "%s", prompt);
    json_decref(o);
}
END_TEST

/* What the model is made to say, and what is told of it. */
static const struct {
    const char *said, *text, *calls;
} spelled[] = {
    {"<tool_call>\n{\"name\": \"find\", \"arguments\": {\"n\":  1}}\n</tool_call>", "",
     "find {\"n\":  1}\n"},
    /* Qwen3-Coder's: types are the schema's */
    {"Well. <tool_call>\n<function=find>\n<parameter=who>\n7\n</parameter>\n<parameter=n>\n7\n"
     "</parameter>\n</function>\n</tool_call>",
     "Well. ", "find {\"who\": \"7\", \"n\": 7}\n"},
    /* Llama 3's, which nothing marks */
    {"{\"name\": \"find\", \"parameters\": {\"who\": \"x\"}}", "", "find {\"who\": \"x\"}\n"},
    {"[find(who='x', n=2)]", "", "find {\"who\": \"x\", \"n\": 2}\n"},
    /* no calls, though they begin like some */
    {"{\"name\": \"fred\", \"parameters\": {}}", "{\"name\": \"fred\", \"parameters\": {}}", ""},
    {"{\"name\": \"find\", \"age\": 3}", "{\"name\": \"find\", \"age\": 3}", ""},
    {"<tool_call>find me", "find me", ""},
};

START_TEST(native_calls_are_told)
{
    char finish[16];

    serving_start_with_template(serving_tools);
    for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++) {
        json_t *asked = serving_made_to_say(spelled[i].said),
               *o = serving_post_json(CHAT, asked, 200);
        const char *end = spelled[i].calls[0] ? "tool_calls" : "stop";
        json_t *message = json_object_get(json_array_get(json_object_get(o, "choices"), 0),
                                          "message");
        char *body, *text, *calls;
        struct reply r;
        int events;

        ck_assert_str_eq(serving_text_at(o, "finish_reason", NULL), end);
        ck_assert((json_object_get(message, "tool_calls") != NULL) == (spelled[i].calls[0] != 0));
        json_object_set_new(asked, "stream", json_true());
        body = json_dumps(asked, 0);
        r = serving_ask("POST", CHAT, NULL, body);
        text = serving_stream_text(&r, &events);
        calls = serving_stream_calls(&r, finish);
        ck_assert_str_eq(text, spelled[i].text);
        ck_assert_str_eq(calls, spelled[i].calls);
        ck_assert_str_eq(finish, end);
        free(body);
        free(text);
        free(calls);
        free(r.head);
        json_decref(o);
        json_decref(asked);
    }
}
END_TEST

static int cached_of(const json_t *o)
{
    return (int)json_integer_value(json_object_get(
        json_object_get(json_object_get(o, "usage"), "prompt_tokens_details"), "cached_tokens"));
}

static json_t *prompt_of(const json_t *asked)
{
    json_t *o = serving_post_json("/apply-template", asked, 200),
           *prompt = json_object_get(o, "prompt");

    json_incref(prompt);
    json_decref(o);
    return prompt;
}

/* The turn behind a call goes on where that ended: its text is the same to the letter, though it
 * was JSON between, and what was read is there. */
START_TEST(a_call_is_not_read_again)
{
    static const char said[] = "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"n\": 1}}\n"
                               "</tool_call>";
    json_t *asked = serving_made_to_say(said), *messages = json_object_get(asked, "messages"), *o,
           *message, *call, *first, *second;
    int held;

    serving_start_with_template(serving_tools);
    first = prompt_of(asked);
    o = serving_post_json(CHAT, asked, 200);
    held = (int)json_integer_value(json_object_get(json_object_get(o, "usage"), "prompt_tokens"));
    message = json_object_get(json_array_get(json_object_get(o, "choices"), 0), "message");
    call = json_array_get(json_object_get(message, "tool_calls"), 0);
    ck_assert(call != NULL);
    json_array_append(messages, message);
    json_array_append_new(messages, json_pack("{s:s, s:O, s:s}", "role", "tool", "tool_call_id",
                                              json_object_get(call, "id"), "content", "gone"));
    json_object_del(asked, "grammar");
    json_object_set_new(asked, "max_tokens", json_integer(1));
    json_decref(o);
    second = prompt_of(asked);
    ck_assert(strncmp(json_string_value(second), json_string_value(first),
                      json_string_length(first)) == 0);
    ck_assert(strncmp(json_string_value(second) + json_string_length(first), said, strlen(said)) ==
              0);
    o = serving_post_json(CHAT, asked, 200);
    ck_assert_msg(cached_of(o) >= held, "%d of %d", cached_of(o), held);
    json_decref(o);
    json_decref(first);
    json_decref(second);
    json_decref(asked);
}
END_TEST

/* What came of one turn is one message for the template. */
START_TEST(items_of_responses_become_messages)
{
    serving_start_with_template(
        "{% for m in messages %}{{ m.role }}:{{ m.reasoning_content or '' }}/{{ m.content if "
        "m.content is string }}{% for c in m.tool_calls %}/{{ c.id }}{{ c.function.arguments | "
        "tojson }}{% endfor %};{% endfor %}{{ raise_exception('SAID ' ~ (messages | length) ~ "
        "messages[1].reasoning_content ~ messages[1].content ~ messages[1].tool_calls | tojson) if "
        "messages | length > 3 }}");
    json_t *o = serving_post(
        "/v1/responses",
        RESPOND
        "\"input\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"type\": \"reasoning\", "
        "\"content\": [{\"type\": \"reasoning_text\", \"text\": \"hm\"}]}, {\"type\": "
        "\"message\", \"role\": \"assistant\", \"content\": \"Look\"}, {\"type\": "
        "\"function_call\", \"call_id\": \"a\", \"name\": \"f\", \"arguments\": \"{}\"}, "
        "{\"type\": \"function_call\", \"call_id\": \"b\", \"name\": \"g\", \"arguments\": "
        "\"{}\"}, {\"type\": \"function_call_output\", \"call_id\": \"a\", \"output\": \"1\"}, "
        "{\"type\": \"function_call_output\", \"call_id\": \"b\", \"output\": \"2\"}]}",
        400);
    const char *why = json_string_value(json_object_get(json_object_get(o, "error"), "message"));

    ck_assert_msg(
        strstr(why, "SAID 4hmLook[{\"id\": \"a\", \"type\": \"function\", \"function\": "
                    "{\"name\": \"f\", \"arguments\": {}}}, {\"id\": \"b\", \"type\": "
                    "\"function\", \"function\": {\"name\": \"g\", \"arguments\": {}}}]") != NULL,
        "%s", why);
    json_decref(o);
}
END_TEST

/* ---- texts and ids ---- */

#define COMPLETE "{\"model\": \"" MODEL "\", \"temperature\": 0, "
#define ONCE "Once upon a time there was a fox"

START_TEST(texts_are_continued_and_scored)
{
    json_t *o = serving_post("/v1/completions",
                             COMPLETE "\"prompt\": \"" ONCE "\", \"max_tokens\": 4}", 200);
    json_t *scored = serving_post("/v1/completions",
                                  COMPLETE "\"prompt\": \"" ONCE
                                           "\", \"max_tokens\": 1, \"echo\": true, "
                                           "\"logprobs\": 1}",
                                  200);
    json_t *again = serving_post("/v1/completions",
                                 COMPLETE "\"prompt\": [\"" ONCE
                                          " who\", [1, 300]], \"max_tokens\": 0, "
                                          "\"echo\": true, \"logprobs\": 1}",
                                 200);
    struct reply r = serving_ask("POST", "/v1/completions", NULL,
                                 COMPLETE "\"prompt\": \"" ONCE
                                          "\", \"max_tokens\": 4, \"echo\": true, "
                                          "\"stream\": true}");
    json_t *lists = json_object_get(json_array_get(json_object_get(scored, "choices"), 0),
                                    "logprobs");
    json_t *values = json_object_get(lists, "token_logprobs");
    json_t *more = json_array_get(json_object_get(again, "choices"), 0);
    json_t *other = json_object_get(json_object_get(more, "logprobs"), "token_logprobs");
    int events;
    char *text = serving_stream_text(&r, &events), whole[200] = "";
    size_t i;
    json_t *each;

    ck_assert_str_eq(serving_text_at(o, "text", NULL), " who loved to play");
    ck_assert_str_eq(serving_text_at(scored, "text", NULL), ONCE " who");
    ck_assert_str_eq(text, ONCE " who loved to play");
    json_array_foreach(json_object_get(lists, "tokens"), i, each)
    {
        size_t offset = (size_t)json_integer_value(
            json_array_get(json_object_get(lists, "text_offset"), i));

        ck_assert_uint_eq(offset, strlen(whole));
        strcat(whole, json_string_value(each));
    }
    ck_assert_str_eq(whole, ONCE " who");
    ck_assert(json_is_null(json_array_get(values, 0)));
    ck_assert_uint_eq(json_array_size(values), 9);
    /* the token that was generated, scored as part of a prompt: the same digits */
    ck_assert_uint_eq(json_array_size(other), 9);
    for (i = 1; i < 9; i++)
        ck_assert(json_real_value(json_array_get(values, i)) < 0.0 &&
                  json_equal(json_array_get(values, i), json_array_get(other, i)));
    ck_assert_uint_eq(json_array_size(json_object_get(again, "choices")), 2);
    free(text);
    free(r.head);
    json_decref(o);
    json_decref(scored);
    json_decref(again);
}
END_TEST

START_TEST(ids_and_back)
{
    json_t *o = serving_post("/tokenize", "{\"content\": \"na\\u00efve caf\\u00e9!\"}", 200), *back;
    char *body = json_dumps(o, 0);

    back = serving_post("/detokenize", body, 200);
    ck_assert_str_eq(json_string_value(json_object_get(back, "content")),
                     "na\xc3\xafve caf\xc3\xa9!");
    free(body);
    json_decref(o);
    json_decref(back);
}
END_TEST

/* What pieces say of themselves, joined. */
START_TEST(pieces_of_a_text)
{
    static const char text[] = "say \"\\\" and\n\ttab \x01 \xf0\x9f\xa6\x8a na\xc3\xafve";
    json_t *body = json_pack("{s:s, s:b}", "content", text, "with_pieces", 1);
    char *asked = json_dumps(body, 0), joined[200] = "";
    json_t *o = serving_post("/tokenize", asked, 200), *each;
    size_t i, byte;

    json_array_foreach(json_object_get(o, "tokens"), i, each)
    {
        const char *piece = json_string_value(json_object_get(each, "piece"));

        ck_assert(json_is_integer(json_object_get(each, "id")) && piece);
        if (sscanf(piece, "bytes:\\x%2zx", &byte) == 1)
            joined[strlen(joined)] = (char)byte;
        else
            strncat(joined, piece, sizeof joined - strlen(joined) - 1);
    }
    ck_assert_str_eq(joined, text);
    free(asked);
    json_decref(body);
    json_decref(o);
}
END_TEST

/* KiB of this process that were ever in memory at once. */
static long most_memory(pid_t pid)
{
    char path[64], line[256];
    long kib = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    ck_assert((f = fopen(path, "r")) != NULL);
    while (!kib && fgets(line, sizeof line, f))
        sscanf(line, "VmHWM: %ld", &kib);
    fclose(f);
    return kib;
}

/* A body of n bytes: {BEGIN xxxx "}. malloc'd. */
static char *long_body(const char *begin, size_t n)
{
    char *body = malloc(n + 1);

    ck_assert(body != NULL);
    memset(body, 'x', n);
    memcpy(body, begin, strlen(begin));
    strcpy(body + n - 2, "\"}");
    return body;
}

/* Megabytes are read in seconds, take memory by the byte, and are left when their client leaves. */
START_TEST(ids_of_megabytes)
{
    static const char begin[] = "{\"with_pieces\": true, \"content\": \"";
    static const char first[] = "{\"tokens\":[{\"id\":", last[] = ",\"piece\":\"x\"}]}";
    size_t n = 2u << 20;
    char *body = long_body(begin, n), head[200];
    long before = most_memory(serving_pid);
    struct reply r = serving_ask("POST", "/tokenize", NULL, body);
    int fd;

    ck_assert_int_eq(r.status, 200);
    ck_assert(strncmp(r.body, first, strlen(first)) == 0);
    ck_assert_str_eq(r.body + r.n - strlen(last), last);
    ck_assert_uint_gt(r.n, n * 20);
    if (!CHECKED_BUILD) /* a sanitizer keeps what is freed */
        ck_assert_int_lt(most_memory(serving_pid) - before, 300 << 10);
    free(r.head);
    free(body);
    body = long_body(begin, n = 7u << 20);
    fd = serving_dial();
    serving_say(fd, head,
                (size_t)sprintf(
                    head, "POST /tokenize HTTP/1.1\r\n" JSON_HEADERS "Content-Length: %zu\r\n\r\n",
                    n));
    serving_say(fd, body, n);
    close(fd);
    serving_wait_for_log("POST /tokenize 503");
    /* what would be hundreds of megabytes is refused; ids alone are not */
    r = serving_ask("POST", "/tokenize", NULL, body);
    ck_assert_int_eq(r.status, 400);
    ck_assert(strstr(r.body, "in parts, or without with_pieces") != NULL);
    free(r.head);
    memcpy(body, "{\"with_piecez\"", 14);
    r = serving_ask("POST", "/tokenize", NULL, body);
    ck_assert_int_eq(r.status, 200);
    free(r.head);
    free(body);
}
END_TEST

/* The content of an answer to FOX with more fields; cached: tokens that were not read again. */
static char *fox(const char *more, int *cached)
{
    char body[600], *text;
    json_t *o, *usage;

    snprintf(body, sizeof body, FOX ", \"max_tokens\": 12, \"temperature\": 0%s}", more);
    o = serving_post(CHAT, body, 200);
    text = strdup(serving_text_at(o, "message", "content"));
    usage = json_object_get(json_object_get(o, "usage"), "prompt_tokens_details");
    *cached = (int)json_integer_value(json_object_get(usage, "cached_tokens"));
    json_decref(o);
    return text;
}

static void adapted_server(const char *file)
{
    const char *const more[] = {"--lora", file, "--parallel", "2", NULL};

    ck_assert_int_eq(golden_lora_write(support_demo(), file, 3), 0);
    serving_start(more);
}

static double scale_told(void)
{
    struct reply r = serving_ask("GET", "/lora-adapters", NULL, NULL);
    json_t *o = serving_read_json(&r, 200);
    double scale = json_number_value(json_object_get(json_array_get(o, 0), "scale"));

    ck_assert_uint_eq(json_array_size(o), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(o, 0), "id")), 0);
    json_decref(o);
    free(r.head);
    return scale;
}

/* As llama-server: strengths of requests, and of all that do not say. */
START_TEST(adapters_of_requests)
{
    static const char *const wrong[] = {"5", "[5]", "[{\"id\": 1, \"scale\": 1}]", "[{\"id\": 0}]",
                                        "[{\"id\": 0, \"scale\": 1e9}]"};
    char file[4200], *with, *none, *again, *other;
    int cached;

    snprintf(file, sizeof file, "%s/lora.gguf", support_tmpdir());
    adapted_server(file);
    ck_assert(scale_told() == 1.0);
    with = fox("", &cached);
    none = fox(", \"lora\": []", &cached);
    ck_assert_int_eq(cached, 0); /* what one strength read is no other's */
    ck_assert_str_ne(with, none);
    ck_assert_msg(strncmp(none, "Once upon a time", 16) == 0, "%s", none);
    again = fox(", \"lora\": [{\"id\": 0, \"scale\": 1}]", &cached);
    ck_assert_str_eq(with, again);
    ck_assert_int_gt(cached, 0); /* its session was found again */
    free(again);
    again = fox(", \"lora\": [{\"id\": 0, \"scale\": 0.0}]", &cached);
    ck_assert_str_eq(none, again);
    free(again);
    json_decref(serving_post("/lora-adapters", "[{\"id\": 0, \"scale\": 0.25}]", 200));
    ck_assert(scale_told() == 0.25);
    again = fox("", &cached);
    other = fox(", \"lora\": [{\"id\": 0, \"scale\": 0.25}]", &cached);
    ck_assert_str_eq(again, other);
    json_decref(serving_post("/lora-adapters", "[]", 200));
    ck_assert(scale_told() == 0.0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char body[400];

        json_decref(serving_post("/lora-adapters", wrong[i], 400));
        snprintf(body, sizeof body, FOX ", \"lora\": %s}", wrong[i]);
        json_decref(serving_post(CHAT, body, 400));
    }
    ck_assert(scale_told() == 0.0);
    free(with);
    free(none);
    free(again);
    free(other);
}
END_TEST

static double metric(const char *name)
{
    struct reply r = serving_ask("GET", "/metrics", NULL, NULL);
    char line[100];
    const char *at;
    double v;

    ck_assert_int_eq(r.status, 200);
    snprintf(line, sizeof line, "\n%s ", name);
    at = strstr(r.body, line);
    ck_assert_msg(at != NULL, "no %s in %s", name, r.body);
    v = strtod(at + strlen(line), NULL);
    free(r.head);
    return v;
}

START_TEST(figures_for_boards)
{
    json_t *o = serving_post(CHAT, FOX ", \"max_tokens\": 8, \"ignore_eos\": true}", 200);
    struct reply r = serving_ask("GET", "/props", NULL, NULL);
    json_t *props = serving_read_json(&r, 200);

    ck_assert_int_eq(json_integer_value(json_object_get(props, "n_ctx_total")),
                     4 * json_integer_value(json_object_get(
                             json_object_get(props, "default_generation_settings"), "n_ctx")));
    while (metric("moetop_pass_answers_count") < 7) /* it is looked at twice a second */
        usleep(50000);
    ck_assert(metric("llamacpp:tokens_predicted_total") == 8.0);
    ck_assert(metric("moetop_requests_total") == 1.0);
    ck_assert(metric("moetop_prompt_tokens_total") == 11.0);
    ck_assert(metric("moetop_pass_rows_total") >= 18.0);
    ck_assert(metric("moetop_kv_cache_usage_ratio") > 0.0);
    free(r.head);
    json_decref(props);
    json_decref(o);
}
END_TEST

/* ---- other APIs ---- */

/* Each event's own word for its kind, with a blank behind each. */
static char *event_types(const struct reply *r)
{
    char *all = calloc(1, r->n + 1), *at = r->body;

    while ((at = strstr(at, "event: "))) {
        size_t n = strcspn(at += 7, "\n"), had = strlen(all);
        json_t *o = json_loads(strstr(at, "data: ") + 6, JSON_DISABLE_EOF_CHECK, NULL);

        memcpy(all + had, at, n);
        all[had + n] = ' ';
        ck_assert_msg(strncmp(json_string_value(json_object_get(o, "type")), at, n) == 0, "%.100s",
                      at);
        json_decref(o);
    }
    return all;
}

#define HI                                                                                 \
    "\"input\": [{\"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\": " \
    "\"hi\"}]}]"

START_TEST(responses)
{
    json_t *o = serving_post("/v1/responses", RESPOND HI ", \"max_output_tokens\": 4}", 200), *item;
    struct reply r = serving_ask("POST", "/v1/responses", NULL,
                                 RESPOND
                                 "\"input\": \"hi\", \"max_output_tokens\": 3, \"stream\": true}");
    char *types = event_types(&r);

    ck_assert_str_eq(json_string_value(json_object_get(o, "status")), "incomplete");
    item = json_array_get(json_object_get(o, "output"), 0);
    item = json_array_get(json_object_get(item, "content"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(item, "text")), "Hello, friend!");
    ck_assert_str_eq(types, "response.created response.in_progress response.output_item.added "
                            "response.content_part.added response.output_text.delta "
                            "response.output_text.delta response.output_text.delta "
                            "response.output_text.done response.content_part.done "
                            "response.output_item.done response.incomplete ");
    json_decref(o);
    o = serving_post("/v1/responses",
                     RESPOND HI ", \"tools\": [{\"type\": \"function\", \"name\": \"rest\"}], "
                                "\"tool_choice\": \"required\"}",
                     200);
    item = json_array_get(json_object_get(o, "output"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(item, "type")), "function_call");
    ck_assert_str_eq(json_string_value(json_object_get(item, "name")), "rest");
    json_decref(o);
    /* what is wrong has the name that it has here */
    o = serving_post("/v1/responses",
                     RESPOND HI
                     ", \"text\": {\"format\": {\"type\": \"json_schema\", \"name\": \"x\", "
                     "\"schema\": {\"type\": \"object\", \"patternProperties\": {}}}}}",
                     400);
    item = json_object_get(o, "error");
    ck_assert_str_eq(json_string_value(json_object_get(item, "param")), "text.format");
    ck_assert(strncmp(json_string_value(json_object_get(item, "message")), "'text.format': ", 15) ==
              0);
    free(types);
    free(r.head);
    json_decref(o);
}
END_TEST

/* Of a message of 8,000 words. */
static json_t *count_many_words(void)
{
    static const char word[] = "word ";
    char *text = malloc(8000 * strlen(word) + 1), *body;
    json_t *o;

    ck_assert(text != NULL);
    for (size_t i = 0; i < 8000; i++)
        memcpy(text + i * strlen(word), word, sizeof word);
    o = json_pack("{s:s, s:[{s:s, s:s}]}", "model", MODEL, "messages", "role", "user", "content",
                  text);
    body = json_dumps(o, 0);
    json_decref(o);
    o = serving_post("/v1/messages/count_tokens", body, 200);
    free(text);
    free(body);
    return o;
}

#define SAY                                                                     \
    "{\"model\": \"" MODEL                                                      \
    "\", \"temperature\": 0, \"messages\": [{\"role\": \"user\", \"content\": " \
    "\"hi\"}], \"system\": \"be kind\""

START_TEST(messages)
{
    json_t *o = serving_post("/v1/messages",
                             SAY ", \"max_tokens\": 40, \"stop_sequences\": [\"q\", \"!\"]}", 200);
    json_t *count = serving_post("/v1/messages/count_tokens", SAY "}", 200);
    json_t *usage = json_object_get(o, "usage"), *wrong;
    struct reply r = serving_ask("POST", "/v1/messages", NULL,
                                 SAY ", \"max_tokens\": 2, \"stream\": true}");
    char *types = event_types(&r);

    ck_assert_str_eq(json_string_value(json_object_get(o, "stop_reason")), "stop_sequence");
    ck_assert_str_eq(json_string_value(json_object_get(o, "stop_sequence")), "!");
    /* there is none of either, which the schema wants said */
    ck_assert(json_is_null(json_object_get(o, "stop_details")) &&
              json_is_null(json_object_get(o, "container")));
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "input_tokens")) +
                         json_integer_value(json_object_get(usage, "cache_read_input_tokens")),
                     json_integer_value(json_object_get(count, "input_tokens")));
    ck_assert_str_eq(types, "message_start ping content_block_start content_block_delta "
                            "content_block_delta content_block_stop message_delta message_stop ");
    wrong = serving_post("/v1/messages", SAY "}", 400);
    ck_assert_str_eq(json_string_value(json_object_get(wrong, "type")), "error");
    json_decref(count);
    count = count_many_words(); /* nothing is answered: it may be longer than the context */
    ck_assert_int_gt(json_integer_value(json_object_get(count, "input_tokens")), 8000);
    free(types);
    free(r.head);
    json_decref(o);
    json_decref(count);
    json_decref(wrong);
}
END_TEST

/* ---- who else is served ---- */

struct teller {
    pthread_t thread;
    int number;
    char *text;
};

static char *tell(int i)
{
    static const char *const heroes[] = {"fox", "bear", "owl", "cat", "dog", "hen", "cow", "pig"};
    char body[400];
    json_t *o, *choice, *list;
    char *text;

    snprintf(body, sizeof body,
             ASK "\"Tell me a story about a %s.\"}], \"temperature\": 0.8, \"seed\": %d, "
                 "\"max_tokens\": %d, \"ignore_eos\": true, \"logprobs\": true}",
             heroes[i], 100 + i, 20 + 6 * i);
    o = serving_post("/v1/chat/completions", body, 200);
    choice = json_array_get(json_object_get(o, "choices"), 0);
    list = json_object_get(json_object_get(choice, "logprobs"), "content");
    json_object_set(json_object_get(choice, "message"), "logprobs", list);
    /* text, tokens and the digits of their probabilities */
    text = json_dumps(json_object_get(choice, "message"), JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(o);
    return text;
}

static void *tell_beside(void *arg)
{
    struct teller *t = arg;

    t->text = tell(t->number);
    return NULL;
}

/* Wherever blocks and experts are computed meanwhile. In the release alone: a driver's compiler in
 * a thread of ours is more than the sanitizers bear. */
static void move_experts(void)
{
#ifndef MOETOP_DEBUG
    static const char *const plans[] = {"gpu",           "layers:4", "prompt cpu", "experts-gpu",
                                        "attention-gpu", "cpu",      "prompt gpu", "prompt same"};

    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        char body[64];

        snprintf(body, sizeof body, "{\"plan\": \"%s\"}", plans[i]);
        json_decref(serving_post("/moetop/placement", body, 200));
        usleep(20000);
    }
#endif
}

START_TEST(eight_clients_get_what_each_gets_alone)
{
    struct teller t[8];

    for (int i = 0; i < 8; i++) {
        t[i] = (struct teller){.number = i};
        ck_assert_int_eq(pthread_create(&t[i].thread, NULL, tell_beside, &t[i]), 0);
    }
    move_experts();
    for (int i = 0; i < 8; i++)
        pthread_join(t[i].thread, NULL);
    for (int i = 0; i < 8; i++) {
        char *alone = tell(i);

        ck_assert_str_eq(t[i].text, alone);
        free(alone);
        free(t[i].text);
    }
}
END_TEST

/* Several answers begin while others are read: one side computes prompts, at the same time the
 * other one tokens. The device is that of tests/fake_device.h. */
START_TEST(both_sides_answer_at_once)
{
    static const char *const plans[][2] = {{"cpu", "gpu"}, {"gpu", "cpu"}};
    const char *const more[] = {"--plain",        "-np",        "3", "--place", plans[_i][0],
                                "--place-prompt", plans[_i][1], NULL};
    struct teller t[8];
    struct reply r;
    json_t *state;
    char *alone[8];
    json_int_t pieces = 0;

    serving_start((const char *const[]){"--plain", NULL});
    for (int i = 0; i < 8; i++)
        alone[i] = tell(i);
    ck_assert_int_eq(serving_end(), 0);
    serving_program = "tests/faulty"; /* without a fault */
    serving_start(more);
    /* on a busy machine a prompt may be over before another client's first token */
    for (int round = 0; round < 8 && !pieces; round++) {
        for (int i = 0; i < 8; i++) {
            t[i] = (struct teller){.number = i};
            ck_assert_int_eq(pthread_create(&t[i].thread, NULL, tell_beside, &t[i]), 0);
        }
        for (int i = 0; i < 8; i++) {
            pthread_join(t[i].thread, NULL);
            ck_assert_str_eq(t[i].text, alone[i]);
            free(t[i].text);
        }
        r = serving_ask("GET", "/moetop/state", NULL, NULL);
        state = serving_read_json(&r, 200);
        pieces = json_integer_value(json_object_get(state, "at_once.pieces"));
        json_decref(state);
        free(r.head);
    }
    for (int i = 0; i < 8; i++)
        free(alone[i]);
    ck_assert_msg(pieces > 0, "nothing was computed at once");
    ck_assert_int_eq(serving_end(), 0);
}
END_TEST

/* ---- models of a folder ---- */

/* Reads until the text has come. */
static void hear_until(int fd, const char *what)
{
    char text[8192] = "";
    size_t n = 0;
    ssize_t got;

    while (!strstr(text, what) && n < sizeof text - 1 &&
           (got = recv(fd, text + n, sizeof text - 1 - n, 0)) > 0) {
        n += (size_t)got;
        text[n] = 0;
    }
    ck_assert_msg(strstr(text, what) != NULL, "%.300s", text);
}

static int ask_slowly(const char *more)
{
    char body[400], head[300];
    int fd = serving_dial(), n;

    snprintf(body, sizeof body, FOX ", \"temperature\": 0, \"ignore_eos\": true%s}", more);
    n = snprintf(head, sizeof head,
                 "POST " CHAT " HTTP/1.1\r\n" JSON_HEADERS "Content-Length: %zu\r\n\r\n",
                 strlen(body));
    serving_say(fd, head, (size_t)n);
    serving_say(fd, body, strlen(body));
    return fd;
}

static char shelf_dir[300];

static void copy_model(const char *name, size_t most)
{
    char from[PATH_MAX], to[400], block[1 << 16];
    FILE *in, *out;
    size_t n;

    serving_find_binary();
    snprintf(from, sizeof from, "%.*s/../../configs/models/" MODEL ".gguf",
             (int)(strrchr(serving_binary, '/') - serving_binary), serving_binary);
    snprintf(to, sizeof to, "%s/%s", shelf_dir, name);
    in = fopen(from, "rb");
    out = fopen(to, "wb");
    ck_assert_msg(in && out, "%s or %s", from, to);
    for (; most && (n = fread(block, 1, sizeof block < most ? sizeof block : most, in)); most -= n)
        fwrite(block, 1, n, out);
    fclose(in);
    fclose(out);
}

static void shelf_server(void)
{
    const char *const more[] = {"--models-dir", shelf_dir, "--pace", "40", "-np", "2", NULL};

    snprintf(shelf_dir, sizeof shelf_dir, "%s/shelf", support_tmpdir());
    mkdir(shelf_dir, 0700);
    copy_model("other.gguf", SIZE_MAX);
    copy_model("broken.gguf", 3000000);
    serving_start(more);
}

/* Which one is told to be loaded. */
static char *loaded_model(void)
{
    struct reply r = serving_ask("GET", "/v1/models", NULL, NULL);
    json_t *o = serving_read_json(&r, 200), *each;
    char *found = NULL;
    size_t i;

    ck_assert_uint_eq(json_array_size(json_object_get(o, "data")), 3);
    json_array_foreach(json_object_get(o, "data"), i, each)
    {
        const char *id = json_string_value(json_object_get(each, "id"));

        if (strcmp(json_string_value(json_object_get(json_object_get(each, "status"), "value")),
                   "loaded") == 0)
            found = strdup(id);
    }
    json_decref(o);
    free(r.head);
    return found ? found : strdup("none");
}

#define OTHER "{\"model\": \"other\", \"messages\": [{\"role\": \"user\", \"content\": "

/* Who is answered keeps being answered; who names another model waits, and gets it. */
START_TEST(a_request_names_another_model)
{
    int first = ask_slowly(", \"stream\": true, \"max_tokens\": 20"), events;
    char *now = loaded_model(), *text;
    struct reply r;
    json_t *o;

    ck_assert_str_eq(now, MODEL);
    free(now);
    hear_until(first, "Once");
    o = serving_post(CHAT, OTHER "\"Tell me a story about a fox.\"}], \"max_tokens\": 4}", 200);
    ck_assert_str_eq(json_string_value(json_object_get(o, "model")), "other");
    json_decref(o);
    hear_until(first, "[DONE]"); /* whole, though another model is there now */
    close(first);
    now = loaded_model();
    ck_assert_str_eq(now, "other");
    free(now);
    r = serving_ask("POST", CHAT, NULL,
                    FOX ", \"max_tokens\": 8, \"stream\": true, \"temperature\": 0}");
    text = serving_stream_text(&r, &events);
    ck_assert_msg(strncmp(text, "Once upon a time", 16) == 0, "%s", r.body);
    free(text);
    free(r.head);
    o = serving_post("/v1/messages/count_tokens", OTHER "\"Hi\"}]}", 200);
    ck_assert_int_gt(json_integer_value(json_object_get(o, "input_tokens")), 0);
    json_decref(o);
}
END_TEST

/* One that cannot be loaded, one that there is not: the server goes on with what it has. */
START_TEST(a_model_that_cannot_be_loaded)
{
    json_t *o = serving_post(CHAT, "{\"model\": \"broken\", \"messages\": []}", 500), *error;
    char *now = loaded_model();

    error = json_object_get(o, "error");
    ck_assert_str_eq(json_string_value(json_object_get(error, "code")), "model_not_loaded");
    ck_assert_msg(strstr(json_string_value(json_object_get(error, "message")), "truncated") != NULL,
                  "%s", json_string_value(json_object_get(error, "message")));
    json_decref(o);
    ck_assert_str_eq(now, MODEL);
    free(now);
    json_decref(serving_post(CHAT, "{\"model\": \"nobody\", \"messages\": []}", 404));
    json_decref(serving_post(CHAT, FOX ", \"max_tokens\": 2}", 200));
}
END_TEST

#define NAMED 6

static void *name_in_turn(void *arg)
{
    const int *i = arg;
    const char *body = *i % 2 ? OTHER "\"Hi\"}], \"max_tokens\": 3}"
                              : ASK "\"Hi\"}], \"max_tokens\": 3}";
    struct reply r = serving_ask("POST", CHAT, NULL, body);

    ck_assert_msg(r.status == 200 && strstr(r.body, *i % 2 ? "\"other\"" : "\"" MODEL "\""),
                  "%d %s", r.status, r.body);
    free(r.head);
    return NULL;
}

/* At the same time, half of them each: each is answered by the one it names. */
START_TEST(several_name_several_models)
{
    pthread_t threads[NAMED];
    int number[NAMED];

    for (int i = 0; i < NAMED; i++) {
        number[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, name_in_turn, &number[i]), 0);
    }
    for (int i = 0; i < NAMED; i++)
        pthread_join(threads[i], NULL);
}
END_TEST

/* What comes while another model is wanted is read when that is there, wrong as it may be. */
START_TEST(bad_requests_wait_as_well)
{
    static const char other[] = OTHER "\"Hi\"}], \"max_tokens\": 3}";
    int busy = ask_slowly(", \"stream\": true, \"max_tokens\": 20"), waits = serving_dial(), n;
    struct reply r;
    char head[300];

    hear_until(busy, "Once");
    n = snprintf(head, sizeof head,
                 "POST " CHAT " HTTP/1.1\r\n" JSON_HEADERS
                 "Connection: close\r\nContent-Length: %zu\r\n\r\n",
                 strlen(other));
    serving_say(waits, head, (size_t)n);
    serving_say(waits, other, strlen(other));
    for (int i = 0; i < 40; i++) { /* the first ones may be read before that */
        static const char *const bodies[] = {"{", "[]", "{\"model\": 7}", "\xff"};

        json_decref(serving_post(CHAT, bodies[i % 4], 400));
    }
    hear_until(busy, "[DONE]");
    close(busy);
    r = serving_read_reply(waits);
    ck_assert_msg(r.status == 200 && strstr(r.body, "\"other\""), "%d %s", r.status, r.body);
    free(r.head);
}
END_TEST

/* ---- names of models ---- */

START_TEST(a_model_need_not_be_named)
{
    json_t *named = serving_post(CHAT, FOX ", \"max_tokens\": 9, \"temperature\": 0}", 200),
           *plain = json_loads(FOX ", \"max_tokens\": 9, \"temperature\": 0}", 0, NULL), *o;

    json_object_set_new(plain, "model", json_null());
    o = serving_post_json(CHAT, plain, 200);
    ck_assert_str_eq(serving_text_at(o, "message", "content"),
                     serving_text_at(named, "message", "content"));
    ck_assert_str_eq(json_string_value(json_object_get(o, "model")), MODEL);
    json_decref(o);
    json_object_set_new(plain, "model", json_string(""));
    json_decref(serving_post_json(CHAT, plain, 200));
    json_object_del(plain, "model");
    o = serving_post_json(CHAT, plain, 200);
    ck_assert_str_eq(serving_text_at(o, "message", "content"),
                     serving_text_at(named, "message", "content"));
    json_decref(o);
    json_decref(plain);
    json_decref(named);
}
END_TEST

/* With several models there is no telling which one is meant. */
START_TEST(one_of_several_is_named)
{
    json_t *o = serving_post(CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}",
                             400);

    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(o, "error"), "param")),
                     "model");
    json_decref(o);
}
END_TEST

START_TEST(any_name_will_do)
{
    static const char *const more[] = {"--any-model", NULL};
    json_t *o;

    serving_start(more);
    o = serving_post(CHAT,
                     "{\"model\": \"gpt-4o\", \"messages\": [{\"role\": \"user\", \"content\": "
                     "\"Hi\"}], \"max_tokens\": 3}",
                     200);
    ck_assert_str_eq(json_string_value(json_object_get(o, "model")), MODEL);
    json_decref(o);
}
END_TEST

/* ---- bad requests ---- */

static const struct {
    const char *method, *path, *headers, *body;
    int status;
    const char *says; /* somewhere in the answer */
} bad[] = {
    {"POST", CHAT, NULL, "{", 400, "invalid_json"},
    {"POST", CHAT, NULL, "", 400, "invalid_json"},
    {"POST", CHAT, NULL, "[]", 400, "must be a JSON object"},
    {"POST", CHAT, NULL, "{\"a\": \"\xff\"}", 400, "invalid_json"},
    {"POST", CHAT, NULL, "{}", 400, "\"param\":\"messages\""},
    {"POST", CHAT, NULL, "{\"model\": 1}", 400, "\"param\":\"model\""},
    {"POST", CHAT, NULL, "{\"model\": \"other\"}", 404, "model_not_found"},
    {"POST", CHAT, NULL, "{\"model\": \"" MODEL "\"}", 400, "\"param\":\"messages\""},
    {"POST", CHAT, NULL, "{\"model\": \"" MODEL "\", \"messages\": []}", 400, "messages"},
    {"POST", CHAT, NULL, "{\"model\": \"" MODEL "\", \"messages\": [{}]}", 400, "messages[0]"},
    {"POST", CHAT, NULL, "{\"model\": \"" MODEL "\", \"messages\": [{\"role\": \"user\"}]}", 400,
     "messages[0].content"},
    {"POST", CHAT, NULL, ASK "7}]}", 400, "messages[0].content"},
    {"POST", CHAT, NULL, ASK "[{\"type\": \"image_url\"}]}]}", 400, "reads text alone"},
    {"POST", CHAT, NULL, FOX ", \"temperature\": \"hot\"}", 400, "\"param\":\"temperature\""},
    {"POST", CHAT, NULL, FOX ", \"temperature\": 1000}", 400, "0 to 2 is possible"},
    {"POST", CHAT, NULL, FOX ", \"top_p\": 1.5}", 400, "top_p"},
    {"POST", CHAT, NULL, FOX ", \"max_tokens\": 1.5}", 400, "a whole number"},
    {"POST", CHAT, NULL, FOX ", \"max_tokens\": 99999999999999999999999}", 400, "max_tokens"},
    {"POST", CHAT, NULL, FOX ", \"n\": 0}", 400, "\"param\":\"n\""},
    {"POST", CHAT, NULL, FOX ", \"stream\": \"yes\"}", 400, "stream"},
    {"POST", CHAT, NULL, FOX ", \"stop\": 5}", 400, "stop"},
    {"POST", CHAT, NULL, FOX ", \"stop\": [\"\"]}", 400, "stop"},
    {"POST", CHAT, NULL, FOX ", \"top_logprobs\": 3}", 400, "needs 'logprobs'"},
    {"POST", CHAT, NULL, FOX ", \"tools\": \"x\"}", 400, "tools"},
    {"POST", CHAT, NULL, FOX ", \"tool_choice\": 5}", 400, "tool_choice"},
    {"POST", CHAT, NULL, FOX ", \"response_format\": {\"type\": \"yaml\"}}", 400,
     "response_format"},
    {"POST", CHAT, NULL, FOX ", \"presence_penalty\": 3}", 400, "presence_penalty"},
    {"POST", CHAT, NULL, FOX ", \"logit_bias\": [1]}", 400, "logit_bias"},
    {"POST", CHAT, NULL, FOX ", \"logit_bias\": {\"99999\": 1}}", 400, "0 to 4095"},
    {"POST", CHAT, NULL, FOX ", \"samplers\": [\"x\"]}", 400, "samplers"},
    {"POST", "/v1/completions", NULL, "{\"model\": \"" MODEL "\"}", 400, "\"param\":\"prompt\""},
    {"POST", "/v1/completions", NULL, "{\"model\": \"" MODEL "\", \"prompt\": [1, -1]}", 400,
     "prompt"},
    {"POST", "/v1/completions", NULL, "{\"model\": \"" MODEL "\", \"prompt\": [[1], [\"x\"]]}", 400,
     "prompt"},
    {"POST", "/tokenize", NULL, "{\"content\": 5}", 400, "content"},
    {"POST", "/detokenize", NULL, "{\"tokens\": [99999]}", 400, "tokens[0]"},
    {"GET", CHAT, NULL, NULL, 405, "use POST"},
    {"PUT", "/v1/models", NULL, "{}", 405, "use GET"},
    {"TRACE", "/v1/models", NULL, NULL, 405, "use GET"},
    {"GET", "/nowhere", NULL, NULL, 404, "not_found"},
    {"GET", "/../../etc/passwd", NULL, NULL, 404, "not_found"},
    {"GET", "/v1/models/", NULL, NULL, 404, "not_found"},
    {"GET", "/v1/models/other", NULL, NULL, 404, "model_not_found"},
    {"POST", CHAT, "Host: localhost\r\nContent-Type: text/plain\r\n", "{}", 415,
     "application/json"},
    {"POST", CHAT, "Host: localhost\r\n", "{}", 415, "application/json"},
    {"GET", "/v1/models", "Host: evil.example\r\n", NULL, 403, "host_not_allowed"},
    {"GET", "/v1/models", "Host: localhost\r\nOrigin: http://evil.example\r\n", NULL, 403,
     "origin_not_allowed"},
    {"POST", CHAT, JSON_HEADERS "Origin: null\r\n", FOX "}", 403, "origin_not_allowed"},
    {"POST", CHAT, JSON_HEADERS "Content-Length: 10737418240\r\n", NULL, 413, "body_too_large"},
    {"POST", CHAT, JSON_HEADERS "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", NULL, 400,
     ""},
    {"POST", CHAT, JSON_HEADERS "Content-Length: 2\r\nContent-Length: 3\r\n", NULL, 400, ""},
    {"POST", CHAT, JSON_HEADERS "Content-Encoding: gzip\r\n", FOX "}", 415, "gzip"},
    {"POST", CHAT, JSON_HEADERS "Expect: banana\r\n", FOX "}", 417, "100-continue"},
};

START_TEST(bad_requests_are_told_why)
{
    struct reply r;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *type;

        r = serving_ask(bad[i].method, bad[i].path, bad[i].headers, bad[i].body);
        ck_assert_msg(r.status == bad[i].status && r.body && strstr(r.body, bad[i].says),
                      "%s %s %s: %d %s", bad[i].method, bad[i].path,
                      bad[i].body ? bad[i].body : bad[i].headers, r.status, r.body ? r.body : "");
        type = bad[i].says[0] ? strstr(r.body, "{\"error\":{\"message\":") : r.body;
        ck_assert_msg(type != NULL, "%s", r.body);
        ck_assert(r.status != 405 || strcasestr(r.head, "allow: ") != NULL);
        free(r.head);
    }
    r = serving_ask("GET", "/health", "Host: 127.0.0.1:1\r\n", NULL);
    ck_assert_int_eq(r.status, 200);
    free(r.head);
}
END_TEST

START_TEST(a_conversation_that_is_too_long)
{
    static char body[64000];
    int n = snprintf(body, sizeof body, ASK "\"");
    json_t *o;
    const char *text;

    while (n < 40000)
        n += snprintf(body + n, sizeof body - (size_t)n, "hello world ");
    snprintf(body + n, sizeof body - (size_t)n, "\"}], \"stream\": true}");
    o = serving_post(CHAT, body, 400);
    text = json_string_value(json_object_get(json_object_get(o, "error"), "code"));
    ck_assert_str_eq(text, "context_length_exceeded");
    json_decref(o);
}
END_TEST

/* Deep, long, cut off, and no HTTP at all: it goes on. */
START_TEST(hostile_bytes)
{
    static char deep[200001];
    static const char *const raw[] = {
        "\x16\x03\x01\x02\x00\x01", "GET\r\n\r\n",
        "POST " CHAT " HTTP/1.1\r\nHost: x\r\nContent-Le",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nA B\r\nC",
        "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: 50\r\n\r\n{\"model\""};
    struct reply r;

    memset(deep, '[', sizeof deep - 1);
    r = serving_ask("POST", CHAT, NULL, deep);
    ck_assert_int_eq(r.status, 400);
    free(r.head);
    for (size_t i = 0; i < sizeof raw / sizeof *raw; i++) {
        int fd = serving_dial();

        serving_say(fd, raw[i], strlen(raw[i]));
        close(fd);
    }
    r = serving_ask("GET", "/v1/models", NULL, NULL);
    ck_assert_int_eq(r.status, 200);
    free(r.head);
}
END_TEST

#define CHUNKED                                                    \
    "POST " CHAT " HTTP/1.1\r\nConnection: close\r\n" JSON_HEADERS \
    "Transfer-Encoding: chunked\r\n\r\n"

/* Sends it so many bytes at a time. What came back, within a moment where it may be nothing. */
static struct reply send_pieces(const char *text, size_t n, size_t piece, bool whole)
{
    const struct timeval moment = {.tv_usec = 200000};
    int fd = serving_dial();

    if (!whole)
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment);
    for (size_t at = 0; at < n; at += piece)
        serving_say(fd, text + at, n - at < piece ? n - at : piece);
    return serving_read_reply(fd);
}

static void put_chunk(char *out, size_t room, const char *body)
{
    size_t n = strlen(out);

    snprintf(out + n, room - n, "%zx;x=\"y\"\r\n%s\r\n", strlen(body), body);
}

/* Bodies in chunks, requests that come byte by byte, heads and bodies beyond every bound. */
START_TEST(pieces_of_requests)
{
    static const char *const wrong[] = {CHUNKED "zz\r\n{}\r\n0\r\n\r\n",
                                        CHUNKED "-1\r\n{}\r\n0\r\n\r\n",
                                        CHUNKED "fffffffffffffffff\r\n{}\r\n",
                                        CHUNKED "5\r\n{}\r\n0\r\n\r\n",
                                        "POST " CHAT " HTTP/1.1\r\n" JSON_HEADERS
                                        "Content-Length: -5\r\n\r\n{}",
                                        "POST " CHAT " HTTP/1.1\r\n" JSON_HEADERS
                                        "Content-Length: 2\r\nContent-Length: 9\r\n\r\n{}",
                                        "GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n",
                                        "\r\n\r\n\r\n"};
    static char text[64 << 10];
    struct reply r;

    snprintf(text, sizeof text, "%s", CHUNKED);
    put_chunk(text, sizeof text, ASK "\"Tell me ");
    put_chunk(text, sizeof text, "a story about a fox.\"}], \"max_tokens\": 2}");
    snprintf(text + strlen(text), 32, "0\r\nTrailer: 1\r\n\r\n");
    for (size_t piece = 1; piece < 40; piece += 13) {
        r = send_pieces(text, strlen(text), piece, true);
        ck_assert_msg(r.status == 200, "pieces of %zu: %d %s", piece, r.status, r.head);
        free(r.head);
    }
    memset(text, 'a', sizeof text);
    memcpy(text, "GET /health HTTP/1.1\r\nX: ", 25);
    r = send_pieces(text, sizeof text, sizeof text, true);
    ck_assert_msg(r.status >= 400 && r.status < 500, "a head of 64 KiB: %d", r.status);
    free(r.head);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        r = send_pieces(wrong[i], strlen(wrong[i]), 4096, false);
        ck_assert_msg(r.status < 500 || r.status == 505, "%s: %d", wrong[i], r.status);
        ck_assert_msg(r.status != 200, "%s: %s", wrong[i], r.body);
        free(r.head);
    }
}
END_TEST

static uint32_t dice(uint32_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x >> 8;
}

/* Some bytes of it are others, cut, or there twice. */
static size_t spoil(char *text, size_t n, size_t room, uint32_t *x)
{
    for (uint32_t k = 1 + dice(x) % 6; k && n > 20; k--) {
        size_t at = dice(x) % n, len = 1 + dice(x) % 12;

        len = len < n - at ? len : n - at;
        switch (dice(x) % 3) {
        case 0: text[at] = (char)dice(x); break;
        case 1:
            memmove(text + at, text + at + len, n - at - len);
            n -= len;
            break;
        default:
            if (n + len > room)
                break;
            memmove(text + at + len, text + at, n - at);
            n += len;
        }
    }
    return n;
}

/* The same each time: from a fixed generator. */
START_TEST(spoilt_requests)
{
    static const char whole[] = "POST " CHAT " HTTP/1.1\r\nConnection: close\r\n" JSON_HEADERS
                                "Content-Length: 98\r\n\r\n" ASK "\"Hi\"}],\"max_tokens\":1}";
    static const char chunked[] = CHUNKED "62\r\n" ASK "\"Hi\"}],\"max_tokens\":1}\r\n0\r\n\r\n";
    uint32_t x = 2463534242u;
    struct reply r;

    for (int i = 0; i < 120; i++) {
        const char *from = i % 2 ? whole : chunked;
        char text[1024];
        size_t n = strlen(from);

        memcpy(text, from, n);
        n = spoil(text, n, sizeof text, &x);
        r = send_pieces(text, n, 1 + dice(&x) % 200, false);
        ck_assert_msg(r.status < 500 || r.status == 505, "request %d: %d %s", i, r.status, r.body);
        free(r.head);
    }
    r = serving_ask("POST", CHAT, NULL, FOX ", \"max_tokens\": 2}");
    ck_assert_int_eq(r.status, 200);
    free(r.head);
}
END_TEST

/* ---- time ---- */

static double seconds_since(const struct timespec *begun)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begun->tv_sec) + 1e-9 * (double)(now.tv_nsec - begun->tv_nsec);
}

/* Whether the other side has ended the connection. */
static bool is_ended(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);

    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

/* Never silent for its second, and never done: a head has two of them, a body ten. */
START_TEST(requests_that_drip)
{
    static const char head[] = "POST " CHAT " HTTP/1.1\r\n" JSON_HEADERS
                               "Content-Length: 500\r\n\r\n";
    struct timespec begun;
    double ended[2] = {0, 0};
    int fd[2];

    serving_start((const char *const[]){"--timeout", "1", NULL});
    fd[0] = serving_dial();
    fd[1] = serving_dial();
    clock_gettime(CLOCK_MONOTONIC, &begun);
    serving_say(fd[0], head, 20);
    serving_say(fd[1], head, strlen(head));
    while (seconds_since(&begun) < 30.0 && !(ended[0] && ended[1])) {
        usleep(200000);
        for (int i = 0; i < 2; i++)
            if (!ended[i] && (is_ended(fd[i]) || send(fd[i], "a", 1, MSG_NOSIGNAL) < 0))
                ended[i] = seconds_since(&begun);
        if (ended[0] && !ended[1])
            json_decref(serving_post(CHAT, FOX ", \"max_tokens\": 1}", 200));
    }
    ck_assert_msg(ended[0] > 1.5 && ended[0] < 8.0, "head: %.1f s", ended[0]);
    ck_assert_msg(ended[1] > 9.0 && ended[1] < 20.0, "body: %.1f s", ended[1]);
    close(fd[0]);
    close(fd[1]);
}
END_TEST

/* A client whose kernel takes little for it. */
static int ask_through_a_slit(const char *path, const char *body, size_t len)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)serving_port)};
    char head[300];
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
    int n = snprintf(head, sizeof head,
                     "POST %s HTTP/1.1\r\n" JSON_HEADERS "Content-Length: %zu\r\n\r\n", path, len);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small); /* counts only before connect */
    ck_assert(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    serving_say(fd, head, (size_t)n);
    serving_say(fd, body, len);
    return fd;
}

/* Takes so much of the answer that the server sees something go, and that it never catches up. */
static void sip(int fd)
{
    char some[4096];
    ssize_t got = 1;

    for (size_t n = 0; n < (100u << 10) && got > 0; n += got > 0 ? (size_t)got : 0)
        got = recv(fd, some, sizeof some, MSG_DONTWAIT);
}

/* Until the log says that it was too slow. The seconds; others are answered meanwhile. < 0: this
 * test itself was not scheduled for a second, on a busy machine: it was silent. */
static double sip_on(int fd, const char *path)
{
    size_t before = strlen(serving_log_text());
    struct timespec begun;
    char line[200];

    snprintf(line, sizeof line, "POST %s 200", path);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    while (seconds_since(&begun) < 40.0) {
        char *text = strstr(serving_log_text() + before, line),
             *end = text ? strchr(text, '\n') : NULL;

        if (end) {
            *end = 0;
            if (strstr(text, "silent for too long")) {
                close(fd);
                return -1.0;
            }
            ck_assert_msg(strstr(text, "the client took too long") != NULL, "%s", text);
            break;
        }
        sip(fd);
        json_decref(serving_post("/v1/messages/count_tokens", FOX "}", 200));
        usleep(400000);
    }
    close(fd);
    return seconds_since(&begun);
}

static void no_session_is_taken(void)
{
    struct timespec begun;

    clock_gettime(CLOCK_MONOTONIC, &begun);
    while (metric("moetop_sessions_busy") != 0.0 && seconds_since(&begun) < 5.0)
        usleep(50000);
    ck_assert(metric("moetop_sessions_busy") == 0.0);
}

/* Never silent for its second, and ten of them behind: with an answer that is made while it is
 * read, and with one that is there. */
START_TEST(answers_that_are_sipped)
{
    static const char streams[] = FOX
        ", \"ignore_eos\": true, \"stream\": true, \"logprobs\": true, "
        "\"top_logprobs\": 20, \"n\": 4, \"max_tokens\": 900}";
    static const char begin[] = "{\"with_pieces\": true, \"content\": \"";
    size_t len = 400u << 10;
    char *whole;
    double took = -1.0;

    serving_start((const char *const[]){"--timeout", "1", NULL});
    if (!CHECKED_BUILD) { /* such a one is so slow that the client keeps up */
        for (int i = 0; i < 3 && took < 0.0; i++)
            took = sip_on(ask_through_a_slit(CHAT, streams, strlen(streams)), CHAT);
        ck_assert_msg(took > 9.0 && took < 25.0, "a stream: %.1f s", took);
        no_session_is_taken();
    }
    whole = long_body(begin, len);
    took = -1.0;
    for (int i = 0; i < 3 && took < 0.0; i++)
        took = sip_on(ask_through_a_slit("/tokenize", whole, len), "/tokenize");
    ck_assert_msg(took > 9.0 && took < 25.0, "ids: %.1f s", took);
    free(whole);
}
END_TEST

/* ---- ends ---- */

static void slow_server(void)
{
    static const char *const pace[] = {"--pace", "25", NULL};

    serving_start(pace);
}

/* 1000 tokens at 25 a second: who does not notice is at it for 40 seconds. */
START_TEST(a_client_that_leaves)
{
    int streams = ask_slowly(", \"stream\": true"), waits;
    char *line;

    hear_until(streams, "Once");
    close(streams);
    line = serving_wait_for_log("client gone");
    while (line > serving_log_text() && line[-1] != '\n')
        line--;
    /* what was heard, what was on its way, and two tokens */
    ck_assert_msg(strstr(line, " + ") && atoi(strstr(line, " + ") + 3) < 6, "%.200s", line);
    waits = ask_slowly("");
    usleep(100000);
    close(waits);
    while (!strstr(strstr(serving_log_text(), "client gone") + 1, "client gone"))
        usleep(5000);
}
END_TEST

/* Another one is answered, by one token, and nobody else gets any: the engine runs, these wait. */
static bool stands_still(void)
{
    double before = metric("moetop_completion_tokens_total");

    json_decref(serving_post(CHAT, FOX ", \"max_tokens\": 1}", 200));
    usleep(300000);
    return before > 100.0 && metric("moetop_completion_tokens_total") <= before + 1.0;
}

/* Every line of a stream is whole: JSON, or its end. How many tokens they tell of. */
static int count_events(char *body)
{
    int n = 0;
    char *rest, *line = strtok_r(body, "\n", &rest), *last = NULL;

    for (; line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *o, *choice;

        if (strncmp(line, "data: ", 6) != 0)
            continue;
        last = line + 6;
        if (strcmp(last, "[DONE]") == 0)
            continue;
        ck_assert_msg((o = json_loads(last, 0, NULL)) != NULL, "half a line: %.200s", last);
        choice = json_array_get(json_object_get(o, "choices"), 0);
        n += (int)json_array_size(json_object_get(json_object_get(choice, "logprobs"), "content"));
        json_decref(o);
    }
    ck_assert_str_eq(last, "[DONE]");
    return n;
}

/* Its answers stand still until it reads; then they come whole. Others are answered meanwhile. */
START_TEST(a_client_that_does_not_read)
{
#define SLOW_TOKENS 900
    /* on a busy machine the usual half minute may pass before all this is done */
    static const char *const patient[] = {"--timeout", "900", NULL};
    char body[400], head[300];
    /* not smaller: of a segment that its buffer cannot hold the kernel hears again after minutes */
    int fd, n, small = 64 << 10, large = 4 << 20;
    struct reply r;

#ifdef MOETOP_DEBUG
    puts("SKIPPED: this build is not the release, and takes minutes");
    return;
#endif
    serving_start(patient);
    fd = serving_dial();
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    snprintf(body, sizeof body,
             FOX ", \"ignore_eos\": true, \"stream\": true, \"logprobs\": true, "
                 "\"top_logprobs\": 20, \"n\": 3, \"max_tokens\": %d}",
             SLOW_TOKENS);
    n = snprintf(head, sizeof head,
                 "POST " CHAT " HTTP/1.1\r\n" JSON_HEADERS
                 "Connection: close\r\nContent-Length: %zu\r\n\r\n",
                 strlen(body));
    serving_say(fd, head, (size_t)n);
    serving_say(fd, body, strlen(body));
    while (!stands_still() || !stands_still())
        ck_assert(metric("moetop_completion_tokens_total") < 3.0 * SLOW_TOKENS);
    ck_assert(metric("moetop_completion_tokens_total") < 3.0 * SLOW_TOKENS);
    ck_assert(metric("moetop_sessions_busy") == 3.0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &large, sizeof large);
    r = serving_read_reply(fd);
    ck_assert_int_eq(r.status, 200);
    ck_assert_int_eq(count_events(r.body), 3 * SLOW_TOKENS);
    ck_assert(metric("moetop_requests_cancelled_total") == 0.0);
    free(r.head);
}
END_TEST

START_TEST(what_is_under_way_ends_first)
{
    int fd = ask_slowly(", \"stream\": true, \"max_tokens\": 20");
    size_t n;
    char *text;

    hear_until(fd, "Once");
    ck_assert_int_eq(serving_end(), 0);
    text = serving_hear(fd, &n);
    ck_assert_msg(strstr(text, "[DONE]") != NULL, "%.300s", text);
    free(text);
    close(fd);
}
END_TEST

/* HTTP/1.0 reads to the end of the connection: that comes with the answer, not when somebody's
 * patience ends. */
START_TEST(connections_end_with_their_answer)
{
    for (int i = 0; i < 4; i++) {
        char head[700], body[400];
        struct timespec begun;
        struct reply r;
        int fd = serving_dial();

        clock_gettime(CLOCK_MONOTONIC, &begun);
        snprintf(body, sizeof body, FOX ", \"max_tokens\": 3, \"stream\": %s}",
                 i & 1 ? "true" : "false");
        snprintf(head, sizeof head,
                 "POST " CHAT " HTTP/1.%d\r\n%s" JSON_HEADERS "Content-Length: %zu\r\n\r\n%s",
                 i >> 1, i >> 1 ? "Connection: close\r\n" : "", strlen(body), body);
        serving_say(fd, head, strlen(head));
        r = serving_read_reply(fd);
        ck_assert_int_eq(r.status, 200);
        ck_assert_msg(seconds_since(&begun) < 10.0, "%d: %.1f s", i, seconds_since(&begun));
        free(r.head);
    }
}
END_TEST

/* Connections that are kept do not keep the serving_pid; an answer of its last moments says so. */
START_TEST(a_kept_connection_does_not_keep_the_server)
{
    static const char health[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int idle = serving_dial(), fd;
    struct timespec begun;
    char *text;
    size_t n;

    serving_say(idle, health, strlen(health));
    hear_until(idle, "ok");
    fd = ask_slowly(", \"max_tokens\": 15");
    usleep(200000);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    ck_assert_int_eq(serving_end(), 0);
    ck_assert_msg(seconds_since(&begun) < 10.0, "%.1f s", seconds_since(&begun));
    text = serving_hear(fd, &n);
    ck_assert_msg(strcasestr(text, "connection: close") && strstr(text, "Once upon"), "%.300s",
                  text);
    free(text);
    close(fd);
    close(idle);
}
END_TEST

static int listening;
static struct sockaddr_un word;

/* As a service manager starts it: descriptor 3 listens, and somebody waits for its word. */
static void as_service(void)
{
    char text[300];

    dup2(listening, 3);
    snprintf(text, sizeof text, "%d", (int)getpid());
    setenv("LISTEN_PID", text, 1);
    setenv("LISTEN_FDS", "1", 1);
    setenv("NOTIFY_SOCKET", word.sun_path, 1);
}

static void hear_word(int fd, const char *what)
{
    char text[200];
    ssize_t n = recv(fd, text, sizeof text - 1, 0);

    ck_assert_int_gt(n, 0);
    text[n] = 0;
    ck_assert_msg(strncmp(text, what, strlen(what)) == 0, "%s", text);
}

START_TEST(under_a_service_manager)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    int notify = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct reply r;

    word.sun_family = AF_UNIX;
    snprintf(word.sun_path, sizeof word.sun_path, "%.90s/notify", support_tmpdir());
    unlink(word.sun_path);
    ck_assert_int_eq(bind(notify, (struct sockaddr *)&word, sizeof word), 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listening = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listening, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(listening, 16), 0);
    ck_assert_int_eq(getsockname(listening, (struct sockaddr *)&a, &n), 0);
    serving_prepare = as_service;
    serving_start(NULL);
    serving_prepare = NULL;
    hear_word(notify, "READY=1");
    ck_assert_int_eq(serving_port, ntohs(a.sin_port));
    r = serving_ask("GET", "/health", NULL, NULL);
    ck_assert_int_eq(r.status, 200);
    free(r.head);
    ck_assert_int_eq(serving_end(), 0);
    hear_word(notify, "STOPPING=1");
    close(notify);
    close(listening);
    unlink(word.sun_path);
}
END_TEST

/* A long system prompt; the server is killed behind the first answer. */
START_TEST(a_restart_does_not_read_again)
{
    char folder[300], system[2000] = "", body[2500];
    const char *const more[] = {"--prompt-cache", folder, "--prompt-cache-size", "100M", NULL};
    json_t *first, *second, *usage, *details;
    int prompt;

    snprintf(folder, sizeof folder, "%s/prompts", support_tmpdir());
    for (int i = 0; i < 40; i++)
        strcat(system, "You tell stories about animals of the wood. ");
    snprintf(body, sizeof body,
             "{\"model\": \"" MODEL "\", \"max_tokens\": 20, \"temperature\": 0, \"messages\": "
             "[{\"role\": \"system\", \"content\": \"%s\"}, "
             "{\"role\": \"user\", \"content\": \"A fox?\"}]}",
             system);
    serving_start(more);
    first = serving_post(CHAT, body, 200);
    while (metric("moetop_prompt_cache_written_total") < 2.0)
        usleep(5000);
    kill(serving_pid, SIGKILL);
    waitpid(serving_pid, NULL, 0);
    serving_start(more);
    second = serving_post(CHAT, body, 200);
    usage = json_object_get(second, "usage");
    details = json_object_get(usage, "prompt_tokens_details");
    prompt = (int)json_integer_value(json_object_get(usage, "prompt_tokens"));
    ck_assert_int_gt(prompt, 300);
    ck_assert_int_ge((int)json_integer_value(json_object_get(details, "stored_tokens")),
                     prompt - 2);
    ck_assert(json_equal(json_object_get(first, "choices"), json_object_get(second, "choices")));
    ck_assert(metric("moetop_stored_tokens_total") >= prompt - 2);
    ck_assert(metric("moetop_prompt_cache_bytes") > 0.0);
    json_decref(first);
    json_decref(second);
}
END_TEST

START_TEST(keys)
{
    static const char *const wrong[] = {"",
                                        "Authorization: Bearer other\r\n",
                                        "Authorization: Bearer key-on\r\n",
                                        "Authorization: Bearer key-one1\r\n",
                                        "Authorization: Bearer \r\n",
                                        "x-api-key: x\r\n"};
    static const char *const right[] = {"Authorization: Bearer key-one\r\n",
                                        "x-api-key: key two\r\n"};
    char path[300], headers[200];
    struct reply r;
    FILE *f;

    snprintf(path, sizeof path, "%s/keys", support_tmpdir());
    f = fopen(path, "w");
    fputs("# ours\nkey-one\n\n  key two \n", f);
    fclose(f);
    serving_start((const char *const[]){"--api-key-file", path, "--alias", "tale", NULL});
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(headers, sizeof headers, "Host: localhost\r\n%s", wrong[i]);
        r = serving_ask("GET", "/v1/models", headers, NULL);
        ck_assert_msg(r.status == 401, "%s: %d", wrong[i], r.status);
        free(r.head);
    }
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        snprintf(headers, sizeof headers, "Host: localhost\r\n%s", right[i]);
        r = serving_ask("GET", "/v1/models/tale", headers, NULL);
        ck_assert_msg(r.status == 200, "%s: %d", right[i], r.status);
        free(r.head);
    }
    r = serving_ask("GET", "/health", "Host: localhost\r\n", NULL);
    ck_assert_int_eq(r.status, 200);
    free(r.head);
}
END_TEST

/* ---- on a terminal ---- */

static struct {
    int fd;
    char text[1 << 18];
    size_t n;
} screen;

/* What the terminal was sent so far; waits a moment for more. */
static bool screen_take(void)
{
    struct pollfd p = {.fd = screen.fd, .events = POLLIN};
    ssize_t n;

    if (poll(&p, 1, 100) <= 0)
        return true;
    if (screen.n > sizeof screen.text - 8192)
        screen.n = 0; /* pictures: the newest are enough */
    n = read(screen.fd, screen.text + screen.n, 4096);
    screen.n += n > 0 ? (size_t)n : 0;
    screen.text[screen.n] = 0;
    return n > 0;
}

static char *screen_see(const char *what)
{
    char *at;

    while (!(at = strstr(screen.text, what))) {
        /* Ctrl-L: the whole picture, not what differs from the one before */
        ck_assert_int_eq(write(screen.fd, "\f", 1), 1);
        ck_assert_msg(screen_take(), "'%s' never came: %s", what, screen.text);
    }
    return at;
}

static void start_on_terminal(void)
{
    struct winsize size = {.ws_row = 40, .ws_col = 120};
    sigset_t theirs, before;

    serving_find_binary();
    memset(&screen, 0, sizeof screen);
    sigemptyset(&theirs);
    sigaddset(&theirs, SIGINT);
    sigaddset(&theirs, SIGTERM);
    fflush(stdout);
    sigprocmask(SIG_BLOCK, &theirs,
                &before); /* Check's handlers are the child's until it is another */
    serving_pid = forkpty(&screen.fd, NULL, NULL, &size);
    if (serving_pid == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        setenv("TERM", "xterm", 1);
        setenv("LC_ALL", "C.UTF-8", 1);
        setenv("XDG_CACHE_HOME", support_tmpdir(), 1);
        setenv("XDG_CONFIG_HOME", support_tmpdir(), 1);
        execl(serving_binary, serving_binary, "--serve", "--port", "0", "-t", "2", "-np", "2",
              "--pace", "8", (char *)NULL);
        _exit(127);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    serving_port = atoi(screen_see("http://127.0.0.1:") + strlen("http://127.0.0.1:"));
}

START_TEST(on_a_terminal_it_has_a_dashboard)
{
    struct reply r;
    int fd;

    start_on_terminal();
    screen_see("sessions");
    screen_see("quits");    /* it is ready */
    screen_see("requests"); /* a picture comes in pieces */
    screen_see("experts");
    screen_see("memory");
    ck_assert(!strstr(screen.text, "moetop: "));
    r = serving_ask("GET", "/v1/models", NULL, NULL);
    ck_assert_int_eq(r.status, 200);
    free(r.head);
    screen_see("GET models");
    fd = ask_slowly(", \"stream\": true, \"max_tokens\": 20");
    hear_until(fd, "Once");
    screen_see("answering");
    screen_see("1 of 2");
    /* what is under way ends before it does */
    ck_assert_int_eq(write(screen.fd, "q", 1), 1);
    screen_see("at once");
    hear_until(fd, "[DONE]");
    close(fd);
    while (!strstr(screen.text, "\033[?1049l") && screen_take())
        ; /* the terminal as it was */
    ck_assert(strstr(screen.text, "\033[?1049l") != NULL);
    while (screen_take()) /* until it has ended */
        ;
    ck_assert_int_eq(serving_end(), 0);
    close(screen.fd);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("serve");
    TCase *t = tcase_create("plain"), *slow = tcase_create("slow"),
          *registry = tcase_create("shelf"), *own = tcase_create("own");

    tcase_add_checked_fixture(t, serving_plain_server, serving_end_well);
    tcase_add_test(t, chat_whole_and_streamed);
    tcase_add_test(t, choices_stops_and_seeds);
    tcase_add_test(t, probabilities);
    tcase_add_test(t, what_was_read_is_not_read_again);
    tcase_add_test(t, two_chats_beside_older_ones);
    tcase_add_test(t, answers_keep_to_what_is_asked);
    tcase_add_test(t, calls_that_are_demanded);
    tcase_add_test(t, texts_are_continued_and_scored);
    tcase_add_test(t, ids_and_back);
    tcase_add_test(t, pieces_of_a_text);
    tcase_add_test(t, ids_of_megabytes);
    tcase_add_test(t, figures_for_boards);
    tcase_add_test(t, responses);
    tcase_add_test(t, messages);
    tcase_add_test(t, eight_clients_get_what_each_gets_alone);
    tcase_add_test(t, a_model_need_not_be_named);
    tcase_add_test(t, bad_requests_are_told_why);
    tcase_add_test(t, a_conversation_that_is_too_long);
    tcase_add_test(t, hostile_bytes);
    tcase_add_test(t, pieces_of_requests);
    tcase_add_test(t, spoilt_requests);
    tcase_add_test(t, connections_end_with_their_answer);
    suite_add_tcase(s, t);
    tcase_add_checked_fixture(slow, slow_server, serving_end_well);
    tcase_add_test(slow, a_client_that_leaves);
    tcase_add_test(slow, what_is_under_way_ends_first);
    tcase_add_test(slow, a_kept_connection_does_not_keep_the_server);
    suite_add_tcase(s, slow);
    tcase_add_checked_fixture(registry, shelf_server, serving_end_well);
    tcase_add_test(registry, a_request_names_another_model);
    tcase_add_test(registry, a_model_that_cannot_be_loaded);
    tcase_add_test(registry, several_name_several_models);
    tcase_add_test(registry, bad_requests_wait_as_well);
    tcase_add_test(registry, one_of_several_is_named);
    suite_add_tcase(s, registry);
    tcase_add_checked_fixture(own, NULL, serving_end_well);
    tcase_add_test(own, tools_reach_the_template);
    tcase_add_test(own, tools_reach_an_odd_template);
    tcase_add_test(own, native_calls_are_told);
    tcase_add_test(own, a_call_is_not_read_again);
    tcase_add_test(own, items_of_responses_become_messages);
    tcase_add_test(own, any_name_will_do);
    tcase_add_loop_test(own, both_sides_answer_at_once, 0, 2);
    tcase_add_test(own, keys);
    tcase_add_test(own, a_client_that_does_not_read);
    tcase_add_test(own, requests_that_drip);
    tcase_add_test(own, answers_that_are_sipped);
    tcase_add_test(own, adapters_of_requests);
    tcase_add_test(own, a_restart_does_not_read_again);
    tcase_add_test(own, under_a_service_manager);
    tcase_add_test(own, on_a_terminal_it_has_a_dashboard);
    suite_add_tcase(s, own);
    return s;
}

int main(void)
{
    return support_run(suite());
}
