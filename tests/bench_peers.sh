#!/bin/sh
# Speed of moetop beside llama-bench binaries, by turns, so that the machine's moods meet all of them alike. Not run by make test: it takes minutes.
#   tests/bench_peers.sh -m MODEL [-M TWIN] [-p PROMPT,..] [-n GENERATED,..] [-d DEPTH] [-t THREADS] [-r REPETITIONS] [-R ROUNDS]
#                        [-f "FLAGS OF MOETOP"] PEER...
# PEER     "[NAME=]LLAMA_BENCH [FLAGS..]": llama.cpp's llama-bench or ik_llama.cpp's ("ik=build/bin/llama-bench -rtr 1").
# -M TWIN  the file that the peers open where they cannot open MODEL (same shape, same bytes a token).
# MOETOP   in the environment: the program (default ./moetop). METER: a command that measures how fast memory is read and prints lines
#          "...read... N GB/s" (the fastest counts); default: what moetop itself measures.
# A round runs every program once (REPETITIONS of each test), the meter before each and after the last. Printed per test and program: median
# rate and range over the rounds; for decoding its share of the memory's speed of the moment (mean of the meter before and after that run);
# the ratio of the medians, and the range of the ratios within one round. Runs beside which other processes took more than 8 % of a CPU
# are marked; with GNU time also the peak of resident memory.
set -u
LC_ALL=C
export LC_ALL
usage() { sed -n '3,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
model= twin= prompt=512 gen=128 depth=0 threads=1 reps=1 rounds=5 flags=
while getopts m:M:p:n:d:t:r:R:f: opt; do
    case $opt in
    m) model=$OPTARG ;; M) twin=$OPTARG ;; p) prompt=$OPTARG ;; n) gen=$OPTARG ;; d) depth=$OPTARG ;;
    t) threads=$OPTARG ;; r) reps=$OPTARG ;; R) rounds=$OPTARG ;; f) flags=$OPTARG ;; *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ -n "$model" ] && [ $# -ge 1 ] || usage
: "${twin:=$model}"
ours=${MOETOP:-./moetop}
[ -x "$ours" ] || { echo "$ours: no such program (make first, or set MOETOP)" >&2; exit 2; }
tmp=$(mktemp -d) || exit 5
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
tick=$(getconf CLK_TCK 2>/dev/null || echo 100)

# GB/s right now
meter() {
    if [ -n "${METER:-}" ]; then
        $METER 2>/dev/null | awk '/read/ { for (i = 2; i <= NF; i++) if ($i == "GB/s" && $(i - 1) + 0 > best) best = $(i - 1) + 0 } END { print best + 0 }'
    else
        "$ours" --bench -p 0 -n 1 -r 1 -t "$threads" -o jsonl --device none 2>/dev/null | awk 'match($0, /"bandwidth_before": [0-9.]+/) { printf "%.2f\n", substr($0, RSTART + 20, RLENGTH - 20) / 1e9 }'
    fi
}

# JSON of any llama-bench -> "test rate token_bytes", one a line. ik's -gp P,N is decoding after P tokens: the peers' -d P
rates() {
    tr -d '\n' <"$1" | sed 's/} *, *{/}\n{/g; s/}{/}\n{/g' | awk '
        function number(key) { return match($0, "\"" key "\": *[0-9.e+]+") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : 0 }
        /"avg_ts"/ {
            p = number("n_prompt"); g = number("n_gen"); d = number("n_depth")
            if (match($0, /"test": *"tg[0-9]+@pp[0-9]+"/)) { d = p; p = 0 }
            print (p > 0 ? "pp" p : "") (p > 0 && g > 0 ? "+" : "") (g > 0 ? "tg" g : "") (d > 0 ? "@d" d : ""), number("avg_ts"), number("token_bytes")
        }'
}

# all CPU time that the machine spent so far, in ticks
busy() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 + $9; exit }' /proc/stat; }

# run NAME COMMAND..: its rates, disturbance and memory go to $tmp/all
run() {
    name=$1; shift
    before=$(meter) t0=$(date +%s.%N) busy0=$(busy)
    times >"$tmp/times0"
    if [ -x /usr/bin/time ]; then /usr/bin/time -o "$tmp/rss" -f %M "$@" >"$tmp/out" 2>"$tmp/err"; else "$@" >"$tmp/out" 2>"$tmp/err"; fi
    rc=$?
    times >"$tmp/times1"
    busy1=$(busy) t1=$(date +%s.%N)
    [ $rc -eq 0 ] || { echo "$name failed ($rc): $*" >&2; tail -n 3 "$tmp/err" >&2; exit 1; }
    others=$(cat "$tmp/times0" "$tmp/times1" | awk -v b0="$busy0" -v b1="$busy1" -v t0="$t0" -v t1="$t1" -v tick="$tick" '
        function s(x) { split(x, a, "m"); return a[1] * 60 + a[2] }
        NR == 2 { mine = -s($1) - s($2) } NR == 4 { mine += s($1) + s($2) }
        END { o = ((b1 - b0) / tick - mine) / (t1 - t0); printf("%.3f", (o > 0) ? o : 0) }')
    after=$(meter)
    rates "$tmp/out" | while read -r test rate bytes; do
        echo "$test $name $rate $bytes $before $after $others $(tail -n 1 "$tmp/rss" 2>/dev/null || echo 0) $round"
    done >>"$tmp/all"
}

# The peer's own way to say -d and -o: llama.cpp has both, ik has -gp P,N and no jsonl
run_peer() {
    name=$1; shift
    if "$1" --help 2>&1 | grep -q -e '--n-depth'; then
        run "$name" "$@" -m "$twin" -p "$prompt" -n "$gen" -d "$depth" -t "$threads" -r "$reps" -o json
    elif [ "$depth" = 0 ]; then
        run "$name" "$@" -m "$twin" -p "$prompt" -n "$gen" -t "$threads" -r "$reps" -o json
    else
        run "$name" "$@" -m "$twin" -p 0 -n 0 -gp "$depth,$gen" -t "$threads" -r "$reps" -o json
    fi
}

round=0
: >"$tmp/all"
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    echo "round $round of $rounds" >&2
    # shellcheck disable=SC2086
    run moetop "$ours" --bench -m "$model" -p "$prompt" -n "$gen" -d "$depth" -t "$threads" -r "$reps" -o json --device none $flags
    i=0
    for peer; do
        i=$((i + 1))
        name=${peer%%=*} command=${peer#*=}
        case $name in *[!A-Za-z0-9._-]*|"$peer") name=peer$i command=$peer ;; esac
        # shellcheck disable=SC2086
        run_peer "$name" $command
    done
done

echo "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), $threads thread(s), $rounds rounds of $reps; $model"
[ "$twin" = "$model" ] || echo "peers opened $twin"
sort -s -k1,1 -k2,2 "$tmp/all" | awk '
    function order(a, n,   i, j, t) { for (i = 2; i <= n; i++) { t = a[i]; for (j = i - 1; j > 0 && a[j] > t; j--) a[j + 1] = a[j]; a[j + 1] = t } }
    function median(a, n) { order(a, n); return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2 }
    {
        if (!(($1, $2) in n)) { if (!($1 in tests)) { tests[$1] = ++n_tests; test[n_tests] = $1 } who[$1, ++n_who[$1]] = $2 }
        k = ++n[$1, $2]
        rate[$1, $2, k] = $3; round[$1, $2, k] = $9; memory[$1, $2, k] = ($5 + $6) / 2
        if ($4 > 0) bytes[$1] = $4
        if ($7 > 0.08) bad[$1, $2]++
        if ($8 > peak[$2]) peak[$2] = $8
    }
    END {
        printf "%-12s %-12s %26s %13s %14s %24s %9s %s\n", "test", "program", "tokens/s (range)", "memory GB/s", "of its speed", "moetop is (by round)", "peak RSS", ""
        for (t = 1; t <= n_tests; t++) {
            x = test[t]
            m = 0
            for (w = 0; w <= n_who[x]; w++) {            # moetop first
                p = w ? who[x, w] : "moetop"
                if ((w && p == "moetop") || !((x, p) in n)) continue
                c = n[x, p]
                for (k = 1; k <= c; k++) { v[k] = rate[x, p, k]; g[k] = memory[x, p, k]; s[k] = g[k] > 0 ? rate[x, p, k] * bytes[x] / g[k] / 1e9 : 0 }
                med = median(v, c)
                if (p == "moetop") m = med
                ratio = ""
                if (p != "moetop" && m > 0) {
                    low = 1e9; high = 0
                    for (k = 1; k <= c; k++) for (j = 1; j <= n[x, "moetop"]; j++) if (round[x, p, k] == round[x, "moetop", j]) {
                        q = rate[x, "moetop", j] / rate[x, p, k]; if (q < low) low = q; if (q > high) high = q
                    }
                    ratio = sprintf("%.2fx (%.2f-%.2f)", m / med, low, high)
                }
                printf("%-12s %-12s %26s %13s %14s %24s %9s %s\n", x, p, sprintf("%.2f (%.2f-%.2f)", med, v[1], v[c]), sprintf("%.1f", median(g, c)),
                    x ~ /^tg/ && bytes[x] > 0 ? sprintf("%.0f %%", 100 * median(s, c)) : "", ratio, peak[p] > 0 ? sprintf("%.2f GB", peak[p] * 1024 / 1e9) : "",
                    ((x, p) in bad) ? bad[x, p] " of " c " disturbed" : "")
            }
        }
    }'
