/* The kernels through a second OpenCL compiler: Intel's runtime for CPUs (pip install
 * intel-opencl-rt: 800 MB, so no package that `make deps` asks for). CHECK_INTEL_OPENCL names the
 * folder of its libintelocl.so; without it those of $VIRTUAL_ENV and $PYTHON and the system's
 * OpenCL drivers are looked at. Skips where there is none. It computes on AMD's CPUs, too. */
#include "tests/support.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libintelocl.so"

/* The library that an installed driver's file names. */
static bool find_installed(char *out, size_t size)
{
    glob_t g;
    bool found = false;

    if (glob("/etc/OpenCL/vendors/*.icd", 0, NULL, &g) != 0)
        return false;
    for (size_t i = 0; i < g.gl_pathc && !found; i++) {
        FILE *f = fopen(g.gl_pathv[i], "r");

        found = f && fgets(out, (int)size, f) && strstr(out, LIBRARY);
        if (f)
            fclose(f);
    }
    globfree(&g);
    out[found ? strcspn(out, "\n") : 0] = '\0';
    return found;
}

/* Writes the path of the library, or its name where the system's linker finds it; false: there is
 * none. */
static bool find_library(char *out, size_t size)
{
    const char *folder = getenv("CHECK_INTEL_OPENCL"), *venv = getenv("VIRTUAL_ENV"),
               *python = getenv("PYTHON"), *slash = python ? strstr(python, "/bin/python") : NULL;

    if (folder) {
        snprintf(out, size, "%s/" LIBRARY, folder);
        return access(out, R_OK) == 0;
    }
    if (venv && snprintf(out, size, "%s/lib/" LIBRARY, venv) > 0 && access(out, R_OK) == 0)
        return true;
    if (slash && snprintf(out, size, "%.*s/lib/" LIBRARY, (int)(slash - python), python) > 0 &&
        access(out, R_OK) == 0)
        return true;
    return find_installed(out, size);
}

/* Has the OpenCL loader find that runtime alone, and it the libraries beside it. False: it is not
 * there. */
static bool use_runtime(void)
{
    char library[600], icd[600], *slash;
    FILE *f;

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    support_skip("Intel's OpenCL runtime is not for sanitizers");
    return false;
#endif
    if (!find_library(library, sizeof library)) {
        support_skip("no " LIBRARY " (pip install intel-opencl-rt; CHECK_INTEL_OPENCL=its folder)");
        return false;
    }
    snprintf(icd, sizeof icd, "%s/intel.icd", support_tmpdir());
    f = fopen(icd, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "%s\n", library);
    ck_assert_int_eq(fclose(f), 0);
    setenv("OCL_ICD_VENDORS", support_tmpdir(), 1);
    if ((slash = strrchr(library, '/'))) {
        *slash = '\0';
        setenv("LD_LIBRARY_PATH", library, 1);
    }
    unsetenv("CHECK_OPENCL");
    return true;
}

/* check_opencl's kernels as users get them, in both shapes, against the CPU's bits, and
 * none that the self-test takes for wrong. */
START_TEST(test_kernels)
{
    char log[600], command[1600], text[16000];
    FILE *f;
    int rc;

    if (!use_runtime())
        return;
    snprintf(log, sizeof log, "%s/log", support_tmpdir());
    snprintf(command, sizeof command,
             "CHECK_LOG=1 CK_RUN_CASE=optimised '%s/tests/check_opencl' >'%s' 2>&1",
             getenv("CHECK_BUILD"), log);
    rc = system(command);
    f = fopen(log, "r");
    text[f ? fread(text, 1, sizeof text - 1, f) : 0] = '\0';
    if (f)
        fclose(f);
    ck_assert_msg(rc == 0 && strstr(text, "100%") && !strstr(text, "skipped"), "%s", text);
    ck_assert_msg(strstr(text, ", 0 kernels wrong") && !strstr(text, "wrong values"), "%s", text);
}
END_TEST

/* The bundled model's text. */
START_TEST(test_text)
{
    char command[1600], line[64] = "";
    FILE *f;

    if (!use_runtime())
        return;
    snprintf(command, sizeof command,
             "'%s/moetop' -m configs/models/tiny-storyteller-Q8_0.gguf -p 'Tell me a story about a "
             "fox.' --place gpu --temp 0.9 --seed 7 -n 90 --cache-dir '%s' 2>/dev/null | md5sum",
             strcmp(getenv("CHECK_BUILD"), "build/release") ? getenv("CHECK_BUILD") : ".",
             support_tmpdir());
    f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, f));
    pclose(f);
    ck_assert_int_eq(strncmp(line, "0127652611af5d505ef3b193a173b074", 32), 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("second OpenCL");
    TCase *c = tcase_create("intel");

    tcase_set_timeout(c, 600);
    tcase_add_test(c, test_kernels);
    tcase_add_test(c, test_text);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
