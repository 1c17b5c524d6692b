#!/usr/bin/env python3
"""Writes a GGUF file of a known model's shape with seeded random weights, to measure speed and memory (the text it gives is noise).

    synthetic_gguf.py SHAPE OUT.gguf [--type TYPE] [--head TYPE] [--layers N] [--experts N] [--vocab N] [--context N] [--small]

SHAPE: a key of SHAPES below, or a family of synthetic_families.py or synthetic_dense.py. phi-tiny-llama has phi-tiny's matrices under the architecture that llama.cpp and ik_llama.cpp open:
they refuse 16 heads of 128 in a width of 4096. Names and metadata are those of llama.cpp's converter.
--type: a key of FORMATS, or a mix: Q4_K_M, Q5_K_M, Q3_K_M as llama-quantize mixes them; MXFP4 and NVFP4 hold experts, the rest is Q8_0.
Where a row is no multiple of the format's block its fallback is taken, as llama-quantize does. --head: the type of output.weight
(llama-quantize makes it Q6_K; here it is that of the rest). --layers, --experts: fewer, to fit (llama.cpp tells DeepSeek-V2-Lite
by its 27 layers). --small: narrow and few of everything, for tests.
The blocks are random bits with scales of the right size, nothing is quantised: a second or two a GB. Same arguments, same bytes.
Needs nothing but Python 3.9.
"""
import argparse
import math
import random
import struct
import sys

import synthetic_dense
import synthetic_families
import synthetic_hyper

# word: id of ggml, file type, weights and bytes a block, {offset: high byte of an F16 scale, or a whole byte}, fallback
def f16(power, sign=0):            # the high byte of 2^power to 1.25 times that; sign=0x80: of its negative
    return sign | (max(0, 15 + power) << 2 or 1)


FORMATS = {
    "F32": (0, 0, 1, 4, {}, None), "I32": (26, 0, 1, 4, {}, None), "F16": (1, 1, 1, 2, {}, None), "BF16": (30, 32, 1, 2, {}, None),
    "Q4_0": (2, 2, 32, 18, {1: f16(-8)}, None), "Q4_1": (3, 3, 32, 20, {1: f16(-8), 3: f16(-5, 0x80)}, None),
    "Q5_0": (6, 8, 32, 22, {1: f16(-9)}, None), "Q5_1": (7, 9, 32, 24, {1: f16(-9), 3: f16(-5, 0x80)}, None),
    "Q8_0": (8, 7, 32, 34, {1: f16(-12)}, None),
    "Q2_K": (10, 10, 256, 84, {81: f16(-9), 83: f16(-8)}, "IQ4_NL"), "Q3_K": (11, 11, 256, 110, {109: f16(-11)}, "IQ4_NL"),
    "Q4_K": (12, 14, 256, 144, {1: f16(-13), 3: f16(-10)}, "Q5_0"), "Q5_K": (13, 16, 256, 176, {1: f16(-14), 3: f16(-10)}, "Q5_1"),
    "Q6_K": (14, 18, 256, 210, {209: f16(-16)}, "Q8_0"),
    "IQ4_NL": (20, 25, 32, 18, {1: f16(-12)}, None), "IQ4_XS": (23, 30, 256, 136, {1: f16(-16)}, "IQ4_NL"),
    "IQ3_XXS": (18, 23, 256, 98, {1: f16(-12)}, "IQ4_NL"), "IQ3_S": (21, 26, 256, 110, {1: f16(-12)}, "IQ4_NL"),
    "IQ2_XXS": (16, 19, 256, 66, {1: f16(-11)}, "IQ4_NL"), "IQ2_XS": (17, 20, 256, 74, {1: f16(-11)}, "IQ4_NL"),
    "IQ2_S": (22, 28, 256, 82, {1: f16(-11)}, "IQ4_NL"), "IQ1_S": (19, 24, 256, 50, {1: f16(-8)}, "IQ4_NL"),
    "IQ1_M": (29, 31, 256, 56, {53: 0xC0, 55: 0x10}, "IQ4_NL"),        # the scale's digits stand in the words of factors
    "TQ1_0": (34, 36, 256, 54, {53: f16(-6)}, "Q4_0"), "TQ2_0": (35, 37, 256, 66, {65: f16(-6)}, "Q4_0"),
    "Q1_0": (41, 40, 128, 18, {1: f16(-6)}, "Q8_0"), "Q2_0": (42, 41, 64, 18, {1: f16(-6)}, "Q8_0"),
    "IQ2_K": (137, 137, 256, 76, {1: f16(-10)}, "IQ4_NL"), "IQ3_K": (138, 138, 256, 110, {1: f16(-12)}, "IQ4_NL"),
    "IQ4_K": (139, 139, 256, 144, {1: f16(-16)}, "IQ4_NL"), "IQ5_K": (140, 140, 256, 176, {1: f16(-16)}, "IQ4_NL"),
    "IQ6_K": (141, 141, 256, 212, {1: f16(-18)}, "Q8_0"),
    "IQ4_KS": (144, 144, 256, 136, {}, "IQ4_NL"), "IQ4_KSS": (146, 146, 256, 128, {}, "IQ4_NL"),
    "IQ5_KS": (152, 152, 256, 168, {}, "IQ4_NL"), "IQ2_KS": (145, 145, 256, 70, {}, "IQ4_NL"),
    "IQ3_KS": (156, 156, 256, 102, {}, "IQ4_NL"), "IQ2_KL": (157, 155, 256, 86, {}, "IQ4_NL"),
    "IQ1_KT": (158, 156, 256, 56, {}, "IQ4_NL"), "IQ2_KT": (153, 151, 256, 68, {}, "IQ4_NL"),
    "IQ3_KT": (154, 152, 256, 100, {}, "IQ4_NL"), "IQ4_KT": (155, 153, 256, 128, {}, "IQ4_NL"),
    "IQ1_M_R4": (229, 231, 256, 56, {}, "IQ4_NL"),
    "MXFP4": (39, 38, 32, 17, {0: 120}, None), "NVFP4": (40, 39, 64, 36, {0: 2, 1: 2, 2: 2, 3: 2}, "Q4_0"),
}
# formats whose rows, or groups of so many rows, begin with one scale each
ROW_SCALES = {"IQ4_KS": struct.pack("<f", 2 ** -19), "IQ4_KSS": struct.pack("<f", 2 ** -19), "IQ5_KS": struct.pack("<f", 2 ** -19),
              "IQ2_KS": struct.pack("<e", 2 ** -13), "IQ3_KS": struct.pack("<e", 2 ** -14),
              "IQ2_KL": struct.pack("<e", 2 ** -15), "IQ1_KT": struct.pack("<f", 2 ** -19), "IQ2_KT": struct.pack("<f", 2 ** -19),
              "IQ3_KT": struct.pack("<f", 2 ** -15), "IQ4_KT": struct.pack("<f", 2 ** -18), "IQ1_M_R4": struct.pack("<e", 2 ** -8)}
GROUPS = {"IQ1_M_R4": 4}
MIXES = {"Q4_K_M": ("Q4_K", "Q6_K", 15), "Q5_K_M": ("Q5_K", "Q6_K", 17), "Q3_K_M": ("Q3_K", "Q5_K", 12)}
CHUNK = 1 << 22                    # bytes made at a time, about


# ---- numbers -------------------------------------------------------------------------------------------------------------
TABLE_F16 = bytes((b & 0x83) | (15 - 5 - (b >> 2 & 3)) << 2 for b in range(256))
TABLE_BF16 = bytes((b & 0x80) | 0x3C for b in range(256))


def blocks(rng, fmt, n):
    """n random blocks of a format."""
    _, _, _, size, fixed, _ = FORMATS[fmt]
    data = bytearray(rng.randbytes(n * size))
    if fmt == "F16":
        data[1::2] = data[1::2].translate(TABLE_F16)
    elif fmt == "BF16":
        data[1::2] = data[1::2].translate(TABLE_BF16)
    elif fmt == "F32":
        data[3::4] = data[3::4].translate(TABLE_BF16)
    elif fmt == "IQ1_M":
        for at, high in fixed.items():
            data[at::size] = data[at::size].translate(bytes((b & 15) | high for b in range(256)))
    else:
        for at, byte in fixed.items():
            data[at::size] = bytes([byte]) * n
    return data


def ids(rng, used, rows, experts):
    return b"".join(struct.pack(f"<{used}i", *rng.sample(range(experts), used)) for _ in range(rows))


def around(rng, n, mean, spread):
    return struct.pack(f"<{n}f", *(mean + spread * (2 * rng.random() - 1) for _ in range(n)))


# ---- shapes --------------------------------------------------------------------------------------------------------------
class Shape:
    """Metadata and tensors of one file: what a function of SHAPES fills in."""

    def __init__(self, arch, a):
        self.arch, self.small, self.type, self.head = arch, a.small, a.type, a.head or a.type
        self.kv, self.tensors, self.tokenizer = {}, [], "gpt2"
        self.asked_layers, self.asked_vocab, self.asked_context, self.experts = a.layers, a.vocab, a.context, a.experts

    def sizes(self, layers, vocab, context, hidden, small_hidden):
        self.layers = self.asked_layers or (min(layers, 6) if self.small else layers)
        self.vocab = self.asked_vocab or (300 if self.small else vocab)
        self.hidden = small_hidden if self.small else hidden
        self.set(context_length=self.asked_context or context, embedding_length=self.hidden, block_count=self.layers, vocab_size=self.vocab)

    def pick(self, full, small):
        return small if self.small else full

    def routing(self, full, small):
        """(experts, chosen of them)"""
        experts, used = self.pick(full, small)
        return self.experts or experts, used

    def set(self, **values):
        for key, value in values.items():
            self.kv[f"{self.arch}.{key.replace('__', '.')}"] = value

    def weight_type(self, name, cols, layer):
        word = self.head if name.startswith("output.") else self.type
        expert = "_exps." in name
        if word in MIXES:
            base, more, _ = MIXES[word]
            n = self.layers
            many = layer is not None and (layer < n // 8 or layer >= 7 * n // 8 or (layer - n // 8) % 3 == 2)
            word = "Q6_K" if name.startswith("output.") else more if many and ("attn_v." in name or "ffn_down" in name) else base
        if word in ("MXFP4", "NVFP4") and not expert:
            word = "Q8_0"
        while cols % FORMATS[word][2]:
            word = FORMATS[word][5] or "F16"
        return word

    def weight(self, name, rows, cols, experts=0, layer=None, fmt=None):
        name += ".weight"
        self.tensors.append((name, (cols, rows) + ((experts,) if experts else ()), fmt or self.weight_type(name, cols, layer), None))

    def floats(self, name, n, mean=0.0, spread=0.02):
        dims = n if isinstance(n, tuple) else (n,)
        self.tensors.append((name, dims, "F32", (mean, spread)))

    def chosen(self, name, used, rows, experts):
        """The experts of every token, `used` different ones."""
        self.tensors.append((name, (used, rows), "I32", experts))

    def norm(self, name, n, bias=False):
        self.floats(name + ".weight", n, 1.0, 0.1)
        if bias:
            self.floats(name + ".bias", n)

    def ends(self, tied=False, bias=False, norm="output_norm"):
        self.weight("token_embd", self.vocab, self.hidden)
        self.norm(norm, self.hidden, bias)
        if not tied:
            self.weight("output", self.vocab, self.hidden)
            if bias:
                self.floats("output.bias", self.vocab)

    def attention(self, l, heads, kv, dim, bias=False, head_norms=False, gated=False):
        p, d = f"blk.{l}.", self.hidden
        for n, rows, cols in (("attn_q", heads * dim * (2 if gated else 1), d), ("attn_k", kv * dim, d), ("attn_v", kv * dim, d),
                              ("attn_output", d, heads * dim)):
            self.weight(p + n, rows, cols, layer=l)
            if bias:
                self.floats(p + n + ".bias", rows)
        if head_norms:
            self.norm(p + "attn_q_norm", dim)
            self.norm(p + "attn_k_norm", dim)

    def feed_forward(self, l, width, kind="", experts=0, bias=False):
        for n, rows, cols in (("gate", width, self.hidden), ("up", width, self.hidden), ("down", self.hidden, width)):
            self.weight(f"blk.{l}.ffn_{n}{kind}", rows, cols, experts, layer=l)
            if bias:
                self.floats(f"blk.{l}.ffn_{n}{kind}.bias", (rows, experts))

    def routed(self, l, experts, width, bias=False):
        self.weight(f"blk.{l}.ffn_gate_inp", experts, self.hidden, fmt="F32")
        if bias:
            self.floats(f"blk.{l}.ffn_gate_inp.bias", experts)
        self.feed_forward(l, width, "_exps", experts, bias)


def phi_tiny(a, arch="phimoe"):
    s = Shape(arch, a)
    s.tokenizer = "llama"
    own = arch == "phimoe"
    s.sizes(32, 32064, 4096, 4096, 256)
    heads, kv, dim, width = s.pick((16, 4, 128, 448), (4, 2, 64, 96))
    experts, used = s.routing((16, 2), (4, 2))
    if not own and s.small:
        heads = kv = 4
    s.set(feed_forward_length=width, attention__head_count=heads, attention__head_count_kv=kv, attention__key_length=dim,
          attention__value_length=dim, rope__dimension_count=dim, rope__freq_base=10000.0, attention__layer_norm_rms_epsilon=1e-5,
          attention__layer_norm_epsilon=1e-5, expert_count=experts, expert_used_count=used)
    if own:
        s.set(rope__scaling__original_context_length=4096)
    s.ends(bias=own)
    for l in range(s.layers):
        s.norm(f"blk.{l}.attn_norm", s.hidden, own)
        s.norm(f"blk.{l}.ffn_norm", s.hidden, own)
        s.attention(l, heads, kv, dim)
        if own:
            for n, rows in (("attn_q", heads * dim), ("attn_k", kv * dim), ("attn_v", kv * dim), ("attn_output", s.hidden)):
                s.floats(f"blk.{l}.{n}.bias", rows)
        s.routed(l, experts, width)
    return s


def qwen3_30b(a):
    s = Shape("qwen3moe", a)
    s.sizes(48, 151936, 40960, 2048, 256)
    heads, kv, dim, width = s.pick((32, 4, 128, 768), (4, 2, 64, 256))
    experts, used = s.routing((128, 8), (8, 4))
    s.set(feed_forward_length=s.pick(6144, 512), expert_feed_forward_length=width, attention__head_count=heads, attention__head_count_kv=kv,
          attention__key_length=dim, attention__value_length=dim, rope__freq_base=1e6, attention__layer_norm_rms_epsilon=1e-6,
          expert_count=experts, expert_used_count=used)
    s.ends()
    for l in range(s.layers):
        s.norm(f"blk.{l}.attn_norm", s.hidden)
        s.norm(f"blk.{l}.ffn_norm", s.hidden)
        s.attention(l, heads, kv, dim, head_norms=True)
        s.routed(l, experts, width)
    return s


def gpt_oss_20b(a):
    s = Shape("gpt-oss", a)
    s.sizes(24, 201088, 131072, 2880, 192)
    heads, kv, dim, width = s.pick((64, 8, 64, 2880), (4, 2, 64, 192))
    experts, used = s.routing((32, 4), (8, 4))
    s.set(feed_forward_length=width, expert_feed_forward_length=width, attention__head_count=heads, attention__head_count_kv=kv,
          attention__key_length=dim, attention__value_length=dim, rope__freq_base=150000.0, attention__layer_norm_rms_epsilon=1e-5,
          rope__scaling__type="yarn", rope__scaling__factor=32.0, rope__scaling__original_context_length=4096,
          rope__scaling__yarn_beta_fast=32.0, rope__scaling__yarn_beta_slow=1.0, attention__sliding_window=128, expert_count=experts,
          expert_used_count=used)
    s.ends()
    for l in range(s.layers):
        s.norm(f"blk.{l}.attn_norm", s.hidden)
        s.norm(f"blk.{l}.post_attention_norm", s.hidden)
        s.attention(l, heads, kv, dim, bias=True)
        s.floats(f"blk.{l}.attn_sinks.weight", heads)
        s.routed(l, experts, width, bias=True)
    return s


def lfm2_8b(a):
    s = Shape("lfm2moe", a)
    s.sizes(24, 65536, 128000, 2048, 256)
    heads, kv, dim, width, dense = s.pick((32, 8, 64, 1792, 7168), (4, 2, 64, 256, 512))
    experts, used = s.routing((32, 4), (8, 4))
    attends = [l in (2, 6, 10, 14, 18, 21) for l in range(s.layers)]
    s.set(feed_forward_length=dense, expert_feed_forward_length=width, attention__head_count=heads,
          attention__head_count_kv=[kv if x else 0 for x in attends], rope__freq_base=1e6, attention__layer_norm_rms_epsilon=1e-5,
          expert_count=experts, expert_used_count=used, leading_dense_block_count=2, expert_gating_func=2, shortconv__l_cache=3)
    s.ends(tied=True, norm="token_embd_norm")
    for l in range(s.layers):
        p = f"blk.{l}."
        s.norm(p + "attn_norm", s.hidden)
        s.norm(p + "ffn_norm", s.hidden)
        if attends[l]:
            s.attention(l, heads, kv, dim, head_norms=True)
        else:
            s.floats(p + "shortconv.conv.weight", (3, s.hidden), 0.0, 0.5)
            s.weight(p + "shortconv.in_proj", 3 * s.hidden, s.hidden, layer=l)
            s.weight(p + "shortconv.out_proj", s.hidden, s.hidden, layer=l)
        if l < 2:
            s.feed_forward(l, dense)
        else:
            s.routed(l, experts, width)
            s.floats(p + "exp_probs_b.bias", experts)
    return s


def delta_net(s, l, keys, values, dim):
    """A gated delta net of so many key and value heads."""
    p, d, inner = f"blk.{l}.", s.hidden, values * dim
    width = 2 * keys * dim + inner
    s.weight(p + "attn_qkv", width, d, layer=l)
    s.weight(p + "attn_gate", inner, d, layer=l)
    s.weight(p + "ssm_alpha", values, d, layer=l)
    s.weight(p + "ssm_beta", values, d, layer=l)
    s.weight(p + "ssm_out", d, inner, layer=l)
    s.floats(p + "ssm_conv1d.weight", (4, width), 0.0, 0.5)
    s.floats(p + "ssm_a", values, -1.0, 0.5)
    s.floats(p + "ssm_dt.bias", values, 0.0, 0.5)
    s.norm(p + "ssm_norm", dim)


def qwen35_35b(a):
    s = Shape("qwen35moe", a)
    s.sizes(40, 248320, 262144, 2048, 256)
    heads, kv, dim, width = s.pick((16, 2, 256, 512), (4, 2, 64, 256))
    experts, used = s.routing((256, 8), (8, 4))
    keys, values, state = s.pick((16, 32, 128), (2, 4, 32))
    s.set(attention__head_count=heads, attention__head_count_kv=kv, attention__key_length=dim, attention__value_length=dim,
          rope__dimension_sections=[dim // 4 * 11 // 64, dim // 4 * 11 // 64, dim // 8 - 2 * (dim // 4 * 11 // 64), 0],
          rope__dimension_count=dim // 4, rope__freq_base=1e7, attention__layer_norm_rms_epsilon=1e-6, expert_count=experts,
          expert_used_count=used, expert_feed_forward_length=width, expert_shared_feed_forward_length=width, ssm__conv_kernel=4,
          ssm__state_size=state, ssm__group_count=keys, ssm__time_step_rank=values, ssm__inner_size=values * state,
          full_attention_interval=4)
    s.ends()
    for l in range(s.layers):
        p = f"blk.{l}."
        s.norm(p + "attn_norm", s.hidden)
        s.norm(p + "post_attention_norm", s.hidden)
        if l % 4 == 3:
            s.attention(l, heads, kv, dim, head_norms=True, gated=True)
        else:
            delta_net(s, l, keys, values, state)
        s.routed(l, experts, width)
        s.feed_forward(l, width, "_shexp")
        s.floats(p + "ffn_gate_inp_shexp.weight", s.hidden)
    return s


def deepseek_v2_lite(a):
    s = Shape("deepseek2", a)
    s.sizes(27, 102400, 163840, 2048, 256)
    heads, rank, nope, rope, v = s.pick((16, 512, 128, 64, 128), (4, 64, 32, 32, 32))
    experts, used = s.routing((64, 6), (8, 4))
    width, dense = s.pick((1408, 10944), (256, 512))
    s.set(feed_forward_length=dense, expert_feed_forward_length=width, attention__head_count=heads, attention__head_count_kv=1,
          attention__key_length=rank + rope, attention__value_length=rank, attention__key_length_mla=nope + rope,
          attention__value_length_mla=v, attention__kv_lora_rank=rank, rope__dimension_count=rope, rope__freq_base=10000.0,
          rope__scaling__type="yarn", rope__scaling__factor=40.0, rope__scaling__original_context_length=4096,
          rope__scaling__yarn_beta_fast=32.0, rope__scaling__yarn_beta_slow=1.0, rope__scaling__yarn_log_multiplier=0.0707,
          attention__layer_norm_rms_epsilon=1e-6, expert_count=experts, expert_used_count=used, expert_shared_count=2,
          leading_dense_block_count=1, expert_weights_scale=1.0, expert_gating_func=1)
    s.ends()
    for l in range(s.layers):
        p = f"blk.{l}."
        s.norm(p + "attn_norm", s.hidden)
        s.norm(p + "ffn_norm", s.hidden)
        s.weight(p + "attn_q", heads * (nope + rope), s.hidden, layer=l)
        s.weight(p + "attn_kv_a_mqa", rank + rope, s.hidden, layer=l)
        s.norm(p + "attn_kv_a_norm", rank)
        s.weight(p + "attn_k_b", rank, nope, heads, layer=l)
        s.weight(p + "attn_v_b", v, rank, heads, layer=l)
        s.weight(p + "attn_output", s.hidden, heads * v, layer=l)
        if l < 1:
            s.feed_forward(l, dense)
        else:
            s.routed(l, experts, width)
            s.feed_forward(l, 2 * width, "_shexp")
    return s


SHAPES = {
    "phi-tiny": phi_tiny, "phi-tiny-llama": lambda a: phi_tiny(a, "llama"), "qwen3-30b-a3b": qwen3_30b, "gpt-oss-20b": gpt_oss_20b,
    "lfm2-8b-a1b": lfm2_8b, "qwen3.5-35b-a3b": qwen35_35b, "deepseek-v2-lite": deepseek_v2_lite,
    "deepseek_v4": lambda a: synthetic_hyper.deepseek_v4(Shape, a), "qwen4_exp": lambda a: synthetic_hyper.qwen4_exp(Shape, a, delta_net),
    **{name: lambda a, name=name: synthetic_families.build(Shape, name, a) for name in synthetic_families.FAMILIES},
    **{name: lambda a, name=name: synthetic_dense.build(Shape, name, a, delta_net) for name in synthetic_dense.FAMILIES},
}


# ---- words ---------------------------------------------------------------------------------------------------------------
def sentencepiece_words(n):
    words = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)] + [(f"<0x{b:02X}>", 0.0, 6) for b in range(256)]
    words = words[:max(4, n - 2)] + [("<|endoftext|>", 0.0, 3), ("\u2581", -999.0, 1)]
    return (words + [(f"\u2581w{i:06d}", -1000.0 - i, 1) for i in range(n)])[:n]


def byte_level_words(n):
    shown = [chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255 else None for b in range(256)]
    spare = iter(range(256, 512))
    words = [c or chr(next(spare)) for c in shown] + ["<|begin|>", "<|end|>", "\u0120t", "he", "\u0120the"]
    kinds = [1] * 256 + [3, 3] + [1] * 3
    more = [f"\u0120w{i:06d}" for i in range(n)]
    return list(zip((words + more)[:n], [0.0] * n, (kinds + [1] * n)[:n]))


def tokenizer(s):
    sp = s.tokenizer == "llama"
    words = (sentencepiece_words if sp else byte_level_words)(s.vocab)
    kv = {"tokenizer.ggml.model": s.tokenizer, "tokenizer.ggml.pre": "default" if sp else "qwen2", "tokenizer.ggml.tokens": [w for w, _, _ in words],
          "tokenizer.ggml.token_type": [k for _, _, k in words], "tokenizer.ggml.bos_token_id": 1 if sp else 256,
          "tokenizer.ggml.eos_token_id": 2 if sp else 257, "tokenizer.ggml.add_bos_token": False}
    if sp:
        kv["tokenizer.ggml.scores"] = [x for _, x, _ in words]
        kv["tokenizer.ggml.unknown_token_id"] = 0
    else:
        kv["tokenizer.ggml.merges"] = ["\u0120 t", "h e", "\u0120t he"]
    return kv


# ---- the file ------------------------------------------------------------------------------------------------------------
def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(v):
    """Type id and bytes."""
    if isinstance(v, bool):
        return 7, struct.pack("<?", v)
    if isinstance(v, int):
        return 4, struct.pack("<I", v)
    if isinstance(v, float):
        return 6, struct.pack("<f", v)
    if isinstance(v, str):
        return 8, text(v)
    if isinstance(v, synthetic_hyper.Wide):
        return 9, struct.pack(f"<IQ{len(v)}Q", 10, len(v), *v)
    kind = 8 if isinstance(v[0], str) else 7 if isinstance(v[0], bool) else 6 if isinstance(v[0], float) else 5
    body = b"".join(map(text, v)) if kind == 8 else struct.pack(f"<{len(v)}{ {5: 'i', 6: 'f', 7: '?'}[kind] }", *v)
    return 9, struct.pack("<IQ", kind, len(v)) + body


def tensor_bytes(dims, fmt):
    _, _, per, size, _, _ = FORMATS[fmt]
    return math.prod(dims) // per * size + math.prod(dims[1:]) * len(ROW_SCALES.get(fmt, b""))


def write(s, path, name):
    kv = {"general.architecture": s.arch, "general.type": "model", "general.name": name, "general.quantization_version": 2,
          "general.file_type": MIXES[s.type][2] if s.type in MIXES else FORMATS[s.type][1], "general.alignment": 32, **s.kv, **tokenizer(s)}
    head, at = [struct.pack("<4sIQQ", b"GGUF", 3, len(s.tensors), len(kv))], 0
    for key, v in kv.items():
        kind, body = value(v)
        head.append(text(key) + struct.pack("<I", kind) + body)
    for n, dims, fmt, _ in s.tensors:
        head.append(text(n) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", FORMATS[fmt][0], at))
        at += (tensor_bytes(dims, fmt) + 31) // 32 * 32
    head = b"".join(head)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32))
        for n, dims, fmt, spread in s.tensors:
            rng = random.Random(n)
            left = math.prod(dims) // FORMATS[fmt][2]
            if fmt == "I32":
                f.write(ids(rng, *dims, spread))
            elif spread:
                f.write(around(rng, left, *spread))
            group = GROUPS.get(fmt, 1)
            for _ in range(math.prod(dims[1:]) // group if fmt in ROW_SCALES else 0):
                f.write(ROW_SCALES[fmt] * group + blocks(rng, fmt, dims[0] // FORMATS[fmt][2] * group))
            while left and not spread and fmt not in ROW_SCALES:
                count = min(left, CHUNK // FORMATS[fmt][3])
                f.write(blocks(rng, fmt, count))
                left -= count
            f.write(b"\0" * (-tensor_bytes(dims, fmt) % 32))
    return at


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    types = [t for t in FORMATS if t != "I32"]
    p.add_argument("shape", choices=SHAPES)
    p.add_argument("out")
    p.add_argument("--type", default="Q4_0", choices=[*types, *MIXES])
    p.add_argument("--head", choices=types)
    p.add_argument("--layers", type=int, default=0)
    p.add_argument("--experts", type=int, default=0)
    p.add_argument("--vocab", type=int, default=0)
    p.add_argument("--context", type=int, default=0)
    p.add_argument("--small", action="store_true")
    a = p.parse_args()
    if a.vocab and a.vocab < 300:
        p.error("--vocab: at least 300")
    s = SHAPES[a.shape](a)
    total = write(s, a.out, f"{a.shape}-random")
    print(f"{a.out}: {a.shape} {a.type}, {s.layers} layers, {sum(math.prod(d) for _, d, _, _ in s.tensors) / 1e6:.0f} M weights, {total / 1e9:.2f} GB")


if __name__ == "__main__":
    sys.exit(main())
