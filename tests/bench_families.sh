#!/bin/sh
# Speed of every family that llama.cpp opens beside it, on files of a few layers at the published widths. Not run by make test: three quarters of an hour on a quiet machine.
#   tests/bench_families.sh [-d FOLDER] [-o FILE] [-p PROMPT] [-n GENERATED] [-t THREADS] [-R ROUNDS] LLAMA_BENCH [FAMILY...]
# Each file (0.3 to 1.9 GB, tests/tools/synthetic_gguf.py, vocabulary of 32000) is written to FOLDER (default /dev/shm), measured by turns
# (tests/bench_peers.sh: medians over ROUNDS, default 3) and deleted. Printed per family: how many times llama.cpp's prompt and decode rate,
# the range of both within one round, and decode's share of the memory's speed; whatever is wrong with a family in its row.
# FILE: also "FAMILY PROMPT-RATIO DECODE-RATIO" a line, for tests/tools/family_table.py --speed.
set -u
LC_ALL=C
export LC_ALL
usage() { sed -n '3,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=/dev/shm out= prompt=512 gen=64 threads=$(nproc) rounds=3
while getopts d:o:p:n:t:R: opt; do
    case $opt in
    d) folder=$OPTARG ;; o) out=$OPTARG ;; p) prompt=$OPTARG ;; n) gen=$OPTARG ;; t) threads=$OPTARG ;; R) rounds=$OPTARG ;; *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || usage
peer=$1
shift
[ -x "$peer" ] || { echo "$peer: no such program (llama.cpp's llama-bench)" >&2; exit 2; }
here=$(dirname "$0")
tmp=$(mktemp -d) || exit 5
trap 'rm -rf "$tmp" "$folder/families-$$.gguf" "$folder/families-$$-twin.gguf"' EXIT
trap 'exit 130' INT TERM
[ -z "$out" ] || : >"$out" || exit 5

# family, shape of synthetic_gguf.py, type, layers, experts; +SHAPE: what llama.cpp opens instead (see bench_peers.sh -M)
families='
phimoe phi-tiny+phi-tiny-llama Q4_K_M 14 16
mixtral mixtral Q4_K_M 1 8
olmoe olmoe Q4_K_M 4 64
ernie4_5_moe ernie4_5_moe Q4_K_M 4 40
glm4_moe glm4_moe Q4_K_M 3 24
granitemoe granitemoe Q4_K_M 16 40
qwen2_moe qwen2_moe Q4_K_M 3 60
qwen3_moe qwen3-30b-a3b Q4_K_M 5 64
qwen3_next qwen3_next Q4_K_M 4 128
qwen3_5_moe qwen3.5-35b-a3b Q4_K_M 4 128
deepseek_v2 deepseek-v2-lite Q4_K_M 27 8
deepseek_v3 deepseek_v3 Q4_K_M 3 12
glm4_moe_lite glm4_moe_lite Q4_K_M 5 32
bailing_moe bailing_moe Q4_K_M 5 32
bailing_moe_v2 bailing_moe_v2 Q4_K_M 4 128
bailing_hybrid bailing_hybrid Q4_K_M 5 128
gemma4 gemma4 Q4_K_M 6 48
gpt_oss gpt-oss-20b MXFP4 4 16
granitemoehybrid granitemoehybrid Q4_K_M 8 64
lfm2_moe lfm2-8b-a1b Q4_K_M 6 32
nemotron_h nemotron_h Q4_K_M 7 40
afmoe afmoe Q4_K_M 6 64
dots1 dots1 Q4_K_M 4 24
laguna laguna Q4_K_M 5 128
mellum mellum Q4_K_M 4 64
exaone_moe exaone_moe Q4_K_M 3 16
solar_open solar_open Q4_K_M 4 24
deepseek deepseek Q4_K_M 5 32
granite_swa granite_swa Q4_K_M 5 64
minimax_m2 minimax_m2 Q4_K_M 3 32
hy_v3 hy_v3 Q4_K_M 4 24
cohere2_moe cohere2_moe Q4_K_M 5 64
kimi_linear kimi_linear Q4_K_M 5 48
hunyuan_v1_moe hunyuan_v1_moe Q4_K_M 3 12
mistral4 mistral4 Q4_K_M 3 16
smallthinker smallthinker Q4_K_M 5 64
maple maple Q4_K_M 4 64
llama4 llama4 Q4_K_M 4 3
jamba jamba Q4_K_M 5 4
step3p5 step3p5 Q4_K_M 4 24
mimo_v2_flash mimo_v2_flash Q4_K_M 4 16
deepseek_v32 deepseek_v32 Q4_K_M 4 16
glm_moe_dsa glm_moe_dsa Q4_K_M 4 16
grovemoe grovemoe Q4_K_M 5 64
deepseek_v4 deepseek_v4 Q4_K_M 4 12
qwen4_exp qwen4_exp Q4_K_M 4 64
qwen3_vl_moe qwen3_vl_moe Q4_K_M 4 64
llama llama Q4_K_M 3 0
granite granite Q4_K_M 3 0
qwen2 qwen2 Q4_K_M 3 0
qwen3 qwen3 Q4_K_M 3 0
qwen3_5 qwen3_5 Q4_K_M 4 0
lfm2 lfm2 Q4_K_M 8 0
smollm3 smollm3 Q4_K_M 8 0
gemma3 gemma3 Q4_K_M 6 0
gemma3n gemma3n Q4_K_M 10 0
gemma4_e gemma4_e Q4_K_M 20 0
olmo2 olmo2 Q4_K_M 3 0
olmo3 olmo3 Q4_K_M 4 0
phi3 phi3 Q4_K_M 5 0
mistral3 mistral3 Q4_K_M 3 0
muse_glimmer muse_glimmer Q4_K_M 2 0
gpt2 gpt2 Q4_K_M 16 0
'
# what it does not open
[ -z "$out" ] || [ $# -gt 0 ] || for name in flex_olmo jetmoe longcat_flash opt zaya; do echo "$name - -"; done >"$out"
write() { python3 "$here/tools/synthetic_gguf.py" "$1" "$2" --type "$3" --layers "$4" --experts "$5" --vocab 32000 >"$tmp/log" 2>&1; }
asked=" $* "
for name; do
    echo "$families" | grep -q "^$name " || { echo "$name: no such family" >&2; exit 2; }
done
echo "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), $threads thread(s), $rounds rounds, prompt of $prompt, $gen generated"
printf '%-18s %-8s %22s %22s %12s\n' family type "prompt (range)" "decode (range)" "of memory"
echo "$families" | while read -r name shape type layers experts; do
    [ -n "$name" ] || continue
    case $asked in "  " | *" $name "*) ;; *) continue ;; esac
    model=$folder/families-$$.gguf twin=
    write "${shape%%+*}" "$model" "$type" "$layers" "$experts" || { printf '%-18s %-8s %s\n' "$name" "$type" "not written: $(tail -n 1 "$tmp/log")"; continue; }
    case $shape in *+*)
        twin=$folder/families-$$-twin.gguf
        write "${shape#*+}" "$twin" "$type" "$layers" "$experts" || twin= ;;
    esac
    if "$here/bench_peers.sh" -m "$model" -M "${twin:-$model}" -p "$prompt" -n "$gen" -t "$threads" -R "$rounds" "llama.cpp=$peer" >"$tmp/table" 2>"$tmp/log"; then
        awk -v name="$name" -v type="$type" -v out="$out" '
            # a ratio and its range follow each other: 2.61x (2.50-2.70)
            function ratio(   i) { for (i = 3; i <= NF; i++) if ($i ~ /^[0-9.]+x$/) return $i " " $(i + 1); return "-" }
            /disturbed/ { disturbed = " disturbed" }
            $1 ~ /^pp/ && $2 == "llama.cpp" { p = ratio() }
            $1 ~ /^tg/ && $2 == "llama.cpp" { d = ratio() }
            $1 ~ /^tg/ && $2 == "moetop" { for (i = 3; i <= NF; i++) if ($i == "%") share = $(i - 1) " %" }
            END {
                printf "%-18s %-8s %22s %22s %12s%s\n", name, type, p, d, share, disturbed
                if (out != "") { sub(/ .*/, "", p); sub(/ .*/, "", d); print name, p, d >>out }
            }' "$tmp/table"
    else
        printf '%-18s %-8s %s\n' "$name" "$type" "$(grep -v '^round' "$tmp/log" | tail -n 1)"
        [ -z "$out" ] || echo "$name - -" >>"$out"
    fi
    rm -f "$model" "$twin"
done
