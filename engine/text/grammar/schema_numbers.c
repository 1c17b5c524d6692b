/* See schema_parts.h. The numbers of a JSON schema: digit by digit, so that the digits so far
 * determine what may follow. */
#include "engine/text/grammar/decimals.h"
#include "engine/text/grammar/schema_parts.h"
#include "engine/text/grammar/wholes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MULTIPLE_MAX 10000

static int digits(struct schema *s, int min, int max)
{
    return build_repeat(&s->build, range(s, '0', '9'), min, max);
}

/* ---- integers ---- */

struct bounds {
    bool has_min, has_max;
    int64_t min, max; /* inclusive */
};

static int integers(struct schema *s, const struct bounds *b)
{
    int out = -1;

    if (!b->has_min && !b->has_max)
        return seq(s, build_repeat(&s->build, text(s, "-"), 0, 1),
                   wholes_build(&s->build, 0, 0, true));
    if (!b->has_max || b->max >= 0)
        out = wholes_build(&s->build, b->has_min && b->min > 0 ? (uint64_t)b->min : 0,
                           b->has_max ? (uint64_t)b->max : 0, !b->has_max);
    if (!b->has_min || b->min < 0) {
        uint64_t least = b->has_max && b->max < 0 ? (uint64_t)-b->max : 0;

        out = alt(
            s, out,
            seq(s, text(s, "-"),
                wholes_build(&s->build, least, b->has_min ? (uint64_t)-b->min : 0, !b->has_min)));
    }
    return out;
}

/* By the remainder of the digits so far: one rule each. */
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

int schema_any_number(struct schema *s)
{
    int whole = seq(s, build_repeat(&s->build, text(s, "-"), 0, 1),
                    wholes_build(&s->build, 0, 0, true));
    int part = build_repeat(&s->build, seq(s, text(s, "."), digits(s, 1, -1)), 0, 1);
    int sign = build_repeat(&s->build, alt(s, text(s, "+"), text(s, "-")), 0, 1);
    int power = seq(s, seq(s, alt(s, text(s, "e"), text(s, "E")), sign), digits(s, 1, -1));

    return seq(s, seq(s, whole, part), build_repeat(&s->build, power, 0, 1));
}

/* ---- keywords ---- */

/* A bound, rounded to an integer inside it. */
static int bound(struct schema *s, const json_t *o, const char *key, bool upper, bool open,
                 struct bounds *b, const struct schema_place *p)
{
    const json_t *v = json_object_get(o, key);
    double x, whole;
    int64_t i;

    if (!v)
        return 0;
    if (!json_is_number(v) || fabs(x = json_number_value(v)) > 9e15)
        return schema_refuse(s, p, key, "a number up to 9e15 is possible");
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

/* Few enough to be enumerated. */
static int multiples_between(struct schema *s, int64_t of, const struct bounds *b,
                             const struct schema_place *p)
{
    int64_t first = b->min / of * of;
    int out = -1;

    if (!b->has_min || !b->has_max || (b->max - b->min) / of > MULTIPLE_MAX)
        return schema_refuse(s, p, "multipleOf",
                             "together with bounds these must be two, and not too far apart");
    for (int64_t v = first < b->min ? first + of : first; v <= b->max; v += of) {
        char number_text[24];

        snprintf(number_text, sizeof number_text, "%lld", (long long)v);
        out = alt(s, out, text(s, number_text));
    }
    return out < 0 ? schema_refuse(s, p, "multipleOf", "none lies between its bounds") : out;
}

int schema_integer(struct schema *s, const json_t *o, const struct schema_place *p)
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
            return schema_refuse(s, p, "multipleOf", "a whole number from 1 to 10000 is possible");
        if (b.has_min || b.has_max)
            return multiples_between(s, json_integer_value(of), &b, p);
        return multiples(s, (int)json_integer_value(of));
    }
    if (b.has_min && b.has_max && b.min > b.max)
        return schema_refuse(s, p, NULL, "no integer lies between its minimum and maximum");
    return integers(s, &b);
}

/* One side of a range; the stricter of an inclusive and an exclusive bound. */
static int side(struct schema *s, const json_t *o, const char *key, bool upper, bool open,
                struct decimal_bound *b, const struct schema_place *p)
{
    const json_t *v = json_object_get(o, key);
    double x;

    if (!v)
        return 0;
    if (!json_is_number(v) || fabs(x = json_number_value(v)) > 9e15)
        return schema_refuse(s, p, key, "a number up to 9e15 is possible");
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
static int parts(struct schema *s, const json_t *of, const struct schema_place *p)
{
    double v = json_number_value(of);
    int n = tenths(v), whole, part;

    if (json_is_number(of) && v == floor(v) && v >= 1 && v <= MULTIPLE_MAX) {
        whole = multiples(s, (int)v);
        part = build_repeat(&s->build, text(s, "0"), 1, -1);
    } else if (n) {
        whole = seq(s, build_repeat(&s->build, text(s, "-"), 0, 1),
                    wholes_build(&s->build, 0, 0, true));
        part = digits(s, 1, n);
    } else {
        return schema_refuse(
            s, p, "multipleOf",
            "for numbers a whole one up to 10000, or 0.1, 0.01 and so on, is possible");
    }
    return seq(s, whole, build_repeat(&s->build, seq(s, text(s, "."), part), 0, 1));
}

int schema_number(struct schema *s, const json_t *o, const struct schema_place *p)
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
        return schema_refuse(s, p, "multipleOf", "for numbers not together with bounds");
    if (of)
        return parts(s, of, p);
    if (!least.given && !most.given)
        return schema_any_number(s);
    out = decimals_build(&s->build, &least, &most, &why);
    return out < 0 && why ? schema_refuse(s, p, NULL, why) : out;
}
