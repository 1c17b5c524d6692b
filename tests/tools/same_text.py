#!/usr/bin/env python3
"""The proof that drafts change no text: many prompts, answered without drafts one at a time, then
again by each drafter, on each placement, four at a time, and once more one at a time; every answer
has to be the same to the byte. Half of the prompts are greedy, half sampled with a seed of their own;
a third repeat what stands in the conversation (there drafts are right), the others invent.

    tests/tools/same_text.py [--moetop ./moetop] [-m MODEL] [--prompts 500] [--tokens 64]
                             [--places cpu,layers:4,experts-gpu] [--placed 60] [-- FLAGS]

FLAGS go to every run of moetop (-t 2, --medusa FILE). Prints a line a setting and exits with 1 where
an answer differs."""
import argparse
import json
import subprocess
import sys
import time

ANIMALS = ["fox", "duck", "cow", "cat", "dog", "hen", "pig", "bear", "mouse", "frog", "bird", "horse"]
PLACES = ["in the forest", "on a farm", "by the river", "in a small house", "on a hill", "at the sea"]
NAMES = ["Flora", "Tom", "Mia", "Ben", "Lily", "Max", "Anna"]
STORY = ("{0} the {1} lived {2}. One day {0} saw a friend. \"Hello, {0},\" said the friend. {0} was "
         "happy. {0} the {1} and the friend played {2} all day. Then {0} went home.")


def prompts(n, tokens):
    """n lines of a batch."""
    lines = []
    for i in range(n):
        animal, place, name = ANIMALS[i % 12], PLACES[i // 12 % 6], NAMES[i // 5 % 7]
        line = {"id": i, "max_tokens": tokens, "seed": 1000 + i}
        line["temperature"] = 0 if i % 2 else (0.4, 0.8, 1.2)[i // 2 % 3]
        if i % 3 == 0:
            ask = ("Tell me that story again.", "Tell it again, but call {} Zoe.".format(name))[i // 3 % 2]
            line["messages"] = [
                {"role": "user", "content": "Tell me a story about a {}.".format(animal)},
                {"role": "assistant", "content": STORY.format(name, animal, place)},
                {"role": "user", "content": ask}]
        else:
            line["prompt"] = "Tell me a story about {} the {} {}.".format(name, animal, place)
        lines.append(json.dumps(line))
    return lines


def answers(o, lines, flags):
    """The texts, and the seconds that they took."""
    command = [o.moetop, "--batch", "-"] + (["-m", o.model] if o.model else []) + o.flags + flags
    begun = time.time()
    run = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
    if run.returncode:
        sys.exit("{}: {}".format(" ".join(command), run.stderr.strip()[-400:]))
    told = [json.loads(line) for line in run.stdout.splitlines()]
    return [(x["text"], x["completion_tokens"], x["stop_reason"]) for x in told], time.time() - begun


def compare(o, lines, plain, what, flags):
    told, seconds = answers(o, lines, flags)
    other = [i for i, x in enumerate(told) if x != plain[i]]
    print("{:<44} {:4} answers  {:6.1f} s  {}".format(
        what, len(told), seconds, "the same" if not other else "ANOTHER: lines " + str(other[:8])),
        flush=True)
    return len(other)


def main():
    own, flags = (sys.argv[1:], [])
    if "--" in own:
        own, flags = own[:own.index("--")], own[own.index("--") + 1:]
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moetop", default="./moetop")
    parser.add_argument("-m", "--model")
    parser.add_argument("--prompts", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--drafters", default="auto,lookup,ngram,eagle")
    parser.add_argument("--places", default="cpu,layers:4,experts-gpu")
    parser.add_argument("--placed", type=int, default=60, help="prompts on places beside cpu")
    o = parser.parse_args(own)
    o.flags = flags
    lines = prompts(o.prompts, o.tokens)
    plain, seconds = answers(o, lines, ["--spec-type", "none", "--parallel", "1"])
    print("{:<44} {:4} answers  {:6.1f} s  {} different texts".format(
        "without drafts, one at a time", len(plain), seconds, len({x[0] for x in plain})), flush=True)
    wrong = 0
    for place in o.places.split(","):
        some = lines if place == "cpu" else lines[:o.placed]
        for drafter in o.drafters.split(","):
            for parallel in ("4", "1"):
                if place != "cpu" and (parallel == "1" or drafter != o.drafters.split(",")[0]):
                    continue
                wrong += compare(o, some, plain,
                                 "{}, {}, {} at a time".format(drafter, place, parallel),
                                 ["--spec-type", drafter, "--parallel", parallel]
                                 + ([] if place == "cpu" else ["--place", place]))
    print("{} answers differ".format(wrong) if wrong else "no answer differs")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
