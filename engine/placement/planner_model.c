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

#define ROUNDS 8 /* of the search in a layer */

static double attention_ns(const struct planner_input *in, int device, int layer)
{
    double ns = in->devices[device].attention_ns > 0 ? in->devices[device].attention_ns
                                                     : in->devices[0].attention_ns;

    if (!in->attention_bytes[layer])
        return 0;
    return ns > 0 ? ns : (double)in->attention_bytes[layer];
}

static double expert_ns(const struct planner_input *in, int device, int layer)
{
    double ns = in->devices[device].expert_ns > 0 ? in->devices[device].expert_ns
                                                  : in->devices[0].expert_ns;
    double sum = 0;
    int n = 0;

    if (ns > 0)
        return ns;
    for (int x = 0; x < in->n_experts; x++) {
        sum += (double)in->expert_bytes[layer * in->n_experts + x];
        n += planner_has_expert(in, layer, x);
    }
    return n ? sum / n : 0;
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

double planner_token_ns(const struct planner_input *in, const struct plan *p)
{
    const double *usage = planner_usage(in);
    double t = head_ns(in, p->head);

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
    int rc = order && all && menus && place && r.rank && r.have ? 0 : ERR_MEMORY;

    if (rc < 0)
        goto out;
    rank_experts(in, p, order, &r);
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
    if (target->expert_ns <= 0 || in->devices[0].expert_ns <= 0)
        snprintf(note, PLANNER_NOTE, "%s: %s was not measured yet; equal speed is assumed", s->text,
                 target->expert_ns <= 0 && target->name ? target->name : "the CPU");
out:
    mem_free(order);
    mem_free(all);
    mem_free(menus);
    mem_free(place);
    mem_free(r.rank);
    mem_free(r.have);
    return rc;
}
