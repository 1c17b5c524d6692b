/* A copy of a GGUF file with every tensor in F32: what a program computes that quantises nothing.
 * For suites (support_widen) and for the golden tool, which is none. */
#ifndef TESTS_WIDEN_H
#define TESTS_WIDEN_H

#include "engine/base/error.h"

/* copy is replaced. ERR_ codes of reading and writing. */
int widen_gguf(const char *model, const char *copy, struct error *e);

#endif
