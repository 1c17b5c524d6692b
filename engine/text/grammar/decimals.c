/* See decimals.h. A number is compared with a bound digit by digit: its fraction may be longer or
 * shorter than the bound's. */
#include "engine/text/grammar/decimals.h"
#include "engine/text/grammar/wholes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS 400 /* most digits of a double without exponent */

/* A bound without its sign. */
struct edge {
    bool given, open;
    uint64_t whole;
    char part[DIGITS]; /* digits of the fraction, without trailing zeros */
};

static int seq(struct grammar_build *b, int x, int y)
{
    return build_seq(b, x, y);
}

static int digit(struct grammar_build *b, int from, int to)
{
    return build_class(b, &(struct code_range){(uint32_t)('0' + from), (uint32_t)('0' + to)}, 1);
}

static int any_digits(struct grammar_build *b)
{
    return build_repeat(b, digit(b, 0, 9), 0, -1);
}

/* ---- fraction; missing digits are zeros ---- */

static int next_digit(struct grammar_build *b, const struct edge *lo, const char *low,
                      const struct edge *hi, const char *high, int out);

/* Both edges may be NULL: no bound. Gives -1 where nothing fits; an empty text may fit too. */
static int part_between(struct grammar_build *b, const struct edge *lo, const char *low,
                        const struct edge *hi, const char *high)
{
    int out = -1;
    bool met_low = !lo || (!*low && !lo->open), met_high = !hi || *high || !hi->open;

    if (!lo && !hi)
        return any_digits(b);
    if (met_low && met_high) /* it may end here, with zeros following */
        out = build_empty(b);
    if (lo && !*low && !lo->open && !hi)
        return any_digits(b);
    if (lo && !*low && lo->open && !hi) /* zeros, then something */
        return seq(b, build_repeat(b, digit(b, 0, 0), 0, -1),
                   seq(b, digit(b, 1, 9), any_digits(b)));
    if (hi && !*high && !lo)
        return hi->open ? -1 : build_repeat(b, digit(b, 0, 0), 0, -1);
    if (hi && !*high && !*low) /* both are met: only zeros */
        return lo->open || hi->open ? -1 : build_repeat(b, digit(b, 0, 0), 0, -1);
    return next_digit(b, lo, low, hi, high, out);
}

/* Or such a part that has a digit more. */
static int next_digit(struct grammar_build *b, const struct edge *lo, const char *low,
                      const struct edge *hi, const char *high, int out)
{
    int from = lo && *low ? *low - '0' : 0, to = hi ? (*high ? *high - '0' : 0) : 9;

    for (int d = from; d <= to; d++) {
        const struct edge *still_low = lo && d == from ? lo : NULL,
                          *still_high = hi && d == to ? hi : NULL;
        int rest = part_between(b, still_low, low + (still_low && *low), still_high,
                                high + (still_high && *high));

        if (rest >= 0)
            out = build_alt(b, out, seq(b, digit(b, d, d), rest));
    }
    return out;
}

static int with_part(struct grammar_build *b, int whole, const struct edge *lo,
                     const struct edge *hi)
{
    const char *low = lo ? lo->part : "", *high = hi ? hi->part : "";
    bool plain = (!lo || (!*low && !lo->open)) && (!hi || *high || !hi->open);
    int out = -1, part;

    if (plain) /* no point at all */
        out = build_empty(b);
    part = next_digit(b, lo, low, hi, high, -1);
    if (part >= 0)
        out = build_alt(b, out, seq(b, build_text(b, "."), part));
    return out < 0 ? -1 : seq(b, whole, out);
}

/* ---- integer part ---- */

static int add(struct grammar_build *b, int out, int more)
{
    return more < 0 ? out : build_alt(b, out, more);
}

static int magnitudes(struct grammar_build *b, const struct edge *lo, const struct edge *hi)
{
    int out;

    if (hi->given && hi->whole < lo->whole)
        return -1;
    if (hi->given && hi->whole == lo->whole)
        return with_part(b, wholes_build(b, lo->whole, lo->whole, false), lo, hi);
    out = with_part(b, wholes_build(b, lo->whole, lo->whole, false), lo, NULL);
    if (!hi->given)
        return add(b, out, with_part(b, wholes_build(b, lo->whole + 1, 0, true), NULL, NULL));
    if (hi->whole > lo->whole + 1)
        out = add(b, out,
                  with_part(b, wholes_build(b, lo->whole + 1, hi->whole - 1, false), NULL, NULL));
    return add(b, out, with_part(b, wholes_build(b, hi->whole, hi->whole, false), NULL, hi));
}

/* ---- bounds ---- */

/* In shortest form; false: it would need an exponent. */
static bool edge_of(const struct decimal_bound *from, struct edge *out)
{
    char text[DIGITS];
    const char *point;
    double v = fabs(from->value);
    size_t n;

    *out = (struct edge){.given = from->given, .open = from->open};
    for (int digits = 0; digits <= 20; digits++) {
        snprintf(text, sizeof text, "%.*f", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    if (strtod(text, NULL) != v)
        return false;
    out->whole = strtoull(text, NULL, 10);
    point = strchr(text, '.');
    snprintf(out->part, sizeof out->part, "%s", point ? point + 1 : "");
    for (n = strlen(out->part); n && out->part[n - 1] == '0';)
        out->part[--n] = 0;
    return true;
}

int decimals_build(struct grammar_build *b, const struct decimal_bound *least,
                   const struct decimal_bound *most, const char **why)
{
    static const struct edge zero = {.given = true};
    struct edge lo, hi;
    int out = -1, below;

    *why = NULL;
    if (!edge_of(least, &lo) || !edge_of(most, &hi)) {
        *why = "a bound has more digits than can be compared";
        return -1;
    }
    if (!most->given || most->value >= 0.0)
        out = magnitudes(b, least->given && least->value >= 0.0 ? &lo : &zero, &hi);
    if (!least->given || least->value < 0.0) {
        below = magnitudes(b, most->given && most->value < 0.0 ? &hi : &zero, &lo);
        if (most->given && most->open && most->value == 0.0) { /* -0 is 0 */
            struct edge above = {.given = true, .open = true};

            below = magnitudes(b, &above, &lo);
        }
        if (below >= 0)
            out = build_alt(b, out, seq(b, build_text(b, "-"), below));
    }
    if (out < 0)
        *why = "no number lies between its bounds";
    return out;
}
