#!/usr/bin/env python3
"""Recomputes the figures of moetop --routing-report with numpy, from the formulas of moetop-lab(7).

    routing_report.py REPORT.json TRACE [TRACE]    exit status 0: all agree to 1e-6

It shares no code with the program: it reads the trace (.jsonl or .safetensors) itself, and knows
chi-square's tail from its own series."""
import json
import math
import sys

import numpy as np

SAMPLES = 200
SCRIPTS = ["none", "latin", "greek", "cyrillic", "hebrew", "arabic", "devanagari", "thai",
           "hangul", "kana", "han", "other"]
STOPWORDS = ["none", "en", "de", "fr", "es", "it", "pt", "nl"]
worst = 0.0
checked = 0


def read_jsonl(path):
    with open(path) as f:
        head = json.loads(f.readline())
        rows = [json.loads(line) for line in f]
    words = {"class": ["special", "space", "word", "piece", "number", "punctuation"],
             "role": ["system", "user", "assistant", "tool", "text"]}
    if head["moetop_routing"] > 1:
        words["script"] = SCRIPTS
        words["stopword"] = STOPWORDS
    first = next(l for l in range(head["layers"]) if head["used"][l])
    starts = [i for i, r in enumerate(rows) if r["layer"] == first]
    n, layers, slots = len(starts), head["layers"], head["slots"]
    t = {k: np.array([rows[i][k] for i in starts]) for k in ("sequence", "position", "token", "message")}
    for k, w in words.items():
        t[k] = np.array([w.index(rows[i][k]) for i in starts])
    if head.get("logprobs"):
        t["logprob"] = np.array([np.nan if rows[i]["logprob"] is None else rows[i]["logprob"]
                                 for i in starts])
    t["experts"] = np.full((n, layers, slots), -1)
    t["weights"] = np.zeros((n, layers, slots))
    t["scores"] = np.zeros((n, layers, head["experts"])) if head["scores"] else None
    at = -1
    for r in rows:
        at += r["layer"] == first
        k = len(r["experts"])
        t["experts"][at, r["layer"], :k] = r["experts"]
        t["weights"][at, r["layer"], :k] = r["weights"]
        if head["scores"]:
            t["scores"][at, r["layer"], :len(r["scores"])] = r["scores"]
    return head, t


def read_safetensors(path):
    types = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "F32": "<f4", "U8": "u1"}
    data = open(path, "rb").read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    head = json.loads(header.pop("__metadata__")["moetop_routing"])
    t = {"scores": None}
    for name, o in header.items():
        a, b = o["data_offsets"]
        t[name] = np.frombuffer(data[8 + n + a:8 + n + b], types[o["dtype"]]).reshape(o["shape"])
    return head, t


def read(path):
    return read_jsonl(path) if path.endswith(".jsonl") else read_safetensors(path)


def same(what, theirs, ours):
    global worst, checked
    d = abs(theirs - ours) / max(1.0, abs(ours))
    worst = max(worst, d if d == d else math.inf)
    checked += 1
    if not d <= 1e-6:
        print(f"{what}: the report has {theirs!r}, numpy {ours!r}")


def draws(n, blocks):
    """Block numbers of the bootstrap: SplitMix64 from state 1."""
    mask, state, out = (1 << 64) - 1, 1, []
    for _ in range(n):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        out.append(int(((z ^ z >> 31) >> 11) * 2.0**-53 * blocks))
    return np.array(out)


def block_of(n):
    return max(32, -(-n // 1024))


def interval(values):
    v, off = np.sort(values), int(0.025 * (SAMPLES - 1))
    return v[off], v[SAMPLES - 1 - off]


def entropy(c):
    p = c[c > 0] / c.sum()
    return float(-(p * np.log2(p)).sum())


def gini(c):
    """Mean absolute difference of all pairs, over twice the mean."""
    c = np.sort(c)
    i = np.arange(1, len(c) + 1)
    return float((2 * i - len(c) - 1).dot(c) / (len(c) * c.sum()))


def js(a, b):
    p, q = a / a.sum(), b / b.sum()
    return entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2


def chi2_tail(x, dof):
    """P(chi-square > x), by closed forms for whole and half degrees."""
    if x <= 0:
        return 1.0
    log_half = math.log(x / 2)
    if dof % 2 == 0:
        logs = [k * log_half - math.lgamma(k + 1) - x / 2 for k in range(dof // 2)]
        start = 0.0
    else:
        logs = [(k + 0.5) * log_half - math.lgamma(k + 1.5) - x / 2 for k in range(dof // 2)]
        start = math.erfc(math.sqrt(x / 2))
    return start + sum(math.exp(v) for v in logs)


def chi_square(table):
    if not table.any():
        return None
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    if min(table.shape) < 2:
        return None
    n = table.sum()
    expected = np.outer(table.sum(1), table.sum(0)) / n
    chi2 = float(((table - expected)**2 / expected).sum())
    dof = (table.shape[0] - 1) * (table.shape[1] - 1)
    return {"chi2": chi2, "dof": dof, "p": chi2_tail(chi2, dof), "n": int(n),
            "v": math.sqrt(chi2 / (n * (min(table.shape) - 1)))}


def holm(tests):
    order = sorted(range(len(tests)), key=lambda i: tests[i]["p"])
    most = 0.0
    for rank, i in enumerate(order):
        most = max(most, min(1.0, (len(tests) - rank) * tests[i]["p"]))
        tests[i]["p_holm"] = most


def check_test(what, theirs, ours):
    if ours is None or theirs is None:
        same(what, 0.0 if theirs is None else 1.0, 0.0 if ours is None else 1.0)
        return
    for k in ("chi2", "dof", "p", "p_holm", "v", "n"):
        same(f"{what} {k}", theirs[k], ours[k])


def check_spanned(what, theirs, value, values):
    low, high = interval(values)
    for name, a, b in zip(("", " low", " high"), theirs, (value, low, high)):
        same(what + name, a, b)


def crossed(rows, groups, columns):
    table = np.zeros((max(groups.max(), 0) + 1, columns))
    ok = (rows >= 0) & (groups >= 0)
    np.add.at(table, (groups[ok], rows[ok]), 1)
    return table


def languages(t):
    """Of every token's text: a language of STOPWORDS, or a script behind them; 0: unknown."""
    texts = {}
    for key in zip(t["sequence"], t["message"]):
        texts.setdefault(tuple(int(v) for v in key), len(texts))
    of = np.array([texts[int(s), int(m)] for s, m in zip(t["sequence"], t["message"])])
    scripts, votes = np.zeros((len(texts), len(SCRIPTS))), np.zeros((len(texts), len(STOPWORDS)))
    np.add.at(scripts, (of, t["script"].astype(int)), 1)
    np.add.at(votes, (of, t["stopword"].astype(int)), 1)
    scripts[:, 0] = votes[:, 0] = 0
    script, word = scripts.argmax(1), votes.argmax(1)
    sure = (votes.max(1) >= 2) & (2 * votes.max(1) > votes.sum(1))
    text = np.where(script == 1, np.where(sure, word, 0), len(STOPWORDS) + script)
    return np.where(scripts.max(1) == 0, 0, text)[of]


def ranks(v):
    """From 0; equal values share the mean of theirs."""
    order = np.argsort(v, kind="stable")
    s, r = v[order], np.empty(len(v))
    left = np.searchsorted(s, s, side="left")
    r[order] = (left + np.searchsorted(s, s, side="right") - 1) / 2
    return r


def pearson(x, y):
    x, y = x - x.mean(), y - y.mean()
    d = math.sqrt((x * x).sum() * (y * y).sum())
    return float((x * y).sum() / d) if d > 0 else 0.0


def check_relation(name, r, margin, t, prev, picked, block):
    p = t["logprob"].astype(float)
    ok = (prev >= 0) & ~np.isnan(p)
    ok[ok] &= np.isfinite(margin[prev[ok]])
    at, y = prev[ok], -p[ok]
    order = np.argsort(at, kind="stable")
    at, y = at[order], y[order]
    x = margin[at]
    same(name + " pairs", r["pairs"], len(x))
    rx, ry = ranks(x), ranks(y)
    parts = [np.flatnonzero(at // block == b) for b in range(picked.shape[1])]
    again = [pearson(*(v[np.concatenate([parts[b] for b in row])] for v in (rx, ry)))
             for row in picked]
    check_spanned(name + " rho", r["rho"], pearson(rx, ry), again)
    c = rx - rx.mean()
    for k, part in (("least", c < -len(c) / 4), ("largest", c > len(c) / 4)):
        same(f"{name} perplexity {k}", r[f"perplexity_{k}"],
             math.exp(y[part].mean()) if part.any() else 0.0)


def top(scores, n):
    return np.argsort(-scores, kind="stable")[:n]


def check_trace(report, head, t):
    n = len(t["token"])
    same("tokens", report["tokens"], n)
    block = block_of(n)
    blocks = -(-n // block)
    picked = draws(SAMPLES * blocks, blocks).reshape(SAMPLES, blocks)
    last, prev = {}, np.full(n, -1)
    for i in range(n):
        s = int(t["sequence"][i])
        if s in last and t["position"][last[s]] + 1 == t["position"][i]:
            prev[i] = last[s]
        last[s] = i
    bins = np.searchsorted([16, 64, 256, 1024], t["position"], side="right")
    factors = {"class": t["class"].astype(int), "role": t["role"].astype(int), "position": bins,
               "half": (np.arange(n) >= n // 2).astype(int)}
    if head["moetop_routing"] > 1:
        spoken = languages(t)
        factors["script"] = t["script"].astype(int) - 1
        factors["language"] = spoken - 1
        names = ["unknown"] + STOPWORDS[1:] + SCRIPTS
        for i, k in enumerate(np.bincount(spoken)):
            same("language " + names[i], report["languages"].get(names[i], 0), int(k))
    else:
        factors["script"] = factors["language"] = np.full(n, -1)
    if "logprob" in t:
        same("perplexity", report["perplexity"],
             math.exp(-np.nanmean(t["logprob"].astype(float))))
    all_tests, before = [], None
    for r in report["layers"]:
        l, E, K = r["layer"], head["routed"][r["layer"]], head["used"][r["layer"]]
        x = t["experts"][:, l, :K].astype(int)
        hot = np.zeros((n, E + 1))
        np.put_along_axis(hot, np.where(x >= 0, x, E), 1, axis=1)
        hot = hot[:, :E]
        counts = hot.sum(0)
        name = f"layer {l}"
        for a, b in zip(r["counts"], counts):
            same(name + " counts", a, b)
        sums = np.array([hot[i * block:(i + 1) * block].sum(0) for i in range(blocks)])
        again = sums[picked].sum(1)
        check_spanned(name + " entropy", r["entropy_bits"], entropy(counts),
                      [entropy(c) for c in again])
        check_spanned(name + " gini", r["gini"], gini(counts), [gini(c) for c in again])
        check_spanned(name + " max/mean", r["max_mean"], counts.max() / counts.mean(),
                      [c.max() / c.mean() for c in again])
        same(name + " entropy share", r["entropy_share"], entropy(counts) / math.log2(E))
        same(name + " unused", r["unused"], float((counts == 0).mean()))
        same(name + " follow", r["follow"], int((prev >= 0).sum()))
        kept = (hot[prev >= 0] * hot[prev[prev >= 0]]).sum()
        same(name + " kept", r["persistence"], kept / max(1, (prev >= 0).sum() * K))
        same(name + " kept by chance", r["persistence_chance"], ((counts / n)**2).sum() / K)
        same(name + " drift", r["drift_bits"], js(hot[:n // 2].sum(0), hot[n // 2:].sum(0)))
        pairs = hot.T @ hot
        for p in r["pairs"]:
            expected = counts[p["a"]] * counts[p["b"]] / n
            same(name + " pair", p["count"], pairs[p["a"], p["b"]])
            same(name + " pair expected", p["expected"], expected)
            same(name + " pair lift", p["lift"], pairs[p["a"], p["b"]] / expected)
        upper = np.triu(pairs, 1)
        lifts = np.sort((upper * n / np.maximum(np.outer(counts, counts), 1))[upper >= 5])[::-1]
        for p, lift in zip(r["pairs"], lifts):
            same(name + " lifts", p["lift"], lift)
        if before is not None:
            bx, bhot, bl = before
            same(name + " from", r["ahead"]["from_layer"], bl)
            together, of = bhot[::2].T @ hot[::2], bhot[::2].sum(0)
            usual = top(hot[::2].sum(0), K)
            step = max(1, -(-(n // 2) // 20000))
            right = chance = tested = 0
            for i in range(1, n, 2 * step):
                scores = np.zeros(E)
                for a in bx[i]:
                    if a >= 0 and of[a] > 0:
                        scores += together[a] / of[a]
                right += hot[i, top(scores, K)].sum()
                chance += hot[i, usual].sum()
                tested += 1
            same(name + " told tokens", r["ahead"]["tokens"], tested)
            same(name + " told", r["ahead"]["share"], right / max(1, tested * K))
            same(name + " told by chance", r["ahead"]["chance"], chance / max(1, tested * K))
        before = (x, hot, l)
        for f, groups in factors.items():
            all_tests.append((f"{name} {f}", r["tests"][f],
                              chi_square(crossed(x[:, 0], groups, E))))
        if t["scores"] is not None:
            s = t["scores"][:, l, :E].astype(float)
            margin = (np.where(hot > 0, s, np.inf).min(1) - np.where(hot > 0, -np.inf, s).max(1))
            if "margin_surprise" in r:
                check_relation(f"{name} relation", r["margin_surprise"], margin, t, prev, picked,
                               block)
            elif "logprob" in t:
                same(f"{name} relation", 0.0, 1.0)
            margin = margin[np.isfinite(margin)]
            for k, v in (("mean", margin.mean()), ("median", np.percentile(margin, 50)),
                         ("p10", np.percentile(margin, 10))):
                same(f"{name} margin {k}", r["margin"][k], float(v))
    holm([o for _, _, o in all_tests if o])
    for what, theirs, ours in all_tests:
        check_test(what, theirs, ours)


def check_placement(r, head, t):
    """Calls that the most used experts, the first of each layer and a cache answer."""
    layers = [l for l in range(head["layers"]) if head["used"][l]]
    counts = {l: np.bincount(v[v >= 0], minlength=head["routed"][l])
              for l, v in ((l, t["experts"][:, l].astype(int)) for l in layers)}
    each = np.sort(np.concatenate([counts[l] for l in layers]))[::-1]
    for row in r["rows"]:
        k = row["experts"]
        same(f"hot {k} of a layer", row["hot_hits"], each[:k * len(layers)].sum() / each.sum())
        same(f"the first {k}", row["first_hits"],
             sum(counts[l][:k].sum() for l in layers) / each.sum())
        held, hits = {}, 0
        for i in range(len(t["token"])):
            for l in layers:
                for x in t["experts"][i, l, :head["used"][l]]:
                    if x < 0:
                        continue
                    key = (l, int(x))
                    hits += held.pop(key, False)
                    held[key] = True
                    if len(held) > k * len(layers):
                        del held[next(iter(held))]
        same(f"a cache of {k} a layer", row["cache_hits"], hits / each.sum())


def check_comparison(report, heads, traces):
    a, b = traces
    places = [{(int(s), int(p)): i for i, (s, p) in enumerate(zip(t["sequence"], t["position"]))}
              for t in traces]
    common = [(places[0][k], places[1][k]) for k in sorted(places[0].keys() & places[1].keys())]
    common = np.array([(i, j) for i, j in common if a["token"][i] == b["token"][j]])
    n = len(common)
    same("common tokens", report["common_tokens"], n)
    block = block_of(n)
    blocks = -(-n // block)
    picked = draws(SAMPLES * blocks, blocks).reshape(SAMPLES, blocks) if n else None
    tests = []
    for r in report["layers"]:
        l = r["layer"]
        E, K = heads[0]["routed"][l], heads[0]["used"][l]
        x, y = (t["experts"][:, l, :K].astype(int) for t in traces)
        counts = [np.bincount(v[v >= 0], minlength=E).astype(float) for v in (x, y)]
        name = f"comparison layer {l}"
        same(name + " divergence", r["divergence_bits"], js(*counts))
        table = np.array([np.bincount(v[:, 0][v[:, 0] >= 0], minlength=E) for v in (x, y)])
        tests.append((name, r["test"], chi_square(table.astype(float))))
        if not n:
            continue
        eq = (x[common[:, 0]][:, :, None] == y[common[:, 1]][:, None, :]) & \
            (x[common[:, 0]][:, :, None] >= 0)
        each = eq.sum((1, 2))
        sums = np.array([(each[i * block:(i + 1) * block].sum(),
                          len(each[i * block:(i + 1) * block]) * K) for i in range(blocks)])
        again = sums[picked].sum(1)
        check_spanned(name + " overlap", r["overlap"], each.sum() / (n * K),
                      again[:, 0] / again[:, 1])
        same(name + " first", r["same_first"], float(eq[:, 0, 0].mean()))
        wa = a["weights"][common[:, 0], l, :K].astype(float)[:, :, None]
        wb = b["weights"][common[:, 1], l, :K].astype(float)[:, None, :]
        same(name + " weights", r["weight_difference"],
             float((np.abs(wa - wb) * eq).sum() / max(1, eq.sum())))
    holm([o for _, _, o in tests if o])
    for what, theirs, ours in tests:
        check_test(what, theirs, ours)


def main():
    report = json.load(open(sys.argv[1]))
    read_in = [read(p) for p in sys.argv[2:]]
    for r, (head, t) in zip(report["traces"], read_in):
        check_trace(r, head, t)
        if "rows" in r["placement"]:
            check_placement(r["placement"], head, t)
    if "comparison" in report:
        check_comparison(report["comparison"], [h for h, _ in read_in], [t for _, t in read_in])
    print(f"{checked} figures, largest difference {worst:.1e}")
    return 0 if worst <= 1e-6 and checked else 1


if __name__ == "__main__":
    sys.exit(main())
