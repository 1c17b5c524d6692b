#!/usr/bin/env python3
"""What drafts gain and lose on real text, by turns against none; the texts have to be the same.

    speculation.py MOETOP MODEL.gguf [--drafts "--spec-type lookup" …] [--kinds repeat,story …]
                   [--each 6] [--turns 3] [-n 160] [--args "-t 2"] [--json OUT]

24 prompts, six of a kind: a story in the conversation that is to be told again (repeat), told again
with another name (rename), told with every sentence on its own line (lines), and a new one (story).
The stories are the model's own: its first answers, made once and kept beside the model's file
(MODEL.stories.json). A turn is a batch without drafts and one of each arm; a prompt's figure is the
median of its turns, each against the batch without drafts of the same turn. A batch begins with
stories that are not counted, so that weights are packed and passes' times known (--warm).
"""
import argparse, json, os, shlex, statistics, subprocess, sys, tempfile

ABOUT = [("a fox", "Lily", "Nora"), ("a boat", "Tim", "Oscar"), ("a red ball", "Mia", "Clara"),
         ("a lost cat", "Ben", "Victor"), ("a big tree", "Sara", "Ella"), ("the rain", "Tom", "Hugo")]
NEW = ["a frog who wants to fly", "two friends and a cake", "a girl who finds a key",
       "a dog at the beach", "a bear who cannot sleep", "a boy and his kite"]


def run(a, lines, args, n=None):
    """The answers of a batch, in order."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as f:
        for line in lines:
            f.write(json.dumps(line) + "\n")
    try:
        p = subprocess.run([a.moetop, "-m", a.model, "--batch", f.name, "--temp", str(a.temp), "--seed", "7",
                            "-n", str(n or a.n)] + shlex.split(a.args) + args,
                           capture_output=True, text=True)
    finally:
        os.unlink(f.name)
    if p.returncode:
        sys.exit(f"{' '.join(args)}: {p.stderr.strip()}")
    return [json.loads(x) for x in p.stdout.splitlines()]


def stories(a):
    kept = a.model + ".stories.json"
    if not os.path.exists(kept):
        asked = [{"id": i, "prompt": f"Tell me a story about {what} and {who}."}
                 for i, (what, who, _) in enumerate(ABOUT)]
        json.dump([x["text"] for x in run(a, asked, ["--spec-type", "none"], 240)], open(kept, "w"))
    return json.load(open(kept))


def prompts(a):
    out = []
    for i, ((what, who, other), text) in enumerate(zip(ABOUT, stories(a))):
        before = [{"role": "user", "content": f"Tell me a story about {what} and {who}."},
                  {"role": "assistant", "content": text}]
        for kind, ask in (("repeat", "Tell me that story again."),
                          ("rename", f"Tell it again, but call {who} {other}."),
                          ("lines", "Put every sentence on its own line.")):
            out.append((kind, {"messages": before + [{"role": "user", "content": ask}]}))
        out.append(("story", {"prompt": f"Tell me a story about {NEW[i]}."}))
    seen = {}
    for kind, _ in out:
        seen[kind] = 0
    chosen = []
    for kind, line in sorted(out, key=lambda x: list(seen).index(x[0])):
        if kind in a.kinds.split(",") and seen[kind] < a.each:
            seen[kind] += 1
            chosen.append((kind, dict(line, id=len(chosen))))
    return chosen


def rate(x):
    return x["timings"]["decode_tok_s"]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("moetop"); ap.add_argument("model")
    ap.add_argument("--drafts", action="append"); ap.add_argument("--kinds", default="repeat,rename,lines,story")
    ap.add_argument("--each", type=int, default=6); ap.add_argument("--turns", type=int, default=3)
    ap.add_argument("-n", type=int, default=160); ap.add_argument("--args", default="-t 2")
    ap.add_argument("--warm", type=int, default=2)
    ap.add_argument("--temp", type=float, default=0); ap.add_argument("--json")
    a = ap.parse_args()
    arms = a.drafts or ["--spec-type auto"]
    asked = prompts(a)
    warm = [{"id": -1 - i, "prompt": f"Tell me a story about {NEW[i % len(NEW)]}."}
            for i in range(a.warm)]
    lines = [x[1] for x in asked]
    ratios = {arm: [[] for _ in lines] for arm in arms}
    changed = 0
    for _ in range(a.turns):
        plain = run(a, warm + lines, ["--spec-type", "none"])[a.warm:]
        for arm in arms:
            for i, (x, y) in enumerate(zip(plain, run(a, warm + lines, shlex.split(arm))[a.warm:])):
                changed += x["text"] != y["text"]
                ratios[arm][i].append(rate(y) / rate(x))
    for arm in arms:
        of = [statistics.median(r) for r in ratios[arm]]
        print(arm)
        for kind in dict.fromkeys(k for k, _ in asked):
            mine = [r for r, (k, _) in zip(of, asked) if k == kind]
            print(f"  {kind:8} median {statistics.median(mine):.2f}  worst {min(mine):.3f}  "
                  f"best {max(mine):.2f}")
        print(f"  worst prompt {min(of):.3f}, texts that changed: {changed}")
    if a.json:
        json.dump({"prompts": asked, "ratios": ratios, "changed": changed}, open(a.json, "w"), indent=1)
    return changed != 0


sys.exit(main())
