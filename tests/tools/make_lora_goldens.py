#!/usr/bin/env python3
"""Adapters with golden numbers on the checkpoints that make_goldens.py made.

    make_lora_goldens.py [--from DIR] [--to DIR] [NAME ...]     DIR: of the layout of tests/golden (default: that); NAME: phimoe, gpt2, ...

Each folder is made after the one of that name below --from: `full`, `attn` and `fused` are drawn, seeded, from the values of the pattern's
in the shapes of the base below --to (report.json's checkpoint); full-kt, fused-0.17 and the GGUF files hold the same adapters in other
layouts (their rules: shared/tools/lora/lora_files.py). golden.safetensors: `input_ids`, `logits_KEY` and `greedy_KEY` by transformers in
float32 on the base with W + strength * scale * (B A) for W. A seed is taken as make_goldens.py does.
Needs torch, transformers, safetensors, gguf.
"""
import json
import math
import re
import shutil
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
from make_goldens import load, moved, numbers, parser, same_choices
from safetensors.torch import load_file, save_file

KEYS = {"full": [("full", 1.0)], "full_half": [("full", 0.5)], "attn": [("attn", 1.0)], "both": [("full", 1.0), ("attn", 0.5)],
        "attn_converter": [("attn.gguf", 1.0)], "full_f16": [("full-f16.gguf", 1.0)], "fused": [("fused", 1.0)]}
ATTENTION = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj"}
DENSE = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
GPT2 = {"attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
EXPERT = {"phimoe": ("block_sparse_moe.experts", {"gate": "w1", "up": "w3", "down": "w2"}),
          "qwen3_moe": ("mlp.experts", {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"})}
FRONT, A, B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"


class Base:
    def __init__(self, folder):
        self.folder, self.config = folder, json.loads((folder / "config.json").read_text())
        self.kind, self.weights = self.config["model_type"], load_file(folder / "model.safetensors")
        self.experts = self.config.get("num_local_experts") or self.config.get("num_experts") or 0
        self.inner = self.config.get("moe_intermediate_size") or self.config.get("intermediate_size")

    def matrix(self, module):
        """(out, in) of a module's matrix; fused experts: of one expert's."""
        if module.endswith("experts.base_layer"):
            return 2 * self.inner, self.config["hidden_size"]
        if module.endswith(".experts"):
            return self.config["hidden_size"], self.inner
        shape = tuple(self.weights[module.removeprefix("transformer.") + ".weight"].shape)
        return shape[::-1] if self.kind == "gpt2" else shape


def draw(base, pattern, config, generator):
    """A folder's tensors in the base's shapes, of the experts that it has."""
    out = {}
    for name, x in pattern.items():
        module, expert = name[len(FRONT):-len(A)], re.search(r"\.experts\.(\d+)\.", name)
        if expert and int(expert[1]) >= base.experts:
            continue
        rows, columns = base.matrix(module)
        rank = config["r"] * base.experts if re.search(r"\.experts(\.base_layer)?$", module) else x.shape[0 if name.endswith(A) else 1]
        shape, scale = ((rank, columns), (x.shape[1] / columns) ** 0.5) if name.endswith(A) else ((rows, rank), 1.0)
        flat = x.flatten()
        out[name] = (flat[torch.randint(len(flat), (shape[0] * shape[1],), generator=generator)] * scale).reshape(shape)
    return out


def setting(patterns, module, default):
    for key, value in (patterns or {}).items():
        if re.match(rf"(.*\.)?({key})$", module):
            return value
    return default


def modules(base, tensors, config):
    """module -> (A, B, scale), fused experts one by one."""
    out = {}
    for name in tensors:
        if not name.endswith(A):
            continue
        module = name[len(FRONT):-len(A)]
        a, b, n = tensors[name], tensors[name[:-len(A)] + B], base.experts
        r, alpha = setting(config.get("rank_pattern"), module, config["r"]), setting(config.get("alpha_pattern"), module, config["lora_alpha"])
        scale = alpha / math.sqrt(r) if config.get("use_rslora") else alpha / r
        if not re.search(r"\.experts(\.base_layer)?$", module):
            out[module.removeprefix("transformer.")] = a, b, scale
            continue
        a, b = a.reshape(n, -1, a.shape[1]), b.reshape(b.shape[0], -1, n).permute(2, 0, 1)  # row e*r + k, column k*E + e
        for e in range(n):
            at = f"{module.removesuffix('.base_layer')}.{e}."
            if module.endswith("base_layer"):
                out[at + "gate_proj"], out[at + "up_proj"] = (a[e], b[e][:base.inner], scale), (a[e], b[e][base.inner:], scale)
            else:
                out[at + "down_proj"] = a[e], b[e], scale
    return out


def older_fused(base, tensors):
    """The layout up to PEFT 0.18: A spans the outputs, B the inputs, their product is transposed."""
    out, n = dict(tensors), base.experts
    for name in tensors:
        if re.search(r"\.experts(\.base_layer)?\.lora_A\.weight$", name):
            other = name[:-len(A)] + B
            a, b = tensors[name].reshape(n, -1, tensors[name].shape[1]), tensors[other].reshape(tensors[other].shape[0], -1, n)
            out[name] = b.permute(2, 1, 0).reshape(-1, b.shape[0]).contiguous()
            out[other] = a.permute(2, 1, 0).reshape(a.shape[2], -1).contiguous()
    return out


def ktransformers(base, full, layers):
    """Experts (E, r, in) and (E, out, r) apart from the rest."""
    box, words = EXPERT[base.kind]
    fused, rest = {}, {k: v for k, v in full.items() if ".experts." not in k}
    for i in range(layers):
        for word, w in words.items():
            for ab, end in (("a", A), ("b", B)):
                fused[f"layers.{i}.experts.{word}_lora_{ab}"] = torch.stack(
                    [full[f"{FRONT}model.layers.{i}.{box}.{e}.{w}{end}"] for e in range(base.experts)])
    return rest, fused


def parts_of(base, tensor):
    """The modules that a tensor of a GGUF file holds, and whether its rows lie in pairs there (llama's q and k)."""
    i, word = re.match(r"blk\.(\d+)\.(\w+)\.weight", tensor).groups()
    if word.endswith("_exps"):
        box, words = EXPERT[base.kind]
        return [f"model.layers.{i}.{box}.{e}.{words[word[4:-5]]}" for e in range(base.experts)], 0
    if base.kind == "gpt2":
        return [f"h.{i}.{GPT2[word]}"], 0
    heads = {"attn_q": base.config["num_attention_heads"], "attn_k": base.config["num_key_value_heads"]}.get(word, 0)
    return [f"model.layers.{i}.{ {**ATTENTION, **DENSE}[word] }"], heads if base.kind == "llama" else 0


def write_gguf(base, pattern, to, adapters, folded):
    """The file of the pattern with the tensors of `adapters`; folded: the scale that its metadata loses lies in B. Returns what it says."""
    reader = gguf.GGUFReader(pattern)
    field = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    writer = gguf.GGUFWriter(to, field["general.architecture"])
    for key, f in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        writer.add_key_value(key, f.contents(), f.types[0], f.types[1] if len(f.types) > 1 else None)
    says = {}
    for t in reader.tensors:
        names, heads = parts_of(base, t.name)
        x = [adapters[n] for n in names]
        scale = field["adapter.lora.alpha"] / x[0][0].shape[0]
        if t.name.endswith("lora_a"):
            v = torch.stack([a for a, _, _ in x])
        else:
            v = torch.stack([b * (s / scale) if folded else b for _, b, s in x])
        kind = np.float16 if t.tensor_type == gguf.GGMLQuantizationType.F16 else np.float32
        for n, one in zip(names, v):
            said = torch.from_numpy(one.numpy().astype(kind).astype(np.float32))
            a, b, _ = says.get(n, (None, None, scale))
            says[n] = (said, b, scale) if t.name.endswith("lora_a") else (a, said, scale)
        if heads and t.name.endswith("lora_b"):
            v = v.reshape(1, heads, 2, -1, v.shape[-1]).transpose(2, 3).reshape(v.shape)
        v = v if "_exps" in t.name else v[0]
        writer.add_tensor(t.name, np.ascontiguousarray(v.numpy().astype(kind)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return says


def merged(base, adapters, dtype):
    """The base with adapters in it: [(modules, strength)]."""
    weights = {k: v.float() if v.is_floating_point() else v for k, v in base.weights.items()}
    for parts, strength in adapters:
        for name, (a, b, scale) in parts.items():
            delta = (b.double() @ a.double()) * scale * strength
            key = name + ".weight"
            weights[key] = (weights[key].double() + (delta.T if base.kind == "gpt2" else delta)).float().contiguous()
    with tempfile.TemporaryDirectory() as t:
        shutil.copy(base.folder / "config.json", t)
        save_file(weights, f"{t}/model.safetensors", metadata={"format": "pt"})
        return load(Path(t), dtype)


def write_adapters(base, pattern, to, seed):
    """All files of a folder; what each says."""
    generator, says = torch.Generator().manual_seed(seed), {}
    for name in ("full", "attn", "fused"):
        if not (pattern / name).is_dir():
            continue
        (to / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(pattern / name / "adapter_config.json", to / name)
        config = json.loads((to / name / "adapter_config.json").read_text())
        tensors = draw(base, load_file(pattern / name / "adapter_model.safetensors"), config, generator)
        save_file(tensors, to / name / "adapter_model.safetensors", metadata={"format": "pt"})
        says[name] = modules(base, tensors, config)
        for other in ("full-kt", "fused-0.17"):
            if other.startswith(name + "-") and (pattern / other).is_dir():
                (to / other).mkdir(exist_ok=True)
                shutil.copy(pattern / other / "adapter_config.json", to / other)
                if name == "full":
                    rest, fused = ktransformers(base, tensors, base.config["num_hidden_layers"])
                    save_file(rest, to / other / "adapter_model.safetensors", metadata={"format": "pt"})
                    save_file(fused, to / other / "fused_expert_lora.safetensors", metadata={"format": "pt"})
                else:
                    save_file(older_fused(base, tensors), to / other / "adapter_model.safetensors", metadata={"format": "pt"})
    for file in sorted(pattern.glob("*.gguf")):
        name = "attn" if file.name.startswith("attn") else "full"
        says[file.name] = write_gguf(base, file, to / file.name, says[name], "folded" in file.name)
    return says


def make(source, target, name, seed):
    pattern, to = source / "lora" / name, target / "lora" / name
    report = json.loads((pattern / "report.json").read_text())
    base, like = Base(target / report["checkpoint"]), load_file(pattern / "golden.safetensors")
    keys, n_ids = [k[7:] for k in like if k.startswith("logits_")], len(like["input_ids"])
    for seed in range(seed, seed + 400):
        says, out, gaps = write_adapters(base, pattern, to, seed), {}, {}
        ids = torch.randint(5, 96, (n_ids,), generator=torch.Generator().manual_seed(seed))
        for key in keys:
            ways, n = [(says[a], s) for a, s in KEYS[key]], len(like["greedy_" + key])
            made, gaps[key] = numbers(merged(base, ways, torch.float32), ids, n)
            if gaps[key] < 0.006 or len(set(made["greedy"].tolist())) < n // 3:
                break
            others = [merged(base, ways, torch.float64)] + [moved(merged(base, ways, torch.float32), 1e-4, k) for k in range(2)]
            if not all(same_choices(made, numbers(m, ids, n)[0]) for m in others):
                break
            out["logits_" + key], out["greedy_" + key] = made["logits"], made["greedy"]
        else:
            break
    else:
        raise SystemExit(f"{name}: no seed is far enough from ties")
    out["input_ids"] = ids
    save_file({k: out[k].to(v.dtype).contiguous() for k, v in like.items()}, to / "golden.safetensors")
    report = {"checkpoint": report["checkpoint"], "seed": seed, "greedy_gap": min(gaps.values())}
    (to / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({"name": name, **report, "KB": sum(f.stat().st_size for f in to.rglob("*") if f.is_file()) // 1024}), flush=True)


def main():
    a = parser(__doc__).parse_args()
    for name in a.names or ["gpt2", "llama", "phimoe", "qwen3_moe"]:
        make(a.source, a.to, name, a.seed)


if __name__ == "__main__":
    main()
