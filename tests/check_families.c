/* Model families against golden numbers of their official code (tests/golden/families; more of them
 * beside the project, where they are there): every kernel set, whole, chunked and token by token;
 * and what their shapes say. */
#include "tests/golden.h"

#include "engine/device/device.h"
#include "tests/support.h"

#include <stdio.h>
#include <string.h>

static const char *const folders[] = {"mixtral",   "olmoe",       "qwen2_moe", "qwen2_moe-step2",
                                      "qwen3_moe", "llama",       "qwen3",     "granitemoe",
                                      "glm4_moe",  "ernie4_5_moe"};

/* The same by llama.cpp's converter; and a stretched context. */
static const struct {
    const char *model, *golden;
} shared[] = {
    {"ggufs/olmoe.gguf", "ggufs/olmoe.golden.safetensors"},
    {"families/qwen3_moe-yarn", "families/qwen3_moe-yarn/golden.safetensors"},
    {"families/qwen3_moe-yarn", "families/qwen3_moe-yarn/golden-150.safetensors"},
};

static struct engine *open_engine(const char *model, const char *kernels)
{
    struct engine *g = NULL;
    struct error e = {0};

    ck_assert_msg(golden_engine(&g, model, kernels, 2, -1, true, &e) == 0, "%s", e.text);
    return g;
}

static void compare(struct engine *g, const char *golden_path)
{
    struct golden golden;
    struct golden_result r;
    struct error e = {0};
    char why[4200];

    ck_assert_msg(golden_open(&golden, golden_path, why, sizeof why) == 0, "%s", why);
    ck_assert_msg(golden_compare(g, &golden, &r, &e) == 0, "%s", e.text);
    printf("%s, %s: whole %.3g chunks %.3g steps %.3g\n", golden_path, cpu_kernels_name(), r.whole,
           r.chunked, r.stepped);
    ck_assert_msg(r.whole <= GOLDEN_TOLERANCE, "%s: whole prompt: %g", golden_path, r.whole);
    ck_assert_msg(r.chunked <= GOLDEN_TOLERANCE, "%s: chunks: %g", golden_path, r.chunked);
    ck_assert_msg(r.stepped <= GOLDEN_TOLERANCE, "%s: steps: %g", golden_path, r.stepped);
    ck_assert(r.greedy_agrees);
    ck_assert_msg(r.routing_agrees, "%s: another routing", golden_path);
    golden_close(&golden);
}

START_TEST(checkpoints_match)
{
    static const char *const sets[] = {"scalar", "avx2", "avx512"};
    char below[200], golden[200];
    struct error e;

    snprintf(below, sizeof below, "golden/families/%s", folders[_i]);
    snprintf(golden, sizeof golden, "golden/families/%s/golden.safetensors", folders[_i]);
    for (size_t k = 0; k < sizeof sets / sizeof *sets; k++) {
        struct engine *g;

        if (cpu_kernels_select(sets[k], &e) < 0)
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
    struct engine *g;

    if (!model)
        return;
    g = open_engine(model, NULL);
    compare(g, support_shared(shared[_i].golden));
    engine_close(g);
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
    ck_assert(routed->ffn.shared == 1 && routed->ffn.shared_width == 80 && routed->ffn.width == 32);
    ck_assert(routed->ffn.shared_gate == SHARED_SIGMOID && !routed->ffn.router.normalised);
    ck_assert(routed->mixer.window == 0); /* use_sliding_window is false */
    ck_assert(dense->ffn.kind == FFN_DENSE && dense->ffn.experts == 0 && dense->ffn.shared == 1 &&
              dense->ffn.shared_width == 96);
    ck_assert(m->hp.n_experts == 13 && m->hp.n_experts_used == 5);
    ck_assert(m->layers[0].q.bias && !m->layers[0].o.bias);
    model_free(m);
    m = inspect("qwen2_moe-step2");
    for (int l = 0; l < 4; l++)
        ck_assert_int_eq(hparams_layer(&m->hp, l)->ffn.kind, l % 2 ? FFN_ROUTED : FFN_DENSE);
    model_free(m);
    m = inspect("llama");
    ck_assert(m->hp.n_experts == 1 && m->hp.n_experts_used == 1 && m->hp.tied_embeddings);
    ck_assert(m->hp.short_factor && m->hp.short_factor[0] == 1.0f && m->hp.original_context == 0);
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
    tcase_add_test(c, layers_are_what_they_are);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
