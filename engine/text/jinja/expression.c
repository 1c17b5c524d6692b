/* Parses expressions of a template to a syntax tree: recursive descent over the characters, with
 * Python's precedence. One thread. */
#include "engine/text/jinja/parse.h"

#include "engine/base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

struct node *parse_node(struct parser *p, enum node_kind kind)
{
    struct node *n = jinja_alloc(p->a, 1, sizeof *n);

    n->kind = kind;
    n->line = p->a->line;
    return n;
}

void parse_blanks(struct parser *p)
{
    for (; p->at < p->n && isspace((unsigned char)p->s[p->at]); p->at++)
        p->a->line += p->s[p->at] == '\n';
}

static bool looking_at(struct parser *p, const char *text)
{
    size_t n = strlen(text);

    parse_blanks(p);
    return p->n - p->at >= n && memcmp(p->s + p->at, text, n) == 0;
}

bool parse_accept(struct parser *p, const char *text)
{
    if (!looking_at(p, text))
        return false;
    p->at += strlen(text);
    return true;
}

void parse_expect(struct parser *p, const char *text)
{
    if (!parse_accept(p, text))
        jinja_fail(p->a, ERR_MODEL, "'%s' expected before '%.*s'", text,
                   (int)(p->n - p->at < 12 ? p->n - p->at : 12), p->s + p->at);
}

static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static struct str peek_word(struct parser *p)
{
    size_t end;

    parse_blanks(p);
    end = p->at;
    if (end < p->n && !isdigit((unsigned char)p->s[end]))
        while (end < p->n && word_char(p->s[end]))
            end++;
    return (struct str){p->s + p->at, NULL, end - p->at, false};
}

bool parse_word(struct parser *p, const char *word)
{
    if (!str_is(peek_word(p), word))
        return false;
    p->at += strlen(word);
    return true;
}

struct str parse_name(struct parser *p)
{
    struct str w = peek_word(p);

    if (w.len == 0)
        jinja_fail(p->a, ERR_MODEL, "a name expected before '%.*s'",
                   (int)(p->n - p->at < 12 ? p->n - p->at : 12), p->s + p->at);
    p->at += w.len;
    return w;
}

struct node *parse_literal(struct parser *p, struct value v)
{
    struct node *n = parse_node(p, N_LITERAL);

    n->literal = v;
    return n;
}

/* \xNN, \uNNNN, \UNNNNNNNN: hexadecimal digits after the letter. False: too few. */
static bool parse_code_point(struct parser *p, struct builder *b)
{
    size_t digits = p->s[p->at] == 'x' ? 2 : p->s[p->at] == 'u' ? 4 : 8;
    uint32_t c = 0;
    char text[4];

    if (p->n - p->at <= digits)
        return false;
    for (size_t i = 1; i <= digits; i++) {
        char d = p->s[p->at + i];

        if (!isxdigit((unsigned char)d))
            return false;
        c = c << 4 | (uint32_t)(d <= '9' ? d - '0' : (d | 32) - 'a' + 10);
    }
    builder_text(p->a, b, text, utf8_encode(c, text), 0);
    p->at += digits;
    return true;
}

/* Parses an escape after a backslash, as in Python; an unknown one is literal. */
static void parse_escape(struct parser *p, struct builder *b)
{
    static const char names[] = "ntrabfv\\'\"", meanings[] = "\n\t\r\a\b\f\v\\'\"";
    char c = p->s[++p->at], text[4];
    uint32_t octal = 0;
    const char *found = c ? strchr(names, c) : NULL;

    p->a->line += c == '\n';
    if (found)
        builder_text(p->a, b, &meanings[found - names], 1, 0);
    else if (c >= '0' && c <= '7') {
        for (int i = 0; i < 3 && p->at < p->n && p->s[p->at] >= '0' && p->s[p->at] <= '7'; i++)
            octal = octal * 8 + (uint32_t)(p->s[p->at++] - '0');
        p->at--;
        builder_text(p->a, b, text, utf8_encode(octal, text), 0);
    } else if (c != '\n' && !(strchr("xuU", c) && c && parse_code_point(p, b))) {
        builder_text(p->a, b, "\\", 1, 0);
        builder_text(p->a, b, &c, 1, 0);
    }
}

static struct node *parse_string(struct parser *p)
{
    char quote = p->s[p->at++];
    struct builder b = {0};

    for (; p->at < p->n && p->s[p->at] != quote; p->at++) {
        char c = p->s[p->at];

        p->a->line += c == '\n';
        if (c == '\\' && p->at + 1 < p->n)
            parse_escape(p, &b);
        else
            builder_text(p->a, &b, &c, 1, 0);
    }
    if (p->at >= p->n)
        jinja_fail(p->a, ERR_MODEL, "a string without its closing %c", quote);
    p->at++;
    return parse_literal(p, value_str(builder_str(&b)));
}

/* Whether an exponent begins here. */
static bool exponent(const struct parser *p)
{
    size_t at = p->at + 1;

    if (p->at >= p->n || (p->s[p->at] | 32) != 'e')
        return false;
    at += at < p->n && (p->s[at] == '-' || p->s[at] == '+');
    return at < p->n && isdigit((unsigned char)p->s[at]);
}

/* whole: only digits, as after a dot */
static struct node *parse_number(struct parser *p, bool whole)
{
    char text[64];
    size_t n = 0;
    bool real = false;
    struct value v;

    while (p->at < p->n && n + 1 < sizeof text &&
           (isdigit((unsigned char)p->s[p->at]) || p->s[p->at] == '_' ||
            (p->s[p->at] == '.' && !real && !whole && p->at + 1 < p->n &&
             isdigit((unsigned char)p->s[p->at + 1])))) {
        real = real || p->s[p->at] == '.';
        if (p->s[p->at] != '_')
            text[n++] = p->s[p->at];
        p->at++;
    }
    if (!whole && n + 2 < sizeof text && exponent(p)) {
        real = true;
        do
            text[n++] = p->s[p->at++];
        while (n + 1 < sizeof text && p->at < p->n &&
               (isdigit((unsigned char)p->s[p->at]) ||
                ((text[n - 1] | 32) == 'e' && (p->s[p->at] == '-' || p->s[p->at] == '+'))));
    }
    text[n] = 0;
    errno = 0;
    v = real ? (struct value){.type = V_FLOAT, .d = strtod(text, NULL)}
             : value_int(strtoll(text, NULL, 10));
    if (errno)
        jinja_fail(p->a, ERR_MODEL, "the number %s is too large", text);
    return parse_literal(p, v);
}

/* Expressions up to a closing bracket, appended to list->a. True: there was a comma, so "(x,)" is a
 * list. */
static bool parse_items(struct parser *p, struct node *list, const char *close)
{
    struct node **tail = &list->a;
    bool comma = false;

    while (!parse_accept(p, close)) {
        *tail = parse_expression(p);
        tail = &(*tail)->next;
        if (!parse_accept(p, ",")) {
            parse_expect(p, close);
            break;
        }
        comma = true;
    }
    return comma;
}

static struct node *parse_arguments(struct parser *p)
{
    struct node *first = NULL, **tail = &first;

    while (!parse_accept(p, ")")) {
        struct node *arg = parse_node(p, N_ARGUMENT);
        size_t start;
        struct str w;

        if (parse_accept(p, "**"))
            arg->op = ARGUMENT_DICT;
        else if (parse_accept(p, "*"))
            arg->op = ARGUMENT_LIST;
        start = (parse_blanks(p), p->at);
        w = peek_word(p);

        p->at += w.len;
        if (!arg->op && w.len && parse_accept(p, "=") && !looking_at(p, "="))
            arg->name = w;
        else
            p->at = start;
        arg->a = parse_expression(p);
        *tail = arg;
        tail = &arg->next;
        if (!parse_accept(p, ",")) {
            parse_expect(p, ")");
            break;
        }
    }
    return first;
}

static struct node *parse_primary(struct parser *p)
{
    struct str w;
    struct node *n, **tail;

    parse_blanks(p);
    if (p->at >= p->n)
        jinja_fail(p->a, ERR_MODEL, "the template ends inside an expression");
    if (p->s[p->at] == '"' || p->s[p->at] == '\'') {
        n = parse_string(p);
        while (looking_at(p, "\"") || looking_at(p, "'")) { /* adjacent strings are concatenated */
            struct builder b = {0};

            builder_put(p->a, &b, n->literal.str);
            n = parse_string(p);
            builder_put(p->a, &b, n->literal.str);
            n->literal.str = builder_str(&b);
        }
        return n;
    }
    if (isdigit((unsigned char)p->s[p->at]))
        return parse_number(p, false);
    if (parse_accept(p, "(")) {
        n = parse_node(p, N_LIST);
        n->op = 1;
        return parse_items(p, n, ")") || !n->a ? n : n->a;
    }
    if (parse_accept(p, "[")) {
        n = parse_node(p, N_LIST);
        parse_items(p, n, "]");
        return n;
    }
    if (parse_accept(p, "{")) {
        n = parse_node(p, N_DICT);
        for (tail = &n->a; !parse_accept(p, "}");) {
            *tail = parse_expression(p);
            parse_expect(p, ":");
            (*tail)->next = parse_expression(p);
            tail = &(*tail)->next->next;
            if (!parse_accept(p, ",")) {
                parse_expect(p, "}");
                break;
            }
        }
        return n;
    }
    w = parse_name(p);
    if (str_is(w, "true") || str_is(w, "True"))
        return parse_literal(p, value_bool(true));
    if (str_is(w, "false") || str_is(w, "False"))
        return parse_literal(p, value_bool(false));
    if (str_is(w, "none") || str_is(w, "None"))
        return parse_literal(p, value_none());
    n = parse_node(p, N_NAME);
    n->name = w;
    p->uses |= str_is(w, "varargs")  ? USES_VARARGS
               : str_is(w, "kwargs") ? USES_KWARGS
               : str_is(w, "caller") ? USES_CALLER
                                     : 0;
    return n;
}

static struct node *parse_index(struct parser *p, struct node *object)
{
    struct node *n = parse_node(p, N_GET), *from = NULL;

    n->a = object;
    if (!looking_at(p, ":"))
        from = parse_expression(p);
    if (parse_accept(p, ":")) {
        n->kind = N_SLICE;
        n->b = from;
        if (!looking_at(p, "]") && !looking_at(p, ":"))
            n->c = parse_expression(p);
        if (parse_accept(p, ":") && !looking_at(p, "]"))
            n->d = parse_expression(p);
    } else
        n->b = from;
    parse_expect(p, "]");
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    for (;;) {
        struct node *outer;

        jinja_charge(p->a, 0);
        if (parse_accept(p, ".")) {
            outer = parse_node(p, N_GET);
            outer->op = 1;
            outer->a = n;
            parse_blanks(p);
            outer->b = p->at < p->n && isdigit((unsigned char)p->s[p->at])
                           ? parse_number(p, true)
                           : parse_literal(p, value_str(parse_name(p)));
        } else if (parse_accept(p, "[")) {
            outer = parse_index(p, n);
        } else if (parse_accept(p, "(")) {
            outer = parse_node(p, N_CALL);
            outer->a = n;
            outer->b = parse_arguments(p);
        } else
            return n;
        n = outer;
    }
}

static struct node *parse_unary(struct parser *p, bool filters);

struct node *parse_filter(struct parser *p, struct node *operand)
{
    struct node *n = parse_node(p, N_FILTER);

    n->name = parse_name(p);
    n->op = builtin_filter(n->name);
    if (n->op < 0 && !p->branches)
        jinja_fail(p->a, ERR_MODEL, "the filter '%.*s' is not supported", (int)n->name.len,
                   n->name.s);
    if (parse_accept(p, "("))
        n->b = parse_arguments(p);
    n->a = operand;
    return n;
}

static struct node *parse_filters(struct parser *p, struct node *n)
{
    for (;;) {
        struct node *outer;
        bool negate = false;
        struct str w;

        if (looking_at(p, "|") && !looking_at(p, "||")) {
            p->at++;
            outer = parse_filter(p, n);
        } else if (parse_word(p, "is")) {
            negate = parse_word(p, "not");
            outer = parse_node(p, N_TEST);
            outer->name = parse_name(p);
            outer->op = builtin_test(outer->name);
            if (outer->op < 0 && !p->branches)
                jinja_fail(p->a, ERR_MODEL, "the test '%.*s' is not supported",
                           (int)outer->name.len, outer->name.s);
            w = peek_word(p);
            if (parse_accept(p, "("))
                outer->b = parse_arguments(p);
            else if (p->at < p->n && (p->s[p->at] == '\'' || p->s[p->at] == '"' ||
                                      p->s[p->at] == '[' || isdigit((unsigned char)p->s[p->at]) ||
                                      (w.len && !str_is(w, "and") && !str_is(w, "or") &&
                                       !str_is(w, "else") && !str_is(w, "if") && !str_is(w, "is") &&
                                       !str_is(w, "in") && !str_is(w, "not")))) {
                outer->b = parse_node(p, N_ARGUMENT); /* "is divisibleby 2" */
                outer->b->a = parse_unary(p, false);
            }
        } else
            return n;
        outer->a = n;
        n = outer;
        if (negate) {
            outer = parse_node(p, N_NOT);
            outer->a = n;
            n = outer;
        }
        n = parse_postfix(p, n);
    }
}

static struct node *binary(struct parser *p, int op, struct node *a, struct node *b)
{
    struct node *n = parse_node(p, N_BINARY);

    n->op = op;
    n->a = a;
    n->b = b;
    return n;
}

static struct node *parse_unary(struct parser *p, bool filters)
{
    struct node *n;

    jinja_enter(p->a);
    if (looking_at(p, "-") && !looking_at(p, "-%}") && !looking_at(p, "-}}")) {
        p->at++;
        n = parse_node(p, N_NEGATE);
        n->a = parse_unary(p, false);
    } else if (parse_accept(p, "+")) {
        n = parse_unary(p, false);
    } else
        n = parse_postfix(p, parse_primary(p));
    if (filters)
        n = parse_filters(p, n);
    jinja_leave(p->a);
    return n;
}

static struct node *parse_power(struct parser *p)
{
    struct node *n = parse_unary(p, true);

    while (parse_accept(p, "**"))
        n = binary(p, OP_POW, n, parse_unary(p, true));
    return n;
}

static struct node *parse_product(struct parser *p)
{
    struct node *n = parse_power(p);

    for (;;) {
        if (looking_at(p, "%}"))
            return n;
        if (parse_accept(p, "*"))
            n = binary(p, OP_MUL, n, parse_power(p));
        else if (parse_accept(p, "//"))
            n = binary(p, OP_FLOOR, n, parse_power(p));
        else if (parse_accept(p, "/"))
            n = binary(p, OP_DIV, n, parse_power(p));
        else if (parse_accept(p, "%"))
            n = binary(p, OP_MOD, n, parse_power(p));
        else
            return n;
    }
}

static struct node *parse_concat(struct parser *p)
{
    struct node *n = parse_product(p);

    while (parse_accept(p, "~"))
        n = binary(p, OP_CONCAT, n, parse_product(p));
    return n;
}

static struct node *parse_sum(struct parser *p)
{
    struct node *n = parse_concat(p);

    for (;;) {
        if (looking_at(p, "-%}") || looking_at(p, "-}}") || looking_at(p, "+%}"))
            return n;
        if (parse_accept(p, "+"))
            n = binary(p, OP_ADD, n, parse_concat(p));
        else if (parse_accept(p, "-"))
            n = binary(p, OP_SUB, n, parse_concat(p));
        else
            return n;
    }
}

/* One more comparison: a < b < c means a < b and b < c. last: b of it, then c. */
static struct node *compare(struct parser *p, int op, struct node *n, struct node **last)
{
    struct node *right = parse_sum(p), *outer;

    if (*last) {
        outer = parse_node(p, N_AND);
        outer->a = n;
        outer->b = binary(p, op, *last, right);
    } else
        outer = binary(p, op, n, right);
    *last = right;
    return outer;
}

static struct node *parse_comparison(struct parser *p)
{
    static const struct {
        const char *text;
        int op;
    } ops[] = {
        {"==", OP_EQ}, {"!=", OP_NE}, {"<=", OP_LE}, {">=", OP_GE}, {"<", OP_LT}, {">", OP_GT},
    };
    struct node *n = parse_sum(p), *last = NULL;

    for (bool more = true; more;) {
        size_t start = p->at;

        more = false;
        for (size_t i = 0; i < sizeof ops / sizeof *ops && !more; i++)
            if (parse_accept(p, ops[i].text)) {
                n = compare(p, ops[i].op, n, &last);
                more = true;
            }
        if (!more && parse_word(p, "in")) {
            n = compare(p, OP_IN, n, &last);
            more = true;
        }
        if (!more && parse_word(p, "not")) {
            if (!parse_word(p, "in")) {
                p->at = start;
                break;
            }
            n = compare(p, OP_NOT_IN, n, &last);
            more = true;
        }
    }
    return n;
}

static struct node *parse_not(struct parser *p)
{
    struct node *n;

    if (!parse_word(p, "not"))
        return parse_comparison(p);
    jinja_enter(p->a);
    n = parse_node(p, N_NOT);
    n->a = parse_not(p);
    jinja_leave(p->a);
    return n;
}

static struct node *parse_and(struct parser *p)
{
    struct node *n = parse_not(p), *outer;

    while (parse_word(p, "and")) {
        outer = parse_node(p, N_AND);
        outer->a = n;
        outer->b = parse_not(p);
        n = outer;
    }
    return n;
}

struct node *parse_or(struct parser *p)
{
    struct node *n = parse_and(p), *outer;

    while (parse_word(p, "or")) {
        outer = parse_node(p, N_OR);
        outer->a = n;
        outer->b = parse_and(p);
        n = outer;
    }
    return n;
}

struct node *parse_expression(struct parser *p)
{
    struct node *n, *outer;

    jinja_enter(p->a);
    n = parse_or(p);
    while (parse_word(p, "if")) {
        outer = parse_node(p, N_CONDITION);
        outer->b = n;
        outer->a = parse_or(p);
        if (parse_word(p, "else"))
            outer->c = parse_expression(p);
        n = outer;
    }
    jinja_leave(p->a);
    return n;
}
