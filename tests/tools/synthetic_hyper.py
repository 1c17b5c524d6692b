"""Shapes of the families whose layers lie between hyper-connections, for synthetic_gguf.py: what llama.cpp's converter would write of
DeepSeek V4 Flash and Qwen3.8-Flash-Next (of whose table of n-grams a file gets a thousandth, as a token reads 16 rows of it whatever its
size). Widths are the published ones; --experts and --layers say how many a file gets.
"""


class Wide(list):
    """Integers of 64 bits."""


def places(s, weigh):
    """Hyper-connections of every place: weigh(name, of a layer or None)."""
    for l in range(s.layers):
        for n in ("attn", "ffn"):
            weigh(f"blk.{l}.hc_{n}_", l)
    weigh("output_hc_", None)


def deepseek_v4(Shape, a):
    s = Shape("deepseek4", a)
    s.sizes(43, 129280, 4096, 4096, 256)
    heads, dim, rotary, q, groups, rank, width = s.pick((64, 512, 64, 1024, 8, 1024, 2048), (4, 64, 32, 64, 2, 64, 256))
    index_heads, index_dim, top = s.pick((64, 128, 512), (4, 64, 3))
    experts, used = s.routing((256, 6), (8, 4))
    hc, hashed, shared = 4, min(3, s.layers), width
    mixes = (2 + hc) * hc
    blocks = [4 if l >= 2 and l % 2 else 128 for l in range(s.layers)]
    s.set(attention__head_count=heads, attention__head_count_kv=1, attention__key_length=dim, attention__value_length=dim, rope__dimension_count=rotary,
          rope__freq_base=10000.0, attention__compress_rope_freq_base=160000.0, attention__layer_norm_rms_epsilon=1e-6, attention__sliding_window=128,
          attention__q_lora_rank=q, attention__output_group_count=groups, attention__output_lora_rank=rank, attention__indexer__head_count=index_heads,
          attention__indexer__key_length=index_dim, attention__indexer__top_k=top, attention__compress_ratios=blocks, hyper_connection__count=hc,
          hyper_connection__sinkhorn_iterations=20, hyper_connection__epsilon=1e-6, expert_count=experts, expert_used_count=used,
          expert_feed_forward_length=width, expert_shared_count=1, expert_shared_feed_forward_length=shared, expert_gating_func=4, expert_weights_norm=True,
          expert_weights_scale=1.5, swiglu_clamp_exp=[10.0] * s.layers, hash_layer_count=hashed, feed_forward_length=width)

    def weigh(p, l):
        n = hc if l is None else mixes
        s.weight(p + "fn", n, hc * s.hidden, fmt="F32")
        s.floats(p + "base.weight", n)
        s.floats(p + "scale.weight", 1 if l is None else 3, 1.0, 0.1)

    s.ends()
    places(s, weigh)
    for l, block in enumerate(blocks):
        p = f"blk.{l}."
        s.norm(p + "attn_norm", s.hidden)
        s.norm(p + "ffn_norm", s.hidden)
        s.weight(p + "attn_q_a", q, s.hidden, layer=l)
        s.norm(p + "attn_q_a_norm", q)
        s.weight(p + "attn_q_b", heads * dim, q, layer=l)
        s.weight(p + "attn_kv", dim, s.hidden, layer=l)
        s.norm(p + "attn_kv_a_norm", dim)
        s.floats(p + "attn_sinks.weight", heads)
        s.weight(p + "attn_output_a", groups * rank, heads * dim // groups, layer=l)
        s.weight(p + "attn_output_b", s.hidden, groups * rank, layer=l)
        compressor(s, p + "attn_compressor_", l, dim, block, 2 if block == 4 else 1)
        if block == 4:
            s.weight(p + "indexer.proj", index_heads, s.hidden, fmt="F32")
            s.weight(p + "indexer.attn_q_b", index_heads * index_dim, q, layer=l)
            compressor(s, p + "indexer_compressor_", l, index_dim, block, 2)
        s.routed(l, experts, width)
        if l < hashed:
            s.chosen(p + "ffn_gate_tid2eid.weight", used, s.vocab, experts)
        else:
            s.floats(p + "exp_probs_b.bias", experts)
        s.feed_forward(l, shared, "_shexp")
    return s


def compressor(s, p, l, dim, block, times):
    """What makes one key of a block of tokens."""
    s.weight(p + "kv", times * dim, s.hidden, layer=l)
    s.weight(p + "gate", times * dim, s.hidden, layer=l)
    s.floats(p + "ape.weight", (times * dim, block))
    s.norm(p + "norm", dim)


def qwen4_exp(Shape, a, delta_net):
    s = Shape("qwen4exp", a)
    s.sizes(40, 248320, 4096, 2048, 256)
    heads, kv, dim, width = s.pick((16, 2, 256, 512), (4, 2, 64, 256))
    net = s.pick((16, 32, 128), (2, 4, 32))
    experts, used = s.routing((512, 10), (8, 4))
    hc, low, index_heads, index_dim, top, block = s.pick((4, 320, 16, 128, 2048, 16), (4, 64, 4, 64, 8, 4))
    each, size, kernel, table = s.pick((8, 3, 4, 20000), (2, 3, 4, 60))
    row, hashes, rotary = s.hidden // (each * (size - 1)), each * (size - 1), dim // 4
    part = rotary // 2 * 11 // 32
    s.set(attention__head_count=heads, attention__head_count_kv=kv, attention__key_length=dim, attention__value_length=dim, rope__dimension_count=rotary,
          rope__freq_base=1e7, rope__dimension_sections=[part, part, rotary // 2 - 2 * part, 0], attention__layer_norm_rms_epsilon=1e-6,
          expert_count=experts, expert_used_count=used, expert_feed_forward_length=width, expert_shared_feed_forward_length=width,
          ssm__conv_kernel=4, ssm__state_size=net[2], ssm__group_count=net[0], ssm__time_step_rank=net[1], ssm__inner_size=net[1] * net[2],
          full_attention_interval=4, hyper_connection__count=hc, hyper_connection__low_rank=low, attention__indexer__head_count=index_heads,
          attention__indexer__key_length=index_dim, attention__indexer__top_k=top,
          attention__compress_ratios=[block if l % 4 == 3 else 0 for l in range(s.layers)], ple__layers=[1], ple__ngram_size=size,
          ple__heads_per_ngram=each, ple__conv_kernel=kernel, ple__eos_token_id=257, embedding_length_per_layer_input=row,
          ple__layer_multipliers=Wide([160419945971938623, 155550606720431737, 151390905540449763][:size]),
          ple__head_offsets=Wide(table * h for h in range(hashes)), ple__head_vocab_sizes=Wide([table] * hashes))

    def weigh(p, l):
        s.norm(p + "norm", hc * s.hidden)
        s.weight(p + "down", low, hc * s.hidden, layer=l)
        s.weight(p + "up", hc * s.hidden, low, layer=l)
        if l is not None:
            s.weight(p + "inject", hc, hc * s.hidden, layer=l)

    s.weight("token_embd", s.vocab, s.hidden)
    s.weight("output", s.vocab, s.hidden)
    s.weight("per_layer_token_embd", table * hashes, row)
    places(s, weigh)
    for l in range(s.layers):
        p = f"blk.{l}."
        if l % 4 == 3:
            s.attention(l, heads, kv, dim, head_norms=True, gated=True)
            s.weight(p + "indexer.q_proj", index_heads * index_dim, s.hidden, layer=l)
            s.weight(p + "indexer.k_proj", index_dim, s.hidden, layer=l)
            s.norm(p + "indexer.q_norm", index_dim)
            s.norm(p + "indexer.k_norm", index_dim)
        else:
            delta_net(s, l, *net)
        if l == 1:
            s.weight(p + "ple_key", hc * s.hidden, s.hidden, layer=l)
            s.weight(p + "ple_value", s.hidden, s.hidden, layer=l)
            for n in ("key", "query", "conv"):
                s.norm(p + f"ple_norm_{n}", hc * s.hidden)
            s.floats(p + "ple_conv1d.weight", (kernel, hc * s.hidden), 0.0, 0.5)
        s.routed(l, experts, width)
        s.feed_forward(l, width, "_shexp")
        s.floats(p + "ffn_gate_inp_shexp.weight", s.hidden)
    return s
