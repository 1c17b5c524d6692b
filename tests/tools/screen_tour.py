#!/usr/bin/env python3
"""Walks through the chat as a user would, on many terminals and sizes, and keeps a picture of every stop.
Usage: screen_tour.py [--moetop FILE] [--out DIR] [--sizes 60x20,...] [--terms xterm,...] [--settings dark,...] [--wide MODEL.gguf]
Each stop waits for what it must show, then its picture goes to OUT/SIZE-TERM-SETTING/NAME.txt, and its faults to standard output:
what was awaited and did not come; bytes of control or of an escape sequence shown as text; a cell beyond the screen; a line that
is cut by an ellipsis while there is empty space beside it; colours under NO_COLOR; letters beyond ASCII where neither locale nor
terminal has them. --wide: a model with many layers and experts, whose map is visited too (synthetic_gguf.py makes one).
Needs tmux, which plays the terminal. Settings: dark, light (COLORFGBG), unknown, nocolor (NO_COLOR), c (LANG=C), reader (--screen-reader)."""
import argparse, json, os, re, shutil, subprocess, sys, tempfile, time, unicodedata

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
SETTINGS = {"dark": {"COLORFGBG": "15;0"}, "light": {"COLORFGBG": "0;15"}, "unknown": {}, "nocolor": {"NO_COLOR": "1"},
            "c": {"LC_ALL": "C", "LANG": "C"}, "reader": {}}
MARKDOWN = """# Foxes

Some **bold**, some *slanted*, `code`, ~~gone~~ and a [link](https://example.org/foxes?a=1).

| animal | legs | says |
|:-------|-----:|:----:|
| fox    |    4 | ring |
| bird   |    2 | tweet tweet, early in the morning |

- [x] done
- [ ] to do
  - nested, and long enough that it has to go on in a second line of the list
1. first
2. second

> quoted words

---

```python
def area(r):  # of a circle
    return "pi", 3.14159 * r ** 2
```
"""

class Terminal:
    """One moetop in one tmux pane. faults: what is wrong so far."""

    def __init__(self, tour, size, term, setting):
        self.tour, self.term, self.setting = tour, term, setting
        self.w, self.h = map(int, size.split("x"))
        self.folder = os.path.join(tour.out, f"{size}-{term}-{setting}")
        os.makedirs(self.folder, exist_ok=True)
        self.home = tempfile.mkdtemp(prefix="moetop-tour-")
        self.server, self.faults, self.pictures, self.stop = 0, [], 0, ""
        self.lines = term == "dumb" or setting == "reader"
        self.narrow = self.w < 60 or self.lines

    def tmux(self, *arguments):
        return subprocess.run(["tmux", "-L", f"tour-{os.getpid()}-{self.server}", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, errors="replace").stdout

    def start(self, *options):
        self.end()
        self.server += 1
        words = {"LC_ALL": "C.UTF-8", "TERM": self.term, "HOME": self.home, "INPUTRC": "/dev/null",
                 **{f"XDG_{k}_HOME": f"{self.home}/{k.lower()}" for k in ("STATE", "CONFIG", "CACHE")}, **SETTINGS[self.setting]}
        unset = ["-u", "COLORFGBG", "-u", "COLORTERM", "-u", "NO_COLOR", "-u", "TMUX", "-u", "TMUX_PANE"]
        command = ["env", *unset, *(f"{k}={v}" for k, v in words.items()), self.tour.moetop, "--seed", "3", "--pace", "off", *options]
        if self.setting == "reader":
            command.append("--screen-reader")
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "s", "-x", str(self.w), "-y", str(self.h), "sh")
        self.tmux("set-option", "-g", "history-limit", "5000")
        self.keys(" ".join(map(shell_word, command)), "Enter")
        self.see(r"(?m)^>( |$)|say something|or /help")

    def end(self):
        if self.server:
            self.tmux("kill-server")

    def screen(self, *options):
        return self.tmux("capture-pane", "-p", "-t", "s", *options)

    def keys(self, *keys):
        self.tmux("send-keys", "-t", "s", *keys)

    def escape(self):
        """Esc alone: what follows at once would be a letter with Alt."""
        self.keys("Escape")
        time.sleep(0.3)

    def write(self, text, *then):
        self.tmux("send-keys", "-t", "s", "-l", text)
        if then:
            self.keys(*then)

    def click(self, x, y):
        self.write(f"\x1b[<0;{x + 1};{y + 1}M\x1b[<0;{x + 1};{y + 1}m")
        self.settle(0.2)

    def wheel(self, button, x, y):
        self.write(f"\x1b[<{button};{x + 1};{y + 1}M")
        time.sleep(0.1)

    def see(self, pattern, seconds=20):
        end = time.monotonic() + seconds
        while not re.search(pattern, self.screen()):
            if time.monotonic() > end:
                return self.fault(f"not seen: {pattern}")
            time.sleep(0.05)
        return True

    def gone(self, pattern, seconds=20):
        end = time.monotonic() + seconds
        while re.search(pattern, self.screen()) and time.monotonic() < end:
            time.sleep(0.1)

    def settle(self, pause=0.35, seconds=30):
        """Until the picture stays as it is, but for figures that move."""
        before, end = None, time.monotonic() + seconds
        while time.monotonic() < end:
            now = re.sub(r"[0-9.]+|[⠀-⣿▀-▟]", "", self.screen())
            if now == before:
                return
            before = now
            time.sleep(pause)

    def ask(self, text):
        self.write(text, "Enter")
        self.settle(0.6)

    def command(self, text, pattern=None):
        self.write(text, "Enter")
        self.settle(0.25)
        if pattern:
            self.see(pattern, 8)

    def fault(self, text):
        self.faults.append(f"{os.path.basename(self.folder)} {self.stop}: {text}")
        return False

    def save(self, name, *shows, moving=False):
        """Keeps the picture; each of shows must stand in it. moving: of what goes on, without waiting."""
        self.stop = name
        if not moving:
            self.settle()
        text, styled = self.screen(), self.screen("-e")
        for end, picture in ("txt", text), ("ansi", styled):
            with open(os.path.join(self.folder, f"{name}.{end}"), "w") as f:
                f.write(picture)
        self.pictures += 1
        for pattern in shows:
            if not re.search(pattern, text):
                self.fault(f"lacks {pattern}")
        for line in text.split("\n"):
            self.check_line(line)
        if (self.setting == "nocolor" or self.term == "vt100") and re.search(r"\x1b\[[0-9;]*(3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]", styled):
            self.fault("has colours")

    def check_line(self, line):
        if width(line) > self.w:
            self.fault(f"wider than the screen: {line}")
        if re.search(r"[\x00-\x1f\x7f\ufffd]|\^\[|\[[0-9;?]{2,}[mhlKJH]", line):
            self.fault(f"raw bytes: {line!r}")
        if self.w >= 200 and not self.lines:
            for part in re.split("[│├┤]", line):
                if re.search(r"…\s{14,}$", part):
                    self.fault(f"cut beside empty space: {part.strip()}")

def shell_word(text):
    return "'" + text.replace("'", "'\\''") + "'"

def width(text):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)

# ── the stops: one function a group ──

def first_minute(t):
    t.start()
    t.save("02-start", *(() if t.lines else (r"brave fox", r"F1")))
    t.start("--no-hints")
    t.save("02-no-hints")
    t.start("--no-hints", "--pace", "60")
    t.ask("Tell me a story about a brave fox.")
    t.save("13-answer", r"fox")
    t.ask("And what happened then?")
    if t.lines:
        t.command("/stats")
        t.save("13-stats")

def legends(t):
    if t.lines:
        for line, name in ("/experts 0/3", "map"), ("/show", "settings"), ("/help", "help"), ("/stats", "figures"):
            t.command(line)
            t.save(f"03-{name}")
        return
    for i in range(6):
        t.keys("Tab")
        t.settle(0.2)
        t.save(f"03-focus-{i + 1}")
    t.keys("?")
    t.save("03-explained")
    t.escape()
    t.escape()
    t.keys("F4")
    t.save("03-map-whole", r"rare|experts")
    t.keys("F4", "F1")
    t.save("03-help", r"Enter")
    t.keys("F1", "M-k")
    t.save("03-no-key-bar")
    t.keys("M-k")

def searching(t):
    if t.lines:
        return
    t.keys("C-f")
    t.write("the")
    t.save("04-typed")
    t.keys("Enter", "n")
    t.save("04-next")
    t.escape()
    t.keys("C-Home")
    t.save("04-top", r"you" if t.h > 20 else r"\S")
    t.keys("C-End", "M-Up")
    t.save("04-answer-before")
    t.keys("M-Down", "C-End")

def slash_menu(t):
    if t.lines:
        for line, name in ("/model", "models"), ("/chats", "chats"):
            t.command(line)
            t.save(f"05-{name}")
        return
    t.write("/")
    t.save("05-all", "/help|/set")
    t.write("re")
    t.save("05-filtered", "/regen")
    t.keys("C-u")
    t.write("/set theme ")
    t.save("05-values", "dark")
    t.keys("C-u")
    t.write("/place ")
    t.save("05-plans", "cpu")
    t.keys("C-u")
    t.command("/model")
    t.save("05-models")

def branches(t):
    t.ask("/regen")
    t.save("07-regen", r"2/2|seed")
    if not t.lines:
        t.keys("M-Left")
        t.save("07-before", "1/2")
        t.keys("M-Right")
        t.settle()
    for line, name in ("/branches", "tree"), ("/branches 1 2", "compared"), ("/undo", "undo"), ("/redo", "redo"):
        t.command(line)
        t.save(f"07-{name}")
    t.command("/edit")
    t.save("07-edit")
    t.keys("C-u", "C-c")
    t.settle()
    t.ask("/compact A fox was brave, and all went well.")
    t.save("07-compact")

def inspector(t):
    t.command("/token 5")
    t.save("08-token", r"%|per cent|percent")
    if t.lines:
        return
    t.keys("BTab")
    t.save("08-focus")
    t.keys("Up", "Up", "Enter")
    t.save("08-alternatives")
    t.keys("Down", "Enter")
    t.settle(0.6)
    t.save("08-branched")
    t.escape()
    t.escape()
    for ink in "probability", "surprise", "time", "expert":
        t.keys("M-c")
        t.save(f"08-ink-{ink}")
    t.keys("M-c")

def coming_back(t):
    t.start("--chat", "foxes")
    t.command("/set pace 15")
    t.write("Tell me a long story about two foxes.", "Enter")
    time.sleep(2.5)
    t.save("01-cut-short", moving=True)
    pid = process_of(t)
    if pid:
        os.kill(pid, 9)
    t.start("--continue")
    t.save("01-continued", "foxes")
    t.command("/rename old-foxes")
    t.start()
    t.save("01-last-chat", r"old-foxes|last chat")
    for line, name in ("/load", "list"), ("/chats fox", "found"), ("/load 1", "loaded"):
        t.command(line)
        t.save(f"01-{name}")

def process_of(t):
    shell = t.tmux("list-panes", "-t", "s", "-F", "#{pane_pid}").strip()
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", shell], stdout=subprocess.PIPE, text=True).stdout.split()
    return int(found[0]) if found else t.fault("no process")

def markdown(t):
    path = os.path.join(t.home, "markdown.json")
    with open(path, "w") as f:
        json.dump({"moetop_chat": 1, "created": "2026-11-20T10:00:00Z", "model": "demo", "settings": {}, "messages": [
            {"role": "user", "content": "Tell me of foxes in markdown."},
            {"role": "assistant", "content": MARKDOWN, "plan": "cpu", "stop": "stop", "tokens": 190, "seconds": 2.0, "tok_s": 95.0}]}, f)
    t.start("--chat", path)
    t.save("09-end", "ends with" if t.lines else "area")
    if not t.lines:
        t.keys("C-Home")
        t.save("09-beginning", "Foxes" if t.h > 20 else r"\S")

def reading(t):
    with open(os.path.join(t.home, "notes.txt"), "w") as f:
        f.write("The fox ran over the hill and saw a bird in a tree. " * 60)
    t.start("--ctx-size", "1024")
    t.write(f"Tell me of @{t.home}/notes.txt")
    t.save("12-file-named", *(() if t.lines else (r"tokens",)))
    t.keys("Enter")
    t.settle(0.6)
    t.save("12-file-sent")
    t.command("/set pace 20")
    t.command(f"/read {t.home}/no-such-file")
    t.save("12-no-file", "no-such-file")
    t.write("/place gpu", "Enter")
    time.sleep(0.1)
    t.save("10-device-wanted", moving=True)
    t.gone(r"opening|[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", 60)
    t.save("10-device")
    t.command("/log")
    t.save("10-log")
    if not t.lines:
        t.command("/set temp 0.5")
        t.save("12-sampling", "temp")

def wide_map(t):
    if not t.tour.wide or t.lines:
        return
    t.start("-m", t.tour.wide, "-c", "512", "-n", "12")
    t.settle(1, 120)
    t.save("11-loaded", r"experts" if t.w >= 60 else r"\S")
    t.write("Hello there", "Enter")
    t.settle(1.5, 120)
    t.save("11-answer")
    t.keys("F4")
    t.save("11-whole")

PANELS = "speed", "memory", "devices", "experts", "placement", "tokens"

def every_panel(t):
    """What each panel explains, and each on the whole screen."""
    if t.lines:
        return
    t.start("--no-hints")
    t.ask("Tell me a story about a brave fox.")
    t.keys("M-Down", "C-End")
    for name in PANELS:
        t.keys("Tab")
        t.settle(0.2)
        t.keys("?")
        t.save(f"03-{name}-explained", rf"─ {name} ─")
        t.keys("?", "z")
        t.save(f"03-{name}-whole", rf"─ {name} ─")
        t.keys("?")
        t.save(f"03-{name}-whole-explained", rf"─ {name} ─")
        t.keys("?", "z")
        t.settle(0.2)
    t.escape()
    t.save("03-panels-left", r"(?m)^>")

def mouse(t):
    """Clicks and the wheel, as a terminal sends them (SGR)."""
    if t.lines:
        return
    t.start("--no-hints")
    t.ask("Tell me a story about a brave fox.")
    t.ask("Tell me a story about a bird.")
    t.wheel(64, 5, 5)
    t.save("12-wheel-up", *(["more"] if t.h < 40 else []))
    for _ in range(6):
        t.wheel(65, 5, 5)
    rows = t.screen().split("\n")
    said = next((y for y in range(len(rows) - 1, 0, -1) if re.search(r"^ {3}\w+ \w+", rows[y])), None)
    if said and t.w >= 80:
        t.click(5, said)
        t.save("12-click-token", r"tokens")
        t.escape()
    title = next((y for y, row in enumerate(rows) if "experts" in row and y > 1), None)
    if title and t.w >= 80:
        t.click(rows[title].index("experts"), title + 2)
        t.save("12-click-map", r"> experts:")
        t.escape()
    t.click(3, t.h - 1)
    t.save("12-click-key-bar", *(["closes"] if t.h > 20 else []))
    t.escape()

def resizing(t):
    """The terminal changes its size while an answer is written."""
    if t.lines:
        return
    t.start("--no-hints")
    t.command("/set pace 12")
    t.write("Tell me a long story about two foxes.", "Enter")
    time.sleep(0.8)
    kept = t.w, t.h
    for w, h in (40, 10), (132, 43), (20, 5), (80, 24), (61, 50), kept:
        t.w, t.h = w, h
        t.tmux("resize-window", "-t", "s", "-x", str(w), "-y", str(h))
        time.sleep(0.5)
        t.save(f"11-resized-{w}x{h}", moving=True)
    t.escape()
    t.save("11-resized-stopped", "fox")

def quitting(t):
    report = os.path.join(t.folder, "12-report.html")
    t.start("--report", report)
    pid = process_of(t)
    t.ask("Tell me a short story.")
    t.command("/quit")
    end = time.monotonic() + 20
    while pid and os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
        time.sleep(0.05)
    t.save("12-quit")
    if not os.path.exists(report) or "<svg" not in open(report).read():
        t.fault("the report has no map")

STOPS = {"start": first_minute, "legends": legends, "search": searching, "menu": slash_menu, "branches": branches, "inspector": inspector,
         "panels": every_panel, "mouse": mouse, "resizing": resizing,
         "back": coming_back, "markdown": markdown, "reading": reading, "wide": wide_map, "quit": quitting}

def walks(a):
    """Every size on every terminal, and the settings on the two that have colours."""
    for size in a.sizes.split(","):
        for term in a.terms.split(","):
            yield size, term, "dark"
        for setting in a.settings.split(","):
            if setting != "dark":
                yield size, "xterm-256color", setting

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moetop", default=os.path.join(ROOT, "moetop"))
    parser.add_argument("--out", default="screens")
    parser.add_argument("--sizes", default="60x20,80x24,120x40,200x60")
    parser.add_argument("--terms", default="xterm,xterm-256color,linux,vt100,screen-256color,dumb")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--stops", default=",".join(STOPS))
    parser.add_argument("--wide", help="a model with many layers and experts")
    tour = parser.parse_args()
    if not shutil.which("tmux"):
        sys.exit("tmux is missing; install it (apt-get install tmux)")
    tour.moetop, pictures, faults = os.path.abspath(tour.moetop), 0, 0
    for size, term, setting in walks(tour):
        t = Terminal(tour, size, term, setting)
        try:
            for stop in tour.stops.split(","):
                t.stop = stop
                STOPS[stop](t)
        finally:
            t.end()
            shutil.rmtree(t.home, ignore_errors=True)
        for fault in t.faults:
            print(fault, flush=True)
        pictures, faults = pictures + t.pictures, faults + len(t.faults)
    print(f"{pictures} pictures in {tour.out}, {faults} faults")
    return 1 if faults else 0

if __name__ == "__main__":
    sys.exit(main())
