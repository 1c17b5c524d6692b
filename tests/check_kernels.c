/* Every kernel of every set against the scalar reference, as bits: random shapes, ragged rows,
 * hostile values. NaN counts as equal to NaN. */
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/layout/pack.h"
#include "tests/support.h"
#include "tests/tiny_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned seed = 12345;

static int below(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (unsigned)n);
}

/* Mostly ordinary numbers; with hostile > 0 also zeros, infinities, NaN, subnormals and very large
 * ones. */
static float number(int hostile)
{
    static const float odd[] = {0.0f,   -0.0f, INFINITY, -INFINITY, NAN,      1e-45f, -1e-40f,
                                1e-21f, 3e38f, -3e38f,   1.0f,      65504.0f, 1e-8f,  127.0f};

    if (hostile && below(100) < hostile)
        return odd[below((int)(sizeof odd / sizeof *odd))];
    return tiny_random(&seed) * (below(4) ? 1.0f : 100.0f);
}

static void fill(float *x, int n, int hostile)
{
    for (int i = 0; i < n; i++)
        x[i] = number(hostile);
}

static void same(const char *set, const char *what, const float *got, const float *want, int n)
{
    if (memcmp(got, want, (size_t)n * sizeof *got) == 0)
        return; /* the checks below are slow by the million */
    for (int i = 0; i < n; i++)
        ck_assert_msg(num_bits(got[i]) == num_bits(want[i]) ||
                          (got[i] != got[i] && want[i] != want[i]),
                      "%s %s: element %d of %d is %a, not %a", set, what, i, n, (double)got[i],
                      (double)want[i]);
}

#define EACH_SET(k)                                                      \
    for (const struct kernels *k, *const *end_ = NULL; !end_; end_ = &k) \
        for (int i_ = 1; (k = kernels_at(i_)) != NULL; i_++)

START_TEST(test_quantise)
{
    float x[40 * 32];
    static struct act_block want[40 * 3], got[40 * 3];

    EACH_SET(k)
    for (int round = 0; round < 400; round++) {
        int n = (1 + below(round % 8 ? 8 : 40)) * 32, stride = 1 + below(3);

        fill(x, n, round % 4 ? 0 : 10);
        if (round % 7 == 0)
            for (int i = 0; i < n; i++)
                x[i] *= round % 2 ? 1e-19f : 1e-38f;
        if (round % 11 == 0)
            for (int i = 0; i < n; i++)
                /* halves: ties of the rounding */
                x[i] = (float)(below(511) - 255) * 0.5f;
        memset(want, 0, sizeof want);
        memset(got, 0, sizeof got);
        kernels_scalar.quantise(x, n, want, stride);
        k->quantise(x, n, got, stride);
        ck_assert_mem_eq(got, want, sizeof want);
    }
}
END_TEST

/* Random blocks, not only those a quantiser makes: scales of every kind, weights down to -128. */
static void random_group(enum dtype type, uint8_t *group, int width, int blocks, int hostile)
{
    int bytes = dtype_info(type)->bytes * width;

    for (int b = 0; b < blocks; b++, group += bytes) {
        for (int i = 0; i < bytes; i++)
            group[i] = (uint8_t)below(256);
        for (int r = 0; r < width; r++) {
            uint16_t h = hostile && below(8) == 0 ? (uint16_t)below(65536)
                                                  : num_to_f16(tiny_random(&seed) * 0.1f);

            memcpy(group + 2 * r, &h, 2);
        }
        if (below(10) == 0)
            memset(group + 2 * width, below(2) ? 0x00 : 0xff, (size_t)(bytes - 2 * width));
    }
}

START_TEST(test_dot)
{
    static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_0};
    static uint8_t group[5 * 40 * 16 * 34];
    static struct act_block panel[40 * KERNEL_TILE];
    static float want[KERNEL_TILE * 90], got[KERNEL_TILE * 90];
    float x[40 * 32];

    EACH_SET(k)
    for (int round = 0; round < 500; round++) {
        enum dtype type = types[round & 1];
        int width = round & 2 ? 16 : 8, blocks = 1 + below(round & 4 ? 40 : 5),
            nt = 1 + below(round & 8    ? 3
                           : round % 25 ? 24
                                        : KERNEL_TILE);
        int groups = 1 + below(blocks < 6 ? 5 : 2), stride = groups * width + below(4);

        random_group(type, group, width, blocks * groups, round % 5 == 0);
        for (int t = 0; t < nt; t++) {
            fill(x, blocks * 32, round % 3 == 0 ? 2 : 0);
            kernels_scalar.quantise(x, blocks * 32, panel + t, nt);
        }
        memset(want, 0, sizeof want);
        memset(got, 0, sizeof got);
        kernels_scalar.dot[type](group, groups, width, blocks * 32, panel, nt, want, stride);
        k->dot[type](group, groups, width, blocks * 32, panel, nt, got, stride);
        same(k->name, dtype_info(type)->word, got, want, KERNEL_TILE * 90);
    }
}
END_TEST

/* Rows as a file has them, against the same rows packed. */
START_TEST(test_dot_raw)
{
    static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_0};
    static uint8_t rows[3 * 16 * 20 * 34 + 64], packed[3 * 16 * 20 * 34];
    static struct act_block panel[20 * KERNEL_RAW_TOKENS];
    static float want[KERNEL_RAW_TOKENS * 50], got[KERNEL_RAW_TOKENS * 50];
    float x[20 * 32];

    EACH_SET(k)
    for (int round = 0; round < 200; round++) {
        enum dtype type = types[round & 1];
        int blocks = 1 + below(20), nt = 1 + below(KERNEL_RAW_TOKENS), groups = 1 + below(3),
            stride = groups * 16 + below(2), at = below(3);

        if (!k->dot_raw[type])
            continue;
        for (int r = 0; r < groups * 16; r++)
            random_group(type, rows + at + (size_t)(r * blocks * dtype_info(type)->bytes), 1,
                         blocks, round % 5 == 0);
        pack_rows(packed, type, 16, rows + at, type, groups * 16, blocks * 32, 0, groups);
        for (int t = 0; t < nt; t++) {
            fill(x, blocks * 32, round % 3 == 0 ? 2 : 0);
            kernels_scalar.quantise(x, blocks * 32, panel + t, nt);
        }
        memset(want, 0, sizeof want);
        memset(got, 0, sizeof got);
        kernels_scalar.dot[type](packed, groups, 16, blocks * 32, panel, nt, want, stride);
        k->dot_raw[type](rows + at, groups, blocks * 32, panel, nt, got, stride);
        same(k->name, dtype_info(type)->word, got, want, KERNEL_RAW_TOKENS * 50);
    }
}
END_TEST

START_TEST(test_rows)
{
    static float x[4096], y[4096], w[4096], b[4096], want[4096], got[4096];

    EACH_SET(k)
    for (int round = 0; round < 120; round++) {
        int n = 16 * (1 + below(20)) + (round % 6 == 0 ? below(16) : 0),
            hostile = round % 5 == 0 ? 5 : 0, half = below(n / 2), used = 1 + below(3);
        float scale = round & 1 ? 1.0f : 0.088f, weights[3] = {0.7f, 0.2f, 0.05f};

        fill(x, 4096, hostile), fill(y, 4096, hostile), fill(w, 4096, 0), fill(b, 4096, 0);
        kernels_scalar.norm(x, n, w, round & 2 ? b : NULL, 1.0f / (float)n, 1e-5f, want);
        k->norm(x, n, w, round & 2 ? b : NULL, 1.0f / (float)n, 1e-5f, got);
        same(k->name, "norm", got, want, n);
        kernels_scalar.rms_norm(x, n, w, 1.0f / (float)n, 1e-5f, want);
        k->rms_norm(x, n, w, 1.0f / (float)n, 1e-5f, got);
        same(k->name, "rms norm", got, want, n);
        for (int i = 0; i < n; i++)
            x[i] *= round & 4 ? 1.0f : 3.0f;
        for (int a = 0; a < ACTIVATIONS; a++) {
            kernels_scalar.activate[a](x, y, n, 1.5f, want);
            k->activate[a](x, y, n, 1.5f, got);
            same(k->name, shape_activation_word(a), got, want, n);
        }
        memcpy(want, x, sizeof want), memcpy(got, x, sizeof got);
        kernels_scalar.gate(want, y, n);
        k->gate(got, y, n);
        same(k->name, "gate", got, want, n);
        memcpy(want, x, sizeof want), memcpy(got, x, sizeof got);
        kernels_scalar.rotary(want, n, half, w, b, scale);
        k->rotary(got, n, half, w, b, scale);
        same(k->name, "rotary", got, want, n);
        kernels_scalar.rotary_pairs(want, n, half, w, b, scale);
        k->rotary_pairs(got, n, half, w, b, scale);
        same(k->name, "rotary of pairs", got, want, n);
        memcpy(want, x, sizeof want), memcpy(got, x, sizeof got);
        kernels_scalar.add(want, y, n);
        k->add(got, y, n);
        same(k->name, "add", got, want, n);
        kernels_scalar.combine(x, y, 700, weights, used, n, want);
        k->combine(x, y, 700, weights, used, n, got);
        same(k->name, "combine", got, want, n);
        kernels_scalar.router(w, 1 + (n < 100), n < 120 ? n : 120, x, want);
        k->router(w, 1 + (n < 100), n < 120 ? n : 120, x, got);
        same(k->name, "router", got, want, 16 * (1 + (n < 100)));
    }
}
END_TEST

/* A recurrence's buffers: rows of k, q, g, beta, dt and v one behind the other. */
#define RECUR_STRIDE (3 * 160 + 40 + 8)

static void check_recur(const struct kernels *k, int rows, int key_dim, int width, int hostile)
{
    static float state[2][160 * 40], x[2][9 * RECUR_STRIDE];
    int g_step = below(2), delta = below(2);

    fill(state[0], key_dim * width, hostile);
    fill(x[0], rows * RECUR_STRIDE, hostile);
    memcpy(state[1], state[0], sizeof *state);
    memcpy(x[1], x[0], sizeof *x);
    for (int i = 0; i < 2; i++) {
        struct kernel_recurrence r = {.state = state[i],
                                      .key_dim = key_dim,
                                      .width = width,
                                      .rows = rows,
                                      .g_step = g_step,
                                      .stride = RECUR_STRIDE,
                                      .k = x[i],
                                      .q = x[i] + 160,
                                      .g = x[i] + 320,
                                      .beta = delta ? x[i] + 520 : NULL,
                                      .dt = x[i] + 521,
                                      .skip = 0.3f,
                                      .v = x[i] + 480};

        (i ? k : &kernels_scalar)->recur(&r, 0);
    }
    same(k->name, "recurrence", x[1], x[0], rows * RECUR_STRIDE);
    same(k->name, "recurrence's state", state[1], state[0], key_dim * width);
}

static void check_convolution(const struct kernels *k, int rows, int n, int taps, int hostile)
{
    static float x[2][9 * 300], state[2][KERNEL_TAPS * 100], w[KERNEL_TAPS * 100], bias[100];
    int gated = below(2), silu = below(2), biased = below(2);

    fill(x[0], rows * 300, hostile);
    fill(state[0], taps * 100, hostile);
    fill(w, taps * 100, hostile);
    fill(bias, n, hostile);
    memcpy(x[1], x[0], sizeof *x);
    memcpy(state[1], state[0], sizeof *state);
    for (int i = 0; i < 2; i++) {
        struct kernel_convolution c = {.x = x[i],
                                       .before = gated ? x[i] + 100 : NULL,
                                       .after = gated ? x[i] + 200 : NULL,
                                       .stride = 300,
                                       .rows = rows,
                                       .n = n,
                                       .taps = taps,
                                       .silu = silu,
                                       .w = w,
                                       .bias = biased ? bias : NULL,
                                       .state = state[i],
                                       .w_stride = 100,
                                       .state_stride = 100};

        (i ? k : &kernels_scalar)->convolve(&c);
    }
    same(k->name, "convolution", x[1], x[0], rows * 300);
    same(k->name, "convolution's state", state[1], state[0], (taps - 1) * 100);
}

START_TEST(test_recurrent)
{
    EACH_SET(k)
    for (int round = 0; round < 300; round++) {
        int hostile = round % 3 ? 0 : 5, n = 1 + below(100);
        float x[2][100], b[100], a[100];

        check_recur(k, 1 + below(9), round % 4 ? 8 * (1 + below(20)) : 1 + below(160),
                    round % 5 ? 32 : 1 + below(40), hostile);
        check_convolution(k, 1 + below(9), n, round % 2 ? 3 + below(2) : 1 + below(KERNEL_TAPS),
                          hostile);
        fill(b, 100, hostile);
        fill(a, 100, hostile);
#define BOTH(what, call)                                     \
    fill(x[0], 100, hostile), memcpy(x[1], x[0], sizeof *x); \
    for (int i = 0; i < 2; i++) {                            \
        const struct kernels *s = i ? k : &kernels_scalar;   \
        float *y = x[i];                                     \
        s->call;                                             \
    }                                                        \
    same(k->name, what, x[1], x[0], 100)
        BOTH("L2 norm", l2_norm(y, round % 2 ? 64 : n, 1e-6f, 0.25f));
        BOTH("sigmoid", sigmoid(y, n));
        BOTH("softplus", softplus(y, b, n));
        BOTH("decay", decay(y, b, a, n));
        BOTH("bounded decay", decay_bounded(y, b, 0.7f, -5.0f, n));
    }
}
END_TEST

/* Against the C library's double precision. */
START_TEST(test_softplus_known)
{
    for (float x = -80.0f; x < 80.0f; x += 0.0371f) {
        double want = x > 30 ? x + exp(-x) : log1p(exp(x));

        ck_assert_msg(fabs(num_softplus(x) - want) <= 4e-7 * want, "softplus(%g) is %g, not %g", x,
                      num_softplus(x), want);
    }
}
END_TEST

START_TEST(test_f16)
{
    static float x[65536 * 2];
    static uint16_t want[65536 * 2], got[65536 * 2];

    for (int i = 0; i < 65536; i++) {
        x[2 * i] = num_from_f16((uint16_t)i);
        /* ties and others */
        x[2 * i + 1] = x[2 * i] + x[2 * i] * (below(2) ? 4.8828125e-4f : 3e-4f);
    }
    EACH_SET(k)
    {
        kernels_scalar.to_f16(x, 65536 * 2, want);
        k->to_f16(x, 65536 * 2, got);
        for (int i = 0; i < 65536 * 2; i++)
            ck_assert_msg(got[i] == want[i] || x[i] != x[i], "%s: %a becomes %04x, not %04x",
                          k->name, (double)x[i], got[i], want[i]);
    }
    EACH_SET(k)
    {
        kernels_scalar.to_bf16(x, 65536 * 2, want);
        k->to_bf16(x, 65536 * 2, got);
        ck_assert_mem_eq(got, want, sizeof want);
    }
    for (int i = 0; i < 65536; i++)
        if (x[2 * i] == x[2 * i])
            ck_assert_int_eq(num_to_f16(num_from_f16((uint16_t)i)), i);
}
END_TEST

START_TEST(test_attention)
{
    static uint8_t cache[NUM_CHUNK * 256 * 4];
    static uint8_t keys[NUM_CHUNK * 256 * 4];
    static float q[KERNEL_QUERIES * 256], p[KERNEL_QUERIES * NUM_CHUNK],
        want[KERNEL_QUERIES * NUM_CHUNK], got[KERNEL_QUERIES * NUM_CHUNK], x[256];

    EACH_SET(k)
    for (int round = 0; round < 200; round++) {
        int kv = round % 3,
            hd = round % 4 == 0  ? 128
                 : kv == KV_Q8_0 ? 32 * (1 + below(6))
                                 : 4 * (1 + below(50)),
            nq = 1 + below(round % 2 ? 4 : KERNEL_QUERIES);
        int n = 16 * (1 + below(16)), count = 1 + below(n), some = below(count + 1);
        size_t row = kv == KV_F32   ? (size_t)hd * 4
                     : kv == KV_F16 ? (size_t)hd * 2
                                    : (size_t)hd / 32 * 34,
               all = KERNEL_QUERIES * NUM_CHUNK;
        float m1, m2, s1, s2;

        fill(q, KERNEL_QUERIES * 256, 0);
        for (int t = 0; t < n; t++) {
            uint8_t block[34 * 8];

            fill(x, hd, round % 10 == 0 ? 2 : 0);
            if (kv == KV_F32)
                memcpy(cache + (size_t)t * row, x, row);
            else if (kv == KV_F16)
                kernels_scalar.to_f16(x, hd, (uint16_t *)(void *)(cache + (size_t)t * row));
            else
                row_from_f32(DTYPE_Q8_0, x, hd, block);
            for (int b = 0; kv == KV_Q8_0 && b < hd / 32; b++) {
                memcpy(cache + (size_t)t * row + 2 * b, block + 34 * b, 2);
                memcpy(cache + (size_t)t * row + hd / 32 * 2 + 32 * b, block + 34 * b + 2, 32);
            }
        }
        memset(want, 0, sizeof want), memset(got, 0, sizeof got);
        /* as keys: any bytes of the right count are keys; as values: rows */
        memcpy(keys, cache, (size_t)n * row);
        for (int b = 0; kv == KV_Q8_0 && b < n / 16; b++)
            random_group(DTYPE_Q8_0, keys + (size_t)b * 16 * row, 16, hd / 32, 0);
        kernels_scalar.scores[kv](keys, n / 16, hd, q, nq, want, keys);
        k->scores[kv](keys, n / 16, hd, q, nq, got, keys);
        same(k->name, "scores", got, want, (int)all);
        fill(p, (int)all, 0);
        for (int i = 0; i < 3; i++)
            p[below(n)] = -INFINITY;
        p[below(n)] = 1.5f;
        memcpy(want, p, sizeof p), memcpy(got, p, sizeof p);
        kernels_scalar.softmax(want, n, &m1, &s1);
        k->softmax(got, n, &m2, &s2);
        same(k->name, "softmax", got, want, n);
        same(k->name, "softmax max", &m2, &m1, 1);
        same(k->name, "softmax sum", &s2, &s1, 1);
        for (int i = 0; i < (int)all; i++)
            p[i] = p[i] == p[i] && p[i] > -1e30f ? p[i] : 0.25f;
        memset(want, 0, sizeof want), memset(got, 0, sizeof got);
        kernels_scalar.values[kv](cache, hd, p, nq, count, false, want, NUM_CHUNK, cache);
        /* in two parts: the same sums */
        k->values[kv](cache, hd, p, nq, some, false, got, NUM_CHUNK, cache);
        k->values[kv](cache + (size_t)some * row, hd, p + some, nq, count - some, true, got,
                      NUM_CHUNK, cache);
        same(k->name, "values", got, want, (int)all);
        float max[3] = {1.0f, -INFINITY, below(2) ? 0.5f : 90.0f}, sum[3] = {3.0f, 0.0f, 1.0f};

        float sink = below(2) ? -INFINITY : below(2) ? 0.75f : 95.0f;

        kernels_scalar.merge(q, 256, max, sum, 3, hd, sink, want);
        k->merge(q, 256, max, sum, 3, hd, sink, got);
        same(k->name, "merge", got, want, hd);
    }
}
END_TEST

/* A latent row is laid out as a value; counts of queries and rows fill no tile, and sums go on
 * where they were left. */
START_TEST(test_latent)
{
    static const int widths[][2] = {{48, 32}, {576, 512}, {160, 96}, {80, 64}};
    static float q[KERNEL_QUERIES * 576], p[KERNEL_QUERIES * NUM_CHUNK], want[KERNEL_QUERIES * 576],
        got[KERNEL_QUERIES * 576];
    static uint8_t rows[NUM_CHUNK * 576 * 4], block[576 / 32 * 34];

    for (int round = 0; round < 24; round++) {
        enum kv_type kv = (enum kv_type)(round % 3);
        const struct kernels *k;
        const int *width = widths[kv == KV_Q8_0 ? 1 + round % 2 : round % 4];
        int dims = width[0], rank = width[1], nq = 1 + below(KERNEL_QUERIES),
            n = 1 + below(round % 5 ? 40 : NUM_CHUNK), some = below(n);
        size_t row = kv_type_bytes(kv, dims);

        fill(q, nq * dims, 0);
        fill(p, nq * NUM_CHUNK, 0);
        for (int t = 0; t < n; t++) {
            float *x = want;

            fill(x, dims, 0);
            if (kv == KV_F32)
                memcpy(rows + (size_t)t * row, x, row);
            else if (kv == KV_F16)
                kernels_scalar.to_f16(x, dims, (uint16_t *)(void *)(rows + (size_t)t * row));
            else
                row_from_f32(DTYPE_Q8_0, x, dims, block);
            for (int b = 0; kv == KV_Q8_0 && b < dims / 32; b++) {
                memcpy(rows + (size_t)t * row + 2 * b, block + 34 * b, 2);
                memcpy(rows + (size_t)t * row + dims / 16 + 32 * b, block + 34 * b + 2, 32);
            }
        }
        for (int i = 0; (k = kernels_at(i)); i++) {
            memset(want, 0, sizeof want), memset(got, 0, sizeof got);
            kernels_scalar.latent_scores[kv](rows, n, dims, q, nq, want);
            k->latent_scores[kv](rows, n, dims, q, nq, got);
            same(k->name, "latent scores", got, want, nq * NUM_CHUNK);
            memset(want, 0, sizeof want), memset(got, 0x55, sizeof got);
            kernels_scalar.latent_values[kv](rows, dims, rank, p, nq, n, false, want, rank);
            k->latent_values[kv](rows, dims, rank, p, nq, some, false, got, rank);
            k->latent_values[kv](rows + (size_t)some * row, dims, rank, p + some, nq, n - some,
                                 true, got, rank);
            same(k->name, "latent values", got, want, nq * rank);
        }
    }
}
END_TEST

START_TEST(test_float_weights)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8};
    static uint8_t rows[40 * 2100 * 4];
    static float x[99 * 2104], w[2104], panel[96 * 2112], want[96 * 40], got[96 * 40];

    EACH_SET(k)
    for (int round = 0; round < 96; round++) {
        enum dtype type = types[round % 4];
        bool bf16 = type == DTYPE_BF16 && round / 4 % 2, large = round % 17 == 0;
        int cols = 1 + below(large ? 2099 : 299), n_rows = 1 + below(39),
            nt = 1 + below(large ? KERNEL_FLOAT_TOKENS : 8);
        size_t row = dtype_row_bytes(type, cols);

        fill(x, nt * 2104, 0);
        for (int r = 0; r < n_rows; r++) {
            fill(w, cols, 0);
            if (type == DTYPE_F8)
                tiny_f8_row(&seed, cols, rows + (size_t)r * row);
            else
                row_from_f32(type, w, cols, rows + (size_t)r * row);
        }
        kernels_scalar.float_input(bf16, x, 2104, cols, nt, panel);
        kernels_scalar.dot_float(type, bf16, rows, row, n_rows, cols, panel, nt, want, 40);
        k->float_input(bf16, x, 2104, cols, nt, panel);
        k->dot_float(type, bf16, rows, row, n_rows, cols, panel, nt, got, 40);
        for (int t = 0; t < nt; t++)
            same(k->name, dtype_info(type)->word, got + t * 40, want + t * 40, n_rows);
    }
}
END_TEST

/* ggml's reference: the files other programs write hold these very bytes. */
START_TEST(test_pack)
{
    static float x[20 * 64], back[64];
    static uint8_t file[20 * 68], packed[3 * 2 * 34 * 16], converted[3 * 2 * 34 * 16];
    static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_0};

    fill(x, 20 * 64, 0);
    for (int i = 0; i < 2; i++)
        for (int width = 8; width <= 16; width += 8) {
            size_t row = dtype_row_bytes(types[i], 64), bytes = pack_bytes(types[i], 20, 64, width);

            ck_assert_int_eq((int)bytes, (int)row * pack_groups(20, width) * width);
            for (int r = 0; r < 20; r++)
                row_from_f32(types[i], x + r * 64, 64, file + (size_t)r * row);
            memset(packed, 1, sizeof packed), memset(converted, 1, sizeof converted);
            pack_rows(packed, types[i], width, file, types[i], 20, 64, 0, pack_groups(20, width));
            for (int g = pack_groups(20, width) - 1; g >= 0; g--)
                pack_rows(converted, types[i], width, x, DTYPE_F32, 20, 64, g, 1);
            ck_assert_mem_eq(packed, converted, bytes);
            struct matrix m = {
                .type = types[i], .rows = 20, .cols = 64, .width = width, .data = packed};

            for (int r = 0; r < 20; r++) {
                row_to_f32(types[i], file + (size_t)r * row, 64, back);
                for (int c = 0; c < 64; c++) {
                    float w = tiny_weight(&m, r, c),
                          step = types[i] == DTYPE_Q8_0 ? 1.0f / 127.0f : 1.0f / 8.0f, top = 0.0f;

                    ck_assert(w == back[c]);
                    for (int b = c / 32 * 32; b < c / 32 * 32 + 32; b++)
                        top = fmaxf(top, fabsf(x[r * 64 + b]));
                    ck_assert_msg(fabsf(w - x[r * 64 + c]) <= top * step * 1.01f,
                                  "row %d, column %d: %g becomes %g", r, c, (double)x[r * 64 + c],
                                  (double)w);
                }
            }
        }
    ck_assert_int_eq((int)pack_bytes(DTYPE_Q8_0, 4, 33, 8), 0);
    ck_assert_int_eq((int)pack_bytes(DTYPE_F16, 4, 33, 0), 4 * 33 * 2);
}
END_TEST

#ifdef __SANITIZE_ADDRESS__
/* Whether ASan ends a child that lets a kernel read (or write) one value behind a row. */
static bool overrun_is_seen(const struct kernels *k, bool write)
{
    enum { N = 64 };
    float *x = calloc(write ? N - 1 : N, sizeof *x), *y = calloc(write ? N : N - 1, sizeof *y);
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(0);
        k->add(x, y, N);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    free(x), free(y);
    return status != 0;
}

/* The sanitized build sees what its checks of wide accesses (asan_wide.c) are there for. */
START_TEST(test_overruns_are_seen)
{
    EACH_SET(k)
    for (int write = 0; write < 2; write++)
        ck_assert_msg(overrun_is_seen(k, write), "%s: a value %s behind the row is not seen",
                      k->name, write ? "written" : "read");
}
END_TEST
#endif

/* Known answers: Q8_0 rounds halves away from zero, Q4_0's largest element becomes -8 whatever its
 * sign. */
START_TEST(test_quantise_known)
{
    float x[32] = {127.0f, -127.0f, 0.5f, -0.5f, 1.5f, 2.5f},
          y[32] = {-8.0f, 7.0f, 1.0f, -1.0f, 0.49f, -0.51f};
    uint8_t q8[34], q4[18];
    uint16_t h;

    row_from_f32(DTYPE_Q8_0, x, 32, q8);
    memcpy(&h, q8, 2);
    ck_assert_int_eq(h, 0x3c00);
    const int8_t want[] = {127, -127, 1, -1, 2, 3, 0};

    ck_assert_mem_eq(q8 + 2, want, sizeof want);
    row_from_f32(DTYPE_Q4_0, y, 32, q4);
    memcpy(&h, q4, 2);
    ck_assert_int_eq(h, 0x3c00);
    const uint8_t nibbles[] = {0, 15, 9, 7, 8, 7, 8};

    for (int i = 0; i < 7; i++)
        ck_assert_int_eq(q4[2 + i] & 15, nibbles[i]);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("kernels");
    TCase *t = tcase_create("kernels");

    tcase_set_timeout(t, 240);
    tcase_add_test(t, test_quantise);
    tcase_add_test(t, test_dot);
    tcase_add_test(t, test_dot_raw);
    tcase_add_test(t, test_rows);
    tcase_add_test(t, test_recurrent);
    tcase_add_test(t, test_softplus_known);
    tcase_add_test(t, test_f16);
    tcase_add_test(t, test_attention);
    tcase_add_test(t, test_latent);
    tcase_add_test(t, test_float_weights);
    tcase_add_test(t, test_pack);
    tcase_add_test(t, test_quantise_known);
#ifdef __SANITIZE_ADDRESS__
    tcase_add_test(t, test_overruns_are_seen);
#endif
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    support_kernel_sets();
    return support_run(suite());
}
