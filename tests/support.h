/* Shared by the Check suites: main loop, paths, golden data. */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <check.h>

/* Runs a suite and returns the program's exit status. */
int support_run(Suite *s);
/* Repository root, from any working directory (CHECK_ROOT or found upwards). */
const char *support_root(void);
/* Path below tests/ in a static ring of buffers: support_path("golden/x"). */
const char *support_path(const char *below_tests);
/* A file of the shared data folder that may not be copied here; NULL (with a message) when absent: the test then skips. */
const char *support_shared(const char *below_data);
/* A fresh directory, removed at exit. */
const char *support_tmpdir(void);

#endif
