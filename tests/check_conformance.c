/* Every back end through the conformance suite: the CPU device with each kernel set, the OpenCL
 * device (in both shapes of its kernels) and the fake device of the tests; and back ends made wrong
 * on purpose, one job each, which the suite must find. */
#include "engine/file/format_traits.h"
#include "engine/device/conformance/conformance.h"
#include "engine/device/cpu/kernels/kernels.h"
#include "gpu/opencl.h"
#include "gpu/driver/tuning.h"
#include "tests/fake_device.h"
#include "tests/support.h"
#include "tests/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tiny_shape small = {.layers = 2,
                                        .hidden = 256,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = 64,
                                        .ffn = 256,
                                        .experts = 5,
                                        .vocab = 77,
                                        .rope_dims = 32,
                                        .context = 288,
                                        .type = DTYPE_Q8_0,
                                        .width = 8,
                                        .bias = 1,
                                        .seed = 7};

static const enum dtype types[] = {
#define FORMAT(id, ...) DTYPE_##id,
#include "engine/file/formats.def"
    DTYPE_F32, DTYPE_F16, DTYPE_BF16};
#define TYPES (int)(sizeof types / sizeof types[0])

static void run(const struct device_ops *ops, struct tiny_shape shape, enum kv_type kv, int rows,
                struct conformance_report *r)
{
    struct tiny_model *t = tiny_model_new(&shape);
    struct device_config c = {.model = &t->model,
                              .n_threads = 2,
                              .max_rows = rows,
                              .context = shape.context,
                              .kv_k = kv,
                              .kv_v = kv,
                              .exact = true,
                              .selector = ops == &opencl_device_ops ? getenv("CHECK_OPENCL") : NULL,
                              .cache_dir = support_tmpdir(),
                              .rope_cos = {t->rope_cos},
                              .rope_sin = {t->rope_sin},
                              .second_cos = t->second_cos,
                              .second_sin = t->second_sin};
    struct error e = {0};

    ck_assert_msg(conformance_run(ops, &c, r, &e) == 0, "%s", e.text);
    tiny_model_free(t);
}

static void check(const struct device_ops *ops, struct tiny_shape shape, enum kv_type kv, int rows)
{
    static const enum conformance_job always[] = {CONFORMANCE_BLOCKS,    CONFORMANCE_KV_ROWS,
                                                  CONFORMANCE_ATTENTION, CONFORMANCE_EXPERTS,
                                                  CONFORMANCE_HEAD,      CONFORMANCE_LAYERS};
    struct conformance_report r;
    bool single = false; /* layers with a shortcut never run whole */

    for (int l = 0; shape.shapes && l < shape.layers; l++)
        single |= shape.shapes[l].shortcut != SHORTCUT_NONE;
    run(ops, shape, kv, rows, &r);
    if (r.n)
        ck_abort_msg("%s, %s weights, cache type %d, %d rows, %s: %s", ops->name,
                     dtype_info(r.finding[0].type)->word, (int)kv, rows,
                     conformance_job_name(r.finding[0].job), r.finding[0].what);
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        ck_assert_msg(r.checks[always[i]] > 0 || (single && always[i] == CONFORMANCE_LAYERS),
                      "%s was not tested", conformance_job_name(always[i]));
    ck_assert_int_eq(r.checks[CONFORMANCE_ROUTE] > 0, ops->route != NULL);
    ck_assert_int_eq(r.checks[CONFORMANCE_STREAM] > 0, ops->stream != NULL);
}

/* Every kernel set this CPU has, each type of weights; cache types, windows, packing widths and
 * rows of a job by turns. */
START_TEST(test_cpu)
{
    const struct kernels *set;
    struct error e;

    for (int i = 0; (set = kernels_at(i)); i++) {
        struct tiny_shape s = small;

        /* many, slow to unpack, and all alike to a device */
        if (format_of[types[_i]].words && (i + _i) % 3)
            continue;
        if (!support_turn(i + _i / 2, 2))
            continue;
        printf("RAN: %s kernels\n", set->name);
        ck_assert_int_eq(cpu_kernels_select(set->name, &e), 0);
        s.type = types[_i];
        s.width = (i + _i) % 2 ? 16 : 8;
        s.window = _i % 2 ? 100 : 0;
        check(&cpu_device_ops, s, (enum kv_type)((i + _i) % 3), _i % 2 ? 3 : 11);
    }
}
END_TEST

START_TEST(test_fake)
{
    struct tiny_shape s = small;

    s.type = _i % 2 ? DTYPE_F16 : DTYPE_Q4_K;
    check(&fake_device_ops, s, (enum kv_type)(_i % 3), 7);
}
END_TEST

/* ---- Layers of other kinds ---- */

#define MIXER .kind = MIXER_ATTENTION, .heads = 4, .kv_heads = 2, .key_dim = 64, .rope_dims = 64
/* widths of a head that are no multiples of 16, but what K-quants need them to be */
#define LATENT                                                                            \
    .kind = MIXER_MLA, .key_dim = 320, .value_dim = 256, .rope_dims = 64, .kv_rank = 256, \
    .latent_eps = 1e-6f
#define RMS .kind = NORM_RMS, .eps = 1e-6f, .before = true

#define GEMMA_FFN                                                                           \
    .ffn = {.kind = FFN_DENSE_AND_ROUTED,                                                   \
            .experts = 6,                                                                   \
            .used = 3,                                                                      \
            .shared = 1,                                                                    \
            .width = 256,                                                                   \
            .shared_width = 512,                                                            \
            .activation = ACTIVATION_GELU,                                                  \
            .router = {.kind = ROUTER_SOFTMAX, .normalised = true, .expert_scales = true}}, \
    .norms = {RMS, .after = true}, .scaled = true

/* fused: the OpenCL device runs such layers whole. */
static const struct {
    const char *name;
    bool fused;
    struct layer_shape shape[3];
} layer_kinds[] = {
    {"like mixtral",
     true,
     {{.mixer = {MIXER, .rope = ROPE_PAIRS, .window = 90},
       .ffn = {.experts = 5,
               .used = 2,
               .width = 256,
               .router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
       .norms = {RMS}}}},
    {"like qwen3_moe",
     true,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_HEAD},
       .ffn = {.experts = 20,
               .used = 4,
               .width = 256,
               .router = {.kind = ROUTER_SOFTMAX, .normalised = true, .factor = 2.5f}},
       .norms = {RMS}}}},
    {"like olmoe",
     true,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_WHOLE, .scale = 0.2f},
       .ffn = {.experts = 6, .used = 3, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}}}},
    {"like qwen2_moe: a shared expert of another width",
     true,
     {{.mixer = {MIXER, .bias = true},
       .ffn = {.experts = 5,
               .used = 2,
               .shared = 1,
               .width = 256,
               .shared_width = 512,
               .shared_gate = SHARED_SIGMOID,
               .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}}}},
    {"like glm4_moe",
     true,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_HEAD},
       .ffn = {.experts = 20,
               .used = 3,
               .shared = 1,
               .width = 256,
               .shared_width = 256,
               .router = {.kind = ROUTER_SIGMOID,
                          .normalised = true,
                          .factor = 1.5f,
                          .choice_bias = true}},
       .norms = {RMS}}}},
    {"like lfm2_moe's layers with attention: a sum with a floor",
     true,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_HEAD},
       .ffn = {.experts = 6,
               .used = 3,
               .width = 256,
               .router = {.kind = ROUTER_SIGMOID, .normalised = true, .floor = 1e-3f}},
       .norms = {RMS}}}},
    {"like ernie4_5_moe: a bias of the choice behind softmax, a factor of the shared expert",
     true,
     {{.mixer = {MIXER, .rope = ROPE_PAIRS},
       .ffn = {.experts = 16,
               .used = 2,
               .shared = 1,
               .width = 256,
               .shared_width = 512,
               .shared_factor = 0.5f,
               .router = {.kind = ROUTER_SOFTMAX, .normalised = true, .choice_bias = true}},
       .norms = {RMS}}}},
    {"like glm4_moe, residuals scaled as granitemoe's",
     true,
     {{.mixer = {MIXER},
       .ffn = {.experts = 6,
               .used = 2,
               .shared = 1,
               .width = 256,
               .shared_width = 256,
               .router = {.kind = ROUTER_SIGMOID,
                          .normalised = true,
                          .factor = 1.5f,
                          .choice_bias = true}},
       .norms = {RMS}}}},
    {"dense, then a shared expert, then more routed ones",
     true,
     {{.mixer = {MIXER},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 512},
       .norms = {RMS}},
      {.mixer = {MIXER, .qk_norm = QK_NORM_HEAD},
       .ffn = {.experts = 3,
               .used = 1,
               .shared = 1,
               .width = 256,
               .shared_width = 256,
               .router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
       .norms = {.kind = NORM_LAYER, .eps = 1e-5f, .before = true}},
      {.mixer = {MIXER, .rope = ROPE_PAIRS},
       .ffn = {.experts = 7,
               .used = 3,
               .width = 256,
               .router = {.kind = ROUTER_SPARSEMIXER, .jitter = 0.1f}},
       .norms = {RMS}}}},
    {"like a dense llama, then like deepseek's first layers",
     true,
     {{.mixer = {MIXER, .rope = ROPE_PAIRS},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 512},
       .norms = {RMS}},
      {.mixer = {MIXER},
       .ffn = {.experts = 20,
               .used = 2,
               .shared = 1,
               .width = 256,
               .shared_width = 256,
               .router = {.kind = ROUTER_SIGMOID, .normalised = true}},
       .norms = {RMS}},
      {.mixer = {MIXER},
       .ffn = {.kind = FFN_DENSE,
               .shared = 1,
               .shared_width = 4608,
               .activation = ACTIVATION_GELU_PLAIN},
       .norms = {RMS}}}},
    {"like gemma4, more experts than arguments, and its dense relatives",
     true,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_HEAD},
       .ffn = {.kind = FFN_DENSE_AND_ROUTED,
               .experts = 20,
               .used = 2,
               .shared = 1,
               .width = 256,
               .shared_width = 256,
               .activation = ACTIVATION_GELU,
               .router = {.kind = ROUTER_SOFTMAX, .normalised = true, .expert_scales = true}},
       .norms = {RMS, .after = true}},
      {.mixer = {MIXER},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 512},
       .norms = {RMS},
       .scaled = true},
      {.mixer = {MIXER},
       .ffn = {.experts = 5,
               .used = 3,
               .width = 256,
               .router = {.kind = ROUTER_SOFTMAX, .expert_scales = true}},
       .norms = {RMS},
       .scaled = true}}},
    {"like qwen3_next's gated attention, and without positions; no gates in the experts",
     true,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_HEAD, .gated = true},
       .ffn = {.kind = FFN_DENSE,
               .shared = 1,
               .shared_width = 512,
               .activation = ACTIVATION_GELU_PLAIN},
       .norms = {RMS}},
      {.mixer = {.heads = 4, .kv_heads = 2, .key_dim = 64, .rope = ROPE_NONE, .gated = true},
       .ffn = {.experts = 6,
               .used = 2,
               .shared = 1,
               .width = 256,
               .shared_width = 512,
               .activation = ACTIVATION_RELU2,
               .router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
       .norms = {RMS}},
      {.mixer = {MIXER, .gated = true, .window = 30},
       .ffn = {.experts = 5,
               .used = 2,
               .width = 256,
               .activation = ACTIVATION_RELU,
               .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}}}},
    {"like afmoe's gates of their own; like laguna's, one a head, by softplus; and so for each "
     "value",
     true,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_HEAD, .gated = true, .gate = GATE_APART, .window = 30},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 512},
       .norms = {RMS, .after = true}},
      {.mixer = {.heads = 4,
                 .kv_heads = 1,
                 .key_dim = 64,
                 .rope = ROPE_NONE,
                 .gated = true,
                 .gate = GATE_HEADS,
                 .gate_softplus = true},
       .ffn = {.experts = 6,
               .used = 2,
               .shared = 1,
               .width = 256,
               .shared_width = 512,
               .router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
       .norms = {RMS}},
      {.mixer = {MIXER, .gated = true, .gate = GATE_APART, .gate_softplus = true},
       .ffn = {.experts = 5, .used = 2, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}}}},
    {"like jetmoe: heads of experts, which a router weights",
     false,
     {{.mixer = {.heads = 8,
                 .kv_heads = 2,
                 .key_dim = 64,
                 .rope_dims = 64,
                 .gated = true,
                 .gate = GATE_ROUTED,
                 .experts = 4,
                 .used = 2},
       .ffn = {.experts = 5, .used = 2, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}},
      {.mixer = {.heads = 24,
                 .kv_heads = 1,
                 .key_dim = 32,
                 .rope_dims = 8,
                 .gated = true,
                 .gate = GATE_ROUTED,
                 .experts = 24,
                 .used = 3,
                 .window = 30},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 512},
       .norms = {RMS}},
      {.mixer = {MIXER, .sinks = true},
       .ffn = {.experts = 5, .used = 2, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}}}},
    {"like laguna: more heads, rotated by another table and less of them, in layers with a window",
     true,
     {{.mixer = {.heads = 4, .kv_heads = 2, .key_dim = 128, .rope_dims = 64},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 512},
       .norms = {RMS}},
      {.mixer = {.heads = 8,
                 .kv_heads = 2,
                 .key_dim = 64,
                 .rope_dims = 32,
                 .second_rope = true,
                 .window = 30,
                 .gated = true,
                 .gate = GATE_HEADS,
                 .gate_softplus = true},
       .ffn = {.experts = 5, .used = 2, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}},
      {.mixer = {.heads = 4, .kv_heads = 4, .key_dim = 64, .rope_dims = 64},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 256},
       .norms = {RMS}}}},
    {"like afmoe: norms before and behind",
     true,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_HEAD, .gated = true, .gate = GATE_APART},
       .ffn = {.experts = 20,
               .used = 2,
               .shared = 1,
               .width = 256,
               .shared_width = 512,
               .router = {.kind = ROUTER_SIGMOID,
                          .normalised = true,
                          .factor = 1.5f,
                          .choice_bias = true}},
       .norms = {RMS, .after = true}}}},
    {"like bailing_moe_v2: experts of the best groups, by their two best or their best",
     true,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_HEAD},
       .ffn = {.experts = 24,
               .used = 4,
               .shared = 1,
               .width = 256,
               .shared_width = 256,
               .router = {.kind = ROUTER_SIGMOID,
                          .normalised = true,
                          .choice_bias = true,
                          .groups = 8,
                          .groups_used = 3}},
       .norms = {RMS}},
      {.mixer = {MIXER},
       .ffn = {.experts = 12,
               .used = 4,
               .shared = 1,
               .width = 256,
               .shared_width = 256,
               .router = {.kind = ROUTER_SOFTMAX, .groups = 4, .groups_used = 2}},
       .norms = {RMS}},
      {.mixer = {MIXER},
       .ffn = {.experts = 12,
               .used = 4,
               .shared = 1,
               .width = 256,
               .shared_width = 512,
               .router = {.kind = ROUTER_SIGMOID, .groups = 12, .groups_used = 5}},
       .norms = {RMS}}}},
    {"like olmo2: norms of the operators' outputs alone",
     true,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_WHOLE},
       .ffn = {.experts = 5, .used = 2, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {.kind = NORM_RMS, .eps = 1e-6f, .after = true, .outputs = true}}}},
    {"like cohere2_moe: operators beside each other, halves of the experts' outputs",
     true,
     {{.mixer = {MIXER, .rope = ROPE_PAIRS, .window = 30},
       .ffn = {.experts = 5,
               .used = 2,
               .shared = 1,
               .width = 256,
               .shared_width = 256,
               .shared_factor = 0.5f,
               .router = {.kind = ROUTER_SIGMOID, .normalised = true, .factor = 0.5f}},
       .norms = {.kind = NORM_LAYER, .eps = 1e-5f, .before = true},
       .parallel = true}}},
    {"like smallthinker: a router before the mixer, ReGLU",
     true,
     {{.mixer = {MIXER, .window = 30},
       .ffn = {.experts = 5,
               .used = 2,
               .width = 256,
               .activation = ACTIVATION_REGLU,
               .router = {.kind = ROUTER_SIGMOID, .normalised = true, .early = true}},
       .norms = {RMS}}}},
    {"like llama4: chunks, weighted inputs of experts, queries that grow",
     false,
     {{.mixer = {MIXER, .rope = ROPE_PAIRS, .window = 24, .chunked = true, .qk_norm = QK_NORM_HEAD,
                 .qk_norm_turned = true},
       .ffn = {.experts = 5,
               .used = 2,
               .shared = 1,
               .width = 256,
               .shared_width = 256,
               .router = {.kind = ROUTER_SIGMOID, .on_input = true}},
       .norms = {RMS}}}},
    {"like muse_glimmer: an epsilon of the norms after operators",
     true,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_HEAD, .gated = true, .gate = GATE_APART},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 256},
       .norms =
           {.kind = NORM_RMS, .eps = 1e-5f, .eps_after = 0.1f, .before = true, .after = true}}}},
    {"like maple: clamped SiLU",
     true,
     {{.mixer = {MIXER, .window = 30, .qk_norm = QK_NORM_HEAD},
       .ffn = {.experts = 5,
               .used = 2,
               .width = 256,
               .activation = ACTIVATION_CLAMPED_SILU,
               .limit = 0.2f,
               .router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
       .norms = {RMS}}}},
    {"like grovemoe: experts in groups, each with an adjugate one",
     false,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_HEAD},
       .ffn = {.experts = 6,
               .used = 3,
               .grouped = 2,
               .width = 256,
               .shared_width = 256,
               .shared_factor = 0.05f,
               .router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
       .norms = {RMS}}}},
    {"like hunyuan_v1_moe: norms behind the rotation",
     false,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_HEAD, .qk_norm_turned = true},
       .ffn = {.experts = 5, .used = 2, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}}}},
    {"like step3p5: gates a head, limits of the experts' halves, one for all",
     true,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_HEAD, .gated = true, .gate = GATE_HEADS, .window = 40},
       .ffn = {.experts = 5,
               .used = 2,
               .shared = 1,
               .width = 256,
               .shared_width = 256,
               .activation = ACTIVATION_BOUNDED_SILU,
               .limit = 0.25f,
               .router = {.kind = ROUTER_SIGMOID, .normalised = true, .factor = 1.5f}},
       .norms = {RMS}}}},
    {"like longcat_flash: scaled latent rows, identities, experts that enter a layer later",
     false,
     {{.mixer = {LATENT, .heads = 3, .kv_heads = 1, .q_rank = 256, .rope = ROPE_PAIRS,
                 .scale = 0.2f, .latent_factor = 1.7f},
       .ffn = {.experts = 5,
               .used = 3,
               .shared = 1,
               .width = 256,
               .shared_width = 512,
               .router =
                   {.kind = ROUTER_SOFTMAX, .factor = 1.6f, .choice_bias = true, .identities = 4}},
       .norms = {RMS},
       .shortcut = SHORTCUT_LEAVES},
      {.mixer = {LATENT, .heads = 3, .kv_heads = 1, .q_rank = 256, .latent_factor = 1.7f},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 512},
       .norms = {RMS},
       .shortcut = SHORTCUT_ENTERS},
      {.mixer = {LATENT, .heads = 3, .kv_heads = 1, .latent_factor = 0.6f},
       .ffn = {.experts = 5,
               .used = 3,
               .width = 256,
               .router = {.kind = ROUTER_SOFTMAX, .identities = 2}},
       .norms = {RMS},
       .shortcut = SHORTCUT_LEAVES}}},
    {"like deepseek_v3: latent queries, rotated pairs",
     false,
     {{.mixer = {LATENT, .heads = 3, .kv_heads = 1, .q_rank = 256, .rope = ROPE_PAIRS},
       .ffn = {.experts = 8,
               .used = 3,
               .shared = 1,
               .width = 256,
               .shared_width = 256,
               .router = {.kind = ROUTER_SIGMOID,
                          .normalised = true,
                          .factor = 2.5f,
                          .choice_bias = true,
                          .groups = 4,
                          .groups_used = 2}},
       .norms = {RMS}}}},
    {"like deepseek_v32: few keys, most keys, and some, as chosen by thin heads",
     false,
     {{.mixer = {LATENT, .heads = 3, .kv_heads = 1, .q_rank = 256, .rope = ROPE_PAIRS,
                 .index_heads = 19, .index_dim = 96, .index_top = 5},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 512},
       .norms = {RMS}},
      {.mixer = {LATENT, .heads = 3, .kv_heads = 1, .q_rank = 256, .rope = ROPE_PAIRS,
                 .index_heads = 4, .index_dim = 64, .index_top = 257},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 512},
       .norms = {RMS}},
      {.mixer = {LATENT, .heads = 16, .kv_heads = 1, .q_rank = 256, .rope = ROPE_PAIRS,
                 .index_heads = 1, .index_dim = 128, .index_top = 100},
       .ffn = {.experts = 5, .used = 2, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}}}},
    {"like glm_moe_dsa: a choice that later layers share",
     false,
     {{.mixer = {LATENT, .heads = 3, .kv_heads = 1, .q_rank = 256, .rope = ROPE_PAIRS,
                 .index_heads = 8, .index_dim = 64, .index_top = 60, .index_rope = ROPE_PAIRS},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 512},
       .norms = {RMS}},
      {.mixer = {LATENT, .heads = 4, .kv_heads = 1, .q_rank = 256, .rope = ROPE_PAIRS,
                 .index_top = 60},
       .ffn = {.experts = 5, .used = 2, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}},
      {.mixer = {LATENT, .heads = 5, .kv_heads = 1, .q_rank = 256, .rope = ROPE_PAIRS,
                 .index_top = 60},
       .ffn = {.experts = 5, .used = 2, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}}}},
    {"like deepseek_v2, one layer of keys and values between",
     false,
     {{.mixer = {LATENT, .heads = 8, .kv_heads = 1, .rope = ROPE_PAIRS, .scale = 0.11f},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 512},
       .norms = {RMS}},
      {.mixer = {MIXER},
       .ffn = {.experts = 3, .used = 1, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}},
      {.mixer = {LATENT, .heads = 3, .kv_heads = 1},
       .ffn = {.experts = 8,
               .used = 2,
               .width = 256,
               .router = {.kind = ROUTER_SOFTMAX, .groups = 4, .groups_used = 2}},
       .norms = {RMS}}}},
    {"like gpt_oss: sinks, windows, biases",
     true,
     {{.mixer = {MIXER, .bias = true, .sinks = true, .window = 40},
       .ffn = {.experts = 6,
               .used = 3,
               .width = 256,
               .activation = ACTIVATION_CLAMPED_SWIGLU,
               .limit = 0.5f,
               .bias = true,
               .router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
       .norms = {RMS}}}},
    {"like opt; then half of a head rotated and GELU; then sinks, gates and biases at once",
     true,
     {{.mixer = {.heads = 4, .kv_heads = 4, .key_dim = 64, .rope = ROPE_NONE, .bias = true},
       .ffn = {.kind = FFN_DENSE,
               .shared = 1,
               .shared_width = 512,
               .activation = ACTIVATION_RELU,
               .bias = true},
       .norms = {.kind = NORM_LAYER, .eps = 1e-5f, .before = true}},
      {.mixer = {.heads = 4, .kv_heads = 1, .key_dim = 64, .rope_dims = 32, .rope = ROPE_PAIRS},
       .ffn = {.experts = 4,
               .used = 2,
               .width = 256,
               .activation = ACTIVATION_GELU,
               .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}},
      {.mixer = {.heads = 4,
                 .kv_heads = 2,
                 .key_dim = 64,
                 .rope_dims = 32,
                 .bias = true,
                 .sinks = true,
                 .gated = true,
                 .qk_norm = QK_NORM_WHOLE},
       .ffn = {.experts = 5,
               .used = 2,
               .shared = 1,
               .width = 256,
               .shared_width = 512,
               .shared_gate = SHARED_SIGMOID,
               .activation = ACTIVATION_CLAMPED_SWIGLU,
               .limit = 0.5f,
               .bias = true,
               .router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
       .norms = {RMS}}}},
    {"like gemma4: windows between layers that see all, norms around both parts",
     true,
     {{.mixer = {.heads = 4,
                 .kv_heads = 2,
                 .key_dim = 64,
                 .rope_dims = 64,
                 .scale = 0.2f,
                 .qk_norm = QK_NORM_HEAD,
                 .value_norm = true,
                 .window = 40},
       GEMMA_FFN},
      {.mixer = {.heads = 4,
                 .kv_heads = 1,
                 .key_dim = 128,
                 .rope_dims = 32,
                 .rope = ROPE_PROPORTIONAL,
                 .second_rope = true,
                 .scale = 0.2f,
                 .qk_norm = QK_NORM_HEAD,
                 .value_norm = true,
                 .values_are_keys = true},
       GEMMA_FFN},
      {.mixer = {MIXER},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 512},
       .norms = {RMS, .after = true},
       .scaled = true}}},
    {"like opt-350m: norms behind the sums, a narrow head",
     false,
     {{.mixer = {.heads = 4, .kv_heads = 4, .key_dim = 64, .rope = ROPE_NONE, .bias = true},
       .ffn = {.kind = FFN_DENSE,
               .shared = 1,
               .shared_width = 512,
               .activation = ACTIVATION_RELU,
               .bias = true},
       .norms = {.kind = NORM_LAYER, .eps = 1e-5f, .after = true}}}},
    {"like jetmoe at its width: one row reads some columns of the output projection",
     false,
     {{.mixer = {.heads = 32,
                 .kv_heads = 4,
                 .key_dim = 128,
                 .rope_dims = 128,
                 .gated = true,
                 .gate = GATE_ROUTED,
                 .experts = 8,
                 .used = 2},
       .ffn = {.experts = 5, .used = 2, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}}}},
    {"like zaya: queries and keys convolved, values of two tokens",
     false,
     {{.mixer = {.kind = MIXER_CONVOLVED,
                 .heads = 4,
                 .kv_heads = 2,
                 .key_dim = 64,
                 .rope_dims = 32,
                 .taps = 2,
                 .head_taps = 2},
       .ffn = {.experts = 5, .used = 2, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}},
      {.mixer = {.kind = MIXER_CONVOLVED,
                 .heads = 8,
                 .kv_heads = 2,
                 .key_dim = 32,
                 .rope_dims = 32,
                 .taps = 4,
                 .head_taps = 3,
                 .window = 30},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 512},
       .norms = {RMS}},
      {.mixer = {MIXER},
       .ffn = {.experts = 5, .used = 2, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}}}},
    {"like qwen4_exp: few blocks of keys, most of them, and more than there are",
     false,
     {{.mixer = {MIXER, .qk_norm = QK_NORM_HEAD, .gated = true, .index_heads = 4, .index_dim = 64,
                 .index_top = 16, .index_ratio = 4},
       .ffn = {.experts = 5, .used = 2, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}},
      {.mixer = {MIXER, .qk_norm = QK_NORM_HEAD, .gated = true, .index_heads = 1, .index_dim = 64,
                 .index_top = 201, .index_ratio = 3},
       .ffn = {.kind = FFN_DENSE, .shared = 1, .shared_width = 512},
       .norms = {RMS}},
      {.mixer = {MIXER, .sinks = true, .index_heads = 2, .index_dim = 64, .index_top = 512,
                 .index_ratio = 32},
       .ffn = {.experts = 5, .used = 2, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
       .norms = {RMS}}}},
};
#define KINDS (int)(sizeof layer_kinds / sizeof layer_kinds[0])

/* The i-th kind, all of its layers alike where only one is given. */
static struct tiny_shape of_kind(int i, struct layer_shape layers[3])
{
    struct tiny_shape s = small;

    for (int l = 0; l < 3; l++)
        layers[l] = layer_kinds[i].shape[layer_kinds[i].shape[1].mixer.heads ? l : 0];
    s.layers = 3;
    s.residual_scale = strstr(layer_kinds[i].name, "residuals scaled") ? 0.22f : 0.0f;
    s.embedding_width = strstr(layer_kinds[i].name, "a narrow head") ? 256 : 0;
    s.rope_dims = 64;
    s.shapes = layers;
    return s;
}

START_TEST(test_kinds_on_the_cpu)
{
    const struct kernels *set;
    struct layer_shape layers[3];
    struct error e;

    for (int i = 0; (set = kernels_at(i)); i++) {
        struct tiny_shape s = of_kind(_i, layers);

        if (!support_turn(i + _i / 2, 2))
            continue;
        ck_assert_int_eq(cpu_kernels_select(set->name, &e), 0);
        s.type = (i + _i) % 3 == 2 ? DTYPE_BF16 : (i + _i) % 3 ? DTYPE_Q4_K : DTYPE_Q8_0;
        s.width = (i + _i) % 2 ? 16 : 8;
        check(&cpu_device_ops, s, (enum kv_type)((i + _i) % 3), _i % 2 ? 3 : 11);
    }
}
END_TEST

/* Blocks of keys: sizes that borders of chunks cut, one that is longer than a chunk; budgets of a
 * block, of most blocks, of more than there are; one head, half of whose scores are 0 and alike;
 * rows whose scores are made chunk by chunk, and by row; rotated in halves and in pairs. */
static const struct {
    int ratio, top, heads, dim, rows, context;
} block_choices[] = {
    {1, 7, 3, 64, 11, 700},    {2, 180, 1, 32, 3, 288}, {4, 2048, 4, 64, 11, 288},
    {3, 9, 5, 48, 9, 400},     {16, 64, 2, 64, 8, 600}, {100, 200, 8, 32, 1, 700},
    {300, 300, 2, 64, 2, 700}, {1, 400, 1, 64, 4, 600}, {5, 5, 19, 64, 12, 540},
    {64, 512, 1, 48, 5, 640},
};
#define BLOCK_CHOICES (int)(sizeof block_choices / sizeof block_choices[0])

START_TEST(test_blocks_of_keys)
{
    struct layer_shape layer = {
        .mixer = {.heads = 4,
                  .kv_heads = 2,
                  .key_dim = 64,
                  .rope_dims = 32,
                  .qk_norm = QK_NORM_HEAD,
                  .gated = true,
                  .index_heads = block_choices[_i].heads,
                  .index_dim = block_choices[_i].dim,
                  .index_top = block_choices[_i].top,
                  .index_ratio = block_choices[_i].ratio,
                  .index_rope = _i % 2 ? ROPE_PAIRS : ROPE_HALVES},
        .ffn = {.experts = 3, .used = 1, .width = 256, .router = {.kind = ROUTER_SOFTMAX}},
        .norms = {RMS}};
    struct tiny_shape s = small;
    const struct kernels *set;
    struct error e;

    s.layers = 1;
    s.rope_dims = 32;
    s.context = block_choices[_i].context;
    s.shapes = &layer;
    for (int i = 0; (set = kernels_at(i)); i++) {
        ck_assert_int_eq(cpu_kernels_select(set->name, &e), 0);
        for (int kv = 0; kv < 3; kv++)
            if (support_turn(i + kv + _i, 3))
                check(&cpu_device_ops, s, (enum kv_type)kv, block_choices[_i].rows);
    }
}
END_TEST

static bool have_opencl(int shape)
{
    struct device_info info[DEVICE_MAX];
    char why[256];
    int n = opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why),
        at = getenv("CHECK_OPENCL") ? atoi(getenv("CHECK_OPENCL") + 7) : 0;

    if (n > at && !info[at].why_not[0] &&
        (shape != 2 || strncmp(info[at].driver, "rusticl", 7) != 0))
        return true;
    printf("SKIPPED: no OpenCL device for these kernels: %s\n", n > at ? info[at].why_not : why);
    return false;
}

START_TEST(test_kinds_on_opencl)
{
    int shape = 1 + _i % 2;
    struct opencl_tuning t = {.shape = shape, .tile = 2, .no_selftest = true, .copy = _i % 2};
    struct layer_shape layers[3];
    struct tiny_shape s = of_kind(_i, layers);
    struct conformance_report r;
    bool latent = false, experts = true;

    if (!have_opencl(shape))
        return;
    opencl_tune(&t);
    s.type = _i % 4 == 2 ? DTYPE_F16 : DTYPE_Q8_0;
    /* float weights are right within a tolerance, which keys in eight bits would magnify */
    run(&opencl_device_ops, s, s.type == DTYPE_F16 ? KV_F16 : (enum kv_type)(_i % 3), 11, &r);
    if (r.n)
        ck_abort_msg("%s: %s: %s", layer_kinds[_i].name, conformance_job_name(r.finding[0].job),
                     r.finding[0].what);
    for (int l = 0; l < 3; l++) { /* what stays on the CPU */
        latent |= layers[l].mixer.kind == MIXER_MLA || layers[l].mixer.qk_norm_turned ||
                  layers[l].mixer.experts || layers[l].mixer.kind == MIXER_CONVOLVED ||
                  layers[l].mixer.index_top;
        experts &= !layers[l].ffn.router.on_input && !layers[l].ffn.grouped;
    }
    ck_assert_int_eq(r.checks[CONFORMANCE_HEAD] > 0, !s.embedding_width);
    ck_assert_int_eq(r.checks[CONFORMANCE_ATTENTION] > 0, !latent);
    ck_assert_int_eq(r.checks[CONFORMANCE_EXPERTS] > 0, experts);
    ck_assert_int_eq(r.checks[CONFORMANCE_STREAM] > 0, experts);
    ck_assert_int_eq(r.checks[CONFORMANCE_LAYERS] > 0, layer_kinds[_i].fused);
}
END_TEST

/* Compiling takes seconds a type, so shapes and cache types go by turns, tiles are small, and the
 * device's own self-test has its own suite. */
START_TEST(test_opencl)
{
    static const struct {
        int shape, tile;
        enum dtype type;
        enum kv_type kv;
    } kinds[] = {
        {2, 2, DTYPE_Q8_0, KV_F16}, {1, 2, DTYPE_Q4_K, KV_Q8_0}, {1, 2, DTYPE_F16, KV_F32}};
    struct opencl_tuning t = {
        .shape = kinds[_i].shape, .tile = kinds[_i].tile, .no_selftest = true, .copy = _i % 2};
    struct tiny_shape s = small;

    if (!have_opencl(kinds[_i].shape))
        return;
    opencl_tune(&t);
    s.type = kinds[_i].type;
    s.window = _i ? 100 : 0;
    check(&opencl_device_ops, s, kinds[_i].kv, 11);
}
END_TEST

/* ---- Wrong on purpose: the CPU device with one job spoilt ---- */

static int wrong_attention(struct device *d, const struct attention_job *j, struct error *e)
{
    int rc = cpu_device_ops.attention(d, j, e);

    j->y[0] += 1e-6f;
    return rc;
}

static int wrong_route(struct device *d, const struct route_job *j, struct error *e)
{
    int rc = cpu_device_ops.route(d, j, e), first = j->experts[0];

    j->experts[0] = j->experts[1];
    j->experts[1] = first;
    return rc;
}

/* Right where it must write, and one row written that is nobody's business when not all experts are
 * asked for. */
static int wrong_experts(struct device *d, const struct experts_job *j, struct error *e)
{
    int rc = cpu_device_ops.experts(d, j, e), n = 0;

    for (int g = 0; g < j->n_groups; g++)
        n += j->groups[g].count;
    for (int i = 0; n < 2 * j->rows && i < 2 * j->rows * small.hidden; i++)
        j->out[i] = j->out[i] == j->out[i] ? j->out[i] + 0.5f : 0;
    return rc;
}

static int wrong_combine(struct device *d, const struct combine_job *j, struct error *e)
{
    float first = j->x[0];
    int rc = cpu_device_ops.combine(d, j, e);

    j->x[0] = first;
    return rc;
}

static int wrong_head(struct device *d, const struct head_job *j, struct error *e)
{
    int rc = cpu_device_ops.head(d, j, e);

    j->logits[small.vocab * j->rows - 1] *= 1.0001f;
    return rc;
}

static int wrong_layers(struct device *d, const struct layers_job *j, struct error *e)
{
    int rc = cpu_device_ops.layers(d, j, e);

    j->weights[0] *= 1.0001f;
    return rc;
}

/* Loses a byte on the way in. */
static int wrong_kv_rows(struct device *d, const struct kv_move *m, struct error *e)
{
    if (m->write)
        ((char *)m->data)[1] ^= 0x10;
    int rc = cpu_device_ops.kv_rows(d, m, e);

    if (m->write)
        ((char *)m->data)[1] ^= 0x10;
    return rc;
}

static int refuses_blocks(struct device *d, struct block_id id, size_t max_bytes, struct error *e)
{
    return id.kind == BLOCK_HEAD ? error_set(e, ERR_DEVICE, "no head today")
                                 : cpu_device_ops.block_put(d, id, max_bytes, e);
}

START_TEST(test_wrong_back_ends)
{
    static const enum conformance_job jobs[] = {CONFORMANCE_ATTENTION, CONFORMANCE_ROUTE,
                                                CONFORMANCE_EXPERTS,   CONFORMANCE_COMBINE,
                                                CONFORMANCE_HEAD,      CONFORMANCE_LAYERS,
                                                CONFORMANCE_KV_ROWS,   CONFORMANCE_BLOCKS};
    struct device_ops ops = cpu_device_ops;
    struct conformance_report r;

    switch (jobs[_i]) {
    case CONFORMANCE_ATTENTION: ops.attention = wrong_attention; break;
    case CONFORMANCE_ROUTE: ops.route = wrong_route; break;
    case CONFORMANCE_EXPERTS: ops.experts = wrong_experts; break;
    case CONFORMANCE_COMBINE: ops.combine = wrong_combine; break;
    case CONFORMANCE_HEAD: ops.head = wrong_head; break;
    case CONFORMANCE_LAYERS: ops.layers = wrong_layers; break;
    case CONFORMANCE_KV_ROWS: ops.kv_rows = wrong_kv_rows; break;
    default: ops.block_put = refuses_blocks; break;
    }
    run(&ops, small, KV_F16, 5, &r);
    ck_assert_int_gt(conformance_wrong(&r), 0);
    for (int job = 0; job < CONFORMANCE_JOBS; job++) /* a spoilt cache shows in attention, too */
        if (job != (int)jobs[_i] &&
            !(jobs[_i] == CONFORMANCE_KV_ROWS && job == CONFORMANCE_ATTENTION))
            ck_assert_msg(r.wrong[job] == 0, "%s is blamed as well",
                          conformance_job_name((enum conformance_job)job));
    ck_assert_int_gt(r.wrong[jobs[_i]], 0);
    ck_assert_int_gt(r.n, 0);
    ck_assert_int_eq(r.finding[0].type, DTYPE_Q8_0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("conformance");
    TCase *c = tcase_create("back ends"), *kinds = tcase_create("kinds"),
          *opencl = tcase_create("opencl"), *blocks = tcase_create("blocks of keys");

    tcase_set_timeout(c, 240);
    tcase_add_loop_test(c, test_cpu, 0, TYPES);
    tcase_add_loop_test(c, test_fake, 0, 3);
    tcase_add_loop_test(c, test_wrong_back_ends, 0, 8);
    suite_add_tcase(s, c);
    tcase_set_timeout(kinds, 240);
    tcase_add_loop_test(kinds, test_kinds_on_the_cpu, 0, KINDS);
    suite_add_tcase(s, kinds);
    tcase_set_timeout(opencl, 240);
    tcase_add_loop_test(opencl, test_opencl, 0, 3);
    tcase_add_loop_test(opencl, test_kinds_on_opencl, 0, KINDS);
    tcase_set_tags(opencl, "opencl"); /* a part by itself: run.sh */
    suite_add_tcase(s, opencl);
    tcase_set_timeout(blocks, 240);
    tcase_add_loop_test(blocks, test_blocks_of_keys, 0, BLOCK_CHOICES);
    suite_add_tcase(s, blocks);
    return s;
}

int main(void)
{
    return support_run(suite());
}
