/* Chat templates: the reference's renderings and ids, jinja2's renderings of templates that use the
 * whole subset, the mask between frame and typed text, the fallback, and templates that mean harm.
 */
#include "engine/base/mem.h"
#include "engine/file/weights.h"
#include "engine/text/chat_formats.h"
#include "engine/text/chat_template.h"
#include "engine/text/jinja/jinja.h"
#include "tests/support.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static size_t read_messages(const json_t *list, struct message *m)
{
    json_t *o;
    size_t i;

    json_array_foreach(list, i, o)
    {
        const char *role = json_string_value(json_object_get(o, "role"));

        m[i] = (struct message){0};
        m[i].role = strcmp(role, "system") == 0 ? ROLE_SYSTEM
                    : strcmp(role, "user") == 0 ? ROLE_USER
                                                : ROLE_ASSISTANT;
        m[i].text = (char *)json_string_value(json_object_get(o, "content"));
    }
    return json_array_size(list);
}

/* "<|" inside a content: its ids must not be those of the rendered text read whole. */
static bool types_special(const struct message *m, size_t n)
{
    bool found = false;

    for (size_t i = 0; i < n; i++)
        found = found || strstr(m[i].text, "<|") != NULL;
    return found;
}

static void check_chats(const char *model, const char *cases)
{
    struct weight_file *f;
    struct tokenizer *t;
    struct chat_template *c;
    struct error e = {0};
    json_error_t where;
    json_t *root, *o;
    size_t i, exact = 0, typed = 0;

    if (!model)
        return;
    ck_assert_msg(weight_file_open(&f, model, true, &e) == 0, "%s", e.text);
    ck_assert_msg(tokenizer_load(&t, f, &e) == 0, "%s", e.text);
    ck_assert_msg(chat_template_load(&c, f, t, NULL, &e) == 0, "%s", e.text);
    ck_assert_msg(chat_template_notice(c) == NULL, "%s", chat_template_notice(c));
    root = json_load_file(support_path(cases), JSON_ALLOW_NUL, &where);
    ck_assert_msg(root != NULL, "%s", where.text);
    json_array_foreach(json_object_get(root, "chats"), i, o)
    {
        const json_t *want = json_object_get(o, "ids");
        struct message m[16];
        size_t n = read_messages(json_object_get(o, "messages"), m);
        bool prompt = json_is_true(json_object_get(o, "add_generation_prompt"));
        int *ids, n_ids, starts[17], end = tokenizer_find(t, "<|end|>", 7), ends = 0, asked = 0;
        char *text;

        ck_assert_msg(chat_template_render(c, m, n, NULL, prompt, NULL, &text, &e) == 0, "%s",
                      e.text);
        ck_assert_str_eq(text, json_string_value(json_object_get(o, "text")));
        mem_free(text);
        ck_assert_msg(chat_template_encode(c, m, n, NULL, prompt, NULL, &ids, &n_ids, starts, &e) ==
                          0,
                      "%s", e.text);
        if (types_special(m, n)) {
            typed++;
            for (int k = 0; k < n_ids; k++)
                ends += ids[k] == end;
            ck_assert_int_eq(ends, (int)n);
        } else {
            ck_assert_int_eq(n_ids, (int)json_array_size(want));
            for (int k = 0; k < n_ids; k++)
                ck_assert_int_eq(ids[k], json_integer_value(json_array_get(want, (size_t)k)));
            exact++;
        }
        /* every message begins with its role's token, the answer with <|assistant|> */
        for (size_t k = 0; k <= n; k++) {
            char role[32];

            snprintf(role, sizeof role, "<|%s|>",
                     k == n || m[k].role == ROLE_ASSISTANT ? "assistant"
                     : m[k].role == ROLE_USER              ? "user"
                                                           : "system");
            asked = tokenizer_find(t, role, strlen(role));
            if (k == n && !prompt)
                ck_assert_int_eq(starts[k], n_ids);
            else
                ck_assert_int_eq(ids[starts[k]], asked);
            ck_assert(k == 0 || starts[k] > starts[k - 1]);
        }
        mem_free(ids);
    }
    ck_assert(exact >= 4 && typed >= 1);
    json_decref(root);
    chat_template_free(c);
    tokenizer_free(t);
    weight_file_close(f);
}

START_TEST(chats_of_the_bundled_model)
{
    check_chats(support_demo(), "golden/demo/tokenizer-cases.json");
}
END_TEST

START_TEST(chats_of_the_demo_folder)
{
    check_chats(support_shared("demo/tiny-storyteller"), "golden/demo/tokenizer-cases.json");
}
END_TEST

START_TEST(chats_of_phi_tiny_moe)
{
    check_chats(support_shared("phi-tiny-moe"), "golden/phi-tiny-moe/tokenizer-cases.json");
}
END_TEST

/* Real families' templates with what a caller may give them: tools, switches, the date. */
static const char *const families[] = {"gpt_oss", "granite", "mixtral",
                                       "qwen2",   "qwen3",   "deepseek-template"};

static struct chat_template *load_with(const struct weight_file *f, const struct tokenizer *t,
                                       const json_t *kwargs)
{
    char *globals = json_dumps(kwargs, 0);
    struct tm day = {.tm_year = 125, .tm_mday = 31, .tm_hour = 12, .tm_isdst = -1};
    struct chat_template_options o = {.globals = globals, .now = mktime(&day)};
    struct chat_template *c;
    struct error e = {0};

    ck_assert_msg(chat_template_load(&c, f, t, &o, &e) == 0, "%s", e.text);
    free(globals);
    return c;
}

static void check_family_chat(const struct chat_template *c, const json_t *chat, bool ids_too)
{
    const json_t *want = json_object_get(chat, "ids");
    struct message m[16];
    size_t n = read_messages(json_object_get(chat, "messages"), m);
    bool prompt = json_is_true(json_object_get(chat, "add_generation_prompt"));
    struct error e = {0};
    int *ids, n_ids;
    char *text;

    ck_assert_msg(chat_template_render(c, m, n, NULL, prompt, NULL, &text, &e) == 0, "%s", e.text);
    ck_assert_str_eq(text, json_string_value(json_object_get(chat, "text")));
    mem_free(text);
    if (!ids_too || types_special(m, n))
        return;
    ck_assert_msg(chat_template_encode(c, m, n, NULL, prompt, NULL, &ids, &n_ids, NULL, &e) == 0,
                  "%s", e.text);
    ck_assert_int_eq(n_ids, (int)json_array_size(want));
    for (int k = 0; k < n_ids; k++)
        ck_assert_int_eq(ids[k], json_integer_value(json_array_get(want, (size_t)k)));
    mem_free(ids);
}

static void take_end(void *ctx, int id)
{
    int *ends = ctx;

    ck_assert_int_lt(ends[0], 7);
    ends[++ends[0]] = id;
}

/* gpt-oss names the end of an answer and the call of a tool in its vocabulary alone. */
START_TEST(ends_that_a_vocabulary_names)
{
    const char *folder = support_shared("tokenizers/gpt_oss");
    struct weight_file *f;
    struct tokenizer *t;
    struct error e = {0};
    int ends[8] = {0};

    if (!folder)
        return;
    ck_assert_msg(weight_file_open(&f, folder, true, &e) == 0, "%s", e.text);
    ck_assert_msg(tokenizer_load(&t, f, &e) == 0, "%s", e.text);
    chat_template_ends(t, take_end, ends);
    ck_assert_int_eq(ends[0], 3);
    ck_assert_int_eq(ends[1], 199999); /* <|endoftext|> */
    ck_assert_int_eq(ends[2], 200002); /* <|return|> */
    ck_assert_int_eq(ends[3], 200012); /* <|call|> */
    tokenizer_free(t);
    weight_file_close(f);
}
END_TEST

START_TEST(chats_of_other_families)
{
    char path[64], cases[1024];
    const char *folder;
    struct weight_file *f;
    struct tokenizer *t = NULL;
    struct error e = {0};
    json_error_t where;
    json_t *root, *chat;
    size_t i;

    snprintf(path, sizeof path, "tokenizers/%s", families[_i]);
    if (!(folder = support_shared(path)))
        return;
    snprintf(cases, sizeof cases, "%s/tokenizer-cases.json", folder);
    root = json_load_file(cases, JSON_ALLOW_NUL, &where);
    ck_assert_msg(root != NULL, "%s", where.text);
    ck_assert_msg(weight_file_open(&f, folder, true, &e) == 0, "%s", e.text);
    if (strcmp(families[_i], "deepseek-template") != 0) /* a template alone */
        ck_assert_msg(tokenizer_load(&t, f, &e) == 0, "%s", e.text);
    json_array_foreach(json_object_get(root, "chats"), i, chat)
    {
        struct chat_template *c = load_with(f, t, json_object_get(chat, "kwargs"));

        check_family_chat(c, chat, t != NULL);
        chat_template_free(c);
    }
    ck_assert_uint_ge(i, 10);
    tokenizer_free(t);
    weight_file_close(f);
    json_decref(root);
}
END_TEST

static const struct jinja_variable variables[] = {
    {"bos_token", "<s>", 3}, {"eos_token", "<|endoftext|>", 13}, {"unk_token", "<unk>", 5}};

static int render(const char *source, const struct message *m, size_t n, bool prompt, char **text,
                  char **mask, struct error *e)
{
    struct jinja *j;
    struct strbuf out = {0}, marks = {0};
    int status = jinja_parse(&j, source, strlen(source), e);

    *text = *mask = NULL;
    if (status < 0)
        return status;
    status = jinja_render(j,
                          &(struct jinja_input){.messages = m,
                                                .n_messages = n,
                                                .add_generation_prompt = prompt,
                                                .variables = variables,
                                                .n_variables = 3},
                          &(struct jinja_output){.text = &out, .mask = &marks}, e);
    jinja_free(j);
    if (status == 0) {
        ck_assert_uint_eq(out.len, marks.len);
        *text = strbuf_take(&out, NULL);
        *mask = strbuf_take(&marks, NULL);
    }
    strbuf_release(&out);
    strbuf_release(&marks);
    return status;
}

START_TEST(renders_as_jinja2_does)
{
    json_error_t where;
    json_t *root = json_load_file(support_path("golden/templates/cases.json"), 0, &where), *o;
    size_t i, raised = 0;

    ck_assert_msg(root != NULL, "%s", where.text);
    json_array_foreach(json_object_get(root, "cases"), i, o)
    {
        const char *name = json_string_value(json_object_get(o, "name")),
                   *want = json_string_value(json_object_get(o, "text"));
        const char *source = json_string_value(
            json_object_get(json_object_get(root, "templates"), name));
        const json_t *list =
            json_array_get(json_object_get(root, "conversations"),
                           (size_t)json_integer_value(json_object_get(o, "messages")));
        struct message m[8];
        size_t n = read_messages(list, m);
        struct error e = {0};
        char *text, *mask;
        int status = render(source, m, n, json_is_true(json_object_get(o, "add_generation_prompt")),
                            &text, &mask, &e);

        if (want) {
            ck_assert_msg(status == 0, "%s: %s", name, e.text);
            ck_assert_msg(strcmp(text, want) == 0, "%s, case %zu:\n%s\n--- is not\n%s", name, i,
                          text, want);
        } else {
            ck_assert_int_eq(status, ERR_INPUT);
            ck_assert_msg(strstr(e.text, "line 1: System role not supported") != NULL, "%s",
                          e.text);
            raised++;
        }
        mem_free(text);
        mem_free(mask);
    }
    ck_assert_uint_gt(raised, 0);
    json_decref(root);
}
END_TEST

/* Every built-in format says what the official template of its family does. */
START_TEST(built_in_formats_are_the_official_ones)
{
    static const struct {
        const char *name, *text;
    } formats[] = {
#define X(name, text) {name, text},
        CHAT_FORMATS(X)
#undef X
    };
    json_error_t where;
    json_t *root = json_load_file(support_path("golden/templates/formats.json"), 0, &where), *o;
    size_t i, k;

    ck_assert_msg(root != NULL, "%s", where.text);
    for (k = 0; k < sizeof formats / sizeof *formats; k++) {
        size_t compared = 0;

        json_array_foreach(json_object_get(root, "formats"), i, o)
        {
            struct message m[8];
            size_t n = read_messages(json_object_get(o, "messages"), m);
            struct error e = {0};
            char *text, *mask;

            if (strcmp(json_string_value(json_object_get(o, "name")), formats[k].name) != 0)
                continue;
            ck_assert_msg(render(formats[k].text, m, n, true, &text, &mask, &e) == 0, "%s: %s",
                          formats[k].name, e.text);
            ck_assert_str_eq(text, json_string_value(json_object_get(o, "text")));
            mem_free(text);
            mem_free(mask);
            compared++;
        }
        ck_assert_msg(compared >= 2, "%s", formats[k].name);
    }
    json_decref(root);
}
END_TEST

/* The mask follows the text through everything a template may do with it. */
START_TEST(mask_follows_typed_text)
{
    static const struct {
        const char *source, *text, *mask;
    } cases[] = {
        {"[{{ messages[0].content }}]", "[ aB c ]", "0111111 0"},
        {"{{ messages[0].content | trim }}<|end|>", "aB c<|end|>", "11110000000"},
        {"{{ messages[0]['content'].strip() ~ 'x' }}", "aB cx", "11110"},
        {"{{ messages[0].content | upper | replace(' ', '_') }}", "_AB_C_", "011010"},
        {"{{ messages[0].content[1:3] + messages[1].content }}", "aBzz", "1122"},
        {"{{ messages[0].content.split()[1] }}", "c", "1"},
        {"{{ messages | map(attribute='content') | join('|') }}", " aB c |zz", "111111022"},
        {"{{ messages[1].content | tojson }}", "\"zz\"", "0220"},
        {"{% set x %}-{{ messages[1].content }}-{% endset %}{{ x }}", "-zz-", "0220"},
        {"{% macro f(t) %}({{ t }}){% endmacro %}{{ f(messages[1].content) }}", "(zz)", "0220"},
        {"{% for c in messages[1].content %}{{ c }},{% endfor %}", "z,z,", "2020"},
        {"{{ messages[0].content | title | reverse }}", " C bA ", "111111"},
        {"{{ messages[1].content * 2 }}", "zzzz", "2222"},
        {"{{ messages[1].content | indent(2, true) }}", "  zz", "0022"},
        {"{{ '<%s>' % messages[1].content }}", "<zz>", "0220"},
        {"{{ '%5s' | format(messages[1].content) }}", "   zz", "00022"},
        {"{{ messages[1].content | center(4) }}", " zz ", "0220"},
        {"{{ messages[1].content | truncate(1, true, '.', 0) }}", ".", "0"},
        {"{{ (messages[1].content ~ '<') | escape }}", "zz&lt;", "220000"},
        {"{% filter upper %}-{{ messages[1].content }}{% endfilter %}", "-ZZ", "022"},
        {"{% macro f() %}({{ caller() }}){% endmacro %}{% call f() %}{{ messages[1].content }}{% "
         "endcall %}",
         "(zz)", "0220"},
        {"{{ messages | groupby('role') | map(attribute=0) | join }}", "assistantuser",
         "0000000000000"},
    };
    char a[] = " aB c ", b[] = "zz";
    struct message m[] = {{.role = ROLE_USER, .text = a}, {.role = ROLE_ASSISTANT, .text = b}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error e = {0};
        char *text, *mask;

        ck_assert_msg(render(cases[i].source, m, 2, false, &text, &mask, &e) == 0, "%s: %s",
                      cases[i].source, e.text);
        if (i == 0)
            ck_assert_mem_eq(mask, "\0\1\1\1\1\1\1\0", 8);
        else {
            ck_assert_str_eq(text, cases[i].text);
            for (size_t k = 0; cases[i].mask[k]; k++)
                ck_assert_msg(mask[k] == cases[i].mask[k] - '0', "%s: byte %zu has mask %d",
                              cases[i].source, k, mask[k]);
        }
        mem_free(text);
        mem_free(mask);
    }
}
END_TEST

static const struct {
    const char *source, *says;
} refused[] = {
    {"{{ 'x }}", "line 1: a string without"},
    {"\n\n{{ x | nofilter }}", "line 3: the filter 'nofilter'"},
    {"{{ x is strange }}", "the test 'strange'"},
    {"{% include 'a' %}", "'include' is not supported"},
    {"{% if x %}", "has no endif"},
    {"a\n{% for x in y %}\nb", "line 2: the statement that begins here has no endfor"},
    {"{% for x y %}{% endfor %}", "'in' expected"},
    {"{{ }}", "a name expected"},
    {"{{", "ends inside"},
    {"{# x", "comment without its end"},
    {"{% endif %}", "'endif' is not supported here"},
    {"{{ a b }}", "'}}' expected"},
    {"{% break %}", "'break' is not supported here"},
    {"{% raw %}", "raw without"},
    {"{% set 1 = 2 %}", "a name expected"},
    {"{{ 99999999999999999999 }}", "too large"},
    {"{% import 'os' as os %}", "'import' is not supported"},
    {"{% call 1 %}{% endcall %}", "a call block needs a call"},
    {"{% filter nofilter %}{% endfilter %}", "the filter 'nofilter'"},
    {"{% with a %}{% endwith %}", "'=' expected"},
    {"{% for (a, b in c %}{% endfor %}", "')' expected"},
    {"{{ (((1 }}", "')' expected"},
    {"{%", "a name expected"},
};

/* By each name that templates have for it; an answer without any has none of them. */
START_TEST(reasoning_has_the_names_of_templates)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    char answer[] = "4", thought[] = "two and two";
    struct message m[] = {{.role = ROLE_ASSISTANT, .text = answer, .reasoning = thought},
                          {.role = ROLE_ASSISTANT, .text = answer}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct error e = {0};
        char source[200], *text, *mask;

        snprintf(source, sizeof source,
                 "{%% for m in messages %%}{%% if m.%s %%}<{{ m.%s }}>{%% endif %%}{%% endfor %%}",
                 names[i], names[i]);
        ck_assert_msg(render(source, m, 2, false, &text, &mask, &e) == 0, "%s", e.text);
        ck_assert_str_eq(text, "<two and two>");
        mem_free(text);
        mem_free(mask);
    }
}
END_TEST

START_TEST(bad_templates_are_refused_with_their_line)
{
    struct jinja *j;
    struct error e = {0};

    ck_assert_int_eq(jinja_parse(&j, refused[_i].source, strlen(refused[_i].source), &e),
                     ERR_MODEL);
    ck_assert_ptr_null(j);
    ck_assert_msg(strstr(e.text, refused[_i].says) != NULL, "%s", e.text);
}
END_TEST

/* s: a mebibyte of digits */
#define LONG                                                                                 \
    "{% set ns = namespace(s='1') %}{% for i in range(20) %}{% set ns.s = ns.s + ns.s %}{% " \
    "endfor %}{% set s = ns.s %}"

static const struct {
    const char *source, *says;
} failing[] = {
    {"{{ nothing.at.all }}", "undefined"},
    {"a\n{{ 'a' + 1 }}", "line 2: a string + an integer"},
    {"{{ 1 // 0 }}", "division by zero"},
    {"{{ messages() }}", "cannot be called"},
    {"{{ 'a' < 1 }}", "cannot be ordered"},
    {"{% for x in 5 %}{% endfor %}", "cannot be walked over"},
    {"{{ raise_exception('no\x1b[31m') }}", "no\\e[31m"},
    {"{{ '{}'.format() }}", "no value for '{}'"},
    {"{{ 9223372036854775807 + 1 }}", "too large"},
    {"{% set messages.x = 1 %}", "no namespace"},
    {"{% for a, b in [[1]] %}{% endfor %}", "another number of names"},
    {"{{ 'x' | map }}", "map needs"},
    {"{{ [{'a': 1}, {}] | sort(attribute='a,b') }}", "cannot be ordered"},
    {"{{ [{}] | groupby }}", "groupby needs an attribute"},
    {"{{ [1] | batch(0) }}", "between 1 and a million"},
    {"{{ [1] | slice(9999999) }}", "between 1 and a million"},
    {"{{ 'x' | round }}", "round needs a number"},
    {"{{ 1.5 | round(99) }}", "at most 15 places"},
    {"{{ 1.5 | round(1, 'up') }}", "common, ceil or floor"},
    {"{{ '%s' | format(1, x=2) }}", "not both"},
    {"{{ '%s %s' % 1 }}", "not enough values"},
    {"{{ 'x' % 1 }}", "not all values"},
    {"{{ '%d' % 'a' }}", "%d needs a number"},
    {"{{ '%(a)s' % {} }}", "no value for '%(a)'"},
    {"{{ '%q' % 1 }}", "%q is not supported"},
    {"{{ '%99999d' % 1 }}", "larger than 9999"},
    {"{{ '50%' % () }}", "ends behind its %"},
    {"{{ '%#x' % 255 }}", "'#'"},
    {"{{ 'abc' | truncate(2) }}", "less than its end"},
    {"{{ [1].index(5) }}", "not in the list"},
    {"{% for x in [1] %}{{ loop([2]) }}{% endfor %}", "recursive loop"},
    {"{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}", "deep"},
    {"{{ {}.changed(1) }}", "for loop"},
    {"{% macro f(a) %}{% endmacro %}{{ f(*5) }}", "cannot be walked over"},
    {"{% macro f(a) %}{% endmacro %}{{ f(**[1]) }}", "** needs a mapping"},
    {"{% macro f() %}{{ varargs }}{% endmacro %}{{ f(*range(17)) }}", "more than 16 arguments"},
    {"{% macro f() %}{% endmacro %}{% call f() %}x{% endcall %}", "macro 'f' is given"},
    {"{{ [1] < (1,) }}", "cannot be ordered"},
    {"{% for i in range(99999) %}{{ 'x' | center(9999999) }}{% endfor %}", ""},
    {"{{ [1] | map(attribute='a.b') | list }}", "undefined is asked for"},
    {"{{ {} | tojson(sort_keys=true) }}", "sort_keys is not supported"},
    {"{{ {} | tojson(separators=',') }}", "not two strings"},
    {"{{ {} | tojson(indent=99) }}", "between 0 and 16"},
    {"{{ '1f' | int(0, 16) }}", "int with a base"},
    {"{{ dict([[1, 2]]) }}", "dict takes a mapping"},
    {"{{ namespace(1) }}", "namespace takes a mapping"},
    {"{{ 'abc'.startswith('b', 1) }}", "startswith with more than 1"},
    {"{{ 'a\nb'.splitlines(true) }}", "splitlines with more than 0"},
    {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "macro 'f' is given"},
    {"{% macro f(a) %}{% endmacro %}{{ f(b=1) }}", "macro 'f' is given"},
    {"{{ (1,) + [2] }}", "a tuple + a list"},
    {"{{ [1][::0] }}", "step"},
    {"{{ range(10000000) }}", "a million"},
    {"{{ 'a'.split('') }}", "empty string"},
    {"{{ 1 is in 2 }}", "'in' asks"},
    /* those that would not end, or not fit */
    {"{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% "
     "endfor %}",
     "wanted"},
    {"{% for a in range(999999) %}{% for b in range(999999) %}{% endfor %}{% endfor %}", ""},
    {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deep"},
    {"{{ 'x' * 9000000000000000000 }}", ""},
    {"{% set l = [1] %}{% for i in l %}{{ l.append(i) }}{% endfor %}", ""},
    {"{% set l = [] %}{{ l.append(l) }}{{ l }}", "deep"},
    {"{% set l = [] %}{{ l.append(l) }}{{ l | tojson }}", "deep"},
    {"{{ 2 ** 9223372036854775807 }}", "too large"},
    {"{{ 1 ** 9223372036854775807 }}", "too long"},
    /* receivers and arguments that are not what a method takes them for */
    {"{{ {'index0': 0 - 1}.cycle('a', 'b') }}", "for loop"},
    {"{{ {'index0': 'x'}.cycle('a') }}", "for loop"},
    {"{{ dict(index0=-7).cycle(1, 2, 3, 4, 5, 6, 7) }}", "for loop"},
    {"{% for i in [1] %}{{ loop.cycle() }}{% endfor %}", "for loop"},
    {"{% for i in [1] %}{{ dict(loop).cycle(1) }}{% endfor %}", "for loop"},
    {"{{ 'a'.find(1) }}", "find needs a string"},
    {"{{ 'a'.strip(1) }}", "strip needs a string"},
    {"{{ 'a'.split(1) }}", "split needs a string"},
    {"{{ 'a'.split('a', 'b') }}", "split's limit"},
    {"{{ 'a'.replace('a', 'b', 'c') }}", "replace's limit"},
    {"{{ 'a'.startswith() }}", "startswith needs"},
    {"{{ 'a'.removeprefix(none) }}", "removeprefix needs"},
    {"{{ ['a'] | join(1) }}", "join needs a string"},
    {"{{ 'x' | abs }}", "abs needs"},
    {"{{ (0 - 9223372036854775807 - 1) | abs }}", "too large"},
    {"{{ 'abc'['a':] }}", "slice's border"},
    {"{{ [1][::'a'] }}", "slice's step"},
    {"{{ 'a' | indent([]) }}", "indent's width"},
    {"{{ '{'.format(1) }}", "single brace"},
    {"{{ '}'.format(1) }}", "single brace"},
    {"{{ '{1}'.format(1) }}", "no value"},
    {"{{ '{x}'.format(y=1) }}", "no value"},
    {"{{ '{0.a}'.format(1) }}", "no value"},
    {"{{ '{:q}'.format(1) }}", "not supported"},
    {"{{ '{:99999}'.format(1) }}", "larger than"},
    {"{{ '{:.2f}'.format('a') }}", "does not fit"},
    /* loops over long values, each of which must be paid for */
    {LONG "{% for i in range(100000) %}{% if s.isdigit() %}{% endif %}{% endfor %}", "too long"},
    {LONG "{% for i in range(100000) %}{% if s.isalpha() %}{% endif %}{% endfor %}", "too long"},
    {LONG "{% for i in range(100000) %}{% if s.startswith(s) %}{% endif %}{% endfor %}",
     "too long"},
    {LONG "{% for i in range(100000) %}{% if s.endswith(s) %}{% endif %}{% endfor %}", "too long"},
    {LONG "{% for i in range(100000) %}{% if s.find('2') %}{% endif %}{% endfor %}", "too long"},
    {LONG
     "{% set t = s + '2' %}{% for i in range(100000) %}{% if s.strip(t) %}{% endif %}{% endfor %}",
     "too long"},
    {LONG "{% for i in range(100000) %}{% if s.split('2') %}{% endif %}{% endfor %}", "too long"},
    {LONG "{% for i in range(100000) %}{% if s[1000000:1000001] %}{% endif %}{% endfor %}",
     "too long"},
    {LONG "{% for i in range(100000) %}{% if s | length %}{% endif %}{% endfor %}", "too long"},
    {LONG "{% set d = dict() %}{% set d = {s: 1} %}{% for i in range(100000) %}{% if d.get(s) %}{% "
          "endif %}{% endfor %}",
     "too long"},
    {LONG "{% for i in range(100000) %}{% if '2' in s %}{% endif %}{% endfor %}", "too long"},
    {LONG "{% for i in range(100000) %}{% if s == s %}{% endif %}{% endfor %}", "too long"},
    {"{% set l = range(50000) %}{% set m = range(50000) %}{% for i in range(50000) %}{% if l == m "
     "%}{% endif %}{% endfor %}",
     "too long"},
    {"{% set l = range(100000) | reverse %}{{ l | sort | length }}", "too long"},
    {"{% for i in range(1000000) %}{% set x = 0.1 | string %}{% endfor %}", ""},
};

START_TEST(failures_and_hostile_templates_end)
{
    struct error e = {0};
    struct timespec a, b;
    char hi[] = "Hi", *text, *mask;
    struct message m = {.role = ROLE_USER, .text = hi};

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    ck_assert_msg(render(failing[_i].source, &m, 1, true, &text, &mask, &e) == ERR_INPUT, "%s: %s",
                  failing[_i].source, text ? text : e.text);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    ck_assert_msg(strstr(e.text, failing[_i].says) != NULL, "%s", e.text);
    ck_assert_msg(b.tv_sec - a.tv_sec < 10, "%s took %ld s", failing[_i].source,
                  (long)(b.tv_sec - a.tv_sec));
}
END_TEST

static bool asked_often(void *ctx)
{
    return --*(int *)ctx == 0;
}

/* A template in the middle of whatever it does ends when it is asked to. */
START_TEST(rendering_ends_when_asked)
{
    static const char *const sources[] = {
        "{% for a in range(999999) %}{% endfor %}",
        LONG "{% for i in range(99999) %}{% if s.isdigit() %}{% endif %}{% endfor %}",
        "{{ range(100000) | sort | length }}",
        "{% set l = [1] %}{% for i in l %}{{ l.append(i) }}{% endfor %}"};

    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        int left = 3;
        struct stop stop = {asked_often, &left};
        struct strbuf out = {0};
        struct error e = {0};
        struct jinja *j;

        ck_assert_int_eq(jinja_parse(&j, sources[i], strlen(sources[i]), &e), 0);
        ck_assert_int_eq(jinja_render(j, &(struct jinja_input){.stop = &stop},
                                      &(struct jinja_output){.text = &out}, &e),
                         ERR_CANCELLED);
        ck_assert_int_eq(left, 0);
        jinja_free(j);
        strbuf_release(&out);
    }
}
END_TEST

/* How often a stop is asked while n messages become ids. */
static int asked_for(const struct chat_template *c, const struct tokenizer *t, size_t n)
{
    int asked = 0, *ids, n_ids, *starts = calloc(n + 1, sizeof *starts);
    struct stop stop = {asked_often, &asked};
    struct message *m = calloc(n, sizeof *m);
    struct error e = {0};
    char one[] = "x";

    for (size_t i = 0; i < n; i++)
        m[i] = (struct message){.role = i % 2 ? ROLE_ASSISTANT : ROLE_USER, .text = one};
    ck_assert_msg(chat_template_encode(c, m, n, NULL, true, &stop, &ids, &n_ids, starts, &e) == 0,
                  "%s", e.text);
    for (size_t i = 0; i < n; i++) {
        const char *role = i % 2 ? "<|assistant|>" : "<|user|>";

        ck_assert_int_eq(ids[starts[i]], tokenizer_find(t, role, strlen(role)));
    }
    mem_free(ids);
    free(starts);
    free(m);
    return -asked;
}

/* The work grows as the conversation does, not with its square. */
START_TEST(long_conversations_are_rendered_a_few_times)
{
    struct weight_file *f;
    struct tokenizer *t;
    struct chat_template *c;
    struct error e = {0};
    int few, many;

    ck_assert_int_eq(weight_file_open(&f, support_demo(), true, &e), 0);
    ck_assert_int_eq(tokenizer_load(&t, f, &e), 0);
    ck_assert_int_eq(chat_template_load(&c, f, t, NULL, &e), 0);
    few = asked_for(c, t, 501);
    many = asked_for(c, t, 5001);
    ck_assert_msg(few > 0 && many <= 11 * few + 11, "%d and %d", few, many);
    chat_template_free(c);
    tokenizer_free(t);
    weight_file_close(f);
}
END_TEST

/* Python's answers, checked with Python. */
START_TEST(methods_and_filters_as_in_python)
{
    static const struct {
        const char *source, *text;
    } cases[] = {
        {"{{ '<{}>'.format('a') }}", "<a>"},
        {"{{ '{1}{0}{{}}'.format('a', 2) }}", "2a{}"},
        {"{{ '{x}-{y}'.format(x=1, y=none) }}", "1-None"},
        {"{{ '[{:>4}|{:<4}|{:^4}|{:*^5}]'.format('a', 1, 'b', 'c') }}", "[   a|1   | b  |**c**]"},
        {"{{ '{:05d}|{:.2f}|{:.1}'.format(-42, 1.005, 'xyz') }}", "-0042|1.00|x"},
        {"{{ 'a,b,c'.rsplit(',', 1) | join('|') }}", "a,b|c"},
        {"{{ ' a  b c '.split(none, 1) | join('|') }}", "a|b c "},
        {"{{ ' a  b c '.rsplit(none, 1) | join('|') }}", " a  b|c"},
        {"{{ 'a,b'.split(',', -9223372036854775807 - 1) | join('|') }}", "a|b"},
        {"{{ 'aa'.replace('a', 'b', -9223372036854775807 - 1) }}", "bb"},
        {"{{ 'ab'.replace('', '-') }}", "-a-b-"},
        {"{{ '\xc3\xa9\xc3\xa8'.strip('\xc3\xa8') }}", "\xc3\xa9"},
        {"{{ '\xe3\x80\x80x\xc2\xa0'.strip() }}", "x"},
        {"{{ 'xxabxx'.strip('x') }}", "ab"},
        {"{{ 'a\r\nb\nc\n'.splitlines() | join('|') }}", "a|b|c"},
        {"{{ 'abab'.count('ab') }}", "2"},
        {"{{ 'abc'.removeprefix('ab') + 'abc'.removesuffix('bc') }}", "ca"},
        {"{{ [\"it's\", 'a\"b', 'c'] }}", "[\"it's\", 'a\"b', 'c']"},
        {"{{ [1, 2] * 2 }}{{ 3 * 'a' }}", "[1, 2, 1, 2]aaa"},
        {"{{ -3 | abs }}{{ '12' | int + 1 }}{{ '9007199254740993' | int }}", "3139007199254740993"},
        {"{% for i in [1, 2, 3] %}{{ loop.cycle('a', 'b') }}{% endfor %}", "aba"},
        {"{{ 'a\nb' | indent(2) }}{{ 'a\nb' | indent('>>', true) }}", "a\n  b>>a\n>>b"},
        {"{{ 4 is divisibleby(-1) }}", "True"},
        {"{{ '\\x41\\u00e9\\U0001f642\\101\\0\\q\\x4' | tojson }}", "\"A\xc3\xa9\xf0\x9f\x99\x82"
                                                                    "A\\u0000\\\\q\\\\x4\""},
        {"a\r\nb\rc{% if true %}\r\nd{% endif %}{{ 'x\r\ny' }}", "a\nb\ncdx\ny"},
        {"{{ 10.0 }} {{ 1000.0 }} {{ -100.0 | tojson }} {{ 123456789012345.0 }} {{ 1e15 }} {{ 1e16 "
         "}}",
         "10.0 1000.0 -100.0 123456789012345.0 1000000000000000.0 1e+16"},
        {"{{ 1e-4 }} {{ 1e-5 }} {{ 1.5E+3 }} {{ 1e22 }} {{ -0.0 }}",
         "0.0001 1e-05 1500.0 1e+22 -0.0"},
        {"{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 != 2 != 1 }}{{ 3 > 2 >= 2 > 1 }}",
         "TrueFalseTrueTrue"},
        {"{{ (1, 'a') }} {{ (1,) }} {{ () }} {{ [(1,)] == [[1]] }} {{ (1, 2)[::-1] }} {{ (1,) * 2 "
         "}}",
         "(1, 'a') (1,) () False (2, 1) (1, 1)"},
        {"{{ {'a': 1}.items() | list }} {% set a = 1, 2 %}{{ a }}", "[('a', 1)] (1, 2)"},
        {"{{ 1 in {1: 2} }}{{ '1' in {1: 2} }}{{ [[1, [2, 3]]].0.1.1 }}", "TrueFalse3"},
        {"{{ [{'f': {'n': 'x'}}, {'f': {}}] | selectattr('f.n', 'defined') | list | length }}",
         "1"},
        {"{{ [{'f': [4, 5]}] | map(attribute='f.1') | join }}", "5"},
        {"{{ [{'a': 1}, {}] | map(attribute='a', default='-') | join }}", "1-"},
        {"{{ [[1, 'b'], [2, 'A']] | sort(attribute=1) | map(attribute=0) | join }}", "21"},
        {"{{ ['a', 'A', 'b'] | unique | join }}{{ ['a', 'A'] | unique(true) | join }}", "abaA"},
        {"{{ [{'r': 1, 'c': 2}, {'r': 1}] | unique(attribute='r') | list }}", "[{'r': 1, 'c': 2}]"},
        {"{{ {'b': 1, 'A': 2, 'c': 0} | dictsort }}", "[('A', 2), ('b', 1), ('c', 0)]"},
        {"{{ {'b': 1, 'A': 2} | dictsort(by='value', reverse=true) }}", "[('A', 2), ('b', 1)]"},
        {"{{ [1, 2, 3] | select('>=', 2) | reject('!=', 2) | join }}", "2"},
        {"{{ {'a': [1, '\xc3\xa9\xf0\x9f\x99\x82']} | tojson(separators=(',', ':')) }}",
         "{\"a\":[1,\"\xc3\xa9\xf0\x9f\x99\x82\"]}"},
        {"{{ '\xc3\xa9\xf0\x9f\x99\x82' | tojson(ensure_ascii=true) }}",
         "\"\\u00e9\\ud83d\\ude42\""},
        {"{{ [{}, [1]] | tojson(indent=0) }}{{ {none: true} | tojson(true) }}",
         "[\n{},\n[\n1\n]\n]{\"null\": true}"},
        {"{{ 'aXbX' | replace('X', '-', 1) }}{{ 'xax' | trim(chars='x') }}", "a-bXa"},
        {"{{ \"it's x_y (foo) bar-baz\" | title }}{{ \"it's\".title() }}",
         "It's X_y (Foo) Bar-BazIt'S"},
        {"{{ 'stra\xc3\x9f\x65' | upper }}{{ '1' is upper }}{{ 'A1' is upper }}",
         "STRASSEFalseTrue"},
        {"{{ ' 12 ' | int }}{{ ' 1.5\n' | float }}{{ '0x1f' | int }}{{ '0x1f' | float }}",
         "121.500.0"},
        {"{%- raw -%}  {{ a }}  {%- endraw %} b{% raw %} c {% endraw %}", "{{ a }} b c "},
        {"{{ [x] }}{{ x is iterable }}{% for i in [1] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor "
         "%}",
         "[Undefined]True10"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error e = {0};
        char *text, *mask;

        ck_assert_msg(render(cases[i].source, NULL, 0, false, &text, &mask, &e) == 0, "%s: %s",
                      cases[i].source, e.text);
        ck_assert_str_eq(text, cases[i].text);
        mem_free(text);
        mem_free(mask);
    }
}
END_TEST

/* What jinja2 3.1.6 makes of these, in Hugging Face's sandbox. */
static const struct {
    const char *source, *text;
} rendered[] = {
    {"{{ [{'a':2,'b':1},{'a':1,'b':2},{'a':1,'b':1}] | sort(attribute='a,b') }}",
     "[{'a': 1, 'b': 1}, {'a': 1, 'b': 2}, {'a': 2, 'b': 1}]"},
    {"{{ [{'a':2,'b':1},{'a':1,'b':2},{'a':1,'b':1}] | sort(attribute='a,b', reverse=true) | "
     "map(attribute='b') | join(',') }}",
     "1,2,1"},
    {"{{ [{'a':'x'},{'a':'X'},{'a':'b'}] | groupby('a') | list | length }}", "2"},
    {"{% for g, l in [{'a':'x','n':1},{'a':'X','n':2},{'a':'b','n':3}] | groupby('a') %}{{ g }}={{ "
     "l | map(attribute='n') | join('+') }};{% endfor %}",
     "b=3;x=1+2;"},
    {"{% for g in [{'a':1},{}] | groupby('a', default=0) %}{{ g.grouper }}:{{ g.list }} {% endfor "
     "%}",
     "0:[{}] 1:[{'a': 1}] "},
    {"{{ [1,2,3,4,5] | batch(2) | list }}", "[[1, 2], [3, 4], [5]]"},
    {"{{ [1,2,3,4,5] | batch(2, 'x') | list }}", "[[1, 2], [3, 4], [5, 'x']]"},
    {"{{ [1,2,3,4,5] | slice(3) | list }}", "[[1, 2], [3, 4], [5]]"},
    {"{{ [1,2,3,4,5] | slice(3, 0) | list }}", "[[1, 2], [3, 4], [5, 0]]"},
    {"{{ [] | slice(2) | list }}", "[[], []]"},
    {"{{ [] | batch(2, 0) | list }}", "[]"},
    {"{{ [3,1,2] | min }}{{ [3,1,2] | max }}{{ ['b','A'] | min }}{{ ['b','A'] | max(true) }}",
     "13Ab"},
    {"{{ [{'n':3},{'n':1}] | min(attribute='n') }}{{ [] | max is defined }}", "{'n': 1}False"},
    {"{{ [1,2.5] | sum }} {{ [{'n':3},{'n':1}] | sum(attribute='n') }} {{ [[1],[2]] | "
     "sum(start=[]) }} {{ [{'n':3}] | sum('n', 10) }}",
     "3.5 4 [1, 2] 13"},
    {"{{ 42.55 | round }} {{ 42.55 | round(1) }} {{ 42.55 | round(1, 'floor') }} {{ 42.51 | "
     "round(0,'ceil') }} {{ 2.5 | round }} {{ 3.5|round }} {{ 7 | round }} {{ 7 | round(1) }}",
     "43.0 42.5 42.5 43.0 2.0 4.0 7 7"},
    {"{{ 1250 | round(-2) }} {{ 1350 | round(-2) }} {{ 1350.5 | round(-2) }} {{ 1.005 | round(2) "
     "}} {{ -2.5 | round }} {{ 1234 | round(-2, 'floor') }}",
     "1200 1400 1400.0 1.0 -2.0 1200.0"},
    {"{{ '%s-%s' | format('a', 2) }} {{ '%(x)s' | format(x=3) }} {{ '%d%%' | format(3.9) }} {{ "
     "'%05.1f|%-5d|%+d' | format(3.14159, 7, 8) }}",
     "a-2 3 3% 003.1|7    |+8"},
    {"{{ '%s' % 'a' }} {{ '%s %s' % (1, 'b') }} {{ '%(a)s' % {'a': 1} }} {{ '%r' % 'x' }} {{ '%x "
     "%X %o' % (255, 255, 8) }} {{ '%e' % 12345.678 }} {{ '%g' % 0.00001 }} {{ '%.3s|' % 'abcdef' "
     "}} {{ '%5s|%-5s|' % ('a', 'b') }} {{ '% d' % 5 }}",
     "a 1 b 1 'x' ff FF 10 1.234568e+04 1e-05 abc|     a|b    |  5"},
    {"{{ '%s' % none }} {{ '%s' % true }} {{ '%d' % true }} {{ '%s' % [1, 'a'] }}",
     "None True 1 [1, 'a']"},
    {"{{ '%%' % () }} {{ 'abc' % {} }} {{ 'abc' % [] }}", "% abc abc"},
    {"[{{ 'ab' | center(5) }}] [{{ 'a' | center(4) }}] [{{ 'abc' | center(2) }}] [{{ 'abc' | "
     "center(6) }}] [{{ 'x'|center(width=3) }}]",
     "[  ab ] [ a  ] [abc] [ abc  ] [ x ]"},
    {"{{ 'foo bar baz qux' | truncate(9) }} {{ 'foo bar baz qux' | truncate(9, true) }} {{ 'foo "
     "bar baz qux' | truncate(11) }} {{ 'foo bar baz qux' | truncate(11, false, '...', 0) }} {{ "
     "'foobarbazquux' | truncate(5, leeway=0) }} {{ 'foo bar' | truncate(5, true, '', 0) }}",
     "foo... foo ba... foo bar baz qux foo bar... fo... foo b"},
    {"{{ 'a b, c_d \303\251-f 12' | wordcount }} {{ '' | wordcount }} {{ \"it's\" | wordcount }}",
     "6 0 2"},
    {"{{ '<a href=\"x\">&\\'</a>' | escape }} {{ '<' | e }} {{ 5 | e }} {{ '&amp;' | e }}",
     "&lt;a href=&#34;x&#34;&gt;&amp;&#39;&lt;/a&gt; &lt; 5 &amp;amp;"},
    {"{{ 'a\"' | safe + '<' }}|{{ '<' + ('>' | safe) }}|{{ '<' ~ 5 ~ ('>' | e) ~ '\"' }}",
     "a\"&lt;|&lt;>|<5&gt;\""},
    {"{{ ('<' | e) | e }} {{ ('<' | safe) | escape }} {{ ('<b>' | safe)[1:] + '<' }}",
     "&lt; < b>&lt;"},
    {"{{ ('<' | safe) * 2 + '>' }} {{ ['<' | safe, '<'] }}", "<<&gt; [Markup('<'), '<']"},
    {"{{ ('x' | e) is escaped }} {{ 'x' is escaped }} {{ (5 | safe) is escaped }}{{ none | safe }}",
     "True False TrueNone"},
    {"{{ ('<%s %d>' | safe) % ('<', 5) }} {{ ('<%s>' | safe) % '&' }}", "<&lt; 5> <&amp;>"},
    {"{{ (('<' | safe) ~ '&') | replace('<', '[') + '>' }} {{ [('<' | safe), '&'] | join('<') + "
     "'>' }}",
     "[&> <<&>"},
    {"{{ ('<' | safe) | trim + '>' }} {{ ('<' | safe) | string + '>' }}{% set x %}{{ '<' | safe "
     "}}{% endset %}{{ x + '>' }}",
     "<&gt; <&gt;<>"},
    {"{{ 1 is sameas 1 }} {{ none is sameas none }} {{ true is sameas true }} {{ true is sameas 1 "
     "}}",
     "True True True False"},
    {"{% set a = [1] %}{% set b = a %}{{ a is sameas b }} {{ a is sameas [1] }}", "True False"},
    {"{% for x in [[1,[2,[3]]]] recursive %}{{ loop.depth }}{% if x is iterable and x is not "
     "string %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}",
     "1(212(323(43)))"},
    {"{% for n in [{'v':1,'c':[{'v':2,'c':[]},{'v':3,'c':[{'v':4,'c':[]}]}]}] recursive %}<{{ n.v "
     "}}@{{ loop.depth0 }}{{ loop(n.c) }}>{% endfor %}",
     "<1@0<2@1><3@1<4@2>>>"},
    {"{% for i in [1,1,2,2,1] %}{{ loop.changed(i) }} {% endfor %}", "True False True False True "},
    {"{% for i in [1,1,2] %}{{ loop.changed() }} {{ loop.changed(i, i) }} {% endfor %}",
     "True True True True True True "},
    {"{% for i in [1,2] %}{% break %}{% else %}E{% endfor %}", "E"},
    {"{% for i in [1,2] %}{% continue %}{% else %}E{% endfor %}", "E"},
    {"{% for i in [1,2] %}{% if i==2 %}{% break %}{% endif %}{% else %}E{% endfor %}", ""},
    {"{% macro f(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1) }} {{ "
     "f(1,2,3,4) }} {{ f(1, z=5) }} {{ f(b=1, a=2) }}",
     "12(){} 12(3, 4){} 12(){'z': 5} 21(){}"},
    {"{% macro f() %}{{ caller() }}!{% endmacro %}{% call f() %}in{% endcall %}", "in!"},
    {"{% macro f(l) %}{% for x in l %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(x) f([1,2]) "
     "%}<{{ x }}>{% endcall %}",
     "<1><2>"},
    {"{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}", "False"},
    {"{% filter upper %}abc {{ 'd' }}{% endfilter %}", "ABC D"},
    {"{% filter replace('a', 'b') | upper %}aaa{% endfilter %}", "BBB"},
    {"{% set x | upper %}abc{% endset %}{{ x }}", "ABC"},
    {"{% set x | trim | upper %} abc {% endset %}[{{ x }}]", "[ABC]"},
    {"{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a }}", "1"},
    {"{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "12False"},
    {"{% set a = 5 %}{% with a=1, b=a %}{{ a }}{{ b }}{% endwith %}", "15"},
    {"{% for (a, b), c in [((1,2),3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
    {"{% for a, (b, c) in [(1,(2,3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
    {"{{ [1,2,1].count(1) }}{{ [1,2].index(2) }}", "21"},
    {"{{ dict(*[{'a':1}], **{'b':2}) }}", "{'a': 1, 'b': 2}"},
    {"{% macro f(a,b,c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*[1,2], c=3) }}{{ f(1, "
     "**{'c':4}) }}{{ f(*(1,2,3)) }}",
     "12314123"},
    {"{{ {'items': 5}['items'] }} {{ {'a': 5}.a }} {{ {'get': 5}.get('get') }}", "5 5 5"},
    {"{% set m = {'keys': 1} %}{% for k in m.keys() %}{{ k }}{% endfor %}", "keys"},
    {"{{ (1,2) < (1,3) }} {{ [1,'a'] < [1,'b'] }} {{ [1] < [1,2] }} {{ (1,) < (0,5) }}",
     "True True True False"},
    {"{{ [[2,'b'],[1,'z'],[2,'a']] | sort }}", "[[1, 'z'], [2, 'a'], [2, 'b']]"},
    {"{{ [(2,'b'),(1,'z')] | sort(reverse=true) }}", "[(2, 'b'), (1, 'z')]"},
    {"{% set z = 9 %}{% macro g() %}{{ z }}{% endmacro %}{% for z in [1] %}{{ g() }}{% endfor %}",
     "9"},
    {"{% for z in [1] %}{% macro g() %}{{ z }}{% endmacro %}{{ g() }}{% endfor %}", "1"},
    {"{{ '%s: %d, %.2f' | format('a', 5, 2.345) }}", "a: 5, 2.35"},
    {"{{ [3,1] | sort | first }} {{ ['b','A','c'] | sort }} {{ ['b','A'] | "
     "sort(case_sensitive=true) }}",
     "1 ['A', 'b', 'c'] ['A', 'b']"},
    {"{% macro f(x, caller=none) %}{{ x }}{{ caller() if caller else '-' }}{% endmacro %}{{ f(1) "
     "}}{% call f(2) %}c{% endcall %}",
     "1-2c"},
};

START_TEST(statements_and_filters_as_in_jinja)
{
    struct error e = {0};
    char *text, *mask;

    ck_assert_msg(render(rendered[_i].source, NULL, 0, false, &text, &mask, &e) == 0, "%s: %s",
                  rendered[_i].source, e.text);
    ck_assert_str_eq(text, rendered[_i].text);
    mem_free(text);
    mem_free(mask);
}
END_TEST

START_TEST(deep_nesting_is_refused_not_followed)
{
    static const char *const units[] = {"(",
                                        "[",
                                        "-",
                                        "not ",
                                        "{% if 1 %}",
                                        "{'a':",
                                        "x if x else ",
                                        "{% for a in b %}",
                                        "x|trim(",
                                        "a[",
                                        "a(",
                                        "{{",
                                        "{% if 1 %}{% elif 1 %}"};

    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t n = strlen(units[u]), len = 4;
        char *source = malloc(n * 20000 + 5);
        struct jinja *j = NULL;
        struct error e = {0};

        memcpy(source, "{{  ", 5);
        if (units[u][0] == '{' && units[u][1] == '%')
            len = 0;
        for (int i = 0; i < 20000; i++, len += n)
            memcpy(source + len, units[u], n);
        ck_assert_int_eq(jinja_parse(&j, source, len, &e), ERR_MODEL);
        free(source);
    }
}
END_TEST

/* A long chain parses in a loop but evaluates in depth: it must be refused, or work, but not
 * overflow the stack. */
START_TEST(long_chains_do_not_overflow)
{
    static const char *const units[] = {"+1", "~1", "|trim", ".a", "[0]", " and 1", " is defined"};

    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t n = strlen(units[u]), len = 4;
        char *source = malloc(n * 100000 + 8);
        struct jinja *j = NULL;
        struct error e = {0};
        struct strbuf out = {0};

        memcpy(source, "{{ 1", 5);
        for (int i = 0; i < 100000; i++, len += n)
            memcpy(source + len, units[u], n);
        memcpy(source + len, " }}", 3);
        if (jinja_parse(&j, source, len + 3, &e) == 0)
            ck_assert_int_lt(jinja_render(j, &(struct jinja_input){.add_generation_prompt = true},
                                          &(struct jinja_output){.text = &out}, &e),
                             0);
        jinja_free(j);
        strbuf_release(&out);
        free(source);
    }
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    struct weight_file *f;
    struct tokenizer *t;
    struct chat_template *c = NULL;
    struct error e = {0};
    char hi[] = "Hi", you[] = "Hello";
    struct message m[] = {{.role = ROLE_USER, .text = hi},
                          {.role = ROLE_ASSISTANT, .text = you},
                          {.role = ROLE_USER, .text = hi}};
    int status = -1, *ids, n, starts[4];

    ck_assert_int_eq(weight_file_open(&f, support_demo(), true, &e), 0);
    ck_assert_int_eq(tokenizer_load(&t, f, &e), 0);
    for (long k = 0; status < 0; k++) {
        mem_fail_after(k);
        status = chat_template_load(&c, f, t, NULL, &e);
        mem_fail_after(-1);
        ck_assert_msg(status == 0 || status == ERR_MEMORY, "%s", e.text);
        ck_assert_int_lt(k, 1000);
    }
    ck_assert_ptr_null(chat_template_notice(c));
    status = -1;
    for (long k = 0; status < 0; k++) {
        mem_fail_after(k);
        status = chat_template_encode(c, m, 3, NULL, true, NULL, &ids, &n, starts, &e);
        mem_fail_after(-1);
        ck_assert_msg(status == 0 || status == ERR_MEMORY, "%s", e.text);
        ck_assert_int_lt(k, 1000);
    }
    mem_free(ids);
    chat_template_free(c);
    tokenizer_free(t);
    weight_file_close(f);
}
END_TEST

/* ---- folders made up: where the template comes from, and the fallback ---- */

static const struct {
    const char *config, *jinja, *text, *notice;
} folders[] = {
    {"{\"chat_template\": \"A{{ bos_token }}{{ messages[0].content }}\", \"bos_token\": "
     "{\"content\": \"<b>\"}}",
     NULL, "A<b>Hi", NULL},
    {"{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"no\"}, {\"name\": \"default\", "
     "\"template\": \"yes\"}]}",
     NULL, "yes", NULL},
    {"{\"chat_template\": \"A\"}", "B{{ eos_token }}", "B", NULL},
    {"{\"eos_token\": \"<e>\"}", "B{{ eos_token }}\n", "B<e>", NULL},
    {"{}", NULL, "<|user|>\nHi<|end|>\n<|assistant|>\n", "no chat template"},
    {NULL, NULL, "<|user|>\nHi<|end|>\n<|assistant|>\n", "no chat template"},
    {"[1]", NULL, "<|user|>\nHi<|end|>\n<|assistant|>\n", "no chat template"},
    {"{\"chat_template\": \"{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% "
     "endif %}{{ messages[1].content }}\"}",
     NULL, NULL, "no"},
    {"{\"chat_template\": \"x\\n{{ y | strange }}\"}", NULL, NULL, "line 2: the filter 'strange'"},
    {"{\"chat_template\": \"{{ tools.x.y }}\"}", NULL, NULL,
     "line 1: a member of something undefined"},
};

/* A template that cannot be used: an error that names the remedy, and nothing where the user chose
 * another. */
static void check_refused(const struct weight_file *f, const struct tokenizer *t, const char *says)
{
    struct chat_template_options other = {.name = "chatml"}, none = {.name = "no such"};
    struct chat_template *c;
    struct error e = {0};

    ck_assert_int_eq(chat_template_load(&c, f, t, NULL, &e), ERR_MODEL);
    ck_assert_ptr_null(c);
    ck_assert_msg(strstr(e.text, says) && strstr(e.text, "the model's chat template") == e.text &&
                      strstr(e.text, "--chat-template NAME"),
                  "%s", e.text);
    ck_assert_int_eq(chat_template_load(&c, f, t, &other, &e), 0);
    ck_assert_ptr_null(chat_template_notice(c));
    chat_template_free(c);
    ck_assert_int_eq(chat_template_load(&c, f, t, &none, &e), ERR_USAGE);
}

START_TEST(templates_of_folders)
{
    const char *dir = support_tmpdir();
    struct weight_file *f;
    struct tokenizer *t;
    struct chat_template *c;
    struct error e = {0};
    char hi[] = "Hi", *text;
    struct message m = {.role = ROLE_USER, .text = hi};

    support_put(dir, "config.json", "{\"model_type\": \"phimoe\"}");
    support_put(dir, "tokenizer.json",
                "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}");
    if (folders[_i].config)
        support_put(dir, "tokenizer_config.json", folders[_i].config);
    if (folders[_i].jinja)
        support_put(dir, "chat_template.jinja", folders[_i].jinja);
    ck_assert_msg(weight_file_open(&f, dir, true, &e) == 0, "%s", e.text);
    ck_assert_msg(tokenizer_load(&t, f, &e) == 0, "%s", e.text);
    if (!folders[_i].text && strstr(folders[_i].notice, "line")) {
        check_refused(f, t, folders[_i].notice);
        tokenizer_free(t);
        weight_file_close(f);
        return;
    }
    ck_assert_msg(chat_template_load(&c, f, t, NULL, &e) == 0, "%s", e.text);
    if (!folders[_i].text) { /* it wants a system message */
        ck_assert_int_eq(chat_template_render(c, &m, 1, NULL, true, NULL, &text, &e), ERR_INPUT);
        chat_template_free(c);
        tokenizer_free(t);
        weight_file_close(f);
        return;
    }
    ck_assert_int_eq(chat_template_render(c, &m, 1, NULL, true, NULL, &text, &e), 0);
    ck_assert_str_eq(text, folders[_i].text);
    if (folders[_i].notice)
        ck_assert_msg(chat_template_notice(c) &&
                          strstr(chat_template_notice(c), folders[_i].notice),
                      "%s", chat_template_notice(c));
    else
        ck_assert_ptr_null(chat_template_notice(c));
    mem_free(text);
    chat_template_free(c);
    tokenizer_free(t);
    weight_file_close(f);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("template");
    TCase *c = tcase_create("template");

    tcase_set_timeout(c, 240);
    tcase_add_test(c, chats_of_the_bundled_model);
    tcase_add_test(c, chats_of_the_demo_folder);
    tcase_add_test(c, chats_of_phi_tiny_moe);
    tcase_add_test(c, ends_that_a_vocabulary_names);
    tcase_add_loop_test(c, chats_of_other_families, 0, (int)(sizeof families / sizeof *families));
    tcase_add_test(c, renders_as_jinja2_does);
    tcase_add_test(c, built_in_formats_are_the_official_ones);
    tcase_add_test(c, mask_follows_typed_text);
    tcase_add_test(c, reasoning_has_the_names_of_templates);
    tcase_add_loop_test(c, bad_templates_are_refused_with_their_line, 0,
                        sizeof refused / sizeof *refused);
    tcase_add_loop_test(c, failures_and_hostile_templates_end, 0, sizeof failing / sizeof *failing);
    tcase_add_test(c, rendering_ends_when_asked);
    tcase_add_test(c, long_conversations_are_rendered_a_few_times);
    tcase_add_test(c, methods_and_filters_as_in_python);
    tcase_add_loop_test(c, statements_and_filters_as_in_jinja, 0,
                        sizeof rendered / sizeof *rendered);
    tcase_add_test(c, deep_nesting_is_refused_not_followed);
    tcase_add_test(c, long_chains_do_not_overflow);
    tcase_add_test(c, every_allocation_may_fail);
    tcase_add_loop_test(c, templates_of_folders, 0, sizeof folders / sizeof *folders);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
