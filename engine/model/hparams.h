/* What a model is: sizes and constants read from the metadata, checked against the tensor shapes.
 * Plain data, immutable after load. */
#ifndef ENGINE_MODEL_HPARAMS_H
#define ENGINE_MODEL_HPARAMS_H

#include <stdbool.h>
#include <stdint.h>

#define HPARAMS_STOPS 16

/* A family with another router adds its kind here together with the kernels that compute it. */
enum router_kind { ROUTER_SPARSEMIXER };

struct hparams {
    int n_layers, hidden, n_heads, n_kv_heads, head_dim, n_vocab;
    int n_experts, n_experts_used, expert_ffn;
    int context_max; /* trained context */
    int rope_dims;   /* rotated dimensions of a head (pairs i, i + rope_dims/2) */
    float rope_theta;
    float norm_eps;
    float router_jitter;
    int sliding_window; /* keys a query sees, itself included; 0: all */
    enum router_kind router;
    bool attention_bias, head_bias, tied_embeddings;
    /* longrope; original_context 0: plain rotary embedding. Factors: rope_dims/2 each, owned by the
     * model. */
    int original_context;
    float *short_factor, *long_factor;
    float short_mscale, long_mscale;
    int bos, unk; /* -1: none */
    bool add_bos;
    int n_stops, stops[HPARAMS_STOPS]; /* end-of-generation ids */
};

#endif
