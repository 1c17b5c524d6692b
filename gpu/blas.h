/* CLBlast for prefill of float models: GEMMs of many rows with F32 matrices, or F16 and BF16 ones
 * converted tile by tile. Private to gpu/; engine thread. Used only if a self-test on this driver,
 * device and model found it right and faster than our own kernels; the verdict is kept on disk, so
 * the choice never changes during a run and the text never depends on timing. */
#ifndef GPU_BLAS_H
#define GPU_BLAS_H

#include "gpu/internal.h"

#define BLAS_ROWS 24 /* fewer rows: our own kernels */

/* Loads libclblast at the first call. 0; ERR_IO and a line that names it and its packages. */
int blas_load(struct error *e);
size_t blas_buffer_bytes(const struct device *d);
int blas_buffers(struct device *d, struct error *e); /* allocates them */
void blas_close(struct device *d);
bool blas_wants(const struct device *d, enum dtype type, int rows);
/* y = x W' + bias (+ y), rows of x, all of W. */
int blas_multiply(struct device *d, cl_mem x, int rows, const struct part *p, cl_mem y, bool add,
                  struct error *e);
/* Entries first .. first+count-1 (d->entries) of one expert, from d->h to d->out. */
int blas_expert(struct device *d, const struct ffn_shape *s, const struct block *b, int first,
                int count, struct error *e);

/* selftest_blas.c */
/* Called after the self-test: reads the verdict; if there is none, tests unless the device is a CPU
 * (compiling takes a quarter of a minute there: --list-devices tests it). test: test now in any
 * case. Sets d->blas.use or not; fails only if the device does. */
int blas_open(struct device *d, uint64_t key, bool test, struct error *e);
/* Bytes of working memory that blas_open would allocate by the stored verdict. */
size_t blas_footprint(struct device *d, uint64_t key);

#endif
