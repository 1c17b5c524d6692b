/* engine/text/tool_calls: what models say of calls, found where it stands. */
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/text/answer_parts.h"
#include "engine/text/call_stream.h"
#include "engine/text/tool_calls.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char found[1024];

static void put(const char *text, struct call_slice s, const char *after)
{
    size_t n = strlen(found);

    snprintf(found + n, sizeof found - n, "%.*s%s", (int)s.len, text + s.at, after);
}

/* name key=value key=value; or name whole; */
static int take(void *ctx, const char *text, const struct tool_call *call)
{
    struct call_slice key, value;
    size_t at = 0;
    bool any = tool_call_has_members(text, call);

    ck_assert(ctx == NULL);
    put(text, call->name, "");
    while (tool_call_member(text, call, &at, &key, &value)) {
        strcat(found, " ");
        put(text, key, "=");
        put(text, value, "");
    }
    if (!any) {
        strcat(found, " ");
        put(text, call->arguments, "");
    }
    strcat(found, ";");
    return 0;
}

static const struct {
    const char *text, *found;
    int calls;
} cases[] = {
    {"{\"name\": \"f\", \"arguments\": {}}", "f;", 1},
    {" {\"name\":\"f\",\"arguments\":{\"a\":\"x\\\"},{\",\"b\" : [1, {\"c\": \"]\"}] "
     ",\"d\":-1.5e3}}\n",
     "f a=\"x\\\"},{\" b=[1, {\"c\": \"]\"}] d=-1.5e3;", 1},
    {"{\"parameters\": {\"a\": null}, \"name\": \"g\"}", "g a=null;", 1},
    {"{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}", "f \"{\\\"a\\\": 1}\";", 1},
    {"[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": [2]}]", "f;g [2];",
     2},
    {"{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": {}}", "f;g;", 2},
    {"{\"name\": \"f\", \"name\": \"g\", \"arguments\": {}}", "g;", 1}, /* the last one counts */
    {"", "", 0},
    {" \n", "", 0},
    {"[]", "", 0},
    {"[[{\"name\": \"f\", \"arguments\": {}}]]", "", 0},
    {"{\"name\": 5, \"arguments\": {}}", "", 0},
    {"{\"name\": \"f\"}", "", 0},
    {"{\"name\": \"f\", \"arguments\": {}} and so on", "", 0},
    {"{\"name\": \"f\", \"arguments\": {}}{\"name\": \"g\", \"arg", "", 0},
    {"[find(city=\"Paris\"", "", 0},
    {"two words", "", 0},
    {"{\"name\": \"f\", \"arguments\": {\"a\": \"", "", 0},
};

START_TEST(calls_are_found)
{
    const char *text = cases[_i].text;
    size_t n = strlen(text);
    char *copy = malloc(n ? n : 1); /* a sanitizer sees what is read behind its end */

    found[0] = 0;
    memcpy(copy, text, n);
    ck_assert_int_eq(tool_calls_each(copy, 0, n, take, NULL), cases[_i].calls);
    ck_assert_str_eq(found, cases[_i].found);
    for (size_t cut = 0; cut < n; cut++) { /* as it is while it streams */
        char *half = malloc(cut ? cut : 1);

        memcpy(half, text, cut);
        ck_assert_int_ge(tool_calls_each(half, 0, cut, NULL, NULL), 0);
        free(half);
    }
    free(copy);
}
END_TEST

/* A call of each family's template, and what it says. */
static const struct {
    const char *text, *calls;
} families[] = {
    /* Cohere */
    {"[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": 1}}\n]",
     "[[\"f\", {\"a\": 1}]]"},
    /* harmony, as answer_parts tells it */
    {"{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n{\"name\": \"\\u00e9\", \"arguments\": {}}",
     "[[\"f\", {\"a\": 1}], [\"\u00e9\", {}]]"},
    /* Mistral to v7, and from v11 on */
    {"[{\"name\": \"f\", \"arguments\": {\"a\": [1]}, \"id\": \"123456789\"}]",
     "[[\"f\", {\"a\": [1]}]]"},
    {"f[ARGS]{\"a\": \"x\"}[TOOL_CALLS]g_2[CALL_ID]123456789[ARGS]{}",
     "[[\"f\", {\"a\": \"x\"}], [\"g_2\", {}]]"},
    {"[TOOL_CALLS]f[ARGS]{\"a\": \"x\"}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}",
     "[[\"f\", {\"a\": \"x\"}], [\"g\", {}]]"},
    {"f-1[ARGS]{\"a\": \"x\"}", "[[\"f-1\", {\"a\": \"x\"}]]"},
    /* DeepSeek */
    {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜>\n"
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜>",
     "[[\"f\", {\"a\": 1}], [\"g\", {}]]"},
    {"<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>", "[[\"f\", {\"a\": 1}]]"},
    {"\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
     "string=\"true\">1</｜DSML｜parameter>\n"
     "<｜DSML｜parameter name=\"b\" string=\"false\">[1, "
     "2]</｜DSML｜parameter>\n</｜DSML｜invoke>\n",
     "[[\"f\", {\"a\": \"1\", \"b\": [1, 2]}]]"},
    /* Kimi K2 */
    {"<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|>"
     "<|tool_call_begin|>functions.g:12<|tool_call_argument_begin|>{}<|tool_call_end|>",
     "[[\"f\", {\"a\": 1}], [\"g\", {}]]"},
    /* Llama 3 */
    {"{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "[[\"f\", {\"a\": \"b\"}]]"},
    {"<function=f>{\"a\": 1}</function>", "[[\"f\", {\"a\": 1}]]"},
    /* Qwen3-Coder and those like it: what reads as JSON is no text */
    {"\n<function=f>\n<parameter=a>\nx\ny <b>\n</parameter>\n<parameter=n>\n3\n</parameter>\n"
     "</function>\n<function=g>\n</function>\n",
     "[[\"f\", {\"a\": \"x\\ny <b>\", \"n\": 3}], [\"g\", {}]]"},
    /* MiniMax M2 */
    {"\n<invoke name=\"f\">\n<parameter name=\"a\">x</parameter>\n<parameter name=\"b\">{\"c\": "
     "true}</parameter>\n</invoke>\n",
     "[[\"f\", {\"a\": \"x\", \"b\": {\"c\": true}}]]"},
    /* LFM2 */
    {"[f(a=\"x\\n'\", b='\\u00e9\\'', c=[1, -2.5, None], d={'e': True, \"g\": ()}), h()]",
     "[[\"f\", {\"a\": \"x\\n'\", \"b\": \"\u00e9'\", \"c\": [1, -2.5, null], \"d\": {\"e\": true, "
     "\"g\": []}}], [\"h\", {}]]"},
    /* Gemma 4 */
    {"call:f{a:<|\"|>x, \"y\"}<|\"|>,b:{c:[1,true],d:<|\"|><|\"|>}}call:g{}",
     "[[\"f\", {\"a\": \"x, \\\"y\\\"}\", \"b\": {\"c\": [1, true], \"d\": \"\"}}], [\"g\", {}]]"},
    /* GLM */
    {"f\n<arg_key>a</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>n</arg_key>\n"
     "<arg_value>3</arg_value>\n",
     "[[\"f\", {\"a\": \"Paris\", \"n\": 3}]]"},
    {"f<arg_key>a</arg_key><arg_value>x</arg_value>\ng\nh<arg_key>b</arg_key><arg_value>[]"
     "</arg_value>",
     "[[\"f\", {\"a\": \"x\"}], [\"g\", {}], [\"h\", {\"b\": []}]]"},
    /* Hy3 */
    {"\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>a</arg_key:opensource>\n"
     "<arg_value:opensource>Paris</arg_value:opensource>\n<arg_key:opensource>n</"
     "arg_key:opensource>\n"
     "<arg_value:opensource>3</arg_value:opensource>\n</tool_call:opensource>\n"
     "<tool_call:opensource>g<tool_sep:opensource>\n</tool_call:opensource>\n",
     "[[\"f\", {\"a\": \"Paris\", \"n\": 3}], [\"g\", {}]]"},
    /* LongCat-Flash */
    {"f\n<longcat_arg_key>a</longcat_arg_key>\n<longcat_arg_value>Paris</longcat_arg_value>\n"
     "<longcat_arg_key>n</longcat_arg_key>\n<longcat_arg_value>3</longcat_arg_value>\n",
     "[[\"f\", {\"a\": \"Paris\", \"n\": 3}]]"},
    {"\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n", "[[\"f\", {\"a\": 1}]]"},
    /* Solar Open */
    {"<|tool_call:begin|>call00001<|tool_call:name|>f<|tool_call:args|>{\"a\": 1}<|tool_call:end|>"
     "<|tool_call:begin|>x-2<|tool_call:name|>g<|tool_call:args|>{}<|tool_call:end|>",
     "[[\"f\", {\"a\": 1}], [\"g\", {}]]"},
    /* Muse Glimmer */
    {"\n<atem:invoke name=\"f\">\n<atem:parameter name=\"a\">x\ny</atem:parameter>\n"
     "<atem:parameter name=\"n\">2</atem:parameter>\n</atem:invoke>\n",
     "[[\"f\", {\"a\": \"x\\ny\", \"n\": 2}]]"},
    /* none of these */
    {"[f(1)]", NULL},
    {"[f(a=1) and so on]", NULL},
    {"[f(a=x)]", NULL},
    {"call:f{a:<|\"|>x}", NULL},
    {"<function=f>\n<parameter=a>\nx\n</function>", NULL},
    {"<function=a b>{}</function>", NULL},
    {"f<arg_key>a</arg_key>x", NULL},
    {"f[ARGS]{\"a\": }", NULL},
    {"<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}", NULL},
};

static int collect(void *list, const char *text, const struct tool_call *call)
{
    struct call_slice key, value;
    json_t *arguments = tool_call_arguments(text, call, NULL);
    size_t at = 0, n = 0;

    ck_assert(arguments && tool_call_has_members(text, call));
    while (tool_call_member(text, call, &at, &key, &value))
        n++;
    ck_assert_uint_eq(n, json_object_size(arguments));
    json_array_append_new(list, json_pack("[o, o]", tool_call_name(text, call), arguments));
    return 0;
}

START_TEST(calls_of_each_family)
{
    const char *text = families[_i].text;
    size_t n = strlen(text);
    json_t *want = families[_i].calls ? json_loads(families[_i].calls, 0, NULL) : json_array(),
           *calls = json_array();
    char *copy = malloc(n);

    memcpy(copy, text, n);
    ck_assert_int_eq(tool_calls_each(copy, 0, n, collect, calls), (int)json_array_size(want));
    ck_assert_msg(json_equal(calls, want), "%s", json_dumps(calls, 0));
    for (size_t cut = 0; cut < n; cut++) {
        char *half = malloc(cut ? cut : 1);

        memcpy(half, text, cut);
        ck_assert_int_ge(tool_calls_each(half, 0, cut, NULL, NULL), 0);
        free(half);
    }
    free(copy);
    json_decref(want);
    json_decref(calls);
}
END_TEST

/* What a call's values are by its tool's schema, where they are written as plain text. */
static const char schema[] =
    "{\"properties\": {\"s\": {\"type\": \"string\"}, \"i\": {\"type\": \"integer\"}, \"f\": "
    "{\"type\": \"number\"}, \"b\": {\"type\": \"boolean\"}, \"o\": {\"properties\": {}}, \"a\": "
    "{\"items\": {}}, \"sn\": {\"type\": [\"string\", \"null\"]}, \"si\": {\"anyOf\": [{\"type\": "
    "\"string\"}, {\"type\": \"integer\"}]}, \"e\": {\"enum\": [\"1\", \"2\"]}, \"r\": {\"$ref\": "
    "\"#/$defs/t\"}, \"c\": {\"$ref\": \"#/$defs/c\"}, \"no\": {}}, \"$defs\": {\"t\": {\"type\": "
    "\"string\"}, \"c\": {\"$ref\": \"#/$defs/c\"}}}";
static const struct {
    const char *key, *written, *value;
} typed[] = {
    {"s", "7", "\"7\""},
    {"s", "true", "\"true\""},
    {"s", "\"x\"", "\"\\\"x\\\"\""}, /* quotes that are its own */
    {"s", "{\"a\": 1}", "\"{\\\"a\\\": 1}\""},
    {"s", " a\nb ", "\" a\\nb \""},
    {"i", "7", "7"},
    {"i", " 7 ", "7"},
    {"i", "many", "\"many\""},
    {"f", "7", "7"},
    {"f", "7.5", "7.5"},
    {"b", "true", "true"},
    {"b", "True", "true"},
    {"b", "None", "null"},
    {"o", "{\"a\": [1]}", "{\"a\": [1]}"},
    {"o", "{'a': True}", "{\"a\": true}"},
    {"a", "[1, \"x\"]", "[1, \"x\"]"},
    {"a", "['x', 2] and so on", "\"['x', 2] and so on\""},
    {"sn", "null", "null"},
    {"sn", "7", "\"7\""},
    {"si", "7", "7"},
    {"si", "x", "\"x\""},
    {"e", "1", "\"1\""},
    {"r", "1", "\"1\""},
    {"c", "1", "1"}, /* a circle says nothing */
    {"no", "1", "1"},
    {"other", "1", "1"},
    {"other", "x", "\"x\""},
};

static int take_typed(void *ctx, const char *text, const struct tool_call *call)
{
    const json_t *parameters = json_object_get(ctx, "parameters");
    json_t *got = tool_call_arguments(text, call, parameters);
    char *dumped = tool_call_arguments_text(text, call, parameters);
    json_t *again = json_loads(dumped, 0, NULL);

    ck_assert(got && json_equal(got, again));
    json_object_set_new(ctx, "got", got);
    json_decref(again);
    mem_free(dumped);
    return 0;
}

START_TEST(values_are_what_the_schema_says)
{
    static const char *const ways[] = {
        "<function=f>\n<parameter=%s>\n%s\n</parameter>\n</function>",
        "f\n<arg_key>%s</arg_key>\n<arg_value>%s</arg_value>\n",
        "f\n<longcat_arg_key>%s</longcat_arg_key>\n<longcat_arg_value>%s</longcat_arg_value>\n",
        "<invoke name=\"f\">\n<parameter name=\"%s\">%s</parameter>\n</invoke>"};
    const char *key = typed[_i].key;

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        json_t *ctx = json_pack("{s:o}", "parameters", json_loads(schema, 0, NULL)),
               *want = json_loads(typed[_i].value, JSON_DECODE_ANY, NULL);
        char text[200];

        snprintf(text, sizeof text, ways[i], key, typed[_i].written);
        ck_assert_int_eq(tool_calls_each(text, 0, strlen(text), take_typed, ctx), 1);
        ck_assert_msg(json_equal(json_object_get(json_object_get(ctx, "got"), key), want), "%s: %s",
                      text, json_dumps(json_object_get(ctx, "got"), 0));
        json_decref(ctx);
        json_decref(want);
    }
}
END_TEST

static int take_text(void *ctx, const char *text, const struct tool_call *call)
{
    char *written = tool_call_arguments_text(text, call, NULL);

    ck_assert_str_eq(written, ctx);
    mem_free(written);
    return 0;
}

/* What is JSON is told to the letter. */
START_TEST(arguments_as_they_were_written)
{
    static const struct {
        const char *text;
        char arguments[40];
    } spelled[] = {{"{\"name\": \"f\", \"arguments\": {\"a\":1,  \"b\" : [ ]}}",
                    "{\"a\":1,  \"b\" : [ ]}"},
                   {"{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}", "{\"a\": 1}"},
                   {"{\"name\": \"f\", \"arguments\": null}", "{}"},
                   {"f[ARGS]{\"a\":1}", "{\"a\":1}"},
                   {"[f(a=1)]", "{\"a\": 1}"}};

    for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++)
        ck_assert_int_eq(tool_calls_each(spelled[i].text, 0, strlen(spelled[i].text), take_text,
                                         (void *)(uintptr_t)spelled[i].arguments),
                         1);
}
END_TEST

static int refuse(void *ctx, const char *text, const struct tool_call *call)
{
    ++*(int *)ctx;
    ck_assert(text && call->name.len);
    return -7;
}

START_TEST(the_taker_may_stop)
{
    static const char two[] = "[{\"name\": \"f\", \"arguments\": {}}, "
                              "{\"name\": \"g\", \"arguments\": {}}]";
    int asked = 0;

    ck_assert_int_eq(tool_calls_each(two, 0, strlen(two), refuse, &asked), -7);
    ck_assert_int_eq(asked, 1);
}
END_TEST

/* ---- while they are written ---- */

/* Calls as they are streamed: [[NAME, ARGUMENTS], ...], and of the newest what came so far. */
struct streamed {
    json_t *calls;
    char arguments[2048];
    const json_t *parameters;
    struct json_prefix json;
    bool open;
};

static bool stream_begin(void *ctx, const char *name, const json_t **parameters)
{
    struct streamed *s = ctx;

    ck_assert(!s->open);
    s->open = true;
    s->arguments[0] = 0;
    s->json = (struct json_prefix){0};
    *parameters = s->parameters;
    json_array_append_new(s->calls, json_pack("[s]", name));
    return true;
}

/* Every piece keeps the arguments the beginning of a valid value. */
static void stream_arguments(void *ctx, const char *json, size_t n)
{
    struct streamed *s = ctx;
    size_t had = strlen(s->arguments);

    ck_assert(s->open && n > 0 && utf8_valid(json, n) && had + n < sizeof s->arguments);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(json_prefix_push(&s->json, json[i]), "%s and then %.*s", s->arguments, (int)n,
                      json);
    memcpy(s->arguments + had, json, n);
    s->arguments[had + n] = 0;
}

static void stream_end(void *ctx)
{
    struct streamed *s = ctx;

    ck_assert(s->open && json_prefix_over(&s->json));
    s->open = false;
    json_array_append_new(json_array_get(s->calls, json_array_size(s->calls) - 1),
                          json_string(s->arguments));
}

static int collect_text(void *ctx, const char *text, const struct tool_call *call)
{
    struct streamed *s = ctx;
    char *arguments = tool_call_arguments_text(text, call, s->parameters);

    json_array_append_new(s->calls, json_pack("[o, s]", tool_call_name(text, call), arguments));
    mem_free(arguments);
    return 0;
}

/* The text in a piece of `first` bytes and then in pieces of `step` bytes, each copied so that a
 * sanitizer sees its end. */
static void stream_in(struct streamed *s, const char *text, size_t first, size_t step)
{
    const struct call_stream_sink sink = {s, stream_begin, stream_arguments, stream_end};
    struct call_stream c = {0};
    size_t n = strlen(text);

    for (size_t have = first < n ? first : n;; have = have + step < n ? have + step : n) {
        char *copy = malloc(have);

        memcpy(copy, text, have);
        call_stream_read(&c, copy, have, &sink);
        free(copy);
        if (have == n)
            return;
    }
}

/* Whatever the pieces, the calls are those of the whole text; the last one may miss its end, which
 * only the end of the text tells. */
static int check_streamed(const char *text, const json_t *parameters)
{
    struct streamed whole = {.calls = json_array(), .parameters = parameters};
    size_t n = strlen(text), told = 0;

    tool_calls_each(text, 0, n, collect_text, &whole);
    /* every size of pieces, and every place to cut it in two */
    for (size_t i = 1; i <= 2 * n; i++) {
        struct streamed s = {.calls = json_array(), .parameters = parameters};
        json_t *call;
        size_t k;

        stream_in(&s, text, i <= n ? i : i - n, i <= n ? i : n);
        told = json_array_size(s.calls);
        json_array_foreach(s.calls, k, call)
        {
            const json_t *want = json_array_get(whole.calls, k);
            const char *all = json_string_value(json_array_get(want, 1));
            bool ended = json_array_size(call) == 2;

            if (!json_array_size(whole.calls)) /* a text that is none: what came is valid */
                continue;
            ck_assert_msg(all && json_equal(json_array_get(call, 0), json_array_get(want, 0)),
                          "%s: %s", text, json_dumps(s.calls, 0));
            ck_assert_msg(ended ? strcmp(json_string_value(json_array_get(call, 1)), all) == 0
                                : strncmp(s.arguments, all, strlen(s.arguments)) == 0,
                          "%s: %s, not %s", text, s.arguments, all);
        }
        ck_assert_msg(!json_array_size(whole.calls) || told <= json_array_size(whole.calls),
                      "%s: %s", text, json_dumps(s.calls, 0));
        json_decref(s.calls);
    }
    if (!json_array_size(whole.calls))
        told = 0;
    json_decref(whole.calls);
    return (int)told;
}

START_TEST(calls_stream_as_they_are_read)
{
    check_streamed(cases[_i].text[0] ? cases[_i].text : " ", NULL);
}
END_TEST

/* Each family's calls are told before the text ends: all of them. */
START_TEST(calls_of_each_family_stream)
{
    json_t *want = families[_i].calls ? json_loads(families[_i].calls, 0, NULL) : json_array();
    int told = check_streamed(families[_i].text, NULL);

    ck_assert_msg(told == (int)json_array_size(want), "%s: %d told", families[_i].text, told);
    json_decref(want);
}
END_TEST

/* The text of harmony's calls so far, and what was told of it. */
struct harmony {
    struct streamed told;
    struct call_stream calls;
    char text[300];
    size_t n;
};

static void take_part(void *ctx, enum answer_part part, const char *text, size_t n)
{
    struct harmony *h = ctx;
    const struct call_stream_sink sink = {&h->told, stream_begin, stream_arguments, stream_end};

    if (part != PART_TOOL_CALL)
        return;
    ck_assert(h->n + n < sizeof h->text);
    memcpy(h->text + h->n, text, n);
    h->n += n;
    call_stream_read(&h->calls, h->text, h->n, &sink);
}

/* gpt-oss names the tool in a header of control tokens; what follows is told byte by byte. */
START_TEST(harmonys_calls_stream)
{
    static const struct {
        const char *text;
        bool control;
    } tokens[] = {{"<|channel|>", true},
                  {"analysis", false},
                  {"<|message|>", true},
                  {"Hm.", false},
                  {"<|end|>", true},
                  {"<|start|>", true},
                  {"assistant", false},
                  {"<|channel|>", true},
                  {"commentary to=functions.f ", false},
                  {"<|constrain|>", true},
                  {"json", false},
                  {"<|message|>", true},
                  {"{\"a\": \"some words\", \"b\": [1, {\"c\": null}]}", false}};
    struct harmony h = {.told.calls = json_array()};
    struct answer_parts p;
    size_t last = sizeof tokens / sizeof *tokens - 1;

    answer_parts_init(&p, (struct answer_format){.harmony = true}, false);
    for (size_t i = 0; i < last; i++)
        answer_parts_push(&p, tokens[i].text, strlen(tokens[i].text), tokens[i].control, take_part,
                          &h);
    for (size_t i = 0; tokens[last].text[i]; i++) {
        answer_parts_push(&p, tokens[last].text + i, 1, false, take_part, &h);
        ck_assert_uint_eq(json_array_size(h.told.calls), 1);
        ck_assert_int_eq(strncmp(h.told.arguments, tokens[last].text, strlen(h.told.arguments)), 0);
        if (i == strlen("{\"a\": \"some wo"))
            ck_assert_msg(strstr(h.told.arguments, "some"), "%s", h.told.arguments);
    }
    answer_parts_end(&p, take_part, &h);
    ck_assert_str_eq(h.told.arguments, tokens[last].text);
    ck_assert_str_eq(json_string_value(json_array_get(json_array_get(h.told.calls, 0), 0)), "f");
    json_decref(h.told.calls);
}
END_TEST

START_TEST(values_stream_by_the_schema)
{
    static const char *const ways[] = {
        ("<function=f>\n<parameter=%s>\n%s\n</parameter>\n<parameter=z>\n\"\u00e9\n\n</parameter>\n"
         "</function>"),
        "f\n<arg_key>%s</arg_key>\n<arg_value>%s</arg_value>\n",
        "<invoke name=\"f\">\n<parameter name=\"%s\">%s</parameter>\n</invoke>"};
    json_t *parameters = json_loads(schema, 0, NULL);

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char text[300];

        snprintf(text, sizeof text, ways[i], typed[_i].key, typed[_i].written);
        ck_assert_int_eq(check_streamed(text, parameters), 1);
    }
    json_decref(parameters);
}
END_TEST

/* A long string is handed on while it is written, not at its end. */
START_TEST(long_arguments_do_not_wait)
{
    static const char *const starts[] = {"{\"name\": \"f\", \"arguments\": {\"s\": \"",
                                         "f[ARGS]{\"s\": \"",
                                         "<function=f>\n<parameter=s>\n",
                                         "<invoke name=\"f\">\n<parameter name=\"s\">",
                                         "[f(s='",
                                         "call:f{s:<|\"|>",
                                         "f\n<arg_key>s</arg_key>\n<arg_value>"};
    json_t *parameters = json_loads(schema, 0, NULL);

    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        struct streamed s = {.calls = json_array(), .parameters = parameters};
        char text[600];
        int n = snprintf(text, sizeof text, "%s", starts[i]);

        memset(text + n, 'x', 400);
        text[n + 400] = 0;
        stream_in(&s, text, 10, 10);
        ck_assert_msg(strlen(s.arguments) >= 6 + 400 - 20, "%s: %zu of 400", starts[i],
                      strlen(s.arguments));
        json_decref(s.calls);
    }
    json_decref(parameters);
}
END_TEST

START_TEST(what_json_begins_with)
{
    static const struct {
        const char *text;
        int good; /* bytes that can go on; -1: all, and complete */
    } texts[] = {{"{\"a\": [1, -2.5e+3, true, null, \"\\u00e9\\n\"], \"b\": {}}", -1},
                 {"[]", -1},
                 {"\"x\"", -1},
                 {" {\"a\":0.5}", -1},
                 {"{a", 1},
                 {"{\"a\" 1", 5},
                 {"{\"a\": 01", 7},
                 {"{\"a\": 1,}", 8},
                 {"{\"a\": tru1", 9},
                 {"{\"a\": \"\\q", 8},
                 {"{\"a\": \"\\u12g", 11},
                 {"{\"a\": \"\n", 7},
                 {"{\"a\": 1.}", 8},
                 {"{\"a\": 1ee", 8},
                 {"[1}", 2},
                 {"{}x", 2}};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct json_prefix p = {0};
        int n = 0;

        while (texts[i].text[n] && json_prefix_push(&p, texts[i].text[n]))
            n++;
        if (texts[i].good < 0)
            ck_assert_msg(!texts[i].text[n] && json_prefix_over(&p), "%s: %d", texts[i].text, n);
        else
            ck_assert_msg(n == texts[i].good, "%s: %d", texts[i].text, n);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("tool_calls");
    TCase *c = tcase_create("tool_calls");

    tcase_add_loop_test(c, calls_are_found, 0, (int)(sizeof cases / sizeof *cases));
    tcase_add_loop_test(c, calls_of_each_family, 0, (int)(sizeof families / sizeof *families));
    tcase_add_loop_test(c, values_are_what_the_schema_says, 0, (int)(sizeof typed / sizeof *typed));
    tcase_add_test(c, arguments_as_they_were_written);
    tcase_add_test(c, the_taker_may_stop);
    tcase_add_loop_test(c, calls_stream_as_they_are_read, 0, (int)(sizeof cases / sizeof *cases));
    tcase_add_test(c, harmonys_calls_stream);
    tcase_add_loop_test(c, calls_of_each_family_stream, 0,
                        (int)(sizeof families / sizeof *families));
    tcase_add_loop_test(c, values_stream_by_the_schema, 0, (int)(sizeof typed / sizeof *typed));
    tcase_add_test(c, long_arguments_do_not_wait);
    tcase_add_test(c, what_json_begins_with);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
