#!/usr/bin/env python3
"""Records what a server with OpenAI's API sends, as test data for check_connect: its models, one
streamed answer byte for byte, and its figures (/metrics, /slots) twice, two seconds apart, while
answers run.

usage: record_server.py URL FOLDER [TOKENS [MODEL]]

Of /metrics only counters and gauges of the server itself are kept: no histograms, no times of
creation, nothing of Python or the process.
"""
import json
import os
import re
import sys
import threading
import time
import urllib.request

BASE, FOLDER = sys.argv[1].rstrip("/"), sys.argv[2]
TOKENS = int(sys.argv[3]) if len(sys.argv) > 3 else 200
MODEL = sys.argv[4] if len(sys.argv) > 4 else None
LEFT_OUT = re.compile(rb"(# (HELP|TYPE) )?(python_|process_|http_|"
                      rb"\w*(_bucket|_created|_sum|_count)\b)")
CLIENTS = 3  # at a time, while the figures are taken


def get(path):
    try:
        with urllib.request.urlopen(BASE + path, timeout=20) as r:
            return r.read()
    except OSError:
        return None


def keep(name, data):
    if data:
        with open(os.path.join(FOLDER, name), "wb") as f:
            f.write(data)
        print(f"{name}: {len(data)} bytes")


def metrics():
    page = get("/metrics") or b""
    lines, histograms = page.splitlines(True), set()
    for line in lines:
        if line.startswith(b"# TYPE ") and line.split()[3] in (b"histogram", b"summary"):
            histograms.add(line.split()[2])
    return b"".join(x for x in lines if not LEFT_OUT.match(x) and
                    not (x.startswith(b"#") and x.split()[2] in histograms))


def ask(model, tokens):
    body = {"model": model, "stream": True, "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": "Tell me a story about a fox."}],
            "max_tokens": tokens, "temperature": 0.8}
    r = urllib.request.Request(BASE + "/v1/chat/completions", json.dumps(body).encode(),
                               {"Content-Type": "application/json"})
    with urllib.request.urlopen(r, timeout=300) as answer:
        return answer.read()


def main():
    os.makedirs(FOLDER, exist_ok=True)
    models = get("/v1/models")
    model = MODEL or json.loads(models)["data"][0]["id"]
    keep("models.json", models)
    keep("chat.sse", ask(model, 8))
    threads = [threading.Thread(target=ask, args=(model, TOKENS)) for _ in range(CLIENTS)]
    for t in threads:
        t.start()
    time.sleep(1)
    for when in "", "-later":
        begun = time.time()
        keep(f"metrics{when}.txt", metrics())
        keep(f"slots{when}.json", get("/slots"))
        if not when:
            time.sleep(max(0, begun + 2 - time.time()))
    for t in threads:
        t.join()


main()
