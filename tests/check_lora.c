/* Adapters: golden numbers from every format, the same bits under every chunking, thread count,
 * kernel set and company, what is refused and why, and files that are damaged or mean harm. */
#include "engine/adapter/adapter.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/convert/export.h"
#include "engine/convert/merge_folder.h"
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/file/gguf_write.h"
#include "engine/layout/pack.h"
#include "engine/run/engine.h"
#include "tests/golden.h"
#include "tests/golden_lora.h"
#include "tests/support.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const families_of[] = {"phimoe", "qwen3_moe", "llama", "gpt2"};
static const char *const bases[] = {"phimoe/phimoe-quirk-f32", "families/qwen3_moe",
                                    "families/llama", "families/gpt2"};

static void lora_path(char out[PATH_MAX], const char *family, const char *adapter)
{
    snprintf(out, PATH_MAX, "%s/tests/golden/lora/%s/%s", support_root(), family, adapter);
}

static void base_path(char out[PATH_MAX], int i)
{
    snprintf(out, PATH_MAX, "%s/tests/golden/%s", support_root(), bases[i]);
}

/* ---- golden numbers ---- */

START_TEST(golden_numbers)
{
    struct golden_lora_way ways[GOLDEN_LORA_WAYS];
    char folder[PATH_MAX], base[PATH_MAX], path[PATH_MAX], why[PATH_MAX + 64];
    int n;

    lora_path(folder, families_of[_i], "");
    lora_path(path, families_of[_i], "golden.safetensors");
    n = golden_lora_ways(folder, base, sizeof base, ways);
    ck_assert_int_ge(n, 6);
    for (int k = 0; k < n; k++) {
        struct golden golden;
        struct golden_result r;
        struct engine *g = NULL;
        struct error e = {0};

        ck_assert_msg(golden_open_logits(&golden, path, ways[k].logits, why, sizeof why) == 0, "%s",
                      why);
        ck_assert_msg(golden_engine_adapted(&g, base, ways[k].adapters, ways[k].n, NULL, 2, -1,
                                            true, &e) == 0,
                      "%s: %s", ways[k].text, e.text);
        ck_assert_msg(golden_compare(g, &golden, &r, &e) == 0, "%s", e.text);
        ck_assert_msg(r.whole <= GOLDEN_TOLERANCE, "%s: %g", ways[k].text, r.whole);
        ck_assert_msg(r.chunked <= GOLDEN_TOLERANCE, "%s: %g", ways[k].text, r.chunked);
        ck_assert_msg(r.stepped <= GOLDEN_TOLERANCE, "%s: %g", ways[k].text, r.stepped);
        ck_assert(r.has_greedy && r.greedy_agrees);
        engine_close(g);
        golden_close(&golden);
    }
    golden_lora_release(ways, n);
}
END_TEST

/* ---- the same bits ---- */

#define PROMPT 40

struct run {
    float *logits; /* (PROMPT, n_vocab) */
    size_t n;
};

static struct engine *open_adapted(const char *base, const struct adapter_request *a, int n,
                                   const char *kernels, int threads, int convert)
{
    struct engine *g = NULL;
    struct error e = {0};

    ck_assert_msg(golden_engine_adapted(&g, base, a, n, kernels, threads, convert, false, &e) == 0,
                  "%s", e.text);
    return g;
}

static void prompt_of(const struct engine *g, int ids[PROMPT])
{
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (7 * i + 3) % engine_info(g)->model->hp.n_vocab;
}

static struct run run_session(struct engine *g, struct session *s, int chunk)
{
    struct run r = {.n = (size_t)PROMPT * (size_t)engine_info(g)->model->hp.n_vocab};
    struct error e = {0};
    int ids[PROMPT];

    prompt_of(g, ids);
    r.logits = calloc(r.n, sizeof *r.logits);
    engine_session_forget(s);
    ck_assert_msg(engine_session_eval(s, ids, PROMPT, chunk, r.logits, true, &e) == 0, "%s",
                  e.text);
    return r;
}

static void same_run(struct run a, struct run b, const char *what)
{
    ck_assert_uint_eq(a.n, b.n);
    ck_assert_msg(memcmp(a.logits, b.logits, a.n * sizeof *a.logits) == 0, "%s: other bits", what);
    free(b.logits);
}

static void other_run(struct run a, struct run b)
{
    ck_assert(memcmp(a.logits, b.logits, a.n * sizeof *a.logits) != 0);
    free(b.logits);
}

static const int conversions[] = {-1, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0};

/* Chunks, threads and kernels, on float and quantised bases. */
START_TEST(bits_are_the_same)
{
    char full[PATH_MAX], attn[PATH_MAX], base[PATH_MAX];
    struct adapter_request a[2] = {{full, 0.7f}, {attn, -0.4f}};
    static const char *const sets[] = {"scalar", "avx2", NULL};
    int family = _i / 4, convert = conversions[_i % 4];
    struct engine *g;
    struct run want;

    lora_path(full, families_of[family], "full");
    lora_path(attn, families_of[family], "attn");
    base_path(base, family);
    g = open_adapted(base, a, 2, NULL, 2, convert);
    want = run_session(g, engine_session(g), PROMPT);
    same_run(want, run_session(g, engine_session(g), 1), "one by one");
    same_run(want, run_session(g, engine_session(g), 7), "chunks of 7");
    engine_close(g);
    for (int k = 0; sets[k]; k++) {
        g = open_adapted(base, a, 2, sets[k], 1 + 2 * k, convert);
        same_run(want, run_session(g, engine_session(g), 5), sets[k]);
        engine_close(g);
    }
    free(want.logits);
}
END_TEST

/* A session's numbers are its own, whatever strengths those beside it have; strength 0 is as
 * without the adapter, and what was computed under another strength is forgotten. */
START_TEST(strengths_are_the_sessions)
{
    char full[PATH_MAX], base[PATH_MAX];
    struct adapter_request a = {full, 1.0f};
    float none[LORA_ADAPTERS] = {0}, half[LORA_ADAPTERS] = {0.5f}, one[LORA_ADAPTERS] = {1.0f};
    struct engine *g, *plain;
    struct session *beside, *pair[2];
    struct run with, without;
    struct error e = {0};
    int convert = _i ? DTYPE_Q8_0 : -1, ids[2], vocab;
    float *alone;

    lora_path(full, "phimoe", "full");
    base_path(base, 0);
    g = open_adapted(base, &a, 1, NULL, 2, convert);
    plain = open_adapted(base, NULL, 0, NULL, 2, convert);
    vocab = engine_info(g)->model->hp.n_vocab;
    with = run_session(g, engine_session(g), PROMPT);
    without = run_session(plain, engine_session(plain), PROMPT);
    ck_assert(memcmp(with.logits, without.logits, with.n * sizeof *with.logits) != 0);
    ck_assert_int_eq(engine_session_strengths_set(engine_session(g), one), 0);
    ck_assert_int_eq(engine_session_strengths_set(engine_session(g), none), PROMPT);
    ck_assert_int_eq(engine_session_tokens(g, NULL), 0);
    same_run(without, run_session(g, engine_session(g), PROMPT), "strength 0");
    ck_assert_int_eq(engine_session_strengths_set(engine_session(g), half), PROMPT);
    other_run(with, run_session(g, engine_session(g), PROMPT));

    ck_assert_msg(engine_session_open(g, &beside, &e) == 0, "%s", e.text);
    ck_assert(engine_session_strengths(beside)[0] == 1.0f); /* that of the request */
    same_run(with, run_session(g, beside, PROMPT), "beside another strength");
    /* one pass for both: the next token of each */
    alone = calloc((size_t)vocab, sizeof *alone);
    engine_session_strengths_set(engine_session(g), none);
    free(run_session(g, engine_session(g), PROMPT).logits);
    pair[0] = engine_session(g);
    pair[1] = beside;
    ids[0] = ids[1] = 5;
    ck_assert_msg(engine_sessions_eval(pair, 2, ids, &e) == 0, "%s", e.text);
    ck_assert_int_eq(engine_session_eval(pair[0], &(int){9}, 1, 1, alone, false, &e), 0);
    engine_session_clear(plain);
    free(run_session(plain, engine_session(plain), PROMPT).logits);
    {
        float *want = calloc((size_t)vocab, sizeof *want);

        ck_assert_int_eq(engine_eval(plain, &(int){5}, 1, want, false, &e), 0);
        ck_assert_int_eq(engine_eval(plain, &(int){9}, 1, want, false, &e), 0);
        ck_assert(memcmp(alone, want, (size_t)vocab * sizeof *want) == 0);
        free(want);
    }
    free(alone);
    free(with.logits);
    free(without.logits);
    engine_close(plain);
    engine_close(g);
}
END_TEST

/* The bits of a quantised base's own product do not change where an adapter hangs on it. */
START_TEST(tiny_strength_moves_little)
{
    char full[PATH_MAX], base[PATH_MAX];
    struct adapter_request a = {full, 1e-6f};
    struct engine *g, *plain;
    struct run with, without;
    double worst = 0.0;

    lora_path(full, "phimoe", "full");
    base_path(base, 0);
    g = open_adapted(base, &a, 1, NULL, 2, DTYPE_Q8_0);
    plain = open_adapted(base, NULL, 0, NULL, 2, DTYPE_Q8_0);
    with = run_session(g, engine_session(g), PROMPT);
    without = run_session(plain, engine_session(plain), PROMPT);
    for (size_t i = 0; i < with.n; i++)
        worst = worst > fabs((double)with.logits[i] - (double)without.logits[i])
                    ? worst
                    : fabs((double)with.logits[i] - (double)without.logits[i]);
    /* an activation that is rounded to the other side counts for more than the adapter */
    ck_assert_msg(worst < 0.05, "%g", worst);
    free(with.logits);
    free(without.logits);
    engine_close(plain);
    engine_close(g);
}
END_TEST

/* A GGUF base has its queries and keys in another order than the folder that a PEFT adapter was
 * trained on. */
START_TEST(formats_of_base_and_adapter_may_differ)
{
    static const char *const adapters[] = {"full", "full.gguf"};
    char base[PATH_MAX], file[PATH_MAX], path[PATH_MAX], why[PATH_MAX + 64], goldens[PATH_MAX];
    struct export_options o = {.type = export_type_find("f32"), .n_threads = 2};
    struct export_report report;
    struct error e = {0};

    base_path(base, _i);
    snprintf(file, sizeof file, "%s/%s.gguf", support_tmpdir(), families_of[_i]);
    ck_assert_ptr_nonnull(o.type);
    ck_assert_msg(model_export(base, file, &o, &report, &e) == 0, "%s", e.text);
    lora_path(goldens, families_of[_i], "golden.safetensors");
    for (int k = 0; k < 2; k++) {
        struct adapter_request a = {path, 1.0f};
        struct golden golden;
        struct golden_result r;
        struct engine *g = NULL;

        lora_path(path, families_of[_i], adapters[k]);
        ck_assert(golden_open_logits(&golden, goldens, "logits_full", why, sizeof why) == 0);
        ck_assert_msg(golden_engine_adapted(&g, file, &a, 1, NULL, 2, -1, true, &e) == 0, "%s",
                      e.text);
        ck_assert_msg(golden_compare(g, &golden, &r, &e) == 0, "%s", e.text);
        ck_assert_msg(r.whole <= GOLDEN_TOLERANCE && r.greedy_agrees, "%s: %g", adapters[k],
                      r.whole);
        engine_close(g);
        golden_close(&golden);
    }
}
END_TEST

/* ---- merged ---- */

static void golden_full(const char *model, const char *family, const char *what)
{
    char path[PATH_MAX], why[PATH_MAX + 64];
    struct golden golden;
    struct golden_result r;
    struct engine *g = NULL;
    struct error e = {0};

    lora_path(path, family, "golden.safetensors");
    ck_assert(golden_open_logits(&golden, path, "logits_both", why, sizeof why) == 0);
    ck_assert_msg(golden_engine(&g, model, NULL, 2, -1, true, &e) == 0, "%s: %s", what, e.text);
    ck_assert_msg(golden_compare(g, &golden, &r, &e) == 0, "%s", e.text);
    ck_assert_msg(r.whole <= GOLDEN_TOLERANCE && r.stepped <= GOLDEN_TOLERANCE, "%s: %g", what,
                  r.whole);
    ck_assert(r.greedy_agrees);
    engine_close(g);
    golden_close(&golden);
}

/* Weights with two adapters in them compute as the adapters beside them: a folder, a GGUF file made
 * of one, and one made of a GGUF file. */
START_TEST(merged_weights)
{
    char full[PATH_MAX], attn[PATH_MAX], base[PATH_MAX], folder[PATH_MAX], plain[PATH_MAX],
        file[PATH_MAX], again[PATH_MAX];
    struct adapter_request a[2] = {{full, 1.0f}, {attn, 0.5f}};
    struct export_options o = {
        .type = export_type_find("f32"), .n_threads = 2, .adapters = a, .n_adapters = 2};
    struct export_report report;
    struct merge_report merged;
    struct error e = {0};

    lora_path(full, families_of[_i], "full");
    lora_path(attn, families_of[_i], "attn");
    base_path(base, _i);
    snprintf(folder, sizeof folder, "%s/merged", support_tmpdir());
    ck_assert_msg(merge_folder(base, folder, DTYPE_F32, a, 2, NULL, NULL, &merged, &e) == 0, "%s",
                  e.text);
    ck_assert_int_gt(merged.merged, 3);
    ck_assert_int_gt(merged.tensors, merged.merged);
    golden_full(folder, families_of[_i], "folder");
    ck_assert_int_eq(merge_folder(base, base, -1, a, 2, NULL, NULL, &merged, &e), ERR_USAGE);
    /* in the types that it has: BF16 rounds */
    snprintf(folder, sizeof folder, "%s/kept", support_tmpdir());
    ck_assert_msg(merge_folder(base, folder, -1, a, 2, NULL, NULL, &merged, &e) == 0, "%s", e.text);
    if (_i == 0 || _i == 3)
        golden_full(folder, families_of[_i], "folder as it is");
    if (_i == 3) /* folders of gpt2 are not written as GGUF */
        return;
    snprintf(file, sizeof file, "%s/merged.gguf", support_tmpdir());
    ck_assert_msg(model_export(base, file, &o, &report, &e) == 0, "%s", e.text);
    golden_full(file, families_of[_i], "GGUF of a folder");
    snprintf(plain, sizeof plain, "%s/plain.gguf", support_tmpdir());
    snprintf(again, sizeof again, "%s/again.gguf", support_tmpdir());
    o.n_adapters = 0;
    ck_assert_msg(model_export(base, plain, &o, &report, &e) == 0, "%s", e.text);
    o.n_adapters = 2;
    ck_assert_msg(model_export(plain, again, &o, &report, &e) == 0, "%s", e.text);
    golden_full(again, families_of[_i], "GGUF of a GGUF file");
    o.type = export_type_find("q8_0");
    ck_assert_int_eq(model_export(base, again, &o, &report, &e), ERR_USAGE);
}
END_TEST

/* ---- what is refused ---- */

static void copy_file(const char *from, const char *to)
{
    char buffer[65536];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t n;

    ck_assert_msg(in && out, "%s", from);
    while ((n = fread(buffer, 1, sizeof buffer, in)))
        fwrite(buffer, 1, n, out);
    fclose(in);
    fclose(out);
}

/* A copy of a folder below the temporary one. */
static void copy_folder(char to[PATH_MAX], const char *family, const char *adapter)
{
    static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors",
                                        "fused_expert_lora.safetensors"};
    char from[PATH_MAX], a[PATH_MAX + 64], b[PATH_MAX + 64];
    static int n;

    lora_path(from, family, adapter);
    snprintf(to, PATH_MAX, "%s/copy%d", support_tmpdir(), n++);
    ck_assert_int_eq(mkdir(to, 0700), 0);
    for (int i = 0; i < 3; i++) {
        snprintf(a, sizeof a, "%s/%s", from, names[i]);
        snprintf(b, sizeof b, "%s/%s", to, names[i]);
        if (access(a, F_OK) == 0)
            copy_file(a, b);
    }
}

/* Sets a key of adapter_config.json; value NULL: takes it out. */
static void set_config(const char *folder, const char *key, const char *value)
{
    char path[PATH_MAX + 64];
    json_error_t why;
    json_t *root;

    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    ck_assert((root = json_load_file(path, 0, &why)) != NULL);
    if (value)
        json_object_set_new(root, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(root, key);
    ck_assert_int_eq(json_dump_file(root, path, 0), 0);
    json_decref(root);
}

/* Renames a tensor of the folder's weights to a name as long. */
static void rename_tensor(const char *folder, const char *from, const char *to)
{
    char path[PATH_MAX + 64], *bytes, *at;
    struct stat st;
    FILE *f;

    ck_assert_uint_eq(strlen(from), strlen(to));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    ck_assert_int_eq(stat(path, &st), 0);
    bytes = malloc((size_t)st.st_size);
    f = fopen(path, "r+b");
    ck_assert(fread(bytes, 1, (size_t)st.st_size, f) == (size_t)st.st_size);
    at = memmem(bytes, (size_t)st.st_size, from, strlen(from));
    ck_assert_msg(at != NULL, "%s", from);
    memcpy(at, to, strlen(to));
    rewind(f);
    fwrite(bytes, 1, (size_t)st.st_size, f);
    fclose(f);
    free(bytes);
}

/* Opens an adapter on a base of which shapes alone are known. */
static int try_open(int base, const char *adapter, struct adapters **out, struct error *e)
{
    struct adapter_request a = {adapter, 1.0f};
    struct model_options o = {.convert = -1, .width = 8, .n_threads = 1};
    struct model *m = NULL;
    char path[PATH_MAX];
    int rc;

    base_path(path, base);
    ck_assert_msg(model_inspect(&m, path, &o, NULL, e) == 0, "%s", e->text);
    rc = adapters_open(out, m, &a, 1, true, e);
    model_free(m);
    return rc;
}

static void refused(int base, const char *adapter, const char *why)
{
    struct adapters *a = NULL;
    struct error e = {0};
    int rc = try_open(base, adapter, &a, &e);

    ck_assert_msg(rc == ERR_MODEL || rc == ERR_VALUE, "%s: %d, %s expected", adapter, rc, why);
    ck_assert_ptr_null(a);
    ck_assert_msg(strstr(e.text, why) != NULL, "'%s' lacks '%s'", e.text, why);
    ck_assert_msg(strchr(e.text, '\n') == NULL, "%s", e.text);
}

static const struct {
    const char *key, *value, *why;
} settings[] = {
    {"use_dora", "true", "DoRA"},
    {"modules_to_save", "[\"lm_head\"]", "modules_to_save"},
    {"bias", "\"all\"", "bias"},
    {"lora_bias", "true", "lora_bias"},
    {"alora_invocation_tokens", "[1, 2]", "aLoRA"},
    {"trainable_token_indices", "[5]", "trainable_token_indices"},
    {"peft_type", "\"IA3\"", "peft_type is IA3"},
    {"peft_type", NULL, "peft_type is missing"},
    {"layer_replication", "[[0, 1]]", "layer_replication"},
    {"use_qalora", "true", "QALoRA"},
    {"init_lora_weights", "\"pissa_niter_4\"", "changes the base's weights"},
    {"r", "3", "rank 3"},
    {"r", "\"4\"", "r: a whole number"},
    {"r", "0", "r: a whole number"},
    {"lora_alpha", "null", "lora_alpha"},
    {"rank_pattern", "{\"q_proj\": 7}", "rank 7"},
    {"rank_pattern", "{\"q_proj\": \"x\"}", "a number is expected"},
    {"rank_pattern", "{\"(\": 7}", "the pattern ( cannot be read"},
    {"rank_pattern", "{\"([a-z0-9._]+)+[^a-z0-9._]\": 7}", "takes too long"},
};

START_TEST(settings_are_refused)
{
    char folder[PATH_MAX];

    copy_folder(folder, "phimoe", "full");
    set_config(folder, settings[_i].key, settings[_i].value);
    refused(0, folder, settings[_i].why);
}
END_TEST

#define Q "base_model.model.model.layers.0.self_attn.q_proj."

static const struct {
    const char *from, *to, *why;
} names[] = {
    {Q "lora_A.weight", "base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight",
     "no partner"},
    {Q "lora_B.weight", Q "lora_X.weight", "no partner"},
    {Q "lora_A.weight", "base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight",
     "duplicate object key"},
};

START_TEST(names_are_refused)
{
    char folder[PATH_MAX];

    copy_folder(folder, "phimoe", "full");
    rename_tensor(folder, names[_i].from, names[_i].to);
    refused(0, folder, names[_i].why);
}
END_TEST

/* A layer, an expert there is none; a whole weight; a magnitude of DoRA. */
START_TEST(tensors_are_refused)
{
    char folder[PATH_MAX];

    copy_folder(folder, "llama", "full");
    rename_tensor(folder, "layers.0.self_attn.q_proj.lora_A", "layers.9.self_attn.q_proj.lora_A");
    rename_tensor(folder, "layers.0.self_attn.q_proj.lora_B", "layers.9.self_attn.q_proj.lora_B");
    refused(2, folder, "layer 9");
    copy_folder(folder, "qwen3_moe", "full");
    set_config(folder, "r", "4");
    rename_tensor(folder, "layers.0.mlp.experts.19.up_proj.lora_A",
                  "layers.0.mlp.experts.77.up_proj.lora_A");
    rename_tensor(folder, "layers.0.mlp.experts.19.up_proj.lora_B",
                  "layers.0.mlp.experts.77.up_proj.lora_B");
    refused(1, folder, "expert 77");
    copy_folder(folder, "llama", "full");
    rename_tensor(folder, "q_proj.lora_A.weight", "q_proj.notlor.weight");
    refused(2, folder, "a whole weight");
    lora_path(folder, "llama", "full"); /* of another family */
    refused(3, folder, "none of its");
    lora_path(folder, "llama", "full.gguf");
    refused(3, folder, "an adapter of llama models");
    refused(0, support_demo(), "adapter");
    base_path(folder, 0); /* a model's folder */
    refused(0, folder, "no adapter");
}
END_TEST

/* Tensors that find no place are named, and the rest is computed. */
START_TEST(unplaced_tensors_are_named)
{
    struct adapters *a = NULL;
    struct error e = {0};
    char folder[PATH_MAX];

    copy_folder(folder, "llama", "full");
    rename_tensor(folder, "layers.0.self_attn.q_proj.lora_A", "layers.0.self_attn.x_proj.lora_A");
    rename_tensor(folder, "layers.0.self_attn.q_proj.lora_B", "layers.0.self_attn.x_proj.lora_B");
    ck_assert_msg(try_open(2, folder, &a, &e) == 0, "%s", e.text);
    ck_assert_int_eq(adapters_at(a, 0)->n_unplaced, 2);
    ck_assert_ptr_nonnull(strstr(adapters_at(a, 0)->unplaced, "x_proj.lora_A"));
    ck_assert_ptr_nonnull(strstr(adapters_at(a, 0)->unplaced, "x_proj.lora_B"));
    adapters_close(a);
    lora_path(folder, "llama", "full");
    ck_assert_msg(try_open(2, folder, &a, &e) == 0, "%s", e.text);
    ck_assert_int_eq(adapters_at(a, 0)->n_unplaced, 0);
    ck_assert_ptr_null(adapters_at(a, 0)->unplaced);
    adapters_close(a);
}
END_TEST

/* A tensor of an adapter that a test makes: F32, all zero. */
struct tensor_shape {
    const char *name;
    int rows, cols;
};

/* The weights of such a folder, in place of what it has. */
static void write_weights(const char *folder, const struct tensor_shape *t, int n)
{
    char path[PATH_MAX + 64], *text;
    json_t *root = json_object();
    uint64_t at = 0, length;
    FILE *f;

    for (int i = 0; i < n; i++) {
        uint64_t bytes = (uint64_t)t[i].rows * (uint64_t)t[i].cols * 4;

        json_object_set_new(root, t[i].name,
                            json_pack("{s:s, s:[i,i], s:[I,I]}", "dtype", "F32", "shape", t[i].rows,
                                      t[i].cols, "data_offsets", (json_int_t)at,
                                      (json_int_t)(at + bytes)));
        at += bytes;
    }
    text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    ck_assert((f = fopen(path, "wb")) != NULL);
    length = strlen(text);
    fwrite(&length, 1, sizeof length, f);
    fwrite(text, 1, length, f);
    fclose(f);
    ck_assert_int_eq(truncate(path, (off_t)(sizeof length + length + at)), 0);
    free(text);
}

static int long_lines, longest_line;

static void count_long(void *ctx, const char *line)
{
    int n = (int)strlen(line);

    longest_line = n > longest_line ? n : longest_line;
    long_lines += strstr(line, "zzzz") != NULL;
}

/* A name longer than a line of them is one of its own, once; it used to be stepped back from. */
START_TEST(a_long_unplaced_name_is_one_line)
{
    enum { Z = 460 }; /* 506 in all: a file may have 512 */
    static char unplaced[2][Z + 100];
    const struct tensor_shape tensors[] = {
        {Q "lora_A.weight", 4, 32},
        {Q "lora_B.weight", 64, 4},
        {unplaced[0], 4, 32},
        {unplaced[1], 64, 4},
    };
    struct adapter_request a = {.strength = 1};
    struct engine_config c = {.context = 64,
                              .n_threads = 1,
                              .ubatch = 16,
                              .convert = -1,
                              .no_tokenizer = true,
                              .adapters = &a,
                              .n_adapters = 1,
                              .log = count_long};
    char folder[PATH_MAX], base[PATH_MAX], zs[Z + 1];
    struct engine *g = NULL;
    struct error e = {0};

    memset(zs, 'z', Z);
    zs[Z] = 0;
    for (int i = 0; i < 2; i++)
        snprintf(unplaced[i], sizeof unplaced[i],
                 "base_model.model.model.layers.0.%s.lora_%c.weight", zs, "AB"[i]);
    copy_folder(folder, "llama", "full");
    write_weights(folder, tensors, 4);
    base_path(base, 2);
    c.model_path = base;
    a.path = folder;
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    ck_assert_int_eq(long_lines, 2); /* one a tensor */
    ck_assert_int_gt(longest_line, Z);
    ck_assert_int_lt(longest_line, Z + 200);
    engine_close(g);
}
END_TEST

/* Experts of 16 in a width of 32: gate and up together are as wide as the model, so that the shapes
 * of a pair fit either way. The release tells which it is, and without one it is refused. */
START_TEST(an_ambiguous_fused_layout_is_refused)
{
    static const struct tensor_shape pair[] = {
        {"base_model.model.model.layers.0.mlp.experts.lora_A.weight", 60, 32},
        {"base_model.model.model.layers.0.mlp.experts.lora_B.weight", 32, 60},
    };
    static const char *const releases[] = {NULL, "\"0.17.1\"", "\"0.19.0\""};
    struct model_options o = {.convert = -1, .width = 8, .n_threads = 1};
    struct adapter_request a = {.strength = 1};
    char folder[PATH_MAX], base[PATH_MAX];

    copy_folder(folder, "qwen3_moe", "fused");
    write_weights(folder, pair, 2);
    base_path(base, 1);
    a.path = folder;
    for (int i = 0; i < 3; i++) {
        struct adapters *all = NULL;
        struct model *m = NULL;
        struct error e = {0};
        bool says;

        ck_assert_msg(model_inspect(&m, base, &o, NULL, &e) == 0, "%s", e.text);
        /* as if its experts were so wide: shapes alone are compared before anything else */
        m->hp.common.ffn.width = 16;
        for (int l = 0; m->hp.layers && l < m->hp.n_layers; l++)
            m->hp.layers[l].ffn.width = 16;
        set_config(folder, "peft_version", releases[i]);
        says = adapters_open(&all, m, &a, 1, true, &e) == ERR_MODEL &&
               strstr(e.text, "ambiguous") && strstr(e.text, "peft_version");
        ck_assert_msg(says == !releases[i], "%s: '%s'", releases[i] ? releases[i] : "none", e.text);
        adapters_close(all);
        model_free(m);
    }
}
END_TEST

/* Fused experts: either layout is told by its widths; where those are alike by the release alone.
 */
START_TEST(fused_layouts)
{
    struct adapters *a = NULL, *b = NULL;
    struct error e = {0};
    char folder[PATH_MAX];

    copy_folder(folder, "qwen3_moe", "fused");
    set_config(folder, "peft_version", NULL);
    ck_assert_msg(try_open(1, folder, &a, &e) == 0, "%s", e.text);
    copy_folder(folder, "qwen3_moe", "fused-0.17");
    set_config(folder, "peft_version", NULL);
    ck_assert_msg(try_open(1, folder, &b, &e) == 0, "%s", e.text);
    ck_assert_int_eq(adapters_at(a, 0)->matrices, adapters_at(b, 0)->matrices);
    ck_assert_int_gt(adapters_at(a, 0)->expert_matrices, 3 * 20);
    adapters_close(a);
    adapters_close(b);
    set_config(folder, "peft_version", "\"0.19.0\""); /* says one thing, is the other */
    refused(1, folder, "they fit neither");
    set_config(folder, "r", "5");
    refused(1, folder, "rank 5");
}
END_TEST

/* ---- llama.cpp's files ---- */

struct gguf_tensor {
    const char *name;
    enum dtype type;
    int n_dims;
    int64_t dims[3];
    float value; /* of all elements */
};

static void write_gguf(const char *path, const char *architecture, const struct gguf_tensor *t,
                       int n, bool alora)
{
    struct gguf_writer *w = NULL;
    struct error e = {0};

    ck_assert_msg(gguf_write_open(&w, path, &e) == 0, "%s", e.text);
    gguf_put_string(w, "general.type", "adapter", 7);
    gguf_put_string(w, "general.architecture", architecture, strlen(architecture));
    gguf_put_string(w, "adapter.type", "lora", 4);
    gguf_put_f32(w, "adapter.lora.alpha", 8.0f);
    if (alora) {
        gguf_put_array(w, "adapter.alora.invocation_tokens", GGUF_I32, 1);
        gguf_add_i32(w, 5);
    }
    for (int i = 0; i < n; i++)
        gguf_write_tensor(w, t[i].name, t[i].type, t[i].n_dims, t[i].dims);
    ck_assert_int_eq(gguf_write_begin(w, &e), 0);
    for (int i = 0; i < n; i++) {
        int64_t rows = 1, cols = t[i].dims[t[i].n_dims - 1];
        size_t bytes = dtype_row_bytes(t[i].type, cols);
        float *x = calloc((size_t)cols, sizeof *x);
        uint8_t *row = malloc(bytes);

        for (int k = 0; k + 1 < t[i].n_dims; k++)
            rows *= t[i].dims[k];
        for (int64_t c = 0; c < cols; c++)
            x[c] = t[i].value;
        row_from_f32(t[i].type, x, cols, row);
        for (int64_t r = 0; r < rows; r++)
            ck_assert_int_eq(gguf_write_data(w, row, bytes, &e), 0);
        free(x);
        free(row);
    }
    ck_assert_int_eq(gguf_write_finish(w, &e), 0);
}

static void gguf_refused(int base, const char *architecture, const struct gguf_tensor *t, int n,
                         bool alora, const char *why)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/trap.gguf", support_tmpdir());
    write_gguf(path, architecture, t, n, alora);
    refused(base, path, why);
}

START_TEST(traps_of_gguf)
{
    /* its converter swaps A and B of gpt2: 192 where 64 belongs */
    const struct gguf_tensor swapped[] = {
        {"blk.0.attn_qkv.weight.lora_a", DTYPE_F32, 2, {4, 96}, 0.1f},
        {"blk.0.attn_qkv.weight.lora_b", DTYPE_F32, 2, {32, 4}, 0.1f}};
    /* it does not look at how many experts A and B are of */
    const struct gguf_tensor fewer[] = {
        {"blk.0.ffn_up_exps.weight.lora_a", DTYPE_F32, 3, {19, 4, 32}, 0.1f},
        {"blk.0.ffn_up_exps.weight.lora_b", DTYPE_F32, 3, {19, 12, 4}, 0.1f}};
    const struct gguf_tensor alone[] = {
        {"blk.0.attn_q.weight.lora_a", DTYPE_F32, 2, {4, 32}, 0.1f}};
    const struct gguf_tensor flat[] = {
        {"blk.0.attn_q.weight.lora_a", DTYPE_F32, 1, {32}, 0.1f},
        {"blk.0.attn_q.weight.lora_b", DTYPE_F32, 2, {64, 4}, 0.1f}};
    const struct gguf_tensor good[] = {
        {"blk.0.attn_q.weight.lora_a", DTYPE_F32, 2, {4, 32}, 0.1f},
        {"blk.0.attn_q.weight.lora_b", DTYPE_F32, 2, {64, 4}, 0.1f}};
    const struct gguf_tensor infinite[] = {
        {"blk.0.attn_q.weight.lora_a", DTYPE_F16, 2, {4, 32}, 1e30f},
        {"blk.0.attn_q.weight.lora_b", DTYPE_F32, 2, {64, 4}, 0.1f}};
    const struct gguf_tensor odd[] = {{"blk.0.attn_q.weight.lora_a", DTYPE_Q4_0, 2, {4, 32}, 0.1f},
                                      {"blk.0.attn_q.weight.lora_b", DTYPE_F32, 2, {64, 4}, 0.1f}};
    char path[PATH_MAX];
    struct adapters *a = NULL;
    struct error e = {0};

    gguf_refused(3, "gpt2", swapped, 2, false, "do not fit");
    gguf_refused(1, "qwen3moe", fewer, 2, false, "do not fit");
    gguf_refused(1, "qwen3moe", alone, 1, false, "no partner");
    gguf_refused(1, "qwen3moe", flat, 2, false, "no matrix");
    gguf_refused(1, "qwen3moe", good, 2, true, "aLoRA");
    gguf_refused(1, "llama", good, 2, false, "an adapter of llama models");
    gguf_refused(1, "qwen3moe", infinite, 2, false, "infinity");
    gguf_refused(1, "qwen3moe", odd, 2, false, "has the type q4_0");
    snprintf(path, sizeof path, "%s/good.gguf", support_tmpdir());
    write_gguf(path, "qwen3moe", good, 2, false);
    ck_assert_msg(try_open(1, path, &a, &e) == 0, "%s", e.text);
    ck_assert_int_eq(adapters_at(a, 0)->matrices, 1);
    adapters_close(a);
}
END_TEST

/* A and B in each type that is read: constant rows are exact in all of them. */
START_TEST(types_of_gguf)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0};
    char path[PATH_MAX], base[PATH_MAX];
    struct run want = {0};

    base_path(base, 1);
    snprintf(path, sizeof path, "%s/types.gguf", support_tmpdir());
    for (int i = 0; i < 4; i++) {
        const struct gguf_tensor t[] = {
            {"blk.0.attn_q.weight.lora_a", types[i], 2, {32, 32}, 0.0625f},
            {"blk.0.attn_q.weight.lora_b", types[i], 2, {64, 32}, 0.03125f}};
        struct adapter_request a = {path, 1.0f};
        struct engine *g;
        struct run r;

        write_gguf(path, "qwen3moe", t, 2, false);
        g = open_adapted(base, &a, 1, NULL, 2, -1);
        r = run_session(g, engine_session(g), PROMPT);
        if (i == 0)
            want = r;
        else if (types[i] == DTYPE_Q8_0) /* 127 steps of a scale that F16 rounds */
            free(r.logits);
        else
            same_run(want, r, dtype_info(types[i])->word);
        engine_close(g);
    }
    free(want.logits);
}
END_TEST

/* ---- damage ---- */

/* Cut anywhere, with any byte of its head turned over: a line, or an adapter that fits. */
START_TEST(damage_is_told)
{
    static const char *const files[] = {"full.gguf", "attn/adapter_model.safetensors"};
    char from[PATH_MAX], folder[PATH_MAX], to[PATH_MAX + 64];
    struct stat st;
    uint8_t *bytes;
    FILE *f;

    lora_path(from, "llama", files[_i]);
    copy_folder(folder, "llama", "attn");
    snprintf(to, sizeof to, "%s/%s", folder, _i ? "adapter_model.safetensors" : "x.gguf");
    ck_assert_int_eq(stat(from, &st), 0);
    bytes = malloc((size_t)st.st_size);
    f = fopen(from, "rb");
    ck_assert(fread(bytes, 1, (size_t)st.st_size, f) == (size_t)st.st_size);
    fclose(f);
    for (int k = 0; k < 400; k++) {
        bool cut = k % 2;
        size_t at = (size_t)(k * 37) % (size_t)st.st_size % 6000;
        struct adapters *a = NULL;
        struct error e = {0};
        int rc;

        bytes[at] ^= cut ? 0 : (uint8_t)(1 + k);
        f = fopen(to, "wb");
        fwrite(bytes, 1, cut ? at : (size_t)st.st_size, f);
        fclose(f);
        bytes[at] ^= cut ? 0 : (uint8_t)(1 + k);
        rc = try_open(2, _i ? folder : to, &a, &e);
        ck_assert_msg(!cut || rc < 0, "cut at %zu", at);
        ck_assert(rc == 0 || (e.text[0] && !strchr(e.text, '\n')));
        adapters_close(a);
    }
    free(bytes);
}
END_TEST

/* Every allocation fails once. */
START_TEST(memory_runs_out)
{
    static const char *const kinds[] = {"full", "full.gguf", "full-kt", "full"};
    char path[PATH_MAX], base[PATH_MAX];
    struct model_options o = {.convert = -1, .width = 8, .n_threads = 1};
    bool done = false;

    lora_path(path, families_of[_i == 3], kinds[_i]);
    base_path(base, _i == 3);
    for (long n = 0; !done; n++) {
        struct adapter_request a = {path, 1.0f};
        struct adapters *all = NULL;
        struct model *m = NULL;
        struct error e = {0};

        ck_assert_int_eq(model_inspect(&m, base, &o, NULL, &e), 0);
        mem_fail_after(n < 200 ? n : n * n / 200);
        done = adapters_open(&all, m, &a, 1, true, &e) == 0;
        mem_fail_after(-1);
        ck_assert(done || e.code == ERR_MEMORY || strstr(e.text, "memory"));
        adapters_close(all);
        model_free(m);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("lora");
    TCase *c = tcase_create("lora");

    tcase_set_timeout(c, 240);
    tcase_add_loop_test(c, golden_numbers, 0, 4);
    tcase_add_loop_test(c, bits_are_the_same, 0, 16);
    tcase_add_loop_test(c, strengths_are_the_sessions, 0, 2);
    tcase_add_test(c, tiny_strength_moves_little);
    tcase_add_loop_test(c, formats_of_base_and_adapter_may_differ, 0, 3);
    tcase_add_loop_test(c, merged_weights, 0, 4);
    tcase_add_loop_test(c, settings_are_refused, 0, (int)(sizeof settings / sizeof *settings));
    tcase_add_loop_test(c, names_are_refused, 0, (int)(sizeof names / sizeof *names));
    tcase_add_test(c, tensors_are_refused);
    tcase_add_test(c, unplaced_tensors_are_named);
    tcase_add_test(c, a_long_unplaced_name_is_one_line);
    tcase_add_test(c, an_ambiguous_fused_layout_is_refused);
    tcase_add_test(c, fused_layouts);
    tcase_add_test(c, traps_of_gguf);
    tcase_add_test(c, types_of_gguf);
    tcase_add_loop_test(c, damage_is_told, 0, 2);
    tcase_add_loop_test(c, memory_runs_out, 0, 4);
    suite_add_tcase(s, c);
    return support_run(s);
}
