#!/bin/sh
# Runs every built suite of one build tree: tests/run.sh build/MODE [name ...]. Exits 1 when any failed; the last line is the sum.
# One more at once than there are processors, for many wait (JOBS=1: one after the other); a suite's output is in build/MODE/tests/NAME.log.
# A suite's parts that run beside it, as one of its own each: SUITE:TAG, Check's tag of the cases in it.
parts='check_opencl:formats check_conformance:opencl'
parts_of() { for p in $parts; do case $p in "$1":*) echo "$p" ;; esac; done; }
file_of() { echo "$dir/tests/$(printf '%s' "$1" | tr : .)"; }
if [ "$1" = --one ]; then # one suite or part: prints its line, keeps "passed failed skipped" in NAME.sum
    dir=$2 t=$3 from=$(date +%s) broken=
    log="$(file_of "$t").log"
    case $t in
    *:*) export CK_INCLUDE_TAGS="${t#*:}" ;;
    *) export CK_EXCLUDE_TAGS="$CK_EXCLUDE_TAGS $(parts_of "$t" | sed 's/.*://' | tr '\n' ' ')" ;;
    esac
    $EMULATOR "$dir/tests/${t%%:*}" >"$log" 2>&1 || broken=1
    line=$(grep -aE '^[0-9]+%: Checks: ' "$log" | tail -1)
    n=$(printf '%s\n' "$line" | sed -nE 's/.*Checks: ([0-9]+), Failures: ([0-9]+), Errors: ([0-9]+).*/\1 \2 \3/p')
    set -- ${n:-0 0 1}
    f=$(($2 + $3))
    [ -z "$broken" ] || [ "$f" -gt 0 ] || f=1
    # A test that says SKIPPED has asserted nothing: it counts as that, and its reason is shown.
    s=$(grep -ac '^SKIPPED: ' "$log")
    echo "$(($1 > f + s ? $1 - f - s : 0)) $f $s" >"$(file_of "$t").sum"
    notes=$(grep -aE '^(SKIPPED|RAN): ' "$log" | sort -u | sed -e "s/^SKIPPED: /    skipped: /" -e "s/^RAN: /    ran: /")
    seconds=$(($(date +%s) - from))
    [ "$seconds" -lt 10 ] && seconds= || seconds=" ($seconds s)"
    # One write, so that suites that end together do not mix their lines. What failed comes first: a long output may be cut.
    [ "$f" = 0 ] && printf '%s\n' "$t: $line$seconds${notes:+
$notes}" || printf '%s\n' "FAILED $t (log: $log)$seconds
$t: ${line:-no result}
$(grep -anE ':[FE]:|^FATAL|ERROR: |runtime error|SUMMARY: |: [0-9]+ bad' "$log" | cut -c1-500 | head -20)
$(grep -avE '^(Running|[0-9]+%: Checks|RAN: |SKIPPED: )|:[PFE]:' "$log" | cut -c1-300 | tail -20)"
    exit 0
fi
dir=$1; shift
# The longest first, so that none is left alone at the end.
longest='check_opencl_interpreted check_opencl check_serve check_mcp_chat check_sessions check_speculate check_conformance check_families check_cli check_opencl_engine check_bench check_connect
check_replay check_expert_cache check_commands check_fit check_cpu_device check_fetch check_golden check_smoke check_quantize check_batch'
if [ $# = 0 ]; then
    set -- $(cd "$dir/tests" && ls | grep '^check_' | grep -v '\.')
    set -- $(for t in $longest; do [ ! -x "$dir/tests/$t" ] || echo "$t"; done) \
        $(printf '%s\n' "$@" | grep -vxF "$(printf '%s\n' $longest)")
fi
set -- $(for t; do echo "$t"; parts_of "$t"; done)
export CHECK_BUILD="$dir" CK_DEFAULT_TIMEOUT="${CK_DEFAULT_TIMEOUT:-240}"
# A sanitizer makes everything several times as slow: a limit is for what hangs.
case "$dir" in *asan | *tsan) export CK_TIMEOUT_MULTIPLIER="${CK_TIMEOUT_MULTIPLIER:-4}" ;; esac
# PoCL opens and closes a library a kernel; what the sanitizers keep of such libraries' thread storage
# (__tls_get_addr, guessed from the heap) is garbage then, and the search for leaks crashes on it.
export ASAN_OPTIONS="intercept_tls_get_addr=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
# PoCL compiles a kernel once for all suites of all modes, wherever each says that caches are.
export POCL_CACHE_DIR="${POCL_CACHE_DIR:-$(cd "$dir/.." && pwd)/pocl}"
mkdir -p "$POCL_CACHE_DIR"
(cd "$dir/tests" && rm -f *.sum)
printf '%s\n' "$@" | xargs -P "${JOBS:-$(($(nproc) + 1))}" -n 1 sh "$0" --one "$dir"
# RETRY=1: a suite or two that fail beside the others are run again, alone. What is so is named behind them all, and its first log
# kept (NAME.first.log): it is to be looked into, but not all that others did is to be lost for it.
again=
[ "${RETRY:-0}" = 0 ] || for t; do [ "$(cut -d' ' -f2 "$(file_of "$t").sum")" = 0 ] || again="$again $t"; done
[ "$(echo $again | wc -w)" -le 2 ] || again=
for t in $again; do
    mv "$(file_of "$t").log" "$(file_of "$t").first.log"
    sh "$0" --one "$dir" "$t"
done
passed=0 failed=0 skipped=0
for t; do
    read -r p f s <"$(file_of "$t").sum" || { p=0 f=1 s=0; }
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
[ -z "$again" ] || echo "run again:$again"
echo "$dir: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
