/* What packages are made from (configs/packaging) says the same as the Makefile: its version, and
 * the libraries to build with. Reads text only: packages are built by `make deb`, `rpm` and `arch`.
 */
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char makefile[1 << 16], text[1 << 16];

static void read_text(const char *below_root, char *out, size_t size)
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", support_root(), below_root);
    ck_assert_msg((f = fopen(path, "r")) != NULL, "%s", path);
    out[fread(out, 1, size - 1, f)] = '\0';
    fclose(f);
}

/* The word behind `key` in the Makefile. */
static void word_behind(const char *key, char *out, size_t size)
{
    const char *at = strstr(makefile, key);

    ck_assert_msg(at != NULL, "%s", key);
    at += strlen(key);
    snprintf(out, size, "%.*s", (int)strcspn(at, " \n"), at);
}

START_TEST(versions_are_the_makefile_s)
{
    static const struct {
        const char *file, *before;
    } places[] = {{"configs/packaging/moetop.spec", "\nVersion:        "},
                  {"configs/packaging/PKGBUILD", "\npkgver="}};
    char version[64], line[128];

    read_text("Makefile", makefile, sizeof makefile);
    word_behind("\nVERSION := ", version, sizeof version);
    read_text(places[_i].file, text, sizeof text);
    snprintf(line, sizeof line, "%s%s\n", places[_i].before, version);
    ck_assert_msg(strstr(text, line) != NULL, "%s: not version %s", places[_i].file, version);
}
END_TEST

/* A package's maintainer and home page are what `make deb MAINTAINER=… HOMEPAGE=…` replaces. */
START_TEST(owners_can_be_replaced)
{
    static const struct {
        const char *file, *maintainer, *homepage;
    } places[] = {
        {"configs/packaging/debian/control", "\nMaintainer: ", "\nHomepage: "},
        {"configs/packaging/moetop.spec", "\n* Fri Nov 27 2026 ", "\nURL:            "},
        {"configs/packaging/PKGBUILD", "# Maintainer: ", "\nurl='"},
    };
    char owner[200], page[200], line[400], *end;

    read_text("configs/packaging/package.mk", makefile, sizeof makefile);
    ck_assert_ptr_nonnull(end = strstr(makefile, "\nMAINTAINER ?= "));
    snprintf(owner, sizeof owner, "%.*s", (int)strcspn(end + 15, "\n"), end + 15);
    word_behind("\nHOMEPAGE   ?= ", page, sizeof page);
    read_text(places[_i].file, text, sizeof text);
    snprintf(line, sizeof line, "%s%s", places[_i].maintainer, owner);
    ck_assert_msg(strstr(text, line) != NULL, "%s: not %s", places[_i].file, owner);
    snprintf(line, sizeof line, "%s%s", places[_i].homepage, page);
    ck_assert_msg(strstr(text, line) != NULL, "%s: not %s", places[_i].file, page);
    snprintf(line, sizeof line, "'s|%s|$(call in_sed", owner);
    ck_assert_msg(strstr(makefile, line) != NULL, "package.mk replaces another name than %s",
                  owner);
    snprintf(line, sizeof line, "'s|%s|$(call in_sed", page);
    ck_assert_msg(strstr(makefile, line) != NULL, "package.mk replaces another page than %s", page);
}
END_TEST

/* Every library that `make deps` installs to build with, on Debian, is what the package asks for.
 */
START_TEST(debian_builds_with_what_make_deps_installs)
{
    char list[4096], *end, *save = NULL;
    int n = 0;

    read_text("Makefile", makefile, sizeof makefile);
    read_text("configs/packaging/debian/control", text, sizeof text);
    ck_assert_ptr_nonnull(end = strstr(makefile, "\nPACKAGES := "));
    snprintf(list, sizeof list, "%s", end + 13);
    ck_assert_ptr_nonnull(end = strstr(list, "\nPACKAGES_IF_THERE"));
    *end = '\0';
    for (char *p = strtok_r(list, " \\\n", &save); p; p = strtok_r(NULL, " \\\n", &save)) {
        char entry[128];
        size_t len = strlen(p);

        if (len < 5 || strcmp(p + len - 4, "-dev") != 0)
            continue;
        n++;
        snprintf(entry, sizeof entry, "\n %s,\n", p);
        ck_assert_msg(strstr(text, entry) != NULL, "debian/control: no Build-Depends on %s", p);
    }
    ck_assert_int_gt(n, 10);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("packages");
    TCase *t = tcase_create("packages");

    tcase_add_loop_test(t, versions_are_the_makefile_s, 0, 2);
    tcase_add_loop_test(t, owners_can_be_replaced, 0, 3);
    tcase_add_test(t, debian_builds_with_what_make_deps_installs);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
