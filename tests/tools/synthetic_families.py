"""Shapes of families of routed experts for synthetic_gguf.py: what llama.cpp's converter would write of the published models.

A row of FAMILIES is a model: its widths as published (cohere2_moe, granite_swa, bailing_hybrid: of a model of that size), its experts and
layers all of them: --experts and --layers say how many a file gets. What differs from plain attention and SwiGLU experts behind RMS norms
is a word of its row, which `build` reads.
"""

FAMILIES = {
    "mixtral": dict(arch="llama", of="Mixtral 8x7B", layers=32, hidden=4096, heads=32, kv=8, experts=8, used=2, width=14336, vocab=32000),
    "olmoe": dict(arch="olmoe", of="OLMoE 1B-7B", layers=16, hidden=2048, heads=16, kv=16, experts=64, used=8, width=1024, vocab=50304, norms_of="whole"),
    "qwen2_moe": dict(arch="qwen2moe", of="Qwen1.5-MoE-A2.7B", layers=24, hidden=2048, heads=16, kv=16, experts=60, used=4, width=1408, vocab=151936,
                      bias=True, shared=5632, shared_gate=True, own_shared=True),
    "ernie4_5_moe": dict(arch="ernie4_5-moe", of="ERNIE 4.5 21B-A3B", layers=28, hidden=2560, heads=20, kv=4, experts=64, used=6, width=1536, vocab=103424,
                         lead=1, dense=12288, shared=3072, count=2, tied=True, correction=True),
    "glm4_moe": dict(arch="glm4moe", of="GLM-4.5-Air", layers=46, hidden=4096, heads=96, kv=8, experts=128, used=8, width=1408, vocab=151552, lead=1, dense=10944,
                     shared=1408, bias=True, rotary=64, sigmoid=True, scale=1.0, post_norm=True),
    "solar_open": dict(arch="glm4moe", of="Solar Open 100B", layers=48, hidden=4096, heads=64, kv=8, experts=128, used=8, width=1280, vocab=196608, shared=1280,
                       sigmoid=True, scale=1.0, post_norm=True),
    "glm4_moe_lite": dict(arch="deepseek2", of="GLM-4.7-Flash", layers=47, hidden=2048, heads=20, experts=64, used=4, width=1536, vocab=154880, lead=1, dense=10240,
                          shared=1536, sigmoid=True, scale=1.8, latent=(768, 512, 192, 64, 256)),
    "deepseek_v3": dict(arch="deepseek2", of="Kimi K2", layers=61, hidden=7168, heads=64, experts=384, used=8, width=2048, vocab=163840, lead=1, dense=18432,
                        shared=2048, sigmoid=True, scale=2.827, latent=(1536, 512, 128, 64, 128)),
    "deepseek": dict(arch="deepseek", of="DeepSeekMoE 16B", layers=28, hidden=2048, heads=16, kv=16, experts=64, used=6, width=1408, vocab=102400, lead=1, dense=10944,
                     shared=2816, count=2, scale=1.0, renormalised=False),
    "bailing_moe": dict(arch="bailingmoe", of="Ling-lite 1.5", layers=28, hidden=2048, heads=16, kv=4, experts=64, used=6, width=1408, vocab=126464, shared=2816, count=2,
                        scale=1.0),
    "bailing_moe_v2": dict(arch="bailingmoe2", of="Ling-mini 2.0", layers=20, hidden=2048, heads=16, kv=4, experts=256, used=8, width=512, vocab=157184, lead=1,
                           dense=5120, shared=512, sigmoid=True, scale=2.5, groups=(8, 4), rotary=64, fused=True, norms_of="head"),
    "bailing_hybrid": dict(arch="bailingmoe3", of="Ling 3", layers=32, hidden=2048, heads=16, experts=256, used=8, width=512, vocab=157184, lead=1, dense=5120, shared=512,
                           sigmoid=True, scale=2.5, groups=(8, 4), latent=(0, 512, 128, 64, 128), delta=128, plain_gates=True),
    "kimi_linear": dict(arch="kimi-linear", of="Kimi Linear 48B-A3B", layers=27, hidden=2304, heads=32, experts=256, used=8, width=1024, vocab=163840, lead=1,
                        dense=9216, shared=1024, sigmoid=True, scale=2.446, latent=(0, 512, 128, 64, 128), delta=128),
    "mistral4": dict(arch="mistral4", of="Mistral Small 4", layers=36, hidden=4096, heads=32, experts=128, used=4, width=2048, vocab=131072, shared=2048, scale=1.0,
                     latent=(1024, 256, 64, 64, 128), gate_up=True),
    "granitemoe": dict(arch="granitemoe", of="Granite 3 3B-A800M", layers=32, hidden=1536, heads=24, kv=8, dim=64, experts=40, used=8, width=512, vocab=49155, tied=True,
                       granite=True),
    "granite_swa": dict(arch="granite_swa", of="Granite Swash", layers=32, hidden=2560, heads=20, kv=4, experts=64, used=8, width=512, vocab=100352, shared=1024,
                        granite=True, sinks=True, window=(128, 4), gate_up_shared=True),
    "granitemoehybrid": dict(arch="granitehybrid", of="Granite 4 H Tiny", layers=40, hidden=1536, heads=12, kv=4, experts=64, used=6, width=512, vocab=100352,
                             shared=1024, tied=True, granite=True, mamba=(3072, 128, 48, 1), attends=(5, 10)),
    "nemotron_h": dict(arch="nemotron_h_moe", of="Nemotron 3 Nano 30B-A3B", layers=52, hidden=2688, heads=32, kv=2, experts=128, used=6, width=1856, vocab=131072,
                       shared=3712, sigmoid=True, scale=2.5, mamba=(4096, 128, 64, 8), single="MEMEM*E"),
    "afmoe": dict(arch="afmoe", of="Trinity Mini", layers=32, hidden=2048, heads=32, kv=4, experts=128, used=8, width=1024, vocab=200192, lead=2, dense=6144, shared=1024,
                  sigmoid=True, scale=2.826, norms_of="head", gate="elements", sandwich=True, window=(2048, 4)),
    "laguna": dict(arch="laguna", of="Laguna XS.2", layers=40, hidden=2048, heads=48, heads_swa=64, kv=8, experts=256, used=8, width=512, vocab=100352, lead=1, dense=8192,
                   shared=512, own_shared=True, sigmoid=True, scale=2.5, norms_of="head", gate="heads", window=(512, 4), full_first=True, rotary=64),
    "hy_v3": dict(arch="hy_v3", of="Hy3", layers=80, hidden=4096, heads=64, kv=8, experts=192, used=8, width=1536, vocab=120832, lead=1, dense=13312, shared=1536,
                  sigmoid=True, scale=2.826, norms_of="head"),
    "cohere2_moe": dict(arch="cohere2moe", of="Cohere 2 MoE 30B-A3B", layers=48, hidden=2048, heads=32, kv=4, experts=128, used=8, width=768, vocab=256000, lead=1,
                        dense=6144, shared=768, sigmoid=True, parallel=True, window=(4096, 4), full_first=True),
    "exaone_moe": dict(arch="exaone-moe", of="K-EXAONE 236B-A23B", layers=48, hidden=6144, heads=64, kv=8, experts=128, used=8, width=2048, vocab=153600, lead=1,
                       dense=18432, shared=2048, sigmoid=True, scale=2.5, norms_of="head", window=(128, 4)),
    "mellum": dict(arch="mellum", of="Mellum 2 12B-A2.5B", layers=28, hidden=2304, heads=32, kv=4, experts=64, used=8, width=896, vocab=98304, norms_of="head",
                   window=(1024, 4)),
    "dots1": dict(arch="dots1", of="dots.llm1", layers=62, hidden=4096, heads=32, kv=32, experts=128, used=6, width=1408, vocab=152064, lead=1, dense=10944, shared=2816,
                  count=2, sigmoid=True, scale=2.5, norms_of="head"),
    "hunyuan_v1_moe": dict(arch="hunyuan-moe", of="Hunyuan-A13B", layers=32, hidden=4096, heads=32, kv=8, experts=64, used=8, width=3072, vocab=128167, shared=3072,
                           norms_of="head"),
    "minimax_m2": dict(arch="minimax-m2", of="MiniMax M2", layers=62, hidden=3072, heads=48, kv=8, experts=256, used=8, width=1536, vocab=200064, sigmoid=True, rotary=64,
                       norms_of="whole"),
    "qwen3_vl_moe": dict(arch="qwen3vlmoe", of="Qwen3-VL 30B-A3B", layers=48, hidden=2048, heads=32, kv=4, experts=128, used=8, width=768, vocab=151936, norms_of="head",
                         sections=3),
    "qwen3_next": dict(arch="qwen3next", of="Qwen3-Next 80B-A3B", layers=48, hidden=2048, heads=16, kv=2, dim=256, experts=512, used=10, width=512, vocab=151936,
                       shared=512, own_shared=True, shared_gate=True, norms_of="head", rotary=64, net=(16, 32, 128), post_norm=True),
    "smallthinker": dict(arch="smallthinker", of="SmallThinker 21B-A3B", layers=52, hidden=2560, heads=28, kv=4, experts=64, used=6, width=768, vocab=151936, sigmoid=True,
                         unbiased=True, window=(4096, 4), full_first=True, patternless=True),
    "maple": dict(arch="maple", of="Maple 20B", layers=24, hidden=2048, heads=32, kv=4, experts=128, used=8, width=1024, vocab=151936, norms_of="head", rotary=64,
                  window=(512, 4), clamp=7.0),
    "llama4": dict(arch="llama4", of="Llama 4 Scout", layers=48, hidden=5120, heads=40, kv=8, experts=16, used=1, width=8192, vocab=202048, shared=8192, own_shared=True,
                   unbiased=True, window=(8192, 4), patternless=True, every=1),
    "jamba": dict(arch="jamba", of="Jamba Mini 1.7", layers=32, hidden=4096, heads=32, kv=8, experts=16, used=2, width=14336, vocab=65536, mamba1=(8192, 16, 256),
                  attends=(4, 8), odd=True),
    "step3p5": dict(arch="step35", of="Step 3.5 Flash", layers=45, hidden=4096, heads=64, heads_swa=96, kv=8, experts=288, used=8, width=1280, vocab=128896, lead=1,
                    dense=11264, shared=1280, own_shared=True, sigmoid=True, scale=3.0, norms_of="head", gate="heads", window=(512, 4), full_first=True),
    "mimo_v2_flash": dict(arch="mimo2", of="MiMo V2 Flash", layers=48, hidden=4096, heads=64, kv=4, kv_swa=8, dim=192, values=128, experts=256, used=8, width=2048,
                          vocab=152576, lead=1, dense=16384, sigmoid=True, rotary=64, window=(128, 6), full_first=True, sinks_swa=True),
    "deepseek_v32": dict(arch="deepseek32", of="DeepSeek V3.2", layers=61, hidden=7168, heads=128, experts=256, used=8, width=2048, vocab=129280, lead=3, dense=18432,
                         shared=2048, sigmoid=True, scale=2.5, groups=(8, 4), latent=(1536, 512, 128, 64, 128), indexer=(64, 128, 2048)),
    "glm_moe_dsa": dict(arch="glm-dsa", of="GLM 5", layers=78, hidden=6144, heads=64, experts=256, used=8, width=2048, vocab=154880, lead=3, dense=12288, shared=2048,
                        sigmoid=True, scale=2.5, latent=(2048, 512, 192, 64, 256), indexer=(32, 128, 2048), every_chooses=4),
    "longcat_flash": dict(arch="longcat-flash", of="LongCat Flash", layers=56, hidden=6144, heads=64, experts=512, used=12, width=2048, vocab=131072, dense=12288,
                          identities=256, scale=6.0, renormalised=False, latent=(1536, 512, 128, 64, 128)),
    "grovemoe": dict(arch="grovemoe", of="GroveMoE 33B-A3B", layers=48, hidden=2048, heads=32, kv=4, experts=128, used=8, width=768, vocab=151936, norms_of="head",
                     adjugates=(2, 128, 0.05)),
    "gemma4": dict(arch="gemma4", of="Gemma 4 26B-A4B", layers=30, hidden=2816, heads=16, experts=128, used=8, width=704, vocab=262144, dense=2112, gemma=True,
                   window=(1024, 6)),
}
SMALL = dict(hidden=256, heads=4, kv=2, dim=64, experts=8, used=4, width=256, dense=512)


def shrunk(t):
    """The same kinds of layers, narrow and few."""
    t = dict(t, **{k: v for k, v in SMALL.items() if k in t})
    if t.get("norms_of") == "whole" or t["arch"] == "dots1":  # llama.cpp opens no others
        t["kv"] = t["heads"]
    count = t.get("count", 1)
    for word, small in (("shared", 256 * count), ("heads_swa", 8), ("rotary", 32), ("latent", (64 if t.get("latent", (0,))[0] else 0, 64, 32, 32, 32)),
                        ("mamba1", (512, 16, 32)), ("values", 32), ("kv_swa", 4), ("delta", 32), ("mamba", (512, 32, 8, t.get("mamba", (0,) * 4)[3] and min(2, t["mamba"][3]))), ("net", (2, 4, 32)),
                        ("groups", (4, 2)), ("attends", (1, 3)), ("indexer", (4, 64, 3)), ("identities", 3), ("adjugates", (2, 64, 0.05))):
        if word in t:
            t[word] = small
    return t


def counts(s, t):
    s.set(expert_count=t["experts"], expert_used_count=t["used"], expert_feed_forward_length=t["width"])
    if "shared" in t:
        s.set(expert_shared_feed_forward_length=t["shared"])
        if not t.get("own_shared"):
            s.set(expert_shared_count=t.get("count", 1))
    if t.get("sigmoid") or "scale" in t:
        s.set(expert_gating_func=2 if t.get("sigmoid") else 1, expert_weights_norm=t.get("renormalised", True))
    if "scale" in t:
        s.set(expert_weights_scale=float(t["scale"]))
    if "lead" in t or t["arch"] in ("bailingmoe", "glm4moe"):
        s.set(leading_dense_block_count=t.get("lead", 0))
    if t.get("correction") or "every" in t:
        s.set(interleave_moe_layer_step=1)
    if "clamp" in t:
        s.set(swiglu_clamp_exp=[t["clamp"]] * s.layers)
    if "identities" in t:
        s.set(expert_zero_count=t["identities"])
    if "adjugates" in t:
        group, width, scale = t["adjugates"]
        s.set(experts_per_group=group, expert_group_scale=scale, expert_chunk_feed_forward_length=width)
    if "groups" in t:
        s.set(expert_group_count=t["groups"][0], expert_group_used_count=t["groups"][1])


def heads_of(s, t):
    """Per layer: (query heads, kv heads, width of one), kv heads 0: no attention there; and what says so."""
    heads, kv, dim, n = t["heads"], t.get("kv", 1), t.get("dim", s.pick(128, 64)), s.layers
    out = [(heads, kv, dim)] * n
    full = [True] * n
    if "window" in t:
        width, every = t["window"]
        full = [(l % every == 0) if t.get("full_first") else (l % every == every - 1) for l in range(n)]
        s.set(attention__sliding_window=width)
        if not t.get("patternless"):
            s.set(attention__sliding_window_pattern=[not x for x in full])
    if "heads_swa" in t:
        out = [(heads if full[l] else t["heads_swa"], kv, dim) for l in range(n)]
        s.set(attention__head_count=[h for h, _, _ in out], rope__freq_base_swa=10000.0, rope__dimension_count_swa=dim)
    else:
        s.set(attention__head_count=heads)
    if t.get("gemma"):
        wide, narrow = s.pick((512, 256), (64, 32))
        out = [(heads, s.pick(2, 1), wide) if full[l] else (heads, s.pick(8, 2), narrow) for l in range(n)]
        s.set(attention__head_count_kv=[k for _, k, _ in out], attention__key_length=wide, attention__value_length=wide, attention__key_length_swa=narrow,
              attention__value_length_swa=narrow, rope__dimension_count=wide, rope__dimension_count_swa=narrow, rope__freq_base=1e6, rope__freq_base_swa=10000.0,
              attention__shared_kv_layers=0, embedding_length_per_layer_input=0, final_logit_softcapping=30.0)
        return out, full
    if "latent" in t:
        q, rank, nope, rope, v = t["latent"]
        s.set(attention__kv_lora_rank=rank, attention__key_length=rank + rope, attention__value_length=rank, attention__key_length_mla=nope + rope,
              attention__value_length_mla=v, rope__dimension_count=rope, rope__freq_base=10000.0)
        if q:
            s.set(attention__q_lora_rank=q)
        if "indexer" in t:
            index_heads, index_dim, top = t["indexer"]
            s.set(attention__indexer__head_count=index_heads, attention__indexer__key_length=index_dim, attention__indexer__top_k=top)
        if "every_chooses" in t:
            s.set(attention__indexer__types=[chooses(t, l) for l in range(n)])
    else:
        s.set(attention__key_length=dim, attention__value_length=t.get("values", dim), rope__dimension_count=t.get("rotary", dim), rope__freq_base=10000.0)
    if "sections" in t:
        half = dim // 2
        s.set(rope__dimension_sections=[half - 2 * (half * 5 // 16), half * 5 // 16, half * 5 // 16, 0], n_deepstack_layers=t["sections"])
    attends = [True] * n
    if "delta" in t:
        attends = [l % 4 == 3 for l in range(n)]
        s.set(kda__head_dim=t["delta"], ssm__conv_kernel=4)
        if t.get("plain_gates"):
            s.set(kda__safe_gate=True, kda__gate_lower_bound=-5.0)
    if "attends" in t:
        attends = [l % t["attends"][1] == t["attends"][0] for l in range(n)]
    if "single" in t:
        attends = [t["single"][l % len(t["single"])] == "*" for l in range(n)]
        s.set(feed_forward_length=[t["width"] if t["single"][l % len(t["single"])] == "E" else 0 for l in range(n)])
    if "kv_swa" in t:
        out = [(h, kv if full[l] else t["kv_swa"], d) for l, (h, _, d) in enumerate(out)]
        s.set(attention__head_count_kv=[k for _, k, _ in out], rope__freq_base_swa=10000.0, rope__dimension_count_swa=t["rotary"])
    elif all(attends):
        s.set(attention__head_count_kv=kv)
    else:
        out = [(h, k if attends[l] else 0, d) for l, (h, k, d) in enumerate(out)]
        s.set(attention__head_count_kv=[k for _, k, _ in out])
    if "net" in t:
        keys, values, state = t["net"]
        out = [(h, k if l % 4 == 3 else 0, d) for l, (h, k, d) in enumerate(out)]
        s.set(ssm__conv_kernel=4, ssm__state_size=state, ssm__group_count=keys, ssm__time_step_rank=values, ssm__inner_size=values * state,
              full_attention_interval=4)
    if "mamba" in t:
        inner, state, n_heads, n_groups = t["mamba"]
        s.set(ssm__conv_kernel=4, ssm__state_size=state, ssm__group_count=n_groups, ssm__time_step_rank=n_heads, ssm__inner_size=inner,
              rope__scaling__finetuned=False)
    if "mamba1" in t:
        inner, state, rank = t["mamba1"]
        s.set(ssm__conv_kernel=4, ssm__state_size=state, ssm__time_step_rank=rank, ssm__inner_size=inner)
    return out, full


def chooses(t, l):
    """Whether a layer chooses keys itself: the first ones do, then every so often."""
    every = t.get("every_chooses", 1)
    return l < 2 or (l - 2) % every == 0


def latent_attention(s, l, t, heads):
    q, rank, nope, rope, v = t["latent"]
    p = f"blk.{l}."
    if q:
        s.weight(p + "attn_q_a", q, s.hidden, layer=l)
        s.norm(p + "attn_q_a_norm", q)
        s.weight(p + "attn_q_b", heads * (nope + rope), q, layer=l)
    else:
        s.weight(p + "attn_q", heads * (nope + rope), s.hidden, layer=l)
    s.weight(p + "attn_kv_a_mqa", rank + rope, s.hidden, layer=l)
    s.norm(p + "attn_kv_a_norm", rank)
    s.weight(p + "attn_k_b", rank, nope, heads, layer=l)
    s.weight(p + "attn_v_b", v, rank, heads, layer=l)
    s.weight(p + "attn_output", s.hidden, heads * v, layer=l)
    if t.get("plain_gates"):
        s.weight(p + "attn_gate", heads, s.hidden, layer=l)
    if "indexer" in t and chooses(t, l):
        index_heads, dim, _ = t["indexer"]
        s.weight(p + "indexer.attn_q_b", index_heads * dim, q, layer=l)
        s.weight(p + "indexer.attn_k", dim, s.hidden, layer=l)
        s.weight(p + "indexer.proj", index_heads, s.hidden, layer=l)
        s.norm(p + "indexer.k_norm", dim, True)


def delta_attention(s, l, t, heads):
    """Kimi's delta attention; plain_gates: decay and gate by one matrix each instead of two of rank dim."""
    p, dim = f"blk.{l}.", t["delta"]
    inner = heads * dim
    for n in "qkv":
        s.weight(p + "attn_" + n, inner, s.hidden, layer=l)
        s.floats(p + f"ssm_conv1d_{n}.weight", (4, 1, inner, 1), 0.0, 0.5)
    for n in "fg":
        if t.get("plain_gates"):
            s.weight(p + f"ssm_{n}_a", inner, s.hidden, layer=l)
        else:
            s.weight(p + f"ssm_{n}_a", dim, s.hidden, layer=l)
            s.weight(p + f"ssm_{n}_b", inner, dim, layer=l)
    s.weight(p + "ssm_beta", heads, s.hidden, layer=l)
    s.floats(p + "ssm_a", (1, heads), -1.0, 0.5)
    s.floats(p + "ssm_dt.bias", inner, 0.0, 0.5)
    s.norm(p + "ssm_norm", dim)
    s.weight(p + "attn_output", s.hidden, inner, layer=l)


def mamba2(s, l, t):
    p = f"blk.{l}."
    inner, state, heads, groups = t["mamba"]
    width = inner + 2 * groups * state
    s.weight(p + "ssm_in", inner + width + heads, s.hidden, layer=l)
    s.floats(p + "ssm_conv1d.weight", (4, width), 0.0, 0.5)
    s.floats(p + "ssm_conv1d.bias", width)
    s.floats(p + "ssm_a", (1, heads), -1.0, 0.5)
    s.floats(p + "ssm_d", (1, heads), 0.0, 0.5)
    s.floats(p + "ssm_dt.bias", heads, 0.0, 0.5)
    s.norm(p + "ssm_norm", (inner // groups, groups))
    s.weight(p + "ssm_out", s.hidden, inner, layer=l)


def mamba1(s, l, t):
    p = f"blk.{l}."
    inner, state, rank = t["mamba1"]
    s.weight(p + "ssm_in", 2 * inner, s.hidden, layer=l)
    s.floats(p + "ssm_conv1d.weight", (4, inner), 0.0, 0.5)
    s.floats(p + "ssm_conv1d.bias", inner)
    s.weight(p + "ssm_x", rank + 2 * state, inner, layer=l)
    for n, width in (("dt", rank), ("b", state), ("c", state)):
        s.norm(p + f"ssm_{n}_norm", width)
    s.weight(p + "ssm_dt", inner, rank, layer=l)
    s.floats(p + "ssm_dt.bias", inner, 0.0, 0.5)
    s.floats(p + "ssm_a", (state, inner), -1.0, 0.5)
    s.floats(p + "ssm_d", inner, 0.0, 0.5)
    s.weight(p + "ssm_out", s.hidden, inner, layer=l)


def delta_net(s, l, t):
    """Qwen3-Next's, with beta and alpha in one matrix."""
    keys, values, dim = t["net"]
    p, inner = f"blk.{l}.", values * dim
    width = 2 * keys * dim + inner
    for n, rows, cols in (("attn_qkv", width, s.hidden), ("attn_gate", inner, s.hidden), ("ssm_ba", 2 * values, s.hidden), ("ssm_out", s.hidden, inner)):
        s.weight(p + n, rows, cols, layer=l)
    s.floats(p + "ssm_conv1d.weight", (4, width), 0.0, 0.5)
    s.floats(p + "ssm_a", values, -1.0, 0.5)
    s.floats(p + "ssm_dt.bias", values, 0.0, 0.5)
    s.norm(p + "ssm_norm", dim)


def attention(s, l, t, heads, kv, dim, full):
    p = f"blk.{l}."
    if t.get("fused"):
        s.weight(p + "attn_qkv", (heads + 2 * kv) * dim, s.hidden, layer=l)
    else:
        values = t.get("values", dim)
        rows = [("attn_q", heads * dim * (2 if "net" in t else 1)), ("attn_k", kv * dim), ("attn_v", kv * values)]
        for n, n_rows in rows[:2] if t.get("gemma") and full else rows:
            s.weight(p + n, n_rows, s.hidden, layer=l)
            if t.get("bias"):
                s.floats(p + n + ".bias", n_rows)
    s.weight(p + "attn_output", s.hidden, heads * t.get("values", dim), layer=l)
    if "gate" in t:
        s.weight(p + "attn_gate", heads if t["gate"] == "heads" else heads * dim, s.hidden, layer=l)
    if "norms_of" in t or t.get("gemma"):
        whole = t.get("norms_of") == "whole"
        s.norm(p + "attn_q_norm", heads * dim if whole else dim)
        s.norm(p + "attn_k_norm", kv * dim if whole else dim)
    if t.get("sinks") or (t.get("sinks_swa") and not full):
        s.floats(p + "attn_sinks.weight", heads)


def experts(s, l, t):
    p, width, n = f"blk.{l}.", t["width"], t["experts"]
    s.weight(p + "ffn_gate_inp", n + t.get("identities", 0), s.hidden, fmt="F32")
    if (t.get("sigmoid") and not t.get("parallel") and not t.get("unbiased")) or t.get("correction"):
        s.floats(p + ("exp_probs_b" if t["arch"] == "hy_v3" else "exp_probs_b.bias"), n)
    elif "identities" in t:
        s.floats(p + "exp_probs_b.bias", n + t["identities"], 0.0, 1e-3)
    if t.get("gate_up") or t.get("gemma"):
        s.weight(p + "ffn_gate_up_exps", 2 * width, s.hidden, n, layer=l)
        s.weight(p + "ffn_down_exps", s.hidden, width, n, layer=l)
    elif "single" in t:
        s.weight(p + "ffn_up_exps", width, s.hidden, n, layer=l)
        s.weight(p + "ffn_down_exps", s.hidden, width, n, layer=l)
    else:
        s.feed_forward(l, width, "_exps", n)
    if "adjugates" in t:
        group, narrow, _ = t["adjugates"]
        s.feed_forward(l, narrow, "_chexps", n // group)
    if "shared" not in t:
        return
    if t.get("gate_up_shared") or "single" in t:
        s.weight(p + "ffn_up_shexp", t["shared"] * (1 if "single" in t else 2), s.hidden, layer=l)
        s.weight(p + "ffn_down_shexp", s.hidden, t["shared"], layer=l)
    else:
        s.feed_forward(l, t["shared"], "_shexp")
    if t.get("shared_gate"):
        s.floats(p + "ffn_gate_inp_shexp.weight", s.hidden)


def gemma_norms(s, l, t):
    p = f"blk.{l}."
    for n in ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm", "pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
        s.norm(p + n, s.hidden)
    s.floats(p + "ffn_gate_inp.scale", s.hidden, 1.0, 0.1)
    s.floats(p + "ffn_down_exps.scale", t["experts"], 1.0, 0.1)
    s.floats(p + "layer_output_scale.weight", 1, 1.0, 0.1)
    s.feed_forward(l, t["dense"])


def build(Shape, name, a):
    t = FAMILIES[name]
    s = Shape(t["arch"], a)
    t = shrunk(t) if a.small else dict(t)
    t["experts"] = s.experts or t["experts"]
    s.sizes(t["layers"], t["vocab"], 4096, t["hidden"], t["hidden"])
    s.set(feed_forward_length=t.get("dense", t["width"]), attention__layer_norm_rms_epsilon=1e-6)
    if t.get("parallel") or "single" in t:
        s.set(attention__layer_norm_epsilon=1e-5, **({"logit_scale": 1.0} if t.get("parallel") else {}))
        if t.get("parallel"):
            del s.kv[f"{s.arch}.attention.layer_norm_rms_epsilon"]
    if t.get("granite"):
        s.set(embedding_scale=12.0, residual_scale=0.22, logit_scale=6.0, attention__scale=0.0078125)
    counts(s, t)
    heads, full = heads_of(s, t)
    if t.get("sinks"):
        s.set(attention__rope_pattern=[0 if x else 1 for x in full])
    s.ends(tied=t.get("tied", False) or t.get("gemma", False))
    if t.get("gemma"):
        s.floats("rope_freqs.weight", max(d for _, _, d in heads) // 2, 1.0, 0.0)
    for l, (h, kv, dim) in enumerate(heads):
        p = f"blk.{l}."
        one = t["single"][l % len(t["single"])] if "single" in t else ""
        if t.get("gemma"):
            gemma_norms(s, l, t)
        else:
            s.norm(p + "attn_norm", s.hidden)
            if not one and not t.get("parallel"):
                s.norm(p + ("post_attention_norm" if t.get("post_norm") else "ffn_norm"), s.hidden)
            if t.get("sandwich"):
                s.norm(p + "post_attention_norm", s.hidden)
                s.norm(p + "post_ffw_norm", s.hidden)
        if one == "M" or (not one and not kv and "mamba" in t):
            mamba2(s, l, t)
        elif not kv and "mamba1" in t:
            mamba1(s, l, t)
        elif not one and not kv and "delta" in t:
            delta_attention(s, l, t, h)
        elif not one and not kv and "net" in t:
            delta_net(s, l, t)
        elif "latent" in t:
            latent_attention(s, l, t, h)
        elif one != "E":
            attention(s, l, t, h, kv, dim, full[l])
        if one in ("M", "*"):
            continue
        if l < t.get("lead", 0) or (t.get("odd") and l % 2 == 0):
            s.feed_forward(l, t.get("dense", t["width"]))
        elif "identities" in t:  # a dense part in every layer, experts in every second
            s.feed_forward(l, t["dense"])
            if l % 2 == 0:
                experts(s, l, t)
        else:
            experts(s, l, t)
    return s
