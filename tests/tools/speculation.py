#!/usr/bin/env python3
"""What drafts gain and lose on real text, by turns against none; the texts have to be the same.

    speculation.py MOETOP MODEL.gguf [--drafts lookup,model] [--k auto] [--kinds repeat,story …]
                   [--each 6] [--turns 3] [-n 160] [--args "-t 2 -md FILE"] [--json OUT]

24 prompts, six of a kind: a story in the conversation that is to be told again (repeat), told again
with another name (rename), told with every sentence on its own line (lines), and a new one (story).
The stories are the model's own: its first answers, made once and kept beside the model's file
(MODEL.stories.json). All is one run of --spec-sweep, so that an answer stands seconds beside the same
one without drafts (runs that follow each other meet another speed of the memory); a prompt's figure
is the median of its turns. Bytes: what a token's passes read against those without drafts, which the machine's moods do not change. --k: auto, as many drafts as pay, or numbers; each is an arm.
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


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("moetop"); ap.add_argument("model")
    ap.add_argument("--drafts", default="lookup"); ap.add_argument("--k", default="auto")
    ap.add_argument("--kinds", default="repeat,rename,lines,story")
    ap.add_argument("--each", type=int, default=6); ap.add_argument("--turns", type=int, default=3)
    ap.add_argument("-n", type=int, default=160); ap.add_argument("--args", default="-t 2")
    ap.add_argument("--temp", type=float, default=0); ap.add_argument("--json")
    a = ap.parse_args()
    asked = prompts(a)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as f:
        f.writelines(json.dumps(line) + "\n" for _, line in asked)
    try:
        p = subprocess.run([a.moetop, "-m", a.model, "--spec-sweep", f"K={a.k} drafts={a.drafts}", "--bench-prompts",
                            f.name, "-r", str(a.turns), "-n", str(a.n), "--temp", str(a.temp), "--seed", "7", "-o", "json"]
                           + shlex.split(a.args), stdout=subprocess.PIPE, text=True)
    finally:
        os.unlink(f.name)
    if not p.stdout:
        sys.exit(p.returncode or 1)
    samples = [x for x in json.loads(p.stdout)["samples"] if x["drafts"] != "none"]
    for arm in dict.fromkeys((x["drafts"], "auto" if x["adaptive"] else x["k"]) for x in samples):
        mine = [x for x in samples if (x["drafts"], "auto" if x["adaptive"] else x["k"]) == arm]
        print("{}, K {}".format(*arm))
        worst, bytes_ = [], []
        for kind in dict.fromkeys(k for k, _ in asked):
            of = [statistics.median(r) for r in ([x["against_none"] for x in mine if x["prompt"] == i + 1]
                                                 for i, (k, _) in enumerate(asked) if k == kind) if r]
            if of:
                read = [statistics.median(x["bytes_against_none"] for x in mine if x["prompt"] == i + 1)
                        for i, (k, _) in enumerate(asked) if k == kind and any(x["prompt"] == i + 1 for x in mine)]
                print(f"  {kind:8} median {statistics.median(of):.2f}  worst {min(of):.3f}  best {max(of):.2f}  "
                      f"prompts {len(of)}  bytes of none's {statistics.median(read):.3f}, most {max(read):.3f}")
                worst.append(min(of))
                bytes_.append(max(read))
        print(f"  worst prompt {min(worst):.3f}, most bytes {max(bytes_):.3f}, texts that changed: {sum(not x['same_text'] for x in mine)}")
    if a.json:
        json.dump({"prompts": asked, "samples": samples}, open(a.json, "w"), indent=1)
    return p.returncode


sys.exit(main())
