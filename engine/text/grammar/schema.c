/* A JSON schema as a grammar: the values that it allows, written with no blanks, or one, or a new
 * line and up to 32 blanks between their parts. Properties come in the order of the schema. A
 * keyword that is not known here is refused, for an answer that only looks as if it kept to the
 * schema is worse than none.
 *
 * Known: type (also a list), enum, const, properties, required, additionalProperties, items,
 * prefixItems, minItems, maxItems, anyOf, $ref into the document (also to itself), $defs,
 * definitions, minLength, maxLength, pattern, format, minimum, maximum, exclusiveMinimum,
 * exclusiveMaximum and multipleOf; titles, descriptions and the like say nothing about values. */
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/text/grammar/build.h"
#include "engine/text/grammar/decimals.h"
#include "engine/text/grammar/pattern.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REFS_MAX 4096
#define MULTIPLE_MAX 10000
#define POINTER_MAX 300

struct place { /* of the schema being read, from the root */
    const struct place *above;
    const char *key;
};

struct schema {
    const json_t *root;
    struct grammar_build build;
    struct {
        const json_t *to;
        int rule;
    } refs[REFS_MAX];
    int n_refs;
    int any, string, blank; /* rules; any -1: not yet */
    int depth;
    struct error *e;
};

/* ---- errors ---- */

static void write_pointer(const struct place *p, char *out, size_t size)
{
    size_t n;

    if (!p) {
        snprintf(out, size, "#");
        return;
    }
    write_pointer(p->above, out, size);
    n = strlen(out);
    snprintf(out + n, size - n, "/%s", p->key);
}

static int refuse(struct schema *s, const struct place *p, const char *key, const char *why)
{
    struct place here = {p, key};
    char pointer[POINTER_MAX];

    if (!s->e->code) {
        write_pointer(key ? &here : p, pointer, sizeof pointer);
        error_set(s->e, ERR_INPUT, "JSON schema, %s: %s", pointer, why);
    }
    return -1;
}

/* ---- pieces ---- */

static int text(struct schema *s, const char *t)
{
    return build_text(&s->build, t);
}

static int seq(struct schema *s, int a, int b)
{
    return build_seq(&s->build, a, b);
}

static int alt(struct schema *s, int a, int b)
{
    return build_alt(&s->build, a, b);
}

static int range(struct schema *s, uint32_t lo, uint32_t hi)
{
    return build_class(&s->build, &(struct code_range){lo, hi}, 1);
}

static int blank(struct schema *s)
{
    return build_call(&s->build, s->blank);
}

static int make_blank(struct schema *s)
{
    int many = build_repeat(&s->build, alt(s, range(s, ' ', ' '), range(s, '\t', '\t')), 0, 32);

    return build_repeat(&s->build, alt(s, text(s, " "), seq(s, text(s, "\n"), many)), 0, 1);
}

/* Four hexadecimal digits of which the first two are these. */
static int hex(struct schema *s, const struct code_range *first, size_t n,
               const struct code_range *second, size_t n_second)
{
    static const struct code_range any[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    int two = build_repeat(&s->build, build_class(&s->build, any, 3), 2, 2);

    return seq(
        s, seq(s, build_class(&s->build, first, n), build_class(&s->build, second, n_second)), two);
}

/* The code of a character after the backslash: one outside the surrogates, or a pair of them, since
 * a lone one is no character and readers of JSON refuse it. */
static int code(struct schema *s)
{
    static const struct code_range others[] = {
        {'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
    static const struct code_range any[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    static const struct code_range d[] = {{'D', 'D'}, {'d', 'd'}}, low[] = {{'0', '7'}};
    static const struct code_range high[] = {{'8', '9'}, {'A', 'B'}, {'a', 'b'}};
    static const struct code_range second[] = {{'C', 'F'}, {'c', 'f'}};
    int plain = alt(s, hex(s, others, 5, any, 3), hex(s, d, 2, low, 1));
    int pair = seq(s, seq(s, hex(s, d, 2, high, 3), text(s, "\\u")), hex(s, d, 2, second, 2));

    return seq(s, text(s, "u"), alt(s, plain, pair));
}

/* One character of a string, escaped or not. */
static int character(struct schema *s)
{
    static const struct code_range plain[] = {
        {' ', '!'}, {'#', '['}, {']', 0x7e}, {0x80, 0x10ffff}};
    static const struct code_range letters[] = {{'"', '"'}, {'\\', '\\'}, {'b', 'b'}, {'f', 'f'},
                                                {'n', 'n'}, {'r', 'r'},   {'t', 't'}};

    return alt(s, build_class(&s->build, plain, 4),
               seq(s, text(s, "\\"), alt(s, build_class(&s->build, letters, 7), code(s))));
}

static int string(struct schema *s, int min, int max)
{
    int all = build_repeat(&s->build, character(s), min, max);

    return seq(s, seq(s, text(s, "\""), all), text(s, "\""));
}

static int digits(struct schema *s, int min, int max)
{
    return build_repeat(&s->build, range(s, '0', '9'), min, max);
}

/* ---- integers ---- */

/* Those from lo to hi, n digits each. */
static int same_length(struct schema *s, const char *lo, const char *hi, size_t n)
{
    int out = -1;
    char first = lo[0], last = hi[0];
    char low[24], high[24];

    if (n == 1)
        return range(s, (uint32_t)lo[0], (uint32_t)hi[0]);
    memset(low, '0', n);
    memset(high, '9', n);
    if (lo[0] == hi[0])
        return seq(s, range(s, (uint32_t)lo[0], (uint32_t)lo[0]),
                   same_length(s, lo + 1, hi + 1, n - 1));
    if (memcmp(lo + 1, low, n - 1) != 0) {
        out = seq(s, range(s, (uint32_t)first, (uint32_t)first),
                  same_length(s, lo + 1, high, n - 1));
        first++;
    }
    if (memcmp(hi + 1, high, n - 1) != 0) {
        out = alt(s, out,
                  seq(s, range(s, (uint32_t)last, (uint32_t)last),
                      same_length(s, low, hi + 1, n - 1)));
        last--;
    }
    if (first <= last)
        out = alt(s, out,
                  seq(s, range(s, (uint32_t)first, (uint32_t)last),
                      digits(s, (int)n - 1, (int)n - 1)));
    return out;
}

/* 0 <= lo <= hi; open: no hi. */
static int magnitudes(struct schema *s, uint64_t lo, uint64_t hi, bool open)
{
    char low[24], high[24];
    int out = -1;

    snprintf(low, sizeof low, "%llu", (unsigned long long)lo);
    snprintf(high, sizeof high, "%llu", (unsigned long long)hi);
    for (size_t n = strlen(low), most = open ? n : strlen(high); n <= most; n++) {
        char from[24], to[24];

        memset(from, '0', n);
        from[0] = '1';
        memset(to, '9', n);
        from[n] = to[n] = 0;
        if (n == strlen(low))
            memcpy(from, low, n);
        if (!open && n == strlen(high))
            memcpy(to, high, n);
        out = alt(s, out, same_length(s, from, to, n));
    }
    if (open)
        out = alt(s, out, seq(s, range(s, '1', '9'), digits(s, (int)strlen(low), -1)));
    return out;
}

struct bounds {
    bool has_min, has_max;
    int64_t min, max; /* both count */
};

static int integers(struct schema *s, const struct bounds *b)
{
    int out = -1;

    if (!b->has_min && !b->has_max)
        return seq(s, build_repeat(&s->build, text(s, "-"), 0, 1), magnitudes(s, 0, 0, true));
    if (!b->has_max || b->max >= 0)
        out = magnitudes(s, b->has_min && b->min > 0 ? (uint64_t)b->min : 0,
                         b->has_max ? (uint64_t)b->max : 0, !b->has_max);
    if (!b->has_min || b->min < 0) {
        uint64_t least = b->has_max && b->max < 0 ? (uint64_t)-b->max : 0;

        out = alt(s, out,
                  seq(s, text(s, "-"),
                      magnitudes(s, least, b->has_min ? (uint64_t)-b->min : 0, !b->has_min)));
    }
    return out;
}

/* By what is left over of the digits so far: a rule each. */
static int multiples(struct schema *s, int of)
{
    int first = -1, out = -1;

    for (int r = 0; r < of; r++) {
        int rule = build_rule(&s->build);

        first = first < 0 ? rule : first;
    }
    for (int r = 0; r < of && !s->build.failed; r++) {
        int body = r == 0 ? build_empty(&s->build) : -1;

        for (int d = 0; d < 10; d++)
            body = alt(s, body,
                       seq(s, range(s, (uint32_t)('0' + d), (uint32_t)('0' + d)),
                           build_call(&s->build, first + (10 * r + d) % of)));
        build_rule_set(&s->build, first + r, body);
    }
    for (int d = 1; d < 10; d++)
        out = alt(s, out,
                  seq(s, range(s, (uint32_t)('0' + d), (uint32_t)('0' + d)),
                      build_call(&s->build, first + d % of)));
    out = alt(s, out, text(s, "0"));
    return seq(s, build_repeat(&s->build, text(s, "-"), 0, 1), out);
}

static int numbers(struct schema *s)
{
    int whole = seq(s, build_repeat(&s->build, text(s, "-"), 0, 1), magnitudes(s, 0, 0, true));
    int part = build_repeat(&s->build, seq(s, text(s, "."), digits(s, 1, -1)), 0, 1);
    int sign = build_repeat(&s->build, alt(s, text(s, "+"), text(s, "-")), 0, 1);
    int power = seq(s, seq(s, alt(s, text(s, "e"), text(s, "E")), sign), digits(s, 1, -1));

    return seq(s, seq(s, whole, part), build_repeat(&s->build, power, 0, 1));
}

/* ---- keywords ---- */

static int value(struct schema *s, const json_t *v, const struct place *p);

/* A count among the keywords; `none` where it is not said, -2: refused. */
static int count(struct schema *s, const json_t *o, const char *key, int none,
                 const struct place *p)
{
    const json_t *v = json_object_get(o, key);

    if (!v)
        return none;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > GRAMMAR_NODES)
        return refuse(s, p, key, "a whole number from 0 (and not too large) is possible"), -2;
    return (int)json_integer_value(v);
}

/* A bound, as a whole number inside it. */
static int bound(struct schema *s, const json_t *o, const char *key, bool upper, bool open,
                 struct bounds *b, const struct place *p)
{
    const json_t *v = json_object_get(o, key);
    double x, whole;
    int64_t i;

    if (!v)
        return 0;
    if (!json_is_number(v) || fabs(x = json_number_value(v)) > 9e15)
        return refuse(s, p, key, "a number up to 9e15 is possible");
    whole = upper ? floor(x) : ceil(x);
    i = (int64_t)whole;
    if (open && whole == x)
        i += upper ? -1 : 1;
    if (upper && (!b->has_max || i < b->max))
        b->max = i, b->has_max = true;
    if (!upper && (!b->has_min || i > b->min))
        b->min = i, b->has_min = true;
    return 0;
}

/* Few enough to be written down. */
static int multiples_between(struct schema *s, int64_t of, const struct bounds *b,
                             const struct place *p)
{
    int64_t first = b->min / of * of;
    int out = -1;

    if (!b->has_min || !b->has_max || (b->max - b->min) / of > MULTIPLE_MAX)
        return refuse(s, p, "multipleOf",
                      "together with bounds these must be two, and not too far apart");
    for (int64_t v = first < b->min ? first + of : first; v <= b->max; v += of) {
        char number_text[24];

        snprintf(number_text, sizeof number_text, "%lld", (long long)v);
        out = alt(s, out, text(s, number_text));
    }
    return out < 0 ? refuse(s, p, "multipleOf", "none lies between its bounds") : out;
}

static int integer(struct schema *s, const json_t *o, const struct place *p)
{
    const json_t *of = json_object_get(o, "multipleOf");
    struct bounds b = {0};

    if (bound(s, o, "minimum", false, false, &b, p) < 0 ||
        bound(s, o, "exclusiveMinimum", false, true, &b, p) < 0 ||
        bound(s, o, "maximum", true, false, &b, p) < 0 ||
        bound(s, o, "exclusiveMaximum", true, true, &b, p) < 0)
        return -1;
    if (of) {
        if (!json_is_integer(of) || json_integer_value(of) < 1 ||
            json_integer_value(of) > MULTIPLE_MAX)
            return refuse(s, p, "multipleOf", "a whole number from 1 to 10000 is possible");
        if (b.has_min || b.has_max)
            return multiples_between(s, json_integer_value(of), &b, p);
        return multiples(s, (int)json_integer_value(of));
    }
    if (b.has_min && b.has_max && b.min > b.max)
        return refuse(s, p, NULL, "no integer lies between its minimum and maximum");
    return integers(s, &b);
}

/* One side of a number; the closer of an inclusive and an exclusive bound. */
static int side(struct schema *s, const json_t *o, const char *key, bool upper, bool open,
                struct decimal_bound *b, const struct place *p)
{
    const json_t *v = json_object_get(o, key);
    double x;

    if (!v)
        return 0;
    if (!json_is_number(v) || fabs(x = json_number_value(v)) > 9e15)
        return refuse(s, p, key, "a number up to 9e15 is possible");
    if (!b->given || (upper ? x < b->value : x > b->value) || (x == b->value && open))
        *b = (struct decimal_bound){true, open, x};
    return 0;
}

/* n of a 10^-n up to 15; 0: it is none. */
static int tenths(double v)
{
    for (int n = 1; n <= 15; n++) {
        char written[24];

        snprintf(written, sizeof written, "1e-%d", n);
        if (v == strtod(written, NULL))
            return n;
    }
    return 0;
}

/* Tenths, hundredths and so on, or multiples of a whole number. */
static int parts(struct schema *s, const json_t *of, const struct place *p)
{
    double v = json_number_value(of);
    int n = tenths(v), whole, part;

    if (json_is_number(of) && v == floor(v) && v >= 1 && v <= MULTIPLE_MAX) {
        whole = multiples(s, (int)v);
        part = build_repeat(&s->build, text(s, "0"), 1, -1);
    } else if (n) {
        whole = seq(s, build_repeat(&s->build, text(s, "-"), 0, 1), magnitudes(s, 0, 0, true));
        part = digits(s, 1, n);
    } else {
        return refuse(s, p, "multipleOf",
                      "for numbers a whole one up to 10000, or 0.1, 0.01 and so on, is possible");
    }
    return seq(s, whole, build_repeat(&s->build, seq(s, text(s, "."), part), 0, 1));
}

static int number(struct schema *s, const json_t *o, const struct place *p)
{
    const json_t *of = json_object_get(o, "multipleOf");
    struct decimal_bound least = {0}, most = {0};
    const char *why;
    int out;

    if (side(s, o, "minimum", false, false, &least, p) < 0 ||
        side(s, o, "exclusiveMinimum", false, true, &least, p) < 0 ||
        side(s, o, "maximum", true, false, &most, p) < 0 ||
        side(s, o, "exclusiveMaximum", true, true, &most, p) < 0)
        return -1;
    if (of && (least.given || most.given))
        return refuse(s, p, "multipleOf", "for numbers not together with bounds");
    if (of)
        return parts(s, of, p);
    if (!least.given && !most.given)
        return numbers(s);
    out = decimals_build(&s->build, &least, &most, &why);
    return out < 0 && why ? refuse(s, p, NULL, why) : out;
}

static int matching(struct schema *s, const char *pattern, const char *key, const struct place *p)
{
    const char *why;
    int body = pattern_build(&s->build, pattern, &why);

    if (why)
        return refuse(s, p, key, why);
    return seq(s, seq(s, text(s, "\""), body), text(s, "\""));
}

/* "pattern" or "format"; each stands alone, for what two of them allow together is not known. */
static int shaped(struct schema *s, const json_t *o, const struct place *p)
{
    const json_t *pattern = json_object_get(o, "pattern"), *format = json_object_get(o, "format");
    const char *key = pattern ? "pattern" : "format", *name;

    if (!json_is_string(pattern ? pattern : format))
        return refuse(s, p, key, "a text is possible");
    if ((pattern && format) || json_object_get(o, "minLength") || json_object_get(o, "maxLength"))
        return refuse(s, p, key, "not together with minLength, maxLength, pattern or format");
    if (pattern)
        return matching(s, json_string_value(pattern), key, p);
    name = pattern_of_format(json_string_value(format));
    return name ? matching(s, name, key, p)
                : refuse(s, p, key,
                         "date, time, date-time, duration, email, hostname, ipv4, ipv6 "
                         "and uuid are possible");
}

static int string_of(struct schema *s, const json_t *o, const struct place *p)
{
    int min = count(s, o, "minLength", 0, p), max = count(s, o, "maxLength", -1, p);

    if (min == -2 || max == -2)
        return -1;
    if (json_object_get(o, "pattern") || json_object_get(o, "format"))
        return shaped(s, o, p);
    if (max >= 0 && max < min)
        return refuse(s, p, "maxLength", "less than minLength");
    return min == 0 && max < 0 ? build_call(&s->build, s->string) : string(s, min, max);
}

static int any_value(struct schema *s)
{
    return build_call(&s->build, s->any);
}

/* The schema of an element; -1: refused. none: any value. */
static int sub(struct schema *s, const json_t *v, const struct place *p, const char *key)
{
    struct place here = {p, key};

    return v ? value(s, v, &here) : any_value(s);
}

/* , and the blanks around it */
static int comma(struct schema *s)
{
    return seq(s, seq(s, blank(s), text(s, ",")), blank(s));
}

static int array(struct schema *s, const json_t *o, const struct place *p)
{
    const json_t *prefix = json_object_get(o, "prefixItems"), *items = json_object_get(o, "items");
    int min = count(s, o, "minItems", 0, p), max = count(s, o, "maxItems", -1, p);
    int n = (int)json_array_size(prefix), rest = -1, all;

    if (min == -2 || max == -2)
        return -1;
    if (prefix && !json_is_array(prefix))
        return refuse(s, p, "prefixItems", "a list of schemas is possible");
    if (json_is_false(items))
        max = max < 0 || max > n ? n : max;
    if (max >= 0 && max < min)
        return refuse(s, p, "minItems", "more than there may be");
    if (!json_is_false(items) && (max < 0 || max > n)) {
        int more_min = min > n ? min - n : 0, more_max = max < 0 ? -1 : max - n;

        if ((rest = sub(s, items, p, "items")) < 0)
            return -1;
        if (n == 0) { /* one without a comma before it */
            int others = build_repeat(&s->build, seq(s, comma(s), rest),
                                      more_min > 0 ? more_min - 1 : 0,
                                      more_max < 0 ? -1 : more_max - 1);

            rest = seq(s, seq(s, rest, others), blank(s));
            rest = more_min ? rest : build_repeat(&s->build, rest, 0, 1);
        } else {
            rest = build_repeat(&s->build, seq(s, comma(s), rest), more_min, more_max);
        }
    }
    all = rest < 0 ? build_empty(&s->build) : rest;
    for (int i = max >= 0 && max < n ? max - 1 : n - 1; i >= 0; i--) {
        struct place here = {p, "prefixItems"};
        char key[16];
        int one;

        snprintf(key, sizeof key, "%d", i);
        if ((one = sub(s, json_array_get(prefix, (size_t)i), &here, key)) < 0)
            return -1;
        one = seq(s, i ? seq(s, comma(s), one) : one, all);
        one = i ? one : seq(s, one, blank(s));
        all = i < min ? one : build_repeat(&s->build, one, 0, 1);
    }
    all = seq(s, seq(s, text(s, "["), blank(s)), all);
    return seq(s, all, text(s, "]"));
}

/* A string, a number or a word as JSON writes it; -1. */
static int scalar(struct schema *s, const json_t *v)
{
    static const char short_forms[] = "btnfr", *const codes[] = {"8", "9", "Aa", "Cc", "Dd"};
    char *t = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    int out = build_empty(&s->build);

    if (!t)
        s->build.failed = true;
    for (const char *p = t; t && *p;) {
        size_t n = strcspn(p, "\\");
        const char *form = p[n] ? strchr(short_forms, p[n + 1]) : NULL;
        int one;

        out = seq(s, out, build_bytes(&s->build, p, n));
        if (p[n]) { /* an escape: as it stands, or by its code */
            one = build_bytes(&s->build, p + n, 2);
            for (const char *c = form ? codes[form - short_forms] : ""; *c; c++)
                one = alt(s, one, seq(s, text(s, "\\u000"), build_bytes(&s->build, c, 1)));
            out = seq(s, out, one);
            n += 2;
        }
        p += n;
    }
    free(t);
    return out;
}

static int colon(struct schema *s)
{
    return seq(s, seq(s, blank(s), text(s, ":")), blank(s));
}

/* A value as JSON writes it, blanks between its parts; -1. */
static int literal(struct schema *s, const json_t *v)
{
    bool list = json_is_array(v);
    const json_t *part;
    const char *key;
    size_t i;
    int out;

    if (!list && !json_is_object(v))
        return scalar(s, v);
    out = seq(s, text(s, list ? "[" : "{"), blank(s));
    json_array_foreach(v, i, part)
    {
        out = seq(s, i ? seq(s, out, comma(s)) : out, literal(s, part));
    }
    i = 0;
    json_object_foreach((json_t *)v, key, part)
    {
        json_t *name = json_string(key);
        int one = seq(s, seq(s, scalar(s, name), colon(s)), literal(s, part));

        out = seq(s, i++ ? seq(s, out, comma(s)) : out, one);
        json_decref(name);
    }
    if (list ? json_array_size(v) : json_object_size(v))
        out = seq(s, out, blank(s));
    return seq(s, out, text(s, list ? "]" : "}"));
}

/* An escape of a character that stands in no plain name. */
static int escaped(struct schema *s)
{
    static const struct code_range letters[] = {{'"', '"'}, {'\\', '\\'}, {'b', 'b'}, {'f', 'f'},
                                                {'n', 'n'}, {'r', 'r'},   {'t', 't'}};

    return seq(s, text(s, "\\"), build_class(&s->build, letters, 7));
}

/* Keys that are none of the properties: by the characters that they share with one. from..to of the
 * sorted names share the first `at` bytes. */
static int other_key(struct schema *s, const char **names, size_t from, size_t to, size_t at)
{
    int rest = build_repeat(&s->build, character(s), 0, -1), out = -1;
    struct code_range free_chars[160];
    size_t n = 0, i = from;
    uint32_t next = ' ';
    bool ends = false;

    for (; i < to && !names[i][at]; i++)
        ends = true;
    if (!ends)
        out = text(s, "\"");
    for (; i < to;) {
        unsigned char c = (unsigned char)names[i][at];
        size_t last = i;

        while (last < to && (unsigned char)names[last][at] == c)
            last++;
        if (c > next)
            free_chars[n++] = (struct code_range){next, (uint32_t)c - 1};
        next = (uint32_t)c + 1;
        out = alt(s, out, seq(s, range(s, c, c), other_key(s, names, i, last, at + 1)));
        i = last;
    }
    free_chars[n++] = (struct code_range){next, 0x7e};
    for (size_t k = 0; k < n; k++) /* neither quotes nor backslashes */
        for (uint32_t lo = free_chars[k].lo; lo <= free_chars[k].hi;) {
            uint32_t hi = lo;

            if (lo == '"' || lo == '\\') {
                lo++;
                continue;
            }
            while (hi < free_chars[k].hi && hi + 1 != '"' && hi + 1 != '\\')
                hi++;
            out = alt(s, out, seq(s, range(s, lo, hi), seq(s, rest, text(s, "\""))));
            lo = hi + 1;
        }
    rest = seq(s, rest, text(s, "\""));
    out = alt(s, out, seq(s, escaped(s), rest)); /* no name has one */
    return alt(s, out, seq(s, range(s, 0x80, 0x10ffff), rest));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int free_key(struct schema *s, const json_t *properties, const struct place *p)
{
    size_t n = json_object_size(properties), i = 0;
    const char **names, *name;
    json_t *v;
    int out;

    if (!n)
        return build_call(&s->build, s->string);
    if (!(names = mem_alloc(n, sizeof *names))) {
        s->build.failed = true;
        return -1;
    }
    json_object_foreach((json_t *)properties, name, v)
    {
        for (const char *c = name; *c; c++)
            if ((unsigned char)*c < ' ' || (unsigned char)*c > 0x7e || *c == '"' || *c == '\\') {
                mem_free(names);
                return refuse(s, p, "additionalProperties",
                              "beside names that are not plain ASCII, false alone is possible");
            }
        names[i++] = name;
    }
    qsort(names, n, sizeof *names, by_name);
    out = seq(s, text(s, "\""), other_key(s, names, 0, n, 0));
    mem_free(names);
    return out;
}

static bool is_required(const json_t *required, const char *name)
{
    const json_t *v;
    size_t i;

    json_array_foreach(required, i, v) if (strcmp(json_string_value(v), name) == 0) return true;
    return false;
}

static int check_required(struct schema *s, const json_t *required, const json_t *properties,
                          const struct place *p)
{
    const json_t *v;
    size_t i;

    if (required && !json_is_array(required))
        return refuse(s, p, "required", "a list of names is possible");
    json_array_foreach(required, i, v)
    {
        if (!json_is_string(v))
            return refuse(s, p, "required", "a list of names is possible");
        if (!json_object_get(properties, json_string_value(v)))
            return refuse(s, p, "required", "it names what is no property");
    }
    return 0;
}

/* What may follow, from the last property to the first, after something and after nothing: two
 * rules a property, so that a long object is a chain. */
static int object(struct schema *s, const json_t *o, const struct place *p)
{
    const json_t *properties = json_object_get(o, "properties");
    const json_t *required = json_object_get(o, "required");
    const json_t *other = json_object_get(o, "additionalProperties");
    int after = blank(s), first = build_empty(&s->build);
    size_t n = json_object_size(properties), i = 0;
    struct place here = {p, "properties"};
    const char **names, *name;
    json_t *v;

    if (properties && !json_is_object(properties))
        return refuse(s, p, "properties", "an object of schemas is possible");
    if (check_required(s, required, properties, p) < 0)
        return -1;
    if (!json_is_false(other)) {
        int key = free_key(s, properties, p), item = sub(s, other, p, "additionalProperties"), more;

        if (key < 0 || item < 0)
            return -1;
        item = seq(s, seq(s, key, colon(s)), item);
        more = build_repeat(&s->build, seq(s, comma(s), item), 0, -1);
        after = seq(s, more, blank(s));
        first = build_repeat(&s->build, seq(s, item, after), 0, 1);
    }
    if (!(names = mem_alloc(n + 1, sizeof *names))) {
        s->build.failed = true;
        return -1;
    }
    json_object_foreach((json_t *)properties, name, v) names[i++] = name;
    while (i-- > 0) {
        int after_rule = build_rule(&s->build), first_rule = build_rule(&s->build), item, key;
        json_t *quoted = json_string(names[i]);

        item = sub(s, json_object_get(properties, names[i]), &here, names[i]);
        key = quoted ? literal(s, quoted) : -1;
        json_decref(quoted);
        if (item < 0 || key < 0 || first_rule < 0) {
            s->build.failed |= item >= 0;
            mem_free(names);
            return -1;
        }
        build_rule_set(&s->build, after_rule, after);
        build_rule_set(&s->build, first_rule, first);
        item = seq(s, seq(s, key, colon(s)), item);
        item = seq(s, item, build_call(&s->build, after_rule));
        after = seq(s, comma(s), item);
        if (!is_required(required, names[i])) {
            after = alt(s, after, build_call(&s->build, after_rule));
            first = alt(s, item, build_call(&s->build, first_rule));
        } else {
            first = item;
        }
    }
    mem_free(names);
    first = seq(s, seq(s, text(s, "{"), blank(s)), first);
    return seq(s, first, text(s, "}"));
}

/* ---- what stands together ---- */

enum { OF_ALL, OF_OBJECT, OF_ARRAY, OF_STRING, OF_NUMBER, OF_NOTHING };

static const struct {
    const char *name;
    int of;
} keywords[] = {
    {"type", OF_ALL},
    {"enum", OF_ALL},
    {"const", OF_ALL},
    {"anyOf", OF_ALL},
    {"$ref", OF_ALL},
    {"properties", OF_OBJECT},
    {"required", OF_OBJECT},
    {"additionalProperties", OF_OBJECT},
    {"items", OF_ARRAY},
    {"prefixItems", OF_ARRAY},
    {"minItems", OF_ARRAY},
    {"maxItems", OF_ARRAY},
    {"minLength", OF_STRING},
    {"maxLength", OF_STRING},
    {"pattern", OF_STRING},
    {"format", OF_STRING},
    {"minimum", OF_NUMBER},
    {"maximum", OF_NUMBER},
    {"exclusiveMinimum", OF_NUMBER},
    {"exclusiveMaximum", OF_NUMBER},
    {"multipleOf", OF_NUMBER},
    {"$schema", OF_NOTHING},
    {"$id", OF_NOTHING},
    {"$defs", OF_NOTHING},
    {"definitions", OF_NOTHING},
    {"$comment", OF_NOTHING},
    {"title", OF_NOTHING},
    {"description", OF_NOTHING},
    {"default", OF_NOTHING},
    {"examples", OF_NOTHING},
    {"deprecated", OF_NOTHING},
    {"readOnly", OF_NOTHING},
    {"writeOnly", OF_NOTHING},
};

/* Every keyword is known, and one that stands alone (enum, const, anyOf, $ref) does. */
static int check_keywords(struct schema *s, const json_t *o, const char *alone,
                          const struct place *p)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)o, key, v)
    {
        size_t i = 0;

        while (i < sizeof keywords / sizeof *keywords && strcmp(keywords[i].name, key) != 0)
            i++;
        if (i == sizeof keywords / sizeof *keywords)
            return refuse(s, p, key, "this keyword is not supported");
        if (alone && keywords[i].of != OF_NOTHING && strcmp(key, alone) != 0 &&
            !(strcmp(key, "type") == 0 && strcmp(alone, "anyOf") != 0 &&
              strcmp(alone, "$ref") != 0))
            return refuse(s, p, key,
                          "not supported beside what stands alone: enum, const, anyOf, $ref");
    }
    return 0;
}

static bool has_type(const char *type, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return strcmp(type, "object") == 0;
    case JSON_ARRAY: return strcmp(type, "array") == 0;
    case JSON_STRING: return strcmp(type, "string") == 0;
    case JSON_INTEGER: return strcmp(type, "integer") == 0 || strcmp(type, "number") == 0;
    case JSON_REAL: return strcmp(type, "number") == 0;
    case JSON_TRUE:
    case JSON_FALSE: return strcmp(type, "boolean") == 0;
    default: return strcmp(type, "null") == 0;
    }
}

/* Whether a value is of one of the types that may stand beside it. */
static bool typed(const json_t *type, const json_t *v)
{
    const json_t *one;
    size_t i;

    if (!type)
        return true;
    if (json_is_string(type))
        return has_type(json_string_value(type), v);
    json_array_foreach(type, i, one) if (json_is_string(one) &&
                                         has_type(json_string_value(one), v)) return true;
    return false;
}

static int any_of(struct schema *s, const json_t *list, const json_t *type, bool literals,
                  const char *key, const struct place *p)
{
    struct place here = {p, key};
    const json_t *v;
    int out = -1, one;
    size_t i;

    if (!json_is_array(list) || !json_array_size(list))
        return refuse(s, p, key, "a list that is not empty is possible");
    json_array_foreach(list, i, v)
    {
        char number_text[24];

        snprintf(number_text, sizeof number_text, "%zu", i);
        if (literals && !typed(type, v))
            continue;
        if ((one = literals ? literal(s, v) : sub(s, v, &here, number_text)) < 0)
            return -1;
        out = alt(s, out, one);
    }
    return out < 0 ? refuse(s, p, key, "none of its values has the type") : out;
}

static int reference(struct schema *s, const json_t *v, const struct place *p)
{
    const char *at = json_string_value(v);
    const json_t *to = s->root;
    int i = 0, body;

    if (!at || at[0] != '#' || (at[1] && at[1] != '/'))
        return refuse(s, p, "$ref", "a reference into this document (#/…) is possible");
    for (at++; *at && to;) {
        char key[200];
        size_t n = 0;

        for (at++; *at && *at != '/' && n + 1 < sizeof key; at++)
            if (at[0] == '~' && (at[1] == '0' || at[1] == '1'))
                key[n++] = *++at == '0' ? '~' : '/';
            else
                key[n++] = *at;
        key[n] = 0;
        to = json_is_array(to) ? json_array_get(to, strtoul(key, NULL, 10))
                               : json_object_get(to, key);
    }
    if (!to)
        return refuse(s, p, "$ref", "it leads nowhere");
    while (i < s->n_refs && s->refs[i].to != to)
        i++;
    if (i == REFS_MAX)
        return refuse(s, p, "$ref", "too many references");
    if (i == s->n_refs) {
        struct place here = {p, "$ref"};

        s->refs[s->n_refs].to = to;
        s->refs[s->n_refs++].rule = build_rule(&s->build);
        if ((body = value(s, to, &here)) < 0)
            return -1;
        build_rule_set(&s->build, s->refs[i].rule, body);
    }
    return build_call(&s->build, s->refs[i].rule);
}

static int of_type(struct schema *s, const json_t *o, const char *type, const struct place *p)
{
    if (strcmp(type, "object") == 0)
        return object(s, o, p);
    if (strcmp(type, "array") == 0)
        return array(s, o, p);
    if (strcmp(type, "string") == 0)
        return string_of(s, o, p);
    if (strcmp(type, "integer") == 0)
        return integer(s, o, p);
    if (strcmp(type, "number") == 0)
        return number(s, o, p);
    if (strcmp(type, "boolean") == 0)
        return alt(s, text(s, "true"), text(s, "false"));
    if (strcmp(type, "null") == 0)
        return text(s, "null");
    return refuse(s, p, "type",
                  "object, array, string, integer, number, boolean and null are possible");
}

static int of_types(struct schema *s, const json_t *o, const struct place *p)
{
    static const char *const all[] = {"object", "array", "string", "number", "boolean", "null"};
    const json_t *type = json_object_get(o, "type"), *v;
    int out = -1, one;
    size_t i;

    if (json_is_string(type))
        return of_type(s, o, json_string_value(type), p);
    if (type && (!json_is_array(type) || !json_array_size(type)))
        return refuse(s, p, "type", "a name or a list of names is possible");
    json_array_foreach(type, i, v)
    {
        if (!json_is_string(v))
            return refuse(s, p, "type", "a name or a list of names is possible");
        if ((one = of_type(s, o, json_string_value(v), p)) < 0)
            return -1;
        out = alt(s, out, one);
    }
    for (i = 0; !type && i < sizeof all / sizeof *all; i++) {
        if ((one = of_type(s, o, all[i], p)) < 0)
            return -1;
        out = alt(s, out, one);
    }
    return out;
}

/* Whether something in it says what a value may be. */
static bool says_nothing(const json_t *o)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)o, key, v)
    {
        for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
            if (strcmp(keywords[i].name, key) == 0 && keywords[i].of != OF_NOTHING)
                return false;
    }
    return true;
}

static int keyed(struct schema *s, const json_t *o, const struct place *p)
{
    static const char *const alone[] = {"$ref", "const", "enum", "anyOf"};
    const json_t *type = json_object_get(o, "type"), *v;
    const char *key = NULL;

    for (size_t i = 0; i < 4 && !key; i++)
        if (json_object_get(o, alone[i]))
            key = alone[i];
    if (check_keywords(s, o, key, p) < 0)
        return -1;
    if (!key)
        return says_nothing(o) ? any_value(s) : of_types(s, o, p);
    v = json_object_get(o, key);
    if (strcmp(key, "$ref") == 0)
        return reference(s, v, p);
    if (strcmp(key, "const") == 0)
        return typed(type, v) ? literal(s, v) : refuse(s, p, key, "it is not of the type");
    return any_of(s, v, type, strcmp(key, "enum") == 0, key, p);
}

static int value(struct schema *s, const json_t *v, const struct place *p)
{
    int out;

    if (json_is_true(v))
        return any_value(s);
    if (json_is_false(v))
        return refuse(s, p, NULL, "false allows nothing");
    if (!json_is_object(v))
        return refuse(s, p, NULL, "a schema is an object, true or false");
    if (++s->depth > GRAMMAR_DEPTH)
        return refuse(s, p, NULL, "nested too deeply");
    out = keyed(s, v, p);
    s->depth--;
    return out;
}

/* Rules that every schema may need: the root, any value, a string, blanks. */
static int begin(struct schema *s)
{
    static const char any[] = "{}";
    json_t *empty = json_loads(any, 0, NULL);
    int root = build_rule(&s->build), object_rule, array_rule, all;

    s->any = build_rule(&s->build);
    s->string = build_rule(&s->build);
    s->blank = build_rule(&s->build);
    build_rule_set(&s->build, s->blank, make_blank(s));
    build_rule_set(&s->build, s->string, string(s, 0, -1));
    object_rule = empty ? object(s, empty, NULL) : -1;
    array_rule = empty ? array(s, empty, NULL) : -1;
    json_decref(empty);
    if (object_rule < 0 || array_rule < 0)
        return -1;
    all = alt(s, object_rule, array_rule);
    all = alt(s, all, build_call(&s->build, s->string));
    all = alt(s, all, numbers(s));
    all = alt(s, all, alt(s, alt(s, text(s, "true"), text(s, "false")), text(s, "null")));
    build_rule_set(&s->build, s->any, all);
    return root;
}

int grammar_from_schema(struct grammar **out, const char *json, size_t n, struct error *e)
{
    struct error own = {0};
    struct schema *s = mem_alloc(1, sizeof *s);
    int rc = 0, body = -1, root;
    json_t *o = NULL;

    *out = NULL;
    e = e ? e : &own;
    *e = (struct error){0};
    if (!s)
        return error_set(e, ERR_MEMORY, "out of memory for the schema");
    s->e = e;
    if (n > GRAMMAR_BYTES)
        rc = error_set(e, ERR_INPUT, "JSON schema: longer than %zu bytes", GRAMMAR_BYTES);
    else if (!(o = json_read(json, n, "JSON schema", e)))
        rc = e->code = ERR_INPUT;
    s->root = o;
    if (rc == 0 && (root = begin(s)) >= 0 && (body = value(s, o, NULL)) >= 0)
        build_rule_set(&s->build, root, body);
    if (rc == 0 && body < 0 && e->code)
        rc = e->code;
    else if (rc == 0 && body < 0 && !s->build.failed)
        s->build.failed = true;
    if (rc == 0)
        rc = grammar_build_end(&s->build, NULL, NULL, out, e);
    grammar_build_release(&s->build);
    json_decref(o);
    mem_free(s);
    return rc;
}
