/* Family phimoe: Microsoft Phi-3.5-MoE, Phi-tiny-MoE, Phi-mini-MoE. Names after configuration_slimmoe.py / modeling_slimmoe.py (Hugging
 * Face), transformers 5 (fused experts) and llama.cpp's gguf-py/gguf/constants.py. Constant data. */
#include "engine/model/families/families.h"

#include <stddef.h>

#define FIELD(name) offsetof(struct hparams, name)

static const struct family_key keys[] = {
    {FIELD(n_layers), KEY_INT, {"block_count"}, {"num_hidden_layers"}, 0, 1, 1024},
    {FIELD(hidden), KEY_INT, {"embedding_length"}, {"hidden_size"}, 0, 1, 1 << 20},
    {FIELD(n_heads), KEY_INT, {"attention.head_count"}, {"num_attention_heads"}, 0, 1, 4096},
    {FIELD(n_kv_heads), KEY_INT, {"attention.head_count_kv"}, {"num_key_value_heads"}, 0, 1, 4096},
    {FIELD(head_dim), KEY_INT, {"attention.key_length"}, {"head_dim"}, 0, 2, 4096},
    {FIELD(n_vocab), KEY_INT, {"vocab_size"}, {"vocab_size"}, 0, 1, 1 << 24},
    {FIELD(n_experts), KEY_INT, {"expert_count"}, {"num_local_experts", "num_experts"}, 0, 1, 512},
    {FIELD(n_experts_used), KEY_INT, {"expert_used_count"}, {"num_experts_per_tok"}, 2, 1, 16},
    {FIELD(expert_ffn), KEY_INT, {"expert_feed_forward_length", "feed_forward_length"}, {"moe_intermediate_size", "intermediate_size"}, 0, 1, 1 << 20},
    {FIELD(context_max), KEY_INT, {"context_length"}, {"max_position_embeddings"}, 4096, 1, 1 << 27},
    {FIELD(rope_dims), KEY_INT, {"rope.dimension_count"}, {NULL}, 0, 2, 4096},
    {FIELD(rope_theta), KEY_FLOAT, {"rope.freq_base"}, {"rope_theta", "rope_parameters.rope_theta"}, 10000.0, 1.0, 1e12},
    {FIELD(norm_eps), KEY_FLOAT, {"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"}, {"rms_norm_eps", "layer_norm_eps"}, 1e-5, 1e-12, 1.0},
    {FIELD(router_jitter), KEY_FLOAT, {"router_jitter_noise"}, {"router_jitter_noise"}, 0.01, 0.0, 1e6},
    {FIELD(sliding_window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"}, 0, 0, 1 << 27},
    /* longrope; without factors these three count for nothing */
    {FIELD(original_context), KEY_INT, {"rope.scaling.original_context_length"},
     {"rope_scaling.original_max_position_embeddings", "rope_parameters.original_max_position_embeddings", "original_max_position_embeddings"}, 0, 1, 1 << 27},
    {FIELD(short_mscale), KEY_FLOAT, {"rope.scaling.short_mscale", "rope.scaling.attn_factor"}, {"rope_scaling.short_mscale", "rope_parameters.short_mscale"}, 0, 1e-3, 1e3},
    {FIELD(long_mscale), KEY_FLOAT, {"rope.scaling.long_mscale", "rope.scaling.attn_factor"}, {"rope_scaling.long_mscale", "rope_parameters.long_mscale"}, 0, 1e-3, 1e3},
    {0, KEY_INT, {NULL}, {NULL}, 0, 0, 0},
};

#define HF "model.layers.%l."

static const struct family_tensor tensors[] = {
    {TENSOR_EMBEDDINGS, false, {"token_embd.weight"}, {"model.embed_tokens.weight"}},
    {TENSOR_OUTPUT_NORM, true, {"output_norm.weight"}, {"model.norm.weight"}},
    {TENSOR_HEAD, true, {"output.weight"}, {"lm_head.weight"}},
    {TENSOR_ROPE_SHORT, false, {"rope_factors_short.weight"}, {NULL}},
    {TENSOR_ROPE_LONG, false, {"rope_factors_long.weight"}, {NULL}},
    {TENSOR_ATTENTION_NORM, true, {"blk.%l.attn_norm.weight"}, {HF "input_layernorm.weight"}},
    {TENSOR_EXPERT_NORM, true, {"blk.%l.ffn_norm.weight"}, {HF "post_attention_layernorm.weight"}},
    {TENSOR_Q, true, {"blk.%l.attn_q.weight"}, {HF "self_attn.q_proj.weight"}},
    {TENSOR_K, true, {"blk.%l.attn_k.weight"}, {HF "self_attn.k_proj.weight"}},
    {TENSOR_V, true, {"blk.%l.attn_v.weight"}, {HF "self_attn.v_proj.weight"}},
    {TENSOR_O, true, {"blk.%l.attn_output.weight"}, {HF "self_attn.o_proj.weight"}},
    {TENSOR_QKV, true, {"blk.%l.attn_qkv.weight"}, {HF "self_attn.qkv_proj.weight"}},
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, {HF "block_sparse_moe.gate.weight", HF "mlp.router.weight", HF "mlp.gate.weight"}},
    {TENSOR_GATE, false, {"blk.%l.ffn_gate.%e.weight"}, {HF "block_sparse_moe.experts.%e.w1.weight", HF "mlp.experts.%e.gate_proj.weight"}},
    {TENSOR_UP, false, {"blk.%l.ffn_up.%e.weight"}, {HF "block_sparse_moe.experts.%e.w3.weight", HF "mlp.experts.%e.up_proj.weight"}},
    {TENSOR_DOWN, false, {"blk.%l.ffn_down.%e.weight"}, {HF "block_sparse_moe.experts.%e.w2.weight", HF "mlp.experts.%e.down_proj.weight"}},
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, {NULL}},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {NULL}},
    {TENSOR_DOWNS, false, {"blk.%l.ffn_down_exps.weight"}, {HF "mlp.experts.down_proj", HF "block_sparse_moe.experts.down_proj"}},
    {TENSOR_GATE_UPS, false, {"blk.%l.ffn_gate_up_exps.weight"}, {HF "mlp.experts.gate_up_proj", HF "block_sparse_moe.experts.gate_up_proj"}},
    {TENSOR_ROLES, false, {NULL}, {NULL}},
};

static const char *const ignored[] = {"rope_freqs.weight", "model.rotary_emb.inv_freq", NULL};

/* <|assistant|> ends a generation too: a model that begins the next turn by itself has finished its own. */
static const char *const stops[] = {"<|end|>", "<|endoftext|>", "<|assistant|>", NULL};

const struct family family_phimoe = {
    .name = "phimoe",
    .gguf = {"phimoe"},
    .json = {"PhiMoEForCausalLM", "PhimoeForCausalLM", "phimoe"},
    .router = ROUTER_SPARSEMIXER,
    .keys = keys,
    .tensors = tensors,
    .rope_kind = {"rope_scaling.type", "rope_scaling.rope_type", "rope_parameters.rope_type"},
    .rope_short = {"rope_scaling.short_factor", "rope_parameters.short_factor"},
    .rope_long = {"rope_scaling.long_factor", "rope_parameters.long_factor"},
    .tied = "tie_word_embeddings",
    .ignored = ignored,
    .stops = stops,
};
