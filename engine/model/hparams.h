/* Hyperparameters of a model: sizes and constants read from the metadata, checked against the
 * tensor shapes. Plain data, immutable after load. */
#ifndef ENGINE_MODEL_HPARAMS_H
#define ENGINE_MODEL_HPARAMS_H

#include "engine/model/shape.h"

#include <stdbool.h>
#include <stdint.h>

#define HPARAMS_STOPS 16
#define HPARAMS_EMBEDDING_MOST 4096 /* embedding_width */
#define HPARAMS_STREAMS_MOST 8      /* streams */

/* What several residual streams are. */
enum stream_kind {
    /* alternating updates (Baykal et al., arXiv:2301.13310; Gemma 3n): layers see and change the
     * first one, the others are predicted and corrected from it */
    STREAMS_ALTERNATING,
    /* hyper-connections (Zhu et al., arXiv:2409.19606): every operator reads a mixture of all
     * streams, and its output is added to each with a weight of its own. Gated: the mixture has a
     * gate per value, of low rank (Qwen4); mixed: the streams are mixed among themselves as well,
     * by a doubly stochastic matrix (Xie et al., arXiv:2512.24880; DeepSeek V4) */
    STREAMS_GATED,
    STREAMS_MIXED
};

struct hparams {
    int n_layers, hidden, n_vocab;
    int context_max; /* trained context */
    /* The layers' shape in general, and of each layer, owned by the model (NULL: all are `common`).
     * Use hparams_layer to get a layer's. */
    struct layer_shape common, *layers;
    /* Maxima over all layers, including shared experts, dense layers (shape_experts, shape_used)
     * and identities: sizes for lists of layers x experts and of chosen experts. Set by
     * hparams_count. */
    int n_experts, n_experts_used;
    float rope_theta;
    /* Embeddings and the operators' outputs are multiplied, logits divided by these; 0: by 1 */
    float embedding_scale, residual_scale, logit_divisor;
    float logit_cap; /* logits become cap * tanh(logit / cap); 0: no cap */
    bool head_bias, tied_embeddings;
    bool embedding_normed; /* embeddings are RMS-normed, without weights (Muse) */
    /* Width of embeddings and head if it is not `hidden`, with two matrices in between; 0: it is.
     * Rows of a table of learned positions before that of position 0. */
    int embedding_width, position_offset;
    /* Number of residual streams, 0: one. Alternating ones: all layers have inputs; streams_scaled:
     * what those are gated by has weights. stream_rank: of gates (a multiple of 16); stream_rounds,
     * stream_eps: of what makes a mixing matrix doubly stochastic. laurel: rank of the learned
     * residual beside the mixer: the stream becomes (x + mixer + h + norm(out(in(h)))) / sqrt(2), h
     * being the mixer's input; 0: none */
    int streams, laurel;
    enum stream_kind stream_kind;
    bool streams_scaled;
    int stream_rank, stream_rounds;
    float stream_eps;
    bool shortcuts;          /* some layer leaves what a later one adds; set by hparams_count */
    bool embedding_weighted; /* embeddings are shifted, then multiplied, by learned values (ZAYA) */
    int router_row;          /* the largest router_shape.row; set by hparams_count */
    /* Frequencies would change with every token beyond context_max (dynamic scaling), which is not
     * computed: the context is limited to it */
    bool rope_within;
    /* Longrope has a second rotary table (long_*), for sequences beyond this; 0: none */
    int original_context;
    /* Rotary embeddings of layers with mixer_shape.second_rope: pair i rotates by theta^(-2i / of)
     * per token; dims 0: no such layer */
    struct {
        float theta;
        int dims, of;
    } second_rope;
    /* Rotary frequencies are divided by these (rope_dims/2, owned by the model; NULL: by 1),
     * cosines and sines multiplied with the mscale */
    float *short_factor, *long_factor;
    float short_mscale, long_mscale;
    int bos, unk; /* -1: none */
    bool add_bos;
    int n_stops, stops[HPARAMS_STOPS]; /* end-of-generation ids */
};

static inline const struct layer_shape *hparams_layer(const struct hparams *hp, int layer)
{
    return hp->layers ? &hp->layers[layer] : &hp->common;
}

/* Whether the token ends a generation. */
static inline bool hparams_is_stop(const struct hparams *hp, int id)
{
    int i = 0;

    while (i < hp->n_stops && hp->stops[i] != id)
        i++;
    return i < hp->n_stops;
}

/* Values that a token brings for the layers (layer_shape.inputs), one layer's after the other's. */
static inline int hparams_inputs(const struct hparams *hp)
{
    return hp->n_layers * hparams_layer(hp, 0)->inputs;
}

/* Whether the streams are hyper-connected: x is then what the next operator reads. */
static inline bool hparams_hyper(const struct hparams *hp)
{
    return hp->streams > 0 && hp->stream_kind != STREAMS_ALTERNATING;
}

/* Of hyper-connections: weights that a row keeps while an operator computes, in whole vectors. */
static inline int hparams_stream_weights(const struct hparams *hp)
{
    return (hp->streams * (hp->streams + 1) + 15) / 16 * 16;
}

/* Values of the streams in a row: the first one as it was predicted, and the others;
 * hyper-connected: the operator's output, every stream, and those weights. */
static inline int hparams_stream_values(const struct hparams *hp)
{
    return hparams_hyper(hp) ? (hp->streams + 1) * hp->hidden + hparams_stream_weights(hp)
                             : hp->streams * hp->hidden;
}

/* What a row of a pass has besides the stream: those inputs; then the streams; then what a layer's
 * experts leave to the next one; then the rows that routers leave to those of the next layers
 * (hparams_router_row). */
static inline int hparams_beside(const struct hparams *hp)
{
    return hparams_inputs(hp) + hparams_stream_values(hp) + (hp->shortcuts ? hp->hidden : 0) +
           2 * hp->router_row;
}

/* Where among those the streams are; hyper-connected only. */
static inline int hparams_streams_at(const struct hparams *hp)
{
    return hparams_inputs(hp) + hp->hidden;
}

/* Values of a hidden state as an MTP block takes and makes it: hyper-connected, all streams. */
static inline int hparams_state_values(const struct hparams *hp)
{
    return hparams_hyper(hp) ? hp->streams * hp->hidden : hp->hidden;
}

/* Where among those a layer's router leaves its row: two take turns, so that a layer's can be
 * computed again, or ahead of time. */
static inline int hparams_router_row(const struct hparams *hp, int layer)
{
    return hparams_beside(hp) - (1 + layer % 2) * hp->router_row;
}

/* What an operator adds to the residual stream is multiplied with this first. */
static inline float hparams_residual(const struct hparams *hp)
{
    return hp->residual_scale != 0.0f ? hp->residual_scale : 1.0f;
}

static inline void hparams_count(struct hparams *hp)
{
    hp->n_experts = hp->n_experts_used = 0;
    hp->shortcuts = false;
    hp->router_row = 0;
    for (int l = 0; l < hp->n_layers; l++) {
        const struct layer_shape *s = hparams_layer(hp, l);

        int listed = shape_experts(s) + s->ffn.router.identities;

        hp->n_experts = listed > hp->n_experts ? listed : hp->n_experts;
        hp->shortcuts |= s->shortcut != SHORTCUT_NONE;
        hp->router_row = s->ffn.router.row > hp->router_row ? s->ffn.router.row : hp->router_row;
        hp->n_experts_used = shape_used(s) > hp->n_experts_used ? shape_used(s)
                                                                : hp->n_experts_used;
    }
}

#endif
