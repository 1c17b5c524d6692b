#!/usr/bin/env python3
"""Measures what a split between two sides is worth: PoCL on one core, the CPU side on another.

    overlap.py [--moetop PROGRAM] [--layers N] [--type Q4_0] [--prompt 512] [--gen 32] [--rounds 5] [--places LIST] [MODEL.gguf]

Without MODEL a synthetic phi-tiny of N layers is written to a temporary folder. Every round runs cpu, gpu and each of the
placements once, one after the other; a row has the medians of all rounds. "of the sum": of what both sides alone read on their
cores, "of the better": of what the better side alone generates. "expected" is what moetop's cost model said in --stats.
The CPU side has -t 1, which takes the first core of the machine; PoCL has one thread on core --core (default 1). Priority is
raised where that is allowed, so that other programs disturb less. Needs Python 3.9, PoCL and the program. Exit code 1: a text differs.
"""
import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEXT = " ".join(f"fox{i} dog hill" for i in range(120))


def prepare(core):
    os.setsid()
    try:
        Path("/proc/self/autogroup").write_text("-19")
        os.nice(-10)
    except OSError:
        pass
    os.sched_setaffinity(0, {core})  # -t 1 moves the CPU side's thread to the first core; PoCL's stays


def run(a, *arguments):
    env = dict(os.environ, POCL_CPU_MAX_CU_COUNT="1", POCL_MAX_PTHREAD_COUNT="1")
    done = subprocess.run([a.moetop, "-m", a.model, "--device", a.device, "--spec-type", "none", "-t", "1", *arguments], env=env,
                          capture_output=True, text=True, preexec_fn=lambda: prepare(a.core))
    if done.returncode:
        sys.exit(f"{' '.join(arguments)[:200]}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done


def rates(a, places, folder):
    """Medians by (test, placement) of all rounds."""
    found = {}
    for _ in range(a.rounds):
        result = folder / "bench.json"
        run(a, "--bench", "--arms", ";".join(f"--place {p}" for p in places), "--bench-prompt", str(a.prompt), "--bench-gen", str(a.gen),
            "--bench-repetitions", "1", "--bench-output", str(result))
        for i, r in enumerate(json.loads(result.read_text())):
            test = "pp" if r["n_prompt"] else "tg"
            found.setdefault((test, r["arm"].split()[-1]), []).append(r["median_ts"])
    return {k: statistics.median(v) for k, v in found.items()}


def told(a, place):
    """The text's hash, and what the cost model expected."""
    done = run(a, "--place", place, "--stats", "-n", "16", "-c", "2048", "--temp", "0", "-p", TEXT)
    line = re.search(r"expected: (.*)", done.stderr)
    return hashlib.md5(done.stdout.encode()).hexdigest()[:8], line.group(1) if line else "-"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", nargs="?")
    p.add_argument("--moetop", default=str(HERE.parent.parent / "moetop"))
    p.add_argument("--device", default="opencl:0")
    p.add_argument("--core", type=int, default=1)
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("--type", default="Q4_0")
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--gen", type=int, default=32)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--places", default="balanced,experts-gpu,attention-gpu")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        folder = Path(folder)
        if not a.model:
            a.model = str(folder / "model.gguf")
            subprocess.run([sys.executable, HERE / "synthetic_gguf.py", "phi-tiny", a.model, "--type", a.type, "--layers", str(a.layers),
                            "--vocab", "8000"], check=True, stdout=subprocess.DEVNULL)
        places = ["cpu", "gpu", *a.places.split(",")]
        found = rates(a, places, folder)
        said = {place: told(a, place) for place in places}
    total = found["pp", "cpu"] + found["pp", "gpu"]
    better = max(found["tg", "cpu"], found["tg", "gpu"])
    print(f"| {'placement':<16} | prompt t/s | of the sum | tokens t/s | of the better | text     | expected |")
    print(f"| {'-' * 16} | ---------: | ---------: | ---------: | ------------: | -------- | -------- |")
    for place in places:
        pp, tg = found["pp", place], found["tg", place]
        print(f"| {place:<16} | {pp:10.1f} | {pp / total:10.2f} | {tg:10.1f} | {tg / better:13.2f} | {said[place][0]} | {said[place][1]} |")
    return len({text for text, _ in said.values()}) > 1


if __name__ == "__main__":
    sys.exit(main())
