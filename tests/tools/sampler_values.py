#!/usr/bin/env python3
"""Prints tests/golden/samplers.inc: what each sampler leaves of some logits, by the definitions
(llama.cpp's src/llama-sampler.cpp) in double precision, and what the penalties make of logits.
Needs numpy.   python3 tests/tools/sampler_values.py > tests/golden/samplers.inc"""
import builtins
import textwrap

import numpy as np

N = 64


def print(text):
    for line in text.split("\n"):
        builtins.print(textwrap.fill(line, 98, subsequent_indent=" " * 8, replace_whitespace=False,
                                     drop_whitespace=True, initial_indent=""))


def logits(seed, wide):
    x, out = seed, []
    for _ in range(N):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(np.float32(x >> 8) / np.float32(1 << 24) * np.float32(wide))
    return np.array(out, dtype=np.float32).astype(np.float64)


def softmax(l):
    p = np.exp(l - l.max())
    return p / p.sum()


def top_k(ids, l, k):
    order = sorted(range(len(ids)), key=lambda i: (-l[i], ids[i]))[:int(k)]
    return ids[order], l[order]


def top_p(ids, l, p):
    order = sorted(range(len(ids)), key=lambda i: (-l[i], ids[i]))
    c = np.cumsum(softmax(l)[order])
    n = int(np.searchsorted(c, p)) + 1
    return ids[order[:n]], l[order[:n]]


def min_p(ids, l, p):
    keep = softmax(l) >= p * softmax(l).max()
    return ids[keep], l[keep]


def typical(ids, l, p):
    q = softmax(l)
    entropy = -(q * np.log(q)).sum()
    order = np.argsort(np.abs(-np.log(q) - entropy), kind="stable")
    n = int(np.argmax(np.cumsum(q[order]) > p)) + 1
    return ids[order[:n]], l[order[:n]]


def xtc(ids, l, threshold):
    q = softmax(l)
    likely = [i for i in np.argsort(-q, kind="stable") if q[i] >= threshold]
    keep = [i for i in range(len(ids)) if i not in likely[:-1]]
    return ids[keep], l[keep]


def sigma(ids, l, n):
    keep = l >= l.max() - n * l.std()
    return ids[keep], l[keep]


def temperature(ids, l, t):
    return ids, l / t


STEPS = {"top_k": top_k, "top_p": top_p, "min_p": min_p, "typ_p": typical, "xtc": xtc,
         "top_n_sigma": sigma, "temperature": temperature}
FIELD = {"top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "typ_p": "typical_p",
         "xtc": "xtc_threshold", "top_n_sigma": "top_n_sigma", "temperature": "temperature"}
CHAINS = [
    (7, 6, [("typ_p", 0.5)]),
    (7, 6, [("typ_p", 0.9), ("temperature", 0.7)]),
    (8, 9, [("typ_p", 0.2), ("top_k", 3)]),
    (9, 6, [("xtc", 0.05)]),
    (9, 8, [("top_k", 20), ("xtc", 0.1), ("temperature", 1.5)]),
    (10, 6, [("top_n_sigma", 1.0)]),
    (10, 6, [("top_n_sigma", 0.5), ("temperature", 2)]),
    (11, 6, [("temperature", 2), ("top_n_sigma", 1.25)]),
    (11, 6, [("temperature", 3), ("top_p", 0.8)]),
    (12, 6, [("min_p", 0.2), ("temperature", 0.5), ("top_k", 5)]),
    (12, 7, [("top_p", 0.9), ("top_k", 12), ("typ_p", 0.6), ("min_p", 0.02)]),
    (13, 7, [("top_n_sigma", 1.5), ("top_k", 30), ("typ_p", 0.95), ("top_p", 0.9), ("min_p", 0.01),
             ("xtc", 0.08), ("temperature", 0.8)]),
]


def print_chains():
    print("static const struct chain_case {\n    uint32_t seed;\n    float wide;\n"
          "    const char *samplers;\n    struct sampling values;\n    int n;\n"
          "    struct {\n        int id;\n        double p;\n    } left[N];\n} chain_cases[] = {")
    for seed, wide, steps in CHAINS:
        ids, l = np.arange(N), logits(seed, wide)
        for name, value in steps:
            ids, l = STEPS[name](ids, l, value)
        order = np.argsort(ids)
        names = ";".join(name for name, _ in steps)
        values = "".join(f".{FIELD[n]} = {v}, " for n, v in steps)
        if "xtc" in names:
            values += ".xtc_probability = 1, "
        if "temperature" not in names:
            values += ".temperature = 5, "
        q = softmax(l)
        left = ", ".join(f"{{{ids[i]}, {q[i]:.7f}}}" for i in order)
        print(f'    {{{seed}, {wide}, "{names}",\n     {{{values}.repeat_penalty = 1}},\n'
              f"     {len(ids)},\n     {{{left}}}}},")
    print("};\n")


def penalties(l, history, repeat, presence, frequency, last):
    l = l.copy()
    part = history[-last:] if last > 0 else history if last < 0 else []
    for t in set(part):
        l[t] = l[t] * repeat if l[t] <= 0 else l[t] / repeat
        l[t] -= part.count(t) * frequency + presence
    return l


def dry(l, history, multiplier, base, allowed, last):
    """By looking at every pair of ends."""
    l = l.copy()
    part = history[-last:] if last > 0 else history if last < 0 else []
    longest = {}
    for k in range(1, len(part)):
        n = 0
        while n + k < len(part) and part[-1 - n] == part[-1 - n - k]:
            n += 1
        if n >= allowed:
            token = part[-k]
            longest[token] = max(longest.get(token, 0), n)
    for t, n in longest.items():
        l[t] -= multiplier * base ** (n - allowed)
    return l


HISTORY = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4, 3, 3, 8, 3, 2, 7,
           5, 0, 2, 8, 8, 4, 1, 9, 7, 1, 6, 9, 3, 9, 9, 3, 7, 5, 1, 0, 5, 8, 2, 0, 9, 7, 4, 9, 4, 4,
           1, 2, 3, 4, 5, 6, 10, 2, 3, 4, 5, 11, 3, 4, 5, 1, 2, 3, 4, 5]
PENALTIES = [(1.3, 0, 0, 64), (1, 0.5, 0, 64), (1, 0, 0.25, 64), (1.1, 0.75, 0.125, -1),
             (1.2, -0.5, -0.25, 10), (1.5, 1, 1, 0)]
DRY = [(0.8, 1.75, 2, -1), (0.5, 2, 1, -1), (1, 1.5, 3, 20), (2, 3, 0, 12), (1, 1.75, 9, -1)]


def row(l):
    return "{" + ", ".join(f"{v:.6f}" for v in l[:12]) + "}"


def print_penalties():
    l = logits(21, 6) - 3
    print("static const int history[] = {" + ", ".join(map(str, HISTORY)) + "};\n")
    print("static const struct penalty_case {\n    float repeat, presence, frequency;\n"
          "    int last_n;\n    double logits[12];\n} penalty_cases[] = {")
    for case in PENALTIES:
        print(f"    {{{', '.join(map(str, case))},\n     {row(penalties(l, HISTORY, *case))}}},")
    print("};\n\nstatic const struct dry_case {\n    float multiplier, base;\n"
          "    int allowed, last_n;\n    double logits[12];\n} dry_cases[] = {")
    for case in DRY:
        print(f"    {{{', '.join(map(str, case))},\n     {row(dry(l, HISTORY, *case))}}},")
    print("};")


if __name__ == "__main__":
    print("/* Printed by tests/tools/sampler_values.py. */\n/* clang-format off */")
    print_chains()
    print_penalties()
    print("/* clang-format on */")
