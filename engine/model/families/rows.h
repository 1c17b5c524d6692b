/* Table rows common to many families: sizes and tensors under the names in most files on the Hub
 * and of llama.cpp's converter (gguf-py/gguf/constants.py). */
#ifndef ENGINE_MODEL_FAMILIES_ROWS_H
#define ENGINE_MODEL_FAMILIES_ROWS_H

#include "engine/model/family.h"

#include <stddef.h>

#define FIELD(name) offsetof(struct hparams, name)
#define HF "model.layers.%l."

/* clang-format off */
#define KEYS_COMMON KEYS_SIZES, KEYS_POSITIONS, KEYS_EPS
#define KEYS_SIZES \
    {FIELD(n_layers), KEY_INT, {"block_count"}, {"num_hidden_layers"}, 0, 1, 1024}, \
    {FIELD(hidden), KEY_INT, {"embedding_length"}, {"hidden_size"}, 0, 1, 1 << 20}, \
    {FIELD(common.mixer.heads), KEY_INT, {"attention.head_count"}, {"num_attention_heads"}, \
     0, 1, 4096}, \
    {FIELD(common.mixer.kv_heads), KEY_INT, {"attention.head_count_kv"}, \
     {"num_key_value_heads"}, 0, 1, 4096}, \
    {FIELD(common.mixer.key_dim), KEY_INT, {"attention.key_length"}, {"head_dim"}, 0, 2, 4096}, \
    {FIELD(n_vocab), KEY_INT, {"vocab_size"}, {"vocab_size"}, 0, 1, 1 << 24}
#define KEYS_POSITIONS \
    {FIELD(context_max), KEY_INT, {"context_length"}, \
     {"max_position_embeddings", "model_max_length"}, 4096, 1, 1 << 27}, \
    {FIELD(common.mixer.rope_dims), KEY_INT, {"rope.dimension_count"}, {NULL}, 0, 2, 4096}, \
    {FIELD(rope_theta), KEY_FLOAT, {"rope.freq_base"}, \
     {"rope_scaling.rope_theta", "rope_parameters.rope_theta", "rope_theta"}, 10000.0, 1.0, 1e12}
/* Layers with a window are rotated by a base and a part of their heads of their own
 * (describe_two_ropes), those that see all are scaled. base: of the latter where config.json has
 * none */
#define KEYS_POSITIONS_TWO(base) \
    {FIELD(context_max), KEY_INT, {"context_length"}, {"max_position_embeddings"}, \
     4096, 1, 1 << 27}, \
    {FIELD(common.mixer.rope_dims), KEY_INT, {"rope.dimension_count"}, {NULL}, 0, 2, 4096}, \
    {FIELD(rope_theta), KEY_FLOAT, {"rope.freq_base"}, \
     {"rope_parameters.full_attention.rope_theta", "rope_theta"}, base, 1.0, 1e12}, \
    {FIELD(second_rope.theta), KEY_FLOAT, {"rope.freq_base_swa"}, \
     {"rope_parameters.sliding_attention.rope_theta", "rope_theta"}, 0.0, 1.0, 1e12}, \
    {FIELD(second_rope.dims), KEY_INT, {"rope.dimension_count_swa"}, {NULL}, 0, 2, 4096}, \
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"}, \
     0, 0, 1 << 27}
#define RENAMED_WINDOWS {"sliding_window_pattern", "attention.sliding_window_pattern"}
#define KEYS_EPS \
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon", \
     "attention.layer_norm_epsilon"}, \
     {"rms_norm_eps", "layer_norm_eps", "norm_eps", "layer_norm_epsilon"}, 1e-5, 1e-12, 1.0}

/* named: the JSON name of an expert's width */
#define KEYS_EXPERTS(named) \
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"}, \
     {"num_local_experts", "num_experts", "n_routed_experts"}, 0, 0, 512}, \
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, \
     {"num_experts_per_tok", "num_experts_per_token"}, 0, 0, 16}, \
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length"}, {named}, 0, 1, 1 << 20}

/* factors of embeddings, of operators' outputs, divisor of logits, factor of scores (Granite) */
#define KEYS_MULTIPLIERS \
    {FIELD(embedding_scale), KEY_FLOAT, {"embedding_scale"}, {"embedding_multiplier"}, \
     1.0, 1e-6, 1e6}, \
    {FIELD(residual_scale), KEY_FLOAT, {"residual_scale"}, {"residual_multiplier"}, \
     1.0, 1e-6, 1e6}, \
    {FIELD(logit_divisor), KEY_FLOAT, {"logit_scale"}, {"logits_scaling"}, 1.0, 1e-6, 1e6}, \
    {FIELD(common.mixer.scale), KEY_FLOAT, {"attention.scale"}, {"attention_multiplier"}, \
     0.0, 1e-6, 1e6}

/* latent attention; describe_latent derives the width of a key */
#define KEYS_LATENT \
    {FIELD(common.mixer.q_rank), KEY_INT, {"attention.q_lora_rank"}, {"q_lora_rank"}, \
     0, 1, 1 << 20}, \
    {FIELD(common.mixer.kv_rank), KEY_INT, {"attention.kv_lora_rank"}, {"kv_lora_rank"}, \
     0, 1, 1 << 20}, \
    {FIELD(common.mixer.rope_dims), KEY_INT, {"rope.dimension_count"}, {"qk_rope_head_dim"}, \
     0, 2, 4096}, \
    {FIELD(common.mixer.key_dim), KEY_INT, {"attention.key_length_mla", \
     "attention.key_length"}, {NULL}, 0, 2, 4096}, \
    {FIELD(common.mixer.value_dim), KEY_INT, {"attention.value_length_mla", \
     "attention.value_length"}, {"v_head_dim"}, 0, 1, 4096}

/* experts are chosen from the best groups, and their weights scaled */
#define KEYS_GROUPS \
    {FIELD(common.ffn.router.factor), KEY_FLOAT, {"expert_weights_scale"}, \
     {"routed_scaling_factor"}, 1.0, 1e-6, 1e6}, \
    {FIELD(common.ffn.router.groups), KEY_INT, {"expert_group_count"}, \
     {"n_group", "num_expert_group"}, 1, 1, 512}, \
    {FIELD(common.ffn.router.groups_used), KEY_INT, {"expert_group_used_count"}, \
     {"topk_group"}, 1, 1, 512}

#define KEYS_END {0, KEY_INT, {NULL}, {NULL}, 0, 0, 0}

#define TENSORS_ENDS \
    {TENSOR_EMBEDDINGS, false, {"token_embd.weight"}, {"model.embed_tokens.weight"}}, \
    {TENSOR_OUTPUT_NORM, true, {"output_norm.weight"}, {"model.norm.weight"}}, \
    {TENSOR_HEAD, true, {"output.weight"}, {"lm_head.weight"}}

#define TENSORS_NORMS \
    {TENSOR_ATTENTION_NORM, true, {"blk.%l.attn_norm.weight"}, {HF "input_layernorm.weight"}}, \
    {TENSOR_EXPERT_NORM, true, {"blk.%l.ffn_norm.weight"}, {HF "post_attention_layernorm.weight"}}

#define TENSORS_Q_K_V \
    {TENSOR_Q, true, {"blk.%l.attn_q.weight"}, {HF "self_attn.q_proj.weight"}}, \
    {TENSOR_K, true, {"blk.%l.attn_k.weight"}, {HF "self_attn.k_proj.weight"}}, \
    {TENSOR_V, true, {"blk.%l.attn_v.weight"}, {HF "self_attn.v_proj.weight"}}

#define TENSORS_ATTENTION \
    TENSORS_Q_K_V, \
    {TENSOR_O, true, {"blk.%l.attn_output.weight"}, {HF "self_attn.o_proj.weight"}}, \
    {TENSOR_QKV, true, {"blk.%l.attn_qkv.weight"}, {HF "self_attn.qkv_proj.weight"}}

#define TENSORS_QK_NORM \
    {TENSOR_Q_NORM, false, {"blk.%l.attn_q_norm.weight"}, {HF "self_attn.q_norm.weight"}}, \
    {TENSOR_K_NORM, false, {"blk.%l.attn_k_norm.weight"}, {HF "self_attn.k_norm.weight"}}

#define TENSORS_LATENT \
    {TENSOR_Q, false, {"blk.%l.attn_q.weight"}, {HF "self_attn.q_proj.weight"}}, \
    {TENSOR_Q_A, true, {"blk.%l.attn_q_a.weight"}, {HF "self_attn.q_a_proj.weight"}}, \
    {TENSOR_Q_A_NORM, false, {"blk.%l.attn_q_a_norm.weight"}, \
     {HF "self_attn.q_a_layernorm.weight"}}, \
    {TENSOR_Q_B, false, {"blk.%l.attn_q_b.weight"}, {HF "self_attn.q_b_proj.weight"}}, \
    {TENSOR_KV_A, true, {"blk.%l.attn_kv_a_mqa.weight"}, \
     {HF "self_attn.kv_a_proj_with_mqa.weight"}}, \
    {TENSOR_KV_A_NORM, false, {"blk.%l.attn_kv_a_norm.weight"}, \
     {HF "self_attn.kv_a_layernorm.weight"}}, \
    {TENSOR_KV_B, false, {"blk.%l.attn_kv_b.weight"}, {HF "self_attn.kv_b_proj.weight"}}, \
    {TENSOR_K_B, false, {"blk.%l.attn_k_b.weight"}, {NULL}}, \
    {TENSOR_V_B, false, {"blk.%l.attn_v_b.weight"}, {NULL}}, \
    {TENSOR_O, true, {"blk.%l.attn_output.weight"}, {HF "self_attn.o_proj.weight"}}

/* a lightning indexer; heads: how many its config.json need not say */
#define KEYS_INDEXER(heads) \
    {FIELD(common.mixer.index_heads), KEY_INT, {"attention.indexer.head_count"}, \
     {"index_n_heads"}, heads, 1, 4096}, \
    {FIELD(common.mixer.index_dim), KEY_INT, {"attention.indexer.key_length"}, \
     {"index_head_dim"}, 128, 2, 4096}, \
    {FIELD(common.mixer.index_top), KEY_INT, {"attention.indexer.top_k"}, \
     {"index_topk"}, 2048, 1, 1 << 27}

#define TENSORS_INDEXER \
    {TENSOR_INDEX_Q, false, {"blk.%l.indexer.attn_q_b.weight"}, \
     {HF "self_attn.indexer.wq_b.weight"}}, \
    {TENSOR_INDEX_K, false, {"blk.%l.indexer.attn_k.weight"}, \
     {HF "self_attn.indexer.wk.weight"}}, \
    {TENSOR_INDEX_WEIGHTS, false, {"blk.%l.indexer.proj.weight"}, \
     {HF "self_attn.indexer.weights_proj.weight"}}, \
    {TENSOR_INDEX_NORM, true, {"blk.%l.indexer.k_norm.weight"}, \
     {HF "self_attn.indexer.k_norm.weight"}}

#define TENSORS_ROUTER_BIAS \
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias", "blk.%l.exp_probs_b"}, \
     {HF "mlp.gate.e_score_correction_bias"}}

/* Names of an expert's matrices, in two conventions: the usual one first. */
#define TENSORS_EXPERTS \
    TENSORS_EXPERTS_NAMED(HF "mlp.experts.%e.gate_proj.weight", \
                          HF "mlp.experts.%e.up_proj.weight", \
                          HF "mlp.experts.%e.down_proj.weight", \
                          HF "block_sparse_moe.experts.%e.w1.weight", \
                          HF "block_sparse_moe.experts.%e.w3.weight", \
                          HF "block_sparse_moe.experts.%e.w2.weight")
#define TENSORS_EXPERTS_BLOCK \
    TENSORS_EXPERTS_NAMED(HF "block_sparse_moe.experts.%e.w1.weight", \
                          HF "block_sparse_moe.experts.%e.w3.weight", \
                          HF "block_sparse_moe.experts.%e.w2.weight", \
                          HF "mlp.experts.%e.gate_proj.weight", \
                          HF "mlp.experts.%e.up_proj.weight", \
                          HF "mlp.experts.%e.down_proj.weight")

#define TENSORS_EXPERTS_NAMED(gate, up, down, other_gate, other_up, other_down) \
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, \
     {HF "block_sparse_moe.gate.weight", HF "mlp.router.weight", HF "mlp.gate.weight", \
      HF "mlp.router.gate.weight"}}, \
    {TENSOR_GATE, false, {"blk.%l.ffn_gate.%e.weight"}, {gate, other_gate}}, \
    {TENSOR_UP, false, {"blk.%l.ffn_up.%e.weight"}, {up, other_up}}, \
    {TENSOR_DOWN, false, {"blk.%l.ffn_down.%e.weight"}, {down, other_down}}, \
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, \
     {HF "mlp.switch_mlp.gate_proj.weight", HF "block_sparse_moe.switch_mlp.gate_proj.weight"}}, \
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, \
     {HF "mlp.switch_mlp.up_proj.weight", HF "block_sparse_moe.switch_mlp.up_proj.weight"}}, \
    {TENSOR_DOWNS, false, {"blk.%l.ffn_down_exps.weight"}, \
     {HF "mlp.experts.down_proj", HF "block_sparse_moe.experts.down_proj", \
      HF "mlp.switch_mlp.down_proj.weight", \
      HF "block_sparse_moe.switch_mlp.down_proj.weight"}}, \
    {TENSOR_GATE_UPS, false, {"blk.%l.ffn_gate_up_exps.weight"}, \
     {HF "mlp.experts.gate_up_proj", HF "block_sparse_moe.experts.gate_up_proj"}}

#define TENSORS_SHARED \
    {TENSOR_SHARED_GATE, false, {"blk.%l.ffn_gate_shexp.weight"}, \
     {HF "mlp.shared_expert.gate_proj.weight", HF "mlp.shared_experts.gate_proj.weight"}}, \
    {TENSOR_SHARED_UP, false, {"blk.%l.ffn_up_shexp.weight"}, \
     {HF "mlp.shared_expert.up_proj.weight", HF "mlp.shared_experts.up_proj.weight"}}, \
    {TENSOR_SHARED_DOWN, false, {"blk.%l.ffn_down_shexp.weight"}, \
     {HF "mlp.shared_expert.down_proj.weight", HF "mlp.shared_experts.down_proj.weight"}}, \
    {TENSOR_SHARED_ROUTER, false, {"blk.%l.ffn_gate_inp_shexp.weight"}, \
     {HF "mlp.shared_expert_gate.weight"}}

/* of Granite, the shared one's among them */
#define TENSORS_EXPERTS_GRANITE \
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, \
     {HF "block_sparse_moe.router.layer.weight", HF "block_sparse_moe.router.weight"}}, \
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, {NULL}}, \
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {NULL}}, \
    {TENSOR_GATE_UPS, false, {"blk.%l.ffn_gate_up_exps.weight"}, \
     {HF "block_sparse_moe.input_linear.weight", HF "block_sparse_moe.experts.gate_up_proj"}}, \
    {TENSOR_DOWNS, false, {"blk.%l.ffn_down_exps.weight"}, \
     {HF "block_sparse_moe.output_linear.weight", HF "block_sparse_moe.experts.down_proj"}}, \
    {TENSOR_SHARED_GATE, false, {"blk.%l.ffn_gate_shexp.weight"}, {NULL}}, \
    {TENSOR_SHARED_UP, false, {"blk.%l.ffn_up_shexp.weight"}, {NULL}}, \
    {TENSOR_SHARED_GATE_UP, false, {NULL}, {HF "shared_mlp.input_linear.weight"}}, \
    {TENSOR_SHARED_DOWN, false, {"blk.%l.ffn_down_shexp.weight"}, \
     {HF "shared_mlp.output_linear.weight"}}

#define TENSORS_DENSE \
    {TENSOR_DENSE_GATE, false, {"blk.%l.ffn_gate.weight"}, {HF "mlp.gate_proj.weight"}}, \
    {TENSOR_DENSE_UP, false, {"blk.%l.ffn_up.weight"}, {HF "mlp.up_proj.weight"}}, \
    {TENSOR_DENSE_DOWN, false, {"blk.%l.ffn_down.weight"}, {HF "mlp.down_proj.weight"}}

/* what tokens bring for single layers (Gemma 3n and 4) */
#define TENSORS_INPUTS \
    {TENSOR_INPUT_TABLE, false, {"per_layer_token_embd.weight"}, \
     {"model.embed_tokens_per_layer.weight"}}, \
    {TENSOR_INPUT_PROJECT, false, {"per_layer_model_proj.weight"}, \
     {"model.per_layer_model_projection.weight"}}, \
    {TENSOR_INPUT_NORM, false, {"per_layer_proj_norm.weight"}, \
     {"model.per_layer_projection_norm.weight"}}, \
    {TENSOR_INPUT_GATE, false, {"blk.%l.inp_gate.weight"}, {HF "per_layer_input_gate.weight"}}, \
    {TENSOR_INPUT_OUT, false, {"blk.%l.proj.weight"}, {HF "per_layer_projection.weight"}}, \
    {TENSOR_INPUT_AFTER, false, {"blk.%l.post_norm.weight"}, \
     {HF "post_per_layer_input_norm.weight"}}

/* of(name): the spellings of a tensor of the mixer in folders */
#define TENSORS_MAMBA2(of) \
    {TENSOR_MIX_IN, true, {"blk.%l.ssm_in.weight"}, of("in_proj.weight")}, \
    {TENSOR_CONV, true, {"blk.%l.ssm_conv1d.weight"}, of("conv1d.weight")}, \
    {TENSOR_DECAY, false, {"blk.%l.ssm_a"}, of("A_log")}, \
    {TENSOR_DT_BIAS, false, {"blk.%l.ssm_dt.bias"}, of("dt_bias")}, \
    {TENSOR_SKIP, false, {"blk.%l.ssm_d"}, of("D")}, \
    {TENSOR_MIX_NORM, false, {"blk.%l.ssm_norm.weight"}, of("norm.weight")}

#define TENSORS_MAMBA1(of) \
    {TENSOR_MIX_IN, true, {"blk.%l.ssm_in.weight"}, of("in_proj.weight")}, \
    {TENSOR_CONV, true, {"blk.%l.ssm_conv1d.weight"}, of("conv1d.weight")}, \
    {TENSOR_MIX_A_IN, false, {"blk.%l.ssm_x.weight"}, of("x_proj.weight")}, \
    {TENSOR_MIX_A, false, {"blk.%l.ssm_dt.weight"}, of("dt_proj.weight")}, \
    {TENSOR_DT_BIAS, false, {"blk.%l.ssm_dt.bias"}, of("dt_proj.bias")}, \
    {TENSOR_DECAY, false, {"blk.%l.ssm_a"}, of("A_log")}, \
    {TENSOR_SKIP, false, {"blk.%l.ssm_d"}, of("D")}, \
    {TENSOR_DT_NORM, false, {"blk.%l.ssm_dt_norm.weight"}, of("dt_layernorm.weight")}, \
    {TENSOR_B_NORM, false, {"blk.%l.ssm_b_norm.weight"}, of("b_layernorm.weight")}, \
    {TENSOR_C_NORM, false, {"blk.%l.ssm_c_norm.weight"}, of("c_layernorm.weight")}

#define RENAMED_MAMBA2(heads, state, groups, taps) \
    {heads, "ssm.time_step_rank"}, {state, "ssm.state_size"}, {groups, "ssm.group_count"}, \
    {taps, "ssm.conv_kernel"}, {"inner_size", "ssm.inner_size"}

#define TENSORS_MTP \
    TENSORS_MTP_NAMED(HF "enorm.weight", HF "hnorm.weight", HF "eh_proj.weight", \
                      HF "shared_head.norm.weight", HF "embed_tokens.weight", \
                      HF "shared_head.head.weight")

#define TENSORS_MTP_NAMED(embedding_norm, hidden_norm, join, norm, embeddings, head) \
    {TENSOR_MTP_EMBEDDING_NORM, false, {"blk.%l.nextn.enorm.weight"}, {embedding_norm}}, \
    {TENSOR_MTP_HIDDEN_NORM, false, {"blk.%l.nextn.hnorm.weight"}, {hidden_norm}}, \
    {TENSOR_MTP_JOIN, false, {"blk.%l.nextn.eh_proj.weight"}, {join}}, \
    {TENSOR_MTP_NORM, false, {"blk.%l.nextn.shared_head_norm.weight"}, {norm}}, \
    {TENSOR_MTP_EMBEDDINGS, false, {"blk.%l.nextn.embed_tokens.weight"}, {embeddings}}, \
    {TENSOR_MTP_HEAD, false, {"blk.%l.nextn.shared_head_head.weight"}, {head}}

#define TENSORS_END {TENSOR_ROLES, false, {NULL}, {NULL}}

#define ROPE_NAMES \
    .rope_kind = {"rope_scaling.rope_type", "rope_scaling.type", "rope_parameters.rope_type"}, \
    .rope_short = {"rope_scaling.short_factor", "rope_parameters.short_factor"}, \
    .rope_long = {"rope_scaling.long_factor", "rope_parameters.long_factor"}, \
    .tied = "tie_word_embeddings"

/* with KEYS_POSITIONS_TWO */
#define ROPE_NAMES_TWO \
    .rope_kind = {"rope_parameters.full_attention.rope_type", "rope_parameters.rope_type", \
                  "rope_scaling.rope_type", "rope_scaling.type"}, \
    .part_unsaid = 1.0f, .tied = "tie_word_embeddings"
/* clang-format on */

#endif
