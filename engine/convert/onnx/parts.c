/* See parts.h. */
#include "engine/convert/onnx/parts.h"

#include <stdio.h>

#define GELU_ROOT 0.7978845608028654f /* sqrt(2 / pi) */
#define GELU_CUBE 0.044715f

const char *network_linear(struct network *n, const char *name, const struct matrix *w,
                           const char *x)
{
    const int64_t rows = w->rows;
    char bias[96];
    const char *m = onnx_store_matrix(n->s, name, w, NULL), *b = NULL, *y;

    if (w->bias) {
        snprintf(bias, sizeof bias, "%.80s.bias", name);
        b = onnx_store_values(n->s, bias, 1, &rows, w->bias);
    }
    y = ONNX(n->g, "Gemm", x, m, b);
    onnx_set_int(n->g, "transB", 1);
    return y;
}

const char *network_rms(struct network *n, const char *name, float eps, const float *weight,
                        int64_t values, const char *x)
{
    struct onnx_graph *g = n->g;
    const char *w = onnx_store_values(n->s, name, 1, &values, weight),
               *squares = ONNX(g, "Mul", x, x),
               *mean = ONNX(g, "ReduceMean", squares, ONNX_INTS(g, -1)),
               *root = ONNX(g, "Sqrt", ONNX(g, "Add", mean, onnx_float(g, eps)));

    return ONNX(g, "Mul", ONNX(g, "Div", x, root), w);
}

static const char *layer_norm(struct network *n, const char *name, float eps,
                              const struct norm_weights *w, const char *x)
{
    const int64_t hidden = n->m->hp.hidden;
    char bias[96];
    const char *weight = onnx_store_values(n->s, name, 1, &hidden, w->weight), *b = NULL, *y;

    if (w->bias) {
        snprintf(bias, sizeof bias, "%.80s.bias", name);
        b = onnx_store_values(n->s, bias, 1, &hidden, w->bias);
    }
    y = ONNX(n->g, "LayerNormalization", x, weight, b);
    onnx_set_int(n->g, "axis", -1);
    onnx_set_float(n->g, "epsilon", eps);
    return y;
}

const char *network_norm(struct network *n, const char *name, const struct norms_shape *shape,
                         const struct norm_weights *w, const char *x)
{
    if (!w->weight)
        return x;
    return shape->kind == NORM_LAYER
               ? layer_norm(n, name, shape->eps, w, x)
               : network_rms(n, name, shape->eps, w->weight, n->m->hp.hidden, x);
}

const char *network_scale(struct network *n, const char *x, float by)
{
    return by == 0.0f || by == 1.0f ? x : ONNX(n->g, "Mul", x, onnx_float(n->g, by));
}

/* The tanh form. */
static const char *gelu(struct onnx_graph *g, const char *x)
{
    const char *cube = ONNX(g, "Mul", ONNX(g, "Mul", x, x), x),
               *inner = ONNX(g, "Add", x, ONNX(g, "Mul", cube, onnx_float(g, GELU_CUBE))),
               *t = ONNX(g, "Tanh", ONNX(g, "Mul", inner, onnx_float(g, GELU_ROOT))),
               *more = ONNX(g, "Add", t, onnx_float(g, 1.0f));

    return ONNX(g, "Mul", ONNX(g, "Mul", x, onnx_float(g, 0.5f)), more);
}

const char *network_activate(struct network *n, enum activation a, const char *gate, const char *up)
{
    struct onnx_graph *g = n->g;
    const char *positive;

    switch (a) {
    case ACTIVATION_GELU: return ONNX(g, "Mul", gelu(g, gate), up);
    case ACTIVATION_GELU_PLAIN: return gelu(g, up);
    case ACTIVATION_RELU: return ONNX(g, "Relu", up);
    case ACTIVATION_REGLU: return ONNX(g, "Mul", ONNX(g, "Relu", gate), up);
    case ACTIVATION_RELU2:
        positive = ONNX(g, "Relu", up);
        return ONNX(g, "Mul", positive, positive);
    default: return ONNX(g, "Mul", ONNX(g, "Mul", gate, ONNX(g, "Sigmoid", gate)), up);
    }
}

const char *network_heads(struct network *n, const char *x, int a, int b)
{
    const char *shape = ONNX(n->g, "Concat", n->size, ONNX_INTS(n->g, a, b));

    onnx_set_int(n->g, "axis", 0);
    return ONNX(n->g, "Reshape", x, shape);
}
