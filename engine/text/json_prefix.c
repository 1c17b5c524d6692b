/* See json_prefix.h. */
#include "engine/text/json_prefix.h"

#include <string.h>

enum state {
    VALUE,        /* a value must come */
    FIRST_OR_END, /* after [ */
    KEY_OR_END,   /* after { */
    KEY,          /* after a comma in an object */
    IN_KEY,       /* strings, and what follows a backslash and a \u in them */
    IN_KEY_ESCAPE,
    IN_KEY_HEX,
    COLON,
    IN_STRING,
    IN_STRING_ESCAPE,
    IN_STRING_HEX,
    IN_WORD,
    SIGN, /* numbers: after - */
    ZERO,
    INTEGER,
    POINT,
    FRACTION,
    EXPONENT, /* after e */
    EXPONENT_SIGN,
    EXPONENT_DIGITS,
    AFTER, /* a value is complete */
    OVER
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

static bool in_object(const struct json_prefix *p)
{
    int d = p->depth - 1;

    return p->objects[d / 8] >> d % 8 & 1;
}

static bool enter(struct json_prefix *p, bool object)
{
    int d = p->depth;

    if (d == JSON_PREFIX_DEPTH)
        return false;
    p->objects[d / 8] = (unsigned char)((p->objects[d / 8] & ~(1 << d % 8)) | object << d % 8);
    p->depth++;
    p->state = object ? KEY_OR_END : FIRST_OR_END;
    return true;
}

static bool leave(struct json_prefix *p, char c)
{
    if (c != (in_object(p) ? '}' : ']'))
        return false;
    p->depth--;
    p->state = p->depth ? AFTER : OVER;
    return true;
}

static bool begin_value(struct json_prefix *p, char c)
{
    static const char *const words[] = {"true", "false", "null"};

    if (c == '{' || c == '[')
        return enter(p, c == '{');
    for (int i = 0; i < 3; i++)
        if (c == words[i][0]) {
            p->word = words[i] + 1;
            p->state = IN_WORD;
            return true;
        }
    p->state = c == '"' ? IN_STRING : c == '-' ? SIGN : c == '0' ? ZERO : INTEGER;
    return c == '"' || c == '-' || is_digit(c);
}

/* What may follow a value within an object or a list. */
static bool after(struct json_prefix *p, char c)
{
    if (is_blank(c))
        return true;
    if (c != ',')
        return leave(p, c);
    p->state = in_object(p) ? KEY : VALUE;
    return true;
}

/* The state after a string of which `in` is the state. */
static unsigned char after_string(const struct json_prefix *p, int in)
{
    return in == IN_KEY ? COLON : p->depth ? AFTER : OVER;
}

static bool in_string(struct json_prefix *p, char c, int in)
{
    if (c == '"')
        p->state = after_string(p, in);
    else if (c == '\\')
        p->state = (unsigned char)(in + 1);
    return (unsigned char)c >= ' ';
}

static bool in_escape(struct json_prefix *p, char c, int in)
{
    p->digits = 0;
    p->state = (unsigned char)(c == 'u' ? in + 2 : in);
    return c && strchr("\"\\/bfnrtu", c);
}

static bool in_hex(struct json_prefix *p, char c, int in)
{
    if (++p->digits == 4)
        p->state = (unsigned char)in;
    return is_hex(c);
}

/* A number goes on in `next` with a digit, or ends; alone at depth 0 it never ends. */
static bool number(struct json_prefix *p, char c)
{
    if (is_digit(c) && p->state != ZERO)
        return true;
    if (c == '.' && (p->state == ZERO || p->state == INTEGER))
        p->state = POINT;
    else if ((c | 32) == 'e' && p->state != EXPONENT_DIGITS)
        p->state = EXPONENT;
    else {
        p->state = AFTER;
        return p->depth ? after(p, c) : is_blank(c);
    }
    return true;
}

static bool digit_must(struct json_prefix *p, char c, enum state next)
{
    p->state = (unsigned char)next;
    return is_digit(c);
}

static bool word(struct json_prefix *p, char c)
{
    if (c != *p->word)
        return false;
    if (!*++p->word)
        p->state = p->depth ? AFTER : OVER;
    return true;
}

static bool key(struct json_prefix *p, char c)
{
    if (is_blank(c))
        return true;
    if (c == '}' && p->state == KEY_OR_END)
        return leave(p, c);
    p->state = IN_KEY;
    return c == '"';
}

bool json_prefix_push(struct json_prefix *p, char c)
{
    switch ((enum state)p->state) {
    case VALUE: return is_blank(c) || begin_value(p, c);
    case FIRST_OR_END: return is_blank(c) || (c == ']' ? leave(p, c) : begin_value(p, c));
    case KEY_OR_END:
    case KEY: return key(p, c);
    case IN_KEY: return in_string(p, c, IN_KEY);
    case IN_KEY_ESCAPE: return in_escape(p, c, IN_KEY);
    case IN_KEY_HEX: return in_hex(p, c, IN_KEY);
    case COLON:
        if (c == ':')
            p->state = VALUE;
        return c == ':' || is_blank(c);
    case IN_STRING: return in_string(p, c, IN_STRING);
    case IN_STRING_ESCAPE: return in_escape(p, c, IN_STRING);
    case IN_STRING_HEX: return in_hex(p, c, IN_STRING);
    case IN_WORD: return word(p, c);
    case SIGN: return digit_must(p, c, c == '0' ? ZERO : INTEGER);
    case ZERO:
    case INTEGER:
    case FRACTION:
    case EXPONENT_DIGITS: return number(p, c);
    case POINT: return digit_must(p, c, FRACTION);
    case EXPONENT:
        p->state = is_digit(c) ? EXPONENT_DIGITS : EXPONENT_SIGN;
        return is_digit(c) || c == '+' || c == '-';
    case EXPONENT_SIGN: return digit_must(p, c, EXPONENT_DIGITS);
    case AFTER: return p->depth ? after(p, c) : is_blank(c);
    case OVER: return is_blank(c);
    }
    return false;
}

bool json_prefix_over(const struct json_prefix *p)
{
    return p->state == OVER;
}
