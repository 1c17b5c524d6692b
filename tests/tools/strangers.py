#!/usr/bin/env python3
"""Tiny checkpoints with unusual settings: each agrees with transformers, or is refused by name with one line.

    strangers.py --tool build/release/tests/golden_tool [--to DIR] [FAMILY ...]

Of each family of make_fresh.py in STRANGERS below: its configuration with these changes (None: null, GONE: the key is left out), drawn and
evaluated by make_fresh.py, then held against the program by the tool. A line each: FAMILY/NAME, `agrees` with the largest difference, or the
line that refuses it; `transformers:` and its error where the official code cannot make it. Exit status 1: one differs.
Needs torch, transformers 5.24, safetensors.
"""
import argparse
import copy
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers

import make_fresh
import plain_reference

GONE = "GONE"
GEMMA = make_fresh.CONFIGS["gemma4_e"]["rope_parameters"]
MISTRAL = make_fresh.CONFIGS["mistral4"]["rope_parameters"]
MUSE = make_fresh.CONFIGS["muse_glimmer"]["text_config"]
MORE = dict(hidden_size=48, num_hidden_layers=4)
COMMON = {  # of any family of experts
    "one_expert": dict(num_experts=1, num_experts_per_tok=1),
    "top_1": dict(num_experts_per_tok=1),
    "tied": dict(tie_word_embeddings=True),
    "odd_width": dict(intermediate_size=20),
    "wide_heads": dict(head_dim=24),
}
STRANGERS = {
    "qwen4_exp": dict(
        pairs=dict(ngram_size=2, heads_per_ngram=1),
        longer=dict(ngram_size=4, heads_per_ngram=3, ple_embed_dim=144),
        longest=dict(ngram_size=8, heads_per_ngram=1, ple_embed_dim=112, ple_conv_kernel_size=5),
        two_taps=dict(ple_conv_kernel_size=2, hc_count=2),
        one_tap=dict(ple_conv_kernel_size=1),
        two_layers=dict(ple_layer_ids=[1, 3]),
        last_layer=dict(ple_layer_ids=[3]),
        none=dict(ple_layer_ids=[]),
        ends=dict(eos_token_id=[9, 2]),
        one_part=dict(split_ngram_parts=1),
        uneven_parts=dict(split_ngram_parts=7),
        tied=dict(tie_word_embeddings=True),
        silu=dict(output_gate_type="silu", norm_topk_prob=False),
        odd_width=dict(ple_embed_dim=20),
        many=dict(ngram_size=6, heads_per_ngram=16, ple_embed_dim=80),
        all_keys=dict(indexer_budget=256, ple_embed_dim=32),
    ),
    "cohere2_moe": dict(
        COMMON,
        biases=dict(attention_bias=True),
        softmax=dict(expert_selection_fn="softmax", norm_topk_prob=False),
        not_normed=dict(norm_topk_prob=False),
        rms=dict(rms_norm_eps=1e-6),
        sum=dict(shared_expert_combination_strategy="sum", num_shared_experts=2),
        no_shared=dict(num_shared_experts=0),
        no_lists=dict(layer_types=GONE, mlp_layer_types=GONE, first_k_dense_replace=1, sliding_window_pattern=2, num_hidden_layers=4),
        other_prefix=dict(layer_types=GONE, mlp_layer_types=GONE, first_k_dense_replace=2, prefix_dense_sliding_window_pattern=2,
                          num_hidden_layers=4),
        llama3=dict(rope_theta=GONE, rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0,
                                                      "high_freq_factor": 4.0, "original_max_position_embeddings": 16}),
        yarn=dict(rope_theta=GONE, rope_parameters={"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                                    "original_max_position_embeddings": 16}),
        relu=dict(hidden_act="relu"),
        negative_scale=dict(logit_scale=-0.25),
    ),
    "kimi_linear": dict(
        {k: v for k, v in COMMON.items() if k in ("tied", "odd_width")},
        one_expert=dict(num_experts=1, num_experts_per_token=1),
        top_1=dict(num_experts_per_token=1),
        q_rank=dict(q_lora_rank=12),
        other_heads=dict(linear_attn_config=dict(head_dim=12, num_heads=2, short_conv_kernel_size=3, kda_layers=[1], full_attn_layers=[2])),
        latent_first=dict(linear_attn_config=dict(head_dim=8, num_heads=4, short_conv_kernel_size=4, kda_layers=[2], full_attn_layers=[1])),
        all_latent=dict(linear_attn_config=dict(head_dim=8, num_heads=4, short_conv_kernel_size=4, kda_layers=[], full_attn_layers=[1, 2])),
        no_latent=dict(linear_attn_config=dict(head_dim=8, num_heads=4, short_conv_kernel_size=4, kda_layers=[1, 2], full_attn_layers=[])),
        listed=dict(linear_attn_config=GONE, linear_head_dim=8, linear_num_heads=4, layer_types=["full_attention", "linear_attention"],
                    mlp_layer_types=["sparse", "dense"]),
        groups=dict(num_experts=6, num_expert_group=3, topk_group=2),
        not_normed=dict(moe_renormalize=False, routed_scaling_factor=1.0),
        two_shared=dict(num_shared_experts=2),
        no_dense=dict(first_k_dense_replace=0),
        biases=dict(attention_bias=True, q_lora_rank=12),
        narrow_latent=dict(kv_lora_rank=12, qk_rope_head_dim=4),
        values=dict(v_head_dim=24, qk_nope_head_dim=8),
        rotated=dict(mla_use_nope=False),
    ),
    "hunyuan_v1_moe": dict(
        {k: v for k, v in COMMON.items() if k in ("tied", "odd_width", "wide_heads")},
        one_expert=dict(num_experts=1, moe_topk=1),
        top_1=dict(moe_topk=1),
        lists=dict(moe_topk=[2, 2]),
        uneven=dict(moe_topk=[1, 2]),
        biases=dict(attention_bias=True),
        plain=dict(rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
        linear=dict(rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}),
        yarn=dict(rope_parameters={"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                   "original_max_position_embeddings": 16}),
        dynamic=dict(rope_parameters={"rope_type": "dynamic", "rope_theta": 500.0, "factor": 2.0}),
        old_keys=dict(rope_parameters=GONE, rope_theta=500.0, rope_scaling={"type": "dynamic", "alpha": 20.0, "factor": 1.0}),
        gelu=dict(hidden_act="gelu"),
        one_kv=dict(num_key_value_heads=1),
    ),
}


ROPE = {"rope_type": "default", "rope_theta": 500.0}
LLAMA3 = dict(ROPE, rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
YARN = dict(ROPE, rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=16)
PLAIN = {  # of any family with one rotary embedding
    "tied": dict(tie_word_embeddings=True),
    "wide_heads": dict(head_dim=24),
    "odd_width": dict(intermediate_size=20),
    "one_kv": dict(num_key_value_heads=1),
    "all_kv": dict(num_key_value_heads=4),
    "biases": dict(attention_bias=True),
    "llama3": dict(rope_parameters=LLAMA3),
    "yarn": dict(rope_parameters=YARN),
    "linear": dict(rope_parameters=dict(ROPE, rope_type="linear", factor=2.0)),
    "partial": dict(rope_parameters=dict(ROPE, partial_rotary_factor=0.5)),
    "gelu": dict(hidden_act="gelu"),
    "eps": dict(rms_norm_eps=1e-3),
}
ROUTED = dict(PLAIN, one_expert=dict(num_experts=1, num_experts_per_tok=1), top_1=dict(num_experts_per_tok=1),
              all_experts=dict(num_experts_per_tok=5), no_shared=dict(num_shared_experts=0), two_shared=dict(num_shared_experts=2))


def experts_named(name, table):
    """num_experts under another name; of six or so."""
    return {k: {name if x == "num_experts" else x: v for x, v in c.items()} for k, c in table.items()}


def without(table, *names):
    return {k: v for k, v in table.items() if k not in names}


STRANGERS |= {
    "afmoe": dict(ROUTED, no_mup=dict(mup_enabled=False), not_normed=dict(route_norm=False), groups=dict(n_group=2, topk_group=1),
                  softmax=dict(score_func="softmax"), no_dense=dict(num_dense_layers=0)),
    "dots1": dict(experts_named("n_routed_experts", without(ROUTED, "no_shared", "two_shared")), not_normed=dict(norm_topk_prob=False),
                  windows=dict(sliding_window=6, layer_types=["full_attention", "sliding_attention"]), no_groups=dict(n_group=1, topk_group=1)),
    "laguna": dict(without(ROUTED, "llama3", "yarn", "linear", "partial"), element=dict(gating="per-element"), no_gate=dict(gating=False),
                   softcap=dict(moe_router_logit_softcapping=5.0)),
    "olmo3": dict(without(PLAIN, "llama3", "yarn", "linear", "partial"), no_window=dict(layer_types=["full_attention", "full_attention"]),
                  clip=dict(clip_qkv=1.0)),
    "flex_olmo": dict(without(ROUTED, "no_shared", "two_shared", "all_experts"), not_normed=dict(norm_topk_prob=False),
                      all_experts=dict(num_experts_per_tok=4)),
    "exaone_moe": dict(ROUTED, not_normed=dict(norm_topk_prob=False), groups=dict(num_experts=6, n_group=3, topk_group=2),
                       no_window=dict(sliding_window=None, layer_types=["full_attention", "full_attention"])),
    "solar_open": dict(experts_named("n_routed_experts", without(ROUTED, "no_shared", "two_shared")), not_normed=dict(norm_topk_prob=False),
                       no_groups=dict(n_group=1, topk_group=1), qk=dict(use_qk_norm=True)),
    "phi3": dict(without(PLAIN, "wide_heads", "llama3", "yarn", "linear", "partial"), plain=dict(rope_parameters=ROPE, original_max_position_embeddings=256),
                 no_window=dict(sliding_window=None)),
    "granite_swa": dict(without(experts_named("num_local_experts", ROUTED), "no_shared", "two_shared", "wide_heads"), all_rotated=dict(layer_rope_theta=[500.0, 500.0]),
                        none_rotated=dict(layer_rope_theta=[0, 0]), no_shared=dict(shared_intermediate_size=0), no_window=dict(layer_types=["full_attention"] * 2)),
    "minimax_m2": dict(experts_named("num_local_experts", without(ROUTED, "no_shared", "two_shared", "partial")), whole=dict(rotary_dim=8, rope_parameters=ROPE),
                       no_norms=dict(use_qk_norm=False)),
    "hy_v3": dict(ROUTED, not_normed=dict(route_norm=False), no_dense=dict(mlp_layer_types=["sparse", "sparse"]), no_qk=dict(qk_norm=False)),
    "mistral3": dict(without(PLAIN, "yarn"), no_growth=dict(rope_parameters=dict(YARN, llama_4_scaling_beta=0.0))),
    "gemma3": dict(without(PLAIN, "llama3", "yarn", "linear", "partial", "gelu"), soft=dict(final_logit_softcapping=5.0),
                   attention_soft=dict(attn_logit_softcapping=5.0), untied=dict(tie_word_embeddings=False), scalar=dict(query_pre_attn_scalar=24),
                   both=dict(use_bidirectional_attention=True)),
}


T, M = make_fresh.TINY, make_fresh.MOE
FLAT = without(T, "head_dim")
BASES = {  # of families that make_fresh.py does not make
    "llama": dict(T, model_type="llama", num_key_value_heads=2, rms_norm_eps=1e-6, rope_parameters=ROPE),
    "qwen2": dict(FLAT, model_type="qwen2", num_key_value_heads=2, rms_norm_eps=1e-6, rope_parameters=ROPE),
    "qwen3": dict(T, model_type="qwen3", num_key_value_heads=2, rms_norm_eps=1e-6, rope_parameters=ROPE),
    "mixtral": dict(T, model_type="mixtral", num_key_value_heads=2, intermediate_size=8, num_local_experts=5, num_experts_per_tok=2, rms_norm_eps=1e-6,
                    sliding_window=None, rope_parameters=ROPE),
    "olmoe": dict(FLAT, model_type="olmoe", num_key_value_heads=2, intermediate_size=8, num_experts=5, num_experts_per_tok=2, rms_norm_eps=1e-6,
                  rope_parameters=ROPE),
    "qwen2_moe": dict(FLAT, **M, model_type="qwen2_moe", num_key_value_heads=2, shared_expert_intermediate_size=8, rms_norm_eps=1e-6,
                      rope_parameters=ROPE),
    "qwen3_moe": dict(T, **M, model_type="qwen3_moe", num_key_value_heads=2, rms_norm_eps=1e-6, norm_topk_prob=True, rope_parameters=ROPE),
    "glm4_moe": dict(T, moe_intermediate_size=8, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, model_type="glm4_moe", num_key_value_heads=2,
                     first_k_dense_replace=1, n_group=2, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.6, rms_norm_eps=1e-6, use_qk_norm=True,
                     attention_bias=True, rope_parameters=dict(ROPE, partial_rotary_factor=0.5)),
    "deepseek_v3": dict(FLAT, moe_intermediate_size=8, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, model_type="deepseek_v3",
                        num_key_value_heads=4, first_k_dense_replace=1, n_group=2, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.6,
                        q_lora_rank=12, kv_lora_rank=16, qk_rope_head_dim=16, qk_nope_head_dim=8, v_head_dim=16, rms_norm_eps=1e-6, rope_parameters=ROPE),
    "deepseek_v2": dict(FLAT, moe_intermediate_size=8, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, model_type="deepseek_v2",
                        num_key_value_heads=4, first_k_dense_replace=1, n_group=2, topk_group=1, topk_method="group_limited_greedy", routed_scaling_factor=1.6,
                        q_lora_rank=12, kv_lora_rank=16, qk_rope_head_dim=16, qk_nope_head_dim=8, v_head_dim=16, rms_norm_eps=1e-6, rope_parameters=ROPE),
    "glm4_moe_lite": dict(FLAT, moe_intermediate_size=8, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, model_type="glm4_moe_lite",
                          num_key_value_heads=4, mlp_layer_types=["dense", "sparse"], n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.6,
                          q_lora_rank=12, kv_lora_rank=16, qk_rope_head_dim=16, qk_nope_head_dim=8, v_head_dim=16, rms_norm_eps=1e-6, rope_parameters=ROPE),
    "ernie4_5_moe": dict(FLAT, moe_intermediate_size=8, moe_num_experts=5, moe_k=2, moe_num_shared_experts=1, model_type="ernie4_5_moe", num_key_value_heads=2,
                         moe_layer_start_index=1, moe_layer_end_index=1, moe_layer_interval=1, rms_norm_eps=1e-6, use_bias=False, rope_parameters=ROPE),
    "granitemoe": dict(FLAT, model_type="granitemoe", num_key_value_heads=2, intermediate_size=8, num_local_experts=5, num_experts_per_tok=2, rms_norm_eps=1e-6,
                       embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.7, logits_scaling=2.0, rope_parameters=ROPE),
    "gpt_oss": dict(T, model_type="gpt_oss", num_key_value_heads=2, intermediate_size=8, num_local_experts=5, num_experts_per_tok=2, rms_norm_eps=1e-6,
                    sliding_window=6, layer_types=["sliding_attention", "full_attention"], rope_parameters=ROPE),
    "lfm2_moe": dict(FLAT, **M, model_type="lfm2_moe", num_key_value_heads=2, num_dense_layers=1, layer_types=["conv", "full_attention"], conv_L_cache=3,
                     norm_eps=1e-6, norm_topk_prob=True, use_expert_bias=True, rope_parameters=ROPE),
    "qwen3_next": dict(T, **M, model_type="qwen3_next", num_key_value_heads=2, shared_expert_intermediate_size=8, linear_num_value_heads=4, linear_num_key_heads=2,
                       linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=4, layer_types=["linear_attention", "full_attention"],
                       rms_norm_eps=1e-6, norm_topk_prob=True, rope_parameters=dict(ROPE, partial_rotary_factor=0.5)),
}
BASES |= {
    "granitemoehybrid": dict(FLAT, model_type="granitemoehybrid", num_key_value_heads=2, intermediate_size=8, shared_intermediate_size=12, num_local_experts=5,
                             num_experts_per_tok=2, rms_norm_eps=1e-6, embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.7,
                             logits_scaling=2.0, layer_types=["mamba", "attention"], mamba_n_heads=8, mamba_n_groups=2, mamba_d_state=16, mamba_d_head=8,
                             mamba_expand=2, mamba_d_conv=4, mamba_conv_bias=True, mamba_proj_bias=False, position_embedding_type="nope", rope_parameters=ROPE),
    "bailing_hybrid": dict(FLAT, **M, model_type="bailing_hybrid", num_key_value_heads=4, head_dim=8, num_shared_experts=1, first_k_dense_replace=1,
                           layer_group_size=2, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.6, q_lora_rank=12, kv_lora_rank=16,
                           qk_rope_head_dim=16, qk_nope_head_dim=8, v_head_dim=16, rms_norm_eps=1e-6, short_conv_kernel_size=4, no_kda_lora=True,
                           kda_safe_gate=True, kda_lower_bound=-5.0, rope_parameters=ROPE),
    "phimoe": dict(FLAT, model_type="phimoe", num_key_value_heads=2, intermediate_size=8, num_local_experts=5, num_experts_per_tok=2, rms_norm_eps=1e-5,
                   router_jitter_noise=0.01, attention_bias=True, lm_head_bias=True, sliding_window=None, rope_parameters=ROPE),
    "qwen3_5_moe": dict(T, **M, model_type="qwen3_5_moe_text", num_key_value_heads=2, shared_expert_intermediate_size=8, linear_num_value_heads=4,
                        linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=4,
                        layer_types=["linear_attention", "full_attention"], rms_norm_eps=1e-6, rope_parameters=dict(ROPE, partial_rotary_factor=0.5)),
}
SCALED = ("llama3", "yarn", "linear")
LATENT = dict(direct=dict(q_lora_rank=None), one_expert=dict(n_routed_experts=1, num_experts_per_tok=1, n_group=1, topk_group=1),
              top_1=dict(num_experts_per_tok=1), tied=dict(tie_word_embeddings=True), two_shared=dict(n_shared_experts=2), odd_width=dict(intermediate_size=20),
              biases=dict(attention_bias=True), not_normed=dict(norm_topk_prob=False), no_groups=dict(n_group=1, topk_group=1),
              values=dict(v_head_dim=24, qk_nope_head_dim=20), yarn=dict(rope_parameters=dict(YARN, mscale=0.7, mscale_all_dim=0.5)),
              halves=dict(rope_interleave=False), all_dense=dict(first_k_dense_replace=2), gelu=dict(hidden_act="gelu"), eps=dict(rms_norm_eps=1e-3))
STRANGERS |= {
    "llama": dict(PLAIN, mlp_bias=dict(mlp_bias=True), relu=dict(hidden_act="relu")),
    "qwen2": dict(without(PLAIN, "biases", "wide_heads"), windows=dict(use_sliding_window=True, sliding_window=6, max_window_layers=1),
                  listed=dict(sliding_window=6, use_sliding_window=True, layer_types=["full_attention", "sliding_attention"])),
    "qwen3": dict(PLAIN, windows=dict(use_sliding_window=True, sliding_window=6, max_window_layers=1)),
    "smollm3": dict(without(PLAIN, "tied"), untied=dict(tie_word_embeddings=False), listed=dict(no_rope_layers=[0, 1, 0, 1]),
                    windows=dict(use_sliding_window=True, sliding_window=6, layer_types=["sliding_attention", "full_attention"] * 2)),
    "olmo2": dict(PLAIN, clip=dict(clip_qkv=1.0)),
    "mistral": dict(PLAIN, no_window=dict(sliding_window=None)),
    "mellum": dict(without(ROUTED, "no_shared", "two_shared", "partial", *SCALED), not_normed=dict(norm_topk_prob=False),
                   no_window=dict(layer_types=["full_attention", "full_attention"])),
    "mixtral": dict(experts_named("num_local_experts", without(ROUTED, "no_shared", "two_shared")), window=dict(sliding_window=6)),
    "olmoe": dict(without(ROUTED, "no_shared", "two_shared", "wide_heads"), normed=dict(norm_topk_prob=True), clip=dict(clip_qkv=0.5)),
    "qwen2_moe": dict(without(ROUTED, "no_shared", "two_shared", "wide_heads", "biases"), normed=dict(norm_topk_prob=True), no_bias=dict(qkv_bias=False),
                      step=dict(decoder_sparse_step=2), only=dict(mlp_only_layers=[1]), windows=dict(use_sliding_window=True, sliding_window=6, max_window_layers=1)),
    "qwen3_moe": dict(without(ROUTED, "no_shared", "two_shared"), not_normed=dict(norm_topk_prob=False), step=dict(decoder_sparse_step=2),
                      only=dict(mlp_only_layers=[0]), window=dict(use_sliding_window=True, sliding_window=6)),
    "glm4_moe": dict(experts_named("n_routed_experts", without(ROUTED, "one_expert", "all_experts", "no_shared", "two_shared", "partial", "biases")),
                     no_bias=dict(attention_bias=False), no_norms=dict(use_qk_norm=False), not_normed=dict(norm_topk_prob=False),
                     no_groups=dict(n_group=1, topk_group=1), whole=dict(rope_parameters=ROPE), two_shared=dict(n_shared_experts=2)),
    "deepseek_v3": LATENT,
    "deepseek_v2": dict(without(LATENT, "halves"), greedy=dict(topk_method="greedy")),
    "glm4_moe_lite": dict(without(LATENT, "all_dense"), groups=dict(n_group=2, topk_group=1), halves=dict(rope_interleave=False)),
    "ernie4_5_moe": dict(experts_named("moe_num_experts", without(PLAIN, "wide_heads", "biases")), use_bias=dict(use_bias=True), top_1=dict(moe_k=1),
                         no_shared=dict(moe_num_shared_experts=0), two_shared=dict(moe_num_shared_experts=2), all_sparse=dict(moe_layer_start_index=0)),
    "granitemoehybrid": dict(rotated=dict(position_embedding_type="rope"), no_experts=dict(num_local_experts=0, num_experts_per_tok=0),
                             one_expert=dict(num_local_experts=1, num_experts_per_tok=1), top_1=dict(num_experts_per_tok=1), tied=dict(tie_word_embeddings=True),
                             no_conv_bias=dict(mamba_conv_bias=False), proj_bias=dict(mamba_proj_bias=True), one_group=dict(mamba_n_groups=1),
                             taps=dict(mamba_d_conv=3), all_mamba=dict(layer_types=["mamba", "mamba"]), no_mamba=dict(layer_types=["attention", "attention"]),
                             steps=dict(time_step_limit=[0.1, 0.5]), states=dict(mamba_d_state=12), biases=dict(attention_bias=True)),
    "bailing_hybrid": dict(direct=dict(q_lora_rank=None), softplus=dict(kda_safe_gate=False), other_bound=dict(kda_lower_bound=-2.0), thin=dict(no_kda_lora=False),
                           groups=dict(num_experts=6, n_group=3, topk_group=2), not_normed=dict(norm_topk_prob=False), top_1=dict(num_experts_per_tok=1),
                           tied=dict(tie_word_embeddings=True), two_shared=dict(num_shared_experts=2), taps=dict(short_conv_kernel_size=3),
                           no_dense=dict(first_k_dense_replace=0), all_latent=dict(layer_group_size=1), values=dict(v_head_dim=24)),
    "phimoe": dict(experts_named("num_local_experts", without(ROUTED, "no_shared", "two_shared", "wide_heads", "partial", "biases", "all_experts", "one_expert", *SCALED)),
                   no_bias=dict(attention_bias=False), no_head_bias=dict(lm_head_bias=False), window=dict(sliding_window=6), jitter=dict(router_jitter_noise=0.3)),
    "qwen3_5_moe": dict(without(ROUTED, "no_shared", "two_shared", "partial"), heads=dict(linear_num_value_heads=6, linear_num_key_heads=3),
                        values=dict(linear_value_head_dim=12), taps=dict(linear_conv_kernel_dim=3), whole=dict(rope_parameters=ROPE)),
    "granitemoe": dict(experts_named("num_local_experts", without(ROUTED, "no_shared", "two_shared", "wide_heads"))),
    "gpt_oss": dict(experts_named("num_local_experts", without(ROUTED, "no_shared", "two_shared", "partial", "gelu")), no_bias=dict(attention_bias=False),
                    limit=dict(swiglu_limit=1.0), no_window=dict(layer_types=["full_attention", "full_attention"])),
    "lfm2_moe": dict(without(ROUTED, "no_shared", "two_shared", "wide_heads", "partial", "biases", "eps"), no_bias=dict(use_expert_bias=False), scaled=dict(routed_scaling_factor=1.6),
                     not_normed=dict(norm_topk_prob=False), conv_bias=dict(conv_bias=True), taps=dict(conv_L_cache=4), no_dense=dict(num_dense_layers=0),
                     all_conv=dict(layer_types=["conv", "conv"])),
    "qwen3_next": dict(without(ROUTED, "no_shared", "two_shared", "partial"), not_normed=dict(norm_topk_prob=False), step=dict(decoder_sparse_step=2),
                       heads=dict(linear_num_value_heads=6, linear_num_key_heads=3), values=dict(linear_value_head_dim=12), taps=dict(linear_conv_kernel_dim=3),
                       whole=dict(rope_parameters=ROPE)),
    "gemma3n": dict(streams_4=dict(altup_num_inputs=4), streams_2=dict(altup_num_inputs=2), all_gates=dict(activation_sparsity_pattern=[0.0] * 4),
                    no_pattern=dict(activation_sparsity_pattern=None), rank=dict(laurel_rank=12), no_shared_keys=dict(num_kv_shared_layers=0),
                    more_heads=dict(num_attention_heads=4, num_key_value_heads=2), odd_widths=dict(hidden_size=40, intermediate_size=20, hidden_size_per_layer_input=12),
                    own_head=dict(tie_word_embeddings=False), no_cap=dict(final_logit_softcapping=None), unscaled=dict(altup_correct_scale=False),
                    all_full=dict(layer_types=["full_attention"] * 4), biases=dict(attention_bias=True), silu=dict(hidden_activation="silu"),
                    widths=dict(intermediate_size=[12, 20, 12, 20]), few_inputs=dict(vocab_size_per_layer_input=40), eps=dict(rms_norm_eps=1e-3),
                    yarn=dict(rope_parameters={"sliding_attention": ROPE, "full_attention": YARN}), linear=dict(rope_parameters={"sliding_attention": ROPE, "full_attention": dict(ROPE, rope_type="linear", factor=2.0)})),
    "jamba": dict(experts_named("num_experts", without(ROUTED, "no_shared", "two_shared", "biases", "wide_heads", "partial", *SCALED)),
                  all_mamba=dict(attn_layer_period=9, attn_layer_offset=8), all_attention=dict(attn_layer_period=1, attn_layer_offset=0),
                  attention_first=dict(attn_layer_offset=0, expert_layer_offset=1), all_sparse=dict(expert_layer_period=1, expert_layer_offset=0),
                  all_dense=dict(num_experts=1, num_experts_per_tok=1), rank=dict(mamba_dt_rank="auto"), no_rank=dict(mamba_dt_rank=GONE), rank_5=dict(mamba_dt_rank=5),
                  states=dict(mamba_d_state=17), taps=dict(mamba_d_conv=2), narrow=dict(mamba_expand=1), no_conv_bias=dict(mamba_conv_bias=False),
                  no_bias=dict(mamba_proj_bias=False), window=dict(sliding_window=6), head_dim=dict(head_dim=16), odd=dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=1)),
    "jetmoe": dict(
        tied=dict(tie_word_embeddings=True), top_1=dict(num_experts_per_tok=1), top_3=dict(num_experts_per_tok=3), all_used=dict(num_experts_per_tok=4),
        many=dict(num_local_experts=19, num_experts_per_tok=5), one=dict(num_local_experts=1, num_experts_per_tok=1), one_head=dict(num_key_value_heads=1),
        three_heads=dict(num_key_value_heads=3), wide_heads=dict(kv_channels=20), odd=dict(hidden_size=40, intermediate_size=12), eps=dict(rms_norm_eps=1e-2),
        linear=dict(rope_parameters=dict(ROPE, rope_type="linear", factor=2.0)), relu=dict(activation_function="relu"), gelu=dict(activation_function="gelu_pytorch_tanh")),
    "zaya": dict(
        plain=dict(layer_types=["hybrid"] * 3, sliding_window=None), no_types=dict(layer_types=GONE, sliding_window=GONE), all_windows=dict(layer_types=["hybrid_sliding"] * 3),
        no_rope=dict(rope_parameters=GONE), taps_1=dict(cca_time0=1, cca_time1=1), taps_4=dict(cca_time0=2, cca_time1=4), one_key=dict(num_key_value_heads=1),
        four_keys=dict(num_key_value_heads=4), biases=dict(attention_bias=True), head_bias=dict(lm_head_bias=True, tie_word_embeddings=False), row_40=dict(router_hidden_size=40),
        one_expert=dict(num_experts=1), top_2=dict(num_experts_per_tok=2), relu=dict(hidden_act="relu"), head_20=dict(head_dim=20), odd_hidden=dict(hidden_size=36), head_6=dict(head_dim=6),
        whole=dict(rope_parameters={"hybrid": {"rope_type": "default", "rope_theta": 5000.0}, "hybrid_sliding": {"rope_type": "default", "rope_theta": 100.0}}),
        yarn=dict(rope_parameters={"hybrid": {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "original_max_position_embeddings": 64},
                                   "hybrid_sliding": {"rope_type": "default", "rope_theta": 100.0}})),
    "longcat_flash": dict(
        no_identities=dict(zero_expert_num=0), null_identities=dict(zero_expert_num=None), many_identities=dict(zero_expert_num=9, moe_topk=3),
        top_1=dict(moe_topk=1), more_than_experts=dict(moe_topk=4), one_expert=dict(n_routed_experts=1, moe_topk=1), tied=dict(tie_word_embeddings=True),
        layers_3=dict(num_layers=3), odd_width=dict(ffn_hidden_size=20, expert_ffn_hidden_size=12), odd_hidden=dict(hidden_size=48),
        biases=dict(attention_bias=True), factor=dict(routed_scaling_factor=6.0), values=dict(v_head_dim=24, qk_nope_head_dim=16),
        narrow_latent=dict(kv_lora_rank=12, qk_rope_head_dim=4, head_dim=4), no_base=dict(rope_parameters=GONE),
        yarn=dict(rope_parameters={"rope_type": "yarn", "rope_theta": 5000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                                   "mscale_all_dim": 1.0, "original_max_position_embeddings": 16}),
        linear=dict(rope_parameters={"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0}), relu=dict(hidden_act="relu"),
        router_bias=dict(router_bias=True), unscaled=dict(mla_scale_q_lora=False), normed=dict(norm_topk_prob=True), ngram=dict(ngram_vocab_size_ratio=78)),
    "gemma4_e": {
        "no_shared_keys": dict(num_kv_shared_layers=0),
        "one_shared_layer": dict(num_kv_shared_layers=1, num_key_value_heads=1, num_attention_heads=2),
        "odd_widths": dict(hidden_size=40, intermediate_size=20, hidden_size_per_layer_input=12),
        "not_twice_as_wide": dict(use_double_wide_mlp=False),
        "values_are_keys": dict(attention_k_eq_v=True, num_global_key_value_heads=1),
        "own_head": dict(tie_word_embeddings=False),
        "experts": dict(enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=8),
        "one_expert": dict(enable_moe_block=True, num_experts=3, top_k_experts=1, moe_intermediate_size=8),
        "no_cap": dict(final_logit_softcapping=None),
        "same_heads_all_rotated": dict(global_head_dim=8, sliding_window=3,
                                        rope_parameters=dict(GEMMA, full_attention=dict(GEMMA["full_attention"], partial_rotary_factor=1.0))),
        "biases": dict(attention_bias=True),
        "a_full_layer_first": dict(layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention",
                                                "sliding_attention"]),
        "silu": dict(hidden_activation="silu"),
    },
    "llama4": {
        "tied": dict(tie_word_embeddings=True),
        "biases": dict(attention_bias=True),
        "no_norms": dict(use_qk_norm=False),
        "no_growth": dict(attn_temperature_tuning=False),
        "top_1": dict(num_experts_per_tok=1),
        "one_expert": dict(num_local_experts=1, num_experts_per_tok=1),
        "all_experts": dict(num_experts_per_tok=3),
        "all_layers_routed": dict(interleave_moe_layer_step=1),
        "listed_layers": dict(moe_layers=[0, 3]),
        "no_experts": dict(moe_layers=[]),
        "every_second_not_rotated": dict(no_rope_layer_interval=2),
        "listed_rotations": dict(no_rope_layers=[0, 1, 1, 0]),
        "listed_types": dict(layer_types=["full_attention", "chunked_attention", "chunked_attention", "chunked_attention"]),
        "no_chunks": dict(attention_chunk_size=None),
        "wide_heads": dict(head_dim=24),
        "odd_width": dict(intermediate_size=12, intermediate_size_mlp=20),
        "one_kv": dict(num_key_value_heads=1),
        "llama3": dict(rope_parameters=LLAMA3),
        "yarn": dict(rope_parameters=YARN),
        "gelu": dict(hidden_act="gelu"),
        "eps": dict(rms_norm_eps=1e-3),
    },
    "muse_glimmer": {name: dict(text_config=dict(MUSE, **changes)) for name, changes in dict(
        tied=dict(tie_word_embeddings=True),
        biases=dict(attention_bias=True),
        no_cap=dict(final_logit_softcapping=0.0),
        large_eps=dict(post_norm_eps=1e-2),
        five_layers=dict(num_hidden_layers=5),
        listed_types=dict(layer_types=["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]),
        listed_rotations=dict(layer_rope_theta=[0, 0, 5000.0, 5000.0]),
        no_window=dict(sliding_window=None, layer_types=["full_attention"] * 4),
        wide_heads=dict(head_dim=24),
        odd_width=dict(intermediate_size=20),
        one_kv=dict(num_key_value_heads=1),
        llama3=dict(rope_parameters=LLAMA3),
        yarn=dict(rope_parameters=YARN),
        partial=dict(rope_parameters=dict(ROPE, partial_rotary_factor=0.5)),
        gelu=dict(hidden_activation="gelu"),
    ).items()},
    "mistral4": {
        "queries_without_a_latent_row": dict(q_lora_rank=None),
        "tied": dict(tie_word_embeddings=True),
        "biases": dict(attention_bias=True),
        "no_dense_layer": dict(first_k_dense_replace=0),
        "weights_as_they_are": dict(norm_topk_prob=False),
        "halves_rotated": dict(rope_interleave=False),
        "a_small_part_rotated": dict(qk_nope_head_dim=48, rope_parameters=dict(MISTRAL, partial_rotary_factor=0.25)),
        "wide": dict(v_head_dim=32, qk_rope_head_dim=32, qk_nope_head_dim=32, kv_lora_rank=48),
        "one_expert": dict(n_routed_experts=3, num_experts_per_tok=1),
        "two_shared_experts": dict(n_shared_experts=2),
        "odd_widths": dict(hidden_size=40, moe_intermediate_size=12, intermediate_size=20),
        "no_growth": dict(rope_parameters=dict(MISTRAL, llama_4_scaling_beta=0.0)),
        "groups": dict(n_routed_experts=6, n_group=2, topk_group=1),
    },
}


STEP, MIMO = make_fresh.CONFIGS["step3p5"], make_fresh.CONFIGS["mimo_v2_flash"]["rope_parameters"]
STRANGERS |= {
    "step3p5": {
        "no_limits": dict(swiglu_limits=GONE, swiglu_limits_shared=GONE),
        "routed_limit_alone": dict(swiglu_limits_shared=[0.0, 0.0, 0.0]),
        "shared_limit_alone": dict(swiglu_limits=[0.0, None, 0.0]),
        "one_limit": dict(swiglu_limits=[0.5, 0.5, 0.0], swiglu_limits_shared=[0.5, 0.5, 0.0]),
        "all_experts": dict(moe_layers_enum="0,1"),
        "as_transformers_saves": dict(
            {k: GONE for k in ("attention_other_setting", "moe_layers_enum", "rope_theta", "partial_rotary_factors", "rope_scaling", "num_attention_groups",
                               "moe_num_experts", "moe_top_k", "num_nextn_predict_layers")},
            num_sliding_attention_heads=8, num_key_value_heads=1, n_routed_experts=3, num_experts_per_tok=2, mlp_layer_types=["dense", "sparse"],
            layer_types=["full_attention", "sliding_attention"], swiglu_limits=[0.0, 0.4], swiglu_limits_shared=[0.0, 0.6], 
            rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5},
                             "sliding_attention": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0}}),
        "window_first": dict(layer_types=["sliding_attention", "full_attention", "sliding_attention"], rope_theta=[100.0, 5000.0, 100.0],
                             partial_rotary_factors=[1.0, 0.5, 1.0], rope_scaling=GONE),
        "no_window": dict(layer_types=["full_attention"] * 3, rope_theta=5000.0, partial_rotary_factors=[0.5] * 3),
        "one_theta": dict(rope_theta=5000.0),
        "other_parts": dict(partial_rotary_factors=[1.0, 0.5, 0.5]),
        "yarn": dict(rope_scaling={"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 16}),
        "plain": dict(rope_scaling=GONE),
        "scale": dict(query_pre_attn_scalar=20),
        "biases": dict(attention_bias=True),
        "mlp_biases": dict(mlp_bias=True),
        "top_1": dict(moe_top_k=1),
        "factor_unsaid": dict(moe_router_scaling_factor=GONE),
        "wide_shared": dict(share_expert_dim=20),
        "softmax": dict(moe_router_activation="softmax"),
        "both_ways": dict(use_bidirectional_attention=True),
        "gate_an_element": dict(gating="per-element"),
        "tied": dict(tie_word_embeddings=True),
    },
    "mimo_v2_flash": {
        "as_published": dict(layer_types=GONE, mlp_layer_types=GONE, rope_parameters=GONE, num_hidden_layers=3, hybrid_layer_pattern=[0, 1, 1],
                             moe_layer_freq=[0, 1, 1], partial_rotary_factor=0.334, rope_theta=5000000, swa_rope_theta=10000, sliding_window=5,
                             sliding_window_size=5, swa_num_key_value_heads=2, swa_num_attention_heads=4, swa_head_dim=12, swa_v_head_dim=8,
                             add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False, layernorm_epsilon=1e-5, topk_method="noaux_tc",
                             scoring_func="sigmoid", routed_scaling_factor=None),
        "no_scale": dict(attention_value_scale=None),
        "scale_of_1": dict(attention_value_scale=1.0),
        "wide_values": dict(v_head_dim=16),
        "as_wide_values": dict(v_head_dim=12),
        "window_first": dict(layer_types=["sliding_attention", "full_attention"]),
        "no_window": dict(layer_types=["full_attention"] * 2),
        "usual_lists": dict(layer_types=GONE, mlp_layer_types=GONE, num_hidden_layers=7),
        "groups": dict(n_routed_experts=6, n_group=3, topk_group=2),
        "not_normed": dict(norm_topk_prob=False),
        "biases": dict(attention_bias=True),
        "tied": dict(tie_word_embeddings=True),
        "two_parts": dict(rope_parameters={"full_attention": dict(MIMO["full_attention"], partial_rotary_factor=1.0), "sliding_attention": MIMO["sliding_attention"]}),
        "yarn": dict(rope_parameters={"full_attention": dict(MIMO["full_attention"], rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                                             original_max_position_embeddings=16), "sliding_attention": MIMO["sliding_attention"]}),
        "top_1": dict(num_experts_per_tok=1),
        "gelu": dict(hidden_act="gelu"),
        "eps": dict(rms_norm_eps=1e-3),
    },
}


# of families with an indexer
SPARSE = dict(
    top_1=dict(index_topk=1), most_keys=dict(index_topk=20), more_than_tokens=dict(index_topk=100), top_17=dict(index_topk=17), one_head=dict(index_n_heads=1),
    many_heads=dict(index_n_heads=40), wide_index=dict(index_head_dim=96), odd_index=dict(index_head_dim=20), no_wider=dict(index_head_dim=16),
    narrow_rope=dict(qk_rope_head_dim=4, kv_lora_rank=12), values=dict(v_head_dim=24, qk_nope_head_dim=20), groups=dict(n_routed_experts=6, n_group=3, topk_group=2),
    one_expert=dict(n_routed_experts=1, num_experts_per_tok=1), top_1_expert=dict(num_experts_per_tok=1), tied=dict(tie_word_embeddings=True),
    two_shared=dict(n_shared_experts=2), biases=dict(attention_bias=True), not_normed=dict(norm_topk_prob=False), direct=dict(q_lora_rank=None),
    yarn=dict(rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0)), linear=dict(rope_parameters=dict(ROPE, rope_type="linear", factor=2.0)),
    gelu=dict(hidden_act="gelu"), eps=dict(rms_norm_eps=1e-3), turned_otherwise=dict(indexer_rope_interleave=True))
STRANGERS |= {
    "deepseek_v32": dict(SPARSE, no_dense=dict(first_k_dense_replace=0), all_dense=dict(first_k_dense_replace=2, num_nextn_predict_layers=0)),
    "glm_moe_dsa": dict({k: v for k, v in SPARSE.items() if k != "turned_otherwise"}, turned_otherwise=dict(indexer_rope_interleave=False),
                        all_choose=dict(indexer_types=["full"] * 3), one_chooses=dict(indexer_types=["full", "shared", "shared"]),
                        none_first=dict(indexer_types=["shared", "full", "full"]), pattern=dict(indexer_types=GONE, index_topk_pattern="FFS"),
                        every_2=dict(indexer_types=GONE, index_topk_freq=2, index_skip_topk_offset=1), no_list=dict(indexer_types=GONE),
                        all_dense=dict(mlp_layer_types=["dense"] * 3)),
    "grovemoe": dict(  # plain_reference.py's numbers: there is no class
        top_1=dict(num_experts_per_tok=1), all_experts=dict(num_experts_per_tok=6), two_experts=dict(num_experts=2, num_experts_per_tok=2), many_experts=dict(num_experts=16, num_experts_per_tok=5),
        not_normed=dict(norm_topk_prob=False), tied=dict(tie_word_embeddings=True), wide_heads=dict(head_dim=24), one_kv=dict(num_key_value_heads=1),
        all_kv=dict(num_key_value_heads=4), step=dict(decoder_sparse_step=2), only=dict(mlp_only_layers=[0]), layers_4=dict(num_hidden_layers=4),
        wide_experts=dict(moe_intermediate_size=24), eps=dict(rms_norm_eps=1e-3), theta=dict(rope_theta=1e6), window=dict(use_sliding_window=True, sliding_window=6),
        gelu=dict(hidden_act="gelu")),
}


CSA, HCA, NEAR = "compressed_sparse_attention", "heavily_compressed_attention", "sliding_attention"
STRANGERS |= {
    "deepseek_v4": dict(
        near=dict(layer_types=[NEAR] * 3), all_chosen=dict(layer_types=[CSA] * 3), all_heavy=dict(layer_types=[HCA] * 3), turned=dict(layer_types=[HCA, CSA, NEAR]),
        kinds_unsaid=dict(layer_types=GONE, mlp_layer_types=GONE, num_hidden_layers=5),
        numbers=dict(layer_types=GONE, mlp_layer_types=GONE, compress_rates=GONE, compress_ratios=[0, 4, 128, 4], num_hash_layers=2, num_hidden_layers=4),
        numbers_rated=dict(layer_types=GONE, compress_rates=GONE, compress_ratios=[128, 4, 0], compress_rate_csa=3, compress_rate_hca=5),
        numbers_further=dict(layer_types=GONE, compress_ratios=[128, 4, 4, 0, 0]), other_number=dict(layer_types=GONE, compress_ratios=[0, 4, 16]),
        rates_2=dict(compress_rates={CSA: 2, HCA: 3}), rates_odd=dict(compress_rates={CSA: 5, HCA: 7}), rates_long=dict(compress_rates={CSA: 16, HCA: 200}),
        rate_1=dict(compress_rates={CSA: 1, HCA: 8}), window_1=dict(sliding_window=1), window_2=dict(sliding_window=2), window_wide=dict(sliding_window=200),
        streams_3=dict(hc_mult=3), streams_4=dict(hc_mult=4), streams_8=dict(hc_mult=8), stream_1=dict(hc_mult=1), streams_16=dict(hc_mult=16), round_1=dict(hc_sinkhorn_iters=1),
        rounds_20=dict(hc_sinkhorn_iters=20), no_rounds=dict(hc_sinkhorn_iters=0), stream_eps=dict(hc_eps=1e-2), eps_1e20=dict(rms_norm_eps=1e-20), eps=dict(rms_norm_eps=1e-3),
        group_1=dict(o_groups=1), groups_4=dict(o_groups=4, o_lora_rank=3), groups_3=dict(o_groups=3), groups_wide=dict(o_lora_rank=40), one_head=dict(num_attention_heads=1, o_groups=1),
        heads_6=dict(num_attention_heads=6, o_groups=3), two_kv=dict(num_key_value_heads=2), wide_heads=dict(head_dim=48), odd_heads=dict(head_dim=40), heads_24=dict(head_dim=24),
        thin_heads=dict(head_dim=16), rotated_all=dict(head_dim=16, partial_rotary_factor=1.0), rotated_2=dict(partial_rotary_factor=0.0625), rotated_odd=dict(partial_rotary_factor=0.1),
        rotated_unsaid=dict(partial_rotary_factor=GONE), rotated_by_number=dict(partial_rotary_factor=GONE, qk_rope_head_dim=6), q_rank_odd=dict(q_lora_rank=5),
        index_1=dict(index_topk=1), index_all=dict(index_topk=64), index_heads_2=dict(index_n_heads=2), index_wide=dict(index_head_dim=48), index_odd=dict(index_head_dim=24),
        by_token=dict(mlp_layer_types=["hash_moe"] * 3), none_by_token=dict(mlp_layer_types=["moe"] * 3), by_token_last=dict(mlp_layer_types=["moe", "moe", "hash_moe"]),
        by_number=dict(mlp_layer_types=GONE, num_hash_layers=1), by_no_number=dict(mlp_layer_types=GONE, num_hash_layers=0), top_1=dict(num_experts_per_tok=1),
        all_experts=dict(num_experts_per_tok=4), one_expert=dict(n_routed_experts=1, num_experts_per_tok=1), many_experts=dict(n_routed_experts=24, num_experts_per_tok=7),
        no_shared=dict(n_shared_experts=0), two_shared=dict(n_shared_experts=2), not_normed=dict(norm_topk_prob=False), sigmoid=dict(scoring_func="sigmoid"),
        softmax=dict(scoring_func="softmax"), factor=dict(routed_scaling_factor=0.3), factor_unsaid=dict(routed_scaling_factor=GONE), clamp_tight=dict(swiglu_limit=0.2),
        clamp_unsaid=dict(swiglu_limit=GONE), clamp_none=dict(swiglu_limit=0.0), gelu=dict(hidden_act="gelu"), relu=dict(hidden_act="relu"), biases=dict(attention_bias=True),
        mlp_biases=dict(mlp_bias=True), tied=dict(tie_word_embeddings=True), odd_width=dict(moe_intermediate_size=5), odd_hidden=dict(hidden_size=36),
        yarn=dict(rope_parameters=dict(ROPE, rope_type="yarn", factor=16.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=16)),
        yarn_factor=dict(rope_parameters=dict(ROPE, rope_type="yarn", factor=16.0, attention_factor=1.3, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=16)),
        yarn_nested=dict(rope_parameters={"main": dict(ROPE, rope_theta=300.0, partial_rotary_factor=0.25), "compress": dict(
            ROPE, rope_type="yarn", rope_theta=900.0, factor=4.0, partial_rotary_factor=0.25, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=16)}),
        main_scaled=dict(rope_parameters={"main": dict(ROPE, rope_type="linear", factor=2.0, rope_theta=300.0, partial_rotary_factor=0.25),
                                          "compress": dict(ROPE, rope_theta=900.0, partial_rotary_factor=0.25)}),
        linear=dict(rope_parameters=dict(ROPE, rope_type="linear", factor=2.0)),
        scaling=dict(rope_parameters=GONE, rope_scaling=dict(type="yarn", factor=16.0, beta_fast=32, beta_slow=1, original_max_position_embeddings=16)),
        thetas_unsaid=dict(rope_theta=GONE, compress_rope_theta=GONE), wide_vocabulary=dict(vocab_size=333)),
}


def make(family, name, changes, to):
    if family in plain_reference.CONFIGS:
        plain_reference.make(family, to, 24, 1, changes)
        return
    base = make_fresh.CONFIGS.get(family) or BASES[family]
    # transformers' configurations write into what they are given
    make_fresh.CONFIGS["stranger"] = copy.deepcopy({k: v for k, v in dict(base, **changes).items() if v != GONE})
    make_fresh.make("stranger", to, 24, 1)


def tool_says(tool, folder):
    r = subprocess.run([tool, folder], capture_output=True, text=True)
    return r.returncode, (r.stdout + r.stderr).strip().replace(str(folder), folder.name)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tool", type=Path)
    p.add_argument("--to", type=Path)
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    to, worst = a.to or Path(tempfile.mkdtemp(prefix="strangers-")), 0
    for family in a.names or STRANGERS:
        for name, changes in STRANGERS[family].items():
            folder = to / f"{family}-{name}"
            try:
                if not (folder / "golden.safetensors").exists():
                    make(family, name, changes, folder)
            except (Exception, SystemExit) as e:
                print(f"{family}/{name}: transformers: {str(e).splitlines()[0][:160]}", flush=True)
                continue
            if a.tool:
                code, said = tool_says(a.tool, folder)
                differs = code and "FAILED: " not in said
                worst = max(worst, bool(differs))
                print(f"{family}/{name}: {'DIFFERS' if differs else 'refused' if code else 'agrees'}: {said}", flush=True)
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
