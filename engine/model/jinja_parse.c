/* Template text to syntax tree: a recursive descent over the characters themselves. One thread; the tree is immutable afterwards. */
#include "engine/model/jinja_data.h"

#include "engine/base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct parser {
    struct arena *a;
    const char *s;
    size_t n, at;
    bool trim_next;              /* "-%}": blanks after it vanish */
    bool block_before;           /* a block or comment ended just here: trim_blocks */
    int loops;
    int branches;                /* inside an if: what is unknown there may never be reached */
};

static struct node *parse_body(struct parser *p, const char *stop_a, const char *stop_b, const char *stop_c, char *found);
static struct node *parse_expression(struct parser *p);

static struct node *new_node(struct parser *p, enum node_kind kind)
{
    struct node *n = jinja_alloc(p->a, 1, sizeof *n);

    n->kind = kind;
    n->line = p->a->line;
    return n;
}

/* ---- inside {% %} and {{ }} ---- */

static void skip_blanks(struct parser *p)
{
    for (; p->at < p->n && isspace((unsigned char)p->s[p->at]); p->at++)
        p->a->line += p->s[p->at] == '\n';
}

static bool looking_at(struct parser *p, const char *text)
{
    size_t n = strlen(text);

    skip_blanks(p);
    return p->n - p->at >= n && memcmp(p->s + p->at, text, n) == 0;
}

static bool accept(struct parser *p, const char *text)
{
    if (!looking_at(p, text))
        return false;
    p->at += strlen(text);
    return true;
}

static void expect(struct parser *p, const char *text)
{
    if (!accept(p, text))
        jinja_fail(p->a, ERR_MODEL, "'%s' expected before '%.*s'", text, (int)(p->n - p->at < 12 ? p->n - p->at : 12), p->s + p->at);
}

static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static struct str peek_word(struct parser *p)
{
    size_t end;

    skip_blanks(p);
    end = p->at;
    if (end < p->n && !isdigit((unsigned char)p->s[end]))
        while (end < p->n && word_char(p->s[end]))
            end++;
    return (struct str){p->s + p->at, NULL, end - p->at};
}

static bool accept_word(struct parser *p, const char *word)
{
    if (!str_is(peek_word(p), word))
        return false;
    p->at += strlen(word);
    return true;
}

static struct str expect_name(struct parser *p)
{
    struct str w = peek_word(p);

    if (w.len == 0)
        jinja_fail(p->a, ERR_MODEL, "a name expected before '%.*s'", (int)(p->n - p->at < 12 ? p->n - p->at : 12), p->s + p->at);
    p->at += w.len;
    return w;
}

static struct node *literal(struct parser *p, struct value v)
{
    struct node *n = new_node(p, N_LITERAL);

    n->literal = v;
    return n;
}

static struct node *parse_string(struct parser *p)
{
    char quote = p->s[p->at++];
    struct builder b = {0};

    for (; p->at < p->n && p->s[p->at] != quote; p->at++) {
        char c = p->s[p->at];

        p->a->line += c == '\n';
        if (c == '\\' && p->at + 1 < p->n) {
            c = p->s[++p->at];
            switch (c) {
            case 'n': c = '\n'; break;
            case 't': c = '\t'; break;
            case 'r': c = '\r'; break;
            case '\\': case '\'': case '"': break;
            default: builder_text(p->a, &b, "\\", 1, 0); break;      /* as Python: an unknown escape stays */
            }
        }
        builder_text(p->a, &b, &c, 1, 0);
    }
    if (p->at >= p->n)
        jinja_fail(p->a, ERR_MODEL, "a string without its closing %c", quote);
    p->at++;
    return literal(p, value_str(builder_str(&b)));
}

static struct node *parse_number(struct parser *p)
{
    char text[64];
    size_t n = 0;
    bool real = false;
    struct value v;

    while (p->at < p->n && n + 1 < sizeof text && (isdigit((unsigned char)p->s[p->at]) || p->s[p->at] == '_' ||
           (p->s[p->at] == '.' && !real && p->at + 1 < p->n && isdigit((unsigned char)p->s[p->at + 1])))) {
        real = real || p->s[p->at] == '.';
        if (p->s[p->at] != '_')
            text[n++] = p->s[p->at];
        p->at++;
    }
    text[n] = 0;
    errno = 0;
    v = real ? (struct value){.type = V_FLOAT, .d = strtod(text, NULL)} : value_int(strtoll(text, NULL, 10));
    if (errno)
        jinja_fail(p->a, ERR_MODEL, "the number %s is too large", text);
    return literal(p, v);
}

/* Expressions up to a closing bracket, appended to list->a. True: there was a comma, so "(x,)" is a list. */
static bool parse_items(struct parser *p, struct node *list, const char *close)
{
    struct node **tail = &list->a;
    bool comma = false;

    while (!accept(p, close)) {
        *tail = parse_expression(p);
        tail = &(*tail)->next;
        if (!accept(p, ",")) {
            expect(p, close);
            break;
        }
        comma = true;
    }
    return comma;
}

static struct node *parse_arguments(struct parser *p)
{
    struct node *first = NULL, **tail = &first;

    while (!accept(p, ")")) {
        struct node *arg = new_node(p, N_ARGUMENT);
        size_t start = (skip_blanks(p), p->at);
        struct str w = peek_word(p);

        p->at += w.len;
        if (w.len && accept(p, "=") && !looking_at(p, "="))
            arg->name = w;
        else
            p->at = start;
        arg->a = parse_expression(p);
        *tail = arg;
        tail = &arg->next;
        if (!accept(p, ",")) {
            expect(p, ")");
            break;
        }
    }
    return first;
}

static struct node *parse_primary(struct parser *p)
{
    struct str w;
    struct node *n, **tail;

    skip_blanks(p);
    if (p->at >= p->n)
        jinja_fail(p->a, ERR_MODEL, "the template ends inside an expression");
    if (p->s[p->at] == '"' || p->s[p->at] == '\'') {
        n = parse_string(p);
        while (looking_at(p, "\"") || looking_at(p, "'")) {          /* neighbours are one string */
            struct builder b = {0};

            builder_put(p->a, &b, n->literal.str);
            n = parse_string(p);
            builder_put(p->a, &b, n->literal.str);
            n->literal.str = builder_str(&b);
        }
        return n;
    }
    if (isdigit((unsigned char)p->s[p->at]))
        return parse_number(p);
    if (accept(p, "(")) {
        n = new_node(p, N_LIST);
        return parse_items(p, n, ")") || !n->a ? n : n->a;
    }
    if (accept(p, "[")) {
        n = new_node(p, N_LIST);
        parse_items(p, n, "]");
        return n;
    }
    if (accept(p, "{")) {
        n = new_node(p, N_DICT);
        for (tail = &n->a; !accept(p, "}"); ) {
            *tail = parse_expression(p);
            expect(p, ":");
            (*tail)->next = parse_expression(p);
            tail = &(*tail)->next->next;
            if (!accept(p, ",")) {
                expect(p, "}");
                break;
            }
        }
        return n;
    }
    w = expect_name(p);
    if (str_is(w, "true") || str_is(w, "True"))
        return literal(p, value_bool(true));
    if (str_is(w, "false") || str_is(w, "False"))
        return literal(p, value_bool(false));
    if (str_is(w, "none") || str_is(w, "None"))
        return literal(p, value_none());
    n = new_node(p, N_NAME);
    n->name = w;
    return n;
}

static struct node *parse_index(struct parser *p, struct node *object)
{
    struct node *n = new_node(p, N_GET), *from = NULL;

    n->a = object;
    if (!looking_at(p, ":"))
        from = parse_expression(p);
    if (accept(p, ":")) {
        n->kind = N_SLICE;
        n->b = from;
        if (!looking_at(p, "]") && !looking_at(p, ":"))
            n->c = parse_expression(p);
        if (accept(p, ":") && !looking_at(p, "]"))
            n->d = parse_expression(p);
    } else
        n->b = from;
    expect(p, "]");
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    for (;;) {
        struct node *outer;

        jinja_charge(p->a, 0);
        if (accept(p, ".")) {
            outer = new_node(p, N_GET);
            outer->a = n;
            skip_blanks(p);
            outer->b = p->at < p->n && isdigit((unsigned char)p->s[p->at]) ? parse_number(p) : literal(p, value_str(expect_name(p)));
        } else if (accept(p, "[")) {
            outer = parse_index(p, n);
        } else if (accept(p, "(")) {
            outer = new_node(p, N_CALL);
            outer->a = n;
            outer->b = parse_arguments(p);
        } else
            return n;
        n = outer;
    }
}

static struct node *parse_unary(struct parser *p, bool filters);

static struct node *parse_filters(struct parser *p, struct node *n)
{
    for (;;) {
        struct node *outer;
        bool negate = false;
        struct str w;

        if (looking_at(p, "|") && !looking_at(p, "||")) {
            p->at++;
            outer = new_node(p, N_FILTER);
            outer->name = expect_name(p);
            outer->op = builtin_filter(outer->name);
            if (outer->op < 0 && !p->branches)
                jinja_fail(p->a, ERR_MODEL, "the filter '%.*s' is not supported", (int)outer->name.len, outer->name.s);
            if (accept(p, "("))
                outer->b = parse_arguments(p);
        } else if (accept_word(p, "is")) {
            negate = accept_word(p, "not");
            outer = new_node(p, N_TEST);
            outer->name = expect_name(p);
            outer->op = builtin_test(outer->name);
            if (outer->op < 0 && !p->branches)
                jinja_fail(p->a, ERR_MODEL, "the test '%.*s' is not supported", (int)outer->name.len, outer->name.s);
            w = peek_word(p);
            if (accept(p, "("))
                outer->b = parse_arguments(p);
            else if (p->at < p->n && (p->s[p->at] == '\'' || p->s[p->at] == '"' || p->s[p->at] == '[' || isdigit((unsigned char)p->s[p->at]) ||
                     (w.len && !str_is(w, "and") && !str_is(w, "or") && !str_is(w, "else") && !str_is(w, "if") && !str_is(w, "is") &&
                      !str_is(w, "in") && !str_is(w, "not")))) {
                outer->b = new_node(p, N_ARGUMENT);                   /* "is divisibleby 2" */
                outer->b->a = parse_unary(p, false);
            }
        } else
            return n;
        outer->a = n;
        n = outer;
        if (negate) {
            outer = new_node(p, N_NOT);
            outer->a = n;
            n = outer;
        }
        n = parse_postfix(p, n);
    }
}

static struct node *binary(struct parser *p, int op, struct node *a, struct node *b)
{
    struct node *n = new_node(p, N_BINARY);

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
        n = new_node(p, N_NEGATE);
        n->a = parse_unary(p, false);
    } else if (accept(p, "+")) {
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

    while (accept(p, "**"))
        n = binary(p, OP_POW, n, parse_unary(p, true));
    return n;
}

static struct node *parse_product(struct parser *p)
{
    struct node *n = parse_power(p);

    for (;;) {
        if (looking_at(p, "%}"))
            return n;
        if (accept(p, "*"))
            n = binary(p, OP_MUL, n, parse_power(p));
        else if (accept(p, "//"))
            n = binary(p, OP_FLOOR, n, parse_power(p));
        else if (accept(p, "/"))
            n = binary(p, OP_DIV, n, parse_power(p));
        else if (accept(p, "%"))
            n = binary(p, OP_MOD, n, parse_power(p));
        else
            return n;
    }
}

static struct node *parse_concat(struct parser *p)
{
    struct node *n = parse_product(p);

    while (accept(p, "~"))
        n = binary(p, OP_CONCAT, n, parse_product(p));
    return n;
}

static struct node *parse_sum(struct parser *p)
{
    struct node *n = parse_concat(p);

    for (;;) {
        if (looking_at(p, "-%}") || looking_at(p, "-}}") || looking_at(p, "+%}"))
            return n;
        if (accept(p, "+"))
            n = binary(p, OP_ADD, n, parse_concat(p));
        else if (accept(p, "-"))
            n = binary(p, OP_SUB, n, parse_concat(p));
        else
            return n;
    }
}

/* a < b < c means a < b and b < c; templates never chain, so a chain is refused rather than read wrongly. */
static struct node *parse_comparison(struct parser *p)
{
    static const struct { const char *text; int op; } ops[] = {
        {"==", OP_EQ}, {"!=", OP_NE}, {"<=", OP_LE}, {">=", OP_GE}, {"<", OP_LT}, {">", OP_GT},
    };
    struct node *n = parse_sum(p);
    int found = 0;

    for (bool more = true; more; found += more) {
        size_t start = p->at;

        more = false;
        for (size_t i = 0; i < sizeof ops / sizeof *ops && !more; i++)
            if (accept(p, ops[i].text)) {
                n = binary(p, ops[i].op, n, parse_sum(p));
                more = true;
            }
        if (!more && accept_word(p, "in")) {
            n = binary(p, OP_IN, n, parse_sum(p));
            more = true;
        }
        if (!more && accept_word(p, "not")) {
            if (!accept_word(p, "in")) {
                p->at = start;
                break;
            }
            n = binary(p, OP_NOT_IN, n, parse_sum(p));
            more = true;
        }
        if (more && found)
            jinja_fail(p->a, ERR_MODEL, "chained comparisons are not supported");
    }
    return n;
}

static struct node *parse_not(struct parser *p)
{
    struct node *n;

    if (!accept_word(p, "not"))
        return parse_comparison(p);
    jinja_enter(p->a);
    n = new_node(p, N_NOT);
    n->a = parse_not(p);
    jinja_leave(p->a);
    return n;
}

static struct node *parse_and(struct parser *p)
{
    struct node *n = parse_not(p), *outer;

    while (accept_word(p, "and")) {
        outer = new_node(p, N_AND);
        outer->a = n;
        outer->b = parse_not(p);
        n = outer;
    }
    return n;
}

static struct node *parse_or(struct parser *p)
{
    struct node *n = parse_and(p), *outer;

    while (accept_word(p, "or")) {
        outer = new_node(p, N_OR);
        outer->a = n;
        outer->b = parse_and(p);
        n = outer;
    }
    return n;
}

static struct node *parse_expression(struct parser *p)
{
    struct node *n, *outer;

    jinja_enter(p->a);
    n = parse_or(p);
    while (accept_word(p, "if")) {
        outer = new_node(p, N_CONDITION);
        outer->b = n;
        outer->a = parse_or(p);
        if (accept_word(p, "else"))
            outer->c = parse_expression(p);
        n = outer;
    }
    jinja_leave(p->a);
    return n;
}

/* ---- statements ---- */

/* "%}" or "}}" with its whitespace signs. */
static void close_tag(struct parser *p, const char *close, bool block)
{
    skip_blanks(p);
    if (p->at < p->n && p->s[p->at] == '-') {
        p->at++;
        p->trim_next = true;
    } else if (p->at < p->n && p->s[p->at] == '+' && block) {
        p->at++;
        block = false;
    }
    if (p->n - p->at < 2 || memcmp(p->s + p->at, close, 2) != 0)
        jinja_fail(p->a, ERR_MODEL, "'%s' expected before '%.*s'", close, (int)(p->n - p->at < 12 ? p->n - p->at : 12), p->s + p->at);
    p->at += 2;
    p->block_before = block;
}

static struct node *parse_targets(struct parser *p)
{
    struct node *first = NULL, **tail = &first;
    bool bracket = accept(p, "(");

    do {
        *tail = new_node(p, N_NAME);
        (*tail)->name = expect_name(p);
        tail = &(*tail)->next;
    } while (accept(p, ","));
    if (bracket)
        expect(p, ")");
    return first;
}

static struct node *parse_if(struct parser *p)
{
    struct node *n = new_node(p, N_IF);
    char found[16];

    jinja_enter(p->a);
    n->a = parse_expression(p);
    close_tag(p, "%}", true);
    p->branches++;
    n->b = parse_body(p, "elif", "else", "endif", found);
    if (strcmp(found, "elif") == 0)
        n->c = parse_if(p);
    else {
        close_tag(p, "%}", true);
        if (strcmp(found, "else") == 0) {
            n->c = parse_body(p, "endif", NULL, NULL, found);
            close_tag(p, "%}", true);
        }
    }
    p->branches--;
    jinja_leave(p->a);
    return n;
}

static struct node *parse_for(struct parser *p)
{
    struct node *n = new_node(p, N_FOR);
    char found[16];

    n->a = parse_targets(p);
    if (!accept_word(p, "in"))
        jinja_fail(p->a, ERR_MODEL, "'in' expected in a for");
    n->b = parse_or(p);          /* "if" filters here */
    if (accept_word(p, "if"))
        n->d = parse_expression(p);
    if (accept_word(p, "recursive"))
        jinja_fail(p->a, ERR_MODEL, "recursive loops are not supported");
    close_tag(p, "%}", true);
    p->loops++;
    n->c = parse_body(p, "else", "endfor", NULL, found);
    p->loops--;
    close_tag(p, "%}", true);
    if (strcmp(found, "else") == 0) {
        n->e = parse_body(p, "endfor", NULL, NULL, found);
        close_tag(p, "%}", true);
    }
    return n;
}

static struct node *parse_set(struct parser *p)
{
    struct node *n = new_node(p, N_SET);
    char found[16];

    n->a = parse_targets(p);
    if (!n->a->next && accept(p, ".")) {
        n->a->kind = N_GET;
        n->a->b = literal(p, value_str(expect_name(p)));
    }
    if (accept(p, "=")) {
        n->b = parse_expression(p);
        if (accept(p, ",")) {                                        /* a, b = 1, 2 */
            struct node *list = new_node(p, N_LIST);

            list->a = n->b;
            for (struct node **tail = &n->b->next; ; tail = &(*tail)->next) {
                *tail = parse_expression(p);
                if (!accept(p, ","))
                    break;
            }
            n->b = list;
        }
        close_tag(p, "%}", true);
        return n;
    }
    n->kind = N_SET_BLOCK;
    close_tag(p, "%}", true);
    n->b = parse_body(p, "endset", NULL, NULL, found);
    close_tag(p, "%}", true);
    return n;
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = new_node(p, N_MACRO), **tail = &n->a;
    char found[16];
    int loops = p->loops;

    n->name = expect_name(p);
    expect(p, "(");
    while (!accept(p, ")")) {
        struct node *arg = new_node(p, N_ARGUMENT);

        arg->name = expect_name(p);
        if (accept(p, "="))
            arg->a = parse_expression(p);
        *tail = arg;
        tail = &arg->next;
        if (!accept(p, ",")) {
            expect(p, ")");
            break;
        }
    }
    close_tag(p, "%}", true);
    p->loops = 0;
    n->b = parse_body(p, "endmacro", NULL, NULL, found);
    p->loops = loops;
    close_tag(p, "%}", true);
    return n;
}

static struct node *parse_raw(struct parser *p)
{
    struct node *n = new_node(p, N_TEXT);
    size_t start, end;

    close_tag(p, "%}", true);
    start = p->at;
    for (end = start; ; end++) {
        const char *tag = memmem(p->s + end, p->n - end, "{%", 2);

        if (!tag)
            jinja_fail(p->a, ERR_MODEL, "raw without its endraw");
        end = (size_t)(tag - p->s);
        p->at = end + 2;
        if (p->at < p->n && p->s[p->at] == '-')
            p->at++;
        if (accept_word(p, "endraw"))
            break;
    }
    n->literal = value_str((struct str){p->s + start, NULL, end - start});
    close_tag(p, "%}", true);
    return n;
}

static struct node *parse_statement(struct parser *p, struct str word)
{
    struct node *n;
    char found[16];

    if (str_is(word, "if"))
        return parse_if(p);
    if (str_is(word, "for"))
        return parse_for(p);
    if (str_is(word, "set"))
        return parse_set(p);
    if (str_is(word, "macro"))
        return parse_macro(p);
    if (str_is(word, "raw"))
        return parse_raw(p);
    if (str_is(word, "generation")) {            /* marks the assistant's words for training; nothing to do */
        n = new_node(p, N_GROUP);
        close_tag(p, "%}", true);
        n->a = parse_body(p, "endgeneration", NULL, NULL, found);
        close_tag(p, "%}", true);
        return n;
    }
    if ((str_is(word, "break") || str_is(word, "continue")) && p->loops > 0) {
        n = new_node(p, str_is(word, "break") ? N_BREAK : N_CONTINUE);
        close_tag(p, "%}", true);
        return n;
    }
    jinja_fail(p->a, ERR_MODEL, "the statement '%.*s' is not supported here", (int)(word.len < 40 ? word.len : 40), word.s);
}

/* Plain text up to the next tag, with trim_blocks and lstrip_blocks. */
static struct node *parse_text(struct parser *p)
{
    size_t start = p->at, end = p->n, from, to;
    struct node *n;

    for (size_t i = start; i + 1 < p->n; i++)
        if (p->s[i] == '{' && (p->s[i + 1] == '%' || p->s[i + 1] == '{' || p->s[i + 1] == '#')) {
            end = i;
            break;
        }
    from = start;
    to = end;
    if (p->trim_next)
        while (from < to && isspace((unsigned char)p->s[from]))
            from++;
    else if (p->block_before && from < to) {
        if (p->s[from] == '\n')
            from++;
        else if (to - from > 1 && p->s[from] == '\r' && p->s[from + 1] == '\n')
            from += 2;
    }
    if (end < p->n) {
        char sign = end + 2 < p->n ? p->s[end + 2] : 0;

        if (sign == '-') {
            while (to > from && isspace((unsigned char)p->s[to - 1]))
                to--;
        } else if (p->s[end + 1] != '{' && sign != '+') {
            size_t line = to;

            while (line > start && (p->s[line - 1] == ' ' || p->s[line - 1] == '\t'))
                line--;
            if (line == 0 || p->s[line - 1] == '\n')
                to = line > from ? line : from;
        }
    } else if (to > from && p->s[to - 1] == '\n')        /* the file's last newline is not the template's */
        to--;
    p->trim_next = p->block_before = false;
    n = new_node(p, N_TEXT);
    n->literal = value_str((struct str){p->s + from, NULL, to - from});
    for (; p->at < end; p->at++)
        p->a->line += p->s[p->at] == '\n';
    return n;
}

static void skip_comment(struct parser *p)
{
    const char *end = memmem(p->s + p->at, p->n - p->at, "#}", 2);

    if (!end)
        jinja_fail(p->a, ERR_MODEL, "a comment without its end");
    p->trim_next = end > p->s + p->at + 2 && end[-1] == '-';
    p->block_before = true;
    for (; p->s + p->at < end; p->at++)
        p->a->line += p->s[p->at] == '\n';
    p->at += 2;
}

/* Statements until one of the stop words (the whole template: none). found (16 bytes) gets which; its tag is open still. */
static struct node *parse_body(struct parser *p, const char *stop_a, const char *stop_b, const char *stop_c, char *found)
{
    const char *stops[3] = {stop_a, stop_b, stop_c};
    struct node *first = NULL, **tail = &first;
    int line = p->a->line;

    jinja_enter(p->a);
    for (;;) {
        struct node *n = NULL;
        struct str word;
        char kind;

        jinja_charge(p->a, 0);
        n = parse_text(p);
        if (n->literal.str.len) {
            *tail = n;
            tail = &n->next;
        }
        if (p->at >= p->n)
            break;
        kind = p->s[p->at + 1];
        if (kind == '#') {
            skip_comment(p);
            continue;
        }
        p->at += 2;
        if (p->at < p->n && (p->s[p->at] == '-' || p->s[p->at] == '+'))
            p->at++;
        if (kind == '{') {
            n = new_node(p, N_PRINT);
            n->a = parse_expression(p);
            close_tag(p, "}}", false);
        } else {
            word = expect_name(p);
            for (int i = 0; i < 3 && stops[i]; i++)
                if (str_is(word, stops[i])) {
                    memcpy(found, stops[i], strlen(stops[i]) + 1);
                    jinja_leave(p->a);
                    return first;
                }
            n = parse_statement(p, word);
        }
        *tail = n;
        tail = &n->next;
    }
    if (stop_a) {
        const char *last = stop_c ? stop_c : stop_b ? stop_b : stop_a;

        p->a->line = line;
        jinja_fail(p->a, ERR_MODEL, "the statement that begins here has no %s", last);
    }
    jinja_leave(p->a);
    return first;
}

int jinja_parse(struct jinja **out, const char *text, size_t len, struct error *e)
{
    struct jinja *j = mem_alloc(1, sizeof *j);
    jmp_buf jump;
    struct parser p;
    char *copy, found[16];

    *out = NULL;
    if (!j)
        return error_set(e, ERR_MEMORY, "out of memory for the chat template");
    if (len > (size_t)1 << 20) {
        mem_free(j);
        return error_set(e, ERR_MODEL, "chat template: %zu bytes long; at most 1 MiB is read", len);
    }
    j->arena = (struct arena){.limit = (size_t)64 << 20, .steps = 50000000, .line = 1, .parsing = true, .jump = &jump, .e = e};
    if (setjmp(jump)) {
        jinja_free(j);
        return e ? e->code : ERR_MODEL;
    }
    copy = jinja_alloc(&j->arena, len + 1, 1);
    memcpy(copy, text, len);
    p = (struct parser){.a = &j->arena, .s = copy, .n = len};
    j->body = parse_body(&p, NULL, NULL, NULL, found);
    j->arena.jump = NULL;
    j->arena.e = NULL;
    *out = j;
    return 0;
}

void jinja_free(struct jinja *j)
{
    if (!j)
        return;
    arena_release(&j->arena);
    mem_free(j);
}
