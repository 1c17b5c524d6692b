/* Family gpt_oss: learned sinks, a window in every other layer, experts with biases. Names after
 * modeling_gpt_oss.py (Hugging Face), whose experts lie transposed, and llama.cpp's
 * gguf-py/gguf/constants.py (LLM_ARCH_OPENAI_MOE), where the second norm has an older name.
 * Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("intermediate_size"),
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     128, 0, 1 << 27},
    {FIELD(common.ffn.limit), KEY_FLOAT, {NULL}, {"swiglu_limit"}, 7.0, 1e-3, 1e6},
    KEYS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ATTENTION_NORM, false, {"blk.%l.attn_norm.weight"}, {HF "input_layernorm.weight"}},
    {TENSOR_EXPERT_NORM, false, {"blk.%l.post_attention_norm.weight", "blk.%l.ffn_norm.weight"},
     {HF "post_attention_layernorm.weight"}},
    TENSORS_ATTENTION,
    {TENSOR_SINKS, false, {"blk.%l.attn_sinks.weight", "blk.%l.attn_sinks"},
     {HF "self_attn.sinks"}},
    {TENSOR_ROUTER, true, {"blk.%l.ffn_gate_inp.weight"}, {HF "mlp.router.weight"}},
    {TENSOR_GATES, true, {"blk.%l.ffn_gate_exps.weight"}, {NULL}},
    {TENSOR_UPS, true, {"blk.%l.ffn_up_exps.weight"}, {NULL}},
    {TENSOR_GATE_UPS, TENSOR_BIAS | TENSOR_TRANSPOSED | TENSOR_TURNS, {NULL},
     {HF "mlp.experts.gate_up_proj"}},
    {TENSOR_DOWNS, TENSOR_BIAS | TENSOR_TRANSPOSED, {"blk.%l.ffn_down_exps.weight"},
     {HF "mlp.experts.down_proj"}},
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"<|return|>", "<|call|>", NULL};

/* The code's own defaults of YaRN, if config.json has none. */
static void check_settings(struct describer *d)
{
    describe_only_number(d, "swiglu_alpha", 1.702);
    if (!describe_is_gguf(d) && family_config(d->f, "rope_scaling.rope_type").type == META_NONE &&
        family_config(d->f, "rope_scaling.type").type == META_NONE &&
        family_config(d->f, "rope_parameters.rope_type").type == META_NONE)
        describe_refuse(d, "its config.json has neither rope_scaling nor rope_parameters; the "
                           "published one has YaRN there");
}

/* Without a list, as GGUF has none, even layers have the window. */
static void layers(struct hparams *hp, struct describer *d)
{
    bool listed = describe_per_layer(d, hp, "layer_types");

    check_settings(d);
    for (int l = 0; l < hp->n_layers; l++)
        if (listed ? !describe_listed(d, "layer_types", l, "sliding_attention") : l % 2)
            hp->layers[l].mixer.window = 0;
}

const struct family family_gpt_oss = {
    .name = "gpt_oss",
    .gguf = {"gpt-oss"},
    .exported = true,
    .json = {"GptOssForCausalLM", "gpt_oss"},
    .shape = {.mixer = {.bias = true, .sinks = true},
              .ffn = {.activation = ACTIVATION_CLAMPED_SWIGLU,
                      .bias = true,
                      .router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    ROPE_NAMES,
    .yarn_exact = true,
    .theta_unsaid = 150000.0f,
    .stops = stops,
};
