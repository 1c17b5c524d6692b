#!/usr/bin/env python3
"""The blocks that predict further tokens, in plain numpy (float64): DeepSeek-V3's, GLM-4.5's, Qwen3.5's, Cohere 2 MoE's, Step 3.5's, MiMo-V2-Flash's,
LongCat-Flash's.

    mtp_reference.py FOLDER [--out FILE.safetensors] [--complete]

FOLDER holds config.json, model.safetensors with such a block, and golden.safetensors with what the model's official code makes of
`input_ids`: `prenorm`, the residual stream behind the last layer. Of these the block is computed from its definition
(arXiv:2412.19437, section 2.2; Qwen's, Cohere's and LongCat's differ in that they meet, and hand on, states behind the last norm; Cohere's layer is parallel
and may lack a last norm, by llama.cpp's src/models/cohere2moe.cpp; LongCat's has one attention, scaled as the model's, and no experts, by vLLM's
longcat_flash_mtp.py):

    h'(i) = layer(join [norm(embedding of token i+1) ; norm(h(i))]),   logits of token i+2 = head(norm(h'(i)))

Written (default: FOLDER/golden-further.safetensors): `input_ids` (T); `logits` (T-1, vocab), row i of state i and token i+1; `drafts`
(4), the block's own choices behind input_ids and the first greedy token, each made of its own state and the token before.
--complete: a Qwen checkpoint whose block lacks experts gets them in model.safetensors, random but always the same ones.
Needs numpy.
"""
import argparse
import json
import os
import struct

import numpy as np

TYPES = {"F32": "<f4", "F16": "<f2", "I32": "<i4", "I64": "<i8", "BF16": "<u2"}


def read(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        a, b = t["data_offsets"]
        x = np.frombuffer(raw[8 + n + a:8 + n + b], TYPES[t["dtype"]]).reshape(t["shape"])
        if t["dtype"] == "BF16":
            x = (x.astype(np.uint32) << 16).view(np.float32)
        out[name] = x if x.dtype.kind == "i" else x.astype(np.float64)
    return out


def write(path, tensors):
    """tensors: name -> (type, array of its bytes' type)"""
    at, head = 0, {}
    for name, (kind, x) in tensors.items():
        head[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, x in tensors.values():
            f.write(x.tobytes())


def complete(folder, experts):
    """Experts that the block's router has rows for and the file has not."""
    path = os.path.join(folder, "model.safetensors")
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    kept = {}
    for name, t in head.items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            kept[name] = (t["dtype"], np.frombuffer(raw[8 + n + a:8 + n + b], np.uint8 if t["dtype"] == "F8_E4M3" else TYPES[t["dtype"]])
                          .reshape(t["shape"]))
    like = "mtp.layers.0.mlp.experts.%d.%s.weight"
    random = np.random.default_rng(18)
    for e in range(experts):
        for part in ("gate_proj", "up_proj", "down_proj"):
            if like % (e, part) not in kept:
                kind, x = kept[like % (0, part)]
                values = (random.standard_normal(x.shape) * 0.12).astype(np.float32)
                kept[like % (e, part)] = (kind, (values.view(np.uint32) >> 16).astype("<u2"))
    write(path, dict(sorted(kept.items())))


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def frequencies(c, dims):
    """Of each rotated pair; and what cosines and sines, and scores, are multiplied with."""
    base = c.get("rope_theta") or c.get("rope_parameters", {})["rope_theta"]
    inv = base ** -(np.arange(0, dims, 2) / dims)
    s = c.get("rope_scaling")
    if not s:
        return inv, 1.0, 1.0
    assert s["type"] == "yarn"

    def pair(turns):
        return dims * np.log(s["original_max_position_embeddings"] / (turns * 2 * np.pi)) / (2 * np.log(base))

    def magnitude(m):
        return 0.1 * m * np.log(s["factor"]) + 1

    low, high = max(np.floor(pair(s["beta_fast"])), 0), min(np.ceil(pair(s["beta_slow"])), dims - 1)
    keep = 1 - np.clip((np.arange(dims // 2) - low) / max(high - low, 0.001), 0, 1)
    inv = inv / s["factor"] * (1 - keep) + inv * keep
    return inv, magnitude(s["mscale"]) / magnitude(s["mscale_all_dim"]), magnitude(s["mscale_all_dim"]) ** 2


def rotate(x, inv, factor, pairs):
    """x: (T, heads, dims); the whole of it."""
    angle = np.arange(len(x))[:, None] * inv
    cos, sin = np.cos(angle)[:, None] * factor, np.sin(angle)[:, None] * factor
    half = x.shape[-1] // 2
    a, b = (x[..., 0::2], x[..., 1::2]) if pairs else (x[..., :half], x[..., half:])
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attend_masked(q, k, v, scale, window=0, sinks=None, seen=None):
    """(T, heads, dims); fewer heads of k and v are shared. window: keys a query sees, itself included; 0: all. sinks: scores without a value.
    seen: (T, T), which keys each sees, if not all."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) * scale
    scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
    if seen is not None:
        scores = np.where(seen, scores, -np.inf)
    if window:
        scores += np.tril(np.full(scores.shape[1:], -np.inf), -window)
    if sinks is not None:
        scores = np.concatenate([scores, np.broadcast_to(sinks[:, None, None], scores.shape[:2] + (1,))], -1)
        return np.einsum("hij,jhd->ihd", softmax(scores)[..., :-1], v).reshape(len(q), -1)
    return np.einsum("hij,jhd->ihd", softmax(scores), v).reshape(len(q), -1)


def attend(q, k, v, scale):
    return attend_masked(q, k, v, scale, 0)


class Block:
    def __init__(self, c, w):
        self.w, self.c, self.qwen = w, c, "mtp.fc.weight" in w
        self.one = 1.0 if self.qwen else 0.0          # norms' weights are what is added to 1
        self.cohere = c["model_type"] == "cohere2_moe"
        self.step = c["model_type"] == "step3p5"
        self.one = 1.0 if self.step else self.one
        self.mimo = c["model_type"] == "mimo_v2_flash"
        self.longcat = c["model_type"] == "longcat_flash"
        self.eps = c.get("rms_norm_eps") or c["layer_norm_eps"]
        self.at = "mtp.layers.0." if self.qwen else "model.layers.%d." % c.get("num_hidden_layers", 0)
        self.parts = (["mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.fc", "mtp.norm"] if self.qwen else
                      [self.at + n for n in ("enorm", "hnorm", "eh_proj", "shared_head.norm")])
        if self.mimo:
            self.at = "model.mtp.layers.0."
            self.parts = [self.at + n for n in ("enorm", "hnorm", "eh_proj", "final_layernorm")]
        if self.longcat:
            self.at = "model.mtp.layers.0."
            self.parts = [self.at + n for n in ("enorm.m", "hnorm.m", "eh_proj")] + ["model.mtp.norm"]
        if self.step:
            self.parts[3] = self.at + "transformer.shared_head.norm"
        if self.parts[3] + ".weight" not in w:
            self.parts[3] = "model.norm"
        whole = "model.language_model." if "model.language_model.norm.weight" in w else "model."
        self.embeddings = w.get(self.at + "embed_tokens.weight", w[whole + "embed_tokens.weight"])
        self.head = w.get(self.at + ("transformer.shared_head.output.weight" if self.step else "shared_head.head.weight"), w["lm_head.weight"])
        self.last_norm = w[whole + "norm.weight"]

    def norm(self, x, name):
        if self.cohere:
            x = x - x.mean(-1, keepdims=True)
        return rms(x, self.w[name + ".weight"] + self.one, self.eps)

    def state(self, prenorm):
        """What it is given of the model."""
        if self.cohere:
            return self.norm(prenorm, "model.norm")
        return rms(prenorm, self.last_norm + self.one, self.eps) if self.qwen or self.longcat else prenorm

    def mat(self, x, name):
        y = x @ self.w[self.at + name + ".weight"].T
        return y + self.w[self.at + name + ".bias"] if self.at + name + ".bias" in self.w else y

    def latent(self, x):
        c, t, h = self.c, len(x), self.c["num_attention_heads"]
        nope, rope, value, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
        inv, factor, sharper = frequencies(c, rope)
        # the latent norms of these models have an epsilon of their own
        q = rms(self.mat(x, "self_attn.q_a_proj"), self.w[self.at + "self_attn.q_a_layernorm.weight"], 1e-6)
        if self.longcat:
            q = q * (c["hidden_size"] / c["q_lora_rank"]) ** 0.5
        q_latent, q = q, self.mat(q, "self_attn.q_b_proj").reshape(t, h, nope + rope)
        kv = self.mat(x, "self_attn.kv_a_proj_with_mqa")
        latent = rms(kv[:, :rank], self.w[self.at + "self_attn.kv_a_layernorm.weight"], 1e-6)
        if self.longcat:
            latent = latent * (c["hidden_size"] / rank) ** 0.5
        both = self.mat(latent, "self_attn.kv_b_proj").reshape(t, h, nope + value)
        turned = np.repeat(rotate(kv[:, None, rank:], inv, factor, True), h, 1)
        q = np.concatenate([q[..., :nope], rotate(q[..., nope:], inv, factor, True)], -1)
        k = np.concatenate([both[..., :nope], turned], -1)
        seen = self.chosen(x, q_latent, inv, factor) if "index_topk" in c else None
        return self.mat(attend_masked(q, k, both[..., nope:], sharper * (nope + rope) ** -0.5, seen=seen), "self_attn.o_proj")

    def chosen(self, x, q_latent, inv, factor):
        """Which keys the indexer lets each token see (modeling_deepseek_v32.py, DeepseekV32Indexer); of equal scores the lower position."""
        c, t, h, dim, at = self.c, len(x), self.c["index_n_heads"], self.c["index_head_dim"], "self_attn.indexer."
        pairs, rope = c["model_type"] == "glm_moe_dsa", c["qk_rope_head_dim"]
        q = self.mat(q_latent, at + "wq_b").reshape(t, h, dim)
        k = self.mat(x, at + "wk")
        k = (k - k.mean(-1, keepdims=True)) / np.sqrt(k.var(-1, keepdims=True) + 1e-6)
        k = (k * self.w[self.at + at + "k_norm.weight"] + self.w[self.at + at + "k_norm.bias"])[:, None]
        q, k = (np.concatenate([rotate(y[..., :rope], inv, factor, pairs), y[..., rope:]], -1) for y in (q, k))
        dots = np.maximum(np.einsum("ihd,jd->ihj", q, k[:, 0]), 0)
        scores = np.einsum("ihj,ih->ij", dots, self.mat(x, at + "weights_proj")) + np.triu(np.full((t, t), -np.inf), 1)
        best, seen = np.argsort(-scores, -1, kind="stable")[:, :c["index_topk"]], np.zeros((t, t), bool)
        np.put_along_axis(seen, best, True, -1)
        return seen

    def heads(self, x):
        c, t, h, dim = self.c, len(x), self.c["num_attention_heads"], self.c["head_dim"]
        turned = int(dim * c.get("partial_rotary_factor", 1.0))
        inv, factor, _ = frequencies(c, turned)
        q = self.mat(x, "self_attn.q_proj").reshape(t, h, -1)
        k, v = (self.mat(x, "self_attn.%s_proj" % n).reshape(t, c["num_key_value_heads"], dim) for n in "kv")
        q, gate = q[..., :dim], q[..., dim:]
        if self.at + "self_attn.q_norm.weight" in self.w:
            q, k = self.norm(q, self.at + "self_attn.q_norm"), self.norm(k, self.at + "self_attn.k_norm")
        q, k = (np.concatenate([rotate(y[..., :turned], inv, factor, self.cohere), y[..., turned:]], -1) for y in (q, k))
        out = attend(q, k, v, dim ** -0.5)
        return self.mat(out * sigmoid(gate.reshape(t, -1)) if gate.size else out, "self_attn.o_proj")

    def windowed(self, x):
        """Of Step 3.5 (modeling_step3p7.py): more heads, a window, gates a head; the window's rotation is not scaled."""
        c, t, dim, n = self.c, len(x), self.c["head_dim"], self.c["num_hidden_layers"]
        turned = int(dim * c["partial_rotary_factors"][n])
        inv = c["rope_theta"][n] ** -(np.arange(0, turned, 2) / turned)
        q, k, v = (self.mat(x, "self_attn.%s_proj" % p).reshape(t, -1, dim) for p in "qkv")
        q, k = self.norm(q, self.at + "self_attn.q_norm"), self.norm(k, self.at + "self_attn.k_norm")
        q, k = (np.concatenate([rotate(y[..., :turned], inv, 1.0, False), y[..., turned:]], -1) for y in (q, k))
        out = attend_masked(q, k, v, dim ** -0.5, c["sliding_window"]).reshape(t, -1, dim) * sigmoid(self.mat(x, "self_attn.g_proj"))[..., None]
        return self.mat(out.reshape(t, -1), "self_attn.o_proj")

    def sinking(self, x):
        """Of MiMo-V2-Flash (modeling_mimo_v2_flash.py): a window with sinks, values narrower than keys."""
        c, t, dim, value = self.c, len(x), self.c["head_dim"], self.c["v_head_dim"]
        rope = c["rope_parameters"]["sliding_attention"]
        turned = int(dim * rope["partial_rotary_factor"])
        inv = rope["rope_theta"] ** -(np.arange(0, turned, 2) / turned)
        q, k = (self.mat(x, "self_attn.%s_proj" % p).reshape(t, -1, dim) for p in "qk")
        v = self.mat(x, "self_attn.v_proj").reshape(t, -1, value) * c["attention_value_scale"]
        q, k = (np.concatenate([rotate(y[..., :turned], inv, 1.0, False), y[..., turned:]], -1) for y in (q, k))
        out = attend_masked(q, k, v, dim ** -0.5, c["sliding_window"], self.w[self.at + "self_attn.attention_sink_bias"])
        return self.mat(out, "self_attn.o_proj")

    def expert(self, x, name):
        return self.mat(silu(self.mat(x, name + ".gate_proj")) * self.mat(x, name + ".up_proj"), name + ".down_proj")

    def choose(self, x):
        """(T, experts): each one's weight, 0 where it is not chosen."""
        c, scores = self.c, self.mat(x, "mlp.gate")
        used = c["num_experts_per_tok"]
        if self.qwen:
            scores = biased = softmax(scores)
        elif self.cohere:
            scores = biased = sigmoid(scores)
        else:
            scores = sigmoid(scores)
            biased = scores + self.w[self.at + "mlp.gate.e_score_correction_bias"]
            if c["n_group"] > 1:
                groups = biased.reshape(len(x), c["n_group"], -1)
                best = np.sort(groups, -1)[..., -2:].sum(-1)
                out = np.argsort(-best, -1, kind="stable")[:, c["topk_group"]:]
                np.put_along_axis(groups, out[..., None], -np.inf, 1)
                biased = groups.reshape(len(x), -1)
        chosen = np.argsort(-biased, -1, kind="stable")[:, :used]
        weights = np.zeros_like(scores)
        np.put_along_axis(weights, chosen, np.take_along_axis(scores, chosen, -1), -1)
        return weights / weights.sum(-1, keepdims=True) * c.get("routed_scaling_factor", 1.0)

    def feed_forward(self, x):
        if self.step or self.mimo:
            return self.expert(x, "mlp")
        if self.longcat:
            return self.expert(x, "transformer_layer.mlp")
        weights = self.choose(x)
        out = sum(weights[:, e:e + 1] * self.expert(x, "mlp.experts.%d" % e) for e in range(weights.shape[1]))
        if self.qwen:
            return out + sigmoid(self.mat(x, "mlp.shared_expert_gate")) * self.expert(x, "mlp.shared_expert")
        return (out + self.expert(x, "mlp.shared_experts")) / (2 if self.cohere else 1)

    def run(self, tokens, states):
        """Logits and states of all rows."""
        c = self.c
        join = self.w[self.parts[2] + ".weight"]
        x = np.concatenate([self.norm(self.embeddings[tokens], self.parts[0]), self.norm(states, self.parts[1])], -1) @ join.T
        if self.cohere:
            n = self.norm(x, self.at + "input_layernorm")
            normed = self.norm(x + self.heads(n) + self.feed_forward(n), self.parts[3])
            return normed @ self.head.T * c["logit_scale"], normed
        x = x + (self.latent if "kv_lora_rank" in self.c else self.windowed if self.step else self.sinking if self.mimo else self.heads)(self.norm(x, self.at + "input_layernorm"))
        x = x + self.feed_forward(self.norm(x, self.at + ("pre_mlp_layernorm" if self.mimo else "post_attention_layernorm")))
        normed = self.norm(x, self.parts[3])
        return normed @ self.head.T, normed if self.qwen or self.longcat else x


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--out")
    p.add_argument("--complete", action="store_true")
    a = p.parse_args()
    c = json.load(open(os.path.join(a.folder, "config.json")))
    c = c.get("text_config", c)
    if a.complete:
        complete(a.folder, c["num_experts"])
    golden = read(os.path.join(a.folder, "golden.safetensors"))
    block = Block(c, read(os.path.join(a.folder, "model.safetensors")))
    ids, states = golden["input_ids"], block.state(golden["prenorm"])
    logits, _ = block.run(ids[1:], states[:-1])

    tokens, drafts = list(ids[1:]) + [golden["greedy"][0]], []
    for _ in range(4):
        made, own = block.run(np.array(tokens), states)
        drafts.append(int(made[-1].argmax()))
        tokens.append(drafts[-1])
        states = np.concatenate([states, own[-1:]])
    write(a.out or os.path.join(a.folder, "golden-further.safetensors"),
          {"input_ids": ("I32", ids.astype("<i4")), "logits": ("F32", logits.astype("<f4")),
           "drafts": ("I32", np.array(drafts, "<i4"))})
    print("%s: %d rows, logits' deviation %.3f, drafts %s" % (a.folder, len(logits), logits.std(), drafts))


if __name__ == "__main__":
    main()
