/* The cost model of one decoded token and the strategy that minimises it. Pure functions, any
 * thread. A layer has few sensible splits (attention here or there, its k most or least used
 * experts on the device), so each layer is a small menu of (bytes, time); the best mix under a byte
 * budget is then a multiple-choice knapsack, solved on the menus' convex hulls: the steps with the
 * most time saved per byte first. Then a local search tries mixtures outside the menus: single
 * moves and exchanges of two experts, as long as one shortens the token. */
#include "engine/base/mem.h"
#include "engine/placement/planner_fill.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 8        /* of the search in a layer */
#define LEAST_GAIN 1e-3 /* of a prompt's plan that moves more */
#define GROUPS 2        /* of rows, in a prompt's pass whose layers are divided */

/* Of a row: measured there, else on the CPU, else as a token's, else by the bytes. */
static double prompt_ns_of(double there, double cpu, double token, double bytes)
{
    return there > 0 ? there : cpu > 0 ? cpu : token > 0 ? token : bytes;
}

/* Of all rows of a pass: one token's, or a prompt's. */
static double attention_ns(const struct planner_input *in, int device, int layer)
{
    double ns = in->devices[device].attention_ns > 0 ? in->devices[device].attention_ns
                                                     : in->devices[0].attention_ns;

    if (!in->attention_bytes[layer])
        return 0;
    if (in->prompt_rows)
        return prompt_ns_of(in->devices[device].prompt_attention_ns,
                            in->devices[0].prompt_attention_ns, ns,
                            (double)in->attention_bytes[layer]) *
               in->prompt_rows;
    return ns > 0 ? ns : (double)in->attention_bytes[layer];
}

static double expert_ns(const struct planner_input *in, int device, int layer)
{
    double ns = in->devices[device].expert_ns > 0 ? in->devices[device].expert_ns
                                                  : in->devices[0].expert_ns;
    double sum = 0, mean;
    int n = 0;

    if (ns > 0 && !in->prompt_rows)
        return ns;
    for (int x = 0; x < in->n_experts; x++) {
        sum += (double)in->expert_bytes[layer * in->n_experts + x];
        n += planner_has_expert(in, layer, x);
    }
    mean = n ? sum / n : 0;
    if (in->prompt_rows)
        return prompt_ns_of(in->devices[device].prompt_expert_ns, in->devices[0].prompt_expert_ns,
                            ns, mean) *
               in->prompt_rows;
    return mean;
}

static double head_ns(const struct planner_input *in, int device)
{
    double ns = in->devices[device].head_ns > 0 ? in->devices[device].head_ns
                                                : in->devices[0].head_ns;

    return (ns > 0 ? ns : (double)in->head_bytes) + (device ? in->devices[device].handoff_ns : 0);
}

/* Expectation of the slowest device when `left` expert calls fall on devices d.. with the given
 * shares. */
static double experts_expectation(const struct planner_input *in, int layer, const double *share,
                                  int d, int left, double slowest)
{
    double sum = 0, p = 1, rest = 0;
    int last = 1;

    for (int i = d; i < in->n_devices; i++)
        rest += share[i];
    for (int i = d + 1; i < in->n_devices; i++)
        last &= share[i] <= 0;
    if (left == 0)
        return slowest;
    if (last) {
        double t = left * expert_ns(in, d, layer) + (d ? in->devices[d].handoff_ns : 0);

        return t > slowest ? t : slowest;
    }
    /* k of the `left` calls here: binomial with this device's share of the remaining ones */
    p = rest > 0 ? share[d] / rest : 0;
    for (int k = 0; k <= left; k++) {
        double w = 1, t = k ? k * expert_ns(in, d, layer) + (d ? in->devices[d].handoff_ns : 0) : 0;

        for (int i = 0; i < k; i++)
            w *= (double)(left - i) / (double)(i + 1) * p;
        for (int i = 0; i < left - k; i++)
            w *= 1 - p;
        if (w > 0)
            sum += w * experts_expectation(in, layer, share, d + 1, left - k,
                                           t > slowest ? t : slowest);
    }
    return sum;
}

/* Shares of a layer's expert calls by device, for experts placed as in `place`. */
static void layer_shares(const struct planner_input *in, const double *usage, int layer,
                         const uint8_t *place, double share[PLANNER_DEVICES])
{
    double total = 0;
    int n = 0;

    for (int d = 0; d < PLANNER_DEVICES; d++)
        share[d] = 0;
    for (int x = 0; x < in->n_experts; x++) {
        bool has = planner_has_expert(in, layer, x);
        double u = usage ? usage[layer * in->n_experts + x] : has;

        n += has;
        if (u > 0) {
            share[place[x]] += u;
            total += u;
        }
    }
    if (total <= 0) { /* a layer without counts: uniform */
        for (int x = 0; x < in->n_experts; x++)
            share[place[x]] += planner_has_expert(in, layer, x) ? 1.0 / n : 0;
        return;
    }
    for (int d = 0; d < PLANNER_DEVICES; d++)
        share[d] /= total;
}

static double layer_ns(const struct planner_input *in, const double *usage, int layer,
                       int attention, const uint8_t *place)
{
    double share[PLANNER_DEVICES], t = attention_ns(in, attention, layer);

    layer_shares(in, usage, layer, place, share);
    if (attention)
        t += in->devices[attention].handoff_ns;
    if (in->n_experts)
        t += experts_expectation(in, layer, share, 0,
                                 in->used ? in->used[layer] : in->n_experts_used, 0);
    if (attention && in->devices[attention].fuses_layers && share[attention] >= 1 - 1e-12)
        t -= in->devices[attention].handoff_ns;
    return t;
}

/* ---- a prompt's pass whose groups of rows overlap: what microbatch.c does, step by step, with
 * times instead of work ---- */

enum stage { BEGIN, MIXED, ROUTED, OWN, COMBINE, DONE };

struct simulated {
    enum stage stage;
    int layer, mixed; /* layers whose mixer is done ... */
    double mixed_at;  /* ... the last one at this time */
    double ready;     /* its jobs on devices end */
    bool own_done;    /* the CPU's experts, before the devices' were sent */
    double lent;      /* ns of the CPU for those of devices that it takes */
};

struct simulation {
    const struct planner_input *in;
    const double *usage;
    const struct plan *p;
    int n;                           /* groups */
    double now;                      /* the CPU's time */
    double free_at[PLANNER_DEVICES]; /* when the device's job ends */
    struct simulated group[2 * GROUPS];
    /* of the layer whose shares these are */
    int shares_of;
    double share[PLANNER_DEVICES];
};

static const double *shares(struct simulation *s, int layer)
{
    if (s->shares_of != layer)
        layer_shares(s->in, s->usage, layer, s->p->experts + layer * s->in->n_experts, s->share);
    s->shares_of = layer;
    return s->share;
}

/* Of one group's rows that choose experts of the device. */
static double experts_ns(struct simulation *s, int d, int layer)
{
    int used = s->in->used ? s->in->used[layer] : s->in->n_experts_used;

    return used * shares(s, layer)[d] * expert_ns(s->in, d, layer) / s->n;
}

/* The device that has all of the layer and fuses it; 0: none. */
static int fused_on(struct simulation *s, int layer)
{
    int a = s->p->attention[layer];

    return a && s->in->devices[a].fuses_layers && shares(s, layer)[a] >= 1 - 1e-12 ? a : 0;
}

static void give(struct simulation *s, struct simulated *g, int d, double ns)
{
    const struct planner_device *v = &s->in->devices[d];

    s->now += v->launch_ns;
    s->free_at[d] = s->now + ns + v->handoff_ns - v->launch_ns;
    g->ready = s->free_at[d] > g->ready ? s->free_at[d] : g->ready;
}

static void simulate_begin(struct simulation *s, struct simulated *g)
{
    int a = s->p->attention[g->layer], fused = fused_on(s, g->layer);
    double ns = attention_ns(s->in, a, g->layer) / s->n;

    if (fused)
        give(s, g, a, ns + experts_ns(s, a, g->layer));
    else if (a)
        give(s, g, a, ns);
    else
        s->now += ns;
    g->mixed_at = a ? g->ready : s->now;
    g->mixed = ++g->layer;
    if (!fused)
        g->layer--;
    g->stage = !fused ? MIXED : g->layer < s->in->n_layers ? BEGIN : DONE;
}

/* ns of the CPU until it can give a device the experts of the group that is next; 0: none is. */
static double until_next(struct simulation *s, const struct simulated *g)
{
    for (int i = 0; i < s->n; i++) {
        const struct simulated *h = &s->group[i];
        int layer = h->layer + (h->stage > ROUTED);

        if (h == g || h->stage == DONE || layer == s->in->n_layers)
            continue;
        return (h->stage > BEGIN && h->stage <= ROUTED) || s->p->attention[layer]
                   ? 0
                   : attention_ns(s->in, 0, layer) / s->n;
    }
    return 0;
}

/* Of a device's experts, the part that the CPU keeps (microbatch.c, share). */
static double lent_part(struct simulation *s, const struct simulated *g, int d)
{
    double there = experts_ns(s, d, g->layer),
           here = there * expert_ns(s->in, 0, g->layer) / expert_ns(s->in, d, g->layer), part;

    if (!s->p->lends)
        return 0;
    part = (there - until_next(s, g) - (g->own_done ? 0 : experts_ns(s, 0, g->layer)) - g->lent) /
           (there + here);
    return part > 0 ? part : 0;
}

static void simulate_step(struct simulation *s, struct simulated *g)
{
    double host = s->in->prompt_host_ns * s->in->prompt_rows / s->n;

    switch (g->stage) {
    case BEGIN: simulate_begin(s, g); return;
    case MIXED: s->now += host; break;
    case ROUTED:
        for (int d = 1; d < s->in->n_devices; d++)
            if (shares(s, g->layer)[d] > 0) {
                double part = lent_part(s, g, d), ns = experts_ns(s, d, g->layer);

                g->lent += part * ns * expert_ns(s->in, 0, g->layer) /
                           expert_ns(s->in, d, g->layer);
                give(s, g, d, (1 - part) * ns);
            }
        break;
    case OWN:
        s->now += g->lent + (g->own_done ? 0 : experts_ns(s, 0, g->layer));
        g->lent = 0;
        g->own_done = false;
        break;
    case COMBINE: g->stage = ++g->layer < s->in->n_layers ? BEGIN : DONE; return;
    case DONE: return;
    }
    g->stage++;
}

/* Whether the group's next step gives a device work: the latest time that one of them is free;
 * negative: none. */
static double needs_device(struct simulation *s, const struct simulated *g)
{
    int a = s->p->attention[g->layer];
    double at = -1;

    if (g->stage == BEGIN && a)
        return s->free_at[a];
    for (int d = 1; d < s->in->n_devices && g->stage == ROUTED; d++)
        if (shares(s, g->layer)[d] > 0 && s->free_at[d] > at)
            at = s->free_at[d];
    return at;
}

/* Whether the CPU's experts come first, for the devices with the others are busy. */
static bool early(struct simulation *s, const struct simulated *g)
{
    return g->stage == ROUTED && !g->own_done && needs_device(s, g) > s->now &&
           shares(s, g->layer)[0] > 0;
}

/* When its next step may be taken; negative: that depends on the group before. */
static double may_step(struct simulation *s, const struct simulated *g)
{
    double at = early(s, g) ? s->now : needs_device(s, g);

    if (g->stage == BEGIN && g != s->group) {
        if (g[-1].mixed <= g->layer)
            return -1;
        at = g[-1].mixed == g->layer + 1 && g[-1].mixed_at > at ? g[-1].mixed_at : at;
    }
    if (g->stage != OWN && g->ready > at)
        at = g->ready;
    return at > 0 ? at : 0;
}

/* A prompt's pass. */
static double overlapped_ns(const struct planner_input *in, const double *usage,
                            const struct plan *p)
{
    struct simulation s = {.in = in, .usage = usage, .p = p, .n = 2 * GROUPS, .shares_of = -1};

    for (int l = 0; l < in->n_layers; l++)
        if (!fused_on(&s, l) && (p->attention[l] || shares(&s, l)[0] < 1 - 1e-12))
            s.n = GROUPS; /* a layer is divided */
    for (;;) {
        struct simulated *next = NULL;
        double soonest = -1;
        int feeds = 0; /* 2: a device gets work, or soon; 0: the CPU's experts, which can wait */

        for (int i = 0; i < s.n; i++) {
            struct simulated *g = &s.group[i];
            double at = g->stage == DONE ? -1 : may_step(&s, g);
            int fed;

            if (at < 0)
                continue;
            soonest = soonest < 0 || at < soonest ? at : soonest;
            if (at > s.now)
                continue;
            fed = early(&s, g) || g->stage == OWN                                       ? 0
                  : needs_device(&s, g) >= 0 || g->stage == MIXED || g->stage == ROUTED ? 2
                                                                                        : 1;
            if (!next || fed > feeds) {
                next = g;
                feeds = fed;
            }
        }
        if (soonest < 0)
            break;
        if (next && early(&s, next)) {
            s.now += experts_ns(&s, 0, next->layer);
            next->own_done = true;
        } else if (next) {
            simulate_step(&s, next);
        } else {
            s.now = soonest;
        }
    }
    for (int i = 0; i < s.n; i++)
        s.now = s.group[i].ready > s.now ? s.group[i].ready : s.now;
    return s.now + head_ns(in, p->head);
}

double planner_token_ns(const struct planner_input *in, const struct plan *p)
{
    const double *usage = planner_usage(in);
    double t = head_ns(in, p->head);

    if (in->prompt_rows >= PLANNER_OVERLAP)
        return overlapped_ns(in, usage, p);
    assert(p->n_layers == in->n_layers && p->n_experts == in->n_experts);
    for (int l = 0; l < in->n_layers; l++)
        t += layer_ns(in, usage, l, p->attention[l], p->experts + l * in->n_experts);
    return t;
}

double planner_hit_rate(const struct planner_input *in, const struct plan *p)
{
    const double *usage = planner_usage(in);
    double away = 0;

    assert(p->n_layers == in->n_layers && p->n_experts == in->n_experts);
    for (int l = 0; l < in->n_layers; l++) {
        double share[PLANNER_DEVICES];

        layer_shares(in, usage, l, p->experts + l * in->n_experts, share);
        away += 1 - share[0];
    }
    return in->n_layers ? away / in->n_layers : 0;
}

/* One choice for a layer (or the head): its bytes on the device and its time. */
struct choice {
    uint64_t bytes;
    double ns;
    int attention, experts; /* how many of the most used experts are on the device */
    bool least;             /* the least used ones instead */
};

struct menu {
    struct choice *choices; /* after hull(): rising bytes, falling time and gain per byte */
    int n, taken;
    bool closed; /* its next step does not fit */
};

static int by_bytes(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return x->experts != y->experts ? x->experts - y->experts : (int)x->least - (int)y->least;
}

/* Keeps the first choice (nothing moved) and the lower convex hull to its right. */
static void hull(struct menu *m)
{
    int n = 1;

    qsort(m->choices + 1, (size_t)(m->n - 1), sizeof *m->choices, by_bytes);
    for (int i = 1; i < m->n; i++) {
        struct choice c = m->choices[i];

        if (c.ns >= m->choices[n - 1].ns)
            continue;
        while (n > 1) {
            const struct choice *a = &m->choices[n - 2], *b = &m->choices[n - 1];

            if ((a->ns - b->ns) * (double)(c.bytes - b->bytes) >
                (b->ns - c.ns) * (double)(b->bytes - a->bytes))
                break;
            n--;
        }
        m->choices[n++] = c;
    }
    m->n = n;
}

static const struct choice *now(const struct menu *m)
{
    return &m->choices[m->taken];
}

static double gain(const struct menu *m)
{
    double bytes = (double)(now(m)[1].bytes - now(m)->bytes), ns = now(m)->ns - now(m)[1].ns;

    return bytes > 0 ? ns / bytes : 1e300;
}

static void choose(struct menu *menus, int n, uint64_t left)
{
    for (;;) {
        struct menu *best = NULL;

        for (int i = 0; i < n; i++)
            if (!menus[i].closed && menus[i].taken + 1 < menus[i].n &&
                (!best || gain(&menus[i]) > gain(best)))
                best = &menus[i];
        if (!best)
            break;
        if (now(best)[1].bytes - now(best)->bytes > left) {
            best->closed = true;
            continue;
        }
        left -= now(best)[1].bytes - now(best)->bytes;
        best->taken++;
    }
}

/* One layer in the search. */
struct spot {
    const struct planner_input *in;
    const double *usage;
    int layer;
    uint8_t *attention, *place;
    uint64_t *left; /* bytes free on each device */
    double ns;
};

/* Whether the layer as the caller changed it is faster, by which it becomes the one to beat. */
static bool faster(struct spot *s)
{
    double ns = layer_ns(s->in, s->usage, s->layer, *s->attention, s->place);

    if (ns >= s->ns - 1e-9 * s->ns)
        return false;
    s->ns = ns;
    return true;
}

/* bytes go from a device to another one. */
static void account(struct spot *s, int from, int to, uint64_t bytes)
{
    if (s->left[from] != PLANNER_NO_LIMIT)
        s->left[from] += bytes;
    if (s->left[to] != PLANNER_NO_LIMIT)
        s->left[to] -= bytes;
}

static uint64_t expert_size(const struct spot *s, int x)
{
    return s->in->expert_bytes[s->layer * s->in->n_experts + x];
}

static bool move_expert(struct spot *s, int x, int to)
{
    int was = s->place[x];

    if (was == to || expert_size(s, x) > s->left[to] || !planner_can_expert(s->in, to, s->layer, x))
        return false;
    s->place[x] = (uint8_t)to;
    if (faster(s)) {
        account(s, was, to, expert_size(s, x));
        return true;
    }
    s->place[x] = (uint8_t)was;
    return false;
}

static bool move_attention(struct spot *s, int to)
{
    int was = *s->attention;
    uint64_t bytes = s->in->attention_bytes[s->layer];

    if (was == to || bytes > s->left[to] || !planner_can_attention(s->in, to, s->layer))
        return false;
    *s->attention = (uint8_t)to;
    if (faster(s)) {
        account(s, was, to, bytes);
        return true;
    }
    *s->attention = (uint8_t)was;
    return false;
}

static bool fits_for(const struct spot *s, int device, uint64_t takes, uint64_t frees)
{
    return takes <= frees || takes - frees <= s->left[device];
}

/* x and y change places. */
static bool exchange(struct spot *s, int x, int y)
{
    int of_x = s->place[x], of_y = s->place[y];

    if (of_x == of_y || !planner_can_expert(s->in, of_y, s->layer, x) ||
        !planner_can_expert(s->in, of_x, s->layer, y) ||
        !fits_for(s, of_y, expert_size(s, x), expert_size(s, y)) ||
        !fits_for(s, of_x, expert_size(s, y), expert_size(s, x)))
        return false;
    s->place[x] = (uint8_t)of_y;
    s->place[y] = (uint8_t)of_x;
    if (faster(s)) {
        account(s, of_x, of_y, expert_size(s, x));
        account(s, of_y, of_x, expert_size(s, y));
        return true;
    }
    s->place[x] = (uint8_t)of_x;
    s->place[y] = (uint8_t)of_y;
    return false;
}

/* left: of each device; 0 for those that the spec does not use. */
static void improve(const struct planner_input *in, const double *usage, struct plan *p,
                    uint64_t left[PLANNER_DEVICES])
{
    for (int l = 0; l < in->n_layers; l++) {
        struct spot s = {in, usage, l, &p->attention[l], p->experts + l * in->n_experts, left, 0};
        bool better = true;

        s.ns = layer_ns(in, usage, l, *s.attention, s.place);
        for (int round = 0; better && round < ROUNDS; round++) {
            better = false;
            for (int d = 0; d < in->n_devices; d++)
                better |= move_attention(&s, d);
            for (int x = 0; x < in->n_experts; x++)
                for (int d = 0; d < in->n_devices; d++)
                    better |= move_expert(&s, x, d);
            for (int x = 0; x < in->n_experts; x++)
                for (int y = 0; y < in->n_experts; y++)
                    better |= exchange(&s, x, y);
        }
    }
}

/* Experts of each layer that the target can have and no device has yet, most used first. */
struct ranking {
    int *rank, *have; /* (n_layers, n_experts); how many of a layer's */
};

static void rank_experts(const struct planner_input *in, const struct plan *p, const int *order,
                         struct ranking *r)
{
    for (int i = 0; i < in->n_layers * in->n_experts; i++) {
        int l = order[i] / in->n_experts, x = order[i] % in->n_experts;

        if (!plan_expert(p, l, x) && planner_can_expert(in, in->target, l, x))
            r->rank[l * in->n_experts + r->have[l]++] = x;
    }
}

/* The k-th expert to move, starting at the most or the least used. */
static int kth_expert(const struct planner_input *in, const struct ranking *r, int layer,
                      bool least, int k)
{
    return r->rank[layer * in->n_experts + (least ? r->have[layer] - 1 - k : k)];
}

/* Attention as it is or on the target, and the 0, 1, 2 ... most or least used experts there. place:
 * scratch. */
static void layer_menu(const struct planner_input *in, const double *usage, const struct plan *p,
                       const struct ranking *r, int l, uint8_t *place, struct menu *m)
{
    bool both = !p->attention[l] && planner_can_attention(in, in->target, l);

    for (int i = 0; i < (both ? 4 : 2); i++) {
        int a = i / 2;
        bool least = i % 2;
        uint64_t bytes = a ? in->attention_bytes[l] : 0;

        memcpy(place, p->experts + l * in->n_experts, (size_t)in->n_experts);
        for (int k = 0; k <= r->have[l]; k++) {
            if (k) {
                int x = kth_expert(in, r, l, least, k - 1);

                place[x] = (uint8_t)in->target;
                bytes += in->expert_bytes[l * in->n_experts + x];
            }
            m->choices[m->n++] = (struct choice){
                bytes, layer_ns(in, usage, l, a ? in->target : p->attention[l], place), a, k,
                least};
        }
    }
    hull(m);
}

static void head_menu(const struct planner_input *in, const struct plan *p, struct menu *m)
{
    m->choices[m->n++] = (struct choice){.ns = head_ns(in, p->head)};
    if (!p->head && in->devices[in->target].head_can)
        m->choices[m->n++] = (struct choice){in->head_bytes, head_ns(in, in->target), 1, 0, false};
    hull(m);
}

/* Makes the plan from the choices of the menus. */
static void take_choices(const struct planner_input *in, const struct ranking *r,
                         const struct menu *menus, struct plan *p)
{
    uint8_t target = (uint8_t)in->target;

    for (int l = 0; l < in->n_layers; l++) {
        const struct choice *c = now(&menus[l]);

        p->attention[l] = c->attention ? target : p->attention[l];
        for (int k = 0; k < c->experts; k++)
            p->experts[l * in->n_experts + kth_expert(in, r, l, c->least, k)] = target;
    }
    p->head = now(&menus[in->n_layers])->attention ? target : p->head;
}

/* Whether layer l is one of n that are spread evenly over all. */
static bool chosen_evenly(int l, int n, int layers)
{
    return (long)(l + 1) * n / layers > (long)l * n / layers;
}

/* What a prompt's plan moves to the target: so many layers' attention, experts of all layers
 * together, or whole layers instead. */
struct division {
    int attention, experts;
    int last; /* of the last layer's experts, fewer: nothing overlaps with them */
    bool whole;
};

/* base with it, as far as it fits. */
static void divide(const struct planner_spec *s, const struct planner_input *in,
                   const struct ranking *r, const struct plan *base, struct division v,
                   struct plan *p)
{
    struct filler f;

    memcpy(p->attention, base->attention, (size_t)in->n_layers);
    memcpy(p->experts, base->experts, (size_t)in->n_layers * (size_t)in->n_experts);
    filler_init(&f, s, in, p);
    for (int l = 0; l < in->n_layers; l++) {
        bool there = chosen_evenly(l, v.attention, in->n_layers);
        int have = r->have[l], n = v.whole ? (there ? have : 0)
                                           : (int)((long)(l + 1) * v.experts / in->n_layers -
                                                   (long)l * v.experts / in->n_layers);

        if (there && !p->attention[l])
            filler_attention(&f, l);
        n = n < have ? n : have;
        n = l == in->n_layers - 1 && !v.whole ? (n > v.last ? n - v.last : 0) : n;
        /* evenly from the most to the least used: the share that so many of them have */
        for (int k = 0; k < n; k++)
            filler_expert(&f, l, r->rank[l * in->n_experts + (2 * k + 1) * have / (2 * n)]);
    }
}

/* Keeps the division if its pass is shorter. */
static void try_division(const struct planner_spec *s, const struct planner_input *in,
                         const struct ranking *r, const struct plan *base, struct division v,
                         struct plan *p, struct division *best, double *best_ns)
{
    double ns;

    divide(s, in, r, base, v, p);
    ns = planner_token_ns(in, p);
    if (*best_ns > 0 && ns >= *best_ns * (1 - LEAST_GAIN))
        return;
    *best = v;
    *best_ns = ns;
}

/* Takes a plan back that saves less than the model may be wrong by: what both sides do at the same
 * time slows each down, by an amount that nobody measures before. */
static void worth_it(const struct planner_input *in, const struct plan *base, struct plan *p)
{
    double before = planner_token_ns(in, base);

    if (planner_token_ns(in, p) < (1 - in->doubt) * before)
        return;
    memcpy(p->attention, base->attention, (size_t)in->n_layers);
    memcpy(p->experts, base->experts, (size_t)in->n_layers * (size_t)in->n_experts);
    p->head = base->head;
}

/* A prompt's rows keep both sides busy wherever its blocks are: what counts is how much each has to
 * do, spread evenly over the layers, so that neither waits long for the other. */
static int fill_prompt(const struct planner_spec *s, const struct planner_input *in,
                       const struct ranking *r, struct plan *p)
{
    struct plan *base = plan_copy(p);
    struct division best = {0};
    int layers = in->n_layers, experts = in->n_experts, step = layers > 8 ? layers / 8 : 1,
        coarse = experts > 16 ? experts / 16 : 1, fine, around;
    double ns = 0;

    if (!base)
        return ERR_MEMORY;
    for (int a = 0; a <= layers; a += step)
        for (int k = 0; k <= experts; k += coarse)
            try_division(s, in, r, base, (struct division){.attention = a, .experts = k * layers},
                         p, &best, &ns);
    around = best.experts;
    fine = coarse * layers > 16 ? coarse * layers / 16 : 1;
    for (int k = around - coarse * layers; k <= around + coarse * layers; k += fine)
        if (k >= 0 && k <= layers * experts)
            try_division(s, in, r, base,
                         (struct division){.attention = best.attention, .experts = k}, p, &best,
                         &ns);
    for (int k = 1; k <= best.experts / layers + 1; k += coarse)
        try_division(
            s, in, r, base,
            (struct division){.attention = best.attention, .experts = best.experts, .last = k}, p,
            &best, &ns);
    for (int w = 1; w <= layers; w++)
        try_division(s, in, r, base, (struct division){.attention = w, .whole = true}, p, &best,
                     &ns);
    divide(s, in, r, base, best, p);
    worth_it(in, base, p);
    /* what the CPU takes back costs nothing where both sides have the weights, what the device
     * lacks is time lost: routing differs from layer to layer */
    if (in->devices[in->target].unified && best.experts && plan_diff(base, p, NULL)) {
        best.experts += layers * (best.experts / layers / 3 + 1);
        best.last = 0;
        divide(s, in, r, base, best, p);
    }
    plan_free(base);
    return 0;
}

int planner_fill_balanced(const struct planner_spec *s, const struct planner_input *in,
                          struct plan *p, char note[PLANNER_NOTE])
{
    const double *usage = planner_usage(in);
    size_t per_layer = 4 * ((size_t)in->n_experts + 1), n = (size_t)in->n_layers + 1;
    int *order = planner_cells_by_use(in, usage);
    struct choice *all = mem_alloc(n, sizeof *all * per_layer);
    struct menu *menus = mem_alloc(n, sizeof *menus);
    uint8_t *place = mem_alloc((size_t)in->n_experts, 1);
    struct ranking r = {mem_alloc(n, sizeof *r.rank * (size_t)(in->n_experts ? in->n_experts : 1)),
                        mem_alloc(n, sizeof *r.have)};
    const struct planner_device *target = &in->devices[in->target];
    uint64_t limit = planner_limit(s, in, in->target), left[PLANNER_DEVICES] = {PLANNER_NO_LIMIT};
    struct plan *base = plan_copy(p);
    int rc = order && all && menus && place && r.rank && r.have && base ? 0 : ERR_MEMORY;

    if (rc < 0)
        goto out;
    rank_experts(in, p, order, &r);
    p->lends = true;
    if (in->prompt_rows >= PLANNER_OVERLAP) {
        rc = fill_prompt(s, in, &r, p);
        goto out;
    }
    for (size_t l = 0; l < n; l++)
        menus[l].choices = all + l * per_layer;
    for (int l = 0; l < in->n_layers; l++)
        layer_menu(in, usage, p, &r, l, place, &menus[l]);
    head_menu(in, p, &menus[in->n_layers]);
    choose(menus, (int)n, limit);
    take_choices(in, &r, menus, p);
    for (int d = 1; d < in->n_devices; d++) {
        uint64_t bytes = planner_bytes(in, p, d);

        left[d] = bytes || d == in->target ? planner_limit(s, in, d) : 0;
        left[d] -= left[d] == PLANNER_NO_LIMIT ? 0 : bytes;
    }
    improve(in, usage, p, left);
    worth_it(in, base, p);
    if (target->expert_ns <= 0 || in->devices[0].expert_ns <= 0)
        snprintf(note, PLANNER_NOTE, "%s: %s was not measured yet; equal speed is assumed", s->text,
                 target->expert_ns <= 0 && target->name ? target->name : "the CPU");
out:
    plan_free(base);
    mem_free(order);
    mem_free(all);
    mem_free(menus);
    mem_free(place);
    mem_free(r.rank);
    mem_free(r.have);
    return rc;
}
