/* Families granitemoe (IBM Granite 3 MoE, also with a shared expert), granite (the same, dense) and
 * granite_swa (Granite Swash 2B and 3B-A600M: both with learned sinks, windows in most layers, and
 * layers without positions). Names after modeling_granitemoe.py, modeling_granitemoeshared.py,
 * modeling_granite.py, modeling_granite_swa.py and modeling_granitemoe_swa.py (Hugging Face) and
 * llama.cpp's gguf-py/gguf/constants.py and src/models/granite-swa.cpp. Four multipliers: of
 * embeddings, of scores, of what each operator adds, and under the logits. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"}, {"num_local_experts"}, 0, 1, 512},
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, {"num_experts_per_tok"}, 0, 1, 16},
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length", "feed_forward_length"},
     {"intermediate_size"}, 0, 1, 1 << 20},
    KEYS_MULTIPLIERS,
    KEYS_END,
};

static const struct family_key dense_keys[] = {
    KEYS_COMMON,
    KEYS_MULTIPLIERS,
    KEYS_END,
};

static const struct family_key windowed_keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("intermediate_size"),
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     128, 0, 1 << 27},
    KEYS_MULTIPLIERS,
    KEYS_END,
};

#define ROTATED "layer_rope_theta"

static const struct family_rename windowed_renamed[] = {
    RENAMED_WINDOWS,
    {ROTATED, "attention.rope_pattern"},
    {NULL, NULL},
};

static const struct family_tensor windowed_tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    {TENSOR_SINKS, false, {"blk.%l.attn_sinks.weight"}, {HF "self_attn.sinks"}},
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"},
     {HF "block_sparse_moe.router.layer.weight", HF "block_sparse_moe.router.weight"}},
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, {NULL}},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {NULL}},
    {TENSOR_GATE_UPS, false, {"blk.%l.ffn_gate_up_exps.weight"},
     {HF "block_sparse_moe.input_linear.weight", HF "block_sparse_moe.experts.gate_up_proj"}},
    {TENSOR_DOWNS, false, {"blk.%l.ffn_down_exps.weight"},
     {HF "block_sparse_moe.output_linear.weight", HF "block_sparse_moe.experts.down_proj"}},
    {TENSOR_SHARED_GATE_UP, false, {"blk.%l.ffn_up_shexp.weight"},
     {HF "shared_mlp.input_linear.weight"}},
    {TENSOR_SHARED_DOWN, false, {"blk.%l.ffn_down_shexp.weight"},
     {HF "shared_mlp.output_linear.weight"}},
    TENSORS_DENSE,
    TENSORS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_EXPERTS_GRANITE,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"<|end_of_text|>", NULL};

/* Without tensors, config.json tells whether there is a shared expert. */
static void layers(struct hparams *hp, struct describer *d)
{
    int shared = describe_int(d, "shared_intermediate_size", 0, 0, 1 << 20);

    for (int l = 0; l < hp->n_layers; l++)
        if (hp->layers[l].ffn.kind == FFN_ROUTED && !hp->layers[l].ffn.shared)
            describe_shared(&hp->layers[l].ffn, shared);
}

const struct family family_granitemoe = {
    .name = "granitemoe",
    .gguf = {"granitemoe"},
    .exported = true,
    .json = {"GraniteMoeForCausalLM", "granitemoe", "GraniteMoeSharedForCausalLM",
             "granitemoeshared"},
    .shape = {.ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    ROPE_NAMES,
    .stops = stops,
};

const struct family family_granite = {
    .name = "granite",
    .gguf = {"granite"},
    .exported = true,
    .json = {"GraniteForCausalLM", "granite"},
    .shape = {.norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .keys = dense_keys,
    .tensors = tensors,
    ROPE_NAMES,
    .stops = stops,
};

/* The one base of all rotated layers; GGUF's list says only which those are. */
static void read_bases(struct hparams *hp, struct describer *d)
{
    double base = 0.0;

    (void)describe_per_layer(d, hp, ROTATED);
    for (int l = 0; l < hp->n_layers; l++) {
        double own = describe_number_at(d, ROTATED, l, hp->rope_theta);

        if (own == 0.0) {
            hp->layers[l].mixer.rope = ROPE_NONE;
            hp->layers[l].mixer.rope_dims = 0;
        } else if (!describe_is_gguf(d)) {
            if (!(own >= 1.0 && own <= 1e12) || (base > 0.0 && own != base))
                describe_refuse(d,
                                "layer_rope_theta of its config.json has %g for layer %d and %g "
                                "before; one base for all rotated layers is computed",
                                own, l, base);
            base = own;
        }
    }
    if (base > 0.0 && (float)base != hp->rope_theta && hp->short_factor)
        describe_refuse(d,
                        "layer_rope_theta of its config.json is %g beside a rope scaling of %g, "
                        "which is not computed",
                        base, (double)hp->rope_theta);
    if (base > 0.0)
        hp->rope_theta = (float)base;
}

static void windowed_layers(struct hparams *hp, struct describer *d)
{
    (void)describe_per_layer(d, hp, "layer_types");
    layers(hp, d);
    read_bases(hp, d);
    for (int l = 0; l < hp->n_layers; l++) {
        if (!describe_windowed(d, l, 4, true))
            hp->layers[l].mixer.window = 0;
        else if (!hp->layers[l].mixer.window)
            describe_refuse(d, "layer %d has a window, but its config.json no sliding_window", l);
    }
}

const struct family family_granite_swa = {
    .name = "granite_swa",
    .gguf = {"granite_swa"},
    .exported = true,
    .json = {"GraniteSWAForCausalLM", "granite_swa", "GraniteMoeSWAForCausalLM", "granitemoe_swa"},
    .shape = {.mixer = {.sinks = true},
              .ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .keys = windowed_keys,
    .tensors = windowed_tensors,
    .layers = windowed_layers,
    .renamed = windowed_renamed,
    ROPE_NAMES,
    .tied_unsaid = true,
    .stops = stops,
};
