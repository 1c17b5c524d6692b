/* Parses template text and statements to a syntax tree; expressions are in expression.c. One
 * thread; the tree is immutable afterwards. */
#include "engine/text/jinja/parse.h"

#include "engine/base/mem.h"

#include <ctype.h>

static struct node *parse_body(struct parser *p, const char *stop_a, const char *stop_b,
                               const char *stop_c, char *found);

/* "%}" or "}}" with its whitespace signs. */
static void close_tag(struct parser *p, const char *close, bool block)
{
    parse_blanks(p);
    if (p->at < p->n && p->s[p->at] == '-') {
        p->at++;
        p->trim_next = true;
    } else if (p->at < p->n && p->s[p->at] == '+' && block) {
        p->at++;
        block = false;
    }
    if (p->n - p->at < 2 || memcmp(p->s + p->at, close, 2) != 0)
        jinja_fail(p->a, ERR_MODEL, "'%s' expected before '%.*s'", close,
                   (int)(p->n - p->at < 12 ? p->n - p->at : 12), p->s + p->at);
    p->at += 2;
    p->block_before = block;
}

static struct node *parse_targets(struct parser *p)
{
    struct node *first = NULL, **tail = &first;

    jinja_enter(p->a);
    do {
        if (parse_accept(p, "(")) {
            *tail = parse_node(p, N_LIST);
            (*tail)->a = parse_targets(p);
            parse_expect(p, ")");
        } else {
            *tail = parse_node(p, N_NAME);
            (*tail)->name = parse_name(p);
        }
        tail = &(*tail)->next;
    } while (parse_accept(p, ","));
    jinja_leave(p->a);
    return first;
}

static struct node *parse_if(struct parser *p)
{
    struct node *n = parse_node(p, N_IF);
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
    struct node *n = parse_node(p, N_FOR);
    char found[16];

    n->a = parse_targets(p);
    if (!parse_word(p, "in"))
        jinja_fail(p->a, ERR_MODEL, "'in' expected in a for");
    n->b = parse_or(p); /* "if" filters here */
    if (parse_word(p, "if"))
        n->d = parse_expression(p);
    n->op = parse_word(p, "recursive");
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

/* f | g(x): filters of a block's output */
static struct node *parse_block_filters(struct parser *p)
{
    struct node *n = parse_node(p, N_NAME);

    n->name = str_of(BLOCK_NAME);
    do
        n = parse_filter(p, n);
    while (parse_accept(p, "|"));
    return n;
}

static struct node *parse_set(struct parser *p)
{
    struct node *n = parse_node(p, N_SET);
    char found[16];

    n->a = parse_targets(p);
    if (!n->a->next && parse_accept(p, ".")) {
        n->a->kind = N_GET;
        n->a->b = parse_literal(p, value_str(parse_name(p)));
    }
    if (parse_accept(p, "=")) {
        n->b = parse_expression(p);
        if (parse_accept(p, ",")) { /* a, b = 1, 2 */
            struct node *list = parse_node(p, N_LIST);

            list->op = 1;
            list->a = n->b;
            for (struct node **tail = &n->b->next;; tail = &(*tail)->next) {
                *tail = parse_expression(p);
                if (!parse_accept(p, ","))
                    break;
            }
            n->b = list;
        }
        close_tag(p, "%}", true);
        return n;
    }
    n->kind = N_SET_BLOCK;
    if (parse_accept(p, "|"))
        n->c = parse_block_filters(p);
    close_tag(p, "%}", true);
    n->b = parse_body(p, "endset", NULL, NULL, found);
    close_tag(p, "%}", true);
    return n;
}

/* a, b=1) of a macro */
static void parse_signature(struct parser *p, struct node *n)
{
    struct node **tail = &n->a;

    while (!parse_accept(p, ")")) {
        struct node *arg = parse_node(p, N_ARGUMENT);

        arg->name = parse_name(p);
        if (parse_accept(p, "="))
            arg->a = parse_expression(p);
        *tail = arg;
        tail = &arg->next;
        if (!parse_accept(p, ",")) {
            parse_expect(p, ")");
            break;
        }
    }
}

static void parse_macro_body(struct parser *p, struct node *n, const char *end)
{
    int loops = p->loops, uses = p->uses;
    char found[16];

    close_tag(p, "%}", true);
    p->loops = p->uses = 0;
    n->b = parse_body(p, end, NULL, NULL, found);
    n->op = p->uses;
    p->loops = loops;
    p->uses |= uses;
    close_tag(p, "%}", true);
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = parse_node(p, N_MACRO);

    n->name = parse_name(p);
    parse_expect(p, "(");
    parse_signature(p, n);
    parse_macro_body(p, n, "endmacro");
    return n;
}

/* {% call(a) f(x) %}body{% endcall %}: f(x, caller=a macro of the body) */
static struct node *parse_call_block(struct parser *p)
{
    struct node *n = parse_node(p, N_CALL_BLOCK), *caller = parse_node(p, N_ARGUMENT);

    n->b = parse_node(p, N_MACRO);
    n->b->name = str_of("caller");
    if (parse_accept(p, "("))
        parse_signature(p, n->b);
    n->a = parse_expression(p);
    if (n->a->kind != N_CALL)
        jinja_fail(p->a, ERR_MODEL, "a call block needs a call");
    caller->name = str_of("caller");
    caller->a = parse_node(p, N_NAME);
    caller->a->name = str_of(BLOCK_NAME);
    caller->next = n->a->b;
    n->a->b = caller;
    parse_macro_body(p, n->b, "endcall");
    return n;
}

static struct node *parse_filter_block(struct parser *p)
{
    struct node *n = parse_node(p, N_FILTER_BLOCK);
    char found[16];

    n->a = parse_block_filters(p);
    close_tag(p, "%}", true);
    n->b = parse_body(p, "endfilter", NULL, NULL, found);
    close_tag(p, "%}", true);
    return n;
}

static struct node *parse_with(struct parser *p)
{
    struct node *n = parse_node(p, N_WITH), **targets = &n->a, **values = &n->b;
    char found[16];

    parse_blanks(p);
    while (p->at < p->n && p->s[p->at] != '-' && p->s[p->at] != '%') {
        *targets = parse_node(p, N_NAME);
        (*targets)->name = parse_name(p);
        parse_expect(p, "=");
        *values = parse_expression(p);
        targets = &(*targets)->next;
        values = &(*values)->next;
        if (!parse_accept(p, ","))
            break;
    }
    close_tag(p, "%}", true);
    n->c = parse_body(p, "endwith", NULL, NULL, found);
    close_tag(p, "%}", true);
    return n;
}

static struct node *parse_raw(struct parser *p)
{
    struct node *n = parse_node(p, N_TEXT);
    size_t start, end;
    bool tight;

    close_tag(p, "%}", true);
    if (p->trim_next)
        parse_blanks(p);
    p->trim_next = false;
    start = p->at;
    for (end = start;; end++) {
        const char *tag = memmem(p->s + end, p->n - end, "{%", 2);

        if (!tag)
            jinja_fail(p->a, ERR_MODEL, "raw without its endraw");
        end = (size_t)(tag - p->s);
        p->at = end + 2;
        tight = p->at < p->n && p->s[p->at] == '-';
        p->at += tight;
        if (parse_word(p, "endraw"))
            break;
    }
    while (tight && end > start && isspace((unsigned char)p->s[end - 1]))
        end--;
    n->literal = value_str((struct str){p->s + start, NULL, end - start, false});
    close_tag(p, "%}", true);
    return n;
}

static const struct {
    const char *name;
    struct node *(*parse)(struct parser *p);
} statements[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"raw", parse_raw},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
};

static struct node *parse_statement(struct parser *p, struct str word)
{
    struct node *n;
    char found[16];

    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (str_is(word, statements[i].name))
            return statements[i].parse(p);
    /* marks the assistant's words for training; ignored */
    if (str_is(word, "generation")) {
        n = parse_node(p, N_GROUP);
        close_tag(p, "%}", true);
        n->a = parse_body(p, "endgeneration", NULL, NULL, found);
        close_tag(p, "%}", true);
        return n;
    }
    if ((str_is(word, "break") || str_is(word, "continue")) && p->loops > 0) {
        n = parse_node(p, str_is(word, "break") ? N_BREAK : N_CONTINUE);
        close_tag(p, "%}", true);
        return n;
    }
    jinja_fail(p->a, ERR_MODEL, "the statement '%.*s' is not supported here",
               (int)(word.len < 40 ? word.len : 40), word.s);
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
    } else if (to > from &&
               p->s[to - 1] == '\n') /* the file's last newline is not part of the template */
        to--;
    p->trim_next = p->block_before = false;
    n = parse_node(p, N_TEXT);
    n->literal = value_str((struct str){p->s + from, NULL, to - from, false});
    for (size_t i = p->at; i < from; i++) /* in the removed part */
        n->line += p->s[i] == '\n';
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

/* Statements until one of the stop words (the whole template: none). found (16 bytes) gets which;
 * its tag is still open. */
static struct node *parse_body(struct parser *p, const char *stop_a, const char *stop_b,
                               const char *stop_c, char *found)
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
            n = parse_node(p, N_PRINT);
            n->a = parse_expression(p);
            close_tag(p, "}}", false);
        } else {
            word = parse_name(p);
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

/* Jinja reads every newline sequence as \n, also in text and strings. */
static size_t copy_lines(char *to, const char *from, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        to[n++] = from[i] == '\r' ? '\n' : from[i];
        i += from[i] == '\r' && i + 1 < len && from[i + 1] == '\n';
    }
    return n;
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
    if (len > JINJA_TEMPLATE_MAX) {
        mem_free(j);
        return error_set(e, ERR_MODEL, "chat template: %zu bytes long; at most 1 MiB is read", len);
    }
    j->arena = (struct arena){.limit = (size_t)64 << 20,
                              .steps = 50000000,
                              .line = 1,
                              .parsing = true,
                              .jump = &jump,
                              .e = e};
    if (setjmp(jump)) {
        jinja_free(j);
        return e ? e->code : ERR_MODEL;
    }
    copy = jinja_alloc(&j->arena, len + 1, 1);
    len = copy_lines(copy, text, len);
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
