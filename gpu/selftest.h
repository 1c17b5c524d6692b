/* Shared parts of the self-test (selftest.c). Private to gpu/; engine thread, inside open: these
 * may allocate and wait. */
#ifndef GPU_SELFTEST_H
#define GPU_SELFTEST_H

#include "gpu/internal.h"

#define SELFTEST_WRONG_MAX 40
#define SELFTEST_SLOWER_MAX 8

struct verdict {
    int n;
    char wrong[SELFTEST_WRONG_MAX][48]; /* kernel names */
    enum gemm_form form[DTYPE_COUNT];
    int n_slower;
    char slower[SELFTEST_SLOWER_MAX][48]; /* than the kernels that they replace */
};

struct selftest {
    struct device *d;
    struct error *e;
    unsigned seed;
    struct verdict *v;
    cl_mem flush[2]; /* of FLUSH_BYTES, while shapes are measured; NULL: none */
};

/* selftest_tools.c */
/* NULL: out of memory */
float *selftest_randoms(struct selftest *b, size_t n, float scale);
void selftest_wrong(struct selftest *b, const char *name);
/* A kernel that is right and does what several others do, against those: both are enqueued many
 * times by `run`, and the kernel is not used where it takes longer. Not on a CPU's OpenCL, whose
 * times say nothing of a GPU's kernels. */
int selftest_compare(struct selftest *b, const char *name, int (*run)(void *ctx, bool joined),
                     void *ctx);
/* Bytes that a duel copies before each launch, so that weights come from memory as in a pass. */
#define FLUSH_BYTES ((size_t)32 << 20)
/* What `run` enqueues for one token, with the kernels of a type that d has against those in other,
 * which are exchanged alternately and then back: *ratio is the first ones' time by the others'. */
int selftest_duel(struct selftest *b, enum dtype type, struct type_kernels *other,
                  int (*run)(void *ctx, bool joined), void *ctx, double *ratio);
/* Blocking copies. */
int selftest_put(struct selftest *b, cl_mem mem, const void *data, size_t bytes);
int selftest_get(struct selftest *b, cl_mem mem, size_t offset, void *data, size_t bytes);
int selftest_core(struct selftest *b, enum core_kernel k, const char *name, size_t x, size_t y,
                  size_t z, size_t local);
/* Quantised rows on the host in the device's form: bytes of n values (int8_t if it has dot8, else
 * float), scales and sums of their blocks. */
struct quantised_rows {
    size_t n, bytes;
    void *values;
    float *scales, *sums; /* one piece */
};
/* ERR_MEMORY; release also frees a failed init. */
int selftest_quantised_init(struct quantised_rows *q, const struct selftest *b, size_t n);
void selftest_quantised_release(struct quantised_rows *q);
void selftest_quantise(struct quantised_rows *q, const float *x); /* rule 1 of n values */
/* Compares quantised rows on the device with rule 1 of x; sets *same to false if they differ. */
int selftest_same_quantised(struct selftest *b, const struct rows_q *q, const float *x, int rows,
                            int cols, bool *same);

/* Each runs its kernels on shapes of the model and records the wrong ones; negative only if the
 * device fails. */
/* selftest_core.c */
int selftest_norm(struct selftest *b);
int selftest_rms(struct selftest *b);
int selftest_route(struct selftest *b);
/* The first layer whose attention the kernels support, used for the test's shape; -1: none. */
int selftest_attending(const struct device *d);
/* selftest_attention.c */
int selftest_attention(struct selftest *b);
/* selftest_matrix.c */
int selftest_matmul(struct selftest *b, const struct matrix *m, int many);
/* Nanoseconds that the kernels for many tokens take for a part of the matrix. */
int selftest_matmul_time(struct selftest *b, const struct matrix *m, uint64_t *ns);
int selftest_expert(struct selftest *b, const struct ffn_shape *s, const struct expert_weights *x,
                    int many);
/* Duels of a type's matmul, and of its gate_up and down, on matrices of the model: ratio[k] of
 * those that there are. */
int selftest_matmul_duel(struct selftest *b, const struct matrix *m, struct type_kernels *other,
                         double *ratio);
int selftest_expert_duel(struct selftest *b, enum dtype type, const struct ffn_shape *s,
                         const struct expert_weights *x, struct type_kernels *other,
                         double ratio[TOKEN_KERNELS]);
/* selftest_output.c: token_output with such a projection. */
int selftest_output(struct selftest *b, enum dtype type);
int selftest_output_duel(struct selftest *b, enum dtype type, struct type_kernels *other,
                         double *ratio);
void selftest_name(char *out, size_t size, const char *kernel, enum dtype type, int many);

#endif
