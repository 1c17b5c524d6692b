/* Values, scopes and evaluation. One thread a rendering; everything made lies in its arena and goes with it. */
#include "engine/model/jinja_data.h"

#include "engine/base/mem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- arena ---- */

#define CHUNK ((size_t)64 << 10)

struct chunk {
    struct chunk *next;
    size_t used, size;
};

void jinja_fail(struct arena *a, int code, const char *format, ...)
{
    char text[300];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error_set(a->e, code, "chat template, line %d: %s", a->line, text);
    longjmp(*a->jump, 1);
}

void *jinja_alloc(struct arena *a, size_t count, size_t size)
{
    size_t bytes, head = (sizeof(struct chunk) + 15) & ~(size_t)15;
    struct chunk *c = a->chunks;
    void *p;

    if (count > a->limit || (size && count > a->limit / size) || a->used + count * size > a->limit)
        jinja_fail(a, ERR_INPUT, "more than %zu MiB of memory wanted", a->limit >> 20);
    bytes = (count * size + 15) & ~(size_t)15;
    if (!c || c->size - c->used < bytes) {
        size_t want = head + (bytes > CHUNK ? bytes : CHUNK);

        c = mem_alloc(want, 1);
        if (!c)
            jinja_fail(a, ERR_MEMORY, "out of memory");
        c->size = want;
        c->used = head;
        c->next = a->chunks;
        a->chunks = c;
    }
    p = (char *)c + c->used;
    c->used += bytes;
    a->used += bytes;
    return p;
}

void arena_release(struct arena *a)
{
    for (struct chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    a->chunks = NULL;
}

void jinja_charge(struct arena *a, size_t bytes)
{
    uint64_t cost = 1 + bytes / 32;

    if (a->steps < cost)
        jinja_fail(a, ERR_INPUT, "the template runs for too long");
    a->steps -= cost;
}

void jinja_enter(struct arena *a)
{
    if (++a->depth > JINJA_DEPTH)
        jinja_fail(a, a->parsing ? ERR_MODEL : ERR_INPUT, "nested more than %d deep", JINJA_DEPTH);
    jinja_charge(a, 0);
}

/* ---- strings ---- */

static void builder_grow(struct arena *a, struct builder *b, size_t extra, bool masked)
{
    size_t size = b->size ? b->size : 64;
    char *s;
    unsigned char *mask;

    jinja_charge(a, extra);
    if (b->len + extra > b->size) {
        while (size < b->len + extra)
            size *= 2;
        s = jinja_alloc(a, size, 1);
        if (b->len)
            memcpy(s, b->s, b->len);
        if (b->masked || masked) {
            mask = jinja_alloc(a, size, 1);
            if (b->masked)
                memcpy(mask, b->mask, b->len);
            b->mask = mask;
            b->masked = true;
        }
        b->s = s;
        b->size = size;
    } else if (masked && !b->masked) {
        b->mask = jinja_alloc(a, b->size, 1);
        b->masked = true;
    }
}

void builder_text(struct arena *a, struct builder *b, const char *text, size_t n, unsigned char mask)
{
    builder_grow(a, b, n, mask != 0);
    if (!n)
        return;
    memcpy(b->s + b->len, text, n);
    if (b->masked)
        memset(b->mask + b->len, mask, n);
    b->len += n;
}

void builder_put(struct arena *a, struct builder *b, struct str s)
{
    builder_grow(a, b, s.len, s.mask != NULL);
    if (!s.len)
        return;
    memcpy(b->s + b->len, s.s, s.len);
    if (s.mask)
        memcpy(b->mask + b->len, s.mask, s.len);
    else if (b->masked)
        memset(b->mask + b->len, 0, s.len);
    b->len += s.len;
}

struct str builder_str(const struct builder *b)
{
    return (struct str){b->s ? b->s : "", b->masked ? b->mask : NULL, b->len};
}

/* ---- values ---- */

struct value list_new(struct arena *a)
{
    return (struct value){.type = V_LIST, .list = jinja_alloc(a, 1, sizeof(struct list))};
}

void list_put(struct arena *a, struct list *l, struct value v)
{
    if (l->n == l->size) {
        size_t size = l->size ? l->size * 2 : 8;
        struct value *items = jinja_alloc(a, size, sizeof *items);

        if (l->n)
            memcpy(items, l->v, l->n * sizeof *items);
        l->v = items;
        l->size = size;
    }
    l->v[l->n++] = v;
}

struct value dict_new(struct arena *a)
{
    return (struct value){.type = V_DICT, .dict = jinja_alloc(a, 1, sizeof(struct dict))};
}

struct value *dict_find(struct arena *a, const struct dict *d, struct str key)
{
    jinja_charge(a, d->n * 8);
    for (size_t i = 0; i < d->n; i++)
        if (str_equal(d->p[i].key, key))
            return &d->p[i].value;
    return NULL;
}

void dict_put(struct arena *a, struct dict *d, struct str key, struct value v)
{
    dict_put_named(a, d, value_str(key), v);
}

void dict_put_named(struct arena *a, struct dict *d, struct value name, struct value v)
{
    struct str key = value_text(a, name);
    struct value *old = dict_find(a, d, key);

    if (old) {
        *old = v;
        return;
    }
    if (d->n == d->size) {
        size_t size = d->size ? d->size * 2 : 8;
        struct pair *p = jinja_alloc(a, size, sizeof *p);

        if (d->n)
            memcpy(p, d->p, d->n * sizeof *p);
        d->p = p;
        d->size = size;
    }
    d->p[d->n++] = (struct pair){key, name, v};
}

const char *value_kind(struct value v)
{
    static const char *const names[] = {"undefined", "none", "a boolean", "an integer", "a number", "a string", "a list", "a mapping", "a macro",
                                        "a function"};

    return names[v.type];
}

bool value_true(struct value v)
{
    switch (v.type) {
    case V_UNDEFINED: case V_NONE: return false;
    case V_BOOL: return v.b;
    case V_INT: return v.i != 0;
    case V_FLOAT: return v.d != 0.0;
    case V_STRING: return v.str.len > 0;
    case V_LIST: return v.list->n > 0;
    case V_DICT: return v.dict->n > 0;
    case V_MACRO: case V_FUNCTION: return true;
    }
    return false;
}

static bool number(struct value v, double *d)
{
    *d = v.type == V_INT ? (double)v.i : v.type == V_FLOAT ? v.d : v.type == V_BOOL ? (double)v.b : 0.0;
    return v.type == V_INT || v.type == V_FLOAT || v.type == V_BOOL;
}

bool value_equal(struct arena *a, struct value x, struct value y)
{
    double p, q;
    bool same = true;

    if (number(x, &p) && number(y, &q))
        return x.type == V_FLOAT || y.type == V_FLOAT ? p == q : (x.type == V_INT ? x.i : x.b) == (y.type == V_INT ? y.i : y.b);
    if (x.type != y.type)
        return false;
    jinja_enter(a);
    if (x.type == V_STRING) {
        jinja_charge(a, x.str.len < y.str.len ? x.str.len : y.str.len);
        same = str_equal(x.str, y.str);
    } else if (x.type == V_LIST) {
        same = x.list->n == y.list->n;
        for (size_t i = 0; same && i < x.list->n; i++)
            same = value_equal(a, x.list->v[i], y.list->v[i]);
    } else if (x.type == V_DICT) {
        same = x.dict->n == y.dict->n;
        for (size_t i = 0; same && i < x.dict->n; i++) {
            struct value *other = dict_find(a, y.dict, x.dict->p[i].key);

            same = other && value_equal(a, x.dict->p[i].value, *other);
        }
    } else if (x.type == V_MACRO)
        same = x.macro == y.macro;
    jinja_leave(a);
    return same;
}

int value_compare(struct arena *a, struct value x, struct value y)
{
    double p, q;

    if (number(x, &p) && number(y, &q))
        return p < q ? -1 : p > q;
    if (x.type == V_STRING && y.type == V_STRING) {
        size_t n = x.str.len < y.str.len ? x.str.len : y.str.len;
        int c = n ? memcmp(x.str.s, y.str.s, n) : 0;

        jinja_charge(a, n);
        return c ? c : (x.str.len > y.str.len) - (x.str.len < y.str.len);
    }
    jinja_fail(a, ERR_INPUT, "%s and %s cannot be ordered", value_kind(x), value_kind(y));
}

bool value_contains(struct arena *a, struct value in, struct value x)
{
    if (in.type == V_STRING && x.type == V_STRING) {
        jinja_charge(a, in.str.len);
        return x.str.len == 0 || memmem(in.str.s, in.str.len, x.str.s, x.str.len) != NULL;
    }
    if (in.type == V_DICT)
        return x.type == V_STRING && dict_find(a, in.dict, x.str) != NULL;
    if (in.type == V_LIST) {
        for (size_t i = 0; i < in.list->n; i++) {
            jinja_charge(a, 0);
            if (value_equal(a, in.list->v[i], x))
                return true;
        }
        return false;
    }
    if (in.type == V_UNDEFINED)
        return false;
    jinja_fail(a, ERR_INPUT, "'in' asks for %s in %s", value_kind(x), value_kind(in));
}

/* Python's shortest form that reads back the same. */
static struct str number_text(struct arena *a, double d)
{
    char text[40];
    struct builder b = {0};

    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, d);
        if (strtod(text, NULL) == d)
            break;
    }
    builder_text(a, &b, text, strlen(text), 0);
    if (isfinite(d) && !strpbrk(text, ".e"))
        builder_text(a, &b, ".0", 2, 0);
    return builder_str(&b);
}

static void put_repr(struct arena *a, struct builder *b, struct value v)
{
    jinja_enter(a);
    if (v.type == V_STRING) {
        builder_text(a, b, "'", 1, 0);
        builder_put(a, b, v.str);
        builder_text(a, b, "'", 1, 0);
    } else if (v.type == V_LIST) {
        builder_text(a, b, "[", 1, 0);
        for (size_t i = 0; i < v.list->n; i++) {
            if (i)
                builder_text(a, b, ", ", 2, 0);
            put_repr(a, b, v.list->v[i]);
        }
        builder_text(a, b, "]", 1, 0);
    } else if (v.type == V_DICT) {
        builder_text(a, b, "{", 1, 0);
        for (size_t i = 0; i < v.dict->n; i++) {
            if (i)
                builder_text(a, b, ", ", 2, 0);
            put_repr(a, b, v.dict->p[i].name);
            builder_text(a, b, ": ", 2, 0);
            put_repr(a, b, v.dict->p[i].value);
        }
        builder_text(a, b, "}", 1, 0);
    } else
        builder_put(a, b, value_text(a, v));
    jinja_leave(a);
}

struct str value_text(struct arena *a, struct value v)
{
    struct builder b = {0};
    char text[32];

    switch (v.type) {
    case V_UNDEFINED: return str_of("");
    case V_NONE: return str_of("None");
    case V_BOOL: return str_of(v.b ? "True" : "False");
    case V_STRING: return v.str;
    case V_FLOAT: return number_text(a, v.d);
    case V_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.i);
        builder_text(a, &b, text, strlen(text), 0);
        return builder_str(&b);
    case V_LIST: case V_DICT:
        put_repr(a, &b, v);
        return builder_str(&b);
    case V_MACRO: case V_FUNCTION: return str_of("<macro>");
    }
    return str_of("");
}

struct list *value_items(struct arena *a, struct value v)
{
    struct value out;

    if (v.type == V_LIST)
        return v.list;
    out = list_new(a);
    if (v.type == V_DICT) {
        for (size_t i = 0; i < v.dict->n; i++)
            list_put(a, out.list, v.dict->p[i].name);
    } else if (v.type == V_STRING) {
        jinja_charge(a, v.str.len * 8);
        for (size_t i = 0, j; i < v.str.len; i = j) {
            for (j = i + 1; j < v.str.len && ((unsigned char)v.str.s[j] & 0xc0) == 0x80; j++)
                ;
            list_put(a, out.list, value_str(str_cut(v.str, i, j)));
        }
    } else if (v.type != V_UNDEFINED)
        jinja_fail(a, ERR_INPUT, "%s cannot be walked over", value_kind(v));
    return out.list;
}

/* ---- evaluation ---- */

struct binding {
    struct str name;
    struct value value;
    struct binding *next;
};

struct scope {
    struct scope *up;
    struct binding *first;
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct run {
    struct arena *a;
    struct scope *root;
};

static struct value evaluate(struct run *r, struct scope *s, const struct node *n);
static enum flow execute(struct run *r, struct scope *s, const struct node *n, struct builder *out);

static void bind_name(struct run *r, struct scope *s, struct str name, struct value v)
{
    struct binding *b;

    for (b = s->first; b; b = b->next) {
        jinja_charge(r->a, 0);
        if (str_equal(b->name, name)) {
            b->value = v;
            return;
        }
    }
    b = jinja_alloc(r->a, 1, sizeof *b);
    *b = (struct binding){name, v, s->first};
    s->first = b;
}

static struct value look_up(struct run *r, struct scope *s, struct str name)
{
    int f;

    for (; s; s = s->up)
        for (struct binding *b = s->first; b; b = b->next) {
            jinja_charge(r->a, 0);
            if (str_equal(b->name, name))
                return b->value;
        }
    f = builtin_function(name);
    return f < 0 ? (struct value){0} : (struct value){.type = V_FUNCTION, .i = f};
}

/* Code points, because Python counts those. */
static size_t str_length(struct arena *a, struct str s)
{
    size_t n = 0;

    jinja_charge(a, s.len);
    for (size_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.s[i] & 0xc0) != 0x80;
    return n;
}

static size_t str_offset(struct str s, size_t code_points)
{
    size_t i = 0;

    for (; i < s.len; i++)
        if (((unsigned char)s.s[i] & 0xc0) != 0x80 && code_points-- == 0)
            break;
    return i;
}

static struct value get(struct run *r, struct value o, struct value key)
{
    struct value *found;

    if (o.type == V_UNDEFINED)
        jinja_fail(r->a, ERR_INPUT, "a member of something undefined is asked for");
    if (o.type == V_DICT) {
        found = dict_find(r->a, o.dict, value_text(r->a, key));
        return found ? *found : (struct value){0};
    }
    if (o.type == V_LIST && key.type == V_INT) {
        int64_t n = (int64_t)o.list->n, i = key.i < 0 ? key.i + n : key.i;

        return i >= 0 && i < n ? o.list->v[i] : (struct value){0};
    }
    if (o.type == V_STRING && key.type == V_INT) {
        int64_t n = (int64_t)str_length(r->a, o.str), i = key.i < 0 ? key.i + n : key.i;
        size_t from;

        if (i < 0 || i >= n)
            return (struct value){0};
        from = str_offset(o.str, (size_t)i);
        return value_str(str_cut(o.str, from, from + str_offset(str_cut(o.str, from, o.str.len), 1)));
    }
    return (struct value){0};
}

static int64_t clamp_index(struct run *r, struct value v, int64_t n, int64_t fallback, bool backwards)
{
    int64_t i;

    if (v.type == V_UNDEFINED || v.type == V_NONE)
        return fallback;
    if (v.type != V_INT)
        jinja_fail(r->a, ERR_INPUT, "a slice's border is %s", value_kind(v));
    i = v.i < 0 ? (v.i < -n ? -1 : v.i + n) : v.i;
    if (backwards)
        return i < -1 ? -1 : i > n - 1 ? n - 1 : i;
    return i < 0 ? 0 : i > n ? n : i;
}

static struct value slice(struct run *r, struct value o, struct value from, struct value to, struct value by)
{
    int64_t step = by.type == V_INT ? by.i : 1, n, i, end;
    bool text = o.type == V_STRING;
    struct value out;

    if (!text && o.type != V_LIST)
        jinja_fail(r->a, ERR_INPUT, "%s cannot be sliced", value_kind(o));
    if (step == 0 || step < -1000000 || step > 1000000)
        jinja_fail(r->a, ERR_INPUT, "a slice's step is %lld", (long long)step);
    n = text ? (int64_t)str_length(r->a, o.str) : (int64_t)o.list->n;
    i = clamp_index(r, from, n, step < 0 ? n - 1 : 0, step < 0);
    end = clamp_index(r, to, n, step < 0 ? -1 : n, step < 0);
    if (text && step == 1) {
        size_t a = str_offset(o.str, (size_t)i), b = str_offset(o.str, (size_t)end);

        return value_str(a < b ? str_cut(o.str, a, b) : str_of(""));
    }
    if (text) {
        struct list *chars = value_items(r->a, o);
        struct builder b = {0};

        for (; step > 0 ? i < end : i > end; i += step)
            builder_put(r->a, &b, chars->v[i].str);
        return value_str(builder_str(&b));
    }
    out = list_new(r->a);
    for (; step > 0 ? i < end : i > end; i += step) {
        jinja_charge(r->a, 0);
        list_put(r->a, out.list, o.list->v[i]);
    }
    return out;
}

static struct value add(struct run *r, struct value x, struct value y)
{
    struct builder b = {0};
    struct value out;

    if (x.type == V_STRING && y.type == V_STRING) {
        builder_put(r->a, &b, x.str);
        builder_put(r->a, &b, y.str);
        return value_str(builder_str(&b));
    }
    if (x.type == V_LIST && y.type == V_LIST) {
        out = list_new(r->a);
        jinja_charge(r->a, 32 * (x.list->n + y.list->n));
        for (size_t i = 0; i < x.list->n; i++)
            list_put(r->a, out.list, x.list->v[i]);
        for (size_t i = 0; i < y.list->n; i++)
            list_put(r->a, out.list, y.list->v[i]);
        return out;
    }
    return (struct value){0};
}

static int64_t power(struct run *r, int64_t x, int64_t y)
{
    int64_t p = 1;

    while (y-- > 0) {
        jinja_charge(r->a, 0);
        if (__builtin_mul_overflow(p, x, &p))
            jinja_fail(r->a, ERR_INPUT, "a number is too large");
    }
    return p;
}

static struct value arithmetic(struct run *r, int op, struct value x, struct value y)
{
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};
    double p, q, d = 0.0;
    int64_t i = 0, m, n;
    bool over = false;

    if (op == OP_ADD) {
        struct value v = add(r, x, y);

        if (v.type != V_UNDEFINED)
            return v;
    }
    if (op == OP_MUL && x.type == V_STRING && y.type == V_INT) {
        struct builder b = {0};

        for (int64_t k = 0; k < y.i; k++)
            builder_put(r->a, &b, x.str);
        return value_str(builder_str(&b));
    }
    if (!number(x, &p) || !number(y, &q))
        jinja_fail(r->a, ERR_INPUT, "%s %s %s is not possible", value_kind(x), signs[op], value_kind(y));
    if ((op == OP_DIV || op == OP_FLOOR || op == OP_MOD) && q == 0.0)
        jinja_fail(r->a, ERR_INPUT, "division by zero");
    if (x.type == V_FLOAT || y.type == V_FLOAT || op == OP_DIV || (op == OP_POW && q < 0)) {
        switch (op) {
        case OP_ADD: d = p + q; break;
        case OP_SUB: d = p - q; break;
        case OP_MUL: d = p * q; break;
        case OP_DIV: d = p / q; break;
        case OP_FLOOR: d = floor(p / q); break;
        case OP_MOD: d = p - q * floor(p / q); break;
        case OP_POW: d = pow(p, q); break;
        }
        return (struct value){.type = V_FLOAT, .d = d};
    }
    m = x.type == V_INT ? x.i : x.b;
    n = y.type == V_INT ? y.i : y.b;
    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(m, n, &i); break;
    case OP_SUB: over = __builtin_sub_overflow(m, n, &i); break;
    case OP_MUL: over = __builtin_mul_overflow(m, n, &i); break;
    case OP_FLOOR: case OP_MOD:
        over = n == -1 && m == INT64_MIN;
        if (!over) {
            int64_t quotient = m / n, rest = m % n;

            if (rest && (rest < 0) != (n < 0)) {
                quotient--;
                rest += n;
            }
            i = op == OP_FLOOR ? quotient : rest;
        }
        break;
    case OP_POW: i = power(r, m, n); break;
    }
    if (over)
        jinja_fail(r->a, ERR_INPUT, "a number is too large");
    return value_int(i);
}

static struct value binary(struct run *r, int op, struct value x, struct value y)
{
    struct builder b = {0};

    switch (op) {
    case OP_CONCAT:
        builder_put(r->a, &b, value_text(r->a, x));
        builder_put(r->a, &b, value_text(r->a, y));
        return value_str(builder_str(&b));
    case OP_EQ: return value_bool(value_equal(r->a, x, y));
    case OP_NE: return value_bool(!value_equal(r->a, x, y));
    case OP_LT: return value_bool(value_compare(r->a, x, y) < 0);
    case OP_LE: return value_bool(value_compare(r->a, x, y) <= 0);
    case OP_GT: return value_bool(value_compare(r->a, x, y) > 0);
    case OP_GE: return value_bool(value_compare(r->a, x, y) >= 0);
    case OP_IN: return value_bool(value_contains(r->a, y, x));
    case OP_NOT_IN: return value_bool(!value_contains(r->a, y, x));
    default: return arithmetic(r, op, x, y);
    }
}

static void collect(struct run *r, struct scope *s, const struct node *n, struct arguments *args)
{
    *args = (struct arguments){0};
    for (; n; n = n->next) {
        struct value v = evaluate(r, s, n->a);

        if (n->name.len && args->n_named < 8) {
            args->named[args->n_named].name = n->name;
            args->named[args->n_named++].v = v;
        } else if (!n->name.len && args->n < 8)
            args->v[args->n++] = v;
        else
            jinja_fail(r->a, ERR_INPUT, "more than 8 arguments");
    }
}

static struct value call_macro(struct run *r, const struct node *macro, const struct arguments *args)
{
    struct scope inner = {.up = r->root};
    struct builder out = {0};
    int i = 0;

    for (const struct node *p = macro->a; p; p = p->next, i++) {
        struct value v = i < args->n ? args->v[i] : p->a ? evaluate(r, &inner, p->a) : (struct value){0};

        for (int k = 0; k < args->n_named; k++)
            if (str_equal(args->named[k].name, p->name))
                v = args->named[k].v;
        bind_name(r, &inner, p->name, v);
    }
    execute(r, &inner, macro->b, &out);
    return value_str(builder_str(&out));
}

static struct value call(struct run *r, struct scope *s, const struct node *n)
{
    struct arguments args;
    struct value callee;

    if (n->a->kind == N_GET && n->a->b->kind == N_LITERAL && n->a->b->literal.type == V_STRING) {
        struct value self = evaluate(r, s, n->a->a);
        struct value *member = self.type == V_DICT ? dict_find(r->a, self.dict, n->a->b->literal.str) : NULL;

        collect(r, s, n->b, &args);
        r->a->line = n->line;
        if (!member)
            return method_call(r->a, self, n->a->b->literal.str, &args);
        callee = *member;
    } else {
        callee = evaluate(r, s, n->a);
        collect(r, s, n->b, &args);
    }
    r->a->line = n->line;
    if (callee.type == V_MACRO)
        return call_macro(r, callee.macro, &args);
    if (callee.type == V_FUNCTION)
        return function_call(r->a, (int)callee.i, &args);
    jinja_fail(r->a, ERR_INPUT, "%s cannot be called", value_kind(callee));
}

static struct value evaluate(struct run *r, struct scope *s, const struct node *n)
{
    struct value v = {0}, x;
    struct arguments args;

    jinja_enter(r->a);
    r->a->line = n->line;
    switch (n->kind) {
    case N_LITERAL:
        v = n->literal;
        break;
    case N_NAME:
        v = look_up(r, s, n->name);
        break;
    case N_LIST:
        v = list_new(r->a);
        for (const struct node *i = n->a; i; i = i->next)
            list_put(r->a, v.list, evaluate(r, s, i));
        break;
    case N_DICT:
        v = dict_new(r->a);
        for (const struct node *i = n->a; i; i = i->next->next)
            dict_put_named(r->a, v.dict, evaluate(r, s, i), evaluate(r, s, i->next));
        break;
    case N_GET:
        x = evaluate(r, s, n->a);
        v = get(r, x, evaluate(r, s, n->b));
        break;
    case N_SLICE: {
        struct value from = n->b ? evaluate(r, s, n->b) : value_none(), to = n->c ? evaluate(r, s, n->c) : value_none();

        x = evaluate(r, s, n->a);
        v = slice(r, x, from, to, n->d ? evaluate(r, s, n->d) : value_none());
        break;
    }
    case N_CALL:
        v = call(r, s, n);
        break;
    case N_FILTER:
        x = evaluate(r, s, n->a);
        collect(r, s, n->b, &args);
        r->a->line = n->line;
        if (n->op < 0)
            jinja_fail(r->a, ERR_INPUT, "the filter '%.*s' is not supported", (int)n->name.len, n->name.s);
        v = filter_call(r->a, n->op, x, &args);
        break;
    case N_TEST:
        x = evaluate(r, s, n->a);
        collect(r, s, n->b, &args);
        r->a->line = n->line;
        if (n->op < 0)
            jinja_fail(r->a, ERR_INPUT, "the test '%.*s' is not supported", (int)n->name.len, n->name.s);
        v = value_bool(test_call(r->a, n->op, x, &args));
        break;
    case N_NOT:
        v = value_bool(!value_true(evaluate(r, s, n->a)));
        break;
    case N_NEGATE:
        v = arithmetic(r, OP_SUB, value_int(0), evaluate(r, s, n->a));
        break;
    case N_BINARY:
        x = evaluate(r, s, n->a);
        v = evaluate(r, s, n->b);
        r->a->line = n->line;
        v = binary(r, n->op, x, v);
        break;
    case N_AND: case N_OR:
        v = evaluate(r, s, n->a);
        if (value_true(v) == (n->kind == N_AND))
            v = evaluate(r, s, n->b);
        break;
    case N_CONDITION:
        if (value_true(evaluate(r, s, n->a)))
            v = evaluate(r, s, n->b);
        else if (n->c)
            v = evaluate(r, s, n->c);
        break;
    default:
        break;
    }
    jinja_leave(r->a);
    return v;
}

static void assign(struct run *r, struct scope *s, const struct node *targets, struct value v)
{
    const struct node *t = targets;
    struct list *items;
    size_t i = 0;

    if (t->kind == N_GET) {
        struct value o = look_up(r, s, t->name);

        if (o.type != V_DICT || !o.dict->space)
            jinja_fail(r->a, ERR_INPUT, "'%.*s' is no namespace", (int)t->name.len, t->name.s);
        dict_put(r->a, o.dict, t->b->literal.str, v);
        return;
    }
    if (!t->next) {
        bind_name(r, s, t->name, v);
        return;
    }
    items = value_items(r->a, v);
    for (; t && i < items->n; t = t->next)
        bind_name(r, s, t->name, items->v[i++]);
    if (t || i < items->n)
        jinja_fail(r->a, ERR_INPUT, "%zu values for another number of names", items->n);
}

static struct value loop_value(struct run *r, const struct list *l, size_t i)
{
    struct value v = dict_new(r->a);
    struct dict *d = v.dict;

    dict_put(r->a, d, str_of("index"), value_int((int64_t)i + 1));
    dict_put(r->a, d, str_of("index0"), value_int((int64_t)i));
    dict_put(r->a, d, str_of("first"), value_bool(i == 0));
    dict_put(r->a, d, str_of("last"), value_bool(i + 1 == l->n));
    dict_put(r->a, d, str_of("length"), value_int((int64_t)l->n));
    dict_put(r->a, d, str_of("revindex"), value_int((int64_t)(l->n - i)));
    dict_put(r->a, d, str_of("revindex0"), value_int((int64_t)(l->n - i) - 1));
    dict_put(r->a, d, str_of("previtem"), i ? l->v[i - 1] : (struct value){0});
    dict_put(r->a, d, str_of("nextitem"), i + 1 < l->n ? l->v[i + 1] : (struct value){0});
    return v;
}

static void execute_for(struct run *r, struct scope *s, const struct node *n, struct builder *out)
{
    struct list *all = value_items(r->a, evaluate(r, s, n->b)), *items = all;

    if (n->d) {
        items = list_new(r->a).list;
        for (size_t i = 0; i < all->n; i++) {
            struct scope probe = {.up = s};

            assign(r, &probe, n->a, all->v[i]);
            if (value_true(evaluate(r, &probe, n->d)))
                list_put(r->a, items, all->v[i]);
        }
    }
    if (items->n == 0 && n->e) {
        execute(r, s, n->e, out);
        return;
    }
    for (size_t i = 0; i < items->n; i++) {
        struct scope inner = {.up = s};

        jinja_charge(r->a, 0);
        bind_name(r, &inner, str_of("loop"), loop_value(r, items, i));
        assign(r, &inner, n->a, items->v[i]);
        if (execute(r, &inner, n->c, out) == FLOW_BREAK)
            break;
    }
}

static enum flow execute(struct run *r, struct scope *s, const struct node *n, struct builder *out)
{
    enum flow flow = FLOW_ON;

    jinja_enter(r->a);
    for (; n && flow == FLOW_ON; n = n->next) {
        struct builder block = {0};

        jinja_charge(r->a, 0);
        r->a->line = n->line;
        switch (n->kind) {
        case N_TEXT:
            builder_put(r->a, out, n->literal.str);
            break;
        case N_PRINT:
            builder_put(r->a, out, value_text(r->a, evaluate(r, s, n->a)));
            break;
        case N_IF:
            flow = execute(r, s, value_true(evaluate(r, s, n->a)) ? n->b : n->c, out);
            break;
        case N_FOR:
            execute_for(r, s, n, out);
            break;
        case N_SET:
            assign(r, s, n->a, evaluate(r, s, n->b));
            break;
        case N_SET_BLOCK:
            execute(r, s, n->b, &block);
            assign(r, s, n->a, value_str(builder_str(&block)));
            break;
        case N_MACRO:
            bind_name(r, s, n->name, (struct value){.type = V_MACRO, .macro = n});
            break;
        case N_GROUP:
            flow = execute(r, s, n->a, out);
            break;
        case N_BREAK:
            flow = FLOW_BREAK;
            break;
        case N_CONTINUE:
            flow = FLOW_CONTINUE;
            break;
        default:
            break;
        }
    }
    jinja_leave(r->a);
    return flow;
}

static struct value message_value(struct arena *a, const struct message *m, size_t i)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    struct value v = dict_new(a);
    size_t len = strlen(m->text);
    unsigned char *mask = jinja_alloc(a, len + 1, 1);

    memset(mask, 1 + (int)(i % 255), len);
    dict_put(a, v.dict, str_of("role"), value_str(str_of(roles[m->role])));
    dict_put(a, v.dict, str_of("content"), value_str((struct str){m->text, mask, len}));
    return v;
}

int jinja_render(const struct jinja *j, const struct message *m, size_t n, bool add_generation_prompt,
                 const struct jinja_variable *variables, size_t n_variables, struct strbuf *text, struct strbuf *mask, struct error *e)
{
    jmp_buf jump;
    size_t total = 0;
    struct arena a = {.line = 1, .jump = &jump, .e = e};
    struct scope root = {0};
    struct run r = {&a, &root};
    struct builder out = {0};
    struct value messages;

    for (size_t i = 0; i < n; i++)
        total += strlen(m[i].text);
    a.limit = ((size_t)32 << 20) + 32 * total + 4096 * n;
    a.steps = 4000000 + 2000 * (uint64_t)n + 2 * (uint64_t)total;
    if (setjmp(jump)) {
        arena_release(&a);
        return e ? e->code : ERR_INPUT;
    }
    messages = list_new(&a);
    for (size_t i = 0; i < n; i++)
        list_put(&a, messages.list, message_value(&a, &m[i], i));
    bind_name(&r, &root, str_of("messages"), messages);
    bind_name(&r, &root, str_of("add_generation_prompt"), value_bool(add_generation_prompt));
    bind_name(&r, &root, str_of("tools"), value_none());
    bind_name(&r, &root, str_of("documents"), value_none());
    for (size_t i = 0; i < n_variables; i++)
        if (variables[i].text)
            bind_name(&r, &root, str_of(variables[i].name), value_str((struct str){variables[i].text, NULL, variables[i].len}));
    execute(&r, &root, j->body, &out);
    strbuf_put(text, out.s ? out.s : "", out.len);
    if (mask && out.masked)
        strbuf_put(mask, (const char *)out.mask, out.len);
    else if (mask && strbuf_reserve(mask, out.len)) {
        memset(mask->data + mask->len, 0, out.len);
        mask->len += out.len;
    }
    arena_release(&a);
    if (text->failed || (mask && mask->failed))
        return error_set(e, ERR_MEMORY, "out of memory for the rendered conversation");
    return 0;
}
