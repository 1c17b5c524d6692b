/* Fuzz target: chat templates that parse. The input is not a template but the choices by which one
 * is written, so that every run gets past the parser and to what values do to each other: every
 * statement, operator, filter, test, method and function, mostly with receivers and arguments of
 * the right type, sometimes not, and with numbers at the ends of their ranges. When the input ends,
 * a generator seeded by it goes on choosing. SHOW=1 in the environment prints the templates. */
#include "engine/text/jinja/jinja.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum kind { INTEGER, TEXT, LIST, MAPPING, TRUTH, ANY };

struct writer {
    const uint8_t *data;
    size_t size, at;
    uint64_t seed;
    struct strbuf out;
    int depth, loops;
};

static unsigned choose(struct writer *w, unsigned n)
{
    if (w->at < w->size)
        return w->data[w->at++] % n;
    w->seed ^= w->seed << 13;
    w->seed ^= w->seed >> 7;
    w->seed ^= w->seed << 17;
    return (unsigned)(w->seed >> 33) % n;
}

#define PICK(w, list) (list)[choose(w, sizeof(list) / sizeof *(list))]

static const char *const names[] = {"a",        "b",    "ns",        "m",     "x",
                                    "messages", "loop", "bos_token", "tools", "nothing"};
static const char *const keys[] = {"index0", "index", "role", "content", "a", "length", "x"};
static const char *const integers[] = {"0",
                                       "1",
                                       "-1",
                                       "2",
                                       "-7",
                                       "8",
                                       "255",
                                       "-256",
                                       "1000000",
                                       "-1000001",
                                       "9223372036854775807",
                                       "(0-9223372036854775807-1)"};
static const char *const texts[] = {"''",
                                    "'a'",
                                    "' b\\n c '",
                                    "'{}'",
                                    "'{0:>9}{x:05d}'",
                                    "'\xc3\xa9\xe4\xbd\xa0'",
                                    "'\xff\xc3'",
                                    "'%Y %d'",
                                    "'-9'",
                                    "'1.5'",
                                    "'content'",
                                    "messages[0].content",
                                    "messages[1]['content']"};
static const char *const methods[] = {"strip",    "lstrip",       "rstrip",       "upper",
                                      "lower",    "title",        "capitalize",   "startswith",
                                      "endswith", "removeprefix", "removesuffix", "split",
                                      "rsplit",   "splitlines",   "replace",      "join",
                                      "find",     "count",        "isdigit",      "isalpha",
                                      "isspace",  "format"};
static const char *const dict_methods[] = {"items", "keys", "values", "get", "cycle"};
static const char *const filters[] = {
    "trim", "upper",  "lower",  "capitalize", "title",      "length",  "count", "default",
    "d",    "tojson", "first",  "last",       "join",       "replace", "list",  "string",
    "int",  "float",  "abs",    "reverse",    "safe",       "indent",  "items", "dictsort",
    "map",  "select", "reject", "selectattr", "rejectattr", "unique",  "sort"};
static const char *const tests[] = {"defined",     "undefined", "none",    "string",  "number",
                                    "integer",     "float",     "boolean", "mapping", "iterable",
                                    "sequence",    "true",      "false",   "odd",     "even",
                                    "divisibleby", "equalto",   "eq",      "ne",      "lt",
                                    "le",          "gt",        "ge",      "in",      "callable",
                                    "lower",       "upper"};
static const char *const operators[] = {"+",  "-", "*",  "/", "//", "%",  "**",     "~",   "==",
                                        "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"};
static const char *const words[] = {"attribute", "indent",   "default", "width", "first",
                                    "boolean",   "maxsplit", "reverse", "x"};

static void put(struct writer *w, const char *text)
{
    strbuf_puts(&w->out, text);
}

static void expression(struct writer *w, enum kind kind);

static void arguments(struct writer *w, enum kind likely)
{
    unsigned n = 1 + choose(w, 12) % 4;

    put(w, "(");
    if (n == 4)
        n = 0;
    for (unsigned i = 0; i < n; i++) {
        if (i)
            put(w, ", ");
        if (choose(w, 10) == 0) {
            put(w, PICK(w, words));
            put(w, "=");
        }
        if (choose(w, 8) == 0) { /* what map, select and the like take */
            put(w, "'");
            put(w, choose(w, 2) ? PICK(w, filters) : PICK(w, tests));
            put(w, "'");
        } else
            expression(w, choose(w, 5) ? likely : (enum kind)choose(w, ANY + 1));
    }
    put(w, ")");
}

static void postfix(struct writer *w, enum kind kind)
{
    switch (choose(w, 6)) {
    case 0:
        put(w, " | ");
        put(w, PICK(w, filters));
        if (choose(w, 2))
            arguments(w, TEXT);
        break;
    case 1:
    case 2:
        put(w, "[");
        expression(w, choose(w, 2) ? INTEGER : TEXT);
        put(w, "]");
        break;
    case 3:
        put(w, "[");
        for (int i = 0; i < 3; i++) {
            if (i)
                put(w, ":");
            if (choose(w, 2))
                expression(w, INTEGER);
        }
        put(w, "]");
        break;
    case 4:
        put(w, ".");
        put(w, PICK(w, keys));
        break;
    default:
        put(w, ".");
        put(w, kind == TEXT      ? PICK(w, methods)
               : kind == MAPPING ? PICK(w, dict_methods)
               : kind == LIST    ? "append"
               : choose(w, 2)    ? PICK(w, methods)
                                 : PICK(w, dict_methods));
        arguments(w, choose(w, 2) ? TEXT : INTEGER);
    }
}

static void items(struct writer *w, bool mapping)
{
    unsigned n = choose(w, 4);

    for (unsigned i = 0; i < n; i++) {
        put(w, i ? ", " : "");
        if (mapping) {
            put(w, "'");
            put(w, PICK(w, keys));
            put(w, "': ");
        }
        expression(w, (enum kind)choose(w, ANY + 1));
    }
}

static void operand(struct writer *w, enum kind kind)
{
    switch (kind) {
    case INTEGER: put(w, choose(w, 8) ? PICK(w, integers) : "1.5"); break;
    case TEXT: put(w, PICK(w, texts)); break;
    case LIST:
        if (choose(w, 3) == 0) {
            put(w, "range");
            arguments(w, INTEGER);
            break;
        }
        put(w, "[");
        items(w, false);
        put(w, "]");
        break;
    case MAPPING:
        if (choose(w, 4) == 0) {
            put(w, choose(w, 2) ? "dict" : "namespace");
            arguments(w, MAPPING);
            break;
        }
        put(w, "{");
        items(w, true);
        put(w, "}");
        break;
    case TRUTH: put(w, choose(w, 2) ? "true" : "none"); break;
    case ANY: put(w, PICK(w, names)); break;
    }
}

static void expression(struct writer *w, enum kind kind)
{
    if (w->depth > 2 || w->out.len > 1000) {
        put(w, kind == TEXT ? "'t'" : "1");
        return;
    }
    w->depth++;
    switch (choose(w, 20)) {
    case 4:
    case 5:
        put(w, "(");
        expression(w, kind);
        put(w, choose(w, 4) ? " is " : " is not ");
        put(w, PICK(w, tests));
        if (choose(w, 2))
            arguments(w, kind);
        put(w, ")");
        break;
    case 0:
        put(w, "(");
        expression(w, kind);
        put(w, " ");
        put(w, PICK(w, operators));
        put(w, " ");
        expression(w, choose(w, 4) ? kind : INTEGER);
        put(w, ")");
        break;
    case 1:
        put(w, choose(w, 2) ? "(not " : "(-");
        expression(w, kind);
        put(w, ")");
        break;
    case 2:
        put(w, "(");
        expression(w, kind);
        put(w, " if ");
        expression(w, TRUTH);
        put(w, " else ");
        expression(w, kind);
        put(w, ")");
        break;
    case 3:
        put(w, PICK(w, names));
        if (choose(w, 2))
            arguments(w, TEXT);
        break;
    default:
        if (kind == INTEGER)
            put(w, "("); /* -1.find is no call of a method */
        operand(w, kind);
        if (kind == INTEGER)
            put(w, ")");
    }
    if (choose(w, 2))
        postfix(w, kind);
    w->depth--;
}

static void body(struct writer *w, int depth);

static void statement(struct writer *w, int depth)
{
    switch (depth > 3 ? 0 : choose(w, 9)) {
    case 0:
    case 1:
        put(w, choose(w, 3) ? "{{ " : "{{- ");
        expression(w, (enum kind)choose(w, ANY + 1));
        put(w, " }}");
        break;
    case 2:
        put(w, "{% set ");
        put(w, choose(w, 4) ? PICK(w, names) : choose(w, 2) ? "ns.a" : "a, b");
        put(w, " = ");
        expression(w, (enum kind)choose(w, ANY + 1));
        put(w, " %}");
        break;
    case 3:
        put(w, "{% if ");
        expression(w, TRUTH);
        put(w, " %}");
        body(w, depth + 1);
        if (choose(w, 2)) {
            put(w, choose(w, 2) ? "{% elif nothing %}x{% else %}" : "{% else %}");
            body(w, depth + 1);
        }
        put(w, "{% endif %}\n");
        break;
    case 4:
    case 5:
        put(w, choose(w, 3) ? "{% for x in " : "{%- for x, m in ");
        expression(w, choose(w, 4) ? LIST : (enum kind)choose(w, ANY + 1));
        put(w, choose(w, 4) ? " %}" : " if x is defined -%}");
        w->loops++;
        body(w, depth + 1);
        if (choose(w, 3) == 0)
            put(w, choose(w, 2)
                       ? "{{ loop.cycle('a', x) }}"
                       : "{% if loop.last %}{% continue %}{% else %}{% break %}{% endif %}");
        w->loops--;
        put(w, choose(w, 3) ? "{% endfor %}" : "{% else %}none{% endfor %}");
        break;
    case 6:
        put(w, "{% set ns = namespace");
        arguments(w, MAPPING);
        put(w, " %}");
        break;
    case 7:
        put(w, "{% macro m(a, b=2) %}");
        body(w, depth + 1);
        put(w, "{% endmacro %}");
        break;
    default:
        put(w, "{% set b %}");
        body(w, depth + 1);
        put(w,
            "{% endset %}{# c #}{% raw %}{{ x }}{% endraw %}{% generation %}g{% endgeneration %}");
    }
}

static void body(struct writer *w, int depth)
{
    for (unsigned n = 1 + choose(w, 3); n > 0; n--)
        statement(w, depth);
}

static void run(const struct strbuf *source)
{
    static char hello[] = " Hello <|end|> ", hi[] = "Hi, \xe4\xbd\xa0!\n", be[] = "Be kind.";
    static const struct message m[] = {{.role = ROLE_SYSTEM, .text = be},
                                       {.role = ROLE_USER, .text = hello},
                                       {.role = ROLE_ASSISTANT, .text = hi},
                                       {.role = ROLE_USER, .text = hi}};
    static const struct jinja_variable v[] = {{"bos_token", "<s>", 3}, {"eos_token", "</s>", 4}};
    struct strbuf text = {0}, mask = {0};
    size_t begins[4];
    struct error e = {0};
    struct jinja *j;

    if (jinja_parse(&j, source->data, source->len, &e) < 0) {
        fprintf(stderr, "%s\n%s\n", source->data, e.text);
        abort(); /* what is written here has to parse */
    }
    if (jinja_render(j,
                     &(struct jinja_input){.messages = m,
                                           .n_messages = 4,
                                           .add_generation_prompt = true,
                                           .variables = v,
                                           .n_variables = 2},
                     &(struct jinja_output){.text = &text, .mask = &mask, .begins = begins},
                     &e) == 0 &&
        text.len != mask.len)
        abort();
    for (size_t i = 0; i < mask.len; i++)
        if ((unsigned char)mask.data[i] > 4)
            abort();
    strbuf_release(&text);
    strbuf_release(&mask);
    jinja_free(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct writer w = {.data = data, .size = size, .seed = 88172645463325252u + size};

    for (size_t i = 0; i < size; i++)
        w.seed = (w.seed ^ data[i]) * 1099511628211u;
    w.seed |= 1;
    strbuf_puts(&w.out, "");
    body(&w, 0);
    if (!w.out.failed && w.out.len) {
        if (getenv("SHOW"))
            printf("%s\n---\n", w.out.data);
        run(&w.out);
    }
    strbuf_release(&w.out);
    return 0;
}
