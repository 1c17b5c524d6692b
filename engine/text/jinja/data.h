/* Internals of the Jinja subset: syntax tree (parse.c, expression.c), arena (arena.c), values
 * (value.c) and their operators (operators.c), evaluation (eval.c), filters, tests and functions
 * (builtin.c), methods (method.c), text functions (text.c). Both the tree and a rendering are in an
 * arena that is freed as a whole, so failure may simply longjmp: nothing needs cleanup, and checks
 * after every step would obscure the interpreter. */
#ifndef ENGINE_TEXT_JINJA_DATA_H
#define ENGINE_TEXT_JINJA_DATA_H

#include "engine/text/jinja/jinja.h"

#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#define JINJA_DEPTH 200 /* nesting of expressions, statements and macro calls */

struct chunk;

struct arena {
    struct chunk *chunks;
    size_t used, limit;
    uint64_t steps; /* remaining */
    int line;       /* current one, for errors */
    int depth;
    bool parsing;
    unsigned charges; /* so far: `stop` is polled now and then */
    const struct stop *stop;
    time_t now; /* 0: ask the clock */
    jmp_buf *jump;
    struct error *e;
};

_Noreturn void jinja_fail(struct arena *a, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void *jinja_alloc(struct arena *a, size_t count, size_t size);
/* one step and one more for every 32 bytes */
void jinja_charge(struct arena *a, size_t bytes);
void jinja_enter(struct arena *a);
static inline void jinja_leave(struct arena *a)
{
    a->depth--;
}
void arena_release(struct arena *a);

struct str {
    const char *s;
    const unsigned char *mask; /* NULL: all frame */
    size_t len;
    bool safe; /* text appended to it is escaped for HTML: by the filters safe and escape */
};

enum value_type {
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STRING,
    V_LIST,
    V_DICT,
    V_MACRO,
    V_FUNCTION
};

struct list;
struct dict;
struct node;
struct scope;

/* a macro and its scope of definition */
struct closure {
    const struct node *macro;
    struct scope *scope;
};

struct value {
    enum value_type type;
    union {
        bool b;
        int64_t i; /* V_INT; V_FUNCTION: which */
        double d;
        struct str str;
        struct list *list;
        struct dict *dict;
        const struct closure *macro;
    };
};

struct list {
    struct value *v;
    size_t n, size;
    bool tuple; /* printed in parentheses, and no list is equal to it */
    bool group; /* of groupby: its members are `grouper` and `list`, too */
};

struct pair {
    struct str key;    /* as text: what is compared */
    struct value name; /* as written: {1: 'a'} has an integer */
    struct value value;
};

struct dict {
    struct pair *p;
    size_t n, size;
    bool space;        /* a namespace: its members can be set */
    struct loop *loop; /* a for loop's `loop` variable; NULL: not one */
    int64_t turn;      /* 1 + the loop's iteration */
    size_t message;    /* a message: 1 + its number; 0: none */
};

/* State shared by the iterations of one for loop. */
struct loop {
    const struct node *node;
    struct scope *scope; /* around it */
    int depth;           /* 1: not nested */
    struct value last;   /* argument of the last loop.changed */
    bool asked;          /* it was called */
};

enum node_kind {
    N_TEXT,
    N_PRINT,
    N_IF,
    N_FOR,
    N_SET,
    N_SET_BLOCK,
    N_MACRO,
    N_CALL_BLOCK,
    N_FILTER_BLOCK,
    N_WITH,
    N_BREAK,
    N_CONTINUE,
    N_GROUP,
    N_LITERAL,
    N_NAME,
    N_LIST,
    N_DICT,
    N_GET,
    N_SLICE,
    N_CALL,
    N_FILTER,
    N_TEST,
    N_NOT,
    N_NEGATE,
    N_BINARY,
    N_AND,
    N_OR,
    N_CONDITION,
    N_ARGUMENT,
};

enum binary {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOOR,
    OP_MOD,
    OP_POW,
    OP_CONCAT,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
};

/* a, b, c by kind: IF condition, then, else; FOR targets, iterable, body, d: filter, e: else, op: 1
 * for recursive; SET target, value; SET_BLOCK target, body, filters; MACRO arguments, body, op:
 * enum macro_uses; CALL_BLOCK call, macro; FILTER_BLOCK filters, body; WITH targets, values, body;
 * GET object, index, op: 1 for a dot; SLICE object, from, to, d: step; CALL callee, arguments; LIST
 * items (as a target: targets), op: 1 for a tuple; FILTER and TEST operand, arguments; ARGUMENT
 * value (name: keyword), op: enum argument_kind. Filters of a block stand around the name
 * BLOCK_NAME. */
#define BLOCK_NAME "{"

enum macro_uses { USES_VARARGS = 1, USES_KWARGS = 2, USES_CALLER = 4 };

enum argument_kind { ARGUMENT_ONE, ARGUMENT_LIST /* *x */, ARGUMENT_DICT /* **x */ };

struct node {
    enum node_kind kind;
    int line, op;
    struct str name;
    struct value literal;
    struct node *a, *b, *c, *d, *e, *next;
};

struct jinja {
    struct arena arena;
    struct node *body;
};

/* Text under construction, with its mask. */
struct builder {
    char *s;
    unsigned char *mask;
    size_t len, size;
    bool masked;
};

void builder_put(struct arena *a, struct builder *b, struct str s);
void builder_text(struct arena *a, struct builder *b, const char *text, size_t n,
                  unsigned char mask);
struct str builder_str(const struct builder *b);

static inline struct str str_of(const char *s)
{
    return (struct str){s, NULL, strlen(s), false};
}
static inline struct str str_cut(struct str s, size_t from, size_t to)
{
    return (struct str){s.s + from, s.mask ? s.mask + from : NULL, to - from, s.safe};
}
static inline bool str_is(struct str s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.s, text, s.len) == 0;
}
bool str_equal(struct arena *a, struct str x, struct str y); /* charges what it compares */
/* code points, because Python counts those */
size_t str_length(struct arena *a, struct str s);

static inline struct value value_none(void)
{
    return (struct value){.type = V_NONE};
}
static inline struct value value_bool(bool b)
{
    return (struct value){.type = V_BOOL, .b = b};
}
static inline struct value value_int(int64_t i)
{
    return (struct value){.type = V_INT, .i = i};
}
static inline struct value value_str(struct str s)
{
    return (struct value){.type = V_STRING, .str = s};
}

struct value list_new(struct arena *a);
void list_put(struct arena *a, struct list *l, struct value v);
struct value dict_new(struct arena *a);
void dict_put(struct arena *a, struct dict *d, struct str key, struct value v);
void dict_put_named(struct arena *a, struct dict *d, struct value name, struct value v);
/* NULL: not found */
struct value *dict_find(struct arena *a, const struct dict *d, struct str key);

bool value_true(struct value v);
bool value_equal(struct arena *a, struct value x, struct value y);
/* fails where Python would */
int value_compare(struct arena *a, struct value x, struct value y);
bool value_contains(struct arena *a, struct value in, struct value x);
/* as printed by {{ }} */
struct str value_text(struct arena *a, struct value v);
/* the same, escaped for HTML unless it is safe; the result is safe */
struct value value_escaped(struct arena *a, struct value v);
/* json.dumps; between: separators after a value, after a key. indent < 0: one line. */
struct json_style {
    struct str between, colon;
    int indent;
    bool ascii;
};
void value_json(struct arena *a, struct builder *b, struct value v, const struct json_style *style,
                int level);
const char *value_kind(struct value v);
/* Copied; mask: of its text, keys too; 0: frame. */
struct value value_from_json(struct arena *a, const json_t *json, unsigned char mask);
/* Items of a for loop: lists, keys of a dict, characters of a string. */
struct list *value_items(struct arena *a, struct value v);
/* a dict's items() */
struct value value_pairs(struct arena *a, struct value v);
int64_t value_length(struct arena *a, struct value v);
/* false: not a number */
bool value_number(struct value v, double *d);

/* o[key] and o.key; o[from:to:by], undefined ones at their defaults; x op y. They fail where Python
 * would. */
struct value value_get(struct arena *a, struct value o, struct value key);
struct value value_slice(struct arena *a, struct value o, struct value from, struct value to,
                         struct value by);
struct value value_binary(struct arena *a, int op, struct value x, struct value y);

#define JINJA_ARGUMENTS 16 /* of either kind */

struct arguments {
    struct value v[JINJA_ARGUMENTS];
    int n;
    struct {
        struct str name;
        struct value v;
    } named[JINJA_ARGUMENTS];
    int n_named;
};

/* by position or name */
struct value arguments_get(const struct arguments *args, int i, const char *name,
                           struct value fallback);
/* These fail for other types; undefined and none return the fallback. */
struct str value_need_string(struct arena *a, struct value v, const char *what);
int64_t value_need_integer(struct arena *a, struct value v, int64_t fallback, const char *what);

/* text.c: as Python's methods of these names; strip: chars none for blanks; split: by none for runs
 * of blanks; most < 0: no limit. */
enum letter_case { CASE_UPPER, CASE_LOWER, CASE_CAPITAL, CASE_TITLE, CASE_WORDS /* |title */ };
struct str text_strip(struct arena *a, struct str s, struct value chars, bool left, bool right);
struct str text_change_case(struct arena *a, struct str s, enum letter_case how);
struct str text_replace(struct arena *a, struct str s, struct str from, struct str to,
                        int64_t most);
struct value text_split(struct arena *a, struct str s, struct value by, int64_t most,
                        bool from_right);
struct value text_lines(struct arena *a, struct str s);
bool text_all(struct arena *a, struct str s, bool (*is)(uint32_t code_point));
bool text_blank(uint32_t code_point);
bool text_letter(uint32_t code_point);
struct str text_join(struct arena *a, struct list *l, struct str between);
struct str text_indent(struct arena *a, struct str s, struct str by, bool first, bool blank);
struct str text_format(struct arena *a, struct str s, const struct arguments *args);
/* a width or precision at *at, which is advanced; -1: none */
int64_t format_number(struct arena *a, struct str s, size_t *at);
struct str text_escape(struct arena *a, struct str s); /* for HTML */
struct str text_truncate(struct arena *a, struct str s, const struct arguments *args);
int64_t text_words(struct arena *a, struct str s);
struct str text_center(struct arena *a, struct str s, int64_t width);

/* percent.c: as Python's s % v */
struct str text_percent(struct arena *a, struct str s, struct value v);

/* sequence.c: filters over what can be walked over. v's attribute: an index, or names and indices
 * with dots between them. */
struct value value_member(struct arena *a, struct value v, struct value name);
bool value_is_attribute(struct value v);
bool arguments_flag(const struct arguments *args, int i, const char *name);
struct value sequence_unique(struct arena *a, struct value v, const struct arguments *args);
struct value sequence_sort(struct arena *a, struct value v, const struct arguments *args);
struct value sequence_pairs(struct arena *a, struct value v, const struct arguments *args);
struct value sequence_groups(struct arena *a, struct value v, const struct arguments *args);
struct value sequence_batch(struct arena *a, struct value v, const struct arguments *args);
struct value sequence_slice(struct arena *a, struct value v, const struct arguments *args);
struct value sequence_extreme(struct arena *a, struct value v, const struct arguments *args,
                              bool most);
struct value sequence_sum(struct arena *a, struct value v, const struct arguments *args);

/* -1: unknown name (checked when parsing, so that a template that needs more is refused before it
 * runs) */
int builtin_filter(struct str name);
int builtin_test(struct str name);
int builtin_function(struct str name);
struct value filter_call(struct arena *a, int filter, struct value v, const struct arguments *args);
bool test_call(struct arena *a, int test, struct value v, const struct arguments *args);
struct value function_call(struct arena *a, int function, const struct arguments *args);
struct value method_call(struct arena *a, struct value self, struct str name,
                         const struct arguments *args);
/* whether it is a method of the Python type; o.name is that method then, whatever keys o has */
bool method_known(struct value self, struct str name);

#endif
