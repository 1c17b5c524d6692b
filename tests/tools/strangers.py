#!/usr/bin/env python3
"""Tiny checkpoints with settings that the published ones do not have: each agrees with transformers, or is refused with one line.

    strangers.py [--to DIR] [--tool build/release/tests/golden_tool] [FAMILY ...]     (default: all below, in a temporary folder)

A checkpoint is one of make_fresh.py's with the changes below; golden_tool compares logits, greedy ids and routing. One line each: the
largest difference, or why it was refused (by transformers: the setting does not exist there). Exits 1 if one differs, or is refused
though it is not among REFUSED. Needs torch, transformers 5.24, safetensors.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers

import make_fresh

GEMMA = make_fresh.CONFIGS["gemma4_e"]["rope_parameters"]
MISTRAL = make_fresh.CONFIGS["mistral4"]["rope_parameters"]
STRANGERS = {
    "gemma4_e": {
        "no shared keys": dict(num_kv_shared_layers=0),
        "one shared layer": dict(num_kv_shared_layers=1, num_key_value_heads=1, num_attention_heads=2),
        "odd widths": dict(hidden_size=40, intermediate_size=20, hidden_size_per_layer_input=12),
        "not twice as wide": dict(use_double_wide_mlp=False),
        "values are keys": dict(attention_k_eq_v=True, num_global_key_value_heads=1),
        "own head": dict(tie_word_embeddings=False),
        "experts": dict(enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=8),
        "one expert": dict(enable_moe_block=True, num_experts=3, top_k_experts=1, moe_intermediate_size=8),
        "no cap": dict(final_logit_softcapping=None),
        "same heads, all rotated": dict(global_head_dim=8, sliding_window=3,
                                        rope_parameters=dict(GEMMA, full_attention=dict(GEMMA["full_attention"], partial_rotary_factor=1.0))),
        "biases": dict(attention_bias=True),
        "a full layer first": dict(layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention",
                                                "sliding_attention"]),
        "SiLU": dict(hidden_activation="silu"),
    },
    "mistral4": {
        "queries without a latent row": dict(q_lora_rank=None),
        "tied": dict(tie_word_embeddings=True),
        "biases": dict(attention_bias=True),
        "no dense layer": dict(first_k_dense_replace=0),
        "weights as they are": dict(norm_topk_prob=False),
        "halves rotated": dict(rope_interleave=False),
        "a small part rotated": dict(qk_nope_head_dim=48, rope_parameters=dict(MISTRAL, partial_rotary_factor=0.25)),
        "wide": dict(v_head_dim=32, qk_rope_head_dim=32, qk_nope_head_dim=32, kv_lora_rank=48),
        "one expert": dict(n_routed_experts=3, num_experts_per_tok=1),
        "two shared experts": dict(n_shared_experts=2),
        "odd widths": dict(hidden_size=40, moe_intermediate_size=12, intermediate_size=20),
        "no growth": dict(rope_parameters=dict(MISTRAL, llama_4_scaling_beta=0.0)),
        "groups": dict(n_routed_experts=6, n_group=2, topk_group=1),
    },
}
REFUSED = {("gemma4_e", "SiLU"), ("mistral4", "groups")}


def judge(tool, folder):
    said = subprocess.run([tool, folder], capture_output=True, text=True).stdout.strip().splitlines()
    return said[-1].removeprefix(f"{folder}: ") if said else "nothing said"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--to", type=Path)
    p.add_argument("--tool", default="build/release/tests/golden_tool")
    p.add_argument("families", nargs="*")
    a = p.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    bad = 0
    with tempfile.TemporaryDirectory() as t:
        for family in a.families or STRANGERS:
            for name, changes in STRANGERS[family].items():
                folder = (a.to or Path(t)) / f"{family}-{name.replace(' ', '_').replace(',', '')}"
                try:
                    make_fresh.make(family, folder, 20, 1, **changes)
                except (Exception, SystemExit) as e:
                    print(f"{family}, {name}: transformers: {type(e).__name__} {e}", flush=True)
                    bad += 1
                    continue
                said = judge(a.tool, str(folder))
                agrees, refused = "greedy agrees, routing agrees" in said, said.startswith("FAILED")
                print(f"{family}, {name}: {said}", flush=True)
                bad += not (refused if (family, name) in REFUSED else agrees)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
