/* --export-onnx: what is written is a sound graph whose weights lie where it says, onnxruntime
 * computes the golden numbers with it (where Python has that), what cannot be written is refused by
 * name, and a run that fails leaves nothing behind. */
#include "engine/base/mem.h"
#include "engine/convert/export.h"
#include "engine/convert/merge_folder.h"
#include "engine/convert/onnx/export_onnx.h"
#include "engine/convert/onnx/graph.h"
#include "engine/convert/onnx/store.h"
#include "engine/layout/pack.h"
#include "tests/golden_lora.h"
#include "tests/support.h"

#include <dirent.h>
#include <jansson.h>
#include <limits.h>
#include <onnx.pb-c.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct onnx_request plain = {.type = -1};
static struct onnx_report report;
static struct error e;

static const char *golden(const char *below)
{
    static char paths[4][PATH_MAX];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(paths[turn], PATH_MAX, "%s/tests/golden/%s", support_root(), below);
    return paths[turn];
}

static const char *in_tmp(const char *name)
{
    static char paths[4][PATH_MAX];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(paths[turn], PATH_MAX, "%s/%s", support_tmpdir(), name);
    return paths[turn];
}

static int entries(void)
{
    DIR *d = opendir(support_tmpdir());
    int n = 0;

    ck_assert_ptr_nonnull(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static char *whole(const char *folder, const char *name, size_t *n)
{
    char path[PATH_MAX], *data;
    struct stat st;
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "rb");
    ck_assert_msg(f && fstat(fileno(f), &st) == 0, "%s", path);
    ck_assert_ptr_nonnull(data = malloc((size_t)st.st_size + 1));
    ck_assert_uint_eq(fread(data, 1, (size_t)st.st_size, f), st.st_size);
    fclose(f);
    data[st.st_size] = 0;
    *n = (size_t)st.st_size;
    return data;
}

static void export(const char *in, const char *out, const struct onnx_request *r)
{
    e = (struct error){0};
    ck_assert_msg(export_onnx(in, out, r, &report, &e) == 0, "%s", e.text);
}

static Onnx__ModelProto *parse(const char *folder)
{
    size_t n;
    char *data = whole(folder, "model.onnx", &n);
    Onnx__ModelProto *m = onnx__model_proto__unpack(NULL, n, (const uint8_t *)data);

    ck_assert_ptr_nonnull(m);
    free(data);
    return m;
}

/* ---- the graph ---- */

static const char *entry(const Onnx__TensorProto *t, const char *key)
{
    for (size_t i = 0; i < t->n_external_data; i++)
        if (strcmp(t->external_data[i]->key, key) == 0)
            return t->external_data[i]->value;
    ck_abort_msg("%s has no %s", t->name, key);
}

static uint64_t bytes_of(const Onnx__TensorProto *t)
{
    uint64_t n = t->data_type == ONNX_INT64 ? 8 : t->data_type == ONNX_FLOAT ? 4 : 2;

    ck_assert_msg(t->data_type == ONNX_INT64 || t->data_type == ONNX_FLOAT ||
                      t->data_type == ONNX_FLOAT16 || t->data_type == ONNX_BFLOAT16,
                  "%s has the type %d", t->name, t->data_type);
    for (size_t d = 0; d < t->n_dims; d++) {
        ck_assert_int_gt(t->dims[d], 0);
        n *= (uint64_t)t->dims[d];
    }
    return n;
}

/* Inside its file, which is inside the folder; ours aligned. */
static void check_place(const char *folder, const Onnx__TensorProto *t)
{
    const char *location = entry(t, "location");
    uint64_t offset = strtoull(entry(t, "offset"), NULL, 10),
             length = strtoull(entry(t, "length"), NULL, 10);
    char path[PATH_MAX];
    struct stat st;

    ck_assert_msg(!strchr(location, '/') && location[0] != '.', "%s lies in %s", t->name, location);
    snprintf(path, sizeof path, "%s/%s", folder, location);
    ck_assert_msg(lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1,
                  "%s is no file of its own", path);
    ck_assert_msg(offset + length <= (uint64_t)st.st_size, "%s ends behind %s", t->name, location);
    ck_assert_uint_eq(length, bytes_of(t));
    if (strcmp(location, ONNX_DATA) == 0)
        ck_assert_uint_eq(offset % ONNX_ALIGN, 0);
}

static void check_tensors(const char *folder, const Onnx__GraphProto *g)
{
    for (size_t i = 0; i < g->n_initializer; i++) {
        const Onnx__TensorProto *t = g->initializer[i];

        for (size_t k = 0; k < i; k++)
            ck_assert_msg(strcmp(t->name, g->initializer[k]->name), "%s is there twice", t->name);
        if (t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
            check_place(folder, t);
        else
            ck_assert_msg(t->has_raw_data && t->raw_data.len == bytes_of(t), "%s", t->name);
    }
}

/* Names of values that are there, in the order of the nodes. */
static struct {
    const char *names[20000];
    int n;
} known;

static bool is_known(const char *name)
{
    for (int i = known.n; i-- > 0;)
        if (strcmp(known.names[i], name) == 0)
            return true;
    return false;
}

static void learn(const char *name)
{
    ck_assert_msg(!is_known(name), "%s is made twice", name);
    ck_assert_int_lt(known.n, 20000);
    known.names[known.n++] = name;
}

static int counted[3]; /* loops, com.microsoft's, all */

/* Nothing is read before it is made; a body sees what stands before its loop. */
static void check_nodes(const Onnx__GraphProto *g)
{
    int outer = known.n;

    for (size_t i = 0; i < g->n_initializer; i++)
        learn(g->initializer[i]->name);
    for (size_t i = 0; i < g->n_input; i++)
        learn(g->input[i]->name);
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *n = g->node[i];

        counted[0] += strcmp(n->op_type, "Loop") == 0;
        counted[1] += n->domain && strcmp(n->domain, "com.microsoft") == 0;
        counted[2]++;
        for (size_t k = 0; k < n->n_input; k++)
            ck_assert_msg(!n->input[k][0] || is_known(n->input[k]), "%s reads %s", n->name,
                          n->input[k]);
        for (size_t k = 0; k < n->n_attribute; k++)
            if (n->attribute[k]->g)
                check_nodes(n->attribute[k]->g);
        for (size_t k = 0; k < n->n_output; k++)
            learn(n->output[k]);
    }
    for (size_t i = 0; i < g->n_output; i++)
        ck_assert_msg(is_known(g->output[i]->name), "nothing makes %s", g->output[i]->name);
    if (outer)
        known.n = outer;
}

static const Onnx__TypeProto__Tensor *type_of(Onnx__ValueInfoProto **list, size_t n,
                                              const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i]->name, name) == 0)
            return list[i]->type->tensor_type;
    ck_abort_msg("there is no %s", name);
}

static void check_type(const Onnx__TypeProto__Tensor *t, int type, size_t n,
                       const char *const *lengths)
{
    ck_assert_int_eq(t->elem_type, type);
    ck_assert_uint_eq(t->shape->n_dim, n);
    for (size_t d = 0; d < n; d++)
        if (lengths[d])
            ck_assert_str_eq(t->shape->dim[d]->dim_param, lengths[d]);
        else
            ck_assert_int_gt(t->shape->dim[d]->dim_value, 0);
}

static void check_ends(const Onnx__GraphProto *g, int layers)
{
    static const char *const tokens[] = {"batch_size", "sequence_length", NULL},
                             *const mask[] = {"batch_size", "total_sequence_length"},
                             *const past[] = {"batch_size", NULL, "past_sequence_length", NULL},
                             *const present[] = {"batch_size", NULL, "total_sequence_length", NULL};
    char name[64];

    check_type(type_of(g->input, g->n_input, "input_ids"), ONNX_INT64, 2, tokens);
    check_type(type_of(g->input, g->n_input, "position_ids"), ONNX_INT64, 2, tokens);
    check_type(type_of(g->input, g->n_input, "attention_mask"), ONNX_INT64, 2, mask);
    check_type(type_of(g->output, g->n_output, "logits"), ONNX_FLOAT, 3, tokens);
    ck_assert_uint_eq(g->n_input, 3 + 2 * (size_t)layers);
    ck_assert_uint_eq(g->n_output, 1 + 2 * (size_t)layers);
    for (int l = 0; l < 2 * layers; l++) {
        snprintf(name, sizeof name, "past_key_values.%d.%s", l / 2, l % 2 ? "key" : "value");
        check_type(type_of(g->input, g->n_input, name), ONNX_FLOAT, 4, past);
        snprintf(name, sizeof name, "present.%d.%s", l / 2, l % 2 ? "key" : "value");
        check_type(type_of(g->output, g->n_output, name), ONNX_FLOAT, 4, present);
    }
}

static void check_genai(const char *folder, int layers)
{
    size_t n;
    char *text = whole(folder, "genai_config.json", &n);
    json_error_t why;
    json_t *root = json_loads(text, 0, &why), *decoder;

    ck_assert_msg(root != NULL, "%s", why.text);
    decoder = json_object_get(json_object_get(root, "model"), "decoder");
    ck_assert_str_eq(json_string_value(json_object_get(decoder, "filename")), "model.onnx");
    ck_assert_int_eq(json_integer_value(json_object_get(decoder, "num_hidden_layers")), layers);
    ck_assert(json_is_false(
        json_object_get(json_object_get(root, "search"), "past_present_share_buffer")));
    json_decref(root);
    free(text);
}

/* routed: layers with experts; shared: weights lie in a copy of the checkpoint's file. */
static const struct model_case {
    const char *folder;
    int routed;
    bool shared;
} cases[] = {
    {"phimoe/phimoe-quirk-f32", 3, true},  {"phimoe/phimoe-16x-bf16", 3, true},
    {"phimoe/phimoe-window-f32", 2, true}, {"families/qwen3_moe", 3, true},
    {"families/olmoe", 3, true},           {"families/llama", 0, true},
    {"families/gpt2", 0, false},           {"families/qwen2_moe", 3, true},
    {"families/qwen2_moe-step2", 2, true}, {"families/mixtral", 3, true},
    {"families/granitemoe", 3, true},      {"families/qwen3", 0, true},
    {"families/glm4_moe", 2, false},       {"families/ernie4_5_moe", 2, true},
};
#define CASES ((int)(sizeof cases / sizeof *cases))

static int layers_of(const char *in, int *routed)
{
    struct model *m;
    int layers;

    ck_assert_msg(model_describe(&m, in, NULL, &e) == 0, "%s", e.text);
    layers = m->hp.n_layers;
    for (int l = *routed = 0; l < layers; l++)
        *routed += hparams_layer(&m->hp, l)->ffn.experts > 0;
    model_free(m);
    return layers;
}

/* The copy is the checkpoint's file, byte for byte. */
static void check_copy(const char *in, const char *folder, bool shared)
{
    char path[PATH_MAX], *a, *b;
    size_t n, m;

    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ck_assert_int_eq(access(path, F_OK) == 0, shared);
    ck_assert_int_eq(report.shared > 0, shared);
    if (!shared)
        return;
    a = whole(in, "model.safetensors", &n);
    b = whole(folder, "model.safetensors", &m);
    ck_assert(n == m && memcmp(a, b, n) == 0);
    free(a);
    free(b);
}

/* experts: so many layers of it at least have them. */
static void check_folder(const char *in, const char *folder, int experts, bool microsoft)
{
    int routed, layers = layers_of(in, &routed);
    Onnx__ModelProto *m = parse(folder);

    memset(counted, 0, sizeof counted);
    known.n = 0;
    ck_assert_int_eq(m->ir_version, ONNX_IR);
    ck_assert_uint_eq(m->n_opset_import, microsoft ? 2 : 1);
    ck_assert_int_eq(m->opset_import[0]->version, ONNX_OPSET);
    ck_assert_str_eq(m->opset_import[0]->domain, "");
    check_tensors(folder, m->graph);
    check_nodes(m->graph);
    check_ends(m->graph, layers);
    check_genai(folder, layers);
    ck_assert_uint_gt(report.graph, 1000);
    ck_assert_int_eq(counted[0], microsoft ? 0 : routed);
    ck_assert_int_eq(counted[1], microsoft ? routed : 0);
    ck_assert_int_lt(counted[2], 130 * layers + 40);
    ck_assert_int_ge(routed, experts);
    onnx__model_proto__free_unpacked(m, NULL);
}

START_TEST(a_sound_graph)
{
    const struct model_case *c = &cases[_i];
    const char *in = golden(c->folder), *out = in_tmp("out");

    export(in, out, &plain);
    check_folder(in, out, c->routed, false);
    check_copy(in, out, c->shared);
    ck_assert_int_eq(access(in_tmp("out/config.json"), F_OK), 0);
}
END_TEST

START_TEST(microsofts_operator)
{
    static const char *const folders[] = {"phimoe/phimoe-quirk-f32", "families/qwen2_moe"};
    struct onnx_request r = {.type = -1, .microsoft = true};
    const char *in = golden(folders[_i]), *out = in_tmp("out");

    export(in, out, &r);
    check_folder(in, out, 1, true);
}
END_TEST

/* ---- the values ---- */

/* A tensor of the graph as F32; the caller frees. */
static float *values_of(const char *folder, const char *name, size_t *n)
{
    Onnx__ModelProto *m = parse(folder);
    float *out = NULL;

    for (size_t i = 0; i < m->graph->n_initializer; i++) {
        const Onnx__TensorProto *t = m->graph->initializer[i];
        enum dtype type = t->data_type == ONNX_FLOAT     ? DTYPE_F32
                          : t->data_type == ONNX_FLOAT16 ? DTYPE_F16
                                                         : DTYPE_BF16;
        size_t bytes;
        char *file;

        if (strcmp(t->name, name))
            continue;
        *n = bytes_of(t) / (type == DTYPE_F32 ? 4 : 2);
        ck_assert_ptr_nonnull(out = calloc(*n, sizeof *out));
        file = whole(folder, entry(t, "location"), &bytes);
        row_to_f32(type, file + strtoull(entry(t, "offset"), NULL, 10), (int64_t)*n, out);
        free(file);
    }
    onnx__model_proto__free_unpacked(m, NULL);
    ck_assert_msg(out != NULL, "there is no %s", name);
    return out;
}

static void same_values(const char *a, const char *b, const char *name)
{
    size_t n, m;
    float *x = values_of(a, name, &n), *y = values_of(b, name, &m);

    ck_assert_uint_eq(n, m);
    ck_assert_msg(memcmp(x, y, n * sizeof *x) == 0, "%s differs", name);
    free(x);
    free(y);
}

/* Adapters come in as --merge-lora in F32 brings them in, bit for bit, and the base's file is not
 * what they are read from. */
START_TEST(adapters_are_merged)
{
    struct adapter_request a[2] = {{golden("lora/phimoe/full"), 1.0f},
                                   {golden("lora/phimoe/attn"), 0.5f}};
    struct onnx_request r = {.type = -1, .adapters = a, .n_adapters = 2};
    const char *in = golden("phimoe/phimoe-quirk-f32");
    struct merge_report merged;

    export(in, in_tmp("adapted"), &r);
    check_folder(in, in_tmp("adapted"), 1, false);
    ck_assert_msg(merge_folder(in, in_tmp("merged"), DTYPE_F32, a, 2, NULL, NULL, &merged, &e) == 0,
                  "%s", e.text);
    export(in_tmp("merged"), in_tmp("of-merged"), &plain);
    same_values(in_tmp("adapted"), in_tmp("of-merged"), "layers.1.attention.q");
    same_values(in_tmp("adapted"), in_tmp("of-merged"), "layers.2.attention.o");
    same_values(in_tmp("adapted"), in_tmp("of-merged"), "embeddings");
}
END_TEST

/* Which type a model's matrices have. */
static int type_in(const char *folder, const char *name)
{
    Onnx__ModelProto *m = parse(folder);
    int type = 0;

    for (size_t i = 0; i < m->graph->n_initializer; i++)
        if (strcmp(m->graph->initializer[i]->name, name) == 0)
            type = m->graph->initializer[i]->data_type;
    onnx__model_proto__free_unpacked(m, NULL);
    return type;
}

START_TEST(types_are_kept_or_chosen)
{
    static const struct {
        const char *folder;
        int asked, written;
    } t[] = {
        {"phimoe/phimoe-quirk-f32", -1, ONNX_FLOAT},
        {"phimoe/phimoe-quirk-f32", DTYPE_F16, ONNX_FLOAT16},
        {"phimoe/phimoe-16x-bf16", -1, ONNX_BFLOAT16},
        {"phimoe/phimoe-16x-bf16", DTYPE_F32, ONNX_FLOAT},
        {"phimoe/phimoe-16x-bf16", DTYPE_F16, ONNX_FLOAT16},
        {"families/qwen3_moe-gptq-g32-act", -1, ONNX_FLOAT},
    };
    struct onnx_request r = {.type = t[_i].asked};
    const char *in = golden(t[_i].folder), *out = in_tmp("out");

    export(in, out, &r);
    check_folder(in, out, 1, false);
    ck_assert_int_eq(type_in(out, "layers.0.attention.q"), t[_i].written);
    ck_assert_int_eq(type_in(out, "layers.0.experts"), t[_i].written);
}
END_TEST

/* ---- what onnxruntime makes of it ---- */

static bool has_runtime(void)
{
    if (system("python3 -c 'import numpy, onnxruntime' 2>/dev/null") == 0)
        return true;
    support_skip("python3 has no numpy and onnxruntime");
    return false;
}

static void check_logits(const char *folder, const char *numbers, const char *key,
                         const char *tolerance)
{
    char command[4 * PATH_MAX], line[400];
    FILE *f;

    snprintf(command, sizeof command, "python3 '%s/tests/tools/onnx_check.py' '%s' '%s' %s %s 2>&1",
             support_root(), folder, numbers, key, tolerance);
    ck_assert_ptr_nonnull(f = popen(command, "r"));
    while (fgets(line, sizeof line, f))
        ck_assert_msg(strncmp(line, "BAD", 3) && !strstr(line, "Error"), "%s: %s", folder, line);
    ck_assert_int_eq(pclose(f), 0);
}

START_TEST(onnxruntime_computes_the_golden_numbers)
{
    struct onnx_request r = {.type = -1, .microsoft = _i >= CASES};
    const char *in = golden(cases[_i % CASES].folder), *out = in_tmp("out");
    char numbers[PATH_MAX];
    int routed;

    (void)layers_of(in, &routed);
    if ((r.microsoft && !routed) || !has_runtime())
        return;
    snprintf(numbers, sizeof numbers, "%s/golden.safetensors", in);
    export(in, out, &r);
    check_logits(out, numbers, "logits", "1e-4");
}
END_TEST

/* Every way an adapter may come: the folders and GGUF files of each family. */
START_TEST(onnxruntime_computes_adapters)
{
    static const char *const folders[] = {"lora/phimoe", "lora/qwen3_moe", "lora/llama",
                                          "lora/gpt2"};
    struct golden_lora_way ways[GOLDEN_LORA_WAYS];
    char base[PATH_MAX], numbers[PATH_MAX], out[PATH_MAX];
    int n;

    if (!has_runtime())
        return;
    snprintf(numbers, sizeof numbers, "%s/golden.safetensors", golden(folders[_i]));
    n = golden_lora_ways(golden(folders[_i]), base, sizeof base, ways);
    ck_assert_int_gt(n, 0);
    for (int i = 0; i < n; i++) {
        struct onnx_request r = {.type = -1, .adapters = ways[i].adapters, .n_adapters = ways[i].n};

        snprintf(out, sizeof out, "%s/out%d", support_tmpdir(), i);
        export(base, out, &r);
        check_logits(out, numbers, ways[i].logits, "1e-4");
    }
    golden_lora_release(ways, n);
}
END_TEST

/* GGUF files have some families' rotated pairs side by side, and experts in one tensor. */
START_TEST(gguf_files_are_read)
{
    static const char *const folders[] = {"families/llama", "families/mixtral",
                                          "families/qwen3_moe", "phimoe/phimoe-16x-bf16"};
    struct export_options o = {.type = export_type_find("f32"), .n_threads = 1};
    static struct export_report exported;
    const char *in = golden(folders[_i]), *file = in_tmp("model.gguf"), *out = in_tmp("out");
    char numbers[PATH_MAX];

    ck_assert_msg(model_export(in, file, &o, &exported, &e) == 0, "%s", e.text);
    export(file, out, &plain);
    check_folder(file, out, 0, false);
    ck_assert_uint_eq(report.shared, 0);
    snprintf(numbers, sizeof numbers, "%s/golden.safetensors", in);
    if (has_runtime())
        check_logits(out, numbers, "logits", "1e-4");
}
END_TEST

/* What was rounded becomes the F32 that it stands for. */
START_TEST(rounded_weights_are_widened)
{
    struct export_options o = {.type = export_type_find("q8_0"), .n_threads = 1};
    static struct export_report exported;
    const char *in = golden("phimoe/phimoe-quirk-f32");
    char *a, *b;
    size_t n, m;

    ck_assert_msg(model_export(in, in_tmp("q8.gguf"), &o, &exported, &e) == 0, "%s", e.text);
    support_widen(in_tmp("q8.gguf"), in_tmp("f32.gguf"));
    export(in_tmp("q8.gguf"), in_tmp("a"), &plain);
    export(in_tmp("f32.gguf"), in_tmp("b"), &plain);
    a = whole(in_tmp("a"), ONNX_DATA, &n);
    b = whole(in_tmp("b"), ONNX_DATA, &m);
    ck_assert(n == m && n > 300000 && memcmp(a, b, n) == 0);
    free(a);
    free(b);
}
END_TEST

/* BF16 weights fit into F16 but for the smallest; a router's choice must not hang on those. */
START_TEST(halves_come_close)
{
    struct onnx_request r = {.type = DTYPE_F16};
    const char *in = golden(_i ? "families/qwen3_moe" : "families/llama"), *out = in_tmp("out");
    char numbers[PATH_MAX];

    if (!has_runtime())
        return;
    snprintf(numbers, sizeof numbers, "%s/golden.safetensors", in);
    export(in, out, &r);
    check_logits(out, numbers, "logits", "1e-3");
}
END_TEST

/* ---- what is refused ---- */

static const struct {
    const char *folder, *because;
} refused[] = {
    {"families/deepseek_v2", "latent attention (MLA)"},
    {"families/gpt_oss", "attention sinks"},
    {"families/qwen3_next", "a gated delta net"},
    {"families/nemotron_h", "a Mamba 2 mixer"},
    {"families/lfm2_moe", "a short convolution"},
    {"families/gemma4", "values that are keys"},
    {"families/opt-350m", "embeddings of another width"},
    {"families/bailing_hybrid", "Kimi delta attention"},
    {"phimoe/phimoe-longrope-f32", "longrope"},
};
#define REFUSED ((int)(sizeof refused / sizeof *refused))

START_TEST(what_cannot_be_written_is_refused_by_name)
{
    const char *in = golden(refused[_i].folder);
    int before = entries();

    if (access(in, F_OK)) {
        support_skip("%s is not here", refused[_i].folder);
        return;
    }
    ck_assert_int_eq(export_onnx(in, in_tmp("out"), &plain, &report, &e), ERR_MODEL);
    ck_assert_msg(strstr(e.text, refused[_i].because), "%s", e.text);
    ck_assert_msg(strstr(e.text, refused[_i].folder), "%s", e.text);
    ck_assert_int_eq(entries(), before);
}
END_TEST

static void refuse(const char *in, const char *out, const struct onnx_request *r, int code,
                   const char *says)
{
    int before = entries();

    ck_assert_int_eq(export_onnx(in, out, r, &report, &e), code);
    ck_assert_msg(strstr(e.text, says), "%s", e.text);
    ck_assert_int_eq(entries(), before);
}

START_TEST(places_that_do_not_do)
{
    const char *in = golden("phimoe/phimoe-quirk-f32");
    struct adapter_request a = {"/nonexistent", 1.0f};
    struct onnx_request r = {.type = -1, .adapters = &a, .n_adapters = 1};
    FILE *f;

    refuse("/nonexistent", in_tmp("out"), &plain, ERR_IO, "/nonexistent");
    refuse(in, "/nonexistent/out", &plain, ERR_IO, "/nonexistent/out");
    refuse(in, in, &plain, ERR_USAGE, "is there already");
    refuse(in, "", &plain, ERR_USAGE, "no name");
    refuse(in, in_tmp("out"), &r, ERR_IO, "/nonexistent");
    f = fopen(in_tmp("file"), "w");
    ck_assert(f && fclose(f) == 0);
    refuse(in, in_tmp("file"), &plain, ERR_USAGE, "is there already");
    /* an empty folder is one to write into; a slash behind its name does not matter */
    ck_assert_int_eq(mkdir(in_tmp("out"), 0700), 0);
    export(in, in_tmp("out/"), &plain);
    refuse(in, in_tmp("out"), &plain, ERR_USAGE, "is there already");
}
END_TEST

static int cancel(void *ctx, uint64_t done, uint64_t total)
{
    ck_assert_uint_le(done, total);
    return 1;
}

START_TEST(nothing_half_written)
{
    struct onnx_request r = {.type = DTYPE_F32, .microsoft = _i, .progress = cancel};
    const char *in = golden("phimoe/phimoe-16x-bf16");
    struct rlimit limit = {200000, 200000};

    refuse(in, in_tmp("out"), &r, ERR_CANCELLED, "interrupted");
    r.type = -1;
    refuse(in, in_tmp("out"), &r, ERR_CANCELLED, "interrupted");
    r.progress = NULL;
    signal(SIGXFSZ, SIG_IGN); /* as a full disk: no file beyond 200 kB */
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    refuse(in, in_tmp("out"), &r, ERR_IO, "cannot write");
    r.type = DTYPE_F32;
    refuse(in, in_tmp("out"), &r, ERR_IO, "cannot write");
}
END_TEST

/* Memory that ends at any point leaves one line and nothing else. */
START_TEST(out_of_memory)
{
    const char *in = golden("phimoe/phimoe-quirk-f32");
    int before = entries(), rc = -1;

    for (long n = 0; rc; n += 1 + n / 12) {
        mem_fail_after(n);
        rc = export_onnx(in, in_tmp("out"), &plain, &report, &e);
        mem_fail_after(-1);
        if (rc) {
            ck_assert_msg(rc == ERR_MEMORY && e.text[0], "%ld: %d %s", n, rc, e.text);
            ck_assert_int_eq(entries(), before);
        }
    }
    check_folder(in, in_tmp("out"), 1, false);
}
END_TEST

/* A copy of the folder with a weight of 70000. */
START_TEST(a_value_beyond_f16_is_named)
{
    struct onnx_request r = {.type = DTYPE_F16};
    const char *in = golden("phimoe/phimoe-quirk-f32");
    char command[3 * PATH_MAX];
    const float big = 70000.0f;
    FILE *f;

    snprintf(command, sizeof command, "mkdir '%s' && cp '%s'/[cm]*.* '%s'", in_tmp("big"), in,
             in_tmp("big"));
    ck_assert_int_eq(system(command), 0);
    f = fopen(in_tmp("big/model.safetensors"), "r+b");
    ck_assert(f && fseek(f, 60000, SEEK_SET) == 0 && fwrite(&big, sizeof big, 1, f) == 1 &&
              fclose(f) == 0);
    refuse(in_tmp("big"), in_tmp("out"), &r, ERR_VALUE, "layers.0.experts");
    r.type = DTYPE_BF16;
    export(in_tmp("big"), in_tmp("out"), &r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("onnx_export");
    TCase *c = tcase_create("all");

    tcase_set_timeout(c, 600);
    tcase_add_loop_test(c, a_sound_graph, 0, CASES);
    tcase_add_loop_test(c, microsofts_operator, 0, 2);
    tcase_add_test(c, adapters_are_merged);
    tcase_add_loop_test(c, types_are_kept_or_chosen, 0, 6);
    tcase_add_loop_test(c, onnxruntime_computes_the_golden_numbers, 0, 2 * CASES);
    tcase_add_loop_test(c, onnxruntime_computes_adapters, 0, 4);
    tcase_add_loop_test(c, gguf_files_are_read, 0, 4);
    tcase_add_test(c, rounded_weights_are_widened);
    tcase_add_loop_test(c, halves_come_close, 0, 2);
    tcase_add_loop_test(c, what_cannot_be_written_is_refused_by_name, 0, REFUSED);
    tcase_add_test(c, places_that_do_not_do);
    tcase_add_loop_test(c, nothing_half_written, 0, 2);
    tcase_add_test(c, out_of_memory);
    tcase_add_test(c, a_value_beyond_f16_is_named);
    suite_add_tcase(s, c);
    return support_run(s);
}
