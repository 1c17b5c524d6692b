# Packages, included by the Makefile: everything is made below build/, nothing else is written.
# The tree is the tracked files as they are (in a tarball: all of them but what was built), its date that of the last commit.
PACKAGING := configs/packaging
DIST      := moetop-$(VERSION)
TARBALL   := build/$(DIST).tar.gz
TREE      = { git ls-files -z -- . ':!.*' 2>/dev/null | grep -z . || find * -path build -prune -o -type f ! -name moetop -print0; } | LC_ALL=C sort -z
DATE      = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y Makefile))
# Whose packages they are: for who publishes them to say (make deb MAINTAINER='NAME <MAIL>' HOMEPAGE=https://…). The files in here hold
# these same two, at a domain that nobody can own (RFC 2606).
MAINTAINER ?= the moetop authors <moetop@moetop.invalid>
HOMEPAGE   ?= https://moetop.invalid/
in_sed      = $(subst |,\|,$(subst &,\&,$(subst \,\\,$(1))))
OWNED       = sed -e 's|the moetop authors <moetop@moetop.invalid>|$(call in_sed,$(MAINTAINER))|' -e 's|https://moetop.invalid/|$(call in_sed,$(HOMEPAGE))|'
# A tool that is needed here, and what brings it.
need = @command -v $(1) >/dev/null || { echo 'make $@ needs $(1): apt-get install $(2)' >&2; exit 1; }

.PHONY: dist deb rpm arch portable
# The same tree gives the same bytes: sorted names, one owner, one date, no time in gzip's header.
dist: $(TARBALL)
TAR_FLAGS = --null -T - --format=ustar --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w,a-s --mtime=@$(DATE)
$(TARBALL): .FORCE
	@mkdir -p $(@D)
	$(Q)$(TREE) | tar $(TAR_FLAGS) --transform='s,^,$(DIST)/,' -c | gzip -9n > $@
	@echo "$@"

# Debian's: debhelper over an unpacked tarball, so that no other file can slip in.
deb: $(TARBALL)
	$(call need,dh,debhelper)
	$(Q)rm -rf build/deb && mkdir -p build/deb && tar -xzf $(TARBALL) -C build/deb
	$(Q)cp -r $(PACKAGING)/debian build/deb/$(DIST)/debian
	$(Q)$(OWNED) $(PACKAGING)/debian/control > build/deb/$(DIST)/debian/control
	$(Q)printf 'moetop (%s) unstable; urgency=medium\n\n  * See README.md and the manual pages.\n\n -- %s  %s\n' $(VERSION) \
	  "$$(sed -n 's/^Maintainer: //p' build/deb/$(DIST)/debian/control)" "$$(LC_ALL=C date -u -d @$(DATE) '+%a, %d %b %Y %T +0000')" \
	  > build/deb/$(DIST)/debian/changelog
	$(Q)cd build/deb/$(DIST) && env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS $(if $(filter-out cc,$(CC)),CC="$(CC)") \
	  DEB_BUILD_OPTIONS="parallel=$$(nproc) $(DEB_BUILD_OPTIONS)" dpkg-buildpackage -us -uc -b
	@ls build/deb/*.deb

# One file for any Linux of this processor: everything is linked in, no library is loaded, so it knows the CPU alone. The objects
# are the release's, but for those that load libraries; in one object, for our names meet those inside the libraries.
# Beside it lie what share/moetop holds and the manual, as it looks for them in a clone: a folder to unpack anywhere.
# Of curl's and GnuTLS' protocols that no static library exists for (and that are never asked for), each function gives 0.
PORTABLE      = build/moetop-$(VERSION)-linux-$(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
STATIC_LIBS   = $(patsubst %,-l:lib%.a,readline ncursesw tinfo yaml jansson utf8proc pcre2-8 microhttpd gnutls hogweed nettle gmp tasn1 \
  curl nghttp2 idn2 unistring zstd brotlidec brotlicommon z ssl crypto hwloc protobuf-c \
  $(if $(filter /%,$(shell $(CC) -print-file-name=libnghttp3.a)),nghttp3)) -lpthread -lm
LOADERS       = engine/base/library.c engine/base/digest.c app/common/web.c app/serve/common/mhd.c
ABSENT       := gss_ GSS_ ldap_ ber_ libssh2_ RTMP_ p11_kit_ psl_ udev_
empty        :=
tool          = $$($(CC) -print-prog-name=$(1))
STATIC_LINK   = $(CC) $(CFLAGS_release) -static-pie -Wl,-z,relro,-z,now,--gc-sections -o $(1) $(2) -Wl,--start-group $(STATIC_LIBS) -Wl,--end-group
portable: $(B)/app/main.o $(B)/libmoetop.a
	$(Q)mkdir -p $(B)/portable
	$(Q)for f in $(LOADERS); do $(CC) $(ALL_CFLAGS) -DMOETOP_STATIC -c -o $(B)/portable/$$(basename $$f .c).o $$f || exit 1; done
	$(Q)cp $(B)/libmoetop.a $(B)/portable/ && ar d $(B)/portable/libmoetop.a $(notdir $(LOADERS:.c=.o))
	$(Q)$(CC) -nostdlib -r -o $(B)/portable/moetop.o $(B)/app/main.o $(addprefix $(B)/portable/,$(notdir $(LOADERS:.c=.o))) -Wl,--whole-archive $(B)/portable/libmoetop.a
	$(Q)$(call tool,objcopy) --keep-global-symbol=main $(B)/portable/moetop.o
	$(Q)$(call STATIC_LINK,$(B)/portable/first,$(B)/portable/moetop.o) 2>&1 | \
	  sed -nE 's/.*undefined reference to .(($(subst $(empty) ,|,$(ABSENT)))[A-Za-z0-9_]*).*/long \1(void);\nlong \1(void) { return 0; }/p' | \
	  awk '!seen[$$0]++' > $(B)/portable/absent.c
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $(B)/portable/absent.o $(B)/portable/absent.c
	$(Q)rm -rf $(PORTABLE) && mkdir $(PORTABLE)
	$(Q)$(call STATIC_LINK,$(PORTABLE)/moetop,$(B)/portable/moetop.o $(B)/portable/absent.o) 2> $(B)/portable/log || { grep -v warning: $(B)/portable/log >&2; exit 1; }
	$(Q)$(call tool,strip) $(PORTABLE)/moetop
	$(Q)cp --parents $(CONFIGS) $(MANUAL) LICENSE README.md $(PORTABLE)
	$(Q)find $(PORTABLE) -type f -print0 | LC_ALL=C sort -z | tar $(TAR_FLAGS) \
	  --transform='s,^build/,,' -c | gzip -9n > $(PORTABLE).tar.gz
	@echo "$(PORTABLE)/moetop $(PORTABLE).tar.gz"

# Packages of a version: the files in here carry the version they were written with.
rpm: $(TARBALL)
	$(call need,rpmbuild,rpm)
	$(Q)mkdir -p build/rpm/SOURCES && cp $(TARBALL) build/rpm/SOURCES
	$(Q)$(OWNED) -e 's/^Version: .*/Version:        $(VERSION)/' $(PACKAGING)/moetop.spec > build/rpm/moetop.spec
	$(Q)env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS rpmbuild $(if $(wildcard /etc/debian_version),--nodeps) --define '_topdir $(CURDIR)/build/rpm' \
	  $(if $(filter-out cc,$(CC)),--define 'moetop_cc $(CC)') -bb build/rpm/moetop.spec
	@find build/rpm/RPMS -name '*.rpm'
arch: $(TARBALL)
	$(Q)mkdir -p build/arch && cp $(TARBALL) build/arch
	$(Q)$(OWNED) -e 's/^pkgver=.*/pkgver=$(VERSION)/' -e "s/SKIP/$$(sha256sum < $(TARBALL) | cut -d' ' -f1)/" $(PACKAGING)/PKGBUILD > build/arch/PKGBUILD
	@if command -v makepkg >/dev/null && [ "$$(id -u)" != 0 ]; then cd build/arch && makepkg -f; else echo 'build/arch holds the PKGBUILD and its source; makepkg makes the package there, not as root'; fi

# What `make deps` installs. Debian's list is in the Makefile.
PACKAGES_dnf    := gcc make pkgconf-pkg-config ncurses-devel readline-devel libyaml-devel onednn-devel ocl-icd-devel opencl-headers \
  clblast-devel pocl hwloc-devel check-devel subunit-devel jansson-devel utf8proc-devel pcre2-devel libmicrohttpd-devel libcurl-devel \
  openssl-devel protobuf-c-devel protobuf-c-compiler onnx-devel tmux man-db clang
PACKAGES_pacman := gcc make pkgconf ncurses readline libyaml onednn ocl-icd opencl-headers clblast pocl hwloc check jansson libutf8proc \
  pcre2 libmicrohttpd curl openssl protobuf-c python-onnx tmux man-db clang
PACKAGES_apk    := gcc musl-dev make pkgconf bash ncurses-dev readline-dev yaml-dev onednn-dev opencl-icd-loader-dev opencl-headers \
  clblast-dev hwloc-dev check-dev subunit-dev jansson-dev utf8proc-dev pcre2-dev libmicrohttpd-dev curl-dev openssl-dev protobuf-c-dev \
  protobuf-c-compiler onnx-dev linux-headers tmux mandoc clang
# `make portable` wants these beside them: static libraries.
PACKAGES_STATIC := libnghttp2-dev libnghttp3-dev libidn2-dev libzstd-dev libbrotli-dev libunistring-dev libgnutls28-dev nettle-dev libgmp-dev libtasn1-6-dev zlib1g-dev
MANAGER         := $(firstword $(foreach m,apt-get dnf pacman apk,$(if $(shell command -v $(m)),$(m))))
APT             := DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends

.PHONY: deps-portable $(addprefix deps-,apt-get dnf pacman apk none)
deps: deps-$(or $(MANAGER),none)
deps-apt-get:
	apt-get update -qq
	$(APT) $(PACKAGES)
	$(APT) $(PACKAGES_IF_THERE) || echo 'not in this Debian: $(PACKAGES_IF_THERE); tests that need it are skipped'
deps-dnf:
	dnf install -y $(PACKAGES_dnf)
deps-pacman:
	pacman -S --needed --noconfirm $(PACKAGES_pacman)
deps-apk:
	apk add $(PACKAGES_apk)
deps-none:
	@printf '%s\n' 'neither apt-get, dnf, pacman nor apk is here; what Debian calls these is needed:' $(PACKAGES) >&2; exit 1
deps-portable: deps
	$(APT) $(PACKAGES_STATIC)

# Whether musl's headers (Alpine) have all that is used: every file is read by its compiler, with the other libraries' headers from here.
.PHONY: check-musl
check-musl: $(B)/gen/onnx.pb-c.h $(B)/gen/kernels.inc
	$(call need,musl-gcc,musl-tools)
	$(Q)for f in $(filter-out %_avx2.c %_avxvnni.c %_avx512.c,$(SRC)); do musl-gcc $(filter-out -MMD -MP,$(BASE_CFLAGS)) -w -fsyntax-only \
	  -DMOETOP_PREFIX='"$(PREFIX)"' -idirafter /usr/include -idirafter /usr/include/$(shell $(CC) -print-multiarch) $$f || exit 1; done
	@echo 'musl has all that is used; the vector kernels were not read'

# Whether FreeBSD has all that engine/ uses: every file but the vector kernels is compiled with FreeBSD's headers, which Zig brings
# (pip install ziglang), and of the other libraries with theirs from here.
.PHONY: check-freebsd
ZIG := $(or $(shell command -v zig),python3 -m ziglang)
FREEBSD_HEADERS := CL hwloc hwloc.h jansson.h jansson_config.h oneapi openssl pcre2.h protobuf-c utf8proc.h
check-freebsd: $(B)/gen/onnx.pb-c.h $(B)/gen/libraries.h
	@$(ZIG) version >/dev/null || { echo 'make $@ needs zig: pip install ziglang' >&2; exit 1; }
	$(Q)mkdir -p build/freebsd && for h in $(FREEBSD_HEADERS); do for d in /usr/include /usr/include/$(shell $(CC) -print-multiarch); do \
	  [ ! -e $$d/$$h ] || cp -rL $$d/$$h build/freebsd/; done; done
	$(Q)for f in $(filter-out %_avx2.c %_avxvnni.c %_avx512.c,$(filter engine/%,$(SRC))); do $(ZIG) cc -target x86_64-freebsd \
	  $(filter-out -MMD -MP,$(BASE_CFLAGS)) -w -O0 -idirafter build/freebsd -c -o build/freebsd/object $$f || exit 1; done
	@echo 'FreeBSD has all that engine/ uses; the vector kernels were not compiled'
