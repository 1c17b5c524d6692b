/* Family smallthinker (PowerInfer's SmallThinker, 4B-A0.6B and 21B-A3B): the router sees the stream
 * before attention, so that experts can be read while that runs; ReGLU experts; lists of the layers
 * that are rotated and of those with a window. Names and sums after modeling_smallthinker.py as
 * published with the models (arXiv:2507.20984) and llama.cpp's src/models/smallthinker.cpp and
 * conversion/smallthinker.py. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_SIZES,
    KEYS_POSITIONS,
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon"}, {"rms_norm_eps"},
     1e-6, 1e-12, 1.0},
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"}, {"moe_num_primary_experts"},
     0, 0, 512},
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, {"moe_num_active_primary_experts"},
     0, 0, 16},
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length", "feed_forward_length"},
     {"moe_ffn_hidden_size"}, 0, 1, 1 << 20},
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window_size"},
     0, 0, 1 << 27},
    KEYS_END,
};

#define MOE HF "block_sparse_moe."

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, {MOE "primary_router.weight"}},
    {TENSOR_GATE, false, {"blk.%l.ffn_gate.%e.weight"}, {MOE "experts.%e.gate.weight"}},
    {TENSOR_UP, false, {"blk.%l.ffn_up.%e.weight"}, {MOE "experts.%e.up.weight"}},
    {TENSOR_DOWN, false, {"blk.%l.ffn_down.%e.weight"}, {MOE "experts.%e.down.weight"}},
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, {MOE "switch_mlp.gate.weight"}},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {MOE "switch_mlp.up.weight"}},
    {TENSOR_DOWNS, false, {"blk.%l.ffn_down_exps.weight"}, {MOE "switch_mlp.down.weight"}},
    TENSORS_END,
};
/* clang-format on */

#define GATING "moe_primary_router_apply_softmax"
#define GATING_SOFTMAX 1 /* of llama.cpp's expert_gating_func; 2 is sigmoid */

static const struct family_rename renamed[] = {
    {GATING, "expert_gating_func"},
    {"sliding_window_layout", "attention.sliding_window_pattern"},
    {"sliding_window_pattern", "attention.sliding_window_pattern"},
    {NULL, NULL},
};

static const char *const stops[] = {"<|im_end|>", "<|endoftext|>", NULL};

/* config.json has a list; GGUF files one or a period, without which it is every fourth layer that
 * sees all. */
static bool is_windowed(struct describer *d, int layer)
{
    return describe_is_gguf(d) ? describe_windowed(d, layer, 4, true)
                               : describe_int_at(d, "sliding_window_layout", layer, 0) != 0;
}

/* GGUF files do not say which layers are rotated: those with a window, or all if none has one. */
static bool is_rotated(struct describer *d, const struct hparams *hp, int layer)
{
    return describe_is_gguf(d) ? !hp->common.mixer.window || layer % 4 != 0
                               : describe_int_at(d, "rope_layout", layer, 1) != 0;
}

static bool takes_softmax(struct describer *d)
{
    return describe_is_gguf(d) ? describe_int(d, GATING, 2, 0, 16) == GATING_SOFTMAX
                               : describe_flag(d, GATING, false);
}

/* Settings of the first release's code, as they are in published files. */
static void check_settings(struct hparams *hp, struct describer *d)
{
    describe_never(d, "moe_enable_secondary_experts");
    if (!describe_flag(d, "moe_enable_early_router", true))
        describe_refuse(d, "moe_enable_early_router of its config.json is false, which is not "
                           "computed for smallthinker");
    for (int l = 0; l < hp->n_layers && !describe_is_gguf(d); l++)
        if (!describe_int_at(d, "moe_layer_layout", l, 1))
            describe_refuse(d,
                            "layer %d has no experts by moe_layer_layout, which is not computed "
                            "for smallthinker",
                            l);
}

static void layers(struct hparams *hp, struct describer *d)
{
    int window = hp->common.mixer.window;
    bool softmax = takes_softmax(d);

    check_settings(hp, d);
    (void)describe_per_layer(d, hp, "rope_layout");
    (void)describe_per_layer(d, hp, "sliding_window_layout");
    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];
        bool windowed = window && is_windowed(d, l);

        if (!window && is_windowed(d, l) && !describe_is_gguf(d))
            describe_refuse(d, "layer %d has a window, but its config.json no sliding_window_size",
                            l);
        s->mixer.window = windowed ? window : 0;
        if (!is_rotated(d, hp, l)) {
            s->mixer.rope = ROPE_NONE;
            s->mixer.rope_dims = 0;
        }
        s->ffn.router.kind = softmax ? ROUTER_SOFTMAX : ROUTER_SIGMOID;
    }
}

const struct family family_smallthinker = {
    .name = "smallthinker",
    .gguf = {"smallthinker"},
    .exported = true,
    .json = {"SmallThinkerForCausalLM", "smallthinker"},
    .shape = {.ffn = {.activation = ACTIVATION_REGLU,
                      .router = {.kind = ROUTER_SIGMOID, .normalised = true, .early = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    ROPE_NAMES,
    .tied_unsaid = true,
    .stops = stops,
};
