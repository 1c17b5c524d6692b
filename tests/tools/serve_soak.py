#!/usr/bin/env python3
"""A server under everything that clients do wrong: fuzzed HTTP and JSON, cancels, slow readers, half-open and idle
connections, beside clients that behave. Standard library only.

    serve_soak.py [--minutes 15] [--requests 100000] [--clients 12] [--seed 1] MOETOP [ARGUMENTS of moetop --serve ...]

Starts the server on a free port, and fails (exit status 1) where
- a mistake of a client's is answered by a status of 500 to 599 (but for 505, another version of HTTP), or ends the server;
- a well-formed request is not answered as it was the first time (temperature 0: the same text each time);
- half a minute after the last client has left a session is still taken, or a request waits;
- resident memory of the last quarter is more than a tenth and 16 MiB above that of the second one;
- SIGTERM does not end it with status 0.
With --models-dir a share of the requests, and of the cancels, names one of the other models of the folder, so that it
takes the place of the one that is loaded: each model must answer as it did the first time.
Where all of us were stopped for a while (a suspended machine, SIGSTOP to the whole group) the time limits of both sides
pass without anybody's fault: a request that such a pause met may end without an answer. It is counted apart; what was
answered is judged as always.
Prints one line of figures every ten seconds, and a table at the end."""
import argparse
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

CHAT = "/v1/chat/completions"
PATHS = [CHAT, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/tokenize",
         "/detokenize", "/lora-adapters", "/v1/models", "/v1/models/x", "/props", "/metrics", "/health", "/", "/../etc"]
WORDS = [None, True, False, 0, 1, -1, 2 ** 63, -2 ** 63, 1e308, -0.0, 0.5, "", "x", "\u0000", "\ud800", "\U0001f98a",
         [], {}, [[]], {"a": {}}, "a" * 5000, [0] * 300]


class Tally:
    def __init__(self):
        self.lock = threading.Lock()
        self.statuses, self.kinds, self.wrong = {}, {}, []

    def add(self, kind, status=None):
        with self.lock:
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
            if status is not None:
                self.statuses[status] = self.statuses.get(status, 0) + 1
            return sum(self.kinds.values())

    def fail(self, what):
        with self.lock:
            if len(self.wrong) < 40:
                self.wrong.append(what)


def body_of(model, r, n=None):
    return {"model": model, "messages": [{"role": "user", "content": "Tell me about animal %d." % r.randrange(40)}],
            "max_tokens": r.choice([1, 4, 16, 40]) if n is None else n, "temperature": 0.8, "seed": r.randrange(99)}


def mutate(value, r, depth=0):
    """The same with one place of it changed into something else."""
    if depth > 6 or not isinstance(value, (dict, list)) or not value or r.random() < 0.2:
        return r.choice(WORDS)
    if isinstance(value, dict):
        key = r.choice(list(value))
        out = dict(value)
        if r.random() < 0.15:
            del out[key]
        elif r.random() < 0.1:
            out[r.choice(["n", "stop", "tools", "tool_choice", "response_format", "logprobs", "top_logprobs", "seed",
                          "logit_bias", "grammar", "json_schema", "samplers", "lora", "stream", "echo", "prompt"])] = \
                r.choice(WORDS)
        else:
            out[key] = mutate(value[key], r, depth + 1)
        return out
    at = r.randrange(len(value))
    return value[:at] + [mutate(value[at], r, depth + 1)] + value[at + 1:]


def spoil(data, r):
    """Bytes with some changed, cut, doubled."""
    data = bytearray(data)
    for _ in range(r.choice([1, 1, 2, 8])):
        if not data:
            break
        at = r.randrange(len(data))
        what = r.randrange(4)
        if what == 0:
            data[at] = r.randrange(256)
        elif what == 1:
            del data[at:at + r.randrange(1, 20)]
        elif what == 2:
            data[at:at] = data[at:at + r.randrange(1, 40)]
        else:
            del data[at:]
    return bytes(data)


class Client:
    """One thread's share of what clients do."""

    def __init__(self, soak, seed):
        self.s, self.r = soak, random.Random(seed)

    def dial(self, small=False):
        c = socket.socket()
        if small:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.settimeout(60)
        c.connect(("127.0.0.1", self.s.port))
        return c

    def head(self, path, n, method="POST"):
        return ("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
                "Content-Length: %d\r\n\r\n" % (method, path, n)).encode()

    def read(self, c):
        parts = []
        while True:
            part = c.recv(65536)
            if not part:
                return b"".join(parts)
            parts.append(part)

    def ask(self, path, data, method="POST", raw=None):
        begun = time.monotonic()
        with self.dial() as c:
            try:
                c.sendall(raw if raw is not None else self.head(path, len(data), method) + data)
                if raw is not None: # what never ends is waited for by the server, not here
                    c.settimeout(1)
                text = self.read(c)
            except (ConnectionError, socket.timeout) as e:
                if isinstance(e, socket.timeout) and raw is None and not self.paused(begun):
                    self.s.tally.fail("no answer within a minute: %r" % (raw or data)[:200])
                return 0, b""
        m = re.match(rb"HTTP/1\.[01] (\d\d\d)", text)
        return (int(m.group(1)) if m else 0), text.partition(b"\r\n\r\n")[2]

    def paused(self, begun):
        if not self.s.pauses.met(begun):
            return False
        self.s.tally.add("(without an answer in a pause)")
        return True

    def any_model(self):
        return self.r.choice(self.s.models)

    def other_model(self):
        return self.good(self.any_model())

    def good(self, model=None):
        """A request that was asked before gets what it got then."""
        begun = time.monotonic()
        model, i = model or self.s.model, self.r.randrange(8)
        b = {"model": model, "max_tokens": 24, "temperature": 0,
             "messages": [{"role": "user", "content": "Tell me a story, number %d." % i}]}
        status, text = self.ask(CHAT, json.dumps(b).encode())
        if status == 429 or (status == 0 and self.paused(begun)):
            return status
        if status != 200:
            self.s.tally.fail("a good request: %d %r" % (status, text[:200]))
            return status
        answer = json.loads(text)
        said = answer["choices"][0]["message"]["content"]
        if answer["model"] != model:
            self.s.tally.fail("%s answers for %s" % (answer["model"], model))
        with self.s.tally.lock:
            before = self.s.answers.setdefault((model, i), said)
        if before != said:
            self.s.tally.fail("another answer: %r, before %r" % (said, before))
        return status

    def wrong_json(self):
        b = body_of(self.s.model, self.r)
        for _ in range(self.r.choice([1, 1, 2, 4])):
            changed = mutate(b, self.r)
            b = changed if isinstance(changed, dict) else b
        if isinstance(b.get("max_tokens", 0), (int, float)) and not 0 <= b.get("max_tokens", -1) <= 64:
            b["max_tokens"] = 8 # long answers are not what is tried here
        b["max_tokens"] = b.get("max_tokens", 8)
        if isinstance(b.get("n"), int) and b["n"] > 4:
            b["n"] = 2
        return self.never_5xx(self.r.choice(PATHS[:8]), json.dumps(b).encode())

    def wrong_bytes(self):
        return self.never_5xx(self.r.choice(PATHS[:8]), spoil(json.dumps(body_of(self.s.model, self.r, 4)).encode(), self.r))

    def wrong_http(self):
        data = json.dumps(body_of(self.s.model, self.r, 4)).encode()
        raw = spoil(self.head(self.r.choice(PATHS), len(data), self.r.choice(["POST", "GET", "PUT", "HEAD"])), self.r)
        status, text = self.ask(None, None, raw=raw + data)
        self.check(status, text, raw + data)
        return status

    def never_5xx(self, path, data):
        status, text = self.ask(path, data)
        self.check(status, text, path.encode() + b" " + data)
        return status

    def check(self, status, text, what):
        if 500 <= status <= 599 and status != 505: # the word for another version of HTTP
            self.s.tally.fail("%d to %r: %r" % (status, what[:300], text[:200]))

    def cancel(self):
        """The client leaves in the middle, or before anything came."""
        b = body_of(self.any_model() if self.r.random() < 0.1 else self.s.model, self.r, 400)
        b.update(stream=self.r.random() < 0.7, ignore_eos=True)
        data = json.dumps(b).encode()
        with self.dial() as c:
            c.sendall(self.head(CHAT, len(data)) + data)
            if self.r.random() < 0.7:
                c.recv(self.r.choice([1, 200, 4000]))
            if self.r.random() < 0.5: # a reset instead of an end
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def slow(self):
        b = body_of(self.s.model, self.r, 120)
        b.update(stream=True, ignore_eos=True, logprobs=True, top_logprobs=20)
        data = json.dumps(b).encode()
        with self.dial(small=True) as c:
            c.sendall(self.head(CHAT, len(data)) + data)
            for _ in range(self.r.randrange(1, 12)):
                time.sleep(0.05)
                if not c.recv(self.r.randrange(1, 3000)):
                    return

    def half_open(self):
        """A head or a body that never ends: kept open while others are served."""
        data = json.dumps(body_of(self.s.model, self.r)).encode()
        whole = self.head(CHAT, len(data)) + data
        c = self.dial()
        c.sendall(whole[:self.r.randrange(0, len(whole))])
        with self.s.tally.lock:
            self.s.kept.append(c)
            old = self.s.kept.pop(0) if len(self.s.kept) > 64 else None
        if old:
            old.close()

    def run(self):
        kinds = [(self.good, 30), (self.wrong_json, 25), (self.wrong_bytes, 20), (self.wrong_http, 14),
                 (self.cancel, 6), (self.slow, 1), (self.half_open, 4)]
        if len(self.s.models) > 1:
            kinds.append((self.other_model, 2))
        while not self.s.over():
            act = self.r.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
            try:
                self.s.tally.add(act.__name__, act())
            except (ConnectionError, OSError) as e:
                if self.s.server.poll() is not None:
                    return
                self.s.tally.add(act.__name__ + " (%s)" % type(e).__name__)


class Pauses:
    """When this process, and with it all of us, did not run: a thread that sleeps a moment and wakes long after it."""

    LONG = 5

    def __init__(self):
        self.looked, self.ended, self.all = time.monotonic(), float("-inf"), []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            time.sleep(0.1)
            now = time.monotonic()
            if now - self.looked > self.LONG:
                self.all.append(now - self.looked)
                self.ended = now
            self.looked = now

    def met(self, begun):
        """Whether there was one since `begun`, this moment's too."""
        return self.ended > begun or time.monotonic() - self.looked > self.LONG


class Soak:
    def __init__(self, o):
        self.o, self.tally, self.answers, self.kept, self.rss = o, Tally(), {}, [], []
        self.pauses = Pauses()
        self.log = open(o.log, "w+")
        self.server = subprocess.Popen([o.moetop, "--serve", "--port", "0", "--plain"] + o.arguments,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log)
        self.begun = time.time()
        self.port = 0
        while not self.port:
            time.sleep(0.1)
            if self.server.poll() is not None:
                sys.exit("the server ended: " + self.text()[-2000:])
            m = re.search(r"is ready on http://127\.0\.0\.1:(\d+)", self.text())
            self.port = int(m.group(1)) if m else 0
        with socket.create_connection(("127.0.0.1", self.port)) as c:
            c.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            text = b""
            while (part := c.recv(65536)):
                text += part
        self.models = [m["id"] for m in json.loads(text.partition(b"\r\n\r\n")[2])["data"]]
        self.model = self.models[0]

    def text(self):
        with open(self.o.log, errors="replace") as f:
            return f.read()

    def over(self):
        return (self.server.poll() is not None or time.time() - self.begun > 60 * self.o.minutes or
                sum(self.tally.kinds.values()) >= self.o.requests)

    def resident(self):
        with open("/proc/%d/statm" % self.server.pid) as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2 ** 20

    def metrics(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as c:
            c.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            text = b""
            while (part := c.recv(65536)):
                text += part
        return {k: float(v) for k, v in re.findall(r"^(\w[\w:]*) ([-\d.e+]+)\s*$", text.decode(), re.M)}

    def run(self):
        threads = [threading.Thread(target=Client(self, self.o.seed * 1000 + i).run) for i in range(self.o.clients)]
        for t in threads:
            t.start()
        last = 0
        while any(t.is_alive() for t in threads):
            time.sleep(0.5)
            if time.time() - last < 10 or self.server.poll() is not None:
                continue
            last = time.time()
            self.rss.append(self.resident())
            print("%5.0f s  %7d done  %6.1f MiB  %d wrong" % (last - self.begun, sum(self.tally.kinds.values()),
                                                             self.rss[-1], len(self.tally.wrong)), flush=True)
        for t in threads:
            t.join()
        for c in self.kept:
            c.close()
        if self.server.poll() is not None:
            self.tally.fail("the server ended with %d: %s" % (self.server.returncode, self.text()[-3000:]))
        else:
            self.after()
        return self.report()

    def after(self):
        """Nobody is there any more: nothing is taken, nothing waits, the memory is what it was."""
        until = time.monotonic() + 35
        while time.monotonic() < until or self.pauses.met(until - 35):
            if self.pauses.met(until - 35): # half a minute of ours, not of the clock's
                until = time.monotonic() + 35
            m = self.metrics()
            busy, waits = m.get("moetop_sessions_busy", -1), m.get("llamacpp:requests_deferred", -1)
            if busy == 0 and waits == 0:
                break
            time.sleep(0.5)
        else:
            self.tally.fail("half a minute later %g sessions are busy, %g requests wait" % (busy, waits))
        n = len(self.rss)
        if n >= 8:
            early, late = max(self.rss[n // 4:n // 2]), max(self.rss[3 * n // 4:])
            if late > 1.1 * early + 16:
                self.tally.fail("resident memory grows: %.1f MiB in the second quarter, %.1f in the last" % (early, late))
        self.rss.append(self.resident())
        self.server.send_signal(signal.SIGTERM)
        try:
            if self.server.wait(60) != 0:
                self.tally.fail("SIGTERM: exit status %d: %s" % (self.server.returncode, self.text()[-3000:]))
        except subprocess.TimeoutExpired:
            self.tally.fail("SIGTERM does not end it within a minute")
            self.server.kill()

    def report(self):
        t = self.tally
        print("\n%d requests and connections in %.0f s" % (sum(t.kinds.values()), time.time() - self.begun))
        for name in sorted(t.kinds):
            print("  %-32s %d" % (name, t.kinds[name]))
        print("statuses (0: none): " + ", ".join("%d: %d" % (k, t.statuses[k]) for k in sorted(t.statuses)))
        if self.rss:
            print("resident, MiB: first %.1f, most %.1f, at the end %.1f" % (self.rss[0], max(self.rss), self.rss[-1]))
        over = [float(x) for x in re.findall(r" 0, ([\d.]+) s$", self.text(), re.M)]
        if self.pauses.all:
            print("pauses of all of us: %d, %.0f s" % (len(self.pauses.all), sum(self.pauses.all)))
        print("longest connection without an answer: %.1f s" % max(over, default=0))
        for w in t.wrong:
            print("WRONG: " + w)
        print("SOAK: " + ("FAIL" if t.wrong else "PASS"))
        return 1 if t.wrong else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=15)
    p.add_argument("--requests", type=int, default=100000)
    p.add_argument("--clients", type=int, default=12)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--log", default="/tmp/moetop-soak.log")
    p.add_argument("moetop")
    p.add_argument("arguments", nargs=argparse.REMAINDER)
    sys.exit(Soak(p.parse_args()).run())


if __name__ == "__main__":
    main()
