/* --quantize: what is written can be read (here, and by the gguf Python package where that is
 * installed), holds what it should, and a run that fails leaves nothing behind. */
#include "engine/base/mem.h"
#include "engine/layout/pack.h"
#include "engine/file/blocks.h"
#include "engine/convert/export.h"
#include "engine/file/gguf_write.h"
#include "engine/file/weights.h"
#include "engine/model/mix.h"
#include "engine/model/model.h"
#include "engine/layout/quantize.h"
#include "engine/layout/quantize_search.h"
#include "engine/run/engine.h"
#include "engine/text/tokenizer.h"
#include "tests/build_file.h"
#include "tests/byte_level.h"
#include "tests/support.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct model_options plain = {.convert = -1, .width = 8, .n_threads = 2};
static char path[512];

#if defined(__SANITIZE_ADDRESS__)
#define SLACK 0.1 /* two texts only */
#else
#define SLACK 0.0
#endif

static const char *in_tmp(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", support_tmpdir(), name);
    return path;
}

static unsigned seed = 5;

static float noise(void)
{
    float s = 0.0f;

    for (int i = 0; i < 6; i++) {
        seed = seed * 1664525u + 1013904223u;
        s += (float)(seed >> 8) / (float)(1 << 24) - 0.5f;
    }
    return s * 0.03f;
}

/* Relative error of each type on normal-like weights: no worse than what was measured when this was
 * written, plus 2 %. */
START_TEST(errors_of_types)
{
    static const struct {
        enum dtype type;
        double limit;
    } cases[] = {{DTYPE_Q8_0, 0.0055}, {DTYPE_Q4_0, 0.088},   {DTYPE_Q4_1, 0.072},
                 {DTYPE_Q5_0, 0.042},  {DTYPE_Q5_1, 0.035},   {DTYPE_Q4_K, 0.073},
                 {DTYPE_Q5_K, 0.037},  {DTYPE_Q6_K, 0.018},   {DTYPE_F16, 0.0003},
                 {DTYPE_BF16, 0.003},  {DTYPE_IQ4_NL, 0.078}, {DTYPE_IQ4_XS, 0.080},
                 {DTYPE_MXFP4, 0.12},  {DTYPE_Q3_K, 0.16},    {DTYPE_Q2_K, 0.31}};
    enum { N = 256 * 200 };
    static float x[N], y[N];
    static uint8_t out[N * 4];

    for (int i = 0; i < N; i++)
        x[i] = noise();
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        double squares = 0.0, errors = 0.0;

        ck_assert(quantise_known(cases[k].type));
        quantise_row(cases[k].type, x, NULL, N, out);
        row_to_f32(cases[k].type, out, N, y);
        for (int i = 0; i < N; i++) {
            squares += (double)x[i] * (double)x[i];
            errors += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
        }
        ck_assert_msg(sqrt(errors / squares) < cases[k].limit, "%s: %.5f",
                      dtype_info(cases[k].type)->word, sqrt(errors / squares));
    }
}
END_TEST

/* Zeros, constants, one spike, huge, tiny and not finite values: finite results near the input. */
START_TEST(odd_rows)
{
    static const enum dtype types[] = {DTYPE_Q4_1,   DTYPE_Q5_0,   DTYPE_Q5_1, DTYPE_Q4_K,
                                       DTYPE_Q5_K,   DTYPE_Q6_K,   DTYPE_Q2_K, DTYPE_Q3_K,
                                       DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4};
    float x[256], y[256];
    uint8_t out[256];

    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int kind = 0; kind < 9; kind++) {
            /* half a step of the coarsest codes */
            float top = 0.0f, wide = types[t] == DTYPE_Q2_K    ? 0.36f
                                     : types[t] == DTYPE_Q3_K  ? 0.26f
                                     : types[t] == DTYPE_MXFP4 ? 0.26f
                                                               : 0.13f;

            for (int i = 0; i < 256; i++) {
                x[i] = kind == 0   ? 0.0f
                       : kind == 1 ? 0.25f
                       : kind == 2 ? -0.25f
                       : kind == 3 ? (i == 77 ? 100.0f : 0.01f)
                       : kind == 4 ? 1e-35f * (float)i
                       : kind == 5 ? 30.0f * (float)(i - 128)
                       : kind == 6 ? (i % 9 ? noise() : NAN)
                       : kind == 7 ? (i % 9 ? noise() : INFINITY)
                                   : -1e-6f * (float)(i + 1);
                if (isfinite(x[i]) && fabsf(x[i]) > top)
                    top = fabsf(x[i]);
            }
            memset(out, 0xcc, sizeof out);
            quantise_row(types[t], x, NULL, 256, out);
            row_to_f32(types[t], out, 256, y);
            for (int i = 0; i < 256; i++) {
                ck_assert_msg(isfinite(y[i]), "%s kind %d: %g", dtype_info(types[t])->word, kind,
                              (double)y[i]);
                ck_assert_msg(!isfinite(x[i]) || fabsf(x[i] - y[i]) <= wide * top + 1e-7f,
                              "%s kind %d element %d: %g for %g", dtype_info(types[t])->word, kind,
                              i, (double)y[i], (double)x[i]);
            }
        }
}
END_TEST

START_TEST(both_searches_agree)
{
#if defined(__x86_64__)
    static const int8_t table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
    float x[32], weight[32], m[2], s[2];

    if (!__builtin_cpu_supports("avx2"))
        return;
    for (int round = 0; round < 3000; round++) {
        for (int i = 0; i < 32; i++) {
            x[i] = round % 5 ? noise() : fabsf(noise());
            weight[i] = round % 3 ? x[i] * x[i] : fabsf(noise());
        }
        s[0] = quantise_search_plain.affine(x, weight, 32, 15, round & 1, &m[0]);
        s[1] = quantise_search_avx2.affine(x, weight, 32, 15, round & 1, &m[1]);
        ck_assert(memcmp(&s[0], &s[1], 4) == 0 && memcmp(&m[0], &m[1], 4) == 0);
        s[0] = quantise_search_plain.symmetric(x, weight, 16, 32);
        s[1] = quantise_search_avx2.symmetric(x, weight, 16, 32);
        ck_assert(memcmp(&s[0], &s[1], 4) == 0);
        s[0] = quantise_search_plain.codebook(x, weight, 32, table);
        s[1] = quantise_search_avx2.codebook(x, weight, 32, table);
        ck_assert(memcmp(&s[0], &s[1], 4) == 0);
    }
#endif
}
END_TEST

/* With an importance matrix the columns that matter lose less, in every type that is searched for,
 * and those that do not matter pay. */
START_TEST(importance_moves_the_error)
{
    static const enum dtype types[] = {DTYPE_Q4_0, DTYPE_Q4_1,   DTYPE_Q5_0,   DTYPE_Q5_1,
                                       DTYPE_Q4_K, DTYPE_Q5_K,   DTYPE_Q6_K,   DTYPE_Q2_K,
                                       DTYPE_Q3_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4};
    enum { N = 256 * 100 };
    static float x[N], y[N], importance[N];
    static uint8_t out[N * 4];

    for (int i = 0; i < N; i++) {
        x[i] = noise();
        importance[i] = i % 8 ? 0.01f : 10.0f;
    }
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        double errors[2] = {0.0, 0.0};

        for (int weighed = 0; weighed < 2; weighed++) {
            quantise_row(types[t], x, weighed ? importance : NULL, N, out);
            row_to_f32(types[t], out, N, y);
            for (int i = 0; i < N; i += 8)
                errors[weighed] += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
        }
        /* MXFP4 has but two powers of two to choose from */
        ck_assert_msg(errors[1] < (types[t] == DTYPE_MXFP4 ? 0.97 : 0.9) * errors[0],
                      "%s: %g, %g without", dtype_info(types[t])->word, errors[1], errors[0]);
    }
}
END_TEST

static void export(const char *in, const char *type, const char *out, struct export_report *r)
{
    struct export_options o = {.type = export_type_find(type), .n_threads = 2};
    struct error e = {0};

    ck_assert_msg(model_export(in, out, &o, r, &e) == 0, "%s", e.text);
}

static void same_matrix(const struct matrix *a, const struct matrix *b)
{
    ck_assert(a->type == b->type && a->rows == b->rows && a->cols == b->cols &&
              a->bytes == b->bytes);
    ck_assert_int_eq(memcmp(a->data, b->data, a->bytes), 0);
    ck_assert(!a->bias == !b->bias &&
              (!a->bias || memcmp(a->bias, b->bias, (size_t)a->rows * 4) == 0));
}

static void same_model(const struct model *a, const struct model *b)
{
    struct hparams x = a->hp, y = b->hp;

    ck_assert(!x.short_factor == !y.short_factor);
    if (x.short_factor)
        ck_assert(
            memcmp(x.short_factor, y.short_factor, (size_t)x.common.mixer.rope_dims / 2 * 4) == 0 &&
            memcmp(x.long_factor, y.long_factor, (size_t)x.common.mixer.rope_dims / 2 * 4) == 0);
    x.short_factor = x.long_factor = y.short_factor = y.long_factor = NULL;
    ck_assert_int_eq(x.n_layers, y.n_layers);
    ck_assert(x.hidden == y.hidden && x.common.mixer.heads == y.common.mixer.heads &&
              x.common.mixer.kv_heads == y.common.mixer.kv_heads &&
              x.common.mixer.key_dim == y.common.mixer.key_dim && x.n_vocab == y.n_vocab);
    ck_assert(x.n_experts == y.n_experts && x.n_experts_used == y.n_experts_used &&
              x.common.ffn.width == y.common.ffn.width && x.context_max == y.context_max);
    ck_assert(x.rope_theta == y.rope_theta && x.common.norms.eps == y.common.norms.eps &&
              x.common.ffn.router.jitter == y.common.ffn.router.jitter &&
              x.common.mixer.window == y.common.mixer.window);
    ck_assert(x.original_context == y.original_context && x.short_mscale == y.short_mscale &&
              x.long_mscale == y.long_mscale);
    for (int l = 0; l < x.n_layers; l++) {
        const struct layer_weights *p = &a->layers[l], *q = &b->layers[l];

        same_matrix(&p->q, &q->q);
        same_matrix(&p->k, &q->k);
        same_matrix(&p->v, &q->v);
        same_matrix(&p->o, &q->o);
        ck_assert_int_eq(memcmp(p->router, q->router, (size_t)x.n_experts * (size_t)x.hidden * 4),
                         0);
        for (int i = 0; i < x.n_experts; i++) {
            same_matrix(&p->experts[i].gate, &q->experts[i].gate);
            same_matrix(&p->experts[i].up, &q->experts[i].up);
            same_matrix(&p->experts[i].down, &q->experts[i].down);
        }
    }
    same_matrix(&a->head, &b->head);
}

static struct model *load(const char *at)
{
    struct model *m;
    struct error e = {0};

    ck_assert_msg(model_load(&m, at, &plain, &e) == 0, "%s", e.text);
    return m;
}

/* Written in its own type, a checkpoint comes back as it was: every weight, every hyperparameter.
 */
START_TEST(lossless_round_trip)
{
    static const char *const names[][2] = {{"phimoe-16x-bf16", "bf16"},
                                           {"phimoe-longrope-f32", "f32"},
                                           {"phimoe-quirk-f32", "f32"},
                                           {"phimoe-window-f32", "f32"}};

    for (size_t i = 0; i < 4; i++) {
        char in[128];
        struct export_report r;
        struct model *a, *b;

        snprintf(in, sizeof in, "golden/phimoe/%s", names[i][0]);
        export(support_path(in), names[i][1], in_tmp("out.gguf"), &r);
        a = load(support_path(in));
        b = load(path);
        same_model(a, b);
        ck_assert_str_eq(b->name, names[i][0]);
        for (int k = 0; k < r.n_kinds; k++)
            ck_assert(r.kinds[k].relative == 0.0 && r.kinds[k].from == r.kinds[k].to);
        model_free(a);
        model_free(b);
        export(path, names[i][1], path, &r); /* onto itself, its metadata carried over */
        a = load(support_path(in));
        b = load(path);
        same_model(a, b);
        model_free(a);
        model_free(b);
    }
}
END_TEST

START_TEST(fallbacks)
{
    /* 32 and 64 columns: no 256 divides them */
    struct made_file *made = made_model(GGUF_STACKED);
    struct bytes b = made_gguf(made);
    struct export_report r;
    struct model *m;

    ck_assert_int_eq(save(&b, in_tmp("in.gguf")), 0);
    for (int i = 0; export_type_at(i); i++) {
        char out[600];

        snprintf(out, sizeof out, "%s/out.gguf", support_tmpdir());
        export(path, export_type_at(i)->word, out, &r);
        m = load(out);
        ck_assert_msg(m->type == (export_type_at(i)->size == MIX_EXPERTS    ? DTYPE_MXFP4
                                  : export_type_at(i)->base == DTYPE_Q6_K   ? DTYPE_Q8_0
                                  : export_type_at(i)->base == DTYPE_Q5_K   ? DTYPE_Q5_1
                                  : export_type_at(i)->base == DTYPE_Q4_K   ? DTYPE_Q5_0
                                  : export_type_at(i)->base == DTYPE_IQ4_XS ? DTYPE_IQ4_NL
                                  : export_type_at(i)->base == DTYPE_Q3_K ||
                                          export_type_at(i)->base == DTYPE_Q2_K
                                      ? DTYPE_Q4_0
                                      : export_type_at(i)->base),
                      "%s became %s", export_type_at(i)->word, dtype_info(m->type)->word);
        ck_assert_int_eq(m->hp.stops[0], 7);
        model_free(m);
    }
    free(b.data);
    made_release(made);
    free(made);
}
END_TEST

/* What llama-quantize (llama.cpp's src/llama-quant.cpp) chooses for these shapes. */
START_TEST(mixes_are_llama_quantizes)
{
    static const struct {
        enum dtype base;
        enum mix_size size;
        int experts;
        bool tied;
        enum tensor_role role;
        int layer, cols;
        enum dtype type;
    } cases[] = {
        {DTYPE_Q4_0, MIX_PLAIN, 16, false, TENSOR_HEAD, 0, 4096, DTYPE_Q6_K},
        {DTYPE_Q4_1, MIX_PLAIN, 16, false, TENSOR_HEAD, 0, 4096, DTYPE_Q6_K},
        {DTYPE_Q5_0, MIX_PLAIN, 16, false, TENSOR_HEAD, 0, 4096, DTYPE_Q6_K},
        {DTYPE_Q5_1, MIX_PLAIN, 16, false, TENSOR_HEAD, 0, 4096, DTYPE_Q6_K},
        {DTYPE_Q5_K, MIX_PLAIN, 16, false, TENSOR_HEAD, 0, 4096, DTYPE_Q6_K},
        {DTYPE_Q6_K, MIX_PLAIN, 16, false, TENSOR_HEAD, 0, 4096, DTYPE_Q6_K},
        {DTYPE_Q4_K, MIX_MEDIUM, 16, false, TENSOR_HEAD, 0, 4096, DTYPE_Q6_K},
        {DTYPE_Q8_0, MIX_PLAIN, 16, false, TENSOR_HEAD, 0, 4096, DTYPE_Q8_0},
        {DTYPE_BF16, MIX_PLAIN, 16, false, TENSOR_HEAD, 0, 4096, DTYPE_BF16},
        {DTYPE_F32, MIX_PLAIN, 8, true, TENSOR_V, 0, 4096, DTYPE_F32},
        {DTYPE_Q4_0, MIX_PLAIN, 16, false, TENSOR_HEAD, 0, 96, DTYPE_Q8_0},
        {DTYPE_Q4_K, MIX_MEDIUM, 16, false, TENSOR_HEAD, 0, 96, DTYPE_Q8_0},
        {DTYPE_Q4_0, MIX_PLAIN, 16, false, TENSOR_HEAD, 0, 8, DTYPE_F16},
        {DTYPE_Q4_0, MIX_PLAIN, 16, false, TENSOR_EMBEDDINGS, 0, 4096, DTYPE_Q4_0},
        {DTYPE_Q4_0, MIX_PLAIN, 16, true, TENSOR_EMBEDDINGS, 0, 4096, DTYPE_Q6_K},
        {DTYPE_Q4_0, MIX_PLAIN, 16, true, TENSOR_EMBEDDINGS, 0, 96, DTYPE_Q8_0},
        {DTYPE_Q4_0, MIX_PLAIN, 16, false, TENSOR_V, 0, 4096, DTYPE_Q4_0},
        {DTYPE_Q4_0, MIX_PLAIN, 8, false, TENSOR_V, 0, 4096, DTYPE_Q8_0},
        {DTYPE_Q5_1, MIX_PLAIN, 8, false, TENSOR_K, 0, 4096, DTYPE_Q8_0},
        {DTYPE_Q4_0, MIX_PLAIN, 8, false, TENSOR_Q, 0, 4096, DTYPE_Q4_0},
        {DTYPE_Q4_0, MIX_PLAIN, 8, false, TENSOR_O, 0, 4096, DTYPE_Q4_0},
        {DTYPE_Q4_K, MIX_MEDIUM, 8, false, TENSOR_O, 0, 4096, DTYPE_Q5_K},
        {DTYPE_Q4_K, MIX_MEDIUM, 8, false, TENSOR_V, 0, 4096, DTYPE_Q8_0},
        {DTYPE_Q4_K, MIX_MEDIUM, 16, false, TENSOR_V, 0, 4096, DTYPE_Q6_K},
        {DTYPE_Q4_K, MIX_MEDIUM, 16, false, TENSOR_V, 4, 4096, DTYPE_Q4_K},
        {DTYPE_Q4_K, MIX_MEDIUM, 16, false, TENSOR_DOWNS, 6, 4096, DTYPE_Q6_K},
        {DTYPE_Q4_K, MIX_MEDIUM, 16, false, TENSOR_DOWNS, 4, 96, DTYPE_Q5_0},
        {DTYPE_Q5_K, MIX_PLAIN, 16, false, TENSOR_DOWNS, 0, 96, DTYPE_Q5_1},
        {DTYPE_Q4_0, MIX_PLAIN, 16, false, TENSOR_GATES, 0, 4096, DTYPE_Q4_0},
        {DTYPE_Q2_K, MIX_PLAIN, 16, false, TENSOR_V, 9, 4096, DTYPE_Q4_K},
        {DTYPE_Q2_K, MIX_PLAIN, 16, false, TENSOR_DOWNS, 9, 4096, DTYPE_Q3_K},
        {DTYPE_Q2_K, MIX_PLAIN, 16, false, TENSOR_O, 9, 4096, DTYPE_Q3_K},
        {DTYPE_Q2_K, MIX_PLAIN, 16, false, TENSOR_Q, 9, 4096, DTYPE_Q2_K},
        {DTYPE_Q2_K, MIX_PLAIN, 16, false, TENSOR_Q, 9, 96, DTYPE_Q4_0},
        {DTYPE_Q2_K, MIX_SMALL, 16, false, TENSOR_DOWNS, 3, 4096, DTYPE_Q4_K},
        {DTYPE_Q2_K, MIX_SMALL, 16, false, TENSOR_DOWNS, 4, 4096, DTYPE_Q2_K},
        {DTYPE_Q3_K, MIX_MEDIUM, 16, false, TENSOR_V, 1, 4096, DTYPE_Q5_K},
        {DTYPE_Q3_K, MIX_MEDIUM, 16, false, TENSOR_V, 2, 4096, DTYPE_Q4_K},
        {DTYPE_Q3_K, MIX_MEDIUM, 16, false, TENSOR_DOWNS, 1, 4096, DTYPE_Q5_K},
        {DTYPE_Q3_K, MIX_MEDIUM, 16, false, TENSOR_DOWNS, 2, 4096, DTYPE_Q4_K},
        {DTYPE_Q3_K, MIX_MEDIUM, 16, false, TENSOR_O, 2, 4096, DTYPE_Q4_K},
        {DTYPE_Q3_K, MIX_MEDIUM, 8, false, TENSOR_O, 2, 4096, DTYPE_Q5_K},
        {DTYPE_Q3_K, MIX_LARGE, 8, false, TENSOR_O, 2, 4096, DTYPE_Q3_K},
        {DTYPE_Q3_K, MIX_LARGE, 16, false, TENSOR_DOWNS, 20, 4096, DTYPE_Q5_K},
        {DTYPE_Q3_K, MIX_SMALL, 16, false, TENSOR_DOWNS, 0, 4096, DTYPE_Q3_K},
        {DTYPE_Q4_K, MIX_SMALL, 16, false, TENSOR_V, 3, 4096, DTYPE_Q5_K},
        {DTYPE_Q4_K, MIX_SMALL, 16, false, TENSOR_DOWNS, 4, 4096, DTYPE_Q4_K},
        {DTYPE_Q5_K, MIX_MEDIUM, 16, false, TENSOR_DOWNS, 31, 4096, DTYPE_Q6_K},
        {DTYPE_IQ4_XS, MIX_PLAIN, 16, false, TENSOR_V, 9, 4096, DTYPE_Q5_K},
        {DTYPE_IQ4_XS, MIX_PLAIN, 16, false, TENSOR_DOWNS, 3, 4096, DTYPE_Q5_K},
        {DTYPE_IQ4_XS, MIX_PLAIN, 16, false, TENSOR_DOWNS, 4, 96, DTYPE_IQ4_NL},
        {DTYPE_MXFP4, MIX_EXPERTS, 16, false, TENSOR_DOWNS, 4, 4096, DTYPE_MXFP4},
        {DTYPE_MXFP4, MIX_EXPERTS, 16, false, TENSOR_Q, 4, 4096, DTYPE_Q8_0},
        {DTYPE_MXFP4, MIX_EXPERTS, 16, false, TENSOR_HEAD, 4, 4096, DTYPE_Q8_0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hparams hp = {.n_layers = 32,
                             .common.ffn.experts = cases[i].experts,
                             .common.mixer.heads = 16,
                             .common.mixer.kv_heads = 4,
                             .tied_embeddings = cases[i].tied};
        enum dtype got = mix_type((struct mix){cases[i].base, cases[i].size, false}, &hp,
                                  cases[i].role, cases[i].layer, cases[i].cols);

        ck_assert_msg(got == cases[i].type, "case %zu: %s, not %s", i, dtype_info(got)->word,
                      dtype_info(cases[i].type)->word);
    }
}
END_TEST

/* --dtype q4_0 makes of float weights what a file of --quantize q4_0 holds, the head among it. */
START_TEST(loading_converts_to_the_same)
{
    struct model_options convert = {.convert = DTYPE_Q4_0, .width = 8, .n_threads = 3};
    struct model *file, *loaded;
    struct export_report r;
    char floats[600];
    bool shown = false;
    struct error e = {0};

    export(support_path("../configs/models/tiny-storyteller-Q8_0.gguf"), "bf16",
           in_tmp("floats.gguf"), &r);
    snprintf(floats, sizeof floats, "%s", path);
    export(floats, "q4_0", in_tmp("small.gguf"), &r);
    for (int i = 0; i < r.n_kinds; i++)
        if (!strcmp(r.kinds[i].name, "output")) {
            ck_assert_int_eq(r.kinds[i].to, DTYPE_Q6_K);
            ck_assert(r.kinds[i].relative > 0.0 && r.kinds[i].relative < 0.03);
            shown = true;
        } else {
            ck_assert_int_eq(r.kinds[i].to, DTYPE_Q4_0);
        }
    ck_assert(shown);
    file = load(path);
    ck_assert_msg(model_load(&loaded, floats, &convert, &e) == 0, "%s", e.text);
    ck_assert_int_eq(loaded->head.type, DTYPE_Q6_K);
    ck_assert_int_eq(loaded->type, DTYPE_Q4_0);
    same_model(file, loaded);
    model_free(file);
    model_free(loaded);
}
END_TEST

static int entries(void)
{
    DIR *d = opendir(support_tmpdir());
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static int cancel(void *ctx, uint64_t done, uint64_t total)
{
    return 1;
}

static int die(void *ctx, uint64_t done, uint64_t total)
{
    return done > total / 2 ? raise(SIGKILL) : 0;
}

/* kill -9 in the middle: no name was ever taken, and the old file stands. (Where the file system
 * has no nameless files a .part stays.) */
START_TEST(a_kill_leaves_nothing)
{
    struct export_options o = {.type = export_type_find("q8_0"), .n_threads = 1, .progress = die};
    int fd = open(support_tmpdir(), O_TMPFILE | O_RDWR, 0600), status, before;
    const char *in = support_path("golden/phimoe/phimoe-quirk-f32");
    struct export_report r;
    struct error e = {0};
    char old[8] = "";
    pid_t child;
    FILE *f;

    if (fd < 0)
        return;
    close(fd);
    f = fopen(in_tmp("old.gguf"), "w");
    fputs("old", f);
    fclose(f);
    before = entries();
    child = fork();
    if (child == 0) {
        model_export(in, path, &o, &r, &e);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ck_assert_int_eq(entries(), before);
    f = fopen(path, "r");
    ck_assert_ptr_nonnull(fgets(old, sizeof old, f));
    ck_assert_str_eq(old, "old");
    fclose(f);
    o.progress = NULL;
    /* and it takes the old one's place */
    ck_assert_msg(model_export(in, path, &o, &r, &e) == 0, "%s", e.text);
    ck_assert_int_eq(entries(), before);
    model_free(load(path));
}
END_TEST

START_TEST(nothing_half_written)
{
    struct export_options o = {
        .type = export_type_find("q8_0"), .n_threads = 1, .progress = cancel};
    const char *in = support_path("golden/phimoe/phimoe-quirk-f32");
    struct rlimit limit = {100000, 100000};
    struct export_report r;
    struct error e = {0};
    int before = entries();

    ck_assert_int_eq(model_export(in, in_tmp("x.gguf"), &o, &r, &e), ERR_CANCELLED);
    ck_assert_int_eq(entries(), before);
    o.progress = NULL;
    ck_assert_int_eq(model_export("/nonexistent", path, &o, &r, &e), ERR_IO);
    ck_assert_int_eq(model_export(in, "/nonexistent/x.gguf", &o, &r, &e), ERR_IO);
    ck_assert_int_eq(model_export(in, support_tmpdir(), &o, &r, &e), ERR_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "not a regular file"));
    ck_assert_int_eq(entries(), before);
    signal(SIGXFSZ, SIG_IGN); /* as a full disk: no file beyond 100 kB */
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(model_export(in, in_tmp("x.gguf"), &o, &r, &e), ERR_IO);
    ck_assert_msg(strstr(e.text, "x.gguf"), "%s", e.text);
    ck_assert_int_eq(entries(), before);
}
END_TEST

/* A copy of a golden folder with the byte-level tokenizer that before and model say. */
static const char *byte_level_folder(const char *before, const char *model)
{
    static char dir[512];
    char command[2048], name[640], *json = byte_level_json(before, model);
    FILE *f;

    snprintf(dir, sizeof dir, "%s/byte-level", support_tmpdir());
    snprintf(command, sizeof command, "mkdir -p '%s' && cp '%s'/*.* '%s'", dir,
             support_path("golden/phimoe/phimoe-16x-bf16"), dir);
    ck_assert_int_eq(system(command), 0);
    snprintf(name, sizeof name, "%s/tokenizer.json", dir);
    f = fopen(name, "w");
    ck_assert(f && fputs(json, f) >= 0 && fclose(f) == 0);
    free(json);
    return dir;
}

static void ids_of(const char *model, int *ids, int *n)
{
    static const char text[] = "the hell 1212 a-b\n  e\u0301 \xff<|end|><0x41>\u0120";
    struct weight_file *f;
    struct tokenizer *t;
    struct error e = {0};
    int *list;

    ck_assert_msg(weight_file_open(&f, model, true, &e) == 0, "%s", e.text);
    ck_assert_msg(tokenizer_load(&t, f, &e) == 0, "%s", e.text);
    ck_assert_ptr_null(tokenizer_notice(t));
    ck_assert_int_eq(tokenizer_encode(t, text, sizeof text - 1, true, &list, n, &e), 0);
    ck_assert_int_lt(*n, 100);
    memcpy(ids, list, (size_t)*n * sizeof *ids);
    mem_free(list);
    tokenizer_free(t);
    weight_file_close(f);
}

#define END_TOKEN "\"added_tokens\": [{\"id\": 300, \"content\": \"<|end|>\", \"special\": true}], "
#define SPLIT_BY(regex)                                                                     \
    END_TOKEN "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": " \
              "\"Split\", \"pattern\": {\"Regex\": \"" regex "\"}, \"behavior\": "          \
              "\"Isolated\"}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "      \
              "\"use_regex\": false}]}, "

/* Text becomes the same ids by the file as by the folder, whatever cuts it; where GGUF has no word
 * for that, no file is written. */
/* Families that are not written are refused by name, and nothing is left. */
START_TEST(other_families_are_refused)
{
    struct export_options o = {.type = export_type_find("q8_0"), .n_threads = 2};
    static const char *const folders[] = {"gpt2", "opt-350m"};

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        struct export_report r;
        struct error e = {0};
        char in[200], out[4200];

        snprintf(in, sizeof in, "golden/families/%s", folders[i]);
        snprintf(out, sizeof out, "%s/%s.gguf", support_tmpdir(), folders[i]);
        ck_assert_int_eq(model_export(support_path(in), out, &o, &r, &e), ERR_MODEL);
        ck_assert_msg(strstr(e.text, i ? "opt" : "gpt2") && strstr(e.text, "not written yet"), "%s",
                      e.text);
        ck_assert_int_ne(access(out, F_OK), 0);
    }
}
END_TEST

static bool meta_equal(const struct weight_file *a, const struct weight_file *b, const char *key)
{
    struct meta_value x = weight_file_meta(a, key), y = weight_file_meta(b, key);

    return x.type == META_STRING && y.type == META_STRING && x.len == y.len &&
           !memcmp(x.s, y.s, x.len);
}

/* A GGUF file of any family that is opened: names, shapes and metadata stay, what is rounded is
 * what llama-quantize rounds, and the result is opened as any model. */
START_TEST(gguf_of_any_family)
{
    static const char *const names[] = {"olmoe",        "qwen35moe", "gpt-oss",
                                        "deepseek2-v3", "lfm2moe",   "granitehybrid"};
    static const char *const words[] = {"q4_0", "q3_k_m", "mxfp4_moe"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[80];
        const char *in;
        struct weight_file *a, *b;
        struct export_report r;
        struct error e = {0};
        bool rounded = false;

        snprintf(name, sizeof name, "ggufs/%s.gguf", names[i]);
        if (!(in = support_shared(name)))
            continue;
        export(in, words[i % 3], in_tmp("family.gguf"), &r);
        ck_assert(weight_file_open(&a, in, false, &e) == 0 &&
                  weight_file_open(&b, path, false, &e) == 0);
        ck_assert_uint_eq(weight_file_count(a), weight_file_count(b));
        for (size_t k = 0; k < weight_file_count(a); k++) {
            const struct tensor_view *t = weight_file_at(a, k), *u = weight_file_find(b, t->name);

            ck_assert_msg(u && u->n_dims == t->n_dims &&
                              !memcmp(u->dims, t->dims, (size_t)t->n_dims * sizeof *t->dims),
                          "%s: %s", in, t->name);
            rounded |= u->type != t->type;
            if (t->n_dims < 2 || strstr(t->name, "ffn_gate_inp.weight") ||
                strstr(t->name, "_norm.weight"))
                ck_assert_msg(u->type == t->type && !memcmp(u->data, t->data, t->bytes), "%s: %s",
                              in, t->name);
        }
        ck_assert_msg(rounded, "%s: nothing was rounded", in);
        ck_assert(meta_equal(a, b, "general.architecture"));
        model_free(load(path));
        weight_file_close(a);
        weight_file_close(b);
    }
}
END_TEST

/* An importance matrix for one tensor of the file at hand: its shape is `cols` columns. counts: as
 * many as matrices, or 1. */
static const char *write_importance(const char *tensor, int matrices, int counts, int cols)
{
    static char at[600];
    struct gguf_writer *w;
    struct error e = {0};
    char name[160];
    int64_t dims[2] = {matrices, cols}, one[2] = {counts, 1};
    float v;

    snprintf(at, sizeof at, "%s/imatrix.gguf", support_tmpdir());
    ck_assert(gguf_write_open(&w, at, &e) == 0);
    gguf_put_string(w, "general.type", "imatrix", 7);
    snprintf(name, sizeof name, "%s.in_sum2", tensor);
    gguf_write_tensor(w, name, DTYPE_F32, 2, dims);
    snprintf(name, sizeof name, "%s.counts", tensor);
    gguf_write_tensor(w, name, DTYPE_F32, 2, one);
    ck_assert(gguf_write_begin(w, &e) == 0);
    for (int i = 0; i < matrices * cols; i++) {
        v = i % 4 ? 0.01f : 100.0f;
        ck_assert(gguf_write_data(w, &v, 4, &e) == 0);
    }
    for (int i = 0; i < counts; i++) {
        v = i || counts == 1 ? 7.0f : 0.0f; /* the first expert met nothing */
        ck_assert(gguf_write_data(w, &v, 4, &e) == 0);
    }
    ck_assert_msg(gguf_write_sync(w, &e) == 0 && gguf_write_finish(w, &e) == 0, "%s", e.text);
    return at;
}

static enum dtype type_in(const char *file, const char *tensor)
{
    struct weight_file *f;
    struct error e = {0};
    enum dtype type;

    ck_assert_msg(weight_file_open(&f, file, false, &e) == 0, "%s", e.text);
    ck_assert_ptr_nonnull(weight_file_find(f, tensor));
    type = weight_file_find(f, tensor)->type;
    weight_file_close(f);
    return type;
}

/* The error of every fourth column of an expert's matrix, the others' beside it. */
static void column_errors(const char *in, const char *out, const char *tensor, int expert,
                          double errors[2])
{
    struct weight_file *f[2];
    const struct tensor_view *t[2];
    struct error e = {0};
    float *row[2];

    errors[0] = errors[1] = 0.0;
    for (int k = 0; k < 2; k++) {
        ck_assert(weight_file_open(&f[k], k ? out : in, false, &e) == 0);
        t[k] = weight_file_find(f[k], tensor);
        row[k] = mem_alloc((size_t)t[k]->dims[2], sizeof **row);
    }
    for (int64_t r = 0; r < t[0]->dims[1]; r++) {
        for (int k = 0; k < 2; k++)
            row_to_f32(t[k]->type,
                       (const char *)t[k]->data +
                           (size_t)(expert * t[k]->dims[1] + r) *
                               dtype_row_bytes(t[k]->type, (int)t[k]->dims[2]),
                       t[k]->dims[2], row[k]);
        for (int64_t c = 0; c < t[0]->dims[2]; c++)
            errors[c % 4 == 0] += (double)(row[0][c] - row[1][c]) * (double)(row[0][c] - row[1][c]);
    }
    for (int k = 0; k < 2; k++) {
        mem_free(row[k]);
        weight_file_close(f[k]);
    }
}

#define EXPERTS "blk.0.ffn_up_exps.weight"

START_TEST(importance_and_patterns)
{
    struct made_file *made = made_model(GGUF_STACKED);
    struct bytes b = made_gguf(made);
    struct export_override overrides[] = {{"blk\\.[0-9]+\\.attn_(q|k)", DTYPE_Q8_0},
                                          {"ATTN_Q", DTYPE_Q4_0}};
    struct export_options o = {.type = export_type_find("q4_1"), .n_threads = 2};
    struct export_report r;
    struct error e = {0};
    char in[600], out[600];
    double plain_errors[2], weighed[2], unmet[2][2];
    struct weight_file *f;
    const struct tensor_view *t;

    ck_assert_int_eq(save(&b, in_tmp("in.gguf")), 0);
    snprintf(in, sizeof in, "%s", path);
    snprintf(out, sizeof out, "%s/out.gguf", support_tmpdir());
    ck_assert(weight_file_open(&f, in, false, &e) == 0);
    t = weight_file_find(f, EXPERTS);
    ck_assert(t && t->n_dims == 3);

    ck_assert_msg(model_export(in, out, &o, &r, &e) == 0, "%s", e.text);
    ck_assert(r.known == 0 && r.unknown == 0 && r.weights > 0 && r.memory > 0);
    column_errors(in, out, EXPERTS, 1, plain_errors);
    column_errors(in, out, EXPERTS, 0, unmet[0]);
    o.importance = write_importance(EXPERTS, (int)t->dims[0], (int)t->dims[0], (int)t->dims[2]);
    ck_assert_msg(model_export(in, out, &o, &r, &e) == 0, "%s", e.text);
    ck_assert_int_eq(r.known, 1);
    ck_assert_int_gt(r.unknown, 3);
    column_errors(in, out, EXPERTS, 1, weighed);
    column_errors(in, out, EXPERTS, 0, unmet[1]);
    ck_assert_msg(weighed[1] < 0.9 * plain_errors[1] && weighed[0] > plain_errors[0],
                  "%g %g, %g %g", weighed[1], plain_errors[1], weighed[0], plain_errors[0]);
    ck_assert(unmet[0][0] == unmet[1][0] && unmet[0][1] == unmet[1][1]);

    /* one count for all matrices, as llama-imatrix writes it of heads' */
    o.importance = write_importance(EXPERTS, (int)t->dims[0], 1, (int)t->dims[2]);
    ck_assert_msg(model_export(in, out, &o, &r, &e) == 0, "%s", e.text);
    ck_assert_int_eq(r.known, 1);
    column_errors(in, out, EXPERTS, 0, unmet[1]);
    ck_assert(unmet[1][1] < 0.9 * unmet[0][1]);
    column_errors(in, out, EXPERTS, 1, unmet[1]);
    ck_assert(unmet[1][0] == weighed[0] && unmet[1][1] == weighed[1]);

    o.importance = write_importance(EXPERTS, (int)t->dims[0], (int)t->dims[0], (int)t->dims[2] + 1);
    ck_assert_int_eq(model_export(in, out, &o, &r, &e), ERR_INPUT);
    ck_assert_msg(strstr(e.text, "another model") && strstr(e.text, EXPERTS), "%s", e.text);
    o.importance = in;
    ck_assert_int_eq(model_export(in, out, &o, &r, &e), ERR_INPUT);
    o.importance = NULL;

    o.overrides = overrides;
    o.n_overrides = 2;
    ck_assert_msg(model_export(in, out, &o, &r, &e) == 0, "%s", e.text);
    ck_assert_int_eq(type_in(out, "blk.1.attn_q.weight"), DTYPE_Q8_0);
    ck_assert_int_eq(type_in(out, "blk.0.attn_k.weight"), DTYPE_Q8_0);
    ck_assert_int_eq(type_in(out, "blk.0.attn_v.weight"), DTYPE_Q4_1);
    o.type = export_type_find("f16"); /* floats but for what is named */
    ck_assert_msg(model_export(in, out, &o, &r, &e) == 0, "%s", e.text);
    ck_assert_int_eq(type_in(out, "blk.1.attn_q.weight"), DTYPE_Q8_0);
    ck_assert_int_eq(type_in(out, "blk.0.attn_v.weight"), DTYPE_F16);
    overrides[0].pattern = "attn_(q";
    ck_assert_int_eq(model_export(in, out, &o, &r, &e), ERR_USAGE);
    ck_assert_msg(strstr(e.text, "attn_(q") && strstr(e.text, "character"), "%s", e.text);
    weight_file_close(f);
    free(b.data);
    made_release(made);
    free(made);
}
END_TEST

/* Head and embeddings have words of their own, which go before patterns and the mix; what is one
 * tensor for both is the head's, unless it is named as the embeddings. */
static const char *const named_models[] = {NULL, "golden/families/granitemoehybrid"}; /* the demo */

START_TEST(head_and_embeddings_by_name)
{
    const char *in = named_models[_i] ? support_path(named_models[_i]) : support_demo();
    bool tied = named_models[_i] != NULL;
    const char *head = tied ? "token_embd.weight" : "output.weight";
    const enum dtype q5 = DTYPE_Q5_0, f16 = DTYPE_F16;
    struct export_override overrides[] = {{"output|token_embd", DTYPE_Q4_1}};
    struct export_options o = {.type = export_type_find("q4_0"),
                               .overrides = overrides,
                               .n_overrides = 1,
                               .head = &q5,
                               .n_threads = 2};
    struct export_report r;
    struct error e = {0};
    char out[600];

    snprintf(out, sizeof out, "%s/named.gguf", support_tmpdir());
    ck_assert_msg(model_export(in, out, &o, &r, &e) == 0, "%s", e.text);
    ck_assert_int_eq(type_in(out, head), DTYPE_Q5_0);
    if (!tied)
        ck_assert_int_eq(type_in(out, "token_embd.weight"), DTYPE_Q4_1);
    o.embeddings = &f16;
    ck_assert_msg(model_export(in, out, &o, &r, &e) == 0, "%s", e.text);
    ck_assert_int_eq(type_in(out, "token_embd.weight"), DTYPE_F16);
    if (!tied)
        ck_assert_int_eq(type_in(out, "output.weight"), DTYPE_Q5_0);
    o.head = NULL;
    o.n_overrides = 0;
    ck_assert_msg(model_export(in, out, &o, &r, &e) == 0, "%s", e.text);
    ck_assert_int_eq(type_in(out, "token_embd.weight"), DTYPE_F16);
    if (!tied)
        ck_assert_int_eq(type_in(out, "output.weight"), DTYPE_Q6_K); /* the mix's */
}
END_TEST

START_TEST(byte_level_tokenizers_stay_themselves)
{
    static const char *const before[] = {
        END_TOKEN "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, ",
        END_TOKEN "\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": "
                  "\"ByteLevel\", \"add_prefix_space\": false}, ",
        SPLIT_BY(
            "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
            "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"),
    };
    struct export_options o = {.type = export_type_find("bf16"), .n_threads = 2};
    struct export_report r;
    struct error e = {0};

    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        for (int whole = 0; whole < 2; whole += i == 2 ? 1 : 2) {
            const char *in = byte_level_folder(before[i], whole ? "\"ignore_merges\": true, " : "");
            int want[100], got[100], n_want, n;

            export(in, "bf16", in_tmp("byte-level.gguf"), &r);
            ck_assert(r.tokenizer);
            ids_of(in, want, &n_want);
            ids_of(path, got, &n);
            ck_assert_int_eq(n, n_want);
            ck_assert_mem_eq(got, want, (size_t)n * sizeof *got);
        }
    ck_assert_int_eq(model_export(byte_level_folder(SPLIT_BY("[ab]"), ""), in_tmp("none.gguf"), &o,
                                  &r, &e),
                     ERR_MODEL);
    ck_assert_msg(strstr(e.text, "GGUF has no name") != NULL, "%s", e.text);
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

/* Negative log likelihood of some texts by a form of the demo model. */
static double likelihood(const char *model)
{
#if defined(__SANITIZE_ADDRESS__)
    /* enough to run the code; the numbers are for the release build */
    enum { TEXTS = 2, VOCAB = 4096 };
#else
    enum { TEXTS = 8, VOCAB = 4096 };
#endif
    struct engine_config c = {.model_path = model,
                              .n_threads = 2,
                              .batch = 1024,
                              .ubatch = 512,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .convert = -1};
    json_t *root = json_load_file(support_path("golden/demo/perplexity.json"), 0, NULL);
    float *logits = malloc((size_t)1024 * VOCAB * sizeof *logits);
    struct engine *g;
    struct error e = {0};
    double sum = 0.0;

    ck_assert_ptr_nonnull(root);
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    for (int k = 0; k < TEXTS; k++) {
        const json_t *list =
            json_object_get(json_array_get(json_object_get(root, "texts"), (size_t)k), "ids");
        int n = (int)json_array_size(list), ids[1024];

        ck_assert(n > 20 && n <= 1024);
        for (int t = 0; t < n; t++)
            ids[t] = (int)json_integer_value(json_array_get(list, (size_t)t));
        engine_session_clear(g);
        ck_assert_msg(engine_eval(g, ids, n, logits, true, &e) == 0, "%s", e.text);
        for (int t = 0; t + 1 < n; t++) {
            const float *l = logits + (size_t)t * VOCAB;
            double max = -INFINITY, total = 0.0;

            for (int i = 0; i < VOCAB; i++)
                max = (double)l[i] > max ? (double)l[i] : max;
            for (int i = 0; i < VOCAB; i++)
                total += exp((double)l[i] - max);
            sum += log(total) + max - (double)l[ids[t + 1]];
        }
    }
    engine_close(g);
    json_decref(root);
    free(logits);
    return sum;
}

/* The demo model rounded to every type still tells its stories about as well. Types with fewer bits
 * lose more. */
START_TEST(demo_stays_itself)
{
    static const struct {
        const char *type;
        double limit;
    } cases[] = {{"q8_0", 0.001},  {"q6_k", 0.02},   {"q5_k_s", 0.03}, {"q5_1", 0.03},
                 {"q5_0", 0.03},   {"q4_k_m", 0.03}, {"q4_1", 0.04},   {"q4_0", 0.05},
                 {"iq4_xs", 0.04}, {"q3_k_m", 0.12}, {"q2_k", 0.6},    {"mxfp4_moe", 0.06}};
    const char *in = support_demo();
    double base;

    base = likelihood(in);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct export_report r;
        double x;

        if (!support_turn((int)i, 3))
            continue;
        export(in, cases[i].type, in_tmp("demo.gguf"), &r);
        ck_assert(r.tokenizer);
        x = likelihood(path);
        printf("%s: %.4f of %.4f (%+.2f %%)\n", cases[i].type, x, base, 100.0 * (x / base - 1.0));
        ck_assert_msg(x / base - 1.0 < cases[i].limit + SLACK && x / base - 1.0 > -0.05 - SLACK,
                      "%s: %.4f of %.4f", cases[i].type, x, base);
    }
}
END_TEST

/* The package that defines the format reads the files and finds the same numbers in them. */
START_TEST(python_package_reads_it)
{
    const char *script = support_path("quantize_check.py"),
               *in = support_shared("demo/tiny-storyteller");
    static const char *const types[] = {"q4_k_m", "q6_k", "q8_0",   "q4_0",     "bf16",
                                        "q3_k_m", "q2_k", "iq4_xs", "mxfp4_moe"};

    if (!in)
        return;
    if (system("python3 -c 'import gguf, numpy' 2>/dev/null")) {
        support_skip("python3 has no gguf and numpy");
        return;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char command[2048];
        struct export_report r;

        export(in, types[i], in_tmp("py.gguf"), &r);
        snprintf(command, sizeof command, "python3 '%s' '%s' '%s' '%s'", script, path, in,
                 types[i]);
        ck_assert_msg(system(command) == 0, "%s", command);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("quantize");
    TCase *t = tcase_create("quantize");

    tcase_set_timeout(t, 240);
    tcase_add_test(t, errors_of_types);
    tcase_add_test(t, byte_level_tokenizers_stay_themselves);
    tcase_add_test(t, other_families_are_refused);
    tcase_add_test(t, gguf_of_any_family);
    tcase_add_test(t, importance_and_patterns);
    tcase_add_loop_test(t, head_and_embeddings_by_name, 0,
                        sizeof named_models / sizeof *named_models);
    tcase_add_test(t, importance_moves_the_error);
    tcase_add_test(t, odd_rows);
    tcase_add_test(t, both_searches_agree);
    tcase_add_test(t, lossless_round_trip);
    tcase_add_test(t, fallbacks);
    tcase_add_test(t, mixes_are_llama_quantizes);
    tcase_add_test(t, loading_converts_to_the_same);
    tcase_add_test(t, a_kill_leaves_nothing);
    tcase_add_test(t, nothing_half_written);
    tcase_add_test(t, demo_stays_itself);
    tcase_add_test(t, python_package_reads_it);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
