#!/usr/bin/env python3
"""Tiny checkpoints of new families from nothing but a configuration, with golden numbers by transformers.

    make_fresh.py [--to DIR] [--tokens N] [--seed N] [NAME ...]    folders of CONFIGS below (default: all)

Written below --to (default: tests/golden/families): config.json, model.safetensors (BF16, as transformers names its tensors),
golden.safetensors as make_goldens.py describes it; golden-further.safetensors: mtp_reference.py afterwards (deepseek_v4: mtp_streams.py, which adds the block, too). Matrices are normal with a deviation of 1/sqrt(columns), embeddings of 1 (Gemma: 0.2), norms
lie around 1, biases around 0. A seed is taken by make_goldens.py's rules.
Needs torch, transformers 5.24, safetensors.
"""
import argparse
import copy
import json
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import make_goldens

TINY = dict(vocab_size=48, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1, head_dim=8,
            intermediate_size=24, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
MOE = dict(moe_intermediate_size=8, num_experts=5, num_experts_per_tok=2)
CONFIGS = {
    "afmoe": dict(TINY, **MOE, model_type="afmoe", num_dense_layers=1, num_shared_experts=1, global_attn_every_n_layers=2,
                  sliding_window=6, route_scale=1.7, mup_enabled=True, rms_norm_eps=1e-5),
    "dots1": dict(TINY, moe_intermediate_size=8, n_routed_experts=6, num_experts_per_tok=2, model_type="dots1", n_group=2, topk_group=1,
                  first_k_dense_replace=1, n_shared_experts=1, norm_topk_prob=True, routed_scaling_factor=1.6, rms_norm_eps=1e-6,
                  attention_bias=False, sliding_window=None),
    "smollm3": dict(TINY, model_type="smollm3", num_hidden_layers=4, no_rope_layer_interval=4,
                    tie_word_embeddings=True, rms_norm_eps=1e-6),
    "laguna": dict(TINY, **MOE, model_type="laguna", num_attention_heads_per_layer=[4, 8], num_key_value_heads=2, shared_expert_intermediate_size=8, sliding_window=6, moe_routed_scaling_factor=1.6, rms_norm_eps=1e-6,
                   layer_types=["full_attention", "sliding_attention"], gating="per-head", mlp_layer_types=["dense", "sparse"],
                   rope_parameters={"full_attention": {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "partial_rotary_factor": 0.5,
                                                       "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0},
                                    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0}}),
    "olmo2": dict(TINY, model_type="olmo2", num_key_value_heads=2, rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "olmo3": dict(TINY, model_type="olmo3", num_key_value_heads=2, sliding_window=6, rms_norm_eps=1e-6,
                  layer_types=["sliding_attention", "full_attention"],
                  rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
                                   "full_attention": {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "attention_factor": 1.2,
                                                      "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0}}),
    "flex_olmo": dict(TINY, model_type="flex_olmo", intermediate_size=8, num_experts=4, num_experts_per_tok=2, rms_norm_eps=1e-6,
                      norm_topk_prob=True, rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "mellum": dict(TINY, **MOE, model_type="mellum", num_key_value_heads=2, sliding_window=6, rms_norm_eps=1e-6, norm_topk_prob=True,
                   layer_types=["sliding_attention", "full_attention"],
                   rope_parameters={"full_attention": {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "beta_fast": 32.0,
                                                       "beta_slow": 1.0, "original_max_position_embeddings": 64},
                                    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}),
    "exaone_moe": dict(TINY, **MOE, model_type="exaone_moe", num_shared_experts=1, num_key_value_heads=2, first_k_dense_replace=1,
                       n_group=1, topk_group=1, sliding_window=6, sliding_window_pattern="LLLG", routed_scaling_factor=1.6, rms_norm_eps=1e-6,
                       layer_types=["full_attention", "sliding_attention"], mlp_layer_types=["dense", "sparse"],
                       rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
    "solar_open": dict(TINY, moe_intermediate_size=8, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, n_group=2, topk_group=1,
                       model_type="solar_open", num_hidden_layers=1, num_key_value_heads=2, routed_scaling_factor=1.6, rms_norm_eps=1e-6,
                       norm_topk_prob=True, rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "deepseek": dict({k: v for k, v in TINY.items() if k != "head_dim"}, moe_intermediate_size=8, n_routed_experts=5, num_experts_per_tok=2,
                     n_shared_experts=2, first_k_dense_replace=1, moe_layer_freq=1, norm_topk_prob=False, scoring_func="softmax",
                     hidden_act="silu", model_type="deepseek", num_key_value_heads=4, rms_norm_eps=1e-6, rope_theta=5000.0),
    "phi3": dict({k: v for k, v in TINY.items() if k != "head_dim"}, model_type="phi3", num_key_value_heads=2, rms_norm_eps=1e-6, sliding_window=6,
                 original_max_position_embeddings=64,
                 rope_parameters={"rope_type": "longrope", "rope_theta": 5000.0, "partial_rotary_factor": 0.75,
                                  "short_factor": [1.0, 1.2, 1.6], "long_factor": [1.0, 2.0, 4.0]}),
    "granite_swa": dict({k: v for k, v in TINY.items() if k != "head_dim"}, model_type="granitemoe_swa", num_key_value_heads=2, intermediate_size=8,
                        num_local_experts=5, num_experts_per_tok=2, shared_intermediate_size=8, rms_norm_eps=1e-6, sliding_window=6,
                        layer_types=["full_attention", "sliding_attention"], layer_rope_theta=[0, 5000.0], embedding_multiplier=3.0,
                        attention_multiplier=0.3, residual_multiplier=0.7, logits_scaling=2.0, rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
    "minimax_m2": dict(TINY, model_type="minimax_m2", num_key_value_heads=2, intermediate_size=8, num_local_experts=5, num_experts_per_tok=2,
                       rotary_dim=4, rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}),
    "hy_v3": dict(TINY, **MOE, model_type="hy_v3", num_key_value_heads=2, num_shared_experts=1, router_scaling_factor=1.6, route_norm=True,
                  rms_norm_eps=1e-6, mlp_layer_types=["dense", "sparse"], rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "mistral": dict(TINY, model_type="mistral", num_key_value_heads=2, sliding_window=6, rms_norm_eps=1e-6,
                    rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "mistral3": dict(TINY, model_type="ministral3", num_key_value_heads=2, rms_norm_eps=1e-6,
                     rope_parameters={"rope_type": "yarn", "type": "yarn", "rope_theta": 5000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                                      "mscale_all_dim": 1.0, "original_max_position_embeddings": 5, "llama_4_scaling_beta": 0.3}),
    "cohere2_moe": dict(TINY, model_type="cohere2_moe", num_hidden_layers=3, num_key_value_heads=2, intermediate_size=8, prefix_dense_intermediate_size=24,
                        num_experts=5, num_experts_per_tok=2, num_shared_experts=1, shared_expert_combination_strategy="average", sliding_window=6,
                        expert_selection_fn="sigmoid", norm_topk_prob=True, layer_norm_eps=1e-5, logit_scale=0.5, prefix_dense_sliding_window_pattern=1,
                        layer_types=["full_attention", "sliding_attention", "full_attention"], mlp_layer_types=["dense", "sparse", "sparse"],
                        rope_theta=5000.0, num_nextn_predict_layers=1),
    "kimi_linear": dict({k: v for k, v in TINY.items() if k not in ("head_dim", "max_position_embeddings")}, model_type="kimi_linear", model_max_length=256,
                        num_key_value_heads=4, intermediate_size=24, moe_intermediate_size=8, num_experts=5, num_experts_per_token=2, num_shared_experts=1,
                        first_k_dense_replace=1, kv_lora_rank=16, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16, q_lora_rank=None,
                        num_expert_group=1, topk_group=1, moe_renormalize=True, routed_scaling_factor=1.6, moe_router_activation_func="sigmoid",
                        mla_use_nope=True, rms_norm_eps=1e-5,
                        linear_attn_config=dict(head_dim=8, num_heads=4, short_conv_kernel_size=4, kda_layers=[1], full_attn_layers=[2])),
    "hunyuan_v1_moe": dict(TINY, model_type="hunyuan_v1_moe", num_key_value_heads=2, intermediate_size=8, num_experts=5, moe_topk=2, num_shared_expert=1,
                           rms_norm_eps=1e-5, rope_parameters={"rope_type": "dynamic", "rope_theta": 1000.0, "alpha": 20.0, "factor": 1.0}),
    # as published: lists with an entry of the block for further tokens
    "step3p5": dict({k: v for k, v in TINY.items() if k not in ("num_key_value_heads", "intermediate_size")}, model_type="step3p5", num_attention_groups=1, intermediate_size=8,
                    attention_other_setting=dict(attention_type="sliding_attention", num_attention_heads=8, num_attention_groups=1, head_dim=8),
                    moe_num_experts=3, moe_top_k=2, moe_intermediate_size=8, share_expert_dim=8, moe_layers_enum="1", moe_router_scaling_factor=1.6,
                    moe_router_activation="sigmoid", norm_expert_weight=True, sliding_window=6, rms_norm_eps=1e-5, gating=True,
                    layer_types=["full_attention", "sliding_attention", "sliding_attention"], rope_theta=[5000.0, 100.0, 100.0],
                    partial_rotary_factors=[0.5, 1.0, 1.0], swiglu_limits=[0.0, 0.4, 0.0], swiglu_limits_shared=[0.0, 0.6, 0.0],
                    rope_scaling={"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 32.0,
                                  "original_max_position_embeddings": 64}, num_nextn_predict_layers=1),
    "mimo_v2_flash": dict({k: v for k, v in TINY.items() if k != "head_dim"}, model_type="mimo_v2_flash", head_dim=12, v_head_dim=8, moe_intermediate_size=8,
                          n_routed_experts=5, num_experts_per_tok=2, sliding_window=6, layer_types=["full_attention", "sliding_attention"],
                          mlp_layer_types=["dense", "sparse"], attention_value_scale=0.6, routed_scaling_factor=1.6, norm_topk_prob=True, rms_norm_eps=1e-5,
                          rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.334},
                                           "sliding_attention": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.334}}),
    # an indexer that sees most of what there is to choose from: fewer keys than tokens
    "deepseek_v32": dict({k: v for k, v in TINY.items() if k != "head_dim" and k not in ("num_attention_heads", "vocab_size", "intermediate_size")}, model_type="deepseek_v32", num_attention_heads=2, num_key_value_heads=2, moe_intermediate_size=4,
                         n_routed_experts=3, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1,
                         vocab_size=40, intermediate_size=16, kv_lora_rank=16, q_lora_rank=8, qk_rope_head_dim=16, qk_nope_head_dim=8, v_head_dim=16, norm_topk_prob=True,
                         routed_scaling_factor=1.6, rms_norm_eps=1e-6, index_topk=5, index_head_dim=32, index_n_heads=5,
                         rope_parameters={"rope_type": "default", "rope_theta": 500.0}, num_nextn_predict_layers=1),
    "glm_moe_dsa": dict({k: v for k, v in TINY.items() if k != "head_dim" and k not in ("num_attention_heads", "vocab_size", "intermediate_size")}, model_type="glm_moe_dsa", num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2, moe_intermediate_size=4,
                        n_routed_experts=3, num_experts_per_tok=2, n_shared_experts=1, mlp_layer_types=["dense", "sparse", "sparse"], n_group=1, topk_group=1,
                        vocab_size=40, intermediate_size=16, kv_lora_rank=16, q_lora_rank=8, qk_rope_head_dim=16, qk_nope_head_dim=8, v_head_dim=16, norm_topk_prob=True,
                        routed_scaling_factor=1.6, rms_norm_eps=1e-5, index_topk=5, index_head_dim=32, index_n_heads=5,
                        indexer_types=["full", "shared", "full"], rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
    "mistral4": dict({k: v for k, v in TINY.items() if k != "head_dim"}, model_type="mistral4", num_key_value_heads=4, moe_intermediate_size=8,
                     n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1, kv_lora_rank=16, q_lora_rank=16,
                     qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16, norm_topk_prob=True, routed_scaling_factor=1.6, rms_norm_eps=1e-6,
                     rope_parameters={"rope_type": "yarn", "type": "yarn", "rope_theta": 5000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                                      "mscale_all_dim": 1.0, "original_max_position_embeddings": 5, "llama_4_scaling_beta": 0.3}),
    "gemma4_e": dict(TINY, model_type="gemma4_text", num_hidden_layers=5, num_key_value_heads=2, global_head_dim=16, sliding_window=6,
                     hidden_size_per_layer_input=8, vocab_size_per_layer_input=48, num_kv_shared_layers=2, use_double_wide_mlp=True, enable_moe_block=False,
                     num_experts=None, top_k_experts=None, moe_intermediate_size=None, attention_k_eq_v=False, num_global_key_value_heads=None,
                     tie_word_embeddings=True, rms_norm_eps=1e-6, final_logit_softcapping=8.0, hidden_activation="gelu_pytorch_tanh",
                     layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
                     rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                                      "full_attention": {"rope_type": "proportional", "rope_theta": 5000.0, "partial_rotary_factor": 0.25}}),
    "llama4": dict({k: v for k, v in TINY.items() if k != "vocab_size"}, model_type="llama4_text", num_hidden_layers=4, num_key_value_heads=2, intermediate_size=8, intermediate_size_mlp=16, num_local_experts=3, vocab_size=40,
                   num_experts_per_tok=2, interleave_moe_layer_step=2, attention_chunk_size=7, floor_scale=5, attn_scale=0.3, rms_norm_eps=1e-5,
                   rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "muse_glimmer": dict(model_type="muse_glimmer", text_config=dict({k: v for k, v in TINY.items() if k != "vocab_size"}, model_type="muse_glimmer_text",
                         vocab_size=40, num_hidden_layers=4, num_key_value_heads=2, sliding_window=6, rms_norm_eps=1e-5, post_norm_eps=1e-8, qk_scale_factor=1.7,
                         output_multiplier=0.5, final_logit_softcapping=8.0, hidden_activation="silu", intermediate_size=8,
                         rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
                         vision_config=dict(model_type="muse_glimmer_vision", hidden_size=16, num_attention_heads=2, num_hidden_layers=1, intermediate_size=16),
                         out_hidden_size=64, projector_hidden_size=16, image_token_id=1000, video_token_id=1001),
    "gemma3n": dict(TINY, model_type="gemma3n_text", num_hidden_layers=4, num_attention_heads=2, sliding_window=6, hidden_size_per_layer_input=4, intermediate_size=12,
                    vocab_size_per_layer_input=48, num_kv_shared_layers=2, altup_num_inputs=3, laurel_rank=4, tie_word_embeddings=True, rms_norm_eps=1e-6,
                    final_logit_softcapping=8.0, hidden_activation="gelu_pytorch_tanh", activation_sparsity_pattern=[0.8, 0.0, 0.5, 0.3],
                    layer_types=["sliding_attention", "full_attention"] * 2,
                    rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                                     "full_attention": {"rope_type": "default", "rope_theta": 5000.0}}),
    "jamba": dict({k: v for k, v in TINY.items() if k != "head_dim"}, model_type="jamba", num_key_value_heads=2, intermediate_size=12,
                  num_experts=4, num_experts_per_tok=2, expert_layer_period=2, expert_layer_offset=0, attn_layer_period=2, attn_layer_offset=1,
                  mamba_d_state=6, mamba_d_conv=4, mamba_expand=2, mamba_dt_rank=4, mamba_conv_bias=True, mamba_proj_bias=True, rms_norm_eps=1e-5),
    "longcat_flash": dict({k: v for k, v in TINY.items() if k not in ("num_hidden_layers", "vocab_size", "num_key_value_heads", "intermediate_size")},
                          model_type="longcat_flash", num_layers=2, vocab_size=40, num_attention_heads=2, head_dim=16, ffn_hidden_size=8, expert_ffn_hidden_size=4,
                          q_lora_rank=8, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=16, v_head_dim=16, n_routed_experts=3, zero_expert_num=2,
                          moe_topk=2, routed_scaling_factor=1.6, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "deepseek_v4": dict({k: v for k, v in TINY.items() if k not in ("intermediate_size", "num_hidden_layers")}, model_type="deepseek_v4", vocab_size=40,
                        num_hidden_layers=3, num_attention_heads=4, head_dim=32, partial_rotary_factor=0.25, q_lora_rank=8, o_groups=2, o_lora_rank=8, moe_intermediate_size=4,
                        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, norm_topk_prob=True, routed_scaling_factor=1.6, rms_norm_eps=1e-6,
                        sliding_window=6, index_topk=3, index_head_dim=16, index_n_heads=3, hc_mult=2, hc_sinkhorn_iters=4, swiglu_limit=1.5,
                        layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
                        mlp_layer_types=["hash_moe", "moe", "moe"], compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
                        rope_theta=500.0, compress_rope_theta=5000.0),
    # the epsilon of its layers' norms is 1e-6 whatever config.json says
    "jetmoe": dict({k: v for k, v in TINY.items() if k not in ("num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")}, model_type="jetmoe", vocab_size=40,
                   num_key_value_heads=2, kv_channels=8, intermediate_size=8, num_local_experts=4, num_experts_per_tok=2, rms_norm_eps=1e-5,
                   rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "zaya": dict(TINY, model_type="zaya", num_hidden_layers=3, num_key_value_heads=2, moe_intermediate_size=8, num_experts=5, num_experts_per_tok=1,
                 router_hidden_size=12, cca_time0=3, cca_time1=2, sliding_window=6, rms_norm_eps=1e-5, tie_word_embeddings=True,
                 layer_types=["hybrid", "hybrid_sliding", "hybrid"],
                 rope_parameters={"hybrid": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5},
                                  "hybrid_sliding": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}}),
    "granite": dict({k: v for k, v in TINY.items() if k != "head_dim"}, model_type="granite", num_key_value_heads=2, rms_norm_eps=1e-6,
                    embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.7, logits_scaling=2.0,
                    rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
    "qwen3_5": dict(TINY, model_type="qwen3_5_text", num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-6,
                    linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4,
                    layer_types=["linear_attention", "full_attention"],
                    rope_parameters={"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.25, "mrope_interleaved": True,
                                     "mrope_section": [1, 1, 0]}),
    # keys are chosen at 12 tokens and more; the token that ends a document is among the prompt's
    "qwen4_exp": dict({k: v for k, v in TINY.items() if k not in ("num_hidden_layers", "eos_token_id", "intermediate_size")}, model_type="qwen4_exp_text", eos_token_id=9,
                      num_hidden_layers=3, num_key_value_heads=2, moe_intermediate_size=8, shared_expert_intermediate_size=8, num_experts=5, num_experts_per_tok=2,
                      head_dim=16, rms_norm_eps=1e-6, hc_count=4, hc_lowrank=16, ple_layer_ids=[1], ple_embed_dim=16, ple_conv_kernel_size=4,
                      ngram_size=3, heads_per_ngram=2, ngram_vocab_size_base=50, make_ngram_vocab_size_divisible_by=8, seed=1234, split_ngram_parts=4,
                      indexer_n_heads=4, indexer_kv_heads=1, indexer_head_dim=16, indexer_budget=8, indexer_compress_ratio=4, output_gate_type="sigmoid",
                      linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4,
                      layer_types=["linear_attention", "full_attention", "linear_attention"],
                      rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.25, "mrope_interleaved": True,
                                       "mrope_section": [1, 1, 0]}),
    "gemma3": dict(TINY, model_type="gemma3_text", num_hidden_layers=4, sliding_window=6, tie_word_embeddings=True, rms_norm_eps=1e-6,
                   layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
                   query_pre_attn_scalar=8, hidden_activation="gelu_pytorch_tanh",
                   rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                                    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}}),
}


def draw(model, seed):
    g = torch.Generator().manual_seed(seed)
    for name, p in model.state_dict().items():
        if name.endswith("tid2eid"):  # experts by token
            experts = model.config.n_routed_experts
            p.copy_(torch.stack([torch.randperm(experts, generator=g)[:p.shape[1]] for _ in range(p.shape[0])]))
        if not p.is_floating_point():
            continue
        x = torch.randn(p.shape, generator=g)
        if name.endswith(("A_log", "conv1d.weight")):  # decays of exp(-exp(..)), taps of whatever sign
            x = 0.5 * x
        elif p.dim() == 1:
            gemma = model.config.model_type.startswith(("gemma3_", "step3p7"))  # 1 + w; widely: its tied head would repeat each token
            x = 0.1 * x if "bias" in name else x if gemma else 0.2 * x + 1
        elif "conv_qk_grouped" in name:
            x = x / (p.shape[-1] * p.shape[-2]) ** 0.5 * 1.5
        elif "embed" not in name:
            x = x / p.shape[-1] ** 0.5 * 1.5
        elif model.config.model_type.startswith("gemma"):  # scaled by the width's root, and the head too
            x = 0.2 * x
        p.copy_(x.bfloat16().float())


def add_further(to, config, seed):
    """A block that predicts further tokens, which the official code of cohere2_moe leaves out: a layer like its last, without a norm of its own."""
    weights, n = load_file(to / "model.safetensors"), config["num_hidden_layers"]
    g, hidden, last = torch.Generator().manual_seed(seed + 1000), config["hidden_size"], f"model.layers.{n - 1}."
    shapes = {k.replace(last, f"model.layers.{n}."): tuple(v.shape) for k, v in weights.items() if k.startswith(last)}
    shapes |= {f"model.layers.{n}.{k}.weight": s for k, s in (("enorm", (hidden,)), ("hnorm", (hidden,)), ("eh_proj", (hidden, 2 * hidden)))}
    if "index_topk" in config:  # DeepSeek's has a last norm
        shapes[f"model.layers.{n}.shared_head.norm.weight"] = (hidden,)
    for name, shape in shapes.items():
        x = torch.randn(shape, generator=g)
        weights[name] = (0.2 * x + 1 if len(shape) == 1 else x / shape[-1] ** 0.5 * 1.5).bfloat16()
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})


def add_further_mimo(to, config, seed):
    """The same of MiMo-V2-Flash (SGLang's mimo_v2_flash_nextn.py): a layer like those with a window, a dense feed-forward."""
    weights = load_file(to / "model.safetensors")
    g, hidden, width = torch.Generator().manual_seed(seed + 1000), config["hidden_size"], config["intermediate_size"]
    heads, dim, value, kv = config["num_attention_heads"], config["head_dim"], config["v_head_dim"], 2 * config["num_key_value_heads"]
    shapes = {"enorm": (hidden,), "hnorm": (hidden,), "eh_proj": (hidden, 2 * hidden), "final_layernorm": (hidden,), "input_layernorm": (hidden,),
              "pre_mlp_layernorm": (hidden,), "self_attn.q_proj": (heads * dim, hidden), "self_attn.k_proj": (kv * dim, hidden),
              "self_attn.v_proj": (kv * value, hidden), "self_attn.o_proj": (hidden, heads * value), "mlp.gate_proj": (width, hidden),
              "mlp.up_proj": (width, hidden), "mlp.down_proj": (hidden, width)}
    for name, shape in shapes.items():
        x = torch.randn(shape, generator=g)
        weights[f"model.mtp.layers.0.{name}.weight"] = (0.2 * x + 1 if len(shape) == 1 else x / shape[-1] ** 0.5 * 1.5).bfloat16()
    weights["model.mtp.layers.0.self_attn.attention_sink_bias"] = torch.randn(heads, generator=g).bfloat16()
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})


def add_further_longcat(to, config, seed):
    """The same of LongCat-Flash (vLLM's longcat_flash_mtp.py): one attention, a dense feed-forward, and the embeddings once more."""
    weights = load_file(to / "model.safetensors")
    g, hidden, first = torch.Generator().manual_seed(seed + 1000), config["hidden_size"], "model.layers.0."
    shapes = {"layers.0.enorm.m": (hidden,), "layers.0.hnorm.m": (hidden,), "layers.0.eh_proj": (hidden, 2 * hidden), "norm": (hidden,)}
    for name, w in weights.items():
        if name.startswith((first + "self_attn.0.", first + "mlps.0.", first + "input_layernorm.0.", first + "post_attention_layernorm.0.")):
            shapes["layers.0." + name[len(first):-len(".weight")].replace(".0", "").replace("mlps.", "transformer_layer.mlp.")] = tuple(w.shape)
    for name, shape in shapes.items():
        x = torch.randn(shape, generator=g)
        weights[f"model.mtp.{name}.weight"] = (0.2 * x + 1 if len(shape) == 1 else x / shape[-1] ** 0.5 * 1.5).bfloat16()
    weights["model.mtp.embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})


def add_further_step(to, config, seed):
    """The same of Step 3.5, whose official code leaves it out of the model: a window, a dense feed-forward, a head of its own."""
    weights = {k: v for k, v in load_file(to / "model.safetensors").items() if "vis" not in k and "vit_" not in k}
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})
    if not config.get("num_nextn_predict_layers"):
        return
    g, n, hidden = torch.Generator().manual_seed(seed + 1000), config["num_hidden_layers"], config["hidden_size"]
    heads, dim, kv, width = config["attention_other_setting"]["num_attention_heads"], config["head_dim"], config["num_attention_groups"], config["intermediate_size"]
    shapes = {"enorm": (hidden,), "hnorm": (hidden,), "eh_proj": (hidden, 2 * hidden), "transformer.shared_head.norm": (hidden,),
              "transformer.shared_head.output": (config["vocab_size"], hidden), "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
              "self_attn.q_proj": (heads * dim, hidden), "self_attn.k_proj": (kv * dim, hidden), "self_attn.v_proj": (kv * dim, hidden),
              "self_attn.o_proj": (hidden, heads * dim), "self_attn.g_proj": (heads, hidden), "self_attn.q_norm": (dim,), "self_attn.k_norm": (dim,),
              "mlp.gate_proj": (width, hidden), "mlp.up_proj": (width, hidden), "mlp.down_proj": (hidden, width)}
    for name, shape in shapes.items():
        x = torch.randn(shape, generator=g)
        weights[f"model.layers.{n}.{name}.weight"] = (0.3 * x if len(shape) == 1 else x / shape[-1] ** 0.5 * 1.5).bfloat16()
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})


def rename_deepseek(to):
    weights = load_file(to / "model.safetensors")
    save_file({k.replace("shared_expert.", "shared_experts."): v for k, v in weights.items() if "shared_expert_gate" not in k},
              to / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(dict(config, architectures=["DeepseekForCausalLM"]), indent=1) + "\n")


def save(model, config, to):
    to.mkdir(parents=True, exist_ok=True)
    model.bfloat16().save_pretrained(to)
    for extra in ("generation_config.json",):
        (to / extra).unlink(missing_ok=True)
    weights = load_file(to / "model.safetensors")
    save_file({k: v.bfloat16() if v.is_floating_point() else v for k, v in weights.items() if "vision" not in k}, to / "model.safetensors",
              metadata={"format": "pt"})
    (to / "config.json").write_text(json.dumps(dict(config, architectures=["Step3p5ForCausalLM" if config["model_type"] == "step3p5" else type(model).__name__], torch_dtype="bfloat16"), indent=1) + "\n")


def typed(numbers, further):
    keep = ("input_ids", "logits", "greedy", "experts", "weights", "moe_layers") + ("prenorm",) * bool(further)
    return {k: (v.float() if v.is_floating_point() else v.int()).contiguous() for k, v in numbers.items() if k in keep}


def keys_tie(to, ids):
    """Whether an indexer's choice is between equal scores: torch takes any of them, the program the lower position."""
    plain = torch.Tensor.topk

    def other(scores):
        """Not scores of an indexer: of keys or blocks of them, for all rows or one."""
        return scores.dim() not in (1, 3)

    def turned(self, k, dim=-1, **more):
        if other(self):
            return plain(self, k, dim=dim, **more)
        order = torch.sort(self.flip(-1), dim=-1, descending=True, stable=True)
        return torch.return_types.topk((order.values[..., :k], self.shape[-1] - 1 - order.indices[..., :k]))

    def lower(self, k, dim=-1, **more):
        if other(self):
            return plain(self, k, dim=dim, **more)
        order = torch.sort(self, dim=-1, descending=True, stable=True)
        return torch.return_types.topk((order.values[..., :k], order.indices[..., :k]))

    logits = []
    for by in (plain, turned, lower):
        torch.Tensor.topk = by
        with torch.no_grad():
            logits.append(make_goldens.load(to)(ids[None]).logits[0])
    torch.Tensor.topk = plain
    return any(float((x - logits[0]).abs().max()) > 1e-4 for x in logits[1:])


def make(name, to, tokens, first, **changes):
    config = copy.deepcopy(dict(CONFIGS[name], **changes))
    for seed in range(first, first + 300):
        torch.manual_seed(seed)
        like = (make_goldens.deepseek_config(config) if name == "deepseek" else make_goldens.step_config(config) if config["model_type"] == "step3p5"
                else config)
        cls = make_goldens.BY_NAME.get(like["model_type"])
        model = (cls._from_config if cls else AutoModelForCausalLM.from_config)(AutoConfig.for_model(**copy.deepcopy(like)), dtype=torch.float32,
                                                                                attn_implementation="eager")
        draw(model, seed)
        save(model, config, to)
        if name == "deepseek":
            rename_deepseek(to)
        if config["model_type"] == "step3p5":
            add_further_step(to, config, seed)
        elif config["model_type"] == "longcat_flash":
            add_further_longcat(to, config, seed)
        elif config["model_type"] == "mimo_v2_flash":
            add_further_mimo(to, config, seed)
        elif config.get("num_nextn_predict_layers"):
            add_further(to, config, seed)
        model = make_goldens.load(to)
        text = config.get("text_config", config)
        ids = torch.randint(5, min(text["vocab_size"], config.get("image_token_id", text["vocab_size"])), (tokens,), generator=torch.Generator().manual_seed(seed))
        if "ngram_size" in config and tokens > 2:
            end = config["eos_token_id"]
            ids[tokens // 2] = end[0] if isinstance(end, list) else end
        out, gap = make_goldens.numbers(model, ids, 12)
        if gap < 0.01 or len(set(out["greedy"].tolist())) < 4 or (("index_topk" in config or "indexer_budget" in config) and keys_tie(to, torch.cat([ids, out["greedy"].to(ids.dtype)]))):
            continue
        double, _ = make_goldens.numbers(make_goldens.load(to, torch.float64), ids, 12)
        if make_goldens.same_choices(out, double) and all(
                make_goldens.same_choices(out, make_goldens.numbers(make_goldens.moved(make_goldens.load(to), 1e-4, k), ids, 12)[0])
                for k in range(2)):
            break
    else:
        raise SystemExit(f"{name}: no seed is far enough from ties")
    save_file(typed(out, config.get("num_nextn_predict_layers") or config["model_type"] in ("mimo_v2_flash", "longcat_flash")), to / "golden.safetensors")
    size = sum(f.stat().st_size for f in to.iterdir())
    print(json.dumps({"name": name, "seed": seed, "bytes": size, "std": round(float(out["logits"].std()), 2), "gap": round(gap, 3),
                      "f64": float((out["logits"] - double["logits"]).abs().max())}), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--to", type=Path, default=Path(__file__).resolve().parent.parent / "golden/families")
    p.add_argument("--tokens", type=int, default=24)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--set", default="{}", help="JSON: other settings, for checkpoints that are not kept")
    p.add_argument("--as", dest="alias", help="the folder's name, where it is not NAME")
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for name in a.names or CONFIGS:
        make(name, a.to / (a.alias or name), a.tokens, a.seed, **json.loads(a.set))


if __name__ == "__main__":
    main()
