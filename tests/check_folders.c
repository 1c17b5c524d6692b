/* --quantize of Hugging Face folders: what is written of each family that can be, as F32, gives the
 * golden numbers of its official code, rows that llama.cpp moves and all; packed ones too. */
#include "tests/golden.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/convert/export.h"
#include "engine/file/weights.h"
#include "engine/run/engine.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
                                      "deepseek_v2",
                                      "deepseek_v2-group",
                                      "deepseek_v3",
                                      "glm4_moe_lite",
                                      "gpt_oss",
                                      "qwen3_next",
                                      "qwen3_5_moe",
                                      "lfm2_moe",
                                      "granitemoehybrid",
                                      "nemotron_h",
                                      "bailing_hybrid",
                                      "bailing_moe",
                                      "bailing_moe_v2",
                                      "qwen2",
                                      "lfm2",
                                      "gemma4",
                                      "afmoe",
                                      "dots1",
                                      "smollm3",
                                      "gemma3",
                                      "laguna",
                                      "olmo2",
                                      "olmo3",
                                      "flex_olmo",
                                      "mellum",
                                      "exaone_moe",
                                      "solar_open",
                                      "deepseek",
                                      "phi3",
                                      "granite_swa",
                                      "minimax_m2",
                                      "hy_v3",
                                      "mistral",
                                      "mistral3",
                                      "cohere2_moe",
                                      "kimi_linear",
                                      "hunyuan_v1_moe",
                                      "mistral4",
                                      "gemma4_e",
                                      "gemma3n",
                                      "smallthinker",
                                      "llama4",
                                      "muse_glimmer",
                                      "maple",
                                      "jamba",
                                      "step3p5",
                                      "mimo_v2_flash",
                                      "grovemoe",
                                      "longcat_flash",
                                      "deepseek_v32",
                                      "glm_moe_dsa",
                                      "deepseek_v4",
                                      "jetmoe",
                                      "zaya",
                                      "qwen4_exp",
                                      "qwen2_moe-step2",
                                      "qwen3_moe-gptq-g32-act"};
static const char *const shared[] = {"qwen3_moe-yarn",      "qwen3_moe-awq-g32",
                                     "qwen3_moe-gptq-g128", "qwen3_moe-ct-fp8",
                                     "qwen3_moe-fp8",       "gpt_oss-mxfp4",
                                     "deepseek_v3-fp8",     "deepseek_v3-ct-int4"};

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

/* A folder whose layers see windows in another order than every file of its family: nothing is
 * written. */
START_TEST(what_gguf_cannot_say)
{
    static const struct file_kind kind = {"config", 1 << 20, ERR_MODEL};
    struct export_options o = {.type = export_type_find("f32"), .n_threads = 1};
    struct export_report r;
    char *text, *at, dir[300], path[400], out[300], from[4200];
    size_t n;

    snprintf(dir, sizeof dir, "%s/windows", support_tmpdir());
    snprintf(out, sizeof out, "%s/windows.gguf", support_tmpdir());
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    ck_assert_int_eq(
        file_read(support_path("golden/families/gpt_oss/config.json"), &kind, &text, &n, &e), 0);
    ck_assert((at = memmem(text, n, "sliding_attention", 17)) != NULL);
    memcpy(at, "full_attention\"   ", 17 + 1); /* one blank takes the quote's place */
    snprintf(path, sizeof path, "%s/config.json", dir);
    ck_assert_int_eq(file_replace(path, text, n, &e), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    ck_assert(realpath(support_path("golden/families/gpt_oss/model.safetensors"), from) != NULL);
    ck_assert_int_eq(symlink(from, path), 0);
    ck_assert_int_eq(model_export(dir, out, &o, &r, &e), ERR_MODEL);
    ck_assert_msg(strstr(e.text, "cannot say the window of layer 0") != NULL, "%s", e.text);
    ck_assert_int_ne(access(out, F_OK), 0);
    mem_free(text);
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
    tcase_add_test(c, what_gguf_cannot_say);
    tcase_add_test(c, folders_are_rounded);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
