"""Shapes of families without routed experts for synthetic_gguf.py: what llama.cpp's converter would write of the published models.

A row of FAMILIES is a model, its widths as published; --layers says how many of its layers a file gets. What differs from plain attention
and SwiGLU behind RMS norms is a word of its row, which `build` reads.
"""

FAMILIES = {
    "llama": dict(arch="llama", of="Llama 3.1 8B", layers=32, hidden=4096, heads=32, kv=8, width=14336, vocab=128256, theta=5e5),
    "granite": dict(arch="granite", of="Granite 3.3 8B", layers=40, hidden=4096, heads=32, kv=8, width=12800, vocab=49159, theta=1e7, tied=True,
                    keys=dict(embedding_scale=12.0, residual_scale=0.22, logit_scale=16.0, attention__scale=0.0078125)),
    "qwen2": dict(arch="qwen2", of="Qwen2.5 7B", layers=28, hidden=3584, heads=28, kv=4, width=18944, vocab=152064, theta=1e6, bias=True),
    "qwen3": dict(arch="qwen3", of="Qwen3 8B", layers=36, hidden=4096, heads=32, kv=8, width=12288, vocab=151936, theta=1e6, norms_of="head"),
    "qwen3_5": dict(arch="qwen35", of="Qwen3.5 9B", layers=32, hidden=4096, heads=16, kv=4, dim=256, width=12288, vocab=248320, theta=1e7, norms_of="head",
                    rotary=64, net=(16, 32, 128)),
    "lfm2": dict(arch="lfm2", of="LFM2 1.2B", layers=16, hidden=2048, heads=32, kv=8, dim=64, width=8192, vocab=65536, theta=1e6, norms_of="head", tied=True,
                 attends=(2, 5, 8, 10, 12, 14)),
    "smollm3": dict(arch="smollm3", of="SmolLM3 3B", layers=36, hidden=2048, heads=16, kv=4, width=11008, vocab=128256, theta=5e6, tied=True),
    "olmo2": dict(arch="olmo2", of="OLMo 2 7B", layers=32, hidden=4096, heads=32, kv=32, width=11008, vocab=100352, theta=5e5, norms_of="whole", outputs=True),
    "olmo3": dict(arch="olmo2", of="OLMo 3 7B", layers=32, hidden=4096, heads=32, kv=32, width=11008, vocab=100278, theta=5e5, norms_of="whole", outputs=True,
                  window=(4096, 4)),
    "phi3": dict(arch="phi3", of="Phi-3 Mini 4k", layers=32, hidden=3072, heads=32, kv=32, dim=96, width=8192, vocab=32064, theta=1e4, fused=True, sentencepiece=True,
                 keys=dict(attention__sliding_window=2047, rope__scaling__original_context_length=4096)),
    "mistral3": dict(arch="mistral3", of="Ministral 3 8B", layers=34, hidden=4096, heads=32, kv=8, width=14336, vocab=131072, theta=1e6,
                     keys=dict(attention__temperature_scale=0.1, rope__scaling__type="yarn", rope__scaling__factor=16.0, rope__scaling__yarn_beta_fast=32.0,
                               rope__scaling__yarn_beta_slow=1.0, rope__scaling__yarn_log_multiplier=1.0, rope__scaling__original_context_length=16384)),
    "muse_glimmer": dict(arch="muse-glimmer", of="Muse Glimmer 30B", layers=52, hidden=6656, heads=32, kv=2, width=19968, vocab=202048, theta=5e5, norms_of="head",
                         after=True, gate=True, window=(2048, 4), keys=dict(logit_scale=0.196116135, final_logit_softcapping=20.0)),
    "gemma3": dict(arch="gemma3", of="Gemma 3 4B", layers=34, hidden=2560, heads=8, kv=4, dim=256, width=10240, vocab=262208, theta=1e6, norms_of="head", after=True,
                   tied=True, window=(1024, 6), keys=dict(rope__freq_base_swa=10000.0)),
    "gemma3n": dict(arch="gemma3n", of="Gemma 3n E2B", layers=30, hidden=2048, heads=8, kv=2, dim=256, width=8192, vocab=262400, theta=1e6, norms_of="head", after=True,
                    tied=True, window=(512, 5), inputs=256, kept=20, streams=4, laurel=64,
                    keys=dict(rope__freq_base_swa=10000.0, final_logit_softcapping=30.0)),
    "gemma4_e": dict(arch="gemma4", of="Gemma 4 E2B", layers=35, hidden=1536, heads=8, kv=1, dim=512, dim_swa=256, width=6144, wide=12288, vocab=262144, theta=1e6,
                     norms_of="head", after=True, tied=True, window=(512, 5), inputs=256, kept=15, freqs=True, scaled=True,
                     keys=dict(rope__freq_base_swa=10000.0, final_logit_softcapping=30.0)),
    "gpt2": dict(arch="gpt2", of="GPT-2 XL", layers=48, hidden=1600, heads=25, kv=25, dim=64, width=6400, vocab=50257, tied=True, learned=True),
}
SMALL = dict(layers=6, hidden=256, heads=4, kv=2, dim=64, dim_swa=32, width=512, wide=1024, rotary=32, net=(2, 4, 32), kept=5, attends=(1, 3))


def shrunk(t):
    """The same kinds of layers, narrow and few; llama.cpp knows no other number of streams, of a layer's inputs, of ranks beside attention."""
    t = dict(t, dim=64, **{k: v for k, v in SMALL.items() if k in t and k != "dim"})
    if t.get("norms_of") == "whole" or "learned" in t:
        t["kv"] = t["heads"]
    return t


def metadata(s, t):
    """Keys; and per layer whether it sees all, attends, keeps keys of its own."""
    n, dim = s.layers, t["dim"]
    full, kept = [True] * n, [l < t.get("kept", n) for l in range(n)]
    s.set(feed_forward_length=t["width"], attention__head_count=t["heads"], **t.get("keys", {}))
    if "learned" in t:
        s.set(attention__layer_norm_epsilon=1e-5)
        return full, full, kept
    s.set(attention__layer_norm_rms_epsilon=1e-6, attention__key_length=dim, attention__value_length=dim, rope__dimension_count=t.get("rotary", dim),
          rope__freq_base=float(t["theta"]))
    if "window" in t:
        width, every = t["window"]
        full = [l % every == every - 1 for l in range(n)]
        s.set(attention__sliding_window=width, attention__sliding_window_pattern=[not x for x in full])
    if "dim_swa" in t:
        narrow = t["dim_swa"]
        s.set(attention__key_length_swa=narrow, attention__value_length_swa=narrow, rope__dimension_count_swa=narrow,
              feed_forward_length=[t["width"] if x else t["wide"] for x in kept])
    if "inputs" in t:
        s.set(embedding_length_per_layer_input=t["inputs"], attention__shared_kv_layers=n - sum(kept))
    if "streams" in t:  # where so many deviations above the mean are wanted of a gate, 5 % of them count
        s.set(altup__num_inputs=t["streams"], altup__active_idx=0, activation_sparsity_scale=[1.6448536 if l < 10 else float("-inf") for l in range(n)])
    if "net" in t:
        keys, values, state = t["net"]
        part = t["rotary"] // 2 * 11 // 32
        s.set(ssm__conv_kernel=4, ssm__state_size=state, ssm__group_count=keys, ssm__time_step_rank=values, ssm__inner_size=values * state,
              full_attention_interval=4, rope__dimension_sections=[part, part, t["rotary"] // 2 - 2 * part, 0])
    attends = [l in t["attends"] if "attends" in t else l % 4 == 3 if "net" in t else True for l in range(n)]
    s.set(attention__head_count_kv=[t["kv"] if x else 0 for x in attends] if "attends" in t else t["kv"])
    if "attends" in t:
        s.set(shortconv__l_cache=3)
    return full, attends, kept


def attention(s, l, t, dim, keeps):
    p, heads, kv = f"blk.{l}.", t["heads"], t["kv"]
    rows = [("q", heads * dim * (2 if "net" in t else 1)), ("k", kv * dim), ("v", kv * dim)]
    if t.get("fused") or t.get("learned"):
        rows = [("qkv", (heads + 2 * kv) * dim)]
    for n, n_rows in rows if keeps else rows[:1]:
        s.weight(p + "attn_" + n, n_rows, s.hidden, layer=l)
        if t.get("bias") or t.get("learned"):
            s.floats(p + f"attn_{n}.bias", n_rows)
    if t.get("gate"):
        s.weight(p + "attn_gate", heads * dim, s.hidden, layer=l)
    s.weight(p + "attn_output", s.hidden, heads * dim, layer=l)
    if t.get("learned"):
        s.floats(p + "attn_output.bias", s.hidden)
    if "norms_of" in t:
        whole = t["norms_of"] == "whole"
        s.norm(p + "attn_q_norm", heads * dim if whole else dim)
        if keeps:
            s.norm(p + "attn_k_norm", kv * dim if whole else dim)


def convolution(s, l):
    p = f"blk.{l}.shortconv."
    s.floats(p + "conv.weight", (3, s.hidden), 0.0, 0.5)
    s.weight(p + "in_proj", 3 * s.hidden, s.hidden, layer=l)
    s.weight(p + "out_proj", s.hidden, s.hidden, layer=l)


def inputs(s, l, t):
    """A layer's inputs by the token, and several streams beside each other."""
    p = f"blk.{l}."
    s.weight(p + "inp_gate", t["inputs"], s.hidden, layer=l)
    s.weight(p + "proj", s.hidden, t["inputs"], layer=l)
    s.norm(p + "post_norm", s.hidden)
    if t.get("scaled"):
        s.floats(p + "layer_output_scale.weight", 1, 1.0, 0.1)
    if "streams" not in t:
        return
    n = t["streams"]
    s.norm(p + "altup_router_norm", s.hidden)
    s.weight(p + "altup_router", n, s.hidden, fmt="F32")
    s.floats(p + "altup_predict_coef.weight", (n, n * n))
    s.floats(p + "altup_correct_coef.weight", (n, n))
    s.floats(p + "altup_correct_scale.weight", s.hidden, 1.0, 0.1)
    s.weight(p + "laurel_l", t["laurel"], s.hidden, layer=l)
    s.weight(p + "laurel_r", s.hidden, t["laurel"], layer=l)
    s.norm(p + "laurel_post_norm", s.hidden)


def ends(s, t):
    if t["arch"] == "lfm2":
        return s.ends(tied=True, norm="token_embd_norm")
    s.ends(tied=t.get("tied", False))
    if "learned" in t:
        s.weight("position_embd", s.asked_context or 1024, s.hidden, fmt="F32")
        s.floats("output_norm.bias", s.hidden)
    if "inputs" in t:
        s.weight("per_layer_token_embd", s.vocab, t["inputs"] * s.layers)
        s.weight("per_layer_model_proj", t["inputs"] * s.layers, s.hidden, fmt="BF16")
        s.norm("per_layer_proj_norm", t["inputs"])
    if "streams" in t:
        for n in ("altup_proj", "altup_unembd_proj"):
            s.weight(n, s.hidden, s.hidden, t["streams"] - 1)
    if t.get("freqs"):
        s.floats("rope_freqs.weight", t["dim"] // 2, 1.0, 0.0)


def feed_forward(s, l, t, width):
    p = f"blk.{l}."
    if "learned" not in t and not t.get("fused"):
        return s.feed_forward(l, width)
    s.weight(p + "ffn_up", width * (2 if t.get("fused") else 1), s.hidden, layer=l)
    s.weight(p + "ffn_down", s.hidden, width, layer=l)
    if "learned" in t:
        s.floats(p + "ffn_up.bias", width)
        s.floats(p + "ffn_down.bias", s.hidden)


def build(Shape, name, a, delta_net):
    t = FAMILIES[name]
    s = Shape(t["arch"], a)
    s.tokenizer = "llama" if t.get("sentencepiece") else s.tokenizer
    t = shrunk(t) if a.small else dict(t, dim=t.get("dim", 128))
    s.sizes(t["layers"], t["vocab"], 1024 if "learned" in t else 4096, t["hidden"], t["hidden"])
    full, attends, kept = metadata(s, t)
    ends(s, t)
    for l in range(s.layers):
        p = f"blk.{l}."
        learned = "learned" in t
        if not t.get("outputs"):
            s.norm(p + "attn_norm", s.hidden, learned)
            s.norm(p + ("post_attention_norm" if "net" in t else "ffn_norm"), s.hidden, learned)
        if t.get("outputs") or t.get("after"):
            s.norm(p + "post_attention_norm", s.hidden)
            s.norm(p + "post_ffw_norm", s.hidden)
        if attends[l]:
            attention(s, l, t, t["dim"] if full[l] else t.get("dim_swa", t["dim"]), kept[l])
        elif "net" in t:
            delta_net(s, l, *t["net"])
        else:
            convolution(s, l)
        if "inputs" in t:
            inputs(s, l, t)
        feed_forward(s, l, t, t["width"] if kept[l] else t.get("wide", t["width"]))
    return s
