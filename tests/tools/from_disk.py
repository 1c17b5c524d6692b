#!/usr/bin/env python3
"""Decoding with a model that is larger than the memory it may use, beside llama.cpp's mmap under the same limit and what the disk allows.

    from_disk.py MODEL [--times 1.5,3] [--turns 3] [--tokens 24] [--threads 2] [--moetop ./moetop] [--peer LLAMA_BENCH] [--peer-model TWIN] [--peer-tokens 8] [--prompt TEXT]

For each factor a memory control group (version 1 or 2; needs root) of the file's size divided by it; by turns, the page cache dropped before each: the disk's
rate for random reads of the size of an expert's matrix (O_DIRECT, the best of 1, 2, 4 and 8 at a time), moetop, the peer (llama-bench, mapped). The last column: moetop's rate
times the bytes that a token missed, divided by the disk's rate before and after (mean). The bytes missed a token are the difference of two runs of one and
of so many tokens; both must fit in nothing but the limit. MODEL answers with real text, for
routing decides what is missed; TWIN is a file of the same shape that the peer opens where it cannot open MODEL (synthetic_gguf.py phi-tiny-llama).
Medians over the turns, every turn on its own line. Not run by make test: it takes minutes and an idle machine. Needs nothing but Python 3.9.
"""
import argparse
import json
import mmap
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

GROUP = "moetop-from-disk"


class Group:
    """A memory control group with a limit."""
    def __init__(self, limit):
        v1 = "/sys/fs/cgroup/memory"
        self.path = os.path.join(v1 if os.path.isdir(v1) else "/sys/fs/cgroup", GROUP)
        os.makedirs(self.path, exist_ok=True)
        self.put("memory.limit_in_bytes" if os.path.isdir(v1) else "memory.max", limit)

    def put(self, name, value):
        with open(os.path.join(self.path, name), "w") as f:
            f.write(str(value))

    def run(self, command):
        enter = lambda: self.put("cgroup.procs", os.getpid())      # noqa: E731
        return subprocess.run(command, preexec_fn=enter, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def remove(self):
        os.rmdir(self.path)


def drop_cache():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3")


def read_rate(path, size, threads, seconds=1.0):
    """Bytes a second of random reads past the page cache."""
    total, fd, end = [0] * threads, os.open(path, os.O_RDONLY | os.O_DIRECT), time.monotonic() + seconds
    blocks = (os.fstat(fd).st_size - size) // 4096

    def read(i):
        buffer, rng = mmap.mmap(-1, size), random.Random(time.monotonic_ns() + i)
        while time.monotonic() < end:
            total[i] += os.preadv(fd, [buffer], rng.randrange(blocks) * 4096)

    start = time.monotonic()
    workers = [threading.Thread(target=read, args=(i,)) for i in range(threads)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    os.close(fd)
    return sum(total) / (time.monotonic() - start)


def disk_rate(path, size):
    return max(read_rate(path, size, n) for n in (1, 2, 4, 8))


def ours(group, a, n):
    """Tokens a second of decoding, bytes missed in all, bytes of the cache and hit rate."""
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        done = group.run([a.moetop, "-m", a.model, "-p", a.prompt, "-n", str(n), "--ignore-eos", "--temp", "0", "-t", str(a.threads), "-c", str(a.context), "--device", "none",
                          "--spec-type", "none", "--stats-json", f.name])
        if done.returncode:
            sys.exit("moetop: exit %d: %s" % (done.returncode, done.stderr.strip()[-400:]))
        with open(f.name) as written:      # another file than f: it was renamed
            j = json.load(written)
    c = j.get("expert_cache") or sys.exit("moetop holds the model in memory: the limit is none")
    return j["time"]["decode_tok_s"], c["missed_bytes"], c["bytes"], c["hit_rate"]


def peer(group, a):
    done = group.run([a.peer, "-m", a.peer_model or a.model, "-p", "0", "-n", str(a.peer_tokens), "-r", "1", "--no-warmup", "-t", str(a.threads), "-lm", "mmap", "-o", "json"])
    if done.returncode:
        sys.exit("%s: exit %d: %s" % (a.peer, done.returncode, done.stderr.strip()[-400:]))
    return json.loads(done.stdout)[-1]["avg_ts"]


def turn(group, a, times):
    drop_cache()
    before = disk_rate(a.model, a.bytes)
    drop_cache()
    _, missed, _, _ = ours(group, a, 1)
    drop_cache()
    rate, all_missed, cache, hits = ours(group, a, a.tokens + 1)
    drop_cache()
    disk = (before + disk_rate(a.model, a.bytes)) / 2
    drop_cache()
    other = peer(group, a) if a.peer else None
    token = (all_missed - missed) / a.tokens
    row = {"times": times, "moetop": rate, "peer": other, "disk": disk, "missed": token, "cache": cache, "hits": hits, "share": rate * token / disk}
    print("  %.1fx: moetop %.2f tok/s%s; disk %.2f GB/s, %.0f MB missed a token, cache %.0f MiB, hit rate %.2f: %.0f %% of what the disk allows" %
          (times, rate, "" if other is None else ", peer %.2f" % other, disk / 1e9, token / 1e6, cache / 2**20, hits, 100 * row["share"]), flush=True)
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--times", default="1.5,3")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--tokens", type=int, default=24)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--context", type=int, default=512)
    p.add_argument("--bytes", type=int, default=2 << 20, help="of an expert's matrix")
    p.add_argument("--moetop", default="./moetop")
    p.add_argument("--peer")
    p.add_argument("--peer-model")
    p.add_argument("--peer-tokens", type=int, default=8)
    p.add_argument("--prompt", default="Tell me a story about a fox.")
    a = p.parse_args()
    a.bytes = a.bytes // 4096 * 4096
    rows = []
    for _ in range(a.turns):
        for times in map(float, a.times.split(",")):
            group = Group(int(os.path.getsize(a.model) / times))
            try:
                rows.append(turn(group, a, times))
            finally:
                group.remove()
    for times in sorted({r["times"] for r in rows}):
        of = [r for r in rows if r["times"] == times]
        middle = {k: statistics.median(r[k] for r in of) for k in ("moetop", "share")}
        other = statistics.median(r["peer"] for r in of) if a.peer else None
        print("%.1fx: moetop %.2f tok/s%s, %.0f %% of what the disk allows (%d turns)" %
              (times, middle["moetop"], "" if other is None else ", peer %.2f (%.1f times)" % (other, middle["moetop"] / other), 100 * middle["share"], len(of)))


if __name__ == "__main__":
    main()
