#!/usr/bin/env python3
"""expert_edits in requests: each has its own, alone and side by side with others; what the model
does not have is refused. serve_edits.py PROGRAM MODEL PORT: starts the server and ends it."""
import concurrent.futures
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request

program, model, port = sys.argv[1:4]
server = subprocess.Popen([program, "-m", model, "--serve", "--port", port, "--parallel", "3"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
root = "http://127.0.0.1:" + port


def ask(edits):
    body = {"prompt": "Once upon a time, a fox", "max_tokens": 24, "temperature": 0}
    if edits is not None:
        body["expert_edits"] = edits
    q = urllib.request.Request(root + "/v1/completions", json.dumps(body).encode(),
                               {"Content-Type": "application/json"})
    try:
        return 200, json.load(urllib.request.urlopen(q, timeout=60))["choices"][0]["text"]
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)["error"]["message"]


try:
    for _ in range(300):
        try:
            urllib.request.urlopen(root + "/health", timeout=5)
            break
        except OSError:
            time.sleep(0.1)
    asked = [None, ["off L3/E1", "only L5/E0"], ["only L*/E0,E1,E2,E3"]]
    alone = [ask(x) for x in asked]
    assert [s for s, _ in alone] == [200] * 3 and len({t for _, t in alone}) == 3, alone
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert list(pool.map(ask, asked * 4)) == alone * 4
    assert ask([]) == alone[0]
    for bad in ["off L3/E99"], "off L3/E1", [5], ["off L3/E1"] * 257, ["off L3/E1" + " " * 5000]:
        status, why = ask(bad)
        assert status == 400 and "expert" in why, (bad, status, why)
    assert ask(asked[1]) == alone[1]
finally:
    server.terminate()
    server.wait()
