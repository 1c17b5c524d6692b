/* See network.h. */
#include "engine/convert/onnx/network.h"

#include "engine/convert/onnx/attention.h"
#include "engine/convert/onnx/feed_forward.h"
#include "engine/convert/onnx/parts.h"

#include <stdio.h>
#include <string.h>

/* ---- unsupported ---- */

static const char *mixer_lacks(const struct mixer_shape *s, const struct mixer_shape *common)
{
    if (s->kind != MIXER_ATTENTION)
        return shape_mixer_word(s->kind);
    if (s->sinks)
        return "attention sinks";
    if (s->gated)
        return "gated attention";
    if (s->qk_norm_turned)
        return "norms behind the rotation";
    if (s->scale_growth != 0.0f)
        return "scores that grow with the position";
    if (s->values_are_keys || s->value_norm || s->value_factor != 0.0f)
        return "values that are keys, or normed";
    if (s->second_rope || s->rope == ROPE_PROPORTIONAL)
        return "a second rotary embedding";
    return s->rope != ROPE_NONE && s->rope_dims != common->rope_dims
               ? "layers that rotate parts of different width"
               : NULL;
}

static const char *ffn_lacks(const struct ffn_shape *s, bool microsoft)
{
    if (s->kind != FFN_ROUTED && s->kind != FFN_DENSE)
        return shape_ffn_word(s->kind);
    if (s->activation == ACTIVATION_CLAMPED_SWIGLU || s->activation == ACTIVATION_CLAMPED_SILU ||
        s->activation == ACTIVATION_BOUNDED_SILU)
        return shape_activation_word(s->activation);
    if (!s->experts)
        return NULL;
    if (s->bias)
        return "biases of experts";
    if (s->router.groups > 1)
        return "groups of experts";
    if (s->router.expert_scales)
        return "scales of experts";
    if (s->router.early || s->router.on_input)
        return s->router.early ? "a router before the mixer" : "weighted inputs of experts";
    if (s->router.row)
        return "a router by a row that goes through the layers";
    if (s->router.identities)
        return "experts that are identities";
    return microsoft && s->activation != ACTIVATION_SILU
               ? "an activation that com.microsoft.MoE has not"
               : NULL;
}

static const char *layer_lacks(const struct layer_shape *s)
{
    return s->parallel                    ? "operators beside each other"
           : s->shortcut != SHORTCUT_NONE ? "shortcut-connected experts"
           : s->weighted                  ? "a weighted stream"
           : s->mixer.chunked             ? "chunks of attention"
           : s->norms.eps_after != 0.0f   ? "an epsilon of norms after operators"
           : s->ffn.grouped               ? "adjugate experts"
           : s->ffn.shared_factor != 0.0f ? "a factor of the shared expert"
                                          : NULL;
}

static const char *model_lacks(const struct hparams *hp)
{
    return hp->original_context     ? "longrope (tables chosen by the length)"
           : hp->embedding_width    ? "embeddings of another width than the layers"
           : hp->embedding_normed   ? "normed embeddings"
           : hp->streams            ? "several residual streams"
           : hp->embedding_weighted ? "weighted embeddings"
           : !hp->context_max       ? "no known context"
                                    : NULL;
}

int network_possible(const struct hparams *hp, bool microsoft, struct error *e)
{
    const char *lack = model_lacks(hp);

    if (lack)
        return error_set(e, ERR_MODEL, "it has %s, which ONNX export does not write", lack);
    for (int l = 0; l < hp->n_layers; l++) {
        const struct layer_shape *s = hparams_layer(hp, l);

        lack = mixer_lacks(&s->mixer, &hp->common.mixer);
        lack = lack ? lack : ffn_lacks(&s->ffn, microsoft);
        lack = lack ? lack : layer_lacks(s);
        lack = lack ? lack : s->inputs ? "inputs of its own" : NULL;
        lack = lack ? lack : s->mixer.keys_of ? "keys of another layer" : NULL;
        lack = lack ? lack : s->scaled ? "a scale of the layer" : NULL;
        if (lack)
            return error_set(e, ERR_MODEL, "layer %d has %s, which ONNX export does not write", l,
                             lack);
    }
    return 0;
}

/* ---- supported ---- */

static void declare_inputs(struct onnx_graph *g)
{
    struct onnx_dim dims[] = {{"batch_size", 0}, {"sequence_length", 0}};

    onnx_input(g, "input_ids", ONNX_INT64, 2, dims);
    onnx_input(g, "position_ids", ONNX_INT64, 2, dims);
    dims[1].name = "total_sequence_length";
    onnx_input(g, "attention_mask", ONNX_INT64, 2, dims);
}

static struct matrix rows_of(const struct tensor_view *t)
{
    return (struct matrix){.type = t->type,
                           .rows = (int)t->dims[0],
                           .cols = (int)t->dims[1],
                           .data = t->data,
                           .bytes = t->bytes};
}

/* Rows of a table as F32: half-precision ones are widened after the selection. */
static const char *chosen_rows(struct network *n, const char *table, enum onnx_type type,
                               const char *at)
{
    const char *rows = ONNX(n->g, "Gather", table, at);

    return type == ONNX_FLOAT ? rows : onnx_cast(n->g, rows, ONNX_FLOAT);
}

static const char *add_positions(struct network *n, const struct matrix *positions, const char *x)
{
    struct onnx_graph *g = n->g;
    enum onnx_type type = ONNX_FLOAT;
    const char *table = onnx_store_matrix(n->s, "positions", positions, &type),
               *at = "position_ids";

    if (n->m->hp.position_offset)
        at = ONNX(g, "Add", at, onnx_int(g, n->m->hp.position_offset));
    return ONNX(g, "Add", x, chosen_rows(n, table, type, at));
}

/* positions: NULL if none are learned. */
static const char *embed(struct network *n, const struct matrix *embeddings,
                         const struct matrix *positions)
{
    const struct hparams *hp = &n->m->hp;
    const char *x;

    n->embeddings = onnx_store_matrix(n->s, "embeddings", embeddings, &n->embeddings_type);
    x = chosen_rows(n, n->embeddings, n->embeddings_type, "input_ids");
    x = network_scale(n, x, hp->embedding_scale);
    if (positions)
        x = add_positions(n, positions, x);
    return ONNX(n->g, "Reshape", x, ONNX_INTS(n->g, -1, hp->hidden));
}

/* Adds an operator's output to x, with the norms before or after. */
static const char *around(struct network *n, int layer, const char *word,
                          const struct norm_weights *before, const struct norm_weights *after,
                          const char *x,
                          const char *(*operate)(struct network *n, int layer, const char *x))
{
    const struct norms_shape *s = &hparams_layer(&n->m->hp, layer)->norms;
    char name[2][96];
    const char *y;

    snprintf(name[0], sizeof *name, "layers.%d.%s.norm", layer, word);
    snprintf(name[1], sizeof *name, "layers.%d.%s.after", layer, word);
    y = operate(n, layer, s->before ? network_norm(n, name[0], s, before, x) : x);
    if (!y)
        return NULL;
    if (s->after && !norms_sum(s))
        y = network_norm(n, name[1], s, after, y);
    x = ONNX(n->g, "Add", x, network_scale(n, y, n->m->hp.residual_scale));
    return norms_sum(s) ? network_norm(n, name[1], s, after, x) : x;
}

static const char *layer(struct network *n, int l, const char *x)
{
    const struct layer_weights *w = &n->m->layers[l];

    onnx_scope(n->g, "layers.%d.", l);
    x = around(n, l, "attention", &w->attention_norm, &w->attention_after, x, network_attention);
    return x ? around(n, l, "feed_forward", &w->expert_norm, &w->expert_after, x,
                      network_feed_forward)
             : NULL;
}

/* The head's product; a head tied to the embeddings shares their weights. */
static const char *logits_of(struct network *n, const char *x)
{
    const struct matrix *w = &n->m->head;
    const char *table = n->embeddings;

    if (w->data != n->m->embeddings.data || w->bias)
        return network_linear(n, "head", w, x);
    if (n->embeddings_type != ONNX_FLOAT)
        table = onnx_cast(n->g, table, ONNX_FLOAT);
    x = ONNX(n->g, "Gemm", x, table);
    onnx_set_int(n->g, "transB", 1);
    return x;
}

static void head(struct network *n, const char *x)
{
    const struct hparams *hp = &n->m->hp;
    const struct norms_shape *norms = &hp->common.norms;
    struct onnx_graph *g = n->g;
    struct onnx_dim dims[] = {{"batch_size", 0}, {"sequence_length", 0}, {NULL, hp->n_vocab}};
    const char *shape;

    onnx_scope(g, "%s", "");
    x = network_norm(n, "norm", norms, &n->m->output_norm, x);
    x = logits_of(n, x);
    x = network_scale(n, x, hp->logit_divisor != 0.0f ? 1.0f / hp->logit_divisor : 0.0f);
    if (hp->logit_cap != 0.0f)
        x = ONNX(g, "Mul", ONNX(g, "Tanh", ONNX(g, "Div", x, onnx_float(g, hp->logit_cap))),
                 onnx_float(g, hp->logit_cap));
    shape = ONNX(g, "Concat", n->size, ONNX_INTS(g, hp->n_vocab));
    onnx_set_int(g, "axis", 0);
    (void)ONNX(g, "Reshape", x, shape);
    (void)onnx_call(g, "logits");
    onnx_output(g, "logits", ONNX_FLOAT, 3, dims);
}

int network_build(struct onnx_graph *g, struct onnx_store *s, const struct model *m, bool microsoft,
                  struct matrix tables[2], struct error *e)
{
    struct network n = {.g = g, .s = s, .m = m, .microsoft = microsoft};
    const char *x;

    tables[0] = rows_of(&m->embeddings);
    if (m->positions.data)
        tables[1] = rows_of(&m->positions);
    declare_inputs(g);
    network_begin_attention(&n);
    x = embed(&n, &tables[0], m->positions.data ? &tables[1] : NULL);
    for (int l = 0; l < m->hp.n_layers && x; l++)
        x = layer(&n, l, x);
    if (!x)
        return error_set(e, ERR_MEMORY, "out of memory for the ONNX graph");
    head(&n, x);
    return 0;
}
