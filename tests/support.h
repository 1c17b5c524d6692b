/* Shared by the Check suites: main loop, paths, golden data. */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

/* Runs a suite and returns the program's exit status. */
int support_run(Suite *s);
/* Repository root, from any working directory (CHECK_ROOT or found upwards). */
const char *support_root(void);
/* Path below tests/ in a static ring of buffers: support_path("golden/x"). */
const char *support_path(const char *below_tests);
/* The model that the program ships: what a test needs a real model for can be had from it in every
 * clone. */
const char *support_demo(void);
/* Says why a test that returns now has asserted nothing: run.sh counts these lines as skipped, not
 * as passed. One call a test. */
void support_skip(const char *why, ...) __attribute__((format(printf, 1, 2)));
/* Says what a suite really met where that depends on the machine (instruction sets, devices):
 * run.sh shows the line beside the suite's. */
void support_ran(const char *what, ...) __attribute__((format(printf, 1, 2)));
/* support_ran: the instruction sets this CPU can run, which are those that kernel suites compare.
 */
void support_kernel_sets(void);
/* Whether the i-th of many alike (kernel sets, checkpoints, places in a text) is run: all of them
 * in a release, every of-th where a sanitizer makes each several times as slow. Who mixes two
 * counts into i has every one of both, though not every pair. */
bool support_turn(int i, int of);
/* A file of the shared data folder that may not be copied here; NULL when absent, the skip is said
 * then: the test only returns. */
const char *support_shared(const char *below_data);
/* A copy of a GGUF model of F32 and Q8_0 in which every value of a tensor is a NaN or an infinity,
 * said as F16. */
void support_poison(const char *model, const char *tensor, uint16_t half, const char *copy);
/* A copy of a GGUF file with every tensor in F32: what a program computes that quantises nothing.
 */
void support_widen(const char *model, const char *copy);
/* The program of the build that is tested; static. */
const char *support_program(void);
/* A shell command in this folder, with $T the program, $D the model that it ships and $M both, `$T
 * -m $D`; its exit status. */
int support_sh(const char *folder, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The Python that has numpy: $PYTHON or python3; NULL: neither has. Static. */
const char *support_numpy(void);
/* A fresh directory, removed at exit. */
const char *support_tmpdir(void);
/* Writes dir/name anew, text to its end; its path in a static ring of buffers. */
const char *support_put(const char *dir, const char *name, const char *text);

#endif
