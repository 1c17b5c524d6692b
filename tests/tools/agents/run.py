#!/usr/bin/env python3
"""Programs that speak to servers, unmodified, against moetop --serve.

    run.py [--moetop PATH] [--venvs DIR] [--record DIR] [NAME ...]

Each NAME.py beside this file is one program's plain workflow: its packages (`# pip:`; `# bare:` one
whose requirements are installed without those named by `# without:`; `# of:` says what it follows
where there are none) are installed from PyPI into a folder of their own, it runs
with BASE_URL in its environment, and prints what it got. A table with versions is printed last; the
exit status is 1 if any failed.

The bundled model is too small to use tools by itself, so a proxy between the program and the server
adds a grammar to each request: the k-th answer is the k-th text of `# say:` (a JSON list, null: let
the model speak). Nothing else of a request is changed. --record keeps the requests, for the tests
that replay them without network; in a request of more than 16 KB texts are cut to 40 characters, for
the shape is what is replayed, and instructions of many pages are not.
"""
import argparse
import http.client
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SPOKEN = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat", "/api/generate",
          "/v1/completions", "/completion")
HOP = {"connection", "transfer-encoding", "content-length", "host", "keep-alive"}


def literal(text):
    """A grammar that allows this text alone."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'root ::= "{escaped}"'


def cut(value, key=""):
    """The value with its long texts cut, but for what is itself JSON or a grammar."""
    if isinstance(value, dict):
        return {k: cut(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [cut(v, key) for v in value]
    return value[:40] if isinstance(value, str) and key not in ("grammar", "arguments") else value


class Proxy(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), Handler)
        self.to, self.say, self.seen, self.lock = port, [], [], threading.Lock()

    def begin(self, say):
        self.say, self.seen = list(say), []

    def script(self, path, body):
        """The request with the next text's grammar."""
        try:
            request = json.loads(body)
        except ValueError:
            return body
        with self.lock:
            text = self.say.pop(0) if self.say else None
            free = not (request.get("response_format") or request.get("format") or
                        (request.get("output_config") or {}).get("format"))
            if (request.get("text") or {}).get("format", {}).get("type", "text") != "text":
                free = False
            if text is not None and free:
                request["grammar"] = literal(text)
                if "tool_choice" in request:
                    auto = {"type": "auto"} if path == "/v1/messages" else "auto"
                    request["tool_choice"] = auto
            self.seen.append({"path": path, "body": request})
        return json.dumps(request).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urllib.parse.urlsplit(self.path).path
        if self.command == "POST" and path in SPOKEN:
            body = self.server.script(path, body)
        up = http.client.HTTPConnection("127.0.0.1", self.server.to, timeout=120)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
        up.request(self.command, self.path, body or None, headers)
        answer = up.getresponse()
        self.send_response(answer.status)
        for k, v in answer.getheaders():
            if k.lower() not in HOP:
                self.send_header(k, v)
        self.send_header("Connection", "close")
        self.end_headers()
        while piece := answer.read1(65536):
            self.wfile.write(piece)
            self.wfile.flush()
        self.close_connection = True

    do_GET = do_POST = do_DELETE = do_HEAD = forward


def header(path, name):
    found = re.search(rf"^# {name}: (.*)$", path.read_text(), re.M)
    return found.group(1) if found else ""


def pip(venv, *arguments):
    subprocess.run([venv / "bin/pip", "install", "-q", *arguments], check=True,
                   stdout=subprocess.DEVNULL)


def name_of(requirement):
    return re.split(r"[\[=<>~; ]", requirement)[0]


def install(venv, path):
    """Returns the names of what is told in the table."""
    packages, bare = header(path, "pip").split(), header(path, "bare")
    if not (venv / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    have, wanted = venv / "installed", " ".join([*packages, bare]).strip()
    if not have.exists() or have.read_text() != wanted:
        if bare:
            pip(venv, "--no-deps", bare)
            code = ("import importlib.metadata as m, sys\n"
                    "print(*(r for r in m.requires(sys.argv[1]) if 'extra ==' not in r), sep='\\n')")
            needs = subprocess.run([venv / "bin/python", "-c", code, name_of(bare)], check=True,
                                   text=True, capture_output=True).stdout.splitlines()
            without = header(path, "without").split()
            packages = packages + [r for r in needs if name_of(r) not in without]
        if packages:
            pip(venv, *packages)
        have.write_text(wanted)
    return [name_of(p) for p in ([bare] if bare else header(path, "pip").split())]


def versions(venv, names):
    code = ("import importlib.metadata as m, sys\n"
            "print(', '.join(f'{p} {m.version(p)}' for p in sys.argv[1:]))")
    return subprocess.run([venv / "bin/python", "-c", code, *names], text=True,
                          capture_output=True).stdout.strip()


def serve(moetop):
    server = subprocess.Popen([moetop, "--serve", "--port", "0", "-c", "65536", "--plain", "-t",
                               str(os.cpu_count())], stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if found := re.search(r"is ready on http://[\d.]+:(\d+)", line):
            threading.Thread(target=lambda: [None for _ in server.stderr], daemon=True).start()
            return server, int(found.group(1))
    sys.exit("the server did not start")


def run(path, venvs, proxy, record):
    venv = venvs / path.stem
    try:
        names = install(venv, path)
    except subprocess.CalledProcessError:
        return "not installed", header(path, "pip"), ""
    proxy.begin(json.loads(header(path, "say") or "[]"))
    begun = time.monotonic()
    home = venv / "home"
    home.mkdir(exist_ok=True)
    env = os.environ | {"BASE_URL": f"http://127.0.0.1:{proxy.server_port}",
                        "MODEL": "tiny-storyteller-Q8_0", "HOME": str(home),
                        "PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}
    try:
        done = subprocess.run([venv / "bin/python", path], env=env, text=True, timeout=300,
                              capture_output=True, cwd=home, stdin=subprocess.DEVNULL)
        said = done.stdout.strip().splitlines()
        good = done.returncode == 0
        why = (said[-1:] if good else (done.stderr.strip().splitlines() or said)[-1:]) or [""]
    except subprocess.TimeoutExpired:
        good, why = False, ["300 s are over"]
    if record and good:
        seen = [cut(each) if len(json.dumps(each)) > 16_000 else each for each in proxy.seen]
        (record / f"{path.stem}.json").write_text(json.dumps(seen, separators=(",", ":")))
    return ("ok" if good else "FAILED", versions(venv, names) or header(path, "of"),
            f"{len(proxy.seen)} requests, {time.monotonic() - begun:.1f} s: {why[0][:100]}")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--moetop", default=ROOT / "moetop")
    a.add_argument("--venvs", default="/tmp/moetop-agents", type=pathlib.Path)
    a.add_argument("--record", type=pathlib.Path)
    a.add_argument("names", nargs="*")
    a = a.parse_args()
    a.venvs.mkdir(parents=True, exist_ok=True)
    if a.record:
        a.record.mkdir(parents=True, exist_ok=True)
    server, port = serve(a.moetop)
    proxy = Proxy(port)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    rows = []
    for path in sorted(HERE.glob("*.py")):
        if path.name != "run.py" and (not a.names or path.stem in a.names):
            rows.append((path.stem, *run(path, a.venvs, proxy, a.record)))
            print(f"{rows[-1][0]:20} {rows[-1][1]:8} {rows[-1][2]:48} {rows[-1][3]}", flush=True)
    server.terminate()
    server.wait()
    sys.exit(any(row[1] != "ok" for row in rows))


main()
