#!/usr/bin/env python3
"""Packed matrices of compressed-tensors, ModelOpt, bitsandbytes and MLX with sums of the values
that these libraries read back (golden_sums.py): tests/golden/packed/floats.safetensors.

    make_packed_floats.py [--to DIR]     DIR: golden/packed's parent (default: tests/golden); also writes DIR/dequant/nvfp4_s.bin

18 rows: more than the 16 that are unpacked at once. Needs torch, safetensors, compressed-tensors, nvidia-modelopt, bitsandbytes, mlx[cpu].
"""
import argparse
import struct
from pathlib import Path

import bitsandbytes.functional as bnb
import mlx.core as mx
import numpy as np
import torch
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from modelopt.torch.quantization.qtensor.mxfp4_tensor import MXFP4QTensor
from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
from safetensors.torch import save_file

from golden_sums import fnv, row_sums

ROWS, COLS = 18, 128


def weights(scale=0.05):
    return torch.randn(ROWS, COLS) * scale


def compressed_tensors():
    w = weights()
    args = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True, dynamic=False)
    whole = (448 * 6 / w.abs().max()).reshape(1).float()
    scale = (w.reshape(ROWS, -1, 16).abs().amax(-1) / 6 * whole).to(torch.float8_e4m3fn)
    t = NVFP4PackedCompressor.compress({"weight": w, "weight_scale": scale.float(), "weight_global_scale": whole},
                                       QuantizationScheme(targets=["Linear"], weights=args))
    codes = unpack_fp4_from_uint8(t["weight_packed"], ROWS, COLS, dtype=torch.float32)
    t["values"] = dequantize(x_q=codes, scale=t["weight_scale"].float(), args=args, global_scale=whole, dtype=torch.float32)
    return t


def modelopt_nvfp4():
    w = weights()
    q, scale, whole = NVFP4QTensor.quantize(w, 16)
    return {"weight": q._quantized_data, "weight_scale": scale, "weight_scale_2": whole,
            "values": q.dequantize(dtype=torch.float32, scale=scale, double_scale=whole, block_sizes={-1: 16})}


def modelopt_mxfp4():
    q, scale = MXFP4QTensor.quantize(weights(), 32)
    return {"weight": q._quantized_data.reshape(ROWS, COLS // 2), "weight_scale": scale.reshape(ROWS, COLS // 32),
            "values": q.dequantize(dtype=torch.float32, scale=scale, block_sizes={-1: 32}).reshape(ROWS, COLS)}


def modelopt_fp8():
    w = weights()
    scale = w.abs().max() / 448
    q = (w / scale).to(torch.float8_e4m3fn)
    return {"weight": q, "weight_scale": scale, "values": q.float() * scale}


def bitsandbytes(dtype, kind, nested):
    q, state = bnb.quantize_4bit(weights().to(dtype), blocksize=64, compress_statistics=nested, quant_type=kind)
    t = {f"weight.{name}": x for name, x in state.as_dict(packed=True).items()}
    return {"weight": q, "values": bnb.dequantize_4bit(q, state).float(), **t}


def to_torch(x):
    if x.dtype == mx.bfloat16:
        return torch.from_numpy(np.array(x.astype(mx.float32))).to(torch.bfloat16)
    return torch.from_numpy(np.array(x))


def mlx(bits, group, dtype, scale=0.05, exact=False):
    """exact: the values without rounding to the type of the scales."""
    q, s, b = mx.quantize(mx.array(weights(scale).numpy()).astype(dtype), group_size=group, bits=bits)
    as_type = mx.float32 if exact else dtype
    values = mx.dequantize(q, s.astype(as_type), b.astype(as_type), group_size=group, bits=bits).astype(mx.float32)
    return {"weight": to_torch(q), "scales": to_torch(s), "biases": to_torch(b), "values": to_torch(values)}


def mlx_floats(mode):
    q, s = mx.quantize(mx.array(weights().numpy()).astype(mx.bfloat16), mode=mode)
    return {"weight": to_torch(q), "scales": to_torch(s), "values": to_torch(mx.dequantize(q, s, mode=mode).astype(mx.float32))}


def superblocks(t, path):
    """The matrix of ModelOpt as blocks of NVFP4_S."""
    codes = torch.stack([t["weight"] & 15, t["weight"] >> 4], -1).reshape(-1, 4, 2, 8).to(torch.uint8)
    scales = t["weight_scale"].view(torch.uint8).reshape(-1, 4)
    whole = struct.pack("<f", float(t["weight_scale_2"]))
    with open(path, "wb") as f:
        f.write(struct.pack("<II", len(scales), 40))
        for c, s in zip(codes, scales):
            f.write(whole + bytes(s.tolist()) + bytes((c[:, 0] | c[:, 1] << 4).flatten().tolist()))
        for row in t["values"].float().reshape(-1, 64).numpy():
            f.write(struct.pack("<Q", fnv(row.tobytes())))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--to", type=Path, default=Path(__file__).resolve().parent.parent / "golden")
    a = p.parse_args()
    torch.manual_seed(3)
    made = {
        "ct-nvfp4": compressed_tensors(), "modelopt-nvfp4": modelopt_nvfp4(), "modelopt-mxfp4": modelopt_mxfp4(),
        "modelopt-fp8": modelopt_fp8(), "bnb-nf4": bitsandbytes(torch.bfloat16, "nf4", True),
        "bnb-fp4": bitsandbytes(torch.float16, "fp4", False), "mlx-4": mlx(4, 64, mx.bfloat16, exact=True),
        "mlx-4-small": mlx(4, 32, mx.bfloat16, 1e-9), "mlx-8": mlx(8, 128, mx.float16),
        "mlx-mxfp4": mlx_floats("mxfp4"), "mlx-nvfp4": mlx_floats("nvfp4"),
    }
    out = {f"{name}.{'sums' if part == 'values' else part}": row_sums(x) if part == "values" else x.contiguous()
           for name, t in made.items() for part, x in t.items()}
    save_file(out, a.to / "packed/floats.safetensors")
    first = {k: x if x.ndim == 0 else x[:2] for k, x in made["modelopt-nvfp4"].items()}
    superblocks(first, a.to / "dequant/nvfp4_s.bin")
    for name, x in out.items():
        print(name, tuple(x.shape), x.dtype)


if __name__ == "__main__":
    main()
