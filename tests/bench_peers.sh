#!/bin/sh
# Speed of moetop beside a llama-bench binary, by turns, so that the machine's moods meet both alike. Not run by make test: it takes minutes.
#   tests/bench_peers.sh LLAMA_BENCH MODEL [PEER_MODEL] [-t THREADS] [-p PROMPT] [-n GENERATED] [-d DEPTH] [-R ROUNDS] [-- more flags for llama-bench]
# PEER_MODEL: the file the peer opens when it cannot open MODEL (a twin of the same shape). MOETOP: the program (default ./moetop).
# A round is one repetition of each test by each program; printed are the medians, the spread and the ratio.
set -u
usage() { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
bench=$1 model=$2; shift 2
peer=$model threads=1 prompt=512 gen=128 depth=0 rounds=5
case ${1:-} in ''|-*) ;; *) peer=$1; shift ;; esac
while [ $# -gt 0 ]; do
    case $1 in
    -t) threads=$2; shift 2 ;;
    -p) prompt=$2; shift 2 ;;
    -n) gen=$2; shift 2 ;;
    -d) depth=$2; shift 2 ;;
    -R) rounds=$2; shift 2 ;;
    --) shift; break ;;
    *) usage ;;
    esac
done
ours=${MOETOP:-./moetop}
[ -x "$ours" ] || { echo "$ours: no such program (make first, or set MOETOP)" >&2; exit 2; }
[ -x "$bench" ] || { echo "$bench: no such program" >&2; exit 2; }
tmp=$(mktemp -d) || exit 5
trap 'rm -rf "$tmp"' EXIT INT TERM

# jsonl lines of either program -> "name test rate", one a line
rates() {
    awk -v who="$1" '{
        if (match($0, /"n_prompt": [0-9]+/)) p = substr($0, RSTART + 12, RLENGTH - 12)
        if (match($0, /"n_gen": [0-9]+/)) g = substr($0, RSTART + 9, RLENGTH - 9)
        if (match($0, /"n_depth": [0-9]+/)) d = substr($0, RSTART + 11, RLENGTH - 11)
        if (match($0, /"avg_ts": [0-9.]+/)) r = substr($0, RSTART + 10, RLENGTH - 10)
        share = ""
        if (match($0, /"roofline_share": [0-9.]+/)) share = substr($0, RSTART + 18, RLENGTH - 18)
        test = (p > 0 ? "pp" p : "") (p > 0 && g > 0 ? "+" : "") (g > 0 ? "tg" g : "") (d > 0 ? "@d" d : "")
        print who, test, r, share
    }'
}

i=0
while [ $i -lt "$rounds" ]; do
    i=$((i + 1))
    echo "round $i of $rounds" >&2
    "$ours" --bench -m "$model" -p "$prompt" -n "$gen" -d "$depth" -t "$threads" -r 1 -o jsonl --device none 2>/dev/null >"$tmp/ours.json" || { echo "moetop failed" >&2; exit 1; }
    rates moetop <"$tmp/ours.json" >>"$tmp/all"
    "$bench" -m "$peer" -p "$prompt" -n "$gen" -d "$depth" -t "$threads" -r 1 -o jsonl "$@" 2>/dev/null >"$tmp/theirs.json" || { echo "$bench failed" >&2; exit 1; }
    rates peer <"$tmp/theirs.json" >>"$tmp/all"
done

sort -k2,2 -k1,1 -k3,3n "$tmp/all" | awk '
    function flush() { if (n) { key = test; med[key, who] = n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2; low[key, who] = v[1]; high[key, who] = v[n]; share[key, who] = s; seen[key] = 1 } n = 0 }
    $1 != who || $2 != test { flush(); who = $1; test = $2 }
    { v[++n] = $3; s = $4 }
    END {
        flush()
        printf "%-16s %28s %28s %8s %s\n", "test", "moetop t/s (range)", "peer t/s (range)", "ratio", "of roofline"
        for (k in seen) {
            ratio = 0; note = ""
            if (med[k, "peer"] > 0) ratio = med[k, "moetop"] / med[k, "peer"]
            if (share[k, "moetop"] > 0) note = sprintf("%.0f %%", 100 * share[k, "moetop"])
            printf("%-16s %28s %28s %7.2fx %s\n", k, sprintf("%.2f (%.2f-%.2f)", med[k, "moetop"], low[k, "moetop"], high[k, "moetop"]),
                   sprintf("%.2f (%.2f-%.2f)", med[k, "peer"], low[k, "peer"], high[k, "peer"]), ratio, note)
        }
    }'
