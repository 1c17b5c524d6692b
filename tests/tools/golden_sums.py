#!/usr/bin/env python3
"""Sums in place of golden values that are compared bit by bit: FNV-1a, 64 bits, of each row's floats as they lie in memory.

    golden_sums.py FILE.bin ...     of tests/golden/dequant and rows: rows N, their bytes B (2 x u32), N x B bytes, then the values of each
                                    row in float32, in whose place the N sums (u64) are written

A file that has its sums already is left as it is.
"""
import struct
import sys


def fnv(data):
    h = 14695981039346656037
    for byte in data:
        h = (h ^ byte) * 1099511628211 % 2**64
    return h


def row_sums(values):
    """torch: (.., columns) -> (..) of int64; -0 counts as 0, as unpacked zeros have no sign of their own."""
    import numpy
    import torch
    x = values.float().contiguous().numpy()
    x = numpy.where(x == 0, numpy.float32(0), x).astype("<f4").reshape(-1, x.shape[-1])
    sums = numpy.array([fnv(row.tobytes()) for row in x], dtype=numpy.uint64).view(numpy.int64)
    return torch.from_numpy(sums.reshape(values.shape[:-1]))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for path in sys.argv[1:]:
        with open(path, "rb") as f:
            data = f.read()
        n, size = struct.unpack("<II", data[:8])
        end = 8 + n * size
        values = data[end:]
        if len(values) == 8 * n:
            continue
        if not values or len(values) % (4 * n):
            sys.exit(f"{path}: no values of {n} rows behind {end} bytes")
        of = len(values) // n
        with open(path, "wb") as f:
            f.write(data[:end] + b"".join(struct.pack("<Q", fnv(values[of * i:of * (i + 1)])) for i in range(n)))


if __name__ == "__main__":
    main()
