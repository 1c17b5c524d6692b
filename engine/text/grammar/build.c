/* See build.h. Nodes are built from the end of a rule to its beginning, so that each knows its
 * successor; a repetition is expanded to as many calls as it counts. */
#include "engine/text/grammar/build.h"

#include "engine/base/mem.h"
#include "engine/base/utf8.h"

#include <string.h>

#define PASSES 300

/* ---- expressions ---- */

static int add(struct grammar_build *b, struct expr x)
{
    if (b->n_exprs >= 8 * GRAMMAR_NODES)
        b->failed = b->too_large = true;
    if (b->failed || !MEM_ROOM(b->exprs, b->n_exprs, b->expr_room, 256)) {
        b->failed = true;
        return -1;
    }
    b->exprs[b->n_exprs] = x;
    return b->n_exprs++;
}

int build_empty(struct grammar_build *b)
{
    return add(b, (struct expr){.kind = EXPR_EMPTY});
}

int build_bytes(struct grammar_build *b, const char *text, size_t n)
{
    int at = b->n_text;

    b->failed |= n > GRAMMAR_BYTES;
    while (!b->failed && at + (int)n >= b->text_room)
        b->failed = !MEM_ROOM(b->text, at + (int)n, b->text_room, 256);
    if (b->failed)
        return -1;
    memcpy(b->text + at, text, n);
    b->n_text += (int)n;
    return add(b, (struct expr){.kind = EXPR_BYTES, .a = at, .b = (int)n});
}

int build_text(struct grammar_build *b, const char *text)
{
    return build_bytes(b, text, strlen(text));
}

int build_seq(struct grammar_build *b, int left, int right)
{
    return add(b, (struct expr){.kind = EXPR_SEQ, .a = left, .b = right});
}

int build_alt(struct grammar_build *b, int left, int right)
{
    return left < 0 ? right : add(b, (struct expr){.kind = EXPR_ALT, .a = left, .b = right});
}

int build_repeat(struct grammar_build *b, int of, int min, int max)
{
    return add(b, (struct expr){.kind = EXPR_REPEAT, .a = of, .min = min, .max = max});
}

int build_call(struct grammar_build *b, int rule)
{
    return add(b, (struct expr){.kind = EXPR_RULE, .a = rule});
}

static int build_range(struct grammar_build *b, int lo, int hi)
{
    return add(b, (struct expr){.kind = EXPR_RANGE, .min = lo, .max = hi});
}

/* ---- code points as UTF-8 ---- */

int build_between(struct grammar_build *b, const char *lo, const char *hi, size_t n, char least,
                  char most)
{
    char low[BUILD_BETWEEN], high[BUILD_BETWEEN];
    int out = -1, first = (unsigned char)lo[0], last = (unsigned char)hi[0];

    if (n == 1)
        return build_range(b, first, last);
    memset(low, least, n);
    memset(high, most, n);
    if (first == last)
        return build_seq(b, build_range(b, first, last),
                         build_between(b, lo + 1, hi + 1, n - 1, least, most));
    if (memcmp(lo + 1, low, n - 1) != 0) {
        out = build_seq(b, build_range(b, first, first),
                        build_between(b, lo + 1, high, n - 1, least, most));
        first++;
    }
    if (memcmp(hi + 1, high, n - 1) != 0) {
        out = build_alt(b, out,
                        build_seq(b, build_range(b, last, last),
                                  build_between(b, low, hi + 1, n - 1, least, most)));
        last--;
    }
    if (first <= last)
        out = build_alt(b, out,
                        build_seq(b, build_range(b, first, last),
                                  build_between(b, low, high, n - 1, least, most)));
    return out;
}

int build_class(struct grammar_build *b, const struct code_range *ranges, size_t n)
{
    /* lengths of UTF-8, and no surrogates */
    static const struct code_range parts[] = {
        {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}};
    int out = -1;

    for (size_t i = 0; i < n && !b->failed; i++)
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            uint32_t lo = ranges[i].lo > parts[p].lo ? ranges[i].lo : parts[p].lo;
            uint32_t hi = ranges[i].hi < parts[p].hi ? ranges[i].hi : parts[p].hi;
            char low[4], high[4];

            if (lo > hi)
                continue;
            utf8_encode(lo, low);
            out = build_alt(b, out,
                            build_between(b, low, high, utf8_encode(hi, high), '\x80', '\xbf'));
        }
    return out < 0 ? build_range(b, 1, 0) : out;
}

/* ---- rules ---- */

int build_rule(struct grammar_build *b)
{
    if (b->n_rules >= GRAMMAR_NODES)
        b->failed = b->too_large = true;
    if (b->failed || !MEM_ROOM(b->rules, b->n_rules, b->rule_room, 256)) {
        b->failed = true;
        return -1;
    }
    b->rules[b->n_rules] = -1;
    return b->n_rules++;
}

void build_rule_set(struct grammar_build *b, int rule, int expr)
{
    if (!b->failed)
        b->rules[rule] = expr;
}

/* ---- nodes ---- */

static int node(struct grammar_build *b, struct grammar_node x)
{
    if (b->n_nodes >= GRAMMAR_NODES)
        b->failed = b->too_large = true;
    if (b->failed || !MEM_ROOM(b->nodes, b->n_nodes, b->node_room, 256)) {
        b->failed = true;
        return 0;
    }
    b->nodes[b->n_nodes] = x;
    return b->n_nodes++;
}

static int emit(struct grammar_build *b, int x, int next);

static int emit_repeat(struct grammar_build *b, int x, int next)
{
    struct expr r = b->exprs[x];
    int entry = next;

    if ((r.min > 1 || r.max > 1) && b->exprs[r.a].kind != EXPR_RULE &&
        b->exprs[r.a].kind != EXPR_RANGE) {
        int rule = build_rule(b);

        if (rule < 0)
            return 0;
        b->rules[rule] = r.a;
        if ((r.a = build_call(b, rule)) < 0)
            return 0;
    }
    if (r.max < 0) {
        int loop = node(b, (struct grammar_node){.kind = NODE_SPLIT, .b = next});
        int body = emit(b, r.a, loop);

        if (b->failed)
            return 0;
        b->nodes[loop].a = body;
        entry = loop;
    }
    for (int i = r.min; i < r.max && !b->failed; i++) {
        int body = emit(b, r.a, entry);

        entry = node(b, (struct grammar_node){.kind = NODE_SPLIT, .a = body, .b = next});
    }
    for (int i = 0; i < r.min && !b->failed; i++)
        entry = emit(b, r.a, entry);
    return entry;
}

static int emit(struct grammar_build *b, int x, int next)
{
    int alternative = -1;

    for (; !b->failed && x >= 0; x = b->exprs[x].a) {
        const struct expr *e = &b->exprs[x];
        int last = e->b;

        if (e->kind == EXPR_SEQ) {
            next = emit(b, last, next);
            continue;
        }
        if (e->kind == EXPR_ALT) {
            int branch = emit(b, last, next);

            alternative = alternative < 0 ? branch
                                          : node(b, (struct grammar_node){.kind = NODE_SPLIT,
                                                                          .a = branch,
                                                                          .b = alternative});
            /* the rest is one alternative as a whole */
            if (b->failed || b->exprs[b->exprs[x].a].kind == EXPR_ALT)
                continue;
            branch = emit(b, b->exprs[x].a, next);
            return node(b,
                        (struct grammar_node){.kind = NODE_SPLIT, .a = branch, .b = alternative});
        }
        if (e->kind == EXPR_EMPTY)
            return next;
        if (e->kind == EXPR_RANGE)
            return node(b, (struct grammar_node){NODE_BYTE, (uint8_t)e->min, (uint8_t)e->max, next,
                                                 0});
        if (e->kind == EXPR_RULE)
            return node(b, (struct grammar_node){.kind = NODE_CALL, .a = next, .b = e->a});
        if (e->kind == EXPR_REPEAT)
            return emit_repeat(b, x, next);
        for (int at = e->a, i = e->b; i-- > 0 && !b->failed;) {
            uint8_t c = (uint8_t)b->text[at + i];

            next = node(b, (struct grammar_node){NODE_BYTE, c, c, next, 0});
        }
        return next;
    }
    return 0;
}

/* ---- checks ---- */

static bool reach_end_of(const struct grammar *g, int rule, bool bytes, bool *ends)
{
    int after = rule + 1 < g->n_rules ? g->firsts[rule + 1] : g->n_nodes;
    bool changed = false;

    for (int i = g->firsts[rule]; i < after; i++) {
        const struct grammar_node *n = &g->nodes[i];
        bool end = n->kind == NODE_RETURN ||
                   (n->kind == NODE_BYTE && bytes && n->lo <= n->hi && ends[n->a]) ||
                   (n->kind == NODE_SPLIT && (ends[n->a] || ends[n->b])) ||
                   (n->kind == NODE_CALL && ends[n->a] && ends[g->starts[n->b]]);

        changed |= end && !ends[i];
        ends[i] |= end;
    }
    return changed;
}

/* Nodes from which an end is reachable: at all (any bytes), or without a byte. A node's successors
 * precede it, except in loops, and rules are visited in both directions: PASSES suffice for
 * realistic grammars. */
static int reach_end(const struct grammar *g, bool bytes, bool *ends)
{
    bool changed = true;

    for (int pass = 0; changed; pass++) {
        if (pass == PASSES)
            return -1;
        changed = false;
        for (int r = 0; r < g->n_rules; r++)
            changed |= reach_end_of(g, pass % 2 ? r : g->n_rules - 1 - r, bytes, ends);
    }
    return 0;
}

/* Rules that a rule may call before any byte: each node of a rule is visited once. */
struct search {
    const struct grammar *g;
    const bool *empty;    /* nodes */
    int *stack, *mark;    /* n_nodes each; mark: by node, 1 + the rule whose search saw it */
    unsigned char *state; /* by rule: 0 new, 1 being searched, 2 done */
    struct {
        int rule, first, n; /* its calls, on `calls` */
    } * frames;
    int *calls;
};

static int find_calls(struct search *s, int rule, int at)
{
    int n = 0, depth = 0;

    s->stack[depth++] = s->g->starts[rule];
    s->mark[s->g->starts[rule]] = rule + 1;
    while (depth) {
        const struct grammar_node *x = &s->g->nodes[s->stack[--depth]];
        int next[2] = {-1, -1};

        if (x->kind == NODE_SPLIT) {
            next[0] = x->a;
            next[1] = x->b;
        } else if (x->kind == NODE_CALL) {
            s->calls[at + n++] = x->b;
            if (s->empty[s->g->starts[x->b]])
                next[0] = x->a;
        }
        for (int i = 0; i < 2; i++)
            if (next[i] >= 0 && s->mark[next[i]] != rule + 1) {
                s->mark[next[i]] = rule + 1;
                s->stack[depth++] = next[i];
            }
    }
    return n;
}

/* A left-recursive rule: it reaches itself before any byte; -1: none. */
static int left_recursive(struct search *s)
{
    for (int r = 0; r < s->g->n_rules; r++) {
        int depth = 0;

        if (s->state[r])
            continue;
        s->frames[0].rule = r;
        s->frames[0].first = 0;
        s->frames[0].n = find_calls(s, r, 0);
        s->state[r] = 1;
        while (depth >= 0) {
            int next;

            if (!s->frames[depth].n) {
                s->state[s->frames[depth--].rule] = 2;
                continue;
            }
            next = s->calls[s->frames[depth].first + --s->frames[depth].n];
            if (s->state[next] == 1)
                return next;
            if (s->state[next] == 2)
                continue;
            s->state[next] = 1;
            s->frames[depth + 1].rule = next;
            s->frames[depth + 1].first = s->frames[depth].first + s->frames[depth].n;
            s->frames[depth + 1].n = find_calls(s, next, s->frames[depth + 1].first);
            depth++;
        }
    }
    return -1;
}

static int check(struct grammar *g, const char *(*name)(void *ctx, int rule), void *ctx,
                 struct error *e)
{
    size_t n = (size_t)g->n_nodes, rules = (size_t)g->n_rules;
    bool *empty = mem_alloc(n, 1);
    struct search s = {g,
                       empty,
                       mem_alloc(n, sizeof(int)),
                       mem_alloc(n, sizeof(int)),
                       mem_alloc(rules, 1),
                       NULL,
                       mem_alloc(n + 1, sizeof(int))};
    int rc = 0, bad = -1;

    s.frames = mem_alloc(rules + 1, sizeof *s.frames);
    if (!empty || !s.stack || !s.mark || !s.state || !s.frames || !s.calls)
        rc = error_set(e, ERR_MEMORY, "out of memory for the grammar");
    else if (reach_end(g, false, empty) < 0 || reach_end(g, true, g->alive) < 0)
        rc = error_set(e, ERR_INPUT, "grammar: its rules go through one another too deeply");
    else if (!g->alive[g->starts[0]])
        rc = error_set(e, ERR_INPUT, "grammar: there is no text that it allows: it never ends");
    else if ((bad = left_recursive(&s)) >= 0)
        rc = error_set(e, ERR_INPUT,
                       "grammar: rule '%.60s' begins with itself (left recursion); put what is "
                       "repeated behind it",
                       name && name(ctx, bad) ? name(ctx, bad) : "?");
    mem_free(empty);
    mem_free(s.stack);
    mem_free(s.mark);
    mem_free(s.state);
    mem_free(s.frames);
    mem_free(s.calls);
    return rc;
}

int grammar_build_end(struct grammar_build *b, const char *(*name)(void *ctx, int rule), void *ctx,
                      struct grammar **out, struct error *e)
{
    struct grammar *g = mem_alloc(1, sizeof *g);
    int32_t *starts = NULL, *firsts = NULL;
    int rc = 0, have = 0, room_firsts = 0;

    *out = NULL;
    for (int r = 0; r < b->n_rules && !b->failed; r++) {
        int end, start;

        if (!MEM_ROOM(starts, r, have, 256) || !MEM_ROOM(firsts, r, room_firsts, 256)) {
            b->failed = true;
            break;
        }
        end = node(b, (struct grammar_node){.kind = NODE_RETURN});
        start = emit(b, b->rules[r], end);
        starts[r] = start;
        firsts[r] = end;
    }
    if (g && !b->failed) {
        *g = (struct grammar){.nodes = b->nodes,
                              .n_nodes = b->n_nodes,
                              .starts = starts,
                              .firsts = firsts,
                              .n_rules = b->n_rules,
                              .refs = 1};
        b->nodes = NULL;
        g->alive = mem_alloc((size_t)g->n_nodes, 1);
        starts = firsts = NULL;
    }
    if (b->too_large)
        rc = error_set(e, ERR_INPUT,
                       "grammar: too large (more than %d steps); repeat less, or shorten it",
                       GRAMMAR_NODES);
    else if (!g || b->failed || !g->alive)
        rc = error_set(e, ERR_MEMORY, "out of memory for the grammar");
    else
        rc = check(g, name, ctx, e);
    mem_free(starts);
    mem_free(firsts);
    grammar_build_release(b);
    if (rc < 0)
        grammar_free(g);
    else
        *out = g;
    return rc;
}

void grammar_build_release(struct grammar_build *b)
{
    mem_free(b->exprs);
    mem_free(b->text);
    mem_free(b->rules);
    mem_free(b->nodes);
    *b = (struct grammar_build){0};
}

struct grammar *grammar_share(struct grammar *g)
{
    if (g)
        __atomic_add_fetch(&g->refs, 1, __ATOMIC_RELAXED);
    return g;
}

void grammar_free(struct grammar *g)
{
    if (!g || (g->refs && __atomic_sub_fetch(&g->refs, 1, __ATOMIC_ACQ_REL) > 0))
        return;
    mem_free(g->nodes);
    mem_free(g->starts);
    mem_free(g->firsts);
    mem_free(g->alive);
    mem_free(g);
}
