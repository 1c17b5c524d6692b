#!/usr/bin/env python3
"""Every family, what its numbers were held against and how far off they are, as rows of a table of moetop-models(7).

    sh tests/run.sh build/release check_families; family_table.py build/release/tests/check_families.log [--speed FILE]

A row: the family, how many checkpoints as folders and how many as GGUF files, the largest difference of a logit over all of them, all kernel
sets and every way to divide a prompt (greedy tokens and routing are the official code's, or the suite fails). --speed: lines
"FAMILY PROMPT-RATIO DECODE-RATIO" of a comparison with another program; "-" where it does not open the file.
"""
import argparse
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
LINE = re.compile(r"^(\w+): \S*?(families|ggufs)/([^/,]+)\S*, (\w+): whole (\S+) chunks (\S+) steps (\S+) ")


def order():
    rows = (HERE / "../../engine/model/families/registry.def").read_text()
    return re.findall(r"(?m)^FAMILY\((\w+)\)", rows)


def measured(log):
    worst, seen, sets = {}, {}, set()
    for line in log.read_text(errors="replace").splitlines():
        found = LINE.match(line)
        if not found:
            continue
        family, kind, name, kernels, *errors = found.groups()
        worst[family] = max(worst.get(family, 0.0), *map(float, errors))
        seen.setdefault(family, {"families": set(), "ggufs": set()})[kind].add(name)
        sets.add(kernels)
    return worst, seen, sets


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("log", type=Path)
    p.add_argument("--speed", type=Path)
    a = p.parse_args()
    worst, seen, sets = measured(a.log)
    speed = {}
    if a.speed:
        for line in a.speed.read_text().splitlines():
            family, prompt, decode = line.split()
            speed[family] = (prompt, decode)
    if not worst:
        p.error(f"{a.log}: no line of a comparison: is it check_families' log?")
    for family in order():
        if family not in worst:
            print(f'.\\" {family}: not in the log')
            continue
        folders, ggufs = (len(seen[family][k]) for k in ("families", "ggufs"))
        tried = f"{folders}" + (f" + {ggufs} GGUF" if ggufs else "")
        row = [family, tried, f"{worst[family]:.1e}"]
        if a.speed:
            row += speed.get(family, ("", ""))
        print("@".join(row))
    print('.\\" kernels: ' + ", ".join(sorted(sets)))


if __name__ == "__main__":
    main()
