/* An adapter of every linear module that a family's file has, by its name there: it is computed as
 * the same change merged into the weights is. */
#include "engine/adapter/adapter.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/convert/merge_folder.h"
#include "engine/file/gguf_write.h"
#include "engine/file/weights.h"
#include "engine/run/engine.h"
#include "tests/golden.h"
#include "tests/support.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define RANK 2
#define SCALE "4" /* lora_alpha: twice the rank */
#define PROMPT 24

static char folders[128][64];
static int n_folders;

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Not linear modules (gpt2: check_lora.c), or of types into which nothing is merged. */
static bool is_left_out(const char *folder)
{
    static const char *const names[] = {"gpt2", "gpt_oss-mxfp4", "qwen3_moe-gptq-g32-act"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(folder, names[i]) == 0)
            return true;
    return false;
}

/* Folders of tests/golden/families. */
static void find_folders(void)
{
    char path[PATH_MAX];
    struct dirent *entry;
    DIR *d;

    snprintf(path, sizeof path, "%s/tests/golden/families", support_root());
    d = opendir(path);
    while (d && (entry = readdir(d)) && n_folders < 128)
        if (entry->d_name[0] != '.' && strlen(entry->d_name) < sizeof folders[0] &&
            !is_left_out(entry->d_name))
            snprintf(folders[n_folders++], sizeof folders[0], "%s", entry->d_name);
    if (d)
        closedir(d);
    qsort(folders, (size_t)n_folders, sizeof folders[0], by_name);
}

/* What torch.nn.Linear is not: PEFT does not adapt it, or not without being told by name. */
static bool is_linear(const struct tensor_view *t, int layers)
{
    static const char *const others[] = {"embed",   "wte",  "wpe",    "norm",  "conv",
                                         "lm_head", "mtp.", "vision", "visual"};
    size_t n = strlen(t->name);
    const char *at;

    if (t->n_dims != 2 || n < 8 || strcmp(t->name + n - 7, ".weight") != 0)
        return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(t->name, others[i]))
            return false;
    at = strstr(t->name, "layers.");
    return !at || atoi(at + strlen("layers.")) < layers;
}

/* Whether it belongs to an expert without a last matrix: an identity's (longcat_flash), which the
 * official code allocates and does not use. */
static bool is_unused(const struct weight_file *w, const struct tensor_view *t)
{
    const char *at = strstr(t->name, ".experts."), *end = at ? strrchr(t->name, '_') : NULL;
    char down[600];

    while (end && end[-1] != '.')
        end--;
    if (!end)
        return false;
    snprintf(down, sizeof down, "%.*sdown_proj.weight", (int)(end - t->name), t->name);
    return strstr(end, "_proj.weight") && at[9] >= '0' && at[9] <= '9' &&
           !weight_file_find(w, down);
}

static void write_values(FILE *f, size_t n, unsigned *seed)
{
    for (size_t i = 0; i < n; i++) {
        float x;

        *seed = *seed * 1664525u + 1013904223u;
        x = ((float)(*seed >> 8) / 16777216.0f - 0.5f) * 0.1f;
        fwrite(&x, sizeof x, 1, f);
    }
}

/* A PEFT folder, of the modules whose names have `only` (NULL: of all). Returns how many those are.
 */
static int write_adapter(const char *folder, const struct weight_file *w, int layers,
                         const char *only)
{
    char path[PATH_MAX + 64], name[600], *text;
    json_t *root = json_object();
    uint64_t at = 0, length;
    unsigned seed = 3;
    int modules = 0;
    FILE *f;

    mkdir(folder, 0755);
    for (size_t i = 0; i < weight_file_count(w); i++) {
        const struct tensor_view *t = weight_file_at(w, i);
        bool adapted = is_linear(t, layers) && !is_unused(w, t) && (!only || strstr(t->name, only));

        for (int k = 0; k < 2 && adapted; k++) {
            int64_t rows = k ? t->dims[0] : RANK, cols = k ? RANK : t->dims[1];

            snprintf(name, sizeof name, "base_model.model.%.*s.lora_%c.weight",
                     (int)(strlen(t->name) - 7), t->name, 'A' + k);
            json_object_set_new(root, name,
                                json_pack("{s:s, s:[I,I], s:[I,I]}", "dtype", "F32", "shape",
                                          (json_int_t)rows, (json_int_t)cols, "data_offsets",
                                          (json_int_t)at, (json_int_t)(at + 4 * rows * cols)));
            at += (uint64_t)(4 * rows * cols);
        }
        modules += adapted;
    }
    text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    ck_assert((f = fopen(path, "wb")) != NULL);
    length = strlen(text);
    fwrite(&length, 1, sizeof length, f);
    fwrite(text, 1, length, f);
    write_values(f, at / 4, &seed);
    fclose(f);
    free(text);
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    ck_assert((f = fopen(path, "wb")) != NULL);
    fprintf(f, "{\"peft_type\": \"LORA\", \"r\": %d, \"lora_alpha\": " SCALE "}\n", RANK);
    fclose(f);
    return modules;
}

/* What is named as not computed, and nothing else. */
static void check_unplaced(const char *names)
{
    static const char *const known[] = {
        "gate.lora_",                 /* also shared_expert_gate */
        "gate.wg.lora_", "mlp.gate.", /* of zaya, whose router is several */
        "router.",       "kv_b_proj.", "altup", "attn.wo_a.", "decoder.project_", "mtp_"};
    char *copy = strdup(names ? names : ""), *rest = copy, *name;

    while ((name = strtok_r(rest, ", ", &rest))) {
        bool found = false;

        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= strstr(name, known[i]) != NULL;
        ck_assert_msg(found, "not computed: %s", name);
    }
    free(copy);
}

static float *chunked_logits(const char *model, const struct adapter_request *a, int n, int chunk,
                             size_t *count, int *layers)
{
    struct engine *g = NULL;
    struct error e = {0};
    int ids[PROMPT];
    float *logits;

    ck_assert_msg(golden_engine_adapted(&g, model, a, n, NULL, 2, -1, true, &e) == 0, "%s: %s",
                  model, e.text);
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (7 * i + 3) % engine_info(g)->model->hp.n_vocab;
    if (n)
        check_unplaced(adapters_at(engine_info(g)->adapters, 0)->unplaced);
    *layers = engine_info(g)->model->hp.n_layers;
    *count = (size_t)PROMPT * (size_t)engine_info(g)->model->hp.n_vocab;
    logits = calloc(*count, sizeof *logits);
    ck_assert_msg(engine_eval_chunked(g, ids, PROMPT, chunk, logits, true, &e) == 0, "%s", e.text);
    engine_close(g);
    return logits;
}

static float *logits_of(const char *model, const struct adapter_request *a, int n, size_t *count,
                        int *layers)
{
    return chunked_logits(model, a, n, PROMPT, count, layers);
}

static double largest(const float *a, const float *b, size_t n)
{
    double most = 0;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

START_TEST(adapted_is_merged)
{
    char base[PATH_MAX], adapter[PATH_MAX], merged[PATH_MAX];
    struct adapter_request a = {adapter, 1.0f};
    struct weight_file *w = NULL;
    struct merge_report report;
    struct error e = {0};
    float *plain, *with, *in;
    double moved, off;
    size_t n;
    int modules, layers;

    snprintf(base, sizeof base, "%s/tests/golden/families/%s", support_root(), folders[_i]);
    snprintf(adapter, sizeof adapter, "%s/adapter", support_tmpdir());
    snprintf(merged, sizeof merged, "%s/merged", support_tmpdir());
    ck_assert_msg(weight_file_open(&w, base, false, &e) == 0, "%s", e.text);
    plain = logits_of(base, NULL, 0, &n, &layers);
    modules = write_adapter(adapter, w, layers, NULL);
    weight_file_close(w);
    ck_assert_int_gt(modules, 3);
    ck_assert_msg(merge_folder(base, merged, DTYPE_F32, &a, 1, NULL, NULL, &report, &e) == 0,
                  "%s: %s", folders[_i], e.text);
    with = logits_of(base, &a, 1, &n, &layers);
    in = logits_of(merged, NULL, 0, &n, &layers);
    moved = largest(plain, in, n);
    off = largest(with, in, n);
    printf("%s: %d modules, %d merged, moves logits by %.3g, off by %.3g\n", folders[_i], modules,
           report.merged, moved, off);
    ck_assert_msg(off <= golden_tolerance(folders[_i]), "%s: off by %g", folders[_i], off);
    ck_assert_msg(moved > 100 * off, "%s: moves logits by %g only", folders[_i], moved);
    free(plain), free(with), free(in);
}
END_TEST

/* ---- Adjugate experts, which GGUF files stack ---- */

#define ADJUGATE "chunk_experts."

static const char *const halves[] = {"A", "B"}, *const adjugate_parts[] = {"gate", "up", "down"};

/* The pair's tensor of an adjugate expert; NULL: no such layer or expert. */
static const struct tensor_view *adjugate(const struct weight_file *f, int layer, int expert,
                                          int part, int half)
{
    char name[300];

    snprintf(name, sizeof name,
             "base_model.model.model.layers.%d.mlp." ADJUGATE "%d.%s_proj.lora_%s.weight", layer,
             expert, adjugate_parts[part], halves[half]);
    return weight_file_find(f, name);
}

/* Names the stacked tensors, or writes their values. */
static void put_stacked(struct gguf_writer *w, const struct weight_file *f, int layers, bool values)
{
    struct error e = {0};
    char name[200];

    for (int i = 0; i < layers * 6; i++) {
        int layer = i / 6, part = i % 6 / 2, half = i % 2, n = 0;
        const struct tensor_view *first = adjugate(f, layer, 0, part, half), *t;

        while ((t = adjugate(f, layer, n, part, half))) {
            if (values)
                ck_assert_int_eq(gguf_write_data(w, t->data, t->bytes, &e), 0);
            n++;
        }
        snprintf(name, sizeof name, "blk.%d.ffn_%s_chexps.weight.lora_%c", layer,
                 adjugate_parts[part], 'a' + half);
        if (first && !values)
            gguf_write_tensor(w, name, DTYPE_F32, 3,
                              (const int64_t[]){n, first->dims[0], first->dims[1]});
    }
}

/* The adapter as a GGUF file. */
static void stack_adapter(const char *folder, const char *out, int layers)
{
    struct error e = {0};
    struct weight_file *f = NULL;
    struct gguf_writer *w = NULL;
    char path[PATH_MAX + 64];

    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    ck_assert_msg(weight_file_open(&f, path, false, &e) == 0, "%s", e.text);
    ck_assert_msg(gguf_write_open(&w, out, &e) == 0, "%s", e.text);
    gguf_put_string(w, "general.type", "adapter", 7);
    gguf_put_string(w, "general.architecture", "grovemoe", 8);
    gguf_put_string(w, "adapter.type", "lora", 4);
    gguf_put_f32(w, "adapter.lora.alpha", (float)atoi(SCALE));
    put_stacked(w, f, layers, false);
    ck_assert_int_eq(gguf_write_begin(w, &e), 0);
    put_stacked(w, f, layers, true);
    ck_assert_msg(gguf_write_finish(w, &e) == 0, "%s", e.text);
    weight_file_close(f);
}

/* The adapter's first adjugate expert becomes the ninth. */
static void renumber(const char *folder)
{
    static const struct file_kind kind = {"adapter", (size_t)1 << 30, ERR_MODEL};
    char path[PATH_MAX + 64], *bytes, *at;
    struct error e = {0};
    size_t n;

    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    ck_assert_int_eq(file_read(path, &kind, &bytes, &n, &e), 0);
    for (at = bytes; (at = memmem(at, n - (size_t)(at - bytes), ADJUGATE "0", sizeof ADJUGATE));
         at++)
        at[sizeof ADJUGATE - 1] = '9';
    ck_assert_int_eq(file_replace(path, bytes, n, &e), 0);
    mem_free(bytes);
}

START_TEST(adjugate_experts_of_files)
{
    char base[PATH_MAX], folder[PATH_MAX], file[PATH_MAX];
    struct adapter_request a = {folder, 1.0f}, stacked = {file, 1.0f};
    struct weight_file *w = NULL;
    struct engine *g = NULL;
    struct error e = {0};
    float *plain, *with, *of_file, *single;
    size_t n;
    int layers;

    snprintf(base, sizeof base, "%s/tests/golden/families/grovemoe", support_root());
    snprintf(folder, sizeof folder, "%s/adjugate", support_tmpdir());
    snprintf(file, sizeof file, "%s/adjugate.gguf", support_tmpdir());
    plain = logits_of(base, NULL, 0, &n, &layers);
    ck_assert_msg(weight_file_open(&w, base, false, &e) == 0, "%s", e.text);
    ck_assert_int_gt(write_adapter(folder, w, layers, ADJUGATE), 3);
    weight_file_close(w);
    stack_adapter(folder, file, layers);
    with = logits_of(base, &a, 1, &n, &layers);
    of_file = logits_of(base, &stacked, 1, &n, &layers);
    single = chunked_logits(base, &a, 1, 1, &n, &layers);
    ck_assert_mem_eq(with, of_file, n * sizeof *with);
    ck_assert_mem_eq(with, single, n * sizeof *with);
    ck_assert_msg(largest(plain, with, n) > 1e-3, "moves logits by %g", largest(plain, with, n));
    free(plain), free(with), free(of_file), free(single);
    renumber(folder);
    ck_assert_int_eq(golden_engine_adapted(&g, base, &a, 1, NULL, 1, -1, true, &e), ERR_MODEL);
    ck_assert_msg(strstr(e.text, "adjugate expert 9; the model has"), "%s", e.text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("lora_families");
    TCase *t = tcase_create("lora_families"), *files = tcase_create("files");

    find_folders();
    tcase_set_timeout(t, 240);
    tcase_add_loop_test(t, adapted_is_merged, 0, n_folders);
    suite_add_tcase(s, t);
    tcase_add_test(files, adjugate_experts_of_files);
    suite_add_tcase(s, files);
    return support_run(s);
}
