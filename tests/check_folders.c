/* --quantize of Hugging Face folders: what is written of each family that can be, as F32, gives the
 * golden numbers of its official code, rows that llama.cpp moves and all; packed ones too. */
#include "tests/golden.h"

#include "engine/convert/export.h"
#include "engine/file/weights.h"
#include "engine/run/engine.h"
#include "tests/support.h"

#include <stdio.h>
#include <string.h>

static struct error e;

static const char *const folders[] = {"llama",
                                      "mixtral",
                                      "olmoe",
                                      "qwen2_moe",
                                      "qwen3",
                                      "qwen3_moe",
                                      "granitemoe",
                                      "ernie4_5_moe",
                                      "glm4_moe",
                                      "qwen2_moe-step2",
                                      "qwen3_moe-gptq-g32-act"};
static const char *const shared[] = {"qwen3_moe-yarn", "qwen3_moe-awq-g32", "qwen3_moe-gptq-g128",
                                     "qwen3_moe-ct-fp8", "qwen3_moe-fp8"};

static const char *export_folder(const char *folder, const char *word)
{
    static char out[300];
    struct export_options o = {.type = export_type_find(word), .n_threads = 2};
    struct export_report r;

    snprintf(out, sizeof out, "%s/out.gguf", support_tmpdir());
    ck_assert_msg(model_export(folder, out, &o, &r, &e) == 0, "%s: %s", folder, e.text);
    return out;
}

static void compare(const char *folder, const char *golden_path)
{
    const char *out = export_folder(folder, "f32");
    struct engine *g = NULL;
    struct golden golden;
    struct golden_result r;
    char why[4200];

    ck_assert_msg(golden_open(&golden, golden_path, why, sizeof why) == 0, "%s", why);
    ck_assert_msg(golden_engine(&g, out, NULL, 2, -1, true, &e) == 0, "%s: %s", folder, e.text);
    ck_assert_msg(golden_compare(g, &golden, &r, &e) == 0, "%s", e.text);
    printf("%s: whole %.3g chunks %.3g steps %.3g\n", folder, r.whole, r.chunked, r.stepped);
    ck_assert_msg(r.whole <= 1e-4 && r.chunked <= 1e-4 && r.stepped <= 1e-4, "%g %g %g", r.whole,
                  r.chunked, r.stepped);
    ck_assert(r.greedy_agrees && r.routing_agrees);
    golden_close(&golden);
    engine_close(g);
}

START_TEST(folders_become_files)
{
    char folder[200], golden[300];

    snprintf(folder, sizeof folder, "golden/families/%s", folders[_i]);
    snprintf(golden, sizeof golden, "golden/families/%s/golden.safetensors", folders[_i]);
    snprintf(folder, sizeof folder, "%s", support_path(folder));
    compare(folder, support_path(golden));
}
END_TEST

START_TEST(shared_folders_become_files)
{
    char below[200], folder[300];

    snprintf(below, sizeof below, "families/%s", shared[_i]);
    if (!support_shared(below))
        return;
    snprintf(folder, sizeof folder, "%s", support_shared(below));
    snprintf(below, sizeof below, "families/%s/golden.safetensors", shared[_i]);
    compare(folder, support_shared(below));
}
END_TEST

/* Types that are asked for reach every matrix; experts lie in one tensor. */
START_TEST(folders_are_rounded)
{
    const char *out = export_folder(support_path("golden/families/mixtral"), "q8_0");
    struct weight_file *f;
    const struct tensor_view *t;

    ck_assert_msg(weight_file_open(&f, out, false, &e) == 0, "%s", e.text);
    t = weight_file_find(f, "blk.0.ffn_gate_exps.weight");
    ck_assert(t && t->n_dims == 3 && t->type == DTYPE_Q8_0);
    t = weight_file_find(f, "blk.0.attn_k.weight");
    ck_assert(t && t->n_dims == 2 && t->type == DTYPE_Q8_0);
    t = weight_file_find(f, "blk.0.ffn_gate_inp.weight");
    ck_assert(t && t->type == DTYPE_F32);
    weight_file_close(f);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("folders");
    TCase *c = tcase_create("export");

    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, folders_become_files, 0, (int)(sizeof folders / sizeof *folders));
    tcase_add_loop_test(c, shared_folders_become_files, 0, (int)(sizeof shared / sizeof *shared));
    tcase_add_test(c, folders_are_rounded);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
