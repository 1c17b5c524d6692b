/* See routing.h. The formulas are those of rule 10 of engine/device/numerics.h. */
#include "engine/convert/onnx/routing.h"

#include <math.h>
#include <stdio.h>

static const char *softmax(struct onnx_graph *g, const char *x)
{
    const char *y = ONNX(g, "Softmax", x);

    onnx_set_int(g, "axis", -1);
    return y;
}

static const char *largest(struct onnx_graph *g, const char *x)
{
    return ONNX(g, "ReduceMax", x, ONNX_INTS(g, -1));
}

static const char *gather(struct onnx_graph *g, const char *x, const char *at)
{
    const char *y = ONNX(g, "GatherElements", x, at);

    onnx_set_int(g, "axis", -1);
    return y;
}

/* Scores (tokens, experts). */
static const char *scores_of(struct network *n, int layer, const char *x)
{
    const struct layer_weights *w = &n->m->layers[layer];
    const int64_t dims[] = {hparams_layer(&n->m->hp, layer)->ffn.experts, n->m->hp.hidden};
    const char *matrix, *bias = NULL, *y;
    char name[96];

    snprintf(name, sizeof name, "layers.%d.router", layer);
    matrix = onnx_store_values(n->s, name, 2, dims, w->router);
    if (w->score_bias) {
        snprintf(name, sizeof name, "layers.%d.router.bias", layer);
        bias = onnx_store_values(n->s, name, 1, dims, w->score_bias);
    }
    y = ONNX(n->g, "Gemm", x, matrix, bias);
    onnx_set_int(n->g, "transB", 1);
    return y;
}

/* One expert of SparseMixer (modeling_slimmoe.py): the likeliest of those left, weighted by the
 * softmax over those within the jitter's threshold. Removes it from *left; returns its weight in
 * its column. */
static const char *mix_one(struct network *n, const struct ffn_shape *s, const char *scores,
                           const char **left)
{
    struct onnx_graph *g = n->g;
    const char *most = largest(g, *left), *best = ONNX(g, "ArgMax", *left), *far, *p, *column,
               *never = onnx_float(g, -INFINITY);

    onnx_set_int(g, "axis", -1);
    onnx_set_int(g, "keepdims", 1);
    far = ONNX(g, "Div", ONNX(g, "Sub", most, scores),
               ONNX(g, "Max", ONNX(g, "Abs", scores), most));
    far = ONNX(g, "Greater", far, onnx_float(g, 2.0f * s->router.jitter));
    p = softmax(g, ONNX(g, "Where", far, never, *left));
    column = ONNX(g, "Equal", best,
                  ONNX(g, "Range", onnx_int(g, 0), onnx_int(g, s->experts), onnx_int(g, 1)));
    *left = ONNX(g, "Where", column, never, *left);
    return ONNX(g, "Where", column, gather(g, p, best), onnx_float(g, 0.0f));
}

static const char *sparse_mixer(struct network *n, const struct ffn_shape *s, const char *scores)
{
    const char *left = scores, *sum = NULL;

    for (int i = 0; i < s->used; i++) {
        const char *one = mix_one(n, s, scores, &left);

        sum = sum ? ONNX(n->g, "Add", sum, one) : one;
    }
    return sum;
}

/* The values to choose by: the likelihoods, with the layer's bias if it has one. */
static const char *choice_of(struct network *n, int layer, const char *p)
{
    const struct layer_weights *w = &n->m->layers[layer];
    const int64_t experts = hparams_layer(&n->m->hp, layer)->ffn.experts;
    char name[96];

    if (!w->router_bias)
        return p;
    snprintf(name, sizeof name, "layers.%d.router.choice", layer);
    return ONNX(n->g, "Add", p, onnx_store_values(n->s, name, 1, &experts, w->router_bias));
}

static const char *largest_few(struct network *n, int layer, const struct ffn_shape *s,
                               const char *scores)
{
    struct onnx_graph *g = n->g;
    const char *p = s->router.kind == ROUTER_SIGMOID ? ONNX(g, "Sigmoid", scores)
                                                     : softmax(g, scores);
    const char *at, *weights, *sum, *none, *out;

    (void)ONNX(g, "TopK", choice_of(n, layer, p), ONNX_INTS(g, s->used));
    at = onnx_mtp_output(g);
    weights = gather(g, p, at);
    if (s->router.normalised) {
        sum = ONNX(g, "ReduceSum", weights, ONNX_INTS(g, -1));
        if (s->router.floor != 0.0f)
            sum = ONNX(g, "Add", sum, onnx_float(g, s->router.floor));
        weights = ONNX(g, "Div", weights, sum);
    }
    weights = network_scale(n, weights, s->router.factor);
    none = ONNX(g, "ConstantOfShape", ONNX(g, "Shape", scores));
    out = ONNX(g, "ScatterElements", none, at, weights);
    onnx_set_int(g, "axis", -1);
    return out;
}

const char *network_route(struct network *n, int layer, const char *x)
{
    const struct ffn_shape *s = &hparams_layer(&n->m->hp, layer)->ffn;
    const char *scores = scores_of(n, layer, x);

    return s->router.kind == ROUTER_SPARSEMIXER ? sparse_mixer(n, s, scores)
                                                : largest_few(n, layer, s, scores);
}
