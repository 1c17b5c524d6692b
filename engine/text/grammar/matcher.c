/* See matcher.h. A configuration is a byte node that waits and the returns under it; returns are
 * kept once each, so that equal stacks have equal numbers. A call whose return is the end of its
 * own rule keeps no return: lists and long objects need no deeper stack. */
#include "engine/text/grammar/matcher.h"

#include "engine/base/mem.h"
#include "engine/text/grammar/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#define STATES_MAX (1 << 16)
#define STATES_KEPT (1 << 12) /* more than that are forgotten between tokens */
#define RETURNS_MAX (1 << 20)
#define CONFIGS_MAX (1 << 12) /* of a state */
#define CONFIGS_ALL (1 << 23)
#define MASK_BYTES ((size_t)16 << 20) /* kept masks */
#define UNKNOWN (-1)

struct state {
    int32_t first, n; /* configurations */
    int32_t mask;     /* slot, -1: none */
    bool complete;
    int32_t next[256]; /* UNKNOWN: not met yet */
};

struct ret {
    int32_t node, below; /* below -1: none */
};

struct matcher {
    struct grammar *g;
    const struct grammar_vocabulary *v;
    struct state *states;
    int n_states, state_room;
    uint64_t *configs; /* node << 32 | returns + 1 */
    int n_configs, config_room;
    struct ret *returns;
    int n_returns, return_room;
    int32_t *state_index, *return_index; /* hashes; 0: free, else 1 + number */
    /* a closure under way */
    uint64_t *open, *found, *aside;
    int n_open, n_found;
    bool ends;
    uint64_t *seen; /* table */
    uint32_t *seen_round, round;
    /* masks */
    uint32_t *masks;
    int32_t *owner; /* state of each slot, -1: free */
    int n_slots, slot;
    size_t words;
    int start;
    const char *failed;
};

#define SEEN (CONFIGS_MAX * 8)
#define STATE_INDEX (STATES_MAX * 2)
#define RETURN_INDEX (RETURNS_MAX * 2)

static int fail(struct matcher *m, const char *why)
{
    if (!m->failed)
        m->failed = why;
    return -1;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185u;
    x ^= x >> 27;
    x *= 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

/* ---- returns ---- */

/* The number of a return on top of others; -2: limit exceeded. */
static int push(struct matcher *m, int node, int below)
{
    size_t at = mix((uint64_t)(uint32_t)node << 32 | (uint32_t)(below + 1)) % RETURN_INDEX;

    for (; m->return_index[at]; at = (at + 1) % RETURN_INDEX) {
        const struct ret *r = &m->returns[m->return_index[at] - 1];

        if (r->node == node && r->below == below)
            return m->return_index[at] - 1;
    }
    if (m->n_returns == RETURNS_MAX)
        return fail(m, "the grammar is nested too deeply here"), -2;
    if (!MEM_ROOM(m->returns, m->n_returns, m->return_room, 1024))
        return fail(m, "out of memory for the grammar's state"), -2;
    m->returns[m->n_returns] = (struct ret){node, below};
    m->return_index[at] = ++m->n_returns;
    return m->n_returns - 1;
}

/* ---- configurations ---- */

static void open_config(struct matcher *m, int node, int below)
{
    uint64_t c = (uint64_t)(uint32_t)node << 32 | (uint32_t)(below + 1);
    size_t at = mix(c) % SEEN;

    if (!m->g->alive[node])
        return;
    for (; m->seen_round[at] == m->round; at = (at + 1) % SEEN)
        if (m->seen[at] == c)
            return;
    if (m->n_open == CONFIGS_MAX * 4 || m->n_found == CONFIGS_MAX) {
        fail(m, "the grammar can be read in too many ways here");
        return;
    }
    m->seen_round[at] = m->round;
    m->seen[at] = c;
    m->open[m->n_open++] = c;
}

static void begin_closure(struct matcher *m)
{
    if (++m->round == 0) {
        memset(m->seen_round, 0, SEEN * sizeof *m->seen_round);
        m->round = 1;
    }
    m->n_open = m->n_found = 0;
    m->ends = false;
}

/* Follows all transitions without a byte. m->open grows while it is read: it is also the list of
 * visited ones. */
static void close_open(struct matcher *m)
{
    const struct grammar *g = m->g;

    for (int i = 0; i < m->n_open && !m->failed; i++) {
        int node = (int)(m->open[i] >> 32), below = (int)(uint32_t)m->open[i] - 1;
        const struct grammar_node *x = &g->nodes[node];

        switch (x->kind) {
        case NODE_BYTE: m->found[m->n_found++] = m->open[i]; break;
        case NODE_SPLIT:
            open_config(m, x->a, below);
            open_config(m, x->b, below);
            break;
        case NODE_CALL:
            if (!g->alive[x->a])
                break;
            if (g->nodes[x->a].kind != NODE_RETURN)
                below = push(m, x->a, below);
            if (below != -2)
                open_config(m, g->starts[x->b], below);
            break;
        default:
            if (below < 0)
                m->ends = true;
            else
                open_config(m, m->returns[below].node, m->returns[below].below);
        }
    }
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* The state of the found configurations; -1: failed. */
static int intern(struct matcher *m)
{
    size_t bytes = (size_t)m->n_found * sizeof *m->found;
    uint64_t hash = m->ends;
    struct state *s;
    size_t at;

    if (m->failed)
        return -1;
    qsort(m->found, (size_t)m->n_found, sizeof *m->found, by_value);
    for (int i = 0; i < m->n_found; i++)
        hash = mix(hash ^ m->found[i]);
    for (at = hash % STATE_INDEX; m->state_index[at]; at = (at + 1) % STATE_INDEX) {
        s = &m->states[m->state_index[at] - 1];
        if (s->n == m->n_found && s->complete == m->ends &&
            memcmp(m->configs + s->first, m->found, bytes) == 0)
            return m->state_index[at] - 1;
    }
    if (m->n_states == STATES_MAX || m->n_configs + m->n_found > CONFIGS_ALL)
        return fail(m, "the grammar needs too many states here");
    /* at most CONFIGS_MAX are found, which doubling once makes room for */
    if (!MEM_ROOM(m->states, m->n_states, m->state_room, 256) ||
        !MEM_ROOM(m->configs, m->n_configs + m->n_found, m->config_room, 4096))
        return fail(m, "out of memory for the grammar's state");
    s = &m->states[m->n_states];
    *s = (struct state){m->n_configs, m->n_found, -1, m->ends, {0}};
    memset(s->next, 0xff, sizeof s->next);
    memcpy(m->configs + m->n_configs, m->found, bytes);
    m->n_configs += m->n_found;
    m->state_index[at] = ++m->n_states;
    return m->n_states - 1;
}

/* Computes the state after a byte, and stores it for the next time. MATCHER_DEAD: failed. */
static int step(struct matcher *m, int state, unsigned char byte)
{
    const struct state *s = &m->states[state];
    int next;

    begin_closure(m);
    for (int i = 0; i < s->n; i++) {
        const struct grammar_node *x = &m->g->nodes[m->configs[s->first + i] >> 32];

        if (x->lo <= byte && byte <= x->hi)
            open_config(m, x->a, (int)(uint32_t)m->configs[s->first + i] - 1);
    }
    close_open(m);
    next = intern(m);
    if (next < 0)
        return MATCHER_DEAD;
    return m->states[state].next[byte] = next;
}

static inline int follow(struct matcher *m, int state, unsigned char byte)
{
    int next = m->states[state].next[byte];

    return next == UNKNOWN ? step(m, state, byte) : next;
}

/* ---- life ---- */

/* State 0 allows nothing; the next one is made from m->found. */
static void forget(struct matcher *m)
{
    memset(m->state_index, 0, STATE_INDEX * sizeof *m->state_index);
    for (int i = 0; i < m->n_slots; i++)
        m->owner[i] = -1;
    m->n_states = m->n_configs = 0;
}

static int dead_state(struct matcher *m)
{
    begin_closure(m);
    return intern(m);
}

static int start_state(struct matcher *m)
{
    begin_closure(m);
    open_config(m, m->g->starts[0], -1);
    close_open(m);
    return intern(m);
}

int matcher_new(struct matcher **out, struct grammar *g, const struct grammar_vocabulary *v,
                struct error *e)
{
    struct matcher *m = mem_alloc(1, sizeof *m);

    *out = NULL;
    if (!m)
        return error_set(e, ERR_MEMORY, "out of memory for the grammar's state");
    *m = (struct matcher){.g = grammar_share(g), .v = v};
    m->words = ((size_t)v->n_vocab + 31) / 32;
    m->n_slots = (int)(MASK_BYTES / (m->words * sizeof *m->masks)) + 1;
    m->n_slots = m->n_slots > 1024 ? 1024 : m->n_slots;
    m->state_index = mem_alloc(STATE_INDEX, sizeof *m->state_index);
    m->return_index = mem_alloc(RETURN_INDEX, sizeof *m->return_index);
    m->open = mem_alloc(CONFIGS_MAX * 4, sizeof *m->open);
    m->found = mem_alloc(CONFIGS_MAX * 4, sizeof *m->found);
    m->aside = mem_alloc(CONFIGS_MAX * 4, sizeof *m->aside);
    m->seen = mem_alloc(SEEN, sizeof *m->seen);
    m->seen_round = mem_alloc(SEEN, sizeof *m->seen_round);
    m->masks = mem_alloc((size_t)m->n_slots * m->words, sizeof *m->masks);
    m->owner = mem_alloc((size_t)m->n_slots, sizeof *m->owner);
    if (m->state_index && m->return_index && m->open && m->found && m->aside && m->seen &&
        m->seen_round && m->masks && m->owner) {
        forget(m);
        dead_state(m);
        m->start = start_state(m);
    }
    if (m->n_states < 2) {
        int rc = m->failed && strncmp(m->failed, "out of", 6) != 0
                     ? error_set(e, ERR_INPUT, "grammar: %s", m->failed)
                     : error_set(e, ERR_MEMORY, "out of memory for the grammar's state");

        matcher_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

void matcher_free(struct matcher *m)
{
    if (!m)
        return;
    grammar_free(m->g);
    mem_free(m->states);
    mem_free(m->configs);
    mem_free(m->returns);
    mem_free(m->state_index);
    mem_free(m->return_index);
    mem_free(m->open);
    mem_free(m->found);
    mem_free(m->aside);
    mem_free(m->seen);
    mem_free(m->seen_round);
    mem_free(m->masks);
    mem_free(m->owner);
    mem_free(m);
}

const struct grammar *matcher_grammar(const struct matcher *m)
{
    return m->g;
}

int matcher_start(const struct matcher *m)
{
    return m->start;
}

const char *matcher_failed(const struct matcher *m)
{
    return m->failed;
}

bool matcher_complete(const struct matcher *m, int cursor)
{
    return m->states[cursor].complete;
}

int matcher_settle(struct matcher *m, int cursor)
{
    const struct state *s = &m->states[cursor];
    bool ends = s->complete;
    int n = s->n;

    if (m->n_states < STATES_KEPT || m->failed)
        return cursor;
    memcpy(m->aside, m->configs + s->first, (size_t)n * sizeof *m->aside);
    forget(m);
    dead_state(m);
    m->start = start_state(m);
    /* what it waits for needs no closure */
    begin_closure(m);
    memcpy(m->found, m->aside, (size_t)n * sizeof *m->found);
    m->n_found = n;
    m->ends = ends;
    return intern(m);
}

/* ---- tokens ---- */

static bool is_stop(const struct grammar_vocabulary *v, int id)
{
    for (int i = 0; i < v->n_stops; i++)
        if (v->stops[i] == id)
            return true;
    return false;
}

int matcher_accept_text(struct matcher *m, int cursor, const char *text, size_t n)
{
    for (size_t i = 0; i < n && cursor != MATCHER_DEAD; i++)
        cursor = follow(m, cursor, (unsigned char)text[i]);
    return cursor;
}

int matcher_accept(struct matcher *m, int cursor, int id)
{
    char text[VOCABULARY_DEPTH];
    size_t n;

    if (is_stop(m->v, id))
        return matcher_complete(m, cursor) ? cursor : MATCHER_DEAD;
    n = tokenizer_token_text(m->v->tokenizer, id, text, sizeof text);
    return n && n <= sizeof text ? matcher_accept_text(m, cursor, text, n) : MATCHER_DEAD;
}

static void walk(struct matcher *m, int cursor, uint32_t *mask)
{
    const struct grammar_vocabulary *v = m->v;
    int32_t states[VOCABULARY_DEPTH + 1];

    states[0] = cursor;
    for (int i = 0; i < v->n_nodes && !m->failed;) {
        const struct vocabulary_node *x = &v->nodes[i];
        int next = follow(m, states[x->depth], x->byte);

        if (next == MATCHER_DEAD) {
            i += x->skip;
            continue;
        }
        states[x->depth + 1] = next;
        for (int id = x->token; id >= 0; id = v->same[id])
            mask[id >> 5] |= 1u << (id & 31);
        i++;
    }
    if (m->states[cursor].complete)
        for (int i = 0; i < v->n_stops; i++)
            mask[v->stops[i] >> 5] |= 1u << (v->stops[i] & 31);
}

const uint32_t *matcher_mask(struct matcher *m, int cursor)
{
    int slot = m->states[cursor].mask;
    uint32_t *mask;

    if (m->failed)
        return NULL;
    if (slot >= 0 && m->owner[slot] == cursor)
        return m->masks + (size_t)slot * m->words;
    slot = m->slot;
    m->slot = (m->slot + 1) % m->n_slots;
    mask = m->masks + (size_t)slot * m->words;
    memset(mask, 0, m->words * sizeof *mask);
    m->owner[slot] = -1;
    walk(m, cursor, mask);
    if (m->failed)
        return NULL;
    m->owner[slot] = cursor;
    m->states[cursor].mask = slot;
    return mask;
}
