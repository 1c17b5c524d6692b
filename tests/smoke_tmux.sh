#!/bin/sh
# The real program in a real terminal (tmux): a chat of two turns, every panel, commands, resizing, suspending, losing the terminal, being
# killed. Waits for what the screen shows, never for a time. Usage: tests/smoke_tmux.sh [MOETOP]; 77: skipped (no tmux).
root=$(cd "$(dirname "$0")/.." && pwd)
moetop=${1:-$root/moetop}
command -v tmux >/dev/null 2>&1 || { echo "SKIPPED: tmux is not installed"; exit 77; }
server=0 home=$(mktemp -d) failed=0
t() { tmux -L "moetop-smoke-$$-$server" "$@"; }
trap 't kill-server 2>/dev/null; rm -rf "$home" 2>/dev/null || { sleep 1; rm -rf "$home"; }' EXIT
start() { # WIDTH HEIGHT [VAR=VALUE ...] -- [ARGUMENTS]
    w=$1 h=$2; shift 2; env=
    while [ $# -gt 0 ] && [ "$1" != -- ]; do env="$env $1"; shift; done
    [ $# -gt 0 ] && shift
    t kill-server 2>/dev/null
    server=$((server + 1))                  # a new one each: the old one may still be going away
    t -f /dev/null new-session -d -s s -x "$w" -y "$h" "env LC_ALL=C.UTF-8 XDG_STATE_HOME=$home/state XDG_CONFIG_HOME=$home/config \
XDG_CACHE_HOME=$home/cache INPUTRC=/dev/null $env sh"
    t set-option -g history-limit 5000
    t send-keys -t s "PS1='shell> '; clear" Enter
    see 'shell>'
    t send-keys -t s "$moetop --seed 3 $*; echo moetop ended with \$?" Enter
}
child_of() { sed -n "s/^\([0-9]*\) (moetop) . $1 .*/\1/p" /proc/[0-9]*/stat 2>/dev/null | head -1; }   # ps is not everywhere
show() { t capture-pane -p -t s 2>/dev/null; }
keys() { t send-keys -t s "$@"; }
see() { # text that must appear within 20 s
    i=0
    until show | grep -q -e "$1"; do
        i=$((i + 1))
        [ $i -lt 200 ] || { echo "not seen: $1"; show | grep -v '^ *$' | sed 's/^/    | /'; failed=1; return 1; }
        sleep 0.1
    done
}
gone() { # text that must disappear
    i=0
    while show | grep -q -e "$1"; do
        i=$((i + 1))
        [ $i -lt 200 ] || { echo "still there: $1"; show | grep -v '^ *$' | sed 's/^/    | /'; failed=1; return 1; }
        sleep 0.1
    done
}
answers() { # wait until that many answers are saved whole
    i=0
    until [ "$(cat "$home"/state/moetop/chats/*.json 2>/dev/null | grep -c '"stop": *"[a-z]')" -ge "$1" ]; do
        i=$((i + 1))
        [ $i -lt 300 ] || { echo "$1 answers are not saved"; failed=1; return 1; }
        sleep 0.1
    done
}
step() { echo "- $*"; }

step "a chat of two turns, 120x40"
start 120 40
see 'or /help' && keys 'Tell me a story about a brave fox.' Enter
see 'Esc stops the' && see 'paced at' && see 'ctx [1-9]'
see ' s .*· .* tok/s'
show | grep -q 'Tell me a story about a brave fox' || { echo "the question is not on the screen"; failed=1; }
keys F2 && see 'running free'
keys 'Another story, please.' Enter
answers 2
for panel in speed memory devices experts placement tokens; do
    show | grep -q -- "─ $panel" || { echo "no $panel panel"; failed=1; }
done
step "commands, completion, an unknown command"
keys '/hel' Tab && see '> /help' && keys Enter && see '/regen'
keys '/st' && see '^ /stats' && keys Down && see '^▸/stats' && keys Enter && see 'first token' && keys '/re' && see '^ /redo' && keys Down Down && see '^▸/redo' && keys Up Tab \
    && gone '▸/redo' && keys C-u
keys '/set temp 0' Enter && see 'temp is 0 now'
keys '/tellme' Enter && see 'there is no command /tellme'
keys '/undo' Enter && gone 'Another story'
step "panels: help, zoom, focus"
keys F1 && see 'In a panel' && keys Escape && gone 'In a panel'
keys F4 && see 'most chosen' && keys F4 && gone 'most chosen'
keys Tab '?' && see 'from Enter to the first token' && keys Escape && gone 'from Enter'
step "keys without a meaning are no text, and a sentence begun in a panel is whole"
keys F11 F12 S-Left S-F3 S-PgUp C-S-Left M-PgUp S-F5 C-F5 M-F5 IC C-Right && keys Tab Tab Tab Tab && see 'experts: arrows' && keys 'make me a story'
see '> make me a story' && see 'this answer' && keys C-u
step "stopping an answer, taking a waiting message back"
keys '/set pace 20' Enter && see 'pace is 20 now'
keys 'A long story.' Enter && see 'Esc stops the' && keys 'and then?' Enter && see 'next: and then?'
keys Escape && see 'stopped' && see '> and then?'
keys C-u
step "placement switched in the middle of an answer"
keys 'One more story.' Enter && see 'Esc stops the' && keys '/place cpu' Enter && see '▸F5 *cpu'
keys Escape && gone 'Esc stops the'
step "resizing"
for size in '60 20' '200 60' '19 4' '80 24' '250 80' '40 10' '120 40'; do
    t resize-window -t s -x ${size% *} -y ${size#* }
    sleep 0.05
done
see '─ speed'
step "suspending and coming back"
keys C-z && see 'shell>' && gone '─ speed'
keys 'fg' Enter && see '─ speed'
step "leaving: the transcript stands on the ordinary screen"
keys C-c && see 'again quits' && keys C-c && gone '─ speed' && see 'shell>'
show | grep -q 'One more story' || { echo "the transcript was not printed"; failed=1; }
ls "$home"/state/moetop/chats/*.json >/dev/null 2>&1 || { echo "the chat was not saved"; failed=1; }

step "80x24, no colours"
start 80 24 NO_COLOR=1
see 'or /help' && keys 'Hello' Enter && see '· [0-9.]* s' && see '─ experts'
t capture-pane -p -e -t s | grep -q "$(printf '\033')\[[0-9;]*[34]8;5" && { echo "colours in spite of NO_COLOR"; failed=1; }
keys C-d && see 'moetop ended with 0'
step "a terminal that cannot place its cursor: line by line"
start 80 24 TERM=dumb
see 'shell> >\|^>' && keys 'Hello' Enter && answers 5
step "commands there while an answer streams"
keys '/set pace 15' Enter && see 'pace is 15 now' && keys 'A long story.' Enter && see '^> A long story' && see '^moetop: [A-Z][a-z]* [a-z]* [a-z]* [a-z]'
keys '/show temp' Enter && see '^temp  *0.8' && keys '/quit' Enter && see 'moetop ended with 0'
step "a locale without UTF-8: the terminal is asked, and this one can"
start 100 30 LC_ALL=C
see 'or /help' && see '├─ speed' && keys -l 'café 日本 x' && see '> café 日本 x' && keys C-u C-d && see 'moetop ended with 0'
step "SIGQUIT ends in order: the terminal is as before"
start 100 30
see 'or /help' && keys 'Tell me about the sun.' Enter && see 'Esc stops the'
kill -QUIT "$(child_of "$(t list-panes -t s -F '#{pane_pid}')")"
see 'moetop ended with 130' && [ "$(t display -p -t s '#{alternate_on}')" = 0 ] || { echo "the terminal was not restored"; failed=1; }
step "eight colours, two columns of panels"
start 200 60 TERM=screen
see 'or /help' && see '─ speed'
t capture-pane -p -e -t s | grep -q "$(printf '\033')\[1;30m" && { echo "bold black, which many terminals show as black"; failed=1; }
keys '/quit' Enter && see 'moetop ended with 0'

step "the terminal goes away in the middle of an answer: nothing shown is lost"
rm -rf "$home/state"
start 100 30
see 'or /help' && keys 'Tell me about the moon.' Enter && see 'Esc stops the'
pid=$(t list-panes -t s -F '#{pane_pid}')
child=$(child_of "$pid")
t kill-server
i=0
while kill -0 "$child" 2>/dev/null && [ $i -lt 100 ]; do i=$((i + 1)); sleep 0.1; done
kill -0 "$child" 2>/dev/null && { echo "moetop outlives its terminal"; kill -9 "$child"; failed=1; }
grep -q 'about the moon' "$home"/state/moetop/chats/*.json || { echo "the question was lost"; failed=1; }
step "kill -9 in the middle of an answer"
rm -rf "$home/state"
start 100 30
see 'or /help' && keys 'Tell me about the sea.' Enter && see 'Esc stops the' && see 'ctx [1-9][0-9]'
pid=$(t list-panes -t s -F '#{pane_pid}')
i=0                     # the first words, which a slow machine may take a while to say
while ! [ -s "$(ls "$home"/state/moetop/chats/*.part 2>/dev/null)" ] && [ $i -lt 100 ]; do i=$((i + 1)); sleep 0.1; done
kill -9 "$(child_of "$pid")"
see 'ended with 137'
grep -q 'about the sea' "$home"/state/moetop/chats/*.json || { echo "the question was lost"; failed=1; }
[ -s "$(ls "$home"/state/moetop/chats/*.part)" ] || { echo "the beginning of the answer was lost"; failed=1; }

[ $failed = 0 ] && echo "smoke: passed" || { echo "smoke: FAILED"; exit 1; }
