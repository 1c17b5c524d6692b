/* What chat templates are found to know of tools, and conversations with tools as they write them:
 * small templates of every way that is in use, and the real ones against what jinja2 made of them.
 */
#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/file/weights.h"
#include "engine/text/answer_parts.h"
#include "engine/text/chat_template.h"
#include "engine/text/tool_calls.h"
#include "tests/support.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct weight_file *file;
static struct tokenizer *tokenizer;

static void open_demo(void)
{
    struct error e = {0};

    ck_assert_msg(weight_file_open(&file, support_demo(), true, &e) == 0, "%s", e.text);
    ck_assert_msg(tokenizer_load(&tokenizer, file, &e) == 0, "%s", e.text);
}

static void close_demo(void)
{
    tokenizer_free(tokenizer);
    weight_file_close(file);
}

static struct chat_template *load(const char *source)
{
    struct chat_template_options o = {
        .file = support_put(support_tmpdir(), "template.jinja", source)};
    struct chat_template *c;
    struct error e = {0};

    ck_assert_msg(chat_template_load(&c, file, tokenizer, &o, &e) == 0, "%s: %s", source, e.text);
    return c;
}

/* ---- what is found ---- */

#define EACH(body) "{% for m in messages %}" body "{% endfor %}"
#define WORDS "<{{ m.role }}>{{ m.content or '' }}"
#define CALLS(what) "{% for c in m.tool_calls %}" what "{% endfor %}"
#define OBJECT "{{ c.function.name }}{{ c.function.arguments | tojson }}"
#define DEEPSEEK(name, arguments) \
    "<｜tool▁call▁begin｜>" name "<｜tool▁sep｜>" arguments "<｜tool▁call▁end｜>"
#define RAISE(when) "{% if " when " %}{{ raise_exception('no') }}{% endif %}"

/* letters: tools, calls, results, no (s)ystem, te(x)t arguments, (e)mpty content, short (i)ds,
 * sin(g)le, (h)ermes, deepsee(k), only with (d)escription */
static const struct {
    const char *source, *knows;
} ways[] = {
    {EACH("<{{ m.role }}>{{ m.content }}"), ""},
    {EACH(RAISE("m.role not in ['system', 'user', 'assistant']") "{{ m.content }}"), ""},
    {EACH(RAISE("m.role == 'system'") "{{ m.content }}"), "s"},
    {"{% if tools %}{{ tools | tojson }}{% endif %}" EACH(WORDS CALLS(OBJECT)), "tcr"},
    {"{% for t in tools or [] %}{{ t.function.name }}{% endfor %}" EACH(WORDS), "tr"},
    {"{% for t in tools or [] %}{{ t.function.name + t.function.description }}{% endfor %}" EACH(
         WORDS),
     "trd"},
    /* of the tools alone it says nothing */
    {"{% if tools %}You have tools.{% endif %}" EACH(WORDS CALLS(OBJECT)), "cr"},
    /* what is no text fails, or is printed as Python prints it */
    {EACH(WORDS CALLS("{{ c.function.name + c.function.arguments }}")), "crx"},
    {EACH(WORDS CALLS("{{ c.function.arguments }}")), "crx"},
    /* the content */
    {EACH("<{{ m.role }}>" RAISE("m.tool_calls and m.content is not none")
              CALLS(OBJECT) "{{ m.content }}"),
     "cr"},
    {EACH("<{{ m.role }}>{{ m.content + '' }}" CALLS(OBJECT)), "cre"},
    {EACH("<{{ m.role }}>{{ m.content | trim }}" CALLS(OBJECT)), "cre"},
    {EACH(RAISE("m.role == 'tool' and m.tool_call_id | length != 9") WORDS CALLS(OBJECT)), "cri"},
    {EACH(RAISE("m.tool_calls and m.tool_calls | length > 1") WORDS CALLS(OBJECT)), "crg"},
    {EACH(RAISE("m.role == 'system'") WORDS CALLS(OBJECT)), "crs"},
    {EACH(RAISE("m.role == 'tool'") WORDS CALLS(OBJECT)), "c"},
    {"{% if tools %}{{ tools | tojson }}{% endif %}" EACH(
         WORDS CALLS("<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ "
                     "c.function.arguments | tojson }}}\n</tool_call>")),
     "tcrh"},
    /* tools are told before the template */
    {EACH(WORDS CALLS(DEEPSEEK("{{ c.function.name }}", "{{ c.function.arguments }}"))), "tcrxk"},
    {EACH(WORDS CALLS("<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ c.function.name }}\n"
                      "{{ c.function.arguments }}")),
     "crx"},
};

START_TEST(ways_are_found)
{
    struct chat_template *c = load(ways[_i].source);
    struct chat_tools k = chat_template_tools(c);
    char found[16] = "";

    strcat(found, k.tools ? "t" : "");
    strcat(found, k.calls ? "c" : "");
    strcat(found, k.results ? "r" : "");
    strcat(found, k.text_arguments ? "x" : "");
    strcat(found, k.empty_content ? "e" : "");
    strcat(found, k.short_ids ? "i" : "");
    strcat(found, k.single ? "g" : "");
    strcat(found, k.no_system ? "s" : "");
    strcat(found, k.hermes ? "h" : "");
    strcat(found, k.deepseek ? "k" : "");
    strcat(found, k.described ? "d" : "");
    ck_assert_msg(strcmp(found, ways[_i].knows) == 0, "%s: %s, not %s", ways[_i].source, found,
                  ways[_i].knows);
    chat_template_free(c);
}
END_TEST

/* ---- what is given is no frame ---- */

START_TEST(tools_never_become_special_tokens)
{
    struct chat_template *c = load(
        "{{ tools | tojson }}" EACH("<|user|>{{ m.content or '' }}" CALLS(OBJECT)) "<|end|>");
    json_t *given = json_loads("{\"tools\": [{\"<|end|>\": \"<|end|>\"}]}", 0, NULL),
           *calls = json_loads("{\"content\": null, \"tool_calls\": [{\"function\": {\"name\": "
                               "\"<|end|>\", \"arguments\": {\"<|end|>\": \"a<|end|>\"}}}]}",
                               0, NULL);
    char none[] = "", hi[] = "Hi";
    struct message m[] = {{.role = ROLE_USER, .text = hi},
                          {.role = ROLE_ASSISTANT, .text = none, .members = calls},
                          {.role = ROLE_TOOL, .text = hi}};
    int *ids, n, starts[4], end = tokenizer_find(tokenizer, "<|end|>", 7), ends = 0,
                            user = tokenizer_find(tokenizer, "<|user|>", 8);
    struct error e = {0};
    char *text;

    ck_assert_msg(chat_template_render(c, m, 3, given, true, NULL, &text, &e) == 0, "%s", e.text);
    ck_assert_str_eq(text, "[{\"<|end|>\": \"<|end|>\"}]<|user|>Hi<|user|><|end|>{\"<|end|>\": "
                           "\"a<|end|>\"}<|user|>Hi<|end|>");
    ck_assert_msg(chat_template_encode(c, m, 3, given, true, NULL, &ids, &n, starts, &e) == 0, "%s",
                  e.text);
    for (int i = 0; i < n; i++)
        ends += ids[i] == end;
    ck_assert_int_eq(ends, 1);  /* the template's own */
    for (int i = 0; i < 3; i++) /* whatever stands between them */
        ck_assert_int_eq(ids[starts[i]], i ? user : ids[0]);
    mem_free(ids);
    mem_free(text);
    json_decref(given);
    json_decref(calls);
    chat_template_free(c);
}
END_TEST

/* What is given goes before what the options say, and is gone with the rendering. */
START_TEST(given_values_are_of_one_rendering)
{
    struct chat_template_options o = {.globals = "{\"a\": 1, \"b\": 2}"};
    json_t *given = json_pack("{s:i}", "a", 3);
    struct message m = {.role = ROLE_USER, .text = (char[]){"Hi"}};
    struct chat_template *c;
    struct error e = {0};
    char *text;

    o.file = support_put(support_tmpdir(), "template.jinja", "{{ a }} {{ b }}");
    ck_assert_int_eq(chat_template_load(&c, file, tokenizer, &o, &e), 0);
    ck_assert_int_eq(chat_template_render(c, &m, 1, given, true, NULL, &text, &e), 0);
    ck_assert_str_eq(text, "3 2");
    mem_free(text);
    ck_assert_int_eq(chat_template_render(c, &m, 1, NULL, true, NULL, &text, &e), 0);
    ck_assert_str_eq(text, "1 2");
    mem_free(text);
    json_decref(given);
    chat_template_free(c);
}
END_TEST

/* ---- a template that leaves telling of tools to the caller ---- */

/* In the manner of DeepSeek V3.1's: system messages first, whoever else after them. */
/* clang-format off */
#define LEFT_TO_US                                                                             \
    "{% set ns = namespace(s='') %}"                                                           \
    EACH("{% if m.role == 'system' %}{% set ns.s = ns.s + m.content %}{% endif %}")            \
    "<b>{{ ns.s }}"                                                                            \
    EACH("{% if m.role != 'system' %}<|{{ m.role }}|>{{ m.content or '' }}"                    \
         CALLS(DEEPSEEK("{{ c.function.name }}", "{{ c.function.arguments }}"))                \
         "<|end|>{% endif %}")
#define TOLD(tools)                                                                            \
    "\n\n## Tools\nYou have access to the following tools:\n" tools                            \
    "\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n"                          \
    "<｜tool▁calls▁begin｜>" DEEPSEEK("tool_call_name", "tool_call_arguments")                 \
    "{{additional_tool_calls}}<｜tool▁calls▁end｜>\n\nWhere:\n\n- `tool_call_name` must be an "  \
    "exact match to one of the available tools\n- `tool_call_arguments` must be valid JSON "   \
    "that strictly follows the tool's Parameters Schema\n- For multiple tool calls, chain "    \
    "them directly without separators or spaces"
/* clang-format on */

START_TEST(tools_are_told_before_a_template)
{
    static const char told[] = TOLD("\n### f\nDescription: <|end|>\n\nParameters: {\"type\": "
                                    "\"object\"}\n\n### g\nDescription: \n\nParameters: {}\n");
    struct chat_template *c = load(LEFT_TO_US);
    json_t *given = json_loads("{\"tools\": [{\"function\": {\"name\": \"f\", \"description\": "
                               "\"<|end|>\", \"parameters\": {\"type\": \"object\"}}}, "
                               "{\"function\": {\"name\": \"g\"}}]}",
                               0, NULL);
    struct message m[] = {{.role = ROLE_SYSTEM, .text = (char[]){"Be kind."}},
                          {.role = ROLE_USER, .text = (char[]){"Hi"}},
                          {.role = ROLE_ASSISTANT, .text = (char[]){"Yes"}}};
    int *ids, n, starts[4], end = tokenizer_find(tokenizer, "<|end|>", 7), ends = 0,
                            user = tokenizer_find(tokenizer, "<|user|>", 8);
    char want[2000], *text;
    struct error e = {0};

    snprintf(want, sizeof want, "<b>Be kind.%s<|user|>Hi<|end|><|assistant|>Yes<|end|>", told);
    ck_assert_msg(chat_template_render(c, m, 3, given, true, NULL, &text, &e) == 0, "%s", e.text);
    ck_assert_str_eq(text, want);
    mem_free(text);
    snprintf(want, sizeof want, "<b>%s<|user|>Hi<|end|>", told);
    ck_assert_msg(chat_template_render(c, m + 1, 1, given, true, NULL, &text, &e) == 0, "%s",
                  e.text);
    ck_assert_str_eq(text, want);
    mem_free(text);
    ck_assert_msg(chat_template_render(c, m, 2, NULL, true, NULL, &text, &e) == 0, "%s", e.text);
    ck_assert_str_eq(text, "<b>Be kind.<|user|>Hi<|end|>");
    mem_free(text);
    /* what a tool says of itself is no frame, and messages begin where they did */
    ck_assert_msg(chat_template_encode(c, m, 3, given, true, NULL, &ids, &n, starts, &e) == 0, "%s",
                  e.text);
    for (int i = 0; i < n; i++)
        ends += ids[i] == end;
    ck_assert_int_eq(ends, 2);
    ck_assert_int_eq(ids[starts[1]], user);
    ck_assert_int_eq(ids[starts[2] - 1], end);
    mem_free(ids);
    json_decref(given);
    chat_template_free(c);
}
END_TEST

/* ---- a template for tools beside the other ---- */

START_TEST(tools_may_have_a_template_of_their_own)
{
    const char *dir = support_tmpdir();
    json_t *given = json_loads("{\"tools\": [{\"function\": {\"name\": \"f\"}}]}", 0, NULL);
    struct message m = {.role = ROLE_USER, .text = (char[]){"Hi"}};
    struct chat_template *c;
    struct weight_file *f;
    struct tokenizer *t;
    struct error e = {0};
    char *text;

    support_put(dir, "config.json", "{\"model_type\": \"phimoe\"}");
    support_put(dir, "tokenizer.json",
                "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}");
    support_put(
        dir, "tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"{{ messages[-1].content "
        "}}\"}, {\"name\": \"tool_use\", \"template\": \"{{ tools[0].function.name }}: {{ "
        "messages[-1].content }}\"}]}");
    ck_assert_msg(weight_file_open(&f, dir, true, &e) == 0, "%s", e.text);
    ck_assert_msg(tokenizer_load(&t, f, &e) == 0, "%s", e.text);
    ck_assert_msg(chat_template_load(&c, f, t, NULL, &e) == 0, "%s", e.text);
    ck_assert(chat_template_tools(c).tools);
    ck_assert_int_eq(chat_template_render(c, &m, 1, given, true, NULL, &text, &e), 0);
    ck_assert_str_eq(text, "f: Hi");
    mem_free(text);
    ck_assert_int_eq(chat_template_render(c, &m, 1, NULL, true, NULL, &text, &e), 0);
    ck_assert_str_eq(text, "Hi");
    mem_free(text);
    json_decref(given);
    chat_template_free(c);
    tokenizer_free(t);
    weight_file_close(f);
}
END_TEST

/* ---- real templates ---- */

static struct message message_of(const json_t *o, json_t *members)
{
    static const char *const own[] = {"role", "content"};
    static char none[1];
    struct message m = {.text = (char *)json_string_value(json_object_get(o, "content")),
                        .members = members};
    int role = 0;

    while (strcmp(role_word((enum role)role), json_string_value(json_object_get(o, "role"))) != 0)
        ck_assert_int_lt(++role, ROLES);
    m.role = (enum role)role;
    json_object_update(members, (json_t *)(uintptr_t)o);
    for (int i = 0; i < (m.text ? 2 : 1); i++)
        json_object_del(members, own[i]);
    m.text = m.text ? m.text : none;
    return m;
}

/* Of shared/data, kept here (golden/templates/real), or of the folder that MOETOP_TEMPLATES names;
 * NULL: not here, which is said. */
static struct chat_template *open_real(json_t *one, struct weight_file **f, char path[1100])
{
    const char *below = json_string_value(json_object_get(one, "folder")),
               *name = json_string_value(json_object_get(one, "file")), *folder, *at;
    struct tm day = {.tm_year = 125, .tm_mday = 31, .tm_hour = 12, .tm_isdst = -1};
    struct chat_template_options o = {.file = path, .now = mktime(&day)};
    struct chat_template *c;
    struct error e = {0};

    if (*below == '$') {
        folder = support_path("golden/templates/real"); /* for the names of tokens */
        at = getenv(below + 1);
    } else
        at = folder = strncmp(below, "golden/", 7) == 0 ? support_path(below)
                                                        : support_shared(below);
    if (!at) {
        if (*below == '$')
            support_skip("%s: no MOETOP_TEMPLATES", name);
        return NULL;
    }
    snprintf(path, 1100, "%s/%s", at, name);
    ck_assert_msg(weight_file_open(f, folder, true, &e) == 0, "%s", e.text);
    ck_assert_msg(chat_template_load(&c, *f, NULL, &o, &e) == 0, "%s: %s", path, e.text);
    return c;
}

/* tests/tools/tool_chats.py wrote the file: what jinja2 makes of each conversation, told by length
 * and hash, for the templates are not ours. */
START_TEST(tool_chats_of_other_families)
{
    json_error_t where;
    json_t *root = json_load_file(support_path("golden/tool-chats.json"), 0, &where), *chat,
           *one = json_array_get(json_object_get(root, "templates"), (size_t)_i);
    struct chat_template *c;
    struct weight_file *f;
    struct error e = {0};
    char path[1100];
    size_t i;

    ck_assert_msg(root != NULL, "%s", where.text);
    if (!(c = open_real(one, &f, path))) {
        json_decref(root);
        return;
    }
    json_array_foreach(json_object_get(one, "chats"), i, chat)
    {
        const json_t *list = json_array_get(json_object_get(root, "conversations"),
                                            (size_t)json_integer_value(json_array_get(chat, 0)));
        json_t *members[8];
        struct message m[8];
        size_t n = json_array_size(list);
        char *text, hash[20];

        for (size_t k = 0; k < n; k++)
            m[k] = message_of(json_array_get(list, k), members[k] = json_object());
        ck_assert_msg(chat_template_render(c, m, n,
                                           json_is_true(json_array_get(chat, 1))
                                               ? json_object_get(root, "given")
                                               : NULL,
                                           true, NULL, &text, &e) == 0,
                      "%s, %zu: %s", path, i, e.text);
        snprintf(hash, sizeof hash, "%016llx",
                 (unsigned long long)hash_bytes(HASH_START, text, strlen(text)));
        ck_assert_msg((json_int_t)strlen(text) == json_integer_value(json_array_get(chat, 2)) &&
                          strcmp(hash, json_string_value(json_array_get(chat, 3))) == 0,
                      "%s, chat %zu: %s", path, i, text);
        mem_free(text);
        for (size_t k = 0; k < n; k++)
            json_decref(members[k]);
    }
    ck_assert_uint_ge(i, 3);
    chat_template_free(c);
    weight_file_close(f);
    json_decref(root);
}
END_TEST

/* ---- what a model says, as its own template writes it, is read back ---- */

struct said {
    char parts[PART_COUNT][4000];
};

static void put_said(void *ctx, enum answer_part part, const char *text, size_t n)
{
    struct said *s = ctx;

    ck_assert_uint_lt(strlen(s->parts[part]) + n, sizeof s->parts[part]);
    strncat(s->parts[part], text, n);
}

static int put_call(void *ctx, const char *text, const struct tool_call *call)
{
    const json_t *tools = json_object_get(ctx, "tools"), *tool;
    json_t *name = tool_call_name(text, call);
    size_t i;

    json_array_foreach(tools, i, tool)
    {
        const json_t *f = json_object_get(tool, "function");

        if (json_equal(json_object_get(f, "name"), name))
            json_array_append_new(json_object_get(ctx, "calls"),
                                  tool_call_arguments(text, call,
                                                      json_object_get(f, "parameters")));
    }
    json_decref(name);
    return 0;
}

static char *rendered(const struct chat_template *c, const struct message *m, size_t n,
                      json_t *given, bool prompt)
{
    struct error e = {0};
    char *text;

    return chat_template_render(c, m, n, given, prompt, NULL, &text, &e) == 0 ? text : NULL;
}

/* The answer as a model writes it: its markers in bars are tokens of their own. */
static void push_said(struct answer_parts *p, const char *text, struct said *said)
{
    while (*text) {
        const char *bar = strstr(text, "<|"), *wide = strstr(text, "<｜"),
                   *open = !bar || (wide && wide < bar) ? wide : bar,
                   *close = open ? strchr(open, '>') : NULL;
        size_t plain = close ? (size_t)(open - text) : strlen(text);

        for (size_t k = 0; k < plain; k += 5)
            answer_parts_push(p, text + k, plain - k < 5 ? plain - k : 5, false, put_said, said);
        text += plain;
        if (!close)
            continue;
        answer_parts_push(p, open, (size_t)(close + 1 - open), true, put_said, said);
        text = close + 1;
    }
    answer_parts_end(p, put_said, said);
}

/* What the template adds to the question; where the prompt begins otherwise than what was said (an
 * empty reasoning, say), from where they differ, and from a marker's beginning. */
static const char *answer_in(const char *whole, const char *prompt)
{
    size_t at = 0;

    while (prompt[at] && prompt[at] == whole[at])
        at++;
    for (size_t k = 1; prompt[at] && k < 16 && k <= at && whole[at - k] != '>'; k++)
        if (whole[at - k] == '<')
            return whole + at - k;
    return whole + at;
}

/* An answer that thinks and calls a tool, as each family's own template writes it. */
START_TEST(calls_and_reasoning_are_read_back)
{
    json_t *root = json_load_file(support_path("golden/tool-chats.json"), 0, NULL),
           *one = json_array_get(json_object_get(root, "templates"), (size_t)_i),
           *given = json_object_get(root, "given"), *talks = json_object_get(root, "conversations"),
           *list, *members[2], *want, *got, *calls;
    struct message m[2];
    struct weight_file *f;
    struct chat_template *c;
    struct answer_format format;
    struct answer_parts p;
    struct said said = {0};
    static const char *const ends[] = {"</s>", "<|eot|>"};
    char path[1100], *prompt, *whole;
    const char *answer, *end;

    if (!(c = open_real(one, &f, path))) {
        json_decref(root);
        return;
    }
    list = json_array_get(talks, json_array_size(talks) - 2);
    for (size_t k = 0; k < 2; k++)
        m[k] = message_of(json_array_get(list, k), members[k] = json_object());
    want = json_object_get(
        json_object_get(json_array_get(json_object_get(members[1], "tool_calls"), 0), "function"),
        "arguments");
    prompt = rendered(c, m, 1, given, true);
    whole = rendered(c, m, 2, given, false);
    ck_assert_msg(prompt && whole, "%s", path);
    answer = answer_in(whole, prompt);
    for (int k = 0; k < 2; k++) /* the end of an answer is no text */
        if ((end = strstr(answer, ends[k])))
            whole[end - whole] = 0;
    format = chat_template_answers(c);
    answer_parts_init(&p, format, answer_format_opens(&format, whole, (size_t)(answer - whole)));
    push_said(&p, answer, &said);
    if (strstr(answer, "Paris, then."))
        ck_assert_msg(strncmp(said.parts[PART_REASONING], "Paris, then.", 12) == 0 &&
                          !strstr(said.parts[PART_ANSWER], "then"),
                      "%s: reasoning '%s', answer '%s' of %s", path, said.parts[PART_REASONING],
                      said.parts[PART_ANSWER], answer);
    got = json_pack("{s:O, s:[]}", "tools", json_object_get(given, "tools"), "calls");
    calls = json_object_get(got, "calls");
    tool_calls_each(said.parts[PART_TOOL_CALL], 0, strlen(said.parts[PART_TOOL_CALL]), put_call,
                    got);
    if (strstr(answer, "city")) /* some templates leave calls out */
        ck_assert_msg(json_array_size(calls) == 1 && json_equal(json_array_get(calls, 0), want),
                      "%s: calls '%s' of %s", path, said.parts[PART_TOOL_CALL], answer);
    support_ran("%s: %s%s", json_string_value(json_object_get(one, "file")),
                strstr(answer, "Paris, then.") ? "reasoning " : "",
                strstr(answer, "city") ? "calls" : "");
    json_decref(got);
    for (size_t k = 0; k < 2; k++)
        json_decref(members[k]);
    mem_free(prompt);
    mem_free(whole);
    chat_template_free(c);
    weight_file_close(f);
    json_decref(root);
}
END_TEST

static int templates(void)
{
    json_t *root = json_load_file(support_path("golden/tool-chats.json"), 0, NULL);
    int n = (int)json_array_size(json_object_get(root, "templates"));

    json_decref(root);
    return n;
}

static Suite *suite(void)
{
    Suite *s = suite_create("chat_tools");
    TCase *c = tcase_create("demo"), *real = tcase_create("real");

    tcase_add_checked_fixture(c, open_demo, close_demo);
    tcase_add_loop_test(c, ways_are_found, 0, (int)(sizeof ways / sizeof *ways));
    tcase_add_test(c, tools_never_become_special_tokens);
    tcase_add_test(c, given_values_are_of_one_rendering);
    tcase_add_test(c, tools_are_told_before_a_template);
    suite_add_tcase(s, c);
    tcase_add_test(real, tools_may_have_a_template_of_their_own);
    tcase_add_loop_test(real, tool_chats_of_other_families, 0, templates());
    tcase_add_loop_test(real, calls_and_reasoning_are_read_back, 0, templates());
    suite_add_tcase(s, real);
    return s;
}

int main(void)
{
    return support_run(suite());
}
