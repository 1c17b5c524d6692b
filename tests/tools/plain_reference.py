#!/usr/bin/env python3
"""Tiny checkpoints with golden numbers of families that transformers has no class of, in plain numpy (float64).

    plain_reference.py [--to DIR] [--tokens N] [--seed N] [--set JSON] [--as NAME] [NAME ...]    folders of CONFIGS below (default: all)

Written below --to (default: tests/golden/families) what make_fresh.py writes: config.json, model.safetensors (BF16, named as published),
golden.safetensors. The formulas are those of the models' own code, as published with them:
smallthinker: modeling_smallthinker.py of PowerInfer's SmallThinker-4BA0.6B-Instruct (arXiv:2507.20984), and llama.cpp's
src/models/smallthinker.cpp: the router reads the stream before attention; top-k of the logits, then a softmax or normed sigmoids of
those; up * relu(gate).
maple: llama.cpp's src/models/maple.cpp and conversion/maple.py, which quote modeling_maple.py of deepgrove's maple-preview: heads of q and k
normed, a part of each rotated in layers with a window alone; a softmax over all, the chosen normed; silu(min(gate, 7)) * clamp(up, -7, 7).
grovemoe: modeling_grove_moe.py of inclusionAI's GroveMoE-Inst (arXiv:2508.07785): Qwen3's layer, whose experts two by two have a further one in
common (chunk_experts, 128 wide there, 4 here), added for each chosen one with its weight times 0.05; all of them see the same input.
A seed is taken if the two best logits of every greedy step are 0.01 apart, and routing and greedy ids are the same with every weight moved by 1e-4 of itself.
Needs numpy.
"""
import argparse
import json
from pathlib import Path

import numpy as np

from mtp_reference import attend_masked, frequencies, rms, rotate, sigmoid, silu, softmax, write

TINY = dict(vocab_size=40, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False, torch_dtype="bfloat16")
CONFIGS = {
    "smallthinker": dict(TINY, architectures=["SmallThinkerForCausalLM"], model_type="smallthinker", moe_ffn_hidden_size=8,
                         moe_num_primary_experts=4, moe_num_active_primary_experts=2, moe_primary_router_apply_softmax=False, rms_norm_eps=1e-6,
                         rope_theta=5000.0, rope_layout=[0, 1, 1], sliding_window_layout=[0, 1, 1], sliding_window_size=6),
    "maple": dict(TINY, architectures=["MapleForCausalLM"], model_type="maple", hidden_act="silu", moe_intermediate_size=8, num_experts=4,
                  num_experts_per_tok=2, num_shared_experts=0, norm_topk_prob=True, nope_on_global_attention=True, rms_norm_eps=1e-6, sliding_window=6,
                  layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                  rope_parameters={"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}),
    "grovemoe": dict(TINY, num_hidden_layers=2, architectures=["GroveMoeForCausalLM"], model_type="grove_moe", hidden_act="silu", moe_intermediate_size=8, num_experts=6,
                     intermediate_size=16, mlp_only_layers=[0], decoder_sparse_step=1, num_experts_per_tok=3, norm_topk_prob=True, rms_norm_eps=1e-6,
                     use_sliding_window=False, rope_theta=5000.0),
}


def smallthinker_shapes(c):
    h, q, kv = c["hidden_size"], c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    out = ends(c)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        out |= {at + "input_layernorm": (h,), at + "post_attention_layernorm": (h,), at + "self_attn.q_proj": (q, h), at + "self_attn.k_proj": (kv, h),
                at + "self_attn.v_proj": (kv, h), at + "self_attn.o_proj": (h, q), at + "block_sparse_moe.primary_router": (c["moe_num_primary_experts"], h)}
        for e in range(c["moe_num_primary_experts"]):
            x = at + f"block_sparse_moe.experts.{e}."
            out |= {x + "gate": (c["moe_ffn_hidden_size"], h), x + "up": (c["moe_ffn_hidden_size"], h), x + "down": (h, c["moe_ffn_hidden_size"])}
    return out


def maple_shapes(c):
    h, dim, wide = c["hidden_size"], c["head_dim"], c["moe_intermediate_size"]
    q, kv, out = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim, ends(c)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        out |= {at + "input_layernorm": (h,), at + "post_attention_layernorm": (h,), at + "self_attn.q_proj": (q, h), at + "self_attn.k_proj": (kv, h),
                at + "self_attn.v_proj": (kv, h), at + "self_attn.o_proj": (h, q), at + "self_attn.q_norm": (dim,), at + "self_attn.k_norm": (dim,),
                at + "mlp.gate": (c["num_experts"], h)}
        for e in range(c["num_experts"]):
            x = at + f"mlp.experts.{e}."
            out |= {x + "gate_proj": (wide, h), x + "up_proj": (wide, h), x + "down_proj": (h, wide)}
    return out


def grovemoe_shapes(c):
    h, dim, n = c["hidden_size"], c["head_dim"], c["num_experts"]
    q, kv, out = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim, ends(c)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        out |= {at + "input_layernorm": (h,), at + "post_attention_layernorm": (h,), at + "self_attn.q_proj": (q, h), at + "self_attn.k_proj": (kv, h),
                at + "self_attn.v_proj": (kv, h), at + "self_attn.o_proj": (h, q), at + "self_attn.q_norm": (dim,), at + "self_attn.k_norm": (dim,)}
        each = [(f"mlp.experts.{e}.", c["moe_intermediate_size"]) for e in range(n)] + [(f"mlp.chunk_experts.{e}.", CHUNK) for e in range(n // 2)]
        if grove_dense(c, i):
            each = [("mlp.", c["intermediate_size"])]
        else:
            out[at + "mlp.gate"] = (n, h)
        for x, wide in each:
            out |= {at + x + "gate_proj": (wide, h), at + x + "up_proj": (wide, h), at + x + "down_proj": (h, wide)}
    return out


def grove_dense(c, i):
    return i in c["mlp_only_layers"] or (i + 1) % c["decoder_sparse_step"] != 0


def ends(c):
    out = {"model.embed_tokens": (c["vocab_size"], c["hidden_size"]), "model.norm": (c["hidden_size"],)}
    return out if c["tie_word_embeddings"] else dict(out, lm_head=(c["vocab_size"], c["hidden_size"]))


class Plain:
    def __init__(self, c, w):
        self.c, self.w = c, w

    def mat(self, x, name):
        return x @ self.w[name].T

    def norm(self, x, name):
        return rms(x, self.w[name], self.c["rms_norm_eps"])

    def attention(self, x, at, rotated, window):
        c, t, dim = self.c, len(x), self.c["head_dim"]
        q, k, v = (self.mat(x, at + f"self_attn.{n}_proj").reshape(t, -1, dim) for n in "qkv")
        if at + "self_attn.q_norm" in self.w:
            q, k = self.norm(q, at + "self_attn.q_norm"), self.norm(k, at + "self_attn.k_norm")
        if rotated:
            n = int(dim * c.get("rope_parameters", {}).get("partial_rotary_factor", 1.0))
            inv, factor, _ = frequencies(c, n)
            q, k = (np.concatenate([rotate(y[..., :n], inv, factor, False), y[..., n:]], -1) for y in (q, k))
        return self.mat(attend_masked(q, k, v, dim ** -0.5, window), at + "self_attn.o_proj")

    def choose(self, logits, used, weigh):
        """Experts and weights of the largest logits; of equal ones the first."""
        chosen = np.argsort(-logits, -1, kind="stable")[:, :used]
        self.experts.append(chosen)
        self.weights.append(weigh(np.take_along_axis(logits, chosen, -1)))
        return chosen, self.weights[-1]

    def run(self, ids):
        """Logits of all rows; self.experts and self.weights of every layer."""
        c, w = self.c, self.w
        self.experts, self.weights = [], []
        x = w["model.embed_tokens"][ids]
        for i in range(c["num_hidden_layers"]):
            x = self.layer(x, i, f"model.layers.{i}.")
        x = self.norm(x, "model.norm")
        return x @ w.get("lm_head", w["model.embed_tokens"]).T


class SmallThinker(Plain):
    def layer(self, x, i, at):
        c = self.c
        logits = self.mat(x, at + "block_sparse_moe.primary_router")
        window = c["sliding_window_size"] if c["sliding_window_layout"][i] else 0
        x = x + self.attention(self.norm(x, at + "input_layernorm"), at, c["rope_layout"][i], window)
        h = self.norm(x, at + "post_attention_layernorm")
        weigh = softmax if c["moe_primary_router_apply_softmax"] else lambda y: sigmoid(y) / sigmoid(y).sum(-1, keepdims=True)
        chosen, weights = self.choose(logits, c["moe_num_active_primary_experts"], weigh)
        out = np.zeros_like(x)
        for t in range(len(x)):
            for e, y in zip(chosen[t], weights[t]):
                name = at + f"block_sparse_moe.experts.{e}."
                out[t] += y * self.mat(self.mat(h[t], name + "up") * np.maximum(self.mat(h[t], name + "gate"), 0), name + "down")
        return x + out


class Maple(Plain):
    def layer(self, x, i, at):
        c = self.c
        windowed = c["layer_types"][i] == "sliding_attention"
        x = x + self.attention(self.norm(x, at + "input_layernorm"), at, windowed, c["sliding_window"] if windowed else 0)
        h = self.norm(x, at + "post_attention_layernorm")
        chosen, weights = self.choose(self.mat(h, at + "mlp.gate"), c["num_experts_per_tok"], softmax)  # of the chosen: normed, the same
        out = np.zeros_like(x)
        for t in range(len(x)):
            for e, y in zip(chosen[t], weights[t]):
                name = at + f"mlp.experts.{e}."
                gate, up = self.mat(h[t], name + "gate_proj"), self.mat(h[t], name + "up_proj")
                out[t] += y * self.mat(silu(np.minimum(gate, CLAMP)) * np.clip(up, -CLAMP, CLAMP), name + "down_proj")
        return x + out


class GroveMoe(Plain):
    def mlp(self, x, name):
        return self.mat(silu(self.mat(x, name + "gate_proj")) * self.mat(x, name + "up_proj"), name + "down_proj")

    def layer(self, x, i, at):
        c = self.c
        x = x + self.attention(self.norm(x, at + "input_layernorm"), at, True, 0)
        h = self.norm(x, at + "post_attention_layernorm")
        if grove_dense(c, i):
            return x + self.mlp(h, at + "mlp.")
        chosen, weights = self.choose(self.mat(h, at + "mlp.gate"), c["num_experts_per_tok"], softmax)  # of the chosen: normed, the same
        out = np.zeros_like(x)
        for t in range(len(x)):
            for e, y in zip(chosen[t], weights[t]):
                out[t] += y * (self.mlp(h[t], at + f"mlp.experts.{e}.") + 0.05 * self.mlp(h[t], at + f"mlp.chunk_experts.{e // 2}."))
        return x + out


FAMILIES = {"smallthinker": (smallthinker_shapes, SmallThinker), "maple": (maple_shapes, Maple), "grovemoe": (grovemoe_shapes, GroveMoe)}
CLAMP = 7.0
CHUNK = 4


def bf16(x):
    """Its nearest one, as float64."""
    u = x.astype("<f4").view("<u4")
    return ((u + 0x7fff + (u >> 16 & 1) & 0xffff0000).astype("<u4").view("<f4")).astype(np.float64)


def draw(shapes, seed):
    random, out = np.random.default_rng(seed), {}
    for name, shape in shapes.items():
        x = random.standard_normal(shape)
        out[name] = bf16(0.2 * x + 1 if len(shape) == 1 else x if "embed" in name else x / shape[-1] ** 0.5 * 1.5)
    return out


def moved(w, by, seed):
    random = np.random.default_rng(seed)
    return {k: x * (1 + by * random.standard_normal(x.shape)) for k, x in w.items()}


def numbers(model, ids, n):
    logits = model.run(ids)
    experts, weights = np.stack(model.experts), np.stack(model.weights)
    order = np.argsort(-weights, -1, kind="stable")
    out = {"input_ids": ids, "logits": logits, "experts": np.take_along_axis(experts, order, -1), "weights": np.take_along_axis(weights, order, -1)}
    greedy, gap = [], float("inf")
    for _ in range(n):
        best = np.sort(logits[-1])[::-1]
        gap = min(gap, best[0] - best[1])
        greedy.append(int(logits[-1].argmax()))
        ids = np.append(ids, greedy[-1])
        logits = model.run(ids)
    return dict(out, greedy=np.array(greedy)), gap


def make(name, to, tokens, first, changes):
    c = dict(CONFIGS[name], **changes)
    shapes, cls = FAMILIES[name]
    for seed in range(first, first + 300):
        w = draw(shapes(c), seed)
        ids = np.random.default_rng(seed).integers(5, c["vocab_size"], tokens)
        out, gap = numbers(cls(c, w), ids, 12)
        others = [numbers(cls(c, moved(w, 1e-4, k)), ids, 12)[0] for k in range(2)] if gap >= 0.01 else []
        if others and len(set(out["greedy"].tolist())) >= 4 and all(
                (o[k] == out[k]).all() for o in others for k in ("experts", "greedy")):
            break
    else:
        raise SystemExit(f"{name}: no seed is far enough from ties")
    to.mkdir(parents=True, exist_ok=True)
    (to / "config.json").write_text(json.dumps(c, indent=1) + "\n")
    write(to / "model.safetensors", {k + ".weight": ("BF16", (x.astype("<f4").view("<u4") >> 16).astype("<u2")) for k, x in w.items()})
    out["moe_layers"] = np.array([i for i in range(c["num_hidden_layers"]) if name != "grovemoe" or not grove_dense(c, i)])
    write(to / "golden.safetensors", {k: ("F32", x.astype("<f4")) if x.dtype.kind == "f" else ("I32", x.astype("<i4")) for k, x in out.items()})
    print(json.dumps({"name": name, "seed": seed, "bytes": sum(f.stat().st_size for f in to.iterdir()), "std": round(float(out["logits"].std()), 2),
                      "gap": round(float(gap), 3)}), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--to", type=Path, default=Path(__file__).resolve().parent.parent / "golden/families")
    p.add_argument("--tokens", type=int, default=24)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--set", default="{}", help="JSON: other settings, for checkpoints that are not kept")
    p.add_argument("--as", dest="alias", help="the folder's name, where it is not NAME")
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    for name in a.names or CONFIGS:
        make(name, a.to / (a.alias or name), a.tokens, a.seed, json.loads(a.set))


if __name__ == "__main__":
    main()
