/* Scopes and evaluation: statements, calls, macros, and the rendering as a whole. One thread per
 * rendering; everything is allocated in its arena and freed with it. */
#include "engine/text/jinja/data.h"

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
    struct builder *out;       /* the rendering itself, as opposed to blocks and macros */
    size_t *begins;            /* see jinja_output; NULL: not needed */
    struct jinja_line *wanted; /* likewise */
};

static struct value evaluate(struct run *r, struct scope *s, const struct node *n);
static enum flow execute(struct run *r, struct scope *s, const struct node *n, struct builder *out);

static void bind_name(struct run *r, struct scope *s, struct str name, struct value v)
{
    struct binding *b;

    for (b = s->first; b; b = b->next) {
        jinja_charge(r->a, 0);
        if (str_equal(r->a, b->name, name)) {
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
            if (str_equal(r->a, b->name, name))
                return b->value;
        }
    f = builtin_function(name);
    return f < 0 ? (struct value){0} : (struct value){.type = V_FUNCTION, .i = f};
}

static struct scope *scope_new(struct run *r, struct scope *up)
{
    struct scope *s = jinja_alloc(r->a, 1, sizeof *s);

    s->up = up;
    return s;
}

static void put_argument(struct arena *a, struct arguments *args, struct value v)
{
    if (args->n == JINJA_ARGUMENTS)
        jinja_fail(a, ERR_INPUT, "more than %d arguments", JINJA_ARGUMENTS);
    args->v[args->n++] = v;
}

static void put_named(struct arena *a, struct arguments *args, struct str name, struct value v)
{
    if (args->n_named == JINJA_ARGUMENTS)
        jinja_fail(a, ERR_INPUT, "more than %d named arguments", JINJA_ARGUMENTS);
    args->named[args->n_named].name = name;
    args->named[args->n_named++].v = v;
}

static void collect(struct run *r, struct scope *s, const struct node *n, struct arguments *args)
{
    *args = (struct arguments){0};
    for (; n; n = n->next) {
        struct value v = evaluate(r, s, n->a);

        if (n->op == ARGUMENT_LIST) {
            struct list *l = value_items(r->a, v);

            for (size_t i = 0; i < l->n; i++)
                put_argument(r->a, args, l->v[i]);
        } else if (n->op == ARGUMENT_DICT) {
            if (v.type != V_DICT)
                jinja_fail(r->a, ERR_INPUT, "** needs a mapping, not %s", value_kind(v));
            for (size_t i = 0; i < v.dict->n; i++)
                put_named(r->a, args, v.dict->p[i].key, v.dict->p[i].value);
        } else if (n->name.len)
            put_named(r->a, args, n->name, v);
        else
            put_argument(r->a, args, v);
    }
}

/* Removes the argument of that name; false: none. */
static bool take_named(struct arena *a, struct arguments *args, struct str name, struct value *v)
{
    for (int k = 0; k < args->n_named; k++)
        if (str_equal(a, args->named[k].name, name)) {
            *v = args->named[k].v;
            args->named[k] = args->named[--args->n_named];
            return true;
        }
    return false;
}

/* Remaining arguments of the macro: varargs and kwargs, if it reads them. */
static void bind_rest(struct run *r, struct scope *s, const struct node *macro, int taken,
                      const struct arguments *args)
{
    struct value list = list_new(r->a), dict = dict_new(r->a);

    list.list->tuple = true;
    for (int i = taken; i < args->n; i++)
        list_put(r->a, list.list, args->v[i]);
    for (int i = 0; i < args->n_named; i++)
        dict_put(r->a, dict.dict, args->named[i].name, args->named[i].v);
    if ((list.list->n && !(macro->op & USES_VARARGS)) ||
        (dict.dict->n && !(macro->op & USES_KWARGS)))
        jinja_fail(r->a, ERR_INPUT, "macro '%.*s' is given arguments that it does not name",
                   (int)(macro->name.len < 40 ? macro->name.len : 40), macro->name.s);
    if (macro->op & USES_VARARGS)
        bind_name(r, s, str_of("varargs"), list);
    if (macro->op & USES_KWARGS)
        bind_name(r, s, str_of("kwargs"), dict);
}

static bool has_parameter(const struct node *macro, const char *name)
{
    for (const struct node *p = macro->a; p; p = p->next)
        if (str_is(p->name, name))
            return true;
    return false;
}

/* Removes the arguments it names from args. */
static struct value call_macro(struct run *r, const struct closure *closure, struct arguments *args)
{
    const struct node *macro = closure->macro;
    struct scope *inner = scope_new(r, closure->scope);
    struct builder out = {0};
    struct value v = {0};
    int i = 0;

    if (macro->op & USES_CALLER && !has_parameter(macro, "caller")) {
        take_named(r->a, args, str_of("caller"), &v);
        bind_name(r, inner, str_of("caller"), v);
    }
    for (const struct node *p = macro->a; p; p = p->next, i++) {
        if (i < args->n)
            v = args->v[i];
        else if (!take_named(r->a, args, p->name, &v))
            v = p->a ? evaluate(r, inner, p->a) : (struct value){0};
        bind_name(r, inner, p->name, v);
    }
    bind_rest(r, inner, macro, i, args);
    execute(r, inner, macro->b, &out);
    return value_str(builder_str(&out));
}

static enum flow execute_for(struct run *r, struct loop *loop, struct value over,
                             struct builder *out);

/* loop(x) of a recursive loop: the loop again, over x. */
static struct value call_loop(struct run *r, const struct loop *loop, const struct arguments *args)
{
    struct loop *again;
    struct builder out = {0};

    if (!loop->node->op || args->n != 1 || args->n_named)
        jinja_fail(r->a, ERR_INPUT, "loop can be called in a recursive loop, with one value");
    again = jinja_alloc(r->a, 1, sizeof *again);
    *again = (struct loop){.node = loop->node, .scope = loop->scope, .depth = loop->depth + 1};
    execute_for(r, again, args->v[0], &out);
    return value_str(builder_str(&out));
}

static struct value call(struct run *r, struct scope *s, const struct node *n)
{
    struct arguments args;
    struct value callee;

    if (n->a->kind == N_GET && n->a->b->kind == N_LITERAL && n->a->b->literal.type == V_STRING) {
        struct str name = n->a->b->literal.str;
        struct value self = evaluate(r, s, n->a->a);
        struct value *member = NULL;

        if (self.type == V_DICT && !(n->a->op && method_known(self, name)))
            member = dict_find(r->a, self.dict, name);
        collect(r, s, n->b, &args);
        r->a->line = n->line;
        if (!member)
            return method_call(r->a, self, name, &args);
        callee = *member;
    } else {
        callee = evaluate(r, s, n->a);
        collect(r, s, n->b, &args);
    }
    r->a->line = n->line;
    if (callee.type == V_MACRO)
        return call_macro(r, callee.macro, &args);
    if (callee.type == V_FUNCTION && callee.i >= 0)
        return function_call(r->a, (int)callee.i, &args);
    if (callee.type == V_DICT && callee.dict->loop)
        return call_loop(r, callee.dict->loop, &args);
    jinja_fail(r->a, ERR_INPUT, "%s cannot be called", value_kind(callee));
}

/* a filter or a test */
static struct value apply(struct run *r, struct scope *s, const struct node *n)
{
    bool filter = n->kind == N_FILTER;
    struct value x = evaluate(r, s, n->a);
    struct arguments args;

    collect(r, s, n->b, &args);
    r->a->line = n->line;
    if (n->op < 0)
        jinja_fail(r->a, ERR_INPUT, "the %s '%.*s' is not supported", filter ? "filter" : "test",
                   (int)n->name.len, n->name.s);
    return filter ? filter_call(r->a, n->op, x, &args)
                  : value_bool(test_call(r->a, n->op, x, &args));
}

static struct value evaluate(struct run *r, struct scope *s, const struct node *n)
{
    struct value v = {0}, x;

    jinja_enter(r->a);
    r->a->line = n->line;
    switch (n->kind) {
    case N_LITERAL: v = n->literal; break;
    case N_NAME: v = look_up(r, s, n->name); break;
    case N_LIST:
        v = list_new(r->a);
        v.list->tuple = n->op;
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
        if (n->op && n->b->literal.type == V_STRING && method_known(x, n->b->literal.str))
            v = (struct value){.type = V_FUNCTION, .i = -1};
        else
            v = value_get(r->a, x, evaluate(r, s, n->b));
        break;
    case N_SLICE: {
        struct value from = n->b ? evaluate(r, s, n->b) : value_none(),
                     to = n->c ? evaluate(r, s, n->c) : value_none();

        x = evaluate(r, s, n->a);
        v = value_slice(r->a, x, from, to, n->d ? evaluate(r, s, n->d) : value_none());
        break;
    }
    case N_CALL: v = call(r, s, n); break;
    case N_FILTER:
    case N_TEST: v = apply(r, s, n); break;
    case N_NOT: v = value_bool(!value_true(evaluate(r, s, n->a))); break;
    case N_NEGATE:
        v = evaluate(r, s, n->a);
        if (v.type == V_FLOAT)
            v.d = -v.d;
        else
            v = value_binary(r->a, OP_SUB, value_int(0), v);
        break;
    case N_BINARY:
        x = evaluate(r, s, n->a);
        v = evaluate(r, s, n->b);
        r->a->line = n->line;
        v = value_binary(r->a, n->op, x, v);
        break;
    case N_AND:
    case N_OR:
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
    default: break;
    }
    jinja_leave(r->a);
    return v;
}

/* One target: a name, a member of a namespace, or targets in brackets. */
static void assign_one(struct run *r, struct scope *s, const struct node *t, struct value v);

static void assign(struct run *r, struct scope *s, const struct node *targets, struct value v)
{
    const struct node *t = targets;
    struct list *items;
    size_t i = 0;

    if (!t->next) {
        assign_one(r, s, t, v);
        return;
    }
    items = value_items(r->a, v);
    for (; t && i < items->n; t = t->next)
        assign_one(r, s, t, items->v[i++]);
    if (t || i < items->n)
        jinja_fail(r->a, ERR_INPUT, "%zu values for another number of names", items->n);
}

static void assign_one(struct run *r, struct scope *s, const struct node *t, struct value v)
{
    struct value o;

    if (t->kind == N_NAME)
        bind_name(r, s, t->name, v);
    else if (t->kind == N_LIST)
        assign(r, s, t->a, v);
    else {
        o = look_up(r, s, t->name);
        if (o.type != V_DICT || !o.dict->space)
            jinja_fail(r->a, ERR_INPUT, "'%.*s' is no namespace", (int)t->name.len, t->name.s);
        dict_put(r->a, o.dict, t->b->literal.str, v);
    }
}

static struct value loop_value(struct run *r, struct loop *loop, const struct list *l, size_t i)
{
    struct value v = dict_new(r->a);
    struct dict *d = v.dict;

    d->loop = loop;
    d->turn = (int64_t)i + 1;
    dict_put(r->a, d, str_of("index"), value_int((int64_t)i + 1));
    dict_put(r->a, d, str_of("index0"), value_int((int64_t)i));
    dict_put(r->a, d, str_of("first"), value_bool(i == 0));
    dict_put(r->a, d, str_of("last"), value_bool(i + 1 == l->n));
    dict_put(r->a, d, str_of("length"), value_int((int64_t)l->n));
    dict_put(r->a, d, str_of("revindex"), value_int((int64_t)(l->n - i)));
    dict_put(r->a, d, str_of("revindex0"), value_int((int64_t)(l->n - i) - 1));
    dict_put(r->a, d, str_of("depth"), value_int(loop->depth));
    dict_put(r->a, d, str_of("depth0"), value_int(loop->depth - 1));
    dict_put(r->a, d, str_of("previtem"), i ? l->v[i - 1] : (struct value){0});
    dict_put(r->a, d, str_of("nextitem"), i + 1 < l->n ? l->v[i + 1] : (struct value){0});
    return v;
}

/* Mask value of message i's text. */
static unsigned char mask_of(size_t i)
{
    return (unsigned char)(1 + i % JINJA_MESSAGES);
}

/* A loop that wrote this message's own text counts; one that wrote anything, until there is a
 * better one. */
static void note_message(struct run *r, struct value item, size_t begin, const struct builder *out)
{
    size_t i = item.type == V_DICT ? item.dict->message : 0, n = out->len - begin;

    if (!r->begins || out != r->out || !i || !n)
        return;
    jinja_charge(r->a, n);
    if (r->begins[i - 1] == SIZE_MAX ||
        (out->masked && memchr(out->mask + begin, mask_of(i - 1), n)))
        r->begins[i - 1] = begin;
}

/* The items that pass the loop's `if`. */
static struct list *filtered(struct run *r, const struct loop *loop, struct list *all)
{
    struct list *items = list_new(r->a).list;

    for (size_t i = 0; i < all->n; i++) {
        struct scope *probe = scope_new(r, loop->scope);

        assign(r, probe, loop->node->a, all->v[i]);
        if (value_true(evaluate(r, probe, loop->node->d)))
            list_put(r->a, items, all->v[i]);
    }
    return items;
}

/* `else` is executed if no iteration completed, also because of break and continue: as in
 * jinja2. */
static enum flow execute_for(struct run *r, struct loop *loop, struct value over,
                             struct builder *out)
{
    const struct node *n = loop->node;
    struct list *items = value_items(r->a, over);
    enum flow flow = FLOW_ON;
    bool ended = false;

    if (n->d)
        items = filtered(r, loop, items);
    for (size_t i = 0; i < items->n && flow != FLOW_BREAK; i++) {
        struct scope *inner = scope_new(r, loop->scope);
        struct value item = items->v[i];
        size_t begin = out->len;

        jinja_charge(r->a, 0);
        bind_name(r, inner, str_of("loop"), loop_value(r, loop, items, i));
        assign(r, inner, n->a, item);
        flow = execute(r, inner, n->c, out);
        ended = ended || flow == FLOW_ON;
        note_message(r, item, begin, out);
    }
    return ended || !n->e ? FLOW_ON : execute(r, loop->scope, n->e, out);
}

static enum flow begin_for(struct run *r, struct scope *s, const struct node *n,
                           struct builder *out)
{
    struct loop *loop = jinja_alloc(r->a, 1, sizeof *loop);

    *loop = (struct loop){.node = n, .scope = s, .depth = 1};
    return execute_for(r, loop, evaluate(r, s, n->b), out);
}

static struct value closure_new(struct run *r, struct scope *s, const struct node *macro)
{
    struct closure *c = jinja_alloc(r->a, 1, sizeof *c);

    *c = (struct closure){macro, s};
    return (struct value){.type = V_MACRO, .macro = c};
}

/* The call, with the block as the macro `caller`. */
static void call_block(struct run *r, struct scope *s, const struct node *n, struct builder *out)
{
    struct scope *inner = scope_new(r, s);

    bind_name(r, inner, str_of(BLOCK_NAME), closure_new(r, s, n->b));
    builder_put(r->a, out, value_text(r->a, evaluate(r, inner, n->a)));
}

/* The output of a block, through its filters (NULL: none). */
static enum flow run_block(struct run *r, struct scope *s, const struct node *body,
                           const struct node *filters, struct value *v)
{
    struct scope *inner = scope_new(r, s);
    struct builder block = {0};
    enum flow flow = execute(r, inner, body, &block);

    *v = value_str(builder_str(&block));
    if (flow != FLOW_ON || !filters)
        return flow;
    bind_name(r, inner, str_of(BLOCK_NAME), *v);
    *v = evaluate(r, inner, filters);
    return flow;
}

static enum flow execute_with(struct run *r, struct scope *s, const struct node *n,
                              struct builder *out)
{
    struct scope *inner = scope_new(r, s);
    const struct node *v = n->b;

    for (const struct node *t = n->a; t; t = t->next, v = v->next)
        assign_one(r, inner, t, evaluate(r, s, v));
    return execute(r, inner, n->c, out);
}

/* Statement n has written from `begin` on. A text may have several lines. */
static void note_line(struct run *r, const struct node *n, size_t begin, const struct builder *out)
{
    struct jinja_line *w = r->wanted;

    if (!w || w->line || out != r->out || out->len <= w->offset)
        return;
    w->line = n->line;
    for (size_t i = begin; n->kind == N_TEXT && i < w->offset; i++)
        w->line += out->s[i] == '\n';
}

static enum flow execute(struct run *r, struct scope *s, const struct node *n, struct builder *out)
{
    enum flow flow = FLOW_ON;

    jinja_enter(r->a);
    for (; n && flow == FLOW_ON; n = n->next) {
        struct value block;
        size_t begin = out->len;

        jinja_charge(r->a, 0);
        r->a->line = n->line;
        switch (n->kind) {
        case N_TEXT: builder_put(r->a, out, n->literal.str); break;
        case N_PRINT: builder_put(r->a, out, value_text(r->a, evaluate(r, s, n->a))); break;
        case N_IF: flow = execute(r, s, value_true(evaluate(r, s, n->a)) ? n->b : n->c, out); break;
        case N_FOR: flow = begin_for(r, s, n, out); break;
        case N_SET: assign(r, s, n->a, evaluate(r, s, n->b)); break;
        case N_SET_BLOCK:
            flow = run_block(r, s, n->b, n->c, &block);
            if (flow == FLOW_ON)
                assign(r, s, n->a, block);
            break;
        case N_FILTER_BLOCK:
            flow = run_block(r, s, n->b, n->a, &block);
            if (flow == FLOW_ON)
                builder_put(r->a, out, value_text(r->a, block));
            break;
        case N_CALL_BLOCK: call_block(r, s, n, out); break;
        case N_WITH: flow = execute_with(r, s, n, out); break;
        case N_MACRO: bind_name(r, s, n->name, closure_new(r, s, n)); break;
        case N_GROUP: flow = execute(r, s, n->a, out); break;
        case N_BREAK: flow = FLOW_BREAK; break;
        case N_CONTINUE: flow = FLOW_CONTINUE; break;
        default: break;
        }
        note_line(r, n, begin, out);
    }
    jinja_leave(r->a);
    return flow;
}

/* Text of message i, marked as such. */
static struct str typed(struct arena *a, const char *text, size_t i)
{
    size_t len = strlen(text);
    unsigned char *mask = jinja_alloc(a, len + 1, 1);

    memset(mask, mask_of(i), len);
    return (struct str){text, mask, len, false};
}

static struct value message_value(struct arena *a, const struct message *m, size_t i)
{
    struct value v = dict_new(a), more = value_from_json(a, m->members, mask_of(i));

    v.dict->message = i + 1;
    dict_put(a, v.dict, str_of("role"), value_str(str_of(role_word(m->role))));
    dict_put(a, v.dict, str_of("content"), value_str(typed(a, m->text, i)));
    /* the names used by templates: Qwen3 and others, gpt-oss, Solar Open and Laguna */
    if (m->reasoning) {
        struct value thought = value_str(typed(a, m->reasoning, i));

        dict_put(a, v.dict, str_of("reasoning_content"), thought);
        dict_put(a, v.dict, str_of("thinking"), thought);
        dict_put(a, v.dict, str_of("reasoning"), thought);
    }
    for (size_t k = 0; more.type == V_DICT && k < more.dict->n; k++)
        dict_put(a, v.dict, more.dict->p[k].key, more.dict->p[k].value);
    return v;
}

static void bind_globals(struct run *r, const json_t *globals, unsigned char mask)
{
    struct value all = value_from_json(r->a, globals, mask);

    for (size_t i = 0; all.type == V_DICT && i < all.dict->n; i++)
        bind_name(r, r->root, all.dict->p[i].key, all.dict->p[i].value);
}

static void bind_input(struct run *r, const struct jinja_input *in)
{
    struct value messages = list_new(r->a);

    for (size_t i = 0; i < in->n_messages; i++)
        list_put(r->a, messages.list, message_value(r->a, &in->messages[i], i));
    bind_name(r, r->root, str_of("messages"), messages);
    bind_name(r, r->root, str_of("add_generation_prompt"), value_bool(in->add_generation_prompt));
    bind_name(r, r->root, str_of("tools"), value_none());
    bind_name(r, r->root, str_of("documents"), value_none());
    for (size_t i = 0; i < in->n_variables; i++) {
        const struct jinja_variable *v = &in->variables[i];

        if (v->text)
            bind_name(r, r->root, str_of(v->name),
                      value_str((struct str){v->text, NULL, v->len, false}));
    }
    bind_globals(r, in->globals, 0);
    bind_globals(r, in->given, JINJA_GIVEN);
}

/* Its charge besides text: a mapping takes more memory than its length. */
static size_t json_size(const json_t *json)
{
    return json ? 4 * json_dumpb(json, NULL, 0, JSON_COMPACT) : 0;
}

int jinja_render(const struct jinja *j, const struct jinja_input *in, const struct jinja_output *to,
                 struct error *e)
{
    struct strbuf *text = to->text, *mask = to->mask;
    jmp_buf jump;
    size_t total = json_size(in->given);
    struct arena a = {.line = 1, .jump = &jump, .e = e, .stop = in->stop, .now = in->now};
    struct scope root = {0};
    struct builder out = {0};
    struct run r = {&a, &root, &out, to->begins, to->wanted};

    for (size_t i = 0; i < in->n_messages; i++)
        total += strlen(in->messages[i].text) +
                 (in->messages[i].reasoning ? strlen(in->messages[i].reasoning) : 0) +
                 json_size(in->messages[i].members);
    for (size_t i = 0; to->begins && i < in->n_messages; i++)
        to->begins[i] = SIZE_MAX;
    a.limit = ((size_t)32 << 20) + 32 * total + 4096 * in->n_messages;
    a.steps = 4000000 + 2000 * (uint64_t)in->n_messages + 2 * (uint64_t)total;
    if (setjmp(jump)) {
        arena_release(&a);
        return e ? e->code : ERR_INPUT;
    }
    bind_input(&r, in);
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
