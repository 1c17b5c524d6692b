/* Libraries that may be missing: what is found is callable, what is not is named with its remedy,
 * and the program itself needs none of them to start. */
#include "engine/base/library.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    double (*hypot)(double, double);
    double (*floor)(double);
} maths;

START_TEST(test_found)
{
    volatile double three = hypot(3, 0);
    struct error e = {0};

    ck_assert_msg(library_load("libm.so.6", "libc6", (const char *const[]){"hypot", "floor", NULL},
                               &maths, sizeof maths, &e) == 0,
                  "%s", e.text);
    ck_assert_double_eq(maths.hypot(three, 4), 5);
    ck_assert_double_eq(maths.floor(three - 0.5), 2);
}
END_TEST

/* Whoever is in the process already (preloaded) is asked, whatever the library. */
START_TEST(test_preloaded)
{
    struct error e = {0};

    ck_assert_msg(library_load("libnobody.so.7", "none",
                               (const char *const[]){"hypot", "floor", NULL}, &maths, sizeof maths,
                               &e) == 0,
                  "%s", e.text);
    ck_assert_ptr_eq(maths.floor, floor);
}
END_TEST

START_TEST(test_missing)
{
    struct error e = {0};

    maths.floor = floor;
    ck_assert_int_eq(library_load("libnobody.so.7", "Debian: libnobody7",
                                  (const char *const[]){"nobody", "floor", NULL}, &maths,
                                  sizeof maths, &e),
                     ERR_IO);
    ck_assert_str_eq(e.text, "libnobody.so.7 is not installed (Debian: libnobody7)");
    ck_assert_ptr_null(maths.floor);
}
END_TEST

START_TEST(test_too_old)
{
    struct error e = {0};

    ck_assert_int_eq(library_load("libm.so.6", "libc6",
                                  (const char *const[]){"hypot_of_tomorrow", "floor", NULL}, &maths,
                                  sizeof maths, &e),
                     ERR_IO);
    ck_assert_str_eq(e.text, "libm.so.6 has no hypot_of_tomorrow: it is too old (libc6)");
    ck_assert_ptr_null(maths.hypot);
}
END_TEST

/* A linker's line for what is there and is no library keeps its words. */
START_TEST(test_broken)
{
    struct error e = {0};
    const char *path = support_put(support_tmpdir(), "broken.so", "no library");

    ck_assert_int_eq(library_load(path, "another", (const char *const[]){NULL}, &maths,
                                  sizeof maths, &e),
                     ERR_IO);
    ck_assert_msg(strstr(e.text, "install another") && !strstr(e.text, "not installed"), "%s",
                  e.text);
}
END_TEST

/* The dynamic section of the program names none of the libraries it can do without. */
START_TEST(test_program_starts_without)
{
    static const char *const optional[] = {"libOpenCL", "libclblast", "libdnnl", "libgomp"};
    char command[512], line[1024];
    const char *build = getenv("CHECK_BUILD");
    int n = 0;
    FILE *p;

    snprintf(command, sizeof command, "readelf -d %s/moetop", build ? build : "build/release");
    ck_assert_ptr_nonnull(p = popen(command, "r"));
    while (fgets(line, sizeof line, p)) {
        n += strstr(line, "(NEEDED)") != NULL;
        for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
            ck_assert_msg(!strstr(line, optional[i]), "%s", line);
    }
    ck_assert_int_eq(pclose(p), 0);
    ck_assert_int_gt(n, 5);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("library");
    TCase *t = tcase_create("library");

    tcase_add_test(t, test_found);
    tcase_add_test(t, test_preloaded);
    tcase_add_test(t, test_missing);
    tcase_add_test(t, test_too_old);
    tcase_add_test(t, test_broken);
    tcase_add_test(t, test_program_starts_without);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
