/* Families phimoe (Microsoft Phi-3.5-MoE, Phi-tiny-MoE, Phi-mini-MoE) and phi3 (Phi-3, 3.5, 4 and
 * Phi-4-mini, dense: q, k and v in one matrix, gate and up in one). Names after
 * configuration_slimmoe.py / modeling_slimmoe.py, modeling_phi3.py (Hugging Face), transformers 5
 * (fused experts) and llama.cpp's gguf-py/gguf/constants.py and src/models/phi3.cpp. Constant
 * data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
/* longrope; without factors these three count for nothing */
#define KEYS_LONGROPE \
    {FIELD(original_context), KEY_INT, {"rope.scaling.original_context_length"}, \
     {"rope_scaling.original_max_position_embeddings", \
      "rope_parameters.original_max_position_embeddings", "original_max_position_embeddings"}, \
     0, 1, 1 << 27}, \
    {FIELD(short_mscale), KEY_FLOAT, {"rope.scaling.short_mscale", "rope.scaling.attn_factor"}, \
     {"rope_scaling.short_mscale", "rope_parameters.short_mscale"}, 0, 1e-3, 1e3}, \
    {FIELD(long_mscale), KEY_FLOAT, {"rope.scaling.long_mscale", "rope.scaling.attn_factor"}, \
     {"rope_scaling.long_mscale", "rope_parameters.long_mscale"}, 0, 1e-3, 1e3}

static const struct family_key keys[] = {
    KEYS_SIZES,
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"}, {"num_local_experts", "num_experts"},
     0, 1, 512},
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, {"num_experts_per_tok"}, 2, 1, 16},
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length", "feed_forward_length"},
     {"moe_intermediate_size", "intermediate_size"}, 0, 1, 1 << 20},
    KEYS_POSITIONS,
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_epsilon",
     "attention.layer_norm_rms_epsilon"}, {"rms_norm_eps", "layer_norm_eps"}, 1e-5, 1e-12, 1.0},
    {FIELD(common.ffn.router.jitter), KEY_FLOAT, {"router_jitter_noise"}, {"router_jitter_noise"},
     0.01, 0.0, 1e6},
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     0, 0, 1 << 27},
    KEYS_LONGROPE,
    KEYS_END,
};

static const struct family_key dense_keys[] = {
    KEYS_SIZES,
    KEYS_POSITIONS,
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon"}, {"rms_norm_eps"},
     1e-5, 1e-12, 1.0},
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     0, 0, 1 << 27},
    KEYS_LONGROPE,
    KEYS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_factors_short.weight"}, {NULL}},
    {TENSOR_ROPE_LONG, false, {"rope_factors_long.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_EXPERTS_BLOCK,
    TENSORS_END,
};

static const struct family_tensor dense_tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_factors_short.weight"}, {NULL}},
    {TENSOR_ROPE_LONG, false, {"rope_factors_long.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    {TENSOR_SHARED_GATE_UP, false, {"blk.%l.ffn_up.weight"}, {HF "mlp.gate_up_proj.weight"}},
    {TENSOR_SHARED_DOWN, false, {"blk.%l.ffn_down.weight"}, {HF "mlp.down_proj.weight"}},
    {TENSOR_DENSE_DOWN, false, {"blk.%l.ffn_down.weight"}, {HF "mlp.down_proj.weight"}},
    TENSORS_END,
};
/* clang-format on */

static const char *const ignored[] = {"rope_freqs.weight", "model.rotary_emb.inv_freq", NULL};

/* <|assistant|> ends a generation too: a model that starts the next turn has finished its own. */
static const char *const stops[] = {"<|end|>", "<|endoftext|>", "<|assistant|>", NULL};

/* SparseMixer chooses two, whatever config.json says. */
static void layers(struct hparams *hp, struct describer *d)
{
    describe_only_number(d, "num_experts_per_tok", 2);
}

const struct family family_phimoe = {
    .name = "phimoe",
    .gguf = {"phimoe"},
    .exported = true,
    .json = {"PhiMoEForCausalLM", "PhimoeForCausalLM", "phimoe"},
    .shape = {.ffn = {.router = {.kind = ROUTER_SPARSEMIXER}}, .norms = {.before = true}},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .theta_unsaid = 1e6f,
    ROPE_NAMES,
    .ignored = ignored,
    .stops = stops,
};

/* "yarn" meant longrope in some early files, with other factors. */
static void dense_layers(struct hparams *hp, struct describer *d)
{
    static const char *const words[] = {"longrope", "su", "default", NULL};

    (void)hp;
    describe_only(d, "rope_scaling.type", words);
    describe_only(d, "rope_scaling.rope_type", words);
    describe_only(d, "rope_parameters.rope_type", words);
}

const struct family family_phi3 = {
    .name = "phi3",
    .gguf = {"phi3"},
    .exported = true,
    .json = {"Phi3ForCausalLM", "phi3"},
    .shape = {.norms = {.kind = NORM_RMS, .before = true}},
    .keys = dense_keys,
    .tensors = dense_tensors,
    .layers = dense_layers,
    .gguf_qkv = true,
    .part_unsaid = 1.0f,
    ROPE_NAMES,
    .ignored = ignored,
    .stops = stops,
};
