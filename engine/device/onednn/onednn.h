/* Products of float weights with many tokens through oneDNN (2.6 and 3.x): only onednn.c includes
 * its headers.
 *
 * oneDNN is called by each compute thread for its own slice of rows, with one OpenMP thread: its
 * own parallel regions would compete with our spinning pool. Primitives are created once per shape
 * and thread (oneDNN shares the generated code among them) and kept. It may allocate while doing
 * so; we do not. */
#ifndef ENGINE_DEVICE_ONEDNN_ONEDNN_H
#define ENGINE_DEVICE_ONEDNN_ONEDNN_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct onednn;

/* Loads the library at the first call; false: it is missing, and the line says what to install.
 * What needs it calls this by itself. Any thread. */
bool onednn_load(struct error *e);
/* For threads 0 .. n_threads-1. ERR_DEVICE if the library fails: the caller continues without
 * it. */
int onednn_new(struct onednn **out, int n_threads, struct error *e);
void onednn_free(struct onednn *o);
/* Whether this CPU multiplies BF16 natively (AVX512_BF16 or AMX): without it, F32 is faster. */
bool onednn_has_bf16(void);
const char *onednn_version(void); /* "2.6.3"; "none" where it is missing */
/* out[t * out_stride + r] = sum over c of w[r * cols + c] * x[t * x_stride + c], r < rows, t <
 * tokens. bf16: w and x are BF16, else F32; out is F32. Called by thread tid only with its own
 * number. 0 or ERR_DEVICE (nothing written that counts). */
int onednn_multiply(struct onednn *o, int tid, bool bf16, const void *w, int rows, int cols,
                    const void *x, ptrdiff_t x_stride, int tokens, float *out,
                    ptrdiff_t out_stride);
/* C (m, n) = alpha A (m, k) B (k, n) + beta C, all row-major F32; a_turned: A is stored as (k, m),
 * with b likewise. Any thread, single-threaded: the bits depend on the sizes, not on the thread. 0
 * or ERR_DEVICE. */
int onednn_sgemm(bool a_turned, bool b_turned, int m, int n, int k, float alpha, const float *a,
                 ptrdiff_t lda, const float *b, ptrdiff_t ldb, float beta, float *c, ptrdiff_t ldc);

#endif
