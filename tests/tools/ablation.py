#!/usr/bin/env python3
"""Derives the figures of --ablate again from its JSON with numpy, and compares them: the mean rise
from the sums of the blocks, its 95 % interval from the same draws. ablation.py REPORT.json"""
import json
import sys

import numpy as np

r = json.load(open(sys.argv[1]))
sizes = np.array(r["sizes"])
n, state, draws = len(sizes), 1, np.empty((r["resamples"], len(sizes)), int)
for k in range(r["resamples"]):
    for i in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        draws[k, i] = (state >> 33) % n
worst = abs(sizes.sum() - r["count"])
for c in r["cells"]:
    rise = np.array(c["blocks"])
    means = rise[draws].sum(1) / sizes[draws].sum(1)
    low, high = np.percentile(means, [2.5, 97.5])
    for name, value in ("loss", rise.sum() / sizes.sum()), ("low", low), ("high", high):
        if not abs(value - c[name]) <= 1e-6:
            sys.exit(f"layer {c['layer']} expert {c['expert']}: {name} {c[name]}, numpy {value}")
        worst = max(worst, abs(value - c[name]))
print(f"{len(r['cells'])} experts, largest difference {worst:.3g}")
