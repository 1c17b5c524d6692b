/* GBNF, llama.cpp's notation of grammars (grammars/README.md there): literals, classes of code
 * points, any character, groups, alternatives, repetitions and rules. References to tokens are
 * refused: grammars here are over bytes. */
#include "engine/text/grammar/build.h"

#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define RULES_MAX (1 << 16)
#define NAME_MAX_BYTES 200

struct name {
    const char *text;
    size_t n;
    int rule, line; /* line: of its first use */
    bool defined;
};

struct gbnf {
    const char *start, *at, *end;
    struct grammar_build build;
    struct name *names;
    int n_names, room;
    int32_t *index; /* hash of names; 0: free, else 1 + name */
    int depth;
    char said[NAME_MAX_BYTES + 1];
    struct error *e;
};

static int line_of(const struct gbnf *g)
{
    int line = 1;

    for (const char *p = g->start; p < g->at && p < g->end; p++)
        line += *p == '\n';
    return line;
}

static int refuse(struct gbnf *g, const char *what)
{
    return error_set(g->e, ERR_INPUT, "grammar, line %d: %s", line_of(g), what);
}

static int peek(const struct gbnf *g, int k)
{
    return g->end - g->at > k ? (unsigned char)g->at[k] : -1;
}

/* Skips blanks and comments; newlines too where a rule may continue. */
static void skip(struct gbnf *g, bool lines)
{
    for (;;) {
        int c = peek(g, 0);

        if (c == '#')
            while (g->at < g->end && *g->at != '\n' && *g->at != '\r')
                g->at++;
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
            g->at++;
        else
            return;
    }
}

static bool name_char(int c)
{
    return c >= 0 && (isalnum(c) || c == '-' || c == '_');
}

/* ---- rules by name ---- */

#define INDEX (RULES_MAX * 2)

/* The rule of a name, created if new; -1: refused. */
static int name_rule(struct gbnf *g, const char *text, size_t n, struct name **out)
{
    size_t slot = hash_bytes(HASH_START, text, n) % INDEX;

    for (; g->index[slot]; slot = (slot + 1) % INDEX) {
        struct name *have = &g->names[g->index[slot] - 1];

        if (have->n == n && memcmp(have->text, text, n) == 0)
            return *out = have, have->rule;
    }
    if (n > NAME_MAX_BYTES)
        return refuse(g, "a rule's name is too long");
    if (g->n_names == RULES_MAX)
        return refuse(g, "too many rules");
    if (!MEM_ROOM(g->names, g->n_names, g->room, 64))
        return error_set(g->e, ERR_MEMORY, "out of memory for the grammar");
    *out = &g->names[g->n_names];
    **out = (struct name){text, n, build_rule(&g->build), line_of(g), false};
    g->index[slot] = ++g->n_names;
    return (*out)->rule;
}

static const char *rule_name(void *ctx, int rule)
{
    struct gbnf *g = ctx;

    for (int i = 0; i < g->n_names; i++)
        if (g->names[i].rule == rule) {
            memcpy(g->said, g->names[i].text, g->names[i].n);
            g->said[g->names[i].n] = 0;
            return g->said;
        }
    return "a repetition";
}

/* ---- characters ---- */

static int hex(struct gbnf *g, int digits, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++, g->at++) {
        int c = peek(g, 0);

        if (c < 0 || !isxdigit(c))
            return refuse(g, "an escape needs more hexadecimal digits");
        *out = *out * 16 + (uint32_t)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
    }
    return 0;
}

/* One code point of a literal or a class. */
static int character(struct gbnf *g, uint32_t *out)
{
    int c = peek(g, 0);
    bool valid;

    if (c < 0 || c == '\n' || c == '\r')
        return refuse(g, "a literal or a class does not end on its line");
    if (c != '\\') {
        g->at += utf8_decode_strict(g->at, (size_t)(g->end - g->at), out, &valid);
        return valid ? 0 : refuse(g, "this is not UTF-8");
    }
    c = peek(g, 1);
    g->at += 2;
    switch (c) {
    case 'x': return hex(g, 2, out);
    case 'u': return hex(g, 4, out);
    case 'U': return hex(g, 8, out);
    case 'n': return *out = '\n', 0;
    case 'r': return *out = '\r', 0;
    case 't': return *out = '\t', 0;
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^': return *out = (uint32_t)c, 0;
    }
    g->at -= 2;
    return refuse(g, "unknown escape; \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH are possible");
}

static int literal(struct gbnf *g, int *out)
{
    int text = build_empty(&g->build);

    g->at++;
    while (peek(g, 0) != '"') {
        struct code_range c;
        int rc = character(g, &c.lo);

        if (rc < 0)
            return rc;
        if (c.lo > 0x10ffff || (c.lo >= 0xd800 && c.lo < 0xe000))
            return refuse(g, "an escape names no character");
        c.hi = c.lo;
        text = build_seq(&g->build, text, build_class(&g->build, &c, 1));
    }
    g->at++;
    *out = text;
    return 0;
}

static int by_start(const void *a, const void *b)
{
    const struct code_range *x = a, *y = b;

    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Sorts and merges ranges; inverts them if negated. Needs space for one more. Returns the
 * number. */
static size_t normalize(struct code_range *r, size_t n, bool negated)
{
    size_t kept = 0;
    uint32_t next = 0;

    qsort(r, n, sizeof *r, by_start);
    for (size_t i = 0; i < n; i++)
        if (kept && r[i].lo <= r[kept - 1].hi + 1)
            r[kept - 1].hi = r[i].hi > r[kept - 1].hi ? r[i].hi : r[kept - 1].hi;
        else
            r[kept++] = r[i];
    if (!negated)
        return kept;
    n = kept;
    kept = 0;
    for (size_t i = 0; i < n; i++) {
        struct code_range was = r[i];

        if (was.lo > next)
            r[kept++] = (struct code_range){next, was.lo - 1};
        next = was.hi + 1;
    }
    if (next <= 0x10ffff)
        r[kept++] = (struct code_range){next, 0x10ffff};
    return kept;
}

#define CLASS_MAX 512

static int class(struct gbnf *g, int *out)
{
    struct code_range ranges[CLASS_MAX + 1];
    bool negated = peek(g, 1) == '^';
    size_t n = 0;
    int rc;

    g->at += 1 + negated;
    while (peek(g, 0) != ']') {
        struct code_range *r = &ranges[n];

        if (n++ == CLASS_MAX)
            return refuse(g, "a class of more than 512 ranges");
        if ((rc = character(g, &r->lo)) < 0)
            return rc;
        r->hi = r->lo;
        if (peek(g, 0) == '-' && peek(g, 1) != ']') {
            g->at++;
            if ((rc = character(g, &r->hi)) < 0)
                return rc;
        }
        if (r->hi < r->lo || r->hi > 0x10ffff)
            return refuse(g, "a range that ends before it begins, or behind all characters");
    }
    g->at++;
    *out = build_class(&g->build, ranges, normalize(ranges, n, negated));
    return 0;
}

/* ---- expressions ---- */

static int alternatives(struct gbnf *g, int *out);

static int number(struct gbnf *g, int *out)
{
    *out = 0;
    while (isdigit(peek(g, 0))) {
        if (*out > GRAMMAR_NODES)
            return refuse(g, "this repeats too often");
        *out = *out * 10 + (*g->at++ - '0');
    }
    return 0;
}

static int braces(struct gbnf *g, int *min, int *max)
{
    int rc;

    g->at++;
    skip(g, true);
    if (!isdigit(peek(g, 0)))
        return refuse(g, "a repetition is {N}, {N,} or {N,M}");
    if ((rc = number(g, min)) < 0)
        return rc;
    *max = *min;
    skip(g, true);
    if (peek(g, 0) == ',') {
        g->at++;
        skip(g, true);
        *max = -1;
        if (isdigit(peek(g, 0)) && (rc = number(g, max)) < 0)
            return rc;
        skip(g, true);
    }
    if (peek(g, 0) != '}' || (*max >= 0 && *max < *min))
        return refuse(g, "a repetition is {N}, {N,} or {N,M}");
    g->at++;
    return 0;
}

static int repeats(struct gbnf *g, int *out)
{
    for (;;) {
        int c = peek(g, 0), min = 0, max = -1, rc;

        if (c == '+')
            min = 1;
        else if (c == '?')
            max = 1;
        else if (c != '*' && c != '{')
            return 0;
        if (c == '{') {
            if ((rc = braces(g, &min, &max)) < 0)
                return rc;
        } else {
            g->at++;
        }
        *out = build_repeat(&g->build, *out, min, max);
        if (++g->depth > GRAMMAR_DEPTH)
            return refuse(g, "too many repetitions of repetitions");
        skip(g, g->depth > 1);
    }
}

static int group(struct gbnf *g, int *out)
{
    int rc;

    if (++g->depth > GRAMMAR_DEPTH)
        return refuse(g, "parentheses are nested too deeply");
    g->at++;
    skip(g, true);
    if ((rc = alternatives(g, out)) < 0)
        return rc;
    if (peek(g, 0) != ')')
        return refuse(g, "a parenthesis is not closed");
    g->at++;
    g->depth--;
    return 0;
}

static int reference(struct gbnf *g, int *out)
{
    const char *from = g->at;
    struct name *name;
    int rule;

    while (name_char(peek(g, 0)))
        g->at++;
    if ((rule = name_rule(g, from, (size_t)(g->at - from), &name)) < 0)
        return g->e->code ? g->e->code : error_set(g->e, ERR_MEMORY, "out of memory");
    *out = build_call(&g->build, rule);
    return 0;
}

static int element(struct gbnf *g, int *out)
{
    static const struct code_range any = {0, 0x10ffff};
    int c = peek(g, 0);

    if (c == '"')
        return literal(g, out);
    if (c == '[')
        return class(g, out);
    if (c == '(')
        return group(g, out);
    if (c == '.') {
        g->at++;
        *out = build_class(&g->build, &any, 1);
        return 0;
    }
    if (name_char(c))
        return reference(g, out);
    return refuse(g, c == '<' || c == '!' ? "tokens cannot be named here; write their text"
                                          : "this begins no literal, class, group or rule");
}

static int sequence(struct gbnf *g, int *out)
{
    int all = build_empty(&g->build);

    for (;;) {
        int c = peek(g, 0), one, rc, depth = g->depth;

        if (c < 0 || c == '|' || c == ')' || c == '\n' || c == '\r')
            break;
        if ((rc = element(g, &one)) < 0)
            return rc;
        skip(g, depth > 0);
        if ((rc = repeats(g, &one)) < 0)
            return rc;
        g->depth = depth;
        all = build_seq(&g->build, all, one);
        skip(g, depth > 0);
    }
    *out = all;
    return 0;
}

static int alternatives(struct gbnf *g, int *out)
{
    int all = -1, one, rc;

    for (;;) {
        if ((rc = sequence(g, &one)) < 0)
            return rc;
        all = build_alt(&g->build, all, one);
        if (peek(g, 0) != '|')
            break;
        g->at++;
        skip(g, true);
    }
    *out = all;
    return 0;
}

static int rule(struct gbnf *g)
{
    const char *from = g->at;
    struct name *name;
    int body, rc;
    size_t n;

    while (name_char(peek(g, 0)))
        g->at++;
    n = (size_t)(g->at - from);
    skip(g, false);
    if (!n || peek(g, 0) != ':' || peek(g, 1) != ':' || peek(g, 2) != '=')
        return refuse(g, "a rule is NAME ::= …");
    if ((rc = name_rule(g, from, n, &name)) < 0)
        return rc;
    if (name->defined)
        return refuse(g, "this rule was said already");
    name->defined = true;
    g->at += 3;
    skip(g, true);
    if ((rc = alternatives(g, &body)) < 0)
        return rc;
    /* names may have moved */
    build_rule_set(&g->build, name_rule(g, from, n, &name), body);
    if (peek(g, 0) == ')')
        return refuse(g, "a parenthesis closes nothing");
    skip(g, true);
    return 0;
}

static int parse(struct gbnf *g)
{
    struct name *name;
    int rc = name_rule(g, "root", 4, &name);

    skip(g, true);
    while (rc >= 0 && g->at < g->end)
        rc = rule(g);
    for (int i = 0; i < g->n_names && rc >= 0; i++)
        if (!g->names[i].defined)
            rc = i == 0 ? error_set(g->e, ERR_INPUT, "grammar: there is no rule named root")
                        : error_set(g->e, ERR_INPUT, "grammar, line %d: there is no rule '%.*s'",
                                    g->names[i].line, (int)g->names[i].n, g->names[i].text);
    return rc < 0 ? rc : 0;
}

int grammar_from_gbnf(struct grammar **out, const char *text, size_t n, struct error *e)
{
    struct error own = {0};
    struct gbnf g = {.start = text, .at = text, .end = text + n, .e = e ? e : &own};
    int rc;

    *out = NULL;
    *g.e = (struct error){0};
    if (n > GRAMMAR_BYTES)
        return error_set(g.e, ERR_INPUT, "grammar: longer than %zu bytes", GRAMMAR_BYTES);
    g.index = mem_alloc(INDEX, sizeof *g.index);
    rc = g.index ? parse(&g) : error_set(g.e, ERR_MEMORY, "out of memory for the grammar");
    if (rc == 0)
        rc = grammar_build_end(&g.build, rule_name, &g, out, g.e);
    else if (g.build.failed && !g.build.too_large)
        rc = error_set(g.e, ERR_MEMORY, "out of memory for the grammar");
    else if (!g.e->code)
        rc = error_set(g.e, ERR_INPUT, "grammar: too many rules");
    grammar_build_release(&g.build);
    mem_free(g.names);
    mem_free(g.index);
    return rc;
}
