# Packages, included by the Makefile: everything is made below build/, nothing else is written.
# The tree is the tracked files as they are (in a tarball: all of them but what was built), its date that of the last commit.
PACKAGING := configs/packaging
DIST      := moetop-$(VERSION)
TARBALL   := build/$(DIST).tar.gz
TREE      = { git ls-files -z -- . ':!.*' 2>/dev/null | grep -z . || find * -path build -prune -o -type f ! -name moetop -print0; } | LC_ALL=C sort -z
DATE      = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y Makefile))
# A tool that is needed here, and what brings it.
need = @command -v $(1) >/dev/null || { echo 'make $@ needs $(1): apt-get install $(2)' >&2; exit 1; }

.PHONY: dist deb rpm arch portable
# The same tree gives the same bytes: sorted names, one owner, one date, no time in gzip's header.
dist: $(TARBALL)
$(TARBALL): .FORCE
	@mkdir -p $(@D)
	$(Q)$(TREE) | tar --null -T - --format=ustar --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w,a-s \
	  --mtime=@$(DATE) --transform='s,^,$(DIST)/,' -c | gzip -9n > $@
	@echo "$@"

# Debian's: debhelper over an unpacked tarball, so that no other file can slip in.
deb: $(TARBALL)
	$(call need,dh,debhelper)
	$(Q)rm -rf build/deb && mkdir -p build/deb && tar -xzf $(TARBALL) -C build/deb
	$(Q)cp -r $(PACKAGING)/debian build/deb/$(DIST)/debian
	$(Q)printf 'moetop (%s) unstable; urgency=medium\n\n  * See README.md and the manual pages.\n\n -- %s  %s\n' $(VERSION) \
	  "$$(sed -n 's/^Maintainer: //p' $(PACKAGING)/debian/control)" "$$(LC_ALL=C date -u -d @$(DATE) '+%a, %d %b %Y %T +0000')" \
	  > build/deb/$(DIST)/debian/changelog
	$(Q)cd build/deb/$(DIST) && env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS $(if $(filter-out cc,$(CC)),CC="$(CC)") \
	  DEB_BUILD_OPTIONS="parallel=$$(nproc) $(DEB_BUILD_OPTIONS)" dpkg-buildpackage -us -uc -b
	@ls build/deb/*.deb
