#!/usr/bin/env python3
"""How soon a typed key is on the screen while an answer is being written, how many bytes a picture
takes, and what the screen costs: the program on a pseudo-terminal, keys typed at random moments.
Usage: screen_latency.py [--moetop FILE] [--keys N] [--size WxH] [--term TERM] [--json] -- OPTIONS OF moetop
A key is a letter that no answer holds; its time is from the byte in to the bytes out that draw it.
The screen's cost: processor time of its thread (the first one) against that of the process.
A run counts only if the process kept the cores busy all the time (--cores, else as many as there are): in each second at least
three quarters of them. An answer that ended, a pace, another program that took them: nothing is told, and the exit code is 1.
Give it an answer that goes on: --ignore-eos, --pace off, --ctx-size 4096."""
import argparse, fcntl, json, os, pty, random, select, statistics, struct, subprocess, sys, tempfile, termios, time

LETTERS = "абвгдежзиклмнопрстуфхцчшщэюя"

def start(program, options, size, term):
    width, height = map(int, size.split("x"))
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    home = tempfile.mkdtemp(prefix="moetop-latency-")
    env = dict(os.environ, TERM=term, LC_ALL="C.UTF-8", HOME=home, COLORFGBG="15;0",
               **{f"XDG_{k}_HOME": f"{home}/{k}" for k in ("STATE", "CONFIG", "CACHE")})
    process = subprocess.Popen([program, "--theme", "dark", *options], stdin=child, stdout=child, stderr=subprocess.DEVNULL,
                               env=env, start_new_session=True)
    os.close(child)
    return process, parent

def read(fd, seconds):
    ready = select.select([fd], [], [], max(seconds, 0))[0]
    try:
        return os.read(fd, 1 << 16) if ready else b""
    except OSError:
        return b""

def wait_for(fd, text, seconds):
    seen, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        seen += read(fd, end - time.monotonic())
        if text in seen:
            return seen
    sys.exit(f"{text!r} did not come within {seconds} s; the last of what came: {seen[-400:]!r}")

def cpu_seconds(pid, thread=None):
    path = f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat"
    fields = open(path).read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

def wait_computing(pid, fd):
    """Until the process has used more than its screen needs for two seconds: the model is loaded and answers."""
    busy, end = 0, time.monotonic() + 120
    while busy < 8 and time.monotonic() < end:
        before, until = cpu_seconds(pid), time.monotonic() + 0.25
        while time.monotonic() < until:
            read(fd, until - time.monotonic())
        busy += cpu_seconds(pid) - before > 0.1

class Cores:
    """Cores in use, second by second."""

    def __init__(self, pid):
        self.pid, self.at, self.cpu, self.seconds = pid, time.monotonic(), cpu_seconds(pid), []

    def look(self):
        now = time.monotonic()
        if now - self.at >= 1:
            cpu = cpu_seconds(self.pid)
            self.seconds.append((cpu - self.cpu) / (now - self.at))
            self.at, self.cpu = now, cpu

    def idle(self, cores):
        """Why the run says nothing, None: it does."""
        for i, used in enumerate(self.seconds):
            if used < 0.75 * cores:
                return f"in second {i + 1} of {len(self.seconds)} {used:.2f} of {cores} cores were in use"
        return None if len(self.seconds) > 4 else f"only {len(self.seconds)} seconds"

def type_keys(fd, n, seed, cores):
    """Times of n keys in milliseconds, all bytes that came, and the pauses-separated pictures."""
    rng, times, total, pictures, last = random.Random(seed), [], 0, 0, 0.0

    def take(seconds):
        nonlocal total, pictures, last
        data = read(fd, seconds)
        now = time.monotonic()
        cores.look()
        if data:
            pictures += now - last > 0.004
            total, last = total + len(data), now
        return data

    for i in range(n):
        letter = LETTERS[i % len(LETTERS)].encode()
        until = time.monotonic() + rng.uniform(0.05, 0.2)
        while time.monotonic() < until:
            take(until - time.monotonic())
        sent, seen = time.monotonic(), b""
        os.write(fd, letter)
        while letter not in seen and time.monotonic() < sent + 2:
            seen += take(0.5)
        times.append((time.monotonic() - sent) * 1e3 if letter in seen else float("inf"))
        if i % len(LETTERS) == len(LETTERS) - 1:
            os.write(fd, b"\x15")
    return times, total, pictures

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moetop", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "moetop"))
    parser.add_argument("--keys", type=int, default=150)
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--term", default="xterm-256color")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("options", nargs="*")
    a = parser.parse_args()
    process, fd = start(a.moetop, a.options, a.size, a.term)
    try:
        wait_for(fd, b"> ", 60)
        os.write(fd, b"Tell me a long story.\r")
        wait_computing(process.pid, fd)
        before = time.monotonic(), cpu_seconds(process.pid), cpu_seconds(process.pid, process.pid)
        cores = Cores(process.pid)
        times, total, pictures = type_keys(fd, a.keys, 1, cores)
        wall, cpu, own = (y - x for x, y in zip(before, (time.monotonic(), cpu_seconds(process.pid),
                                                         cpu_seconds(process.pid, process.pid))))
    finally:
        process.kill()
        process.wait()
    if cores.idle(a.cores):
        sys.exit(f"this run says nothing: {cores.idle(a.cores)}; --help tells what it needs")
    times.sort()
    found = {"keys": len(times), "size": a.size, "p50_ms": statistics.median(times), "p95_ms": times[int(len(times) * 0.95)],
             "max_ms": times[-1], "bytes_a_second": total / wall, "pictures_a_second": pictures / wall,
             "bytes_a_picture": total / max(pictures, 1), "cores_used": cpu / wall, "screen_cores": own / wall,
             "screen_share": own / cpu if cpu else 0}
    if a.json:
        print(json.dumps(found, indent=1))
    else:
        print(f"{found['keys']} keys at {a.size}: median {found['p50_ms']:.1f} ms, 95th percentile {found['p95_ms']:.1f}, most {found['max_ms']:.1f}\n"
              f"{found['bytes_a_second']:.0f} bytes and {found['pictures_a_second']:.1f} pictures a second, {found['bytes_a_picture']:.0f} bytes a picture\n"
              f"the screen's thread: {100 * found['screen_cores']:.2f} % of a core, {100 * found['screen_share']:.2f} % of the {found['cores_used']:.2f} cores in use")

if __name__ == "__main__":
    main()
