"""Reads a file that --quantize wrote with the gguf package: quantize_check.py OUT.gguf FOLDER TYPE. Exit 0: it is what it should be."""
import json, struct, sys
import numpy as np
import gguf

out, folder, kind = sys.argv[1:4]
r = gguf.GGUFReader(out)
field = lambda k: r.fields[k].contents()
config = json.load(open(folder + "/config.json"))
assert field("general.architecture") == "phimoe"
assert field("phimoe.block_count") == config["num_hidden_layers"] and field("phimoe.attention.key_length") == config["head_dim"]
assert field("phimoe.expert_count") == config["num_local_experts"] and field("general.quantization_version") == 2
tok = json.load(open(folder + "/tokenizer.json"))
tokens = field("tokenizer.ggml.tokens")
assert len(tokens) == config["vocab_size"] == len(field("tokenizer.ggml.scores")) == len(field("tokenizer.ggml.token_type"))
for piece, i in tok["model"]["vocab"].items():
    assert tokens[i] == piece, (i, tokens[i], piece)
assert len(field("tokenizer.ggml.merges")) == len(tok["model"]["merges"])
assert "<|end|>" in field("tokenizer.chat_template")

raw = open(folder + "/model.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head = json.loads(raw[8:8 + n])
def original(name):
    h = head[name]; a, b = h["data_offsets"]
    return (np.frombuffer(raw[8 + n + a:8 + n + b], dtype=np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(h["shape"])
limit = {"q4_k_m": 0.075, "q6_k": 0.025, "q8_0": 0.01, "q4_0": 0.13, "bf16": 0.0, "q3_k_m": 0.18, "q2_k": 0.33, "iq4_xs": 0.09, "mxfp4_moe": 0.14}[kind]
L = config["num_hidden_layers"]
pairs = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight"}
for l in (0, L - 1):
    pairs[f"blk.{l}.attn_v.weight"] = f"model.layers.{l}.self_attn.v_proj.weight"
    pairs[f"blk.{l}.ffn_gate_inp.weight"] = f"model.layers.{l}.block_sparse_moe.gate.weight"
    for gn, hn in (("gate", "w1"), ("up", "w3"), ("down", "w2")):
        pairs[f"blk.{l}.ffn_{gn}_exps.weight"] = [f"model.layers.{l}.block_sparse_moe.experts.{e}.{hn}.weight" for e in range(config["num_local_experts"])]
tensors = {t.name: t for t in r.tensors}
for name, source in pairs.items():
    t = tensors[name]
    x = np.stack([original(s) for s in source]) if isinstance(source, list) else original(source)
    y = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).reshape(x.shape)
    error = np.sqrt(((x - y) ** 2).sum() / (x ** 2).sum())
    assert error <= (0.0 if t.tensor_type.name == "F32" else limit), (name, t.tensor_type.name, error)
