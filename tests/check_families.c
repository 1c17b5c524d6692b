/* Model families against golden numbers of their official code (tests/golden/families; more of them
 * beside the project, where they are there): every kernel set, whole, chunked and token by token;
 * and what their shapes say. */
#include "tests/golden.h"

#include "engine/device/device.h"
#include "engine/file/gguf_write.h"
#include "engine/run/engine.h"
#include "gpu/opencl.h"
#include "gpu/driver/tuning.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* bailing_moe_v2's numbers are those of sarvam_moe's code, which reads the same layout;
 * bailing_moe's those of ernie4_5_moe's without a bias, the rows of q and k moved from pairs to
 * halves. */
static const char *const folders[] = {"mixtral",        "olmoe",
                                      "qwen2_moe",      "qwen2_moe-step2",
                                      "qwen3_moe",      "llama",
                                      "qwen3",          "granitemoe",
                                      "glm4_moe",       "ernie4_5_moe",
                                      "deepseek_v2",    "deepseek_v2-group",
                                      "deepseek_v3",    "glm4_moe_lite",
                                      "lfm2_moe",       "qwen3_5_moe",
                                      "qwen3_next",     "granitemoehybrid",
                                      "gpt_oss",        "gpt2",
                                      "opt-350m",       "gemma4",
                                      "bailing_hybrid", "nemotron_h",
                                      "bailing_moe",    "bailing_moe_v2",
                                      "qwen2",          "qwen3_vl_moe",
                                      "lfm2",           "afmoe",
                                      "dots1",          "smollm3",
                                      "gemma3",         "laguna",
                                      "olmo2",          "olmo3",
                                      "flex_olmo",      "mellum",
                                      "exaone_moe",     "solar_open",
                                      "deepseek",       "phi3",
                                      "granite_swa",    "minimax_m2",
                                      "hy_v3",          "mistral",
                                      "mistral3",       "cohere2_moe",
                                      "kimi_linear",    "hunyuan_v1_moe",
                                      "mistral4",       "gemma4_e",
                                      "granite",        "qwen3_5",
                                      "jamba",          "gemma3n",
                                      "smallthinker",   "llama4",
                                      "muse_glimmer",   "maple",
                                      "step3p5",        "mimo_v2_flash",
                                      "grovemoe",       "longcat_flash",
                                      "deepseek_v32",   "glm_moe_dsa",
                                      "zaya",           "jetmoe",
                                      "qwen4_exp-all",  "qwen4_exp-blocks",
                                      "deepseek_v4",    "qwen4_exp"};

/* The same by llama.cpp's converter; and a stretched context. */
static const struct {
    const char *model, *golden, *logits; /* NULL: "logits" */
    bool widened; /* the logits are those of its weights without any rounding of activations */
} shared[] = {
    {"ggufs/olmoe.gguf", "ggufs/olmoe.golden.safetensors", NULL, false},
    {"families/qwen3_moe-yarn", "families/qwen3_moe-yarn/golden.safetensors", NULL, false},
    {"families/qwen3_moe-yarn", "families/qwen3_moe-yarn/golden-150.safetensors", NULL, false},
    /* llama.cpp does not load the first and groups the second's experts as V3 */
    {"ggufs/deepseek2-v2lite.gguf", "ggufs/deepseek2-v2lite.golden.safetensors", "hf_logits",
     false},
    {"ggufs/deepseek2-v2group.gguf", "ggufs/deepseek2-v2group.golden.safetensors", "hf_logits",
     false},
    {"ggufs/deepseek2-v3.gguf", "ggufs/deepseek2-v3.golden.safetensors", NULL, true},
    /* llama.cpp rounds YaRN's range, the official code does not */
    {"ggufs/gpt-oss.gguf", "ggufs/gpt-oss.golden.safetensors", "hf_logits", true},
    {"ggufs/gpt-oss.gguf", "families/gpt_oss-mxfp4/golden-150.safetensors", NULL, true},
    {"ggufs/glm4moelite.gguf", "ggufs/glm4moelite.golden.safetensors", NULL, true},
    {"families/glm4_moe_lite", "families/glm4_moe_lite/golden-150.safetensors", NULL, false},
    {"families/qwen3_5_moe-text", "families/qwen3_5_moe-text/golden.safetensors", NULL, false},
    {"families/qwen3_5_moe-text", "families/qwen3_5_moe-text/golden-150.safetensors", NULL, false},
    {"families/lfm2_moe", "families/lfm2_moe/golden-150.safetensors", NULL, false},
    {"families/lfm2_moe", "families/lfm2_moe/golden-1.safetensors", NULL, false},
    {"families/qwen3_next", "families/qwen3_next/golden-150.safetensors", NULL, false},
    {"families/qwen3_next", "families/qwen3_next/golden-7.safetensors", NULL, false},
    {"families/qwen3_5_moe", "families/qwen3_5_moe/golden-150.safetensors", NULL, false},
    {"families/qwen3_5_moe", "families/qwen3_5_moe/golden-40.safetensors", NULL, false},
    {"families/granitemoehybrid", "families/granitemoehybrid/golden-150.safetensors", NULL, false},
    {"families/granitemoehybrid", "families/granitemoehybrid/golden-1.safetensors", NULL, false},
    {"ggufs/qwen35moe.gguf", "ggufs/qwen35moe.golden.safetensors", NULL, false},
    {"ggufs/qwen35moe.gguf", "families/qwen3_5_moe/golden-150.safetensors", NULL, false},
    {"ggufs/qwen35moe-mtp.gguf", "ggufs/qwen35moe-mtp.golden.safetensors", NULL, true},
    {"ggufs/qwen3next.gguf", "ggufs/qwen3next.golden.safetensors", NULL, true},
    {"ggufs/lfm2moe.gguf", "ggufs/lfm2moe.golden.safetensors", NULL, true},
    {"ggufs/granitehybrid.gguf", "ggufs/granitehybrid.golden.safetensors", NULL, true},
    {"families/opt", "families/opt/golden.safetensors", NULL, false},
    {"families/gemma4", "families/gemma4/golden-1.safetensors", NULL, false},
    {"families/gemma4", "families/gemma4/golden-7.safetensors", NULL, false},
    {"families/gemma4", "families/gemma4/golden-40.safetensors", NULL, false},
    {"families/gemma4", "families/gemma4/golden-150.safetensors", NULL, false},
    /* llama.cpp's GELU is rounded to half precision */
    {"ggufs/gemma4.gguf", "ggufs/gemma4.golden.safetensors", "hf_logits", false},
    {"ggufs/gemma4.gguf", "families/gemma4/golden-150.safetensors", NULL, false},
    {"families/nemotron_h", "families/nemotron_h/golden-150.safetensors", NULL, false},
    {"families/nemotron_h", "families/nemotron_h/golden-1.safetensors", NULL, false},
    {"ggufs/nemotronh.gguf", "ggufs/nemotronh.golden.safetensors", NULL, true},
    {"families/bailing_hybrid", "families/bailing_hybrid/golden-150.safetensors", NULL, false},
    {"families/bailing_hybrid", "families/bailing_hybrid/golden-7.safetensors", NULL, false},
    /* llama.cpp stops at an assertion with this file */
    {"ggufs/bailingmoe3.gguf", "ggufs/bailingmoe3.golden.safetensors", "hf_logits", false},
    {"ggufs/bailingmoe3.gguf", "families/bailing_hybrid/golden-150.safetensors", NULL, false},
};

static struct engine *open_engine(const char *model, const char *kernels)
{
    struct engine *g = NULL;
    struct error e = {0};

    ck_assert_msg(golden_engine(&g, model, kernels, 2, -1, true, &e) == 0, "%s", e.text);
    return g;
}

static void compare_logits(struct engine *g, const char *golden_path, const char *logits)
{
    double most = golden_tolerance(engine_info(g)->model->family);
    struct golden golden;
    struct golden_result r;
    struct error e = {0};
    char why[4200];

    ck_assert_msg(golden_open_logits(&golden, golden_path, logits, why, sizeof why) == 0, "%s",
                  why);
    ck_assert_msg(golden_compare(g, &golden, &r, &e) == 0, "%s", e.text);
    printf("%s: %s, %s: whole %.3g chunks %.3g steps %.3g stream %.3g states %.3g\n",
           engine_info(g)->model->family, golden_path, cpu_kernels_name(), r.whole, r.chunked,
           r.stepped, r.hidden, r.states);
    ck_assert_msg(r.whole <= most, "%s: whole prompt: %g", golden_path, r.whole);
    ck_assert_msg(r.chunked <= most, "%s: chunks: %g", golden_path, r.chunked);
    ck_assert_msg(r.stepped <= most, "%s: steps: %g", golden_path, r.stepped);
    /* values up to 130 */
    ck_assert_msg(r.hidden <= 3 * GOLDEN_TOLERANCE, "%s: stream: %g", golden_path, r.hidden);
    ck_assert_msg(r.states <= 3 * GOLDEN_TOLERANCE, "%s: states: %g", golden_path, r.states);
    ck_assert(r.greedy_agrees);
    ck_assert_msg(r.routing_agrees, "%s: another routing", golden_path);
    golden_close(&golden);
}

static void compare(struct engine *g, const char *golden_path)
{
    compare_logits(g, golden_path, "logits");
}

START_TEST(checkpoints_match)
{
    static const char *const sets[] = {"scalar", "avx2", "avx512", "neon", "i8mm"};
    char below[200], golden[200];
    struct error e;

    snprintf(below, sizeof below, "golden/families/%s", folders[_i]);
    snprintf(golden, sizeof golden, "golden/families/%s/golden.safetensors", folders[_i]);
    for (size_t k = 0; k < sizeof sets / sizeof *sets; k++) {
        struct engine *g;

        if (cpu_kernels_select(sets[k], &e) < 0 || !support_turn((int)k + _i, 2))
            continue;
        support_ran("%s kernels", sets[k]);
        g = open_engine(support_path(below), sets[k]);
        compare(g, support_path(golden));
        engine_close(g);
    }
    cpu_kernels_select(NULL, &e);
}
END_TEST

START_TEST(shared_checkpoints_match)
{
    const char *model = support_shared(shared[_i].model);
    char widened[300];
    struct engine *g;

    if (!model)
        return;
    snprintf(widened, sizeof widened, "%s/widened.gguf", support_tmpdir());
    if (shared[_i].widened)
        support_widen(model, widened);
    g = open_engine(shared[_i].widened ? widened : model, NULL);
    compare_logits(g, support_shared(shared[_i].golden),
                   shared[_i].logits ? shared[_i].logits : "logits");
    engine_close(g);
}
END_TEST

/* ---- GPT-2 as llama.cpp's converter writes it ---- */

struct piece {
    char name[64];
    int64_t rows, cols; /* cols 0: a vector */
    const void *data[3];
};

static void add_piece(struct piece *list, int *n, int layer, const char *name, int64_t rows,
                      int64_t cols, const void *a, const void *b, const void *c)
{
    struct piece *p = &list[(*n)++];

    *p = (struct piece){.rows = rows, .cols = cols, .data = {a, b, c}};
    if (layer < 0)
        snprintf(p->name, sizeof p->name, "%s", name);
    else
        snprintf(p->name, sizeof p->name, "blk.%d.%s", layer, name);
}

/* Matrices not transposed, q, k and v one under the other. */
static int gpt2_pieces(const struct model *m, struct piece *list)
{
    int64_t h = m->hp.hidden, wide = 4 * h;
    int n = 0;

    add_piece(list, &n, -1, "token_embd.weight", m->hp.n_vocab, h, m->embeddings.data, NULL, NULL);
    add_piece(list, &n, -1, "position_embd.weight", 64, h, m->positions.data, NULL, NULL);
    add_piece(list, &n, -1, "output_norm.weight", h, 0, m->output_norm.weight, NULL, NULL);
    add_piece(list, &n, -1, "output_norm.bias", h, 0, m->output_norm.bias, NULL, NULL);
    for (int l = 0; l < m->hp.n_layers; l++) {
        const struct layer_weights *w = &m->layers[l];
        const struct expert_weights *x = &w->experts[0];

        add_piece(list, &n, l, "attn_norm.weight", h, 0, w->attention_norm.weight, NULL, NULL);
        add_piece(list, &n, l, "attn_norm.bias", h, 0, w->attention_norm.bias, NULL, NULL);
        add_piece(list, &n, l, "attn_qkv.weight", 3 * h, h, w->q.data, w->k.data, w->v.data);
        add_piece(list, &n, l, "attn_qkv.bias", 3 * h, 0, w->q.bias, w->k.bias, w->v.bias);
        add_piece(list, &n, l, "attn_output.weight", h, h, w->o.data, NULL, NULL);
        add_piece(list, &n, l, "attn_output.bias", h, 0, w->o.bias, NULL, NULL);
        add_piece(list, &n, l, "ffn_norm.weight", h, 0, w->expert_norm.weight, NULL, NULL);
        add_piece(list, &n, l, "ffn_norm.bias", h, 0, w->expert_norm.bias, NULL, NULL);
        add_piece(list, &n, l, "ffn_up.weight", wide, h, x->up.data, NULL, NULL);
        add_piece(list, &n, l, "ffn_up.bias", wide, 0, x->up.bias, NULL, NULL);
        add_piece(list, &n, l, "ffn_down.weight", h, wide, x->down.data, NULL, NULL);
        add_piece(list, &n, l, "ffn_down.bias", h, 0, x->down.bias, NULL, NULL);
    }
    return n;
}

static void write_gpt2(const struct model *m, const char *path)
{
    struct piece list[64];
    struct gguf_writer *w = NULL;
    struct error e = {0};
    int n = gpt2_pieces(m, list);

    ck_assert_msg(gguf_write_open(&w, path, &e) == 0, "%s", e.text);
    gguf_put_string(w, "general.architecture", "gpt2", 4);
    gguf_put_u32(w, "gpt2.block_count", (uint32_t)m->hp.n_layers);
    gguf_put_u32(w, "gpt2.context_length", 64);
    gguf_put_u32(w, "gpt2.embedding_length", (uint32_t)m->hp.hidden);
    gguf_put_u32(w, "gpt2.feed_forward_length", 4 * (uint32_t)m->hp.hidden);
    gguf_put_u32(w, "gpt2.attention.head_count", 4);
    gguf_put_f32(w, "gpt2.attention.layer_norm_epsilon", 1e-5f);
    for (int i = 0; i < n; i++)
        gguf_write_tensor(w, list[i].name, DTYPE_F32, list[i].cols ? 2 : 1,
                          (int64_t[]){list[i].rows, list[i].cols});
    ck_assert_msg(gguf_write_begin(w, &e) == 0, "%s", e.text);
    for (int i = 0; i < n; i++) {
        int parts = list[i].data[1] ? 3 : 1;
        size_t bytes = (size_t)(list[i].rows * (list[i].cols ? list[i].cols : 1)) * sizeof(float);

        for (int k = 0; k < parts; k++)
            ck_assert_int_eq(gguf_write_data(w, list[i].data[k], bytes / (size_t)parts, &e), 0);
    }
    ck_assert_msg(gguf_write_finish(w, &e) == 0, "%s", e.text);
}

START_TEST(gpt2_is_read_as_gguf)
{
    char path[300];
    struct engine *g;
    struct model *m;
    struct error e = {0};

    snprintf(path, sizeof path, "%s/gpt2.gguf", support_tmpdir());
    ck_assert_msg(model_open_raw(&m, support_path("golden/families/gpt2"), NULL, &e) == 0, "%s",
                  e.text);
    write_gpt2(m, path);
    model_free(m);
    g = open_engine(path, NULL);
    compare(g, support_path("golden/families/gpt2/golden.safetensors"));
    engine_close(g);
}
END_TEST

/* ---- With an OpenCL device ---- */

static const struct device_ops *const backends[] = {&opencl_device_ops, &cpu_device_ops, NULL};

static bool have_device(void)
{
    struct device_info info[DEVICE_MAX];
    char why[256];
    int n = opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why);

    if (n && !info[0].why_not[0])
        return true;
    printf("SKIPPED: no OpenCL device: %s\n", n ? info[0].why_not : why);
    return false;
}

/* Rounded as it is loaded; < 0: as it lies, and exactly. adapter: NULL: none. */
static struct engine *open_adapted(const char *model, int convert,
                                   const struct adapter_request *adapter)
{
    struct engine_config c = {.model_path = model,
                              .context = 512,
                              .n_threads = 2,
                              .ubatch = 128,
                              .kv_k = KV_F32,
                              .kv_v = KV_F32,
                              .convert = convert,
                              .exact = convert < 0,
                              .no_tokenizer = true,
                              .adapters = adapter,
                              .n_adapters = adapter != NULL,
                              .backends = backends,
                              .device_selector = getenv("CHECK_OPENCL"),
                              .cache_dir = support_tmpdir()};
    struct engine *g = NULL;
    struct error e = {0};

    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    return g;
}

static struct engine *open_converted(const char *model, int convert)
{
    return open_adapted(model, convert, NULL);
}

static struct engine *open_with_device(const char *model)
{
    struct engine *g = open_converted(model, -1);
    struct error e = {0};

    ck_assert_msg(engine_place(g, "gpu", &e) == 0 && engine_settle(g, &e) == 0, "%s", e.text);
    return g;
}

/* Every block of the model lies on the device, but for layers that it does not compute, and every
 * expert that was called ran there. */
static void ran_there(const struct engine *g)
{
    const struct hparams *hp = &engine_info(g)->model->hp;
    const struct telemetry *t = engine_telemetry(g);
    const struct plan *p = engine_plan(g);
    int called = 0, layers = 0;

    ck_assert_int_eq(p->head, !hp->embedding_width); /* a matrix would lie before it */
    for (int l = 0; l < hp->n_layers; l++) {
        const struct layer_shape *s = hparams_layer(hp, l);
        const struct mixer_shape *m = &s->mixer;
        bool attends = m->kind == MIXER_ATTENTION && !m->qk_norm_turned && !m->chunked &&
                       !m->experts && !s->inputs && !hparams_hyper(hp) &&
                       shape_value_dim(m) == m->key_dim && m->value_factor == 0.0f,
             computes = !shape_sparse(&s->ffn) && !s->ffn.router.on_input && !s->ffn.grouped &&
                        shape_one_limit(&s->ffn);

        ck_assert_int_eq(p->attention[l], attends);
        layers += computes;
        for (int x = 0; x < hp->n_experts; x++) {
            int cell = l * hp->n_experts + x;

            ck_assert_int_eq(p->experts[cell], computes && x < shape_experts(s));
            ck_assert_msg(t->ran_on[cell] == 1 || t->ran_on[cell] == PLAN_NO_DEVICE || !computes,
                          "layer %d, expert %d ran on device %d", l, x, t->ran_on[cell]);
            called += t->ran_on[cell] == 1;
        }
    }
    ck_assert_int_ge(called, layers);
    ck_assert_uint_eq(t->devices[1].failures, 0);
}

/* The device tests its kernels on these shapes first: one found wrong would keep its blocks away.
 */
START_TEST(checkpoints_match_on_opencl)
{
    /* the self-test, which takes most of the time, by turns */
    struct opencl_tuning tuning = {
        .shape = 1 + _i % 2, .tile = 2, .copy = _i % 2, .no_selftest = _i % 7 != 0};
    char below[200], golden[200];
    struct engine *g;

    if (!have_device())
        return;
    opencl_tune(&tuning);
    snprintf(below, sizeof below, "golden/families/%s", folders[_i]);
    snprintf(golden, sizeof golden, "golden/families/%s/golden.safetensors", folders[_i]);
    g = open_with_device(support_path(below));
    compare(g, support_path(golden));
    ran_there(g);
    engine_close(g);
}
END_TEST

/* Dense layers beside routed ones with a shared expert: every way to split them says the same. */
START_TEST(uneven_layers_can_be_split)
{
    static const char *const specs[] = {"layers:3",      "experts:3", "stream:200K",
                                        "attention-gpu", "balanced",  "hot:64K"};
    char golden[200];
    struct opencl_tuning tuning = {.no_selftest = true};
    char model[200];
    struct engine *g;
    struct error e = {0};

    if (!have_device())
        return;
    opencl_tune(&tuning);
    snprintf(model, sizeof model, "%s", support_path("golden/families/qwen2_moe-step2"));
    snprintf(golden, sizeof golden, "%s",
             support_path("golden/families/qwen2_moe-step2/golden.safetensors"));
    g = open_with_device(model);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        ck_assert_msg(engine_place(g, specs[i], &e) == 0 && engine_settle(g, &e) == 0, "%s: %s",
                      specs[i], e.text);
        /* balanced may well find that it is not worth it */
        ck_assert_msg(plan_uses_devices(engine_plan(g)) || strcmp(specs[i], "balanced") == 0, "%s",
                      specs[i]);
        compare(g, golden);
    }
    ck_assert_uint_eq(engine_telemetry(g)->devices[1].failures, 0);
    engine_close(g);
}
END_TEST

static void kept_on_the_cpu(const char *folder, const char *what)
{
    char model[200];
    struct engine *g;

    snprintf(model, sizeof model, "golden/families/%s", folder);
    g = open_with_device(support_path(model));
    ck_assert_str_eq(engine_telemetry(g)->cpu_only, what);
    engine_close(g);
}

/* What the placement panel says of blocks that no device but the CPU computes. */
START_TEST(what_stays_is_said)
{
    struct opencl_tuning tuning = {.no_selftest = true};

    if (!have_device())
        return;
    opencl_tune(&tuning);
    kept_on_the_cpu("deepseek_v3", "latent attention (MLA), 3 layers");
    kept_on_the_cpu("glm_moe_dsa", "latent attention (MLA), 3 layers");
    kept_on_the_cpu("gpt_oss", "");
    kept_on_the_cpu("qwen3_next", "a gated delta net, 3 layers");
}
END_TEST

/* So are blocks that an adapter hangs on: the device computes none of them. */
START_TEST(adapted_blocks_stay_and_it_is_said)
{
    struct opencl_tuning tuning = {.no_selftest = true};
    struct adapter_request full = {.strength = 1};
    char model[200], adapter[200];
    struct engine *g;
    struct error e = {0};

    if (!have_device())
        return;
    opencl_tune(&tuning);
    snprintf(model, sizeof model, "%s", support_path("golden/families/qwen3_moe"));
    snprintf(adapter, sizeof adapter, "%s", support_path("golden/lora/qwen3_moe/full"));
    full.path = adapter;
    g = open_adapted(model, -1, &full);
    ck_assert_msg(engine_place(g, "gpu", &e) == 0 && engine_settle(g, &e) == 0, "%s", e.text);
    ck_assert_str_eq(engine_telemetry(g)->cpu_only,
                     "attention with adapters, 3 layers; experts with adapters, 3 layers");
    engine_close(g);
}
END_TEST

/* Experts 12 wide: quantised, their down projections stay floats, which no kernel of the device
 * computes beside a quantised gate. They stay, it is said, and no job fails. */
START_TEST(mixed_experts_stay)
{
    static const char *const specs[] = {"gpu", "experts-gpu", "stream:200K", "hot:64K"};
    struct opencl_tuning tuning = {.no_selftest = true};
    const struct hparams *hp;
    struct engine *g;
    struct error e = {0};
    float *want, *got;
    int ids[24];

    if (!have_device())
        return;
    opencl_tune(&tuning);
    g = open_converted(support_path("golden/families/qwen3_moe"), DTYPE_Q8_0);
    hp = &engine_info(g)->model->hp;
    want = malloc(2 * (size_t)hp->n_vocab * sizeof *want);
    ck_assert_ptr_nonnull(want);
    got = want + hp->n_vocab;
    for (int i = 0; i < 24; i++)
        ids[i] = 5 + i;
    ck_assert_msg(engine_eval(g, ids, 24, want, false, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        (void)engine_place(g, specs[i], &e);
        ck_assert_msg(engine_settle(g, &e) == 0, "%s: %s", specs[i], e.text);
        for (int cell = 0; cell < hp->n_layers * hp->n_experts; cell++)
            ck_assert_int_eq(engine_plan(g)->experts[cell], 0);
        engine_session_clear(g);
        ck_assert_msg(engine_eval(g, ids, 24, got, false, &e) == 0, "%s", e.text);
        ck_assert_mem_eq(got, want, (size_t)hp->n_vocab * sizeof *got);
    }
    ck_assert_str_eq(engine_telemetry(g)->cpu_only, "experts, 3 layers");
    ck_assert_uint_eq(engine_telemetry(g)->devices[1].failures, 0);
    free(want);
    engine_close(g);
}
END_TEST

/* Blocks come and go between two tokens; latent attention stays with the CPU meanwhile. */
static const char *const moved[] = {"deepseek_v3", "gemma4",       "gpt2",
                                    "cohere2_moe", "deepseek_v32", "glm_moe_dsa"};

START_TEST(text_survives_placements)
{
    static const char *const specs[] = {"experts:3", "cpu", "stream:200K", "layers:2", "gpu"};
    char below[200], model[200], path[300], why[4200];
    struct opencl_tuning tuning = {.no_selftest = true};
    struct golden golden;
    struct engine *g;
    struct error e = {0};
    float *logits;

    if (!have_device())
        return;
    opencl_tune(&tuning);
    snprintf(below, sizeof below, "golden/families/%s", moved[_i]);
    snprintf(model, sizeof model, "%s", support_path(below));
    snprintf(path, sizeof path, "%s/golden.safetensors", model);
    ck_assert_msg(golden_open(&golden, path, why, sizeof why) == 0, "%s", why);
    g = open_with_device(model);
    logits = malloc((size_t)golden.n_vocab * sizeof *logits);
    ck_assert_ptr_nonnull(logits);
    ck_assert_msg(engine_eval(g, golden.input_ids, golden.n, logits, false, &e) == 0, "%s", e.text);
    for (int i = 0; i < golden.n_greedy; i++) {
        const char *spec = specs[i % (int)(sizeof specs / sizeof *specs)];
        int id = golden_argmax(logits, golden.n_vocab);

        ck_assert_msg(id == golden.greedy[i], "token %d: %d, %d is right", i, id, golden.greedy[i]);
        ck_assert_msg(engine_place(g, spec, &e) == 0 && engine_settle(g, &e) == 0, "%s: %s", spec,
                      e.text);
        for (int l = 0; l < engine_plan(g)->n_layers; l++)
            ck_assert(!engine_plan(g)->attention[l] ||
                      hparams_layer(&engine_info(g)->model->hp, l)->mixer.kind != MIXER_MLA);
        if (strcmp(spec, "cpu") == 0 || strcmp(spec, "gpu") == 0)
            ck_assert_int_eq(plan_uses_devices(engine_plan(g)), strcmp(spec, "cpu") != 0);
        ck_assert_msg(engine_eval(g, &id, 1, logits, false, &e) == 0, "%s", e.text);
    }
    ck_assert_uint_eq(engine_telemetry(g)->devices[1].failures, 0);
    free(logits);
    golden_close(&golden);
    engine_close(g);
}
END_TEST

/* ---- Quantised while they are loaded ---- */

#define ANSWER 12 /* tokens behind the prompt */

/* Logits of every token of the prompt, in chunks, and of those of a greedy answer. */
static float *answer(struct engine *g, const struct golden *golden, int chunk)
{
    size_t v = (size_t)golden->n_vocab, n = (size_t)golden->n;
    float *logits = malloc((n + ANSWER) * v * sizeof *logits), *last;
    struct error e = {0};

    ck_assert_ptr_nonnull(logits);
    engine_session_clear(g);
    ck_assert_msg(engine_eval_chunked(g, golden->input_ids, golden->n, chunk, logits, true, &e) ==
                      0,
                  "%s", e.text);
    last = logits + (n - 1) * v;
    for (int i = 0; i < ANSWER; i++, last += v) {
        int id = golden_argmax(last, golden->n_vocab);

        ck_assert_msg(engine_eval(g, &id, 1, last + v, false, &e) == 0, "%s", e.text);
    }
    return logits;
}

static void answers_so(struct engine *g, const struct golden *golden, int chunk, const float *want,
                       const char *how)
{
    float *got = answer(g, golden, chunk);

    ck_assert_msg(memcmp(got, want,
                         (size_t)(golden->n + ANSWER) * (size_t)golden->n_vocab * sizeof *want) ==
                      0,
                  "%s, chunks of %d: other bits", how, chunk);
    free(got);
}

/* Delta net, Mamba 2, short convolution, Kimi delta and latent attention with a gate: converted
 * while they are loaded, the same bits of every kernel set, with any threads, in any chunks, and
 * with their experts on another device. */
static const char *const converted[] = {"qwen3_5_moe", "nemotron_h", "lfm2_moe", "bailing_hybrid",
                                        "qwen4_exp"};
static const enum dtype into[] = {DTYPE_Q8_0, DTYPE_Q4_0};

START_TEST(converted_models_answer_alike)
{
    static const char *const sets[] = {"scalar", "avx2", "avxvnni", "avx512",
                                       "amx",    "neon", "dotprod", "i8mm"};
    static const int chunks[] = {1, 7, 16};
    char model[300], path[340], why[4200], how[80];
    const char *name = converted[_i / 2];
    struct opencl_tuning tuning = {.no_selftest = true};
    struct golden golden;
    struct engine *g;
    struct error e = {0};
    float *want;

    snprintf(path, sizeof path, "golden/families/%s", name);
    snprintf(model, sizeof model, "%s", support_path(path));
    snprintf(path, sizeof path, "%s/golden.safetensors", model);
    ck_assert_msg(golden_open(&golden, path, why, sizeof why) == 0, "%s", why);
    ck_assert_int_eq(golden_engine(&g, model, "scalar", 1, (int)into[_i % 2], false, &e), 0);
    want = answer(g, &golden, golden.n);
    engine_close(g);
    for (size_t k = 0; k < 2 * sizeof sets / sizeof *sets; k++) {
        if (cpu_kernels_select(sets[k / 2], &e) < 0 || !support_turn((int)k + _i, 3))
            continue;
        snprintf(how, sizeof how, "%s, %zu threads", sets[k / 2], 1 + k % 2);
        ck_assert_int_eq(golden_engine(&g, model, sets[k / 2], 1 + (int)(k % 2), (int)into[_i % 2],
                                       false, &e),
                         0);
        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++)
            answers_so(g, &golden, chunks[c], want, how);
        engine_close(g);
    }
    cpu_kernels_select(NULL, &e);
    /* the experts of qwen4_exp are too narrow to be rounded, all but their gates and ups */
    if (have_device() && strcmp(name, "qwen4_exp") != 0) {
        opencl_tune(&tuning);
        g = open_converted(model, (int)into[_i % 2]);
        ck_assert_msg(engine_place(g, "experts-gpu", &e) == 0 && engine_settle(g, &e) == 0, "%s",
                      e.text);
        ck_assert_uint_eq(engine_telemetry(g)->devices[1].failures, 0);
        ck_assert(plan_uses_devices(engine_plan(g)));
        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++)
            answers_so(g, &golden, chunks[c], want, "experts on OpenCL");
        ck_assert_uint_eq(engine_telemetry(g)->devices[1].failures, 0);
        engine_close(g);
    }
    free(want);
    golden_close(&golden);
}
END_TEST

/* A rule of a plan file speaks of all experts of its layers; what is not there stays at home. So
 * does what would pass through a device that this machine does not have. */
START_TEST(plans_name_more_than_there_is)
{
    char model[200];
    struct engine *g;
    struct plan *p;
    struct error e = {0};

    if (!have_device())
        return;
    snprintf(model, sizeof model, "%s", support_path("golden/families/qwen2_moe-step2"));
    g = open_with_device(model);

    const struct hparams *hp = &engine_info(g)->model->hp;
    int cells = hp->n_layers * hp->n_experts;

    p = plan_new("all", hp->n_layers, hp->n_experts);
    memset(p->experts, 1, (size_t)cells);
    ck_assert_msg(engine_plan_set(g, p, &e) == 0 && engine_settle(g, &e) == 0, "%s", e.text);
    for (int i = 0; i < cells; i++)
        ck_assert_int_eq(engine_plan(g)->experts[i],
                         i % hp->n_experts < shape_experts(hparams_layer(hp, i / hp->n_experts)));
    p = plan_new("elsewhere", hp->n_layers, hp->n_experts);
    memset(p->experts, DEVICE_MAX - 1, (size_t)cells);
    memset(p->streamed, 1, (size_t)cells);
    ck_assert_msg(engine_plan_set(g, p, &e) == 0 && engine_settle(g, &e) == 0, "%s", e.text);
    ck_assert(!plan_uses_devices(engine_plan(g)));
    engine_close(g);
}
END_TEST

/* By hand: products of ids and multipliers, exclusive or, the remainder as torch's; an end of text
 * hides what is before it, but for its own n-grams. */
START_TEST(ngrams_are_hashed)
{
    static const struct {
        int64_t first;
        int ids[3];
        int64_t rows[2];
    } cases[] = {{3, {4, 6, 2}, {8, 16}},   {3, {4, 9, 2}, {3, 18}}, {3, {9, 6, 2}, {5, 10}},
                 {3, {4, -1, -1}, {3, 18}}, {3, {4, 6, 9}, {8, 11}}, {-3, {1, 2, 0}, {1, 12}}};
    const struct ngram_shape s = {.size = 3, .each = 1, .width = 32, .taps = 4, .end = 9};
    struct ngram_weights w = {
        .multipliers = {0, 5, 7}, .sizes = {10, 11}, .offsets = {0, 10}, .part_rows = 8};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t rows[NGRAM_HASHES_MOST];

        w.multipliers[0] = cases[i].first;
        model_ngram_rows(&w, &s, cases[i].ids, rows);
        ck_assert_int_eq(rows[0], cases[i].rows[0]);
        ck_assert_int_eq(rows[1], cases[i].rows[1]);
    }
}
END_TEST

static struct model *inspect(const char *folder)
{
    struct model_options o = {.convert = -1, .width = 8};
    char below[200];
    struct model *m;
    struct error e = {0};

    snprintf(below, sizeof below, "golden/families/%s", folder);
    ck_assert_msg(model_inspect(&m, support_path(below), &o, NULL, &e) == 0, "%s", e.text);
    return m;
}

START_TEST(layers_are_what_they_are)
{
    struct model *m = inspect("qwen2_moe");
    const struct layer_shape *routed = hparams_layer(&m->hp, 0), *dense = hparams_layer(&m->hp, 2);

    ck_assert(routed->ffn.kind == FFN_ROUTED && routed->ffn.experts == 12 && routed->ffn.used == 4);
    ck_assert(routed->ffn.shared == 1 && routed->ffn.shared_width == 40 && routed->ffn.width == 16);
    ck_assert(routed->ffn.shared_gate == SHARED_SIGMOID && !routed->ffn.router.normalised);
    ck_assert(routed->mixer.window == 0); /* use_sliding_window is false */
    ck_assert(dense->ffn.kind == FFN_DENSE && dense->ffn.experts == 0 && dense->ffn.shared == 1 &&
              dense->ffn.shared_width == 64);
    ck_assert(m->hp.n_experts == 13 && m->hp.n_experts_used == 5);
    ck_assert(m->layers[0].q.bias && !m->layers[0].o.bias);
    model_free(m);
    m = inspect("qwen2_moe-step2");
    for (int l = 0; l < 4; l++)
        ck_assert_int_eq(hparams_layer(&m->hp, l)->ffn.kind, l % 2 ? FFN_ROUTED : FFN_DENSE);
    model_free(m);
    m = inspect("llama");
    ck_assert(m->hp.n_experts == 1 && m->hp.n_experts_used == 1 && m->hp.tied_embeddings);
    ck_assert_str_eq(m->unused, "");
    ck_assert(m->hp.short_factor && m->hp.short_factor[0] == 1.0f && m->hp.original_context == 0);
    model_free(m);
    m = inspect("gpt_oss");
    ck_assert(m->hp.n_experts == 8 && hparams_layer(&m->hp, 1)->ffn.width == 20);
    ck_assert(hparams_layer(&m->hp, 0)->mixer.window == 8 &&
              hparams_layer(&m->hp, 1)->mixer.window == 0);
    ck_assert(m->layers[0].sinks && m->layers[0].score_bias && !m->layers[0].router_bias);
    ck_assert(m->layers[3].experts[7].gate.bias && m->layers[3].experts[7].down.bias);
    model_free(m);
    m = inspect("gemma4");
    routed = hparams_layer(&m->hp, 0);
    dense = hparams_layer(&m->hp, 1); /* sees all */
    ck_assert(routed->ffn.kind == FFN_DENSE_AND_ROUTED && routed->ffn.shared_width == 24);
    ck_assert(routed->mixer.window == 16 && routed->mixer.kv_heads == 2 && m->layers[0].v.bytes);
    ck_assert(dense->mixer.values_are_keys && dense->mixer.kv_heads == 1 && !m->layers[1].v.bytes);
    ck_assert(dense->mixer.rope == ROPE_PROPORTIONAL && dense->mixer.rope_dims == 8 &&
              m->hp.second_rope.dims == 8 && m->hp.second_rope.of == 32);
    ck_assert(m->layers[1].routed_norm.weight && m->layers[1].scale && m->layers[1].expert_scale);
    model_free(m);
    m = inspect("gpt2");
    ck_assert(model_positions(m) == 64 && m->hp.tied_embeddings && m->hp.head_bias == false);
    ck_assert_str_eq(m->unused, "not used: 3 tensors of attention masks");
    model_free(m);
    m = inspect("qwen3_next");
    ck_assert_str_eq(m->unused, "not used: 23 tensors of layers that predict further tokens");
    model_free(m);
    m = inspect("opt-350m");
    ck_assert(model_positions(m) == 64 && m->positions.dims[0] == 66);
    ck_assert(m->hp.embedding_width == 16 && m->head.cols == 16 && !m->output_norm.weight);
    ck_assert(!m->layers[0].attention_norm.weight && m->layers[0].attention_after.weight);
    model_free(m);
    m = inspect("olmoe");
    ck_assert_int_eq(hparams_layer(&m->hp, 0)->mixer.qk_norm, QK_NORM_WHOLE);
    model_free(m);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("families");
    TCase *c = tcase_create("golden");

    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, checkpoints_match, 0, (int)(sizeof folders / sizeof *folders));
    tcase_add_loop_test(c, shared_checkpoints_match, 0, (int)(sizeof shared / sizeof *shared));
    tcase_add_test(c, gpt2_is_read_as_gguf);
    tcase_add_test(c, layers_are_what_they_are);
    tcase_add_test(c, uneven_layers_can_be_split);
    tcase_add_test(c, ngrams_are_hashed);
    tcase_add_loop_test(c, converted_models_answer_alike, 0,
                        (int)(sizeof converted / sizeof *converted * 2));
    tcase_add_loop_test(c, text_survives_placements, 0, (int)(sizeof moved / sizeof *moved));
    tcase_add_test(c, what_stays_is_said);
    tcase_add_test(c, adapted_blocks_stay_and_it_is_said);
    tcase_add_test(c, mixed_experts_stay);
    tcase_add_test(c, plans_name_more_than_there_is);
    tcase_add_loop_test(c, checkpoints_match_on_opencl, 0, (int)(sizeof folders / sizeof *folders));
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
