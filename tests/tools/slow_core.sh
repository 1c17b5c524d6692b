#!/bin/sh
# tests/tools/slow_core.sh [THREADS [FACTOR [TOKENS]]]: tests/uneven_cores with the last half of its threads in a control group that
# gives each 1/FACTOR of a core, by a quota of the shortest period that the kernel takes. Root, with version 1 of the processor's
# controller mounted, or version 2 where it may be given to children. The program is at nice -20, its session and its group have the
# greatest weight, so that others hardly disturb it.
threads=${1:-2} factor=${2:-2} tokens=${3:-200}
program=build/release/tests/uneven_cores
slow=$((threads / 2))
period=$(awk "BEGIN { print int(1000 * $factor) }") # us; the least quota is 1000
if folder=$(awk '$3 == "cgroup" && $4 ~ /(^|,)cpu(,|$)/ { print $2; exit }' /proc/self/mounts) && [ "$folder" ]; then
    group=$folder/slow_core.$$
    mkdir "$group" && echo 200000 >"$group/cpu.shares" && echo "$period" >"$group/cpu.cfs_period_us" && echo $((1000 * slow)) >"$group/cpu.cfs_quota_us" || exit 1
    file=$group/tasks
elif folder=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts) && [ "$folder" ]; then
    group=$folder/slow_core.$$
    mkdir "$group" "$group/slow" && echo 10000 >"$group/slow/cpu.weight" 2>/dev/null
    echo $$ >"$group/cgroup.procs" && echo threaded >"$group/slow/cgroup.type" &&
        echo +cpu >"$group/cgroup.subtree_control" && echo "$((1000 * slow)) $period" >"$group/slow/cpu.max" || exit 1
    file=$group/slow/cgroup.threads
else
    echo 'no control groups are mounted here' >&2
    exit 1
fi
[ ! -w /proc/$$/autogroup ] || echo -20 >/proc/$$/autogroup
nice -n -20 "$program" "$threads" "$factor" "$tokens" "$file"
[ "${file##*/}" = tasks ] || { echo $$ >"$folder/cgroup.procs" && rmdir "$group/slow"; }
rmdir "$group"
