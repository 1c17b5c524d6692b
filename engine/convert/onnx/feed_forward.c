/* See feed_forward.h. Routed experts are a Loop over those that any token of the pass uses: with a
 * node per expert, onnxruntime's start would take minutes, and computing all of them for every
 * token reads all of their weights. */
#include "engine/convert/onnx/feed_forward.h"

#include "engine/base/mem.h"
#include "engine/convert/onnx/routing.h"

#include <stdio.h>

#define PARTS 3        /* most matrices of an expert */
#define TINY 1e-30f    /* its logarithm represents zero weight */
#define NO_LIMIT 3e38f /* of com.microsoft.MoE's swiglu */

/* ---- shared or dense ---- */

static const char *dense(struct network *n, int layer, const struct expert_weights *w,
                         enum activation a, const char *x)
{
    const char *gate = NULL, *up;
    char name[96];

    snprintf(name, sizeof name, "layers.%d.dense.gate", layer);
    if (activation_gated(a))
        gate = network_linear(n, name, &w->gate, x);
    snprintf(name, sizeof name, "layers.%d.dense.up", layer);
    up = network_linear(n, name, &w->up, x);
    snprintf(name, sizeof name, "layers.%d.dense.down", layer);
    return network_linear(n, name, &w->down, network_activate(n, a, gate, up));
}

/* The shared expert's or a dense layer's output, times its gate if it has one. */
static const char *always(struct network *n, int layer, const char *x)
{
    const struct ffn_shape *s = &hparams_layer(&n->m->hp, layer)->ffn;
    const struct layer_weights *w = &n->m->layers[layer];
    const int64_t dims[] = {1, n->m->hp.hidden};
    const char *y = dense(n, layer, &w->experts[s->experts], s->activation, x), *gate;
    char name[96];

    if (s->shared_gate != SHARED_SIGMOID || !w->shared_router)
        return y;
    snprintf(name, sizeof name, "layers.%d.shared.gate", layer);
    gate = ONNX(n->g, "Gemm", x, onnx_store_values(n->s, name, 2, dims, w->shared_router));
    onnx_set_int(n->g, "transB", 1);
    return ONNX(n->g, "Mul", y, ONNX(n->g, "Sigmoid", gate));
}

/* ---- routed experts, with a loop ---- */

/* All matrices of a layer's experts in one tensor, and the indices of each expert's. */
struct slots {
    const char *all, *at[PARTS];
};

static int parts_of(const struct expert_weights *w, enum activation a,
                    const struct matrix *parts[PARTS])
{
    int n = 0;

    if (activation_gated(a))
        parts[n++] = &w->gate;
    parts[n++] = &w->up;
    parts[n++] = &w->down;
    return n;
}

/* Indices of the matrices of one kind: (experts). */
static const char *numbers(struct network *n, const int64_t *at, int experts, int parts,
                           int64_t *list)
{
    for (int e = 0; e < experts; e++)
        list[e] = at[e * parts];
    return onnx_ints(n->g, experts, list);
}

static bool make_slots(struct network *n, int layer, struct slots *out)
{
    const struct ffn_shape *s = &hparams_layer(&n->m->hp, layer)->ffn;
    const struct expert_weights *w = n->m->layers[layer].experts;
    const struct matrix *one[PARTS], **matrices;
    int parts = parts_of(w, s->activation, one), all = parts * s->experts;
    int64_t *at = mem_alloc((size_t)all * 2, sizeof *at);
    char name[96];
    bool made;

    matrices = mem_alloc((size_t)all, sizeof *matrices);
    made = at && matrices;
    for (int e = 0; made && e < s->experts; e++)
        (void)parts_of(&w[e], s->activation, matrices + e * parts);
    snprintf(name, sizeof name, "layers.%d.experts", layer);
    if (made)
        out->all = onnx_store_slots(n->s, name, matrices, all, at);
    for (int i = 0; made && i < parts; i++)
        out->at[i] = numbers(n, at + i, s->experts, parts, at + all);
    mem_free(matrices);
    mem_free(at);
    return made;
}

/* Matrix `part` of the expert: (rows, cols). */
static const char *slot(struct network *n, const struct slots *s, int part, const char *expert,
                        const struct matrix *like)
{
    const char *number = ONNX(n->g, "Gather", s->at[part], expert);

    return ONNX(n->g, "Reshape", ONNX(n->g, "Gather", s->all, number),
                ONNX_INTS(n->g, like->rows, like->cols));
}

static const char *product(struct network *n, const char *x, const char *w)
{
    const char *y = ONNX(n->g, "Gemm", x, w);

    onnx_set_int(n->g, "transB", 1);
    return y;
}

/* Applies one expert to rows x (met, hidden). */
static const char *expert_rows(struct network *n, const struct ffn_shape *s,
                               const struct expert_weights *like, const struct slots *slots,
                               const char *expert, const char *x)
{
    const struct matrix *one[PARTS];
    int parts = parts_of(like, s->activation, one), i = 0;
    const char *gate = NULL, *up;

    if (parts == PARTS) {
        gate = product(n, x, slot(n, slots, i, expert, one[i]));
        i++;
    }
    up = product(n, x, slot(n, slots, i, expert, one[i]));
    i++;
    return product(n, network_activate(n, s->activation, gate, up),
                   slot(n, slots, i, expert, one[i]));
}

/* One step: the rows that use expert met[number], its output times their weights, added. */
static const char *loop_step(struct network *n, int layer, const struct slots *slots,
                             const struct onnx_body *b, const char *met, const char *weights,
                             const char *x)
{
    struct onnx_graph *g = n->g;
    const char *expert = ONNX(g, "Gather", met, b->number),
               *column = ONNX(g, "Gather", weights, expert), *rows, *y, *last = ONNX_INTS(g, -1),
               *sum;

    onnx_set_int(g, "axis", 1);
    rows = ONNX(g, "Reshape", ONNX(g, "NonZero", column), last);
    y = expert_rows(n, &hparams_layer(&n->m->hp, layer)->ffn, n->m->layers[layer].experts, slots,
                    expert, ONNX(g, "Gather", x, rows));
    y = ONNX(g, "Mul", y, ONNX(g, "Unsqueeze", ONNX(g, "Gather", column, rows), last));
    sum = ONNX(g, "ScatterND", b->carried, ONNX(g, "Unsqueeze", rows, last), y);
    onnx_set_string(g, "reduction", "add");
    return sum;
}

static const char *looped(struct network *n, int layer, const char *weights, const char *x)
{
    struct onnx_graph *g = n->g;
    struct slots slots = {0};
    struct onnx_body body;
    const char *met, *count, *none, *highest, *step;

    if (!make_slots(n, layer, &slots))
        return NULL;
    highest = ONNX(g, "ReduceMax", weights, ONNX_INTS(g, 0));
    onnx_set_int(g, "keepdims", 0);
    met = ONNX(g, "Reshape", ONNX(g, "NonZero", highest), ONNX_INTS(g, -1));
    count = ONNX(g, "Size", met);
    none = ONNX(g, "ConstantOfShape", ONNX(g, "Shape", x));
    body = onnx_loop_begin(g);
    step = loop_step(n, layer, &slots, &body, met, weights, x);
    return onnx_loop_end(g, &body, step, count, none);
}

/* ---- routed experts, with com.microsoft.MoE ---- */

/* Rows of gate and up alternate in its first matrix. */
static bool make_stacks(struct network *n, int layer, const char **inner, const char **down)
{
    int experts = hparams_layer(&n->m->hp, layer)->ffn.experts;
    const struct expert_weights *w = n->m->layers[layer].experts;
    const struct matrix **lists = mem_alloc((size_t)experts * PARTS, sizeof *lists);
    char name[96];

    if (!lists)
        return false;
    for (int e = 0; e < experts; e++) {
        lists[e] = &w[e].gate;
        lists[experts + e] = &w[e].up;
        lists[2 * experts + e] = &w[e].down;
    }
    snprintf(name, sizeof name, "layers.%d.experts.gate_up", layer);
    *inner = onnx_store_stack(n->s, name, lists, lists + experts, experts);
    snprintf(name, sizeof name, "layers.%d.experts.down", layer);
    *down = onnx_store_stack(n->s, name, lists + 2 * experts, NULL, experts);
    mem_free(lists);
    return true;
}

/* The operator takes a softmax over its input and makes the chosen weights sum to 1: given
 * logarithms of the weights it reproduces them, except their sum. */
static const char *by_operator(struct network *n, int layer, const char *weights, const char *x)
{
    const struct ffn_shape *s = &hparams_layer(&n->m->hp, layer)->ffn;
    struct onnx_graph *g = n->g;
    const char *inner, *down, *y,
        *logs = ONNX(g, "Log", ONNX(g, "Max", weights, onnx_float(g, TINY))),
        *sum = ONNX(g, "ReduceSum", weights, ONNX_INTS(g, -1));

    if (!make_stacks(n, layer, &inner, &down))
        return NULL;
    y = ONNX(g, "MoE", x, logs, inner, "", down);
    onnx_domain(g, "com.microsoft");
    onnx_set_int(g, "k", s->used);
    onnx_set_int(g, "normalize_routing_weights", 1);
    onnx_set_string(g, "activation_type", "swiglu");
    onnx_set_int(g, "swiglu_fusion", 1);
    onnx_set_float(g, "activation_alpha", 1.0f);
    onnx_set_float(g, "activation_beta", 0.0f);
    onnx_set_float(g, "swiglu_limit", NO_LIMIT);
    return ONNX(g, "Mul", y, sum);
}

/* ---- the layer ---- */

const char *network_feed_forward(struct network *n, int layer, const char *x)
{
    const struct ffn_shape *s = &hparams_layer(&n->m->hp, layer)->ffn;
    const char *routed = NULL, *weights, *shared;

    if (s->experts) {
        weights = network_route(n, layer, x);
        routed = n->microsoft ? by_operator(n, layer, weights, x) : looped(n, layer, weights, x);
        if (!routed || !s->shared)
            return routed;
    }
    shared = always(n, layer, x);
    return routed ? ONNX(n->g, "Add", routed, shared) : shared;
}
