#!/usr/bin/env python3
"""The block of DeepSeek V4 that predicts further tokens, by its official layer (transformers) between a join and an end of its own.

    mtp_streams.py [--add SEED] [--out FILE.safetensors] FOLDER

FOLDER holds config.json, model.safetensors and golden.safetensors with `input_ids` and `greedy`. The official model leaves `mtp.0.*` out; what
the block is given of it are all its residual streams behind the last layer, h(i). By llama.cpp's src/models/deepseek4.cpp (graph_mtp), with
the authors' names:

    S(i) = e_proj norm_e(embedding of token i+1) + h_proj norm_h(h(i)), each stream by itself
    h'(i) = layer(S(i)): a window alone, experts by scores;   logits of token i+2 = head(norm(hc_head(h'(i))))

Written (default: FOLDER/golden-further.safetensors): what mtp_reference.py writes. --add: the block's tensors first, random, to
model.safetensors. Needs torch, transformers 5.24, safetensors, numpy.
"""
import argparse
import copy
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as official

import make_goldens
from mtp_reference import read, write

AT = "mtp.0."
PARTS = {"self_attn.q_a_proj.weight": "attn.wq_a.weight", "self_attn.q_a_norm.weight": "attn.q_norm.weight", "self_attn.q_b_proj.weight": "attn.wq_b.weight",
         "self_attn.kv_proj.weight": "attn.wkv.weight", "self_attn.kv_norm.weight": "attn.kv_norm.weight", "self_attn.o_a_proj.weight": "attn.wo_a.weight",
         "self_attn.o_b_proj.weight": "attn.wo_b.weight", "self_attn.sinks": "attn.attn_sink", "mlp.gate.weight": "ffn.gate.weight",
         "mlp.gate.e_score_correction_bias": "ffn.gate.bias", "mlp.shared_experts.gate_proj.weight": "ffn.shared_experts.w1.weight",
         "mlp.shared_experts.up_proj.weight": "ffn.shared_experts.w3.weight", "mlp.shared_experts.down_proj.weight": "ffn.shared_experts.w2.weight",
         "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight"}
PARTS |= {f"{w}_hc.{p}": f"hc_{w}_{p}" for w in ("attn", "ffn") for p in ("fn", "base", "scale")}


def layer_of(config):
    """One official layer, of what the block is."""
    config = copy.deepcopy(config)
    config.num_hidden_layers, config.layer_types, config.mlp_layer_types = 1, ["sliding_attention"], ["moe"]
    config._attn_implementation = config._experts_implementation = "eager"
    return official.DeepseekV4DecoderLayer(config, 0).eval(), config


def add(folder, config, seed):
    weights, (layer, _) = load_file(folder / "model.safetensors"), layer_of(config)
    g, hidden, width, hc = torch.Generator().manual_seed(seed), config.hidden_size, config.moe_intermediate_size, config.hc_mult
    shapes = {PARTS[k]: tuple(v.shape) for k, v in layer.state_dict().items() if k in PARTS}
    for e in range(config.n_routed_experts):
        shapes |= {f"ffn.experts.{e}.{n}.weight": s for n, s in (("w1", (width, hidden)), ("w2", (hidden, width)), ("w3", (width, hidden)))}
    shapes |= {f"{n}.weight": (hidden,) for n in ("enorm", "hnorm", "norm")} | {f"{n}.weight": (hidden, hidden) for n in ("e_proj", "h_proj")}
    shapes |= {"hc_head_fn": (hc, hc * hidden), "hc_head_base": (hc,), "hc_head_scale": (1,)}
    for name, shape in sorted(shapes.items()):
        x = torch.randn(shape, generator=g)
        x = x / shape[-1] ** 0.5 * 1.5 if len(shape) > 1 else 0.2 * x + 1 if "norm" in name or "scale" in name else 0.3 * x
        weights[AT + name] = x.bfloat16()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


class Block:
    def __init__(self, folder, config):
        self.w = {k: v.float() for k, v in load_file(folder / "model.safetensors").items()}
        self.layer, self.config = layer_of(config)
        part = {k: self.w[AT + v] for k, v in PARTS.items()}
        each = range(config.n_routed_experts)
        part["mlp.experts.gate_up_proj"] = torch.stack([torch.cat([self.one(f"ffn.experts.{e}.w1"), self.one(f"ffn.experts.{e}.w3")]) for e in each])
        part["mlp.experts.down_proj"] = torch.stack([self.one(f"ffn.experts.{e}.w2") for e in each])
        self.layer.load_state_dict(part)
        self.rotary, self.end = official.DeepseekV4RotaryEmbedding(self.config), official.DeepseekV4HyperHead(self.config)
        self.end.load_state_dict({n: self.w[AT + "hc_head_" + n[3:]] for n in ("hc_fn", "hc_base", "hc_scale")})
        self.embeddings = next(self.w[n] for n in ("embed.weight", "model.embed_tokens.weight") if n in self.w)
        self.head = next(self.w[n] for n in ("head.weight", "lm_head.weight") if n in self.w)

    def one(self, name):
        return self.w[AT + name + ".weight"]

    def norm(self, x, name):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.rms_norm_eps) * self.one(name)

    def run(self, tokens, streams):
        """Logits and streams of all rows; streams: (T, hc, hidden)."""
        x = (self.norm(self.embeddings[tokens], "enorm") @ self.one("e_proj").T)[:, None] + self.norm(streams, "hnorm") @ self.one("h_proj").T
        t, at = len(tokens), torch.arange(len(tokens))
        seen = (at[None] <= at[:, None]) & (at[:, None] - at[None] < self.config.sliding_window)
        mask = torch.zeros(t, t).masked_fill(~seen, float("-inf"))[None, None]
        turns = {k: self.rotary(x, at[None], k) for k in ("main", "compress")}
        out = self.layer(x[None], position_embeddings=turns, position_ids=at[None], attention_mask=mask, cache=None)
        return (self.norm(self.end(out)[0], "norm") @ self.head.T), out[0]


def streams_of(folder, ids):
    kept, model = [], make_goldens.load(folder)
    model.model.layers[-1].register_forward_hook(lambda part, args, out: kept.append((out[0] if isinstance(out, tuple) else out)[0]))
    model(ids[None], use_cache=True)
    return kept[0]


@torch.no_grad()
def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=Path)
    p.add_argument("--out", type=Path)
    p.add_argument("--add", type=int, metavar="SEED")
    a = p.parse_args()
    transformers.logging.set_verbosity_error()
    config = AutoConfig.from_pretrained(a.folder)
    if a.add is not None:
        add(a.folder, config, a.add)
    golden, block = read(a.folder / "golden.safetensors"), Block(a.folder, config)
    ids, greedy = torch.tensor(golden["input_ids"].astype("i8")), torch.tensor(golden["greedy"].astype("i8"))
    streams = streams_of(a.folder, ids)
    logits, _ = block.run(ids[1:], streams[:-1])
    tokens, drafts, gap = torch.cat([ids[1:], greedy[:1]]), [], float("inf")
    for _ in range(4):
        made, own = block.run(tokens, streams)
        best = made[-1].topk(2)
        gap = min(gap, float(best.values[0] - best.values[1]))
        drafts.append(int(best.indices[0]))
        tokens, streams = torch.cat([tokens, best.indices[:1]]), torch.cat([streams, own[-1:]])
    write(a.out or a.folder / "golden-further.safetensors",
          {"input_ids": ("I32", golden["input_ids"].astype("<i4")), "logits": ("F32", logits.numpy().astype("<f4")),
           "drafts": ("I32", np.array(drafts, "<i4"))})
    print("%s: %d rows, logits' deviation %.3f, drafts %s, the closest %.3f apart" % (a.folder, len(logits), logits.std(), drafts, gap))


if __name__ == "__main__":
    main()
