/* Plans: creating, copying and comparing them. Any thread; a plan is one allocation, so copying and
 * freeing cannot half-succeed. */
#include "engine/placement/plan.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct plan *plan_new(const char *name, int n_layers, int n_experts)
{
    size_t cells = (size_t)n_layers * (size_t)n_experts;
    struct plan *p = n_layers < 0 || n_experts < 0
                         ? NULL
                         : mem_alloc(1, sizeof *p + (size_t)n_layers + 2 * cells);

    if (!p)
        return NULL;
    snprintf(p->name, sizeof p->name, "%s", name ? name : "");
    p->n_layers = n_layers;
    p->n_experts = n_experts;
    p->attention = (uint8_t *)(p + 1);
    p->experts = p->attention + n_layers;
    p->streamed = p->experts + cells;
    return p;
}

struct plan *plan_copy(const struct plan *p)
{
    struct plan *q = p ? plan_new(p->name, p->n_layers, p->n_experts) : NULL;

    if (!q)
        return NULL;
    plan_assign(q, p);
    return q;
}

void plan_assign(struct plan *to, const struct plan *from)
{
    size_t cells = (size_t)from->n_layers * (size_t)from->n_experts;

    assert(to->n_layers == from->n_layers && to->n_experts == from->n_experts);
    memcpy(to->name, from->name, sizeof to->name);
    memcpy(to->attention, from->attention, (size_t)from->n_layers);
    memcpy(to->experts, from->experts, cells);
    memcpy(to->streamed, from->streamed, cells);
    to->head = from->head;
    to->lends = from->lends;
}

void plan_free(struct plan *p)
{
    mem_free(p);
}

int plan_equal(const struct plan *a, const struct plan *b)
{
    return plan_diff(a, b, NULL) == 0;
}

int plan_diff(const struct plan *a, const struct plan *b, struct plan_difference *out)
{
    struct plan_difference d = {0};
    int cells;

    if (!a || !b || a->n_layers != b->n_layers || a->n_experts != b->n_experts)
        return -1;
    cells = a->n_layers * a->n_experts;
    for (int i = 0; i < a->n_layers; i++)
        d.attention += a->attention[i] != b->attention[i];
    for (int i = 0; i < cells; i++)
        d.experts += a->experts[i] != b->experts[i] || a->streamed[i] != b->streamed[i];
    d.head = a->head != b->head;
    if (out)
        *out = d;
    return d.attention + d.experts + d.head;
}

int plan_uses_devices(const struct plan *p)
{
    int any = p->head != 0;

    assert(p);
    for (int i = 0; i < p->n_layers; i++)
        any |= p->attention[i] != 0;
    for (int i = 0; i < p->n_layers * p->n_experts; i++)
        any |= p->experts[i] != 0;
    return any;
}

bool plan_uses(const struct plan *p, int device)
{
    bool any = p->head == device;

    for (int l = 0; l < p->n_layers; l++)
        any |= p->attention[l] == device;
    for (int i = 0; i < p->n_layers * p->n_experts; i++)
        any |= p->experts[i] == device;
    return any;
}
