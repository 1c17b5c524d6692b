/* The CPU device's kernel table: one table per instruction set, all with the same bits
 * (engine/device/numerics.h). Pure functions: any thread, no allocation, no state. Pointers need no
 * alignment beyond their element's unless stated; none of a call's outputs may overlap its inputs
 * unless stated. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_KERNELS_H
#define ENGINE_DEVICE_CPU_KERNELS_KERNELS_H

#include "engine/base/error.h"
#include "engine/device/cpu/kernels/products.h"
#include "engine/device/kv_type.h"
#include "engine/device/numerics.h"
#include "engine/file/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL_FLOAT_TOKENS 96 /* most tokens per call of dot_float */
/* queries per call of scores / values: several tokens' that share a key/value head */
#define KERNEL_QUERIES 36

/* Floats of a token in a panel of dot_float. */
static inline int kernel_float_cols(int cols)
{
    return (cols + NUM_BLOCK - 1) / NUM_BLOCK * NUM_BLOCK;
}

/* The functions of one set, activate_WORD each. */
/* clang-format off */
#define KERNEL_ACTIVATIONS { \
    [ACTIVATION_SILU] = activate_silu, \
    [ACTIVATION_GELU] = activate_gelu, \
    [ACTIVATION_CLAMPED_SWIGLU] = activate_clamped, \
    [ACTIVATION_RELU2] = activate_relu2, \
    [ACTIVATION_RELU] = activate_relu, \
    [ACTIVATION_GELU_PLAIN] = activate_gelu_plain, \
    [ACTIVATION_REGLU] = activate_reglu, \
    [ACTIVATION_CLAMPED_SILU] = activate_clamped_silu, \
    [ACTIVATION_BOUNDED_SILU] = activate_bounded_silu, \
}
/* clang-format on */

/* A causal convolution in place over some channels of consecutive tokens (rule 12): token t's at x
 * + t * stride. Taps are stored tap by tap, the oldest first: w + j * w_stride; likewise the taps -
 * 1 inputs before the first token, in state, which is updated to those before the next one. before,
 * after: NULL, or factors of the inputs and the results, laid out as x. */
#define KERNEL_TAPS 16
struct kernel_convolution {
    float *x;
    const float *before, *after;
    ptrdiff_t stride;
    int rows, n, taps; /* taps <= KERNEL_TAPS */
    bool silu;
    const float *w, *bias; /* bias: n, or NULL */
    float *state;
    ptrdiff_t w_stride, state_stride;
};

/* Some columns of a head's recurrence (rule 12) over consecutive tokens. state (key_dim, width). Of
 * token t: k and q (key_dim) and v (width), which its outputs replace, are at offset t * stride; so
 * are the decay g, beta and dt. g: one number, or with g_step 1 key_dim of them. beta NULL: no
 * delta is taken, v is multiplied with *dt, and skip * v added to the output. */
#define KERNEL_KEYS 512
struct kernel_recurrence {
    float *state;
    int key_dim, width, rows, g_step; /* key_dim <= KERNEL_KEYS */
    ptrdiff_t stride;
    const float *q, *k, *g, *beta, *dt;
    float skip, *v;
};

/* Some columns of Mamba 1's recurrence (rule 12) over consecutive tokens. state (key_dim, width).
 * Of token t: B and C (key_dim), the time steps dt and v (width), which its outputs replace, are at
 * offset t * stride. a: (key_dim, width), rows a_stride apart. */
struct kernel_scan {
    float *state;
    int key_dim, width, rows;
    ptrdiff_t stride, a_stride;
    const float *b, *c, *dt, *a, *skip;
    float *v;
};

struct kernels {
    const char *name; /* "scalar", "avx2", "avxvnni", "avx512", "amx"; "neon", "dotprod", "i8mm" */
    int width;        /* preferred row interleave of this set */
    /* NULL, or a set whose dot is faster with few tokens, with the same bits; and from how many
     * tokens this one is faster, if nothing was measured (shape_table.h). */
    const struct kernels *small_batch_set;
    int small_batch_end;
    /* preferred tokens per panel, at most KERNEL_TILE: unpacked weights are used for so many at
     * once */
    int tile;

    /* Rule 1 for one row of cols (a multiple of 32): block b goes to out[b * stride]. */
    void (*quantise)(const float *x, int cols, struct act_block *out, int stride);
    /* Rule 2 for `groups` consecutive row groups of `width` rows, and nt tokens: out[t * out_stride
     * + row], all lanes written. */
    void (*dot[DTYPE_COUNT])(const void *weights, int groups, int width, int cols,
                             const struct act_block *panel, int nt, float *out,
                             ptrdiff_t out_stride);
    /* The same for 16 * groups consecutive rows as in the file, and nt <= KERNEL_RAW_TOKENS. NULL:
     * not available. */
    void (*dot_raw[DTYPE_COUNT])(const void *rows, int groups, int cols,
                                 const struct act_block *panel, int nt, float *out,
                                 ptrdiff_t out_stride);
    /* Rule 2 for one token and groups of this set's width, at any addresses: out[group][row], all
     * lanes written. NULL where dot is as fast. */
    void (*gemv[DTYPE_COUNT])(const struct kernel_gemv *s, int cols, const struct act_block *a);
    /* Rule 11. Converts tokens to the form of dot_float and gemv_float of this set: nt <=
     * KERNEL_FLOAT_TOKENS rows of cols into a panel of at most nt * kernel_float_cols(cols) floats.
     * bf16: rounded to BF16, only for BF16 weights. */
    void (*float_input)(bool bf16, const float *x, ptrdiff_t x_stride, int cols, int nt,
                        void *panel);
    /* Float weights (F32, F16, BF16, F8 rows, row_bytes apart) and a panel; any n_rows. */
    void (*dot_float)(enum dtype type, bool bf16, const void *rows, size_t row_bytes, int n_rows,
                      int cols, const void *panel, int nt, float *out, ptrdiff_t out_stride);
    /* One token and up to KERNEL_GEMV_GROUPS rows: *out[row]. x: a panel of one, or, if not
     * rounded, the row of cols itself. */
    void (*gemv_float)(enum dtype type, bool bf16, const struct kernel_gemv *s, int cols,
                       const void *x);
    /* The first n elements of a float row (F16, BF16, F32; of F8 all) as F32. */
    void (*widen)(enum dtype type, const void *row, int n, float *out);
    /* Rule 5. b may be NULL. y may be x. n a multiple of 16. */
    void (*norm)(const float *x, int n, const float *w, const float *b, float inv_n, float eps,
                 float *y);
    /* RMSNorm of rule 5; y may be x; any n, fastest with multiples of 16. */
    void (*rms_norm)(const float *x, int n, const float *w, float inv_n, float eps, float *y);
    /* Rule 8; out may be either input. gate is not read if the activation has none. */
    void (*activate[ACTIVATIONS])(const float *gate, const float *up, int n, float limit,
                                  float *out);
    /* Rule 7's gate: x = x * sigmoid(gate). */
    void (*gate)(float *x, const float *gate, int n);
    /* Rule 6 in place on one head, then everything times scale when scale is not 1. half =
     * rope_dims / 2. rotary_pairs: of (2i, 2i + 1). */
    void (*rotary)(float *x, int head_dim, int half, const float *cosines, const float *sines,
                   float scale);
    void (*rotary_pairs)(float *x, int head_dim, int half, const float *cosines, const float *sines,
                         float scale);
    /* Rule 3 against `groups` groups of 16 rows packed as [group][n][16]: scores[16 * groups]. */
    void (*router)(const float *packed, int groups, int n, const float *h, float *scores);
    /* acc[i] = acc[i] + v[i]; and rule 9's out = x + (w0*e0, fma(w1,e1,.), ...), e_k = e + k *
     * e_stride; out may be x. */
    void (*add)(float *acc, const float *v, int n);
    void (*combine)(const float *x, const float *e, ptrdiff_t e_stride, const float *w, int used,
                    int n, float *out);

    /* Rule 12. softplus, decay: x[i] + bias[i] becomes its softplus, num_exp of A[i] times that;
     * decay_bounded: with one A for all, num_exp(bound * sigmoid(A * (x + bias))). */
    void (*convolve)(const struct kernel_convolution *c);
    void (*recur)(const struct kernel_recurrence *r, int from); /* columns from .. width - 1 */
    void (*scan)(const struct kernel_scan *s, int from);
    void (*l2_norm)(float *x, int n, float eps, float scale);
    void (*sigmoid)(float *x, int n);
    void (*softplus)(float *x, const float *bias, int n);
    void (*decay)(float *x, const float *bias, const float *a, int n);
    void (*decay_bounded)(float *x, const float *bias, float a, float bound, int n);

    void (*to_f16)(const float *x, int n, uint16_t *out);
    void (*to_bf16)(const float *x, int n, uint16_t *out);

    /* Attention (rule 7) of nq <= KERNEL_QUERIES queries, q (nq, head_dim), over `blocks`
     * consecutive blocks of keys: out (nq, NUM_CHUNK). A block is 16 tokens: F32, F16:
     * [head_dim][16]; Q8_0: per 32 dimensions 16 F16 scales, then [32][16] int8. next, here and
     * below: what will be read after this call, prefetched on the way; any address, for it is never
     * dereferenced. */
    void (*scores[3])(const void *keys, int blocks, int head_dim, const float *q, int nq,
                      float *out, const void *next);
    /* p: the scores of n tokens (a multiple of 16; a token that is not visible has -inf) become
     * weights; max and sum as m_c, s_c. */
    void (*softmax)(float *p, int n, float *max, float *sum);
    /* Values of count tokens, row-major (count, head_dim); Q8_0: a row is head_dim / 32 F16 scales,
     * then head_dim int8. p (nq, NUM_CHUNK): out[query * out_stride + d], added to its contents if
     * `more`. */
    void (*values[3])(const void *v, int head_dim, const float *p, int nq, int count, bool more,
                      float *out, ptrdiff_t out_stride, const void *next);
    /* Latent attention (rule 13): scores of nq <= KERNEL_QUERIES queries, q (nq, dims), over n rows
     * of dims (a multiple of 16, 1024 at most), laid out as values are: out (nq, NUM_CHUNK). And
     * the sums of count rows' first `rank` values (a multiple of 16), as `values` adds them. */
    void (*latent_scores[3])(const void *rows, int n, int dims, const float *q, int nq, float *out);
    void (*latent_values[3])(const void *rows, int dims, int rank, const float *p, int nq,
                             int count, bool more, float *out, ptrdiff_t out_stride);
    /* Combines chunks of one query: o (n_chunks, o_stride), max and sum (n_chunks): out[head_dim].
     * A chunk with sum 0 is skipped by its max, -inf. sink: the head's; -inf: none. */
    void (*merge)(const float *o, ptrdiff_t o_stride, const float *max, const float *sum,
                  int n_chunks, int head_dim, float sink, float *out);

    /* For measuring: reads n bytes (a multiple of 4096) and returns a sum of them; loops that do
     * nothing but multiply and add, returning the operations done. */
    uint64_t (*read)(const void *p, size_t n);
    double (*peak_f32)(void);
    double (*peak_int8)(void);
};

extern const struct kernels kernels_scalar;
#if defined(__aarch64__)
extern const struct kernels kernels_neon, kernels_dotprod, kernels_i8mm;
#endif
#if defined(__x86_64__)
extern const struct kernels kernels_avx2, kernels_avxvnni, kernels_avx512;
double peak_int8_avxvnni(void); /* kernels.peak_int8 */
void raw_dot_q8_0_avx512(const void *rows, int groups, int cols, const struct act_block *panel,
                         int nt, float *out, ptrdiff_t out_stride);
void raw_dot_q4_0_avx512(const void *rows, int groups, int cols, const struct act_block *panel,
                         int nt, float *out, ptrdiff_t out_stride);
#endif

/* The current set (the best one of this CPU until kernels_select chose another). */
const struct kernels *kernels_active(void);
/* Entry i of the sets supported by this CPU, NULL beyond the last; best last. */
const struct kernels *kernels_at(int i);
/* Chooses the set of that name; NULL: the best. ERR_USAGE when this CPU lacks it. */
int kernels_select(const char *name, struct error *e);

#endif
