#!/usr/bin/env python3
"""Computes what moetop --lens wrote once more with numpy in float64, from the checkpoint's weights.

    lens.py LENS.safetensors MODEL_FOLDER [GOLDEN.safetensors]    exit status 0: all agrees

Of every model: the logit lens from the recorded stream, and that a logit is the sum of its parts.
Of the kinds that `forward` below knows (mixtral, qwen2_moe, qwen3_moe, granitemoe) also a forward
pass of its own from the token ids: streams, patterns of attention, each part, what a runner-up
would have made. GOLDEN: streams of the official code. It shares no code with the program."""
import json
import os
import sys

import numpy as np

# Of the largest value of what is compared. A whole forward pass in F32 is compared with one in
# F64, or with another program's in F32: each rounds on its own.
TOLERANCE, PASSES = 1e-6, 1e-5
worst = {}


def read(path):
    types = {"I64": "<i8", "I32": "<i4", "F32": "<f4", "BF16": "<u2", "F16": "<f2"}
    data = open(path, "rb").read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    about = header.pop("__metadata__", {})
    t = {}
    for name, o in header.items():
        a, b = o["data_offsets"]
        v = np.frombuffer(data[8 + n + a:8 + n + b], types[o["dtype"]]).reshape(o["shape"])
        if o["dtype"] == "BF16":
            v = (v.astype("<u4") << 16).view("<f4")
        t[name] = v
    return about, t


def limit(what):
    return PASSES if what in ("official: stream", "forward: stream") else TOLERANCE


def check(what, a, b, size=None):
    a, b = np.asarray(a, float), np.asarray(b, float)
    off = np.abs(a - b).max() / (size or max(1.0, np.abs(b).max()))
    worst[what] = max(worst.get(what, 0), off if np.isfinite(off) else 1e9)


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def silu(x):
    return x / (1 + np.exp(-x))


def rope(x, theta):
    """x: (tokens, heads, dim); the halves of a head turn together."""
    half = x.shape[-1] // 2
    a = np.arange(len(x))[:, None, None] * theta ** (-np.arange(half) / half)
    p, q = x[..., :half], x[..., half:]
    return np.concatenate([p * np.cos(a) - q * np.sin(a), q * np.cos(a) + p * np.sin(a)], -1)


def experts_of(c, W, p, kind):
    """gate, up and down of every routed expert, and the router."""
    n = c.get("num_local_experts") or c.get("num_experts")
    if kind == "granitemoe":
        both, down = W[p + "block_sparse_moe.input_linear.weight"], \
            W[p + "block_sparse_moe.output_linear.weight"]
        half = both.shape[1] // 2
        return [(both[i, :half], both[i, half:], down[i]) for i in range(n)], \
            W[p + "block_sparse_moe.router.layer.weight"]
    if kind == "mixtral":
        e = p + "block_sparse_moe.experts.%d."
        return [tuple(W[e % i + k + ".weight"] for k in ("w1", "w3", "w2")) for i in range(n)], \
            W[p + "block_sparse_moe.gate.weight"]
    e = p + "mlp.experts.%d."
    return [tuple(W[e % i + k + "_proj.weight"] for k in ("gate", "up", "down"))
            for i in range(n)], W[p + "mlp.gate.weight"]


def forward(c, W, ids, swap=None, streams=None):
    """streams (tokens, layers, hidden): each layer's input instead of its predecessor's. swap:
    (position, layer): there the runner-up has the least chosen expert's place. Returns streams,
    mixers' and experts' parts by slot, experts, weights, patterns, scores; lists by layer."""
    kind, T, eps = c["model_type"], len(ids), c["rms_norm_eps"]
    H, KV, used = c["num_attention_heads"], c["num_key_value_heads"], c["num_experts_per_tok"]
    theta = c.get("rope_theta") or (c.get("rope_parameters") or {}).get("rope_theta") or 1e4
    by = c.get("residual_multiplier", 1.0) or 1.0
    x = W["model.embed_tokens.weight"][ids].astype(float) * (c.get("embedding_multiplier") or 1.0)
    out = dict(stream=[x], mixer=[], expert=[], chosen=[], weights=[], pattern=[], scores=[])
    for layer in range(c["num_hidden_layers"]):
        p = "model.layers.%d." % layer
        x = x if streams is None else streams[:, layer].astype(float)
        lin = lambda x, n: x @ W[p + n + ".weight"].T + W.get(p + n + ".bias", 0)
        h = rms(x, W[p + "input_layernorm.weight"], eps)
        q, k, v = (lin(h, "self_attn.%s_proj" % n).reshape(T, -1, lin(h, "self_attn.k_proj")
                   .shape[1] // KV) for n in "qkv")
        if p + "self_attn.q_norm.weight" in W:
            q = rms(q, W[p + "self_attn.q_norm.weight"], eps)
            k = rms(k, W[p + "self_attn.k_norm.weight"], eps)
        q, k = rope(q, theta), rope(k, theta)
        scale = c.get("attention_multiplier") or q.shape[-1] ** -0.5
        z = np.einsum("ihd,jhd->hij", q, np.repeat(k, H // KV, 1)) * scale
        i, j = np.arange(T)[:, None], np.arange(T)[None]
        window = c.get("sliding_window") if c.get("use_sliding_window", kind == "mixtral") else None
        z = np.where((j > i) | ((i - j >= window) if window else False), -np.inf, z)
        a = softmax(z)
        y = np.einsum("hij,jhd->ihd", a, np.repeat(v, H // KV, 1)).reshape(T, -1)
        y = lin(y, "self_attn.o_proj") * by
        x = x + y
        h = rms(x, W[p + "post_attention_layernorm.weight"], eps)
        if p + "mlp.up_proj.weight" in W:  # a dense layer: one expert, always chosen
            parts = np.zeros((T, out["expert"][0].shape[1], x.shape[1]))
            parts[:, 0] = lin(silu(lin(h, "mlp.gate_proj")) * lin(h, "mlp.up_proj"),
                              "mlp.down_proj")
            x = x + parts[:, 0]
            none = np.zeros((T, used)), np.zeros((T, len(out["scores"][0][0])))
            for n, value in (("stream", x), ("mixer", y), ("expert", parts), ("chosen", None),
                             ("weights", none[0]), ("pattern", a), ("scores", none[1])):
                out[n].append(value)
            continue
        experts, router = experts_of(c, W, p, kind)
        s = h @ router.T
        order = np.argsort(-s, -1, kind="stable")
        chosen, other = order[:, :used].copy(), order[:, used]
        if c.get("norm_topk_prob", kind != "qwen2_moe") or kind == "granitemoe":
            w = softmax(np.take_along_axis(s, chosen, -1))
        else:
            w = np.take_along_axis(softmax(s), chosen, -1)
        if swap and swap[1] == layer:
            chosen[swap[0], np.argmin(w[swap[0]])] = other[swap[0]]
        parts = np.zeros((T, used + (p + "mlp.shared_expert.up_proj.weight" in W), x.shape[1]))
        for t in range(T):
            for n, e in enumerate(chosen[t]):
                g, u, d = experts[e]
                parts[t, n] = w[t, n] * by * (d @ (silu(g @ h[t]) * (u @ h[t])))
        if parts.shape[1] > used:
            m = p + "mlp.shared_expert"
            gate = 1 / (1 + np.exp(-(h @ W[m + "_gate.weight"].T)))
            parts[:, used] = gate * ((silu(h @ W[m + ".gate_proj.weight"].T) *
                                      (h @ W[m + ".up_proj.weight"].T))
                                     @ W[m + ".down_proj.weight"].T)
        x = x + parts.sum(1)
        for n, value in (("stream", x), ("mixer", y), ("expert", parts), ("chosen", chosen),
                         ("weights", w), ("pattern", a), ("scores", s)):
            out[n].append(value)
    return out


def main():
    about, t = read(sys.argv[1])
    m = json.loads(about["moetop_lens"])
    c = json.load(open(os.path.join(sys.argv[2], "config.json")))
    c = c.get("text_config", c)
    W = {k.replace("model.language_model.", "model."): v.astype(float)
         for k, v in read(os.path.join(sys.argv[2], "model.safetensors"))[1].items()}
    head = W.get("lm_head.weight", W["model.embed_tokens.weight"])
    norm = W[next(k for k in ("model.norm.weight", "model.norm_f.weight",
                              "model.embedding_norm.weight") if k in W)]
    if c["model_type"] in ("qwen3_next", "qwen3_5_moe", "qwen3_5_moe_text", "gemma3_text"):
        norm = 1 + norm  # Qwen3-Next's and Gemma 3's RMS norms store the weight less 1
    eps = c.get("rms_norm_eps") or c.get("norm_eps") or c.get("layer_norm_epsilon") or 1e-6
    over, cap = m["logit_divisor"] or 1.0, m["logit_cap"]
    capped = lambda z: cap * np.tanh(z / cap) if cap else z
    N, L = len(t["target"]), t["stream"].shape[1] - 1
    rows = np.arange(N)

    logits = capped(rms(t["stream"].astype(float), norm, eps) @ head.T / over)
    size = np.abs(logits).max()
    at = np.broadcast_to(t["target"][:, None, None], (N, L + 1, 1))
    check("lens: target", t["lens_logit"], np.take_along_axis(logits, at, -1)[..., 0], size)
    check("lens: best", t["lens_top_logit"], -np.sort(-logits, -1)[..., :5], size)
    check("lens: ids", np.take_along_axis(logits, t["lens_top"].astype(int), -1),
          t["lens_top_logit"], size)
    check("logit", t["logit"], t["lens_logit"][:, -1], size)

    last = t["stream"][:, -1].astype(float)
    u = head[t["target"]] * norm / over / np.sqrt((last * last).mean(-1, keepdims=True) + eps)
    total = sum(t[k].astype(float).reshape(N, -1).sum(1)
                for k in ("by_embedding", "by_mixer", "by_expert", "by_constant"))
    check("parts: sum", total, (u * last).sum(-1), size)
    if not any("layer_scalar" in k for k in W):
        steps = np.einsum("nh,nlh->nl", u, np.diff(t["stream"].astype(float), axis=1))
        check("parts: layer", t["by_mixer"] + t["by_expert"].sum(-1), steps, size)
    if "attention" in t:
        sums = t["attention"].astype(float).sum(-1)
        heads = sums[sums > 0]
        check("attention: at most 1", np.maximum(heads, 1), np.ones_like(heads))

    if c["model_type"] in ("mixtral", "qwen2_moe", "qwen3_moe", "granitemoe"):
        ids = t["token"]
        assert (t["position"] == rows).all()
        stream = np.stack(forward(c, W, ids)["stream"], 1)
        check("forward: stream", t["stream"], stream)
        own = forward(c, W, ids, streams=t["stream"])
        check("forward: attention", t["attention"],
              np.stack(own["pattern"], 0)[:, :, :N].transpose(2, 0, 1, 3))
        scores = np.stack(own["scores"], 1)[:N]
        check("forward: scores", t["scores"][..., :scores.shape[-1]], scores)
        n = own["expert"][0].shape[1]
        for l in range(L):
            if own["chosen"][l] is not None:
                used = own["chosen"][l].shape[1]
                check("forward: experts", t["experts"][:, l, :used], own["chosen"][l][:N])
                check("forward: weights", t["weights"][:, l, :used], own["weights"][l][:N])
        check("forward: by mixer", t["by_mixer"],
              np.einsum("nh,nlh->nl", u, np.stack(own["mixer"], 1)[:N]), size)
        check("forward: by expert", t["by_expert"][..., :n],
              np.einsum("nh,nlsh->nls", u, np.stack(own["expert"], 1)[:N]), size)
        check("forward: by embedding", t["by_embedding"], (u * stream[:, 0]).sum(-1), size)
        for i in rows[:: max(1, N // 2)] if "swap_token" in t else []:
            for l in (l for l in range(L) if own["chosen"][l] is not None):
                x = forward(c, W, ids[:i + 1], (i, l))["stream"][-1][-1]
                z = capped(rms(x, norm, eps) @ head.T / over)
                check("swap: logit", t["swap_logit"][i, l], z.max(), size)
                check("swap: token", z[t["swap_token"][i, l]], z.max(), size)
    if len(sys.argv) > 3:
        golden = read(sys.argv[3])[1]
        if "hidden" in golden and golden["hidden"].shape[0] == L + 1:
            h = golden["hidden"].astype(float)[:, -golden["hidden"].shape[1]:]
            rows = min(N, h.shape[1])
            check("official: stream", t["stream"][:rows, :L], h[:L, :rows].transpose(1, 0, 2))
    for what, off in worst.items():
        print("%-24s %.1e%s" % (what, off, "" if off <= limit(what) else "  ***"))
    return int(any(off > limit(what) for what, off in worst.items()))


sys.exit(main())
