/* tests/tools/synthetic_gguf.py and synthetic_families.py: the shapes that speed is measured on
 * open and compute, in every format, and the same arguments write the same bytes. */
#include "engine/run/internal.h"
#include "tests/golden.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const shapes[] = {"phi-tiny",
                                     "phi-tiny-llama",
                                     "qwen3-30b-a3b",
                                     "gpt-oss-20b",
                                     "lfm2-8b-a1b",
                                     "qwen3.5-35b-a3b",
                                     "deepseek-v2-lite",
                                     "mixtral",
                                     "olmoe",
                                     "qwen2_moe",
                                     "ernie4_5_moe",
                                     "glm4_moe",
                                     "solar_open",
                                     "glm4_moe_lite",
                                     "deepseek_v3",
                                     "deepseek",
                                     "bailing_moe",
                                     "bailing_moe_v2",
                                     "bailing_hybrid",
                                     "kimi_linear",
                                     "mistral4",
                                     "granitemoe",
                                     "granite_swa",
                                     "granitemoehybrid",
                                     "nemotron_h",
                                     "afmoe",
                                     "laguna",
                                     "hy_v3",
                                     "cohere2_moe",
                                     "exaone_moe",
                                     "mellum",
                                     "dots1",
                                     "hunyuan_v1_moe",
                                     "minimax_m2",
                                     "qwen3_next",
                                     "gemma4",
                                     "smallthinker",
                                     "maple",
                                     "llama4",
                                     "jamba",
                                     "step3p5",
                                     "mimo_v2_flash",
                                     "deepseek_v32",
                                     "glm_moe_dsa",
                                     "longcat_flash",
                                     "grovemoe",
                                     "deepseek_v4",
                                     "qwen4_exp",
                                     "qwen3_vl_moe",
                                     "llama",
                                     "granite",
                                     "qwen2",
                                     "qwen3",
                                     "qwen3_5",
                                     "lfm2",
                                     "smollm3",
                                     "olmo2",
                                     "olmo3",
                                     "phi3",
                                     "mistral3",
                                     "muse_glimmer",
                                     "gemma3",
                                     "gemma3n",
                                     "gemma4_e",
                                     "gpt2"};
static const char *const types[] = {
    "F32",     "F16",    "BF16",   "Q4_0",   "Q4_1",   "Q5_0",   "Q5_1",    "Q8_0",   "Q2_K",
    "Q3_K",    "Q4_K",   "Q5_K",   "Q6_K",   "IQ4_NL", "IQ4_XS", "IQ3_XXS", "IQ3_S",  "IQ2_XXS",
    "IQ2_XS",  "IQ2_S",  "IQ1_S",  "IQ1_M",  "TQ1_0",  "TQ2_0",  "MXFP4",   "NVFP4",  "Q1_0",
    "Q2_0",    "IQ2_K",  "IQ3_K",  "IQ4_K",  "IQ5_K",  "IQ6_K",  "IQ2_KS",  "IQ3_KS", "IQ4_KS",
    "IQ4_KSS", "IQ5_KS", "IQ2_KL", "IQ1_KT", "IQ2_KT", "IQ3_KT", "IQ4_KT",  "Q4_K_M", "IQ1_M_R4"};

static char file[2][300];

/* False: python3 is not here, which is said. */
static bool has_python(void)
{
    if (system("python3 -c 'import random; random.Random(1).randbytes(1)' 2>/dev/null") == 0)
        return true;
    support_skip("no python3 from 3.9 on");
    return false;
}

static void synthesise(int slot, const char *shape, const char *type)
{
    char command[1200];

    snprintf(file[slot], sizeof file[slot], "%s/%d.gguf", support_tmpdir(), slot);
    snprintf(command, sizeof command, "python3 '%s' %s '%s' --small --type %s > '%s.log'",
             support_path("tools/synthetic_gguf.py"), shape, file[slot], type, file[slot]);
    ck_assert_msg(system(command) == 0, "%s", command);
}

/* Opens the file and computes a few tokens. */
static void computes(const char *path)
{
    static const int ids[] = {5, 260, 17, 100, 299};
    struct engine *g = NULL;
    struct error e = {0};
    float *logits;

    ck_assert_msg(golden_engine(&g, path, NULL, 2, -1, false, &e) == 0, "%s", e.text);
    logits = calloc((size_t)g->model->hp.n_vocab, sizeof *logits);
    ck_assert_msg(engine_eval(g, ids, 5, logits, false, &e) == 0, "%s", e.text);
    for (int i = 0; i < g->model->hp.n_vocab; i++)
        ck_assert_msg(isfinite(logits[i]), "%s: logit %d", path, i);
    ck_assert(logits[3] != logits[4]);
    free(logits);
    engine_close(g);
}

START_TEST(shapes_open)
{
    if (!has_python())
        return;
    synthesise(0, shapes[_i], "Q4_0");
    computes(file[0]);
}
END_TEST

START_TEST(types_open)
{
    if (!has_python())
        return;
    synthesise(0, "qwen3-30b-a3b", types[_i]);
    computes(file[0]);
}
END_TEST

START_TEST(same_bytes)
{
    char command[700];

    if (!has_python())
        return;
    for (int i = 0; i < 2; i++)
        synthesise(i, "gpt-oss-20b", "MXFP4");
    snprintf(command, sizeof command, "cmp '%s' '%s'", file[0], file[1]);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("synthetic");
    TCase *t = tcase_create("synthetic");

    tcase_add_loop_test(t, shapes_open, 0, sizeof shapes / sizeof *shapes);
    tcase_add_loop_test(t, types_open, 0, sizeof types / sizeof *types);
    tcase_add_test(t, same_bytes);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
