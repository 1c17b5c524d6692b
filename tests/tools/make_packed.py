#!/usr/bin/env python3
"""Packed matrices with their values (tests/golden/packed), fewer rows of those that a pattern holds.

    make_packed.py [--from DIR] [--to DIR] [--rows N]     DIR: with formats.safetensors and further.safetensors (default: that folder)

A row of these formats is packed by itself: of each matrix the first N rows (default 24: whole words of codes and zero points, and more
than the 16 that are unpacked at once) and their parts, of fp8-block the first 136 rows and 264 columns: two blocks of 128 by three, the
last ones partial. Values are computed anew, in float32, by the rule of each format; they must be what the pattern holds, to the bit, in the
rows that stay and in those that go: `values` themselves, or `sums` of the rows (golden_sums.py), which are what is written. The pattern's
are what AutoAWQ, AutoGPTQ, compressed-tensors and transformers made of them.
Needs torch, safetensors.
"""
import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from golden_sums import row_sums

FILES = ("formats.safetensors", "further.safetensors")
BLOCK = 128
FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
AWQ = [0, 4, 1, 5, 2, 6, 3, 7]  # where the nibble of column i of eight lies


def codes(words, bits, axis, order=None):
    """The unsigned numbers of 32-bit words, low ones first, along an axis."""
    n = 32 // bits
    shifts = torch.tensor([bits * (order[i] if order else i) for i in range(n)])
    x = words.long().movedim(axis, -1)[..., None] >> shifts & (1 << bits) - 1
    return x.flatten(-2).movedim(-1, axis)


def values(name, t):
    """(out, in) in float32."""
    if name.startswith("gptq"):
        bits = 8 if name.startswith("gptq8") else 4
        zeros = codes(t["qzeros"], bits, 1) + (0 if name.endswith("v2") else 1)
        group = t["g_idx"].long()
        return (t["scales"].float()[group] * (codes(t["qweight"], bits, 0) - zeros[group]).float()).T
    if name.startswith("awq"):
        group = torch.arange(t["qweight"].shape[0]) // (t["qweight"].shape[0] // len(t["scales"]))
        difference = codes(t["qweight"], 4, 1, AWQ) - codes(t["qzeros"], 4, 1, AWQ)[group]
        return (t["scales"].float()[group] * difference.float()).T
    if name == "ct-mxfp4":
        x = FP4[torch.stack([t["weight_packed"] & 15, t["weight_packed"] >> 4], -1).long()].flatten(-2)
        return x * torch.exp2(t["weight_scale"].float() - 127).repeat_interleave(32, 1)
    if name.startswith("ct"):
        rows, columns = t["weight_shape"].tolist()
        bits = 8 if "int8" in name else 4
        scales = t["weight_scale"].float()
        group = t["weight_g_idx"].long() if "weight_g_idx" in t else torch.arange(columns) // (columns // scales.shape[1])
        zeros = codes(t["weight_zero_point"], bits, 0)[:, group] if "weight_zero_point" in t else 1 << bits - 1
        return scales[:, group] * (codes(t["weight_packed"], bits, 1)[:, :columns] - zeros).float()
    if name == "fp8-block":
        scales = t["weight_scale_inv"].repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        return t["weight"].float() * scales[:t["weight"].shape[0], :t["weight"].shape[1]]
    if name == "fp8-channel":
        return t["weight"].float() * t["weight_scale"].float()
    assert name == "mxfp4", name
    x = FP4[torch.stack([t["blocks"] & 15, t["blocks"] >> 4], -1).long()].flatten(-2)
    return (x * torch.exp2(t["scales"].float() - 127)[..., None]).flatten(-2)


def first_rows(name, t, n):
    """The parts of the first n rows."""
    if name == "fp8-block":
        return {"weight": t["weight"][:136, :264], "weight_scale_inv": t["weight_scale_inv"]}
    if name == "mxfp4":
        return {k: x[:, :n] for k, x in t.items()}
    out = {}
    for part, x in t.items():
        if part in ("qweight", "qzeros", "scales"):  # rows of the matrix are columns here, in words of several
            words = t["scales"].shape[1] // x.shape[1]
            out[part] = x[:, :n // words]
        elif part == "weight_shape":
            out[part] = torch.tensor([n, x[1]], dtype=x.dtype)
        elif part in ("g_idx", "weight_g_idx"):
            out[part] = x
        else:
            out[part] = x[:n // (t["weight_scale"].shape[0] // x.shape[0])]
    return out


def same(a, b):
    return a.shape == b.shape and torch.equal(a, b)


def make(source, target, n):
    held, out = load_file(source), {}
    for name in sorted({k.split(".")[0] for k in held}):
        t = {k.split(".")[1]: x for k, x in held.items() if k.split(".")[0] == name}
        want, all_rows = t.pop("values", None), t.pop("sums", None)
        got = values(name, t)
        if not (same(got, want) if want is not None else same(row_sums(got), all_rows)):
            raise SystemExit(f"{source}: {name}: other values by the rule")
        t = first_rows(name, t, n)
        kept = values(name, t)
        if not same(kept, got[..., :kept.shape[-2], :kept.shape[-1]]):
            raise SystemExit(f"{source}: {name}: other values of the rows that stay")
        t["sums"] = row_sums(kept)
        out.update({f"{name}.{k}": x.contiguous() for k, x in t.items()})
        print(f"{name}: {tuple(got.shape)} -> {tuple(kept.shape)}")
    save_file(out, target)
    print(f"{target}: {target.stat().st_size} bytes")


def main():
    folder = Path(__file__).resolve().parent.parent / "golden/packed"
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--from", dest="source", type=Path, default=folder)
    p.add_argument("--to", type=Path, default=folder)
    p.add_argument("--rows", type=int, default=24)
    a = p.parse_args()
    for file in FILES:
        make(a.source / file, a.to / file, a.rows)


if __name__ == "__main__":
    main()
