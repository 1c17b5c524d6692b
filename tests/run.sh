#!/bin/sh
# Runs every built suite of one build tree: tests/run.sh build/MODE [name ...]. Exits 1 when any failed; the last line is the sum.
dir=$1; shift
[ $# -gt 0 ] || set -- $(cd "$dir/tests" && ls | grep '^check_' | grep -v '\.')
export MOETOP_BUILD="$dir" CK_DEFAULT_TIMEOUT="${CK_DEFAULT_TIMEOUT:-240}"
passed=0 failed=0
for t; do
    log="$dir/tests/$t.log"
    if "$dir/tests/$t" >"$log" 2>&1; then :; else echo "FAILED $t (log: $log)"; grep -vE '^(Running|[0-9]+%)' "$log" | head -40; broken=1; fi
    line=$(grep -aE '^[0-9]+%: Checks: ' "$log" | tail -1)
    n=$(printf '%s\n' "$line" | sed -nE 's/.*Checks: ([0-9]+), Failures: ([0-9]+), Errors: ([0-9]+).*/\1 \2 \3/p')
    set -- ${n:-0 0 1}
    f=$(($2 + $3)); passed=$((passed + $1 - f)); failed=$((failed + f))
    echo "$t: ${line:-no result}"
done
echo "$dir: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ -z "$broken" ]
