/* See expert_edits.h. */
#include "engine/device/expert_edits.h"

#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FACTOR_MOST 1000.0f

static size_t cells_of(const struct expert_edits *x)
{
    return (size_t)x->layers * (size_t)x->experts;
}

static struct expert_edits *blank(const struct hparams *hp)
{
    struct expert_edits *x = mem_alloc(1, sizeof *x);
    size_t n;

    if (!x)
        return NULL;
    x->refs = 1;
    x->layers = hp->n_layers;
    x->experts = hp->n_experts;
    n = cells_of(x);
    x->touched = mem_alloc((size_t)x->layers, sizeof *x->touched);
    x->off = mem_alloc(n, sizeof *x->off);
    x->factor = mem_alloc(n, sizeof *x->factor);
    x->becomes = mem_alloc(n, sizeof *x->becomes);
    if (!x->touched || !x->off || !x->factor || !x->becomes) {
        expert_edits_free(x);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        x->factor[i] = 1.0f;
        x->becomes[i] = (uint16_t)(i % (size_t)x->experts);
    }
    return x;
}

static void copy(struct expert_edits *to, const struct expert_edits *from)
{
    size_t n = cells_of(from);

    memcpy(to->off, from->off, n * sizeof *to->off);
    memcpy(to->factor, from->factor, n * sizeof *to->factor);
    memcpy(to->becomes, from->becomes, n * sizeof *to->becomes);
}

/* ---- reading ---- */

struct line {
    const struct hparams *hp;
    const char *text, *at;
    struct error *e;
};

static int refuse(const struct line *l, const char *why)
{
    return error_set(l->e, ERR_USAGE, "expert edit '%.80s': %s", l->text, why);
}

static const char usage[] = "write off L17/E9,E3, on L17/E9, weight L17/E9 0.5, only L17/E9,E3 or "
                            "swap L17 E3 E9";

static void spaces(struct line *l)
{
    l->at += strspn(l->at, " \t");
}

/* Numbers too large for any model stay too large. */
static bool digits(struct line *l, int *out)
{
    const char *p = l->at;
    int v = 0;

    for (; *p >= '0' && *p <= '9'; p++)
        v = v < 100000 ? v * 10 + (*p - '0') : v;
    if (p == l->at)
        return false;
    *out = v;
    l->at = p;
    return true;
}

/* A letter, of either case, and a number. */
static bool numbered(struct line *l, char letter, int *out)
{
    if ((*l->at | 32) != letter || l->at[1] < '0' || l->at[1] > '9')
        return false;
    l->at++;
    return digits(l, out);
}

/* Experts that the router of a layer has; 0: none. */
static int routed(const struct hparams *hp, int layer)
{
    const struct ffn_shape *s = &hparams_layer(hp, layer)->ffn;

    return s->kind == FFN_NONE ? 0 : s->experts;
}

/* L17, L3-7, L* */
static int layers_of(struct line *l, int *first, int *last)
{
    char why[120];

    spaces(l);
    if ((*l->at | 32) == 'l' && l->at[1] == '*') {
        l->at += 2;
        *first = 0;
        *last = l->hp->n_layers - 1;
        return 0;
    }
    if (!numbered(l, 'l', first))
        return refuse(l, usage);
    *last = *first;
    if (*l->at == '-') {
        l->at++;
        if (!digits(l, last) || *last < *first)
            return refuse(l, "L3-7 names the layers 3 to 7");
    }
    if (*last >= l->hp->n_layers) {
        snprintf(why, sizeof why, "the model's layers are L0 to L%d", l->hp->n_layers - 1);
        return refuse(l, why);
    }
    if (*first == *last && !routed(l->hp, *first)) {
        snprintf(why, sizeof why, "layer %d has no router", *first);
        return refuse(l, why);
    }
    return 0;
}

static int expert_of(struct line *l, int first, int last, int *out)
{
    int most = 0;
    char why[120];

    spaces(l);
    if (!numbered(l, 'e', out))
        return refuse(l, usage);
    for (int layer = first; layer <= last; layer++)
        most = routed(l->hp, layer) > most ? routed(l->hp, layer) : most;
    if (*out < most)
        return 0;
    if (!most)
        return refuse(l, "no such layer has a router");
    snprintf(why, sizeof why, "there is no E%d: the routed experts there are E0 to E%d", *out,
             most - 1);
    return refuse(l, why);
}

static int ends(struct line *l)
{
    spaces(l);
    return *l->at ? refuse(l, usage) : 0;
}

/* Undoes an expert's edits; who computed for it does its own again. */
static void restore(struct expert_edits *x, int layer, int expert)
{
    uint16_t *becomes = x->becomes + expert_edits_at(x, layer, 0);

    x->off[expert_edits_at(x, layer, expert)] = 0;
    x->factor[expert_edits_at(x, layer, expert)] = 1.0f;
    for (int i = 0; becomes[expert] != expert && i < x->experts; i++)
        if (becomes[i] == expert) {
            becomes[i] = becomes[expert];
            becomes[expert] = (uint16_t)expert;
            return;
        }
}

static void restore_layers(struct expert_edits *x, int first, int last)
{
    for (int layer = first; layer <= last; layer++)
        for (int i = 0; i < x->experts; i++)
            restore(x, layer, i);
}

enum act { ACT_OFF, ACT_ON, ACT_ONLY, ACT_WEIGHT, ACT_SWAP };

static void act_on(struct expert_edits *x, const struct hparams *hp, enum act act, int first,
                   int last, int expert, float factor)
{
    for (int layer = first; layer <= last; layer++) {
        if (expert >= routed(hp, layer))
            continue;
        if (act == ACT_ON)
            restore(x, layer, expert);
        else if (act == ACT_WEIGHT)
            x->factor[expert_edits_at(x, layer, expert)] = factor;
        else
            x->off[expert_edits_at(x, layer, expert)] = act == ACT_OFF;
    }
}

/* "E9,E3": one after the other. */
static int listed(struct line *l, struct expert_edits *x, enum act act, int first, int last)
{
    const char *start = l->at;
    int expert, rc;

    for (;;) {
        if ((rc = expert_of(l, first, last, &expert)) < 0)
            return rc;
        spaces(l);
        if (*l->at != ',')
            break;
        l->at++;
    }
    if (act == ACT_WEIGHT)
        return 0;
    if ((rc = ends(l)) < 0)
        return rc;
    for (int layer = first; act == ACT_ONLY && layer <= last; layer++)
        for (int i = 0; i < routed(l->hp, layer); i++)
            x->off[expert_edits_at(x, layer, i)] = 1;
    for (l->at = start; *l->at; l->at += *l->at == ',') {
        if ((rc = expert_of(l, first, last, &expert)) < 0)
            return rc;
        act_on(x, l->hp, act, first, last, expert, 1.0f);
        spaces(l);
    }
    return 0;
}

static int weigh(struct line *l, struct expert_edits *x, int first, int last)
{
    const char *start = l->at;
    char *end;
    float factor;
    int rc = listed(l, x, ACT_WEIGHT, first, last), expert;

    if (rc < 0)
        return rc;
    factor = strtof(l->at, &end);
    if (end == l->at || !isfinite(factor) || fabsf(factor) > FACTOR_MOST)
        return refuse(l, "weight L17/E9 F: F is a factor from -1000 to 1000");
    l->at = end;
    if ((rc = ends(l)) < 0)
        return rc;
    for (l->at = start;; l->at++) {
        if ((rc = expert_of(l, first, last, &expert)) < 0)
            return rc;
        act_on(x, l->hp, ACT_WEIGHT, first, last, expert, factor);
        spaces(l);
        if (*l->at != ',')
            return 0;
    }
}

static int swap(struct line *l, struct expert_edits *x, int first, int last)
{
    int a, b, rc;

    if ((rc = expert_of(l, first, last, &a)) < 0 || (rc = expert_of(l, first, last, &b)) < 0 ||
        (rc = ends(l)) < 0)
        return rc;
    if (a == b)
        return refuse(l, "two experts are swapped");
    for (int layer = first; layer <= last; layer++) {
        uint16_t *becomes = x->becomes + expert_edits_at(x, layer, 0), was = becomes[a];

        if (a >= routed(l->hp, layer) || b >= routed(l->hp, layer))
            continue;
        becomes[a] = becomes[b];
        becomes[b] = was;
    }
    return 0;
}

static int take(struct line *l, struct expert_edits *x)
{
    static const char *const words[] = {"off", "on", "only", "weight", "swap"};
    size_t n, k = 0;
    int first = 0, last = 0, rc;

    spaces(l);
    n = strcspn(l->at, " \t");
    while (k < sizeof words / sizeof *words &&
           (strlen(words[k]) != n || memcmp(l->at, words[k], n)))
        k++;
    if (k == sizeof words / sizeof *words)
        return refuse(l, usage);
    l->at += n;
    spaces(l);
    if (k == ACT_ON && !*l->at) {
        restore_layers(x, 0, x->layers - 1);
        return 0;
    }
    if ((rc = layers_of(l, &first, &last)) < 0)
        return rc;
    if (k == ACT_ON && !*l->at) {
        restore_layers(x, first, last);
        return 0;
    }
    if (*l->at == '/')
        l->at++;
    else if (k != ACT_SWAP)
        return refuse(l, usage);
    if (k == ACT_SWAP)
        return swap(l, x, first, last);
    return k == ACT_WEIGHT ? weigh(l, x, first, last) : listed(l, x, (enum act)k, first, last);
}

static void count(struct expert_edits *x)
{
    x->n = 0;
    for (int layer = 0; layer < x->layers; layer++) {
        int n = 0;

        for (int i = 0; i < x->experts; i++) {
            size_t at = expert_edits_at(x, layer, i);

            n += x->off[at] || x->factor[at] != 1.0f || x->becomes[at] != i;
        }
        x->touched[layer] = n > 0;
        x->n += n;
    }
}

static uint64_t hash_of(const struct expert_edits *x)
{
    uint64_t h = HASH_START;
    size_t n = cells_of(x);

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &x->factor[i], sizeof bits);
        h = hash_add(hash_add(hash_add(h, x->off[i]), bits), x->becomes[i]);
    }
    return h ? h : 1;
}

/* ---- printing ---- */

static void print_off(const struct expert_edits *x, int layer, int n, struct strbuf *b)
{
    const uint8_t *off = x->off + expert_edits_at(x, layer, 0);
    int out = 0;
    bool only;

    for (int i = 0; i < n; i++)
        out += off[i];
    if (!out)
        return;
    only = out < n && out > n - out;
    strbuf_printf(b, "%s L%d/", only ? "only" : "off", layer);
    for (int i = 0, any = 0; i < n; i++)
        if (off[i] != only)
            strbuf_printf(b, "%sE%d", any++ ? "," : "", i);
    strbuf_puts(b, "; ");
}

/* A cycle of k experts as k - 1 swaps, the last one first. */
static void print_swaps(const struct expert_edits *x, int layer, int n, struct strbuf *b)
{
    const uint16_t *becomes = x->becomes + expert_edits_at(x, layer, 0);

    for (int i = 0; i < n; i++) {
        int least = i;

        for (int k = becomes[i]; k != i; k = becomes[k])
            least = k < least ? k : least;
        for (int k = i; least == i && becomes[k] != i; k = becomes[k])
            strbuf_printf(b, "swap L%d E%d E%d; ", layer, k, becomes[k]);
    }
}

static char *text_of(const struct expert_edits *x, const struct hparams *hp)
{
    struct strbuf b = {0};

    for (int layer = 0; layer < x->layers; layer++) {
        int n = routed(hp, layer);

        if (!x->touched[layer])
            continue;
        print_off(x, layer, n, &b);
        for (int i = 0; i < n; i++)
            if (x->factor[expert_edits_at(x, layer, i)] != 1.0f)
                strbuf_printf(&b, "weight L%d/E%d %.9g; ", layer, i,
                              (double)x->factor[expert_edits_at(x, layer, i)]);
        print_swaps(x, layer, n, &b);
    }
    if (b.len > 1 && !b.failed)
        b.data[b.len -= 2] = 0;
    return strbuf_take(&b, NULL);
}

/* ---- objects ---- */

int expert_edits_read(struct expert_edits **out, const struct expert_edits *from,
                      const struct hparams *hp, const char *const *lines, int n, struct error *e)
{
    struct expert_edits *x;
    int rc = 0, any = 0;

    *out = NULL;
    for (int layer = 0; layer < hp->n_layers; layer++)
        any |= routed(hp, layer);
    if (!any)
        return n ? error_set(e, ERR_USAGE, "expert edits: the model has no experts to choose from")
                 : 0;
    if (!(x = blank(hp)))
        return error_set(e, ERR_MEMORY, "no memory for expert edits");
    if (from)
        copy(x, from);
    for (int i = 0; i < n && rc == 0; i++)
        rc = take(&(struct line){hp, lines[i], lines[i], e}, x);
    count(x);
    if (rc == 0 && x->n) {
        x->hash = hash_of(x);
        if (!(x->text = text_of(x, hp)))
            rc = error_set(e, ERR_MEMORY, "no memory for expert edits");
    }
    if (rc == 0 && x->n)
        *out = x;
    else
        expert_edits_free(x);
    return rc;
}

struct expert_edits *expert_edits_share(struct expert_edits *x)
{
    if (x)
        __atomic_add_fetch(&x->refs, 1, __ATOMIC_RELAXED);
    return x;
}

void expert_edits_free(struct expert_edits *x)
{
    if (!x || __atomic_sub_fetch(&x->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    mem_free(x->text);
    mem_free(x->touched);
    mem_free(x->off);
    mem_free(x->factor);
    mem_free(x->becomes);
    mem_free(x);
}

bool expert_edits_equal(const struct expert_edits *a, const struct expert_edits *b)
{
    size_t n;

    if (a == b || !a || !b)
        return a == b;
    n = cells_of(a);
    return a->layers == b->layers && a->experts == b->experts &&
           memcmp(a->off, b->off, n * sizeof *a->off) == 0 &&
           memcmp(a->factor, b->factor, n * sizeof *a->factor) == 0 &&
           memcmp(a->becomes, b->becomes, n * sizeof *a->becomes) == 0;
}

bool expert_edits_marks(const struct expert_edits *x, int layer, int expert)
{
    size_t at;

    if (!x || layer < 0 || layer >= x->layers || expert < 0 || expert >= x->experts)
        return false;
    at = expert_edits_at(x, layer, expert);
    return x->off[at] || x->factor[at] != 1.0f || x->becomes[at] != expert;
}
