# moetop: one non-recursive Makefile. Build trees never mix: build/release, build/debug, build/asan, build/tsan.
# Knobs: MODE=release|debug|asan|tsan|arm  CC  CFLAGS  PREFIX  DESTDIR  V=1; `make help` lists what can be made.
MODE    ?= release
PREFIX  ?= /usr/local
CC      ?= cc
B       := build/$(MODE)
VERSION := 0.1.0
# What the compiler builds for tells the files of kernels (NAME_SET.c) and the flags.
ARCH    := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
SETS_x86_64  := avx2 avxvnni avx512
SETS_aarch64 := neon dotprod i8mm
SETS    := $(SETS_$(ARCH))

# The list of packages (Debian names; others: configs/packaging/package.mk); the README and .ci/run call `make deps`.
PACKAGES := gcc make pkg-config libncurses-dev libreadline-dev libyaml-dev libdnnl-dev \
  ocl-icd-opencl-dev opencl-headers libclblast-dev pocl-opencl-icd libhwloc-dev check \
  libjansson-dev libutf8proc-dev libpcre2-dev libmicrohttpd-dev libcurl4-openssl-dev libssl-dev \
  libprotobuf-c-dev protobuf-c-compiler libonnx-dev tmux man-db clang
PACKAGES_IF_THERE := oclgrind

# Loaded at their first use (engine/base/library.h): OpenCL, CLBlast and oneDNN, where they are; and these, by the names that linking
# would note.
LIBS_LATER := curl microhttpd crypto
NCURSES    = $(or $(shell pkg-config --libs ncursesw 2>/dev/null),-lncursesw -ltinfo)
# Linked in where there is a static one: the runtime of ONNX's structures is small.
PROTOBUF_C = $(if $(SHARED),-lprotobuf-c,$(if $(filter /%,$(shell $(CC) -print-file-name=libprotobuf-c.a)),-l:libprotobuf-c.a,-lprotobuf-c))
LIBS  = -ldl -lyaml -lreadline $(NCURSES) -ljansson -lutf8proc -lpcre2-8 -lhwloc $(PROTOBUF_C) -lpthread -lm
# Bits are part of the contract (engine/device/numerics.h): no contraction, no fast-math.
BASE_CFLAGS := -std=c11 -D_GNU_SOURCE -DCL_TARGET_OPENCL_VERSION=120 -DMOETOP_VERSION='"$(VERSION)"' \
  -I. -I$(B)/gen -Wall -Wextra -Wvla -Wshadow \
  -Wmissing-prototypes -Wstrict-prototypes -Wno-unused-parameter \
  -ffp-contract=off -fno-math-errno -fopenmp-simd -MMD -MP
# Hardening is for the program that is installed; it covers the kernels too.
BRANCHES_x86_64  := -fcf-protection
BRANCHES_aarch64 := -mbranch-protection=standard
HARDENING      := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fstack-clash-protection $(BRANCHES_$(ARCH)) -fPIE
# Asserts hold headers' contracts against our own mistakes; they are compiled into every mode but the release.
CFLAGS_release := -O2 -g -DNDEBUG $(HARDENING)
CFLAGS_debug   := -O1 -g -Werror -DMOETOP_DEBUG
# The gate's ASan is clang's, so that a second compiler reads program and tests; what it warns of is an error. GCC's works too.
CLANG          := $(if $(findstring clang,$(CC)),-Werror -Wno-pass-failed -D__SANITIZE_ADDRESS__)
CFLAGS_asan    := -O1 -g $(CLANG) -DMOETOP_DEBUG -fPIC -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
# The program for 64-bit Arm, by a cross compiler: `make test-arm`.
CFLAGS_arm     := $(CFLAGS_release) -Werror
CFLAGS_fuzz    := -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
CFLAGS_tsan    := -O1 -g -DMOETOP_DEBUG -fPIC -fno-omit-frame-pointer -fsanitize=thread
comma := ,
# Packed relative relocations (glibc 2.36, musl 1.2.4) are 0.25 MB less of the program; binutils had them for x86 first.
PACKED_RELOCS   := $(if $(filter x86_64,$(ARCH)),-Wl$(comma)-z$(comma)pack-relative-relocs)
LDFLAGS_release := -pie -Wl,-z,relro,-z,now $(PACKED_RELOCS)
LDFLAGS_arm    := $(LDFLAGS_release)
LDFLAGS_asan   := -fsanitize=address,undefined
LDFLAGS_fuzz   := -fsanitize=address,undefined
LDFLAGS_tsan   := -fsanitize=thread
# A hundred suites with the whole program in each were 15 GB, most of it what sanitizers add and what debuggers read. Under a
# sanitizer they share one library; in the release each has the objects that are shipped, without their debug information.
SHARED := $(if $(filter asan tsan,$(MODE)),$(B)/libmoetop.so)
LDFLAGS_suite := $(if $(SHARED),-Wl$(comma)-rpath$(comma)'$$ORIGIN/..',$(if $(filter release,$(MODE)),-Wl$(comma)--strip-debug))
ALL_CFLAGS  = $(BASE_CFLAGS) $(CFLAGS_$(MODE)) $(CFLAGS)
ALL_LDFLAGS = $(LDFLAGS_$(MODE)) $(LDFLAGS)
ifeq ($(V),)
Q := @
endif

OTHERS  := $(filter-out $(SETS),$(SETS_x86_64) $(SETS_aarch64))
SRC     := $(filter-out $(OTHERS:%=\%_%.c),$(sort $(shell find engine ui gpu app -name '*.c')))
OBJ     := $(SRC:%.c=$(B)/%.o) $(B)/gen/onnx.pb-c.o
LIBOBJ  := $(filter-out $(B)/app/main.o,$(OBJ))
KERNELS := $(sort $(wildcard gpu/kernels/*.cl))
TESTSRC := $(sort $(wildcard tests/check_*.c))
TESTS   := $(TESTSRC:tests/%.c=$(B)/tests/%)
FUZZSRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ    := $(FUZZSRC:tests/fuzz/%.c=$(B)/fuzz/%)
# What the suites are linked with.
LIBMOETOP := $(or $(SHARED),$(B)/libmoetop.a)
TESTLIB := $(B)/tests/support.o $(B)/tests/tiny_model.o $(B)/tests/on_device.o $(B)/tests/golden.o $(B)/tests/golden_lora.o $(B)/tests/fake_device.o $(B)/tests/recurrent_device.o $(B)/tests/widen.o $(B)/tests/serving.o $(B)/tests/replay.o

.PHONY: all help lint format test test-all test-arm tests check fuzz fuzz-replay fuzz-run tsan-run deps docs install uninstall clean golden .FORCE
# ./moetop is the release program; other modes leave theirs in build/MODE/moetop.
all: $(if $(filter release,$(MODE)),moetop,$(B)/moetop)

moetop: build/release/moetop
	$(Q)cp -f $< $@
ifneq ($(MODE),release)
build/release/moetop:
	$(Q)$(MAKE) MODE=release $@
endif

# The runtime's check of wide accesses was 80 % of the vector kernels' suites: tests/asan_wide.c.
ASAN_WIDE := $(if $(filter asan,$(MODE)),$(if $(filter x86_64,$(ARCH)),$(B)/tests/asan_wide.o))
$(B)/tests/asan_wide.o: KOPT := -O2 -fno-sanitize=all

# Clang's runtime is in the program itself, where its function cannot stand twice; the suites' library has ours.
WIDE_HERE := $(if $(CLANG),,$(ASAN_WIDE))
$(B)/moetop: $(B)/app/main.o $(WIDE_HERE) $(B)/libmoetop.a
	@echo "LD   $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $< $(WIDE_HERE) $(B)/libmoetop.a $(LIBS)

$(B)/libmoetop.a: $(LIBOBJ)
	$(Q)rm -f $@; ar rcs $@ $(LIBOBJ)

$(B)/libmoetop.so: $(LIBOBJ) $(ASAN_WIDE)
	@echo "LD   $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -shared -o $@ $(LIBOBJ) $(ASAN_WIDE) $(LIBS)

# Objects of tests are kept: make would take them for intermediate files and delete them after linking.
.SECONDARY: $(TESTSRC:%.c=$(B)/%.o) $(FUZZSRC:%.c=$(B)/%.o)

# Kernels are chosen at run time, so each instruction set is a file compiled with its own flags.
$(B)/%_avx2.o:   ISA := -mavx2 -mfma -mf16c
$(B)/%_avxvnni.o: ISA := -mavx2 -mfma -mf16c -mavxvnni
$(B)/%_avx512.o: ISA := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16 -mfma -mf16c -mprefer-vector-width=512
$(B)/%_neon.o:    ISA := -march=armv8-a
$(B)/%_dotprod.o: ISA := -march=armv8.2-a+dotprod
$(B)/%_i8mm.o:    ISA := -march=armv8.2-a+dotprod+i8mm+bf16
$(B)/%/gemv_codebooks_avx512.o: ISA += -mavx512vbmi
# GCC orders instructions before it gives out registers: too few are left, and a product of bytes costs a move (Q4_0: 88 instructions
# a block instead of 57).
$(B)/%/formats_dotprod.o $(B)/%/formats_i8mm.o: ISA += $(if $(findstring clang,$(CC)),,-fno-schedule-insns)
# -O3 under a sanitizer takes minutes a file, and so do its checks in line: there each access is checked by a call, and of UBSan
# null, object-size and pointer-overflow are left to the scalar kernels. Fuzzing aims at parsers, not at these.
KOPT_release := -O3
KOPT_debug   := -O3
KOPT_asan    := $(if $(CLANG),-mllvm -,--param )asan-instrumentation-with-call-threshold=0 -fno-sanitize=null,object-size,pointer-overflow
KOPT_fuzz    := -fno-sanitize=all
KOPT_arm     := -O3 -g0
$(SETS:%=$(B)/\%_%.o): KOPT := $(KOPT_$(MODE))
# Most of what sanitizers compute is the scalar kernels.
$(B)/%_scalar.o: KOPT := $(if $(filter asan,$(MODE)),-O2)
# No comparison traps here; that one might keeps GCC from computing exps in vectors. No bit changes.
$(B)/engine/run/sampling/candidates.o $(B)/engine/run/sampling/logits_sum.o: KOPT := -fno-trapping-math
$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	@echo "CC   $<"
	$(Q)$(CC) $(ALL_CFLAGS) $(KOPT) $(ISA) -c -o $@ $<

# Other flags make other objects: the file changes when they do. The prefix is known to one object of the program.
$(B)/flags: export FLAGS = $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)
$(B)/prefix: export FLAGS = $(PREFIX)
$(B)/flags $(B)/prefix: .FORCE
	$(Q)mkdir -p $(@D); printf '%s\n' "$$FLAGS" | cmp -s - $@ || printf '%s\n' "$$FLAGS" > $@
$(B)/app/common/paths.o $(B)/tests/check_cli.o: KOPT := -DMOETOP_PREFIX='"$(PREFIX)"'
$(B)/app/common/paths.o $(B)/tests/check_cli.o: $(B)/prefix

# The file names of the libraries that are opened at their first use, from their own notes: LIBRARY_CURL "libcurl.so.4".
$(B)/gen/libraries.h: $(B)/flags Makefile
	@mkdir -p $(@D)
	$(Q)for l in $(LIBS_LATER); do f=$$($(CC) $(patsubst -L%,-B%,$(filter -L%,$(LDFLAGS))) -print-file-name=lib$$l.so); \
	  s=$$(LC_ALL=C readelf -d $$f 2>/dev/null | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p'); \
	  test -n "$$s" || { echo "lib$$l.so is not here: make deps" >&2; rm -f $@; exit 1; }; \
	  printf '#define LIBRARY_%s "%s"\n' $$(echo $$l | tr a-z A-Z) $$s; done > $@
$(B)/engine/base/digest.o $(B)/app/common/web.o $(B)/app/serve/common/mhd.o: $(B)/gen/libraries.h

# OpenCL sources become C string tables.
$(B)/gen/kernels.inc: $(KERNELS)
	@mkdir -p $(@D)
	$(Q)for f in $(KERNELS); do printf '{"%s",\n' $$(basename $$f .cl); sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/"/' -e 's/$$/\\n"/' $$f; printf '},\n'; done > $@
$(B)/gpu/program.o: $(B)/gen/kernels.inc

# The structures of an ONNX model, from ONNX's own description of them; the runtime is linked in, so that
# the program needs none of this where it runs.
ONNX_PROTO ?= /usr/include/onnx/onnx.proto
$(B)/gen/onnx.pb-c.h: $(wildcard $(ONNX_PROTO))
	@mkdir -p $(@D)
	@command -v protoc-c >/dev/null && test -f $(ONNX_PROTO) && test -f $$(pkg-config --variable=includedir libprotobuf-c 2>/dev/null)/protobuf-c/protobuf-c.h || { \
	  echo 'for --export-onnx the build needs protobuf-c-compiler, libprotobuf-c-dev and libonnx-dev: make deps' >&2; exit 1; }
	$(Q)protoc-c --proto_path=$(dir $(ONNX_PROTO)) --c_out=$(B)/gen $(notdir $(ONNX_PROTO))
$(B)/gen/onnx.pb-c.c: $(B)/gen/onnx.pb-c.h ;
$(B)/gen/onnx.pb-c.o: $(B)/gen/onnx.pb-c.c $(B)/flags
	@echo "CC   $<"
	$(Q)$(CC) $(ALL_CFLAGS) -w -c -o $@ $<
$(B)/engine/convert/onnx/graph.o $(B)/tests/check_onnx_export.o: $(B)/gen/onnx.pb-c.h

$(B)/tests/check_%: $(B)/tests/check_%.o $(TESTLIB) $(LIBMOETOP)
	@echo "LD   $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(LDFLAGS_suite) -o $@ $< $(TESTLIB) $(LIBMOETOP) -lcheck -lsubunit -lrt $(LIBS) $(LIBS_$(notdir $@))

# Two suites serve by themselves.
LIBS_check_fetch   := -lmicrohttpd
LIBS_check_connect := -lmicrohttpd

# Broken OpenCL drivers for check_opencl and for trying by hand.
$(B)/tests/icd_%.so: tests/icd_fault.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -Wall -Wextra -DFAULT_$* -shared -fPIC -o $@ $<
$(B)/tests/check_opencl: | $(B)/tests/icd_crash.so $(B)/tests/icd_hang.so

# The program with a device that is not to be relied on: never with the shared library, which has the table of back ends too.
$(B)/tests/faulty: $(B)/tests/faulty.o $(B)/tests/fake_device.o $(B)/app/main.o $(WIDE_HERE) $(B)/libmoetop.a
	@echo "LD   $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(LDFLAGS_suite) -o $@ $^ $(LIBS)
$(B)/tests/check_audit $(B)/tests/check_serve $(B)/tests/check_soak: | $(B)/tests/faulty

# Fuzz targets: tests/fuzz/fuzz_NAME.c with corpus/NAME beside it. `make check` replays the corpus and small changes of it; `make fuzz`
# builds them with libFuzzer (clang) and runs each for FUZZ_SECONDS; what it finds belongs into the corpus.
FUZZ_SECONDS ?= 60
ifeq ($(MODE),fuzz)
FUZZ_MAIN :=
FUZZ_LD   := -fsanitize=fuzzer,address,undefined
else
FUZZ_MAIN := $(B)/tests/fuzz/replay.o
endif
$(B)/fuzz/fuzz_%: $(B)/tests/fuzz/fuzz_%.o $(FUZZ_MAIN) $(LIBMOETOP)
	@mkdir -p $(@D)
	@echo "LD   $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(LDFLAGS_suite) $(FUZZ_LD) -o $@ $< $(FUZZ_MAIN) $(LIBMOETOP) $(LIBS)
fuzz-replay: $(FUZZ)
	$(Q)for t in $(notdir $(FUZZ)); do $(B)/fuzz/$$t tests/fuzz/corpus/$${t#fuzz_} || { echo "FAILED $$t"; exit 1; }; done
fuzz:
	$(Q)$(MAKE) MODE=fuzz CC=clang fuzz-run
fuzz-run: $(FUZZ)
	$(Q)for t in $(notdir $(FUZZ)); do echo "$$t: $(FUZZ_SECONDS) s"; mkdir -p build/fuzz/new/$$t; $(B)/fuzz/$$t -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 \
	  -print_final_stats=1 build/fuzz/new/$$t tests/fuzz/corpus/$${t#fuzz_} 2>$(B)/$$t.log || { tail -40 $(B)/$$t.log; exit 1; }; grep -E 'cov:' $(B)/$$t.log | tail -1; done

tests: $(TESTS) $(FUZZ)
# Runs every suite of this MODE.
check: $(TESTS) $(B)/moetop
	$(Q)sh tests/run.sh $(B) $(SUITES)
	$(Q)$(MAKE) MODE=$(MODE) fuzz-replay
# Suites in which threads meet: those that TSan must see.
TSAN_SUITES := $(filter check_chat check_worker check_ring check_pool check_cpu_device check_engine check_serve check_soak,$(notdir $(TESTS)))
# README's command: the program as it is shipped. The rest of the gate is the same suites under sanitizers, and a second compiler.
test: moetop
	$(Q)$(MAKE) MODE=release check
ASAN_CC ?= clang
test-all:
	$(Q)$(MAKE) MODE=asan CC="$(ASAN_CC)" check
	$(Q)$(if $(TSAN_SUITES),$(MAKE) MODE=tsan SUITES="$(TSAN_SUITES)" tsan-run)
	$(Q)LIBS='$(LIBS)' MAKE='$(MAKE)' sh tests/arm.sh build
# 64-bit Arm without a board: the cross compiler and qemu-user. ARM_ROOT: a folder with arm64's libraries.
test-arm: moetop
	$(Q)LIBS='$(LIBS)' MAKE='$(MAKE)' ARM_SUITES='$(ARM_SUITES)' sh tests/arm.sh test
ARM_SUITES := check_kernels check_gemv check_formats check_conformance check_golden check_families check_sampler check_pool
tsan-run: $(addprefix $(B)/tests/,$(SUITES)) $(B)/moetop
	$(Q)sh tests/run.sh $(B) $(SUITES)

# What a reviewer would say first, in seconds: columns, stray blanks, layers and circles, printed documents.
COLUMNS := 100
lint: build/release/moetop build/release/tests/check_layering build/release/tests/check_docs
	$(Q)git ls-files '*.c' '*.h' '*.inc' '*.cl' | xargs awk -v most=$(COLUMNS) '{ n = $$0; gsub(/[\200-\277]/, "", n) } \
	  length(n) > most { print FILENAME ":" FNR ": " length(n) " columns"; bad = 1 } END { exit bad }'
	$(Q)! git ls-files '*.c' '*.h' '*.inc' '*.def' '*.cl' Makefile | xargs grep -nE '[ 	]+$$' /dev/null
	$(Q)sh tests/run.sh build/release check_layering check_docs
format:
	clang-format -i $$(git ls-files '*.c' '*.h' '*.inc')
# For editors and language servers: the commands as this Makefile gives them.
compile_commands.json: Makefile $(SRC)
	$(Q)$(MAKE) -s -B -n MODE=$(MODE) $(OBJ) | awk -v dir="$(CURDIR)" 'BEGIN { print "[" } / -c -o / { \
	  gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); printf "%s{\"directory\": \"%s\", \"file\": \"%s\", \"command\": \"%s\"}", sep, dir, $$NF, $$0; sep = ",\n" } \
	  END { print "\n]" }' >$@
help:
	@printf '%s\n' \
	  'make            ./moetop, the release program (MODE=debug, asan, tsan: build/MODE/moetop)' \
	  'make deps       install the packages it needs (apt, dnf, pacman, apk; elsewhere: their list)' \
	  'make test       every suite and all fuzz corpora, as released; make check: the same of one MODE' \
  'make test-all   the rest of the gate: ASan+UBSan by clang over everything, TSan over threads, a build for aarch64' \
  'make test-arm   kernels, formats, families and texts of the build for aarch64, under qemu-user' \
	  'make lint       columns, layers, circles, printed documents: seconds' \
	  'make docs       print manual pages and default configuration from the tables' \
	  'make format     clang-format over the C files' \
	  'make golden     golden numbers of DIRS="FOLDER|FILE.gguf ..."' \
	  'make fuzz       libFuzzer over the parsers, FUZZ_SECONDS each (CC=clang)' \
	  'make install    PREFIX, DESTDIR; make uninstall' \
	  'make dist       a tarball that builds offline; make deb, rpm, arch: packages from it; all below build/' \
	  "                their MAINTAINER='NAME <MAIL>' and HOMEPAGE=URL are yours to say" \
	  'make portable   one file for any Linux, the CPU alone (make deps-portable before)' \
	  'make compile_commands.json    for editors' \
	  'sh tests/run.sh build/release check_engine    one suite'

# Documents printed from the tables; the results are committed and tests/check_docs.c compares them.
docs: build/release/moetop
	build/release/moetop --print-config=default > configs/default.yaml.new
	build/release/moetop --print-man man/moetop.1.in > man/moetop.1.new
	build/release/moetop --print-man man/moetop.yaml.5.in > man/moetop.yaml.5.new
	mv configs/default.yaml.new configs/default.yaml
	mv man/moetop.1.new man/moetop.1
	mv man/moetop.yaml.5.new man/moetop.yaml.5

DATA := $(DESTDIR)$(PREFIX)/share
# What share/moetop holds.
CONFIGS := $(sort $(shell find configs -path configs/packaging -prune -o -type f -print))

MANUAL := $(sort $(wildcard man/*.1 man/*.5 man/*.7))

# What is installed, and a folder for what is made on the way.
PROGRAM := build/release/moetop
BUILT   := build
# A shell's redirection follows the umask; everybody shall be able to read what is installed.
define install_completion
$(PROGRAM) --completion $(1) > $(BUILT)/completion.$(1)
install -D -m 644 $(BUILT)/completion.$(1) $(DATA)/$(2)
endef

install: $(PROGRAM)
	install -D -m 755 $(PROGRAM) $(DESTDIR)$(PREFIX)/bin/moetop
	$(Q)for f in $(MANUAL); do install -D -m 644 $$f $(DATA)/man/man$${f##*.}/$${f#man/} || exit 1; done
	$(Q)for f in $(CONFIGS); do install -D -m 644 $$f $(DATA)/moetop/$${f#configs/} || exit 1; done
	sed -i 's|/usr/local/|$(PREFIX)/|' $(DATA)/moetop/systemd/moetop.service
	install -D -m 644 LICENSE $(DATA)/doc/moetop/LICENSE
	test ! -f README.md || install -D -m 644 README.md $(DATA)/doc/moetop/README.md
	$(call install_completion,bash,bash-completion/completions/moetop)
	$(call install_completion,zsh,zsh/site-functions/_moetop)
	$(call install_completion,fish,fish/vendor_completions.d/moetop.fish)

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/moetop $(foreach f,$(MANUAL),$(DATA)/man/man$(subst .,,$(suffix $(f)))/$(notdir $(f)))
	rm -f $(DATA)/bash-completion/completions/moetop $(DATA)/zsh/site-functions/_moetop $(DATA)/fish/vendor_completions.d/moetop.fish
	rm -rf $(DATA)/moetop $(DATA)/doc/moetop

# Golden numbers of any folders of the layout of tests/golden/phimoe, also outside this tree, and of GGUF files with theirs beside them.
DIRS ?= $(sort $(dir $(wildcard tests/golden/phimoe/*/golden.safetensors)))
$(B)/tests/golden_tool: $(B)/tests/golden_tool.o $(B)/tests/golden.o $(B)/tests/golden_lora.o $(B)/tests/support.o $(B)/tests/widen.o $(B)/libmoetop.a
	@echo "LD   $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ -lcheck -lsubunit -lrt $(LIBS)
golden: $(B)/tests/golden_tool
	$(Q)$< $(DIRS)

# How decoding shares its work among cores of unequal speed; a benchmark, not a test.
$(B)/tests/uneven_cores: $(B)/tests/uneven_cores.o $(B)/tests/tiny_model.o $(B)/libmoetop.a
	@echo "LD   $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ -lcheck -lsubunit -lrt $(LIBS)

# Masks of JSON schemas, asked by tests/tools/grammar_masks.py.
$(B)/tests/grammar_masks: $(B)/tests/grammar_masks.o $(B)/libmoetop.a
	@echo "LD   $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

include configs/packaging/package.mk

clean:
	rm -rf build moetop

-include $(OBJ:.o=.d) $(TESTSRC:%.c=$(B)/%.d) $(FUZZSRC:%.c=$(B)/%.d) $(TESTLIB:.o=.d) $(ASAN_WIDE:.o=.d) $(B)/tests/golden_tool.d $(B)/tests/grammar_masks.d $(B)/tests/uneven_cores.d $(B)/tests/faulty.d
