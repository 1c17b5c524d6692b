#!/usr/bin/env python3
"""Tiny checkpoints with unusual settings: each agrees with transformers, or is refused by name with one line.

    strangers.py --tool build/release/tests/golden_tool [--to DIR] [FAMILY ...]

Of each family of make_fresh.py in STRANGERS below: its configuration with these changes (None: null, GONE: the key is left out), drawn and
evaluated by make_fresh.py, then held against the program by the tool. A line each: FAMILY/NAME, `agrees` with the largest difference, or the
line that refuses it; `transformers:` and its error where the official code cannot make it. Exit status 1: one differs.
Needs torch, transformers 5.24, safetensors.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers

import make_fresh

GONE = "GONE"
MORE = dict(hidden_size=48, num_hidden_layers=4)
COMMON = {  # of any family of experts
    "one_expert": dict(num_experts=1, num_experts_per_tok=1),
    "top_1": dict(num_experts_per_tok=1),
    "tied": dict(tie_word_embeddings=True),
    "odd_width": dict(intermediate_size=20),
    "wide_heads": dict(head_dim=24),
}
STRANGERS = {
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


def make(family, name, changes, to):
    base = dict(make_fresh.CONFIGS[family])
    make_fresh.CONFIGS["stranger"] = {k: v for k, v in dict(base, **changes).items() if v != GONE}
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
