/* An adapter of every linear module that a family's file has, by its name there: it is computed as
 * the same change merged into the weights is. */
#include "engine/adapter/adapter.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/convert/export.h"
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
#define SESSIONS 100 /* two blocks of rows (CPU_TOKEN_BLOCK) */

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
        bool adapted = is_linear(t, layers) && (!only || strstr(t->name, only));

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

/* The projections of an identity, which the official code allocates and does not use. */
static bool is_of_identity(const char *model, const char *name)
{
    return strstr(model, "longcat_flash") &&
           (strstr(name, ".experts.3.") || strstr(name, ".experts.4."));
}

/* What is named as not computed, and nothing else. */
static void check_unplaced(const char *model, const char *names)
{
    static const char *const known[] = {
        "gate.lora_",                 /* also shared_expert_gate */
        "gate.wg.lora_", "mlp.gate.", /* of zaya, whose router is several */
        "router.",       "altup",     "decoder.project_", "mtp_"};
    char *copy = strdup(names ? names : ""), *rest = copy, *name;

    while ((name = strtok_r(rest, ", ", &rest))) {
        bool found = is_of_identity(model, name);

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
        check_unplaced(model, adapters_at(engine_info(g)->adapters, 0)->unplaced);
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

/* false: folders of this family are not written as files. */
static bool export_to(const char *base, const struct adapter_request *a, const char *file)
{
    struct export_options o = {
        .type = export_type_find("f32"), .n_threads = 2, .adapters = a, .n_adapters = a != NULL};
    struct export_report report;
    struct error e = {0};

    if (model_export(base, file, &o, &report, &e) == 0)
        return true;
    ck_assert_msg(strstr(e.text, "not written yet") != NULL, "%s: %s", base, e.text);
    return false;
}

static void check_file(const char *file, const struct adapter_request *a, const float *with,
                       size_t n, const char *folder, const char *how)
{
    int layers;
    float *in = logits_of(file, a, a != NULL, &n, &layers);

    printf("%s: %s a GGUF file off by %.3g\n", folder, how, largest(with, in, n));
    ck_assert_msg(largest(with, in, n) <= golden_tolerance(folder), "%s: %s a GGUF file: off by %g",
                  folder, how, largest(with, in, n));
    free(in);
}

/* Latent attention's keys and values are apart in GGUF files: merged there too. */
static void check_merged_file(const char *base, const struct adapter_request *a, const float *with,
                              size_t n, const char *folder)
{
    char file[PATH_MAX];

    snprintf(file, sizeof file, "%s/merged.gguf", support_tmpdir());
    ck_assert(export_to(base, a, file));
    check_file(file, NULL, with, n, folder, "in");
}

/* The folder's adapter on the model's GGUF file, whose rows may be ordered otherwise. */
static void check_on_file(const char *base, const struct adapter_request *a, const float *with,
                          size_t n, const char *folder)
{
    char file[PATH_MAX];

    snprintf(file, sizeof file, "%s/%s.gguf", support_tmpdir(), folder);
    if (export_to(base, NULL, file))
        check_file(file, a, with, n, folder, "on");
}

static bool is_latent(const struct weight_file *w)
{
    for (size_t i = 0; i < weight_file_count(w); i++)
        if (strstr(weight_file_at(w, i)->name, "kv_b_proj"))
            return true;
    return false;
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
    bool latent;

    snprintf(base, sizeof base, "%s/tests/golden/families/%s", support_root(), folders[_i]);
    snprintf(adapter, sizeof adapter, "%s/adapter", support_tmpdir());
    snprintf(merged, sizeof merged, "%s/merged", support_tmpdir());
    ck_assert_msg(weight_file_open(&w, base, false, &e) == 0, "%s", e.text);
    plain = logits_of(base, NULL, 0, &n, &layers);
    modules = write_adapter(adapter, w, layers, NULL);
    latent = is_latent(w);
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
    if (latent)
        check_merged_file(base, &a, with, n, folders[_i]);
    check_on_file(base, &a, with, n, folders[_i]);
    free(plain), free(with), free(in);
}
END_TEST

static struct engine *open_adapted(const char *model, const struct adapter_request *a, int n,
                                   const char *kernels, int convert)
{
    struct engine *g = NULL;
    struct error e = {0};

    ck_assert_msg(golden_engine_adapted(&g, model, a, n, kernels, 2, convert, false, &e) == 0,
                  "%s: %s", model, e.text);
    return g;
}

/* Logits of the prompt in such chunks. */
static float *chunked(struct engine *g, int chunk)
{
    int ids[PROMPT], vocab = engine_info(g)->model->hp.n_vocab;
    float *logits = calloc((size_t)PROMPT * (size_t)vocab, sizeof *logits);
    struct error e = {0};

    for (int i = 0; i < PROMPT; i++)
        ids[i] = (7 * i + 3) % vocab;
    engine_session_forget(engine_session(g));
    ck_assert_msg(engine_session_eval(engine_session(g), ids, PROMPT, chunk, logits, true, &e) == 0,
                  "%s", e.text);
    return logits;
}

static void check_same(const float *want, float *got, size_t n, const char *folder, const char *how)
{
    ck_assert_msg(memcmp(want, got, n * sizeof *want) == 0, "%s: other bits %s", folder, how);
    free(got);
}

/* Logits of id 9 behind the token that the session has. */
static float *next_of(struct session *s, int vocab)
{
    float *logits = calloc((size_t)vocab, sizeof *logits);
    struct error e = {0};

    ck_assert_msg(engine_session_eval(s, &(int){9}, 1, 1, logits, false, &e) == 0, "%s", e.text);
    return logits;
}

/* Without a period, so that rows of one block are unlike those of another. */
static bool is_without(int session)
{
    return (unsigned)session * 2654435761u >> 31;
}

/* A pass of many sessions, some of which are without the adapter: each as alone. */
static void check_beside(struct engine *g, struct engine *plain, const char *folder)
{
    int vocab = engine_info(g)->model->hp.n_vocab, ids[SESSIONS];
    float none[LORA_ADAPTERS] = {0}, *want[2];
    struct session *all[SESSIONS];
    struct error e = {0};

    for (int i = 0; i < SESSIONS; i++) {
        ck_assert_msg(engine_session_open(g, &all[i], &e) == 0, "%s", e.text);
        if (is_without(i))
            engine_session_strengths_set(all[i], none);
        ids[i] = 5;
    }
    ck_assert_msg(engine_sessions_eval(all, SESSIONS, ids, &e) == 0, "%s", e.text);
    for (int i = 0; i < 2; i++) {
        struct engine *of = i ? plain : g;

        engine_session_forget(engine_session(of));
        ck_assert_int_eq(engine_eval(of, &(int){5}, 1, NULL, false, &e), 0);
        want[i] = next_of(engine_session(of), vocab);
    }
    ck_assert(memcmp(want[0], want[1], (size_t)vocab * sizeof **want) != 0);
    for (int i = 0; i < SESSIONS; i++) {
        if (i < 4 || i >= SESSIONS - 8)
            check_same(want[is_without(i)], next_of(all[i], vocab), (size_t)vocab, folder,
                       "beside other sessions");
        engine_session_close(all[i]);
    }
    free(want[0]), free(want[1]);
}

/* Chunks, kernels and sessions, on float and quantised bases. */
static void check_bits(const char *base, const char *folder, int convert)
{
    static const char *const sets[] = {"scalar", "avx2"};
    struct engine *g, *plain = open_adapted(base, NULL, 0, NULL, convert);
    const struct hparams *hp = &engine_info(plain)->model->hp;
    size_t n = (size_t)PROMPT * (size_t)hp->n_vocab;
    struct weight_file *w = NULL;
    char adapter[PATH_MAX];
    struct adapter_request a = {adapter, 1.0f};
    struct error e = {0};
    float *want;

    snprintf(adapter, sizeof adapter, "%s/adapter", support_tmpdir());
    ck_assert_msg(weight_file_open(&w, base, false, &e) == 0, "%s", e.text);
    write_adapter(adapter, w, hp->n_layers, NULL);
    weight_file_close(w);
    g = open_adapted(base, &a, 1, NULL, convert);
    want = chunked(g, PROMPT);
    check_same(want, chunked(g, 1), n, folder, "one by one");
    check_same(want, chunked(g, 7), n, folder, "in chunks of 7");
    engine_close(g);
    for (int i = 0; i < 2; i++) {
        g = open_adapted(base, &a, 1, sets[i], convert);
        check_same(want, chunked(g, 5), n, folder, sets[i]);
        if (i) /* AMX has one block */
            check_beside(g, plain, folder);
        engine_close(g);
    }
    engine_close(plain);
    free(want);
}

START_TEST(bits_are_the_same)
{
    const char *folder = folders[_i / 2];
    char base[PATH_MAX];

    snprintf(base, sizeof base, "%s/tests/golden/families/%s", support_root(), folder);
    check_bits(base, folder, _i % 2 ? DTYPE_Q8_0 : -1);
}
END_TEST

/* deepseek_v3 with keys of 32, so that all of its latent attention is quantised: all values
 * are drawn. */
static void write_wide_keys(const char *from, const char *to)
{
    char path[PATH_MAX + 64], *text;
    struct weight_file *w = NULL;
    json_t *root = json_object(), *config;
    struct error e = {0};
    uint64_t at = 0, length;
    unsigned seed = 5;
    FILE *f;

    mkdir(to, 0755);
    snprintf(path, sizeof path, "%s/config.json", from);
    ck_assert((config = json_load_file(path, 0, NULL)) != NULL);
    json_object_set_new(config, "qk_nope_head_dim", json_integer(32));
    json_object_set_new(config, "qk_head_dim",
                        json_integer(
                            32 + json_integer_value(json_object_get(config, "qk_rope_head_dim"))));
    snprintf(path, sizeof path, "%s/config.json", to);
    ck_assert_int_eq(json_dump_file(config, path, 0), 0);
    ck_assert_msg(weight_file_open(&w, from, false, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < weight_file_count(w); i++) {
        const struct tensor_view *t = weight_file_at(w, i);
        int64_t heads = json_integer_value(json_object_get(config, "num_attention_heads")),
                each = json_integer_value(json_object_get(
                    config, strstr(t->name, "kv_b_proj") ? "v_head_dim" : "qk_rope_head_dim"));
        bool drawn = strstr(t->name, "kv_b_proj") || strstr(t->name, "q_b_proj");
        json_t *shape = json_array();
        int64_t n = 1;

        for (int d = 0; d < t->n_dims; d++) {
            int64_t dim = d == 0 && drawn ? heads * (32 + each) : t->dims[d];

            json_array_append_new(shape, json_integer((json_int_t)dim));
            n *= dim;
        }
        json_object_set_new(root, t->name,
                            json_pack("{s:s, s:o, s:[I,I]}", "dtype", "F32", "shape", shape,
                                      "data_offsets", (json_int_t)at, (json_int_t)(at + 4 * n)));
        at += (uint64_t)(4 * n);
    }
    json_decref(config);
    text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    ck_assert((f = fopen(path, "wb")) != NULL);
    length = strlen(text);
    fwrite(&length, 1, sizeof length, f);
    fwrite(text, 1, length, f);
    write_values(f, at / 4, &seed);
    fclose(f);
    free(text);
    weight_file_close(w);
}

START_TEST(keys_of_heads_may_be_quantised)
{
    char from[PATH_MAX], to[PATH_MAX];

    snprintf(from, sizeof from, "%s/tests/golden/families/deepseek_v3", support_root());
    snprintf(to, sizeof to, "%s/wide", support_tmpdir());
    write_wide_keys(from, to);
    check_bits(to, "deepseek_v3 with wide keys", DTYPE_Q8_0);
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

/* what: the number of layers. */
static void put_stacked(struct gguf_writer *w, const struct weight_file *f, const void *what,
                        bool values)
{
    int layers = *(const int *)what;
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

/* Names the tensors of an adapter, or writes their values. */
typedef void put_fn(struct gguf_writer *w, const struct weight_file *f, const void *what,
                    bool values);

/* The adapter as a GGUF file. */
static void file_adapter(const char *folder, const char *out, const char *arch, put_fn *put,
                         const void *what)
{
    struct error e = {0};
    struct weight_file *f = NULL;
    struct gguf_writer *w = NULL;
    char path[PATH_MAX + 64];

    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    ck_assert_msg(weight_file_open(&f, path, false, &e) == 0, "%s", e.text);
    ck_assert_msg(gguf_write_open(&w, out, &e) == 0, "%s", e.text);
    gguf_put_string(w, "general.type", "adapter", 7);
    gguf_put_string(w, "general.architecture", arch, strlen(arch));
    gguf_put_string(w, "adapter.type", "lora", 4);
    gguf_put_f32(w, "adapter.lora.alpha", (float)atoi(SCALE));
    put(w, f, what, false);
    ck_assert_int_eq(gguf_write_begin(w, &e), 0);
    put(w, f, what, true);
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
    file_adapter(folder, file, "grovemoe", put_stacked, &layers);
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

/* ---- A GGUF adapter on a folder, whose mixer is no plain attention ---- */

static const struct renamed {
    const char *folder, *arch, *module, *name;
    bool refused; /* a gated delta net's heads are elsewhere */
} renamed[] = {{"deepseek_v3", "deepseek2", "self_attn.q_b_proj", "attn_q_b", false},
               {"kimi_linear", "kimi-linear", "self_attn.v_proj", "attn_v", false},
               {"jamba", "jamba", "mamba.in_proj", "ssm_in", false},
               {"granitemoehybrid", "granitehybrid", "mamba.in_proj", "ssm_in", false},
               {"qwen3_5", "qwen35", "linear_attn.in_proj_qkv", "attn_qkv", true}};

/* what: struct renamed. */
static void put_renamed(struct gguf_writer *w, const struct weight_file *f, const void *what,
                        bool values)
{
    const struct renamed *r = what;
    struct error e = {0};
    char name[200];

    for (size_t i = 0; i < weight_file_count(f); i++) {
        const struct tensor_view *t = weight_file_at(f, i);
        const char *layer = strstr(t->name, "layers.");

        ck_assert_ptr_nonnull(layer);
        snprintf(name, sizeof name, "blk.%d.%s.weight.lora_%c", atoi(layer + strlen("layers.")),
                 r->name, strstr(t->name, ".lora_A.") ? 'a' : 'b');
        if (values)
            ck_assert_int_eq(gguf_write_data(w, t->data, t->bytes, &e), 0);
        else
            gguf_write_tensor(w, name, DTYPE_F32, 2, t->dims);
    }
}

START_TEST(mixers_of_files)
{
    const struct renamed *r = &renamed[_i];
    char base[PATH_MAX], folder[PATH_MAX], file[PATH_MAX];
    struct adapter_request a = {folder, 1.0f}, of_file = {file, 1.0f};
    struct weight_file *w = NULL;
    struct engine *g = NULL;
    struct error e = {0};
    float *plain, *with, *same;
    size_t n;
    int layers;

    snprintf(base, sizeof base, "%s/tests/golden/families/%s", support_root(), r->folder);
    snprintf(folder, sizeof folder, "%s/mixer", support_tmpdir());
    snprintf(file, sizeof file, "%s/mixer.gguf", support_tmpdir());
    plain = logits_of(base, NULL, 0, &n, &layers);
    ck_assert_msg(weight_file_open(&w, base, false, &e) == 0, "%s", e.text);
    ck_assert_int_gt(write_adapter(folder, w, layers, r->module), 0);
    weight_file_close(w);
    file_adapter(folder, file, r->arch, put_renamed, r);
    if (r->refused) {
        ck_assert_int_eq(golden_engine_adapted(&g, base, &of_file, 1, NULL, 1, -1, true, &e),
                         ERR_MODEL);
        ck_assert_msg(strstr(e.text, "orders otherwise") != NULL, "%s", e.text);
        free(plain);
        return;
    }
    with = logits_of(base, &a, 1, &n, &layers);
    same = logits_of(base, &of_file, 1, &n, &layers);
    ck_assert_mem_eq(with, same, n * sizeof *with);
    ck_assert_msg(largest(plain, with, n) > 1e-4, "moves logits by %g", largest(plain, with, n));
    free(plain), free(with), free(same);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("lora_families");
    TCase *t = tcase_create("lora_families"), *files = tcase_create("files");

    find_folders();
    tcase_set_timeout(t, 240);
    tcase_add_loop_test(t, adapted_is_merged, 0, n_folders);
    tcase_add_loop_test(t, bits_are_the_same, 0, 2 * n_folders);
    tcase_add_test(t, keys_of_heads_may_be_quantised);
    suite_add_tcase(s, t);
    tcase_add_test(files, adjugate_experts_of_files);
    tcase_add_loop_test(files, mixers_of_files, 0, sizeof renamed / sizeof renamed[0]);
    suite_add_tcase(s, files);
    return support_run(s);
}
