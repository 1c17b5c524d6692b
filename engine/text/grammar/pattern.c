/* See pattern.h. A set of characters is a sorted list of disjoint ranges of code points. */
#include "engine/text/grammar/pattern.h"

#include "engine/base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define RANGES 256
#define REPEAT_MAX 4096
#define LAST 0x10ffffu

struct set {
    struct code_range ranges[RANGES];
    size_t n;
};

struct reader {
    struct grammar_build *build;
    const char *at, *end;
    const char *why; /* NULL: no error */
    int depth;
};

static int refuse(struct reader *p, const char *why)
{
    if (!p->why)
        p->why = why;
    return -1;
}

/* ---- sets ---- */

static void set_add(struct reader *p, struct set *s, uint32_t lo, uint32_t hi)
{
    if (s->n == RANGES)
        refuse(p, "a class is too large");
    else if (lo <= hi)
        s->ranges[s->n++] = (struct code_range){lo, hi};
}

static int by_begin(const void *a, const void *b)
{
    const struct code_range *x = a, *y = b;

    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void set_sort(struct set *s)
{
    size_t n = 0;

    qsort(s->ranges, s->n, sizeof *s->ranges, by_begin);
    for (size_t i = 0; i < s->n; i++)
        if (n && s->ranges[i].lo <= s->ranges[n - 1].hi + 1) {
            if (s->ranges[i].hi > s->ranges[n - 1].hi)
                s->ranges[n - 1].hi = s->ranges[i].hi;
        } else {
            s->ranges[n++] = s->ranges[i];
        }
    s->n = n;
}

static void set_turn(struct reader *p, struct set *s)
{
    struct set out = {.n = 0};
    uint32_t next = 0;

    set_sort(s);
    for (size_t i = 0; i < s->n; i++) {
        if (s->ranges[i].lo > next)
            set_add(p, &out, next, s->ranges[i].lo - 1);
        next = s->ranges[i].hi + 1;
    }
    if (next <= LAST)
        set_add(p, &out, next, LAST);
    *s = out;
}

/* The characters of \d, \w, \s; upper case inverts. false: no such class. */
static bool set_named(struct reader *p, struct set *s, char name)
{
    static const struct code_range blanks[] = {{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},
                                               {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
                                               {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
                                               {0xfeff, 0xfeff}};
    struct set own = {.n = 0};

    if (!name || !strchr("dDwWsS", name))
        return false;
    if (name == 'd' || name == 'D' || name == 'w' || name == 'W')
        set_add(p, &own, '0', '9');
    if (name == 'w' || name == 'W') {
        set_add(p, &own, 'A', 'Z');
        set_add(p, &own, '_', '_');
        set_add(p, &own, 'a', 'z');
    }
    for (size_t i = 0; (name == 's' || name == 'S') && i < sizeof blanks / sizeof *blanks; i++)
        set_add(p, &own, blanks[i].lo, blanks[i].hi);
    if (name < 'a')
        set_turn(p, &own);
    for (size_t i = 0; i < own.n; i++)
        set_add(p, s, own.ranges[i].lo, own.ranges[i].hi);
    return true;
}

/* One character as JSON escapes it. */
static int escaped(struct grammar_build *b, uint32_t c)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(plain, (int)c) : NULL;
    char text[7] = {
        '\\', at ? letters[at - plain] : 'u', '0', '0', digits[c >> 4 & 15], digits[c & 15], 0};

    return build_bytes(b, text, at ? 2 : 6);
}

/* The characters of a set, in the form that JSON gives each. */
static int set_expr(struct grammar_build *b, struct set *s)
{
    static const struct code_range plain[] = {{' ', '!'}, {'#', '['}, {']', 0x7e}, {0x80, LAST}};
    struct code_range out[RANGES * 2];
    size_t n = 0;
    int expr = -1;

    set_sort(s);
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < 4; k++) {
            uint32_t lo = s->ranges[i].lo > plain[k].lo ? s->ranges[i].lo : plain[k].lo;
            uint32_t hi = s->ranges[i].hi < plain[k].hi ? s->ranges[i].hi : plain[k].hi;

            if (lo <= hi && n < sizeof out / sizeof *out)
                out[n++] = (struct code_range){lo, hi};
        }
    if (n)
        expr = build_class(b, out, n);
    for (size_t i = 0; i < s->n; i++)
        for (uint32_t c = s->ranges[i].lo; c <= s->ranges[i].hi && c <= '\\'; c++)
            if (c < ' ' || c == '"' || c == '\\')
                expr = build_alt(b, expr, escaped(b, c));
    return expr < 0 ? build_class(b, NULL, 0) : expr;
}

static int any_text(struct grammar_build *b)
{
    struct set all = {.ranges = {{0, LAST}}, .n = 1};

    return build_repeat(b, set_expr(b, &all), 0, -1);
}

/* ---- the expression ---- */

static int alternatives(struct reader *p, bool outermost);

static bool next_is(struct reader *p, char c)
{
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static uint32_t character(struct reader *p)
{
    uint32_t cp = 0;

    p->at += utf8_decode(p->at, (size_t)(p->end - p->at), &cp);
    return cp;
}

static int hex(struct reader *p, int n, uint32_t *c)
{
    *c = 0;
    for (int i = 0; i < n; i++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *d = p->at < p->end && *p->at ? strchr(digits, *p->at) : NULL;

        if (!d)
            return refuse(p, "\\x and \\u need hexadecimal digits behind them");
        *c = *c << 4 | (uint32_t)((d - digits) & 15);
        p->at++;
    }
    return 0;
}

/* After a backslash: a character. */
static int escape(struct reader *p, uint32_t *c)
{
    static const char names[] = "nrtfv0", values[] = "\n\r\t\f\v";
    char name = p->at < p->end ? *p->at : 0;
    const char *at = name ? strchr(names, name) : NULL;

    if (!name)
        return refuse(p, "it ends with a backslash");
    if (name == 'x' || name == 'u') {
        p->at++;
        return p->at < p->end && *p->at == '{'
                   ? refuse(p, "\\u{...} is not supported: write it out")
                   : hex(p, name == 'x' ? 2 : 4, c);
    }
    if (at) {
        p->at++;
        *c = name == '0' ? 0 : (uint32_t)values[at - names];
        return 0;
    }
    if ((name >= 'a' && name <= 'z') || (name >= 'A' && name <= 'Z') ||
        (name >= '0' && name <= '9'))
        return refuse(p, "an escape that is not supported (assertions, backward references, \\p)");
    *c = character(p);
    return 0;
}

/* One end of a range, or a named class (*named). */
static int class_item(struct reader *p, struct set *s, uint32_t *c, bool *named)
{
    *named = false;
    if (!next_is(p, '\\')) {
        *c = character(p);
        return 0;
    }
    if (p->at < p->end && (*named = set_named(p, s, *p->at))) {
        p->at++;
        return 0;
    }
    if (p->at < p->end && (*p->at == 'b' || *p->at == '-')) {
        *c = *p->at++ == 'b' ? '\b' : '-';
        return 0;
    }
    return escape(p, c);
}

/* After [. */
static int class(struct reader *p)
{
    struct set s = {.n = 0};
    bool turned = next_is(p, '^'), named;

    while (!p->why && p->at < p->end && *p->at != ']') {
        uint32_t lo = 0, hi;

        if (class_item(p, &s, &lo, &named) < 0)
            return -1;
        hi = lo;
        if (!named && p->end - p->at > 1 && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            if (class_item(p, &s, &hi, &named) < 0)
                return -1;
            if (named || hi < lo)
                return refuse(p, "a class has a range that is none");
        } else if (named) {
            continue;
        }
        set_add(p, &s, lo, hi);
    }
    if (!next_is(p, ']'))
        return refuse(p, "a class does not end");
    if (turned)
        set_turn(p, &s);
    return p->why ? -1 : set_expr(p->build, &s);
}

static int one_character(struct reader *p, uint32_t c)
{
    struct set s = {.ranges = {{c, c}}, .n = 1};

    return set_expr(p->build, &s);
}

/* After (. */
static int group(struct reader *p)
{
    int out;

    if (next_is(p, '?')) {
        if (next_is(p, '<') && p->at < p->end && *p->at != '=' && *p->at != '!') {
            while (p->at < p->end && *p->at != '>') /* its name is irrelevant */
                p->at++;
            if (!next_is(p, '>'))
                return refuse(p, "a group's name does not end");
        } else if (!next_is(p, ':')) {
            return refuse(p, "assertions are not supported");
        }
    }
    if (++p->depth > GRAMMAR_DEPTH)
        return refuse(p, "nested too deeply");
    out = alternatives(p, false);
    p->depth--;
    return next_is(p, ')') ? out : refuse(p, "a group does not end");
}

static int atom(struct reader *p)
{
    struct set s = {.n = 0};
    uint32_t c = 0;

    if (next_is(p, '('))
        return group(p);
    if (next_is(p, '['))
        return class(p);
    if (next_is(p, '.')) {
        set_add(p, &s, '\n', '\n');
        set_add(p, &s, '\r', '\r');
        set_add(p, &s, 0x2028, 0x2029);
        set_turn(p, &s);
        return set_expr(p->build, &s);
    }
    if (next_is(p, '\\')) {
        if (p->at < p->end && set_named(p, &s, *p->at)) {
            p->at++;
            return set_expr(p->build, &s);
        }
        return escape(p, &c) < 0 ? -1 : one_character(p, c);
    }
    if (*p->at == '^' || *p->at == '$')
        return refuse(p, "^ and $ may stand at the ends of its outermost alternatives alone");
    if (strchr("*+?{", *p->at))
        return refuse(p, "a quantifier has nothing before it");
    return one_character(p, character(p));
}

static int number(struct reader *p, int *out)
{
    const char *begin = p->at;

    *out = 0;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') {
        *out = 10 * *out + (*p->at++ - '0');
        if (*out > REPEAT_MAX)
            return refuse(p, "a quantifier is too large");
    }
    return p->at > begin ? 0 : refuse(p, "a quantifier is no number");
}

/* 1: there is one. */
static int quantifier(struct reader *p, int *min, int *max)
{
    *min = 0;
    *max = -1;
    if (next_is(p, '?')) {
        *max = 1;
    } else if (next_is(p, '+')) {
        *min = 1;
    } else if (next_is(p, '{')) {
        if (number(p, min) < 0)
            return -1;
        *max = *min;
        if (next_is(p, ',')) {
            *max = -1;
            if (p->at < p->end && *p->at != '}' && number(p, max) < 0)
                return -1;
        }
        if (!next_is(p, '}') || (*max >= 0 && *max < *min))
            return refuse(p, "a quantifier is none");
    } else if (!next_is(p, '*')) {
        return 0;
    }
    next_is(p, '?'); /* laziness does not change what it allows */
    return 1;
}

static int alternative(struct reader *p, bool outermost)
{
    struct grammar_build *b = p->build;
    bool begins = outermost && next_is(p, '^'), ends = false;
    int out = begins || !outermost ? build_empty(b) : any_text(b), one, min, max, rc;

    while (!p->why && p->at < p->end && *p->at != '|' && *p->at != ')') {
        ends = outermost && *p->at == '$' && (p->end - p->at == 1 || p->at[1] == '|');
        if (ends) {
            p->at++;
            break;
        }
        if ((one = atom(p)) < 0 || (rc = quantifier(p, &min, &max)) < 0)
            return -1;
        out = build_seq(b, out, rc ? build_repeat(b, one, min, max) : one);
    }
    return ends || !outermost ? out : build_seq(b, out, any_text(b));
}

static int alternatives(struct reader *p, bool outermost)
{
    int out = alternative(p, outermost);

    while (!p->why && next_is(p, '|'))
        out = build_alt(p->build, out, alternative(p, outermost));
    return p->why ? -1 : out;
}

int pattern_build(struct grammar_build *b, const char *pattern, const char **why)
{
    struct reader p = {.build = b, .at = pattern, .end = pattern + strlen(pattern)};
    int out = alternatives(&p, true);

    if (!p.why && p.at < p.end)
        refuse(&p, "a ) closes nothing");
    *why = p.why;
    return p.why ? -1 : out;
}

/* ---- formats ---- */

#define DAY "(0[1-9]|[12][0-9]"
#define LEAP "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
#define DATE                                                      \
    "([0-9]{4}-((0[13578]|1[02])-" DAY "|3[01])|(0[469]|11)-" DAY \
    "|30)|02-(0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define TIME                                                                                 \
    "([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):" \
    "[0-5][0-9])"
/* RFC 3339, appendix A: no unit is skipped (PT1H5S is none). */
#define CLOCK_PART "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
#define DATE_PART "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define WORD "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define H "[0-9a-fA-F]{1,4}"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "[Tt]" TIME "$"},
    {"duration", "^P(" DATE_PART "(" CLOCK_PART ")?|" CLOCK_PART "|[0-9]+W)$"},
    {"email", "^" WORD "(\\." WORD ")*@" LABEL "(\\." LABEL ")+$"},
    {"hostname", "^" LABEL "(\\." LABEL ")*$"},
    {"ipv4", "^" BYTE "(\\." BYTE "){3}$"},
    {"ipv6", "^((" H ":){7}" H "|(" H ":){1,7}:|(" H ":){1,6}:" H "|(" H ":){1,5}(:" H "){1,2}|(" H
             ":){1,4}(:" H "){1,3}|(" H ":){1,3}(:" H "){1,4}|(" H ":){1,2}(:" H "){1,5}|" H ":(:" H
             "){1,6}|:((:" H "){1,7}|:))$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
};

const char *pattern_of_format(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].pattern;
    return NULL;
}
