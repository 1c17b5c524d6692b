"""Many exchanges with --serve, and what they leave behind: serve_soak.py MOETOP MODEL [EXCHANGES [CLIENTS]]
Starts the server itself (four sessions, --timeout 2) and has CLIENTS (12) at it until there were EXCHANGES (100,000): every endpoint, whole and streamed,
bad JSON, clients that leave, that drip a request, that sip an answer or do not read it, connections that are opened and say nothing.
/health is asked all the while. Exit 0: no status of 500 or above but 503, /health answered in time, and after a tenth of the exchanges and at the end
memory, descriptors and threads are the same (memory: 10 % and 16 MiB more at most) and no session is taken."""
import http.client, json, os, random, socket, subprocess, sys, tempfile, threading, time

program, model_file = sys.argv[1:3]
wanted = int(sys.argv[3]) if len(sys.argv) > 3 else 100_000
clients = int(sys.argv[4]) if len(sys.argv) > 4 else 12
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
log = tempfile.TemporaryFile()
server = subprocess.Popen([program, "-m", model_file, "--serve", "--plain", "--port", str(port), "-np", "4", "-c", "1024", "--timeout", "2"], stdout=log, stderr=log)
JSON = {"Content-Type": "application/json"}

def get(path, timeout=20):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        c.request("GET", path)
        r = c.getresponse()
        return r.status, r.read().decode()
    finally:
        c.close()

def wait_ready():
    for _ in range(600):
        try:
            if get("/health")[0] == 200:
                return json.loads(get("/v1/models")[1])["data"][0]["id"]
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit("the server is not ready within a minute")

model = wait_ready()
lock, done, statuses, wrong, slowest = threading.Lock(), {}, {}, [], [0.0]

def count(kind, status=None):
    with lock:
        done[kind] = done.get(kind, 0) + 1
        if status is not None:
            statuses[status] = statuses.get(status, 0) + 1
            if status >= 500 and status != 503:
                wrong.append("%s: status %d" % (kind, status))

def asked(pick):
    """A path and a body."""
    say = [{"role": "user", "content": pick.choice(("Hi", "Tell me a story about a fox.", "Wie geht es dir? 🦊", "x" * pick.randrange(1, 400)))}]
    common = {"model": model, "temperature": pick.choice((0, 0.8)), "seed": pick.randrange(1000)}
    short, stream = pick.randrange(1, 4), pick.random() < 0.4
    return pick.choice((
        ("/v1/chat/completions", common | {"messages": say, "max_tokens": short, "stream": stream, "n": pick.choice((1, 1, 2)), "logprobs": stream}),
        ("/v1/chat/completions", common | {"messages": say, "max_tokens": 8, "stream": stream, "response_format": {"type": "json_object"}}),
        ("/v1/completions", common | {"prompt": "A fox", "max_tokens": short, "stream": stream}),
        ("/v1/completions", common | {"prompt": "A fox ran", "max_tokens": 1, "echo": True, "logprobs": 1}),
        ("/v1/responses", common | {"input": "Hi", "max_output_tokens": 16, "stream": stream}),
        ("/v1/messages", common | {"messages": say, "max_tokens": short, "stream": stream}),
        ("/v1/messages/count_tokens", {"model": model, "messages": say}),
        ("/tokenize", {"content": say[0]["content"], "with_pieces": stream}), ("/detokenize", {"tokens": [5, 6, 7]}),
        ("/moetop/placement", {"plan": "cpu"}), ("/lora-adapters", []), ("/v1/chat/completions", {"model": model, "messages": "none"}),
        ("GET", pick.choice(("/health", "/props", "/metrics", "/v1/models", "/v1/models/" + model, "/moetop/state", "/lora-adapters", "/nothing")))))

class Client:
    def __init__(self, seed):
        self.pick, self.link = random.Random(seed), None

    def whole(self):
        path, body = asked(self.pick)
        for last in (False, True):
            try:
                fresh = not self.link
                self.link = self.link or http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                if path == "GET":
                    self.link.request("GET", body)
                else:
                    self.link.request("POST", path, json.dumps(body), JSON)
                answer = self.link.getresponse()
                answer.read()
                return count("whole", answer.status)
            except (OSError, http.client.HTTPException) as e:
                self.link.close()
                self.link = None
                if last or fresh:  # one that was kept may have ended meanwhile
                    wrong.append("%s: %r" % (path, e))
                    return count("whole")

    def dial(self, small=False):
        s = socket.socket()
        if small:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(20)
        s.connect(("127.0.0.1", port))
        return s

    def head(self, path, n):
        return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (path.encode(), n)

    def leaves(self):
        """In the middle of an answer, or before it."""
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "A fox"}], "max_tokens": 900, "ignore_eos": True, "stream": True}).encode()
        with self.dial() as s:
            s.sendall(self.head("/v1/chat/completions", len(body)) + body)
            if self.pick.random() < 0.6:
                s.recv(4096)
        count("leaves")

    def bad(self):
        bodies = (b"{", b"", b"\xff\xfe", b"[" * 5000, b'{"model": NaN}', b'{"messages": [[]]}', b"null", os.urandom(100))
        body = self.pick.choice(bodies)
        with self.dial() as s:
            s.sendall(self.head(self.pick.choice(("/v1/chat/completions", "/v1/completions", "/tokenize", "/v1/messages")), len(body)) + body)
            line = s.recv(4096).split(b" ", 2)
        count("bad JSON", int(line[1]) if len(line) > 1 else None)

    def no_http(self):
        with self.dial() as s:
            s.sendall(self.pick.choice((b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", b"A" * 70_000 + b"\r\n\r\n", os.urandom(300))))
            s.settimeout(5)
            s.recv(4096)
        count("no HTTP")

    def until_closed(self, s, step, seconds, judge=True):
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end and step(s):
                pass
            if judge and time.monotonic() >= end:
                wrong.append("a connection was held for %d s" % seconds)
        except OSError:
            pass

    def drips(self):
        def step(s):
            s.sendall(b"a")
            time.sleep(0.3)
            return True
        with self.dial() as s:
            s.sendall(self.head("/tokenize", 5000) if self.pick.random() < 0.5 else b"POST /tok")
            self.until_closed(s, step, 40)
        count("drips")

    def sips(self):
        body = json.dumps({"content": "x" * 400_000, "with_pieces": True}).encode()
        gap = self.pick.choice((0.7, 5.0))  # with the second it reads nothing while --timeout passes
        def step(s):
            time.sleep(gap)
            return len(s.recv(150_000)) > 0
        with self.dial(small=True) as s:
            s.sendall(self.head("/tokenize", len(body)) + body)
            self.until_closed(s, step, 20, judge=False)  # the kernel goes on with what it holds when the server has closed
        count("sips")

    def says_nothing(self):
        with self.dial() as s:
            self.until_closed(s, lambda s: len(s.recv(1)) > 0, 20)
        count("says nothing")

    def run(self):
        slow = ((0.0008, self.drips), (0.0012, self.sips), (0.002, self.says_nothing))
        quick = ((0.03, self.leaves), (0.09, self.bad), (0.10, self.no_http))
        while sum(done.values()) < wanted and server.poll() is None:
            x = self.pick.random()
            what = next((do for part, do in slow + quick if x < part), self.whole)
            try:
                what()
            except OSError:
                count(what.__name__ + ", cut off")

def watch_health():
    while sum(done.values()) < wanted and server.poll() is None:
        begun = time.monotonic()
        try:
            if get("/health")[0] != 200:
                wrong.append("/health is not 200")
        except OSError as e:
            wrong.append("/health: %r" % e)
        slowest[0] = max(slowest[0], time.monotonic() - begun)
        time.sleep(0.2)

def figures():
    """When all is quiet: KiB, descriptors, threads, sessions taken."""
    status = dict(line.split(":", 1) for line in open("/proc/%d/status" % server.pid))
    rss, fds = int(status["VmRSS"].split()[0]), len(os.listdir("/proc/%d/fd" % server.pid))
    busy = next(float(line.split()[1]) for line in get("/metrics")[1].splitlines() if line.startswith("moetop_sessions_busy "))
    return rss, fds, int(status["Threads"]), busy

threads = [threading.Thread(target=Client(i).run, daemon=True) for i in range(clients)] + [threading.Thread(target=watch_health, daemon=True)]
begun, early = time.monotonic(), None
print("at the start:  %d KiB, %d descriptors, %d threads, %g sessions taken" % figures())
for t in threads:
    t.start()
told = 0
while any(t.is_alive() for t in threads):
    time.sleep(0.5)
    n = sum(done.values())
    if n * 10 >= wanted and server.poll() is None and not early:
        early = figures()
    if n >= told + wanted // 10:
        told = n
        print("%7d after %4d s, %d KiB" % (n, time.monotonic() - begun, figures()[0]) if server.poll() is None else "the server ended", flush=True)
if server.poll() is not None:
    log.seek(0)
    sys.exit("the server ended with %d: %s" % (server.returncode, log.read()[-2000:].decode(errors="replace")))
time.sleep(5)  # the last connections' time
last = figures()
print("after a tenth: %d KiB, %d descriptors, %d threads, %g sessions taken" % early)
print("at the end:    %d KiB, %d descriptors, %d threads, %g sessions taken" % last)
print("exchanges:", dict(sorted(done.items())), "by status:", dict(sorted(statuses.items())), "slowest /health: %.3f s" % slowest[0])
server.terminate()
log.seek(0)
ended = log.read()
print("ended by the server: %d that were too slow, %d that were silent" % (ended.count(b"the client took too long"), ended.count(b"was silent for too long")))
if done.get("sips") and b"the client took too long" not in ended:
    wrong.append("no sipped answer was ended")
if server.wait(60) != 0:
    wrong.append("exit status %d" % server.returncode)
if wanted >= 50_000 and last[0] > early[0] * 1.1 + 16384:  # fewer: what is kept between requests is being filled yet
    wrong.append("memory grew")
if last[3]:
    wrong.append("a session is still taken")
if last[1] > early[1] or last[2] > early[2]:
    wrong.append("descriptors or threads were left")
print("\n".join(wrong[:20]) or "nothing is wrong")
sys.exit(1 if wrong else 0)
