/* Scalar kernels: the reference for testing the vector sets, bit by bit. Written only from
 * numerics.h, for clarity, not for speed. */
#include "engine/device/cpu/kernels/formats.h"
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/file/f8.h"

#include <math.h>
#include <string.h>

static void quantise(const float *x, int cols, struct act_block *out, int stride)
{
    for (int b = 0; b < cols / NUM_BLOCK; b++) {
        struct act_block *a = out + (ptrdiff_t)b * stride;

        a->d = num_quantise_block(x + b * NUM_BLOCK, a->q, &a->sum);
        a->m8 = a->sum * -8;
        a->m128 = a->sum * -128;
        a->fsum = (float)a->sum;
        a->low = 0;
        for (int i = 0; i < NUM_BLOCK / 2; i++)
            a->low += a->q[i];
        a->from[0] = SUM_BITS - 32 * a->low;
        a->from[1] = -32 * (a->sum - a->low);
    }
}

static float element(enum dtype type, const uint8_t *row, int c, int cols)
{
    uint16_t h;
    float x;

    if (type == DTYPE_F32) {
        memcpy(&x, row + 4 * (size_t)c, 4);
        return x;
    }
    if (type == DTYPE_F8) {
        memcpy(&x, row + (size_t)(c / F8_BLOCK) * F8_BLOCK_BYTES, 4);
        return num_from_e4m3_half(row[f8_place(c, cols)]) * x;
    }
    memcpy(&h, row + 2 * (size_t)c, 2);
    return type == DTYPE_F16 ? num_from_f16(h) : num_from_bf16(h);
}

static void widen(enum dtype type, const void *row, int n, float *out)
{
    for (int i = 0; i < n; i++)
        out[i] = element(type, row, i, n);
}

/* Consecutive tokens, each zero-padded to whole steps of 32 columns. */
static void float_input(bool bf16, const float *x, ptrdiff_t x_stride, int cols, int nt,
                        void *panel)
{
    float *out = panel;

    for (int t = 0; t < nt; t++)
        for (int c = 0; c < kernel_float_cols(cols); c++) {
            float v = c < cols ? x[t * x_stride + c] : 0.0f;

            *out++ = bf16 ? num_from_bf16(num_to_bf16(v)) : v;
        }
}

/* Rule 11. */
static float row_float(enum dtype type, bool bf16, const uint8_t *row, int cols, const float *x)
{
    float lanes[NUM_LANES] = {0};

    for (int i = 0; i < kernel_float_cols(cols); i++) {
        int c = bf16 ? i ^ 1 : i, lane = (bf16 ? c / 2 : c) % NUM_LANES;

        lanes[lane] = fmaf(c < cols ? element(type, row, c, cols) : 0.0f, c < cols ? x[c] : 0.0f,
                           lanes[lane]);
    }
    return num_fold(lanes);
}

static void dot_float(enum dtype type, bool bf16, const void *rows, size_t row_bytes, int n_rows,
                      int cols, const void *panel, int nt, float *out, ptrdiff_t out_stride)
{
    for (int t = 0; t < nt; t++)
        for (int r = 0; r < n_rows; r++)
            out[t * out_stride + r] =
                row_float(type, bf16, (const uint8_t *)rows + (size_t)r * row_bytes, cols,
                          (const float *)panel + (ptrdiff_t)t * kernel_float_cols(cols));
}

static void gemv_float(enum dtype type, bool bf16, const struct kernel_gemv *s, int cols,
                       const void *x)
{
    for (int i = 0; i < s->n; i++)
        *s->out[i] = row_float(type, bf16, s->at[i], cols, x);
}

static void norm(const float *x, int n, const float *w, const float *b, float inv_n, float eps,
                 float *y)
{
    float lanes[NUM_LANES] = {0}, mean, r;

    for (int i = 0; i < n; i++)
        lanes[i % NUM_LANES] += x[i];
    mean = num_fold(lanes) * inv_n;
    memset(lanes, 0, sizeof lanes);
    for (int i = 0; i < n; i++)
        lanes[i % NUM_LANES] = fmaf(x[i] - mean, x[i] - mean, lanes[i % NUM_LANES]);
    r = num_rsqrt(fmaf(num_fold(lanes), inv_n, eps));
    for (int i = 0; i < n; i++)
        y[i] = b ? fmaf((x[i] - mean) * r, w[i], b[i]) : (x[i] - mean) * r * w[i];
}

static void rms_norm(const float *x, int n, const float *w, float inv_n, float eps, float *y)
{
    float lanes[NUM_LANES] = {0}, r;

    for (int i = 0; i < n; i++)
        lanes[i % NUM_LANES] = fmaf(x[i], x[i], lanes[i % NUM_LANES]);
    r = num_rsqrt(fmaf(num_fold(lanes), inv_n, eps));
    for (int i = 0; i < n; i++)
        y[i] = x[i] * r * w[i];
}

#define ACTIVATION(word, kind, g)                                                       \
    static void activate_##word(const float *gate, const float *up, int n, float limit, \
                                float *out)                                             \
    {                                                                                   \
        for (int i = 0; i < n; i++)                                                     \
            out[i] = num_activate(kind, g, up[i], limit);                               \
    }
ACTIVATION(silu, ACTIVATION_SILU, gate[i])
ACTIVATION(gelu, ACTIVATION_GELU, gate[i])
ACTIVATION(clamped, ACTIVATION_CLAMPED_SWIGLU, gate[i])
ACTIVATION(bounded_silu, ACTIVATION_BOUNDED_SILU, gate[i])
ACTIVATION(relu2, ACTIVATION_RELU2, 0.0f)
ACTIVATION(relu, ACTIVATION_RELU, 0.0f)
ACTIVATION(gelu_plain, ACTIVATION_GELU_PLAIN, 0.0f)
ACTIVATION(reglu, ACTIVATION_REGLU, gate[i])
ACTIVATION(clamped_silu, ACTIVATION_CLAMPED_SILU, gate[i])

static void gate(float *x, const float *gates, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = x[i] * num_sigmoid(gates[i]);
}

static void rotary(float *x, int head_dim, int half, const float *cosines, const float *sines,
                   float scale)
{
    for (int i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];

        x[i] = fmaf(a, cosines[i], -(b * sines[i]));
        x[i + half] = fmaf(b, cosines[i], a * sines[i]);
    }
    if (scale != 1.0f)
        for (int i = 0; i < head_dim; i++)
            x[i] *= scale;
}

static void rotary_pairs(float *x, int head_dim, int half, const float *cosines, const float *sines,
                         float scale)
{
    for (int i = 0; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1];

        x[2 * i] = fmaf(a, cosines[i], -(b * sines[i]));
        x[2 * i + 1] = fmaf(b, cosines[i], a * sines[i]);
    }
    if (scale != 1.0f)
        for (int i = 0; i < head_dim; i++)
            x[i] *= scale;
}

static void router(const float *packed, int groups, int n, const float *h, float *scores)
{
    for (int e = 0; e < groups * NUM_LANES; e++) {
        const float *w = packed + (size_t)(e / NUM_LANES) * NUM_LANES * (size_t)n + e % NUM_LANES;
        float q[4];

        for (int i = 0; i < 4; i++) {
            q[i] = 0.0f;
            for (int c = (int)((int64_t)i * n / 4); c < (int)((int64_t)(i + 1) * n / 4); c++)
                q[i] = fmaf(h[c], w[(size_t)c * NUM_LANES], q[i]);
        }
        scores[e] = (q[0] + q[1]) + (q[2] + q[3]);
    }
}

static void add(float *acc, const float *v, int n)
{
    for (int i = 0; i < n; i++)
        acc[i] = acc[i] + v[i];
}

static void combine(const float *x, const float *e, ptrdiff_t e_stride, const float *w, int used,
                    int n, float *out)
{
    for (int i = 0; i < n; i++) {
        float acc = w[0] * e[i];

        for (int k = 1; k < used; k++)
            acc = fmaf(w[k], e[k * e_stride + i], acc);
        out[i] = x[i] + acc;
    }
}

static void to_f16(const float *x, int n, uint16_t *out)
{
    for (int i = 0; i < n; i++)
        out[i] = num_to_f16(x[i]);
}

static void to_bf16(const float *x, int n, uint16_t *out)
{
    for (int i = 0; i < n; i++)
        out[i] = num_to_bf16(x[i]);
}

static float key(enum kv_type type, const uint8_t *keys, int d, int token)
{
    uint16_t h;
    float x;

    if (type == KV_F32) {
        memcpy(&x, keys + 4 * (d * NUM_LANES + token), 4);
        return x;
    }
    if (type == KV_F16) {
        memcpy(&h, keys + 2 * (d * NUM_LANES + token), 2);
        return num_from_f16(h);
    }
    keys += (size_t)(d / NUM_BLOCK) * 34 * NUM_LANES;
    memcpy(&h, keys + 2 * token, 2);
    return (float)(int8_t)keys[2 * NUM_LANES + d % NUM_BLOCK * NUM_LANES + token] * num_from_f16(h);
}

static void scores_any(enum kv_type type, const void *keys, int blocks, int head_dim,
                       const float *q, int nq, float *out)
{
    const uint8_t *block = keys;
    float k[1024];

    for (int b = 0; b < blocks; b++, block += (type == KV_F32   ? 64
                                               : type == KV_F16 ? 32
                                                                : 17) *
                                              head_dim)
        for (int token = 0; token < NUM_LANES; token++) {
            for (int d = 0; d < head_dim; d++)
                k[d] = key(type, block, d, token);
            for (int i = 0; i < nq; i++)
                out[i * NUM_CHUNK + b * NUM_LANES + token] = num_dot(q + i * head_dim, k, head_dim);
        }
}

static void softmax(float *p, int n, float *max, float *sum)
{
    float lanes[NUM_LANES] = {0}, m = -INFINITY;

    for (int i = 0; i < n; i++)
        m = p[i] > m ? p[i] : m;
    for (int i = 0; i < n; i++) {
        p[i] = num_exp(p[i] - m);
        lanes[i % NUM_LANES] += p[i];
    }
    *max = m;
    *sum = num_fold(lanes);
}

static float value(enum kv_type type, const uint8_t *v, int head_dim, int d)
{
    uint16_t h;
    float x;

    if (type == KV_F32) {
        memcpy(&x, v + 4 * d, 4);
        return x;
    }
    if (type == KV_F16) {
        memcpy(&h, v + 2 * d, 2);
        return num_from_f16(h);
    }
    memcpy(&h, v + d / NUM_BLOCK * 2, 2);
    return (float)(int8_t)v[head_dim / NUM_BLOCK * 2 + d] * num_from_f16(h);
}

static void values_any(enum kv_type type, const void *v, int head_dim, const float *p, int nq,
                       int count, bool more, float *out, ptrdiff_t out_stride)
{
    int row_bytes = type == KV_F32   ? head_dim * 4
                    : type == KV_F16 ? head_dim * 2
                                     : head_dim / NUM_BLOCK * 34;

    for (int i = 0; i < nq; i++)
        for (int d = 0; d < head_dim; d++) {
            float acc = more ? out[i * out_stride + d] : 0.0f;

            for (int t = 0; t < count; t++)
                acc = fmaf(p[i * NUM_CHUNK + t],
                           value(type, (const uint8_t *)v + (ptrdiff_t)t * row_bytes, head_dim, d),
                           acc);
            out[i * out_stride + d] = acc;
        }
}

#define ATTENTION(word, type)                                                                     \
    static void scores_##word(const void *keys, int blocks, int head_dim, const float *q, int nq, \
                              float *out, const void *next)                                       \
    {                                                                                             \
        scores_any(type, keys, blocks, head_dim, q, nq, out);                                     \
    }                                                                                             \
    static void values_##word(const void *v, int head_dim, const float *p, int nq, int count,     \
                              bool more, float *out, ptrdiff_t out_stride, const void *next)      \
    {                                                                                             \
        values_any(type, v, head_dim, p, nq, count, more, out, out_stride);                       \
    }
ATTENTION(f32, KV_F32)
ATTENTION(f16, KV_F16)
ATTENTION(q8_0, KV_Q8_0)

static void latent_scores_any(enum kv_type type, const uint8_t *rows, int n, int dims,
                              const float *q, int nq, float *out)
{
    size_t row = kv_type_bytes(type, dims);

    for (int t = 0; t < n; t++, rows += row)
        for (int i = 0; i < nq; i++) {
            float lanes[NUM_LANES] = {0};

            for (int d = 0; d < dims; d++)
                lanes[d % NUM_LANES] = fmaf(q[i * dims + d], value(type, rows, dims, d),
                                            lanes[d % NUM_LANES]);
            out[i * NUM_CHUNK + t] = num_fold(lanes);
        }
}

static void latent_values_any(enum kv_type type, const uint8_t *rows, int dims, int rank,
                              const float *p, int nq, int count, bool more, float *out,
                              ptrdiff_t out_stride)
{
    for (int i = 0; i < nq; i++)
        for (int d = 0; d < rank; d++) {
            float acc = more ? out[i * out_stride + d] : 0.0f;

            for (int t = 0; t < count; t++)
                acc = fmaf(p[i * NUM_CHUNK + t],
                           value(type, rows + (size_t)t * kv_type_bytes(type, dims), dims, d), acc);
            out[i * out_stride + d] = acc;
        }
}

#define LATENT(word, type)                                                                         \
    static void latent_scores_##word(const void *rows, int n, int dims, const float *q, int nq,    \
                                     float *out)                                                   \
    {                                                                                              \
        latent_scores_any(type, rows, n, dims, q, nq, out);                                        \
    }                                                                                              \
    static void latent_values_##word(const void *rows, int dims, int rank, const float *p, int nq, \
                                     int count, bool more, float *out, ptrdiff_t out_stride)       \
    {                                                                                              \
        latent_values_any(type, rows, dims, rank, p, nq, count, more, out, out_stride);            \
    }
LATENT(f32, KV_F32)
LATENT(f16, KV_F16)
LATENT(q8_0, KV_Q8_0)

static void merge(const float *o, ptrdiff_t o_stride, const float *max, const float *sum,
                  int n_chunks, int head_dim, float sink, float *out)
{
    float m = sink, total, r;

    for (int c = 0; c < n_chunks; c++)
        m = max[c] > m ? max[c] : m;
    total = num_exp(sink - m);
    for (int d = 0; d < head_dim; d++)
        out[d] = 0.0f;
    for (int c = 0; c < n_chunks; c++) {
        float f = num_exp(max[c] - m);

        if (max[c] == -INFINITY)
            continue;
        total = fmaf(sum[c], f, total);
        for (int d = 0; d < head_dim; d++)
            out[d] = fmaf(o[c * o_stride + d], f, out[d]);
    }
    r = num_recip(total);
    for (int d = 0; d < head_dim; d++)
        out[d] *= r;
}

static uint64_t read_all(const void *p, size_t n)
{
    const uint64_t *x = p;
    uint64_t sum[4] = {0};

    for (size_t i = 0; i < n / 8; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += x[i + (size_t)k];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

static double peak_f32(void)
{
    volatile float seed = 1.0f;
    float a[8], b = seed * 1e-9f, c = seed;

    for (int k = 0; k < 8; k++)
        a[k] = seed + (float)k;
    for (int i = 0; i < 1 << 20; i++)
        for (int k = 0; k < 8; k++)
            a[k] = a[k] * c + b;
    for (int k = 0; k < 8; k++)
        seed = a[k];
    return 16.0 * (1 << 20);
}

static double peak_int8(void)
{
    volatile int seed = 3;
    int a[8] = {0}, b = seed;

    for (int i = 0; i < 1 << 20; i++)
        for (int k = 0; k < 8; k++)
            a[k] += b * (a[k] ^ i);
    for (int k = 0; k < 8; k++)
        seed = a[k];
    return 16.0 * (1 << 20);
}

#include "engine/device/cpu/kernels/recurrent_scalar.inc"

const struct kernels kernels_scalar = {
    .name = "scalar",
    .width = 8,
    .tile = 24,
    .quantise = quantise,
    .dot =
        {
#define FORMAT(id, name, ...) [DTYPE_##id] = dot_##name##_scalar,
#include "engine/file/formats.def"
        },
    .float_input = float_input,
    .dot_float = dot_float,
    .gemv_float = gemv_float,
    .widen = widen,
    .norm = norm,
    .rms_norm = rms_norm,
    .activate = KERNEL_ACTIVATIONS,
    .gate = gate,
    .rotary = rotary,
    .rotary_pairs = rotary_pairs,
    .router = router,
    RECURRENT_KERNELS,
    .add = add,
    .combine = combine,
    .to_f16 = to_f16,
    .to_bf16 = to_bf16,
    .scores = {scores_f32, scores_f16, scores_q8_0},
    .softmax = softmax,
    .values = {values_f32, values_f16, values_q8_0},
    .latent_scores = {latent_scores_f32, latent_scores_f16, latent_scores_q8_0},
    .latent_values = {latent_values_f32, latent_values_f16, latent_values_q8_0},
    .merge = merge,
    .read = read_all,
    .peak_f32 = peak_f32,
    .peak_int8 = peak_int8,
};
