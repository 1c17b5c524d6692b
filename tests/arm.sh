#!/bin/sh
# The program for 64-bit Arm, by a cross compiler: tests/arm.sh build | test, called by make with its libraries in LIBS. `test` runs
# ARM_SUITES under qemu-user for a processor with every instruction and for one without products of bytes, and compares the texts of
# every set of kernels with the native program's: thirty texts, of the scalar set one. What emulation makes too long, whole texts by
# float weights (check_golden's tests tagged slow), is left out. ARM_ROOT: where Debian's arm64 packages were unpacked, if they are
# not installed beside the native ones. Where something is missing, one line says what, and nothing fails.
cc=${ARM_CC:-aarch64-linux-gnu-gcc}
skip() {
    echo "SKIPPED: aarch64: $1"
    exit 0
}
command -v "${cc##* }" >/dev/null || skip "no ${cc##* } (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)"
if [ "$ARM_ROOT" ]; then
    arch=aarch64-linux-gnu
    CFLAGS="-isystem $ARM_ROOT/usr/include/$arch -isystem $ARM_ROOT/usr/include"
    LDFLAGS="-L$ARM_ROOT/usr/lib/$arch -L$ARM_ROOT/lib/$arch -Wl,-rpath-link,$ARM_ROOT/usr/lib/$arch:$ARM_ROOT/lib/$arch"
fi
missing=$(echo 'int main(void) { return 0; }' | $cc $LDFLAGS -x c - -o /dev/null $LIBS -lcheck 2>&1 |
    sed -n 's/.*cannot find \(-l[^ ]*[^: ]\).*/\1/p' | head -1)
[ -z "$missing" ] || skip "no $missing of arm64 (Debian: dpkg --add-architecture arm64, then the packages of make deps with :arm64)"
build() {
    ${MAKE:-make} MODE=arm CC="$cc" CFLAGS="$CFLAGS" LDFLAGS="$LDFLAGS" "$@"
}
build build/arm/moetop || exit 1
[ "$1" = test ] || exit 0

qemu=$(command -v qemu-aarch64) || skip "no qemu-aarch64 (Debian: qemu-user)"
tests=
for t in $ARM_SUITES; do tests="$tests build/arm/tests/$t"; done
build $tests || exit 1
export QEMU_LD_PREFIX="${ARM_ROOT:-/}" CK_TIMEOUT_MULTIPLIER="${CK_TIMEOUT_MULTIPLIER:-15}" CK_EXCLUDE_TAGS=slow
bad=
texts() { # how many, program and its arguments
    n=$1
    shift
    for seed in $(seq "$n"); do
        "$@" -m configs/models/tiny-storyteller-Q8_0.gguf -p 'Tell me a story about a fox.' --place cpu --temp 0.9 \
            --seed "$seed" -n 30 2>/dev/null
    done | md5sum
}
for cpu in max cortex-a72; do
    export QEMU_CPU=$cpu
    sets='scalar neon'
    [ $cpu = cortex-a72 ] || sets='scalar neon dotprod i8mm'
    for k in $sets; do
        n=30
        [ $k = scalar ] && n=1
        got=$(texts $n "$qemu" build/arm/moetop --kernels $k)
        [ "$got" = "$(texts $n build/release/moetop)" ] && echo "$cpu, $k: $n of $n texts are the native ones" || {
            echo "FAILED $cpu, $k: another text than the native program's"
            bad=1
        }
    done
    EMULATOR=$qemu sh tests/run.sh build/arm $ARM_SUITES || bad=1
done
[ -z "$bad" ]
