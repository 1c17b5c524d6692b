#!/usr/bin/env python3
"""Measures a GPU beside the CPU of the same machine in about five minutes and prints a table to paste.

    gpu_report.py [--moetop PROGRAM] [--device opencl:0] [--to FOLDER] [--small] [MODEL ...]

For each model of MODELS below (or those named): writes it with synthetic_gguf.py into FOLDER (default: a temporary one, which
needs 5 GB), runs `--bench --arms "--place cpu;--place gpu"` in turn, and compares the texts of both placements byte by
byte. "wanted" is what the project aims at on an H100 or H200, "predicted" what `--microbench h200` says of one. Behind the
table: each model's kernels, as `--microbench` measures them, the form of a prompt's kernels in their shapes ("engine": an int8
matrix engine), and what the device said when it was opened: which kernels it does without because they are slower or wrong
there. --small: narrow models, to try the script itself.
Needs nothing but Python 3.9 and the program. Exit code 1: a text differs, or the device was refused.
"""
import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# name: shape and options of synthetic_gguf.py; tests as --bench takes them; wanted tok/s of each test on the GPU
MODELS = {
    "phi-tiny Q4_0": ("phi-tiny", ["--type", "Q4_0"], {"pp512": 12000, "tg64": 500}),
    "phi-tiny Q8_0": ("phi-tiny", ["--type", "Q8_0"], {"pp512": None, "tg64": 400}),
    "phi-tiny Q4_K_M": ("phi-tiny", ["--type", "Q4_K_M"], {"pp512": None, "tg64": 400}),
    "qwen3-30b-a3b Q4_K_M": ("qwen3-30b-a3b", ["--type", "Q4_K_M", "--layers", "12"], {"pp512": 20000, "tg64": 600}),
    "gpt-oss-20b MXFP4": ("gpt-oss-20b", ["--type", "MXFP4", "--layers", "8"], {"pp512": None, "tg64": 700}),
}
PROMPT = "Tell me about a fox and a dog in the forest."


def run(command, said=None):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    if said is not None:
        said += [line for line in done.stderr.splitlines() if "OpenCL: " in line and ":   " not in line]
    return done.stdout


def rates(a, model, folder):
    """tok/s of each (test, placement)."""
    result = folder / "bench.json"
    run([a.moetop, "-m", model, "--device", a.device, "--spec-type", "none", "--bench", "--arms", "--place cpu;--place gpu",
         "--bench-prompt", "512", "--bench-gen", "64", "--bench-repetitions", "3", "--bench-output", result])
    return {(f"pp{r['n_prompt']}" if r["n_prompt"] else f"tg{r['n_gen']}", r["arm"].split()[-1]): r["median_ts"]
            for r in json.loads(result.read_text())}


def text(a, model, placement):
    out = run([a.moetop, "-m", model, "--device", a.device, "--place", placement, "--temp", "0.9", "--seed", "7", "-n", "48",
               "-p", PROMPT])
    return hashlib.md5(out.encode()).hexdigest()[:8]


def kernels(a, model):
    """--microbench's tables of the device, and what was said when it was opened."""
    said = []
    out = run([a.moetop, "-m", model, "--device", a.device, "--microbench"], said)
    if "\nOpenCL kernels" not in out:
        sys.exit(f"--microbench says nothing of {a.device}:\n{out[-2000:]}")
    return "\n".join([out[out.index("\nOpenCL kernels"):].strip(), "", *said]).strip()


def predicted(a, model):
    """tok/s that --microbench h200 gives for a token and for a prompt; with --small there may be no prompt as long."""
    out = run([a.moetop, "-m", model, "--microbench", "h200"])
    found = {}
    for part in out.split("(predicted):")[:-1]:
        rest = out[out.index(part) + len(part):]
        rate = re.search(r"(\d+) tokens/s[^;]*(?:; (\d+) if)?", rest)
        what = part.rstrip().splitlines()[-1]
        test = "pp512" if what.startswith("A prompt of 512") else "tg64" if what.startswith("One token behind 256") else None
        if rate and test:
            found[test] = "-".join(filter(None, rate.groups()))
    return found


def measure(a, name, folder, tables):
    shape, options, wanted = MODELS[name]
    model = folder / "model.gguf"
    run([sys.executable, HERE / "synthetic_gguf.py", shape, model, *options, *(["--small"] if a.small else [])])
    found, times = rates(a, model, folder), predicted(a, model)
    texts = {p: text(a, model, p) for p in ("cpu", "gpu", "experts-gpu")}
    same = len(set(texts.values())) == 1
    for test, aim in wanted.items():
        cpu, gpu = found[test, "cpu"], found[test, "gpu"]
        print(f"| {name} | {test} | {cpu:.0f} | {gpu:.0f} | {gpu / cpu:.2f} | {aim or ''} | {times.get(test, '')} | {'same' if same else texts} |", flush=True)
    tables.append(f"## {name}\n\n{kernels(a, model)}")
    model.unlink()
    return same


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--moetop", default="./moetop")
    p.add_argument("--device", default="opencl:0")
    p.add_argument("--to", type=Path)
    p.add_argument("--small", action="store_true")
    p.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    a = p.parse_args()
    for name in a.models:
        if name not in MODELS:
            p.error(f"{name}: not one of {', '.join(MODELS)}")
    print("```\n" + run([a.moetop, "--list-devices"]).rstrip() + "\n```\n")
    print("| model | test | cpu tok/s | gpu tok/s | gpu / cpu | wanted | predicted | texts |\n|---|---|---:|---:|---:|---:|---:|---|", flush=True)
    with tempfile.TemporaryDirectory(dir=a.to) as folder:
        tables = []
        right = [measure(a, name, Path(folder), tables) for name in a.models or MODELS]
    print("\n" + "\n\n".join(tables))
    sys.exit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
